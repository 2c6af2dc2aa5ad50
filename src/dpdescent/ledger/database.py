"""The SQLite file of a ledger: how it comes into being, and how a connection to it is opened.

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
"""

from __future__ import annotations

import errno
import os
import random
import sqlite3
import time
from pathlib import Path

from ..errors import LedgerError, LedgerFormatError
from . import failures
from .failures import is_busy

__all__ = ["TABLES", "connect", "require_log_with_its_file", "require_no_ledger", "sync_folder"]

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
            timeout=failures.PATIENCE,
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
            if not is_busy(problem) or time.monotonic() > start + failures.PATIENCE:
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
