"""Saved models: one JSON file with the coefficients, the public schema and the privacy statement. No pickles."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ..errors import ColumnTypeError, MissingValue, ModelFormatError, StatementError
from ..estimators.effects import Comparisons
from ..estimators.scaling import ColumnScaling
from ..outputs import write_whole
from ..statement import Effects, FileKind, PrivacyStatement, load_schema, objection, with_nulls
from ..tables import Schema, scale_columns

__all__ = ["SavedModel"]

FILE = FileKind("dpdescent-model", 2, "model", ModelFormatError)


@dataclass(frozen=True)
class SavedModel:
    """A linear model as plain data.

    Parameters
    ----------
    estimator : str
        The class that was fitted.
    coefficients : list of lists
        One list per score. There are K scores for K > 2 classes, and one for two classes and for regression.
    intercepts : list
    classes : list, optional
        The classes; None for regression.
    features : list of str
    privacy : dict
        The privacy statement of the fit.
    schema : dict, optional
        The public schema from which tables are encoded.
    bounds : [low, high], optional
        The public bounds, one number per column, by which the columns of an NPZ file are clipped and mapped to
        [0, 1].
    coefficient_noise : list of lists, optional
        About how far the noise of privacy moves each coefficient, one standard deviation; None where it is not known.
    ends : [low, high], optional
        The ends to which the coded columns are clipped, as they were in training: given, or measured.
    target : [low, high], optional
        The bounds of the number that a regression predicts, given or measured, within which predictions stay.
    comparisons : dict, optional
        Which coefficients are compared with which, and the noise of each comparison; None where it is not known, and
        in files of earlier releases.
    """

    estimator: str
    coefficients: list[list[float]]
    intercepts: list[float]
    classes: list[Any] | None
    features: list[str]
    privacy: dict[str, Any]
    schema: dict[str, Any] | None = None
    bounds: list[list[float]] | None = None
    coefficient_noise: list[list[float]] | None = None
    ends: list[list[float]] | None = None
    target: list[float] | None = None
    comparisons: dict[str, Any] | None = None

    @classmethod
    def from_estimator(
        cls,
        model: Any,
        features: list[str],
        schema: Schema | None = None,
        bounds: list[list[float]] | None = None,
    ) -> SavedModel:
        """Return the plain data of a fitted estimator."""
        classes, noise = getattr(model, "classes_", None), getattr(model, "coef_noise_", None)
        target = getattr(model, "target_bounds_", None)
        names = [str(name) for name in features]
        compared = Comparisons.of_model(model, names)
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
        misfit = model._misfit()
        if misfit is not None:
            raise ModelFormatError(f"{path} is damaged: {misfit}")
        return model

    def _misfit(self) -> str | None:
        """Return which parts do not belong together, or None."""
        columns, scores = len(self.features), len(self.coefficients)
        expected = 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)
        if (self.classes is None) != (self.estimator == "DPLinearRegression"):
            return "classifiers have classes, and regressions have none"
        if scores != expected or len(self.intercepts) != expected:
            return f"there must be {expected} lists of coefficients and as many intercepts"
        if self.classes is not None and len(set(map(repr, self.classes))) < len(self.classes):
            return "a class is listed twice"
        tables = {"coefficients": (self.coefficients, scores), "coefficient_noise": (self.coefficient_noise, scores)}
        for name, (table, rows) in (tables | {"bounds": (self.bounds, 2), "ends": (self.ends, 2)}).items():
            if table is not None and [len(each) for each in table] != [columns] * rows:
                return f"the lists of {name!r} must have a number for each of the {columns} features"
        if self.target is not None and (self.classes is not None or not _is_interval(self.target)):
            return "'target' must be the lower and the upper bound of the number that a regression predicts"
        if self.bounds is not None and any(low >= high for low, high in zip(*self.bounds, strict=True)):
            return "the low end of 'bounds' must be below the high end in every column"
        if self.comparisons is not None:
            return Comparisons.from_dict(self.comparisons).misfit(columns)
        return None

    def effects(self) -> Effects | None:
        """Return the effects that the model can identify, with what noise does to them; None if it is not known."""
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

    def scaled(self, X: Any) -> NDArray[np.float64]:
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

    def scores(self, X: Any) -> NDArray[np.float64]:
        """Return the linear scores, shape (n, number of scores)."""
        self._require_columns(X)
        coefficients = np.array(self.coefficients).T
        if self.ends is None:
            return np.asarray(X @ coefficients + np.array(self.intercepts))
        scaling = ColumnScaling.from_bounds(self.ends, len(self.features))
        return np.asarray(scaling.product(X, coefficients) + np.array(self.intercepts))

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class or value of every row."""
        scores = self.scores(X)
        if self.classes is None:
            return scores[:, 0] if self.target is None else np.clip(scores[:, 0], self.target[0], self.target[1])
        index = (scores[:, 0] > 0).astype(int) if len(self.classes) == 2 else scores.argmax(axis=1)
        predicted: NDArray[Any] = np.array(self.classes)[index]
        return predicted

    def decisions(self, X: Any) -> NDArray[np.float64] | None:
        """Return the decision score of a support vector machine, positive for its second class; None for others."""
        return self.scores(X)[:, 0] if self.estimator == "DPLinearSVC" else None

    def probabilities(self, X: Any) -> NDArray[np.float64] | None:
        """Return the class probabilities of a logistic model; None for the others."""
        if self.estimator != "DPLogisticRegression":
            return None
        scores = self.scores(X)
        if scores.shape[1] == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores[:, 0]])
        return np.asarray(softmax(scores, axis=1))


def _is_interval(ends: list[float]) -> bool:
    return len(ends) == 2 and ends[0] < ends[1]
