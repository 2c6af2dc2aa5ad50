"""What a ledger has recorded: entries, the lines of its history, and exact sums of what they cost.

Every float is a whole multiple of 2^-1074, so a sum of prices is kept as an integer and compared with the budget
without rounding.

**Settling a reservation.** A fit whose own filter has the budget b is charged b at once, as a `FilteredRun`, before
it touches a row. When it is over and can charge nothing more, the mechanisms that it did run, of the total s <= b,
take the place of b. That is sound in every scalar currency. A filter's theorem asks for one thing: that the prices of
the mechanisms actually run, in the order in which they were run and each chosen from released answers only, never
add up to more than the budget (Rogers et al. 2016; Feldman & Zrnic 2021; Smith & Thakurta 2022). At every moment the
mechanisms run so far are those of settled fits, which the ledger counts one by one, and those of open fits, each of
which has run no more than was reserved for it. So their sum is at most what the ledger counts, and the ledger never
counts more than its budget. Fits that overlap only interleave their mechanisms. Nearly all of these answer at once,
from noise of their own: the interleaved sequence is again an adaptive one. A batch that answers several queries is
one mechanism that is asked more than once, and is charged in full before its first answer. Such mechanisms may be
interleaved with others, because a filter for (epsilon, delta)-DP, f-DP or Renyi DP of a fixed order is also one for
concurrent interactive mechanisms (Haney et al. 2023); GDP is f-DP, and zCDP is Renyi DP at every order. The sum s is
a function of released answers, as every later decision may be. A fit that dies is never settled and stays charged
with b.

Where a ledger keeps its record, as a budget sees it: hold it, read what is new, append.

A store starts with a head that never changes and goes on with one plain mapping per record, under a number of its
own. It knows nothing of budgets and prices. Any store that can be held by one process at a time and that appends
durably can be a store.

References
----------
Haney, S. et al. (2023). Concurrent composition for interactive differential privacy with adaptive privacy-loss
parameters. arXiv:2309.05901.
"""

from __future__ import annotations

import json
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from fractions import Fraction
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, Literal
from weakref import WeakSet

from ..accounting import Cost, Currency, FilteredRun, cost_from_dict, round_up
from ..errors import LedgerBusy, LedgerError, LedgerFormatError

_ONE = 2**1074


@lru_cache(maxsize=1024)
def exactly(value: float) -> int:
    """Return a float as a multiple of 2^-1074, which every float is."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_ONE // denominator)


def as_fraction(amount: int) -> Fraction:
    """Return a multiple of 2^-1074 as a fraction."""
    return Fraction(amount, _ONE)


def as_float(amount: int) -> float:
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
    """The ledger of an earlier release whose charges were moved into a new file."""

    path: str  # where it was
    #: That of its head and charges. Two ledgers with one digest were imported from copies of one file.
    digest: str
    identity: str | None = None  # its own name, if it had one

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


class History:
    """The lines of a ledger by their numbers, what they cost, and with what probability their mechanisms may fail.

    Both sums are exact, in multiples of 2^-1074. A record may be passed on twice, with the same number, if an
    interrupt falls between its steps. These are ordered so that the sums are then too large, never too small.
    """

    def __init__(self) -> None:
        self.lines: dict[int, Line] = {}
        self.spent = 0
        self.failures = 0

    def copy(self) -> History:
        """Return a history of the same lines that goes its own way."""
        copied = History()
        copied.lines, copied.spent, copied.failures = dict(self.lines), self.spent, self.failures
        return copied

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every charge that counts, in order."""
        return tuple(entry for line in tuple(self.lines.values()) for entry in line.charges)

    def charge(self, number: int, entry: Entry) -> None:
        """Count a charge that was recorded under ``number``."""
        if number not in self.lines:
            spent, failures = _sums((entry,))
            self.spent += spent
            self.failures += failures
            self.lines[number] = Line(entry)

    def settle(self, number: int, charges: tuple[Entry, ...]) -> None:
        """Let the charges of a run take the place of what was reserved for it in line ``number``."""
        line = self.lines.get(number) if isinstance(number, int) else None
        if line is not None and line.settled == charges:
            return
        if line is None or line.state != "reserved":
            raise LedgerFormatError(f"record {number!r} is settled, and is no open reservation: the file is damaged")
        reserved, settled = _sums((line.entry,)), _sums(charges)
        self.lines[number] = Line(line.entry, charges)
        self.spent += settled[0] - reserved[0]
        self.failures += settled[1] - reserved[1]


def _sums(entries: tuple[Entry, ...]) -> tuple[int, int]:
    prices = sum(exactly(entry.price) for entry in entries)
    return prices, sum(exactly(failure) for entry in entries if (failure := failure_probability(entry.cost)))


Replay = Callable[[list[tuple[int, Any]]], None]
Append = Callable[[dict[str, Any], Callable[[int], None]], None]

READ_ONLY = "this ledger is a read-only copy: spend on the original, or keep the ledger in a file (path=...)"


class Store(ABC):
    """The append-only record behind one ledger."""

    path: Path | None = None

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._turn = 0
        _STORES.add(self)

    def _require_turn(self, turn: int) -> None:
        """Raise unless this is still the turn in which the decision was taken.

        A signal handler runs in the thread that it interrupts, which holds the lock already.
        """
        if turn != self._turn:
            raise LedgerBusy("the ledger was used between a decision and its charge, by a signal handler: ask again")

    @abstractmethod
    def look(self, replay: Replay) -> None:
        """Pass to ``replay`` the numbers and records that others have appended."""

    @abstractmethod
    def hold(self, replay: Replay) -> AbstractContextManager[Append]:
        """Hold the store for this thread of this process alone, having passed on what others have appended.

        What is yielded appends one record: when it can no longer be lost, it calls its second argument with the
        number, by which the budget takes the record over. Raises `LedgerError` if this process may not append.

        A record counts as read only after the budget has it. If either call is interrupted, the record is passed on
        again next time, under the same number.
        """

    def renew_after_fork(self) -> None:
        """Become usable in a child: a lock that was held by a thread of the parent would never be released."""
        self._lock = threading.RLock()


class MemoryStore(Store):
    """No record but the one in the budget, which belongs to the process that made it.

    A ``refusal`` is what whoever wants to append is told.
    """

    def __init__(self, refusal: str | None = None) -> None:
        super().__init__()
        self._refusal = refusal
        self._process = os.getpid()
        self._count = 0

    @property
    def process(self) -> int:
        """The process that may append."""
        return self._process

    def close(self, refusal: str) -> None:
        """Append nothing from now on; a charge that another thread is making is waited for."""
        with self._lock:
            self._refusal = refusal

    def look(self, replay: Replay) -> None:
        """Nobody else can have appended."""

    @contextmanager
    def hold(self, replay: Replay) -> Iterator[Append]:
        with self._lock:
            if self._refusal is not None:
                raise LedgerError(self._refusal)
            if os.getpid() != self._process:
                raise LedgerError(
                    "a ledger in memory belongs to the process that made it: keep it in a file (path=...) to share it"
                )
            self._turn += 1
            yield partial(self._append, self._turn)

    def _append(self, turn: int, _: dict[str, Any], take: Callable[[int], None]) -> None:
        self._require_turn(turn)
        self._count += 1
        take(self._count)


_STORES: WeakSet[Store] = WeakSet()


def _renew_after_fork() -> None:
    for store in list(_STORES):
        store.renew_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
