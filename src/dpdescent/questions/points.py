r"""A point near an optimum, with noise: objective perturbation and output perturbation.

All three answers release a point w which one row can move by at most Delta in the Euclidean norm, in real arithmetic.
What is computed is w + e with an error e of at most a public tau, under both neighbours, and it is rounded to a
lattice of step g before lattice noise is added: the sensitivity is Delta + 2 tau + sqrt(p) g for p numbers.
Entries are cut at a size far beyond what the point can reach, which never widens a difference.

The public number of rows n counts the places for rows, of which some may be empty: a table of more than n rows is
refused, and neighbours have at most n each.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian, NormLaplace, ObjectivePerturbation, PureObjectivePerturbation
from ..accounting.shuffled import ALLOWANCE, ShuffledDescent
from ..curator import Curator
from ..errors import InvalidParameter, ScaleOutOfRange
from ..exact import LatticeSum, ceil_log2
from ..minimisers import RowObjective, certified_minimiser, reachable_tolerance
from ..problems import L2, Loss
from ..relations import Norm, Sensitivity

__all__ = ["PermutedDescent", "noisy_descent", "noisy_minimiser"]

Floats = NDArray[np.float64]

_RANGE_BITS, _NOISE_BITS = 60, 48  # a lattice that holds the point in 61 bits, and the noise in 52
_LEAST_NORM_LAPLACE = 2.0**25  # lattice steps in a norm-Laplace scale
_COUPLING = 40.0  # lattice steps between a Gaussian and the discrete one made of it, but for 2^-280
_UNIT = 2.0**-53


def noisy_minimiser(
    curator: Curator,
    loss: Loss,
    row_bound: float,
    strong_convexity: float,
    cost: ObjectivePerturbation | PureObjectivePerturbation,
) -> Floats:
    """Return the minimiser of n times the objective plus Lambda/2 |w|^2 + b'w with random b, and noise on top.

    **Privacy** The exact minimiser has the guarantee of ``cost`` (`dpdescent.accounting.approximate`), and the noise
    on top hides the distance to it. That distance is at most (tau + 40 sqrt(p) g)/Lambda, because

    - the computed point is certified to have a gradient of at most a public tau, errors included, and Lambda is a
      strong convexity; tau is 2^-44 n C, or more where large margins or noise need it (`dpdescent.minimisers`);
    - b is discrete, and the theorem is about a Gaussian. A discrete Gaussian is a Gaussian moved by a discrete one of
      scale 2 lattice steps (`lattice_scale`), so by at most 40 steps g a coordinate, and moving b by r moves the
      minimiser by at most |r|/Lambda. A norm-Laplace ladder is a mixture of such Gaussians, and the discrete Laplace
      noise that replaces it for one weight has quantiles within two steps of those of Laplace noise.

    Given the exact minimiser w of the continuous noise, the released point is thus the noise on top around a point
    within the distance of w, for either neighbour, mixed over what else is random: sensitivity twice the distance,
    plus rounding. So the pair (w, released point) loses at most what w loses, plus the loss of a Gaussian (or
    norm-Laplace) mechanism given w, which is what ``cost`` composes. Penalties are public and do not enter.
    """
    problem, relation = curator.problem, curator.relation
    clip = _clip(loss, row_bound)
    parameters = math.prod(problem.shape)
    pure = isinstance(cost, PureObjectivePerturbation)
    # The noise in the objective.
    scale = 2 * (17 + math.sqrt(parameters)) / cost.objective_epsilon if pure else cost.noise_multiplier  # type: ignore[union-attr]
    unit = 2.0 ** (ceil_log2(clip) - min(36, 50 - ceil_log2(max(scale, 1.0))))
    linear_norm = 10 * scale * clip * math.sqrt(parameters)  # exceeded with a probability below 1e-22
    largest = (curator.rows * clip + linear_norm) / strong_convexity
    gradient_tolerance = max(
        2.0**-44 * curator.rows * clip,
        reachable_tolerance(loss, row_bound, problem.grid.dimension, curator.rows, strong_convexity, linear_norm),
    )
    distance = (gradient_tolerance + _COUPLING * math.sqrt(parameters) * unit) / strong_convexity
    output = _Lattice.of(problem.shape, 2 * distance, largest, cost)
    # Both noises can be drawn: now pay.
    _require_rows(curator)
    quadratic = curator.rows * _penalty(curator) + strong_convexity
    curator._charge(cost, "objective perturbation")
    nothing = np.zeros(problem.shape, dtype=np.int64)
    if pure:
        whole = LatticeSum(nothing, unit, Sensitivity(Norm.L2, clip, 2 * clip))
        linear = curator._noise.norm_laplace(whole, NormLaplace(cost.objective_epsilon), relation)  # type: ignore[union-attr]
    else:
        whole = LatticeSum(nothing, unit, Sensitivity(Norm.L2, clip, clip))
        linear = curator._noise.gaussian(whole, Gaussian(cost.noise_multiplier), relation)  # type: ignore[union-attr]
    objective = _objective(curator, loss, row_bound, quadratic, linear)
    with np.errstate(all="ignore"):
        point = certified_minimiser(objective, strong_convexity, gradient_tolerance / strong_convexity)
    if pure:
        return curator._noise.norm_laplace(output.place(point), NormLaplace(cost.output_epsilon), relation)  # type: ignore[union-attr]
    return curator._noise.gaussian(output.place(point), Gaussian(cost.output_multiplier), relation)  # type: ignore[union-attr]


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


@dataclass(frozen=True)
class _Lattice:
    """A lattice for a point of known sensitivity, on which the noise of a cost can be drawn."""

    unit: float
    limit: float
    sensitivity: float

    @classmethod
    def of(cls, shape: tuple[int, ...], sensitivity: float, largest: float, cost: object) -> _Lattice:
        parameters = math.prod(shape)
        if isinstance(cost, PureObjectivePerturbation):
            scale, finest = 2 * (17 + math.sqrt(parameters)) / cost.output_epsilon, _LEAST_NORM_LAPLACE
        elif isinstance(cost, ObjectivePerturbation):
            scale, finest = cost.output_multiplier, 0.0
        else:
            scale, finest = cost.noise_multiplier, 0.0  # type: ignore[attr-defined]
        size = max(largest * 2.0**-_RANGE_BITS, sensitivity * scale * 2.0**-_NOISE_BITS)
        unit = 2.0 ** ceil_log2(size)
        whole = (sensitivity + math.sqrt(parameters) * unit) * (1 + 2.0**-40)
        if isinstance(cost, PureObjectivePerturbation):
            whole = max(whole, finest * unit * cost.output_epsilon)
        return cls(unit, largest, whole)

    def place(self, point: Floats) -> LatticeSum:
        inside = np.clip(np.nan_to_num(point), -self.limit, self.limit)
        values = np.rint(inside / self.unit).astype(np.int64)
        return LatticeSum(values, self.unit, Sensitivity(Norm.L2, self.sensitivity, self.sensitivity))


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


def _penalty(curator: Curator) -> Floats:
    """Return the diagonal of the penalty's Hessian; it must be the same everywhere."""
    problem = curator.problem
    if not isinstance(problem.penalty, L2):
        raise InvalidParameter("this method needs a convex quadratic penalty: use L2")
    return problem.penalty_curvature(np.zeros(problem.shape))


def _clip(loss: Loss, row_bound: float) -> float:
    """Return more than the longest gradient of a row scaled down to the bound."""
    return loss.lipschitz * row_bound * (1 + 2.0**-40)


def _moves(curator: Curator) -> int:
    return 1 if curator.relation.value == "zero-out" else 2


def _require_rows(curator: Curator) -> None:
    if curator._row_norms().shape[0] > curator.rows:
        raise InvalidParameter("the table has more rows than the public number of them: pass their true number")
