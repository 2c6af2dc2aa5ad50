r"""`auto` with what confidence intervals need, bought within the same budget.

Two recipes, by the loss. Shares are of the budget of the solver; n mu are its effective rows and D its parameters.

**All gradients** (logistic): 87% for `auto`, whose clip norm is at least the typical length R of a row, 5% for long
gradients, 5% for the Hessian and 3% for the covariance of gradients. Every released gradient is
:math:`g_t = g^* + H (u_t - u^*) + e_t`, so the last 70% of them, and the points where they were taken, are averaged:
their noise has the variance :math:`\sum_t s_t^2/m^2`.

**One fresh gradient** (squared, Huber and Poisson): 30% for `auto`, 4% for the lengths of gradients at its answer,
18% for long ones, 40% for one more gradient there, 5% for the Hessian and 3% for the covariance. Residuals are
shorter than the range of the target. With r the length beyond which .32 of the gradients are, which depends on that
range no more than by a logarithm, a clip norm of kappa r is enough for most rows,
:math:`\kappa = 3 (n\mu/D/200)^{0.3}` between 3 and 8. Rows far beyond R have smaller weights (`longest_reach`).

**Clipping.** What is cut off from gradients biases the estimate, and noise grows with the clip norm. So the gradients
longer than that norm are counted, between its multiples by powers of two, and the means of their directions are
released (`LongGradients`; for `auto` after a quarter of the steps). C is the multiple with the least
:math:`\sigma_g(C)^2 + x(C)^2/k`, x(C) being the length of what is cut off on average, and what remains of x is added
to the error of the gradient: along its direction to the share in which noise does not explain that, and in any
direction otherwise. Shares between two norms are believed up to the first one that noise hides, each as at most half
of the one before, as for tails with a mean.

- *Regressions*: x(C) is the sum of d_j (t_j - C) over the seen norms, d_j being the mean of the directions between
  two norms and t_j the mean length there, noise taken out of the square and a deviation of it given back. Shares that
  noise hides fall from a norm to twice of it as much as between kappa r/2 and kappa r, and by 4 at least, as for
  tails with a variance, without which no interval would hold; a tail that becomes steeper, as most do, has less. If
  the first one is hidden, it is the mean of what it may be. Their directions agree as the last ones that are seen.
- *Logistic*: residuals are bounded, and gradients long where rows are. With S(t) the share of gradients longer than
  t, :math:`\int_C^\infty S(t) dt` is cut off on average, and all directions agree to the part |d|/S(least), noise
  taken out of it; x(C) is the product. Shares that noise hides are an eighth of the one before, as for tails with a
  third moment, and if it hides the first one nothing is added.

Both matrices are measured at the point of the estimate (`dpdescent.queries.sandwich`): the Hessian with the clip norm
of the gradients, the covariance with the least one, and raised by the mean square length that C has beyond it.
`Sandwich` makes the estimate and its errors of them.

**Privacy** Every release is a Gaussian mechanism of the curator; what follows from them is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from scipy.stats import norm

from ..arrays import Floats
from ..curator import Curator
from ..errors import InvalidParameter, TooFewRows
from ..exact import one_library_thread
from ..problems import Huber, Logistic, Loss, Poisson, Squared, Whitening
from ..queries import ClippedHessian, Gradient, GradientCovariance, LongGradients
from ..relations import Sensitivity
from .auto import LARGEST_WHITENED, AutoSettings, Trajectory, buy_descent
from .coordinates import Columns
from .method import METHODS, Method, Progress, SolverResult, report
from .rules import ADAPTIVE_CLIP, PAYABLE, clip_multiple, effective_rows, gradient_deviation
from .sandwich_errors import ExpectedLoss, Sandwich, SandwichParts

_FEWEST_ROWS = 300  # n mu: with fewer there are no coordinates in which errors are known
_SCARCE_ROWS = 40  # n mu/D, below which noise hides some directions of the Hessian
_HESSIAN, _COVARIANCE, _SCALE, _FRESH = 0.05, 0.03, 0.04, 0.40  # shares of the budget
_LONG, _LONG_FRESH = 0.05, 0.18  # of the budget, for gradients that may be clipped
_NORMS = 8  # to which gradients may be clipped, each twice the one before
#: Standard deviations of noise within which a share of long gradients counts as nothing.
_SEEN, _SEEN_OF_REGRESSIONS = 1.0, 2.0
_AVERAGED = 0.7  # of the gradients
_SETTLED = 0.25  # of the steps, after which the mean curvature is believed
_LEAST_CLIP = 1.0  # of gradients, in typical row lengths
_LARGEST_CLIP = 2.0  # of second moments: rows must not be longer in the coordinates than these say
_REACH = 1.5  # typical row lengths, at least, beyond which rows have smaller weights, or not the largest curvature
_LEGIBLE = 0.1  # of the Hessian that its noise may hide, as far as the reach is concerned
_STEEPEST = 4.0  # mean curvatures to which those of rows are lowered
_LADDER = 10  # powers of two below the target's range, between which residuals are counted
_LEAST_FALL, _BOUNDED_FALL = 4.0, 8.0  # of shares from a norm to twice of it, where noise hides them
_LONGER = 0.32  # of the gradients: normal numbers are that often beyond one standard deviation
_CLIPPED_SCALE = 3.0, 8.0  # the least and the largest kappa
_USUAL_RICHNESS = 200


def inferring_method(name: str) -> Method:
    """Return `auto` with what intervals need; raise `InvalidParameter` if ``name`` is another method."""
    if name != "auto":
        raise InvalidParameter(f"inference=True is for method 'auto', and not for {name!r}: leave one of them out")
    return replace(METHODS["auto"], solver=infer)


def residual_multiple(richness: float) -> float:
    """Return kappa, the clip norm in units of residuals of typical rows, given n mu/D."""
    least, most = _CLIPPED_SCALE
    return min(max(least * math.pow(richness / _USUAL_RICHNESS, ADAPTIVE_CLIP[1]), least), most)


def longest_reach(richness: float, directions: int) -> float:
    """Return the length of rows, in typical ones, from which they have smaller weights in a fresh gradient.

    In a model that is wrong these weights change what is estimated. The longest row in the Hessian decides about its
    noise, so that they begin where the edge of that noise would be a tenth of the Hessian, at 1.5 at least.
    """
    legible = _LEGIBLE * math.sqrt(_HESSIAN) * richness / math.sqrt(2 * directions)
    return max(_REACH, math.sqrt(legible))


def kept_gradients(steps: int) -> int:
    """Return how many of the last gradients of a descent are averaged."""
    return max(1, round(_AVERAGED * steps))


@dataclass(frozen=True)
class Tail:
    """How gradients of rows are clipped, and what that cuts off.

    The covariance has gradients clipped to ``least``, and the gradient to ``norm``; their mean square lengths differ
    by ``missing``. ``bias`` is the second moment of what is cut off from the mean gradient, shape (k, k).
    """

    least: float
    norm: float
    bias: Floats
    missing: float

    @classmethod
    def of(cls, long: tuple[Floats, Floats], noise: float, least: float, deviation: float) -> Tail:
        """Choose C among ``least`` times powers of two, by what noise and the bias add to the error of a coordinate.

        ``long`` is what `LongGradients` has answered for these norms, its noise having the deviation ``noise`` for a
        weight of 1; ``deviation`` is that of a coordinate of the gradient if it is clipped to ``least``. Residuals
        are bounded, and nothing is taken for long that noise hides.
        """
        (shares, directions), per_direction = long, noise / math.sqrt(0.75)
        kept, together = _kept(shares, _SEEN * 2 * noise), directions[0]
        further = (kept[-1] if kept.size else 0.0) / _BOUNDED_FALL ** np.arange(1, shares.size - kept.size + 1)
        believed = np.append(kept, np.minimum(further, 2 * noise))
        norms, beyond = np.float64(least) * 2.0 ** np.arange(believed.size + 1), float(believed.sum())
        cut = np.cumsum((np.diff(norms) * _beyond(believed))[::-1])[::-1]
        square, along = _pointing(together, per_direction**2)
        alike = min(math.sqrt(square) / beyond, 1.0) if beyond > 0 else 0.0
        best = int(np.argmin((deviation * norms[:-1] / least) ** 2 + (alike * cut) ** 2 / together.size))
        return cls(least, float(norms[best]), (alike * cut[best]) ** 2 * along, float(_longer(kept, norms)[best]))

    @classmethod
    def of_regression(
        cls, long: tuple[Floats, Floats], noise: float, least: float, deviation: float, before: float
    ) -> Tail:
        """Choose C as `of` does, where directions were asked for between norms, and noise may hide long gradients.

        ``before`` is the share of gradients longer than half of ``least``.
        """
        (shares, directions), per_count, per_direction = long, 2 * noise, noise / math.sqrt(0.75)
        kept, k = _kept(shares, _SEEN_OF_REGRESSIONS * per_count), directions.shape[1]
        fall = max(before / (float(kept.sum()) + per_count), _LEAST_FALL)
        first = kept[-1] / fall if kept.size else _hidden_mean(shares[0], per_count)
        further = first / fall ** np.arange(shares.size - kept.size)
        believed, seen = np.append(kept, np.minimum(further, per_count)), kept.size
        norms = np.float64(least) * 2.0 ** np.arange(believed.size + 1)
        lengths = norms[:-1] * (1 + _within(believed))
        last, unsure = directions[max(seen - 1, 0)], math.sqrt(2 * k)
        length, along_last = _pointing(last, per_direction**2)
        alike = min(math.sqrt(length + unsure * per_direction**2) / kept[-1], 1.0) if seen else 1.0
        choices = []
        for norm_of_clip in norms[:-1]:
            excess = np.maximum(lengths - norm_of_clip, 0.0)
            unit = per_direction**2 * float(excess[:seen] @ excess[:seen])
            square, along = _pointing(directions[:seen].T @ excess[:seen], unit)
            known = min(square + unsure * unit, float(kept @ excess[:seen]) ** 2)
            hidden = (alike * float(believed[seen:] @ excess[seen:])) ** 2
            error = (deviation * norm_of_clip / least) ** 2 + (known + hidden) / k
            choices.append((error, float(norm_of_clip), known * along + hidden * along_last))
        best = int(np.argmin([each[0] for each in choices]))
        return cls(least, choices[best][1], choices[best][2], float(_longer(kept, norms)[best]))


def _pointing(vector: Floats, variance: float) -> tuple[float, Floats]:
    """Return the squared length of a vector without that of its noise, and where it points, of trace 1.

    That is along the vector to the share in which noise does not explain its length, and in any direction otherwise.
    """
    k, square = vector.size, float(vector @ vector)
    sure = max(1 - k * variance / square, 0.0) if square > 0 else 0.0
    return sure * square, sure * np.outer(vector, vector) / max(square, 1e-300) + (1 - sure) * np.eye(k) / k


def _kept(shares: Floats, hidden: float) -> Floats:
    """Return shares up to the first one that noise hides, each at most half of the one before."""
    kept = shares[: int(np.minimum.accumulate(shares > hidden).sum())]
    halves = 2.0 ** np.arange(kept.size)
    return np.asarray(np.minimum.accumulate(kept * halves) / halves)


def _longer(kept: Floats, norms: Floats) -> Floats:
    """Return by how much the mean square of gradients grows if they are clipped to each norm, not the first."""
    shares = np.append(kept, np.zeros(norms.size - 1 - kept.size))
    return np.append(0.0, np.cumsum(np.diff(norms**2) * _beyond(shares)))


def _hidden_mean(share: float, deviation: float) -> float:
    """Return the mean of a share of 0 or more, of which all are alike likely, given one with normal noise."""
    seen = share / deviation
    return float(deviation * (seen + math.exp(norm.logpdf(seen) - norm.logcdf(seen))))


def _beyond(shares: Floats) -> Floats:
    """Return the mean share beyond lengths between two norms, from the shares between these."""
    beyond = np.cumsum(shares[::-1])[::-1]
    return np.asarray((beyond + np.append(beyond[1:], 0.0)) / 2)


def _within(shares: Floats) -> Floats:
    """Return by how much gradients between two norms are longer than the lower one, in units of it.

    The share beyond a length falls as a power of it from each norm to the next; after the last one as before.
    """
    beyond = np.maximum(np.cumsum(shares[::-1])[::-1], 1e-300)
    powers = np.maximum(np.log2(beyond / np.append(beyond[1:], beyond[-1] / _LEAST_FALL)), 1e-3)
    left = 2.0**-powers
    steep = np.where(np.abs(powers - 1) < 1e-6, 1 + 1e-6, powers)
    mean = (1 - 2.0 ** (1 - steep)) / (steep - 1)  # of the share beyond, in units of the first
    return np.asarray((mean - left) / (1 - left))


@dataclass(frozen=True)
class _At:
    """A point with a gradient that was released there, and how gradients of rows are clipped and weighted there."""

    point: Floats
    gradient: Floats
    deviation: float
    tail: Tail
    soft_norm: float
    reach: float


def infer(curator: Curator, settings: AutoSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective as `auto` does, and buy what intervals need.

    Raises
    ------
    InvalidParameter
        The loss, the penalty or the rows are of a kind for which no intervals are known; nothing is charged.
    TooFewRows
        There are fewer than 300 effective rows; nothing is charged.
    """
    _require_known(curator, settings)
    rows_of_privacy = effective_rows(curator)
    if rows_of_privacy < _FEWEST_ROWS:
        raise TooFewRows(
            f"intervals need {_FEWEST_ROWS} effective rows, n mu, and this budget leaves {rows_of_privacy:.0f}: "
            "raise epsilon, take more rows, or use inference=False"
        )
    richness = rows_of_privacy / curator.problem.grid.dimension
    clip = settings.clip or clip_multiple(richness, *ADAPTIVE_CLIP, _LEAST_CLIP)
    settings = replace(settings, clip=clip)
    fresh = not isinstance(curator.problem.loss, Logistic)
    tails: list[Tail] = []
    trajectory = Trajectory(
        clip_again=None if fresh else partial(_measure_clip, curator, _LONG * curator.budget, tails)
    )
    later = _HESSIAN + _COVARIANCE + (_SCALE + _LONG_FRESH + _FRESH if fresh else 0.0)
    with curator.setting_aside(later * curator.budget):
        run = buy_descent(curator, settings, progress, trajectory, _LARGEST_CLIP)
    assert not isinstance(run, Columns), "columns are few enough to be whitened"
    geometry = run.geometry
    assert isinstance(geometry.frame, Whitening)
    curvature = max(float(np.mean(trajectory.curvatures[int(_SETTLED * len(trajectory.curvatures)) :])), 1e-6)
    squares, loss = np.append(geometry.squares, 1.0), curator.problem.loss
    if fresh:
        at = _measure_gradient(curator, run, richness)
    else:
        expected = ExpectedLoss.of(loss, curvature, squares, trajectory.points[-1])
        at = _averaged(trajectory, tails[-1], run.soft_norm, expected)
    parts = _measure_matrices(curator, geometry, at, curvature, ExpectedLoss.of(loss, curvature, squares, at.point))
    report(progress, 1.0)
    return _result(curator, parts, richness, len(trajectory.points), geometry.evidence)


def _measure_matrices(
    curator: Curator, geometry: Any, at: _At, curvature: float, expected: ExpectedLoss
) -> SandwichParts:
    """Buy the Hessian and, with what is left, the covariance of gradients at a point."""
    budget, loss, of_matrices = curator.budget, curator.problem.loss, Sensitivity.of_positive_semidefinite_sum
    weights, tail = geometry.weights(at.point), at.tail
    reach, cap = max(_REACH * geometry.length, at.reach), min(loss.smoothness, _STEEPEST * curvature)
    with one_library_thread():  # the same digits for any number of threads
        stretched = expected.stretching(at.point) if expected.curved else None
    amount = _HESSIAN * budget
    noise = curator.gaussian(amount)
    hessian = curator.answer(
        ClippedHessian(weights, tail.norm, cap, reach, noise, geometry.frame, at.soft_norm, stretched)
    )
    hessian_noise = curator.deviation(cap * reach**2, amount, of_matrices)
    amount = PAYABLE * curator.remaining
    covariance = curator.answer(
        GradientCovariance(weights, tail.least, curator.gaussian(amount), geometry.frame, at.soft_norm)
    )
    covariance_noise = curator.deviation(tail.least**2, amount, of_matrices)
    longer = 1 + tail.missing / max(float(np.trace(covariance)), covariance_noise)
    return SandwichParts(
        at.point,
        at.gradient,
        hessian,
        longer * covariance,
        at.deviation,
        hessian_noise,
        longer * covariance_noise,
        expected,
        curator.scale,
        geometry.frame.matrix,
        tail.bias,
        stretched,
    )


def _result(
    curator: Curator, parts: SandwichParts, richness: float, iterations: int, evidence: Floats | None
) -> SolverResult:
    """Return the estimate, with all that is known of its error."""
    found = Sandwich.of(parts, _level_directions(curator))
    values, vectors = np.linalg.eigh(found.privacy)
    remarks = []
    if richness < _SCARCE_ROWS:
        remarks.append(
            f"noise leaves {richness:.0f} effective rows per parameter, fewer than the {_SCARCE_ROWS} from which "
            "intervals are reliable: some effects may not be resolved"
        )
    hidden, directions = found.unresolved.shape[1], len(found.hessian)
    if hidden:
        remarks.append(
            f"noise hides {hidden} of {directions} directions in which coefficients can vary: effects along them are "
            "not resolved"
        )
    return SolverResult(
        found.weights,
        iterations,
        remarks=tuple(remarks),
        noise_factor=found.influence @ (vectors * np.sqrt(np.maximum(values, 0.0))),
        column_evidence=evidence,
        sandwich=found,
    )


def _measure_lengths(curator: Curator, run: Any, point: Floats, soft_norm: float, amount: float) -> tuple[Any, Any]:
    """Buy which share of the gradients at a point is longer than each norm of a ladder; return norms and shares."""
    geometry = run.geometry
    ladder = geometry.length * 2.0 ** np.arange(-_LADDER, 0.5, 0.5)
    asked = LongGradients(geometry.weights(point), ladder, curator.gaussian(amount), geometry.frame, soft_norm)
    longer = np.maximum.accumulate(np.cumsum(curator.answer(asked)[0][::-1]))[::-1]
    return ladder, np.clip(longer, 0.0, 1.0)


def _measure_gradient(curator: Curator, run: Any, richness: float) -> _At:
    """Buy the lengths of gradients where a descent has ended, and one more gradient, clipped by what they say."""
    point, geometry, noise = run.average, run.geometry, curator.gaussian(_FRESH * curator.budget)
    weights, soft_norm = geometry.weights(point), longest_reach(richness, point.size) * geometry.length
    ladder, longer = _measure_lengths(curator, run, point, soft_norm, _SCALE * curator.budget)
    typical = np.exp(np.interp(-_LONGER, -longer, np.log(ladder)))
    least = min(run.clip_norm, residual_multiple(richness) * float(typical))
    before = float(np.interp(math.log(least / 2), np.log(ladder), longer))
    deviation, amount = gradient_deviation(curator, least, noise), _LONG_FRESH * curator.budget
    tail = _measure_tail(curator, amount, run, point, least, soft_norm, deviation, before)
    gradient = curator.answer(Gradient(weights, tail.norm, noise, geometry.frame, soft_norm, joint=True))
    return _At(point, gradient, gradient_deviation(curator, tail.norm, noise), tail, soft_norm, soft_norm)


def _measure_clip(curator: Curator, amount: float, tails: list[Tail], run: Any) -> float:
    """Choose the clip norm of the gradients that will be averaged; return it in typical row lengths."""
    later = _AVERAGED * curator.remaining  # about what these gradients have together
    deviation = gradient_deviation(curator, run.clip_norm, curator.gaussian(later))
    tails.append(_measure_tail(curator, amount, run, run.point, run.clip_norm, run.soft_norm, deviation))
    return tails[-1].norm / float(run.geometry.length)


def _measure_tail(
    curator: Curator,
    amount: float,
    run: Any,
    point: Floats,
    least: float,
    soft_norm: float,
    deviation: float,
    before: float | None = None,
) -> Tail:
    """Buy how many gradients are long at a point, and choose the norm to which they are clipped."""
    geometry = run.geometry
    norms = np.ldexp(np.float64(least), np.arange(_NORMS))
    weights, apart = geometry.weights(point), before is not None
    asked = LongGradients(weights, norms, curator.gaussian(amount), geometry.frame, soft_norm, apart)
    long, unit = curator.answer(asked), curator.deviation(1.0, amount)
    if before is None:
        return Tail.of(long, unit, least, deviation)
    return Tail.of_regression(long, unit, least, deviation, before)


def _averaged(trajectory: Trajectory, tail: Tail, soft_norm: float, expected: ExpectedLoss) -> _At:
    """Return the mean of the last points, the gradient there by all of theirs, and the deviation of its noise.

    By how much the mean of the gradients differs from the one at the mean point is taken from an expected loss.
    """
    kept = kept_gradients(len(trajectory.points))
    deviation = math.sqrt(math.fsum(each**2 for each in trajectory.deviations[-kept:])) / kept
    points, gradients = (np.mean(each[-kept:], axis=0) for each in (trajectory.points, trajectory.gradients))
    bend = np.mean([expected.gradient(each) for each in trajectory.points[-kept:]], axis=0) - expected.gradient(
        points
    )
    return _At(points, gradients - bend, deviation, tail, soft_norm, tail.least)


def _level_directions(curator: Curator) -> list[Floats]:
    """Return the directions from the constant to all levels of a column, along which no score changes."""
    directions = []
    for group in curator.problem.levels:
        direction = np.zeros(curator.problem.grid.dimension)
        direction[list(group)], direction[-1] = 1.0, -1.0
        directions.append(direction)
    return directions


def _require_known(curator: Curator, settings: AutoSettings) -> None:
    """Raise `InvalidParameter` for a problem about whose errors nothing is known."""
    problem = curator.problem
    loss: Loss = problem.loss
    unknown = {
        f"{type(loss).__name__} loss: use two classes without class_weight, or a squared, Huber or Poisson loss": (
            type(loss) not in (Logistic, Squared, Huber, Poisson)
        ),
        "a penalty, which pulls coefficients towards 0: use alpha=0": problem.penalty.weight > 0,
        "models without an intercept: use fit_intercept=True": not problem.intercept,
        f"more than {LARGEST_WHITENED} columns: take fewer": problem.grid.dimension - 1 > LARGEST_WHITENED,
        "columns that are not whitened: leave whitening to its default": settings.whitening is False,
        "random batches: use batch_rate=1": curator.batch_rate < 1,
        "units of several rows, whose errors depend on each other: use rows_per_unit=1": curator.rows_per_unit > 1,
    }
    for what, found in unknown.items():
        if found:
            raise InvalidParameter(f"intervals are not known for {what}, or inference=False")
