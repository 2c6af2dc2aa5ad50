"""What a run releases, recorded, and given again to a run on a neighbouring table.

A guarantee is about everything that was released, not about the last weights alone.

**For an audit**, noise that keeps its answers (`Recording`) records a run; noise that returns them (`Replaying`) runs
the same solver again on either table, where it asks the same queries, and `log_ratio` adds up how much more likely
the neighbour makes every answer. The sum is a function of the answers and of public numbers: the best test of two
Gaussian sums there is, and a valid one whatever the mechanism. The attacker of a guarantee sees neither batches nor
permutations. `Replaying` therefore draws batches that always hold the row in question, and never those of the run.
The leaves of a tree are the run's own: what is claimed for a tree holds for an attacker who knows them.

**For a replay of an estimator**, a `Recorder` watches a whole fit and a `Replayer` a second one, which must ask for
the same releases, in the same order and at the same prices. What goes into a mechanism may differ by no more than the
sensitivity that both declare, which is checked in whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import laplace

from ..accounting import (
    AboveThreshold,
    Cost,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    ObjectivePerturbation,
    PureObjectivePerturbation,
    ReportNoisyMax,
)
from ..arrays import Floats
from ..curator.lattice_noise import LatticeNoise, deviation_of
from ..curator.release import Release
from ..exact import LatticeSum
from ..noise import Bits, Randomness
from ..relations import Norm, Relation
from .findings import Leak

#: Mechanisms with noise in their objective, which is not released.
IN_THE_OBJECTIVE: tuple[type[Cost], ...] = (ObjectivePerturbation, PureObjectivePerturbation)


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
        return _copy(answer)


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


class Diverged(BaseException):
    """Ends a fit that asks other queries than the recorded one; no handler of errors should stop it."""


def share_of_sensitivity(first: LatticeSum, second: LatticeSum, relation: Relation) -> Fraction:
    """Return how far apart two sums are, as a share of the sensitivity that both declare, by exact arithmetic.

    In the L2 norm it is the square of that. Of a symmetric matrix both triangles count, as in the Frobenius norm.
    """
    pairs = zip(first.values.ravel().tolist(), second.values.ravel().tolist(), strict=True)
    moved = [one - other for one, other in pairs] or [0]
    bound = Fraction(first.sensitivity.under(relation)) / Fraction(first.unit)
    if first.sensitivity.norm is Norm.L2:
        return Fraction(sum(each * each for each in moved)) / bound**2
    distance = {Norm.L1: sum(map(abs, moved)), Norm.MAX: max(map(abs, moved)), Norm.RANGE: max(moved) - min(moved)}[
        first.sensitivity.norm
    ]
    return distance / bound


@dataclass
class Comparisons:
    """How far sums were moved at most, by the labels of charges, and what could not be compared."""

    shares: dict[str, float] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)


class Recorder:
    """Keeps what goes into each mechanism and what comes out."""

    def __init__(self) -> None:
        self.releases: list[tuple[Release, Any]] = []

    def __call__(self, release: Release, draw: Callable[[], Any]) -> Any:
        """Draw the answer and keep it."""
        answer, total = draw(), release.total
        if total is not None:
            release = replace(release, total=LatticeSum(total.values.copy(), total.unit, total.sensitivity))
        self.releases.append((release, _copy(answer)))
        return answer


class Replayer:
    """Gives the answers of a recorded fit, and compares what is asked and what goes into the mechanisms."""

    def __init__(self, recorded: Recorder, seen: Comparisons) -> None:
        self._releases, self.position = recorded.releases, 0
        self.leaks: list[Leak] = []
        self.seen = seen

    def __call__(self, release: Release, draw: Callable[[], Any]) -> Any:
        """Return the recorded answer, having compared what goes into the mechanism."""
        where = f"release {self.position + 1} ({release.label}, {release.mechanism.kind})"
        if self.position == len(self._releases):
            raise self._diverge(where, "nothing more", "another release")
        recorded, answer = self._releases[self.position]
        facts = [_facts(each) for each in (recorded, release)]
        for name in facts[0]:
            if facts[0][name] != facts[1][name]:
                raise self._diverge(where, *(f"{name} {each[name]}" for each in facts))
        self.position += 1
        self._compare(recorded, release, where, answer)
        return _copy(answer)

    @property
    def finished(self) -> bool:
        """Whether everything was asked that the recorded fit has asked."""
        return self.position == len(self._releases)

    def _compare(self, first: Release, second: Release, where: str, answer: Any) -> None:
        label, relation = first.label, first.relation
        if first.keys is not None and second.keys is not None:
            private = [key for key in answer if key not in set(second.keys)]
            if private:
                self.leaks.append(Leak("release", where, "the neighbour's keys alone", f"{len(private)} keys more"))
            first, second = _aligned(first, second)
        if first.total is None or second.total is None:
            self.seen.unchecked.add(f"the law of {label!r}: the scores of all points are not known")
        elif isinstance(first.charged, IN_THE_OBJECTIVE) and first.total.values.any():
            self.seen.unchecked.add(f"how far {label!r} is moved: its noise is in the objective, too")
        else:
            share = share_of_sensitivity(first.total, second.total, relation)
            size = math.sqrt(share) if first.total.sensitivity.norm is Norm.L2 else float(share)
            self.seen.shares[label] = max(self.seen.shares.get(label, 0.0), size)
            if share > 1:
                declared = f"a sensitivity of {first.total.sensitivity.under(relation):.6g}"
                self.leaks.append(Leak("sensitivity", where, declared, f"a change of {size:.6g} times that"))

    def _diverge(self, where: str, recorded: str, replayed: str) -> Diverged:
        self.leaks.append(Leak("release", where, recorded, replayed))
        return Diverged(f"{where}: {replayed} instead of {recorded}")


def _facts(release: Release) -> dict[str, Any]:
    """Return what is public about a release."""
    total = release.total
    known = {} if total is None else {"shape": total.values.shape, "unit": total.unit, "with": total.sensitivity}
    if release.keys is not None:
        known["shape"] = ()  # how many values occur is not public
    named = {"label": release.label, "charge": release.charged, "mechanism": release.mechanism}
    return named | known | {"divisor": release.divisor, "symmetric": release.symmetric}


def _aligned(first: Release, second: Release) -> tuple[Release, Release]:
    """Return two counts of keys as counts of the keys of either, so that they can be compared."""
    every = list(dict.fromkeys([*(first.keys or ()), *(second.keys or ())]))

    def filled(release: Release) -> Release:
        total, held = release.total, release.keys or ()
        assert total is not None
        counts = dict(zip(held, total.values.tolist(), strict=True))
        values = np.array([counts.get(key, 0) for key in every], dtype=np.int64)
        return replace(release, total=LatticeSum(values, total.unit, total.sensitivity))

    return filled(first), filled(second)


def _copy(answer: Any) -> Any:
    return answer.copy() if isinstance(answer, np.ndarray | dict) else answer
