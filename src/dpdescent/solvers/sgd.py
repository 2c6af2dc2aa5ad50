r"""DP-SGD and DP-Adam: a fixed number of noisy, clipped gradients, calibrated to the budget beforehand.

**The plan** Let k = n mu/d be the number of effective rows per parameter, L the typical length of a row, which is
measured with a hundredth of the budget, and s the smoothness of the loss in its margin.

- *Clip norm* C = L max(0.5, 0.3 k^0.4): small where noise dominates, and large where there is little noise.
- *Time* S, the sum of all step sizes. The noise of T gradients moves a typical row's score by about S C L/(n mu),
  however many they are, so S is what makes this 1.2.
- *Steps* T = S s L^2/8 of size S/T, between 50 and 500: within the stability of momentum 0.9 at the curvature s L^2.
- *Sampling rate* 1 as long as the table has at most 2^28 cells. At a fixed number of steps the mean of a batch needs
  no less noise than that of all rows, and has its own sampling error: batches save time, but never reduce the noise.

**DP-SGD** (Abadi et al. 2016) measures the gradient of a batch in each step, the gradient of every row clipped to the
norm C, and moves against a running mean of the answers:

.. math:: v_t = 0.9 v_{t-1} + 0.1 \tilde g_t, \qquad w_{t+1} = w_t - \eta v_t.

``paper=True`` is the SGD-MA of Lee & Kifer (2018): batches of sqrt(n) rows, no momentum, and the last iterate is the
result. Its authors fix the noise, and the moments accountant, with moments up to 32, says for how many steps epsilon
pays (`moments_steps`): for none below log(1/delta)/32, which is 0.576 at delta = 1e-8.

**DP-Adam** is Adam (Kingma & Ba 2015) on the same gradients:

.. math:: m_t = \beta_1 m_{t-1} + (1-\beta_1)\tilde g_t, \quad v_t = \beta_2 v_{t-1} + (1-\beta_2)\tilde g_t^2, \quad
          w_{t+1} = w_t - \eta\, \hat m_t / (\sqrt{\hat v_t} + \epsilon_0),

with hats for the division by 1 - beta^t. Every coordinate moves by about eta per step whatever its scale, noise too,
so the default eta = 1.5/(L sqrt T) lets pure noise move a typical row's score by about 1.5. The result of both is the
average of the last half of the iterates.

**Privacy** T Gaussian mechanisms, fixed in advance. With all rows, mu^2 adds up (Gaussian DP, exact conversion). With
batches, each step costs a Poisson-sampled Gaussian under zero-out, or one on a batch of fixed size under replace-one,
in RDP at one order that is chosen beforehand from public numbers. Momentum, moments and averages are post-processing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..accounting import AdvancedComposition, Currency, Gaussian, PoissonSampled, calibrate
from ..arrays import Floats
from ..curator import Batch, Curator
from ..errors import BudgetExhausted, InvalidParameter, require_positive_integer
from ..queries import Gradient
from .coordinates import measure_row_norm
from .method import Count, Fraction, Positive, Progress, Settings, Share, SolverResult, method, report
from .rules import PAYABLE, QUIET_WALK, Facts, best_currency, clip_norm, gradient_deviation, usual_smoothness

_PASSES = "50 to 500, one for each step"
_MANY_CELLS = 2.0**28
_FEWEST_STEPS, _MOST_STEPS = 50, 500
_LONGEST_STEP = 8.0
MOST_MOMENTS = 32  # those of the moments accountant in the paper's mode


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
class SGDSettings(DescentSettings, paper_mode="sgd"):
    """Settings of `sgd`: those of `DescentSettings` and two more.

    Parameters
    ----------
    momentum : float, optional
        Discount of older gradients, in [0, 1). Default 0.9; 0 in the paper.
    noise_multiplier : float, optional
        Noise of each gradient in units of its sensitivity, which decides for how many steps the moments accountant
        pays: 4 with ``paper``, and nowhere else. Where ``steps`` are given, the noise follows from them.
    """

    momentum: Share | None = None
    noise_multiplier: Positive | None = None

    rest: ClassVar[Mapping[str, object]] = {"momentum": 0.9}

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.noise_multiplier is not None and not self.paper:
            raise InvalidParameter("noise_multiplier is for the paper's algorithm only: pass paper as well")

    def choose_currency(self, facts: Facts) -> str | Currency:
        """Return the currency of `DescentSettings`, for the steps that the paper's noise leaves."""
        if self.steps is None and self.noise_multiplier is not None:
            rate = _rate(self, facts)
            steps = moments_steps(rate, self.noise_multiplier, facts.epsilon, facts.delta)
            return best_currency(rate, steps, facts.epsilon, facts.delta, facts.relation) if rate < 1 else "gdp"
        return super().choose_currency(facts)


@method(
    "sgd",
    SGDSettings,
    purpose="DP-SGD, with rules in place of a learning rate: a baseline",
    passes=_PASSES,
    papers=("Abadi et al. 2016",),
    rereads=True,
)
def sgd(curator: Curator, settings: SGDSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-SGD."""
    fixed = settings.noise_multiplier if settings.steps is None else None
    schedule = (
        measure_schedule(curator, settings) if fixed is None else plan_printed(curator, settings, Gaussian(fixed))
    )
    weights = np.zeros(curator.problem.shape)
    velocity, average = np.zeros_like(weights), np.zeros_like(weights)
    averaged = 1 if settings.paper else schedule.steps - schedule.steps // 2
    momentum = float(settings.momentum or 0)
    for step in range(schedule.steps):
        gradient = schedule.gradients.measure(weights)
        velocity = momentum * velocity + (1 - momentum) * gradient
        weights = weights - schedule.step_size * velocity
        if step >= schedule.steps - averaged:
            average += weights / averaged
        report(progress, 1 - curator.remaining / curator.budget)
    return SolverResult(average, schedule.steps, (schedule.step_size,) * schedule.steps)


@dataclass(frozen=True)
class AdamSettings(DescentSettings, paper_mode="adam"):
    """Settings of `adam`: those of `DescentSettings` and three more.

    Parameters
    ----------
    beta1, beta2 : float
        Discounts of older gradients and of older squares, in [0, 1).
    offset : float
        epsilon_0, which keeps a coordinate without any gradient still.
    """

    beta1: Share = 0.9
    beta2: Share = 0.999
    offset: Positive = 1e-8


@method(
    "adam",
    AdamSettings,
    purpose="DP-Adam, with rules in place of a learning rate: a baseline",
    passes=_PASSES,
    papers=("Abadi et al. 2016", "Kingma & Ba 2015"),
    rereads=True,
)
def adam(curator: Curator, settings: AdamSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-Adam."""
    schedule = measure_schedule(curator, settings)
    steps = schedule.steps
    step_size = settings.step_size or 1.5 / (schedule.row_length * math.sqrt(steps))
    weights = np.zeros(curator.problem.shape)
    first, second, average = np.zeros_like(weights), np.zeros_like(weights), np.zeros_like(weights)
    averaged = 1 if settings.paper else steps - steps // 2
    for step in range(1, steps + 1):
        gradient = schedule.gradients.measure(weights)
        first = settings.beta1 * first + (1 - settings.beta1) * gradient
        second = settings.beta2 * second + (1 - settings.beta2) * gradient**2
        mean, square = first / (1 - settings.beta1**step), second / (1 - settings.beta2**step)
        weights = weights - step_size * mean / (np.sqrt(square) + settings.offset)
        if step > steps - averaged:
            average += weights / averaged
        report(progress, 1 - curator.remaining / curator.budget)
    return SolverResult(average, steps, (step_size,) * steps)


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
    length = curator.problem.longest_row if settings.paper else measure_row_norm(curator)
    information = facts.promised_rows
    clip = settings.clip_gradient or clip_norm(information / facts.parameters, length)
    time = QUIET_WALK * information / (clip * length)
    longest = _LONGEST_STEP / (usual_smoothness(curator.problem.loss) * length**2)
    steps = settings.steps or math.ceil(min(max(time / longest, _FEWEST_STEPS), _MOST_STEPS))
    step_size = settings.step_size or min(time / steps, longest)
    gradients = GradientSeries.costing(curator, clip, rate, steps, curator.remaining)
    return Schedule(gradients, steps, step_size, length)


def plan_printed(curator: Curator, settings: SGDSettings, noise: Gaussian) -> Schedule:
    """Return the paper's schedule: the noise is given, and the steps are those that its accountant pays for.

    They cost less in truth; if a ledger keeps another order than the best, there are only as many as it can pay for.
    """
    facts = Facts.of(curator)
    rate = _rate(settings, facts)
    allowed = moments_steps(rate, noise.noise_multiplier, facts.epsilon, facts.delta)
    price = curator.currency.price(curator.sampling(rate).cost(noise))
    steps = min(allowed, math.floor(PAYABLE * curator.remaining / price))
    if steps == 0:
        curator.require_affordable(curator.sampling(rate).cost(noise))
    clip, length = settings.clip_gradient or 1.0, curator.problem.longest_row
    gradients = GradientSeries(curator, clip, rate, steps, noise)
    return Schedule(gradients, steps, settings.step_size or 1.0, length)


def moments_steps(rate: float, noise_multiplier: float, epsilon: float, delta: float) -> int:
    """Return for how many steps the moments accountant of Abadi et al. (2016), with moments up to 32, pays.

    That is the largest T with (T m a_m + log(1/delta))/m <= epsilon for a moment m, where a_m is the divergence of
    one sampled Gaussian step at order m + 1.
    """
    step = PoissonSampled(rate, (Gaussian(noise_multiplier),)) if rate < 1 else Gaussian(noise_multiplier)
    steps = max((epsilon - math.log(1 / delta) / m) / step.rdp(m + 1) for m in range(1, MOST_MOMENTS + 1))
    if steps < 1:
        raise InvalidParameter(
            f"the moments accountant of the paper, with moments up to {MOST_MOMENTS}, pays for no step at epsilon "
            f"{epsilon:g} and delta {delta:g}: give steps, from which the noise follows, or a larger epsilon"
        )
    return math.floor(steps)


def _rate(settings: DescentSettings, facts: Facts) -> float:
    if settings.sampling_rate is not None:
        return settings.sampling_rate
    if settings.paper:
        return 1 / math.sqrt(facts.rows)
    return min(1.0, _MANY_CELLS / (facts.rows * facts.parameters))


class GradientSeries:
    """A number of gradients, fixed in advance, each from a fresh random batch and with noise of one size.

    The gradient of each row is clipped to the norm C, those of a unit with several rows together. At a
    ``rate`` of 1 there is no batch and no amplification.

    **Privacy** Each gradient is charged by itself, amplified by its batch (`Sampling`), before the batch is drawn;
    those of a ``prepaid`` batch are charged together with the first.
    """

    def __init__(
        self, curator: Curator, clip: float, rate: float, steps: int, noise: Gaussian, prepaid: Batch | None = None
    ) -> None:
        self._curator, self._clip, self._sampling = curator, clip, curator.sampling(rate)
        self.noise, self._prepaid = noise, prepaid
        self.steps = self._left = steps
        curator.require_answerable(self._query(np.zeros(curator.problem.shape)))

    @classmethod
    def costing(cls, curator: Curator, clip: float, rate: float, steps: int, amount: float) -> GradientSeries:
        """Return gradients that cost ``amount`` together, in the curator's currency."""
        price = amount / require_positive_integer("steps", steps)
        return cls(curator, clip, rate, steps, curator.sampling(rate).gaussian(price, curator.currency))

    @classmethod
    def with_advanced_composition(
        cls, curator: Curator, clip: float, rate: float, steps: int, epsilon: float, delta: float
    ) -> GradientSeries:
        """Return gradients that advanced composition makes (epsilon, delta)-DP together, charged with the first."""
        sampling = curator.sampling(rate)
        paid = calibrate(
            lambda strength: AdvancedComposition(1 / strength, sampling.rate, steps, delta), epsilon, curator.currency
        )
        prepaid = Batch.series(sampling, paid, "gradients")
        return cls(curator, clip, rate, steps, Gaussian(paid.noise_multiplier), prepaid)

    def _query(self, weights: Floats) -> Gradient:
        return Gradient(weights, self._clip, self.noise, joint=True)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each coordinate of a gradient."""
        return gradient_deviation(self._curator, self._clip, self.noise, self._sampling.size)

    def measure(self, weights: Floats) -> Floats:
        """Measure and return a noisy gradient of the objective at public ``weights``."""
        if self._left == 0:
            raise BudgetExhausted(f"all of the {self.steps} gradients that were planned have been given")
        batch = self._prepaid or Batch(self._sampling, (self.noise,))
        gradient = self._curator.answer(self._query(weights), batch)
        self._left -= 1
        return gradient
