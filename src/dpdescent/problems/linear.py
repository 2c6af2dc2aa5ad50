"""Linear models: the mathematics of one row, and its exact sums over a block of rows.

The objective is (1/n) sum_i l(x_i . w, y_i) + penalty(w), with a public n. No privacy, no noise and no I/O here: a
`LinearProblem` says what is summed and how much one row can change it, nothing more.

**Scores of step sizes.** A step a leads from w to w - a v. A row with the margins t and u of w and v, and the label
y, then has the loss l(t - a u, y). `StepLosses` and `StepwiseChanges` evaluate it for one step after another,
rounded and clipped row by row, which works for every loss. For a loss that is a function of one position they are
not needed: `dpdescent.exact` looks up its scores in tables, with the same bounds on what one row adds.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats, Integers
from ..errors import InvalidParameter, UnsupportedCost, require_nonnegative
from ..exact import (
    BoundedScores,
    BoundedSum,
    ClippedSum,
    FeatureGrid,
    SecondMomentSum,
    SignedScores,
    SignedSum,
    StepwiseScores,
)
from ..relations import Relation, Sensitivity
from .contract import Loss
from .penalties import L2, Adversary, Penalty

# A run asks for the same few again and again.
_clipped_sum = lru_cache(maxsize=64)(ClippedSum)
_bounded_scores = lru_cache(maxsize=64)(BoundedScores)
_LARGEST_HESSIAN = 2**13  # half a gigabyte
_LARGEST_OUTPUTS = 2**10  # of a row whose vector of residuals is clipped
_ROWS_AT_ONCE = 512  # of a batch: a copy that stays in cache


@dataclass(frozen=True)
class StepLosses:
    """Total losses at m step sizes clipped to [0, C], or total changes of losses clipped to [-D, D].

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
    #: 2^34. A total is counted in multiples of D_j / ``limit``, as in `StepwiseScores`.
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


@dataclass(frozen=True)
class LinearProblem:
    """A loss, a penalty and the public bounds of the rows."""

    loss: Loss
    grid: FeatureGrid  # public bounds of the features; with an intercept, its last column is the constant 1
    penalty: Penalty = field(default_factory=L2)
    intercept: bool = True  # whether the last weight is an intercept, which is penalised only if the penalty says so
    tilt: float = 0.0  # how much more rows with large losses weigh (`dpdescent.minimisers.robust`); 0 is the mean
    adversary: Adversary | None = None  # who moves every row before its loss is taken
    #: Public: for every feature whether it is 0 or 1, None where that was not declared; empty if nothing is known.
    binary: tuple[bool | None, ...] = ()
    #: Public: for every feature the middle of its range, or 0 if the range contains 0 in the caller's units; empty if
    #: no range is known.
    middles: tuple[float, ...] = ()
    #: Public: groups of features of which exactly one is 1 in every row, and the others 0. Only errors of estimates
    #: rest on it.
    levels: tuple[tuple[int, ...], ...] = ()
    #: Public: whether some features are bends of curves, whose weights are shrunk by their own evidence afterwards.
    curves: bool = False

    def __post_init__(self) -> None:
        require_nonnegative("tilt", self.tilt)
        features = self.grid.dimension - int(self.intercept)
        for name in ("binary", "middles"):
            known = len(getattr(self, name))
            if known not in (0, features):
                raise InvalidParameter(f"{name} says something of {known} features, and there are {features}")
        if self.adversary is not None:
            self.adversary.support(self.grid.dimension, self.intercept)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the weights: (d,) or (d, K)."""
        outputs = self.loss.outputs
        return (self.grid.dimension,) if outputs == 1 else (self.grid.dimension, outputs)

    # Public constants ----------------------------------------------------------------------------------------

    @cached_property
    def longest_row(self) -> float:
        """Largest norm of a row on the grid: rounding its entries may lift it above the row bound."""
        grid = self.grid
        entries_fit = math.ldexp(grid.entry_bound, grid.exponent).is_integer()
        plain = grid == type(grid)(grid.entry_bound, grid.dimension)
        rounding = 0.0 if entries_fit and plain else math.sqrt(grid.dimension) * 2.0 ** -(grid.exponent + 1)
        return (grid.row_bound + rounding) * (1 + 2.0**-50)

    @property
    def gradient_bound(self) -> float:
        """Largest norm of a row's gradient; infinite where only clipping bounds it."""
        return self.loss.lipschitz * self.longest_row

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient of the mean loss, penalty excluded."""
        return self.loss.smoothness * self.longest_row**2

    @property
    def hessian_lipschitz(self) -> float:
        """Lipschitz constant of the Hessian of the mean loss, penalty excluded."""
        return self.loss.curvature_lipschitz * self.longest_row**3

    def gradient_sensitivity(self, relation: Relation, clip: float = math.inf) -> float:
        """Return by how much one row moves the sum of gradients clipped to ``clip``."""
        return Sensitivity.of_clipped_sum(min(clip, self.gradient_bound)).under(relation)

    def hessian_sensitivity(self, relation: Relation) -> float:
        """Return by how much one row moves the sum of Hessians, in the Frobenius norm: no sqrt(d) for rank one."""
        return self.hessian_sum().sensitivity.under(relation)

    def largest_loss(self, weights: Floats) -> float:
        """Return a bound on a row's loss at ``weights``, whatever its label: its margins are at most R |w| long."""
        reach = self.longest_row * float(np.linalg.norm(weights)) * (1 + 2.0**-40)
        return self.loss.largest(reach) * (1 + 2.0**-40)

    # Penalty -------------------------------------------------------------------------------------------------

    def _without_spared_intercept(self, weights: Floats) -> Floats:
        if not self.intercept or self.penalty.intercept:
            return weights
        kept = weights.copy()
        kept[-1] = 0.0
        return kept

    def penalty_value(self, weights: Floats) -> float:
        """Return the penalty of the weights, without their intercept where it is spared."""
        return self.penalty.value(self._without_spared_intercept(weights))

    def penalty_gradient(self, weights: Floats) -> Floats:
        """Return the gradient of the penalty, zero for an intercept that is spared."""
        return self.penalty.gradient(self._without_spared_intercept(weights))

    def penalty_curvature(self, weights: Floats) -> Floats:
        """Return the diagonal of the penalty's Hessian, zero for an intercept that is spared."""
        curvature = self.penalty.curvature(weights)
        if self.intercept and not self.penalty.intercept:
            curvature[-1] = 0.0
        return curvature

    # Exact sums over a block of rows -------------------------------------------------------------------------

    def clipped_sum(self, clip: float, total_bits: int = ClippedSum.total_bits) -> ClippedSum:
        """Return the public parameters of a sum of gradients clipped to ``clip``."""
        if self.loss.outputs > _LARGEST_OUTPUTS:
            raise InvalidParameter(
                f"gradients have at most {_LARGEST_OUTPUTS} outputs per row, got {self.loss.outputs} classes"
            )
        return _clipped_sum(self.grid, clip, total_bits)

    def features_block(self, clipped: ClippedSum, rows: Any, labels: Floats, caps: Floats) -> Integers:
        """Return the sum of the rows themselves, each clipped to the norm of ``clipped``, over one block."""
        return clipped.block(rows, clipped.coefficients_within(np.ones(caps.shape[0]), caps))

    def moments_block(self, clipped: ClippedSum, rows: Any, labels: Floats, caps: Floats) -> Integers:
        """Return `features_block` and `squares_block`, one after the other."""
        blocks = (self.features_block, self.squares_block)
        return np.concatenate([block(clipped, rows, labels, caps) for block in blocks])

    def squares_block(self, clipped: ClippedSum, rows: Any, labels: Floats, caps: Floats) -> Integers:
        """Return the sum of the rows' squared entries, weighted as in `features_block`, over one block.

        Entries are at most 1 and on the grid, so a square rounded to the grid is at most the entry: a row's squares
        are no longer than the row itself, and obey the same clip norm.
        """
        if sparse.issparse(rows):
            squares = type(rows)((self._rounded_squares(rows.data), rows.indices, rows.indptr), shape=rows.shape)
            return self.features_block(clipped, squares, labels, caps)
        total, few = np.zeros(rows.shape[1], dtype=np.int64), max(1, 2**17 // rows.shape[1])
        for first in range(0, rows.shape[0], few):  # the squares stay in cache
            some = slice(first, first + few)
            total += self.features_block(clipped, self._rounded_squares(rows[some]), labels[some], caps[some])
        return total

    def _rounded_squares(self, entries: NDArray[Any]) -> Floats:
        squares = entries.astype(np.float64)  # a copy; float32 would round the products
        squares *= squares
        squares *= 2.0**self.grid.exponent
        np.rint(squares, out=squares)
        squares *= 2.0**-self.grid.exponent
        return squares

    def loss_block(self, bounded: BoundedSum, weights: Floats, rows: Any, labels: Floats) -> Integers:
        """Return the sum of losses clipped to [0, C] over one block."""
        return bounded.block(self.loss.values(self.grid.margins(rows, weights), labels))

    def hessian_sum(self, total_bits: int = SecondMomentSum.total_bits) -> SecondMomentSum:
        """Return the public parameters of a sum of Hessians, in which no row is clipped, except for rounding."""
        if self.loss.outputs > 1:
            raise InvalidParameter("Hessians are those of a loss of one margin: use two classes")
        bound = self.smoothness
        if math.isinf(bound):
            raise UnsupportedCost("the loss has a kink, so its Hessian is unbounded: use the huberised hinge")
        if self.grid.dimension > _LARGEST_HESSIAN:
            raise InvalidParameter(
                f"a Hessian of {self.grid.dimension} weights does not fit, the largest has {_LARGEST_HESSIAN}: use "
                "fewer columns, or a method that needs gradients alone"
            )
        return SecondMomentSum(self.grid.coarse, bound, self.loss.convex, total_bits)

    def hessian_block(
        self, moments: SecondMomentSum, weights: Floats, rows: Any, labels: Floats, margins: Floats | None = None
    ) -> Integers:
        """Return the sum of Hessians l'' x x' over one block; outer products are those of rows on the coarse grid.

        ``margins`` are those of the weights, where they are known already.
        """
        known = self.grid.margins(rows, weights) if margins is None else margins
        return moments.in_parts(rows, self.loss.curvatures(known, labels), moments.grid.round_rows)

    def line_margins(
        self, weights: Floats, direction: Floats, rows: Any, kept: Integers | None = None
    ) -> tuple[Floats, Floats]:
        """Return the margins of the weights and of the direction, from one pass over the rows, or the kept ones.

        Both are exact, because each column of the stacked weights has its own grid; the margin at any step a is
        then elementwise, t - a u. Kept dense rows are copied a few at a time, so that the copies are still in cache.
        """
        stacked = np.column_stack([weights.reshape(len(weights), -1), direction.reshape(len(direction), -1)])
        placed = self.grid.place_weights(stacked)
        if kept is None or sparse.issparse(rows):
            margins = self.grid.margins(rows if kept is None else rows[kept], placed)
        else:
            margins = np.empty((kept.size, placed.shape[1]), order="F")
            copies = np.empty((_ROWS_AT_ONCE, rows.shape[1]), rows.dtype)
            for first in range(0, kept.size, _ROWS_AT_ONCE):
                some = kept[first : first + _ROWS_AT_ONCE]
                part = rows.take(some, 0, copies[: some.size], "clip")
                margins[first : first + _ROWS_AT_ONCE] = self.grid.margins(part, placed)
        half = margins.shape[1] // 2
        first_half, second_half = margins[:, :half], margins[:, half:]
        return (first_half[:, 0], second_half[:, 0]) if weights.ndim == 1 else (first_half, second_half)

    def scores(self, ceiling: float | None, change: float | None) -> StepScores:
        """Return the public parameters of the scores of step sizes: of losses up to ``ceiling``, or of changes.

        A loss with a profile is looked up in a table, any other is computed at every step.
        """
        if not self.loss.has_profile:
            return StepLosses(BoundedSum(ceiling) if ceiling is not None else SignedSum(change), self.loss)  # type: ignore[arg-type]
        interval = self.loss.table(ceiling)
        if ceiling is not None:
            return _bounded_scores(ceiling, self.loss.tabulated, interval)
        return SignedScores(change, self.loss.tabulated, interval)  # type: ignore[arg-type]

    def stepwise_scores(
        self, steps: tuple[float, ...], bounds: tuple[float, ...], length: float, ceiling: float | None = None
    ) -> StepwiseScores | StepwiseChanges:
        """Return the public parameters of changes at steps along a direction of that length, bounded for each step.

        With a ``ceiling`` they are changes of losses that are clipped to it first, computed at every step. Otherwise
        a loss with a profile is looked up at public nodes, any other is computed at every step. The choice of nodes
        affects utility only. Where the loss is steepest, a row whose slope is four widths reaches its bound, so that
        of the rows beyond the last node only those with a flat loss are approximated. A loss with a kink needs closer
        nodes. For a loss with an unbounded slope, which is quadratic, the bounds decide how close the nodes must be.
        """
        if not self.loss.has_profile or ceiling is not None:
            return StepwiseChanges(steps, bounds, self.loss, math.inf if ceiling is None else ceiling)
        loss, steepest = self.loss, max(bound / step for bound, step in zip(bounds, steps, strict=True))
        slope_width = self.longest_row * length / 31  # no row is beyond the last node
        if math.isinf(loss.lipschitz):
            start_width = steepest / (6 * slope_width)
        else:
            slope_width = min(slope_width, steepest / (4 * loss.lipschitz))
            start_width = loss.lipschitz / 2 if math.isfinite(loss.smoothness) else loss.lipschitz / 4
        return StepwiseScores(steps, bounds, loss.tabulated, start_width, slope_width, loss.centre)

    def scores_block(
        self,
        scores: StepScores,
        weights: Floats,
        direction: Floats,
        steps: Floats,
        rows: Any,
        labels: Floats,
        margins: Floats | None = None,
        along: Floats | None = None,
    ) -> Integers:
        """Return the score of every step a from w to w - a direction, summed over one block.

        ``margins`` and ``along`` are the margins of the weights and of the direction, where they are known already.
        """
        if margins is None or along is None:
            margins, along = self.line_margins(weights, direction, rows)
        if isinstance(scores, StepLosses):
            return scores.block(margins, along, labels, steps)
        return scores.block(*self.loss.line(margins, along, labels), steps)

    def changes_block(
        self,
        scores: StepwiseScores | StepwiseChanges,
        weights: Floats,
        direction: Floats,
        rows: Any,
        labels: Floats,
        margins: Floats | None = None,
        along: Floats | None = None,
        *,
        kept: Integers | None = None,
    ) -> Integers:
        """Return by how much every step raises the losses of one block, or of the ``kept`` rows of it.

        It is counted in multiples of D_j / ``scores.limit``, the bounds being those of `stepwise_scores`. Labels,
        and margins where they are known already, are those of the kept rows.
        """
        if margins is None or along is None:
            margins, along = self.line_margins(weights, direction, rows, kept)
        if isinstance(scores, StepwiseChanges):
            return scores.block(margins, along, labels)
        return scores.block(*self.loss.line(margins, along, labels, np.float32))


StepScores = BoundedScores | SignedScores | StepLosses
