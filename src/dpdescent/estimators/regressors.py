"""Private regression: least squares, Huber's loss, the Poisson loss of counts, and a loss of the caller."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.base import RegressorMixin
from sklearn.metrics import d2_tweedie_score
from sklearn.utils.validation import check_is_fitted

from ..arrays import Floats
from ..errors import InvalidParameter, MissingValue, require_positive
from ..exact import exp
from ..problems import Huber, LabelKind, Loss, Poisson, Squared
from ..solvers import Method
from ..statement import Origin, public_fact
from .arguments import known_method
from .base import PrivateLinearModel
from .fitting import Run, fit
from .measuring import Measurement, seen_scaling
from .purchases import Purchase, TargetBounds
from .reading import read_numbers
from .scaling import ColumnScaling
from .streaming import TargetColumn, no_labels

_LARGEST_LABEL = 2.0**10  # in thresholds
_UNMEASURED = (-1.0, 1.0)  # stands for bounds of the target until they are measured


@dataclass(eq=False, repr=False)
class BoundedRegressor(RegressorMixin, PrivateLinearModel):  # type: ignore[misc]
    """What models of a number with public bounds share."""

    _: KW_ONLY
    #: Public bounds of the target; values outside are clipped. They are outer limits, like those of columns, and
    #: narrower ones are measured where that pays (``tighten``). None measures them with one or two histograms, for
    #: 2% of the budget each or more where there are few rows. ``target_bounds_`` has those in use.
    target_bounds: tuple[float, float] | None = None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.regressor_tags.poor_score = True
        return tags

    def _target_ends(self) -> tuple[float, float]:
        """Return the bounds of the target in use: given, measured, or some numbers until they are measured."""
        return self.target_bounds_

    def _outer_ends(self) -> tuple[float, float]:
        """Return the bounds of the target that were given, or else those in use."""
        if self.target_bounds is None:
            return self._target_ends()
        scaling = ColumnScaling.from_bounds(self.target_bounds, 1, what="target_bounds")
        return float(scaling.low[0]), float(scaling.high[0])

    def _fit(self, X: Any, y: Any, unit: Any = None, run: Run = fit) -> Any:
        self.target_bounds_ = _UNMEASURED
        self.target_bounds_ = self._outer_ends()
        return super()._fit(X, y, unit, run)

    def _purchases(self, tightens: Callable[[], bool]) -> list[Purchase]:
        found = super()._purchases(tightens)
        if self.target_bounds is None:
            return [*found, TargetBounds()]
        asked = "tighter target_bounds" if self.tighten else None
        return [*found, *([TargetBounds(True, asked)] if self._may_narrow() and tightens() else [])]

    def _may_narrow(self) -> bool:
        """Return whether narrower bounds of the target leave the loss what it is."""
        return True

    def _measure_target(self, y: Any, measurement: Measurement, private: bool) -> list[str]:
        """Buy the bounds of labels that nobody gave, or narrower ones; return what a statement says of it."""
        before, column = measurement.ledger.spent, y if isinstance(y, TargetColumn) else read_numbers("y", y)[:, None]
        if not private:
            seen = seen_scaling(column)
            self.target_bounds_ = self._sensible_ends(float(seen.low[0]), float(seen.high[0]))
            return []
        given = self.target_bounds is not None
        outer = self._outer_ends() if given else (-math.inf, math.inf)
        found = measurement.buy_target(column, *outer)
        if not given or (found.low, found.high) != outer:
            self.target_bounds_ = self._sensible_ends(found.low, found.high)
        what = "narrower bounds of the label were sought" if given else "bounds of the label were measured"
        clipped = "" if found.share is None else f", about {found.share:.1%} of the labels"
        return measurement.told(f"{what} by noisy histograms", before, clipped)

    def _changed_labels(self, y: Any) -> dict[str, Any]:
        """Return loss and labels where measured bounds have changed them."""
        if self.target_bounds is not None and self._target_ends() == self._outer_ends():
            return {}
        loss, labels, _ = self._loss_and_labels(no_labels(self) if isinstance(y, TargetColumn) else y)
        return {"loss": loss, "labels": labels}

    def _sensible_ends(self, low: float, high: float) -> tuple[float, float]:
        """Return measured bounds of the target, made fit for the loss."""
        return low, high

    def _assumed(self, what: str) -> list[str]:
        """Return what is public about the target, and where it came from."""
        measured = Origin.MEASURED if known_method(self.method).private else Origin.ROWS
        origin = measured if self.target_bounds is None else Origin.ARGUMENT
        return [public_fact("target_bounds", f"{what} outside are clipped", origin)]

    def _clipped_target(self, y: Any) -> Floats:
        values = read_numbers("y", y)
        if not np.isfinite(values).all():
            raise MissingValue("y has NaN or infinite cells: drop those rows or fill them in")
        return np.clip(values, *self._target_ends())

    def fit(self, X: Any, y: ArrayLike | None = None, *, unit: Any = None, **parameters: Any) -> Self:
        """Train on the rows of ``X`` with targets ``y``. This is the only call that reads the private data.

        Parameters
        ----------
        X : array_like, DataFrame or sparse matrix of shape (n, d)
            The features.
        y : array_like of shape (n,)
            The target of each row, clipped to ``target_bounds``.
        unit : array_like of shape (n,), optional
            To whom each row belongs, where the unit of privacy is all rows of one person.

        Returns
        -------
        self : object
            The fitted model.
        """
        self._require_no_weights(parameters)
        self._fit(X, y, unit)
        self._keep(self._coefficients, float(self._bias))
        if self._noise_factor is not None:
            self._noise_factor = self._coefficient_unit() * self._noise_factor
        if self._constant_noise is not None:
            self._constant_noise = self._coefficient_unit() * self._constant_noise
        self.coef_noise_ = self._deviations()
        return self

    @abstractmethod
    def _keep(self, coefficients: Floats, bias: float) -> None:
        """Keep what was learnt as ``coef_`` and ``intercept_``, in the caller's units."""

    def _scores(self, X: Any, *, separate: bool = False) -> Floats:
        """Return the linear score of every row."""
        check_is_fitted(self)
        X = self._read(X)
        return np.asarray(self._features.product(X, self.coef_, separate=separate) + self.intercept_)

    @abstractmethod
    def row_scores(self, X: Any) -> Floats:
        """Return the prediction of every row, with the same bits beside any other rows: `dpdescent.evaluate` asks."""


@dataclass(eq=False, repr=False)
class ScaledRegressor(BoundedRegressor):
    """What linear models share whose score is the target, in units that suit the loss."""

    @abstractmethod
    def _loss(self) -> Loss: ...

    def _scored(self) -> str:
        return "the target"

    @abstractmethod
    def _target_scale(self) -> tuple[float, float]:
        """Return what counts as 0 of the target, and what counts as 1 beyond it."""

    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        centre, unit = self._target_scale()
        scaled = (self._clipped_target(y) - centre) / unit
        # On the grid of the features, so that residuals are exact functions of the row.
        return self._loss(), np.rint(scaled * 2.0**20) * 2.0**-20, self._assumed("values")

    def _coefficient_unit(self) -> float:
        return self._target_scale()[1]

    def _keep(self, coefficients: Floats, bias: float) -> None:
        centre, unit = self._target_scale()
        self.coef_ = unit * coefficients
        self.intercept_ = float(unit * bias + centre)

    def predict(self, X: Any) -> Floats:
        """Return the predicted target of every row, within ``target_bounds``."""
        return np.clip(self._scores(X), *self._target_ends())

    def row_scores(self, X: Any) -> Floats:
        """Return what `predict` does, with the same bits beside any other rows."""
        return np.clip(self._scores(X, separate=True), *self._target_ends())


@dataclass(eq=False, repr=False)
class DPLinearRegression(ScaledRegressor):
    """Private linear regression with a bounded target.

    Minimises the mean squared error plus an L2 penalty, ``alpha/2 |w|^2``, in units in which the target spans
    [-1, 1].

    Parameters
    ----------
    target_bounds : (low, high), optional
        Public bounds of the target. Values outside are clipped, and predictions stay inside. They are outer limits:
        with 6 effective rows or more, narrower ones are measured by a histogram, for 2% of the budget or more where
        there are few rows, unless ``tighten`` is False or other parameters are in units of them. None measures them
        in the same way. ``target_bounds_`` has the result. With a heavy tail about half a percent of the rows is
        clipped, or more where noise hides more.
    loss : "squared" or Loss
        A `dpdescent.problems.Loss` of your own is minimised instead of the squared error, in units in which the
        bounds of the target are those of its labels. The guarantee then rests on the bounds that it declares.
    **parameters
        All others are those of `DPLogisticRegression`, without ``classes`` and ``class_weight``.

    Notes
    -----
    **Privacy.** As for `DPLogisticRegression`. The bounds of the target limit what one row can change.
    `dpdescent.check_pipeline` names the steps of a pipeline that learn from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(0, 1, (5000, 2))
    >>> y = 3 * X[:, 0] - X[:, 1] + generator.normal(0, 0.1, 5000)
    >>> model = DPLinearRegression(1.0, target_bounds=(-2, 4), random_state=0).fit(X, y)
    >>> bool(np.abs(model.coef_ - [3, -1]).max() < 0.3)
    True
    """

    _: KW_ONLY
    loss: str | Loss = "squared"

    def require_settings(self) -> tuple[Method, Any]:
        """Return the method and its settings, or raise for a parameter that no table could be fitted with."""
        if isinstance(self.loss, Loss):
            _require_linear(self.loss)
        elif not isinstance(self.loss, str) or self.loss not in self._named_losses():
            known = " or ".join(repr(each) for each in self._named_losses())
            raise InvalidParameter(f"unknown loss {self.loss!r:.80}: choose {known}, or give a Loss of numbers")
        return super().require_settings()

    def _named_losses(self) -> dict[str, Loss | None]:
        """Return the losses that have a name; that of counts depends on the bounds."""
        return {"squared": Squared()}

    def _loss(self) -> Loss:
        named = self.loss if isinstance(self.loss, Loss) else self._named_losses()[self.loss]
        return named or Squared()

    def _may_narrow(self) -> bool:
        return not isinstance(self.loss, Loss)  # whose labels are in units of the bounds

    def _target_scale(self) -> tuple[float, float]:
        (low, high), labels = self._target_ends(), self._loss().labels
        unit = (high - low) / (labels.high - labels.low)
        return (low + high) / 2 - unit * (labels.low + labels.high) / 2, unit


def _require_linear(loss: Loss) -> None:
    """Raise `InvalidParameter` unless a loss is of numbers, and its score stands for the number itself."""
    name, labels = type(loss).__name__, loss.labels
    if labels.kind is not LabelKind.NUMBERS or loss.outputs != 1:
        raise InvalidParameter(
            f"{name} is a loss of {labels.kind}, and a regression takes one of numbers with one margin, "
            "whose labels are Labels.numbers(low, high): use DPLogisticRegression for a loss of two classes"
        )
    width = labels.high - labels.low
    if max(abs(labels.low), abs(labels.high)) > _LARGEST_LABEL or width < 1 / _LARGEST_LABEL:
        raise InvalidParameter(
            f"{name} is for labels from {labels.low:g} to {labels.high:g}: choose units in which they are at most "
            f"{_LARGEST_LABEL:g} and at least 1/{_LARGEST_LABEL:g} apart, for instance Labels.numbers(-1, 1)"
        )
    numbers = np.linspace(labels.low, labels.high, 9)
    below, above = (loss.residuals(numbers + step, numbers) for step in (-width / 8, width / 8))
    if not ((below <= 0) & (above >= 0)).all():
        raise InvalidParameter(
            f"{name} is not least where the score is the label, so that the score is no prediction of it: use a loss "
            "of their difference, or DPPoissonRegressor for counts"
        )


@dataclass(eq=False, repr=False)
class DPHuberRegressor(ScaledRegressor):
    """Private linear regression that is robust to outliers in the target, by Huber's loss.

    Minimises the mean of Huber's loss, which is ``(score - y)^2/2`` up to the ``threshold`` and linear beyond it,
    plus an L2 penalty, ``alpha/2 |w|^2``.

    Parameters
    ----------
    threshold : float, optional
        The residual from which the loss is linear, public and in units of the target. By default a tenth of the width
        of ``target_bounds_``; at least 1/2048 of it.
    **parameters
        All others are those of `DPLinearRegression`.

    Notes
    -----
    scikit-learn's ``HuberRegressor`` estimates a scale sigma from the rows and is linear from ``epsilon`` sigma. A
    threshold of that size, and an ``alpha`` of its alpha times sigma/n, give the same coefficients as the privacy
    parameter epsilon grows.

    **Privacy.** The gradient of a row is at most the threshold times the length of the row, however far its target is
    from the prediction. Outliers therefore need no more noise than other rows, and the bounds of the target hardly
    matter. `dpdescent.check_pipeline` names the steps of a pipeline that learn from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(0, 1, (5000, 2))
    >>> y = 3 * X[:, 0] - X[:, 1] + generator.normal(0, 0.1, 5000)
    >>> y[::50] = 10  # one in fifty is an error
    >>> model = DPHuberRegressor(1.0, target_bounds=(-10, 10), threshold=0.5, random_state=0).fit(X, y)
    >>> bool(np.abs(model.coef_ - [3, -1]).max() < 0.3)
    True
    """

    _: KW_ONLY
    threshold: float | None = None

    def _target_scale(self) -> tuple[float, float]:
        # The rules of the methods are made for slopes up to 1, so the threshold counts as 1, and not the bounds.
        low, high = self._target_ends()
        if self.threshold is None:
            return (low + high) / 2, (high - low) / 10
        unit = require_positive("threshold", self.threshold)
        if self.target_bounds is not None and (high - low) / 2 > _LARGEST_LABEL * unit:
            raise InvalidParameter(
                f"threshold {unit:g} is below 1/2048 of the width of target_bounds, {high - low:g}: raise it, or "
                "give narrower bounds, which clip the target"
            )
        return (low + high) / 2, max(unit, (high - low) / 2 / _LARGEST_LABEL)

    def _sensible_ends(self, low: float, high: float) -> tuple[float, float]:
        if self.threshold is None:
            return low, high
        centre, reach = (low + high) / 2, min((high - low) / 2, _LARGEST_LABEL * self.threshold)
        if not centre - reach < centre < centre + reach:  # the threshold is nothing beside numbers of this size
            return low, high
        return centre - reach, centre + reach

    def _loss(self) -> Loss:
        low, high = self._target_ends()
        return Huber(1.0, (high - low) / 2 / self._target_scale()[1])


_LEAST_SHARE = 1 / 16  # of the largest count, for a mean that weights of zero stand for
_LEAST_SCORE = -700.0  # whose exponential is not 0


@dataclass(eq=False, repr=False)
class CountRegressor(BoundedRegressor):
    """What models of counts share: a logarithmic link, and the Poisson loss in units of the largest count."""

    def _counts(self) -> bool:
        """Return whether the target is a count; if not, all is as it is without this class."""
        return True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.positive_only = self._counts()
        return tags

    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        if not self._counts():
            return super()._loss_and_labels(y)  # type: ignore[safe-super]
        _, high = self._target_ends()
        return self._count_loss(), self._clipped_target(y) / high, self._assumed("counts")

    def _scored(self) -> str:
        return "the logarithm of the mean count" if self._counts() else super()._scored()

    def _coefficient_unit(self) -> float:
        return 1.0 if self._counts() else super()._coefficient_unit()

    def _sensible_ends(self, low: float, high: float) -> tuple[float, float]:
        if not self._counts():
            return super()._sensible_ends(low, high)
        low = max(low, 0.0)
        return low, max(high, low + 1.0)

    def _target_ends(self) -> tuple[float, float]:
        low, high = super()._target_ends()
        return (max(low, 0.0), high) if self._counts() else (low, high)

    def _outer_ends(self) -> tuple[float, float]:
        low, high = super()._outer_ends()
        if self._counts() and self.target_bounds is not None and low < 0:
            raise InvalidParameter(f"target_bounds of counts must not be negative, got {low:g}: give (0, high)")
        return low, high

    def _count_loss(self) -> Poisson:
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
        if self._counts():
            high = self._target_ends()[1]
            start = math.log(high) + self._count_loss().offset if self.fit_intercept else 0.0
            self.coef_, self.intercept_ = coefficients, bias + start
        else:
            super()._keep(coefficients, bias)  # type: ignore[safe-super]

    def predict(self, X: Any) -> Floats:
        """Return the predicted target of every row; the mean of a count is positive and at most the largest one."""
        if not self._counts():
            numbers: Floats = super().predict(X)
            return numbers
        return np.exp(np.clip(self._scores(X), _LEAST_SCORE, math.log(self._target_ends()[1])))

    def row_scores(self, X: Any) -> Floats:
        """Return what `predict` does, with the same bits beside any other rows."""
        if not self._counts():
            return super().row_scores(X)  # type: ignore[safe-super]
        return exp(np.clip(self._scores(X, separate=True), _LEAST_SCORE, math.log(self._target_ends()[1])))

    def score(self, X: Any, y: Any) -> float:
        """Return the share that is explained: D^2, of the deviance of counts, or R^2, of the variance of numbers."""
        if not self._counts():
            return float(super().score(X, y))
        return float(d2_tweedie_score(y, self.predict(X), power=1))


@dataclass(eq=False, repr=False)
class DPPoissonRegressor(CountRegressor):
    """Private Poisson regression for counts, with a logarithmic link.

    The mean of a count is ``exp(x . w + b)``. Minimises the mean of ``exp(x . w + b) - y (x . w + b)``, in units of
    the largest count, plus an L2 penalty, ``alpha/2 |w|^2``, on the weights of features that are scaled by their
    bounds. The alpha of scikit-learn's ``PoissonRegressor`` is this alpha times the largest count. Where the
    predicted mean exceeds the largest count, the loss grows only linearly (`dpdescent.problems.Poisson`).

    Parameters
    ----------
    target_bounds : (low, high), optional
        Public bounds of the counts, and with them of the mean; counts outside are clipped. As for
        `DPLinearRegression` they are outer limits, and narrower ones are measured where that pays, because the noise
        is made for the largest count. None measures them privately.
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
