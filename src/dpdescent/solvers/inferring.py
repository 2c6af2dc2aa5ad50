r"""`auto` with what confidence intervals need, bought within the same budget.

Two recipes, by the loss. Shares are of the budget of the solver; n mu are its effective rows and D its parameters.

**All gradients** (logistic): 92% for `auto`, whose clip norm is at least the typical length R of a row, 5% for the
Hessian and 3% for the covariance of gradients. Every gradient that `auto` has released is
:math:`g_t = g^* + H (u_t - u^*) + e_t`, so the last 70% of them, and the points where they were taken, are averaged:
their noise has the variance :math:`\sum_t s_t^2/m^2`.

**One fresh gradient** (squared, Huber and Poisson): 50% for `auto`, 2% for the scale r of the residuals at its
answer, 5% for the Hessian, 3% for the covariance and the rest for one more gradient there. Residuals are shorter than
the range of the target, so that this gradient is clipped to :math:`\kappa R r` at most,
:math:`\kappa = 3 (n\mu/D/200)^{0.3}` between 3 and 8, and has less noise than those of `auto`.

Both matrices are measured at that point, with the clip norm and the soft weights of the gradients
(`dpdescent.queries.sandwich`); `Sandwich` makes the estimate and its errors of them.

**Privacy** Every release is a Gaussian mechanism of the curator; what follows from them is post-processing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from ..arrays import Floats
from ..curator import Curator
from ..errors import InvalidParameter, TooFewRows
from ..problems import Huber, Logistic, Loss, Poisson, Squared, Whitening
from ..queries import ClippedHessian, Gradient, GradientCovariance, ResidualScale
from ..relations import Sensitivity
from .auto import LARGEST_WHITENED, AutoSettings, Trajectory, buy_descent
from .coordinates import Columns
from .method import METHODS, Method, Progress, SolverResult, report
from .rules import ADAPTIVE_CLIP, PAYABLE, clip_multiple, effective_rows, gradient_deviation
from .sandwich_errors import Sandwich, SandwichParts, expected_hessian

_FEWEST_ROWS = 300  # n mu: with fewer there are no coordinates in which errors are known
_SCARCE_ROWS = 40  # n mu/D, below which noise hides some directions of the Hessian
_HESSIAN, _COVARIANCE, _SCALE, _FRESH = 0.05, 0.03, 0.02, 0.40  # shares of the budget
_AVERAGED = 0.7  # of the gradients
_SETTLED = 0.25  # of the steps, after which the mean curvature is believed
_LEAST_CLIP = 1.0  # of gradients, in typical row lengths
_LARGEST_CLIP = 2.0  # of second moments: rows must not be longer in the coordinates than these say
_REACH = 1.5  # typical row lengths beyond which rows have smaller weights, or cannot have the largest curvature
_STEEPEST = 4.0  # mean curvatures to which those of rows are lowered
_LEAST_SCALE = 2.0**-10  # of residuals, in units of the target's range
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


def kept_gradients(steps: int) -> int:
    """Return how many of the last gradients of a descent are averaged."""
    return max(1, round(_AVERAGED * steps))


@dataclass(frozen=True)
class _At:
    """A point with a gradient that was released there, and how gradients of rows are clipped and weighted there."""

    point: Floats
    gradient: Floats
    deviation: float


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
    budget, trajectory = curator.budget, Trajectory()
    later = _HESSIAN + _COVARIANCE + (_SCALE + _FRESH if fresh else 0.0)
    with curator.setting_aside(later * budget):
        run = buy_descent(curator, settings, progress, trajectory, _LARGEST_CLIP)
    assert not isinstance(run, Columns), "columns are few enough to be whitened"
    geometry = run.geometry
    assert isinstance(geometry.frame, Whitening)
    curvature = max(float(np.mean(trajectory.curvatures[int(_SETTLED * len(trajectory.curvatures)) :])), 1e-6)
    norm, soft_norm = run.clip_norm, run.soft_norm
    if fresh:
        weights = geometry.weights(run.average)
        scale = _measure_residuals(curator, weights, _SCALE * budget)
        norm, soft_norm = min(norm, residual_multiple(richness) * geometry.length * scale), _REACH * geometry.length
        noise = curator.gaussian(_FRESH * budget)
        gradient = curator.answer(Gradient(weights, norm, noise, geometry.frame, soft_norm, joint=True))
        at = _At(run.average, gradient, gradient_deviation(curator, norm, noise))
    else:
        at = _averaged(trajectory)
    weights = geometry.weights(at.point)
    reach, cap = max(_REACH * geometry.length, norm), min(curator.problem.loss.smoothness, _STEEPEST * curvature)
    amount = _HESSIAN * budget
    hessian = curator.answer(
        ClippedHessian(weights, norm, cap, reach, curator.gaussian(amount), geometry.frame, soft_norm)
    )
    hessian_noise = curator.deviation(cap * reach**2, amount, Sensitivity.of_positive_semidefinite_sum)
    amount = PAYABLE * curator.remaining
    covariance = curator.answer(
        GradientCovariance(weights, norm, curator.gaussian(amount), geometry.frame, soft_norm)
    )
    report(progress, 1.0)
    parts = SandwichParts(
        at.point,
        at.gradient,
        hessian,
        covariance,
        at.deviation,
        hessian_noise,
        curator.deviation(norm**2, amount, Sensitivity.of_positive_semidefinite_sum),
        expected_hessian(curator.problem.loss, curvature, np.append(geometry.squares, 1.0), at.point),
        curator.scale,
        geometry.frame.matrix,
    )
    return _result(curator, parts, richness, len(trajectory.points), geometry.evidence)


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
            f"noise hides {hidden} of {directions} directions of the Hessian: effects along them are not resolved"
        )
    return SolverResult(
        found.weights,
        iterations,
        remarks=tuple(remarks),
        noise_factor=found.influence @ (vectors * np.sqrt(np.maximum(values, 0.0))),
        column_evidence=evidence,
        sandwich=found,
    )


def _measure_residuals(curator: Curator, weights: Floats, amount: float) -> float:
    """Buy the mean square of residuals, at most 1; return its root, at least what its noise can show."""
    noise = curator.deviation(1.0, amount, Sensitivity.of_bounded_sum)
    mean = curator.answer(ResidualScale(weights, curator.gaussian(amount)))
    return math.sqrt(min(max(mean, 2 * noise, _LEAST_SCALE**2), 1.0))


def _averaged(trajectory: Trajectory) -> _At:
    """Return the mean of the last points, that of the gradients there, and the deviation of its noise."""
    kept = kept_gradients(len(trajectory.points))
    deviation = math.sqrt(math.fsum(each**2 for each in trajectory.deviations[-kept:])) / kept
    points, gradients = (np.mean(each[-kept:], axis=0) for each in (trajectory.points, trajectory.gradients))
    return _At(points, gradients, deviation)


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
