"""A store in a file that several processes share: an SQLite database.

One immediate transaction makes one charge: it keeps others out, reads what they have charged since, and ends with a
commit that is on the disk before the charge counts as made (see ``sqlite_file``). SQLite frees the file when a
process dies, and drops what it had not committed: that charge was never accepted, so no data was touched for it.

The table ``records`` holds the head under number 0 and then one record per row, as JSON. Every row carries the digest
of its text and of the row before it, and the table ``tail`` the number of rows and the last digest, so that a record
that was edited, removed, inserted or moved is found when the file is opened. Nobody who can write the file is kept
from forging all of it: the digests tell of accidents and of edits by hand.

A connection must not cross a fork, so a child opens one of its own. A file with two names (hard links) is refused,
because SQLite would keep a rollback journal under each of them.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import sqlite3
import stat
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import LedgerError, LedgerFormatError
from .history import parse_json
from .sqlite_file import TABLES, connect, explain_errors, require_log_with_its_file, require_no_ledger, sync_folder
from .storage import Append, Replay, Store


class _News(NamedTuple):
    """What a transaction has read: the position before, the rows after it, and the tail of the file."""

    after: tuple[int, str]
    rows: list[Any]
    tail: list[Any]


class SQLiteStore(Store):
    """A store in the file ``path``, of which this process has read the first ``count`` records."""

    path: Path

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.path = path.resolve()
        self._connection: sqlite3.Connection | None = None
        self._inode: tuple[int, int] | None = None
        self._count = 0
        self._digest = ""

    @classmethod
    def create(
        cls,
        path: Path,
        head: dict[str, Any],
        records: Sequence[dict[str, Any]] = (),
        before_commit: Callable[[], None] = lambda: None,
    ) -> SQLiteStore:
        """Start a new file with its head and first records, all of it or nothing.

        Of several processes that try, one succeeds. An empty file may be there, as whoever is killed leaves it.
        """
        store = cls(path)
        with explain_errors(store.path), store._transaction("IMMEDIATE", create=True) as connection:
            require_no_ledger(connection, store.path)
            for statement in TABLES:
                connection.execute(statement)
            for record in (head, *records):
                store._insert(connection, record)
            before_commit()
            connection.execute("COMMIT")
        sync_folder(store.path.parent)
        return store

    @classmethod
    def open(cls, path: Path) -> tuple[Any, SQLiteStore]:
        """Return the head of an existing file, and the store with nothing but the head read."""
        store = cls(path)
        heads: list[Any] = []
        with explain_errors(store.path):
            require_log_with_its_file(store.path)
            if not store.path.exists() and store.path.parent.is_dir():
                raise LedgerError(
                    f"there is no ledger at {path}: correct the path, or create one by "
                    f"`dpdescent ledger create {path}`"
                )
        with explain_errors(store.path), store._transaction("DEFERRED") as connection:
            rows = store._rows(connection, 0, at_most=1)
        store._read(store.position, rows, lambda records: heads.extend(head for _, head in records))
        if not heads:
            raise store._damaged("has no head")
        sync_folder(store.path.parent)
        return heads[0], store

    def look(self, replay: Replay) -> None:
        with explain_errors(self.path), self._lock:
            with self._transaction("DEFERRED") as connection:
                found = self._news(connection)
            self._take(found, replay)  # outside the transaction, which keeps others from charging

    @contextmanager
    def hold(self, replay: Replay) -> Iterator[Append]:
        with explain_errors(self.path), self._transaction("IMMEDIATE") as connection:
            turn = self._turn
            self._take(self._news(connection), replay)
            yield partial(self._append, connection, turn)

    @property
    def position(self) -> tuple[int, str]:
        """How many records were read, and their digest."""
        return self._count, self._digest

    def has(self, position: tuple[int, str]) -> bool:
        """Return whether the file goes on from a position, the head being part of every one."""
        with explain_errors(self.path), self._transaction("DEFERRED") as connection:
            return bool(self._digest_at(connection, position[0] - 1) == position[1])

    def check_pages(self) -> None:
        """Raise unless SQLite finds the pages of the file to be whole."""
        with explain_errors(self.path), self._lock:
            found = [text for (text,) in self._connect().execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                raise self._damaged("has broken pages")

    def renew_after_fork(self) -> None:
        super().renew_after_fork()
        if self._connection is not None:
            # The connection belongs to the parent: closing it here could disturb the parent's, so it is never closed.
            self._closing.detach()
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._connection))
            self._connection = None

    # Transactions ------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self, kind: str, create: bool = False) -> Iterator[sqlite3.Connection]:
        """Hold a transaction that is rolled back at the end, unless it was committed."""
        with self._lock:
            connection = self._connect(create)
            try:
                self._turn += 1
                if connection.in_transaction:  # an interrupt has kept an earlier one from ending
                    connection.execute("ROLLBACK")
                connection.execute(f"BEGIN {kind}")
                self._require_same_file()
                yield connection
            finally:
                if connection is self._connection and connection.in_transaction:
                    connection.execute("ROLLBACK")

    def _connect(self, create: bool = False) -> sqlite3.Connection:
        if self._connection is None:
            if not create:
                self._require_same_file()
            self._connection = connect(self.path, create)
            self._closing = weakref.finalize(self, self._connection.close)
        return self._connection

    def _news(self, connection: sqlite3.Connection) -> _News:
        """Return what is new, having checked that what was read before is still there."""
        position = self.position
        if self._digest_at(connection, position[0] - 1) != position[1]:
            raise self._lost("no longer holds the charges that were read from it")
        tail = connection.execute("SELECT count, digest FROM tail").fetchall()
        return _News(position, self._rows(connection, position[0]), tail)

    def _take(self, news: _News, replay: Replay) -> None:
        """Pass on what is new."""
        if self._read(news.after, news.rows, replay) != news.tail:
            raise self._damaged("does not end with its last record")

    def _digest_at(self, connection: sqlite3.Connection, number: int) -> Any:
        found = connection.execute("SELECT digest FROM records WHERE number = ?", (number,)).fetchone()
        return None if found is None else found[0]

    def _rows(self, connection: sqlite3.Connection, start: int, at_most: int = -1) -> list[Any]:
        return connection.execute(
            "SELECT number, record, digest FROM records WHERE number >= ? OR number < 0 ORDER BY number LIMIT ?",
            (start, at_most),
        ).fetchall()

    def _read(self, after: tuple[int, str], rows: list[Any], replay: Replay) -> list[tuple[int, str]]:
        """Pass on the records that follow a position, and return the tail that a file has which ends with them.

        The position is the caller's: a signal handler may have read on since. What it has read is passed on again.
        """
        count, digest = after
        records = []
        for expected, (number, text, found) in enumerate(rows, start=count):
            if number != expected or not isinstance(text, str) or (digest := _chain(digest, text)) != found:
                raise self._damaged(f"was changed from outside at record {expected}")
            records.append((number, parse_json(text, f"record {number} of {self.path}")))
        if records:
            replay(records)
            self._count, self._digest = count + len(records), digest
        return [(count + len(records), digest)]

    def _append(
        self, connection: sqlite3.Connection, turn: int, record: dict[str, Any], take: Callable[[int], None]
    ) -> None:
        self._require_turn(turn)
        before = self._count, self._digest
        try:
            self._insert(connection, record)
            connection.execute("COMMIT")
            self._require_same_file()
            take(before[0])
        except BaseException:
            self._count, self._digest = before
            raise

    def _insert(self, connection: sqlite3.Connection, record: dict[str, Any]) -> None:
        text = json.dumps(record)
        digest = _chain(self._digest, text)
        connection.execute("INSERT INTO records VALUES (?, ?, ?)", (self._count, text, digest))
        connection.execute("UPDATE tail SET count = ?, digest = ?", (self._count + 1, digest))
        self._count, self._digest = self._count + 1, digest

    # The file ----------------------------------------------------------------------------------------------

    def _require_same_file(self) -> None:
        """Refuse a path that leads to another file than before, whose charges would be forgotten."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            if self._inode is None:
                return  # SQLite says why it cannot be opened
            raise self._lost("is gone") from None
        inode = status.st_dev, status.st_ino
        self._inode = self._inode or inode
        if inode != self._inode:
            raise self._lost("was replaced by another file")
        if status.st_nlink > 1 and stat.S_ISREG(status.st_mode):
            raise LedgerError(
                f"the ledger file {self.path} has another name (a hard link), under which its charges would not be "
                "seen: delete the other name"
            )

    def _lost(self, what: str) -> LedgerError:
        return LedgerError(
            f"the ledger file {self.path} {what} while it was in use, and charges would be forgotten: "
            "put the file back, or open it again if it is complete"
        )

    def _damaged(self, what: str) -> LedgerFormatError:
        return LedgerFormatError(f"the ledger {self.path} {what}: put back a whole copy that has all of its charges")


def _chain(digest: str, text: str) -> str:
    """Return the digest of a record and of all records before it."""
    return hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()
