"""How often each level occurs in every column."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..accounting import Gaussian
from ..errors import InvalidParameter, require_positive_integer
from ..relations import Norm, Sensitivity
from .questions import Noised, Public, Question, Sum

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_COUNT_UNIT = 2.0**-20  # counts are whole numbers; a finer lattice makes room for little noise


@dataclass(frozen=True)
class ColumnHistograms(Question[Floats]):
    """The number of cells on each level of every column, shape (columns, 2 levels + 1).

    A cell x is on the level nearest to x 2^bits, from -levels to levels; whatever lies beyond is on the last one.

    Parameters
    ----------
    levels, bits : int
    noise : Gaussian

    Notes
    -----
    **Privacy** A row adds 1 to one count of each of c columns: L2 sensitivity sqrt(c). A row that is replaced takes 1
    from one count and adds 1 to another: sqrt(2c).
    """

    levels: int
    bits: int
    noise: Gaussian
    label = "column histograms"

    def plan(self, public: Public) -> Sum[Floats]:
        levels, grid = require_positive_integer("levels", self.levels), public.problem.grid
        if not 0 <= self.bits <= grid.exponent:
            raise InvalidParameter(f"levels are multiples of the grid: bits must lie in [0, {grid.exponent}]")
        columns, width = grid.dimension, 2 * levels + 1
        in_units = partial(np.multiply, int(1 / _COUNT_UNIT))
        noised = Noised(self.noise, _COUNT_UNIT, self.sensitivity(columns), public.rate, in_units)
        block = partial(_block, levels, 2.0**self.bits)
        return Sum(block, (noised,), lambda counts: counts.reshape(columns, width))

    @staticmethod
    def sensitivity(columns: int) -> Sensitivity:
        """Return how much one row can change the counts of so many columns."""
        removed, replaced = (math.sqrt(each * columns) * (1 + 2.0**-50) for each in (1, 2))
        return Sensitivity(Norm.L2, removed, replaced)


def _block(levels: int, scale: float, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    columns, width = rows.shape[1], 2 * levels + 1
    if not sparse.issparse(rows):
        return np.bincount(
            (_levels(rows, levels, scale) + np.arange(columns) * width).ravel(), minlength=columns * width
        ).astype(np.int64)
    counts = np.bincount(
        _levels(rows.data, levels, scale) + rows.indices.astype(np.int64) * width, minlength=columns * width
    )
    table = counts.reshape(columns, width).astype(np.int64)
    table[:, levels] += rows.shape[0] - np.bincount(
        rows.indices, minlength=columns
    )  # cells that are not stored are 0
    return table.reshape(-1)


def _levels(cells: Any, levels: int, scale: float) -> Integers:
    nearest = np.rint(np.nan_to_num(np.asarray(cells, dtype=np.float64) * scale))
    return np.clip(nearest, -levels, levels).astype(np.int64) + levels
