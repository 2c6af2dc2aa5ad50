"""Exact sums of bounded losses, of differences of losses, and a check that a loss adds up over single rows."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from ..arrays import Integers, Positions
from ..errors import InvalidParameter, RowDependence, require_positive_integer
from ..relations import Sensitivity
from . import machine
from .clipped_sums import BLOCK_ROWS, LARGEST_BLOCK, LatticeSum, require_real
from .grids import ceil_log2, require_moderate

_LOSS_BITS = 24
_REMEDY = (
    "Its sensitivity is then not the clip norm, and no noise scale would be right. Compute each row's value from "
    "that row and public numbers only: no batch means, batch norms, ranks, row counts or positions; take margins "
    "from FeatureGrid.margins and elementary functions from dpdescent.exact, whose last digits do not depend "
    "on the other rows"
)


def _loss_exponent(bound: float) -> int:
    return _LOSS_BITS - ceil_log2(bound)


def _lower_to_grid(name: str, bound: float) -> float:
    exponent = _loss_exponent(require_moderate(name, bound))
    return math.ldexp(math.floor(math.ldexp(bound, exponent)), -exponent)


def _rounded_totals(values: ArrayLike, lower: float, upper: float, missing: float, block_rows: int) -> Integers:
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
    for rows in machine.row_blocks(columns.shape[0], block_rows, LARGEST_BLOCK):
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

    def block(self, losses: ArrayLike, *, block_rows: int = BLOCK_ROWS) -> Integers:
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

    def block(self, differences: ArrayLike, *, block_rows: int = BLOCK_ROWS) -> Integers:
        """Return the totals of (n,) or (n, m) differences, shape (1,) or (m,); NaN counts as 0."""
        return _rounded_totals(differences, -self.bound, self.bound, 0.0, block_rows)

    def total(self, differences: ArrayLike, *, block_rows: int = BLOCK_ROWS) -> LatticeSum:
        """Return the totals of (n,) or (n, m) differences."""
        values = self.block(differences, block_rows=block_rows)
        return LatticeSum(values, self.unit, Sensitivity.of_signed_sum(self.bound))


def check_row_independence(row_sum: Callable[..., Any], *rows: Any, samples: int = 16, seed: int = 0) -> None:
    """Raise `RowDependence` unless ``row_sum`` adds up contributions of single rows.

    For ``S = row_sum`` and sampled rows i, in exact integers: ``S(D) - S(D without i) = S({i})``; S does not
    change if the rows are permuted; ``S(D) = S(D[:k]) + S(D[k:])``; no rows give 0; and calling twice gives the same.

    Parameters
    ----------
    row_sum : callable
        Maps a block of rows (the same slice of all arrays of ``rows``) to an int64 array or a `LatticeSum`.
    *rows : ndarray or CSR
        Arrays that share the first axis, at least 2 rows.
    samples : int, optional
        How many rows are left out, one at a time, and at how many places the rows are split in two. The last rows are
        always among them, because a BLAS computes them by another kernel.
    seed : int, optional
        Chooses the rows, the splits and the permutation.

    Notes
    -----
    **Privacy.** Whether this raises depends on the rows it is given: run it on synthetic or public rows while you
    develop a loss, and never on the private table. Passing is evidence and not a proof; failing is a proof.

    Examples
    --------
    >>> import numpy as np
    >>> losses = np.array([0.5, 0.25, 1.0])
    >>> check_row_independence(lambda block: np.rint(block * 4).astype(np.int64).sum(keepdims=True), losses)
    """
    if not rows or len({block.shape[0] for block in rows}) != 1 or rows[0].shape[0] < 2:
        raise InvalidParameter("pass arrays that share their first axis, with at least 2 rows")
    count = int(rows[0].shape[0])
    samples = min(require_positive_integer("samples", samples), count)
    generator = np.random.Generator(np.random.Philox(seed))

    def evaluate(index: Positions) -> Integers:
        return _integers(row_sum(*(block[index] for block in rows)))

    everything = np.arange(count)
    total = evaluate(everything)
    if not np.array_equal(evaluate(everything), total):
        raise RowDependence(f"the loss gives two results for the same rows. {_REMEDY}.")
    if np.any(evaluate(everything[:0])):
        raise RowDependence(f"the loss gives a nonzero sum for no rows. {_REMEDY}.")
    for _ in range(3):
        if not np.array_equal(evaluate(generator.permutation(count)), total):
            raise RowDependence(f"the sum changes with the order of the rows. {_REMEDY}.")
    last = everything[-min(4, count) :]
    for cut in np.union1d(generator.choice(np.arange(1, count), min(samples, count - 1), replace=False), last):
        if not np.array_equal(evaluate(everything[:cut]) + evaluate(everything[cut:]), total):
            raise RowDependence(f"the sum changes if rows are processed in two blocks, cut at row {cut}. {_REMEDY}.")
    for left_out in np.union1d(generator.choice(count, samples, replace=False), last):
        without = evaluate(np.delete(everything, left_out))
        if not np.array_equal(total - without, evaluate(everything[left_out : left_out + 1])):
            raise RowDependence(f"leaving out row {left_out} changes what other rows contribute. {_REMEDY}.")


def _integers(result: Any) -> Integers:
    values = result.values if isinstance(result, LatticeSum) else result
    if not isinstance(values, np.ndarray) or values.dtype != np.int64:
        raise InvalidParameter("a row sum must return an int64 array or a LatticeSum: clip and round to a grid first")
    return np.atleast_1d(values)
