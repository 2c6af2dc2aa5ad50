"""Counts and moments: lengths of rows, columns and directions, and how often labels, levels and margins occur."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from scipy import sparse

from ..accounting import Gaussian, Laplace
from ..arrays import Floats, Integers
from ..errors import InvalidParameter, require_positive_integer
from ..exact import BoundedSum, CoarseGrid, FeatureGrid, SecondMomentSum, SignedSum
from ..problems import Frame, LabelKind, Labels, Whitening
from ..relations import Norm, Sensitivity
from .derivatives import finest_bits, finest_clipped_sum, require_frame
from .per_row import Caps, Norms
from .query import Noised, Public, Query, Sum

COUNT = 2**20  # lattice steps in a count of one row: they make room for little noise


@dataclass(frozen=True, eq=False)
class MeanRowNorm(Query[float]):
    """The mean Euclidean norm of the rows, or of their coordinates in a public frame without the constant.

    **Privacy** A clipped norm lies between 0 and that bound, so a row that is removed or replaced moves the sum by at
    most as much: the sensitivity under both relations.
    """

    mechanism: Gaussian | Laplace
    frame: Frame | None = None
    #: Norms are clipped to it. A frame needs one; other rows have the public row bound already.
    ceiling: float = math.inf

    @property
    def label(self) -> str:  # type: ignore[override]
        """What the record of the ledger calls it."""
        return "mean row norm" if self.frame is None else "mean scaled row norm"

    def plan(self, public: Public) -> Sum[float]:
        grid, framed = public.problem.grid, self.frame is not None
        if self.frame is not None:
            require_frame(public, self.frame)
        bounded = BoundedSum(self.ceiling if framed else min(self.ceiling, grid.row_bound))
        norm = Norm.L1 if isinstance(self.mechanism, Laplace) else Norm.L2
        noised = Noised(self.mechanism, bounded.unit, Sensitivity.of_bounded_sum(bounded.ceiling, norm), public.size)
        block = partial(_norm_block, bounded, 1.0 if framed else 0.0)
        return Sum(block, (noised,), lambda mean: float(mean[0]), (Norms.within(self.frame, grid),))


@dataclass(frozen=True, eq=False)
class ColumnMoments(Query[tuple[Floats, Floats]]):
    """The means of the columns and of their squares, from rows clipped to norm ``clip``.

    **Privacy** A row adds itself and its squares, which are no longer: together a vector of norm at most sqrt(2)
    ``clip``, or twice that when a row is replaced. Entries must be at most 1.
    """

    clip: float
    mechanism: Gaussian
    label = "column moments"

    def plan(self, public: Public) -> Sum[tuple[Floats, Floats]]:
        problem = public.problem
        if problem.grid.entry_bound > 1:
            raise InvalidParameter("column moments need features in [-1, 1]: scale them by public bounds")
        clipped = finest_clipped_sum(public, self.clip, self.mechanism)
        both = Sensitivity.of_clipped_sum(math.sqrt(2) * clipped.clip * (1 + 2.0**-50))

        def finish(noisy: Floats) -> tuple[Floats, Floats]:
            means, squares = np.split(noisy, 2)
            return means, squares

        return Sum(
            partial(problem.moments_block, clipped),
            (Noised(self.mechanism, clipped.unit, both, public.size),),
            finish,
            (Caps(clipped, (Norms.within(None, problem.grid),)),),
        )


@dataclass(frozen=True, eq=False)
class SecondMoments(Query[Floats]):
    """The mean of u u' over rows u clipped to norm ``clip``: of the rows, or of their coordinates in a public frame.

    The constant of a `Frame` is left out; entries in a `Whitening` are clipped to 2 ``clip``. Noise is added to the
    distinct entries, twice the variance on the diagonal, as an isometry asks.

    **Privacy** A row adds a positive semidefinite matrix of Frobenius norm at most clip^2: that is the sensitivity,
    or sqrt(2) times it when a row is replaced.
    """

    clip: float
    mechanism: Gaussian
    frame: Frame | Whitening | None = None
    label = "second moments"

    def plan(self, public: Public) -> Sum[Floats]:
        grid, frame = public.problem.grid, self.frame
        if grid.entry_bound > 1:
            raise InvalidParameter("second moments need features in [-1, 1]: scale them by public bounds")
        if frame is not None:
            require_frame(public, frame)
        if isinstance(frame, Frame):
            coarse = CoarseGrid(float(2.0 ** (1 + frame.doublings.max())), grid.dimension - 1, self.clip)
        elif frame is not None:
            coarse = CoarseGrid(2 * self.clip, frame.matrix.shape[1], self.clip)
        else:
            coarse = CoarseGrid(1.0, grid.dimension, self.clip)
        moments = SecondMomentSum(coarse, coarse.row_bound**2, total_bits=moment_bits(public, self.mechanism))
        noised = Noised(self.mechanism, moments.unit, moments.sensitivity, public.size, symmetric=True)
        return Sum(partial(_moments_block, moments, frame), (noised,), lambda noisy: noisy)


@dataclass(frozen=True)
class LabelCounts(Query[Floats]):
    """The number of rows in each class, 2 or K of them.

    **Privacy** A row adds 1 to one count: L2 sensitivity 1, and sqrt(2) when it is replaced. With two classes half
    of the difference of the counts is measured, to which a row adds 1/2 or -1/2, and their sum is the public n:
    sensitivity 1/2, and 1 when a row is replaced. (Where units have several rows, n is a bound and not the number of
    rows that are kept, so both are counted.)
    """

    mechanism: Gaussian
    label = "label counts"

    def plan(self, public: Public) -> Sum[Floats]:
        labels = public.problem.loss.labels
        if labels.kind is LabelKind.NUMBERS:
            raise InvalidParameter("a regression has no classes to count: ask for LabelSum")
        signs = labels.kind is LabelKind.SIGNS
        binary = signs and public.rows_per_unit == 1
        moved = (0.5, 1.0) if binary else (1.0, math.sqrt(2) * (1 + 2.0**-50))
        noised = Noised(self.mechanism, 1 / COUNT, Sensitivity(Norm.L2, *moved), public.rate)

        def both(counts: Floats) -> Floats:
            return public.rows / 2 + np.array([-counts[0], counts[0]]) if binary else counts

        counted = partial(_counts_block, labels.number_of_classes, signs)
        return Sum(_halves_block if binary else counted, (noised,), both)


@dataclass(frozen=True)
class RowCount(Query[float]):
    """The number of rows, which is not public where units have several of them.

    **Privacy** A row that is added or removed changes it by 1, and one that is replaced not at all: 1 under both
    relations. A unit of at most k rows changes it by k if it is removed, and by k - 1 if it is replaced by another
    with at least one row: k times the sensitivity of a row, as for every sum (`dpdescent.curator.units`).
    """

    mechanism: Gaussian
    label = "number of rows"

    def plan(self, public: Public) -> Sum[float]:
        noised = Noised(self.mechanism, 1 / COUNT, Sensitivity.of_bounded_sum(1.0, Norm.L2), public.rate)
        return Sum(_rows_block, (noised,), lambda count: float(count[0]))


@dataclass(frozen=True)
class LabelSum(Query[float]):
    """The sum of labels, clipped to the public range of those that the loss is about.

    **Privacy** With labels in [low, high], sensitivity max(|low|, |high|), and twice that when a row is replaced.
    """

    mechanism: Gaussian
    label = "label sum"

    def plan(self, public: Public) -> Sum[float]:
        labels = public.problem.loss.labels
        bounded = SignedSum(max(-labels.low, labels.high))
        noised = Noised(self.mechanism, bounded.unit, Sensitivity.of_signed_sum(bounded.bound, Norm.L2), public.rate)
        return Sum(partial(_labels_block, bounded, labels), (noised,), lambda total: float(total[0]))


def moment_bits(public: Public, noise: Gaussian) -> int:
    """Return the bits of the finest sum of second moments whose noise can still be drawn."""
    moved = Sensitivity.of_positive_semidefinite_sum(1.0).times(public.rows_per_unit)
    return finest_bits(noise.noise_multiplier * moved.under(public.relation))


def _norm_block(bounded: BoundedSum, constant: float, rows: Any, labels: Floats, squared: Floats) -> Integers:  # noqa: ARG001
    return bounded.block(np.sqrt(squared - constant))


def _moments_block(
    moments: SecondMomentSum,
    frame: Frame | Whitening | None,
    rows: Any,
    labels: Floats,  # noqa: ARG001
) -> Integers:
    """Return the sum over one block."""
    every = np.ones(rows.shape[0])
    if isinstance(frame, Whitening):
        return moments.in_parts(frame.coordinates(rows), every, moments.grid.place)

    def place(part: Floats) -> Floats:
        placed: Floats = moments.grid.place(part if frame is None else frame.coordinates(part))
        return placed

    return moments.in_parts(rows, every, place)


def _rows_block(rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    return np.array([labels.size], dtype=np.int64) * COUNT


def _halves_block(rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    return np.array([2 * np.count_nonzero(labels > 0) - labels.size], dtype=np.int64) * (COUNT // 2)


def _counts_block(classes: int, signs: bool, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    # A total function: labels outside the classes count as the nearest one.
    labels = (labels > 0).astype(np.float64) if signs else labels
    index = np.clip(np.nan_to_num(labels), 0, classes - 1).astype(np.intp)
    return np.bincount(index, minlength=classes).astype(np.int64) * COUNT


def _labels_block(bounded: SignedSum, allowed: Labels, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    return bounded.block(allowed.understood(labels))


@dataclass(frozen=True)
class ColumnHistograms(Query[Floats]):
    """The number of cells on each level of every column, shape (columns, 2 levels + 1).

    A cell x is on the level nearest to x 2^bits, from -levels to levels; whatever lies beyond is on the last one.

    **Privacy** A row adds 1 to one count of each of c columns: L2 sensitivity sqrt(c). A row that is replaced takes 1
    from one count and adds 1 to another: sqrt(2c).
    """

    levels: int
    bits: int
    mechanism: Gaussian
    label = "column histograms"

    def plan(self, public: Public) -> Sum[Floats]:
        levels, grid = require_positive_integer("levels", self.levels), public.problem.grid
        if not 0 <= self.bits <= grid.exponent:
            raise InvalidParameter(f"levels are multiples of the grid: bits must lie in [0, {grid.exponent}]")
        columns, width = grid.dimension, 2 * levels + 1
        noised = Noised(self.mechanism, 1 / COUNT, self.sensitivity(columns), public.rate)
        block = partial(_histogram_block, levels, 2.0**self.bits)
        return Sum(block, (noised,), lambda counts: counts.reshape(columns, width))

    @staticmethod
    def sensitivity(columns: int) -> Sensitivity:
        """Return how much one row can change the counts of so many columns."""
        removed, replaced = (math.sqrt(each * columns) * (1 + 2.0**-50) for each in (1, 2))
        return Sensitivity(Norm.L2, removed, replaced)


@dataclass(frozen=True, eq=False)
class MarginCounts(Query[Floats]):
    """The number of rows of either class whose margins x . w lie in each of some intervals, shape (2, k + 1).

    **Privacy** A row adds 1 to one count: sensitivity 1. A row that is replaced takes 1 from one count and adds 1 to
    another: sqrt(2) in the L2 norm and 2 in the L1 norm.
    """

    weights: Floats  # public or released
    #: (k,): public, in increasing order: the intervals are those below, between and above them. A margin on an edge
    #: is above it.
    edges: Floats
    mechanism: Gaussian | Laplace
    label = "margin counts"

    @property
    def sensitivity(self) -> Sensitivity:
        """How much one row can change the counts."""
        if isinstance(self.mechanism, Laplace):
            return Sensitivity(Norm.L1, 1.0, 2.0)
        return Sensitivity(Norm.L2, 1.0, math.sqrt(2) * (1 + 2.0**-50))

    def deviation(self, public: Public) -> float:
        """Return the standard deviation of the noise in a count."""
        moved = self.sensitivity.times(public.rows_per_unit).under(public.relation) / public.rate
        if isinstance(self.mechanism, Gaussian):
            return moved * self.mechanism.noise_multiplier
        return moved * (math.sqrt(2) / self.mechanism.epsilon)

    def plan(self, public: Public) -> Sum[Floats]:
        problem, edges = public.problem, np.asarray(self.edges, dtype=np.float64)
        if problem.loss.labels.kind is not LabelKind.SIGNS:
            raise InvalidParameter("margins are counted for two classes: the loss must be one of labels -1 and 1")
        if edges.ndim != 1 or not edges.size or not np.isfinite(edges).all() or not (np.diff(edges) > 0).all():
            raise InvalidParameter("edges must be finite numbers in increasing order, at least one")
        placed = problem.grid.place_weights(public.weights("weights", self.weights))
        noised = Noised(self.mechanism, 1 / COUNT, self.sensitivity, public.rate)
        block = partial(_margins_block, problem.grid, placed, edges)
        return Sum(block, (noised,), lambda counts: counts.reshape(2, edges.size + 1))


def _margins_block(grid: FeatureGrid, weights: Floats, edges: Floats, rows: Any, labels: Floats) -> Integers:
    intervals = edges.size + 1
    places = np.searchsorted(edges, grid.margins(rows, weights), side="right") + intervals * (labels > 0)
    return np.bincount(places, minlength=2 * intervals).astype(np.int64) * COUNT


def _histogram_block(levels: int, scale: float, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    columns, width = rows.shape[1], 2 * levels + 1
    stored = sparse.issparse(rows)
    cells, column = (rows.data, rows.indices.astype(np.int64)) if stored else (rows, np.arange(columns))
    places = _levels(cells, levels, scale)
    places += column * width + levels
    counts = np.bincount(places.ravel("K").astype(np.intp), minlength=columns * width).reshape(columns, width)
    if stored:  # the other cells are 0
        counts[:, levels] += rows.shape[0] - np.bincount(rows.indices, minlength=columns)
    return counts.astype(np.int64).reshape(-1) * COUNT


def _levels(cells: Any, levels: int, scale: float) -> Floats:
    """Return the level of every cell, a whole number."""
    nearest: Floats = np.multiply(cells, scale, dtype=np.float64)
    np.rint(nearest, out=nearest)
    np.fmin(nearest, levels, out=nearest)  # unlike clip, these leave no NaN, which no integer stands for
    np.fmax(nearest, -levels, out=nearest)
    return nearest
