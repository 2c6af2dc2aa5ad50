r"""Probabilities that are exponentials, decided exactly: events, and the exponential mechanism.

A uniform real u is read digit by digit and compared with a threshold. Floating point settles the comparisons that are
not close, and integers of 256 bits or more (`exp_neg`) the others: the laws are those of the exact numbers.

**Events** (`accept`) of probability exp(-x), the acceptance test of rejection sampling. The first 53 bits of u decide
u < exp(-x) in floating point where the two are not close; otherwise exp(-x) is computed to 256 bits from the exact
rational x, and u gets as many digits. The total variation distance to the law is at most 2^-254 per event.

**The exponential mechanism** (`select`) over integer scores, by a certified inverse of its distribution function:

.. math:: P(i) \propto e^{-\eta s_i}, \qquad s_i \text{ integers},\ \eta \text{ an exact rational.}

The running sums of the weights are computed in floating point; a uniform real ``u`` points at one of them.
If ``u`` is farther from both ends of its cell than the certified error, the choice is the exact one;
otherwise all weights are computed again as 272-bit integers and ``u`` gets more digits.

**Lemma (certified error).** Let m be the number of scores, ``x_i = eta (s_i - min s)``, ``C_i`` the true
running sums of ``exp(-x_i)``, ``T`` the last of them, c and t their floating-point values and ``v = 2**-53``.
If numpy's ``exp`` has a relative error below ``2**-43``, then for every real u of [0, 1) that starts with
the 53 bits h, the computed ``h t`` and ``c_i`` differ from ``u T`` and ``C_i`` by less than
``(4 m + 2**13) v t`` together.

*Proof.* Score differences are exact in 64-bit arithmetic modulo ``2**64``, because they lie in
``[0, 2**64)``. Three roundings (difference, eta, product) put a relative error of 3.01 v on ``x_i`` (an eta
below the normal numbers an error below ``2**-1010``), hence at most ``3.01 * 708 v`` in absolute terms where
``x_i <= 708``, and the same relative error on the weight; ``exp`` adds ``2**10 v``. Where ``x_i > 708`` true
and computed weights are both below ``2**-1021``. Summing m positive numbers in any order adds a relative
error of at most ``1.01 m v``. So each of ``|c_i - C_i|`` and ``|t - T|`` is below ``(1.01 m + 3200) v T``;
the unread digits of u and the rounding of ``h t`` add ``2 v T``.
The sum of these is below ``(2.1 m + 6500) v t``. QED

The fast path therefore fails with probability below ``2 m (4 m + 2**13) 2**-53`` (``2**-34`` for 20 scores,
``2**-23`` for 10,000), and the exact one has total variation distance below ``2**-253`` to the law above: its
weights are off by two units of ``2**-272`` each, at most ``2**16`` of them, with a total of at least 1.
The time does not depend on the scores except on the slow path, which is why nothing is drawn by rejection.

References
----------
F. McSherry, K. Talwar, "Mechanism design via differential privacy", FOCS 2007.
J. Dong, D. Durfee, R. Rogers, "Optimal differential privacy composition for exponential mechanisms",
ICML 2020, arXiv:1909.13830.
"""

from __future__ import annotations

import operator
from bisect import bisect_right
from collections.abc import Callable, Sequence
from fractions import Fraction
from itertools import accumulate
from typing import SupportsIndex, overload

import numpy as np
from numpy.typing import NDArray

from ..arrays import Booleans, Floats, Integers
from ..errors import InvalidParameter, require_finite
from .bits import Bits

PRECISION = 256
FLOAT_BITS = 53
FILTER_GAP = 2.0**-42  # between a real and exp(-x), in which floating point does not decide
MAXIMUM_SCORES = 2**16

_CHOICE_BITS = 272
_LARGEST_EXPONENT = 708.0  # exp(-708) is the last power that is safely above the subnormal numbers


def exp_neg(numerator: int, denominator: int, precision: int = PRECISION) -> int:
    """Return ``exp(-numerator / denominator)`` in units of ``2**-precision``, with an error below 2 units.

    The numerator is at least 0, the denominator above 0.

    Notes
    -----
    With ``x = numerator / denominator``, halve ``s`` times until ``x / 2**s < 1/16``, sum the alternating
    series, and square ``s`` times, all in integers with ``g = precision + 2 s + 32`` bits. Each of the at
    most ``g/4 + 2`` terms, rounded down, is off by less than 1.1 units of ``2**-g``, and rounding ``x``
    itself costs one more. A squaring at most doubles an error (the values are at most 1) and adds one unit,
    so the result is off by at most ``2**s (g/3 + 5)`` units of ``2**-g``, far below one unit of
    ``2**-precision``; the final shift loses less than one more. Exponents above ``precision`` return 0, whose
    error is below ``exp(-precision) < 2**-precision``.

    Examples
    --------
    >>> round(exp_neg(1, 1) / 2**256, 12)
    0.367879441171
    """
    whole = numerator // denominator
    if whole >= precision:
        return 0
    halvings = whole.bit_length() + 4
    guarded = precision + 2 * halvings + 32
    reduced = (numerator << guarded) // (denominator << halvings)
    total = term = 1 << guarded
    order = 0
    while term:
        order += 1
        term = term * reduced // (order << guarded)
        total += -term if order % 2 else term
    for _ in range(halvings):
        total = total * total >> guarded
    return total >> (guarded - precision)


def accept(
    bits: Bits, exponents: Floats, errors: Floats, exact: Callable[[int], Fraction], *, force_exact: bool = False
) -> Booleans:
    """Return independent events, the i-th of probability exp(-x_i).

    Each takes one word of ``bits``, and more if that leaves the decision open. ``exponents`` are x in floating point,
    where negative ones count as 0, and ``errors`` bound their absolute errors; ``exact`` maps i to the exact x_i.
    ``force_exact`` takes every decision with 256-bit integers: slow, and the law is the same.
    """
    digits = bits.words(exponents.size) >> np.uint64(64 - FLOAT_BITS)
    uniforms = digits * 2.0**-FLOAT_BITS
    x = np.maximum(exponents, 0.0)
    heights = np.exp(-np.minimum(x, 745.0))
    # |exp(-a) - exp(-b)| <= |a - b| for positive numbers; numpy's exp and the unread digits are within the gap.
    close = np.abs(uniforms - heights) <= errors + FILTER_GAP
    events: Booleans = uniforms < heights
    for i in np.arange(exponents.size) if force_exact else np.flatnonzero(close):
        value = max(exact(int(i)), Fraction(0))
        fresh = PRECISION - FLOAT_BITS
        refined = (int(digits[i]) << fresh) | bits.integer(fresh)
        events[i] = refined < exp_neg(value.numerator, value.denominator)
    return events


@overload
def select(
    bits: Bits,
    scores: Sequence[int] | Integers,
    rate: float | Fraction,
    size: None = None,
    *,
    force_exact: bool = False,
) -> int: ...
@overload
def select(
    bits: Bits, scores: Sequence[int] | Integers, rate: float | Fraction, size: int, *, force_exact: bool = False
) -> Integers: ...
def select(
    bits: Bits,
    scores: Sequence[int] | Integers,
    rate: float | Fraction,
    size: int | None = None,
    *,
    force_exact: bool = False,
) -> int | Integers:
    r"""Choose an index with :math:`P(i) \propto \exp(-\mathrm{rate} \cdot s_i)`: small scores are likely.

    Parameters
    ----------
    bits : Bits
        Where the random bits come from. Each draw takes one word, and more if it leaves the decision open.
    scores : sequence of int or array of int64
        The scores on their lattice, 1 to ``2**16`` of them.
    rate : float or Fraction
        The positive rate eta, used without rounding. Round it down where it is computed.
    size : int or None, default=None
        None for one choice, otherwise the number of independent choices.
    force_exact : bool, default=False
        Take every decision with 272-bit integers. Slow; the law is the same.

    Returns
    -------
    int or numpy.ndarray of int64
        The chosen index, or ``size`` of them.

    Privacy
    -------
    If one row changes the scores by D, the log-likelihoods change within a range of
    ``rate * (max_i D_i - min_i D_i)``: that range is the cost in pure DP and range^2 / 8 the cost in zCDP
    (Dong, Durfee & Rogers 2020). Scores that all move the same way by at most Delta have range
    ``rate * Delta``, any others ``2 * rate * Delta``. Each choice adds at most ``(1 + e^epsilon) 2**-253`` to
    delta.

    Examples
    --------
    >>> from dpdescent.noise import Randomness
    >>> select(Randomness(seed=0).stream("example", 0), [40, 0, 40], rate=2.0)
    1
    """
    differences = _differences(scores)
    exact_rate = exact_rational("rate", rate)
    if exact_rate <= 0:
        raise InvalidParameter(f"rate must be greater than 0, got {rate}: pass minus the scores to prefer large ones")
    count = 1 if size is None else require_size(size)
    chosen = _choose(bits, differences, exact_rate, count, force_exact)
    return int(chosen[0]) if size is None else chosen


def _choose(bits: Bits, differences: NDArray[np.uint64], rate: Fraction, count: int, force_exact: bool) -> Integers:
    """Return ``count`` choices: by floating point where the lemma allows it, and else by exact running sums."""
    digits = bits.words(count) >> np.uint64(64 - FLOAT_BITS)
    # Above 1024 every difference but zero has a weight below 2**-1021, whatever the rate is.
    exponents = differences.astype(np.float64) * float(min(rate, Fraction(1024)))
    cumulative = np.cumsum(np.exp(-np.minimum(exponents, _LARGEST_EXPONENT)))
    total = cumulative[-1]
    ends = cumulative[:-1]
    position = digits * 2.0**-FLOAT_BITS * total
    chosen: Integers = np.searchsorted(ends, position, side="right").astype(np.int64)

    tolerance = (4 * differences.size + 2**13) * 2.0**-FLOAT_BITS * total
    # With infinite outer ends, cell i lies between fence[i] and fence[i + 1].
    fence = np.concatenate([[-np.inf], ends, [np.inf]])
    certain = (position - fence[chosen] > tolerance) & (fence[chosen + 1] - position > tolerance)
    doubtful = np.arange(count) if force_exact else np.flatnonzero(~certain)
    if doubtful.size:
        exact_ends = _exact_cumulative(differences, rate)
        for i in doubtful:
            fresh = _CHOICE_BITS - FLOAT_BITS
            refined = (int(digits[i]) << fresh) | bits.integer(fresh)
            chosen[i] = bisect_right(exact_ends, refined * exact_ends[-1] >> _CHOICE_BITS)
    return chosen


def _differences(scores: Sequence[int] | Integers) -> NDArray[np.uint64]:
    """Return ``scores - min(scores)``, which fits into 64 bits without a sign."""
    remedy = "pass a vector of int64 scores on their lattice"
    try:
        values = np.asarray(scores)
    except (OverflowError, ValueError):
        raise InvalidParameter(f"scores do not form a vector of 64-bit integers: {remedy}") from None
    if values.ndim != 1 or not 1 <= values.size <= MAXIMUM_SCORES:
        raise InvalidParameter(f"scores must be a vector of 1 to 2**16 numbers, got shape {values.shape}")
    if values.dtype.kind not in "iu" or (values.dtype.kind == "u" and int(values.max()) >= 2**63):
        raise InvalidParameter(f"scores must be integers below 2**63, got type {values.dtype}: {remedy}")
    words = values.astype(np.int64).view(np.uint64)
    differences: NDArray[np.uint64] = words - words[np.argmin(values)]
    return differences


def _exact_cumulative(differences: NDArray[np.uint64], rate: Fraction) -> list[int]:
    return list(accumulate(exp_neg(int(d) * rate.numerator, rate.denominator, _CHOICE_BITS) for d in differences))


def exact_rational(name: str, value: float | Fraction) -> Fraction:
    """Return ``value`` without rounding, or raise `InvalidParameter` if it is NaN, infinite or no number."""
    if isinstance(value, int | np.integer):
        return Fraction(int(value))
    return value if isinstance(value, Fraction) else Fraction(require_finite(name, value))


def require_size(size: SupportsIndex) -> int:
    """Return ``size`` as an int, or raise `InvalidParameter` unless it is a whole number of at least 0."""
    try:
        number = operator.index(size)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidParameter(f"size must be a whole number of at least 0, got {size!r}")
    return number
