"""Scores of step sizes: inside their interval, one row at a time, and bounded in range when a row changes."""

from __future__ import annotations

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dpdescent.errors import InvalidParameter
from dpdescent.exact import (
    BoundedScores,
    BoundedSum,
    FeatureGrid,
    SignedScores,
    SignedSum,
    check_row_independence,
    softplus,
)
from dpdescent.relations import Norm, Sensitivity

repeatable = settings(deadline=None, derandomize=True, max_examples=60)
wild = st.floats(allow_nan=True, allow_infinity=True, width=64)
STEPS = np.array([0.0, 1e-6, 0.25, 0.5, 1.0, 2.0, 7.3, 1e5, -0.5])
ODD = [0.0, -0.0, 1.0, -1.0, 0.3, 5e-324, 1e-300, 1e9, -1e9, 1e200, 1e308, -1e308, np.inf, -np.inf, np.nan]


def logistic(positions: np.ndarray) -> np.ndarray:
    return softplus(-positions)


def hinge(positions: np.ndarray) -> np.ndarray:
    return np.maximum(1 - positions, 0.0)


def huberised_hinge(positions: np.ndarray) -> np.ndarray:
    short = np.clip(1.5 - positions, 0.0, 1.0)
    return short * short / 2 + np.maximum(0.5 - positions, 0.0)


def squared(positions: np.ndarray) -> np.ndarray:
    return positions * positions / 2


def hopeless(positions: np.ndarray) -> np.ndarray:
    return np.where(positions > 0, np.nan, -np.inf)


KINDS = {
    "table": lambda kind: kind(2.5, logistic, interval=(-8.0, 10.0)),
    "hinge": lambda kind: kind(2.5, hinge),
    "huberised hinge": lambda kind: kind(0.7, huberised_hinge),
    "squared": lambda kind: kind(3.0, squared),
    "hopeless": lambda kind: kind(1.0, hopeless),
    "hopeless table": lambda kind: kind(1.0, hopeless, interval=(-1.0, 1.0)),
}
every_kind = pytest.mark.parametrize(
    "scores", [make(kind) for make in KINDS.values() for kind in (BoundedScores, SignedScores)]
)


def lines(count: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    return generator.normal(size=count) * 3, generator.normal(size=count) * 2


def odd_lines() -> tuple[np.ndarray, np.ndarray]:
    starts, slopes = np.meshgrid(ODD, ODD)
    return starts.ravel(), slopes.ravel()


def ends(scores: BoundedScores | SignedScores) -> tuple[int, int]:
    if isinstance(scores, BoundedScores):
        return 0, int(scores.ceiling / scores.unit)
    return -int(scores.bound / scores.unit), int(scores.bound / scores.unit)


@every_kind
def test_every_row_stays_in_its_interval_whatever_it_holds(scores):
    lower, upper = ends(scores)
    for start, slope in zip(*odd_lines(), strict=True):
        own = scores.block([start], [slope], STEPS)
        assert own.dtype == np.int64
        assert own.min() >= lower
        assert own.max() <= upper


@repeatable
@given(wild, wild, st.lists(st.floats(-(2.0**200), 2.0**200), min_size=1, max_size=5))
def test_no_row_and_steps_leave_the_interval(start, slope, steps):
    for make in KINDS.values():
        for scores in (make(BoundedScores), make(SignedScores)):
            lower, upper = ends(scores)
            own = scores.block([start], [slope], steps)
            assert lower <= own.min() <= own.max() <= upper


@every_kind
def test_the_total_is_the_sum_of_what_rows_score_alone(scores):
    starts, slopes = (np.concatenate(pair) for pair in zip(lines(60), odd_lines(), strict=True))
    alone = [scores.block([p], [v], STEPS) for p, v in zip(starts, slopes, strict=True)]
    assert np.array_equal(scores.block(starts, slopes, STEPS), np.sum(alone, axis=0))
    check_row_independence(lambda p, v: scores.block(p, v, STEPS), starts, slopes)


@every_kind
def test_order_blocks_strides_and_storage_change_nothing(scores):
    starts, slopes = (values.astype(np.float32).astype(float) for values in lines(5000))
    expected = scores.total(starts, slopes, STEPS).values
    order = np.random.default_rng(1).permutation(5000)
    assert np.array_equal(scores.block(starts[order], slopes[order], STEPS), expected)
    for block_rows in (1, 7, 4096, 2**17):
        some = slice(0, 300 if block_rows == 1 else None)
        found = scores.block(starts[some], slopes[some], STEPS, block_rows=block_rows)
        assert np.array_equal(found, scores.block(starts[some], slopes[some], STEPS))
    both = np.stack([starts, slopes], axis=1)
    assert np.array_equal(scores.block(both[:, 0], both[:, 1], STEPS), expected)
    assert np.array_equal(scores.block(starts.astype(np.float32), slopes.astype(np.float32), STEPS), expected)
    assert not scores.block(starts[:0], slopes[:0], STEPS).any()


@every_kind
def test_inputs_are_left_unchanged(scores):
    starts, slopes = odd_lines()
    kept = starts.copy(), slopes.copy()
    scores.total(starts, slopes, STEPS)
    assert np.array_equal(starts, kept[0], equal_nan=True)
    assert np.array_equal(slopes, kept[1], equal_nan=True)


@every_kind
def test_the_range_of_a_change_is_within_the_sensitivity(scores):
    starts, slopes = odd_lines()
    removed, replaced = (
        round(bound / scores.unit) for bound in (scores.sensitivity.zero_out, scores.sensitivity.replace_one)
    )
    own = np.array([scores.block([p], [v], STEPS) for p, v in zip(starts, slopes, strict=True)])
    assert np.ptp(own, axis=1).max() <= removed
    differences = own[:, np.newaxis] - own[np.newaxis]
    assert np.ptp(differences, axis=2).max() <= replaced
    table = lines(50)
    total = scores.block(*table, STEPS)
    for row in range(50):
        without = scores.block(*(np.delete(values, row) for values in table), STEPS)
        assert np.array_equal(total - without, scores.block(table[0][[row]], table[1][[row]], STEPS))


def test_sensitivities_are_ranges():
    assert BoundedScores(2.0, hinge).total([0.0], [1.0], [1.0]).sensitivity == Sensitivity.of_scores(2.0)
    assert SignedScores(2.0, hinge).total([0.0], [1.0], [1.0]).sensitivity == Sensitivity(Norm.RANGE, 4.0, 8.0)


def test_the_range_of_signed_scores_is_attained():
    scores = SignedScores(1.0, hinge)
    rises_and_falls = scores.block([-4.0], [1.0], [-5.0, 5.0])
    falls_and_rises = scores.block([-4.0], [-1.0], [-5.0, 5.0])
    assert np.ptp(rises_and_falls) * scores.unit == 2
    assert np.ptp(rises_and_falls - falls_and_rises) * scores.unit == 4


@pytest.mark.parametrize("loss", [hinge, huberised_hinge, squared])
def test_formulas_agree_with_sums_of_losses(loss):
    starts, slopes = lines(3000)
    positions = starts[:, np.newaxis] - slopes[:, np.newaxis] * STEPS
    bounded, signed = BoundedSum(2.0).total(loss(positions)), BoundedScores(2.0, loss)
    assert np.array_equal(signed.total(starts, slopes, STEPS).values, bounded.values)
    assert signed.unit == bounded.unit
    changes = SignedSum(1.5).total(loss(positions) - loss(starts)[:, np.newaxis])
    found = SignedScores(1.5, loss).total(starts, slopes, STEPS)
    assert found.unit == changes.unit
    # Rounding two losses and subtracting, or rounding the difference: one unit per row.
    assert np.abs(found.values - changes.values).max() <= 3000


@pytest.mark.parametrize("ceiling", [0.5, 2.0, 6.0])
def test_the_table_of_the_logistic_loss_is_accurate(ceiling):
    scores = BoundedScores(ceiling, logistic, interval=(-ceiling, 10.0))
    starts = np.concatenate([np.linspace(-ceiling - 2, 12, 400), [-1e9, 1e9, np.inf, -np.inf, 0.0]])
    with mpmath.workprec(80):
        for start in starts:
            exact = float(min(mpmath.log1p(mpmath.exp(-mpmath.mpf(float(start)))), ceiling))
            for step in (0.0, 1.0):
                found = scores.total([start + step * 0.7 if step else start], [0.7], [step]).to_float()[0]
                assert abs(found - exact) <= (ceiling + 10) / 2**17 + 2.0**-16


def test_huge_slopes_reach_the_right_end_of_the_table():
    scores = BoundedScores(2.0, logistic, interval=(-2.0, 10.0))
    assert scores.total([0.0], [1e300], [1e-3, -1e-3]).to_float() == pytest.approx([2.0, 0.0], abs=1e-4)
    assert scores.total([0.0], [1e-65], [2.0**199, -(2.0**199)]).to_float() == pytest.approx(
        [np.log(2)] * 2, abs=1e-4
    )


def test_many_rows_at_the_ceiling_add_up_to_the_last_unit():
    scores = BoundedScores(2.0, logistic, interval=(-2.0, 10.0))
    assert scores.ceiling / scores.unit == 2**24
    for rows in (127, 128, 129, 5000):
        found = scores.block(np.full(rows, -9.0), np.full(rows, -1.0), [0.0, -3.0])
        assert found.tolist() == [rows * 2**24] * 2


def test_missing_numbers_stand_still_at_zero():
    for scores in (BoundedScores(2.0, hinge), SignedScores(2.0, hinge)):
        still = scores.block([0.0], [0.0], STEPS)
        assert np.array_equal(scores.block([np.nan], [1.0], STEPS), still)
        assert np.array_equal(scores.block([1.0], [np.nan], STEPS), still)


def test_scores_of_a_model_do_not_depend_on_the_layout_of_its_features():
    generator = np.random.default_rng(3)
    grid = FeatureGrid(1.0, 12)
    placed = grid.place(generator.uniform(-1, 1, (501, 12)))
    both = grid.place_weights(generator.normal(size=(12, 2)))
    signs = generator.choice([-1.0, 1.0], 501)
    scores = BoundedScores(2.0, logistic, interval=(-2.0, 10.0))
    totals = []
    for features in (
        placed,
        np.asfortranarray(placed),
        placed.astype(np.float32),
        np.vstack([placed[:7], placed])[7:],
    ):
        margins = grid.margins(features, both)
        assert np.array_equal(margins[:, 0], grid.margins(features, both[:, 0].copy()))
        totals.append(scores.block(signs * margins[:, 0], signs * margins[:, 1], STEPS))
    assert all(np.array_equal(total, totals[0]) for total in totals)


@pytest.mark.parametrize("kind", [BoundedScores, SignedScores])
def test_bad_parameters_are_refused(kind):
    with pytest.raises(InvalidParameter, match="interval"):
        kind(1.0, hinge, interval=(1.0, 1.0))
    with pytest.raises(InvalidParameter, match="interval"):
        kind(1.0, hinge, interval=(0.0, np.inf))
    for bound in (0.0, -1.0, np.nan, np.inf):
        with pytest.raises(InvalidParameter):
            kind(bound, hinge)
    scores = kind(1.0, hinge)
    with pytest.raises(InvalidParameter, match="n starts"):
        scores.total([1.0, 2.0], [1.0], [1.0])
    with pytest.raises(InvalidParameter, match="n starts"):
        scores.total([1.0], [1.0], [])
    with pytest.raises(InvalidParameter, match="steps"):
        scores.total([1.0], [1.0], [np.nan])
    with pytest.raises(InvalidParameter, match="steps"):
        scores.total([1.0], [1.0], [np.inf])
    with pytest.raises(InvalidParameter, match="block_rows"):
        scores.total([1.0], [1.0], [1.0], block_rows=2**18)
    with pytest.raises(InvalidParameter, match="one float64 per position"):
        kind(1.0, lambda p: p[:1]).total([1.0, 2.0], [1.0, 1.0], [1.0])
