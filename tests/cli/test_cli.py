"""The command line does what the README says, and its refusals can be acted upon."""

from __future__ import annotations

import json
import re
import sqlite3
import subprocess
import sys
from datetime import datetime, timedelta
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from dpdescent import Ledger, load_dataset
from dpdescent.cli import app
from dpdescent.cli.public_knowledge import read_classes
from dpdescent.errors import (
    BudgetExhausted,
    DatasetFormatError,
    DatasetNotAvailable,
    DPDescentError,
    InvalidParameter,
    LedgerFormatError,
    ModelFormatError,
    OutputNotWritable,
    SchemaError,
)
from dpdescent.estimators.saved_models import SavedModel

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
    assert "(2, 1e-06)-differentially private for one row under zero-out.\n" in output
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
    predictions = pd.read_csv(pd.io.common.StringIO(run("predict", table / "s.json", "synthetic")))
    assert list(predictions.columns) == ["prediction", "score"]
    np.testing.assert_array_equal(predictions["prediction"] == data.classes[1], predictions["score"] > 0)


def test_schema_drafts_are_refused_until_they_are_filled_in(table: Path) -> None:
    output = run("schema", table / "people.csv", "--label", "high_income", "--output", table / "draft.json")
    assert "columns.age.type" in output
    with pytest.raises(SchemaError, match="FILL IN"):
        run("fit", table / "people.csv", "--schema", table / "draft.json", "--output", table / "m.json")
    assert not (table / "m.json").exists()


def test_a_ledger_file_pays_for_fits_until_it_refuses(table: Path) -> None:
    account = table / "budget.ledger"
    assert "spent 0.0%" in run("ledger", account, "--create", "--epsilon", 1)
    run("fit", "synthetic", "--output", table / "m.json", "--epsilon", 0.7, "--ledger", account)
    before = Ledger.open(account).to_json()
    with pytest.raises(BudgetExhausted, match="lower epsilon"):
        run("fit", "synthetic", "--output", table / "m.json", "--epsilon", 0.9, "--ledger", account)
    assert Ledger.open(account).to_json() == before
    run("ledger", account, "--json", table / "l.json")
    assert json.loads((table / "l.json").read_text())["mechanisms"]["gaussian"] > 10


def test_a_ledger_is_shown_listed_exported_and_verified(table: Path) -> None:
    account = table / "budget.ledger"
    assert "left: a fit of epsilon 2 at delta 1e-06" in run("ledger", "create", account, "--epsilon", 2)
    run("fit", "synthetic", "--output", table / "m.json", "--epsilon", 0.5, "--ledger", account)
    shown = run("ledger", "show", account, "--json", table / "s.json")
    assert shown == run("ledger", account)
    left = json.loads((table / "s.json").read_text())["left"]
    assert set(left) == {"epsilon", "gdp", "zcdp", "pure"}
    assert 1.7 < left["epsilon"] < 2.0
    listed = run("ledger", "history", account, "--json", table / "h.json")
    named = r"\S+ \S+ UTC  DPLogisticRegression, method auto: \d+ charges, [\d.]+% of the budget, model "
    assert re.fullmatch(f"{named}{re.escape(str(table))}/m.json\n", listed)
    (line,) = json.loads((table / "h.json").read_text())["history"]
    assert (line["state"], line["model"]) == ("settled", str(table / "m.json"))
    assert datetime.fromisoformat(line["date"]).utcoffset() == timedelta(0)
    assert line["spent"] == pytest.approx(Ledger.open(account).spent)
    exported = json.loads(run("ledger", "export", account))
    assert len(exported["entries"]) == line["charges"] > 10
    assert exported["id"] == Ledger.open(account).identity
    run("ledger", "export", account, "--output", table / "e.json")
    assert json.loads((table / "e.json").read_text()) == exported
    assert "is whole" in run("ledger", "verify", account)
    with sqlite3.connect(account) as edited:
        edited.execute("UPDATE records SET record = replace(record, 'gaussian', 'Gaussian') WHERE number = 2")
    edited.close()
    for command in ("show", "history", "export", "verify"):
        with pytest.raises(LedgerFormatError, match="changed from outside at record 2"):
            run("ledger", command, account)


def test_a_ledger_of_an_earlier_release_is_imported_by_a_command(tmp_path: Path) -> None:
    head = {"format": "dpdescent-ledger", "version": 1, "epsilon": 1.0, "delta": 1e-06, "currency": {"name": "zcdp"}}
    head |= {"relation": "zero-out", "unit": "one row"}
    entry = {"label": "gradient", "cost": {"kind": "gaussian", "noise_multiplier": 40.0}, "price": 0.0003125}
    (tmp_path / "old.jsonl").write_text(f"{json.dumps(head)}\n{json.dumps(entry)}\n")
    with pytest.raises(LedgerFormatError, match="dpdescent ledger import"):
        run("ledger", "show", tmp_path / "old.jsonl")
    assert "1 x gaussian" in run("ledger", "import", tmp_path / "old.jsonl", tmp_path / "new.ledger")
    assert "1 x gaussian" in run("ledger", "show", tmp_path / "new.ledger")


@pytest.fixture
def arrays(tmp_path: Path) -> Path:
    """Return an NPZ file whose columns have units of their own, beside it one with the features alone."""
    generator = np.random.default_rng(0)
    X = generator.random((3000, 3)) * [10.0, 200.0, 1.0] - [5.0, 0.0, 0.0]
    y = np.where(X[:, 0] + generator.normal(0, 1, 3000) > 0, "sick", "well")
    np.savez(tmp_path / "table.npz", X=X, y=y)
    np.savez(tmp_path / "new.npz", X=X)
    np.savez(tmp_path / "numbers.npz", X=X, y=3 * X[:, 0] + 1)
    return tmp_path


def test_arrays_are_fitted_with_public_bounds_and_classes_and_predicted_in_their_own_units(arrays: Path) -> None:
    run(
        *("fit", arrays / "table.npz", "--output", arrays / "m.json", "--seed", 1, "--epsilon", 2),
        *("--bounds", "[-5,0,0],[5,200,1]", "--classes", "sick,well"),
    )
    run("predict", arrays / "m.json", arrays / "new.npz", "--output", arrays / "out.csv")
    predicted = pd.read_csv(arrays / "out.csv")["prediction"]
    with np.load(arrays / "table.npz") as held:
        assert np.mean(predicted == held["y"]) > 0.8
        outside = np.vstack([held["X"] + 1e6, held["X"] - 1e6])
    np.savez(arrays / "outside.npz", X=outside)
    run("predict", arrays / "m.json", arrays / "outside.npz", "--json", arrays / "p.json")
    probabilities = json.loads((arrays / "p.json").read_text())["predictions"]["probability_sick"]
    assert len(set(probabilities)) == 2, "cells outside the bounds count as the bounds"
    with pytest.raises(ModelFormatError, match="NPZ file"):
        run("predict", arrays / "m.json", "synthetic")
    np.savez(arrays / "narrow.npz", X=outside[:, :2])
    with pytest.raises(ModelFormatError, match="3 features and the table 2"):
        run("predict", arrays / "m.json", arrays / "narrow.npz")


def test_one_pair_of_bounds_serves_all_columns_and_may_be_negative(arrays: Path) -> None:
    run("fit", arrays / "table.npz", "--output", arrays / "m.json", "--bounds", "-5,200", "--classes", "sick,well")
    assert SavedModel.load(arrays / "m.json").bounds == [[-5.0] * 3, [200.0] * 3]


def test_regression_on_arrays_takes_target_bounds(arrays: Path) -> None:
    run(
        *("fit", arrays / "numbers.npz", "--model", "regression", "--output", arrays / "m.json", "--epsilon", 4),
        *("--bounds", "[-5,0,0],[5,200,1]", "--target-bounds", "-15,17", "--seed", 1),
    )
    run("predict", arrays / "m.json", arrays / "new.npz", "--output", arrays / "out.csv")
    with np.load(arrays / "numbers.npz") as held:
        assert np.corrcoef(pd.read_csv(arrays / "out.csv")["prediction"], held["y"])[0, 1] > 0.95


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((), "needs --classes A,B, .*choose --model regression"),
        (("--bounds", "0,1"), "needs --classes A,B"),
        (("--bounds", "0,1", "--classes", "a,b", "--target-bounds", "0,1"), "keep one"),
        (("--bounds", "0", "--classes", "sick,well"), "two numbers"),
        (("--bounds", "0,true", "--classes", "sick,well"), "two numbers"),
        (("--bounds", "low,high", "--classes", "sick,well"), "two numbers"),
        (("--bounds", "1,0", "--classes", "sick,well"), "low < high"),
        (("--bounds", "0,1", "--classes", "sick"), "two public classes or more"),
        (("--bounds", "0,1", "--target-bounds", "[0],[1]", "--model", "regression"), "real numbers"),
    ],
)
def test_arrays_without_public_knowledge_are_refused_with_the_options_to_type(
    arrays: Path, options: tuple[str, ...], message: str
) -> None:
    run("ledger", arrays / "budget.ledger", "--create")
    with pytest.raises(DPDescentError, match=message):
        run(
            *("fit", arrays / "table.npz", "--output", arrays / "m.json", "--ledger", arrays / "budget.ledger"),
            *options,
        )
    assert Ledger.open(arrays / "budget.ledger").history == ()
    assert not (arrays / "m.json").exists()


def test_a_table_without_a_schema_is_refused_with_the_command_that_drafts_one(table: Path) -> None:
    with pytest.raises(InvalidParameter, match=r"--schema FILE.*dpdescent schema .*people.csv --label"):
        run("fit", table / "people.csv", "--output", table / "m.json")


def test_classes_are_literals_or_text() -> None:
    assert read_classes("0,1") == [0, 1]
    assert read_classes('"0", "1"') == ["0", "1"]
    assert read_classes("<=50K, >50K") == ["<=50K", ">50K"]
    assert read_classes('["a,b", 2.5, true]') == ["a,b", 2.5, True]
    assert read_classes("[0, 1") == ["[0", 1]


def test_settings_reach_the_method_as_literals_or_text(table: Path) -> None:
    settings = ("--set", "iterations=3", "--set", "whitening=false", "--set", "currency=zcdp", "--set", "clip=null")
    run(
        *("fit", table / "people.csv", "--schema", table / "people.schema.json", "--output", table / "m.json"),
        *("--json", table / "fit.json", *settings),
    )
    privacy = json.loads((table / "fit.json").read_text())["privacy"]
    assert json.loads((table / "m.json").read_text())["privacy"]["asked"] == privacy["asked"]
    asked = {label: count for label, count in privacy["asked"].items() if "gradient" in label}
    assert asked == {"gradient and curvature": 3, "gradient": 3}  # steps, and the intercept at the end
    assert privacy["currency"] == {"name": "zcdp"}
    assert "without their covariance" in privacy["remarks"][0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (("steps=5",), "has no setting 'steps': it takes share_norm, share_columns, .*iterations, clip"),
        (("iterations=ten",), "'iterations' of method 'auto' must be a whole number, got 'ten'"),
        (("iterations=2.5",), "must be a whole number, got 2.5"),
        (("iterations=true",), "must be a whole number, got True"),
        (("whitening=1",), "must be true or false, got 1"),
        (("clip=-1",), "clip must lie in"),
        (("iterations=3", "iterations=4"), "given twice"),
        (("iterations",), "NAME=VALUE"),
        (("=3",), "NAME=VALUE"),
    ],
)
def test_a_setting_that_the_method_lacks_is_refused_before_anything_is_charged(
    table: Path, settings: tuple[str, ...], message: str
) -> None:
    run("ledger", table / "budget.ledger", "--create", "--epsilon", 3)
    with pytest.raises(InvalidParameter, match=message):
        run(
            *("fit", "synthetic", "--output", table / "m.json", "--ledger", table / "budget.ledger"),
            *(word for setting in settings for word in ("--set", setting)),
        )
    assert Ledger.open(table / "budget.ledger").history == ()


def test_a_file_without_the_public_number_of_rows_is_refused_before_anything_is_charged(table: Path) -> None:
    schema = json.loads((table / "people.schema.json").read_text())
    (table / "people.schema.json").write_text(json.dumps(schema | {"rows": 2500}))
    fit = ("fit", table / "people.csv", "--schema", table / "people.schema.json", "--output", table / "m.json")
    run(*fit)
    lines = (table / "people.csv").read_text().splitlines(keepends=True)
    (table / "people.csv").write_text("".join(lines[:-1]))
    run("ledger", table / "budget.ledger", "--create", "--epsilon", 3)
    with pytest.raises(DatasetFormatError, match="does not have the 2500 rows"):
        run(*fit, "--ledger", table / "budget.ledger")
    assert Ledger.open(table / "budget.ledger").history == ()
    run("predict", table / "m.json", table / "new.csv")


def test_a_place_where_no_model_can_be_written_is_refused_before_anything_is_charged(table: Path) -> None:
    run("ledger", table / "budget.ledger", "--create", "--epsilon", 3)
    for option in ("--output", "--json"):
        files = {"--output": table / "m.json", "--json": table / "fit.json", option: table}
        with pytest.raises(OutputNotWritable, match="it is a folder"):
            run(
                "fit",
                "synthetic",
                "--ledger",
                table / "budget.ledger",
                *(word for pair in files.items() for word in pair),
            )
    assert Ledger.open(table / "budget.ledger").history == ()


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
    with pytest.raises(DatasetNotAvailable, match="is not there"):
        run("fit", tmp_path / "nowhere.csv", "--output", tmp_path / "m.json")
    (tmp_path / "other.json").write_text("{}")
    with pytest.raises(ModelFormatError, match="not a dpdescent model"):
        run("predict", tmp_path / "other.json", "synthetic")
    (tmp_path / "later.json").write_text('{"format": "dpdescent-model", "version": 99}')
    with pytest.raises(ModelFormatError, match=r"version 99 .* update dpdescent"):
        run("predict", tmp_path / "later.json", "synthetic")


def test_a_named_error_is_one_line_and_exit_code_one(tmp_path: Path) -> None:
    command = [sys.executable, "-c", "from dpdescent.cli import main; main()", "predict", "nowhere.json", "synthetic"]
    result = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, check=False)
    assert result.returncode == 1
    assert result.stderr.startswith("ModelFormatError: there is no model")
    assert result.stderr.count("\n") == 1
    assert "Traceback" not in result.stderr
