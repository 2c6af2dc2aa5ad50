r"""A Gaussian mechanism whose shift is random: the output of averaged passes over permuted rows.

In each of k passes a row sits in one of m batches, uniformly at random, and shifts the result by at most U h, U
uniform on {1/m, 2/m, ..., 1}, independently from pass to pass. The places are part of the mechanism's own
randomness and the same for neighbours, and the integral of p^a q^(1-a) is jointly convex, so

.. math:: D_a \le \frac{1}{a-1}\log E \exp\Big(\frac{a(a-1)}{2\sigma^2} h^2 (U_1 + \dots + U_k)^2\Big).

The law of the sum is computed on a grid of 64 cells per pass, every U rounded up, plus 2^-12 k for rounding errors.

References
----------
Chen, C., Lee, J. & Kifer, D. (2019). Renyi differentially private ERM for smooth objectives. AISTATS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import logsumexp

from ..errors import require_order, require_positive, require_positive_integer
from .costs import Cost
from .rounding import CONVOLUTION, above, round_up

__all__ = ["ALLOWANCE", "ShuffledDescent"]

ALLOWANCE = 2.0**-12  # share of the largest shift that rounding errors may add
_CELLS = 64


@dataclass(frozen=True)
class ShuffledDescent(Cost):
    """Gaussian noise on the average after ``passes`` passes over ``batches`` random batches.

    Parameters
    ----------
    noise_multiplier : float
        Deviation of the noise over the largest shift, passes times h.
    passes, batches : int
    """

    kind: ClassVar[str] = "shuffled-descent"
    noise_multiplier: float
    passes: int
    batches: int

    def __post_init__(self) -> None:
        self._settle(
            noise_multiplier=require_positive("noise_multiplier", self.noise_multiplier),
            passes=require_positive_integer("passes", self.passes),
            batches=require_positive_integer("batches", self.batches),
        )

    def rdp(self, order: float) -> float:
        order = require_order(order)
        # Noise whose variance underflows hides nothing. For a variance that overflows, 1e-15 is charged.
        variance = self.noise_multiplier * self.noise_multiplier
        if variance == 0:
            return math.inf
        shares, log_weights = shift_law(self.passes, self.batches)
        exponents = order * (order - 1) / (2 * variance) * shares**2
        if exponents[-1] < 1:
            # The weights add up to one but for rounding, which would count 1/(a - 1) times near order 1.
            log_moment = math.log1p(float(np.exp(log_weights) @ np.expm1(exponents)))
        else:
            log_moment = float(logsumexp(log_weights + exponents))
        mixture = log_moment / (order - 1)
        worst = order / (2 * variance) * (1 + ALLOWANCE) ** 2
        return above(min(mixture, worst), CONVOLUTION) + 1e-15

    def zcdp(self) -> float:
        return round_up(Fraction(1 + ALLOWANCE) ** 2 / (2 * Fraction(self.noise_multiplier) ** 2))

    def mu_squared(self) -> float:
        return round_up(Fraction(1 + ALLOWANCE) ** 2 / Fraction(self.noise_multiplier) ** 2)


@lru_cache(maxsize=64)
def shift_law(passes: int, batches: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the possible shifts, as shares of the largest one and rounded up, and their log-probabilities."""
    cells = min(batches, _CELLS)
    steps = np.arange(1, batches + 1)
    rounded = -(-steps * cells // batches)  # ceil(U cells)
    one = np.bincount(rounded, minlength=cells + 1) / batches
    law = np.ones(1)
    for _ in range(passes):
        law = np.convolve(law, one)
    # Probabilities that underflow still matter for the largest shifts, so all are raised by a negligible amount.
    shares = np.arange(passes, law.size) / (cells * passes) + ALLOWANCE
    return shares, np.log(law[passes:] + 1e-300)
