"""Comparisons: the same rows however they are interrupted, one thread a worker, outputs whole or absent."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, replace
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import pyarrow.parquet as pq
import pytest
from sklearn.metrics import log_loss
from sklearn.model_selection import KFold
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

from dpdescent import DPLogisticRegression, Ledger, load_dataset
from dpdescent.cli import app
from dpdescent.errors import (
    DatasetNotAvailable,
    InvalidParameter,
    MissingPackage,
    OutputNotWritable,
    RunInProgress,
    UnknownDataset,
)
from dpdescent.lab import fold_fits, method_looks as methods_table
from dpdescent.lab.fold_fits import Curve, Row, Task, _parts, measure
from dpdescent.lab.method_looks import ORACLE, known_variants, look_of, oracle_variants, registered_methods
from dpdescent.lab.study import Study, curves_of, run
from dpdescent.lab.verdicts import grouped
from dpdescent.long_runs import Journal, require_outputs, threads_pinned, write_whole
from dpdescent.solvers import METHODS

COLUMNS = (
    "dataset method epsilon delta fold seed accuracy auc objective seconds n d spent_epsilon".split()  # noqa: SIM905
)
SMALL = Study((Task("synthetic", rows=1500),), curves_of(["agd"]), (0.5, 2.0), 1e-6, folds=2)
runner = CliRunner()


def invoke(*arguments: object) -> str:
    result = runner.invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


def timeless(rows: tuple[Row, ...]) -> list[Row]:
    return [replace(row, seconds=None) for row in rows]


def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    """Measure here instead of in worker processes, where those are not what is tested."""
    monkeypatch.setattr(
        "dpdescent.long_runs.in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells)
    )


# One cell --------------------------------------------------------------------------------------------------------


def test_a_cell_is_the_estimator_on_its_fold() -> None:
    cell = SMALL.cells()[0]
    row = measure(cell)
    data = load_dataset("synthetic")
    kept = np.sort(np.random.default_rng(0).permutation(len(data.y))[:1500])
    X, y = data.X[kept], data.y[kept]
    train, test = next(iter(KFold(2, shuffle=True, random_state=0).split(X)))
    model = DPLogisticRegression(
        0.5, 1e-6, method="agd", bounds=data.bounds, classes=data.classes, random_state=int(cell.key[:7], 16)
    ).fit(X[train], y[train])
    assert row.accuracy == model.score(X[test], y[test])
    assert row.objective == pytest.approx(log_loss(y[train], model.predict_proba(X[train])), rel=1e-9)
    assert (row.n, row.d) == (750, 24)
    assert row.spent_epsilon is not None
    assert 0.4 < row.spent_epsilon <= 0.5


def test_cells_of_one_fold_share_its_rows_and_measure_the_same_in_any_order() -> None:
    first, *others = SMALL.cells()
    same = next(cell for cell in others if cell.fold == first.fold)
    other = next(cell for cell in others if cell.fold != first.fold)
    alone = measure(first)
    parts = _parts(replace(first.task, loss="logistic"), first.folds, first.fold, first.seed)
    measure(same)
    assert _parts(replace(same.task, loss="logistic"), same.folds, same.fold, same.seed) is parts
    measure(other)
    assert replace(measure(first), seconds=alone.seconds) == alone


def test_the_objective_of_an_svm_is_hinge_plus_penalty() -> None:
    cell = replace(SMALL.cells()[0], task=Task("synthetic", "svm", 1500), alpha=0.3)
    without = replace(cell, alpha=0.0)
    penalised, plain = measure(cell), measure(without)
    assert penalised.loss == plain.loss == "svm"
    assert plain.objective is not None
    assert 0.2 < plain.objective < 2
    assert penalised.objective != plain.objective


def test_multiclass_tasks_have_an_auc_and_an_objective() -> None:
    generator = np.random.default_rng(3)
    y = generator.integers(3, size=900)
    X = np.clip(0.5 + 0.3 * np.eye(3)[y] + 0.05 * generator.normal(size=(900, 3)), 0, 1)
    data = load_dataset("synthetic", n=900)
    data = replace(data, X=X, y=y, feature_names=("a", "b", "c"), classes=(0, 1, 2), binary_features=None)

    loaded = fold_fits._loaded
    fold_fits._loaded = lambda _: data  # type: ignore[assignment]
    fold_fits._parts.cache_clear()
    try:
        row = measure(SMALL.cells()[1])
    finally:
        fold_fits._loaded = loaded
        fold_fits._parts.cache_clear()
    assert row.auc is not None
    assert row.auc > 0.8
    assert row.objective is not None
    assert 0 < row.objective < 1.2


def test_a_refusal_by_name_is_its_row_and_a_fault_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    refused = measure(replace(SMALL.cells()[0], curve=Curve("agd", "agd", {"growth": -1.0})))
    assert refused.error.startswith("InvalidParameter: growth must lie in")
    assert refused.accuracy is None
    monkeypatch.setattr(DPLogisticRegression, "fit", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        measure(SMALL.cells()[0])


# The runner ------------------------------------------------------------------------------------------------------


def test_a_study_is_measured_and_a_finished_journal_is_read_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[tuple[int, int]] = []
    with Journal(tmp_path / "out.json", SMALL.fingerprint, Row) as journal:
        first = run(SMALL, jobs=2, journal=journal, listener=lambda done, total: seen.append((done, total)))
    assert seen[0] == (0, 4)
    assert seen[-1] == (4, 4)
    assert [(row.epsilon, row.fold) for row in first.rows] == [(0.5, 0), (0.5, 1), (2.0, 0), (2.0, 1)]
    monkeypatch.setattr("dpdescent.long_runs.in_processes", lambda _, cells, __: iter(cells and [1 / 0]))
    with Journal(tmp_path / "out.json", SMALL.fingerprint, Row) as journal:
        assert run(SMALL, journal=journal).rows == first.rows


def test_a_journal_survives_a_torn_line_and_never_mixes_settings(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    whole = run(SMALL)
    with Journal(tmp_path / "out.json", SMALL.fingerprint, Row) as journal:
        for cell in SMALL.cells()[:2]:
            journal.add(cell.key, measure(cell))
    with open(journal.path, "ab") as file:
        file.write(b'{"cell": "half a li')
    with Journal(tmp_path / "out.json", SMALL.fingerprint, Row) as journal:
        assert len(journal.rows) == 2
        assert timeless(run(SMALL, journal=journal).rows) == timeless(whole.rows)
    assert [json.loads(line)["cell"] for line in journal.path.read_text().splitlines()]
    for other in (
        replace(SMALL, delta=1e-7),
        replace(SMALL, adjacency="replace-one"),
        replace(SMALL, epsilons=(0.5,)),
    ):
        with Journal(tmp_path / "out.json", other.fingerprint, Row) as stranger:
            assert stranger.rows == {}


def test_two_runs_of_one_comparison_do_not_write_the_same_journal(tmp_path: Path) -> None:
    with (
        Journal(tmp_path / "out.json", SMALL.fingerprint, Row),
        pytest.raises(RunInProgress, match="another process"),
    ):
        Journal(tmp_path / "out.json", SMALL.fingerprint, Row)


def started(folder: Path) -> subprocess.Popen[str]:
    program = "from dpdescent.cli import main; main()"
    options = ["--data", "synthetic", "--methods", "agd", "--epsilon", "1,2", "--folds", "3", "--jobs", "1"]
    options += ["--rows", "3000"]
    command = [sys.executable, "-c", program, "compare", *options, "--json", str(folder / "out.json")]
    return subprocess.Popen(
        command,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs may inherit it ignored
    )


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)


def test_a_killed_and_then_interrupted_run_goes_on_to_the_same_rows(tmp_path: Path) -> None:
    def kept() -> int:
        return sum(path.read_bytes().count(b"\n") for path in tmp_path.glob("*.journal"))

    process = started(tmp_path)
    wait_for(lambda: kept() >= 1 or process.poll() is not None, "no cell was finished")
    process.kill()
    process.communicate(timeout=30)
    assert [path.suffix for path in tmp_path.iterdir()] == [".journal"]
    wait_for(lambda: not _session_alive(process.pid), "a worker outlives its parent")

    before, process = kept(), started(tmp_path)
    wait_for(lambda: kept() > before or process.poll() is not None, "no cell was finished")
    os.killpg(process.pid, signal.SIGINT)
    _, errors = process.communicate(timeout=30)
    assert [path.suffix for path in tmp_path.iterdir()] == [".journal"]
    assert process.returncode == 130
    assert "what is done is kept" in errors
    assert "Traceback" not in errors
    wait_for(lambda: not _session_alive(process.pid), "a worker outlives its parent")

    process = started(tmp_path)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert [path.name for path in tmp_path.iterdir()] == ["out.json"]
    found = json.loads((tmp_path / "out.json").read_text())["rows"]
    study = Study((Task("synthetic", rows=3000),), curves_of(["agd"]), (1.0, 2.0), 1e-8, folds=3)
    expected = [asdict(measure(cell)) for cell in study.cells()]
    order = {(row["epsilon"], row["fold"]): row | {"seconds": 0} for row in json.loads(json.dumps(expected))}
    assert [row | {"seconds": 0} for row in found] == [order[key] for key in sorted(order)]


def _session_alive(leader: int) -> bool:
    for entry in Path("/proc").iterdir():
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except (OSError, ValueError):
            continue
        if fields and fields[3] == str(leader) and fields[0] != "Z":
            return True
    return False


def threads_of_linear_algebra() -> tuple[list[int], bool]:
    np.ones((4, 4)) @ np.ones((4, 4))
    return [pool["num_threads"] for pool in threadpool_info()], "matplotlib" in sys.modules


def test_workers_have_one_thread_and_the_parent_keeps_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    with threads_pinned(), ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found, has_matplotlib = pool.submit(threads_of_linear_algebra).result()
    assert found
    assert set(found) == {1}
    assert not has_matplotlib, "the command line must start without it"
    assert os.environ["OMP_NUM_THREADS"] == "7"
    assert "OPENBLAS_NUM_THREADS" not in os.environ


# Methods, oracles and outputs ------------------------------------------------------------------------------------


def test_every_registered_method_appears_and_no_two_named_ones_look_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    assert set(METHODS) == set(registered_methods()) <= set(known_variants())
    assert registered_methods()[0] in ("auto", "agd")
    looks = [(look.marker, look.colour) for look in methods_table._LOOKS.values()]
    assert len({marker for marker, _ in looks}) == len({colour for _, colour in looks}) == len(looks)
    monkeypatch.setitem(METHODS, "brand-new", METHODS["agd"])
    assert "brand-new" in known_variants()
    assert look_of("brand-new").name == "brand-new"
    assert curves_of(["brand-new"])[0].method == "brand-new"


def test_grids_are_made_of_options_their_methods_know() -> None:
    for name in METHODS:
        for point in oracle_variants(name):
            METHODS[name].settings(**point.options)


def test_an_oracle_is_the_best_of_its_grid_and_says_so_everywhere(monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)
    study = replace(SMALL, curves=curves_of(["agd"], oracle=True), epsilons=(0.5,))
    measured = [measure(cell) for cell in study.cells()]
    record = run(study)
    chosen = [row for row in record.rows if row.oracle]
    assert {row.method for row in chosen} == {f"agd {ORACLE}"}
    assert len(chosen) == 2
    assert chosen[0].options == chosen[1].options
    means: dict[str, list[float]] = {}
    for row in measured:
        if row.oracle:
            means.setdefault(str(row.options), []).append(row.accuracy or 0)
    assert np.mean([row.accuracy for row in chosen]) == max(np.mean(values) for values in means.values())
    assert all(row.spent_epsilon is None for row in chosen)
    assert ORACLE in look_of(chosen[0].method).name
    assert not any(group.private for group in grouped(chosen))


def test_what_has_no_budget_is_measured_once_and_shown_at_every_epsilon() -> None:
    study = replace(SMALL, curves=(Curve("nonprivate", "nonprivate", private=False),))
    assert len(study.cells()) == 2
    rows = study.rows([measure(cell) for cell in study.cells()])
    assert sorted((row.epsilon, row.fold) for row in rows) == [(0.5, 0), (0.5, 1), (2.0, 0), (2.0, 1)]
    assert {row.spent_epsilon for row in rows} == {None}


def test_json_and_parquet_have_the_schema_settings_and_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_this_process(monkeypatch)
    output = invoke(
        *("compare", "--data", "synthetic", "--methods", "majority,nonprivate", "--epsilon", "1,0.5", "--folds", 2),
        *("--delta", "1e-6", "--json", tmp_path / "a" / "out.json", "--parquet", tmp_path / "out.parquet"),
    )
    content = json.loads((tmp_path / "a" / "out.json").read_text())
    assert list(content["rows"][0])[: len(COLUMNS)] == COLUMNS
    assert {"numpy", "dpdescent", "python"} <= set(content["versions"])
    assert content["settings"]["epsilons"] == [0.5, 1.0]
    assert content["settings"]["folds"] == 2
    assert len(content["rows"]) == 8
    for row in content["rows"]:
        assert (
            row["spent_epsilon"] is None if row["method"] == "nonprivate" else row["spent_epsilon"] <= row["epsilon"]
        )
    table = pq.read_table(tmp_path / "out.parquet")
    assert table.column_names[: len(COLUMNS)] == COLUMNS
    assert [str(table.schema.field(name).type) for name in ("dataset", "epsilon", "fold", "auc", "oracle")] == [
        "string",
        "double",
        "int64",
        "double",
        "bool",
    ]
    assert table["accuracy"].to_pylist() == [row["accuracy"] for row in content["rows"]]
    assert json.loads(table.schema.metadata[b"dpdescent"])["settings"] == content["settings"]
    estimate = grouped(Row(**row) for row in content["rows"])[0].estimate("accuracy")
    scores = [row["accuracy"] for row in content["rows"][:2]]
    assert estimate is not None
    assert estimate.error == pytest.approx(abs(scores[0] - scores[1]) / 2)
    assert f"{estimate.mean:.4f}±{estimate.error:.4f}" in output
    assert not list(tmp_path.rglob("*.journal"))


def test_a_comparison_takes_as_many_rows_as_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_this_process(monkeypatch)
    arguments = ("compare", "--data", "synthetic", "--methods", "majority", "--epsilon", 1, "--folds", 2)
    invoke(*arguments, "--rows", 500, "--json", tmp_path / "out.json")
    assert {row["n"] for row in json.loads((tmp_path / "out.json").read_text())["rows"]} == {250}
    with pytest.raises(InvalidParameter, match="rows must be"):
        invoke(*arguments, "--rows", 0)


def test_near_matches_are_suggested() -> None:
    with pytest.raises(InvalidParameter, match="did you mean 'majority'"):
        invoke("compare", "--data", "synthetic", "--methods", "majorty")
    with pytest.raises(UnknownDataset, match="did you mean 'adult'"):
        invoke("compare", "--data", "adlut")
    with pytest.raises(InvalidParameter, match="did you mean '000/figure2'"):
        invoke("reproduce", "000/figur2")
    with pytest.raises(InvalidParameter, match="did you mean 'logistic'"):
        invoke("compare", "--data", "synthetic", "--loss", "logistics")


def test_bad_input_is_refused_before_any_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdescent.long_runs.in_processes", lambda *_: 1 / 0)
    (tmp_path / "file").write_text("in the way")
    arguments = ("compare", "--data", "synthetic", "--methods", "agd")
    with pytest.raises(OutputNotWritable, match="choose another place"):
        invoke(*arguments, "--json", tmp_path / "file" / "out.json")
    with pytest.raises(OutputNotWritable, match="folder"):
        invoke(*arguments, "--json", tmp_path)
    with pytest.raises(InvalidParameter, match="numbers with commas"):
        invoke(*arguments, "--epsilon", "0.1;0.2")
    with pytest.raises(InvalidParameter, match="greater than 0"):
        invoke(*arguments, "--epsilon", "0.1,-1")
    with pytest.raises(InvalidParameter, match="at least 2"):
        invoke(*arguments, "--folds", "1")
    with pytest.raises(InvalidParameter, match="too few for 30000 folds"):
        invoke(*arguments, "--folds", "30000")
    monkeypatch.setenv("DPDESCENT_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(DatasetNotAvailable, match="ipums-br"):
        invoke("compare", "--data", "ipums-br", "--methods", "agd")
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_without_matplotlib_the_remedy_is_named_before_any_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(MissingPackage, match=r"pip install 'dpdescent\[plots\]'"):
        invoke("compare", "--data", "synthetic", "--methods", "agd", "--plots", tmp_path / "plots")


def test_a_failed_write_leaves_the_old_file_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = write_whole(tmp_path / "out.json", "old")
    assert target.stat().st_mode & 0o777 == 0o666 & ~_mask()

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        write_whole(target, "new")
    assert target.read_text() == "old"
    assert list(tmp_path.iterdir()) == [target]


def test_no_output_takes_the_place_of_a_ledger_a_device_or_a_file_that_is_read(tmp_path: Path) -> None:
    ledger, data, fifo = tmp_path / "b.ledger", tmp_path / "people.csv", tmp_path / "fifo"
    Ledger(1.0, 1e-6, path=ledger).verify()
    data.write_text("a,b\n")
    os.mkfifo(fifo)
    (tmp_path / "link").symlink_to(data)
    before = ledger.read_bytes()
    for path, message in ((ledger, "a ledger or another database"), (fifo, "no ordinary file")):
        for write in (lambda path: write_whole(path, "{}"), lambda path: require_outputs([path])):
            with pytest.raises(OutputNotWritable, match=message):
                write(path)
    for outputs in ([data], [tmp_path / "link"], [tmp_path / "new", tmp_path / "x" / ".." / "new"]):
        with pytest.raises(OutputNotWritable, match="reads or writes another thing there"):
            require_outputs(outputs, [data, None])
    for long in ("x" * 300, "y" * 300 + "/out.json"):
        with pytest.raises(OutputNotWritable, match="too long"):
            require_outputs([tmp_path / long])
    require_outputs([None, tmp_path / "new"], [data])
    assert ledger.read_bytes() == before


def test_a_disk_that_fills_up_while_a_file_is_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OutputNotWritable, match="No space left on device"):
        write_whole(tmp_path / "out.json", "{}")
    assert list(tmp_path.iterdir()) == []


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
