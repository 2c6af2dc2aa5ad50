"""Dask: collections as tables, and workers that add up the rows of any table.

Rows stay with the workers, and so do the numbers of single rows, as persisted tasks. The rows on their grid are kept
too, at four bytes per cell, where that is at most a quarter of the workers' memory. A worker that is lost takes its
part of them along, and the scheduler has them computed again from the rows by another; each is a function of its row
and of public numbers, so nothing changes. Sums are int64 and added up in a tree. The noise, the ledger and all
decisions stay in this process, which sees sums alone.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..curator import PartWork, PlacedBlocks, Seal
from ..curator.spill import pack, unpack
from ..errors import (
    ColumnTypeError,
    DatasetFormatError,
    DPDescentError,
    InvalidParameter,
    MissingPackage,
    WorkerLost,
)
from ..exact import one_library_thread
from .table import StreamedTable, block_rows

__all__ = ["DaskEngine", "DaskTable", "is_dask"]

_LOST = ("KilledWorker", "FutureCancelledError", "CancelledError", "CommClosedError")
_TREE = 8  # sums that are added up by one task
_LARGEST_SHARE = 0.25  # of the memory of all workers, for rows on their grid; they can be placed again instead
_BYTES = 4  # of a cell that is kept


def is_dask(collection: Any) -> bool:
    """Whether something is a Dask array, DataFrame or Series, without importing Dask for what is none."""
    return type(collection).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(collection, "dask")


def _dask() -> Any:
    try:
        import dask
    except ImportError:
        raise MissingPackage("Dask is not installed: pip install 'dpdescent[scale]'") from None
    return dask


class DaskEngine:
    """Works on the parts of a table by Dask tasks.

    Parameters
    ----------
    address : str, optional
        That of a scheduler to connect to. Without it tasks go where Dask sends them: to the current client if there
        is one, or to threads of this process.

    Notes
    -----
    **Privacy** Tasks and their results are unreleased data: workers, the scheduler and its dashboard belong to those
    who may see the rows.
    """

    def __init__(self, address: str | None = None) -> None:
        self._client: Any = None
        self._kept: tuple[weakref.ref[PlacedBlocks], list[Any]] | None = None
        if address is not None:
            _dask()
            try:
                from distributed import Client

                self._client = Client(address, timeout=10, set_as_default=False)
            except ImportError:
                raise MissingPackage("distributed is not installed: pip install 'dpdescent[scale]'") from None
            except (OSError, ValueError, TimeoutError):
                raise InvalidParameter(f"no Dask scheduler answers at {address!r}: correct the address") from None

    def close(self) -> None:
        """Let go of what workers keep, and end the connection to the scheduler at the address."""
        self._kept = None
        if self._client is not None:
            self._client.close()

    def run(
        self,
        work: PartWork,
        blocks: PlacedBlocks,
        known: Sequence[Any],
        listener: Callable[[float], None] | None = None,
    ) -> tuple[NDArray[Any], list[bytes], Sequence[Any]]:
        dask = _dask()
        placed, fresh = self._placed(work, blocks)
        if placed:
            asked = dask.delayed(work, pure=False, traverse=False)
            results = [
                dask.delayed(_on_placed, pure=False)(asked, rows, *(each[place] for each in known))
                for place, rows in enumerate(placed)
            ]
        else:
            asked = dask.delayed((work, blocks), pure=False, traverse=False)
            results = [
                dask.delayed(_on_part, pure=False)(asked, part, length, *(each[place] for each in known))
                for place, (part, length) in enumerate(zip(blocks.blocks.parts, blocks.blocks.lengths, strict=True))
            ]
        held = [[result[2 + k] for result in results] for k in range(len(work.computed))]
        sums = [result[0] for result in results]
        while len(sums) > 1:
            sums = [dask.delayed(_added, pure=False)(sums[i : i + _TREE]) for i in range(0, len(sums), _TREE)]
        answer = dask.delayed(_answered, pure=False)(sums[0], [result[1] for result in results])
        wanted = [answer, *(value for each in held for value in each), *(placed if fresh else [])]
        (total, seals), *kept = _without_cells(self._persisted, wanted)
        if isinstance(total, DPDescentError):
            raise type(total)(*total.args)  # without the task that led to it
        if fresh:
            self._kept = weakref.ref(blocks), kept[-len(placed) :]
        if listener is not None:
            listener(1.0)  # the scheduler's own dashboard shows what the workers do meanwhile
        parts = len(results)
        return total, seals, [kept[k * parts : (k + 1) * parts] for k in range(len(work.computed))]

    def _placed(self, work: PartWork, blocks: PlacedBlocks) -> tuple[list[Any], bool]:
        """Return tasks that have the rows of each part on the grid, and whether they are new; none without room."""
        kept = self._kept  # another thread may fit with this engine
        if kept is not None and kept[0]() is blocks:
            return kept[1], False
        self._kept = None  # what was kept for another fit is let go
        parts, lengths = blocks.blocks.parts, blocks.blocks.lengths
        if _BYTES * sum(lengths) * blocks.grid.dimension > _LARGEST_SHARE * self._memory():
            return [], False
        dask = _dask()
        asked = dask.delayed((work.seal, blocks), pure=False, traverse=False)
        placed = [dask.delayed(_place, pure=False)(asked, *each) for each in zip(parts, lengths, strict=True)]
        return placed, True

    def _memory(self) -> float:
        """Return the memory of all workers in bytes, 0 where nobody says how much they have."""
        client = self._client
        if client is None:
            try:
                from distributed import default_client

                client = default_client()
            except (ImportError, ValueError):
                return 0.0
        workers = client.scheduler_info(n_workers=-1).get("workers")
        if not workers:
            raise _lost()
        return float(sum(worker["memory_limit"] or 0 for worker in workers.values()))

    def _persisted(self, wanted: list[Any]) -> list[Any]:
        """Return the first value, and what stands for the others where they are kept."""
        if self._client is not None:
            kept = self._client.persist(wanted)
            return [self._client.compute(kept[0]).result(), *kept[1:]]
        kept = _dask().persist(*wanted)
        return [kept[0].compute(), *kept[1:]]


def _on_part(asked: tuple[PartWork, PlacedBlocks], part: Any, length: int, *known: NDArray[Any]) -> tuple[Any, ...]:
    """Return the sum over a part, its seal and the numbers of its rows, or in place of the sum what is wrong.

    A worker writes the arguments of a task that raises, here rows, into its log.
    """
    work, blocks = asked
    try:
        with one_library_thread():
            total, seal, computed = work(blocks(part, length), known)
    except DPDescentError as found:
        return type(found)(*found.args), b"", *(None for _ in work.computed)
    except Exception as found:
        return _failed(found), b"", *(None for _ in work.computed)
    return total, seal, *computed


def _place(asked: tuple[Seal, PlacedBlocks], part: Any, length: int) -> Any:
    """Return the rows of a part on the grid, with their labels and their seal, or what is wrong with them."""
    seal, blocks = asked
    try:
        with one_library_thread():
            digest, kept = seal.digest(), []
            for rows, labels in blocks(part, length):
                seal.add(digest, rows, labels)
                kept.append((rows.shape, pack(rows, blocks.grid), labels))
            return kept, digest.digest()
    except DPDescentError as found:
        return type(found)(*found.args)
    except Exception as found:
        return _failed(found)


def _on_placed(work: PartWork, placed: Any, *known: NDArray[Any]) -> tuple[Any, ...]:
    """Return what `_on_part` does, for rows that are on the grid already."""
    if isinstance(placed, DPDescentError):
        return placed, b"", *(None for _ in work.computed)
    kept, sealed = placed
    try:
        with one_library_thread():
            rows = ((unpack(shape, arrays), labels) for shape, arrays, labels in kept)
            total, seal, computed = work(rows, known, sealed)
    except Exception as found:
        return _failed(found), b"", *(None for _ in work.computed)
    return total, seal, *computed


def _answered(total: Any, seals: list[bytes]) -> tuple[Any, list[bytes]]:
    return total, seals


def _added(sums: list[Any]) -> Any:
    """Return the sum of sums, or the first that is none."""
    wrong = [each for each in sums if isinstance(each, DPDescentError)]
    return wrong[0] if wrong else sum(sums[1:], start=sums[0])


def _without_cells(compute: Callable[..., Any], *arguments: Any) -> Any:
    """Return what tasks compute; the texts of errors of a collection's own tasks show cells, and are replaced."""
    problem: DPDescentError
    try:
        return compute(*arguments)
    except Exception as found:
        lost = type(found).__name__ in _LOST
        problem = _lost() if lost else _failed(found)
    raise problem  # outside the handler, so that the text with the cell is not its context


def _lost() -> WorkerLost:
    return WorkerLost("the workers of the cluster were lost: start them again")


def _failed(found: Exception) -> DatasetFormatError:
    return DatasetFormatError(
        f"tasks of the table failed with {type(found).__name__}: compute the collection by itself to see why"
    )


class DaskTable(StreamedTable):
    """A Dask array or DataFrame of features, and labels with the same partitions.

    Parameters
    ----------
    X : dask array or DataFrame
        All columns must be numbers. An array is cut into blocks of whole rows.
    y : dask array or Series
    engine : DaskEngine, optional

    Notes
    -----
    The number of rows in every partition must be known. Where Dask does not know it, rows are counted, which reads
    the table once. If the collection is not persisted, its tasks run again for every question.
    """

    def __init__(self, X: Any, y: Any, engine: DaskEngine | None = None) -> None:
        if not is_dask(y):
            raise InvalidParameter("the labels of a Dask collection must be one too, with the same partitions")
        self.engine = engine or DaskEngine()
        framed = hasattr(X, "columns")
        if framed:
            wrong = [name for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") not in "biuf"]
            if wrong:
                raise ColumnTypeError(f"column {wrong[0]!r} is not stored as numbers: encode it with BoundedEncoder")
            self.names = [str(name) for name in X.columns] if all(isinstance(c, str) for c in X.columns) else None
            self.columns = len(X.columns)
        elif X.ndim == 2 and X.dtype.kind in "biuf":
            self.columns = int(X.shape[1])
            X = X.rechunk({1: -1})
        else:
            raise ColumnTypeError("a Dask array of features must hold real numbers in two dimensions")
        features, labels = ([*np.ravel(each.to_delayed())] for each in (X, y))
        if y.ndim != 1:
            raise InvalidParameter("y should be a 1d array, or a Series: pass one column")
        if len(features) != len(labels):
            raise InvalidParameter("features and labels have different partitions: repartition or rechunk one")
        lengths = [] if framed else list(X.chunks[0])
        if not all(isinstance(length, int) for length in lengths) or framed:
            lengths = self._lengths(features)
        pairs = list(zip(features, labels, strict=True))
        self.parts = [pair for pair, length in zip(pairs, lengths, strict=True) if length]
        self.lengths = [length for length in lengths if length]
        if not self.parts:
            raise InvalidParameter("Found array with no rows: at least one is needed")

    @staticmethod
    def _lengths(features: list[Any]) -> list[int]:
        dask = _dask()
        counts = [dask.delayed(len)(each) for each in features]
        return [int(length) for length in _without_cells(dask.compute, *counts)]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"parts": (), "lengths": ()}  # workers get the rows of a part handed over

    def read(self, part: Any) -> Iterator[tuple[Any, Any]]:
        features, labels = (each.to_numpy() if hasattr(each, "to_numpy") else np.asarray(each) for each in part)
        if features.dtype.kind == "O":  # columns with a marker for missing cells
            features = part[0].to_numpy(dtype=np.float64, na_value=np.nan)
        if features.shape[0] != labels.shape[0]:
            raise InvalidParameter("features and labels have different numbers of rows in a partition")
        step = block_rows(self.columns)
        for first in range(0, features.shape[0], step):
            yield features[first : first + step], labels[first : first + step]
