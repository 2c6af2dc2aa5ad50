"""Image data sets: MNIST, Fashion-MNIST and CIFAR-10, and the formats in which they are published."""

from __future__ import annotations

import tarfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from ..errors import DatasetFormatError, InvalidParameter
from .dataset import Dataset, read_packed, unpack
from .store import LocalFiles, Origin, Remote, mark_parts

_MNIST_MIRRORS = (
    "https://ossci-datasets.s3.amazonaws.com/mnist/",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
)
_FASHION_MIRRORS = ("https://github.com/zalandoresearch/fashion-mnist/raw/master/data/fashion/",)
_IDX_NAMES = (
    "train-images-idx3-ubyte.gz",
    "train-labels-idx1-ubyte.gz",
    "t10k-images-idx3-ubyte.gz",
    "t10k-labels-idx1-ubyte.gz",
)
_CIFAR_RECORD = 1 + 3 * 32 * 32  # bytes
_IDX_UNSIGNED_BYTE = 0x08
_CIFAR_NOTE = "Pixels / 255 in the order row, column, channel (red, green, blue)."


def _idx_origin(citation: str, packed: str, mirrors: tuple[str, ...], checksums: tuple[str, ...]) -> Origin:
    return Origin(
        citation=citation,
        packed=(packed,),
        remotes=tuple(
            Remote(name, tuple(mirror + name for mirror in mirrors), content_sha256=checksum)
            for name, checksum in zip(_IDX_NAMES, checksums, strict=True)
        ),
    )


MNIST_ORIGIN = _idx_origin(
    "LeCun, Cortes and Burges, The MNIST database of handwritten digits, 1998.",
    "mnist.npz",
    _MNIST_MIRRORS,
    (
        "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db",
        "65a50cbbf4e906d70832878ad85ccda5333a97f0f4c3dd2ef09a8a9eef7101c5",
        "0fa7898d509279e482958e8ce81c8e77db3f2f8254e26661ceb7762c4d494ce7",
        "ff7bcfd416de33731a308c3f266cc351222c34898ecbeaf847f06e48f7ec33f2",
    ),
)
FASHION_MNIST_ORIGIN = _idx_origin(
    "Xiao, Rasul and Vollgraf, Fashion-MNIST, 2017, arXiv:1708.07747.",
    "fashion_mnist.npz",
    _FASHION_MIRRORS,
    (
        "c59f468a2f672dc815687fe0f83887768d799fd8a3f3276145d20f83aa44d888",
        "bad3541b69d912435c50bb6ba87bec294ff4f6a2e1246121d8633921760443d9",
        "5b4141f0afbad91edebe8549f8fcffe087ea10ca49f1dbef5c9a5cd8815ce37b",
        "0402a96d92fd2663957122ceb108a494c5af83dab82d92729df917d7dec38c34",
    ),
)
CIFAR10_ORIGIN = Origin(
    citation="Krizhevsky, Learning multiple layers of features from tiny images, 2009.",
    packed=("cifar10_part.npz",),
    remotes=(
        Remote(
            "cifar-10-binary.tar.gz",
            ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
            sha256="c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
        ),
    ),
)


def load_mnist(files: LocalFiles, *, flatten: bool = True, dtype: DTypeLike = np.float64) -> Dataset:
    """Load MNIST: 60,000 training and 10,000 test images of 28 x 28 pixels.

    The files are one NPZ file or four IDX files. ``flatten`` has one row per image (784 columns) instead of 28 x 28.
    """
    return _digits("mnist", files, MNIST_ORIGIN.citation, flatten, dtype)


def load_fashion_mnist(files: LocalFiles, *, flatten: bool = True, dtype: DTypeLike = np.float64) -> Dataset:
    """Load Fashion-MNIST: 60,000 training and 10,000 test images; options as in `load_mnist`."""
    return _digits("fashion-mnist", files, FASHION_MNIST_ORIGIN.citation, flatten, dtype)


def load_cifar10(files: LocalFiles, *, flatten: bool = True, dtype: DTypeLike = np.float64) -> Dataset:
    """Load CIFAR-10; options as in `load_mnist`.

    The packed form holds the first training batch (10,000 images) and the test batch, as differences; the
    public form holds 50,000 training images and the test batch.
    """
    if files.packed:
        d_train, y_train, d_test, y_test = read_packed(files.paths[0], "D_train", "y_train", "D_test", "y_test")
        pixels = np.concatenate([_undo_differences(d_train), _undo_differences(d_test)])
        labels, train_rows = np.concatenate([y_train, y_test]), len(y_train)
    else:
        pixels, labels, train_rows = _read_cifar_archive(files.paths[0])
    split = mark_parts(train_rows, len(labels) - train_rows)
    whole = "" if not files.packed else " This copy holds the first training batch (10,000 images) only."
    return _images("cifar10", pixels, labels, split, CIFAR10_ORIGIN.citation, _CIFAR_NOTE + whole, flatten, dtype)


def _read_idx(path: Path) -> NDArray[np.uint8]:
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


def _read_cifar_archive(path: Path) -> tuple[NDArray[np.uint8], NDArray[np.uint8], int]:
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


def _digits(name: str, files: LocalFiles, source: str, flatten: bool, dtype: DTypeLike) -> Dataset:
    if files.packed:
        X_train, y_train, X_test, y_test = read_packed(files.paths[0], "X_train", "y_train", "X_test", "y_test")
    else:
        X_train, y_train, X_test, y_test = (_read_idx(path) for path in files.paths)
    if X_train.ndim != 3 or len(X_train) != len(y_train) or len(X_test) != len(y_test):
        raise DatasetFormatError(f"data set {name!r}: images and labels do not belong together")
    pixels, labels = np.concatenate([X_train, X_test]), np.concatenate([y_train, y_test])
    split = mark_parts(len(y_train), len(y_test))
    return _images(name, pixels, labels, split, source, "Pixels / 255 in the order row, column.", flatten, dtype)


def _images(
    name: str,
    pixels: NDArray[np.uint8],
    labels: NDArray[Any],
    split: NDArray[np.str_],
    source: str,
    notes: str,
    flatten: bool,
    dtype: DTypeLike,
) -> Dataset:
    kind = np.dtype(dtype)
    if kind not in (np.dtype(np.float64), np.dtype(np.float32)):
        raise InvalidParameter(f"dtype must be float64 or float32, got {kind}")
    X = np.array(pixels, dtype=kind, order="C")
    X /= 255
    count = int(np.prod(X.shape[1:]))
    return Dataset(
        name=name,
        X=X.reshape(len(X), count) if flatten else X,
        y=labels.astype(np.int64),
        feature_names=tuple(f"pixel_{position}" for position in range(count)),
        bounds=(0.0, 1.0),
        classes=tuple(range(10)),
        source=source,
        notes=notes,
        split=split,
    )


def _undo_differences(coded: NDArray[np.uint8]) -> NDArray[np.uint8]:
    # Planes are green, red - green, blue - green, each differenced down and across modulo 256.
    planes = np.cumsum(np.cumsum(coded, axis=2, dtype=np.uint8), axis=3, dtype=np.uint8)
    green = planes[:, 0]
    return np.stack([planes[:, 1] + green, green, planes[:, 2] + green], axis=-1)
