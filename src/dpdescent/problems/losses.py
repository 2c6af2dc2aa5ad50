r"""Losses of one row as functions of its margin, with the constants that public bounds need.

A row with features x and label y has the margin t = x . w and the loss l(t, y). Everything a solver can ask about
the row follows from l, its derivative (the *residual*) and its second derivative (the *curvature*):

- gradient: l'(t) x, so its norm is |l'(t)| |x|;
- Hessian: l''(t) x x', positive semidefinite for convex losses.

Values are elementwise functions of exact margins, built from `dpdescent.exact.elementary`, so that the value of a
row depends on that row alone. Class labels are -1 and +1; class indices 0..K-1 for the multinomial loss.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import InvalidParameter, require_positive, require_positive_integer
from ..exact import exp, log, quick_sigmoid, sigmoid, softplus

__all__ = ["Hinge", "Huber", "HuberisedHinge", "Logistic", "Loss", "Multinomial", "Sigmoid", "Squared"]

Floats = NDArray[np.float64]


class Loss(ABC):
    """A loss of one margin, or of K margins, and its derivatives in them."""

    #: Number of margins a row has.
    outputs: int = 1
    #: sup |l'|: with rows of norm at most R, a row's loss is (lipschitz * R)-Lipschitz in the weights.
    lipschitz: float
    #: sup |l''|; infinite for losses with a kink.
    smoothness: float
    #: sup |l'''|; infinite for losses whose curvature jumps.
    curvature_lipschitz: float
    #: Whether l is convex in the margin, so that Hessians are positive semidefinite.
    convex: bool = True
    #: A row's residuals lie in the convex hull of 0 and so many points, each at most ``lipschitz`` long: 1 if l only
    #: falls or only rises, 2 for any other loss of one margin; a loss of several margins must say.
    corners: int = 2
    #: Where `profile` bends most.
    centre: float = 0.0

    @property
    def curvature_rank(self) -> int:
        """Largest rank of the second derivative in the margins."""
        return self.outputs

    @property
    def curvature_trace(self) -> float:
        """Largest trace of the second derivative in the margins."""
        return self.outputs * self.smoothness

    @abstractmethod
    def values(self, margins: Floats, labels: Floats) -> Floats:
        """Return l(t, y), shape (n,)."""

    @abstractmethod
    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        """Return dl/dt, the shape of ``margins``."""

    def short_residuals(self, margins: Floats, labels: Floats) -> Floats:
        """Return `residuals` to 26 bits at least: a clipped sum rounds them to about 20 before it adds them."""
        return self.residuals(margins, labels)

    @abstractmethod
    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        """Return the second derivative in the margin, shape (n,)."""

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        """Return the second derivative where the first is ``residuals``, shape (n,); at most `smoothness`.

        A row with K margins has K of them: their mean, each weighted by itself.
        """
        raise InvalidParameter(f"{type(self).__name__} has no curvature that its residual determines")

    def profile(self, positions: Floats) -> Floats:
        """Return the loss as a function of one position: y t for classes, t - y for numbers."""
        return self.values(positions, np.ones_like(positions))

    def line(self, margins: Floats, along: Floats, labels: Floats, kind: DTypeLike = np.float64) -> tuple[Any, Any]:
        """Return where every row stands and how fast it moves, as positions of `profile`, rounded to ``kind``."""
        return (labels * margins).astype(kind, copy=False), (labels * along).astype(kind, copy=False)

    def table(self, ceiling: float | None) -> tuple[float, float] | None:
        """Return the interval on which the profile may be looked up for scores up to ``ceiling``; None: computed."""
        return None

    def curvature_products(self, margins: Floats, labels: Floats, along: Floats) -> Floats:
        """Return the second derivative applied to a change ``along`` of the margins, in their shape."""
        return self.curvatures(margins, labels) * along


@dataclass(frozen=True)
class Logistic(Loss):
    r"""log(1 + exp(-y t)): binary logistic regression."""

    lipschitz = 1.0
    corners = 1
    smoothness = 0.25
    curvature_lipschitz = 1 / (6 * math.sqrt(3))

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return softplus(-labels * margins)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return -labels * sigmoid(-labels * margins)

    def short_residuals(self, margins: Floats, labels: Floats) -> Floats:
        residuals = quick_sigmoid(margins)
        residuals -= labels > 0
        return residuals

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        sizes: Floats = np.abs(residuals)
        return sizes * (1 - sizes)

    def table(self, ceiling: float | None) -> tuple[float, float]:
        return (-30.0, 20.0) if ceiling is None else (-ceiling, 10.0)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        probability = sigmoid(-np.abs(margins))
        return probability * (1 - probability)


@dataclass(frozen=True)
class Sigmoid(Loss):
    r"""1/(1 + exp(y t)): a smooth count of mistakes, bounded and not convex.

    With s the loss itself, its derivatives in y t are -u, u (1 - 2s) and -u (1 - 6u), where u = s (1 - s) <= 1/4.
    """

    lipschitz = 0.25
    corners = 1
    smoothness = 1 / (6 * math.sqrt(3))
    curvature_lipschitz = 0.125
    convex = False

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return sigmoid(-labels * margins)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        loss = sigmoid(-labels * margins)
        return -labels * loss * (1 - loss)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        loss = sigmoid(-labels * margins)
        return loss * (1 - loss) * (1 - 2 * loss)


@dataclass(frozen=True)
class Hinge(Loss):
    """max(0, 1 - y t): the linear support vector machine."""

    lipschitz = 1.0
    corners = 1
    centre = 1.0
    smoothness = math.inf
    curvature_lipschitz = math.inf

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return np.maximum(1 - labels * margins, 0.0)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return np.where(labels * margins < 1, -labels, 0.0)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return np.zeros_like(margins)

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        return np.zeros_like(residuals)


@dataclass(frozen=True)
class HuberisedHinge(Loss):
    """The hinge with its kink replaced by a parabola of half-width h (Chapelle 2007).

    With z = y t: 0 for z > 1 + h, (1 + h - z)^2/(4h) for z within h of 1, and 1 - z below.
    """

    half_width: float = 0.5
    lipschitz = 1.0
    corners = 1
    centre = 1.0
    curvature_lipschitz = math.inf

    def __post_init__(self) -> None:
        require_positive("half_width", self.half_width)

    @property
    def smoothness(self) -> float:  # type: ignore[override]
        """1/(2h)."""
        return 1 / (2 * self.half_width)

    def _excess(self, margins: Floats, labels: Floats) -> Floats:
        return np.maximum(1 + self.half_width - labels * margins, 0.0)

    def values(self, margins: Floats, labels: Floats) -> Floats:
        excess, h = self._excess(margins, labels), self.half_width
        return np.where(excess <= 2 * h, excess * excess / (4 * h), excess - h)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return -labels * np.minimum(self._excess(margins, labels) / (2 * self.half_width), 1.0)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        inside = np.abs(1 - labels * margins) <= self.half_width
        return np.where(inside, 1 / (2 * self.half_width), 0.0)

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        sizes = np.abs(residuals)
        return np.where((sizes > 0) & (sizes < 1), 1 / (2 * self.half_width), 0.0)


@dataclass(frozen=True)
class Squared(Loss):
    """(t - y)^2/2: linear regression. Its gradient is bounded only by clipping."""

    lipschitz = math.inf
    smoothness = 1.0
    curvature_lipschitz = 0.0

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return (margins - labels) ** 2 / 2

    def profile(self, positions: Floats) -> Floats:
        return positions * positions / 2

    def line(self, margins: Floats, along: Floats, labels: Floats, kind: DTypeLike = np.float64) -> tuple[Any, Any]:
        return (margins - labels).astype(kind, copy=False), along.astype(kind, copy=False)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return margins - labels

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return np.ones_like(margins)

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        return np.ones_like(residuals)


@dataclass(frozen=True)
class Huber(Loss):
    """The squared loss with its slope cut at h: (t - y)^2/2 within h of y, h |t - y| - h^2/2 beyond (Huber 1964)."""

    threshold: float = 1.0
    smoothness = 1.0
    curvature_lipschitz = math.inf

    def __post_init__(self) -> None:
        require_positive("threshold", self.threshold)

    @property
    def lipschitz(self) -> float:  # type: ignore[override]
        """The slope at which the loss is cut."""
        return self.threshold

    def values(self, margins: Floats, labels: Floats) -> Floats:
        distance, h = np.abs(margins - labels), self.threshold
        return np.where(distance <= h, distance * distance / 2, h * distance - h * h / 2)

    def profile(self, positions: Floats) -> Floats:
        return self.values(positions, np.zeros_like(positions))

    def line(self, margins: Floats, along: Floats, labels: Floats, kind: DTypeLike = np.float64) -> tuple[Any, Any]:
        return (margins - labels).astype(kind, copy=False), along.astype(kind, copy=False)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return np.clip(margins - labels, -self.threshold, self.threshold)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return (np.abs(margins - labels) <= self.threshold).astype(np.float64)

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        return (np.abs(residuals) < self.threshold).astype(np.float64)


@dataclass(frozen=True)
class Multinomial(Loss):
    """log(sum_k exp(t_k)) - t_y: multinomial logistic regression on K margins.

    Reductions over the K classes run in a fixed order, so that a row's value never depends on memory layout.
    """

    classes: int
    lipschitz = math.sqrt(2)
    smoothness = 0.5
    curvature_lipschitz = math.sqrt(2) / (3 * math.sqrt(3))

    def __post_init__(self) -> None:
        if require_positive_integer("classes", self.classes) < 2:
            raise InvalidParameter(f"a multinomial loss needs at least 2 classes, got {self.classes}")

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """One margin a class."""
        return self.classes

    @property
    def corners(self) -> int:  # type: ignore[override]
        """Residuals are probabilities less the unit vector of the label: K - 1 differences of unit vectors."""
        return self.classes - 1

    @property
    def curvature_rank(self) -> int:
        """K - 1: margins may be shifted together."""
        return self.classes - 1

    @property
    def curvature_trace(self) -> float:
        """1 less the sum of squared probabilities, at most 1 - 1/K."""
        return 1 - 1 / self.classes

    def _exponentials(self, margins: Floats) -> tuple[Floats, Floats, Floats]:
        """Return the largest margin, the exponentials below it and their sum."""
        largest = margins[:, 0].copy()
        for k in range(1, self.classes):
            np.maximum(largest, margins[:, k], out=largest)
        exponentials = exp(margins - largest[:, None])
        total = exponentials[:, 0].copy()
        for k in range(1, self.classes):
            total += exponentials[:, k]
        return largest, exponentials, total

    def _own(self, labels: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        # A total function: an index error would speak of one row.
        return np.arange(labels.shape[0]), np.clip(np.nan_to_num(labels), 0, self.classes - 1).astype(np.intp)

    def values(self, margins: Floats, labels: Floats) -> Floats:
        largest, _, total = self._exponentials(margins)
        return log(total) + (largest - margins[self._own(labels)])

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        _, probabilities, total = self._exponentials(margins)
        probabilities /= total[:, None]
        probabilities[self._own(labels)] -= 1
        return probabilities

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        raise InvalidParameter("a multinomial row has a K x K curvature: use curvature_products")

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        # The curvature is H = diag(p) - pp'; this is tr(H^2)/tr(H), powers of p being added up class by class.
        probabilities = residuals.copy()
        probabilities[self._own(labels)] += 1
        sums = np.zeros((3, residuals.shape[0]))
        for k in range(self.classes):
            power = np.ones(residuals.shape[0])
            for total in sums:
                power = power * probabilities[:, k]
                total += power
        trace = sums[0] - sums[1]
        squared = sums[1] - 2 * sums[2] + sums[1] ** 2
        mean: Floats = np.divide(squared, trace, out=np.zeros_like(trace), where=trace > 0)
        return mean

    def curvature_products(self, margins: Floats, labels: Floats, along: Floats) -> Floats:
        _, probabilities, total = self._exponentials(margins)
        probabilities /= total[:, None]
        mean = probabilities[:, 0] * along[:, 0]
        for k in range(1, self.classes):
            mean = mean + probabilities[:, k] * along[:, k]
        return probabilities * (along - mean[:, None])
