"""Outputs that are written whole or not at all, and refused before any work if they cannot be written."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .errors import OutputNotWritable

__all__ = ["require_writable", "write_whole"]


def require_writable(path: Path) -> Path:
    """Return ``path`` once a file can be put there; its folder is made if need be."""
    if path.is_dir():
        raise OutputNotWritable(f"cannot write {path}: it is a folder; give the name of a file")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except (FileExistsError, NotADirectoryError):
        raise OutputNotWritable(
            f"cannot write {path}: a file is where its folder should be; choose another place"
        ) from None
    except OSError as problem:
        raise OutputNotWritable(f"cannot write {path}: {problem.strerror}; choose another place") from None
    return path


def write_whole(path: Path, content: str | bytes) -> Path:
    """Write a file under a passing name and then give it its own, so that no reader ever sees half of it."""
    data = content.encode() if isinstance(content, str) else content
    require_writable(path)
    descriptor, passing = tempfile.mkstemp(prefix=f".{path.name}.", suffix=".part", dir=path.parent)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        # A file made by mkstemp is for its owner alone; an ordinary output follows the umask.
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(passing, 0o666 & ~mask)
        os.replace(passing, path)
    except BaseException:
        Path(passing).unlink(missing_ok=True)
        raise
    return path
