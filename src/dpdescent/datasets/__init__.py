"""Data sets by name: public ones, the caller's own files, and tables that need no file."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DatasetNotAvailable, InvalidParameter, UnknownDataset, nearest
from . import benchmark_tables as tables, census, images
from .dataset import (
    Dataset as Dataset,
    DatasetInfo as DatasetInfo,
    is_data_path as is_data_path,
    load_file,
    read_packed as read_packed,
    require_readable as require_readable,
)
from .store import Origin, ProgressHook, find_local, obtain
from .synthetic_tables import SCHEMA_NAME as SCHEMA_NAME, load_synthetic, write_large_table as write_large_table


@dataclass(frozen=True)
class _Entry:
    title: str
    rows: int
    columns: int
    classes: int
    origin: Origin
    load: Callable[..., Dataset]


_SYNTHETIC_INFO = DatasetInfo(
    name="synthetic",
    title="census-like table, high income or not",
    rows=20_000,
    columns=24,
    classes=2,
    source="Drawn by dpdescent.",
    files=(),
    urls=(),
    location=None,
    built_in=True,
)

_ENTRIES: dict[str, _Entry] = {
    "adult": _Entry("Adult, 123-column 0/1 coding (a9a)", 48_842, 123, 2, census.ADULT_ORIGIN, census.load_adult),
    "adult-raw": _Entry(
        "Adult as a table with a public schema", 48_842, 107, 2, census.ADULT_RAW_ORIGIN, census.load_adult_raw
    ),
    "bank": _Entry("Bank marketing, 32-column coding", 45_211, 32, 2, tables.BANK_ORIGIN, tables.load_bank),
    "ipums-br": _Entry(
        "IPUMS Brazil, extract of Lee and Kifer", 38_000, 52, 2, census.IPUMS_BR_ORIGIN, census.load_ipums_br
    ),
    "acs-income": _Entry(
        "American Community Survey, NIST excerpts", 73_116, 118, 2, census.ACS_ORIGIN, census.load_acs_income
    ),
    "covertype": _Entry(
        "Covertype, class 2 against class 1", 495_141, 54, 2, tables.COVERTYPE_ORIGIN, tables.load_covertype
    ),
    "ijcnn1": _Entry("IJCNN 2001 competition", 141_691, 22, 2, tables.IJCNN1_ORIGIN, tables.load_ijcnn1),
    "kddcup99": _Entry(
        "KDD Cup 1999, 10 percent, attack or normal", 494_021, 122, 2, tables.KDD_ORIGIN, tables.load_kddcup99
    ),
    "kddcup99-dos": _Entry(
        "KDD Cup 1999, 10 percent, denial of service or not",
        494_021,
        122,
        2,
        tables.KDD_ORIGIN,
        tables.load_kddcup99_dos,
    ),
    "mnist": _Entry("MNIST digits", 70_000, 784, 10, images.MNIST_ORIGIN, images.load_mnist),
    "fashion-mnist": _Entry("Fashion-MNIST", 70_000, 784, 10, images.FASHION_MNIST_ORIGIN, images.load_fashion_mnist),
    "cifar10": _Entry(
        "CIFAR-10 (packed form: 20,000 images)", 60_000, 3072, 10, images.CIFAR10_ORIGIN, images.load_cifar10
    ),
}


def load_dataset(
    name: str | Path, *, download: bool = True, progress: ProgressHook | None = None, **options: Any
) -> Dataset:
    """Load a data set by name, or a file by path.

    Parameters
    ----------
    name : str or Path
        One of the names of `list_datasets`, or the path of a CSV, Parquet or NPZ file.
    download : bool
        Whether a data set that is not on this machine may be downloaded.
    progress : callable, optional
        Called with file name, bytes received and bytes expected (None if unknown) while downloading.
    **options
        ``n`` and ``seed`` for ``synthetic``; ``threshold`` for ``acs-income``; ``flatten`` and ``dtype`` for
        images; ``schema``, ``unknown`` and ``missing`` for tables; ``bounds`` and ``classes`` for NPZ files.

    Returns
    -------
    Dataset

    Raises
    ------
    UnknownDataset
        There is neither such a name nor such a file.
    DatasetNotAvailable
        No copy is on this machine and none can be downloaded.

    Notes
    -----
    A copy is looked for in ``$DPDESCENT_DATA``, then in ``$XDG_CACHE_HOME/dpdescent`` (by default
    ``~/.cache/dpdescent``), where downloads are kept.

    Examples
    --------
    >>> load_dataset("synthetic", n=1000).X.shape
    (1000, 24)
    """
    key = str(name)
    if key == "synthetic":
        _check_options(key, load_synthetic, options, skip=0)
        return load_synthetic(**options)
    if key in _ENTRIES:
        entry = _ENTRIES[key]
        _check_options(key, entry.load, options, skip=1)
        return entry.load(obtain(key, entry.origin, download=download, progress=progress), **options)
    require_readable(key)
    known = [*_ENTRIES, "synthetic"]
    if not isinstance(name, Path) and not is_data_path(key):
        raise UnknownDataset(
            f"there is no data set {key!r}{nearest(key, known)}: choose one of {', '.join(known)}, "
            "or give the path of a .csv, .tsv, .txt, .parquet or .npz file"
        )
    if not is_data_path(key):
        raise UnknownDataset(f"{key!r} is no .csv, .tsv, .txt, .parquet or .npz file")
    if not Path(name).is_file():
        raise DatasetNotAvailable(f"there is no file {key!r}: correct the path")
    _check_options(key, load_file, options, skip=1)
    return load_file(Path(name), **options)


def list_datasets() -> list[DatasetInfo]:
    """Return what is known about each data set, and where a copy is on this machine, if one is."""
    infos = [_SYNTHETIC_INFO]
    for name, entry in _ENTRIES.items():
        found = find_local(name, entry.origin)
        infos.append(
            DatasetInfo(
                name=name,
                title=entry.title,
                rows=entry.rows,
                columns=entry.columns,
                classes=entry.classes,
                source=entry.origin.citation,
                files=entry.origin.packed,
                urls=tuple(remote.urls[0] for remote in entry.origin.remotes),
                location=None if found is None else found.paths[0].parent,
            )
        )
    return infos


def _check_options(name: str, load: Callable[..., Dataset], options: dict[str, Any], skip: int) -> None:
    known = list(inspect.signature(load).parameters)[skip:]
    unknown = [option for option in options if option not in known]
    if unknown:
        raise InvalidParameter(
            f"data set {name!r} has no option {unknown[0]!r}: it takes {', '.join(known) or 'none'}"
        )
