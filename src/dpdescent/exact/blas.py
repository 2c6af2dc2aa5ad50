"""Matrix products that are exact for any order of summation, and a test that the BLAS of this machine obeys.

**Lemma 1 (exact accumulation).** If all terms are multiples of ``2^-k`` (k < 1000) and their absolute values
add up to at most ``2^(53-k)``, then float64 returns their exact sum for every summation order, tree, fused
multiply-add or split among threads.

*Proof.* Every partial sum, of any subset, is a multiple of ``2^-k`` of size at most ``2^(53-k)``, hence a
double; an IEEE operation whose exact result is a double returns it. QED

The lemma needs a conventional IEEE matrix product: no Strassen recursion, no emulation in fewer bits. That is a
property of the machine, so it is tested once per process (`blas_is_exact`). If the test fails, products of dense
arrays are computed in int64, which is slower and gives the same bits.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..errors import InvalidParameter, require_positive_integer

__all__ = ["as_float64", "blas_is_exact", "on_integers", "row_blocks", "transposed_product"]


@cache
def blas_is_exact() -> bool:
    """Compare float64 matrix products whose sums fill all 53 bits with int64 arithmetic; once per process."""
    generator = np.random.Generator(np.random.Philox(20))
    for rows, inner, columns in ((67, 512, 5), (256, 256, 64), (5, 65_536, 3)):
        # Factors just below 2^a and 2^b, with a + b = 53 - log2(inner): the first column's sums lie in
        # (2^52, 2^53] and are of either parity, so a single lost bit shows. The others mix signs.
        bits = 53 - (inner - 1).bit_length()
        half = bits // 2
        rest = bits - half
        left = generator.integers(2**half - 2 ** (half - 3), 2**half, (rows, inner), endpoint=True)
        right = generator.integers(-(2**rest), 2**rest, (inner, columns), endpoint=True)
        right[:, 0] = generator.integers(2**rest - 2 ** (rest - 3), 2**rest, inner, endpoint=True)
        expected = left @ right
        for order in ("C", "F"):
            a = np.asarray(left, dtype=np.float64, order=order)
            b = np.asarray(right, dtype=np.float64, order=order)
            products = [(a @ b, expected), (b.T @ a.T, expected.T)]
            products += [(a @ b[:, 0], expected[:, 0]), (b[:, 0] @ a.T, expected[:, 0])]
            products += [(a[:-3] @ b[:, -1], expected[:-3, -1]), (np.dot(b[:, 0], a.T), expected[:, 0])]
            if not all(np.array_equal(found, wanted) for found, wanted in products):
                return False
    return True


def row_blocks(rows: int, block_rows: int, limit: int) -> Iterator[slice]:
    """Yield consecutive slices of at most ``block_rows`` rows; a sum over more than ``limit`` would be inexact."""
    block_rows = require_positive_integer("block_rows", block_rows)
    if block_rows > limit:
        raise InvalidParameter(f"block_rows must be at most {limit} for an exact sum, got {block_rows}")
    for start in range(0, rows, block_rows):
        yield slice(start, min(start + block_rows, rows))


def as_float64(rows: Any) -> Any:
    """Return a block of rows in float64: float32 is a way to store grid values, never to multiply them."""
    return rows if rows.dtype == np.float64 else rows.astype(np.float64)


def transposed_product(rows: Any, coefficients: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return ``rows.T @ coefficients`` for a block of rows, in float64.

    `numpy.dot` releases the interpreter lock, which the operator ``@`` does not do for a vector times a matrix.
    """
    block = as_float64(rows)
    dense = isinstance(block, np.ndarray) and coefficients.ndim == 1
    product: NDArray[np.float64] = np.dot(coefficients, block) if dense else block.T @ coefficients
    return product


def on_integers(rows: Any, exponent: int) -> Any:
    """Return grid rows, multiples of ``2^-exponent``, as the int64 multiples themselves."""
    if sparse.issparse(rows):
        integers = rows.astype(np.float64)
        data = np.ldexp(integers.data, exponent).astype(np.int64)
        return type(rows)((data, integers.indices, integers.indptr), shape=rows.shape)
    values: NDArray[np.int64] = np.ldexp(np.asarray(rows, dtype=np.float64), exponent).astype(np.int64)
    return values
