"""Second derivatives and values of the objective."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

import numpy as np

from ..accounting import Gaussian
from ..exact import BoundedSum, SecondMomentSum
from ..relations import Norm, Sensitivity
from .moments import finest_bits
from .per_row import Margins
from .questions import Noised, Public, Question, Sum
from .sources import Floats

__all__ = ["Hessian", "MeanLoss", "hessian_sum"]


@dataclass(frozen=True, eq=False)
class Hessian(Question[Floats]):
    """The Hessian of the objective at public ``weights``.

    A row adds l'' x x', x rounded to 13 bits below the longest row and l'' to 10 below the largest curvature; the
    penalty's part is public and exact. Noise is isotropic on symmetric matrices.

    **Privacy** A row's matrix has rank one and a Frobenius norm of at most b R^2, where |l''| <= b and |x| <= R: that
    is the sensitivity, without the sqrt(d) of arbitrary Hessians. When a row is replaced it is sqrt(2) times that for
    a convex loss, whose matrices are positive semidefinite and so have <A, B> >= 0, and twice that for others.
    """

    weights: Floats
    noise: Gaussian
    label = "Hessian"

    def plan(self, public: Public) -> Sum[Floats]:
        problem = public.problem
        weights = public.weights("weights", self.weights)
        placed, added = problem.grid.place_weights(weights), np.diag(problem.penalty_curvature(weights))
        moments = hessian_sum(public, self.noise)
        return Sum(
            partial(problem.hessian_block, moments, placed),
            (Noised(self.noise, moments.unit, moments.sensitivity, public.size, symmetric=True),),
            lambda noisy: noisy + added,
            (Margins(problem.grid, placed),) if public.rate == 1 else (),
        )


def hessian_sum(public: Public, noise: Gaussian) -> SecondMomentSum:
    """Return the finest sum of Hessians whose noise can still be drawn, or raise what keeps it from being drawn."""
    problem = public.problem
    deviation = noise.noise_multiplier * problem.hessian_sensitivity(public.relation)
    return problem.hessian_sum(finest_bits(deviation / problem.smoothness))


@dataclass(frozen=True, eq=False)
class MeanLoss(Question[float]):
    """The objective at public ``weights``, with signed noise.

    **Privacy** A row's loss lies between 0 and the public bound B of `LinearProblem.largest_loss`: B is the
    sensitivity under both relations. The noise keeps its sign: its absolute value would have a support that begins
    at the true loss, which no amount of noise hides.
    """

    weights: Floats
    noise: Gaussian
    label = "loss"

    def deviation(self, public: Public) -> float:
        """Return the standard deviation of the noise."""
        ceiling = BoundedSum(public.problem.largest_loss(public.weights("weights", self.weights))).ceiling
        return ceiling * self.noise.noise_multiplier / public.size

    def plan(self, public: Public) -> Sum[float]:
        problem = public.problem
        weights = public.weights("weights", self.weights)
        placed, added = problem.grid.place_weights(weights), problem.penalty_value(weights)
        bounded = BoundedSum(problem.largest_loss(weights))
        noised = Noised(self.noise, bounded.unit, Sensitivity.of_bounded_sum(bounded.ceiling, Norm.L2), public.size)
        return Sum(partial(problem.loss_block, bounded, placed), (noised,), lambda mean: float(mean[0]) + added)
