r"""The recursion that bounds the Renyi divergence of AboveThreshold.

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

The recursion is exact where there is no threshold noise.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from scipy.special import log_ndtr

from ..arrays import Booleans, Floats
from .divergences import gaussian_rdp, laplace_rdp

NoiseName = Literal["laplace", "gaussian"]

_MARGIN = 1e-6  # relative; the refined maximum misses less than a tenth of it
_HUGE = 5000.0
_SUMMITS = 3
_CLOSE_TO_ONE = 1.01  # orders at which the plain difference below would lose more than two digits


def threshold_lattice_bits(threshold_scale: float, query_scale: float) -> int:
    """Return b such that normalised queries live on 2^-b: thirty, or fewer where the noise would not fit.

    The exact sampler takes scales up to 2^52, so noise wider than 2^20 sensitivities needs a coarser lattice.
    """
    return min(30, 50 - math.frexp(max(threshold_scale, query_scale))[1])


@dataclass(frozen=True)
class _Brackets:
    """The two terms of the recursion at every t, for the shift e of each row."""

    log_a: Floats
    log_b: Floats
    excess: Floats | None  # A + B - 1, which keeps its digits where the noise is so wide that A + B rounds to 1

    def log_value(self, previous: float) -> Floats:
        """Return log(A + B V) where log V is ``previous``."""
        plain = np.logaddexp(self.log_a, self.log_b + previous)
        if self.excess is None or previous >= 0.1:
            return plain
        growth = self.excess + np.exp(np.minimum(self.log_b, 1.0)) * math.expm1(previous)
        return np.where(plain < 0.1, np.log1p(np.maximum(growth, 0.0)), plain)


def _log_tails(noise: NoiseName, x: Floats) -> tuple[Floats, Floats]:
    """Return log F(x) and log S(x) of the query noise of scale one."""
    if noise == "gaussian":
        return log_ndtr(x), log_ndtr(-x)
    small = -np.abs(x) - math.log(2)
    large = np.log1p(-np.exp(small))
    return np.where(x < 0, small, large), np.where(x < 0, large, small)


def _mass_between(noise: NoiseName, x: Floats, h: Floats) -> tuple[Floats, Booleans]:
    """Return F(x) - F(x - h) for small h without cancellation, and where it is to be trusted.

    Laplace: wherever 0 lies between x - h and x, as on its search grid.
    """
    if noise == "laplace":
        near = -np.sign(x) * np.expm1(-np.abs(x)) + np.sign(x - h) * np.expm1(-np.abs(x - h))
        return near / 2, np.broadcast_to(np.abs(h) < 0.5, x.shape)
    trusted = (np.abs(h) < 0.05) & (np.abs(x) < 14)
    middle = np.where(trusted, x - h / 2, 0.0)
    m, hh = middle * middle, np.where(trusted, h * h, 0.0)
    series = 1 + hh / 24 * (m - 1 + hh / 80 * (m * m - 6 * m + 3 + hh / 168 * (m**3 - 15 * m * m + 45 * m - 15)))
    return h * np.exp(-m / 2) / math.sqrt(2 * math.pi) * series, trusted


def _curved(log_weight: Floats, y: Floats) -> Floats:
    """Return w (e^y - 1 - y) without cancellation or overflow."""
    weight = np.exp(log_weight)
    inner = np.clip(y, -0.5, 0.5)
    series = np.zeros_like(inner)
    for k in range(15, 1, -1):
        series = (series + 1) * inner / k
    return np.where(
        np.abs(y) < 0.5, weight * series * inner, np.exp(np.minimum(log_weight + y, 700.0)) - weight * (1 + y)
    )


def _excess_near_one(step: float, log_weight: Floats, ratio: Floats) -> Floats:
    """Return w (e^(a r) - 1 - a (e^r - 1)) for a = 1 + step as a sum of positive terms.

    It is w e^r {(e^(h r) - 1 - h r) + h (e^-r - 1 + r)} with h = step: nothing cancels, however small h is.
    """
    shifted = log_weight + ratio
    return _curved(shifted, step * ratio) + step * _curved(shifted, -ratio)


def _brackets(order: float, noise: NoiseName, scale: float, shift: Floats, t: Floats, precise: bool) -> _Brackets:
    """Return the terms of the recursion at every t, for the shift e of each row.

    They are plain powers of the tails unless ``precise``, which is slower and for wide noise: with
    r = log S(t - e) - log S(t), A = S e^(a r), and likewise B. The ratios come from the mass between t - e and t
    where that is small. In A + B - 1 the terms linear in the ratios of the tails cancel exactly, because
    S + F = 1, so only the curved parts are added.
    """
    x, h = t / scale, shift / scale
    log_f, log_s = _log_tails(noise, x)
    shifted_f, shifted_s = _log_tails(noise, x - h)
    if not precise:
        return _Brackets(order * shifted_s + (1 - order) * log_s, order * shifted_f + (1 - order) * log_f, None)
    mass, trusted = _mass_between(noise, x, h)
    mass = np.where(trusted, mass, 0.0)
    ratio_f = np.where(trusted, np.log1p(-mass * np.exp(np.where(trusted, -log_f, 0.0))), shifted_f - log_f)
    ratio_s = np.where(trusted, np.log1p(mass * np.exp(np.where(trusted, -log_s, 0.0))), shifted_s - log_s)
    if order < _CLOSE_TO_ONE:
        excess = _excess_near_one(order - 1, log_s, ratio_s) + _excess_near_one(order - 1, log_f, ratio_f)
    else:
        curved = _curved(log_s, order * ratio_s) + _curved(log_f, order * ratio_f)
        excess = curved - order * (_curved(log_s, ratio_s) + _curved(log_f, ratio_f))
    return _Brackets(log_s + order * ratio_s, log_f + order * ratio_f, excess)


def _search_grid(order: float, noise: NoiseName, scale: float, shifts: tuple[float, float]) -> Floats:
    """Return one row of candidate t for each shift e.

    Laplace: between the kinks 0 and e. Left of both, F and F' are proportional, the bracket is a convex function
    of F, and its maximum sits at an end: at infinity, where it tends to 1, or at a kink; likewise on the right,
    where it tends to V. Gaussian: fine where the noise lives, a quarter of its scale at most, then geometric out
    to where a large order moves the optimum, near t = order * e.
    """
    if noise == "laplace":
        points = 129 + min(4096, int(16 * max(map(abs, shifts)) / scale))
        return np.stack([np.linspace(0.0, e, points) for e in shifts])
    reach = 12 * scale + 2
    extent = reach + 2 * order * max(map(abs, shifts))
    outer = reach * np.geomspace(1.02, max(1.05, extent / reach), 65)
    return np.stack([np.concatenate([-outer[::-1], np.linspace(-reach, reach, 257 + int(16 / scale)), outer])] * 2)


def _log_value(
    order: float, queries: int, noise: NoiseName, scale: float, shifts: tuple[float, float], refine: bool
) -> float:
    """Return log V_k; without ``refine`` slightly too small, for choosing s only."""
    grid = _search_grid(order, noise, scale, shifts)
    shift = np.array(shifts)[:, None]
    brackets = _brackets(order, noise, scale, shift, grid, precise=False)
    # Plain powers are wrong by some order * 1e-16: nothing beside a first step that is larger than this.
    precise = float(brackets.log_value(0.0).max()) < 1e-7 * max(order, 100.0)
    if precise:
        brackets = _brackets(order, noise, scale, shift, grid, precise=True)
    value, done = 0.0, 0
    while done < queries:
        heights = brackets.log_value(value)
        peak = max(value, float(heights.max()))
        if refine:
            peak = max(peak, _refined_peak(order, noise, scale, shift, grid, heights, value, precise))
        # log V is a convex function of the previous log V with slope at most one, so gains never grow: one gain
        # stands for all that are left where they hardly matter, and for every 64th of a long search.
        gain, left = peak - value, queries - done
        steps = left if gain * left <= 1e-9 * peak else min(left, 1 + done // 64)
        value, done = value + gain * steps, done + steps
        if value > _HUGE:
            return math.inf
    return value


def _refined_peak(
    order: float,
    noise: NoiseName,
    scale: float,
    shift: Floats,
    grid: Floats,
    heights: Floats,
    value: float,
    precise: bool,
) -> float:
    """Return the maximum over t near the highest local maxima of each row, by repeated zooming.

    All of them, because the bracket tends to V at infinity: on a coarse grid that plateau can look higher than
    a narrow peak that in truth exceeds it.
    """
    padded = np.pad(heights, ((0, 0), (1, 1)), constant_values=-np.inf)
    summit = (heights > padded[:, :-2]) & (heights >= padded[:, 2:])
    best = np.argsort(np.where(summit, heights, -np.inf), axis=1)[:, -_SUMMITS:]
    last = grid.shape[1] - 1
    low, high = (np.take_along_axis(grid, np.clip(best + side, 0, last), 1)[..., None] for side in (-1, 1))
    shift = shift[..., None]
    steps = np.linspace(0.0, 1.0, 17)
    peak = -math.inf
    while True:
        t = low + (high - low) * steps
        zoomed = _brackets(order, noise, scale, shift, t, precise).log_value(value)
        peak = max(peak, float(zoomed.max()))
        if float(np.abs(high - low).max()) <= 0.02 * scale:
            return peak
        best = zoomed.argmax(axis=-1)[..., None]
        low = np.take_along_axis(t, np.maximum(best - 1, 0), -1)
        high = np.take_along_axis(t, np.minimum(best + 1, 16), -1)


def threshold_divergence(order: float, noise: NoiseName, scale: float, shift: float, bits: int = 30) -> float:
    """Return D_a of the threshold noise from itself shifted by ``shift`` sensitivities."""
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
) -> float:
    """Return the recursion's bound on the Renyi divergence, for a sensitivity of one.

    ``order`` is a Renyi order above 1, and at most ``max_queries`` queries are tested. Both scales are those of the
    ``noise``, in units of the sensitivity; that of the threshold may be 0. ``shift`` is the coupling s in [0, 1]: by
    default the best one found, and every value is valid.
    """
    bits = threshold_lattice_bits(threshold_scale, query_scale)

    def bound(s: float, refine: bool) -> float:
        log_value = _log_value(order, max_queries, noise, query_scale, (s - 1.0, s + 1.0), refine)
        return threshold_divergence(order, noise, threshold_scale, s, bits) + log_value / (order - 1)

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
