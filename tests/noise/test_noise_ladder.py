"""Laws of norm-Laplace noise. Statistical tests alarm at p < 1e-6 and use fixed seeds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpdescent.errors import InvalidParameter, ScaleOutOfRange
from dpdescent.noise import (
    MINIMUM_NORM_LAPLACE_SCALE,
    NORM_LAPLACE_DELTA,
    NORM_LAPLACE_SLACK,
    SeededBits,
    discrete_laplace,
    ladder,
    norm_laplace,
)

ALARM = 1e-6
SHIFT_ROOM = 16


def source(seed: int = 0) -> SeededBits:
    return SeededBits(np.random.SeedSequence(seed))


def tail_mass(dimension: int, scale: int, radius: float) -> float:
    """Probability that the norm exceeds ``radius``; nodes of 2**16 or more are Gaussian to all digits."""
    rungs = ladder(dimension, scale)
    total = rungs.cumulative[-1]
    masses = np.array([weight / total for weight in rungs.weights])
    return float((masses * stats.chi2.sf((radius / np.array(rungs.nodes, np.float64)) ** 2, dimension)).sum())


def exceeded_radius(dimension: int, scale: int) -> float:
    """Least radius, by bisection, that is exceeded with probability at most `NORM_LAPLACE_DELTA`."""
    low, high = 0.0, scale * (dimension + 45 * math.sqrt(dimension) + 150)
    for _ in range(50):
        middle = (low + high) / 2
        low, high = (middle, high) if tail_mass(dimension, scale, middle) > NORM_LAPLACE_DELTA else (low, middle)
    return high


def ladder_slope(dimension: int, scale: int, radii: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``-scale * d log H / dr`` of the ladder at the given radii; 1 is the ideal norm-Laplace law.

    The largest slope times ``||D|| / scale`` bounds the privacy loss of a shift by D.
    """
    rungs = ladder(dimension, scale)
    variances = np.array(rungs.nodes, np.float64) ** 2
    # The normaliser of a discrete Gaussian of scale 2**16 or more is that of the Gaussian to 2**-10000.
    log_height = np.array([math.log(w) for w in rungs.weights]) - dimension / 2 * np.log(variances / variances[-1])
    slopes = np.empty(len(radii))
    for i, radius in enumerate(radii):
        log_joint = log_height - radius**2 / (2 * variances)
        joint = np.exp(log_joint - log_joint.max())
        slopes[i] = scale * radius * (joint / variances).sum() / joint.sum()
    return slopes


@pytest.mark.parametrize("dimension", [1, 2, 3, 10, 16, 20, 124, 1000, 10**5, 2**20])
@pytest.mark.parametrize("scale", [MINIMUM_NORM_LAPLACE_SCALE, 2**36 + 1])
def test_slope_exceeds_one_by_less_than_the_slack_wherever_noise_falls(dimension: int, scale: int) -> None:
    """From radius 1 to the one exceeded with probability 1e-27, and 16 b further for the shifted point."""
    radius = exceeded_radius(dimension, scale)
    assert tail_mass(dimension, scale, radius) <= NORM_LAPLACE_DELTA
    top = radius + SHIFT_ROOM * scale
    radii = np.concatenate(
        [np.geomspace(1, top, 1200), np.linspace(1, top, 600), np.geomspace(scale / 1000, scale, 600)]
    )
    excess = ladder_slope(dimension, scale, radii).max() - 1
    assert excess <= NORM_LAPLACE_SLACK - 1
    assert excess <= 1e-7


@pytest.mark.parametrize("dimension", [2, 10, 124])
def test_slope_is_that_of_the_norm_laplace_law_where_the_mass_is(dimension: int) -> None:
    """Not only bounded by one: equal to it, so that no privacy is wasted."""
    scale = 2**36
    law = stats.gamma(dimension)
    radii = scale * np.linspace(max(law.ppf(1e-6), 0.1), law.isf(1e-12), 400)
    np.testing.assert_allclose(ladder_slope(dimension, scale, radii), 1, rtol=0, atol=1e-9)


def test_slope_far_beyond_the_ladder_betrays_a_gaussian_tail() -> None:
    """The check has power: past the top node the slope does exceed the slack."""
    assert ladder_slope(2, 2**36, np.array([400.0 * 2**36]))[0] > 1.1


@pytest.mark.parametrize("dimension", [1, 2, 124, 10**5])
def test_nodes_are_drawable_and_weights_are_positive_integers(dimension: int) -> None:
    rungs = ladder(dimension, 2**36)
    assert list(rungs.nodes) == sorted(set(rungs.nodes))
    assert all(node % 16 == 0 and 2**16 <= node <= 2**52 for node in rungs.nodes)
    assert all(isinstance(weight, int) and weight > 0 for weight in rungs.weights)
    assert rungs.cumulative[-1] == sum(rungs.weights)
    assert ladder(dimension, 2**36) is rungs


def test_mean_square_of_the_mixture_is_that_of_the_gamma_law() -> None:
    """E ||z||^2 = d (d+1) b^2."""
    for dimension in (2, 10, 124):
        rungs = ladder(dimension, 2**36)
        second = sum(w * n * n for w, n in zip(rungs.weights, rungs.nodes, strict=True)) / rungs.cumulative[-1]
        assert second * dimension / 2**72 == pytest.approx(dimension * (dimension + 1), rel=1e-6)


class FixedInteger:
    """Answers with the given integers, one after the other."""

    def __init__(self, *answers: int) -> None:
        self._answers = list(answers)

    def words(self, count: int) -> NDArray[np.uint64]:
        raise AssertionError(count)

    def integer(self, bits: int) -> int:
        answer = self._answers.pop(0)
        assert answer < 2**bits
        return answer


def test_a_node_is_chosen_by_an_exact_uniform_below_the_sum_of_weights() -> None:
    rungs = ladder(124, 2**36)
    assert rungs.draw(FixedInteger(0)) == rungs.nodes[0]
    for j in (0, 100, len(rungs.nodes) - 2):
        assert rungs.draw(FixedInteger(rungs.cumulative[j] - 1)) == rungs.nodes[j]
        assert rungs.draw(FixedInteger(rungs.cumulative[j])) == rungs.nodes[j + 1]
    total = rungs.cumulative[-1]
    assert rungs.draw(FixedInteger(total, total + 1, total - 1)) == rungs.nodes[-1]


@pytest.mark.parametrize(("dimension", "seed"), [(2, 1), (10, 2), (124, 3)])
def test_norms_follow_the_gamma_law_and_not_one_of_a_scale_ten_percent_off(dimension: int, seed: int) -> None:
    """Kolmogorov-Smirnov on 5,000 vectors. False alarm: 1e-6 with fresh bits."""
    bits, scale = source(seed), 2**36
    norms = np.array([np.linalg.norm(norm_laplace(bits, scale, dimension) / scale) for _ in range(5000)])
    assert stats.kstest(norms, stats.gamma(dimension).cdf).pvalue > ALARM
    for wrong in (1 / 1.1, 1.1):
        assert stats.kstest(norms, stats.gamma(dimension, scale=wrong).cdf).pvalue < ALARM


def test_directions_are_uniform() -> None:
    """Angles of 5,000 plane vectors are uniform. False alarm: 1e-6. A circle with a gap of a tenth fails."""
    bits = source(4)
    vectors = np.array([norm_laplace(bits, 2**36, 2) for _ in range(5000)])
    turns = np.arctan2(vectors[:, 1], vectors[:, 0]) / (2 * np.pi) + 0.5
    assert stats.kstest(turns, stats.uniform.cdf).pvalue > ALARM
    assert stats.kstest(turns[turns < 0.9], stats.uniform.cdf).pvalue < ALARM


def test_one_coordinate_is_discrete_laplace_noise() -> None:
    assert np.array_equal(norm_laplace(source(5), 2**30 + 1, 1), discrete_laplace(source(5), 2**30 + 16, 1))


def test_no_coordinates_need_no_noise() -> None:
    assert norm_laplace(source(), 2**30, 0).shape == (0,)


def test_seeded_vectors_repeat() -> None:
    assert np.array_equal(norm_laplace(source(6), 2**36, 9), norm_laplace(source(6), 2**36, 9))
    assert not np.any(norm_laplace(source(6), 2**36, 9) == norm_laplace(source(7), 2**36, 9))


@pytest.mark.parametrize("scale", [0, -1, 2**24 - 1, 2.0**30, float("nan"), float("inf"), None, "big"])
@pytest.mark.parametrize("dimension", [1, 5])
def test_scales_too_small_for_the_ladder_are_refused_with_a_remedy(scale: object, dimension: int) -> None:
    with pytest.raises(ScaleOutOfRange, match="finer lattice unit"):
        norm_laplace(source(), scale, dimension)  # type: ignore[arg-type]


@pytest.mark.parametrize(("dimension", "scale"), [(1, 2**52 + 1), (2, 2**48), (124, 2**48), (10**5, 2**44)])
def test_nodes_above_the_largest_scale_are_refused_with_a_remedy(dimension: int, scale: int) -> None:
    with pytest.raises(ScaleOutOfRange, match="coarser lattice"):
        norm_laplace(source(), scale, dimension)


def test_dimensions_outside_the_verified_range_are_refused() -> None:
    for bad in (0, -1, 1.5, float("nan"), 2**20 + 1):
        with pytest.raises(InvalidParameter, match="dimension"):
            ladder(bad, 2**30)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="size"):
        norm_laplace(source(), 2**30, -1)
