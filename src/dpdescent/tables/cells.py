"""What the cells of one column become: numbers, days, positions among levels, or buckets of a public hash.

Each is a function of the cell alone, given public knowledge. No message shows a cell.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Hashable, Mapping, Sequence
from datetime import date
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from ..arrays import Floats, Positions, distinct_cells
from ..errors import ColumnTypeError, InfiniteValue, MissingValue

#: Instead of the form of dates: each cell in any common form, 03/04/2020 with the day first, or the month.
ANY_DATE = ("day first", "month first")
_DAY = np.timedelta64(1, "D")
_BELOW_MICROSECONDS = re.compile(r"(\.\d{6})\d+", re.ASCII)


def scale_columns(matrix: ArrayLike, low: ArrayLike, high: ArrayLike) -> Floats:
    """Clip each column to its public bounds and map it to [0, 1].

    ``scaled = (clip(x, low, high) - low) / (high - low)``

    Rounding is monotone, so the result never leaves [0, 1], not even by one unit in the last place.

    Parameters
    ----------
    matrix : array-like of shape (n,) or (n, d)
        Finite numbers.
    low, high : float or array-like of shape (d,)
        Public bounds with ``low < high``.

    Returns
    -------
    ndarray of float64, row-major, always a fresh copy

    Examples
    --------
    >>> scale_columns([[20.0, -5.0], [200.0, 5.0]], low=[0, -10], high=[100, 10]).tolist()
    [[0.2, 0.25], [1.0, 0.75]]
    """
    lowest, highest = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    scaled = np.array(matrix, dtype=np.float64, order="C", copy=True)
    np.clip(scaled, lowest, highest, out=scaled)
    scaled -= lowest
    scaled /= highest - lowest
    return scaled


def replace_columns(table: pd.DataFrame, columns: Mapping[str, Any]) -> pd.DataFrame:
    """Return a table with some columns replaced or added; a name may be any text, also a keyword of pandas."""
    changed = table.copy(deep=False)
    for name, cells in columns.items():
        changed[name] = cells
    return changed


def numeric_values(column: pd.Series, name: Hashable, missing: str = "error") -> Floats:
    """Return a numeric column as float64; NaN marks a missing cell where ``missing`` is not ``"error"``.

    Raises
    ------
    ColumnTypeError
        The column is stored as text, dates or objects. Decided by the storage type, never by the cells.
    MissingValue, InfiniteValue
        A cell is missing or infinite.
    """
    if not (pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype)):
        raise ColumnTypeError(
            f"column {name!r} is declared numeric and is stored as {column.dtype}, so not all cells are numbers: "
            "correct them, or declare the column as categorical, hashed or date, or the decimal comma of the file"
        )
    values: Floats = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if missing == "error" and np.isnan(values).any():
        raise MissingValue(
            f"column {name!r} has a missing value: choose missing 'midpoint' or 'level', or fill the cells with a "
            "public constant beforehand"
        )
    if np.isinf(values).any():
        raise InfiniteValue(f"column {name!r} has an infinite value: replace it by one of the public bounds")
    return values


def day_numbers(dates: Any) -> Floats:
    """Return dates as days since 1970-01-01 in Coordinated Universal Time; NaN where a date is missing.

    Examples
    --------
    >>> day_numbers(pd.Series(pd.to_datetime(["1970-01-02T12:00", None]))).tolist()
    [1.5, nan]
    """
    stamps = pd.Series(dates)
    if getattr(stamps.dt, "tz", None) is not None:
        stamps = stamps.dt.tz_convert("UTC").dt.tz_localize(None)
    # In one unit for all tables, so that a date is the same number whatever the precision of others.
    days: Floats = (stamps.to_numpy().astype("datetime64[us]") - np.datetime64("1970-01-01", "us")) / _DAY
    return days


def as_stamps(column: pd.Series, form: str | None = None) -> pd.Series:
    """Return texts and dates as moments, NaT where a cell is none; each is read by itself.

    pandas takes the finest unit that a cell needs for all of them, and one with nanoseconds would leave no dates
    before 1677 or after 2262. So what is finer than microseconds is taken away first.
    """
    cells, absent = column.to_numpy(dtype=object), column.isna().to_numpy(dtype=bool)
    dated = np.array([isinstance(cell, date | np.datetime64) for cell in cells], dtype=bool) & ~absent
    stamps = np.full(cells.size, np.datetime64("NaT", "us"), dtype="datetime64[us]")
    for which, way in ((dated, None), (~dated & ~absent, form)):
        fine = way is None or "%f" in way
        texts = [_text_of_date(cell, fine) for cell in cells[which]]
        read = pd.to_datetime(pd.Series(texts, dtype=object), format=way or "ISO8601", errors="coerce", utc=True)
        stamps[which] = read.dt.tz_localize(None).to_numpy().astype("datetime64[us]")
    return pd.Series(stamps, index=column.index)


def _text_of_date(cell: Any, fine: bool) -> str:
    """Return a date as text, in no more than microseconds where it may have parts of seconds."""
    if isinstance(cell, np.datetime64):
        return str(cell.astype("datetime64[us]"))
    text = cell.isoformat() if isinstance(cell, date) else str(cell)
    return _BELOW_MICROSECONDS.sub(r"\1", text) if fine else text


def date_values(column: pd.Series, name: Hashable, form: str | None = None) -> pd.Series:
    """Return a column of dates as days since 1970-01-01, text being read in the form of `datetime.strptime`.

    A message calls the column ``name``. Dates are written as 2020-12-31, with or without a time, unless there is a
    ``form``.

    Raises
    ------
    ColumnTypeError
        A cell is not such a date. The message shows no cell.
    """
    if pd.api.types.is_numeric_dtype(column.dtype):
        raise ColumnTypeError(f"column {name!r} is declared as dates and holds numbers: declare it as numeric")
    dates = column if pd.api.types.is_datetime64_any_dtype(column.dtype) else as_stamps(column, form)
    if (dates.isna() & ~column.isna()).any():
        raise ColumnTypeError(
            f"column {name!r} has a cell that is not a date {f'of the form {form}' if form else 'like 2020-12-31'}: "
            "give the format of the dates, such as %d.%m.%Y, or correct the file"
        )
    return pd.Series(day_numbers(dates), index=column.index)


def level_codes(column: pd.Series, name: Hashable, levels: Sequence[Any]) -> Positions:
    """Return the position of each cell in ``levels``, -1 where it equals none of them.

    Cells and levels are compared as Python compares them, so 1, 1.0 and True are one level.

    Raises
    ------
    ColumnTypeError
        All levels are text and the column is stored as numbers, or the reverse: no cell could ever match.
    """
    check_storage(column, name, levels)
    numbers = _as_numbers(levels)
    if isinstance(column.dtype, np.dtype) and column.dtype.kind in "biuf" and numbers is not None:
        return _positions(column.to_numpy(), numbers)
    index = pd.Index(list(levels), dtype=object)
    if isinstance(column.dtype, pd.CategoricalDtype):
        # One look-up per category instead of one per row; the last slot serves the code -1 of a missing cell.
        by_category = np.append(index.get_indexer(column.cat.categories.astype(object)), -1)
        codes: Positions = by_category[column.cat.codes.to_numpy()]
        return codes
    _require_single(column, name)
    return np.asarray(index.get_indexer(pd.Index(column.to_numpy(dtype=object), dtype=object)), dtype=np.intp)


def _as_numbers(levels: Sequence[Any]) -> Floats | None:
    """Return levels as doubles, None unless each is a number below 2^53, to which no other number is rounded."""
    if not all(isinstance(level, Real) and abs(float(level)) < 2.0**53 for level in levels):
        return None
    numbers = np.array([float(level) for level in levels])
    return numbers if all(number == level for number, level in zip(numbers.tolist(), levels, strict=True)) else None


def _positions(cells: NDArray[Any], numbers: Floats) -> Positions:
    """Return the position of each cell among distinct numbers, -1 where it equals none."""
    order = np.argsort(numbers)
    values = cells.astype(np.float64, copy=False)
    places = order[np.minimum(np.searchsorted(numbers, values, sorter=order), numbers.size - 1)]
    places[numbers[places] != values] = -1
    return places


def levels_of_text(column: pd.Series, levels: Sequence[Any]) -> pd.Series:
    """Return a column of text with each cell that is a level in the type of the level: "1" as 1 where 1 is a level.

    Each cell is read by itself, so that no cell decides how others are read.

    Examples
    --------
    >>> levels_of_text(pd.Series(["1", "1.0", "true", "many"]), [1, "many"]).tolist()
    [1, 1, 'true', 'many']
    """
    if all(isinstance(level, str) for level in levels):
        return column
    known = {level for level in levels if isinstance(level, str)}
    truths = {str(level).lower(): level for level in levels if isinstance(level, bool)}
    numbers = {float(level): level for level in levels if not isinstance(level, str | bool)}

    def read(text: Any) -> Any:
        if text in known:
            return text
        if text.strip().lower() in truths:
            return truths[text.strip().lower()]
        try:
            return numbers.get(float(text), text)
        except ValueError:
            return text

    cells = column.to_numpy(dtype=object)
    found = cells.copy()
    texts = np.array([isinstance(cell, str) for cell in cells], dtype=bool)
    codes, distinct = distinct_cells(cells[texts])
    by_text = np.empty(len(distinct), dtype=object)
    by_text[:] = [read(text) for text in distinct]
    found[texts] = by_text[codes]
    return pd.Series(found, index=column.index, dtype=object)


def bucket_codes(column: pd.Series, name: Hashable, buckets: int) -> Positions:
    """Return the bucket of each cell by a public hash of its text, -1 where it is missing.

    The hash is BLAKE2b of ``name``, a zero byte and the text, the first eight bytes as a big-endian number modulo
    ``buckets``. It is the same on every machine and learns nothing, so different texts may share a bucket.

    Examples
    --------
    >>> bucket_codes(pd.Series(["Oslo", None, "Oslo"]), "town", 8).tolist()
    [2, -1, 2]
    """
    _require_single(column, name)
    there = ~column.isna().to_numpy(dtype=bool)
    texts = (
        str(cell) for cell in column.to_numpy(dtype=object)[there]
    )  # 1, 1.0 and True are equal, as text they differ
    positions, distinct = distinct_cells(texts)
    written = (f"{name}\0{text}".encode(errors="surrogatepass") for text in distinct)
    digests = (hashlib.blake2b(each, digest_size=8).digest() for each in written)
    by_text = np.array([int.from_bytes(digest, "big") % buckets for digest in digests], dtype=np.intp)
    codes = np.full(len(column), -1, dtype=np.intp)
    codes[there] = by_text[positions]
    return codes


def _require_single(column: pd.Series, name: Hashable) -> None:
    """Raise `ColumnTypeError` where cells are lists or objects, which equal nothing and have no hash."""
    if column.dtype == object and not all(isinstance(cell, Hashable) for cell in column):
        raise ColumnTypeError(f"column {name!r} has cells of several values, such as lists: store one value per cell")


def check_storage(column: pd.Series, name: Hashable, public: Sequence[Any]) -> None:
    """Raise `ColumnTypeError` where no cell could ever equal a level, by the storage type alone."""
    text = [isinstance(level, str) for level in public]
    stored_numbers = pd.api.types.is_numeric_dtype(column.dtype)
    stored_text = isinstance(column.dtype, pd.StringDtype)
    if (stored_numbers and all(text)) or (stored_text and not any(text)):
        raise ColumnTypeError(
            f"column {name!r} is stored as {column.dtype} and its levels are "
            f"{'text' if all(text) else 'not text'}: declare the levels in the type of the column, or convert the "
            "column"
        )
