"""How people write numbers and dates: a few public forms, by which each cell is told and read by itself.

A comma before three digits, as in 1,234, is a decimal comma or one of thousands, and 03/04/2020 has the day or the
month first: the other cells of a column decide, where a cell cannot. A year of two digits is from 1969 to 2068.
"""

from __future__ import annotations

import math
import re

#: Forms of dates, as `datetime.strptime` has them; None is 2020-12-31, with or without a time.
DATE_FORMS: dict[str, str | None] = {
    "date": None,
    "date with dots": "%d.%m.%Y",
    "day first": "%d/%m/%Y",
    "month first": "%m/%d/%Y",
}
#: What a cell can be that is a date of none of these forms by itself.
OTHER_DATES = ("day or month first", "other date", "other date, day first", "other date, month first")
NUMBERS = ("integer", "decimal point", "decimal comma", "decimal comma or thousands")

_INTEGER = re.compile(r"[+-]?\d{1,18}", re.ASCII)
_POINT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_BY_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", re.ASCII)
_BY_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+|[+-]?[1-9]\d{0,2}(\.\d{3}){2,}", re.ASCII)
_SIGNED = re.compile(r"([+-]?)[$€£¥]\s?(\S+)|(\S+?)\s?[%$€£¥]", re.ASCII)
_START_OF_DATE = re.compile(r"\d{1,4}[-/. ]|[A-Za-z]{3,9}\.? \d", re.ASCII)
_TIME = r"(?:[T ,]\s*\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[aApP][mM])?)?"
_ISO = re.compile(r"\d{4}-(\d{2})-(\d{2})([T ].{1,40})?", re.ASCII)
_DOTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.\d{4}", re.ASCII)
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/\d{4}", re.ASCII)
_YEAR_FIRST = re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}}){_TIME}", re.ASCII)
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}|\d{{2}}){_TIME}", re.ASCII)
_DAY_AND_WORD = re.compile(rf"(\d{{1,2}})\.?[- ]([A-Za-z]{{3,9}})\.?,?[- ](\d{{4}}|\d{{2}}){_TIME}", re.ASCII)
_WORD_AND_DAY = re.compile(rf"([A-Za-z]{{3,9}})\.? (\d{{1,2}}),? (\d{{4}}){_TIME}", re.ASCII)
_MONTHS = (
    "january", "february", "march", "april", "may", "june", "july", "august", "september", "october", "november",
    "december",
)  # fmt: skip


def number_form(text: str) -> str | None:
    """Return which of `NUMBERS` a text is, "missing" if it is infinite, or None if it is no number.

    Examples
    --------
    >>> [number_form(text) for text in ("12", "$1,234.50", "1.234,5 €", "1,234", "15%", "1.2.3")]
    ['integer', 'decimal point', 'decimal comma', 'decimal comma or thousands', 'decimal point', None]
    """
    if _INTEGER.fullmatch(text):
        return "integer"
    bare = _bare(text)
    if _POINT.fullmatch(bare):
        return "decimal point" if math.isfinite(float(bare)) else "missing"
    if _BY_COMMAS.fullmatch(bare):
        return "decimal point" if bare.count(",") > 1 or "." in bare else "decimal comma or thousands"
    return "decimal comma" if _COMMA.fullmatch(bare) or _BY_POINTS.fullmatch(bare) else None


def number_in(text: str, decimal: str) -> float:
    """Return the number that a text is in a table with this mark before decimals, NaN if it is none."""
    bare = _bare(text)
    if _POINT.fullmatch(bare):
        return float(bare)
    if decimal == "," and (_COMMA.fullmatch(bare) or _BY_POINTS.fullmatch(bare)):
        return float(bare.replace(".", "").replace(",", "."))
    return float(bare.replace(",", "")) if _BY_COMMAS.fullmatch(bare) else math.nan


def _bare(text: str) -> str:
    """Return a number without the sign of a currency or of percent."""
    signed = _SIGNED.fullmatch(text)
    return text if signed is None else (signed[1] or "") + signed[2] if signed[2] else signed[3]


def date_form(text: str) -> str | None:
    """Return which of `DATE_FORMS` or `OTHER_DATES` a text is, None if it is no date.

    Examples
    --------
    >>> [date_form(text) for text in ("2020-12-31", "12/31/2020", "03/04/2020", "3 Apr 2020", "31-12-20")]
    ['date', 'month first', 'day or month first', 'other date', 'other date, day first']
    """
    if _START_OF_DATE.match(text) is None:
        return None
    if (found := _ISO.fullmatch(text)) and _is_day(found[2], found[1]):
        return "date"
    if (found := _DOTS.fullmatch(text)) and _is_day(found[1], found[2]):
        return "date with dots"
    if found := _SLASHES.fullmatch(text):
        day_first, month_first = _is_day(found[1], found[2]), _is_day(found[2], found[1])
        if day_first and month_first:
            return "day or month first"
        return "day first" if day_first else "month first" if month_first else None
    days = [iso_date(text, day_first) for day_first in (True, False)]
    if None not in days:
        return "other date"
    return "other date, day first" if days[0] else "other date, month first" if days[1] else None


def iso_date(text: str, day_first: bool) -> str | None:
    """Return the date that a text is in any common form as 2020-12-31, None if it is none; a time is left out."""
    if found := _YEAR_FIRST.fullmatch(text):
        year, month, day = found.groups()
    elif found := _YEAR_LAST.fullmatch(text):
        first, mark, second, year = found.groups()
        day, month = (first, second) if day_first or mark == "." else (second, first)
    elif found := _DAY_AND_WORD.fullmatch(text):
        day, month, year = found[1], _month(found[2]), found[3]
    elif found := _WORD_AND_DAY.fullmatch(text):
        month, day, year = _month(found[1]), found[2], found[3]
    else:
        return None
    if not _is_day(day, month):
        return None
    full = int(year) if len(year) == 4 else int(year) + (1900 if int(year) > 68 else 2000)
    return f"{full:04}-{int(month):02}-{int(day):02}"


def _month(word: str) -> str:
    """Return the number of a month by its name, or its first three letters; 0 if it is none."""
    found = [number for number, name in enumerate(_MONTHS, 1) if word.lower() in (name, name[:3])]
    return str(found[0]) if found else "0"


def _is_day(day: str, month: str) -> bool:
    return 1 <= int(day) <= 31 and 1 <= int(month) <= 12
