"""Tables and labels as arrays of numbers, with errors that name a column and never show a cell.

scikit-learn's own errors quote what it could not convert, and sometimes the whole table. They are replaced here, and
are no part of the exception that is raised, not even as its context. Only messages known to consist of shapes, types
and column names are passed on.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.utils.validation import validate_data

from ..arrays import Floats
from ..errors import (
    ColumnError,
    ColumnTypeError,
    InfiniteValue,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    UnknownLabel,
    require_positive_integer,
)
from ..ledger import ONE_ROW, unit_in_words
from ..solvers import Method

_FEW = 1 / 4  # of the entries are not 0: products of sparse rows take about half the time then

# How scikit-learn's messages about shapes, types and column names begin, or for a missing y continue.
_WITHOUT_CELLS = (
    "Found array with",
    "Found input variables with inconsistent",
    "Expected 2D input, got input with shape",
    "Expected a 2-dimensional container",
    "X has ",
    "Input X contains",
    "Input y contains",
    "The feature names should match",
    "Feature names",
    "y should be a 1d array",
    "np.matrix is not supported",
)


def mixed_frame(model: Any, X: Any) -> Any:
    """Return a table with columns that are stored as no plain numbers, if nothing is declared of them; else None.

    It is one of pandas, a DataFrame of Dask, or cells of files that are read in blocks.

    Names and storage types decide, and no cell.
    """
    from ..tables import CellsInBlocks, as_frame, is_dask

    if isinstance(X, CellsInBlocks):
        return X
    given = getattr(model, "bounds", None) is not None or getattr(model, "binary_features", None) is not None
    if is_dask(X) and not given and hasattr(X, "columns"):
        return X if any(getattr(kind, "kind", "O") not in "biuf" for kind in X.dtypes) else None
    frame = None if given else as_frame(X)
    if frame is None or not frame.shape[1]:
        return None
    kinds = [kind for name, kind in frame.dtypes.items() if model.unit is None or name != model.unit]
    mapped = () if isinstance(X, pd.DataFrame) else (pd.BooleanDtype,)  # truth values of Arrow are plain
    return None if all(_is_plain(kind) or isinstance(kind, mapped) for kind in kinds) else frame


def _is_plain(kind: Any) -> bool:
    return isinstance(kind, np.dtype) and kind.kind in "biuf"


def read_table(model: Any, X: Any, *y: Any, **options: Any) -> Any:
    """Return ``X``, and ``y`` if it is given, as `sklearn.utils.validation.validate_data` does.

    Raises
    ------
    ColumnTypeError
        A column cannot be read as numbers. The message names the first one.
    InvalidParameter
        The shapes or the names of the columns do not fit.
    """
    refusal: InvalidParameter
    try:
        read = validate_data(model, X, *y, accept_sparse="csr", dtype=(np.float64, np.float32), **options)
        return (_with_cells_once(read[0]), *read[1:]) if isinstance(read, tuple) else _with_cells_once(read)
    except InvalidParameter:
        raise
    except (TypeError, ValueError, OverflowError) as problem:
        refusal = _without_cells(problem, X, *y)
    raise refusal  # outside the handler, so that the message with the cell is not its context


def _with_cells_once(X: Any) -> Any:
    """Return a table in which every cell is stored once, and in order; a caller's own table stays as it is."""
    if not sparse.issparse(X) or X.has_canonical_format:
        return X
    summed = X.copy()
    summed.sum_duplicates()
    return summed


def read_numbers(name: str, values: Any) -> Floats:
    """Return labels as floats, or raise `ColumnTypeError` without showing one."""
    try:
        return np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        pass
    raise ColumnTypeError(_not_numbers(name))


def require_finite_cells(X: Any, names: Any) -> None:
    """Raise `MissingValue` or `InfiniteValue` with the name of the first column that has such a cell."""
    cells = X.data if sparse.issparse(X) else X
    with np.errstate(all="ignore"):  # a warning would show that the sum overflows
        finite = np.isfinite(cells.sum(dtype=np.float64))
    if finite or np.isfinite(cells).all():
        return
    columns = X.indices if sparse.issparse(X) else np.broadcast_to(np.arange(X.shape[1]), X.shape)
    bad = int(columns[~np.isfinite(cells)].min())
    named = f"column {bad}" if names is None else f"column {names[bad]!r}"
    if pd.isna(cells).any():
        raise MissingValue(f"Input X contains NaN, first in {named}: fill the cells in or drop the rows")
    raise InfiniteValue(f"Input X contains infinity (inf), first in {named}: replace the cells or drop the rows")


def require_units(model: Any, method: Method, told: bool) -> None:
    """Raise what is wrong with the settings of a model about units; ``told`` is whether rows belong to some."""
    method.require_units(require_positive_integer("rows_per_unit", model.rows_per_unit))
    if not told and model.rows_per_unit != 1:
        raise InvalidParameter("rows_per_unit is about units of several rows: say by unit= whose rows they are")
    if not told and model.rows is not None:
        raise InvalidParameter("rows is about units, and the number of rows is public without them: leave it out")


def sorted_classes(given: Any) -> NDArray[Any]:
    """Return given classes, each once and in order."""
    try:
        return np.unique(np.asarray(given))
    except (TypeError, ValueError):
        raise InvalidParameter(
            "classes must be labels of one kind, all numbers or all text, which can be put in order"
        ) from None


def class_positions(classes: NDArray[Any], labels: NDArray[Any]) -> NDArray[np.intp]:
    """Return the position of every label among the sorted classes, or raise `UnknownLabel` without showing one."""
    try:
        positions = np.minimum(np.searchsorted(classes, labels), classes.size - 1)
        if np.array_equal(classes[positions], labels):
            return positions
    except TypeError:  # labels that cannot be compared with the classes are none of them
        pass
    raise UnknownLabel(
        f"y has labels that are missing or outside the {classes.size} classes: drop such rows or correct them, or "
        "add the labels to classes; the types must agree"
    )


def _without_cells(problem: Exception, X: Any, *y: Any) -> InvalidParameter:
    text = str(problem)
    if text.startswith("Input y contains"):
        return InvalidParameter(f"{text.rstrip('.')}: drop the rows whose label is missing or infinite")
    kind = ColumnTypeError if isinstance(problem, TypeError) else InvalidParameter
    if text.startswith(_WITHOUT_CELLS) or "requires y to be passed" in text:
        return kind(text)
    if text.startswith("Expected 2D array, got"):
        return InvalidParameter(
            f"{text.partition(' instead')[0]} instead. Reshape your data: X.reshape(-1, 1) if it is a single column, "
            "X.reshape(1, -1) if it is a single row"
        )
    if text.startswith("Complex data not supported"):
        return ColumnTypeError("Complex data not supported: pass real numbers")
    if len(set(names := list(getattr(X, "columns", ())))) < len(names):
        return ColumnError("two columns of X have the same name: rename one of them")
    for name, cells in _columns(X):
        if not _are_numbers(cells):
            return ColumnTypeError(_not_numbers(name))
    if y and y[0] is not None and pd.isna(pd.Series(np.ravel(np.asarray(y[0], dtype=object)))).any():
        return InvalidParameter("y has missing labels: drop these rows")
    if y and y[0] is not None and not _are_numbers(np.ravel(np.asarray(y[0], dtype=object))):
        return ColumnTypeError(_not_numbers("y"))
    return ColumnTypeError("X cannot be read as a table of numbers: pass a DataFrame, a 2D array or a CSR matrix")


def _not_numbers(name: str) -> str:
    return (
        f"{name} cannot be converted to numbers: each argument must be a number, or a string that is a number; "
        "encode text with BoundedEncoder first"
    )


def _columns(X: Any) -> Iterator[tuple[str, Any]]:
    """Yield what a message calls a column, and its cells."""
    if isinstance(X, pd.DataFrame):
        for position, name in enumerate(X.columns):
            yield f"column {name!r}", X.iloc[:, position]
    elif not sparse.issparse(X):
        try:
            cells: NDArray[Any] = np.asarray(X, dtype=object)
        except ValueError:  # rows of different lengths
            return
        for position in range(cells.shape[1] if cells.ndim == 2 else 0):
            yield f"column {position}", cells[:, position]


def _are_numbers(cells: Any) -> bool:
    try:
        np.asarray(cells, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return all(_is_number(cell) for cell in cells)
    return True


def _is_number(cell: Any) -> bool:
    try:
        float(cell)
    except (TypeError, ValueError, OverflowError):
        return cell is None or cell is pd.NA or cell is pd.NaT
    return True


def compact(rows: Any) -> Any:
    """Return dense rows as CSR if few of their entries are not 0: exact sums stay the same to the last bit.

    How long they take depends on the rows in either case; time is outside the guarantee.
    """
    if sparse.issparse(rows):
        return rows
    stored = rows != 0
    if np.count_nonzero(stored) >= _FEW * rows.size:
        return rows
    positions = np.flatnonzero(stored)
    count, columns = rows.shape
    ends = np.append(0, np.cumsum(np.count_nonzero(stored, axis=1)))
    starts = np.repeat(np.arange(0, rows.size, columns), np.diff(ends))
    index = np.int32 if rows.size < 2**31 else np.int64
    entries = (rows.ravel()[positions], (positions - starts).astype(index), ends.astype(index))
    return sparse.csr_array(entries, shape=(count, columns))


def split_units(X: Any, column: str | None, given: Any) -> tuple[Any, Any, str]:
    """Return the table without its column of units, the unit of every row or None, and what is protected, in words.

    ``column`` names what says whose row it is, and ``given`` has the unit of every row in place of such a column.
    """
    if column is None:
        if given is None:
            return X, None, ONE_ROW
        _require_same_rows(X, given)
        return X, given, unit_in_words(getattr(given, "name", None))
    if given is not None:
        raise InvalidParameter("units are given twice, by unit= of the model and of fit: leave one out")
    if not isinstance(column, str) or not column:
        kind = type(column).__name__
        raise InvalidParameter(f"unit must be the name of a column, got a {kind}: pass arrays to fit(X, y, unit=...)")
    if not isinstance(X, pd.DataFrame) or list(X.columns).count(column) != 1:
        raise MissingColumn(
            f"unit names the column {column!r}, and the table has no such column, or several: pass a DataFrame with "
            "one, or fit(X, y, unit=...) with an array"
        )
    return X.drop(columns=[column]), X[column], unit_in_words(column)


def without_column(X: Any, column: str | None) -> Any:
    """Return a table to predict without its column of units, if it has one."""
    named = isinstance(X, pd.DataFrame) and column is not None and column in X.columns
    return X.drop(columns=[column]) if named else X


def _require_same_rows(X: Any, given: Any) -> None:
    """Refuse units in another order than the rows: with the rows of others a person would have too many."""
    indexed = isinstance(X, pd.DataFrame) and isinstance(given, pd.Series) and len(X) == len(given)
    if indexed and not X.index.equals(given.index):
        raise InvalidParameter(
            "unit and X have different indexes, so it is unclear whose row each is: bring both into one order, or "
            "pass unit.to_numpy() if they are in one"
        )
