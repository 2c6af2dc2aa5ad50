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

**The last methods** are Newton's on sums over rows, and for the hinge on huberised hinges that tend to it. Neither
can fail: where a Newton step does not help, accelerated gradient steps are taken, which converge for every table, or,
for the hinge, ascent steps in its dual.

References
----------
More, J. & Sorensen, D. (1983). Computing a trust region step. SIAM Journal on Scientific and Statistical Computing 4.
Shalev-Shwartz, S. & Zhang, T. (2013). Stochastic dual coordinate ascent methods for regularized loss minimization.
JMLR 14.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np

from ..arrays import Floats
from ..errors import InvalidParameter, require_positive
from ..problems import HuberisedHinge
from .candidates import (
    LIMITS,
    METHODS,
    NEED_ROWS,
    NEED_SMOOTHNESS,
    Candidate,
    Task,
    accelerated_gradient,
    lbfgs,
    subgradient,
)
from .row_objectives import MANY, PROJECTION, Objective, RowObjective

_DENSE = 512  # up to this number of weights the Hessian is computed as a matrix
_WIDEST = 0.5
_NARROWER = 4.0
_MOST_AT_KINK = 20  # rows for every weight


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

    ``strong_convexity`` is mu, for a `RowObjective` at most the least entry of its quadratic. The tolerance is
    public, and large enough to be reached for every table: otherwise the search would not end. ``minimiser``, one of
    `METHODS`, is tried first; the point lies in B(0, ``radius``), except for rounding.
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


# Methods that end only when a point of theirs is certified ----------------------------------------


def newton(task: Task, start: Floats) -> Iterator[Candidate]:
    """Propose the points of damped Newton steps, without end."""
    objective, weights = task.objective, start
    while True:
        better = _newton_step(objective, weights) if isinstance(objective, RowObjective) else None
        weights = _accelerate(task, weights) if better is None else better
        yield Candidate(weights)


def newton_on_ball(task: Task, start: Floats) -> Iterator[Candidate]:
    """Propose the minimiser by Newton steps, or the minimisers w(t) of F + t/2 |w|^2 if it is outside of the ball.

    The multiplier t, for which |w(t)| = R, is found by safeguarded Newton steps on 1/|w(t)| (More & Sorensen 1983).
    """
    objective, mu = task.objective, task.strong_convexity
    if not isinstance(objective, RowObjective):
        raise TypeError("Newton's method needs a sum over rows")
    accuracy = task.gradient_target / 16
    inside = settle(objective, mu, start, accuracy, 0.0, first=True)
    yield Candidate(task.project(inside))
    for weights, _ in on_sphere(task, objective, inside, accuracy):
        yield Candidate(task.project(weights))


def smoothed_hinge(task: Task, start: Floats) -> Iterator[Candidate]:
    r"""Propose minimisers of ever narrower huberised hinges, with their residuals as dual values, without end.

    The huberised hinge of half-width h lies at most h/4 above the hinge, so its minimiser has a gap of at most n h/4
    with its own residuals: a half-width of 2a/n is narrow enough for a gap of a whatever the rows are, and mostly one
    far wider. Once the rows at the kink are known, the minimiser for a width of zero solves linear equations, and is
    proposed as well. On a ball the multiplier t of its constraint is the root of |w(t)| = R, where w(t) is the
    minimiser with t/2 |w|^2 more (`on_sphere`).
    """
    hinge, mu = task.objective, task.strong_convexity
    if not isinstance(hinge, RowObjective):
        raise TypeError("the hinge is a sum over rows")
    narrowest = task.gap_target / max(hinge.rows, 1)
    width, multiplier, weights, ahead = _WIDEST, 0.0, start, start
    accuracy = math.sqrt(mu * task.gap_target) / 8
    finest = 2.0**-20 * accuracy
    last: Candidate | None = None
    for level in range(10**9):
        objective = hinge.altered(HuberisedHinge(width))
        before, weights = weights, settle(objective, mu, ahead, accuracy, multiplier, first=level == 0)
        for found in on_sphere(task, objective, weights, accuracy / 64, multiplier):
            weights, multiplier = found
        duals = objective.duals(weights)
        yield Candidate(task.project(weights), duals, multiplier)
        if multiplier == 0:
            yield from _propose_limit(hinge, weights, duals)
        if width == narrowest:
            last = _coordinate_ascent(task, hinge, duals if last is None else last.duals, 20)  # type: ignore[arg-type]
            yield last
        # Where the rows at the kink stay the same, the minimiser is linear in the width.
        ahead = weights + (weights - before) / _NARROWER if level > 1 else weights
        if width == narrowest:
            accuracy = max(accuracy / 4, finest)
        width = max(width / _NARROWER, narrowest)


def on_sphere(
    task: Task, objective: RowObjective, weights: Floats, accuracy: float, multiplier: float = 0.0
) -> Iterator[tuple[Floats, float]]:
    """Find t >= 0 with |w(t)| = R by Newton steps on 1/|w(t)|, from w(t) for some t; none if w(0) is in the ball.

    The norm falls in t, so the root lies between the largest t that is too small and the smallest that is too large:
    a step that leaves this interval, as kinks make them, is replaced by its middle.
    """
    radius, low, high = task.radius, -1.0, math.inf
    for _ in range(60):
        norm = float(np.linalg.norm(weights))
        if abs(norm - radius) <= 1e-13 * radius or (multiplier == 0 and norm <= radius):
            return
        low, high = (multiplier, high) if norm > radius else (low, multiplier)
        leaning = objective.altered(quadratic=objective.quadratic + multiplier)
        shrinking = float(np.sum(weights * _direction(leaning, weights, weights)))
        multiplier = max(multiplier + (norm / radius - 1) * norm**2 / max(shrinking, 1e-300), 0.0)
        if not low < multiplier < high:
            multiplier = max((low + high) / 2, 0.0) if high < math.inf else 4 * low + task.strong_convexity
        weights = settle(objective, task.strong_convexity, weights, accuracy, multiplier)
        yield weights, multiplier


def _propose_limit(hinge: RowObjective, weights: Floats, duals: Floats) -> Iterator[Candidate]:
    """Propose the point at which the rows that are at the kink now have margins of exactly 1.

    Their dual values change by the shortest vector that does it, found from a thin singular value decomposition.
    """
    kink = (duals > 0) & (duals < 1)
    if not 0 < kink.sum() <= _MOST_AT_KINK * weights.size:
        return
    rows, labels = hinge.scaled_rows(kink)
    signed = rows * labels[:, None]
    point = (hinge.combination(duals) - hinge.linear) / hinge.quadratic
    try:
        left, values, _ = np.linalg.svd(signed / np.sqrt(hinge.quadratic), full_matrices=False)
    except np.linalg.LinAlgError:  # an error would reveal something about rows
        return
    kept = values > 1e-7 * values[0]
    change = left[:, kept] @ ((left[:, kept].T @ (1 - signed @ point)) / values[kept] ** 2)
    moved = duals.copy()
    moved[kink] = np.clip(duals[kink] + change, 0.0, 1.0)
    yield Candidate((hinge.combination(moved) - hinge.linear) / hinge.quadratic, moved)


def _coordinate_ascent(task: Task, hinge: RowObjective, duals: Floats, passes: int) -> Candidate:
    """Return the point and the dual values after passes of ascent in the dual, one row at a time.

    The dual of the regulariser is 1/mu-smooth, so a step of (1 - z) mu/|x|^2 never loses, and no width or condition
    number enters: what is left where rounding stops Newton's method (Shalev-Shwartz & Zhang 2013).
    """
    rows, labels = hinge.scaled_rows()
    signed, squares = rows * labels[:, None], np.einsum("ij,ij->i", rows, rows)
    duals = np.clip(duals, 0.0, 1.0)
    total = hinge.combination(duals)
    generator = np.random.default_rng(0)
    for _ in range(passes):
        for i in generator.permutation(rows.shape[0]):
            if squares[i] > 0:
                point, _ = _primal(task, hinge, total)
                step = (1 - float(signed[i] @ point)) * task.strong_convexity / squares[i]
                changed = min(max(duals[i] + step, 0.0), 1.0)
                total = total + (changed - duals[i]) * signed[i]
                duals[i] = changed
        total = hinge.combination(duals)
    point, multiplier = _primal(task, hinge, total)
    return Candidate(task.project(point), duals, multiplier)


def _primal(task: Task, hinge: RowObjective, total: Floats) -> tuple[Floats, float]:
    """Return the point of the ball that dual values with this sum of rows call for, and its multiplier."""
    pull, multiplier = total - hinge.linear, 0.0
    point = pull / hinge.quadratic
    for _ in range(50):  # Newton's method on 1/|w(t)|, which rises to the root
        norm = float(np.linalg.norm(point))
        if norm <= task.radius * (1 + 1e-14):
            break
        shrinking = float(np.sum(point**2 / (hinge.quadratic + multiplier)))
        multiplier += (norm / task.radius - 1) * norm**2 / shrinking
        point = pull / (hinge.quadratic + multiplier)
    return point, multiplier


def settle(
    objective: RowObjective, mu: float, weights: Floats, accuracy: float, multiplier: float, first: bool = False
) -> Floats:
    """Return a point with a gradient of at most about ``accuracy``, of the objective with t/2 |w|^2 more."""
    if multiplier > 0:
        objective = objective.altered(quadratic=objective.quadratic + multiplier)
    task = Task(objective, mu, 2 * accuracy / mu)
    if first:
        weights = next(lbfgs(task, weights)).point
    value, gradient = objective.value_and_gradient(weights)
    for _ in range(100):
        if float(np.linalg.norm(gradient)) <= accuracy:
            break
        direction = _direction(objective, weights, gradient)
        decrease = float(np.sum(gradient * direction))
        step = 1.0
        while step > 2.0**-20:
            candidate = weights - step * direction
            reached, slope = objective.value_and_gradient(candidate)
            if reached <= value - 1e-4 * step * decrease or np.linalg.norm(slope) <= 0.5 * np.linalg.norm(gradient):
                break
            step /= 2
        else:
            candidate = _accelerate(replace(task, tolerance=4 * accuracy / mu), weights)
            reached, slope = objective.value_and_gradient(candidate)
            if not reached < value:
                break
        weights, value, gradient = candidate, reached, slope
    return weights


def _newton_step(objective: RowObjective, weights: Floats) -> Floats | None:
    """Return a point along a Newton direction with a smaller gradient or a smaller value, or None."""
    gradient = objective.accurate_gradient(weights)
    size = float(np.linalg.norm(gradient))
    direction = _direction(objective, weights, gradient)
    if not np.isfinite(direction).all():
        return None
    slope = float(np.sum(gradient * direction))
    value, _ = objective.value_and_gradient(weights)
    for halvings in range(40):
        step = 0.5**halvings
        candidate = weights - step * direction
        lower = value - objective.value_and_gradient(candidate)[0]
        if lower >= max(1e-4 * step * slope, 1e-12 * abs(value)):
            return candidate
        if halvings < 12 and float(np.linalg.norm(objective.accurate_gradient(candidate))) <= 0.9 * size:
            return candidate
    return None


def _direction(objective: RowObjective, weights: Floats, target: Floats) -> Floats:
    """Return the inverse Hessian times the target; infinite where it is singular to the last digit."""
    if objective.linear.ndim == 1 and weights.size <= _DENSE:
        try:
            return np.asarray(np.linalg.solve(objective.dense_hessian(weights), target), dtype=np.float64)
        except np.linalg.LinAlgError:  # an error would reveal something about rows
            return np.full_like(target, math.inf)
    return _conjugate_gradients(objective.hessian(weights), target, 1e-3)


def _conjugate_gradients(product: Callable[[Floats], Floats], target: Floats, relative: float) -> Floats:
    """Solve H x = target until the residual is a ``relative`` part of it."""
    solution = np.zeros_like(target)
    residual, direction = target.copy(), target.copy()
    square = float(np.sum(residual**2))
    stop = relative**2 * square
    for _ in range(10 * target.size + 20):
        if square <= stop or square == 0:
            break
        image = product(direction)
        step = square / float(np.sum(direction * image))
        solution += step * direction
        residual -= step * image
        square, before = float(np.sum(residual**2)), square
        direction = residual + square / before * direction
    return solution


def _accelerate(task: Task, weights: Floats) -> Floats:
    """Return the point after 200 steps of Nesterov's method, or fewer if they are enough."""
    return next(accelerated_gradient(task, weights, most=200)).point
