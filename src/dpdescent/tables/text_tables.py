"""Tables in files by the word of a schema: read as a whole, or text of any length.

A table is read in the types that its schema declares, and each cell by itself: what becomes of it depends on no other
row.

A long text is read once by Arrow, a few rows at a time, into a Parquet file that is read from then on.
Only the columns of the schema are kept. What is in memory is a few megabytes of text and one row group, and the text
of the next rows is read ahead. The Parquet file has no name: it lies where temporary files do (``TMPDIR``), no other
user can open it, and it is gone with the table and its copies, or with the process, however that ends.

Arrow has to be given text in UTF-8, with no line end cut in two, and with a last line that shows its end. It takes
the line feed for the end of an empty line where a block begins with it, even inside quotation marks. And it takes all
that follows a quotation mark that is never closed for one cell.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import secrets
import tempfile
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as arrow
from pyarrow import compute, csv, parquet

from ..arrays import distinct_cells
from ..errors import (
    ColumnTypeError,
    DatasetFormatError,
    DatasetNotAvailable,
    DPDescentError,
    MissingColumn,
    OutputNotWritable,
    UnsupportedSource,
)
from .cells import levels_of_text, replace_columns
from .declaration import FileFormat, Schema
from .delimited import (
    TEXT_SUFFIXES,
    UNREADABLE,
    Delimited,
    never_closed,
    raise_ragged_line,
    read_cells,
    read_header,
    unreadable,
)
from .stored_parquet import PARQUET_SUFFIXES, UnnamedParquet

if TYPE_CHECKING:
    from .parquet import ParquetTable

_LONG = 2**28  # bytes of text: read as a whole, they are a few gigabytes in memory
_PACKED = 4  # at least how many times longer text is when it is unpacked
_GROUP_ROWS = 2**16
_EVERY_BYTE = "iso8859-1"
_TEXT_BLOCK = 2**22  # bytes
#: What `pandas.read_csv` takes for a missing cell: the same table is the same in a file and in a DataFrame.
_MISSING = [
    "",
    "#N/A",
    "#N/A N/A",
    "#NA",
    "-NaN",
    "-nan",
    "<NA>",
    "N/A",
    "NA",
    "NULL",
    "NaN",
    "None",
    "n/a",
    "nan",
    "null",
]
_BLANKS = [*_MISSING, " ", "?", "-"]  # of numbers, dates and units


def read_table(path: Path, schema: Schema, *, label: bool = True, keep: Collection[str] = ()) -> pd.DataFrame:
    """Read the columns a schema uses, in the types it declares, dates as days; errors show no cell.

    The schema says which columns of a text or Parquet file are read, and in which form. A file for prediction lacks
    the ``label``; the columns to ``keep`` are left as they are.
    """
    owner = [schema.unit.column] if label and schema.unit is not None else []
    wanted = [*schema.features, *([schema.label.column] if label else []), *owner]
    wanted += [name for name in keep if name not in wanted]
    if path.suffix in PARQUET_SUFFIXES:
        table = _read_parquet(path, wanted, keep)
    else:
        table = _read_text(path, schema, wanted, label, keep)
    return schema.with_days(table)


def read_cells_as_text(path: Path, file: FileFormat | None = None) -> pd.DataFrame:
    """Read a table of which nothing is known: text as it is, and Parquet in its own types.

    Names that occur twice are numbered, and missing ones made up. Each cell is UTF-8, or else Latin-1, by itself.
    """
    if path.suffix in PARQUET_SUFFIXES:
        return _read_parquet(path, None, ())
    written = _open_cells(path, file or FileFormat())
    table = read_cells(written, numbers=(), blanks={}, header=False)
    return table.apply(recoded) if written.encoding == _EVERY_BYTE else table


def _open_cells(path: Path, form: FileFormat) -> Delimited:
    """Read the first line of a table of which nothing is known; without an encoding every byte is a character."""
    written = read_header(path, separator=form.separator, encoding=form.encoding, renaming=True)
    marked = form.encoding is not None or written.encoding.startswith("utf-16")
    return written if marked else replace(written, encoding=_EVERY_BYTE)


def recoded(column: pd.Series) -> pd.Series:
    """Return a column that was read as Latin-1 with each cell that is UTF-8 read so."""
    if isinstance(column.dtype, pd.StringDtype):
        stored = column.array.__arrow_array__()
        if compute.all(compute.string_is_ascii(stored)).as_py() is not False:
            return column
    codes, distinct = distinct_cells(column.astype(object))
    found = np.empty(len(distinct), dtype=object)
    found[:] = [_as_utf8(text) for text in distinct]
    return pd.Series(found[codes], index=column.index).astype(column.dtype)


def _as_utf8(text: str) -> str:
    try:
        return text if text.isascii() else text.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return text


def _read_parquet(path: Path, wanted: list[str] | None, keep: Collection[str]) -> pd.DataFrame:
    """Read some columns, or all of a table of which nothing is known: its storage types are then public."""
    try:
        held = parquet.read_schema(path).names
        _require_columns(path, wanted or [], held, keep)
        table = parquet.read_table(path, columns=wanted)
        if wanted is not None:
            return table.to_pandas()
        from .cell_kinds import as_frame

        unknown = as_frame(table)
        assert unknown is not None
        return unknown
    except DPDescentError:
        raise
    except Exception:  # a damaged file fails in many ways
        raise DatasetFormatError(
            f"{path.name!r} is not a readable Parquet file: copy it again, or correct its suffix"
        ) from None


def _read_text(path: Path, schema: Schema, wanted: list[str], label: bool, keep: Collection[str]) -> pd.DataFrame:
    if schema.unreadable == "missing":
        cells = read_cells_as_text(path, schema.file)
        _require_columns(path, wanted, list(cells.columns), keep)
        return cells[wanted]
    written = _open_text(path, schema, wanted, keep)
    columns = TextColumns.of(schema, label)
    # All columns are parsed, because only then is the number of cells in a row checked.
    table = read_cells(written, numbers=columns.numbers, blanks=columns.blanks, decimal=schema.file.decimal)[wanted]
    return columns.set_types(table)


def _open_text(path: Path, schema: Schema, wanted: list[str], keep: Collection[str] = ()) -> Delimited:
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
    """What the cells of a text table are, by its schema."""

    numbers: list[str]  # the columns of numbers
    levels: dict[str, Sequence[Any]]  # the public levels of others
    blanks: dict[str, list[str]]  # what counts as a missing cell of each column
    #: Whether each cell is read by itself, as schemas want that count unreadable cells as missing.
    alone: bool = False

    @classmethod
    def of(cls, schema: Schema, label: bool) -> TextColumns:
        """Return what a schema says, with or without the label column."""
        if schema.unreadable == "missing":
            return cls([], {}, {}, alone=True)
        levels: dict[str, Sequence[Any]] = {column.name: column.levels for column in schema.categorical}
        if label and schema.label.classes is not None:
            levels[schema.label.column] = schema.label.classes
        numbers = [column.name for column in schema.numeric]
        if label and schema.label.classes is None:
            numbers.append(schema.label.column)
        # A level may well read "NA" or be empty, if the schema lists it.
        blanks = {name: [text for text in _MISSING if text not in public] for name, public in levels.items()}
        blanks |= {column.name: _MISSING for column in schema.hashed}
        owner = [schema.unit.column] if label and schema.unit is not None else []
        blanks |= dict.fromkeys((*numbers, *owner, *(column.name for column in schema.dates)), _BLANKS)
        return cls(numbers, levels, blanks)

    def set_types(self, table: pd.DataFrame) -> pd.DataFrame:
        """Return a table of text with its levels in their own types, or each cell in its own coding."""
        if self.alone:
            return table.apply(recoded)
        typed = {name: levels_of_text(table[name], public) for name, public in self.levels.items()}
        return replace_columns(table, typed)


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
    from .parquet import open_stored  # which needs the curator, as reading into memory does not

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
    written = _open_cells(path, schema.file) if columns.alone else _open_text(path, schema, wanted)
    _require_columns(path, wanted, list(written.names), ())
    kept, rows = _stored(written, columns, wanted, schema.file.decimal)
    require_rows(path, rows, schema.rows if label else None)
    schema = schema.choosing(missing=missing, unknown=unknown)
    return open_stored([kept], path.name, schema, label=label, typed=columns.set_types)


def stored_cells(path: Path) -> UnnamedParquet:
    """Return all cells of a text table of which nothing is known, as text in a Parquet file; see `recoded`."""
    written = _open_cells(path, FileFormat())
    kept, rows = _stored(written, TextColumns([], {}, {}, alone=True), list(written.names), ".")
    require_rows(path, rows, None)
    return kept


def _stored(written: Delimited, columns: TextColumns, wanted: list[str], decimal: str) -> tuple[UnnamedParquet, int]:
    """Return some columns of a text table in a Parquet file, and the number of rows."""
    try:
        kept = UnnamedParquet(written.path.name)
    except OSError:
        raise _no_room(written.path.name) from None
    return kept, _convert(written, decimal, columns, wanted, kept.file)


class _LastLine:
    """A line after the last one of a text table, with one cell too many, which nobody can foresee.

    It is Arrow's handler of invalid rows: the line is left out, and every other such row is an error. If Arrow does
    not come upon the line, it is part of a cell whose quotation mark is never closed.
    """

    def __init__(self, written: Delimited) -> None:
        self.text = secrets.token_hex(16) + written.separator * len(written.names)
        self.found = False
        self._in_a_cell = False

    def __call__(self, row: Any) -> str:
        if row.text == self.text:
            self.found = True
            return "skip"
        self._in_a_cell |= self.text in row.text
        return "error"

    def is_in_a_cell(self, problem: Exception) -> bool:
        """Whether Arrow has found the line inside the cell, or the row, that it complains of."""
        return self._in_a_cell or self.text in str(problem)


class _Utf8Text(io.RawIOBase):
    """A file of text in UTF-8, whatever its encoding, followed by a last line; no read ends between CR and LF.

    Text that is not in the encoding raises `UnicodeError`.
    """

    def __init__(self, file: IO[bytes], encoding: str, last: str) -> None:
        self._file, self._last = file, f"\n{last}\n".encode()
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._ready = b""
        self._ended = False

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        """Return at most ``size`` bytes, and none after the last line."""
        while not self._ended and len(self._ready) < size:
            coded = self._file.read(size)
            self._ended = not coded
            self._ready += self._decoder.decode(coded, final=self._ended).encode()
            if self._ended:
                self._ready += self._last
        data = self._ready[:size]
        if len(data) > 1 and data.endswith(b"\r"):
            data = data[:-1]
        self._ready = self._ready[len(data) :]
        return data


def _convert(written: Delimited, decimal: str, columns: TextColumns, wanted: list[str], output: IO[bytes]) -> int:
    """Write the wanted columns as Parquet, numbers as doubles, all others as text, and return the number of rows."""
    stored = arrow.schema([(name, arrow.float64() if name in columns.numbers else arrow.string()) for name in wanted])
    last = _LastLine(written)
    rows = 0
    problem: Exception | None = None
    try:
        with parquet.ParquetWriter(output, stored, compression="lz4") as writer:
            for batch in _batches(written, decimal, columns, stored, last):
                writer.write_batch(batch, row_group_size=_GROUP_ROWS)
                rows += batch.num_rows
        output.flush()
    except (arrow.ArrowException, OSError, *UNREADABLE) as found:
        problem = found
    if problem is not None:
        raise _name_problem(problem, written, last)  # outside the handler, whose text may show a cell
    if not last.found:
        raise never_closed(written)
    return rows


def _batches(written: Delimited, decimal: str, columns: TextColumns, stored: Any, last: _LastLine) -> Iterator[Any]:
    """Yield record batches of whole row groups, with null for cells that are missing."""
    reading = csv.ReadOptions(block_size=_TEXT_BLOCK, skip_rows=written.lines, column_names=list(written.names))
    parsing = csv.ParseOptions(delimiter=written.separator, newlines_in_values=True, invalid_row_handler=last)
    converting = csv.ConvertOptions(
        column_types=dict(zip(stored.names, stored.types, strict=True)),
        include_columns=stored.names,
        null_values=_BLANKS,
        strings_can_be_null=False,
        decimal_point=decimal,
    )
    waiting: list[Any] = []
    with (
        written.open() as file,
        _Utf8Text(file, written.encoding, last.text) as text,
        csv.open_csv(text, reading, parsing, converting) as reader,
    ):
        for batch in reader:
            cells = [
                column if name in columns.numbers else _drop_blanks(column, columns.blanks.get(name, []))
                for name, column in zip(stored.names, batch.columns, strict=True)
            ]
            waiting.append(arrow.record_batch(cells, schema=stored))
            if sum(each.num_rows for each in waiting) >= _GROUP_ROWS:
                yield arrow.concat_batches(waiting)
                waiting = []
    if waiting:
        yield arrow.concat_batches(waiting)


def _drop_blanks(column: Any, blanks: list[str]) -> Any:
    if not blanks:
        return column
    missing = compute.is_in(column, value_set=arrow.array(blanks, arrow.string()))
    return compute.if_else(missing, arrow.scalar(None, arrow.string()), column)


def _name_problem(problem: Exception, written: Delimited, last: _LastLine) -> Exception:
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
