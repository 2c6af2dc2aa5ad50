"""Names for the arrays that everything is made of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Booleans = NDArray[np.bool_]
Positions = NDArray[np.intp]


def distinct_cells(cells: Iterable[Any]) -> tuple[Positions, list[Any]]:
    """Return the position of each cell among distinct cells, and these, in the order in which they occur.

    Cells are one if Python finds them equal, and by nothing else. An index of pandas takes a text that UTF-8 cannot
    encode for the text of its ``repr``, and in some releases ends a text at a zero byte; the first of such cells
    would then stand for the others.
    """
    places: dict[Any, int] = {}
    codes = np.array([places.setdefault(cell, len(places)) for cell in cells], dtype=np.intp)
    return codes, list(places)
