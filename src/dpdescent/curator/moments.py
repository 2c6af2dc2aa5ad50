"""Moments of the rows: how long they are, and how their columns and directions differ in length."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..accounting import Gaussian, Laplace
from ..errors import InvalidParameter, ScaleOutOfRange
from ..exact import BoundedSum, CoarseGrid, SecondMomentSum, ceil_log2
from ..exact.second_moments import LEAST_BITS
from ..problems import Frame, Whitening
from ..relations import Norm, Sensitivity
from .gradients import SCALE_BITS, finest_clipped_sum, require_frame
from .per_row import Caps, RowNorms, norms_in
from .questions import Noised, Public, Question, Sum
from .sources import Floats, Integers

__all__ = ["ColumnMoments", "MeanRowNorm", "SecondMoments", "finest_bits", "moment_bits"]


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
        return Sum(block, (noised,), lambda mean: float(mean[0]), (norms_in(self.frame, grid),))


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
            (Caps(clipped, RowNorms(problem.grid)),),
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


def moment_bits(public: Public, noise: Gaussian) -> int:
    """Return the bits of the finest sum of second moments whose noise can still be drawn."""
    return finest_bits(noise.noise_multiplier * Sensitivity.of_positive_semidefinite_sum(1.0).under(public.relation))


def finest_bits(deviation: float) -> int:
    """Return the bits of the finest sum of matrices whose noise can still be drawn, or raise `ScaleOutOfRange`.

    ``deviation`` is that of the noise in units of the largest matrix that a row adds.
    """
    bits = min(SecondMomentSum.total_bits, SCALE_BITS - ceil_log2(deviation))
    if bits < LEAST_BITS:
        raise ScaleOutOfRange(
            f"noise of {deviation:.3g} times what a row can do to a matrix cannot be drawn: spend more on it, on "
            "fewer steps or looser tolerances"
        )
    return bits


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
