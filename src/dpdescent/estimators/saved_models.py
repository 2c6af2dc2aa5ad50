"""Saved models: one JSON file with what a model needs to predict and to explain itself. No pickles.

The file holds the weights, the public schema, what noise does to the weights and the privacy statement. It holds
neither the seed of a run, from which its noise could be drawn again, nor a ledger, nor functions of the caller: a
model with a loss of the caller's own is refused by name.

**Privacy** Everything in a file was released by the fit, or was public before it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import RegressorMixin
from sklearn.utils.validation import check_is_fitted

from ..arrays import Floats
from ..errors import (
    ColumnTypeError,
    DPDescentError,
    MissingValue,
    ModelFormatError,
    OutputNotWritable,
    StatementError,
    UnsupportedModel,
)
from ..long_runs import write_whole
from ..problems import Loss
from ..statement import (
    Effect,
    Effects,
    FileKind,
    InferredEffects,
    PrivacyStatement,
    load_schema,
    objection,
    with_nulls,
)
from ..tables import Schema, scale_columns
from . import additive, boosted, classifiers, regressors
from .curves import Curve, Curves
from .effects import Comparisons
from .saved_parts import misgrown, restore_state, restore_trees, state_as_data, trees_as_data
from .scaling import ColumnScaling

FILE = FileKind("dpdescent-model", 3, "model", ModelFormatError, earlier=(2,))

#: The estimators that can be saved, by name.
ESTIMATORS: Mapping[str, type[Any]] = {
    kind.__name__: kind
    for kind in (
        additive.DPAdditiveClassifier,
        additive.DPAdditiveHuberRegressor,
        additive.DPAdditivePoissonRegressor,
        additive.DPAdditiveRegressor,
        boosted.DPBoostedTreesClassifier,
        boosted.DPBoostedTreesRegressor,
        classifiers.DPLinearSVC,
        classifiers.DPLogisticRegression,
        regressors.DPHuberRegressor,
        regressors.DPLinearRegression,
        regressors.DPPoissonRegressor,
    )
}
#: What belongs to a run and not to a model; a seed would tell the noise.
_LEFT_OUT = {"random_state", "ledger", "progress"}


@dataclass(frozen=True)
class SavedModel:
    """A model as plain data."""

    estimator: str  # the class that was fitted
    #: One list per score. There are K scores for K > 2 classes, and one for two classes and for regression. A model
    #: with curves has a number for each column of an expanded row.
    coefficients: list[list[float]]
    intercepts: list[float]
    classes: list[Any] | None  # the classes; None for regression
    features: list[str]
    privacy: dict[str, Any]  # the privacy statement of the fit
    schema: dict[str, Any] | None = None  # the public schema from which tables are encoded
    #: The public bounds, one number per column, by which the columns of an NPZ file are clipped and mapped to [0,
    #: 1].
    bounds: list[list[float]] | None = None
    #: About how far the noise of privacy moves each coefficient, one standard deviation; None where it is not known.
    coefficient_noise: list[list[float]] | None = None
    #: The ends to which the coded columns are clipped, as they were in training: given, or measured.
    ends: list[list[float]] | None = None
    #: The bounds of the number that a regression predicts, given or measured, within which predictions stay.
    target: list[float] | None = None
    #: Which coefficients are compared with which, and the noise of each comparison; None where it is not known, and
    #: in files of earlier releases.
    comparisons: dict[str, Any] | None = None
    #: Effects with standard errors, intervals and p-values, of a fit with ``inference=True``; None for others.
    inference: dict[str, Any] | None = None
    #: The curves of an additive model: a column, how often its scale doubles, and knots.
    curves: list[dict[str, Any]] | None = None
    trees: dict[str, Any] | None = None  # the levels, the start and the trees of a boosted model
    #: The arguments of the estimator that are numbers, texts or truth values, but for seeds.
    parameters: dict[str, Any] | None = None
    named: bool = False  # whether the model was fitted to columns with names
    #: What noise does to all weights, and whatever else a fitted estimator knows of itself.
    state: dict[str, Any] | None = None

    @classmethod
    def from_estimator(
        cls, model: Any, features: list[str], schema: Schema | None = None, bounds: list[list[float]] | None = None
    ) -> SavedModel:
        """Return the plain data of a fitted estimator.

        Raises
        ------
        UnsupportedModel
            The model cannot be saved: the message says which part of it.
        """
        _require_saveable(model)
        classes, noise = getattr(model, "classes_", None), getattr(model, "coef_noise_", None)
        target, coded = getattr(model, "target_bounds_", None), model._features
        curves = _curves_as_data(coded)
        names = [str(name) for name in features]
        compared = None if curves or hasattr(model, "_binning") else Comparisons.of_model(model, names)
        return cls(
            type(model).__name__,
            np.atleast_2d(model.coef_).tolist(),
            np.atleast_1d(model.intercept_).tolist(),
            None if classes is None else classes.tolist(),
            names,
            model.privacy_,
            None if schema is None else schema.to_dict(),
            bounds,
            None if noise is None else np.atleast_2d(noise).tolist(),
            [end.tolist() for end in model.bounds_],
            None if target is None else list(target),
            None if compared is None else compared.to_dict(),
            None if model._sandwich is None else model.summary().to_dict(),
            curves,
            trees_as_data(model),
            _plain_parameters(model),
            hasattr(model, "feature_names_in_"),
            state_as_data(model),
        )

    def save(self, path: Path) -> None:
        """Write the model to a file, whole or not at all."""
        content = asdict(self) | {"privacy": with_nulls(self.privacy)}
        write_whole(path, FILE.seal(content))

    @classmethod
    def load(cls, path: Path) -> SavedModel:
        """Read a model from a file, or raise `ModelFormatError` if it is damaged, or was edited."""
        data = FILE.read(path)
        wrong = objection(data, load_schema(__package__, "model.schema.json"))
        if wrong is not None:
            raise ModelFormatError(f"{path} is damaged: {wrong}")
        try:
            privacy = PrivacyStatement.from_dict(data["privacy"]).to_dict()
        except StatementError as problem:
            raise ModelFormatError(f"{path} is damaged: {problem}") from None
        model = cls(**data | {"privacy": privacy})
        try:
            misfit = model._misfit()
            if misfit is None:
                model.estimator_of(named=True)
        except DPDescentError as problem:
            misfit = str(problem)
        except (ArithmeticError, IndexError, TypeError, ValueError):
            misfit = "its parts do not fit together"
        if misfit is not None:
            raise ModelFormatError(f"{path} is damaged: {misfit}")
        return model

    def _misfit(self) -> str | None:
        """Return which parts do not belong together, or None."""
        scores = len(self.coefficients)
        expected = 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)
        if (self.classes is None) != issubclass(ESTIMATORS[self.estimator], RegressorMixin):
            return "classifiers have classes, and regressions have none"
        if scores != expected or len(self.intercepts) != expected:
            return f"there must be {expected} lists of coefficients and as many intercepts"
        if self.classes is not None and len(set(map(repr, self.classes))) < len(self.classes):
            return "a class is listed twice"
        if self.target is not None and (self.classes is not None or not _is_interval(self.target)):
            return "'target' must be the lower and the upper bound of the number that a regression predicts"
        misfit = self._misfit_of_columns()
        if misfit is None and self.comparisons is not None:
            misfit = Comparisons.from_dict(self.comparisons).misfit(len(self.features))
        if misfit is None and self.trees is not None:
            misfit = misgrown(self.trees, len(self.features), scores)
        return misfit

    def _misfit_of_columns(self) -> str | None:
        """Return what has not a number for each column, or None."""
        columns, scores = len(self.features), len(self.coefficients)
        if (self.curves or self.trees) and not issubclass(ESTIMATORS[self.estimator], additive.AdditiveModel):
            return f"a {self.estimator} has neither curves nor trees"
        for name, table in {"bounds": self.bounds, "ends": self.ends}.items():
            if table is not None and [len(each) for each in table] != [columns] * 2:
                return f"the lists of {name!r} must have a number for each of the {columns} features"
        if self.bounds is not None and any(low >= high for low, high in zip(*self.bounds, strict=True)):
            return "the low end of 'bounds' must be below the high end in every column"
        misplaced = self._misplaced_curves()
        if misplaced is not None:
            return misplaced
        width = self._features().columns
        for name, table in {"coefficients": self.coefficients, "coefficient_noise": self.coefficient_noise}.items():
            if table is not None and [len(each) for each in table] != [width] * scores:
                return f"the lists of {name!r} must have a number for each of the {columns} features and their curves"
        return None

    def _misplaced_curves(self) -> str | None:
        """Return what is wrong with the curves, or None."""
        columns = len(self.features)
        if self.curves and self.ends is None:
            return "curves need 'ends' of every column"
        if any(each["column"] >= columns for each in self.curves or []):
            return "a curve is of a column that there is not"
        for curve in getattr(self._features(), "curves", ()):
            low, high = curve.positions(np.array([curve.low, curve.high])).tolist()
            between = np.concatenate([[low], curve.knots, [high]])
            if not (np.diff(between) > 0).all() or 0 in curve.knots:
                return "the knots of a curve must increase from its low end to its high end, without 0"
        return None

    def _features(self) -> ColumnScaling | Curves:
        """Return how rows are coded."""
        columns = len(self.features)
        ends = self.ends
        scaling = (
            ColumnScaling(np.full(columns, -np.inf), np.full(columns, np.inf))
            if ends is None
            else ColumnScaling.from_bounds(ends, columns)
        )
        if self.curves is None or not issubclass(ESTIMATORS[self.estimator], additive.AdditiveModel):
            return scaling
        low, high = (end.tolist() for end in scaling.ends())
        drawn = []
        for each in self.curves:
            column, knots = int(each["column"]), np.array(each["knots"], dtype=np.float64)
            drawn.append(Curve(column, low[column], high[column], int(each["doublings"]), knots))
        return Curves(scaling, tuple(drawn))

    def estimator_of(self, *, named: bool) -> Any:
        """Return the fitted estimator; if ``named``, it knows the names of its columns as the one that was saved."""
        kind = ESTIMATORS[self.estimator]
        known = {each.name for each in fields(kind)} - _LEFT_OUT
        given = {name: value for name, value in (self.parameters or {}).items() if name in known}
        model = kind(**{"epsilon": self.privacy["epsilon"], "delta": self.privacy["delta"]} | given)
        outputs, scaling = len(self.coefficients), self._features()
        coefficients, noise = np.array(self.coefficients), self.coefficient_noise
        model._features, model.n_features_in_ = scaling, len(self.features)
        bounds = scaling.scaling if isinstance(scaling, Curves) else scaling
        model.bounds_, model.privacy_ = (bounds.low, bounds.high), self.privacy
        model.coef_noise_ = None if noise is None else np.array(noise)
        if self.classes is not None:
            model.classes_ = np.array(self.classes)
            model.coef_, model.intercept_ = coefficients, np.array(self.intercepts)
        else:
            model.coef_, model.intercept_ = coefficients[0], self.intercepts[0]
            model.coef_noise_ = None if noise is None else model.coef_noise_[0]
            model.target_bounds_ = (-math.inf, math.inf) if self.target is None else tuple(self.target)
        restore_state(model, self.state or {})
        if self.trees is not None:
            restore_trees(model, self.trees, outputs)
            model._cell_names = list(self.features)
        if named:
            if self.schema is not None:
                model.schema_ = Schema.from_dict(self.schema)
            if self.named:
                model.feature_names_in_ = np.array(self.features, dtype=object)
            model._file_bounds = None if self.bounds is None else tuple(map(np.array, self.bounds))
        return model

    @cached_property
    def _model(self) -> Any:
        """The estimator, which predicts for rows that are coded."""
        return self.estimator_of(named=False)

    def effects(self) -> Effects | None:
        """Return the effects that the model can identify, with what noise does to them; None if it is not known."""
        if self.inference is not None:
            return self._inferred(self.inference)
        if self.comparisons is None or self.ends is None:
            return None
        low, high = np.array(self.ends)
        return Comparisons.from_dict(self.comparisons).effects(
            self.features,
            np.array(self.coefficients),
            np.array(self.intercepts),
            (low, high),
            [str(each) for each in self.classes or []] if len(self.coefficients) > 1 else [""],
        )

    def _inferred(self, data: dict[str, Any]) -> InferredEffects:
        """Return effects with intervals; that of a number is between its bounds, as the file of a table codes it."""
        found, verdicts = [], {}
        for each in data["effects"]:
            name, against, span = each["name"], each["against"], 1.0
            if not against and name in self.features and self.ends is not None:
                low, high = (end[self.features.index(name)] for end in self.ends)
                name, against, span = f"{name} at its upper bound", "its lower bound", high - low
            error = math.inf if each["verdict"] == "not resolved" else each["se"]
            found.append(Effect(name, against, span * each["effect"], span * error))
            verdicts[name, against] = each["verdict"]
        return InferredEffects(found, verdicts=verdicts, level=data["level"], remarks=data["remarks"][1:])

    def scaled(self, X: Any) -> Floats:
        """Return the columns of an NPZ file in the units in which the model was fitted."""
        if X.ndim != 2 or X.dtype.kind not in "biuf":
            raise ColumnTypeError(
                f"X must be a table of real numbers, and is stored as {X.dtype} in {X.ndim} dimensions"
            )
        if not np.isfinite(X).all():
            raise MissingValue("X has a missing or infinite value: fill it with a public constant")
        if self.bounds is None:
            return np.asarray(X, dtype=np.float64)
        self._require_columns(X)
        low, high = self.bounds
        return scale_columns(X, low, high)

    def _require_columns(self, X: Any) -> None:
        if X.shape[1] != len(self.features):
            raise ModelFormatError(
                f"the model has {len(self.features)} features and the table {X.shape[1]}: pass a table coded as the "
                "one that it was fitted to"
            )

    def row_scores(self, X: Any) -> Floats:
        """Return the scores, or the predicted numbers, each with the same bits beside any other rows."""
        self._require_columns(X)
        scores: Floats = self._model.row_scores(X)
        return scores

    def scoring(self) -> Any:
        """Return the model as `dpdescent.evaluate` takes one."""
        return (_ScoredProbabilities if hasattr(self._model, "predict_proba") else _ScoredModel)(self)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class or value of every row."""
        self._require_columns(X)
        predicted: NDArray[Any] = self._model.predict(X)
        return predicted

    def decisions(self, X: Any) -> Floats | None:
        """Return the decision score of a support vector machine, positive for its second class; None for others."""
        self._require_columns(X)
        return self._model.decision_function(X) if self.estimator == "DPLinearSVC" else None

    def probabilities(self, X: Any) -> Floats | None:
        """Return the class probabilities of a logistic model; None for the others."""
        self._require_columns(X)
        return self._model.predict_proba(X) if hasattr(self._model, "predict_proba") else None


class _ScoredModel:
    """A saved model, as an evaluation asks for scores."""

    def __init__(self, saved: SavedModel) -> None:
        self._saved, self.estimator_name = saved, saved.estimator
        self.classes_ = None if saved.classes is None else np.array(saved.classes)

    def row_scores(self, X: Any) -> Floats:
        return self._saved.row_scores(X)


class _ScoredProbabilities(_ScoredModel):
    """One whose scores are logits."""

    def predict_proba(self, X: Any) -> Floats | None:
        return self._saved.probabilities(X)


def _is_interval(ends: list[float]) -> bool:
    return len(ends) == 2 and ends[0] < ends[1]


def save_model(model: Any, path: str | os.PathLike[str]) -> None:
    """Write a fitted estimator to a file; see `PrivateLinearModel.save`."""
    check_is_fitted(model)
    schema = getattr(model, "schema_", None)
    names = getattr(model, "feature_names_in_", [f"x{column}" for column in range(model.n_features_in_)])
    bounds = getattr(model, "_file_bounds", None)
    stored = None if bounds is None else [end.tolist() for end in bounds]
    saved = SavedModel.from_estimator(model, [str(name) for name in names], schema, stored)
    try:
        saved.save(Path(path))
    except OSError as problem:
        raise OutputNotWritable(f"cannot write {path}: {problem.strerror}; choose another place") from None


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that ``model.save(path)`` or ``dpdescent fit`` has written, and return the fitted estimator.

    Parameters
    ----------
    path : path
        A file of JSON. Nothing in it is run, and it is refused if it was damaged or edited.

    Returns
    -------
    estimator
        Predicts, explains itself and states its privacy as the one that was saved, with the same bits. Arguments that
        are numbers, texts or truth values are those of the fit, others have their defaults, and there is no seed and
        no ledger. A model that was fitted with a schema also takes tables of the columns that the schema describes;
        one that ``dpdescent fit`` has fitted to an NPZ file takes rows in the units of that file.

    Raises
    ------
    ModelFormatError
        The file is missing, damaged, edited, or no model of this library.

    Examples
    --------
    >>> import tempfile, os
    >>> from dpdescent import DPLogisticRegression, load, load_dataset
    >>> data = load_dataset("synthetic", n=2000)
    >>> model = DPLogisticRegression(bounds=data.bounds, classes=data.classes).fit(data.X, data.y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = os.path.join(folder, "model.json")
    ...     model.save(path)
    ...     again = load(path)
    >>> bool((again.predict_proba(data.X) == model.predict_proba(data.X)).all())
    True
    """
    return SavedModel.load(Path(path)).estimator_of(named=True)


def _curves_as_data(coded: ColumnScaling | Curves) -> list[dict[str, Any]] | None:
    """Return the curves of an additive model, None for a linear one."""
    if isinstance(coded, ColumnScaling):
        return None
    return [
        {"column": each.column, "doublings": each.doublings, "knots": each.knots.tolist()} for each in coded.curves
    ]


def _require_saveable(model: Any) -> None:
    """Raise `UnsupportedModel` for what a file of plain data cannot hold."""
    name = type(model).__name__
    if ESTIMATORS.get(name) is not type(model):
        raise UnsupportedModel(f"a {name} cannot be saved: files are for {', '.join(ESTIMATORS)}")
    if isinstance(getattr(model, "loss", None), Loss):
        raise UnsupportedModel(
            f"a model with a loss of your own ({type(model.loss).__name__}) cannot be saved: a file holds no code; "
            "keep coef_, intercept_, bounds_ and privacy_"
        )
    classes = getattr(model, "classes_", None)
    if classes is not None and not all(isinstance(each, str | int | float | bool) for each in classes.tolist()):
        raise UnsupportedModel("classes that are neither texts nor numbers cannot be saved: use texts")


def _plain_parameters(model: Any) -> dict[str, Any]:
    """Return the arguments that are plain, numbers, texts and truth values, and are not left at their defaults."""
    given = {each.name: (getattr(model, each.name), each.default) for each in fields(model)}
    return {
        name: value
        for name, (value, default) in given.items()
        if name not in _LEFT_OUT and _is_plain(value) and (type(value), value) != (type(default), default)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, float):
        return type(value) is float and math.isfinite(value)
    return value is None or type(value) in (bool, int, str)
