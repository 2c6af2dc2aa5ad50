"""The command ``evaluate``: what it prints, writes and refuses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpdescent import Evaluation, Ledger, load_dataset
from dpdescent.cli import app
from dpdescent.errors import DPDescentError, InvalidParameter, ModelFormatError, OutputNotWritable
from dpdescent.estimators.saved_models import SavedModel

runner = CliRunner()


def run(*arguments: object) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("evaluate")
    data = load_dataset("synthetic", n=3000)
    data.table.head(1500).to_csv(place / "people.csv", index=False)
    later = data.table.tail(1500).assign(who=np.arange(1500) // 2)
    later.drop(columns="who").to_csv(place / "june.csv", index=False)
    later.drop(columns="who").to_parquet(place / "june.parquet")
    data.schema.dump(place / "schema.json")
    shared = ("--epsilon", 3, "--seed", 1, "--output")
    run("fit", place / "people.csv", "--schema", place / "schema.json", *shared, place / "model.json")
    np.savez(place / "arrays.npz", X=data.X[:1500], y=data.y[:1500])
    asked = ("--bounds", "0,1", "--classes", "0,1", *shared)
    run("fit", place / "arrays.npz", *asked, place / "arrays.json")
    run("fit", place / "arrays.npz", "--model", "svm", *asked, place / "svm.json")
    return place


def test_an_evaluation_is_printed_written_and_paid_for(folder: Path) -> None:
    Ledger(2.0, 1e-6, currency="gdp", path=folder / "budget.ledger")
    output = run(
        *("evaluate", folder / "model.json", folder / "june.csv", "--epsilon", 0.5),
        *("--ledger", folder / "budget.ledger", "--html", folder / "page.html", "--json", folder / "june.json"),
    )
    assert "(0.5, 1e-07)-differentially private for one row under zero-out.\n" in output
    assert "accuracy" in output
    assert "above a probability of 0.5" in output
    found = Evaluation.load(folder / "june.json")
    assert f"{found.accuracy.value:.4g}" in output
    assert found.model == "DPLogisticRegression"
    assert "ROC curve" in (folder / "page.html").read_text()
    (line,) = Ledger.open(folder / "budget.ledger").history
    assert line.entry.label == "evaluation of DPLogisticRegression"
    again = run(
        "evaluate", folder / "model.json", folder / "june.csv", "--epsilon", 0.5, "--against", folder / "june.json"
    )
    assert "No change of scores is seen" in again or "distributed otherwise" in again


def test_parquet_arrays_and_data_sets_are_evaluated(folder: Path) -> None:
    asked = ("--epsilon", 1, "--seed", 0)
    text = run("evaluate", folder / "model.json", folder / "june.csv", *asked)
    assert run("evaluate", folder / "model.json", folder / "june.parquet", *asked) == text
    assert "accuracy" in run("evaluate", folder / "arrays.json", folder / "arrays.npz", *asked)
    assert "above a score of 0" in run("evaluate", folder / "svm.json", folder / "arrays.npz", *asked)


def test_scores_of_a_saved_model_are_those_of_its_predictions(folder: Path) -> None:
    saved, X = SavedModel.load(folder / "arrays.json"), np.load(folder / "arrays.npz")["X"][:100]
    scores = saved.row_scores(saved.scaled(X))
    first, second = saved.probabilities(saved.scaled(X)).T
    assert np.allclose(scores, np.log(second / first))
    assert np.array_equal(scores[50:], saved.row_scores(saved.scaled(X[50:])))


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("model.json", "nothing.csv"), DPDescentError),
        (("june.csv", "june.csv"), ModelFormatError),
        (("model.json", "june.csv", "--epsilon", "0.001"), InvalidParameter),
        (("model.json", "june.csv", "--json", "model.json"), OutputNotWritable),
        (("model.json", "june.csv", "--threshold", "2"), InvalidParameter),
        (("model.json", "june.csv", "--against", "schema.json"), DPDescentError),
        (("arrays.json", "arrays.npz", "--unit", "who"), InvalidParameter),
    ],
)
def test_what_is_wrong_is_a_named_error(folder: Path, arguments: tuple[str, ...], error: type[Exception]) -> None:
    typed = [str(folder / each) if "." in each and not each[0].isdigit() else each for each in arguments]
    result = runner.invoke(app, ["evaluate", *typed])
    assert isinstance(result.exception, error)
