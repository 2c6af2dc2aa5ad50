"""Poisson and Huber regression: scikit-learn's coefficients as epsilon grows, public bounds, and refusals."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import HuberRegressor, LinearRegression, PoissonRegressor
from sklearn.metrics import d2_tweedie_score
from sklearn.model_selection import cross_val_score

from dpdescent import DPHuberRegressor, DPLinearRegression, DPPoissonRegressor, InvalidParameter, Ledger
from dpdescent.errors import MissingValue, TrialsWarning, UnsupportedLoss

RELATIONS = ["zero-out", "replace-one"]


def counts(rows: int = 8000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (rows, 4))
    return X, generator.poisson(np.exp(X @ [0.7, -0.4, 0.2, 0.0] + 0.5)).astype(float)


def spoilt(rows: int = 8000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of which a tenth have a target that is far off, mostly to one side."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (rows, 4))
    y = X @ [3.0, -2.0, 1.0, 0.0] + 5 + generator.normal(0, 0.5, rows)
    return X, np.where(generator.random(rows) < 0.1, generator.uniform(0, 40, rows), y)


def poisson(**options) -> DPPoissonRegressor:
    given = {"bounds": (-1.0, 1.0), "target_bounds": (0, 12), "random_state": 0}
    return DPPoissonRegressor(**(given | options))


def huber(**options) -> DPHuberRegressor:
    given = {"bounds": (-1.0, 1.0), "target_bounds": (-10, 40), "threshold": 1.0, "random_state": 0}
    return DPHuberRegressor(**(given | options))


# As epsilon grows -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "alpha"),
    [
        ("auto", 0.0),
        ("auto", 0.02),
        ("agd", 0.0),
        ("blgd", 0.02),
        ("sgd", 0.0),
        ("adam", 0.02),
        ("objpert", 0.02),
        ("nonprivate", 0.02),
    ],
)
def test_poisson_coefficients_become_those_of_scikit_learn(method: str, alpha: float) -> None:
    """The largest count of 12 does occur, and no mean comes near it: the line beyond changes nothing."""
    X, y = counts()
    y = np.minimum(y, 12)
    other = PoissonRegressor(alpha=12 * alpha, tol=1e-8, max_iter=1000).fit(X, y)
    model = poisson(epsilon=1e5, alpha=alpha, method=method).fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=0.02)
    assert model.intercept_ == pytest.approx(other.intercept_, abs=0.02)
    np.testing.assert_allclose(model.predict(X), other.predict(X), rtol=0.05)
    assert model.score(X, y) == pytest.approx(other.score(X, y), abs=1e-3)


@pytest.mark.parametrize("relation", RELATIONS[:1])
def test_poisson_error_falls_as_epsilon_grows(relation: str) -> None:
    X, y = counts()
    y = np.minimum(y, 12)
    other = PoissonRegressor(alpha=0, tol=1e-8, max_iter=1000).fit(X, y)
    errors = []
    for epsilon in (0.1, 1.0, 1e3):
        each = [poisson(epsilon=epsilon, adjacency=relation, random_state=seed).fit(X, y).coef_ for seed in range(2)]
        errors.append(np.sqrt(np.mean((np.array(each) - other.coef_) ** 2)))
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] < 0.1
    assert errors[2] < 0.005


@pytest.mark.parametrize(
    ("method", "alpha"),
    [
        ("auto", 0.0),
        ("auto", 20.0),
        ("agd", 0.0),
        ("blgd", 20.0),
        ("sgd", 0.0),
        ("objpert", 20.0),
        ("nonprivate", 20.0),
    ],
)
def test_huber_coefficients_become_those_of_scikit_learn(method: str, alpha: float) -> None:
    """Its threshold is epsilon sigma, with the sigma it finds, and its alpha counts sigma/n times."""
    X, y = spoilt()
    other = HuberRegressor(epsilon=1.35, alpha=alpha, tol=1e-8, max_iter=1000).fit(X, y)
    threshold = 1.35 * other.scale_
    model = huber(epsilon=1e5, threshold=threshold, alpha=alpha * other.scale_ / len(y), method=method).fit(X, y)
    np.testing.assert_allclose(model.coef_, other.coef_, atol=0.05)
    assert model.intercept_ == pytest.approx(other.intercept_, abs=0.05)
    np.testing.assert_allclose(model.predict(X), other.predict(X), atol=0.1)


@pytest.mark.parametrize("relation", RELATIONS[1:])
def test_huber_error_falls_as_epsilon_grows_and_wild_targets_hardly_matter(relation: str) -> None:
    X, y = spoilt()
    other = HuberRegressor(epsilon=1.35, alpha=0, tol=1e-8, max_iter=1000).fit(X, y)
    threshold, truth = 1.35 * other.scale_, np.array([3.0, -2.0, 1.0, 0.0])
    errors = []
    for epsilon in (0.1, 1.0, 1e3):
        options = {"epsilon": epsilon, "adjacency": relation, "threshold": threshold}
        each = [huber(**options, random_state=seed).fit(X, y).coef_ for seed in range(2)]
        errors.append(np.sqrt(np.mean((np.array(each) - other.coef_) ** 2)))
    assert errors[0] > errors[1] > errors[2]
    assert errors[1] < 0.15
    assert errors[2] < 0.01
    least_squares = LinearRegression().fit(X, y)
    assert np.abs(other.coef_ - truth).max() < np.abs(least_squares.coef_ - truth).max()
    assert np.abs(huber(epsilon=10.0, threshold=threshold).fit(X, y).coef_ - truth).max() < 0.2


@pytest.mark.parametrize("method", ["majority", "nonprivate"])
def test_baselines_predict_the_mean_and_the_optimum(method: str) -> None:
    X, y = counts()
    y = np.minimum(y, 12)
    for model in (poisson(epsilon=100.0, method=method).fit(X, y), huber(epsilon=100.0, method=method).fit(X, y)):
        if method == "majority":
            assert not model.coef_.any()
            np.testing.assert_allclose(model.predict(X), y.mean(), atol=0.05)
        else:
            assert not model.privacy_["private"]


def test_a_wide_threshold_is_least_squares() -> None:
    X, y = spoilt()
    wide = huber(epsilon=1e5, threshold=1e3).fit(X, y)
    squared = LinearRegression().fit(X, y)
    np.testing.assert_allclose(wide.coef_, squared.coef_, atol=0.05)
    by_default = DPHuberRegressor(1.0, target_bounds=(-10, 40), bounds=(-1, 1), tighten=False, random_state=3).fit(
        X, y
    )
    tenth = huber(epsilon=1.0, threshold=5.0, tighten=False, random_state=3).fit(X, y)
    np.testing.assert_array_equal(by_default.coef_, tenth.coef_)


# Public bounds ---------------------------------------------------------------------------------------------------


def test_counts_outside_the_bounds_count_as_the_bounds() -> None:
    X, y = counts(2000)
    wild = y.copy()
    wild[:20], wild[20:40] = -5.0, 1e9
    clipped = np.clip(wild, 0, 12)
    np.testing.assert_array_equal(poisson().fit(X, wild).coef_, poisson().fit(X, clipped).coef_)
    assert any("target_bounds" in line for line in poisson().fit(X, y).privacy_["assumed_public"])


def test_no_target_is_predicted_outside_its_bounds() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (2000, 2))
    model = DPLinearRegression(1.0, 1e-6, bounds=(0, 1), target_bounds=(0.0, 60.0), random_state=0).fit(
        X, 60 * (X[:, 0] > 0.5)
    )
    assert (X @ model.coef_ + model.intercept_).min() < 0
    assert model.predict(X).min() == 0.0
    assert model.predict(X).max() <= 60.0


def test_no_mean_is_predicted_above_the_largest_count_or_at_zero() -> None:
    X, y = counts(2000)
    model = poisson(epsilon=10.0, tighten=False).fit(X, y)
    assert model.score(X, y) == pytest.approx(d2_tweedie_score(y, model.predict(X), power=1))
    model.coef_ = 1e4 * model.coef_
    predicted = model.predict(np.eye(4))
    assert predicted.max() == pytest.approx(12)
    assert (predicted > 0).all()


@pytest.mark.parametrize("bounds", [(0, 12), (0.0, 100.0), (1.0, 30.0)])
def test_poisson_learns_whatever_the_bound_is(bounds: tuple[float, float]) -> None:
    X, y = counts()
    model = poisson(epsilon=2.0, target_bounds=bounds).fit(X, y)
    truth = PoissonRegressor(alpha=0, tol=1e-8).fit(X, np.clip(y, *bounds))
    assert np.abs(model.coef_ - truth.coef_).max() < (0.25 if bounds[1] == 100 else 0.1)


def test_without_an_intercept_the_score_is_that_of_the_features() -> None:
    X, y = counts()
    y = np.minimum(y, 12)
    model = poisson(epsilon=1e5, fit_intercept=False).fit(X, y)
    other = PoissonRegressor(alpha=0, fit_intercept=False, tol=1e-8).fit(X, y)
    assert model.intercept_ == 0
    np.testing.assert_allclose(model.coef_, other.coef_, atol=0.02)
    with pytest.raises(InvalidParameter, match="fit_intercept=True"):
        poisson(fit_intercept=False, target_bounds=(0, 0.5)).fit(X, y)


def test_coefficients_are_in_the_units_of_the_caller() -> None:
    X, y = counts(2000)
    for make in (poisson, huber):
        plain = make().fit(X, y)
        stretched = make(bounds=(-64.0, 64.0)).fit(64 * X, y)
        np.testing.assert_array_equal(64 * stretched.coef_, plain.coef_)
    shifted = huber(target_bounds=(90, 140), tighten=False).fit(X, y + 100)
    np.testing.assert_allclose(shifted.coef_, huber(tighten=False).fit(X, y).coef_, atol=1e-9)
    assert shifted.intercept_ == pytest.approx(huber(tighten=False).fit(X, y).intercept_ + 100)


@pytest.mark.parametrize("make", [poisson, huber])
def test_same_seed_gives_the_same_bits_for_every_storage(make) -> None:
    X, y = counts(3000)
    X = np.where(np.abs(X) < 0.4, 0.0, X)
    reference = make().fit(X, y).coef_
    order = np.random.default_rng(0).permutation(len(y))
    names = pd.DataFrame(X, columns=list("abcd"))
    for other, target in (
        (sparse.csr_array(X), y),
        (np.asfortranarray(X), y),
        (names, pd.Series(y)),
        (X[order], y[order]),
    ):
        np.testing.assert_array_equal(make().fit(other, target).coef_, reference)


def test_cross_validation_and_clones_work() -> None:
    X, y = counts(4000)
    model = poisson(epsilon=5.0)
    with pytest.warns(TrialsWarning, match="each fit is a release of its own"):
        assert cross_val_score(model, X, y, cv=3).mean() > 0.1
    assert clone(huber(threshold=0.7)).threshold == 0.7


# Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (poisson(target_bounds=(-1, 5)), "must not be negative"),
        (poisson(target_bounds=(5, 5)), "low < high"),
        (poisson(target_bounds=(0, math.inf)), "finite"),
        (huber(threshold=0.0), "threshold"),
        (huber(threshold=-1.0), "threshold"),
        (huber(threshold=math.nan), "threshold"),
        (huber(threshold=1e-3), "1/2048"),
        (huber(target_bounds=3), "bounds must be"),
    ],
    ids=str,
)
def test_impossible_public_knowledge_is_refused_before_anything_is_charged(model, message: str) -> None:
    X, y = counts(200)
    account = Ledger(4.0, 1e-6, currency="gdp")
    with pytest.raises(InvalidParameter, match=message):
        model.set_params(ledger=account).fit(X, y)
    assert account.entries == ()


@pytest.mark.parametrize("make", [poisson, huber])
@pytest.mark.parametrize("method", ["opt", "dp-tr", "2opt-ls"])
def test_methods_that_need_a_third_derivative_are_refused_before_anything_is_charged(make, method: str) -> None:
    X, y = counts(200)
    account = Ledger(4.0, 1e-6, currency="gdp")
    with pytest.raises(UnsupportedLoss, match=f"'{method}' needs"):
        make(method=method, ledger=account).fit(X, y)
    assert account.entries == ()


@pytest.mark.parametrize("make", [poisson, huber])
def test_missing_targets_are_refused(make) -> None:
    X, y = counts(200)
    for cell in (math.nan, math.inf):
        spoiled = y.copy()
        spoiled[3] = cell
        with pytest.raises((MissingValue, ValueError)):
            make().fit(X, spoiled)


def test_huber_with_a_threshold_as_wide_as_the_bounds_agrees_with_least_squares_in_units() -> None:
    """The same units and the same bounds: only residuals beyond half of the width are treated differently."""
    X, y = spoilt()
    y = np.clip(y, 0, 10)
    squared = DPLinearRegression(1e5, bounds=(-1, 1), target_bounds=(0, 10), random_state=0).fit(X, y)
    robust = huber(epsilon=1e5, target_bounds=(0, 10), threshold=5.0).fit(X, y)
    np.testing.assert_allclose(robust.coef_, squared.coef_, atol=0.15)
