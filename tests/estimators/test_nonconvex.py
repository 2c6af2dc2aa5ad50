"""Objectives that are not convex, from the estimator and the command line: fitted as stated, or refused for free."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from typer.testing import CliRunner

from dpdescent import DPLogisticRegression, Ledger, load_dataset
from dpdescent.cli import app
from dpdescent.errors import DPDescentError, GuaranteeWarning, InvalidParameter, UnsupportedLoss
from dpdescent.problems import Need
from dpdescent.solvers import METHODS

DATA = load_dataset("synthetic", n=2000)
PUBLIC: dict[str, Any] = {"bounds": DATA.bounds, "classes": DATA.classes, "tighten": False}
ALPHA = 0.001
CONVEX = [name for name, method in METHODS.items() if Need.CONVEX in method.needs]
ASSUMED = (
    "loss: the sigmoid loss, which is not convex (argument)",
    "penalty: 0.01 sum_j w_j^2/(1 + w_j^2), which is not convex (argument)",
)


@pytest.mark.parametrize(("loss", "penalty"), [("logistic", "l2"), ("logistic", "nonconvex"), ("sigmoid", "l2")])
def test_without_noise_the_objective_that_is_named_has_no_slope_where_the_fit_ends(loss: str, penalty: str) -> None:
    # Without an intercept: it would be raised until the sigmoid loss is flat, which is a stationary point as well.
    options = PUBLIC | {"fit_intercept": False}
    model = DPLogisticRegression(method="nonprivate", loss=loss, penalty=penalty, alpha=ALPHA, **options)
    model.fit(DATA.X, DATA.y)
    low, high = (np.broadcast_to(end, DATA.X.shape[1]) for end in model.bounds_)
    scale = np.maximum(np.abs(low), np.abs(high))  # weights are penalised in units of the bounds
    weights, signs = model.coef_[0] * scale, np.where(DATA.y == DATA.classes[1], 1.0, -1.0)
    wrong = 1 / (1 + np.exp(signs * model.decision_function(DATA.X)))
    slopes = -signs * (wrong if loss == "logistic" else wrong * (1 - wrong))
    bend = weights if penalty == "l2" else 2 * weights / (1 + weights**2) ** 2
    gradient = (DATA.X / scale).T @ slopes / len(signs) + ALPHA * bend
    assert np.abs(gradient).max() < 1e-4
    assert np.abs(ALPHA * bend).max() > 5e-4  # a wrong penalty would show


@pytest.mark.parametrize("method", CONVEX)
@pytest.mark.parametrize("options", [{"loss": "sigmoid"}, {"penalty": "nonconvex", "alpha": 0.01}], ids=str)
def test_methods_that_need_convexity_refuse_by_name_and_charge_nothing(method: str, options: dict[str, Any]) -> None:
    ledger = Ledger(1.0, 1e-6)
    model = DPLogisticRegression(1.0, 1e-6, method=method, ledger=ledger, **options, **PUBLIC)
    with pytest.raises(
        (UnsupportedLoss, InvalidParameter), match=rf"method '{method}' needs a convex (loss|penalty)"
    ):
        model.fit(DATA.X, DATA.y)
    assert ledger.spent == 0
    assert not ledger.entries


@pytest.mark.parametrize("method", ["2opt-ls", "auto", "sgd"])
def test_other_methods_fit_within_the_budget_and_the_statement_names_the_objective(method: str) -> None:
    model = DPLogisticRegression(
        20.0, 1e-6, method=method, loss="sigmoid", penalty="nonconvex", alpha=0.01, random_state=1, **PUBLIC
    )
    assert clone(model).get_params() == model.get_params()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)  # so few rows promise no second-order point
        model.fit(DATA.X, DATA.y)
    assert model.privacy_["spent_epsilon"] <= 20.0
    assert set(ASSUMED) <= set(model.privacy_["assumed_public"])
    assert model.score(DATA.X, DATA.y) > 0.7
    usual = DPLogisticRegression(20.0, 1e-6, random_state=1, **PUBLIC).fit(DATA.X, DATA.y)
    assert not any("convex" in text for text in usual.privacy_["assumed_public"])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"loss": "probit"}, "unknown loss 'probit': choose 'logistic' or 'sigmoid'"),
        ({"penalty": "l1"}, "unknown penalty 'l1': choose 'l2' or 'nonconvex'"),
        ({"loss": "sigmoid", "classes": (0, 1, 2)}, "loss='sigmoid' tells two classes apart, and there are 3"),
    ],
)
def test_unknown_names_and_several_classes_are_refused(options: dict[str, Any], said: str) -> None:
    ledger = Ledger(1.0, 1e-6)
    model = DPLogisticRegression(1.0, 1e-6, ledger=ledger, **PUBLIC | options)
    with pytest.raises(InvalidParameter, match=said):
        model.fit(DATA.X, DATA.y)
    assert ledger.spent == 0


def test_the_command_line_fits_saves_and_predicts_with_them(tmp_path: Path) -> None:
    model, table = tmp_path / "model.json", tmp_path / "rows.npz"
    np.savez(table, X=DATA.X, y=DATA.y)
    given = ["--bounds", json.dumps([0, 1])[1:-1], "--classes", "0,1", "--seed", "1", "--delta", "1e-6"]
    asked = ["fit", str(table), "--output", str(model), *given, "--method", "sgd", "--alpha", "0.01"]
    runner = CliRunner()
    done = runner.invoke(app, [*asked, "--loss", "sigmoid", "--penalty", "nonconvex"], catch_exceptions=False)
    assert done.exit_code == 0
    assert set(ASSUMED) <= set(json.loads(model.read_text())["privacy"]["assumed_public"])
    predicted = tmp_path / "predicted.csv"
    done = runner.invoke(app, ["predict", str(model), str(table), "--output", str(predicted)])
    assert done.exit_code == 0
    for wrong in (["--model", "regression", "--penalty", "l2"], ["--loss", "hinge"], ["--penalty", "l1"]):
        with pytest.raises(DPDescentError, match=r"--penalty is not for|unknown (loss|penalty)"):
            runner.invoke(app, [*asked, *wrong], catch_exceptions=False)
