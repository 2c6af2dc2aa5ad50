"""The ledger: a filter that refuses before the budget is overspent, and an append-only record.

Nothing is computed from the data before the ledger has accepted its cost. A refusal raises and changes nothing;
a smaller request may follow. Amounts are added exactly, as fractions, so no sum of roundings ever slips over
the budget.

A ledger may live in memory or in a file. In a file every entry is on the disk before ``spend`` returns, so a
crash or a kill never forgets a charge, and processes that share the file share one budget. A copy never carries
the right to spend: copying returns the ledger itself, a pickled one comes back read-only, and a forked child
must use a file.
"""

from __future__ import annotations

import errno
import json
import math
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

from .accounting import Composed, Cost, Currency, currency_from_dict, currency_named, round_up
from .accounting.costs import cost_from_dict
from .accounting.events import to_dp_event
from .errors import (
    BudgetExhausted,
    InvalidParameter,
    LedgerError,
    LedgerFormatError,
    require_finite,
    require_open_unit,
    require_positive,
)
from .relations import Relation

__all__ = ["Entry", "Ledger", "spend_jointly"]

FORMAT = "dpdescent-ledger"
VERSION = 1
_EXACT_ONE = 2**1074


@dataclass(frozen=True)
class Entry:
    """One charge: what for, which mechanism, and its price in the ledger's currency."""

    label: str
    cost: Cost
    price: float

    def to_dict(self) -> dict[str, Any]:
        """Return the entry as plain data."""
        return {"label": self.label, "cost": self.cost.to_dict(), "price": self.price}

    @classmethod
    def from_dict(cls, data: Any) -> Entry:
        """Build an entry from the plain data of `to_dict`."""
        try:
            label, cost, price = str(data["label"]), data["cost"], float(data["price"])
        except (KeyError, TypeError, ValueError) as problem:
            raise LedgerFormatError(f"a ledger entry is damaged: {problem!r}") from None
        if not (math.isfinite(price) and price >= 0):
            raise LedgerFormatError(f"a ledger entry has the price {price}: the file is damaged")
        return cls(label, cost_from_dict(cost), price)


class Ledger:
    """A privacy budget of (epsilon, delta), spent adaptively and never overspent.

    Parameters
    ----------
    epsilon : float
        Greater than 0.
    delta : float
        Between 0 and 1, well below 1/n. Zero only with ``currency="pure"``.
    currency : {"zcdp", "gdp", "rdp", "pure", "approximate"} or Currency, default "zcdp"
        The one scalar that is added up, chosen before the run.
    relation : {"zero-out", "replace-one"}, default "zero-out"
        What one row may change; the unit of privacy is one row.
    order : float, optional
        The one Renyi order of ``currency="rdp"``; by default a rule of (epsilon, delta).
    path : path-like, optional
        A new file that holds the ledger from now on. Use `Ledger.open` for one that exists.

    Notes
    -----
    **Privacy** A run whose every touch of the data was accepted by one ledger is (epsilon, delta)-DP for one row
    under the stated relation, however the requests were chosen, provided each depends on the data only
    through released answers. What was spent is a by-product of those answers: it describes the run, the
    guarantee is the budget.

    Examples
    --------
    >>> from dpdescent import Gaussian, Ledger
    >>> ledger = Ledger(epsilon=1.0, delta=1e-6)
    >>> entry = ledger.spend(Gaussian(noise_multiplier=10.0), "gradient")
    >>> ledger.affords(Gaussian(noise_multiplier=1.0))
    False
    >>> len(ledger.entries)
    1
    """

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        currency: str | Currency = "zcdp",
        relation: str = "zero-out",
        order: float | None = None,
        path: str | os.PathLike[str] | None = None,
    ) -> None:
        self._epsilon = require_positive("epsilon", epsilon)
        if require_finite("delta", delta) == 0 and (currency == "pure" or getattr(currency, "name", "") == "pure"):
            self._delta = 0.0
        else:
            self._delta = require_open_unit("delta", delta)
        self._relation = Relation.parse(relation)
        self._currency = currency_named(currency, self._epsilon, self._delta, order)
        self._reserve = Fraction(self._delta) * self._currency.uncounted
        self._counted_delta = max(0.0, math.nextafter(float(Fraction(self._delta) - self._reserve), 0.0))
        self._budget = self._currency.budget(self._epsilon, self._counted_delta)
        self._limit = _exactly(self._budget)
        self._entries: list[Entry] = []
        self._spent = 0  # these sums are exact, in multiples of 2^-1074
        self._spent_delta = 0
        self._read_only = False
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._path: Path | None = None
        self._offset = 0
        if path is not None:
            self._start_file(Path(path))

    @property
    def epsilon(self) -> float:
        """The guaranteed epsilon."""
        return self._epsilon

    @property
    def delta(self) -> float:
        """The guaranteed delta."""
        return self._delta

    @property
    def currency(self) -> Currency:
        """The scalar that is added up."""
        return self._currency

    @property
    def relation(self) -> Relation:
        """What one row may change."""
        return self._relation

    @property
    def budget(self) -> float:
        """The budget, in units of the currency."""
        return self._budget

    @property
    def spent(self) -> float:
        """What was spent, in units of the currency, rounded up."""
        return round_up(Fraction(self._spent, _EXACT_ONE))

    @property
    def remaining(self) -> float:
        """What is left, in units of the currency, rounded down."""
        left = self._limit - self._spent
        return -round_up(Fraction(-left, _EXACT_ONE)) if left > 0 else 0.0

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every charge, in order."""
        return tuple(self._entries)

    @property
    def path(self) -> Path | None:
        """The file that holds the ledger, if there is one."""
        return self._path

    def affords(self, cost: Cost) -> bool:
        """Return whether `spend` would accept ``cost`` now, given what others have spent from a shared file."""
        with self._lock, self._file_opened():
            return self._objection(cost, self._price(cost)) is None

    def spend(self, cost: Cost, label: str = "") -> Entry:
        """Charge ``cost``, or raise `BudgetExhausted` and change nothing.

        Call it before the data is touched, never after.
        """
        with self._accepting(cost, label) as charge:
            return charge()

    @contextmanager
    def _accepting(self, cost: Cost, label: str) -> Iterator[Callable[[], Entry]]:
        """Hold the ledger in a state that accepts ``cost``, or raise; calling what it yields makes the charge."""
        with self._lock:
            self._require_writable()
            entry = Entry(str(label), cost, self._price(cost))
            with self._file_opened() as file:
                objection = self._objection(cost, entry.price)
                if objection is not None:
                    raise BudgetExhausted(objection)

                def charge() -> Entry:
                    if file is not None:
                        self._append(file, entry.to_dict())
                    self._record(entry)
                    return entry

                yield charge

    def _price(self, cost: Cost) -> float:
        if not isinstance(cost, Cost):
            raise InvalidParameter(f"a ledger charges costs such as Gaussian(...), got {cost!r}")
        if self._relation not in cost.relations:
            holds = ", ".join(sorted(cost.relations))
            raise InvalidParameter(
                f"a {cost.kind!r} cost holds for the relation {holds} only, and this ledger keeps {self._relation}: "
                "sample batches the other way, or open a ledger of that relation"
            )
        price = _price(self._currency, cost)
        if not (math.isfinite(price) and price >= 0):
            raise InvalidParameter(f"{cost} has the price {price} in {self._currency.name}: add noise")
        return price

    def _objection(self, cost: Cost, price: float) -> str | None:
        if self._spent + _exactly(price) > self._limit:
            return (
                f"a {cost.kind} mechanism would cost {price:.6g} {self._currency.name}, and {self.remaining:.6g} of "
                f"{self._budget:.6g} is left: ask for a noisier answer, or stop"
            )
        delta = _delta(cost)
        if delta and Fraction(self._spent_delta + _exactly(delta), _EXACT_ONE) > self._reserve:
            return (
                f"a {cost.kind} mechanism may fail with probability {delta:g}, and {float(self._reserve):g} "
                "is reserved for that: choose a larger delta, or a mechanism without one"
            )
        return None

    def _record(self, entry: Entry) -> None:
        self._entries.append(entry)
        self._spent += _exactly(entry.price)
        if delta := _delta(entry.cost):
            self._spent_delta += _exactly(delta)

    def _require_writable(self) -> None:
        if self._read_only:
            raise LedgerError(
                "this ledger is a read-only copy: spend on the original, or keep the ledger in a file (path=...)"
            )
        if self._path is None and os.getpid() != self._process:
            raise LedgerError(
                "a ledger in memory belongs to the process that made it: keep it in a file (path=...) to share it"
            )

    # Conversions -------------------------------------------------------------------------------------------

    def spent_epsilon(self) -> float:
        """Return the epsilon that what was spent amounts to at this ledger's delta. A description of the run."""
        if not self._entries:
            return 0.0
        return min(self._epsilon, self._currency.epsilon(self.spent, self._counted_delta or 0.5))

    def statement(self) -> dict[str, Any]:
        """Return the privacy statement of the run so far as plain data."""
        return {
            "epsilon": self._epsilon,
            "delta": self._delta,
            "unit": "one row",
            "relation": str(self._relation),
            "currency": self._currency.to_dict(),
            "budget": self._budget,
            "spent": self.spent,
            "spent_epsilon": self.spent_epsilon(),
            "mechanisms": dict(sorted(Counter(kind for e in self._entries for kind in _kinds(e.cost)).items())),
        }

    def to_dp_event(self) -> Any:
        """Return the record as one ``dp_accounting.ComposedDpEvent``; see `accounting.events.to_dp_event`."""
        events = [to_dp_event(entry.cost) for entry in self._entries]
        import dp_accounting

        return dp_accounting.ComposedDpEvent(events)

    def _header(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "epsilon": self._epsilon,
            "delta": self._delta,
            "currency": self._currency.to_dict(),
            "relation": str(self._relation),
            "unit": "one row",
        }

    def to_json(self) -> str:
        """Return the ledger as one JSON text."""
        return json.dumps(self._header() | {"entries": [entry.to_dict() for entry in self._entries]}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Return the ledger written by `to_json`, ready to spend what it has left."""
        data = _parse(text, "the text")
        ledger = cls._from_header(data, "the text")
        ledger._replay(data.get("entries", []))
        return ledger

    @classmethod
    def _from_header(cls, data: Any, where: str) -> Ledger:
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise LedgerFormatError(f"{where} is not a dpdescent ledger")
        if data.get("version") != VERSION:
            raise LedgerFormatError(
                f"{where} is a ledger of version {data.get('version')!r}, this release reads version {VERSION}: "
                "use the release that wrote it"
            )
        try:
            currency = currency_from_dict(data["currency"])
            return cls(data["epsilon"], data["delta"], currency=currency, relation=data["relation"])
        except (KeyError, TypeError, InvalidParameter) as problem:
            raise LedgerFormatError(f"the head of {where} is damaged: {problem}") from None

    def _replay(self, entries: Any) -> None:
        if not isinstance(entries, list):
            raise LedgerFormatError("the entries of a ledger must be a list")
        for data in entries:
            entry = Entry.from_dict(data)
            objection = self._objection(entry.cost, entry.price)
            if objection is not None:
                raise LedgerFormatError(f"the ledger records more than its budget: {objection}")
            self._record(entry)

    # Files -------------------------------------------------------------------------------------------------

    def _start_file(self, path: Path) -> None:
        """Put the head on the disk under a draft's name, then give it ``path``: nobody ever sees half a head.

        From then on others may append. What they append is read like any other charge, so the place of this process
        is the end of the head, wherever the file ends by now.
        """
        path = path.absolute()
        head = _line(self._header())
        try:
            descriptor, draft = tempfile.mkstemp(prefix=".ledger-", dir=path.parent)
        except FileNotFoundError:
            raise LedgerError(f"there is no folder {path.parent}: create it, or choose another path") from None
        try:
            try:
                _write(descriptor, head)
            finally:
                os.close(descriptor)
            os.link(draft, path)
        except FileExistsError:
            raise LedgerError(f"{path} exists: Ledger.open continues it, another name starts anew") from None
        finally:
            os.unlink(draft)
        _sync_folder(path.parent)
        self._path, self._offset = path, len(head)

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Continue the ledger in the file ``path``."""
        try:
            content = Path(path).read_bytes()
        except FileNotFoundError:
            raise LedgerError(f"there is no ledger at {path}: Ledger(..., path=...) starts one") from None
        head, newline, _ = content.partition(b"\n")
        if not newline:
            raise LedgerFormatError(f"{path} is not a complete dpdescent ledger")
        ledger = cls._from_header(_parse(head, str(path)), str(path))
        ledger._path = Path(path).absolute()
        ledger._offset = len(head) + 1
        _sync_folder(ledger._path.parent)
        with ledger._file_opened():
            pass
        return ledger

    @contextmanager
    def _file_opened(self) -> Iterator[int | None]:
        """Hold the file, if there is one, for this process alone, having read what others have written."""
        if self._path is None:
            yield None
            return
        import fcntl

        descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            *lines, torn = _read(descriptor, self._offset).split(b"\n")
            self._replay([_parse(line, str(self._path)) for line in lines])
            self._offset += sum(len(line) + 1 for line in lines)
            if torn:
                # A writer died inside its write, before its spend returned: no data was touched for it.
                os.ftruncate(descriptor, self._offset)
            yield descriptor
        finally:
            os.close(descriptor)

    def _append(self, descriptor: int, data: dict[str, Any]) -> None:
        line = _line(data)
        os.lseek(descriptor, self._offset, os.SEEK_SET)
        _write(descriptor, line)
        self._offset += len(line)

    # Copies ------------------------------------------------------------------------------------------------

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"json": self.to_json(), "path": self._path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        path = state["path"]
        shared = path is not None and path.exists()
        ledger = Ledger.open(path) if shared else Ledger.from_json(state["json"])
        self.__dict__.update(ledger.__dict__)
        self._read_only = not shared

    def __repr__(self) -> str:
        return (
            f"Ledger(epsilon={self._epsilon:g}, delta={self._delta:g}, currency={self._currency.name!r}, "
            f"relation={str(self._relation)!r}, spent={self.spent / self._budget:.1%})"
        )


@lru_cache(maxsize=1024)
def _exactly(value: float) -> int:
    """Return a float as a multiple of 2^-1074, which every float is."""
    numerator, denominator = value.as_integer_ratio()
    return numerator * (_EXACT_ONE // denominator)


@lru_cache(maxsize=1024)  # a run is charged for the same few costs again and again
def _price(currency: Currency, cost: Cost) -> float:
    return currency.price(cost)


@lru_cache(maxsize=1024)
def _delta(cost: Cost) -> float:
    return cost.delta


def spend_jointly(ledgers: tuple[Ledger, ...], cost: Cost, label: str = "") -> None:
    """Charge ``cost`` to every ledger, or raise and charge it to none.

    The ledgers must be different ones. They are held in a fixed order, so two callers never wait for each other.
    """
    with ExitStack() as held:
        ordered = sorted(ledgers, key=lambda ledger: (str(ledger.path or ""), id(ledger)))
        for charge in [held.enter_context(ledger._accepting(cost, label)) for ledger in ordered]:
            charge()


def _line(data: dict[str, Any]) -> bytes:
    return json.dumps(data).encode() + b"\n"


def _read(descriptor: int, start: int) -> bytes:
    """Return the bytes of a file from ``start`` to its end."""
    parts = []
    while part := os.pread(descriptor, 2**20, start):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _write(descriptor: int, content: bytes) -> None:
    """Write at the place of the descriptor, and return when the content is on the disk."""
    while content:
        content = content[os.write(descriptor, content) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    """Put the names of the files in a folder on the disk: a file that has lost its name is lost."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be entered and not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a file system that has no such operation
            raise
    finally:
        os.close(descriptor)


def _parse(text: str | bytes, where: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        raise LedgerFormatError(f"{where} is not JSON: the ledger is damaged") from None


def _kinds(cost: Cost) -> list[str]:
    """Return the kind of a cost, or of each of its parts if they were only charged together."""
    if isinstance(cost, Composed):
        return [kind for part in cost.parts for kind in _kinds(part)]
    return [cost.kind]
