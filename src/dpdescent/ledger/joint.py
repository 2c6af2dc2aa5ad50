"""One charge to several ledgers: all of them accept it, or none is charged.

A fit with a budget of its own may also count against a budget that several fits share. Its answers must then be
paid for in both ledgers before any row is read.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import combinations

from ..accounting import Cost
from ..errors import BudgetExhausted, InvalidParameter
from .book import Ledger
from .entries import Entry

__all__ = ["afford_jointly", "require_affordable", "require_distinct", "spend_jointly"]


def spend_jointly(ledgers: tuple[Ledger, ...], cost: Cost, label: str = "", randomness: str = "") -> None:
    """Charge ``cost`` to every ledger, or raise and charge it to none.

    Parameters
    ----------
    ledgers : tuple of Ledger
        Different ledgers of one relation, in any currencies: each charges its own price.
    cost : Cost
        What the answer costs.
    label : str, optional
        What the charge is for.
    randomness : str, optional
        Where the noise of the answer comes from.

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
    with _accepting(ledgers, cost, label, randomness) as charges:
        for charge in charges:
            charge()


def require_affordable(ledgers: tuple[Ledger, ...], cost: Cost) -> None:
    """Raise what `spend_jointly` would raise now, and charge nothing.

    Others may spend afterwards, so a later charge can still be refused.
    """
    with _accepting(ledgers, cost):
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
def _accepting(
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
        yield [held.enter_context(ledger._accepting(cost, label, randomness)) for ledger in ordered]
