r"""Losses of classes: the multinomial logistic loss, and any loss with a public weight for every class.

**Weights.** A weighted loss is :math:`w_y \, l(t, y)`. Weights are at most 1, so that every bound of the loss itself
holds for the weighted one. A row's residual and curvature are multiplied by the weight of its label before anything
is clipped, so what a row adds is still a function of that row and of public numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats, Positions
from ..errors import InvalidParameter, require_positive_integer
from ..exact import exp, log
from .contract import LabelKind, Labels, Loss, Need


@dataclass(frozen=True)
class Multinomial(Loss):
    """log(sum_k exp(t_k)) - t_y: multinomial logistic regression on K margins.

    Reductions over the K classes run in a fixed order, so that a row's value never depends on memory layout.
    """

    classes: int
    lipschitz = math.sqrt(2)
    smoothness = 0.5
    curvature_lipschitz = math.sqrt(2) / (3 * math.sqrt(3))
    convex = True

    def __post_init__(self) -> None:
        if require_positive_integer("classes", self.classes) < 2:
            raise InvalidParameter(f"a multinomial loss needs at least 2 classes, got {self.classes}")

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """One margin per class."""
        return self.classes

    @property
    def labels(self) -> Labels:
        """The classes 0 to K - 1."""
        return Labels.classes(self.classes)

    @property
    def corners(self) -> int:
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

    def _own(self, labels: Floats) -> tuple[Positions, Positions]:
        # Defined for every label: an index error would reveal something about one row.
        return np.arange(labels.shape[0]), self.understood(labels).astype(np.intp)

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

    def longest_residuals(self, margins: Floats) -> Floats:
        # That of class k has the square 1 - 2 p_k plus all squares of p: it is the least likely class.
        _, exponentials, total = self._exponentials(margins)
        squares, least = np.zeros(len(margins)), np.ones(len(margins))
        for own in exponentials.T:
            probability = own / total
            squares += probability * probability
            np.minimum(least, probability, out=least)
        lengths: Floats = np.sqrt(1 - 2 * least + squares)
        return lengths

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

    def least(self, reach: float) -> float:
        # At 0 the loss is log K whatever the label is.
        return max(0.0, self.largest(0.0) - self.lipschitz * reach)

    def best_constant(self, noisy: Floats) -> Floats:
        counts = np.maximum(noisy, 0.5)
        logits: Floats = np.log(counts / counts.sum())
        logits -= logits.mean()
        return logits


@dataclass(frozen=True)
class Weighted(Loss):
    """A loss of classes times the public weight of the row's class."""

    loss: Loss  # of two or more classes
    weights: tuple[float, ...]  # one for each class in order, above 0 and at most 1

    def __post_init__(self) -> None:
        if self.loss.labels.kind is LabelKind.NUMBERS:
            raise InvalidParameter("weights are those of classes, and this is a loss of numbers: leave them out")
        if len(self.weights) != self.loss.labels.number_of_classes:
            raise InvalidParameter(
                f"{self.loss.labels.number_of_classes} classes need as many weights, got {len(self.weights)}"
            )
        if not all(0 < weight <= 1 for weight in self.weights):
            raise InvalidParameter("weights of classes must be above 0 and at most 1: divide them by the largest")

    def _own(self, labels: Floats) -> Floats:
        """Return the weight of every row."""
        classes = self.loss.understood(labels)
        index = classes > 0 if self.labels.kind is LabelKind.SIGNS else classes
        own: Floats = np.array(self.weights)[index.astype(np.intp)]
        return own

    def _times(self, values: Floats, labels: Floats) -> Floats:
        own = self._own(labels)
        return values * (own if values.ndim == 1 else own[:, None])

    # Facts ---------------------------------------------------------------------------------------------------

    @property
    def outputs(self) -> int:  # type: ignore[override]
        """The margins of the loss."""
        return self.loss.outputs

    @property
    def labels(self) -> Labels:
        """The classes of the loss."""
        return self.loss.labels

    @property
    def lipschitz(self) -> float:
        """That of the loss, times the largest weight."""
        return max(self.weights) * self.loss.lipschitz

    @property
    def smoothness(self) -> float:
        """That of the loss, times the largest weight."""
        return max(self.weights) * self.loss.smoothness

    @property
    def curvature_lipschitz(self) -> float:
        """That of the loss, times the largest weight."""
        return max(self.weights) * self.loss.curvature_lipschitz

    @property
    def convex(self) -> bool:
        """Whether the loss is."""
        return self.loss.convex

    @property
    def flat_beyond(self) -> float:  # type: ignore[override]
        """That of the loss."""
        return self.loss.flat_beyond

    @property
    def centre(self) -> float:  # type: ignore[override]
        """That of the loss."""
        return self.loss.centre

    @property
    def corners(self) -> int:
        """Those of the loss: a row has one label, whose weight multiplies all of its residuals."""
        return self.loss.corners

    @property
    def curvature_rank(self) -> int:
        """That of the loss."""
        return self.loss.curvature_rank

    @property
    def curvature_trace(self) -> float:
        """That of the loss, times the largest weight."""
        return max(self.weights) * self.loss.curvature_trace

    @property
    def class_weights(self) -> Floats:
        """The weights."""
        return np.array(self.weights)

    @property
    def offers(self) -> frozenset[Need]:
        """What the loss offers, except for the certificate of the hinge, which holds for equal weights only."""
        return super().offers & self.loss.offers

    def largest(self, reach: float) -> float:
        return max(self.weights) * self.loss.largest(reach)

    def least(self, reach: float) -> float:
        return min(self.weights) * self.loss.least(reach)

    # Values --------------------------------------------------------------------------------------------------

    def values(self, margins: Floats, labels: Floats) -> Floats:
        return self._times(self.loss.values(margins, labels), labels)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        return self._times(self.loss.residuals(margins, labels), labels)

    def short_residuals(self, margins: Floats, labels: Floats) -> Floats:
        return self._times(self.loss.short_residuals(margins, labels), labels)

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        return self._times(self.loss.curvatures(margins, labels), labels)

    def curvature_products(self, margins: Floats, labels: Floats, along: Floats) -> Floats:
        return self._times(self.loss.curvature_products(margins, labels, along), labels)

    @property
    def has_typical_curvatures(self) -> bool:
        """Whether the loss has them."""
        return self.loss.has_typical_curvatures

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        own = self._own(labels)
        plain = residuals / (own if residuals.ndim == 1 else own[:, None])
        return own * self.loss.typical_curvatures(plain, labels)

    def best_constant(self, noisy: Floats) -> Any:
        return self.loss.best_constant(np.maximum(noisy, 0.5) * self.class_weights)
