"""What SQLite complains of, as named errors that say what to do."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import DPDescentError, LedgerBusy, LedgerError, LedgerFormatError, LedgerNotWritable

__all__ = ["PATIENCE", "explained", "is_busy"]

PATIENCE = 10.0  # seconds that a process waits for others who hold the file

_BUSY = {sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED}
_READ_ONLY = {sqlite3.SQLITE_READONLY, sqlite3.SQLITE_PERM, sqlite3.SQLITE_AUTH}
_FOREIGN = {sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_CORRUPT}


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn an error of SQLite or of the system about the file ``path`` into a named one."""
    try:
        yield
    except sqlite3.Error as problem:
        raise _named(problem, path) from None
    except OSError as problem:
        raise LedgerNotWritable(
            f"the ledger {path} cannot be used: {problem.strerror}; choose another path"
        ) from None


def is_busy(problem: sqlite3.Error) -> bool:
    """Return whether somebody else holds the file."""
    return _code(problem) in _BUSY


def _code(problem: sqlite3.Error) -> int:
    """Return the primary code of an error; its higher bits say more than is needed here."""
    return getattr(problem, "sqlite_errorcode", 0) & 0xFF


def _named(problem: sqlite3.Error, path: Path) -> DPDescentError:
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
