"""Turn a table into a bounded matrix using public knowledge alone."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from .errors import (
    ColumnError,
    ColumnTypeError,
    InfiniteValue,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    UnexpectedColumn,
    UnknownLevel,
)

__all__ = ["BoundedEncoder", "level_codes", "numeric_values", "scale_columns"]

FloatMatrix = NDArray[np.float64]


def scale_columns(matrix: ArrayLike, low: ArrayLike, high: ArrayLike) -> FloatMatrix:
    """Clip each column to its public bounds and map it to [0, 1].

    ``scaled = (clip(x, low, high) - low) / (high - low)``

    Rounding is monotone, so the result never leaves [0, 1], not even by one unit in the last place.

    Parameters
    ----------
    matrix : array-like of shape (n,) or (n, d)
        Finite numbers.
    low, high : float or array-like of shape (d,)
        Public bounds with ``low < high``.

    Returns
    -------
    ndarray of float64, row-major, always a fresh copy

    Examples
    --------
    >>> scale_columns([[20.0, -5.0], [200.0, 5.0]], low=[0, -10], high=[100, 10]).tolist()
    [[0.2, 0.25], [1.0, 0.75]]
    """
    lowest, highest = np.asarray(low, dtype=np.float64), np.asarray(high, dtype=np.float64)
    scaled = np.array(matrix, dtype=np.float64, order="C", copy=True)
    np.clip(scaled, lowest, highest, out=scaled)
    scaled -= lowest
    scaled /= highest - lowest
    return scaled


def numeric_values(column: pd.Series, name: Hashable, missing: str = "error") -> FloatMatrix:
    """Return a numeric column as float64; NaN marks a missing cell where ``missing`` is not ``"error"``.

    Raises
    ------
    ColumnTypeError
        The column is stored as text, dates or objects. Decided by the storage type, never by the cells.
    MissingValue, InfiniteValue
        A cell is missing or infinite.
    """
    if not (pd.api.types.is_numeric_dtype(column.dtype) and not pd.api.types.is_complex_dtype(column.dtype)):
        raise ColumnTypeError(
            f"column {name!r} is declared numeric but is stored as {column.dtype}: "
            f"convert it (for instance with pandas.to_numeric) or declare its levels"
        )
    values: FloatMatrix = column.to_numpy(dtype=np.float64, na_value=np.nan)
    if missing == "error" and np.isnan(values).any():
        raise MissingValue(
            f"column {name!r} has a missing value: fill it with a public constant before encoding, "
            f"or pass missing='midpoint'"
        )
    if np.isinf(values).any():
        raise InfiniteValue(f"column {name!r} has an infinite value: replace it by one of the public bounds")
    return values


def level_codes(column: pd.Series, name: Hashable, levels: Sequence[Any]) -> NDArray[np.intp]:
    """Return the position of each cell in ``levels``, -1 where it equals none of them.

    Cells and levels are compared as Python compares them, so 1, 1.0 and True are one level.

    Raises
    ------
    ColumnTypeError
        All levels are text and the column is stored as numbers, or the reverse: no cell could ever match.
    """
    _check_storage(column, name, levels)
    index = pd.Index(list(levels), dtype=object)
    if isinstance(column.dtype, pd.CategoricalDtype):
        # One look-up per category instead of one per row; the last slot serves the code -1 of a missing cell.
        by_category = np.append(index.get_indexer(column.cat.categories.astype(object)), -1)
        codes: NDArray[np.intp] = by_category[column.cat.codes.to_numpy()]
        return codes
    return np.asarray(index.get_indexer(pd.Index(column.to_numpy(dtype=object))), dtype=np.intp)


class BoundedEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scale numeric columns by public bounds and one-hot code categorical columns by public levels.

    A numeric cell ``x`` with bounds ``(low, high)`` becomes ``(clip(x, low, high) - low) / (high - low)``;
    a categorical cell becomes one 1 among as many columns as there are levels. Every entry lies in [0, 1] and
    a row of p numeric and q categorical columns has Euclidean norm at most ``sqrt(p + q)``.

    Parameters
    ----------
    bounds : mapping from column to (low, high), optional
        Public bounds of the numeric columns, in the unit of the column.
    levels : mapping from column to sequence, optional
        Public levels of the categorical columns.
    ignore : sequence of columns
        Columns that may be in the table and are left out. Any other undeclared column is an error.
    unknown : {"error", "zero"}
        What to do with a cell outside the levels: raise `UnknownLevel`, or code it as all zeros.
    missing : {"error", "midpoint"}
        What to do with a missing cell: raise `MissingValue`, or code it as 0.5 (numeric) and as all zeros
        (categorical).
    sparse_output : bool
        Return a ``scipy.sparse.csr_array`` instead of an ndarray.

    Attributes
    ----------
    n_features_in_ : int
        Number of declared columns.
    feature_names_in_ : ndarray of object
        The declared columns: numeric ones first, then categorical ones, each in the order declared.
    binary_features_ : ndarray of bool
        Which output columns are 0 or 1, those of the levels: what the estimators take as ``binary_features``.

    Notes
    -----
    **Privacy.** The output row depends on the input row and on the declaration alone, so one person's row
    moves one output row: sensitivities computed on the output hold for the table. ``fit`` reads column names
    and storage types, never a cell; fitting on an empty table gives the same transform. How many cells were
    clipped, unknown or missing is not kept, because nobody paid for that number. Errors name the column and
    never show a cell, but that an error happened does depend on the data: settle the declaration on public
    knowledge and choose ``unknown="zero", missing="midpoint"`` where even that must not be seen.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"age": [20, 130], "job": ["clerk", "nurse"]})
    >>> encoder = BoundedEncoder(bounds={"age": (0, 100)}, levels={"job": ["clerk", "nurse", "smith"]})
    >>> encoder.fit_transform(table).tolist()
    [[0.2, 1.0, 0.0, 0.0], [1.0, 0.0, 1.0, 0.0]]
    >>> encoder.get_feature_names_out().tolist()
    ['age', 'job=clerk', 'job=nurse', 'job=smith']
    """

    def __init__(
        self,
        bounds: Mapping[Any, tuple[float, float]] | None = None,
        levels: Mapping[Any, Sequence[Any]] | None = None,
        *,
        ignore: Sequence[Any] = (),
        unknown: str = "error",
        missing: str = "error",
        sparse_output: bool = False,
    ) -> None:
        self.bounds = bounds
        self.levels = levels
        self.ignore = ignore
        self.unknown = unknown
        self.missing = missing
        self.sparse_output = sparse_output

    def fit(self, X: pd.DataFrame | Mapping[Any, Any], y: object = None) -> Self:
        """Check the declaration and the column names; nothing is learnt from the cells.

        Parameters
        ----------
        X : DataFrame or mapping from column to values
            Only its column names and storage types are read.
        y : ignored

        Returns
        -------
        self
        """
        self._check_declaration()
        frame = self._check_columns(X)
        if len(frame) > 0:
            for name in self.bounds or {}:
                numeric_values(frame[name].iloc[:0], name)
            for name, public in (self.levels or {}).items():
                _check_storage(frame[name], name, public)
        self.feature_names_in_ = np.array([*(self.bounds or {}), *(self.levels or {})], dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        self.binary_features_ = np.arange(len(self.bounds or {}) + self._level_count()) >= len(self.bounds or {})
        return self

    def transform(self, X: pd.DataFrame | Mapping[Any, Any]) -> FloatMatrix | sparse.csr_array:
        """Encode a table.

        Parameters
        ----------
        X : DataFrame or mapping from column to values
            Columns are found by name; their order does not matter.

        Returns
        -------
        ndarray or csr_array of shape (n, number of output columns), entries in [0, 1]
        """
        check_is_fitted(self)
        frame = self._check_columns(X)
        bounds, levels = self.bounds or {}, self.levels or {}
        encoded = np.zeros((len(frame), len(bounds) + (0 if self.sparse_output else self._level_count())))
        for position, (name, (low, high)) in enumerate(bounds.items()):
            scaled = scale_columns(self._numbers(frame[name], name), low, high)
            scaled[np.isnan(scaled)] = 0.5
            encoded[:, position] = scaled
        blocks = [sparse.csr_array(encoded)] if self.sparse_output else []
        start = len(bounds)
        for name, public in levels.items():
            codes = self._codes(frame[name], name, public)
            known = np.flatnonzero(codes >= 0)
            if self.sparse_output:
                entries = (np.ones(len(known)), (known, codes[known]))
                blocks.append(sparse.csr_array(entries, shape=(len(frame), len(public))))
            else:
                encoded[known, start + codes[known]] = 1.0
            start += len(public)
        return sparse.hstack(blocks, format="csr") if self.sparse_output else encoded

    def get_feature_names_out(self, input_features: Sequence[Any] | None = None) -> NDArray[np.object_]:
        """Return the output column names: ``column`` for numeric, ``column=level`` for categorical ones."""
        check_is_fitted(self)
        if input_features is not None and list(input_features) != list(self.feature_names_in_):
            raise InvalidParameter("input_features must equal feature_names_in_, or be left out")
        names = [str(name) for name in self.bounds or {}]
        names += [f"{name}={level}" for name, public in (self.levels or {}).items() for level in public]
        return np.array(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = self.missing == "midpoint"
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _level_count(self) -> int:
        return sum(len(public) for public in (self.levels or {}).values())

    def _numbers(self, column: pd.Series, name: Hashable) -> FloatMatrix:
        if len(column) == 0:
            return np.empty(0)
        return numeric_values(column, name, self.missing)

    def _codes(self, column: pd.Series, name: Hashable, public: Sequence[Any]) -> NDArray[np.intp]:
        if len(column) == 0:
            return np.empty(0, dtype=np.intp)
        codes = level_codes(column, name, public)
        if (codes >= 0).all():
            return codes
        absent = column.isna().to_numpy(dtype=bool)
        if self.missing == "error" and absent.any():
            raise MissingValue(
                f"column {name!r} has a missing value: give it a public level of its own before encoding, "
                f"or pass missing='midpoint' to code it as all zeros"
            )
        if self.unknown == "error" and (codes[~absent] < 0).any():
            raise UnknownLevel(
                f"column {name!r} has a value outside its {len(public)} public levels: add the level if it "
                f"is public knowledge, or pass unknown='zero' to code it as all zeros"
            )
        return codes

    def _check_columns(self, X: pd.DataFrame | Mapping[Any, Any]) -> pd.DataFrame:
        if isinstance(X, pd.DataFrame):
            frame = X
        elif isinstance(X, Mapping):
            frame = pd.DataFrame(dict(X))
        else:
            raise ColumnTypeError(
                f"columns are found by name, and a {type(X).__name__} has none: pass a pandas DataFrame "
                f"or a mapping from column to values"
            )
        declared = [*(self.bounds or {}), *(self.levels or {})]
        if not frame.columns.is_unique:
            raise ColumnError("two columns of the table have the same name: rename one")
        absent = [name for name in declared if name not in frame.columns]
        if absent:
            raise MissingColumn(
                f"the table lacks the declared columns {absent}: add them or drop them from the encoder"
            )
        extra = [name for name in frame.columns if name not in declared and name not in self.ignore]
        if extra:
            raise UnexpectedColumn(
                f"nothing public is declared about the columns {extra}: give bounds or levels, or list them in ignore"
            )
        return frame

    def _check_declaration(self) -> None:
        if self.unknown not in ("error", "zero"):
            raise InvalidParameter(f"unknown must be 'error' or 'zero', got {self.unknown!r}")
        if self.missing not in ("error", "midpoint"):
            raise InvalidParameter(f"missing must be 'error' or 'midpoint', got {self.missing!r}")
        bounds, levels = self.bounds or {}, self.levels or {}
        if not bounds and not levels:
            raise InvalidParameter("no column is declared: give bounds, levels or both")
        twice = [name for name in bounds if name in levels] + [
            name for name in self.ignore if name in bounds or name in levels
        ]
        if twice:
            raise InvalidParameter(f"columns {twice} are declared twice: keep one of bounds, levels and ignore")
        for name, pair in bounds.items():
            _check_pair(name, pair)
        for name, public in levels.items():
            _check_levels(name, public)


def _check_storage(column: pd.Series, name: Hashable, public: Sequence[Any]) -> None:
    text = [isinstance(level, str) for level in public]
    stored_numbers = pd.api.types.is_numeric_dtype(column.dtype)
    stored_text = isinstance(column.dtype, pd.StringDtype)
    if (stored_numbers and all(text)) or (stored_text and not any(text)):
        raise ColumnTypeError(
            f"column {name!r} is stored as {column.dtype} but its levels are "
            f"{'text' if all(text) else 'not text'}: convert the column with astype, or declare the levels "
            f"in the type of the column"
        )


def _check_pair(name: Hashable, pair: object) -> None:
    if not isinstance(pair, Sequence | np.ndarray) or isinstance(pair, str) or len(pair) != 2:
        raise InvalidParameter(f"bounds of column {name!r} must be a pair (low, high)")
    low, high = pair
    both = all(isinstance(end, numbers.Real) and not isinstance(end, bool) for end in (low, high))
    if not both or not (math.isfinite(float(high) - float(low)) and low < high):
        raise InvalidParameter(
            f"bounds of column {name!r} must be finite numbers with low < high, got ({low}, {high})"
        )


def _check_levels(name: Hashable, public: object) -> None:
    if isinstance(public, str) or not isinstance(public, Sequence | np.ndarray | pd.Index) or len(public) == 0:
        raise InvalidParameter(f"levels of column {name!r} must be a sequence with at least one level")
    if any(pd.isna(level) for level in public):
        raise InvalidParameter(f"levels of column {name!r} must not contain a missing value: see missing=")
    if len(set(public)) != len(public):
        raise InvalidParameter(f"levels of column {name!r} must all differ")
