"""Small tables and their neighbours, for the tests of the comparison methods."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.optimize import minimize

from dpdescent import Ledger
from dpdescent.curator import Curator
from dpdescent.curator.array_source import ArraySource
from dpdescent.curator.lattice_noise import LatticeNoise
from dpdescent.exact import FeatureGrid
from dpdescent.noise import Randomness
from dpdescent.problems import L2, LinearProblem, Logistic, Loss, Multinomial, Squared


def make_curator(
    epsilon: float,
    loss: Loss | None = None,
    *,
    delta: float = 1e-6,
    rows: int = 2000,
    columns: int = 4,
    seed: int = 0,
    noise_seed: int = 0,
    alpha: float = 0.0,
    shift: float = 0.0,
    intercept: bool = True,
    currency: Any = "gdp",
    relation: str = "zero-out",
    account: Ledger | None = None,
    path: Any = None,
    epsilon_scale: float = 1.0,
    batch_rate: float = 1.0,
) -> Curator:
    """Return a curator of a random table in which the label follows the first columns."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(0, 1, (rows, columns))
    if intercept:
        X = np.hstack([X, np.ones((rows, 1))])
    truth = np.linspace(-4, 4, X.shape[1])
    centred = X @ truth - (X @ truth).mean() + shift
    loss = loss or Logistic()
    if isinstance(loss, Squared):
        labels = np.clip(centred / 6 + generator.normal(0, 0.1, rows), -1, 1)
    elif isinstance(loss, Multinomial):
        scores = X @ generator.normal(0, 3, (X.shape[1], loss.classes)) + generator.gumbel(size=(rows, loss.classes))
        labels = scores.argmax(axis=1).astype(np.float64)
    else:
        labels = np.where(generator.random(rows) < 1 / (1 + np.exp(-2 * centred)), loss.labels.high, loss.labels.low)
    ledger = Ledger(epsilon * epsilon_scale, delta, currency=currency, relation=relation, path=path)
    options = {"alpha": alpha, "intercept": intercept, "account": account, "batch_rate": batch_rate}
    return curator_of(X, labels, loss, ledger, seed=noise_seed, **options)


def curator_of(
    X: np.ndarray,
    labels: np.ndarray,
    loss: Loss,
    ledger: Ledger,
    *,
    rows: int | None = None,
    alpha: float = 0.0,
    intercept: bool = True,
    seed: int = 0,
    account: Ledger | None = None,
    batch_rate: float = 1.0,
) -> Curator:
    """Return a curator of the given rows, with features in [-1, 1]."""
    grid = FeatureGrid(1.0, X.shape[1])
    problem = LinearProblem(loss, grid, L2(alpha), intercept)
    source = ArraySource(grid.place(X), labels, grid)
    noise = LatticeNoise(Randomness(seed))
    return Curator(source, problem, ledger, rows or len(X), noise=noise, account=account, batch_rate=batch_rate)


def replaced(curator: Curator, row: int, relation: str, generator: np.random.Generator) -> Curator:
    """Return the neighbour of a curator's table in which one row is left out, or is another one."""
    X, labels = curator._source._features.copy(), curator._source._labels.copy()
    if relation == "zero-out":
        X, labels = np.delete(X, row, axis=0), np.delete(labels, row)
    else:
        width = X.shape[1] - curator.problem.intercept
        X[row, :width] = generator.uniform(-1, 1, width)
        labels[row] = generator.choice(np.unique(labels)) * generator.choice([-1, 1])
        if isinstance(curator.problem.loss, Squared):
            labels[row] = generator.choice([-1.0, 1.0])
        elif isinstance(curator.problem.loss, Multinomial):
            labels[row] = generator.integers(curator.problem.loss.classes)
    ledger = Ledger(curator.ledger.epsilon, curator.ledger.delta, currency=curator.ledger.currency, relation=relation)
    problem = curator.problem
    return curator_of(
        X, labels, problem.loss, ledger, rows=curator.rows, alpha=problem.penalty.weight, intercept=problem.intercept
    )


def optimum(curator: Curator) -> tuple[float, Callable[[np.ndarray], float]]:
    """Return the least objective, and the objective itself, from the rows."""
    source, problem = curator._source, curator.problem
    X, y = source._features, source._labels

    def value(weights: np.ndarray) -> float:
        w = weights.reshape(problem.shape)
        return float(problem.loss.values(X @ w, y).mean()) + problem.penalty_value(w)

    found = minimize(value, np.zeros(int(np.prod(problem.shape))), method="BFGS", options={"gtol": 1e-6})
    return float(found.fun), value


class Recorder(LatticeNoise):
    """Noise that is left out: it keeps every sum it was given, and the cost, for tests of sensitivity."""

    def __init__(self) -> None:
        super().__init__(Randomness(0))
        self.sums: list[Any] = []
        self.costs: list[Any] = []

    def _record(self, total: Any, cost: Any) -> np.ndarray:
        self.sums.append(total)
        self.costs.append(cost)
        return total.to_float()

    def gaussian(self, total: Any, cost: Any, relation: Any) -> np.ndarray:
        return self._record(total, cost)

    def norm_laplace(self, point: Any, cost: Any, relation: Any) -> np.ndarray:
        return self._record(point, cost)

    def laplace(self, total: Any, cost: Any, relation: Any) -> np.ndarray:
        return self._record(total, cost)

    def least(self, scores: Any, cost: Any, relation: Any) -> int:
        return int(np.argmin(self._record(scores, cost)))


def recorded(curator: Curator, ask: Callable[[Curator], Any]) -> Any:
    """Return the last sum that answering a query would add noise to."""
    curator._noise = Recorder()
    ask(curator)
    return curator._noise.sums[-1]
