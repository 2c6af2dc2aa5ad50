"""What is public before a run, and rules that several methods share, in units that make sense for every table."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from ..accounting import RDP, FixedSizeSampled, Gaussian, PoissonSampled, best_order, calibrate, epsilon_to_gdp
from ..curator import Curator
from ..errors import DPDescentError
from ..problems import Logistic, Loss, Multinomial, Poisson, Weighted
from ..queries import joint_clip
from ..relations import Relation, Sensitivity

DELTA_SHARE = 1 - 2.0**-20  # of delta for a mechanism that has one of its own: the rest is left for the samplers
PAYABLE = 1 - 2.0**-40  # of the budget that is left: sums of costs are rounded up
QUIET_WALK = 1.2  # how far the noise of all steps together may move the score of a typical row
#: Factor and power of `clip_multiple` for descents in measured coordinates; docs/auto.md, "Clip norm".
ADAPTIVE_CLIP = 0.25, 0.3
_FIXED_CLIP = 0.3, 0.4  # the same for descents in the columns as they are
_LEAST_CLIP = 0.5  # in typical row lengths: at 0 the gradient of a logistic loss is half a row long
_BEYOND_SAFE = 8.0  # a search shortens a step that is too long, and the safe one is a bound for the worst table
_DRAWS, _FITTING_STEPS, _MANY = 250, 30, 1e12  # scores and steps for a mean prediction, and rows that have it
_FARTHEST_WALK = 2.0  # margins that noise alone may add up to


@dataclass(frozen=True)
class Facts:
    """What is public before a run: the guarantee that is asked for and the size of the problem."""

    epsilon: float
    delta: float
    relation: str
    rows: int
    parameters: int
    rows_per_unit: int = 1

    @property
    def change(self) -> float:
        """How many clip norms one row, or all rows of a unit, can move a sum of clipped rows."""
        return Sensitivity.of_clipped_sum(1.0).times(self.rows_per_unit).under(Relation.parse(self.relation))

    @property
    def promised_rows(self) -> float:
        """N mu of the whole promise: if all of it paid for one mean of rows of length 1, its noise were 1/(n mu).

        A solver has what bounds and class weights have left of it (`effective_rows`). With delta = 0, epsilon stands
        for mu.
        """
        return self.rows * (epsilon_to_gdp(self.epsilon, self.delta) if self.delta else self.epsilon) / self.change

    @property
    def promised_rows_per_parameter(self) -> float:
        """The same per parameter, n mu/d."""
        return self.promised_rows / self.parameters

    @classmethod
    def of(cls, curator: Curator) -> Facts:
        """Return the public facts of a curator."""
        ledger = curator.ledger
        return cls(
            ledger.epsilon,
            ledger.delta,
            str(ledger.relation),
            curator.rows,
            int(np.prod(curator.problem.shape)),
            curator.rows_per_unit,
        )


def effective_rows(curator: Curator, parameters: float = 1.0) -> float:
    """Return the effective rows, n mu, or those per parameter, n mu/d, of the budget that is left for a solver."""
    return 1 / (parameters * curator.deviation(1.0, curator.budget))


def gradient_deviation(curator: Curator, clip: float, noise: Gaussian, size: float | None = None) -> float:
    """Return the standard deviation of each coordinate of a gradient, its rows clipped by unit where they can be.

    ``size`` is the public number by which the sum is divided, that of the curator by default.
    """
    together, each = curator.public().together, curator.rows_per_unit
    longest = joint_clip(clip, each) if together else clip * each
    moved = Sensitivity.of_clipped_sum(longest).under(curator.relation)
    return moved * noise.noise_multiplier / (size or curator.scale)


def usual_smoothness(loss: Loss) -> float:
    """Return how curved the loss is in its margin, at most 1, for losses that bound it badly or not at all."""
    return min(loss.smoothness, 1.0)


def clip_multiple(richness: float, factor: float, power: float, least: float = _LEAST_CLIP) -> float:
    """Return the clip norm in typical row lengths, given k = n mu/d effective rows per parameter.

    Clipping biases a gradient and noise grows with the clip norm, so the best norm grows with a small power of k.
    """
    return max(least, factor * math.pow(richness, power))


def clip_norm(richness: float, length: float) -> float:
    """Return the clip norm for rows of a typical length, given the effective rows per parameter."""
    return clip_multiple(richness, *_FIXED_CLIP) * length


def constant_of_same_mean(loss: Loss, constant: Any, before: Any, after: Any) -> Any:
    """Return the constant with which a mean prediction stays where scores spread less.

    Scores are taken to be normal around the constant, with deviations ``before``, and then ``after``, of each output.
    A rare class is predicted for the rows with the longest scores: with shorter ones it would be predicted too
    seldom. Losses without a mean prediction, and linear ones, keep their constant.
    """
    plain = loss.loss if isinstance(loss, Weighted) else loss
    if not isinstance(plain, Logistic | Multinomial | Poisson):
        return constant
    normal = np.random.default_rng(0).standard_normal((_DRAWS, *np.shape(constant)))
    normal = np.concatenate([normal, -normal])
    labels = np.full(len(normal), plain.labels.low)

    def fitting(at: Any, spread: Any) -> Any:
        slopes = plain.residuals(at + spread * normal, labels)
        if plain.outputs > 1:
            slopes[:, 0] += 1  # the label that all rows have here
        mean = np.mean(slopes, axis=0)
        shares = np.array([1 - mean, mean]) if isinstance(plain, Logistic) else np.atleast_1d(mean)
        return plain.best_constant(shares if isinstance(plain, Poisson) else _MANY * shares)

    wanted, moved = fitting(constant, before), constant
    for _ in range(_FITTING_STEPS):
        moved = moved + wanted - fitting(moved, after)
    return moved


def longest_step(curator: Curator, row_length: float, noise: float, steps: float) -> float:
    """Return eight times the step that is always safe, unless noise alone would then carry a margin beyond 2.

    ``noise`` is the standard deviation of a coordinate of the gradient, ``steps`` their planned number.
    """
    safe = _BEYOND_SAFE / (usual_smoothness(curator.problem.loss) * row_length**2)
    return min(safe, _FARTHEST_WALK / (noise * math.sqrt(steps) * row_length))


@lru_cache(maxsize=64)
def best_currency(rate: float, steps: int, epsilon: float, delta: float, relation: str) -> RDP:
    """Return RDP at the order at which that many Gaussian answers on batches need the least noise."""
    family = PoissonSampled if relation == "zero-out" else FixedSizeSampled

    def strength(order: int) -> float:
        tried = [0.0]

        def sampled(strength: float) -> PoissonSampled | FixedSizeSampled:
            tried.append(strength)
            return family(rate, (Gaussian(1 / strength),))

        try:
            currency = RDP(order)
            calibrate(sampled, currency.budget(epsilon, delta) / steps, currency)
        except DPDescentError:  # an order that cannot certify this epsilon
            return 0.0
        return tried[-1]

    top = best_order(epsilon, delta)
    # High orders take long to price, and low ones do not certify a small epsilon: the best order of a Gaussian does.
    orders = [order for i in range(-8, 3) if (order := max(2, round(top * 2.0 ** (i / 2)))) <= 2000]
    best = max(orders, key=strength, default=top)
    return RDP(best if best == top or strength(best) > 0 else top)
