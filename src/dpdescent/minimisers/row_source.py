"""Rows that can only be summed over: what a minimiser sees of a table, and whoever holds the rows implements.

`dpdescent.curator` has the sources themselves. The protocol stands here, below those who hold rows, because
objectives and queries are written for any of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..exact import FeatureGrid

AnyNumber = TypeVar("AnyNumber", np.int64, np.float64)


class Source(Protocol):
    """Rows on a feature grid, and their labels, that can only be summed over.

    Numbers that belong to single rows stay with the source: what `map_rows` returns is only ever handed back to it,
    and is an array for a source of rows that are ``in_one_place``. A mask of all rows may be handed over as an array.
    """

    grid: FeatureGrid
    #: Whether all rows can be held at once, as queries need that are no sums.
    in_one_place: bool

    @property
    def rows(self) -> int:
        """The number of rows, known without reading any."""
        ...

    def map_sum(self, function: Callable[..., NDArray[AnyNumber]], *aligned: Any) -> NDArray[AnyNumber]:
        """Return the sum over blocks of ``function(rows, labels, *aligned blocks)``.

        A sum of integers is exact and the same for every partition into blocks; one of floating-point numbers has
        rounding errors that depend on it.
        """
        ...

    def map_rows(self, function: Callable[..., Floats], *aligned: Any) -> Any:
        """Return the results of ``function`` on all blocks, one after another; unreleased data."""
        ...


@dataclass
class NoRows:
    """A source without any rows, for bounds that follow from public numbers alone."""

    grid: FeatureGrid
    in_one_place: bool = True
    rows: int = 0

    def map_sum(self, function: Callable[..., NDArray[AnyNumber]], *aligned: Any) -> NDArray[AnyNumber]:
        return function(np.zeros((0, self.grid.dimension)), np.zeros(0), *aligned)

    def map_rows(self, function: Callable[..., Floats], *aligned: Any) -> Any:
        return function(np.zeros((0, self.grid.dimension)), np.zeros(0), *aligned)
