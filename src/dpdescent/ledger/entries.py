"""What a ledger records of one charge, as a value and as plain data."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any

from ..accounting import Cost
from ..accounting.costs import cost_from_dict
from ..errors import LedgerFormatError

__all__ = ["Entry", "parse_json"]


@dataclass(frozen=True)
class Entry:
    """One charge: what for, which mechanism, its price in the ledger's currency, and where its noise comes from.

    The randomness is None where nobody said; a record that was written without it has none.
    """

    label: str
    cost: Cost
    price: float
    randomness: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        data = {"label": self.label, "cost": self.cost.to_dict(), "price": self.price}
        return data if self.randomness is None else data | {"randomness": self.randomness}

    @classmethod
    def from_dict(cls, data: Any) -> Entry:
        """Build an entry from the plain data of `to_dict`."""
        try:
            label, cost, price = str(data["label"]), data["cost"], float(data["price"])
            randomness = data.get("randomness")
        except (AttributeError, KeyError, TypeError, ValueError) as problem:
            raise LedgerFormatError(f"a ledger entry is damaged: {problem!r}") from None
        if not (math.isfinite(price) and price >= 0):
            raise LedgerFormatError(f"a ledger entry has the price {price}: the file is damaged")
        if not (randomness is None or isinstance(randomness, str)):
            raise LedgerFormatError(f"a ledger entry has the randomness {randomness!r}: the file is damaged")
        return cls(label, cost_from_dict(cost), price, randomness)


def parse_json(text: str | bytes, where: str) -> Any:
    """Return the data of a JSON text that was read from ``where``, or raise `LedgerFormatError`."""
    try:
        return json.loads(text)
    except ValueError:
        raise LedgerFormatError(f"{where} is not JSON: the ledger is damaged") from None
