"""Estimators in the manner of scikit-learn: validate, build a curator, call a solver, keep what it returns.

What is public is an argument and never read from the rows: bounds, classes, the privacy parameters. The number of
rows n is public under both relations. What the caller let us assume is listed in ``privacy_["assumed_public"]``.
"""

from __future__ import annotations

import warnings
from abc import ABCMeta, abstractmethod
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.special import log_softmax, softmax
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, check_random_state, validate_data

from .accounting import currency_named
from .curator import Curator, make_noise
from .errors import (
    BudgetExhausted,
    InfiniteValue,
    InvalidParameter,
    MissingValue,
    PrivacyWarning,
    UnknownLabel,
    require_finite,
)
from .exact import FeatureGrid
from .ledger import Ledger
from .noise import Randomness
from .problems import L2, Hinge, HuberisedHinge, LinearProblem, Logistic, Loss, Multinomial, Squared
from .scaling import ColumnScaling
from .solvers import METHODS, Progress, SolverResult
from .sources import ArraySource

__all__ = ["DPLinearRegression", "DPLinearSVC", "DPLogisticRegression"]

Floats = NDArray[np.float64]


class _PrivateLinearModel(BaseEstimator, metaclass=ABCMeta):  # type: ignore[misc]
    """What the three models share."""

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        method: str = "agd",
        adjacency: str = "zero-out",
        bounds: Any = (0.0, 1.0),
        alpha: float = 0.0,
        fit_intercept: bool = True,
        random_state: Any = None,
        ledger: Ledger | None = None,
        progress: bool | Progress = False,
        noise: str = "exact",
        solver_options: Mapping[str, Any] | None = None,
    ) -> None:
        self.epsilon = epsilon
        self.delta = delta
        self.method = method
        self.adjacency = adjacency
        self.bounds = bounds
        self.alpha = alpha
        self.fit_intercept = fit_intercept
        self.random_state = random_state
        self.ledger = ledger
        self.progress = progress
        self.noise = noise
        self.solver_options = solver_options

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.non_deterministic = self.random_state is None
        return tags

    @abstractmethod
    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        """Return the loss, the labels it understands and what had to be assumed public."""

    def _require_no_weights(self, parameters: Mapping[str, Any]) -> None:
        for name in parameters:
            if name == "sample_weight":
                raise InvalidParameter(
                    "sample_weight is not supported: a weight multiplies what one row can change, so it would "
                    "change the guarantee from row to row; resample the table instead"
                )
            raise TypeError(f"fit() got an unexpected keyword argument {name!r}")

    def _fit(self, X: Any, y: Any) -> SolverResult:
        settings = _settings(self.method, self.solver_options)
        currency = currency_named(settings.currency, self.epsilon, self.delta)
        own = Ledger(self.epsilon, self.delta, currency=currency, relation=self.adjacency)
        _require_account(self.ledger, own)
        seed = _seed(self.random_state)
        noise = make_noise(self.noise, seed)
        X, y = validate_data(
            self,
            X,
            y,
            accept_sparse="csr",
            dtype=(np.float64, np.float32),
            ensure_all_finite=False,
            y_numeric=isinstance(self, RegressorMixin),
        )
        _require_finite_cells(X, getattr(self, "feature_names_in_", None))
        scaling = ColumnScaling.from_bounds(self.bounds, X.shape[1], names=getattr(self, "feature_names_in_", None))
        loss, labels, assumed = self._loss_and_labels(y)
        grid = FeatureGrid(1.0, X.shape[1] + bool(self.fit_intercept))
        problem = LinearProblem(loss, grid, L2(require_finite("alpha", self.alpha)), bool(self.fit_intercept))
        source = ArraySource(_placed(X, scaling, grid, bool(self.fit_intercept)), labels, grid)
        curator = Curator(
            source,
            problem,
            own,
            X.shape[0],
            noise=noise,
            batch_rate=settings.batch_rate,
            randomness=Randomness(seed),
            account=self.ledger,
        )
        result: SolverResult = _known_method(self.method).solve(curator, settings, _listener(self.progress))
        weights = result.weights
        bias = weights[-1] if self.fit_intercept else np.zeros(weights.shape[1:])
        self._coefficients, self._bias = scaling.original_units(weights[: X.shape[1]], np.asarray(bias))
        self.n_iter_ = result.iterations
        self.privacy_ = own.statement() | {
            "method": self.method,
            "randomness": noise.description,
            "spent_on": _spent_on(own),
            "assumed_public": [f"the number of rows: {X.shape[0]}", "bounds: cells outside are clipped", *assumed],
        }
        return result


class _LinearClassifier(ClassifierMixin, _PrivateLinearModel):  # type: ignore[misc]
    """Binary and multiclass decisions from linear scores."""

    classes: Any

    def fit(self, X: Any, y: Any, **parameters: Any) -> _LinearClassifier:
        """Train on the rows of ``X`` with labels ``y``; the only call that touches the data.

        Parameters
        ----------
        X : array_like, DataFrame or CSR of shape (n, d)
        y : array_like of shape (n,)
        """
        self._require_no_weights(parameters)
        self._fit(X, y)
        coefficients, bias = self._coefficients, self._bias
        self.coef_ = coefficients.T if coefficients.ndim == 2 else coefficients[None, :]
        self.intercept_ = np.atleast_1d(bias)
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # A few dozen rows cannot be learnt from at any useful privacy.
        tags.classifier_tags.poor_score = True
        tags.classifier_tags.multi_class = self._multiclass
        return tags

    _multiclass = True

    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        check_classification_targets(y)
        labels = np.asarray(y)
        if self.classes is None:
            warnings.warn(
                "classes were read from y, which is not private: pass classes=(...), which are public",
                PrivacyWarning,
                stacklevel=4,
            )
            self.classes_ = np.unique(labels)
            assumed = ["classes: read from y because they were not given"]
        else:
            self.classes_ = np.unique(np.asarray(self.classes))
            assumed = []
        if self.classes_.size < 2:
            raise InvalidParameter(
                "there is only one class: a classifier needs two or more; pass classes=(...) if the rest is missing"
            )
        index = np.searchsorted(self.classes_, labels)
        index = np.minimum(index, self.classes_.size - 1)
        if not np.array_equal(self.classes_[index], labels):
            raise UnknownLabel("y has labels outside classes: correct them, or add them to classes")
        if self.classes_.size == 2:
            return self._binary_loss(), np.where(index > 0, 1.0, -1.0), assumed
        return self._multiclass_loss(self.classes_.size), index.astype(np.float64), assumed

    @abstractmethod
    def _binary_loss(self) -> Loss: ...

    @abstractmethod
    def _multiclass_loss(self, classes: int) -> Loss: ...

    def decision_function(self, X: Any) -> Floats:
        """Return linear scores: (n,) for two classes, (n, K) for more."""
        check_is_fitted(self)
        X = validate_data(self, X, accept_sparse="csr", dtype=(np.float64, np.float32), reset=False)
        scores: Floats = X @ self.coef_.T + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of every row."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[index]
        return predicted


class DPLogisticRegression(_LinearClassifier):
    """Private logistic regression, binary and multinomial.

    Minimises the mean log-loss plus ``alpha``/2 |w|^2 under (epsilon, delta)-differential privacy. There is no
    learning rate and no number of iterations to choose.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee. Take delta well below 1/n.
    method : str, default "agd"
        The solver; see ``dpdescent.solvers.METHODS``.
    adjacency : {"zero-out", "replace-one"}
        What one row may change: it is added or removed (n is public), or replaced.
    bounds : (low, high)
        Public bounds of the features, numbers or one number a column. Cells outside are clipped.
    alpha : float
        Weight of the L2 penalty; the intercept is not penalised.
    fit_intercept : bool
    classes : array_like, optional
        The public classes. Without it they are read from y, with a warning.
    random_state : int, RandomState or None
        None takes the operating system's generator: the only choice for a release.
    ledger : Ledger, optional
        An account with a larger budget, which pays for this fit too. It must use the solver's currency.
    progress : bool or callable
        Show a bar of the budget spent, or call with its share.
    noise : {"exact", "float"}
    solver_options : mapping, optional
        Settings of the solver.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (K, d)
    intercept_ : ndarray of shape (1,) or (K,)
    classes_ : ndarray
    n_features_in_ : int
    n_iter_ : int
    privacy_ : dict
        The privacy statement, as plain data.

    Notes
    -----
    **Privacy** The fitted model is (epsilon, delta)-DP for one row under ``adjacency``: every touch of the data
    is accepted by a filter before it happens. Errors about malformed input are outside the guarantee.

    Examples
    --------
    >>> from dpdescent import DPLogisticRegression, load_dataset
    >>> data = load_dataset("synthetic", n=5000)
    >>> model = DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds=data.bounds, classes=data.classes)
    >>> model.fit(data.X, data.y).score(data.X, data.y) > 0.7
    True
    """

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        method: str = "agd",
        adjacency: str = "zero-out",
        bounds: Any = (0.0, 1.0),
        alpha: float = 0.0,
        fit_intercept: bool = True,
        classes: Any = None,
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
            alpha=alpha,
            fit_intercept=fit_intercept,
            random_state=random_state,
            ledger=ledger,
            progress=progress,
            noise=noise,
            solver_options=solver_options,
        )
        self.classes = classes

    def _binary_loss(self) -> Loss:
        return Logistic()

    def _multiclass_loss(self, classes: int) -> Loss:
        return Multinomial(classes)

    def predict_proba(self, X: Any) -> Floats:
        """Return the probability of every class."""
        return np.asarray(softmax(self._class_scores(X), axis=1))

    def predict_log_proba(self, X: Any) -> Floats:
        """Return the logarithm of `predict_proba`."""
        return np.asarray(log_softmax(self._class_scores(X), axis=1))

    def _class_scores(self, X: Any) -> Floats:
        scores = self.decision_function(X)
        return np.column_stack([np.zeros_like(scores), scores]) if scores.ndim == 1 else scores


class DPLinearSVC(_LinearClassifier):
    """Private linear support vector machine for two classes.

    Minimises the mean hinge loss plus ``alpha``/2 |w|^2. Parameters are those of `DPLogisticRegression`, and

    loss : {"huberised-hinge", "hinge"}
        The huberised hinge (half-width 0.5) is smooth, which steps along a gradient need.
    """

    _multiclass = False

    def __init__(
        self,
        epsilon: float = 1.0,
        delta: float = 1e-6,
        *,
        loss: str = "huberised-hinge",
        method: str = "agd",
        adjacency: str = "zero-out",
        bounds: Any = (0.0, 1.0),
        alpha: float = 0.0,
        fit_intercept: bool = True,
        classes: Any = None,
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
            alpha=alpha,
            fit_intercept=fit_intercept,
            random_state=random_state,
            ledger=ledger,
            progress=progress,
            noise=noise,
            solver_options=solver_options,
        )
        self.loss = loss
        self.classes = classes

    def _binary_loss(self) -> Loss:
        if self.loss == "huberised-hinge":
            return HuberisedHinge()
        if self.loss == "hinge":
            return Hinge()
        raise InvalidParameter(f"unknown loss {self.loss!r}: choose 'huberised-hinge' or 'hinge'")

    def _multiclass_loss(self, classes: int) -> Loss:
        raise InvalidParameter(
            f"Only binary classification is supported. The type of the target is multiclass: {classes} classes; "
            "wrap the model in sklearn.multiclass.OneVsRestClassifier and divide epsilon, or use "
            "DPLogisticRegression"
        )


class DPLinearRegression(RegressorMixin, _PrivateLinearModel):  # type: ignore[misc]
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
        method: str = "agd",
        adjacency: str = "zero-out",
        bounds: Any = (0.0, 1.0),
        alpha: float = 0.0,
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
            alpha=alpha,
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


def _known_method(name: str) -> Any:
    if name not in METHODS:
        raise InvalidParameter(f"unknown method {name!r}: choose one of {', '.join(sorted(METHODS))}")
    return METHODS[name]


def _settings(method: str, options: Mapping[str, Any] | None) -> Any:
    try:
        return _known_method(method).settings(**(options or {}))
    except TypeError as problem:
        raise InvalidParameter(f"solver_options of {method!r} do not fit: {problem}") from None


def _seed(random_state: Any) -> int | None:
    if random_state is None:
        return None
    if isinstance(random_state, int | np.integer):
        return int(random_state)
    return int(check_random_state(random_state).randint(2**31 - 1))


def _require_account(account: Ledger | None, own: Ledger) -> None:
    """Refuse before anything is charged if the account cannot pay for the whole fit."""
    if account is None:
        return
    if (account.currency, account.relation) != (own.currency, own.relation):
        raise InvalidParameter(
            f"the ledger keeps {account.currency.name} under {account.relation}, this fit needs {own.currency.name} "
            f"under {own.relation}: open the ledger with those"
        )
    if account.remaining < own.budget:
        raise BudgetExhausted(
            f"the ledger has {account.remaining:.6g} {account.currency.name} left and this fit needs up to "
            f"{own.budget:.6g}: lower epsilon, or open a ledger with a larger budget"
        )


def _require_finite_cells(X: Any, names: Any) -> None:
    cells = X.data if sparse.issparse(X) else X
    if np.isfinite(cells.sum(dtype=np.float64)) or np.isfinite(cells).all():
        return
    columns = X.indices if sparse.issparse(X) else np.broadcast_to(np.arange(X.shape[1]), X.shape)
    bad = int(columns[~np.isfinite(cells)].min())
    named = f"column {bad}" if names is None else f"column {names[bad]!r}"
    if pd.isna(cells).any():
        raise MissingValue(f"Input X contains NaN, first in {named}: fill the cells in or drop the rows")
    raise InfiniteValue(f"Input X contains infinity (inf), first in {named}: replace the cells or drop the rows")


def _placed(X: Any, scaling: ColumnScaling, grid: FeatureGrid, constant: bool) -> Any:
    """Return the scaled rows on the grid, with a constant column if there is an intercept.

    Dense rows go block by block, so that no second copy of the table is ever in memory.
    """
    if sparse.issparse(X):
        scaled = scaling.apply(X)
        if constant:
            scaled = sparse.hstack([scaled, np.ones((X.shape[0], 1))], format="csr")
        return grid.place(scaled)
    placed = np.empty((X.shape[0], grid.dimension))
    for start in range(0, X.shape[0], 2**14):
        block = scaling.apply(X[start : start + 2**14])
        if constant:
            block = np.column_stack([block, np.ones(block.shape[0])])
        placed[start : start + 2**14] = grid.place(block)
    return placed


def _listener(progress: bool | Progress) -> Progress | None:
    if progress is True:
        from .progress import budget_bar

        return budget_bar()
    return progress if callable(progress) else None


def _spent_on(ledger: Ledger) -> dict[str, float]:
    """Return the share of the budget that went to each kind of question."""
    spent: dict[str, float] = {}
    for entry in ledger.entries:
        spent[entry.label] = spent.get(entry.label, 0.0) + entry.price / ledger.budget
    return spent
