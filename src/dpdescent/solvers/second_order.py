"""Descent to a second-order point: noisy gradients, and a noisy Hessian where the gradient is small.

Every iteration measures a gradient. If it is longer than e_g, a step goes along it. Otherwise a Hessian is measured,
and if its least eigenvalue is below -e_H, a step goes along the eigenvector, downhill. Otherwise the run ends: the
point is a second-order point, up to noise (`dpdescent.solvers.stationary` says how far).

- `opt`: short steps, which are always safe, and as many as the analysis may need.
- `opt-ls`: a private backtracking search from steps up to 64 times as long; the safe step is what it falls back to.
- `opt-b`: gradients and Hessians from batches, each drawn afresh, or both from one and amplified together.
- `2opt`, `2opt-ls`, `2opt-b`: three quarters of the budget go to an optimistic first phase of sqrt(T) steps, with far
  less noise. If it does not end at a second-order point, the rest pays for the guarantee, from where it arrived or
  from the start, whichever is lower.

**Privacy** Every answer is charged to a scalar filter before rows are touched, the last check like all others. The
number of steps follows from the objective at the start, which is known without cost at zero, where all losses are
equal; elsewhere it is measured, with noise that keeps its sign, and a public slack is added. Which step comes next,
and when the run ends, are functions of released answers.

References
----------
Wright, S. & Recht, B. (2022). Optimization for data analysis, section 3.6. Cambridge University Press.
"""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from scipy.linalg import eigh, eigh_tridiagonal
from scipy.stats import norm

from ..accounting import Currency, currency_named
from ..arrays import Floats
from ..curator import Batch, Curator
from ..errors import GuaranteeWarning, InvalidParameter
from ..problems import LinearProblem, Need
from ..queries import FirstStep, Gradient, Hessian, MeanLoss, hessian_sum
from ..relations import Relation
from .method import Progress, SolverResult, method, report
from .rules import Facts
from .second_order_settings import (
    OPTBSettings,
    OPTLSSettings,
    OPTSettings,
    TwoPhaseBSettings,
    TwoPhaseLSSettings,
    TwoPhaseSettings,
)
from .stationary import Bounds, Levels, Tolerances, make_levels, tightest, zcdp_of

# Shares of the longest gradient of a row. If the tolerance that can be guaranteed is above the first, nearly every
# point satisfies it, the start included. The second one is then aimed at instead, without a guarantee.
_VACUOUS, _USEFUL = 1 / 10, 1 / 50
#: What the analysis needs from a loss.
NEEDS = frozenset({Need.ONE_MARGIN, Need.BOUNDED_SLOPE, Need.SMOOTH, Need.SMOOTH_CURVATURE, Need.LARGEST_LOSS})
#: How often the rows are read, in words.
ONE_EACH = "one for each gradient, Hessian or search; the theorem fixes the number of steps"
_ONE_BATCH_EACH = "one batch for each gradient or Hessian; the theorem fixes the number of steps"
LARGEST_EXACT = 1024  # up to this dimension a Hessian is reduced as a whole
#: A plan of more steps is refused, unless the settings say after how many it is given up.
MOST_PLANNED = 2_000_000
_AIMED_STEPS = 200  # the number of steps in that case: with fewer steps each has less noise


@dataclass(frozen=True)
class SecondOrderResult(SolverResult):
    """The weights, and how the run went; all of it follows from released answers."""

    hessians: int = 0  # how many Hessians were measured
    success: bool = False  # whether the run ended at what was found to be a second-order point


def minimum_rows(
    problem: LinearProblem, settings: OPTSettings, *, epsilon: float, delta: float, adjacency: str = "zero-out"
) -> int:
    """Return the number of rows with which a run from zero is guaranteed to end at a second-order point.

    It is the number in the warning of a run that has fewer. For `dp-tr` and `dp-gd` nothing of the kind is guaranteed
    (see their modules): the number says for how many rows the noise of all their answers stays within what the
    analysis allows.

    Parameters
    ----------
    problem : LinearProblem
        Says what is public: bounds of the rows, loss and penalty. Its rows are not needed.
    settings : OPTSettings
        Of any of the methods, with tolerances. Of two phases it is the second that carries the guarantee.
    epsilon, delta, adjacency
        The guarantee of privacy.
    """
    if settings.gradient_tolerance is None:
        raise InvalidParameter("gradient_tolerance is missing: say which tolerance the rows are for")
    relation, dimension = Relation.parse(adjacency), problem.grid.dimension
    facts = Facts(epsilon, delta, adjacency, 1, dimension)
    currency = currency_named(settings.choose_currency(facts), epsilon, delta)
    tolerances = _tolerances(settings, Bounds.of(problem, relation), settings.gradient_tolerance)
    objective = problem.largest_loss(np.zeros(dimension))
    amount = settings.guaranteed_share * currency.budget(epsilon, delta)
    rho = settings.guaranteed_share * zcdp_of(epsilon, delta) if settings.noise == "paper" else None
    return _rows_needed(settings, tolerances, objective, currency, relation, amount, rho)


def _rows_needed(
    settings: OPTSettings,
    tolerances: Tolerances,
    objective: float,
    currency: Currency,
    relation: Relation,
    amount: float,
    rho: float | None,
) -> int:
    """Return the rows for which the guarantee holds from a point of that objective, if it is paid by an amount."""
    steps = settings.planned_steps(tolerances, objective)
    together = settings.same_batch
    levels = make_levels(tolerances, currency, relation, amount, steps, same_batch=together, rho=rho)
    return tolerances.minimum_rows(levels)


_to_a_point = partial(method, papers=("Gao & Wright 2023",), needs=NEEDS, general=False, rereads=True)


@_to_a_point(
    "opt",
    OPTSettings,
    purpose="descent to a second-order point of a smooth loss, convex or not, with a theorem",
    passes=ONE_EACH,
)
@_to_a_point("opt-ls", OPTLSSettings, purpose="`opt` with a private line search: longer steps", passes=ONE_EACH)
@_to_a_point("opt-b", OPTBSettings, purpose="`opt` on random batches: large tables", passes=_ONE_BATCH_EACH)
@_to_a_point(
    "2opt",
    TwoPhaseSettings,
    purpose="`opt` after a short, optimistic first phase: second-order points sooner",
    passes=ONE_EACH,
)
@_to_a_point(
    "2opt-ls",
    TwoPhaseLSSettings,
    purpose="`2opt` with a private line search: second-order points in few steps",
    passes=ONE_EACH,
)
@_to_a_point(
    "2opt-b",
    TwoPhaseBSettings,
    purpose="`2opt` on random batches: second-order points of large tables",
    passes=_ONE_BATCH_EACH,
)
def second_order(curator: Curator, settings: OPTSettings, progress: Progress | None = None) -> SecondOrderResult:
    """Look for a second-order point of the objective of a curator's problem.

    **Privacy** See the module. A run that does not end at a second-order point says so in its result.
    """
    return Descent(curator, settings, progress).finish()


class Descent:
    """A run: where it is and what it has done. Other methods override how it iterates."""

    def __init__(self, curator: Curator, settings: OPTSettings, progress: Progress | None) -> None:
        self._curator, self._settings, self._progress = curator, settings, progress
        self._bounds = Bounds.of(curator.problem, curator.relation, curator.rows_per_unit)
        self._sampling = curator.sampling(settings.sampling_rate)
        self._generator = curator.public_generator()
        self._origin = settings.start_scale * self._generator.normal(size=curator.problem.shape)
        self._weights = self._origin
        self._budget = curator.remaining
        self._steps: list[float] = []
        self._hessians = 0

    def finish(self) -> SecondOrderResult:
        """Run all phases and return where they led."""
        self.measure_start()
        found = self._settings.optimistic_share > 0 and self.run(optimistic=True)
        found = found or self.run(optimistic=False)
        report(self._progress, 1.0)
        return self.result(found)

    def measure_start(self) -> None:
        """Measure the objective, fix the tolerances, and warn if they are out of reach."""
        curator, settings, bounds = self._curator, self._settings, self._bounds
        self._most_planned: float = math.inf
        self._require_drawable(self._with_tolerance(settings.gradient_tolerance or bounds.gradient), math.inf)
        if settings.gradient_tolerance is None:
            self._require_drawable(self._with_tolerance(_USEFUL * bounds.gradient), _AIMED_STEPS)
        self._objective = self._measure_objective()
        amount = min(curator.remaining, settings.guaranteed_share * self._budget)

        def rows(tolerance: float) -> int:
            tolerances, ledger = self._with_tolerance(tolerance), curator.ledger
            paid = ledger.currency, curator.relation, amount, self._rho(amount)
            return _rows_needed(settings, tolerances, self._objective, *paid)

        asked = settings.gradient_tolerance
        if asked is None:
            asked = tightest(rows, curator.rows, bounds.gradient)
            if asked > _VACUOUS * bounds.gradient:
                asked, self._most_planned = _USEFUL * bounds.gradient, _AIMED_STEPS
        self._tolerances = self._with_tolerance(asked)
        needed = rows(asked)
        if needed > curator.rows:
            promise = "is guaranteed" if settings.guaranteed else "may be told from noise"
            planned = self._planned(self._tolerances, self._objective, self._most_planned)
            warnings.warn(
                f"a second-order point with the tolerances {self._tolerances.gradient:.3g} and "
                f"{self._tolerances.curvature:.3g} {promise} for {needed} rows or more, there are "
                f"{curator.rows}: the run may end elsewhere, after up to {planned:,} planned steps; collect "
                "more rows, or raise the tolerances or epsilon",
                GuaranteeWarning,
                stacklevel=4,
            )

    def run(self, *, optimistic: bool) -> bool:
        """Run one phase; return whether it ended at a second-order point."""
        curator, settings, tolerances = self._curator, self._settings, self._tolerances
        if self._steps:
            objective = self._measure_objective()
            if objective > self._objective:  # the first phase ended higher than it started
                self._weights = self._origin
            self._objective = min(objective, self._objective)
        steps = self._planned(tolerances, self._objective, self._most_planned)
        amount = curator.remaining
        if optimistic:
            steps = math.ceil(math.sqrt(steps))
            amount = min(settings.optimistic_share * self._budget, amount)
        return self.run_phase(amount, steps)

    def run_phase(self, amount: float, steps: int) -> bool:
        """Take at most that many steps for the amount, and one check more; return whether a check succeeded."""
        levels = self._levels(self._tolerances, amount, steps)
        hessian_sum(self._curator.public(), levels.hessian)  # raises before anything is charged
        for left in range(min(steps, self._settings.most_steps or steps), -1, -1):
            found = self.iterate(levels, last=left == 0)
            self._report()
            if found:
                return True
        return False

    def _report(self) -> None:
        report(self._progress, 1 - self._curator.remaining / self._curator.budget)

    def result(self, found: bool) -> SecondOrderResult:
        tolerances = self._tolerances
        said = "" if found else "no "
        remarks = [
            f"{said}second-order point was found for the tolerances {tolerances.gradient:.6g} (gradient) and "
            f"{tolerances.curvature:.6g} (curvature), noise included",
            f"rows longer than {self._curator.problem.grid.row_bound:.6g}, in units of the bounds, were scaled down",
        ]
        if not self._settings.guaranteed:
            remarks.append("no number of rows is known for which this method is guaranteed to find such a point")
        if self._approximate:
            remarks.append(
                f"curvatures come from Lanczos, there being over {LARGEST_EXACT} weights: their tolerance was halved"
            )
        steps = tuple(self._steps)
        return SecondOrderResult(self._weights, len(steps), steps, tuple(remarks), self._hessians, found)

    # One iteration ---------------------------------------------------------------------------------------------

    def iterate(self, levels: Levels, last: bool) -> bool:
        """Check the point and, unless it passes or this is the last check, take a step."""
        tolerances = self._tolerances
        gradient, shared = self._measure_gradient(levels)
        if np.linalg.norm(gradient) > tolerances.gradient:
            if not last:
                self._buy_step(levels, -gradient, tolerances.gradient_step)
            return False
        matrix = self._measure_hessian(levels, shared)
        curvature, direction = self._lowest(matrix, levels)
        if curvature >= -tolerances.curvature:
            return True
        if not last:
            downhill = -direction if direction @ gradient > 0 else direction
            self._buy_step(levels, downhill, -curvature * tolerances.curvature_step, -curvature)
        return False

    def _measure_gradient(self, levels: Levels) -> tuple[Floats, Batch | None]:
        """Measure the gradient at this point, and its batch if the Hessian is to use it too."""
        together = self._settings.same_batch
        parts = (levels.gradient, levels.hessian) if together else (levels.gradient,)
        batch = Batch(self._sampling, parts, "gradient and Hessian" if together else "")
        query = Gradient(self._weights, self._bounds.gradient, levels.gradient, keep_margins=True)
        return self._curator.answer(query, batch), batch if together else None

    def _measure_hessian(self, levels: Levels, batch: Batch | None = None) -> Floats:
        """Measure the Hessian at this point, from a batch of its own unless one is given."""
        self._hessians += 1
        batch = batch or Batch(self._sampling, (levels.hessian,))
        return self._curator.answer(Hessian(self._weights, levels.hessian), batch)

    def _lowest(self, matrix: Floats, levels: Levels) -> tuple[float, Floats]:
        """Return the lowest curvature and its direction."""
        chance = self._tolerances.failure / (levels.steps + 1)
        return lowest_curvature(matrix, self._tolerances.curvature, chance, self._generator)

    def _buy_step(self, levels: Levels, direction: Floats, safe: float, curvature: float | None = None) -> None:
        """Take the safe step along a direction, or a longer one that a search accepts."""
        step, constants = safe, self._settings
        if levels.search is not None:
            if curvature is None:
                steps = safe * np.array(constants.gradient_ratios)
                demands = constants.asked_gradient * steps * float(direction @ direction)
            else:
                steps = safe * np.array(constants.curvature_ratios)
                demands = constants.asked_curvature / 2 * steps**2 * curvature
            search = FirstStep(self._weights, -direction, steps, demands, levels.search)
            chosen = self._curator.answer(search)
            step = safe if chosen is None else float(steps[chosen])
        self._weights = self._weights + step * direction
        self._steps.append(step)

    # Plans -----------------------------------------------------------------------------------------------------

    @property
    def _approximate(self) -> bool:
        return self._bounds.dimension > LARGEST_EXACT

    def _levels(self, tolerances: Tolerances, amount: float, steps: int) -> Levels:
        curator, rho = self._curator, self._rho(amount)
        currency, together = curator.ledger.currency, self._settings.same_batch
        return make_levels(tolerances, currency, curator.relation, amount, steps, same_batch=together, rho=rho)

    def _rho(self, amount: float) -> float | None:
        """Return the part of the paper's rho that an amount of the budget stands for; None where noise is ours."""
        ledger = self._curator.ledger
        if self._settings.noise != "paper":
            return None
        return zcdp_of(ledger.epsilon, ledger.delta) * amount / self._curator.budget

    def _with_tolerance(self, gradient: float) -> Tolerances:
        """Return what is asked for, at the rate of the batches as they are drawn."""
        return replace(_tolerances(self._settings, self._bounds, gradient), rate=self._sampling.rate)

    def _planned(self, tolerances: Tolerances, objective: float, most: float) -> int:
        """Return how many steps are paid for: all that may be needed, or fewer where nothing is promised."""
        return int(min(self._settings.planned_steps(tolerances, objective), most))

    def _require_drawable(self, tolerances: Tolerances, most: float) -> None:
        """Raise, before anything is charged, what keeps the Hessians of the longest plan from being drawn."""
        settings = self._settings
        steps = self._planned(tolerances, self._largest_objective(), most)
        if steps > MOST_PLANNED and settings.most_steps is None:
            raise InvalidParameter(
                f"up to {steps:,} steps are planned for the tolerances {tolerances.gradient:.3g} and "
                f"{tolerances.curvature:.3g}, and a plan of more than {MOST_PLANNED:,} is refused: raise the "
                "tolerances, lower the bounds of the rows, or say in most_steps when to give up"
            )
        phases = [(settings.guaranteed_share, steps), (settings.optimistic_share, math.ceil(math.sqrt(steps)))]
        for share, most in phases if settings.optimistic_share > 0 else phases[:1]:
            hessian_sum(self._curator.public(), self._levels(tolerances, share * self._budget, most).hessian)

    def _largest_objective(self) -> float:
        """Return an upper bound of the objective at this point, from public numbers."""
        problem = self._curator.problem
        return problem.largest_loss(self._weights) + problem.penalty_value(self._weights)

    def _measure_objective(self) -> float:
        """Measure an upper bound of the objective at this point, without a charge if all losses are equal there."""
        curator, settings, weights = self._curator, self._settings, self._weights
        largest = self._largest_objective()
        if not weights.any():
            return largest
        query = MeanLoss(weights, curator.gaussian(settings.loss_share * self._budget))
        slack = query.deviation(curator.public()) * float(norm.isf(settings.failure / 10))
        return min(largest, curator.answer(query) + slack)


def _tolerances(settings: OPTSettings, bounds: Bounds, gradient: float) -> Tolerances:
    """Return what is asked for; half the curvature for Lanczos, which may be off by the other half."""
    curvature = settings.curvature_tolerance or math.sqrt(bounds.hessian_lipschitz * gradient)
    if bounds.dimension > LARGEST_EXACT:
        curvature /= 2
    rate = settings.sampling_rate
    return Tolerances(bounds, settings, gradient, curvature, settings.search, rate, settings.failure)


def lowest_curvature(
    matrix: Floats, precision: float, failure: float, generator: np.random.Generator
) -> tuple[float, Floats]:
    """Return the least eigenvalue of a symmetric matrix and a unit vector for it.

    Up to `LARGEST_EXACT` dimensions LAPACK finds both. Beyond, Lanczos with all vectors kept orthogonal starts from a
    uniformly random direction: the value is too large by at most ``precision`` but for a probability of ``failure``,
    after min(d, 1 + log(2.75 d/failure^2)/2 sqrt(|H|/(2 precision))) products (Kuczynski & Wozniakowski 1992; Carmon
    et al. 2018). All products are with the one matrix that was released, its noise included, so this is
    post-processing.

    References
    ----------
    Carmon, Y. et al. (2018). Accelerated methods for nonconvex optimization. SIAM J. Optim. arXiv:1611.00756.
    Kuczynski, J. & Wozniakowski, H. (1992). Estimating the largest eigenvalue by the power and Lanczos algorithms
    with a random start. SIAM J. Matrix Anal. Appl. 13.
    """
    dimension = matrix.shape[0]
    if dimension <= LARGEST_EXACT:
        values, vectors = eigh(matrix, subset_by_index=(0, 0))
        return float(values[0]), vectors[:, 0]
    size = float(np.abs(matrix).sum(axis=1).max())  # no eigenvalue is larger
    products = 1 + math.log(2.75 * dimension / failure**2) / 2 * math.sqrt(size / (2 * precision))
    basis = np.empty((dimension, min(dimension, math.ceil(products))), order="F")
    diagonal, beside = np.zeros(basis.shape[1]), np.zeros(basis.shape[1])
    vector = np.asarray(generator.normal(size=dimension))
    for step in range(basis.shape[1]):
        length = float(np.linalg.norm(vector))
        if step and length <= 1e-12 * size:  # an invariant subspace: what follows is of no use
            basis = basis[:, :step]
            break
        beside[step] = length
        basis[:, step] = vector / length
        vector = np.asarray(matrix @ basis[:, step])
        diagonal[step] = basis[:, step] @ vector
        known = basis[:, : step + 1]
        for _ in range(2):
            vector = np.asarray(vector - known @ (known.T @ vector))
    steps = basis.shape[1]
    _, vectors = eigh_tridiagonal(diagonal[:steps], beside[1:steps], select="i", select_range=(0, 0))
    direction = basis @ vectors[:, 0]
    direction /= np.linalg.norm(direction)
    return float(direction @ (matrix @ direction)), direction
