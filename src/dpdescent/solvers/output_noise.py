r"""The noise of output perturbation: what a budget pays for, and the strong convexity that it asks for.

The rules for tilted and adversarial objectives are told in `dpdescent.solvers.output_perturbation`.

How long the weights of a tilted model are, and its intercept, from counts of margins.

A tilt tau weighs rows with large losses more, and so it makes weights shorter: the length decides how large the
largest losses are, while the best direction hardly depends on tau. (On Adult, without privacy, for tilts from 0.1 to
10: the minimiser of the mean loss, with the best length and intercept, has a tilted loss within 0.01 of the least.) A
direction is bought best by minimising the mean loss, in which no row has more than its share. Its length is then
bought for a small part of the budget. For released weights w the margins t = x . w are counted in intervals, for
either class, and

.. math:: \frac1\tau \log \sum_k n_k e^{\tau l(c\, (t_k - y_k \sigma(w)) + b,\; y_k)}

is minimised over the length 0 <= c <= 1 and, where there is an intercept, over its shift b. It is convex, since the
losses are. sigma is the support function of an adversary's moves, which grows with the length.

Intervals double, from 1/32 of a typical margin, |w| times the typical length of a row, to 4 times that. Weights that
are too long cost much more than weights that are too short, so what the noise may hide is assumed to be there: beyond
the outermost count of more than four standard deviations of its noise, one standard deviation in every interval up to
half a typical margin. What is seen of a class is multiplied up to its total, if that is larger. Unless both classes
have such a count, the intercept stays, and weights are so short that one row has at most e times its share at a
typical margin. (Chosen on Adult, at epsilons from 0.05 to 0.8, and on a synthetic table of 3,000 to 20,000 rows.)

**Privacy** Post-processing of released weights and counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from scipy.optimize import minimize

from ..accounting import Gaussian, Laplace, NormLaplace, gaussian_tail_constant, loose_noise_multiplier
from ..arrays import Floats
from ..curator import Curator
from ..errors import require_positive, require_positive_integer
from ..minimisers import RobustRisk
from ..problems import Loss
from ..problems.penalties import Support
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
        return pure_noise(left, facts.delta)
    if settings.sigma == "paper":
        return Gaussian(loose_noise_multiplier(facts.epsilon, facts.delta))
    return curator.ledger.currency.gaussian(left)


def pure_noise(epsilon: float, delta: float) -> NormLaplace | Laplace:
    """Return norm-Laplace noise, whose 1e-27 a delta covers, or else Laplace noise on every weight."""
    return NormLaplace(min(epsilon, _LARGEST_EPSILON)) if delta > 0 else Laplace(epsilon)


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


_POWERS = np.arange(-5.0, 3.0)  # of two, at which intervals end
_NEAR = int(np.count_nonzero(_POWERS < -1))  # intervals on either side of the middle one within half a typical margin
_SURE, _HIDDEN = 4.0, 1.0  # standard deviations of the noise


@dataclass(frozen=True, eq=False)
class LengthSearch:
    """Chooses the length of released weights, and shifts their intercept, for a tilt."""

    loss: Loss  # of labels -1 and 1, convex
    tilt: float  # tau, positive
    weights: Floats  # released; the last one is the intercept, if there is one
    intercept: bool
    row_length: float  # the typical length of a row
    support: Support | None = None  # of the adversary's moves

    @property
    def typical_margin(self) -> float:
        """The margin of a row of typical length in the direction of the weights."""
        return max(self.row_length * float(np.linalg.norm(self.weights)), 2.0**-400)

    @property
    def edges(self) -> Floats:
        """Between which margins are counted."""
        positive = self.typical_margin * 2.0**_POWERS
        return np.concatenate([-positive[::-1], positive])

    def best(self, counts: Floats, deviation: float) -> tuple[float, float]:
        """Return length and shift, from counts of margins with noise of that standard deviation."""
        if not (counts > _SURE * deviation).any(axis=1).all():
            return min(1.0, 1 / (self.tilt * self.loss.lipschitz * self.typical_margin)), 0.0
        kept = np.array([_with_hidden(each, deviation) for each in counts])
        middles = self.typical_margin * 2.0 ** (_POWERS + 0.5)
        margins = np.tile(np.concatenate([-middles[::-1], [0.0], middles]), 2)
        labels = np.repeat([-1.0, 1.0], margins.size // 2)
        seen = kept.reshape(-1) > 0
        margins, labels, logarithms = margins[seen], labels[seen], np.log(kept.reshape(-1)[seen] / kept.sum())
        moved = 0.0 if self.support is None else self.support.value_and_gradient(self.weights)[0]

        def tilted(point: Floats) -> tuple[float, Floats]:
            at = point[0] * (margins - labels * moved) + point[1]
            exponents = self.tilt * self.loss.values(at, labels) + logarithms
            shares = np.exp(exponents - exponents.max())
            slopes = self.loss.residuals(at, labels) * shares / shares.sum()
            value = (exponents.max() + math.log(shares.sum())) / self.tilt
            return value, np.array([slopes @ (margins - labels * moved), slopes.sum()])

        farthest = self.typical_margin if self.intercept else 0.0
        found = minimize(tilted, [1.0, 0.0], jac=True, bounds=[(0.0, 1.0), (-farthest, farthest)])
        return float(found.x[0]), float(found.x[1])

    def rescale(self, length: float, shift: float) -> Floats:
        """Return the weights of that length and shift."""
        weights: Floats = length * self.weights
        if self.intercept:
            weights[-1] += shift
        return weights


def _with_hidden(counts: Floats, deviation: float) -> Floats:
    """Return the counts of one class up to the outermost that are sure, and what may hide beyond."""
    sure, middle = np.flatnonzero(counts > _SURE * deviation), counts.size // 2
    first, last = int(sure[0]), int(sure[-1])
    seen = np.maximum(counts[first : last + 1], 0.0)
    kept = np.zeros_like(counts)
    kept[min(first, middle - _NEAR) : max(last, middle + _NEAR) + 1] = _HIDDEN * deviation
    kept[first : last + 1] = seen * max(counts.sum() / seen.sum(), 1.0)
    return kept
