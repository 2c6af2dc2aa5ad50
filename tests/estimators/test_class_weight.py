"""Weights of classes: public ones change no guarantee, balanced ones are paid for, and rare classes can be named."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdescent import DPAdditiveClassifier, DPLinearSVC, DPLogisticRegression, Ledger
from dpdescent.errors import InvalidParameter, UnsupportedLoss
from dpdescent.problems import Adversary, Hinge, Logistic, Multinomial, Squared, Weighted
from method_runs import LOSSES, PRIVATE, SIGNS, Recording, Replaying, assert_neighbours_see_the_same, make_table, run

RARE = (0.2, 1.0)


@pytest.fixture(scope="module")
def rare() -> tuple[np.ndarray, np.ndarray]:
    """Return a table of which about one row in thirty is of the second class."""
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (6000, 3))
    scores = 4 * X[:, 0] - 2 * X[:, 1] - 5
    return X, (scores + generator.logistic(size=6000) > 0).astype(int)


def model(**options) -> DPLogisticRegression:
    public = {"bounds": (0, 1), "tighten": False, "classes": (0, 1), "random_state": 0}
    return DPLogisticRegression(**(public | options))


@pytest.mark.parametrize("loss", [Weighted(Logistic(), RARE), Weighted(Multinomial(3), (0.5, 1.0, 0.25))], ids=str)
def test_a_weighted_loss_is_the_loss_times_the_weight_of_the_label(loss: Weighted) -> None:
    generator = np.random.default_rng(0)
    y = generator.choice(loss.labels.every, 300)
    t = generator.normal(0, 3, 300 if loss.outputs == 1 else (300, loss.outputs))
    own = np.array([loss.weights[list(loss.labels.every).index(label)] for label in y])
    column = own if loss.outputs == 1 else own[:, None]
    inner = loss.loss
    np.testing.assert_array_equal(loss.values(t, y), own * inner.values(t, y))
    np.testing.assert_array_equal(loss.residuals(t, y), column * inner.residuals(t, y))
    along = generator.normal(size=t.shape)
    np.testing.assert_array_equal(
        loss.curvature_products(t, y, along), column * inner.curvature_products(t, y, along)
    )
    typical = own * inner.typical_curvatures(inner.residuals(t, y), y)
    np.testing.assert_allclose(loss.typical_curvatures(loss.residuals(t, y), y), typical, atol=1e-12)


@pytest.mark.parametrize("loss", [Weighted(Logistic(), RARE), Weighted(Multinomial(3), (0.5, 0.75, 0.25))], ids=str)
def test_no_row_has_a_larger_trace_of_curvature_than_objective_perturbation_pays_for(loss: Weighted) -> None:
    y = np.repeat(loss.labels.every, 200)
    t = np.random.default_rng(0).normal(0, 0.5, (y.size, loss.outputs))
    t[::200] = 0.0  # where the curvature is largest
    traces = np.zeros(y.size)
    for output in range(loss.outputs):
        along = np.zeros(t.shape)
        along[:, output] = 1.0
        shape = y.size if loss.outputs == 1 else t.shape
        bent = loss.curvature_products(t.reshape(shape), y, along.reshape(shape))
        traces += bent.reshape(t.shape)[:, output]
    assert 0.999 * loss.curvature_trace < traces.max() <= loss.curvature_trace * (1 + 1e-12)
    assert (loss.corners, loss.curvature_rank) == (loss.loss.corners, loss.loss.curvature_rank)


@pytest.mark.parametrize("weights", [RARE, (1.0, 0.2), (0.5, 0.25)], ids=str)
def test_the_bounds_of_a_weighted_loss_hold_for_both_classes_and_are_attained(weights: tuple[float, float]) -> None:
    """Sensitivities rest on them: those of tilted minimisers on the least and the largest loss."""
    loss, reach = Weighted(Logistic(), weights), 3.0
    t, y = np.tile(np.linspace(-reach, reach, 2001), 2), np.repeat([-1.0, 1.0], 2001)
    values, residuals = loss.values(t, y), loss.residuals(100 * t, y)
    curvatures = loss.curvatures(t, y)
    bends = np.abs(np.diff(curvatures.reshape(2, -1), axis=1)) / (t[1] - t[0])
    assert loss.least(reach) <= values.min() * (1 + 1e-12) <= 1.001 * loss.least(reach)
    for found, bound in (
        (values, loss.largest(reach)),
        (np.abs(residuals), loss.lipschitz),
        (curvatures, loss.smoothness),
        (bends, loss.curvature_lipschitz),
    ):
        assert 0.99 * bound <= found.max() <= bound * (1 + 1e-12)


@pytest.mark.parametrize("weights", [(1.0,), (1.0, 0.0), (1.0, 1.5), (-1.0, 1.0), (math.nan, 1.0)])
def test_weights_above_one_or_of_other_classes_are_no_weighted_loss(weights: tuple[float, ...]) -> None:
    with pytest.raises(InvalidParameter):
        Weighted(Logistic(), weights)
    with pytest.raises(InvalidParameter, match="numbers"):
        Weighted(Squared(), (1.0, 1.0))


def test_a_weighted_hinge_has_no_certificate() -> None:
    with pytest.raises(UnsupportedLoss, match="outpert"):
        DPLinearSVC(loss="hinge", method="outpert", classes=(0, 1), bounds=(0, 1), class_weight={1: 2.0}).fit(
            np.eye(4), [0, 1, 0, 1]
        )
    assert Weighted(Hinge(), RARE).offers < Hinge().offers


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("case", [case for case in PRIVATE if not case.name and case.method != "expmech"], ids=str)
def test_a_replay_with_weights_stays_within_every_sensitivity(case, relation: str, monkeypatch) -> None:
    monkeypatch.setitem(LOSSES, "weighted", (Weighted(Logistic(), RARE), SIGNS))
    table = make_table("weighted", 40)
    whole, row = table.with_last(np.ones(2), 1.0), np.array([-1.0, 1.0])
    other = table if relation == "zero-out" else table.with_last(row, -1.0)
    recorded = run(case, "weighted", relation, table=whole, rows=41, noise=Recording())
    zeros = case.method == "objpert"
    noise = Replaying(recorded.noise, compare=lambda each: not (zeros and each.total.values.any()))
    replayed = run(case, "weighted", relation, table=other, rows=41, noise=noise)
    assert_neighbours_see_the_same(recorded, replayed)


def test_huge_epsilon_recovers_weighted_logistic_regression(rare) -> None:
    """The same minimum as scikit-learn's, whose C is 1/(n alpha)."""
    from sklearn.linear_model import LogisticRegression

    X, y = rare
    weights, alpha = {0: 0.5, 1: 8.0}, 1e-3
    fitted = model(epsilon=1e7, class_weight=weights, alpha=alpha).fit(X, y)
    wanted = LogisticRegression(C=1 / (alpha * len(y)), class_weight=weights, tol=1e-8, max_iter=1000).fit(X, y)
    np.testing.assert_allclose(fitted.coef_, wanted.coef_, atol=0.02)
    np.testing.assert_allclose(fitted.intercept_, wanted.intercept_, atol=0.02)
    assert fitted.class_weight_ == weights
    assert "class_weight: the weight of each class (argument)" in fitted.privacy_["assumed_public"]


@pytest.mark.parametrize("weights", [{0: 1e-300, 1: 1e300}, {0: 1.0, 1: 1e308}, {0: 2.0**-41, 1: 2.0**-41}])
def test_weights_that_floating_point_cannot_hold_beside_each_other_are_refused_by_name(rare, weights) -> None:
    """Divided by the largest, the first would be 0; the remedy is about the weights that were given."""
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    with pytest.raises(
        InvalidParameter, match=r"class_weight\[\d\] is .* bring them closer together, or multiply all"
    ):
        model(epsilon=0.5, delta=1e-7, ledger=ledger, class_weight=weights).fit(*rare)
    assert not ledger.entries
    model(class_weight={0: 2.0**-40, 1: 2.0**40}, method="majority").fit(*rare)


def test_equal_weights_give_the_model_without_weights(rare) -> None:
    plain, weighted = model(alpha=0.01).fit(*rare), model(alpha=0.02, class_weight={0: 2, 1: 2}).fit(*rare)
    np.testing.assert_allclose(weighted.coef_, plain.coef_, rtol=1e-6)


@pytest.mark.parametrize("kind", [DPLogisticRegression, DPAdditiveClassifier, DPLinearSVC])
def test_balanced_weights_are_paid_for_and_find_the_rare_class(rare, kind) -> None:
    X, y = rare
    fitted = kind(4.0, 1e-6, bounds=(0, 1), classes=(0, 1), class_weight="balanced", random_state=0).fit(X, y)
    assert "label counts" in fitted.privacy_["spent_on"]
    assert 0.005 <= fitted.privacy_["spent_on"]["label counts"] <= 0.1
    assert fitted.privacy_["spent"] <= fitted.privacy_["budget"]
    true = {label: len(y) / (2 * np.count_nonzero(y == label)) for label in (0, 1)}
    for label, weight in fitted.class_weight_.items():
        assert true[label] / 1.5 <= weight <= 1.5 * true[label]
    found = fitted.predict(X) == 1
    assert found[y == 1].mean() > 0.6
    assert found[y == 0].mean() < 0.4


def test_balanced_counts_are_charged_before_rows_are_read_and_refused_without_a_gaussian_price(rare) -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    with pytest.raises(InvalidParameter, match="give class_weight"):
        model(delta=0.0, method="outpert", class_weight="balanced").fit(*rare)
    model(epsilon=0.5, delta=1e-7, ledger=ledger, class_weight="balanced").fit(*rare)
    assert ledger.entries[0].label == "label counts"


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (DPLinearSVC, {"loss": "hinge"}),
        (DPLinearSVC, {"loss": "hinge", "tilt": 1.0, "bounds": None}),
        (DPLogisticRegression, {"adversary": Adversary(0.1)}),
        (DPLogisticRegression, {"adversary": Adversary(0.1), "class_weight": {1: 2.0}, "bounds": None}),
    ],
)
def test_what_goes_with_no_weights_is_refused_before_counts_or_bounds_are_bought(rare, kind, options) -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    common = {"bounds": (0, 1), "classes": (0, 1), "class_weight": "balanced", "method": "outpert"}
    with pytest.raises(UnsupportedLoss):
        kind(0.5, 1e-7, ledger=ledger, **(common | options)).fit(*rare)
    assert not ledger.entries


def test_balanced_weights_without_privacy_are_exact(rare) -> None:
    X, y = rare
    fitted = model(method="nonprivate", class_weight="balanced").fit(X, y)
    assert fitted.class_weight_ == {label: len(y) / (2 * np.count_nonzero(y == label)) for label in (0, 1)}


def test_noise_alone_makes_no_large_weight() -> None:
    """A class without a row is taken for two deviations of the noise; a false alarm needs one of 20."""
    X, y = np.random.default_rng(0).uniform(0, 1, (500, 2)), np.zeros(500, dtype=int)
    fitted = model(epsilon=0.5, class_weight="balanced").fit(X, y)
    assert max(fitted.class_weight_.values()) < 20


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({2: 1.0}, "none of the 2 classes"),
        ({1: -1.0}, "greater than 0"),
        ({1: 0.0}, "greater than 0"),
        ({1: math.inf}, "finite"),
        ({1: "heavy"}, "class_weight"),
        ("balance", "'balanced'"),
        ([1.0, 2.0], "mapping"),
    ],
)
def test_bad_weights_are_refused_by_name_before_anything_is_charged(rare, weights, message: str) -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp")
    with pytest.raises(InvalidParameter, match=message):
        model(ledger=ledger, class_weight=weights).fit(*rare)
    assert not ledger.entries


def test_a_rare_class_is_named_at_the_chosen_rate(rare) -> None:
    X, y = rare
    fitted = model(epsilon=1.0).fit(X, y)
    assert fitted.predict(X).mean() < 0.01  # no row is likely enough
    rate = 0.03
    named = fitted.predict_at_rate(X, rate) == 1
    assert named.sum() == round(rate * len(y))
    scores = fitted.decision_function(X)
    assert scores[named].min() > scores[~named].max()
    assert y[named].mean() > 2 * y.mean()
    assert not fitted.predict_at_rate(X, 1e-9).any()
    assert not fitted.predict_at_rate(np.tile(X[:1], (9, 1)), 0.5).any()  # all alike, so none is chosen
    for bad in (0.0, 1.0, -1, math.nan):
        with pytest.raises(InvalidParameter, match="rate"):
            fitted.predict_at_rate(X, bad)


def test_a_rate_is_about_two_classes(rare) -> None:
    X, _ = rare
    fitted = model(classes=(0, 1, 2)).fit(X, np.arange(len(X)) % 3)
    with pytest.raises(InvalidParameter, match="two classes"):
        fitted.predict_at_rate(X, 0.1)
