"""The command line does what the README says, and its refusals can be acted upon."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dpdescent import load_dataset
from dpdescent.cli import app
from dpdescent.cli.models import SavedModel
from dpdescent.errors import BudgetExhausted, DatasetNotAvailable, ModelFormatError, SchemaError

runner = CliRunner()


def run(*arguments: object) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.fixture
def table(tmp_path: Path) -> Path:
    data = load_dataset("synthetic", n=2500)
    data.table.to_csv(tmp_path / "people.csv", index=False)
    data.schema.dump(tmp_path / "people.schema.json")
    data.table.drop(columns="high_income").head(7).to_csv(tmp_path / "new.csv", index=False)
    return tmp_path


def test_fit_then_predict_from_a_table_and_its_schema(table: Path) -> None:
    output = run(
        "fit",
        table / "people.csv",
        "--schema",
        table / "people.schema.json",
        "--output",
        table / "m.json",
        "--epsilon",
        2,
        "--seed",
        1,
        "--json",
        table / "fit.json",
    )
    assert "(2, 1e-06)-differential privacy for one row" in output
    assert "seeded (not for release)" in output
    privacy = json.loads((table / "fit.json").read_text())["privacy"]
    assert privacy["spent"] <= privacy["budget"]
    predictions = pd.read_csv(pd.io.common.StringIO(run("predict", table / "m.json", table / "new.csv")))
    assert list(predictions.columns) == ["prediction", "probability_0", "probability_1"]
    assert len(predictions) == 7
    run("predict", table / "m.json", table / "new.csv", "--output", table / "out.csv", "--json", table / "p.json")
    assert len(pd.read_csv(table / "out.csv")) == 7
    assert len(json.loads((table / "p.json").read_text())["predictions"]["prediction"]) == 7


def test_svm_and_replace_one_fit_from_the_command_line(table: Path) -> None:
    output = run("fit", "synthetic", "--model", "svm", "--adjacency", "replace-one", "--output", table / "s.json")
    assert "replace-one" in output
    saved = SavedModel.load(table / "s.json")
    data = load_dataset("synthetic")
    assert np.mean(saved.predict(data.X) == data.y) > 0.75
    assert saved.probabilities(data.X) is None


def test_schema_drafts_are_refused_until_they_are_filled_in(table: Path) -> None:
    output = run("schema", table / "people.csv", "--label", "high_income", "--output", table / "draft.json")
    assert "columns.age.type" in output
    with pytest.raises(SchemaError, match="FILL IN"):
        run("fit", table / "people.csv", "--schema", table / "draft.json", "--output", table / "m.json")
    assert not (table / "m.json").exists()


def test_a_ledger_file_pays_for_fits_until_it_refuses(table: Path) -> None:
    account = table / "budget.jsonl"
    assert "spent 0.0%" in run("ledger", account, "--create", "--epsilon", 1)
    run("fit", "synthetic", "--output", table / "m.json", "--epsilon", 0.7, "--ledger", account)
    before = account.read_bytes()
    with pytest.raises(BudgetExhausted, match="lower epsilon"):
        run("fit", "synthetic", "--output", table / "m.json", "--epsilon", 0.9, "--ledger", account)
    assert account.read_bytes() == before
    run("ledger", account, "--json", table / "l.json")
    assert json.loads((table / "l.json").read_text())["mechanisms"]["gaussian"] > 10


def test_datasets_are_listed_with_where_they_are(tmp_path: Path) -> None:
    output = run("datasets", "--json", tmp_path / "d.json")
    assert "synthetic" in output
    assert "built in" in output
    names = {row["name"] for row in json.loads((tmp_path / "d.json").read_text())["datasets"]}
    assert {"adult", "bank", "synthetic", "kddcup99", "mnist"} <= names


def test_demo_prints_the_cost_and_draws_a_picture(tmp_path: Path) -> None:
    output = run(
        "demo",
        "--dataset",
        "synthetic",
        "--seed",
        3,
        "--picture",
        tmp_path / "demo.png",
        "--json",
        tmp_path / "d.json",
    )
    assert "It spent" in output
    assert "gradient" in output
    assert (tmp_path / "demo.png").stat().st_size > 20_000
    report = json.loads((tmp_path / "d.json").read_text())
    assert report["majority"] < report["accuracy"]["1.6"] <= 1


def test_a_missing_file_and_a_foreign_model_are_named_errors(tmp_path: Path) -> None:
    with pytest.raises(DatasetNotAvailable, match="no file"):
        run("fit", tmp_path / "nowhere.csv", "--output", tmp_path / "m.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ModelFormatError, match="not a dpdescent model"):
        run("predict", tmp_path / "other.json", "synthetic")
    (tmp_path / "later.json").write_text('{"format": "dpdescent-model", "version": 99}')
    with pytest.raises(ModelFormatError, match="fit anew"):
        run("predict", tmp_path / "later.json", "synthetic")


def test_a_named_error_is_one_line_and_exit_code_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from dpdescent.cli import main; main()", "predict", "nowhere.json", "synthetic"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("ModelFormatError: there is no model")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
