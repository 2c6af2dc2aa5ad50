"""A journal in a file that several processes share: an SQLite database in write-ahead mode.

One immediate transaction makes one charge: it keeps others out, reads what they have charged since, and ends with a
commit that is on the disk before the charge counts as made (``synchronous=FULL``). SQLite frees the file when a
process dies, and drops what it had not committed: that charge was never accepted, so no data was touched for it.

The table ``records`` holds the head under number 0 and then one record per row, as JSON. Every row carries the digest
of its text and of the row before it, and the table ``tail`` the number of rows and the last digest, so that a record
that was edited, removed, inserted or moved is found when the file is opened. Nobody who can write the file is kept
from forging all of it: the digests tell of accidents and of edits by hand.

A connection must not cross a fork, so a child opens one of its own. A file with two names (hard links) is refused,
because SQLite would keep a write-ahead log under each of them.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import sqlite3
import stat
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import LedgerBusy, LedgerError, LedgerFormatError
from . import failures
from .entries import parse_json
from .failures import explained, is_busy
from .journal import Append, Journal, Replay

__all__ = ["JournalFile"]

APPLICATION = 0x64706C67  # "dplg", by which the file is known as a ledger
CREATION = 2.0  # seconds in which whoever has begun a file is trusted to finish its head
_PAUSE = 0.005

_TABLES = (
    f"PRAGMA application_id = {APPLICATION}",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, record TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE tail (only INTEGER PRIMARY KEY CHECK (only = 0), count INTEGER NOT NULL, digest TEXT NOT NULL)",
    "INSERT INTO tail VALUES (0, 0, '')",
)


class JournalFile(Journal):
    """A journal in the file ``path``, of which this process has read the first ``count`` records."""

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
    ) -> JournalFile:
        """Start a new file with its head and first records, all of it or nothing.

        Of several processes that try, one succeeds. A file that somebody began and left without a head is finished.
        """
        journal = cls(path)
        with explained(journal.path), journal._transaction("IMMEDIATE", create=True) as connection:
            if _is_ledger(connection, journal.path):
                raise LedgerError(
                    f"there is a ledger at {path}: go on with it as it is, or choose another name for a new one"
                )
            for statement in _TABLES:
                connection.execute(statement)
            for record in (head, *records):
                journal._insert(connection, record)
            before_commit()
            connection.execute("COMMIT")
        _sync_folder(journal.path.parent)
        return journal

    @classmethod
    def open(cls, path: Path) -> tuple[Any, JournalFile]:
        """Return the head of an existing file, and the journal with nothing but the head read."""
        journal = cls(path)
        heads: list[Any] = []
        with explained(journal.path):
            if not journal.path.exists() and journal.path.parent.is_dir():
                raise LedgerError(
                    f"there is no ledger at {path}: correct the path, or create one by "
                    f"`dpdescent ledger create {path}`"
                )
        with explained(journal.path), journal._transaction("DEFERRED") as connection:
            journal._read(connection, lambda records: heads.extend(head for _, head in records), 1)
        if not heads:
            raise journal._damaged("has no head")
        _sync_folder(journal.path.parent)
        return heads[0], journal

    def look(self, replay: Replay) -> None:
        with explained(self.path), self._transaction("DEFERRED") as connection:
            self._catch_up(connection, replay)

    @contextmanager
    def hold(self, replay: Replay) -> Iterator[Append]:
        with explained(self.path), self._transaction("IMMEDIATE") as connection:
            turn = self._turn
            self._catch_up(connection, replay)
            yield partial(self._append, connection, turn)

    @property
    def position(self) -> tuple[int, str]:
        """How many records were read, and their digest."""
        return self._count, self._digest

    def has(self, position: tuple[int, str]) -> bool:
        """Return whether the file goes on from a position, the head being part of every one."""
        with explained(self.path), self._transaction("DEFERRED") as connection:
            return bool(self._digest_at(connection, position[0] - 1) == position[1])

    def compact(self) -> None:
        """Check the pages of the file, and move into it what still lies in the write-ahead log beside it."""
        with explained(self.path), self._lock:
            connection = self._connected()
            found = [text for (text,) in connection.execute("PRAGMA integrity_check")]
            if found != ["ok"]:
                raise self._damaged("has broken pages")
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if busy:
                raise LedgerBusy(f"the ledger {self.path} is in use: check it again when nobody uses it")

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
            connection = self._connected(create)
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

    def _connected(self, create: bool = False) -> sqlite3.Connection:
        if self._connection is None:
            if not create:
                self._require_same_file()
            self._connection = _connect(self.path, create)
            self._closing = weakref.finalize(self, self._connection.close)
        return self._connection

    def _catch_up(self, connection: sqlite3.Connection, replay: Replay) -> None:
        """Pass on all that is new, having checked that what was read before is still there."""
        if self._digest_at(connection, self._count - 1) != self._digest:
            raise self._lost("no longer holds the charges that were read from it")
        self._read(connection, replay)
        if connection.execute("SELECT count, digest FROM tail").fetchall() != [(self._count, self._digest)]:
            raise self._damaged("does not end with its last record")

    def _digest_at(self, connection: sqlite3.Connection, number: int) -> Any:
        found = connection.execute("SELECT digest FROM records WHERE number = ?", (number,)).fetchone()
        return None if found is None else found[0]

    def _read(self, connection: sqlite3.Connection, replay: Replay, at_most: int = -1) -> None:
        rows = connection.execute(
            "SELECT number, record, digest FROM records WHERE number >= ? OR number < 0 ORDER BY number LIMIT ?",
            (self._count, at_most),
        ).fetchall()
        digest, records = self._digest, []
        for expected, (number, text, found) in enumerate(rows, start=self._count):
            if number != expected or not isinstance(text, str) or (digest := _chained(digest, text)) != found:
                raise self._damaged(f"was changed from outside at record {expected}")
            records.append((number, parse_json(text, f"record {number} of {self.path}")))
        if records:
            replay(records)
            self._count, self._digest = self._count + len(records), digest

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
        digest = _chained(self._digest, text)
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


def _connect(path: Path, create: bool) -> sqlite3.Connection:
    """Return a connection to a ledger, or to a file that is to become one."""
    end = time.monotonic() + CREATION
    while True:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=failures.PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
        try:
            begun = _is_ledger(connection, path)
            if create or begun:
                _require_durable(connection, path)
                return connection
        except BaseException:
            connection.close()
            raise
        connection.close()
        if time.monotonic() > end:
            raise LedgerFormatError(
                f"{path} was begun and never became a ledger, so nothing was charged to it: create it again"
            )
        time.sleep(_PAUSE)


def _is_ledger(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether a database has become a ledger, or is still empty; raise if it is somebody else's."""
    # In this order: whoever sees the tables of a ledger that is being created sees its mark as well.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application == APPLICATION:
        return True
    if application or tables:
        raise LedgerFormatError(f"{path} is a database of another program: choose another path")
    return False


def _require_durable(connection: sqlite3.Connection, path: Path) -> None:
    """Let every commit reach the disk before it returns."""
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute("PRAGMA fullfsync = ON")  # macOS flushes the disk itself only if it is told to
    end = time.monotonic() + failures.PATIENCE
    while True:
        try:
            (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as problem:
            if not is_busy(problem) or time.monotonic() > end:
                raise
            time.sleep(_PAUSE)
            continue
        if mode != "wal":
            raise LedgerError(f"{path} lies on a file system that cannot share it safely: put it on a local disk")
        return


def _chained(digest: str, text: str) -> str:
    """Return the digest of a record and of all records before it."""
    return hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()


def _sync_folder(folder: Path) -> None:
    """Put the names of the files in a folder on the disk: a file that has lost its name is lost."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be entered and not listed, or any folder on Windows
        return
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a file system that has no such operation
            raise
    finally:
        os.close(descriptor)
