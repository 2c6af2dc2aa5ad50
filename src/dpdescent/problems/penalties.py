r"""What is added to the losses of rows: penalties on the weights, and an adversary's part of every margin.

Penalties on the weights. They depend on no row, so their weight is public and they cost no privacy.

An adversary who moves every row within a convex set, and what that does to a margin.

For a linear model the largest loss over the set has a closed form. With a loss l that falls in the margin y x.w,

.. math:: \max_{v \in S} l(y (x + v) \cdot w) = l(y x \cdot w - \sigma(w)), \qquad
          \sigma(w) = \max_{v \in S} v \cdot w,

since S is symmetric: the margin less the radius times the dual norm of w. The right-hand side is convex in w and
Lipschitz with lipschitz(l) (|x| + rho), rho the longest v of S. (It is convex in v too, so there is no saddle point
to look for, as there would be for a loss that is concave in v.)

**At zero** the norm has a kink. The support function is replaced by :math:`\sigma_s(w) = r \sqrt{|w|^2 + s^2}` for
the ball and :math:`\sum_j r_j \sqrt{w_j^2 + s^2}` for the box, with s = 2^-16. It is smooth and convex, its
gradient lies in S like that of the norm, so no bound on a row changes, and it exceeds the norm by at most r s: the
objective is never below the adversarial one, and above it by at most lipschitz(l) r s.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

import numpy as np

from ..arrays import Floats
from ..errors import InvalidParameter, require_finite, require_nonnegative, require_positive


@dataclass(frozen=True)
class Penalty(ABC):
    """A separable function of the weights, added to the MEAN loss."""

    weight: float = 0.0  # what multiplies the function
    #: Whether the intercept is penalised like the other weights. It is public like the weight, so it changes no
    #: sensitivity; where a penalty makes an objective strongly convex, it decides whether all weights count.
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


SOFTNESS = 2.0**-16


@dataclass(frozen=True)
class Adversary:
    """How far an adversary may move a row: within a Euclidean ball, a cube, or a box.

    Parameters
    ----------
    radius : float or sequence of float
        How far a row may be moved, in units in which the larger absolute value of a column's public bounds is 1. With
        norm "linf" it may be a sequence with one number per column, which makes a box.
    norm : {"l2", "linf"}
        The norm of a move. The constant column of an intercept is never moved.
    """

    radius: Any
    norm: Literal["l2", "linf"] = "l2"

    def __post_init__(self) -> None:
        if self.norm not in ("l2", "linf"):
            raise InvalidParameter(f"unknown norm {self.norm!r} of an adversary: choose 'l2' or 'linf'")
        if np.ndim(self.radius) == 0:
            object.__setattr__(self, "radius", require_positive("radius of the adversary", self.radius))
            return
        if self.norm == "l2" or np.ndim(self.radius) > 1:
            raise InvalidParameter("the radius of an l2 adversary is one number: use norm='linf' for a box")
        radii = tuple(require_finite("radius of the adversary", each) for each in self.radius)
        if not radii or min(radii) < 0 or max(radii) == 0:
            raise InvalidParameter("the radii of a box must be at least 0 and not all of them 0: leave adversary out")
        object.__setattr__(self, "radius", radii)

    def support(self, columns: int, intercept: bool, softness: float = SOFTNESS) -> Support:
        """Return the support function on that many weights; the last is left alone if it is an intercept."""
        features = columns - intercept
        if isinstance(self.radius, tuple) and len(self.radius) != features:
            raise InvalidParameter(f"a box needs {features} radii, one per column, got {len(self.radius)}")
        radii = np.zeros(columns)
        radii[:features] = self.radius
        return Support(radii, self.norm == "l2", softness)

    def attack(self, features: Any, labels: Floats, coefficients: Floats) -> Any:
        """Return the rows where this adversary would move them, given labels -1 or 1 and the weights of a model."""
        weights = np.asarray(coefficients, dtype=np.float64)
        length = float(np.linalg.norm(weights))
        if self.norm == "l2":
            move = self.radius * weights / length if length else np.zeros_like(weights)
        else:
            move = np.asarray(self.radius) * np.sign(weights)
        return np.asarray(features) - np.asarray(labels, dtype=np.float64)[:, None] * move


@dataclass(frozen=True, eq=False)
class Support:
    """The softened support function of the moves, and its derivatives."""

    #: One per weight, 0 for weights that no move changes. For a ball all others are equal.
    radii: Floats
    ball: bool
    softness: float  # s, in units of the weights

    @property
    def reach(self) -> float:
        """rho, an upper bound on the length of the longest move."""
        longest = np.max(self.radii) if self.ball else np.linalg.norm(self.radii)
        return float(longest) * (1 + 2.0**-40)

    @property
    def steepness(self) -> float:
        """An upper bound on the largest curvature."""
        return float(np.max(self.radii)) / self.softness * (1 + 2.0**-40)

    @property
    def at_zero(self) -> float:
        """An upper bound on the value at zero, which is the least value."""
        total = np.max(self.radii) if self.ball else np.sum(self.radii)
        return float(total) * self.softness * (1 + 2.0**-40)

    def _lengths(self, weights: Floats) -> Any:
        if self.ball:
            moved = weights[self.radii > 0]
            return math.sqrt(math.fsum([*(moved * moved).tolist(), self.softness**2]))
        return np.sqrt(weights * weights + self.softness**2)

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """Return sigma(w) and its gradient, each with a relative error below 2^-50."""
        lengths = self._lengths(weights)
        if self.ball:
            return float(np.max(self.radii)) * lengths, self.radii * weights / lengths
        return math.fsum((self.radii * lengths).tolist()), self.radii * weights / lengths

    def curvature(self, weights: Floats) -> tuple[Floats, Floats]:
        """Return d and u of the second derivative diag(d) - uu'."""
        lengths = self._lengths(weights)
        if self.ball:
            return self.radii / lengths, np.sqrt(self.radii / lengths) * weights / lengths
        return self.radii * self.softness**2 / lengths**3, np.zeros_like(weights)
