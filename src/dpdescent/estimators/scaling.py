"""Public bounds of the columns, and the map from a caller's units to [-1, 1] that keeps zeros zero.

A column bounded by [low, high] is divided by max(|low|, |high|) if it may be zero, and mapped onto [0, 1] (or
[-1, 0] if it is negative) otherwise. In either case a cell that is zero, or is clipped to the end of the interval
nearest to zero, becomes zero: a sparse table stays sparse, and dense and sparse tables give the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..arrays import Floats
from ..errors import InvalidParameter
from ..exact import separate_product


@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """Clips every column to its public bounds and scales it to [-1, 1]."""

    #: (d,): public bounds, low < high.
    low: Floats
    high: Floats

    @classmethod
    def from_bounds(
        cls, bounds: Any, columns: int, names: Sequence[str] | None = None, what: str = "bounds"
    ) -> ColumnScaling:
        """Build from ``(low, high)``, each a number or one number per column.

        Errors speak of columns by name, and of bounds that are not those of columns as ``what``.
        """
        try:
            low, high = bounds
            low, high = (_per_column(end, columns) for end in (low, high))
        except (TypeError, ValueError):
            raise InvalidParameter(
                f"{what} must be (low, high), each a number or {columns} numbers, one per column: {bounds!r:.80}"
                if what == "bounds"
                else f"{what} must be (low, high), two numbers: {bounds!r:.80}"
            ) from None
        finite = np.isfinite(low) & np.isfinite(high)
        for good, demand in ((finite, "be finite, being public knowledge"), (low < high, "have low < high")):
            if not good.all():
                column = int(np.argmin(good))
                named = f"column {column}" if names is None else f"column {names[column]!r}"
                whose = f"bounds of {named}" if what == "bounds" else what
                raise InvalidParameter(f"{whose} must {demand}: {low[column]}, {high[column]}")
        return cls(low, high)

    @classmethod
    def with_gaps(
        cls, bounds: Any, columns: int, names: Sequence[str] | None = None
    ) -> tuple[ColumnScaling, NDArray[np.bool_]]:
        """Build from bounds that may be None or NaN for some columns; also return which columns lack them.

        Such columns have the ends 0 and 1 until they are measured, and so have all if there are no bounds at all.
        """
        if bounds is None:
            return cls(np.zeros(columns), np.ones(columns)), np.zeros(columns, dtype=np.bool_)
        try:
            low, high = (_per_column(end, columns) for end in bounds)
            gaps = np.isnan(low) & np.isnan(high)
        except (TypeError, ValueError):
            gaps = np.zeros(columns, dtype=np.bool_)
        if gaps.any():
            bounds = np.where(gaps, 0.0, low), np.where(gaps, 1.0, high)
        return cls.from_bounds(bounds, columns, names), gaps

    def filled(self, measured: ColumnScaling, gaps: NDArray[np.bool_]) -> ColumnScaling:
        """Return this scaling with that of another one for the columns of ``gaps``."""
        return ColumnScaling(np.where(gaps, measured.low, self.low), np.where(gaps, measured.high, self.high))

    @property
    def columns(self) -> int:
        """The number of columns of a scaled row."""
        return self.low.size

    @property
    def shift(self) -> Floats:
        """The point that is mapped to zero: zero itself, or the end of the interval nearest to it."""
        nearest: Floats = np.clip(0.0, self.low, self.high)
        return nearest

    @property
    def scale(self) -> Floats:
        """The width that is mapped to one."""
        return np.maximum(self.high - self.shift, self.shift - self.low)

    def product(self, features: Any, coefficients: Floats, *, separate: bool = False) -> Floats:
        """Return ``features @ coefficients`` for features clipped to the bounds, as they were in training.

        If ``separate``, a row has the same bits beside any other rows (`separate_product`), which takes longer.
        """
        if not sparse.issparse(features):
            clipped = np.clip(features, self.low, self.high)
            dense: Floats = separate_product(clipped, coefficients) if separate else clipped @ coefficients
            return dense
        stored = sparse.csr_array(features, dtype=np.float64, copy=True)
        columns, nearest = stored.indices, self.shift
        stored.data = np.clip(stored.data, self.low[columns], self.high[columns]) - nearest[columns]
        total: Floats = (
            stored @ coefficients + nearest @ coefficients
        )  # cells that are not stored are the nearest to 0
        return total

    def ends(self) -> tuple[Floats, Floats]:
        """Return the bounds after scaling."""
        low, high = ((end - self.shift) / self.scale for end in (self.low, self.high))
        return low, high

    def apply(self, features: Any, out: Floats | None = None) -> Any:
        """Return the scaled features, dense or CSR as they came; ``out`` receives dense ones."""
        if features.ndim != 2 or features.shape[1:] != self.low.shape:
            raise InvalidParameter(f"bounds of {self.low.size} columns do not fit features of shape {features.shape}")
        if sparse.issparse(features):
            scaled = sparse.csr_array(features, dtype=np.float64, copy=True)
            scaled.sum_duplicates()
            columns = scaled.indices
            clipped = np.clip(scaled.data, self.low[columns], self.high[columns])
            scaled.data = (clipped - self.shift[columns]) / self.scale[columns]
            return scaled
        scaled = np.empty_like(features, dtype=np.float64, subok=False) if out is None else out
        # Two looks cost less than clipping; NaN fails both comparisons.
        if features.size and features.min() >= self.low.max() and features.max() <= self.high.min():
            np.copyto(scaled, features)
        else:
            np.clip(features, self.low, self.high, out=scaled, dtype=np.float64)
        shift, scale = self.shift, self.scale
        if shift.any():
            scaled -= shift
        if (scale != 1).any():
            scaled /= scale
        return scaled

    def original_units(self, weights: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Return coefficients and intercept for unscaled features; weights have shape (d,) or (d, K)."""
        coefficients = (weights.T / self.scale).T
        return coefficients, intercept - coefficients.T @ self.shift


def _per_column(end: ArrayLike, columns: int) -> Floats:
    return np.broadcast_to(np.asarray(end, dtype=np.float64), (columns,)).copy()


def declared_binary(declared: Any, columns: int, names: Any) -> NDArray[np.bool_] | None:
    """Return which columns are declared to be 0 or 1, None where nothing was declared."""
    if declared is None:
        return None
    given = np.asarray(declared)
    mask = np.zeros(columns, dtype=np.bool_)
    if given.ndim == 1 and given.dtype == np.bool_ and given.size == columns:
        mask = given
    elif given.ndim == 1 and given.dtype.kind in "iu" and ((given >= 0) & (given < columns)).all():
        mask[given] = True
    elif given.ndim == 1 and given.dtype.kind in "UO" and names is not None and np.isin(given, names).all():
        mask = np.isin(names, given)
    elif given.shape != (0,):
        raise InvalidParameter(
            f"binary_features must be a mask of {columns} columns, their positions, or their names if the table has "
            f"names: {declared!r:.80}"
        )
    return mask


def binary_columns(declared: NDArray[np.bool_] | None, scaling: ColumnScaling) -> tuple[bool | None, ...]:
    """Return for every column whether it is 0 or 1, None where that is not known; a column with both signs is not."""
    if declared is not None:
        return tuple(declared.tolist())
    return tuple(False if both else None for both in ((scaling.low < 0) & (scaling.high > 0)).tolist())


def middles(scaling: ColumnScaling, binary: Sequence[bool | None]) -> tuple[float, ...]:
    """Return the middle of each column's range after scaling, or 0 if the range contains 0 or the column is binary.

    Where a range begins or ends at 0, many cells often are 0, and it is better to count from there.
    """
    low, high = scaling.ends()
    away = (scaling.low > 0) | (scaling.high < 0)
    return tuple(np.where(away & (np.array(binary) != True), (low + high) / 2, 0.0).tolist())  # noqa: E712
