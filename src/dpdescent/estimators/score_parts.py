"""Scores taken apart: what every column adds to a score, as a straight-line function of its cell or by its level.

The scores of linear and additive models are sums over columns. What a column adds is constant below its low bound and
above its high one, and straight between a few public points: the bounds, the point nearest to 0, the knots of its
curves and the places where their scales bend. So a model is a list of points and values, which other programs can
evaluate (`dpdescent.estimators.exports`).

**Privacy** Everything is computed from released weights and public or released bounds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy import sparse

from ..arrays import Floats
from ..errors import UnsupportedModel
from ..tables import CategoricalColumn, DateColumn, HashedColumn, Schema
from .curves import Curve, Curves


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
