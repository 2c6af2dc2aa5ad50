"""Which of several steps, or of several points, has about the least objective."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..accounting import ExponentialMechanism, ReportNoisyMax
from ..errors import InvalidParameter, require_positive_integer
from ..exact import FeatureGrid, SignedSum
from ..noise import MAXIMUM_SCORES
from ..problems import Loss
from ..relations import Sensitivity
from .per_row import Margins
from .questions import Carry, Noised, Public, Question, Sum
from .search import require_steps
from .sources import Floats, Integers

_CELLS = 2**21  # scores that are worked on at once


@dataclass(frozen=True, eq=False)
class BestStep(Question[int]):
    """The index of a step a for which the objective at w - a direction is about least.

    The scores are sums of losses clipped to [0, ``ceiling``], or of loss changes from w, clipped to
    [-``change``, ``change``]; small changes are told apart with far less noise.

    **Privacy** Range of the scores one row can cause: C under zero-out and 2C under replace-one for losses; 2D and 4D
    for changes, whose signs mix.
    """

    weights: Floats
    direction: Floats
    steps: Floats
    choice: ExponentialMechanism | ReportNoisyMax
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
            (Noised(self.choice, scores.unit, scores.sensitivity, part=lambda values: values + added),),
            lambda chosen: chosen,
            (Margins(problem.grid, placed), Margins(problem.grid, along, kind="")) if public.rate == 1 else (),
            carry=carry,
        )


@dataclass(frozen=True, eq=False)
class BestCandidates(Question[list[int]]):
    """The indices of ``choices`` points with about the least objective, chosen one after another.

    Parameters
    ----------
    candidates : ndarray of shape (m, *shape of the weights)
        Public points.
    reference : ndarray
        A public point to which losses are compared.
    change : float
        D: the change of a row's loss from the reference is clipped to [-D, D].
    choice : ExponentialMechanism
        That of every choice; a point may be chosen again.
    choices : int

    Notes
    -----
    **Privacy** The exponential mechanism on sums of changes. One row may raise one score by D and lower another by D:
    range 2D, and 4D when it is replaced. Only differences between candidates count, so the range of the losses
    themselves, however large, is never paid for.
    """

    candidates: Floats
    reference: Floats
    change: float
    choice: ExponentialMechanism
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
            self.choice,
            bounded.unit,
            Sensitivity.of_changes(bounded.bound),
            part=lambda values: values + added,
        )
        return Sum(
            partial(_changes_block, bounded, grid, problem.loss, placed),
            (choice,) * require_positive_integer("choices", self.choices),
            lambda *chosen: list(chosen),
        )


def _penalties(public: Public, points: list[Floats], unit: float) -> Integers:
    """Return what the penalty adds to the score of every point: public, so it moves no sensitivity."""
    if public.problem.penalty.weight == 0:
        return np.zeros(len(points), dtype=np.int64)
    penalties = [public.size * public.problem.penalty_value(point) / unit for point in points]
    return np.clip(np.rint(penalties), -(2.0**61), 2.0**61).astype(np.int64)


def _changes_block(
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
