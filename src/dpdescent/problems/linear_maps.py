"""Public linear maps of the rows: coordinates in which gradients are computed and clipped.

**A frame** maps a row x, whose last entry is the constant 1, to z_j = 2^(k_j) (x_j - m_j), and keeps the 1: columns
are centred and of comparable scale. Its centre m lies on the grid of the features and its scales are powers of two,
so z is exact.

**A whitening** maps a row x to z = A'x, so that all directions are of comparable length. With a constant last column
of x, a row of A can subtract a centre: z = P'(x - m).

Gradients and clip norms are those of the model z . v, which is the same model as x . w with w = A v, or
`Frame.weights` (v). A map must be public: released by a mechanism that was paid for, or known beforehand.

**Inner products** of rows with the rows that follow them are exact on a grid and in a frame, for the same reason as
squared norms are. In a whitening the coordinates are exact, and their products are added up one coordinate after
another, with at most 2^13 roundings. So an inner product depends on its two rows alone, and is wrong by at most 2^-39
of the product of their lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from scipy import sparse

from ..arrays import Floats, Integers
from ..errors import InvalidParameter
from ..exact import FeatureGrid, LatticeSum
from ..relations import Sensitivity

_LARGEST_DOUBLINGS = 4
_CACHED_CELLS = 2**16
_BLOCK_BYTES = 2**21
_FULL = 1 / 32  # share of entries from which sparse rows are multiplied faster as dense ones, to the same bits
_LIMB_BITS = 15
_LOW_BITS = 4 * _LIMB_BITS
_CHUNK_CELLS = 2**18  # two megabytes


@dataclass(frozen=True, eq=False)
class Frame:
    """Centre and scales of the columns, on the grid of the features.

    Use `Frame.place`, which rounds and checks.
    """

    #: The grid of the rows: entries in [-1, 1], the last column being the constant 1.
    grid: FeatureGrid
    centre: Floats  # m, multiples of the grid; 0 for the constant
    doublings: Integers  # k, from 0 to 4; 0 for the constant

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


class Whitening:
    """Coordinates z = A'x, exact for rows on a grid.

    The matrix A, (d, m), has at most 2^20 rows and 2^13 columns. Each column is rounded to a grid of its own
    (`FeatureGrid.place_weights`), on which z is exact.
    """

    largest_dimension: ClassVar[int] = 2**20
    largest_directions: ClassVar[int] = 2**13

    def __init__(self, grid: FeatureGrid, matrix: Any) -> None:
        if grid.dimension > self.largest_dimension or grid.entry_bound > 1:
            raise InvalidParameter(
                f"a whitening needs features in [-1, 1] and at most {self.largest_dimension} columns: scale the "
                "columns one by one instead"
            )
        self.grid = grid
        self.matrix = grid.place_weights(matrix)
        if self.matrix.ndim != 2 or self.matrix.shape[1] > self.largest_directions:
            raise InvalidParameter(
                f"a whitening is a matrix of at most {self.largest_directions} columns, got shape {self.matrix.shape}"
            )
        exponents = 33 - np.array([_exponent(column) for column in self.matrix.T])
        scaled = np.ldexp(self.matrix, exponents)
        assert (scaled == np.rint(scaled)).all(), "placed weights are multiples of their grid"
        self._integers = scaled.astype(np.int64)
        self._exponents: list[int] = exponents.tolist()
        self.matrix.flags.writeable = False

    def key(self) -> bytes:
        """Return bytes that tell whitenings apart."""
        return self.matrix.tobytes()

    def weights(self, point: Floats) -> Floats:
        """Return the weights w of the model x . w that is z . point; summed in a fixed order."""
        weights: Floats = np.einsum("jk,k...->j...", self.matrix, point)
        return weights

    def pull_back(self, gradient: Floats) -> Floats:
        """Return the gradient in z of a function of w whose gradient is ``gradient``."""
        pulled: Floats = np.einsum("jk,j...->k...", self.matrix, gradient)
        return pulled

    def coordinates(self, rows: Any) -> Floats:
        """Return z for each row, exact."""
        return self.grid.margins(rows, self.matrix)

    def squared_norms(self, rows: Any) -> Floats:
        """Return an upper bound of |z|^2 for each row, at least 1 and too large by at most one part in 2^38.

        z itself is exact, and its squares are added up one coordinate after another, so the bound is a function of
        the row and of A alone. Up to 2^13 roundings lower the sum by at most one part in 2^40, so two such parts are
        added.
        """
        norms = np.empty(rows.shape[0])
        directions = max(1, self.matrix.shape[1])
        step = max(_BLOCK_BYTES // (8 * directions), directions)  # many rows, since each call checks the matrix
        for start in range(0, rows.shape[0], step):
            block = slice(start, start + step)
            some = rows[block]
            if sparse.issparse(some) and some.nnz >= _FULL * math.prod(some.shape):
                some = some.toarray()
            by_coordinate = np.ascontiguousarray(self.grid.margins(some, self.matrix).T)
            total = np.zeros(by_coordinate.shape[1])
            for coordinate in by_coordinate:
                total += np.square(coordinate, out=coordinate)
            norms[block] = total
        norms *= 1 + 2.0**-39
        return np.maximum(norms, 1.0, out=norms)

    def image(self, total: LatticeSum) -> LatticeSum:
        """Return sum c_i z_i from the exact sum c_i x_i, on the same lattice, with the sensitivity it has there.

        A and the sum are integers, so the image is exact until it is rounded to the lattice, once. The sum is taken
        15 bits at a time: the integers of a column of A have a norm of about 2^33 at most, so a product with limbs
        below 2^15 is at most 2^48 sqrt(d), or 2^58. The sum must not have wrapped around: at most 2^26 rows.
        """
        values = total.values.reshape(total.values.shape[0], -1)
        image = np.empty((self.matrix.shape[1], values.shape[1]), dtype=np.int64)
        for output in range(values.shape[1]):
            low, carry = np.zeros_like(image[:, output]), 0
            for position in range(0, _LOW_BITS, _LIMB_BITS):
                product = self._integers.T @ ((values[:, output] >> position) & (2**_LIMB_BITS - 1)) + carry
                low |= (product & (2**_LIMB_BITS - 1)) << position
                carry = product >> _LIMB_BITS
            high = self._integers.T @ (values[:, output] >> _LOW_BITS) + carry  # the highest limb carries the sign
            image[:, output] = [
                _shift_and_round((above << _LOW_BITS) + below, exponent)
                for above, below, exponent in zip(high.tolist(), low.tolist(), self._exponents, strict=True)
            ]
        sensitivity = self.sensitivity(total.sensitivity, total.unit, values.shape[1])
        return LatticeSum(image.reshape(-1, *total.values.shape[1:]), total.unit, sensitivity)

    def sensitivity(self, exact: Sensitivity, unit: float, outputs: int = 1) -> Sensitivity:
        """Return the L2 sensitivity of a rounded image from that of the exact one.

        Two roundings differ by at most one unit per coordinate, which is added.
        """
        rounding = math.sqrt(self.matrix.shape[1] * outputs) * unit * (1 + 2.0**-40)
        return Sensitivity(
            exact.norm, (exact.zero_out + rounding) * (1 + 2.0**-50), (exact.replace_one + rounding) * (1 + 2.0**-50)
        )


def _exponent(column: Floats) -> int:
    """Return e such that the entries of a placed column are multiples of 2^(e - 33), below 2^e."""
    squared = math.fsum((column * column).tolist())
    return 0 if squared == 0 else math.frexp(math.sqrt(squared))[1]


def _shift_and_round(value: int, exponent: int) -> int:
    """Return value / 2^exponent to the nearest integer."""
    return (value + (1 << (exponent - 1))) >> exponent if exponent > 0 else value << -exponent


def products_with_following(coordinates: FeatureGrid | Frame | Whitening, rows: Any, lags: int) -> Floats:
    """Return the inner products of each row with the next ``lags`` rows, shape (n, lags); 0 where there is none."""
    count = rows.shape[0]
    products = np.zeros((count, lags))
    step = max(_CHUNK_CELLS // rows.shape[1], 8 * lags, 1)
    for start in range(0, count, step):
        dense = _dense(coordinates, rows[start : start + step + lags])
        first = min(step, count - start)
        for lag in range(1, min(lags, dense.shape[0] - 1) + 1):
            pairs = min(first, dense.shape[0] - lag)
            one, other = dense[:pairs], dense[lag : lag + pairs]
            values = _in_order(one, other) if isinstance(coordinates, Whitening) else _exact(one, other)
            if isinstance(coordinates, Frame):
                values += 1.0  # the constant, which every row has that a frame lets through
            products[start : start + pairs, lag - 1] = values
    return products


def _dense(coordinates: FeatureGrid | Frame | Whitening, rows: Any) -> Floats:
    if isinstance(coordinates, Whitening):
        return np.asfortranarray(coordinates.coordinates(rows))
    if isinstance(coordinates, Frame):
        return coordinates.coordinates(rows)
    dense: Floats = (rows.toarray() if sparse.issparse(rows) else rows).astype(np.float64, copy=False)
    return dense


def _exact(one: Floats, other: Floats) -> Floats:
    products: Floats = np.einsum("ij,ij->i", one, other)
    return products


def _in_order(one: Floats, other: Floats) -> Floats:
    total = np.zeros(one.shape[0])
    for left, right in zip(one.T, other.T, strict=True):
        total += left * right
    return total
