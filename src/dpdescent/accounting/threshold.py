r"""AboveThreshold: the cost of finding the first query above a noisy threshold.

The search tests queries one after another, ``q_j + noise >= threshold + noise``, and stops at the first yes, or
after ``max_queries``. Its Renyi divergence is bounded by a backward recursion over the queries:

.. math::

    V_0 = 1, \qquad
    V_j = \max_{t,\; e \in \{s - \Delta,\, s + \Delta\}}
          S(t - e)^a S(t)^{1-a} + F(t - e)^a F(t)^{1-a}\, V_{j-1},

.. math:: D_a \le \min_{0 \le s \le \Delta} \Big\{ D_a^{\mathrm{threshold}}(s) + \frac{\log V_k}{a - 1} \Big\}

where F and S = 1 - F are the distribution and survival functions of the query noise, and the first term is the
divergence of the threshold noise from itself shifted by s.

*Proof.* Couple the threshold z of one table with z - s of its neighbour. The map (x, y) -> x^a y^(1-a) is jointly
convex, so the moment of the mixture over z is at most the mixture of moments,
:math:`\int p(z-s)^a p(z)^{1-a} \sum_j P_{z-s}(j)^a Q_z(j)^{1-a}\,dz`. Given z the answers are independent, and
the inner sum is A_1 + B_1(A_2 + B_2(... + 1)) with A and B the two terms of the recursion at t = z - q' and
e = s + (q - q'). A and B are non-negative, so maximise from the last query backwards; in u = S(t - e) the bracket
is convex, so e sits at an end of its interval. Adaptive queries gain nothing: until the stop every answer was
"below". QED

The recursion is exact where there is no threshold noise. Two other bounds are valid for Laplace noise and win
when epsilon is large: pure DP through randomised response, and the threshold's divergence plus twice the epsilon
of the query noise (Zhu & Wang 2020). For Gaussian noise, releasing every noisy query is the fall-back. The
cost is the least of them.

References
----------
Dwork, C. & Roth, A. (2014). The algorithmic foundations of differential privacy, section 3.6.
Lyu, M., Su, D. & Li, N. (2017). Understanding the sparse vector technique. arXiv:1603.01699.
Zhu, Y. & Wang, Y.-X. (2020). Improving sparse vector technique with Renyi differential privacy. NeurIPS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import ClassVar, Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_ndtr

from ..errors import InvalidParameter, require_nonnegative, require_order, require_positive_integer
from .costs import Cost, PureDP, round_up_product
from .divergences import gaussian_rdp, laplace_rdp

__all__ = ["AboveThreshold", "bellman_bound", "threshold_lattice_bits"]

NoiseName = Literal["laplace", "gaussian"]
Vector = NDArray[np.float64]

_MARGIN = 1e-6  # relative; the refined maximum misses less than a tenth of it
_SCALES = (2.0**-10, 2.0**40)
_HUGE = 5000.0
_SUMMITS = 3


def threshold_lattice_bits(threshold_scale: float, query_scale: float) -> int:
    """Return b such that normalised queries live on 2^-b: thirty, or fewer where the noise would not fit.

    The exact sampler takes scales up to 2^52, so noise wider than 2^20 sensitivities needs a coarser lattice.
    """
    return min(30, 50 - math.frexp(max(threshold_scale, query_scale))[1])


def _log_tails(noise: NoiseName, scale: float, x: Vector) -> tuple[Vector, Vector]:
    """Return log F(x) and log S(x) of the query noise."""
    if noise == "gaussian":
        return log_ndtr(x / scale), log_ndtr(-x / scale)
    small = -np.abs(x) / scale - math.log(2)
    large = np.log1p(-np.exp(small))
    return np.where(x < 0, small, large), np.where(x < 0, large, small)


def _brackets(order: float, noise: NoiseName, scale: float, shift: Vector, t: Vector) -> tuple[Vector, Vector]:
    """Return log A and log B at every t, for the shift e of each row."""
    below, above = _log_tails(noise, scale, t)
    below_shifted, above_shifted = _log_tails(noise, scale, t - shift)
    return order * above_shifted + (1 - order) * above, order * below_shifted + (1 - order) * below


def _search_grid(order: float, noise: NoiseName, scale: float, shifts: tuple[float, float]) -> Vector:
    """Return one row of candidate t for each shift e.

    Laplace: between the kinks 0 and e. Left of both, F and F' are proportional, the bracket is a convex function
    of F, and its maximum sits at an end: at infinity, where it tends to 1, or at a kink; likewise on the right,
    where it tends to V. Gaussian: fine where the noise lives, then geometric out to where a large order moves
    the optimum, near t = order * e.
    """
    if noise == "laplace":
        points = 129 + min(4096, int(16 * max(map(abs, shifts)) / scale))
        return np.stack([np.linspace(0.0, e, points) for e in shifts])
    reach = 12 * scale + 2
    extent = reach + 2 * order * max(map(abs, shifts))
    outer = reach * np.geomspace(1.02, max(1.05, extent / reach), 65)
    return np.stack([np.concatenate([-outer[::-1], np.linspace(-reach, reach, 257), outer])] * 2)


def _log_value(
    order: float, queries: int, noise: NoiseName, scale: float, shifts: tuple[float, float], refine: bool
) -> float:
    """Return log V_k; without ``refine`` slightly too small, for choosing s only."""
    grid = _search_grid(order, noise, scale, shifts)
    shift = np.array(shifts)[:, None]
    log_a, log_b = _brackets(order, noise, scale, shift, grid)
    value = 0.0
    for step in range(queries):
        heights = np.logaddexp(log_a, log_b + value)
        peak = max(value, float(heights.max()))
        if refine:
            peak = max(peak, _refined_peak(order, noise, scale, shift, grid, heights, value))
        gain = peak - value
        value = peak
        # log V is a convex function of the previous log V with slope at most one, so gains never grow.
        left = queries - step - 1
        if gain * left <= 1e-9 * value:
            return value + gain * left
        if value > _HUGE:
            return math.inf
    return value


def _refined_peak(
    order: float, noise: NoiseName, scale: float, shift: Vector, grid: Vector, heights: Vector, value: float
) -> float:
    """Return the maximum over t near the highest local maxima of each row, by repeated zooming.

    All of them, because the bracket tends to V at infinity: on a coarse grid that plateau can look higher than
    a narrow peak that in truth exceeds it.
    """
    inner = heights[:, 1:-1]
    summit = (inner > heights[:, :-2]) & (inner >= heights[:, 2:])
    best = 1 + np.argsort(np.where(summit, inner, -np.inf), axis=1)[:, -_SUMMITS:]
    low, high = (np.take_along_axis(grid, best + side, 1)[..., None] for side in (-1, 1))
    shift = shift[..., None]
    steps = np.linspace(0.0, 1.0, 17)
    peak = -math.inf
    while True:
        t = low + (high - low) * steps
        log_a, log_b = _brackets(order, noise, scale, shift, t)
        zoomed = np.logaddexp(log_a, log_b + value)
        peak = max(peak, float(zoomed.max()))
        if float(np.abs(high - low).max()) <= 0.02 * scale:
            return peak
        best = zoomed.argmax(axis=-1)[..., None]
        low = np.take_along_axis(t, np.maximum(best - 1, 0), -1)
        high = np.take_along_axis(t, np.minimum(best + 1, 16), -1)


def _threshold_divergence(order: float, noise: NoiseName, scale: float, shift: float, bits: int = 30) -> float:
    if shift == 0:
        return 0.0
    if scale == 0:
        return math.inf
    if noise == "gaussian":
        return gaussian_rdp(scale / shift, order)
    return laplace_rdp(shift / scale, order, scale * 2.0**bits)


def _lattice_excess(order: float, queries: int, noise: NoiseName, scale: float, bits: int) -> float:
    """Return what drawing the noise on integers can add to log V_k.

    If both discrete tails lie within factors 1 - h and 1 + h of the continuous ones half a step away, each
    query adds at most a log(1 + h) - (a - 1) log(1 - h). For Laplace noise h = 1/(8 b^2); for Gaussian noise
    the ratio of a cell's integral to its midpoint value gives h within L standard deviations, and beyond them
    nothing can be gained.
    """
    lattice = scale * 2.0**bits
    if noise == "laplace":
        h = 1 / (8 * lattice**2)
    else:
        reach = max(8 * order / scale, math.sqrt(8 * order * math.log(3 * lattice) + 400))
        h = (reach**2 / 6 + 1 / 23) / lattice**2
    if h >= 0.5:
        return math.inf
    return queries * (order * math.log1p(h) - (order - 1) * math.log1p(-h) + 1e-40)


def bellman_bound(
    order: float,
    max_queries: int,
    noise: NoiseName,
    threshold_scale: float,
    query_scale: float,
    shift: float | None = None,
    differences: tuple[float, float] = (-1.0, 1.0),
) -> float:
    """Return the recursion's bound on the Renyi divergence, for a sensitivity of one.

    Parameters
    ----------
    order : float
        Renyi order a > 1.
    max_queries : int
        Queries tested at most.
    noise : {"laplace", "gaussian"}
        Both noises; the scales are b or the standard deviation.
    threshold_scale, query_scale : float
        In units of the sensitivity; ``threshold_scale`` may be 0.
    shift : float, optional
        The coupling s in [0, 1]. By default the best one found; every value is valid.
    differences : (float, float)
        Interval of q - q'. Monotone queries have (0, 1) or (-1, 0).
    """
    low, high = differences
    bits = threshold_lattice_bits(threshold_scale, query_scale)

    def bound(s: float, refine: bool) -> float:
        log_value = _log_value(order, max_queries, noise, query_scale, (s + low, s + high), refine)
        return _threshold_divergence(order, noise, threshold_scale, s, bits) + log_value / (order - 1)

    if shift is None:
        shift = 0.0 if threshold_scale == 0 else _least_on_unit_interval(lambda s: bound(s, False))
    excess = _lattice_excess(order, max_queries, noise, query_scale, bits) / (order - 1)
    return bound(shift, True) * (1 + _MARGIN) + excess


def _least_on_unit_interval(function: Callable[[float], float]) -> float:
    """Return a good argument in [0, 1]: a coarse scan, then a few halvings around the best point."""
    step = 0.25
    values = {x: function(x) for x in (0.0, 0.25, 0.5, 0.75, 1.0)}
    for _ in range(3):
        best = min(values, key=values.__getitem__)
        step /= 2
        for x in (best - step, best + step):
            if 0 <= x <= 1 and x not in values:
                values[x] = function(x)
    return min(values, key=values.__getitem__)


@dataclass(frozen=True)
class AboveThreshold(Cost):
    """One search for the first of at most ``max_queries`` queries above a threshold.

    Parameters
    ----------
    max_queries : int
        Queries tested at most; the answer is the index of the first yes, or none.
    query_scale, threshold_scale : float
        Noise scales (b for Laplace, standard deviation for Gaussian) in units of each query's own sensitivity.
        Dividing a query by its sensitivity changes nothing where the threshold is zero, so queries of different
        sensitivity share one search and the less sensitive ones get less noise.
    noise : {"laplace", "gaussian"}
    monotone : bool
        Whether one row moves all queries the same way. False for line searches: the change of a row's loss
        turns its sign with the step size.

    Notes
    -----
    **Privacy** Renyi: the recursion of this module. Pure DP (Laplace only): 1/b1 + 2/b2, or 1/b1 + 1/b2 for
    monotone queries, or k/b2 (Lyu, Su & Li 2017). GDP: through pure DP, or k/sigma^2 for Gaussian noise (all
    noisy queries released). zCDP: the least rho with D_a <= a rho at *every* order, see `zcdp`.
    """

    kind: ClassVar[str] = "above-threshold"
    max_queries: int
    query_scale: float
    threshold_scale: float
    noise: NoiseName = "laplace"
    monotone: bool = False

    def __post_init__(self) -> None:
        require_positive_integer("max_queries", self.max_queries)
        low, high = _SCALES
        for name in ("query_scale", "threshold_scale"):
            value = require_nonnegative(name, getattr(self, name))
            if not low <= value <= high and not (name == "threshold_scale" and value == 0):
                raise InvalidParameter(
                    f"{name} must lie between 2^-10 and 2^40 sensitivities, got {value}: "
                    "below, the search is not private in any useful sense; above, it is pure noise"
                )
        if self.noise not in ("laplace", "gaussian"):
            raise InvalidParameter(f"noise must be 'laplace' or 'gaussian', got {self.noise!r}")

    @property
    def lattice_bits(self) -> int:
        """The b of the lattice 2^-b on which the noise of this search is drawn."""
        return threshold_lattice_bits(self.threshold_scale, self.query_scale)

    def rdp(self, order: float) -> float:
        return _rdp(self, require_order(order))

    def pure(self) -> float:
        if self.noise == "gaussian":
            return math.inf
        all_released = round_up_product(self.max_queries, 1 / self.query_scale)
        if self.threshold_scale == 0:
            return all_released
        per_query = 1 if self.monotone else 2
        return min(all_released, round_up_product(1, 1 / self.threshold_scale + per_query / self.query_scale))

    def mu_squared(self) -> float:
        if self.noise == "gaussian":
            return round_up_product(self.max_queries, 1 / self.query_scale**2)
        return PureDP(self.pure()).mu_squared()

    def zcdp(self) -> float:
        """Return rho with D_a <= a rho for all a > 1.

        (a - 1) D_a is convex in a, so between two orders it lies below the chord of the bounds at its ends; the
        largest chord over a(a - 1) is found on a geometric grid of orders. Below the grid D_a is at most its
        first value. Above it, Laplace noise has D_a <= epsilon, and Gaussian noise, taking s = 1, has
        V_k <= 1 + k exp(2a(a-1)/sigma_2^2), hence D_a/a <= 1/(2 sigma_1^2) + 2/sigma_2^2 + log(1+k)/(a(a-1)).
        """
        return _zcdp(self)


@lru_cache(maxsize=4096)
def _rdp(cost: AboveThreshold, order: float) -> float:
    intervals = [(0.0, 1.0), (-1.0, 0.0)] if cost.monotone else [(-1.0, 1.0)]
    bounds = [
        max(
            bellman_bound(
                order,
                cost.max_queries,
                cost.noise,
                cost.threshold_scale,
                cost.query_scale,
                differences=interval,
            )
            for interval in intervals
        )
    ]
    if cost.noise == "gaussian":
        bounds.append(cost.max_queries * gaussian_rdp(cost.query_scale, order) * (1 + 1e-12))
    else:
        bounds.append(PureDP(cost.pure()).rdp(order))
        threshold = _threshold_divergence(order, cost.noise, cost.threshold_scale, 1.0, cost.lattice_bits)
        bounds.append((threshold + (1 if cost.monotone else 2) / cost.query_scale) * (1 + 1e-12))
    return min(bounds)


@lru_cache(maxsize=256)
def _zcdp(cost: AboveThreshold) -> float:
    laplace = cost.noise == "laplace"
    if laplace:
        fallback = PureDP(cost.pure()).zcdp()
    else:
        fallback = round_up_product(cost.max_queries, 1 / (2 * cost.query_scale**2))
        if cost.threshold_scale == 0:
            return fallback
        slope = (1 / (2 * cost.threshold_scale**2) + 2 / cost.query_scale**2) * (1 + 1e-12)
    excess, ratio = 0.01, 1.2
    order = 1 + excess
    divergence = cost.rdp(order)
    rho = divergence
    while True:
        tail = cost.pure() / order if laplace else slope + math.log1p(cost.max_queries) / (order * (order - 1))
        if tail <= rho or (not laplace and tail <= slope * 1.001):
            return min(fallback, max(rho, tail))
        excess *= ratio
        following = 1 + excess
        next_divergence = cost.rdp(following)
        rho = max(rho, _largest_chord(order, divergence, following, next_divergence))
        if rho >= fallback:
            return fallback
        order, divergence = following, next_divergence


def _largest_chord(low: float, divergence_low: float, high: float, divergence_high: float) -> float:
    """Return the maximum over [low, high] of chord(a)/(a (a - 1)), the chord being that of (a - 1) D_a.

    With chord(a) = c + m (a - 1) and x = a - 1 the ratio is (c/x + m)/(1 + x), which is convex where c >= 0 and
    has at most one inner extremum elsewhere; the stationary points solve m x^2 + 2 c x + c = 0.
    """
    x, y = low - 1, high - 1
    slope = (y * divergence_high - x * divergence_low) / (y - x)
    constant = x * divergence_low - slope * x
    candidates = [x, y]
    discriminant = constant * constant - slope * constant
    if discriminant >= 0 and slope != 0:
        roots = [(-constant + sign * math.sqrt(discriminant)) / slope for sign in (-1, 1)]
        candidates += [root for root in roots if x < root < y]
    return max((constant + slope * z) / (z * (1 + z)) for z in candidates) * (1 + 1e-12)
