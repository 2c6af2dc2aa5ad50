"""What is said to be public about the rows, one sentence per fact, and where each of them came from.

A sentence reads ``name: what it is (origin)``. The name is that of the argument by which a caller gives the fact.
Whatever was read from the rows without being paid for is an exception to the guarantee.
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum

__all__ = ["Origin", "exceptions_noted", "moved", "name_of", "public_fact"]


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
