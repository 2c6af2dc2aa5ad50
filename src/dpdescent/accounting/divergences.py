r"""Exact Renyi divergences of noise, and what is added to a result so that floating point never charges too little.

Each divergence takes an order a > 1 and returns :math:`D_a` in nats: of the noise distributions, and of the worst
cases they are compared with. It is written so that nothing cancels when the privacy parameter is small or the order
is close to 1: where nothing underflows, no result is below the true value by more than a relative 2^-47, and
`dpdescent.accounting.costs` adds twice that. None of them knows about data, mechanisms or budgets.

**Slack.** A floating-point operation has a relative error of at most u = 2^-53, and a library call of a few u. A
result that is put together from such numbers without cancellation is wrong by a multiple of u that can be counted,
and `above` multiplies it by more. There is one slack for each kind of formula, and each is more than what the count
gives:

=================  =========  =======================================================================================
slack              in u       what it covers
=================  =========  =======================================================================================
``FEW_ROUNDINGS``  8          a square, a quotient, a sum of two and a product with a count: 5 u
``CANCELLATION``   32         a sum of five terms of either sign, in units of the sum of their sizes: 10 u
``CLOSED_FORM``    128        a formula of this module: 64 u, mostly from exp(x) - 1 - x, which
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

References
----------
Bun, M. & Steinke, T. (2016). Concentrated differential privacy. arXiv:1605.02065.
Dong, J., Durfee, D. & Rogers, R. (2020). Optimal differential privacy composition for exponential mechanisms.
arXiv:1909.13830.
Mironov, I. (2017). Renyi differential privacy. arXiv:1702.07476.
"""

from __future__ import annotations

import math
from fractions import Fraction

from scipy.special import erfinv, ndtri_exp

from ..errors import require_nonnegative, require_order, require_positive

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


def gaussian_rdp(noise_multiplier: float, order: float) -> float:
    """Return D_a of N(1, s^2) from N(0, s^2): a/(2 s^2)."""
    noise_multiplier = require_positive("noise_multiplier", noise_multiplier)
    return require_order(order) / 2 / noise_multiplier / noise_multiplier


def pure_rdp(epsilon: float, order: float) -> float:
    r"""Return the largest D_a of any epsilon-DP mechanism, attained by randomised response.

    .. math:: D_a = \frac{1}{a-1} \log\frac{e^{a\varepsilon} + e^{(1-a)\varepsilon}}{1 + e^\varepsilon}
        = \frac{1}{a-1} \log\frac{\cosh((a - 1/2)\varepsilon)}{\cosh(\varepsilon/2)}
    """
    epsilon, order = require_nonnegative("epsilon", epsilon), require_order(order)
    rise = (order - 1) * epsilon
    if rise < 1:
        # cosh x - cosh y = 2 sinh((x+y)/2) sinh((x-y)/2) keeps the small difference exact; here it is divided
        # by cosh(epsilon/2), each with its leading exponential taken out.
        growth = math.expm1(rise) * -math.expm1(-order * epsilon) / (1 + math.exp(-epsilon))
        return math.log1p(growth) / (order - 1)
    return epsilon + (_log1p_exp((1 - 2 * order) * epsilon) - _log1p_exp(-epsilon)) / (order - 1)


def _log1p_exp(x: float) -> float:
    return math.log1p(math.exp(x))


def pure_zcdp(epsilon: float) -> float:
    r"""Return the least rho for which every epsilon-DP mechanism is rho-zCDP: epsilon tanh(epsilon/2).

    It is the Kullback-Leibler divergence of randomised response, so no smaller rho will do. It is enough:
    with t = a - 1/2 the claim :math:`D_a \le a \varepsilon \tanh(\varepsilon/2)` reads
    :math:`\log\cosh(t\varepsilon) - \log\cosh(\varepsilon/2) \le (t^2 - 1/4)\,\varepsilon\tanh(\varepsilon/2)`.
    Both sides vanish at t = 1/2, and the derivatives obey
    :math:`\varepsilon\tanh(t\varepsilon) \le 2t\,\varepsilon\tanh(\varepsilon/2)` for t >= 1/2 because
    tanh is concave on the positive axis, so tanh(t epsilon)/t decreases. It is below epsilon^2/2
    (Bun & Steinke 2016, Prop. 3.3).
    """
    epsilon = require_nonnegative("epsilon", epsilon)
    return epsilon * math.tanh(epsilon / 2)


def pure_mu(epsilon: float) -> float:
    """Return the least mu for which every epsilon-DP mechanism is mu-GDP: -2 Phi^-1(1/(1 + e^epsilon))."""
    epsilon = require_nonnegative("epsilon", epsilon)
    if epsilon > 1e300:
        return math.inf
    if epsilon < 1:
        mu = 2 * math.sqrt(2) * erfinv(math.tanh(epsilon / 2))
    else:
        mu = -2 * ndtri_exp(-epsilon - _log1p_exp(-epsilon))
    return float(mu) * (1 + 1e-14)


def laplace_rdp(epsilon: float, order: float, lattice_scale: float = math.inf) -> float:
    r"""Return D_a of Laplace noise of scale b = Delta/epsilon, shifted by Delta.

    .. math:: (a-1) D_a = \log\Big[\tfrac12\big(e^{(a-1)\varepsilon} + e^{-a\varepsilon}\big)
        + \frac{\kappa}{2(2a-1)}\big(e^{(a-1)\varepsilon} - e^{-a\varepsilon}\big)\Big]

    with kappa = 1 for continuous noise. On the integers, where b is ``lattice_scale``, the sum over the
    lattice is the trapezoid rule applied to three exponential pieces with corners on lattice points; the
    rule multiplies the integral of e^{cx} by (c/2) coth(c/2), the normaliser multiplies by 2b tanh(1/2b),
    and the two outer pieces come out unchanged, which leaves
    :math:`\kappa = 2b\tanh\frac{1}{2b}\cdot\frac c2\coth\frac c2`, c = (2a-1)/b. The discrete divergence
    is the larger one.
    """
    epsilon, order = require_nonnegative("epsilon", epsilon), require_order(order)
    rise, fall = (order - 1) * epsilon, -order * epsilon
    if rise > 600:
        # Only e^{(a-1) epsilon} is left; kappa/(2a - 1) is the ratio of two hyperbolic tangents.
        b = lattice_scale
        outer = (
            1 / (2 * order - 1) if math.isinf(b) else math.tanh(1 / (2 * b)) / math.tanh((2 * order - 1) / (2 * b))
        )
        return epsilon + (math.log1p(outer) - math.log(2)) / (order - 1)
    # The linear terms of the two exponentials cancel exactly, so only the curved parts are added.
    growth = (order * _curvature(rise) + (order - 1) * _curvature(fall)) / (2 * order - 1)
    if math.isfinite(lattice_scale):
        middle = math.exp(rise) * -math.expm1((1 - 2 * order) * epsilon) / (2 * (2 * order - 1))
        growth += _lattice_gain(order, require_positive("lattice_scale", lattice_scale)) * middle
    return min(epsilon, math.log1p(growth) / (order - 1))


def _curvature(x: float) -> float:
    """Return exp(x) - 1 - x without cancellation."""
    if abs(x) > 0.1:
        return math.expm1(x) - x
    total = 0.0
    for k in range(14, 1, -1):
        total = (total + 1) * x / k
    return total * x


# Coefficients of x^2, x^4, ... in log(x coth x).
_LOG_X_COTH_X = (
    1 / 3,
    -7 / 90,
    62 / 2835,
    -127 / 18900,
    146 / 66825,
    -1414477 / 1915538625,
    32764 / 127702575,
    -16931177 / 186080895000,
    11499383114 / 350813659321125,
)


def _lattice_gain(order: float, scale: float) -> float:
    r"""Return kappa - 1 of `laplace_rdp`, without cancellation at orders close to 1.

    With x = 1/2b and y = (2a - 1) x, :math:`\log\kappa = \log(y \coth y) - \log(x \coth x)`, a difference of two
    power series in which y^2k - x^2k = (y^2 - x^2) (y^(2k-2) + ... + x^(2k-2)), and y^2 - x^2 = 4 a (a - 1) x^2.
    The terms alternate and fall, so a sum that ends with a positive one is not too small. Lattices so coarse that y
    is large are not drawn on: there the rounding of kappa itself is added.
    """
    x = 1 / (2 * scale)
    y = (2 * order - 1) * x
    if y >= 0.25:
        kappa = (2 * order - 1) * math.tanh(x) / math.tanh(y)
        return max(0.0, kappa - 1) + 2e-15 * kappa
    total, quotient, power = 0.0, 0.0, 1.0
    for coefficient in _LOG_X_COTH_X:
        quotient = quotient * y * y + power
        power *= x * x
        total += coefficient * quotient
    return math.expm1(4 * order * (order - 1) * x * x * total)


def _log_sinhc(x: float) -> float:
    """Return log(sinh(x/2)/(x/2)), accurately for small and large x."""
    if x < 0.5:
        y = x * x / 4
        return math.log1p(y / 6 * (1 + y / 20 * (1 + y / 42 * (1 + y / 72 * (1 + y / 110)))))
    return x / 2 - math.log(x) + math.log1p(-math.exp(-x))


def bounded_range_rdp(epsilon: float, order: float) -> float:
    r"""Return the largest D_a of any mechanism whose log-likelihood ratio spans at most epsilon.

    The exponential mechanism is one. The worst case has two outcomes with log ratios t and t - epsilon;
    maximising over t in closed form gives, with :math:`\psi(x) = \log\frac{\sinh(x/2)}{x/2}`,

    .. math:: D_a = \psi(a\varepsilon) - \psi((a-1)\varepsilon)
        + \frac{\psi(a\varepsilon) - \psi(\varepsilon)}{a-1} \;\le\; a\varepsilon^2/8.
    """
    epsilon, order = require_nonnegative("epsilon", epsilon), require_order(order)
    if epsilon == 0:
        return 0.0
    if order * epsilon > 1e15:
        return epsilon
    whole = _log_sinhc(order * epsilon)
    divergence = whole - _log_sinhc((order - 1) * epsilon) + (whole - _log_sinhc(epsilon)) / (order - 1)
    # The differences cancel near order 1 and at large orders: add more than their rounding errors.
    rounding = 4e-15 * order * epsilon * min(1.0, 2 * order * epsilon) * order / (order - 1)
    return min(epsilon, order * epsilon * epsilon / 8, divergence + rounding)


def bounded_range_mu(epsilon: float) -> float:
    """Return mu for which an epsilon-bounded-range mechanism is mu-GDP: -2 Phi^-1(1/(1 + e^(epsilon/2)))."""
    return pure_mu(require_nonnegative("epsilon", epsilon) / 2)
