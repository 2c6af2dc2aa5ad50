"""A loss declares its facts: labels, constants and abilities; a method that needs more is refused before a charge."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpdescent import DPLinearRegression, DPLinearSVC, DPLogisticRegression, Ledger
from dpdescent.errors import InvalidParameter, UnsupportedLoss
from dpdescent.exact import FeatureGrid
from dpdescent.minimisers import EmpiricalRisk, loss_at_zero, loss_range, smooth_loss
from dpdescent.problems import (
    LOSSES,
    Hinge,
    Huber,
    HuberisedHinge,
    LabelKind,
    Labels,
    LinearProblem,
    Logistic,
    Loss,
    Multinomial,
    Need,
    Sigmoid,
    Squared,
    require_needs,
)
from dpdescent.solvers import METHODS
from plain_losses import PLAIN, PlainLogistic, PlainPoisson

EVERY = [*LOSSES.values(), Huber(1.0), HuberisedHinge(0.1), HuberisedHinge(2.0), PlainLogistic(), PlainPoisson()]
WILD = np.array([-1.0, 1.0, 0.0, -0.0, 0.4, 2.0, 3.0, 1e300, -1e300, 5e-324, np.inf, -np.inf, np.nan, -np.nan])
EACH = pytest.mark.parametrize("loss", EVERY, ids=str)


def allowed(labels: Labels, generator: np.random.Generator, size: int) -> np.ndarray:
    """Return labels of the kind and range, the ends among them."""
    if labels.every is not None:
        return generator.choice(labels.every, size)
    some = generator.uniform(labels.low, labels.high, size)
    some[::3], some[1::3] = labels.low, labels.high
    return some


def margins_of(loss: Loss, generator: np.random.Generator, size: int, reach: float) -> np.ndarray:
    """Return margins of length at most ``reach``, half of them exactly as long as that."""
    t = generator.normal(size=(size, loss.outputs))
    t *= reach / np.linalg.norm(t, axis=1)[:, None]
    t[: size // 2] *= generator.random((size // 2, 1))
    return t[:, 0] if loss.outputs == 1 else t


# Labels --------------------------------------------------------------------------------------------------------


@EACH
def test_every_number_is_understood_as_a_label_of_the_declared_range(loss: Loss) -> None:
    labels = loss.labels
    mapped = loss.understood(WILD)
    assert mapped.shape == WILD.shape
    assert np.isfinite(mapped).all()
    assert ((labels.low <= mapped) & (mapped <= labels.high)).all()
    if labels.every is not None:
        assert set(mapped.tolist()) <= set(labels.every.tolist())
    np.testing.assert_array_equal(loss.understood(mapped), mapped)
    for i in range(WILD.size):  # each number by itself
        np.testing.assert_array_equal(loss.understood(WILD[i : i + 1]), mapped[i : i + 1])
    proper = allowed(labels, np.random.default_rng(0), 100)
    np.testing.assert_array_equal(loss.understood(proper), proper)


@EACH
def test_constants_hold_for_whatever_is_understood_as_a_label(loss: Loss) -> None:
    generator = np.random.default_rng(1)
    y = loss.understood(np.repeat(WILD, 200))
    t = margins_of(loss, generator, y.size, 9.0)
    slopes = loss.residuals(t, y).reshape(y.size, -1)
    assert np.linalg.norm(slopes, axis=1).max() <= loss.lipschitz * (1 + 1e-12)
    if loss.outputs == 1:
        assert np.abs(loss.curvatures(t, y)).max() <= loss.smoothness * (1 + 1e-12)
    assert (loss.values(t, y) >= 0).all()


def test_labels_say_what_they_are() -> None:
    assert Labels.signs() == Labels(LabelKind.SIGNS, -1.0, 1.0)
    assert (Labels.signs().number_of_classes, Labels.classes(4).number_of_classes) == (2, 4)
    assert Labels.numbers(0, 7).number_of_classes == 0
    assert Labels.classes(3).every is not None
    assert Labels.classes(3).every.tolist() == [0.0, 1.0, 2.0]
    assert Labels.numbers(0, 7).every is None
    kinds = {name: loss.labels.kind.value for name, loss in LOSSES.items()}
    signs = {"hinge", "huberised-hinge", "logistic", "sigmoid", "weighted"}
    assert kinds == {name: "signs" if name in signs else kind for name, kind in kinds.items()}
    assert (kinds["squared"], kinds["huber"], kinds["multinomial"]) == ("numbers", "numbers", "classes")


@pytest.mark.parametrize(
    "make",
    [
        lambda: Labels.numbers(1, 1),
        lambda: Labels.numbers(2, 1),
        lambda: Labels.numbers(0, math.inf),
        lambda: Labels.numbers(math.nan, 1),
        lambda: Labels.classes(1),
        lambda: Labels.classes(0),
    ],
)
def test_impossible_labels_are_refused(make) -> None:
    with pytest.raises(InvalidParameter):
        make()


# Bounds --------------------------------------------------------------------------------------------------------


@EACH
@pytest.mark.parametrize("reach", [0.0, 0.1, 1.0, 7.5, 300.0])
def test_no_row_has_a_loss_beyond_the_largest_or_below_the_least(loss: Loss, reach: float) -> None:
    generator = np.random.default_rng(2)
    y = allowed(loss.labels, generator, 20_000)
    values = loss.values(margins_of(loss, generator, y.size, reach), y)
    assert values.max() <= loss.largest(reach) * (1 + 1e-12)
    assert values.min() >= loss.least(reach) * (1 - 1e-12)
    if loss.outputs == 1 and loss.has_profile and (loss.convex or loss.falling):  # then the bound is attained
        assert values.max() >= loss.largest(reach) * (1 - 1e-9)
    if loss.falling:
        assert values.min() <= loss.least(reach) * (1 + 1e-9)


@EACH
def test_no_row_of_a_problem_has_a_larger_loss_than_stated(loss: Loss) -> None:
    """Rows as long as the grid allows, weights along them, and any label."""
    generator = np.random.default_rng(3)
    grid = FeatureGrid(1.0, 4, 1.3)
    problem = LinearProblem(loss, grid, intercept=False)
    rows = grid.place(np.vstack([generator.normal(0, 3, (3000, 4)), generator.normal(0, 0.1, (500, 4))]))
    for size in (0.0, 0.3, 4.0, 50.0):
        weights = size * generator.normal(size=problem.shape)
        if loss.outputs == 1 and size:
            rows[0], rows[1] = (grid.place(sign * 9 * weights[None] / size)[0] for sign in (1, -1))
        stated = problem.largest_loss(weights)
        for _ in range(3):
            y = allowed(loss.labels, generator, len(rows))
            y[:2] = loss.labels.low, loss.labels.high
            values = loss.values(grid.margins(rows, grid.place_weights(weights)), y)
            assert values.max() <= stated


def test_the_largest_loss_counts_the_labels_of_numbers() -> None:
    """A target of 1 and a margin of -3 are 4 apart: a bound for margins alone would be 9/2."""
    assert Squared().largest(3.0) == 8.0
    assert Huber(0.25).largest(3.0) == 0.25 * 4 - 0.25**2 / 2
    assert math.isinf(PlainPoisson().largest(1.0)), "nobody said for which number the loss is largest"


@EACH
def test_a_range_of_losses_holds_for_every_margin_within_reach(loss: Loss) -> None:
    generator = np.random.default_rng(4)
    for reach in (0.05, 1.0, 6.0):
        low, high = loss_range(loss, reach)
        y = allowed(loss.labels, generator, 5000)
        values = loss.values(margins_of(loss, generator, y.size, reach), y)
        assert low <= values.min()
        assert values.max() <= high
    assert loss_at_zero(loss) == loss.largest(0.0)


@pytest.mark.parametrize("loss", [each for each in EVERY if math.isfinite(each.flat_beyond)], ids=str)
def test_beyond_the_flat_point_a_residual_does_not_move_with_the_last_digits_of_a_margin(loss: Loss) -> None:
    far = loss.flat_beyond * np.array([1.0, -1.0, 1.01, -1.01, 3.0, -3.0])
    for label in (loss.labels.low, loss.labels.high):
        assert (np.abs(loss.curvatures(far, np.full(6, label)) * far) < 2.0**-60).all()


def test_a_wide_loss_is_not_called_flat_where_it_bends() -> None:
    """Both are parabolas there, so the digits of a margin of 80 do show in its residual."""
    assert Huber(200.0).flat_beyond == 201.0
    assert HuberisedHinge(150.0).flat_beyond == 151.0
    assert (Huber(1.0).flat_beyond, HuberisedHinge().flat_beyond, Logistic().flat_beyond) == (64.0, 64.0, 64.0)


# What a loss offers ---------------------------------------------------------------------------------------------


def test_a_loss_without_its_facts_cannot_be_made() -> None:
    class Forgetful(Loss):
        lipschitz = smoothness = curvature_lipschitz = 1.0

        def values(self, margins, labels):
            return margins

        residuals = curvatures = values

    with pytest.raises(TypeError, match="convex"):
        Forgetful()  # type: ignore[abstract]
    with pytest.raises(TypeError, match="labels"):
        Forgetful()  # type: ignore[abstract]


def test_three_methods_and_the_facts_offer_what_follows_from_them_and_no_more() -> None:
    assert PlainPoisson().offers == PLAIN
    assert PlainLogistic().offers == PLAIN | {Need.SMOOTH_CURVATURE, Need.LARGEST_LOSS}
    for loss in (PlainPoisson(), PlainLogistic()):
        assert not loss.has_profile
        assert not loss.has_typical_curvatures
        assert not loss.falling
        for ability in (
            lambda loss=loss: loss.profile(np.zeros(1)),
            lambda loss=loss: loss.line(np.zeros(1), np.zeros(1), np.ones(1)),
            lambda loss=loss: loss.typical_curvatures(np.zeros(1), np.ones(1)),
            lambda loss=loss: loss.best_constant(np.ones(2)),
        ):
            with pytest.raises(InvalidParameter, match=type(loss).__name__):
                ability()


@EACH
def test_a_profile_is_the_loss_along_a_line(loss: Loss) -> None:
    if not loss.has_profile:
        return
    generator = np.random.default_rng(5)
    t, u = generator.normal(0, 3, (2, 500))
    y = allowed(loss.labels, generator, 500)
    starts, slopes = loss.line(t, u, y)
    for a in (0.0, 0.3, -2.0):
        np.testing.assert_allclose(loss.profile(starts - a * slopes), loss.values(t - a * u, y), 1e-12, 1e-12)


@EACH
def test_what_stands_in_for_a_steep_loss_is_as_convex_and_as_smooth(loss: Loss) -> None:
    bounded = loss.bounded()
    assert bounded is not None
    assert math.isfinite(bounded.lipschitz)
    assert loss.offers <= bounded.offers | {Need.SMOOTH_CURVATURE}
    assert (bounded is loss) == math.isfinite(loss.lipschitz)
    assert bounded.labels == loss.labels


def test_a_steep_loss_without_a_stand_in_offers_none() -> None:
    @dataclass(frozen=True)
    class Steep(PlainLogistic):
        lipschitz = math.inf

    assert Steep().bounded() is None
    assert not Steep().offers & {Need.BOUNDED_SLOPE, Need.BOUNDED_VERSION}
    with pytest.raises(UnsupportedLoss, match="slope"):
        smooth_loss(Steep(), "objpert")


def test_several_margins_need_declared_corners() -> None:
    class Several(PlainLogistic):
        outputs = 3
        labels = Labels.classes(3)

    assert Need.CORNERS not in Several().offers
    with pytest.raises(InvalidParameter, match="corners"):
        _ = Several().corners
    assert (Logistic().corners, Sigmoid().corners, Squared().corners, Multinomial(5).corners) == (1, 1, 2, 4)


@pytest.mark.parametrize("loss", [Sigmoid(), Squared()], ids=str)
def test_minimisers_are_certified_for_convex_losses_with_a_bounded_slope_alone(loss: Loss) -> None:
    with pytest.raises(UnsupportedLoss):
        EmpiricalRisk(loss, 1.0)


def test_a_kink_that_is_not_the_hinges_has_no_certificate() -> None:
    """Its duality gap is not that of the hinge, which would certify points that are no minimisers."""

    @dataclass(frozen=True)
    class Absolute(Huber):
        smoothness = math.inf

    assert Need.CERTIFICATE not in Absolute().offers
    assert Need.CERTIFICATE in Hinge().offers
    with pytest.raises(UnsupportedLoss, match="certified"):
        EmpiricalRisk(Absolute(), 1.0)


# Methods --------------------------------------------------------------------------------------------------------

STATIONARY = {"opt", "opt-ls", "opt-b", "2opt", "2opt-ls", "2opt-b", "dp-gd", "dp-tr"}
SMOOTH_MINIMISERS = {"objpert", "outpert-gd", "outpert-rsgd", "expmech"}
REFUSED: dict[str, set[str]] = {
    "hinge": STATIONARY | SMOOTH_MINIMISERS,
    "huber": STATIONARY,
    "huberised-hinge": STATIONARY,
    "logistic": set(),
    "multinomial": STATIONARY | {"expmech"},
    "poisson": STATIONARY,
    "sigmoid": SMOOTH_MINIMISERS | {"outpert"},
    "squared": STATIONARY,
    "weighted": set(),
}


@pytest.mark.parametrize("name", LOSSES)
def test_each_method_takes_the_losses_that_offer_what_it_needs(name: str) -> None:
    loss = LOSSES[name]
    for method in METHODS:
        if method not in REFUSED[name]:
            METHODS[method].require(loss)
            continue
        with pytest.raises(UnsupportedLoss, match=rf"method '{method}' needs .*{type(loss).__name__}.*: "):
            METHODS[method].require(loss)


@pytest.mark.parametrize("loss", [PlainPoisson(), PlainLogistic()], ids=str)
def test_a_loss_of_three_methods_is_refused_by_few(loss: Loss) -> None:
    refused = {name for name, method in METHODS.items() if not method.needs <= loss.offers}
    expected = {"majority"} | (STATIONARY if isinstance(loss, PlainPoisson) else set())
    assert refused == expected


def test_every_method_knows_its_name_and_every_need_has_its_words() -> None:
    assert all(method.name == name for name, method in METHODS.items())

    class Nothing(PlainLogistic):
        offers = frozenset()  # type: ignore[assignment]

    for need in Need:
        with pytest.raises(UnsupportedLoss, match=r"method 'some' needs .*Nothing.*: "):
            require_needs("some", {need}, Nothing())
    require_needs("some", (), Nothing())


@pytest.mark.parametrize(
    ("model", "method"),
    [
        (DPLinearSVC(loss="hinge", classes=(0, 1)), "objpert"),
        (DPLinearSVC(loss="hinge", classes=(0, 1)), "opt"),
        (DPLinearRegression(), "2opt-ls"),
        (DPLogisticRegression(classes=(0, 1, 2)), "expmech"),
    ],
    ids=str,
)
def test_an_estimator_refuses_before_its_ledger_is_charged(model, method: str) -> None:
    generator = np.random.default_rng(0)
    X, y = generator.uniform(size=(60, 2)), generator.integers(0, 2, 60)
    currency = "approximate" if method == "objpert" else "pure" if method == "expmech" else "gdp"
    account = Ledger(8.0, 1e-5, currency=currency)
    model.set_params(method=method, ledger=account)
    with pytest.raises(UnsupportedLoss, match=method):
        model.fit(X, y)
    assert account.entries == ()


def test_a_need_that_no_loss_offers_is_found_before_anything_else() -> None:
    needy = replace(METHODS["agd"], needs=frozenset({Need.SMOOTH_CURVATURE}))
    with pytest.raises(UnsupportedLoss, match=r"'agd' needs .*third derivative"):
        needy.require(Huber(1.0))
