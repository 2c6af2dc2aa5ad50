"""What was measured in numbers: mean, standard error and number of repetitions of each measure in each cell."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

__all__ = ["cells_of"]

_DIGITS = 6


def cells_of(
    rows: Iterable[Mapping[str, Any]], keys: Sequence[str], measures: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """Return the cells of rows: those that agree in ``keys`` are repetitions of each other.

    A cell has its keys, those that are empty left out, and for each measure that some repetition has the list of its
    mean, its standard error (None after one repetition) and the number of repetitions.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    cells = []
    for place, group in groups.items():
        cell: dict[str, Any] = {key: value for key, value in zip(keys, place, strict=True) if value not in (None, "")}
        for measure in measures:
            found = [float(row[measure]) for row in group if row[measure] is not None]
            if found:
                error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else None
                cell[measure] = [
                    _rounded(float(np.mean(found))),
                    None if error is None else _rounded(error),
                    len(found),
                ]
        cells.append(cell)
    return tuple(cells)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")
