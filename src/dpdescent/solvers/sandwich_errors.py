r"""Standard errors of sampling and privacy together, from a noisy gradient, Hessian and covariance of gradients.

Let :math:`\bar u` be a released point, :math:`\bar g` a released gradient there with noise of deviation
:math:`\sigma_g`, H and V the matrices of `dpdescent.queries.sandwich` with symmetric noise of deviations
:math:`\sigma_H` and :math:`\sigma_V` on the diagonal, in k coordinates. The estimate is one step of Newton,

.. math:: \hat u = \bar u - H^{-1} \bar g,

and it differs from the population's u* by :math:`-H^{-1}(g^* + e + E a)`, where g* is the mean gradient of the rows
at u*, e the noise of the gradient, E that of H and :math:`a = H^{-1}\bar g`. So its covariance is

.. math:: S = H^{-1} (V/n + \sigma_g^2 I + X + B) H^{-1}, \quad
          B = \tfrac12 \sigma_H^2 (1 - \rho) \big[(|a|^2 + \mathrm{tr} A) I + a a' + A\big], \quad
          A = \sigma_g^2 H^{-2},

x being the length of what clipping cuts off from a gradient on average, in a direction that nobody knows.

**Shrinking.** A noisy matrix is drawn towards a simple one in the share in which noise explains their distance:
:math:`\rho = \min(1, \sigma^2 k(k+1)/2 / |H - H_0|_F^2)`. For H it is what the mean curvature and the mean squares of
the coordinates make one expect (`expected_hessian`). For V it is phi H,
:math:`\phi = \mathrm{tr}(VH)/\mathrm{tr}(HH)`, the covariance of a well specified model. Eigenvalues of H that noise
hides are raised. The estimate does not move along them, and what loads on them is not resolved.

**Long steps.** A step of Newton that is longer than noise explains, by more than 0.2 in units of scores, has an error
of its own, because the curvature changes along it: half the length of the step times the step, at most, for losses
whose curvature changes no faster than itself. It is added to what noise does.

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

from ..arrays import Floats
from ..problems import Huber, Loss

_LEAST_EIGENVALUE = 0.02  # of the median one: with less, a direction is not resolved
_ALIASED = 4.0  # standard deviations of noise below which a direction passes for one that never varies
_LEAST_FREEDOM = 2.0  # degrees of freedom
_NODES = 32  # of a quadrature over normal scores
_LONG_STEP = 0.2  # in units of scores


@dataclass(frozen=True, eq=False)
class SandwichParts:
    """What was released, all of it in the same k coordinates u; weights are ``to_weights`` times u."""

    point: Floats
    gradient: Floats
    hessian: Floats
    covariance: Floats
    #: Deviations of the noise of each coordinate, and of diagonal entries.
    gradient_noise: float
    hessian_noise: float
    covariance_noise: float
    expected: Floats  # H0, what the Hessian is drawn towards (`expected_hessian`)
    rows: float  # n, the public number of rows
    to_weights: Floats
    bias: Floats | None = None  # X; None where nothing is clipped

    def without_change(self, direction: Floats) -> Floats | None:
        """Return a direction of the weights in these coordinates, of length 1; None if scores vary along it.

        No score changes along the direction from the constant to all levels of a column. Whether the columns are all
        levels is judged by the released Hessian.
        """
        found = np.linalg.lstsq(self.to_weights, direction, rcond=None)[0]
        within: Floats = np.asarray(found, np.float64) / max(float(np.linalg.norm(found)), 1e-300)
        return within if float(within @ self.hessian @ within) <= _ALIASED * self.hessian_noise else None


@dataclass(frozen=True, eq=False)
class Sandwich:
    """An estimate and the law of its error.

    Parameters
    ----------
    estimate : ndarray of shape (k,)
        In the coordinates of the parts.
    weights : ndarray of shape (d,)
    influence : ndarray of shape (d, m)
        L Q H^-1, by which an error of the mean gradient moves the weights; Q leaves aliased directions out.
    sampling, privacy : ndarray of shape (m, m)
        Covariance of that error: V/n, and what all noise does.
    hessian : ndarray of shape (m, m)
        H, shrunk and with raised eigenvalues.
    unresolved : ndarray of shape (m, f)
        Its eigenvectors whose eigenvalues were raised.
    variance_noise : float
        sigma_V (1 - rho_V)/n.
    scale_noise : float
        Deviation of phi where V is a multiple of H, times rho_V/n.
    aliased : tuple of bool
        Which of the directions along which no score should change were left out.
    shrunk_hessian, shrunk_covariance : float
        rho and rho_V.
    edge : float
        Below which noise hides an eigenvalue of H.
    """

    estimate: Floats
    weights: Floats
    influence: Floats
    sampling: Floats
    privacy: Floats
    hessian: Floats
    unresolved: Floats
    variance_noise: float
    scale_noise: float
    aliased: tuple[bool, ...]
    shrunk_hessian: float
    shrunk_covariance: float
    edge: float

    @classmethod
    def of(cls, parts: SandwichParts, directions: Sequence[Floats] = ()) -> Sandwich:
        """Return the estimate from what was released; no score should change along some directions of the weights."""
        within = [parts.without_change(each) for each in directions]
        aliases = [each for each in within if each is not None]
        basis = null_space(np.array(aliases)) if aliases else np.eye(parts.point.size)
        k = basis.shape[1]
        target = basis.T @ parts.expected @ basis
        hessian, rho = shrink_towards(basis.T @ parts.hessian @ basis, target, parts.hessian_noise)
        edge = parts.hessian_noise * math.sqrt(2 * k * (1 - rho))
        hessian, unresolved = _raised(hessian, edge)
        raw = basis.T @ parts.covariance @ basis
        size = float(np.sum(hessian * hessian))
        phi_noise = parts.covariance_noise / math.sqrt(size)
        phi = max(float(np.sum(raw * hessian)) / size, phi_noise)
        covariance, rho_v = shrink_towards(raw, phi * hessian, parts.covariance_noise)
        inverse = np.linalg.inv(hessian)
        inverse = (inverse + inverse.T) / 2
        step = inverse @ (basis.T @ parts.gradient)
        step -= unresolved @ (unresolved.T @ step)  # noise alone would decide how far to go there
        spread = parts.gradient_noise**2 * inverse @ inverse
        of_hessian = (float(step @ step) + float(np.trace(spread))) * np.eye(k) + np.outer(step, step) + spread
        of_hessian *= 0.5 * parts.hessian_noise**2 * (1 - rho)
        cut_off = np.zeros((parts.point.size,) * 2) if parts.bias is None else parts.bias
        bent = _remainder(step, float(np.trace(spread)), hessian)
        estimate = parts.point - basis @ step
        return cls(
            estimate,
            parts.to_weights @ estimate,
            parts.to_weights @ basis @ inverse,
            _positive(covariance) / parts.rows,
            parts.gradient_noise**2 * np.eye(k) + of_hessian + bent + basis.T @ cut_off @ basis,
            hessian,
            unresolved,
            parts.covariance_noise * (1 - rho_v) / parts.rows,
            phi_noise * rho_v / parts.rows,
            tuple(each is not None for each in within),
            rho,
            rho_v,
            edge,
        )

    @property
    def covariance(self) -> Floats:
        """The covariance of the weights, sampling and privacy together."""
        both: Floats = self.influence @ (self.sampling + self.privacy) @ self.influence.T
        return both

    def freedom(self, variances: Floats, directions: Floats) -> Floats:
        """Return degrees of freedom of ``variances`` of contrasts m, the rows of ``directions`` = c' influence."""
        lengths = np.einsum("ij,ij->i", directions, directions)
        curved = np.einsum("ij,jk,ik->i", directions, self.hessian, directions)
        error = np.hypot(self.variance_noise * lengths, self.scale_noise * curved)
        found: Floats = np.maximum(2 * variances**2 / np.maximum(error, 1e-150) ** 2, _LEAST_FREEDOM)
        return found

    def unresolved_share(self, directions: Floats) -> Floats:
        """Return the share of m'Hm of each contrast that is due to directions which noise hides."""
        along = self.hessian @ self.unresolved
        hidden = np.einsum("ij,ij->i", directions @ self.unresolved, directions @ along)
        whole = np.einsum("ij,jk,ik->i", directions, self.hessian, directions)
        shares: Floats = hidden / np.maximum(whole, 1e-300)
        return shares


def expected_hessian(loss: Loss, curvature: float, squares: Floats, point: Floats) -> Floats:
    """Return the Hessian that a mean curvature and mean squares of the coordinates make one expect at a point.

    If coordinates were normal, the curvature l'' of a score t would be the same in all directions but that of the
    score itself: along it the Hessian is E l'' t^2, and E l'' t beside the constant, which is the last coordinate.
    Both are computed relative to E l''; for a squared loss nothing changes. Labels must not matter for l''.
    """
    scales = np.sqrt(squares)
    along = scales[:-1] * point[:-1]
    spread = float(np.linalg.norm(along))
    expected = curvature * np.eye(squares.size)
    if spread > 0 and not isinstance(loss, Huber):
        nodes, weights = np.polynomial.hermite_e.hermegauss(_NODES)
        curvatures = weights * loss.curvatures(point[-1] + spread * nodes, np.zeros(_NODES))
        mean = float(curvatures.sum())
        first, second = (float(np.sum(curvatures * nodes**power)) / mean for power in (1, 2)) if mean > 0 else (0, 1)
        direction = along / spread
        expected[:-1, :-1] += curvature * (second - 1) * np.outer(direction, direction)
        expected[:-1, -1] = expected[-1, :-1] = curvature * first * direction
    return scales[:, None] * expected * scales


def _remainder(step: Floats, noise: float, hessian: Floats) -> Floats:
    """Return what the change of the curvature along a step adds to the covariance of the mean gradient."""
    excess = float(step @ step) - noise
    if excess <= _LONG_STEP**2:
        return np.zeros_like(hessian)
    pulled = hessian @ step
    return excess / 4 * np.outer(pulled, pulled)


def shrink_towards(matrix: Floats, target: Floats, deviation: float) -> tuple[Floats, float]:
    """Return a noisy symmetric matrix drawn towards another one, and the share of that one in it.

    The squared Frobenius norm of the noise is k(k + 1)/2 times the variance of a diagonal entry on average.
    """
    k = len(matrix)
    distance = float(np.sum((matrix - target) ** 2))
    share = 1.0 if distance == 0 else min(1.0, deviation**2 * k * (k + 1) / 2 / distance)
    return (1 - share) * matrix + share * target, share


def _raised(matrix: Floats, edge: float) -> tuple[Floats, Floats]:
    """Return a matrix with eigenvalues of at least half the edge of noise, and the directions that were raised."""
    values, vectors = np.linalg.eigh(matrix)
    floor = max(edge / 2, _LEAST_EIGENVALUE * float(np.median(values)), 1e-12)
    low = values < floor
    if not low.any():
        return matrix, vectors[:, :0]
    return (vectors * np.maximum(values, floor)) @ vectors.T, vectors[:, low]


def _positive(matrix: Floats) -> Floats:
    """Return the nearest positive semidefinite matrix."""
    values, vectors = np.linalg.eigh(matrix)
    positive: Floats = (vectors * np.maximum(values, 0.0)) @ vectors.T
    return positive
