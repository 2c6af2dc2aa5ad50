"""How noisy the answers of a descent to a second-order point are: the least noise that its budget pays for."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial

from ..accounting import Cost, Currency, Gaussian, strongest
from ..curator import Sampling, batch_cost
from ..relations import Relation
from .search_noise import search_noise
from .stationary import Levels, Tolerances

__all__ = ["make_levels"]

_MOST_STRENGTH = 2.0**30  # more budget would not improve anything


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

    def gaussian(amount: float) -> Gaussian:
        return _strongest(lambda noise: batch_cost(relation, rate, noise), amount, currency)

    if same_batch and rate < 1:
        weights = math.sqrt(share), math.sqrt(1 - share)

        def both(part: Gaussian) -> Cost:
            return batch_cost(relation, rate, *(Gaussian(part.noise_multiplier / weight) for weight in weights))

        joint = _strongest(both, check, currency)
        gradient, hessian = (Gaussian(joint.noise_multiplier / weight) for weight in weights)
    else:
        gradient, hessian = gaussian(share * check), gaussian((1 - share) * check)
    if not tolerances.search:
        return Levels(steps, gradient, hessian, None)
    queries = max(len(tolerances.constants.gradient_ratios), len(tolerances.constants.curvature_ratios))
    search = partial(search_noise, Sampling(relation, 1), searched * amount / steps, currency, queries)
    return Levels(steps, gradient, hessian, search)


def _strongest(charged: Callable[[Gaussian], Cost], amount: float, currency: Currency) -> Gaussian:
    """Return the least Gaussian noise for which the charge is at most ``amount``."""
    return strongest(lambda strength: Gaussian(1 / strength), charged, amount, currency, _MOST_STRENGTH)
