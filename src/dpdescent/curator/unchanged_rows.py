"""Seals tell whether rows that are read again are the same rows, in the same places.

Clip factors and batches are kept by place, and bounds are measured before a model is fitted, so a table must stay the
same for as long as a fit takes. Each row has a mark, a sum modulo 2^64 of the bits of its cells times odd numbers,
which a change of any one cell changes. The bits are mixed first: a number like 1.0 has zeros in its last 52 bits, so
that its product with a factor would tell only 12 bits of that. The seal of a part is a digest of the marks of its
rows. Marks are made of the rows as a table yields them, before they are coded for a query, so they are the same in
every pass of a fit and for every block, thread and process. Seals are unreleased data and stay in the process that
fits.
"""

from __future__ import annotations

from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
from numpy.typing import NDArray
from pandas.util import hash_array
from scipy import sparse

from ..errors import DatasetFormatError
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
