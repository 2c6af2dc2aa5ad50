"""Best-of-many timing, taken in turn so that a noisy machine treats all alike."""

from __future__ import annotations

import time
from collections.abc import Callable


def best_times(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the least time of each function over ``repeats`` rounds, in seconds."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(repeats):
        for name, function in functions.items():
            start = time.perf_counter()
            function()
            best[name] = min(best[name], time.perf_counter() - start)
    return best
