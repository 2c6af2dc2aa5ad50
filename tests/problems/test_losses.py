"""Losses: derivatives agree with differences, stated constants are true suprema, and no margin is too extreme."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdescent.errors import InvalidParameter
from dpdescent.problems import Hinge, HuberisedHinge, Logistic, Loss, Multinomial, Sigmoid, Squared

SCALAR = [Logistic(), Sigmoid(), Hinge(), HuberisedHinge(), HuberisedHinge(0.1), HuberisedHinge(2.0), Squared()]
DENSE = np.linspace(-12, 12, 200_001)
CLASSES = [2, 3, 7]


def kinks(loss: Loss) -> list[float]:
    """Return the values of y t at which the loss or its derivative has a kink."""
    if isinstance(loss, HuberisedHinge):
        return [1 - loss.half_width, 1 + loss.half_width]
    return [1.0] if isinstance(loss, Hinge) else []


def smooth_margins(loss: Loss, label: float, gap: float = 1e-3) -> np.ndarray:
    margins = np.random.default_rng(0).uniform(-8, 8, 2000)
    return margins[np.all([np.abs(label * margins - kink) > gap for kink in [*kinks(loss), 99.0]], axis=0)]


@pytest.mark.parametrize("label", [-1.0, 1.0])
@pytest.mark.parametrize("loss", SCALAR, ids=str)
def test_residuals_and_curvatures_are_the_derivatives(loss: Loss, label: float) -> None:
    t, h = smooth_margins(loss, label), 1e-5
    y = np.full(t.shape, label)
    slope = (loss.values(t + h, y) - loss.values(t - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.residuals(t, y), slope, atol=1e-9, rtol=1e-8)
    np.testing.assert_allclose(loss.short_residuals(t, y), loss.residuals(t, y), atol=2.0**-26, rtol=0)
    bend = (loss.residuals(t + h, y) - loss.residuals(t - h, y)) / (2 * h)
    np.testing.assert_allclose(loss.curvatures(t, y), bend, atol=1e-9, rtol=1e-8)
    along = np.random.default_rng(1).normal(size=t.shape)
    np.testing.assert_array_equal(loss.curvature_products(t, y, along), loss.curvatures(t, y) * along)


@pytest.mark.parametrize("classes", CLASSES)
def test_multinomial_derivatives_are_those_of_its_values(classes: int) -> None:
    generator = np.random.default_rng(classes)
    loss, h = Multinomial(classes), 1e-5
    t, y = generator.normal(0, 3, (300, classes)), generator.integers(0, classes, 300).astype(float)
    for along in generator.normal(size=(5, 300, classes)):
        slope = (loss.values(t + h * along, y) - loss.values(t - h * along, y)) / (2 * h)
        np.testing.assert_allclose((loss.residuals(t, y) * along).sum(axis=1), slope, atol=1e-8)
        bend = (loss.residuals(t + h * along, y) - loss.residuals(t - h * along, y)) / (2 * h)
        np.testing.assert_allclose(loss.curvature_products(t, y, along), bend, atol=1e-8)
    with pytest.raises(InvalidParameter, match="curvature_products"):
        loss.curvatures(t, y)


@pytest.mark.parametrize("loss", SCALAR, ids=str)
def test_stated_constants_are_attained_and_never_exceeded(loss: Loss) -> None:
    """Each finite constant is the largest value on a dense grid, to one part in a thousand."""
    y = np.ones_like(DENSE)
    third = np.abs(np.diff(loss.curvatures(DENSE, y)) / np.diff(DENSE))
    found = {
        "lipschitz": np.abs(loss.residuals(DENSE, y)).max(),
        "smoothness": np.abs(loss.curvatures(DENSE, y)).max(),
        "curvature_lipschitz": third.max(),
    }
    for name, largest in found.items():
        stated = getattr(loss, name)
        if math.isfinite(stated):
            assert largest <= stated * (1 + 1e-9) + 1e-9, name
            assert largest >= stated * (1 - 1e-3), name


@pytest.mark.parametrize("loss", [Hinge(), HuberisedHinge(0.3), Squared()], ids=str)
def test_infinite_constants_are_those_without_a_bound(loss: Loss) -> None:
    step = 1e-6
    for kink in kinks(loss):
        around = np.array([kink - step, kink + step])
        jump_of = loss.residuals if math.isinf(loss.smoothness) else loss.curvatures
        assert abs(np.diff(jump_of(around, np.ones(2)))[0]) / step > 1e5
    if math.isinf(loss.lipschitz):
        assert loss.residuals(np.array([1e6]), np.ones(1))[0] > 9e5


@pytest.mark.parametrize("classes", CLASSES)
def test_multinomial_constants_are_suprema(classes: int) -> None:
    """First, second and third derivatives along unit vectors; the worst case is two classes at odds."""
    generator = np.random.default_rng(classes)
    loss = Multinomial(classes)
    worst = np.zeros(classes)
    worst[:2] = math.sqrt(0.5), -math.sqrt(0.5)
    along = np.vstack([generator.normal(size=(20_000, classes)), np.tile(worst, (4001, 1))])
    along /= np.linalg.norm(along, axis=1)[:, None]
    t = np.vstack([generator.normal(0, 3, (20_000, classes)), np.linspace(-10, 10, 4001)[:, None] * worst])
    t[20_000:, 2:] = -60  # the other classes are out of the query
    y = np.zeros(len(t))
    slopes = np.linalg.norm(loss.residuals(t, y), axis=1)
    assert math.sqrt(2) * (1 - 1e-3) < slopes.max() <= loss.lipschitz * (1 + 1e-12)
    bends = np.linalg.norm(loss.curvature_products(t, y, along), axis=1)
    assert loss.smoothness * (1 - 1e-3) < bends.max() <= loss.smoothness * (1 + 1e-12)
    h = 1e-4
    moved = loss.curvature_products(t + h * along, y, along) - loss.curvature_products(t - h * along, y, along)
    thirds = np.linalg.norm(moved, axis=1) / (2 * h)
    assert loss.curvature_lipschitz * (1 - 1e-3) < thirds.max() <= loss.curvature_lipschitz * (1 + 1e-6)


@pytest.mark.parametrize("classes", CLASSES)
def test_multinomial_curvature_is_within_its_smoothness_in_the_frobenius_norm(classes: int) -> None:
    loss, generator = Multinomial(classes), np.random.default_rng(0)
    t = generator.normal(0, 4, (5000, classes))
    t[0, :2], t[0, 2:] = 0, -60
    columns = [loss.curvature_products(t, np.zeros(5000), np.tile(unit, (5000, 1))) for unit in np.eye(classes)]
    norms = np.sqrt(sum((column**2).sum(axis=1) for column in columns))
    assert loss.smoothness * (1 - 1e-6) < norms.max() <= loss.smoothness * (1 + 1e-12)


def test_two_multinomial_classes_are_logistic_in_the_difference_of_margins() -> None:
    generator = np.random.default_rng(0)
    t, index = generator.normal(0, 20, (500, 2)), generator.integers(0, 2, 500)
    difference, sign = t[:, 1] - t[:, 0], np.where(index == 1, 1.0, -1.0)
    two, one = Multinomial(2), Logistic()
    np.testing.assert_allclose(two.values(t, index * 1.0), one.values(difference, sign), rtol=1e-12, atol=1e-14)
    residuals = one.residuals(difference, sign)
    np.testing.assert_allclose(two.residuals(t, index * 1.0), np.column_stack([-residuals, residuals]), atol=1e-14)
    along = generator.normal(size=t.shape)
    bends = one.curvatures(difference, sign) * (along[:, 1] - along[:, 0])
    np.testing.assert_allclose(
        two.curvature_products(t, index * 1.0, along), np.column_stack([-bends, bends]), atol=1e-13
    )


@pytest.mark.parametrize("loss", [*SCALAR, *map(Multinomial, CLASSES)], ids=str)
def test_losses_are_convex_and_not_negative(loss: Loss) -> None:
    generator = np.random.default_rng(3)
    shape = (4000,) if loss.outputs == 1 else (4000, loss.outputs)
    y = generator.integers(0, 2, 4000) * (1.0 if loss.outputs > 1 else 2.0) - (loss.outputs == 1)
    a, b = generator.normal(0, 5, (2, *shape))
    ends, middle = (loss.values(a, y) + loss.values(b, y)) / 2, loss.values((a + b) / 2, y)
    if isinstance(loss, Sigmoid):
        assert not loss.convex
        assert (ends < middle - 0.1).any()
        assert (ends.min() >= 0) & (ends.max() <= 1)
        return
    assert loss.convex
    assert (middle <= ends * (1 + 1e-12) + 1e-12).all()
    assert (loss.values(a, y) >= 0).all()


@pytest.mark.parametrize("loss", SCALAR, ids=str)
def test_extreme_margins_give_the_limits(loss: Loss) -> None:
    edges = [z + s for z in [0.0, *kinks(loss)] for s in (-1e-15, 0.0, 1e-15)]
    t = np.array([-1e6, 1e6, -1e150, 1e150, -700.0, 700.0, *edges])
    y = np.ones_like(t)
    for label in (y, -y):
        for function in (loss.values, loss.residuals, loss.curvatures):
            assert np.isfinite(function(t, label)).all()
    if not isinstance(loss, Squared):
        far = 1.0 if isinstance(loss, Sigmoid) else 1e6 + (not isinstance(loss, Logistic))
        np.testing.assert_allclose(loss.values(t[:2], y[:2]), [far, 0], 1e-12, 1e-300)
        np.testing.assert_allclose(
            loss.residuals(t[:2], y[:2]), [0 if isinstance(loss, Sigmoid) else -1, 0], atol=1e-300
        )


def test_logistic_curvature_keeps_its_digits_in_both_tails() -> None:
    t = np.array([5.0, 30.0, 40.0, 300.0])
    for margins in (t, -t):
        np.testing.assert_allclose(Logistic().curvatures(margins, np.ones(4)), np.exp(-t) / (1 + np.exp(-t)) ** 2)


@pytest.mark.parametrize("classes", CLASSES)
def test_extreme_multinomial_margins_give_the_limits(classes: int) -> None:
    loss = Multinomial(classes)
    t = np.zeros((3, classes))
    t[1, 0], t[2, 0] = 1e6, -1e6
    y = np.zeros(3)
    others = math.log(classes - 1)
    np.testing.assert_allclose(loss.values(t, y), [math.log(classes), 0, 1e6 + others], atol=1e-300, rtol=1e-12)
    expected = np.full((3, classes), 1 / classes)
    expected[1], expected[2] = np.eye(classes)[0], (1 - np.eye(classes)[0]) / (classes - 1)
    expected[:, 0] -= 1
    np.testing.assert_allclose(loss.residuals(t, y), expected, atol=1e-12)


@pytest.mark.parametrize("loss", [*SCALAR, Multinomial(5)], ids=str)
def test_a_rows_value_does_not_depend_on_its_neighbours_or_on_memory_layout(loss: Loss) -> None:
    generator = np.random.default_rng(9)
    t = generator.normal(0, 4, (203,) if loss.outputs == 1 else (203, loss.outputs))
    y = np.sign(generator.normal(size=203)) if loss.outputs == 1 else generator.integers(0, 5, 203) * 1.0
    for function in (loss.values, loss.residuals):
        whole = function(t, y)
        np.testing.assert_array_equal(function(np.asfortranarray(t), y), whole)
        np.testing.assert_array_equal(function(t[::-1], y[::-1])[::-1], whole)
        np.testing.assert_array_equal(
            np.concatenate([function(t[i : i + 1], y[i : i + 1]) for i in range(203)]), whole
        )


def test_labels_outside_the_classes_raise_nothing() -> None:
    loss, t = Multinomial(3), np.zeros((5, 3))
    with np.errstate(invalid="ignore"):
        for function in (loss.values, loss.residuals):
            assert np.isfinite(function(t, np.array([-4.0, 3.0, np.nan, np.inf, 1e300]))).all()


def test_constants_are_facts_and_no_arguments() -> None:
    with pytest.raises(TypeError):
        Logistic(lipschitz=0.1)  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        Multinomial(3, 0.5)  # type: ignore[call-arg]
    assert HuberisedHinge(0.1).smoothness == 5.0


@pytest.mark.parametrize(
    "make", [lambda: HuberisedHinge(0), lambda: HuberisedHinge(math.nan), lambda: Multinomial(1)]
)
def test_impossible_losses_are_refused(make) -> None:
    with pytest.raises(InvalidParameter):
        make()
