"""The columns of a table, its label and its unit of privacy, each with what is publicly known about it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ..errors import SchemaError
from .cells import ANY_DATE, day_numbers
from .encoder import MISSING, UNKNOWN

Level = str | int | float | bool


def require_sound(problems: Iterable[str]) -> None:
    """Raise one `SchemaError` that lists all problems, if there are any."""
    found = tuple(problems)
    if found:
        raise SchemaError(*found)


@dataclass(frozen=True)
class _Column:
    """What all columns have: a name, and what is done with a missing cell (None: what the schema says)."""

    name: str

    def __post_init__(self) -> None:
        require_sound(self.problems(f"columns.{self.name}"))

    def problems(self, place: str) -> Iterator[str]:
        """Yield what is wrong with the column, each with its place in the file."""
        yield from _choice(f"{place}.missing", getattr(self, "missing", None), MISSING)
        yield from _choice(f"{place}.unknown", getattr(self, "unknown", None), UNKNOWN)


@dataclass(frozen=True)
class NumericColumn(_Column):
    """A numeric column whose cells are clipped to [low, high]: public bounds, or measured ones if these are None."""

    low: float | None = None
    high: float | None = None
    missing: str | None = None

    def problems(self, place: str) -> Iterator[str]:
        yield from _interval(place, self.low, self.high)
        yield from super().problems(place)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The public bounds, if there are any."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class DateColumn(_Column):
    """A column of dates, which becomes days: low and high are dates such as 2020-12-31, or days since 1970-01-01.

    Cells are written in the same way, or in the ``format`` of `datetime.strptime`, such as ``%d.%m.%Y``; with ``day
    first`` or ``month first`` in any common form, each by itself, where that is how 03/04/2020 is read.
    """

    low: str | float | None = None
    high: str | float | None = None
    format: str | None = None
    missing: str | None = None

    def problems(self, place: str) -> Iterator[str]:
        good = True
        for key, end in (("low", self.low), ("high", self.high)):
            if end is not None and day_of(end) is None:
                good = False
                yield f"{place}.{key}: must be a date such as 2020-12-31, got {end!r}"
        if good:
            yield from _interval(place, *(None if end is None else day_of(end) for end in (self.low, self.high)))
        form = self.format
        if form is not None and not (isinstance(form, str) and (form in ANY_DATE or "%" in form)):
            yield f"{place}.format: must be a form of dates such as %d.%m.%Y, or one of {ANY_DATE}, got {form!r}"
        yield from super().problems(place)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The public bounds in days since 1970-01-01, if there are any."""
        low, high = (None if end is None else day_of(end) for end in (self.low, self.high))
        return None if low is None or high is None else (low, high)


@dataclass(frozen=True)
class CategoricalColumn(_Column):
    """A categorical column with its public levels."""

    levels: tuple[Level, ...]
    missing: str | None = None
    unknown: str | None = None

    def problems(self, place: str) -> Iterator[str]:
        yield from _distinct(f"{place}.levels", self.levels, fewest=1)
        yield from super().problems(place)


@dataclass(frozen=True)
class HashedColumn(_Column):
    """A column of text with too many values to list: a public hash puts each into one of so many ``buckets``."""

    buckets: int
    missing: str | None = None

    def problems(self, place: str) -> Iterator[str]:
        if not isinstance(self.buckets, int) or isinstance(self.buckets, bool) or not 2 <= self.buckets <= 2**20:
            yield f"{place}.buckets: must be a whole number from 2 to {2**20}, got {self.buckets!r}"
        yield from super().problems(place)


@dataclass(frozen=True)
class IgnoredColumn(_Column):
    """A column that may be in the table and is never used."""


Column = NumericColumn | DateColumn | CategoricalColumn | HashedColumn | IgnoredColumn


@dataclass(frozen=True)
class Label:
    """What is to be predicted: one of the public ``classes``, or a number where there are none.

    A number is clipped to public bounds, or to measured ones if ``low`` and ``high`` are None. A label that is
    missing or none of the classes counts as the class ``rest``, and is an error where there is none.
    """

    column: str
    classes: tuple[Level, ...] | None = None
    low: float | None = None
    high: float | None = None
    rest: Level | None = None

    def __post_init__(self) -> None:
        require_sound(self.problems("label"))

    def problems(self, place: str) -> Iterator[str]:
        """Yield what is wrong with the label, each with its place in the file."""
        if not isinstance(self.column, str):
            yield f"{place}.column: must be a column name"
        if self.classes is not None:
            if self.low is not None or self.high is not None:
                yield f"{place}: give either classes or low and high, not both"
            yield from _distinct(f"{place}.classes", self.classes, fewest=2)
            if self.rest is not None and self.rest not in self.classes:
                yield f"{place}.rest: must be one of the classes, got {self.rest!r}"
        else:
            yield from _interval(place, self.low, self.high)

    @property
    def bounds(self) -> tuple[float, float] | None:
        """The public bounds of a number, if there are any."""
        return None if self.low is None or self.high is None else (self.low, self.high)


@dataclass(frozen=True)
class Unit:
    """The unit of privacy: all rows with the same cell in ``column``, of which at most ``rows`` are used."""

    column: str
    rows: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise SchemaError("unit.column: must be a column name")
        if not isinstance(self.rows, int) or isinstance(self.rows, bool) or self.rows < 1:
            raise SchemaError("unit.rows: must be a whole number of at least 1")


def day_of(text: object) -> float | None:
    """Return a date as days since 1970-01-01, which a number already is, or None if it is no date."""
    if isinstance(text, int | float) and not isinstance(text, bool):
        return float(text) if _finite(text) else None
    try:
        return float(day_numbers([datetime.fromisoformat(str(text))])[0])
    except ValueError:
        return None


def _interval(place: str, low: object, high: object) -> Iterator[str]:
    if low is None and high is None:
        return
    good = True
    for key, end in (("low", low), ("high", high)):
        if not isinstance(end, int | float) or isinstance(end, bool) or not _finite(end):
            good = False
            got = "it is missing beside the other end" if end is None else f"got {end!r}"
            yield f"{place}.{key}: must be a finite number, {got}"
    if good and (not low < high or not _finite(float(high) - float(low))):  # type: ignore[operator,arg-type]
        yield f"{place}: low must be less than high, and high - low finite, got {low} and {high}"


def _finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _distinct(place: str, values: Any, fewest: int) -> Iterator[str]:
    if not isinstance(values, tuple | list):
        yield f"{place}: must be a list"
    elif any(not isinstance(value, str | int | float) or value != value for value in values):
        yield f"{place}: each entry must be text, a number, true or false"
    elif len(values) < fewest:
        yield f"{place}: must have at least {fewest} {'entry' if fewest == 1 else 'entries'}"
    elif len(set(values)) != len(values):
        yield f"{place}: entries must all differ (1, 1.0 and true count as equal)"


def _choice(place: str, value: object, known: tuple[str, ...]) -> Iterator[str]:
    if value is not None and value not in known:
        yield f"{place}: must be one of {', '.join(known)}, got {value!r}"
