r"""Standard errors of sampling and privacy together, from a noisy gradient, Hessian and covariance of gradients.

Let :math:`\bar u` be a released point, :math:`\bar g` a released gradient there with noise of deviation
:math:`\sigma_g`, H and V the matrices of `dpdescent.queries.sandwich` with symmetric noise of deviations
:math:`\sigma_H` and :math:`\sigma_V` on the diagonal, in k coordinates. One step of Newton, :math:`-\delta` with
:math:`\delta = H^{-1} \bar g`, leads to the population's u* but for errors :math:`H^{-1} (g^* + e + E \delta)`, where
g* is the mean gradient of the rows at u*, e the noise of the gradient and E that of H. So the covariance is

.. math:: S = H^{-1} (V/n + \sigma_g^2 I + X + B) H^{-1}, \quad
          B = \tfrac12 \sigma_H^2 (1 - \rho) \big[(|\delta|^2 + \mathrm{tr} A) I + \delta \delta' + A\big], \quad
          A = \sigma_g^2 H^{-2},

X being the second moment of what clipping cuts off from a gradient. If the Hessian was measured in stretched
coordinates, B H B, all of this holds there for :math:`B^{-1} \delta` and :math:`B \bar g`.

**Shrinking.** A noisy matrix is drawn towards a simple one in the share in which noise explains their distance:
:math:`\rho = \min(1, \sigma^2 k(k+1)/2 / |H - H_0|_F^2)`. For H it is that of normal coordinates with the released
mean curvature and mean squares (`ExpectedLoss`). For V it is phi H, :math:`\phi = \mathrm{tr}(VH)/\mathrm{tr}(HH)`,
the covariance of a well specified model. A distance that noise explains by chance does not prove that H is H0: the
rho of the errors has :math:`|H - H_0|_F^2` larger by a standard deviation of the squared norm of noise.

**Curvature along a step.** The step is taken as far as it takes in the loss of normal coordinates, whose curvature
changes: to :math:`\hat u` with :math:`G(\hat u) = G(\bar u) - G'(\bar u) \delta`, G being its gradient. H and V are
carried along by the same ratio of Hessians. Half of the way between the end of the plain step and :math:`\hat u` is
added to the error. Where that equation has no solution, half the length of the step times the step is added instead.

**Hidden directions.** Eigenvalues of H that noise hides, below half the edge of its spectrum, are raised to that.
Also hidden are directions along which H0 is below half of what is usual, so that noise of the whitening hides them,
and H as it was released is within two deviations of its noise: what they owe to H0 proves nothing. The estimate does
not move along them. How far it may be from u* there is part of the errors: the released gradient over a fifth of the
largest curvature that may be there, which is two deviations above the released one. What owes most of its variance to
this is not resolved.

**Degrees of freedom.** Noise in V gives the variance of a contrast m the deviation
:math:`\tau = \sigma_V (1 - \rho_V) |m|^2/n`, beside that of phi, and a variance with an error has the quantiles of
Student's t with :math:`\nu = 2 s^4/\tau^2` degrees of freedom (Satterthwaite 1946).

**Privacy** Everything here is computed from released numbers and the law of their noise.

References
----------
Avella-Medina, M., Bradshaw, C. & Loh, P.-L. (2023). Differentially private inference via noisy optimization. Annals
of Statistics 51(5).
Satterthwaite, F. (1946). An approximate distribution of estimates of variance components. Biometrics Bulletin 2(6).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.linalg import null_space
from scipy.stats import norm

from ..arrays import Floats
from ..problems import Huber, Loss, Squared

_LEAST_EIGENVALUE = 0.02  # of the median one: with less, a direction is not resolved
_ALIASED = 4.0  # standard deviations of noise below which a direction passes for one that never varies
_SEEN = 2.0  # standard deviations of noise that a curvature may be larger by, or that show it
_LEAST_SHARE = 0.2  # of the largest curvature that a hidden direction may have
_LEAST_FREEDOM = 2.0  # degrees of freedom
_SCORES = np.linspace(-8, 8, 1025)  # standard normal scores, and their weights
_WEIGHTS = norm.pdf(_SCORES) / norm.pdf(_SCORES).sum()
_LEAST_SQUARE = 0.01  # of a coordinate
_FLAT = 2.0**-10  # share of a curvature that is left where a step is not believed
_LONG_STEP = 0.2  # in units of scores
_FARTHEST = 32.0  # times as far as a point and a step, where nothing is looked for
_STRETCHED = 8.0  # times, at most
_ITERATIONS = 50  # of Newton's method, each at most half as long as the point


@dataclass(frozen=True, eq=False)
class ExpectedLoss:
    """The mean loss of rows whose k - 1 coordinates are normal with known mean squares, times a factor.

    A score t = z . u then has the mean u_k and the variance s^2, the sum of squares_j u_j^2. By Stein's lemma the
    gradient along the coordinate j is squares_j u_j E l''(t); along the constant it is E l'(t). Labels must not
    matter for l''. For losses that are not curved, or by labels only, it is a quadratic function.
    """

    loss: Loss
    squares: Floats
    factor: float

    @classmethod
    def of(cls, loss: Loss, curvature: float, squares: Floats, point: Floats) -> ExpectedLoss:
        """Return the loss with this mean curvature at a point; the last of the ``squares`` is of the constant."""
        squares = np.maximum(squares, _LEAST_SQUARE)
        mean = cls(loss, squares, 1.0)._moments(point)[1]
        return cls(loss, squares, curvature / mean if 0 < mean < math.inf else curvature)

    @property
    def curved(self) -> bool:
        """Whether the curvature changes with the score."""
        return not isinstance(self.loss, Squared | Huber)

    def _moments(self, point: Floats) -> tuple[float, float, float, float, float]:
        """Return E l', E l'', E l'' x and E l'' x^2 for t = u_k + s x, and s."""
        spread = math.sqrt(float(np.sum(self.squares[:-1] * point[:-1] ** 2)))
        if not self.curved:
            return float(point[-1]), 1.0, 0.0, 1.0, spread
        scores, labels = point[-1] + spread * _SCORES, np.ones(_SCORES.size)
        curved = _WEIGHTS * self.loss.curvatures(scores, labels)
        slope = float(np.sum(_WEIGHTS * self.loss.residuals(scores, labels)))
        return slope, float(curved.sum()), float(curved @ _SCORES), float(curved @ _SCORES**2), spread

    def gradient(self, point: Floats) -> Floats:
        slope, mean = self._moments(point)[:2]
        return self.factor * np.append(self.squares[:-1] * point[:-1] * mean, slope)

    def hessian(self, point: Floats) -> Floats:
        scales = np.sqrt(self.squares)
        return self.factor * scales[:, None] * self._core(point) * scales

    def _core(self, point: Floats) -> Floats:
        """Return the Hessian in coordinates of mean square 1."""
        _, mean, first, second, spread = self._moments(point)
        core = mean * np.eye(point.size)
        if spread > 0:
            direction = np.sqrt(self.squares[:-1]) * point[:-1] / spread
            core[:-1, :-1] += (second - mean) * np.outer(direction, direction)
            core[:-1, -1] = core[-1, :-1] = first * direction
        return core

    def stretching(self, point: Floats) -> Floats:
        """Return B, by which coordinates of mean square 1 have the same curvature in all directions."""
        values, vectors = np.linalg.eigh(self._core(point))
        longest = max(float(np.median(values)), 1e-300)
        values = np.sqrt(longest / np.clip(values, longest / _STRETCHED**2, longest * _STRETCHED**2))
        stretching: Floats = (vectors * values) @ vectors.T
        return stretching

    def after(self, point: Floats, step: Floats) -> Floats | None:
        """Return where the gradient is that of ``point`` less the Hessian there times ``step``; None if nowhere."""
        wanted = self.gradient(point) - self.hessian(point) @ step
        scale = float(np.linalg.norm(self.hessian(point) @ step))
        at, farthest = point.copy(), _FARTHEST * (1 + float(np.linalg.norm(point)) + float(np.linalg.norm(step)))
        for _ in range(_ITERATIONS):
            apart = self.gradient(at) - wanted
            if not (np.isfinite(apart).all() and float(np.linalg.norm(at)) < farthest):
                return None
            if float(np.linalg.norm(apart)) <= 1e-9 * scale:
                return at
            move = np.linalg.lstsq(self.hessian(at), apart, rcond=None)[0]
            longest = max(1.0, float(np.linalg.norm(at))) / 2
            at = at - move * min(1.0, longest / max(float(np.linalg.norm(move)), 1e-300))
        return None


@dataclass(frozen=True, eq=False)
class SandwichParts:
    """What was released, all of it in the same k coordinates u; weights are ``to_weights`` times u."""

    point: Floats
    gradient: Floats
    hessian: Floats  # B H B
    covariance: Floats
    #: Deviations of the noise of each coordinate, and of diagonal entries.
    gradient_noise: float
    hessian_noise: float
    covariance_noise: float
    expected: ExpectedLoss  # H0 is its Hessian at the point
    rows: float  # n, the public number of rows
    to_weights: Floats
    bias: Floats | None = None  # X; None where nothing is clipped
    stretched: Floats | None = None  # B; None for the coordinates as they are

    @property
    def stretching(self) -> Floats:
        return np.eye(self.point.size) if self.stretched is None else self.stretched

    def without_change(self, direction: Floats) -> Floats | None:
        """Return a direction of the weights in stretched coordinates, of length 1; None if scores vary along it.

        No score changes along the direction from the constant to all levels of a column. Whether the columns are all
        levels is judged by the released Hessian.
        """
        found = np.linalg.lstsq(self.to_weights @ self.stretching, direction, rcond=None)[0]
        within: Floats = np.asarray(found, np.float64) / max(float(np.linalg.norm(found)), 1e-300)
        return within if float(within @ self.hessian @ within) <= _ALIASED * self.hessian_noise else None


@dataclass(frozen=True, eq=False)
class Sandwich:
    """An estimate and the law of its error."""

    estimate: Floats  # (k,): in the coordinates of the parts
    weights: Floats
    influence: Floats  # (d, k): by which an error of the mean gradient moves the weights
    #: (k, k): covariance of that error: V/n, carried to the estimate, and what all noise does.
    sampling: Floats
    privacy: Floats
    hessian: Floats  # (k, k): H, shrunk, with raised eigenvalues and carried as V is
    #: (k, f): errors of the mean gradient that stand for how far the estimate may be along hidden directions.
    unresolved: Floats
    carried: Floats  # (k, k): by which V was carried
    variance_noise: float  # sigma_V (1 - rho_V)/n
    scale_noise: float  # deviation of phi where V is a multiple of H, times rho_V/n
    aliased: tuple[bool, ...]  # which of the directions along which no score should change were left out
    #: rho and rho_V.
    shrunk_hessian: float
    shrunk_covariance: float
    edge: float  # below which noise hides an eigenvalue of H

    @classmethod
    def of(cls, parts: SandwichParts, directions: Sequence[Floats] = ()) -> Sandwich:
        """Return the estimate from what was released; no score should change along some directions of the weights."""
        within = [parts.without_change(each) for each in directions]
        aliases = [each for each in within if each is not None]
        curved = _Curved.of(parts, null_space(np.array(aliases)) if aliases else np.eye(parts.point.size))
        hessian, inverse = curved.hessian, curved.inverse
        size = float(np.sum(hessian * hessian))
        phi_noise = parts.covariance_noise / math.sqrt(size)
        phi = max(float(np.sum(parts.covariance * hessian)) / size, phi_noise)
        covariance, rho_v = shrink_towards(parts.covariance, phi * hessian, parts.covariance_noise)
        step = inverse @ parts.gradient
        pulled = curved.hidden.T @ parts.gradient
        step -= curved.hidden @ (pulled / curved.raised)  # noise alone would decide how far to go there
        end, jacobian, half, error = _carry(parts, step, float(np.trace(inverse @ inverse)))
        back = hessian @ np.linalg.inv(jacobian)  # from an error of the estimate to one of the mean gradient
        carried = back @ half @ inverse
        unseen = np.hypot(parts.gradient_noise * np.linalg.norm(curved.hidden, axis=0), pulled) / curved.least
        hidden = back @ (curved.hidden * unseen)
        noise = curved.noise(parts, step) + parts.gradient_noise**2 * np.eye(len(hessian))
        noise += hidden @ hidden.T + np.outer(back @ error, back @ error)
        return cls(
            end,
            parts.to_weights @ end,
            parts.to_weights @ jacobian @ inverse,
            carried @ _positive(covariance) @ carried.T / parts.rows,
            noise if parts.bias is None else noise + parts.bias,
            carried @ hessian @ carried.T,
            hidden,
            carried,
            parts.covariance_noise * (1 - rho_v) / parts.rows,
            phi_noise * rho_v / parts.rows,
            tuple(each is not None for each in within),
            curved.rho,
            rho_v,
            curved.edge,
        )

    @property
    def covariance(self) -> Floats:
        """The covariance of the weights, sampling and privacy together."""
        both: Floats = self.influence @ (self.sampling + self.privacy) @ self.influence.T
        return both

    def freedom(self, variances: Floats, directions: Floats) -> Floats:
        """Return degrees of freedom of ``variances`` of contrasts m, the rows of ``directions`` = c' influence."""
        lengths = np.sum((directions @ self.carried) ** 2, axis=1)
        curved = np.einsum("ij,jk,ik->i", directions, self.hessian, directions)
        error = np.hypot(self.variance_noise * lengths, self.scale_noise * curved)
        found: Floats = np.maximum(2 * variances**2 / np.maximum(error, 1e-150) ** 2, _LEAST_FREEDOM)
        return found

    def unresolved_share(self, directions: Floats) -> Floats:
        """Return the share of the variance of each contrast m that is due to directions which noise hides."""
        hidden = np.sum((directions @ self.unresolved) ** 2, axis=1)
        whole = np.einsum("ij,jk,ik->i", directions, self.sampling + self.privacy, directions)
        shares: Floats = hidden / np.maximum(whole, 1e-300)
        return shares


@dataclass(frozen=True, eq=False)
class _Curved:
    """A shrunk Hessian with raised eigenvalues, in the coordinates of the parts.

    ``hidden`` has the directions w that were ``raised`` to some values, shape (k, f); a step along w is w w'g/value.
    ``least`` has the least curvatures that they may have. ``inverse`` leaves out directions along which nothing
    changes.
    """

    hessian: Floats
    inverse: Floats
    hidden: Floats
    raised: Floats
    least: Floats
    back: Floats
    rho: float
    unsure: float
    edge: float

    @classmethod
    def of(cls, parts: SandwichParts, basis: Floats) -> _Curved:
        """Return it for the stretched coordinates that ``basis`` spans."""
        b, k = parts.stretching, basis.shape[1]
        within = b @ basis
        expected = within.T @ parts.expected.hessian(parts.point) @ within
        raw = basis.T @ parts.hessian @ basis
        hessian, rho = shrink_towards(raw, expected, parts.hessian_noise)
        unsure = 1 - least_share(raw, expected, parts.hessian_noise)
        edge = parts.hessian_noise * math.sqrt(2 * k * unsure)
        hessian, values, vectors = _raised(hessian, edge, raw, expected, parts.hessian_noise)
        inverse, back = _inverse(hessian), _inverse(b)
        seen = np.maximum(np.einsum("ij,ik,kj->j", vectors, raw, vectors), 0.0) + _SEEN * parts.hessian_noise
        least = np.maximum(_LEAST_SHARE * seen, _LEAST_EIGENVALUE * float(np.median(np.linalg.eigvalsh(hessian))))
        return cls(
            back @ basis @ hessian @ basis.T @ back,
            within @ inverse @ within.T,
            within @ vectors,
            values,
            least,
            back,
            rho,
            unsure,
            edge,
        )

    def noise(self, parts: SandwichParts, step: Floats) -> Floats:
        """Return the covariance of what errors of the Hessian add to the mean gradient, if a step is taken by it."""
        step, spread = self.back @ step, parts.gradient_noise * self.back @ self.inverse
        spread = spread @ spread.T
        both = (float(step @ step) + float(np.trace(spread))) * np.eye(step.size) + np.outer(step, step) + spread
        noise: Floats = self.back @ (0.5 * parts.hessian_noise**2 * self.unsure * both) @ self.back
        return noise


def _carry(parts: SandwichParts, step: Floats, noise: float) -> tuple[Floats, Floats, Floats, Floats]:
    """Return the estimate, how errors of a step and half of them are carried to it, and an error of its own."""
    expected, unit = parts.expected, np.eye(step.size)
    plain = parts.point - step
    end = expected.after(parts.point, step) if expected.curved else None
    before, after = (expected.hessian(each) for each in (parts.point, plain if end is None else end))
    if end is None or np.linalg.eigvalsh(after)[0] <= _FLAT * np.linalg.eigvalsh(before)[0]:
        excess = float(step @ step) - parts.gradient_noise**2 * noise
        bent = not isinstance(expected.loss, Squared) and excess > _LONG_STEP**2
        return plain, unit, unit, step * (math.sqrt(excess) / 2 if bent else 0.0)
    inverse = _inverse(after)
    return end, inverse @ before, _root(inverse) @ _root(before), (end - plain) / 2


def shrink_towards(matrix: Floats, target: Floats, deviation: float) -> tuple[Floats, float]:
    """Return a noisy symmetric matrix drawn towards another one, and the share of that one in it.

    The squared Frobenius norm of the noise is k(k + 1)/2 times the variance of a diagonal entry on average.
    """
    k = len(matrix)
    distance = float(np.sum((matrix - target) ** 2))
    share = 1.0 if distance == 0 else min(1.0, deviation**2 * k * (k + 1) / 2 / distance)
    return (1 - share) * matrix + share * target, share


def least_share(matrix: Floats, target: Floats, deviation: float) -> float:
    """Return the share if the distance were larger by what one standard deviation of its noise hides.

    The squared norm of noise of K = k(k + 1)/2 numbers has a deviation of sqrt(2 K) of their variance. The noise of
    the entries beside the diagonal counts twice and is half as large.
    """
    k = len(matrix)
    entries = k * (k + 1) / 2
    noise = deviation**2 * entries
    distance = max(float(np.sum((matrix - target) ** 2)), noise) + deviation**2 * math.sqrt(2 * entries)
    return min(noise / max(distance, 1e-300), 1.0)


def _raised(
    matrix: Floats, edge: float, raw: Floats, expected: Floats, deviation: float
) -> tuple[Floats, Floats, Floats]:
    """Return a shrunk matrix with eigenvalues of at least half the edge of noise, and those that were raised."""
    values, vectors = np.linalg.eigh(matrix)
    floor = max(edge / 2, _LEAST_EIGENVALUE * float(np.median(values)), 1e-12)
    seen, usual = (np.einsum("ij,ik,kj->j", vectors, each, vectors) for each in (raw, expected))
    low = (values < floor) | ((usual < np.median(usual) / 2) & (seen < _SEEN * deviation))
    if not low.any():
        return matrix, values[:0], vectors[:, :0]
    raised = np.maximum(values, floor)
    return (vectors * raised) @ vectors.T, raised[low], vectors[:, low]


def _inverse(matrix: Floats) -> Floats:
    """Return the inverse of a symmetric matrix, symmetric to the last bit."""
    found: Floats = np.asarray(np.linalg.inv(matrix), np.float64)
    return (found + found.T) / 2


def _root(matrix: Floats) -> Floats:
    """Return the symmetric root of a positive semidefinite matrix."""
    values, vectors = np.linalg.eigh((matrix + matrix.T) / 2)
    root: Floats = (vectors * np.sqrt(np.maximum(values, 0.0))) @ vectors.T
    return root


def _positive(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    positive: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return positive
