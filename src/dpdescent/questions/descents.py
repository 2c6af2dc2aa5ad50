"""Where gradient descent on the rows arrives, with noise on the last point: the steps themselves are not released.

Sensitivity, tolerance and lattice are those of `dpdescent.questions.points`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian
from ..accounting.shuffled import ALLOWANCE, ShuffledDescent
from ..curator import Curator
from ..errors import InvalidParameter, ScaleOutOfRange
from ..minimisers import RowObjective
from ..problems import Loss
from .points import _Lattice, _penalty, _require_rows

__all__ = ["PermutedDescent", "noisy_descent"]

Floats = NDArray[np.float64]

_UNIT = 2.0**-53


def noisy_descent(
    curator: Curator, loss: Loss, row_bound: float, step_size: float, steps: int, amount: float
) -> Floats:
    r"""Return the point after ``steps`` steps of gradient descent from zero, with Gaussian noise.

    **Privacy** For a convex objective of smoothness beta, a step of size at most 2/beta never moves two points
    farther apart, and by strong convexity lambda brings them together by the factor q = 1 - eta lambda (Zhang et al.
    2017; here for eta <= 1/beta). One row changes the step by at most eta C/n, or 2 eta C/n if it is replaced, and
    rounding by eta E each, so the points of neighbours are at most

    .. math:: (\eta C/n + 2 \eta E)(1 + q + \dots + q^{T-1})

    apart. E bounds the error of a computed step, from public numbers: that of the gradient
    (`RowObjective.error_bound`), and beta times the distance of the point at which it is taken.
    """
    problem, rows = curator.problem, curator.rows
    clip = _clip(loss, row_bound)
    penalty = _penalty(curator)
    beta = loss.smoothness * row_bound**2 + float(np.max(penalty))
    if step_size * beta > 1 + 1e-9:
        raise InvalidParameter(f"step_size must be at most 1/smoothness = {1 / beta:.4g}, got {step_size:.4g}")
    cost = curator.ledger.currency.gaussian(amount)
    linear = np.zeros(problem.shape)
    objective = _objective(curator, loss, row_bound, rows * penalty, linear)
    farthest = step_size * steps * clip * (1 + 2.0**-20)
    error = objective.error_bound(rows, farthest) / rows + 4 * _UNIT * (farthest / step_size + clip)
    error += beta * objective.placement_error(farthest)
    shrink = max(0.0, 1 - step_size * float(np.min(penalty)))
    growth = float(steps) if shrink == 1 else min(float(steps), (1 - shrink**steps) / (1 - shrink) * (1 + 2.0**-20))
    moved = _moves(curator) * clip / rows
    output = _Lattice.of(problem.shape, step_size * growth * (moved + 2 * error), farthest, cost)
    _require_rows(curator)
    curator._charge(cost, "gradient descent")
    point = np.zeros(problem.shape)
    with np.errstate(all="ignore"):
        for _ in range(steps):
            point = point - step_size * (objective.accurate_gradient(point) / rows)
    return curator._noise.gaussian(output.place(point), cost, curator.relation)


@dataclass(frozen=True)
class PermutedDescent:
    r"""Passes of gradient descent over randomly permuted rows, with an average after each, and noise at last.

    Parameters
    ----------
    passes, batch_rows : int
        k and b. The n public places for rows are permuted in each pass and cut into ceil(n/b) batches.
    step_size : float
        At most 1/smoothness.

    Notes
    -----
    **Privacy** A row sits in one batch of each pass, and a row that is missing leaves its place empty, so neighbours
    have the same batches but for one row. A step on that batch moves the points of neighbours apart by at most
    h = eta C/b (2 eta C/b if a row is replaced), and no other step does. The average over a pass of m steps holds the
    share U of the points after the hit: it moves by at most h U more than the average before it (Chen, Lee & Kifer
    2019), where U is uniform on {1/m, ..., 1} and independent from pass to pass. The shift is thus at most h times a
    sum of k such numbers, known in law and hidden in fact: `ShuffledDescent` charges the mixture. Rounding adds at
    most 2 eta E a step and sqrt(p) g at the end, whatever U is: all of it less than the part of the largest shift
    that the cost allows for. The rows after a missing one move up in the table, but places are as random for them as
    before: let the missing row take the place of an empty one.
    """

    passes: int
    batch_rows: int
    step_size: float

    def run(
        self, curator: Curator, loss: Loss, row_bound: float, amount_of: Callable[[int, int], ShuffledDescent]
    ) -> Floats:
        """Return the noisy average of the last pass; ``amount_of`` maps passes and batches to what is paid."""
        problem, rows = curator.problem, curator.rows
        clip = _clip(loss, row_bound)
        penalty = _penalty(curator)
        beta = loss.smoothness * row_bound**2 + float(np.max(penalty))
        if self.step_size * beta > 1 + 1e-9:
            raise InvalidParameter(
                f"step_size must be at most 1/smoothness = {1 / beta:.4g}, got {self.step_size:.4g}"
            )
        batches = -(-rows // self.batch_rows)
        cost = amount_of(self.passes, batches)
        objective = _objective(curator, loss, row_bound, penalty, np.zeros(problem.shape))
        steps = self.passes * batches
        farthest = self.step_size * steps * clip * (1 + 2.0**-20)
        error = objective.batch_error_bound(self.batch_rows, farthest) / self.batch_rows
        error += 8 * _UNIT * (farthest / self.step_size + clip)
        hit = self.step_size * _moves(curator) * clip / self.batch_rows
        output = _Lattice.of(problem.shape, hit * self.passes, farthest, cost)
        rounding = 2 * self.step_size * error * steps + math.sqrt(math.prod(problem.shape)) * output.unit
        if rounding > ALLOWANCE * hit * self.passes:
            raise ScaleOutOfRange("rounding errors of so many steps could show one row: take fewer passes")
        _require_rows(curator)
        curator._charge(cost, "permuted gradient descent")
        places = batches * self.batch_rows
        point = np.zeros(problem.shape)
        with np.errstate(all="ignore"):
            for _ in range(self.passes):
                owner = _permutation(curator, places)[: objective.rows] // self.batch_rows
                average = np.zeros(problem.shape)
                for batch in range(batches):
                    gradient = objective.batch_gradient(point, owner == batch) / self.batch_rows
                    point = point - self.step_size * (gradient + penalty * point)
                    average = average + point
                point = average / batches
        return curator._noise.gaussian(output.place(point), Gaussian(cost.noise_multiplier), curator.relation)


def _permutation(curator: Curator, places: int) -> NDArray[np.int64]:
    """Return a uniform permutation: the order of 128-bit keys, which differ but for a chance of places^2/2^129."""
    bits = curator._randomness.stream("permutation", curator._batches)
    curator._batches += 1
    order = np.lexsort((bits.words(places), bits.words(places)))
    position = np.empty(places, dtype=np.int64)
    position[order] = np.arange(places)
    return position


def _objective(curator: Curator, loss: Loss, row_bound: float, quadratic: Floats, linear: Floats) -> RowObjective:
    grid = curator.problem.grid
    return RowObjective(curator._source, grid, loss, curator._row_norms(), row_bound, quadratic, linear)


def _clip(loss: Loss, row_bound: float) -> float:
    """Return more than the longest gradient of a row scaled down to the bound."""
    return loss.lipschitz * row_bound * (1 + 2.0**-40)


def _moves(curator: Curator) -> int:
    return 1 if curator.relation.value == "zero-out" else 2
