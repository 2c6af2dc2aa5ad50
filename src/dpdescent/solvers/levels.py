"""How noisy the answers of a descent to a second-order point are: the least noise that its budget pays for."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import TypeVar

from ..accounting import AboveThreshold, Composed, Cost, Currency, Gaussian, calibrate
from ..questions.batches import sampled
from ..questions.search import choose_noise
from ..relations import Relation
from .stationary import Levels, Tolerances

__all__ = ["make_levels"]

AnyPart = TypeVar("AnyPart", Gaussian, AboveThreshold)

_LEAST_NOISE, _SHARPEST_SEARCH = 2.0**-30, 2.0**-6  # more budget buys nothing


@lru_cache(maxsize=16)  # a run asks for the same plan when it checks, promises and starts
def make_levels(
    tolerances: Tolerances, currency: Currency, relation: Relation, amount: float, steps: int, *, same_batch: bool
) -> Levels:
    """Return the noise with which ``amount`` pays for that many steps and for one check more than steps.

    Gradient and Hessian share what is not for the search, in the proportion at which both need the same number of
    rows: a need is proportional to the noise multiplier, whose inverse square is what is paid for. The search gets a
    quarter.
    """
    gradient_need, hessian_need = tolerances.needs(steps)
    ratio = hessian_need / gradient_need
    share = 1 / (1 + ratio * ratio)
    rate, searched = tolerances.rate, 0.25 if tolerances.search else 0.0
    check = (1 - searched) * amount / (steps + 1)

    def on_batch(*parts: Gaussian) -> Cost:
        if rate < 1:
            return sampled(relation, rate, *parts)
        return parts[0] if len(parts) == 1 else Composed(parts)

    def gaussian(amount: float) -> Gaussian:
        return _strongest(lambda s: Gaussian(1 / s), on_batch, amount, currency, 1 / _LEAST_NOISE)

    if same_batch and rate < 1:
        weights = math.sqrt(share), math.sqrt(1 - share)

        def both(part: Gaussian) -> Cost:
            return on_batch(*(Gaussian(part.noise_multiplier / weight) for weight in weights))

        joint = _strongest(lambda s: Gaussian(1 / s), both, check, currency, 1 / _LEAST_NOISE)
        gradient, hessian = (Gaussian(joint.noise_multiplier / weight) for weight in weights)
    else:
        gradient, hessian = gaussian(share * check), gaussian((1 - share) * check)
    if not tolerances.search:
        return Levels(steps, gradient, hessian, None)
    queries = max(len(tolerances.constants.gradient_ratios), len(tolerances.constants.curvature_ratios))
    return Levels(steps, gradient, hessian, partial(_search_noise, queries, searched * amount / steps, currency))


def _search_noise(queries: int, amount: float, currency: Currency) -> AboveThreshold:
    """Return the least noise of a search on all rows that ``amount`` pays for."""
    kind, ratio = choose_noise(currency, amount, queries, 1.0)

    def family(strength: float) -> AboveThreshold:
        return AboveThreshold(queries, 1 / strength, ratio / strength, kind)

    return _strongest(family, lambda part: part, amount, currency, 1 / _SHARPEST_SEARCH)


def _strongest(
    family: Callable[[float], AnyPart],
    charged: Callable[[AnyPart], Cost],
    amount: float,
    currency: Currency,
    most: float,
) -> AnyPart:
    """Return the least noisy member of a family for which the charge is at most ``amount``."""
    if currency.price(charged(family(most))) <= amount:
        return family(most)
    tried = [most]

    def priced(strength: float) -> Cost:
        tried.append(min(strength, most))
        return charged(family(tried[-1]))

    calibrate(priced, amount, currency)
    return family(tried[-1])
