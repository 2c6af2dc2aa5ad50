"""Rows whose cells are levels, one byte each, for queries that ask on which level a cell is.

A level is a whole number from 0 to 255, so the rows are on a grid as those of every source are. Columns are
contiguous in memory: a tree reads a few of them, and an array in the order of rows would pass all of them by.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Floats
from ..errors import InvalidParameter
from ..exact import FeatureGrid, on_threads
from ..minimisers.risks import AnyNumber
from .array_source import row_blocks

_BLOCK_ROWS = 2**15  # a few arrays of that many numbers stay in cache


class BinnedSource:
    """Levels of cells in one array of bytes.

    Parameters
    ----------
    levels : ndarray of uint8, shape (n, c)
    labels : array_like of shape (n,)

    Notes
    -----
    **Privacy** Unreleased data, as that of every source. It is only ever summed over.
    """

    in_one_place = True

    def __init__(self, levels: NDArray[np.uint8], labels: ArrayLike) -> None:
        if levels.ndim != 2 or levels.dtype != np.uint8:
            raise InvalidParameter("levels must be an array of bytes with a column for each column of the table")
        self._levels = np.asfortranarray(levels)
        self._labels = np.asarray(labels, dtype=np.float64)
        if self._labels.shape != levels.shape[:1]:
            raise InvalidParameter(f"levels {levels.shape} and labels {self._labels.shape} do not match")
        self.grid = self.grid_of(levels.shape[1])
        self._blocks = row_blocks(levels.shape[0], _BLOCK_ROWS)

    @staticmethod
    def grid_of(columns: int) -> FeatureGrid:
        """Return the grid of the levels of so many columns."""
        return FeatureGrid(255.0, columns)

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

    def _map(self, function: Callable[..., Any], aligned: tuple[NDArray[Any], ...]) -> list[Any]:
        def on(rows: slice) -> Any:
            return function(self._levels[rows], self._labels[rows], *(array[rows] for array in aligned))

        return on_threads(on, self._blocks)
