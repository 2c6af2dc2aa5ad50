r"""What is summed over rows for an evaluation, and how much one row can change it.

Each kind of sum is a value: its label, its `Sensitivity`, and the integers that a block of scored rows adds up to, in
steps of 2^-20. What a row adds depends on that row and on public or released numbers alone.

**Coarse scores.** H histograms of scores (one for two classes, one per class for more). A row adds 1 to one bin of
each: L2 norm sqrt(H). A row that is replaced takes 1 from a bin and adds 1 to another in each: sqrt(2H).

**Scores by class.** The confusion matrix times a, and H histograms by (bin, whether the row is of the class) times b,
in one vector. A row adds a to one cell and b to one bin of each histogram: its norm is sqrt(a^2 + H b^2), which is at
most 1 for a^2 = 1/4 and b^2 = 3/(4H), both rounded down. A row that is replaced takes that from some places and adds
it to others. In each block (the matrix, and each histogram) it moves two entries or none, so that the square of the
norm is at most 2 (a^2 + H b^2) <= 2.

**Ladders.** H histograms over powers of two, of errors and of targets: as coarse scores.

**Error sums.** With u = (y - prediction)/c and v = (y - middle)/half, both clipped to [-1, 1], a row adds (u, u^2,
|u|, v, v^2), and for counts also its deviance divided by a clip, d in [0, 1]. Every entry is at most 1: the norm is
at most sqrt(5), or sqrt(6) with d. If the row is replaced, the square of the change of (u, u^2, |u|) is at most 4.
Between u >= 0 and -w <= 0 it is (u + w)^2 + (u^2 - w^2)^2 + (u - w)^2 = 2 (u^2 + w^2) + (u^2 - w^2)^2, which is
convex in (u^2, w^2) and so largest in a corner of the square: 4 in (1, 1). Between two numbers of one sign it is s^2
(2 + t^2) with s = |u - w| and t = u + w <= 2 - s, which is at most 3, for s = 1. That of (v, v^2) is s^2 (1 + t^2),
with s <= 2 and t <= 2 - s, which grows in s and is at most 4. So together at most sqrt(8), or sqrt(9) with d, which
moves by at most 1. Where rows are counted too, each adds 1: sqrt(6) or sqrt(7) if it is removed, and nothing more if
it is replaced. Entries are rounded to the lattice, which moves each difference by at most one step: `_ROUNDING` makes
room for that.

**Units.** A unit of at most k rows changes a sum by k times as much (`dpdescent.curator.units`).

Scores must be those of single rows: `dpdescent.evaluation.scoring` sees to that.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian
from ..arrays import Floats, Integers
from ..exact import log
from ..queries import Noised
from ..relations import Norm, Sensitivity

STEPS = 2**20  # of the lattice, in a count of one row
_ROOM = 1 + 2.0**-50
_ROUNDING = 4 * 2.0**-20  # more than sqrt(6) steps, by which rounding moves a difference
_CELLS = 0.25  # of the squared norm, for the confusion matrix
_LEAST, _MOST = -40, 40  # powers of two of a ladder


@dataclass(frozen=True, eq=False)
class Scored:
    """Some rows, as an evaluation sees them. **Unreleased data**."""

    scores: Floats  # one score of each row for each histogram; of a number, the prediction
    labels: NDArray[np.generic]  # positions among the classes, or numbers
    #: Position of the predicted class, where there are more than two.
    decided: NDArray[np.intp] | None = None


class RowSum(ABC):
    """A sum over rows that an evaluation releases."""

    label: str

    @property
    @abstractmethod
    def sensitivity(self) -> Sensitivity:
        """How much one row can change it."""

    @abstractmethod
    def add(self, rows: Scored) -> Integers:
        """Return what some rows add up to, in steps of the lattice."""

    def noised(self, noise: Gaussian, rows_per_unit: int) -> Noised:
        """Return how it is released, for units of so many rows."""
        return Noised(noise, 1 / STEPS, self.sensitivity).for_units(rows_per_unit)


def _histograms(count: int) -> Sensitivity:
    return Sensitivity(Norm.L2, math.sqrt(count) * _ROOM, math.sqrt(2 * count) * _ROOM)


@dataclass(frozen=True)
class CoarseScores(RowSum):
    """Histograms of scores between public edges, whatever the labels."""

    edges: tuple[float, ...]  # in increasing order. A score on an edge is below it.
    histograms: int = 1  # H, the number of scores of a row
    label = "coarse histogram of scores"

    @property
    def sensitivity(self) -> Sensitivity:
        return _histograms(self.histograms)

    def add(self, rows: Scored) -> Integers:
        width = len(self.edges) + 1
        return np.concatenate(
            [
                np.bincount(_bins(self.edges, rows.scores[:, each]), minlength=width).astype(np.int64) * STEPS
                for each in range(self.histograms)
            ]
        )


@dataclass(frozen=True)
class ScoresByClass(RowSum):
    """The confusion matrix, and histograms of scores by class, in one vector of norm at most 1."""

    #: Those of each histogram. For two classes there is one, and the threshold of a decision is among its edges.
    edges: tuple[tuple[float, ...], ...]
    #: Which edge is the threshold, for two classes. None where decisions are given (`Scored.decided`).
    split: int | None
    classes: int
    label = "confusion counts and histogram of scores by class"

    @property
    def cell_steps(self) -> int:
        """How much a row adds to its cell of the confusion matrix, in steps of the lattice."""
        return math.isqrt(int(_CELLS * STEPS * STEPS))

    @property
    def bin_steps(self) -> int:
        """How much a row adds to its bin of each histogram, in steps of the lattice."""
        return math.isqrt((STEPS * STEPS - self.cell_steps**2) // len(self.edges))

    @property
    def sensitivity(self) -> Sensitivity:
        return Sensitivity(Norm.L2, 1.0, math.sqrt(2) * _ROOM)

    def add(self, rows: Scored) -> Integers:
        labels = np.asarray(rows.labels, dtype=np.intp)
        parts, places = [], []
        for number, edges in enumerate(self.edges):
            found, width = _bins(edges, rows.scores[:, number]), len(edges) + 1
            of_class = labels == (1 if self.split is not None else number)
            counts = np.bincount(found + width * of_class, minlength=2 * width)
            parts.append(counts.astype(np.int64) * self.bin_steps)
            places.append(found)
        decided = places[0] > self.split if self.split is not None else rows.decided
        cells = np.bincount(labels * self.classes + np.asarray(decided, np.intp), minlength=self.classes**2)
        return np.concatenate([cells.astype(np.int64) * self.cell_steps, *parts])

    def split_answer(self, answer: Floats) -> tuple[Floats, list[Floats]]:
        """Return the cells, shape (K, K), true classes first, and the counts of each histogram, shape (2, bins)."""
        size = self.classes**2
        cells, place = answer[:size].reshape(self.classes, self.classes) * (STEPS / self.cell_steps), size
        found = []
        for edges in self.edges:
            width = 2 * (len(edges) + 1)
            found.append(answer[place : place + width].reshape(2, -1) * (STEPS / self.bin_steps))
            place += width
        return cells, found


def ladder_ends() -> Floats:
    """Return the upper ends of the rungs of a ladder: powers of two."""
    return np.ldexp(1.0, np.arange(_LEAST, _MOST + 1))


@dataclass(frozen=True)
class Ladders(RowSum):
    """Histograms over powers of two: of errors, of targets with their signs, and for counts of deviances.

    Rung j of errors is (2^(j-1), 2^j], from 2^-40 to 2^40; smaller ones are on the first and larger ones on the last.
    Targets have such rungs on both sides of 0.
    """

    deviance: bool
    label = "ladders of errors and targets"

    @property
    def sensitivity(self) -> Sensitivity:
        return _histograms(3 if self.deviance else 2)

    def add(self, rows: Scored) -> Integers:
        targets, predicted = np.asarray(rows.labels, np.float64), rows.scores[:, 0]
        width = _MOST - _LEAST + 1
        signed = _rungs(np.abs(targets))
        signed = np.where(targets < 0, width - 1 - signed, width + signed)
        parts = [np.bincount(_rungs(np.abs(targets - predicted)), minlength=width)]
        parts.append(np.bincount(signed, minlength=2 * width))
        if self.deviance:
            parts.append(np.bincount(_rungs(_deviances(targets, predicted)), minlength=width))
        return np.concatenate(parts).astype(np.int64) * STEPS

    def split_answer(self, answer: Floats) -> list[Floats]:
        """Return the counts of errors, of targets from below, and of deviances."""
        width = _MOST - _LEAST + 1
        return np.split(answer, [width, 3 * width])


@dataclass(frozen=True)
class ErrorSums(RowSum):
    """Sums of clipped errors, their squares and sizes, of clipped targets and their squares, and of deviances."""

    clip: float  # c, to which errors are clipped
    #: Targets are clipped to ``middle`` - ``half`` and ``middle`` + ``half``.
    middle: float
    half: float
    deviance: float | None = None  # to which deviances of counts are clipped
    counted: bool = False  # whether the rows are counted as well, where their number is not public
    label = "sums of clipped errors"

    @property
    def sensitivity(self) -> Sensitivity:
        more = 0 if self.deviance is None else 1
        removed = math.sqrt(5 + more + self.counted) * _ROOM
        return Sensitivity(Norm.L2, removed, math.sqrt(8 + more) * _ROOM + _ROUNDING)

    def add(self, rows: Scored) -> Integers:
        targets, predicted = np.asarray(rows.labels, np.float64), rows.scores[:, 0]
        u = _within((targets - predicted) / self.clip)
        v = _within((targets - self.middle) / self.half)
        columns = [u, u * u, np.abs(u), v, v * v]
        if self.deviance is not None:
            columns.append(np.fmin(_deviances(targets, predicted) / self.deviance, 1.0))
        if self.counted:
            columns.append(np.ones_like(u))
        return np.array([int(np.rint(each * STEPS).astype(np.int64).sum()) for each in columns], dtype=np.int64)


def _bins(edges: tuple[float, ...], scores: Floats) -> NDArray[np.intp]:
    """Return the bin of every score: how many edges are below it. A score that is not a number is in the first."""
    return np.searchsorted(np.array(edges), np.where(np.isnan(scores), -np.inf, scores), side="left")


def _rungs(sizes: Floats) -> NDArray[np.intp]:
    """Return the rung of every size; what is not a number is on the last."""
    return np.searchsorted(ladder_ends()[:-1], np.where(np.isnan(sizes), np.inf, sizes), side="left")


def _within(values: Floats) -> Floats:
    clipped: Floats = np.clip(np.where(np.isnan(values), 0.0, values), -1.0, 1.0)
    return clipped


def _deviances(targets: Floats, predicted: Floats) -> Floats:
    """Return the Poisson deviance of every row, at least 0; by a logarithm that is the same beside any other row."""
    counts, means = np.fmax(targets, 0.0), np.fmax(predicted, 2.0**-40)
    ratio = np.clip(counts / means, 2.0**-900, 2.0**900)
    found = 2 * (np.where(counts > 0, counts * log(ratio), 0.0) - counts + means)
    return np.where(np.isnan(found), np.inf, np.fmax(found, 0.0))
