"""What every table has that is read block by block, and the plainest of them: arrays that are mapped from a file."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from scipy import sparse

from ..curator import Engine, Marks, marks
from ..errors import ColumnTypeError, InvalidParameter, UnsupportedSource, no_such_column

if TYPE_CHECKING:
    from .declaration import Schema

BLOCK_CELLS = 2**20  # of a block: eight megabytes, of which every thread holds a few
_PART_BLOCKS = 8  # blocks of a part


class StreamedTable(ABC):
    """A table in parts, features and labels together, that can be read again and again.

    Attributes
    ----------
    parts : sequence
        What `read` needs to be told to find each part; it can be pickled.
    lengths : sequence of int
        The number of rows of every part.
    columns : int
        The number of features.
    names : list of str or None
        Their names, if a model is to insist on them in prediction.
    engine : Engine or None
        Who works on the parts; None for the threads of this process.
    finite : bool
        Whether `read` itself refuses cells that are missing or infinite.
    """

    parts: Sequence[Any]
    lengths: Sequence[int]
    columns: int
    names: list[str] | None = None
    engine: Engine | None = None
    finite = False

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of features."""
        return sum(self.lengths), self.columns

    def __getstate__(self) -> dict[str, Any]:
        """Return what a worker needs; who sent it stays here."""
        return self.__dict__ | {"engine": None}

    @abstractmethod
    def read(self, part: Any) -> Iterator[tuple[Any, Any]]:
        """Yield features, a dense or CSR array of numbers, and labels as they are stored, a few rows at a time."""

    def read_here(self, part: Any) -> Iterator[tuple[Any, Any]]:
        """Yield what `read` does, in this process, of a part that a cluster may have."""
        return self.read(part)

    def marked(self, part: Any) -> Iterator[tuple[Any, Any, Marks]]:
        """Yield what `read` does, and the marks of the rows (`dpdescent.curator.kept_rows`).

        Views are copied first, since what they show may change between the marks and the sums.
        """
        for seen, stored in self.read(part):
            features, labels = _copy_view(seen), _copy_view(stored)
            yield features, labels, marks(features, labels)


def _copy_view(cells: Any) -> Any:
    """Return cells that nobody else can change; slices of sparse arrays are copies already."""
    return cells.copy() if isinstance(cells, np.ndarray) and not cells.flags.owndata else cells


def block_rows(columns: int, cells: int = BLOCK_CELLS) -> int:
    """Return how many rows are read at a time."""
    return max(1, min(2**16, cells // max(1, columns)))


class MappedArrays(StreamedTable):
    """Features and labels in arrays that are sliced, and never copied as a whole.

    ``X`` has real numbers; CSR may hold memory-mapped entries and column numbers. ``part_rows`` is a matter of speed
    alone.
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


def streamed(X: Any, y: Any) -> StreamedTable | None:
    """Return the table if it is one to be read block by block, and None for arrays in memory."""
    from .dask import DaskTable, is_dask

    if isinstance(X, StreamedTable):
        return X
    if isinstance(X, CellsInBlocks):
        raise UnsupportedSource("nothing is known of the columns of this table: fit it, or open it by a schema")
    if isinstance(X, np.memmap) or (sparse.issparse(X) and isinstance(getattr(X, "data", None), np.memmap)):
        return MappedArrays(X, y)
    if is_dask(X):
        return DaskTable(X, y)
    return None


@dataclass(frozen=True)
class CellsInBlocks:
    """A table of which nothing is known, and which is not in memory."""

    example: pd.DataFrame  # without rows: the names and storage types of the columns
    rows: int
    #: Returns some columns anew, as DataFrames of a few rows. **Unreleased data.**
    blocks: Callable[[list[str]], Iterable[pd.DataFrame]]
    #: Returns the table coded by a schema, with a label that is a number as its cells are with a decimal point.
    coded: Callable[[Schema], StreamedTable]
    label: str = ""  # the column that a fit predicts
    rest: Any = None  # that of labels which are none of the others

    @property
    def shape(self) -> tuple[int, int]:
        """The number of rows and of columns."""
        return self.rows, self.example.shape[1]

    def predicting(self, label: str, rest: Any = None) -> CellsInBlocks:
        """Return the table with the column that a fit is to predict."""
        if label not in self.example.columns:
            raise no_such_column("the label column", label, self.example.columns)
        if self.example.shape[1] == 1:
            raise InvalidParameter("the table has no column but the label: there is nothing to learn from")
        return replace(self, label=label, rest=rest)
