r"""Sums of clipped rows as integers, with the sensitivity they really have.

Every sum here is a vector of int64 multiples of a power of two. Row i adds an integer vector that is a
function of row i alone, so ``S(D) - S(D without i)`` equals that vector exactly, and its norm is bounded in
the real numbers and not "up to rounding" (Casacuberta et al. 2022 show what the difference can cost).

**Overflow is never a privacy event.** int64 addition is arithmetic in Z/2^64, and integer noise Z added to a sum
S gives ``(S + Z) mod 2^64``, a function of ``S + Z``. A wrap-around costs utility only, so nothing is raised:
an error would reveal the size of the data. With the default units it takes more than 2^27 rows.

**Rows of one unit, clipped together.** All rows of a person add a vector that is at most C long.

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
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from ..arrays import Floats, Integers, Positions
from ..errors import InvalidParameter, require_positive_integer
from ..relations import Sensitivity
from . import machine
from .grids import FeatureGrid, ceil_log2, require_moderate

TOTAL_BITS = 36
LARGEST_BLOCK = 2**17  # rows * 2^36 <= 2^53
BLOCK_ROWS = 2**16  # few calls, and short temporaries
_CHUNK = 2**14  # elements per pass of elementwise work: it stays in cache
_LARGEST_CLASS_COUNT = 2**10
LARGEST_JOINT = 128  # rows of a unit: that many inner products are kept for each row
_SHORTER = 1 - 2.0**-40


@dataclass(frozen=True, eq=False)
class LatticeSum:
    """An exact sum over rows, before noise: **unreleased data**, so its representation hides the values."""

    values: Integers = field(repr=False)  # the sum in multiples of ``unit``
    unit: float  # a power of two, public
    #: What one row can change, in real units (not in multiples of ``unit``).
    sensitivity: Sensitivity

    def __post_init__(self) -> None:
        if not isinstance(self.values, np.ndarray) or self.values.dtype != np.int64:
            raise InvalidParameter("values of a lattice sum must be an int64 array")
        if not (self.unit > 0 and math.isfinite(self.unit) and math.frexp(self.unit)[0] == 0.5):
            raise InvalidParameter(f"unit must be a power of two, got {self.unit!r}")
        protected = self.values.view()
        protected.flags.writeable = False
        object.__setattr__(self, "values", protected)

    def __add__(self, other: LatticeSum) -> LatticeSum:
        """Add the sum over other rows; int64 wraps silently, and the order of additions cannot matter."""
        if not isinstance(other, LatticeSum):
            return NotImplemented
        same_kind = (self.unit, self.sensitivity) == (other.unit, other.sensitivity)
        if not same_kind or self.values.shape != other.values.shape:
            raise InvalidParameter("lattice sums add up only if unit, sensitivity and shape are the same")
        return LatticeSum(np.add(self.values, other.values), self.unit, self.sensitivity)

    def to_float(self) -> Floats:
        """Return the sum in real units: one correct rounding per value, exact below 2^53 units."""
        return self.values.astype(np.float64) * self.unit


@dataclass(frozen=True)
class ClippedSum:
    """Sum over rows of ``r_i x_i``, or ``x_i r_i^T`` for K residuals, each term clipped to norm C.

    Gradients of generalised linear models have this form, r being the derivative of the loss with respect to
    the margin; a sum of feature rows is the case ``r = 1``.

    **Privacy.** Unit: one row. Sensitivity `Sensitivity.of_clipped_sum`: C in L2 if a row is removed, 2C if it is
    replaced, in exact arithmetic, by the two lemmas at `caps` and `coefficients`. C must not be read from data.
    """

    grid: FeatureGrid  # where the rows live, multiples of ``2^-p``
    #: C, public: the Euclidean (for K residuals, Frobenius) norm of any row's term is at most C.
    clip: float
    #: ``C / unit <= 2^total_bits``; 36 by default. Noise of more than ``2^16 C`` cannot be drawn at that unit and
    #: needs ``52 - e(sigma/C)`` bits.
    total_bits: int = TOTAL_BITS

    def __post_init__(self) -> None:
        object.__setattr__(self, "clip", require_moderate("clip", self.clip))
        total_bits = require_positive_integer("total_bits", self.total_bits)
        if total_bits > TOTAL_BITS:
            raise InvalidParameter(f"total_bits must be at most {TOTAL_BITS}, got {total_bits}")
        object.__setattr__(self, "total_bits", total_bits)

    @cached_property
    def coefficient_exponent(self) -> int:
        """The integer q such that coefficients are multiples of ``2^-q``."""
        return self.total_bits - ceil_log2(self.clip) - self.grid.exponent

    @cached_property
    def unit(self) -> float:
        """The unit ``2^-(p+q)`` of the sum."""
        return math.ldexp(1.0, -(self.grid.exponent + self.coefficient_exponent))

    @cached_property
    def sensitivity(self) -> Sensitivity:
        """The sensitivity of the sum, in real units."""
        return Sensitivity.of_clipped_sum(self.clip)

    def caps(self, squared_norms: ArrayLike) -> Floats:
        """Return the largest integer coefficient of each row; 0 for a row of zeros.

        **Lemma 2 (scalar clip).** Let ``N = |x|^2`` be exact, ``u = 2^-53``, and ``cap = floor(2^q fl(C' /
        fl(sqrt N)))`` with ``C' = fl(C (1 - 2^-48))``. Then ``cap 2^-q |x| <= C`` in the real numbers.

        *Proof.* ``fl(sqrt N) >= sqrt(N) (1-u)``, so the quotient is at most ``C (1-2^-48) (1+u)^2 / (sqrt(N)
        (1-u)) < C / sqrt(N)``, because ``4u < 2^-48``. Scaling by ``2^q`` is exact, floor only lowers. QED
        """
        caps = np.sqrt(require_real("squared_norms", squared_norms))
        return capped_quotient(self.clip, caps, self.coefficient_exponent)

    def coefficients(self, residuals: ArrayLike, squared_norms: ArrayLike) -> Floats:
        """Return the clipped integer coefficients of each row, as float64.

        Parameters
        ----------
        residuals : array_like, shape (n,) or (n, K), K <= 1024
            Any numbers: NaN counts as 0, infinities are clipped.
        squared_norms : array_like, shape (n,)
            From `FeatureGrid.squared_norms`.

        Returns
        -------
        ndarray, shape (n,) or (n, K)
            Integers in units of ``2^-q``. For (n,): ``clip(rint(2^q r), -cap, cap)``; rounding comes before
            clipping, so it needs no slack. For (n, K): see the lemma.

        Notes
        -----
        **Lemma 2' (vector clip).** The term ``x r^T`` has norm ``|x| |r|``. Scale r in any way and round to
        integers k; let ``S = fl(sum_j k_j^2)`` in a fixed order. If ``S > cap^2 (1-2^-40)``, replace k by
        ``trunc(k s)`` with ``s = fl(cap (1-2^-40) / fl(sqrt S))``. Then ``|k| <= cap`` for K <= 2^10.

        *Proof.* S has relative error at most ``(K+1) u < 2^-42``. If k stays, ``|k|^2 <= cap^2 (1-2^-40)
        (1+2^-42) < cap^2``. If not, trunc only lowers, and ``s |k| (1+u) <= cap (1-2^-40) (1+2^-41) < cap``. QED
        """
        return self.coefficients_within(residuals, self.caps(squared_norms))

    def coefficients_within(self, residuals: ArrayLike, caps: Floats, out: Floats | None = None) -> Floats:
        """Return `coefficients` for `caps` computed once: they depend on the rows and C, not on the weights.

        ``out`` may receive scalar coefficients, and may be ``residuals`` itself.
        """
        values = require_real("residuals", residuals)
        if values.ndim not in (1, 2) or caps.shape != values.shape[:1]:
            raise InvalidParameter(
                f"residuals of shape (n,) or (n, K) go with n norms or caps, got {values.shape} and {caps.shape}"
            )
        if values.ndim == 1:
            return clip_integers(values, caps, self.coefficient_exponent, out)
        if values.shape[1] > _LARGEST_CLASS_COUNT:
            raise InvalidParameter(f"at most {_LARGEST_CLASS_COUNT} residuals per row, got {values.shape[1]}")
        return _clip_integer_vectors(values, caps, self.coefficient_exponent)

    def block(self, placed: Any, coefficients: Floats) -> Integers:
        """Return the sum over at most 2^17 rows, shape (d,) or (d, K), in multiples of `unit`.

        ``|c_i x_ij| <= C`` for every row, so ``2^17`` rows stay below ``2^53`` units: exact by Lemma 1.
        """
        rows = placed.shape[0]
        if rows > LARGEST_BLOCK or coefficients.shape[0] != rows:
            raise InvalidParameter(
                f"a block has at most {LARGEST_BLOCK} rows and as many coefficients, "
                f"got {rows} and {coefficients.shape[0]}: use total"
            )
        if not machine.blas_is_exact():
            integers: Integers = machine.on_integers(placed, self.grid.exponent).T @ coefficients.astype(np.int64)
            return integers
        return self._as_integers(machine.transposed_product(placed, coefficients))

    def _as_integers(self, products: Floats) -> Integers:
        return (products * 2.0**self.grid.exponent).astype(np.int64)

    def _scalar_block(self, placed: Any, residuals: Floats, caps: Floats, out: Floats) -> Integers:
        """Return `block` of `coefficients_within`, without a pass over the rows to look for NaN.

        A NaN coefficient makes every sum NaN (zero times NaN is NaN), so with dense rows it is enough to look at
        the first one, and to set NaN to 0 if it is there. In CSR it reaches the row's stored entries only.
        """
        if not machine.blas_is_exact():
            return self.block(placed, clip_integers(residuals, caps, self.coefficient_exponent, out))
        coefficients = clip_integers(residuals, caps, self.coefficient_exponent, out, keep_missing=True)
        products = machine.transposed_product(placed, coefficients)
        seen = products.item(0) if isinstance(placed, np.ndarray) else products.sum()
        if seen != seen:
            np.copyto(coefficients, 0.0, where=np.isnan(coefficients))
            return self.block(placed, coefficients)
        return self._as_integers(products)

    def total(
        self,
        placed: Any,
        residuals: ArrayLike,
        squared_norms: ArrayLike | None = None,
        *,
        block_rows: int = BLOCK_ROWS,
    ) -> LatticeSum:
        """Return the sum over all rows; any ``block_rows`` up to 2^17 gives the same bits."""
        norms = self.grid.squared_norms(placed) if squared_norms is None else np.asarray(squared_norms)
        return self.total_within(placed, residuals, self.caps(norms), block_rows=block_rows)

    def total_within(
        self,
        placed: Any,
        residuals: ArrayLike,
        caps: Floats,
        *,
        out: Floats | None = None,
        block_rows: int = LARGEST_BLOCK,
    ) -> LatticeSum:
        """Return `total` for `caps` computed once: what an iteration of a solver calls.

        Parameters
        ----------
        placed : ndarray or CSR, shape (n, d)
            Rows from `FeatureGrid.place`.
        residuals : array_like, shape (n,) or (n, K)
            One or K residuals per row.
        caps : ndarray, shape (n,)
            From `caps`.
        out : ndarray, shape (n,), optional
            Receives scalar coefficients; may be ``residuals`` itself, which saves memory traffic.
        block_rows : int, optional
            Any number up to 2^17 gives the same bits.
        """
        values = require_real("residuals", residuals)
        if not values.shape[:1] == caps.shape == placed.shape[:1]:
            raise InvalidParameter(
                f"rows, residuals and squared norms or caps differ in number: "
                f"{placed.shape}, {values.shape}, {caps.shape}"
            )
        total = np.zeros((self.grid.dimension, *values.shape[1:]), dtype=np.int64)
        for rows in machine.row_blocks(placed.shape[0], block_rows, LARGEST_BLOCK):
            block = placed if placed.shape[0] <= block_rows else placed[rows]
            if values.ndim == 1:
                target = np.empty(block.shape[0]) if out is None else out[rows]
                total += self._scalar_block(block, values[rows], caps[rows], target)
            else:
                total += self.block(block, self.coefficients_within(values[rows], caps[rows]))
        return self.label(total)

    def label(self, values: Integers) -> LatticeSum:
        """Attach unit and sensitivity to a total of `block` results."""
        return LatticeSum(values, self.unit, self.sensitivity)


def joint_factors(
    clipped: ClippedSum, coefficients: Floats, squared_norms: Floats, products: Floats, owners: Positions
) -> Floats:
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
    by_row: Floats = factors[unit]
    return by_row


def require_real(name: str, values: ArrayLike, kind: DTypeLike = np.float64) -> NDArray[Any]:
    """Return ``values`` as ``kind``, or raise `InvalidParameter` for complex numbers and objects."""
    array = np.asarray(values)
    if array.dtype.kind not in "biuf":
        raise InvalidParameter(f"{name} must be real numbers, got dtype {array.dtype}")
    return array.astype(kind, copy=False)


def capped_quotient(clip: float, divisors: Floats, exponent: int) -> Floats:
    """Overwrite ``divisors`` with ``floor(2^exponent fl(C (1 - 2^-48) / divisor))``, 0 where it is 0."""
    empty = divisors == 0
    if empty.any():
        divisors[empty] = math.inf
    np.divide(clip * (1 - 2.0**-48), divisors, out=divisors)
    divisors *= 2.0**exponent
    return np.floor(divisors, out=divisors)


def clip_integers(
    values: Floats, caps: Floats, exponent: int, out: Floats | None = None, *, keep_missing: bool = False
) -> Floats:
    """Return ``clip(rint(2^exponent values), -caps, caps)``; NaN becomes 0, or stays NaN on request."""
    clipped = np.empty(values.shape) if out is None else out
    scale = np.array(-(2.0**exponent))
    with np.errstate(over="ignore"):  # an infinite product is clipped like any other
        for start in range(0, values.size, _CHUNK):
            rows = slice(start, start + _CHUNK)
            chunk, cap = clipped[rows], caps[rows]
            # Both ends are clipped by a minimum, before and after a change of sign, so no array of -caps is needed.
            np.multiply(values[rows], scale, out=chunk)
            np.rint(chunk, out=chunk)
            np.minimum(chunk, cap, out=chunk)
            np.negative(chunk, out=chunk)
            np.minimum(chunk, cap, out=chunk)
    if not keep_missing:
        np.copyto(clipped, 0.0, where=np.isnan(clipped))
    return clipped


def _clip_integer_vectors(values: Floats, caps: Floats, exponent: int) -> Floats:
    """Return integer vectors of norm at most ``caps``, row by row (Lemma 2')."""
    # Class by class in contiguous memory; a reduction over classes is a loop, hence in a fixed order.
    by_class = np.array(values.T, order="C")
    np.copyto(by_class, 0.0, where=np.isnan(by_class))
    np.clip(by_class, -1e100, 1e100, out=by_class)
    # Shorten the vector before rounding, so that its direction is kept to the last unit.
    norms = np.sqrt(_sum_of_squares(by_class))
    by_class *= np.minimum(2.0**exponent, caps / np.maximum(norms, 1e-200))
    np.rint(by_class, out=by_class)
    squared = _sum_of_squares(by_class)
    slack = 1 - 2.0**-40
    too_long = squared > caps * caps * slack
    factor = np.where(too_long, caps * slack / np.maximum(np.sqrt(squared), 1.0), 1.0)
    by_class *= factor
    return np.trunc(by_class, out=by_class).T


def _sum_of_squares(by_class: Floats) -> Floats:
    total = np.zeros(by_class.shape[1])
    for row in by_class:
        total += row * row
    return total
