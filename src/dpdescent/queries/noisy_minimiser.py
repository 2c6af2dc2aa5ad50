r"""Points that all rows decide: a minimiser with noise, how far a model is from it, and a random point of a ball.

Objective and output perturbation, and also `dpdescent.queries.descents`, release a point w which one row can move by
at most Delta in the Euclidean norm, in real arithmetic. What is computed is w + e with an error e of at most a public
tau, under both neighbours, and it is rounded to a lattice of step g before lattice noise is added: the sensitivity is
Delta + 2 tau + sqrt(p) g for p numbers. Entries are clipped at a size far beyond what the point can reach, which
never widens a difference.

The public number of rows n counts the places for rows, of which some may be empty: a table of more than n rows is
refused, and neighbours have at most n each.

A random point of a ball is the likelier the smaller its loss: the exponential mechanism over points.
`dpdescent.minimisers.sampler` has the law, its range under both relations, and how it is sampled exactly.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..accounting import (
    SMALLEST_LAPLACE_LATTICE,
    Cost,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    ObjectivePerturbation,
    PureObjectivePerturbation,
)
from ..arrays import Floats, Integers
from ..errors import InvalidParameter, require_nonnegative, require_positive
from ..exact import ceil_log2, require_moderate
from ..minimisers import (
    Ball,
    EmpiricalRisk,
    Risk,
    RobustRisk,
    certified_minimiser,
    loss_range,
    require_minimiser,
    sample_point,
)
from ..noise import FARTHEST_DRAW
from ..problems import L2, LinearProblem
from ..relations import Norm, Sensitivity
from .query import Draw, Noised, Point, Public, Query, Rows, noise_on_objective, noise_on_point

OutputNoise = Gaussian | NormLaplace | Laplace

_RANGE_BITS, _NOISE_BITS = 60, 48  # a lattice that holds the point in 61 bits, and the noise in 52
_LEAST_NORM_LAPLACE = 2.0**25  # lattice steps in a norm-Laplace scale
_LEAST_LAPLACE = 2 * SMALLEST_LAPLACE_LATTICE
_ROUNDED = 18.0  # lattice steps by which a scale of noise is rounded up, at most
_COUPLING = 40.0  # lattice steps between a Gaussian and the discrete one made of it, but for 2^-280
_EXCESS_BITS = 26  # lattice steps in the noise on an excess risk; at least 2^20 are needed


@dataclass(frozen=True, eq=False)
class NoisyMinimiser(Query[Floats]):
    """The minimiser of a risk plus n times the penalty plus Lambda/2 |w|^2, with noise on top.

    With a cost of objective perturbation the objective has a random linear term b'w as well.

    **Privacy, output perturbation** One row moves the minimiser by at most V/mu (`dpdescent.minimisers.risks`), or
    across the ball in which all minimisers lie if that is less, and the computed point is certified to lie within tau
    of it. The projection is post-processing.

    **Privacy, objective perturbation** The exact minimiser has the guarantee of ``mechanism``
    (`dpdescent.accounting.approximate`), and the noise on top hides the distance to it. That distance is at most
    tau + 40 sqrt(p) g/mu, because

    - the computed point is certified to lie within a public tau of it; tau is 2^-44 n C/mu, or more where large
      margins or noise need it (`dpdescent.minimisers`);
    - b is discrete, and the theorem is about a Gaussian. A discrete Gaussian is a Gaussian moved by a discrete one of
      scale 2 lattice steps (`lattice_scale`), so by at most 40 steps g a coordinate, and moving b by r moves the
      minimiser by at most |r|/mu. A norm-Laplace ladder is a mixture of such Gaussians, and the discrete Laplace
      noise that replaces it for one weight has quantiles within two steps of those of Laplace noise.

    Given the exact minimiser w of the continuous noise, the released point is thus the noise on top around a point
    within the distance of w, for either neighbour, mixed over what else is random: sensitivity twice the distance,
    plus rounding. So the pair (w, released point) loses at most what w loses, plus the loss of a Gaussian (or
    norm-Laplace) mechanism given w, which is what ``mechanism`` composes. Penalties are public and do not enter.
    """

    risk: Risk  # in the scale of n times a mean
    #: Lambda. The strong convexity mu is Lambda plus n times the least curvature of the penalty, and must not be 0.
    strong_convexity: float
    #: What was paid: Gaussian, norm-Laplace or Laplace noise on the minimiser, or objective perturbation.
    mechanism: OutputNoise | ObjectivePerturbation | PureObjectivePerturbation
    #: tau in units of the sensitivity of output perturbation, 1/256, or 1/64 for a risk with kinks, by default; it is
    #: raised to what can be certified for every table in floating point, and to 2^-20 (2^-10 with kinks).
    tolerance: float | None = None
    radius: float = math.inf  # minimise over B(0, R), and project the noisy point onto it
    minimiser: str = "lbfgs"  # the method that is tried first, one of `dpdescent.minimisers.METHODS`

    @property
    def label(self) -> str:  # type: ignore[override]
        """What the record of the ledger calls it."""
        return "minimiser" if isinstance(self.mechanism, OutputNoise) else "objective perturbation"

    def plan(self, public: Public) -> Point[Floats]:
        problem, rows, risk, cost, radius = public.problem, public.rows, self.risk, self.mechanism, self.radius
        risk.require_table(rows, problem.shape)
        linear = _LinearNoise.of(problem.shape, risk, cost)
        quadratic = rows * quadratic_penalty(problem) + require_nonnegative("strong_convexity", self.strong_convexity)
        mu = convexity(quadratic)
        require_constants(mu, risk.gradient_bound(1), radius)
        if not isinstance(cost, OutputNoise):
            _require_paid(cost, risk, mu, radius)
        farthest = require_moderate("the norm of a minimiser", min(risk.farthest(rows, mu, linear.norm), radius))
        if farthest > risk.radius:
            raise InvalidParameter(
                f"the bounds of this risk hold up to a norm of {risk.radius:.4g}, and minimisers may have one of "
                f"{farthest:.4g}: minimise it over that ball"
            )
        smooth = risk.smoothness(rows) < math.inf
        require_minimiser(self.minimiser, smooth=smooth, rows=risk.sum_over_rows, hinge=risk.hinge)
        curvature = float(np.max(quadratic))
        reachable = risk.reachable(rows, problem.grid.dimension, mu, curvature, linear.norm, radius)
        if isinstance(cost, OutputNoise):
            moved = min(risk.variation(rows, public.relation) / mu, 2 * farthest)
            distance = max(tolerance_share(self.tolerance, smooth) * moved, reachable)
            sensitivity = moved + 2 * distance
        else:
            distance = max(2.0**-44 * risk.gradient_bound(rows) / mu, reachable)
            sensitivity = 2 * (distance + _COUPLING * math.sqrt(math.prod(problem.shape)) * linear.unit / mu)
        lattice = PointLattice.of(
            problem.shape, sensitivity, farthest + distance, noise_on_point(cost), public.rows_per_unit
        )

        def find(table: Rows, random: Floats | None) -> Integers:
            term = np.zeros(problem.shape) if random is None else random
            objective = risk.objective(table.source, problem.grid, table.squared_norms, quadratic, term)
            return lattice.place(certified_minimiser(objective, mu, distance, self.minimiser, radius))

        return Point(
            cost, lattice.noised, find, lambda noisy: within_ball(noisy, radius), linear.noised(cost), problem.shape
        )


def _require_paid(
    cost: ObjectivePerturbation | PureObjectivePerturbation, risk: Risk, strong_convexity: float, radius: float
) -> None:
    """Raise `InvalidParameter` unless the theorem behind the cost is about this objective."""
    assert isinstance(risk, EmpiricalRisk), "objective perturbation refuses other risks"
    if radius < math.inf:
        raise InvalidParameter("objective perturbation is about minimisers over all weights: leave radius out")
    if cost.log_determinant < risk.log_determinant(strong_convexity):
        raise InvalidParameter(
            f"one row can raise the log-determinant by {risk.log_determinant(strong_convexity):.6g}, and the cost "
            f"pays for {cost.log_determinant:.6g}: take EmpiricalRisk.log_determinant"
        )
    if isinstance(cost, ObjectivePerturbation) and cost.corners < risk.loss.corners:
        raise InvalidParameter(
            f"a row has gradients of {risk.loss.corners} corners, and the cost pays for {cost.corners}: raise them"
        )


@dataclass(frozen=True)
class _LinearNoise:
    """The random linear term of objective perturbation: its lattice, and a bound that its norm never exceeds.

    The bound is certain, not likely: a Gaussian draw is at most `FARTHEST_DRAW` of its scales long in a coordinate,
    and no scale, the largest of a norm-Laplace ladder included, is more than the deviation below plus rounding. (One
    weight has Laplace noise instead, which ends before 189 of its scales: 377/epsilon clip norms, where 720 are
    allowed for.) Cutting b off would be no substitute, because the theorem is about noise that is not cut.
    """

    shape: tuple[int, ...]
    clip: float
    unit: float
    norm: float

    @classmethod
    def of(cls, shape: tuple[int, ...], risk: Risk, cost: Cost) -> _LinearNoise:
        if isinstance(cost, OutputNoise):
            return cls(shape, 0.0, 0.0, 0.0)
        if not isinstance(risk, EmpiricalRisk) or risk.hinge:
            raise InvalidParameter(
                "objective perturbation is about sums of smooth losses: perturb the output instead"
            )
        root = math.sqrt(math.prod(shape))
        pure = isinstance(cost, PureObjectivePerturbation)
        scale = 2 * (17 + root) / cost.objective_epsilon if pure else cost.noise_multiplier  # type: ignore[attr-defined]
        unit = 2.0 ** (ceil_log2(risk.clip) - min(36, 50 - ceil_log2(max(scale, 1.0))))
        return cls(shape, risk.clip, unit, FARTHEST_DRAW * (scale * risk.clip + _ROUNDED * unit) * root)

    def noised(self, cost: Cost) -> Noised | None:
        """Return the noise on the linear term that a cost pays for, if it pays for any."""
        noise = noise_on_objective(cost)
        replaced = 2 * self.clip if isinstance(cost, PureObjectivePerturbation) else self.clip
        if noise is None:
            return None
        return Noised(noise, self.unit, Sensitivity(Norm.L2, self.clip, replaced), size=math.prod(self.shape))


@dataclass(frozen=True)
class PointLattice:
    """A lattice for a point of known sensitivity, on which its noise can be drawn."""

    noised: Noised
    limit: float

    @classmethod
    def of(
        cls, shape: tuple[int, ...], sensitivity: float, largest: float, noise: Cost, rows_per_unit: int = 1
    ) -> PointLattice:
        """Return the lattice for a point that one row can move by ``sensitivity`` in the Euclidean norm.

        It has room for the noise of ``rows_per_unit`` rows that change together.
        """
        root = math.sqrt(math.prod(shape))
        norm, finest = Norm.L2, 0.0
        if isinstance(noise, NormLaplace):
            scale, finest = 2 * (17 + root) / noise.epsilon, _LEAST_NORM_LAPLACE * noise.epsilon
        elif isinstance(noise, Laplace):  # every coordinate by itself: |z|_1 <= sqrt(p) |z|_2
            norm, scale, finest = Norm.L1, 2 / noise.epsilon, _LEAST_LAPLACE * noise.epsilon
            sensitivity *= root
        else:
            assert isinstance(noise, Gaussian)
            scale = noise.noise_multiplier
        size = max(largest * 2.0**-_RANGE_BITS, rows_per_unit * sensitivity * scale * 2.0**-_NOISE_BITS)
        unit = 2.0 ** ceil_log2(size)
        rounding = root * unit if norm is Norm.L2 else root**2 * unit
        change = max((sensitivity + rounding) * (1 + 2.0**-40), finest * unit)
        return cls(Noised(noise, unit, Sensitivity(norm, change, change), size=math.prod(shape)), largest)

    @property
    def unit(self) -> float:
        """The step of the lattice."""
        return self.noised.unit

    def place(self, point: Floats) -> Integers:
        """Return a point on the lattice, clipped at a size far beyond what it can reach."""
        inside = np.clip(np.nan_to_num(point), -self.limit, self.limit)
        return np.rint(inside / self.unit).astype(np.int64)


def within_ball(point: Floats, radius: float) -> Floats:
    """Return the point of B(0, R) nearest to a released one."""
    return point / max(1.0, float(np.linalg.norm(point)) / radius) if radius < math.inf else point


def tolerance_share(given: float | None, smooth: bool, kinks: int = 64) -> float:
    """Return the tolerance in units of the sensitivity."""
    if given is None:
        return 1 / (256 if smooth else kinks)
    return max(require_positive("tolerance", given), 2.0**-20 if smooth else 2.0**-10)


def require_constants(strong_convexity: float, gradient: float, radius: float) -> None:
    """Refuse constants with which squares of lengths could over- or underflow, and certificates with them."""
    require_moderate("strong_convexity", strong_convexity)
    require_moderate("the longest gradient of a row", gradient)
    if radius != math.inf:
        require_moderate("radius", radius)


def convexity(quadratic: Floats) -> float:
    """Return the least entry of a diagonal Hessian, or raise `InvalidParameter` if it is not positive."""
    mu = float(np.min(quadratic))
    if not mu > 0:
        raise InvalidParameter(
            "the objective is not strongly convex, so one row may move its minimiser by any distance: give a "
            "positive strong_convexity, or leave it out for the rule"
        )
    return mu


def quadratic_penalty(problem: LinearProblem) -> Floats:
    """Return the diagonal of the penalty's Hessian; it must be the same everywhere."""
    if not isinstance(problem.penalty, L2):
        raise InvalidParameter("this method needs a convex quadratic penalty: use L2")
    return problem.penalty_curvature(np.zeros(problem.shape))


@dataclass(frozen=True, eq=False)
class BallPoint(Query[Floats]):
    """A point of the ball with probability proportional to exp(-eta G).

    **Privacy** One charge, ``mechanism``: adding a row changes the logarithm of a probability within a range of
    epsilon, and replacing one does so too, because eta is made for the relation.
    """

    ball: Ball
    mechanism: ExponentialMechanism
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
        law = law_for_units(self.mechanism, public.rows_per_unit)
        ball.require_practical(law, public.relation)

        def draw(table: Rows) -> Floats:
            bits = table.bits("point of a ball")
            return sample_point(table.source, table.squared_norms, grid, ball, law, public.relation, bits)

        return Draw(self.mechanism, draw, public.rows_per_unit)


def law_for_units(cost: ExponentialMechanism, rows_per_unit: int) -> ExponentialMechanism:
    """Return the law to draw from: of k rows that change together, each may use a k-th part of the range."""
    if rows_per_unit == 1:
        return cost
    return ExponentialMechanism(math.nextafter(cost.epsilon / rows_per_unit, 0.0))


@dataclass(frozen=True, eq=False)
class ExcessAdversarialRisk(Query[tuple[float, float]]):
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
    mechanism: Gaussian | Laplace
    label = "excess adversarial risk"

    def plan(self, public: Public) -> Point[tuple[float, float]]:
        problem, rows, risk, cost = public.problem, public.rows, self.risk, self.mechanism
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
        unit = 2.0 ** (ceil_log2((high - low) * noise) - _EXCESS_BITS)
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
