"""Every pass of permuted descent visits the rows in an order of its own: the mixture that is charged assumes it."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from dpdescent import Ledger
from dpdescent.accounting import Gaussian, ShuffledDescent
from dpdescent.noise import Randomness
from dpdescent.problems import Logistic
from dpdescent.queries import PermutedDescent
from dpdescent.queries.descents import _permutation
from rival_tables import Recorder, curator_of

PASSES, RUNS, STEP = 3, 400, 1.0
ROWS, LABELS = np.array([[1.0], [0.25]]), np.array([1.0, -1.0])


def descent(orders: tuple[tuple[int, ...], ...]) -> float:
    """Return where logistic descent arrives that takes one row at a time, in the order of each pass, and averages."""
    point = 0.0
    for order in orders:
        points = []
        for row in order:
            margin = LABELS[row] * ROWS[row, 0] * point
            point += STEP * LABELS[row] * ROWS[row, 0] / (1 + math.exp(margin))
            points.append(point)
        point = float(np.mean(points))
    return point


def test_the_orders_of_all_passes_are_independent_and_uniform() -> None:
    """Two rows, three passes, 400 runs: all eight sequences of orders occur, and equally often.

    The false-alarm rate over seeds is 1e-6; the seeds are fixed. One order for all passes gives two of the eight.
    """
    sequences = list(itertools.product(itertools.permutations(range(2)), repeat=PASSES))
    expected = np.array([descent(orders) for orders in sequences])
    apart = np.abs(np.subtract.outer(expected, expected) + np.eye(expected.size)).min()
    assert apart > 1e-4
    found = []
    for seed in range(RUNS):
        ledger = Ledger(50.0, 1e-6, currency="gdp")
        curator = curator_of(ROWS, LABELS, Logistic(), ledger, intercept=False)
        recorder = Recorder()
        recorder.randomness = Randomness(seed)  # of the permutations; the point is recorded without noise
        curator._noise = recorder
        query = PermutedDescent(Logistic(), 1.0, 1, STEP, ShuffledDescent(2.0, PASSES, len(ROWS)))
        curator.answer(query)
        point = recorder.sums[-1].to_float()[0]
        found.append(int(np.abs(expected - point).argmin()))
        assert abs(expected[found[-1]] - point) < 1e-2 * apart
    counts = np.bincount(found, minlength=expected.size)
    assert stats.chisquare(counts).pvalue > 1e-6


class Scripted:
    """Bits that give prepared words first, and ordinary ones afterwards."""

    def __init__(self, *words: list[int]) -> None:
        self.left = [np.array(each, dtype=np.uint64) for each in words]

    def words(self, count: int) -> np.ndarray:
        return self.left.pop(0) if self.left else Randomness(1).stream("permutation", 0).words(count)


def test_keys_that_tie_in_both_words_are_drawn_again_and_others_are_not() -> None:
    """Tied keys would be ordered by their places, which are those of the rows."""
    tied = Scripted([5, 5, 1], [7, 7, 2], [1, 1, 0], [3, 2, 9])
    np.testing.assert_array_equal(_permutation(tied, 3), [1, 0, 2])
    assert not tied.left
    half = Scripted([5, 5, 1], [7, 2, 7], [0, 0, 0], [0, 0, 0])
    np.testing.assert_array_equal(_permutation(half, 3), [2, 0, 1])
    assert len(half.left) == 2


@pytest.mark.parametrize("multiplier", [1e-300, 1e-200, 1e-155, 1e160, 1e300])
def test_noise_of_any_size_has_a_price_that_is_not_below_that_of_its_smallest_shift(multiplier: float) -> None:
    """The smallest shift is 1/m of the largest in every pass, which is then a Gaussian mechanism."""
    cost = ShuffledDescent(multiplier, 2, 8)
    for order in (1.5, 64.0):
        assert Gaussian(8 * min(multiplier, 1e300 / 8)).rdp(order) <= cost.rdp(order)
        assert cost.rdp(order) == math.inf or multiplier > 1
        assert cost.rdp(order) <= 1e-14 or multiplier < 1
