"""Every pass of permuted descent visits the rows in an order of its own: the mixture that is charged assumes it."""

from __future__ import annotations

import itertools
import math

import numpy as np
from scipy import stats

from dpdescent import Ledger
from dpdescent.accounting.shuffled import ShuffledDescent
from dpdescent.curator import PermutedDescent
from dpdescent.noise import Randomness
from dpdescent.problems import Logistic
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
        question = PermutedDescent(Logistic(), 1.0, 1, STEP, ShuffledDescent(2.0, PASSES, len(ROWS)))
        curator.answer(question)
        point = recorder.sums[-1].to_float()[0]
        found.append(int(np.abs(expected - point).argmin()))
        assert abs(expected[found[-1]] - point) < 1e-2 * apart
    counts = np.bincount(found, minlength=expected.size)
    assert stats.chisquare(counts).pvalue > 1e-6
