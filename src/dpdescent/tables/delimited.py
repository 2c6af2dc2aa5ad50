"""Text tables as they are: the separator, the encoding and the compression are told from the first line.

Nothing but the first line, which names the columns, decides how a file is read. A file that cannot be read is refused
with the cause and the number of the line, never with what the line holds.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import re
import zlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pandas as pd

from ..errors import ColumnTypeError, DatasetFormatError

TEXT_SUFFIXES = (".csv", ".tsv", ".txt", ".csv.gz", ".tsv.gz", ".txt.gz")
_SEPARATORS = (",", ";", "\t", "|")
_MARKS = {codecs.BOM_UTF8: "utf-8-sig", codecs.BOM_UTF16_LE: "utf-16", codecs.BOM_UTF16_BE: "utf-16"}
_FOREIGN = {
    b"PK\x03\x04": "a ZIP archive or an Excel workbook: unpack it, or save it as CSV",
    b"\xd0\xcf\x11\xe0": "an Excel workbook: save it as CSV",
    b"PAR1": "a Parquet file: give it the suffix .parquet",
    b"BZh": "compressed by bzip2: unpack it, or compress it by gzip",
    b"\xfd7zXZ": "compressed by xz: unpack it, or compress it by gzip",
    b"\x93NUMPY": "an array of NumPy: save X and y in an NPZ file",
}
_LONGEST_HEADER = 1 << 24
_NAME_LINES = 64  # that a name in quotation marks may have
_DAMAGED = (EOFError, gzip.BadGzipFile, zlib.error)
UNREADABLE = (*_DAMAGED, UnicodeError)  # what reading raises if a file is cut off, damaged or coded otherwise


@dataclass(frozen=True)
class Delimited:
    """How a text table is written, and the names of its columns."""

    path: Path
    separator: str
    encoding: str
    compressed: bool  # whether it is compressed by gzip, whatever its suffix
    names: tuple[str, ...]  # the names in its first line
    #: How many lines of the file these names take: a name in quotation marks may have several.
    lines: int = 1

    def open(self) -> IO[bytes]:
        """Open the file for reading, unpacked."""
        return _open(self.path, self.compressed)


def _separators(path: Path, given: str | None) -> tuple[str, ...]:
    """Return what may stand between cells, what is likelier first."""
    if given is not None:
        return (given,)
    return ("\t", *_SEPARATORS) if ".tsv" in path.suffixes else _SEPARATORS


def read_header(
    path: Path,
    *,
    separator: str | None = None,
    encoding: str | None = None,
    wanted: Collection[str] = (),
    renaming: bool = False,
) -> Delimited:
    """Read the first line of a text table.

    The file may be compressed by gzip. Where the first line cannot tell, ``separator`` and ``encoding`` do; by
    default the separator is the one by which the line has most of the names that are ``wanted``, and then most names
    at all. ``renaming`` numbers names that occur twice, makes up missing ones, and reads names that are no UTF-8 as
    Latin-1, instead of refusing them.

    Raises
    ------
    DatasetFormatError
        The file is not text, or its first line does not name its columns. The message names the cause.
    """
    with path.open("rb") as file:
        start = file.read(8)
    for mark, what in _FOREIGN.items():
        if start.startswith(mark):
            raise DatasetFormatError(f"{path.name!r} is {what}")
    compressed = start[:2] == b"\x1f\x8b"
    try:
        with _open(path, compressed) as file:
            mark = file.read(4)
            coding = encoding or next((name for bom, name in _MARKS.items() if mark.startswith(bom)), "utf-8")
        with _open(path, compressed) as file:
            line = _first_line(file, coding)
    except _DAMAGED:
        raise _cut_off(path) from None
    except UnicodeError:
        if renaming and encoding is None:
            return read_header(path, separator=separator, encoding="latin-1", wanted=wanted, renaming=True)
        raise _not_text(path, coding, 1) from None
    lines = 1 + line.count("\n")
    if renaming:
        line = " ".join(line.split("\n"))
    _require_text(path, line)
    split = {each: _split(line, each) for each in _separators(path, separator)}
    best = max(split, key=lambda each: (len(set(wanted) & set(split[each])), len(split[each])))
    names = split[best]
    if not any(names):
        raise DatasetFormatError(f"{path.name!r} is empty: its first line must name the columns")
    if renaming:
        names = _distinct([" ".join(name.split()) or f"column {place}" for place, name in enumerate(names, start=1)])
    if "" in names or len(set(names)) != len(names):
        problem = "has no name for a column" if "" in names else "names a column twice"
        raise DatasetFormatError(
            f"the first line of {path.name!r} {problem}: it must hold distinct, non-empty column names"
        )
    return Delimited(path, best, coding, compressed, tuple(names), lines)


def _require_text(path: Path, line: str) -> None:
    if "\r" in line:
        raise DatasetFormatError(f"{path.name!r} has lines that end with a carriage return alone: end them with \\n")
    if any(character < " " and character != "\t" for character in line):
        raise DatasetFormatError(f"{path.name!r} is no text table: its first line has bytes that are no text")


def _distinct(names: list[str]) -> list[str]:
    """Return names of which those that occurred before are numbered."""
    found: list[str] = []
    for name in names:
        number, other = 1, name
        while other in found:
            number += 1
            other = f"{name}.{number}"
        found.append(other)
    return found


def read_cells(
    written: Delimited,
    *,
    numbers: Collection[str],
    blanks: Mapping[str, list[str]],
    decimal: str = ".",
    header: bool = True,
) -> pd.DataFrame:
    """Read all cells of a text table, each by itself: what becomes of a cell depends on no other row.

    All columns but ``numbers`` are text, even where all cells look like numbers. ``blanks`` are what counts as a
    missing cell of each column. Columns are called as the first line has it, or without a ``header`` as ``written``
    has it.

    Raises
    ------
    DatasetFormatError
        A line has too many or too few cells, a quote is not closed, or the text is not coded as it should be. The
        message names the cause and the line, and shows no cell.
    ColumnTypeError
        A cell in a column of numbers is not a number.
    """
    problem = ""
    types = dict.fromkeys(written.names, "str") | dict.fromkeys(numbers, "float64")
    try:
        with written.open() as file:
            table = pd.read_csv(
                file,
                sep=written.separator,
                encoding=written.encoding,
                decimal=decimal,
                dtype=types,
                keep_default_na=False,
                na_values=dict(blanks),
                index_col=False if len(written.names) > 1 else None,
                low_memory=False,
                **({} if header else {"names": list(written.names), "header": 0}),
            )
    except UNREADABLE as error:
        raise unreadable(written, error) from None
    except (pd.errors.ParserError, pd.errors.EmptyDataError, pd.errors.ParserWarning, csv.Error) as error:
        problem = str(error)
    except (ValueError, TypeError):  # whose message quotes a cell
        table = None
    if problem:
        raise _ragged(written, problem)
    if table is None:
        raise ColumnTypeError(_not_numbers(written, numbers, blanks, decimal))
    if list(table.columns) != list(written.names) or not isinstance(table.index, pd.RangeIndex) or _is_short(table):
        raise_ragged_line(written)
    return table


def raise_ragged_line(written: Delimited) -> None:
    """Raise `DatasetFormatError` for the first line that has more or fewer cells than the header, if there is one."""
    with io.TextIOWrapper(written.open(), written.encoding, newline="") as text:
        reader = csv.reader(text, delimiter=written.separator)
        before = 0
        try:
            for cells in reader:
                if cells and len(cells) != len(written.names):
                    raise DatasetFormatError(
                        f"line {before + 1} of {written.path.name!r} has {len(cells)} cells and the first line has "
                        f"{len(written.names)} names: correct the line, or quote cells that hold the separator "
                        f"{written.separator!r}"
                    )
                before = reader.line_num
        except csv.Error:
            raise DatasetFormatError(
                f"line {before + 1} of {written.path.name!r} has a cell of more than {csv.field_size_limit()} "
                "characters: shorten it, or close a quotation mark"
            ) from None
        except UNREADABLE as error:
            raise unreadable(written, error) from None


def unreadable(written: Delimited, error: Exception) -> DatasetFormatError:
    """Return the named error for one of `UNREADABLE`, which reading a text table has raised."""
    if isinstance(error, UnicodeError):
        return _not_text(written.path, written.encoding, _undecodable_line(written))
    return _cut_off(written.path)


def never_closed(written: Delimited) -> DatasetFormatError:
    """Return the error for a quotation mark that is never closed, so that the last row begins on its line."""
    first = following = 1
    with io.TextIOWrapper(written.open(), written.encoding, newline="") as text:
        reader = csv.reader(text, delimiter=written.separator)
        try:
            for _ in reader:
                first, following = following, reader.line_num + 1
        except csv.Error:  # a cell is too long for this reader, as one that is never closed may be
            first = following
    return _never_closed(written.path, first)


def _not_numbers(written: Delimited, numbers: Collection[str], blanks: Mapping[str, list[str]], decimal: str) -> str:
    """Return a message that names the first column of numbers that has a cell which is none."""
    table = read_cells(written, numbers=(), blanks=blanks)
    for name in numbers:
        try:
            table[name].dropna().str.replace(decimal, ".").astype("float64")
        except ValueError:
            break
    return (
        f"column {name!r} is declared numeric, and not all of its cells are numbers: correct them, or declare the "
        'column as categorical, hashed or date, or say that decimals have a comma by "file": {"decimal": ","}'
    )


def _is_short(table: pd.DataFrame) -> bool:
    """Whether a row lacks its last cell: only then can its line be too short."""
    last = table.iloc[:, -1]
    return bool((last.isna() | (last.astype(object) == "")).any())


def _ragged(written: Delimited, problem: str) -> DatasetFormatError:
    """Return a named error for a message of pandas, of which only numbers of lines are taken."""
    name = written.path.name
    if found := re.search(r"Expected (\d+) fields in line (\d+), saw (\d+)", problem):
        return DatasetFormatError(
            f"line {found[2]} of {name!r} has {found[3]} cells and the first line has {found[1]} names: correct the "
            f"line, or quote cells that hold the separator {written.separator!r}"
        )
    if found := re.search(r"EOF inside string starting at row (\d+)", problem):
        return _never_closed(written.path, int(found[1]) + 1)
    return DatasetFormatError(f"{name!r} is not a readable CSV file with a header line")


def _open(path: Path, compressed: bool) -> IO[bytes]:
    return gzip.open(path, "rb") if compressed else path.open("rb")  # type: ignore[return-value]


def _first_line(file: IO[bytes], encoding: str) -> str:
    """Return the first line, and those after it up to the quotation mark that closes a name that begins with one."""
    if encoding.startswith("utf-16"):
        with io.TextIOWrapper(file, encoding, newline="") as text:
            return _whole_line(lambda: text.readline(_LONGEST_HEADER))
    return _whole_line(lambda: file.readline(_LONGEST_HEADER).decode(encoding).removeprefix("\ufeff"))


def _whole_line(read: Callable[[], str]) -> str:
    first = line = read()
    while line.count('"') % 2 and re.search(r'(^|[,;\t|])"', first) and line.count("\n") < _NAME_LINES:
        more = read()
        line += more or "\n" * _NAME_LINES
    found = line if line.count("\n") < _NAME_LINES else first
    return found.rstrip("\r\n").replace("\r\n", "\n")


def _split(line: str, separator: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=separator), [])
    except csv.Error:
        return []


def _undecodable_line(written: Delimited) -> int:
    with written.open() as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode(written.encoding)
            except UnicodeError:
                return number
    return 1


def _cut_off(path: Path) -> DatasetFormatError:
    return DatasetFormatError(f"{path.name!r} is compressed by gzip, and is cut off or damaged: copy it again")


def _never_closed(path: Path, line: int) -> DatasetFormatError:
    return DatasetFormatError(
        f"{path.name!r} has a quotation mark that is never closed, near line {line}: close or remove it"
    )


def _not_text(path: Path, encoding: str, line: int) -> DatasetFormatError:
    coding = "UTF-8" if encoding.startswith("utf-8") else encoding
    return DatasetFormatError(
        f'line {line} of {path.name!r} is not {coding} text: give the encoding in the schema, such as "file": '
        '{"encoding": "latin-1"}, or convert the file'
    )
