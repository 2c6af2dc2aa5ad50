"""How far a released model is from the best one."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..accounting import Gaussian, Laplace
from ..errors import InvalidParameter, require_nonnegative
from ..exact import ceil_log2
from ..minimisers import RobustRisk, certified_minimiser, loss_range
from ..relations import Norm, Sensitivity
from .points import PointLattice, convexity, quadratic_penalty, require_constants
from .questions import Noised, Point, Public, Question, Rows
from .sources import Floats, Integers

_BITS = 26  # lattice steps in the noise; at least 2^20 are needed


@dataclass(frozen=True, eq=False)
class ExcessAdversarialRisk(Question[tuple[float, float]]):
    """The mean adversarial loss at released weights less the least possible one, and the noise in it.

    Both are of the objective that was minimised, penalty and quadratic included, over n rows. The second number is
    the standard deviation of the noise: public.

    **Privacy** Let G be the sum over rows and V = G(w) - min G. A row more, with the loss f, adds f(w) to the first
    term, and to the second between its least value and f at the old minimiser. At w and at minimisers f lies in
    [a, A] (`loss_range`), so V changes by at most A - a, and by twice that if a row is replaced. The least value is
    taken at a point certified to within tau, which is at most (smoothness) tau^2/2 too high; that and twice the
    rounding error of a value are added.
    """

    risk: RobustRisk
    strong_convexity: float
    weights: Floats
    cost: Gaussian | Laplace
    label = "excess adversarial risk"

    def plan(self, public: Public) -> Point[tuple[float, float]]:
        problem, rows, risk, cost = public.problem, public.rows, self.risk, self.cost
        weights = public.weights("weights", self.weights)
        risk.require_table(rows, problem.shape)
        if risk.tilt:
            raise InvalidParameter("the excess risk is reported for a mean of losses: leave tilt at 0")
        quadratic = rows * quadratic_penalty(problem) + require_nonnegative("strong_convexity", self.strong_convexity)
        mu, curvature = convexity(quadratic), float(np.max(quadratic))
        length = require_nonnegative("the norm of the weights", float(np.linalg.norm(weights)))
        require_constants(mu, risk.gradient_bound(1), math.inf)
        farthest = risk.farthest(rows, mu)
        distance = max(risk.reachable(rows, problem.grid.dimension, mu, curvature), 2.0**-30 * farthest)
        low, high = loss_range(risk.loss, risk.margin(max(farthest, length)))
        largest = high + risk.loss.lipschitz
        error = (risk.smoothness(rows) + curvature) * distance**2
        known = 2 * risk.value_bound(rows) + curvature * float(np.sum(weights * weights))
        error += 2 * (rows + 2 * problem.grid.dimension + 32) * 2.0**-52 * (rows * largest + known)
        gaussian = isinstance(cost, Gaussian)
        noise = cost.noise_multiplier if isinstance(cost, Gaussian) else 1 / cost.epsilon
        unit = 2.0 ** (ceil_log2((high - low) * noise) - _BITS)
        moved = high - low + 2 * error + unit
        whole = Sensitivity(Norm.L2 if gaussian else Norm.L1, moved, moved + high - low)
        scale = whole.times(public.rows_per_unit).under(public.relation) * (1 + 2.0**-40)
        lattice = PointLattice(Noised(cost, unit, whole, float(rows)), limit=2.0**60 * unit)
        deviation = scale * (noise if gaussian else math.sqrt(2) * noise)

        def find(table: Rows, _: Floats | None) -> Integers:
            linear = np.zeros(problem.shape)
            objective = risk.objective(table.source, problem.grid, table.squared_norms, quadratic, linear)
            best = certified_minimiser(objective, mu, distance)
            excess = objective.value_and_gradient(weights)[0] - objective.value_and_gradient(best)[0]
            return lattice.place(np.array([excess]))

        return Point(cost, lattice.noised, find, lambda excess: (float(excess[0]), deviation / rows))
