"""Where gradient descent on the rows arrives, with noise on the last point: the steps themselves are not released.

Sensitivity, tolerance and lattice are those of `dpdescent.queries.noisy_minimiser`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..accounting import ALLOWANCE, Gaussian, ShuffledDescent
from ..arrays import Floats, Integers
from ..errors import InvalidParameter, ScaleOutOfRange, require_positive_integer
from ..minimisers import EmpiricalRisk, RowObjective
from ..minimisers.risks import NoRows
from ..noise import Bits
from ..problems import Loss
from ..relations import Sensitivity
from .noisy_minimiser import OutputNoise, PointLattice, quadratic_penalty
from .query import Point, Public, Query, Rows

_UNIT = 2.0**-53


@dataclass(frozen=True)
class NoisyDescent(Query[Floats]):
    r"""The point after ``steps`` steps of gradient descent from zero, with noise.

    **Privacy** For a convex objective of smoothness beta, a step of size at most 2/beta never moves two points
    farther apart, and by strong convexity lambda brings them together by the factor q = 1 - eta lambda (Zhang et al.
    2017; here for eta <= 1/beta). One row changes the step by at most eta C/n, or 2 eta C/n if it is replaced, and
    rounding by eta E each, so the points of neighbours are at most

    .. math:: (\eta C/n + 2 \eta E)(1 + q + \dots + q^{T-1})

    apart. E bounds the error of a computed step, from public numbers: that of the gradient
    (`RowObjective.error_bound`), and beta times the distance of the point at which it is taken.
    """

    loss: Loss
    row_bound: float
    step_size: float
    steps: int
    mechanism: OutputNoise
    label = "gradient descent"

    def plan(self, public: Public) -> Point[Floats]:
        problem, rows, steps, step_size = public.problem, public.rows, self.steps, self.step_size
        require_positive_integer("steps", steps)
        descent = _Descent.of(public, self.loss, self.row_bound, step_size)
        objective = descent.objective(None, rows * descent.penalty)
        farthest = step_size * steps * descent.clip * (1 + 2.0**-20)
        error = objective.error_bound(rows, farthest) / rows + 4 * _UNIT * (farthest / step_size + descent.clip)
        error += descent.smoothness * objective.placement_error(farthest)
        shrink = max(0.0, 1 - step_size * float(np.min(descent.penalty)))
        growth = float(steps)
        if shrink < 1:
            growth = min(growth, (1 - shrink**steps) / (1 - shrink) * (1 + 2.0**-20))
        moved = descent.change / rows
        apart = step_size * growth * (moved + 2 * error)
        lattice = PointLattice.of(problem.shape, apart, farthest, self.mechanism, public.rows_per_unit)

        def find(table: Rows, _: Floats | None) -> Integers:
            exact = descent.objective(table, rows * descent.penalty)
            point = np.zeros(problem.shape)
            for _step in range(steps):
                point = point - step_size * (exact.accurate_gradient(point) / rows)
            return lattice.place(point)

        return Point(self.mechanism, lattice.noised, find, lambda noisy: noisy)


@dataclass(frozen=True)
class PermutedDescent(Query[Floats]):
    r"""Passes of gradient descent over randomly permuted rows, with an average after each, and noise at last.

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

    loss: Loss
    row_bound: float  # rows longer than this are scaled down to it
    #: b. The n public places for rows are permuted in each pass and cut into ceil(n/b) batches.
    batch_rows: int
    step_size: float  # at most 1/smoothness
    mechanism: ShuffledDescent  # says how many passes k there are, and that there are ceil(n/b) batches
    label = "permuted gradient descent"

    def plan(self, public: Public) -> Point[Floats]:
        problem, rows, step_size, batch_rows = public.problem, public.rows, self.step_size, self.batch_rows
        descent = _Descent.of(public, self.loss, self.row_bound, step_size)
        passes, batches = self.mechanism.passes, -(-rows // require_positive_integer("batch_rows", batch_rows))
        if self.mechanism.batches != batches:
            raise InvalidParameter(f"{self.mechanism.batches} batches are charged for, and a pass has {batches}")
        objective = descent.objective(None, descent.penalty)
        steps = passes * batches
        farthest = step_size * steps * descent.clip * (1 + 2.0**-20)
        error = objective.batch_error_bound(batch_rows, farthest) / batch_rows
        error += 8 * _UNIT * (farthest / step_size + descent.clip)
        hit = step_size * descent.change / batch_rows
        lattice = PointLattice.of(problem.shape, hit * passes, farthest, Gaussian(self.mechanism.noise_multiplier))
        rounding = 2 * step_size * error * steps + math.sqrt(math.prod(problem.shape)) * lattice.unit
        if rounding > ALLOWANCE * hit * passes:
            raise ScaleOutOfRange("rounding errors of so many steps could show one row: take fewer passes")

        def find(table: Rows, _: Floats | None) -> Integers:
            exact = descent.objective(table, descent.penalty)
            point = np.zeros(problem.shape)
            for _pass in range(passes):
                places = _permutation(table.bits("permutation"), batches * batch_rows)
                owner = places[: exact.rows] // batch_rows
                average = np.zeros(problem.shape)
                for batch in range(batches):
                    gradient = exact.batch_gradient(point, owner == batch) / batch_rows
                    point = point - step_size * (gradient + descent.penalty * point)
                    average = average + point
                point = average / batches
            return lattice.place(point)

        return Point(self.mechanism, lattice.noised, find, lambda noisy: noisy)


@dataclass(frozen=True, eq=False)
class _Descent:
    """What both descents share: the objective, and by how much one row can change a step."""

    public: Public
    risk: EmpiricalRisk
    penalty: Floats
    smoothness: float

    @classmethod
    def of(cls, public: Public, loss: Loss, row_bound: float, step_size: float) -> _Descent:
        risk, penalty = EmpiricalRisk(loss, row_bound), quadratic_penalty(public.problem)
        risk.require_table(public.rows, public.problem.shape)
        smoothness = loss.smoothness * row_bound**2 + float(np.max(penalty))
        if not 0 < step_size * smoothness <= 1 + 1e-9:
            raise InvalidParameter(
                f"step_size must be at most 1/smoothness = {1 / smoothness:.4g}, got {step_size:.4g}"
            )
        return cls(public, risk, penalty, smoothness)

    @property
    def clip(self) -> float:
        """More than the longest gradient of a row scaled down to the bound."""
        return self.risk.clip

    @property
    def change(self) -> float:
        """By how much one row can change the sum of the gradients."""
        return Sensitivity.of_clipped_sum(self.clip).under(self.public.relation)

    def objective(self, table: Rows | None, quadratic: Floats) -> RowObjective:
        """Return the objective of the rows, or of none: errors are bounded by public numbers."""
        problem = self.public.problem
        grid, linear = problem.grid, np.zeros(problem.shape)
        if table is None:
            return self.risk.objective(NoRows(grid), grid, np.zeros(0), quadratic, linear)
        return self.risk.objective(table.source, grid, table.squared_norms, quadratic, linear)


def _permutation(bits: Bits, places: int) -> Integers:
    """Return a uniform permutation: the order of 128-bit keys, all drawn again if two of them are the same."""
    while True:
        keys = bits.words(places), bits.words(places)
        order = np.lexsort(keys)
        ties = np.logical_and(*(np.diff(key[order]) == 0 for key in keys))
        if not ties.any():
            position = np.empty(places, dtype=np.int64)
            position[order] = np.arange(places)
            return position
