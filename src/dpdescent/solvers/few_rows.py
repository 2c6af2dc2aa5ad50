r"""Descent with few effective rows: a direction, and then how far to go along it.

With fewer than 300 effective rows, :math:`n\mu`, the noise of a whole weight vector is as long as the vector itself,
while the noise of a few numbers is not. So the weights are found in two stages, after the label counts (at most 20%
of the budget) and two moments of every column have been measured. (With fewer than 60 effective rows, public ranges
that lie on one side of 0 are centred at their middles instead; if there are none, and more columns than effective
rows, the columns stay as they are.)

*Direction.* T noisy gradients in the frame of centred and scaled columns, all added up, beginning at the constant
that fits the label counts. The step size is the one with which their noise alone gives the score of a typical row a
standard deviation of 0.6 to 1.5. It need not suit the signal, whose length the second stage measures. Where the sum
of the gradients so far is longer than its noise explains, steps are longer in that proportion: a clear signal lets
the descent leave the first direction for better ones. This length is computed from released gradients, so that it
costs nothing.

*Calibration.* At most 20% of the budget is spent on two parameters alone, for all classes together: how far to go
along the direction, in units of its noise, and the intercept. Each noisy slope updates an estimate with a variance,
in the manner of Kalman (1960): the noise of every answer is known, so an answer is weighted by how precise it is.
The first estimate of the length is that of a step to the minimum, as far as the sum of the gradients is longer than
its noise explains: where the rows say nothing, it is 0. Counts are replaced by posterior means (`posterior_shares`).
Gradients of the first stage are clipped, so that what they tell of the intercept counts as doubtful by log 2, and by
less where a clear signal moves the intercept further than that.

A direction ranks rows well long before its length can be trusted, so that a model calibrated in this way is
hardly worse than the class frequencies where there is no signal, and much better where there is.

References
----------
James, W. & Stein, C. (1961). Estimation with quadratic loss. Fourth Berkeley Symposium 1.
Kalman, R. E. (1960). A new approach to linear filtering and prediction problems. Journal of Basic Engineering 82(1).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ..arrays import Floats
from ..curator import Curator
from ..problems import Frame, LabelKind, LinearProblem, Need, Whitening
from ..queries import Gradient, LabelCounts, MeanRowNorm
from .coordinates import Columns, measure_columns, measure_mean_length, public_frame
from .method import Progress, SolverResult, report
from .rules import effective_rows, gradient_deviation

if TYPE_CHECKING:
    from .auto import AutoSettings


FEW_ROWS = 300  # n mu, below which a direction and its length are learnt one after the other
_SCALING_ROWS = 60  # n mu; with fewer of them, and fewer than columns, the columns are left as they are
_LONGEST_ENTRY = 2.0  # typical size of the largest entries of a scaled column
_COUNTED_ROWS, _CALIBRATING_ROWS = 3.0, 20.0  # shares of the budget for these stages, times n mu,
_LARGEST_SHARE = 0.2  # which are at most this
_CALIBRATING_STEPS = 6
_FEWEST_STEPS, _MOST_STEPS, _STEPS_A_ROW = 24, 150, 0.5
_CLIP, _CALIBRATION_CLIP = 0.5, 0.75  # in units of the length of a typical row
_SHIFT = 0.3  # share of the noise variance of scores that is common to all rows: the intercept corrects it
_STABLE = 4.0  # largest product of step size and squared length: for a curvature of 1/4, a step to the minimum
CLIPPING = 0.05  # variance of the intercept for the bias of clipping, which affects rare classes most
_DOUBTED = 0.8  # deviation of a first length, as a share of that with which the first stage ends
_CLIPPED = math.log(2)  # error of a constant that only clipped gradients have shown: clipping halves pulls
_SCORE = 1.5  # a typical score in those units
_SHORTEST = 0.05  # length below which a direction costs hardly any loss, and still ranks rows
_ALIKE = 1e6  # the concentration of class shares that are taken to be equal
_FAR, _PIECES, _MANY = 4.0, 400, 1e12  # deviations and pieces for a posterior mean, and rows that have it
_DRIFT = 0.005  # what a step of the calibration adds to a variance, since curvatures are not constant
_LARGEST_WORK = 5e8  # number of cells that may be read


def learns_from_few_rows(problem: LinearProblem) -> bool:
    """Return whether a problem has classes, columns, an intercept, and a constant to start from."""
    return fits_classes(problem) and 2 <= problem.grid.dimension <= Whitening.largest_dimension


def fits_classes(problem: LinearProblem) -> bool:
    """Return whether a problem has classes, an intercept, and a constant that fits their counts."""
    classes = problem.loss.labels.kind is not LabelKind.NUMBERS
    return classes and problem.intercept and Need.CONSTANT in problem.loss.offers


@dataclass(frozen=True)
class Estimate:
    """A parameter, or one for each class, and the variance of its error."""

    value: Any
    variance: Any

    def after(self, slope: Any, noise: Any, curvature: Any) -> Estimate:
        """Return the estimate after a noisy slope of a parabola of that curvature was seen at ``value``."""
        gain = self.variance / (self.variance + (noise / curvature) ** 2)
        return Estimate(self.value - gain * slope / curvature, (1 - gain) * self.variance)

    def drifted(self, variance: float) -> Estimate:
        return replace(self, variance=self.variance + variance)


def buy_direction_and_length(
    curator: Curator, settings: AutoSettings, progress: Progress | None = None, columns: Columns | None = None
) -> SolverResult:
    """Buy a model of a problem with classes: find a direction, then calibrate it.

    ``columns`` are the moments of the columns, where they have been measured already.
    """
    rows, budget = effective_rows(curator), curator.budget
    problem = curator.problem
    steps = settings.iterations or _steps(rows, curator.rows * problem.grid.dimension)
    largest = min(_LARGEST_SHARE, (1 - 2 * settings.share_norm - settings.share_columns) / 3)
    wanted = _COUNTED_ROWS * problem.loss.labels.number_of_classes / 2, _CALIBRATING_ROWS
    counting, calibrating = (min(largest, each / rows) * budget for each in wanted)
    faintest = curator.gaussian(min(calibrating / _CALIBRATING_STEPS, largest * budget / steps))
    curator.require_answerable(Gradient(np.zeros(problem.shape), 1.0, faintest))  # raises before the first charge

    intercept, curvature = measure_constant(curator, counting)
    frame, features = _measure_coordinates(curator, settings, rows, columns)
    length = math.sqrt(1 + features**2)
    clip = (settings.clip or _CLIP) * length

    amount = (curator.remaining - calibrating) / steps
    noise = gradient_deviation(curator, clip, curator.gaussian(amount))
    spread = min(max(rows / 200, 0.6), 1.5)
    stable = min(_STABLE / features**2, _stable(problem, frame))
    slowest = min(spread / (noise * math.sqrt(steps) * features), stable)
    point, walked = np.zeros(problem.shape), 0.0
    total = np.zeros_like(point[:-1])
    lengths: list[float] = []
    for step in range(steps):
        point[-1] = intercept.value
        weights = point if frame is None else frame.weights(point)
        gradient = curator.answer(Gradient(weights, clip, curator.gaussian(amount), frame, joint=True))
        total += gradient[:-1]
        signal = _signal(total, (step + 1) * noise**2)
        rate = min(slowest * max(1.0, signal), stable)
        walked += rate**2
        point[:-1] -= rate * gradient[:-1]
        doubt = np.hypot(noise, math.sqrt(steps) * _CLIPPED / (1 + signal**2) ** 2 * curvature)
        shifted = _SHIFT * (rate * noise * features) ** 2
        intercept = intercept.after(gradient[-1], doubt, curvature).drifted(shifted)
        lengths.append(rate * float(np.linalg.norm(gradient[:-1])))
        report(progress, 1 - curator.remaining / budget)
    point[-1] = 0.0
    direction = point if frame is None else frame.weights(point)
    direction = direction / (math.sqrt(walked) * noise * features)
    spread *= math.sqrt(walked / steps) / slowest
    unit = len(total) / (steps * float(np.mean(curvature)) * features)
    first = _first_length(total, math.sqrt(steps) * noise, unit, spread)
    doubted = intercept.drifted(CLIPPING)
    calibrated = _buy_calibration(curator, direction, first, doubted, curvature, lengths, progress)
    remark = (
        f"with about {rows:.0f} effective rows, the direction of the coefficients was learnt first, then its length"
    )
    return SolverResult(calibrated, len(lengths), tuple(lengths), (remark,))


def _first_length(total: Floats, noise: float, unit: float, longest: float) -> Estimate:
    """Return the length of a sum of gradients that a step to the minimum has, as far as it is more than noise.

    ``noise`` is the deviation of each coordinate of the sum, ``unit`` what turns it into scores. The part of its
    square that noise and one deviation of it explain is left out (James & Stein 1961).
    """
    seen = float(np.mean(total**2)) / noise**2
    kept = max(0.0, 1 - (1 + math.sqrt(2 / total.size)) / max(seen, 1e-300))
    length = min(kept * unit * noise, longest)
    return Estimate(length, max(_DOUBTED * longest, length / 2) ** 2)


def _signal(total: Floats, variance: float) -> float:
    """Return how long a vector is without its noise, in units of that noise, of known variance per entry."""
    return math.sqrt(max(float(np.mean(total**2)) / variance - 1, 0.0))


def _steps(rows: float, cells: int) -> int:
    """Return T: more steps with more effective rows, as many as time allows."""
    return round(max(_FEWEST_STEPS, min(_STEPS_A_ROW * rows, _MOST_STEPS, _LARGEST_WORK / cells)))


def _measure_coordinates(
    curator: Curator, settings: AutoSettings, rows: float, columns: Columns | None
) -> tuple[Frame | None, float]:
    """Pay for and measure coordinates; return them and the typical row length, without the constant.

    With hardly any rows the coordinates are public. Norms are then clipped at the square root of their bound, because
    smaller norms hardly matter, whereas the noise of a larger clip norm would.
    """
    norm_amount = settings.share_norm * curator.budget
    known = public_frame(curator.problem)
    if columns is None and rows < _SCALING_ROWS and (known is not None or rows < curator.problem.grid.dimension - 1):
        ceiling = math.sqrt(curator.problem.grid.row_bound)
        amount = norm_amount + settings.share_columns * curator.budget / 2
        norm = min(curator.answer(MeanRowNorm(curator.gaussian(amount), known, ceiling)), ceiling)
        constant = 1 if known is None else 0  # what a norm in a frame leaves out
        return known, math.sqrt(max(norm**2 - constant, 0.25 * ceiling**2))
    if columns is None:
        columns = measure_columns(curator, norm_amount, settings.share_columns * curator.budget, _LONGEST_ENTRY)
    assert columns.frame is not None, "a problem with an intercept has a frame"
    return columns.frame, max(measure_mean_length(curator, columns, norm_amount), 0.2)


def _stable(problem: LinearProblem, frame: Frame | None) -> float:
    """Return the largest step size with which descent on the penalty is stable."""
    penalty = problem.penalty_curvature(np.zeros(problem.shape)).reshape(problem.shape[0], -1)[:, 0]
    stretched = penalty if frame is None else penalty * 4.0**frame.doublings
    return 1 / max(float(np.max(stretched)), 1e-300)


def measure_constant(curator: Curator, amount: float) -> tuple[Estimate, Any]:
    """Pay for and measure the label counts; return the constant that fits them, and the curvature there."""
    loss = curator.problem.loss
    counts = curator.answer(LabelCounts(curator.gaussian(amount)))
    shares, variances = posterior_shares(counts / curator.rows, count_deviation(curator, amount))
    weighted = shares * loss.class_weights
    curvatures = weighted * (1 - weighted / weighted.sum())
    doubts = variances / (shares * (1 - shares)) ** 2
    if loss.outputs == 1:
        curvatures, doubts = curvatures[0], doubts[0]
    return Estimate(loss.best_constant(_MANY * shares), doubts), curvatures


def count_deviation(curator: Curator, amount: float) -> float:
    """Return the deviation of the noise in label counts for ``amount``, as a share of the rows; at least that."""
    halves = curator.problem.loss.labels.kind is LabelKind.SIGNS and curator.rows_per_unit == 1
    return curator.deviation(0.5 if halves else 1.0, amount)


def posterior_shares(noisy: Floats, deviation: float) -> tuple[Floats, Floats]:
    """Return the posterior means of class shares, and their variances, where normal noise was added to them.

    A share of K has the prior Beta(a/K, a - a/K): Jeffreys's with a = 1 for two classes, the uniform one of all
    shares together with a = K for more. Where noise and a larger a explain how far they differ, they have that one
    (empirical Bayes): what differs by its noise alone is taken to be alike.
    """
    classes, equal = noisy.size, 1 / noisy.size
    total = 1.0
    if classes > 2:
        differ = float(np.mean((noisy - equal) ** 2)) - deviation**2
        total = max(classes, min(equal * (1 - equal) / max(differ, 1e-300) - 1, _ALIKE))
    seen = np.clip(noisy, -_FAR * deviation, 1 + _FAR * deviation)[:, None]
    ends = np.clip(seen + 2 * _FAR * deviation * np.array([-1, 1]), 0, 1)
    low, high = np.split(np.arcsin(np.sqrt(ends)), 2, axis=1)  # a share is the squared sine of an angle
    angles = low + (high - low) * (np.arange(_PIECES) + 0.5) / _PIECES
    share = np.sin(angles) ** 2
    prior = (2 * total * equal - 1) * np.log(np.sin(angles)) + (2 * total * (1 - equal) - 1) * np.log(np.cos(angles))
    chance = prior - ((share - seen) / deviation) ** 2 / 2
    chance = np.exp(chance - chance.max(axis=1, keepdims=True))
    chance /= chance.sum(axis=1, keepdims=True)
    means = np.sum(chance * share, axis=1)
    variances = np.sum(chance * (share - means[:, None]) ** 2, axis=1)
    return means / means.sum(), variances


def _buy_calibration(
    curator: Curator,
    direction: Floats,
    length: Estimate,
    intercept: Estimate,
    curvature: Any,
    lengths: list[float],
    progress: Progress | None,
) -> Floats:
    """Spend what is left on the length of a direction, given in units of its noise, and on the intercept."""
    problem = curator.problem
    outputs = problem.loss.outputs
    constant = np.zeros((problem.grid.dimension, 1))
    constant[-1] = 1.0
    frame = Whitening(problem.grid, np.hstack([direction.reshape(-1, outputs), constant]))
    clip = _CALIBRATION_CLIP * math.sqrt(1 + _SCORE**2 * outputs)
    steepness = (
        2 * outputs * float(np.mean(curvature))
    )  # of the loss along the direction: scores have a variance of about 2

    def weights() -> Floats:
        along: Floats = length.value * direction
        along[-1] += intercept.value
        return along

    # Rows of a unit are clipped one by one: along so few parameters they hardly cancel each other.
    for left in range(_CALIBRATING_STEPS, 0, -1):
        amount = curator.remaining / left
        noise = curator.deviation(clip, amount)
        gradient = curator.answer(Gradient(weights(), clip, curator.gaussian(amount), frame))
        slope = float(np.trace(gradient[:-1].reshape(outputs, outputs)))
        before = length.value
        length = length.after(slope, noise * math.sqrt(outputs), steepness).drifted(_DRIFT)
        length = replace(length, value=max(length.value, _SHORTEST))
        intercept = intercept.after(gradient[-1], noise, curvature).drifted(_DRIFT)
        lengths.append(abs(length.value - before))
        report(progress, 1 - curator.remaining / curator.budget)
    return weights()
