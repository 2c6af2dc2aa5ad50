"""Files that are refused unless they are whole: a format, a version and a digest around plain data.

The digest finds files that were cut off, damaged or edited by hand. It is no signature: whoever edits a file on
purpose can compute it anew, which is why the numbers inside are checked against each other as well: `agree` tells
whether they say the same, given that floating point may differ in the last digits.

`objection` checks plain data by the part of JSON Schema that the schemas of this package use, so that a schema
decides and not a second list. Known are ``type``, ``const``, ``enum``, ``properties``, ``required``,
``additionalProperties``, ``items``, ``minItems``, ``minimum``, ``maximum``, ``exclusiveMinimum``, ``minLength``,
``maxLength`` and ``$ref`` into ``$defs``. A keyword that is not known raises, so that a schema never promises more
than is checked.
"""

from __future__ import annotations

import hashlib
import json
import math
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from ..errors import DPDescentError

AGREEMENT = 1e-9  # relative: prices are the same to rounding on every machine
_INFINITE = ("epsilon", "budget", "spent", "spent_epsilon")
_PICKLES = (b"\x80", b"PK\x03\x04", b"\x1f\x8b")  # a pickle, and the archives in which pickles are kept

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


@dataclass(frozen=True)
class FileKind:
    """One kind of JSON file."""

    #: What every such file says about itself.
    format: str
    version: int
    noun: str  # what people call it
    error: type[DPDescentError]  # the error that refuses a file
    #: Versions that are read as well, which have a part of what this one has.
    earlier: tuple[int, ...] = ()

    def seal(self, content: Mapping[str, Any]) -> str:
        """Return the text of a file with that content; a number in it must be finite."""
        data = {"format": self.format, "version": self.version} | dict(content)
        return json.dumps(data | {"digest": _digest(data)}, indent=1, allow_nan=False) + "\n"

    def read(self, path: Path) -> dict[str, Any]:
        """Return the content of a file, or raise the error of this kind."""
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise self.error(f"there is no {self.noun} at {path}: correct the path") from None
        except OSError as problem:
            raise self.error(f"cannot read {path}: {problem.strerror}") from None
        return self.unseal(text, str(path))

    def unseal(self, text: bytes | str, where: str) -> dict[str, Any]:
        """Return the content of a text, without what `seal` has added."""
        raw = text.encode() if isinstance(text, str) else text
        if raw.startswith(_PICKLES):
            raise self.error(
                f"{where} is a pickle or an archive, which could run code when it is loaded: nothing was loaded; "
                f"a {self.noun} is a JSON file"
            )
        data = self._parse(raw, where)
        if not isinstance(data, dict) or data.get("format") != self.format:
            raise self.error(f"{where} is not a dpdescent {self.noun}")
        version = data.get("version")
        if version not in (self.version, *self.earlier) or isinstance(version, bool):
            newer = isinstance(version, int) and version > self.version
            raise self.error(
                f"{where} is a {self.noun} of version {version!r:.20} and this release reads version {self.version}: "
                f"{'update dpdescent' if newer else 'use the release that wrote it'}"
            )
        if data.pop("digest", None) != _digest(data):
            raise self.error(
                f"{where} was changed after it was written, or is damaged: its digest does not fit; get the original"
            )
        return {name: value for name, value in data.items() if name not in ("format", "version")}

    def _parse(self, raw: bytes, where: str) -> Any:
        try:
            return json.loads(raw.decode(), object_pairs_hook=_refuse_repeats, parse_constant=_refuse_constant)
        except RecursionError:
            raise self.error(f"{where} is not a dpdescent {self.noun}: it is nested too deeply") from None
        except ValueError:
            raise self.error(f"{where} is not a whole JSON file: it was cut off, or it is no {self.noun}") from None


def _digest(data: Mapping[str, Any]) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def _refuse_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _refuse_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")


def with_nulls(data: Any) -> Any:
    """Return the plain data of a statement with null for what is infinite, as JSON has it."""
    if not isinstance(data, dict):
        return data
    return data | {name: None for name in _INFINITE if name in data and _is_infinite(data[name])}


def _is_infinite(value: Any) -> bool:
    return isinstance(value, float) and value == math.inf


def agree(given: Any, computed: Any) -> bool:
    """Return whether plain data is what was computed, but for rounding."""
    if isinstance(computed, dict):
        same = isinstance(given, dict) and given.keys() == computed.keys()
        return same and all(agree(given[name], computed[name]) for name in computed)
    if isinstance(computed, list):
        same = isinstance(given, list) and len(given) == len(computed)
        return same and all(map(agree, given, computed))
    if isinstance(computed, bool) or not isinstance(computed, int | float):
        return type(given) is type(computed) and bool(given == computed)
    number = isinstance(given, int | float) and not isinstance(given, bool)
    return number and math.isclose(given, computed, rel_tol=AGREEMENT, abs_tol=1e-300)


@cache
def load_schema(package: str, name: str) -> dict[str, Any]:
    """Return the schema in the file ``name`` of a package."""
    found: dict[str, Any] = json.loads((files(package) / name).read_text(encoding="utf-8"))
    return found


def objection(data: Any, schema: Mapping[str, Any]) -> str | None:
    """Return what is wrong with plain data, with the place, or None. No value is shown."""
    return _Place(data, schema, schema, "").objection()


@dataclass(frozen=True)
class _Place:
    """A place in plain data: what is there, its part of the schema, the whole schema, and how the place is reached.

    Each method is one keyword of JSON Schema, and returns what is wrong by it, or None.
    """

    value: Any
    schema: Mapping[str, Any]
    root: Mapping[str, Any]
    where: str

    def objection(self) -> str | None:
        for keyword, wanted in self.schema.items():
            if keyword in _ANNOTATIONS:
                continue
            if keyword in _LIMITS:
                found = self.limit(keyword, wanted)
            elif keyword in _KEYWORDS:
                found = _KEYWORDS[keyword](self, wanted)
            else:
                raise NotImplementedError(f"the keyword {keyword!r} of JSON Schema is not known here")
            if found is not None:
                return found.removeprefix(".")
        return None

    @property
    def name(self) -> str:
        return self.where or "the whole"

    def first(self, parts: Iterable[tuple[Any, Mapping[str, Any], str]]) -> str | None:
        """Return what is wrong with the first of several parts with which something is."""
        for part, rule, at in parts:
            found = _Place(part, rule, self.root, f"{self.where}{at}").objection()
            if found is not None:
                return found
        return None

    def limit(self, keyword: str, end: Any) -> str | None:
        text, applies, holds = _LIMITS[keyword]
        return f"{self.name} {text} {end!r}" if applies(self.value) and not holds(self.value, end) else None

    def reference(self, wanted: str) -> str | None:
        named = self.root["$defs"][wanted.removeprefix("#/$defs/")]
        return _Place(self.value, named, self.root, self.where).objection()

    def type(self, wanted: str | list[str]) -> str | None:
        names = [wanted] if isinstance(wanted, str) else wanted
        known = any(_TYPES[name](self.value) for name in names)
        return None if known else f"{self.name} must be of type {' or '.join(names)}"

    def const(self, wanted: Any) -> str | None:
        return None if _same(self.value, wanted) else f"{self.name} must be {wanted!r}"

    def enum(self, wanted: list[Any]) -> str | None:
        known = any(_same(self.value, each) for each in wanted)
        return None if known else f"{self.name} must be one of {wanted!r}"

    def items(self, wanted: Mapping[str, Any]) -> str | None:
        parts = self.value if isinstance(self.value, list) else []
        return self.first((each, wanted, f"[{number}]") for number, each in enumerate(parts))

    @property
    def named(self) -> Mapping[str, Any]:
        """The parts of an object by their names; none of anything else."""
        return self.value if isinstance(self.value, dict) else {}

    def required(self, wanted: list[str]) -> str | None:
        missing = [name for name in wanted if isinstance(self.value, dict) and name not in self.value]
        return f"{self.name} lacks {missing[0]!r}" if missing else None

    def properties(self, wanted: Mapping[str, Any]) -> str | None:
        return self.first((self.named[name], each, f".{name}") for name, each in wanted.items() if name in self.named)

    def others(self, wanted: bool | Mapping[str, Any]) -> str | None:
        others = [name for name in self.named if name not in self.schema.get("properties", {})]
        if isinstance(wanted, Mapping):
            return self.first((self.named[name], wanted, f".{name}") for name in others)
        return f"{self.name} has the unknown name {others[0]!r:.40}" if others and not wanted else None


_KEYWORDS: Mapping[str, Callable[[_Place, Any], str | None]] = {
    "$ref": _Place.reference,
    "type": _Place.type,
    "const": _Place.const,
    "enum": _Place.enum,
    "items": _Place.items,
    "required": _Place.required,
    "properties": _Place.properties,
    "additionalProperties": _Place.others,
}


def _is_number(value: Any) -> bool:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return False
    return abs(value) <= sys.float_info.max  # neither NaN nor infinite, nor a whole number that no float holds


def _same(value: Any, wanted: Any) -> bool:
    return isinstance(value, bool) == isinstance(wanted, bool) and bool(value == wanted)
