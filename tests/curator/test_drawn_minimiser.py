"""The exponential mechanism for any function: its points, its exact law, what a row can change, what is charged."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpdescent import BudgetExhausted, ExponentialMechanism, InvalidParameter, Ledger, drawn_minimiser
from dpdescent.curator import LatticeNoise
from dpdescent.noise import Randomness

COST = ExponentialMechanism(2.0)


class Kept(LatticeNoise):
    """Noise that keeps the scores it was given, and draws the first point."""

    def release(self, total: Any, cost: Any, relation: Any, *, symmetric: bool = False) -> Any:
        self.scores, self.paid = total, cost
        return 0


def drawn(score: Any, noise: LatticeNoise | None = None, **options: Any) -> np.ndarray:
    ledger = options.pop("ledger", None) or Ledger(1e9, 0.0, currency="pure")
    given = {"dimension": 2, "radius": 1.5, "spread": 0.7, "points": 16} | options
    return drawn_minimiser(score, ledger, COST, noise=noise or LatticeNoise(Randomness(0)), **given)


def points_of(**options: Any) -> np.ndarray:
    seen: list[np.ndarray] = []

    def score(points: np.ndarray) -> np.ndarray:
        seen.append(points.copy())
        return np.zeros(len(points))

    drawn(score, **options)
    return np.concatenate(seen)


@pytest.mark.parametrize(("dimension", "points", "per_axis"), [(1, 2**16, 2**16), (2, 2**16, 256), (5, 2**16, 9)])
def test_points_are_the_midpoints_of_cells(dimension: int, points: int, per_axis: int) -> None:
    centre = np.linspace(1, 2, dimension)
    box = points_of(dimension=dimension, points=points, centre=centre, box=True)
    assert len(box) == per_axis**dimension
    assert len(np.unique(box, axis=0)) == len(box)
    axis = np.unique(box[:, 0])
    assert axis - centre[0] == pytest.approx(1.5 * ((2 * np.arange(per_axis) + 1) / per_axis - 1), abs=1e-12)
    ball = points_of(dimension=dimension, points=points, centre=centre)
    inside = np.linalg.norm(box - centre, axis=1) <= 1.5
    assert np.array_equal(ball, box[inside])


@pytest.mark.parametrize("options", [{"dimension": 1, "points": 5}, {}], ids=str)
def test_a_point_has_the_law_of_the_exponential_mechanism(options: dict[str, Any]) -> None:
    """Chi-squared over 700 draws, false alarm 1e-6; half and twice the epsilon are rejected."""
    places, noise = points_of(**options), LatticeNoise(Randomness(7))

    def score(points: np.ndarray) -> np.ndarray:
        return np.sin(3 * points).sum(axis=1) + (points > 0.3).sum(axis=1)

    found = np.array([drawn(score, noise, **options) for _ in range(700)])
    counts = np.array([(found == place).all(axis=1).sum() for place in places])
    assert counts.sum() == 700

    def distance(epsilon: float) -> float:
        law = np.exp(-epsilon / 0.7 * score(places))
        return float(((counts - 700 * law / law.sum()) ** 2 / (700 * law / law.sum())).sum())

    limit = stats.chi2.ppf(1 - 1e-6, len(places) - 1)
    assert distance(2.0) < limit
    assert distance(1.0) > limit
    assert distance(4.0) > limit


@pytest.mark.parametrize("error", [0.0, 0.01])
@pytest.mark.parametrize("low", [-0.7, -0.35, 0.0])
def test_neighbours_change_log_probabilities_within_epsilon(low: float, error: float) -> None:
    """Exact fractions; differences at both ends of the interval, errors at their worst, rounding and limits."""
    generator, most = np.random.default_rng(0), Fraction(0)
    for trial in range(60):
        size = (1.0, 1e6, 1e300, 1e-9)[trial % 4]
        first = generator.normal(size=16) * size
        change = generator.choice([low, 0.0, low + 0.7], 16)
        if size == 1e6:  # where a sum of floats is off by more than a unit of the scores, the error must say so
            first = np.rint(first * 2**20) / 2**20
        off = generator.choice([-error, error], (2, 16))
        known = []
        for scores in (first + off[0], first + change + off[1]):
            noise = Kept()
            drawn(lambda _, scores=scores: scores, noise, box=True, error=error)
            known.append(noise.scores)
        one, two = known
        assert (one.unit, one.sensitivity) == (two.unit, two.sensitivity)
        moved = two.values.astype(object) - one.values.astype(object)
        rate = Fraction(COST.epsilon) * Fraction(one.unit) / Fraction(one.sensitivity.zero_out)
        loss = rate * (int(max(moved)) - int(min(moved)))
        assert loss <= Fraction(COST.epsilon)
        most = max(most, loss)
    assert most > Fraction(COST.epsilon) * 98 / 100


def test_scores_that_are_no_numbers_count_as_the_largest() -> None:
    noise = Kept()
    bad = np.array([math.nan, math.inf, -math.inf, 1e308, -1e308, *range(11)], dtype=np.float64)
    drawn(lambda _: bad, noise, box=True)
    values = noise.scores.values
    assert values[0] == values[1] == values[3] == values.max() == 2**60
    assert values[2] == values[4] == values.min() == -(2**60)
    assert noise.paid == COST


def test_the_charge_comes_before_the_function_and_refusals_before_the_charge() -> None:
    calls: list[int] = []
    ledger = Ledger(3.0, 0.0, currency="pure")

    def score(points: np.ndarray) -> np.ndarray:
        assert len(ledger.entries) == 1
        calls.append(len(points))
        return points[:, 0]

    for wrong in (
        {"dimension": 0},
        {"dimension": 11},
        {"dimension": 10**18},
        {"points": 2**16 + 1},
        {"points": 8},
        {"radius": 0.0},
        {"radius": math.inf},
        {"spread": 0.0},
        {"spread": math.nan},
        {"error": -1.0},
        {"error": math.inf},
        {"centre": np.zeros(3)},
        {"centre": np.array([0.0, math.nan])},
    ):
        with pytest.raises(InvalidParameter):
            drawn(score, ledger=ledger, **wrong)
    assert ledger.entries == ()
    point = drawn(score, ledger=ledger, points=2**14, box=True)
    assert calls == [2**12] * 4
    assert point.shape == (2,)
    assert [entry.cost for entry in ledger.entries] == [COST]
    with pytest.raises(BudgetExhausted):
        drawn(score, ledger=ledger)
    assert len(calls) == 4
    with pytest.raises(InvalidParameter, match="one number for each point"):
        drawn(lambda points: points, box=True)


def test_a_second_draw_in_a_smaller_ball_is_finer() -> None:
    """The minimum of a function with two valleys, of rows in a ball."""
    rows = np.random.default_rng(0).normal([0.6, -0.3], 0.1, (500, 2))
    ledger = Ledger(2.0, 0.0, currency="pure")

    def score(points: np.ndarray) -> np.ndarray:
        apart = ((points[:, None] - rows[None]) ** 2).sum(axis=2)
        return (1 - np.exp(-apart / 0.02)).sum(axis=1)

    given = {"dimension": 2, "spread": 1.0, "noise": LatticeNoise(Randomness(1))}
    cost = ExponentialMechanism(1.0)
    first = drawn_minimiser(score, ledger, cost, radius=1.0, points=1024, **given)
    second = drawn_minimiser(score, ledger, cost, radius=0.1, centre=first, points=1024, **given)
    assert np.linalg.norm(first - [0.6, -0.3]) < 0.12
    assert np.linalg.norm(second - [0.6, -0.3]) < 0.06
    assert ledger.remaining == pytest.approx(0.0, abs=1e-9)
