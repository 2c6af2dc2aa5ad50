"""The Poisson loss of bounded counts: the likelihood below the cap, a line beyond, constants that hold everywhere."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from dpdescent.curator.array_source import ArraySource
from dpdescent.errors import InvalidParameter
from dpdescent.exact import FeatureGrid, SignedSum, check_row_independence
from dpdescent.minimisers import RobustRisk, RowObjective
from dpdescent.problems import Huber, Loss, Poisson

STARTS = [2.0**-40, 1 / 20, 0.25, 1.0]
DENSE = np.linspace(-40, 40, 160_001)
SHARES = [0.0, 2.0**-20, 0.1, 0.5, 0.9, 1.0]
each_start = pytest.mark.parametrize("start", STARTS)
each_share = pytest.mark.parametrize("share", SHARES)


# The function --------------------------------------------------------------------------------------------------


@each_start
@each_share
def test_below_the_cap_it_is_the_likelihood_and_beyond_a_line(start: float, share: float) -> None:
    """In counts: H (l + u log H) is exp(x . w) - y x . w, up to what does not depend on w."""
    loss, high = Poisson(start), 17.0
    predictors = np.linspace(-6, math.log(high), 400)
    margins = predictors - math.log(high) - math.log(start)
    y = np.full(400, share)
    exact = (np.exp(predictors) - share * high * (predictors - math.log(high))) / high
    np.testing.assert_allclose(loss.values(margins, y), exact, 1e-12, 1e-12)
    cap = -loss.offset
    beyond = cap + np.array([0.5, 1.0, 7.0, 1e6])
    line = 1 + (1 - share) * (beyond - cap)
    np.testing.assert_allclose(loss.values(beyond, np.full(4, share)), line, 1e-9)
    np.testing.assert_array_equal(loss.residuals(beyond, np.full(4, share)), np.full(4, 1 - share))
    np.testing.assert_array_equal(loss.curvatures(beyond, np.full(4, share)), np.zeros(4))


@each_start
@each_share
def test_residuals_and_curvatures_are_the_derivatives(start: float, share: float) -> None:
    loss, h = Poisson(start), 1e-5
    t = np.random.default_rng(0).uniform(-12, 12, 2000) - loss.offset
    t = t[np.abs(t + loss.offset) > 1e-3]
    y = np.full(t.shape, share)
    slope = (loss.values(t + h, y) - loss.values(t - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.residuals(t, y), slope, atol=1e-9, rtol=1e-8)
    np.testing.assert_array_equal(loss.short_residuals(t, y), loss.residuals(t, y))
    bend = (loss.residuals(t + h, y) - loss.residuals(t - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.curvatures(t, y), bend, atol=1e-9, rtol=1e-8)


@each_start
def test_stated_constants_are_attained_and_never_exceeded(start: float) -> None:
    loss = Poisson(start)
    residuals = np.concatenate([loss.residuals(DENSE, np.full(DENSE.shape, share)) for share in SHARES])
    curvatures = loss.curvatures(DENSE - loss.offset, np.zeros_like(DENSE))
    assert 1 - 1e-3 < np.abs(residuals).max() <= loss.lipschitz
    assert residuals.min() == pytest.approx(-1, abs=1e-3)  # both corners, and not one
    assert residuals.max() == pytest.approx(1, abs=1e-3)
    assert loss.corners == 2
    assert 1 - 1e-3 < curvatures.max() <= loss.smoothness
    assert curvatures.min() == 0
    around = np.array([-1e-6, 1e-6]) - loss.offset
    assert abs(np.diff(loss.curvatures(around, np.zeros(2)))[0]) > 0.99  # it jumps: no third derivative
    assert math.isinf(loss.curvature_lipschitz)


@each_start
@each_share
def test_the_loss_is_convex_and_not_negative(start: float, share: float) -> None:
    loss = Poisson(start)
    generator = np.random.default_rng(3)
    a, b = generator.normal(0, 15, (2, 5000)) - loss.offset
    y = np.full(5000, share)
    ends, middle = (loss.values(a, y) + loss.values(b, y)) / 2, loss.values((a + b) / 2, y)
    assert (middle <= ends * (1 + 1e-12) + 1e-12).all()
    assert (loss.values(a, y) >= 0).all()


@each_start
@pytest.mark.parametrize("reach", [0.0, 0.5, 3.0, 50.0])
def test_the_largest_loss_is_attained_and_never_exceeded(start: float, reach: float) -> None:
    loss = Poisson(start)
    t, u = np.meshgrid(np.linspace(-reach, reach, 401), np.linspace(0, 1, 51))
    values = loss.values(t.ravel(), u.ravel())
    assert values.max() <= loss.largest(reach)
    assert values.max() >= loss.largest(reach) * (1 - 1e-9)
    assert loss.least(reach) <= values.min()


@each_start
def test_a_row_with_its_residual_and_its_label_has_one_curvature(start: float) -> None:
    loss, generator = Poisson(start), np.random.default_rng(1)
    t = generator.uniform(-12, 12, 5000) - loss.offset
    y = generator.uniform(0, 1, 5000)
    found = loss.typical_curvatures(loss.residuals(t, y), y)
    np.testing.assert_allclose(found, loss.curvatures(t, y), atol=1e-14)
    assert loss.has_typical_curvatures
    odd = loss.typical_curvatures(np.array([-9.0, 9.0, np.nan]), np.array([0.5, 0.5, 0.5]))
    assert ((odd[:2] >= 0) & (odd[:2] <= 1)).all()


def test_zero_means_the_mean_that_was_asked_for() -> None:
    for start in STARTS:
        loss = Poisson(start)
        assert loss.residuals(np.zeros(1), np.array([start]))[0] == pytest.approx(0, abs=1e-15)
        assert math.exp(loss.offset) == pytest.approx(start, rel=1e-14)


def test_the_best_constant_is_the_logarithm_of_the_mean() -> None:
    generator = np.random.default_rng(2)
    for start in STARTS[1:]:
        loss, u = Poisson(start), generator.poisson(3.0, 400) / 20
        best = loss.best_constant(np.array([u.mean()]))
        found = minimize(lambda t, u=u, loss=loss: loss.values(np.full(400, t[0]), u).mean(), np.zeros(1))
        assert best == pytest.approx(float(found.x[0]), abs=1e-4)
        for noisy in (-3.0, 0.0, 1.0, 40.0):
            assert math.isfinite(loss.best_constant(np.array([noisy])))
        assert loss.best_constant(np.array([7.0])) == pytest.approx(-loss.offset)


def test_the_value_of_a_row_depends_on_that_row_alone() -> None:
    loss = Poisson(0.3)
    generator, whole = np.random.default_rng(5), SignedSum(8.0)
    t, y = generator.normal(0, 4, 403), generator.uniform(0, 1, 403)
    for function in (loss.values, loss.residuals, loss.curvatures):
        check_row_independence(lambda t, y, function=function: whole.block(function(t, y)), t, y)


@pytest.mark.parametrize("start", [0.0, -1.0, 1.5, 2.0**-41, math.nan, math.inf])
def test_impossible_starts_are_refused(start: float) -> None:
    with pytest.raises(InvalidParameter, match="start"):
        Poisson(start)


# What minimisers rely on ---------------------------------------------------------------------------------------


def exactly(loss: Loss, margin: mpmath.mpf, label: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    """Return the loss and its residual, to fifty digits; the offset is the float that the loss uses."""
    if isinstance(loss, Huber):
        gap, h = margin - mpmath.mpf(label), mpmath.mpf(loss.threshold)
        return (gap * gap / 2 if abs(gap) <= h else h * abs(gap) - h * h / 2), max(min(gap, h), -h)
    assert isinstance(loss, Poisson)
    position = margin + mpmath.mpf(loss.offset)
    if position > 0:
        return 1 + (1 - mpmath.mpf(label)) * position, 1 - mpmath.mpf(label)
    return mpmath.exp(position) - mpmath.mpf(label) * position, mpmath.exp(position) - mpmath.mpf(label)


EXACT = [Poisson(), Poisson(2.0**-40), Poisson(1.0), Huber(1.0, 40.0), Huber(90.0), Huber(0.01)]


@pytest.mark.parametrize("loss", EXACT, ids=str)
def test_the_error_of_a_gradient_is_within_its_bound(loss: Loss) -> None:
    """Against fifty digits, for margins around the places where the loss bends and far beyond."""
    with mpmath.workdps(50):
        for seed, size in enumerate((0.5, 5.0, 60.0, 3000.0)):
            generator = np.random.default_rng(seed)
            grid = FeatureGrid(1.0, 3)
            X = grid.place(generator.uniform(-1, 1, (40, 3)))
            y = generator.uniform(loss.labels.low, loss.labels.high, 40)
            source = ArraySource(X, y, grid)
            objective = RowObjective(source, grid, loss, grid.squared_norms(X), 1.2, np.ones(3), np.zeros(3))
            w = generator.normal(0, size, 3)
            exact = [mpmath.mpf(float(v)) for v in w]
            for row, label, factor in zip(X, y, objective._factors, strict=True):
                margin = sum(mpmath.mpf(float(a)) * mpmath.mpf(float(b)) for a, b in zip(row, w, strict=True))
                _, residual = exactly(loss, margin * mpmath.mpf(float(factor)), float(label))
                exact = [
                    e + residual * mpmath.mpf(float(factor)) * mpmath.mpf(float(x))
                    for e, x in zip(exact, row, strict=True)
                ]
            for computed, bound in (
                (objective.accurate_gradient(w), objective.error_bound(40, float(np.linalg.norm(w)))),
                (
                    objective.batch_gradient(w, np.ones(40, dtype=bool)) + w,
                    objective.batch_error_bound(40, float(np.linalg.norm(w))) + 2.0**-50 * float(np.linalg.norm(w)),
                ),
            ):
                gaps = [mpmath.mpf(float(c)) - e for c, e in zip(computed, exact, strict=True)]
                moved = loss.smoothness * 40 * 1.44 * objective.placement_error(float(np.linalg.norm(w)))
                assert mpmath.sqrt(sum(gap**2 for gap in gaps)) <= bound + moved


@pytest.mark.parametrize("loss", EXACT, ids=str)
def test_the_error_of_a_loss_is_within_what_a_tilt_allows_for(loss: Loss) -> None:
    """The weights of a tilted mean are exponentials of losses: their errors enter the tolerance."""
    generator = np.random.default_rng(0)
    risk = RobustRisk(loss, 1.0, 10, 1.0, radius=1.0)
    with mpmath.workdps(50):
        for reach in (0.0, 0.1, 2.0, 70.0, 1e5):
            t = generator.uniform(-reach, reach, 300)
            y = generator.uniform(loss.labels.low, loss.labels.high, 300)
            y[:50], y[50:100] = loss.labels.low, loss.labels.high
            worst = max(
                abs(mpmath.mpf(float(value)) - exactly(loss, mpmath.mpf(float(a)), float(b))[0])
                for value, a, b in zip(loss.values(t, y), t, y, strict=True)
            )
            stated = max(loss.lipschitz, loss.largest(0.0) / 4) + loss.lipschitz * reach
            assert worst <= (2.0**-48 + 2.0**-53) * stated
    assert math.isfinite(risk.error(10, 3, 1.0, 1.0))
