r"""Non-private minimisers, each a black box for output perturbation: they propose points, a certificate accepts one.

A method is a generator of `Candidate` points that get better and better, and ends when it cannot improve them. F is
mu-strongly convex, and beta-smooth where a method says so; it is minimised over a ball B(0, R), R possibly infinite.

============  ==========================================================  =========================================
name          steps to a gap of a                                         needs
============  ==========================================================  =========================================
subgradient   2 L^2/(mu a)                                                nothing
sgd           2 L^2/(mu a), one row each                                  a sum over rows
agd           sqrt(kappa) log((mu + beta) R^2/(2a))                       smoothness
katyusha      (n + sqrt(n kappa)) log(gap/a), one row each                smoothness, a sum over rows
lbfgs         few; superlinear with Newton's method at the end            smoothness
============  ==========================================================  =========================================

Steps, weights and averages are those of the references. Randomness is only about which rows are visited: a public
seed will do, since the answer is certified whatever it was.

References
----------
Allen-Zhu, Z. (2018). Katyusha: the first direct acceleration of stochastic gradient methods. JMLR 18.
Bubeck, S. (2015). Convex optimization: algorithms and complexity. Foundations and Trends in ML 8.
Liu, D. C. & Nocedal, J. (1989). On the limited memory BFGS method for large scale optimization. Math. Programming 45.
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
Nesterov, Y. (2004). Introductory lectures on convex optimization. Springer.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy.optimize import minimize

from ..arrays import Floats
from .row_objectives import PROJECTION, Objective, RowObjective

_PASSES = 20  # passes over the rows, for methods that are followed by another one


class Candidate(NamedTuple):
    """A point, and what is known about it: dual values of the rows, a multiplier of the ball, a lower bound on F."""

    point: Floats
    duals: Floats | None = None
    multiplier: float = 0.0
    floor: float = -math.inf


@dataclass(frozen=True)
class Task:
    """Minimise a strongly convex function over B(0, R), to a distance of ``tolerance`` from the minimiser."""

    objective: Objective
    strong_convexity: float
    tolerance: float
    radius: float = math.inf

    @property
    def gradient_target(self) -> float:
        """A norm of the gradient at which a solver may stop: slightly less than the tolerance requires."""
        return 0.9 * self.strong_convexity * self.tolerance

    @property
    def gap_target(self) -> float:
        """A distance from the least value at which a solver may stop: half of what the tolerance requires."""
        return self.strong_convexity * self.tolerance**2 / 4

    def project(self, weights: Floats) -> Floats:
        """Return the nearest point of the ball, moved inside by more than the rounding error."""
        norm = float(np.linalg.norm(weights))
        inside = self.radius * (1 - 2.0**-48)
        return weights if norm <= inside else weights * (inside / norm)


def subgradient(task: Task, start: Floats, most: int | None = None) -> Iterator[Candidate]:
    r"""Propose the best point of w <- Pi(w - eta_t g), eta_t = 2/(mu (t + 1)).

    The cuts F(u) >= F(w_t) + <g_t, u - w_t> + mu/2 |u - w_t|^2, averaged with weights t, have a least value over the
    ball that no F can fall below: a floor, 2 L^2/(mu (T + 1)) below the best of T points or nearer. For a sum of
    hinges, the average of the points and of the rows' activities are proposed, a pair with a gap as small as that.
    """
    mu, objective = task.strong_convexity, task.objective
    weights = task.project(start)
    best, least, first = weights, math.inf, 0.0
    rows = objective if isinstance(objective, RowObjective) and objective.loss.hinge else None
    average, duals = np.zeros_like(weights), np.zeros(rows.rows if rows is not None else 0)
    total, constant, slope = 0.0, 0.0, np.zeros_like(weights)
    reach, size, count, report = 0.0, 0.0, 0, 1
    while most is None or count < most:
        count += 1
        value, gradient = objective.value_and_gradient(weights)
        first = value if count == 1 else first
        value -= first  # relative to the first value, so that a large value costs no digits
        if value < least:
            best, least = weights, value
        if rows is not None:
            average = average + 2 / (count + 1) * (weights - average)
            duals = duals + 2 / (count + 1) * (rows.duals(weights) - duals)
        norm, length = float(np.linalg.norm(weights)), float(np.linalg.norm(gradient))
        total += count
        constant += count * (value - float(np.sum(gradient * weights)) + mu / 2 * norm**2)
        slope = slope + count * (gradient - mu * weights)
        error = objective.gradient_error(weights)
        reach = max(reach, (length + error) / mu * error + objective.value_error(weights))
        size = max(size, abs(value) + (length + mu * norm) * norm)
        lowest = task.project(-slope / (total * mu))
        floor = constant / total + float(np.sum(slope * lowest)) / total + mu / 2 * float(np.sum(lowest**2))
        floor -= reach + 2.0**-49 * (count + 8) * size
        if task.radius < math.inf:  # the lowest point of the cuts was moved inside the ball
            floor -= PROJECTION * task.radius * (float(np.linalg.norm(slope)) / total + mu * task.radius)
        if least - floor <= task.gap_target or count == report:
            report = 2 * count
            yield Candidate(best, floor=first + floor) if rows is None else Candidate(average, duals)
        weights = task.project(weights - 2 / (mu * (count + 1)) * gradient)


def sgd(task: Task, start: Floats) -> Iterator[Candidate]:
    """Propose the average, with weights t, of steps along subgradients of single rows, after each of some passes.

    For a sum of hinges the activities of every row when it was visited, averaged with the same weights, are proposed
    as its dual value: a number in [0, 1], so that the pair has a duality gap, which vanishes as the steps go on.
    """
    objective = _sum_over_rows(task)
    rows, labels = objective.scaled_rows()
    count, mean_convexity = max(rows.shape[0], 1), task.strong_convexity / max(rows.shape[0], 1)
    generator = np.random.default_rng(0)
    weights, average, step = task.project(start), np.zeros_like(start), 0
    visited, active = np.zeros(rows.shape[0]), np.zeros(rows.shape[0])
    for _ in range(_PASSES):
        for i in generator.integers(0, count, rows.shape[0]):
            step += 1
            residual = objective.loss.residuals(rows[i : i + 1] @ weights, labels[i : i + 1])
            if objective.loss.hinge:
                visited[i] += step
                active[i] += step * abs(residual[0])
            gradient = np.multiply.outer(rows[i], residual[0])
            gradient += (objective.quadratic * weights + objective.linear) / count
            weights = task.project(weights - 2 / (mean_convexity * (step + 1)) * gradient)
            average = average + 2 / (step + 1) * (weights - average)
        yield Candidate(average, active / np.maximum(visited, 1) if objective.loss.hinge else None)


def accelerated_gradient(
    task: Task, start: Floats, accurate: bool = False, most: float = math.inf
) -> Iterator[Candidate]:
    """Propose points of Nesterov's projected accelerated gradient method for strongly convex functions."""
    objective, mu = task.objective, task.strong_convexity
    beta = objective.smoothness
    root = math.sqrt(mu / beta)
    momentum = (1 - root) / (1 + root)
    previous = ahead = task.project(start)
    target, limit, count = task.gradient_target, math.inf, 0
    while count < limit:
        gradient = objective.accurate_gradient(ahead) if accurate else objective.value_and_gradient(ahead)[1]
        if count == 0:
            far = max(float(np.linalg.norm(gradient)) / mu, task.tolerance)
            limit = min(50 + 4 / root * math.log(2 * beta / mu * far / task.tolerance), most)
        point = task.project(ahead - gradient / beta)
        mapping = beta * float(np.linalg.norm(ahead - point))
        ahead, previous, count = point + momentum * (point - previous), point, count + 1
        if 2 * mapping <= target:
            yield Candidate(point)
            target /= 4
    yield Candidate(previous)


def katyusha(task: Task, start: Floats, every: bool = False) -> Iterator[Candidate]:
    """Propose snapshots of Katyusha, taken after each 2n steps along gradients of single rows: good ones or all."""
    objective, mu = _sum_over_rows(task), task.strong_convexity
    rows, labels = objective.scaled_rows()
    count = max(rows.shape[0], 1)
    convexity, extra = mu / count, (objective.quadratic - mu) / count  # of psi, and the rest of the quadratic
    linear = objective.linear / count
    beta = objective.loss.smoothness * objective.row_bound**2 + float(np.max(extra))
    steps = 2 * count
    first = min(math.sqrt(steps * convexity / (3 * beta)), 0.5)
    pace = 1 / (3 * first * beta)
    growth = 1 + pace * convexity
    weights = growth ** np.arange(-steps + 1.0, 1.0)
    weights /= weights.sum()
    generator = np.random.default_rng(0)
    snapshot = y = z = task.project(start)
    target, limit, epochs = task.gradient_target, math.inf, 0.0
    while epochs < limit:
        residuals = objective.loss.residuals(rows @ snapshot, labels)
        full = (rows.T @ residuals) / count + extra * snapshot
        norm = float(np.linalg.norm(full + convexity * snapshot + linear))
        if epochs == 0:
            far = max(norm / convexity, task.tolerance)
            enough = 20 + 8 * max(1.0, math.sqrt(beta / (count * convexity))) * math.log(4 * far / task.tolerance)
            limit = min(enough, 50.0 * _PASSES)
        if norm * count <= target or task.radius < math.inf or every:
            yield Candidate(snapshot)
            target /= 4
        average = np.zeros_like(snapshot)
        for i, weight in zip(generator.integers(0, count, steps if rows.shape[0] else 0), weights, strict=False):
            x = first * z + 0.5 * snapshot + (0.5 - first) * y
            residual = objective.loss.residuals(rows[i : i + 1] @ x, labels[i : i + 1])[0] - residuals[i]
            gradient = full + np.multiply.outer(rows[i], residual) + extra * (x - snapshot) + linear
            z = task.project((z / pace - gradient) / (1 / pace + convexity))
            y = task.project((3 * beta * x - gradient) / (3 * beta + convexity))
            average += weight * y
        snapshot, epochs = average, epochs + 1
    yield Candidate(snapshot)


def lbfgs(task: Task, start: Floats) -> Iterator[Candidate]:
    """Propose the point of L-BFGS without the ball; outside of it, those of the accelerated gradient method."""
    objective, shape = task.objective, start.shape
    # In units of a typical objective, so that the stopping rules of L-BFGS are about relative sizes.
    unit = max(objective.rows, 1) * objective.row_bound if isinstance(objective, RowObjective) else 1.0
    norms: dict[bytes, float] = {}

    def function(flat: Floats) -> tuple[float, Floats]:
        value, gradient = objective.value_and_gradient(flat.reshape(shape))
        norms.clear()
        norms[flat.tobytes()] = float(np.linalg.norm(gradient))
        return value / unit, gradient.reshape(-1) / unit

    def enough(flat: Floats) -> None:
        if norms.get(flat.tobytes(), math.inf) <= task.gradient_target:
            raise StopIteration

    options = {"maxiter": 500, "maxcor": 20, "gtol": 1e-12, "ftol": 1e-15}
    found = minimize(
        function, start.reshape(-1), jac=True, method="L-BFGS-B", options=options, callback=lambda x: enough(x)
    )
    point = np.asarray(found.x, dtype=np.float64).reshape(shape)
    if float(np.linalg.norm(point)) > task.radius:
        yield from accelerated_gradient(task, task.project(point))
    else:
        yield Candidate(point)


def _sum_over_rows(task: Task) -> RowObjective:
    if not isinstance(task.objective, RowObjective):
        raise TypeError("this method visits single rows: it needs a sum over them")
    return task.objective


#: Every method by its name.
METHODS: dict[str, Callable[[Task, Floats], Iterator[Candidate]]] = {
    "lbfgs": lbfgs,
    "agd": lambda task, start: accelerated_gradient(task, start, most=1000 * _PASSES),
    "katyusha": katyusha,
    "subgradient": lambda task, start: subgradient(task, start, 50 * _PASSES),
    "sgd": sgd,
}
#: How far each of them goes at most, where its point is not certified before.
LIMITS = {
    "lbfgs": "500 steps",
    "agd": f"{1000 * _PASSES:,} steps",
    "katyusha": f"{100 * _PASSES:,} passes over the rows",
    "subgradient": f"{50 * _PASSES:,} steps",
    "sgd": f"{_PASSES} passes over the rows",
}
#: The methods that need a smooth function, and those that need a sum over rows.
NEED_SMOOTHNESS = frozenset({"lbfgs", "agd", "katyusha"})
NEED_ROWS = frozenset({"katyusha", "sgd"})
