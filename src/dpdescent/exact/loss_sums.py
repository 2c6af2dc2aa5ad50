"""Exact sums of bounded losses, of differences of losses, and a check that a loss adds up over single rows.

Exact sums of weighted second moments: Hessians of generalised linear models, feature covariances.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ..arrays import Floats, Integers, Positions
from ..errors import InvalidParameter, RowDependence, require_positive_integer
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

    **Privacy.** Unit: one row. One sum: C whether a row is removed or replaced (`Sensitivity.of_bounded_sum`).
    A vector of m sums, for selection: `Sensitivity.of_scores`, the range is C if a row is removed, because all scores
    then move in one direction, and 2C if it is replaced.
    """

    #: C, public. It is lowered to a multiple of the unit ``2^-(24 - e(C))``, by less than one part in 2^23.
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

    **Privacy.** Unit: one row. Each sum by itself: D if a row is removed, 2D if it is replaced
    (`Sensitivity.of_signed_sum`).
    """

    bound: float  # D, public; lowered to a multiple of the unit ``2^-(24 - e(D))``

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


LEAST_BITS = 28  # two features have 26
PART_BYTES = 2**20  # of rows that are worked on at once: they stay in cache
FILLED_PARTS = 32  # of sparse rows that are made dense at once


@dataclass(frozen=True)
class SecondMomentSum:
    """Sum over rows of ``h_i x_i x_i^T``, each term clipped to Frobenius norm C: Hessians, second moments.

    Notes
    -----
    The norm of a term is ``|h| N`` with ``N = |x|^2`` exact, so Lemma 2 holds with N in place of its root. Weights
    are multiples of ``2^-q``, ``q = total_bits - 2p - e(C)``; ``|h x_j x_k| <= C`` makes 2^17 rows exact.

    **Privacy.** Unit: one row. L2 over all d^2 entries: C if a row is removed; if it is replaced,
    sqrt(2) C for nonnegative weights (``<A, B> >= 0``) and 2C otherwise.
    """

    grid: CoarseGrid  # where the rows live, multiples of ``2^-p``; see `FeatureGrid.coarse`
    clip: float  # C, public
    #: True (the default) for curvatures ``h >= 0``: negative ones are then set to 0, so every term is positive
    #: semidefinite. This is a public promise about the loss, never read from the data.
    nonnegative: bool = True
    #: ``C / unit <= 2^total_bits``; 36 by default. Noise of more than ``2^16 C`` cannot be drawn at that unit.
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
