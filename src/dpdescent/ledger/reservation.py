"""A fit that is paid for at once: what it may spend is charged before it starts, and settled when it is over.

So a shared ledger is written twice per fit, however many questions the fit asks. Why settling is sound is said in
`tally`; it needs that the fit's own ledger lets through no more than was reserved, and nothing once it is settled.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from fractions import Fraction

from ..accounting import FilteredRun, round_up
from ..errors import BudgetExhausted, InvalidParameter, LedgerError, LedgerFormatError, LedgerWarning
from .amounts import as_fraction
from .book import Ledger
from .joint import require_distinct
from .journal import Memory

__all__ = ["require_funds", "reserving"]

_OVER = "the run of this ledger is over and settled: open another ledger for another run"


def require_funds(account: Ledger, own: Ledger) -> None:
    """Raise `BudgetExhausted` unless ``account`` could pay now for all that ``own`` may spend."""
    if not account.affords(_whole_run(account, own)):
        raise _refusal(account, own)


@contextmanager
def reserving(account: Ledger, own: Ledger, label: str = "") -> Iterator[None]:
    """Charge to ``account`` all that a run may spend by its ``own`` ledger; afterwards keep what it did spend.

    Parameters
    ----------
    account : Ledger
        The ledger that pays, in memory or in a file.
    own : Ledger
        A new ledger in memory, of the same relation and currency. It is closed when the run is over.
    label : str, optional
        What the account calls the run.

    Notes
    -----
    **Privacy** The charge is durable before the body runs, and a refusal changes neither ledger. The run is settled
    however it ends, by an error too: its own ledger was charged before a row was touched. If the process dies, or
    the account cannot be written in the end, the whole stays charged.

    A run may fail, beyond what its currency counts, with the same share of what the account reserves for failures as
    it takes of the budget; in the currency ``approximate``, where that is what delta is for, with all of its delta.
    """
    require_distinct((account, own))
    if own.entries or not isinstance(own._journal, Memory):
        raise InvalidParameter("a run is reserved for by a ledger in memory that was not used: open a new one")
    if (own.relation, own.currency, own.unit) != (account.relation, account.currency, account.unit):
        raise InvalidParameter("a run and the ledger that pays for it must keep one relation, currency and unit")
    whole = _whole_run(account, own)
    try:
        number = account._reserve(whole, label)
    except BudgetExhausted:
        raise _refusal(account, own) from None
    own._failure_limit = Fraction(whole.failure)
    try:
        yield
    finally:
        if os.getpid() == own._journal.process:  # a forked child may not give back what its parent still spends
            own._journal.close(_OVER)
            try:
                account._settle(number, own.entries)
            except (LedgerError, LedgerFormatError) as problem:
                warnings.warn(
                    f"the whole budget of a run stays charged, because it could not be settled: {problem}",
                    LedgerWarning,
                    stacklevel=3,
                )


def _whole_run(account: Ledger, own: Ledger) -> FilteredRun:
    """Return what is to be reserved, given what others have spent from a shared file."""
    account._journal.look(account._replay)
    share = Fraction(1) if own.currency.name == "approximate" else Fraction(own.budget) / Fraction(account.budget)
    left = account._failure_limit - as_fraction(account._tally.failures)
    failure = max(Fraction(0), min(own._failure_limit, account._failure_limit * share, left))
    order = own.currency.to_dict().get("order")
    return FilteredRun(own.currency.name, own.budget, max(0.0, -round_up(-failure)), order)


def _refusal(account: Ledger, own: Ledger) -> BudgetExhausted:
    return BudgetExhausted(
        f"the ledger has enough left for a fit of epsilon {account.left()['epsilon']:.4g} at delta {account.delta:g}"
        f", and this fit asks for epsilon {own.epsilon:g} at delta {own.delta:g}: lower epsilon, or open a ledger "
        "with a larger budget"
    )
