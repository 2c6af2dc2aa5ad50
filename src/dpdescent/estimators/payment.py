"""How a fit is paid for: by its own ledger, and by the account that a caller shares among several fits.

With an account the fit's own ledger is opened in the account's currency, so that both charge the same prices and
every comparison between them is exact. The account is charged with the whole budget of the fit before a row is
touched, and afterwards with what the fit has spent. What it cannot pay for is refused before either is charged.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

from ..accounting import currency_named
from ..errors import InvalidParameter
from ..ledger import ONE_ROW, Ledger, reserving
from ..solvers import Facts, Method, Settings

__all__ = ["charges_noted", "open_ledger", "paid_by", "share_charged"]


def open_ledger(
    name: str,
    method: Method,
    settings: Settings,
    options: Mapping[str, Any] | None,
    facts: Facts,
    account: Ledger | None,
    unit: str = ONE_ROW,
) -> Ledger:
    """Return the ledger of one fit, or raise if an account does not fit it; whether it suffices is asked later.

    Parameters
    ----------
    name, method, settings, options
        The method by name, its entry in the registry, its settings, and those settings that the caller gave.
    facts : Facts
        What is public before the run.
    account : Ledger, optional
        The ledger that pays as well. Without it the method chooses the currency.
    unit : str
        What is protected, in words.

    Raises
    ------
    UnsupportedCost
        The method depends on a mechanism that has no price in the currency of the account.
    InvalidParameter
        The account keeps another relation, or the caller asked for another currency.
    """
    if account is None:
        chosen = currency_named(settings.choose_currency(facts), facts.epsilon, facts.delta)
        return Ledger(facts.epsilon, facts.delta, currency=chosen, relation=facts.relation, unit=unit)
    if not method.private:
        raise InvalidParameter(f"method {name!r} is not private, so no ledger can pay for it: leave ledger out")
    _require_agreement(name, settings, options, facts, account)
    if account.unit != unit:
        raise InvalidParameter(
            f"the ledger protects {account.unit} and this fit {unit}: open a ledger with unit={unit!r}, since what "
            "is spent on one says nothing about the other"
        )
    try:
        own = Ledger(facts.epsilon, facts.delta, currency=account.currency, relation=facts.relation, unit=unit)
    except InvalidParameter:
        if account.currency.name != "rdp":
            raise
        least, order = account.currency.epsilon(0.0, facts.delta), account.currency.to_dict()["order"]
        raise InvalidParameter(
            f"the ledger keeps rdp at order {order:g}, which certifies no epsilon below "
            f"{least:.4g} at delta {facts.delta:g}: raise epsilon, or open the ledger with currency 'gdp' or 'zcdp'"
        ) from None
    return own


def _require_agreement(
    name: str, settings: Settings, options: Mapping[str, Any] | None, facts: Facts, account: Ledger
) -> None:
    if str(account.relation) != facts.relation:
        raise InvalidParameter(
            f"the ledger keeps the relation {account.relation} and this fit {facts.relation}: choose "
            f"adjacency {str(account.relation)!r}, or open the ledger with {facts.relation}"
        )
    kept, asked = account.currency.name, (options or {}).get("currency")
    if asked is not None and asked != kept:
        raise InvalidParameter(
            f"the settings ask for the currency {asked!r} and the ledger keeps {kept!r}: leave currency out of "
            f"them, or open the ledger with currency {asked!r}"
        )
    settings.payment.require(name, account.currency)


def paid_by(account: Ledger | None, own: Ledger, label: str) -> AbstractContextManager[None]:
    """Return a context for a fit: an account, if there is one, is charged before it and settled after it."""
    return nullcontext() if account is None else reserving(account, own, label)


@contextmanager
def charges_noted(ledger: Ledger) -> Iterator[None]:
    """Add a note to whatever ends a fit early, an interrupt included: how much had been charged, rounded up."""
    try:
        yield
    except BaseException as problem:
        if ledger.entries:
            problem.add_note(share_charged(ledger.spent, ledger.budget))
        raise


def share_charged(spent: float, budget: float) -> str:
    """Return a sentence on how much of a fit's budget was charged."""
    return f"{math.ceil(1000 * spent / budget) / 10:g}% of the privacy budget of this fit had been charged"
