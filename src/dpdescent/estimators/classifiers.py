"""Private linear classifiers: what they share, and logistic regression."""

from __future__ import annotations

import warnings
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.base import ClassifierMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted

from ..arrays import Floats
from ..errors import InvalidParameter, PrivacyWarning, require_open_unit
from ..problems import (
    L2,
    Hinge,
    HuberisedHinge,
    LabelKind,
    Logistic,
    Loss,
    Multinomial,
    NonConvex,
    Penalty,
    Sigmoid,
    Weighted,
)
from ..solvers import Method
from ..statement import Origin, public_fact
from .arguments import known_method
from .base import PrivateLinearModel
from .measuring import weights_of_classes
from .purchases import ClassWeights, Purchase
from .reading import class_positions, sorted_classes

# What the names of losses and penalties of a logistic regression stand for.
_LOSSES: dict[str, type[Loss]] = {"logistic": Logistic, "sigmoid": Sigmoid}
_PENALTIES: dict[str, type[Penalty]] = {"l2": L2, "nonconvex": NonConvex}


@dataclass(eq=False, repr=False)
class LinearClassifier(ClassifierMixin, PrivateLinearModel):  # type: ignore[misc]
    """What the linear classifiers share: decisions for two or more classes from linear scores."""

    _: KW_ONLY
    classes: Any = None
    class_weight: Any = None

    def fit(self, X: Any, y: Any = None, *, unit: Any = None, **parameters: Any) -> LinearClassifier:
        """Train on the rows of ``X`` with labels ``y``. This is the only call that reads the private data.

        Parameters
        ----------
        X : array_like, DataFrame or sparse matrix of shape (n, d)
            The features.
        y : array_like of shape (n,)
            The label of each row, one of ``classes``.
        unit : array_like of shape (n,), optional
            To whom each row belongs, where the unit of privacy is all rows of one person.

        Returns
        -------
        self : object
            The fitted model.
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
                stacklevel=6,
            )
            self.classes_ = np.unique(labels)
            assumed = [public_fact("classes", "those of y, because they were not given", Origin.ROWS)]
        else:
            self.classes_ = sorted_classes(self.classes)
            assumed = [public_fact("classes", f"{self.classes_.size} of them", Origin.ARGUMENT)]
        if self.classes_.size < 2:
            raise InvalidParameter(
                "there is only one class: a classifier needs two or more; pass classes=(...) if the rest is missing"
            )
        self.class_weight_: dict[Any, float] | None = None
        weights = None if self.class_weight is None else weights_of_classes(self.class_weight, self.classes_)
        if self.class_weight is not None and weights is None:
            counted = Origin.MEASURED if known_method(self.method).private else Origin.ROWS
            assumed.append(public_fact("class_weight", "balanced by the counts of the labels", counted))
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

    def _purchases(self, tightens: Callable[[], bool]) -> list[Purchase]:
        unknown = self.class_weight is not None and self.class_weight_ is None
        return [*super()._purchases(tightens), *([ClassWeights()] if unknown else [])]

    def _balanced(self, loss: Loss, weights: Floats) -> Loss:
        """Return the loss with weights that were bought, for which those of one stood in until then."""
        assert isinstance(loss, Weighted), "weights of one stand in for those to be bought"
        return self._weighted(loss.loss, weights)

    def _scored(self) -> str:
        return f"the log-odds of {self.classes_[1]}"

    def _heaviest(self) -> float:
        return 1.0 if self.class_weight_ is None else max(self.class_weight_.values())

    @abstractmethod
    def _binary_loss(self) -> Loss: ...

    @abstractmethod
    def _multiclass_loss(self, classes: int) -> Loss: ...

    def decision_function(self, X: Any) -> Floats:
        """Return the linear scores: an array of shape (n,) for two classes, and (n, K) for K classes."""
        check_is_fitted(self)
        X = self._read(X)
        scores: Floats = self._features.product(X, self.coef_.T) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def row_scores(self, X: Any) -> Floats:
        """Return what `decision_function` does, each score with the same bits beside any other rows.

        `dpdescent.evaluate` counts scores by these: what is counted for a row must not depend on other rows.
        """
        check_is_fitted(self)
        scores: Floats = self._features.product(self._read(X), self.coef_.T, separate=True) + self.intercept_
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class of every row."""
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


def _require_two_classes(loss: Loss) -> None:
    """Raise `InvalidParameter` unless a loss tells two classes apart by one score."""
    if loss.labels.kind is not LabelKind.SIGNS or loss.outputs != 1:
        raise InvalidParameter(
            f"{type(loss).__name__} is a loss of {loss.labels.kind}, and a classifier takes one of two classes with "
            "one margin, whose labels are Labels.signs(): use DPLinearRegression for a loss of numbers, or "
            "loss='logistic' for several classes"
        )


@dataclass(eq=False, repr=False)
class DPLogisticRegression(LinearClassifier):
    """Private logistic regression for two or more classes.

    Minimises the mean log-loss plus an L2 penalty, ``alpha/2 |w|^2``, under (epsilon, delta)-differential privacy.
    There is no learning rate and no number of iterations to choose. Objectives that are not convex can be asked for.

    Parameters
    ----------
    epsilon, delta : float
        The privacy guarantee. Choose delta well below 1/n.
    method : str, default "auto"
        The solver, one of the keys of ``dpdescent.solvers.METHODS``.
    adjacency : {"zero-out", "replace-one"}
        Which tables are neighbours: a row is added or removed (the number of rows is public), or a row is replaced
        by another one.
    bounds : (low, high), optional
        Public bounds of the features: two numbers, or two sequences with one number per column. Cells outside are
        clipped, in prediction too. None, or NaN for a column, measures them privately, with two histograms of every
        such column that is not declared to be 0 or 1, for 4% of the budget, or more where there are few rows and many
        columns.
    tighten : bool, optional
        Whether bounds that are given are outer limits, within which narrower ones are measured for columns that need
        half of them or less. By default this is done from 59 sqrt(c) effective rows, n mu, for c columns
        that are not declared to be 0 or 1. It costs 2% of the budget, and if there is such a column 2% more, or up to
        20% where there are few rows and many columns. Bounds stay as they are where other parameters are in units of
        them: ``alpha``, ``adversary``, ``knots`` and ``solver_options``.
    binary_features : array_like, optional
        Public knowledge of which columns are 0 or 1, as a mask, positions or names (``binary_features_`` of a
        `BoundedEncoder` or of a data set). The method "auto" then need not guess it, which helps most at small
        epsilon. It does not affect the guarantee.
    alpha : float
        Weight of the penalty.
    tilt : float
        Give rows with large losses more weight: 0 minimises the mean loss, and a large tilt comes close to
        minimising the largest one. Needs method "outpert". For two classes it chooses the length of the weights and
        the intercept for the tilt; ``solver_options={"tilting": "objective"}`` minimises the tilted loss itself.
    adversary : Adversary, optional
        Train against an adversary who may move every row as far as this allows. For two classes; needs method
        "outpert".
    fit_intercept : bool
        Whether to learn a constant term.
    penalise_intercept : bool, optional
        Whether the penalty is on the constant term too. By default it is not, except in the paper mode of a method
        (``solver_options={"paper": True}``), because the papers penalise all weights.
    unit : str, optional
        The name of a column that says to whom a row belongs. The unit of privacy is then all rows of one person, and
        the column is not a feature. An array beside the table is passed to ``fit(X, y, unit=...)`` instead.
    rows_per_unit : int
        The largest number of rows of a unit that are used, the first ones in the order of the table. The noise grows
        with it.
    rows : int, optional
        About how many rows of all units are used, which must be public knowledge and not read from this table.
        Without it the number is measured by a noisy count, for 1% of the budget or up to 10% where there are few
        rows; where no count can be bought, ``rows_per_unit`` times the number of units stands for it.
    classes : array_like, optional
        The public classes. Without them they are read from y, which is not private, with a `PrivacyWarning`.
    loss : {"logistic", "sigmoid"} or Loss
        "sigmoid" minimises the mean of ``1/(1 + exp(y t))``, a smooth count of mistakes for two classes, which is not
        convex. Scores are then good for decisions, and `predict_proba` is not calibrated. The same holds for a
        `dpdescent.problems.Loss` of your own for labels -1 and 1, on whose declared bounds the guarantee then rests.
    penalty : {"l2", "nonconvex"}
        "nonconvex" is ``alpha sum_j w_j^2/(1 + w_j^2)``. Methods that need a convex objective refuse it, and the
        sigmoid loss, by name before anything is charged; "opt" and its kin are made for such objectives.
    class_weight : mapping or "balanced", optional
        How much the loss of a row counts, by its class: public weights, 1 for classes that are left out. "balanced"
        measures the label counts privately, for 1% of the budget or up to 10% where there are few rows, and weighs
        each class by the inverse of its count. The gradient of a row is weighted before it is clipped, so the
        guarantee is the same.
    random_state : int, RandomState or None
        None draws the noise from the operating system, which is the only choice for a model that is released. A seed
        repeats a run, and the statement says so.
    ledger : Ledger, optional
        A shared budget that is charged for this fit as well, in its own currency. It must have the same relation as
        ``adjacency``. A method that the ledger's currency cannot account for is refused before anything is charged,
        and random batches are amplified in the currency "rdp" only.
    progress : bool or callable
        Show a bar of the share of the budget that is spent, or call a function with this share.
    noise : {"exact", "float"}
        Discrete noise with exact guarantees, or floating-point noise for experiments; the statement records it.
    inference : bool
        Whether to buy, within the same budget, what confidence intervals need (`conf_int`, `summary`,
        `score_differences`): 13% of it for two classes, 55% for regressions. For method "auto", without penalty,
        class weights, several classes or units of several rows; these are refused by name, and so are fewer than 300
        effective rows, n mu. Given bounds stay as they are then, unless ``tighten`` is True: narrower ones would
        change what is estimated.
    solver_options : mapping, optional
        Settings of the method, by name.

    Attributes
    ----------
    coef_ : ndarray of shape (1, d) or (K, d)
        Coefficients, in the units of the features. They are not the whole model: predictions clip every cell to
        ``bounds_`` first, which may be narrower than those given. `to_sklearn` and `to_sql` export all of it.
    intercept_ : ndarray of shape (1,) or (K,)
        Constant terms.
    bounds_ : (low, high)
        Bounds of every column, as given or as measured.
    coef_noise_ : ndarray of the shape of ``coef_``, or None
        Approximate standard deviation of each coefficient due to the noise of privacy; None where the method does not
        provide it. It follows from released quantities, and does not say how much another sample of people would
        change the coefficients.
    classes_ : ndarray
        The classes, sorted.
    class_weight_ : dict or None
        The weight of every class, as given or as measured.
    n_features_in_ : int
        Number of columns.
    n_iter_ : int
        Number of iterations that were taken.
    privacy_ : dict
        The privacy statement, as plain data.

    Notes
    -----
    **Privacy.** The fitted model is (epsilon, delta)-DP for one row, or one unit, under ``adjacency``: every query is
    charged to a privacy filter before it reads the data. Errors about malformed input are outside the guarantee. With
    units, sensitivities are those of ``rows_per_unit`` rows, or of all rows of a unit whose gradients are clipped
    together, and batches are drawn by unit. The number of units is public; how many rows they have is not
    (`dpdescent.curator.units` has the proof for both relations).

    The guarantee is about the table that ``fit`` is given. Steps before the model in a pipeline must learn nothing
    from the rows; `dpdescent.check_pipeline` names those that do.

    Examples
    --------
    >>> from dpdescent import DPLogisticRegression, load_dataset
    >>> data = load_dataset("synthetic", n=5000)
    >>> model = DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds=data.bounds, classes=data.classes)
    >>> model.fit(data.X, data.y).score(data.X, data.y) > 0.7
    True
    """

    _: KW_ONLY
    loss: str | Loss = "logistic"
    penalty: str = "l2"

    def require_settings(self) -> tuple[Method, Any]:
        """Return the method and its settings, or raise for a parameter that no table could be fitted with."""
        if isinstance(self.loss, Loss):
            _require_two_classes(self.loss)
        for name, known in (("loss", _LOSSES), ("penalty", _PENALTIES)):
            value = getattr(self, name)
            if known is _LOSSES and isinstance(value, Loss):
                continue
            if not isinstance(value, str) or value not in known:
                raise InvalidParameter(f"unknown {name} {value!r:.80}: choose {' or '.join(map(repr, known))}")
        return super().require_settings()

    def _penalty(self, heaviest: float) -> Penalty:
        quadratic = super()._penalty(heaviest)
        return _PENALTIES[self.penalty](quadratic.weight, quadratic.intercept)

    def _loss_and_labels(self, y: Any) -> tuple[Loss, Floats, list[str]]:
        loss, labels, assumed = super()._loss_and_labels(y)
        if self.loss == "sigmoid":
            assumed.append(public_fact("loss", "the sigmoid loss, which is not convex", Origin.ARGUMENT))
        if self.penalty == "nonconvex":
            what = f"{self.alpha:g} sum_j w_j^2/(1 + w_j^2), which is not convex"
            assumed.append(public_fact("penalty", what, Origin.ARGUMENT))
        return loss, labels, assumed

    def _binary_loss(self) -> Loss:
        return self.loss if isinstance(self.loss, Loss) else _LOSSES[self.loss]()

    def _multiclass_loss(self, classes: int) -> Loss:
        if self.loss != "logistic":
            raise InvalidParameter(
                f"loss={self.loss!r} tells two classes apart, and there are {classes}: use loss='logistic'"
            )
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


_HINGES: dict[str, type[Loss]] = {"huberised-hinge": HuberisedHinge, "hinge": Hinge}


@dataclass(eq=False, repr=False)
class DPLinearSVC(LinearClassifier):
    """Private linear support vector machine for two classes.

    Minimises the mean hinge loss plus an L2 penalty, ``alpha/2 |w|^2``.

    Parameters
    ----------
    loss : {"huberised-hinge", "hinge"}
        The huberised hinge, with half-width 0.5, is smooth, as gradient methods need it.
    **parameters
        All others are those of `DPLogisticRegression`.

    Notes
    -----
    **Privacy.** As for `DPLogisticRegression`. `dpdescent.check_pipeline` names the steps of a pipeline that learn
    from the rows before it.

    Examples
    --------
    >>> from dpdescent import DPLinearSVC, load_dataset
    >>> data = load_dataset("synthetic", n=5000)
    >>> model = DPLinearSVC(epsilon=1.0, delta=1e-6, bounds=data.bounds, classes=data.classes)
    >>> model.fit(data.X, data.y).score(data.X, data.y) > 0.7
    True
    """

    _: KW_ONLY
    loss: str = "huberised-hinge"

    _multiclass = False

    def require_settings(self) -> tuple[Method, Any]:
        """Return the method and its settings, or raise for a parameter that no table could be fitted with."""
        if not isinstance(self.loss, str) or self.loss not in _HINGES:
            raise InvalidParameter(f"unknown loss {self.loss!r:.80}: choose {' or '.join(map(repr, _HINGES))}")
        return super().require_settings()

    def _binary_loss(self) -> Loss:
        return _HINGES[self.loss]()

    def _multiclass_loss(self, classes: int) -> Loss:
        raise InvalidParameter(
            f"Only binary classification is supported. The type of the target is multiclass: {classes} classes; "
            "wrap the model in sklearn.multiclass.OneVsRestClassifier and divide epsilon, or use "
            "DPLogisticRegression"
        )
