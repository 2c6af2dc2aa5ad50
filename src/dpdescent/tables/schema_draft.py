"""Draft a schema from column names and storage types, without reading a cell."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DatasetFormatError, InvalidParameter, SchemaError, no_such_column
from .declaration import FileFormat
from .delimited import TEXT_SUFFIXES, read_header
from .encoder import MISSING, UNKNOWN
from .schema_file import FILL_IN, KINDS, as_text, json_schema, places_to_fill

#: The JSON Schema that is written beside a draft, for editors.
FORMAT_FILE = "dpdescent-schema-format.json"

_KINDS = ("numeric", "date", "categorical", "hashed", "boolean", "ignore", FILL_IN)
_IDENTIFYING_WORDS = {"id", "ids", "uuid", "guid", "ssn", "email", "mail", "phone", "iban", "passport"}
_IDENTIFYING_NAMES = {
    "name",
    "fullname",
    "firstname",
    "lastname",
    "surname",
    "username",
    "identifier",
    "key",
    "index",
}
_NOTE = "The name is that of an identifier, so it is left out; declare another type to use it."


@dataclass(frozen=True)
class SchemaDraft:
    """A schema with gaps: `Schema.load` refuses it until every ``FILL IN`` has been replaced."""

    #: Kind is ``numeric``, ``date``, ``categorical``, ``hashed``, ``boolean``, ``ignore`` or ``FILL IN``.
    kinds: tuple[tuple[str, str], ...]
    label: str = FILL_IN  # the label column, or ``FILL IN``

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the schema file format, with placeholders."""
        columns = {name: _description(name, kind) for name, kind in self.kinds if name != self.label}
        return {"columns": columns, "label": {"column": self.label, "classes": FILL_IN}}

    @property
    def places(self) -> tuple[str, ...]:
        """The places that are still to be filled in, such as ``columns.age.low``."""
        return tuple(places_to_fill(self.to_dict()))

    @property
    def identifiers(self) -> tuple[str, ...]:
        """The columns that are left out because their names are those of identifiers."""
        return tuple(name for name, kind in self.kinds if kind == "ignore" and _is_identifier(name))

    def dump(self, path: str | Path) -> None:
        """Write the draft as a JSON file that explains itself, and beside it a JSON Schema for editors."""
        document = {"$schema": f"./{FORMAT_FILE}"} | self.to_dict() | {"help": _HELP}
        for target, content in ((Path(path), document), (Path(path).with_name(FORMAT_FILE), json_schema())):
            target.write_text(as_text(content) + "\n", encoding="utf-8")


_HELP = {
    "what this is": "What is publicly known about a table. Replace every FILL IN by public knowledge, never by "
    "something that was looked up in the rows. `dpdescent schema check FILE` lists what is left to do.",
    "types of columns": {name: {"for": kind.purpose, "example": kind.example} for name, kind in KINDS.items()},
    "missing": f"What is done with a missing cell, for one column or for all of them: {', '.join(MISSING)}. The "
    "midpoint lies between low and high; a level is a column of its own.",
    "unknown": f"What is done with a cell outside the levels: {', '.join(UNKNOWN)}. Zero codes it as no level, other "
    "as a level of its own.",
    "label": {
        "to classify": {"column": "income", "classes": ["low", "high"]},
        "to predict a number": {"column": "income", "low": 0, "high": 100000},
        "note": "Without low and high, and without classes, a fit measures the bounds of the number privately.",
    },
    "rows": "The number of rows, if it is public and the file must have it.",
    "unit": {"column": "id", "rows": 3, "note": "All rows with one id are protected together; at most 3 are used."},
    "file": {"separator": ";", "encoding": "latin-1", "decimal": ","},
    "note": "Any object may have a note for people. This help may be deleted.",
}


def draft_schema(
    source: str | Path | Iterable[str],
    *,
    label: str | None = None,
    types: Mapping[str, str] | None = None,
    separator: str | None = None,
) -> SchemaDraft:
    """Draft a schema for a file or for a list of column names.

    Parameters
    ----------
    source : path, or iterable of column names
        A ``.parquet`` file (names and storage types are taken from its metadata), a ``.csv``, ``.tsv`` or ``.txt``
        file, compressed by gzip or not (only the header line is read), or the names themselves.
    label : str, optional
        The label column.
    types : mapping from column to {"numeric", "date", "categorical", "hashed", "boolean", "ignore"}, optional
        What the caller knows about columns; overrides the storage type.
    separator : str, optional
        Separator of a CSV header; by default it is told from the header.

    Returns
    -------
    SchemaDraft

    Notes
    -----
    **Privacy.** No cell is read and no column statistic of a Parquet footer is used. A CSV file stores no
    types, and guessing them would mean reading cells, so its columns stay ``FILL IN`` unless ``types`` says
    more. A column whose name is that of an identifier is left out. Bounds and levels are never drafted; the sole
    exception are the two levels of a boolean, which its type fixes.

    Examples
    --------
    >>> draft_schema(["age", "income"], label="income", types={"age": "numeric"}).places
    ('columns.age.low', 'columns.age.high', 'label.classes')
    """
    kinds = _from_path(Path(source), separator) if isinstance(source, str | Path) else dict.fromkeys(source, FILL_IN)
    for name, kind in (types or {}).items():
        if name not in kinds:
            raise InvalidParameter(f"types names the column {name!r}, which is not there: columns are {list(kinds)}")
        if kind not in _KINDS:
            raise InvalidParameter(f"types[{name!r}] must be one of {', '.join(_KINDS)}, got {kind!r}")
        kinds[name] = kind
    if label is not None and label not in kinds:
        raise no_such_column("the label column", label, kinds)
    return SchemaDraft(tuple(kinds.items()), FILL_IN if label is None else label)


def _description(name: str, kind: str) -> dict[str, Any]:
    match kind:
        case "numeric" | "date":
            return {"type": kind, "low": FILL_IN, "high": FILL_IN}
        case "categorical":
            return {"type": "categorical", "levels": FILL_IN}
        case "hashed":
            return {"type": "hashed", "buckets": 64}
        case "boolean":
            return {"type": "categorical", "levels": [False, True]}
        case "ignore" if _is_identifier(name):
            return {"type": "ignore", "note": _NOTE}
        case _:
            return {"type": kind}


def _is_identifier(name: str) -> bool:
    """Whether a name is that of an identifier: ``id``, ``user_id``, ``CustomerId``, ``e-mail``, and not ``paid``."""
    words = {word.lower() for word in re.findall(r"[a-z]+|[A-Z]+(?![a-z])|[A-Z][a-z]*", name)}
    return bool(words & _IDENTIFYING_WORDS) or re.sub(r"[\W_]", "", name).lower() in _IDENTIFYING_NAMES


def column_names(path: Path, file: FileFormat, renaming: bool = False) -> list[str]:
    """Return the names of a table's columns, numbered where they occur twice if ``renaming``; no cell is read."""
    return list(_from_path(path, file.separator, file.encoding, renaming))


def _from_path(
    path: Path, separator: str | None, encoding: str | None = None, renaming: bool = False
) -> dict[str, str]:
    if not path.is_file():
        raise SchemaError(f"there is no file {str(path)!r} to draft a schema for: correct the path")
    if path.suffix in (".parquet", ".pq"):
        return _parquet_kinds(path)
    if not path.name.endswith(TEXT_SUFFIXES):
        suffixes = ", ".join(TEXT_SUFFIXES)
        raise SchemaError(
            f"{path.name!r} is neither one of {suffixes} nor .parquet: rename it, or pass the column names instead"
        )
    try:
        names = read_header(path, separator=separator, encoding=encoding, renaming=renaming).names
    except DatasetFormatError as problem:
        raise SchemaError(str(problem)) from None
    return {name: "ignore" if _is_identifier(name) else FILL_IN for name in names}


def _parquet_kinds(path: Path) -> dict[str, str]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    def kind(name: str, stored: Any) -> str:
        if name.startswith("__index_level_"):
            return "ignore"
        if _is_identifier(name):
            return "ignore"
        if arrow.types.is_boolean(stored):
            return "boolean"
        if arrow.types.is_timestamp(stored) or arrow.types.is_date(stored):
            return "date"
        if arrow.types.is_integer(stored) or arrow.types.is_floating(stored):
            return "numeric"
        if arrow.types.is_string(stored) or arrow.types.is_large_string(stored) or arrow.types.is_dictionary(stored):
            return "categorical"
        return FILL_IN

    try:
        fields = parquet.read_schema(path)
    except (arrow.ArrowException, OSError):
        raise SchemaError(
            f"{path.name!r} is not a readable Parquet file: copy it again, or correct its suffix"
        ) from None
    return {field.name: kind(field.name, field.type) for field in fields}
