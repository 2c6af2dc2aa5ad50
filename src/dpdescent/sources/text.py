"""Text tables of any length: read once by Arrow, a few rows at a time, into a Parquet file that is read from then on.

Only the columns of the schema are kept. What is in memory is a few megabytes of text and one row group, and the text
of the next rows is read ahead. The Parquet file has no name: it lies where temporary files do (``TMPDIR``), no other
user can open it, and it is gone with the table and its copies, or with the process, however that ends.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

import pyarrow as arrow
from pyarrow import compute, csv, parquet

from ..datasets.files import BLANKS, TextColumns, open_text, require_rows
from ..delimited import TEXT_SUFFIXES, UNREADABLE, Delimited, never_closed, raise_ragged_line, unreadable
from ..errors import ColumnTypeError, DatasetFormatError, DatasetNotAvailable, OutputNotWritable, UnsupportedSource
from ..schema import Schema
from .lines import LastLine, Utf8Text
from .parquet import ParquetTable, open_stored
from .stored import UnnamedParquet

__all__ = ["is_long_text", "stream_text"]

_LONG = 2**28  # bytes of text: read as a whole, they are a few gigabytes in memory
_PACKED = 4  # at least how many times longer text is when it is unpacked
_GROUP_ROWS = 2**16
_TEXT_BLOCK = 2**22  # bytes


def is_long_text(name: str) -> bool:
    """Whether a name is that of a text file of more than 2^28 bytes, or 2^26 if it is compressed."""
    if not name.endswith(TEXT_SUFFIXES) or not os.path.isfile(name):
        return False
    return os.path.getsize(name) * (_PACKED if name.endswith(".gz") else 1) > _LONG


def stream_text(
    name: str | Path, schema: Schema, *, label: bool = True, unknown: str | None = None, missing: str | None = None
) -> ParquetTable:
    """Open a text table as one that is read block by block; the arguments are those of `open_parquet`.

    Raises
    ------
    DatasetFormatError, MissingColumn, ColumnTypeError
        The file contradicts the schema or is damaged. The message shows no cell.
    OutputNotWritable
        There is no room for the Parquet file.
    """
    path = Path(name)
    if not path.is_file():
        raise DatasetNotAvailable(f"there is no file {str(name)!r}: correct the path")
    if label and schema.unit is not None:
        raise UnsupportedSource(
            "the schema has a unit of several rows, which needs all rows in one place: pass a shorter file, or leave "
            "the unit out to protect single rows"
        )
    columns = TextColumns.of(schema, label)
    wanted = [*schema.features, *([schema.label.column] if label else [])]
    written = open_text(path, schema, wanted)
    try:
        kept = UnnamedParquet(path.name)
    except OSError:
        raise _no_room(path.name) from None
    rows = _convert(written, schema, columns, wanted, kept.file)
    require_rows(path, rows, schema.rows if label else None)
    schema = schema.choosing(missing=missing, unknown=unknown)
    return open_stored([kept], path.name, schema, label=label, typed=columns.typed)


def _convert(written: Delimited, schema: Schema, columns: TextColumns, wanted: list[str], output: IO[bytes]) -> int:
    """Write the wanted columns as Parquet, numbers as doubles, all others as text, and return the number of rows."""
    stored = arrow.schema([(name, arrow.float64() if name in columns.numbers else arrow.string()) for name in wanted])
    last = LastLine(written)
    rows = 0
    problem: Exception | None = None
    try:
        with parquet.ParquetWriter(output, stored, compression="lz4") as writer:
            for batch in _batches(written, schema, columns, stored, last):
                writer.write_batch(batch, row_group_size=_GROUP_ROWS)
                rows += batch.num_rows
        output.flush()
    except (arrow.ArrowException, OSError, *UNREADABLE) as found:
        problem = found
    if problem is not None:
        raise _named(problem, written, last)  # outside the handler, whose text may show a cell
    if not last.found:
        raise never_closed(written)
    return rows


def _batches(written: Delimited, schema: Schema, columns: TextColumns, stored: Any, last: LastLine) -> Iterator[Any]:
    """Yield record batches of whole row groups, with null for cells that are missing."""
    reading = csv.ReadOptions(block_size=_TEXT_BLOCK)
    parsing = csv.ParseOptions(delimiter=written.separator, newlines_in_values=True, invalid_row_handler=last)
    converting = csv.ConvertOptions(
        column_types=dict(zip(stored.names, stored.types, strict=True)),
        include_columns=stored.names,
        null_values=BLANKS,
        strings_can_be_null=False,
        decimal_point=schema.file.decimal,
    )
    waiting: list[Any] = []
    with (
        written.open() as file,
        Utf8Text(file, written.encoding, last.text) as text,
        csv.open_csv(text, reading, parsing, converting) as reader,
    ):
        for batch in reader:
            cells = [
                column if name in columns.numbers else _without_blanks(column, columns.blanks.get(name, []))
                for name, column in zip(stored.names, batch.columns, strict=True)
            ]
            waiting.append(arrow.record_batch(cells, schema=stored))
            if sum(each.num_rows for each in waiting) >= _GROUP_ROWS:
                yield arrow.concat_batches(waiting)
                waiting = []
    if waiting:
        yield arrow.concat_batches(waiting)


def _without_blanks(column: Any, blanks: list[str]) -> Any:
    if not blanks:
        return column
    missing = compute.is_in(column, value_set=arrow.array(blanks, arrow.string()))
    return compute.if_else(missing, arrow.scalar(None, arrow.string()), column)


def _named(problem: Exception, written: Delimited, last: LastLine) -> Exception:
    """Return a named error for one of Arrow's, of whose text nothing but the number of a column is taken."""
    text, name = str(problem), written.path.name
    if isinstance(problem, UNREADABLE):
        return unreadable(written, problem)
    if last.is_in_a_cell(problem):
        return never_closed(written)
    if found := re.search(r"In CSV column #(\d+)", text):
        column = written.names[min(int(found[1]), len(written.names) - 1)]
        return ColumnTypeError(
            f"column {column!r} is declared numeric, and not all of its cells are numbers: correct them, or declare "
            "the column as categorical, hashed or date, or the decimal comma of the file"
        )
    too_long = "straddling" in text  # which is what Arrow says of a row that is longer than a block
    if too_long or ("Expected" in text and "columns, got" in text):
        try:
            raise_ragged_line(written)
        except DatasetFormatError as named:
            return named
    if too_long:
        return DatasetFormatError(
            f"{name!r} has a row of more than {_TEXT_BLOCK} bytes: shorten it, or close a quotation mark"
        )
    if isinstance(problem, OSError) and problem.errno is not None:
        return _no_room(name)
    return DatasetFormatError(f"{name!r} is not a readable CSV file with a header line")


def _no_room(name: str) -> OutputNotWritable:
    return OutputNotWritable(
        f"{name!r} cannot be kept as Parquet in {tempfile.gettempdir()!r}: make room for about the length of the "
        "file, or name another folder in TMPDIR"
    )
