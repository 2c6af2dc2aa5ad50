"""Dask collections and workers: the same coefficients, also when a worker is lost, and named errors."""

from __future__ import annotations

import os
import platform
import resource
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpdescent import DPLogisticRegression, Ledger, select
from dpdescent.accounting import ExponentialMechanism, Gaussian
from dpdescent.curator import ArraySource, BlockSource, Curator, LatticeNoise
from dpdescent.datasets.synthetic_tables import write_large_table
from dpdescent.errors import (
    ColumnTypeError,
    DatasetFormatError,
    InvalidParameter,
    MissingValue,
    UnknownLabel,
    UnsupportedSource,
    WorkerLost,
)
from dpdescent.noise import Randomness
from dpdescent.problems import LinearProblem, Logistic
from dpdescent.queries import BestStep, Gradient
from dpdescent.tables import DaskEngine, DaskTable, MappedArrays, open_parquet
from dpdescent.tables.keepers import share_parts, without_cells
from every_query import PROBLEMS
from parts import Parts

dask = pytest.importorskip("dask")
distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
dd = pytest.importorskip("dask.dataframe")

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

ROWS = 400
OPTIONS: dict[str, Any] = {
    "epsilon": 1.0,
    "bounds": (0, 1),
    "tighten": False,
    "classes": (0, 1),
    "random_state": 5,
    "method": "sgd",
    "solver_options": {"steps": 3, "sampling_rate": 0.5},
}


@pytest.fixture(scope="module")
def table() -> pd.DataFrame:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame(generator.random((ROWS, 3)), columns=["a", "b", "c"])
    return frame.assign(label=(frame["a"] > frame["b"] + 0.1).astype(int))


@pytest.fixture(scope="module")
def expected(table: pd.DataFrame) -> Any:
    return DPLogisticRegression(**OPTIONS).fit(table[["a", "b", "c"]], table["label"])


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0"
    ) as started:
        yield started


def same(found: Any, expected: Any) -> None:
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    np.testing.assert_array_equal(found.intercept_, expected.intercept_)
    assert found.privacy_ == expected.privacy_


@pytest.mark.parametrize("chunks", [(400, 3), (150, 2), (1, 3)], ids=str)
def test_arrays_of_any_chunks_learn_the_same_on_threads(
    chunks: tuple[int, int], table: pd.DataFrame, expected: Any
) -> None:
    if chunks[0] == 1:
        table = table.iloc[:20]
        expected = DPLogisticRegression(**OPTIONS).fit(table[["a", "b", "c"]].to_numpy(), table["label"])
    X = da.from_array(table[["a", "b", "c"]].to_numpy(), chunks=chunks)
    y = da.from_array(table["label"].to_numpy(), chunks=chunks[:1])
    with dask.config.set(scheduler="threads"):
        same(DPLogisticRegression(**OPTIONS).fit(X, y), expected)


def test_frames_learn_the_same_on_threads(table: pd.DataFrame, expected: Any) -> None:
    stored = dd.from_pandas(table, npartitions=5)
    kept = stored[stored["a"] >= 0]  # whose lengths nobody knows before they are counted
    with dask.config.set(scheduler="threads"):
        model = DPLogisticRegression(**OPTIONS).fit(kept[["a", "b", "c"]], kept["label"])
    same(model, expected)
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]


def test_what_is_wrong_is_named_before_a_charge(table: pd.DataFrame, monkeypatch: pytest.MonkeyPatch) -> None:
    account = Ledger(10.0, 1e-3)
    options = OPTIONS | {"ledger": account, "method": "agd", "solver_options": None}

    def fit(frame: pd.DataFrame, **more: Any) -> None:
        stored = dd.from_pandas(frame, npartitions=3)
        DPLogisticRegression(**options | more).fit(stored[["a", "b", "c"]], stored["label"])

    bad = table.copy()
    bad.loc[ROWS - 1, "b"] = np.nan
    with dask.config.set(scheduler="threads"):
        with pytest.raises(MissingValue, match="'b'"):
            fit(bad)
        with pytest.raises(UnknownLabel, match="outside the 2 classes"):
            fit(table.assign(label=[*table["label"][:-1], 9]))
        with pytest.raises(ColumnTypeError, match="'c'"):
            fit(table.assign(c="x"))
        with pytest.raises(UnsupportedSource, match="'outpert' needs all rows in one place"):
            fit(table, method="outpert")
    with pytest.raises(InvalidParameter, match="same partitions"):
        DaskTable(dd.from_pandas(table[["a"]], npartitions=2), table["label"])
    monkeypatch.setattr("dpdescent.tables.dask._PATIENCE", 0.1)
    with pytest.raises(InvalidParameter, match="correct the address"):
        DaskEngine("tcp://127.0.0.1:1")
    assert not account.entries


def test_workers_learn_the_same_from_frames_and_from_files(
    cluster: Any, table: pd.DataFrame, expected: Any, tmp_path: Path
) -> None:
    with distributed.Client(cluster):
        stored = dd.from_pandas(table, npartitions=3)
        same(DPLogisticRegression(**OPTIONS).fit(stored[["a", "b", "c"]], stored["label"]), expected)
    files = open_parquet(tmp_path / "p", write_large_table(tmp_path / "p", 1500, columns=3))
    here = DPLogisticRegression(**OPTIONS).fit(files)
    files.engine = DaskEngine(cluster.scheduler_address)
    same(DPLogisticRegression(**OPTIONS).fit(files), here)
    files.engine.close()


def _page_faults() -> int:
    """Return how many pages a process asks for to make and drop an array of a megabyte twenty times."""
    np.ones(2**17)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(20):
        np.ones(2**17)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other allocators are left alone")
def test_workers_keep_the_memory_of_a_block_for_the_next_one(cluster: Any, table: pd.DataFrame) -> None:
    with distributed.Client(cluster) as client:
        assert all(value == "65536" for value in client.run(os.environ.get, "MALLOC_TRIM_THRESHOLD_").values())
        stored = dd.from_pandas(table, npartitions=4)
        DPLogisticRegression(**OPTIONS).fit(stored[["a", "b", "c"]], stored["label"])
        faults = client.run(_page_faults)
    assert max(faults.values()) < 20 * 256 / 4  # an array has 256 pages


def test_workers_keep_what_is_beside_them_unless_that_is_too_much() -> None:
    beside = share_parts({"a": 1, "b": 1}, [10, 10, 10, 10], [["a"], ["b"], ["a"], ["b"]])
    assert beside == {"a": [0, 2], "b": [1, 3]}
    uneven = share_parts({"a": 1, "b": 2}, [10, 10, 10, 10, 10, 10], [["a"]] * 6)
    assert sorted(place for places in uneven.values() for place in places) == list(range(6))
    assert {address: len(places) for address, places in uneven.items()} == {"a": 2, "b": 4}
    assert share_parts({"a": 1, "b": 1}, [7], [[]]) == {
        "a": [0]
    }  # nothing is left out, and nobody is asked for nothing


def test_a_worker_that_is_killed_between_queries_changes_nothing(cluster: Any) -> None:
    """Margins that the lost worker held are computed again, along the whole chain that they were carried."""
    problem = LinearProblem(Logistic(), PROBLEMS["logistic"].grid)
    generator = np.random.default_rng(1)
    rows = problem.grid.place(np.column_stack([generator.uniform(-1, 1, (90, 2)), np.ones(90)]))
    labels = np.sign(rows[:, 0] + 0.1)
    sizes = np.array([0.0, 0.5, 2.0, 8.0])

    def asked(source: Any) -> Curator:
        noise = LatticeNoise(Randomness(3))
        return Curator(source, problem, Ledger(1e6, 1e-6, currency="gdp"), 90, noise=noise)

    engine = DaskEngine(cluster.scheduler_address)
    curators = [
        asked(BlockSource(Parts(rows, labels, (30, 60)), problem.grid, engine)),
        asked(ArraySource(rows, labels, problem.grid)),
    ]
    weights = np.zeros(3)
    for step in range(3):
        gradients = [each.answer(Gradient(weights, 1.0, Gaussian(0.5), keep_margins=True)) for each in curators]
        np.testing.assert_array_equal(*gradients)
        query = BestStep(weights, gradients[0], sizes, ExponentialMechanism(4.0), ceiling=2.0)
        chosen = [each.answer(query) for each in curators]
        assert chosen[0] == chosen[1]
        weights = weights - sizes[chosen[0]] * gradients[0]
        if step == 1:
            os.kill(next(iter(cluster.workers.values())).pid, signal.SIGKILL)
    assert [len(each.ledger.entries) for each in curators] == [6, 6]
    engine.close()


def test_tasks_that_give_other_rows_when_they_run_again_are_refused(table: pd.DataFrame) -> None:
    """As a query of a database without an order may: clip factors and batches would be those of other rows."""
    order = np.random.default_rng(0)

    def shuffled(part: int) -> pd.DataFrame:
        return table.iloc[part * 100 : part * 100 + 100].sample(frac=1, random_state=order)

    stored = dd.from_map(shuffled, range(4), meta=table)
    account = Ledger(10.0, 1e-3)
    with dask.config.set(scheduler="sync"):
        model = DPLogisticRegression(**OPTIONS | {"ledger": account})
        with pytest.raises(DatasetFormatError, match="persist a Dask collection"):
            model.fit(stored[["a", "b", "c"]], stored["label"])
        kept = stored.persist()
        model.fit(kept[["a", "b", "c"]], kept["label"])


@pytest.mark.parametrize("lengths", ["known", "counted"])
def test_errors_of_the_tasks_themselves_show_no_cell(lengths: str, table: pd.DataFrame) -> None:
    account = Ledger(10.0, 1e-3)
    options = OPTIONS | {"ledger": account, "method": "agd", "solver_options": None}

    def spoiled(cells: Any) -> Any:
        if cells.size:
            float("a secret")
        return cells

    numbers, labels = (table[name].to_numpy() for name in (["a", "b", "c"], "label"))
    X, y = (da.from_array(each, chunks=(100, *each.shape[1:])) for each in (numbers, labels))
    X = X.map_blocks(spoiled, dtype=float, meta=np.empty((0, 0)))
    if lengths == "counted":
        X = X.to_dask_dataframe(columns=["a", "b", "c"])
    with (
        dask.config.set(scheduler="threads"),
        pytest.raises(DatasetFormatError, match="failed with ValueError") as found,
    ):
        DPLogisticRegression(**options).fit(X, y)
    assert "secret" not in str(found.value)
    assert found.value.__context__ is None
    assert not account.entries


def test_workers_that_are_lost_are_named_whatever_dask_calls_it() -> None:
    cancelled = [name for name in vars(distributed.client) if name.endswith("CancelledError")]
    assert len(cancelled) > 1
    for name in (*cancelled, "KilledWorker", "CommClosedError"):

        def lose(failure: str) -> None:
            raise type(failure, (Exception,), {})("0.734375")

        with pytest.raises(WorkerLost, match="start them again") as found:
            without_cells(lose, name)
        assert found.value.__context__ is None


def test_labels_in_two_dimensions_and_missing_integers_are_named_before_a_charge(table: pd.DataFrame) -> None:
    account = Ledger(10.0, 1e-3)
    options = OPTIONS | {"ledger": account, "method": "agd", "solver_options": None}
    X, y = (dd.from_pandas(table[names], npartitions=2) for names in (["a", "b", "c"], ["label"]))
    with pytest.raises(InvalidParameter, match="one column"):
        DPLogisticRegression(**options).fit(X, y)
    marked = table.assign(b=pd.array([None, *[1] * (ROWS - 1)], dtype="Int64"))
    stored = dd.from_pandas(marked, npartitions=2)
    with dask.config.set(scheduler="threads"), pytest.raises(MissingValue, match="'b'"):
        DPLogisticRegression(**options).fit(stored[["a", "b", "c"]], stored["label"])
    assert not account.entries


def test_what_is_wrong_reaches_no_log_of_a_worker_with_the_rows(caplog: pytest.LogCaptureFixture) -> None:
    rows, labels = np.full((4, 3), 0.734375), np.ones(4)
    longer = Parts(rows, labels)
    longer.lengths = [5]
    with (
        distributed.LocalCluster(n_workers=1, processes=False, dashboard_address=":0") as started,
        distributed.Client(started),
        pytest.raises(DatasetFormatError, match="not what it was"),
    ):
        BlockSource(longer, PROBLEMS["logistic"].grid, DaskEngine()).map_sum(lambda rows, _: np.array([len(rows)]))
    assert "0.734375" not in caplog.text
    assert "Compute Failed" not in caplog.text


def test_select_refuses_tables_that_are_read_again_before_a_charge(table: pd.DataFrame) -> None:
    """A row in another place could be in the part that trains and in the part that chooses, and pays for one."""
    candidates = [DPLogisticRegression(bounds=(0, 1), classes=(0, 1), alpha=alpha) for alpha in (0.0, 1.0)]
    numbers, labels = table[["a", "b", "c"]].to_numpy(), table["label"].to_numpy()
    account = Ledger(10.0, 1e-3, currency="gdp")
    for X, y in (
        (da.from_array(numbers, chunks=(100, 3)), da.from_array(labels, chunks=100)),
        (MappedArrays(numbers, labels), None),
    ):
        with pytest.raises(UnsupportedSource, match="pass arrays"):
            select(candidates, X, y, epsilon=1.0, delta=1e-6, ledger=account)
    assert not account.entries
