r"""Tilted and adversarial objectives over rows, what one row can change about their minimisers, and those minimisers.

The loss of a row is :math:`l_i(w) = l(y_i f_i x_i \cdot w - \sigma(w))`, f = min(1, B/|x|), with the support function
sigma of an adversary's moves (`dpdescent.problems.adversary`; zero without one). A tilt tau > 0 weighs large losses
more (Li, Beirami, Sanjabi & Smith 2020):

.. math:: F_\tau(w) = \frac1\tau \log \frac1n \sum_i e^{\tau l_i(w)} + \frac\mu2 |w|^2, \qquad
          \nabla F_\tau = \sum_i v_i \nabla l_i + \mu w, \quad v_i \propto e^{\tau l_i}.

It tends to the mean loss for tau -> 0 and to the largest for tau -> infinity. n is the public number of places for
rows. A place without a row counts as a row of zeros, whose loss l(0) does not depend on w. Everything below is for
n F, a sum over rows, whose quadratic has eigenvalues of at least Lambda = n mu.

**Sensitivity.** Let w1 and w2 be the minimisers for neighbours over a ball B(0, R), possibly infinite. Minus the
gradient is normal to the ball there, and the gradient plus the normal cone is strongly monotone, so mu |w1 - w2| is at
most the difference of the two gradients at w2. The quadratic cancels. With L = lipschitz(l) (B + rho) every gradient of
a row is at most L long.

- Without a tilt the difference is at most L/n, or 2 L/n if the row is replaced.
- With a tilt, let p and p' be the weights of the row in question, g and g' its gradients, and m the tilted mean of the
  others: the difference is p g - p' g' + (p' - p) m, at most L (p + p' + |p - p'|) = 2 L max(p, p'). If losses at the
  minimisers lie in [a, A], a weight is at most C/(C + n - 1), C = exp(tau (A - a)). So
  Delta = (2L/mu) C/(C + n - 1) if the row is replaced.
- If it is removed, g' = 0 and the loss is l(0): at most L (2p - p') for p >= p', and L p' otherwise. With the others'
  sum S >= (n - 1) e^(tau a), 2u/(S + u) - v/(S + v) grows in u and, as a function of S, rises at most once and then
  falls: its maximum is at the positive root of (2u - v) S^2 + 2uv S = uv (u - 2v), or at the least S. For tau -> 0
  this is L/n again.

The minimisers obey |w| <= R, |w| <= L/mu, since the quadratic balances gradients of length L, and mu/2 |w|^2 <= l(0),
since losses are not negative: that gives [a, A] (Lowy & Razaviyayn 2021 assume both), and Delta <= 2 max |w|.

**Error of a computed gradient.** As in `dpdescent.minimisers`, with u = 2^-53, T = B|w| + sigma(w) and three additions:
a margin less sigma is off by at most 8u T; a loss by at most e = (2^-48 + K u) lipschitz (1 + T + log K), so that the
weights v_i are off by a relative 2 (tau e + 2u min(tau range, 745) + 2^-48) (weights below 2^-1070 are lost, which
hides less than the margin left here); and sigma is taken at the point itself, not at the nearby one where margins are
taken, which moves a gradient by at most that distance times lipschitz r/s + (B + rho) rho (curvature + 2 tau
lipschitz^2).

References
----------
Li, T., Beirami, A., Sanjabi, M. & Smith, V. (2020). Tilted empirical risk minimization. arXiv:2007.01162.
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
More, J. J. & Sorensen, D. C. (1983). Computing a trust region step. SIAM J. Sci. Stat. Comput. 4.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse

from .errors import InvalidParameter
from .exact import FeatureGrid, exp
from .minimisers import RowObjective, _conjugate_gradients, _partial_sums, _quasi_newton, _scaled, _understood
from .problems import HuberisedHinge, Logistic, Loss
from .problems.adversary import Support
from .relations import Norm, Sensitivity
from .sources import Source

__all__ = ["RobustBounds", "RobustObjective", "certified_robust_minimiser", "loss_range", "require_robust"]

Floats = NDArray[np.float64]

_UNIT = 2.0**-53
_ROOM = 1 + 2.0**-30
_LARGEST_EXPONENT = 500.0
_DENSE = 512  # weights up to which a Hessian is a matrix


def require_robust(loss: Loss, adversarial: bool) -> None:
    """Raise `InvalidParameter` unless the largest loss over an adversary's moves has the closed form."""
    if adversarial and not isinstance(loss, Logistic | HuberisedHinge):
        raise InvalidParameter(
            f"an adversary needs a loss that falls in the margin and is smooth, not {type(loss).__name__}: use two "
            "classes and the logistic loss or the huberised hinge"
        )


def loss_range(loss: Loss, reach: float) -> tuple[float, float]:
    """Return public bounds [a, A] of the loss of a row whose margins are at most ``reach`` long."""
    at_zero = loss_at_zero(loss)
    low, high = max(0.0, at_zero - loss.lipschitz * reach), at_zero + loss.lipschitz * reach
    if loss.outputs == 1:
        corners = loss.values(np.array([reach, -reach, reach, -reach]), np.array([1.0, 1.0, -1.0, -1.0]))
        high = min(high, float(np.max(corners)))  # a convex loss is largest at a corner
        low = max(low, float(np.min(corners))) if isinstance(loss, Logistic | HuberisedHinge) else 0.0
    return low * (1 - 2.0**-40), high * (1 + 2.0**-40)


def loss_at_zero(loss: Loss) -> float:
    """Return the largest loss of a row of zeros."""
    margins = np.zeros(2) if loss.outputs == 1 else np.zeros((2, loss.outputs))
    return float(np.max(loss.values(margins, np.array([-1.0, 1.0]))))


@dataclass(frozen=True)
class RobustBounds:
    """The public constants of an objective.

    Parameters
    ----------
    loss : Loss
    row_bound : float
        B.
    places : int
        n.
    strong_convexity : float
        Lambda, at most the least eigenvalue of the quadratic of n F.
    tilt : float
        tau; 0 is the mean.
    support : Support, optional
        Of the adversary's moves.
    radius : float
        R: the minimiser is that over the ball B(0, R).
    """

    loss: Loss
    row_bound: float
    places: int
    strong_convexity: float
    tilt: float = 0.0
    support: Support | None = None
    radius: float = math.inf

    @property
    def reach(self) -> float:
        """B + rho, the length of the longest row after the longest move."""
        return self.row_bound + (0.0 if self.support is None else self.support.reach)

    @property
    def clip(self) -> float:
        """L, more than the longest gradient of a row."""
        return self.loss.lipschitz * self.reach * (1 + 2.0**-40)

    @property
    def longest(self) -> float:
        """A bound on the norm of the minimiser of every table."""
        mean = self.strong_convexity / self.places
        start = loss_at_zero(self.loss)
        if self.support is not None:
            start += self.loss.lipschitz * self.support.at_zero
        return min(self.radius, self.clip / mean, math.sqrt(2 * start / mean)) * (1 + 2.0**-40)

    @property
    def losses(self) -> tuple[float, float]:
        """Bounds [a, A] of a row's loss at a minimiser."""
        return loss_range(self.loss, self.margin(self.longest))

    def margin(self, norm: float) -> float:
        """Return more than the largest margin at weights of that norm, moves included."""
        return self.reach * norm + (0.0 if self.support is None else self.support.at_zero)

    @property
    def sensitivity(self) -> Sensitivity:
        """How far one row moves the minimiser."""
        removed, replaced = (1.0, 2.0) if self.tilt == 0 else self._tilted()
        unit, farthest = self.clip / self.strong_convexity * (1 + 2.0**-40), 2 * self.longest
        return Sensitivity(
            Norm.L2, min(removed * unit, farthest), min(max(replaced, removed) * unit, farthest)
        )

    def _tilted(self) -> tuple[float, float]:
        """Return n times the shares of a gradient of length L by which one row moves the mean gradient."""
        low, high = self.losses
        most, others = self.tilt * (high - low), self.places - 1
        if most > _LARGEST_EXPONENT:
            return 2.0 * self.places, 2.0 * self.places
        u, v = math.exp(most) * _ROOM, math.exp(self.tilt * (loss_at_zero(self.loss) - low))
        replaced = 2 * u / (u + others)
        # The positive root of (2u - v) S^2 + 2uv S - uv (u - 2v), if there is one.
        root = 0.0
        if u > 2 * v:
            root = (math.sqrt((u * v) ** 2 + (2 * u - v) * u * v * (u - 2 * v)) - u * v) / (2 * u - v)
        peak = max(root, float(others))
        removed = max(2 * u / (peak + u) - v / (peak + v) / _ROOM**2, v * _ROOM**2 / (others + v))
        return min(removed, replaced) * self.places * _ROOM, replaced * self.places * _ROOM

    @property
    def smoothness(self) -> float:
        """The smoothness of n F without its quadratic."""
        per_row = (self.loss.smoothness + self.tilt * self.loss.lipschitz**2) * self.reach**2
        if self.support is not None:
            per_row += self.loss.lipschitz * self.support.steepness
        return self.places * per_row

    def error(self, dimension: int, norm: float, public: float) -> float:
        """Return more than the error of a gradient of n F computed at weights of that norm."""
        loss, reach, margin = self.loss, self.reach, self.margin(norm)
        outputs = loss.outputs
        value = (2.0**-48 + outputs * _UNIT) * loss.lipschitz * (1 + margin + math.log(outputs))
        exponent = min(self.tilt * 2 * (loss.lipschitz * margin + 1), 745.0)
        weight = 2 * (self.tilt * value + 2 * _UNIT * exponent + 2.0**-48) if self.tilt else 0.0
        slope = loss.lipschitz * (2.0**-46 + outputs * _UNIT + weight)
        error = reach * (slope + 8 * _UNIT * loss.smoothness * (1 + margin))
        if self.support is not None:
            moved = loss.smoothness + 2 * self.tilt * loss.lipschitz**2
            shift = loss.lipschitz * self.support.steepness + reach * self.support.reach * moved
            error += shift * dimension * 2.0**-62 * norm
        return (self.places * error + 4 * _UNIT * public) * (1 + 2.0**-20)

    def tolerance(self, dimension: int, linear_norm: float = 0.0) -> float:
        """Return a public gradient norm to which the minimiser of every table can be certified.

        At least 2^-24 of what one row changes, and four times what rounding allows at the longest minimiser: the
        error of the gradient, and the gradient at the floating-point number nearest to the minimiser.
        """
        whole = self.places * self.clip
        error = self.error(dimension, self.longest, whole + 2 * linear_norm)
        spacing = _UNIT * (self.smoothness + whole / max(self.longest, 2.0**-100)) * self.longest
        placing = dimension * 2.0**-62 * self.strong_convexity * self.longest
        return max(4 * (error + spacing + placing), 2.0**-24 * self.sensitivity.zero_out * self.strong_convexity)


class RobustObjective(RowObjective):
    """n F: the tilted or mean adversarial loss times n, plus w'Qw/2 + b'w with Q diagonal.

    Parameters
    ----------
    source, grid, squared_norms, quadratic, linear
        As for `RowObjective`: **unreleased data**.
    bounds : RobustBounds
    """

    def __init__(
        self,
        source: Source,
        grid: FeatureGrid,
        squared_norms: Floats,
        bounds: RobustBounds,
        quadratic: Floats,
        linear: Floats,
    ) -> None:
        super().__init__(source, grid, bounds.loss, squared_norms, bounds.row_bound, quadratic, linear)
        self.bounds = bounds

    @property
    def smoothness(self) -> float:
        """The smoothness of the objective."""
        return self.bounds.smoothness + float(np.max(self.quadratic))

    def error_bound(self, rows: int, weights_norm: float, public: float | None = None) -> float:  # noqa: ARG002
        """Return more than the error of `accurate_gradient`."""
        if public is None:
            public = float(np.max(self.quadratic)) * weights_norm + float(np.linalg.norm(self.linear))
        return self.bounds.error(self._grid.dimension, weights_norm, public)

    def accurate_gradient(self, weights: Floats) -> Floats:
        """Return the gradient near the weights, with an error of at most `error_bound`."""
        high = self._grid.place_weights(weights)
        low = self._grid.place_weights(weights - high)
        _, residuals, shares = self._row_terms(
            weights, lambda rows: self._grid.margins(rows, high) + self._grid.margins(rows, low)
        )

        def parts(rows: Any, labels: Floats, factors: Floats, each: Floats) -> Floats:  # noqa: ARG001
            return _partial_sums(rows, _scaled(each, factors))

        weighted = _scaled(residuals, shares)
        sums = self._source.map_rows(parts, self._factors, weighted)
        total = np.array([math.fsum(column) for column in sums.T.tolist()]).reshape(weights.shape)
        if self.bounds.support is not None:
            _, direction = self.bounds.support.value_and_gradient(weights)
            total = total + math.fsum(np.abs(weighted).tolist()) * direction
        return total + (self.quadratic * weights + self.linear)

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        """Return the objective and its gradient as a solver needs them, without any bound on their error."""
        if self.bounds.tilt == 0:
            value, gradient = self._sums(weights)
        else:
            values, residuals, shares = self._row_terms(weights, lambda rows: rows @ weights)
            value, gradient = self._mean(values) * self.bounds.places, self._gradient(weights, residuals, shares)
        value += float(np.sum(weights * (self.quadratic * weights / 2 + self.linear)))
        return value, gradient + self.quadratic * weights + self.linear

    def _sums(self, weights: Floats) -> tuple[float, Floats]:
        """Return the sum of the losses and its gradient from one pass over the rows."""
        support = self.bounds.support
        shift, direction = (0.0, 0.0) if support is None else support.value_and_gradient(weights)

        def part(rows: Any, labels: Floats, factors: Floats) -> Floats:
            labels = _understood(self._loss, labels)
            margins = _scaled(rows @ weights, factors)
            if support is not None:
                margins -= labels * shift
            residuals = self._loss.residuals(margins, labels)
            ends = [self._loss.values(margins, labels).sum(), np.abs(residuals).sum()]
            return np.append(np.asarray(rows.T @ _scaled(residuals, factors)).reshape(-1), ends)

        total = np.asarray(self._source.map_sum(part, self._factors), dtype=np.float64)  # type: ignore[arg-type]
        return float(total[-2]), total[:-2].reshape(weights.shape) + total[-1] * direction

    def _mean(self, losses: Floats) -> float:
        """Return the tilted mean of the losses; empty places have the loss of a row of zeros."""
        places, tilt = self.bounds.places, self.bounds.tilt
        empty, blank = places - losses.size, loss_at_zero(self._loss)
        most = max(float(np.max(losses, initial=-math.inf)), blank if empty else -math.inf)
        total = float(np.exp(tilt * (losses - most)).sum()) + empty * math.exp(tilt * (blank - most))
        return most + math.log(total / places) / tilt

    def _row_terms(self, weights: Floats, margins_of: Callable[[Any], Floats]) -> tuple[Floats, Floats, Floats]:
        """Return the loss of every row, its residuals, and n times its tilted weight."""
        shift = 0.0 if self.bounds.support is None else self.bounds.support.value_and_gradient(weights)[0]

        def terms(rows: Any, labels: Floats, factors: Floats) -> Floats:
            labels = _understood(self._loss, labels)
            margins = _scaled(margins_of(rows), factors)
            if shift:
                margins = margins - labels * shift
            return np.column_stack([self._loss.values(margins, labels), self._loss.residuals(margins, labels)])

        both = self._source.map_rows(terms, self._factors)
        values, residuals = both[:, 0], both[:, 1] if self._loss.outputs == 1 else both[:, 1:]
        return values, residuals, self._shares(values)

    def _shares(self, losses: Floats) -> Floats:
        places, tilt = self.bounds.places, self.bounds.tilt
        if tilt == 0:
            return np.ones_like(losses)
        empty, blank = places - losses.size, loss_at_zero(self._loss)
        most = max(float(np.max(losses, initial=-math.inf)), blank if empty else -math.inf)
        weights = exp(np.maximum(tilt * (losses - most), -745.0))
        total = math.fsum([*weights.tolist(), empty * math.exp(tilt * (blank - most))])
        shares: Floats = weights * (places / total)
        return shares

    def _gradient(self, weights: Floats, residuals: Floats, shares: Floats) -> Floats:
        weighted = _scaled(residuals, shares)

        def part(rows: Any, labels: Floats, factors: Floats, each: Floats) -> Floats:  # noqa: ARG001
            return np.asarray(rows.T @ _scaled(each, factors))

        total = np.asarray(self._source.map_sum(part, self._factors, weighted), dtype=np.float64)  # type: ignore[arg-type]
        if self.bounds.support is not None:
            total = total + np.abs(weighted).sum() * self.bounds.support.value_and_gradient(weights)[1]
        return total

    def hessian(self, weights: Floats) -> Callable[[Floats], Floats]:
        """Return the map from a direction to the Hessian times it."""
        support, tilt, places = self.bounds.support, self.bounds.tilt, self.bounds.places
        _, residuals, shares = self._row_terms(weights, lambda rows: rows @ weights)
        weighted = _scaled(residuals, shares)
        mean = self._gradient(weights, residuals, shares)
        slope = None if support is None else support.value_and_gradient(weights)
        shift = 0.0 if slope is None else slope[0]

        def product(direction: Floats) -> Floats:
            def coefficients(rows: Any, labels: Floats, factors: Floats, each: Floats, share: Floats) -> Floats:
                labels = _understood(self._loss, labels)
                at, along = _scaled(rows @ weights, factors), _scaled(rows @ direction, factors)
                if slope is not None:
                    at, along = at - labels * shift, along - labels * float(slope[1] @ direction)
                curved = _scaled(self._loss.curvature_products(at, labels, along), share)
                inner = each * along if each.ndim == 1 else np.sum(each * along, axis=1)
                steep = tilt * _scaled(each, inner * share)
                return np.asarray(curved + steep)

            each = self._source.map_rows(coefficients, self._factors, residuals, shares)
            total = self._signed_gradient(weights, each)
            if support is not None:
                diagonal, vector = support.curvature(weights)
                bend = diagonal * direction - vector * float(vector @ direction)
                total = total + np.abs(weighted).sum() * bend
            if tilt:
                total = total - tilt / places * mean * float(np.sum(mean * direction))
            return total + self.quadratic * direction

        return product

    def _signed_gradient(self, weights: Floats, each: Floats) -> Floats:
        """Return the sum over rows of a coefficient times the derivative of the row's margin."""

        def part(rows: Any, labels: Floats, factors: Floats, own: Floats) -> Floats:
            total = np.asarray(rows.T @ _scaled(own, factors)).reshape(-1)
            signed = float(np.sum(_understood(self._loss, labels) * own)) if own.ndim == 1 else 0.0
            return np.append(total, signed)

        summed = np.asarray(self._source.map_sum(part, self._factors, each), dtype=np.float64)  # type: ignore[arg-type]
        total = summed[:-1].reshape(weights.shape)
        if self.bounds.support is not None:
            total = total - summed[-1] * self.bounds.support.value_and_gradient(weights)[1]
        return total

    def dense_hessian(self, weights: Floats) -> Floats:
        """Return the Hessian of a loss of one margin as a matrix."""
        support, tilt = self.bounds.support, self.bounds.tilt
        _, residuals, shares = self._row_terms(weights, lambda rows: rows @ weights)
        weighted = residuals * shares
        shift, direction = (0.0, np.zeros_like(weights)) if support is None else support.value_and_gradient(weights)

        def part(rows: Any, labels: Floats, factors: Floats, each: Floats, share: Floats) -> Floats:
            labels = _understood(self._loss, labels)
            margins = (rows @ weights) * factors - labels * shift
            curvatures = share * (self._loss.curvatures(margins, labels) + tilt * each * each)
            scaled = curvatures * factors**2
            bent = rows.multiply(scaled[:, None]) if issparse(rows) else rows * scaled[:, None]
            product = rows.T @ bent
            square = np.asarray(product.toarray() if issparse(product) else product)
            cross = np.asarray(rows.T @ (curvatures * factors * labels)).reshape(-1)
            return np.vstack([square, cross, np.full_like(cross, curvatures.sum())])

        both = np.asarray(self._source.map_sum(part, self._factors, residuals, shares), dtype=np.float64)  # type: ignore[arg-type]
        square, cross, total = both[:-2], both[-2], float(both[-1, 0])
        if support is not None:
            mixed = np.outer(cross, direction)
            square = square - mixed - mixed.T + total * np.outer(direction, direction)
            diagonal, vector = support.curvature(weights)
            square = square + np.abs(weighted).sum() * (np.diag(diagonal) - np.outer(vector, vector))
        if tilt:
            mean = self._gradient(weights, residuals, shares)
            square = square - tilt / self.bounds.places * np.outer(mean, mean)
        return square + np.diag(self.quadratic)

    def solve(self, weights: Floats, target: Floats) -> Floats:
        """Return the inverse Hessian times the target; a gradient step where it is singular to the last digit."""
        if self.linear.ndim > 1 or weights.size > _DENSE:
            return _conjugate_gradients(self.hessian(weights), target, 1e-3)
        try:
            return np.asarray(np.linalg.solve(self.dense_hessian(weights), target), dtype=np.float64)
        except np.linalg.LinAlgError:  # an error would speak of rows
            return target / self.smoothness

    def altered(self, quadratic: Floats) -> RobustObjective:
        """Return the same objective with another quadratic."""
        other = copy(self)
        other.quadratic = quadratic
        return other

    def softened(self, softness: float) -> RobustObjective:
        """Return the same objective with another softness of the adversary's norm."""
        other = copy(self)
        support = self.bounds.support
        if support is not None:
            other.bounds = replace(self.bounds, support=replace(support, softness=softness))
        return other


def certified_robust_minimiser(objective: RobustObjective, tolerance: float) -> Floats:
    """Return a point within ``tolerance`` of the minimiser in the Euclidean norm, rounding errors included.

    ``tolerance`` is public and at least `RobustBounds.tolerance` divided by the strong convexity, so that it can be
    met for every table. A solver that misses is followed by another, and the last one contracts for every table.
    There is no message and no failure.

    **Certificate** Let t >= 0 be the multiplier of the ball, 0 inside. With a point w* on the sphere, at a distance of
    e = ||w| - R| from w, grad F(w*) + t w* is a gradient plus a normal of the ball, at most
    |grad F(w) + t w| + (beta + t) e long, so that w is within that over mu, plus e, of the minimiser.
    """
    bounds = objective.bounds
    mu, radius = bounds.strong_convexity, bounds.radius

    def excess(weights: Floats, multiplier: float) -> float:
        norm = float(np.linalg.norm(weights))
        away = abs(norm - radius) + 2.0**-50 * radius if multiplier > 0 else 0.0
        leaning = objective.accurate_gradient(weights) + multiplier * weights
        size = float(np.linalg.norm(leaning)) * (1 + 2.0**-20) + (objective.smoothness + multiplier) * away
        public = float(np.linalg.norm(objective.quadratic * weights) + np.linalg.norm(objective.linear))
        size += objective.error_bound(objective.rows, norm, public + multiplier * norm)
        if multiplier == 0 and norm > radius:
            return math.inf
        return size / mu + away + objective.placement_error(norm) - tolerance

    weights, multiplier, accuracy, accurate = _start(objective), 0.0, mu * tolerance / 4, False
    while True:
        leaning = objective.altered(objective.quadratic + multiplier)
        weights = _settled(leaning, weights, accuracy, accurate=accurate)
        norm = float(np.linalg.norm(weights))
        if excess(weights, multiplier) <= 0:
            return weights
        if norm > radius or multiplier > 0:
            # A Newton step for 1/|w(t)| = 1/R (More & Sorensen 1983), which never overshoots.
            slope = float(np.sum(weights * leaning.solve(weights, weights)))
            multiplier = max(multiplier + (norm / radius - 1) * norm**2 / max(slope, 1e-300), 0.0)
        else:
            accurate = True
        accuracy = max(accuracy / 4, mu * tolerance * 2.0**-8)


def _start(objective: RobustObjective) -> Floats:
    """Return a point near the minimiser; the norm behind a box is softened much at first and then less and less."""
    support = objective.bounds.support
    if support is None or support.ball:
        return _quasi_newton(objective)
    softness = 1.0
    weights = _quasi_newton(objective.softened(softness))
    while softness > 8 * support.softness:
        softness /= 8
        stage = objective.softened(softness)
        weights = _settled(stage, weights, 2.0**-10 * stage.bounds.clip * stage.bounds.places, 8)
    return weights


def _settled(
    objective: RobustObjective, weights: Floats, accuracy: float, steps: int = 50, *, accurate: bool = False
) -> Floats:
    """Return a point with a gradient of at most about ``accuracy``, by Newton's method and accelerated steps."""

    def measured(point: Floats) -> tuple[float, Floats]:
        value, gradient = objective.value_and_gradient(point)
        return value, objective.accurate_gradient(point) if accurate else gradient

    value, gradient = measured(weights)
    for _ in range(steps):
        size = float(np.linalg.norm(gradient))
        if size <= accuracy:
            break
        direction = objective.solve(weights, gradient)
        decrease, step = float(np.sum(gradient * direction)), 1.0
        while step > 2.0**-24:
            candidate = weights - step * direction
            reached, slope = measured(candidate)
            if reached <= value - 1e-4 * step * decrease or float(np.linalg.norm(slope)) <= 0.5 * size:
                break
            step /= 2
        else:
            candidate = _accelerated(objective, weights, 200)
            reached, slope = measured(candidate)
        weights, value, gradient = candidate, reached, slope
    return weights


def _accelerated(objective: RobustObjective, weights: Floats, steps: int) -> Floats:
    """Return the point after some steps of Nesterov's method, which contracts for every table."""
    root = math.sqrt(objective.bounds.strong_convexity / objective.smoothness)
    momentum, previous = (1 - root) / (1 + root), weights
    for _ in range(steps):
        ahead = weights + momentum * (weights - previous)
        previous, weights = weights, ahead - objective.value_and_gradient(ahead)[1] / objective.smoothness
    return weights
