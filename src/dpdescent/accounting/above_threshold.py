"""AboveThreshold: the cost of finding the first query above a noisy threshold.

The search tests queries one after another, ``q_j + noise >= threshold + noise``, and stops at the first yes, or
after ``max_queries``. Its Renyi divergence is bounded by the recursion of `dpdescent.accounting.bellman`.

Two other bounds are valid for Laplace noise and win when epsilon is large: pure DP through randomised response, and
the threshold's divergence plus twice the epsilon of the query noise (Zhu & Wang 2020). For Gaussian noise, releasing
every noisy query is the fall-back. The cost is the least of them.

References
----------
Dwork, C. & Roth, A. (2014). The algorithmic foundations of differential privacy, section 3.6.
Lyu, M., Su, D. & Li, N. (2017). Understanding the sparse vector technique. arXiv:1603.01699.
Zhu, Y. & Wang, Y.-X. (2020). Improving sparse vector technique with Renyi differential privacy. NeurIPS.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Self

from ..errors import InvalidParameter, require_nonnegative, require_order, require_positive_integer
from .bellman import NoiseName, bellman_bound, threshold_divergence, threshold_lattice_bits
from .costs import Cost, PureDP
from .divergences import FEW_ROUNDINGS, LOG_SUM, above, gaussian_rdp

_SCALES = (2.0**-10, 2.0**40)


@dataclass(frozen=True)
class AboveThreshold(Cost):
    """The cost of one search for the first of at most ``max_queries`` queries above a threshold.

    Parameters
    ----------
    max_queries : int
        The largest number of queries that are tested. The answer is the index of the first one above, or none.
    query_scale, threshold_scale : float
        Noise scales (b for Laplace, standard deviation for Gaussian) in units of each query's own sensitivity.
        Dividing a query by its sensitivity changes nothing where the threshold is zero, so queries of different
        sensitivity share one search and the less sensitive ones get less noise.
    noise : {"laplace", "gaussian"}

    Notes
    -----
    **Privacy.** Renyi: the recursion of this module. Pure DP (Laplace only): 1/b1 + 2/b2, or k/b2 (Lyu, Su & Li
    2017). GDP: through pure DP, or k/sigma^2 for Gaussian noise (all noisy queries released). zCDP: the least rho
    with D_a <= a rho at *every* order, see `zcdp`.

    A row may raise some queries and lower others. There is no discount to 1/b1 + 1/b2 for queries that a row moves in
    one direction only: it would hold under zero-out only, because a row that replaces another one moves them in both
    directions, and the change of a row's loss along a line changes its sign with the step size.
    """

    kind: ClassVar[str] = "above-threshold"
    max_queries: int
    query_scale: float
    threshold_scale: float
    noise: NoiseName = "laplace"

    def __post_init__(self) -> None:
        self._settle(max_queries=require_positive_integer("max_queries", self.max_queries))
        low, high = _SCALES
        for name in ("query_scale", "threshold_scale"):
            value = require_nonnegative(name, getattr(self, name))
            if not low <= value <= high and not (name == "threshold_scale" and value == 0):
                raise InvalidParameter(
                    f"{name} must lie between 2^-10 and 2^40 sensitivities, got {value}: "
                    "below, the search is not private in any useful sense; above, it is pure noise"
                )
            self._settle(**{name: value})
        if self.noise not in ("laplace", "gaussian"):
            raise InvalidParameter(f"noise must be 'laplace' or 'gaussian', got {self.noise!r}")

    @classmethod
    def _from_fields(cls, data: Mapping[str, Any]) -> Self:
        """Read also the records that say of their queries that they are not monotone, as all are charged."""
        if data.get("monotone", False) is not False:
            raise InvalidParameter("a search is not charged less for monotone queries, and this record was")
        return super()._from_fields({name: value for name, value in data.items() if name != "monotone"})

    @property
    def lattice_bits(self) -> int:
        """The b of the lattice 2^-b on which the noise of this search is drawn."""
        return threshold_lattice_bits(self.threshold_scale, self.query_scale)

    def rdp(self, order: float) -> float:
        return _rdp(self, require_order(order))

    def pure(self) -> float:
        if self.noise == "gaussian":
            return math.inf
        all_released = above(self.max_queries * (1 / self.query_scale), FEW_ROUNDINGS)
        if self.threshold_scale == 0:
            return all_released
        return min(all_released, above(1 / self.threshold_scale + 2 / self.query_scale, FEW_ROUNDINGS))

    def mu_squared(self) -> float:
        if self.noise == "gaussian":
            return above(self.max_queries * (1 / self.query_scale**2), FEW_ROUNDINGS)
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
    bounds = [bellman_bound(order, cost.max_queries, cost.noise, cost.threshold_scale, cost.query_scale)]
    if cost.noise == "gaussian":
        bounds.append(above(cost.max_queries * gaussian_rdp(cost.query_scale, order), LOG_SUM))
        bounds.append(order * _gaussian_tail(cost, order))
    else:
        bounds.append(PureDP(cost.pure()).rdp(order))
        threshold = threshold_divergence(order, cost.noise, cost.threshold_scale, 1.0, cost.lattice_bits)
        bounds.append(above(threshold + 2 / cost.query_scale, LOG_SUM))
    return min(bounds)


def _gaussian_tail(cost: AboveThreshold, order: float) -> float:
    """Return a bound on D_a/a of Gaussian noise that falls with the order, see `AboveThreshold.zcdp`."""
    if cost.threshold_scale == 0:
        return math.inf
    slope = 1 / (2 * cost.threshold_scale**2) + 2 / cost.query_scale**2
    return above(slope + math.log1p(cost.max_queries) / (order * (order - 1)), LOG_SUM)


@lru_cache(maxsize=256)
def _zcdp(cost: AboveThreshold) -> float:
    laplace = cost.noise == "laplace"
    if laplace:
        fallback = PureDP(cost.pure()).zcdp()
    else:
        fallback = above(cost.max_queries * (1 / (2 * cost.query_scale**2)), FEW_ROUNDINGS)
        if cost.threshold_scale == 0:
            return fallback
        slope = _gaussian_tail(cost, math.inf)
    excess, ratio = 0.01, 1.2
    order = 1 + excess
    divergence = cost.rdp(order)
    rho = divergence
    while True:
        tail = cost.pure() / order if laplace else _gaussian_tail(cost, order)
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
    return above(max((constant + slope * z) / (z * (1 + z)) for z in candidates), LOG_SUM)
