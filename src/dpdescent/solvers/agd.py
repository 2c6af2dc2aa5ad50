"""DP-AGD: gradient descent whose step sizes and budget are chosen while it runs.

Each iteration measures a noisy gradient and lets a private selection choose among step sizes that include zero.
When zero wins, the direction was too noisy: the same gradient is measured again with more budget, and all
measurements are averaged by their budgets (Lee & Kifer 2018).

The default goes beyond the paper where a public rule or a small, paid release makes it robust at every epsilon:

- *A frame.* A twentieth of the budget measures the mean row norm and two moments of every column. In the frame they
  give, columns are centred and of comparable scale, and the clip norm is a multiple of the typical row length.
- *Changes, not losses.* Candidates are scored by the change of each row's loss, clipped to a part of what the step
  can change, so that the noise of the selection shrinks with the steps.
- *A geometric grid* of steps that follows what is chosen. On a fixed grid the smallest step may overshoot, and then
  zero wins for ever.
- *Memory.* A direction is the average of all released gradients, by budget, older ones discounted; the result is an
  average of the iterates, late ones counting most. Both are post-processing.

``paper=True`` runs the algorithm of the paper with its settings, and `PAPER_MODES` says where it differs on purpose.
The budget rho of the paper solves its equation (5), epsilon = rho + 2 sqrt(rho log(1/delta)), which is valid and
loose: the optimal conversion, ``conversion="optimal"``, gives 1.63 times as much at epsilon = 0.05 and delta = 1e-8.
The first budgets are read as rho = e^2/2 with e = epsilon/(2 splits), for the gradient as for the selection
(``first_gradient``). Only whole iterations are run, while the default ends with a cheaper one that spends the rest.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal, TypeVar

import numpy as np

from ..accounting import Currency, ExponentialMechanism, ReportNoisyMax, calibrate, loose_zcdp_budget
from ..arrays import Floats
from ..curator import Curator
from ..errors import InvalidParameter
from ..problems import Frame
from ..queries import BestStep, Gradient
from .coordinates import measure_frame
from .method import (
    GAUSSIAN_NOISE,
    Count,
    Fraction,
    Part,
    Payment,
    Progress,
    Settings,
    Share,
    SolverResult,
    Within,
    method,
    report,
)
from .rules import ADAPTIVE_CLIP, Facts, clip_multiple, effective_rows, gradient_deviation, longest_step

Selection = Literal["exponential-mechanism", "laplace", "exponential"]
Value = TypeVar("Value")

_LONGEST = 1e30  # step along a unit vector; losses at such weights can still be represented
_LEAST_PART = 0.5  # of an iteration; a cheaper last one spends the rest

_LARGEST_WORK = 5e10  # cells to go through for iterations beyond the first 20
# Beyond them an answer in the middle of a run would need noise, or a step, that cannot be represented.
_Ratio = Annotated[float, Within(1e-9, 1e9)]
_Size = Annotated[float, Within(1e-30, 1e30)]


@dataclass(frozen=True)
class AGDSettings(Settings, paper_mode="agd"):
    """Settings of `agd`. The defaults are rules of public quantities, the same for every table.

    Parameters
    ----------
    splits : float, optional
        About the number of iterations that are planned: each starts with the budget of epsilon/(2 splits) for its
        gradient and for its selection. By default 25 sqrt(k), between 10 and 500, where k = n mu/d is the number of
        effective rows per parameter, unless that takes more than 5 10^10 cells of the table to go through; then 20,
        or 20 sqrt(k/2000) if that is more, as in `auto`.
    share_selection : float
        Share of an iteration's budget that pays for the selection; ignored if ``splits`` is given.
    growth : float, optional
        gamma: by how much the budget of a gradient grows when zero wins. Default 0.5.
    clip_gradient : float, optional
        C_grad. By default max(0.5, 0.25 k^0.3) typical row lengths: a small norm where noise dominates.
    clip_loss : float, optional
        C_obj: score candidates by losses clipped to [0, C_obj] instead of changes of losses.
    candidates : int, optional
        m: number of step sizes, zero included. Default 4: zero and a geometric grid of ratio 2.
    max_step : float, optional
        alpha_max: the first grid is spread evenly up to it, for normalised directions, as in the paper.
    window, stretch : int, float
        tau and eta: every tau iterations alpha_max becomes (1 + eta) times the longest recent step.
    selection : {"exponential-mechanism", "laplace", "exponential"}, optional
    memory : float, optional
        Discount of older gradients in a direction. Default 0.8; 0 in the paper.
    batch_rate : float
        Every answer comes from a fresh Poisson batch of this rate. It saves time on large tables; no amplification is
        claimed, so an answer costs what it would cost on all rows.
    currency : {"gdp", "zcdp"}
        The currency of the filter. GDP in ours, zCDP in the paper.
    conversion : {"optimal", "paper"}, optional
        How much of the currency epsilon and delta buy: all that they allow, or in zCDP what equation (5) of the paper
        allows, in which case the rest is not spent.
    first_gradient : {"pure", "gaussian"}
        How epsilon/(2 splits) becomes the first budget of a gradient: as that of pure DP, or by the noise of the
        classical Gaussian mechanism, as in the authors' code.
    """

    splits: _Ratio | None = None
    share_selection: Part = 0.1
    growth: _Ratio | None = None
    clip_gradient: _Size | None = None
    clip_loss: _Size | None = None
    candidates: Annotated[int, Within(2, remedy="zero is one of them")] | None = None
    max_step: _Size | None = None
    window: Count = 10
    stretch: _Ratio = 0.1
    selection: Selection | None = None
    memory: Share | None = None
    batch_rate: Fraction = 1.0
    currency: Literal["gdp", "zcdp"] | None = None
    conversion: Literal["optimal", "paper"] | None = None
    first_gradient: Literal["pure", "gaussian"] = "pure"

    rest: ClassVar[Mapping[str, object]] = {
        "growth": 0.5,
        "candidates": 4,
        "selection": "exponential-mechanism",
        "memory": 0.8,
        "currency": "gdp",
        "conversion": "optimal",
    }

    def __post_init__(self) -> None:
        if self.currency == "gdp":
            self.fill({"conversion": "optimal"})
        super().__post_init__()
        if self.conversion == "paper" and self.currency != "zcdp":
            raise InvalidParameter(f"conversion is 'paper' with currency 'zcdp' only, got {self.currency!r}")
        if self.paper and self.memory:
            raise InvalidParameter("the paper's algorithm has no memory of older gradients: leave memory out")

    def choose_currency(self, facts: Facts) -> str:
        return str(self.currency)

    @property
    def payment(self) -> Payment:
        if self.conversion == "optimal":
            return GAUSSIAN_NOISE
        remedies = dict.fromkeys(("gdp", "rdp"), "choose the setting conversion of the method to be 'optimal'")
        return Payment("the paper's conversion of zCDP", ("zcdp",), remedies)


def agd_as_printed(curator: Curator, settings: AGDSettings, progress: Progress | None = None) -> SolverResult:
    """Run Algorithm 2 of Lee & Kifer (2018). The numbers in the margin are its lines."""
    _require_selection(curator, settings)
    clip = _given(settings.clip_gradient)
    grid = EvenGrid(_given(settings.max_step), _given(settings.candidates), settings.window, settings.stretch)
    selection: Selection = _given(settings.selection)
    _, gradient_price, selection_price = _prices(curator, settings, _left(curator, settings))  # rho_ng, rho_nmax
    weights, steps = np.zeros(curator.problem.shape), []  # 1
    while _left(curator, settings) >= gradient_price + selection_price:  # 2
        total, paid, step, price = np.zeros_like(weights), 0.0, 0.0, gradient_price  # 3
        while step == 0 and _left(curator, settings) >= price + selection_price:  # 8
            noise = curator.gaussian(price)  # 5, 29
            total += price * curator.answer(Gradient(weights, clip, noise, keep_margins=True, joint=True))  # 4-6, 19
            paid += price
            direction = grid.direction(total / paid)  # 7, 30
            candidates = grid.candidates()
            choice = sharpest(selection, selection_price, curator.currency)
            chosen = curator.answer(BestStep(weights, direction, candidates, choice, settings.clip_loss))  # 9-11
            grid.follow(chosen)
            step = float(candidates[chosen])
            price = _given(settings.growth) * paid  # 16, 17: rho_ng - rho_old
        if step == 0:
            break
        gradient_price = max(gradient_price, paid)  # 17: it stays as high as it has grown
        weights = weights - step * direction  # 13
        steps.append(step)
        report(progress, 1 - curator.remaining / curator.budget)
    report(progress, 1.0)
    return SolverResult(weights, len(steps), tuple(steps))  # 27


@method(
    "agd",
    AGDSettings,
    purpose="DP-AGD, noisy gradients with a private choice of every step size: adaptive, for any loss",
    passes="two for each of about 10 to 500 steps",
    papers=("Lee & Kifer 2018",),
    rereads=True,
)
def agd(curator: Curator, settings: AGDSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-AGD.

    **Privacy** Every answer is charged to the curator's filter before it is computed, and everything else here is a
    function of answers and public numbers. The run ends when the filter cannot pay for another iteration.
    """
    if settings.paper:
        return agd_as_printed(curator, settings, progress)
    plan = _measure_plan(curator, settings)
    grid, frame, memory = plan.grid, plan.frame, _given(settings.memory)
    weights = np.zeros(curator.problem.shape)
    average, average_weight = np.zeros_like(weights), 0.0
    earlier, earlier_paid = np.zeros_like(weights), 0.0
    whole, steps = plan.gradient_price + plan.selection_price, []

    while (left := _left(curator, settings)) >= _LEAST_PART * whole:
        part = min(1.0, left / whole)
        price, selection_price = part * plan.gradient_price, part * plan.selection_price
        earlier, earlier_paid = memory * earlier, memory * earlier_paid
        measured, paid, step = np.zeros_like(weights), 0.0, 0.0

        while step == 0 and _left(curator, settings) >= price + selection_price:
            noise = curator.gaussian(price)
            measured += price * curator.answer(
                Gradient(weights, plan.clip_gradient, noise, frame, keep_margins=True, joint=True)
            )
            paid += price
            direction = grid.direction((earlier + measured) / (earlier_paid + paid))
            along = direction if frame is None else frame.weights(direction)
            candidates = grid.candidates()
            reach = float(candidates[-1] * np.linalg.norm(direction)) * plan.row_length
            change = None if settings.clip_loss is not None else max(reach / 4, 1e-12)
            choice = sharpest(_given(settings.selection), selection_price, curator.currency)
            chosen = curator.answer(BestStep(weights, along, candidates, choice, settings.clip_loss, change))
            step = float(candidates[chosen])
            grid.follow(chosen)
            price = _given(settings.growth) * paid
        if step == 0:
            break
        earlier, earlier_paid = earlier + measured, earlier_paid + paid
        weights = weights - step * along
        steps.append(step)
        average, average_weight = average + len(steps) ** 2 * weights, average_weight + len(steps) ** 2
        report(progress, 1 - curator.remaining / curator.budget)

    report(progress, 1.0)
    if average_weight:
        weights = average / average_weight
    return SolverResult(weights, len(steps), tuple(steps))


@dataclass(frozen=True)
class _Plan:
    """What a run starts from. All of it is public."""

    frame: Frame | None
    row_length: float
    clip_gradient: float
    gradient_price: float
    selection_price: float
    grid: GeometricGrid | EvenGrid


def _measure_plan(curator: Curator, settings: AGDSettings) -> _Plan:
    """Pay for a frame and measure it; plan the rest from it and from public facts."""
    _require_selection(curator, settings)
    frame, row_length = measure_frame(curator)
    parameters = float(np.prod(curator.problem.shape))
    clip = settings.clip_gradient or clip_multiple(effective_rows(curator, parameters), *ADAPTIVE_CLIP) * row_length
    planned, gradient_price, selection_price = _prices(curator, settings, _left(curator, settings))
    candidates = _given(settings.candidates)
    grid: GeometricGrid | EvenGrid
    if settings.max_step is not None:
        grid = EvenGrid(settings.max_step, candidates, settings.window, settings.stretch)
    else:
        noise = gradient_deviation(curator, clip, curator.gaussian(gradient_price))
        grid = GeometricGrid(longest_step(curator, row_length, noise, planned), candidates)
    return _Plan(frame, row_length, clip, gradient_price, selection_price, grid)


def _given(value: Value | None) -> Value:
    """Return a setting that has a value by now."""
    assert value is not None
    return value


def _left(curator: Curator, settings: AGDSettings) -> float:
    """Return what may still be spent: the rest of the budget, or the rest of what the paper's conversion allows."""
    if settings.conversion != "paper":
        return curator.remaining
    allowed = loose_zcdp_budget(curator.ledger.epsilon, curator.ledger.delta)
    return min(curator.remaining, allowed - curator.ledger.spent)


def _prices(curator: Curator, settings: AGDSettings, remaining: float) -> tuple[float, float, float]:
    """Return the number of iterations that are planned, and what each spends on its gradient and its selection."""
    if settings.splits is None:
        richness = effective_rows(curator, float(np.prod(curator.problem.shape)))
        wanted = min(max(25 * math.sqrt(richness), 10.0), 500.0)
        timely = _LARGEST_WORK / (curator.scale * curator.problem.grid.dimension)
        planned = min(wanted, max(timely, 20 * math.sqrt(max(richness / 2000, 1.0))))
        share = settings.share_selection
        return planned, remaining * (1 - share) / planned, remaining * share / planned
    # An epsilon that is tiny beside delta pays for far more iterations than are planned; a hundred times as many are
    # enough.
    noise = 2 * settings.splits / curator.ledger.epsilon
    amount = max(curator.amount_of_noise(noise), remaining / (200 * settings.splits))
    if settings.first_gradient == "gaussian":
        classical = math.sqrt(2 * math.log(1.25 / curator.ledger.delta))
        return settings.splits, curator.amount_of_noise(classical * noise), amount
    return settings.splits, amount, amount


def _require_selection(curator: Curator, settings: AGDSettings) -> None:
    """Raise before any charge what a selection would raise later; the least amount that one costs is tried."""
    amount = _prices(curator, settings, 0.9 * _left(curator, settings))[2] / 2  # a frame costs less than a tenth
    choice = sharpest(_given(settings.selection), amount, curator.currency)
    nowhere, change = np.zeros(curator.problem.shape), 1.0 if settings.clip_loss is None else None
    curator.require_answerable(BestStep(nowhere, nowhere, np.zeros(2), choice, settings.clip_loss, change))


def sharpest(kind: Selection, amount: float, currency: Currency) -> ExponentialMechanism | ReportNoisyMax:
    """Return the least noisy selection of that kind that ``amount`` pays for."""
    if kind == "exponential-mechanism":
        return currency.selection(amount)
    noise: Literal["laplace", "exponential"] = kind
    return calibrate(lambda epsilon: ReportNoisyMax(epsilon, noise), amount, currency)


class GeometricGrid:
    """Zero, and steps of ratio 2 around a centre that follows the chosen ones; it moves down if zero is chosen."""

    def __init__(self, centre: float, candidates: int) -> None:
        self._centre = centre
        self._exponents = np.arange(candidates - 1) - (candidates - 2) // 2

    def candidates(self) -> Floats:
        return np.concatenate([[0.0], self._centre * 2.0**self._exponents])

    def direction(self, gradient: Floats) -> Floats:
        return gradient

    def follow(self, chosen: int) -> None:
        vote = -1 if chosen == 0 else int(np.sign(self._exponents[chosen - 1]))
        self._centre *= 2.0 ** (0.1 * vote)


class EvenGrid:
    """The paper's grid: steps spread evenly from zero to alpha_max along a unit vector."""

    def __init__(self, max_step: float, candidates: int, window: int, stretch: float) -> None:
        self._max_step, self._candidates = max_step, candidates
        self._window, self._stretch = window, stretch
        self._recent: list[float] = []

    def candidates(self) -> Floats:
        return np.linspace(0.0, self._max_step, self._candidates)

    def direction(self, gradient: Floats) -> Floats:
        return gradient / max(float(np.linalg.norm(gradient)), 1e-300)

    def follow(self, chosen: int) -> None:
        if chosen > 0:
            self._recent.append(float(self.candidates()[chosen]))
        if len(self._recent) == self._window:
            self._max_step = min((1 + self._stretch) * max(self._recent), _LONGEST)
            self._recent.clear()
