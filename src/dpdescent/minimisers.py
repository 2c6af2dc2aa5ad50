r"""Sums of smooth losses over rows in ordinary floating point, with a bound on the error, and their minimisers.

The objective is the sum over rows of l(f x . w, y), f = min(1, B/|x|), plus a public quadratic and a public linear
term. Rows longer than B are thus scaled down to it: the gradient of a row is at most C = lipschitz(l) B long.

**Certificate.** A minimiser is a solver plus a bound: with all eigenvalues of the quadratic at least Lambda, a
point w is within |grad F(w)|/Lambda of the minimiser. `certified_minimiser` returns a point only if the computed
norm plus the error bound below is at most a public tolerance, fixed in advance. A solver that misses it is followed
by another, and the last one repeats its steps until it succeeds; there is no message and no failure.

**Error of a computed gradient.** Let u = 2^-53, n the public number of rows, s = sup l'', K the number of margins.

- A point: the weights are split into two parts on the grid of the features, and their sum takes the place of the
  point. A part leaves at most 3.1 2^-33 of the norm in a coordinate, so that the sum is within 9.6 d 2^-66 |w| of the
  point, which `placement_error` returns. The next lines are about the gradient at the sum.
- A margin: both products are exact (`FeatureGrid`), their sum and the factor f round twice: at most 3u |t|.
- A residual: the functions of `dpdescent.exact.elementary` are good to 2^-50; arithmetic around them and the error of
  the margin add up to less than (2^-48 + K u) lipschitz + 8u s (1 + |t|). Losses of one margin do not change any more
  beyond |t| = 64 (their curvature times |t| is below 2^-60 there), so |t| counts at most 64 for them.
- A sum over 64 rows: at most 65u times the sum of the sizes |c_i||x_i| <= C, whatever the order. The partial sums
  are added without error by `math.fsum`.
- The public terms: 4u (|Q w| + |b|).

Together at most n C (2^-48 + 2^-46.9 + K u) + n B 8u s (1 + min(64, B|w|)) + 4u(...), which `error_bound` returns.

**Every table can be certified.** The tolerance must exceed that error at the minimiser of any table, or the solver
would never return, for some tables and not for others. There |Q w + b| <= n C, |w| <= (n C + |b|)/Lambda and, the
objective being at most its value at zero, |w| <= 2|b|/Lambda + sqrt(2 n l(0)/Lambda). A computed point is a vector
of floating-point numbers: the nearest one has a gradient of up to u |w| times the smoothness. `reachable_tolerance`
is four times what all of this allows.

Labels are made what the loss understands, -1 or 1, or a number in [-1, 1], each by itself: the bounds of a row's
gradient hold for no others.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.sparse import issparse

from .errors import InvalidParameter
from .exact import FeatureGrid
from .problems import Hinge, Huber, HuberisedHinge, Logistic, Loss, Squared
from .sources import Source

__all__ = ["RowObjective", "certified_minimiser", "reachable_tolerance", "smooth_loss"]

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_PART_ROWS = 64
_LARGEST_SCORE = 64.0
_DENSE = 512  # weights up to which a Hessian is a matrix


def smooth_loss(loss: Loss, method: str) -> Loss:
    """Return a convex loss with bounded slope and curvature in place of ``loss``, or refuse.

    The squared loss is cut at slope 1, half the width of the target's range (Huber); a kink has no curvature bound.
    """
    if isinstance(loss, Squared):
        return Huber(1.0)
    if not loss.convex:
        raise InvalidParameter(f"method {method!r} needs a convex loss, and {type(loss).__name__} is none")
    if isinstance(loss, Hinge) or not (math.isfinite(loss.smoothness) and math.isfinite(loss.lipschitz)):
        raise InvalidParameter(
            f"method {method!r} needs a smooth loss, and {type(loss).__name__} has a kink: use loss='huberised-hinge'"
        )
    return loss


class RowObjective:
    """The sum over rows of l(f x . w, y) plus w'Qw/2 + b'w, with Q diagonal.

    Parameters
    ----------
    source : Source
        **Unreleased data**: so is everything this class computes.
    grid : FeatureGrid
    loss : Loss
        Smooth, with a bounded slope.
    squared_norms : ndarray
        Of all rows.
    row_bound : float
        B, public.
    quadratic, linear : ndarray, in the shape of the weights
        The diagonal of Q, and b.
    """

    def __init__(
        self,
        source: Source,
        grid: FeatureGrid,
        loss: Loss,
        squared_norms: Floats,
        row_bound: float,
        quadratic: Floats,
        linear: Floats,
    ) -> None:
        self._source, self._grid, self._loss = source, grid, loss
        norms = np.sqrt(squared_norms)
        self._factors = np.minimum(1.0, row_bound / np.maximum(norms, row_bound))
        self.row_bound, self.quadratic, self.linear = row_bound, quadratic, linear
        self.rows = squared_norms.shape[0]

    def error_bound(self, rows: int, weights_norm: float, public: float | None = None) -> float:
        """Return more than the error of `accurate_gradient` over ``rows`` rows; public if its arguments are.

        ``public`` is |Q w| + |b|, where it is known.
        """
        if public is None:
            public = float(np.max(self.quadratic)) * weights_norm + float(np.linalg.norm(self.linear))
        return _gradient_error(self._loss, self.row_bound, rows, weights_norm, public)

    def placement_error(self, weights_norm: float) -> float:
        """Return more than the distance of a point from the one at which `accurate_gradient` is taken."""
        return self._grid.dimension * 2.0**-62 * weights_norm

    def accurate_gradient(self, weights: Floats) -> Floats:
        """Return the gradient within `placement_error` of the weights, with an error of at most `error_bound`."""
        high = self._grid.place_weights(weights)
        low = self._grid.place_weights(weights - high)

        def parts(rows: Any, labels: Floats, factors: Floats) -> Floats:
            margins = self._grid.margins(rows, high) + self._grid.margins(rows, low)
            residuals = self._loss.residuals(_scaled(margins, factors), _understood(self._loss, labels))
            coefficients = _scaled(residuals, factors)
            return _partial_sums(rows, coefficients)

        sums = self._source.map_rows(parts, self._factors)
        total = np.array([math.fsum(column) for column in sums.T.tolist()]).reshape(weights.shape)
        return total + (self.quadratic * weights + self.linear)

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """Return the objective and its gradient as a solver needs them, without any bound on their error."""

        def part(rows: Any, labels: Floats, factors: Floats) -> Floats:
            margins, labels = _scaled(rows @ weights, factors), _understood(self._loss, labels)
            gradient = rows.T @ _scaled(self._loss.residuals(margins, labels), factors)
            return np.append(np.asarray(gradient).reshape(-1), self._loss.values(margins, labels).sum())

        total = np.asarray(self._source.map_sum(part, self._factors), dtype=np.float64)  # type: ignore[arg-type]
        gradient = total[:-1].reshape(weights.shape) + self.quadratic * weights + self.linear
        value = total[-1] + float(np.sum(weights * (self.quadratic * weights / 2 + self.linear)))
        return float(value), gradient

    def hessian(self, weights: Floats) -> Callable[[Floats], Floats]:
        """Return the map from a direction to the Hessian times it."""
        margins = self._source.map_rows(lambda rows, _, factors: _scaled(rows @ weights, factors), self._factors)

        def product(direction: Floats) -> Floats:
            def part(rows: Any, labels: Floats, factors: Floats, at: Floats) -> Floats:
                along, labels = _scaled(rows @ direction, factors), _understood(self._loss, labels)
                return np.asarray(rows.T @ _scaled(self._loss.curvature_products(at, labels, along), factors))

            total = self._source.map_sum(part, self._factors, margins)  # type: ignore[arg-type]
            return np.asarray(total, dtype=np.float64) + self.quadratic * direction

        return product

    def dense_hessian(self, weights: Floats) -> Floats:
        """Return the Hessian of a loss of one margin as a matrix."""

        def part(rows: Any, labels: Floats, factors: Floats) -> Floats:
            labels = _understood(self._loss, labels)
            curvatures = self._loss.curvatures((rows @ weights) * factors, labels) * factors**2
            weighted = rows.multiply(curvatures[:, None]) if issparse(rows) else rows * curvatures[:, None]
            product = rows.T @ weighted
            return np.asarray(product.toarray() if issparse(product) else product)

        total = self._source.map_sum(part, self._factors)  # type: ignore[arg-type]
        return np.asarray(total, dtype=np.float64) + np.diag(self.quadratic)

    def batch_gradient(self, weights: Floats, chosen: NDArray[np.bool_]) -> Floats:
        """Return the gradient of the loss over the chosen rows, without the public terms, in plain arithmetic.

        Its error is at most m C ((m + d + K + 8) u + 2^-46) + m B s (d + 8) u (1 + B|w|) for m rows: see
        `batch_error_bound`.
        """

        def part(rows: Any, labels: Floats, factors: Floats, kept: NDArray[np.bool_]) -> Floats:
            rows, labels, factors = rows[kept], _understood(self._loss, labels[kept]), factors[kept]
            coefficients = self._loss.residuals(_scaled(rows @ weights, factors), labels)
            return np.asarray(rows.T @ _scaled(coefficients, factors))

        return np.asarray(self._source.map_sum(part, self._factors, chosen), dtype=np.float64)  # type: ignore[arg-type]

    def batch_error_bound(self, rows: int, weights_norm: float) -> float:
        """Return more than the error of `batch_gradient` over at most ``rows`` rows."""
        bound, loss, dimension = self.row_bound, self._loss, self._grid.dimension
        slope = loss.lipschitz * ((rows + dimension + loss.outputs + 8) * _UNIT + 2.0**-46)
        margin = loss.smoothness * (dimension + 8) * _UNIT * (1 + bound * weights_norm)
        return rows * bound * (slope + margin) * (1 + 2.0**-20)


def _gradient_error(loss: Loss, row_bound: float, rows: int, weights_norm: float, public: float) -> float:
    score = row_bound * weights_norm
    if loss.outputs == 1:
        score = min(score, _LARGEST_SCORE)
    slope = loss.lipschitz * (2.0**-46 + loss.outputs * _UNIT)
    of_rows = row_bound * (slope + 8 * _UNIT * loss.smoothness * (1 + score))
    return (rows * of_rows + 4 * _UNIT * public) * (1 + 2.0**-20)


def reachable_tolerance(
    loss: Loss, row_bound: float, dimension: int, rows: int, strong_convexity: float, linear_norm: float
) -> float:
    """Return a gradient norm, public, to which the minimiser of every table of at most ``rows`` rows is certified.

    ``linear_norm`` bounds |b|. See the module for the proof.
    """
    whole = rows * loss.lipschitz * row_bound
    margins = np.zeros(2) if loss.outputs == 1 else np.zeros((2, loss.outputs))
    at_zero = float(np.max(loss.values(margins, np.array([-1.0, 1.0]))))
    longest = min(
        (whole + linear_norm) / strong_convexity,
        2 * linear_norm / strong_convexity + math.sqrt(2 * rows * at_zero / strong_convexity),
    )
    error = _gradient_error(loss, row_bound, rows, longest, whole + 2 * linear_norm)
    spacing = _UNIT * rows * loss.smoothness * row_bound**2 * longest
    return 4 * (error + spacing + dimension * 2.0**-62 * strong_convexity * longest)


def certified_minimiser(objective: RowObjective, strong_convexity: float, tolerance: float) -> Floats:
    """Return a point within ``tolerance`` of the minimiser in the Euclidean norm, rounding errors included.

    Parameters
    ----------
    objective : RowObjective
    strong_convexity : float
        Lambda, at most the least entry of the quadratic.
    tolerance : float
        Public, and at least `reachable_tolerance` divided by Lambda, so that it can be met.
    """

    def excess(weights: Floats) -> float:
        norm = float(np.linalg.norm(weights))
        size = float(np.linalg.norm(objective.accurate_gradient(weights))) * (1 + 2.0**-20)
        public = float(np.linalg.norm(objective.quadratic * weights) + np.linalg.norm(objective.linear))
        distance = (size + objective.error_bound(objective.rows, norm, public)) / strong_convexity
        return distance + objective.placement_error(norm) - tolerance

    weights = _quasi_newton(objective)
    while not excess(weights) <= 0:
        better = _newton_step(objective, weights)
        if better is None:
            better = _accelerated(objective, weights, strong_convexity, 200)
        weights = better
    return weights


def _quasi_newton(objective: RowObjective) -> Floats:
    shape = objective.linear.shape
    # In units of a typical objective, so that the stopping rules of L-BFGS are about relative sizes.
    unit = max(objective.rows, 1) * objective.row_bound

    def function(flat: Floats) -> tuple[float, Floats]:
        value, gradient = objective.value_and_gradient(flat.reshape(shape))
        return value / unit, gradient.reshape(-1) / unit

    options = {"maxiter": 100, "maxcor": 20, "gtol": 1e-6, "ftol": 1e-12}
    found = minimize(function, np.zeros(int(np.prod(shape))), jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x, dtype=np.float64).reshape(shape)


def _newton_step(objective: RowObjective, weights: Floats) -> Floats | None:
    """Return a point along a Newton direction with a smaller gradient or a smaller value, or None."""
    gradient = objective.accurate_gradient(weights)
    size = float(np.linalg.norm(gradient))
    if objective.linear.ndim == 1 and weights.size <= _DENSE:
        direction = _dense_solution(objective.dense_hessian(weights), gradient)
    else:
        direction = _conjugate_gradients(objective.hessian(weights), gradient, 1e-3)
    if not np.isfinite(direction).all():
        return None
    slope = float(np.sum(gradient * direction))
    value, _ = objective.value_and_gradient(weights)
    for halvings in range(12):
        step = 0.5**halvings
        candidate = weights - step * direction
        reached = float(np.linalg.norm(objective.accurate_gradient(candidate)))
        lower = value - objective.value_and_gradient(candidate)[0]
        if reached <= 0.9 * size or lower >= max(1e-4 * step * slope, 1e-12 * abs(value)):
            return candidate
    return None


def _dense_solution(matrix: Floats, target: Floats) -> Floats:
    """Solve H x = target; infinite where H is singular to the last digit, since an error would speak of rows."""
    try:
        return np.asarray(np.linalg.solve(matrix, target), dtype=np.float64)
    except np.linalg.LinAlgError:
        return np.full_like(target, math.inf)


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


def _accelerated(objective: RowObjective, weights: Floats, strong_convexity: float, steps: int) -> Floats:
    """Return the point after some steps of Nesterov's method, which contracts for every table."""
    smoothness = objective.rows * objective._loss.smoothness * objective.row_bound**2
    smoothness += float(np.max(objective.quadratic))
    root = math.sqrt(strong_convexity / smoothness)
    momentum, previous = (1 - root) / (1 + root), weights
    for _ in range(steps):
        ahead = weights + momentum * (weights - previous)
        previous, weights = weights, ahead - objective.value_and_gradient(ahead)[1] / smoothness
    return weights


def _partial_sums(rows: Any, coefficients: Floats) -> Floats:
    """Return the sums of rows times coefficients over 64 rows each, one flat vector a line."""
    whole = rows.shape[0] // _PART_ROWS * _PART_ROWS if isinstance(rows, np.ndarray) else 0
    columns = coefficients.reshape(rows.shape[0], -1)
    size = rows.shape[1] * columns.shape[1]
    blocks = (
        rows[:whole].reshape(-1, _PART_ROWS, rows.shape[1]) if whole else np.empty((0, _PART_ROWS, rows.shape[1]))
    )
    weights = columns[:whole].reshape(-1, _PART_ROWS, columns.shape[1])
    parts = [np.matmul(blocks.transpose(0, 2, 1), weights).reshape(-1, size)]
    for start in range(whole, rows.shape[0], _PART_ROWS):
        end = start + _PART_ROWS
        parts.append(np.asarray(rows[start:end].T @ columns[start:end]).reshape(1, size))
    return np.concatenate(parts)


def _understood(loss: Loss, labels: Floats) -> Floats:
    """Return labels for which the bounds of the loss hold; the multinomial loss sees to that itself."""
    if isinstance(loss, Logistic | HuberisedHinge):
        return np.where(labels > 0, 1.0, -1.0)
    return np.clip(np.nan_to_num(labels), -1.0, 1.0) if isinstance(loss, Huber) else labels


def _scaled(values: Floats, factors: Floats) -> Floats:
    return values * factors if values.ndim == 1 else values * factors[:, None]
