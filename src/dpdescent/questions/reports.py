"""How far a released model is from the best one."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian, Laplace
from ..curator import Curator
from ..errors import InvalidParameter
from ..exact import LatticeSum, ceil_log2
from ..minimisers import RobustRisk, certified_minimiser, loss_range
from ..noise import laplace_scale, lattice_scale
from ..relations import Norm, Sensitivity
from .points import _penalty, _require_rows

__all__ = ["excess_adversarial_risk"]

Floats = NDArray[np.float64]

_BITS = 26  # lattice steps in the noise; at least 2^20 are needed


def excess_adversarial_risk(
    curator: Curator, risk: RobustRisk, strong_convexity: float, weights: Floats, cost: Gaussian | Laplace
) -> tuple[float, float]:
    """Return the mean adversarial loss at released weights less the least possible one, and the noise in it.

    Both are of the objective that was minimised, penalty and quadratic included, over n rows. The second number is
    the standard deviation of the noise: public.

    **Privacy** Let G be the sum over rows and V = G(w) - min G. A row more, with the loss f, adds f(w) to the first
    term, and to the second between its least value and f at the old minimiser. At w and at minimisers f lies in
    [a, A] (`loss_range`), so V changes by at most A - a, and by twice that if a row is replaced. The least value is
    taken at a point certified to within tau, which is at most (smoothness) tau^2/2 too high; that and twice the
    rounding error of a value are added.
    """
    if risk.tilt:
        raise InvalidParameter("the excess risk is reported for a mean of losses: leave tilt at 0")
    problem, rows = curator.problem, curator.rows
    quadratic = rows * _penalty(curator) + strong_convexity
    mu, curvature = float(np.min(quadratic)), float(np.max(quadratic))
    farthest = risk.farthest(rows, mu)
    distance = max(risk.reachable(rows, problem.grid.dimension, mu, curvature), 2.0**-30 * farthest)
    low, high = loss_range(risk.loss, risk.margin(max(farthest, float(np.linalg.norm(weights)))))
    largest = high + risk.loss.lipschitz
    error = (risk.smoothness(rows) + curvature) * distance**2
    public = 2 * risk.value_bound(rows) + curvature * float(np.sum(weights * weights))
    error += 2 * (rows + 2 * problem.grid.dimension + 32) * 2.0**-52 * (rows * largest + public)
    noise = cost.noise_multiplier if isinstance(cost, Gaussian) else 1 / cost.epsilon
    unit = 2.0 ** (ceil_log2((high - low) * noise) - _BITS)
    moved = high - low + 2 * error + unit
    removed, replaced = moved, moved + high - low
    whole = Sensitivity(Norm.L2 if isinstance(cost, Gaussian) else Norm.L1, removed, replaced)
    scale = whole.under(curator.relation) * (1 + 2.0**-40)
    if isinstance(cost, Gaussian):
        deviation = scale * cost.noise_multiplier
        lattice_scale(deviation, unit)  # raises before the charge
    else:
        deviation = scale * math.sqrt(2) / cost.epsilon
        laplace_scale(scale / cost.epsilon, unit)
    _require_rows(curator)
    curator._charge(cost, "excess adversarial risk")
    linear = np.zeros(problem.shape)
    objective = risk.objective(curator._source, problem.grid, curator._row_norms(), quadratic, linear)
    with np.errstate(all="ignore"):
        best = certified_minimiser(objective, mu, distance)
        excess = objective.value_and_gradient(weights)[0] - objective.value_and_gradient(best)[0]
    limit = 2.0**60 * unit
    steps = np.rint(np.clip(np.nan_to_num(np.array([excess])), -limit, limit) / unit).astype(np.int64)
    total = LatticeSum(steps, unit, whole)
    answer = curator._noise.gaussian if isinstance(cost, Gaussian) else curator._noise.laplace
    return float(answer(total, cost, curator.relation)[0]) / rows, deviation / rows  # type: ignore[arg-type]
