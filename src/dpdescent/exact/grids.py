"""Power-of-two grids for features and weights, on which row norms and margins are exact.

A feature row lives on multiples of ``2^-p`` with ``p = 20 - e(R)``, where R bounds its Euclidean norm and
``e(R)`` is the least integer with ``R <= 2^e``; weights live on multiples of ``2^-v`` with
``v = 32 - e(|w|)``. Then the squared norm of a row has at most 41 bits and its margin ``x . w`` at most 53, so
both are the exact rational numbers, whatever the order of summation (Lemma 1, `dpdescent.exact.machine`).

Why it matters: a BLAS computes the last rows of a block by another kernel than the others, so that the rounded
margin of one row depends on how many other rows there are. With the hinge loss, deleting one of eight
identical rows of norm 1 can move a sum "clipped to 1" by 4. Exact margins have no such dependence (on the
general problem see Mironov 2012; Casacuberta, Shoemate, Vadhan and Wagaman 2022).

References
----------
I. Mironov. On significance of the least significant bits for differential privacy. CCS 2012.
S. Casacuberta, M. Shoemate, S. Vadhan, C. Wagaman. Widespread underestimation of sensitivity in
differentially private libraries and how to fix it. CCS 2022. arXiv:2207.10635.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy import sparse
from scipy.linalg.blas import dnrm2

from ..arrays import Floats
from ..errors import InvalidParameter, require_positive, require_positive_integer
from . import machine

Answer = TypeVar("Answer")

_LARGEST_EXPONENT = 200  # of a public bound: no grid value, product or sum can then over- or underflow
_LARGEST_DIMENSION = 2**30
_LARGEST_WEIGHT_EXPONENT = 500
_BLOCK_ROWS = 4096
_REMEMBERED_BYTES = 2**20  # of weights: the matrix of a whitening is checked once and not for every block of rows


def ceil_log2(x: float) -> int:
    """Return the least integer ``e`` with ``x <= 2^e``, exactly, for positive finite ``x``."""
    mantissa, exponent = math.frexp(require_positive("x", x))
    return exponent - (mantissa == 0.5)


def require_moderate(name: str, value: float) -> float:
    """Return a public bound as a float, or raise `InvalidParameter` unless it lies in [2^-200, 2^200]."""
    number = require_positive(name, value)
    if abs(math.log2(number)) > _LARGEST_EXPONENT:
        raise InvalidParameter(f"{name} must lie between 2^-200 and 2^200, got {number}: choose other units")
    return number


@dataclass(frozen=True)
class FeatureGrid:
    """The grid of feature rows with entries in [-B, B] and norms up to R; all three numbers are public.

    Attributes
    ----------
    exponent : int
        p: grid values are multiples of ``2^-p``.

    Notes
    -----
    **Privacy.** Each row is rounded to the grid by itself, by a function that is defined for every row (no row can
    raise an error), so this changes neither the relation nor the sensitivity. B, d and R must not be read from the
    data.

    Rounding may lift a norm above R by ``sqrt(d) 2^-(p+1) <= 2^-6 2^e(R)`` (d <= 2^30), for which bits are reserved.
    """

    #: B. Entries are clipped to [-B, B].
    entry_bound: float
    #: d, the number of columns (a constant column for the intercept counts). At most 2^30.
    dimension: int
    #: R. By default, and at most, ``B sqrt(d)``, which the entries imply. A smaller one is enforced: longer rows are
    #: scaled down to it. A small R is better, because the grid resolves about 2^-20 of R.
    row_bound: float = math.inf

    bits: ClassVar[int] = 20

    def __post_init__(self) -> None:
        object.__setattr__(self, "entry_bound", require_moderate("entry_bound", self.entry_bound))
        dimension = require_positive_integer("dimension", self.dimension)
        if dimension > _LARGEST_DIMENSION:
            raise InvalidParameter(f"dimension must be at most 2^30, got {dimension}")
        object.__setattr__(self, "dimension", dimension)
        implied = require_moderate("entry_bound * sqrt(dimension)", self.entry_bound * math.sqrt(dimension))
        given = self.row_bound
        row_bound = implied if given == math.inf else min(implied, require_moderate("row_bound", given))
        object.__setattr__(self, "row_bound", row_bound)

    @cached_property
    def exponent(self) -> int:
        """The integer p such that grid values are multiples of ``2^-p``."""
        return self.bits - ceil_log2(self.row_bound)

    @property
    def coarse(self) -> CoarseGrid:
        """The coarser grid, with the same bounds, on which second moments are summed."""
        return CoarseGrid(self.entry_bound, self.dimension, self.row_bound)

    @property
    def _implied_row_bound(self) -> float:
        return self.entry_bound * math.sqrt(self.dimension)

    @property
    def _entry_exponent(self) -> int:
        """The exponent to which entries are rounded before rows are scaled down; at most `exponent`."""
        return min(self.exponent, 26 - ceil_log2(self._implied_row_bound))

    @property
    def largest_entry(self) -> float:
        """The largest absolute value of an entry on the grid: B, rounded."""
        return math.ldexp(math.floor(math.ldexp(self.entry_bound, self._entry_exponent) + 0.5), -self._entry_exponent)

    def place(self, features: Any, dtype: DTypeLike = np.float64) -> Any:
        """Return the rows on the grid: NaN becomes 0, entries are clipped and rounded to the nearest multiple.

        Parameters
        ----------
        features : array_like or scipy.sparse CSR, shape (n, d)
            Real numbers; left unchanged. Other sparse formats are converted to CSR; entries stored twice are
            added up first (their squares would not add up to the norm).
        dtype : numpy.float64 or numpy.float32
            How to store the result. Grid values have at most 21 bits, so float32 holds them exactly and halves
            the memory; products are formed in float64 in either case.

        Returns
        -------
        ndarray or CSR of the given kind
            The same memory order as the input.

        Notes
        -----
        **Privacy.** Elementwise, except for the factor ``min(1, R/|x|)`` of each row if ``R < B sqrt(d)``. The
        norm in it is exact too: it is that of the row on multiples of ``2^-p'``, ``p' = min(p, 26 - e(B
        sqrt(d)))``, so its square has at most 53 bits. If ``B sqrt(d)`` is more than 64 R, that grid is the
        coarser one: a loose B costs precision.
        """
        stored = np.dtype(dtype)
        if stored not in (np.dtype(np.float64), np.dtype(np.float32)):
            raise InvalidParameter(f"grid values are stored as float64 or float32, not {stored}")
        if stored == np.float32 and abs(self.exponent) > 100:
            raise InvalidParameter("float32 cannot hold values on this grid: rescale the features towards 1")
        if sparse.issparse(features):
            return self._place_sparse(features, stored)
        rows = np.asarray(features)
        self._require_rows(rows)
        order: Any = "F" if rows.flags.f_contiguous and not rows.flags.c_contiguous else "C"
        placed = np.empty(rows.shape, dtype=stored, order=order)
        for block in machine.row_blocks(rows.shape[0], _BLOCK_ROWS, _BLOCK_ROWS):
            work = rows[block].astype(np.float64)
            self.place_in(work)
            placed[block] = work
        return placed

    def place_in(self, rows: Floats) -> None:
        """Round dense rows to the grid in their own memory: `place` without a copy."""
        self._round_entries(rows)
        if self.row_bound < self._implied_row_bound:
            rows *= self._shrinkage(np.einsum("ij,ij->i", rows, rows))[:, np.newaxis]
            self._round(rows, self.exponent)

    def _place_sparse(self, features: Any, stored: np.dtype[Any]) -> Any:
        self._require_rows(features)
        # Add duplicates in float64, on a copy: the sum of two float32 entries need not be a float32.
        rows = features.tocsr().astype(np.float64, copy=True)
        rows.sum_duplicates()
        self._round_entries(rows.data)
        if self.row_bound < self._implied_row_bound:
            rows.data *= np.repeat(self._shrinkage(self.squared_norms(rows)), np.diff(rows.indptr))
            self._round(rows.data, self.exponent)
        return rows.astype(stored, copy=False)

    def _round_entries(self, values: Floats) -> None:
        # Two looks cost less than one change; NaN fails both comparisons.
        if values.size and not (values.min() >= -self.entry_bound and values.max() <= self.entry_bound):
            np.clip(values, -self.entry_bound, self.entry_bound, out=values)
            np.copyto(values, 0.0, where=np.isnan(values))
        self._round(values, self._entry_exponent)

    @staticmethod
    def _round(values: Floats, exponent: int) -> None:
        """Round to multiples of ``2^-exponent``, ties to even; values are below ``2^(50-exponent)``.

        Doubles near 1.5 ``2^(52-exponent)`` are such multiples, so adding and subtracting that number rounds. The
        result is never -0, so equal values have equal bits.
        """
        anchor = 1.5 * 2.0 ** (52 - exponent)
        values += anchor
        values -= anchor

    def _shrinkage(self, squared_norms: Floats) -> Floats:
        norms = np.sqrt(squared_norms)
        np.maximum(norms, self.row_bound, out=norms)
        return np.divide(self.row_bound, norms, out=norms)

    def squared_norms(self, placed: Any) -> Floats:
        """Return the exact squared norm of each grid row, shape (n,).

        Sums of multiples of ``2^-2p`` below ``2^(41-2p)``: exact by Lemma 1.
        """
        self._require_rows(placed)
        rows = placed.shape[0]
        if sparse.issparse(placed):
            entries = placed.data.astype(np.float64)
            squares = type(placed)((entries * entries, placed.indices, placed.indptr), shape=placed.shape)
            sums: Floats = squares @ np.ones(self.dimension)
            return sums
        norms = np.empty(rows)
        for block in machine.row_blocks(rows, _BLOCK_ROWS, _BLOCK_ROWS):
            work = machine.as_float64(placed[block])
            np.einsum("ij,ij->i", work, work, out=norms[block])
        return norms

    def place_weights(self, weights: ArrayLike) -> Floats:
        """Return the weights on ``2^-v``, ``v = 32 - e(|w|)``, where margins are exact; each column by itself.

        Weights, (d,) or (d, K), are public or released, and every column has its own ``v``.

        Notes
        -----
        Weights below ``2^-500`` in norm are rounded as if they had that norm. Placing twice changes nothing:
        if rounding lifts the norm over a power of two, a second pass settles on the coarser grid.

        **Privacy.** Post-processing of released weights. The power of two above the norm is found exactly, so
        the grid does not depend on the machine.
        """
        given = np.asarray(weights)
        if given.dtype.kind not in "biuf":
            raise InvalidParameter(f"weights must be real numbers, got dtype {given.dtype}")
        columns = given.astype(np.float64, copy=False)
        self._require_weights(columns)
        return _place_columns(columns).copy("K")

    def margins(self, placed: Any, weights: Floats) -> Floats:
        """Return ``X @ w``, each margin the exact rational number, shape (n,) or (n, K).

        Rows are those of `place`, and weights, (d,) or (d, K), those of `place_weights`: any on too fine a grid raise
        `InvalidParameter`.

        Notes
        -----
        All ``x_j w_j`` are multiples of ``2^-(p+v)`` and their absolute values add up to at most
        ``|x| |w| <= 2^(1 + e(R) + e(|w|)) = 2^(53-p-v)`` by Cauchy-Schwarz: exact by Lemma 1.

        **Privacy.** Row i's margin is a function of row i and of ``w`` alone: no position, block size, number
        of rows, thread or machine enters.
        """
        self._require_rows(placed)
        self._require_weights(weights)
        exponents = _require_exponents(weights)
        if not machine.blas_is_exact():
            products = machine.on_integers(placed, self.exponent) @ np.ldexp(weights, exponents).astype(np.int64)
            margins: Floats = np.ldexp(products.astype(np.float64), -(exponents + self.exponent))
        elif placed.dtype == np.float64:
            margins = _few_columns(placed, weights) if weights.ndim == 2 else placed @ weights
        else:
            margins = np.empty((placed.shape[0], *weights.shape[1:]))
            for block in machine.row_blocks(placed.shape[0], _BLOCK_ROWS, _BLOCK_ROWS):
                margins[block] = machine.as_float64(placed[block]) @ weights
        margins += 0.0
        return margins

    def _require_rows(self, rows: Any) -> None:
        if rows.dtype.kind not in "biuf":
            raise InvalidParameter(f"features must be real numbers, got dtype {rows.dtype}")
        if rows.ndim != 2 or rows.shape[1] != self.dimension:
            raise InvalidParameter(f"features must have shape (n, {self.dimension}), got {tuple(rows.shape)}")

    def _require_weights(self, weights: NDArray[Any]) -> None:
        if weights.dtype != np.float64:
            raise InvalidParameter(f"weights must be float64, got dtype {weights.dtype}")
        if weights.ndim not in (1, 2) or weights.shape[0] != self.dimension:
            raise InvalidParameter(
                f"weights must have shape ({self.dimension},) or ({self.dimension}, K), got {weights.shape}"
            )


def _few_columns(rows: Any, weights: Floats) -> Floats:
    """Return ``rows @ weights``; up to 3 columns one by one, since matrix products are slow when so narrow."""
    if weights.shape[1] > 3 or not isinstance(rows, np.ndarray):
        product: Floats = rows @ weights
        return product
    margins = np.empty((rows.shape[0], weights.shape[1]), order="F")
    for column in range(weights.shape[1]):
        np.matmul(rows, weights[:, column], out=margins[:, column])
    return margins


def _remember(function: Callable[[Floats], Answer]) -> Callable[[Floats], Answer]:
    """Cache what is computed for the few weights that a solver passes repeatedly, by their (public) bytes."""

    @lru_cache(maxsize=16)
    def recall(content: bytes, shape: tuple[int, ...]) -> Answer:
        return function(np.frombuffer(content).reshape(shape))

    def answer(weights: Floats) -> Answer:
        return recall(weights.tobytes(), weights.shape) if weights.nbytes <= _REMEMBERED_BYTES else function(weights)

    return answer


@_remember
def _place_columns(weights: Floats) -> Floats:
    columns = np.array(weights, order="F")
    for column in columns.T if columns.ndim == 2 else (columns,):
        for _ in range(2):
            exponent = 32 - _norm_exponent(column)
            column[:] = np.ldexp(np.rint(np.ldexp(column, exponent)), -exponent)
    columns += 0.0
    return columns


@_remember
def _require_exponents(weights: Floats) -> Any:
    """Return `_finest_exponents`, or raise `InvalidParameter` for weights that are not on that grid."""
    exponents = _finest_exponents(weights)
    scaled = np.ldexp(weights, exponents)
    if not (scaled == np.rint(scaled)).all():
        raise InvalidParameter("weights are not on their grid: pass them through place_weights first")
    return exponents


def _finest_exponents(weights: Floats) -> Any:
    """Return, per column, the largest ``v`` for which margins are exact, from a norm accurate to one percent.

    With ``1.03 |w| <= 2^e`` and ``|x| <= (1 + 2^-6) 2^e(R)``, ``v = 33 - e`` leaves the absolute products at
    most ``2^(e(R) + e) = 2^(53-p-v)``. Weights from `place_weights` have ``v`` at most this.
    """
    if weights.ndim == 2:
        return np.array([_finest_exponents(column) for column in weights.T], dtype=np.int64)
    norm = dnrm2(weights)
    if 2.0**-450 < norm < 2.0**450:
        return 33 - ceil_log2(1.03 * norm)
    return 32 - _norm_exponent(weights)


def _norm_exponent(column: Floats) -> int:
    """Return ``e(|w|)``, at least -500; exact summation decides where a norm accurate to 2^-20 does not."""
    norm = dnrm2(column)
    mantissa, exponent = math.frexp(norm)
    if 2.0**-450 < norm < 2.0**450 and 0.5 + 2.0**-20 < mantissa < 1 - 2.0**-20:
        return exponent
    peak = float(np.max(np.abs(column)))
    if not peak <= 2.0**_LARGEST_WEIGHT_EXPONENT:
        raise InvalidParameter("weights must be finite and below 2^500: the solver has diverged")
    if peak <= 2.0**-600:
        return -_LARGEST_WEIGHT_EXPONENT
    shift = ceil_log2(peak)
    scaled = np.ldexp(column, -shift)
    return max(shift + ceil_log2(math.sqrt(math.fsum((scaled * scaled).tolist()))), -_LARGEST_WEIGHT_EXPONENT)


@dataclass(frozen=True)
class CoarseGrid(FeatureGrid):
    """The grid of rows whose second moments are summed: 13 bits below R instead of 20.

    A term ``h x_j x_k`` multiplies two features, so each must have fewer bits for the sum to fit into 53.
    ``x`` itself, ``N = |x|^2`` and every product ``h x_j x_k`` of an integer weight are exact
    (see `dpdescent.exact.SecondMomentSum`). Values that are on the finer grid already may be rounded to this one.
    """

    bits: ClassVar[int] = 13

    def round_rows(self, rows: Floats) -> Floats:
        """Return dense rows of the finer grid, rounded to this one: a row may get longer, by sqrt(d) 2^-(p+1)."""
        rounded = rows.copy()
        self._round(rounded, self.exponent)
        return rounded
