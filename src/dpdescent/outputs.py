"""Outputs that are written whole or not at all, and refused before any work if they cannot be written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from .errors import DPDescentError, MissingPackage, OutputNotWritable

_DATABASE = b"SQLite format 3\0"  # how a ledger begins


def require_outputs(outputs: Iterable[Path | None], inputs: Iterable[Path | str | None] = ()) -> None:
    """Refuse outputs that cannot be written, that are one file, or that would take the place of an input."""
    taken = {Path(each).resolve() for each in inputs if each is not None}
    for path in outputs:
        if path is None:
            continue
        _require_replaceable(require_writable(path))
        if path.resolve() in taken:
            raise OutputNotWritable(
                f"cannot write {path}: the same command reads or writes another thing there; choose another place"
            )
        taken.add(path.resolve())


def require_writable(path: Path) -> Path:
    """Return ``path`` once a file can be put there; its folder is made if need be."""
    try:
        if path.is_dir():  # which also fails for a name that is too long
            raise IsADirectoryError
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except IsADirectoryError:
        raise OutputNotWritable(f"cannot write {path}: it is a folder; give the name of a file") from None
    except (FileExistsError, NotADirectoryError):
        raise OutputNotWritable(
            f"cannot write {path}: a file is where its folder should be; choose another place"
        ) from None
    except OSError as problem:
        raise OutputNotWritable(f"cannot write {path}: {problem.strerror}; choose another place") from None
    return path


def require_matplotlib() -> Any:
    """Return matplotlib, drawing without a screen."""
    try:
        import matplotlib as mpl
    except ImportError:
        raise MissingPackage("pictures need matplotlib: pip install 'dpdescent[plots]'") from None
    mpl.use("Agg")
    return mpl


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file under a passing name and then give it its own, so that no reader ever sees half of it."""
    with passing_file(path) as passing:
        passing.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


@contextmanager
def passing_file(path: Path) -> Iterator[Path]:
    """Yield the name of a file in the same folder, which takes the place of ``path`` once it is written.

    If writing fails, it is removed, and what was at ``path`` stays as it was.
    """
    _require_replaceable(require_writable(path))
    descriptor, name = tempfile.mkstemp(prefix=".", suffix=".part", dir=path.parent)
    os.close(descriptor)
    passing = Path(name)
    try:
        yield passing
        with passing.open("r+b") as file:
            os.fsync(file.fileno())
        # A file made by mkstemp is for its owner alone; an ordinary output follows the umask.
        mask = os.umask(0)
        os.umask(mask)
        passing.chmod(0o666 & ~mask)
        passing.replace(path)
    except BaseException as problem:
        passing.unlink(missing_ok=True)
        if not isinstance(problem, OSError) or isinstance(problem, DPDescentError):
            raise
        cause = problem.strerror or "is there room on the disk?"
        raise OutputNotWritable(f"cannot write {path}: {cause}; choose another place") from None


def _require_replaceable(path: Path) -> None:
    """Refuse to put a file in the place of a device, or of a ledger, whose charges would be forgotten."""
    try:
        if path.exists() and not path.is_file():
            raise OutputNotWritable(f"cannot write {path}: it is no ordinary file; choose another place")
        with path.open("rb") as file:
            start = file.read(len(_DATABASE))
    except OutputNotWritable:
        raise
    except OSError:  # it is not there, or may be replaced without being read
        return
    if start == _DATABASE:
        raise OutputNotWritable(f"cannot write {path}: it is a ledger or another database; choose another place")
