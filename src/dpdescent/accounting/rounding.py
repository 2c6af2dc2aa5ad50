r"""What is added to a result so that floating point never charges too little.

A floating-point operation has a relative error of at most u = 2^-53, and a library call of a few u. A result that is
put together from such numbers without cancellation is wrong by a multiple of u that can be counted, and `above`
multiplies it by more. There is one slack for each kind of formula, and each is more than what the count gives:

=================  =========  =======================================================================================
slack              in u       what it covers
=================  =========  =======================================================================================
``FEW_ROUNDINGS``  8          a square, a quotient, a sum of two and a product with a count: 5 u
``CANCELLATION``   32         a sum of five terms of either sign, in units of the sum of their sizes: 10 u
``CLOSED_FORM``    128        a formula of `dpdescent.accounting.divergences`: 64 u, mostly from exp(x) - 1 - x, which
                              loses a factor of 20 at x = 0.1, where its series takes over
``LOG_SUM``        9,007      the logarithm of a sum of up to 100,000 exponentials in numpy's pairwise order, once the
                              logarithms of its terms were raised by their own errors: 40 u; and conversions, in
                              units of their exponents: 10 u
``PROFILE``        8,192      the arguments and the sum of several Gaussian profiles, each an upper bound: 10 u
``CONVOLUTION``    9,007,199  weights that come from k convolutions of 65 terms: 66 k u, k being at most 100,000,
                              where the convolutions would take days
=================  =========  =======================================================================================

Fifty-digit arithmetic finds no result below the exact one (``tests/accounting/test_orders.py``). ``LOG_SUM`` and
``PROFILE`` are nearly equal, and less than either would do for both; they stay apart so that prices keep their last
digits.

``UNDERFLOW`` is added as well: products below 2^-1022 lose digits, or all of them, and a division by an order less 1,
which is no less than 2^-52, makes of that less than 2^-1018.
"""

from __future__ import annotations

import math
from fractions import Fraction

__all__ = [
    "CANCELLATION",
    "CLOSED_FORM",
    "CONVOLUTION",
    "FEW_ROUNDINGS",
    "LOG_SUM",
    "PROFILE",
    "UNDERFLOW",
    "above",
    "below",
    "round_up",
]

FEW_ROUNDINGS = 2.0**-50
CANCELLATION = 2.0**-48
CLOSED_FORM = 2.0**-46
LOG_SUM = 1e-12
PROFILE = 2.0**-40
CONVOLUTION = 1e-9
UNDERFLOW = 2.0**-1000


def above(value: float, slack: float) -> float:
    """Return a little more than ``value``: by the relative ``slack``, and by what underflow may have taken."""
    return value * (1 + slack) + UNDERFLOW


def below(value: float, slack: float) -> float:
    """Return a little less than ``value``, by the relative ``slack``."""
    return value / (1 + slack)


def round_up(value: Fraction) -> float:
    """Return the least float that is not below ``value``."""
    try:
        nearest = float(value)
    except OverflowError:
        return math.inf
    return nearest if Fraction(nearest) >= value else math.nextafter(nearest, math.inf)
