r"""The objective at public weights: its value, its gradient from clipped rows, and how curved it is.

A row's gradient is l' x, or l' z in a public frame. It is clipped to norm C, so the sum has the L2 sensitivity C, or
2C when a row is replaced. Gradients of rows that belong to one unit may be clipped together instead. The penalty's
gradient is public and added after the noise.

**Gradients in a tree.** Descents that read every row once per pass need running totals of gradients. The rows are
dealt at random to m leaves. Leaf t is read at weights that follow from the totals before it, and the total over the
first t leaves is put together from nodes of a binary tree, one for each binary digit of t that is 1:

.. math:: \tilde S_t = \sum_{v \in \text{nodes}(t)} \Big(\sum_{i \in v} g_i + z_v\Big),
          \qquad z_v \sim N(0, s^2 C^2 I).

A node ends at a leaf t and covers the last :math:`2^l` leaves, where :math:`2^l` is the largest power of 2 that
divides t. So each total has the noise of at most :math:`h = \lfloor \log_2 m \rfloor + 1` nodes, where a sum of noisy
leaves would have that of t.

References
----------
Denisov, S., McMahan, B., Rush, K., Smith, A. & Thakurta, A. (2022). Improved differential privacy for SGD via optimal
private linear operators on adaptive streams. NeurIPS. arXiv:2202.08312.
Dwork, C., Naor, M., Pitassi, T. & Rothblum, G. (2010). Differential privacy under continual observation. STOC.
Smith, A. & Thakurta, A. (2013). (Nearly) optimal algorithms for private online learning in full-information and
bandit settings. NeurIPS.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from ..accounting import Gaussian
from ..arrays import Floats, Integers
from ..errors import InvalidParameter, ScaleOutOfRange, require_positive, require_positive_integer
from ..exact import BoundedSum, ClippedSum, SecondMomentSum, ceil_log2, joint_factors
from ..exact.loss_sums import LEAST_BITS
from ..problems import Frame, LinearProblem, Whitening
from ..relations import Norm, Sensitivity
from .per_row import Caps, Margins, Norms, Owners, PerRow, Products, RowWeights
from .query import Noised, Public, Query, Sum, Tree

_SCALE_BITS = 51  # lattice noise has a scale of at most 2^52, and rounds it up
_LARGEST_ROWS = 2**26  # a sum over this many has not wrapped around
_MOST_LEAVES = 2**20  # of a tree: more of them would mean as many passes over the rows


@dataclass(frozen=True, eq=False)
class Gradient(Query[Floats]):
    """The gradient of the objective at public ``weights``, from rows clipped to norm ``clip``.

    **Privacy** L2 sensitivity of the sum: C, or 2C when a row is replaced. For a unit of k rows it is k times that,
    or k^(3/4) times that if they are clipped together (`dpdescent.exact.clipped_sums`). A whitening rounds the sum
    once, which adds a lattice step for each coordinate.
    """

    weights: Floats
    clip: float  # C
    mechanism: Gaussian
    #: Public coordinates z: the gradient is the one in them, and the clip norm bounds |l'| |z|.
    frame: Frame | Whitening | None = None
    #: Rows longer than this are weighted by sqrt(soft_norm/|z|), which keeps more of their direction than clipping
    #: alone. Clipping follows.
    soft_norm: float | None = None
    #: Whether to keep the margins of all rows for a search or a Hessian at the same weights.
    keep_margins: bool = False
    #: Whether the rows of a unit are clipped together, to k^(3/4) C, instead of each to C (`joint_clip`). For units
    #: of one row it is the same.
    joint: bool = False
    label = "gradient"

    def plan(self, public: Public) -> Sum[Floats]:
        summed = _Summed.of(self, public, None)
        added = summed.penalty_gradient(self, public)
        return Sum(summed.block, (summed.gradient,), lambda noisy: noisy + added, summed.per_row)


@dataclass(frozen=True, eq=False)
class GradientAndCurvature(Query[tuple[Floats, float]]):
    """A gradient, and the mean curvature of the loss from the same pass over the rows.

    The curvature is the mean of l'', weighted as the gradient's rows are, over rows that are not clipped.

    **Privacy** Two Gaussian mechanisms, charged as one. Curvatures are between 0 and the smoothness b of the loss, so
    their sum has the sensitivity b under both relations.
    """

    gradient: Gradient
    mechanism: Gaussian  # that of the curvature
    label = "gradient and curvature"

    def plan(self, public: Public) -> Sum[tuple[Floats, float]]:
        problem = public.problem
        bounded = BoundedSum(problem.loss.smoothness)
        problem.loss.typical_curvatures(np.empty((0, *problem.shape[1:])), np.empty(0))  # raises if it has none
        summed = _Summed.of(self.gradient, public, bounded)
        added = summed.penalty_gradient(self.gradient, public)
        curvature = Noised(
            self.mechanism,
            bounded.unit,
            Sensitivity.of_bounded_sum(bounded.ceiling, Norm.L2),
            public.size,
            lambda values: values[-1:],
        )

        def finish(noisy: Floats, mean: Floats) -> tuple[Floats, float]:
            return noisy + added, float(mean[0])

        return Sum(summed.block, (summed.gradient, curvature), finish, summed.per_row)


@dataclass(frozen=True)
class _Summed:
    """What both queries share: the sum over a block, and the gradient's part of it."""

    block: Any
    gradient: Noised
    per_row: tuple[PerRow, ...]

    @classmethod
    def of(cls, asked: Gradient, public: Public, bounded: BoundedSum | None) -> _Summed:
        problem, frame = public.problem, asked.frame
        weights = public.weights("weights", asked.weights)
        if frame is not None:
            require_frame(public, frame)
        placed = problem.grid.place_weights(weights)
        each = public.rows_per_unit
        together = joint_clip(asked.clip, each) if asked.joint and public.together else None
        clipped = finest_clipped_sum(public, together or asked.clip, asked.mechanism, of_unit=together is not None)
        norms = (Norms.within(frame, problem.grid),)
        per_row: list[PerRow] = [Caps(clipped, norms)]
        if together is not None:
            per_row += [*norms, Products.within(frame, problem.grid, each), Owners()]
        if asked.soft_norm is not None:
            per_row.append(RowWeights(require_positive("soft_norm", asked.soft_norm), norms))
        if asked.keep_margins and public.rate == 1:
            per_row.append(Margins(problem.grid, placed))
        weighted = asked.soft_norm is not None
        block = partial(_block, problem, clipped, bounded, placed, frame, together is not None, weighted)
        whitening = frame if isinstance(frame, Whitening) else None
        sensitivity = clipped.sensitivity
        if whitening is not None:
            sensitivity = whitening.sensitivity(sensitivity, clipped.unit, problem.loss.outputs)

        def part(values: Integers) -> Integers:
            total = values[: placed.size].reshape(placed.shape)
            return total if whitening is None else whitening.image(clipped.label(total)).values

        noised = Noised(asked.mechanism, clipped.unit, sensitivity, public.size, part, of_unit=together is not None)
        return cls(block, noised, tuple(per_row))

    def penalty_gradient(self, asked: Gradient, public: Public) -> Floats:
        gradient = public.problem.penalty_gradient(np.asarray(asked.weights, dtype=np.float64))
        return gradient if asked.frame is None else asked.frame.pull_back(gradient)


@dataclass(frozen=True, eq=False)
class Hessian(Query[Floats]):
    """The Hessian of the objective at public ``weights``.

    A row adds l'' x x', x rounded to 13 bits below the longest row and l'' to 10 below the largest curvature; the
    penalty's part is public and exact. Noise is isotropic on symmetric matrices.

    **Privacy** A row's matrix has rank one and a Frobenius norm of at most b R^2, where |l''| <= b and |x| <= R: that
    is the sensitivity, without the sqrt(d) of arbitrary Hessians. When a row is replaced it is sqrt(2) times that for
    a convex loss, whose matrices are positive semidefinite and so have <A, B> >= 0, and twice that for others.
    """

    weights: Floats
    mechanism: Gaussian
    label = "Hessian"

    def plan(self, public: Public) -> Sum[Floats]:
        problem = public.problem
        weights = public.weights("weights", self.weights)
        placed, added = problem.grid.place_weights(weights), np.diag(problem.penalty_curvature(weights))
        moments = hessian_sum(public, self.mechanism)
        return Sum(
            partial(problem.hessian_block, moments, placed),
            (Noised(self.mechanism, moments.unit, moments.sensitivity, public.size, symmetric=True),),
            lambda noisy: noisy + added,
            (Margins(problem.grid, placed),) if public.rate == 1 else (),
        )


@dataclass(frozen=True, eq=False)
class MeanLoss(Query[float]):
    """The objective at public ``weights``, with signed noise.

    **Privacy** A row's loss lies between 0 and the public bound B of `LinearProblem.largest_loss`: B is the
    sensitivity under both relations. The noise keeps its sign: its absolute value would have a support that begins
    at the true loss, which no amount of noise hides.
    """

    weights: Floats
    mechanism: Gaussian
    label = "loss"

    def deviation(self, public: Public) -> float:
        """Return the standard deviation of the noise."""
        ceiling = BoundedSum(public.problem.largest_loss(public.weights("weights", self.weights))).ceiling
        return public.rows_per_unit * ceiling * self.mechanism.noise_multiplier / public.size

    def plan(self, public: Public) -> Sum[float]:
        problem = public.problem
        weights = public.weights("weights", self.weights)
        placed, added = problem.grid.place_weights(weights), problem.penalty_value(weights)
        bounded = BoundedSum(problem.largest_loss(weights))
        noised = Noised(
            self.mechanism, bounded.unit, Sensitivity.of_bounded_sum(bounded.ceiling, Norm.L2), public.size
        )
        return Sum(partial(problem.loss_block, bounded, placed), (noised,), lambda mean: float(mean[0]) + added)


def joint_clip(clip: float, rows_per_unit: int) -> float:
    """Return k^(3/4) C, to which the sum of a unit's rows is clipped where single rows would be clipped to C."""
    return clip * math.pow(rows_per_unit, 0.75)


def finest_clipped_sum(public: Public, clip: float, noise: Gaussian, *, of_unit: bool = False) -> ClippedSum:
    """Return the finest sum of clipped rows whose noise can still be drawn: great noise needs a coarser unit.

    The clip norm is that of a row, or ``of_unit`` that of all rows of a unit together.
    """
    moved = Sensitivity.of_clipped_sum(1.0).times(1 if of_unit else public.rows_per_unit)
    deviation = noise.noise_multiplier * moved.under(public.relation)
    bits = min(ClippedSum.total_bits, _SCALE_BITS - ceil_log2(deviation))
    if bits < 1:
        raise ScaleOutOfRange(f"noise of {deviation:.3g} clip norms cannot be drawn: spend more on the answer")
    return public.problem.clipped_sum(clip, bits)


def finest_bits(deviation: float) -> int:
    """Return the bits of the finest sum of matrices whose noise can still be drawn, or raise `ScaleOutOfRange`.

    ``deviation`` is that of the noise in units of the largest matrix that a row adds.
    """
    bits = min(SecondMomentSum.total_bits, _SCALE_BITS - ceil_log2(deviation))
    if bits < LEAST_BITS:
        raise ScaleOutOfRange(
            f"noise of {deviation:.3g} times what a row can do to a matrix cannot be drawn: spend more on it, on "
            "fewer steps or looser tolerances"
        )
    return bits


def hessian_sum(public: Public, noise: Gaussian) -> SecondMomentSum:
    """Return the finest sum of Hessians whose noise can still be drawn, or raise what keeps it from being drawn."""
    problem = public.problem
    deviation = noise.noise_multiplier * public.rows_per_unit * problem.hessian_sensitivity(public.relation)
    return problem.hessian_sum(finest_bits(deviation / problem.smoothness))


def require_frame(public: Public, frame: Frame | Whitening) -> None:
    """Raise `InvalidParameter` unless rows of the problem can be measured in the frame."""
    if frame.grid != public.problem.grid:
        raise InvalidParameter("a frame or a whitening belongs to the problem's own grid")
    if isinstance(frame, Frame) and not public.problem.intercept:
        raise InvalidParameter("a frame is centred, for which the problem needs an intercept")
    if isinstance(frame, Whitening) and public.rows > _LARGEST_ROWS:
        raise InvalidParameter("a whitening is for at most 2^26 rows: scale the columns one by one instead")


def _block(
    problem: LinearProblem,
    clipped: ClippedSum,
    bounded: BoundedSum | None,
    weights: Floats,
    frame: Frame | Whitening | None,
    together: bool,
    weighted: bool,
    rows: Any,
    labels: Floats,
    caps: Floats,
    *known: Any,
) -> Integers:
    """Return the sum of clipped gradients over one block and, after it, the sum of curvatures.

    ``known`` holds what `joint_factors` needs, if rows are clipped ``together``; the weights of the rows, if they are
    ``weighted``; and their margins, where those are kept.
    """
    within_units, known = (known[:3], known[3:]) if together else ((), known)
    row_weights, kept = (known[0], known[1:]) if weighted else (None, known)
    margins = kept[0] if kept else problem.grid.margins(rows, weights)
    residuals = problem.loss.short_residuals(margins, labels)
    if np.may_share_memory(residuals, margins):  # what follows writes over them, and margins may be kept
        residuals = residuals.copy()
    curvatures = None if bounded is None else problem.loss.typical_curvatures(residuals, labels)
    if row_weights is not None:
        residuals *= row_weights if residuals.ndim == 1 else row_weights[:, None]
    sizes = None if curvatures is None else _sizes(clipped, residuals)
    gradient, factors = _clipped_total(clipped, rows, residuals, caps, within_units)
    if isinstance(frame, Frame):  # block by block: a total may have wrapped around
        gradient = frame.total(gradient)
    if bounded is None or curvatures is None or sizes is None:
        return gradient.reshape(-1)
    if row_weights is not None:
        curvatures *= row_weights
    curvatures *= sizes < caps
    if factors is not None:
        curvatures *= factors
    return np.concatenate([gradient.reshape(-1), bounded.block(curvatures)])


def _sizes(clipped: ClippedSum, residuals: Floats) -> Floats:
    """Return how long the residuals of each row are, in steps of the coefficients of the sum."""
    several = residuals.ndim > 1  # added up class by class, so that a row's length depends on it alone
    lengths = np.sqrt(sum(column * column for column in residuals.T)) if several else np.abs(residuals)
    sizes: Floats = lengths * 2.0**clipped.coefficient_exponent
    return sizes


def _clipped_total(
    clipped: ClippedSum, rows: Any, residuals: Floats, caps: Floats, within_units: tuple[Any, ...]
) -> tuple[Integers, Floats | None]:
    """Return the sum of clipped gradients, and by how much rows were shortened because of others of their unit.

    The residuals may be written over.
    """
    out = residuals if residuals.ndim == 1 else None
    if not within_units:
        return clipped.total_within(rows, residuals, caps, out=out).values, None
    coefficients = clipped.coefficients_within(residuals, caps, out)
    factors = joint_factors(clipped, coefficients, *within_units)
    shortened = np.rint(coefficients * (factors if coefficients.ndim == 1 else factors[:, None]))
    return clipped.block(rows, shortened), factors


@dataclass(frozen=True, eq=False)
class TreeGradients(Query[Floats]):
    """Running totals of the mean gradients of m random leaves of the table, each at weights of its own.

    The answer is the total over all leaves: m times a mean gradient. The penalty is public, and not in it.

    **Privacy** Given the leaves, a row is in at most h nodes, h being the number of binary digits of m. Each node is
    released once, with noise for C (2C if the row is replaced), and all weights follow from nodes that were released
    before. So two neighbours that have released the same so far have the same sums in all other nodes, and in these h
    sums that differ by the clipped gradient of that row. What is charged is h Gaussian mechanisms, by adaptive
    composition (Smith & Thakurta 2013; Denisov et al. 2022 for gradients that depend on earlier answers).

    Every row, or unit with all of its rows, is dealt to a leaf by itself, so the law of the other leaves is the same
    whether a row is there or not. A mixture over them loses no more than its worst part; no amplification is claimed.
    The charge comes first.
    """

    #: Maps t and the noisy total over the first t leaves to the weights at which leaf t + 1 is read. Called with 0,
    #: ..., m - 1. It sees nothing but released totals.
    follow: Callable[[int, Floats], Floats]
    leaves: int  # m; one less than a power of 2 makes the best use of the levels
    clip: float  # C, the norm to which the gradient of each row is clipped
    mechanism: Gaussian  # that of a node
    label = "gradients in a tree"

    def plan(self, public: Public) -> Tree[Floats]:
        leaves, shape = require_positive_integer("leaves", self.leaves), public.problem.shape
        if leaves > _MOST_LEAVES:
            raise InvalidParameter(f"leaves must be at most 2^20, each is a pass over the rows; got {leaves}")
        at_zero = self._leaf(np.zeros(shape)).plan(public)
        (noised,) = at_zero.parts
        noised = replace(noised, divisor=public.rows / leaves)

        def block(leaf: int, total: Floats) -> Callable[..., Integers]:
            return self._leaf(self.follow(leaf, total)).plan(public).block

        return Tree(leaves, noised, block, lambda total: total, np.zeros(shape), at_zero.per_row)

    def _leaf(self, weights: Floats) -> Gradient:
        return Gradient(weights, self.clip, self.mechanism)
