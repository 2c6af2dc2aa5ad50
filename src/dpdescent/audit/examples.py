"""Examples of every kind of query: they are audited, and the laws of the curator are tested on them.

A new query joins both by an entry here: a function of what is public about a table, and of the noise of the
answers, that returns queries of its kind. Queries that are not answered with Gaussian noise scale their own to
it, and a kind that has nothing to ask about such a problem returns nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

import numpy as np

from ..accounting import (
    AboveThreshold,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    ObjectivePerturbation,
    PureObjectivePerturbation,
    ReportNoisyMax,
    ShuffledDescent,
)
from ..arrays import Floats
from ..minimisers import Ball, EmpiricalRisk, RobustRisk
from ..problems import L2, Frame, LabelKind, LinearProblem, Loss, Whitening
from ..queries import (
    BallPoint,
    BestCandidates,
    BestStep,
    BestTree,
    ClippedHessian,
    ColumnHistograms,
    ColumnMoments,
    ColumnTables,
    ExcessAdversarialRisk,
    FirstStep,
    Gradient,
    GradientAndCurvature,
    GradientCovariance,
    Hessian,
    LabelCounts,
    LabelSum,
    LeafScores,
    LeafSums,
    LeafValues,
    LongGradients,
    MarginCounts,
    MeanLoss,
    MeanRowNorm,
    NoisyDescent,
    NoisyMinimiser,
    PermutedDescent,
    Public,
    Query,
    ResidualScale,
    RowCount,
    SecondMoments,
    Splits,
    TreeGradients,
)

Examples = Callable[[Public, Gaussian], Iterable[Query[Any]]]
#: Examples of each kind, by its class.
EXAMPLES: dict[type[Query[Any]], Examples] = {}


Some = TypeVar("Some", bound=Examples)


def _of(kind: type[Query[Any]]) -> Callable[[Some], Some]:
    """Register the examples of a kind of query."""

    def register(examples: Some) -> Some:
        EXAMPLES[kind] = examples
        return examples

    return register


def _bounded_slope(loss: Loss) -> bool:
    return loss.convex and math.isfinite(loss.lipschitz)


def _smooth(loss: Loss) -> bool:
    return _bounded_slope(loss) and math.isfinite(loss.smoothness)


def _frames(problem: LinearProblem) -> Iterable[Frame | Whitening]:
    """Return public coordinates, where the problem has any."""
    grid = problem.grid
    if problem.intercept and grid == type(grid)(1.0, grid.dimension):
        yield Frame.place(grid, np.linspace(-0.5, 0.5, grid.dimension), np.linspace(0.25, 1.0, grid.dimension))
        yield Whitening(grid, np.random.default_rng(0).normal(size=(grid.dimension, max(1, grid.dimension - 1))))


def _whitenings(problem: LinearProblem) -> Iterable[Whitening]:
    return (frame for frame in _frames(problem) if isinstance(frame, Whitening))


def _line(problem: LinearProblem) -> tuple[Floats, Floats, Floats]:
    """Return weights, a direction and steps along it."""
    generator = np.random.default_rng(0)
    return generator.normal(size=problem.shape), generator.normal(size=problem.shape), np.array([2.0, 0.5, 0.125])


@_of(Gradient)
def _gradients(public: Public, noise: Gaussian) -> Iterable[Gradient]:
    problem = public.problem
    weights = np.linspace(-1.0, 1.5, math.prod(problem.shape)).reshape(problem.shape)
    yield Gradient(weights, 0.5, noise)
    yield Gradient(0 * weights, 2.0 * problem.longest_row, noise, keep_margins=True)
    for frame in _frames(problem):
        yield Gradient(weights, 0.75, noise, frame, soft_norm=0.5, keep_margins=True)


@_of(TreeGradients)
def _tree_gradients(public: Public, noise: Gaussian) -> Iterable[TreeGradients]:
    def follow(leaf: int, _: Floats) -> Floats:
        return np.full(public.problem.shape, leaf / 8)  # not the totals: sums can be compared without their noise

    for leaves, clip in ((1, 0.5), (5, 2.0 * public.problem.longest_row)):
        yield TreeGradients(follow, leaves, clip, noise)


@_of(GradientAndCurvature)
def _gradients_and_curvatures(public: Public, noise: Gaussian) -> Iterable[GradientAndCurvature]:
    if math.isfinite(public.problem.loss.smoothness) and public.problem.loss.convex:
        for gradient in _gradients(public, noise):
            yield GradientAndCurvature(gradient, noise)


@_of(Hessian)
def _hessians(public: Public, noise: Gaussian) -> Iterable[Hessian]:
    if public.problem.loss.outputs == 1 and math.isfinite(public.problem.loss.smoothness):
        yield Hessian(np.linspace(-1.0, 1.0, public.problem.grid.dimension), noise)
        yield Hessian(np.zeros(public.problem.shape), noise)


@_of(ClippedHessian)
def _clipped_hessians(public: Public, noise: Gaussian) -> Iterable[ClippedHessian]:
    if public.problem.loss.outputs == 1 and math.isfinite(public.problem.loss.smoothness):
        weights = np.linspace(-1.0, 1.0, public.problem.grid.dimension)
        for frame in _whitenings(public.problem):
            yield ClippedHessian(weights, 100.0, 0.5, 0.25, noise, frame, 0.5)
            yield ClippedHessian(0 * weights, 0.75, 0.125, 2.0, noise, frame, 1.0)
            stretched = np.diag(np.linspace(0.5, 4.0, frame.matrix.shape[1]))
            yield ClippedHessian(weights, 100.0, 0.5, 0.25, noise, frame, 0.5, stretched)


@_of(GradientCovariance)
def _gradient_covariances(public: Public, noise: Gaussian) -> Iterable[GradientCovariance]:
    if public.problem.loss.outputs == 1:
        weights = np.linspace(-1.0, 1.0, public.problem.grid.dimension)
        for frame in _whitenings(public.problem):
            yield GradientCovariance(weights, 0.25, noise, frame, 0.5)
            yield GradientCovariance(0 * weights, 2.0, noise, frame, 4.0)


@_of(LongGradients)
def _long_gradients(public: Public, noise: Gaussian) -> Iterable[LongGradients]:
    if public.problem.loss.outputs == 1:
        weights = np.linspace(-1.0, 1.0, public.problem.grid.dimension)
        for frame in _whitenings(public.problem):
            yield LongGradients(weights, np.array([0.25, 0.5, 2.0]), noise, frame, 0.5)
            yield LongGradients(weights, np.array([0.25, 0.5, 2.0]), noise, frame, 0.5, apart=True)


@_of(ResidualScale)
def _residual_scales(public: Public, noise: Gaussian) -> Iterable[ResidualScale]:
    if public.problem.loss.outputs == 1:
        yield ResidualScale(np.linspace(-1.0, 1.5, public.problem.grid.dimension), noise)


@_of(MeanLoss)
def _mean_losses(public: Public, noise: Gaussian) -> Iterable[MeanLoss]:
    if public.problem.loss.outputs == 1 and math.isfinite(public.problem.loss.lipschitz):
        yield MeanLoss(np.linspace(-1.0, 1.0, public.problem.grid.dimension), noise)


@_of(MarginCounts)
def _margin_counts(public: Public, noise: Gaussian) -> Iterable[MarginCounts]:
    if public.problem.loss.labels.kind is LabelKind.SIGNS:
        weights = np.linspace(-1.0, 1.0, public.problem.grid.dimension)
        yield MarginCounts(weights, np.array([-0.5, 0.0, 0.25]), noise)
        yield MarginCounts(weights, np.zeros(1), Laplace(1 / noise.noise_multiplier))


@_of(MeanRowNorm)
def _mean_row_norms(public: Public, noise: Gaussian) -> Iterable[MeanRowNorm]:
    yield MeanRowNorm(noise)
    yield MeanRowNorm(noise, ceiling=public.problem.grid.row_bound / 2)
    yield MeanRowNorm(Laplace(1 / noise.noise_multiplier))
    for frame in _frames(public.problem):
        if isinstance(frame, Frame):
            yield MeanRowNorm(noise, frame, 2.0)


@_of(ColumnHistograms)
def _column_histograms(_: Public, noise: Gaussian) -> Iterable[ColumnHistograms]:
    yield ColumnHistograms(2, 1, noise)
    yield ColumnHistograms(5, 3, noise)


@_of(ColumnMoments)
def _column_moments(public: Public, noise: Gaussian) -> Iterable[ColumnMoments]:
    if public.problem.grid.entry_bound <= 1:
        yield ColumnMoments(0.5, noise)
        yield ColumnMoments(public.problem.longest_row, noise)


@_of(SecondMoments)
def _second_moments(public: Public, noise: Gaussian) -> Iterable[SecondMoments]:
    if public.problem.grid.entry_bound <= 1:
        yield SecondMoments(0.75, noise)
        for frame in _frames(public.problem):
            yield SecondMoments(1.5, noise, frame)


@_of(LabelCounts)
def _label_counts(public: Public, noise: Gaussian) -> Iterable[LabelCounts]:
    if public.problem.loss.labels.kind is not LabelKind.NUMBERS:
        yield LabelCounts(noise)


@_of(RowCount)
def _row_counts(_: Public, noise: Gaussian) -> Iterable[RowCount]:
    yield RowCount(noise)


@_of(LabelSum)
def _label_sums(_: Public, noise: Gaussian) -> Iterable[LabelSum]:
    yield LabelSum(noise)


@_of(LeafSums)
def _leaf_sums(public: Public, noise: Gaussian) -> Iterable[LeafSums]:
    loss, last = public.problem.loss, public.problem.grid.dimension - 1
    if not loss.has_typical_curvatures:
        return
    table = np.linspace(-1.0, 1.0, 2 * loss.outputs).reshape(2, loss.outputs)
    start = LeafScores(ColumnTables(np.linspace(-0.25, 0.25, loss.outputs), ((last, table), (0, -table))))
    one, two = Splits((0,), np.array([[False, True]])), Splits((0, last), np.array([[False, True], [True, False]]))
    slope = min(loss.lipschitz, 1.0)
    yield LeafSums(two, start, slope, slope, 3.0, noise)
    grown = start.grown(LeafValues(one, 2 * table)).grown(LeafValues(two, np.vstack([table, -3 * table])))
    yield LeafSums(one, grown, slope, slope * math.hypot(1.0, 0.25), 0.25 * slope, noise)


@_of(BestTree)
def _best_trees(public: Public, noise: Gaussian) -> Iterable[BestTree]:
    loss, last = public.problem.loss, public.problem.grid.dimension - 1
    if not loss.has_typical_curvatures:
        return
    start = LeafScores(ColumnTables(np.linspace(-0.25, 0.25, loss.outputs)))
    sides = np.array([[[False, True]], [[True, True]], [[False, False]]])
    trees = [Splits((column,), side) for column in (0, last) for side in sides]
    yield BestTree(trees, start, min(loss.lipschitz, 1.0), ExponentialMechanism(1 / noise.noise_multiplier))


@_of(FirstStep)
def _first_steps(public: Public, noise: Gaussian) -> Iterable[FirstStep]:
    weights, direction, steps = _line(public.problem)
    search = AboveThreshold(steps.size, 4 * noise.noise_multiplier, 2 * noise.noise_multiplier)
    yield FirstStep(weights, direction, steps, 0 * steps, search, ceiling=0.5)
    yield FirstStep(weights, direction, steps, 0.1 * steps, search, slope=0.25)
    yield FirstStep(weights, direction, steps, 0.1 * steps, search, ceiling=0.5, clip_losses=True)


@_of(BestStep)
def _best_steps(public: Public, noise: Gaussian) -> Iterable[BestStep]:
    weights, direction, steps = _line(public.problem)
    epsilon = 1 / noise.noise_multiplier
    yield BestStep(weights, direction, np.append(0.0, steps), ExponentialMechanism(epsilon), ceiling=1.0)
    yield BestStep(weights, direction, np.append(0.0, steps), ExponentialMechanism(epsilon), change=0.25)
    yield BestStep(weights, direction, steps, ReportNoisyMax(epsilon, "laplace"), ceiling=1.0)
    yield BestStep(weights, direction, steps, ReportNoisyMax(epsilon, "exponential"), change=0.25)


@_of(BestCandidates)
def _best_candidates(public: Public, noise: Gaussian) -> Iterable[BestCandidates]:
    points = np.random.default_rng(0).normal(size=(5, *public.problem.shape))
    yield BestCandidates(points, points[0], 0.5, ExponentialMechanism(1 / noise.noise_multiplier), 2)


@_of(NoisyMinimiser)
def _noisy_minimisers(public: Public, noise: Gaussian) -> Iterable[NoisyMinimiser]:
    problem, scale, convexity = public.problem, noise.noise_multiplier, float(public.rows)
    loss = problem.loss
    risk = EmpiricalRisk(loss, problem.longest_row) if _bounded_slope(loss) else None
    if risk is not None and isinstance(problem.penalty, L2):
        yield NoisyMinimiser(risk, 0.5 * convexity, noise)
        yield NoisyMinimiser(risk, 0.5 * convexity, NormLaplace(min(1 / scale, 16.0)))
        yield NoisyMinimiser(risk, 0.5 * convexity, Laplace(1 / scale), radius=1.0)
    if risk is not None and _smooth(loss):
        determinant = risk.log_determinant(convexity)
        paid = ObjectivePerturbation(scale, 4 * scale, determinant, loss.corners, str(public.relation), 1e-15)
        yield NoisyMinimiser(risk, convexity, paid)
        yield NoisyMinimiser(risk, convexity, PureObjectivePerturbation(1 / scale + determinant, determinant))


@_of(NoisyDescent)
def _noisy_descents(public: Public, noise: Gaussian) -> Iterable[NoisyDescent]:
    problem = public.problem
    if _smooth(problem.loss) and isinstance(problem.penalty, L2):
        step = 0.5 / (problem.smoothness + problem.penalty.weight)
        yield NoisyDescent(problem.loss, problem.longest_row, step, 3, noise)


@_of(PermutedDescent)
def _permuted_descents(public: Public, noise: Gaussian) -> Iterable[PermutedDescent]:
    problem = public.problem
    if _smooth(problem.loss) and isinstance(problem.penalty, L2):
        size, step = max(1, public.rows // 3), 0.5 / (problem.smoothness + problem.penalty.weight)
        cost = ShuffledDescent(noise.noise_multiplier, 2, -(-public.rows // size))
        yield PermutedDescent(problem.loss, problem.longest_row, size, step, cost)


@_of(BallPoint)
def _ball_points(public: Public, noise: Gaussian) -> Iterable[BallPoint]:
    problem, rows = public.problem, public.rows
    if _smooth(problem.loss) and problem.loss.outputs == 1 and problem.grid.dimension <= 3:
        risk, quadratic = EmpiricalRisk(problem.loss, problem.longest_row), np.full(problem.shape, 1.0 * rows)
        ball = Ball(risk, rows, quadratic, np.zeros(problem.shape), risk.farthest(rows, rows))
        yield BallPoint(ball, ExponentialMechanism(1 / noise.noise_multiplier))


@_of(ExcessAdversarialRisk)
def _excess_risks(public: Public, noise: Gaussian) -> Iterable[ExcessAdversarialRisk]:
    problem, rows = public.problem, public.rows
    if problem.adversary is not None and not problem.tilt:
        support = problem.adversary.support(problem.grid.dimension, problem.intercept)
        risk = RobustRisk(problem.loss, problem.longest_row, rows, 0.0, support)
        yield ExcessAdversarialRisk(risk, 0.5 * rows, np.linspace(-0.5, 0.5, problem.grid.dimension), noise)
        yield ExcessAdversarialRisk(risk, rows, np.zeros(problem.shape), Laplace(1 / noise.noise_multiplier))
