r"""The Poisson loss of counts with a public upper bound.

A count y in [0, H] with the mean exp(x . w) has the negative log-likelihood exp(x . w) - y x . w, up to a constant.
Neither its slope nor its curvature is bounded. In units of H, with u = y/H and s = x . w - log H, it is H times

.. math:: l(s, u) = e^s - u s \quad (s \le 0), \qquad l(s, u) = 1 + (1 - u) s \quad (s > 0).

Beyond s = 0, where the mean would exceed every count, the loss goes on as a straight line. Its slope lies between -u
and 1 - u, and its curvature is e^s or 0: both are at most 1. The loss is convex, and never negative. No count is best
fitted by a mean above H, so the line changes the minimiser only if it has rows beyond s = 0.

**Where zero is.** Solvers start from weights of zero. The margin is t = s - log(start), so that weights of zero
predict the mean start H. A value in the middle of the range is closer to the counts of most tables than H itself.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..errors import InvalidParameter, require_positive
from ..exact import exp, log
from .contract import Loss
from .labels import Labels

__all__ = ["Poisson"]

Floats = NDArray[np.float64]

_LEAST_START = 2.0**-40  # the loss is flat beyond margins of 64 then, and its values keep their digits
_LEAST_MEAN = 2.0**-20  # of a constant, where noise hides all counts
_CAPPED = 1 - 2.0**-40  # curvatures above this count as 0: the residual of a capped row may be rounded


@dataclass(frozen=True)
class Poisson(Loss):
    """e^s - u s with s = t + log(start) for s <= 0, and 1 + (1 - u) s beyond: counts in units of the largest one.

    Parameters
    ----------
    start : float
        The mean at a margin of 0, in the same units: from 2^-40 to 1.
    """

    start: float = 0.25
    labels = Labels.numbers(0, 1)
    lipschitz = 1.0
    smoothness = 1.0
    curvature_lipschitz = math.inf
    convex = True
    flat_beyond = 64.0

    def __post_init__(self) -> None:
        if not _LEAST_START <= require_positive("start", self.start) <= 1:
            raise InvalidParameter(f"start must lie between 2^-40 and 1, the largest count, got {self.start}")

    @property
    def offset(self) -> float:
        """log(start), with the same digits on every machine."""
        return float(log(np.array([self.start]))[0])

    def _below_and_above(self, margins: Floats) -> tuple[Floats, Floats]:
        positions = margins + self.offset
        return np.minimum(positions, 0.0), np.maximum(positions, 0.0)

    def values(self, margins: Floats, labels: Floats) -> Floats:
        below, above = self._below_and_above(margins)
        return exp(below) - labels * below + (1 - labels) * above  # no term is negative

    def residuals(self, margins: Floats, labels: Floats) -> Floats:
        below, _ = self._below_and_above(margins)
        return exp(below) - labels

    def curvatures(self, margins: Floats, labels: Floats) -> Floats:
        below, above = self._below_and_above(margins)
        return np.where(above > 0, 0.0, exp(below))

    def typical_curvatures(self, residuals: Floats, labels: Floats) -> Floats:
        means = residuals + labels
        return np.where(means < _CAPPED, np.maximum(means, 0.0), 0.0)

    def largest(self, reach: float) -> float:
        # Convex in the margin and linear in the label: largest at a corner of both.
        ends = np.array([-reach, reach, -reach, reach])
        return float(self.values(ends, np.array([0.0, 0.0, 1.0, 1.0])).max())

    def best_constant(self, noisy: Floats) -> float:
        mean = min(max(float(noisy[0]), _LEAST_MEAN), 1.0)
        return math.log(mean) - self.offset
