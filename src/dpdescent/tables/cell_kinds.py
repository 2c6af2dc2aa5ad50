"""What a cell is by itself: missing, a number, a date in one of a few public forms, or text; and reading it so.

Each cell is read by itself, whatever the other rows hold, and a cell that is not of the kind of its column counts as
missing. No message shows a cell, and none depends on one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from numbers import Real
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
import pyarrow.compute as compute
from numpy.typing import NDArray

from ..arrays import Positions, distinct_cells
from .cells import ANY_DATE, as_stamps, day_numbers
from .written_forms import (
    DATE_FORMS,
    NUMBERS,
    OTHER_DATES,
    PERHAPS_NUMBER_OR_DATE,
    PLAIN_DATE,
    PLAIN_DECIMAL,
    PLAIN_INTEGER,
    PLAIN_NUMBER,
    date_form,
    iso_date,
    number_form,
    number_in,
)

_LONGEST = 64  # characters of a level
_BLANKS = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-", ".", "nat", "<na>", "#n/a", "#na"})
#: The bins of a cell. What is written in a way that means two things is a bin of its own: the column decides.
KINDS_OF_CELLS = ("missing", *NUMBERS, *DATE_FORMS, *OTHER_DATES, "text", "long text", "other")
#: How a column of text is stored of which each distinct text is held once.
CODED = pd.ArrowDtype(arrow.dictionary(arrow.int32(), arrow.string()))
_NUMBER_OF = {name: number for number, name in enumerate(KINDS_OF_CELLS)}
_PLAIN_KINDS = (
    (PLAIN_DECIMAL, _NUMBER_OF["decimal point"]),
    (PLAIN_INTEGER, _NUMBER_OF["integer"]),
    (PLAIN_DATE, _NUMBER_OF["date"]),
)


def as_frame(table: Any) -> pd.DataFrame | None:
    """Return a table of named columns as a DataFrame of pandas, or None if it is none; no cell is read.

    Categories of polars are text: their levels are those that occur, and not public. Those of an enumeration are.
    """
    if isinstance(table, pd.DataFrame):
        return table
    module = type(table).__module__.partition(".")[0]
    if module == "polars" and hasattr(table, "to_arrow"):
        texts = [name for name, kind in table.schema.items() if type(kind).__name__ == "Categorical"]
        frame: pd.DataFrame = table.with_columns([table[name].cast(str) for name in texts]).to_pandas(
            types_mapper=_stored_as
        )
        return frame
    if module == "pyarrow" and hasattr(table, "to_pandas"):
        plain: pd.DataFrame = table.to_pandas(strings_to_categorical=False, types_mapper=_stored_as)
        derived = [name for name in plain.columns if isinstance(plain[name].dtype, pd.CategoricalDtype)]
        return plain.astype(dict.fromkeys(derived, object))
    return None


def _stored_as(kind: Any) -> Any:
    """Return how a type of Arrow is stored: truth values in one way, whether or not one of them is missing."""
    return pd.BooleanDtype() if str(kind) == "bool" else None


def _kind_of_text(text: str) -> str:
    """Return the kind of a text, from which spaces on both sides were taken."""
    if len(text) > _LONGEST:
        return "long text"
    if text.lower() in _BLANKS:
        return "missing"
    return number_form(text) or date_form(text) or "text"


def _kind(cell: Any) -> str:
    """Return the kind of any cell that is there."""
    if isinstance(cell, str):
        return _kind_of_text(cell.strip())
    if isinstance(cell, bool | np.bool_):
        return "text"
    if isinstance(cell, Real | Decimal):
        return _kind_of_number(cell)
    if isinstance(cell, date | datetime | np.datetime64):
        return "date"
    return "decimal point" if isinstance(cell, time) else "other"  # such as bytes and lists


def _kind_of_number(cell: Real | Decimal) -> str:
    try:
        number = float(cell)
    except (OverflowError, ValueError):
        return "missing"
    if not math.isfinite(number):
        return "missing"
    return "integer" if number == math.floor(number) and abs(number) < 2.0**53 else "decimal point"


def _text_codes(column: pd.Series) -> tuple[Positions, Any] | None:
    """Return the position of each cell among distinct texts, -1 where one is missing; None unless text is stored."""
    if column.dtype != CODED and not isinstance(column.dtype, pd.StringDtype):
        return None
    try:
        stored = column.array.__arrow_array__()
    except (ValueError, UnicodeError):  # a lone surrogate, which Arrow cannot hold
        return None
    whole = stored.combine_chunks() if isinstance(stored, arrow.ChunkedArray) else stored
    coded = whole if column.dtype == CODED else whole.dictionary_encode()
    return coded.indices.fill_null(-1).to_numpy(zero_copy_only=False).astype(np.intp), coded.dictionary


def coded_texts(column: pd.Series) -> pd.Series:
    """Return a column of text that holds each distinct text once, which saves time where it is read several times."""
    found = _text_codes(column)
    if found is None:
        return column
    codes, texts = found
    coded = arrow.DictionaryArray.from_arrays(
        arrow.array(codes.astype(np.int32), mask=codes < 0), texts.cast("string")
    )
    return pd.Series(pd.arrays.ArrowExtensionArray(coded), index=column.index)


def _matches(texts: Any, pattern: str) -> NDArray[np.bool_]:
    return np.asarray(compute.match_substring_regex(texts, pattern).to_numpy(zero_copy_only=False), dtype=np.bool_)


def _of_texts(
    texts: Any, function: Callable[[str], Any], plain: Sequence[tuple[str, Any]], other: Any, dtype: type
) -> NDArray[Any]:
    """Return a function of texts and, last, of a missing one; most by Arrow, as pairs of patterns and values say.

    A value may be a function of the texts that match. What could be a number or a date in no pattern, is blank or
    long goes to the function itself, and ``other`` is the value of all that is left.
    """
    found: NDArray[Any] = np.full(len(texts) + 1, other, dtype=dtype)
    left = np.ones(len(texts), dtype=np.bool_)
    for pattern, value in plain:
        if not left.any():
            break
        among = np.flatnonzero(left)
        fitting = among[_matches(texts.take(arrow.array(among)), pattern)]
        if fitting.size:
            found[fitting] = value(texts.take(arrow.array(fitting))) if callable(value) else value
            left[fitting] = False
    among = np.flatnonzero(left)
    rest = texts.take(arrow.array(among))
    bare = compute.utf8_trim_whitespace(rest)
    blank = compute.is_in(compute.utf8_lower(bare), value_set=arrow.array(sorted(_BLANKS), rest.type))
    odd = np.asarray(blank.to_numpy(zero_copy_only=False), dtype=np.bool_)
    odd |= compute.utf8_length(bare).to_numpy(zero_copy_only=False) > _LONGEST
    odd |= _matches(bare, PERHAPS_NUMBER_OR_DATE)
    found[among[odd]] = [function(text) for text in rest.filter(arrow.array(odd)).to_pylist()]
    return found


def _by_value(column: pd.Series, function: Callable[[Any], Any], absent: Any, dtype: type = object) -> NDArray[Any]:
    """Return a function of each cell, computed once for equal texts; ``absent`` where a cell is missing.

    Other cells are read one by one: 1, 1.0 and True are equal, and the first of them must not decide for the rest.
    """
    coded = _text_codes(column)
    if coded is not None:
        values: NDArray[Any] = np.empty(len(coded[1]) + 1, dtype=dtype)
        values[:] = [*map(function, coded[1].to_pylist()), absent]
        return values[coded[0]]
    cells = column.to_numpy(dtype=object)
    if isinstance(column.dtype, pd.CategoricalDtype):  # whose numbers and intervals would change with a missing cell
        kept = np.empty(len(column.cat.categories) + 1, dtype=object)
        kept[:-1] = column.cat.categories.astype(object)
        cells = kept[column.cat.codes.to_numpy()]
    texts = np.fromiter((isinstance(cell, str) for cell in cells), dtype=np.bool_, count=cells.size)
    found = np.empty(cells.size, dtype=object)
    for place in np.flatnonzero(~texts):
        found[place] = absent if _is_missing(cells[place]) else function(cells[place])
    codes, distinct = distinct_cells(cells[texts])
    by_text = np.empty(len(distinct), dtype=object)
    by_text[:] = [function(text) for text in distinct]
    found[texts] = by_text[codes]
    return found.astype(dtype)


def _is_missing(cell: Any) -> bool:
    return cell is None or cell is pd.NA or cell is pd.NaT or (isinstance(cell, float) and math.isnan(cell))


def kinds_of_cells(column: pd.Series) -> NDArray[np.intp]:
    """Return the number of each cell's kind among `KINDS_OF_CELLS`.

    Examples
    --------
    >>> [KINDS_OF_CELLS[kind] for kind in kinds_of_cells(pd.Series(["12", " 1,5", "31.12.2020", "?", "nurse"]))]
    ['integer', 'decimal comma', 'date with dots', 'missing', 'text']
    """
    if pd.api.types.is_datetime64_any_dtype(column.dtype) or isinstance(column.dtype, pd.PeriodDtype):
        return np.where(column.isna(), 0, _NUMBER_OF["date"]).astype(np.intp)
    if _stores_numbers(column):
        values = _floats(column)
        whole = (values == np.floor(values)) & (np.abs(values) < 2.0**53)
        kinds = np.where(whole, _NUMBER_OF["integer"], _NUMBER_OF["decimal point"])
        return np.where(np.isfinite(values), kinds, 0).astype(np.intp)
    coded = _text_codes(column)
    if coded is None:
        return _by_value(column, lambda cell: _NUMBER_OF[_kind(cell)], 0, np.intp)
    by_text = _of_texts(coded[1], lambda text: _NUMBER_OF[_kind(text)], _PLAIN_KINDS, _NUMBER_OF["text"], np.intp)
    by_text[-1] = 0
    found: NDArray[np.intp] = by_text[coded[0]]
    return found


def _stores_numbers(column: pd.Series) -> bool:
    kind = column.dtype
    timed = pd.api.types.is_timedelta64_dtype(kind)
    return timed or (pd.api.types.is_numeric_dtype(kind) and not pd.api.types.is_bool_dtype(kind))


def _floats(column: pd.Series) -> NDArray[np.float64]:
    """Return a column that is stored as numbers; lengths of time are days."""
    if pd.api.types.is_complex_dtype(column.dtype):
        return np.full(len(column), np.nan)
    if pd.api.types.is_timedelta64_dtype(column.dtype):
        return np.asarray((column.dt.total_seconds() / 86400.0).to_numpy(dtype=np.float64))
    return np.asarray(column.to_numpy(dtype=np.float64, na_value=np.nan))


def _whole_number(cell: Any) -> Any:
    """Return a cell as a level of a column of numbers: a whole number, else None."""
    if _kind(cell) not in ("integer", "zero first"):
        return None
    return int(cell.strip().partition(".")[0]) if isinstance(cell, str) else int(cell)


def _short_text(cell: Any) -> Any:
    """Return a cell as a level of a column of text: text of at most 64 characters, else None."""
    if not isinstance(cell, str):
        try:
            return None if _kind(cell) in ("missing", "other") else str(cell)
        except ValueError:  # a fraction of integers that are longer than Python writes
            return None
    text = cell.strip()
    if len(text) > _LONGEST or text.lower() in _BLANKS:
        return None
    return None if "e" in text.lower() and number_form(text) == "missing" else text  # 1e999 is infinite


def level_keys(column: pd.Series, whole: bool) -> tuple[Positions, list[Any]]:
    """Return the position of each cell among the values that occur, -1 where it is none, and these values."""
    if whole and _stores_numbers(column):
        values = _floats(column)
        there = np.isfinite(values) & (values == np.floor(values)) & (np.abs(values) < 2.0**53)
        numbers, codes = np.unique(values[there].astype(np.int64), return_inverse=True)
        places = np.full(len(column), -1, dtype=np.intp)
        places[there] = codes
        return places, numbers.tolist()
    coded, read = _text_codes(column), _whole_number if whole else _short_text
    if coded is None:
        keys = _by_value(column, read, None).tolist()
    elif whole:
        keys = _of_texts(coded[1], read, [(PLAIN_INTEGER, _as_integers)], None, object).tolist()
        keys[-1] = None
    else:
        keys = [*map(read, coded[1].to_pylist()), None]
    there = np.array([key is not None for key in keys], dtype=np.bool_)
    codes, distinct = distinct_cells(key for key in keys if key is not None)
    places = np.full(len(keys), -1, dtype=np.intp)
    places[there] = codes
    return places if coded is None else places[coded[0]], distinct


def _as_integers(texts: Any) -> list[int]:
    read: list[int] = texts.cast(arrow.int64()).to_pylist()
    return read


def as_numbers(column: pd.Series, decimal: str = ".") -> pd.Series:
    """Return a column as numbers, NaN where a cell is none."""
    if _stores_numbers(column):
        values = _floats(column)
    elif (coded := _text_codes(column)) is not None:
        plain = [(PLAIN_NUMBER, lambda texts: texts.cast(arrow.float64()).to_numpy())]
        by_text = _of_texts(coded[1], lambda text: _number(text, decimal), plain, math.nan, np.float64)
        by_text[-1] = math.nan
        values = by_text[coded[0]]
    else:
        values = _by_value(column, lambda cell: _number(cell, decimal), math.nan, np.float64)
    return pd.Series(np.where(np.isfinite(values), values, np.nan), index=column.index)


def _number(cell: Any, decimal: str) -> float:
    if isinstance(cell, str):
        text = cell.strip()
        return number_in(text, decimal) if len(text) <= _LONGEST else math.nan
    if isinstance(cell, time):
        return cell.hour + cell.minute / 60 + cell.second / 3600
    if not isinstance(cell, Real | Decimal) or _kind_of_number(cell) == "missing":
        return math.nan
    return float(cell)


def as_days(column: pd.Series, form: str | None) -> pd.Series:
    """Return a column of dates as days since 1970-01-01, NaN where a cell is no date of this form.

    The form is that of `datetime.strptime`, None for 2020-12-31, or one of `ANY_DATE`, by which each cell may be
    written in any common form.
    """
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return pd.Series(day_numbers(column), index=column.index)
    if isinstance(column.dtype, pd.PeriodDtype):
        return pd.Series(day_numbers(column.dt.to_timestamp()), index=column.index)
    wanted = {"%d/%m/%Y": {"day first", "day or month first"}, "%m/%d/%Y": {"month first", "day or month first"}}
    kinds = wanted.get(form or "", {name for name, each in DATE_FORMS.items() if each == form})

    def read(cell: Any) -> Any:
        if not isinstance(cell, str):
            return cell if _kind(cell) == "date" else None
        text = cell.strip()
        if form in ANY_DATE and len(text) <= _LONGEST:
            return text if date_form(text) == "date" else iso_date(text, form == "day first")
        return text if _kind(cell) in kinds else None

    coded, way = _text_codes(column), None if form in ANY_DATE else form
    if coded is not None:
        texts = coded[1]
        plain = _matches(texts, PLAIN_DATE) if way is None else np.zeros(len(texts), dtype=np.bool_)
        by_text = np.full(len(texts) + 1, math.nan)
        stamps = texts.filter(arrow.array(plain)).cast(arrow.timestamp("us"))
        by_text[:-1][plain] = day_numbers(stamps.to_numpy(zero_copy_only=False))
        odd = [read(text) for text in texts.filter(arrow.array(~plain)).to_pylist()]
        by_text[:-1][~plain] = day_numbers(as_stamps(pd.Series(odd, dtype=object), way))
        return pd.Series(by_text[coded[0]], index=column.index)
    texts = pd.Series(_by_value(column, read, None), index=column.index, dtype=object)
    return pd.Series(day_numbers(as_stamps(texts, way)), index=column.index)


def as_levels(column: pd.Series, levels: Sequence[Any]) -> pd.Series:
    """Return a column as levels: each cell that is one in its type, other text as it is, missing ones as None."""
    whole = bool(levels) and all(isinstance(level, int) and not isinstance(level, bool) for level in levels)
    known = {} if whole else {str(level): level for level in levels}

    def read(cell: Any) -> Any:
        key = (_whole_number if whole else _short_text)(cell)
        if key is None:  # intervals, say, are levels by their text
            if _kind(cell) == "missing":
                return None
            return "(unreadable)" if isinstance(cell, str | Real) else known.get(str(cell), "(unreadable)")
        return known.get(key, key)

    return pd.Series(_by_value(column, read, None), index=column.index, dtype=object)
