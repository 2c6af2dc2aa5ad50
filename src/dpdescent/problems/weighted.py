r"""A loss of classes in which every class has a public weight: :math:`w_y \, l(t, y)`.

Weights are at most 1, so that every bound of the loss itself holds for the weighted one. A row's residual and
curvature are multiplied by the weight of its label before anything is clipped, so what a row adds is still a function
of that row and of public numbers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidParameter
from .contract import Loss
from .labels import LabelKind, Labels
from .needs import Need

__all__ = ["Weighted"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Weighted(Loss):
    """A loss of classes times the public weight of the row's class.

    Parameters
    ----------
    loss : Loss
        Of two or more classes.
    weights : tuple of float
        One for each class in order, above 0 and at most 1.
    """

    loss: Loss
    weights: tuple[float, ...]

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
