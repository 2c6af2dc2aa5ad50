"""Journals of long runs are found again, and gone on from, wherever the code has moved since they were begun."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

import dpdescent
from dpdescent.lab.fold_fits import Row, Task
from dpdescent.lab.line_search_paper.network_runs import Network, NetworkFigure, NetworkRuns
from dpdescent.lab.output_perturbation_paper import RiskRow, RiskTable
from dpdescent.lab.output_perturbation_paper.risk_runs import RiskRuns
from dpdescent.lab.output_perturbation_paper.theorems import lower_bound
from dpdescent.lab.second_order_paper import StationaryTable, TableRuns
from dpdescent.lab.study import Study, curves_of, run
from dpdescent.long_runs import Journal
from dpdescent.problems import L2, Logistic

STUDY = Study((Task("synthetic", rows=300),), curves_of(["majority"]), (1.0,), 1e-6, folds=2)
TABLE = StationaryTable("n", "t", "c", (), "synthetic", 1.0, Logistic(), L2(1e-3), (("loose", 0.5),))
RISKS = RiskTable("n", "t", True, False, 0.0, (RiskRow("convex", "here", "x", "n", lower_bound),))
NETWORKS = NetworkFigure("n", "t", "c", (), (Network("net", "mnist", "mlp", (8,)),), 1)


@pytest.fixture(autouse=True)
def version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dpdescent, "__version__", "0.1.0")  # that of the journals


@pytest.mark.parametrize(
    ("runs", "fingerprint"),
    [
        (STUDY, "d66efe29b2d73488"),
        (TableRuns(TABLE, False, "synthetic"), "d87f097f2c99af12"),
        (RiskRuns(RISKS, False), "d88833c7543dac33"),
        (NetworkRuns(NETWORKS, False), "4998378d821d23f0"),
    ],
)
def test_the_name_of_a_journal_depends_on_settings_and_not_on_modules(runs, fingerprint: str) -> None:
    assert runs.fingerprint == fingerprint


def test_texts_and_extents_leave_journals_as_they_are() -> None:
    """What says nothing of the numbers: titles, claims, more seeds; what does: the loss, the steps of quick runs."""
    table = TableRuns(TABLE, True, "synthetic")
    assert TableRuns(replace(TABLE, title="another", seeds=7), True, "synthetic").fingerprint == table.fingerprint
    assert TableRuns(replace(TABLE, penalty=L2(1e-2)), True, "synthetic").fingerprint != table.fingerprint
    assert TableRuns(TABLE, False, "synthetic").fingerprint != table.fingerprint
    risks = RiskRuns(RISKS, True)
    assert RiskRuns(replace(RISKS, title="another"), True, 3).fingerprint == risks.fingerprint
    assert RiskRuns(replace(RISKS, delta=1e-6), True).fingerprint != risks.fingerprint
    assert STUDY.any_cells() == replace(STUDY, epsilons=(1.0, 2.0), seeds=3).any_cells()


def test_a_run_goes_on_from_a_journal_that_was_written_before_the_code_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "dpdescent.long_runs.in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells)
    )
    kept = {"dataset": "synthetic", "method": "majority", "epsilon": 1.0, "delta": 1e-6, "fold": 0, "seed": 0}
    kept |= {"n": 150, "d": 20, "loss": "logistic", "adjacency": "zero-out", "oracle": False, "private": True}
    line = {"cell": "9d7075adfec212d5475aae8a", "row": kept | {"accuracy": 0.125, "seconds": 77.0}}
    output = tmp_path / "page.html"
    (tmp_path / "page.html.d66efe29b2d73488.journal").write_text(json.dumps(line) + "\n")
    with Journal(output, STUDY.fingerprint, Row) as journal:
        record = run(STUDY, jobs=1, journal=journal)
    first, second = record.rows
    assert (first.fold, first.accuracy, first.seconds) == (0, 0.125, 77.0)  # read, and not measured again
    assert second.fold == 1
    assert second.accuracy != 0.125
