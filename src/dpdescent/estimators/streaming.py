"""Tables that an estimator reads block by block: coded as those in memory are, a block at a time."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats
from ..curator import BlockSource, Marks, Seals, cached_blocks
from ..errors import InvalidParameter, UnsupportedSource
from ..exact import FeatureGrid, one_library_thread
from ..solvers import METHODS, Method
from ..tables import MappedArrays, StreamedTable, streamed
from .curves import Curves
from .reading import read_numbers, require_finite_cells
from .scaling import ColumnScaling

_PIECE_CELLS = 2**16  # several copies of so many cells are made without asking the system for memory each time


def streamed_table(model: Any, X: Any, y: Any, method: Method, units: Any = None) -> StreamedTable | None:
    """Return the table if it is to be read block by block, None for arrays in memory.

    Arrays that are mapped from a file are read into memory after all where a fit needs all rows in one place, for its
    method, for units, or because classes were not given or target bounds are to be seen without privacy; any other
    table is refused then.
    """
    table = streamed(X, y)
    unseen = not method.private and getattr(model, "target_bounds", ()) is None
    untold = unseen or getattr(model, "classes", ()) is None
    mapped = isinstance(table, MappedArrays) and table is not X
    if table is None or (mapped and (method.gathers or untold or units is not None)):
        return None
    require_streamable(method, units)
    if table is X and y is not None:
        raise InvalidParameter("this table has its own labels: call fit with the table alone")
    if getattr(model, "classes", ()) is None:
        raise InvalidParameter("a table that is read block by block needs classes=(...), which are public")
    if unseen:
        raise InvalidParameter(
            "a table that is read block by block needs target_bounds=(low, high) for a method without privacy"
        )
    model.n_features_in_ = table.columns
    if table.names is not None:
        model.feature_names_in_ = np.array(table.names, dtype=object)
    elif hasattr(model, "feature_names_in_"):
        del model.feature_names_in_
    return table


def require_streamable(method: Method, units: Any) -> None:
    """Raise `UnsupportedSource` where a fit needs all rows in one place."""
    if method.gathers:
        others = ", ".join(
            repr(name) for name in sorted(METHODS) if METHODS[name].general and not METHODS[name].gathers
        )
        raise UnsupportedSource(
            f"method {method.name!r} needs all rows in one place, and this table is read block by block: pass arrays "
            f"in memory, or use one of {others}"
        )
    if units is not None:
        raise UnsupportedSource(
            "units of several rows need all rows in one place, and this table is read block by block: pass arrays in "
            "memory, or leave unit out to protect single rows"
        )


def no_labels(model: Any) -> NDArray[Any]:
    """Return labels of no rows, from which an estimator says what its loss is."""
    return np.asarray(getattr(model, "classes", (0.0,)))[:0]


def block_source(
    model: Any,
    table: StreamedTable,
    features: ColumnScaling | Curves,
    grid: FeatureGrid,
    seals: Seals | None = None,
    keep_rows: bool = True,
) -> BlockSource:
    """Return the source of the rows of a table, coded for a model; ``keep_rows`` if they are read again and again."""
    code = partial(_scaled, features, grid.dimension > features.columns)
    blocks = CodedBlocks(table, code, _Labels.of(model), table.names)
    return BlockSource(blocks, grid, table.engine, seals, keep_rows)


class FitSources:
    """The sources of the rows of one fit: all find the same rows, and the last one is closed before the next opens.

    Attributes
    ----------
    seals : Seals
    """

    def __init__(self) -> None:
        self.seals = Seals()
        self._source: BlockSource | None = None

    def open(
        self,
        model: Any,
        table: StreamedTable,
        features: ColumnScaling | Curves,
        grid: FeatureGrid,
        keep_rows: bool = True,
    ) -> BlockSource:
        """Return a `block_source` of the same rows as those before it."""
        self.close()
        self._source = block_source(model, table, features, grid, self.seals, keep_rows)
        return self._source

    def open_levels(self, model: Any, table: StreamedTable, code: RowCode) -> BlockSource:
        """Return a source of the same rows as levels."""
        from ..curator import BinnedSource  # which linear models need not load

        self.close()
        blocks = CodedBlocks(table, partial(_levels, code), _Labels.of(model), table.names)
        self._source = BlockSource(blocks, BinnedSource.grid_of(code.columns), table.engine, self.seals)
        return self._source

    def close(self) -> None:
        """Let go of the rows that are kept, wherever they are."""
        if self._source is not None:
            self._source.close()

    def __enter__(self) -> FitSources:
        return self

    def __exit__(self, *failure: object) -> None:
        self.close()


def check_all_rows(source: BlockSource, listener: Callable[[float], None] | None = None) -> None:
    """Read a table once, before anything is charged, and raise what is wrong with its cells or labels."""
    source.listener = listener
    with one_library_thread():
        source.map_sum(_nothing)


def _nothing(rows: Any, labels: Floats) -> NDArray[np.int64]:  # noqa: ARG001
    return np.zeros(1, dtype=np.int64)


@dataclass(frozen=True)
class _Labels:
    """Labels as the loss of a model understands them."""

    model: Any

    @classmethod
    def of(cls, model: Any) -> _Labels:
        """Return the labels of a copy without what belongs to no other process."""
        reader = copy.copy(model)
        reader.ledger, reader.progress = None, False
        return cls(reader)

    def __call__(self, labels: Any) -> Floats:
        coded: Floats = self.model._loss_and_labels(labels)[1]
        return coded


class _OfTable:
    """What has the parts of a table."""

    table: StreamedTable

    @property
    def parts(self) -> Sequence[Any]:
        return self.table.parts

    @property
    def lengths(self) -> Sequence[int]:
        return self.table.lengths


@dataclass(frozen=True)
class StreamedCells(_OfTable):
    """The cells of a table after some functions of its blocks, without labels."""

    table: StreamedTable
    functions: tuple[Callable[[Any], Any], ...]

    def mapped(self, function: Callable[[Any], Any]) -> StreamedCells:
        """Return the cells after one more function."""
        return StreamedCells(self.table, (*self.functions, function))

    def read(self, part: Any) -> Iterator[tuple[Any, Floats, Marks]]:
        for block, _, marks in self.table.marked(part):
            pieces = (
                [slice(None)]
                if sparse.issparse(block)
                else cached_blocks(block.shape[0], block.shape[1], _PIECE_CELLS)
            )
            for some in pieces:
                cells = block[some]
                for function in self.functions:
                    cells = function(cells)
                yield cells, np.zeros(cells.shape[0]), marks[some]


class TargetColumn(_OfTable, StreamedTable):  # type: ignore[override]
    """The labels of a table as a column of numbers, whose bounds can be measured."""

    columns = 1

    def __init__(self, table: StreamedTable) -> None:
        self.table, self.engine = table, table.engine

    def read(self, part: Any) -> Iterator[tuple[Any, Any]]:
        for _, labels in self.table.read(part):
            yield read_numbers("y", labels)[:, None], labels

    def marked(self, part: Any) -> Iterator[tuple[Any, Any, Marks]]:
        for _, labels, marks in self.table.marked(part):
            yield read_numbers("y", labels)[:, None], labels, marks


@dataclass(frozen=True)
class CodedBlocks(_OfTable):
    """The blocks of a table, coded by a function of rows and of labels as a loss wants them."""

    table: StreamedTable
    code: Callable[[Any, Floats], Any]
    label: Callable[[Any], Floats]
    names: list[str] | None

    def read(self, part: Any) -> Iterator[tuple[Any, Floats, Marks]]:
        for X, y, marks in self.table.marked(part):
            if not self.table.finite:
                require_finite_cells(X, self.names)
            labels = self.label(y)
            yield self.code(X, labels), labels, marks


class RowCode(Protocol):
    """Maps some rows and their labels, as a loss wants them, to so many columns of bytes, each row by itself."""

    @property
    def columns(self) -> int: ...

    def __call__(self, X: Any, labels: Floats, threads: int | None = None) -> NDArray[np.uint8]: ...


def _levels(code: RowCode, X: Any, labels: Floats) -> Floats:
    """Return rows as levels."""
    return code(X, labels, 1).astype(np.float64)


def _scaled(features: ColumnScaling | Curves, constant: bool, X: Any, labels: Floats) -> Any:  # noqa: ARG001
    """Return rows scaled or expanded, with a constant column if there is an intercept."""
    return coded_block(X, features, constant)


def coded_block(X: Any, features: ColumnScaling | Curves, constant: bool) -> Any:
    """Return coded rows, not yet on their grid."""
    rows, columns = X.shape
    if sparse.issparse(X) or features.columns > columns:
        coded = sparse.csr_array(features.apply(X))
        return sparse.hstack([coded, np.ones((rows, 1))], format="csr") if constant else coded
    scaling = features if isinstance(features, ColumnScaling) else features.scaling
    block = np.empty((rows, columns + constant), order="F" if X.flags.f_contiguous else "C")
    scaling.apply(X, out=block[:, :columns])
    block[:, columns:] = 1.0
    return block
