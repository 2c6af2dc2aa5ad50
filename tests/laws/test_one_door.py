"""One place charges for answers and adds their noise: read off the syntax tree of the whole package."""

from __future__ import annotations

import ast
import copy
import os
import pickle
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

import house
from dpdescent import Ledger
from dpdescent.accounting import Composed, Gaussian, Laplace
from dpdescent.curator import LatticeNoise
from dpdescent.curator.release import Paid, check, note, pay, release
from dpdescent.errors import BudgetExhausted, InvalidParameter, ScaleOutOfRange
from dpdescent.queries import Noised
from dpdescent.relations import Norm, Relation, Sensitivity

CHARGES = {"spend", "spend_jointly", "_hold_for", "_reserve"}
DRAWS = {"release", "published", "gaussian", "gaussian_symmetric", "laplace", "norm_laplace", "least", "first_above"}
SAMPLERS = {"discrete_gaussian", "discrete_laplace", "norm_laplace", "select"}
DOOR = "curator/release.py"
#: What a mechanism of the door is told, and nobody else's method of that name: a sum, a cost and a relation.
TOLD = 3
#: Rooms that answer for made-up rows, or for tables that are public.
OUTSIDE = ("audit/", "lab/", "datasets/", "cli/")

#: What could be used to answer for rows without paying, or to pay with nobody's budget, and who uses it.
KNOWN = {
    "charges a ledger": (CHARGES, {DOOR, "ledger/__init__.py", "ledger/budget.py", "ledger/sharing.py"}),
    "makes the right to release": ({"_BY_PAYING"}, {DOOR}),
    "adds up rows": (
        {"map_sum", "map_rows"},
        {
            "curator/curator.py",
            "estimators/streaming.py",  # a sum of nothing: every block is read and checked
            "minimisers/robust.py",
            "minimisers/row_objectives.py",
            "minimisers/sampler.py",
        },
    ),
    "adds up rows and says that it is not private": (
        {"sum_without_privacy"},
        {"curator/__init__.py", "estimators/measuring.py", "solvers/baselines.py"},
    ),
    "opens a ledger": (
        {"Ledger()"},
        {
            "audit/replay.py",
            "choosing/choice.py",
            "choosing/plan.py",
            "estimators/frames.py",
            "estimators/payment.py",
            "estimators/purchases.py",
            "evaluation/evaluating.py",
            "evaluation/one_budget.py",
            "statement/privacy_statement.py",
            "tables/schema_purchase.py",
            "torch/classifier.py",
            "torch/training_plan.py",
        },
    ),
}


def named(node: ast.AST) -> tuple[str, str]:
    """Return a name, and the last name of what it belongs to, if it is an attribute."""
    if isinstance(node, ast.Attribute):
        inner = node.value.func if isinstance(node.value, ast.Call) else node.value
        return node.attr, named(inner)[0] or "something"
    return getattr(node, "id", ""), ""


def calls(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield what is called: the name of the function, what it belongs to, and how many arguments it is given."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            given = [*node.args, *node.keywords]
            unpacked = any(isinstance(each, ast.Starred) or getattr(each, "arg", "") is None for each in given)
            yield *named(node.func), TOLD if unpacked else len(given)


@cache
def mentions(tree: ast.AST) -> frozenset[tuple[str, str]]:
    """Return every name in a module, and what it belongs to or is imported from; ``name()`` where it is called."""
    found = set[tuple[str, str]]()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Name):
            found.add(named(node))
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found.update((each.name, f"import {getattr(node, 'module', None) or ''}") for each in node.names)
        elif isinstance(node, ast.Call):
            name, owner = named(node.func)
            found.add((f"{name}()", owner))
            if name in ("getattr", "attrgetter", "methodcaller"):
                found.update((str(each.value), "") for each in node.args if isinstance(each, ast.Constant))
    return frozenset(found)


def modules() -> dict[str, ast.AST]:
    return {str(path.relative_to(house.SOURCES)): tree for path, tree in house.trees().items()}


def users(found: dict[str, ast.AST], names: set[str]) -> set[str]:
    """Return the modules in which one of some names occurs, in whatever way."""
    return {module for module, tree in found.items() if any(name in names for name, _ in mentions(tree))}


def draws(tree: ast.AST) -> bool:
    """Return whether a module asks a mechanism for noise, or holds what would."""
    called = {(name, owner) for name, owner, count in calls(tree) if name in DRAWS and count >= TOLD and owner}
    held = {each for each in mentions(tree) if each[0] in DRAWS and each[1].lower().endswith("noise")}
    return bool(called | held)


def samples(tree: ast.AST) -> bool:
    """Return whether a module draws from the laws of noise itself."""
    return any(
        name in SAMPLERS and (name.startswith("discrete") or (owner.startswith("import") and "noise" in owner))
        for name, owner in mentions(tree)
    )


def test_one_place_adds_noise_to_answers() -> None:
    found = modules()
    # A mechanism is made of samplers, noise in floating point is made of a generator's, and an audit draws from
    # mechanisms whose answers are about made-up sums.
    rooms = ("audit/", "curator/lattice_noise.py", "estimators/payment.py", DOOR)
    assert {name for name, tree in found.items() if draws(tree) and not name.startswith(rooms)} == set()
    rooms = ("noise/", "curator/lattice_noise.py", "minimisers/sampler.py", "audit/")
    assert {name for name, tree in found.items() if samples(tree) and not name.startswith(rooms)} == set()


@pytest.mark.parametrize("what", KNOWN)
def test_who_could_answer_unpaid_is_known_by_name(what: str) -> None:
    names, known = KNOWN[what]
    found = users(modules(), names)
    if what in ("adds up rows", "opens a ledger"):
        found, known = ({each for each in some if not each.startswith(OUTSIDE)} for some in (found, known))
    assert found == known


def kept_by_curators(found: dict[str, ast.AST]) -> set[str]:
    """Return the attributes that a curator keeps to itself: among them its rows."""
    own = mentions(found["curator/curator.py"])
    return {name for name, owner in own if owner == "self" and name.startswith("_") and not name.startswith("__")}


def peeks(tree: ast.AST, kept: set[str]) -> set[str]:
    """Return the attributes of these that a module reads from what is not its own, or looks up by text."""
    own = {name for name, owner in mentions(tree) if owner in ("self", "super")}
    said = {each.value for each in ast.walk(tree) if isinstance(each, ast.Constant)}
    return ({name for name, owner in mentions(tree) if owner} - own | said) & kept


def test_what_a_curator_keeps_to_itself_is_read_by_nobody_else() -> None:
    found = modules()
    kept = kept_by_curators(found)
    assert {"_source", "_noise"} <= kept
    assert {name for name, tree in found.items() if not name.startswith("curator/") and peeks(tree, kept)} == set()
    for planted in ("norm = curator._source.largest", "rows = getattr(curator, '_source')", "mine()._noise"):
        assert peeks(ast.parse(planted), kept)


PLANTED = {
    "a charge": "curator.ledger.spend(cost, 'gradient')",
    "a charge to several": "spend_jointly((ledger,), cost)",
    "a charge by another name": "from ..ledger import spend_jointly as pay_later",
    "a charge by text": "getattr(ledger, 'spend')(cost)",
    "a charge that is held": "with ledger._hold_for(cost, '', '') as charge: charge()",
    "a right": "Paid(relation, noise, rights, '', cost, release._BY_PAYING)",
    "a sum": "total = curator._source.map_sum(block)",
    "a budget of its own": "release(Ledger(1e6, 0.1), part, '', compute)",
    "noise": "self._noise.release(total, cost, relation)",
    "noise of a mechanism by another name": "mechanism.gaussian(total, cost, relation)",
    "noise with arguments that are unpacked": "mechanism.laplace(*given)",
    "noise for later": "draw = noise.gaussian",
    "a sampler": "discrete_gaussian(bits, 1.0, 5)",
    "a sampler of a module": "noise.discrete_laplace(bits, 1.0, 5)",
    "a sampler by another name": "from ..noise import norm_laplace as more",
}


@pytest.mark.parametrize("how", PLANTED)
def test_a_module_that_pays_or_draws_by_itself_is_found(how: str) -> None:
    tree = ast.parse(PLANTED[how])
    used = {what for what, (names, _) in KNOWN.items() if users({"solvers/a.py": tree}, names)}
    assert used or draws(tree) or samples(tree)


def test_what_planners_do_is_no_noise() -> None:
    tree = ast.parse("curator.gaussian(amount); sampling.gaussian(price, currency); paid.release(part, values)")
    assert (draws(tree), samples(tree)) == (False, False)


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
