"""A run of noisy gradient descent, watched from outside: true gradients beside the noisy ones.

The watching is not private: true norms and objectives are unpaid. It is for public data only.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ...curator import ArraySource, Curator, Gradient, LatticeNoise
from ...datasets import Dataset
from ...errors import InvalidParameter
from ...exact import FeatureGrid
from ...ledger import Ledger
from ...noise import Randomness
from ...problems import L2, LinearProblem, Logistic

__all__ = ["Moment", "Trace", "follow"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trace:
    """What is run for a table of a single descent.

    Parameters
    ----------
    name, title, caption, claim : str
    dataset : str
    noise_norm : float
        Root of the mean squared norm of the noise on a gradient.
    clip_gradient : float
    steps, candidates : int
        Iterations, and step sizes tried at each, spread evenly up to ``max_step``.
    max_step : float
    seeds : int
        Descents, each with noise of its own.
    """

    name: str
    title: str
    caption: str
    claim: str
    dataset: str = "adult"
    noise_norm: float = 0.50119
    clip_gradient: float = 3.0
    steps: int = 10
    candidates: int = 20
    max_step: float = 2.0
    seeds: int = 5


@dataclass(frozen=True)
class Moment:
    """One line of the table."""

    iteration: int
    gradient_norm: float
    noisy_norm: float
    noise_norm: float
    objective: float
    spent_epsilon: float


def follow(trace: Trace, data: Dataset, *, delta: float = 1e-8, seed: int = 0) -> list[Moment]:
    """Run the descent on public data and return what a table of it shows.

    **Privacy** The noisy gradients come from a curator that charges a ledger, whose epsilon is reported; the true
    norms, objectives and step sizes are not private.
    """
    if len(data.classes) != 2:
        raise InvalidParameter(f"{trace.name} needs a data set of two classes, and {data.name!r} has another number")
    grid = FeatureGrid(1.0, data.X.shape[1] + 1)
    rows = grid.place(np.column_stack([data.X, np.ones(len(data.y))]))
    labels = np.where(data.y == data.classes[1], 1.0, -1.0)
    ledger = Ledger(1.0, delta, currency="zcdp", relation="zero-out")
    curator = Curator(
        ArraySource(rows, labels, grid),
        LinearProblem(Logistic(), grid, L2(0.0), True),
        ledger,
        len(labels),
        noise=LatticeNoise(Randomness(seed)),
    )
    deviation = trace.noise_norm / math.sqrt(grid.dimension)
    amount = curator.amount_of_noise(deviation * len(labels) / trace.clip_gradient)
    weights, moments = np.zeros(grid.dimension), []
    for iteration in range(trace.steps + 1):
        noisy = curator.answer(Gradient(weights, trace.clip_gradient, curator.gaussian(amount)))
        moments.append(
            Moment(
                iteration,
                float(np.linalg.norm(_gradient(rows, labels, weights))),
                float(np.linalg.norm(noisy)),
                curator.deviation(trace.clip_gradient, amount) * math.sqrt(grid.dimension),
                _objective(rows, labels, weights),
                ledger.spent_epsilon(),
            )
        )
        points = [weights - step * noisy for step in np.linspace(0, trace.max_step, trace.candidates)]
        weights = min(points, key=lambda point: _objective(rows, labels, point))
    return moments


def _objective(rows: Floats, labels: Floats, weights: Floats) -> float:
    return float(np.logaddexp(0, -labels * (rows @ weights)).mean())


def _gradient(rows: Floats, labels: Floats, weights: Floats) -> Floats:
    slopes = -labels / (1 + np.exp(labels * (rows @ weights)))
    return np.asarray(rows.T @ slopes / len(labels))
