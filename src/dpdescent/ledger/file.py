"""A journal in a file that several processes share: a head and then one line of JSON per charge.

The file is locked while it is read or written. A line is on the disk before its charge counts as made. A line
without its end was being written by a process that died, and is dropped: that charge was never accepted, so no
data was touched for it.
"""

from __future__ import annotations

import errno
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from ..errors import LedgerError, LedgerFormatError
from .entries import parse_json
from .journal import Append, Journal, Replay

__all__ = ["JournalFile"]


class JournalFile(Journal):
    """A journal in the file ``path``, of which this process has read the first ``position`` bytes."""

    path: Path

    def __init__(self, path: Path, position: int, inode: tuple[int, int]) -> None:
        self.path = path
        self._position = position
        self._inode = inode  # device and number

    @classmethod
    def create(cls, path: Path, head: dict[str, Any]) -> JournalFile:
        """Start a new file.

        The head is put on the disk under a draft's name and then gets its own, so nobody ever sees half a head.
        From then on others may append. What they append is read like any other charge: the position is the end of
        the head, wherever the file ends by now.
        """
        path = path.absolute()
        line = _line(head)
        try:
            descriptor, draft = tempfile.mkstemp(prefix=".ledger-", dir=path.parent)
        except FileNotFoundError:
            raise LedgerError(f"there is no folder {path.parent}: create it, or choose another path") from None
        try:
            try:
                _write(descriptor, line)
                inode = _inode(os.fstat(descriptor))
            finally:
                os.close(descriptor)
            os.link(draft, path)
        except FileExistsError:
            raise LedgerError(f"{path} exists: Ledger.open continues it, another name starts anew") from None
        finally:
            os.unlink(draft)
        _sync_folder(path.parent)
        return cls(path, len(line), inode)

    @classmethod
    def open(cls, path: Path) -> tuple[Any, JournalFile]:
        """Return the head of an existing file, and the journal with nothing but the head read."""
        path = path.absolute()
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise LedgerError(f"there is no ledger at {path}: Ledger(..., path=...) starts one") from None
        try:
            inode = _inode(os.fstat(descriptor))
            head, newline, _ = _read(descriptor, 0).partition(b"\n")
        finally:
            os.close(descriptor)
        if not newline:
            raise LedgerFormatError(f"{path} is not a complete dpdescent ledger")
        _sync_folder(path.parent)
        return parse_json(head, str(path)), cls(path, len(head) + 1, inode)

    @property
    def place(self) -> tuple[int, ...]:
        """The device and the number of the file, which no link or other name changes."""
        return self._inode

    def is_same(self, other: Journal) -> bool:
        if not isinstance(other, JournalFile):
            return False
        return self.place == other.place or self.path.resolve() == other.path.resolve()

    def require_writable(self) -> None:
        """Every process may append to a file."""

    @contextmanager
    def hold(self, replay: Replay) -> Iterator[Append]:
        import fcntl

        descriptor = self._descriptor()
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            self._require_same_file(descriptor)
            *lines, torn = _read(descriptor, self._position).split(b"\n")
            replay([parse_json(line, str(self.path)) for line in lines])
            self._position += sum(len(line) + 1 for line in lines)
            if torn:
                os.ftruncate(descriptor, self._position)
            yield partial(self._append, descriptor)
        finally:
            # A child that was forked meanwhile has the descriptor too, and closing one of two keeps the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
            os.close(descriptor)

    def _append(self, descriptor: int, record: dict[str, Any], take: Callable[[], None]) -> None:
        line = _line(record)
        os.lseek(descriptor, self._position, os.SEEK_SET)
        _write(descriptor, line)
        take()
        self._position += len(line)

    def _descriptor(self) -> int:
        try:
            return os.open(self.path, os.O_RDWR | os.O_CLOEXEC)
        except FileNotFoundError:
            raise self._lost("is gone") from None

    def _require_same_file(self, descriptor: int) -> None:
        """Refuse a file that no longer holds the charges this process has read: they would be forgotten."""
        status = os.fstat(descriptor)
        if _inode(status) != self._inode or status.st_nlink == 0:
            raise self._lost("was replaced by another file")
        if status.st_size < self._position:
            raise self._lost("was cut short")

    def _lost(self, what: str) -> LedgerError:
        return LedgerError(
            f"the ledger file {self.path} {what} while it was in use, and charges would be forgotten: "
            "put the file back, or start over with Ledger.open if it is complete"
        )


def _inode(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino


def _line(record: dict[str, Any]) -> bytes:
    return json.dumps(record).encode() + b"\n"


def _read(descriptor: int, start: int) -> bytes:
    """Return the bytes of a file from ``start`` to its end."""
    parts = []
    while part := os.pread(descriptor, 2**20, start):
        parts.append(part)
        start += len(part)
    return b"".join(parts)


def _write(descriptor: int, content: bytes) -> None:
    """Write at the place of the descriptor, and return when the content is on the disk."""
    while content:
        content = content[os.write(descriptor, content) :]
    os.fsync(descriptor)


def _sync_folder(folder: Path) -> None:
    """Put the names of the files in a folder on the disk: a file that has lost its name is lost."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:  # a folder that may be entered and not listed
        return
    try:
        os.fsync(descriptor)
    except OSError as problem:
        if problem.errno != errno.EINVAL:  # a file system that has no such operation
            raise
    finally:
        os.close(descriptor)
