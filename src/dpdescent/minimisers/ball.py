"""Newton's method on a ball.

References
----------
More, J. & Sorensen, D. (1983). Computing a trust region step. SIAM Journal on Scientific and Statistical Computing 4.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from .methods import Candidate, Task
from .newton import _direction, _settled
from .rows import RowObjective

__all__ = ["newton_on_ball"]

Floats = NDArray[np.float64]


def newton_on_ball(task: Task, start: Floats) -> Iterator[Candidate]:
    """Propose the minimiser by Newton steps, and if it is outside those of F + t/2 |w|^2 with |w(t)| nearing R.

    The multiplier t is found by Newton steps on 1/|w(t)| (More & Sorensen 1983).
    """
    objective, mu = task.objective, task.strong_convexity
    if not isinstance(objective, RowObjective):
        raise TypeError("Newton's method needs a sum over rows")
    accuracy, multiplier = task.gradient_target / 16, 0.0
    weights = _settled(objective, mu, start, accuracy, multiplier, first=True)
    for _ in range(20):
        norm = float(np.linalg.norm(weights))
        yield Candidate(task.project(weights))
        if multiplier == 0 and norm <= task.radius:
            return
        leaning = objective.altered(quadratic=objective.quadratic + multiplier)
        shrinking = float(np.sum(weights * _direction(leaning, weights, weights)))
        multiplier = max(multiplier + (norm / task.radius - 1) * norm**2 / max(shrinking, 1e-300), 0.0)
        weights = _settled(objective, mu, weights, accuracy, multiplier)
