"""A loss that the caller gives is the one that is minimised, or is refused by its name for free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone

from dpdescent import (
    DPHuberRegressor,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    Ledger,
    load_dataset,
)
from dpdescent.errors import InvalidParameter, UnsupportedLoss
from dpdescent.problems import (
    Huber,
    HuberisedHinge,
    Labels,
    Logistic,
    MarginLoss,
    Multinomial,
    Poisson,
    Sigmoid,
    Squared,
)

DATA = load_dataset("synthetic", n=2000)
PUBLIC: dict[str, Any] = {"bounds": DATA.bounds, "classes": DATA.classes, "random_state": 0}
X = np.random.default_rng(0).uniform(0, 1, (3000, 2))
Y = 3 * X[:, 0] - X[:, 1]
TARGET: dict[str, Any] = {"bounds": (0, 1), "target_bounds": (-2, 4), "random_state": 0}
# Bounds of the target stay as they are for a loss of the caller, whose labels are in units of them.
TRUSTED = TARGET | {"tighten": False}


@dataclass(frozen=True)
class Wide(Squared):
    """The squared loss of labels that are wide apart."""

    high: float = 2048.0

    @property
    def labels(self) -> Labels:  # type: ignore[override]
        return Labels.numbers(0, self.high)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        (DPLogisticRegression(loss=Logistic(), **PUBLIC), DPLogisticRegression(**PUBLIC)),
        (DPLogisticRegression(loss=Sigmoid(), **PUBLIC), DPLogisticRegression(loss="sigmoid", **PUBLIC)),
        (DPLogisticRegression(loss=HuberisedHinge(), **PUBLIC), DPLinearSVC(**PUBLIC)),
    ],
)
def test_a_loss_of_two_classes_gives_the_bits_of_the_estimator_that_has_it_by_name(own: Any, named: Any) -> None:
    np.testing.assert_array_equal(own.fit(DATA.X, DATA.y).coef_, named.fit(DATA.X, DATA.y).coef_)


@pytest.mark.parametrize(
    ("own", "named"),
    [
        (DPLinearRegression(loss=Squared(), **TRUSTED), DPLinearRegression(**TRUSTED)),
        (DPLinearRegression(loss=Huber(1.0, 5.0), **TRUSTED), DPHuberRegressor(**TRUSTED)),
        (
            DPLinearRegression(loss=Huber(1.0, 5.0), **TARGET | {"target_bounds": None}),
            DPHuberRegressor(**TARGET | {"target_bounds": None}),
        ),
    ],
)
def test_a_loss_of_numbers_gives_the_bits_of_the_estimator_that_has_it_by_name(own: Any, named: Any) -> None:
    np.testing.assert_array_equal(own.fit(X, Y).coef_, named.fit(X, Y).coef_)
    assert own.intercept_ == named.intercept_


def test_bounds_of_the_target_become_those_of_the_labels() -> None:
    for high in (0.5, 1.0, 512.0):
        model = DPLinearRegression(method="nonprivate", loss=Wide(high), **TARGET).fit(X, Y)
        np.testing.assert_allclose([*model.coef_, model.intercept_], [3, -1, 0], atol=1e-4)


def test_a_loss_is_told_in_the_statement_and_kept_by_a_copy() -> None:
    model = DPLinearRegression(loss=Huber(1.0, 5.0), **TARGET).fit(X, Y)
    assert "loss: Huber(threshold=1.0, label_bound=5.0) (argument)" in model.privacy_["assumed_public"]
    assert clone(model).loss == Huber(1.0, 5.0)
    assert not any(
        fact.startswith("loss") for fact in DPLinearRegression(**TARGET).fit(X, Y).privacy_["assumed_public"]
    )


@pytest.mark.parametrize(
    ("model", "message"),
    [
        (DPLogisticRegression(loss=Squared()), "Squared is a loss of numbers"),
        (DPLogisticRegression(loss=Multinomial(2)), "Multinomial is a loss of classes"),
        (DPLogisticRegression(loss=Logistic), "unknown loss"),
        (DPLogisticRegression(penalty=Logistic()), "unknown penalty"),
        (DPLinearRegression(loss=Logistic()), "Logistic is a loss of signs"),
        (DPLinearRegression(loss=Poisson()), "Poisson is not least where the score is the label.*DPPoissonRegressor"),
        (DPLinearRegression(loss=Wide()), "Wide is for labels from 0 to 2048"),
        (DPLinearRegression(loss="huber"), "unknown loss 'huber'"),
    ],
)
def test_a_loss_that_makes_no_sense_is_refused_before_any_charge(model: Any, message: str) -> None:
    ledger = Ledger(1.0, 1e-6)
    with pytest.raises(InvalidParameter, match=message):
        model.set_params(ledger=ledger).fit(DATA.X, DATA.y)
    assert ledger.entries == ()


def test_a_loss_of_two_classes_is_refused_for_three_and_by_methods_that_need_more_of_it() -> None:
    @dataclass(frozen=True)
    class Ramp(MarginLoss):
        """min(1, max(0, 1 - y t)): a loss that says nothing of its constants but that its slope is bounded."""

        lipschitz = 1.0
        smoothness = curvature_lipschitz = np.inf
        convex = False

        def values(self, margins: Any, labels: Any) -> Any:
            return np.clip(1 - labels * margins, 0.0, 1.0)

        def residuals(self, margins: Any, labels: Any) -> Any:
            inside = np.abs(labels * margins - 0.5) < 0.5
            return np.where(inside, -labels, 0.0)

        def curvatures(self, margins: Any, labels: Any) -> Any:
            return np.zeros_like(margins)

    ledger = Ledger(1.0, 1e-6)
    thirds = np.arange(len(DATA.y)) % 3
    with pytest.raises(InvalidParameter, match=r"Ramp\(\) tells two classes apart, and there are 3"):
        DPLogisticRegression(loss=Ramp(), **PUBLIC | {"classes": (0, 1, 2)}, ledger=ledger).fit(DATA.X, thirds)
    with pytest.raises(UnsupportedLoss, match="Ramp is none"):
        DPLogisticRegression(loss=Ramp(), method="outpert", **PUBLIC, ledger=ledger).fit(DATA.X, DATA.y)
    assert ledger.entries == ()


def test_estimators_with_one_loss_have_no_parameter_for_it() -> None:
    for model in (DPHuberRegressor(), DPPoissonRegressor()):
        assert "loss" not in model.get_params()
