"""Best-of-many timing, taken in turn so that a noisy machine treats all alike."""

from __future__ import annotations

import time
from collections.abc import Callable

_TURNS = 5
_REST = 0.1  # seconds in which threads of a numerical library, which wait for more work by spinning, fall asleep


def best_times(functions: dict[str, Callable[[], object]], repeats: int) -> dict[str, float]:
    """Return the least time of each function, in seconds, over about ``repeats`` calls in five turns."""
    best = dict.fromkeys(functions, float("inf"))
    for _ in range(min(_TURNS, repeats)):
        for name, function in functions.items():
            time.sleep(_REST)
            for _ in range(-(-repeats // _TURNS)):
                start = time.perf_counter()
                function()
                best[name] = min(best[name], time.perf_counter() - start)
    return best
