"""The file format of a schema: a JSON object, read with all of its problems at once, explained, and described.

What each type of column may say is written once, in `KINDS`; reading, writing, the help in a draft and the JSON
Schema for editors all follow it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from ..errors import SchemaError
from .columns import (
    CategoricalColumn,
    Column,
    DateColumn,
    HashedColumn,
    IgnoredColumn,
    Label,
    NumericColumn,
    Unit,
    require_sound,
)
from .declaration import UNREADABLE, FileFormat, Schema
from .encoder import MISSING, UNKNOWN

FILL_IN = "FILL IN"
_WIDTH = 110

_LEVELS = {"type": "array", "items": {"type": ["string", "number", "boolean"]}, "uniqueItems": True}
_VALUES: dict[str, dict[str, Any]] = {
    "low": {"type": ["number", "string"], "description": "The public lower bound: cells below it are clipped."},
    "high": {"type": ["number", "string"], "description": "The public upper bound: cells above it are clipped."},
    "format": {
        "type": "string",
        "description": "How dates are written: %d.%m.%Y, or day first or month first for any common form.",
    },
    "levels": _LEVELS | {"minItems": 1, "description": "The public levels."},
    "buckets": {"type": "integer", "minimum": 2, "description": "Into how many buckets text is hashed."},
    "missing": {"enum": list(MISSING), "description": "What is done with a missing cell."},
    "unknown": {"enum": list(UNKNOWN), "description": "What is done with a cell outside the levels."},
    "note": {"type": "string", "description": "For people; it is not read."},
    "separator": {"type": "string", "minLength": 1, "maxLength": 1},
    "encoding": {"type": "string"},
    "decimal": {"enum": [".", ","]},
    "column": {"type": "string", "description": "The name of the column to predict."},
    "classes": _LEVELS | {"minItems": 2, "description": "The public classes, to classify."},
    "rest": {"type": ["string", "number", "boolean"], "description": "The class that all other labels count as."},
}
_UNIT_COLUMN = {"type": "string", "description": "The name of the column that says whose row it is."}
_COMMENTS = ("note",)  # keys that any object may have
_TOP_COMMENTS = ("$schema", "help", *_COMMENTS)


@dataclass(frozen=True)
class Kind:
    """A type of column: its class, what it is for, the keys it must and may have, and an example."""

    column: type[Column]
    purpose: str
    example: Mapping[str, Any]
    required: tuple[str, ...] = ()

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys but the type."""
        return tuple(field.name for field in fields(self.column) if field.name != "name")


KINDS = {
    "numeric": Kind(
        NumericColumn,
        "numbers, clipped to public bounds; without low and high a fit measures bounds privately",
        {"type": "numeric", "low": 17, "high": 90, "missing": "midpoint"},
    ),
    "date": Kind(
        DateColumn,
        "dates, which become days; without low and high a fit measures bounds privately",
        {"type": "date", "low": "1980-01-01", "high": "2030-01-01", "format": "%d.%m.%Y"},
    ),
    "categorical": Kind(
        CategoricalColumn,
        "one of a few values that are known in advance",
        {"type": "categorical", "levels": ["clerk", "nurse"], "missing": "level", "unknown": "other"},
        ("levels",),
    ),
    "hashed": Kind(
        HashedColumn,
        "text with too many values to list, put into buckets by a public hash",
        {"type": "hashed", "buckets": 64, "missing": "level"},
        ("buckets",),
    ),
    "ignore": Kind(IgnoredColumn, "not used, such as a name or an identifier", {"type": "ignore"}),
}
_NAMES = {kind.column: name for name, kind in KINDS.items()}


def document_of(schema: Schema) -> dict[str, Any]:
    """Return the JSON object of a schema."""
    label = {"column": schema.label.column} | _given(schema.label, ("classes", "low", "high", "rest"))
    described = {
        column.name: {"type": _NAMES[type(column)]} | _given(column, KINDS[_NAMES[type(column)]].keys)
        for column in schema.columns
    }
    document: dict[str, Any] = {"columns": described, "label": label}
    document |= _given(schema, ("rows",))
    if schema.unit is not None:
        document["unit"] = _given(schema.unit, ("column", "rows"))
    document |= {
        key: value for key in ("missing", "unknown", "unreadable") if (value := getattr(schema, key)) != "error"
    }
    if schema.file != FileFormat():
        document["file"] = _given(schema.file, ("separator", "encoding", "decimal"))
    if schema.measured is not None:
        document["measured"] = dict(schema.measured)
    return document


def _given(holder: object, keys: tuple[str, ...]) -> dict[str, Any]:
    """Return the attributes that are there, as JSON has them."""
    held = {key: getattr(holder, key) for key in keys}
    return {
        key: list(value) if isinstance(value, tuple) else value for key, value in held.items() if value is not None
    }


def read_document(path: str | Path) -> Any:
    """Return the JSON value in a file, or raise `SchemaError` with the line at which it is no JSON."""
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise SchemaError(f"schema file {str(path)!r} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise SchemaError(f"schema file {str(path)!r} cannot be read: it is not UTF-8 text") from None
    try:
        return json.loads(text, object_pairs_hook=_without_repeats, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise SchemaError(
            f"schema file {str(path)!r} is not valid JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from None
    except RecursionError:
        raise SchemaError(f"schema file {str(path)!r} is not valid JSON: it is nested too deeply") from None
    except SchemaError:
        raise
    except ValueError:
        raise SchemaError(
            f"schema file {str(path)!r} is not valid JSON: it has a number of too many digits"
        ) from None


def schema_of(document: Any) -> Schema:
    """Return the schema that a JSON value describes, or raise one `SchemaError` that lists all of its problems."""
    try:
        open_places = places_to_fill(document)
    except RecursionError:
        raise SchemaError("the schema is nested too deeply: a column is described by one object") from None
    found = [
        f"the schema still has {FILL_IN!r} at: {', '.join(open_places)}. Replace each by public knowledge (type is "
        f"one of {', '.join(KINDS)}); do not look the values up in the private table"
    ] * bool(open_places)
    columns: list[Column] = []
    label: Label | None = None
    top: dict[str, Any] = {}
    keys = ("rows", "missing", "unknown", "unreadable", "measured", "file", "unit")
    found += _key_problems("the schema", document, ("columns", "label"), keys, _TOP_COMMENTS)
    if isinstance(document, Mapping):
        declared = document.get("columns", {})
        if not isinstance(declared, Mapping):
            found.append("columns: must be an object that maps each column name to its description")
            declared = {}
        for name, description in declared.items():
            columns += _parse(found, _column, name, description)
        if "label" in document:
            label = next(iter(_parse(found, _label, "label", document["label"])), None)
        top = {key: document[key] for key in keys[:5] if key in document}
        if not isinstance(top.get("measured", {}), Mapping):
            found.append("measured: must be the object that a measurement has written")
        if "unit" in document:
            top["unit"] = next(iter(_parse(found, _unit, "unit", document["unit"])), None)
        if "file" in document:
            top["file"] = next(iter(_parse(found, _file, "file", document["file"])), FileFormat())
    # What is wrong with the whole is said as well, unless a part of it could not be read.
    if label is not None and (not found or columns):
        try:
            schema = Schema(tuple(columns), label, **top)
        except SchemaError as error:
            found += error.problems
        else:
            if not found:
                return schema
    raise SchemaError(*dict.fromkeys(found))


def declared_in(path: str | Path) -> tuple[dict[str, Column], tuple[Any, ...] | None]:
    """Return the columns and the classes that a draft declares, without those that are still to be filled in.

    Where a column does not say what is done with cells that are missing or unknown, they are no errors: they are
    levels of their own, and the midpoint for numbers.
    """
    document = read_document(path)
    described = document.get("columns", {}) if isinstance(document, Mapping) else None
    if not isinstance(described, Mapping):
        raise SchemaError("columns: must be an object that maps each column name to its description")
    found: list[str] = []
    columns = [each for name, text in described.items() for each in _parse(found, _column, name, text)]
    require_sound(found)
    defaults = {"missing": "level", "unknown": "other"}
    known: dict[str, Column] = {}
    for column in columns:
        numeric = isinstance(column, NumericColumn | DateColumn)
        chosen = defaults | ({"missing": "midpoint"} if numeric else {})
        unsaid = {key: each for key, each in chosen.items() if getattr(column, key, "said") is None}
        known[column.name] = replace(column, **unsaid)
    label = document.get("label")
    classes = label.get("classes") if isinstance(label, Mapping) else None
    return known, tuple(classes) if isinstance(classes, list) and not places_to_fill(classes) else None


def _parse(found: list[str], parse: Any, name: str, description: Any) -> list[Any]:
    """Return what a part of the document describes, in a list; or nothing, and its problems in ``found``."""
    if places_to_fill(description):
        return []
    try:
        return [parse(name, description)]
    except SchemaError as error:
        found += error.problems
        return []


def _column(name: str, description: Any) -> Column:
    place = f"columns.{name}"
    kind = description.get("type") if isinstance(description, Mapping) else None
    if not isinstance(kind, str) or kind not in KINDS:
        names = ", ".join(f'"{known}"' for known in KINDS)
        raise SchemaError(f"{place}.type: must be one of {names}{_nearest(kind, KINDS)}")
    described = KINDS[kind]
    keys = {key: value for key, value in description.items() if key != "type"}
    optional = tuple(key for key in described.keys if key not in described.required)
    require_sound(_key_problems(place, keys, described.required, optional))
    values = {key: _frozen(value) for key, value in keys.items() if key not in _COMMENTS}
    built: Column = described.column(name, **values)
    return built


def _label(place: str, description: Any) -> Label:
    require_sound(_key_problems(place, description, ("column",), ("classes", "low", "high", "rest")))
    return Label(**{key: _frozen(value) for key, value in description.items() if key not in _COMMENTS})


def _unit(place: str, description: Any) -> Unit:
    require_sound(_key_problems(place, description, ("column", "rows")))
    return Unit(description["column"], description["rows"])


def _file(place: str, description: Any) -> FileFormat:
    require_sound(_key_problems(place, description, (), ("separator", "encoding", "decimal")))
    return FileFormat(**{key: value for key, value in description.items() if key not in _COMMENTS})


def _frozen(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _key_problems(
    place: str,
    document: object,
    required: tuple[str, ...],
    optional: tuple[str, ...] = (),
    comments: tuple[str, ...] = _COMMENTS,
) -> Iterator[str]:
    if not isinstance(document, Mapping):
        keys = f" with the keys {', '.join(required)}" if required else ""
        yield f"{place}: must be a JSON object{keys}"
        return
    for key in required:
        if key not in document:
            yield f"{place}: the key {key!r} is missing: add it"
    known = (*required, *optional)
    for key in document:
        if key not in (*known, *comments):
            yield f"{place}: the key {key!r} is not known here{_nearest(key, known) or ': remove it'}"


def _nearest(name: object, known: Any) -> str:
    close = get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f": did you mean {close[0]!r}?" if close else ""


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


def as_text(document: Any, indent: str = "") -> str:
    """Return a document as JSON in which an object or a list takes one line where it fits into one."""
    line = json.dumps(document, ensure_ascii=False)
    if not isinstance(document, Mapping | list) or not document or len(indent) + len(line) <= _WIDTH:
        return line
    inner = f"{indent}  "
    if isinstance(document, list):
        parts, ends = [as_text(value, inner) for value in document], "[]"
    else:
        pairs = document.items()
        parts = [f"{json.dumps(key, ensure_ascii=False)}: {as_text(value, inner)}" for key, value in pairs]
        ends = "{}"
    return f"{ends[0]}\n{inner}" + f",\n{inner}".join(parts) + f"\n{indent}{ends[1]}"


def json_schema() -> dict[str, Any]:
    """Return a JSON Schema of the file format, by which editors complete and check what is typed."""
    variants = [
        _object({"type": {"const": name}} | {key: _VALUES[key] for key in kind.keys}, ("type", *kind.required))
        | {"title": name, "description": kind.purpose, "examples": [kind.example]}
        for name, kind in KINDS.items()
    ]
    label = _object({key: _VALUES[key] for key in ("column", "classes", "low", "high", "rest")}, ("column",))
    file = _object({key: _VALUES[key] for key in ("separator", "encoding", "decimal")})
    rows = {"type": "integer", "minimum": 1}
    unit = _object({"column": _UNIT_COLUMN, "rows": rows}, ("column", "rows"))
    top = {
        "$schema": {"type": "string"},
        "help": {"type": "object"},
        "columns": {"type": "object", "minProperties": 1, "additionalProperties": {"oneOf": variants}},
        "label": label,
        "rows": rows | {"description": "The number of rows, if it is public."},
        "unit": unit | {"description": "All rows of one person are protected, of which at most so many are used."},
        "missing": _VALUES["missing"],
        "unknown": _VALUES["unknown"],
        "unreadable": {"enum": list(UNREADABLE), "description": "What is done with a cell that is not of its type."},
        "measured": {"type": "object", "description": "What was measured, and its privacy statement."},
        "file": file,
    }
    head = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "Public schema of a table"}
    return head | _object(top, ("columns", "label"))


def _object(properties: Mapping[str, Any], required: tuple[str, ...] = ()) -> dict[str, Any]:
    described = {"type": "object", "properties": {**properties, "note": _VALUES["note"]}}
    return described | {"required": list(required), "additionalProperties": False}


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    keys = [key for key, _ in pairs]
    twice = sorted({key for key in keys if keys.count(key) > 1})
    if twice:
        raise SchemaError(f"the key {twice[0]!r} occurs twice in one object: keep one")
    return dict(pairs)


def _refuse_constant(text: str) -> float:
    raise SchemaError(f"{text} is not allowed in a schema: give a finite public number")
