"""The encoder: scaled numbers, and one column for every level or bucket."""

from __future__ import annotations

import math
import numbers
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import sparse
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.utils.validation import check_is_fitted

from ..arrays import Floats, Positions
from ..errors import (
    ColumnError,
    ColumnTypeError,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    UnexpectedColumn,
    UnknownLevel,
)
from .cells import bucket_codes, check_storage, level_codes, numeric_values, scale_columns

#: What may be done with a missing cell, and with a cell outside the levels.
MISSING = ("error", "midpoint", "level")
UNKNOWN = ("error", "zero", "other")


@dataclass(eq=False, repr=False)
class BoundedEncoder(TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Scale numeric columns by public bounds, and encode other columns by public levels or by a public hash.

    A numeric cell ``x`` with bounds ``(low, high)`` becomes ``(clip(x, low, high) - low) / (high - low)``;
    a categorical cell becomes one 1 among as many columns as there are levels, and a hashed cell one 1 among as many
    columns as there are buckets. Every entry lies in [0, 1], and a row of p numeric and q other columns has Euclidean
    norm at most ``sqrt(p + q)``.

    Parameters
    ----------
    bounds : mapping from column to (low, high), optional
        Public bounds of the numeric columns, in the unit of the column; days since 1970-01-01 for dates. None instead
        of a pair leaves the numbers as they are, for an estimator that measures their bounds.
    levels : mapping from column to sequence, optional
        Public levels of the categorical columns.
    hashed : mapping from column to int, optional
        The number of buckets for text with too many values to list; see `bucket_codes`.
    ignore : sequence of columns
        Columns that may be in the table and are left out. Any other undeclared column is an error.
    unknown : {"error", "zero", "other"}, or mapping from column to one of them
        What to do with a cell outside the levels: raise `UnknownLevel`, code it as all zeros, or give it a column of
        its own.
    missing : {"error", "midpoint", "level"}, or mapping from column to one of them
        What to do with a missing cell: raise `MissingValue`; code it as 0.5 (numeric) and as all zeros (others); or
        give it a column of its own, beside which a number counts as 0.
    sparse_output : bool
        Return a ``scipy.sparse.csr_array`` instead of an ndarray.
    measure : bool
        Whether ``fit`` measures with noise what is not declared: types, levels and bounds of the other columns. It
        costs ``epsilon`` and ``delta``, in addition to whatever is fitted to the same rows later.
    epsilon, delta : float
        What the measurement may cost.
    ledger : Ledger, optional
        That pays for the measurement as well.
    adjacency : {"zero-out", "replace-one"}
    random_state : int, optional
        Repeats a measurement, for experiments alone.

    Attributes
    ----------
    schema_ : Schema
        What was measured and declared, if ``measure``; `Schema.dump` keeps it for later tables.
    privacy_ : dict
        The statement of the measurement, if ``measure``.
    n_features_in_ : int
        Number of declared columns.
    feature_names_in_ : ndarray of object
        The declared columns: numeric ones first, then categorical and hashed ones, each in the order declared.
    binary_features_ : ndarray of bool
        Which output columns are 0 or 1, those of levels and buckets: what the estimators take as ``binary_features``.
    output_bounds_ : (low, high)
        Bounds of the output columns, what the estimators take as ``bounds``: 0 and 1, or NaN where bounds are None.

    Notes
    -----
    **Privacy.** The output row depends on the input row and on the declaration alone, so one person's row
    moves one output row: sensitivities computed on the output hold for the table. ``fit`` reads column names
    and storage types, never a cell; fitting on an empty table gives the same transform. How many cells were
    clipped, unknown or missing is not kept, because no budget was charged for that number. Errors name the column
    and never show a cell, but whether an error occurs depends on the data. Declare the columns from public
    knowledge, and choose ``unknown="zero", missing="midpoint"`` where even that must stay hidden.

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

    bounds: Mapping[Any, tuple[float, float] | None] | None = None
    levels: Mapping[Any, Sequence[Any]] | None = None
    _: KW_ONLY
    hashed: Mapping[Any, int] | None = None
    ignore: Sequence[Any] = ()
    unknown: str | Mapping[Any, str] = "error"
    missing: str | Mapping[Any, str] = "error"
    sparse_output: bool = False
    measure: bool = False
    epsilon: float | None = None
    delta: float = 1e-7
    ledger: Any = None
    adjacency: str = "zero-out"
    random_state: int | None = None

    def fit(self, X: pd.DataFrame | Mapping[Any, Any], y: object = None) -> Self:
        """Check the declaration and the column names; nothing is learnt from the cells that is not paid for.

        Parameters
        ----------
        X : DataFrame or mapping from column to values
            Only its column names and storage types are read, unless ``measure``.
        y : ignored

        Returns
        -------
        self
        """
        if self.measure:
            from .schema_purchase import measure_encoder  # which needs the curator, as a declared encoder does not

            self.schema_, self._measured = measure_encoder(self, X)
            self.privacy_ = dict((self.schema_.measured or {})["statement"])
            for name in ("feature_names_in_", "n_features_in_", "binary_features_", "output_bounds_"):
                setattr(self, name, getattr(self._measured, name))
            return self
        self._check_declaration()
        frame = self._check_columns(X)
        if len(frame) > 0:
            for name in self.bounds or {}:
                numeric_values(frame[name].iloc[:0], name)
            for name, public in (self.levels or {}).items():
                check_storage(frame[name], name, public)
        self.feature_names_in_ = np.array(self._declared(), dtype=object)
        self.n_features_in_ = len(self.feature_names_in_)
        numeric = len(self.bounds or {})
        indicators = sum(len(names) for _, names in self._indicators())
        self.binary_features_ = np.arange(numeric + indicators) >= numeric
        known = [pair is not None for pair in (self.bounds or {}).values()] + [True] * indicators
        self.output_bounds_ = np.where(known, 0.0, np.nan), np.where(known, 1.0, np.nan)
        return self

    def transform(self, X: pd.DataFrame | Mapping[Any, Any]) -> Floats | sparse.csr_array:
        """Encode a table.

        Parameters
        ----------
        X : DataFrame or mapping from column to values
            Columns are found by name; their order does not matter.

        Returns
        -------
        ndarray or csr_array of shape (n, number of output columns), entries in [0, 1] where there are bounds
        """
        check_is_fitted(self)
        if self.measure:
            table = _named_columns(X)
            return self._measured.transform(table if table is None else self.schema_.with_days(table))
        frame = self._check_columns(X)
        bounds = self.bounds or {}
        width = len(bounds) if self.sparse_output else len(self.binary_features_)
        encoded = np.zeros((len(frame), width))
        for position, (name, pair) in enumerate(bounds.items()):
            values = self._numbers(frame[name], name)
            scaled = values if pair is None else scale_columns(values, *pair)
            scaled[np.isnan(scaled)] = 0.5 if self.choice("missing", name) == "midpoint" else 0.0
            encoded[:, position] = scaled
        blocks = [sparse.csr_array(encoded)] if self.sparse_output else []
        start = len(bounds)
        for name, names in self._indicators():
            codes = self._codes(frame[name], name)
            known = np.flatnonzero(codes >= 0)
            if self.sparse_output:
                entries = (np.ones(len(known)), (known, codes[known]))
                blocks.append(sparse.csr_array(entries, shape=(len(frame), len(names))))
            else:
                encoded[known, start + codes[known]] = 1.0
            start += len(names)
        return sparse.hstack(blocks, format="csr") if self.sparse_output else encoded

    def get_feature_names_out(self, input_features: Sequence[Any] | None = None) -> NDArray[np.object_]:
        """Return the output column names: ``column``, ``column=level``, ``column#bucket`` or ``column (missing)``."""
        check_is_fitted(self)
        if input_features is not None and list(input_features) != list(self.feature_names_in_):
            raise InvalidParameter("input_features must equal feature_names_in_, or be left out")
        if self.measure:
            return self._measured.get_feature_names_out()
        names = [str(name) for name in self.bounds or {}]
        names += [name for _, indicators in self._indicators() for name in indicators]
        return np.array(names, dtype=object)

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.two_d_array = False
        tags.input_tags.categorical = True
        tags.input_tags.string = True
        tags.input_tags.allow_nan = self.missing != "error"
        tags.transformer_tags.preserves_dtype = []
        return tags

    def _declared(self) -> list[Any]:
        return [*(self.bounds or {}), *(self.levels or {}), *(self.hashed or {})]

    def choice(self, what: str, name: Hashable) -> str:
        """Return what is done with "missing" or with "unknown" cells of a column."""
        chosen = getattr(self, what)
        return str(chosen.get(name, "error") if isinstance(chosen, Mapping) else chosen)

    def _indicators(self) -> Iterator[tuple[Any, list[str]]]:
        """Yield the columns that are coded by zeros and a one, with the names of what they become."""
        for name in self.bounds or {}:
            if self.choice("missing", name) == "level":
                yield name, [f"{name} (missing)"]
        for name, public in (self.levels or {}).items():
            other = [f"{name} (other)"] if self.choice("unknown", name) == "other" else []
            yield name, [f"{name}={level}" for level in public] + other + self._missing_level(name)
        for name, buckets in (self.hashed or {}).items():
            yield name, [f"{name}#{bucket}" for bucket in range(buckets)] + self._missing_level(name)

    def _missing_level(self, name: Hashable) -> list[str]:
        return [f"{name} (missing)"] if self.choice("missing", name) == "level" else []

    def _numbers(self, column: pd.Series, name: Hashable) -> Floats:
        if len(column) == 0:
            return np.empty(0)
        return numeric_values(column, name, self.choice("missing", name)).copy()

    def _codes(self, column: pd.Series, name: Hashable) -> Positions:
        """Return which of its columns is 1 for each cell, -1 where none is."""
        if len(column) == 0:
            return np.empty(0, dtype=np.intp)
        absent = column.isna().to_numpy(dtype=bool)
        if name in (self.bounds or {}):
            return np.where(absent, 0, -1)
        choice, levels = self.choice("missing", name), (self.levels or {}).get(name)
        if levels is None:
            codes = bucket_codes(column, name, (self.hashed or {})[name])
        else:
            codes = level_codes(column, name, levels)
        if choice == "error" and absent.any():
            raise MissingValue(
                f"column {name!r} has a missing value: choose missing 'level', which gives it a level of its own, or "
                "'midpoint', which codes it as all zeros"
            )
        if levels is not None:
            strange = (codes < 0) & ~absent
            if strange.any() and self.choice("unknown", name) == "error":
                raise UnknownLevel(
                    f"column {name!r} has a value outside its {len(levels)} public levels: add the level if it is "
                    "public knowledge, or choose unknown 'other', which gives all such values one level, or 'zero', "
                    "which codes them as all zeros"
                )
            if self.choice("unknown", name) == "other":
                codes = np.where(strange, len(levels), codes)
        if choice == "level":
            codes = np.where(absent, dict(self._indicators())[name].index(f"{name} (missing)"), codes)
        return codes

    def _check_columns(self, X: pd.DataFrame | Mapping[Any, Any]) -> pd.DataFrame:
        frame = _named_columns(X)
        if frame is None:
            raise ColumnTypeError(
                f"columns are found by name, and a {type(X).__name__} has none: pass a DataFrame of pandas or "
                "polars, a table of Arrow, or a mapping from column to values"
            )
        declared = self._declared()
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
        bounds, levels, hashed = self.bounds or {}, self.levels or {}, self.hashed or {}
        if not bounds and not levels and not hashed:
            raise InvalidParameter("no column is declared: give bounds, levels, hashed or several of them")
        declared = self._declared()
        twice = list(dict.fromkeys(name for name in declared if declared.count(name) > 1 or name in self.ignore))
        if twice:
            raise InvalidParameter(
                f"columns {twice} are declared twice: keep one of bounds, levels, hashed and ignore"
            )
        for what, known in (("unknown", UNKNOWN), ("missing", MISSING)):
            for name in declared:
                if self.choice(what, name) not in known:
                    choices = ", ".join(map(repr, known))
                    raise InvalidParameter(f"{what} must be one of {choices}, got {self.choice(what, name)!r}")
        for name, pair in bounds.items():
            if pair is not None:
                _check_pair(name, pair)
            elif self.choice("missing", name) == "midpoint":
                raise InvalidParameter(
                    f"column {name!r} has no bounds, and so no midpoint to put in place of a missing cell: give its "
                    "bounds, or choose missing 'level' or 'error' for it"
                )
        for name, public in levels.items():
            _check_levels(name, public)
        for name, buckets in hashed.items():
            _check_buckets(name, buckets)


def _named_columns(table: Any) -> pd.DataFrame | None:
    """Return a table as a DataFrame, or None if its columns have no names."""
    if isinstance(table, pd.DataFrame):
        return table
    if isinstance(table, Mapping):
        return pd.DataFrame(dict(table))
    from .cell_kinds import as_frame  # for tables of other libraries alone

    return as_frame(table)


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


def _check_buckets(name: Hashable, buckets: object) -> None:
    if not isinstance(buckets, numbers.Integral) or isinstance(buckets, bool) or buckets < 2:
        raise InvalidParameter(f"column {name!r} must have 2 buckets or more, got {buckets!r}")
