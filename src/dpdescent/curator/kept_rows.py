"""What is kept of rows between two passes over them: seals, and temporary files.

Seals tell whether rows that are read again are the same rows, in the same places.

Clip factors and batches are kept by place, and bounds are measured before a model is fitted, so a table must stay the
same for as long as a fit takes. Each row has a mark, a sum modulo 2^64 of the bits of its cells times odd numbers,
which a change of any one cell changes. The bits are mixed first: a number like 1.0 has zeros in its last 52 bits, so
that its product with a factor would tell only 12 bits of that. The seal of a part is a digest of the marks of its
rows. Marks are made of the rows as a table yields them, before they are coded for a query, so they are the same in
every pass of a fit and for every block, thread and process. Seals are unreleased data and stay in the process that
fits.

Temporary files for what is made of rows that outgrow the memory: the rows on their grid, and numbers of each.

The files have no name, so nobody else can open them, and they are gone when the process ends, however it ends. They
are read and written, not mapped, so that they count as memory of nobody. They lie in the folder for temporary files
(``TMPDIR``).
"""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas.util import hash_array
from scipy import sparse

from ..arrays import Floats
from ..errors import DatasetFormatError, OutputNotWritable
from ..exact import FeatureGrid
from .array_source import cached_blocks

Digest = blake2b
Marks = NDArray[np.uint64]

_CELLS_AT_ONCE = 2**15  # so that their bits stay in cache


def marks(cells: Any, labels: Any) -> Marks:
    """Return a number for every row that tells it from others; unreleased data."""
    rows, columns = cells.shape
    factors = _factors(columns)
    if sparse.issparse(cells):
        bits = _mix(cells.data).view(np.int64)
        stored = sparse.csr_array((bits, cells.indices, cells.indptr), shape=cells.shape)
        found: Marks = (stored @ factors.view(np.int64)).view(np.uint64)
    else:
        found = np.empty(rows, dtype=np.uint64)
        for some in cached_blocks(rows, columns, _CELLS_AT_ONCE):
            np.einsum("ij,j->i", _mix(cells[some]), factors, out=found[some])
    values = np.asarray(labels)
    if values.dtype.kind == "f":
        values = values.astype(np.float64, copy=False)
    told: Marks = hash_array(values if values.dtype.kind in "biuf" else values.astype(str).astype(object))
    return found ^ told


def _mix(cells: NDArray[Any]) -> Marks:
    """Return the bits of numbers, the high ones mixed into the low ones; different numbers stay different, 0 is 0."""
    bits: Marks = np.asarray(cells, dtype=np.float64).view(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
    bits ^= bits >> np.uint64(32)
    return bits


def new_digest() -> Digest:
    """Return the digest of a part of which no mark was added yet."""
    return blake2b(digest_size=16)


class Seals:
    """What the seals of all parts were when a table was first read, for all sources of one fit."""

    def __init__(self) -> None:
        self._first: list[bytes] | None = None

    def require(self, seals: list[bytes]) -> None:
        """Raise `DatasetFormatError` unless the parts are what they were when this was first called."""
        if self._first is None:
            self._first = seals
        elif seals != self._first:
            raise changed()


def changed() -> DatasetFormatError:
    """Return the error of a table that is not the same in two passes."""
    return DatasetFormatError(
        "a part of the table is not what it was when it was opened: open it again, and persist a Dask collection"
    )


@lru_cache(maxsize=4)
def _factors(columns: int) -> Marks:
    return np.random.default_rng(0).integers(2**63, size=columns, dtype=np.uint64) * np.uint64(2) + np.uint64(1)


_LARGEST_SHARE = 0.5  # of the free room, for rows; they can be read again instead
_LARGEST_EXPONENT = 100  # of a grid whose values float32 holds
_MOST_ROWS = 2**16  # of a block that is kept
_MOST_CELLS = {4: 2**19, 8: 2**21}  # of it, by bytes: float32 is made float64 in cache, and float64 used as it is

Place = tuple[int, tuple[int, ...], np.dtype[Any]]
Block = tuple[Any, Floats]  # rows and labels
Packed = tuple[tuple[int, int], Sequence[NDArray[Any]], Floats]


class SpillFile:
    """Arrays in a file without a name, written and read by any thread."""

    def __init__(self) -> None:
        try:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115
        except OSError:
            raise _no_room() from None
        weakref.finalize(self, self._file.close)
        self._end = 0
        self._growing = threading.Lock()

    def write(self, values: NDArray[Any]) -> Place:
        """Write an array and return where it is, or raise `OutputNotWritable`."""
        content = _bytes_of(np.ascontiguousarray(values))
        with self._growing:
            start, self._end = self._end, self._end + len(content)
        place = start, values.shape, values.dtype
        while content:
            try:
                count = os.pwrite(self._file.fileno(), content, start)
            except OSError:
                raise _no_room() from None
            content, start = content[count:], start + count
        return place

    def read(self, place: Place) -> NDArray[Any]:
        """Return an array that was written; it cannot be written over."""
        start, shape, dtype = place
        values: NDArray[Any] = np.empty(shape, dtype)
        content = _bytes_of(values)
        while content:
            count = os.preadv(self._file.fileno(), [content], start)
            if not count:
                raise _no_room()
            content, start = content[count:], start + count
        values.setflags(write=False)
        return values


class KeptNumbers:
    """Numbers of single rows, one array per part."""

    def __init__(self, parts: int) -> None:
        self._file = SpillFile()
        self._places: list[Any] = [None] * parts

    def __setitem__(self, part: int, values: Floats) -> None:
        self._places[part] = self._file.write(values)

    def __getitem__(self, part: int) -> Floats:
        return self._file.read(self._places[part])


class KeptRows:
    """Blocks on their grid, kept when they are first read, if there is room: four bytes per cell that is stored.

    ``read`` maps a part, its length and a digest for its marks to its blocks on the grid; there are so many
    ``cells``.
    """

    def __init__(
        self, read: Callable[[Any, int, Digest], Iterator[tuple[Any, Floats]]], cells: int, grid: FeatureGrid
    ) -> None:
        self._read, self._grid = read, grid
        room = shutil.disk_usage(tempfile.gettempdir()).free
        self._file = SpillFile() if 4 * cells <= _LARGEST_SHARE * room else None
        self._blocks: dict[Any, tuple[bytes, list[Any]]] = {}

    def again(self, part: Any) -> tuple[bytes, Iterator[tuple[Any, Floats]]] | None:
        """Return the seal and the blocks of a part if they are kept: the very same rows."""
        file, found = self._file, self._blocks.get(part)
        if file is None or found is None:
            return None
        seal, kept = found
        return seal, (
            (unpack(shape, [file.read(each) for each in rows]), file.read(labels)) for shape, rows, labels in kept
        )

    def __call__(self, part: Any, length: int, digest: Digest) -> Iterator[tuple[Any, Floats]]:
        """Yield the blocks of a part as they are read, and keep them."""
        file = self._file
        fresh: list[Any] | None = None if file is None else []
        for some in _together(self._read(part, length, digest), np.float32):
            if fresh is not None and file is not None:
                try:
                    shape, arrays, labels = _pack_together(some, self._grid, np.float32)
                    fresh.append((shape, [file.write(each) for each in arrays], file.write(labels)))
                except OutputNotWritable:  # then they are read again
                    fresh = self._file = None
            yield from some
        if fresh is not None:
            self._blocks[part] = digest.digest(), fresh


def packed_blocks(blocks: Iterable[Block], grid: FeatureGrid, kind: Any) -> list[Packed]:
    """Return what is kept of blocks on a grid, for `unpacked`."""
    return [_pack_together(some, grid, kind) for some in _together(blocks, kind)]


def _together(blocks: Iterable[Block], kind: Any) -> Iterator[list[Block]]:
    """Yield lists of blocks that are kept as one: whatever is asked, a block takes some time by itself."""
    some: list[Block] = []
    count = 0
    for rows, labels in blocks:
        length, columns = rows.shape
        if some and count + length > min(_MOST_ROWS, _MOST_CELLS[np.dtype(kind).itemsize] // columns):
            yield some
            some, count = [], 0
        some.append((rows, labels))
        count += length
    if some:
        yield some


def _pack_together(blocks: Sequence[Block], grid: FeatureGrid, kind: Any) -> Packed:
    """Return the shape, the packed rows and the labels of some blocks, one after the other."""
    labels = np.concatenate([each for _, each in blocks])
    columns = blocks[0][0].shape[1]
    return (labels.shape[0], columns), pack([rows for rows, _ in blocks], grid, kind), labels


def pack(blocks: Sequence[Any], grid: FeatureGrid, kind: Any = np.float32) -> tuple[NDArray[Any], ...]:
    """Return rows on a grid as arrays of four bytes per cell that is stored, or of eight for float64.

    Values on a grid have 21 bits, and float32 holds them exactly unless they are very large or small.
    """
    stored = kind if abs(grid.exponent) <= _LARGEST_EXPONENT else np.float64
    if not sparse.issparse(blocks[0]):
        columns = np.empty((blocks[0].shape[1], sum(len(rows) for rows in blocks)), dtype=stored)
        np.concatenate([rows.T for rows in blocks], axis=1, out=columns, casting="same_kind")
        return (columns,)
    rows = blocks[0] if len(blocks) == 1 else sparse.vstack(blocks, format="csr")
    return rows.data.astype(stored), rows.indices, rows.indptr


def unpack(shape: tuple[int, int], arrays: Sequence[NDArray[Any]]) -> Any:
    """Return the block that was packed, in float64; it cannot be written over."""
    entries = arrays[0].astype(np.float64, copy=False)
    entries.setflags(write=False)
    return entries.T if len(arrays) == 1 else sparse.csr_array((entries, *arrays[1:]), shape=shape)


def unpacked(blocks: Iterable[Packed]) -> Iterator[Block]:
    """Yield blocks, given by their shapes, packed rows and labels."""
    for shape, arrays, labels in blocks:
        yield unpack(shape, arrays), labels


def _bytes_of(values: Any) -> memoryview:
    """Return the memory of a contiguous array."""
    return memoryview(values.reshape(-1).view(np.uint8))


def _no_room() -> OutputNotWritable:
    return OutputNotWritable(
        f"numbers of single rows cannot be kept in {tempfile.gettempdir()!r}: make room for a few times eight bytes "
        "per row, or name another folder in TMPDIR"
    )
