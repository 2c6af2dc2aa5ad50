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
from .newton import on_sphere, settled
from .rows import RowObjective

__all__ = ["newton_on_ball"]

Floats = NDArray[np.float64]


def newton_on_ball(task: Task, start: Floats) -> Iterator[Candidate]:
    """Propose the minimiser by Newton steps, or the minimisers w(t) of F + t/2 |w|^2 if it is outside of the ball.

    The multiplier t, for which |w(t)| = R, is found by safeguarded Newton steps on 1/|w(t)| (More & Sorensen 1983).
    """
    objective, mu = task.objective, task.strong_convexity
    if not isinstance(objective, RowObjective):
        raise TypeError("Newton's method needs a sum over rows")
    accuracy = task.gradient_target / 16
    inside = settled(objective, mu, start, accuracy, 0.0, first=True)
    yield Candidate(task.project(inside))
    for weights, _ in on_sphere(task, objective, inside, accuracy):
        yield Candidate(task.project(weights))
