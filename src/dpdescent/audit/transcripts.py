"""What a run released, and how much more likely a neighbouring table makes it.

A guarantee is about everything that was released, not about the last weights alone. Noise that keeps its answers
records a run; noise that returns them runs the same solver again on either table, where it asks the same questions,
and adds up how much more likely the neighbour makes every answer. The sum is a function of the answers and of public
numbers: the best test of two Gaussian sums there is, and a valid one whatever the mechanism.

The attacker of a guarantee sees neither batches nor permutations. A replay therefore draws batches that always hold
the row in question, and never those of the run. The leaves of a tree are the run's own: what is claimed for a tree
holds for an attacker who knows them.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import laplace

from ..accounting import AboveThreshold, Cost, ExponentialMechanism, Gaussian, Laplace, NormLaplace, ReportNoisyMax
from ..curator.lattice_noise import LatticeNoise, deviation_of
from ..exact import LatticeSum
from ..noise import Bits, Randomness
from ..relations import Relation

__all__ = ["Recording", "Released", "Replaying", "divergence", "log_ratio"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Released:
    """What went into a mechanism, and what came out."""

    total: LatticeSum
    cost: Cost
    relation: Relation
    answer: Any


class Recording(LatticeNoise):
    """Noise that keeps every answer."""

    def __init__(self, seed: int | None) -> None:
        super().__init__(Randomness(seed))
        self.released: list[Released] = []

    def release(self, total: LatticeSum, cost: Cost, relation: Relation, *, symmetric: bool = False) -> Any:
        """Return what the mechanism makes of a sum, and keep it."""
        answer = super().release(total, cost, relation, symmetric=symmetric)
        self.released.append(Released(total, cost, relation, answer))
        return answer


class Replaying(LatticeNoise):
    """Noise that gives the answers of another run, and keeps the sums of this one."""

    def __init__(self, recorded: Recording) -> None:
        super().__init__(_KnownBatches(recorded.randomness.seed))
        self._left = list(recorded.released)
        self.released: list[Released] = []

    def release(self, total: LatticeSum, cost: Cost, relation: Relation, *, symmetric: bool = False) -> Any:
        """Return the next answer of the other run."""
        answer = self._left.pop(0).answer
        self.released.append(Released(total, cost, relation, answer))
        return answer.copy() if isinstance(answer, np.ndarray) else answer


class _KnownBatches(Randomness):
    """The public choices and the leaves of a run, batches of the first rows, and other choices than its own."""

    def stream(self, mechanism: str, release: int) -> Bits:
        if mechanism in ("public", "leaves"):
            return super().stream(mechanism, release)
        return _Counting() if mechanism == "batch" else Randomness(0).stream(mechanism, release)


class _Counting:
    """The words 0, 1, 2 and so on: the least of them belong to the first rows, which are thus in every batch."""

    def words(self, count: int) -> NDArray[np.uint64]:
        return np.arange(count, dtype=np.uint64)

    def integer(self, bits: int) -> int:
        return 0


def log_ratio(first: list[Released], second: list[Released]) -> float:
    """Return the logarithm of how much more likely the second table makes the answers than the first."""
    return math.fsum(_log_ratio(a.total, b) for a, b in zip(first, second, strict=True))


def divergence(first: list[Released], second: list[Released]) -> float:
    """Return about how well answers tell two tables apart, from the exact sums: it grows with what they differ by.

    For choices it is the symmetrised Kullback-Leibler divergence, and so it is for Gaussian noise.
    """
    return math.fsum(_divergence(a.total, b) for a, b in zip(first, second, strict=True))


def _log_ratio(total: LatticeSum, released: Released) -> float:
    cost, relation, answer = released.cost, released.relation, released.answer
    first, second = total.to_float(), released.total.to_float()
    change = total.sensitivity.under(relation)
    if isinstance(cost, Gaussian):
        scale = deviation_of(total, cost, relation)
        return float(np.sum((answer - first) ** 2 - (answer - second) ** 2)) / (2 * scale**2)
    if isinstance(cost, Laplace):
        return float(np.sum(np.abs(answer - first) - np.abs(answer - second))) * cost.epsilon / change
    if isinstance(cost, NormLaplace):
        return float(np.linalg.norm(answer - first) - np.linalg.norm(answer - second)) * cost.epsilon / change
    if isinstance(cost, ExponentialMechanism | ReportNoisyMax | AboveThreshold):
        logs = [_log_law(each, cost, relation) for each in (total, released.total)]
        place = -1 if answer is None else answer
        return float(logs[1][place] - logs[0][place])
    return 0.0


def _divergence(total: LatticeSum, released: Released) -> float:
    cost, relation = released.cost, released.relation
    moved, change = total.to_float() - released.total.to_float(), total.sensitivity.under(relation)
    if isinstance(cost, Gaussian):
        return float(np.sum(moved**2)) / deviation_of(total, cost, relation) ** 2
    if isinstance(cost, Laplace | NormLaplace):
        order = 1 if isinstance(cost, Laplace) else 2
        return float(np.linalg.norm(moved.ravel(), order)) * cost.epsilon / change
    if isinstance(cost, ExponentialMechanism | ReportNoisyMax | AboveThreshold):
        first, second = (_log_law(each, cost, relation) for each in (total, released.total))
        return float(np.sum((np.exp(first) - np.exp(second)) * (first - second)))
    return 0.0


def _log_law(
    total: LatticeSum, cost: ExponentialMechanism | ReportNoisyMax | AboveThreshold, relation: Relation
) -> Floats:
    """Return about the log probability of every choice; that of a search which finds nothing comes last.

    That of the exponential mechanism is exact. Report-noisy-max is taken for it, and a search as if every query had
    a threshold of its own.
    """
    sums, change = total.to_float().ravel(), total.sensitivity.under(relation)
    if isinstance(cost, AboveThreshold):
        levels = sums / (change * math.hypot(cost.query_scale, cost.threshold_scale))
        below = np.append(0.0, np.cumsum(laplace.logcdf(-levels)))
        return np.asarray(below + np.append(laplace.logcdf(levels), 0.0))
    scaled = -cost.epsilon / change * sums
    shifted = scaled - scaled.max()
    return np.asarray(shifted - np.log(np.exp(shifted).sum()))
