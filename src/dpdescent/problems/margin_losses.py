"""Losses of one margin: of y t for the classes -1 and 1, of t - y for numbers, and the Poisson loss of counts.

What a loss is can be read in `dpdescent.problems.contract`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..arrays import Floats
from ..errors import InvalidParameter, require_positive
from ..exact import exp, log, quick_sigmoid, sigmoid, softplus
from .contract import DifferenceLoss, Labels, Loss, MarginLoss

_FAR = 64.0  # exp(-64) times 64 is below 2^-60
_LEAST_START = 2.0**-40  # the loss is flat beyond margins of 64 then, and its values keep their digits
_LEAST_MEAN = 2.0**-20  # of a constant, where noise hides all counts
_CAPPED = 1 - 2.0**-40  # curvatures above this count as 0: the residual of a capped row may be rounded


def _log_odds(counts: Floats) -> float:
    """Return the log-odds of the second of two classes from noisy counts, each raised to at least half a row."""
    logits = np.log(np.maximum(counts, 0.5) / np.maximum(counts, 0.5).sum())
    return float(logits[1] - logits[0])


@dataclass(frozen=True)
class Logistic(MarginLoss):
    r"""log(1 + exp(-y t)): binary logistic regression."""

    lipschitz = 1.0
    smoothness = 0.25
    curvature_lipschitz = 1 / (6 * math.sqrt(3))
    convex = True
    falling = True
    flat_beyond = _FAR

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return softplus(-labels * margins)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return -labels * sigmoid(-labels * margins)

    def short_residuals(self, margins: Floats, labels: Floats) -> Floats:
        residuals = quick_sigmoid(margins)
        residuals -= labels > 0
        return residuals

    def longest_residuals(self, margins: Floats) -> Floats:
        return quick_sigmoid(np.abs(margins))

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        sizes: Floats = np.abs(residuals)
        return sizes * (1 - sizes)

    def table(self, ceiling: float | None) -> tuple[float, float]:
        return (-30.0, 20.0) if ceiling is None else (-ceiling, 10.0)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        probability = sigmoid(-np.abs(margins))
        return probability * (1 - probability)

    def best_constant(self, noisy: Floats) -> float:
        return _log_odds(noisy)


@dataclass(frozen=True)
class Sigmoid(MarginLoss):
    r"""1/(1 + exp(y t)): a smooth count of mistakes, bounded and not convex.

    With s the loss itself, its derivatives in y t are -u, u (1 - 2s) and -u (1 - 6u), where u = s (1 - s) <= 1/4.
    """

    lipschitz = 0.25
    smoothness = 1 / (6 * math.sqrt(3))
    curvature_lipschitz = 0.125
    convex = False
    falling = True
    flat_beyond = _FAR

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return sigmoid(-labels * margins)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        loss = sigmoid(-labels * margins)
        return -labels * loss * (1 - loss)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        loss = sigmoid(-labels * margins)
        return loss * (1 - loss) * (1 - 2 * loss)

    def best_constant(self, noisy: Floats) -> float:
        # The best constant is infinite. The log-odds have its sign, and are large only if the counts are clear.
        return _log_odds(noisy)


@dataclass(frozen=True)
class Hinge(MarginLoss):
    """max(0, 1 - y t): the linear support vector machine."""

    lipschitz = 1.0
    smoothness = math.inf
    curvature_lipschitz = math.inf
    convex = True
    falling = True
    hinge = True
    centre = 1.0

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return np.maximum(1 - labels * margins, 0.0)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return np.where(labels * margins < 1, -labels, 0.0)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return np.zeros_like(margins)

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        return np.zeros_like(residuals)

    def best_constant(self, noisy: Floats) -> float:
        return float(np.sign(_log_odds(noisy)))


@dataclass(frozen=True)
class HuberisedHinge(MarginLoss):
    """The hinge with its kink replaced by a parabola of half-width h (Chapelle 2007).

    With z = y t: 0 for z > 1 + h, (1 + h - z)^2/(4h) for z within h of 1, and 1 - z below.
    """

    half_width: float = 0.5
    lipschitz = 1.0
    curvature_lipschitz = math.inf
    convex = True
    falling = True
    centre = 1.0

    def __post_init__(self) -> None:
        require_positive("half_width", self.half_width)

    @property
    def smoothness(self) -> float:
        """1/(2h)."""
        return 1 / (2 * self.half_width)

    @property
    def flat_beyond(self) -> float:  # type: ignore[override]
        """1 + h or more: beyond it the loss is linear."""
        return max(_FAR, 1 + self.half_width)

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

    def best_constant(self, noisy: Floats) -> float:
        return float(np.sign(_log_odds(noisy)))


@dataclass(frozen=True)
class Squared(DifferenceLoss):
    """(t - y)^2/2 of numbers in [-1, 1]: linear regression. Its gradient is bounded only by clipping."""

    labels = Labels.numbers(-1, 1)
    lipschitz = math.inf
    smoothness = 1.0
    curvature_lipschitz = 0.0
    convex = True

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return (margins - labels) ** 2 / 2

    def profile(self, positions: Floats) -> Floats:
        return positions * positions / 2

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return margins - labels

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return np.ones_like(margins)

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        return np.ones_like(residuals)

    def bounded(self) -> Loss:
        """Return Huber's loss with slope at most 1: half the width of the range of the labels."""
        return Huber(1.0)

    def best_constant(self, noisy: Floats) -> float:
        return min(max(float(noisy[0]), self.labels.low), self.labels.high)


@dataclass(frozen=True)
class Huber(DifferenceLoss):
    """The squared loss with slopes up to h: (t - y)^2/2 within h of y, and h |t - y| - h^2/2 beyond (Huber 1964).

    Most methods have rules for noise and steps that are made for slopes up to about 1. For a small threshold it is
    therefore better to choose units in which the threshold is 1, and labels may exceed 1.

    Parameters
    ----------
    threshold : float
        h.
    label_bound : float
        Labels are numbers from minus this to this.
    """

    threshold: float = 1.0
    label_bound: float = 1.0
    smoothness = 1.0
    curvature_lipschitz = math.inf
    convex = True

    def __post_init__(self) -> None:
        require_positive("threshold", self.threshold)
        require_positive("label_bound", self.label_bound)

    @property
    def labels(self) -> Labels:
        """Numbers up to the bound."""
        return Labels.numbers(-self.label_bound, self.label_bound)

    @property
    def lipschitz(self) -> float:
        """The largest slope."""
        return self.threshold

    @property
    def flat_beyond(self) -> float:  # type: ignore[override]
        """The largest label and h, or more: beyond it the loss is linear, whatever the label is."""
        return max(_FAR, self.label_bound + self.threshold)

    def values(self, margins: Floats, labels: Floats) -> Floats:
        distance, h = np.abs(margins - labels), self.threshold
        return np.where(distance <= h, distance * distance / 2, h * distance - h * h / 2)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return np.clip(margins - labels, -self.threshold, self.threshold)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return (np.abs(margins - labels) <= self.threshold).astype(np.float64)

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        return (np.abs(residuals) < self.threshold).astype(np.float64)

    def best_constant(self, noisy: Floats) -> float:
        # The mean is best as long as no residual exceeds the threshold, and it is all that is known about the labels.
        return min(max(float(noisy[0]), self.labels.low), self.labels.high)


@dataclass(frozen=True)
class Poisson(Loss):
    r"""e^s - u s with s = t + log(start) for s <= 0, and 1 + (1 - u) s beyond: counts in units of the largest one.

    A count y in [0, H] with the mean exp(x . w) has the negative log-likelihood exp(x . w) - y x . w, up to a
    constant. Neither its slope nor its curvature is bounded. In units of H, with u = y/H and s = x . w - log H, it is
    H times

    .. math:: l(s, u) = e^s - u s \quad (s \le 0), \qquad l(s, u) = 1 + (1 - u) s \quad (s > 0).

    Beyond s = 0, where the mean would exceed every count, the loss goes on as a straight line. Its slope lies between
    -u and 1 - u, and its curvature is e^s or 0: both are at most 1. The loss is convex, and never negative. No count
    is best fitted by a mean above H, so the line changes the minimiser only if it has rows beyond s = 0.

    Solvers start from weights of zero. The margin is t = s - log(start), so that weights of zero predict the mean
    start H. A value in the middle of the range is closer to the counts of most tables than H itself.

    Parameters
    ----------
    start : float
        The mean at a margin of 0, in the same units: from 2^-40 to 1.
    """

    start: float = 0.25
    labels = Labels.numbers(0, 1)
    lipschitz = 1.0
    smoothness = 1.0
    curvature_lipschitz = math.inf
    convex = True
    flat_beyond = 64.0

    def __post_init__(self) -> None:
        if not _LEAST_START <= require_positive("start", self.start) <= 1:
            raise InvalidParameter(f"start must lie between 2^-40 and 1, the largest count, got {self.start}")

    @property
    def offset(self) -> float:
        """log(start), with the same digits on every machine."""
        return float(log(np.array([self.start]))[0])

    def _below_and_above(self, margins: Floats) -> tuple[Floats, Floats]:
        positions = margins + self.offset
        return np.minimum(positions, 0.0), np.maximum(positions, 0.0)

    def values(self, margins: Floats, labels: Floats) -> Floats:
        below, above = self._below_and_above(margins)
        return exp(below) - labels * below + (1 - labels) * above  # no term is negative

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        below, _ = self._below_and_above(margins)
        return exp(below) - labels

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        below, above = self._below_and_above(margins)
        return np.where(above > 0, 0.0, exp(below))

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        means = residuals + labels
        return np.where(means < _CAPPED, np.maximum(means, 0.0), 0.0)

    def largest(self, reach: float) -> float:
        # Convex in the margin and linear in the label: largest at a corner of both.
        ends = np.array([-reach, reach, -reach, reach])
        return float(self.values(ends, np.array([0.0, 0.0, 1.0, 1.0])).max())

    def best_constant(self, noisy: Floats) -> float:
        mean = min(max(float(noisy[0]), _LEAST_MEAN), 1.0)
        return math.log(mean) - self.offset
