"""Each cell is read by itself, whatever the others are."""

from __future__ import annotations

import datetime
import random
from decimal import Decimal
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
import pytest

from dpdescent.tables.cell_kinds import (
    KINDS_OF_CELLS,
    as_days,
    as_frame,
    as_levels,
    as_numbers,
    kinds_of_cells,
    level_keys,
)
from dpdescent.tables.cells import as_stamps, bucket_codes, level_codes, levels_of_text

CELLS = {
    "missing": ["", " ", "NA", "?", "null", None, np.nan, pd.NA, "-", float("inf"), 10**400, "1e999"],
    "integer": ["7", "-12", "+3", "1.0", "30.000", 4, 4.0, np.int64(5), Decimal(8), " 9 "],
    "zero first": ["007", "01234", "00"],
    "decimal point": [
        "1.5",
        ".5",
        "2.",
        "1e5",
        2.5,
        np.float32(0.5),
        "$12",
        "1,234.5",
        "-€ 7.25",
        "12 %",
        "1,234,567",
        "CHF 1'200",
        "56 000",
        "12.5 EUR",
        "(12.50)",
        "14:30",
        "2:05 pm",
        datetime.time(14, 30),
        Decimal("2.5"),
    ],
    "decimal comma": ["1,5", "-0,25", "1.234,5", "1.234.567", "0,123", "19,99 €", "1 234,5"],
    "decimal comma or thousands": ["1,234", "-12,000", "$1,234"],
    "date": ["2020-12-31", "2020-12-31T10:00", "2020-12-31 10:00:00", datetime.date(2020, 1, 1)],
    "date with dots": ["31.12.2020", "1.2.1999"],
    "day first": ["31/12/2020"],
    "month first": ["12/31/2020"],
    "day or month first": ["03/04/2020"],
    "other date": [
        "2020/12/31",
        "3 Apr 2020",
        "03-Apr-20",
        "April 3, 2020",
        "1.2.99",
        "03-04-2020",
        "31.12.2020 10:15",
        "2020-12",
        "12/2020",
        "April 2020",
        "Dec-2020",
        "Dec-20",
    ],
    "other date, day first": ["31-12-2020", "31/12/20", "31/12/2020 10:15:00"],
    "other date, month first": ["12-31-2020", "12/31/20 9:05 PM"],
    "text": [
        "5 kg",
        "1,23,4",
        "12/31/20200",
        "2015-2016",
        "13/2015",
        "25:00",
        "(555)x",
        "31 Foo 2020",
        "$",
        "%",
        "nurse",
        "2020-13-45",
        "99/99/2020",
        "1.2.3",
        True,
        "12 kg",
        "٣",
    ],
    "long text": ["x" * 65],
    "other": [b"bytes", [1, 2], {"a": 1}, pd.Interval(0, 1)],
}


@pytest.mark.parametrize("kind", KINDS_OF_CELLS)
def test_each_cell_has_its_kind(kind: str) -> None:
    cells = pd.Series([None, *CELLS[kind]], dtype=object)[1:]
    assert [KINDS_OF_CELLS[each] for each in kinds_of_cells(cells)] == [kind] * len(cells)


def test_what_becomes_of_a_cell_depends_on_no_other() -> None:
    """Equal cells of other types, such as 1, 1.0 and True, would be taken for one another by an index."""
    every = [cell for cells in CELLS.values() for cell in cells]
    together = pd.Series([*every, *reversed(every)], dtype=object)
    alone = [pd.Series([None, cell], dtype=object)[1:] for cell in together]
    assert kinds_of_cells(together).tolist() == [int(kinds_of_cells(cell)[0]) for cell in alone]
    for read in (as_numbers, lambda column: as_levels(column, ["nurse", "7"]), lambda column: as_days(column, None)):
        expected = [read(cell).tolist()[0] for cell in alone]
        assert repr(read(together).tolist()) == repr(expected)
    for whole in (False, True):
        codes, values = level_keys(together, whole)
        found = [None if code < 0 else values[code] for code in codes]
        single = [(*level_keys(cell, whole)[1], None)[0] for cell in alone]
        assert found == single


@pytest.mark.parametrize("dtype", ["int64", "float32", "Int64", "Float64", "int64[pyarrow]"])
def test_stored_numbers_are_numbers(dtype: str) -> None:
    column = pd.Series([1, 2, 2], dtype=dtype)
    assert {KINDS_OF_CELLS[each] for each in kinds_of_cells(column)} == {"integer"}
    codes, values = level_keys(column, whole=True)
    assert [values[code] for code in codes] == [1, 2, 2]
    assert as_numbers(column).tolist() == [1.0, 2.0, 2.0]


def test_dates_of_other_forms_count_as_missing() -> None:
    cells = pd.Series(["31/12/2020", "03/04/2020", "2020-12-31", "12/31/2020", "31/02/2020", "x", None])
    days = as_days(cells, "%d/%m/%Y")
    assert days.isna().tolist() == [False, False, True, True, True, True, True]
    assert as_days(cells, "%m/%d/%Y").isna().tolist() == [True, False, True, False, True, True, True]
    stored = pd.Series(pd.to_datetime(["1970-01-03", None]))
    assert as_days(stored, None).fillna(-1).tolist() == [2.0, -1.0]
    lengths = pd.Series(pd.to_timedelta(["12h", None]))
    assert as_numbers(lengths).fillna(-1).tolist() == [0.5, -1.0]


def test_numbers_with_a_comma() -> None:
    cells = pd.Series(["1,5", "2", "x", "1.5"])
    assert as_numbers(cells, ",").fillna(-1).tolist() == [1.5, 2.0, -1.0, 1.5]
    assert as_numbers(cells).fillna(-1).tolist() == [-1.0, 2.0, -1.0, 1.5]


TEXTS = ["nurse", "nurse\0", "nurse\0s", "\ud800", "'\\ud800'", "1", "1.0", "True", "0.0", "-0.0", "é", "e\u0301"]
EQUAL = [1, 1.0, True, np.float64(1.0), 0.0, -0.0, 2**53 + 1, 2**53, 0.5]
MOMENTS = [
    "0001-01-01",
    "1500-06-01",
    "2020-01-01",
    "2020-01-01T00:00:00.123456789",
    "9999-12-31",
    "9999-12-31T23:59-14:00",
    "0001-01-01T00:00+14:00",
    "2020-02-31",
    datetime.date(1, 1, 1),
    datetime.datetime(2020, 1, 1, 12, tzinfo=datetime.UTC),
    pd.Timestamp("2020-01-01T00:00:00.123456789"),
    pd.Timestamp("1500-01-01"),
    np.datetime64("2020-01-01"),
    np.datetime64("NaT", "ns"),
]


def _keys(column: pd.Series) -> list[Any]:
    places, values = level_keys(column, whole=False)
    return [None if place < 0 else values[place] for place in places]


def _held(column: pd.Series) -> pd.Series:
    """Return text as pandas stores it, which is read by another way."""
    return column.astype(pd.StringDtype(na_value=np.nan))


def test_stored_text_is_read_as_objects_are() -> None:
    cells = [cell for each in CELLS.values() for cell in each if isinstance(cell, str)]
    column = pd.Series([*cells, None, *reversed(cells), "nul\0", "nul\0s"], dtype=object)
    held = _held(column)
    assert np.array_equal(kinds_of_cells(held), kinds_of_cells(column))
    for form in (None, "%d/%m/%Y", "day first", "month first"):
        assert as_days(held, form).equals(as_days(column, form))
    for decimal in ".,":
        assert as_numbers(held, decimal).equals(as_numbers(column, decimal))
    for whole in (False, True):
        (places, values), (others, same) = level_keys(held, whole), level_keys(column, whole)
        assert np.array_equal(places, others)
        assert values == same
    assert as_levels(held, ["nurse"]).tolist() == as_levels(column, ["nurse"]).tolist()
    lone = pd.Series(["\ud800", "1"], dtype=object)
    assert kinds_of_cells(_held(lone) if pd.StringDtype().storage == "python" else lone).tolist() == [
        KINDS_OF_CELLS.index("text"),
        KINDS_OF_CELLS.index("integer"),
    ]


def test_texts_that_are_nearly_numbers_or_dates_are_read_in_one_way() -> None:
    """Arrow sorts out most texts by expressions of its own; what they let through must be all that could be read."""
    generator = random.Random(0)
    known = [cell for each in CELLS.values() for cell in each if isinstance(cell, str) and len(cell) < 30]
    marks = "0123456789-/.:,' ()eE+%$€USDCHFabcJanT\u00a0\u2019\x1c"
    cells = []
    for _ in range(4000):
        letters = list(generator.choice(known))
        for _ in range(generator.randrange(1, 3)):
            place = generator.randrange(len(letters) + 1)
            letters[place : place + generator.randrange(2)] = generator.choice(marks)
        cells.append("".join(letters))
    column = pd.Series(cells, dtype=object)
    held = _held(column)
    assert np.array_equal(kinds_of_cells(held), kinds_of_cells(column))
    assert as_numbers(held).equals(as_numbers(column))
    assert as_days(held, "day first").equals(as_days(column, "day first"))
    assert _keys(held) == _keys(column)


READERS = {
    "buckets": lambda column: bucket_codes(column, "name", 1 << 20),
    "levels": lambda column: level_codes(column, "name", ["nurse", "\ud800", 2**53, 0]),
    "levels of text": lambda column: levels_of_text(column, ["nurse", 1]),
    "moments": as_stamps,
    "days": lambda column: as_days(column, None),
    "keys": _keys,
}


@pytest.mark.parametrize("cells", [TEXTS, EQUAL, MOMENTS], ids=["texts", "equal numbers", "moments"])
@pytest.mark.parametrize("reader", READERS)
def test_no_cell_decides_how_others_are_read(cells: list[Any], reader: str) -> None:
    """One row would otherwise change what all others are: by nanoseconds, lone surrogates, or a 1 that is True."""

    def read(column: list[Any]) -> list[str]:
        return [repr(each) for each in READERS[reader](pd.Series([None, *column], dtype=object))][1:]

    alone = [read([cell])[0] for cell in cells]
    for start in range(len(cells)):
        places = [*range(start, len(cells)), *range(start)]
        assert read([cells[place] for place in places]) == [alone[place] for place in places]


def test_missing_truth_values_of_arrow_do_not_change_how_a_column_is_stored() -> None:
    """pandas stores them as objects where one is missing, and what is stored is public."""
    stored = [as_frame(arrow.table({"new": arrow.array([True, cell])}))["new"].dtype for cell in (False, None)]
    assert stored == [pd.BooleanDtype()] * 2


def test_numbers_with_signs_and_thousands() -> None:
    cells = pd.Series(["1,234", "$1,234.50", "-$2", "12%", "1.234,5 €", "1.234.567"])
    assert as_numbers(cells).fillna(-1).tolist() == [1234.0, 1234.5, -2.0, 12.0, -1.0, -1.0]
    assert as_numbers(cells, ",").fillna(-1).tolist() == [1.234, 1234.5, -2.0, 12.0, 1234.5, 1234567.0]


def test_numbers_of_accountants_currencies_and_clocks() -> None:
    cells = pd.Series(["(1,234.50)", "CHF 1'200", "5 USD", "56 000", "007", "6:30", "12:15 am", "1:00 pm", "12 kg"])
    assert as_numbers(cells).fillna(-1).tolist() == [-1234.5, 1200.0, 5.0, 56000.0, 7.0, 6.5, 0.25, 13.0, -1.0]
    objects = pd.Series([Decimal("2.5"), datetime.time(6, 30), Decimal("NaN")], dtype=object)
    assert as_numbers(objects).fillna(-1).tolist() == [2.5, 6.5, -1.0]


def test_months_are_their_first_days() -> None:
    days = as_days(pd.Series(["2020-04", "04/2020", "April 2020", "Apr-2020", "Apr-20", "2020-13"]), "day first")
    assert days.fillna(-1).tolist() == [18353.0] * 5 + [-1.0]


def test_dates_in_any_common_form() -> None:
    same = ["2020-04-03", "2020/4/3", "03.04.2020", "3 April 2020", "Apr 3, 2020", "03-Apr-20", "3.4.20 08:00"]
    days = as_days(pd.Series([*same, "03/04/2020", "25/12/2020", "12/25/2020", "31/02/2020", "x", "?"]), "day first")
    assert days[:9].tolist() == [18355.0] * 8 + [18621.0]
    assert days[9:].isna().all()
    months = as_days(pd.Series([*same, "04/03/2020", "04-03-20", "25/12/2020"]), "month first")
    assert months.fillna(-1).tolist() == [18355.0] * 9 + [-1.0]
    assert as_days(pd.Series(["1/1/68", "1/1/69"]), "day first").tolist() == [35794.0, -365.0]


def test_a_fraction_that_python_does_not_write_is_no_level() -> None:
    column = pd.Series(["a", Fraction(10**5000 + 1, 10**5000), Fraction(1, 3)], dtype=object)
    assert level_keys(column, whole=False)[0].tolist() == [0, -1, 1]
    assert as_levels(column, ("a",)).tolist() == ["a", "(unreadable)", "1/3"]
