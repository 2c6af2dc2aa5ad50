"""Scores of candidate steps for losses without a profile: bounded for every row, additive, exact, and as good."""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpdescent.errors import InvalidParameter
from dpdescent.exact import BoundedScores, FeatureGrid, SignedScores, StepwiseScores
from dpdescent.exact.node_scores import _changes
from dpdescent.problems import (
    Huber,
    LinearProblem,
    Logistic,
    Loss,
    Multinomial,
    Squared,
    StepLosses,
    StepwiseChanges,
)
from dpdescent.relations import Relation
from plain_losses import PlainLogistic, PlainPoisson

GRID = FeatureGrid(1.0, 3)
STEPS = np.array([0.0, 0.25, 1.0, 4.0])
GENERAL = [PlainPoisson(), PlainLogistic(), Multinomial(3)]
PROFILED = [Logistic(), Squared(), Huber(0.25)]
ODD = [0.0, -0.0, 1.0, -1.0, 0.3, 2.0, 5e-324, 1e9, -1e9, 1e308, -1e308, np.inf, -np.inf, np.nan]
SEARCHED = (4.0, 1.0, 0.25)
BOUNDS = (1.5, 0.7, 2.0**-60)
every_loss = pytest.mark.parametrize("loss", [*GENERAL, *PROFILED], ids=str)
general_loss = pytest.mark.parametrize("loss", GENERAL, ids=str)
each_kind = pytest.mark.parametrize("kind", ["losses", "changes", "search"])
Ask = Callable[[np.ndarray, np.ndarray], np.ndarray]


def queries(loss: Loss, seed: int = 0) -> dict[str, tuple[Ask, Any]]:
    """Return the three queries about steps, each from rows and labels to totals, and what one row may add."""
    problem = LinearProblem(loss, GRID)
    generator = np.random.default_rng(seed)
    weights, direction = generator.normal(0, 2, (2, *problem.shape))
    placed, along = GRID.place_weights(weights), GRID.place_weights(direction)
    losses, changes = problem.scores(0.8, None), problem.scores(None, 0.6)
    search = problem.stepwise_scores(SEARCHED, BOUNDS, float(np.linalg.norm(direction)))

    def scored(scores: Any) -> Ask:
        return lambda rows, labels: problem.scores_block(scores, placed, along, STEPS, rows, labels)

    def searched(rows: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return problem.changes_block(search, placed, along, rows, labels)

    return {
        "losses": (scored(losses), losses),
        "changes": (scored(changes), changes),
        "search": (searched, search),
    }


def table(count: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    rows = np.hstack([generator.uniform(-1, 1, (count, 2)), np.ones((count, 1))])
    return GRID.place(rows), generator.choice([-1.0, 0.0, 1.0, 2.0, 5.0], count)


# What one row can do --------------------------------------------------------------------------------------------


@every_loss
def test_losses_with_a_profile_are_looked_up_and_all_others_computed(loss: Loss) -> None:
    asked = queries(loss)
    kinds = [type(scores) for _, scores in asked.values()]
    computed = [StepLosses, StepLosses, StepwiseChanges]
    assert kinds == ([BoundedScores, SignedScores, StepwiseScores] if loss.has_profile else computed)
    others = queries(Logistic())
    for name in ("losses", "changes"):  # the same unit, and the same sensitivity
        assert asked[name][1].unit == others[name][1].unit
        assert asked[name][1].sensitivity == others[name][1].sensitivity
    assert asked["search"][1].limit == StepwiseScores.limit


@every_loss
def test_no_row_adds_more_than_its_bounds_whatever_it_holds(loss: Loss) -> None:
    asked = queries(loss)
    shape = () if loss.outputs == 1 else (loss.outputs,)
    problem = LinearProblem(loss, GRID)
    generator = np.random.default_rng(0)
    nowhere = np.zeros(problem.shape)
    with np.errstate(all="ignore"):
        for label in ODD:
            for t, u in generator.choice(ODD, (25, 2, *shape)):
                row, y = GRID.place(np.ones((1, 3))), np.array([label])
                at, by = np.array([t]), np.array([u])
                whole = asked["losses"][1]
                score = problem.scores_block(whole, nowhere, nowhere, STEPS, row, y, at, by)
                assert score.min() >= 0
                assert score.max() * Fraction(whole.unit) <= Fraction(0.8)
                signed = asked["changes"][1]
                score = problem.scores_block(signed, nowhere, nowhere, STEPS, row, y, at, by)
                assert np.abs(score).max() * Fraction(signed.unit) <= Fraction(0.6)
                search = asked["search"][1]
                total = problem.changes_block(search, nowhere, nowhere, row, y, at, by)
                assert np.abs(total).max() <= search.limit


def spread(kind: str, change: np.ndarray, scores: Any, relation: str) -> Fraction:
    """Return a change of the totals as a share of the declared sensitivity: more than 1 is a breach."""
    numbers = [int(each) for each in change]
    if kind == "search":
        return Fraction(max(map(abs, numbers)), scores.limit * (1 if relation == "zero-out" else 2))
    distance = (max(numbers) - min(numbers)) * Fraction(scores.unit)
    return distance / Fraction(scores.sensitivity.under(Relation(relation)))


@general_loss
@each_kind
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_no_pair_of_neighbours_is_farther_apart_than_the_sensitivity(loss: Loss, kind: str, relation: str) -> None:
    """Rows are drawn, and then climbed uphill; what they reach shows that the bound is not far from what is true."""
    ask, scores = queries(loss, seed=3)[kind]
    generator = np.random.default_rng(0)
    rows, labels = table(40)
    whole = ask(rows, labels)

    def apart(pair: np.ndarray) -> Fraction:
        before, after = rows.copy(), rows.copy()
        first, second = labels.copy(), labels.copy()
        before[0], first[0] = GRID.place(np.append(pair[0, :2], 1.0)[None])[0], pair[0, 2]
        if relation == "zero-out":
            change = ask(before, first) - ask(before[1:], first[1:])
        else:
            after[0], second[0] = GRID.place(np.append(pair[1, :2], 1.0)[None])[0], pair[1, 2]
            change = ask(before, first) - ask(after, second)
        return spread(kind, change, scores, relation)

    best, most = np.zeros((2, 3)), Fraction(0)
    for attempt in range(240):
        size = 1.0 if attempt < 150 else 0.3
        moved = generator.normal(0, 3, (2, 3)) if attempt < 150 else best + size * generator.normal(size=(2, 3))
        moved[:, :2] = np.clip(moved[:, :2], -1, 1)
        if attempt % 7 == 0:
            moved[generator.integers(2), 2] = generator.choice(ODD)
        reached = apart(moved)
        assert reached <= 1
        if reached > most:
            best, most = moved, reached
    assert most > 0.45  # changes of a loss that only falls have one sign: half of the range
    np.testing.assert_array_equal(whole, ask(rows, labels))  # and nothing was changed in place


# Many rows ------------------------------------------------------------------------------------------------------


@general_loss
@each_kind
def test_totals_are_sums_of_what_rows_add_alone_in_any_order(loss: Loss, kind: str) -> None:
    ask, _ = queries(loss)[kind]
    rows, labels = table(120)
    labels[:6] = [np.nan, np.inf, -np.inf, 1e300, -7.0, 0.5]
    with np.errstate(all="ignore"):
        whole = ask(rows, labels)
        alone = sum(ask(rows[i : i + 1], labels[i : i + 1]) for i in range(120))
        np.testing.assert_array_equal(whole, alone)
        order = np.random.default_rng(1).permutation(120)
        np.testing.assert_array_equal(whole, ask(rows[order], labels[order]))
        np.testing.assert_array_equal(whole, ask(np.asfortranarray(rows), labels))
    np.testing.assert_array_equal(ask(rows[:0], labels[:0]), np.zeros_like(whole))


@general_loss
def test_changes_of_a_search_are_those_of_the_losses_to_the_last_integer(loss: Loss) -> None:
    problem = LinearProblem(loss, GRID)
    generator = np.random.default_rng(2)
    shape = (50,) if loss.outputs == 1 else (50, loss.outputs)
    t, u = generator.normal(0, 2, (2, *shape))
    y = loss.understood(generator.uniform(-1, 5, 50))
    scores = problem.stepwise_scores(SEARCHED, (3.0, 1.0, 0.5), 1.0)
    got = problem.changes_block(scores, np.zeros(problem.shape), np.zeros(problem.shape), np.zeros((50, 3)), y, t, u)
    for j, (step, bound) in enumerate(zip(scores.steps, scores.bounds, strict=True)):
        before, after = loss.values(t, y), loss.values(t - step * u, y)
        exact = [Fraction(float(b)) - Fraction(float(a)) for a, b in zip(before, after, strict=True)]
        clipped = [min(max(each / Fraction(bound), -1), 1) * scores.limit for each in exact]
        assert abs(int(got[j]) - sum(clipped)) <= 50 * 2  # a rounding of the difference and one of the integer


def test_a_thousand_times_the_largest_integer_is_added_without_rounding() -> None:
    """The sum of 2^19 + 1 largest integers has more digits than a float holds."""
    count = 2**19 + 1
    scores = LinearProblem(PlainLogistic(), GRID).stepwise_scores((1.0,), (2.0**-90,), 1.0)
    t = np.zeros(count)
    u = np.ones(count)
    total = scores.block(t, u, np.ones(count))
    assert int(total[0]) == count * scores.limit
    u[0] = 0.0
    assert int(scores.block(t, u, np.ones(count))[0]) == (count - 1) * scores.limit


def test_a_loss_scores_the_same_with_and_without_a_profile() -> None:
    """The tables are wrong by half a cell, or by what interpolation blurs: a percent of a bound."""
    rows, labels = table(3000)
    labels = np.where(labels > 0, 1.0, -1.0)
    looked_up, computed = queries(Logistic()), queries(PlainLogistic())
    for kind, bounds in (("losses", 0.8), ("changes", 0.6)):
        totals = [ask(rows, labels) * scores.unit / 3000 for ask, scores in (looked_up[kind], computed[kind])]
        np.testing.assert_allclose(*totals, atol=1e-3 * bounds)
    totals = [
        ask(rows, labels)[:2] / scores.limit / 3000 for ask, scores in (looked_up["search"], computed["search"])
    ]
    np.testing.assert_allclose(*totals, atol=0.02)


@every_loss
def test_kept_rows_count_as_if_there_were_no_others(loss: Loss) -> None:
    problem = LinearProblem(loss, GRID)
    generator = np.random.default_rng(4)
    weights, direction = (GRID.place_weights(each) for each in generator.normal(size=(2, *problem.shape)))
    rows, labels = table(200)
    kept = np.flatnonzero(generator.random(200) < 0.3)
    scores = problem.stepwise_scores(SEARCHED, (3.0, 1.0, 0.5), 1.0)
    alone = problem.changes_block(scores, weights, direction, rows[kept], labels[kept])
    chosen = problem.changes_block(scores, weights, direction, rows, labels[kept], kept=kept)
    np.testing.assert_array_equal(alone, chosen)
    margins, along = problem.line_margins(weights, direction, rows)
    known = problem.changes_block(scores, weights, direction, rows, labels[kept], margins[kept], along[kept])
    np.testing.assert_array_equal(alone, known)


@pytest.mark.parametrize(
    ("steps", "bounds"), [((), ()), ((1.0,), ()), ((1.0,), (0.0,)), ((1.0,), (math.inf,)), ((1.0,), (math.nan,))]
)
def test_impossible_bounds_are_refused(steps, bounds) -> None:
    with pytest.raises(InvalidParameter):
        StepwiseChanges(steps, bounds, PlainLogistic())


def test_equal_losses_share_a_table_and_others_do_not() -> None:
    """A loss that is sent to a worker is another object for each query, and the table takes longer than a pass."""
    rows = np.linspace(-2, 2, 7), np.linspace(1, 3, 7)

    def asked(loss: Loss) -> list[int]:
        problem = pickle.loads(pickle.dumps(LinearProblem(loss, GRID)))
        return list(problem.stepwise_scores(SEARCHED, BOUNDS, 1.0).block(*rows))

    expected = asked(Huber(0.3))
    before = _changes.cache_info().misses
    assert asked(Huber(0.3)) == expected
    assert _changes.cache_info().misses == before
    assert asked(Huber(0.6)) != expected
    assert _changes.cache_info().misses == before + 1
    assert Huber(0.3).tabulated == Huber(0.3).tabulated != Squared().tabulated
    marked = Logistic()
    vars(marked)["weights"] = np.ones(2)  # what cannot be compared is taken for different
    assert marked.tabulated != Logistic().tabulated
    np.testing.assert_array_equal(marked.tabulated(rows[0]), Logistic().profile(rows[0]))
