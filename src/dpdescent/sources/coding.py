"""Record batches as coded rows, without a detour for plain numbers.

Most cells of a large table are numbers that are there. They are copied from Arrow's own memory, clipped and scaled
for all columns of a few thousand rows at a time, which stay in cache. All else takes the way of `BoundedEncoder`,
and the rows have the same bits either way.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
from numpy.typing import NDArray

from ..curator import cached_blocks
from ..encoding import BoundedEncoder
from ..schema import Schema

__all__ = ["BatchCoder", "PlainNumbers"]

Floats = NDArray[np.float64]

_NUMBERS = {
    kind.id
    for size in (8, 16, 32, 64)
    for kind in (getattr(arrow, f"int{size}")(), getattr(arrow, f"uint{size}")(), arrow.float32(), arrow.float64())
}


@dataclass(frozen=True)
class PlainNumbers:
    """Columns of finite numbers where they are, and the positions of those that have a cell beyond its bounds."""

    columns: list[NDArray[Any]]
    beyond: list[int]


class BatchCoder:
    """Codes record batches by a public schema.

    Parameters
    ----------
    schema : Schema
    encoder : BoundedEncoder
        That of the schema, fitted.

    Attributes
    ----------
    numbers : list of str
        The columns of numbers.
    """

    def __init__(self, schema: Schema, encoder: BoundedEncoder) -> None:
        pairs = dict(encoder.bounds or {})
        self.numbers = list(pairs)
        self._encoder = encoder
        self._width = len(encoder.binary_features_)
        self._low, self._high = (
            np.array([pair[end] for pair in pairs.values() if pair], dtype=np.float64) for end in (0, 1)
        )
        marked = any((column.missing or schema.missing) == "level" for column in schema.numeric)
        self._plain = bool(pairs) and None not in pairs.values() and not schema.dates and not marked
        self._others: BoundedEncoder | None = None
        names = [*(encoder.levels or {}), *(encoder.hashed or {})]
        if self._plain and names:
            self._others = BoundedEncoder(
                None,
                encoder.levels,
                hashed=encoder.hashed,
                ignore=encoder.ignore,
                unknown=encoder.unknown,
                missing=encoder.missing,
            ).fit(pd.DataFrame(columns=names))

    def plain_numbers(self, batch: Any) -> PlainNumbers | None:
        """Return all columns of numbers where they are, or None if a cell of them is no finite number."""
        if not self._plain or not batch.num_rows:
            return None
        columns = [batch.column(name) for name in self.numbers]
        if any(column.null_count or column.type.id not in _NUMBERS for column in columns):
            return None
        values = [column.to_numpy(zero_copy_only=True) for column in columns]
        with np.errstate(all="ignore"):
            # The ends of a column are not finite if a cell is not.
            least, largest = (np.array([end(each) for each in values], dtype=np.float64) for end in (np.min, np.max))
        if not (np.isfinite(least).all() and np.isfinite(largest).all()):
            return None
        return PlainNumbers(values, np.flatnonzero((least < self._low) | (largest > self._high)).tolist())

    def __call__(self, numbers: PlainNumbers | None, frame: pd.DataFrame) -> Iterator[tuple[slice, Floats]]:
        """Yield coded rows, and which rows of the batch they are.

        ``frame`` has all columns, or those beside plain ``numbers``.
        """
        if numbers is None:
            yield slice(0, len(frame)), self._encoder.transform(frame)
            return
        others = None if self._others is None else self._others.transform(frame)
        for some in cached_blocks(len(numbers.columns[0]), self._width + 1):
            yield some, self._coded(numbers, others, some)

    def _coded(self, numbers: PlainNumbers, others: Floats | None, some: slice) -> Floats:
        """Return ``(clip(x, low, high) - low) / (high - low)`` of every number, and the other columns beside them."""
        block = np.empty((some.stop - some.start, self._width), order="F")
        count = len(numbers.columns)
        for position, values in enumerate(numbers.columns):
            block[:, position] = values[some]
        scaled, width = block[:, :count], self._high - self._low
        for beyond in numbers.beyond:
            np.clip(scaled[:, beyond], self._low[beyond], self._high[beyond], out=scaled[:, beyond])
        if self._low.any():
            scaled -= self._low
        if (width != 1).any():
            scaled /= width
        if others is not None:
            block[:, count:] = others[some]
        return block
