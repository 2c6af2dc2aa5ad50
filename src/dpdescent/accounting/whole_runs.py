r"""A whole run as one mechanism: equal steps that are charged together, or a run with a budget of its own.

**A fixed number of equal steps** (`FixedSchedule`), the tightest accounting of noisy descent. Where it is known in
advance what every step will ask, nothing has to be decided during the run, and the whole run is one mechanism whose
(epsilon, delta) can be read from the distribution of its privacy loss. Three bounds are valid for it, and the first
one that is available is charged, because it is the tightest:

*Gaussian noise on all rows.* T releases with multiplier s are exactly one with s/sqrt(T), under both relations.

*Privacy loss distributions.* A pair of distributions that dominates one step dominates T adaptive steps when it is
composed T times (Zhu, Dong & Wang 2022), in each direction by itself: the row is in one of the two tables at every
step. For Poisson batches of rate q under zero-out the pair is (1 - q) N(0, s^2) + q N(1, s^2) against N(0, s^2), and
for a pure mechanism it is randomised response. `dp_accounting` composes discretised distributions that are above the
true ones in both directions (Doroshenko et al. 2022), and its (epsilon, delta) is the larger of the two. Batches of
fixed size have one pair for epsilon above 0 and another below, which do not compose this way, so that replace-one is
left to the next bound.

*Renyi divergences* add up at every order. The best order may be chosen afterwards, because nothing was chosen during
the run.

**A run of adaptively chosen mechanisms** that has a filter of its own (`FilteredRun`). A filter in one of the scalar
currencies stops a run before its total exceeds a number fixed in advance. The run as a whole is then one mechanism
with the guarantee of that number, whatever it chose to ask (see `currencies`): rho-zCDP, mu-GDP with mu^2 the total,
D_a at the one order, epsilon-DP, or (epsilon, delta)-DP.

References
----------
Doroshenko, V. et al. (2022). Connect the dots: tighter discrete approximations of privacy loss distributions.
arXiv:2207.04380.
Koskela, A., Jalko, J. & Honkela, A. (2020). Computing tight differential privacy guarantees using FFT.
arXiv:1906.03049.
Zhu, Y., Dong, J. & Wang, Y.-X. (2022). Optimal accounting of differential privacy via characteristic function.
arXiv:2106.08567.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, ClassVar

from scipy.optimize import brentq

from ..errors import (
    InvalidParameter,
    LedgerError,
    UnsupportedCost,
    require_nonnegative,
    require_order,
    require_positive,
    require_positive_integer,
)
from ..relations import Relation
from .conversions import gdp_to_epsilon, rdp_to_epsilon
from .costs import Composed, Cost, Gaussian, Laplace, PureDP, common_relations, require_parts
from .currencies import Currency
from .divergences import LOG_SUM, PROFILE, above, below, round_up
from .sampling import PoissonSampled

_ORDERS = (*range(2, 17), *range(18, 33, 2), 40, 48, 64, 80, 96, 128, 192, 256, 384, 512, 768, 1024, 2048)
_FRACTIONS = tuple(tenths / 10 for tenths in range(11, 50) if tenths % 10)
_PATIENCE = 3  # orders without a gain after which higher ones, which take longer, are not tried
# The Fourier transforms behind a composition err by about 1e-15, whatever delta is: this is left out of it.
_TRANSFORM_ERROR = 1e-10
_LEAST_DELTA = 100 * _TRANSFORM_ERROR
_LEAST_NOISE = 0.25  # with less noise, the losses of one step spread over too many values to be composed
_FINE, _COARSE = 1e-4, 1e-3  # distance between the losses of a discretised distribution
_FEW_STEPS, _SHORT_LOSSES = 1000, 1e-5
_MOST_POINTS = 2.5e6  # values of such a distribution; with more, epsilon is so large that a tight value is of no use
_STRENGTHS = (2.0**-40, 2.0**20)
_NEVER = 1e-26  # smaller values of delta are left out of events
_RELATIVE = 2.5e-4  # relative precision to which noise is calibrated


@dataclass(frozen=True)
class FixedSchedule(Cost):
    """``steps`` equal steps, each of which asks all ``parts``.

    **Privacy** Valid only where neither the number of steps nor their noise depends on the data, answers included.
    See the module for the bounds. The relation is that of the parts.
    """

    kind: ClassVar[str] = "fixed-schedule"
    #: What one step asks. Each part has a batch of its own; what shares a batch is one sampled part.
    parts: tuple[Cost, ...]
    steps: int
    #: The delta at which the schedule is priced as one (epsilon, delta)-DP mechanism. At 0 it is the sum of its steps
    #: in every currency, without a delta.
    failure: float = 0.0

    def __post_init__(self) -> None:
        require_parts(self.parts)
        failure = require_nonnegative("failure", self.failure)
        if failure >= 1:
            raise InvalidParameter(f"failure must be below 1, got {failure}: it is a delta")
        self._settle(steps=require_positive_integer("steps", self.steps), failure=failure)

    @property
    def relations(self) -> frozenset[Relation]:
        return common_relations(self.parts)

    @property
    def step(self) -> Composed:
        """What one step costs."""
        return Composed(self.parts)

    def rdp(self, order: float) -> float:
        return PureDP(self.pure()).rdp(order) if self.failure else self._times(self.step.rdp(order))

    def zcdp(self) -> float:
        return PureDP(self.pure()).zcdp() if self.failure else self._times(self.step.zcdp())

    def mu_squared(self) -> float:
        return PureDP(self.pure()).mu_squared() if self.failure else self._times(self.step.mu_squared())

    def pure(self) -> float:
        return _epsilon(self) if self.failure else self._times(self.step.pure())

    @property
    def delta(self) -> float:
        return round_up(Fraction(self.failure) + Fraction(self._times(self.step.delta)))

    def _times(self, amount: float) -> float:
        return amount if math.isinf(amount) else round_up(self.steps * Fraction(amount))


@lru_cache(maxsize=256)
def _epsilon(schedule: FixedSchedule) -> float:
    """Return the least epsilon that is known at the delta of a schedule."""
    if all(isinstance(part, Gaussian) for part in schedule.parts):
        squared = schedule._times(schedule.step.mu_squared())
        best = gdp_to_epsilon(above(math.sqrt(squared), PROFILE), schedule.failure)
    else:
        best = _composed_epsilon(schedule)
    if math.isinf(best):
        best = _renyi_epsilon(schedule)
    return max(min(best, schedule._times(schedule.step.pure())), 2.0**-1000)  # a price is positive


def _renyi_epsilon(schedule: FixedSchedule) -> float:
    def epsilon(order: float) -> float:
        divergence = schedule._times(schedule.step.rdp(order))
        return rdp_to_epsilon(divergence, order, schedule.failure) if math.isfinite(divergence) else math.inf

    best, found, since = math.inf, _ORDERS[0], 0
    for order in _ORDERS:
        tried = epsilon(order)
        best, found, since = (tried, order, 0) if tried < best else (best, found, since + 1)
        if since == _PATIENCE:
            break
    if found <= _FRACTIONS[-1]:  # orders between, which some costs know and others round up
        best = min(best, *(epsilon(order) for order in _FRACTIONS if abs(order - found) < 1))
    return best


def _composed_epsilon(schedule: FixedSchedule) -> float:
    """Return what the distribution of the privacy loss gives; infinity where it is not available."""
    if schedule.failure < _LEAST_DELTA or find_spec("dp_accounting") is None:
        return math.inf
    # Small losses need a fine grid, of which they use few points.
    interval = _COARSE if schedule.steps <= _FEW_STEPS and schedule.step.rdp(2) > _SHORT_LOSSES else _FINE
    if schedule._times(schedule.step.rdp(2)) > _MOST_POINTS * interval:  # it bounds the mean of the loss
        return math.inf
    losses = [_loss_distribution(part, interval) for part in schedule.parts]
    if any(each is None for each in losses):
        return math.inf
    together = losses[0]
    for each in losses[1:]:
        together = together.compose(each)
    composed = together.self_compose(schedule.steps) if schedule.steps > 1 else together
    epsilon = float(composed.get_epsilon_for_delta(schedule.failure - _TRANSFORM_ERROR))
    return above(epsilon, LOG_SUM) if math.isfinite(epsilon) else math.inf


def _loss_distribution(part: Cost, interval: float) -> Any:
    """Return a distribution that dominates the privacy loss of one part, or None."""
    from dp_accounting.pld import common, privacy_loss_distribution

    rate = 1.0
    if isinstance(part, PoissonSampled) and all(isinstance(each, Gaussian) for each in part.parts):
        rate, part = part.rate, Gaussian(part.whole.mu_squared() ** -0.5)
    if isinstance(part, Gaussian) and part.noise_multiplier >= _LEAST_NOISE:
        return privacy_loss_distribution.from_gaussian_mechanism(
            below(part.noise_multiplier, PROFILE), sampling_prob=rate, value_discretization_interval=interval
        )
    if math.isfinite(part.pure()) and not part.delta:
        pure = common.DifferentialPrivacyParameters(part.pure())
        return privacy_loss_distribution.from_privacy_parameters(pure, value_discretization_interval=interval)
    return None


def strongest_schedule(
    parts: Callable[[float], tuple[Cost, ...]], steps: int, failure: float, amount: float, currency: Currency
) -> FixedSchedule:
    """Return the least noisy schedule of that many steps that ``amount`` pays for, to within 0.05% of the noise.

    ``parts`` maps a positive strength, one over a noise multiplier, to what one step asks, whose cost must grow with
    it. ``failure`` is the delta of the schedule, 0 in a currency that adds up something else than epsilons.

    Raises
    ------
    InvalidParameter
        No noise is enough: the amount is too small for so many steps.
    """
    require_positive("amount", amount)
    least, most = (math.log(each) for each in _STRENGTHS)

    def excess(log_strength: float) -> float:
        price = currency.price(FixedSchedule(parts(math.exp(log_strength)), steps, failure))
        return math.log(price / amount) if price < 1e300 else 700.0

    def affordable(log_strength: float) -> bool:
        return currency.price(FixedSchedule(parts(math.exp(log_strength)), steps, failure)) <= amount

    if not affordable(least):
        raise InvalidParameter(
            f"the budget is too small for {steps} steps, whatever their noise: raise epsilon, or take fewer steps"
        )
    low, high = (0.0, math.log(2)) if affordable(0.0) else (-math.log(2), 0.0)
    while not affordable(low):
        low, high = max(least, low - math.log(2)), low
    while high < most and affordable(high):
        low, high = high, high + math.log(2)
    if high < most:
        low = brentq(excess, low, high, xtol=_RELATIVE, rtol=1e-12)
        while not affordable(low):
            low -= _RELATIVE
    return FixedSchedule(parts(math.exp(low)), steps, failure)


@dataclass(frozen=True)
class FilteredRun(Cost):
    """A run whose own filter accepts at most ``total`` in ``currency``.

    **Privacy** In its own currency the run costs the total; in another it has no price.
    """

    kind: ClassVar[str] = "filtered-run"
    currency: str  # "zcdp", "gdp", "rdp", "pure" or "approximate": what the filter adds up
    total: float  # the budget of the filter
    failure: float = 0.0  # the probability with which its mechanisms may fail, beyond what the currency counts
    order: float | None = None  # the Renyi order of ``currency="rdp"``

    def __post_init__(self) -> None:
        if self.currency not in ("zcdp", "gdp", "rdp", "pure", "approximate"):
            raise InvalidParameter(f"a run is filtered in a currency, and {self.currency!r} is none")
        if (self.currency == "rdp") != (self.order is not None):
            raise InvalidParameter(f"a run filtered in {self.currency} cannot have the order {self.order}")
        failure = require_nonnegative("failure", self.failure)
        if failure >= 1:
            raise InvalidParameter(f"failure must be below 1, got {failure}")
        self._settle(
            total=require_positive("total", self.total),
            failure=failure,
            order=None if self.order is None else require_order(self.order),
        )

    def rdp(self, order: float) -> float:
        return self._total_in("rdp", order)

    def zcdp(self) -> float:
        return self._total_in("zcdp")

    def mu_squared(self) -> float:
        return self._total_in("gdp")

    def pure(self) -> float:
        return self.total if self.currency in ("pure", "approximate") else math.inf

    @property
    def delta(self) -> float:
        return self.failure

    def _total_in(self, currency: str, order: float | None = None) -> float:
        if (currency, order) != (self.currency, self.order):
            raise UnsupportedCost(f"a run that was filtered in {self.currency} has no price in {currency}")
        return self.total


def to_dp_event(cost: Cost) -> Any:
    """Return a ``dp_accounting.DpEvent`` whose accounting is never below that of the mechanism.

    Gaussian, Laplace and Poisson-sampled Gaussian mechanisms have events of their own. The exponential mechanism,
    AboveThreshold and pure mechanisms do not: they are exported as zCDP events of what was charged. A sub-sampled
    mixture of kinds is exported unamplified, and so is a random shift, as its largest. Mechanisms that are
    (epsilon, delta)-DP and no better have no event of a divergence, and a run that was reserved and not settled has
    none at all: they are exported as unsupported, so that no accountant ignores them. The events hold for the
    relation for which the noise multiplier was computed, so give the accountant the relation of the ledger.
    """
    try:
        import dp_accounting
    except ImportError:
        raise LedgerError(
            "dp_accounting is not installed: pip install 'dpdescent[accounting]' to export events"
        ) from None
    if isinstance(cost, Gaussian):
        return dp_accounting.GaussianDpEvent(cost.noise_multiplier)
    if isinstance(cost, Laplace):
        return dp_accounting.LaplaceDpEvent(1 / cost.epsilon)
    if isinstance(cost, Composed):
        return dp_accounting.ComposedDpEvent([to_dp_event(part) for part in cost.parts])
    if isinstance(cost, FixedSchedule):
        return dp_accounting.SelfComposedDpEvent(to_dp_event(cost.step), cost.steps)
    if isinstance(cost, PoissonSampled) and all(isinstance(part, Gaussian) for part in cost.parts):
        return dp_accounting.PoissonSampledDpEvent(cost.rate, to_dp_event(_one_gaussian(cost.parts)))
    if cost.delta > _NEVER or isinstance(cost, FilteredRun):
        return dp_accounting.UnsupportedDpEvent()
    return dp_accounting.ZCDpEvent(cost.zcdp())


def _one_gaussian(parts: tuple[Cost, ...]) -> Gaussian:
    """Return the one Gaussian that several on the same batch amount to: 1/s^2 = sum 1/s_i^2."""
    return Gaussian(sum(part.mu_squared() for part in parts) ** -0.5)
