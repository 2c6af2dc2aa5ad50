r"""Functions that a caller vouches for: any strongly convex function of all rows, and games with an adversary.

A `GeneralObjective` is minimised like a sum over rows. A `Game` has a saddle point: it is minimised over weights
after an adversary has made it as large as possible, without a closed form.

**Games.** H(w, v) is mu-strongly convex in the weights and concave in the moves v of all rows, which lie in a convex
compact set. (The logistic and hinge losses of a linear model are convex in a move, so this is not for them: see
`dpdescent.minimisers.robust`.)

**Certificate.** For any point and any moves of the set, with gradients at (w, v),

.. math:: \max_{v'} H(w, v') - \min_{w'} H(w', v) \;\le\; \max_{v'} \langle \nabla_v H, v' - v \rangle
          + \frac{|\nabla_w H|^2}{2\mu},

by concavity in v and strong convexity in w; the first term is the support function of the set at the gradient. The
largest value over the moves is mu-strongly convex in w, and its least value is at least min H(., v): w is within
sqrt(2 gap/mu) of its minimiser.

**Minimax-APPA** (Lin, Jin & Jordan 2020): an inexact accelerated proximal point method in w,

.. math:: (w_t, v_t) \approx \text{saddle of } H(w, v) + \beta |w - \bar w_{t-1}|^2 - \frac{\lambda}{2} |v - v_0|^2,
          \qquad \bar w_t = w_t + \frac{2\sqrt\kappa - 1}{2\sqrt\kappa + 1} (w_t - w_{t-1}),

kappa = beta/mu, whose inner problem is solved by accelerated gradient ascent on v -> min_w, and that minimum by
accelerated gradient descent. The weak concavity lambda, which makes the ascent fast, is at most the gap allowed over
the squared diameter of the set, so that it spoils less than half of it.

References
----------
Lin, T., Jin, C. & Jordan, M. I. (2020). Near-optimal algorithms for minimax optimization. COLT. arXiv:2002.02417.
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np

from ..arrays import Floats
from ..errors import InvalidParameter, require_nonnegative, require_positive, require_positive_integer
from ..relations import Relation, Sensitivity
from .row_objectives import FEW, MANY, Objective


class GeneralObjective(Objective):
    """A function F(w) of the weights and of private rows, with public constants that the caller vouches for.

    Parameters
    ----------
    function : callable
        Maps weights to F and a (sub)gradient. It must be finite for all weights in the ball over which F is
        minimised.
    dimension : int
        Number of weights.
    strong_convexity : float
        mu, which must hold for every table.
    lipschitz : float
        L: F is L-Lipschitz for every table, on the ball over which it is minimised. A regulariser that is the same
        for all tables need not be counted.
    smoothness : float
        beta, the Lipschitz constant of the gradient; infinite where F has kinks.
    variation : float, optional
        Lipschitz constant of F - F' for neighbouring tables; 2L if nothing better is known.
    errors : (float, float)
        Bounds on the errors of a computed value and of a computed gradient.
    """

    def __init__(
        self,
        function: Callable[[Floats], tuple[float, Floats]],
        dimension: int,
        *,
        strong_convexity: float,
        lipschitz: float,
        smoothness: float = math.inf,
        variation: float | None = None,
        errors: tuple[float, float] = (1e-12, 1e-12),
    ) -> None:
        if not strong_convexity > 0:
            raise InvalidParameter(
                f"strong_convexity must be greater than 0, got {strong_convexity}: add a public regulariser, for "
                "instance the one of excess_risk_bound(...).regularisation"
            )
        self.shape = (require_positive_integer("dimension", dimension),)
        self.strong_convexity = require_positive("strong_convexity", strong_convexity)
        self.lipschitz = require_positive("lipschitz", lipschitz)
        self.variation = require_positive("variation", 2 * lipschitz if variation is None else variation)
        self._smoothness = math.inf if smoothness == math.inf else require_positive("smoothness", smoothness)
        if self._smoothness < self.strong_convexity:
            raise InvalidParameter(f"smoothness {smoothness:g} is below the strong convexity {strong_convexity:g}")
        self.errors = tuple(require_nonnegative("errors", error) for error in errors)
        self._function = function

    @property
    def smoothness(self) -> float:
        return self._smoothness

    def reachable(self, radius: float) -> float:
        """Return a distance to the minimiser over B(0, R) that can be certified for every table."""
        mu, slope, (value_error, gradient_error) = self.strong_convexity, self.lipschitz, self.errors
        size = min(radius, 2 * slope / mu)
        if self.smoothness < math.inf:
            return 4 * (gradient_error / mu + 2.0**-44 * (self.smoothness / mu * size + slope / mu))
        gap = 2 * value_error + 4 * gradient_error * slope / mu
        steep = (slope + mu * size) * size
        # The last term: T = 4 L^2/(mu tau)^2 cuts are added up, with an error of 2^-49 T of their sizes.
        distance = 4 * math.sqrt(2 * (gap + 2.0**-40 * steep) / mu)
        return distance + math.sqrt(math.sqrt(2.0**-42 * (slope + mu * size) ** 2 * steep / mu**3))

    def value_and_gradient(self, weights: Floats) -> tuple[float, Floats]:
        value, gradient = self._function(weights)
        return float(value), np.asarray(gradient, dtype=np.float64)

    def accurate_gradient(self, weights: Floats) -> Floats:
        return self.value_and_gradient(weights)[1]

    def gradient_error(self, weights: Floats) -> float:
        return self.errors[1]

    def value_error(self, weights: Floats) -> float:
        return self.errors[0]


class Game(ABC):
    """A function H(w, v) of weights and moves, with the set of moves. All that it computes is unreleased data.

    Attributes
    ----------
    dimension : int
        Number of weights.
    strong_convexity, smoothness, coupling, move_smoothness : float
        Public constants that hold for every table: mu and beta of H in w, the Lipschitz constant of its gradient in w
        as a function of v, and that of its gradient in v as a function of v.
    diameter : float
        Diameter of the set of moves of all rows together.
    error : float
        A bound on the rounding error of `gap`.
    """

    dimension: int
    strong_convexity: float
    smoothness: float
    coupling: float
    move_smoothness: float
    diameter: float
    error: float = 1e-12

    @abstractmethod
    def variation(self, relation: Relation) -> float:
        """Return a Lipschitz constant in w of the difference of max_v H between neighbours.

        Where H is a mean over rows whose moves are chosen one by one, that is the largest gradient of one row over n,
        or twice that if it is replaced.
        """

    @abstractmethod
    def gradients(self, weights: Floats, moves: Floats) -> tuple[Floats, Floats]:
        """Return the gradients in w and in v."""

    @abstractmethod
    def project(self, moves: Floats) -> Floats:
        """Return the nearest moves of the set."""

    @abstractmethod
    def farthest(self, direction: Floats) -> Floats:
        """Return the moves of the set with the largest product with a direction."""

    @abstractmethod
    def start(self) -> Floats:
        """Return some moves of the set."""

    def gap(self, weights: Floats, moves: Floats) -> float:
        """Return a bound on how far (w, v) is from a saddle point, rounding errors included."""
        downhill, uphill = self.gradients(weights, moves)
        ascent = float(np.sum(uphill * (self.farthest(uphill) - moves)))
        descent = float(np.sum(downhill * downhill)) / (2 * self.strong_convexity)
        return (max(ascent, 0.0) + descent) * MANY + self.error


class LinearGame(Game):
    r"""The game with loss ``-y (x + v).w - c/2 |v|^2 + mu/2 |w|^2`` for rows that may be moved by up to r.

    H is the sum over rows divided by the public number n of places for them. For c = 0 it is linear in v, and its
    saddle point has ``w = max(|m| - r, 0) m/(|m| mu)``, with m the mean of y x, if no place is empty. This is a
    classifier by centroids, shrunk by the power of the adversary.

    Parameters
    ----------
    features, labels : ndarray
        Longer rows are scaled down to ``row_bound``, and cells that are not numbers count as 0. Labels are -1 and 1.
    places : int
        n, at least the number of rows.
    strong_convexity, radius : float
        mu and r.
    concavity : float
        c, how much a move costs the adversary.
    row_bound : float
        B, public.
    """

    def __init__(
        self,
        features: Floats,
        labels: Floats,
        places: int,
        strong_convexity: float,
        radius: float,
        concavity: float = 0.0,
        row_bound: float = 1.0,
    ) -> None:
        features = np.clip(np.nan_to_num(features), -1e100, 1e100)  # a warning would reveal something about rows
        lengths = np.maximum(np.linalg.norm(features, axis=1), row_bound)
        self._rows = np.where(labels > 0, 1.0, -1.0)[:, None] * features * (row_bound / lengths)[:, None]
        self._signs = np.where(labels > 0, 1.0, -1.0)[:, None]
        self._radius, self._concavity = radius, concavity
        if features.shape[0] > places:
            raise InvalidParameter("the table has more rows than the public number of them: pass their true number")
        self.places, self.dimension = places, features.shape[1]
        self.strong_convexity = self.smoothness = require_positive("strong_convexity", strong_convexity)
        self.clip = (row_bound + require_positive("radius", radius)) * FEW
        self.coupling, self.move_smoothness = 1 / math.sqrt(places), concavity / places
        self.diameter = 2 * radius * math.sqrt(places)
        size = self.clip**2 / strong_convexity + require_nonnegative("concavity", concavity) * radius**2
        self.error = 2.0**-44 * size * math.sqrt(places)

    def variation(self, relation: Relation) -> float:
        return Sensitivity.of_clipped_sum(self.clip / self.places).under(relation)

    def gradients(self, weights: Floats, moves: Floats) -> tuple[Floats, Floats]:
        mean = (self._rows + self._signs * moves).sum(axis=0) / self.places
        uphill = -(self._signs * weights + self._concavity * moves) / self.places
        return self.strong_convexity * weights - mean, uphill

    def project(self, moves: Floats) -> Floats:
        lengths = np.maximum(np.linalg.norm(moves, axis=1), self._radius)
        inside: Floats = moves * (self._radius / lengths)[:, None]
        return inside

    def farthest(self, direction: Floats) -> Floats:
        lengths = np.linalg.norm(direction, axis=1)
        ends: Floats = direction * (self._radius / np.maximum(lengths, 1e-300))[:, None]
        return ends

    def start(self) -> Floats:
        return np.zeros_like(self._rows)


def minimax_appa(game: Game, accuracy: float) -> tuple[Floats, Floats]:
    """Return weights and moves with a certified gap of at most ``accuracy``, which must exceed the game's error.

    Every stage asks the inner solver for a smaller gap, until the certificate holds. There is no other way to stop.
    """
    mu, beta = game.strong_convexity, game.smoothness
    kappa = 2 * math.sqrt(max(beta / mu, 1.0))
    momentum = (kappa - 1) / (kappa + 1)
    anchor, concavity = game.start(), accuracy / (2 * game.diameter**2)
    weights = previous = np.zeros(game.dimension)
    moves, steps = anchor, 64
    while True:
        for _ in range(max(8, math.ceil(kappa))):
            ahead = weights + momentum * (weights - previous)
            previous = weights
            weights, moves = _inner(game, ahead, weights, moves, anchor, concavity, steps)
            exact = _descent(game, weights, moves, None, 0.0, steps)
            if game.gap(exact, moves) <= accuracy:
                return exact, moves
        steps *= 2


def _inner(
    game: Game, centre: Floats, weights: Floats, moves: Floats, anchor: Floats, concavity: float, steps: int
) -> tuple[Floats, Floats]:
    """Ascend on v -> min_w H + beta |w - centre|^2 - lambda/2 |v - anchor|^2 by accelerated gradient steps."""
    pull = 2 * game.smoothness
    smooth = game.move_smoothness + game.coupling**2 / (game.strong_convexity + pull) + concavity
    root = math.sqrt(concavity / smooth)
    momentum, before = (1 - root) / (1 + root), moves
    for _ in range(steps):
        ahead = moves + momentum * (moves - before)
        weights = _descent(game, weights, ahead, centre, pull, steps)
        uphill = game.gradients(weights, ahead)[1] - concavity * (ahead - anchor)
        before, moves = moves, game.project(ahead + uphill / smooth)
    return _descent(game, weights, moves, centre, pull, steps), moves


def _descent(game: Game, weights: Floats, moves: Floats, centre: Floats | None, pull: float, steps: int) -> Floats:
    """Descend on w -> H + pull/2 |w - centre|^2 by accelerated gradient steps."""
    root = math.sqrt((game.strong_convexity + pull) / (game.smoothness + pull))
    momentum, before = (1 - root) / (1 + root), weights
    for _ in range(min(steps, math.ceil(64 / root))):
        ahead = weights + momentum * (weights - before)
        slope = game.gradients(ahead, moves)[0]
        if centre is not None:
            slope = slope + pull * (ahead - centre)
        before, weights = weights, ahead - slope / (game.smoothness + pull)
        if float(np.linalg.norm(slope)) <= 2.0**-50 * (1 + float(np.linalg.norm(weights))):
            break
    return weights
