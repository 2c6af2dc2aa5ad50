"""What is minimised: strongly convex functions of the weights in floating point, with bounds on their errors."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidParameter, require_nonnegative, require_positive, require_positive_integer

__all__ = ["GeneralObjective", "Objective"]

Floats = NDArray[np.float64]


class Objective(ABC):
    """A strongly convex function of the weights. **Unreleased data**: so is everything it computes.

    Attributes
    ----------
    shape : tuple of int
        Of the weights.
    smoothness : float
        A public Lipschitz constant of the gradient; infinite for a function with kinks.
    """

    shape: tuple[int, ...]

    @property
    @abstractmethod
    def smoothness(self) -> float: ...

    @abstractmethod
    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """Return the value and a (sub)gradient, accurate enough for a solver."""

    @abstractmethod
    def accurate_gradient(self, weights: Floats) -> Floats:
        """Return the gradient at a point within `placement_error` of the weights, accurate to `gradient_error`."""

    @abstractmethod
    def gradient_error(self, weights: Floats) -> float:
        """Return an upper bound on the error of `accurate_gradient`, in the Euclidean norm."""

    def start(self) -> Floats:
        """Return where a search begins."""
        return np.zeros(self.shape)

    def placement_error(self, weights_norm: float) -> float:
        """Return an upper bound on the distance of a point from the one at which `accurate_gradient` is computed."""
        return 0.0

    def value_error(self, weights: Floats) -> float:
        """Return an upper bound on the error of a value from `value_and_gradient`; infinite where none is known."""
        return math.inf


class GeneralObjective(Objective):
    """A function F(w) of the weights and of private rows, with public constants that the caller vouches for.

    Parameters
    ----------
    function : callable
        Maps weights to F and a (sub)gradient. It must be finite for all weights in the ball over which F is
        minimised.
    dimension : int
        Number of weights.
    strong_convexity : float
        mu, which must hold for every table.
    lipschitz : float
        L: F is L-Lipschitz for every table, on the ball over which it is minimised. A regulariser that is the same
        for all tables need not be counted.
    smoothness : float
        beta, the Lipschitz constant of the gradient; infinite where F has kinks.
    variation : float, optional
        Lipschitz constant of F - F' for neighbouring tables; 2L if nothing better is known.
    errors : (float, float)
        Bounds on the errors of a computed value and of a computed gradient.
    """

    def __init__(
        self,
        function: Callable[[Floats], tuple[float, Floats]],
        dimension: int,
        *,
        strong_convexity: float,
        lipschitz: float,
        smoothness: float = math.inf,
        variation: float | None = None,
        errors: tuple[float, float] = (1e-12, 1e-12),
    ) -> None:
        if not strong_convexity > 0:
            raise InvalidParameter(
                f"strong_convexity must be greater than 0, got {strong_convexity}: add a public regulariser, for "
                "instance the one of excess_risk_bound(...).regularisation"
            )
        self.shape = (require_positive_integer("dimension", dimension),)
        self.strong_convexity = require_positive("strong_convexity", strong_convexity)
        self.lipschitz = require_positive("lipschitz", lipschitz)
        self.variation = require_positive("variation", 2 * lipschitz if variation is None else variation)
        self._smoothness = math.inf if smoothness == math.inf else require_positive("smoothness", smoothness)
        if self._smoothness < self.strong_convexity:
            raise InvalidParameter(f"smoothness {smoothness:g} is below the strong convexity {strong_convexity:g}")
        self.errors = tuple(require_nonnegative("errors", error) for error in errors)
        self._function = function

    @property
    def smoothness(self) -> float:
        return self._smoothness

    def reachable(self, radius: float) -> float:
        """Return a distance to the minimiser over B(0, R) that can be certified for every table."""
        mu, slope, (value_error, gradient_error) = self.strong_convexity, self.lipschitz, self.errors
        size = min(radius, 2 * slope / mu)
        if self.smoothness < math.inf:
            return 4 * (gradient_error / mu + 2.0**-44 * (self.smoothness / mu * size + slope / mu))
        gap = 2 * value_error + 4 * gradient_error * slope / mu
        steep = (slope + mu * size) * size
        # The last term: T = 4 L^2/(mu tau)^2 cuts are added up, with an error of 2^-49 T of their sizes.
        distance = 4 * math.sqrt(2 * (gap + 2.0**-40 * steep) / mu)
        return distance + math.sqrt(math.sqrt(2.0**-42 * (slope + mu * size) ** 2 * steep / mu**3))

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        value, gradient = self._function(weights)
        return float(value), np.asarray(gradient, dtype=np.float64)

    def accurate_gradient(self, weights: Floats) -> Floats:
        return self.value_and_gradient(weights)[1]

    def gradient_error(self, weights: Floats) -> float:
        return self.errors[1]

    def value_error(self, weights: Floats) -> float:
        return self.errors[0]
