r"""The price of searches: for the first query above a noisy threshold, and for the best of a random number of runs.

AboveThreshold: the cost of finding the first query above a noisy threshold.

The search tests queries one after another, ``q_j + noise >= threshold + noise``, and stops at the first yes, or
after ``max_queries``. Its Renyi divergence is bounded by the recursion of `dpdescent.accounting.bellman`.

Two other bounds are valid for Laplace noise and win when epsilon is large: pure DP through randomised response, and
the threshold's divergence plus twice the epsilon of the query noise (Zhu & Wang 2020). For Gaussian noise, releasing
every noisy query is the fall-back. The cost is the least of them.

The price of random stopping: making a random number of runs and keeping the best.

A run Q draws one of several candidates, trains it, and releases the model with a noisy score. *Random stopping* draws
a number K that nobody learns, makes K independent runs, and releases the best of them alone (Liu & Talwar 2019;
Papernot & Steinke 2022). Its price hardly grows with the number of runs, where publishing all of them would cost K
times as much.

**The law of K.** Toss a coin that shows tails with probability g until the second tail, count the heads, and begin
anew if there are none: :math:`P(K = k) = (k + 1)(1 - g)^k g^2/(1 - g^2)`, :math:`E K = 2/(g(1 + g))`, with the
generating function

.. math:: f(x) = \frac{(1 - (1 - g)x)^{-2} - 1}{g^{-2} - 1}, \qquad
    f'(x) = E K \left(\frac{g}{1 - (1 - g)x}\right)^3.

**Theorem.** Let outputs be ordered by score, ties by independent random tags, and let Q and Q' be the laws of a run
on neighbouring tables. If runs are mu-GDP, then for every order a > 1 the laws A and A' of the released output obey

.. math:: D_a(A \| A') \le \frac{a\mu^2}{2} + \frac{1}{a - 1} \sup_{0 \le p \le 1}
    \log\left[ f'(1 - p)^a\, f'(1 - p')^{1 - a} \right], \qquad p' = \Phi(\Phi^{-1}(p) + \mu).

*Proof.* All K runs are at most y with probability f(Q(<= y)), so that A(y) = f(Q(<= y)) - f(Q(< y)), which is Q(y)
times the mean of f'(x_t) over t in [0, 1], x_t = Q(< y) + t Q(y). With x'_t likewise, and because
:math:`(u, v) \mapsto u^a v^{1 - a}` is jointly convex,

.. math:: \sum_y A(y)^a A'(y)^{1 - a} \le \sum_y Q(y)^a Q'(y)^{1 - a} \int_0^1 f'(x_t)^a f'(x'_t)^{1 - a}\, dt.

The integral is at most the supremum of what it integrates. Here 1 - x_t and 1 - x'_t are the probabilities p and p'
of one randomised event under Q and Q', and a mu-GDP pair allows p' up to Phi(Phi^-1(p) + mu), in both directions; f'
increases, so the largest p' is the worst. The sum that is left is exp((a - 1) D_a(Q || Q')), and D_a of a mu-GDP pair
is at most that of two normal laws, because such a pair is a randomised function of them (Dong, Roth & Su 2022).
Infinite sets of outputs follow by taking limits of partitions. QED

Papernot & Steinke bound the supremum by a divergence at a second order. For GDP it can be computed, which at epsilon
1 and for ten candidates gives each run a mu that is half as large again. It is computed from above: on an interval of
p the first factor is largest at its left and the second at its right end, and intervals are halved until that hardly
matters.

*Ties.* Keeping the first of equal scores gives the same law as random tags, because the runs are exchangeable.

*Failures.* If a run differs from a mu-GDP one with probability r, the release does with at most E[K] r, which adds
(1 + e^epsilon) E[K] r to delta.

References
----------
Dwork, C. & Roth, A. (2014). The algorithmic foundations of differential privacy, section 3.6.
Lyu, M., Su, D. & Li, N. (2017). Understanding the sparse vector technique. arXiv:1603.01699.
Zhu, Y. & Wang, Y.-X. (2020). Improving sparse vector technique with Renyi differential privacy. NeurIPS.
Dong, J., Roth, A. & Su, W. (2022). Gaussian differential privacy. arXiv:1905.02383.
Liu, J. & Talwar, K. (2019). Private selection from private candidates. arXiv:1811.07971.
Papernot, N. & Steinke, T. (2022). Hyperparameter tuning with Renyi differential privacy. arXiv:2110.03620.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self

import numpy as np
from scipy.special import ndtr

from ..errors import (
    InvalidParameter,
    UnsupportedCost,
    require_nonnegative,
    require_open_unit,
    require_order,
    require_positive,
    require_positive_integer,
)
from .bellman import NoiseName, bellman_bound, threshold_divergence, threshold_lattice_bits
from .conversions import rdp_to_epsilon
from .costs import Cost, PureDP
from .divergences import FEW_ROUNDINGS, LOG_SUM, above, gaussian_rdp, round_up

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

    def rdp_by_chords(self, order: int) -> float:
        """Return a bound on D_a at a whole order that few evaluations give for many orders.

        For any two tables (a - 1) D_a is convex in a, so between two orders it lies below the chord of any bounds at
        them. Up to 32 every whole order is one of these ends, and from there on 16 in each octave.
        """
        spacing = max(1, 2 ** (order.bit_length() - 5))
        low = order // spacing * spacing
        if low == order:
            return self.rdp(order)
        high = low + spacing
        share = (order - low) / spacing
        moments = (1 - share) * ((low - 1) * self.rdp(low)) + share * ((high - 1) * self.rdp(high))
        return min(above(moments / (order - 1), FEW_ROUNDINGS), self.rdp(high))

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


_ORDERS = tuple(1 + 2.0 ** (power / 4) for power in range(-10, 41))
_COARSE = 4
_FARTHEST = 40.0  # standard deviations: beyond, probabilities are 0 or 1
_PRECISION = 1e-5  # of the supremum, per unit of a - 1: what it adds to epsilon at most


@dataclass(frozen=True)
class RandomStopping(Cost):
    """The best of a random number of runs, of which nothing else is released.

    **Privacy** See the module. The number of runs, the time that they took and all runs but the best must be kept
    secret.
    """

    kind: ClassVar[str] = "random-stopping"
    mu: float  # each run, its score included, is mu-GDP
    tails: float  # the probability g of tails in the law of the number of runs
    #: The delta at which the whole is priced as one (epsilon, delta)-DP mechanism. At 0 it has a price in the
    #: currency rdp only.
    failure: float = 0.0
    run_failure: float = 0.0  # the probability with which a run may fail to be mu-GDP

    def __post_init__(self) -> None:
        failure, run_failure = (require_nonnegative(name, getattr(self, name)) for name in ("failure", "run_failure"))
        if failure >= 1 or run_failure >= 1:
            raise InvalidParameter("failure and run_failure are probabilities below 1")
        self._settle(
            mu=require_positive("mu", self.mu),
            tails=require_open_unit("tails", self.tails),
            failure=failure,
            run_failure=run_failure,
        )

    @property
    def expected_runs(self) -> float:
        """The mean of K."""
        return 2 / (self.tails * (1 + self.tails))

    def missed(self, candidates: int) -> float:
        """Return the probability that a given one of so many candidates is never drawn: f(1 - 1/m)."""
        odds = self.tails + (1 - self.tails) / candidates
        return (odds**-2 - 1) / (self.tails**-2 - 1)

    def rdp(self, order: float) -> float:
        if self.failure:
            raise UnsupportedCost("random stopping with a delta of its own is priced as one (epsilon, delta) only")
        return _divergence(self.mu, self.tails, require_order(order))

    def zcdp(self) -> float:
        raise UnsupportedCost("random stopping is not zCDP: use a ledger in the currency 'approximate' or 'rdp'")

    def mu_squared(self) -> float:
        raise UnsupportedCost("random stopping is not GDP: use a ledger in the currency 'approximate' or 'rdp'")

    def pure(self) -> float:
        return _epsilon(self.mu, self.tails, self.failure) if self.failure else math.inf

    @property
    def delta(self) -> float:
        if not self.run_failure:
            return self.failure
        if not self.failure:
            raise UnsupportedCost("runs that may fail need random stopping with a delta of its own")
        added = (1 + math.exp(min(self.pure(), 700.0))) * self.expected_runs * self.run_failure
        return round_up(Fraction(self.failure) + Fraction(above(min(added, 1.0), LOG_SUM)))


def _divergence(mu: float, tails: float, order: float) -> float:
    """Return the bound of the theorem, rounded up."""
    run = order * mu * mu / 2
    chosen = math.log(2 / (tails * (1 + tails))) + 3 * math.log(tails) + _largest_gain(mu, tails, order)
    size = abs(chosen) + 6 * order * abs(math.log(tails))
    return above(run + max(0.0, chosen + LOG_SUM * size) / (order - 1), LOG_SUM)


def _largest_gain(mu: float, tails: float, order: float) -> float:
    """Return an upper bound on the supremum over p of -3 a log(g + (1 - g) p) + 3 (a - 1) log(g + (1 - g) p')."""
    precision = _PRECISION * (order - 1)
    ends = np.concatenate([[-np.inf], np.linspace(-_FARTHEST, _FARTHEST, 257), [np.inf]])
    left, right = ends[:-1], ends[1:]
    best = bound = -math.inf
    while left.size:
        falling = -3 * order * np.log(tails + (1 - tails) * ndtr(left))
        rising = 3 * (order - 1) * np.log(tails + (1 - tails) * ndtr(right + mu))
        best = max(best, float(np.max(falling + 3 * (order - 1) * np.log(tails + (1 - tails) * ndtr(left + mu)))))
        highest = falling + rising
        open_ones = (highest > best + precision) & (right - left > 1e-9) & np.isfinite(left) & np.isfinite(right)
        bound = max(bound, float(np.max(highest[~open_ones], initial=-math.inf)))
        left, right = left[open_ones], right[open_ones]
        middles = (left + right) / 2
        left, right = np.concatenate([left, middles]), np.concatenate([middles, right])
    return bound


@lru_cache(maxsize=1024)
def _epsilon(mu: float, tails: float, failure: float) -> float:
    """Return the least epsilon that the divergences give at a delta."""

    def at(position: int) -> float:
        order = _ORDERS[position]
        return rdp_to_epsilon(_divergence(mu, tails, order), order, failure)

    # Any order is valid. The best of every fourth one is found first, and then the best of those beside it.
    found: dict[int, float] = {}
    for position in range(0, len(_ORDERS), _COARSE):
        found[position] = at(position)
        if found[position] > min(found.values()):
            break
    centre = min(found, key=found.__getitem__)
    beside = range(max(0, centre - _COARSE + 1), min(len(_ORDERS), centre + _COARSE))
    best = min([*found.values(), *(at(position) for position in beside if position not in found)])
    return max(best, 2.0**-1000)  # a price is positive
