"""Changes at many steps from counts at nodes: bounded for every row, additive, and close to the true changes."""

from __future__ import annotations

import math
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dpdescent.errors import InvalidParameter
from dpdescent.exact import FeatureGrid, StepwiseScores, machine, node_scores
from dpdescent.problems import Hinge, Huber, HuberisedHinge, LinearProblem, Logistic, Loss, Squared

STEPS = tuple(4.0 * 0.6**j for j in range(12))
ODD = [0.0, -0.0, 1.0, -1.0, 0.3, 5e-324, 1e-300, 1e9, -1e9, 1e308, -1e308, np.inf, -np.inf, np.nan, -np.nan]
LOSSES = [Logistic(), Hinge(), HuberisedHinge(), Squared(), Huber(0.5)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: type(loss).__name__)
wild = st.floats(allow_nan=True, allow_infinity=True, width=64)


def hopeless(positions: np.ndarray) -> np.ndarray:
    return np.where(positions > 0, np.nan, -np.inf)


def make(loss: Loss, slope: float = 1.0, ceiling: float = math.inf, steps: tuple[float, ...] = STEPS):
    problem = LinearProblem(loss, FeatureGrid(1.0, 4))
    return problem.stepwise_scores(steps, tuple(min(ceiling, slope * a) for a in steps), 2.0)


def rows(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return 1 + 1.5 * generator.normal(size=count), 0.5 * generator.normal(size=count) + 0.1


def changes(scores: StepwiseScores, starts: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    """The clipped change of every row at every step."""
    pairs = zip(scores.steps, scores.bounds, strict=True)
    return np.array([np.clip(scores.loss(starts - a * slopes) - scores.loss(starts), -d, d) for a, d in pairs])


def in_units_of_the_loss(scores: StepwiseScores, starts: np.ndarray, slopes: np.ndarray) -> np.ndarray:
    return scores.block(starts, slopes) / scores.limit * np.array(scores.bounds)


# One row -------------------------------------------------------------------------------------------------------


@every_loss
@pytest.mark.parametrize("scale", [1e-25, 1e-6, 0.1, 1e6])
def test_no_row_leaves_its_bounds_whatever_it_holds(loss: Loss, scale: float) -> None:
    scores = make(loss, slope=scale)
    for start in ODD:
        for slope in ODD:
            assert np.all(np.abs(scores.block([start], [slope])) <= scores.limit)


@settings(deadline=None, derandomize=True, max_examples=200)
@given(wild, wild, st.sampled_from([Logistic().profile, Hinge().profile, Squared().profile, hopeless]))
def test_no_wild_row_leaves_its_bounds(start, slope, loss) -> None:
    for widths in ((1.0, 1.0), (1e-90, 1e90), (1e90, 1e-90)):
        scores = StepwiseScores((1e3, 1.0, 1e-9), (5.0, 0.7, 1e-3), loss, *widths, centre=1.0)
        assert np.all(np.abs(scores.block([start], [slope])) <= scores.limit)


def test_the_bound_is_attained() -> None:
    scores = make(Hinge(), slope=0.25)
    assert np.all(scores.block([-3.0], [1.0]) == scores.limit)
    assert np.all(scores.block([-3.0], [-1.0])[5:] == -scores.limit)


def test_weights_of_a_row_are_not_negative_and_add_up() -> None:
    scores = make(Logistic())
    generator = np.random.default_rng(3)
    starts = np.concatenate([generator.normal(size=300) * 10.0 ** generator.uniform(-4, 4, 300), ODD])
    slopes = np.concatenate([generator.normal(size=300) * 10.0 ** generator.uniform(-4, 4, 300), ODD[::-1]])
    for start, slope in zip(starts, slopes, strict=True):
        with np.errstate(all="ignore"):
            counts = scores._counts(np.float32([start]), np.float32([slope]), 1.0)
        assert counts.min() >= 0
        assert counts.sum() == 2**16
        assert np.count_nonzero(counts) <= 4


def test_a_row_without_a_number_stands_still() -> None:
    scores = make(Logistic())
    still = scores.block([0.0], [0.0])
    for start, slope in ((np.nan, 1.0), (1.0, np.nan), (np.nan, np.nan)):
        np.testing.assert_array_equal(scores.block([start], [slope]), still)


# Many rows -----------------------------------------------------------------------------------------------------


@every_loss
def test_totals_are_sums_of_what_rows_add_alone_in_any_order_and_blocks(loss: Loss) -> None:
    scores = make(loss)
    starts, slopes = rows(200)
    starts[:15], slopes[20:35] = ODD, ODD
    whole = scores.block(starts, slopes)
    alone = sum(scores.block(starts[i : i + 1], slopes[i : i + 1]) for i in range(200))
    np.testing.assert_array_equal(whole, alone)
    order = np.random.default_rng(1).permutation(200)
    np.testing.assert_array_equal(whole, scores.block(starts[order], slopes[order]))
    apart = np.full((400, 2), 7.0)
    apart[::2, 0], apart[::2, 1] = starts, slopes
    np.testing.assert_array_equal(whole, scores.block(apart[::2, 0], apart[::2, 1]))
    with ThreadPoolExecutor(4) as pool:
        parts = pool.map(lambda i: scores.block(starts[i::4], slopes[i::4]), range(4))
    np.testing.assert_array_equal(whole, sum(parts))


def test_more_rows_than_a_block_holds_add_up_to_the_last_unit() -> None:
    scores = make(Hinge(), slope=0.25)
    count = 2**17 + 5
    total = scores.block(np.full(count, -3.0), np.full(count, 1.0))
    assert total.tolist() == [count * scores.limit] * len(STEPS)


def test_a_full_block_of_rows_in_the_last_place_of_a_cell_is_counted_exactly() -> None:
    """The sums that are packed into one float are largest there: 31 of 32 along and 2047 of 2048 across."""
    scores = StepwiseScores((1.0,), (1.0,), Logistic().profile)
    start, slope = np.float32([31 / 32 / 4]), np.float32([2047 / 2048 / 8])
    one = scores._counts(start, slope, 1.0)
    assert sorted(one[one > 0].tolist()) == [1, 31, 2047, 31 * 2047]
    np.testing.assert_array_equal(scores._counts(start.repeat(2**16), slope.repeat(2**16), 1.0), 2**16 * one)


def test_integer_arithmetic_gives_the_same_totals(monkeypatch) -> None:
    scores = make(Logistic())
    expected = scores.block(*rows(1000))
    monkeypatch.setattr(machine, "blas_is_exact", lambda: False)
    np.testing.assert_array_equal(scores.block(*rows(1000)), expected)


@every_loss
@pytest.mark.parametrize("slope", [0.3, 1.0])
def test_totals_are_close_to_the_changes_themselves(loss: Loss, slope: float) -> None:
    """To one part in 500 of the bounds on average, and to 0.6 standard errors of the rows."""
    scores = make(loss, slope=slope)
    for seed in range(2):
        starts, slopes = rows(40_000, seed)
        each = changes(scores, starts, slopes)
        error = np.abs(in_units_of_the_loss(scores, starts, slopes) - each.sum(axis=1))
        assert np.max(error / (40_000 * np.array(scores.bounds))) < 0.002
        assert np.max(error / (each.std(axis=1) * math.sqrt(40_000))) < 0.6


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Squared()], ids=lambda loss: type(loss).__name__)
def test_short_steps_follow_the_slope_of_the_loss(loss: Loss) -> None:
    """First-order changes, which Armijo's condition compares, to one part in 500 of the mean bound."""
    scores = make(loss, steps=(1e-6, 1e-7))
    starts, slopes = rows(40_000)
    derivative = loss.residuals(starts, np.zeros(40_000) if isinstance(loss, Squared) else np.ones(40_000))
    for step, total in zip(scores.steps, in_units_of_the_loss(scores, starts, slopes), strict=True):
        expected = np.clip(-derivative * slopes, -1.0, 1.0).mean()
        assert abs(total / (step * 40_000) - expected) < 0.002


def test_tables_are_the_closest_functions() -> None:
    """The error of the projection is orthogonal to hat functions; linear functions are kept."""
    nodes = node_scores._nodes(4, 3)
    points = node_scores._samples(nodes, 4)
    np.testing.assert_allclose(node_scores._closest(3 * points - 1, nodes), 3 * nodes - 1, atol=1e-12)
    kinked = np.maximum(points - 0.3, 0.0)
    error = np.interp(points, nodes, node_scores._closest(kinked, nodes)) - kinked
    widths = np.repeat(np.diff(nodes) / 4, 4)
    for k in range(nodes.size):
        hat = np.interp(points, nodes, np.eye(nodes.size)[k])
        assert abs(np.sum(widths * error * hat)) < 1e-12


@pytest.mark.parametrize(
    "options",
    [
        {"steps": ()},
        {"steps": (1.0, 2.0)},
        {"steps": (0.0,)},
        {"steps": (math.inf,)},
        {"bounds": (0.0,)},
        {"bounds": (math.nan,)},
        {"bounds": (2.0**101,)},
        {"start_width": 0.0},
        {"slope_width": math.inf},
        {"centre": math.nan},
    ],
    ids=str,
)
def test_bad_parameters_are_refused(options) -> None:
    with pytest.raises(InvalidParameter):
        StepwiseScores(**({"steps": (1.0,), "bounds": (1.0,), "loss": Logistic().profile} | options))


def test_bad_rows_and_losses_are_refused() -> None:
    with pytest.raises(InvalidParameter, match="n starts and n slopes"):
        make(Logistic()).block([1.0, 2.0], [1.0])
    with pytest.raises(InvalidParameter, match="one float64 per position"):
        StepwiseScores((1.0,), (1.0,), lambda p: p[:1]).block([1.0], [1.0])
