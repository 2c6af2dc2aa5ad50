"""The one door through which answers leave: check, spend, compute, add noise, always in this order.

`pay` checks that the noise of answers can be drawn and charges the ledgers; what it returns is the right to release
each of these answers once, and there is no other way to get one. Nobody else charges a ledger for an answer or draws
its noise. `tests/laws/test_one_door.py` reads the syntax tree of the whole package and says so.

**An audit may watch** at the door. It sees what goes into each release and says what comes out; usually nobody
watches. `dpdescent.audit.replay` watches a fit, keeps its answers, and gives them to a fit of a neighbouring table. A
watcher belongs to a context (`contextvars`), so that fits in other threads or tasks are neither seen nor changed. It
sees exact sums, and must be trusted as a fit is.
"""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar, final

import numpy as np

from ..accounting import Cost, PureDP, ThresholdedGaussian
from ..arrays import Integers
from ..errors import BudgetExhausted, InvalidParameter
from ..exact import LatticeSum
from ..ledger import Ledger, spend_jointly
from ..queries.query import Noised
from ..relations import Relation
from .lattice_noise import LatticeNoise, require_drawable

_NOTE = PureDP(2.0**-1000)  # a charge has a price
_BY_PAYING = object()
Answer = TypeVar("Answer")

#: What may be released: parts of sums, and mechanisms that draw points; of a mapping, so many times each.
Rights = Iterable[Noised | Cost] | Mapping[Noised | Cost, int]


@final
class Paid:
    """The right to release answers that were paid for, each of them once. Only `pay` makes one.

    What is released is the very part that was paid for, with its sensitivity and its lattice, or a point that a
    mechanism draws. The right belongs to the process that has paid, and a copy of it is the right itself: a forked
    child or a copy would otherwise release once more what was paid for once.
    """

    def __init__(
        self, relation: Relation, noise: LatticeNoise, rights: Rights, label: str, cost: Cost, key: object
    ) -> None:
        if key is not _BY_PAYING:
            raise InvalidParameter("an answer is paid for by a ledger first: call pay")
        self._relation, self._noise, self._left = relation, noise, Counter(rights)
        self._label, self._cost = label, cost
        self._process, self._lock = os.getpid(), threading.Lock()

    def __copy__(self) -> Paid:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Paid:
        return self

    def release(self, part: Noised, values: Integers) -> Any:
        """Return exact values with the noise that was paid for, divided by their public divisor."""
        self._take((part,))
        total, facts = part.of(values), (part.divisor, part.symmetric)
        draw = partial(self._noise.release, total, part.cost, self._relation, symmetric=part.symmetric)
        answer = _draw_watched(Release(self._label, self._cost, part.cost, self._relation, total, *facts), draw)
        return answer / part.divisor if isinstance(answer, np.ndarray) else answer

    def publish(self, part: Noised, keys: Sequence[Any], values: Integers) -> dict[Any, float]:
        """Return the keys whose noisy count reaches the threshold that was paid for, with that count.

        **Privacy** ``keys`` are those that occur, in an order of their own that no row decides, and are unreleased
        data, as is their number: what leaves is the keys that are published, in this order.
        """
        self._take((part,))
        cost, threshold, total = part.cost, part.threshold, part.of(values)
        if not isinstance(cost, ThresholdedGaussian) or threshold is None:
            raise InvalidParameter("keys are published for a thresholded-gaussian cost, and for no other")

        def draw() -> dict[Any, float]:
            found, noisy = self._noise.published(total, cost, self._relation, threshold)
            return {keys[place]: count for place, count in zip(found.tolist(), noisy.tolist(), strict=True)}

        about = Release(self._label, self._cost, cost, self._relation, total, keys=tuple(keys))
        answer: dict[Any, float] = _draw_watched(about, draw)
        return answer

    def draw(self, cost: Cost, draw: Callable[[], Answer]) -> Answer:
        """Return a point that ``draw`` draws by the law that was paid for."""
        self._take((cost,))
        answer: Answer = _draw_watched(Release(self._label, self._cost, cost, self._relation, None), draw)
        return answer

    def exchange(self, given: Iterable[Noised | Cost], rights: Rights) -> Paid:
        """Give some of it back, and return the right to release what that covers, which the caller has shown.

        So what is left is asked before rows are read, and a charge can come before it is known what all of its
        mechanisms will release.
        """
        self._take(given)
        return Paid(self._relation, self._noise, rights, self._label, self._cost, _BY_PAYING)

    def _take(self, wanted: Iterable[Noised | Cost]) -> None:
        if self._process != os.getpid():
            raise BudgetExhausted("answers belong to the process that has paid for them: pay for others in this one")
        counted = Counter(wanted)
        with self._lock:  # two threads would both find the last one
            if not counted <= self._left:
                raise BudgetExhausted(
                    "all the answers that were paid for, or that a batch was drawn for, have been given: pay for "
                    "another, or draw another batch"
                )
            self._left -= counted


def check(parts: Iterable[Noised], relation: Relation) -> None:
    """Raise now what drawing the noise of these parts would raise after the charge."""
    for part in parts:
        require_drawable(part.cost, part.unit, part.sensitivity, relation, part.size)


def pay(ledgers: tuple[Ledger, ...], cost: Cost, label: str, rights: Rights, noise: LatticeNoise) -> Paid:
    """Check what is to be released, charge every ledger or none, and return the right to release it.

    Parameters
    ----------
    ledgers : tuple of Ledger
        All of them are charged, or none is. The relation of the first is that of all.
    cost : Cost
        What is charged for all answers together.
    label : str
        What the record of the ledgers calls it.
    rights : iterable of Noised and Cost, or mapping from them to int
        What will be released, each once or as often as the mapping says: parts of sums, and mechanisms that draw
        points or whose parts will be known later (`Paid.exchange`). That ``cost`` covers all of them together is
        shown by the caller, who knows that a tree has more nodes than a row is in, and that phases are about
        disjoint rows.
    noise : LatticeNoise
        Where the noise will come from.

    Raises
    ------
    BudgetExhausted, InvalidParameter
        Nothing was charged then.
    """
    counted, relation = Counter(rights), ledgers[0].relation
    check((each for each in counted if isinstance(each, Noised)), relation)
    spend_jointly(ledgers, cost, label, randomness=noise.description)
    return Paid(relation, noise, counted, label, cost, _BY_PAYING)


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


@dataclass(frozen=True, eq=False)
class Release:
    """An answer that was paid for and is about to leave.

    ``mechanism`` is the part of what was ``charged`` under ``label`` that makes the answer of ``total``, which is
    **unreleased data**; there is none for a point that is drawn. The answer is divided by ``divisor`` afterwards.
    Where values that occur are counted, ``keys`` are these values, which are unreleased data as well.
    """

    label: str
    charged: Cost
    mechanism: Cost
    relation: Relation
    total: LatticeSum | None
    divisor: float = 1.0
    symmetric: bool = False
    keys: tuple[Any, ...] | None = None


#: Returns the answer of a release, by drawing it or otherwise.
Watcher = Callable[[Release, Callable[[], Any]], Any]

_WATCHER: ContextVar[Watcher | None] = ContextVar("dpdescent watcher", default=None)
_COUNT: ContextVar[int | None] = ContextVar("dpdescent public count", default=None)


@contextmanager
def watched_by(watcher: Watcher, count: int | None = None) -> Iterator[None]:
    """Show what is released in this context to a watcher; ``count`` is what `public_count` returns in it."""
    watching, counting = _WATCHER.set(watcher), _COUNT.set(count)
    try:
        yield
    finally:
        _WATCHER.reset(watching)
        _COUNT.reset(counting)


def _draw_watched(release: Release, draw: Callable[[], Any]) -> Any:
    """Return what a mechanism answers, which is ``draw()`` unless somebody watches."""
    watcher = _WATCHER.get()
    return draw() if watcher is None else watcher(release, draw)


def public_count(counted: int) -> int:
    """Return the public number of places for rows, or for units: as many as were ``counted`` in the table.

    Under zero-out a neighbour lacks a row, and the number of places stays as it is: a watcher says what it is.
    """
    count = _COUNT.get()
    return counted if count is None else count
