"""Losses written from nothing but the three methods and the facts that a loss must declare."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from dpdescent.exact import exp, sigmoid, softplus
from dpdescent.problems import Labels, Loss, Need

#: What `PlainPoisson` and `PlainLogistic` offer: nothing but what follows from their facts.
PLAIN = frozenset({Need.CONVEX, Need.SMOOTH, Need.BOUNDED_SLOPE, Need.BOUNDED_VERSION}) | {
    Need.ONE_MARGIN,
    Need.CERTIFICATE,
    Need.CORNERS,
}


@dataclass(frozen=True)
class PlainLogistic(Loss):
    """The logistic loss of two classes, as somebody would write it who knows no more than the contract."""

    labels = Labels.signs()
    lipschitz = 1.0
    smoothness = 0.25
    curvature_lipschitz = 1 / (6 * math.sqrt(3))
    convex = True

    def values(self, margins, labels):
        return softplus(-labels * margins)

    def residuals(self, margins, labels):
        return -labels * sigmoid(-labels * margins)

    def curvatures(self, margins, labels):
        probability = sigmoid(-np.abs(margins))
        return probability * (1 - probability)


@dataclass(frozen=True)
class PlainPoisson(Loss):
    """exp(t) - y t + y of numbers in [0, 5]: no function of one position, and linear beyond t = log 5."""

    labels = Labels.numbers(0.0, 5.0)
    lipschitz = 5.0
    smoothness = 5.0
    curvature_lipschitz = math.inf
    convex = True
    most = 5.0

    def _cut(self, margins):
        return np.minimum(margins, math.log(self.most))

    def values(self, margins, labels):
        cut = self._cut(margins)
        # y - y t + y log 5 is never negative where t is at most log 5.
        rest = labels * (math.log(self.most) - cut) + (self.most - labels) * (margins - cut)
        return exp(cut) + rest

    def residuals(self, margins, labels):
        return exp(self._cut(margins)) - labels

    def curvatures(self, margins, labels):
        return np.where(margins <= math.log(self.most), exp(self._cut(margins)), 0.0)
