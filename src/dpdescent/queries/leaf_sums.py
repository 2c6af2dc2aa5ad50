r"""Sums over the leaves of a tree whose splits were drawn without looking at the rows.

A tree looks at D cells of a row, each by a public rule; the answers are the D bits of its leaf, so the tree is a
histogram with :math:`2^D` cells, and every row is in one of them. With scores t that follow from public tables and
from the leaves of earlier trees, a row has the residuals l'(t, y), one for each of K outputs, and the curvature h. It
adds

.. math:: v = (l'_1, \dots, l'_K, w h)

to the cell of its leaf, and nothing to the others. v is rounded to a lattice and shortened to norm C.

**Sensitivity.** *A row is added or removed*: one cell moves by v, so the whole vector moves by :math:`|v| \le C`.
*A row is replaced* by one with v': if the two are in different cells, by :math:`\sqrt{|v|^2 + |v'|^2} \le \sqrt 2
C`; in the same cell by :math:`|v - v'| \le 2C`, which two rows with opposite residuals attain. *A unit of k rows*
moves it by k times as much (`dpdescent.curator.units`).

**Lengthened rows.** The noise is that of the longest v there may be. A row of a logistic loss with the chance p has
the residual p or 1 - p, by its label, so where p is 1/2 no row is longer than 1/2. Where labels are classes,
residuals and curvature are therefore multiplied by the same factor,

.. math:: f(t) = \min\Big(2, \frac{s}{\max_y |l'(t, y)|}\Big),

s being the size to which residuals are clipped: whichever label is the least likely, the residual of a row with it is
as long as it may be. The factor follows from scores and not from labels, so residuals that are 0 on average still
are: the sums say the same about a leaf, with noise that is up to twice as small beside it. For two classes the factor
is 1/max(p, 1 - p), and the rows add the derivative of a loss that is exp(-z) where z = y t is positive, and 1 - z
elsewhere.

**What a curvature costs.** The lengthened curvature of a logistic loss is min(p, 1 - p), at most 1/2. With w = s/2 it
adds at most s/4 beside residuals of size s, and C = s sqrt(1 + 1/16) is 3% longer than what they have alone. The norm
is enforced for every row, whatever a loss says.

**A choice of trees.** Of some trees with public splits, `BestTree` chooses one that splits rows with different
residuals: its score is the sum over leaves of the length of their sum of residuals,

.. math:: U = \sum_l \Big| \sum_{i \in l} r_i \Big|, \qquad |r_i| \le s.

*A row is added or removed*: it moves the sum of one leaf by r, and its length by at most s, by the triangle
inequality. So every U moves by at most s, some up and others down, and their spread is at most 2s. *A row is
replaced*: it is removed and another added, 4s. *A unit of k rows*: k times as much. The exponential mechanism pays
for that spread, however many trees there are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..accounting import ExponentialMechanism, Gaussian
from ..arrays import Floats, Integers
from ..errors import InvalidParameter, ScaleOutOfRange, require_positive
from ..exact import ceil_log2, require_moderate
from ..problems import LabelKind, Loss
from ..relations import Sensitivity
from .per_row import PerRow
from .query import Noised, Public, Query, Sum

_LONGEST = 2.0  # that a row is lengthened: a loss of classes without weights never reaches more
_BITS = 22  # lattice steps in the clip norm, as a power of 2
_LEAST_BITS = 8
_SCALE_BITS = 51  # lattice noise has a scale of at most 2^52, and rounds it up
_DEEPEST = 16
_MOST_TREES, _SCORE_BITS = 64, 12  # that one is chosen from, and lattice steps of their scores in the slope
_SLACK = 1 - 2.0**-40


@dataclass(frozen=True, eq=False)
class Splits:
    """The public splits of a tree: for each split its column, and the side on which every level of cells is."""

    columns: tuple[int, ...]  # D positions
    #: A cell is on the level nearest to it, from 0 to m - 1; whatever lies beyond is on the last one.
    sides: NDArray[np.bool_]

    @property
    def depth(self) -> int:
        """The number of questions, D."""
        return len(self.columns)

    def require(self, columns: int) -> None:
        """Raise `InvalidParameter` unless these are questions about a table of so many columns."""
        sides = np.asarray(self.sides)
        if not 1 <= self.depth <= _DEEPEST or not all(0 <= each < columns for each in self.columns):
            raise InvalidParameter(f"a tree asks about 1 to {_DEEPEST} of the {columns} columns, by their positions")
        if sides.dtype != np.bool_ or sides.ndim != 2 or len(sides) != self.depth or not 1 <= sides.shape[1] <= 2**16:
            raise InvalidParameter("a tree has a side, true or false, for every level of each column it asks about")


def leaf_of(splits: Splits, rows: Any) -> NDArray[np.uint16]:
    """Return the leaf of every row: its bits are the answers, the first one the most significant."""
    leaf = np.zeros(rows.shape[0], dtype=np.uint16)
    for column, sides in zip(splits.columns, splits.sides, strict=True):
        leaf += leaf
        leaf += sides.astype(np.uint8)[levels_of(rows, column, sides.size)]
    return leaf


def levels_of(rows: Any, column: int, levels: int) -> Any:
    """Return the level of every cell of a column: the nearest whole number from 0 to ``levels`` - 1."""
    cells = rows[:, [column]].toarray()[:, 0] if sparse.issparse(rows) else rows[:, column]
    if cells.dtype == np.uint8:
        return cells if levels > np.iinfo(np.uint8).max else np.minimum(cells, np.uint8(levels - 1))
    nearest = np.rint(cells.astype(np.float64))
    # Unlike clip, these leave no NaN, which no integer stands for.
    return np.fmax(np.fmin(nearest, levels - 1), 0.0).astype(np.intp)


@dataclass(frozen=True, eq=False)
class LeafOf(PerRow):
    """The leaf of every row in a tree."""

    splits: Splits
    kind = "leaves"

    @property
    def key(self) -> Hashable:
        return self.splits

    def block(self, rows: Any, labels: Floats, *needed: Floats) -> Floats:
        return leaf_of(self.splits, rows)  # type: ignore[return-value]


@dataclass(frozen=True, eq=False)
class ColumnTables:
    """Public scores to start from: a constant, and for each of some columns a number for every level of its cells."""

    constant: Floats
    tables: tuple[tuple[int, Floats], ...] = ()  # positions of columns, and what each level adds

    def scores(self, rows: Any) -> Floats:
        """Return the (n, K) scores of rows, column by column in a fixed order."""
        total = np.tile(np.asarray(self.constant, dtype=np.float64), (rows.shape[0], 1))
        for column, table in self.tables:
            total += table[levels_of(rows, column, len(table))]
        return total


@dataclass(frozen=True, eq=False)
class LeafValues:
    """A public tree: its splits, and the (2^D, K) numbers that its leaves add to the scores."""

    splits: Splits
    values: Floats


@dataclass(frozen=True, eq=False)
class LeafScores(PerRow):
    """The (n, K) scores of the rows: those of public tables, or of earlier trees, and what one more tree adds.

    A curator keeps the scores of the latest trees, so that each tree adds one pass.
    """

    start: ColumnTables | LeafScores
    tree: LeafValues | None = None
    kind = "scores of leaves"

    @property
    def needs(self) -> tuple[PerRow, ...]:  # type: ignore[override]
        """The scores before the last tree, and the leaves in it."""
        if isinstance(self.start, ColumnTables) or self.tree is None:
            return ()
        return self.start, LeafOf(self.tree.splits)

    @property
    def block(self) -> Callable[..., Floats]:
        """What computes the numbers of a block: it knows of the last tree alone, and can be sent elsewhere."""
        if isinstance(self.start, ColumnTables):
            return partial(_started, self.start)
        assert self.tree is not None
        return partial(_grown, self.tree)

    def grown(self, tree: LeafValues) -> LeafScores:
        """Return the scores after one more tree."""
        return LeafScores(self, tree)


def _started(start: ColumnTables, rows: Any, labels: Floats) -> Floats:  # noqa: ARG001
    return start.scores(rows)


def _grown(tree: LeafValues, rows: Any, labels: Floats, before: Floats, leaves: Floats) -> Floats:  # noqa: ARG001
    grown: Floats = before + tree.values[leaves.astype(np.intp)]
    return grown


@dataclass(frozen=True, eq=False)
class LeafSums(Query[tuple[Floats, Floats]]):
    """The sums of residuals, shape (2^D, K), and of curvatures, shape (2^D,), over the leaves of a public tree.

    **Privacy** A row adds a vector of norm at most C to one cell: L2 sensitivity C if it is added or removed, and 2C
    if it is replaced, which two rows of one leaf attain; rows of different leaves are at most sqrt(2) C apart. For a
    unit of k rows it is k times that. The module derives it. Leaves and scores of a row are functions of that row and
    of public numbers.
    """

    splits: Splits  # public, or drawn from released numbers
    scores: LeafScores  # public scores at which the loss is differentiated
    slope: float  # s, to which each residual is clipped, and that of the least likely class lengthened
    clip: float  # C, the norm to which what a row adds is shortened after that
    weight: float  # w, by which curvatures are multiplied before noise is added, and divided afterwards
    mechanism: Gaussian
    label = "leaf sums"

    @staticmethod
    def sensitivity(clip: float) -> Sensitivity:
        """Return how much one row can change the sums."""
        return Sensitivity.of_clipped_sum(clip)

    def plan(self, public: Public) -> Sum[tuple[Floats, Floats]]:
        loss, columns = public.problem.loss, public.problem.grid.dimension
        clip = require_moderate("clip", require_positive("clip", self.clip))
        slope = min(require_moderate("slope", require_positive("slope", self.slope)), clip)
        weight = require_moderate("weight", require_positive("weight", self.weight))
        _require_tree(self.splits, self.scores, columns, loss.outputs)
        loss.typical_curvatures(np.empty((0, *public.problem.shape[1:])), np.empty(0))  # raises if it has none
        moved = self.sensitivity(1.0).times(public.rows_per_unit).under(public.relation)
        bits = min(_BITS, _SCALE_BITS - ceil_log2(self.mechanism.noise_multiplier * moved))
        if bits < _LEAST_BITS:
            raise ScaleOutOfRange("noise so large beside what a row adds cannot be drawn: spend more on the answer")
        exponent = bits - ceil_log2(clip)
        cells, outputs = 2**self.splits.depth, loss.outputs

        def finish(noisy: Floats) -> tuple[Floats, Floats]:
            sums = noisy.reshape(outputs + 1, cells)
            return sums[:outputs].T.copy(), sums[outputs] / weight

        block = partial(_leaf_block, loss, cells, (slope, clip, weight), exponent)
        noised = Noised(self.mechanism, math.ldexp(1.0, -exponent), self.sensitivity(clip), public.rate)
        return Sum(block, (noised,), finish, (self.scores, LeafOf(self.splits)))


@dataclass(frozen=True, eq=False)
class BestTree(Query[int]):
    """The index of one of some public trees, whose leaves differ in their residuals about the most.

    **Privacy** A row adds residuals of norm at most s to one leaf of every tree. So it moves the score of each tree
    by at most s, and by 2s if it is replaced; the spread of what it does to all of them is at most twice that. The
    module derives it. Residuals are whole numbers of lattice steps, and are shortened to two steps less than s, since
    the length of a leaf is rounded before and after.
    """

    candidates: Sequence[Splits]  # public, or drawn from released numbers; all of one depth
    scores: LeafScores  # public scores at which the loss is differentiated
    slope: float  # s, as for `LeafSums`
    mechanism: ExponentialMechanism
    label = "choice of a tree"

    @staticmethod
    def sensitivity(slope: float) -> Sensitivity:
        """Return how far one row can spread the scores."""
        return Sensitivity.of_changes(slope)

    def plan(self, public: Public) -> Sum[int]:
        loss, columns = public.problem.loss, public.problem.grid.dimension
        slope = require_moderate("slope", require_positive("slope", self.slope))
        if not 1 <= len(self.candidates) <= _MOST_TREES or len({each.depth for each in self.candidates}) > 1:
            raise InvalidParameter(f"a tree is chosen from 1 to {_MOST_TREES} trees of one depth")
        for each in self.candidates:
            _require_tree(each, self.scores, columns, loss.outputs)
        exponent = _SCORE_BITS - ceil_log2(slope)
        block = partial(_candidates_block, loss, tuple(self.candidates), slope, exponent)
        part = partial(_length_scores, (len(self.candidates), loss.outputs, -1))
        noised = Noised(self.mechanism, math.ldexp(1.0, -exponent), self.sensitivity(slope), part=part)
        return Sum(block, (noised,), int, (self.scores,))


def _candidates_block(
    loss: Loss, candidates: tuple[Splits, ...], slope: float, exponent: int, rows: Any, labels: Floats, scores: Floats
) -> Integers:
    """Return the sums of residuals over the leaves of every tree, one tree and output after another."""
    added, _ = _bounded(loss, slope, labels, scores)
    _shorten(added, math.ldexp(slope, exponent) - 2.0, exponent)
    sums = []
    for splits in candidates:
        leaves = leaf_of(splits, rows).astype(np.intp)
        sums += [np.bincount(leaves, each, minlength=2**splits.depth) for each in added]
    return np.concatenate(sums).astype(np.int64)


def _length_scores(shape: tuple[int, ...], sums: Integers) -> Integers:
    """Return the scores of trees, the best one the least. The length of each leaf is rounded to a whole number."""
    squares = np.zeros((shape[0], sums.size // (shape[0] * shape[1])))
    for own in np.moveaxis(sums.reshape(shape).astype(np.float64), 1, 0):
        squares += own * own
    scores: Integers = -np.rint(np.sqrt(squares)).astype(np.int64).sum(axis=1)
    return scores


def _require_tree(splits: Any, scores: Any, columns: int, outputs: int) -> None:
    """Raise `InvalidParameter` unless splits and scores belong to a table of so many columns."""
    if not isinstance(splits, Splits) or not isinstance(scores, LeafScores):
        raise InvalidParameter("leaf sums need Splits and LeafScores, which are public")
    splits.require(columns)
    start: Any = scores
    while isinstance(start, LeafScores):
        tree, start = start.tree, start.start
        if tree is None:
            continue
        if isinstance(tree, LeafValues):
            tree.splits.require(columns)
        if (
            not isinstance(tree, LeafValues)
            or tree.values.shape != (2**tree.splits.depth, outputs)
            or not np.isfinite(tree.values).all()
        ):
            raise InvalidParameter(f"a tree adds {outputs} finite numbers to the scores of each leaf")
    if (
        not isinstance(start, ColumnTables)
        or np.shape(start.constant) != (outputs,)
        or not np.isfinite(np.asarray(start.constant, dtype=np.float64)).all()
    ):
        raise InvalidParameter(f"scores start from {outputs} finite constants")
    for column, table in start.tables:
        shaped = table.ndim == 2 and table.shape[1] == outputs and len(table) > 0
        if not 0 <= column < columns or not shaped or not np.isfinite(table).all():
            raise InvalidParameter(f"scores start from tables with {outputs} numbers for every level of a column")


def lengthening(loss: Loss, slope: float, margins: Floats) -> Floats | None:
    """Return by what the residuals and the curvature of each row are multiplied; None for a loss of numbers."""
    if loss.labels.kind is LabelKind.NUMBERS:
        return None
    longest = loss.longest_residuals(margins)
    factors: Floats = slope / np.maximum(longest, slope / _LONGEST)
    return factors


def _leaf_block(
    loss: Loss,
    cells: int,
    bounds: tuple[float, float, float],
    exponent: int,
    rows: Any,  # noqa: ARG001
    labels: Floats,
    scores: Floats,
    leaves: NDArray[np.uint16],
) -> Integers:
    """Return the sums over the leaves of a block: outputs first, then the curvature, each a row of cells."""
    slope, clip, weight = bounds
    residuals, curvatures = _bounded(loss, slope, labels, scores)
    # What a row adds, one number after another in contiguous memory: a norm is then added up in a fixed order.
    added = np.concatenate([residuals, np.fmax(np.fmin(weight * curvatures, clip), 0.0)[None]])
    _shorten(added, math.ldexp(clip, exponent), exponent)
    where = leaves.astype(np.intp)
    # Whole numbers below 2^23 of fewer than 2^30 rows: float64 adds them exactly, in any order.
    sums = np.stack([np.bincount(where, each, minlength=cells) for each in added])
    return sums.reshape(-1).astype(np.int64)


def _bounded(loss: Loss, slope: float, labels: Floats, scores: Floats) -> tuple[Floats, Floats]:
    """Return what is clipped of the lengthened residuals, (K, n), and the lengthened curvatures, (n,)."""
    margins = scores[:, 0] if loss.outputs == 1 else scores
    residuals = loss.short_residuals(margins, labels)
    curvatures, factors = loss.typical_curvatures(residuals, labels), lengthening(loss, slope, margins)
    by_output = residuals[None] if residuals.ndim == 1 else residuals.T
    if factors is not None:
        by_output, curvatures = by_output * factors, curvatures * factors
    bounded: Floats = np.fmax(np.fmin(by_output, slope), -slope)  # unlike clip, these leave no NaN
    return np.ascontiguousarray(bounded), curvatures


def _shorten(added: Floats, cap: float, exponent: int) -> None:
    """Overwrite columns by whole numbers, in lattice steps, of norm at most ``cap`` (Lemma 2' of NOISE.md)."""
    added *= math.ldexp(1.0, exponent)
    np.rint(added, out=added)
    squared = added[0] * added[0]
    for each in added[1:]:
        squared += each * each
    long = np.flatnonzero(squared > cap * cap * _SLACK)
    if long.size:
        factors = cap * _SLACK / np.sqrt(squared[long])
        added[:, long] = np.trunc(added[:, long] * factors)
