"""The noise of output perturbation: what a budget pays for, and the strong convexity that it asks for.

The rules for tilted and adversarial objectives are told in `dpdescent.solvers.output_perturbation`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from ..accounting import Gaussian, Laplace, NormLaplace, gaussian_tail_constant, loose_noise_multiplier
from ..curator import Curator
from ..errors import require_positive, require_positive_integer
from ..minimisers import RobustRisk
from ..relations import Relation
from .rules import PAYABLE, Facts, clip_multiple

if TYPE_CHECKING:
    from .output_perturbation import OutPertSettings as Settings

Noise = Gaussian | NormLaplace | Laplace

_LARGEST_EPSILON = 16.0  # norm-Laplace noise was checked up to this epsilon
_NOISE_SHARE, _BALL_SHARE = 0.05, 1 / 3  # of a ball: chosen on Adult
# Exponents of the largest weight of a row: below the first a tilt changes next to nothing; none exceeds the last.
_HARMLESS_TILT, _LARGEST_TILT_EXPONENT = 0.05, 100.0


def affordable_noise(curator: Curator, settings: Settings) -> Noise:
    """Return the noise that the rest of the budget pays for."""
    left, facts = curator.remaining, Facts.of(curator)
    if curator.ledger.currency.name == "pure":
        return NormLaplace(min(left, _LARGEST_EPSILON)) if facts.delta > 0 else Laplace(left)
    if settings.sigma == "paper":
        return Gaussian(loose_noise_multiplier(facts.epsilon, facts.delta))
    return curator.ledger.currency.gaussian(left)


def noise_for(curator: Curator, amount: float) -> Gaussian | Laplace:
    """Return the noise that an amount pays for."""
    currency, share = curator.ledger.currency, amount * PAYABLE
    return Laplace(share) if currency.name == "pure" else currency.gaussian(share)


def _noise_without(curator: Curator, settings: Settings, reserved: float) -> Noise:
    """Return the noise that the rest of the budget pays for, without what is reserved."""
    whole = affordable_noise(curator, settings)
    if not reserved:
        return whole
    left = curator.remaining - reserved
    if isinstance(whole, Gaussian):
        return curator.ledger.currency.gaussian(left)
    return type(whole)(min(left, whole.epsilon))


def noise_deviation(cost: Noise, parameters: int) -> float:
    """Return the standard deviation of the noise in a weight over the sensitivity."""
    if isinstance(cost, Gaussian):
        return cost.noise_multiplier
    if isinstance(cost, NormLaplace):
        return math.sqrt(parameters + 1) / cost.epsilon
    return math.sqrt(2 * parameters) / cost.epsilon


def row_bound_rule(richness: float, length: float) -> float:
    """Return B for k effective rows per weight and rows of that typical length."""
    return clip_multiple(richness, 0.1, 0.4) * length


def score_noise(richness: float) -> float:
    """Return r, by how much the noise may move the score of a typical row."""
    return min(0.8, 1.6 * math.pow(richness, -0.3))


def regularisation(
    *,
    lipschitz: float,
    radius: float,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    rows: int | None = None,
    smoothness: float = math.inf,
    population: bool = False,
) -> float:
    """Return the lambda that the paper adds to a merely convex objective (Theorems 3.4 and 3.5, Section 4)."""
    price = price_of_privacy(dimension, epsilon, delta, rows)
    statistical = 1 / math.sqrt(rows) if population and rows is not None else 0.0
    if smoothness == math.inf:
        if population:
            return lipschitz / radius * (math.sqrt(price) + statistical)
        return lipschitz / radius / math.sqrt(1 + 1 / price)
    return math.cbrt(smoothness * (lipschitz / radius) ** 2) * (math.cbrt(price**2) + statistical)


def price_of_privacy(dimension: int, epsilon: float, delta: float, rows: int | None) -> float:
    r"""Return x, the paper's price of privacy, for a mean over ``rows`` rows or a function that is no mean (n = 1).

    .. math:: x = \frac{d}{\varepsilon n} \quad(\delta = 0), \qquad
              x = \frac{\sqrt d\,(c_\delta + \sqrt{c_\delta^2 + \varepsilon})}{\varepsilon n} \quad (\delta > 0).
    """
    epsilon = require_positive("epsilon", epsilon) * (1 if rows is None else require_positive_integer("rows", rows))
    weights = require_positive_integer("dimension", dimension)
    if delta == 0:
        return weights / epsilon
    constant = gaussian_tail_constant(delta)
    alone = epsilon / (rows or 1)
    return math.sqrt(weights) * (constant + math.sqrt(constant**2 + alone)) / epsilon


@dataclass(frozen=True, eq=False)
class RobustRules:
    """The noise, the rows and the strong convexity of a run, by the rules above or as they are given.

    ``noise`` is that in a weight in units of the sensitivity, ``richness`` is k, ``length`` that of a typical row.
    """

    facts: Facts
    relation: Relation
    settings: Settings
    cost: Noise
    noise: float
    richness: float
    length: float
    risk: RobustRisk

    @classmethod
    def for_rows(
        cls, curator: Curator, settings: Settings, risk: RobustRisk, length: float, reserved: float
    ) -> RobustRules:
        """Return the rules for what is left of a curator's budget without what is reserved."""
        facts, cost = Facts.of(curator), _noise_without(curator, settings, reserved)
        noise = noise_deviation(cost, facts.parameters)
        richness = facts.rows / (facts.change * noise * facts.parameters)
        rule = length if settings.paper else row_bound_rule(richness, length)
        risk = replace(risk, row_bound=min(settings.row_bound or rule, risk.row_bound))
        return cls(facts, curator.relation, settings, cost, noise, richness, length, risk)

    @property
    def harmless_tilt(self) -> bool:
        """Whether the ball of the rule is one in which a tilt changes next to nothing."""
        unit = 1 / (self.risk.tilt * self.risk.loss.lipschitz * self.risk.reach)
        return self.ball() <= _HARMLESS_TILT * unit

    def wanted(self, least: float) -> tuple[float, float]:
        """Return the strong convexity and the radius; the penalty has ``least`` of the former."""
        settings, risk, facts = self.settings, self.risk, self.facts
        wanted, radius = settings.strong_convexity, settings.radius or math.inf
        if risk.tilt:
            if settings.radius is None:
                radius = risk.farthest(facts.rows, max(wanted, least)) if wanted else self.ball()
            return wanted or self.buys(radius), radius
        if wanted is not None:
            return wanted, radius
        if settings.radius is not None:
            regularised = regularisation(
                lipschitz=risk.clip,
                radius=settings.radius,
                dimension=facts.parameters,
                epsilon=facts.epsilon,
                delta=facts.delta if isinstance(self.cost, Gaussian) else 0.0,
                rows=facts.rows,
                smoothness=risk.loss.smoothness * risk.reach**2,  # without the kink of the adversary's norm at 0
                population=settings.population,
            )
            return facts.rows * regularised, radius
        moved = score_noise(self.richness)
        if risk.support is not None:
            moved = min(0.6, 1.5 * math.pow(self.richness, -0.2))
        return facts.change * self.noise * risk.clip * self.length / moved, radius

    def buys(self, radius: float) -> float:
        """Return the strong convexity with which a ball of that radius has the noise of the rule."""
        changed = self.facts.rows_per_unit * replace(self.risk, radius=radius).variation(
            self.facts.rows, self.relation
        )
        spread = score_noise(self.richness) / self.length
        return self.noise * changed / min(_NOISE_SHARE * radius, spread)

    def ball(self) -> float:
        """Return a third of the longest that a minimiser can be with the strong convexity that this radius needs."""
        risk = self.risk

        def longest(radius: float) -> float:
            return risk.farthest(risk.places, self.buys(radius))

        unit = 1 / (risk.tilt * risk.loss.lipschitz * risk.reach)
        low, high = _HARMLESS_TILT * unit, _LARGEST_TILT_EXPONENT * unit
        if low >= _BALL_SHARE * longest(low):
            return min(low, longest(low))
        while high > 1.001 * low:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if middle < _BALL_SHARE * longest(middle) else (low, middle)
        return low
