"""Penalties on the weights. They depend on no row, so their weight is public and they cost no privacy."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..arrays import Floats
from ..errors import InvalidParameter, require_nonnegative


@dataclass(frozen=True)
class Penalty(ABC):
    """A separable function of the weights, added to the MEAN loss.

    Parameters
    ----------
    weight : float
        What multiplies the function.
    intercept : bool
        Whether the intercept is penalised like the other weights. It is public like the weight, so it changes no
        sensitivity; where a penalty makes an objective strongly convex, it decides whether all weights count.
    """

    weight: float = 0.0
    intercept: bool = False

    #: sup |curvature| and sup |its derivative| in one weight, for ``weight`` 1. The Hessian is diagonal, so they are
    #: Lipschitz constants of gradient and Hessian in the Euclidean and the spectral norm.
    unit_smoothness: ClassVar[float]
    unit_curvature_lipschitz: ClassVar[float]
    #: Whether it is convex, on which the guarantee of some methods rests.
    convex: ClassVar[bool]

    def __post_init__(self) -> None:
        require_nonnegative("penalty weight", self.weight)
        if self.intercept not in (True, False):
            raise InvalidParameter(f"the intercept is penalised or not: True or False, got {self.intercept!r}")

    @property
    def smoothness(self) -> float:
        """Lipschitz constant of the gradient."""
        return self.weight * self.unit_smoothness

    @property
    def curvature_lipschitz(self) -> float:
        """Lipschitz constant of the Hessian."""
        return self.weight * self.unit_curvature_lipschitz

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

    unit_smoothness: ClassVar[float] = 1.0
    unit_curvature_lipschitz: ClassVar[float] = 0.0
    convex: ClassVar[bool] = True

    def value(self, weights: Floats) -> float:
        return self.weight / 2 * float(np.sum(weights * weights))

    def gradient(self, weights: Floats) -> Floats:
        return self.weight * weights

    def curvature(self, weights: Floats) -> Floats:
        return np.full(weights.shape, self.weight)


@dataclass(frozen=True)
class NonConvex(Penalty):
    """weight * sum_j w_j^2/(1 + w_j^2): bounded, non-convex, flat far out.

    The curvature 2 (1 - 3 w^2)/(1 + w^2)^3 is largest at 0; its slope -24 w (1 - w^2)/(1 + w^2)^4 where
    w^2 = 1 - 2/sqrt(5), a root of 1 - 10 w^2 + 5 w^4.
    """

    unit_smoothness: ClassVar[float] = 2.0
    unit_curvature_lipschitz: ClassVar[float] = (
        24 * math.sqrt(1 - 2 / math.sqrt(5)) * (2 / math.sqrt(5)) / (2 - 2 / math.sqrt(5)) ** 4 * (1 + 2.0**-50)
    )
    convex: ClassVar[bool] = False

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
