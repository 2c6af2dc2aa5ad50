"""Penalties on the weights. They depend on no row, so their weight is public and they cost no privacy."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import require_nonnegative

__all__ = ["L2", "NonConvex", "Penalty"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Penalty(ABC):
    """A separable function of the weights, added to the MEAN loss; an intercept is never penalised."""

    weight: float = 0.0

    def __post_init__(self) -> None:
        require_nonnegative("penalty weight", self.weight)

    @abstractmethod
    def value(self, weights: Floats) -> float:
        """Return the penalty."""

    @abstractmethod
    def gradient(self, weights: Floats) -> Floats:
        """Return the gradient, in the shape of the weights."""

    @abstractmethod
    def curvature(self, weights: Floats) -> Floats:
        """Return the diagonal of the Hessian, in the shape of the weights."""


@dataclass(frozen=True)
class L2(Penalty):
    """weight/2 |w|^2."""

    def value(self, weights: Floats) -> float:
        return self.weight / 2 * float(np.sum(weights * weights))

    def gradient(self, weights: Floats) -> Floats:
        return self.weight * weights

    def curvature(self, weights: Floats) -> Floats:
        return np.full(weights.shape, self.weight)


@dataclass(frozen=True)
class NonConvex(Penalty):
    """weight * sum_j w_j^2/(1 + w_j^2): bounded, non-convex, flat far out."""

    def value(self, weights: Floats) -> float:
        squares = weights * weights
        return self.weight * float(np.sum(squares / (1 + squares)))

    def gradient(self, weights: Floats) -> Floats:
        growth = 1 + weights * weights  # divided by twice: its powers may overflow
        return 2 * self.weight * weights / growth / growth

    def curvature(self, weights: Floats) -> Floats:
        squares = weights * weights
        growth = 1 + squares
        return 2 * self.weight * ((1 - 3 * squares) / growth) / growth / growth
