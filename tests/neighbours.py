"""What tests of private queries share: sources and noise that keep records, and exact distances of sums."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import numpy as np
from scipy import sparse, stats

from dpdescent.curator import Curator
from dpdescent.curator.array_source import ArraySource
from dpdescent.curator.lattice_noise import LatticeNoise
from dpdescent.exact import FeatureGrid, LatticeSum
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import L2, LinearProblem, Logistic, Loss

ALARM = 1e-6
RICH = 1e12  # an epsilon at which noise is invisible
STORAGE = {
    "dense": np.asarray,
    "fortran": np.asfortranarray,
    "float32": lambda X: np.asarray(X, np.float32),
    "csr": sparse.csr_array,
    "csr-float32": lambda X: sparse.csr_matrix(np.asarray(X, np.float32)),
}


class Watched(ArraySource):
    """A source that notes what had been charged whenever it is touched."""

    ledgers: tuple[Ledger, ...] = ()
    touches: list[tuple[int, ...]]

    def note(self) -> None:
        self.touches.append(tuple(len(ledger.entries) for ledger in self.ledgers))

    def map_sum(self, function, *aligned):
        self.note()
        return super().map_sum(function, *aligned)

    def map_rows(self, function, *aligned):
        self.note()
        return super().map_rows(function, *aligned)


class Recorder(LatticeNoise):
    """Noise that keeps the exact sums it was given."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(Randomness(seed))
        self.sums: list[LatticeSum] = []

    def gaussian(self, total, cost, relation):
        self.sums.append(total)
        return super().gaussian(total, cost, relation)

    def gaussian_symmetric(self, total, cost, relation):
        self.sums.append(total)
        return super().gaussian_symmetric(total, cost, relation)

    def least(self, scores, cost, relation):
        self.sums.append(scores)
        return super().least(scores, cost, relation)


def curator(
    features: Any,
    labels: Any,
    grid: FeatureGrid,
    loss: Loss | None = None,
    *,
    epsilon: float = RICH,
    relation: str = "zero-out",
    currency: str = "gdp",
    penalty: float = 0.0,
    intercept: bool = True,
    rows: int | None = None,
    block_rows: int = 2**14,
    **options: Any,
) -> Curator:
    """Return a curator of rows on the grid; its source is `Watched`, its noise a `Recorder`, its batches repeat."""
    ledger = Ledger(epsilon, 1e-6, relation=relation, currency=currency)
    source = Watched(features, labels, grid, block_rows)
    source.touches = []
    source.ledgers = tuple(each for each in (ledger, options.get("account")) if each is not None)
    problem = LinearProblem(loss or Logistic(), grid, L2(penalty), intercept)
    rows = rows or max(1, features.shape[0])
    return Curator(source, problem, ledger, rows, **({"noise": Recorder()} | options))


def sums(asked: Curator) -> list[LatticeSum]:
    return asked._noise.sums  # type: ignore[attr-defined,no-any-return]


def touches(asked: Curator) -> list[tuple[int, ...]]:
    return asked._source.touches  # type: ignore[attr-defined,no-any-return]


def squared_distance(first: LatticeSum, second: LatticeSum) -> Fraction:
    """Return the exact squared L2 distance of two sums."""
    assert (first.unit, first.sensitivity) == (second.unit, second.sensitivity)
    differences = first.values.astype(object).ravel() - second.values.astype(object).ravel()
    return sum((int(each) ** 2 for each in differences), 0) * Fraction(first.unit) ** 2


def share_of_sensitivity(first: LatticeSum, second: LatticeSum, relation: str) -> Fraction:
    """Return the squared distance of two sums as a share of what they declare; more than 1 is a breach."""
    return squared_distance(first, second) / Fraction(first.sensitivity.under(relation)) ** 2


def has_deviation(noise: np.ndarray, sigma: float) -> bool:
    """Return whether independent draws have that deviation; a false alarm has the probability 1e-6."""
    low, high = stats.chi2.ppf([ALARM / 2, 1 - ALARM / 2], noise.size)
    return bool(low <= np.sum((noise / sigma) ** 2) <= high)


def assert_deviation(noise: np.ndarray, sigma: float) -> None:
    """Accept the promised deviation, and reject half and double of it."""
    assert has_deviation(noise, sigma)
    assert not has_deviation(noise, sigma / 2)
    assert not has_deviation(noise, 2 * sigma)
    assert abs(noise.mean()) < 5 * sigma / np.sqrt(noise.size)
