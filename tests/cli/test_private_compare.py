"""``compare --private``: every fit and every evaluation is paid for, and nothing is begun that cannot be paid for."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dpdescent import DPLogisticRegression, Ledger, load_dataset
from dpdescent.cli import app
from dpdescent.errors import BudgetExhausted, DPDescentError, InvalidParameter
from dpdescent.evaluation.one_budget import compare_privately

runner = CliRunner()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    data = load_dataset("synthetic", n=2500)
    data.table.to_csv(tmp_path / "people.csv", index=False)
    data.schema.dump(tmp_path / "schema.json")
    Ledger(2.0, 1e-6, currency="gdp", path=tmp_path / "budget.ledger")
    return tmp_path


def arguments(folder: Path, *more: object) -> list[str]:
    words = ["compare", "--data", folder / "people.csv", "--schema", folder / "schema.json", "--delta", 1e-6, *more]
    return [str(each) for each in words]


def test_a_private_comparison_is_paid_for_and_written(folder: Path) -> None:
    outputs = ("--json", folder / "found.json", "--html", folder / "found.html")
    asked = ("--private", "--ledger", folder / "budget.ledger", "--methods", "auto,agd,majority", "--epsilon", 0.8)
    result = runner.invoke(app, arguments(folder, *asked, *outputs), catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "NOT PRIVATE" not in result.output
    assert "accuracy 0." in result.output
    found = json.loads((folder / "found.json").read_text())
    assert [each["name"] for each in found["candidates"]] == ["auto at 0.8", "agd at 0.8", "majority at 0.8"]
    ledger = Ledger.open(folder / "budget.ledger")
    assert 0 < ledger.spent <= ledger.budget
    assert found["ledger"]["spent"] == ledger.spent
    paid = [line for line in ledger.history if "evaluation" in line.entry.label]
    assert len(paid) == sum(not each["error"] for each in found["candidates"])
    assert "Every fit and every evaluation was paid for" in (folder / "found.html").read_text()


def test_nothing_is_begun_that_the_ledger_cannot_pay_for(folder: Path) -> None:
    asked = ("--private", "--ledger", folder / "budget.ledger", "--methods", "auto,agd", "--epsilon", "1,1.5")
    result = runner.invoke(app, arguments(folder, *asked))
    assert isinstance(result.exception, BudgetExhausted)
    assert not Ledger.open(folder / "budget.ledger").entries


@pytest.mark.parametrize(
    "more",
    [
        ("--private",),
        ("--ledger", "budget.ledger"),
        ("--private", "--ledger", "budget.ledger", "--folds", "3"),
        ("--private", "--ledger", "budget.ledger", "--oracle"),
        ("--private", "--ledger", "budget.ledger", "--loss", "hinge"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(folder: Path, more: tuple[str, ...]) -> None:
    typed = [str(folder / each) if each.endswith(".ledger") else each for each in more]
    result = runner.invoke(app, arguments(folder, *typed))
    assert isinstance(result.exception, InvalidParameter)
    assert not Ledger.open(folder / "budget.ledger").entries


def test_a_refused_candidate_is_not_charged_and_the_others_go_on() -> None:
    data, ledger = load_dataset("synthetic", n=2000), Ledger(3.0, 1e-6, currency="zcdp")
    public = {"bounds": data.bounds, "classes": data.classes}
    candidates = {
        "auto": DPLogisticRegression(1.0, 1e-6, **public),
        "other relation": DPLogisticRegression(1.0, 1e-6, adjacency="replace-one", **public),
    }
    first, second = compare_privately(candidates, data.X, data.y, ledger)
    assert first.accuracy.low < first.accuracy.high
    assert "relation" in second.error
    assert len(ledger.history) == 1
    with pytest.raises(DPDescentError, match="ledger of its own"):
        compare_privately({"a": DPLogisticRegression(ledger=ledger, **public)}, data.X, data.y, ledger)
