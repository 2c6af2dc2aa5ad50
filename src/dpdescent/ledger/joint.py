"""One charge to several ledgers: all of them accept it, or none is charged."""

from __future__ import annotations

from contextlib import ExitStack

from ..accounting import Cost
from .filter import Ledger

__all__ = ["spend_jointly"]


def spend_jointly(ledgers: tuple[Ledger, ...], cost: Cost, label: str = "") -> None:
    """Charge ``cost`` to every ledger, or raise and charge it to none.

    The ledgers must be different ones. They are held in a fixed order, so two callers never wait for each other.
    """
    with ExitStack() as held:
        ordered = sorted(ledgers, key=lambda ledger: (str(ledger.path or ""), id(ledger)))
        for charge in [held.enter_context(ledger._accepting(cost, label)) for ledger in ordered]:
            charge()
