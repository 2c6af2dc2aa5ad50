r"""The best that any test can do against a guarantee: the trade-off between its two kinds of error.

Somebody who sees what was released wants to tell two neighbouring tables apart. A test has false positives, of
probability a, and false negatives, of probability b. A guarantee bounds b from below by a curve f(a), for every test
at once, whatever it knows beside the one row in question:

===========  ==========================================================================================
guarantee    f(a)
===========  ==========================================================================================
mu-GDP       :math:`\Phi(\Phi^{-1}(1 - a) - \mu)`, exactly (Dong, Roth & Su 2022)
(e, d)-DP    max(0, 1 - d - exp(e) a, exp(-e) (1 - d - a)), exactly (Wasserman & Zhou 2010)
rho-zCDP,    the largest of the curves of all (e, d(e)) that it implies
one D_a
===========  ==========================================================================================

With probability s, that of failures which a currency does not count, each of the two laws may be another one; then
b is at least f(a + s) - s.

References
----------
Dong, J., Roth, A. & Su, W. (2022). Gaussian differential privacy. arXiv:1905.02383.
Wasserman, L. & Zhou, S. (2010). A statistical framework for differential privacy. arXiv:0811.2501.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import expit, ndtr, ndtri

from ..arrays import Floats
from ..errors import require_open_unit
from .conversions import rdp_to_delta, zcdp_to_delta
from .currencies import GDP, RDP, ZCDP, Currency

_LINES = 48  # number of pairs (e, d(e)) by which a curve is bounded
_THRESHOLDS = np.linspace(-40.0, 40.0, 4001)  # log-odds of false positives


@dataclass(frozen=True)
class TradeOff:
    """How well a test can tell two neighbouring tables apart, at the very best.

    Examples
    --------
    >>> from dpdescent.accounting import Pure, TradeOff
    >>> curve = TradeOff(1.0, 0.0, Pure(), 1.0)
    >>> round(float(1 - curve.false_negatives(0.01)), 4)
    0.0272
    """

    #: The guarantee as a pair.
    epsilon: float
    delta: float
    currency: Currency
    total: float  # the guarantee in the currency, which says more than one pair does

    def false_negatives(self, false_positives: float | Floats) -> Floats:
        """Return the least share of false negatives of a test with that share of false positives."""
        given = np.asarray(false_positives, dtype=np.float64)
        slack = self.delta * float(self.currency.uncounted) if self.currency.uncounted < 1 else 0.0
        shifted = np.minimum(1.0, given + slack)
        found = self._lines(given, self.epsilon, self.delta)
        if isinstance(self.currency, GDP):
            with np.errstate(divide="ignore"):
                curve = ndtr(-ndtri(shifted) - math.sqrt(self.total) * (1 + 2.0**-50))
            found = np.maximum(found, curve - slack)
        for epsilon, delta in self._pairs:
            found = np.maximum(found, self._lines(shifted, epsilon, delta) - slack)
        return np.clip(found, 0.0, 1.0)

    @cached_property
    def _pairs(self) -> tuple[tuple[float, float], ...]:
        """Return pairs (epsilon, delta) that the total implies."""
        if not isinstance(self.currency, ZCDP | RDP):
            return ()
        epsilons = self.epsilon * np.linspace(0.0, 1.0, _LINES)
        if isinstance(self.currency, ZCDP):
            return tuple((e, zcdp_to_delta(self.total, e)) for e in epsilons.tolist())
        return tuple((e, rdp_to_delta(self.total, self.currency.order, e)) for e in epsilons.tolist())

    @staticmethod
    def _lines(false_positives: Floats, epsilon: float, delta: float) -> Floats:
        factor = math.exp(min(epsilon, 700.0))
        left, right = 1 - delta - factor * false_positives, (1 - delta - false_positives) / factor
        return np.maximum(0.0, np.maximum(left, right))

    def right_guesses(self, prior: float) -> float:
        """Return the largest probability of a right guess whether the row is there, by somebody with that belief."""
        prior = require_open_unit("prior", prior)

        def wrong(false_positives: Floats) -> Floats:
            return (1 - prior) * false_positives + prior * self.false_negatives(false_positives)

        grid = expit(_THRESHOLDS)
        best = int(np.argmin(wrong(grid)))
        near = np.linspace(grid[max(0, best - 1)], grid[min(grid.size - 1, best + 1)], 2001)
        return float(1 - min(wrong(near).min(), prior, 1 - prior))

    def belief_after(self, prior: float, false_positives: float) -> float:
        """Return the largest belief after a test of that share of false positives has found the row."""
        prior = require_open_unit("prior", prior)
        power = 1 - float(self.false_negatives(false_positives))
        return prior * power / (prior * power + (1 - prior) * false_positives)
