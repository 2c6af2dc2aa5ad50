"""Inner products of rows with the rows that follow them, in the coordinates of a grid, a frame or a whitening.

On a grid and in a frame they are exact, for the same reason as squared norms are. In a whitening the coordinates are
exact, and their products are added up one coordinate after another, with at most 2^13 roundings. So an inner product
depends on its two rows alone, and is wrong by at most 2^-39 of the product of their lengths.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..exact import FeatureGrid
from .frame import Frame
from .whitening import Whitening

__all__ = ["products_with_following"]

Floats = NDArray[np.float64]

_CHUNK_CELLS = 2**18  # two megabytes


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
