"""The multinomial logistic loss of K classes."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidParameter, require_positive_integer
from ..exact import exp, log
from .contract import Loss
from .labels import Labels

__all__ = ["Multinomial"]

Floats = NDArray[np.float64]


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

    def _own(self, labels: Floats) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
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
