"""Answers without noise, for finding the mistakes of a model with ``epsilon=inf``. NOT PRIVATE."""

from __future__ import annotations

from typing import Any, Self

import numpy as np

from ..accounting import AboveThreshold
from ..arrays import Integers
from ..queries import Noised

WARNING = (
    "epsilon=inf: this run adds no noise and is NOT PRIVATE; what comes of it may disclose any row, so use it to "
    "find mistakes and release nothing of it"
)
PLANNED = 1e4  # the epsilon of the plan, whose rules need one


class Noiseless:
    """Takes the place of a right that was paid for, and returns what was computed from the rows as it is."""

    def exchange(self, given: Any, rights: Any) -> Self:
        """Return itself: there is nothing to use up."""
        return self

    def release(self, part: Noised, values: Integers) -> Any:
        """Return exact values, or the first that is not below zero where a search asks. NOT PRIVATE."""
        if isinstance(part.cost, AboveThreshold):
            found = np.flatnonzero(values >= 0)
            return int(found[0]) if found.size else None
        return part.of(values).to_float() / part.divisor
