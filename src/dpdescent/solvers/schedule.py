r"""The plan of a descent by noisy gradients: their number, their noise and the step sizes. All of it is public.

Let k = n mu/d be the number of effective rows per parameter, L the typical length of a row, which is measured with a
hundredth of the budget, and s the smoothness of the loss in its margin.

- *Clip norm* C = L max(0.5, 0.3 k^0.4): small where noise dominates, and large where there is little noise.
- *Time* S, the sum of all step sizes. The noise of T gradients moves a typical row's score by about S C L/(n mu),
  however many they are, so S is what makes this 1.2.
- *Steps* T = S s L^2/8 of size S/T, between 50 and 500: within the stability of momentum 0.9 at the curvature s L^2.
- *Sampling rate* 1 as long as the table has at most 2^28 cells. At a fixed number of steps the mean of a batch needs
  no less noise than that of all rows, and has its own sampling error: batches save time, but never reduce the noise.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache

from ..accounting import (
    RDP,
    Currency,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    best_order,
    calibrate,
)
from ..curator import Curator
from ..errors import DPDescentError
from .domains import Count, Fraction, Positive
from .result import Facts
from .rules import clip_multiple
from .series import GradientSeries, measure_row_norm
from .settings import Settings

__all__ = ["DescentSettings", "Schedule", "best_currency", "measure_schedule"]

_SHARE_LENGTH = 0.01
_MANY_CELLS = 2.0**28
_FEWEST_STEPS, _MOST_STEPS = 50, 500
_LONGEST_STEP = 8.0


@dataclass(frozen=True)
class DescentSettings(Settings):
    """What descents by noisy gradients have in common; None takes the rule of this module.

    Parameters
    ----------
    steps : int, optional
        T, the number of gradients, fixed in advance.
    step_size : float, optional
    clip_gradient : float, optional
        C, the norm to which the gradient of each row is clipped.
    sampling_rate : float, optional
        Share of the rows in each batch. Below 1 the batches amplify privacy and are accounted in RDP at one order,
        at 1 all rows are used and accounted in Gaussian DP. With ``paper`` it is 1/sqrt(n).
    """

    steps: Count | None = None
    step_size: Positive | None = None
    clip_gradient: Positive | None = None
    sampling_rate: Fraction | None = None

    def choose_currency(self, facts: Facts) -> str | Currency:
        """Return GDP for all rows, and for batches RDP at the order that needs the least noise, fixed beforehand."""
        rate = _rate(self, facts)
        if rate == 1:
            return "gdp"
        return best_currency(rate, self.steps or _MOST_STEPS, facts.epsilon, facts.delta, facts.relation)


@dataclass(frozen=True)
class Schedule:
    """What a descent starts from."""

    gradients: GradientSeries
    steps: int
    step_size: float
    row_length: float


def measure_schedule(curator: Curator, settings: DescentSettings) -> Schedule:
    """Pay for and measure the length of a typical row, and plan the rest from it and from public facts.

    With ``paper`` all that the length decides is given, and it is not measured.
    """
    facts = Facts.of(curator)
    rate = _rate(settings, facts)
    curator.sampling(rate)  # raises before anything is charged
    length = curator.problem.longest_row if settings.paper else measure_row_norm(curator, _SHARE_LENGTH)
    information = facts.promised_rows
    clip = settings.clip_gradient or clip_norm(information / facts.parameters, length)
    time = 1.2 * information / (clip * length)
    longest = _LONGEST_STEP / (_curvature(curator) * length**2)
    steps = settings.steps or math.ceil(min(max(time / longest, _FEWEST_STEPS), _MOST_STEPS))
    step_size = settings.step_size or min(time / steps, longest)
    gradients = GradientSeries(curator, clip, rate, steps, curator.remaining)
    return Schedule(gradients, steps, step_size, length)


def clip_norm(richness: float, length: float) -> float:
    """Return the clip norm for rows of a typical length, given the effective rows per parameter."""
    return clip_multiple(richness, 0.3, 0.4) * length


@lru_cache(maxsize=64)
def best_currency(rate: float, steps: int, epsilon: float, delta: float, relation: str) -> RDP:
    """Return RDP at the order at which that many Gaussian answers on batches need the least noise."""
    family = PoissonSampled if relation == "zero-out" else FixedSizeSampled

    def strength(order: int) -> float:
        tried = [0.0]

        def sampled(strength: float) -> PoissonSampled | FixedSizeSampled:
            tried.append(strength)
            return family(rate, (Gaussian(1 / strength),))

        try:
            currency = RDP(order)
            calibrate(sampled, currency.budget(epsilon, delta) / steps, currency)
        except DPDescentError:  # an order that cannot certify this epsilon
            return 0.0
        return tried[-1]

    top = best_order(epsilon, delta)
    # High orders take long to price, and low ones do not certify a small epsilon: the best order of a Gaussian does.
    orders = [order for i in range(-8, 3) if (order := max(2, round(top * 2.0 ** (i / 2)))) <= 2000]
    best = max(orders, key=strength, default=top)
    return RDP(best if best == top or strength(best) > 0 else top)


def _rate(settings: DescentSettings, facts: Facts) -> float:
    if settings.sampling_rate is not None:
        return settings.sampling_rate
    if settings.paper:
        return 1 / math.sqrt(facts.rows)
    return min(1.0, _MANY_CELLS / (facts.rows * facts.parameters))


def _curvature(curator: Curator) -> float:
    return min(curator.problem.loss.smoothness, 1.0)
