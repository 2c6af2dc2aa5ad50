"""Rows in memory. A source (`dpdescent.minimisers.risks`) holds rows and offers one operation, sums over blocks.

`ArraySource` keeps the rows in an array, dense or CSR, in float64 or float32; `dpdescent.curator.blocks` reads them
again for each query. Totals are int64, so they are the same for every block size, thread count, layout, storage
type and source.

`BinnedSource` keeps rows whose cells are levels, one byte each, for queries that ask on which level a cell is. A
level is a whole number from 0 to 255, so the rows are on a grid as those of every source are. Columns are
contiguous in memory: a tree reads a few of them, and an array in the order of rows would pass all of them by.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..arrays import Floats
from ..errors import InvalidParameter, require_positive_integer
from ..exact import FeatureGrid, ceil_log2, machine, on_threads
from ..minimisers.risks import AnyNumber

_BINNED_ROWS = 2**15  # of a block of levels: a few arrays of that many numbers stay in cache
_WORTH_A_THREAD = 2**21  # entries of a block: with fewer, waking a thread takes about as long as it saves


class _InMemory(ABC):
    """Rows in one place, whose blocks are mapped on threads and put together in order."""

    in_one_place = True
    _labels: Floats

    @property
    def rows(self) -> int:
        return int(self._labels.size)

    def map_sum(self, function: Callable[..., NDArray[AnyNumber]], *aligned: NDArray[Any]) -> NDArray[AnyNumber]:
        first, *others = self._map(function, aligned)
        total: NDArray[AnyNumber] = sum(others, start=first)
        return total

    def map_rows(self, function: Callable[..., Floats], *aligned: NDArray[Any]) -> Floats:
        parts = self._map(function, aligned)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    @abstractmethod
    def _map(self, function: Callable[..., Any], aligned: tuple[NDArray[Any], ...]) -> list[Any]:
        """Return what a function gives of every block, with the same rows of further arrays."""


class ArraySource(_InMemory):
    """Rows in one array.

    Parameters
    ----------
    features : ndarray or CSR of shape (n, d)
        Rows already on ``grid`` (`FeatureGrid.place`); float64 or float32 storage.
    labels : array_like of shape (n,)
    grid : FeatureGrid
    block_rows : int, optional
        Rows in a block, a matter of speed alone. By default as many as have about four million entries, and at most
        2^16: a smaller block is not worth a thread of its own.
    """

    def __init__(self, features: Any, labels: ArrayLike, grid: FeatureGrid, block_rows: int | None = None) -> None:
        self._features = features
        self._labels = np.asarray(labels, dtype=np.float64)
        self.grid = grid
        self._block_rows = _block_rows(features) if block_rows is None else min(block_rows, 2**17)
        require_positive_integer("block_rows", self._block_rows)
        if features.shape[1:] != (grid.dimension,) or (sparse.issparse(features) and features.format != "csr"):
            raise InvalidParameter(f"features must be dense or CSR with {grid.dimension} columns, as the grid has")
        if self._labels.shape != features.shape[:1]:
            raise InvalidParameter(f"features {features.shape} and labels {self._labels.shape} do not match")
        # Kept, because slices of sparse rows are copies; those of dense ones are views.
        self._blocks = [(rows, features[rows]) for rows in row_blocks(features.shape[0], self._block_rows)]
        checked = [block for _, block in self._blocks]
        if not sparse.issparse(features):
            checked = [features[rows] for rows in cached_blocks(*features.shape)]
        if not all(on_threads(self._on_grid, checked)):
            raise InvalidParameter("features are not on the grid: pass them through its place method first")

    def in_blocks_of(self, owners: NDArray[np.intp]) -> ArraySource:
        """Return the same rows in blocks that hold all rows of an owner or none; these stand one after another."""
        borders = np.append(np.flatnonzero(np.diff(owners, prepend=-1)), owners.size)
        blocks, start = [], 0
        while start < owners.size:
            last = int(np.searchsorted(borders, start + self._block_rows, side="right")) - 1
            stop = int(borders[last]) if borders[last] > start else int(borders[last + 1])
            blocks.append(slice(start, stop))
            start = stop
        same = copy.copy(self)
        if blocks and blocks != [rows for rows, _ in self._blocks]:
            same._blocks = [(rows, self._features[rows]) for rows in blocks]
        return same

    def _on_grid(self, block: Any) -> bool:
        """Return whether entries are stored once, on the grid and within its bounds: sums are exact only then."""
        grid, entries = self.grid, block
        if sparse.issparse(block):
            entries = block.data if block.has_canonical_format else np.full(1, np.nan)
        if entries.dtype not in (np.float64, np.float32):
            return False
        if entries.size and not -grid.largest_entry <= entries.min() <= entries.max() <= grid.largest_entry:
            return False
        scaled = entries * entries.dtype.type(2.0**grid.exponent)
        if not np.array_equal(scaled, np.rint(scaled)):
            return False
        if grid == type(grid)(grid.entry_bound, grid.dimension):
            return True
        # Rounding may lift the norm of a row that was scaled down, by one part in 64 of a power of two.
        return bool((grid.squared_norms(block) <= (1.02 * 2.0 ** ceil_log2(grid.row_bound)) ** 2).all())

    def _map(self, function: Callable[..., Any], aligned: tuple[NDArray[Any], ...]) -> list[Any]:
        def on(block: tuple[slice, Any]) -> Any:
            rows, features = block
            return function(features, self._labels[rows], *(array[rows] for array in aligned))

        return on_threads(on, self._blocks)


def _block_rows(features: Any) -> int:
    """Return the rows of a block: all blocks are alike, whatever the number of processors."""
    rows, entries = int(features.shape[0]), int(features.nnz if sparse.issparse(features) else features.size)
    blocks = max(1, -(-rows // 2**16), entries // _WORTH_A_THREAD)
    return max(1, -(-rows // blocks))


def row_blocks(rows: int, block_rows: int = 2**16) -> list[slice]:
    """Return blocks that cover all rows; no rows are one empty block."""
    return list(machine.row_blocks(rows, block_rows, block_rows)) or [slice(0, 0)]


def cached_blocks(rows: int, columns: int, cells: int = 2**18) -> list[slice]:
    """Return blocks of dense rows that are small enough, two megabytes, to stay in cache; all of about one length."""
    count = -(-rows // max(1, cells // columns))
    return row_blocks(rows, max(1, -(-rows // max(1, count))))


class BinnedSource(_InMemory):
    """Levels of cells in one array of bytes.

    Parameters
    ----------
    levels : ndarray of uint8, shape (n, c)
    labels : array_like of shape (n,)

    Notes
    -----
    **Privacy** Unreleased data, as that of every source. It is only ever summed over.
    """

    def __init__(self, levels: NDArray[np.uint8], labels: ArrayLike) -> None:
        if levels.ndim != 2 or levels.dtype != np.uint8:
            raise InvalidParameter("levels must be an array of bytes with a column for each column of the table")
        self._levels = np.asfortranarray(levels)
        self._labels = np.asarray(labels, dtype=np.float64)
        if self._labels.shape != levels.shape[:1]:
            raise InvalidParameter(f"levels {levels.shape} and labels {self._labels.shape} do not match")
        self.grid = self.grid_of(levels.shape[1])
        self._blocks = row_blocks(levels.shape[0], _BINNED_ROWS)

    @staticmethod
    def grid_of(columns: int) -> FeatureGrid:
        """Return the grid of the levels of so many columns."""
        return FeatureGrid(255.0, columns)

    def _map(self, function: Callable[..., Any], aligned: tuple[NDArray[Any], ...]) -> list[Any]:
        def on(rows: slice) -> Any:
            return function(self._levels[rows], self._labels[rows], *(array[rows] for array in aligned))

        return on_threads(on, self._blocks)
