"""One place charges for answers and adds their noise: read off the syntax tree of the whole package."""

from __future__ import annotations

import ast
import copy
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpdescent
from dpdescent import Ledger
from dpdescent.accounting import Composed, Gaussian, Laplace
from dpdescent.curator import LatticeNoise
from dpdescent.curator.release import Paid, check, note, pay, release
from dpdescent.errors import BudgetExhausted, InvalidParameter, ScaleOutOfRange
from dpdescent.queries import Noised
from dpdescent.relations import Norm, Relation, Sensitivity

SOURCES = Path(dpdescent.__file__).parent
CHARGES = {"spend", "spend_jointly"}
DRAWS = {"release", "published", "gaussian", "gaussian_symmetric", "laplace", "norm_laplace", "least", "first_above"}
SAMPLERS = {"discrete_gaussian", "discrete_laplace", "norm_laplace", "select"}
DOOR = "curator/release.py"


def calls(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield what is called in a module, as the name of the function and the text of what it belongs to."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr, ast.unparse(node.func.value)
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            yield node.func.id, ""


def modules() -> dict[str, ast.AST]:
    return {str(path.relative_to(SOURCES)): ast.parse(path.read_text()) for path in SOURCES.rglob("*.py")}


def callers_outside(found: dict[str, ast.AST], rooms: tuple[str, ...], wanted) -> set[str]:
    named = {name for name, tree in found.items() if any(wanted(*each) for each in calls(tree))}
    return {name for name in named if not name.startswith(rooms)}


def charges(function: str, _: str) -> bool:
    return function in CHARGES


def draws(function: str, owner: str) -> bool:
    return function in DRAWS and (owner.lower().endswith("noise") or owner == "super()")


def samples(function: str, owner: str) -> bool:
    return function in SAMPLERS and not owner


def test_one_place_charges_for_answers() -> None:
    assert callers_outside(modules(), ("ledger/", DOOR), charges) == set()


def test_one_place_adds_noise_to_answers() -> None:
    # A mechanism is made of samplers, and an audit draws from mechanisms whose answers are about made-up sums.
    assert callers_outside(modules(), (DOOR, "curator/lattice_noise.py", "audit/"), draws) == set()
    rooms = ("noise/", "curator/lattice_noise.py", "minimisers/sampler.py", "audit/")
    assert callers_outside(modules(), rooms, samples) == set()


def test_a_module_that_charges_or_draws_by_itself_is_found() -> None:
    planted = {
        "solvers/a.py": ast.parse("curator.ledger.spend(cost, 'gradient')"),
        "solvers/b.py": ast.parse("spend_jointly((ledger,), cost)"),
        "solvers/c.py": ast.parse("self._noise.release(total, cost, relation)"),
        "solvers/d.py": ast.parse("discrete_gaussian(bits, 1.0, 5)"),
        "solvers/e.py": ast.parse("curator.gaussian(amount)"),
    }
    found = [callers_outside(planted, (), wanted) for wanted in (charges, draws, samples)]
    assert found == [{"solvers/a.py", "solvers/b.py"}, {"solvers/c.py"}, {"solvers/d.py"}]


def part(cost: Gaussian | Laplace, unit: float = 2.0**-20) -> Noised:
    norm = Norm.L2 if isinstance(cost, Gaussian) else Norm.L1
    return Noised(cost, unit, Sensitivity(norm, 1.0, 1.0), divisor=4.0)


def test_nothing_is_computed_before_it_is_paid_for_and_nothing_is_left_unpaid() -> None:
    ledger, seen = Ledger(1.0, 1e-6, currency="gdp"), []

    def compute():
        seen.append([entry.label for entry in ledger.entries])
        return np.array([8 << 20])

    released = release(ledger, part(Gaussian(50.0)), "a count", compute, LatticeNoise())
    assert seen == [["a count"]]
    assert released.shape == (1,)
    with pytest.raises(BudgetExhausted):
        release(ledger, part(Gaussian(0.01)), "too dear", compute)
    assert len(seen) == len(ledger.entries) == 1


def test_noise_that_cannot_be_drawn_is_refused_before_the_charge() -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    fine = part(Gaussian(50.0), unit=2.0**-100)
    with pytest.raises(ScaleOutOfRange):
        check([fine], Relation.ZERO_OUT)
    with pytest.raises(ScaleOutOfRange):
        pay((ledger,), Gaussian(50.0), "fine", [fine], LatticeNoise())
    assert not ledger.entries


def test_only_what_was_paid_for_is_released_and_only_paying_gives_the_right_to() -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    paid = pay((ledger,), Gaussian(50.0), "a count", [part(Gaussian(50.0))], LatticeNoise())
    stronger, wider, coarser = (
        part(Gaussian(5.0)),
        replace(part(Gaussian(50.0)), sensitivity=Sensitivity(Norm.L2, 0.5, 0.5)),
        part(Gaussian(50.0), unit=2.0**-10),
    )
    for other in (stronger, wider, coarser):
        with pytest.raises(BudgetExhausted, match="all the answers that were paid for"):
            paid.release(other, np.array([1]))
    with pytest.raises(BudgetExhausted, match="all the answers"):
        paid.draw(Gaussian(50.0), lambda: pytest.fail("a part was paid for, and no point"))
    with pytest.raises(InvalidParameter, match="ledger first"):
        Paid(Relation.ZERO_OUT, LatticeNoise(), (), "gradient", Gaussian(1.0), object())


def left_of(paid: Paid, wanted: Noised, most: int = 10) -> int:
    """Return how often a part can still be released."""
    for count in range(most):
        try:
            paid.release(wanted, np.array([1]))
        except BudgetExhausted:
            return count
    return most


def test_what_was_paid_for_is_released_once_or_as_often_as_was_said() -> None:
    wanted = part(Gaussian(50.0))
    for rights, times in (((wanted,), 1), ((wanted, wanted), 2), ({wanted: 3}, 3)):
        paid = pay((Ledger(1.0, 1e-6, currency="gdp"),), Gaussian(50.0), "counts", rights, LatticeNoise())
        assert left_of(paid, wanted) == times


def test_copies_of_a_right_are_the_right_itself_and_none_is_sent_elsewhere() -> None:
    wanted = part(Gaussian(50.0))
    paid = pay((Ledger(1.0, 1e-6, currency="gdp"),), Gaussian(50.0), "counts", {wanted: 3}, LatticeNoise())
    copies = [copy.copy(paid), copy.deepcopy([paid])[0]]
    for each in copies:
        each.release(wanted, np.array([1]))
    assert left_of(paid, wanted) == 1
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(paid)


def test_a_forked_child_has_no_right_to_what_its_parent_has_paid_for() -> None:
    wanted = part(Gaussian(50.0))
    paid = pay((Ledger(1.0, 1e-6, currency="gdp"),), Gaussian(50.0), "counts", {wanted: 3}, LatticeNoise())
    child = os.fork()
    if child == 0:
        released = 1
        try:
            released = left_of(paid, wanted)
        finally:
            os._exit(released)
    assert os.waitpid(child, 0)[1] == 0
    assert left_of(paid, wanted) == 3


def test_of_threads_that_want_the_last_answer_one_gets_it() -> None:
    wanted = part(Gaussian(50.0))
    paid = pay((Ledger(1.0, 1e-6, currency="gdp"),), Gaussian(50.0), "counts", {wanted: 40}, LatticeNoise())
    with ThreadPoolExecutor(8) as threads:
        assert sum(threads.map(lambda _: left_of(paid, wanted), range(16))) == 40


def test_mechanisms_are_exchanged_once_for_what_they_cover() -> None:
    wanted, mechanism = part(Gaussian(50.0)), Gaussian(50.0)
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    paid = pay((ledger,), Composed((mechanism, mechanism)), "counts", (mechanism, mechanism), LatticeNoise())
    with pytest.raises(BudgetExhausted, match="all the answers"):
        paid.exchange((mechanism,) * 3, (wanted,) * 3)
    first, second = (paid.exchange((mechanism,), (wanted,)) for _ in range(2))
    assert left_of(paid, wanted) == 0
    assert left_of(first, wanted) == left_of(second, wanted) == 1
    with pytest.raises(BudgetExhausted, match="all the answers"):
        paid.exchange((mechanism,), (wanted,))


def test_a_note_is_a_line_in_the_ledger_that_costs_nothing_that_counts() -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    note(ledger, "steps from 3 on")
    assert [entry.label for entry in ledger.entries] == ["steps from 3 on"]
    assert 0 <= ledger.spent < 1e-100
