"""The filter: a budget, the price of a request, and the decision that comes before the data is touched."""

from __future__ import annotations

import json
import math
import os
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..accounting import (
    RUN_DRAWS,
    SAMPLER_SHARE,
    Composed,
    Cost,
    Currency,
    currency_from_dict,
    currency_named,
    sampler_delta,
)
from ..accounting.events import to_dp_event
from ..errors import (
    BudgetExhausted,
    InvalidParameter,
    LedgerFormatError,
    UnsupportedCost,
    require_finite,
    require_open_unit,
    require_positive,
)
from ..noise import SAMPLER_ERROR
from ..relations import Relation
from .amounts import as_fraction, exactly, failure_probability, price_of, rounded_up
from .entries import Entry, parse_json
from .file import JournalFile
from .journal import Journal, Memory

__all__ = ["Ledger"]

FORMAT = "dpdescent-ledger"
VERSION = 1


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
        whole, uncounted = Fraction(self._delta), self._currency.uncounted
        self._reserve = whole * (uncounted - SAMPLER_SHARE)  # for mechanisms that may fail
        self._counted_delta = max(0.0, math.nextafter(float(whole * (1 - uncounted)), 0.0))
        self._budget = self._currency.budget(self._epsilon, self._counted_delta)
        self._limit = exactly(self._budget)
        self._entries: list[Entry] = []
        self._spent = 0  # these sums are exact, in multiples of 2^-1074
        self._spent_delta = 0
        self._lock = threading.RLock()
        self._journal: Journal = Memory() if path is None else JournalFile.create(Path(path), self._header())

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
        return rounded_up(self._spent)

    @property
    def remaining(self) -> float:
        """What is left, in units of the currency, rounded down."""
        left = self._limit - self._spent
        return -rounded_up(-left) if left > 0 else 0.0

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every charge, in order."""
        return tuple(self._entries)

    @property
    def path(self) -> Path | None:
        """The file that holds the ledger, if there is one."""
        return self._journal.path

    def affords(self, cost: Cost) -> bool:
        """Return whether `spend` would accept ``cost`` now, given what others have spent from a shared file."""
        with self._lock, self._journal.hold(self._replay):
            return self._objection(cost, self._price(cost)) is None

    def spend(self, cost: Cost, label: str = "", randomness: str = "") -> Entry:
        """Charge ``cost``, or raise `BudgetExhausted` and change nothing.

        Call it before the data is touched, never after. The ``label`` says what the charge is for, and
        ``randomness`` where the noise of the answer comes from; both are only recorded.
        """
        with self._accepting(cost, label, randomness) as charge:
            return charge()

    @contextmanager
    def _accepting(self, cost: Cost, label: str, randomness: str) -> Iterator[Callable[[], Entry]]:
        """Hold the ledger in a state that accepts ``cost``, or raise; calling what it yields makes the charge."""
        with self._lock:
            self._journal.require_writable()
            entry = Entry(str(label), cost, self._price(cost), str(randomness) or None)
            with self._journal.hold(self._replay) as append:
                objection = self._objection(cost, entry.price)
                if objection is not None:
                    raise BudgetExhausted(objection)

                def charge() -> Entry:
                    append(entry.to_dict(), lambda: self._record(entry))
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
        try:
            price = price_of(self._currency, cost)
        except UnsupportedCost as problem:
            message = f"a {cost.kind} mechanism has no price in {self._currency.name}, which this ledger counts in"
            raise UnsupportedCost(f"{message}: {problem}") from None
        if not (math.isfinite(price) and price >= 0):
            raise InvalidParameter(f"{cost} has the price {price} in {self._currency.name}: add noise")
        return price

    def _objection(self, cost: Cost, price: float) -> str | None:
        if self._spent + exactly(price) > self._limit:
            return (
                f"a {cost.kind} mechanism would cost {price:.6g} {self._currency.name}, and {self.remaining:.6g} of "
                f"{self._budget:.6g} is left: ask for a noisier answer, or stop"
            )
        delta = failure_probability(cost)
        if delta and as_fraction(self._spent_delta + exactly(delta)) > self._reserve:
            return (
                f"a {cost.kind} mechanism may fail with probability {delta:g}, and {float(self._reserve):g} "
                "is reserved for that: choose a larger delta, or a mechanism without one"
            )
        return None

    def _record(self, entry: Entry) -> None:
        self._spent += exactly(entry.price)
        if delta := failure_probability(entry.cost):
            self._spent_delta += exactly(delta)
        self._entries.append(entry)

    # Conversions -------------------------------------------------------------------------------------------

    def spent_epsilon(self) -> float:
        """Return the epsilon that what was spent amounts to at this ledger's delta. A description of the run."""
        if not self._entries:
            return 0.0
        return min(self._epsilon, self._currency.epsilon(self.spent, self._counted_delta or 0.5))

    def statement(self) -> dict[str, Any]:
        """Return the privacy statement of the run so far as plain data.

        It lists the kinds of randomness under ``"randomness"`` if any charge says where its noise comes from. Under
        ``"sampler_error"`` it says how far a draw of noise is from its law in total variation, and what that adds to
        delta over so many draws: it is within the stated delta, unless that is 0 or epsilon is huge. Above an epsilon
        of about 100 the samplers, whose draws are bounded, do not keep the promise of the laws, and it says so.
        """
        sampled = sampler_delta(self._epsilon)
        kinds = {entry.randomness for entry in self._entries}
        randomness = sorted(kind or "not recorded" for kind in kinds) if kinds - {None} else []
        return {
            "epsilon": self._epsilon,
            "delta": self._delta,
            "unit": "one row",
            "relation": str(self._relation),
            "currency": self._currency.to_dict(),
            "budget": self._budget,
            "spent": self.spent,
            "spent_epsilon": self.spent_epsilon(),
            "sampler_error": {
                "total_variation_per_draw": SAMPLER_ERROR,
                "draws": RUN_DRAWS,
                "delta": sampled,
                "within_delta": sampled <= Fraction(self._delta) * SAMPLER_SHARE,
            },
            "mechanisms": dict(sorted(Counter(kind for e in self._entries for kind in _kinds(e.cost)).items())),
        } | ({"randomness": randomness} if randomness else {})

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
        data = parse_json(text, "the text")
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

    @classmethod
    def open(cls, path: str | os.PathLike[str]) -> Ledger:
        """Continue the ledger in the file ``path``."""
        head, journal = JournalFile.open(Path(path))
        ledger = cls._from_header(head, str(path))
        ledger._journal = journal
        with journal.hold(ledger._replay):
            return ledger

    def _replay(self, records: Any) -> None:
        """Take over the charges that others have recorded: all of them, or none if one is damaged."""
        if not isinstance(records, list):
            raise LedgerFormatError("the entries of a ledger must be a list")
        before = len(self._entries), self._spent, self._spent_delta
        try:
            for record in records:
                entry = Entry.from_dict(record)
                objection = self._objection(entry.cost, entry.price)
                if objection is not None:
                    raise LedgerFormatError(f"the ledger records more than its budget: {objection}")
                self._record(entry)
        except BaseException:
            count, self._spent, self._spent_delta = before
            del self._entries[count:]
            raise

    # Copies ------------------------------------------------------------------------------------------------

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __getstate__(self) -> dict[str, Any]:
        return {"json": self.to_json(), "path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        path = state["path"]
        shared = path is not None and path.exists()
        ledger = Ledger.open(path) if shared else Ledger.from_json(state["json"])
        self.__dict__.update(ledger.__dict__)
        if not shared:
            self._journal = Memory(read_only=True)

    def __repr__(self) -> str:
        return (
            f"Ledger(epsilon={self._epsilon:g}, delta={self._delta:g}, currency={self._currency.name!r}, "
            f"relation={str(self._relation)!r}, spent={self.spent / self._budget:.1%})"
        )


def _kinds(cost: Cost) -> list[str]:
    """Return the kind of a cost, or of each of its parts if they were only charged together."""
    if isinstance(cost, Composed):
        return [kind for part in cost.parts for kind in _kinds(part)]
    return [cost.kind]
