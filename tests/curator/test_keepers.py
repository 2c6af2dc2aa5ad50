"""Workers that keep rows answer as rows in memory do, let go of what nobody wants, and are replaced if lost."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from dpdescent import DPLogisticRegression
from dpdescent.curator import ArraySource, BlockSource
from dpdescent.errors import DatasetFormatError, WorkerLost
from dpdescent.tables import DaskEngine, keepers
from dpdescent.tables.keepers import Keeper, Keepers, _add_up, _await_answer
from every_query import PROBLEMS, table_of
from parts import Parts

distributed = pytest.importorskip("distributed")
da = pytest.importorskip("dask.array")
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

ROWS, CUTS, WORKERS = 300, (10, 30, 60, 100, 200), 4
GRID = PROBLEMS["logistic"].grid


@pytest.fixture
def cluster() -> Iterator[Any]:
    with (
        distributed.LocalCluster(
            n_workers=WORKERS, threads_per_worker=1, processes=False, dashboard_address=":0", silence_logs=50
        ) as started,
        distributed.Client(started),
    ):
        yield started


@pytest.fixture
def sources() -> list[Any]:
    """Return the same rows, kept by workers and in memory."""
    rows, labels = table_of("logistic", 2, ROWS)
    return [BlockSource(Parts(rows, labels, CUTS), GRID, DaskEngine()), ArraySource(rows, labels, GRID)]


def first_cells(rows: Any, _: Any) -> np.ndarray:
    return rows[:, 0].copy()


def with_next(rows: Any, _: Any, before: np.ndarray) -> np.ndarray:
    return before * 2 + rows[:, 1]


def weighted(rows: Any, _: Any, weights: np.ndarray, chosen: np.ndarray) -> np.ndarray:
    return np.rint(2.0**20 * (weights * chosen)[:, None] * rows).astype(np.int64).sum(axis=0)


def actors(cluster: Any) -> list[Keeper]:
    return [each for worker in cluster.workers.values() for each in worker.state.actors.values()]


@pytest.mark.parametrize("most", [8, 1], ids=["one by one", "in groups"])
def test_sums_numbers_of_rows_and_batches_are_those_of_rows_in_memory(
    most: int, cluster: Any, sources: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keepers, "_MOST_ANSWERS", most)
    chosen = np.random.default_rng(0).random(ROWS) < 0.5
    totals = []
    for source in sources:
        numbers = source.map_rows(with_next, source.map_rows(first_cells))
        totals.append([source.map_sum(weighted, numbers, batch) for batch in (chosen, ~chosen)])
    np.testing.assert_array_equal(*totals)
    assert len(actors(cluster)) == WORKERS
    assert np.any(totals[0][0])


def test_workers_let_go_of_numbers_that_nobody_wants_any_more(cluster: Any, sources: list[Any]) -> None:
    source = sources[0]
    everywhere = np.ones(ROWS, dtype=bool)
    first = source.map_rows(first_cells)
    second = source.map_rows(with_next, first)
    source.map_sum(weighted, second, everywhere)
    assert {len(each._numbers) for each in actors(cluster)} == {2}
    del first
    source.map_sum(weighted, second, everywhere)
    assert {len(each._numbers) for each in actors(cluster)} == {1}
    source.close()
    assert not source._engine._keepers


def test_numbers_that_were_lost_are_computed_again_and_only_those_in_use_are_kept(
    cluster: Any, sources: list[Any]
) -> None:
    everywhere = np.ones(ROWS, dtype=bool)
    totals, numbers = [], []
    for source in sources:
        number = source.map_rows(first_cells)
        for _ in range(5):
            number = source.map_rows(with_next, number)
        totals.append([source.map_sum(weighted, number, everywhere)])
        numbers.append(number)
    lost = next(worker for worker in cluster.workers.values() if worker.state.actors)
    cluster.sync(lost.close, nanny=False, executor_wait=False)
    for source, number, found in zip(sources, numbers, totals, strict=True):
        found.append(source.map_sum(weighted, source.map_rows(with_next, number), everywhere))
    np.testing.assert_array_equal(*totals)
    kept = [
        each for worker in cluster.workers.values() if worker is not lost for each in worker.state.actors.values()
    ]
    assert kept
    assert {len(each._numbers) for each in kept} == {2}  # the last of the chain, and the one that was asked for


def test_keepers_that_are_lost_again_and_again_are_named(
    cluster: Any, sources: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts: list[int] = []

    def lose(self: Keepers, *_: Any) -> Any:
        attempts.append(len(self._shares))
        raise keepers._Gone

    monkeypatch.setattr(Keepers, "_ask_shares", lose)
    with pytest.raises(WorkerLost, match="start them again") as found:
        sources[0].map_sum(first_cells)
    assert attempts == [WORKERS] * 3
    assert found.value.__context__ is None
    assert not sources[0]._engine._keepers[sources[0]._blocks]._shares
    assert cluster.status.name == "running"


def test_errors_of_a_collections_own_tasks_are_named_at_once_without_a_cell(cluster: Any) -> None:
    def spoiled(cells: Any) -> Any:
        if cells.size:
            float("a secret")
        return cells

    X, y = (da.from_array(np.ones(shape), chunks=20) for shape in ((40, 2), (40,)))
    X = X.map_blocks(spoiled, dtype=float, meta=np.empty((0, 0)))
    with pytest.raises(DatasetFormatError, match="failed with ValueError") as found:
        DPLogisticRegression(bounds=(0, 1), classes=(0, 1), tighten=False).fit(X, y)
    assert "secret" not in str(found.value)
    assert found.value.__context__ is None
    assert not actors(cluster)


def test_what_is_wrong_at_one_worker_is_the_answer() -> None:
    problem = DatasetFormatError("a part is damaged")
    answers = [(np.ones(2), [b"first"]), (2 * np.ones(2), [b"second", b"third"])]
    assert _add_up([answers[0], problem, answers[1]]) is problem
    total, seals = _add_up(answers)
    assert total.tolist() == [3.0, 3.0]
    assert seals == [b"first", b"second", b"third"]
    placed = ([((1, 1), (np.ones((1, 1)),), np.zeros(1))], b"seal")
    assert str(Keeper(1, placed, problem).answer(b"")) == "a part is damaged"
    assert "UnpicklingError" in str(Keeper(1, placed).answer(b"no query"))


def test_an_answer_is_waited_for_as_long_as_its_keeper_is_there() -> None:
    class Call:
        waits = 0

        def result(self, timeout: float) -> str:
            assert timeout == keepers._UNCERTAIN
            self.waits += 1
            if self.waits < 3:
                raise TimeoutError
            return "an answer"

    there, gone = (type("Future", (), {"status": status}) for status in ("finished", "error"))
    assert _await_answer(Call(), there) == "an answer"  # type: ignore[comparison-overlap]
    with pytest.raises(TimeoutError):
        _await_answer(Call(), gone)
