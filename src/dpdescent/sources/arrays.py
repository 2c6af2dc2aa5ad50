"""Arrays that are mapped from a file: dense ones, and CSR whose entries are."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from scipy import sparse

from ..errors import ColumnTypeError, InvalidParameter
from .table import StreamedTable, block_rows

__all__ = ["MappedArrays"]

_PART_BLOCKS = 8  # blocks of a part


class MappedArrays(StreamedTable):
    """Features and labels in arrays that are sliced, and never copied as a whole.

    Parameters
    ----------
    X : ndarray, memmap or CSR of shape (n, d)
        Real numbers. CSR may hold memory-mapped entries and column numbers.
    y : array_like of shape (n,)
    part_rows : int, optional
        Rows of a part, a matter of speed alone.
    """

    def __init__(self, X: Any, y: Any, part_rows: int | None = None) -> None:
        if y is None:
            raise InvalidParameter("fit requires y to be passed: labels of mapped rows are an array of their own")
        self._labels = y if isinstance(y, np.ndarray) else np.asarray(y)
        if X.ndim != 2 or self._labels.shape != X.shape[:1]:
            raise InvalidParameter(
                f"features must have the shape (n, d) and labels (n,), got {X.shape} and {self._labels.shape}"
            )
        if X.dtype.kind not in "biuf":
            raise ColumnTypeError(f"features must be real numbers, and are stored as {X.dtype}")
        if sparse.issparse(X) and X.format != "csr":
            raise InvalidParameter(f"sparse rows are read block by block from CSR, not from {X.format}: use tocsr")
        self._features = X
        rows, self.columns = X.shape
        if not rows or not self.columns:
            raise InvalidParameter(f"Found array with shape {X.shape}: at least one row and one column are needed")
        step = part_rows or _PART_BLOCKS * block_rows(self.columns)
        self.parts = [(start, min(start + step, rows)) for start in range(0, rows, step)]
        self.lengths = [stop - start for start, stop in self.parts]

    def read(self, part: Any) -> Iterator[tuple[Any, Any]]:
        start, stop = part
        step = block_rows(self.columns)
        for first in range(start, stop, step):
            some = slice(first, min(first + step, stop))
            features = self._features[some]
            if sparse.issparse(features):
                features = sparse.csr_array(features)
                features.sum_duplicates()
            yield features, np.asarray(self._labels[some])
