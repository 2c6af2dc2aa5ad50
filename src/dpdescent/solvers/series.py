"""A number of noisy gradients that is fixed in advance, and the typical length of a row, which scales them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..accounting import AdvancedComposition, Gaussian, Laplace, calibrate
from ..curator import Batch, Curator, Gradient, MeanRowNorm, Sampling
from ..errors import BudgetExhausted, require_positive_integer
from .result import gradient_deviation

__all__ = ["GradientSeries", "measure_row_norm"]

Floats = NDArray[np.float64]

_LEAST_SHARE = 0.05


class GradientSeries:
    """A number of noisy gradients, fixed in advance, each from a fresh random batch and all equally noisy.

    Parameters
    ----------
    curator : Curator
    clip : float
        C: each row's gradient is clipped to this norm; those of a unit with several rows are clipped together.
    rate : float
        Share of the rows in a batch. At 1 there is no batch and no amplification.
    steps : int
        How many gradients may be asked for.
    amount : float
        What all of them cost together, in the curator's currency.

    Notes
    -----
    **Privacy** Each gradient is charged by itself, amplified by its batch (`Sampling`), before the batch is drawn.
    """

    def __init__(self, curator: Curator, clip: float, rate: float, steps: int, amount: float) -> None:
        sampling = curator.sampling(rate)
        price = amount / require_positive_integer("steps", steps)
        self._begin(curator, clip, sampling, steps, sampling.gaussian(price, curator.currency))

    @classmethod
    def with_advanced_composition(
        cls, curator: Curator, clip: float, rate: float, steps: int, epsilon: float, delta: float
    ) -> GradientSeries:
        """Return gradients that advanced composition makes (epsilon, delta)-DP together, charged with the first."""
        series, sampling = cls.__new__(cls), curator.sampling(rate)
        paid = calibrate(
            lambda strength: AdvancedComposition(1 / strength, sampling.rate, steps, delta), epsilon, curator.currency
        )
        series._begin(curator, clip, sampling, steps, Gaussian(paid.noise_multiplier))
        series._prepaid = Batch.series(sampling, paid, "gradients")
        return series

    def _begin(self, curator: Curator, clip: float, sampling: Sampling, steps: int, noise: Gaussian) -> None:
        self._curator, self._clip, self.noise, self._sampling = curator, clip, noise, sampling
        self._prepaid: Batch | None = None
        self.steps = self._left = steps
        curator.require_answerable(self._question(np.zeros(curator.problem.shape)))

    def _question(self, weights: Floats) -> Gradient:
        return Gradient(weights, self._clip, self.noise, joint=True)

    @property
    def deviation(self) -> float:
        """Standard deviation of the noise in each coordinate of a gradient."""
        return gradient_deviation(self._curator, self._clip, self.noise, self._sampling.size)

    def at(self, weights: Floats) -> Floats:
        """Return a noisy gradient of the objective at public ``weights``."""
        if self._left == 0:
            raise BudgetExhausted(f"all of the {self.steps} gradients that were planned have been given")
        batch = self._prepaid or Batch(self._sampling, (self.noise,))
        gradient = self._curator.answer(self._question(weights), batch)
        self._left -= 1
        return gradient


def measure_row_norm(curator: Curator, share: float) -> float:
    """Return the mean Euclidean norm of the rows, within [0.05, 1] of the public bound, for a share of the budget.

    Gaussian noise where the currency knows its price, Laplace noise where it counts pure epsilons.
    """
    amount, pure = share * curator.budget, curator.currency.name in ("pure", "approximate")
    mean = curator.answer(MeanRowNorm(Laplace(min(amount, 8.0)) if pure else curator.gaussian(amount)))
    bound = curator.problem.grid.row_bound
    return min(max(mean, _LEAST_SHARE * bound), bound)
