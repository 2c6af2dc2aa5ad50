r"""What standard errors are made of: a Hessian and a covariance of gradients in whitened coordinates, and a scale.

With z the coordinates of a row in a public whitening, l' and l'' the derivatives of its loss at public weights, and
:math:`\rho = \sqrt{\min(1, s/|z|)}` the soft weight of its length, the gradient of a row is
:math:`\psi = \rho l' z`, shortened to the norm C. Two matrices describe an estimate at which the mean of psi is 0:

.. math:: H = \frac1n \sum_i \rho_i \min(l''_i, b) z_i z_i' \; [\,|\rho_i l'_i z_i| < C\,], \qquad
          V = \frac1n \sum_i \psi_i \psi_i'.

H is the derivative of the mean gradient, V the covariance of a row's gradient where that mean is 0; their sandwich
:math:`H^{-1} V H^{-1}/n` is the covariance of the estimate (Huber 1967). Rows that are certain have small curvatures:
along the score of a model with strong effects H is small. It may therefore be measured as B H B, in coordinates Bz
that a public B stretches along such directions, so that noise hides less of them.

**Sensitivity.** A row adds h z z' with h >= 0, a positive semidefinite matrix of Frobenius norm h |z|^2. h is lowered
until that is at most a public M, so a row that is removed moves the sum by at most M. A row that is replaced moves it
by |A - B|, and |A - B|^2 = |A|^2 + |B|^2 - 2 <A, B> <= 2 M^2 because <A, B> = h k (z . y)^2 >= 0: sqrt(2) M. k rows
of a unit change the sum by k times that at most, by the triangle inequality. For V, M is C^2.

References
----------
Huber, P. (1967). The behavior of maximum likelihood estimates under nonstandard conditions. Fifth Berkeley Symposium.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from ..accounting import Gaussian
from ..arrays import Floats, Integers
from ..errors import InvalidParameter
from ..exact import BoundedSum, CoarseGrid, SecondMomentSum, require_moderate
from ..problems import LinearProblem, Whitening
from ..relations import Norm, Sensitivity
from .counts_and_moments import COUNT, moment_bits
from .derivatives import require_frame
from .per_row import Norms, PerRow, RowWeights
from .query import Noised, Public, Query, Sum

_LONGEST = 4.0  # in units of ``reach``: longer rows are shortened to it, whatever their weight is


@dataclass(frozen=True, eq=False)
class ClippedHessian(Query[Floats]):
    """The Hessian of clipped gradients at public ``weights``, in whitened coordinates.

    **Privacy** Sensitivity b reach^2 in the Frobenius norm, and sqrt(2) times it when a row is replaced. The penalty
    is not in it.
    """

    weights: Floats
    #: C, that of the gradients whose derivative it is. A row whose gradient is clipped adds nothing.
    clip: float
    cap: float  # b, to which curvatures are lowered
    #: A row of this length may have the curvature b: the matrix of a row has a Frobenius norm of at most b reach^2.
    reach: float
    mechanism: Gaussian
    frame: Whitening
    soft_norm: float  # rows longer than this are weighted by sqrt(soft_norm/|z|), as in `Gradient`
    #: (k, k): B, symmetric; the answer is B H B, and M limits the norm of what a row adds to that.
    stretched: Floats | None = None
    label = "Hessian of clipped gradients"

    def plan(self, public: Public) -> Sum[Floats]:
        largest = require_moderate("cap", self.cap) * require_moderate("reach", self.reach) ** 2
        clip = require_moderate("clip", self.clip)
        return _matrix_plan(self, public, largest, self.reach, partial(_hessian_weights, clip, self.cap))


@dataclass(frozen=True, eq=False)
class GradientCovariance(Query[Floats]):
    """The mean of psi psi', psi being the clipped gradient of a row at public ``weights``, in whitened coordinates.

    **Privacy** Sensitivity C^2 in the Frobenius norm, and sqrt(2) C^2 when a row is replaced.
    """

    weights: Floats
    clip: float  # C, the norm to which gradients are clipped
    mechanism: Gaussian
    frame: Whitening
    soft_norm: float
    label = "covariance of gradients"

    def plan(self, public: Public) -> Sum[Floats]:
        clip, soft_norm = require_moderate("clip", self.clip), require_moderate("soft_norm", self.soft_norm)
        return _matrix_plan(self, public, clip**2, max(clip, soft_norm), _squared_residuals)


@dataclass(frozen=True, eq=False)
class ResidualScale(Query[float]):
    """The mean of min(|l'|, 1)^2 at public ``weights``: how large residuals are, in units in which 1 is large.

    Residuals are often much shorter than the range of the target. Gradients that are clipped at a multiple of their
    scale need that much less noise.

    **Privacy** A row adds a number from 0 to 1: sensitivity 1 under both relations.
    """

    weights: Floats
    mechanism: Gaussian
    label = "residual scale"

    def plan(self, public: Public) -> Sum[float]:
        problem = public.problem
        _require_one_margin(problem)
        placed = problem.grid.place_weights(public.weights("weights", self.weights))
        bounded = BoundedSum(1.0)
        noised = Noised(
            self.mechanism, bounded.unit, Sensitivity.of_bounded_sum(bounded.ceiling, Norm.L2), public.size
        )
        return Sum(partial(_scale_block, problem, bounded, placed), (noised,), lambda mean: float(mean[0]))


@dataclass(frozen=True, eq=False)
class LongGradients(Query[tuple[Floats, Floats]]):
    """How many unclipped gradients at public ``weights`` are longer than public norms, and their mean direction.

    It has the shares of rows between each of the increasing norms and the next, and the mean over all rows of the
    directions, of length 1, of gradients longer than the first norm, shape (1, k). If they are asked for ``apart``,
    there is one mean for the gradients between each norm and the next. Other parameters are as for `ClippedHessian`.

    **Privacy** A row adds 1/2 to one count at most, and to one of the means a vector of norm at most sqrt(3)/2, both
    on the lattice: the norm of both is at most 1, or 2 when a row is replaced.
    """

    weights: Floats
    norms: Floats
    mechanism: Gaussian
    frame: Whitening
    soft_norm: float
    apart: bool = False
    label = "lengths and directions of long gradients"

    def plan(self, public: Public) -> Sum[tuple[Floats, Floats]]:
        problem, frame = public.problem, self.frame
        _require_one_margin(problem)
        require_frame(public, frame)
        placed, norms = problem.grid.place_weights(public.weights("weights", self.weights)), np.ravel(self.norms)
        if not (norms.size and norms[0] > 0 and np.isfinite(norms).all() and (np.diff(norms) > 0).all()):
            raise InvalidParameter("norms must be positive and increasing")
        squared = Norms.within(frame, problem.grid)
        per_row = (squared, RowWeights(require_moderate("soft_norm", self.soft_norm), (squared,)))
        noised = Noised(self.mechanism, 1 / COUNT, Sensitivity.of_clipped_sum(1.0), public.size)

        def finish(noisy: Floats) -> tuple[Floats, Floats]:
            means = noisy[norms.size :].reshape(norms.size if self.apart else 1, -1)
            return noisy[: norms.size] * (COUNT / _COUNTED), means * (COUNT / _DIRECTED)

        block = partial(_long_block, problem, placed, frame, np.append(norms, np.inf), self.apart)
        return Sum(block, (noised,), finish, per_row)


_COUNTED = COUNT // 2  # lattice steps of a count
_DIRECTED = math.isqrt(COUNT**2 - _COUNTED**2) - 2**8  # of a direction: rounding adds at most sqrt(k)/2 of them


def _long_block(
    problem: LinearProblem,
    weights: Floats,
    frame: Whitening,
    ends: Floats,
    apart: bool,
    rows: Any,
    labels: Floats,
    squared: Floats,
    soft: Floats,
) -> Integers:
    residuals, norms = problem.loss.residuals(problem.grid.margins(rows, weights), labels), np.sqrt(squared)
    lengths = np.nan_to_num(soft * np.abs(residuals) * norms, nan=0.0, posinf=np.inf)
    counts = np.histogram(lengths, ends)[0].astype(np.int64) * _COUNTED
    long = lengths >= ends[0]
    pointing = frame.coordinates(rows[long]) / np.copysign(norms[long], residuals[long])[:, None]
    pointing[~np.isfinite(pointing).all(axis=1)] = 0.0  # a row that is infinitely long
    sums = np.zeros((ends.size - 1 if apart else 1, pointing.shape[1]), np.int64)
    place = np.searchsorted(ends, lengths[long], side="right") - 1 if apart else np.zeros(len(pointing), np.int64)
    np.add.at(sums, np.minimum(place, len(sums) - 1), np.rint(pointing * _DIRECTED).astype(np.int64))
    return np.append(counts, sums)


def _require_one_margin(problem: LinearProblem) -> None:
    if problem.loss.outputs > 1:
        raise InvalidParameter("this is asked about a loss of one margin: use two classes")


def _matrix_plan(
    asked: ClippedHessian | GradientCovariance, public: Public, largest: float, reach: float, weigh: Any
) -> Sum[Floats]:
    """Return the plan of a sum of h z z' of Frobenius norm at most ``largest``; ``weigh`` says what h is."""
    problem, frame = public.problem, asked.frame
    _require_one_margin(problem)
    if not isinstance(frame, Whitening):
        raise InvalidParameter("matrices of gradients are measured in whitened coordinates: pass a Whitening")
    require_frame(public, frame)
    placed = problem.grid.place_weights(public.weights("weights", asked.weights))
    of_sum, longest = frame, _LONGEST * reach
    if isinstance(asked, ClippedHessian) and asked.stretched is not None:
        stretched, k = asked.stretched, frame.matrix.shape[1]
        if stretched.shape != (k, k) or not np.isfinite(stretched).all() or not np.allclose(stretched, stretched.T):
            raise InvalidParameter(f"stretched must be a symmetric matrix of shape {(k, k)}")
        of_sum = Whitening(problem.grid, np.einsum("jk,kl->jl", frame.matrix, stretched))
        longest *= max(float(np.abs(stretched).sum(axis=0).max()), 1.0)  # at least its largest eigenvalue
    coarse = CoarseGrid(2 * longest, frame.matrix.shape[1], longest)
    moments = SecondMomentSum(coarse, largest, total_bits=moment_bits(public, asked.mechanism))
    norms = Norms.within(frame, problem.grid)
    per_row: tuple[PerRow, ...] = (norms, RowWeights(require_moderate("soft_norm", asked.soft_norm), (norms,)))
    noised = Noised(asked.mechanism, moments.unit, moments.sensitivity, public.size, symmetric=True)
    block = partial(_block, problem, moments, placed, of_sum, weigh)
    return Sum(block, (noised,), lambda noisy: noisy, per_row)


def _block(
    problem: LinearProblem,
    moments: SecondMomentSum,
    weights: Floats,
    frame: Whitening,
    weigh: Any,
    rows: Any,
    labels: Floats,
    squared_norms: Floats,
    soft_weights: Floats,
) -> Integers:
    """Return the sum of h z z' over one block; the cap of h comes from the coordinates as they are added up."""
    margins = problem.grid.margins(rows, weights)
    weighed = weigh(problem, margins, labels, squared_norms, soft_weights)
    return moments.in_parts(frame.coordinates(rows), weighed, moments.grid.place)


def _hessian_weights(
    clip: float, cap: float, problem: LinearProblem, margins: Floats, labels: Floats, squared: Floats, soft: Floats
) -> Floats:
    curvatures = np.minimum(problem.loss.curvatures(margins, labels), cap)
    long = soft * np.abs(problem.loss.residuals(margins, labels)) * np.sqrt(squared) >= clip
    weights: Floats = np.where(long, 0.0, soft * curvatures)
    return weights


def _squared_residuals(
    problem: LinearProblem,
    margins: Floats,
    labels: Floats,
    squared: Floats,  # noqa: ARG001
    soft: Floats,
) -> Floats:
    residuals = soft * problem.loss.residuals(margins, labels)
    return residuals * residuals


def _scale_block(problem: LinearProblem, bounded: BoundedSum, weights: Floats, rows: Any, labels: Floats) -> Integers:
    residuals = problem.loss.residuals(problem.grid.margins(rows, weights), labels)
    return bounded.block(residuals * residuals)
