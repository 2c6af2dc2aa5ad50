"""Cells as levels of one byte: numbers by public edges between their bounds, and 0/1 columns that belong together.

A numeric column has 256 levels between its bounds. They are even on the mean of two scales, the column's own and one
that counts doublings, so that a column whose cells spread over powers of ten keeps its resolution near 0. A level is
found by comparing a cell with edges, which has the same result for a row whatever stands beside it. Columns that are
levels of one category (by their names) become one column, whose level 0 is that of rows with none of them.

**Privacy** Edges follow from bounds that were given or paid for, groups from names and declarations. The levels of a
row are a function of that row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats
from ..exact import on_threads
from ..queries import ColumnTables
from ..solvers import SolverResult
from ..solvers.leaf_boosting import Forest
from .curves import Curves
from .effects import level_groups
from .scaling import ColumnScaling
from .shrinking import shrink_curves

LEVELS = 256  # of a byte
_DRAWN = 1000  # rows on which importances are measured
_DOUBLINGS = 10  # of the second scale


@dataclass(frozen=True, eq=False)
class Binning:
    """How the cells of a table become levels."""

    numbers: tuple[int, ...]  # positions of the numeric columns, which come first
    edges: Floats  # (len(numbers), 255): the level of a cell is the number of edges below it
    groups: tuple[tuple[int, ...], ...]  # positions of the 0/1 columns that are levels of one column, from level 1
    names: tuple[str, ...]  # of the columns of levels

    @classmethod
    def of(cls, scaling: ColumnScaling, names: Sequence[str], binary: Sequence[bool]) -> Binning:
        """Return the levels of columns with bounds, some of them declared to be 0 or 1."""
        numbers, groups, first, others = [], [], [], []
        for name, members in level_groups(names, binary).items():
            columns = [column for column, _ in members]
            if not binary[columns[0]]:
                numbers.append(columns[0])
                first.append(name)
                continue
            for start in range(0, len(columns), LEVELS - 1):  # no byte has more levels
                groups.append(tuple(columns[start : start + LEVELS - 1]))
                others.append(name if start == 0 else f"{name} ({start // (LEVELS - 1) + 1})")
        edges = np.array([_edges(scaling, column) for column in numbers]).reshape(len(numbers), LEVELS - 1)
        return cls(tuple(numbers), edges, tuple(groups), (*first, *others))

    @property
    def members(self) -> tuple[tuple[int, ...], ...]:
        """The columns of the table that each column of levels is made of."""
        return (*((column,) for column in self.numbers), *self.groups)

    @property
    def columns(self) -> int:
        """The number of columns of levels."""
        return len(self.numbers) + len(self.groups)

    @property
    def widths(self) -> tuple[int, ...]:
        """The number of levels of each column."""
        return (LEVELS,) * len(self.numbers) + tuple(len(group) + 1 for group in self.groups)

    def cells(self, place: int, scaling: ColumnScaling, names: Sequence[str]) -> NDArray[Any]:
        """Return what the levels of a column stand for: numbers, or names of levels."""
        if place < len(self.numbers):
            low, high = (end[self.numbers[place]] for end in (scaling.low, scaling.high))
            ends = np.concatenate([[low], self.edges[place], [high]])
            middles: Floats = (ends[:-1] + ends[1:]) / 2
            return middles
        own = [names[column] for column in self.groups[place - len(self.numbers)]]
        found = level_groups(own, [True] * len(own))
        levels = [level for members in found.values() for _, level in members]
        return np.array(["0", "1"] if own[0] in found else ["none", *levels], dtype=object)

    def levels(self, X: Any, threads: int | None = None) -> NDArray[np.uint8]:
        """Return the level of every cell, columns contiguous in memory."""
        cells = X.tocsc() if sparse.issparse(X) else np.asarray(X)
        found = np.zeros((cells.shape[0], self.columns), dtype=np.uint8, order="F")

        def fill(place: int) -> None:
            if place < len(self.numbers):
                own = _column(cells, self.numbers[place])
                found[:, place] = np.searchsorted(self.edges[place], own, side="left")
                return
            group = self.groups[place - len(self.numbers)]
            for level in range(len(group), 0, -1):  # a row with several has the first
                found[_column(cells, group[level - 1]) > 0.5, place] = level

        on_threads(fill, range(self.columns), threads)
        return found

    def representatives(self, scaling: ColumnScaling) -> list[sparse.csr_array]:
        """Return for each column of levels a row per level, in which only the cells of that column are not empty."""
        shape, rows = scaling.columns, []
        for place, column in enumerate(self.numbers):
            cells = self.cells(place, scaling, ())
            where = np.full(cells.size, column)
            rows.append(sparse.csr_array((cells, (np.arange(cells.size), where)), shape=(cells.size, shape)))
        for group in self.groups:
            entries = (np.ones(len(group)), (np.arange(1, len(group) + 1), np.array(group)))
            rows.append(sparse.csr_array(entries, shape=(len(group) + 1, shape)))
        return rows


def _column(cells: Any, column: int) -> Any:
    return cells[:, [column]].toarray()[:, 0] if sparse.issparse(cells) else cells[:, column]


def _edges(scaling: ColumnScaling, column: int) -> Floats:
    """Return the edges between the levels of a numeric column."""
    low, high = (float(ends[column]) for ends in scaling.ends())
    fine = np.linspace(low, high, 2**14 + 1)
    most = 2.0**_DOUBLINGS - 1
    positions = (fine + np.sign(fine) * np.log2(1 + np.abs(fine) * most) / _DOUBLINGS) / 2
    wanted = np.linspace(positions[0], positions[-1], LEVELS + 1)[1:-1]
    edges: Floats = scaling.shift[column] + scaling.scale[column] * np.interp(wanted, positions, fine)
    return edges


def additive_tables(
    binning: Binning, scaling: ColumnScaling, features: ColumnScaling | Curves, result: SolverResult
) -> ColumnTables:
    """Return the scores of an additive model as tables over levels, each cell taken for the middle of its level."""
    weights = result.weights
    if isinstance(features, Curves):  # as the additive model itself will be
        weights, _ = shrink_curves(features, weights, result.noise_factor)
    weights = weights if weights.ndim == 2 else weights[:, None]
    own, constant = weights[: features.columns], np.zeros(weights.shape[1])
    if len(weights) > features.columns:
        constant = weights[-1]
    found = [np.asarray(features.apply(rows) @ own) for rows in binning.representatives(scaling)]
    return ColumnTables(constant, tuple(enumerate(found)))


def drawn_rows(binning: Binning, quantiles: Floats | None, seed: int = 0, count: int = _DRAWN) -> NDArray[np.uint8]:
    """Return rows whose cells are drawn independently: by released shares of levels, or evenly without them."""
    generator = np.random.default_rng(seed)
    rows = np.empty((count, binning.columns), dtype=np.uint8, order="F")
    for place, width in enumerate(binning.widths):
        if quantiles is not None and place < len(quantiles):
            rows[:, place] = np.minimum(np.searchsorted(quantiles[place], generator.random(count)), width - 1)
        else:
            rows[:, place] = generator.integers(width, size=count)
    return rows


def _scored(start: ColumnTables, forest: Forest | None, rows: NDArray[np.uint8]) -> Floats:
    scores = start.scores(rows)
    return scores if forest is None else scores + forest.scores(rows)


def importances(binning: Binning, start: ColumnTables, forest: Forest | None, quantiles: Floats | None) -> Floats:
    """Return half the mean square change of a score if the cell of each column is drawn anew.

    **Privacy** Everything is computed from released numbers and public draws.
    """
    rows, others = (drawn_rows(binning, quantiles, seed) for seed in (0, 1))
    before, found = _scored(start, forest, rows), np.zeros(binning.columns)
    for place in range(binning.columns):
        changed = rows.copy(order="F")
        changed[:, place] = others[:, place]
        found[place] = np.mean((_scored(start, forest, changed) - before) ** 2) / 2
    return found


def pair_importances(
    binning: Binning, start: ColumnTables, forest: Forest | None, quantiles: Floats | None, places: Sequence[int]
) -> dict[tuple[int, int], float]:
    """Return, for pairs of some columns, what two cells do to a score together and not each by itself."""
    rows, others = (drawn_rows(binning, quantiles, seed) for seed in (0, 1))

    def scores(*changed: int) -> Floats:
        drawn = rows.copy(order="F")
        drawn[:, list(changed)] = others[:, list(changed)]
        return _scored(start, forest, drawn)

    before, alone = scores(), {place: scores(place) for place in places}
    pairs = [(i, j) for number, i in enumerate(places) for j in places[number + 1 :]]
    return {(i, j): float(np.mean((scores(i, j) - alone[i] - alone[j] + before) ** 2) / 4) for i, j in pairs}
