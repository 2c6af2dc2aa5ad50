"""Where a ledger keeps its record, as a budget sees it: hold it, read what is new, append.

A store starts with a head that never changes and goes on with one plain mapping per record, under a number of its
own. It knows nothing of budgets and prices. Any store that can be held by one process at a time and that appends
durably can be a store.
"""

from __future__ import annotations

import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from weakref import WeakSet

from ..errors import LedgerBusy, LedgerError

Replay = Callable[[list[tuple[int, Any]]], None]
Append = Callable[[dict[str, Any], Callable[[int], None]], None]

READ_ONLY = "this ledger is a read-only copy: spend on the original, or keep the ledger in a file (path=...)"


class Store(ABC):
    """The append-only record behind one ledger."""

    path: Path | None = None

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._turn = 0
        _STORES.add(self)

    def _require_turn(self, turn: int) -> None:
        """Raise unless this is still the turn in which the decision was taken.

        A signal handler runs in the thread that it interrupts, which holds the lock already.
        """
        if turn != self._turn:
            raise LedgerBusy("the ledger was used between a decision and its charge, by a signal handler: ask again")

    @abstractmethod
    def look(self, replay: Replay) -> None:
        """Pass to ``replay`` the numbers and records that others have appended."""

    @abstractmethod
    def hold(self, replay: Replay) -> AbstractContextManager[Append]:
        """Hold the store for this thread of this process alone, having passed on what others have appended.

        What is yielded appends one record: when it can no longer be lost, it calls its second argument with the
        number, by which the budget takes the record over. Raises `LedgerError` if this process may not append.

        A record counts as read only after the budget has it. If either call is interrupted, the record is passed on
        again next time, under the same number.
        """

    def renew_after_fork(self) -> None:
        """Become usable in a child: a lock that was held by a thread of the parent would never be released."""
        self._lock = threading.RLock()


class MemoryStore(Store):
    """No record but the one in the budget, which belongs to the process that made it.

    A ``refusal`` is what whoever wants to append is told.
    """

    def __init__(self, refusal: str | None = None) -> None:
        super().__init__()
        self._refusal = refusal
        self._process = os.getpid()
        self._count = 0

    @property
    def process(self) -> int:
        """The process that may append."""
        return self._process

    def close(self, refusal: str) -> None:
        """Append nothing from now on; a charge that another thread is making is waited for."""
        with self._lock:
            self._refusal = refusal

    def look(self, replay: Replay) -> None:
        """Nobody else can have appended."""

    @contextmanager
    def hold(self, replay: Replay) -> Iterator[Append]:
        with self._lock:
            if self._refusal is not None:
                raise LedgerError(self._refusal)
            if os.getpid() != self._process:
                raise LedgerError(
                    "a ledger in memory belongs to the process that made it: keep it in a file (path=...) to share it"
                )
            self._turn += 1
            yield partial(self._append, self._turn)

    def _append(self, turn: int, _: dict[str, Any], take: Callable[[int], None]) -> None:
        self._require_turn(turn)
        self._count += 1
        take(self._count)


_STORES: WeakSet[Store] = WeakSet()


def _renew_after_fork() -> None:
    for store in list(_STORES):
        store.renew_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_after_fork)
