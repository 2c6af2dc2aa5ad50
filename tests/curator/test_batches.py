"""Batches: what they are divided by, and that they answer from their own rows, with a plan that is made for them."""

from __future__ import annotations

import math
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest

from dpdescent.accounting import AboveThreshold, ExponentialMechanism, Gaussian
from dpdescent.curator import Batch
from dpdescent.curator.batches import Sampling
from dpdescent.errors import BudgetExhausted, InvalidParameter
from dpdescent.noise import MAXIMUM_SCORES
from dpdescent.problems import L2, Frame, LinearProblem, Logistic, Whitening
from dpdescent.queries import (
    QUERIES,
    BestCandidates,
    ColumnMoments,
    FirstStep,
    Gradient,
    Hessian,
    LabelSum,
    MeanLoss,
    MeanRowNorm,
    Public,
    SecondMoments,
    line_search,
)
from dpdescent.queries.line_search import require_steps
from dpdescent.queries.per_row import PerRow
from dpdescent.queries.query import Sum
from dpdescent.relations import Norm, Relation
from every_query import PROBLEMS, ROWS, Silent, Table, asked_of, examples, quick, table_of

#: What is counted is divided by the rate alone.
COUNTS = {"ColumnHistograms", "LabelCounts", "LeafSums", "LabelSum", "MarginCounts", "RowCount"}


#: What is symmetric has noise of its own.
MATRICES = {"ClippedHessian", "GradientCovariance", "Hessian", "SecondMoments"}


def quick_public(problem: LinearProblem, relation: Relation) -> Public:
    return Public(problem, relation, ROWS, 1.0, ROWS)


def numbers(wanted: PerRow, table: Table) -> Any:
    return wanted.block(*table, *(numbers(each, table) for each in wanted.needs))


def answered_at_once(plan: Sum[Any], table: Table) -> tuple[Any, list[Any]]:
    """Return what a plan makes of the sum over a table, without noise, and what it would release of it."""
    block = partial(plan.block, None) if plan.picks else plan.block
    values = block(*table, *(numbers(each, table) for each in plan.per_row))
    noise = Silent()
    parts = [(noise.release(part.of(values), part.cost, Relation.ZERO_OUT), part.divisor) for part in plan.parts]
    answers = [released / divisor if isinstance(released, np.ndarray) else released for released, divisor in parts]
    return plan.finish(*answers), [total for total, *_ in noise.calls]


@pytest.mark.parametrize("kind", QUERIES)
def test_a_batch_answers_from_its_own_rows_with_a_plan_of_its_own_size(kind: str) -> None:
    """Below and above the rate from which margins of all rows are kept."""
    for relation, rate in ((Relation.ZERO_OUT, 1 / 6), (Relation.REPLACE_ONE, 0.5)):
        for name, problem in PROBLEMS.items():
            rows, labels = table_of(name, 5)
            for query in examples(kind, name, relation)[:1]:
                curator = quick(problem, (rows, labels), relation, Silent())
                plan = query.plan(Public(problem, relation, ROWS, rate, rate * ROWS))
                if not isinstance(plan, Sum):
                    return
                batch = Batch(curator.sampling(rate), plan.costs)
                answer = curator.answer(query, batch)
                chosen = curator._drawn[batch][0]
                assert 0 < np.count_nonzero(chosen) < ROWS
                expected, totals = answered_at_once(plan, (rows[chosen], labels[chosen]))
                for (total, _, _, symmetric, _), other in zip(curator._noise.calls, totals, strict=True):  # type: ignore[attr-defined]
                    assert symmetric == (kind in MATRICES)
                    assert (total.unit, total.sensitivity) == (other.unit, other.sensitivity)
                    np.testing.assert_array_equal(total.values, other.values)
                np.testing.assert_equal(answer, expected)
                for part, whole in zip(plan.parts, query.plan(quick_public(problem, relation)).parts, strict=True):
                    chosen_from = part.sensitivity.norm in (Norm.RANGE, Norm.MAX)  # divided by nothing
                    assert part.divisor == pytest.approx(whole.divisor * (1 if chosen_from else rate), rel=1e-15)
                    assert whole.divisor == (1 if chosen_from or kind in COUNTS else ROWS)


def test_all_answers_of_a_ticket_come_from_the_rows_that_were_drawn_for_the_first() -> None:
    curator, ledger, _ = asked_of(PROBLEMS["logistic"], table_of("logistic", 1), "replace-one", Silent())
    batch = Batch(curator.sampling(0.5), (Gaussian(1.0), Gaussian(2.0), Gaussian(1.0)))
    answers = [curator.answer(LabelSum(noise), batch) for noise in batch.parts]
    assert len(set(answers)) == 1
    assert curator._streams == len(ledger.entries) == 1


def test_sizes_of_batches_are_whole_where_they_are_of_rows_and_the_least_noise_is_found() -> None:
    assert Sampling("replace-one", 49, 1 / 49).size == 1.0 != 49 * (1 / 49)
    assert Sampling("replace-one", 10, 1 / 3, units=3).size == pytest.approx(10 / 3, rel=1e-15)
    assert Sampling("zero-out", 10, 0.25).size == 2.5
    assert not Sampling("replace-one", 49).fixed_size
    curator, ledger, _ = asked_of(PROBLEMS["logistic"], table_of("logistic", 1), "replace-one", own=1.0)
    noise = curator.sampling(0.5).gaussian(0.25, ledger.currency)
    price = ledger.currency.price(curator.sampling(0.5).cost(noise))
    assert 0.249 < price <= 0.25
    assert curator.affords(Gaussian(1e6))
    curator.require_affordable(Gaussian(1e6))
    assert not curator.affords(Gaussian(1e-3))
    with pytest.raises(BudgetExhausted):
        curator.require_affordable(Gaussian(1e-3))


@pytest.mark.parametrize("name", ["penalty", "multinomial"])
def test_candidates_are_scored_by_their_losses_and_penalties(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem, (rows, labels) = PROBLEMS[name], table_of(name, 3)
    if name == "penalty":
        problem = LinearProblem(Logistic(), problem.grid, L2(1.0, intercept=True))
    curator = quick(problem, (rows, labels), "zero-out", Silent())
    points = np.random.default_rng(0).integers(-64, 65, (4, *problem.shape)) / 64.0

    def query(candidates: Any) -> BestCandidates:
        return BestCandidates(candidates, points[0], 8.0, ExponentialMechanism(1.0))

    losses = [problem.loss.values(problem.grid.margins(rows, point), labels).sum() for point in points]
    scores = [loss - losses[0] + ROWS * problem.penalty_value(p) for loss, p in zip(losses, points, strict=True)]
    for cells in (1, 2**21):
        monkeypatch.setattr(line_search, "_CELLS", cells)
        curator.answer(query(points[1:]))
        total = curator._noise.calls[-1][0]  # type: ignore[attr-defined]
        np.testing.assert_allclose(total.to_float(), scores[1:], rtol=0, atol=ROWS * total.unit)
    curator.answer(query(points[1:2]))
    for wrong in (points[:0], points[0], np.zeros((2, 1)), np.zeros((MAXIMUM_SCORES + 1, *problem.shape))):
        with pytest.raises(InvalidParameter, match="candidates must have the shape"):
            curator.answer(query(wrong))


@pytest.mark.parametrize("name", ["penalty", "squared", "multinomial", "huber"])
def test_without_noise_answers_are_what_their_names_say(name: str) -> None:
    problem, (rows, labels) = PROBLEMS[name], table_of(name, 4)
    noise, frame = Gaussian(3.0), Frame.place(problem.grid, np.array([0.25, -0.5, 0.0]), np.array([1.0, 0.5, 1.0]))
    weights = np.random.default_rng(1).integers(-64, 65, problem.shape) / 64.0
    curator = quick(problem, (rows, labels), "zero-out", Silent())
    public, margins = curator.public(), problem.grid.margins(rows, weights)
    scaled = frame.coordinates(rows)[:, :2]
    narrow, centred = Frame.place(problem.grid, frame.centre, np.full(3, 0.125)), rows[:, :2] - frame.centre[:2]
    whitening = Whitening(problem.grid, np.array([[2.0, 0.0], [1.0, -1.0], [0.0, 0.5]]))
    white = rows @ whitening.matrix
    residuals = problem.loss.residuals(margins, labels)
    penalty = problem.penalty_gradient(weights)
    small, fine = 5e-3, 1e-4  # of what is rounded to few bits, and of other sums
    asked = [
        (Gradient(weights, 8.0, noise), rows.T @ residuals / ROWS + penalty, fine),
        (LabelSum(noise), labels.sum(), fine),
        (MeanRowNorm(noise), np.sqrt((rows**2).sum(axis=1)).mean(), fine),
        (MeanRowNorm(noise, ceiling=1.25), np.minimum(np.sqrt((rows**2).sum(axis=1)), 1.25).mean(), fine),
        (MeanRowNorm(noise, frame, 9.0), np.sqrt((scaled**2).sum(axis=1)).mean(), fine),
        (ColumnMoments(2.0, noise), (rows.mean(axis=0), (rows**2).mean(axis=0)), fine),
        (SecondMoments(2.0, noise), rows.T @ rows / ROWS, small),
        (SecondMoments(9.0, noise, frame), scaled.T @ scaled / ROWS, small),
        (SecondMoments(40.0, noise, narrow), 64 * centred.T @ centred / ROWS, 40 * small),
        (SecondMoments(9.0, noise, whitening), white.T @ white / ROWS, 3 * small),
    ]
    if problem.loss.outputs == 1:
        curved = problem.loss.curvatures(margins, labels)[:, None] * rows
        losses = problem.loss.values(margins, labels)
        asked += [
            (Hessian(weights, noise), rows.T @ curved / ROWS + np.diag(problem.penalty_curvature(weights)), small),
            (MeanLoss(weights, noise), losses.mean() + problem.penalty_value(weights), fine),
        ]
    for query, expected, off in asked:
        for got, value in zip(np.atleast_1d(curator.answer(query)), np.atleast_1d(expected), strict=True):
            np.testing.assert_allclose(got, value, rtol=0, atol=off)
    for query in (MeanLoss(weights, noise),) if problem.loss.outputs == 1 else ():
        (part,) = query.plan(public).parts
        for each in (1, 3):
            stated = query.deviation(replace(public, rows_per_unit=each))
            assert stated == pytest.approx(each * 3 * part.sensitivity.under("zero-out") / ROWS, rel=1e-12)


@pytest.mark.parametrize("clip_losses", [False, True])
@pytest.mark.parametrize("name", ["penalty", "huber"])
def test_a_search_compares_clipped_changes_or_clipped_losses_with_its_demands(name: str, clip_losses: bool) -> None:
    problem, (rows, labels) = PROBLEMS[name], table_of(name, 4)
    weights, direction, ceiling = np.array([1.0, -0.5, 2.0]), np.array([1.5, -0.25, 1.0]), 0.25
    steps, demands = np.array([2.0, 0.5, 0.03125]), np.array([0.125, 0.0, -0.0625])
    curator = quick(problem, (rows, labels), "zero-out", Silent())
    curator.answer(
        FirstStep(
            weights, direction, steps, demands, AboveThreshold(3, 1.0, 1.0), ceiling=ceiling, clip_losses=clip_losses
        )
    )
    (total, *_), steepest = curator._noise.calls[0], problem.longest_row * np.linalg.norm(direction)  # type: ignore[attr-defined]
    for found, a, demand in zip(total.to_float(), steps, demands, strict=True):
        before, after = (
            problem.loss.values(problem.grid.margins(rows, problem.grid.place_weights(point)), labels)
            for point in (weights, weights - a * direction)
        )
        bound = ceiling if clip_losses else min(ceiling, problem.loss.lipschitz * steepest * a)
        fall, near = np.clip(before - after, -bound, bound), 0.3  # counted at public nodes
        if clip_losses:
            fall, near = np.minimum(before, ceiling) - np.minimum(after, ceiling), 1e-6
        rise = problem.penalty_value(weights - a * direction) - problem.penalty_value(weights)
        assert found == pytest.approx((fall.sum() - ROWS * (demand + rise)) / bound, abs=near)


def test_steps_that_lead_too_far_are_refused_in_any_arithmetic() -> None:
    point, direction = np.array([1.0, 2.0]), np.array([3.0, 1.0])
    with np.errstate(all="raise"):
        for steps in ([1e308], [0.5, 2.0**500], [math.nan]):
            with pytest.raises(InvalidParameter, match="beyond"):
                require_steps(point, direction, np.array(steps))
        require_steps(point, direction, np.array([2.0**498]))
