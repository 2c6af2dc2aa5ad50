"""Private linear regression."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted, validate_data

from ..errors import (
    MissingValue,
)
from ..ledger import Ledger
from ..problems import Adversary, Loss, Squared
from ..solvers import Progress
from .base import PrivateLinearModel
from .scaling import ColumnScaling

__all__ = ["DPLinearRegression"]

Floats = NDArray[np.float64]


class DPLinearRegression(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """Private linear regression with a bounded target.

    Minimises the mean squared error plus ``alpha``/2 |w|^2, in units in which the target spans [-1, 1]. Parameters
    are those of `DPLogisticRegression` without ``classes``, and

    target_bounds : (low, high)
        Public bounds of the target; values outside are clipped.
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        target_bounds: tuple[float, float] = (-1.0, 1.0),
        method: str = "auto",
        adjacency: str = "zero-out",
        bounds: Any = (0.0, 1.0),
        binary_features: Any = None,
        alpha: float = 0.0,
        tilt: float = 0.0,
        adversary: Adversary | None = None,
        fit_intercept: bool = True,
        random_state: Any = None,
        ledger: Ledger | None = None,
        progress: bool | Progress = False,
        noise: str = "exact",
        solver_options: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(
            epsilon,
            delta,
            method=method,
            adjacency=adjacency,
            bounds=bounds,
            binary_features=binary_features,
            alpha=alpha,
            tilt=tilt,
            adversary=adversary,
            fit_intercept=fit_intercept,
            random_state=random_state,
            ledger=ledger,
            progress=progress,
            noise=noise,
            solver_options=solver_options,
        )
        self.target_bounds = target_bounds

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        centre, half = self._target_scale()
        values = np.asarray(y, dtype=np.float64)
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
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        return np.asarray(X @ self.coef_ + self.intercept_)
