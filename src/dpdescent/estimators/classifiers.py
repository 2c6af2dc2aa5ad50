"""Private linear classifiers."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..curator import Curator
from ..errors import (
    InvalidParameter,
    PrivacyWarning,
    require_open_unit,
)
from ..problems import Hinge, HuberisedHinge, Logistic, Loss, Multinomial, Weighted
from .base import PrivateLinearModel
from .reading import class_positions
from .settings import known_method
from .weights import balanced_weights, weights_of_classes

__all__ = ["DPLinearSVC", "DPLogisticRegression"]

Floats = NDArray[np.float64]


@dataclass(eq=False, repr=False)
class _LinearClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """Binary and multiclass decisions from linear scores."""

    _: KW_ONLY
    classes: Any = None
    class_weight: Any = None

    def fit(self, X: Any, y: Any, *, unit: Any = None, **parameters: Any) -> _LinearClassifier:
        """Train on the rows of ``X`` with labels ``y``; the only call that touches the data.

        Parameters
        ----------
        X : array_like, DataFrame or CSR of shape (n, d)
        y : array_like of shape (n,)
        unit : array_like of shape (n,), optional
            Whose row each is, where the unit of privacy is all rows of one person.
        """
        self._require_no_weights(parameters)
        self._fit(X, y, unit)
        coefficients, bias = self._coefficients, self._bias
        self.coef_ = coefficients.T if coefficients.ndim == 2 else coefficients[None, :]
        self.intercept_ = np.atleast_1d(bias)
        deviations = self._deviations()
        self.coef_noise_ = None if deviations is None else np.tile(deviations, (self.coef_.shape[0], 1))
        return self

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        # A few dozen rows cannot be learnt from at any useful privacy.
        tags.classifier_tags.poor_score = True
        tags.classifier_tags.multi_class = self._multiclass
        return tags

    _multiclass = True

    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        labels = np.asarray(y)
        if self.classes is None:
            check_classification_targets(labels)
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
        self.class_weight_: dict[Any, float] | None = None
        weights = None if self.class_weight is None else weights_of_classes(self.class_weight, self.classes_)
        if weights is not None:
            assumed.append("class_weight: the weight of each class")
        index = class_positions(self.classes_, labels)
        if self.classes_.size == 2:
            loss, coded = self._binary_loss(), np.where(index > 0, 1.0, -1.0)
        else:
            loss, coded = self._multiclass_loss(self.classes_.size), index.astype(np.float64)
        if self.class_weight is not None:
            # What goes with no weights is refused before the counts are bought.
            loss = Weighted(loss, (1.0,) * self.classes_.size) if weights is None else self._weighted(loss, weights)
        return loss, coded, assumed

    def _weighted(self, loss: Loss, weights: Floats) -> Loss:
        """Keep the weights of the classes; return the loss with weights of at most 1, for which its bounds hold."""
        self.class_weight_ = dict(zip(self.classes_.tolist(), weights.tolist(), strict=True))
        return Weighted(loss, tuple((weights / weights.max()).tolist()))

    def _bought(self) -> list[str]:
        unknown = self.class_weight is not None and self.class_weight_ is None
        return [*super()._bought(), *(["class_weight"] if unknown else [])]

    def _reweighted(self, loss: Loss, curator: Curator) -> Loss:
        if self.class_weight is None or self.class_weight_ is not None:
            return loss
        assert isinstance(loss, Weighted), "weights of one stand in for those to be bought"
        return self._weighted(loss.loss, balanced_weights(curator, known_method(self.method).private))

    def _heaviest(self) -> float:
        return 1.0 if self.class_weight_ is None else max(self.class_weight_.values())

    @abstractmethod
    def _binary_loss(self) -> Loss: ...

    @abstractmethod
    def _multiclass_loss(self, classes: int) -> Loss: ...

    def decision_function(self, X: Any) -> Floats:
        """Return linear scores: (n,) for two classes, (n, K) for more."""
        check_is_fitted(self)
        X = self._read(X)
        scores: Floats = self._features.product(X, self.coef_.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the class of every row."""
        scores = self.decision_function(X)
        index = (scores > 0).astype(np.intp) if scores.ndim == 1 else scores.argmax(axis=1)
        predicted: NDArray[Any] = self.classes_[index]
        return predicted

    def predict_at_rate(self, X: Any, rate: float) -> NDArray[Any]:
        """Return the second of two classes for the share ``rate`` of the rows of ``X`` with the largest scores.

        A rare class is seldom the likelier one for any row, so that `predict` may never name it. The rows are those
        that are predicted, and the share is public: how common the class is, or how many rows can be acted upon. Rows
        that score the same as the last of them are left out. Costs no privacy: only released coefficients are used.
        """
        require_open_unit("rate", rate)
        scores = self.decision_function(X)
        if scores.ndim > 1:
            raise InvalidParameter("predict_at_rate chooses between two classes: use predict for more")
        wanted = round(rate * scores.size)
        above = scores > np.sort(scores)[-wanted - 1] if wanted < scores.size else np.ones(scores.size, np.bool_)
        predicted: NDArray[Any] = self.classes_[above.astype(np.intp)]
        return predicted


class DPLogisticRegression(_LinearClassifier):
    """Private logistic regression, binary and multinomial.

    Minimises the mean log-loss plus ``alpha``/2 |w|^2 under (epsilon, delta)-differential privacy. There is no
    learning rate and no number of iterations to choose.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee. Take delta well below 1/n.
    method : str, default "auto"
        The solver; see ``dpdescent.solvers.METHODS``.
    adjacency : {"zero-out", "replace-one"}
        What one row may change: it is added or removed (n is public), or replaced.
    bounds : (low, high), optional
        Public bounds of the features, numbers or one number per column. Cells outside are clipped, in prediction too.
        None, or NaN for a column, measures them: two histograms of every such column that is not declared to be 0 or
        1, for 4% of the budget, or more where there are few rows and many columns.
    tighten : bool, optional
        Whether bounds that are given are measured too, and made narrower where a column needs less than a quarter of
        them. By default where that costs 2% of the budget, or 4% if there is such a column: from 283 sqrt(c)
        effective rows, n mu, for c columns that are not declared to be 0 or 1. Bounds stay as they are where other
        parameters are in units of them: ``alpha``, ``adversary``, ``knots`` and ``solver_options``.
    binary_features : array_like, optional
        Public: which columns are 0 or 1, as a mask, positions or names (``binary_features_`` of `BoundedEncoder`, or
        of a data set). Then `auto` need not guess it, which helps most at small epsilon. It affects no guarantee.
    alpha : float
        Weight of the L2 penalty; the intercept is not penalised.
    tilt : float
        Rows with large losses weigh more: 0 minimises the mean loss, a large tilt the largest one. Needs method
        "outpert".
    adversary : Adversary, optional
        Minimise the loss of rows that somebody moves as far as this allows. Two classes; needs method "outpert".
    fit_intercept : bool
    unit : str, optional
        The name of a column that says whose row it is: then the unit of privacy is all rows of one person. The column
        is no feature. An array beside the table is passed to ``fit(X, y, unit=...)``.
    rows_per_unit : int
        At most so many rows of a unit are used, the first in the order of the table; noise grows with it.
    classes : array_like, optional
        The public classes. Without it they are read from y, with a warning.
    class_weight : mapping or "balanced", optional
        How much the loss of a row counts, by its class: public weights, 1 for classes that are left out. "balanced"
        buys the label counts, for 1% of the budget or up to 10% where there are few rows, and weighs each class by
        the inverse of its count. A row's gradient is weighted before it is clipped, so the guarantee is the same.
    random_state : int, RandomState or None
        None takes the operating system's generator: the only choice for a release.
    ledger : Ledger, optional
        An account with a larger budget, which pays for this fit too, in its own currency. It must keep the relation
        ``adjacency``. A method that depends on a mechanism without a price in that currency is refused, and random
        batches are amplified in the currency rdp only.
    progress : bool or callable
        Show a bar of the budget spent, or call with its share.
    noise : {"exact", "float"}
    solver_options : mapping, optional
        Settings of the solver.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (K, d)
    intercept_ : ndarray of shape (1,) or (K,)
    bounds_ : (low, high)
        Bounds of every column, given or measured.
    coef_noise_ : ndarray of the shape of ``coef_``, or None
        About how far the noise of privacy moves each coefficient, one standard deviation; None where the method
        does not say. It follows from what was released, and leaves out what another sample of rows would change.
    classes_ : ndarray
    class_weight_ : dict or None
        The weight of every class, given or bought.
    n_features_in_ : int
    n_iter_ : int
    privacy_ : dict
        The privacy statement, as plain data.

    Notes
    -----
    **Privacy** The fitted model is (epsilon, delta)-DP for one row, or one unit, under ``adjacency``: every touch of
    the data is accepted by a filter before it happens. Errors about malformed input are outside the guarantee. With
    units, sensitivities are those of ``rows_per_unit`` rows, batches are drawn by unit, and the number of units is
    public like that of the rows (`dpdescent.curator.units` has the proof).

    Examples
    --------
    >>> from dpdescent import DPLogisticRegression, load_dataset
    >>> data = load_dataset("synthetic", n=5000)
    >>> model = DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds=data.bounds, classes=data.classes)
    >>> model.fit(data.X, data.y).score(data.X, data.y) > 0.7
    True
    """

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


@dataclass(eq=False, repr=False)
class DPLinearSVC(_LinearClassifier):
    """Private linear support vector machine for two classes.

    Minimises the mean hinge loss plus ``alpha``/2 |w|^2. Parameters are those of `DPLogisticRegression`, and

    loss : {"huberised-hinge", "hinge"}
        The huberised hinge (half-width 0.5) is smooth, which steps along a gradient need.
    """

    _: KW_ONLY
    loss: str = "huberised-hinge"

    _multiclass = False

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
