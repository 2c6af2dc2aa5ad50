"""Models that are saved and loaded are the same models, and what cannot be saved is refused by name."""

from __future__ import annotations

import json
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError
from typer.testing import CliRunner

import dpdescent
from dpdescent.cli.commands import app
from dpdescent.errors import ModelFormatError, OutputNotWritable, UnsupportedModel
from dpdescent.estimators.saved_models import ESTIMATORS, FILE
from dpdescent.problems import Logistic

DRAW = np.random.default_rng(5)
X = DRAW.uniform(-1, 1, (4000, 3))
TWO = (X[:, 0] + X[:, 1] ** 2 > 0.3).astype(int)
THREE = np.digitize(X[:, 0], [-0.3, 0.3])
NUMBER = 3 * X[:, 0] + DRAW.normal(0, 0.1, 4000)
COUNT = DRAW.poisson(np.exp(X[:, 0] + 1))
OTHERS = DRAW.uniform(-2, 2, (300, 3))
GIVEN: dict[str, Any] = {"epsilon": 3.0, "bounds": (-1, 1), "random_state": 7}

CASES: dict[str, tuple[type[Any], dict[str, Any], NDArray[Any]]] = {
    "logistic": (dpdescent.DPLogisticRegression, {"classes": (0, 1), "class_weight": "balanced"}, TWO),
    "intervals": (dpdescent.DPLogisticRegression, {"classes": (0, 1), "inference": True}, TWO),
    "several": (dpdescent.DPLogisticRegression, {"classes": (0, 1, 2)}, THREE),
    "texts": (dpdescent.DPLinearSVC, {"classes": ("no", "yes")}, np.array(["no", "yes"])[TWO]),
    "additive": (dpdescent.DPAdditiveClassifier, {"classes": (0, 1)}, TWO),
    "trees": (dpdescent.DPBoostedTreesClassifier, {"classes": (0, 1), "trees": 5}, TWO),
    "several trees": (dpdescent.DPBoostedTreesClassifier, {"classes": (0, 1, 2), "trees": 5}, THREE),
    "linear": (dpdescent.DPLinearRegression, {"target_bounds": (-4, 4)}, NUMBER),
    "huber": (dpdescent.DPHuberRegressor, {"target_bounds": (-4, 4), "threshold": 0.5}, NUMBER),
    "counts": (dpdescent.DPPoissonRegressor, {"target_bounds": (0, 20)}, COUNT),
    "curves": (dpdescent.DPAdditiveRegressor, {"target_bounds": (-4, 4), "inference": True}, NUMBER),
    "curves of counts": (dpdescent.DPAdditivePoissonRegressor, {"target_bounds": (0, 20)}, COUNT),
    "robust curves": (dpdescent.DPAdditiveHuberRegressor, {"target_bounds": (-4, 4)}, NUMBER),
    "tree numbers": (dpdescent.DPBoostedTreesRegressor, {"target_bounds": (-4, 4), "trees": 5}, NUMBER),
    "tree counts": (
        dpdescent.DPBoostedTreesRegressor,
        {"loss": "poisson", "target_bounds": (0, 9), "trees": 5},
        COUNT,
    ),
}


def fitted(name: str, **more: Any) -> Any:
    kind, options, y = CASES[name]
    return kind(**GIVEN | options | more).fit(X, y)


def test_every_estimator_is_tried() -> None:
    assert {kind for kind, _, _ in CASES.values()} == set(ESTIMATORS.values())
    public = {
        getattr(dpdescent, name) for name in dpdescent.__all__ if name.startswith("DP") and name != "DPDescentError"
    }
    assert public == set(ESTIMATORS.values()), "a new estimator that cannot be saved"


@pytest.mark.parametrize("name", CASES)
def test_a_loaded_model_is_the_same_model(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "m.json")
    again = dpdescent.load(tmp_path / "m.json")
    assert type(again) is type(model)
    for method in ("predict", "predict_proba", "decision_function", "row_scores"):
        if hasattr(model, method):
            assert np.array_equal(getattr(again, method)(OTHERS), getattr(model, method)(OTHERS)), method
    for attribute in ("coef_", "intercept_", "coef_noise_", "bounds_", "n_iter_", "classes_", "class_weight_"):
        assert str(getattr(again, attribute, None)) == str(getattr(model, attribute, None)), attribute
    assert again.privacy_ == model.privacy_
    assert again.epsilon == 3.0
    again.save(tmp_path / "again.json")
    assert (tmp_path / "again.json").read_text() == (tmp_path / "m.json").read_text()


@pytest.mark.parametrize("name", ["intervals", "curves", "additive", "trees"])
def test_a_loaded_model_explains_itself_as_before(name: str, tmp_path: Path) -> None:
    model = fitted(name)
    model.save(tmp_path / "m.json")
    again = dpdescent.load(tmp_path / "m.json")
    if model.inference:
        pd.testing.assert_frame_equal(again.conf_int(0.9), model.conf_int(0.9))
    for mine, other in zip(getattr(again, "terms_", ()), getattr(model, "terms_", ()), strict=True):
        assert mine.column == other.column
        assert np.array_equal(mine.effect, other.effect)
        assert np.array_equal(mine.noise, other.noise)
    if name == "trees":
        assert again.importances_ == model.importances_
        assert again.pair_importances_ == model.pair_importances_


def test_a_file_has_neither_seed_nor_ledger(tmp_path: Path) -> None:
    ledger = dpdescent.Ledger(5.0, 1e-5, currency="gdp")
    fitted("logistic", random_state=987654321, ledger=ledger).save(tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    assert "987654321" not in text, "a seed tells the noise"
    again = dpdescent.load(tmp_path / "m.json")
    assert again.random_state is None
    assert again.ledger is None


def test_the_command_line_predicts_with_what_python_has_saved(tmp_path: Path) -> None:
    for name in ("logistic", "counts", "trees"):
        model = fitted(name)
        model.save(tmp_path / "m.json")
        np.savez(tmp_path / "t.npz", X=OTHERS)
        typed = ["predict", str(tmp_path / "m.json"), str(tmp_path / "t.npz"), "--output", str(tmp_path / "p.csv")]
        found = CliRunner().invoke(app, typed)
        assert found.exit_code == 0, found.output
        predicted = pd.read_csv(tmp_path / "p.csv")["prediction"].to_numpy()
        assert np.allclose(predicted, model.predict(OTHERS), rtol=1e-12)


def test_python_predicts_with_what_the_command_line_has_saved(tmp_path: Path) -> None:
    np.savez(tmp_path / "t.npz", X=50 * OTHERS, y=(OTHERS[:, 0] > 0).astype(int))
    path, rows = str(tmp_path / "m.json"), str(tmp_path / "t.npz")
    typed = ["fit", rows, "--output", path, "--bounds=-100,100", "--classes=0,1", "--epsilon=8"]
    assert CliRunner().invoke(app, typed).exit_code == 0
    assert CliRunner().invoke(app, ["predict", path, rows, "--output", str(tmp_path / "p.csv")]).exit_code == 0
    written, model = pd.read_csv(tmp_path / "p.csv"), dpdescent.load(path)
    assert np.array_equal(model.predict_proba(50 * OTHERS)[:, 1], written["probability_1"].to_numpy())
    model.save(tmp_path / "again.json")
    assert np.array_equal(dpdescent.load(tmp_path / "again.json").predict(50 * OTHERS), written["prediction"])


def test_a_model_with_measured_columns_reads_tables_again(tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": 40 + 20 * X[:, 0], "city": np.array(["a", "b"])[TWO]})
    model = dpdescent.DPLogisticRegression(4.0, random_state=0).fit(frame, np.array(["no", "yes"])[TWO])
    model.save(tmp_path / "m.json")
    again = dpdescent.load(tmp_path / "m.json")
    assert np.array_equal(again.predict_proba(frame), model.predict_proba(frame))
    frame.to_csv(tmp_path / "t.csv", index=False)
    typed = ["predict", str(tmp_path / "m.json"), str(tmp_path / "t.csv"), "--output", str(tmp_path / "p.csv")]
    assert CliRunner().invoke(app, typed).exit_code == 0
    assert (pd.read_csv(tmp_path / "p.csv")["prediction"] == model.predict(frame)).all()


@dataclass(frozen=True)
class Own(Logistic):
    """A loss of a caller's own."""


class Kin(dpdescent.DPLogisticRegression):
    """An estimator of a caller's own."""


def test_what_cannot_be_saved_is_refused_by_name(tmp_path: Path) -> None:
    path = tmp_path / "m.json"
    with pytest.raises(NotFittedError):
        dpdescent.DPLogisticRegression().save(path)
    own = dpdescent.DPLogisticRegression(**GIVEN, classes=(0, 1), loss=Own()).fit(X, TWO)
    with pytest.raises(UnsupportedModel, match="loss of your own \\(Own\\)"):
        own.save(path)
    with pytest.raises(UnsupportedModel, match="a Kin cannot be saved"):
        Kin(**GIVEN, classes=(0, 1)).fit(X, TWO).save(path)
    dated = fitted("logistic")
    dated.classes_ = np.array(["2020-01-01", "2021-01-01"], dtype="datetime64[D]")
    with pytest.raises(UnsupportedModel, match="classes"):
        dated.save(path)
    assert not path.exists()
    (tmp_path / "file").write_text("")
    with pytest.raises(OutputNotWritable):
        fitted("linear").save(tmp_path / "file" / "m.json")


def test_files_of_the_version_before_are_read(tmp_path: Path) -> None:
    model = fitted("linear")
    model.save(tmp_path / "m.json")
    data = json.loads((tmp_path / "m.json").read_text())
    for added in ("format", "version", "digest", "curves", "trees", "parameters", "named", "state"):
        del data[added]
    (tmp_path / "old.json").write_text(type(FILE)(FILE.format, 2, FILE.noun, FILE.error).seal(data))
    assert np.array_equal(dpdescent.load(tmp_path / "old.json").predict(OTHERS), model.predict(OTHERS))


CURVE = {"column": 0, "doublings": 0, "knots": [0.5]}
DAMAGES: dict[str, tuple[str, Any]] = {
    "a curve of no column": ("additive", lambda data: data["curves"][0].update(column=9)),
    "knots out of order": ("additive", lambda data: data["curves"][0]["knots"].reverse()),
    "a missing weight": ("additive", lambda data: data["coefficients"][0].pop()),
    "curves of a linear model": (
        "linear",
        lambda data: data.update(curves=[{"column": 0, "doublings": 0, "knots": []}] * 2),
    ),
    "noise of fewer weights": ("logistic", lambda data: data["state"]["factor"].pop()),
    "a missing leaf": ("trees", lambda data: data["trees"]["trees"][0]["values"].pop()),
    "a question about no column": ("trees", lambda data: data["trees"]["trees"][0]["columns"].__setitem__(0, 77)),
    "a missing edge": ("trees", lambda data: data["trees"]["edges"][0].pop()),
    "a missing start": ("trees", lambda data: data["trees"]["start"].pop()),
    "a parameter that is a list": ("linear", lambda data: data["parameters"].update(alpha=[1])),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_file_whose_parts_do_not_fit_is_refused(name: str, tmp_path: Path) -> None:
    case, damage = DAMAGES[name]
    fitted(case).save(tmp_path / "m.json")
    data = json.loads((tmp_path / "m.json").read_text())
    damage(data)
    for added in ("format", "version", "digest"):
        del data[added]
    (tmp_path / "m.json").write_text(FILE.seal(data))
    with pytest.raises(ModelFormatError, match="is damaged"):
        dpdescent.load(tmp_path / "m.json")


def test_an_edited_file_is_refused(tmp_path: Path) -> None:
    fitted("linear").save(tmp_path / "m.json")
    text = (tmp_path / "m.json").read_text()
    (tmp_path / "m.json").write_text(text.replace('"epsilon": 3.0', '"epsilon": 1.0'))
    with pytest.raises(ModelFormatError, match="changed after it was written"):
        dpdescent.load(tmp_path / "m.json")


def test_modules_of_pytorch_say_what_to_do_instead(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from dpdescent.torch import DPModuleClassifier

    with warnings.catch_warnings(), pytest.raises(UnsupportedModel, match="state_dict"):
        DPModuleClassifier(torch.nn.Linear(3, 2)).save(tmp_path / "m.json")


def test_a_model_of_an_earlier_release_is_read_and_predicts_the_same() -> None:
    """Kept as 0.1.0 has written it: its digest fits, its prices are ours, and its statement says who wrote it."""
    model = dpdescent.load(Path(__file__).parent / "kept" / "model-0.1.0.json")
    assert model.privacy_["library_version"] == "0.1.0"
    assert model.predict_proba([[0.5, 0.25]])[0, 1] == pytest.approx(0.9991001041579619, rel=1e-12)
