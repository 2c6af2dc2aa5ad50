"""Which files a name stands for, and where the bytes of a Parquet file are.

They are under a path, or in a file without a name that this process holds open.

A file without a name is for rows that nobody asked to have on the disk. The operating system frees it when the last
process that holds it open ends, however that ends, by SIGKILL too, and no other user can open it meanwhile.
"""

from __future__ import annotations

import glob
import io
import os
import tempfile
import uuid
import weakref
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import IO, Any
from weakref import WeakValueDictionary

from pyarrow import parquet

from ..errors import DatasetFormatError, UnsupportedSource

PARQUET_SUFFIXES = (".parquet", ".pq")
_AHEAD = 4  # row groups that are fetched together


def is_parquet(name: str) -> bool:
    """Whether a name is that of Parquet files: one file, a folder of them, or a pattern for either."""
    return is_parquet_group(name) or (name.endswith(PARQUET_SUFFIXES) and os.path.isfile(name))


def is_parquet_group(name: str) -> bool:
    """Whether a name is that of a folder of Parquet files, or a pattern for them."""
    pattern = glob.has_magic(name) and not os.path.exists(name)
    return (pattern or os.path.isdir(name)) and bool(parquet_files(name))


def parquet_files(name: str) -> list[str]:
    """Return the Parquet files of a name, in order: the file itself, all below a folder, or all that match.

    A pattern may match a folder and what is in it: each file is named once.
    """
    found = sorted(glob.glob(name, recursive=True)) if glob.has_magic(name) and not os.path.exists(name) else [name]
    files: list[str] = []
    for each in found:
        if not os.path.isdir(each):
            files.append(each)
            continue
        below = (path.relative_to(each) for suffix in PARQUET_SUFFIXES for path in Path(each).rglob(f"*{suffix}"))
        files += [os.path.join(each, path) for path in sorted(below) if not path.name.startswith(("_", "."))]
    return list(dict.fromkeys(file for file in files if file.endswith(PARQUET_SUFFIXES)))


def require_distinct(files: list[str]) -> None:
    """Refuse a file that is there under another name: what one of its rows can change would count twice."""
    seen: dict[tuple[int, int], str] = {}
    for file in files:
        status = os.stat(file)
        other = seen.setdefault((status.st_dev, status.st_ino), file)
        if other != file:
            raise DatasetFormatError(
                f"{file!r} is the same file as {other!r}, whose rows would count twice: name it once"
            )


@dataclass(frozen=True)
class NamedParquet:
    """A Parquet file with a path, which any process that may read it can open."""

    path: str

    @property
    def name(self) -> str:
        """What messages call it."""
        return Path(self.path).name

    @property
    def folders(self) -> tuple[str, ...]:
        """The names of the folders that it lies in."""
        return Path(self.path).parent.parts

    def open(self) -> IO[bytes]:
        """Open the file to be read from a place of its own."""
        return open(self.path, "rb")

    def source(self) -> Any:
        """Return what Arrow reads the file from."""
        return self.path

    def stamp(self) -> tuple[int, int]:
        """Return the length of the file and when it was changed."""
        return _stamp(self.path)

    def footer(self, stamp: tuple[int, int]) -> Any:
        """Return the metadata of the file with that stamp, read once by every process."""
        return _footer(self.path, stamp)


class UnnamedParquet:
    """A Parquet file without a name, which lasts as long as this object, its copies and those who read from it.

    A forked process can read it. One to which this object was sent cannot, and is told so when it tries.

    ``name`` is what messages call it.
    """

    folders: tuple[str, ...] = ()

    def __init__(self, name: str) -> None:
        self.name = name
        self._token = uuid.uuid4().hex
        self._file: IO[bytes] | None = tempfile.TemporaryFile()  # noqa: SIM115
        weakref.finalize(self, self._file.close)
        self._footer: Any = None
        _HELD[self._token] = self

    @property
    def file(self) -> IO[bytes]:
        """The file, to be written once from its start to its end."""
        if self._file is None:
            raise UnsupportedSource(
                f"the rows of {self.name!r} are kept for the process that has read them, and another cannot open "
                "them: write the table to Parquet files once, and pass these to open_parquet"
            )
        return self._file

    def open(self) -> IO[bytes]:
        """Open the file to be read from a place of its own."""
        return io.BufferedReader(_Reader(self))

    def source(self) -> Any:
        """Return what Arrow reads the file from."""
        return self.open()

    def stamp(self) -> tuple[int, int]:
        """Return the length of the file and when it was changed."""
        return _stamp(self.file.fileno())

    def footer(self, stamp: tuple[int, int]) -> Any:
        """Return the metadata of the file, read once."""
        if self._footer is None:
            self._footer = parquet.read_metadata(self.source())
        return self._footer

    def __deepcopy__(self, memo: dict[int, Any]) -> UnnamedParquet:
        return self

    def __copy__(self) -> UnnamedParquet:
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        return _found, (self._token, self.name)


StoredParquet = NamedParquet | UnnamedParquet

_HELD: WeakValueDictionary[str, UnnamedParquet] = WeakValueDictionary()


def _found(token: str, name: str) -> UnnamedParquet:
    """Return the file itself in the process that holds it open, and elsewhere what tells that it is not there."""
    held = _HELD.get(token)
    if held is None:
        held = object.__new__(UnnamedParquet)
        held.name, held._token, held._file = name, token, None
    return held


class _Reader(io.RawIOBase):
    """Reads from a place of its own: the one of the file itself is shared by all threads and forked processes."""

    def __init__(self, stored: UnnamedParquet) -> None:
        self._stored = stored
        self._file, self._place = stored.file, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._file.fileno()

    def readinto(self, buffer: Any) -> int:
        count = os.preadv(self.fileno(), [buffer], self._place)
        self._place += count
        return count

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._place, os.SEEK_END: os.fstat(self.fileno()).st_size}[whence]
        self._place = start + offset
        return self._place

    def tell(self) -> int:
        return self._place


def read_ahead(stored: StoredParquet, footer: Any, number: int) -> None:
    """Have the operating system fetch a row group and the next few while the first is being decoded."""
    if not hasattr(os, "posix_fadvise"):
        return
    start, stop = (_first_byte(footer, group) for group in (number, number + _AHEAD))
    with stored.open() as file:
        os.posix_fadvise(file.fileno(), start, max(stop - start, 0), os.POSIX_FADV_WILLNEED)  # 0: to the end


def _first_byte(footer: Any, group: int) -> int:
    if group >= footer.num_row_groups or not footer.num_columns:
        return 0
    column = footer.row_group(group).column(0)
    return int(column.dictionary_page_offset or column.data_page_offset)


def _stamp(file: str | int) -> tuple[int, int]:
    status = os.stat(file)
    return status.st_size, status.st_mtime_ns


@lru_cache(maxsize=1024)
def _footer(path: str, stamp: tuple[int, int]) -> Any:  # noqa: ARG001
    return parquet.read_metadata(path)
