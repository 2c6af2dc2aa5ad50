"""What a ledger records of one charge, as a value and as plain data; and the lines of its history."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

from ..accounting import Cost, FilteredRun
from ..accounting.costs import cost_from_dict
from ..errors import LedgerFormatError

__all__ = ["Entry", "Line", "Origin", "parse_json"]


@dataclass(frozen=True)
class Entry:
    """One charge: what for, which mechanism, its price in the ledger's currency, and where its noise comes from.

    The randomness, the date (UTC) and the model file are None where they were not given; a ledger in memory keeps no
    dates, because they would tell how long the answers of a run took.
    """

    label: str
    cost: Cost
    price: float
    randomness: str | None = None
    date: str | None = field(default=None, compare=False)
    model: str | None = field(default=None, compare=False)

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data. The price is for readers; it is computed anew when the entry is read."""
        data = {"label": self.label, "cost": self.cost.to_dict(), "price": self.price}
        optional = {"randomness": self.randomness, "date": self.date, "model": self.model}
        return data | {name: value for name, value in optional.items() if value is not None}

    @classmethod
    def from_dict(cls, data: Any, price: Callable[[Cost], float]) -> Entry:
        """Build an entry from the plain data of `to_dict`; what its mechanism costs is computed anew by ``price``."""
        try:
            label, cost = data["label"], data["cost"]
            said = {name: data.get(name) for name in ("randomness", "date", "model")}
        except (AttributeError, KeyError, TypeError) as problem:
            raise LedgerFormatError(f"a ledger entry is damaged: {problem!r}") from None
        for name, value in {"label": label, **said}.items():
            if not (isinstance(value, str) or (value is None and name != "label")):
                raise LedgerFormatError(f"a ledger entry has the {name} {value!r}: the file is damaged")
        built = cost_from_dict(cost)
        return cls(label, built, price(built), **said)


@dataclass(frozen=True)
class Line:
    """One line of a ledger's history: a charge, or a reservation and the charges that it was settled with."""

    entry: Entry
    settled: tuple[Entry, ...] | None = None

    @property
    def charges(self) -> tuple[Entry, ...]:
        """What counts: the charges of a settled reservation, else the entry itself."""
        return (self.entry,) if self.settled is None else self.settled

    @property
    def state(self) -> Literal["charged", "reserved", "settled"]:
        """Whether the line is a single charge, a run that was not settled, or a run and what it has spent."""
        if self.settled is not None:
            return "settled"
        return "reserved" if isinstance(self.entry.cost, FilteredRun) else "charged"


@dataclass(frozen=True)
class Origin:
    """The ledger of an earlier release whose charges were moved into a new file.

    Parameters
    ----------
    path : str
        Where it was.
    digest : str
        That of its head and charges. Two ledgers with one digest were imported from copies of one file.
    identity : str, optional
        Its own name, if it had one.
    """

    path: str
    digest: str
    identity: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the origin as plain data."""
        return {"path": self.path, "digest": self.digest, "id": self.identity}

    @classmethod
    def from_dict(cls, data: Any) -> Origin:
        """Build an origin from the plain data of `to_dict`."""
        try:
            path, digest, identity = data["path"], data["digest"], data["id"]
        except (KeyError, TypeError):
            raise LedgerFormatError("the origin of a ledger is damaged") from None
        if not (isinstance(path, str) and isinstance(digest, str) and isinstance(identity, str | None)):
            raise LedgerFormatError("the origin of a ledger is damaged")
        return cls(path, digest, identity)


def parse_json(text: str | bytes, where: str) -> Any:
    """Return the data of a JSON text that was read from ``where``, or raise `LedgerFormatError`."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise LedgerFormatError(f"{where} is not JSON: the ledger is damaged") from None
