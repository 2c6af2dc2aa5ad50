"""Private Poisson regression of counts."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.metrics import d2_tweedie_score

from ..errors import InvalidParameter
from ..problems import Loss, Poisson
from .regression import BoundedRegressor

__all__ = ["DPPoissonRegressor"]

Floats = NDArray[np.float64]

_LEAST_SHARE = 1 / 16  # of the largest count, for a mean that weights of zero stand for
_LEAST_SCORE = -700.0  # whose exponential is not 0


@dataclass(eq=False, repr=False)
class DPPoissonRegressor(BoundedRegressor):
    """Private Poisson regression for counts, with a logarithmic link.

    The mean of a count is ``exp(x . w + b)``. Minimises the mean of ``exp(x . w + b) - y (x . w + b)``, in units of
    the largest count, plus an L2 penalty, ``alpha/2 |w|^2``, on the weights of features that are scaled by their
    bounds. The alpha of scikit-learn's ``PoissonRegressor`` is this alpha times the largest count. Where the
    predicted mean exceeds the largest count, the loss grows only linearly (`dpdescent.problems.poisson`).

    Parameters
    ----------
    target_bounds : (low, high), optional
        Public bounds of the counts, and with them of the mean; counts outside are clipped. An upper bound far above
        most counts costs accuracy, because the noise is made for the largest count. None measures them privately.
    **parameters
        All others are those of `DPLogisticRegression`, without ``classes`` and ``class_weight``.

    Notes
    -----
    **Privacy.** In units of the largest count, the gradient of a row is at most as long as the row, whatever its
    count is. `dpdescent.check_pipeline` names the steps of a pipeline that learn from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(0, 1, (5000, 2))
    >>> y = generator.poisson(np.exp(1.5 * X[:, 0] - X[:, 1] + 0.5))
    >>> model = DPPoissonRegressor(1.0, target_bounds=(0, 20), random_state=0).fit(X, y)
    >>> bool(np.abs(model.coef_ - [1.5, -1]).max() < 0.3)
    True
    """

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = True
        return tags

    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        _, high = self._target_ends()
        return self._loss(), self._clipped_target(y) / high, self._assumed("counts")

    def _sensible_ends(self, low: float, high: float) -> tuple[float, float]:
        low = max(low, 0.0)
        return low, max(high, low + 1.0)

    def _target_ends(self) -> tuple[float, float]:
        low, high = super()._target_ends()
        if self.target_bounds is None:
            return max(low, 0.0), high
        if low < 0:
            raise InvalidParameter(f"target_bounds of counts must not be negative, got {low:g}: give (0, high)")
        return low, high

    def _loss(self) -> Poisson:
        """Return the loss at whose start weights are zero: a mean in the middle, or 1 without an intercept."""
        low, high = self._target_ends()
        if self.fit_intercept:
            return Poisson(math.sqrt(max(low / high, _LEAST_SHARE)))
        if high < 1:
            raise InvalidParameter(
                f"without an intercept the mean is 1 where all features are 0, above target_bounds {high:g}: use "
                "fit_intercept=True"
            )
        return Poisson(1 / high)

    def _keep(self, coefficients: Floats, bias: float) -> None:
        _, high = self._target_ends()
        start = math.log(high) + self._loss().offset if self.fit_intercept else 0.0
        self.coef_, self.intercept_ = coefficients, bias + start

    def predict(self, X: Any) -> Floats:
        """Return the mean count of every row, which is positive and at most the largest count."""
        return np.exp(np.clip(self._scores(X), _LEAST_SCORE, math.log(self._target_ends()[1])))

    def score(self, X: Any, y: Any) -> float:
        """Return D^2, the share of the deviance that is explained, as scikit-learn's `PoissonRegressor` does."""
        return float(d2_tweedie_score(y, self.predict(X), power=1))
