"""The scalar currencies in which an adaptive run may be filtered.

A filter may stop an adaptively chosen sequence before one number is overspent, and the whole run then has the
guarantee of that number, if the number is one of these:

===============  ===================  =========================================================================
currency         adds up              why stopping at a data-dependent time is safe
===============  ===================  =========================================================================
``zcdp``         rho                  exp((a-1)(L_t - a sum rho_i)) is a supermartingale for every order a at once
                                      (Feldman & Zrnic 2021; Whitehouse et al. 2023)
``gdp``          mu^2                 fully adaptive Gaussian DP (Smith & Thakurta 2022; Koskela et al. 2023)
``rdp``          D_a, one order a     the same supermartingale, for the one order fixed before the run
``pure``         epsilon              basic composition (Rogers et al. 2016)
``approximate``  epsilon, and delta   basic composition of (epsilon, delta) pairs (Rogers et al. 2016)
===============  ===================  =========================================================================

**The samplers' own error.** Costs are those of exact laws, and every draw of noise is within total variation
t = `dpdescent.noise.SAMPLER_ERROR` of one. If a run of N draws is (epsilon, d)-DP for exact laws P, then that of the
samplers, P', has P'(S) <= P(S) + Nt <= e^epsilon Q(S) + d + Nt <= e^epsilon Q'(S) + d + (1 + e^epsilon) N t. With
N = 2^40 draws the last term must not exceed 2^-30 of delta: a smaller delta is refused (`smallest_delta`). A delta of
zero, which only ``pure`` takes, means that nothing but this term was left out.

Tracking many Renyi orders and stopping when all are exhausted is *not* a filter: at two orders it can nearly
double delta. That is why ``rdp`` takes exactly one.

**Failures.** A mechanism may break its promise with a probability d_i of its own, such as that of publishing a level
which one unit alone holds (`ThresholdedGaussian`). A ledger keeps a part D of delta for the sum of all d_i, its
currency's ``uncounted``, and counts the rest, d_0. *The run is (epsilon, D + d_0)-DP.* Proof, for neighbours with
laws P and Q of the whole run, where each mechanism is, outside an event of probability at most d_i that is
independent of what it releases otherwise, one that the currency prices. No such event happens with a probability of
at least the product of the 1 - d_i, and that is at least 1 - D, because the d_i are chosen before each release and
their sum is kept below D. Thin this event by an independent coin to probability 1 - D exactly, on both tables. Then
P = D P' + (1 - D) P~ and Q = D Q' + (1 - D) Q~, where P~ and Q~ are runs of priced mechanisms and fit the filter. So
P(S) <= D + (1 - D)(e^epsilon Q~(S) + d_0) <= e^epsilon Q(S) + D + d_0, and the same the other way round. There is no
factor e^epsilon on D, and it counts once, also where a row is replaced (Whitehouse et al. 2023 for zCDP).

References
----------
Feldman, V. & Zrnic, T. (2021). Individual privacy accounting via a Renyi filter. arXiv:2008.11193.
Koskela, A., Tobaben, M. & Honkela, A. (2023). Individual privacy accounting with Gaussian DP. arXiv:2209.15596.
Rogers, R., Roth, A., Ullman, J. & Vadhan, S. (2016). Privacy odometers and filters. arXiv:1605.08294.
Smith, A. & Thakurta, A. (2022). Fully adaptive composition for Gaussian differential privacy. arXiv:2210.17520.
Whitehouse, J. et al. (2023). Fully-adaptive composition in differential privacy. arXiv:2203.05481.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import lru_cache
from typing import Any, ClassVar, Self, TypeVar

from scipy.optimize import brentq

from ..errors import (
    DeltaTooSmall,
    InvalidParameter,
    UnsupportedCost,
    require_nonnegative,
    require_order,
    require_positive,
)
from ..noise import SAMPLER_ERROR
from .conversions import (
    best_order,
    epsilon_to_gdp,
    epsilon_to_rdp,
    epsilon_to_zcdp,
    gdp_to_epsilon,
    rdp_to_epsilon,
    zcdp_to_epsilon,
)
from .costs import Cost, ExponentialMechanism, Gaussian, Laplace

RUN_DRAWS = 2**40  # draws of noise in all the runs that one budget pays for
SAMPLER_SHARE = Fraction(1, 2**30)  # share of delta that is reserved for the samplers' own error over so many draws
#: Share of delta for failures where levels are to be found: it costs .025% of mu, and lowers their threshold.
FAILURE_SHARE = Fraction(1, 2**8)
_LEAST_FAILURE_SHARE = Fraction(1, 2**20)
_LARGEST_EPSILON = 64.0

AnyCost = TypeVar("AnyCost", bound=Cost)


class Currency(ABC):
    """One number that adds up under adaptive composition, and its exchange rate to (epsilon, delta)."""

    name: ClassVar[str]
    #: Share of delta for what the currency does not count: mechanisms with a delta of their own, and the samplers,
    #: to whom `SAMPLER_SHARE` of delta belongs.
    uncounted: Fraction = _LEAST_FAILURE_SHARE

    @abstractmethod
    def price(self, cost: Cost) -> float:
        """Return what ``cost`` adds to the total, rounded up."""

    @abstractmethod
    def budget(self, epsilon: float, delta: float) -> float:
        """Return the largest total that still gives (epsilon, delta)."""

    @abstractmethod
    def epsilon(self, total: float, delta: float) -> float:
        """Return the epsilon that a spent total gives at ``delta``."""

    def to_dict(self) -> dict[str, Any]:
        """Return plain data from which `currency_from_dict` builds the same currency."""
        return {"name": self.name}

    def with_failures(self, share: Fraction = FAILURE_SHARE) -> Currency:
        """Return the currency with another share of delta for mechanisms that may fail, if it counts none itself."""
        return self

    def gaussian(self, amount: float) -> Gaussian:
        """Return the least noisy `Gaussian` that costs at most ``amount``."""
        return _gaussian(self, amount)

    def selection(self, amount: float) -> ExponentialMechanism:
        """Return the least noisy `ExponentialMechanism` that costs at most ``amount``."""
        return _selection(self, amount)

    def laplace(self, amount: float) -> Laplace:
        """Return the least noisy `Laplace` that costs at most ``amount``."""
        return calibrate(Laplace, amount, self)


@dataclass(frozen=True)
class _Counting(Currency):
    """A currency that counts no failures, and keeps a share of delta for them."""

    uncounted: Fraction = field(default=_LEAST_FAILURE_SHARE, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        if not SAMPLER_SHARE < self.uncounted <= Fraction(1, 2):
            raise InvalidParameter("the share of delta that is kept for failures lies between 2^-30 and 1/2")

    def with_failures(self, share: Fraction = FAILURE_SHARE) -> Self:
        return replace(self, uncounted=Fraction(share))

    def to_dict(self) -> dict[str, Any]:
        kept = {} if self.uncounted == _LEAST_FAILURE_SHARE else {"failure_share": float(self.uncounted)}
        return super().to_dict() | kept


@dataclass(frozen=True)
class ZCDP(_Counting):
    """Zero-concentrated differential privacy: the sum of rho."""

    name: ClassVar[str] = "zcdp"

    def price(self, cost: Cost) -> float:
        return cost.zcdp()

    def budget(self, epsilon: float, delta: float) -> float:
        return epsilon_to_zcdp(epsilon, delta)

    def epsilon(self, total: float, delta: float) -> float:
        return zcdp_to_epsilon(total, delta)


@dataclass(frozen=True)
class GDP(_Counting):
    """Gaussian differential privacy: the sum of mu^2."""

    name: ClassVar[str] = "gdp"

    def price(self, cost: Cost) -> float:
        return cost.mu_squared()

    def budget(self, epsilon: float, delta: float) -> float:
        mu = epsilon_to_gdp(epsilon, delta)
        return mu * mu * (1 - 1e-11)

    def epsilon(self, total: float, delta: float) -> float:
        return gdp_to_epsilon(math.sqrt(total) * (1 + 2.0**-51), delta)


@dataclass(frozen=True)
class RDP(_Counting):
    """Renyi differential privacy at one order, fixed before the run."""

    name: ClassVar[str] = "rdp"
    order: float

    def __post_init__(self) -> None:
        super().__post_init__()
        require_order(self.order)

    def price(self, cost: Cost) -> float:
        return cost.rdp(self.order)

    def budget(self, epsilon: float, delta: float) -> float:
        return epsilon_to_rdp(epsilon, delta, self.order)

    def epsilon(self, total: float, delta: float) -> float:
        return rdp_to_epsilon(total, self.order, delta)

    def to_dict(self) -> dict[str, Any]:
        return super().to_dict() | {"order": self.order}


@dataclass(frozen=True)
class Pure(Currency):
    """Pure differential privacy: the sum of epsilon. The budget holds at every delta, zero included.

    **Privacy** A delta of zero is that of the laws. The samplers are within `dpdescent.noise.SAMPLER_ERROR` of them,
    so that a run of N draws is (epsilon, (1 + e^epsilon) N 2^-240)-DP.
    """

    name: ClassVar[str] = "pure"

    def price(self, cost: Cost) -> float:
        epsilon = cost.pure()
        if math.isinf(epsilon):
            raise UnsupportedCost(f"{cost} is not pure DP: use a zcdp, gdp or rdp ledger")
        return epsilon

    def budget(self, epsilon: float, delta: float) -> float:
        return require_positive("epsilon", epsilon)

    def epsilon(self, total: float, delta: float) -> float:
        return total


@dataclass(frozen=True)
class Approximate(Currency):
    """The sum of epsilon and the sum of delta of mechanisms that are (epsilon, delta)-DP, side by side."""

    name: ClassVar[str] = "approximate"
    uncounted = Fraction(1)

    def price(self, cost: Cost) -> float:
        epsilon = cost.pure()
        if math.isinf(epsilon):
            raise UnsupportedCost(f"{cost} has no (epsilon, delta) of its own: use a zcdp, gdp or rdp ledger")
        return epsilon

    def budget(self, epsilon: float, delta: float) -> float:
        return require_positive("epsilon", epsilon)

    def epsilon(self, total: float, delta: float) -> float:
        return total


def sampler_delta(epsilon: float) -> float:
    """Return (1 + e^epsilon) N t, what the samplers' own error over N = 2^40 draws adds to delta; 1 at most."""
    epsilon = require_positive("epsilon", epsilon)
    return min(1.0, RUN_DRAWS * SAMPLER_ERROR * (1 + math.exp(min(epsilon, 700.0))))


def smallest_delta(epsilon: float) -> float:
    """Return the least positive delta for which the samplers' own error is negligible.

    It is (1 + e^epsilon) N t/2^-30 for N = 2^40 draws within total variation t of their laws: 2.5e-51 at epsilon = 1.

    **Privacy** Above epsilon = 64 the value is that at 64. Such an epsilon protects nobody; it only means little
    noise. The samplers, whose draws are bounded, cannot provide an epsilon of several hundred. The statement of a
    ledger says how much they fall short (`sampler_delta`).
    """
    return sampler_delta(min(require_positive("epsilon", epsilon), _LARGEST_EPSILON)) / float(SAMPLER_SHARE)


def require_supported_delta(epsilon: float, delta: float) -> None:
    """Raise `DeltaTooSmall` if ``delta`` is positive and below `smallest_delta`."""
    least = smallest_delta(epsilon)
    if 0 < require_nonnegative("delta", delta) < least:
        raise DeltaTooSmall(
            f"delta {delta:g} is too small for epsilon {epsilon:g}: the distance of the samplers from their laws "
            f"would count beside it; the smallest delta supported is {1.006 * least:.3g}, or 0 with currency 'pure'"
        )


def currency_named(name: str | Currency, epsilon: float, delta: float, order: float | None = None) -> Currency:
    """Return the currency called ``name``; an RDP order that is not given follows from (epsilon, delta).

    Raises `DeltaTooSmall` if the samplers' own error would not be negligible beside ``delta``.
    """
    require_supported_delta(epsilon, delta)
    if isinstance(name, Currency):
        return name
    if name == RDP.name:
        return RDP(require_order(best_order(epsilon, delta) if order is None else order))
    if order is not None:
        raise InvalidParameter(f"order is only for currency 'rdp', not for {name!r}")
    for plain in (ZCDP(), GDP(), Pure(), Approximate()):
        if plain.name == name:
            return plain
    raise InvalidParameter(f"unknown currency {name!r}: choose one of 'zcdp', 'gdp', 'rdp', 'pure', 'approximate'")


def currency_from_dict(data: dict[str, Any]) -> Currency:
    """Build a currency from the plain data of `Currency.to_dict`."""
    currency = currency_named(data["name"], 1.0, 0.5, data.get("order"))
    kept = data.get("failure_share")
    return currency if kept is None else currency.with_failures(Fraction(require_positive("failure_share", kept)))


def calibrate(family: Callable[[float], AnyCost], amount: float, currency: Currency) -> AnyCost:
    """Return the strongest member of a one-parameter family that costs at most ``amount``.

    ``family`` maps a positive strength to a cost that grows with it, for instance ``ExponentialMechanism`` itself, or
    ``lambda s: Gaussian(1 / s)``. ``amount`` is in units of ``currency``, which is that of the filter.
    """
    # A share of a budget may have been rounded up. The last digits are not spent, so that all shares fit together.
    amount = require_positive("amount", amount) * (1 - 2.0**-50)

    def excess(log_strength: float) -> float:
        return math.log(currency.price(family(math.exp(log_strength)))) - math.log(amount)

    # Most prices are quadratic in the strength, and then this is the answer already.
    strength = math.sqrt(amount / currency.price(family(1.0)))
    if abs(excess(math.log(strength))) > 1e-14:
        low = high = math.log(strength)
        while excess(low) > 0:
            low -= 2.0
        while excess(high) < 0:
            high += 2.0
        strength = math.exp(brentq(excess, low, high, xtol=1e-15, rtol=1e-15))
    shrink = 2.0**-52
    while currency.price(family(strength)) > amount:
        strength *= 1 - shrink
        shrink *= 2
    return family(strength)


def strongest(
    family: Callable[[float], AnyCost],
    charged: Callable[[AnyCost], Cost],
    amount: float,
    currency: Currency,
    most: float,
) -> AnyCost:
    """Return the least noisy member of a family for which the charge is at most ``amount``.

    ``family`` maps a strength, up to ``most``, to a mechanism, and ``charged`` a mechanism to what is charged for it.
    """
    require_positive("amount", amount)
    if currency.price(charged(family(most))) <= amount:
        return family(most)
    tried = [most]

    def priced(strength: float) -> Cost:
        tried.append(min(strength, most))
        return charged(family(tried[-1]))

    calibrate(priced, amount, currency)
    return family(tried[-1])


# A run asks for the same few amounts again and again.
@lru_cache(maxsize=1024)
def _gaussian(currency: Currency, amount: float) -> Gaussian:
    return calibrate(lambda strength: Gaussian(1 / strength), amount, currency)


@lru_cache(maxsize=1024)
def _selection(currency: Currency, amount: float) -> ExponentialMechanism:
    return calibrate(ExponentialMechanism, amount, currency)
