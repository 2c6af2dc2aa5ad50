r"""Tilted and adversarial objectives over rows, what one row can change about their minimisers, and those minimisers.

The loss of a row is :math:`l_i(w) = l(f_i (y_i x_i \cdot w - \sigma(w)))`, f = min(1, B/|x|), with the support
function sigma of an adversary's moves (`dpdescent.problems.penalties`; zero without one). A tilt tau > 0 weighs
large losses more (Li, Beirami, Sanjabi & Smith 2020):

.. math:: F_\tau(w) = \frac1\tau \log \frac1n \sum_i e^{\tau l_i(w)} + \frac\mu2 |w|^2, \qquad
          \nabla F_\tau = \sum_i v_i \nabla l_i + \mu w, \quad v_i \propto e^{\tau l_i}.

It tends to the mean loss for tau -> 0 and to the largest for tau -> infinity. n is the public number of places for
rows. A place without a row counts as a row of zeros, whose loss l(0) does not depend on w. Everything below is for
n F, a sum over rows, whose quadratic has eigenvalues of at least Lambda = n mu.

**Sensitivity.** Let w1 and w2 be the minimisers for neighbours over a ball B(0, R), possibly infinite. Minus the
gradient is normal to the ball there, and the gradient plus the normal cone is strongly monotone, so mu |w1 - w2| is
at most the difference of the two gradients at w2. The quadratic cancels. With L = lipschitz(l) (B + rho) every
gradient of a row is at most L long.

- Without a tilt the difference is at most L/n, or 2 L/n if the row is replaced.
- With a tilt, let p and p' be the weights of the row in question, g and g' its gradients, and m the tilted mean of
  the others: the difference is p g - p' g' + (p' - p) m, at most L (p + p' + |p - p'|) = 2 L max(p, p'). If losses
  at the minimisers lie in [a, A], a weight is at most C/(C + n - 1), C = exp(tau (A - a)). So Delta = (2L/mu) C/(C
  + n - 1) if the row is replaced.
- If it is removed, g' = 0 and the loss is l(0): at most L (2p - p') for p >= p', and L p' otherwise. With the
  others' sum S >= (n - 1) e^(tau a), 2u/(S + u) - v/(S + v) grows in u and, as a function of S, rises at most once
  and then falls: its maximum is at the positive root of (2u - v) S^2 + 2uv S = uv (u - 2v), or at the least S. For
  tau -> 0 this is L/n again.

The losses at points of B(0, R) lie in [a, A], from the margins that are possible there. Even without a ball,
minimisers obey |w| <= L/mu, since the quadratic balances gradients of length L, and mu/2 |w|^2 <= l(0), since losses
are not negative (`Risk.farthest`): Lowy & Razaviyayn 2021 assume such an R.

**Error of a computed gradient.** As in `dpdescent.minimisers.row_objectives`, with u = 2^-53, T = B|w| + sigma(w)
and three additions: a margin less sigma is off by at most 8u T; a loss by at most e = (2^-48 + K u) (max(L,
l(0)/4) + L T + L log K) with the slope L of the loss, so that the weights v_i are off by a relative 2 (tau e + 2u
min(tau range, 745) + 2^-48) (weights below 2^-1000 are lost, which hides less than the margin left here); and
sigma is taken at the point itself, not at the nearby one where margins are taken, which moves a gradient by at
most that distance times lipschitz r/s + (B + rho) rho (curvature + 2 tau lipschitz^2).

References
----------
Li, T., Beirami, A., Sanjabi, M. & Smith, V. (2020). Tilted empirical risk minimization. arXiv:2007.01162.
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.sparse import issparse

from ..arrays import Floats
from ..errors import InvalidParameter, UnsupportedLoss, require_nonnegative
from ..exact import FeatureGrid, exp, require_moderate
from ..problems import HuberisedHinge, Loss, Need, Support, require_needs
from ..relations import Norm, Relation, Sensitivity
from .certified import settle
from .risks import Risk
from .row_objectives import (
    EXPONENTIAL,
    FEW,
    MANY,
    PLACEMENT,
    UNIT,
    RowObjective,
    add_exactly,
    partial_sums,
    scale_rows,
    smooth_loss,
)

if TYPE_CHECKING:
    from .risks import Source

Margins = Callable[[Any, Floats], Floats]  # of rows, scaled by their factors

#: h, the half-width within which the kink of the hinge is rounded off.
ROUNDED_KINK = 2.0**-8

_LARGEST_EXPONENT = 150.0  # the product of four exponentials of it is still finite
_LARGEST_WEIGHT = 2.0**300


def robust_loss(loss: Loss, method: str, adversarial: bool) -> Loss:
    """Return what is minimised of a loss with a tilt or an adversary, or raise `UnsupportedLoss`.

    It is the loss or its substitute with bounded slope and curvature. The kink of the hinge is rounded off within h
    of it, from above and by at most h/4: a certificate needs a gradient, and the duality gap of the plain hinge is
    none of a hinge that is moved or tilted. The slope stays 1, so sensitivities are those of the hinge.
    """
    smooth = HuberisedHinge(ROUNDED_KINK) if loss.hinge else smooth_loss(loss, method)
    require_robust(smooth, adversarial)
    return smooth


def require_robust(loss: Loss, adversarial: bool) -> None:
    """Raise `UnsupportedLoss` unless the largest loss over an adversary's moves has the closed form."""
    if adversarial and not (loss.falling and math.isfinite(loss.smoothness)):
        raise UnsupportedLoss(
            f"an adversary needs a loss that falls in one margin, where the worst move is known, not "
            f"{type(loss).__name__}: use two classes and the logistic loss or a hinge"
        )


def loss_range(loss: Loss, reach: float) -> tuple[float, float]:
    """Return public bounds [a, A] of the loss of a row whose margins are at most ``reach`` long."""
    high = min(loss_at_zero(loss) + loss.lipschitz * reach, loss.largest(reach))
    return loss.least(reach) * (1 - 2.0**-40), high * FEW


def loss_at_zero(loss: Loss) -> float:
    """Return the largest loss of a row of zeros."""
    return loss.largest(0.0)


@dataclass(frozen=True)
class RobustRisk(Risk):
    """n times the tilted or mean loss of rows no longer than B, moved by an adversary."""

    loss: Loss  # smooth; for an adversary one that falls in the margin (`require_robust`)
    row_bound: float  # B
    places: int  # n
    tilt: float = 0.0  # tau; 0 is the mean
    support: Support | None = None  # of the adversary's moves
    #: R, a bound on the minimisers of all tables, which a tilt needs: it is minimised over B(0, R), or known to have
    #: its minimisers there.
    radius: float = math.inf

    def __post_init__(self) -> None:
        needs = {Need.CONVEX, Need.BOUNDED_SLOPE, Need.SMOOTH} | ({Need.LARGEST_LOSS} if self.tilt else set())
        require_needs("outpert", needs, self.loss)
        require_robust(self.loss, self.support is not None)
        require_nonnegative("tilt", self.tilt)

    def require_table(self, rows: int, shape: tuple[int, ...]) -> None:
        super().require_table(rows, shape)
        if self.places != rows:
            raise InvalidParameter(
                f"the risk is one of {self.places} places, and the table has {rows}: give that number"
            )
        if self.support is not None:
            radii = self.support.radii
            require_moderate("softness", self.support.softness)
            if radii.shape != shape or not (radii >= 0).all() or not np.isfinite(radii).all():
                raise InvalidParameter(f"an adversary has one finite radius for each of {shape} weights")

    @property
    def reach(self) -> float:
        """B + rho, the length of the longest row after the longest move."""
        return self.row_bound + (0.0 if self.support is None else self.support.reach)

    @property
    def clip(self) -> float:
        """L, an upper bound on the norm of a row's gradient."""
        return self.loss.lipschitz * self.reach * FEW

    def margin(self, norm: float) -> float:
        """Return an upper bound on the margins at weights of that norm, moves included."""
        return self.reach * norm + (0.0 if self.support is None else self.support.at_zero)

    def variation(self, rows: int, relation: Relation) -> float:
        if self.tilt == 0:
            return Sensitivity.of_clipped_sum(self.clip).under(relation)
        return self.clip * Sensitivity(Norm.L2, *self._tilted(rows)).under(relation)

    def _tilted(self, places: int) -> tuple[float, float]:
        """Return how much one row, removed or replaced, changes the gradient of n F, in units of L."""
        low, high = loss_range(self.loss, self.margin(self.radius)) if self.radius < math.inf else (0.0, math.inf)
        most, others = self.tilt * (high - low), places - 1
        if most > _LARGEST_EXPONENT:
            return 2.0 * places, 2.0 * places
        u, v = math.exp(most) * EXPONENTIAL, math.exp(self.tilt * (loss_at_zero(self.loss) - low))
        replaced = 2 * u / (u + others)
        # The positive root of (2u - v) S^2 + 2uv S - uv (u - 2v), if there is one.
        root = 0.0
        if u > 2 * v:
            root = (math.sqrt((u * v) ** 2 + (2 * u - v) * u * v * (u - 2 * v)) - u * v) / (2 * u - v)
        peak = max(root, float(others))
        removed = max(2 * u / (peak + u) - v / (peak + v) / EXPONENTIAL**2, v * EXPONENTIAL**2 / (others + v))
        return min(removed, replaced) * places * EXPONENTIAL, replaced * places * EXPONENTIAL

    def gradient_bound(self, rows: int) -> float:
        return rows * self.clip

    def value_bound(self, rows: int) -> float:
        start = loss_at_zero(self.loss)
        if self.support is not None:
            start += self.loss.lipschitz * self.support.at_zero
        return rows * start * FEW

    def smoothness(self, rows: int) -> float:
        per_row = (self.loss.smoothness + self.tilt * self.loss.lipschitz**2) * self.reach**2
        if self.support is not None:
            per_row += self.loss.lipschitz * self.support.steepness
        return rows * per_row * FEW

    def error(self, rows: int, dimension: int, norm: float, public: float) -> float:
        """Return an upper bound on the error of a gradient of n F computed at weights of that norm."""
        loss, reach, margin = self.loss, self.reach, self.margin(norm)
        outputs = loss.outputs
        start = max(1.0, loss_at_zero(loss) / (4 * loss.lipschitz))
        value = (2.0**-48 + outputs * UNIT) * loss.lipschitz * (start + margin + math.log(outputs))
        exponent = min(self.tilt * 2 * (loss.lipschitz * margin + 1), 745.0)
        weight = 2 * (self.tilt * value + 2 * UNIT * exponent + 2.0**-48) if self.tilt else 0.0
        slope = loss.lipschitz * (2.0**-46 + outputs * UNIT + weight)
        error = reach * (slope + 8 * UNIT * loss.smoothness * (1 + margin))
        if self.support is not None:
            moved = loss.smoothness + 2 * self.tilt * loss.lipschitz**2
            shift = loss.lipschitz * self.support.steepness + reach * self.support.reach * moved
            error += shift * dimension * PLACEMENT * norm
        return (rows * error + 4 * UNIT * public) * MANY

    def reachable_distance(
        self, rows: int, dimension: int, strong_convexity: float, largest_curvature: float, linear_norm: float
    ) -> float:
        # Four times the error of a gradient, and the gradient at the floating-point number nearest to the minimiser.
        longest = min(self.farthest(rows, strong_convexity, linear_norm), self.radius)
        error = self.error(rows, dimension, longest, self.gradient_bound(rows) + 2 * linear_norm)
        spacing = UNIT * (self.smoothness(rows) + largest_curvature) * longest
        return 4 * ((error + spacing) / strong_convexity + dimension * PLACEMENT * longest)

    def objective(
        self, source: Source, grid: FeatureGrid, squared_norms: Floats, quadratic: Floats, linear: Floats
    ) -> RobustObjective:
        return RobustObjective(source, grid, squared_norms, self, quadratic, linear)


class RobustObjective(RowObjective):
    """n F: the tilted or mean adversarial loss times n, plus w'Qw/2 + b'w with Q diagonal.

    All but the ``risk`` is as for `RowObjective`: **unreleased data**.
    """

    def __init__(
        self,
        source: Source,
        grid: FeatureGrid,
        squared_norms: Floats,
        risk: RobustRisk,
        quadratic: Floats,
        linear: Floats,
    ) -> None:
        super().__init__(source, grid, risk.loss, squared_norms, risk.row_bound, quadratic, linear)
        self.risk = risk

    @property
    def smoothness(self) -> float:
        return self.risk.smoothness(self.risk.places) + float(np.max(self.quadratic))

    def error_bound(self, rows: int, weights_norm: float, public: float | None = None) -> float:
        """Return an upper bound on the error of `accurate_gradient`."""
        if public is None:
            public = float(np.max(self.quadratic)) * weights_norm + float(np.linalg.norm(self.linear))
        return self.risk.error(self.risk.places, self._grid.dimension, weights_norm, public)

    def accurate_gradient(self, weights: Floats) -> Floats:
        _, residuals, shares = self._row_terms(weights, self._accurate_margins(weights))

        def parts(rows: Any, labels: Floats, factors: Floats, each: Floats) -> Floats:  # noqa: ARG001
            return partial_sums(rows, scale_rows(each, factors))

        weighted = scale_rows(residuals, shares)
        sums = self._source.map_rows(parts, self._factors, weighted)
        total = add_exactly(sums, weights.shape)
        if self.risk.support is not None:
            _, direction = self.risk.support.value_and_gradient(weights)
            total = total + math.fsum((np.abs(weighted) * self._factors).tolist()) * direction
        return total + (self.quadratic * weights + self.linear)

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        if not float(np.max(np.abs(weights), initial=0.0)) <= _LARGEST_WEIGHT:  # an overflow would tell of rows
            return math.inf, np.full_like(weights, math.inf)
        if self.risk.tilt == 0:
            value, gradient = self._sums(weights)
        else:
            values, residuals, shares = self._row_terms(weights, _plain_margins(weights))
            value, gradient = self._mean(values) * self.risk.places, self._gradient(weights, residuals, shares)
        value += float(np.sum(weights * (self.quadratic * weights / 2 + self.linear)))
        return value, gradient + self.quadratic * weights + self.linear

    def _sums(self, weights: Floats) -> tuple[float, Floats]:
        """Return the sum of the losses and its gradient from one pass over the rows."""
        support = self.risk.support
        shift, direction = (0.0, 0.0) if support is None else support.value_and_gradient(weights)

        def part(rows: Any, labels: Floats, factors: Floats) -> Floats:
            labels = self._loss.understood(labels)
            margins = scale_rows(rows @ weights, factors)
            if support is not None:
                margins -= labels * (shift * factors)
            residuals = self._loss.residuals(margins, labels)
            ends = [
                self._loss.values(margins, labels).sum(),
                np.abs(residuals * factors).sum() if support is not None else 0.0,
            ]
            return np.append(np.asarray(rows.T @ scale_rows(residuals, factors)).reshape(-1), ends)

        total = np.asarray(self._source.map_sum(part, self._factors), dtype=np.float64)
        return float(total[-2]), total[:-2].reshape(weights.shape) + total[-1] * direction

    def _mean(self, losses: Floats) -> float:
        """Return the tilted mean of the losses; empty places have the loss of a row of zeros."""
        places, tilt = self.risk.places, self.risk.tilt
        most, blanks = self._largest(losses)
        total = float(np.exp(tilt * (losses - most)).sum()) + blanks
        return most + math.log(total / places) / tilt

    def _largest(self, losses: Floats) -> tuple[float, float]:
        """Return the largest loss, and what empty places add to a sum of weights relative to it."""
        empty, blank = self.risk.places - losses.size, loss_at_zero(self._loss)
        most = max(float(np.max(losses, initial=-math.inf)), blank if empty else -math.inf)
        return most, empty * math.exp(self.risk.tilt * (blank - most)) if empty else 0.0

    def _row_terms(self, weights: Floats, margins_of: Margins) -> tuple[Floats, Floats, Floats]:
        """Return the loss of every row, its residuals, and n times its tilted weight."""
        shift = 0.0 if self.risk.support is None else self.risk.support.value_and_gradient(weights)[0]

        def terms(rows: Any, labels: Floats, factors: Floats) -> Floats:
            labels = self._loss.understood(labels)
            margins = margins_of(rows, factors)
            if shift:
                margins = margins - labels * (shift * factors)
            return np.column_stack([self._loss.values(margins, labels), self._loss.residuals(margins, labels)])

        both = self._source.map_rows(terms, self._factors)
        values, residuals = both[:, 0], both[:, 1] if self._loss.outputs == 1 else both[:, 1:]
        return values, residuals, self._shares(values)

    def _shares(self, losses: Floats) -> Floats:
        places, tilt = self.risk.places, self.risk.tilt
        if tilt == 0:
            return np.ones_like(losses)
        most, blanks = self._largest(losses)
        weights = exp(np.maximum(tilt * (losses - most), -745.0))
        total = math.fsum([*weights.tolist(), blanks])
        shares: Floats = weights * (places / total)
        return shares

    def _gradient(self, weights: Floats, residuals: Floats, shares: Floats) -> Floats:
        weighted = scale_rows(residuals, shares)

        def part(rows: Any, labels: Floats, factors: Floats, each: Floats) -> Floats:  # noqa: ARG001
            return np.asarray(rows.T @ scale_rows(each, factors))

        total = np.asarray(self._source.map_sum(part, self._factors, weighted), dtype=np.float64)
        if self.risk.support is not None:
            total = (
                total + (np.abs(weighted) * self._factors).sum() * self.risk.support.value_and_gradient(weights)[1]
            )
        return total

    def hessian(self, weights: Floats) -> Callable[[Floats], Floats]:
        """Return the map from a direction to the Hessian times it."""
        support, tilt, places = self.risk.support, self.risk.tilt, self.risk.places
        _, residuals, shares = self._row_terms(weights, _plain_margins(weights))
        weighted = scale_rows(residuals, shares)
        mean = self._gradient(weights, residuals, shares)
        slope = None if support is None else support.value_and_gradient(weights)
        shift = 0.0 if slope is None else slope[0]

        def product(direction: Floats) -> Floats:
            def coefficients(rows: Any, labels: Floats, factors: Floats, each: Floats, share: Floats) -> Floats:
                labels = self._loss.understood(labels)
                at, along = scale_rows(rows @ weights, factors), scale_rows(rows @ direction, factors)
                if slope is not None:
                    signs = labels * factors
                    at, along = at - signs * shift, along - signs * float(slope[1] @ direction)
                curved = scale_rows(self._loss.curvature_products(at, labels, along), share)
                inner = each * along if each.ndim == 1 else np.sum(each * along, axis=1)
                steep = tilt * scale_rows(each, inner * share)
                return np.asarray(curved + steep)

            each = self._source.map_rows(coefficients, self._factors, residuals, shares)
            total = self._signed_gradient(weights, each)
            if support is not None:
                diagonal, vector = support.curvature(weights)
                bend = diagonal * direction - vector * float(vector @ direction)
                total = total + (np.abs(weighted) * self._factors).sum() * bend
            if tilt:
                total = total - tilt / places * mean * float(np.sum(mean * direction))
            return total + self.quadratic * direction

        return product

    def _signed_gradient(self, weights: Floats, each: Floats) -> Floats:
        """Return the sum over rows of a coefficient times the derivative of the row's margin."""

        def part(rows: Any, labels: Floats, factors: Floats, own: Floats) -> Floats:
            total = np.asarray(rows.T @ scale_rows(own, factors)).reshape(-1)
            signed = float(np.sum(self._loss.understood(labels) * factors * own)) if own.ndim == 1 else 0.0
            return np.append(total, signed)

        summed = np.asarray(self._source.map_sum(part, self._factors, each), dtype=np.float64)
        total = summed[:-1].reshape(weights.shape)
        if self.risk.support is not None:
            total = total - summed[-1] * self.risk.support.value_and_gradient(weights)[1]
        return total

    def dense_hessian(self, weights: Floats) -> Floats:
        """Return the Hessian of a loss of one margin as a matrix."""
        support, tilt = self.risk.support, self.risk.tilt
        _, residuals, shares = self._row_terms(weights, _plain_margins(weights))
        weighted = residuals * shares
        shift, direction = (0.0, np.zeros_like(weights)) if support is None else support.value_and_gradient(weights)

        def part(rows: Any, labels: Floats, factors: Floats, each: Floats, share: Floats) -> Floats:
            labels = self._loss.understood(labels)
            margins = (rows @ weights - labels * shift) * factors
            scaled = share * (self._loss.curvatures(margins, labels) + tilt * each * each) * factors**2
            bent = rows.multiply(scaled[:, None]) if issparse(rows) else rows * scaled[:, None]
            product = rows.T @ bent
            square = np.asarray(product.toarray() if issparse(product) else product)
            cross = np.asarray(rows.T @ (scaled * labels)).reshape(-1)
            return np.vstack([square, cross, np.full_like(cross, scaled.sum())])

        both = np.asarray(self._source.map_sum(part, self._factors, residuals, shares), dtype=np.float64)
        square, cross, total = both[:-2], both[-2], float(both[-1, 0])
        if support is not None:
            mixed = np.outer(cross, direction)
            square = square - mixed - mixed.T + total * np.outer(direction, direction)
            diagonal, vector = support.curvature(weights)
            square = square + (np.abs(weighted) * self._factors).sum() * (
                np.diag(diagonal) - np.outer(vector, vector)
            )
        if tilt:
            mean = self._gradient(weights, residuals, shares)
            square = square - tilt / self.risk.places * np.outer(mean, mean)
        return square + np.diag(self.quadratic)

    def start(self) -> Floats:
        """Return a point near the minimiser for a box, whose many kinks are smoothed strongly at first, then less."""
        weights = np.zeros(self.shape)
        support = self.risk.support
        if support is None or support.ball:
            return weights
        softness, mu = 1.0, float(np.min(self.quadratic))
        while softness > support.softness:
            stage = copy(self)
            stage.risk = replace(self.risk, support=replace(support, softness=softness))
            accuracy = 2.0**-10 * self.risk.gradient_bound(self.risk.places)
            weights = settle(stage, mu, weights, accuracy, 0.0, first=softness == 1)
            softness /= 8
        return weights


def _plain_margins(weights: Floats) -> Margins:
    return lambda rows, factors: scale_rows(rows @ weights, factors)
