"""Parquet files, read one record batch at a time and coded by a public schema.

A part is a row group of a file. Its columns are decoded a few thousand rows at a time, in the thread or process that
adds them up, so there is nothing to hand over and what is in memory does not grow with the file.
"""

from __future__ import annotations

import glob
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pandas as pd
import pyarrow as arrow
from pyarrow import parquet

from ..encoding import BoundedEncoder
from ..encoding.cells import check_storage, date_values, numeric_values
from ..errors import DatasetFormatError, DatasetNotAvailable, DPDescentError, MissingColumn, UnsupportedSource
from ..schema import Schema
from .coding import BatchCoder
from .stored import NamedParquet, StoredParquet, read_ahead
from .table import StreamedTable, block_rows

__all__ = ["ParquetTable", "is_parquet", "is_parquet_group", "open_parquet", "open_stored", "parquet_files"]

SUFFIXES = (".parquet", ".pq")
_BATCH_CELLS = 2**22  # that are decoded together, most often all of a row group


@dataclass(frozen=True)
class RowGroup:
    """A part of a table: a row group of a file, and the columns that the names of its folders tell."""

    file: StoredParquet
    number: int
    stamp: tuple[int, int]
    constants: tuple[tuple[str, Any], ...] = ()


def is_parquet(name: str) -> bool:
    """Whether a name is that of Parquet files: one file, a folder of them, or a pattern for either."""
    return is_parquet_group(name) or (name.endswith(SUFFIXES) and os.path.isfile(name))


def is_parquet_group(name: str) -> bool:
    """Whether a name is that of a folder of Parquet files, or a pattern for them."""
    pattern = glob.has_magic(name) and not os.path.exists(name)
    return (pattern or os.path.isdir(name)) and bool(parquet_files(name))


def parquet_files(name: str) -> list[str]:
    """Return the Parquet files of a name, in order: the file itself, all below a folder, or all that match.

    A pattern may match a folder and what is in it: each file is named once.
    """
    found = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) and not os.path.exists(name) else [name]
    files: list[str] = []
    for each in found:
        if not os.path.isdir(each):
            files.append(each)
            continue
        below = (path.relative_to(each) for suffix in SUFFIXES for path in Path(each).rglob(f"*{suffix}"))
        files += [os.path.join(each, path) for path in sorted(below) if not path.name.startswith(("_", "."))]
    return list(dict.fromkeys(file for file in files if file.endswith(SUFFIXES)))


def open_parquet(
    name: str | Path,
    schema: Schema,
    *,
    label: bool = True,
    unknown: str | None = None,
    missing: str | None = None,
) -> ParquetTable:
    """Open Parquet files as one table. Footers are read, and no row.

    Parameters
    ----------
    name : str or Path
        A file, a folder (with folders named ``column=value`` in it, where these are columns), or a pattern.
    schema : Schema
        What is public about the columns. It says which of them are read.
    label : bool
        Whether the files have the label column, which those for prediction lack.
    unknown, missing : str, optional
        See `dpdescent.encoding.BoundedEncoder`; in place of what the schema says.

    Raises
    ------
    DatasetNotAvailable
        There is no such file.
    DatasetFormatError
        A file is damaged or is there under two names, or the files do not have the number of rows that the schema
        declares.
    MissingColumn, ColumnTypeError
        A file contradicts the schema. The message names the file.
    """
    if label and schema.unit is not None:
        raise UnsupportedSource(
            "the schema has a unit of several rows, which needs all rows in one place: pass one file in memory, or "
            "leave the unit out to protect single rows"
        )
    files = parquet_files(str(name))
    if not files or not all(os.path.isfile(file) for file in files):
        raise DatasetNotAvailable(f"there is no Parquet file {str(name)!r}: correct the path")
    _require_distinct(files)
    schema = schema.choosing(missing=missing, unknown=unknown)
    return open_stored([NamedParquet(file) for file in files], str(name), schema, label=label)


def open_stored(
    files: Sequence[StoredParquet],
    name: str,
    schema: Schema,
    *,
    label: bool = True,
    typed: Callable[[pd.DataFrame], pd.DataFrame] | None = None,
) -> ParquetTable:
    """Open Parquet files, wherever they are kept, as one table that messages call ``name``; see `open_parquet`.

    ``typed`` is applied to the columns beside plain numbers before they are coded, where cells are not stored in the
    types of the schema.
    """
    encoder = schema.encoder()
    wanted = [*schema.features, *([schema.label.column] if label else [])]
    parts: list[RowGroup] = []
    lengths: list[int] = []
    for file in files:
        try:
            stamp = file.stamp()
            footer = file.footer(stamp)
            held = footer.schema.to_arrow_schema()
        except Exception:  # a damaged file fails in many ways
            raise _unreadable(file) from None
        constants = {name: value for name, value in _constants(file, schema).items() if name not in held.names}
        _require_columns(file, wanted, held, constants, schema, encoder, typed or _as_it_is)
        kept = tuple((column, value) for column, value in constants.items() if column in wanted)
        for number in range(footer.num_row_groups):
            parts.append(RowGroup(file, number, stamp, kept))
            lengths.append(footer.row_group(number).num_rows)
    if sum(lengths) == 0:
        raise DatasetFormatError(f"{name!r} has no rows")
    if schema.rows is not None and label and sum(lengths) != schema.rows:
        raise DatasetFormatError(
            f"{name!r} does not have the {schema.rows} rows that its schema declares: complete the files, or "
            "correct rows in the schema, or leave it out there"
        )
    return ParquetTable(schema, encoder, wanted, parts, lengths, typed or _as_it_is)


class ParquetTable(StreamedTable):
    """Parquet files coded by a public schema; `open_parquet` makes one.

    Features are those of the schema's encoder, in [0, 1].
    """

    def __init__(
        self,
        schema: Schema,
        encoder: BoundedEncoder,
        wanted: list[str],
        parts: list[RowGroup],
        lengths: list[int],
        typed: Callable[[pd.DataFrame], pd.DataFrame],
    ) -> None:
        self.schema, self.parts, self.lengths = schema, parts, lengths
        self._wanted, self._typed = wanted, typed
        self._coder = BatchCoder(schema, encoder)
        self.feature_names = tuple(encoder.get_feature_names_out())
        self.columns = len(self.feature_names)
        self.bounds: Any = encoder.output_bounds_ if schema.to_measure else (0.0, 1.0)
        self.classes = schema.label.classes or ()
        self.binary_features = encoder.binary_features_

    @property
    def X(self) -> ParquetTable:
        """What is passed to ``fit`` as a table: this one, which has its own labels."""
        return self

    y = None
    unit = None
    finite = True

    def read(self, part: RowGroup) -> Iterator[tuple[Any, Any]]:
        for numbers, frame in self._columns(part):
            labels = self.schema.labels(frame) if self.schema.label.column in self._wanted else None
            for some, features in self._coder(numbers, frame):
                yield features, None if labels is None else labels[some]

    def gathered(self) -> tuple[Any, Any]:
        """Return all features and labels as arrays in memory."""
        features, labels = zip(*(block for part in self.parts for block in self.read(part)), strict=True)
        return np.concatenate(features), np.concatenate(labels)

    def _columns(self, part: RowGroup) -> Iterator[tuple[Any, pd.DataFrame]]:
        """Yield a few rows at a time: the numbers where they are plain ones, and a frame of all other columns."""
        constants = dict(part.constants)
        batches = self._decoded(part, [name for name in self._wanted if name not in constants])
        while True:
            frame = None
            try:
                batch = next(batches, None)
                if batch is None:
                    return
                numbers = None if constants else self._coder.plain_numbers(batch)
                rest = batch if numbers is None else batch.drop_columns(self._coder.numbers)
                frame = rest.to_pandas(split_blocks=True)
            except DPDescentError:
                raise
            except Exception:  # a damaged file fails in many ways
                pass
            if frame is None:
                raise _unreadable(part.file)  # outside the handler, whose text may show a cell
            yield numbers, _with_dates(self._typed(frame.assign(**constants)), self.schema)

    def _decoded(self, part: RowGroup, columns: list[str]) -> Iterator[Any]:
        if part.file.stamp() != part.stamp:
            raise DatasetFormatError(f"{part.file.name!r} has changed since it was opened: open it again")
        footer = part.file.footer(part.stamp)
        levels = [column.name for column in self.schema.categorical]
        # Levels are looked up once for every distinct one, and not for every cell.
        text = [f.name for f in footer.schema.to_arrow_schema() if f.name in levels and arrow.types.is_string(f.type)]
        read_ahead(part.file, footer, part.number)
        with parquet.ParquetFile(part.file.source(), metadata=footer, read_dictionary=text) as file:
            yield from file.iter_batches(
                block_rows(self.columns, _BATCH_CELLS), row_groups=[part.number], columns=columns, use_threads=False
            )


def _require_distinct(files: list[str]) -> None:
    """Refuse a file that is there under another name: what one of its rows can change would count twice."""
    seen: dict[tuple[int, int], str] = {}
    for file in files:
        status = os.stat(file)
        other = seen.setdefault((status.st_dev, status.st_ino), file)
        if other != file:
            raise DatasetFormatError(
                f"{file!r} is the same file as {other!r}, whose rows would count twice: name it once"
            )


def _constants(file: StoredParquet, schema: Schema) -> dict[str, Any]:
    """Return what the names of a file's folders tell of columns that it lacks, as ``column=value``."""
    levels = {column.name: column.levels for column in schema.categorical}
    levels[schema.label.column] = schema.label.classes or ()
    told: dict[str, Any] = {}
    for piece in file.folders:
        name, equals, value = piece.partition("=")
        if equals:
            text = unquote(value)
            told[name] = text if any(isinstance(level, str) for level in levels.get(name, ())) else _literal(text)
    return told


def _literal(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text


def _require_columns(
    file: StoredParquet,
    wanted: list[str],
    held: Any,
    constants: dict[str, Any],
    schema: Schema,
    encoder: BoundedEncoder,
    typed: Callable[[pd.DataFrame], pd.DataFrame],
) -> None:
    """Raise what is wrong with the columns of a file, from their names and types."""
    absent = [name for name in wanted if name not in held.names and name not in constants]
    if absent:
        raise MissingColumn(f"{file.name!r} lacks the columns {absent} of the schema: correct the schema or the file")
    twice = [name for name in wanted if held.names.count(name) > 1]
    if twice:
        raise DatasetFormatError(f"{file.name!r} has the columns {twice} more than once: keep one of each")
    try:
        empty = arrow.schema([held.field(name) for name in wanted if name in held.names]).empty_table().to_pandas()
    except Exception:  # the types of a damaged file may not exist
        raise _unreadable(file) from None
    for name in wanted:
        if name in constants:
            empty[name] = pd.Series([constants[name]]).iloc[:0]
    problem: DPDescentError | None = None
    try:
        empty = _with_dates(typed(empty), schema)
        encoder.fit(empty)
        for name in encoder.bounds or {}:
            numeric_values(empty[name], name)
        for name, public in (encoder.levels or {}).items():
            check_storage(empty[name], name, public)
        if schema.label.column in wanted:
            schema.labels(empty)
    except DPDescentError as found:
        problem = found
    if problem is not None:
        raise type(problem)(f"{file.name!r}: {problem}")


def _as_it_is(frame: pd.DataFrame) -> pd.DataFrame:
    return frame


def _with_dates(frame: pd.DataFrame, schema: Schema) -> pd.DataFrame:
    dates = {column.name: date_values(frame[column.name], column.name, column.format) for column in schema.dates}
    return frame.assign(**dates) if dates else frame


def _unreadable(file: StoredParquet) -> DatasetFormatError:
    return DatasetFormatError(f"{file.name!r} is not a readable Parquet file: restore it from a copy")
