"""Private linear regression."""

from __future__ import annotations

from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..errors import (
    MissingValue,
)
from ..problems import Loss, Squared
from .base import PrivateLinearModel
from .reading import read_numbers, read_table
from .scaling import ColumnScaling

__all__ = ["DPLinearRegression"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class DPLinearRegression(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Private linear regression with a bounded target.

    Minimises the mean squared error plus ``alpha``/2 |w|^2, in units in which the target spans [-1, 1]. Parameters
    are those of `DPLogisticRegression` without ``classes``, and

    target_bounds : (low, high)
        Public bounds of the target; values outside are clipped.
    """

    _: KW_ONLY
    target_bounds: tuple[float, float] = (-1.0, 1.0)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        centre, half = self._target_scale()
        values = read_numbers("y", y)
        if not np.isfinite(values).all():
            raise MissingValue("y has NaN or infinite cells: drop those rows or fill them in")
        scaled = (np.clip(values, centre - half, centre + half) - centre) / half
        # On the grid of the features, so that residuals are exact functions of the row.
        return Squared(), np.rint(scaled * 2.0**20) * 2.0**-20, ["target_bounds: values outside are clipped"]

    def _target_scale(self) -> tuple[float, float]:
        scaling = ColumnScaling.from_bounds(self.target_bounds, 1)
        return float(scaling.low[0] + scaling.high[0]) / 2, float(scaling.high[0] - scaling.low[0]) / 2

    def fit(self, X: Any, y: ArrayLike, **parameters: Any) -> DPLinearRegression:
        """Train on the rows of ``X`` with targets ``y``; the only call that touches the data."""
        self._require_no_weights(parameters)
        self._fit(X, y)
        centre, half = self._target_scale()
        self.coef_ = half * self._coefficients
        self.intercept_ = float(half * self._bias + centre)
        return self

    def predict(self, X: Any) -> Floats:
        """Return the predicted target of every row."""
        check_is_fitted(self)
        X = read_table(self, X, reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)
