r"""Line search: which of several steps, or of several points, lowers the objective enough, or the most.

`BestStep` and `BestCandidates` choose one with about the least objective. `FirstStep` is NoisyBTLS: the first step
size, from long to short, that lowers the objective enough.

For a public point w, a released direction v and public steps a, the query of a step is the sum over a batch

.. math:: q(a) = \sum_i \mathrm{clip}(l_i(w) - l_i(w - a v), \pm s(a)) - m \, (\text{demand}(a) + \text{penalty})

with the public size m of the batch (n, or rate times n) and s(a) = min(C, L a): no row's loss changes by more than
its slope along v allows, so short steps get little noise. The sum is taken from one count of the rows at public nodes
(`dpdescent.exact.StepwiseScores`): what a row adds to it is near its clipped change, and within +-s(a) exactly.
AboveThreshold answers with the first query that is above zero (Dwork & Roth 2014); what it costs is bounded by
`dpdescent.accounting.bellman`.

With ``clip_losses`` the query is that of the paper,

.. math:: q(a) = \sum_i \min(l_i(w), C) - \min(l_i(w - a v), C) - m \, (\text{demand}(a) + \text{penalty}).

Both terms of a row lie in [0, C], so that their difference lies in [-C, C]: one row moves every query by at most C,
and by at most 2C if it is replaced, as with changes that are clipped to s(a) = C at every step.

References
----------
Chen, C. & Lee, J. (2020). Stochastic adaptive line search for differentially private optimization. arXiv:2008.07978.
Dwork, C. & Roth, A. (2014). The algorithmic foundations of differential privacy, section 3.6.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import AboveThreshold, ExponentialMechanism, ReportNoisyMax
from ..arrays import Floats, Integers
from ..errors import InvalidParameter, require_positive_integer
from ..exact import FeatureGrid, SignedSum, StepwiseScores
from ..noise import MAXIMUM_SCORES
from ..problems import LinearProblem, Loss, StepwiseChanges
from ..relations import Sensitivity
from .per_row import Margins
from .query import Carry, Noised, Public, Query, Sum

_LEAST_SENSITIVITY, _LARGEST_SENSITIVITY = 2.0**-100, 2.0**100
_MOST_ROWS = 2**27  # whose changes int64 adds up
_KNOWN_RATE = 0.25  # from which the margins of all rows, kept from step to step, cost less than copies of the batch
_CELLS = 2**21  # scores that are worked on at once


@dataclass(frozen=True, eq=False)
class FirstStep(Query[int | None]):
    """The index of the first step a that lowers the objective by its demand, or None.

    **Privacy** The query of step a is counted in multiples of 2^-34 s(a), where s(a) = min(ceiling, slope a). A row
    adds to it an integer of size at most 2^34: a mean of public integers (`StepwiseScores`), or, if the loss has no
    profile or losses are clipped, its rounded and clipped change (`StepwiseChanges`). So each query, divided by its
    own s(a), has the sensitivity 1, or 2 when a row is replaced; demands and penalties are public. Margins that are
    kept for all rows are functions of one row each, and a batch uses those of its own rows. One row's changes turn
    sign with the step, so the search is charged as one of queries that are not monotone.
    """

    #: Public: the search goes from w to w - a direction.
    weights: Floats
    direction: Floats
    #: (k,): step sizes in the order of the search, and by how much each must lower the mean objective.
    steps: Floats
    demands: Floats
    mechanism: AboveThreshold  # charged for at least k queries
    #: A row's loss change is clipped to min(``ceiling``, ``slope`` a). The slope is at most the largest there is,
    #: that of the loss times the longest row times the length of the direction.
    slope: float = math.inf
    ceiling: float = math.inf
    #: Clip the losses of a row at w and at w - a direction to [0, ``ceiling``] instead of their difference. The noise
    #: is then that of the ceiling at every step.
    clip_losses: bool = False
    label = "step size"

    def plan(self, public: Public) -> Sum[int | None]:
        problem = public.problem
        weights, direction = public.weights("weights", self.weights), public.weights("direction", self.direction)
        steps, demands = np.asarray(self.steps, dtype=np.float64), np.asarray(self.demands, dtype=np.float64)
        require_steps(weights, direction, steps)
        length = float(np.linalg.norm(direction))
        if not length > 0:
            raise InvalidParameter("the direction has length zero, so no step leads anywhere: measure it again")
        if not ((steps > 0).all() and demands.shape == steps.shape and np.isfinite(demands).all()):
            raise InvalidParameter("steps must be above 0, with one finite demand for each")
        if public.size > _MOST_ROWS:
            raise InvalidParameter(f"a search adds up {_MOST_ROWS} rows at most: lower the sampling rate")
        slope = min(self.slope, problem.loss.lipschitz * problem.longest_row * length)
        steepest = math.inf if self.clip_losses else slope
        bounds = tuple(max(min(self.ceiling, steepest * a), _LEAST_SENSITIVITY) for a in steps.tolist())
        if not (slope > 0 and self.ceiling > 0 and max(bounds) <= _LARGEST_SENSITIVITY):
            raise InvalidParameter("slope and ceiling must be above 0, and one of them finite: they bound a change")
        if steps.size > self.mechanism.max_queries:
            raise InvalidParameter(
                f"{steps.size} steps for a search that is charged for {self.mechanism.max_queries}"
            )
        ceiling = self.ceiling if self.clip_losses else None
        scores = problem.stepwise_scores(tuple(steps.tolist()), bounds, length, ceiling)
        demanded = public.size * (demands + _penalty_rises(problem, weights, direction, steps)) / bounds
        added = np.clip(np.rint(demanded * scores.limit), -(2.0**61), 2.0**61).astype(np.int64)
        placed, along = problem.grid.place_weights(weights), problem.grid.place_weights(direction)
        kept = public.rate >= _KNOWN_RATE

        def carry(chosen: int | None) -> Carry | None:
            if chosen is None or not kept:
                return None
            arrived = problem.grid.place_weights(weights - steps[chosen] * direction)
            return Carry(Margins(problem.grid, arrived), float(steps[chosen]))

        return Sum(
            partial(_step_changes_block, problem, scores, placed, along),
            (
                Noised(
                    self.mechanism,
                    1 / scores.limit,
                    Sensitivity.of_signed_sum(1.0),
                    part=lambda values: -(values + added),
                ),
            ),
            lambda chosen: chosen,
            (Margins(problem.grid, placed), Margins(problem.grid, along, kind="")) if kept else (),
            picks=True,
            carry=carry,
        )


def require_steps(weights: Floats, direction: Floats, steps: Floats) -> None:
    """Raise `InvalidParameter` unless the steps are few and lead to points that are finite and below 2^500."""
    if steps.ndim != 1 or not 1 <= steps.size <= MAXIMUM_SCORES:
        raise InvalidParameter(f"steps must be a vector of 1 to {MAXIMUM_SCORES} numbers, got shape {steps.shape}")
    with np.errstate(all="ignore"):
        farthest = np.abs(weights).max() + np.abs(steps).max() * np.abs(direction).max()
    if not farthest <= 2.0**500:
        raise InvalidParameter("steps lead to points that are not finite or beyond 2^500: shorten them")


def _penalty_rises(problem: LinearProblem, weights: Floats, direction: Floats, steps: Floats) -> Floats:
    """Return by how much each step raises the penalty."""
    if problem.penalty.weight == 0:
        return np.zeros(steps.size)
    before = problem.penalty_value(weights)
    return np.array([problem.penalty_value(weights - a * direction) - before for a in steps])


def _step_changes_block(
    problem: LinearProblem,
    scores: StepwiseScores | StepwiseChanges,
    weights: Floats,
    direction: Floats,
    chosen: NDArray[np.bool_] | None,
    rows: Any,
    labels: Floats,
    *known: Floats,
) -> Integers:
    """Return by how much each step raises the losses of one block, as `StepwiseScores` counts it.

    ``chosen`` tells which rows are in the batch, and ``known`` holds the margins of the weights and of the direction,
    where they are kept.
    """
    kept = None if chosen is None else np.flatnonzero(chosen)
    if kept is not None:
        labels, known = labels[kept], tuple(margins[kept] for margins in known)
    return problem.changes_block(scores, weights, direction, rows, labels, *known, kept=kept)


@dataclass(frozen=True, eq=False)
class BestStep(Query[int]):
    """The index of a step a for which the objective at w - a direction is about least.

    The scores are sums of losses clipped to [0, ``ceiling``], or of loss changes from w, clipped to
    [-``change``, ``change``]; small changes are told apart with far less noise.

    **Privacy** Range of the scores one row can cause: C under zero-out and 2C under replace-one for losses; 2D and 4D
    for changes, whose signs mix.
    """

    weights: Floats
    direction: Floats
    steps: Floats
    mechanism: ExponentialMechanism | ReportNoisyMax
    ceiling: float | None = None
    change: float | None = None
    label = "step size"

    def plan(self, public: Public) -> Sum[int]:
        if (self.ceiling is None) == (self.change is None):
            raise InvalidParameter("give either ceiling (scores are losses) or change (scores are changes)")
        problem = public.problem
        weights, direction = public.weights("weights", self.weights), public.weights("direction", self.direction)
        steps = np.asarray(self.steps, dtype=np.float64)
        require_steps(weights, direction, steps)
        placed, along = problem.grid.place_weights(weights), problem.grid.place_weights(direction)
        scores = problem.scores(self.ceiling, self.change)
        added = _penalties(public, [weights - a * direction for a in steps], scores.unit)

        def carry(chosen: int) -> Carry | None:
            if public.rate < 1:
                return None
            arrived = problem.grid.place_weights(weights - steps[chosen] * direction)
            return Carry(Margins(problem.grid, arrived), float(steps[chosen]))

        return Sum(
            partial(problem.scores_block, scores, placed, along, steps),
            (Noised(self.mechanism, scores.unit, scores.sensitivity, part=lambda values: values + added),),
            lambda chosen: chosen,
            (Margins(problem.grid, placed), Margins(problem.grid, along, kind="")) if public.rate == 1 else (),
            carry=carry,
        )


@dataclass(frozen=True, eq=False)
class BestCandidates(Query[list[int]]):
    """The indices of ``choices`` points with about the least objective, chosen one after another.

    **Privacy** The exponential mechanism on sums of changes. One row may raise one score by D and lower another by D:
    range 2D, and 4D when it is replaced. Only differences between candidates count, so the range of the losses
    themselves, however large, is never paid for.
    """

    candidates: Floats  # (m, *shape of the weights): public points
    reference: Floats  # a public point to which losses are compared
    change: float  # D: the change of a row's loss from the reference is clipped to [-D, D]
    mechanism: ExponentialMechanism  # that of every choice; a point may be chosen again
    choices: int = 1
    label = "candidate"

    def plan(self, public: Public) -> Sum[list[int]]:
        problem, grid = public.problem, public.problem.grid
        points = np.asarray(self.candidates, dtype=np.float64)
        if points.shape[1:] != problem.shape or not 1 <= points.shape[0] <= MAXIMUM_SCORES:
            raise InvalidParameter(f"candidates must have the shape (m, *{problem.shape}), got {points.shape}")
        bounded = SignedSum(self.change)
        # One column per margin: those of the reference first, then candidate after candidate.
        stacked = np.concatenate([public.weights("reference", self.reference)[None], points])
        placed = grid.place_weights(np.moveaxis(stacked, 0, 1).reshape(grid.dimension, -1))
        added = _penalties(public, list(points), bounded.unit)
        choice = Noised(
            self.mechanism, bounded.unit, Sensitivity.of_changes(bounded.bound), part=lambda values: values + added
        )
        return Sum(
            partial(_candidate_changes_block, bounded, grid, problem.loss, placed),
            (choice,) * require_positive_integer("choices", self.choices),
            lambda *chosen: list(chosen),
        )


def _penalties(public: Public, points: list[Floats], unit: float) -> Integers:
    """Return what the penalty adds to the score of every point: public, so it moves no sensitivity."""
    if public.problem.penalty.weight == 0:
        return np.zeros(len(points), dtype=np.int64)
    penalties = [public.size * public.problem.penalty_value(point) / unit for point in points]
    return np.clip(np.rint(penalties), -(2.0**61), 2.0**61).astype(np.int64)


def _candidate_changes_block(
    bounded: SignedSum, grid: FeatureGrid, loss: Loss, placed: Floats, rows: Any, labels: Floats
) -> Integers:
    outputs = loss.outputs
    count = placed.shape[1] // outputs
    total = np.zeros(count - 1, dtype=np.int64)
    size = max(1, _CELLS // placed.shape[1])
    for start in range(0, rows.shape[0], size):
        own = labels[start : start + size]
        margins = grid.margins(rows[start : start + size], placed)
        if outputs == 1:
            repeated = np.broadcast_to(own[:, None], margins.shape)
            losses = loss.values(margins.ravel(), repeated.ravel()).reshape(margins.shape)
        else:
            each = [loss.values(margins[:, k * outputs : (k + 1) * outputs], own) for k in range(count)]
            losses = np.column_stack(each)
        total += bounded.block(losses[:, 1:] - losses[:, :1])
    return total
