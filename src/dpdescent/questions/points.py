r"""A minimiser with noise: objective perturbation and output perturbation.

These answers, and those of `dpdescent.questions.descents`, release a point w which one row can move by at most Delta
in the Euclidean norm, in real arithmetic. What is computed is w + e with an error e of at most a public tau, under
both neighbours, and it is rounded to a lattice of step g before lattice noise is added: the sensitivity is
Delta + 2 tau + sqrt(p) g for p numbers. Entries are cut at a size far beyond what the point can reach, which never
widens a difference.

The public number of rows n counts the places for rows, of which some may be empty: a table of more than n rows is
refused, and neighbours have at most n each.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian, Laplace, NormLaplace, ObjectivePerturbation, PureObjectivePerturbation
from ..accounting.costs import SMALLEST_LAPLACE_LATTICE
from ..curator import Curator
from ..errors import InvalidParameter, require_nonnegative, require_positive
from ..exact import LatticeSum, ceil_log2
from ..exact.grids import require_moderate
from ..ledger import Ledger
from ..mechanisms import LatticeNoise, Noise
from ..minimisers import EmpiricalRisk, GeneralObjective, Risk, certified_minimiser, require_minimiser
from ..problems import L2
from ..relations import Norm, Relation, Sensitivity

__all__ = ["noisy_minimiser", "perturbed_minimiser", "within_ball"]

Floats = NDArray[np.float64]
OutputNoise = Gaussian | NormLaplace | Laplace

_RANGE_BITS, _NOISE_BITS = 60, 48  # a lattice that holds the point in 61 bits, and the noise in 52
_LEAST_NORM_LAPLACE = 2.0**25  # lattice steps in a norm-Laplace scale
_LEAST_LAPLACE = 2 * SMALLEST_LAPLACE_LATTICE
_COUPLING = 40.0  # lattice steps between a Gaussian and the discrete one made of it, but for 2^-280


def noisy_minimiser(
    curator: Curator,
    risk: Risk,
    strong_convexity: float,
    cost: OutputNoise | ObjectivePerturbation | PureObjectivePerturbation,
    *,
    tolerance: float | None = None,
    radius: float = math.inf,
    minimiser: str = "lbfgs",
) -> Floats:
    """Return the minimiser of a risk plus n times the penalty plus Lambda/2 |w|^2, with noise on top.

    With a cost of objective perturbation the objective has a random linear term b'w as well.

    Parameters
    ----------
    curator : Curator
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
    problem, rows = curator.problem, curator.rows
    linear = _LinearNoise.of(problem.shape, risk, cost)
    quadratic = rows * _penalty(curator) + require_nonnegative("strong_convexity", strong_convexity)
    mu = _convexity(quadratic)
    _require_moderate(mu, risk.gradient_bound(1), radius)
    farthest = min(risk.farthest(rows, mu, linear.norm), radius)
    if farthest > risk.radius:
        raise InvalidParameter(
            f"the bounds of this risk hold up to a norm of {risk.radius:.4g}, and minimisers may have one of "
            f"{farthest:.4g}: minimise it over that ball"
        )
    smooth = risk.smoothness(rows) < math.inf
    require_minimiser(minimiser, smooth=smooth, rows=risk.sum_over_rows, hinge=risk.hinge)
    curvature = float(np.max(quadratic))
    reachable = risk.reachable(rows, problem.grid.dimension, mu, curvature, linear.norm, radius)
    if isinstance(cost, OutputNoise):
        moved = min(risk.variation(rows, curator.relation) / mu, 2 * farthest)
        distance = max(_share(tolerance, smooth) * moved, reachable)
        sensitivity = moved + 2 * distance
    else:
        distance = max(2.0**-44 * risk.gradient_bound(rows) / mu, reachable)
        sensitivity = 2 * (distance + _COUPLING * math.sqrt(math.prod(problem.shape)) * linear.unit / mu)
    largest = farthest + distance
    output = _Lattice.of(problem.shape, sensitivity, largest, cost)
    # Both noises can be drawn: now pay.
    _require_rows(curator)
    curator._charge(cost, "minimiser" if isinstance(cost, OutputNoise) else "objective perturbation")
    random = linear.draw(curator, cost)
    objective = risk.objective(curator._source, problem.grid, curator._row_norms(), quadratic, random)
    with np.errstate(all="ignore"):
        point = certified_minimiser(objective, mu, distance, minimiser, radius)
    return within_ball(output.release(curator._noise, point, cost, curator.relation), radius)


def perturbed_minimiser(
    objective: GeneralObjective,
    ledger: Ledger,
    cost: OutputNoise,
    *,
    tolerance: float | None = None,
    radius: float = math.inf,
    minimiser: str | None = None,
    noise: Noise | None = None,
) -> Floats:
    """Return the minimiser of any strongly convex function of the rows, with noise, and projected onto B(0, R).

    Parameters
    ----------
    objective : GeneralObjective
        F with its constants, which must hold for every table: nothing here can check them.
    ledger : Ledger
        Charged with ``cost`` before F is evaluated.
    cost : Gaussian, NormLaplace or Laplace
    tolerance : float, optional
        tau in units of the sensitivity, 1/256, or 1/16 for an F with kinks, by default; it is raised to what the
        errors of F allow to certify.
    radius : float
        R. The minimiser over B(0, R) is what is released.
    minimiser : str, optional
        "lbfgs" or "agd" for a smooth function, "subgradient" for any.
    noise : Noise, optional

    Notes
    -----
    **Privacy** One row moves the minimiser by at most V/mu, V the ``variation`` of the objective
    (`dpdescent.minimisers.risks`), under either relation if V holds for it; the computed point is certified to lie
    within tau of it, given the bounds on the errors of F that the objective promises.
    """
    smooth, mu = objective.smoothness < math.inf, objective.strong_convexity
    minimiser = minimiser or ("lbfgs" if smooth else "subgradient")
    require_minimiser(minimiser, smooth=smooth, rows=False)
    _require_moderate(mu, objective.lipschitz, radius)
    moved = objective.variation / mu
    size = min(radius, 2 * objective.lipschitz / mu)
    value_error, gradient_error = objective.errors
    if smooth:
        beta = objective.smoothness
        reachable = 4 * (gradient_error / mu + 2.0**-44 * (beta / mu * size + objective.lipschitz / mu))
    else:
        gap = 2 * value_error + 4 * gradient_error * objective.lipschitz / mu
        steep = (objective.lipschitz + mu * size) * size
        # The last term: T = 4 L^2/(mu tau)^2 cuts are added up, with an error of 2^-49 T of their sizes.
        reachable = 4 * math.sqrt(2 * (gap + 2.0**-40 * steep) / mu)
        reachable += math.sqrt(math.sqrt(2.0**-42 * (objective.lipschitz + mu * size) ** 2 * steep / mu**3))
    distance = max(_share(tolerance, smooth, 16) * moved, reachable)
    largest = (radius if radius < math.inf else objective.lipschitz / mu) + distance
    output = _Lattice.of(objective.shape, moved + 2 * distance, largest, cost)
    ledger.spend(cost, "minimiser")
    with np.errstate(all="ignore"):
        point = certified_minimiser(objective, mu, distance, minimiser, radius)
    return within_ball(output.release(noise or LatticeNoise(), point, cost, ledger.relation), radius)


@dataclass(frozen=True)
class _LinearNoise:
    """The random linear term of objective perturbation: its lattice, and a bound that its norm exceeds never."""

    clip: float
    unit: float
    norm: float
    shape: tuple[int, ...]

    @classmethod
    def of(cls, shape: tuple[int, ...], risk: Risk, cost: object) -> _LinearNoise:
        if isinstance(cost, OutputNoise):
            return cls(0.0, 0.0, 0.0, shape)
        if not isinstance(risk, EmpiricalRisk) or risk.hinge:
            raise InvalidParameter(
                "objective perturbation is about sums of smooth losses: perturb the output instead"
            )
        root = math.sqrt(math.prod(shape))
        pure = isinstance(cost, PureObjectivePerturbation)
        scale = 2 * (17 + root) / cost.objective_epsilon if pure else cost.noise_multiplier  # type: ignore[attr-defined]
        unit = 2.0 ** (ceil_log2(risk.clip) - min(36, 50 - ceil_log2(max(scale, 1.0))))
        return cls(risk.clip, unit, 10 * scale * risk.clip * root, shape)  # exceeded with probability below 1e-22

    def draw(self, curator: Curator, cost: object) -> Floats:
        nothing = np.zeros(self.shape, dtype=np.int64)
        if isinstance(cost, PureObjectivePerturbation):
            whole = LatticeSum(nothing, self.unit, Sensitivity(Norm.L2, self.clip, 2 * self.clip))
            return curator._noise.norm_laplace(whole, NormLaplace(cost.objective_epsilon), curator.relation)
        if isinstance(cost, ObjectivePerturbation):
            whole = LatticeSum(nothing, self.unit, Sensitivity(Norm.L2, self.clip, self.clip))
            return curator._noise.gaussian(whole, Gaussian(cost.noise_multiplier), curator.relation)
        return np.zeros(self.shape)


def _noise_on_top(cost: object) -> Gaussian | NormLaplace | Laplace:
    """Return the noise that a cost pays for on the point itself."""
    if isinstance(cost, ObjectivePerturbation):
        return Gaussian(cost.output_multiplier)
    if isinstance(cost, PureObjectivePerturbation):
        return NormLaplace(cost.output_epsilon)
    return cost if isinstance(cost, OutputNoise) else Gaussian(cost.noise_multiplier)  # type: ignore[attr-defined]


@dataclass(frozen=True)
class _Lattice:
    """A lattice for a point of known sensitivity, on which the noise of a cost can be drawn."""

    unit: float
    limit: float
    sensitivity: float
    norm: Norm = Norm.L2

    @classmethod
    def of(cls, shape: tuple[int, ...], sensitivity: float, largest: float, cost: object) -> _Lattice:
        root, paid = math.sqrt(math.prod(shape)), _noise_on_top(cost)
        norm, finest = Norm.L2, 0.0
        if isinstance(paid, NormLaplace):
            scale, finest = 2 * (17 + root) / paid.epsilon, _LEAST_NORM_LAPLACE * paid.epsilon
        elif isinstance(paid, Laplace):  # every coordinate by itself: |z|_1 <= sqrt(p) |z|_2
            norm, scale, finest = Norm.L1, 2 / paid.epsilon, _LEAST_LAPLACE * paid.epsilon
            sensitivity *= root
        else:
            scale = paid.noise_multiplier
        size = max(largest * 2.0**-_RANGE_BITS, sensitivity * scale * 2.0**-_NOISE_BITS)
        unit = 2.0 ** ceil_log2(size)
        rounding = root * unit if norm is Norm.L2 else root**2 * unit
        return cls(unit, largest, max((sensitivity + rounding) * (1 + 2.0**-40), finest * unit), norm)

    def place(self, point: Floats) -> LatticeSum:
        inside = np.clip(np.nan_to_num(point), -self.limit, self.limit)
        values = np.rint(inside / self.unit).astype(np.int64)
        return LatticeSum(values, self.unit, Sensitivity(self.norm, self.sensitivity, self.sensitivity))

    def release(self, noise: Noise, point: Floats, cost: object, relation: Relation) -> Floats:
        placed, paid = self.place(point), _noise_on_top(cost)
        if isinstance(paid, NormLaplace):
            return noise.norm_laplace(placed, paid, relation)
        if isinstance(paid, Laplace):
            return noise.laplace(placed, paid, relation)
        return noise.gaussian(placed, paid, relation)


def within_ball(point: Floats, radius: float) -> Floats:
    """Return the point of B(0, R) nearest to a released one."""
    return point / max(1.0, float(np.linalg.norm(point)) / radius) if radius < math.inf else point


def _share(given: float | None, smooth: bool, kinks: int = 64) -> float:
    """Return the tolerance in units of the sensitivity."""
    if given is None:
        return 1 / (256 if smooth else kinks)
    return max(require_positive("tolerance", given), 2.0**-20 if smooth else 2.0**-10)


def _require_moderate(strong_convexity: float, gradient: float, radius: float) -> None:
    """Refuse constants with which squares of lengths could over- or underflow, and certificates with them."""
    require_moderate("strong_convexity", strong_convexity)
    require_moderate("the longest gradient of a row", gradient)
    if radius != math.inf:
        require_moderate("radius", radius)


def _convexity(quadratic: Floats) -> float:
    mu = float(np.min(quadratic))
    if not mu > 0:
        raise InvalidParameter(
            "the objective is not strongly convex, so one row may move its minimiser by any distance: give a "
            "positive strong_convexity, or leave it out for the rule"
        )
    return mu


def _penalty(curator: Curator) -> Floats:
    """Return the diagonal of the penalty's Hessian; it must be the same everywhere."""
    problem = curator.problem
    if not isinstance(problem.penalty, L2):
        raise InvalidParameter("this method needs a convex quadratic penalty: use L2")
    return problem.penalty_curvature(np.zeros(problem.shape))


def _require_rows(curator: Curator) -> None:
    if curator._row_norms().shape[0] > curator.rows:
        raise InvalidParameter("the table has more rows than the public number of them: pass their true number")
