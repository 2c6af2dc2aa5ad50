r"""Where a regression starts, and how long its gradients may be: the released mean, and the size of residuals.

*The constant.* Descent from the middle of the range of the labels would need as many steps as it takes to reach their
mean, and with few rows it never gets there. The mean label is bought first, for at most a tenth of the budget, and
descent starts at the constant that fits it best (`Loss.best_constant`). With fewer than 45 effective rows that is all
that can be learnt, and the whole budget is spent on it.

*The clip norm.* A gradient is a residual times a row, and residuals are much shorter than the range of the labels.
Their mean square r^2 is measured twice, each time for 1% of the budget: at the constant, and after a quarter of the
steps. Gradients are clipped at kappa r times the length of a typical row, if that is less than the
usual norm, with kappa = max(3, k/30), k = n mu/D. Noise adds about (kappa/k)^2 of the residual variance to the
error, so that kappa may grow with k until it clips nothing: then noise costs a few thousandths of that variance, and
tails of residuals cost no bias. A standard deviation of its noise is added to r^2, since a norm that is
too large costs less than one that is too small.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats
from ..curator import Curator
from ..problems import LabelKind, LinearProblem, Need
from ..queries import LabelSum, ResidualScale
from ..relations import Sensitivity
from .rules import effective_rows

SCALE_AGAIN = 4  # the size of residuals is measured again after this part of the steps
_SCALE_SHARE = 0.01  # of the budget, each time
_CONSTANT_ROWS, _LEAST_SHARE, _LARGEST_SHARE = 4.0, 0.01, 0.1  # share for the mean label: 4/(n mu), within limits
_LEAST_CURVATURE = 0.1  # in which the noise of a mean is divided, that of a constant
_LEAST_MULTIPLE, _RICHNESS = 3.0, 30.0  # kappa is at least the first, or k over the second


@dataclass(frozen=True)
class Start:
    """Where a descent starts: a constant, its noise, and the largest clip norm in units of a typical row's length."""

    constant: Any
    deviation: float
    clip: float


def fits_numbers(problem: LinearProblem) -> bool:
    """Return whether a problem has numbers for labels, an intercept, and a constant that fits their mean."""
    numbers = problem.loss.labels.kind is LabelKind.NUMBERS and problem.loss.outputs == 1
    return numbers and problem.intercept and Need.CONSTANT in problem.loss.offers


def measure_start(curator: Curator, rows_of_privacy: float, only: bool) -> Start:
    """Pay for the mean label and, unless the constant is the ``only`` parameter, for the size of residuals."""
    share = min(max(_CONSTANT_ROWS / rows_of_privacy, _LEAST_SHARE), _LARGEST_SHARE)
    amount = curator.remaining if only else share * curator.budget
    mean = curator.answer(LabelSum(curator.gaussian(amount))) / curator.rows
    loss = curator.problem.loss
    noise = curator.deviation(max(-loss.labels.low, loss.labels.high), amount)
    mean = min(max(mean, loss.labels.low + noise), loss.labels.high - noise)  # what noise hides is no extreme mean
    constant = float(loss.best_constant(np.array([mean])))
    steepness = float(loss.curvatures(np.array([constant]), np.array([mean]))[0])
    deviation = noise / max(steepness, _LEAST_CURVATURE)
    if only:
        return Start(constant, deviation, math.inf)
    weights = np.zeros(curator.problem.shape)
    weights[-1] = constant
    return Start(constant, deviation, measure_longest(curator, weights))


def measure_longest(curator: Curator, weights: Floats) -> float:
    """Pay for the size of the residuals; return the largest clip norm, in units of the length of a typical row."""
    amount = _SCALE_SHARE * curator.budget
    noise = curator.deviation(1.0, amount, Sensitivity.of_bounded_sum)
    square = max(curator.answer(ResidualScale(weights, curator.gaussian(amount))), 0.0) + noise
    richness = effective_rows(curator, curator.problem.grid.dimension)
    return max(_LEAST_MULTIPLE, richness / _RICHNESS) * math.sqrt(square)
