"""A public linear map of the rows, in which their directions are of comparable length.

A whitening maps a row x to z = A'x. Gradients and clip norms are then those of the model z . v, which is the model
x . w with w = A v. With a constant last column of x, a row of A can subtract a centre: z = P'(x - m).

The matrix must be public: released by a mechanism that was paid for, or known beforehand.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import InvalidParameter
from ..exact import FeatureGrid, LatticeSum
from ..relations import Sensitivity

__all__ = ["Whitening"]

Floats = NDArray[np.float64]

_BLOCK_BYTES = 2**21
_FULL = 1 / 32  # share of entries from which sparse rows are multiplied faster as dense ones, to the same bits
_LIMB_BITS = 15
_LOW_BITS = 4 * _LIMB_BITS


class Whitening:
    """Coordinates z = A'x, exact for rows on a grid.

    Parameters
    ----------
    grid : FeatureGrid
        The grid of the rows.
    matrix : array_like of shape (d, m)
        A, of at most 2^20 rows and 2^13 columns. Each column is rounded to a grid of its own
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
                _rounded((above << _LOW_BITS) + below, exponent)
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
            exact.norm,
            (exact.zero_out + rounding) * (1 + 2.0**-50),
            (exact.replace_one + rounding) * (1 + 2.0**-50),
        )


def _exponent(column: Floats) -> int:
    """Return e such that the entries of a placed column are multiples of 2^(e - 33), below 2^e."""
    squared = math.fsum((column * column).tolist())
    return 0 if squared == 0 else math.frexp(math.sqrt(squared))[1]


def _rounded(value: int, exponent: int) -> int:
    """Return value / 2^exponent to the nearest integer."""
    return (value + (1 << (exponent - 1))) >> exponent if exponent > 0 else value << -exponent
