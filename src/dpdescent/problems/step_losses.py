"""Scores of step sizes for any loss: its values at every step, rounded and clipped row by row.

A step a leads from w to w - a v. A row with the margins t and u of w and v, and the label y, then has the loss
l(t - a u, y). These classes evaluate it for one step after another, which works for every loss. For a loss that is a
function of one position they are not needed: `dpdescent.exact` looks up its scores in tables, with the same bounds on
what one row adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..arrays import Floats, Integers
from ..errors import InvalidParameter
from ..exact import BoundedSum, SignedSum, StepwiseScores
from ..relations import Sensitivity
from .contract import Loss


@dataclass(frozen=True)
class StepLosses:
    """Total losses at m step sizes clipped to [0, C], or total changes of losses clipped to [-D, D].

    Notes
    -----
    **Privacy.** Unit: one row. A row adds to each score an integer in [0, C/unit], or in [-D/unit, D/unit], that
    depends on its own margins and label and on public numbers. So the range of what it changes is that of
    `BoundedScores` (C if it is removed, 2C if it is replaced) or of `SignedScores` (2D and 4D). A NaN loss counts as
    C, and a NaN change as 0.
    """

    bounds: BoundedSum | SignedSum  # of losses or of changes: what clips and adds them
    loss: Loss

    @property
    def unit(self) -> float:
        """The unit of the scores."""
        return self.bounds.unit

    @property
    def sensitivity(self) -> Sensitivity:
        """Range of the change of the scores."""
        if isinstance(self.bounds, BoundedSum):
            return Sensitivity.of_scores(self.bounds.ceiling)
        return Sensitivity.of_changes(self.bounds.bound)

    def block(self, margins: Floats, along: Floats, labels: Floats, steps: Floats) -> Integers:
        """Return the m totals over one block, in multiples of `unit`."""
        with np.errstate(all="ignore"):  # a warning would reveal something about rows; what overflows is clipped
            here = 0.0 if isinstance(self.bounds, BoundedSum) else self.loss.values(margins, labels)
            losses = (self.loss.values(margins - a * along, labels) - here for a in steps)
            return np.concatenate([self.bounds.block(loss) for loss in losses])


@dataclass(frozen=True)
class StepwiseChanges:
    """Total changes of the loss at m step sizes, each row's change at step j within [-D_j, D_j].

    Attributes
    ----------
    limit : int
        2^34. A total is counted in multiples of D_j / ``limit``, as in `StepwiseScores`.

    Notes
    -----
    **Privacy.** Unit: one row. A row's change is divided by D_j / ``limit``, rounded, and clipped as an integer: it
    adds to every total an integer of size at most ``limit`` that depends on its own margins and label and on public
    numbers; NaN counts as 0. That is the sensitivity of a total if a row is removed, and twice that if it is
    replaced. Integers are added in int64, without overflow for up to 2^28 rows; callers must refuse more.
    """

    steps: tuple[float, ...]  # step sizes
    bounds: tuple[float, ...]  # D_j, public and positive
    loss: Loss
    #: Losses are clipped to it before their change is taken; infinite for no clipping.
    ceiling: float = math.inf
    limit: ClassVar[int] = StepwiseScores.limit

    def __post_init__(self) -> None:
        if not self.steps or len(self.steps) != len(self.bounds):
            raise InvalidParameter(f"expected one bound for each step, got {len(self.steps)} and {len(self.bounds)}")
        if not all(bound > 0 and math.isfinite(bound) for bound in self.bounds):
            raise InvalidParameter("bounds must be finite and above 0")

    def _losses(self, margins: Floats, labels: Floats) -> Floats:
        return np.minimum(self.loss.values(margins, labels), self.ceiling)

    def block(self, margins: Floats, along: Floats, labels: Floats) -> Integers:
        """Return the m totals over one block, in multiples of D_j / `limit`."""
        total = np.zeros(len(self.steps), dtype=np.int64)
        with np.errstate(all="ignore"):  # a warning would reveal something about rows; what overflows is clipped
            before = self._losses(margins, labels)
            for j, (step, bound) in enumerate(zip(self.steps, self.bounds, strict=True)):
                change = np.rint((self._losses(margins - step * along, labels) - before) / bound * self.limit)
                whole = np.clip(np.where(np.isnan(change), 0.0, change), -self.limit, self.limit)
                total[j] = whole.astype(np.int64).sum()
        return total
