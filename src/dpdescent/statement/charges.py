"""What the data was touched for, as a statement lists it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from ..accounting import Cost
from ..ledger import Entry

__all__ = ["ALL_ROWS", "Charge", "charges_of"]

ALL_ROWS = "all"


@dataclass(frozen=True)
class Charge:
    """Equal charges for one kind of question.

    Parameters
    ----------
    label : str
        What was asked.
    mechanism : Cost
        With its parameters, in units of the sensitivity.
    count : int
        How many of them.
    rows : str
        Whose budget has paid: that of all rows, or that of one of several parts which share no row.
    """

    label: str
    mechanism: Cost
    count: int = 1
    rows: str = ALL_ROWS


def charges_of(entries: Iterable[Entry], rows: str = ALL_ROWS) -> tuple[Charge, ...]:
    """Return the charges of a ledger, equal ones counted, in the order in which each came first."""
    counted = Counter((entry.label, entry.cost) for entry in entries)
    return tuple(Charge(label, cost, count, rows) for (label, cost), count in counted.items())
