"""DP-BLSGD: descent whose step sizes come from a private backtracking line search.

Each iteration measures a noisy gradient on one random batch and then searches, from long steps to short ones, for
the first that lowers the objective enough (Armijo's condition), on a batch of its own (`queries.line_search`).
If none does, the gradient is measured once more. The angle between the two measurements shows what was too noisy. If
they are far apart, gradients get more budget from then on; if they are close, searches do. The two measurements are
averaged.

- `blsgd`: batches. ``same_batch`` measures and searches on one batch, amplified together.
- `blgd`: all rows, and the budget rule of DP-AGD: after a failed search the gradient gets a little more budget.
- `blsgd-ac`: both clip norms shrink, once per iteration, when the gradient's budget grows.

The defaults go beyond the paper with public rules and a small, paid release: a frame in which columns are centred and
of comparable scale, a memory of released gradients, demands that are corrected for the noise of the gradient, step
sizes that adapt to the chosen ones, and an average of the iterates. With these defaults a search seldom fails with
gradients far apart. Then the clip norms of `blsgd-ac` stay what they are, and it returns what `blsgd` does: so it did
in 20 of 24 runs on Adult, BANK, acs-income and a synthetic table at epsilon 0.05 to 0.8.

``paper=True`` runs the paper's algorithm with its settings: losses are clipped to [0, C_obj], which is the noise of
every step, two measurements are averaged half and half, the budget of `blgd` stays as high as it has grown, and the
start is random. `PAPER_MODES` says where it differs on purpose. An answer is charged the paper's price, or its true
one if that is more (``price``).

**Privacy** Every answer is charged to one scalar filter, RDP at an order that is fixed before the run, with its
amplified cost or the paper's price if that is more, before rows are touched. Sums are divided by the public size of a
batch. Every attempt draws fresh batches, so no batch is searched twice. Budgets and clip norms change with released
answers only.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from ..accounting import RDP, AboveThreshold, Currency, Gaussian, NoiseName, best_order
from ..arrays import Floats
from ..curator import Batch, Curator
from ..errors import InvalidParameter
from ..queries import FirstStep, Gradient
from .backtracking import Average, Plan, Slope, angle_between, batch_rates, measure_plan, printed_order, printed_plan
from .method import Count, Part, Payment, Progress, Rate, Settings, Share, SolverResult, Within, method, report
from .rules import Facts, best_currency

_MOST_ITERATIONS = 150
_PASSES = "a batch and a search for each of about 10 to 150 steps"
_FLAT = 1e-12  # a direction along which no loss changes
# Settings beyond these would be refused by some later query, when the first ones have been paid for.
_Size = Annotated[float, Within(2.0**-40, 2.0**40)]
_MOST_STEPS, _SHORTEST = 2**16, 2.0**-100


@dataclass(frozen=True)
class BLSGDSettings(Settings, paper_mode="blsgd"):
    """Settings of `blsgd`. The defaults are rules of public quantities, the same for every table.

    Parameters
    ----------
    sampling_rate : float, optional
        q: share of the rows in the batch of a gradient. Default 0.5, and less where the table has over 2^27 cells.
    search_rate : float, optional
        Share of the rows that are searched. By default all up to 2^28 cells: a search costs one pass over the rows,
        and its tighter Renyi bound on all rows gains more than amplification does.
    same_batch : bool
        Search on the batch of the gradient.
    iterations : float, optional
        Planned number of iterations. By default 10 sqrt(k), between 10 and 150, where k = n mu/d. In the paper each
        starts with the budgets epsilon/(2 iterations) of its gradient and of its search.
    share_search : float
        Share of an iteration's budget that pays for the search; not in the paper's settings, where epsilon counts.
    decrease, backtrack, max_steps : float, float, int, optional
        alpha, beta and max_it of the search. Defaults 0.3, 0.5 and 6.
    first_step : float, optional
        eta_0, the longest step at first.
    window, stretch : int, float
        tau and varsigma: every tau iterations eta_0 falls to varsigma times the longest recent step, in the paper.
    allocation : {"adaptive", "must", "no", "accumulate"}
        What a failed search changes: the budget that the angle test selects, always the gradient's budget, nothing,
        or (as in DP-AGD) only the budget of the gradient at this point.
    growth : float
        xi: by how much a budget grows.
    angle_high, angle_low, angle_memory : float
        phi_max, phi_min and psi of the angle test.
    clip_gradient, clip_loss : float, optional
        C_grad and C_obj. By default max(0.5, 0.25 k^0.2) typical row lengths, and none: changes of losses are
        clipped to what a typical row's may be.
    clip : {"changes", "losses"}, optional
        Whether ``clip_loss`` clips the change of a row's loss, which short steps bound further, or the losses before
        and after a step. Default "changes"; "losses" in the paper.
    clip_decay : float
        zeta: by how much clip norms shrink when the gradient's budget grows.
    memory : float, optional
        Discount of older gradients in a direction. Default 0.8; 0 in the paper.
    start_scale : float, optional
        Standard deviation of the weights at the start, drawn with public randomness. Default 0, which starts at zero.
    noise : {"laplace", "gaussian"}, optional
        Noise of the search.
    price : {"true", "paper"}, optional
        What an answer is charged: its true cost, or what the paper states where that is more, with the paper's orders
        and its conversion to epsilon (`accounting.printed_prices`). A run at the paper's price is many times shorter.
        Default "true"; "paper" in the paper.
    """

    sampling_rate: Rate | None = None
    search_rate: Rate | None = None
    same_batch: bool = False
    iterations: _Size | None = None
    share_search: Part = 0.1
    decrease: Part | None = None
    backtrack: Part | None = None
    max_steps: Annotated[int, Within(1, _MOST_STEPS)] | None = None
    first_step: _Size | None = None
    window: Count = 10
    stretch: _Size = 1.2
    allocation: Literal["adaptive", "must", "no", "accumulate"] = "adaptive"
    growth: _Size = 0.3
    angle_high: Annotated[float, Within(1, closed="neither")] = 1.1
    angle_low: Part = 0.5
    angle_memory: Share = 0.8
    clip_gradient: _Size | None = None
    clip_loss: _Size | None = None
    clip: Literal["changes", "losses"] | None = None
    clip_decay: Share = 0.0
    memory: Share | None = None
    start_scale: Annotated[float, Within(0, 2.0**40)] | None = None
    noise: NoiseName | None = None
    price: Literal["true", "paper"] | None = None

    rest: ClassVar[Mapping[str, object]] = {
        "decrease": 0.3,
        "backtrack": 0.5,
        "max_steps": 6,
        "clip": "changes",
        "memory": 0.8,
        "start_scale": 0.0,
        "price": "true",
    }

    def __post_init__(self) -> None:
        super().__post_init__()
        steps = int(self.max_steps or 0)
        if float(self.backtrack or 0) ** (steps - 1) < _SHORTEST:
            raise InvalidParameter(
                f"backtrack {self.backtrack!r} and max_steps {steps}: take fewer steps, the last of them at least "
                "2^-100 of the first"
            )
        if self.clip == "losses" and self.clip_loss is None:
            raise InvalidParameter("clip 'losses' needs a clip_loss: give one, or clip 'changes'")
        if self.paper and self.memory:
            raise InvalidParameter("the paper's algorithm has no memory of older gradients: leave memory out")
        if self.price == "paper" and not self.paper:
            raise InvalidParameter("price is 'paper' with the paper's algorithm only: pass paper as well")

    @property
    def payment(self) -> Payment:
        if self.price == "true":
            return super().payment
        remedies = dict.fromkeys(("gdp", "zcdp"), "choose the setting price of the method to be 'true'")
        return Payment("the paper's price of a batch", ("rdp",), remedies)

    def choose_currency(self, facts: Facts) -> str | Currency:
        """Return RDP at one order, fixed beforehand.

        It is the best for Gaussian answers at the rate of the gradients; at the paper's price, the one of its orders
        at which the first iteration costs the least share of the budget.
        """
        if self.price == "paper":
            return RDP(printed_order(self, facts))
        rate = batch_rates(self, facts)[0]
        if rate == 1:
            return RDP(best_order(facts.epsilon, facts.delta))
        return best_currency(rate, _MOST_ITERATIONS, facts.epsilon, facts.delta, facts.relation)


@dataclass(frozen=True)
class BLGDSettings(BLSGDSettings, paper_mode="blgd"):
    """Settings of `blgd`: those of `BLSGDSettings`, for all rows and with DP-AGD's rule for the budget."""

    sampling_rate: Rate | None = 1.0
    search_rate: Rate | None = 1.0
    allocation: Literal["adaptive", "must", "no", "accumulate"] = "accumulate"


@dataclass(frozen=True)
class BLSGDACSettings(BLSGDSettings, paper_mode="blsgd-ac"):
    """Settings of `blsgd-ac`: those of `BLSGDSettings`, with clip norms that shrink by zeta = 0.05."""

    clip_decay: Share = 0.05


def blsgd_as_printed(curator: Curator, settings: BLSGDSettings, progress: Progress | None = None) -> SolverResult:
    """Run Algorithm 2 of Chen & Lee (2020), its lines in the margin; those of its Algorithm 3 are marked CHEB."""
    plan, accumulate = printed_plan(curator, settings), settings.allocation == "accumulate"
    weights, steps = _start(curator, settings), []  # 2
    while True:  # 3
        noise, averaged, chosen, grown = plan.budget.gradient, Average(weights.shape), None, False
        while chosen is None and plan.affords(noise):  # 9, 15
            batch = plan.draw(noise)  # 4
            measured = _buy_gradient(plan, weights, noise, batch)  # 5-7, 16, CHEB 2-4
            if averaged.weight:
                apart = angle_between(averaged.mean, measured)  # CHEB 5
                enlarged = plan.budget.after_failure(apart, plan.usual_angle, settings, shrink=not grown)
                plan.budget, more = enlarged  # CHEB 6-10
                grown = grown or more
            averaged.add(measured, noise.noise_multiplier**-2 if accumulate else averaged.weight or 1.0)  # CHEB 11
            noise = plan.budget.next_gradient(averaged.weight, settings)
            searched = batch if settings.same_batch else plan.draw_for_search()
            direction, squared = averaged.mean, float(np.vdot(averaged.mean, averaged.mean))
            slope = Slope(squared, plan.row_length * math.sqrt(squared))
            if searched is None or not slope.steepest > _FLAT:
                break
            chosen, sizes = _buy_search(plan, weights, direction, slope, searched)  # 8, 10, 11
        if chosen is None:  # 18, 21
            break
        if accumulate:  # as in DP-AGD the budget stays as high as it has grown
            plan.budget = replace(plan.budget, gradient=Gaussian(averaged.weight**-0.5))
        plan.remember(averaged)  # 14
        steps.append(float(sizes[chosen]))
        weights = weights - steps[-1] * direction  # 13
        report(progress, 1 - curator.remaining / curator.budget)
    report(progress, 1.0)
    return SolverResult(weights, len(steps), tuple(steps))  # 23


@method(
    "blgd",
    BLGDSettings,
    purpose="DP-BLGD, `blsgd` on all rows: adaptive, for smaller tables",
    passes="two for each of about 10 to 150 steps",
    papers=("Chen & Lee 2020",),
    rereads=True,
)
@method(
    "blsgd",
    BLSGDSettings,
    purpose="DP-BLSGD, noisy gradients with a private backtracking line search: adaptive step sizes",
    passes=_PASSES,
    papers=("Chen & Lee 2020",),
    rereads=True,
)
@method(
    "blsgd-ac",
    BLSGDACSettings,
    purpose="DP-BLSGD-AC, `blsgd` with clip norms that shrink: adaptive clipping",
    passes=_PASSES,
    papers=("Chen & Lee 2020",),
    rereads=True,
)
def blsgd(curator: Curator, settings: BLSGDSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-BLSGD.

    **Privacy** See the module. The run ends when the filter cannot pay for another gradient and search.
    """
    if settings.paper:
        return blsgd_as_printed(curator, settings, progress)
    plan = measure_plan(curator, settings)
    weights, iterates = _start(curator, settings), Average(curator.problem.shape)
    steps: list[float] = []
    while (found := _buy_next_step(plan, weights)) is not None:
        step, direction = found
        weights = weights - step * direction
        steps.append(step)
        iterates.add(weights, float(len(steps)) ** 2)
        report(progress, 1 - curator.remaining / curator.budget)
    report(progress, 1.0)
    return SolverResult(iterates.mean if steps else weights, len(steps), tuple(steps))


def _buy_next_step(plan: Plan, weights: Floats) -> tuple[float, Floats] | None:
    """Measure and search until a step is found; return it and its direction, or None when the budget is spent."""
    settings, noise = plan.settings, plan.budget.gradient
    plan.memory.discount(settings.memory or 0.0)
    averaged, grown = Average(weights.shape), False
    while plan.affords(noise):
        batch = plan.draw(noise)
        measured = _buy_gradient(plan, weights, noise, batch)
        if averaged.weight:  # the last search has failed: what was too noisy?
            apart = angle_between(averaged.mean, measured)
            plan.budget, more = plan.budget.after_failure(apart, plan.usual_angle, settings, shrink=not grown)
            grown = grown or more
        averaged.add(measured, noise.noise_multiplier**-2)
        noise = plan.budget.next_gradient(averaged.weight, settings)
        searched = batch if settings.same_batch else plan.draw_for_search()
        direction, slope = plan.direction(averaged)
        if searched is None or not slope.steepest > _FLAT:
            return None
        chosen, steps = _buy_search(plan, weights, direction, slope, searched)
        if chosen is not None:
            plan.remember(averaged)
            return float(steps[chosen]), direction
    return None


def _start(curator: Curator, settings: BLSGDSettings) -> Floats:
    """Return zeros, or weights that are drawn with public randomness."""
    if not settings.start_scale:
        return np.zeros(curator.problem.shape)
    drawn: Floats = curator.public_generator().normal(size=curator.problem.shape)
    return settings.start_scale * drawn


def _buy_gradient(plan: Plan, weights: Floats, noise: Gaussian, batch: Batch) -> Floats:
    """Buy a gradient on a batch."""
    asked = Gradient(weights, plan.budget.clip_gradient, noise, plan.frame, keep_margins=True, joint=True)
    return plan.curator.answer(asked, batch)


def _buy_search(
    plan: Plan, weights: Floats, direction: Floats, slope: Slope, batch: Batch
) -> tuple[int | None, Floats]:
    """Buy a search on a batch: return the first step that lowers the objective enough, if any, and all of them."""
    settings, steps = plan.settings, plan.ladder.steps()
    demands = float(settings.decrease or 0) * slope.demanded * steps
    search = next(part for part in batch.parts if isinstance(part, AboveThreshold))
    clip, losses = plan.budget.clip_loss, settings.clip == "losses"
    query = FirstStep(weights, direction, steps, demands, search, slope.steepest, clip, losses)
    chosen = plan.curator.answer(query, batch)
    plan.ladder.follow(chosen)
    return chosen, steps
