"""A JSON file that carries what is publicly known about a table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..encoding import BoundedEncoder, level_codes, numeric_values
from ..errors import MissingColumn, MissingValue, SchemaError, UnknownLevel
from .unit import Unit

__all__ = ["FILL_IN", "CategoricalColumn", "IgnoredColumn", "Label", "NumericColumn", "Schema"]

FILL_IN = "FILL IN"

Level = str | int | float | bool


@dataclass(frozen=True)
class NumericColumn:
    """A numeric column whose cells are clipped to the public interval [low, high]."""

    name: str
    low: float
    high: float

    def __post_init__(self) -> None:
        _require_interval(f"columns.{self.name}", self.low, self.high)


@dataclass(frozen=True)
class CategoricalColumn:
    """A categorical column with its public levels."""

    name: str
    levels: tuple[Level, ...]

    def __post_init__(self) -> None:
        _require_distinct(f"columns.{self.name}.levels", self.levels, fewest=1)


@dataclass(frozen=True)
class IgnoredColumn:
    """A column that may be in the table and is never used."""

    name: str


Column = NumericColumn | CategoricalColumn | IgnoredColumn


@dataclass(frozen=True)
class Label:
    """What is to be predicted: one of the public ``classes``, or a number in the public [low, high]."""

    column: str
    classes: tuple[Level, ...] | None = None
    low: float | None = None
    high: float | None = None

    def __post_init__(self) -> None:
        if self.classes is not None:
            if self.low is not None or self.high is not None:
                raise SchemaError("label: give either classes or low and high, not both")
            _require_distinct("label.classes", self.classes, fewest=2)
        elif self.low is None or self.high is None:
            raise SchemaError("label: give classes (to classify) or both low and high (to predict a number)")
        else:
            _require_interval("label", self.low, self.high)


@dataclass(frozen=True)
class Schema:
    """Public knowledge about a table: bounds, levels, classes and, if it is public, the number of rows.

    Parameters
    ----------
    columns : tuple of NumericColumn, CategoricalColumn or IgnoredColumn
        Every column of the table except the label, in any order.
    label : Label
        The label column.
    rows : int, optional
        The public number of rows. A file with another number is refused, for instance one that was cut off in a copy.
    unit : Unit, optional
        The column that says whose row it is, where the unit of privacy is all rows of one person.

    Notes
    -----
    **Privacy.** A schema is an assumption, not a measurement: whoever writes it vouches that each number in
    it was known without looking at the table. Nothing here reads a cell except `labels` and the encoder.

    The file format is a JSON object::

        {"columns": {"age": {"type": "numeric", "low": 17, "high": 90},
                     "job": {"type": "categorical", "levels": ["clerk", "nurse"]},
                     "id":  {"type": "ignore"}},
         "label": {"column": "income", "classes": ["<=50K", ">50K"]},
         "rows": 48842,
         "unit": {"column": "id", "rows": 3}}

    Examples
    --------
    >>> schema = Schema((NumericColumn("age", 17, 90),), Label("income", ("low", "high")), rows=100)
    >>> schema.features
    ('age',)
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[Column, ...]
    label: Label
    rows: int | None = None
    unit: Unit | None = None

    def __post_init__(self) -> None:
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise SchemaError(f"columns {twice} are declared twice: keep one declaration each")
        if self.label.column in names:
            raise SchemaError(
                f"column {self.label.column!r} is the label and is also listed under columns: remove it there"
            )
        if not self.features:
            raise SchemaError("columns: at least one column must be numeric or categorical")
        if self.unit is not None and self.unit.column in (*self.features, self.label.column):
            raise SchemaError(f"unit.column: {self.unit.column!r} is a feature or the label: declare it as ignored")
        whole = isinstance(self.rows, int) and not isinstance(self.rows, bool)
        if self.rows is not None and not (whole and self.rows >= 1):
            raise SchemaError("rows: must be a whole number of at least 1, or be left out if it is not public")

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that are used, in the order declared."""
        return tuple(column.name for column in self.columns if not isinstance(column, IgnoredColumn))

    @property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """The numeric columns."""
        return tuple(column for column in self.columns if isinstance(column, NumericColumn))

    @property
    def categorical(self) -> tuple[CategoricalColumn, ...]:
        """The categorical columns."""
        return tuple(column for column in self.columns if isinstance(column, CategoricalColumn))

    def encoder(
        self, *, unknown: str = "error", missing: str = "error", sparse_output: bool = False
    ) -> BoundedEncoder:
        """Return the encoder this schema describes; it skips the label and the ignored columns."""
        ignored = [column.name for column in self.columns if isinstance(column, IgnoredColumn)]
        if self.unit is not None and self.unit.column not in ignored:
            ignored.append(self.unit.column)
        return BoundedEncoder(
            bounds={column.name: (column.low, column.high) for column in self.numeric},
            levels={column.name: column.levels for column in self.categorical},
            ignore=(*ignored, self.label.column),
            unknown=unknown,
            missing=missing,
            sparse_output=sparse_output,
        )

    def labels(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the label column, checked against the classes or clipped to [low, high].

        Raises
        ------
        MissingColumn, MissingValue, UnknownLevel, ColumnTypeError, InfiniteValue
            The label column contradicts the schema; the message shows no cell.
        """
        name = self.label.column
        if name not in frame.columns:
            raise MissingColumn(f"the table lacks the label column {name!r}: add it or correct label.column")
        if self.label.classes is None:
            return np.clip(numeric_values(frame[name], name), self.label.low, self.label.high)
        codes = level_codes(frame[name], name, self.label.classes)
        if (codes < 0).any():
            if frame[name].isna().any():
                raise MissingValue(f"label column {name!r} has a missing value: remove such rows beforehand")
            raise UnknownLevel(
                f"label column {name!r} has a value outside its {len(self.label.classes)} public classes: "
                f"correct label.classes or the file"
            )
        classes = np.array(self.label.classes)
        if len(set(map(type, self.label.classes))) > 1:
            classes = np.array(self.label.classes, dtype=object)
        labels: NDArray[Any] = classes[codes]
        return labels

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the file format."""
        described: dict[str, dict[str, Any]] = {}
        for column in self.columns:
            match column:
                case NumericColumn(name, low, high):
                    described[name] = {"type": "numeric", "low": low, "high": high}
                case CategoricalColumn(name, levels):
                    described[name] = {"type": "categorical", "levels": list(levels)}
                case IgnoredColumn(name):
                    described[name] = {"type": "ignore"}
        label: dict[str, Any] = {"column": self.label.column}
        if self.label.classes is not None:
            label["classes"] = list(self.label.classes)
        else:
            label |= {"low": self.label.low, "high": self.label.high}
        document: dict[str, Any] = {"columns": described, "label": label}
        if self.rows is not None:
            document["rows"] = self.rows
        if self.unit is not None:
            document["unit"] = {"column": self.unit.column, "rows": self.unit.rows}
        return document

    def dump(self, path: str | Path) -> None:
        """Write the schema as a JSON file."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file; `SchemaError` names the column and the key that must be corrected."""
        try:
            text = Path(path).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise SchemaError(f"schema file {str(path)!r} cannot be read: {error}") from None
        try:
            document = json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
        except json.JSONDecodeError as error:
            raise SchemaError(f"schema file {str(path)!r} is not valid JSON: {error}") from None
        return cls.from_dict(document)

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Schema:
        """Build a schema from the JSON object of the file format."""
        open_places = places_to_fill(document)
        if open_places:
            raise SchemaError(
                f"the schema still has {FILL_IN!r} at: {', '.join(open_places)}. Replace each by public "
                f"knowledge "
                f'(type is "numeric", "categorical" or "ignore"); do not look the values up in the private '
                f"table"
            )
        _require_keys("the schema", document, required=("columns", "label"), optional=("rows", "unit"))
        columns = document["columns"]
        if not isinstance(columns, Mapping):
            raise SchemaError("columns: must be an object that maps each column name to its description")
        return cls(
            columns=tuple(_column(name, description) for name, description in columns.items()),
            label=_label(document["label"]),
            rows=document.get("rows"),
            unit=_unit(document["unit"]) if "unit" in document else None,
        )


def places_to_fill(document: object, prefix: str = "") -> list[str]:
    """Return the dotted places of a JSON document that still hold the placeholder."""
    if document == FILL_IN:
        return [prefix]
    if isinstance(document, Mapping):
        pairs = [(f"{prefix}.{key}" if prefix else str(key), value) for key, value in document.items()]
    elif isinstance(document, list):
        pairs = [(f"{prefix}[{position}]", value) for position, value in enumerate(document)]
    else:
        return []
    return [place for name, value in pairs for place in places_to_fill(value, name)]


def _column(name: str, description: Any) -> Column:
    place = f"columns.{name}"
    match description:
        case {"type": "numeric", **keys}:
            _require_keys(place, keys, required=("low", "high"))
            return NumericColumn(name, description["low"], description["high"])
        case {"type": "categorical", **keys}:
            _require_keys(place, keys, required=("levels",))
            return CategoricalColumn(name, _levels(f"{place}.levels", keys["levels"]))
        case {"type": "ignore", **keys}:
            _require_keys(place, keys, required=())
            return IgnoredColumn(name)
        case _:
            raise SchemaError(f'{place}.type: must be "numeric", "categorical" or "ignore"')


def _label(description: Any) -> Label:
    _require_keys("label", description, required=("column",), optional=("classes", "low", "high"))
    if not isinstance(description["column"], str):
        raise SchemaError("label.column: must be a column name")
    classes = _levels("label.classes", description["classes"]) if "classes" in description else None
    return Label(description["column"], classes, description.get("low"), description.get("high"))


def _unit(description: Any) -> Unit:
    _require_keys("unit", description, required=("column", "rows"))
    return Unit(description["column"], description["rows"])


def _levels(place: str, values: object) -> tuple[Level, ...]:
    if not isinstance(values, list):
        raise SchemaError(f"{place}: must be a list")
    return tuple(values)


def _require_keys(place: str, document: object, *, required: tuple[str, ...], optional: tuple[str, ...] = ()) -> None:
    if not isinstance(document, Mapping):
        raise SchemaError(f"{place}: must be a JSON object with the keys {', '.join(required)}")
    absent = [key for key in required if key not in document]
    if absent:
        raise SchemaError(f"{place}: the key {absent[0]!r} is missing: add it")
    extra = [key for key in document if key not in required + optional]
    if extra:
        raise SchemaError(f"{place}: the key {extra[0]!r} is not known here: remove it")


def _require_interval(place: str, low: object, high: object) -> None:
    for key, end in (("low", low), ("high", high)):
        if not isinstance(end, int | float) or isinstance(end, bool) or not math.isfinite(end):
            raise SchemaError(f"{place}.{key}: must be a finite number, got {end!r}")
    if not low < high or not math.isfinite(float(high) - float(low)):  # type: ignore[operator,arg-type]
        raise SchemaError(f"{place}: low must be less than high, and high - low finite, got {low} and {high}")


def _require_distinct(place: str, values: tuple[Level, ...], fewest: int) -> None:
    if any(not isinstance(value, str | int | float) or value != value for value in values):
        raise SchemaError(f"{place}: each entry must be text, a number, true or false")
    if len(values) < fewest:
        raise SchemaError(f"{place}: must have at least {fewest} {'entry' if fewest == 1 else 'entries'}")
    if len(set(values)) != len(values):
        raise SchemaError(f"{place}: entries must all differ (1, 1.0 and true count as equal)")


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise SchemaError(f"the key {twice[0]!r} occurs twice in one object: keep one")
    return dict(pairs)


def _refuse_constant(text: str) -> float:
    raise SchemaError(f"{text} is not allowed in a schema: give a finite public number")
