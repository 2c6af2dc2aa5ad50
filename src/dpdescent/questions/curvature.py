"""Second derivatives and values of the objective."""

from __future__ import annotations

from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian
from ..curator import _SCALE_BITS, Curator
from ..errors import ScaleOutOfRange
from ..exact import BoundedSum, LatticeSum, SecondMomentSum, ceil_log2
from ..exact.second_moments import LEAST_BITS
from ..noise import lattice_scale
from ..relations import Sensitivity
from .search import Batch

__all__ = ["hessian", "hessian_sum", "mean_loss"]

Floats = NDArray[np.float64]

_ROOM = 1 + 2.0**-40


def hessian(batch: Batch, weights: Floats) -> Floats:
    """Return the Hessian of the objective at public ``weights``, on a batch that was drawn for it.

    A row adds l'' x x', x rounded to 13 bits below the longest row and l'' to 10 below the largest curvature; the
    penalty's part is public and exact. Noise is isotropic on symmetric matrices.

    **Privacy** A row's matrix has rank one and a Frobenius norm of at most b R^2, where |l''| <= b and |x| <= R: that
    is the sensitivity, without the sqrt(d) of arbitrary Hessians. When a row is replaced it is sqrt(2) times that for
    a convex loss, whose matrices are positive semidefinite and so have <A, B> >= 0, and twice that for others.
    """
    curator, problem = batch._batches.curator, batch._batches.curator.problem
    weights = curator._point("weights", weights)
    placed, public = problem.grid.place_weights(weights), problem.penalty_curvature(weights)
    noise = batch._next(Gaussian)
    moments = hessian_sum(curator, noise)
    batch._pay(noise)
    known = curator._known_margins(placed) if batch._batches.rate == 1 else []
    values = batch._sum(partial(problem.hessian_block, moments, placed), *known)
    total = LatticeSum(values, moments.unit, moments.sensitivity)
    noisy = curator._noise.gaussian_symmetric(total, noise, curator.relation)
    return noisy / batch._batches.size + np.diag(public)


def hessian_sum(curator: Curator, noise: Gaussian) -> SecondMomentSum:
    """Return the finest sum of Hessians whose noise can still be drawn, or raise what keeps it from being drawn."""
    problem = curator.problem
    deviation = noise.noise_multiplier * problem.hessian_sensitivity(curator.relation)
    bits = min(SecondMomentSum.total_bits, _SCALE_BITS - ceil_log2(deviation / problem.smoothness))
    if bits < LEAST_BITS:
        raise ScaleOutOfRange(
            f"noise of {noise.noise_multiplier:.3g} times what a row can do to a Hessian cannot be drawn: spend more "
            "on it, on fewer steps or looser tolerances"
        )
    return problem.hessian_sum(bits)


def mean_loss(curator: Curator, weights: Floats, noise: Gaussian) -> tuple[float, float]:
    """Return the objective at public ``weights`` with signed noise, and the deviation of the noise.

    **Privacy** A row's loss lies between 0 and the public bound B of `LinearProblem.largest_loss`: B is the
    sensitivity under both relations. The noise keeps its sign: its absolute value would have a support that begins
    at the true loss, which no amount of noise hides.
    """
    problem = curator.problem
    weights = curator._point("weights", weights)
    placed, public = problem.grid.place_weights(weights), problem.penalty_value(weights)
    bounded = BoundedSum(problem.largest_loss(weights))
    deviation = bounded.ceiling * noise.noise_multiplier
    lattice_scale(_ROOM * deviation, bounded.unit)  # raises before the charge
    curator._charge(noise, "loss")
    values = curator._sum(partial(problem.loss_block, bounded, placed))
    total = LatticeSum(values, bounded.unit, Sensitivity.of_bounded_sum(bounded.ceiling))
    (noisy,) = curator._noise.gaussian(total, noise, curator.relation) / curator.scale
    return float(noisy) + public, deviation / curator.scale
