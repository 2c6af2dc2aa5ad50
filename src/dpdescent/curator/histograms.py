"""How often each level occurs in every column, and margins of each size in both classes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..accounting import Gaussian, Laplace
from ..errors import InvalidParameter, require_positive_integer
from ..exact import FeatureGrid
from ..problems import LabelKind
from ..relations import Norm, Sensitivity
from .moments import COUNT
from .questions import Noised, Public, Question, Sum

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]


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
        noised = Noised(self.noise, 1 / COUNT, self.sensitivity(columns), public.rate)
        block = partial(_block, levels, 2.0**self.bits)
        return Sum(block, (noised,), lambda counts: counts.reshape(columns, width))

    @staticmethod
    def sensitivity(columns: int) -> Sensitivity:
        """Return how much one row can change the counts of so many columns."""
        removed, replaced = (math.sqrt(each * columns) * (1 + 2.0**-50) for each in (1, 2))
        return Sensitivity(Norm.L2, removed, replaced)


@dataclass(frozen=True, eq=False)
class MarginCounts(Question[Floats]):
    """The number of rows of either class whose margins x . w lie in each of some intervals, shape (2, k + 1).

    Parameters
    ----------
    weights : ndarray
        Public or released.
    edges : ndarray of shape (k,)
        Public, in increasing order: the intervals are those below, between and above them. A margin on an edge is
        above it.
    noise : Gaussian or Laplace

    Notes
    -----
    **Privacy** A row adds 1 to one count: sensitivity 1. A row that is replaced takes 1 from one count and adds 1 to
    another: sqrt(2) in the L2 norm and 2 in the L1 norm.
    """

    weights: Floats
    edges: Floats
    noise: Gaussian | Laplace
    label = "margin counts"

    @property
    def sensitivity(self) -> Sensitivity:
        """How much one row can change the counts."""
        if isinstance(self.noise, Laplace):
            return Sensitivity(Norm.L1, 1.0, 2.0)
        return Sensitivity(Norm.L2, 1.0, math.sqrt(2) * (1 + 2.0**-50))

    def deviation(self, public: Public) -> float:
        """Return the standard deviation of the noise in a count."""
        moved = self.sensitivity.times(public.rows_per_unit).under(public.relation) / public.rate
        return moved * (
            self.noise.noise_multiplier if isinstance(self.noise, Gaussian) else math.sqrt(2) / self.noise.epsilon
        )

    def plan(self, public: Public) -> Sum[Floats]:
        problem, edges = public.problem, np.asarray(self.edges, dtype=np.float64)
        if problem.loss.labels.kind is not LabelKind.SIGNS:
            raise InvalidParameter("margins are counted for two classes: the loss must be one of labels -1 and 1")
        if edges.ndim != 1 or not edges.size or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise InvalidParameter("edges must be finite numbers in increasing order, at least one")
        placed = problem.grid.place_weights(public.weights("weights", self.weights))
        noised = Noised(self.noise, 1 / COUNT, self.sensitivity, public.rate)
        block = partial(_margins_block, problem.grid, placed, edges)
        return Sum(block, (noised,), lambda counts: counts.reshape(2, edges.size + 1))


def _margins_block(grid: FeatureGrid, weights: Floats, edges: Floats, rows: Any, labels: Floats) -> Integers:
    intervals = edges.size + 1
    places = np.searchsorted(edges, grid.margins(rows, weights), side="right") + intervals * (labels > 0)
    return np.bincount(places, minlength=2 * intervals).astype(np.int64) * COUNT


def _block(levels: int, scale: float, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    columns, width = rows.shape[1], 2 * levels + 1
    stored = sparse.issparse(rows)
    cells, column = (rows.data, rows.indices.astype(np.int64)) if stored else (rows, np.arange(columns))
    places = _levels(cells, levels, scale)
    places += column * width + levels
    counts = np.bincount(places.ravel("K").astype(np.intp), minlength=columns * width).reshape(columns, width)
    if stored:  # the other cells are 0
        counts[:, levels] += rows.shape[0] - np.bincount(rows.indices, minlength=columns)
    return counts.astype(np.int64).reshape(-1) * COUNT


def _levels(cells: Any, levels: int, scale: float) -> Floats:
    """Return the level of every cell, a whole number."""
    nearest: Floats = np.multiply(cells, scale, dtype=np.float64)
    np.rint(nearest, out=nearest)
    np.fmin(nearest, levels, out=nearest)  # unlike clip, these leave no NaN, which no integer stands for
    np.fmax(nearest, -levels, out=nearest)
    return nearest
