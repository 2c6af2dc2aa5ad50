"""Exact sums of bounded losses, and of differences of losses."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..errors import InvalidParameter
from ..relations import Sensitivity
from . import blas
from .grids import ceil_log2, require_moderate
from .sums import BLOCK_ROWS, LARGEST_BLOCK, LatticeSum, require_real

__all__ = ["BoundedSum", "SignedSum"]

Float64Array = NDArray[np.float64]
Int64Array = NDArray[np.int64]

_LOSS_BITS = 24


def _loss_exponent(bound: float) -> int:
    return _LOSS_BITS - ceil_log2(bound)


def _lower_to_grid(name: str, bound: float) -> float:
    exponent = _loss_exponent(require_moderate(name, bound))
    return math.ldexp(math.floor(math.ldexp(bound, exponent)), -exponent)


def _rounded_totals(values: ArrayLike, lower: float, upper: float, missing: float, block_rows: int) -> Int64Array:
    """Return column totals of ``rint(2^s clip(values, lower, upper))``.

    Rounding is monotone and fixes both ends, which lie on the grid: no rounded value leaves the interval.
    Totals of one block are integers below 2^41, so float64 adds them exactly in any order.
    """
    given = require_real("losses", values)
    if given.ndim not in (1, 2):
        raise InvalidParameter(f"losses must have shape (n,) or (n, m), got {given.shape}")
    columns = given[:, np.newaxis] if given.ndim == 1 else given
    scale = 2.0 ** _loss_exponent(upper)
    total = np.zeros(columns.shape[1], dtype=np.int64)
    for rows in blas.row_blocks(columns.shape[0], block_rows, LARGEST_BLOCK):
        clipped = np.clip(columns[rows], lower, upper)
        np.copyto(clipped, missing, where=np.isnan(clipped))
        clipped *= scale
        total += np.rint(clipped, out=clipped).sum(axis=0).astype(np.int64)
    return total


@dataclass(frozen=True)
class BoundedSum:
    """Sum over rows of a loss clipped to [0, C], or of m losses (one per candidate) at once.

    Parameters
    ----------
    ceiling : float
        C, public. It is lowered to a multiple of the unit ``2^-(24 - e(C))``, by less than one part in 2^23.

    Notes
    -----
    **Privacy.** Unit: one row. One sum: C whether a row is removed or replaced (`Sensitivity.of_bounded_sum`).
    A vector of m sums, for selection: `Sensitivity.of_scores`, the range is C if a row is removed, because all scores
    then move in one direction, and 2C if it is replaced.
    """

    ceiling: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "ceiling", _lower_to_grid("ceiling", self.ceiling))

    @property
    def unit(self) -> float:
        """The unit of the sum."""
        return math.ldexp(1.0, -_loss_exponent(self.ceiling))

    def block(self, losses: ArrayLike, *, block_rows: int = BLOCK_ROWS) -> Int64Array:
        """Return the totals of (n,) or (n, m) losses, shape (1,) or (m,); NaN counts as the ceiling."""
        return _rounded_totals(losses, 0.0, self.ceiling, self.ceiling, block_rows)

    def total(self, losses: ArrayLike, *, block_rows: int = BLOCK_ROWS) -> LatticeSum:
        """Return the totals of (n,) or (n, m) losses; a candidate whose loss is NaN pays the ceiling."""
        values = self.block(losses, block_rows=block_rows)
        of_kind = Sensitivity.of_bounded_sum if np.ndim(losses) == 1 else Sensitivity.of_scores
        return LatticeSum(values, self.unit, of_kind(self.ceiling))


@dataclass(frozen=True)
class SignedSum:
    """Sum over rows of a difference of losses clipped to [-D, D], or of m differences at once.

    Parameters
    ----------
    bound : float
        D, public; lowered to a multiple of the unit ``2^-(24 - e(D))``.

    Notes
    -----
    **Privacy.** Unit: one row. Each sum by itself: D if a row is removed, 2D if it is replaced
    (`Sensitivity.of_signed_sum`).
    """

    bound: float

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", _lower_to_grid("bound", self.bound))

    @property
    def unit(self) -> float:
        """The unit of the sum."""
        return math.ldexp(1.0, -_loss_exponent(self.bound))

    def block(self, differences: ArrayLike, *, block_rows: int = BLOCK_ROWS) -> Int64Array:
        """Return the totals of (n,) or (n, m) differences, shape (1,) or (m,); NaN counts as 0."""
        return _rounded_totals(differences, -self.bound, self.bound, 0.0, block_rows)

    def total(self, differences: ArrayLike, *, block_rows: int = BLOCK_ROWS) -> LatticeSum:
        """Return the totals of (n,) or (n, m) differences."""
        values = self.block(differences, block_rows=block_rows)
        return LatticeSum(values, self.unit, Sensitivity.of_signed_sum(self.bound))
