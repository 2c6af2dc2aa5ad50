"""The state of a descent by backtracking line search: averages, budgets, step sizes, and the noise of a search.

All of it is public.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..accounting import PRINTED_ORDERS, AboveThreshold, Composed, Cost, Currency, Gaussian, NoiseName
from ..arrays import Floats
from ..curator import Batch, Curator, Sampling
from ..errors import InvalidParameter
from ..problems import Frame
from ..queries import finest_clipped_sum
from ..relations import Relation
from .coordinates import FRAME_SHARES, measure_frame
from .rules import Facts, clip_multiple, effective_rows, gradient_deviation, longest_step

if TYPE_CHECKING:
    from .blsgd import BLSGDSettings as Settings


_MANY_CELLS = 2.0**28
_DRIFT = 2.0**0.1
_SHARPEST = 64.0  # the noise is then 1/64 of what one row can change; more budget would not improve anything
_FARTHEST = 2.0**20  # how far the longest step may drift from where it began
_QUIET = 2.0**-8  # with so little noise a search does not fail because of it


class Average:
    """A weighted mean of released vectors; ``squares`` gives the variance of its noise."""

    def __init__(self, shape: tuple[int, ...]) -> None:
        self.total, self.weight, self.squares = np.zeros(shape), 0.0, 0.0

    def add(self, vector: Floats, weight: float) -> None:
        self.total = self.total + weight * vector
        self.weight, self.squares = self.weight + weight, self.squares + weight

    def discount(self, factor: float) -> None:
        self.total, self.weight, self.squares = factor * self.total, factor * self.weight, factor**2 * self.squares

    def joined(self, other: Average) -> Average:
        both = Average(self.total.shape)
        both.total, both.weight = self.total + other.total, self.weight + other.weight
        both.squares = self.squares + other.squares
        return both

    @property
    def mean(self) -> Floats:
        return np.asarray(self.total / self.weight, dtype=np.float64)


def angle_between(first: Floats, second: Floats) -> float:
    """Return the angle between two vectors, in radians."""
    lengths = float(np.linalg.norm(first) * np.linalg.norm(second))
    return math.acos(min(max(float(np.vdot(first, second)) / max(lengths, 1e-300), -1.0), 1.0))


@dataclass(frozen=True)
class Budget:
    """How noisy the next answers are, and how rows are clipped for them."""

    gradient: Gaussian
    search: AboveThreshold
    clip_gradient: float
    clip_loss: float

    def after_failure(self, angle: float, usual: float, settings: Settings, shrink: bool) -> tuple[Budget, bool]:
        """Return the budget after a failed search, and whether the gradient's grew (CHEB of the paper)."""
        adaptive, more = settings.allocation == "adaptive", 1 + settings.growth
        if settings.allocation == "must" or (
            adaptive and (angle > math.pi / 2 or angle > settings.angle_high * usual)
        ):
            decay = 1 - settings.clip_decay * shrink
            return replace(
                self,
                gradient=Gaussian(self.gradient.noise_multiplier / math.sqrt(more)),
                clip_gradient=decay * self.clip_gradient,
                clip_loss=decay * self.clip_loss,
            ), True
        if adaptive and angle < settings.angle_low * usual:
            return replace(self, search=_sharpened(self.search, more)), False
        return self, False

    def next_gradient(self, bought: float, settings: Settings) -> Gaussian:
        """Return the noise of another gradient at a point where measurements worth ``bought`` were not enough."""
        if settings.allocation == "accumulate":
            return Gaussian(1 / math.sqrt(settings.growth * bought))
        return self.gradient


def _sharpened(search: AboveThreshold, factor: float) -> AboveThreshold:
    """Return a search with less noise, but not less than the level at which noise no longer makes it fail."""
    factor = max(1.0, min(factor, search.query_scale / _QUIET))
    return replace(search, query_scale=search.query_scale / factor, threshold_scale=search.threshold_scale / factor)


class Ladder:
    """Steps from long to short. The longest adapts to the chosen ones, and is about twice as long as needed."""

    def __init__(self, first: float, settings: Settings) -> None:
        self._first, self._settings = first, settings
        self._range = first / _FARTHEST, first * _FARTHEST
        self._ratios = float(settings.backtrack or 0) ** np.arange(int(settings.max_steps or 0))

    def steps(self) -> Floats:
        return np.asarray(self._first * self._ratios, dtype=np.float64)

    def follow(self, chosen: int | None) -> None:
        vote = 2 if chosen is None else min(chosen, 2)
        self._first = min(max(self._first * _DRIFT ** (1 - vote), self._range[0]), self._range[1])


class PrintedLadder(Ladder):
    """The paper's: every tau iterations the longest step falls to varsigma times the longest that was chosen."""

    def __init__(self, first: float, settings: Settings) -> None:
        super().__init__(first, settings)
        self._recent: list[float] = []

    def follow(self, chosen: int | None) -> None:
        if chosen is not None:
            self._recent.append(self._first * float(self._ratios[chosen]))
            if len(self._recent) == self._settings.window:
                self._first = min(self._settings.stretch * max(self._recent), self._first)
                self._recent.clear()


class Slope(NamedTuple):
    """How steep a direction is: the decrease that a search demands, and the clip bound of a row's loss."""

    demanded: float
    steepest: float


@dataclass
class Plan:
    """What a run starts from, and what it learns from released answers."""

    curator: Curator
    settings: Settings
    gradients: Sampling
    searches: Sampling
    frame: Frame | None
    row_length: float
    budget: Budget
    ladder: Ladder
    memory: Average
    usual_angle: float = math.pi / 2
    last: Floats | None = None
    unspendable: float = 0.0  # of the budget, which the paper's conversion does not know of

    def affords(self, noise: Gaussian) -> bool:
        """Return whether the filter accepts a gradient and the search after it."""
        return self._accepts(_attempt(self.settings, self.gradients, self.searches, noise, self.budget.search))

    def _accepts(self, cost: Cost) -> bool:
        left = self.curator.remaining - self.unspendable
        return self.curator.affords(cost) and (not self.unspendable or self.curator.currency.price(cost) <= left)

    def draw_for_search(self) -> Batch | None:
        """Return a batch for a search, or None where the budget cannot pay for it any more."""
        affordable = self._accepts(self.searches.cost(self.budget.search))
        return Batch(self.searches, (self.budget.search,)) if affordable else None

    def draw(self, noise: Gaussian) -> Batch:
        """Return a batch for a gradient, and for the search if they share one."""
        if self.settings.same_batch:
            return Batch(self.gradients, (noise, self.budget.search), "gradient and step size")
        return Batch(self.gradients, (noise,))

    def direction(self, averaged: Average) -> tuple[Floats, Slope]:
        """Return the direction, which older gradients share, and how steep it is without the noise in it."""
        average = self.memory.joined(averaged)
        mean = average.mean
        along = mean if self.frame is None else self.frame.weights(mean)
        squared = float(np.vdot(mean, mean))
        unit = gradient_deviation(self.curator, self.budget.clip_gradient, Gaussian(1.0), self.gradients.size)
        noise = mean.size * average.squares * (unit / average.weight) ** 2
        return along, Slope(max(squared - noise, 0.0), 0.5 * self.row_length * math.sqrt(squared))

    def remember(self, averaged: Average) -> None:
        """Keep the gradient of the last point, and its angle to the gradient of the point before."""
        self.memory = self.memory.joined(averaged)
        if self.last is not None:
            angle = angle_between(averaged.mean, self.last)
            self.usual_angle += (1 - self.settings.angle_memory) * (angle - self.usual_angle)
        self.last = averaged.mean


def batch_rates(settings: Settings, facts: Facts) -> tuple[float, float]:
    """Return the share of the rows in the batch of a gradient and in that of a search."""
    fits = _MANY_CELLS / (facts.rows * facts.parameters)
    gradient = min(0.5, fits / 2) if settings.sampling_rate is None else settings.sampling_rate
    search = min(1.0, fits) if settings.search_rate is None else settings.search_rate
    return gradient, gradient if settings.same_batch else search


def printed_plan(curator: Curator, settings: Settings) -> Plan:
    """Return the paper's plan: iterations start with epsilon/(2 iterations) for the gradient and for the search."""
    rates = batch_rates(settings, Facts.of(curator))
    printed = settings.price == "paper"
    gradients, searches = (replace(curator.sampling(rate), printed=printed) for rate in rates)
    gradient, search = _printed_noise(settings, curator.ledger.epsilon)
    budget = Budget(gradient, search, float(settings.clip_gradient or 0), settings.clip_loss or math.inf)
    ladder, memory = PrintedLadder(float(settings.first_step or 0), settings), Average(curator.problem.shape)
    length = curator.problem.longest_row
    plan = Plan(curator, settings, gradients, searches, None, length, budget, ladder, memory)
    curator.require_affordable(Composed((_attempt(settings, gradients, searches, gradient, search),)))
    if printed:
        epsilon, delta = curator.ledger.epsilon, curator.ledger.delta
        allowed = _printed_budget(epsilon, delta, float(getattr(curator.currency, "order", math.inf)))
        plan.unspendable = max(curator.budget - allowed, 0.0)
        if not plan.affords(gradient):
            raise InvalidParameter(
                "the budget does not pay for one iteration at the paper's price: choose price 'true'"
            )
    return plan


def printed_order(settings: Settings, facts: Facts) -> int:
    """Return the paper's order at which the first iteration costs the least share of the budget."""
    gradients, searches = (
        Sampling(Relation.parse(facts.relation), facts.rows, rate, printed=True)
        for rate in batch_rates(settings, facts)
    )
    attempt = _attempt(settings, gradients, searches, *_printed_noise(settings, facts.epsilon))
    orders = sorted({round(PRINTED_ORDERS[-1] * 2.0 ** (-k / 4)) for k in range(33)} & set(PRINTED_ORDERS))
    left = {order: _printed_budget(facts.epsilon, facts.delta, order) for order in orders}
    if left[orders[-1]] <= 0:
        raise InvalidParameter(
            f"none of the paper's orders, 2 to {PRINTED_ORDERS[-1]}, certifies epsilon {facts.epsilon:g} at delta "
            f"{facts.delta:g}: choose the setting price of the method to be 'true', or a larger epsilon"
        )
    certifying = [order for order in orders if left[order] > 0]
    return int(min(certifying, key=lambda order: attempt.rdp(order) / left[order]))


def _printed_budget(epsilon: float, delta: float, order: float) -> float:
    """Return what the paper's conversion (Proposition 1) lets a run spend: epsilon - log(1/delta)/(a - 1)."""
    return epsilon - math.log(1 / delta) / (order - 1)


def _printed_noise(settings: Settings, epsilon: float) -> tuple[Gaussian, AboveThreshold]:
    """Return the noise of the first gradient and of the first search, each for epsilon/(2 iterations)."""
    each = epsilon / (2 * (settings.iterations or 50.0))
    query, threshold = (4.0, 2.0) if settings.noise == "laplace" else (math.sqrt(6), math.sqrt(3))
    kind = settings.noise or "laplace"
    return Gaussian(1 / each), AboveThreshold(int(settings.max_steps or 0), query / each, threshold / each, kind)


def measure_plan(curator: Curator, settings: Settings) -> Plan:
    """Pay for a frame and measure it; plan the rest from it and from public facts."""
    gradients, searches = (curator.sampling(rate) for rate in batch_rates(settings, Facts.of(curator)))
    max_steps = int(settings.max_steps or 0)
    richness = effective_rows(curator, float(np.prod(curator.problem.shape)))
    planned = settings.iterations or min(max(10 * math.sqrt(richness), 10.0), 150.0)
    shares = FRAME_SHARES[: 1 + curator.problem.intercept]
    amount = (1 - sum(shares)) * curator.budget / planned
    gradient = gradients.gaussian((1 - settings.share_search) * amount, curator.currency)
    finest_clipped_sum(curator.public(gradients), 1.0, gradient)  # raises where that much noise cannot be drawn
    search = search_noise(searches, settings.share_search * amount, curator.currency, max_steps, settings.noise)
    columns = [curator.ledger.currency.gaussian(share * curator.budget) for share in shares]
    # What cannot be drawn or paid is refused here, before the first charge.
    curator.require_affordable(Composed((*columns, _attempt(settings, gradients, searches, gradient, search))))
    frame, row_length = measure_frame(curator)
    clip = settings.clip_gradient or clip_multiple(richness, 0.25, 0.2) * row_length
    noise = gradient_deviation(curator, clip, gradient, gradients.size)
    first = settings.first_step or 2 * longest_step(curator, row_length, noise, planned)
    budget = Budget(gradient, search, clip, settings.clip_loss or math.inf)
    memory = Average(curator.problem.shape)
    return Plan(curator, settings, gradients, searches, frame, row_length, budget, Ladder(first, settings), memory)


def _attempt(
    settings: Settings, gradients: Sampling, searches: Sampling, noise: Gaussian, search: AboveThreshold
) -> Cost:
    """Return what a gradient and the search after it cost."""
    if settings.same_batch:
        return gradients.cost(noise, search)
    return Composed((gradients.cost(noise), searches.cost(search)))


def search_noise(
    sampling: Sampling,
    amount: float,
    currency: Currency,
    max_queries: int,
    noise: NoiseName | None = None,
    threshold: float | None = None,
) -> AboveThreshold:
    """Return the least noise for a search on a batch of its own that ``amount`` pays for.

    ``threshold`` is the noise of the threshold, as a multiple of that of the queries. By default `choose_noise`
    decides.
    """
    kind, ratio = choose_noise(currency, amount, max_queries, sampling.rate, noise)
    ratio = ratio if threshold is None else threshold
    return sampling.strongest(
        lambda s: AboveThreshold(max_queries, 1 / s, ratio / s, kind), amount, currency, _SHARPEST
    )


def choose_noise(
    currency: Currency, amount: float, max_queries: int, rate: float, noise: NoiseName | None = None
) -> tuple[NoiseName, float]:
    """Return the noise of a search and that of its threshold, as a multiple: a rule of rho and the queries k.

    On batches Laplace noise with half of it on the threshold: pure DP amplifies at every order. On all rows the
    noise of a comparison is least with Gaussian noise on the queries alone while k rho <= 0.001, with 0.4 of it on
    the threshold up to 0.1, and with Laplace noise beyond; rho is what a Gaussian of that price has.
    """
    if noise == "laplace" or (noise is None and (rate < 1 or currency.name in ("pure", "approximate"))):
        return "laplace", 0.5
    spread = max_queries * currency.gaussian(amount).zcdp()
    if noise is None and spread > 0.1:
        return "laplace", 0.5
    # In zCDP the recursion needs threshold noise to be bounded at every order.
    return "gaussian", 0.0 if spread <= 1e-3 and currency.name != "zcdp" else 0.4
