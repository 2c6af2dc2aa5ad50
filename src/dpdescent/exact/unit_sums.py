r"""Sums over the rows of one unit, clipped together: all rows of a person add a vector that is at most C long.

Row i of a unit adds c_i z_i. Its coordinates are z_i, and c_i is an integer in units of 2^-q, or one for each of K
outputs. If each row were clipped to C, k rows would add up to k C at worst, and the noise would have to hide that.
Here all rows of a unit are multiplied by one factor f, so that their sum is at most C long. Where rows point in
different directions, the sum of k of them is about sqrt(k) times as long as one.

The length of a sum follows from the inner products of its rows, :math:`|s|^2 = \sum_{ij} c_i c_j\, z_i \cdot z_j`.
They are computed once, whatever the weights, so a gradient takes k more operations per row and no pass over columns.

**Lemma 3 (clip of a unit).** Let a unit have at most k <= 128 rows, let K <= 2^10 and N_i >= |z_i|^2, and let inner
products be known up to 2^-39 |z_i| |z_j|. With S the computed quadratic form and D the computed sum of c_i^2 N_i, let
::

    L = fl(sqrt(S + 2^-36 k D)) (1 + 2^-48)
    e = 0.51 sqrt(K) (1 + 2^-40) (sum of sqrt(N_i) over rows with c_i != 0)
    f = 1 if L <= C', and max(0, C' - e)/L otherwise, where C' = 2^q C (1 - 2^-40).

Then the sum over the unit of rint(f c_i) z_i is at most 2^q C long, in the real numbers.

*Proof.* Let B be the sum of |c_i| |z_i|, so B^2 is at most k times that of c_i^2 N_i by Cauchy and Schwarz. Errors of
the products lower the form by at most 2^-39 B^2, and its additions, in any order, by (2k + K + 8) 2^-53 B^2, which is
less than 2^-42 B^2. D is too small by one part in 2^41 at most. Hence S + 2^-36 k D >= |s|^2, and L >= |s| since the
root is rounded once. If f = 1, then |s| <= C'. Otherwise rounding moves an integer by at most 1/2, and the product
before it is wrong by at most |c_i| 2^-53 <= 2^-17, so that row i moves by at most 0.51 sqrt(K) |z_i|, and not at all
if c_i = 0: the sum moves by at most e. If C' > e, its length is at most f |s| + e <= C' (1 + 2^-50) < 2^q C. If not,
f = 0 and nothing is left. QED

What is computed for a unit is a function of its own rows in their order: all operations are elementwise, or add up
its rows one after another.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from .sums import ClippedSum

__all__ = ["LARGEST_JOINT", "joint_factors"]

Float64Array = NDArray[np.float64]

LARGEST_JOINT = 128  # rows of a unit: that many inner products are kept for each row
_SHORTER = 1 - 2.0**-40


def joint_factors(
    clipped: ClippedSum,
    coefficients: Float64Array,
    squared_norms: Float64Array,
    products: Float64Array,
    owners: NDArray[np.intp],
) -> Float64Array:
    """Return the factor of each row by which the rows of its unit are shortened together.

    Parameters
    ----------
    clipped : ClippedSum
        Its clip norm C bounds what a unit adds.
    coefficients : ndarray, shape (n,) or (n, K)
        Integers from `ClippedSum.coefficients_within`.
    squared_norms : ndarray, shape (n,)
        N, never below the squared norms in the coordinates that C is about.
    products : ndarray, shape (n, k - 1)
        Inner products of each row with the ones that follow it, 0 where they belong to another unit.
    owners : ndarray of int, shape (n,)
        The unit of each row. The rows of a unit stand together, all of them.
    """
    if not owners.size:
        return np.empty(0)
    by_output = np.ascontiguousarray(coefficients.reshape(owners.size, -1).T)
    norms = np.where(by_output.any(axis=0), squared_norms, 0.0)  # rows that add nothing may be infinitely long
    form, alone = np.zeros(owners.size), np.zeros(owners.size)
    for values in by_output:
        following = np.zeros(owners.size)
        for lag, product in enumerate(products.T, start=1):
            following[:-lag] += values[lag:] * product[:-lag]
        squares = values * values * norms
        alone += squares
        form += squares + 2 * values * following
    unit = np.cumsum(np.diff(owners, prepend=owners[0]) != 0)
    slack = 2.0**-36 * (products.shape[1] + 1)
    lengths = np.sqrt(np.maximum(np.bincount(unit, form) + slack * np.bincount(unit, alone), 0.0)) * (1 + 2.0**-48)
    rounding = 0.51 * math.sqrt(by_output.shape[0]) * (1 + 2.0**-40) * np.bincount(unit, np.sqrt(norms))
    limit = math.ldexp(clipped.clip, clipped.coefficient_exponent) * _SHORTER
    factors = np.maximum(limit - rounding, 0.0) / np.maximum(lengths, limit)
    factors[lengths <= limit] = 1.0
    by_row: Float64Array = factors[unit]
    return by_row
