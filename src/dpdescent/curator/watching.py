"""An audit that watches a fit: it sees what goes into each release and says what comes out.

Usually nobody watches, and then nothing happens in this module. `dpdescent.audit.replay` watches a fit, keeps its
answers, and gives them to a fit of a neighbouring table. A watcher belongs to a context (`contextvars`), so that fits
in other threads or tasks are neither seen nor changed. It sees exact sums, and must be trusted as a fit is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

from ..accounting import Cost
from ..exact import LatticeSum
from ..relations import Relation

__all__ = ["Release", "Watcher", "public_count", "released", "watched_by"]


@dataclass(frozen=True, eq=False)
class Release:
    """An answer that was paid for and is about to leave.

    ``mechanism`` is the part of what was ``charged`` under ``label`` that makes the answer of ``total``, which is
    **unreleased data**; there is none for a point that is drawn. The answer is divided by ``divisor`` afterwards.
    """

    label: str
    charged: Cost
    mechanism: Cost
    relation: Relation
    total: LatticeSum | None
    divisor: float = 1.0
    symmetric: bool = False


#: Returns the answer of a release, by drawing it or otherwise.
Watcher = Callable[[Release, Callable[[], Any]], Any]

_WATCHER: ContextVar[Watcher | None] = ContextVar("dpdescent watcher", default=None)
_COUNT: ContextVar[int | None] = ContextVar("dpdescent public count", default=None)


@contextmanager
def watched_by(watcher: Watcher, count: int | None = None) -> Iterator[None]:
    """Show what is released in this context to a watcher; ``count`` is what `public_count` returns in it."""
    watching, counting = _WATCHER.set(watcher), _COUNT.set(count)
    try:
        yield
    finally:
        _WATCHER.reset(watching)
        _COUNT.reset(counting)


def released(release: Release, draw: Callable[[], Any]) -> Any:
    """Return what a mechanism answers, which is ``draw()`` unless somebody watches."""
    watcher = _WATCHER.get()
    return draw() if watcher is None else watcher(release, draw)


def public_count(counted: int) -> int:
    """Return the public number of places for rows, or for units: as many as were ``counted`` in the table.

    Under zero-out a neighbour lacks a row, and the number of places stays as it is: a watcher says what it is.
    """
    count = _COUNT.get()
    return counted if count is None else count
