"""Moments of the rows and labels: lengths of rows, columns and directions, and how often each label occurs."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..accounting import Gaussian, Laplace
from ..errors import InvalidParameter
from ..exact import BoundedSum, CoarseGrid, SecondMomentSum, SignedSum
from ..problems import Frame, LabelKind, Labels, Whitening
from ..relations import Norm, Sensitivity
from .derivatives import finest_bits, finest_clipped_sum, require_frame
from .per_row import Caps, Norms
from .questions import Noised, Public, Question, Sum
from .sources import Floats, Integers

COUNT = 2**20  # lattice steps in a count of one row: they make room for little noise


@dataclass(frozen=True, eq=False)
class MeanRowNorm(Question[float]):
    """The mean Euclidean norm of the rows, or of their coordinates in a public frame without the constant.

    Parameters
    ----------
    noise : Gaussian or Laplace
    frame : Frame, optional
    ceiling : float
        Norms are clipped to it. A frame needs one; other rows have the public row bound already.

    Notes
    -----
    **Privacy** A clipped norm lies between 0 and that bound, so a row that is removed or replaced moves the sum by at
    most as much: the sensitivity under both relations.
    """

    noise: Gaussian | Laplace
    frame: Frame | None = None
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
        norm = Norm.L1 if isinstance(self.noise, Laplace) else Norm.L2
        noised = Noised(self.noise, bounded.unit, Sensitivity.of_bounded_sum(bounded.ceiling, norm), public.size)
        block = partial(_norm_block, bounded, 1.0 if framed else 0.0)
        return Sum(block, (noised,), lambda mean: float(mean[0]), (Norms.within(self.frame, grid),))


@dataclass(frozen=True, eq=False)
class ColumnMoments(Question[tuple[Floats, Floats]]):
    """The means of the columns and of their squares, from rows clipped to norm ``clip``.

    **Privacy** A row adds itself and its squares, which are no longer: together a vector of norm at most sqrt(2)
    ``clip``, or twice that when a row is replaced. Entries must be at most 1.
    """

    clip: float
    noise: Gaussian
    label = "column moments"

    def plan(self, public: Public) -> Sum[tuple[Floats, Floats]]:
        problem = public.problem
        if problem.grid.entry_bound > 1:
            raise InvalidParameter("column moments need features in [-1, 1]: scale them by public bounds")
        clipped = finest_clipped_sum(public, self.clip, self.noise)
        both = Sensitivity.of_clipped_sum(math.sqrt(2) * clipped.clip * (1 + 2.0**-50))

        def finish(noisy: Floats) -> tuple[Floats, Floats]:
            means, squares = np.split(noisy, 2)
            return means, squares

        return Sum(
            partial(problem.moments_block, clipped),
            (Noised(self.noise, clipped.unit, both, public.size),),
            finish,
            (Caps(clipped, (Norms.within(None, problem.grid),)),),
        )


@dataclass(frozen=True, eq=False)
class SecondMoments(Question[Floats]):
    """The mean of u u' over rows u clipped to norm ``clip``: of the rows, or of their coordinates in a public frame.

    The constant of a `Frame` is left out; entries in a `Whitening` are clipped to 2 ``clip``. Noise is added to the
    distinct entries, twice the variance on the diagonal, as an isometry asks.

    **Privacy** A row adds a positive semidefinite matrix of Frobenius norm at most clip^2: that is the sensitivity,
    or sqrt(2) times it when a row is replaced.
    """

    clip: float
    noise: Gaussian
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
        moments = SecondMomentSum(coarse, coarse.row_bound**2, total_bits=moment_bits(public, self.noise))
        noised = Noised(self.noise, moments.unit, moments.sensitivity, public.size, symmetric=True)
        return Sum(partial(_moments_block, moments, frame), (noised,), lambda noisy: noisy)


@dataclass(frozen=True)
class LabelCounts(Question[Floats]):
    """The number of rows in each class, 2 or K of them.

    **Privacy** A row adds 1 to one count: L2 sensitivity 1, and sqrt(2) when it is replaced. With two classes one
    count is measured and the other is what is left of the public n: sensitivity 1 under both relations. (Where units
    have several rows, n is a bound and not the number of rows that are kept, so both are counted.)
    """

    noise: Gaussian
    label = "label counts"

    def plan(self, public: Public) -> Sum[Floats]:
        labels = public.problem.loss.labels
        if labels.kind is LabelKind.NUMBERS:
            raise InvalidParameter("a regression has no classes to count: ask for LabelSum")
        signs = labels.kind is LabelKind.SIGNS
        binary = signs and public.rows_per_unit == 1
        swap = 1.0 if binary else math.sqrt(2) * (1 + 2.0**-50)
        noised = Noised(self.noise, 1 / COUNT, Sensitivity(Norm.L2, 1.0, swap), public.rate)

        def both(counts: Floats) -> Floats:
            return np.array([public.rows - counts[0], counts[0]]) if binary else counts

        counted = partial(_counts_block, labels.number_of_classes, signs)
        return Sum(_positive_block if binary else counted, (noised,), both)


@dataclass(frozen=True)
class RowCount(Question[float]):
    """The number of rows, which is not public where units have several of them.

    **Privacy** A row that is added or removed changes it by 1, and one that is replaced not at all: 1 under both
    relations. A unit of at most k rows changes it by k if it is removed, and by k - 1 if it is replaced by another
    with at least one row: k times the sensitivity of a row, as for every sum (`dpdescent.curator.units`).
    """

    noise: Gaussian
    label = "number of rows"

    def plan(self, public: Public) -> Sum[float]:
        noised = Noised(self.noise, 1 / COUNT, Sensitivity.of_bounded_sum(1.0, Norm.L2), public.rate)
        return Sum(_rows_block, (noised,), lambda count: float(count[0]))


@dataclass(frozen=True)
class LabelSum(Question[float]):
    """The sum of labels, clipped to the public range of those that the loss is about.

    **Privacy** With labels in [low, high], sensitivity max(|low|, |high|), and twice that when a row is replaced.
    """

    noise: Gaussian
    label = "label sum"

    def plan(self, public: Public) -> Sum[float]:
        labels = public.problem.loss.labels
        bounded = SignedSum(max(-labels.low, labels.high))
        noised = Noised(self.noise, bounded.unit, Sensitivity.of_signed_sum(bounded.bound, Norm.L2), public.rate)
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


def _positive_block(rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    return np.array([np.count_nonzero(labels > 0)], dtype=np.int64) * COUNT


def _counts_block(classes: int, signs: bool, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    # A total function: labels outside the classes count as the nearest one.
    labels = (labels > 0).astype(np.float64) if signs else labels
    index = np.clip(np.nan_to_num(labels), 0, classes - 1).astype(np.intp)
    return np.bincount(index, minlength=classes).astype(np.int64) * COUNT


def _labels_block(bounded: SignedSum, allowed: Labels, rows: Any, labels: Floats) -> Integers:  # noqa: ARG001
    return bounded.block(allowed.understood(labels))
