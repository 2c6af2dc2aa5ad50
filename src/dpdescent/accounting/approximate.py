r"""Costs that are known as one pair (epsilon, delta) and have no Renyi curve: a filter adds up both numbers.

A mechanism that is (e, d)-DP fails with probability d and otherwise behaves as randomised response with parameter e
(Kairouz, Oh & Viswanath 2015), so it is charged as `PureDP` with a `delta` of its own.

**Advanced composition.** T adaptive mechanisms, each (e, d)-DP, are together (E, Td + d')-DP with

.. math:: E = \sqrt{2T\log(1/d')}\,e + T e (\exp(e) - 1)

for every e > 0 (Dwork, Rothblum & Vadhan 2010; Dwork & Roth 2014, Theorem 3.20), and (Te, Td)-DP. A batch that holds
each row with probability q turns (e, d) into (log(1 + q(exp(e) - 1)), qd) (Balle, Barthe & Gaboardi 2018).

**Objective perturbation.** Let w minimise F_D(w) + b'w, where F_D is a sum over rows plus a public quadratic with
all eigenvalues at least Lambda, and b ~ N(0, s^2 I). The gradient of F_D is Lipschitz and strongly monotone, so
b = -grad F_D(w) maps w one to one, and Lipschitz both ways. Such a map is differentiable except on a null set (where
a row sits at a jump of its second derivative), and the change of variables holds for it: for almost all w, the
log-density of w under D is log f(b) + log det(Hessian of F_D at w).

*Determinants.* A row adds a Hessian of rank r and trace at most h to one at least Lambda: the log-determinant grows
by at most J = r log(1 + h/(r Lambda)), by concavity, and never falls. So its change is at most J in size, under
zero-out (one row more or less) and under replace-one (from the common rows up with one, or up with the other).

*Densities.* Let g be the change of the row's gradient: b turns into b + g. Then log f(b) - log f(b + g) = (2 b'g +
|g|^2)/(2 s^2), which is convex in g. The gradient of a row x lies in the convex hull of 0 and c corners, all fixed
by the row (w moves its residuals alone): c = 1 for a loss of one margin that only falls or only rises, c = 2 if its
derivative changes sign, c = K - 1 for K classes. The maximum over a hull is attained at a corner, and at a corner g
is a constant, so that the term is the privacy loss of a Gaussian mechanism with mu = |g|/s. Summing instead of
maximising over the corners, the corner 0 included, with the row's corners at most C long,

.. math:: \delta(\varepsilon) \le G(0) + c\,G(\mu) \quad\text{(zero-out)}, \qquad
          G(0) + 2c\,G(\mu) + c^2\,G(2\mu) \quad\text{(replace-one)}, \qquad \mu = C/s,

where G(m) is the delta at epsilon - J of Gaussian DP with parameter sqrt(m^2 + m_o^2). Here m_o belongs to the
noise added to w afterwards, which covers that the minimiser was computed only approximately (Iyengar et al. 2019):
given the exact minimiser, what is released is that noise around a point within a public distance of it, so its loss
adds to that of w as in a composition of two Gaussian mechanisms. When a row is replaced the corners are differences
of one of the old row's, 0 included, and one of the new row's. For c = 1 under zero-out there is no factor 2 as there
is in Redberg, Koskela & Wang (2023), whose bound holds for gradients of either sign.

References
----------
Balle, B., Barthe, G. & Gaboardi, M. (2018). Privacy amplification by subsampling. arXiv:1807.01647.
Dwork, C., Rothblum, G. & Vadhan, S. (2010). Boosting and differential privacy. FOCS.
Iyengar, R. et al. (2019). Towards practical differentially private convex optimization. IEEE S&P.
Kairouz, P., Oh, S. & Viswanath, P. (2015). The composition theorem for differential privacy. arXiv:1311.0776.
Kifer, D., Smith, A. & Thakurta, A. (2012). Private convex empirical risk minimization and high-dimensional
regression. COLT.
Redberg, R., Koskela, A. & Wang, Y.-X. (2023). Improving the privacy and practicality of objective perturbation for
differentially private linear learners. arXiv:2401.00583.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import ClassVar

from scipy.optimize import brentq

from ..errors import (
    InvalidParameter,
    require_nonnegative,
    require_open_unit,
    require_positive,
    require_positive_integer,
)
from ..relations import Relation
from .conversions import gdp_to_delta, gdp_to_epsilon
from .costs import Cost, PureDP
from .divergences import PROFILE, above, below

_LARGEST_EPSILON = 700.0


class _Approximate(Cost):
    """An (epsilon, delta)-DP mechanism, charged as pure DP that may fail."""

    failure: float

    def _pure(self) -> PureDP:
        return PureDP(self.pure())

    def rdp(self, order: float) -> float:
        return self._pure().rdp(order)

    def zcdp(self) -> float:
        return self._pure().zcdp()

    def mu_squared(self) -> float:
        return self._pure().mu_squared()

    @property
    def delta(self) -> float:
        return self.failure


@dataclass(frozen=True)
class ApproximateDP(_Approximate):
    """Any mechanism that is (epsilon, failure)-DP."""

    kind: ClassVar[str] = "approximate"
    epsilon: float
    failure: float

    def __post_init__(self) -> None:
        self._settle(
            epsilon=require_positive("epsilon", self.epsilon), failure=require_open_unit("failure", self.failure)
        )

    def pure(self) -> float:
        return self.epsilon


@dataclass(frozen=True)
class AdvancedComposition(_Approximate):
    """``steps`` Gaussian mechanisms on random batches, put together by amplification and advanced composition.

    **Privacy** Valid for every epsilon and loose: a half of ``failure`` is spread over the steps, whose epsilon is
    the exact one of a Gaussian, and the other half pays for the composition. Batches are Poisson under zero-out and
    of fixed size without replacement under replace-one; the noise is a multiple of the sensitivity under that
    relation.
    """

    kind: ClassVar[str] = "advanced-composition"
    noise_multiplier: float
    rate: float
    steps: int
    failure: float

    def __post_init__(self) -> None:
        rate = require_positive("rate", self.rate)
        if rate > 1:
            raise InvalidParameter(f"rate must be at most 1, got {rate}: it is the share of rows in a batch")
        self._settle(
            noise_multiplier=require_positive("noise_multiplier", self.noise_multiplier),
            rate=rate,
            steps=require_positive_integer("steps", self.steps),
            failure=require_open_unit("failure", self.failure),
        )

    def pure(self) -> float:
        half = below(self.failure / 2, PROFILE)
        step_delta = min(half / (self.steps * self.rate), 0.5)
        whole = gdp_to_epsilon(above(1 / self.noise_multiplier, PROFILE), step_delta)
        # log(1 + q(e^x - 1)), without overflow; 1e-12 is charged where the noise is so large that epsilon would be
        # zero.
        if whole < _LARGEST_EPSILON:
            step = max(math.log1p(self.rate * math.expm1(whole)), 1e-12)
        else:
            step = whole + math.log(self.rate + (1 - self.rate) * math.exp(-whole))
        excess = step * math.expm1(step) if step < _LARGEST_EPSILON else math.inf
        advanced = math.sqrt(2 * self.steps * -math.log(half)) * step + self.steps * excess
        return above(min(advanced, self.steps * step), PROFILE)


@dataclass(frozen=True)
class ObjectivePerturbation(_Approximate):
    """The minimiser of an objective with a Gaussian linear term, released with Gaussian noise; see the module."""

    kind: ClassVar[str] = "objective-perturbation"
    #: s/C: deviation of the linear term over the longest gradient of a row, whatever the relation.
    noise_multiplier: float
    #: Deviation of the noise on the minimiser over its sensitivity: twice the tolerance, under both relations.
    output_multiplier: float
    log_determinant: float  # J, by how much one row can raise the log-determinant of the Hessian
    corners: int  # c, of the hull in which the gradients of a row lie
    relation: str
    failure: float  # delta

    def __post_init__(self) -> None:
        self._settle(
            noise_multiplier=require_positive("noise_multiplier", self.noise_multiplier),
            output_multiplier=require_positive("output_multiplier", self.output_multiplier),
            log_determinant=require_nonnegative("log_determinant", self.log_determinant),
            corners=require_positive_integer("corners", self.corners),
            relation=str(Relation.parse(self.relation)),
            failure=require_open_unit("failure", self.failure),
        )

    @property
    def relations(self) -> frozenset[Relation]:
        return frozenset({Relation(self.relation)})

    def delta_at(self, excess: float) -> float:
        """Return the delta at epsilon = J + ``excess``."""
        shift, corners = 1 / self.noise_multiplier, self.corners
        terms = [(0.0, 1), (shift, corners)]
        if Relation(self.relation) is Relation.REPLACE_ONE:
            terms = [(0.0, 1), (shift, 2 * corners), (2 * shift, corners**2)]
        output = 1 / self.output_multiplier
        deltas = [count * gdp_to_delta(above(math.hypot(mu, output), PROFILE), excess) for mu, count in terms]
        return above(sum(deltas), PROFILE)

    @cached_property
    def _epsilon(self) -> float:
        return above(self.log_determinant + _least_argument(self.delta_at, self.failure), PROFILE)

    def pure(self) -> float:
        return self._epsilon


@dataclass(frozen=True)
class PureObjectivePerturbation(PureDP):
    """Objective perturbation with norm-Laplace noise in the objective and on the minimiser (Chaudhuri et al. 2011).

    **Privacy** epsilon = J + |g|/b + what the noise on the minimiser costs: a change g of a row's gradient, at most C
    long under zero-out and 2C under replace-one, moves the log-density exp(-|b|/scale) by at most |g|/scale. As for
    `NormLaplace` each of the two noises may fail with a probability below 1e-27.

    Parameters
    ----------
    epsilon : float
    log_determinant : float
        J; less than epsilon.
    output_share : float
        The share of epsilon - J that pays for the noise on the minimiser.
    """

    kind: ClassVar[str] = "pure-objective-perturbation"
    log_determinant: float = 0.0
    output_share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        self._settle(
            log_determinant=require_nonnegative("log_determinant", self.log_determinant),
            output_share=require_open_unit("output_share", self.output_share),
        )
        if not 0 < self.epsilon - self.log_determinant <= 16:
            raise InvalidParameter(
                f"epsilon={self.epsilon:g} less the log-determinant {self.log_determinant:g} must lie in (0, 16]: "
                "regularise more, or use Gaussian noise"
            )

    @property
    def objective_epsilon(self) -> float:
        """What is left for the linear term."""
        return below((self.epsilon - self.log_determinant) * (1 - self.output_share), PROFILE)

    @property
    def output_epsilon(self) -> float:
        """What is left for the noise on the minimiser."""
        return below((self.epsilon - self.log_determinant) * self.output_share, PROFILE)

    @property
    def delta(self) -> float:
        return 2e-27


def _least_argument(decreasing: Callable[[float], float], target: float) -> float:
    """Return nearly the least x >= 0 with decreasing(x) <= target; infinite beyond 1e12."""
    if decreasing(0.0) <= target:
        return 0.0
    high = 1.0
    while decreasing(high) > target:
        high *= 2
        if high > 1e12:
            return math.inf
    floor = 1e-300
    least = float(
        brentq(lambda x: math.log(max(decreasing(x), floor)) - math.log(target), 0.0, high, xtol=1e-300, rtol=1e-13)
    )
    while decreasing(least) > target:
        least *= 1 + 1e-12
    return least
