r"""Certified minimisers: a solver, and a bound on the distance between its point and the true minimiser.

F is mu-strongly convex and is minimised over B(0, R). `certified_minimiser` returns a point only if one of these
bounds, rounding errors included, is at most a public tolerance fixed in advance. A method that misses it is followed
by another, and the last one goes on until it succeeds; there is no message and no failure. How many steps that takes
depends on the rows: time is outside of the guarantee.

- *Smooth, everywhere.* |grad F(w)|/mu, by strong monotonicity.
- *Smooth, on a ball.* For any vector u let p be its projection. Then (u - p)/eta is normal to the ball at p, and
  grad F plus the normal cone is strongly monotone: p is within |(u - p)/eta + grad F(p)|/mu of the minimiser. With u
  a gradient step from w this is the gradient mapping of w. A computed projection is within 2^-47 (R + |u|) of p.
- *A sum of hinges.* sqrt(2 gap/mu) with the duality gap of `RowObjective.duality_gap`; on the sphere at a point moved
  by at most ||w| - R| + 2^-47 R.
- *Any other kink.* sqrt(2 (F(w) - floor)/mu), where the floor is a lower bound on F from cutting planes at other
  points.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidParameter, require_positive
from .ball import newton_on_ball
from .methods import LIMITS, METHODS, NEED_ROWS, NEED_SMOOTHNESS, Candidate, Task, accelerated_gradient, subgradient
from .newton import newton, smoothed_hinge
from .objectives import Objective
from .rounding import MANY, PROJECTION
from .rows import RowObjective

__all__ = ["certified_minimiser", "certify", "require_minimiser", "who_minimises"]

Floats = NDArray[np.float64]


def require_minimiser(name: str, *, smooth: bool, rows: bool, hinge: bool = False) -> None:
    """Raise `InvalidParameter` unless the method called ``name`` can minimise a function of this kind."""
    if name not in METHODS:
        raise InvalidParameter(f"unknown minimiser {name!r}: choose one of {', '.join(METHODS)}")
    if name in NEED_ROWS and not rows:
        raise InvalidParameter(f"minimiser {name!r} visits single rows, and this is no sum over rows: use 'agd'")
    if name in NEED_SMOOTHNESS and not smooth and not (hinge and name == "lbfgs"):
        raise InvalidParameter(
            f"minimiser {name!r} needs a smooth function, and this one has kinks: use 'subgradient'"
        )


def who_minimises(name: str, *, smooth: bool) -> tuple[str, ...]:
    """Return a remark on who may have made the point, if a method was chosen; a function of public facts alone.

    Who did make it depends on the rows, and nothing has paid for telling.
    """
    if name == "lbfgs":
        return ()
    other = "Newton's method and accelerated gradients" if smooth else "Newton's method on smoothed hinges"
    return (
        f"minimiser {name!r} was tried first, for at most {LIMITS[name]}, and {other} continued if no point of it "
        "was certified; which of them made the point depends on the rows and is not told",
    )


def certified_minimiser(
    objective: Objective,
    strong_convexity: float,
    tolerance: float,
    minimiser: str = "lbfgs",
    radius: float = math.inf,
) -> Floats:
    """Return a point within ``tolerance`` of the minimiser in the Euclidean norm, rounding errors included.

    Parameters
    ----------
    objective : Objective
    strong_convexity : float
        mu; for a `RowObjective` at most the least entry of its quadratic.
    tolerance : float
        Public, and large enough to be reached for every table: otherwise the search would not end.
    minimiser : str
        The method that is tried first, one of `METHODS`.
    radius : float
        R; the point lies in B(0, R), except for rounding.
    """
    require_positive("strong_convexity", strong_convexity)
    require_positive("tolerance", tolerance)
    if radius != math.inf:
        require_positive("radius", radius)
    smooth = objective.smoothness < math.inf
    hinge = isinstance(objective, RowObjective) and objective.loss.hinge
    require_minimiser(minimiser, smooth=smooth, rows=isinstance(objective, RowObjective), hinge=hinge)
    task = Task(objective, strong_convexity, tolerance, radius)
    for candidate in _proposals(task, minimiser, smooth, hinge):
        point, distance = certify(task, candidate)
        if distance <= tolerance:
            return point
    raise AssertionError("the last method never ends")


def _proposals(task: Task, minimiser: str, smooth: bool, hinge: bool) -> Iterator[Candidate]:
    start = task.objective.start()
    last = Candidate(start)
    on_ball = smooth and task.radius < math.inf and isinstance(task.objective, RowObjective)
    if minimiser != "lbfgs" or not (hinge or on_ball):  # of which Newton's method takes care below
        for last in METHODS[minimiser](task, start):
            yield last
        start = np.nan_to_num(last.point)
    if hinge:
        yield from smoothed_hinge(task, start)
    elif not smooth:
        yield from subgradient(task, start)
    elif task.radius == math.inf:
        yield from newton(task, start)
    elif on_ball:
        for last in newton_on_ball(task, start):
            yield last
        start = np.nan_to_num(last.point)
    while True:
        for last in accelerated_gradient(task, start, accurate=True):
            yield last
        start = last.point


def certify(task: Task, candidate: Candidate) -> tuple[Floats, float]:
    """Return a point, the candidate's or one step from it, and a bound on its distance from the minimiser."""
    objective, mu, radius = task.objective, task.strong_convexity, task.radius
    point = candidate.point
    if not np.isfinite(point).all():
        return point, math.inf
    if objective.smoothness == math.inf:
        return point, _by_gap(task, candidate)
    if radius < math.inf:
        step = 1 / objective.smoothness
        ahead = point - step * objective.value_and_gradient(point)[1]
        point = task.project(ahead)
        length = float(np.linalg.norm(ahead))
        moved = 0.0 if length < radius * (1 - 1e-9) else PROJECTION * (radius + length)
        normal = (ahead - point) / step
        error = moved * (objective.smoothness + 1 / step) + 4 * PROJECTION * float(np.linalg.norm(normal))
    else:
        moved, error, normal = 0.0, 0.0, np.zeros_like(point)
    size = float(np.linalg.norm(normal + objective.accurate_gradient(point))) * MANY
    distance = (size + error + objective.gradient_error(point)) / mu
    return point, distance + moved + objective.placement_error(float(np.linalg.norm(point)))


def _by_gap(task: Task, candidate: Candidate) -> float:
    objective, mu, point = task.objective, task.strong_convexity, candidate.point
    norm = float(np.linalg.norm(point))
    moved = 0.0
    if candidate.multiplier > 0:  # where the constraint is met with equality
        moved = abs(norm - task.radius) + PROJECTION * task.radius
    elif norm > task.radius * (1 - 2.0**-50):
        return math.inf
    if candidate.duals is not None and isinstance(objective, RowObjective):
        gap = objective.duality_gap(point, candidate.duals, mu, candidate.multiplier, moved)
    elif candidate.floor > -math.inf:
        gap = objective.value_and_gradient(point)[0] + objective.value_error(point) - candidate.floor
    else:
        return math.inf
    return math.sqrt(max(2 * gap / mu, 0.0)) * MANY + moved
