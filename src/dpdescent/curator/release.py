"""The one door through which answers leave: check, spend, compute, add noise, always in this order.

`pay` checks that the noise of an answer can be drawn and charges the ledgers; what it returns is the right to release
answers through the mechanisms that were paid for, and there is no other way to get one. Nobody else charges a ledger
for an answer or draws its noise. `tests/test_one_door.py` reads the syntax tree of the whole package and says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeVar, final

import numpy as np

from ..accounting import Cost, PureDP
from ..errors import InvalidParameter
from ..ledger import Ledger, spend_jointly
from ..relations import Relation
from .mechanisms import LatticeNoise, require_drawable
from .releases import Noised
from .sources import Integers
from .watching import Release, released

__all__ = ["Paid", "check", "note", "pay", "release"]

_NOTE = PureDP(2.0**-1000)  # a charge has a price
_BY_PAYING = object()
Answer = TypeVar("Answer")


@final
class Paid:
    """The right to release answers through mechanisms that were paid for. Only `pay` makes one.

    How many answers a charge covers is known to whoever planned it: a tree has more nodes than a row is in, and the
    phases of a descent are about disjoint rows. Which mechanisms it covers is checked here.
    """

    def __init__(
        self, relation: Relation, noise: LatticeNoise, covered: frozenset[Cost], label: str, cost: Cost, key: object
    ) -> None:
        if key is not _BY_PAYING:
            raise InvalidParameter("an answer is paid for by a ledger first: call pay")
        self._relation, self._noise, self._covered = relation, noise, covered
        self._label, self._cost = label, cost

    def release(self, part: Noised, values: Integers) -> Any:
        """Return exact values with the noise that was paid for, divided by their public divisor."""
        self._require(part.cost)
        total, facts = part.of(values), (part.divisor, part.symmetric)
        draw = partial(self._noise.release, total, part.cost, self._relation, symmetric=part.symmetric)
        answer = released(Release(self._label, self._cost, part.cost, self._relation, total, *facts), draw)
        return answer / part.divisor if isinstance(answer, np.ndarray) else answer

    def draw(self, cost: Cost, draw: Callable[[], Answer]) -> Answer:
        """Return a point that ``draw`` draws by the law that was paid for."""
        self._require(cost)
        answer: Answer = released(Release(self._label, self._cost, cost, self._relation, None), draw)
        return answer

    def _require(self, cost: Cost) -> None:
        if cost not in self._covered:
            raise InvalidParameter(f"no {cost.kind!r} mechanism of this strength was paid for: pay for it first")


def check(parts: Iterable[Noised], relation: Relation) -> None:
    """Raise now what drawing the noise of these parts would raise after the charge."""
    for part in parts:
        require_drawable(part.cost, part.unit, part.sensitivity, relation, part.size)


def pay(
    ledgers: tuple[Ledger, ...],
    cost: Cost,
    label: str,
    parts: Iterable[Noised],
    noise: LatticeNoise,
    mechanisms: Iterable[Cost] = (),
) -> Paid:
    """Check what is to be released, charge every ledger or none, and return the right to release it.

    Parameters
    ----------
    ledgers : tuple of Ledger
        All of them are charged, or none is. The relation of the first is that of all.
    cost : Cost
        What is charged for all answers together.
    label : str
        What the record of the ledgers calls it.
    parts : iterable of Noised
        What will be released. A ``cost`` of their composition covers them, which the caller has shown.
    noise : LatticeNoise
        Where the noise will come from.
    mechanisms : iterable of Cost, optional
        Further mechanisms that ``cost`` covers, whose parts will be checked when they are known.

    Raises
    ------
    BudgetExhausted, InvalidParameter
        Nothing was charged then.
    """
    listed, relation = tuple(parts), ledgers[0].relation
    check(listed, relation)
    covered = frozenset((*(part.cost for part in listed), *mechanisms))
    spend_jointly(ledgers, cost, label, randomness=noise.description)
    return Paid(relation, noise, covered, label, cost, _BY_PAYING)


def release(
    ledger: Ledger, part: Noised, label: str, compute: Callable[[], Integers], noise: LatticeNoise | None = None
) -> Any:
    """Pay for one answer, compute it from the rows, and return it with noise.

    ``compute`` is called after the charge, and returns the integers that ``part`` is made from.
    """
    paid = pay((ledger,), part.cost, label, (part,), noise or LatticeNoise())
    with np.errstate(all="ignore"):  # a warning would speak of rows
        values = compute()
    return paid.release(part, values)


def note(ledger: Ledger, label: str) -> None:
    """Add a line to a ledger at a price that nothing notices: nothing is released for it."""
    spend_jointly((ledger,), _NOTE, label)
