r"""Events of probability exp(-x), decided exactly: the acceptance test of rejection sampling.

A uniform real u is read digit by digit. Its first 53 bits decide u < exp(-x) in floating point where the two are not
close; otherwise exp(-x) is computed to 256 bits from the exact rational x, and u gets as many digits. As in
`dpdescent.noise.lattice`, floating point is only a filter: the law is that of the exact numbers, up to a total
variation distance of 2^-254 per event.
"""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction

import numpy as np
from numpy.typing import NDArray

from .bits import Bits
from .lattice import PRECISION, exp_neg

__all__ = ["accept"]

_FLOAT_BITS = 53
_FILTER_GAP = 2.0**-42


def accept(
    bits: Bits,
    exponents: NDArray[np.float64],
    errors: NDArray[np.float64],
    exact: Callable[[int], Fraction],
    *,
    force_exact: bool = False,
) -> NDArray[np.bool_]:
    """Return independent events, the i-th of probability exp(-x_i).

    Parameters
    ----------
    bits : Bits
        One word per event, and more if it leaves the decision open.
    exponents, errors : ndarray of shape (m,)
        x in floating point, and an upper bound on its absolute error. A negative x counts as 0.
    exact : callable
        Maps i to the exact x_i.
    force_exact : bool
        Take every decision with 256-bit integers. Slow; the law is the same.
    """
    digits = bits.words(exponents.size) >> np.uint64(64 - _FLOAT_BITS)
    uniforms = digits * 2.0**-_FLOAT_BITS
    x = np.maximum(exponents, 0.0)
    heights = np.exp(-np.minimum(x, 745.0))
    # |exp(-a) - exp(-b)| <= |a - b| for positive numbers; numpy's exp and the unread digits are within the gap.
    close = np.abs(uniforms - heights) <= errors + _FILTER_GAP
    events: NDArray[np.bool_] = uniforms < heights
    for i in np.arange(exponents.size) if force_exact else np.flatnonzero(close):
        value = max(exact(int(i)), Fraction(0))
        fresh = PRECISION - _FLOAT_BITS
        refined = (int(digits[i]) << fresh) | bits.integer(fresh)
        events[i] = refined < exp_neg(value.numerator, value.denominator)
    return events
