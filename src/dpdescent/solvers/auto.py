r"""Descent that tunes itself: whitened coordinates, a measured curvature, averaged iterates.

There is nothing to choose. With fewer than 300 effective rows, classifiers are trained by
`dpdescent.solvers.few_rows`. Otherwise, with :math:`\mu` the Gaussian DP parameter of the whole budget, the run
spends

- 1% on the mean norm of the rows and 8% on two moments of every column: *scales and centres*;
- 1% on the mean norm of the scaled rows and 12% on their second moments, which give directions of comparable length:
  *whitening* (`dpdescent.solvers.coordinates`). More than 2,000 columns are projected to 500 first, or only scaled
  where there are enough effective rows. With less than half an effective row per column, a classifier is trained as
  with few rows;
- the rest on T gradients, 2% of the budget on the mean curvature at the same points;
- for two classes, 10/(n mu) of the budget, at most 5%, on the intercept at the end, before which this is set aside.

In the whitened coordinates rows have a predicted typical length R, so the clip norm c R means the same for every
table: with :math:`k = n \mu / D` effective rows per parameter, c = max(0.5, 0.25 k^0.3). A step is
:math:`\eta_t g / h`, h being the curvature and :math:`\eta_t = \max(1/t, 0.4)`, and is shortened where it is longer
than noise and a trust radius explain. The answer is the average of the iterates, weighted by t^2.

**Privacy.** Every release is a Gaussian mechanism, so the costs :math:`\mu_i^2` add up exactly (Dong, Roth & Su
2022). All that is derived from releases, the frame, the clip norm, the steps and the average, is post-processing.

References
----------
Dong, J., Roth, A. & Su, W. (2022). Gaussian differential privacy. JRSS-B 84(1).
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np

from ..arrays import Floats
from ..curator import Curator
from ..errors import InvalidParameter
from ..exact import one_library_thread, sigmoid
from ..problems import Frame, LinearProblem, Whitening
from ..queries import Gradient, GradientAndCurvature, moment_bits, require_frame
from .coordinates import (
    ROWS_PER_DIRECTION,
    SOME_ROWS,
    AverageNoise,
    Columns,
    damping_to,
    measure_columns,
    measure_whitening,
)
from .few_rows import (
    CLIPPING,
    FEW_ROWS,
    Estimate,
    buy_direction_and_length,
    fits_classes,
    learns_from_few_rows,
    measure_constant,
)
from .method import Count, Fraction, Progress, Settings, SolverResult, Within, method, report
from .prior_first import SCALE_AGAIN, Start, fits_numbers, measure_longest, measure_start
from .rules import (
    ADAPTIVE_CLIP,
    Facts,
    clip_multiple,
    constant_of_same_mean,
    effective_rows,
    gradient_deviation,
    usual_smoothness,
)

_Paid = Annotated[float, Within(1e-9, 1, remedy="a smaller part of the budget buys nothing but noise")]

# The constants below follow from no theorem unless it is said: docs/auto.md has the reasons for the rules, and
# measures what all of them do together.
#
# Which way to go, by the effective rows, n mu, of a run.
_FEWEST_ROWS = 10  # with fewer, only class frequencies can be learnt
LARGEST_WHITENED = 2000  # columns: the time for their second moments grows with the square of it
_PROJECTED = 500  # columns that wide tables with few rows are projected to, since they cannot be whitened
_LARGEST_PROJECTION = 2**24  # entries, 128 MB, of which several are held at once
_ROWS_PER_SQUARE = 10  # effective rows per unit of squared length that columns need if they are not whitened
_ROWS_PER_COLUMN = 0.5  # with fewer, a classifier of a wide table is trained as with few rows
_LONGEST_ENTRY = 2.0  # typical size of the largest entries of a scaled column
# How many steps: T = 32 sqrt(k/50) while time allows, and not fewer than 20 sqrt(k/2000); k = n mu/D.
_STEPS, _USUAL_RICHNESS = 32, 50
_LEAST_STEPS, _LEAST_STEPS_OF_CLASSES = 20, 32  # several classes need more steps to converge
_LARGE_RICHNESS = 2000
_LARGEST_WORK = 5e8  # number of cells that may be read for the steps after the least number of them
_FEWEST_STEPS, _MOST_STEPS = 4, 300
_LARGEST_SHARES = 0.9  # of the budget, for all but gradients
_MOST_AT_FIRST = 5 / 3  # of the usual shares of coordinates, where a part of the budget is set aside
_CONSTANT_STEPS, _CONSTANT_CLIP = 4, 0.7  # for the intercept alone
# How long a step is: eta_t g/h with eta_t = max(1/t, 0.4), in units of scores of a typical row.
_SLOWEST = 0.4
_LEAST_CURVATURE = 0.12  # share of the smoothness of the loss below which a measured curvature is not believed
_LEAST_KNOWN = 0.1  # the same, as a share of that, where noise is told and no step follows
_SPREAD_OUT, _SPREAD_OUT_MOST = 0.17, 0.75  # power of 2/K in the curvature of K classes, for each doubling of k
_SECANT_SHARE = 0.4  # of the curvature that two gradients show, as a lower bound for h: it prevents oscillations
_SURE = 3.0  # standard deviations that are not taken for noise
_TRUST = 0.6  # length of a step that is all noise
_LONGEST_STEP = 2.0
_LONE_NUMBERS = 4  # entries that a short step counts as, so that 2 deviations of noise of one number are no signal
# The average of the iterates, weighted by t^2. The variance of an average of T independent terms with these weights
# is the sum of t^4 over the square of the sum of t^2, that is 9/5 over T.
_AVERAGED = 1.8
_LEAST_SIGNAL = 0.01  # share of the scores that is kept even if noise explains all of them
# The final measurement of the intercept of two classes: its share of the budget times n mu, the largest, and its
# parts; how far each moves the intercept, which cannot overshoot by much then where the curvature changes on the way.
_FINAL_ROWS, _LARGEST_FINAL, _FINAL_PARTS = 10.0, 0.05, 3
_FINAL_STEP = 1.0
_TRUSTED = 2.0  # for two classes and curves, which are shrunk later: left alone if noise explains less than half


@dataclass(frozen=True)
class AutoSettings(Settings):
    """Settings of `auto`. The defaults are rules of public quantities, the same for every table.

    Parameters
    ----------
    share_norm, share_columns, share_whitening, share_curvature : float
        Shares of the budget for each of the two mean norms, the columns' moments, their second moments and the
        curvatures.
    iterations : int, optional
        T. By default 32 sqrt(k/50), k = n mu/D, between 32 and 300, unless that takes more than 5 10^8 cells of
        the table to go through; then 20, or 20 sqrt(k/2000) if that is more (32 instead of 20 with several classes).
        With n mu below 200, sqrt(n mu/200) of that. A classifier with n mu below 300 takes n mu/2 of them, at least
        24, to find a direction.
    clip : float, optional
        c, the clip norm of gradients and second moments in units of the typical length of a row, from 1e-6 to 1e6.
        By default max(0.5, 0.25 k^0.3).
    whitening : bool, optional
        Whether to measure second moments of all columns. By default with at most 2,000 of them; more than that may be
        projected, fewer never are.
    batch_rate : float
        Every answer comes from a fresh Poisson batch of this rate; no amplification is claimed.
    """

    share_norm: _Paid = 0.01
    share_columns: _Paid = 0.08
    share_whitening: _Paid = 0.12
    share_curvature: _Paid = 0.02
    iterations: Count | None = None
    clip: Annotated[float, Within(1e-6, 1e6, remedy="rows are about 1 long")] | None = None
    whitening: bool | None = None
    batch_rate: Fraction = 1.0
    currency: Literal["gdp", "zcdp"] = "gdp"

    def __post_init__(self) -> None:
        super().__post_init__()
        shares = [getattr(self, each.name) for each in fields(self) if each.name.startswith("share_")]
        if not self.share_norm + sum(shares) < _LARGEST_SHARES:
            raise InvalidParameter("shares of the budget must leave at least a tenth of it for the gradients")

    def choose_currency(self, facts: Facts) -> str:
        return self.currency


@method(
    "auto",
    AutoSettings,
    purpose="the default, descent in privately whitened coordinates: nothing to tune, any table",
    passes="4 for the coordinates and 20 to 300 for the steps",
    rereads=True,
    free_intercept=True,
)
def auto(curator: Curator, settings: AutoSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem, with no setting left to choose."""
    problem = curator.problem
    rows_of_privacy = effective_rows(curator)
    few = _FEWEST_ROWS <= rows_of_privacy < FEW_ROWS and settings.whitening is None
    if few and learns_from_few_rows(problem):
        _require_coordinates(curator, whitening=False)
        return buy_direction_and_length(curator, settings, progress)
    whole, paid, steps = 0, settings, None
    if curator.set_aside and settings.iterations is None:
        whole, steps, paid = _begun(curator, settings)
    two = learns_from_few_rows(problem) and problem.loss.outputs == 1
    again = two and rows_of_privacy >= FEW_ROWS and not curator.set_aside
    share = min(_FINAL_ROWS / rows_of_privacy, _LARGEST_FINAL) if again else 0.0
    first = None if progress is None else lambda done: progress((1 - share) * done)
    with curator.setting_aside(share * curator.budget):
        run = buy_descent(curator, paid, first, steps=steps)
    if isinstance(run, Columns):
        return buy_direction_and_length(curator, settings, progress, run)
    result = run.buy_result(progress) if again else run.result()
    report(progress, 1.0)
    return replace(result, resume=partial(run.buy_more, whole) if whole and run.steps == steps else None)


def _begun(curator: Curator, settings: AutoSettings) -> tuple[int, int, AutoSettings]:
    """Return the steps of a run that may be resumed, how many are taken at once, and what is paid for coordinates.

    What is set aside may come back. So coordinates get what they would of the whole budget, as far as steps can do
    without it and the given shares allow. Steps are as noisy as those of a whole run, as long as enough of them are
    left to converge.
    """
    names = ("share_norm", "share_columns", "share_whitening")
    coordinates = settings.share_norm + sum(getattr(settings, name) for name in names)
    allowed = (_LARGEST_SHARES - 0.01 - settings.share_curvature) / coordinates
    more = max(min(1 + curator.set_aside / curator.budget, _MOST_AT_FIRST, allowed), 1.0)
    rows = effective_rows(curator) * math.sqrt(more)
    whole = _iterations(rows / math.prod(curator.problem.shape), rows, curator)
    part = (1 / more - coordinates) / (1 - coordinates)
    shares = {name: more * getattr(settings, name) for name in names}
    return whole, max(round(part * whole), min(whole, _LEAST_STEPS)), replace(settings, **shares)


def buy_descent(
    curator: Curator,
    settings: AutoSettings,
    progress: Progress | None,
    trajectory: Trajectory | None = None,
    largest_clip: float = math.inf,
    steps: int | None = None,
) -> _Run | Columns:
    """Buy coordinates and all steps; return the run, or only the moments of the columns if these are too many.

    A ``trajectory`` is given what every step has released. ``largest_clip`` is for second moments, in the unit of c,
    and ``steps`` is how many there are, by default T.
    """
    problem, rows_of_privacy = curator.problem, effective_rows(curator)
    richness = rows_of_privacy / math.prod(problem.shape)
    iterations = steps or settings.iterations or _iterations(richness, rows_of_privacy, curator)
    clip = settings.clip or clip_multiple(richness, *ADAPTIVE_CLIP)
    geometry = _measure_geometry(curator, settings, rows_of_privacy, min(clip, largest_clip))
    if isinstance(geometry, Columns):
        return geometry
    if geometry.features == 0:
        iterations, clip = _plan_for_a_constant(problem, settings, rows_of_privacy)
    start = None
    if geometry.features == 0 and fits_classes(problem):
        counted, _ = measure_constant(curator, curator.remaining)
        start = Start(counted.value, float(np.sqrt(np.mean(counted.variance))), math.inf)
        iterations = 0
    if fits_numbers(problem):
        start = measure_start(curator, rows_of_privacy, only=geometry.features == 0)
        iterations = 0 if geometry.features == 0 else iterations
    run = _Run(curator, settings, geometry, iterations, clip, trajectory, start)
    for _ in range(iterations):
        run.buy_step()
        report(progress, 1 - curator.remaining / curator.budget)
    return run


@dataclass(frozen=True)
class Trajectory:
    """What the steps of a descent have released: points, gradients there, their deviations and mean curvatures.

    ``clip_again`` chooses another clip norm c after a quarter of the steps, and pays for what it needs.
    """

    points: list[Floats] = field(default_factory=list)
    gradients: list[Floats] = field(default_factory=list)
    deviations: list[float] = field(default_factory=list)
    curvatures: list[float] = field(default_factory=list)
    clip_again: Callable[[Any], float] | None = None


class _Run:
    """Where a descent of T ``iterations`` with the clip norm c is, and what it has learnt from released gradients."""

    def __init__(
        self,
        curator: Curator,
        settings: AutoSettings,
        geometry: _Geometry,
        iterations: int,
        clip: float,
        trajectory: Trajectory | None = None,
        start: Start | None = None,
    ) -> None:
        self._trajectory = trajectory
        self._longest = math.inf if start is None else start.clip
        self._start = start
        self._curator, self._geometry, self._iterations, self._clip = curator, geometry, iterations, clip
        loss = curator.problem.loss
        constant = loss.curvature_lipschitz == 0 or math.isinf(loss.smoothness) or not loss.has_typical_curvatures
        bought = not constant and iterations > 1
        self._share = settings.share_curvature * curator.budget / curator.remaining if bought else 0.0
        self._floor = _LEAST_CURVATURE * usual_smoothness(loss)
        self._spread_out = _spread_out(loss.outputs, effective_rows(curator, math.prod(curator.problem.shape)))
        self._point = np.zeros((geometry.directions, *curator.problem.shape[1:]))
        if start is not None:
            self._point[-1] = start.constant
        self._average, self._average_weight = np.zeros_like(self._point), 0.0
        self._lengths: list[float] = []
        self._step, self._gain, self._radius = np.zeros_like(self._point), 0.0, 1.0
        self._before: Floats | None = None
        self._taken: list[tuple[float, float, float, float]] = []
        self._measured: list[float] = []
        self._noise, self._curvature, self._amount = 0.0, 1.0, 0.0
        if start is not None and not iterations:
            self._taken.append((1.0, start.deviation, 1.0, 1.0))

    def buy_step(self) -> None:
        """Buy a gradient, and the curvature if it is not known; take a step."""
        curator, geometry, t = self._curator, self._geometry, len(self._lengths) + 1
        if self._start is not None and t == 1 + self._iterations // SCALE_AGAIN:
            self._longest = measure_longest(curator, geometry.weights(self._point))
        if self._trajectory and self._trajectory.clip_again and t == 1 + self._iterations // SCALE_AGAIN:
            self._clip = self._trajectory.clip_again(self)
        self._amount = curator.remaining / (self._iterations + 1 - t)
        paid, paid_curvature = (1 - self._share) * self._amount, self._share * self._amount
        norms = self.clip_norm, self.soft_norm
        gradient, measured = _measure(curator, geometry, self._point, norms, paid, paid_curvature)
        noise = gradient_deviation(curator, self.clip_norm, curator.gaussian(paid))
        if self._trajectory is not None:
            self._trajectory.points.append(self._point)
            self._trajectory.gradients.append(gradient)
            self._trajectory.deviations.append(noise)
            self._trajectory.curvatures.append(measured if self._share else usual_smoothness(curator.problem.loss))
        mean_curvature = max(measured, self._floor) if self._share else usual_smoothness(curator.problem.loss)
        mean_curvature *= self._spread_out
        curvature = mean_curvature
        if self._before is not None:
            seen = _secant(self._step, self._before - gradient, noise, self._gain)
            curvature = max(curvature, _SECANT_SHARE * seen)
            if _steeper(gradient, self._before, noise):
                self._radius /= 2
        rate = max(1 / t, _SLOWEST)
        newton = rate * geometry.newton(gradient, curvature, mean_curvature)
        spread = noise * float(np.sqrt(np.mean(1 / geometry.divisors**2)))
        limits = rate / curvature * spread, rate / mean_curvature * noise
        self._step = _shorten(newton, geometry.features, *limits, self._radius)
        self._gain = rate / curvature * float(np.mean(1 / geometry.divisors))
        self._before, self._noise, self._curvature = gradient, noise, curvature
        self._point = self._point - self._step
        self._lengths.append(float(np.linalg.norm(self._step)))
        self._average, self._average_weight = self._average + t**2 * self._point, self._average_weight + t**2
        uncut = self._lengths[-1] / max(float(np.linalg.norm(newton)), 1e-300)
        self._taken.append((rate * uncut, noise, curvature, t**2))
        self._measured.append(measured)

    @property
    def steps(self) -> int:
        """How many steps have been taken."""
        return len(self._lengths)

    def buy_more(self, whole: int) -> SolverResult:
        """Buy the other steps of a ``whole`` run with all that is left of the budget; return the result again.

        They are as noisy as the others, so that the average is about that of a run with all of the budget.
        """
        affordable = round(self._curator.remaining / self._amount)
        self._iterations = self.steps + max(min(affordable, whole - self.steps), 1)
        while self.steps < self._iterations:
            self.buy_step()
        return self.result()

    @property
    def geometry(self) -> _Geometry:
        """The coordinates of the run."""
        return self._geometry

    @property
    def point(self) -> Floats:
        """Where the next gradient is bought, in these coordinates."""
        return self._point

    @property
    def average(self) -> Floats:
        """The average of the iterates, in these coordinates."""
        average: Floats = self._average / self._average_weight if self._average_weight else self._point.copy()
        return average

    @property
    def clip_norm(self) -> float:
        """The norm to which gradients are clipped."""
        return min(self._clip, self._longest) * self._geometry.length

    @property
    def soft_norm(self) -> float:
        """The length from which rows have smaller weights in a gradient."""
        return _soft_norm(self._clip, self._geometry.length)

    def _mean_curvature(self) -> float:
        """Return the mean curvature that the later steps have measured, or the usual one."""
        mean = usual_smoothness(self._curator.problem.loss)
        if self._share and self._measured:
            mean = max(float(np.mean(self._measured[len(self._measured) // 4 :])), _LEAST_KNOWN * self._floor)
        return mean

    def _noises(self) -> AverageNoise:
        """Return the noise of the average, at the mean curvature that the later steps have measured.

        That may be less than what steps divide by: noise is then forgotten more slowly, as with rare classes.
        """
        geometry, mean = self._geometry, self._mean_curvature()
        noises = AverageNoise(geometry.squares, geometry.divisors, geometry.stiffness, geometry.axes)
        for rate, noise, curvature, weight in self._taken:
            noises.step(rate, noise, curvature, mean * self._spread_out, weight)
        return noises

    def result(self) -> SolverResult:
        """Return the average of the iterates, its features' part shrunk where noise explains much of it.

        It is multiplied by the share of the mean squared scores that noise does not explain (James & Stein 1961). If
        the effect of noise alone on a margin of two classes exceeds 1, that part is shrunk further, as a posterior
        mean would be. What noise explains of curves is taken back later, and not twice. The intercept moves so that
        the mean prediction stays (`constant_of_same_mean`).
        """
        geometry, point, loss = self._geometry, self.average, self._curator.problem.loss
        walk = _AVERAGED / max(self._iterations, 1) * (self._noise / self._curvature) ** 2 * (geometry.length**2 - 1)
        noises = self._noises()
        again = self._curator.problem.curves and loss.outputs == 1 and self._start is None
        kept = noises.kept(point, geometry.features, self._curator.rows) * (_TRUSTED if again else 1.0)
        shrinkage = 1 / min(max(kept, _LEAST_SIGNAL), 1.0)
        if loss.outputs == 1:
            shrinkage = max(shrinkage, walk)
        if point[geometry.features :].size:
            spread = np.sqrt(noises.squared_scores(point, geometry.features))
            point[-1] = constant_of_same_mean(loss, point[-1], spread, spread / shrinkage)
        point[: geometry.features] /= shrinkage
        factor = noises.factor(geometry.frame, geometry.features, shrinkage)
        return SolverResult(
            geometry.weights(point),
            max(self._iterations, 1),
            tuple(self._lengths),
            geometry.remarks,
            noise_factor=factor,
            column_evidence=geometry.evidence,
        )

    def buy_result(self, progress: Progress | None) -> SolverResult:
        """Return the result after measuring the intercept of two classes again, by residuals that are not clipped.

        Clipping shortens the gradients of rows that are predicted badly. Most of these are of rare classes, which
        would be predicted too seldom.
        """
        result, curator, loss = self.result(), self._curator, self._curator.problem.loss
        only = _constant_alone(curator.problem)
        share = float(sigmoid(self.average[-1:])[0])
        curvature = max(share * (1 - share), self._mean_curvature())
        constant = Estimate(np.zeros(result.weights.shape[1:]), self._noises().variance_of_constant() + CLIPPING)
        for left in range(_FINAL_PARTS, 0, -1):
            amount = curator.remaining / left
            weights = result.weights.copy()
            weights[-1] += constant.value
            slope = curator.answer(Gradient(weights, loss.lipschitz, curator.gaussian(amount), only))[0]
            found = constant.after(slope, curator.deviation(loss.lipschitz, amount), curvature)
            moved = np.clip(found.value - constant.value, -_FINAL_STEP, _FINAL_STEP)
            constant = replace(found, value=constant.value + moved)
            report(progress, 1 - curator.remaining / curator.budget)
        weights = result.weights.copy()
        weights[-1] += constant.value
        return replace(result, weights=weights)


def _measure(
    curator: Curator,
    geometry: _Geometry,
    point: Floats,
    norms: tuple[float, float],
    amount: float,
    curvature_amount: float,
) -> tuple[Floats, float]:
    """Return a noisy gradient at a point, and a noisy mean curvature, 0 if nothing is paid for it.

    ``norms`` are those to which gradients are clipped, and from which rows have smaller weights.
    """
    (clip, soft_norm), noise = norms, curator.gaussian(amount)
    gradient = Gradient(geometry.weights(point), clip, noise, geometry.frame, soft_norm, joint=True)
    if curvature_amount == 0:
        return curator.answer(gradient), 0.0
    return curator.answer(GradientAndCurvature(gradient, curator.gaussian(curvature_amount)))


def _soft_norm(clip: float, length: float) -> float:
    """Return the length from which rows have smaller weights, given the typical one and the clip norm in its unit."""
    return max(1.0, clip**2) * length


def _iterations(richness: float, rows_of_privacy: float, curator: Curator) -> int:
    """Return T: more steps if there is little noise and time allows them, fewer if there are hardly any rows.

    Several classes need more steps to converge, so that the least number is larger for them.
    """
    cells = curator.rows * curator.problem.grid.dimension
    least = _LEAST_STEPS if curator.problem.loss.outputs == 1 else _LEAST_STEPS_OF_CLASSES
    wanted = _STEPS * math.sqrt(max(richness / _USUAL_RICHNESS, 1.0))
    timely = max(min(wanted, _LARGEST_WORK / cells), least * math.sqrt(max(richness / _LARGE_RICHNESS, 1.0)))
    return round(min(max(timely * min(1.0, math.sqrt(rows_of_privacy / SOME_ROWS)), _FEWEST_STEPS), _MOST_STEPS))


def _spread_out(classes: int, richness: float) -> float:
    """Return by how much less the mean loss of several classes is curved than that of a typical row.

    A row is curved along the few classes that it may belong to, and other rows along others, so that steps by the
    curvature of a typical row would be too short. Where there is much noise, short steps are better.
    """
    power = min(max(_SPREAD_OUT * math.log2(richness), 0.0), _SPREAD_OUT_MOST)
    return math.pow(2 / max(classes, 2), power)


def _plan_for_a_constant(problem: LinearProblem, settings: AutoSettings, rows_of_privacy: float) -> tuple[int, float]:
    """Return T and c for the intercept alone.

    At 0 every label contributes a gradient of the same length, 1/2 for the logistic loss, so that one step counts the
    labels without any clipping. Gradients of further steps are up to twice as long, and worth their noise only if
    there are enough rows.
    """
    margins = np.zeros((1, *problem.shape[1:]))
    pull = float(np.linalg.norm(problem.loss.residuals(margins, np.ones(1))))
    scarce = rows_of_privacy < ROWS_PER_DIRECTION
    steps, clip = (1, pull) if scarce else (_CONSTANT_STEPS, max(_CONSTANT_CLIP, pull))
    return settings.iterations or steps, settings.clip or clip


def _secant(step: Floats, change: Floats, noise: float, gain: float) -> float:
    """Return the curvature that two gradients show along the step between them, less three standard deviations.

    The step is at most ``gain`` times the first gradient, with which it shares its noise e: what that adds to the
    product of step and change, gain |e|^2 or gain D noise^2 on average, says nothing about the curvature and is
    subtracted. Its variance is at most 3 noise^2 |step|^2: 1 from the second gradient, 2 from |e|^2 where a step is
    all noise.
    """
    squared = float(np.sum(step * step))
    if squared == 0:
        return 0.0
    product = float(np.sum(step * change)) - gain * step.size * noise**2
    return product / squared - _SURE * noise * math.sqrt(3 / squared)


def _steeper(gradient: Floats, before: Floats, noise: float) -> bool:
    """Return whether a gradient is longer than the one before by more than three standard deviations of noise.

    A step of descent makes gradients shorter, unless it leads beyond a valley and up the other side.
    """
    longer = float(np.sum(gradient**2) - np.sum(before**2))
    spread = noise * math.sqrt(4 * float(np.sum(gradient**2)) + 4 * float(np.sum(before**2)))
    return longer > _SURE * spread


def _shorten(step: Floats, features: int, noise: float, intercept_noise: float, radius: float = 1.0) -> Floats:
    """Shorten the features' part of a step, and the intercept's, to what exceeds its noise and a trust radius."""
    return np.concatenate([_cut(step[:features], noise, radius), _cut(step[features:], intercept_noise)])


def _cut(step: Floats, noise: float, radius: float = 1.0) -> Floats:
    length = float(np.linalg.norm(step))
    signal = max(0.0, length**2 - max(step.size, _LONE_NUMBERS) * noise**2)
    trust = _TRUST * math.sqrt(math.prod(step.shape[1:]))  # a column for each class
    trusted = min(max(_LONGEST_STEP, trust), math.sqrt(trust**2 + signal))
    return step * min(1.0, radius * trusted / max(length, 1e-300))


@dataclass(frozen=True)
class _Geometry:
    """The coordinates of a run. All of it is released or public.

    ``stiffness`` holds the penalty's curvatures along the columns of ``axes``, or along the coordinates themselves.
    ``squares`` are mean squares of the features' coordinates, ``evidence`` is that of `Columns`.
    """

    frame: Frame | Whitening | None
    length: float
    features: int
    divisors: Floats
    stiffness: Floats
    squares: Floats
    axes: Floats | None = None
    remarks: tuple[str, ...] = ()
    evidence: Floats | None = None

    @property
    def directions(self) -> int:
        return self.divisors.size

    def weights(self, point: Floats) -> Floats:
        return point if self.frame is None else self.frame.weights(point)

    def newton(self, gradient: Floats, curvature: float, at_intercept: float) -> Floats:
        """Return the step that the penalty and a loss of these curvatures ask for.

        The intercept has no penalty and rows are centred, so the step of the intercept need not be short even where
        the loss is steep along some feature.
        """
        scale = (curvature * self.divisors + self.stiffness).reshape(-1, *[1] * (gradient.ndim - 1))
        if self.axes is None:
            step = gradient / scale
        else:
            along = np.einsum("jk,j...->k...", self.axes, gradient)
            step = np.einsum("jk,k...->j...", self.axes, along / scale)
        step[self.features :] = gradient[self.features :] / at_intercept
        return step


def _require_coordinates(curator: Curator, whitening: bool) -> None:
    """Raise now what these coordinates would raise later, when part of the budget is spent."""
    grid = curator.problem.grid
    ones = np.ones(grid.dimension)
    if curator.problem.intercept:
        require_frame(curator.public(), Frame.place(grid, 0 * ones, ones))
    if whitening and grid.dimension > Whitening.largest_directions:
        raise InvalidParameter(f"{grid.dimension} columns are too many to whiten: leave whitening to its default")
    if (whitening or curator.problem.intercept) and grid.dimension <= Whitening.largest_dimension:
        require_frame(curator.public(), Whitening(grid, ones[:, None]))


def _constant_alone(problem: LinearProblem) -> Whitening:
    """Return the coordinates in which there is nothing but the intercept."""
    return Whitening(problem.grid, np.append(np.zeros(problem.grid.dimension - 1), 1.0)[:, None])


def _intercept_alone(problem: LinearProblem, rows_of_privacy: float) -> _Geometry:
    """Return the one direction that can be learnt from few rows."""
    only = _constant_alone(problem)
    remark = (
        f"only the intercept was learnt: noise leaves about {rows_of_privacy:.0f} rows, too few for "
        f"{problem.grid.dimension - 1} columns"
    )
    remarks = (remark,) if problem.grid.dimension > 1 else ()
    return _Geometry(only, 1.0, 0, np.ones(1), np.zeros(1), np.empty(0), remarks=remarks)


def _measure_geometry(
    curator: Curator, settings: AutoSettings, rows_of_privacy: float, clip: float
) -> _Geometry | Columns:
    """Pay for and measure coordinates to descend in, or only the moments of the columns if these are too many."""
    problem, constant = curator.problem, int(curator.problem.intercept)
    dimension, features = problem.grid.dimension, problem.grid.dimension - constant
    penalty = problem.penalty_curvature(np.zeros(problem.shape)).reshape(dimension, -1)[:, 0]
    whitening = features <= LARGEST_WHITENED if settings.whitening is None else settings.whitening
    _require_coordinates(curator, whitening)
    alone = bool(constant) and dimension <= Whitening.largest_dimension
    if alone and (rows_of_privacy < ROWS_PER_DIRECTION or features == 0):
        return _intercept_alone(problem, rows_of_privacy)
    amounts = settings.share_norm * curator.budget, settings.share_columns * curator.budget
    whitening_amount = settings.share_whitening * curator.budget
    if whitening or alone:
        moment_bits(curator.public(), curator.gaussian(whitening_amount))  # raises before the first charge
    columns = measure_columns(curator, *amounts, _LONGEST_ENTRY)
    projection: Floats | None = None
    remarks: tuple[str, ...] = ()
    if not whitening:
        by_column = _column_by_column(columns, penalty, constant, rows_of_privacy)
        enough = rows_of_privacy >= _ROWS_PER_SQUARE * by_column.length**2
        if enough or not alone or settings.whitening is not None:
            return by_column
        if rows_of_privacy < _ROWS_PER_COLUMN * features and learns_from_few_rows(problem):
            return columns
        projection = _signs(features)
        width = projection.shape[1]
        remarks = (f"rows were projected to {width} columns: noise leaves too few of them for {features}",)
    frame, squares, evidence = measure_whitening(curator, columns, amounts[0], whitening_amount, clip, projection)
    length = math.sqrt(constant + float(squares.sum()))
    ones, stiffness = np.ones(frame.matrix.shape[1]), np.zeros(frame.matrix.shape[1])
    if not penalty.any():
        return _Geometry(frame, length, squares.size, ones, stiffness, squares, None, remarks, evidence)
    with one_library_thread():  # the same digits for any number of threads
        stiffness, axes = np.linalg.eigh(frame.matrix.T @ (penalty[:, None] * frame.matrix))
    stiffness = np.maximum(stiffness, 0.0)
    return _Geometry(frame, length, squares.size, ones, stiffness, squares, axes, remarks, evidence)


def _column_by_column(columns: Columns, penalty: Floats, constant: int, rows_of_privacy: float) -> _Geometry:
    """Return scaled columns as they are, in which steps are divided by their mean squares."""
    squares = np.minimum(columns.variances, 1.0)
    damping = damping_to(rows_of_privacy / ROWS_PER_DIRECTION, squares, float(squares.mean()))
    divisors = np.append(squares + damping, np.ones(constant))
    stiffness = penalty if columns.frame is None else penalty * 4.0**columns.frame.doublings
    remarks = ("columns were scaled one by one, without their covariance",)
    length = math.sqrt(constant + float(squares.sum()))
    return _Geometry(
        columns.frame, length, squares.size, divisors, stiffness, squares, None, remarks, columns.evidence
    )


def _signs(features: int) -> Floats:
    """Return a public projection to fewer columns, of random signs: it keeps lengths and angles on average."""
    width = min(_PROJECTED, max(1, _LARGEST_PROJECTION // features))
    signs: Floats = np.random.default_rng(0).choice([-1.0, 1.0], (features, width)) / math.sqrt(width)
    return signs
