"""Readers of the file formats in which public data sets are published."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import tarfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.datasets import load_svmlight_file

from ..errors import DatasetFormatError

__all__ = ["read_cifar_archive", "read_delimited", "read_idx", "read_libsvm", "read_packed", "rows_digest", "unpack"]

_CIFAR_RECORD = 1 + 3 * 32 * 32
_IDX_UNSIGNED_BYTE = 0x08


def unpack(content: bytes, members: tuple[str, ...] = ()) -> bytes:
    """Undo gzip, bzip2 and zip until plain bytes are left.

    Parameters
    ----------
    content : bytes
        A file as downloaded.
    members : tuple of str
        The member to take from each zip archive met on the way, outermost first.
    """
    remaining = list(members)
    try:
        while True:
            if content[:2] == b"\x1f\x8b":
                content = gzip.decompress(content)
            elif content[:3] == b"BZh":
                content = bz2.decompress(content)
            elif content[:4] == b"PK\x03\x04" and remaining:
                with zipfile.ZipFile(io.BytesIO(content)) as archive:
                    content = archive.read(remaining.pop(0))
            else:
                break
    except (OSError, EOFError, KeyError, ValueError, zlib.error, zipfile.BadZipFile) as error:
        raise DatasetFormatError(f"the archive is damaged or lacks a part: {error}") from None
    if remaining:
        raise DatasetFormatError(f"the file is no zip archive with a part {remaining[0]!r}")
    return content


def read_delimited(
    path: Path,
    *,
    members: tuple[str, ...] = (),
    names: Sequence[str] | None = None,
    dtype: Mapping[str, Any] | None = None,
    **options: Any,
) -> pd.DataFrame:
    """Read comma-separated text, packed or not, in which no cell counts as missing.

    Parameters
    ----------
    path : Path
        The file.
    members : tuple of str
        See `unpack`.
    names : sequence of str, optional
        Column names of a file without a header line; the file must have as many columns.
    dtype : mapping from column to type, optional
        Types of columns.
    **options
        Further options of ``pandas.read_csv``.
    """
    text = unpack(path.read_bytes(), members)
    types: dict[Any, Any] = dict(dtype or {})
    if names is not None:
        options["header"] = None
        types = {names.index(name): kind for name, kind in types.items()}
    try:
        table = pd.read_csv(io.BytesIO(text), keep_default_na=False, dtype=types, **options)
    except (ValueError, OverflowError):
        raise DatasetFormatError(f"{path.name!r} is not the comma-separated table it should be") from None
    if names is not None:
        if table.shape[1] != len(names):
            raise DatasetFormatError(f"{path.name!r} has {table.shape[1]} columns instead of {len(names)}")
        table.columns = pd.Index(names)
    return table


def read_libsvm(path: Path, columns: int) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    """Read LIBSVM text (``label index:value ...``, indices from 1) with labels -1 and +1 as 0 and 1."""
    try:
        features, labels = load_svmlight_file(
            io.BytesIO(unpack(path.read_bytes())), n_features=columns, zero_based=False
        )
    except DatasetFormatError:
        raise
    except (ValueError, IndexError):
        raise DatasetFormatError(f"{path.name!r} is not LIBSVM text with at most {columns} columns") from None
    if not np.isin(labels, (-1, 1)).all():
        raise DatasetFormatError(f"{path.name!r} has a label other than -1 and +1")
    return features.toarray(), (labels > 0).astype(np.int64)


def rows_digest(features: NDArray[np.float64], labels: NDArray[Any]) -> str:
    """Return a checksum of rows in millionths and of positive labels: the same however numbers were written."""
    cells = np.rint(features * 1e6).astype("<i4").tobytes()
    return hashlib.sha256(cells + (np.asarray(labels) > 0).astype(np.int8).tobytes()).hexdigest()


def read_idx(path: Path) -> NDArray[np.uint8]:
    """Read an IDX file of unsigned bytes: two zeros, type, rank, big-endian uint32 sizes, then the bytes."""
    content = unpack(path.read_bytes())
    if len(content) < 4 or content[:2] != b"\0\0" or content[2] != _IDX_UNSIGNED_BYTE:
        raise DatasetFormatError(f"{path.name!r} is not an IDX file of unsigned bytes")
    rank = content[3]
    start = 4 + 4 * rank
    shape = tuple(int(size) for size in np.frombuffer(content[4:start], dtype=">u4"))
    if len(shape) != rank or len(content) - start != int(np.prod(shape, dtype=np.int64)):
        raise DatasetFormatError(f"{path.name!r} is shorter or longer than its IDX header says")
    return np.frombuffer(content, dtype=np.uint8, offset=start).reshape(shape)


def read_cifar_archive(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int]:
    """Read the binary version of CIFAR-10 (records of one label byte and three 32 x 32 planes).

    The binary version is read because the other one is a pickle, which may run code when it is opened.

    Returns
    -------
    images : ndarray of shape (n, 32, 32, 3)
        Training batches in order, then the test batch.
    labels : ndarray of shape (n,)
    train_rows : int
    """
    parts: dict[str, NDArray[np.uint8]] = {}
    try:
        with tarfile.open(path, mode="r:*") as archive:
            for member in archive:
                name = Path(member.name).name
                stream = archive.extractfile(member) if member.isfile() else None
                if stream is not None and name.endswith(".bin"):
                    parts[name] = np.frombuffer(stream.read(), dtype=np.uint8)
    except (tarfile.TarError, OSError, EOFError, zlib.error) as error:
        raise DatasetFormatError(f"{path.name!r} is not a readable tar archive: {error}") from None
    train = sorted(name for name in parts if name.startswith("data_batch_"))
    if not train or "test_batch.bin" not in parts:
        raise DatasetFormatError(f"{path.name!r} lacks data_batch_1.bin or test_batch.bin: take the binary version")
    if any(len(parts[name]) % _CIFAR_RECORD for name in parts):
        raise DatasetFormatError(f"{path.name!r} has a part that is no whole number of {_CIFAR_RECORD}-byte records")
    records = np.concatenate([parts[name] for name in (*train, "test_batch.bin")]).reshape(-1, _CIFAR_RECORD)
    images = records[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return images, records[:, 0], sum(len(parts[name]) for name in train) // _CIFAR_RECORD


def read_packed(path: Path, *names: str) -> list[NDArray[Any]]:
    """Read arrays from an NPZ file; object arrays, which would need pickle, are refused."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return [archive[name] for name in names]
    except KeyError as error:
        raise DatasetFormatError(f"{path.name!r} lacks an array: {error.args[0]}") from None
    except Exception:  # a damaged archive fails in many ways, and what is said of it may show a cell
        raise DatasetFormatError(
            f"{path.name!r} is not an NPZ file of plain arrays: write it by numpy.savez, without objects"
        ) from None
