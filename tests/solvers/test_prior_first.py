"""Regressions start at the released mean, and their gradients are clipped by the size of residuals."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from dpdescent import DPHuberRegressor, DPLinearRegression, DPPoissonRegressor

DELTA = 1e-6


@pytest.mark.parametrize("threshold", [5e3, 1e4, 3e4])
def test_a_robust_regression_with_few_rows_is_near_the_mean(threshold: float) -> None:
    """It used to return the middle of the bounds less the threshold, 20,000 to 45,000.

    The noise of the mean has a deviation of 100,000/27, 3,700, and the test fails beyond four of them.
    """
    generator = np.random.default_rng(0)
    y = generator.lognormal(9, 0.93, 1000)
    y *= 12_501 / y.mean()
    X = generator.uniform(0, 1, (1000, 5))
    options = {"bounds": (0, 1), "target_bounds": (0, 1e5), "threshold": threshold, "random_state": 0}
    model = DPHuberRegressor(0.1, DELTA, **options).fit(X, y)
    assert abs(model.predict(X).mean() - 12_501) < 15_000
    assert not model.coef_.any()
    assert model.privacy_["asked"] == {"column histograms": 1, "label sum": 1}
    assert any("only the intercept was learnt" in each for each in model.privacy_["remarks"])


def errors(kind: Any, target: tuple[float, float]) -> float:
    """Return the root mean square error of the coefficients over four tables of 5,000 rows."""
    weights = np.array([0.4, -0.3, 0.2, 0.0, 0.1])
    found = []
    for seed in range(4):
        generator = np.random.default_rng(seed)
        X = np.clip(generator.normal(size=(5000, 5)), -4, 4)
        scores = X @ weights + 0.5
        y = generator.poisson(np.exp(scores)) if kind is DPPoissonRegressor else generator.normal(scores, 0.5)
        options = {"bounds": (-4, 4), "target_bounds": target, "random_state": seed}
        found.append(np.mean((kind(1.0, DELTA, **options).fit(X, y).coef_ - weights) ** 2))
    return float(np.sqrt(np.mean(found)))


@pytest.mark.parametrize(("kind", "target"), [(DPLinearRegression, (-10, 10)), (DPPoissonRegressor, (0, 50))])
def test_errors_follow_the_residuals_and_not_the_range_of_the_target(kind: Any, target: tuple[float, float]) -> None:
    """Before, with gradients clipped by the range, errors were above .03 and .07; sampling alone gives .007."""
    assert errors(kind, target) < 0.02


def test_a_mean_that_noise_hides_is_no_extreme_one() -> None:
    """A logarithm of nothing would start so low that no step leads back."""
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (3000, 2))
    y = generator.poisson(np.exp(X @ [0.5, 0.0])).astype(float)
    options = {"bounds": (-1, 1), "target_bounds": (0, 1000), "tighten": False}
    for seed in range(6):
        model = DPPoissonRegressor(0.1, DELTA, random_state=seed, **options).fit(X, y)
        assert model.predict(X).min() > 0.1


def test_residuals_are_measured_twice_and_the_mean_once_before_the_gradients() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (3000, 3))
    model = DPLinearRegression(1.0, DELTA, bounds=(-1, 1), target_bounds=(-4, 4), tighten=False, random_state=0)
    asked = model.fit(X, X @ [1.0, -1.0, 0.5]).privacy_
    assert (asked["asked"]["label sum"], asked["asked"]["residual scale"]) == (1, 2)
    assert asked["spent_on"]["residual scale"] == pytest.approx(0.02)
    without = DPLinearRegression(1.0, DELTA, fit_intercept=False, bounds=(-1, 1), target_bounds=(-4, 4))
    assert "label sum" not in without.fit(X, X @ [1.0, -1.0, 0.5]).privacy_["asked"]


def test_a_regression_without_signal_is_hardly_worse_than_the_mean() -> None:
    """Weights are shrunk by as much as noise explains. Four standard errors of ten runs are about 0.02."""
    generator = np.random.default_rng(1)
    scores = []
    for seed in range(10):
        X, y = generator.uniform(-1, 1, (4000, 20)), generator.normal(0, 1, 4000)
        options = {"bounds": (-1, 1), "target_bounds": (-4, 4), "random_state": seed}
        model = DPLinearRegression(0.3, DELTA, **options).fit(X, y)
        fresh = generator.uniform(-1, 1, (4000, 20))
        scores.append(np.var(model.predict(fresh)))
    assert np.mean(scores) < 0.03
