r"""Amplification by chance: mechanisms that see a random batch of the rows, or the rows in a random order.

Several mechanisms run on *one* batch are amplified together, as one mechanism; adding up their separate
amplifications is not a bound. Let E(j) be the summed Renyi curve of all parts at integer order j.

Poisson batches, relation zero-out, each row in the batch with probability q:

.. math:: D_a \le \frac{1}{a-1}\log \sum_{j=0}^{a}\binom aj (1-q)^{a-j} q^j e^{(j-1)E(j)}

holds in this form when the parts are Gaussian or pure DP: a Gaussian shift times randomised responses dominates
them, sub-sampling keeps dominating pairs (Zhu, Dong & Wang 2022), and for that pair the direction above is the
larger one (Mironov, Talwar & Zhang 2019). For any other curve the sum bounds one direction; the other is at most
:math:`\frac{1}{a-1}\log\{1 + \frac{a(a-1)}{2} q^2 (1-q)^{-a-1} (e^{E(2)} - 1)\}`, by the second-order Taylor
expansion of (1 - q + q x)^(1-a) in the likelihood ratio x, whose mean is one, and at most -log(1 - q) at every order,
because the law of the mixture is at least 1 - q times the other.

For Gaussian parts alone, the divergence of the mixture at an order that is no whole number is an integral over one
normal variable x, of :math:`h^a` with :math:`h = 1 - q + q e^{(2x-1)/2s^2}`. The logarithm of h is convex, so that on
each cell of a grid :math:`h^a` is at most the exponential function through its values at the ends, whose integral has
a closed form; beyond the grid it is at most 1 on the left and :math:`e^{a(2x-1)/2s^2}` on the right. The sum is a
bound, not an estimate.

Batches of fixed size without replacement, relation replace-one: Theorem 9 of Wang, Balle & Kasiviswanathan.

Whatever the formula says, the cost is never above that of running on all rows (quasi-convexity), and pure DP
amplifies to log(1 + q(e^epsilon - 1)). The two kinds of batches and relations are not interchangeable, so each
cost names the one relation it holds for and a ledger of the other relation refuses it.

**Passes over permuted rows**, averaged (`ShuffledDescent`): a Gaussian mechanism whose shift is random.

In each of k passes a row sits in one of m batches, uniformly at random, and shifts the result by at most U h, U
uniform on {1/m, 2/m, ..., 1}, independently from pass to pass. The places are part of the mechanism's own
randomness and the same for neighbours, and the integral of p^a q^(1-a) is jointly convex, so

.. math:: D_a \le \frac{1}{a-1}\log E \exp\Big(\frac{a(a-1)}{2\sigma^2} h^2 (U_1 + \dots + U_k)^2\Big).

The law of the sum is computed on a grid of 64 cells per pass, every U rounded up, plus 2^-12 k for rounding errors.

References
----------
Chen, C., Lee, J. & Kifer, D. (2019). Renyi differentially private ERM for smooth objectives. AISTATS.
Mironov, I., Talwar, K. & Zhang, L. (2019). Renyi differential privacy of the sampled Gaussian mechanism.
arXiv:1908.10530.
Wang, Y.-X., Balle, B. & Kasiviswanathan, S. (2019). Subsampled Renyi differential privacy and analytical moments
accountant. arXiv:1808.00087.
Zhu, Y., Dong, J. & Wang, Y.-X. (2022). Optimal accounting of differential privacy via characteristic function.
arXiv:2106.08567.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from scipy.special import gammaln, logsumexp, ndtr

from ..arrays import Floats
from ..errors import InvalidParameter, require_order, require_positive, require_positive_integer
from ..relations import Relation
from .costs import Composed, Cost, Gaussian, PureDP, common_relations, require_parts, sum_up
from .divergences import CONVOLUTION, LOG_SUM, PROFILE, above, below, round_up
from .searches import AboveThreshold

Curve = Callable[[int], float]
_LARGEST_ORDER = 100_000
_POINTS, _QUADRATURE = 20_001, 1e-12  # of an integral: its grid, and more than its rounding errors
_LEAST_NOISE = 0.2  # with which an integral is computed, and one over the largest
_LARGEST_FRACTION = 8.0  # orders that are no whole numbers, beyond which the next whole number is as good
ALLOWANCE = 2.0**-12  # share of the largest shift that rounding errors may add
_CELLS = 64


def _require_rate(rate: float) -> float:
    number = require_positive("rate", rate)
    if number > 1:
        raise InvalidParameter(f"rate must be at most 1, got {rate}: it is the share of rows in a batch")
    return number


def _log_expm1(x: Floats) -> Floats:
    """Return log(e^x - 1) for x >= 0, without overflow; minus infinity at 0."""
    with np.errstate(divide="ignore"):
        return np.where(x > 30, x + np.log1p(-np.exp(-np.maximum(x, 1.0))), np.log(np.expm1(np.minimum(x, 30.0))))


def _require_whole_order(order: int) -> int:
    if require_positive_integer("order", order) < 2:
        raise InvalidParameter(f"amplification wants a whole order of at least 2, got {order}")
    return int(order)


def _rounding(rate: float, order: int) -> float:
    """Return more than the rounding error of a log binomial weight, whose large summands cancel."""
    logs = math.log(order) - math.log(rate) - (math.log1p(-rate) if rate < 1 else 0.0)
    return 2e-15 * (order * logs + 1)


def _log_binomials(order: int, least: int) -> tuple[Floats, Floats]:
    j = np.arange(least, order + 1, dtype=np.float64)
    return j, gammaln(order + 1) - gammaln(j + 1) - gammaln(order - j + 1)


def poisson_rdp(rate: float, order: int, curve: Curve) -> float:
    """Return the sum over batch overlaps, the divergence of the mixture from the plain mechanism.

    The binomial weights add up to one, so only the excess of each term over its weight is summed: small
    divergences keep all their digits.
    """
    order = _require_whole_order(order)
    if _require_rate(rate) == 1:
        return curve(order)
    j, log_binomial = _log_binomials(order, 2)
    exponents = (j - 1) * np.array([curve(int(k)) for k in j])
    log_weights = log_binomial + (order - j) * math.log1p(-rate) + j * math.log(rate)
    log_terms = log_weights + _log_expm1(exponents) + _rounding(rate, order)
    return above(float(np.logaddexp(0.0, logsumexp(log_terms))) / (order - 1), LOG_SUM)


@lru_cache(maxsize=4096)
def _poisson_gaussian_rdp(rate: float, order: float, noise: float) -> float:
    """Return a bound on the divergence of one sampled Gaussian at any order, from the integral over its noise."""
    reach = 14.0 + order / noise  # deviations: the integrand has its bulk at no more than order/noise
    points = np.linspace(-reach * noise, reach * noise, _POINTS)
    logs = order * np.logaddexp(math.log1p(-rate), math.log(rate) + (2 * points - 1) / (2 * noise**2))
    slopes = np.diff(logs) / np.diff(points)
    centres = slopes * noise**2
    ends = (points[:-1] - centres) / noise, (points[1:] - centres) / noise
    masses = np.where(ends[0] > 0, ndtr(-ends[0]) - ndtr(-ends[1]), ndtr(ends[1]) - ndtr(ends[0]))
    cells = np.exp(logs[:-1] - slopes * points[:-1] + slopes * centres / 2) * masses
    beyond = ndtr(-reach) + math.exp(order * (order - 1) / (2 * noise**2)) * ndtr(order / noise - reach)
    return above(math.log1p(max(float(cells.sum()) - 1, 0.0) + float(beyond) + _QUADRATURE) / (order - 1), LOG_SUM)


def _poisson_reverse_rdp(rate: float, order: int, curve: Curve) -> float:
    log_excess = float(_log_expm1(np.array(curve(2))))
    log_factor = math.log(order * (order - 1) / 2) + 2 * math.log(rate) - (order + 1) * math.log1p(-rate)
    taylor = float(np.logaddexp(0.0, log_factor + log_excess)) / (order - 1)
    return above(min(taylor, -math.log1p(-rate)), LOG_SUM)


def fixed_size_rdp(rate: float, order: int, curve: Curve, pure: float = math.inf) -> float:
    """Return the bound for batches without replacement; ``pure`` is the epsilon of the curve, if it has one."""
    order, rate = _require_whole_order(order), _require_rate(rate)
    j, log_binomial = _log_binomials(order, 2)
    divergences = np.array([curve(int(k)) for k in j])
    growth = math.log(math.expm1(pure)) if pure < 30 else math.inf
    log_terms = (j - 1) * divergences + j * math.log(rate) + log_binomial + np.minimum(math.log(2), j * growth)
    second = 2 * math.log(rate) + log_binomial[0] + math.log(4) + _log_expm1(divergences[:1])[0]
    log_terms[0] = min(log_terms[0], second)
    log_terms += _rounding(rate, order)
    return above(float(np.logaddexp(0.0, logsumexp(log_terms))) / (order - 1), LOG_SUM)


def _curve_of(parts: Sequence[Cost]) -> Curve:
    """Return a bound on the divergence of all parts at whole orders, of which a formula asks for hundreds."""
    quick = [part.rdp_by_chords if isinstance(part, AboveThreshold) else part.rdp for part in parts]
    return lambda order: sum_up([rdp(order) for rdp in quick])


@dataclass(frozen=True)
class _Sampled(Cost):
    relation: ClassVar[Relation]
    rate: float
    parts: tuple[Cost, ...]

    def __post_init__(self) -> None:
        self._settle(rate=_require_rate(self.rate))
        require_parts(self.parts)
        if self.relation not in common_relations(self.parts):
            raise InvalidParameter(
                f"{self.kind!r} batches keep the relation {self.relation}, and one of the parts does not hold for it"
            )

    @property
    def relations(self) -> frozenset[Relation]:
        return frozenset({self.relation})

    @property
    def whole(self) -> Composed:
        """The same mechanisms on all rows."""
        return Composed(self.parts)

    def rdp(self, order: float) -> float:
        # Amplification formulas want whole orders; D_a never falls with a, so the next one up is a bound.
        whole_order = max(2, math.ceil(require_order(order)))
        if whole_order > _LARGEST_ORDER:
            return self.whole.rdp(order)
        return min(self.whole.rdp(order), _amplified_rdp(self, whole_order))

    def zcdp(self) -> float:
        pure = self.pure()
        return min(self.whole.zcdp(), PureDP(pure).zcdp() if math.isfinite(pure) else math.inf)

    def mu_squared(self) -> float:
        pure = self.pure()
        return min(self.whole.mu_squared(), PureDP(pure).mu_squared() if pure <= 700 else math.inf)

    def pure(self) -> float:
        whole = self.whole.pure()
        if whole > 700:
            return whole
        return min(whole, above(math.log1p(self.rate * math.expm1(whole)), LOG_SUM))

    @property
    def delta(self) -> float:
        return self.whole.delta

    @abstractmethod
    def _amplify(self, order: int) -> float:
        """Return the amplified divergence at a whole order."""


@dataclass(frozen=True)
class PoissonSampled(_Sampled):
    """The cost of all ``parts`` on one Poisson batch, which every row joins independently with probability ``rate``.

    **Privacy.** For the relation zero-out only. Divide sums by the public ``rate * n``, never by the size of the
    batch.
    """

    kind: ClassVar[str] = "poisson-sampled"
    relation: ClassVar[Relation] = Relation.ZERO_OUT

    def rdp(self, order: float) -> float:
        bound = super().rdp(order)
        if self.rate == 1 or order >= _LARGEST_FRACTION or float(order).is_integer():
            return bound
        if not all(isinstance(part, Gaussian) for part in self.parts):
            return bound
        noise = self.whole.mu_squared() ** -0.5
        if not _LEAST_NOISE <= noise <= 1 / _LEAST_NOISE:
            return bound
        return min(bound, _poisson_gaussian_rdp(self.rate, order, below(noise, PROFILE)))

    def _amplify(self, order: int) -> float:
        if self.rate == 1:
            return math.inf
        bounds = [math.inf]
        dominated = [
            part if isinstance(part, Gaussian) else PureDP(part.pure())
            for part in self.parts
            if isinstance(part, Gaussian) or math.isfinite(part.pure())
        ]
        if len(dominated) == len(self.parts):
            bounds.append(poisson_rdp(self.rate, order, Composed(tuple(dominated)).rdp))
        # The curve of a search takes milliseconds at every order, and its pure bound was used just above.
        if len(bounds) == 1 or not any(isinstance(part, AboveThreshold) for part in self.parts):
            curve = _curve_of(self.parts)
            reverse = min(self.whole.rdp(order), _poisson_reverse_rdp(self.rate, order, curve))
            bounds.append(max(poisson_rdp(self.rate, order, curve), reverse))
        if math.isfinite(self.pure()):
            bounds.append(PureDP(self.pure()).rdp(order))
        return min(bounds)


@dataclass(frozen=True)
class FixedSizeSampled(_Sampled):
    """The cost of all ``parts`` on one batch of a fixed number of rows, ``rate`` times n, drawn without replacement.

    **Privacy.** For the relation replace-one only, with the sensitivity of the sum over the batch.
    """

    kind: ClassVar[str] = "fixed-size-sampled"
    relation: ClassVar[Relation] = Relation.REPLACE_ONE

    def _amplify(self, order: int) -> float:
        # The curve of a search takes milliseconds at every order; its pure bound takes none.
        quick = [
            PureDP(part.pure()) if isinstance(part, AboveThreshold) and math.isfinite(part.pure()) else part
            for part in self.parts
        ]
        bound = fixed_size_rdp(self.rate, order, _curve_of(quick), self.whole.pure())
        return min(bound, PureDP(self.pure()).rdp(order)) if math.isfinite(self.pure()) else bound


@lru_cache(maxsize=4096)
def _amplified_rdp(cost: _Sampled, order: int) -> float:
    return cost._amplify(order)


@dataclass(frozen=True)
class ShuffledDescent(Cost):
    """Gaussian noise on the average after ``passes`` passes over ``batches`` random batches."""

    kind: ClassVar[str] = "shuffled-descent"
    noise_multiplier: float  # deviation of the noise over the largest shift, passes times h
    passes: int
    batches: int

    def __post_init__(self) -> None:
        self._settle(
            noise_multiplier=require_positive("noise_multiplier", self.noise_multiplier),
            passes=require_positive_integer("passes", self.passes),
            batches=require_positive_integer("batches", self.batches),
        )

    def rdp(self, order: float) -> float:
        order = require_order(order)
        # Noise whose variance underflows hides nothing. For a variance that overflows, 1e-15 is charged.
        variance = self.noise_multiplier * self.noise_multiplier
        if variance == 0:
            return math.inf
        shares, log_weights = shift_law(self.passes, self.batches)
        exponents = order * (order - 1) / (2 * variance) * shares**2
        if exponents[-1] < 1:
            # The weights add up to one but for rounding, which would count 1/(a - 1) times near order 1.
            log_moment = math.log1p(float(np.exp(log_weights) @ np.expm1(exponents)))
        else:
            log_moment = float(logsumexp(log_weights + exponents))
        mixture = log_moment / (order - 1)
        worst = order / (2 * variance) * (1 + ALLOWANCE) ** 2
        return above(min(mixture, worst), CONVOLUTION) + 1e-15

    def zcdp(self) -> float:
        return round_up(Fraction(1 + ALLOWANCE) ** 2 / (2 * Fraction(self.noise_multiplier) ** 2))

    def mu_squared(self) -> float:
        return round_up(Fraction(1 + ALLOWANCE) ** 2 / Fraction(self.noise_multiplier) ** 2)


@lru_cache(maxsize=64)
def shift_law(passes: int, batches: int) -> tuple[Floats, Floats]:
    """Return the possible shifts, as shares of the largest one and rounded up, and their log-probabilities."""
    cells = min(batches, _CELLS)
    steps = np.arange(1, batches + 1)
    rounded = -(-steps * cells // batches)  # ceil(U cells)
    one = np.bincount(rounded, minlength=cells + 1) / batches
    law = np.ones(1)
    for _ in range(passes):
        law = np.convolve(law, one)
    # Probabilities that underflow still matter for the largest shifts, so all are raised by a negligible amount.
    shares = np.arange(passes, law.size) / (cells * passes) + ALLOWANCE
    return shares, np.log(law[passes:] + 1e-300)
