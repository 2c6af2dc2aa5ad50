"""What a statement is made of: charges, and sentences about what is public.

A charge says what the data was touched for, by which mechanism, and how often.

A sentence about a public fact reads ``name: what it is (origin)``. The name is that of the argument by which a caller
gives the fact. Whatever was read from the rows without being paid for is an exception to the guarantee.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from importlib.util import find_spec

from ..accounting import Composed, Cost, FixedSchedule, Gaussian
from ..errors import MissingPackage
from ..ledger import Entry

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


def require_priceable(costs: Iterable[Cost]) -> None:
    """Raise `MissingPackage` if a cost has the price that was stated only where an optional package is installed."""
    for cost in costs:
        if isinstance(cost, Composed):
            require_priceable(cost.parts)
        if isinstance(cost, FixedSchedule) and cost.failure > 0 and not find_spec("dp_accounting"):
            if all(isinstance(part, Gaussian) for part in cost.parts):
                continue
            raise MissingPackage("checking this statement needs dp-accounting: pip install 'dpdescent[accounting]'")


class Origin(StrEnum):
    """Where a public fact came from."""

    ARGUMENT = "argument"
    SCHEMA = "schema file"
    MEASURED = "measured"
    ROWS = "read from the rows"
    RELATION = "public by the relation"


def public_fact(name: str, what: str, origin: Origin) -> str:
    """Return the sentence of a statement about one fact."""
    return f"{name}: {what} ({origin})"


def name_of(sentence: str) -> str:
    """Return which fact a sentence is about."""
    return sentence.partition(":")[0]


def moved(sentences: Iterable[str], names: Iterable[str], origin: Origin) -> list[str]:
    """Return the sentences with another origin for those arguments that are named."""
    given, wanted = f" ({Origin.ARGUMENT})", set(names)
    return [
        f"{each.removesuffix(given)} ({origin})" if each.endswith(given) and name_of(each) in wanted else each
        for each in sentences
    ]


def exceptions_noted(private: bool, sentences: Iterable[str]) -> bool | str:
    """Return whether a release is private; in words where something was read from the rows that nobody paid for."""
    unpaid = [name_of(each) for each in sentences if each.endswith(f" ({Origin.ROWS})")]
    return f"except for {', '.join(unpaid)}" if private and unpaid else private
