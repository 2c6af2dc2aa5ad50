"""The rows on which a model is evaluated: arrays, data frames and sparse tables, or tables read block by block."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats, Integers
from ..curator import Units
from ..curator.release import public_count
from ..errors import InfiniteValue, InvalidParameter, MissingValue, UnsupportedSource
from ..estimators.reading import class_positions, read_numbers, require_finite_cells, split_units
from ..tables import StreamedTable, streamed
from .row_sums import RowSum, Scored
from .scoring import Scorer

_BLOCK = 4096


@dataclass(frozen=True, eq=False)
class EvaluatedRows:
    """A table and its labels, checked. **Unreleased data**."""

    scorer: Scorer
    table: Any
    #: Positions among the classes, or numbers; None where the table has its own.
    labels: NDArray[Any] | None
    units: Units | None
    protected: str  # what is protected, in words
    count: int  # the public number of rows, or of units
    _kept: dict[int, Floats] = field(default_factory=dict, init=False, repr=False)

    @classmethod
    def of(cls, scorer: Scorer, X: Any, y: Any, unit: Any, rows_per_unit: int) -> EvaluatedRows:
        """Read a table, and raise what is wrong with it. Nothing is charged."""
        column = unit if isinstance(unit, str) else None
        X, identifiers, protected = split_units(X, column, None if column is not None else unit)
        if identifiers is None and rows_per_unit != 1:
            raise InvalidParameter("rows_per_unit is about units of several rows: say by unit= whose rows they are")
        stream = streamed(X, y)
        if stream is not None:
            if identifiers is not None:
                raise UnsupportedSource("units need all rows in one place: pass arrays in memory, or leave unit out")
            found = cls(scorer, stream, None, None, protected, public_count(sum(stream.lengths)))
            for _ in found._blocks():  # a label or a cell that is none is said before anything is charged
                pass
            found._probe(np.zeros((1, stream.columns)))
            return found
        if y is None:
            raise InvalidParameter("y is missing: an evaluation compares predictions with labels")
        table: Any = X if hasattr(X, "shape") else np.asarray(X)
        table = table.tocsr() if sparse.issparse(table) else table
        labels = _labels_of(scorer, y)
        if table.ndim < 1 or labels.shape != table.shape[:1] or not labels.size:
            raise InvalidParameter(f"X {table.shape} and y {labels.shape} must have the same rows, and at least one")
        if hasattr(X, "index") and hasattr(y, "index") and not X.index.equals(y.index):
            raise InvalidParameter("X and y have different indexes: bring both into one order, or pass y.to_numpy()")
        units = None
        if identifiers is not None:
            kept, units = Units.kept(identifiers, rows_per_unit, table.shape[0])
            table, labels = table.iloc[kept] if hasattr(table, "iloc") else table[kept], labels[kept]
        found = cls(
            scorer, table, labels, units, protected, public_count(labels.size) if units is None else units.count
        )
        found._check_cells()
        return found

    @property
    def rows_per_unit(self) -> int:
        """How many rows may change together."""
        return 1 if self.units is None else self.units.rows_per_unit

    @property
    def public_rows(self) -> int | None:
        """The number of rows, where it is public."""
        return self.count if self.units is None else None

    @property
    def most_rows(self) -> int:
        """A public number that the rows never exceed."""
        return self.count if self.units is None else self.units.places

    def add_up(self, wanted: RowSum) -> Integers:
        """Return a sum over all rows, in steps of the lattice: **unreleased data**."""
        total: Integers | int = 0
        for number, (block, labels) in enumerate(self._blocks()):
            scores = self._kept[number] if number in self._kept else self.scorer.score(block)
            if not isinstance(self.table, StreamedTable):
                self._kept[number] = scores  # scored once, and asked about twice
            decided = scores.argmax(axis=1) if scores.shape[1] > 1 else None
            total = total + wanted.add(Scored(scores, labels, decided))
        empty = Scored(np.zeros((0, self.scorer.histograms)), np.zeros(0), np.zeros(0, np.intp))
        return np.asarray(total + wanted.add(empty), dtype=np.int64)

    def _blocks(self) -> Iterator[tuple[Any, NDArray[Any]]]:
        if isinstance(self.table, StreamedTable):
            for part in self.table.parts:
                for features, labels in self.table.read(part):
                    if not self.table.finite:
                        require_finite_cells(features, self.table.names)
                    yield features, _labels_of(self.scorer, labels)
            return
        assert self.labels is not None
        for start in range(0, self.labels.size, _BLOCK):
            some = slice(start, start + _BLOCK)
            yield (self.table.iloc[some] if hasattr(self.table, "iloc") else self.table[some]), self.labels[some]

    def _check_cells(self) -> None:
        """Try a made-up row of zeros, and refuse cells that a model of this library refuses."""
        table = self.table
        if isinstance(table, pd.DataFrame):
            if all(kind.kind in "biuf" for kind in table.dtypes if hasattr(kind, "kind")) and len(table.columns):
                self._probe(pd.DataFrame(np.zeros((1, table.shape[1])), columns=table.columns))
            cells = table.to_numpy() if self.scorer.own else None
            names = table.columns
        else:
            cells, names = (table if self.scorer.own else None), None
            if getattr(table, "dtype", np.dtype(object)).kind in "biuf":
                zeros = np.zeros((1, *table.shape[1:]), dtype=table.dtype)
                self._probe(sparse.csr_array(zeros) if sparse.issparse(table) else zeros)
        if cells is not None and getattr(cells, "dtype", np.dtype(object)).kind == "f":
            require_finite_cells(cells, names)

    def _probe(self, row: Any) -> None:
        """Score a made-up row, so that what does not fit is said before anything is charged."""
        if self.scorer.own:
            self.scorer.call(row)


def _labels_of(scorer: Scorer, y: Any) -> NDArray[Any]:
    """Return labels as positions among the classes, or as finite numbers."""
    given: NDArray[Any] = np.asarray(y)
    given = given[:, 0] if given.ndim == 2 and given.shape[1] == 1 else given
    if scorer.classes is not None:
        return class_positions(np.array(scorer.classes), given)
    numbers = read_numbers("y", given)
    if not np.isfinite(numbers).all():
        kind = MissingValue if np.isnan(numbers).any() else InfiniteValue
        raise kind("y has a cell that is missing or infinite: drop those rows")
    return numbers
