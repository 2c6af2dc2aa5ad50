r"""Synthetic problems whose minimisers are known, to compare excess risks with their bounds.

**Groups.** Every row belongs to one of d groups and has a label of two values; x is the unit vector of the group, so
that weight j is about group j alone. With the shares s+ and s- of the rows of group j with either label the
minimiser is known weight by weight, for a table and for the population it is drawn from:

- labels +a and -a with Huber's loss and mu/2 |w|^2: a (s+ - s-)/(s+ + s- + mu);
- labels +1 and -1 with the hinge: (s+ - s-)/mu, cut off at the kinks -1 and 1 (at a kink without mu);
- a tilted logistic loss: found numerically from the shares.

**Longest row.** F(w) = 1/2 sum_j h_j w_j^2 - s . w + c |w - v| depends on the table through its longest row s, which
is no mean: one row can change it altogether. The minimiser is s/h without a kink; v + (1 - c/(mu |u - v|))_+ (u - v)
with u = s/mu for h = mu; and v for h = 0 and |s| <= c.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from scipy.optimize import minimize

from ...arrays import Floats
from ...minimisers import GeneralObjective, loss_range
from ...problems import Hinge, Huber, Logistic
from .theorems import Constants

#: The classes of functions of the tables: names and whether they are strongly convex and smooth.
STRONG, SMOOTH_STRONG = "strongly convex", "strongly convex, smooth"
CONVEX, SMOOTH_CONVEX = "convex", "convex, smooth"

_MU = 0.05
_LIKELY = 0.8  # how often a group has its typical label
_TILT = 0.25


@dataclass(frozen=True)
class _Counted:
    tally: list[int] = field(default_factory=lambda: [0], compare=False, kw_only=True)

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        self.tally[0] += np.size(margins)
        found: Floats = super().residuals(margins, labels)  # type: ignore[misc]
        return found


@dataclass(frozen=True)
class _CountedHuber(_Counted, Huber):
    pass


@dataclass(frozen=True)
class _CountedHinge(_Counted, Hinge):
    pass


@dataclass(frozen=True)
class _CountedLogistic(_Counted, Logistic):
    pass


@dataclass(frozen=True)
class Groups:
    """A table of rows that belong to groups."""

    #: The class of the loss with its penalty: `STRONG` and `CONVEX` have the hinge, the others Huber's loss.
    kind: str
    #: n and d.
    rows: int
    dimension: int
    seed: int  # of the table
    tilted: bool = False  # a tilted logistic loss instead

    @property
    def strong_convexity(self) -> float:
        """mu, of the penalty."""
        return _MU if self.kind in (STRONG, SMOOTH_STRONG) else 0.0

    @property
    def tilt(self) -> float:
        """tau; 0 for the mean loss."""
        return _TILT if self.tilted else 0.0

    @property
    def label(self) -> float:
        """The size of the labels."""
        if self.tilted or self.kind in (STRONG, CONVEX):
            return 1.0
        return 0.5 if self.strong_convexity else 0.5 / math.sqrt(self.dimension)

    @property
    def radius(self) -> float:
        """R: by mu/2 |w|^2 <= l(0), or from the largest weight."""
        if self.strong_convexity:
            return math.sqrt(2 * float(np.max(self.loss.values(np.zeros(1), np.array([self.label])))) / _MU)
        return math.sqrt(self.dimension) * self.label

    @cached_property
    def loss(self) -> _CountedHuber | _CountedHinge | _CountedLogistic:
        """The loss, which counts the gradients of rows that were asked for in ``tally``."""
        if self.tilted:
            return _CountedLogistic()
        return _CountedHinge() if self.kind in (STRONG, CONVEX) else _CountedHuber(1.0, self.label)

    @property
    def spread(self) -> float:
        """The range of the losses over the ball, which a tilt needs."""
        low, high = loss_range(self.loss, self.radius)
        return high - low

    def constants(self, epsilon: float, delta: float) -> Constants:
        """Return what bounds depend on; the loss of a row includes the penalty."""
        mu, smooth = self.strong_convexity, self.loss.smoothness
        return Constants(
            self.loss.lipschitz + mu * self.radius,
            self.radius,
            self.dimension,
            epsilon,
            delta,
            self.rows,
            mu,
            smooth + mu if self.kind in (SMOOTH_STRONG, SMOOTH_CONVEX) else math.inf,
        )

    @cached_property
    def table(self) -> tuple[Floats, Floats]:
        """The rows and their labels."""
        generator = np.random.default_rng([self.seed, self.rows, self.dimension])
        group = generator.integers(0, self.dimension, self.rows)
        typical = generator.random(self.rows) < _LIKELY
        sign = np.where(typical, 1.0, -1.0) * self._typical[group]
        return np.eye(self.dimension)[group], self.label * sign

    @property
    def _typical(self) -> Floats:
        return np.where(np.arange(self.dimension) % 2, -1.0, 1.0)

    def excess(self, weights: Floats) -> tuple[float, float]:
        """Return the excess risk of weights on the table, and in the population."""
        rows, labels = self.table
        sample = np.stack([rows[labels > 0].sum(axis=0), rows[labels < 0].sum(axis=0)]) / self.rows
        likely = np.where(self._typical > 0, _LIKELY, 1 - _LIKELY)
        population = np.stack([likely, 1 - likely]) / self.dimension
        return self._excess(weights, sample), self._excess(weights, population)

    def _excess(self, weights: Floats, shares: Floats) -> float:
        return self.value(weights, shares) - self.value(self.minimiser(shares), shares)

    def part(self, part: slice, centre: Floats, pull: float, tally: list[int]) -> GeneralObjective:
        """Return the objective of some rows plus pull/2 |w - centre|^2; it counts gradients of rows in ``tally``."""
        rows, labels = (each[part] for each in self.table)
        size, mu, loss = len(labels), self.strong_convexity, self.loss

        def function(weights: Floats) -> tuple[float, Floats]:
            tally[0] += size
            margins, away = rows @ weights, weights - centre
            value = float(loss.values(margins, labels).mean() + mu / 2 * weights @ weights + pull / 2 * away @ away)
            return value, rows.T @ loss.residuals(margins, labels) / size + mu * weights + pull * away

        return GeneralObjective(
            function,
            self.dimension,
            strong_convexity=mu + pull,
            lipschitz=loss.lipschitz + (mu + 2 * pull) * self.radius,
            smoothness=loss.smoothness + mu + pull,
            variation=2 * loss.lipschitz / size,
        )

    def value(self, weights: Floats, shares: Floats) -> float:
        """Return the objective for the shares of the groups with a positive and with a negative label."""
        ones = np.ones_like(weights)
        losses = np.stack([self.loss.values(weights, sign * self.label * ones) for sign in (1, -1)])
        penalty = self.strong_convexity / 2 * float(weights @ weights)
        if not self.tilt:
            return float(np.sum(shares * losses)) + penalty
        top = float(np.max(losses))
        return top + math.log(float(np.sum(shares * np.exp(self.tilt * (losses - top))))) / self.tilt + penalty

    def minimiser(self, shares: Floats) -> Floats:
        """Return the minimiser of `value`."""
        up, down, mu = shares[0], shares[1], self.strong_convexity
        if self.tilted:
            found = minimize(self.value, np.zeros(self.dimension), (shares,), method="BFGS", options={"gtol": 1e-9})
            return np.asarray(found.x)
        if self.loss.hinge:
            return np.asarray(np.clip((up - down) / mu, -1, 1) if mu else np.sign(up - down))
        total = up + down + mu
        return np.asarray(self.label * (up - down) / np.where(total > 0, total, 1.0))


@dataclass(frozen=True)
class LongestRow:
    """A function of the longest row of a table."""

    kind: str  # its class
    dimension: int  # d
    seed: int  # of the table

    @property
    def strong_convexity(self) -> float:
        """Mu."""
        return 1.0 if self.kind in (STRONG, SMOOTH_STRONG) else 0.0

    @property
    def radius(self) -> float:
        """R."""
        return 1.0

    @cached_property
    def _parts(self) -> tuple[Floats, Floats, float, Floats]:
        """Return h, s, c and v."""
        d = self.dimension
        rows = np.random.default_rng([self.seed, d]).normal(size=(20, d))
        rows /= 2 * np.maximum(1.0, np.linalg.norm(rows, axis=1))[:, None]  # at most 1/2 long
        longest = rows[np.argmax(np.linalg.norm(rows, axis=1))]
        kink = np.full(d, 0.5 / math.sqrt(d))
        if self.kind == STRONG:
            return np.ones(d), longest, 1.0, kink
        if self.kind == CONVEX:
            return np.zeros(d), longest, 1.0, kink
        bent = np.linspace(4.0, 1.0, d) if self.kind == SMOOTH_STRONG else 4 * np.arange(1.0, d + 1) / d
        return bent, bent * longest, 0.0, kink

    def constants(self, epsilon: float, delta: float) -> Constants:
        """Return what bounds depend on: |h w - s| + c on the ball of radius 1."""
        bent, _, kink, _ = self._parts
        slope = float(np.max(bent)) * 1.5 + kink if kink == 0 else float(np.max(bent)) + 0.5 + kink
        smooth = float(np.max(bent)) if kink == 0 else math.inf
        return Constants(slope, self.radius, self.dimension, epsilon, delta, None, self.strong_convexity, smooth)

    def objective(self, added: float, tally: list[int]) -> GeneralObjective:
        """Return F with lambda/2 |w|^2 more; it counts its evaluations in ``tally``."""
        bent, pull, kink, corner = self._parts
        known = self.constants(1.0, 0.0)

        def function(weights: Floats) -> tuple[float, Floats]:
            tally[0] += 1
            away = weights - corner
            distance = float(np.linalg.norm(away))
            slope = (bent + added) * weights - pull
            if kink and distance > 0:
                slope = slope + kink * away / distance
            return self.value(weights) + added / 2 * float(weights @ weights), slope

        return GeneralObjective(
            function,
            self.dimension,
            strong_convexity=self.strong_convexity + added,
            lipschitz=known.lipschitz,
            smoothness=known.smoothness + added if known.smooth else math.inf,
        )

    def value(self, weights: Floats) -> float:
        """Return F."""
        bent, pull, kink, corner = self._parts
        return float(weights @ (bent * weights / 2 - pull)) + kink * float(np.linalg.norm(weights - corner))

    def excess(self, weights: Floats) -> float:
        """Return the excess risk of weights."""
        bent, pull, kink, corner = self._parts
        if not kink:
            best = pull / bent
        elif not self.strong_convexity:
            best = corner
        else:
            away = pull - corner
            best = corner + (1 - kink / max(kink, float(np.linalg.norm(away)))) * away
        return self.value(weights) - self.value(best)
