"""Fitted models for other programs: a pipeline of scikit-learn alone, and one expression of SQL.

Coefficients are not the whole model: predictions clip every cell to the bounds of its column, curves bend, and
numbers stay within the bounds of the target. Both exports do all of that. A column that adds a straight-line function
between points p_0 < ... < p_m to a score is m columns clip((x - p_j)/(p_{j+1} - p_j), 0, 1), which `MinMaxScaler`
computes, each with the difference of values as its coefficient.

Scores are taken apart for it (`ScoreParts`). Those of linear and additive models are sums over columns. What a column
adds is constant below its low bound and
above its high one, and straight between a few public points: the bounds, the point nearest to 0, the knots of its
curves and the places where their scales bend. So a model is a list of points and values, which other programs can
evaluate.

**Privacy** Everything is computed from released weights and public or released bounds. No row is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.base import is_classifier
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import TruncatedSVD
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import MinMaxScaler
from sklearn.svm import LinearSVC
from sklearn.utils.validation import check_is_fitted

from ..arrays import Floats
from ..errors import InvalidParameter, UnsupportedModel
from ..tables import CategoricalColumn, DateColumn, HashedColumn, Schema
from .curves import Curve, Curves
from .regressors import CountRegressor


@dataclass(frozen=True, eq=False)
class NumberPart:
    """What a numeric column adds."""

    column: str
    points: Floats  # increasing; beyond the ends the sum stays as it is there
    values: Floats
    empty: Floats | None = None  # what a missing cell adds; None if there is no prediction then


@dataclass(frozen=True, eq=False)
class LevelPart:
    """What a column adds for each of its levels, for any other cell and for a missing one; None is no prediction."""

    column: str
    levels: tuple[Any, ...]
    values: Floats
    other: Floats | None
    empty: Floats | None


@dataclass(frozen=True, eq=False)
class ScoreParts:
    """The K scores of a model: constants, and what each column adds."""

    constant: Floats
    parts: tuple[NumberPart | LevelPart, ...]

    def ends(self, output: int) -> tuple[float, float]:
        """Return the lowest and the highest score that any row may have."""
        low = high = float(self.constant[output])
        for part in self.parts:
            known = [part.values, *([part.empty[None]] if part.empty is not None else [])]
            if isinstance(part, LevelPart) and part.other is not None:
                known.append(part.other[None])
            values = np.concatenate(known)[:, output]
            low, high = low + float(values.min()), high + float(values.max())
        return low, high


def parts_of(model: Any, columns: Sequence[str] | None = None) -> ScoreParts:
    """Return the scores of a fitted linear or additive model as parts.

    ``columns`` are the names of its columns, where it has not been fitted to names.

    Raises
    ------
    UnsupportedModel
        The scores are no sums over columns, or a column cannot be read by other programs in the same way.
    """
    if getattr(model, "_forest", None) is not None:
        raise UnsupportedModel(
            f"the trees of a {type(model).__name__} are no sums over columns, which alone are exported: use "
            "model.save, or fit an additive model"
        )
    if not all(np.isfinite(end).all() for end in model.bounds_):
        raise UnsupportedModel("a model without bounds of its columns cannot be exported")
    weights = np.atleast_2d(model.coef_).T
    constant = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    drawn = [_part(model, column, weights) for column in range(model.n_features_in_)]
    schema = getattr(model, "schema_", None)
    if schema is not None:
        return _by_schema(schema, drawn, constant)
    given = getattr(model, "feature_names_in_", [f"x{column}" for column in range(len(drawn))])
    names = [str(each) for each in (given if columns is None else columns)]
    if len(names) != len(drawn):
        raise UnsupportedModel(f"the model has {len(drawn)} columns, and {len(names)} names were given")
    packed = getattr(model, "_file_bounds", None)
    parts = []
    for position, (name, (points, values)) in enumerate(zip(names, drawn, strict=True)):
        ends = None if packed is None else (float(packed[0][position]), float(packed[1][position]))
        parts.append(NumberPart(name, *_unscaled(points, values, ends)))
    return ScoreParts(constant, tuple(parts))


def _part(model: Any, column: int, weights: Floats) -> tuple[Floats, Floats]:
    """Return the points of a column, in the units of the model, and what is added there."""
    coded = model._features
    low, high = (float(end[column]) for end in model.bounds_)
    if not isinstance(coded, Curves):
        points = np.array([low, high])
        return points, points[:, None] * weights[column]
    shift, scale = float(coded.scaling.shift[column]), float(coded.scaling.scale[column])
    bends = [_bends(curve) for curve in coded.curves if curve.column == column]
    scaled = np.concatenate([np.array([low - shift, 0.0, high - shift]) / scale, *bends])
    first, last = (low - shift) / scale, (high - shift) / scale
    points = np.unique(np.clip(shift + scale * np.unique(np.clip(scaled, first, last)), low, high))
    shape = (points.size, coded.scaling.columns)
    cells = sparse.csr_array((points, (np.arange(points.size), np.full(points.size, column))), shape=shape)
    return points, np.asarray(coded.apply(cells) @ weights)


def _bends(curve: Curve) -> Floats:
    """Return the scaled cells where a curve may bend: at its knots, at 0, and where its scale doubles."""
    doubled = np.arange(-curve.doublings, curve.doublings + 1) / max(curve.doublings, 1)
    return np.concatenate([curve.cells(curve.knots), curve.cells(doubled)])


def _unscaled(points: Floats, values: Floats, bounds: tuple[float, float] | None) -> tuple[Floats, Floats]:
    """Return points in the units of a cell that is clipped to bounds and mapped to [0, 1] before the model."""
    if bounds is None:
        return points, values
    low, high = bounds
    kept = np.unique(np.clip(np.append(points, [0.0, 1.0]), 0.0, 1.0))
    read = np.column_stack([np.interp(kept, points, each) for each in values.T])
    return low + kept * (high - low), read


def _by_schema(schema: Schema, drawn: Sequence[tuple[Floats, Floats]], constant: Floats) -> ScoreParts:
    """Return parts of the columns of a table, which a schema codes: numbers first, then zeros and ones."""
    for column in schema.columns:
        if isinstance(column, DateColumn | HashedColumn):
            kind = "dates" if isinstance(column, DateColumn) else "hashed text"
            raise UnsupportedModel(f"column {column.name!r} of {kind} has no form in other programs: leave it out")
    width, constant = len(constant), constant.copy()
    rest = iter(drawn[len(schema.numbers) :])

    def indicator() -> Floats:
        """Return what the next column of zeros and ones adds where it is 1, having counted what it adds at 0."""
        nonlocal constant
        points, values = next(rest)
        at_zero, at_one = (np.array([np.interp(cell, points, each) for each in values.T]) for cell in (0.0, 1.0))
        constant = constant + at_zero
        return np.asarray(at_one - at_zero, dtype=np.float64)

    parts: list[NumberPart | LevelPart] = []
    for number, (points, values) in zip(schema.numbers, drawn, strict=False):
        own, choice = _unscaled(points, values, number.bounds), number.missing or schema.missing
        empty = None
        if choice != "error":
            coded = 0.5 if choice == "midpoint" else 0.0
            empty = np.array([np.interp(coded, points, each) for each in values.T], dtype=np.float64)
            empty = empty + indicator() if choice == "level" else empty
        parts.append(NumberPart(number.name, *own, empty))
    for column in schema.categorical:
        parts.append(_levels(column, schema, indicator, np.zeros(width)))
    return ScoreParts(constant, tuple(parts))


def _levels(column: CategoricalColumn, schema: Schema, indicator: Any, nothing: Floats) -> LevelPart:
    unknown, missing = column.unknown or schema.unknown, column.missing or schema.missing
    values = np.array([indicator() for _ in column.levels])
    other = {"error": lambda: None, "zero": lambda: nothing, "other": indicator}[unknown]()
    empty = {"error": lambda: None, "midpoint": lambda: nothing, "level": indicator}[missing]()
    return LevelPart(column.name, tuple(column.levels), values, other, empty)


def numeric_parts(model: Any) -> Iterator[NumberPart]:
    """Yield the parts of a model all of whose columns are numbers, or raise `UnsupportedModel`."""
    if getattr(model, "schema_", None) is not None:
        raise UnsupportedModel(
            "a model that codes a table of text by its schema_ has no pipeline of scikit-learn alone: use to_sql(), "
            "or fit to the columns that schema_.encoder() returns"
        )
    for part in parts_of(model).parts:
        assert isinstance(part, NumberPart)
        yield part


_LEAST_SCORE = -700.0  # of a count, as in its predictions


def to_sklearn(model: Any) -> Pipeline:
    """Return a fitted pipeline of scikit-learn; see `PrivateLinearModel.to_sklearn`."""
    check_is_fitted(model)
    parts, width = list(numeric_parts(model)), model.n_features_in_
    constant = np.atleast_1d(np.asarray(model.intercept_, dtype=np.float64))
    lows, highs, taken, steps = [], [], [], []
    for position, part in enumerate(parts):
        constant = constant + part.values[0]
        lows.append(part.points[:-1])
        highs.append(part.points[1:])
        steps.append(np.diff(part.values, axis=0))
        taken += [position] * (part.points.size - 1)
    cells = _cells(np.concatenate(lows), np.concatenate(highs), taken, width)
    weights = np.concatenate(steps).T
    if is_classifier(model):
        return Pipeline([("cells", cells), ("model", _classifier(model, weights, constant))])
    scores = ScoreParts(np.atleast_1d(np.asarray(model.intercept_, np.float64)), tuple(parts))
    low, high = _reach(model, scores)
    score = TruncatedSVD(1)
    score.components_, score.n_features_in_ = weights, len(taken)
    score.explained_variance_ = score.explained_variance_ratio_ = score.singular_values_ = np.ones(1)
    last = PoissonRegressor() if _of_counts(model) else LinearRegression()
    last.fit(np.array([[0.0], [1.0]]), np.ones(2))  # any rows; the coefficients are replaced
    last.coef_, last.intercept_ = np.array([high - low]), np.float64(low)
    clip = _scaler(np.array([low - constant[0]]), np.array([high - constant[0]]))
    return Pipeline([("cells", cells), ("score", score), ("within_bounds", clip), ("model", last)])


def _scaler(low: Floats, high: Floats) -> MinMaxScaler:
    """Return a fitted scaler that clips columns to [low, high] and maps them to [0, 1]."""
    scaler = MinMaxScaler(clip=True)
    return scaler.fit(np.vstack([low, high]))


def _cells(lows: Floats, highs: Floats, taken: list[int], width: int) -> ColumnTransformer:
    """Return the step that takes columns, some of them several times, and clips and scales each."""
    cells = ColumnTransformer([("clip_and_scale", MinMaxScaler(clip=True), taken)])
    ends = np.zeros((2, width))  # any two rows fit the step; the scaler in it is replaced by the one of the bounds
    ends[1] = 1.0
    cells.fit(ends)
    cells.transformers_ = [("clip_and_scale", _scaler(lows, highs), taken), *cells.transformers_[1:]]
    return cells


def _classifier(model: Any, weights: Floats, constant: Floats) -> Any:
    last = LogisticRegression() if hasattr(model, "predict_proba") else LinearSVC()
    last.classes_, last.coef_, last.intercept_ = model.classes_, weights, constant
    last.n_features_in_, last.n_iter_ = weights.shape[1], np.array([1])
    return last


def _reach(model: Any, scores: ScoreParts) -> tuple[float, float]:
    """Return between which ends the score of a regression stays, as narrow as any row can reach."""
    low, high = model.target_bounds_
    if _of_counts(model):
        low, high = _LEAST_SCORE, math.log(high)
    least, most = scores.ends(0)
    if not (math.isfinite(least) and math.isfinite(most)):
        raise UnsupportedModel("a model whose scores are out of range cannot be exported")
    room = 1.0 + 0.001 * (most - least)
    low, high = max(low, min(least - room, high - room)), min(high, max(most + room, low + room))
    return float(low), float(high)


def to_sql(
    model: Any, output: str | None = None, of: Any = None, columns: Sequence[str] | None = None, quote: str = '"'
) -> str:
    """Return one expression of SQL; see `PrivateLinearModel.to_sql`."""
    check_is_fitted(model)
    if quote not in ('"', "`", "[]"):
        raise InvalidParameter(f"quote must be '\"', '`' or '[]', got {quote!r:.20}")
    writer = _Writer(parts_of(model, columns), quote)
    kind = _kind(model)
    wanted = output or ("probability" if kind == "probability" else "score" if kind == "score" else "prediction")
    if of is not None and wanted != "probability":
        raise InvalidParameter("of names the class of a probability: leave it out")
    if wanted == "score" and len(writer.parts.constant) == 1:
        return writer.score(np.ones(1))
    if wanted == "probability" and kind == "probability":
        return writer.probability(_position(model, of))
    if wanted == "prediction" and kind in ("number", "count"):
        clipped = writer.clipped(*_reach(model, writer.parts))
        return clipped if kind == "number" else f"EXP({clipped})"
    if wanted == "prediction" and len(model.classes_) == 2:
        score = writer.score(np.ones(1))
        first, second = (literal(each) for each in model.classes_.tolist())
        return f"CASE WHEN {score} > 0 THEN {second} WHEN {score} <= 0 THEN {first} END"
    raise InvalidParameter(
        f"output {wanted!r:.40} is none of this model: choose {_outputs(kind, len(writer.parts.constant))}"
    )


def _of_counts(model: Any) -> bool:
    return isinstance(model, CountRegressor) and model._counts()


def _kind(model: Any) -> str:
    if is_classifier(model):
        return "probability" if hasattr(model, "predict_proba") else "score"
    return "count" if _of_counts(model) else "number"


def _outputs(kind: str, scores: int) -> str:
    if kind == "probability" and scores > 1:
        return "'probability' of a class"
    return {"probability": "'probability', 'score' or 'prediction'"}.get(kind, "'score' or 'prediction'")


def _position(model: Any, of: Any) -> int:
    """Return the position of a class: by default of the second of two."""
    classes = model.classes_.tolist()
    if of is None and len(classes) == 2:
        return 1
    if of not in classes:
        raise InvalidParameter(f"of must be one of the classes {', '.join(map(repr, classes))}")
    return int(classes.index(of))


def literal(value: Any) -> str:
    """Return a number or a text as SQL writes it."""
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, int):
        return str(value) if value >= 0 else f"({value})"
    if isinstance(value, float):
        if not math.isfinite(value):
            raise UnsupportedModel("a number of the model is out of range")
        return repr(value) if value >= 0 else f"({value!r})"
    if isinstance(value, str) and "\0" not in value and "\\" not in value:
        return "'" + value.replace("'", "''") + "'"
    raise UnsupportedModel(f"{value!r:.40} has no form in SQL that all databases read alike")


class _Writer:
    """Writes sums of what columns add. A missing cell gives NULL, unless the model has learnt what it means."""

    def __init__(self, parts: ScoreParts, quote: str) -> None:
        self.parts = parts
        self._open, self._close = (quote[0], quote[-1])
        self._names = {part.column: self._quoted(part.column) for part in parts.parts}

    def _quoted(self, name: str) -> str:
        if not name or "\0" in name:
            raise UnsupportedModel(f"{name!r:.40} is no name of a column in SQL")
        return self._open + name.replace(self._close, self._close * 2) + self._close

    def score(self, of: Floats) -> str:
        """Return the sum of the scores, weighted by ``of``."""
        terms = [literal(float(self.parts.constant @ of))]
        terms += [self._term(part, lambda values: np.asarray(values) @ of) for part in self.parts.parts]
        while len(terms) > 1:  # in pairs, because databases limit how deep an expression is
            paired = [f"({first} + {second})" for first, second in zip(terms[::2], terms[1::2], strict=False)]
            terms = paired + terms[2 * len(paired) :]
        return terms[0]

    def clipped(self, low: float, high: float) -> str:
        """Return the score of a regression within its ends."""
        score, (least, most) = self.score(np.ones(1)), self.parts.ends(0)
        if low <= least and most <= high:
            return score
        ends = literal(low), literal(high)
        return (
            f"CASE WHEN {score} < {ends[0]} THEN {ends[0]} WHEN {score} > {ends[1]} THEN {ends[1]} ELSE {score} END"
        )

    def probability(self, position: int) -> str:
        """Return the probability of a class: 1/(1 + the sum of exp(s_j - s_k) over other classes)."""
        scores = len(self.parts.constant)
        if scores == 1:
            sign = 1.0 if position == 0 else -1.0
            return f"1.0 / (1.0 + EXP({self.score(np.array([sign]))}))"
        others = [np.eye(scores)[each] - np.eye(scores)[position] for each in range(scores) if each != position]
        return f"1.0 / (1.0 + {' + '.join(f'EXP({self.score(each)})' for each in others)})"

    def _term(self, part: NumberPart | LevelPart, weigh: Callable[[Any], Any]) -> str:
        name = self._names[part.column]
        empty = "NULL" if part.empty is None else literal(float(weigh(part.empty)))
        cases = [f"WHEN {name} IS NULL THEN {empty}"]
        if isinstance(part, LevelPart):
            values = weigh(part.values).tolist()
            for level, value in zip(part.levels, values, strict=True):
                cases.append(f"WHEN {name} = {literal(level)} THEN {literal(value)}")
            other = "NULL" if part.other is None else literal(float(weigh(part.other)))
            return f"CASE {' '.join(cases)} ELSE {other} END"
        points, values = part.points.tolist(), weigh(part.values).tolist()
        cases.append(f"WHEN {name} <= {literal(points[0])} THEN {literal(values[0])}")
        for at in range(len(points) - 1):
            slope = (values[at + 1] - values[at]) / (points[at + 1] - points[at])
            line = f"{literal(values[at])} + ({name} - {literal(points[at])}) * {literal(slope)}"
            cases.append(f"WHEN {name} < {literal(points[at + 1])} THEN {line}")
        return f"CASE {' '.join(cases)} ELSE {literal(values[-1])} END"
