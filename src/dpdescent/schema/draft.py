"""Draft a schema from column names and storage types, without reading a cell."""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import InvalidParameter, SchemaError
from .declaration import FILL_IN, places_to_fill

__all__ = ["SchemaDraft", "draft_schema"]

_KINDS = ("numeric", "categorical", "boolean", "ignore", FILL_IN)


@dataclass(frozen=True)
class SchemaDraft:
    """A schema with gaps: `Schema.load` refuses it until every ``FILL IN`` has been replaced.

    Parameters
    ----------
    kinds : tuple of (column, kind)
        Kind is ``numeric``, ``categorical``, ``boolean``, ``ignore`` or ``FILL IN``.
    label : str
        The label column, or ``FILL IN``.
    """

    kinds: tuple[tuple[str, str], ...]
    label: str = FILL_IN

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the schema file format, with placeholders."""
        columns = {name: _description(kind) for name, kind in self.kinds if name != self.label}
        return {"columns": columns, "label": {"column": self.label, "classes": FILL_IN}}

    @property
    def places(self) -> tuple[str, ...]:
        """The places that are still to be filled in, such as ``columns.age.low``."""
        return tuple(places_to_fill(self.to_dict()))

    def dump(self, path: str | Path) -> None:
        """Write the draft as a JSON file, ready for an editor."""
        Path(path).write_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def draft_schema(
    source: str | Path | Iterable[str],
    *,
    label: str | None = None,
    types: Mapping[str, str] | None = None,
    separator: str = ",",
) -> SchemaDraft:
    """Draft a schema for a file or for a list of column names.

    Parameters
    ----------
    source : path, or iterable of column names
        A ``.parquet`` file (names and storage types are taken from its metadata), a ``.csv`` or ``.csv.gz``
        file (only the header line is read), or the names themselves.
    label : str, optional
        The label column.
    types : mapping from column to {"numeric", "categorical", "boolean", "ignore"}, optional
        What the caller knows about columns; overrides the storage type.
    separator : str
        Separator of a CSV header.

    Returns
    -------
    SchemaDraft

    Notes
    -----
    **Privacy.** No cell is read and no column statistic of a Parquet footer is used. A CSV file stores no
    types, and guessing them would mean reading cells, so its columns stay ``FILL IN`` unless ``types`` says
    more. Bounds and levels are never drafted; the sole exception are the two levels of a boolean, which its
    type fixes.

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
        raise InvalidParameter(f"the label column {label!r} is not there: columns are {list(kinds)}")
    return SchemaDraft(tuple(kinds.items()), FILL_IN if label is None else label)


def _description(kind: str) -> dict[str, Any]:
    match kind:
        case "numeric":
            return {"type": "numeric", "low": FILL_IN, "high": FILL_IN}
        case "categorical":
            return {"type": "categorical", "levels": FILL_IN}
        case "boolean":
            return {"type": "categorical", "levels": [False, True]}
        case _:
            return {"type": kind}


def _from_path(path: Path, separator: str) -> dict[str, str]:
    if not path.is_file():
        raise SchemaError(f"there is no file {str(path)!r} to draft a schema for: correct the path")
    if path.suffix in (".parquet", ".pq"):
        return _parquet_kinds(path)
    if path.suffix == ".csv" or path.name.endswith(".csv.gz"):
        return dict.fromkeys(_csv_header(path, separator), FILL_IN)
    raise SchemaError(f"{path.name!r} is neither .csv, .csv.gz nor .parquet: pass the column names instead")


def _csv_header(path: Path, separator: str) -> list[str]:
    with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as stream:
        first = stream.readline()
    try:
        names = next(csv.reader([first.decode("utf-8-sig")], delimiter=separator), [])
    except UnicodeDecodeError:
        raise SchemaError(f"the first line of {path.name!r} is not UTF-8 text: convert the file") from None
    if not names or len(set(names)) != len(names) or "" in names:
        raise SchemaError(f"the first line of {path.name!r} must hold distinct, non-empty column names: add a header")
    return names


def _parquet_kinds(path: Path) -> dict[str, str]:
    import pyarrow as arrow
    import pyarrow.parquet as parquet

    def kind(name: str, stored: Any) -> str:
        if name.startswith("__index_level_"):
            return "ignore"
        if arrow.types.is_boolean(stored):
            return "boolean"
        if arrow.types.is_integer(stored) or arrow.types.is_floating(stored):
            return "numeric"
        if arrow.types.is_string(stored) or arrow.types.is_large_string(stored) or arrow.types.is_dictionary(stored):
            return "categorical"
        return FILL_IN

    try:
        fields = parquet.read_schema(path)
    except (arrow.ArrowInvalid, OSError) as error:
        raise SchemaError(f"{path.name!r} is not a readable Parquet file: {error}") from None
    return {field.name: kind(field.name, field.type) for field in fields}
