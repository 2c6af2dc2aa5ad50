"""Ledgers as earlier releases kept them: a head and then one line of JSON per charge.

Such a file is moved, not copied, because two files of one budget could spend it twice. While the new file is being
written, a last line is added to the old one that says where its charges went: no release accepts a charge to a file
with such a line, and it cannot be imported again.

A copy that was made of the old file before cannot be known for one. It can be imported as well, and then each of the
two ledgers spends what was left. So that nobody takes them for one, each has an identity of its own, and both record
the same digest of the old file (`Origin`).
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from ..errors import LedgerError, LedgerFormatError
from .history import Origin, parse_json
from .privacy_ledger import Ledger
from .sqlite_store import SQLiteStore


def import_lines(old: str | os.PathLike[str], path: str | os.PathLike[str]) -> Ledger:
    """Move the ledger in the lines of the file ``old`` into a new file ``path``, and return it.

    The new ledger has an identity of its own, and an `Origin`. Prices are computed anew. A line without its end was
    being written by a process that died, and is dropped: that charge was never accepted, so no data was touched for
    it.
    """
    with _hold(Path(old)) as file:
        *lines, torn = file.read().split(b"\n")
        if not lines:
            raise LedgerFormatError(f"{old} is not a complete dpdescent ledger")
        head, *records = (parse_json(line, str(old)) for line in lines)
        for record in records:
            if isinstance(record, dict) and "moved_to" in record:
                raise LedgerError(
                    f"{old} was moved to {record['moved_to']!r} before: use that ledger, or, if it never came into "
                    f"being, delete the last line of {old} and import it again"
                )
        ledger = Ledger._from_header(head, str(old))
        ledger._replay(list(enumerate(records, start=1)))
        digest = hashlib.sha256(b"\n".join(lines)).hexdigest()
        ledger._origin = Origin(os.path.abspath(old), digest, head.get("id"))
        ledger._identity = secrets.token_hex(16)

        def mark_as_moved() -> None:
            file.seek(-len(torn), os.SEEK_END)
            file.truncate()
            file.write(json.dumps({"moved_to": os.fspath(path), "id": ledger.identity}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

        kept = [entry.to_dict() for entry in ledger.entries]
        ledger._store = SQLiteStore.create(Path(path), ledger._header(), kept, before_commit=mark_as_moved)
    return ledger


@contextmanager
def _hold(old: Path) -> Iterator[IO[bytes]]:
    """Open a file and keep out the processes of earlier releases, which lock it for every charge."""
    try:
        file = old.open("r+b")
    except FileNotFoundError:
        raise LedgerError(f"there is no file {old}: correct the path") from None
    except OSError as problem:
        raise LedgerError(f"{old} cannot be opened for writing ({problem.strerror}): it is marked as moved") from None
    with file:
        try:
            import fcntl
        except ImportError:  # no release has written such a file on Windows
            pass
        else:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file
