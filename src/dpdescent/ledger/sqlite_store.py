"""A store in a file that several processes share: an SQLite database.

One immediate transaction makes one charge: it keeps others out, reads what they have charged since, and ends with a
commit that is on the disk before the charge counts as made. SQLite frees the file when a
process dies, and drops what it had not committed: that charge was never accepted, so no data was touched for it.

The table ``records`` holds the head under number 0 and then one record per row, as JSON. Every row carries the digest
of its text and of the row before it, and the table ``tail`` the number of rows and the last digest, so that a record
that was edited, removed, inserted or moved is found when the file is opened. Nobody who can write the file is kept
from forging all of it: the digests tell of accidents and of edits by hand.

A connection must not cross a fork, so a child opens one of its own. A file with two names (hard links) is refused,
because SQLite would keep a rollback journal under each of them.

The SQLite file of a ledger: how it comes into being, how a connection to it is opened, and what can go wrong.

Every charge that was accepted is in the file itself. A commit first saves the pages that it will change in a rollback
journal beside the file (``-journal``), then changes them, and counts once the journal is gone, each step on the disk
before the next (``synchronous=EXTRA``). So a copy of the file alone lacks no accepted charge. Between transactions a
connection holds no lock and nothing beside the file: it loses nothing if this process closes another handle of the
file, which frees the locks of all, or if a parent closes the ledger that its forked children go on with.

Neither holds of a write-ahead log, in which earlier releases kept charges until the last connection was closed. When
such a file is opened, its log (``-wal``) is moved into it. Where the log was left behind, the charges in it are
missing: a file without a head is refused, and no ledger is begun in its place. Nothing tells that a log is missing
where an earlier release had moved the head into the file.

A new ledger is one transaction, from an empty file to one with its tables and head. Whoever dies during it leaves a
file that is empty, or that its journal makes empty again.

What SQLite complains of is turned into named errors that say what to do.
"""

from __future__ import annotations

import ctypes
import errno
import hashlib
import json
import os
import random
import sqlite3
import stat
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from ..errors import DPDescentError, LedgerBusy, LedgerError, LedgerFormatError, LedgerNotWritable
from .history import Append, Replay, Store, parse_json


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


PATIENCE = 10.0  # seconds that a process waits for others who hold the file

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_FOREIGN = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}
APPLICATION = 0x64706C67  # "dplg", by which the file is known as a ledger
CREATION = 2.0  # seconds in which whoever has begun a file is trusted to finish its head
_PAUSE = 0.005

TABLES = (
    f"PRAGMA application_id = {APPLICATION}",
    "CREATE TABLE records (number INTEGER PRIMARY KEY, record TEXT NOT NULL, digest TEXT NOT NULL)",
    "CREATE TABLE tail (only INTEGER PRIMARY KEY CHECK (only = 0), count INTEGER NOT NULL, digest TEXT NOT NULL)",
    "INSERT INTO tail VALUES (0, 0, '')",
)


def connect(path: Path, create: bool) -> sqlite3.Connection:
    """Return a connection to a ledger, or to a file that is to become one."""
    require_log_with_its_file(path)
    start = time.monotonic()
    while True:
        connection = sqlite3.connect(
            f"{path.as_uri()}?mode={'rwc' if create else 'rw'}",
            uri=True,
            timeout=PATIENCE,
            isolation_level=None,
            check_same_thread=False,
        )
        kept = False
        try:
            (pages,) = connection.execute("PRAGMA page_count").fetchone()  # before it is asked what they are
            if _is_ledger(connection, path) or (create and not pages):
                _require_durable(connection)
                kept = True
                return connection
            if create or time.monotonic() > start + CREATION:
                raise _not_begun(path, pages)
        except sqlite3.OperationalError as problem:
            if not _is_busy(problem) or time.monotonic() > start + PATIENCE:
                raise
        finally:
            if not kept:
                connection.close()  # each of two that wait for the other to go keeps a log in use
        time.sleep(random.uniform(0.0, 2 * _PAUSE))


def require_log_with_its_file(path: Path) -> None:
    """Refuse a write-ahead log whose file is gone: SQLite would delete it, and charges with it, for a new file."""
    log = _log(path)
    if _size(log) and not _size(path):  # in this order: a file is there before its log
        raise LedgerFormatError(
            f"{log} holds charges of a ledger whose file {path} is missing or empty: put that file back beside it, "
            f"or delete {log} if this ledger will never be used again"
        )


def require_no_ledger(connection: sqlite3.Connection, path: Path) -> None:
    """Refuse to begin a ledger, within a transaction, in a file in which another process has begun one meanwhile."""
    if _is_ledger(connection, path):
        raise LedgerError(
            f"there is a ledger at {path}: go on with it as it is, or choose another name for a new one"
        )


def sync_folder(folder: Path) -> None:
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


def _is_ledger(connection: sqlite3.Connection, path: Path) -> bool:
    """Return whether a database has become a ledger, or has nothing in it; raise if it is somebody else's."""
    # In this order: whoever sees the tables of a ledger that is being created sees its mark as well.
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    if application == APPLICATION:
        return True
    if application or tables:
        raise LedgerFormatError(f"{path} is a database of another program: choose another path")
    return False


def _not_begun(path: Path, pages: int) -> LedgerFormatError:
    """Return the error of a file without a head, which never says that nothing was charged: it cannot know."""
    if not pages:
        return LedgerFormatError(
            f"{path} is empty: put back the ledger that was there, or create it again if its creation was interrupted"
        )
    return LedgerFormatError(
        f"{path} is not empty, and no ledger is in it: most likely it was copied without {_log(path).name}, which "
        "holds the charges of the original; copy that file as well, or run `dpdescent ledger verify` on the "
        "original, which gathers it in one file, and copy it again. For a new ledger choose another name"
    )


def _require_durable(connection: sqlite3.Connection) -> None:
    """Let every commit reach the disk, in the file itself, before it returns."""
    connection.execute("PRAGMA synchronous = EXTRA")
    connection.execute("PRAGMA fullfsync = ON")  # macOS flushes the disk itself only if it is told to
    connection.execute("PRAGMA journal_mode = DELETE").fetchone()  # busy while others use it with a write-ahead log


def _log(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


@contextmanager
def explain_errors(path: Path) -> Iterator[None]:
    """Turn an error of SQLite or of the system about the file ``path`` into a named one."""
    try:
        yield
    except sqlite3.Error as problem:
        raise _explain(problem, path) from None
    except OSError as problem:
        raise LedgerNotWritable(
            f"the ledger {path} cannot be used: {problem.strerror}; choose another path"
        ) from None


def _is_busy(problem: sqlite3.Error) -> bool:
    """Return whether somebody else holds the file."""
    return _code(problem) in _BUSY


def _code(problem: sqlite3.Error) -> int:
    """Return the primary code of an error; its higher bits say more than is needed here."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF


def _explain(problem: sqlite3.Error, path: Path) -> DPDescentError:
    code = _code(problem)
    if code in _BUSY:
        return LedgerBusy(
            f"other processes have held the ledger {path} for {PATIENCE:g} seconds: try again when they are done, or "
            "end one that hangs, which frees the file; nothing was charged"
        )
    if code in _READ_ONLY:
        return LedgerNotWritable(
            f"the ledger {path} is read-only: give yourself permission to write the file and its folder (chmod "
            "u+w, or chattr -i if it is immutable); nothing was charged"
        )
    if code == sqlite3.SQLITE_FULL:
        return LedgerNotWritable(f"the disk of the ledger {path} is full: free some space; nothing was charged")
    if code == sqlite3.SQLITE_IOERR:
        return LedgerNotWritable(
            f"the disk of the ledger {path} fails: repair it, then `dpdescent ledger verify` tells what was charged"
        )
    if code == sqlite3.SQLITE_CANTOPEN:
        return _cannot_open(path)
    if code in _FOREIGN:
        return _foreign(path)
    return LedgerFormatError(f"{path} is not a whole dpdescent ledger ({problem}): put back a whole copy of the file")


def _cannot_open(path: Path) -> LedgerError:
    if not path.parent.is_dir():
        return LedgerError(f"there is no folder {path.parent}: create it, or choose another path")
    if path.is_dir():
        return LedgerError(f"{path} is a folder: choose a path inside it")
    if not path.exists():
        return LedgerNotWritable(
            f"{path} cannot be created: give yourself permission to write the folder {path.parent}"
        )
    return LedgerNotWritable(
        f"the ledger {path} cannot be opened for writing: give yourself permission to read and write the file and "
        "its folder; nothing was charged"
    )


def _foreign(path: Path) -> LedgerFormatError:
    with path.open("rb") as file:
        start = file.read(64)
    if start.startswith(b'{"format": "dpdescent-ledger"'):
        return LedgerFormatError(
            f"{path} is a ledger in lines of JSON, as earlier releases wrote it: "
            f"`dpdescent ledger import {path} NEW_FILE` moves it into a new file"
        )
    return LedgerFormatError(f"{path} is not a dpdescent ledger, or is damaged: correct the path, or put back a copy")
