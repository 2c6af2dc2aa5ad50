r"""A random point of a ball, the likelier the smaller its loss: the exponential mechanism over points.

The law is on a public lattice: points w = w0 + h k with integers k, |h k| <= R, and

.. math:: P(k) \propto \exp(-\eta\, u\, S(k) - \tfrac\eta2 w^\top Q w), \qquad \eta = \epsilon / \text{range},

where u S(k) is the *exact* sum over rows of the loss at w less the loss at w0, each rounded to a unit u and clipped
to the interval that the ball allows. S is an integer and the term of the quadratic is public, so the law is that of
integers and public numbers: no rounding error of a sum enters it. h is a power of two, about 2^-24 of the radius.

**Privacy** Adding a row adds a number in an interval of length D to u S(k), for every k, and replacing it changes
that number by a difference of two: the range is D, or 2D, and log P changes within a range of epsilon
(`ExponentialMechanism`). D is 2 lipschitz B R, since a row's loss is Lipschitz; around w0 = 0 a loss that falls in
the margin stays within l(BR) and l(-BR), which is half of that. (Bassily, Smith & Thakurta 2014 weigh a mean loss
by epsilon n/(4LR) for replaced rows: the same.)

**Sampling** is by rejection and exact. Let G be the sum of the losses plus w'Qw/2, Lambda the least entry of the
diagonal Q, and c a lattice point of the
ball with gradient g. By strong convexity G(w) - G(c) >= Lambda/2 |w - c|^2 - gamma for all points of the ball, with
gamma = |g| R + g.(c - w0). So with a discrete Gaussian z of variance at least 1/(eta Lambda h^2) around c,

.. math:: x = \eta u (S(k) - S(c)) + \tfrac\eta2 (w^\top Q w - c^\top Q c) - \frac{|z|^2}{2\sigma^2} + \text{slack}
          \;\ge\; 0,

where the slack is eta (gamma + 2 n e) and e bounds what rounding does to one row's term: half a unit, and the error
of its loss. A proposal inside the ball is accepted with probability exp(-x), exactly (`dpdescent.noise.accept`), so
the point has the law above whatever c and the slack are. Neither is released.

**Time.** A proposal is accepted with a probability of at least kappa^(-p/2) times the probability that a Gaussian
lies in the ball, with kappa = (smoothness n B^2 + max Q)/Lambda. This bound is public, and so is the number N of
proposals with which all of them are rejected with a probability below 2^-40. N proposals are always drawn and
examined, and the first accepted one is returned, so the work does not depend on the rows unless none is accepted.
Outside of the guarantee are the time in that event, the time of a decision that needs more digits (probability 2^-41
per proposal), the time to find c, and caches. If the ball does not contain the minimiser of G, which may happen with
small probability if it was placed at random, more than N proposals may be needed, and the time may then depend on the
rows.

References
----------
Bassily, R., Smith, A. & Thakurta, A. (2014). Differentially private empirical risk minimization: efficient algorithms
and tight error bounds. arXiv:1405.7085.
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization, appendix G.
arXiv:2102.04704.
McSherry, F. & Talwar, K. (2007). Mechanism design via differential privacy. FOCS.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.stats import ncx2

from ..accounting import ExponentialMechanism
from ..arrays import Booleans, Floats, Integers
from ..errors import InvalidParameter
from ..exact import BoundedSum, FeatureGrid, blas_is_exact, ceil_log2
from ..noise import Bits, accept, discrete_gaussian, laplace_scale
from ..problems import Loss
from ..relations import Relation, Sensitivity
from .certified import certified_minimiser
from .risks import EmpiricalRisk
from .robust import loss_at_zero, loss_range
from .row_objectives import UNIT, RowObjective

if TYPE_CHECKING:
    from .risks import Source

_LATTICE_BITS = 24
_CELLS = 2**21  # number of losses that are computed at once
_MOST_LOSSES = 2**30  # losses of rows, over all proposals: one or two minutes
_NEVER = 40 * math.log(2)


@dataclass(frozen=True)
class Ball:
    """The public ball in which a point is drawn, and the constants of the loss there."""

    risk: EmpiricalRisk  # the sum of smooth losses of rows no longer than B
    rows: int  # n
    quadratic: Floats  # the diagonal of Q; Lambda is the least of it
    centre: Floats  # w0, released or zero
    radius: float  # R

    @property
    def strong_convexity(self) -> float:
        """Lambda."""
        return float(np.min(self.quadratic))

    @property
    def farthest(self) -> float:
        """The largest norm of a point."""
        return float(np.linalg.norm(self.centre)) + self.radius

    @property
    def interval(self) -> tuple[float, float]:
        """What the loss of a row may be at a point of the ball, less its loss at the centre."""
        loss, reach = self.risk.loss, self.risk.row_bound * self.radius * (1 + 2.0**-30)
        if not self.centre.any() and loss.falling:
            low, high = loss_range(loss, reach)
            return low - loss_at_zero(loss), high - loss_at_zero(loss)
        return -loss.lipschitz * reach, loss.lipschitz * reach

    def rate(self, cost: ExponentialMechanism, relation: Any) -> float:
        """Return eta, what the law multiplies a sum of losses with."""
        low, high = self.interval
        return cost.epsilon / Sensitivity.of_scores(high - low).under(relation)

    def proposals(self, cost: ExponentialMechanism, relation: Any) -> float:
        """Return the public number N of proposals that are examined."""
        parameters = self.centre.size
        smooth = self.risk.smoothness(self.rows) + float(np.max(self.quadratic))
        rate = self.rate(cost, relation)
        widths = rate * smooth * self.radius**2  # the squared radius in standard deviations of the narrowest law
        share = 0.4 if widths > 1e5 * parameters**2 else float(ncx2.cdf(widths, parameters, widths))
        slack = 0.5 + 2.0**-22 * self.rows * cost.epsilon
        log_expected = parameters / 2 * math.log(smooth / self.strong_convexity) - math.log(max(share, 1e-300))
        return math.ceil(_NEVER * math.exp(min(log_expected + slack, 600.0)))

    def require_practical(self, cost: ExponentialMechanism, relation: Any) -> int:
        """Return the number of proposals, or raise `InvalidParameter` if they would take too long."""
        needed = self.proposals(cost, relation)
        if needed * self.rows > _MOST_LOSSES:
            raise InvalidParameter(
                f"exact sampling of {self.centre.size} weights needs {needed:.2g} proposals, each of which is a pass "
                f"over {self.rows} rows, and {_MOST_LOSSES:.2g} losses are the most: use fewer columns, a "
                "larger strong_convexity, or the method 'outpert'"
            )
        return int(needed)


def sample_point(
    source: Source,
    squared_norms: Floats,
    grid: FeatureGrid,
    ball: Ball,
    cost: ExponentialMechanism,
    relation: Relation,
    bits: Bits,
) -> Floats:
    """Return a point of the ball, whose centre lies on the grid of weights, drawn by the law of the module.

    **Unreleased data** goes in, and what comes out is private only if ``cost`` was charged before.
    """
    count, law = ball.require_practical(cost, relation), Law.of(ball, cost, relation)
    sums = Sums.of(source, squared_norms, grid, ball, law)
    envelope = Envelope.of(squared_norms, sums)
    while True:
        chosen = envelope.draw(bits, count)
        if chosen is not None:
            return ball.centre + law.step * chosen.astype(np.float64)


@dataclass(frozen=True)
class Law:
    """The public numbers of the law: the lattice, the unit of the sums, and the rates."""

    step: float
    reach: int  # the radius in steps, rounded down
    bounded: BoundedSum
    offset: float
    rate: Fraction  # of one unit of the sums
    quadratic: Floats  # eta Q/2

    @classmethod
    def of(cls, ball: Ball, cost: ExponentialMechanism, relation: Any) -> Law:
        low, high = ball.interval
        bounded = BoundedSum((high - low) * (1 + 2.0**-20))  # lowered to the grid of its unit
        spread = Fraction(Sensitivity.of_scores(bounded.ceiling).under(relation)) / Fraction(bounded.unit)
        rate = Fraction(cost.epsilon) / spread
        step = 2.0 ** (ceil_log2(ball.radius) - _LATTICE_BITS)
        eta = float(rate) / bounded.unit
        return cls(step, int(ball.radius / step), bounded, low, rate, eta * ball.quadratic / 2)

    def public_exponent(self, centre: Floats, integers: Integers) -> Floats:
        """Return eta/2 w'Qw for points in the lines of ``integers``: public, so any rounding will do."""
        total = np.zeros(integers.shape[0])
        for column in range(integers.shape[1]):  # one by one: an elementwise function of the point
            weight = centre[column] + self.step * integers[:, column].astype(np.float64)
            total += self.quadratic[column] * (weight * weight)
        return total


@dataclass(frozen=True)
class Sums:
    """The exact sums S(k): unreleased data."""

    source: Source
    grid: FeatureGrid
    ball: Ball
    law: Law
    factors: Floats
    base: Floats  # margins at the centre

    @classmethod
    def of(cls, source: Source, squared_norms: Floats, grid: FeatureGrid, ball: Ball, law: Law) -> Sums:
        norms = np.sqrt(squared_norms)
        bound = ball.risk.row_bound
        placed = grid.place_weights(ball.centre)
        base = source.map_rows(lambda rows, _: grid.margins(rows, placed))
        return cls(source, grid, ball, law, np.minimum(1.0, bound / np.maximum(norms, bound)), base)

    def scores(self, integers: Integers) -> Integers:
        """Return S(k) for k in the lines of ``integers``."""
        placed = np.ascontiguousarray(integers.T.astype(np.float64) * self.law.step)
        block = partial(_scores_block, self.law.bounded, self.law.offset, self.grid, self.ball.risk.loss, placed)
        return self.source.map_sum(block, self.factors, self.base)


def _scores_block(
    bounded: BoundedSum,
    offset: float,
    grid: FeatureGrid,
    loss: Loss,
    placed: Floats,
    rows: Any,
    labels: Floats,
    factors: Floats,
    base: Floats,
) -> Integers:
    total = np.zeros(placed.shape[1], dtype=np.int64)
    size = max(1, _CELLS // placed.shape[1])
    for start in range(0, rows.shape[0], size):
        part = slice(start, start + size)
        own = loss.understood(labels[part])
        moved = _margins(grid, rows[part], placed) + base[part, None]
        moved *= factors[part, None]
        repeated = np.broadcast_to(own[:, None], moved.shape)
        losses = loss.values(moved.ravel(), repeated.ravel()).reshape(moved.shape)
        losses -= loss.values(base[part] * factors[part], own)[:, None]
        losses -= offset
        total += bounded.block(losses)
    return total


def _margins(grid: FeatureGrid, rows: Any, placed: Floats) -> Floats:
    """Return exact margins: points have 25 bits and rows 21, so that a product of columns has no rounding."""
    return np.asarray(rows @ placed) if blas_is_exact() else grid.margins(rows, grid.place_weights(placed))


@dataclass(frozen=True)
class Envelope:
    """A Gaussian around a good point, which lies above the law: unreleased data."""

    sums: Sums
    centre: Integers
    score: int
    public: float
    scale: int
    slack: float

    @classmethod
    def of(cls, squared_norms: Floats, sums: Sums) -> Envelope:
        ball, law = sums.ball, sums.law
        rate = float(law.rate) / law.bounded.unit
        place, gamma = _best_point(sums.source, squared_norms, sums.grid, ball, law)
        error = 0.51 * law.bounded.unit
        error += 2.0**-46 * ball.risk.loss.lipschitz * (1 + ball.risk.row_bound * ball.farthest)
        score = int(sums.scores(place[None])[0])
        public = float(law.public_exponent(ball.centre, place[None])[0])
        rounding = 2.0**-40 * float(np.max(law.quadratic)) * ball.farthest**2
        slack = (rate * (gamma + 2 * ball.rows * error) + rounding) * (1 + 2.0**-20)
        width = 1 / math.sqrt(2 * float(np.min(law.quadratic))) * (1 + 2.0**-30)
        return cls(sums, place, score, public, laplace_scale(width, law.step), slack)

    def draw(self, bits: Any, count: int) -> Integers | None:
        """Return the first of ``count`` proposals that is accepted, or None; all are examined."""
        taken: Integers | None = None
        size = max(16, min(count, 2**14))
        for _ in range(-(-count // size)):
            points = self.accepted(bits, size)
            if taken is None and len(points):
                taken = points[0]
        return taken

    def accepted(self, bits: Any, count: int) -> Integers:
        """Return those of ``count`` proposals that are accepted: independent draws of the law."""
        noise = discrete_gaussian(bits, self.scale, count * self.centre.size).reshape(count, -1)
        points, reach = self.centre + noise, self.sums.law.reach
        near = np.abs(points).max(axis=1) <= reach
        points, noise = np.where(near[:, None], points, 0), np.where(near[:, None], noise, 0)
        inside = near & ((points**2).sum(axis=1) <= reach**2)
        taken: Integers = points[inside & self._accept(bits, points, noise)]
        return taken

    def _accept(self, bits: Any, points: Integers, noise: Integers) -> Booleans:
        law = self.sums.law
        scores = self.sums.scores(points) - self.score
        public = law.public_exponent(self.sums.ball.centre, points)
        squares = (noise**2).sum(axis=1)

        def exact(i: int) -> Fraction:
            ahead = Fraction(float(public[i])) - Fraction(self.public) + Fraction(self.slack)
            return law.rate * int(scores[i]) + ahead - Fraction(int(squares[i]), 2 * self.scale**2)

        terms = float(law.rate) * scores, public - self.public, squares / (2.0 * self.scale**2)
        exponents = terms[0] + terms[1] - terms[2] + self.slack
        sizes = np.abs(terms[0]) + np.abs(public) + abs(self.public) + terms[2] + self.slack
        return accept(bits, exponents, 16 * UNIT * sizes, exact)


def _best_point(
    source: Source, squared_norms: Floats, grid: FeatureGrid, ball: Ball, law: Law
) -> tuple[Integers, float]:
    """Return a lattice point of the ball and gamma, by how much G may at most lie below the parabola there.

    Where the minimiser of G is outside, G is minimised with t/2 |w - w0|^2 more, so that it lies near the edge.
    """
    mu, centre = ball.strong_convexity, ball.centre

    def objective(pull: float) -> RowObjective:
        quadratic, linear = ball.quadratic + pull, -pull * centre
        return ball.risk.objective(source, grid, squared_norms, quadratic, linear)

    plain = objective(0.0)

    def attempt(pull: float) -> tuple[Integers, float, bool]:
        linear = pull * ball.farthest
        distance = ball.risk.reachable(ball.rows, grid.dimension, mu, float(np.max(ball.quadratic)) + pull, linear)
        point = certified_minimiser(objective(pull), mu + pull, max(distance, 2.0**-30 * ball.radius))
        offset = (point - centre) / law.step
        length, most = float(np.linalg.norm(offset)), law.reach - centre.size
        integers = np.rint(offset * min(1.0, most / max(length, 1.0))).astype(np.int64)
        at = centre + law.step * integers.astype(np.float64)
        gradient = plain.accurate_gradient(at)
        size = float(np.linalg.norm(gradient))
        error = 2 * plain.error_bound(plain.rows, ball.farthest) + 8 * centre.size * UNIT * size
        error += plain.smoothness * (plain.placement_error(ball.farthest) + 4 * UNIT * ball.farthest)
        gamma = size * ball.radius + float(gradient @ (at - centre)) + 2 * error * ball.radius
        return integers, max(gamma, 0.0) * (1 + 2.0**-20), length > most

    best = attempt(0.0)
    low, high = 0.0, mu
    if best[2]:
        while attempt(high)[2]:
            low, high = high, 4 * high
        for _ in range(40):
            middle = (low + high) / 2
            tried = attempt(middle)
            low, high = (middle, high) if tried[2] else (low, middle)
            best = min((best, tried), key=lambda each: each[1])
            if best[1] * float(law.rate) / law.bounded.unit < 0.25:
                break
    return best[0], best[1]
