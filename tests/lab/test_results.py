"""Full runs of fewer repetitions, the numbers that are kept of them, and the pages made from those numbers."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpdescent.cli import app
from dpdescent.errors import InvalidParameter
from dpdescent.lab.output_perturbation_paper import RISK_TABLES
from dpdescent.lab.output_perturbation_paper.risk_runs import RiskRuns
from dpdescent.lab.paper_figures import Figure, Scale
from dpdescent.lab.reproduction import FIGURES, reproduce
from dpdescent.lab.second_order_paper import STATIONARY_TABLES, TableRuns
from dpdescent.lab.verdicts import cells_of

DOCS = Path(__file__).parents[2] / "docs"


def test_a_full_run_takes_the_repetitions_it_is_told_and_its_page_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dpdescent.long_runs.in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells)
    )
    figure = FIGURES["000/figure2"]
    assert isinstance(figure, Figure)
    small = replace(figure, full=Scale((0.5,), 2, 20, rows=300), methods=("majority",))
    options = {"full": True, "repetitions": 3, "datasets": ("synthetic",)}
    written = reproduce(small, tmp_path, **options, json_file=tmp_path / "rows.json")  # type: ignore[arg-type]
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["seed"], row["fold"]) for row in rows] == [(seed, fold) for seed in range(3) for fold in range(2)]
    command = "dpdescent reproduce 000/figure2 --full --repetitions 3 --data synthetic"
    page = written.page.read_text()
    for text in ("3 of the paper&#x27;s 20 repetitions", command, "<details", "arXiv:1808.09501"):
        assert text in page
    assert len(written.report.caption) < 300
    (cell,) = written.report.cells
    accuracies = [row["accuracy"] for row in rows]
    assert cell["accuracy"] == [
        pytest.approx(np.mean(accuracies), rel=1e-5),
        pytest.approx(np.std(accuracies, ddof=1) / math.sqrt(6), rel=1e-5),
        6,
        pytest.approx(accuracies, rel=1e-5),
    ]
    once = replace(small, full=Scale((0.5,), 2, 1, rows=300))
    whole = reproduce(once, tmp_path / "whole", full=True, datasets=("synthetic",))
    assert "1 repetitions, as in the paper" in whole.report.extent


def test_a_full_run_takes_the_first_folds_if_it_is_told_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dpdescent.long_runs.in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells)
    )
    figure = FIGURES["000/figure2"]
    assert isinstance(figure, Figure)
    small = replace(figure, full=Scale((0.5,), 5, 20, rows=300), methods=("majority",))
    options = {"full": True, "repetitions": 2, "folds": 3, "datasets": ("synthetic",)}
    written = reproduce(small, tmp_path, **options, json_file=tmp_path / "rows.json")  # type: ignore[arg-type]
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert [(row["seed"], row["fold"], row["n"]) for row in rows] == [
        (seed, fold, 240) for seed in range(2) for fold in range(3)
    ]
    assert "3 folds of 5-fold cross-validation, 2 of the paper's 20 repetitions" in written.report.extent
    assert written.report.command == (
        "dpdescent reproduce 000/figure2 --full --repetitions 2 --folds 3 --data synthetic"
    )


def test_tables_take_as_many_seeds_and_repetitions() -> None:
    table = STATIONARY_TABLES[0]
    few, whole = TableRuns(table, True, table.dataset, 2), TableRuns(table, True, table.dataset)
    assert {run.seed for run in few} == {0, 1}
    assert {run.seed for run in whole} == set(range(5))
    assert few.fingerprint == whole.fingerprint != TableRuns(table, False, table.dataset).fingerprint
    assert "2 of the paper's 5 seeds" in few.extent
    assert "5 seeds, as in the paper" in whole.extent
    risks = RISK_TABLES[5]
    for repetitions, most in ((7, 7), (None, 200)):
        seeds = [trial.seed for trial in RiskRuns(risks, True, repetitions)]
        assert max(seeds) + 1 == most
    assert len({RiskRuns(risks, True, count).fingerprint for count in (None, 1, 2)}) == 1


@pytest.mark.parametrize(
    ("given", "remedy"),
    [
        (["000/figure2", "--repetitions", "2"], "add --full"),
        (["000/figure2", "--full", "--repetitions", "0"], "repetitions"),
        (["000/figure2", "--folds", "2"], "add --full"),
        (["000/figure2", "--full", "--folds", "0"], "folds"),
        (["000/figure2", "--full", "--folds", "6"], "at most 5"),
        (["001/table1", "--full", "--folds", "2"], "leave --folds out"),
        (["001/table1", "--full", "--steps", "2"], "leave --steps out"),
        (["002/ijcnn1", "--steps", "2"], "add --full"),
        (["003/figure5", "--steps", "2"], "add --full"),
        (["002/ijcnn1", "--full", "--steps", "0"], "steps"),
    ],
)
def test_repetitions_and_folds_are_those_of_a_full_run(tmp_path: Path, given: list[str], remedy: str) -> None:
    result = CliRunner().invoke(app, ["reproduce", *given, "--output", str(tmp_path / "out")])
    assert isinstance(result.exception, InvalidParameter)
    assert remedy in str(result.exception)
    assert not list(tmp_path.iterdir())


def test_all_figures_are_run_with_their_extents_and_the_verdicts_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dpdescent.long_runs.in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells)
    )
    figure = FIGURES["000/figure2"]
    assert isinstance(figure, Figure)
    small = replace(figure, quick=Scale((0.05,), 2, 1, rows=300), methods=("majority", "agd-paper"))
    monkeypatch.setattr("dpdescent.lab.reproduction.FIGURES", {"000/figure2": small})
    words = ["reproduce", "--all", "--data", "synthetic", "--output", str(tmp_path)]
    said = CliRunner().invoke(app, words, catch_exceptions=False).output
    assert "000/figure2: Quick run: 1 value of epsilon" in said
    assert said.rstrip().splitlines()[-1].startswith("verdicts: ")
    for wrong in (["000/figure2", "--all"], ["--all", "--json", str(tmp_path / "rows.json")]):
        assert isinstance(CliRunner().invoke(app, ["reproduce", *wrong]).exception, InvalidParameter)


def test_a_cell_is_what_its_repetitions_gave() -> None:
    rows = [
        {"method": "a", "value": None, "epsilon": 1.0, "accuracy": 0.5, "auc": None},
        {"method": "a", "value": None, "epsilon": 1.0, "accuracy": 0.7, "auc": None},
        {"method": "a", "value": 0.0, "epsilon": 1.0, "accuracy": 0.1234567, "auc": 1.0},
    ]
    assert cells_of(rows, ("method", "value", "epsilon"), ("accuracy", "auc")) == (
        {"method": "a", "epsilon": 1.0, "accuracy": [0.6, 0.1, 2, [0.5, 0.7]]},
        {"method": "a", "value": 0.0, "epsilon": 1.0, "accuracy": [0.123457, None, 1], "auc": [1.0, None, 1]},
    )
