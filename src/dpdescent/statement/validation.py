"""The part of JSON Schema that the schemas of this package use, so that a schema decides and not a second list.

Known are ``type``, ``const``, ``enum``, ``properties``, ``required``, ``additionalProperties``, ``items``,
``minItems``, ``minimum``, ``maximum``, ``exclusiveMinimum``, ``minLength``, ``maxLength`` and ``$ref`` into
``$defs``. A keyword that is not known raises, so that a schema never promises more than is checked.
"""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

__all__ = ["load_schema", "objection"]

_ANNOTATIONS = frozenset({"$schema", "$id", "$defs", "title", "description"})

_TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
    "integer": lambda value: _is_number(value) and value == math.floor(value),
    "number": lambda value: _is_number(value),
}

_LIMITS: Mapping[str, tuple[str, Callable[[Any], bool], Callable[[Any, Any], bool]]] = {
    "minimum": ("must be at least", lambda value: _is_number(value), lambda value, end: value >= end),
    "maximum": ("must be at most", lambda value: _is_number(value), lambda value, end: value <= end),
    "exclusiveMinimum": ("must be above", lambda value: _is_number(value), lambda value, end: value > end),
    "minItems": ("must have at least as many items as", _TYPES["array"], lambda value, end: len(value) >= end),
    "minLength": ("must be at least as long as", _TYPES["string"], lambda value, end: len(value) >= end),
    "maxLength": ("must be at most as long as", _TYPES["string"], lambda value, end: len(value) <= end),
}


@cache
def load_schema(package: str, name: str) -> dict[str, Any]:
    """Return the schema in the file ``name`` of a package."""
    found: dict[str, Any] = json.loads((files(package) / name).read_text(encoding="utf-8"))
    return found


def objection(data: Any, schema: Mapping[str, Any]) -> str | None:
    """Return what is wrong with plain data, with the place, or None. No value is shown."""
    return _objection(data, schema, schema, "")


def _objection(value: Any, schema: Mapping[str, Any], root: Mapping[str, Any], where: str) -> str | None:
    place = where or "the whole"

    def first(parts: Iterable[tuple[Any, Mapping[str, Any], str]]) -> str | None:
        return next((found for part, rule, at in parts if (found := _objection(part, rule, root, at))), None)

    for keyword, wanted in schema.items():
        if keyword in _ANNOTATIONS:
            continue
        found: str | None = None
        if keyword == "$ref":
            found = _objection(value, root["$defs"][wanted.removeprefix("#/$defs/")], root, where)
        elif keyword == "type":
            names = [wanted] if isinstance(wanted, str) else wanted
            if not any(_TYPES[name](value) for name in names):
                found = f"{place} must be of type {' or '.join(names)}"
        elif keyword == "const":
            found = None if _same(value, wanted) else f"{place} must be {wanted!r}"
        elif keyword == "enum":
            found = None if any(_same(value, each) for each in wanted) else f"{place} must be one of {wanted!r}"
        elif keyword in _LIMITS:
            text, applies, holds = _LIMITS[keyword]
            found = f"{place} {text} {wanted!r}" if applies(value) and not holds(value, wanted) else None
        elif keyword == "items":
            parts = value if isinstance(value, list) else []
            found = first((each, wanted, f"{where}[{number}]") for number, each in enumerate(parts))
        elif keyword == "required":
            missing = [name for name in wanted if isinstance(value, dict) and name not in value]
            found = f"{place} lacks {missing[0]!r}" if missing else None
        elif keyword == "properties":
            named = value if isinstance(value, dict) else {}
            found = first((named[name], each, f"{where}.{name}") for name, each in wanted.items() if name in named)
        elif keyword == "additionalProperties":
            known = schema.get("properties", {})
            others = [name for name in value if name not in known] if isinstance(value, dict) else []
            if wanted is False:
                found = f"{place} has the unknown name {others[0]!r:.40}" if others else None
            elif wanted is not True:
                found = first((value[name], wanted, f"{where}.{name}") for name in others)
        else:
            raise NotImplementedError(f"the keyword {keyword!r} of JSON Schema is not known here")
        if found is not None:
            return found.removeprefix(".")
    return None


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # neither NaN nor infinite, nor a whole number that no float holds


def _same(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
