"""The SQLite file of a ledger: how it comes into being, how a connection to it is opened, and what can go wrong.

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

import errno
import os
import random
import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DPDescentError, LedgerBusy, LedgerError, LedgerFormatError, LedgerNotWritable

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
