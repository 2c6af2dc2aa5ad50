"""What a data set is, and how its files are read: those of the caller, and the formats of published ones."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.datasets import load_svmlight_file

from ..arrays import Booleans, Floats, Integers
from ..errors import ColumnTypeError, DatasetFormatError, InvalidParameter, MissingValue, UnknownLevel
from ..tables import PARQUET_SUFFIXES, TEXT_SUFFIXES, Schema, read_table, require_rows, scale_columns


@dataclass(frozen=True, eq=False)
class Dataset:
    """A data set, ready for an estimator.

    Parameters
    ----------
    name : str
        Its name.
    X : ndarray of shape (n, d)
        Features, every entry inside ``bounds``; images keep their shape if asked to.
    y : ndarray of shape (n,)
        Labels.
    feature_names : tuple of str
        One name per column of ``X`` (per pixel for images).
    bounds : (low, high) or None
        Public bounds of every feature, to be passed on to the estimator; None, or NaN for a column, where they are
        to be measured.
    classes : tuple
        Public classes, to be passed on to the estimator; empty where the label is a number.
    source : str
        Where the data come from, with the citation.
    notes : str
        How they are coded here.
    table : DataFrame, optional
        The columns before encoding, label included.
    split : ndarray of "train" and "test", optional
        The published parts, where there are any.
    schema : Schema, optional
        Public schema of ``table``.
    binary_features : ndarray of bool, optional
        Which columns of ``X`` are coded as 0 or 1, to be passed on to the estimator; None where the coding does not
        say.
    unit : Series, optional
        Whose row each is, to be passed on to ``fit``, where the schema declares a unit.

    Notes
    -----
    **Privacy.** Bounds, levels and classes are constants of the package or come from the caller; loading
    reads none of them from the rows.
    """

    name: str
    X: NDArray[Any]
    y: NDArray[Any]
    feature_names: tuple[str, ...]
    bounds: Any
    classes: tuple[Any, ...]
    source: str
    notes: str = ""
    table: pd.DataFrame | None = None
    split: NDArray[np.str_] | None = None
    schema: Schema | None = None
    binary_features: Booleans | None = None
    unit: pd.Series | None = None

    def __post_init__(self) -> None:
        parts = {"y": self.y, "table": self.table, "split": self.split, "unit": self.unit}
        wrong = [name for name, part in parts.items() if part is not None and len(part) != len(self.X)]
        if wrong:
            raise DatasetFormatError(f"data set {self.name!r}: {' and '.join(wrong)} and X differ in length")
        if int(np.prod(self.X.shape[1:])) != len(self.feature_names):
            raise DatasetFormatError(f"data set {self.name!r}: X does not have one column per feature name")
        if self.binary_features is not None and self.binary_features.shape != (len(self.feature_names),):
            raise DatasetFormatError(f"data set {self.name!r}: binary_features does not have one entry per column")


def coded(table: pd.DataFrame, schema: Schema) -> dict[str, Any]:
    """Return what a data set has of a table that a schema codes."""
    encoder = schema.encoder()
    X, bounds = encoder.fit_transform(table), encoder.output_bounds_ if schema.to_measure else (0.0, 1.0)
    coding = {"feature_names": tuple(encoder.get_feature_names_out()), "binary_features": encoder.binary_features_}
    return {"X": X, "bounds": bounds, "table": table, "schema": schema} | coding


@dataclass(frozen=True)
class DatasetInfo:
    """What is known about a data set before it is loaded.

    Parameters
    ----------
    name, title : str
        Its name and a line about it.
    rows, columns, classes : int
        Published shape after encoding.
    source : str
        Citation.
    files : tuple of str
        Names of the files that serve as an offline copy; empty if it is built in.
    urls : tuple of str
        Where it is downloaded from; empty if there is no stable public download.
    location : Path or None
        The folder in which a copy was found on this machine.
    built_in : bool
        Whether it needs no file.
    """

    name: str
    title: str
    rows: int
    columns: int
    classes: int
    source: str
    files: tuple[str, ...]
    urls: tuple[str, ...]
    location: Path | None
    built_in: bool = False


_FOREIGN = dict.fromkeys((".xlsx", ".xls", ".xlsm", ".xlsb"), "an Excel workbook") | {
    ".ods": "a spreadsheet",
    ".json": "JSON",
    ".jsonl": "JSON",
    ".feather": "a Feather file",
    ".sas7bdat": "a file of SAS",
    ".sav": "a file of SPSS",
    ".dta": "a file of Stata",
    ".rds": "a file of R",
    ".zip": "a ZIP archive",
}


def is_data_path(name: str) -> bool:
    """Whether a data set name is a file name of a kind that can be loaded."""
    return name.endswith((*TEXT_SUFFIXES, *PARQUET_SUFFIXES, ".npz"))


def require_readable(name: str) -> None:
    """Raise `DatasetFormatError` for a file that others read, by its suffix alone, and say what to do with it."""
    suffix = Path(name).suffix.lower()
    if suffix in _FOREIGN:
        raise DatasetFormatError(
            f"{name!r} is {_FOREIGN[suffix]}, and tables are read from CSV, TSV, Parquet and NPZ files: save it as "
            "CSV, or read it by pandas and pass the DataFrame to an estimator"
        )


def load_file(
    path: Path,
    *,
    schema: Schema | str | Path | None = None,
    bounds: tuple[ArrayLike, ArrayLike] | str | None = None,
    classes: Sequence[Any] | None = None,
    unknown: str | None = None,
    missing: str | None = None,
) -> Dataset:
    """Load a file together with what is publicly known about it.

    Parameters
    ----------
    path : Path
        A ``.csv``, ``.tsv`` or ``.txt`` table, compressed by gzip or not, a ``.parquet`` table, or an ``.npz``
        archive with arrays ``X`` and ``y``.
    schema : Schema or path
        Public schema of a table. Columns without bounds stay as they are, to be measured by an estimator.
    bounds : (low, high) or "measure"
        Public bounds of ``X`` in an NPZ file: two numbers, or two arrays with one number per column. "measure" leaves
        ``X`` as it is, to be measured by an estimator.
    classes : sequence
        Public classes of ``y`` in an NPZ file; empty where ``y`` is a number to be predicted.
    unknown, missing : str, optional
        See `dpdescent.tables.BoundedEncoder`; for tables, in place of what the schema says.
    """
    if path.suffix == ".npz":
        if schema is not None:
            raise InvalidParameter("an NPZ file takes bounds and classes instead of a schema")
        return _load_arrays(path, bounds, classes)
    if bounds is not None or classes is not None:
        raise InvalidParameter("a table takes a schema instead of bounds and classes")
    if schema is None:
        raise InvalidParameter(
            f"{path.name!r} needs a schema, the public bounds and levels of its columns: `dpdescent schema {path} "
            "--label COLUMN` writes a draft to fill in"
        )
    declared = schema if isinstance(schema, Schema) else Schema.load(schema)
    declared = declared.choosing(missing=missing, unknown=unknown)
    table = read_table(path, declared)
    require_rows(path, len(table), declared.rows)
    return Dataset(
        name=path.name,
        y=declared.labels(table),
        classes=declared.label.classes or (),
        source=f"The file {path.name}.",
        notes="Encoded with the bounds and levels of the schema.",
        **coded(table, declared),
        unit=None if declared.unit is None else table[declared.unit.column],
    )


def _load_arrays(
    path: Path, bounds: tuple[ArrayLike, ArrayLike] | str | None, classes: Sequence[Any] | None
) -> Dataset:
    if bounds is None or classes is None:
        raise InvalidParameter(
            f"{path.name!r} needs bounds and classes, both public: they are never read from the file; bounds "
            "'measure' lets a fit measure them"
        )
    X, y = read_packed(path, "X", "y")
    _check_arrays(path, X, y)
    measured = isinstance(bounds, str) and bounds == "measure"
    if not measured:
        low, high = _spread_bounds(bounds, X.shape[1])
    if len(X) == 0 or X.shape[1] == 0:
        raise DatasetFormatError(f"{path.name!r}: X has no rows or no columns: there is nothing to learn from")
    _check_target(path, y, classes)
    return Dataset(
        name=path.name,
        X=np.asarray(X, dtype=np.float64) if measured else scale_columns(X, low, high),
        y=y,
        feature_names=tuple(f"x{position}" for position in range(X.shape[1])),
        bounds=None if measured else (0.0, 1.0),
        classes=tuple(classes),
        source=f"The file {path.name}.",
        notes="As it is." if measured else "Scaled to [0, 1] by the bounds of the caller.",
    )


def _check_arrays(path: Path, X: NDArray[Any], y: NDArray[Any]) -> None:
    """Raise what is wrong with arrays whatever is declared about them."""
    if X.ndim != 2 or y.ndim != 1:
        raise DatasetFormatError(f"{path.name!r}: X must have two dimensions and y one")
    if X.dtype.kind not in "biuf":
        raise ColumnTypeError(f"{path.name!r}: X must hold real numbers, and is stored as {X.dtype}")
    if y.dtype.kind not in "biufUS":
        raise ColumnTypeError(f"{path.name!r}: y must hold numbers, truth values or text, and is stored as {y.dtype}")
    if not np.isfinite(X).all():
        raise MissingValue(f"{path.name!r}: X has a missing or infinite value: fill it with a public constant")


def _spread_bounds(bounds: Any, columns: int) -> tuple[Floats, Floats]:
    """Return public bounds, one pair for each column."""
    try:
        low, high = (np.broadcast_to(np.asarray(end, dtype=np.float64), columns) for end in bounds)
    except (TypeError, ValueError):
        raise InvalidParameter(f"bounds must be two numbers, or two lists with {columns} numbers each") from None
    if not (np.isfinite(high - low).all() and (low < high).all()):
        raise InvalidParameter("bounds must be finite with low < high in every column")
    return low, high


def _check_target(path: Path, y: NDArray[Any], classes: Sequence[Any]) -> None:
    """Raise unless labels are among the public classes, or finite numbers where there are none."""
    if len(classes) == 0:
        if y.dtype.kind not in "biuf":
            raise ColumnTypeError(f"{path.name!r}: y must hold real numbers, and is stored as {y.dtype}")
        if not np.isfinite(y).all():
            raise MissingValue(f"{path.name!r}: y has a missing or infinite value: remove such rows beforehand")
    elif not np.isin(y, np.asarray(classes)).all():
        raise UnknownLevel(f"{path.name!r}: y has a value outside the {len(classes)} public classes")


def unpack(content: bytes, members: tuple[str, ...] = ()) -> bytes:
    """Undo gzip, bzip2 and zip until plain bytes are left.

    ``members`` are what to take from each zip archive met on the way, outermost first.
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

    ``members`` are those of `unpack`. ``names`` are the columns of a file without a header line, which must have as
    many, and ``options`` are those of ``pandas.read_csv``.
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


def read_libsvm(path: Path, columns: int) -> tuple[Floats, Integers]:
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


def rows_digest(features: Floats, labels: NDArray[Any]) -> str:
    """Return a checksum of rows in millionths and of positive labels: the same however numbers were written."""
    cells = np.rint(features * 1e6).astype("<i4").tobytes()
    return hashlib.sha256(cells + (np.asarray(labels) > 0).astype(np.int8).tobytes()).hexdigest()


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


def words(text: str) -> tuple[str, ...]:
    """Return the words of a text, as which public levels are typed in."""
    return tuple(text.split())
