"""Prices that add up exactly.

Every float is a whole multiple of 2^-1074, so a sum of prices is kept as an integer and compared with the budget
without rounding.
"""

from __future__ import annotations

from fractions import Fraction
from functools import lru_cache

from ..accounting import Cost, Currency, round_up

__all__ = ["as_fraction", "exactly", "failure_probability", "price_of", "rounded_up"]

_ONE = 2**1074


@lru_cache(maxsize=1024)
def exactly(value: float) -> int:
    """Return a float as a multiple of 2^-1074, which every float is."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_ONE // denominator)


def as_fraction(amount: int) -> Fraction:
    """Return a multiple of 2^-1074 as a fraction."""
    return Fraction(amount, _ONE)


def rounded_up(amount: int) -> float:
    """Return the least float that is not below a multiple of 2^-1074."""
    return round_up(as_fraction(amount))


@lru_cache(maxsize=1024)  # a run is charged for the same few costs again and again
def price_of(currency: Currency, cost: Cost) -> float:
    """Return what ``cost`` adds to a total in ``currency``."""
    return currency.price(cost)


@lru_cache(maxsize=1024)
def failure_probability(cost: Cost) -> float:
    """Return the delta of a cost, which no price counts."""
    return cost.delta
