r"""Exact discrete Gaussian and discrete Laplace noise on the integers.

Noise computed in floating point leaves holes: some outputs can be reached from one table and not from
its neighbour (Mironov 2012; Holohan & Braghin 2021). Here the noise is an integer, drawn with

.. math:: P(z) \propto e^{-z^2 / 2\sigma^2} \quad\text{or}\quad P(z) \propto e^{-|z| / b},

and every random decision is the exact one, so that theorems about these laws apply as they are stated.

**Cells** (after Karney 2016). Let the scale be ``16 W`` and write a magnitude as ``y = k W + U`` with a cell
``k`` and an offset ``U`` in ``0 .. W-1``. Then

.. math:: e^{-y^2/2\sigma^2} = e^{-k^2/512} \, e^{-U(2kW+U)/2\sigma^2}, \qquad
          e^{-y/b} = e^{-k/16} \, e^{-U/b}.

The law of the cell does not depend on the scale: one table for each family serves every scale. A proposal
takes ``k`` from the table, ``U`` uniform, a fair sign, and is accepted with the second factor as
probability (0.975 on average; at least 0.9); "minus zero" is rejected so that zero counts once.

**Lemma (exactness).** Given ideal bits and a floating-point exponential within ``2**-43`` of the true one on
``[-1.3, 0]``, the draws are independent and each is within total variation ``2**-240`` of its law.

*Proof.* Each decision compares a uniform real ``u``, whose binary digits are read as they are needed, with
a threshold. Cells: with ``T`` the first 64 bits of the threshold ``F`` and ``r`` those of ``u``, ``r < T``
implies ``u < F`` and ``r > T`` implies ``u > F``. Acceptance: 53 bits ``h`` of ``u`` and the
floating-point value ``e`` of ``exp(-x)`` decide when they are more than ``2**-42`` apart, because
``x <= 1.3`` carries a relative error below ``2**-50``, ``exp`` adds ``2**-43`` and the unread digits
``2**-53``. In the remaining cases (probability below ``2**-52`` and ``2**-41``) 256-bit integers decide:
rounding at most 3,017 thresholds down, leaving out a tail of mass below ``2**-256``, and two units of error
in `exp_neg` give less than ``2**-243`` for a proposal, and conditioning on acceptance at most doubles it.
Keeping the first accepted of independent proposals gives independent draws. QED

Floating point is thus only a filter in front of the exact decision, and a seeded stream gives the same
noise on every machine. The work per batch does not depend on the values drawn: only rejected proposals
(independent of the accepted values) and the slow path change the time.

**Scales** that a mechanism asks for are rounded up to ones that can be drawn, in exact arithmetic (`lattice_scale`,
`laplace_scale`).

References
----------
C. F. F. Karney, "Sampling exactly from the normal distribution", ACM TOMS 42(1), 2016, arXiv:1303.6257.
C. Canonne, G. Kamath, T. Steinke, "The discrete Gaussian for differential privacy", 2020, arXiv:2004.00010.
N. Holohan, S. Braghin, "Secure random sampling in differential privacy", 2021, arXiv:2107.10138.
I. Mironov, "On significance of the least significant bits for differential privacy", CCS 2012.
"""

from __future__ import annotations

import math
import operator
from abc import ABC, abstractmethod
from bisect import bisect_right
from dataclasses import dataclass
from fractions import Fraction
from functools import cache
from typing import SupportsIndex

import numpy as np
from numpy.typing import NDArray

from ..arrays import Booleans, Floats, Integers
from ..errors import InvalidParameter, ScaleOutOfRange
from .bits import Bits
from .exponential import FILTER_GAP, FLOAT_BITS, PRECISION, exact_rational, exp_neg, require_size

CELLS_PER_SCALE = 16
MAXIMUM_SCALE = 2**52

# Total variation distance of one draw from its law, of every sampler of this package: the lemma above. A selection
# (2**-253) and an acceptance (2**-254) are closer than that.
SAMPLER_ERROR = 2.0**-240
FARTHEST_DRAW = 20.0  # scales: the table of cells ends before it, so no Gaussian draw lies beyond


def lattice_scale(sigma: float | Fraction, unit: float | Fraction) -> int:
    r"""Return the lattice scale whose discrete Gaussian is as private as a Gaussian of deviation ``sigma``.

    The result is the least multiple of 16 with ``scale^2 >= (sigma / unit)^2 + 4``, in exact arithmetic.

    Parameters
    ----------
    sigma : float or Fraction
        Standard deviation of the real Gaussian mechanism.
    unit : float or Fraction
        Distance of neighbouring lattice points, in the units of ``sigma``.

    Returns
    -------
    int
        A scale for `discrete_gaussian`.

    Privacy
    -------
    The "+ 4" makes every theorem about Gaussian noise available (zCDP, Gaussian DP, filters, privacy loss
    distributions, subsampling), not the zCDP bound only.

    **Lemma.** Let ``s^2 = s1^2 + s2^2`` and :math:`\theta = 2\sum_{j\ge1} e^{-2\pi^2 s_2^2 j^2}`. Draw X from
    N(q, s1^2), q an integer, and then k from the discrete Gaussian of scale s2 centred at X. The law P of k
    satisfies :math:`N_Z(s^2)(k-q) / P(k) \in [(1-\theta)/(1+\theta), 1+\theta]` for every k.
    *Proof.* The product of the two exponentials is :math:`e^{-(k-q)^2/2s^2}` times a Gaussian in x. By
    Poisson summation the normaliser of the second step is :math:`\sqrt{2\pi} s_2 (1 + c(x))` with
    :math:`|c| \le \theta`, and that of the discrete Gaussian of scale s is :math:`\sqrt{2\pi} s` times a
    number in :math:`[1, 1+\theta]`. QED

    With ``s2^2 = 4``, theta is 1.03e-34: a run that releases N coordinates is a post-processing of Gaussian
    mechanisms with the real sigma, up to 3.2e-34 N in epsilon and a factor 1 + 1.1e-34 N on delta.
    """
    ratio = _require_positive("sigma", sigma) / _require_positive("unit", unit)
    least = math.ceil((ratio**2 + 4) / CELLS_PER_SCALE**2)
    return _within_range(CELLS_PER_SCALE * (math.isqrt(least - 1) + 1))


def laplace_scale(scale: float | Fraction, unit: float | Fraction) -> int:
    """Return the least multiple of 16 that is at least ``scale / unit``, in exact arithmetic.

    Parameters
    ----------
    scale : float or Fraction
        The parameter b of the real Laplace mechanism.
    unit : float or Fraction
        Distance of neighbouring lattice points, in the units of ``scale``.

    Returns
    -------
    int
        A scale for `discrete_laplace`. Rounding up only lowers the cost.
    """
    ratio = _require_positive("scale", scale) / _require_positive("unit", unit)
    return _within_range(CELLS_PER_SCALE * math.ceil(ratio / CELLS_PER_SCALE))


def _require_positive(name: str, value: float | Fraction) -> Fraction:
    number = exact_rational(name, value)
    if number <= 0:
        raise InvalidParameter(f"{name} must be greater than 0, got {value}")
    return number


def _within_range(scale: int) -> int:
    if scale > MAXIMUM_SCALE:
        raise ScaleOutOfRange(
            f"the noise would be {scale / MAXIMUM_SCALE:.3g} times the largest lattice scale 2**52: "
            f"use a coarser lattice, with a unit at least 2**{(scale - 1).bit_length() - 52} times as large"
        )
    return scale


def require_scale(scale: SupportsIndex) -> int:
    """Return ``scale`` as an int, or raise `ScaleOutOfRange` unless the sampler can draw it."""
    try:
        number = operator.index(scale)
    except TypeError:
        number = -1
    if not CELLS_PER_SCALE <= number <= MAXIMUM_SCALE or number % CELLS_PER_SCALE:
        raise ScaleOutOfRange(
            f"a lattice scale is an int, a multiple of 16, from 16 to 2**52, got {scale!r}: "
            "compute it with lattice_scale or laplace_scale, which round up"
        )
    return number


@dataclass(frozen=True)
class _CellTable:
    """Cumulative law of the cell index.

    ``cumulative[k]`` is ``2**256 P(cell <= k)`` rounded down, ``leading[k]`` its first 64 bits, and
    ``boundary[k]`` the threshold just below cell ``k``, which a word must equal for the cell to be undecided.
    """

    cumulative: tuple[int, ...]
    leading: NDArray[np.uint64]
    boundary: NDArray[np.uint64]

    @classmethod
    def from_weights(cls, weights: list[int]) -> _CellTable:
        total = sum(weights)
        cumulative, running = [], 0
        for weight in weights:
            running += weight
            cumulative.append((running << PRECISION) // total)
        largest = 2**64 - 1
        leading = np.array([min(c >> (PRECISION - 64), largest) for c in cumulative], np.uint64)
        # Nothing lies below cell 0, and a word in cell 0 is never the largest one.
        boundary = np.concatenate([np.array([largest], np.uint64), leading])
        return cls(tuple(cumulative), leading, boundary)

    def draw(self, bits: Bits, words: NDArray[np.uint64], force_exact: bool) -> Integers:
        """Return the cell of each uniform real that starts with the given word."""
        cells = np.searchsorted(self.leading, words, side="right")
        doubtful = np.arange(words.size) if force_exact else np.flatnonzero(self.boundary[cells] == words)
        for i in doubtful:
            refined = (int(words[i]) << (PRECISION - 64)) | bits.integer(PRECISION - 64)
            cells[i] = bisect_right(self.cumulative, refined)
        return cells.astype(np.int64, copy=False)


class _Family(ABC):
    """One of the two laws, split into a cell and the exponent that is left inside the cell."""

    @property
    @abstractmethod
    def table(self) -> _CellTable:
        """The law of the cell, the same for every scale."""

    @abstractmethod
    def exponent(self, cells: Integers, offsets: Integers, scale: int) -> Floats:
        """Exponents in floating point, with a relative error below ``2**-50``."""

    @abstractmethod
    def exact_exponent(self, cell: int, offset: int, scale: int) -> tuple[int, int]:
        """One exponent as numerator and denominator."""


class GaussianCells(_Family):
    """Cells of the discrete Gaussian law."""

    @property
    def table(self) -> _CellTable:
        return gaussian_table()

    def exponent(self, cells: Integers, offsets: Integers, scale: int) -> Floats:
        # U (2kW + U) / (2 s^2) = (U/s) (k/8 + U/s) / 2: four roundings, and no product above 2**53.
        fraction = offsets / scale
        exponents = np.multiply(cells, 2 / CELLS_PER_SCALE, dtype=np.float64)
        exponents += fraction
        exponents *= fraction
        exponents *= 0.5
        return exponents

    def exact_exponent(self, cell: int, offset: int, scale: int) -> tuple[int, int]:
        return offset * (2 * cell * (scale // CELLS_PER_SCALE) + offset), 2 * scale * scale


class _Laplace(_Family):
    @property
    def table(self) -> _CellTable:
        return _laplace_table()

    def exponent(self, cells: Integers, offsets: Integers, scale: int) -> Floats:
        exponents: Floats = np.true_divide(offsets, scale, dtype=np.float64)
        return exponents

    def exact_exponent(self, cell: int, offset: int, scale: int) -> tuple[int, int]:
        return offset, scale


_TABLE_BITS = PRECISION + 64
_TAIL_BITS = 48  # cells whose weight is below 2**(48 - 320) = 2**-272 are left out


@cache
def gaussian_table() -> _CellTable:
    """Return the cells of the discrete Gaussian law with their weights."""
    weights: list[int] = []
    while (weight := exp_neg(len(weights) ** 2, 2 * CELLS_PER_SCALE**2, _TABLE_BITS)) >> _TAIL_BITS:
        weights.append(weight)
    return _CellTable.from_weights(weights)


@cache
def _laplace_table() -> _CellTable:
    """Powers of ``exp(-1/16)``: 3,017 products, each off by at most 3 units more, of 64 spare bits."""
    guarded = _TABLE_BITS + 64
    ratio = exp_neg(1, CELLS_PER_SCALE, guarded)
    weights: list[int] = []
    power = 1 << guarded
    while (weight := power >> 64) >> _TAIL_BITS:
        weights.append(weight)
        power = power * ratio >> guarded
    return _CellTable.from_weights(weights)


def accept_proposals(
    bits: Bits,
    words: NDArray[np.uint64],
    family: _Family,
    cells: Integers,
    offsets: Integers,
    scale: int,
    force_exact: bool,
) -> Booleans:
    """Decide for each word whether the uniform real that starts with its 53 high bits is below exp(-x)."""
    digits = words >> np.uint64(64 - FLOAT_BITS)
    excess = digits * 2.0**-FLOAT_BITS - np.exp(-family.exponent(cells, offsets, scale))
    accepted: Booleans = excess < 0
    doubtful = np.arange(words.size) if force_exact else np.flatnonzero(np.abs(excess) <= FILTER_GAP)
    for i in doubtful:
        refined = (int(digits[i]) << (PRECISION - FLOAT_BITS)) | bits.integer(PRECISION - FLOAT_BITS)
        accepted[i] = refined < exp_neg(*family.exact_exponent(int(cells[i]), int(offsets[i]), scale))
    return accepted


def _draw(bits: Bits, family: _Family, scale: int, size: int, force_exact: bool) -> Integers:
    """Return ``size`` draws; a batch for ``n`` missing draws takes ``3 (int(1.05 n) + 8)`` words.

    The first third of a batch chooses cells, the second offsets; of a word of the last third, the 53 high
    bits accept and the lowest is the sign. Further words are read only for decisions that are still open.
    """
    width = scale // CELLS_PER_SCALE
    divisor = np.uint64(width)
    # Words at or above the largest multiple of the width would make small offsets more likely.
    last_fair = np.uint64(2**64 // width * width - 1)
    draws = np.empty(size, np.int64)
    filled = 0
    while filled < size:
        proposals = int((size - filled) * 1.05) + 8
        cell_words, offset_words, coin_words = bits.words(3 * proposals).reshape(3, proposals)
        cells = family.table.draw(bits, cell_words, force_exact)
        offsets = (offset_words - offset_words // divisor * divisor).astype(np.int64)
        values = cells * width
        values += offsets
        signs = 1 - 2 * (coin_words & np.uint64(1)).astype(np.int64)
        keep = accept_proposals(bits, coin_words, family, cells, offsets, scale, force_exact)
        keep &= offset_words <= last_fair
        keep &= (values != 0) | (signs > 0)
        kept = (values * signs)[keep][: size - filled]
        draws[filled : filled + kept.size] = kept
        filled += kept.size
    return draws


def discrete_gaussian(bits: Bits, scale: int, size: int, *, force_exact: bool = False) -> Integers:
    r"""Draw independent integers with :math:`P(z) \propto \exp(-z^2 / 2\sigma^2)`.

    Parameters
    ----------
    bits : Bits
        Where the random bits come from.
    scale : int
        The parameter sigma in lattice units: a multiple of 16 in ``[16, 2**52]``. See `lattice_scale`.
    size : int
        Number of draws, 0 or more.
    force_exact : bool, default=False
        Take every decision with 256-bit integers. Slow; the law is the same.

    Returns
    -------
    numpy.ndarray of int64
        The draws, each below ``20 * scale`` in absolute value.

    Privacy
    -------
    Adding such noise to a vector of integers that one row moves by ``D`` costs ``|D|^2 / (2 sigma^2)`` in
    zCDP, exactly as the continuous Gaussian (Canonne, Kamath & Steinke 2020). It is not exactly Gaussian-DP;
    for that currency choose the scale with `lattice_scale`. N draws add
    ``(1 + e^epsilon) N SAMPLER_ERROR`` to delta.

    Examples
    --------
    >>> from dpdescent.noise import Randomness
    >>> discrete_gaussian(Randomness(seed=0).stream("example", 0), 16, 3).shape
    (3,)
    """
    from .packed import LARGEST_WIDTH, MANY, packed_gaussian

    checked, count = require_scale(scale), require_size(size)
    if count >= MANY and checked // CELLS_PER_SCALE <= LARGEST_WIDTH and not force_exact:
        return packed_gaussian(bits, checked, count)
    return _draw(bits, GaussianCells(), checked, count, force_exact)


def discrete_laplace(bits: Bits, scale: int, size: int, *, force_exact: bool = False) -> Integers:
    r"""Draw independent integers with :math:`P(z) \propto \exp(-|z| / b)`.

    All is as for `discrete_gaussian`, but ``scale`` is the parameter b (`laplace_scale`), and the draws are below
    ``189 * scale`` in absolute value.

    Privacy
    -------
    Adding such noise to a vector of integers that one row moves by at most L in the L1 norm is
    ``(L / b)``-DP. N draws add ``(1 + e^epsilon) N SAMPLER_ERROR`` to delta.
    """
    return _draw(bits, _Laplace(), require_scale(scale), require_size(size), force_exact)
