"""Ledgers that several fits share: one charge to several ledgers, and a whole fit that is paid for at once.

**One charge, several ledgers.** All of them accept it, or none is charged. A fit with a budget of its own may also
count against a budget that several fits share. Its answers must then be paid for in both ledgers before any row is
read.

**A reservation.** What a fit may spend is charged before it starts, and settled when it is over. So a shared ledger
is written twice per fit, however many queries the fit asks. Why settling is sound is said in `history`; it needs that
the fit's own ledger lets through no more than was reserved, and nothing once it is settled.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from fractions import Fraction
from itertools import combinations

from ..accounting import Cost, FilteredRun, round_up
from ..errors import BudgetExhausted, InvalidParameter, LedgerError, LedgerFormatError, LedgerWarning
from .history import Entry, MemoryStore, as_fraction
from .privacy_ledger import Ledger

_OVER = "the run of this ledger is over and settled: open another ledger for another run"


def spend_jointly(ledgers: tuple[Ledger, ...], cost: Cost, label: str = "", randomness: str = "") -> None:
    """Charge ``cost`` to every ledger, or raise and charge it to none.

    They are different ledgers of one relation, in any currencies: each charges its own price. ``label`` says what the
    charge is for, and ``randomness`` where the noise of the answer comes from.

    Notes
    -----
    **Privacy** All ledgers are held while they are asked and charged, so no other process or thread can spend in
    between. Should a disk fail or the process be killed after some of them were charged, those charges stand: a
    ledger may then record more than was computed, never less. Ledgers are held in the order of their identities,
    which no name of a file changes, so two callers never wait for each other.

    Examples
    --------
    >>> from dpdescent import Gaussian, Ledger
    >>> from dpdescent.ledger import spend_jointly
    >>> own, shared = Ledger(1.0, 1e-6, currency="gdp"), Ledger(3.0, 1e-6, currency="zcdp")
    >>> spend_jointly((own, shared), Gaussian(noise_multiplier=10.0), "gradient")
    >>> round(own.spent, 9), round(shared.spent, 9)
    (0.01, 0.005)
    """
    with _hold_all(ledgers, cost, label, randomness) as charges:
        for charge in charges:
            charge()


def require_affordable(ledgers: tuple[Ledger, ...], cost: Cost) -> None:
    """Raise what `spend_jointly` would raise now, and charge nothing.

    Others may spend afterwards, so a later charge can still be refused.
    """
    with _hold_all(ledgers, cost):
        pass


def afford_jointly(ledgers: tuple[Ledger, ...], cost: Cost) -> bool:
    """Return whether every ledger has enough left for ``cost`` now.

    A cost that a ledger cannot charge at all raises, as it does in `spend_jointly`.
    """
    try:
        require_affordable(ledgers, cost)
    except BudgetExhausted:
        return False
    return True


def require_distinct(ledgers: tuple[Ledger, ...]) -> None:
    """Raise `InvalidParameter` if there are no ledgers, or if two of them are one, under whatever names.

    One ledger named twice would be asked twice for one price and then pay two; one file under two names would wait
    for itself, and so would a file and its copy.
    """
    if not ledgers:
        raise InvalidParameter("there is no ledger to charge: give at least one")
    for first, second in combinations(ledgers, 2):
        if first.identity == second.identity:
            where = "" if first.path is None else f" ({first.path} and {second.path} are one ledger)"
            raise InvalidParameter(f"the same ledger is named twice{where} and would pay twice: leave one out")


@contextmanager
def _hold_all(
    ledgers: tuple[Ledger, ...], cost: Cost, label: str = "", randomness: str = ""
) -> Iterator[list[Callable[[], Entry]]]:
    """Hold all ledgers in a state that accepts ``cost``, or raise; calling what it yields makes the charges."""
    require_distinct(ledgers)
    relations = {str(ledger.relation) for ledger in ledgers}
    if len(relations) > 1:
        raise InvalidParameter(
            f"the ledgers keep {' and '.join(sorted(relations))}, and noise is made for one relation: "
            "open all of them with the same relation"
        )
    protected = sorted({ledger.unit for ledger in ledgers})
    if len(protected) > 1:
        raise InvalidParameter(
            f"the ledgers protect {' and '.join(protected)}, and noise is made for one of them: open all of them "
            "with the same unit"
        )
    with ExitStack() as held:
        ordered = sorted(ledgers, key=lambda ledger: ledger.identity)
        yield [held.enter_context(ledger._hold_for(cost, label, randomness)) for ledger in ordered]


def require_funds(shared: Ledger, own: Ledger) -> None:
    """Raise `BudgetExhausted` unless ``shared`` could pay now for all that ``own`` may spend."""
    if not shared.affords(_whole_run(shared, own)):
        raise _refusal(shared, own)


@contextmanager
def reserving(shared: Ledger, own: Ledger, label: str = "") -> Iterator[None]:
    """Charge to ``shared`` all that a run may spend by its ``own`` ledger; afterwards keep what it did spend.

    ``shared`` pays, in memory or in a file; ``own`` is a new ledger in memory, of the same relation and currency,
    which is closed when the run is over. ``label`` is what the shared ledger calls the run.

    **Privacy** The charge is durable before the body runs, and a refusal changes neither ledger. The run is settled
    however it ends, by an error too: its own ledger was charged before a row was touched. If the process dies, or
    the shared ledger cannot be written in the end, the whole stays charged.

    A run may fail, beyond what its currency counts, with the same share of what the shared reserves for failures as
    it takes of the budget; in the currency ``approximate``, where that is what delta is for, with all of its delta.
    """
    require_distinct((shared, own))
    if own.entries or not isinstance(own._store, MemoryStore):
        raise InvalidParameter("a run is reserved for by a ledger in memory that was not used: open a new one")
    if (own.relation, own.currency, own.unit) != (shared.relation, shared.currency, shared.unit):
        raise InvalidParameter("a run and the ledger that pays for it must keep one relation, currency and unit")
    whole = _whole_run(shared, own)
    try:
        number = shared._reserve(whole, label)
    except BudgetExhausted:
        raise _refusal(shared, own) from None
    own._failure_limit = Fraction(whole.failure)
    try:
        yield
    finally:
        if os.getpid() == own._store.process:  # a forked child may not give back what its parent still spends
            own._store.close(_OVER)
            try:
                shared._settle(number, own.entries)
            except (LedgerError, LedgerFormatError) as problem:
                warnings.warn(
                    f"the whole budget of a run stays charged, because it could not be settled: {problem}",
                    LedgerWarning,
                    stacklevel=3,
                )


def _whole_run(shared: Ledger, own: Ledger) -> FilteredRun:
    """Return what is to be reserved, given what others have spent from a shared file."""
    shared._store.look(shared._replay)
    share = Fraction(1) if own.currency.name == "approximate" else Fraction(own.budget) / Fraction(shared.budget)
    left = shared._failure_limit - as_fraction(shared._history.failures)
    failure = max(Fraction(0), min(own._failure_limit, shared._failure_limit * share, left))
    order = own.currency.to_dict().get("order")
    return FilteredRun(own.currency.name, own.budget, max(0.0, -round_up(-failure)), order)


def _refusal(shared: Ledger, own: Ledger) -> BudgetExhausted:
    return BudgetExhausted(
        f"the ledger has enough left for a fit of epsilon {shared.left()['epsilon']:.4g} at delta {shared.delta:g}"
        f", and this fit asks for epsilon {own.epsilon:g} at delta {own.delta:g}: lower epsilon, or open a ledger "
        "with a larger budget"
    )
