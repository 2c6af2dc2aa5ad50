"""Dask collections as tables, and workers of Dask that add up the rows of any table.

Rows stay with the workers, and so do the numbers of single rows. The rows on their grid are kept too, where that
takes up at most a quarter of the workers' memory (`dpdescent.tables.keepers`). Where they are not, each part of the
table is read by a task for each query, and the numbers of its rows are the results of tasks. A worker that is lost
takes its part of all this along, and it is computed again from the rows by another; each is a function of its row and
of public numbers, and seals tell whether the rows are the same. Sums are int64. The noise, the ledger and all
decisions stay in this process, which sees sums alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..arrays import Floats
from ..curator import PartWork, PlacedBlocks, new_digest
from ..curator.kept_rows import changed
from ..errors import ColumnTypeError, DPDescentError, InvalidParameter, MissingPackage
from .keepers import Keepers, attempt, dask_package, without_cells
from .streamed_table import StreamedTable, block_rows

if TYPE_CHECKING:
    from .declaration import Schema

_PATIENCE = 10.0  # seconds in which a scheduler must answer
_TREE = 8  # sums that are added up by one task, and sums that this process adds up itself


def is_dask(collection: Any) -> bool:
    """Whether something is a Dask array, DataFrame or Series, without importing Dask for what is none."""
    return type(collection).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(collection, "dask")


class DaskTable(StreamedTable):
    """A Dask array or DataFrame of features, and labels with the same partitions.

    All columns must be numbers; an array is cut into blocks of whole rows.

    Notes
    -----
    The number of rows in every partition must be known. Where Dask does not know it, rows are counted, which reads
    the table once. If the collection is not persisted, its tasks run again for every query.
    """

    def __init__(self, X: Any, y: Any, engine: DaskEngine | None = None) -> None:
        if not is_dask(y):
            raise InvalidParameter("the labels of a Dask collection must be one too, with the same partitions")
        self.engine = engine or DaskEngine()
        X, framed = self._describe(X), hasattr(X, "columns")
        features, labels = ([*np.ravel(each.to_delayed())] for each in (X, y))
        if y.ndim != 1:
            raise InvalidParameter("y should be a 1d array, or a Series: pass one column")
        if len(features) != len(labels):
            raise InvalidParameter("features and labels have different partitions: repartition or rechunk one")
        lengths = [] if framed else list(X.chunks[0])
        if not all(isinstance(length, int) for length in lengths) or framed:
            lengths = self._count_rows(features)
        pairs = list(zip(features, labels, strict=True))
        self.parts = [pair for pair, length in zip(pairs, lengths, strict=True) if length]
        self.lengths = [length for length in lengths if length]
        if not self.parts:
            raise InvalidParameter("Found array with no rows: at least one is needed")

    def _describe(self, X: Any) -> Any:
        """Note the columns of the features, and return them in partitions of whole rows."""
        if hasattr(X, "columns"):
            wrong = [name for name, dtype in X.dtypes.items() if getattr(dtype, "kind", "O") not in "biuf"]
            if wrong:
                raise ColumnTypeError(
                    f"column {wrong[0]!r} is not stored as numbers: write the table as Parquet files, which "
                    "dpdescent.tables.open_parquet reads by a schema, such as Schema.measure finds in this table, or "
                    "code it by BoundedEncoder"
                )
            self.names = [str(name) for name in X.columns] if all(isinstance(c, str) for c in X.columns) else None
            self.columns = len(X.columns)
            return X
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ColumnTypeError("a Dask array of features must hold real numbers in two dimensions")
        self.columns = int(X.shape[1])
        return X.rechunk({1: -1})

    @staticmethod
    def _count_rows(features: list[Any]) -> list[int]:
        dask = dask_package()
        counts = [dask.delayed(len)(each) for each in features]
        return [int(length) for length in without_cells(dask.compute, *counts)]

    def __getstate__(self) -> dict[str, Any]:
        return super().__getstate__() | {"parts": (), "lengths": ()}  # workers get the rows of a part handed over

    def read_here(self, part: Any) -> Iterator[tuple[Any, Any]]:
        return self.read(without_cells(dask_package().compute, *part))

    def read(self, part: Any) -> Iterator[tuple[Any, Any]]:
        features, labels = (each.to_numpy() if hasattr(each, "to_numpy") else np.asarray(each) for each in part)
        if features.dtype.kind == "O":  # columns with a marker for missing cells
            features = part[0].to_numpy(dtype=np.float64, na_value=np.nan)
        if features.shape[0] != labels.shape[0]:
            raise InvalidParameter("features and labels have different numbers of rows in a partition")
        step = block_rows(self.columns)
        for first in range(0, features.shape[0], step):
            yield features[first : first + step], labels[first : first + step]


class CodedDask(DaskTable):
    """A DataFrame of Dask with its labels, coded by a schema; ``typed`` is applied to some rows before that."""

    finite = True

    def __init__(
        self, X: Any, schema: Schema, example: pd.DataFrame, typed: Callable[[pd.DataFrame], pd.DataFrame]
    ) -> None:
        self.schema, self._typed, self._encoder = schema, typed, schema.encoder()
        self._encoder.fit(schema.with_days(example[[*schema.features]]))
        self.feature_names = tuple(self._encoder.get_feature_names_out())
        self.bounds, self.binary_features = self._encoder.output_bounds_, self._encoder.binary_features_
        super().__init__(X, X[schema.label.column])

    def _describe(self, X: Any) -> Any:
        self.columns = len(self.feature_names)
        return X

    def read(self, part: Any) -> Iterator[tuple[Any, Any]]:
        step = block_rows(self.columns)
        for first in range(0, len(part[0]), step):
            frame = self._typed(part[0].iloc[first : first + step])
            features = self.schema.with_days(frame[[*self.schema.features]])
            yield self._encoder.transform(features), self.schema.labels(frame)


class DaskEngine:
    """Works on the parts of a table by Dask.

    ``address`` is that of a scheduler to connect to. Without it tasks go where Dask sends them: to the current client
    if there is one, or to threads of this process.

    **Privacy** Tasks and their results are unreleased data: workers, the scheduler and its dashboard belong to those
    who may see the rows.
    """

    def __init__(self, address: str | None = None) -> None:
        self._client: Any = None
        self._keepers: WeakKeyDictionary[PlacedBlocks, Keepers | None] = WeakKeyDictionary()
        if address is not None:
            dask_package()
            try:
                from distributed import Client

                self._client = Client(address, timeout=_PATIENCE, set_as_default=False)
            except ImportError:
                raise MissingPackage("distributed is not installed: pip install 'dpdescent[scale]'") from None
            except (OSError, ValueError, TimeoutError):
                raise InvalidParameter(f"no Dask scheduler answers at {address!r}: correct the address") from None

    def close(self) -> None:
        """Let go of what workers keep, and end the connection to the scheduler at the address."""
        for blocks in list(self._keepers):
            self.forget(blocks)
        if self._client is not None:
            self._client.close()

    def forget(self, blocks: PlacedBlocks) -> None:
        keepers = self._keepers.pop(blocks, None)
        if keepers is not None:
            keepers.release()

    def run(
        self,
        work: PartWork,
        blocks: PlacedBlocks,
        known: Sequence[Any],
        listener: Callable[[float], None] | None = None,
    ) -> tuple[NDArray[Any], list[bytes], Sequence[Any]]:
        client = self._find_client()
        if blocks not in self._keepers:  # another thread may fit with this engine to other rows
            self._keepers[blocks] = without_cells(Keepers.where_there_is_room, client, blocks)
        keepers = self._keepers[blocks]
        ask = partial(_ask_tasks, client, blocks) if keepers is None else keepers.ask
        total, seals, held = without_cells(ask, work, known)
        if isinstance(total, DPDescentError):
            raise type(total)(*total.args)  # without the task that led to it
        if listener is not None:
            listener(1.0)  # the scheduler's own dashboard shows what the workers do meanwhile
        return total, seals, held

    def _find_client(self) -> Any:
        """Return the client that tasks go to, or None for threads of this process."""
        if self._client is not None:
            return self._client
        if dask_package().config.get("scheduler", None) not in (None, "distributed", "dask.distributed"):
            return None
        try:
            from distributed import default_client

            return default_client()
        except (ImportError, ValueError):
            return None


@dataclass(frozen=True)
class _Held:
    """A number of single rows: the results of the tasks of all parts, and its own position in them."""

    results: list[Any]
    number: int


@dataclass(frozen=True)
class _Result:
    """What a task returns; the numbers of single rows stay where they are."""

    total: Any
    seals: list[bytes]
    computed: list[Floats]


def _ask_tasks(
    client: Any, blocks: PlacedBlocks, work: PartWork, known: Sequence[Any]
) -> tuple[Any, list[bytes], list[_Held]]:
    """Return the sum over parts that are read once more, their seals, and what stands for the numbers of rows."""
    dask = dask_package()
    numbers = tuple(each.number if isinstance(each, _Held) else None for each in known)
    asked = dask.delayed((work, blocks), pure=False, traverse=False)
    read = partial(dask.delayed(partial(_on_part, numbers), pure=False), asked)
    results: list[Any] = []
    for place, part in enumerate(zip(blocks.blocks.parts, blocks.blocks.lengths, strict=True)):
        of_rows = [(each.results if isinstance(each, _Held) else each)[place] for each in known]
        results.append(read(*part, of_rows))
    sums = [dask.delayed(_without_rows, pure=False)(each) for each in results] if work.computed else results
    while len(sums) > _TREE:
        sums = [dask.delayed(_add_up, pure=False)(sums[i : i + _TREE]) for i in range(0, len(sums), _TREE)]
    if client is not None:
        futures = client.compute([*sums, *(results if work.computed else ())])
        found, results = client.gather(futures[: len(sums)]), futures[len(sums) :]
    else:
        held = dask.persist(*sums, *(results if work.computed else ()))
        found, results = dask.compute(*held[: len(sums)]), list(held[len(sums) :])
    answer = _add_up(found)
    return answer.total, answer.seals, [_Held(results, number) for number in range(len(work.computed))]


def _on_part(
    numbers: tuple[int | None, ...], asked: tuple[PartWork, PlacedBlocks], part: Any, length: int, known: list[Any]
) -> _Result:
    """Return the sum over a part, its seal and the numbers of its rows, or in place of the sum what is wrong."""
    (work, blocks), digest = asked, new_digest()

    def answer() -> _Result:
        pairs = list(zip(numbers, known, strict=True))
        of_rows = [each if number is None else each.computed[number] for number, each in pairs]
        total, computed = work(blocks(part, length, digest), of_rows)
        seal = digest.digest()
        if any(each.seals != [seal] for number, each in pairs if number is not None):
            raise changed()  # these numbers belong to other rows
        return _Result(total, [seal], computed)

    found = attempt(answer)
    return _Result(found, [b""], []) if isinstance(found, DPDescentError) else found


def _without_rows(result: _Result) -> _Result:
    return _Result(result.total, result.seals, [])


def _add_up(results: Sequence[_Result]) -> _Result:
    """Return the sum of sums, or the first that is none, and all seals."""
    seals = [seal for each in results for seal in each.seals]
    wrong = [each.total for each in results if isinstance(each.total, DPDescentError)]
    total = wrong[0] if wrong else sum((each.total for each in results[1:]), start=results[0].total)
    return _Result(total, seals, [])
