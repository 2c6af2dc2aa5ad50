"""The privacy statement: a typed document that travels with a model.

It has few facts of its own, namely the guarantee, every charge, and what the caller said is public. All other numbers
(the budget in the currency, what was spent, counts and shares) follow from them and are computed; a document that is
read must agree with what follows from it. So an epsilon that was edited no longer fits the budget, a charge that was
taken out no longer fits what was spent, and noise that was made smaller costs more than was stated.

What a statement is made of: charges, and sentences about what is public.

A charge says what the data was touched for, by which mechanism, and how often.

A sentence about a public fact reads ``name: what it is (origin)``. The name is that of the argument by which a caller
gives the fact. Whatever was read from the rows without being paid for is an exception to the guarantee.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from fractions import Fraction
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..accounting import (
    Composed,
    Cost,
    Currency,
    FixedSchedule,
    Gaussian,
    cost_from_dict,
    currency_from_dict,
    kinds_of,
    round_up,
)
from ..errors import DPDescentError, InvalidParameter, MissingPackage, OutputNotWritable, StatementError
from ..ledger import Entry, Ledger
from ..relations import Relation
from .sealed_files import AGREEMENT, FileKind, agree, load_schema, objection, with_nulls

FORMAT, VERSION = "dpdescent-privacy-statement", 1
FILE = FileKind(FORMAT, VERSION, "privacy statement", StatementError)

_SUMS = {
    "zcdp": "the sum of rho",
    "gdp": "the sum of mu^2",
    "rdp": "the sum of Renyi divergences at one order",
    "pure": "the sum of epsilon",
    "approximate": "the sums of epsilon and delta",
}
_TEXTS = ("library_version", "model", "method", "unit", "randomness", "arithmetic")
_SENTENCES = ("released", "assumed_public", "remarks")
_OPTIONAL = ("account", "fingerprint", "rows_per_unit", "steps", "sampling_rate", "noise_multiplier", "clip_norm")


@dataclass(frozen=True)
class PrivacyStatement:
    """What was released, under which guarantee, and every time the data was touched.

    Estimators keep it as plain data in ``privacy_``; `from_dict` builds the typed statement from that, and `save` and
    `load` write and read it as a file. ``dpdescent explain`` shows it to a person.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee; infinite and 1 where there is none.
    relation : str
        What one unit may change: "zero-out" or "replace-one".
    currency : Currency or None
        The accountant; None where nothing is guaranteed.
    charges : tuple of Charge
        Every charge, none left out.
    model, method : str
        What was fitted, and by which solver.
    randomness : str
        Where the noise comes from.
    arithmetic : str
        Whether sums and noise are exact or in floating point.
    released : tuple of str
        What may be published.
    unit : str
        Whose data is protected.
    assumed_public, remarks : tuple of str
        What the caller said is public, and what the method did to the rows or to the loss.
    account : str, optional
        Identity of a ledger that has paid as well.
    fingerprint : str, optional
        Whatever the caller wants to recognise the data by; see `with_fingerprint`.
    rows_per_unit : int, optional
        How many rows of a unit were used at most, where a unit may have several.
    steps, sampling_rate, noise_multiplier, clip_norm : optional
        The plan of a training of a network.
    library_version : str
        Release that wrote the statement.

    Notes
    -----
    **Privacy** The guarantee is (epsilon, delta), for the whole budget. What was spent describes the run: it is
    computed from released answers. Parts of the rows that share no row pay side by side, so that of their totals the
    largest counts and not the sum.

    Examples
    --------
    >>> from dpdescent import DPLogisticRegression, PrivacyStatement, load_dataset
    >>> data = load_dataset("synthetic", n=2000)
    >>> model = DPLogisticRegression(epsilon=1.0, delta=1e-6, bounds=data.bounds, classes=data.classes)
    >>> statement = PrivacyStatement.from_dict(model.fit(data.X, data.y).privacy_)
    >>> statement.epsilon, statement.relation, statement.spent <= statement.budget
    (1.0, 'zero-out', True)
    """

    epsilon: float
    delta: float
    relation: str
    currency: Currency | None
    charges: tuple[Charge, ...]
    model: str
    method: str
    randomness: str
    arithmetic: str
    released: tuple[str, ...] = ()
    unit: str = "one row"
    assumed_public: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    account: str | None = None
    fingerprint: str | None = None
    rows_per_unit: int | None = None
    steps: int | None = None
    sampling_rate: float | None = None
    noise_multiplier: float | None = None
    clip_norm: float | None = None
    library_version: str = field(default_factory=lambda: _library_version())

    @classmethod
    def of_ledger(cls, ledger: Ledger, **facts: Any) -> PrivacyStatement:
        """Return the statement of a run that one ledger has paid for."""
        charges, relation = charges_of(ledger.entries), str(ledger.relation)
        return cls(ledger.epsilon, ledger.delta, relation, ledger.currency, charges, unit=ledger.unit, **facts)

    @classmethod
    def without_privacy(cls, **facts: Any) -> PrivacyStatement:
        """Return the statement of a run that guarantees nothing."""
        return cls(math.inf, 1.0, currency=None, charges=(), **facts)

    def with_fingerprint(self, fingerprint: str) -> PrivacyStatement:
        """Return the statement with a fingerprint of the data.

        **Privacy** A digest of the rows is an answer about them, and nobody pays for it: who guesses the table can
        check the guess. Take the name of a file, or a digest with a secret key.
        """
        if not isinstance(fingerprint, str) or not 0 < len(fingerprint) <= 200:
            raise InvalidParameter("a fingerprint is a text of 1 to 200 characters")
        return replace(self, fingerprint=fingerprint)

    # What follows from the facts -----------------------------------------------------------------------------

    @property
    def private(self) -> bool:
        """Whether anything is guaranteed."""
        return self.currency is not None

    @cached_property
    def _ledger(self) -> Ledger:
        """An unused ledger of this guarantee."""
        assert self.currency is not None
        return Ledger(self.epsilon, self.delta, currency=self.currency, relation=self.relation)

    @property
    def budget(self) -> float:
        """The budget in units of the currency."""
        return self._ledger.budget if self.private else math.inf

    @cached_property
    def spent(self) -> float:
        """What was charged, in units of the currency, rounded up."""
        if not self.private:
            return math.inf
        return round_up(self._largest(self._price))

    @property
    def spent_epsilon(self) -> float:
        """The epsilon that what was spent amounts to. A description of the run."""
        return self._ledger.epsilon_of(self.spent) if self.private else math.inf

    def share(self, charge: Charge) -> float:
        """Return the share of the budget that a charge has taken."""
        return float(self._price(charge) / Fraction(self.budget))

    def _price(self, charge: Charge) -> Fraction:
        assert self.currency is not None
        return charge.count * Fraction(self.currency.price(charge.mechanism))

    def _largest(self, amount: Callable[[Charge], Fraction]) -> Fraction:
        """Return the sum over charges for those rows that paid most: all of them, and the most expensive part."""
        parts: dict[str, Fraction] = {ALL_ROWS: Fraction(0)}
        for charge in self.charges:
            parts[charge.rows] = parts.get(charge.rows, Fraction(0)) + amount(charge)
        everybody = parts.pop(ALL_ROWS)
        return everybody + max(parts.values(), default=Fraction(0))

    @property
    def sampler_error(self) -> dict[str, Any] | None:
        """What the samplers' distance from their laws adds to delta; see `Ledger.statement`."""
        found: dict[str, Any] | None = self._ledger.statement()["sampler_error"] if self.private else None
        return found

    @property
    def mechanisms(self) -> dict[str, int]:
        """How often each kind of mechanism ran."""
        counted: Counter[str] = Counter()
        for charge in self.charges:
            for kind in kinds_of(charge.mechanism):
                counted[kind] += charge.count
        return dict(sorted(counted.items()))

    @property
    def spent_on(self) -> dict[str, float]:
        """The share of the budget that went to each kind of query."""
        shares: dict[str, float] = {}
        for charge in self.charges:
            shares[charge.label] = shares.get(charge.label, 0.0) + self.share(charge)
        return shares

    @property
    def asked(self) -> dict[str, int]:
        """How often each kind of query was charged for."""
        counted: Counter[str] = Counter()
        for charge in self.charges:
            counted[charge.label] += charge.count
        return dict(counted)

    # Plain data and files ------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Return the statement as plain data, which is what ``privacy_`` holds.

        ``private`` is True, or False where nothing is guaranteed. Where something was read from the rows that nobody
        paid for, it says what the guarantee leaves out.
        """
        adds = "" if self.currency is None else _SUMS[self.currency.name]
        data = {
            "format": FORMAT,
            "version": VERSION,
            "library_version": self.library_version,
            "private": exceptions_noted(self.private, self.assumed_public),
            "model": self.model,
            "method": self.method,
            "released": list(self.released),
            "epsilon": self.epsilon,
            "delta": self.delta,
            "unit": self.unit,
            "relation": self.relation,
            "currency": None if self.currency is None else self.currency.to_dict(),
            "filter": f"refuses a charge with which {adds} would exceed the budget" if adds else None,
            "budget": self.budget,
            "spent": self.spent,
            "spent_epsilon": self.spent_epsilon,
            "sampler_error": self.sampler_error,
            "mechanisms": self.mechanisms,
            "charges": [self._charge_as_data(charge) for charge in self.charges],
            "spent_on": self.spent_on,
            "asked": self.asked,
            "randomness": self.randomness,
            "arithmetic": self.arithmetic,
            "assumed_public": list(self.assumed_public),
            "remarks": list(self.remarks),
        }
        return data | {name: value for name in _OPTIONAL if (value := getattr(self, name)) is not None}

    def _charge_as_data(self, charge: Charge) -> dict[str, Any]:
        return {
            "label": charge.label,
            "mechanism": charge.mechanism.to_dict(),
            "count": charge.count,
            "share": self.share(charge),
            "rows": charge.rows,
        }

    @classmethod
    def from_dict(cls, data: Any) -> PrivacyStatement:
        """Build a statement from plain data, or raise `StatementError` if it is malformed or contradicts itself."""
        plain = with_nulls(data)
        wrong = objection(plain, load_schema(__package__, "privacy-statement.schema.json"))
        if wrong is not None:
            raise StatementError(f"the privacy statement is malformed: {wrong}")
        try:
            facts: dict[str, Any] = {name: plain[name] for name in _TEXTS}
            facts |= {name: tuple(plain[name]) for name in _SENTENCES}
            facts |= {name: plain[name] for name in _OPTIONAL if name in plain}
            statement = cls(
                math.inf if plain["epsilon"] is None else float(plain["epsilon"]),
                float(plain["delta"]),
                plain["relation"],
                None if plain["currency"] is None else currency_from_dict(plain["currency"]),
                tuple(_charge_from_data(each) for each in plain["charges"]),
                **facts,
            )
            statement._require_sound()
            again = with_nulls(statement.to_dict())
        except (StatementError, MissingPackage):
            raise
        except DPDescentError as problem:
            raise StatementError(f"the privacy statement cannot be true: {problem}") from None
        except (ArithmeticError, RuntimeError):  # no float holds them, or no search for them ends
            raise StatementError("the privacy statement cannot be true: its numbers are out of range") from None
        wrong = next((name for name, value in again.items() if not agree(plain[name], value)), None)
        if wrong is not None:
            raise StatementError(
                f"the privacy statement contradicts itself: {wrong!r} does not follow from its charges and its "
                f"guarantee; it was edited, or release {statement.library_version!r:.20} had other prices"
            )
        return statement

    def _require_sound(self) -> None:
        """Raise unless the charges hold for the relation and fit into the budget."""
        if not self.private:
            if (self.epsilon, self.delta, self.charges) != (math.inf, 1.0, ()):
                raise StatementError("the privacy statement states a guarantee without an accountant")
            return
        require_priceable(each.mechanism for each in self.charges)
        ledger = self._ledger
        for charge in self.charges:
            if Relation.parse(self.relation) not in charge.mechanism.relations:
                raise StatementError(f"the charge for {charge.label!r} does not hold under {self.relation}")
            if not math.isfinite(self.currency.price(charge.mechanism)):  # type: ignore[union-attr]
                raise StatementError(f"the charge for {charge.label!r} has no price in the stated currency")
        if self.spent > ledger.budget * (1 + AGREEMENT):
            raise StatementError("the privacy statement lists charges that exceed its budget")
        failures = self._largest(lambda each: each.count * Fraction(each.mechanism.delta))
        if failures > ledger.failure_limit * (1 + Fraction(AGREEMENT)):
            raise StatementError("the mechanisms of the privacy statement may fail with more than its delta")

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statement to a JSON file, with a digest."""
        content = with_nulls(self.to_dict())
        try:
            Path(path).write_text(FILE.seal(content), encoding="utf-8")
        except OSError as problem:
            raise OutputNotWritable(f"cannot write {path}: {problem.strerror}; choose another place") from None

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> PrivacyStatement:
        """Read a statement from a file, or raise `StatementError` if it was damaged or edited."""
        return cls.from_dict({"format": FORMAT, "version": VERSION} | FILE.read(Path(path)))


def _charge_from_data(data: Mapping[str, Any]) -> Charge:
    return Charge(data["label"], cost_from_dict(data["mechanism"]), int(data["count"]), data["rows"])


def _library_version() -> str:
    from .. import __version__

    return __version__


ALL_ROWS = "all"


@dataclass(frozen=True)
class Charge:
    """Equal charges for one kind of query."""

    label: str  # what was asked
    mechanism: Cost  # with its parameters, in units of the sensitivity
    count: int = 1  # how many of them
    #: Whose budget has paid: that of all rows, or that of one of several parts which share no row.
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
