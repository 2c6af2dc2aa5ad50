"""One place charges for answers and adds their noise: read off the syntax tree of the whole package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

import dpdescent
from dpdescent import Ledger
from dpdescent.accounting import Gaussian, Laplace
from dpdescent.curator import LatticeNoise, Noised
from dpdescent.curator.release import Paid, check, note, pay, release
from dpdescent.errors import BudgetExhausted, InvalidParameter, ScaleOutOfRange
from dpdescent.relations import Norm, Relation, Sensitivity

SOURCES = Path(dpdescent.__file__).parent
CHARGES = {"spend", "spend_jointly"}
DRAWS = {"release", "gaussian", "gaussian_symmetric", "laplace", "norm_laplace", "least", "first_above"}
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
    assert callers_outside(modules(), (DOOR, "curator/mechanisms.py", "audit/"), draws) == set()
    rooms = ("noise/", "curator/mechanisms.py", "minimisers/sampler.py", "audit/")
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
    with pytest.raises(InvalidParameter, match="paid for"):
        paid.release(part(Gaussian(5.0)), np.array([1]))
    with pytest.raises(InvalidParameter, match="ledger first"):
        Paid(Relation.ZERO_OUT, LatticeNoise(), frozenset(), "gradient", Gaussian(1.0), object())


def test_a_note_is_a_line_in_the_ledger_that_costs_nothing_that_counts() -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    note(ledger, "steps from 3 on")
    assert [entry.label for entry in ledger.entries] == ["steps from 3 on"]
    assert 0 <= ledger.spent < 1e-100
