"""Where a ledger keeps its record, as the filter sees it: hold it, read what is new, append.

A journal starts with a head that never changes and goes on with one plain mapping per charge. It knows nothing of
budgets and prices. Any store that can be held by one process at a time and that appends durably can be a journal.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

from ..errors import LedgerError

__all__ = ["Append", "Journal", "Memory", "Replay"]

Replay = Callable[[list[Any]], None]
Append = Callable[[dict[str, Any], Callable[[], None]], None]


class Journal(ABC):
    """The append-only record behind one ledger."""

    path: Path | None = None

    @property
    @abstractmethod
    def place(self) -> tuple[int, ...]:
        """Where the record is, by numbers that are the same in every process that shares it."""

    def is_same(self, other: Journal) -> bool:
        """Return whether the other journal keeps the very same record."""
        return self.place == other.place

    @abstractmethod
    def require_writable(self) -> None:
        """Raise `LedgerError` unless this process may append."""

    @abstractmethod
    def hold(self, replay: Replay) -> AbstractContextManager[Append]:
        """Hold the journal for this process alone, having passed to ``replay`` what others have appended.

        What is yielded appends one record: when it can no longer be lost, it calls its second argument, by which
        the filter takes the record over.

        A record counts as read only after the filter has it. If either call is interrupted, the record is passed on
        again next time: a charge may then be counted twice, and never not at all.
        """


class Memory(Journal):
    """No record but the one in the filter, which belongs to the process that made it."""

    def __init__(self, read_only: bool = False) -> None:
        self._read_only = read_only
        self._process = os.getpid()

    @property
    def place(self) -> tuple[int, ...]:
        return (id(self),)

    def require_writable(self) -> None:
        if self._read_only:
            raise LedgerError(
                "this ledger is a read-only copy: spend on the original, or keep the ledger in a file (path=...)"
            )
        if os.getpid() != self._process:
            raise LedgerError(
                "a ledger in memory belongs to the process that made it: keep it in a file (path=...) to share it"
            )

    @contextmanager
    def hold(self, replay: Replay) -> Iterator[Append]:
        yield lambda _, take: take()
