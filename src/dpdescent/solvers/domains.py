"""What the type of a setting says about its values: an interval, whole numbers, or a list of words.

A settings class annotates its fields with the aliases of this module, and `require_domains` checks every value
against its annotation. What relates two settings to each other stays with the class.
"""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from ..errors import InvalidParameter, require_finite, require_positive_integer

__all__ = ["Count", "Fraction", "Moderate", "Part", "Positive", "Rate", "Share", "Within", "require_domains"]


@dataclass(frozen=True)
class Within:
    """An interval of numbers; an end that is not ``closed`` is left out.

    Parameters
    ----------
    low, high : float
    closed : {"both", "low", "high", "neither"}
    remedy : str, optional
        What to do about a value outside of it, for the message.
    """

    low: float
    high: float = float("inf")
    closed: Literal["both", "low", "high", "neither"] = "both"
    remedy: str = ""

    def require(self, name: str, value: Any) -> None:
        """Raise `InvalidParameter` unless the value lies in the interval."""
        number = require_finite(name, value)
        above = self.low <= number if self.closed in ("both", "low") else self.low < number
        below = number <= self.high if self.closed in ("both", "high") else number < self.high
        if not (above and below):
            raise InvalidParameter(f"{name} must {self}, got {value!r}{self.remedy and f': {self.remedy}'}")

    def __str__(self) -> str:
        if self.high == float("inf"):
            return f"be {'at least' if self.closed in ('both', 'low') else 'above'} {self.low:g}"
        low, high = (_written(end) for end in (self.low, self.high))
        opened = "[" if self.closed in ("both", "low") else "("
        ended = "]" if self.closed in ("both", "high") else ")"
        return f"lie in {opened}{low}, {high}{ended}"


def _written(end: float) -> str:
    """Return an end of an interval as a person would write it: large powers of two as such."""
    exponent = math.frexp(end)[1] - 1
    return f"2^{exponent}" if end == math.ldexp(1.0, exponent) and abs(exponent) > 20 else f"{end:g}"


_MODERATE = 2.0**200

#: A whole number of at least 1.
Count = Annotated[int, Within(1)]
#: A number above 0.
Positive = Annotated[float, Within(0, closed="neither")]
#: A number of a size that no later question refuses.
Moderate = Annotated[float, Within(1 / _MODERATE, _MODERATE, remedy="choose other units")]
#: Strictly between 0 and 1.
Part = Annotated[float, Within(0, 1, "neither")]
#: At least 0 and below 1.
Share = Annotated[float, Within(0, 1, "low")]
#: Above 0 and at most 1.
Fraction = Annotated[float, Within(0, 1, "high")]
#: A share of the rows that a batch can have.
Rate = Annotated[float, Within(2.0**-30, 1)]


def require_domains(settings: Any) -> None:
    """Raise `InvalidParameter` unless every field of a settings object lies in the domain that its type declares."""
    for name, domain in _domains(type(settings)).items():
        value = getattr(settings, name)
        if not (value is None and domain.optional):
            domain.require(name, value)


@dataclass(frozen=True)
class _Domain:
    words: tuple[str, ...]
    interval: Within | None
    whole: bool
    optional: bool

    def require(self, name: str, value: Any) -> None:
        if self.words and value not in self.words:
            listed = [repr(each) for each in self.words]
            raise InvalidParameter(f"{name} must be {', '.join(listed[:-1])} or {listed[-1]}, got {value!r}")
        if self.whole:
            require_positive_integer(name, value)
        if self.interval is not None:
            self.interval.require(name, value)


_KNOWN: dict[type, Mapping[str, _Domain]] = {}


def _domains(cls: type) -> Mapping[str, _Domain]:
    if cls not in _KNOWN:
        found = {name: _domain(hint) for name, hint in get_type_hints(cls, include_extras=True).items()}
        _KNOWN[cls] = {name: each for name, each in found.items() if each.words or each.interval is not None}
    return _KNOWN[cls]


def _domain(hint: Any) -> _Domain:
    parts = get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)
    optional = type(None) in parts
    words = tuple(word for part in parts if get_origin(part) is Literal for word in get_args(part))
    marked = [get_args(part) for part in parts if get_origin(part) is Annotated]
    intervals = [mark for _, *marks in marked for mark in marks if isinstance(mark, Within)]
    return _Domain(words, intervals[0] if intervals else None, any(base is int for base, *_ in marked), optional)
