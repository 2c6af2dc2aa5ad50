"""Exact sums of weighted second moments: Hessians of generalised linear models, feature covariances."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Floats, Integers
from ..errors import InvalidParameter
from ..relations import Sensitivity
from . import machine
from .clipped_sums import (
    BLOCK_ROWS,
    LARGEST_BLOCK,
    TOTAL_BITS,
    LatticeSum,
    capped_quotient,
    clip_integers,
    require_real,
)
from .grids import CoarseGrid, ceil_log2, require_moderate

LEAST_BITS = 28  # two features have 26
PART_BYTES = 2**20  # of rows that are worked on at once: they stay in cache
FILLED_PARTS = 32  # of sparse rows that are made dense at once


@dataclass(frozen=True)
class SecondMomentSum:
    """Sum over rows of ``h_i x_i x_i^T``, each term clipped to Frobenius norm C: Hessians, second moments.

    Parameters
    ----------
    grid : CoarseGrid
        Where the rows live, multiples of ``2^-p``; see `FeatureGrid.coarse`.
    clip : float
        C, public.
    nonnegative : bool, optional
        True (the default) for curvatures ``h >= 0``: negative ones are then set to 0, so every term is positive
        semidefinite. This is a public promise about the loss, never read from the data.
    total_bits : int, optional
        ``C / unit <= 2^total_bits``; 36 by default. Noise of more than ``2^16 C`` cannot be drawn at that unit.

    Notes
    -----
    The norm of a term is ``|h| N`` with ``N = |x|^2`` exact, so Lemma 2 holds with N in place of its root. Weights
    are multiples of ``2^-q``, ``q = total_bits - 2p - e(C)``; ``|h x_j x_k| <= C`` makes 2^17 rows exact.

    **Privacy.** Unit: one row. L2 over all d^2 entries: C if a row is removed; if it is replaced,
    sqrt(2) C for nonnegative weights (``<A, B> >= 0``) and 2C otherwise.
    """

    grid: CoarseGrid
    clip: float
    nonnegative: bool = True
    total_bits: int = TOTAL_BITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", require_moderate("clip", self.clip))
        if not isinstance(self.grid, CoarseGrid):
            raise InvalidParameter("second moments need the coarse grid: pass FeatureGrid(...).coarse")
        if not LEAST_BITS <= self.total_bits <= TOTAL_BITS:
            raise InvalidParameter(f"total_bits must lie in [{LEAST_BITS}, {TOTAL_BITS}], got {self.total_bits}")

    @property
    def weight_exponent(self) -> int:
        """The integer q such that weights are multiples of ``2^-q``."""
        return self.total_bits - 2 * self.grid.exponent - ceil_log2(self.clip)

    @property
    def unit(self) -> float:
        """The unit ``2^-(2p+q)`` of the sum."""
        return math.ldexp(1.0, -(2 * self.grid.exponent + self.weight_exponent))

    @property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity of the sum, in real units."""
        if self.nonnegative:
            return Sensitivity.of_positive_semidefinite_sum(self.clip)
        return Sensitivity.of_clipped_sum(self.clip)

    def weights(self, curvatures: ArrayLike, squared_norms: ArrayLike) -> Floats:
        """Return the clipped integer weights, shape (n,); NaN counts as 0."""
        values = require_real("curvatures", curvatures)
        norms = require_real("squared_norms", squared_norms)
        if values.ndim != 1 or values.shape != norms.shape:
            raise InvalidParameter(f"expected one weight per squared norm, got {values.shape} and {norms.shape}")
        caps = capped_quotient(self.clip, norms.copy(), self.weight_exponent)
        weights = clip_integers(values, caps, self.weight_exponent)
        return np.maximum(weights, 0.0, out=weights) if self.nonnegative else weights

    def block(self, placed: Any, weights: Floats) -> Integers:
        """Return the symmetric (d, d) sum over at most 2^17 rows, in multiples of `unit`."""
        rows = placed.shape[0]
        if rows > LARGEST_BLOCK or weights.shape != (rows,):
            raise InvalidParameter(f"a block has at most {LARGEST_BLOCK} rows and as many weights: use total")
        exponent = self.grid.exponent
        if not machine.blas_is_exact():
            integers = machine.on_integers(placed, exponent)
            exact: Integers = _dense(integers.T @ _scale_rows(integers, weights.astype(np.int64)))
            return exact
        features = machine.as_float64(placed)
        products: Floats = _dense(features.T @ _scale_rows(features, weights))
        products *= 2.0 ** (2 * exponent)
        return products.astype(np.int64)

    def in_parts(self, rows: Any, curvatures: ArrayLike, place: Callable[[Floats], Floats]) -> Integers:
        """Return the sum over rows that ``place`` brings to the grid, row by row and a few dense rows at a time."""
        values = require_real("curvatures", curvatures)
        dimension = self.grid.dimension
        total = np.zeros((dimension, dimension), dtype=np.int64)
        for some, part in _dense_parts(rows):
            placed = place(part)
            norms = np.einsum("ij,ij->i", placed, placed)  # exact, in any order
            total += self.block(placed, self.weights(values[some], norms))
        return total

    def total(
        self,
        placed: Any,
        curvatures: ArrayLike,
        squared_norms: ArrayLike | None = None,
        *,
        block_rows: int = BLOCK_ROWS,
    ) -> LatticeSum:
        """Return the (d, d) sum over all rows; any ``block_rows`` up to 2^17 gives the same bits."""
        norms = self.grid.squared_norms(placed) if squared_norms is None else np.asarray(squared_norms)
        weights = self.weights(curvatures, norms)
        if weights.shape != placed.shape[:1]:
            raise InvalidParameter(f"expected {placed.shape[0]} weights, got {weights.shape}")
        total = np.zeros((self.grid.dimension, self.grid.dimension), dtype=np.int64)
        for rows in machine.row_blocks(placed.shape[0], block_rows, LARGEST_BLOCK):
            total += self.block(placed[rows], weights[rows])
        return LatticeSum(total, self.unit, self.sensitivity)


def _dense_parts(rows: Any) -> Iterator[tuple[slice, Floats]]:
    """Yield a few dense rows at a time, in float64; many sparse rows are made dense at once: slicing them is slow."""
    count, columns = rows.shape
    few = max(1, PART_BYTES // (8 * columns))
    many = count if isinstance(rows, np.ndarray) else few * FILLED_PARTS
    for start in range(0, count, max(1, many)):
        block = rows if many >= count else rows[start : start + many]
        dense = _dense(block)
        for first in range(0, dense.shape[0], few):
            part = machine.as_float64(dense[first : first + few])
            yield slice(start + first, start + first + len(part)), part


def _scale_rows(rows: Any, weights: NDArray[Any]) -> Any:
    if isinstance(rows, np.ndarray):
        return rows * weights[:, np.newaxis]
    return type(rows)((rows.data * np.repeat(weights, np.diff(rows.indptr)), rows.indices, rows.indptr), rows.shape)


def _dense(matrix: Any) -> Any:
    return matrix if isinstance(matrix, np.ndarray) else matrix.toarray()
