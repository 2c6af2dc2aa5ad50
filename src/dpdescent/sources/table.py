"""What every table has that is read block by block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from scipy import sparse

from ..curator import Engine, Marks, marks

__all__ = ["BLOCK_CELLS", "StreamedTable", "block_rows", "streamed"]

BLOCK_CELLS = 2**20  # of a block: eight megabytes, of which every thread holds a few


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

    def marked(self, part: Any) -> Iterator[tuple[Any, Any, Marks]]:
        """Yield what `read` does, and the marks of the rows (`dpdescent.curator.seals`).

        Views are copied first, since what they show may change between the marks and the sums.
        """
        for seen, stored in self.read(part):
            features, labels = _copied(seen), _copied(stored)
            yield features, labels, marks(features, labels)


def _copied(cells: Any) -> Any:
    """Return cells that nobody else can change; slices of sparse arrays are copies already."""
    return cells.copy() if isinstance(cells, np.ndarray) and not cells.flags.owndata else cells


def block_rows(columns: int, cells: int = BLOCK_CELLS) -> int:
    """Return how many rows are read at a time."""
    return max(1, min(2**16, cells // max(1, columns)))


def streamed(X: Any, y: Any) -> StreamedTable | None:
    """Return the table if it is one to be read block by block, and None for arrays in memory."""
    from .arrays import MappedArrays
    from .dask import DaskTable, is_dask

    if isinstance(X, StreamedTable):
        return X
    if isinstance(X, np.memmap) or (sparse.issparse(X) and isinstance(getattr(X, "data", None), np.memmap)):
        return MappedArrays(X, y)
    if is_dask(X):
        return DaskTable(X, y)
    return None
