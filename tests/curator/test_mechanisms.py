"""The mechanisms draw the noise that was paid for, and their laws are the ones on paper.

Statistical tests run on fixed seeds, so they never alarm at random; on fresh bits each would raise a false alarm
with probability below 1e-6. Each also rejects a scale that is wrong by the stated amount.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import special, stats

from dpdescent.accounting import (
    AboveThreshold,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    PureDP,
    ReportNoisyMax,
)
from dpdescent.curator import lattice_noise
from dpdescent.curator.lattice_noise import (
    LatticeNoise,
    deviation_of,
    first_above_threshold,
    least_scores,
    upper_triangle,
)
from dpdescent.errors import InvalidParameter, ScaleOutOfRange, UnknownRelation
from dpdescent.estimators.payment import FloatNoise
from dpdescent.exact import LatticeSum
from dpdescent.noise import Randomness, laplace_scale, lattice_scale, select
from dpdescent.relations import Norm, Relation, Sensitivity

ALARM = 1e-6
ZERO_OUT, REPLACE_ONE = Relation.ZERO_OUT, Relation.REPLACE_ONE


def lattice(values: object, sensitivity: Sensitivity, unit: float = 2.0**-36) -> LatticeSum:
    return LatticeSum(np.atleast_1d(np.asarray(values, np.int64)), unit, sensitivity)


def chi_square(counts: np.ndarray, probabilities: np.ndarray) -> float:
    return float(stats.chisquare(counts, counts.sum() * probabilities / probabilities.sum()).pvalue)


NOISES = [lambda: LatticeNoise(Randomness(seed=5)), lambda: FloatNoise(seed=5)]


@pytest.mark.parametrize("make", NOISES)
@pytest.mark.parametrize(("relation", "factor"), [(ZERO_OUT, 1.0), (REPLACE_ONE, 2.0)])
def test_gaussian_noise_has_the_deviation_that_was_paid_for(make, relation: Relation, factor: float) -> None:
    """Deviation = multiplier * sensitivity under the relation; a 2% error, or a lost factor 2, is rejected."""
    total = lattice(np.zeros(200_000), Sensitivity.of_clipped_sum(3.0))
    drawn = make().gaussian(total, Gaussian(1.7), relation)
    sigma = 1.7 * 3.0 * factor
    law = stats.chi2(drawn.size)
    statistic = float(np.sum((drawn / sigma) ** 2))
    assert ALARM < law.cdf(statistic) < 1 - ALARM
    assert not ALARM < law.cdf(statistic / 1.02**2) < 1 - ALARM
    assert stats.kstest(drawn / sigma, "norm").pvalue > ALARM


@pytest.mark.parametrize("make", NOISES)
def test_releases_are_centred_on_the_sum(make) -> None:
    """The mean of 400 releases is within 5 of its standard errors of the sum, one lattice point in a thousand."""
    values = np.array([5, -7, 2**20]) * 2**30
    total = lattice(values, Sensitivity.of_clipped_sum(1.0))
    noise: LatticeNoise = make()
    drawn = np.mean([noise.gaussian(total, Gaussian(0.5), ZERO_OUT) for _ in range(400)], axis=0)
    np.testing.assert_allclose(drawn, total.to_float(), rtol=0, atol=5 * 0.5 / 20)


@pytest.mark.parametrize("make", NOISES)
def test_symmetric_noise_is_isotropic_on_symmetric_matrices(make) -> None:
    """Diagonal deviation sigma, off-diagonal sigma/sqrt(2); each rejects the other's deviation."""
    size = 300
    total = lattice(np.zeros((size, size)), Sensitivity.of_positive_semidefinite_sum(2.0))
    drawn = make().gaussian_symmetric(total, Gaussian(4.0), ZERO_OUT)
    assert np.array_equal(drawn, drawn.T)
    upper = drawn[np.triu_indices(size, 1)]
    for sample, sigma in ((np.diag(drawn), 8.0), (upper, 8.0 / math.sqrt(2))):
        statistic = float(np.sum((sample / sigma) ** 2))
        law = stats.chi2(sample.size)
        assert ALARM < law.cdf(statistic) < 1 - ALARM
        assert not ALARM < law.cdf(statistic * 2) < 1 - ALARM
        assert not ALARM < law.cdf(statistic / 2) < 1 - ALARM


def test_replacing_a_row_of_a_positive_semidefinite_sum_needs_sqrt_two_not_two() -> None:
    total = lattice(np.zeros((400, 400)), Sensitivity.of_positive_semidefinite_sum(2.0))
    drawn = LatticeNoise(Randomness(seed=8)).gaussian_symmetric(total, Gaussian(1.0), REPLACE_ONE)
    upper = drawn[np.triu_indices(400, 1)] / 2.0
    assert ALARM < stats.chi2(upper.size).cdf(float(upper @ upper)) < 1 - ALARM


@pytest.mark.parametrize("make", NOISES)
def test_laplace_noise_has_scale_sensitivity_over_epsilon(make) -> None:
    total = lattice(np.zeros(200_000), Sensitivity(Norm.L1, 3.0, 6.0))
    drawn = make().laplace(total, Laplace(0.5), REPLACE_ONE)
    scale = 6.0 / 0.5
    assert stats.kstest(drawn / scale, "laplace").pvalue > ALARM
    assert stats.kstest(drawn / (1.05 * scale), "laplace").pvalue < ALARM


@pytest.mark.parametrize("make", NOISES)
def test_norm_laplace_length_is_gamma_distributed(make) -> None:
    noise, dimension = make(), 7
    point = lattice(np.zeros(dimension), Sensitivity(Norm.L2, 0.5, 1.0))
    lengths = [np.linalg.norm(noise.norm_laplace(point, NormLaplace(2.0), ZERO_OUT)) for _ in range(6000)]
    assert stats.kstest(np.array(lengths) / 0.25, stats.gamma(dimension).cdf).pvalue > ALARM
    assert stats.kstest(np.array(lengths) / 0.25 / 1.1, stats.gamma(dimension).cdf).pvalue < ALARM


def above_threshold_law(queries: np.ndarray, cost: AboveThreshold) -> np.ndarray:
    """Return P(stop at j) and P(none) for continuous noise, by integrating over the threshold."""
    if cost.noise == "laplace":
        density, tail = stats.laplace(scale=cost.threshold_scale).pdf, stats.laplace(scale=cost.query_scale).sf
        reach = 45 * cost.threshold_scale
    else:
        density, tail = stats.norm(scale=cost.threshold_scale).pdf, stats.norm(scale=cost.query_scale).sf
        reach = 10 * cost.threshold_scale
    nodes, weights = np.polynomial.legendre.leggauss(60)
    edges = np.unique(np.concatenate([np.linspace(-reach, reach, 101), queries, [0.0]]))
    z = np.concatenate([(b - a) / 2 * nodes + (a + b) / 2 for a, b in itertools.pairwise(edges)])
    mass = np.concatenate([(b - a) / 2 * weights for a, b in itertools.pairwise(edges)]) * density(z)
    yes = tail(z[:, None] - queries)
    survived = np.cumprod(np.column_stack([np.ones_like(z), 1 - yes]), axis=1)
    return np.append(mass @ (survived[:, :-1] * yes), mass @ survived[:, -1])


LISTED = {
    "laplace": (
        [0.41811208, 0.20329914, 0.1156271, 0.07178054, 0.07490744, 0.11627371],
        [0.5, 0.20833333, 0.10416667, 0.05833333, 0.03541667, 0.09375],
    ),
    "gaussian": ([0.41153164, 0.21155366, 0.12042922, 0.07381377, 0.07863801, 0.10403371], None),
}


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
@pytest.mark.parametrize("which", [0, 1])
def test_above_threshold_matches_its_exact_law_in_a_million_runs(noise: str, which: int) -> None:
    """Chi-square of 10^6 runs of the mechanism; the same counts reject a threshold scale that is 5% off."""
    queries = np.array([[-1.0, -1, -1, -1, 1], [0.0] * 5][which])
    cost = AboveThreshold(5, query_scale=4.0, threshold_scale=2.0, noise=noise)  # type: ignore[arg-type]
    exact = above_threshold_law(queries, cost)
    listed = LISTED[noise][which]
    if listed is not None:
        np.testing.assert_allclose(exact, listed, atol=2e-8)
    bits = Randomness(seed=11).stream("above-threshold", which)
    normalised = (queries * 2**cost.lattice_bits).astype(np.int64)
    first = first_above_threshold(bits, normalised, cost, runs=1_000_000)
    counts = np.append(np.bincount(first[first >= 0], minlength=5), np.sum(first < 0))
    assert chi_square(counts, exact) > ALARM
    wrong = AboveThreshold(5, query_scale=4.0, threshold_scale=2.0 * 1.05, noise=noise)  # type: ignore[arg-type]
    assert chi_square(counts, above_threshold_law(queries, wrong)) < ALARM


@pytest.mark.parametrize("make", NOISES)
def test_queries_of_a_search_are_divided_by_their_sensitivity(make) -> None:
    """Queries in other units, as their sensitivity is, have the same law; replace-one halves them."""
    cost = AboveThreshold(2, query_scale=1.0, threshold_scale=0.5)
    exact = above_threshold_law(np.array([-1.0, 0.5]), cost)
    noise: LatticeNoise = make()
    queries = lattice([-3 * 2**30, 3 * 2**29], Sensitivity.of_signed_sum(3.0), 2.0**-30)
    answers = [noise.first_above(queries, cost, ZERO_OUT) for _ in range(5_000)]
    counts = np.array([answers.count(0), answers.count(1), answers.count(None)])
    assert chi_square(counts, exact) > ALARM
    halved = [noise.first_above(queries, cost, REPLACE_ONE) for _ in range(5_000)]
    counts = np.array([halved.count(0), halved.count(1), halved.count(None)])
    assert chi_square(counts, above_threshold_law(np.array([-0.5, 0.25]), cost)) > ALARM
    assert chi_square(counts, exact) < ALARM


def test_selection_matches_its_exact_law_in_a_million_draws() -> None:
    """The law is exp(-epsilon s/range)/Z; the same counts reject an epsilon that is 2% off."""
    scores = np.array([5, 0, 3, 9, 1]) * 2**20
    epsilon, spread = 0.9, 4.0 * 2**20
    drawn = select(Randomness(seed=2).stream("x", 0), scores, Fraction(epsilon) / Fraction(spread), size=1_000_000)
    counts = np.bincount(drawn, minlength=5)
    assert chi_square(counts, special.softmax(-epsilon * scores / spread)) > ALARM
    assert chi_square(counts, special.softmax(-1.02 * epsilon * scores / spread)) < ALARM


@pytest.mark.parametrize("make", NOISES)
@pytest.mark.parametrize(("relation", "spread"), [(ZERO_OUT, 1.0), (REPLACE_ONE, 2.0)])
def test_least_follows_the_exponential_mechanism_under_each_relation(make, relation: Relation, spread: float) -> None:
    noise: LatticeNoise = make()
    scores = lattice(np.array([2, 0, 1]) * 2**24, Sensitivity.of_scores(1.0), 2.0**-24)
    drawn = [noise.least(scores, ExponentialMechanism(1.5), relation) for _ in range(10_000)]
    counts = np.bincount(drawn, minlength=3)
    assert chi_square(counts, special.softmax(-1.5 * np.array([2.0, 0, 1]) / spread)) > ALARM
    assert chi_square(counts, special.softmax(-1.5 * np.array([2.0, 0, 1]) / (3 - spread))) < ALARM


@pytest.mark.parametrize("make", NOISES)
def test_report_noisy_max_matches_its_exact_two_point_law(make) -> None:
    """Scores 0 and .7 with one-sided exponential noise of scale .8: P = (.79156899, .20843101)."""
    noise: LatticeNoise = make()
    scores = lattice(np.array([0, round(0.7 * 2**24)]), Sensitivity.of_scores(1.0), 2.0**-24)
    law = {"exponential": 1 - math.exp(-0.7 / 0.8) / 2, "laplace": 1 - math.exp(-0.875) * (1 + 0.875 / 2) / 2}
    assert law["exponential"] == pytest.approx(0.79156899, abs=1e-8)
    for kind, first in law.items():
        cost = ReportNoisyMax(1 / 0.8, kind)  # type: ignore[arg-type]
        drawn = [noise.least(scores, cost, ZERO_OUT) for _ in range(8_000)]
        counts = np.bincount(drawn, minlength=2)
        assert chi_square(counts, np.array([first, 1 - first])) > ALARM
        assert chi_square(counts, np.array([first - 0.05, 1.05 - first])) < ALARM


def test_a_seed_repeats_every_release_and_streams_differ() -> None:
    total = lattice(np.zeros(4), Sensitivity.of_clipped_sum(1.0))
    first, second = LatticeNoise(Randomness(seed=3)), LatticeNoise(Randomness(seed=3))
    releases = [first.gaussian(total, Gaussian(1.0), ZERO_OUT) for _ in range(3)]
    again = [second.gaussian(total, Gaussian(1.0), ZERO_OUT) for _ in range(3)]
    np.testing.assert_array_equal(releases, again)
    assert not np.array_equal(releases[0], releases[1])
    assert first.description == "seeded (not for release)"
    assert LatticeNoise().description == "operating system generator"
    assert "floating point" in FloatNoise().description


def test_released_values_are_lattice_points() -> None:
    total = lattice(np.arange(50) * 2**34, Sensitivity.of_clipped_sum(1.0), 2.0**-20)
    released = LatticeNoise(Randomness(seed=4)).gaussian(total, Gaussian(3.0), ZERO_OUT)
    assert np.array_equal(released * 2.0**20, np.rint(released * 2.0**20))


def test_totals_wrap_around_instead_of_failing() -> None:
    """A total near the end of int64 plus noise is taken modulo 2^64: a function of S + Z, never an error."""
    total = lattice([2**63 - 1], Sensitivity.of_clipped_sum(2.0**20), 1.0)
    drawn = [LatticeNoise(Randomness(seed=s)).gaussian(total, Gaussian(1.0), ZERO_OUT)[0] for s in range(20)]
    assert any(value < 0 for value in drawn)
    assert any(value > 0 for value in drawn)


@pytest.mark.parametrize("make", NOISES)
def test_a_sensitivity_in_the_wrong_norm_is_refused(make) -> None:
    noise: LatticeNoise = make()
    scores = lattice([1, 2], Sensitivity.of_scores(1.0))
    vector = lattice([1, 2], Sensitivity.of_clipped_sum(1.0))
    for call in (
        lambda: noise.gaussian(scores, Gaussian(1.0), ZERO_OUT),
        lambda: noise.laplace(vector, Laplace(1.0), ZERO_OUT),
        lambda: noise.norm_laplace(scores, NormLaplace(1.0), ZERO_OUT),
        lambda: noise.least(vector, ExponentialMechanism(1.0), ZERO_OUT),
        lambda: noise.first_above(scores, AboveThreshold(3, 2.0, 1.0), ZERO_OUT),
        lambda: noise.gaussian_symmetric(vector, Gaussian(1.0), ZERO_OUT),
    ):
        with pytest.raises(InvalidParameter):
            call()


def test_more_queries_than_were_charged_are_refused() -> None:
    queries = lattice([1, 1], Sensitivity.of_signed_sum(1.0))
    with pytest.raises(InvalidParameter, match="charged for 1"):
        LatticeNoise().first_above(queries, AboveThreshold(1, 2.0, 1.0), ZERO_OUT)


def test_an_unknown_relation_is_refused() -> None:
    total = lattice([1], Sensitivity.of_clipped_sum(1.0))
    with pytest.raises(UnknownRelation, match="zero-out"):
        LatticeNoise().gaussian(total, Gaussian(1.0), "cousins")  # type: ignore[arg-type]


def test_scales_that_cannot_be_drawn_exactly_are_refused() -> None:
    fine = lattice([1], Sensitivity.of_clipped_sum(1.0), 2.0**-40)
    with pytest.raises(ScaleOutOfRange, match="coarser"):
        LatticeNoise().gaussian(fine, Gaussian(2.0**20), ZERO_OUT)
    coarse = lattice([1], Sensitivity(Norm.L1, 1.0, 2.0), 1.0)
    with pytest.raises(ScaleOutOfRange, match="finer"):
        LatticeNoise().laplace(coarse, Laplace(1.0), ZERO_OUT)


def test_an_empty_search_finds_nothing() -> None:
    nothing = lattice([], Sensitivity.of_signed_sum(1.0))
    assert LatticeNoise().first_above(nothing, AboveThreshold(3, 2.0, 1.0), ZERO_OUT) is None
    assert FloatNoise().first_above(nothing, AboveThreshold(3, 2.0, 1.0), ZERO_OUT) is None


def test_scales_are_never_rounded_below_the_exact_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Products and quotients of random floats in exact arithmetic: about half of them are rounded down by a float."""
    spreads: list[float] = []
    scales: list[float] = []
    scale_of, laplace_scale_of = lattice_noise.lattice_scale, lattice_noise.laplace_scale
    monkeypatch.setattr(
        lattice_noise, "laplace_scale", lambda scale, unit: scales.append(scale) or laplace_scale_of(scale, unit)
    )
    monkeypatch.setattr(
        lattice_noise, "lattice_scale", lambda spread, unit: spreads.append(spread) or scale_of(spread, unit)
    )
    for multiplier, change in np.random.default_rng(0).uniform(1, 2, (60, 2)).tolist():
        cost, square = Gaussian(2.0**20 * multiplier), Sensitivity(Norm.L2, change, 2 * change)
        total = lattice(np.zeros((2, 2), dtype=np.int64), square, 1.0)
        exact = Fraction(cost.noise_multiplier) * Fraction(change)
        assert exact <= deviation_of(total, cost, ZERO_OUT) <= exact * (1 + Fraction(2, 2**49))
        assert Fraction(change) / Fraction(multiplier) <= lattice_noise._quotient_up(change, multiplier)
        LatticeNoise(Randomness(0)).gaussian_symmetric(total, cost, ZERO_OUT)
        assert exact <= spreads[-2]
        assert exact**2 <= 2 * Fraction(spreads[-1]) ** 2
        scores = lattice([0, 0], Sensitivity(Norm.RANGE, change, 2 * change), 2.0**-30)
        least_scores(Randomness(0).stream("test", 0), scores, ReportNoisyMax(multiplier), ZERO_OUT, 1)
        assert Fraction(change) * 2**30 / Fraction(multiplier) <= scales[-1]


@pytest.mark.parametrize("shape", [(4,), (2, 3), (3, 2), (2, 2, 2)])
def test_a_symmetric_release_of_what_is_no_square_matrix_is_refused(shape: tuple[int, ...]) -> None:
    total = lattice(np.zeros(shape, dtype=np.int64), Sensitivity.of_clipped_sum(1.0))
    with pytest.raises(InvalidParameter, match="square"):
        upper_triangle(total)


@pytest.mark.parametrize("cost", [ExponentialMechanism(1.0), ReportNoisyMax(1.0), ReportNoisyMax(1.0, "exponential")])
def test_choices_drawn_at_once_follow_the_law_of_single_ones(cost: ExponentialMechanism | ReportNoisyMax) -> None:
    scores, runs = lattice([2**36, 0, 2**35], Sensitivity.of_scores(1.0)), 4000
    noise, bits = LatticeNoise(Randomness(1)), Randomness(2).stream("once", 0)
    single = np.bincount([noise.least(scores, cost, ZERO_OUT) for _ in range(runs)], minlength=3)
    together = np.bincount(least_scores(bits, scores, cost, ZERO_OUT, runs), minlength=3)
    assert stats.chi2_contingency([single, together]).pvalue > ALARM
    assert stats.chi2_contingency([single, single[::-1]]).pvalue < ALARM


def test_queries_are_rounded_down_exactly_and_leave_room_for_noise() -> None:
    """A quotient of floats would be rounded to the nearest, or towards zero, and move by more than a sensitivity."""
    cost, unit, change = AboveThreshold(8, 1.0, 1.0), 2.0**-20, 3.0
    values = [-1, 1, -(2**52) - 1, 2**52 + 1, -(2**62) - 1, 2**62 + 1, 0, -7]
    total = LatticeSum(np.array(values), unit, Sensitivity.of_bounded_sum(change))
    found = lattice_noise.normalised_queries(total, cost, Relation.ZERO_OUT)
    exact = [
        math.floor(Fraction(value) * Fraction(unit) / Fraction(change) * 2**cost.lattice_bits) for value in values
    ]
    assert found.tolist() == [max(-(2**61), min(2**61, each)) for each in exact]
    assert {-(2**61), 2**61} <= set(found.tolist())
    assert found.dtype == np.int64


PAID = [
    (Gaussian(3.0), Norm.L2, "gaussian"),
    (NormLaplace(0.5), Norm.L2, "norm_laplace"),
    (Laplace(0.5), Norm.L1, "laplace"),
    (ExponentialMechanism(0.5), Norm.RANGE, "least"),
    (ReportNoisyMax(0.5), Norm.RANGE, "least"),
    (AboveThreshold(4, 2.0, 1.0), Norm.MAX, "first_above"),
]


@pytest.mark.parametrize(("cost", "norm", "name"), PAID)
def test_a_sum_is_released_by_the_mechanism_that_was_paid_for_and_by_no_other(cost, norm: Norm, name: str) -> None:
    total = lattice([2**36, 0, 5, -(2**37)], Sensitivity(norm, 1.0, 2.0))
    for relation in (ZERO_OUT, REPLACE_ONE):
        mechanism = getattr(LatticeNoise(Randomness(seed=3)), name)
        expected = mechanism(total, cost, relation)
        assert np.array_equal(LatticeNoise(Randomness(seed=3)).release(total, cost, relation), expected)
    others = [each for each in Norm if each is not norm]
    for wrong in (lattice([1, 2], Sensitivity(each, 1.0, 2.0)) for each in others):
        with pytest.raises(InvalidParameter, match="norm"):
            lattice_noise.require_drawable(cost, wrong.unit, wrong.sensitivity, ZERO_OUT)
        with pytest.raises(InvalidParameter, match="norm"):
            LatticeNoise().release(wrong, cost, ZERO_OUT)
    with pytest.raises(InvalidParameter, match="no mechanism"):
        LatticeNoise().release(total, PureDP(1.0), ZERO_OUT)
    with pytest.raises(InvalidParameter, match="no mechanism"):
        lattice_noise.require_drawable(PureDP(1.0), total.unit, total.sensitivity, ZERO_OUT)


def test_a_symmetric_sum_is_released_as_one() -> None:
    total = lattice(np.zeros((3, 3), dtype=np.int64), Sensitivity(Norm.L2, 1.0, 2.0))
    released = LatticeNoise(Randomness(seed=3)).release(total, Gaussian(3.0), ZERO_OUT, symmetric=True)
    assert np.array_equal(released, released.T)
    plain = LatticeNoise(Randomness(seed=3)).release(total, Gaussian(3.0), ZERO_OUT)
    assert not np.array_equal(plain, plain.T)


def fails(action, *arguments: object) -> bool:
    try:
        action(*arguments)
    except ScaleOutOfRange:
        return True
    return False


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize(
    ("cost", "norm", "change", "least"),
    [
        (Gaussian(3.0), Norm.L2, 3.0, None),
        (NormLaplace(0.75), Norm.L2, 1 / 0.75, 2.0**24),
        (Laplace(0.75), Norm.L1, 1 / 0.75, 2.0**20),
        (ReportNoisyMax(0.75), Norm.RANGE, 1 / 0.75, None),
    ],
)
def test_what_cannot_be_drawn_is_refused_before_the_charge_and_what_can_is_not(
    cost, norm, change, least, size
) -> None:
    """The scales in steps of the lattice lie around the least and the largest one that a sampler takes."""
    scales = [2.0**k for k in (18, 22, 30, 46, 47, 48, 49, 50, 51.5, 52.001, 53)]
    scales += [bound * (1 + side * 2.0**-42) for bound in (2.0**20, 2.0**24, 2.0**51, 2.0**52) for side in (-1, 1)]
    for scale in [*scales, 2.0**52 - 2, 2.0**51 - 2]:
        moved = float(Fraction(scale) * Fraction(2.0**-30) / Fraction(change))
        total = lattice([0] * size, Sensitivity(norm, moved, 2 * moved), 2.0**-30)
        refused = fails(lattice_noise.require_drawable, cost, total.unit, total.sensitivity, ZERO_OUT, size)
        assert refused or not fails(LatticeNoise(Randomness(seed=1)).release, total, cost, ZERO_OUT)
        if scale >= 2.0**52 or (least is not None and scale < least * (1 - 2.0**-30)):
            assert refused
        if (least or 32) * 1.1 <= scale <= 2.0**46:
            assert not refused


class Script:
    """Stands for a sampler: gives the noise that it was told to, and remembers what it was asked for."""

    def __init__(self, *noise: list[int]) -> None:
        self.noise, self.asked = list(noise), []

    def __call__(self, bits: object, scale: int, size: int) -> np.ndarray:
        assert hasattr(bits, "words")
        self.asked.append((scale, size))
        noise = self.noise.pop(0)
        assert len(noise) == size
        return np.array(noise, dtype=np.int64)


def test_the_least_score_is_that_of_scores_less_noise_of_the_scale_that_was_paid_for(monkeypatch) -> None:
    def least(values: list[int], *rows: list[int], relation: Relation = ZERO_OUT) -> list[int]:
        script = Script([each for row in rows for each in row])
        monkeypatch.setattr(lattice_noise, "discrete_laplace", script)
        scores = lattice(values, Sensitivity(Norm.RANGE, 3.0, 5.0), 2.0**-10)
        found = least_scores(Randomness(0).stream("test", 0), scores, cost, relation, len(rows))
        change = 3 if relation is ZERO_OUT else 5
        exact = 2**10 * change / 0.7  # rounded up to a multiple of sixteen
        assert script.asked == [(16 * math.ceil(exact / 16), len(rows) * len(values))]
        assert found.dtype == np.int64
        return found.tolist()

    cost = ReportNoisyMax(0.7, noise="laplace")
    assert least([5, 3, 9], [0, 0, 0], [3, 0, 0], [0, -7, 0], [0, 0, 7], [1, -1, 4]) == [1, 0, 0, 2, 0]
    assert least([5, 3, 9], [0, 0, 0], [3, 0, 0], relation=REPLACE_ONE) == [1, 0]
    assert least([2**60, 2**59, 2**61], [0, 0, 0]) == least([-(2**59), -(2**60), -1], [0, 0, 0]) == [1]
    assert least([2**63 - 1, 0], [-(2**57), 0]) == [1]  # int64 holds the difference
    assert least([-(2**63), 0], [2**57, 0]) == [0]
    script = Script([-1, 7, -2, 0, *[-5] * 18], [-1] * 20 + [4, 2])
    monkeypatch.setattr(lattice_noise, "discrete_laplace", script)
    assert lattice_noise._one_sided(Randomness(0).stream("test", 0), 48, 3).tolist() == [7, 0, 4]
    assert script.asked == [(48, 22), (48, 22)]
    script = Script([-9, 7, -2, 0, *[3] * 16])
    monkeypatch.setattr(lattice_noise, "discrete_laplace", script)
    scores = lattice([5, 3], Sensitivity(Norm.RANGE, 1.0, 2.0), 1.0)
    one_sided = ReportNoisyMax(0.5, noise="exponential")
    assert least_scores(Randomness(0).stream("test", 0), scores, one_sided, ZERO_OUT, 1).tolist() == [0]


def test_the_exponential_mechanism_is_drawn_at_epsilon_over_the_range_in_steps_of_the_lattice(monkeypatch) -> None:
    asked = []
    monkeypatch.setattr(lattice_noise, "select", lambda _, values, rate, runs: asked.append((rate, runs)) or values)
    scores = lattice([5, 3, 9], Sensitivity(Norm.RANGE, 3.0, 5.0), 2.0**-10)
    for relation, spread in ((ZERO_OUT, 3), (REPLACE_ONE, 5)):
        least_scores(Randomness(0).stream("test", 0), scores, ExponentialMechanism(0.75), relation, 4)
        assert asked.pop() == (Fraction(3, 4) / (spread * 2**10), 4)


def test_a_search_stops_at_the_first_query_whose_noise_lifts_it_above_that_of_the_threshold(monkeypatch) -> None:
    for noise in ("laplace", "gaussian"):
        cost = AboveThreshold(3, 40.0, 24.0, noise)
        queries = [[0, 0, 0], [6, 0, 0], [5, 3, 2], [5, 2, 0], [-9, 9, 9]]
        script = Script([each for row in queries for each in row], [1, 1, 1, -2, 2])
        monkeypatch.setattr(lattice_noise, f"discrete_{noise}", script)
        bits = Randomness(0).stream("test", 0)
        found = first_above_threshold(bits, np.array([-5, -2]), cost, 5)
        assert (found.tolist(), found.dtype) == ([-1, 0, 1, 0, 1], np.int64)
        scale_of = lattice_scale if noise == "gaussian" else laplace_scale
        unit = 2.0**-cost.lattice_bits
        assert script.asked == [(scale_of(40.0, unit), 15), (scale_of(24.0, unit), 5)]
        script.noise, script.asked = [[0, 0, 0], [-6]], []
        little = AboveThreshold(3, 40.0, 0.5, noise)
        assert first_above_threshold(bits, np.array([-7, -2]), little, 1).tolist() == [1]
        assert script.asked[1] == (scale_of(0.5, 2.0**-little.lattice_bits), 1)
        script.noise, script.asked = [[4, 2, 9, 0, 0, 0]], []
        without = AboveThreshold(3, 40.0, 0.0, noise)
        assert first_above_threshold(bits, np.array([-5, -2]), without, 2).tolist() == [1, -1]
        assert script.asked == [(scale_of(40.0, 2.0**-without.lattice_bits), 6)]
    monkeypatch.setattr(lattice_noise, "normalised_queries", lambda *_: np.array([-5, -2]))
    monkeypatch.setattr(lattice_noise, "discrete_laplace", Script([6, 9, 9], [1], [0, 0, 0], [1], [0, 2, 0], [0]))
    cost, total = AboveThreshold(3, 40.0, 24.0), lattice([0, 0], Sensitivity(Norm.MAX, 1.0, 2.0))
    assert [LatticeNoise().first_above(total, cost, ZERO_OUT) for _ in range(3)] == [0, None, 1]


def test_off_the_diagonal_symmetric_noise_has_half_the_variance_and_is_mirrored(monkeypatch) -> None:
    script = Script([1, 2, 3], [40, 50, 60])
    monkeypatch.setattr(lattice_noise, "discrete_gaussian", script)
    values = [[100, 200, 300], [7, 400, 500], [8, 9, 600]]  # the lower triangle reaches nobody
    total = lattice(values, Sensitivity(Norm.L2, 1.0, 1.5), 0.25)
    released = LatticeNoise().gaussian_symmetric(total, Gaussian(2.0**30), REPLACE_ONE)
    assert released.tolist() == [[101 / 4, 60, 350 / 4], [60, 402 / 4, 140], [350 / 4, 140, 603 / 4]]
    deviation = 2.0**30 * 1.5
    expected = [(lattice_scale(deviation, 0.25), 3), (lattice_scale(deviation / math.sqrt(2), 0.25), 3)]
    assert [size for _, size in script.asked] == [3, 3]
    assert [scale for scale, _ in script.asked] == pytest.approx([scale for scale, _ in expected], abs=16)
