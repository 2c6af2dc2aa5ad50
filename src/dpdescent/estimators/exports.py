"""Fitted models for other programs: a pipeline of scikit-learn alone, and one expression of SQL.

Coefficients are not the whole model: predictions clip every cell to the bounds of its column, curves bend, and
numbers stay within the bounds of the target. Both exports do all of that. A column that adds a straight-line function
between points p_0 < ... < p_m to a score is m columns clip((x - p_j)/(p_{j+1} - p_j), 0, 1), which `MinMaxScaler`
computes, each with the difference of values as its coefficient.

**Privacy** Everything is computed from what was released. No row is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
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
from .regressors import CountRegressor
from .score_parts import LevelPart, NumberPart, ScoreParts, numeric_parts, parts_of

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
