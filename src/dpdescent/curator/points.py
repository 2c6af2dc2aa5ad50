r"""A minimiser with noise: objective perturbation and output perturbation.

These answers, and those of `dpdescent.curator.descents`, release a point w which one row can move by at most Delta in
the Euclidean norm, in real arithmetic. What is computed is w + e with an error e of at most a public tau, under both
neighbours, and it is rounded to a lattice of step g before lattice noise is added: the sensitivity is Delta + 2 tau +
sqrt(p) g for p numbers. Entries are clipped at a size far beyond what the point can reach, which never widens a
difference.

The public number of rows n counts the places for rows, of which some may be empty: a table of more than n rows is
refused, and neighbours have at most n each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..accounting import (
    SMALLEST_LAPLACE_LATTICE,
    Cost,
    Gaussian,
    Laplace,
    NormLaplace,
    ObjectivePerturbation,
    PureObjectivePerturbation,
)
from ..errors import InvalidParameter, require_nonnegative, require_positive
from ..exact import ceil_log2, require_moderate
from ..minimisers import EmpiricalRisk, Risk, certified_minimiser, require_minimiser
from ..noise import FARTHEST_DRAW
from ..problems import L2, LinearProblem
from ..relations import Norm, Sensitivity
from .questions import Noised, Point, Public, Question, Rows, noise_on_objective, noise_on_point
from .sources import Floats, Integers

OutputNoise = Gaussian | NormLaplace | Laplace

_RANGE_BITS, _NOISE_BITS = 60, 48  # a lattice that holds the point in 61 bits, and the noise in 52
_LEAST_NORM_LAPLACE = 2.0**25  # lattice steps in a norm-Laplace scale
_LEAST_LAPLACE = 2 * SMALLEST_LAPLACE_LATTICE
_ROUNDED = 18.0  # lattice steps by which a scale of noise is rounded up, at most
_COUPLING = 40.0  # lattice steps between a Gaussian and the discrete one made of it, but for 2^-280


@dataclass(frozen=True, eq=False)
class NoisyMinimiser(Question[Floats]):
    """The minimiser of a risk plus n times the penalty plus Lambda/2 |w|^2, with noise on top.

    With a cost of objective perturbation the objective has a random linear term b'w as well.

    Parameters
    ----------
    risk : Risk
        In the scale of n times a mean.
    strong_convexity : float
        Lambda. The strong convexity mu is Lambda plus n times the least curvature of the penalty, and must not be 0.
    cost : Cost
        What was paid: Gaussian, norm-Laplace or Laplace noise on the minimiser, or objective perturbation.
    tolerance : float, optional
        tau in units of the sensitivity of output perturbation, 1/256, or 1/64 for a risk with kinks, by default;
        it is raised to what can be certified for every table in floating point, and to 2^-20 (2^-10 with kinks).
    radius : float
        Minimise over B(0, R), and project the noisy point onto it.
    minimiser : str
        The method that is tried first, one of `dpdescent.minimisers.METHODS`.

    Notes
    -----
    **Privacy, output perturbation** One row moves the minimiser by at most V/mu (`dpdescent.minimisers.risks`), or
    across the ball in which all minimisers lie if that is less, and the computed point is certified to lie within tau
    of it. The projection is post-processing.

    **Privacy, objective perturbation** The exact minimiser has the guarantee of ``cost``
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
    norm-Laplace) mechanism given w, which is what ``cost`` composes. Penalties are public and do not enter.
    """

    risk: Risk
    strong_convexity: float
    cost: OutputNoise | ObjectivePerturbation | PureObjectivePerturbation
    tolerance: float | None = None
    radius: float = math.inf
    minimiser: str = "lbfgs"

    @property
    def label(self) -> str:  # type: ignore[override]
        """What the record of the ledger calls it."""
        return "minimiser" if isinstance(self.cost, OutputNoise) else "objective perturbation"

    def plan(self, public: Public) -> Point[Floats]:
        problem, rows, risk, cost, radius = public.problem, public.rows, self.risk, self.cost, self.radius
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
            cost,
            lattice.noised,
            find,
            lambda noisy: within_ball(noisy, radius),
            linear.noised(cost),
            problem.shape,
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
