"""The ledger that people hold: a budget with a record that can be kept in a file, shown, exported and copied."""

from __future__ import annotations

import json
import os
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

from ..accounting import (
    RUN_DRAWS,
    SAMPLER_SHARE,
    Currency,
    PureDP,
    calibrate,
    currency_from_dict,
    kinds_of,
    sampler_delta,
    to_dp_event,
)
from ..errors import DPDescentError, InvalidParameter, LedgerFormatError
from ..noise import SAMPLER_ERROR
from .budget import ONE_ROW, Budget
from .history import READ_ONLY, MemoryStore, Origin, parse_json
from .sqlite_store import SQLiteStore

FORMAT = "dpdescent-ledger"
VERSION = 2


class Ledger(Budget):
    """A privacy budget of (epsilon, delta) that is spent adaptively and never overspent.

    Parameters
    ----------
    epsilon : float
        Greater than 0.
    delta : float
        Between 0 and 1, well below 1/n. Zero only with ``currency="pure"``.
    currency : {"zcdp", "gdp", "rdp", "pure", "approximate"} or Currency, default "zcdp"
        The number that is added up, chosen before the run.
    relation : {"zero-out", "replace-one"}, default "zero-out"
        Which tables are neighbours.
    order : float, optional
        The one Renyi order of ``currency="rdp"``; by default a rule of (epsilon, delta).
    path : path-like, optional
        A new file on a local disk that holds the ledger from now on. `Ledger.open` opens one that exists.
    unit : str, default "one row"
        What is protected, in words. A fit whose rows are grouped by a column "person" protects "one person" with all
        rows, and can only be paid for by a ledger of that unit.

    Notes
    -----
    **Privacy.** If every query of a run was charged to one ledger, the run is (epsilon, delta)-DP for one unit under
    the stated relation. The queries may be chosen adaptively, provided that each depends on the data only through
    released answers. The guarantee is the budget; how much of it was spent follows from released answers and
    describes the run.

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
        unit: str = ONE_ROW,
    ) -> None:
        super().__init__(epsilon, delta, currency=currency, relation=relation, order=order, unit=unit)
        self._origin: Origin | None = None
        if path is not None:
            self._store = SQLiteStore.create(Path(path), self._header())

    @property
    def origin(self) -> Origin | None:
        """The ledger of an earlier release from which this one was imported, if it was."""
        return self._origin

    # Conversions -------------------------------------------------------------------------------------------

    def left(self) -> dict[str, float]:
        """Return what is left in every currency: what one more mechanism may cost at most.

        ``epsilon`` is that of a fit at this ledger's delta, ``gdp`` and ``zcdp`` are mu^2 and rho of one Gaussian
        mechanism, and ``pure`` is the epsilon of one pure mechanism. A pure or approximate ledger pays for no
        Gaussian mechanism.
        """
        amount, gaussian = self.remaining, self._currency.name in ("gdp", "zcdp", "rdp")
        if amount == 0:
            return dict.fromkeys(("epsilon", "gdp", "zcdp", "pure") if gaussian else ("epsilon", "pure"), 0.0)
        left = {"epsilon": self._currency.epsilon(amount, self._counted_delta or 0.5)}
        if gaussian:
            noise = self._currency.gaussian(amount)
            left |= {"gdp": noise.mu_squared(), "zcdp": noise.zcdp()}
        return left | {"pure": calibrate(PureDP, amount, self._currency).epsilon}

    def statement(self) -> dict[str, Any]:
        """Return the privacy statement of the run so far as plain data.

        It lists the kinds of randomness under ``"randomness"`` if any charge says where its noise comes from. Under
        ``"sampler_error"`` it says how far a draw of noise is from its law in total variation, and what that adds to
        delta over the given number of draws. It is within the stated delta, unless that is 0 or epsilon is huge.
        Above an epsilon of about 100 the samplers, whose draws are bounded, do not keep the promise of the laws, and
        it says so.
        """
        sampled = sampler_delta(self._epsilon)
        kinds = {entry.randomness for entry in self.entries}
        randomness = sorted(kind or "not recorded" for kind in kinds) if kinds - {None} else []
        return {
            "epsilon": self._epsilon,
            "delta": self._delta,
            "unit": self._unit,
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
            "mechanisms": dict(sorted(Counter(kind for e in self.entries for kind in kinds_of(e.cost)).items())),
        } | ({"randomness": randomness} if randomness else {})

    def to_dp_event(self) -> Any:
        """Return the record as one ``dp_accounting.ComposedDpEvent``; see `accounting.to_dp_event`."""
        events = [to_dp_event(entry.cost) for entry in self.entries]
        import dp_accounting

        return dp_accounting.ComposedDpEvent(events)

    def _header(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "version": VERSION,
            "id": self._identity,
            "epsilon": self._epsilon,
            "delta": self._delta,
            "currency": self._currency.to_dict(),
            "relation": str(self._relation),
            "unit": self._unit,
        } | ({} if self._origin is None else {"origin": self._origin.to_dict()})

    def to_json(self) -> str:
        """Return the ledger as one JSON text."""
        return json.dumps(self._header() | {"entries": [entry.to_dict() for entry in self.entries]}, indent=1)

    @classmethod
    def from_json(cls, text: str) -> Ledger:
        """Return a read-only copy of the ledger written by `to_json`: only the original may spend."""
        data = parse_json(text, "the text")
        ledger = cls._from_header(data, "the text")
        entries = data.get("entries", [])
        if not isinstance(entries, list):
            raise LedgerFormatError("the entries of a ledger must be a list")
        ledger._replay(list(enumerate(entries, start=1)))
        ledger._store = MemoryStore(READ_ONLY)
        return ledger

    @classmethod
    def _from_header(cls, data: Any, where: str) -> Ledger:
        if not isinstance(data, dict) or data.get("format") != FORMAT:
            raise LedgerFormatError(f"{where} is not a dpdescent ledger")
        if data.get("version") not in range(1, VERSION + 1):
            raise LedgerFormatError(
                f"{where} is a ledger of version {data.get('version')!r}, and this release reads version {VERSION}: "
                "use the release that wrote it"
            )
        try:
            currency = currency_from_dict(data["currency"])
            unit = data.get("unit", ONE_ROW)
            ledger = cls(data["epsilon"], data["delta"], currency=currency, relation=data["relation"], unit=unit)
        except (KeyError, TypeError, InvalidParameter) as problem:
            raise LedgerFormatError(f"the head of {where} is damaged: {problem}") from None
        identity = data.get("id", ledger._identity if data["version"] == 1 else None)
        if not isinstance(identity, str):
            raise LedgerFormatError(f"the head of {where} is damaged: a ledger has an id")
        ledger._identity = identity
        ledger._origin = Origin.from_dict(data["origin"]) if data.get("origin") is not None else None
        return ledger

    @classmethod
    def open(cls, path: str | os.PathLike[str], *, model: str | os.PathLike[str] | None = None) -> Ledger:
        """Continue the ledger in the file ``path``.

        Every charge that is made by what is returned records the file ``model``, if one is given.
        """
        head, store = SQLiteStore.open(Path(path))
        ledger = cls._from_header(head, str(path))
        ledger._store = store
        ledger._model = None if model is None else os.fspath(model)
        store.look(ledger._replay)
        return ledger

    def verify(self) -> None:
        """Check every page and record of the ledger's file.

        Raises `LedgerFormatError` if the file was changed from outside. A ledger in memory has nothing to check.
        """
        if isinstance(self._store, SQLiteStore):
            self._store.check_pages()
            Ledger.open(self._store.path)

    # Copies ------------------------------------------------------------------------------------------------

    def __copy__(self) -> Ledger:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Ledger:
        return self

    def __getstate__(self) -> dict[str, Any]:
        store = self._store
        position = store.position if isinstance(store, SQLiteStore) else None
        return {"json": self.to_json(), "path": self.path, "position": position, "model": self._model}

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Continue the file if it is still this ledger and has forgotten nothing; else be a read-only copy."""
        found = Ledger.from_json(state["json"])
        if state["path"] is not None:
            try:
                shared = Ledger.open(state["path"], model=state["model"])
                if isinstance(shared._store, SQLiteStore) and shared._store.has(state["position"]):
                    found = shared
            except DPDescentError:
                pass
        self.__dict__.update(found.__dict__)

    def __repr__(self) -> str:
        return (
            f"Ledger(epsilon={self._epsilon:g}, delta={self._delta:g}, currency={self._currency.name!r}, "
            f"relation={str(self._relation)!r}, spent={self.spent / self._budget:.1%})"
        )
