"""Noisy gradients of random batches, amplified by their randomness."""

from __future__ import annotations

import math
from functools import partial

import numpy as np
from numpy.typing import NDArray

from ..accounting import AdvancedComposition, Cost, FixedSizeSampled, Gaussian, PoissonSampled, calibrate
from ..curator import Curator, _Batched
from ..errors import BudgetExhausted, InvalidParameter, require_positive_integer
from ..noise import Bits
from ..relations import Relation

__all__ = ["BatchGradients"]

Floats = NDArray[np.float64]


class BatchGradients:
    """A number of noisy gradients, fixed in advance, each from a fresh random batch and all equally noisy.

    Parameters
    ----------
    curator : Curator
    clip : float
        C: each row's gradient is cut to this norm.
    rate : float
        Share of the rows in a batch. At 1 there is no batch and no amplification.
    steps : int
        How many gradients may be asked for.
    amount : float
        What all of them cost together, in the curator's currency.

    Notes
    -----
    **Privacy** Under zero-out every row joins a batch by itself with probability ``rate`` (`PoissonSampled`), and
    sums are divided by the public rate * n. Under replace-one a batch is a uniform subset of floor(rate * n) rows
    (`FixedSizeSampled`). The sum of a batch has the sensitivity C, or 2C when a row is replaced. Each call charges
    its own cost before it draws the batch.
    """

    def __init__(self, curator: Curator, clip: float, rate: float, steps: int, amount: float) -> None:
        self._curator, self._clip = curator, clip
        self._left = self.steps = require_positive_integer("steps", steps)
        self._size, self.rate = batch_size(curator, rate)
        self._price = amount / self.steps
        currency = curator.ledger.currency
        self.cost: Cost
        if self.rate == 1:
            self.cost = self.noise = currency.gaussian(self._price)
        else:

            def noisy(strength: float) -> PoissonSampled | FixedSizeSampled:
                return sampled(curator.relation, self.rate, Gaussian(1 / strength))

            amplified = calibrate(noisy, self._price, currency)
            self.cost, self.noise = amplified, _only_gaussian(amplified)
        self._paid = False
        self._clipped = curator._clipped_sum(clip, self.noise)

    @classmethod
    def with_advanced_composition(
        cls, curator: Curator, clip: float, rate: float, steps: int, epsilon: float, delta: float
    ) -> BatchGradients:
        """Return gradients that advanced composition makes (epsilon, delta)-DP together, charged here and at once."""
        gradients = cls.__new__(cls)
        gradients._curator, gradients._clip = curator, clip
        gradients._left = gradients.steps = require_positive_integer("steps", steps)
        gradients._size, gradients.rate = batch_size(curator, rate)
        cost = calibrate(
            lambda strength: AdvancedComposition(1 / strength, gradients.rate, steps, delta),
            epsilon,
            curator.ledger.currency,
        )
        gradients.cost, gradients.noise = cost, Gaussian(cost.noise_multiplier)
        gradients._clipped = curator._clipped_sum(clip, gradients.noise)
        curator._charge(cost, "gradients")
        gradients._paid = True
        return gradients

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each coordinate of a gradient."""
        sensitivity = self._clipped.sensitivity.under(self._curator.relation)
        return sensitivity * self.noise.noise_multiplier / self._size

    def at(self, weights: Floats) -> Floats:
        """Return a noisy gradient of the objective at public ``weights``."""
        if self._left == 0:
            raise BudgetExhausted(f"all of the {self.steps} gradients that were planned have been given")
        self._left -= 1
        curator = self._curator
        if self.rate == 1 and not self._paid:
            return curator.gradient(weights, self._clip, self._price)
        problem = curator.problem
        weights = curator._point("weights", weights)
        placed, public = problem.grid.place_weights(weights), problem.penalty_gradient(weights)
        if not self._paid:
            curator._charge(self.cost, "gradient")
        question = _Batched(partial(problem.gradient_block, self._clipped, placed))
        caps = curator._row_caps(self._clipped, None)
        with np.errstate(all="ignore"):  # a warning would speak of rows
            values = curator._source.map_sum(question, draw_rows(curator, self._size, self.rate), caps)
        return (
            curator._noise.gaussian(self._clipped.label(values), self.noise, curator.relation) / self._size + public
        )


def draw_rows(curator: Curator, size: float, rate: float) -> NDArray[np.bool_]:
    """Return which rows are in a fresh batch; ``size`` and ``rate`` are those of `batch_size`."""
    present = curator._row_norms().shape[0]
    bits = curator._randomness.stream("batch", curator._batches)
    curator._batches += 1
    if rate == 1:
        return np.ones(present, dtype=np.bool_)
    if curator.relation is Relation.ZERO_OUT:
        return bernoulli(bits, present, rate)
    while True:
        words = bits.words(present)
        last = np.partition(words, int(size) - 1)[int(size) - 1]
        chosen: NDArray[np.bool_] = words <= last
        if np.count_nonzero(chosen) == int(size):  # no tie at the end, so every subset is equally likely
            return chosen


def bernoulli(bits: Bits, size: int, rate: float) -> NDArray[np.bool_]:
    """Return independent choices, each with probability floor(2^64 rate)/2^64.

    A choice compares a uniform number with the rate. Its first byte decides, unless it equals that of the rate: then
    the other seven bytes do.
    """
    first, rest = divmod(int(rate * 2.0**64), 2**56)
    leading = bits.words(-(-size // 8)).astype("<u8", copy=False).view(np.uint8)[:size]
    chosen = leading < first
    undecided = np.flatnonzero(leading == first)
    chosen[undecided] = (bits.words(undecided.size) >> np.uint64(8)) < np.uint64(rest)
    return chosen


def batch_size(curator: Curator, rate: float) -> tuple[float, float]:
    """Return the public number by which the sum of a batch is divided, and the rate that is charged."""
    if not 0 < rate <= 1:
        raise InvalidParameter(f"sampling_rate must lie in (0, 1], got {rate}")
    if rate == 1 or curator.relation is Relation.ZERO_OUT:
        return rate * curator.rows, rate
    if curator._row_norms().shape[0] != curator.rows:  # the same for all neighbours under replace-one
        raise InvalidParameter("batches of fixed size need the true number of rows: pass it to the curator")
    size = max(1, math.floor(rate * curator.rows))
    return float(size), size / curator.rows


def _only_gaussian(cost: PoissonSampled | FixedSizeSampled) -> Gaussian:
    (noise,) = cost.parts
    assert isinstance(noise, Gaussian)
    return noise


def sampled(relation: Relation, rate: float, *parts: Cost) -> PoissonSampled | FixedSizeSampled:
    """Return the cost of mechanisms on one batch of the kind that the relation can amplify."""
    return (PoissonSampled if relation is Relation.ZERO_OUT else FixedSizeSampled)(rate, parts)
