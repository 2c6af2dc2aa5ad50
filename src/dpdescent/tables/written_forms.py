"""How people write numbers and dates: a few public forms, by which each cell is told and read by itself.

A comma before three digits, as in 1,234, is a decimal comma or one of thousands, and 03/04/2020 has the day or the
month first: the other cells of a column decide, where a cell cannot. A year of two digits is from 1969 to 2068. A
month, as in 2020-12 or Dec 2020, is its first day, and a time of day a number of hours. Numbers in parentheses, as
accountants write them, are negative. Whole numbers that begin with a zero may be codes: their column decides.
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
NUMBERS = ("integer", "zero first", "decimal point", "decimal comma", "decimal comma or thousands")

_INTEGER = re.compile(r"[+-]?(0|[1-9]\d{0,17})(\.0{1,6})?", re.ASCII)
_ZERO_FIRST = re.compile(r"0\d{1,17}", re.ASCII)
_POINT = re.compile(r"[+-]?(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d{1,3})?", re.ASCII)
_COMMA = re.compile(r"[+-]?\d+,\d+", re.ASCII)
_BY_COMMAS = re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d*)?", re.ASCII)
_BY_POINTS = re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+,\d+|[+-]?[1-9]\d{0,2}(\.\d{3}){2,}", re.ASCII)
_BY_GAPS = re.compile(r"[+-]?[1-9]\d{0,2}(['\u2019 \u00a0\u202f]\d{3})+([.,]\d*)?", re.ASCII)
_GAPS = re.compile("['\u2019 \u00a0\u202f]")
_MONEY = r"(?:[$€£¥₹]|AUD|CAD|CHF|CNY|CZK|DKK|EUR|GBP|HUF|INR|JPY|NOK|NZD|PLN|SEK|USD)"
_SIGNED = re.compile(rf"([+-]?){_MONEY}[\s\u00a0]?(\S.*)|(\S.*?)[\s\u00a0]?(?:%|{_MONEY})", re.ASCII)
_CLOCK = re.compile(r"(\d{1,2}):([0-5]\d)(?::([0-5]\d(?:\.\d+)?))?(?:\s?([ap])\.?m\.?)?", re.ASCII | re.IGNORECASE)
_START_OF_DATE = re.compile(r"\d{1,4}[-/. ]|[A-Za-z]{3,9}(\.? |-)\d", re.ASCII)
_TIME = r"(?:[T ,]\s*\d{1,2}:\d{2}(?::\d{2}(?:\.\d+)?)?(?:\s?[aApP][mM])?)?"
_ISO = re.compile(r"\d{4}-(\d{2})-(\d{2})([T ].{1,40})?", re.ASCII)
_DOTS = re.compile(r"(\d{1,2})\.(\d{1,2})\.\d{4}", re.ASCII)
_SLASHES = re.compile(r"(\d{1,2})/(\d{1,2})/\d{4}", re.ASCII)
_YEAR_FIRST = re.compile(rf"(\d{{4}})[-/.](\d{{1,2}})[-/.](\d{{1,2}}){_TIME}", re.ASCII)
_YEAR_LAST = re.compile(rf"(\d{{1,2}})([-/.])(\d{{1,2}})\2(\d{{4}}|\d{{2}}){_TIME}", re.ASCII)
_DAY_AND_WORD = re.compile(rf"(\d{{1,2}})\.?[- ]([A-Za-z]{{3,9}})\.?,?[- ](\d{{4}}|\d{{2}}){_TIME}", re.ASCII)
_WORD_AND_DAY = re.compile(rf"([A-Za-z]{{3,9}})\.? (\d{{1,2}}),? (\d{{4}}){_TIME}", re.ASCII)
_CODE = _MONEY.removeprefix("(?:").removesuffix(")")
_WORD = r"(?i:jan|feb|mar|apr|may|jun|jul|aug|sep|oct|nov|dec)"
#: By these Arrow, whose expressions know no look-ahead, tells whole numbers, decimals and dates that are written
#: plainly from cells that could be numbers or dates in another form; what is neither is text.
PLAIN_NUMBER = r"^-?\d{1,30}(\.\d{1,30})?$"
PLAIN_INTEGER = r"^-?(0|[1-9]\d{0,17})$"
PLAIN_DECIMAL = r"^-?\d{1,20}\.\d{0,20}[1-9]\d{0,20}$"
PLAIN_DATE = r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|1\d|2[0-8])([T ]([01]\d|2[0-3]):[0-5]\d:[0-5]\d)?$"
PERHAPS_NUMBER_OR_DATE = (
    rf"^[(+-]*({_CODE})?[ \x{{a0}}]?[+-]?[.\d][\d.,'\x{{2019}} \x{{a0}}\x{{202f}}]*([eE][+-]?\d+)?[ \x{{a0}}]?"
    rf"(%|{_CODE})?\)?$|^\d{{1,4}}[-/. :]|^{_WORD}[A-Za-z]{{0,6}}(\.? |-)\d|[\x1c-\x1f]"
)
_YEAR = r"((?:1[5-9]|20|21)\d\d)"
_YEAR_AND_MONTH = re.compile(rf"{_YEAR}[-/](\d{{1,2}})", re.ASCII)
_MONTH_AND_YEAR = re.compile(
    rf"(\d{{1,2}})[-/]{_YEAR}|([A-Za-z]{{3,9}})(?:\.? |-){_YEAR}|([A-Za-z]{{3}})-(\d\d)", re.ASCII
)
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
    >>> [number_form(text) for text in ("1.0", "007", "CHF 1'200", "(12.50)", "14:30", "7 kg")]
    ['integer', 'zero first', 'decimal point', 'decimal point', 'decimal point', None]
    """
    if _INTEGER.fullmatch(text):
        return "integer"
    if _ZERO_FIRST.fullmatch(text):
        return "zero first"
    bare = _bare(text)
    if _POINT.fullmatch(bare):
        return "decimal point" if math.isfinite(float(bare)) else "missing"
    if _BY_COMMAS.fullmatch(bare):
        return "decimal point" if bare.count(",") > 1 or "." in bare else "decimal comma or thousands"
    if _COMMA.fullmatch(bare) or _BY_POINTS.fullmatch(bare):
        return "decimal comma"
    if _BY_GAPS.fullmatch(bare):
        return "decimal comma" if "," in bare else "decimal point"
    return None if _hours(text) is None else "decimal point"


def number_in(text: str, decimal: str) -> float:
    """Return the number that a text is in a table with this mark before decimals, NaN if it is none."""
    bare = _bare(text)
    if _BY_GAPS.fullmatch(bare):
        bare = _GAPS.sub("", bare)
    if _POINT.fullmatch(bare):
        return float(bare)
    if decimal == "," and (_COMMA.fullmatch(bare) or _BY_POINTS.fullmatch(bare)):
        return float(bare.replace(".", "").replace(",", "."))
    if _BY_COMMAS.fullmatch(bare):
        return float(bare.replace(",", ""))
    hours = _hours(text)
    return math.nan if hours is None else hours


def _bare(text: str) -> str:
    """Return a number without the sign of a currency or of percent, and with its own sign first."""
    if text.startswith("(") and text.endswith(")") and text[1:2] not in "+-":
        return "-" + _bare(text[1:-1])
    signed = _SIGNED.fullmatch(text)
    return text if signed is None else (signed[1] or "") + signed[2] if signed[2] else signed[3]


def _hours(text: str) -> float | None:
    """Return a time of day as hours, None if a text is none."""
    found = _CLOCK.fullmatch(text)
    if found is None:
        return None
    hour, half = int(found[1]), (found[4] or "").lower()
    if hour > (12 if half else 24):
        return None
    hour = hour % 12 + 12 * (half == "p") if half else hour
    return hour + int(found[2]) / 60 + float(found[3] or 0) / 3600


def date_form(text: str) -> str | None:
    """Return which of `DATE_FORMS` or `OTHER_DATES` a text is, None if it is no date.

    Examples
    --------
    >>> [date_form(text) for text in ("2020-12-31", "12/31/2020", "03/04/2020", "Apr 2020", "31-12-20")]
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
    elif found := _YEAR_AND_MONTH.fullmatch(text):
        year, month, day = *found.groups(), "1"
    elif found := _MONTH_AND_YEAR.fullmatch(text):
        day, month = "1", found[1] or _month(found[3] or found[5])
        year = found[2] or found[4] or found[6]
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
