"""Laws of the exponential mechanism. Statistical tests alarm at p < 1e-6 and use fixed seeds."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from dpdescent.errors import InvalidParameter
from dpdescent.noise import MAXIMUM_SCORES, SeededBits, SystemBits, exp_neg, select

ALARM = 1e-6
KNOWN_CHOICES = [0, 1, 1, 0, 3, 1, 2, 1, 0, 0, 2, 1]
EXTREMES = [2**63 - 1, -(2**63), 2**62, -(2**62), -(2**63) + 3, 0]


def source(seed: int = 0) -> SeededBits:
    return SeededBits(np.random.SeedSequence(seed))


class CountingBits:
    """Seeded bits that count how many decisions asked for further digits."""

    def __init__(self, seed: int) -> None:
        self._bits, self.refined = source(seed), 0

    def words(self, count: int) -> NDArray[np.uint64]:
        return self._bits.words(count)

    def integer(self, bits: int) -> int:
        self.refined += 1
        return self._bits.integer(bits)


class FixedWord:
    """One word, then refinements of zeros or of ones."""

    def __init__(self, word: int, ones: bool) -> None:
        self._word, self._ones, self.refined = word, ones, 0

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.full(count, self._word, np.uint64)

    def integer(self, bits: int) -> int:
        self.refined += 1
        return 2**bits - 1 if self._ones else 0


def test_twelve_seeded_choices_have_their_known_values() -> None:
    bits = source()
    assert [select(bits, [5, 0, 3, 9], 1 / 4) for _ in range(12)] == KNOWN_CHOICES


def test_one_call_for_many_choices_equals_many_calls() -> None:
    assert select(source(), np.array([5, 0, 3, 9]), Fraction(1, 4), 12).tolist() == KNOWN_CHOICES


@pytest.mark.parametrize("count", [1, 2, 7, 300])
@pytest.mark.parametrize("rate", [1 / 4, 0.1, Fraction(1, 3), 30.0])
def test_slow_path_equals_fast_path_on_fixed_bits(count: int, rate: float | Fraction) -> None:
    scores = np.random.default_rng(count).integers(0, 60, count)
    fast = select(source(1), scores, rate, 2000)
    slow = select(CountingBits(1), scores, rate, 2000, force_exact=True)
    assert np.array_equal(fast, slow)


def test_ordinary_choices_never_need_the_slow_path() -> None:
    """Expected number of slow decisions: 10^5 * 2 * 20 * (80 + 2**13) * 2**-53, below 4e-6."""
    bits = CountingBits(2)
    select(bits, np.arange(20), 0.3, 10**5)
    assert bits.refined == 0


def test_a_draw_on_the_end_of_a_cell_is_settled_by_further_bits() -> None:
    """Two equal scores: the end lies at exactly one half."""
    for word, ones, expected in ((2**63, False, 1), (2**63 - 1, True, 0)):
        bits = FixedWord(word, ones)
        assert select(bits, [4, 4], 1.0) == expected
        assert bits.refined == 1


def test_a_draw_within_the_certified_error_of_an_irrational_end_is_settled_exactly() -> None:
    one = 1 << 256
    end = (one * one // (one + exp_neg(1, 1))) >> (256 - 53)
    for digits, ones, expected in ((end - 1, True, 0), (end, False, 0), (end, True, 1), (end + 1, False, 1)):
        bits = FixedWord(digits << 11, ones)
        assert select(bits, [0, 1], 1) == expected
        assert bits.refined == 1


def test_choices_follow_the_law_and_not_one_of_a_rate_one_percent_off() -> None:
    """Chi-square on 10^6 choices among 30 scores. False alarm: 1e-6 with fresh bits."""
    scores = np.random.default_rng(3).integers(0, 200, 30)
    rate = Fraction(1, 30)
    counts = np.bincount(select(source(4), scores, rate, 10**6), minlength=30)

    def p_value(wrong: float) -> float:
        weights = np.exp(-float(rate) * wrong * scores)
        return float(stats.chisquare(counts, 10**6 * weights / weights.sum()).pvalue)

    assert p_value(1.0) > ALARM
    assert p_value(0.99) < ALARM
    assert p_value(1.01) < ALARM


def test_slow_path_choices_follow_the_law() -> None:
    """Chi-square on 10^4 choices decided by integers alone. False alarm: 1e-6. A rate 20 % off fails."""
    scores = np.arange(12) * 7
    counts = np.bincount(select(source(5), scores, 0.03, 10**4, force_exact=True), minlength=12)

    def p_value(rate: float) -> float:
        weights = np.exp(-rate * scores)
        return float(stats.chisquare(counts, 10**4 * weights / weights.sum()).pvalue)

    assert p_value(0.03) > ALARM
    assert p_value(0.036) < ALARM


def test_adding_a_constant_to_all_scores_changes_nothing() -> None:
    scores = np.array([5, 0, 3, 9])
    for shift in (2**62, -(2**62), -(2**63), 2**63 - 10):
        assert select(source(), scores + shift, 0.25, 12).tolist() == KNOWN_CHOICES


@pytest.mark.parametrize("force_exact", [False, True])
def test_extreme_scores_do_not_wrap_around(force_exact: bool) -> None:
    """The least score wins although its distance to the largest one is 2**64 - 1."""
    chosen = select(source(6), EXTREMES, 2.0, 500, force_exact=force_exact)
    assert set(chosen.tolist()) == {1, 4}
    assert 450 < int((chosen == 1).sum()) < 500


def test_a_small_rate_resolves_extreme_scores() -> None:
    """At rate 2**-63 the spread 2**64 - 1 costs a factor exp(-2). Chi-square on 10^6, false alarm 1e-6."""
    counts = np.bincount(select(source(7), EXTREMES, 2.0**-63, 10**6), minlength=6)
    weights = np.exp(-np.array([float(Fraction(s + 2**63, 2**63)) for s in EXTREMES]))
    assert stats.chisquare(counts, 10**6 * weights / weights.sum()).pvalue > ALARM
    assert stats.chisquare(counts, np.full(6, 10**6 / 6)).pvalue < ALARM


@pytest.mark.parametrize("rate", [Fraction(10**400), 1e308, 5e-324, Fraction(1, 10**400)])
@pytest.mark.parametrize("force_exact", [False, True])
def test_rates_beyond_floating_point_are_taken_as_they_are(rate: float | Fraction, force_exact: bool) -> None:
    chosen = set(select(source(8), [1, 0, 1], rate, 200, force_exact=force_exact).tolist())
    assert chosen == ({1} if rate > 1 else {0, 1, 2})


def test_one_score_is_always_chosen_and_no_choices_are_possible() -> None:
    assert select(SystemBits(), [2**63 - 1], 1.0) == 0
    assert select(SystemBits(), [3, 4], 1.0, 0).shape == (0,)


def test_the_largest_number_of_scores_is_accepted_without_the_slow_path() -> None:
    scores = np.zeros(MAXIMUM_SCORES, np.int64)
    bits = CountingBits(9)
    chosen = select(bits, scores, 1.0, 5000)
    assert bits.refined == 0
    assert stats.kstest(chosen / MAXIMUM_SCORES, stats.uniform.cdf).pvalue > ALARM
    with pytest.raises(InvalidParameter, match="2\\*\\*16"):
        select(source(9), np.zeros(MAXIMUM_SCORES + 1, np.int64), 1.0)


@pytest.mark.parametrize(
    "rate", [0, 0.0, -1.0, float("nan"), float("inf"), -float("inf"), Fraction(-1, 2), None, "x"]
)
def test_rates_that_are_not_positive_numbers_are_refused(rate: object) -> None:
    with pytest.raises(InvalidParameter, match="rate"):
        select(source(), [0, 1], rate)  # type: ignore[call-overload]


@pytest.mark.parametrize(
    "scores",
    [[], [0.5, 1.0], [1.0, 2.0], [[1, 2]], [2**63, 0], [2**64, 0], [float("nan")], ["a"], 3, [[1], [1, 2]]],
)
def test_scores_that_are_no_vector_of_int64_are_refused(scores: object) -> None:
    with pytest.raises(InvalidParameter, match="scores"):
        select(source(), scores, 1.0)  # type: ignore[call-overload]


@pytest.mark.parametrize("size", [-1, 1.5, "2"])
def test_sizes_that_are_no_counts_are_refused(size: object) -> None:
    with pytest.raises(InvalidParameter, match="size"):
        select(source(), [0, 1], 1.0, size)  # type: ignore[call-overload]
