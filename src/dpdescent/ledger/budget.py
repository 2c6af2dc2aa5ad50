"""The budget of a ledger: the price of a request, and the decision that comes before the data is touched."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..accounting import SAMPLER_SHARE, Cost, Currency, FilteredRun, currency_named
from ..errors import (
    BudgetExhausted,
    InvalidParameter,
    LedgerError,
    LedgerFormatError,
    UnsupportedCost,
    require_finite,
    require_open_unit,
    require_positive,
)
from ..relations import Relation
from .history import (
    Entry,
    History,
    Line,
    MemoryStore,
    Store,
    as_float,
    as_fraction,
    exactly,
    failure_probability,
    price_of,
)

#: The unit of privacy, unless rows are grouped by the person whom they are about.
ONE_ROW = "one row"


def unit_in_words(name: Any) -> str:
    """Return which unit of this name is protected: never in the words of single rows, which a ledger keeps apart."""
    words = f"one {name}" if isinstance(name, str) and name else ONE_ROW
    return "one unit" if words == ONE_ROW else words


class Budget:
    """A budget that accepts a request or refuses it, whatever the place where its record is kept; see `Ledger`."""

    def __init__(
        self,
        epsilon: float,
        delta: float,
        *,
        currency: str | Currency = "zcdp",
        relation: str = "zero-out",
        order: float | None = None,
        unit: str = ONE_ROW,
    ) -> None:
        if not isinstance(unit, str) or not unit:
            raise InvalidParameter(f"unit says in words what is protected, such as 'one row', got {unit!r}")
        self._unit = unit
        self._epsilon = require_positive("epsilon", epsilon)
        if require_finite("delta", delta) == 0 and (currency == "pure" or getattr(currency, "name", "") == "pure"):
            self._delta = 0.0
        else:
            self._delta = require_open_unit("delta", delta)
        self._relation = Relation.parse(relation)
        self._currency = currency_named(currency, self._epsilon, self._delta, order)
        whole, uncounted = Fraction(self._delta), self._currency.uncounted
        self._failure_limit = whole * (uncounted - SAMPLER_SHARE)  # for mechanisms that may fail
        self._counted_delta = max(0.0, math.nextafter(float(whole * (1 - uncounted)), 0.0))
        self._budget = self._currency.budget(self._epsilon, self._counted_delta)
        self._limit = exactly(self._budget)
        self._history = History()
        self._identity = secrets.token_hex(16)
        self._model: str | None = None
        self._store: Store = MemoryStore()

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
    def unit(self) -> str:
        """What is protected, in words: one row, or all rows of one person."""
        return self._unit

    @property
    def budget(self) -> float:
        """The budget, in units of the currency."""
        return self._budget

    @property
    def spent(self) -> float:
        """What was spent, in units of the currency, rounded up."""
        return as_float(self._history.spent)

    @property
    def remaining(self) -> float:
        """What is left, in units of the currency, rounded down."""
        left = self._limit - self._history.spent
        return -as_float(-left) if left > 0 else 0.0

    @property
    def failure_limit(self) -> Fraction:
        """What all mechanisms together may fail with, beyond what the currency counts."""
        return self._failure_limit

    @property
    def entries(self) -> tuple[Entry, ...]:
        """Every charge, in order; a fit that is not over yet is one charge of all that it may spend."""
        return self._history.entries

    @property
    def history(self) -> tuple[Line, ...]:
        """The lines of the record, in order: charges, and fits with the charges that they were settled with."""
        return tuple(self._history.lines.values())

    @property
    def identity(self) -> str:
        """A random name that no other ledger has, under whatever path it is opened."""
        return self._identity

    @property
    def path(self) -> Path | None:
        """The file that holds the ledger, if there is one."""
        return self._store.path

    def affords(self, cost: Cost) -> bool:
        """Return whether `spend` would accept ``cost`` now, given what others have spent from a shared file."""
        price = self._price(cost)
        self._store.look(self._replay)
        return self._objection(cost, price) is None

    def spend(self, cost: Cost, label: str = "", randomness: str = "") -> Entry:
        """Charge ``cost``, or raise `BudgetExhausted` and change nothing.

        Call it before the data is touched, never after. The ``label`` says what the charge is for, and
        ``randomness`` where the noise of the answer comes from; both are only recorded.
        """
        with self._hold_for(cost, label, randomness) as charge:
            return charge()

    @contextmanager
    def _hold_for(self, cost: Cost, label: str, randomness: str) -> Iterator[Callable[[], Entry]]:
        """Hold the ledger in a state that accepts ``cost``, or raise; calling what it yields makes the charge."""
        date = None if self.path is None else datetime.now(UTC).isoformat(timespec="seconds")
        entry = Entry(str(label), cost, self._price(cost), str(randomness) or None, date, self._model)
        with self._store.hold(self._replay) as append:
            objection = self._objection(cost, entry.price)
            if objection is not None:
                raise BudgetExhausted(objection)

            def charge() -> Entry:
                append(entry.to_dict(), lambda number: self._history.charge(number, entry))
                return entry

            yield charge

    def _reserve(self, cost: FilteredRun, label: str) -> int:
        """Charge a whole run, or raise `BudgetExhausted`; return the number by which it can be settled."""
        with self._hold_for(cost, label, "") as charge:
            charge()
            return next(reversed(self._history.lines))

    def _settle(self, number: int, charges: tuple[Entry, ...]) -> None:
        """Let the charges of a run that is over take the place of what was reserved for it; see `history`."""
        with self._store.hold(self._replay) as append:
            settled = self._history.copy()
            settled.settle(number, charges)
            if settled.spent > self._history.spent or settled.failures > self._history.failures:
                raise LedgerError("a run has charged more than was reserved for it, so its reservation stands")
            record = {"settles": number, "charges": [entry.to_dict() for entry in charges]}
            append(record, lambda _: self._history.settle(number, charges))

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
            message = f"{_named(cost)} has no price in {self._currency.name}, which this ledger counts in"
            raise UnsupportedCost(f"{message}: {problem}") from None
        if not (math.isfinite(price) and price >= 0):
            raise InvalidParameter(f"{cost} has the price {price} in {self._currency.name}: add noise")
        return price

    def _objection(self, cost: Cost, price: float) -> str | None:
        if self._history.spent + exactly(price) > self._limit:
            return (
                f"{_named(cost)} would cost {price:.6g} {self._currency.name}, and {self.remaining:.6g} of "
                f"{self._budget:.6g} is left: ask for a noisier answer, or stop"
            )
        delta = failure_probability(cost)
        if delta and as_fraction(self._history.failures + exactly(delta)) > self._failure_limit:
            left = max(Fraction(0), self._failure_limit - as_fraction(self._history.failures))
            return (
                f"{_named(cost)} may fail with probability {delta:g}, and {float(left):g} is left of "
                f"{float(self._failure_limit):g}, the part of delta that this ledger has reserved for failures: "
                "choose a larger delta, or a mechanism without one, or open a new ledger, which may reserve more"
            )
        return None

    def spent_epsilon(self) -> float:
        """Return the epsilon that what was spent amounts to at this ledger's delta. A description of the run."""
        return self.epsilon_of(self.spent)

    def epsilon_of(self, total: float) -> float:
        """Return the epsilon that a total in units of the currency amounts to at this ledger's delta."""
        if total == 0:
            return 0.0
        epsilon = self._currency.epsilon(total, self._counted_delta or 0.5)
        return min(self._epsilon, epsilon) if total <= self._budget else epsilon

    def _replay(self, records: list[tuple[int, Any]]) -> None:
        """Take over what others have recorded: all of it, or nothing if a record is damaged.

        What a charge costs is computed from its mechanism. Should that be more than it was when it was accepted, by a
        release that knows better, the ledger may be found overspent; it then says so and accepts nothing more.
        """
        history = self._history.copy()
        for number, record in records:
            if isinstance(record, dict) and "settles" in record:
                charges = record.get("charges")
                if not isinstance(charges, list):
                    raise LedgerFormatError(f"record {number} settles without a list of charges: the file is damaged")
                history.settle(record["settles"], tuple(self._entry(charge) for charge in charges))
            else:
                history.charge(number, self._entry(record))
        self._history = history

    def _entry(self, data: Any) -> Entry:
        try:
            return Entry.from_dict(data, self._price)
        except (InvalidParameter, UnsupportedCost) as problem:
            raise LedgerFormatError(f"the ledger records what it cannot have accepted: {problem}") from None


def _named(cost: Cost) -> str:
    return f"{'an' if cost.kind[0] in 'aeiou' else 'a'} {cost.kind} mechanism"
