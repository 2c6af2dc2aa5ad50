"""Dask collections as tables; `dpdescent.sources.workers` adds up their rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..errors import ColumnTypeError, InvalidParameter
from .table import StreamedTable, block_rows
from .tasks import dask_package, without_cells
from .workers import DaskEngine

__all__ = ["DaskTable", "is_dask"]


def is_dask(collection: Any) -> bool:
    """Whether something is a Dask array, DataFrame or Series, without importing Dask for what is none."""
    return type(collection).__module__.partition(".")[0] in ("dask", "dask_expr") and hasattr(collection, "dask")


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
        dask = dask_package()
        counts = [dask.delayed(len)(each) for each in features]
        return [int(length) for length in without_cells(dask.compute, *counts)]

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
