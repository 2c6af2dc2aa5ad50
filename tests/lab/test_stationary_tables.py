"""Tables of second-order descents: rows that say what was asked for, and pages that mark what did not end."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdescent.errors import InvalidParameter
from dpdescent.lab import second_order_paper
from dpdescent.lab.reproduction import FIGURES, Written, reproduce
from dpdescent.lab.second_order_paper import (
    Outcome,
    Run,
    StationaryTable,
    TableRuns,
    measure_table,
)
from dpdescent.problems import LinearProblem

TABLES = [table for table in FIGURES.values() if isinstance(table, StationaryTable)]
COLUMNS = "method, tolerance, epsilon, seed, loss, seconds, iterations, hessians, success, spent_epsilon"


@pytest.fixture(scope="module")
def small() -> StationaryTable:
    return replace(
        TABLES[0],
        quick_tolerances=(("loose", 5.0), ("tight", 1e-3)),
        quick_seeds=1,
        methods=("dp-tr", "opt", "2opt-ls"),
        epsilons=(5.0, 50.0),
        quick_steps=4,
    )


@pytest.fixture(scope="module")
def written(small: StationaryTable, tmp_path_factory: pytest.TempPathFactory) -> Written:
    folder = tmp_path_factory.mktemp("table")
    return reproduce(small, folder, datasets=("synthetic",), json_file=folder / "rows.json")


def test_the_papers_tables_are_there_with_its_tolerances_and_budgets() -> None:
    assert [table.name for table in TABLES] == [
        "002/covertype",
        "002/ijcnn1",
        "002/covertype-sigmoid",
        "002/ijcnn1-sigmoid",
    ]
    assert [dict(table.tolerances)["loose"] for table in TABLES] == [0.06, 0.04, 0.04, 0.04]
    assert [dict(table.tolerances)["tight"] for table in TABLES] == [0.03, 0.02, 0.02, 0.02]
    for table in TABLES:
        assert (table.epsilons, table.seeds) == ((0.2, 0.6, 1.0), 5)
        assert table.training == ("ijcnn1" in table.name)
        assert ("49,990 rows of the training file" in table.caption) == table.training
        assert "zero-out" in table.caption
        assert table.row_bound**2 == pytest.approx(12 if "covertype" in table.name else 13)


def test_rows_carry_the_promised_columns_and_stay_within_their_budgets(written: Written) -> None:
    content = json.loads((written.page.parent / "rows.json").read_text())
    rows = content["rows"]
    assert len(rows) == 2 * 2 * 3
    for row in rows:
        assert list(row) == COLUMNS.split(", ") == [field.name for field in fields(Outcome)]
        assert 0 < row["spent_epsilon"] <= row["epsilon"]
        assert row["success"] == (row["tolerance"] == "loose")
        # Two phases give up twice.
        assert row["success"] or row["iterations"] == (8 if row["method"] == "2opt-ls" else 4)
    assert content["figure"] == "002/covertype"


def test_the_page_crosses_out_what_did_not_end_and_checks_the_claims(written: Written) -> None:
    page = written.page.read_text()
    assert [path.suffix for path in written.pictures] == [".png", ".svg"]
    assert all(path.exists() for path in written.pictures)
    assert page.count(" ×</td>") == 2 * 3
    assert "Run on synthetic instead of the paper" in page
    assert len(written.findings) == 2 * 3  # other budgets than the paper's leave out what it says of 0.2, 0.6 and 1
    assert "TR minus 2OPT-LS in seconds" in written.findings[0].found
    assert written.findings[2].found == "Agrees: all runs end."
    assert written.findings[5].found.startswith("Differs: it does not always end at epsilon 5, 50")


def outcome(method: str, epsilon: float, seed: int, **found: Any) -> Outcome:
    values = {"loss": 0.7, "seconds": 1.0, "iterations": 5, "hessians": 1, "success": True, "spent_epsilon": 0.1}
    return Outcome(method=method, tolerance="quick", epsilon=epsilon, seed=seed, **(values | found))


@pytest.mark.parametrize(("slower", "verdict"), [(3.0, "Agrees"), (-0.5, "Differs"), (0.0, "Within noise")])
def test_claims_about_the_trust_region_follow_the_seeds(slower: float, verdict: str) -> None:
    """Made-up runs of three seeds; those of `dp-tr` take longer by a number that varies by 0.1."""
    runs = TableRuns(TABLES[0], False, "covertype")
    made = [
        outcome(
            method,
            epsilon,
            seed,
            loss=0.6 if method == "opt" else 0.7 + seed / 100,
            seconds=1.0 + (slower + 0.1 * (seed - 1) if method == "dp-tr" else 0.0),
            iterations=50 + (round(40 * slower) + seed - 1 if method == "dp-tr" else 0),
            hessians=10 + seed if method == "dp-tr" else 1,
        )
        for method in TABLES[0].methods
        for epsilon in TABLES[0].epsilons
        for seed in range(3)
    ]
    samples = second_order_paper.samples_of(made)
    findings = second_order_paper.table_findings(TABLES[0], runs.tolerances, samples)
    found = {each.claim: each.found for each in findings}
    assert len(found) == 10
    assert found["quick: DP-GD, with the steps of its own paper, gives nothing of practical use."].startswith(
        "Differs"
    )
    assert found["quick: OPT takes less time than TR at epsilon 0.6 and 1."].startswith(verdict)
    assert found["quick: OPT needs fewer iterations than TR at epsilon 0.6 and 1."].startswith(verdict)
    assert found["quick: 2OPT-LS takes less time than TR at every epsilon."].startswith(verdict)
    assert found["quick: OPT ends at a lower loss than TR at epsilon 0.6 and 1."].startswith("Agrees")


@pytest.mark.parametrize(("faster", "verdict"), [(0.5, "Agrees"), (-0.5, "Differs")])
def test_searches_and_batches_improve_on_opt_if_both_save_time(faster: float, verdict: str) -> None:
    seconds = {"opt": 2.0, "opt-ls": 2.0 - faster, "opt-b": 2.0 - faster}
    made = [
        outcome(method, epsilon, seed, seconds=seconds.get(method, 1.0) + seed / 100, success=method != "dp-gd")
        for method in TABLES[0].methods
        for epsilon in TABLES[0].epsilons
        for seed in range(5)
    ]
    samples = second_order_paper.samples_of(made)
    findings = second_order_paper.table_findings(TABLES[0], (("quick", 0.06),), samples)
    found = {each.claim: each.found for each in findings}
    assert found["quick: Line search and mini-batches each improve on OPT."].startswith(verdict)
    given = "quick: DP-GD, with the steps of its own paper, gives nothing of practical use."
    assert found[given] == "Agrees: runs that end: 0% at 0.2, 0% at 0.6, 0% at 1."


def test_a_full_run_is_given_up_after_the_steps_it_is_told() -> None:
    table = TABLES[1]
    whole, few = (TableRuns(table, True, table.dataset, 2, steps) for steps in (None, 300))
    assert (whole.most_steps, few.most_steps) == (None, 300)
    assert whole.fingerprint != few.fingerprint
    assert "to the ends of their plans" in whole.extent
    assert "given up after 300 steps of a phase" in few.extent


def test_what_the_paper_prints_stands_beside_what_was_found() -> None:
    table = next(each for each in TABLES if each.name == "002/ijcnn1-sigmoid")
    assert table.printed_at("loose", "2opt-ls", 0.2) == 1.002
    assert table.printed_at("loose", "2opt", 0.2) is None
    assert table.printed_at("loose", "dp-tr", 0.6) is None
    made = [
        replace(outcome(method, epsilon, seed, loss=0.25, success=False), tolerance="loose")
        for method in table.methods
        for epsilon in table.epsilons
        for seed in range(2)
    ]
    runs = TableRuns(table, True, table.dataset, 2)
    matrix = second_order_paper._matrix(runs, made, "loose", 0.04, "loss")
    (line,) = [row for row in matrix.rows if row[0] == "2OPT-LS"]
    assert line[1:] == ("0.250 ± 0.000 (1.002)", "0.250 ± 0.000 (0.501)", "0.250 ± 0.000 (0.501)")
    panels = second_order_paper.table_panels(table, (("loose", 0.04),), second_order_paper.samples_of(made))
    (drawn,) = [line for line in panels[0].lines if line.look.name == "2OPT-LS"]
    assert drawn.printed == ((0.2, 1.002), (0.6, 0.501), (1.0, 0.501))
    assert drawn.failed == drawn.x == (0.2, 0.6, 1.0)


def test_every_column_has_its_spread_and_only_seconds_a_cross() -> None:
    runs = [outcome("opt", 1.0, seed, seconds=1 + seed, hessians=seed, success=seed > 0) for seed in range(2)]
    cells = [second_order_paper._cell(runs, field) for field in ("loss", "seconds", "iterations", "hessians")]
    assert cells == ["0.700 ± 0.000", "1.50 ± 0.50 ×", "5.0 ± 0.0", "0.5 ± 0.5"]


def test_the_loss_of_a_row_is_that_of_the_weights_it_ended_at(small: StationaryTable, monkeypatch) -> None:
    table = replace(small, quick_tolerances=(("loose", 100.0),), methods=("opt",), epsilons=(50.0,))
    seen: list[np.ndarray] = []
    plain = LinearProblem.penalty_value

    def watched(problem: LinearProblem, weights: np.ndarray) -> float:
        seen.append(weights)
        return plain(problem, weights)

    monkeypatch.setattr(LinearProblem, "penalty_value", watched)
    (outcome,) = measure_table(TableRuns(table, False, "synthetic"))
    # Any point passes such tolerances, so the run ends where it starts: at standard normal weights.
    assert (outcome.iterations, outcome.hessians, outcome.success) == (0, 1, True)
    assert 0.3 < seen[-1].std() < 3
    assert outcome.loss > 0.1


def test_a_data_set_of_many_classes_is_refused(small: StationaryTable, tmp_path: Path, monkeypatch) -> None:
    plain = second_order_paper.load_task(second_order_paper.Task("synthetic"), download=True)
    monkeypatch.setattr(second_order_paper, "load_task", lambda *_, **__: replace(plain, classes=(0, 1, 2)))
    with pytest.raises(InvalidParameter, match="two classes"):
        reproduce(small, tmp_path, datasets=("synthetic",))


def test_a_killed_table_goes_on_where_it_was(small: StationaryTable, tmp_path: Path, monkeypatch) -> None:
    table = replace(small, quick_tolerances=(("loose", 100.0),), methods=("opt", "2opt"))
    whole = reproduce(table, tmp_path / "whole", datasets=("synthetic",), json_file=tmp_path / "whole.json")
    plain, measured, kills = second_order_paper._measure, [], []

    def killed_at_the_third(run: Run, *others: Any) -> Outcome:
        if len(measured) == 3 and not kills:
            kills.append(run)
            raise KeyboardInterrupt
        measured.append(run)
        return plain(run, *others)

    monkeypatch.setattr(second_order_paper, "_measure", killed_at_the_third)
    with pytest.raises(KeyboardInterrupt):
        reproduce(table, tmp_path / "killed", datasets=("synthetic",), json_file=tmp_path / "killed.json")
    reproduce(table, tmp_path / "killed", datasets=("synthetic",), json_file=tmp_path / "killed.json")
    assert measured == list(TableRuns(table, False, "synthetic"))
    rows = [json.loads((tmp_path / name).read_text())["rows"] for name in ("whole.json", "killed.json")]
    assert [row | {"seconds": 0} for row in rows[0]] == [row | {"seconds": 0} for row in rows[1]]
    for folder in (whole.page.parent, tmp_path / "killed"):
        assert {path.name for path in folder.iterdir()} == {path.name for path in (whole.page, *whole.pictures)}
    other = replace(table, delta=1e-7)
    assert TableRuns(other, False, "synthetic").fingerprint != TableRuns(table, False, "synthetic").fingerprint


def test_a_table_that_is_refused_leaves_nothing_behind(small: StationaryTable, tmp_path: Path, monkeypatch) -> None:
    def refuse(*_: Any) -> None:
        raise InvalidParameter("no")

    monkeypatch.setattr(second_order_paper, "_problem", refuse)
    with pytest.raises(InvalidParameter, match="no"):
        reproduce(small, tmp_path, datasets=("synthetic",))
    assert not list(tmp_path.iterdir())
