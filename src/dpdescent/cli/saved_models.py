"""Saved models, and what they predict for the rows of a file or of a data set.

A model is one JSON file with the coefficients, the public schema and the privacy statement. No pickles. Predictions
are written whole or not at all, block by block where there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import softmax

from ..arrays import Floats
from ..datasets import is_data_path, load_dataset, read_packed
from ..display import safe_cell
from ..errors import (
    ColumnTypeError,
    DatasetNotAvailable,
    InvalidParameter,
    MissingValue,
    ModelFormatError,
    StatementError,
)
from ..estimators.effects import Comparisons
from ..estimators.scaling import ColumnScaling
from ..exact import separate_product
from ..long_runs import passing_file, write_whole
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
from ..tables import (
    Schema,
    StreamedTable,
    is_parquet,
    is_parquet_group,
    open_parquet,
    read_table,
    scale_columns,
    stream_text,
)

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
    inference : dict, optional
        Effects with standard errors, intervals and p-values, of a fit with ``inference=True``; None for others.
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
    inference: dict[str, Any] | None = None

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
            model.summary().to_dict() if model.inference else None,
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
            found.append(Effect(name, against, span * each["effect"], span * each["se"]))
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

    def scores(self, X: Any) -> Floats:
        """Return the linear scores, shape (n, number of scores)."""
        self._require_columns(X)
        coefficients = np.array(self.coefficients).T
        if self.ends is None:
            return np.asarray(X @ coefficients + np.array(self.intercepts))
        scaling = ColumnScaling.from_bounds(self.ends, len(self.features))
        return np.asarray(scaling.product(X, coefficients) + np.array(self.intercepts))

    def row_scores(self, X: Any) -> Floats:
        """Return the scores, or the predicted numbers, each with the same bits beside any other rows."""
        self._require_columns(X)
        coefficients, constant = np.array(self.coefficients).T, np.array(self.intercepts)
        if self.ends is None:
            scores: Floats = separate_product(X, coefficients) + constant
        else:
            scaling = ColumnScaling.from_bounds(self.ends, len(self.features))
            scores = scaling.product(X, coefficients, separate=True) + constant
        if self.classes is None and self.target is not None:
            return np.clip(scores[:, 0], self.target[0], self.target[1])
        return scores[:, 0] if scores.shape[1] == 1 else scores

    def scoring(self) -> Any:
        """Return the model as `dpdescent.evaluate` takes one."""
        return (_ScoredProbabilities if self.estimator == "DPLogisticRegression" else _ScoredModel)(self)

    def predict(self, X: Any) -> NDArray[Any]:
        """Return the predicted class or value of every row."""
        scores = self.scores(X)
        if self.classes is None:
            return scores[:, 0] if self.target is None else np.clip(scores[:, 0], self.target[0], self.target[1])
        index = (scores[:, 0] > 0).astype(int) if len(self.classes) == 2 else scores.argmax(axis=1)
        predicted: NDArray[Any] = np.array(self.classes)[index]
        return predicted

    def decisions(self, X: Any) -> Floats | None:
        """Return the decision score of a support vector machine, positive for its second class; None for others."""
        return self.scores(X)[:, 0] if self.estimator == "DPLinearSVC" else None

    def probabilities(self, X: Any) -> Floats | None:
        """Return the class probabilities of a logistic model; None for the others."""
        if self.estimator != "DPLogisticRegression":
            return None
        scores = self.scores(X)
        if scores.shape[1] == 1:
            scores = np.column_stack([np.zeros(len(scores)), scores[:, 0]])
        return np.asarray(softmax(scores, axis=1))


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


def predict_file(
    saved: SavedModel, data: str, keep: Sequence[str] = (), *, missing: str | None = None, unknown: str | None = None
) -> pd.DataFrame:
    """Return the columns to keep, the prediction for every row, and the probabilities where the model has them."""
    return _add_predictions(saved, *_read_features(saved, data, keep, missing, unknown))


def predict_blocks(
    saved: SavedModel, data: str, *, missing: str | None = None, unknown: str | None = None
) -> Iterator[pd.DataFrame]:
    """Yield what `predict_file` returns for Parquet files, or for one of text, a few rows at a time."""
    if saved.schema is None:
        raise ModelFormatError(f"the model was fitted without a schema, which {data!r} needs: pass an NPZ file")
    declared = Schema.from_dict(saved.schema).choosing(missing=missing, unknown=unknown)
    opened = open_parquet if is_parquet(data) else stream_text
    for X in blocks_of(opened(data, declared, label=False)):
        yield _add_predictions(saved, X, pd.DataFrame(index=range(len(X))))


def safe_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table for a CSV file in which no text, and no name of a column, is a formula to a spreadsheet."""
    texts = frame.select_dtypes(exclude=["number", "bool", "datetime", "datetimetz", "timedelta"])
    safe = frame.copy()
    for name, column in texts.items():
        safe[name] = column.map(lambda cell: safe_cell(cell) if isinstance(cell, str) else cell)
    return safe.rename(columns=safe_cell)


def _add_predictions(saved: SavedModel, X: Any, kept: pd.DataFrame) -> pd.DataFrame:
    frame = kept.assign(prediction=saved.predict(X))
    probabilities = saved.probabilities(X)
    if probabilities is not None and saved.classes is not None:
        for position, name in enumerate(saved.classes):
            frame[f"probability_{name}"] = probabilities[:, position]
    decisions = saved.decisions(X)
    if decisions is not None:
        frame["score"] = decisions
    return frame


def _read_features(
    saved: SavedModel, data: str, keep: Sequence[str], missing: str | None, unknown: str | None
) -> tuple[Any, pd.DataFrame]:
    """Return the features of a table in the units in which the model was fitted, and the columns to keep."""
    if is_parquet_group(data) and saved.schema is not None and not keep:
        declared = Schema.from_dict(saved.schema).choosing(missing=missing, unknown=unknown)
        X = np.concatenate(list(blocks_of(open_parquet(data, declared, label=False))))
        return X, pd.DataFrame(index=range(len(X)))
    if is_data_path(data) and not Path(data).is_file():
        raise DatasetNotAvailable(f"there is no file {data!r}: correct the path")
    if saved.schema is not None and is_data_path(data) and not data.endswith(".npz"):
        declared = Schema.from_dict(saved.schema).choosing(missing=missing, unknown=unknown)
        table = read_table(Path(data), declared, label=False, keep=keep)
        encoder = declared.encoder(ignore=keep).fit(table)
        return np.asarray(encoder.transform(table)), table[list(keep)].reset_index(drop=True)
    if keep or missing is not None or unknown is not None:
        raise InvalidParameter(
            "--keep, --missing and --unknown are for tables that are read by a schema: leave them out"
        )
    if data.endswith(".npz"):
        (X,) = read_packed(Path(data), "X")
        return saved.scaled(X), pd.DataFrame(index=range(len(X)))
    if saved.bounds is not None:
        raise ModelFormatError(f"the model was fitted to an NPZ file: {data!r} is none; pass an NPZ file with an X")
    X = load_dataset(data).X
    return X, pd.DataFrame(index=range(len(X)))


def write_predictions(frames: Iterator[Any], output: Path) -> int:
    """Write frames of predictions to one Parquet or CSV file, whole or not at all, and return the number of rows."""
    rows = 0
    with passing_file(output) as passing, _writer_to(passing, output.suffix) as write:
        for frame in frames:
            write(frame)
            rows += len(frame)
    return rows


@contextmanager
def _writer_to(output: Path, suffix: str) -> Iterator[Callable[[Any], object]]:
    """Yield a function that writes a frame after those before it, in the format of the suffix."""
    if suffix != ".parquet":
        with output.open("w", encoding="utf-8", newline="") as file:
            yield lambda frame: frame.to_csv(file, index=False, header=file.tell() == 0)
        return
    import pyarrow as arrow
    from pyarrow import parquet

    writers: list[Any] = []

    def write(frame: Any) -> None:
        batch = arrow.Table.from_pandas(frame, preserve_index=False)
        if not writers:
            writers.append(parquet.ParquetWriter(output, batch.schema))
        writers[0].write_table(batch)

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()


def blocks_of(table: StreamedTable) -> Iterator[Any]:
    """Yield the features of a table, a few rows at a time."""
    for part in table.parts:
        for features, _ in table.read(part):
            yield features
