"""A data set from the caller's own CSV, Parquet or NPZ file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ..encoding import scale_columns
from ..errors import (
    ColumnTypeError,
    DatasetFormatError,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    UnknownLevel,
)
from ..schema import Schema
from .formats import read_packed
from .record import Dataset

__all__ = ["is_data_path", "load_file", "read_table"]

_TABLE_SUFFIXES = (".csv", ".csv.gz", ".parquet", ".pq")
_BLANKS = ["", "NA", "NaN", "nan"]


def is_data_path(name: str) -> bool:
    """Whether a data set name is a file name of a kind that can be loaded."""
    return name.endswith((*_TABLE_SUFFIXES, ".npz"))


def load_file(
    path: Path,
    *,
    schema: Schema | str | Path | None = None,
    bounds: tuple[ArrayLike, ArrayLike] | None = None,
    classes: Sequence[Any] | None = None,
    unknown: str = "error",
    missing: str = "error",
) -> Dataset:
    """Load a file together with what is publicly known about it.

    Parameters
    ----------
    path : Path
        A ``.csv``, ``.csv.gz`` or ``.parquet`` table, or an ``.npz`` archive with arrays ``X`` and ``y``.
    schema : Schema or path
        Public schema of a table.
    bounds : (low, high)
        Public bounds of ``X`` in an NPZ file: two numbers, or two arrays with one number per column.
    classes : sequence
        Public classes of ``y`` in an NPZ file; empty where ``y`` is a number to be predicted.
    unknown, missing : str
        See `dpdescent.encoding.BoundedEncoder`; for tables.
    """
    if path.suffix == ".npz":
        if schema is not None:
            raise InvalidParameter("an NPZ file takes bounds and classes instead of a schema")
        return _load_arrays(path, bounds, classes)
    if bounds is not None or classes is not None:
        raise InvalidParameter("a table takes a schema instead of bounds and classes")
    if schema is None:
        raise InvalidParameter(
            f"{path.name!r} needs schema=, the public bounds and levels of its columns: write a draft with "
            f"dpdescent.schema.draft_schema(path).dump(file), fill it in and pass it on"
        )
    declared = schema if isinstance(schema, Schema) else Schema.load(schema)
    table = read_table(path, declared)
    if declared.rows is not None and len(table) != declared.rows:
        raise DatasetFormatError(
            f"{path.name!r} does not have the {declared.rows} rows that its schema declares: complete the file, or "
            "correct rows in the schema, or leave it out there"
        )
    encoder = declared.encoder(unknown=unknown, missing=missing)
    return Dataset(
        name=path.name,
        X=encoder.fit_transform(table),
        y=declared.labels(table),
        feature_names=tuple(encoder.get_feature_names_out()),
        bounds=(0.0, 1.0),
        binary_features=encoder.binary_features_,
        classes=declared.label.classes or (),
        source=f"The file {path.name}.",
        notes="Encoded with the bounds and levels of the schema.",
        table=table,
        schema=declared,
        unit=None if declared.unit is None else table[declared.unit.column],
    )


def read_table(path: Path, schema: Schema, *, label: bool = True) -> pd.DataFrame:
    """Read the columns a schema uses, in the types it declares; errors show no cell.

    Parameters
    ----------
    path : Path
        A CSV or Parquet file.
    schema : Schema
        Says which columns to read.
    label : bool
        Whether to read the label column, which a file for prediction lacks.
    """
    owner = [schema.unit.column] if label and schema.unit is not None else []
    wanted = [*schema.features, *([schema.label.column] if label else []), *owner]
    if path.suffix in (".parquet", ".pq"):
        import pyarrow as arrow
        import pyarrow.parquet as parquet

        try:
            held = parquet.read_schema(path).names
            _require_columns(path, wanted, held)
            return parquet.read_table(path, columns=wanted).to_pandas()
        except (arrow.ArrowException, OSError):
            raise DatasetFormatError(f"{path.name!r} is not a readable Parquet file") from None
    classes = schema.label.classes
    levels = {column.name: column.levels for column in schema.categorical}
    if label and classes is not None:
        levels[schema.label.column] = classes
    text = [name for name, public in levels.items() if all(isinstance(level, str) for level in public)]
    try:
        held = list(pd.read_csv(path, nrows=0).columns)
        _require_columns(path, wanted, held)
        # All columns are parsed, because pandas checks the number of cells in a row only then.
        table = pd.read_csv(
            path,
            dtype=dict.fromkeys([*text, *owner, *(name for name in held if name not in wanted)], "str"),
            # A text level may well read "NA"; only numbers have blanks.
            keep_default_na=False,
            na_values={name: _BLANKS for name in wanted if name not in text},
            low_memory=False,
        )
    except (pd.errors.ParserError, pd.errors.EmptyDataError, UnicodeDecodeError, EOFError, OSError):
        raise DatasetFormatError(f"{path.name!r} is not a readable CSV file with a header line") from None
    if not isinstance(table.index, pd.RangeIndex):
        raise DatasetFormatError(f"{path.name!r} has rows with more cells than its header line has names")
    return table[wanted]


def _require_columns(path: Path, wanted: list[str], held: list[str]) -> None:
    absent = [name for name in wanted if name not in held]
    if absent:
        raise MissingColumn(f"{path.name!r} lacks the columns {absent} of the schema: correct the schema or the file")


def _load_arrays(path: Path, bounds: tuple[ArrayLike, ArrayLike] | None, classes: Sequence[Any] | None) -> Dataset:
    if bounds is None or classes is None:
        raise InvalidParameter(
            f"{path.name!r} needs bounds=(low, high) and classes=[...], both public: they are never read "
            f"from the file"
        )
    X, y = read_packed(path, "X", "y")
    if X.ndim != 2 or y.ndim != 1:
        raise DatasetFormatError(f"{path.name!r}: X must have two dimensions and y one")
    if X.dtype.kind not in "biuf":
        raise ColumnTypeError(f"{path.name!r}: X must hold real numbers, and is stored as {X.dtype}")
    if not np.isfinite(X).all():
        raise MissingValue(f"{path.name!r}: X has a missing or infinite value: fill it with a public constant")
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), X.shape[1]) for end in bounds)
    except (TypeError, ValueError):
        raise InvalidParameter(f"bounds must be two numbers or two arrays with {X.shape[1]} numbers each") from None
    if not (np.isfinite(high - low).all() and (low < high).all()):
        raise InvalidParameter("bounds must be finite with low < high in every column")
    if len(classes) == 0:
        if y.dtype.kind not in "biuf":
            raise ColumnTypeError(f"{path.name!r}: y must hold real numbers, and is stored as {y.dtype}")
        if not np.isfinite(y).all():
            raise MissingValue(f"{path.name!r}: y has a missing or infinite value: remove such rows beforehand")
    elif not np.isin(y, np.asarray(classes)).all():
        raise UnknownLevel(f"{path.name!r}: y has a value outside the {len(classes)} public classes")
    return Dataset(
        name=path.name,
        X=scale_columns(X, low, high),
        y=y,
        feature_names=tuple(f"x{position}" for position in range(X.shape[1])),
        bounds=(0.0, 1.0),
        classes=tuple(classes),
        source=f"The file {path.name}.",
        notes="Scaled to [0, 1] by the bounds of the caller.",
    )
