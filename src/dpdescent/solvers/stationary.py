r"""What descent to a second-order point can promise, from public numbers alone.

A point is an (e_g, e_H) point if the gradient is at most e_g long and no curvature is below -e_H. With a G-Lipschitz
gradient and an M-Lipschitz Hessian, and noise of at most

.. math:: |\varepsilon| \le \min(c_1 e_g,\, c_2 e_H^2/M), \qquad \|E\| \le c\,e_H

on every gradient and Hessian, a step lowers the objective by at least (`Tolerances.least_decrease`)

- short steps, 1/G along the gradient and 2|lambda|/M along the lowest curvature:
  min{(1 - 2 c_1) e_g^2/(2G), 2 (1/3 - c_2 - c) e_H^3/M^2};
- searched steps, at least 2 (1 - c_1 - c_g)/G and t_2 |lambda|/M, of sufficient decrease c_g and c_H:
  min{(1 - c_1 - c_g) c_g e_g^2/G, c_H t_2^2 e_H^3/(4 M^2)},

so that T = (f(w_0) - 0)/decrease steps lead to a ((1 + c_1) e_g, (1 + c) e_H) point. t_1 < t_2 are the roots of
-t^2/6 + (1 - c - c_H) t/2 - c_2, which are real where c_H <= 1 - c - sqrt(8 c_2/3): the square root is missing in the
paper. Noise falls with the number of rows, so there is a least one for which all this holds, up to a probability of
failure that is divided evenly among all answers (`Tolerances.minimum_rows`):

- a Gaussian gradient is long with the probability of the chi distribution;
- noise that is isotropic on symmetric matrices, of deviation s on the diagonal, is longer than s (sqrt(2d) + t) in
  the spectral norm with probability at most 2 exp(-t^2/2): its mean is at most s sqrt(2d) at either end (Davidson &
  Szarek 2001), and the spectral norm is 1-Lipschitz in the Frobenius norm;
- a search is wrong by its noise: an accepted step a lowers the objective by its demand less s(a) z, half of the
  demand at the worst, because the sensitivity s(a) is proportional to a;
- the mean over a batch of m rows is off by (B_g/sqrt(m)) (1 + 2 sqrt(log(1/p))) (Gross 2011), a Hessian by
  B_H sqrt(8 log(2d/p)/(3m)) (matrix Bernstein), and half of the allowance is left for either.

**Default constants** With e_H = sqrt(M e_g) the allowances of a gradient are c_1 e_g and c_2 e_g, so c_1 = c_2. The
least number of rows is proportional to 1/(c_1 sqrt(1 - 2 c_1)), which falls until 1/3, but c_2 + c must stay below
1/3 with room for the decrease along a curvature: c_1 = c_2 = 1/5 and c = 1/20. c_g = (1 - c_1)/2 and c_H maximise the
decrease of a search.

**Noise levels** `make_levels` returns the least noise that the budget of a phase pays for. The paper's is larger
(``rho``): T answers of either kind under rho-zCDP, for neighbours that differ in a row,

.. math:: \sigma_g^2 = \sigma_H^2 = T/\rho, \qquad \Delta_g = 2 B_g/n, \qquad \Delta_H = 2 B_H \sqrt d/n,

with 3 T/(2 rho) in place of T/rho where steps are searched.

References
----------
Davidson, K. & Szarek, S. (2001). Local operator theory, random matrices and Banach spaces.
Differentially private optimization for smooth non-convex ERM (2022).
Gross, D. (2011). Recovering low-rank matrices from few coefficients in any basis. arXiv:0910.1879.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache, partial
from typing import Annotated

from scipy.optimize import brentq, minimize_scalar
from scipy.stats import chi, norm

from ..accounting import AboveThreshold, Cost, Currency, Gaussian, strongest
from ..curator import Sampling, batch_cost
from ..errors import InvalidParameter, UnsupportedCost, require_open_unit, require_positive
from ..problems import LinearProblem
from ..relations import Relation
from .backtracking import search_noise
from .method import Part, Within, require_domains

_LEAST_DECREASE = 2.0**-1000
_MOST_STRENGTH = 2.0**30  # more budget would not improve anything


@dataclass(frozen=True)
class Bounds:
    """Public constants of an objective: what the analysis calls G, M, B_g, B_H, and what one row can change."""

    dimension: int
    #: G and M, penalty included.
    smoothness: float
    hessian_lipschitz: float
    #: B_g and B_H, of one row's loss.
    gradient: float
    hessian: float
    #: By how much one row moves a sum of gradients, hence one of loss changes along a step of length 1, and a sum of
    #: Hessians (in the Frobenius norm).
    gradient_change: float
    hessian_change: float

    @classmethod
    def of(cls, problem: LinearProblem, relation: Relation, rows_per_unit: int = 1) -> Bounds:
        """Return the bounds of a problem, from those of its rows, loss and penalty, and of the rows of a unit."""
        loss, penalty = problem.loss, problem.penalty
        if loss.outputs > 1 or not math.isfinite(loss.lipschitz * loss.curvature_lipschitz):
            raise UnsupportedCost(
                "second-order points need a loss of one margin with bounded first, second and third derivatives: "
                "use the logistic or the sigmoid loss"
            )
        return cls(
            problem.grid.dimension,
            problem.smoothness + penalty.smoothness,
            problem.hessian_lipschitz + penalty.curvature_lipschitz,
            problem.gradient_bound,
            problem.smoothness,
            rows_per_unit * problem.gradient_sensitivity(relation),
            rows_per_unit * problem.hessian_sensitivity(relation),
        )


@dataclass(frozen=True)
class Constants:
    """The constants of the analysis; see the module for the defaults."""

    #: c_1, c_2 and c: how much of a tolerance noise may take.
    gradient_noise: Part = 1 / 5
    curvature_gradient_noise: Part = 1 / 5
    curvature_noise: Part = 1 / 20
    #: c_g and c_H: the share of the expected decrease that a search asks for.
    gradient_decrease: float | None = None
    curvature_decrease: float | None = None
    #: b_g and b_H: how many times longer than the fall-back step the longest one is.
    stretch: Annotated[float, Within(1, closed="neither")] = 64.0
    curvature_stretch: Annotated[float, Within(1, closed="neither")] = 4.0
    #: beta_g, the ratio of a step to the one before. beta_H is the larger of it and of (1 + t_1/t_2)/2.
    backtrack: Part = 0.5

    def __post_init__(self) -> None:
        c1, c2, c = self.gradient_noise, self.curvature_gradient_noise, self.curvature_noise
        require_domains(self)
        if not (c1 < 1 / 2 and c2 + c < 1 / 3):
            raise InvalidParameter(
                "gradient_noise < 1/2 and curvature_gradient_noise + curvature_noise < 1/3 must hold"
            )
        most = 1 - c - math.sqrt(8 * c2 / 3)
        if self.gradient_decrease is None:
            object.__setattr__(self, "gradient_decrease", (1 - c1) / 2)
        if self.curvature_decrease is None:
            object.__setattr__(self, "curvature_decrease", _best_curvature_decrease(c, c2, most))
        if not (0 < self.asked_gradient < 1 - c1 and 0 < self.asked_curvature < most):
            raise InvalidParameter(
                f"gradient_decrease must lie in (0, {1 - c1:.4g}) and curvature_decrease in (0, {most:.4g})"
            )

    @property
    def asked_gradient(self) -> float:
        """c_g."""
        return float(self.gradient_decrease or 0.0)

    @property
    def asked_curvature(self) -> float:
        """c_H."""
        return float(self.curvature_decrease or 0.0)

    @property
    def roots(self) -> tuple[float, float]:
        """t_1 and t_2: steps t |lambda|/M between them are accepted by an exact search."""
        return _roots(self.curvature_noise, self.curvature_gradient_noise, self.asked_curvature)

    @property
    def gradient_ratios(self) -> tuple[float, ...]:
        """Steps along a gradient, as multiples of the fall-back step, from long to short."""
        return _ladder(self.stretch, self.backtrack)

    @property
    def curvature_ratios(self) -> tuple[float, ...]:
        """Steps along a curvature, as multiples of the fall-back step, from long to short."""
        first, second = self.roots
        return _ladder(self.curvature_stretch, max(self.backtrack, (1 + first / second) / 2))


def _roots(c: float, c2: float, c_h: float) -> tuple[float, float]:
    middle = 1.5 * (1 - c - c_h)
    spread = 3 * math.sqrt(max((1 - c - c_h) ** 2 / 4 - 2 * c2 / 3, 0.0))
    return middle - spread, middle + spread


@lru_cache(maxsize=16)
def _best_curvature_decrease(c: float, c2: float, most: float) -> float:
    """Return the c_H with the largest c_H t_2^2."""
    found = minimize_scalar(lambda c_h: -c_h * _roots(c, c2, c_h)[1] ** 2, bounds=(0.0, most), method="bounded")
    return float(found.x)


def _ladder(stretch: float, ratio: float) -> tuple[float, ...]:
    """Return stretch, stretch * ratio, ... down to the last that is not below 1."""
    return tuple(stretch * ratio**j for j in range(math.floor(math.log(stretch) / -math.log(ratio) + 1e-9) + 1))


def count_steps(objective: float, decrease: float) -> int:
    """Return how many steps of that decrease can be taken from an objective, which is never below 0.

    It is limited to 10^18, which no run reaches, so that the plan is finite for any settings.
    """
    return max(1, math.ceil(min(objective / max(decrease, _LEAST_DECREASE), 1e18)))


@dataclass(frozen=True)
class Levels:
    """How noisy the answers of a phase are, and for how many of them it can pay."""

    steps: int
    gradient: Gaussian
    hessian: Gaussian
    make_search: Callable[[], AboveThreshold] | None

    @cached_property
    def search(self) -> AboveThreshold | None:
        """The noise of a search: slow to find, and not every plan is carried out."""
        return self.make_search() if self.make_search is not None else None


@dataclass(frozen=True)
class Tolerances:
    """What is asked for, and how: everything from which the number of steps and of rows follows."""

    bounds: Bounds
    constants: Constants
    #: e_g and e_H.
    gradient: float
    curvature: float
    search: bool = False  # whether steps are searched
    rate: float = 1.0  # share of the rows in a batch
    failure: float = 0.05  # probability that the promise is not kept

    def __post_init__(self) -> None:
        require_positive("gradient_tolerance", self.gradient)
        require_positive("curvature_tolerance", self.curvature)
        require_open_unit("failure", self.failure)

    @property
    def gradient_step(self) -> float:
        """The short step along a gradient, or the one a search falls back to."""
        constants = self.constants
        factor = 2 * (1 - constants.gradient_noise - constants.asked_gradient) if self.search else 1.0
        return factor / self.bounds.smoothness

    @property
    def curvature_step(self) -> float:
        """The same along a curvature of -1."""
        return (self.constants.roots[1] if self.search else 2.0) / self.bounds.hessian_lipschitz

    @property
    def least_decrease(self) -> float:
        """By how much a step lowers the objective at least: MIN_DEC."""
        constants, smoothness = self.constants, self.bounds.smoothness
        cubic = self.curvature**3 / self.bounds.hessian_lipschitz**2
        c1, c2, c = constants.gradient_noise, constants.curvature_gradient_noise, constants.curvature_noise
        if self.search:
            ask, ask_curvature = constants.asked_gradient, constants.asked_curvature
            along_gradient = (1 - c1 - ask) * ask * self.gradient**2 / smoothness
            return min(along_gradient, ask_curvature * constants.roots[1] ** 2 * cubic / 4)
        return min((1 - 2 * c1) * self.gradient**2 / (2 * smoothness), 2 * (1 / 3 - c2 - c) * cubic)

    def steps(self, objective: float) -> int:
        """Return T: as many steps as can be taken from a point of that objective, which is never below 0."""
        return count_steps(objective, self.least_decrease)

    # How many rows it takes ------------------------------------------------------------------------------------

    def needs(self, steps: int) -> tuple[float, float]:
        """Return by what to multiply the noise multipliers of gradient and Hessian to get the rows they need."""
        bounds, chance = self.bounds, self._chance(steps)
        room = (1.0 if self.rate == 1 else 0.5) * self.rate
        long = float(chi.isf(chance, bounds.dimension))
        wide = math.sqrt(2 * bounds.dimension) + math.sqrt(2 * math.log(2 / chance))
        return (
            bounds.gradient_change * long / (self._gradient_allowance * room),
            bounds.hessian_change * wide / (self.constants.curvature_noise * self.curvature * room),
        )

    def search_needs(self, steps: int, search: AboveThreshold) -> float:
        """Return how many rows a search needs to find steps that lower the objective enough."""
        constants, bounds, chance = self.constants, self.bounds, self._chance(steps)
        queries = search.max_queries
        if search.noise == "gaussian":
            error = math.hypot(search.query_scale, search.threshold_scale) * float(norm.isf(chance / queries))
        else:
            error = (search.query_scale + search.threshold_scale) * math.log((queries + 1) / (2 * chance))
        along_gradient = 2 / (constants.asked_gradient * self.gradient)
        lowest = constants.asked_curvature * constants.roots[1] * self.curvature**2 / bounds.hessian_lipschitz
        return bounds.gradient_change * error * max(along_gradient, 4 / lowest)

    def batch_needs(self, steps: int) -> float:
        """Return how many rows make batches large enough; 1 where there are none."""
        if self.rate == 1:
            return 1.0
        bounds, log = self.bounds, -math.log(self._chance(steps))
        gradient = 2 * bounds.gradient * (1 + 2 * math.sqrt(log)) / self._gradient_allowance
        allowance = self.constants.curvature_noise * self.curvature
        log_matrix = log + math.log(2 * bounds.dimension)
        return max(gradient**2, 4 * bounds.hessian**2 * 8 / 3 * log_matrix / allowance**2) / self.rate

    def minimum_rows(self, levels: Levels) -> int:
        """Return n_min: for how many rows, at this noise, the promise holds."""
        gradient, curvature = self.needs(levels.steps)
        rows = [gradient * levels.gradient.noise_multiplier, curvature * levels.hessian.noise_multiplier]
        if levels.search is not None:
            rows.append(self.search_needs(levels.steps, levels.search))
        return math.ceil(max(*rows, self.batch_needs(levels.steps)))

    @property
    def _gradient_allowance(self) -> float:
        constants = self.constants
        by_curvature = constants.curvature_gradient_noise * self.curvature**2 / self.bounds.hessian_lipschitz
        return min(constants.gradient_noise * self.gradient, by_curvature)

    def _chance(self, steps: int) -> float:
        """Return the probability of failure of one answer: two per check, one per step, and the loss at the start."""
        return self.failure / (3 * steps + 3)


def tightest(promise: Callable[[float], float], rows: int, largest: float) -> float:
    """Return the least tolerance a for which the promise takes at most ``rows`` rows, or the largest there is.

    ``promise`` returns the rows that a tolerance takes; it falls with the tolerance.
    """

    def excess(log: float) -> float:
        return math.log(promise(math.exp(log)) / rows)

    high, low = math.log(largest), math.log(largest * 1e-6)
    if excess(high) >= 0:
        return largest
    if excess(low) <= 0:
        return math.exp(low)
    return math.exp(brentq(excess, low, high, xtol=1e-3)) * 1.001


@lru_cache(maxsize=16)  # a run asks for the same plan when it checks, promises and starts
def make_levels(
    tolerances: Tolerances,
    currency: Currency,
    relation: Relation,
    amount: float,
    steps: int,
    *,
    same_batch: bool,
    rho: float | None = None,
) -> Levels:
    """Return the noise with which ``amount`` pays for that many steps and for one check more than steps.

    Gradient and Hessian share what is not for the search, in the proportion at which both need the same number of
    rows: a need is proportional to the noise multiplier, whose inverse square is what is paid for. The search gets a
    quarter. With a ``rho`` the noise on gradients and Hessians of all rows is that of the paper, or more by a common
    factor where the amount does not pay for it.
    """
    gradient_need, hessian_need = tolerances.needs(steps)
    ratio = hessian_need / gradient_need
    share = 1 / (1 + ratio * ratio)
    rate, searched = tolerances.rate, 0.25 if tolerances.search else 0.0
    check = (1 - searched) * amount / (steps + 1)

    def gaussian(amount: float) -> Gaussian:
        return _strongest(lambda noise: batch_cost(relation, rate, noise), amount, currency)

    if rho is not None and rate == 1:
        printed = _paper_multipliers(tolerances, steps, rho)

        def together(part: Gaussian) -> Cost:
            return batch_cost(relation, rate, *(Gaussian(part.noise_multiplier * each) for each in printed))

        factor = max(1.0, _strongest(together, check, currency).noise_multiplier)
        gradient, hessian = (Gaussian(factor * each) for each in printed)
    elif same_batch and rate < 1:
        weights = math.sqrt(share), math.sqrt(1 - share)

        def both(part: Gaussian) -> Cost:
            return batch_cost(relation, rate, *(Gaussian(part.noise_multiplier / weight) for weight in weights))

        joint = _strongest(both, check, currency)
        gradient, hessian = (Gaussian(joint.noise_multiplier / weight) for weight in weights)
    else:
        gradient, hessian = gaussian(share * check), gaussian((1 - share) * check)
    if not tolerances.search:
        return Levels(steps, gradient, hessian, None)
    queries = max(len(tolerances.constants.gradient_ratios), len(tolerances.constants.curvature_ratios))
    search = partial(search_noise, Sampling(relation, 1), searched * amount / steps, currency, queries)
    return Levels(steps, gradient, hessian, search)


def _paper_multipliers(tolerances: Tolerances, steps: int, rho: float) -> tuple[float, float]:
    """Return the paper's noise multipliers of gradient and Hessian for a phase under rho-zCDP."""
    bounds, parts = tolerances.bounds, 1.5 if tolerances.search else 1.0
    deviation = math.sqrt(parts * steps / rho)
    gradient = deviation * 2 * bounds.gradient / bounds.gradient_change
    return gradient, deviation * 2 * bounds.hessian * math.sqrt(bounds.dimension) / bounds.hessian_change


def zcdp_of(epsilon: float, delta: float) -> float:
    """Return the rho for which rho + 2 sqrt(rho log(1/delta)) is epsilon."""
    log = -math.log(delta)
    return (epsilon / (math.sqrt(epsilon + log) + math.sqrt(log))) ** 2


def _strongest(charged: Callable[[Gaussian], Cost], amount: float, currency: Currency) -> Gaussian:
    """Return the least Gaussian noise for which the charge is at most ``amount``."""
    return strongest(lambda strength: Gaussian(1 / strength), charged, amount, currency, _MOST_STRENGTH)
