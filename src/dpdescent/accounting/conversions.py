r"""Optimal conversions between (epsilon, delta) and the scalar budgets a filter can add up.

Every function is conservative in the last digit, at every order: an epsilon or a delta is never below the exact
value, a budget never above it, so that ``zcdp_to_epsilon(epsilon_to_zcdp(e, d), d) <= e`` holds in floating point.

zCDP and RDP
    A divergence bound :math:`D_a \le E` gives (epsilon, delta) with
    :math:`\varepsilon = E + \log(1 - 1/a) - (\log\delta + \log a)/(a - 1)`
    (Canonne, Kamath & Steinke 2020, Prop. 12). For rho-zCDP, E = a rho, and every a > 1 is valid, so the
    result is right for whichever a the search returns; the search only decides how tight it is.
GDP
    mu-GDP gives :math:`\delta(\varepsilon) = \Phi(\mu/2 - \varepsilon/\mu)
    - e^\varepsilon \Phi(-\mu/2 - \varepsilon/\mu)`, exactly (Balle & Wang 2018; Dong, Roth & Su 2022).

References
----------
Balle, B. & Wang, Y.-X. (2018). Improving the Gaussian mechanism for differential privacy. arXiv:1805.06530.
Canonne, C., Kamath, G. & Steinke, T. (2020). The discrete Gaussian for differential privacy. arXiv:2004.00010.
Dong, J., Roth, A. & Su, W. (2022). Gaussian differential privacy. arXiv:1905.02383.
Zhao, J. et al. (2019). Reviewing and improving the Gaussian mechanism for differential privacy. arXiv:1911.12060.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache

from scipy.optimize import brentq, minimize_scalar
from scipy.special import erfcx, ndtr

from ..errors import InvalidParameter, require_nonnegative, require_open_unit, require_order, require_positive
from .divergences import CANCELLATION, LOG_SUM

# log(a - 1) of the orders that are searched: from a - 1 = 1e-5 up to 1e26.
_LOG_ORDERS = (-12.0, 60.0)


def _least(function: Callable[[float], float]) -> float:
    """Return a near-minimiser of ``function`` of log(a - 1): a grid to find the valley, then Brent."""
    low, high = _LOG_ORDERS
    step = (high - low) / 144
    grid = [low + step * i for i in range(145)]
    centre = min(grid, key=function)
    window = (centre - step, centre + step)
    refined = minimize_scalar(function, bounds=window, method="bounded", options={"xatol": 1e-10}).x
    return float(min((centre, refined), key=function))


def _offset(log_excess: float, log_delta: float) -> float:
    """Return log(1 - 1/a) - (log delta + log a)/(a - 1) at a = 1 + exp(log_excess), without cancellation."""
    inverse = math.exp(-log_excess)
    return -math.log1p(inverse) - (log_delta + math.log1p(math.exp(log_excess))) * inverse


def _size(log_excess: float, log_delta: float) -> float:
    """Return the sum of the sizes of the terms of `_offset`, which may cancel to next to nothing."""
    inverse = math.exp(-log_excess)
    return math.log1p(inverse) + (abs(log_delta) + math.log1p(math.exp(log_excess))) * inverse


def _probability(log_delta: float) -> float:
    """Return exp(log_delta), at most 1, and above 0 where that underflows."""
    return min(1.0, math.exp(min(0.0, log_delta)) + 2 * math.ulp(0.0))


def rdp_to_epsilon(divergence: float, order: float, delta: float) -> float:
    """Return the epsilon that a Renyi divergence bound at one order gives at ``delta``."""
    order, delta = require_order(order), require_open_unit("delta", delta)
    offset, size = (term(math.log(order - 1), math.log(delta)) for term in (_offset, _size))
    epsilon = require_nonnegative("divergence", divergence) + offset
    return max(0.0, epsilon + max(LOG_SUM * (divergence + abs(offset)), CANCELLATION * (divergence + size)))


def epsilon_to_rdp(epsilon: float, delta: float, order: float) -> float:
    """Return the largest divergence at ``order`` that still gives (epsilon, delta).

    Raises `InvalidParameter` where even a divergence of zero does not: the order is then too small.
    """
    epsilon, delta, order = (
        require_positive("epsilon", epsilon),
        require_open_unit("delta", delta),
        require_order(order),
    )
    offset, size = (term(math.log(order - 1), math.log(delta)) for term in (_offset, _size))
    divergence = epsilon - offset
    divergence -= 2 * max(LOG_SUM * (epsilon + 2 * abs(offset)), CANCELLATION * (epsilon + 2 * size))
    if divergence <= 0:
        raise InvalidParameter(
            f"order {order:g} cannot certify epsilon={epsilon:g} at delta={delta:g}: "
            f"use a larger one, for instance best_order(epsilon, delta) = {best_order(epsilon, delta)}"
        )
    return divergence


def rdp_to_delta(divergence: float, order: float, epsilon: float) -> float:
    """Return the delta that a Renyi divergence bound at one order gives at ``epsilon``."""
    order = require_order(order)
    gap = require_nonnegative("divergence", divergence) - require_nonnegative("epsilon", epsilon)
    # log(1 - 1/a) through 1/(a - 1), which is exact at orders close to 1 where 1 - 1/a has lost its digits.
    exponent = (order - 1) * gap - order * math.log1p(1 / (order - 1)) - math.log(order - 1)
    return _probability(exponent + LOG_SUM * (1 + abs(exponent)))


def zcdp_to_epsilon(rho: float, delta: float) -> float:
    """Return the least epsilon at which rho-zCDP gives ``delta``."""
    rho, log_delta = require_nonnegative("rho", rho), math.log(require_open_unit("delta", delta))
    if rho == 0:
        return 0.0

    def epsilon(log_excess: float) -> float:
        return (1 + math.exp(log_excess)) * rho + _offset(log_excess, log_delta)

    log_excess = _least(epsilon)
    best, size = epsilon(log_excess), (1 + math.exp(log_excess)) * rho + _size(log_excess, log_delta)
    return max(0.0, best + max(LOG_SUM * abs(best), CANCELLATION * size))


def zcdp_to_delta(rho: float, epsilon: float) -> float:
    """Return the least delta at which rho-zCDP gives ``epsilon``."""
    rho, epsilon = require_nonnegative("rho", rho), require_nonnegative("epsilon", epsilon)
    if rho == 0:
        return 0.0

    def log_delta(log_excess: float) -> float:
        excess = math.exp(log_excess)
        return excess * ((1 + excess) * rho - epsilon) - log_excess - (1 + excess) * math.log1p(1 / excess)

    best = log_delta(_least(log_delta))
    return _probability(best + LOG_SUM * (1 + abs(best)))


@lru_cache(maxsize=256)
def epsilon_to_zcdp(epsilon: float, delta: float) -> float:
    """Return the largest rho for which rho-zCDP gives (epsilon, delta)."""
    epsilon, delta = require_positive("epsilon", epsilon), require_open_unit("delta", delta)
    rho = epsilon_to_zcdp_at(epsilon, delta, _zcdp_log_order(epsilon, delta))
    while zcdp_to_epsilon(rho, delta) > epsilon:
        rho *= 1 - LOG_SUM
    return rho


def epsilon_to_zcdp_at(epsilon: float, delta: float, log_excess: float) -> float:
    """Return the rho that the single order 1 + exp(log_excess) certifies."""
    return (epsilon - _offset(log_excess, math.log(delta))) / (1 + math.exp(log_excess))


def _zcdp_log_order(epsilon: float, delta: float) -> float:
    return _least(lambda log_excess: -epsilon_to_zcdp_at(epsilon, delta, log_excess))


def best_order(epsilon: float, delta: float) -> int:
    """Return the integer order at which a Gaussian run of (epsilon, delta) is accounted best.

    A rule of public quantities, so that an RDP filter can fix its one order before the run. Under
    sub-sampling the best order is somewhat smaller, but never far.
    """
    epsilon, delta = require_positive("epsilon", epsilon), require_open_unit("delta", delta)
    return max(2, round(1 + math.exp(min(_zcdp_log_order(epsilon, delta), 30.0))))


def _log_gdp_delta(mu: float, epsilon: float) -> float:
    """Return an upper bound, tight to rounding, on log delta(epsilon) of mu-GDP.

    With x = epsilon/mu -+ mu/2 the two normal tails share the factor exp(-x1^2/2), because
    x2^2 - x1^2 = 2 epsilon; taking it out leaves a difference of scaled complementary error functions
    that loses few digits where the textbook form loses most of them.
    """
    near, far = epsilon / mu - mu / 2, epsilon / mu + mu / 2
    if near > 1e150:
        return -math.inf
    if near < 0:
        tail = math.exp(-near * near / 2) * erfcx(far / math.sqrt(2)) / 2
        return math.log(ndtr(-near) - tail + 1e-15)
    first, second = erfcx(near / math.sqrt(2)), erfcx(far / math.sqrt(2))
    # ``near`` is itself a difference, wrong by up to an ulp of ``far``.
    difference = first - second + 1e-15 * (1 + far) / (1 + near) * (first + second)
    return float(math.log(difference / 2) - near / 2 * (near - 1e-15 * far))


def gdp_to_delta(mu: float, epsilon: float) -> float:
    """Return the least delta at which mu-GDP gives ``epsilon``."""
    mu, epsilon = require_nonnegative("mu", mu), require_nonnegative("epsilon", epsilon)
    if mu == 0:
        return 0.0
    return _probability(_log_gdp_delta(mu, epsilon))


def gdp_to_epsilon(mu: float, delta: float) -> float:
    """Return the least epsilon at which mu-GDP gives ``delta``."""
    mu, delta = require_nonnegative("mu", mu), require_open_unit("delta", delta)
    if mu == 0 or gdp_to_delta(mu, 0.0) <= delta:
        return 0.0
    target = math.log(delta)
    high = 1.0
    while _log_gdp_delta(mu, high) > target:
        high *= 2
    epsilon = float(brentq(lambda e: _log_gdp_delta(mu, e) - target, 0.0, high, xtol=1e-300, rtol=1e-14))
    while _log_gdp_delta(mu, epsilon) > target:
        epsilon *= 1 + LOG_SUM
    return epsilon


@lru_cache(maxsize=256)
def epsilon_to_gdp(epsilon: float, delta: float) -> float:
    """Return the largest mu for which mu-GDP gives (epsilon, delta)."""
    epsilon, delta = require_positive("epsilon", epsilon), require_open_unit("delta", delta)
    target = math.log(delta)
    low = high = 1.0
    while _log_gdp_delta(low, epsilon) > target:
        low /= 2
    while _log_gdp_delta(high, epsilon) < target:
        high *= 2
    mu = float(brentq(lambda m: _log_gdp_delta(m, epsilon) - target, low, high, xtol=1e-300, rtol=1e-14))
    while _log_gdp_delta(mu, epsilon) > target or gdp_to_epsilon(mu, delta) > epsilon:
        mu *= 1 - LOG_SUM
    return mu


def gaussian_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return the least noise, in units of the sensitivity, that makes ONE Gaussian release (epsilon, delta)."""
    return math.nextafter(1 / epsilon_to_gdp(epsilon, delta), math.inf)


def gaussian_tail_constant(delta: float) -> float:
    """Return c = sqrt(log(2/(sqrt(16 delta + 1) - 1))), for delta below 1/2 (Zhao et al. 2019)."""
    if require_open_unit("delta", delta) >= 0.5:
        raise InvalidParameter(f"delta must be below 1/2 for this formula, got {delta}: use the exact one")
    half = 8 * delta / (1 + math.sqrt(16 * delta + 1))  # (sqrt(16 delta + 1) - 1)/2, without cancellation
    return math.sqrt(-math.log(half))


def loose_noise_multiplier(epsilon: float, delta: float) -> float:
    """Return (c + sqrt(c^2 + epsilon))/(sqrt(2) epsilon): a closed form above `gaussian_noise_multiplier`.

    **Privacy** By 3% to 50% too much for any epsilon of use (Zhao et al. 2019). It is charged as the Gaussian
    mechanism that it is, so nothing rests on the formula.
    """
    constant = gaussian_tail_constant(delta)
    epsilon = require_positive("epsilon", epsilon)
    return (constant + math.sqrt(constant**2 + epsilon)) / (math.sqrt(2) * epsilon)


def loose_zcdp_budget(epsilon: float, delta: float) -> float:
    """Return the rho with epsilon = rho + 2 sqrt(rho log(1/delta)): a closed form below `epsilon_to_zcdp`.

    **Privacy** With the order a = (epsilon + rho)/(2 rho), which is above 1 since rho < epsilon, the exponent
    (a - 1)(a rho - epsilon) is -(epsilon - rho)^2/(4 rho) = log(delta) (Bun & Steinke 2016). The optimal conversion
    multiplies this delta by (1 - 1/a)^a/(a - 1), which is at most 1, and then takes the best order. So a run that
    stops at this rho keeps (epsilon, delta), and it is filtered and charged in zCDP all the same.
    """
    log, epsilon = -math.log(require_open_unit("delta", delta)), require_positive("epsilon", epsilon)
    return (epsilon / (math.sqrt(log + epsilon) + math.sqrt(log))) ** 2
