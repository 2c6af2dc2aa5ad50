"""The banded mechanism: what its outputs tell of a row, by enumeration of batches, is never above what is charged."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, strategies as st

from dpdescent.accounting import FixedSchedule, Gaussian, PoissonSampled
from dpdescent.accounting.banded import Bands, bands_for
from dpdescent.errors import InvalidParameter

FALSE_ALARM = 4.5  # deviations: once in 150,000 comparisons
RUNS = 200_000


def adaptive(history):
    """Add the whole vector, with a sign that follows from what was released."""
    return np.where(history.sum(axis=1) >= 0, 1.0, -1.0) if history.shape[1] else np.ones(len(history))


def fading(history):
    """Add less where the last output was large."""
    return 1 / (1 + np.maximum(history[:, -1], 0)) if history.shape[1] else np.ones(len(history))


def whole(history):
    return np.ones(len(history))


def likelihood_ratios(weights, noise, rate, steps, group, vector, present, generator):
    """Draw outputs with or without the row, and return their likelihood with it over that without.

    The likelihood is the sum over all sets of batches that the row may be in: nothing of windows is used here.
    """
    bands, deviation = len(weights), noise * np.linalg.norm(weights)
    turns = [step for step in range(steps) if step % bands == group]
    outputs, added = np.empty((RUNS, 0)), np.zeros((RUNS, steps))
    drawn = generator.random((RUNS, steps)) < rate
    vectors = np.zeros((RUNS, steps))
    for step in range(steps):
        if step in turns:
            vectors[:, step] = vector(outputs)
            added[:, step] = vectors[:, step] * (drawn[:, step] if present else 0)
        mean = sum(weights[k] * added[:, step - k] for k in range(min(bands, step + 1)))
        outputs = np.column_stack([outputs, mean + deviation * generator.standard_normal(RUNS)])
    ratio = np.zeros(RUNS)
    for chosen in itertools.product((0, 1), repeat=len(turns)):
        exponent = np.zeros(RUNS)
        for step in range(steps):
            mean = sum(
                weights[step - turn] * vectors[:, turn] * taken
                for turn, taken in zip(turns, chosen, strict=True)
                if 0 <= step - turn < bands
            )
            exponent += (outputs[:, step] * mean - np.square(mean) / 2) / deviation**2
        ratio += math.prod(rate if taken else 1 - rate for taken in chosen) * np.exp(exponent)
    return ratio


def deltas(epsilon, *, rate=0.4, noise=0.8, steps=4, bands=2, group=0, vector=whole, seed=0):
    """Return delta at an epsilon for a row that is removed and for one that is added, with its standard error."""
    weights = bands_for(bands, steps).weights
    ratio = likelihood_ratios(weights, noise, rate, steps, group, vector, False, np.random.default_rng(seed))
    found = np.maximum(ratio - math.exp(epsilon), 0), np.maximum(1 - math.exp(epsilon) * ratio, 0)
    return [(float(each.mean()), float(each.std() / math.sqrt(RUNS))) for each in found]


def charged_epsilon(rate, noise, steps, delta=0.02):
    part = PoissonSampled(rate, (Gaussian(noise),)) if rate < 1 else Gaussian(noise)
    return FixedSchedule((part,), steps, delta).pure()


CASES = [
    {"steps": 4, "bands": 2},
    {"steps": 5, "bands": 2, "rate": 0.7},  # the last cycle is not complete
    {"steps": 5, "bands": 2, "rate": 0.7, "group": 1},
    {"steps": 3, "bands": 3, "rate": 1.0, "group": 0},
    {"steps": 3, "bands": 2, "noise": 0.5, "vector": adaptive},
    {"steps": 6, "bands": 3, "vector": adaptive},
    {"steps": 7, "bands": 3, "vector": fading, "rate": 0.1},
]


@pytest.mark.parametrize("case", CASES, ids=range(len(CASES)))
def test_no_row_shows_more_than_is_charged(case):
    pytest.importorskip("dp_accounting")
    given = {"rate": 0.4, "noise": 0.8} | case
    epsilon = charged_epsilon(given["rate"], given["noise"], math.ceil(given["steps"] / given["bands"]))
    for delta, error in deltas(epsilon, **given):
        assert delta <= 0.02 + FALSE_ALARM * error


@pytest.mark.parametrize("vector", [whole, adaptive])
def test_the_price_is_that_of_the_worst_row(vector):
    pytest.importorskip("dp_accounting")

    def worst(epsilon):
        return max(delta for delta, _ in deltas(epsilon, steps=4, bands=2, vector=vector))

    assert worst(charged_epsilon(0.4, 0.8, 2)) >= 0.95 * 0.02
    # The rate among all rows, one cycle too few, and noise for one output alone would be charged too little.
    assert worst(charged_epsilon(0.2, 0.8, 4)) > 1.15 * 0.02
    assert worst(charged_epsilon(0.4, 0.8, 1)) > 1.15 * 0.02
    assert worst(charged_epsilon(0.4, 0.8 * bands_for(2, 4).length, 2)) > 1.15 * 0.02


def test_a_row_in_batches_that_are_less_than_a_cycle_apart_would_show_more():
    pytest.importorskip("dp_accounting")
    weights, generator = bands_for(2, 4).weights, np.random.default_rng(0)
    shifts = np.array([1.0, weights[1] + 1.0, weights[1]])  # of a row in two batches, one after the other
    deviation = 0.8 * np.linalg.norm(weights)
    outputs = generator.standard_normal((RUNS, 3)) * deviation
    ratio = np.exp((outputs @ shifts - shifts @ shifts / 2) / deviation**2)
    assert np.maximum(ratio - math.exp(charged_epsilon(1.0, 0.8, 2)), 0).mean() > 1.15 * 0.02


def test_prices_are_those_that_jax_privacy_publishes():
    """Its epsilon of 512 rounds is documented as 3.77, and a banded run is charged for one round in each cycle."""
    pytest.importorskip("dp_accounting")
    for bands, iterations in ((1, 512), (4, 2048), (4, 2045)):
        schedule = FixedSchedule((PoissonSampled(0.1, (Gaussian(3.0),)),), math.ceil(iterations / bands), 1e-6)
        assert round(schedule.pure(), 2) == 3.77


# Weights ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("count", "steps"), [(1, 5), (2, 3), (4, 30), (16, 20)])
def test_response_and_spread_are_those_of_the_inverse_matrix(count, steps):
    bands = bands_for(count, steps)
    matrix = np.zeros((steps, steps))
    for k, weight in enumerate(bands.weights[:steps]):
        matrix += weight * np.eye(steps, k=-k)
    inverse = np.linalg.inv(matrix)
    np.testing.assert_allclose(bands.response(steps), inverse[:, 0], atol=1e-10)
    partial = np.tril(np.ones((steps, steps))) @ inverse
    assert bands.spread(steps) == pytest.approx(np.sqrt(np.square(partial).sum() / steps))
    assert bands.count == count
    assert np.linalg.norm(bands.weights) <= bands.length <= np.linalg.norm(bands.weights) * (1 + 1e-12)


def test_weights_are_better_than_truncated_coefficients_of_the_root():
    """60,000 rows, batches of 600, 300 steps: noise multipliers by privacy loss distributions, weights with e = 1."""
    truncated = Bands(tuple(int(1024 * math.comb(2 * k, k) / 4**k) for k in range(16)))
    ours, alone = bands_for(16, 300), Bands()

    def relative(bands, multiplier, independent):
        return multiplier * bands.length * bands.spread(300) / (independent * alone.spread(300))

    for multiplier, independent, expected in ((2.986, 1.028, 0.97), (1.39, 0.706, 0.66), (0.804, 0.514, 0.52)):
        assert relative(truncated, multiplier, independent) == pytest.approx(expected, abs=0.01)
        assert relative(ours, multiplier, independent) < 0.94 * relative(truncated, multiplier, independent)


@given(
    st.integers(-(2**50), 2**50), st.integers(-(2**30), 2**30), st.integers(0, 2**10)
)  # earlier noise, what a row adds, a weight
def test_rounding_down_adds_less_than_a_unit_to_a_shift(noise, added, weight):
    moved = math.floor((noise - weight * added) / 1024) - math.floor(noise / 1024)
    assert abs(moved + weight * added / 1024) < 1


def test_weights_that_are_no_bands_are_refused():
    for wrong in ((), (1023,), (1024, -1), (1024, 1025)):
        with pytest.raises(InvalidParameter):
            Bands(wrong)
    with pytest.raises(InvalidParameter, match="bands"):
        bands_for(0, 10)
