"""What every solver returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Progress", "SolverResult"]

#: Called with the share of the budget that is spent: a public number between 0 and 1.
Progress = Callable[[float], None]


@dataclass(frozen=True)
class SolverResult:
    """The weights a solver arrived at.

    Every field is a function of released answers, so all of it may be published.
    """

    weights: NDArray[np.float64]
    iterations: int
    steps: tuple[float, ...] = ()
