"""Curves are shrunk by their own evidence: noise is straightened, and a clear bend stays."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.optimize import LinearConstraint, minimize
from sklearn.metrics import log_loss

from dpdescent import DPAdditiveClassifier, DPAdditiveRegressor, DPBoostedTreesRegressor, DPLogisticRegression
from dpdescent.estimators import fitting
from dpdescent.estimators.curves import Curves
from dpdescent.estimators.scaling import ColumnScaling
from dpdescent.estimators.shrinking import blocks_of, directed, shrink_curves

DELTA = 1e-6


def two_curves() -> Curves:
    scaling = ColumnScaling(np.array([-1.0, 0.0, 0.0]), np.array([1.0, 1000.0, 1.0]))
    return Curves.drawn(scaling, [0, 1], 8, {})


def test_blocks_cover_every_column_of_a_curve_once() -> None:
    curves = two_curves()
    covered = [column for block in blocks_of(curves) for column in range(block.start, block.stop)]
    assert covered == list(range(curves.scaling.columns, curves.columns))


def test_noise_alone_is_straightened_and_a_clear_bend_stays() -> None:
    """A block of pure noise keeps little of its variance on average; 200 draws, so the mean has a deviation of 3%."""
    curves, generator = two_curves(), np.random.default_rng(0)
    factor = 0.1 * np.eye(curves.columns)
    hats = blocks_of(curves)[-1]
    kept = []
    for _ in range(200):
        weights = 0.1 * generator.normal(size=curves.columns)
        shrunk, _ = shrink_curves(curves, weights, factor)
        np.testing.assert_array_equal(shrunk[:3], weights[:3])
        kept.append(np.sum(shrunk[hats] ** 2) / np.sum(weights[hats] ** 2))
    assert np.mean(kept) < 0.1
    weights[hats] = [3.0, -3.0, 3.0]
    shrunk, _ = shrink_curves(curves, weights, factor)
    np.testing.assert_allclose(shrunk[hats], weights[hats], rtol=0.01)


def test_a_straight_line_takes_over_what_it_shares_with_a_curve() -> None:
    """Where the noise of a line and of its curve is correlated, taking the curve back moves the line."""
    curves = two_curves()
    factor = 0.1 * np.eye(curves.columns)
    factor[1, -1] = -0.3  # what noise adds to the last hat it takes three times from the line
    weights = np.zeros(curves.columns)
    weights[1], weights[-1] = 0.7, 0.1
    shrunk, _ = shrink_curves(curves, weights, factor)
    assert shrunk[-1] < 0.1
    assert shrunk[1] == pytest.approx(0.7 + 3 * (0.1 - shrunk[-1]))


def test_nothing_changes_without_curves_or_without_a_law_of_the_noise() -> None:
    curves = two_curves()
    weights, factor = np.ones((curves.columns, 2)), 0.1 * np.eye(curves.columns)
    assert shrink_curves(curves, weights, None)[0] is weights
    straight = Curves.drawn(curves.scaling, [0, 1], 0, {})
    few = weights[:3]
    assert shrink_curves(straight, few, factor[:3])[0] is few
    assert shrink_curves(curves, weights, factor)[0].shape == weights.shape


def test_a_weak_bend_is_believed_where_other_curves_bend() -> None:
    """A position of 1.4 standard deviations is dropped among straight curves, and mostly kept beside bent ones."""
    curves = two_curves()
    factor = 0.1 * np.eye(curves.columns)
    position = next(block for block in blocks_of(curves) if block.stop - block.start == 1)
    weights = np.zeros(curves.columns)
    weights[position] = 0.14
    alone, _ = shrink_curves(curves, weights, factor)
    assert abs(alone[position]) < 1e-6
    weights[curves.scaling.columns :] = 0.3
    weights[position] = 0.14
    beside, _ = shrink_curves(curves, weights, factor)
    assert beside[position] > 0.08


@pytest.mark.parametrize("spread", [0.0, 0.5, 1.0, 4.0])
def test_the_error_that_is_told_covers_what_noise_and_shrinking_do(spread: float) -> None:
    """Two deviations of F' cover the true weights in about 95% of 300 draws, and are hardly wider than those of F."""
    curves, generator = two_curves(), np.random.default_rng(1)
    added = slice(curves.scaling.columns, curves.columns)
    factor = np.tril(generator.normal(0, 0.03, (curves.columns, curves.columns))) + 0.1 * np.eye(curves.columns)
    noise, covered, widths = np.linalg.norm(factor, axis=1), [], []
    for _ in range(300):
        truth = np.zeros(curves.columns)
        truth[added] = spread * noise[added] * generator.normal(size=truth[added].size)
        weights, told = shrink_curves(curves, truth + factor @ generator.normal(size=truth.size), factor)
        assert told is not None
        deviations = np.linalg.norm(told, axis=1)
        covered.append(np.abs(weights - truth) <= 2 * deviations)
        widths.append(deviations / noise)
    assert np.mean(covered) > 0.92
    assert np.mean(widths) < 1.1


def test_intervals_are_around_weights_that_were_not_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("curves with intervals were shrunk")

    monkeypatch.setattr(fitting, "shrink_curves", refuse)
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (5000, 2))
    y = X[:, 0] + generator.normal(0, 0.3, 5000)
    options = {"bounds": (-1, 1), "target_bounds": (-2, 2), "pieces": 2, "random_state": 0}
    DPAdditiveRegressor(3.0, DELTA, inference=True, **options).fit(X, y)
    with pytest.raises(AssertionError, match="were shrunk"):
        DPAdditiveRegressor(3.0, DELTA, **options).fit(X, y)


@pytest.mark.slow
def test_curves_of_a_rare_class_lose_little_to_a_linear_truth() -> None:
    generator = np.random.default_rng(1)
    X = np.clip(generator.normal(size=(30_000, 8)), -4, 4)
    scores = X @ [1.0, -0.8, 0.6, 0.4, 0, 0, 0, 0] + generator.logistic(size=30_000)
    y = (scores > np.quantile(scores, 0.97)).astype(int)
    gaps = []
    for seed in range(4):
        options = {"bounds": (-4, 4), "classes": (0, 1), "random_state": seed}
        fits = [kind(1.0, DELTA, **options).fit(X, y) for kind in (DPAdditiveClassifier, DPLogisticRegression)]
        gaps.append(np.subtract(*(log_loss(y, model.predict_proba(X)[:, 1]) for model in fits)))
    assert np.mean(gaps) < 0.002


def test_curves_keep_their_directions_with_the_least_change_by_the_law_of_their_noise() -> None:
    generator = np.random.default_rng(2)
    scaling = two_curves().scaling
    curves = Curves.drawn(scaling, [0, 1], 4, {}, (1, -1, 1))
    factor = 0.5 * np.tril(generator.uniform(0.1, 1, (curves.columns, curves.columns)))
    rises = np.vstack([d * np.diff(curves.bends(column), axis=0) for column, d in enumerate((1, -1, 1))])
    for _ in range(20):
        weights = generator.normal(size=curves.columns)
        found = directed(curves, weights, factor)
        assert (rises @ found).min() > -1e-12
        moved = np.linalg.solve(factor, found - weights)
        inside = LinearConstraint(rises @ factor, lb=-rises @ weights)
        oracle = minimize(lambda z: z @ z, 0 * moved, jac=lambda z: 2 * z, method="SLSQP", constraints=inside)
        assert moved @ moved <= oracle.fun * (1 + 1e-4) + 1e-9
        np.testing.assert_allclose(directed(curves, found, factor), found, atol=1e-12)
    free = directed(curves, weights, None)  # without a law of the noise, in the units of the weights
    assert (rises @ free).min() > -1e-12
    np.testing.assert_array_equal(directed(two_curves(), weights, factor), weights)


def test_an_additive_model_keeps_directions_and_says_so() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 10, (5000, 2))
    y = np.sqrt(X[:, 0]) - X[:, 1] ** 2 / 50 + generator.normal(0, 1, 5000)
    options = {"bounds": (0, 10), "target_bounds": (-5, 6), "pieces": 16, "random_state": 0}
    model = DPAdditiveRegressor(0.2, monotonic_cst={"x0": 1, "x1": -1}, **options).fit(X, y)
    grid = np.linspace(0, 10, 500)
    for column, direction in ((0, 1), (1, -1)):
        rows = np.full((500, 2), 5.0)
        rows[:, column] = grid
        assert (direction * np.diff(model._scores(rows, separate=True))).min() >= -1e-12
    assert any("monotonic_cst" in each for each in model.privacy_["assumed_public"])
    assert model.score(X, y) > 0.3


def test_curves_that_nothing_was_measured_of_stay_straight() -> None:
    """With few rows only the intercept has noise: the curves are 0, and 0 / 0 made models of NaN of them."""
    curves = two_curves()
    weights, factor = np.zeros(curves.columns + 1), np.zeros((curves.columns + 1, 1))
    weights[-1], factor[-1] = -0.4, 0.02
    shrunk, left = shrink_curves(curves, weights, factor)
    np.testing.assert_array_equal(shrunk, weights)
    np.testing.assert_array_equal(left, factor)


def test_trees_that_are_asked_for_grow_on_few_rows() -> None:
    generator = np.random.default_rng(0)
    X = (generator.random((122, 1)) > 0.5).astype(float)
    model = DPBoostedTreesRegressor(2.4, 3e-7, trees=5, random_state=0).fit(X, 2 * X[:, 0])
    assert model.n_trees_ == 5
    assert np.isfinite(model.predict(X)).all()
