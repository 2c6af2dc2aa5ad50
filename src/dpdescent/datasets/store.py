"""Find a data set's files on this machine, or download them once."""

from __future__ import annotations

import hashlib
import http.client
import os
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Integers
from ..errors import ChecksumMismatch, DatasetFormatError, DatasetNotAvailable
from .dataset import read_libsvm, read_packed, rows_digest, unpack

ProgressHook = Callable[[str, int, int | None], None]
"""Called with the file name, the bytes received so far and the bytes expected (None if unknown)."""

#: Where LIBSVM publishes its data sets of two classes.
LIBSVM = "https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/binary/"

_BLOCK_BYTES = 1 << 16
_TIMEOUT_SECONDS = 30.0


@dataclass(frozen=True)
class Remote:
    """One file of a public source."""

    filename: str  # name under which it is kept
    urls: tuple[str, ...]  # https addresses of the same file, tried in order
    sha256: str | None = None  # checksum of the file as downloaded
    #: Checksum of what is inside, which does not depend on how a mirror compressed it.
    content_sha256: str | None = None
    members: tuple[str, ...] = ()  # the parts to take from nested zip archives, outermost first
    #: Checksum of the rows in LIBSVM text (`rows_digest`), for a file of which only the rows are known.
    rows_sha256: str | None = None
    columns: int = 0  # of such rows


@dataclass(frozen=True)
class Origin:
    """Where a data set comes from, and the forms in which it can be on this machine."""

    citation: str  # whom to cite
    packed: tuple[str, ...]  # files of the packed form, looked for in the data folder itself
    #: Files of the public form, looked for in a subfolder named after the data set.
    remotes: tuple[Remote, ...] = ()
    no_download: str = ""  # why there is no public form, if there is none


@dataclass(frozen=True)
class LocalFiles:
    """Files that were found: the packed form, or the public form in the order of its remotes."""

    packed: bool
    paths: tuple[Path, ...]


def mark_parts(train: int, test: int) -> NDArray[np.str_]:
    """Return "train" and "test" marks for stacked parts."""
    return np.repeat(np.array(["train", "test"]), [train, test])


def read_libsvm_parts(files: LocalFiles, columns: int) -> tuple[NDArray[Any], Integers, NDArray[np.str_]]:
    """Return features, labels 0 and 1, and marks of a training part and a test part, in LIBSVM text or packed."""
    if files.packed:
        X_train, y_train, X_test, y_test = read_packed(files.paths[0], "X_train", "y_train", "X_test", "y_test")
        y_train, y_test = y_train > 0, y_test > 0
    else:
        (X_train, y_train), (X_test, y_test) = (read_libsvm(path, columns) for path in files.paths)
    labels = np.concatenate([y_train, y_test]).astype(np.int64, copy=False)
    return np.concatenate([X_train, X_test]), labels, mark_parts(len(X_train), len(X_test))


def cache_folder() -> Path:
    """Return ``$XDG_CACHE_HOME/dpdescent``, by default ``~/.cache/dpdescent``."""
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "dpdescent"


def find_local(name: str, origin: Origin) -> LocalFiles | None:
    """Look for a data set in ``$DPDESCENT_DATA`` first, then in the cache."""
    chosen = os.environ.get("DPDESCENT_DATA")
    for folder in [*([Path(chosen).expanduser()] if chosen else []), cache_folder()]:
        packed = tuple(folder / filename for filename in origin.packed)
        if all(path.is_file() for path in packed):
            return LocalFiles(True, packed)
        public = tuple(folder / name / remote.filename for remote in origin.remotes)
        if public and all(path.is_file() for path in public):
            return LocalFiles(False, public)
    return None


def obtain(name: str, origin: Origin, *, download: bool = True, progress: ProgressHook | None = None) -> LocalFiles:
    """Return the files of a data set, downloading them into the cache if they are not here.

    Raises
    ------
    DatasetNotAvailable
        There is no copy, and none can be had; the message names both ways to get one.
    ChecksumMismatch
        The public source sent something other than the published file.
    """
    found = find_local(name, origin)
    if found is not None:
        return found
    if not origin.remotes or not download:
        raise DatasetNotAvailable(_how_to_get(name, origin, ""))
    folder = cache_folder() / name
    try:
        paths = [folder / remote.filename for remote in origin.remotes]
        for remote, path in zip(origin.remotes, paths, strict=True):
            if not path.is_file():
                fetch(remote, folder, progress=progress)
    except (OSError, http.client.HTTPException) as error:
        raise DatasetNotAvailable(_how_to_get(name, origin, str(error) or type(error).__name__)) from None
    return LocalFiles(False, tuple(paths))


def open_url(url: str, timeout: float) -> AbstractContextManager[Any]:
    """Open an https address for reading."""
    request = urllib.request.Request(url, headers={"User-Agent": "dpdescent"})
    response: AbstractContextManager[Any] = urllib.request.urlopen(request, timeout=timeout)
    return response


def fetch(
    remote: Remote,
    folder: Path,
    *,
    opener: Callable[[str, float], AbstractContextManager[Any]] | None = None,
    progress: ProgressHook | None = None,
    timeout: float = _TIMEOUT_SECONDS,
) -> Path:
    """Download one file, check it, and only then give it its name.

    Addresses are tried in order, and one is given up after ``timeout`` seconds without an answer. The folder is made
    if need be, ``opener`` stands in for `open_url`, and ``progress`` is called after each block.

    Raises
    ------
    ChecksumMismatch
        No address gave the published file.
    OSError
        No address could be read to the end.
    """
    folder.mkdir(parents=True, exist_ok=True)
    failure: Exception = OSError(f"{remote.filename} has no address")
    for url in remote.urls:
        descriptor, partial = tempfile.mkstemp(prefix=f".{remote.filename}.", suffix=".part", dir=folder)
        try:
            with os.fdopen(descriptor, "wb") as sink:
                _copy(url, sink, remote.filename, opener or open_url, progress, timeout)
            _verify(remote, Path(partial))
            target = folder / remote.filename
            os.replace(partial, target)
            return target
        except (OSError, http.client.HTTPException, ChecksumMismatch) as error:
            failure = error
        finally:
            Path(partial).unlink(missing_ok=True)
    raise failure


def _copy(
    url: str,
    sink: Any,
    filename: str,
    opener: Callable[[str, float], AbstractContextManager[Any]],
    progress: ProgressHook | None,
    timeout: float,
) -> None:
    if not url.startswith("https://"):
        raise OSError(f"{url} is not an https address")
    with opener(url, timeout) as response:
        if not response.geturl().startswith("https://"):
            raise OSError(f"{url} redirects to an address without https")
        length = response.headers.get("Content-Length")
        expected = int(length) if length is not None else None
        received = 0
        while block := response.read(_BLOCK_BYTES):
            sink.write(block)
            received += len(block)
            if progress is not None:
                progress(filename, received, expected)
    if expected is not None and received != expected:
        raise OSError(f"{url} broke off after {received} of {expected} bytes")


def _verify(remote: Remote, path: Path) -> None:
    content = path.read_bytes()
    if remote.sha256 is not None and hashlib.sha256(content).hexdigest() != remote.sha256:
        raise ChecksumMismatch(_mismatch(remote))
    if remote.content_sha256 is not None:
        try:
            inside = unpack(content, remote.members)
        except DatasetFormatError as error:
            raise ChecksumMismatch(f"{_mismatch(remote)} ({error})") from None
        if hashlib.sha256(inside).hexdigest() != remote.content_sha256:
            raise ChecksumMismatch(_mismatch(remote))
    if remote.rows_sha256 is not None:
        try:
            digest = rows_digest(*read_libsvm(path, remote.columns))
        except DatasetFormatError as error:
            raise ChecksumMismatch(f"{_mismatch(remote)} ({error})") from None
        if digest != remote.rows_sha256:
            raise ChecksumMismatch(_mismatch(remote))


def _mismatch(remote: Remote) -> str:
    return (
        f"{remote.filename} as sent by {remote.urls[-1]} is not the published file (sha256 differs) and was "
        f"thrown away: try again later, or set DPDESCENT_DATA to a folder with a good copy"
    )


def _how_to_get(name: str, origin: Origin, failure: str) -> str:
    chosen = os.environ.get("DPDESCENT_DATA")
    wanted = " and ".join(origin.packed)
    if origin.remotes:
        wanted += " (or " + ", ".join(f"{name}/{remote.filename}" for remote in origin.remotes) + ")"
    place = f"; it is set to {chosen!r}, which does not have it" if chosen else ""
    first = f"set DPDESCENT_DATA to a folder that has {wanted}{place}"
    if not origin.remotes:
        return (
            f"data set {name!r} is not on this machine: {first}. There is no stable public download: "
            f"{origin.no_download}"
        )
    addresses = ", ".join(remote.urls[0] for remote in origin.remotes)
    why = f" (the attempt just now failed: {failure})" if failure else ""
    return (
        f"data set {name!r} is not on this machine: either {first}; or connect to the network and run again, "
        f"it is then downloaded once from {addresses} into {str(cache_folder())!r}{why}"
    )
