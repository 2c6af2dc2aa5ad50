r"""What is minimised: strongly convex functions of the weights, and above all sums of losses over rows.

They are computed in ordinary floating point, with bounds on the error. A `RowObjective` is the sum over rows of
l(f x . w, y), f = min(1, B/|x|), plus a public quadratic and a public linear term. Rows longer than B are thus scaled
down to it: the gradient of a row is at most C = lipschitz(l) B long.

**Error of a computed gradient** of a smooth loss. Let u = 2^-53, n the public number of rows, s = sup l'', K the
number of margins.

- A point: the weights are split into two parts on the grid of the features, and their sum takes the place of the
  point. A part leaves at most 3.1 2^-33 of the norm in a coordinate, so that the sum is within 9.6 d 2^-66 |w| of the
  point, which `placement_error` returns. The next lines are about the gradient at the sum.
- A margin: both products are exact (`FeatureGrid`), their sum and the factor f round twice: at most 3u |t|.
- A residual: the functions of `dpdescent.exact.elementary` are good to 2^-50; arithmetic around them and the error of
  the margin add up to less than (2^-48 + K u) lipschitz + 8u s (1 + |t|). Most losses of one margin do not change any
  more beyond |t| = T, mostly 64 (their curvature times |t| is below 2^-60 there), so |t| counts at most T for them.
- A sum over 64 rows: at most 65u times the sum of the sizes |c_i||x_i| <= C, whatever the order. The partial sums
  are added without error by `math.fsum`.
- The public terms: 4u (|Q w| + |b|).

Together at most n C (2^-48 + 2^-46.9 + K u) + n B 8u s (1 + min(T, B|w|)) + 4u(...), which `error_bound` returns.

**Every table can be certified.** The tolerance must exceed that error at the minimiser of any table, or the solver
would never return, for some tables and not for others. There |Q w + b| <= n C, |w| <= (n C + |b|)/Lambda and, the
objective being at most its value at zero, |w| <= 2|b|/Lambda + sqrt(2 n l(0)/Lambda). A computed point is a vector
of floating-point numbers: the nearest one has a gradient of up to u |w| times the smoothness. `reachable_tolerance`
is four times what all of this allows. On the sphere of a ball the nearest point is up to 16u R off, and the part of
the gradient that points outwards, at most n C + |b| + the quadratic's, is as long as its computed opposite to 8u.

Every label is mapped to one that the loss accepts (`Loss.understood`), because the bounds of a row's gradient hold
for such labels only.

**Rounding.** A floating-point operation has a relative error of at most u = 2^-53. What is added to the bounds of
this package, so that floating point never makes one too small, are multiples of u, or factors that cover several
operations:

===============  =========  =========================================================================================
name             size       what it covers
===============  =========  =========================================================================================
``UNIT``         u          one operation
``PROJECTION``   64 u       how far a computed projection onto a ball is from the true one, in units of the lengths
``PLACEMENT``    u/512      how far a point is from the sum of its two parts on the grid, in each coordinate and in
                            units of its length: 9.6 2^-66
``FEW``          1 + 2^-40  a product of a few public constants: 8,192 operations
``EXPONENTIAL``  1 + 2^-30  exp(x) for |x| up to 150, whose argument is wrong by some u: 2^-45
``MANY``         1 + 2^-20  a norm, or a sum of errors, over up to 2^32 numbers in any order
===============  =========  =========================================================================================
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from copy import copy
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from ..arrays import Booleans, Floats
from ..exact import FeatureGrid
from ..problems import Loss, Need, require_needs

if TYPE_CHECKING:
    from .risks import Source

UNIT = 2.0**-53
PROJECTION = 2.0**-47
PLACEMENT = 2.0**-62
FEW = 1 + 2.0**-40
EXPONENTIAL = 1 + 2.0**-30
MANY = 1 + 2.0**-20

_PART_ROWS = 64


class Objective(ABC):
    """A strongly convex function of the weights. **Unreleased data**: so is everything it computes.

    Attributes
    ----------
    shape : tuple of int
        Of the weights.
    smoothness : float
        A public Lipschitz constant of the gradient; infinite for a function with kinks.
    """

    shape: tuple[int, ...]

    @property
    @abstractmethod
    def smoothness(self) -> float: ...

    @abstractmethod
    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """Return the value and a (sub)gradient, accurate enough for a solver."""

    @abstractmethod
    def accurate_gradient(self, weights: Floats) -> Floats:
        """Return the gradient at a point within `placement_error` of the weights, accurate to `gradient_error`."""

    @abstractmethod
    def gradient_error(self, weights: Floats) -> float:
        """Return an upper bound on the error of `accurate_gradient`, in the Euclidean norm."""

    def start(self) -> Floats:
        """Return where a search begins."""
        return np.zeros(self.shape)

    def placement_error(self, weights_norm: float) -> float:
        """Return an upper bound on the distance of a point from the one at which `accurate_gradient` is computed."""
        return 0.0

    def value_error(self, weights: Floats) -> float:
        """Return an upper bound on the error of a value from `value_and_gradient`; infinite where none is known."""
        return math.inf


def smooth_loss(loss: Loss, method: str) -> Loss:
    """Return the loss, or its substitute with bounded slope and curvature, or raise if there is none."""
    require_needs(method, {Need.CONVEX, Need.SMOOTH, Need.BOUNDED_VERSION}, loss)
    bounded = loss.bounded()
    assert bounded is not None, "a loss offers no bounded version without one"
    return bounded


class RowObjective(Objective):
    """The sum over rows of l(f x . w, y) plus w'Qw/2 + b'w, with Q diagonal.

    The source is **unreleased data**, and so is everything this class computes. The loss has a bounded slope, and is
    smooth or the hinge; ``squared_norms`` are those of all rows, ``row_bound`` is B, public, and ``quadratic`` and
    ``linear``, in the shape of the weights, are the diagonal of Q and b.
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
        self.shape = linear.shape

    @property
    def loss(self) -> Loss:
        """The loss of a row."""
        return self._loss

    @property
    def smoothness(self) -> float:
        return float(max(self.rows, 1) * self._loss.smoothness * self.row_bound**2 + np.max(self.quadratic))

    def altered(self, loss: Loss | None = None, quadratic: Floats | None = None) -> RowObjective:
        """Return the objective of the same rows with another loss or quadratic."""
        other = copy(self)
        other._loss = self._loss if loss is None else loss
        other.quadratic = self.quadratic if quadratic is None else quadratic
        return other

    def gradient_error(self, weights: Floats) -> float:
        public = float(np.linalg.norm(self.quadratic * weights) + np.linalg.norm(self.linear))
        return self.error_bound(self.rows, float(np.linalg.norm(weights)), public)

    def error_bound(self, rows: int, weights_norm: float, public: float | None = None) -> float:
        """Return an upper bound on the error of `accurate_gradient` over ``rows`` rows; public if its arguments are.

        ``public`` is |Q w| + |b|, where it is known.
        """
        if public is None:
            public = float(np.max(self.quadratic)) * weights_norm + float(np.linalg.norm(self.linear))
        return _gradient_error(self._loss, self.row_bound, rows, weights_norm, public)

    def placement_error(self, weights_norm: float) -> float:
        return self._grid.dimension * PLACEMENT * weights_norm

    def accurate_gradient(self, weights: Floats) -> Floats:
        margins = self._accurate_margins(weights)

        def parts(rows: Any, labels: Floats, factors: Floats) -> Floats:
            residuals = self._loss.residuals(margins(rows, factors), self._loss.understood(labels))
            return partial_sums(rows, scale_rows(residuals, factors))

        sums = self._source.map_rows(parts, self._factors)
        return add_exactly(sums, weights.shape) + (self.quadratic * weights + self.linear)

    def _accurate_margins(self, weights: Floats) -> Callable[[Any, Floats], Floats]:
        high = self._grid.place_weights(weights)
        low = self._grid.place_weights(weights - high)

        def margins(rows: Any, factors: Floats) -> Floats:
            return scale_rows(self._grid.margins(rows, high) + self._grid.margins(rows, low), factors)

        return margins

    def duals(self, weights: Floats) -> Floats:
        """Return -y l'(t) of every row: for the huberised hinge, what the dual of the hinge takes, in [0, 1]."""

        def part(rows: Any, labels: Floats, factors: Floats) -> Floats:
            labels = self._loss.understood(labels)
            return -labels * self._loss.residuals(scale_rows(rows @ weights, factors), labels)

        found: Floats = self._source.map_rows(part, self._factors)
        return found

    def duality_gap(
        self, weights: Floats, duals: Floats, strong_convexity: float, multiplier: float = 0.0, moved: float = 0.0
    ) -> float:
        r"""Return an upper bound on the duality gap of the hinge within ``moved`` of the weights, errors included.

        With dual values a_i in [0, 1] and a multiplier t >= 0 of the ball's constraint, at a point w with
        t (R - |w|) = 0, the gap between the objective and the dual is

        .. math:: \sum_i (1[z_i < 1] - a_i)(1 - z_i) \; + \tfrac12 \big|Q w + t w + b - \sum_i a_i y_i f_i x_i
                  \big|^2_{(Q + t)^{-1}}, \qquad z_i = y_i f_i x_i \cdot w,

        terms that are never negative, so nothing cancels. A row's term is wrong by at most 8u (1 + B|w|), and moves
        by B with w; the sum of the rows in the residual is wrong by 68u n B, and the rest of it by 8u of its sizes.
        """
        duals = np.clip(np.nan_to_num(duals), 0.0, 1.0)
        margins = self._accurate_margins(weights)

        def parts(rows: Any, labels: Floats, factors: Floats, active: Floats) -> Floats:
            labels = self._loss.understood(labels)
            short = 1 - labels * margins(rows, factors)
            return np.where(short > 0, (1 - active) * short, -active * short)

        def sums(rows: Any, labels: Floats, factors: Floats, active: Floats) -> Floats:
            return partial_sums(rows, -active * self._loss.understood(labels) * factors)

        loss = math.fsum(self._source.map_rows(parts, self._factors, duals).tolist())
        rows = add_exactly(self._source.map_rows(sums, self._factors, duals), weights.shape)
        curvature = self.quadratic + multiplier
        residual = float(np.linalg.norm(curvature * weights + self.linear + rows))
        norm, count, bound = float(np.linalg.norm(weights)), self.rows, self.row_bound
        public = float(np.linalg.norm(curvature * weights) + np.linalg.norm(self.linear))
        moved = moved + self.placement_error(norm)
        loss += count * (8 * UNIT * (1 + bound * norm) + bound * moved) * MANY
        residual += 68 * UNIT * count * bound + 8 * UNIT * public + float(np.max(curvature)) * moved
        return float((loss + residual**2 / (2 * strong_convexity)) * MANY)

    def combination(self, duals: Floats) -> Floats:
        """Return the sum over rows of a_i y_i f_i x_i, in plain arithmetic."""

        def part(rows: Any, labels: Floats, factors: Floats, active: Floats) -> Floats:
            return np.asarray(rows.T @ (active * self._loss.understood(labels) * factors))

        return np.asarray(self._source.map_sum(part, self._factors, duals), dtype=np.float64)

    def scaled_rows(self, chosen: Booleans | None = None) -> tuple[Floats, Floats]:
        """Return the rows (or some), scaled down to B, in one dense array, and their labels."""

        def part(rows: Any, labels: Floats, factors: Floats, kept: Booleans) -> Floats:
            rows, labels, factors = rows[kept], labels[kept], factors[kept]
            dense = rows.toarray() if issparse(rows) else rows
            return np.column_stack([dense * factors[:, None], self._loss.understood(labels)])

        kept = np.ones(self.rows, dtype=bool) if chosen is None else chosen
        table = self._source.map_rows(part, self._factors, kept)
        return np.ascontiguousarray(table[:, :-1]), table[:, -1].copy()

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:

        def part(rows: Any, labels: Floats, factors: Floats) -> Floats:
            margins, labels = scale_rows(rows @ weights, factors), self._loss.understood(labels)
            gradient = rows.T @ scale_rows(self._loss.residuals(margins, labels), factors)
            return np.append(np.asarray(gradient).reshape(-1), self._loss.values(margins, labels).sum())

        total = np.asarray(self._source.map_sum(part, self._factors), dtype=np.float64)
        gradient = total[:-1].reshape(weights.shape) + self.quadratic * weights + self.linear
        value = total[-1] + float(np.sum(weights * (self.quadratic * weights / 2 + self.linear)))
        return float(value), gradient

    def hessian(self, weights: Floats) -> Callable[[Floats], Floats]:
        """Return the map from a direction to the Hessian times it."""
        margins = self._source.map_rows(lambda rows, _, factors: scale_rows(rows @ weights, factors), self._factors)

        def product(direction: Floats) -> Floats:
            def part(rows: Any, labels: Floats, factors: Floats, at: Floats) -> Floats:
                along, labels = scale_rows(rows @ direction, factors), self._loss.understood(labels)
                return np.asarray(rows.T @ scale_rows(self._loss.curvature_products(at, labels, along), factors))

            total = self._source.map_sum(part, self._factors, margins)
            return np.asarray(total, dtype=np.float64) + self.quadratic * direction

        return product

    def dense_hessian(self, weights: Floats) -> Floats:
        """Return the Hessian of a loss of one margin as a matrix."""

        def part(rows: Any, labels: Floats, factors: Floats) -> Floats:
            labels = self._loss.understood(labels)
            curvatures = self._loss.curvatures((rows @ weights) * factors, labels) * factors**2
            curved = curvatures > 0
            if 2 * curved.sum() < curved.size:
                rows, curvatures = rows[curved], curvatures[curved]
            weighted = rows.multiply(curvatures[:, None]) if issparse(rows) else rows * curvatures[:, None]
            product = rows.T @ weighted
            return np.asarray(product.toarray() if issparse(product) else product)

        total = self._source.map_sum(part, self._factors)
        return np.asarray(total, dtype=np.float64) + np.diag(self.quadratic)

    def batch_gradient(self, weights: Floats, chosen: Booleans) -> Floats:
        """Return the gradient of the loss over the chosen rows, without the public terms, in plain arithmetic.

        Its error is at most m C ((m + d + K + 8) u + 2^-46) + m B s (d + 8) u (1 + B|w|) for m rows: see
        `batch_error_bound`.
        """

        def part(rows: Any, labels: Floats, factors: Floats, kept: Booleans) -> Floats:
            rows, labels, factors = rows[kept], self._loss.understood(labels[kept]), factors[kept]
            coefficients = self._loss.residuals(scale_rows(rows @ weights, factors), labels)
            return np.asarray(rows.T @ scale_rows(coefficients, factors))

        return np.asarray(self._source.map_sum(part, self._factors, chosen), dtype=np.float64)

    def batch_error_bound(self, rows: int, weights_norm: float) -> float:
        """Return an upper bound on the error of `batch_gradient` over at most ``rows`` rows."""
        bound, loss, dimension = self.row_bound, self._loss, self._grid.dimension
        slope = loss.lipschitz * ((rows + dimension + loss.outputs + 8) * UNIT + 2.0**-46)
        margin = loss.smoothness * (dimension + 8) * UNIT * (1 + bound * weights_norm)
        return rows * bound * (slope + margin) * MANY


def _gradient_error(loss: Loss, row_bound: float, rows: int, weights_norm: float, public: float) -> float:
    score = min(row_bound * weights_norm, loss.flat_beyond)
    slope = loss.lipschitz * (2.0**-46 + loss.outputs * UNIT)
    of_rows = row_bound * (slope + 8 * UNIT * loss.smoothness * (1 + score))
    return (rows * of_rows + 4 * UNIT * public) * MANY


def reachable_tolerance(
    loss: Loss, row_bound: float, dimension: int, rows: int, strong_convexity: float, linear_norm: float
) -> float:
    """Return a gradient norm, public, to which the minimiser of every table of at most ``rows`` rows is certified.

    ``linear_norm`` bounds |b|. See the module for the proof.
    """
    whole = rows * loss.lipschitz * row_bound
    longest = min(
        (whole + linear_norm) / strong_convexity,
        2 * linear_norm / strong_convexity + math.sqrt(2 * rows * loss.largest(0.0) / strong_convexity),
    )
    error = _gradient_error(loss, row_bound, rows, longest, whole + 2 * linear_norm)
    spacing = UNIT * rows * loss.smoothness * row_bound**2 * longest
    return 4 * (error + spacing + dimension * PLACEMENT * strong_convexity * longest)


def add_exactly(sums: Floats, shape: tuple[int, ...]) -> Floats:
    """Return the sums of the columns, each rounded once."""
    return np.array([math.fsum(column) for column in sums.T.tolist()]).reshape(shape)


def partial_sums(rows: Any, coefficients: Floats) -> Floats:
    """Return the sums of rows times coefficients over groups of 64 rows, one flat vector per line."""
    whole = rows.shape[0] // _PART_ROWS * _PART_ROWS if isinstance(rows, np.ndarray) else 0
    columns = coefficients[:, None] if coefficients.ndim == 1 else coefficients
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


def scale_rows(values: Floats, factors: Floats) -> Floats:
    """Return every row of an array times its own factor."""
    return values * factors if values.ndim == 1 else values * factors[:, None]
