r"""How long the weights of a tilted model are, and its intercept, from counts of margins.

A tilt tau weighs rows with large losses more, and so it makes weights shorter: the length decides how large the
largest losses are, while the best direction hardly depends on tau. (On Adult, without privacy, for tilts from 0.1 to
10: the minimiser of the mean loss, with the best length and intercept, has a tilted loss within 0.01 of the least.) A
direction is bought best by minimising the mean loss, in which no row has more than its share. Its length is then
bought for a small part of the budget. For released weights w the margins t = x . w are counted in intervals, for
either class, and

.. math:: \frac1\tau \log \sum_k n_k e^{\tau l(c\, (t_k - y_k \sigma(w)) + b,\; y_k)}

is minimised over the length 0 <= c <= 1 and, where there is an intercept, over its shift b. It is convex, since the
losses are. sigma is the support function of an adversary's moves, which grows with the length.

Intervals double, from 1/32 of a typical margin, |w| times the typical length of a row, to 4 times that. Weights that
are too long cost much more than weights that are too short, so what the noise may hide is assumed to be there: beyond
the outermost count of more than four standard deviations of its noise, one standard deviation in every interval up to
half a typical margin. What is seen of a class is multiplied up to its total, if that is larger. Unless both classes
have such a count, the intercept stays, and weights are so short that one row has at most e times its share at a
typical margin. (Chosen on Adult, at epsilons from 0.05 to 0.8, and on a synthetic table of 3,000 to 20,000 rows.)

**Privacy** Post-processing of released weights and counts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.optimize import minimize

from ..arrays import Floats
from ..problems import Loss
from ..problems.adversary import Support

_POWERS = np.arange(-5.0, 3.0)  # of two, at which intervals end
_NEAR = int(np.count_nonzero(_POWERS < -1))  # intervals on either side of the middle one within half a typical margin
_SURE, _HIDDEN = 4.0, 1.0  # standard deviations of the noise


@dataclass(frozen=True, eq=False)
class LengthSearch:
    """Chooses the length of released weights, and shifts their intercept, for a tilt.

    Parameters
    ----------
    loss : Loss
        Of labels -1 and 1, convex.
    tilt : float
        tau, positive.
    weights : ndarray
        Released; the last one is the intercept, if there is one.
    intercept : bool
    row_length : float
        The typical length of a row.
    support : Support, optional
        Of the adversary's moves.
    """

    loss: Loss
    tilt: float
    weights: Floats
    intercept: bool
    row_length: float
    support: Support | None = None

    @property
    def typical_margin(self) -> float:
        """The margin of a row of typical length in the direction of the weights."""
        return max(self.row_length * float(np.linalg.norm(self.weights)), 2.0**-400)

    @property
    def edges(self) -> Floats:
        """Between which margins are counted."""
        positive = self.typical_margin * 2.0**_POWERS
        return np.concatenate([-positive[::-1], positive])

    def best(self, counts: Floats, deviation: float) -> tuple[float, float]:
        """Return length and shift, from counts of margins with noise of that standard deviation."""
        if not (counts > _SURE * deviation).any(axis=1).all():
            return min(1.0, 1 / (self.tilt * self.loss.lipschitz * self.typical_margin)), 0.0
        kept = np.array([_with_hidden(each, deviation) for each in counts])
        middles = self.typical_margin * 2.0 ** (_POWERS + 0.5)
        margins = np.tile(np.concatenate([-middles[::-1], [0.0], middles]), 2)
        labels = np.repeat([-1.0, 1.0], margins.size // 2)
        seen = kept.reshape(-1) > 0
        margins, labels, logarithms = margins[seen], labels[seen], np.log(kept.reshape(-1)[seen] / kept.sum())
        moved = 0.0 if self.support is None else self.support.value_and_gradient(self.weights)[0]

        def tilted(point: Floats) -> tuple[float, Floats]:
            at = point[0] * (margins - labels * moved) + point[1]
            exponents = self.tilt * self.loss.values(at, labels) + logarithms
            shares = np.exp(exponents - exponents.max())
            slopes = self.loss.residuals(at, labels) * shares / shares.sum()
            value = (exponents.max() + math.log(shares.sum())) / self.tilt
            return value, np.array([slopes @ (margins - labels * moved), slopes.sum()])

        farthest = self.typical_margin if self.intercept else 0.0
        found = minimize(tilted, [1.0, 0.0], jac=True, bounds=[(0.0, 1.0), (-farthest, farthest)])
        return float(found.x[0]), float(found.x[1])

    def rescale(self, length: float, shift: float) -> Floats:
        """Return the weights of that length and shift."""
        weights: Floats = length * self.weights
        if self.intercept:
            weights[-1] += shift
        return weights


def _with_hidden(counts: Floats, deviation: float) -> Floats:
    """Return the counts of one class up to the outermost that are sure, and what may hide beyond."""
    sure, middle = np.flatnonzero(counts > _SURE * deviation), counts.size // 2
    first, last = int(sure[0]), int(sure[-1])
    seen = np.maximum(counts[first : last + 1], 0.0)
    kept = np.zeros_like(counts)
    kept[min(first, middle - _NEAR) : max(last, middle + _NEAR) + 1] = _HIDDEN * deviation
    kept[first : last + 1] = seen * max(counts.sum() / seen.sum(), 1.0)
    return kept
