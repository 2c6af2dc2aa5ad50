"""Parquet files, read one record batch at a time and coded by a public schema.

A part is a row group of a file. Its columns are decoded a few thousand rows at a time, in the thread or process that
adds them up, so there is nothing to hand over and what is in memory does not grow with the file.

Most cells of a large table are numbers that are there. They are copied from Arrow's own memory, clipped and scaled
for all columns of a few thousand rows at a time, which stay in cache. All else takes the way of `BoundedEncoder`,
and the rows have the same bits either way.
"""

from __future__ import annotations

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
from numpy.typing import NDArray
from pyarrow import parquet

from ..arrays import Floats
from ..curator import cached_blocks
from ..errors import DatasetFormatError, DatasetNotAvailable, DPDescentError, MissingColumn, UnsupportedSource
from .cells import check_storage, numeric_values, replace_columns
from .declaration import Schema
from .encoder import BoundedEncoder
from .stored_parquet import NamedParquet, StoredParquet, parquet_files, read_ahead, require_distinct
from .streamed_table import StreamedTable, block_rows

_BATCH_CELLS = 2**22  # that are decoded together, most often all of a row group
_NUMBERS = {
    kind.id
    for size in (8, 16, 32, 64)
    for kind in (getattr(arrow, f"int{size}")(), getattr(arrow, f"uint{size}")(), arrow.float32(), arrow.float64())
}


@dataclass(frozen=True)
class RowGroup:
    """A part of a table: a row group of a file, and the columns that the names of its folders tell."""

    file: StoredParquet
    number: int
    stamp: tuple[int, int]
    constants: tuple[tuple[str, Any], ...] = ()


def open_parquet(
    name: str | Path, schema: Schema, *, label: bool = True, unknown: str | None = None, missing: str | None = None
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
        See `dpdescent.tables.BoundedEncoder`; in place of what the schema says.

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
    require_distinct(files)
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


@dataclass(frozen=True)
class PlainNumbers:
    """Columns of finite numbers where they are, and the positions of those that have a cell beyond its bounds."""

    columns: list[NDArray[Any]]
    beyond: list[int]


class BatchCoder:
    """Codes record batches by a public schema.

    ``encoder`` is that of the schema, fitted.

    Attributes
    ----------
    numbers : list of str
        The columns of numbers.
    """

    def __init__(self, schema: Schema, encoder: BoundedEncoder) -> None:
        pairs = dict(encoder.bounds or {})
        self.numbers = list(pairs)
        self._encoder = encoder
        self._width = len(encoder.binary_features_)
        self._low, self._high = (
            np.array([pair[end] for pair in pairs.values() if pair], dtype=np.float64) for end in (0, 1)
        )
        marked = any((column.missing or schema.missing) == "level" for column in schema.numeric)
        self._plain = bool(pairs) and None not in pairs.values() and not schema.dates and not marked
        self._others: BoundedEncoder | None = None
        names = [*(encoder.levels or {}), *(encoder.hashed or {})]
        if self._plain and names:
            self._others = BoundedEncoder(
                None,
                encoder.levels,
                hashed=encoder.hashed,
                ignore=encoder.ignore,
                unknown=encoder.unknown,
                missing=encoder.missing,
            ).fit(pd.DataFrame(columns=names))

    def plain_numbers(self, batch: Any) -> PlainNumbers | None:
        """Return all columns of numbers where they are, or None if a cell of them is no finite number."""
        if not self._plain or not batch.num_rows:
            return None
        columns = [batch.column(name) for name in self.numbers]
        if any(column.null_count or column.type.id not in _NUMBERS for column in columns):
            return None
        values = [column.to_numpy(zero_copy_only=True) for column in columns]
        with np.errstate(all="ignore"):
            # The ends of a column are not finite if a cell is not.
            least, largest = (np.array([end(each) for each in values], dtype=np.float64) for end in (np.min, np.max))
        if not (np.isfinite(least).all() and np.isfinite(largest).all()):
            return None
        return PlainNumbers(values, np.flatnonzero((least < self._low) | (largest > self._high)).tolist())

    def __call__(self, numbers: PlainNumbers | None, frame: pd.DataFrame) -> Iterator[tuple[slice, Floats]]:
        """Yield coded rows, and which rows of the batch they are.

        ``frame`` has all columns, or those beside plain ``numbers``.
        """
        if numbers is None:
            yield slice(0, len(frame)), self._encoder.transform(frame)
            return
        others = None if self._others is None else self._others.transform(frame)
        for some in cached_blocks(len(numbers.columns[0]), self._width + 1):
            yield some, self._code(numbers, others, some)

    def _code(self, numbers: PlainNumbers, others: Floats | None, some: slice) -> Floats:
        """Return ``(clip(x, low, high) - low) / (high - low)`` of every number, and the other columns beside them."""
        block = np.empty((some.stop - some.start, self._width), order="F")
        count = len(numbers.columns)
        for position, values in enumerate(numbers.columns):
            block[:, position] = values[some]
        scaled, width = block[:, :count], self._high - self._low
        for beyond in numbers.beyond:
            np.clip(scaled[:, beyond], self._low[beyond], self._high[beyond], out=scaled[:, beyond])
        if self._low.any():
            scaled -= self._low
        if (width != 1).any():
            scaled /= width
        if others is not None:
            block[:, count:] = others[some]
        return block


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
        batches = self._decode(part, [name for name in self._wanted if name not in constants])
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
            yield numbers, self.schema.with_days(self._typed(replace_columns(frame, constants)))

    def _decode(self, part: RowGroup, columns: list[str]) -> Iterator[Any]:
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
        empty = schema.with_days(typed(empty))
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


def _unreadable(file: StoredParquet) -> DatasetFormatError:
    return DatasetFormatError(f"{file.name!r} is not a readable Parquet file: restore it from a copy")
