"""Rows that are not what they were are refused: in any cell, in any pass of a fit, and wherever they are kept."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from scipy import sparse

from dpdescent import DPLinearRegression, DPLogisticRegression, Ledger
from dpdescent.curator import BlockSource, Seals, kept_rows, marks
from dpdescent.errors import DatasetFormatError
from dpdescent.estimators.measuring import Measurement
from dpdescent.tables import DaskEngine, MappedArrays
from dpdescent.tables.dask import _on_part, _Result
from every_query import PROBLEMS, table_of
from parts import Parts

ROWS = 300


@pytest.fixture
def cells() -> np.ndarray:
    generator = np.random.default_rng(0)
    return generator.normal(size=(40, 7)) * 10.0 ** generator.integers(-200, 200, 7)


@pytest.mark.parametrize("stored", [np.asarray, np.asfortranarray, sparse.csr_array], ids=["C", "F", "CSR"])
def test_the_mark_of_a_row_changes_with_any_bit_of_a_cell_and_with_no_other_row(
    stored: Any, cells: np.ndarray
) -> None:
    labels = np.arange(40) % 3
    before = marks(stored(cells), labels)
    assert np.unique(before).size == 40
    np.testing.assert_array_equal(before[5:9], marks(stored(cells[5:9]), labels[5:9]))
    np.testing.assert_array_equal(before, marks(cells, labels))
    for column in range(7):
        for place in (0, 17, 39):
            for other in (np.nextafter(cells[place, column], np.inf), -cells[place, column]):
                changed = cells.copy()
                changed[place, column] = other
                assert np.flatnonzero(marks(stored(changed), labels) != before).tolist() == [place]


@pytest.mark.parametrize("order", ["C", "F"])
def test_marks_do_not_depend_on_how_many_cells_are_mixed_at_once(order: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = np.random.default_rng(4).random((50, 3))
    expected = marks(cells, np.zeros(50))
    monkeypatch.setattr(kept_rows, "_CELLS_AT_ONCE", 7)
    np.testing.assert_array_equal(marks(np.array(cells, order=order), np.zeros(50)), expected)


def test_rows_of_zeros_and_ones_have_marks_of_their_own() -> None:
    """Two of 20,000 marks of 64 bits agree with a probability of 1e-11; of 12 bits, nearly all would."""
    generator = np.random.default_rng(0)
    rows = np.unique(generator.integers(0, 2, (20_000, 40)), axis=0).astype(float)
    assert np.unique(marks(rows, np.zeros(len(rows)))).size == len(rows)
    levels = np.eye(123)
    assert np.unique(marks(levels, np.zeros(123))).size == 123


def test_sums_are_over_the_rows_that_were_marked(tmp_path: Path) -> None:
    """What is written to a file after its rows were marked is not seen by the sum."""
    X, y = mapped(tmp_path / "X.npy", np.ones((10, 2))), mapped(tmp_path / "y.npy", np.zeros(10))
    table = MappedArrays(X, y)
    features, labels, before = next(iter(table.marked(table.parts[0])))
    X[:], y[:] = 7.0, 1.0
    np.testing.assert_array_equal(marks(features, labels), before)
    assert features.max() == 1.0
    assert not labels.any()


def test_numbers_of_other_rows_are_refused_by_workers() -> None:
    """A task that reads its part again compares the seal with that of the rows for which a number was kept."""

    def work(blocks: Any, known: Any) -> Any:
        return sum(float(rows.sum()) for rows, _ in blocks) * known[0][0], []

    def blocks(part: str, length: int, digest: Any) -> Any:
        digest.update(part.encode())
        return iter([(np.ones((length, 1)), np.zeros(length))])

    digest = kept_rows.new_digest()
    digest.update(b"these")
    held = _Result(0.0, [digest.digest()], [np.ones(2)])
    assert _on_part((0,), (work, blocks), "these", 2, [held]).total == 2.0  # type: ignore[arg-type]
    found = _on_part((0,), (work, blocks), "others", 2, [held])  # type: ignore[arg-type]
    assert isinstance(found.total, DatasetFormatError)


@pytest.mark.parametrize("labels", [[0, 1, 2], [0.5, 1.5, 2.5], ["a", "b", "c"], [None, "b", 3]], ids=str)
def test_the_mark_of_a_row_changes_with_its_label(labels: list[Any]) -> None:
    rows = np.ones((3, 2))
    values = np.array(labels) if None not in labels else np.array(labels, dtype=object)
    before = marks(rows, values)
    assert np.unique(before).size == 3
    np.testing.assert_array_equal(marks(rows, values[[0, 2, 1]]), before[[0, 2, 1]])


def mapped(path: Path, X: np.ndarray) -> np.memmap:
    np.save(path, X)
    return np.load(path, mmap_mode="r+")


@pytest.mark.parametrize("when", ["while", "after"])
@pytest.mark.parametrize("what", ["bounds", "target bounds"])
def test_a_file_that_changes_while_or_after_bounds_are_measured_is_refused(
    what: str, when: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every pass of a fit is over the same rows, also where they are coded in another way."""
    generator = np.random.default_rng(0)
    X = mapped(tmp_path / "X.npy", generator.random((ROWS, 3)))
    labels = (X[:, 0] > X[:, 1]).astype(int)
    measured = Measurement.buy_columns if what == "bounds" else Measurement.buy_target

    def changed(self: Measurement, *arguments: Any) -> Any:
        before, after = X[ROWS - 1, 2], np.nextafter(X[ROWS - 1, 2], 2.0)
        X[ROWS - 1, 2] = after if when == "while" else before
        found = measured(self, *arguments)
        X[ROWS - 1, 2] = before if when == "while" else after
        return found

    account = Ledger(100.0, 1e-3, currency="gdp")
    options: dict[str, Any] = {"epsilon": 5.0, "method": "agd", "random_state": 0, "ledger": account}
    model: Any = DPLogisticRegression(classes=(0, 1), solver_options={"splits": 2.0}, **options)
    if what == "target bounds":
        model = DPLinearRegression(bounds=(0, 1), tighten=False, **options)
    model.fit(X, labels)
    spent = account.spent
    monkeypatch.setattr(Measurement, measured.__name__, changed)
    with pytest.raises(DatasetFormatError, match="not what it was") as found:
        model.fit(X, labels)
    assert account.spent > spent
    assert any("had been charged" in note for note in found.value.__notes__)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("changed", ["nothing", "cell", "label", "order"])
def test_rows_that_a_lost_worker_kept_are_read_again_and_refused_if_they_are_others(changed: str) -> None:
    distributed = pytest.importorskip("distributed")
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    blocks = Shared(rows.copy(), labels.copy(), (100, 200))
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster),
    ):
        source = BlockSource(blocks, problem.grid, DaskEngine())
        before = source.map_sum(_sum_of_cells)
        assert len(Shared.reads_of_all) == 3  # kept from now on
        source.map_sum(_sum_of_cells)
        assert len(Shared.reads_of_all) == 3
        if changed == "cell":
            blocks.features[:, 0] = np.nextafter(blocks.features[:, 0], 2.0)
        elif changed == "label":
            blocks.labels *= -1
        elif changed == "order":
            for first in (0, 100, 200):  # every part by itself
                for array in (blocks.features, blocks.labels):
                    array[[first, first + 1]] = array[[first + 1, first]]
        worker = cluster.workers[0]
        cluster.sync(worker.close, nanny=False, executor_wait=False)
        if changed == "nothing":
            np.testing.assert_array_equal(source.map_sum(_sum_of_cells), before)
        else:
            with pytest.raises(DatasetFormatError, match="not what it was"):
                source.map_sum(_sum_of_cells)
        assert len(Shared.reads_of_all) > 3


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_seals_and_numbers_of_rows_are_those_of_their_parts_whoever_works_on_them() -> None:
    distributed = pytest.importorskip("distributed")
    problem, (rows, labels) = PROBLEMS["logistic"], table_of("logistic", 2, ROWS)
    blocks, seals = Parts(rows, labels, (10, 30, 60, 100, 200)), Seals()
    chosen = np.random.default_rng(0).random(ROWS) < 0.5
    expected = BlockSource(blocks, problem.grid, None, seals).map_sum(_sum_of_cells, chosen)
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
        ) as cluster,
        distributed.Client(cluster),
    ):
        for keep_rows in (True, False):
            source = BlockSource(blocks, problem.grid, DaskEngine(), seals, keep_rows)
            np.testing.assert_array_equal(source.map_sum(_sum_of_cells, chosen), expected)


class Shared(Parts):
    """Rows that all workers of this process read from the same memory."""

    reads_of_all: ClassVar[list[Any]] = []
    held: ClassVar[dict[str, np.ndarray]] = {}

    def __init__(self, features: Any, labels: np.ndarray, cuts: tuple[int, ...]) -> None:
        super().__init__(features, labels, cuts)
        Shared.held.update(features=features, labels=labels)
        Shared.reads_of_all.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {"block": self.block, "reads": [], "ledger": None}

    def read(self, part: Any) -> Any:
        self.features, self.labels = Shared.held["features"], Shared.held["labels"]
        Shared.reads_of_all.append(part)
        return super().read(part)


def _sum_of_cells(rows: Any, _: np.ndarray, *chosen: np.ndarray) -> np.ndarray:
    return np.rint(2.0**20 * (rows[chosen[0]] if chosen else rows)).astype(np.int64).sum(axis=0)


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
@pytest.mark.parametrize("ends", ["well", "with an error"])
def test_workers_keep_nothing_when_a_fit_has_ended(ends: str) -> None:
    distributed = pytest.importorskip("distributed")
    generator = np.random.default_rng(0)
    X = generator.random((ROWS, 3))
    table = MappedArrays(X, (X[:, 0] > 0.5).astype(int), part_rows=100)
    options: dict[str, Any] = {
        "bounds": (0, 1),
        "classes": (0, 1),
        "method": "agd",
        "solver_options": {"splits": 3.0},
    }
    kept: list[int] = []
    with distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0", silence_logs=50) as cluster:
        table.engine = DaskEngine(cluster.scheduler_address)

        def tasks() -> int:
            return len(cluster.scheduler.tasks)

        def listener(_: float) -> None:
            kept.append(tasks())
            if ends != "well":
                raise KeyboardInterrupt

        model = DPLogisticRegression(tighten=False, progress=listener, **options)
        failure: BaseException | None = None  # whose traceback holds all that the fit held
        try:
            model.fit(table)
        except KeyboardInterrupt as found:
            failure = found
        assert (failure is None) == (ends == "well")
        assert max(kept) > 0
        wait_until(lambda: tasks() == 0)
        table.engine.close()


def wait_until(true: Any) -> None:
    """Wait for a message to reach the scheduler, a second at most."""
    for _ in range(100):
        if true():
            return
        time.sleep(0.01)
    pytest.fail("it did not become true")
