"""Short ways to ask a curator in tests: by the amount to spend, as a solver thinks of it."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpdescent.accounting import AboveThreshold, Cost, ExponentialMechanism, Gaussian, ShuffledDescent, calibrate
from dpdescent.curator import Batch, Curator
from dpdescent.minimisers import Ball
from dpdescent.queries import (
    BallPoint,
    BestCandidates,
    BestStep,
    ColumnMoments,
    ExcessAdversarialRisk,
    FirstStep,
    Gradient,
    GradientAndCurvature,
    Hessian,
    LabelCounts,
    LabelSum,
    MeanLoss,
    MeanRowNorm,
    NoisyDescent,
    NoisyMinimiser,
    PermutedDescent,
    SecondMoments,
    finest_clipped_sum,
)
from dpdescent.queries.query import Rows
from dpdescent.relations import Sensitivity
from dpdescent.solvers.agd import sharpest
from dpdescent.solvers.backtracking import search_noise


def gradient(curator: Curator, weights: Any, clip: float, amount: float, frame: Any = None) -> np.ndarray:
    return curator.answer(Gradient(weights, clip, curator.gaussian(amount), frame, keep_margins=True))


def column_moments(curator: Curator, clip: float, amount: float) -> tuple[np.ndarray, np.ndarray]:
    return curator.answer(ColumnMoments(clip, curator.gaussian(amount)))


def mean_row_norm(curator: Curator, amount: float, frame: Any = None, ceiling: float = math.inf) -> float:
    return curator.answer(MeanRowNorm(curator.gaussian(amount), frame, ceiling))


def second_moments(curator: Curator, clip: float, amount: float, frame: Any = None) -> np.ndarray:
    return curator.answer(SecondMoments(clip, curator.gaussian(amount), frame))


def best_step(
    curator: Curator,
    weights: Any,
    direction: Any,
    steps: Any,
    amount: float,
    *,
    ceiling: float | None = None,
    change: float | None = None,
    selection: Any = "exponential-mechanism",
) -> int:
    choice = sharpest(selection, amount, curator.currency)
    return curator.answer(BestStep(weights, direction, steps, choice, ceiling, change))


def best_candidates(curator: Curator, candidates, reference, change, choices, amount) -> list[int]:
    choice = curator.currency.selection(amount / choices)
    return curator.answer(BestCandidates(candidates, reference, change, choice, choices))


def label_counts(curator: Curator, amount: float) -> np.ndarray:
    return curator.answer(LabelCounts(curator.gaussian(amount)))


def label_sum(curator: Curator, amount: float) -> float:
    return curator.answer(LabelSum(curator.gaussian(amount)))


def mean_loss(curator: Curator, weights: Any, noise: Gaussian) -> tuple[float, float]:
    query = MeanLoss(weights, noise)
    return curator.answer(query), query.deviation(curator.public())


def noisy_minimiser(curator: Curator, risk, strong_convexity, cost, **options: Any) -> np.ndarray:
    return curator.answer(NoisyMinimiser(risk, strong_convexity, cost, **options))


def noisy_descent(curator: Curator, loss, row_bound, step_size, steps, amount) -> np.ndarray:
    return curator.answer(NoisyDescent(loss, row_bound, step_size, steps, curator.gaussian(amount)))


def permuted_descent(curator: Curator, loss, row_bound, passes, batch_rows, step_size, amount) -> np.ndarray:
    batches = -(-curator.rows // batch_rows)
    cost = calibrate(lambda s: ShuffledDescent(1 / s, passes, batches), amount, curator.currency)
    return curator.answer(PermutedDescent(loss, row_bound, batch_rows, step_size, cost))


def gradient_and_curvature(
    curator: Curator, frame, clip, soft_norm, weights, amount, curvature_amount=0.0
) -> tuple[np.ndarray, float]:
    query = Gradient(weights, clip, curator.gaussian(amount), frame, soft_norm)
    if curvature_amount == 0:
        return curator.answer(query), 0.0
    return curator.answer(GradientAndCurvature(query, curator.gaussian(curvature_amount)))


class FrameSteps:
    """Gradients and curvatures at several points of one frame."""

    def __init__(self, curator: Curator, frame: Any, clip: float, soft_norm: float) -> None:
        self._asked = (curator, frame, clip, soft_norm)
        asked = Gradient(np.zeros(curator.problem.shape), clip, Gaussian(1.0), frame, soft_norm)
        curator.require_answerable(asked)

    def at(self, weights, gradient_amount, curvature_amount=0.0) -> tuple[np.ndarray, float]:
        return gradient_and_curvature(*self._asked, weights, gradient_amount, curvature_amount)


class RowBatches:
    """Batches of one rate."""

    def __init__(self, curator: Curator, rate: float) -> None:
        self.curator, self.sampling = curator, curator.sampling(rate)
        self.size, self.rate = self.sampling.size, self.sampling.rate

    def cost(self, *parts: Cost) -> Cost:
        return self.sampling.cost(*parts)

    def gradient_noise(self, amount: float) -> Gaussian:
        noise = self.sampling.gaussian(amount, self.curator.currency)
        finest_clipped_sum(self.curator.public(self.sampling), 1.0, noise)
        return noise

    def search_noise(self, amount, max_queries, noise=None, threshold=None) -> AboveThreshold:
        return search_noise(self.sampling, amount, self.curator.currency, max_queries, noise, threshold)

    def draw(self, *parts: Cost, label: str = "") -> Drawn:
        named = " and ".join("gradient" if isinstance(part, Gaussian) else "step size" for part in parts)
        return Drawn(self.curator, Batch(self.sampling, parts, label or named))

    def deviation(self, clip: float, noise: Gaussian) -> float:
        return Sensitivity.of_clipped_sum(clip).under(self.curator.relation) * noise.noise_multiplier / self.size


class Drawn:
    """A batch, and the queries that it answers with the mechanisms that it was drawn for."""

    def __init__(self, curator: Curator, batch: Batch) -> None:
        self.curator, self.batch = curator, batch

    def _part(self, kind: type) -> Any:
        return next(
            (part for part in self.batch.parts if isinstance(part, kind)),
            kind(1, 1.0, 1.0) if kind is AboveThreshold else Gaussian(1.0),
        )

    def gradient(self, weights: Any, clip: float, frame: Any = None) -> np.ndarray:
        query = Gradient(weights, clip, self._part(Gaussian), frame, keep_margins=True)
        return self.curator.answer(query, self.batch)

    def first_step(self, weights, direction, steps, demands, **bounds: float) -> int | None:
        search = self._part(AboveThreshold)
        return self.curator.answer(FirstStep(weights, direction, steps, demands, search, **bounds), self.batch)


def table_of(curator: Curator) -> Rows:
    """Return the rows of a curator, as a computation that was paid for gets them."""
    source, grid = curator._source, curator.problem.grid
    return Rows(source, source.map_rows(lambda rows, _: grid.squared_norms(rows)), curator._stream)


def sample_point(curator: Curator, ball: Ball, cost: ExponentialMechanism) -> np.ndarray:
    return curator.answer(BallPoint(ball, cost))


def excess_adversarial_risk(curator: Curator, risk, strong_convexity, weights, cost) -> tuple[float, float]:
    return curator.answer(ExcessAdversarialRisk(risk, strong_convexity, weights, cost))


def hessian(drawn: Drawn, weights: Any) -> np.ndarray:
    noise = [part for part in drawn.batch.parts if isinstance(part, Gaussian)][-1]
    return drawn.curator.answer(Hessian(weights, noise), drawn.batch)
