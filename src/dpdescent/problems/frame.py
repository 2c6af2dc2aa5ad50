"""A public frame: coordinates in which the columns are centred and of comparable scale.

A frame maps a row x, whose last entry is the constant 1, to z_j = 2^(k_j) (x_j - m_j), and keeps the 1. Its centre m
lies on the grid of the features and its scales are powers of two, so z is exact. Gradients and clip norms are then
those of the model z . v, which is the same model as x . w with w = `Frame.weights` (v).

A frame must be public: released by a mechanism that was paid for, or known beforehand.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import InvalidParameter
from ..exact import FeatureGrid, LatticeSum
from ..relations import Sensitivity

__all__ = ["Frame"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LARGEST_DOUBLINGS = 4
_CACHED_CELLS = 2**16


@dataclass(frozen=True, eq=False)
class Frame:
    """Centre and scales of the columns, on the grid of the features.

    Use `Frame.place`, which rounds and checks.

    Parameters
    ----------
    grid : FeatureGrid
        The grid of the rows: entries in [-1, 1], the last column being the constant 1.
    centre : ndarray of shape (d,)
        m, multiples of the grid; 0 for the constant.
    doublings : ndarray of int, shape (d,)
        k, from 0 to 4; 0 for the constant.
    """

    grid: FeatureGrid
    centre: Floats
    doublings: Integers

    def __post_init__(self) -> None:
        """Refuse a frame in which sums would be inexact, because a row could then exceed its clip norm."""
        if self.grid != FeatureGrid(1.0, self.grid.dimension):
            raise InvalidParameter(
                "a frame needs features in [-1, 1] and rows that are not scaled down, so that the constant column "
                "is 1: scale the features and use FeatureGrid(1.0, dimension)"
            )
        multiples = np.ldexp(self.centre, self.grid.exponent)
        shape = (self.grid.dimension,)
        if not (
            self.centre.shape == self.doublings.shape == shape
            and self.doublings.dtype == np.int64
            and (np.abs(self.centre) <= 1).all()
            and (multiples == np.rint(multiples)).all()
            and ((self.doublings >= 0) & (self.doublings <= _LARGEST_DOUBLINGS)).all()
            and self.centre[-1] == self.doublings[-1] == 0
        ):
            raise InvalidParameter("centre or doublings are not those of a frame: build it by Frame.place")
        for name in ("centre", "doublings"):
            protected = getattr(self, name).copy()
            protected.flags.writeable = False
            object.__setattr__(self, name, protected)

    @classmethod
    def place(cls, grid: FeatureGrid, centre: Floats, scale: Floats) -> Frame:
        """Return the frame nearest to (x - centre)/scale; the last entries of both are ignored."""
        given, width = (np.array(values, dtype=np.float64) for values in (centre, scale))
        if given.shape != (grid.dimension,) or width.shape != given.shape:
            raise InvalidParameter(
                f"a frame has {grid.dimension} centres and scales, got {given.shape}, {width.shape}"
            )
        given[-1], width[-1] = 0.0, 1.0
        if not (np.isfinite(given).all() and np.isfinite(width).all() and (width > 0).all()):
            raise InvalidParameter("the centres and scales of a frame must be finite, and the scales positive")
        exponent = grid.exponent  # from 5 to 20, since entries are at most 1 and dimensions at most 2^30
        placed = np.ldexp(np.rint(np.ldexp(np.clip(given, -1.0, 1.0), exponent)), -exponent)
        doublings = np.clip(np.rint(-np.log2(width)), 0, _LARGEST_DOUBLINGS).astype(np.int64)
        return cls(grid, placed, doublings)

    def key(self) -> bytes:
        """Return bytes that tell frames apart."""
        return self.centre.tobytes() + self.doublings.tobytes()

    def _stretch(self, values: Floats) -> Floats:
        stretched: Floats = np.ldexp(values.T, self.doublings).T
        return stretched

    def weights(self, point: Floats) -> Floats:
        """Return the weights w of the model x . w that is z . point; (d,) or (d, K)."""
        weights = self._stretch(point)
        weights[-1] -= self.centre @ weights
        return weights

    def pull_back(self, gradient: Floats) -> Floats:
        """Return the gradient in the frame of a function of w whose gradient is ``gradient``, 0 for the intercept."""
        return self._stretch(gradient)

    def squared_norms(self, rows: Any) -> Floats:
        """Return |z|^2 of each row, at least 1: exact.

        It is |m|^2 plus what the entries that are not 0 change, so a sparse block is never made dense. In units of
        2^-2p every term is an integer, and sizes add up to at most 2^(2p + 2 e(R) + 2 + 2k) <= 2^50, so the order in
        which they are added does not matter. A row that breaks the public promise of a constant 1 gets an infinite
        norm, so that it adds nothing.
        """
        squares = 4.0**self.doublings
        slopes = -2 * squares * self.centre
        if sparse.issparse(rows):
            owner = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
            entries, columns = rows.data.astype(np.float64), rows.indices
            changes = entries * (squares[columns] * entries + slopes[columns])
            norms = np.bincount(owner, weights=changes, minlength=rows.shape[0]).astype(np.float64)
            constant = np.zeros(rows.shape[0], dtype=np.bool_)
            constant[owner[(columns == self.grid.dimension - 1) & (entries == 1)]] = True
        else:
            norms, constant = np.empty(rows.shape[0]), rows[:, -1] == 1
            step = max(1, _CACHED_CELLS // rows.shape[1])
            for start in range(0, rows.shape[0], step):
                entries = rows[start : start + step].astype(np.float64)
                norms[start : start + step] = np.einsum("ij,j->i", entries, slopes)
                norms[start : start + step] += np.einsum("ij,ij,j->i", entries, entries, squares)
        norms += math.fsum(squares * self.centre * self.centre)
        norms[~constant] = math.inf
        return norms

    def coordinates(self, rows: Any) -> Floats:
        """Return the rows in the frame without their constant, dense: exact."""
        dense = rows.toarray() if sparse.issparse(rows) else rows
        coordinates: Floats = dense[:, :-1] - self.centre[:-1]
        coordinates *= 2.0 ** self.doublings[:-1]
        return coordinates

    def image(self, total: LatticeSum) -> LatticeSum:
        """Return sum c_i z_i from the sum c_i x_i of at most 2^26 rows, which has not wrapped around."""
        return LatticeSum(self.total(total.values), total.unit, total.sensitivity)

    def sensitivity(self, exact: Sensitivity, unit: float, outputs: int = 1) -> Sensitivity:
        """Return the sensitivity of an image from that of sum c_i z_i: nothing is rounded."""
        return exact

    def total(self, values: Integers) -> Integers:
        """Return sum c_i z_i of one block from its sum c_i x_i, in the same units.

        The last entry holds sum c_i. The map is linear and exact, and each row's share c_i z_i obeys the clip norm
        because its cap came from |z_i|. The block sums stay exact, since |z_i| >= 1 and |x_ij| <= 1. A total over
        blocks may have wrapped around and must not be shifted: map every block.
        """
        multiples = np.ldexp(self.centre, self.grid.exponent).astype(np.int64)
        total = values[-1] >> self.grid.exponent
        centred = values - (multiples * total if values.ndim == 1 else np.outer(multiples, total))
        return (centred.T << self.doublings).T
