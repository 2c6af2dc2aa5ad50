"""A random point of a ball, the likelier the smaller its loss: the exponential mechanism over points.

`dpdescent.minimisers.sampler` has the law, its range under both relations, and how it is sampled exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..accounting import ExponentialMechanism
from ..errors import InvalidParameter
from ..exact import require_moderate
from ..minimisers import Ball, sample_point
from .points import convexity, require_constants
from .questions import Draw, Public, Question, Rows
from .sources import Floats


@dataclass(frozen=True, eq=False)
class BallPoint(Question[Floats]):
    """A point of the ball with probability proportional to exp(-eta G).

    **Privacy** One charge, ``cost``: adding a row changes the logarithm of a probability within a range of epsilon,
    and replacing one does so too, because eta is made for the relation.
    """

    ball: Ball
    cost: ExponentialMechanism
    label = "point of a ball"

    def plan(self, public: Public) -> Draw[Floats]:
        problem, grid, asked = public.problem, public.problem.grid, self.ball
        asked.risk.require_table(public.rows, problem.shape)
        if asked.rows != public.rows or len(problem.shape) > 1:
            raise InvalidParameter(
                f"the ball is for sums over {asked.rows} rows of one margin, and the table has {public.rows} of "
                f"{problem.loss.outputs}: make the ball for this table"
            )
        quadratic = public.weights("quadratic", asked.quadratic)
        require_constants(convexity(quadratic), asked.risk.gradient_bound(1), asked.radius)
        require_moderate("the largest curvature", float(np.max(quadratic)))
        centre = grid.place_weights(public.weights("centre", asked.centre))
        ball = replace(asked, centre=centre, quadratic=quadratic)
        law = law_for_units(self.cost, public.rows_per_unit)
        ball.require_practical(law, public.relation)

        def draw(table: Rows) -> Floats:
            bits = table.bits("point of a ball")
            return sample_point(table.source, table.squared_norms, grid, ball, law, public.relation, bits)

        return Draw(self.cost, draw, public.rows_per_unit)


def law_for_units(cost: ExponentialMechanism, rows_per_unit: int) -> ExponentialMechanism:
    """Return the law to draw from: of k rows that change together, each may use a k-th part of the range."""
    if rows_per_unit == 1:
        return cost
    return ExponentialMechanism(math.nextafter(cost.epsilon / rows_per_unit, 0.0))
