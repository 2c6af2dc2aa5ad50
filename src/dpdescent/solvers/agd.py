r"""DP-AGD: gradient descent whose step sizes and budget are chosen while it runs.

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

References
----------
Lee, J. & Kifer, D. (2018). Concentrated differentially private gradient descent with adaptive per-iteration
privacy budget. KDD. arXiv:1808.09501.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from ..accounting import Currency, ExponentialMechanism, ReportNoisyMax, calibrate, loose_zcdp_budget
from ..curator import BestStep, Curator, Gradient
from ..errors import InvalidParameter
from ..problems import Frame
from .geometry import measure_columns
from .paper_modes import PAPER_MODES
from .result import Facts, Progress, SolverResult, effective_rows, gradient_deviation
from .settings import GAUSSIAN_NOISE, Payment, Settings
from .step_grids import EvenGrid, GeometricGrid

__all__ = ["AGDSettings", "agd", "sharpest"]

Floats = NDArray[np.float64]
Selection = Literal["exponential-mechanism", "laplace", "exponential"]

_LARGEST_WORK = 5e10  # cells to go through for iterations beyond the first 20
# Beyond them an answer in the middle of a run would need noise, or a step, that cannot be represented.
_RANGES = {
    "splits": (1e-9, 1e9),
    "growth": (1e-9, 1e9),
    "clip_gradient": (1e-30, 1e30),
    "clip_loss": (1e-30, 1e30),
    "max_step": (1e-30, 1e30),
    "stretch": (1e-9, 1e9),
}


@dataclass(frozen=True)
class AGDSettings(Settings):
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

    splits: float | None = None
    share_selection: float = 0.1
    growth: float | None = None
    clip_gradient: float | None = None
    clip_loss: float | None = None
    candidates: int | None = None
    max_step: float | None = None
    window: int = 10
    stretch: float = 0.1
    selection: Selection | None = None
    memory: float | None = None
    batch_rate: float = 1.0
    currency: str | None = None
    conversion: Literal["optimal", "paper"] | None = None
    first_gradient: Literal["pure", "gaussian"] = "pure"

    paper_mode = PAPER_MODES["agd"]

    def __post_init__(self) -> None:
        if self.currency == "gdp":
            self.fill({"conversion": "optimal"})
        super().__post_init__()
        self.fill(_OURS)
        for name, (low, high) in _RANGES.items():
            value = getattr(self, name)
            if value is not None and not low <= value <= high:
                raise InvalidParameter(f"{name} must lie between {low:g} and {high:g}, got {value!r}")
        if self.candidates is None or self.candidates < 2:
            raise InvalidParameter(f"candidates must be at least 2, zero being one of them: {self.candidates!r}")
        if not 0 < self.batch_rate <= 1:
            raise InvalidParameter(f"batch_rate must lie in (0, 1], got {self.batch_rate!r}")
        for name, allowed in _CHOICES.items():
            if getattr(self, name) not in allowed:
                raise InvalidParameter(
                    f"{name} must be {allowed[0]!r} or {allowed[1]!r}, got {getattr(self, name)!r}"
                )
        if self.conversion == "paper" and self.currency != "zcdp":
            raise InvalidParameter(f"conversion is 'paper' with currency 'zcdp' only, got {self.currency!r}")
        if not 0 < self.share_selection < 1 or self.window < 1 or not 0 <= (self.memory or 0) < 1:
            raise InvalidParameter("share_selection lies in (0, 1), memory in [0, 1), and window is at least 1")

    def choose_currency(self, facts: Facts) -> str:
        return str(self.currency)

    @property
    def payment(self) -> Payment:
        if self.conversion == "optimal":
            return GAUSSIAN_NOISE
        remedies = dict.fromkeys(("gdp", "rdp"), "choose the setting conversion of the method to be 'optimal'")
        return Payment("the paper's conversion of zCDP", ("zcdp",), remedies)


_OURS = {"growth": 0.5, "candidates": 4, "selection": "exponential-mechanism", "memory": 0.8}
_OURS |= {"currency": "gdp", "conversion": "optimal"}
_CHOICES = {"currency": ("gdp", "zcdp"), "conversion": ("optimal", "paper"), "first_gradient": ("pure", "gaussian")}


def agd(curator: Curator, settings: AGDSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-AGD.

    Parameters
    ----------
    curator : Curator
        Holds the rows, the problem and the budget.
    settings : AGDSettings
    progress : callable, optional
        Called with the share of the budget that is spent.

    Notes
    -----
    **Privacy** Every answer is charged to the curator's filter before it is computed, and everything else here is a
    function of answers and public numbers. The run ends when the filter cannot pay for another iteration.
    """
    plan = _plan(curator, settings)
    grid, frame = plan.grid, plan.frame
    least = 1.0 if settings.paper else 0.5  # of an iteration; a cheaper last one spends the rest
    weights = np.zeros(curator.problem.shape)
    average, average_weight = np.zeros_like(weights), 0.0
    earlier, earlier_amount = np.zeros_like(weights), 0.0
    gradient_amount, steps = plan.gradient_amount, []

    while (left := _left(curator, settings)) >= least * (gradient_amount + plan.selection_amount):
        part = min(1.0, left / (gradient_amount + plan.selection_amount))
        amount, selection_amount = part * gradient_amount, part * plan.selection_amount
        earlier, earlier_amount = plan.memory * earlier, plan.memory * earlier_amount
        measured, measured_amount, step = np.zeros_like(weights), 0.0, 0.0

        while step == 0 and _left(curator, settings) >= amount + selection_amount:
            noise = curator.gaussian(amount)
            measured += amount * curator.answer(
                Gradient(weights, plan.clip_gradient, noise, frame, keep_margins=True, joint=True)
            )
            measured_amount += amount
            direction = grid.direction((earlier + measured) / (earlier_amount + measured_amount))
            along = direction if frame is None else frame.weights(direction)
            candidates = grid.candidates()
            reach = float(candidates[-1] * np.linalg.norm(direction)) * plan.row_length
            change = None if settings.clip_loss is not None else max(reach / 4, 1e-12)
            choice = sharpest(plan.selection, selection_amount, curator.currency)
            chosen = curator.answer(BestStep(weights, along, candidates, choice, settings.clip_loss, change))
            step = float(candidates[chosen])
            grid.follow(chosen)
            amount = plan.growth * measured_amount
        if step == 0:
            break
        if settings.paper:
            gradient_amount = max(gradient_amount, measured_amount)
        earlier, earlier_amount = earlier + measured, earlier_amount + measured_amount
        weights = weights - step * along
        steps.append(step)
        average, average_weight = average + len(steps) ** 2 * weights, average_weight + len(steps) ** 2
        if progress is not None:
            progress(1 - curator.remaining / curator.budget)

    if progress is not None:
        progress(1.0)
    if average_weight and not settings.paper:
        weights = average / average_weight
    return SolverResult(weights, len(steps), tuple(steps))


@dataclass(frozen=True)
class _Plan:
    """What a run starts from. All of it is public."""

    frame: Frame | None
    row_length: float
    clip_gradient: float
    gradient_amount: float
    selection_amount: float
    growth: float
    memory: float
    selection: Selection
    grid: GeometricGrid | EvenGrid


def _plan(curator: Curator, settings: AGDSettings) -> _Plan:
    _require_selection(curator, settings)
    frame, row_length = (None, curator.problem.grid.row_bound) if settings.paper else _frame(curator)
    parameters = float(np.prod(curator.problem.shape))
    clip = settings.clip_gradient or max(0.5, 0.25 * effective_rows(curator, parameters) ** 0.3) * row_length
    planned, gradient_amount, selection_amount = _amounts(curator, settings, _left(curator, settings))
    candidates = int(settings.candidates or 0)
    grid: GeometricGrid | EvenGrid
    if settings.max_step is not None:
        grid = EvenGrid(settings.max_step, candidates, settings.window, settings.stretch)
    else:
        # Eight times the step that is always safe, unless noise alone would then carry a score beyond 2.
        safe = 8 / (min(curator.problem.loss.smoothness, 1.0) * row_length**2)
        noise = gradient_deviation(curator, clip, curator.gaussian(gradient_amount))
        walk = noise * math.sqrt(planned) * row_length
        grid = GeometricGrid(min(safe, 2 / walk), candidates)
    return _Plan(
        frame,
        row_length,
        clip,
        gradient_amount,
        selection_amount,
        float(settings.growth or 0),
        float(settings.memory or 0),
        settings.selection or "exponential-mechanism",
        grid,
    )


def _left(curator: Curator, settings: AGDSettings) -> float:
    """Return what may still be spent: the rest of the budget, or the rest of what the paper's conversion allows."""
    if settings.conversion != "paper":
        return curator.remaining
    allowed = loose_zcdp_budget(curator.ledger.epsilon, curator.ledger.delta)
    return min(curator.remaining, allowed - curator.ledger.spent)


def _amounts(curator: Curator, settings: AGDSettings, remaining: float) -> tuple[float, float, float]:
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
    amount = _amounts(curator, settings, 0.9 * _left(curator, settings))[2] / 2  # a frame costs less than a tenth
    choice = sharpest(settings.selection or "exponential-mechanism", amount, curator.currency)
    nowhere, change = np.zeros(curator.problem.shape), 1.0 if settings.clip_loss is None else None
    curator.require_answerable(BestStep(nowhere, nowhere, np.zeros(2), choice, settings.clip_loss, change))


def _frame(curator: Curator) -> tuple[Frame | None, float]:
    """Pay for a frame and measure it; return it and the typical length of a row in it."""
    columns = measure_columns(curator, 0.01 * curator.budget, 0.05 * curator.budget)
    if columns.frame is None:
        return None, columns.norm
    return columns.frame, math.sqrt(1 + float(np.sum(np.minimum(columns.variances, 1.0))))


def sharpest(kind: Selection, amount: float, currency: Currency) -> ExponentialMechanism | ReportNoisyMax:
    """Return the least noisy selection of that kind that ``amount`` pays for."""
    if kind == "exponential-mechanism":
        return currency.selection(amount)
    if kind in ("laplace", "exponential"):
        noise: Literal["laplace", "exponential"] = kind
        return calibrate(lambda epsilon: ReportNoisyMax(epsilon, noise), amount, currency)
    raise InvalidParameter(f"unknown selection {kind!r}: choose 'exponential-mechanism', 'laplace' or 'exponential'")
