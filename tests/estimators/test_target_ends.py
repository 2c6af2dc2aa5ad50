"""Ends of a target: between two rungs where the tail is heavy, never beyond what was given, and worth their price."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpdescent import DPLinearRegression, DPPoissonRegressor, Ledger
from dpdescent.estimators.measuring import Measurement
from dpdescent.estimators.target_ends import target_ends
from dpdescent.problems import Huber
from dpdescent.tables.bounds import RUNGS, column_ends, first_share, rungs, tightening_pays
from method_runs import Recording, Replaying

DELTA = 1e-6


def exactly(noise: float = 1.0) -> Any:
    """Return histograms without noise, of which it is said to have a deviation."""

    def ask(levels: Any, largest: int) -> tuple[np.ndarray, float]:
        counts = np.bincount(
            np.clip(levels, -largest, largest).astype(int).ravel() + largest, minlength=2 * largest + 1
        )
        return counts[None, :].astype(float), noise

    return ask


def tail_of(outermost: int) -> np.ndarray:
    """Return 1,000 cells at 3, 300 at 6, and some between 8 and 16."""
    return np.repeat([3.0, 6.0, 12.0], [1000, 300, outermost])[:, None]


def test_an_end_moves_through_its_rung_as_the_tail_grows() -> None:
    """It does not jump from 8 to 16 when the rung from 8 to 16 begins to be seen."""
    ends = [target_ends(exactly(10.0), tail_of(size), 1300 + size).high for size in range(120)]
    assert ends[0] == ends[20] == 8.0
    assert 0 <= np.diff(ends).min() <= np.diff(ends).max() < 0.2
    assert ends[-1] == 16.0


def test_ends_of_both_signs_mirror_each_other() -> None:
    cells = tail_of(60)
    above, below = target_ends(exactly(10.0), cells, 1360), target_ends(exactly(10.0), -cells, 1360)
    assert (below.low, below.high) == (-above.high, -above.low)


def test_given_ends_are_outer_limits_and_stay_where_little_would_change() -> None:
    cells = np.random.default_rng(0).uniform(0, 1000, (4000, 1))
    assert (target_ends(exactly(), cells, 4000, 0.0, 1000.0).high) == 1000.0
    assert (target_ends(exactly(), cells, 4000, 0.0, 1100.0).high) == 1100.0
    narrower = target_ends(exactly(), cells, 4000, 0.0, 1e6)
    assert (narrower.low < 1, narrower.high) == (True, 1024.0)
    inside = target_ends(exactly(), cells, 4000, 0.0, 300.0)
    assert (inside.low, inside.high) == (0.0, 300.0)
    assert inside.share == pytest.approx(0.7, abs=0.02)
    away = target_ends(exactly(), cells, 4000, -20.0, -10.0)
    assert (away.low, away.high, away.share) == (-20.0, -10.0, None)


def test_nothing_seen_leaves_what_was_given() -> None:
    blind = target_ends(exactly(1e6), np.ones((50, 1)), 50, 0.0, 1e5)
    assert (blind.low, blind.high, blind.share) == (0.0, 1e5, None)
    assert (target_ends(exactly(1e6), np.ones((50, 1)), 50).high) == 1.0
    zeros = target_ends(exactly(), np.zeros((500, 1)), 500)
    assert 0 == zeros.low < zeros.high <= 1


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("given", [(), (0.0, 1e9)])
def test_one_row_moves_the_histograms_of_a_target_within_their_sensitivity(given: Any, relation: str) -> None:
    y = np.random.default_rng(0).lognormal(3, 1, (600, 1))
    y[-1] = 1e300
    other = y[:-1] if relation == "zero-out" else np.vstack([y[:-1], [[-1e-300]]])

    def measure(noise: Any, target: np.ndarray) -> None:
        Measurement(Ledger(1.0, DELTA, currency="gdp", relation=relation), noise, 600).buy_target(target, *given)

    recorded = Recording()
    measure(recorded, y)
    replayed = Replaying(recorded)
    measure(replayed, other)
    assert 0.5 < max(replayed.shares) <= 1


def counts_with(highest: float | None, seed: int, **options: Any) -> tuple[DPPoissonRegressor, float]:
    generator = np.random.default_rng(7)
    X = generator.uniform(-1, 1, (6000, 3))
    y = generator.poisson(np.exp(X @ [1.5, -1.0, 0.5] + 1)).astype(float)
    bounds = None if highest is None else (0, highest)
    model = DPPoissonRegressor(0.3, DELTA, bounds=(-1, 1), target_bounds=bounds, random_state=seed, **options)
    return model.fit(X, y), model.score(X, y)


def test_generous_bounds_of_counts_are_as_good_as_none() -> None:
    """Ten thousand as the largest count made the noise 200 times as large. The margin is five deviations or more."""
    none = np.mean([counts_with(None, seed)[1] for seed in range(4)])
    for highest in (1e3, 1e4):
        fits = [counts_with(highest, seed) for seed in range(4)]
        assert np.mean([score for _, score in fits]) > none - 0.1
        assert all(model.target_bounds_[1] < 100 for model, _ in fits)
    assert counts_with(1e4, 0, tighten=False)[1] < 0


def test_the_statement_says_what_was_measured_and_how_much_is_clipped() -> None:
    model, _ = counts_with(1e4, 0)
    assert "target_bounds: narrower ones, within those that were given (measured)" in model.privacy_["assumed_public"]
    (remark,) = [each for each in model.privacy_["remarks"] if "of the labels" in each]
    assert "narrower bounds of the label were sought by noisy histograms, for 2.0% of the budget" in remark
    untouched, _ = counts_with(1e4, 0, tighten=False)
    assert untouched.target_bounds_ == (0.0, 1e4)
    assert not any("label" in each for each in untouched.privacy_["remarks"])


@pytest.mark.parametrize("options", [{"alpha": 0.1}, {"loss": Huber(1.0)}, {"tighten": False}, {"epsilon": 0.01}])
def test_bounds_stay_where_something_is_in_their_units_or_noise_hides_all(options: dict[str, Any]) -> None:
    generator = np.random.default_rng(0)
    X, y = generator.uniform(0, 1, (2000, 2)), generator.uniform(0, 1, 2000)
    given = {"epsilon": 1.0, "bounds": (0, 1), "target_bounds": (0, 1e4), "random_state": 0}
    assert DPLinearRegression(**given | options).fit(X, y).target_bounds_ == (0.0, 1e4)


def test_columns_with_honest_bounds_get_a_first_look_from_59_effective_rows_per_root_column() -> None:
    assert tightening_pays(59.0, 1)
    assert not tightening_pays(58.0, 1)
    assert tightening_pays(59.0 * 4, 16)
    assert not tightening_pays(1e9, 0)
    assert first_share(200.0, 10) == 0.02
    assert first_share(1e4, 10) is None  # 2% is what bounds get there anyway
    assert rungs(np.array([[2.0**40]]))[0, 0] < RUNGS


@pytest.mark.parametrize("true", [0.0, 10.0])
def test_few_rows_learn_a_mean_within_bounds_that_are_thousands_too_wide(true: float) -> None:
    """The noise of a mean is that of its bounds: 240 here with those that were given, 26 effective rows."""
    errors = []
    for seed in range(6):
        y = true + np.random.default_rng(seed).normal(0, 1, 1000)
        model = DPLinearRegression(0.1, DELTA, bounds=(0, 1), target_bounds=(-12e3, 12e3), random_state=seed)
        errors.append(abs(model.fit(np.zeros((1000, 1)), y).predict(np.zeros((1, 1)))[0] - true))
    assert np.median(errors) < 2


def test_noise_is_not_taken_for_numbers_of_any_size() -> None:
    """Of 2,000 ladders of noise that would hide all rows but for luck, few show numbers, and hardly any huge ones."""
    noise = np.random.default_rng(0).normal(0, 0.3 * 1000, (2000, 2 * RUNGS + 1))
    found = [column_ends(ladder, 0.3 * 1000, 1000) for ladder in noise]
    reach = np.array([0 if each is None else max(abs(each[0] - RUNGS), abs(each[1] - RUNGS)) for each in found])
    one = int(abs(rungs(np.array([[1.0]]))[0, 0]))
    assert np.mean(reach > 0) < 0.12
    assert np.mean(reach > one + 20) < 0.01
