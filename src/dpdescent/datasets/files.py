"""A data set from the caller's own text, Parquet or NPZ file."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ..delimited import TEXT_SUFFIXES, Delimited, read_cells, read_header
from ..encoding import date_values, levels_of_text, scale_columns
from ..errors import (
    ColumnTypeError,
    DatasetFormatError,
    DPDescentError,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    UnknownLevel,
)
from ..schema import Schema
from .formats import read_packed
from .record import Dataset

__all__ = ["BLANKS", "TextColumns", "is_data_path", "load_file", "open_text", "read_table", "require_rows"]

_PARQUET_SUFFIXES = (".parquet", ".pq")
BLANKS = ["", " ", "NA", "N/A", "n/a", "NaN", "nan", "NULL", "null", "None", "?", "-"]  # of numbers, dates and units


def is_data_path(name: str) -> bool:
    """Whether a data set name is a file name of a kind that can be loaded."""
    return name.endswith((*TEXT_SUFFIXES, *_PARQUET_SUFFIXES, ".npz"))


def load_file(
    path: Path,
    *,
    schema: Schema | str | Path | None = None,
    bounds: tuple[ArrayLike, ArrayLike] | str | None = None,
    classes: Sequence[Any] | None = None,
    unknown: str | None = None,
    missing: str | None = None,
) -> Dataset:
    """Load a file together with what is publicly known about it.

    Parameters
    ----------
    path : Path
        A ``.csv``, ``.tsv`` or ``.txt`` table, compressed by gzip or not, a ``.parquet`` table, or an ``.npz``
        archive with arrays ``X`` and ``y``.
    schema : Schema or path
        Public schema of a table. Columns without bounds stay as they are, to be measured by an estimator.
    bounds : (low, high) or "measure"
        Public bounds of ``X`` in an NPZ file: two numbers, or two arrays with one number per column. "measure" leaves
        ``X`` as it is, to be measured by an estimator.
    classes : sequence
        Public classes of ``y`` in an NPZ file; empty where ``y`` is a number to be predicted.
    unknown, missing : str, optional
        See `dpdescent.encoding.BoundedEncoder`; for tables, in place of what the schema says.
    """
    if path.suffix == ".npz":
        if schema is not None:
            raise InvalidParameter("an NPZ file takes bounds and classes instead of a schema")
        return _load_arrays(path, bounds, classes)
    if bounds is not None or classes is not None:
        raise InvalidParameter("a table takes a schema instead of bounds and classes")
    if schema is None:
        raise InvalidParameter(
            f"{path.name!r} needs a schema, the public bounds and levels of its columns: `dpdescent schema {path} "
            "--label COLUMN` writes a draft to fill in"
        )
    declared = schema if isinstance(schema, Schema) else Schema.load(schema)
    declared = declared.choosing(missing=missing, unknown=unknown)
    table = read_table(path, declared)
    require_rows(path, len(table), declared.rows)
    encoder = declared.encoder()
    return Dataset(
        name=path.name,
        X=encoder.fit_transform(table),
        y=declared.labels(table),
        feature_names=tuple(encoder.get_feature_names_out()),
        bounds=encoder.output_bounds_ if declared.to_measure else (0.0, 1.0),
        binary_features=encoder.binary_features_,
        classes=declared.label.classes or (),
        source=f"The file {path.name}.",
        notes="Encoded with the bounds and levels of the schema.",
        table=table,
        schema=declared,
        unit=None if declared.unit is None else table[declared.unit.column],
    )


def read_table(path: Path, schema: Schema, *, label: bool = True, keep: Collection[str] = ()) -> pd.DataFrame:
    """Read the columns a schema uses, in the types it declares, dates as days; errors show no cell.

    Parameters
    ----------
    path : Path
        A text or Parquet file.
    schema : Schema
        Says which columns to read, and in which form.
    label : bool
        Whether to read the label column, which a file for prediction lacks.
    keep : collection of str
        Further columns, which are left as they are.
    """
    owner = [schema.unit.column] if label and schema.unit is not None else []
    wanted = [*schema.features, *([schema.label.column] if label else []), *owner]
    wanted += [name for name in keep if name not in wanted]
    if path.suffix in _PARQUET_SUFFIXES:
        table = _read_parquet(path, wanted, keep)
    else:
        table = _read_text(path, schema, wanted, label, keep)
    dates = {column.name: date_values(table[column.name], column.name, column.format) for column in schema.dates}
    return table.assign(**dates) if dates else table


def _read_parquet(path: Path, wanted: list[str], keep: Collection[str]) -> pd.DataFrame:
    import pyarrow.parquet as parquet

    try:
        held = parquet.read_schema(path).names
        _require_columns(path, wanted, held, keep)
        return parquet.read_table(path, columns=wanted).to_pandas()
    except DPDescentError:
        raise
    except Exception:  # a damaged file fails in many ways
        raise DatasetFormatError(
            f"{path.name!r} is not a readable Parquet file: copy it again, or correct its suffix"
        ) from None


def _read_text(path: Path, schema: Schema, wanted: list[str], label: bool, keep: Collection[str]) -> pd.DataFrame:
    written = open_text(path, schema, wanted, keep)
    columns = TextColumns.of(schema, label)
    # All columns are parsed, because only then is the number of cells in a row checked.
    table = read_cells(written, numbers=columns.numbers, blanks=columns.blanks, decimal=schema.file.decimal)[wanted]
    return columns.typed(table)


def open_text(path: Path, schema: Schema, wanted: list[str], keep: Collection[str] = ()) -> Delimited:
    """Read the first line of a text table, and raise `MissingColumn` unless it has the columns that are wanted."""
    written = read_header(path, separator=schema.file.separator, encoding=schema.file.encoding, wanted=wanted)
    _require_columns(path, wanted, list(written.names), keep, written.separator)
    return written


def require_rows(path: Path, rows: int, declared: int | None) -> None:
    """Raise `DatasetFormatError` unless a table has rows, and as many as its schema declares."""
    if rows == 0:
        raise DatasetFormatError(f"{path.name!r} has a header and no rows: there is nothing to learn from")
    if declared is not None and rows != declared:
        raise DatasetFormatError(
            f"{path.name!r} does not have the {declared} rows that its schema declares: complete the file, or "
            "correct rows in the schema, or leave it out there"
        )


@dataclass(frozen=True)
class TextColumns:
    """What the cells of a text table are, by its schema.

    Parameters
    ----------
    numbers : list of str
        The columns of numbers.
    levels : dict
        The public levels of others.
    blanks : dict
        What counts as a missing cell of each column.
    """

    numbers: list[str]
    levels: dict[str, Sequence[Any]]
    blanks: dict[str, list[str]]

    @classmethod
    def of(cls, schema: Schema, label: bool) -> TextColumns:
        """Return what a schema says, with or without the label column."""
        levels: dict[str, Sequence[Any]] = {column.name: column.levels for column in schema.categorical}
        if label and schema.label.classes is not None:
            levels[schema.label.column] = schema.label.classes
        numbers = [column.name for column in schema.numeric]
        if label and schema.label.classes is None:
            numbers.append(schema.label.column)
        # A text level may well read "NA" or be empty; only numbers, units and dates have many ways to be missing.
        blanks: dict[str, list[str]] = {name: [] if "" in public else [""] for name, public in levels.items()}
        blanks |= {column.name: [""] for column in schema.hashed}
        owner = [schema.unit.column] if label and schema.unit is not None else []
        blanks |= dict.fromkeys((*numbers, *owner, *(column.name for column in schema.dates)), BLANKS)
        return cls(numbers, levels, blanks)

    def typed(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table of text with its levels in their own types."""
        return table.assign(**{name: levels_of_text(table[name], public) for name, public in self.levels.items()})


def _require_columns(
    path: Path, wanted: list[str], held: list[str], keep: Collection[str], separator: str = ""
) -> None:
    absent = [name for name in wanted if name not in held]
    if not absent:
        return
    if len(held) == 1 and len(wanted) > 1 and separator:
        raise DatasetFormatError(
            f"{path.name!r} has one column if its separator is {separator!r}: give the separator in the schema, such "
            'as "file": {"separator": ";"}'
        )
    near = {name: get_close_matches(name, held, n=1, cutoff=0.6) for name in absent}
    hints = [f"{found[0]!r} for {name!r}" for name, found in near.items() if found]
    source = "that are to be kept: correct their names" if set(absent) <= set(keep) else "of the schema: correct it"
    raise MissingColumn(
        f"{path.name!r} lacks the columns {absent} {source}, or the file"
        + (f" (did you mean {', '.join(hints)}?)" if hints else "")
    )


def _load_arrays(
    path: Path, bounds: tuple[ArrayLike, ArrayLike] | str | None, classes: Sequence[Any] | None
) -> Dataset:
    if bounds is None or classes is None:
        raise InvalidParameter(
            f"{path.name!r} needs bounds and classes, both public: they are never read from the file; bounds "
            "'measure' lets a fit measure them"
        )
    X, y = read_packed(path, "X", "y")
    if X.ndim != 2 or y.ndim != 1:
        raise DatasetFormatError(f"{path.name!r}: X must have two dimensions and y one")
    if X.dtype.kind not in "biuf":
        raise ColumnTypeError(f"{path.name!r}: X must hold real numbers, and is stored as {X.dtype}")
    if y.dtype.kind not in "biufUS":
        raise ColumnTypeError(f"{path.name!r}: y must hold numbers, truth values or text, and is stored as {y.dtype}")
    if not np.isfinite(X).all():
        raise MissingValue(f"{path.name!r}: X has a missing or infinite value: fill it with a public constant")
    measured = isinstance(bounds, str) and bounds == "measure"
    if not measured:
        try:
            low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), X.shape[1]) for end in bounds)
        except (TypeError, ValueError):
            raise InvalidParameter(
                f"bounds must be two numbers, or two lists with {X.shape[1]} numbers each"
            ) from None
        if not (np.isfinite(high - low).all() and (low < high).all()):
            raise InvalidParameter("bounds must be finite with low < high in every column")
    if len(X) == 0 or X.shape[1] == 0:
        raise DatasetFormatError(f"{path.name!r}: X has no rows or no columns: there is nothing to learn from")
    if len(classes) == 0:
        if y.dtype.kind not in "biuf":
            raise ColumnTypeError(f"{path.name!r}: y must hold real numbers, and is stored as {y.dtype}")
        if not np.isfinite(y).all():
            raise MissingValue(f"{path.name!r}: y has a missing or infinite value: remove such rows beforehand")
    elif not np.isin(y, np.asarray(classes)).all():
        raise UnknownLevel(f"{path.name!r}: y has a value outside the {len(classes)} public classes")
    return Dataset(
        name=path.name,
        X=np.asarray(X, dtype=np.float64) if measured else scale_columns(X, low, high),
        y=y,
        feature_names=tuple(f"x{position}" for position in range(X.shape[1])),
        bounds=None if measured else (0.0, 1.0),
        classes=tuple(classes),
        source=f"The file {path.name}.",
        notes="As it is." if measured else "Scaled to [0, 1] by the bounds of the caller.",
    )
