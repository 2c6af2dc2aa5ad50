"""Laws of the cell sampler.

Statistical tests alarm at p < 1e-6 and use fixed seeds, so they either always pass or always fail; with
fresh bits the whole file would raise a false alarm once in more than 30,000 runs. Each also shows that it
can fail: the same statistic rejects a wrong law at the same level.
"""

from __future__ import annotations

import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpdescent.errors import InvalidParameter, ScaleOutOfRange
from dpdescent.noise import (
    SeededBits,
    SystemBits,
    discrete_gaussian,
    discrete_laplace,
    exp_neg,
    laplace_scale,
    lattice as lattice_module,
    lattice_scale,
)

ALARM = 1e-6
SAMPLERS = {"gaussian": discrete_gaussian, "laplace": discrete_laplace}


def source(seed: int = 0) -> SeededBits:
    return SeededBits(np.random.SeedSequence(seed))


def probabilities(law: str, scale: float) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """All integers that carry mass above 1e-17 or so, and their probabilities."""
    reach = math.ceil(scale * (9 if law == "gaussian" else 40))
    values = np.arange(-reach, reach + 1)
    weights = np.exp(-(values**2) / (2 * scale**2)) if law == "gaussian" else np.exp(-np.abs(values) / scale)
    return values, weights / weights.sum()


def chi_square(draws: NDArray[np.int64], law: str, scale: float, least_expected: float) -> float:
    """P-value of Pearson's statistic over runs of integers that expect at least ``least_expected`` draws."""
    values, expected = probabilities(law, scale)
    assert np.abs(draws).max() <= values[-1]
    observed = np.bincount(draws - values[0], minlength=values.size)
    group = np.minimum(
        np.floor(np.cumsum(expected * draws.size) / least_expected), np.floor(draws.size / least_expected) - 1
    ).astype(np.int64)
    _, group = np.unique(group, return_inverse=True)
    observed_groups = np.bincount(group, observed)
    expected_groups = np.bincount(group, expected * draws.size)
    # A single integer may pass several multiples of the least count, and leave the next group short.
    enough = expected_groups >= 5
    observed_groups = np.append(observed_groups[enough], observed_groups[~enough].sum())
    expected_groups = np.append(expected_groups[enough], expected_groups[~enough].sum())
    if expected_groups[-1] == 0:
        observed_groups, expected_groups = observed_groups[:-1], expected_groups[:-1]
    statistic = ((observed_groups - expected_groups) ** 2 / expected_groups).sum()
    return float(stats.chi2.sf(statistic, expected_groups.size - 1))


# ---------------------------------------------------------------- deterministic values


def test_exp_neg_of_one_has_the_known_leading_bits() -> None:
    assert exp_neg(1, 1) >> 192 == 6786177901268885274


@pytest.mark.parametrize(
    "exponent",
    [(0, 1), (1, 10**40), (1, 3), (1, 1), (621, 512), (188, 1), (10**30 + 7, 10**28), (255, 1), (256, 1)],
)
@pytest.mark.parametrize("precision", [64, 256, 320])
def test_exp_neg_is_within_two_units(exponent: tuple[int, int], precision: int) -> None:
    with mpmath.workprec(1200):
        truth = mpmath.exp(-mpmath.mpf(exponent[0]) / exponent[1]) * 2**precision
        assert abs(exp_neg(*exponent, precision) - truth) < 2


def test_exp_neg_of_a_huge_exponent_is_zero() -> None:
    assert exp_neg(2**70, 1) == 0


def test_gaussian_cell_table_has_its_known_head_and_length() -> None:
    table = lattice_module.gaussian_table()
    assert table.leading[:3].tolist() == [897519610827870491, 1793287964434682380, 2683823022238448168]
    assert len(table.cumulative) == table.leading.size == 311
    assert table.cumulative[-1] == 2**256


def test_laplace_cell_table_has_its_known_head_and_length() -> None:
    table = lattice_module._laplace_table()
    assert table.leading[:2].tolist() == [1117631724489728397, 2167549565890130883]
    assert len(table.cumulative) == table.leading.size == 3017
    assert table.cumulative[-1] == 2**256


def test_laplace_table_equals_its_closed_form() -> None:
    """F_k = (1 - y^(k+1)) / (1 - y^3017), y = exp(-1/16), to the last of 256 bits or its neighbour."""
    table = lattice_module._laplace_table()
    with mpmath.workprec(600):
        for k in (0, 1, 100, 1500, 3000):
            truth = (1 - mpmath.exp(-mpmath.mpf(k + 1) / 16)) / (1 - mpmath.exp(-mpmath.mpf(3017) / 16))
            assert abs(table.cumulative[k] - truth * 2**256) <= 2


@pytest.mark.parametrize(
    ("sigma", "unit", "scale"), [(10, 2.0**-36, 687194767376), (3, 1, 16), (16, 1, 32), (0.001, 1.0, 16)]
)
def test_lattice_scale_values(sigma: float, unit: float, scale: int) -> None:
    assert lattice_scale(sigma, unit) == scale


def test_lattice_scale_is_the_least_multiple_of_16_that_satisfies_the_bound() -> None:
    generator = np.random.default_rng(0)
    for _ in range(500):
        sigma, unit = float(np.exp(generator.uniform(-5, 10))), 2.0 ** int(generator.integers(-20, 3))
        scale = lattice_scale(sigma, unit)
        bound = (Fraction(sigma) / Fraction(unit)) ** 2 + 4
        assert scale % 16 == 0
        assert (scale - 16) ** 2 < bound <= scale**2


@pytest.mark.parametrize(("scale", "unit", "expected"), [(1, 1, 16), (16, 1, 16), (16.000001, 1, 32), (3, 0.125, 32)])
def test_laplace_scale_rounds_up_to_a_multiple_of_16(scale: float, unit: float, expected: int) -> None:
    assert laplace_scale(scale, unit) == expected


def test_scales_reach_exactly_to_the_maximum() -> None:
    assert laplace_scale(2**52, 1) == 2**52
    assert lattice_scale(2**52 - 16, 1) == 2**52
    with pytest.raises(ScaleOutOfRange, match=r"coarser lattice, with a unit at least 2\*\*1 times"):
        laplace_scale(2**52 + 1, 1)
    with pytest.raises(ScaleOutOfRange, match="coarser lattice"):
        lattice_scale(2**52, 1)
    with pytest.raises(ScaleOutOfRange, match=r"2\*\*9 times"):
        lattice_scale(1e300, 1e300 * 2.0**-60)


def test_seeded_noise_has_its_known_values() -> None:
    assert discrete_gaussian(source(), 2**36, 5).tolist() == [
        -665922266,
        -23415873498,
        -44628751263,
        -7721868262,
        -158966131868,
    ]
    assert discrete_gaussian(source(), 48, 8).tolist() == [-2, -16, 31, -5, -112, 17, 89, 9]
    assert discrete_laplace(source(), 2**26, 5).tolist() == [
        -3222234,
        -20045786,
        -43299743,
        -4348902,
        -257862812,
    ]


@pytest.mark.parametrize("law", SAMPLERS)
@pytest.mark.parametrize("scale", [16, 48, 2**36, 16 * 3**20, 2**52])
def test_slow_path_equals_fast_path_on_fixed_bits(law: str, scale: int) -> None:
    """3,000 draws fit into one batch, so both runs read the same leading bits of every decision."""
    size = 3000 if scale == 48 else 300
    fast = SAMPLERS[law](source(3), scale, size)
    slow = SAMPLERS[law](source(3), scale, size, force_exact=True)
    assert np.array_equal(fast, slow)


class FixedBits:
    """Words that put decisions in doubt, then refinements that settle them one way or the other."""

    def __init__(self, words: list[int], refinement: int) -> None:
        self._words, self._refinement, self.refined = words, refinement, 0

    def words(self, count: int) -> NDArray[np.uint64]:
        assert count == len(self._words)
        return np.array(self._words, np.uint64)

    def integer(self, bits: int) -> int:
        self.refined += 1
        return self._refinement if self._refinement == 0 else 2**bits - 1


@pytest.mark.parametrize("table", [lattice_module.gaussian_table(), lattice_module._laplace_table()])
def test_a_word_on_a_threshold_is_settled_by_further_bits(table: lattice_module._CellTable) -> None:
    for k in (0, 1, 50, 100):
        word = np.array([table.leading[k]], np.uint64)
        low, high = FixedBits([], 0), FixedBits([], 1)
        assert table.draw(low, word, False).tolist() == [k]
        assert table.draw(high, word, False).tolist() == [k + 1]
        assert (low.refined, high.refined) == (1, 1)
        beside = FixedBits([], 0)
        assert table.draw(beside, word - np.uint64(1), False).tolist() == [k]
        assert table.draw(beside, word + np.uint64(1), False).tolist() == [k + 1]
        assert beside.refined == 0


@pytest.mark.parametrize("table", [lattice_module.gaussian_table(), lattice_module._laplace_table()])
def test_the_largest_word_stays_inside_the_table(table: lattice_module._CellTable) -> None:
    for refinement in (0, 1):
        cell = table.draw(FixedBits([], refinement), np.array([2**64 - 1], np.uint64), False)[0]
        assert 0 < cell < table.leading.size


def test_a_coin_close_to_its_probability_is_settled_by_further_bits() -> None:
    family, scale = lattice_module.GaussianCells(), 2**36
    cells, offsets = np.array([3]), np.array([2**31 + 12345])
    digits = exp_neg(*family.exact_exponent(3, 2**31 + 12345, scale)) >> (256 - 53)
    for shift, low, high in ((-1, True, True), (0, True, False), (1, False, False)):
        word = np.array([(digits + shift) << 11], np.uint64)
        for refinement, expected in ((0, low), (1, high)):
            bits = FixedBits([], refinement)
            accepted = lattice_module.accept_proposals(bits, word, family, cells, offsets, scale, False)
            assert accepted.tolist() == [expected]
            assert bits.refined == 1


@pytest.mark.parametrize("law", SAMPLERS)
def test_size_zero_reads_nothing(law: str) -> None:
    draws = SAMPLERS[law](FixedBits([-1], 0), 16, 0)
    assert draws.shape == (0,)
    assert draws.dtype == np.int64


@pytest.mark.parametrize("law", SAMPLERS)
def test_numpy_integer_scale_gives_the_same_noise(law: str) -> None:
    assert np.array_equal(SAMPLERS[law](source(), np.int64(48), 9), SAMPLERS[law](source(), 48, 9))


# ---------------------------------------------------------------- refusals


@pytest.mark.parametrize("law", SAMPLERS)
@pytest.mark.parametrize(
    "scale", [0, -16, 8, 17, 2**52 + 16, 2**60, 32.0, 1.5, float("nan"), float("inf"), "16", None, True]
)
def test_scales_that_cannot_be_drawn_are_refused_with_a_remedy(law: str, scale: object) -> None:
    with pytest.raises(ScaleOutOfRange, match="lattice_scale"):
        SAMPLERS[law](source(), scale, 1)


@pytest.mark.parametrize("law", SAMPLERS)
@pytest.mark.parametrize("size", [-1, 1.0, float("nan"), None, "3"])
def test_sizes_that_are_no_counts_are_refused(law: str, size: object) -> None:
    with pytest.raises(InvalidParameter, match="size"):
        SAMPLERS[law](source(), 16, size)


@pytest.mark.parametrize("convert", [lattice_scale, laplace_scale])
@pytest.mark.parametrize("bad", [0, -1.0, float("nan"), float("inf"), -float("inf"), "wide", None, Fraction(-1, 3)])
def test_real_scales_and_units_must_be_positive_numbers(convert: object, bad: object) -> None:
    with pytest.raises(InvalidParameter):
        convert(bad, 1.0)  # type: ignore[operator]
    with pytest.raises(InvalidParameter):
        convert(1.0, bad)  # type: ignore[operator]


# ---------------------------------------------------------------- the law, by statistics


@pytest.mark.parametrize(
    ("law", "scale", "seed"),
    [("gaussian", 16, 1), ("gaussian", 48, 2), ("laplace", 16, 3), ("laplace", 48, 4)],
)
def test_draws_follow_the_law_and_not_one_of_a_scale_one_percent_off(law: str, scale: int, seed: int) -> None:
    """Chi-square on 10^6 draws, single integers and runs of 2 %. False alarm: 2e-6 with fresh bits."""
    draws = SAMPLERS[law](source(seed), scale, 10**6)
    for least_expected in (10, 20_000):
        assert chi_square(draws, law, scale, least_expected) > ALARM
    for wrong in (0.99 * scale, 1.01 * scale):
        assert chi_square(draws, law, wrong, 20_000) < ALARM


@pytest.mark.parametrize(("law", "seed"), [("gaussian", 5), ("laplace", 6)])
def test_slow_path_draws_follow_the_law_and_not_one_of_a_scale_ten_percent_off(law: str, seed: int) -> None:
    """Chi-square on 10^4 draws decided by integers alone. False alarm: 1e-6 with fresh bits."""
    draws = SAMPLERS[law](source(seed), 48, 10**4, force_exact=True)
    assert chi_square(draws, law, 48, 200) > ALARM
    assert chi_square(draws, law, 48 * 1.1, 200) < ALARM


@pytest.mark.parametrize(("exponent", "seed"), [(20, 7), (46, 8)])
def test_wide_gaussian_draws_have_the_normal_distribution_function(exponent: int, seed: int) -> None:
    """Kolmogorov-Smirnov on 2.5 10^6 draws, where the lattice is invisible. False alarm: 1e-6."""
    draws = discrete_gaussian(source(seed), 2**exponent, 2_500_000) / 2.0**exponent
    draws.sort()
    assert ks_p_value(stats.norm.cdf(draws)) > ALARM
    for wrong in (0.99, 1.01):
        assert ks_p_value(stats.norm.cdf(draws, scale=wrong)) < ALARM


@pytest.mark.parametrize(("exponent", "seed"), [(20, 9), (46, 10)])
def test_wide_laplace_draws_have_the_laplace_distribution_function(exponent: int, seed: int) -> None:
    """Kolmogorov-Smirnov on 4 10^6 draws. False alarm: 1e-6."""
    draws = discrete_laplace(source(seed), 2**exponent, 4_000_000) / 2.0**exponent
    draws.sort()
    assert ks_p_value(stats.laplace.cdf(draws)) > ALARM
    for wrong in (0.99, 1.01):
        assert ks_p_value(stats.laplace.cdf(draws, scale=wrong)) < ALARM


def ks_p_value(sorted_uniforms: NDArray[np.float64]) -> float:
    ranks = np.arange(sorted_uniforms.size + 1) / sorted_uniforms.size
    distance = max((ranks[1:] - sorted_uniforms).max(), (sorted_uniforms - ranks[:-1]).max())
    return float(stats.kstwobign.sf(distance * math.sqrt(sorted_uniforms.size)))


def test_gaussian_tail_beyond_four_deviations_has_its_mass() -> None:
    """63.3 of 10^6 draws expected; outside [29, 107] with probability 7e-7. A 10 % wider law gives 277."""
    bound = 4 * 2**36
    assert 29 <= int((np.abs(discrete_gaussian(source(11), 2**36, 10**6)) > bound).sum()) <= 107
    wider = laplace_scale(1.1 * 2**36, 1)
    assert int((np.abs(discrete_gaussian(source(11), wider, 10**6)) > bound).sum()) > 107


@pytest.mark.parametrize("law", SAMPLERS)
def test_low_bits_are_uniform_unlike_those_of_rounded_floats(law: str) -> None:
    """Chi-square of the low byte of 10^6 draws. False alarm: 1e-6. Float noise has holes there."""

    def p_value(values: NDArray[np.int64]) -> float:
        return float(stats.chisquare(np.bincount(values & 255, minlength=256)).pvalue)

    draws = SAMPLERS[law](source(12), 2**52, 10**6)
    assert p_value(draws) > ALARM
    rounded_floats = np.random.default_rng(0).normal(scale=2.0**57, size=10**6).astype(np.int64)
    assert p_value(rounded_floats) < ALARM


@pytest.mark.parametrize("scale", [16, 48, 2**40])
def test_gaussian_variance_is_the_square_of_the_scale(scale: int) -> None:
    """Mean square of 10^6 draws within 5 standard errors (0.7 %); false alarm 6e-7. One percent fails."""
    draws = discrete_gaussian(source(13), scale, 10**6).astype(np.float64)
    ratio = float((draws**2).mean()) / scale**2
    error = math.sqrt(2e-6)
    assert abs(ratio - 1) < 5 * error
    assert abs(ratio / 1.01**2 - 1) > 5 * error
    assert abs(float(draws.mean())) < 5e-3 * scale


def test_successive_draws_are_uncorrelated() -> None:
    """Lag-one correlations of values and of magnitudes, 10^6 draws, within 5 standard errors: 1e-6."""
    draws = discrete_gaussian(source(14), 2**30, 10**6) / 2.0**30
    for series in (draws, np.abs(draws)):
        assert abs(np.corrcoef(series[1:], series[:-1])[0, 1]) < 5e-3


def test_agrees_with_the_discrete_gaussian_sampler_of_opendp() -> None:
    """Two-sample chi-square, 60,000 draws each, scale 16. OpenDP draws fresh bits: false alarm 1e-6.

    A scale 6 % off is missed with probability below 1e-9 (noncentrality 210 on 22 degrees of freedom).
    """
    opendp = pytest.importorskip("opendp.prelude")
    opendp.enable_features("contrib")

    def rival(scale: float, size: int) -> NDArray[np.int64]:
        space = opendp.vector_domain(opendp.atom_domain(T=int)), opendp.l2_distance(T=float)
        return np.array(opendp.m.make_gaussian(*space, scale=scale)([0] * size))

    def p_value(first: NDArray[np.int64], second: NDArray[np.int64]) -> float:
        edges = np.concatenate([[-np.inf], np.arange(-42, 43, 4) + 0.5, [np.inf]])
        table = np.array([np.histogram(sample, edges)[0] for sample in (first, second)])
        return float(stats.chi2_contingency(table).pvalue)

    size = 60_000
    ours = discrete_gaussian(SystemBits(), 16, size)
    assert p_value(ours, rival(16.0, size)) > ALARM
    assert p_value(ours, rival(17.0, size)) < ALARM
