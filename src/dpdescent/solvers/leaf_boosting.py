r"""Boosted trees with random splits: each tree is one histogram of residuals and curvatures, released with noise.

A tree draws D columns at random, rather those that matter alone in the scores it starts from, and for each a cut at a
released quantile or a random half of its levels: no row is read. Its leaves are one query (`LeafSums`): with
noisy sums G of residuals and H of curvatures, whose noise has the deviation s, a leaf adds

.. math:: v = - \eta \frac{G}{\max(H, 0) + a s + 1}

to the scores. The term a s keeps leaves short that noise dominates. The noise of a tree is forgotten by later trees,
which see the residuals that it leaves, and the last third of the trajectory is averaged.

At the end one more query sorts the rows by what all trees together add to them, and tells by which factor that should
be multiplied: about 1 if the trees have found something, and about 0 if they are noise. With little noise trees also
fit the chance of the labels that they were grown on, and the same rows cannot tell that from a pattern. But a forest
is linear in the residuals: with its splits and steps, which are released, it adds :math:`-B r` to the scores for some
matrix B. Labels that are nothing but chance, in rows drawn from released histograms, show the mean of :math:`r' B r`,
the degrees of freedom of the trees; it is subtracted from what they explain. For several outputs, and where the
answer is noisy, the factor is the share of what the trees add that neither noise nor chance explains.


**Privacy** Splits are drawn from public numbers and released histograms. All else is post-processing of answers that
the curator was asked for.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..curator import Curator
from ..problems import LabelKind, Loss
from ..queries import (
    FREE_CURVATURE,
    ColumnHistograms,
    ColumnTables,
    LeafScores,
    LeafSums,
    LeafValues,
    Splits,
    leaf_of,
)
from .method import Progress, report
from .rules import PAYABLE

_LEVELS = 256
_CELLS = 4  # bits of the cells into which rows are sorted for it
_BY_SIZE = 0.7  # of the splits are about columns that matter alone
_AVERAGED = 0.3  # of the trajectory
_LONGEST = 2.0  # that a leaf adds to a score, times the rate
_ENOUGH = 10_000.0  # effective rows, n mu, from which trees are less damped
_FEW = 2500.0  # effective rows from which there are more trees
_TREES, _MOST_TREES, _DAMPING = 150, 400, 8.0
_LARGEST_FACTOR, _USUAL = 1.5, 0.4  # of the factor: its largest value, and its usual distance from what trees tell
_SURE = 3.0  # deviations above which a cell is known to have rows
_CLIPPED = 0.03  # of the residuals are clipped
_LEAST_CURVATURE = 2.0**-10  # that is thought to be usual
_OUTER = 0.02  # cuts are between this quantile and its counterpart


@dataclass(frozen=True)
class Growth:
    """Public settings of a forest: ``rate`` is the share of a step that is taken, and ``damping`` is a."""

    trees: int
    depth: int
    rate: float = 0.3
    damping: float = _DAMPING

    @classmethod
    def for_rows(cls, effective: float, trees: int | None = None, depth: int | None = None) -> Growth:
        """Return the settings for so many effective rows, n mu."""
        effective = max(effective, 1.0)
        many = round(min(max(_TREES * math.sqrt(effective / _FEW), _TREES), _MOST_TREES))
        deep = min(max(math.floor(math.log2(effective)) - 6, 4), 10)
        damping = min(max(_DAMPING * math.sqrt(_ENOUGH / effective), 2.0), _DAMPING)
        return cls(trees or many, depth or deep, damping=damping)


@dataclass(frozen=True)
class LevelColumns:
    """What is public of columns of levels: how many levels each has, and how many of the first are numbers.

    ``directions`` says of each whether scores must not fall (1) or not rise (-1) with its level; empty for none.
    """

    widths: tuple[int, ...]
    numbers: int
    directions: tuple[int, ...] = ()


@dataclass(frozen=True)
class RowBounds:
    """What a row adds to a leaf at most: the size of a residual, the norm of all, and the weight of a curvature.

    ``curvature`` is that of most rows, by public or released numbers.
    """

    slope: float
    clip: float
    weight: float
    curvature: float

    @classmethod
    def of(cls, loss: Loss, slope: float = 1.0, curvature: float = 1.0) -> RowBounds:
        """Return the bounds of a loss: curvatures are free for classes, and cost 3% of the noise for numbers.

        ``slope`` and ``curvature`` are public or released, and are those of residuals and curvatures of numbers.
        """
        if loss.labels.kind is not LabelKind.NUMBERS:
            return cls(loss.lipschitz, loss.lipschitz, FREE_CURVATURE, min(loss.smoothness, 1.0))
        return cls(slope, slope * math.sqrt(1 + 1 / 16), 0.25 * slope / curvature, curvature)


@dataclass(frozen=True)
class Chance:
    """What trees find where there is nothing to be found.

    ``told`` is the share of what they add that is neither noise nor chance, from 0 to 1; rather too small, since
    later trees take back some of the noise of earlier ones. ``fitted`` is the sum of residuals times what is taken
    from them, of the rows that trees were grown on: it is 0 on average for other rows, if labels are chance.
    """

    told: float
    fitted: float


@dataclass(frozen=True, eq=False)
class Forest:
    """Released trees: what their leaves add to the scores, and what noise did to that.

    Values, and the deviations of the ``noise`` of privacy in each leaf, have the weights of an averaged trajectory
    and the ``factor`` in them by which everything was multiplied at the end.
    """

    trees: tuple[LeafValues, ...]
    noise: tuple[Floats, ...]
    factor: float
    outputs: int

    def scores(self, levels: NDArray[np.uint8]) -> Floats:
        """Return what the trees add to the (n, K) scores of rows of levels."""
        total = np.zeros((levels.shape[0], self.outputs))
        for tree in self.trees:
            total += tree.values[leaf_of(tree.splits, levels).astype(np.intp)]
        return total

    def by_chance(self, residuals: Floats, curvatures: Floats, levels: NDArray[np.uint8], deviation: float) -> Chance:
        """Return what these trees, with these steps, find where residuals (m, K) are nothing but chance.

        Rows are public (`chance_residuals`), and ``deviation`` is that of the noise of privacy in the sums of a tree.
        """
        moved, added, noise = np.zeros_like(residuals), np.zeros_like(residuals), 0.0
        for tree, own, weight in zip(self.trees, self.noise, _averaged(len(self.trees)), strict=True):
            leaf = leaf_of(tree.splits, levels).astype(np.intp)
            now = residuals + curvatures[:, None] * moved
            sums = np.stack([np.bincount(leaf, each, minlength=own.size) for each in now.T], axis=1)
            held = np.bincount(leaf, curvatures, minlength=own.size)  # drawn rows may be where none of the table are
            steps = np.minimum(own / (weight * deviation), Growth.rate / (held + 1.0))
            values = (-steps[:, None] * sums)[leaf]
            moved += values
            added += weight * values
            noise += self.outputs * float(np.mean(own[leaf] ** 2))
        whole, chance = (float(np.mean(np.sum(each**2, axis=1))) for each in (self.scores(levels), added))
        told = max(1 - (noise + chance) / whole, 0.0) if whole > 0 else 0.0
        return Chance(told, -float(np.sum(residuals * added)))

    def scaled(self, factor: float) -> Forest:
        """Return the forest multiplied by a factor."""
        trees = tuple(LeafValues(tree.splits, factor * tree.values) for tree in self.trees)
        return Forest(trees, tuple(abs(factor) * each for each in self.noise), factor * self.factor, self.outputs)


def buy_forest(
    curator: Curator,
    columns: LevelColumns,
    quantiles: Floats,
    start: ColumnTables,
    growth: Growth,
    bounds: RowBounds,
    progress: Progress | None = None,
) -> tuple[Forest, float]:
    """Grow a forest on rows of levels with all that is left of the curator's budget.

    Also returned is the deviation of the noise of a tree. The curator is that of a `BinnedSource`, quantiles are
    those of `buy_quantiles`, and scores to start from are public or released. ``progress`` is called with the share
    of the trees that were grown.

    **Privacy** One `LeafSums` for each tree. The splits of a tree follow from public numbers and from released
    quantiles, its scores from the answers before it.
    """
    generator = curator.public_generator()
    amount = PAYABLE * curator.remaining / growth.trees
    noise = curator.gaussian(amount)
    moved = LeafSums.sensitivity(bounds.clip).times(curator.rows_per_unit).under(curator.relation)
    deviation = noise.noise_multiplier * moved
    damping = growth.damping * deviation / bounds.slope * 4 * bounds.curvature
    scores, trees, noises = LeafScores(start), [], []
    chances = column_chances(columns, quantiles, start)
    for number in range(growth.trees):
        splits = _draw_splits(generator, columns, chances, quantiles, growth.depth)
        residuals, curvatures = curator.answer(
            LeafSums(splits, scores, bounds.slope, bounds.clip, bounds.weight, noise)
        )
        steps = growth.rate / (np.maximum(curvatures, 0.0) + damping + 1.0)
        values = np.clip(-steps[:, None] * residuals, -growth.rate * _LONGEST, growth.rate * _LONGEST)
        tree = LeafValues(splits, in_order(splits, columns.directions, values))
        scores = scores.grown(tree)
        trees.append(tree)
        noises.append(steps * deviation)
        report(progress, (number + 1) / growth.trees)
    weights = _averaged(growth.trees)
    averaged = tuple(LeafValues(tree.splits, w * tree.values) for w, tree in zip(weights, trees, strict=True))
    noise_of = tuple(w * s for w, s in zip(weights, noises, strict=True))
    return Forest(averaged, noise_of, 1.0, start.constant.size), deviation


def chance_residuals(loss: Loss, scores: Floats, weight: float, spread: float, seed: int) -> tuple[Floats, Floats]:
    """Return residuals that are nothing but chance, (m, K), and curvatures, (m,), of rows with such scores.

    Labels of classes are drawn as the scores say, by a public seed. Residuals of numbers have random signs and the
    mean square ``spread``, in proportion to the curvature. Each row stands for ``weight`` rows: the sum of their
    curvatures is larger by that factor, and that of their residuals by its square root.
    """
    generator = np.random.default_rng(seed)
    margins = scores[:, 0] if loss.outputs == 1 else scores
    every = loss.labels.every
    if every is None:
        labels = loss.understood(margins)
        curvatures = loss.typical_curvatures(loss.short_residuals(margins, labels), labels)
        sizes = np.sqrt(spread * curvatures / max(float(curvatures.mean()), _LEAST_CURVATURE))
        return math.sqrt(weight) * (sizes * generator.choice((-1.0, 1.0), sizes.size))[:, None], weight * curvatures
    chances = []
    for label, own in zip(every, loss.class_weights, strict=True):
        sizes = np.abs(loss.short_residuals(margins, np.full(len(scores), label))).reshape(len(scores), -1)
        chances.append(np.maximum(1 - sizes.max(axis=1) / own, 0.0))
    cumulated = np.cumsum(chances, axis=0)
    drawn = (generator.random(len(scores)) * cumulated[-1] > cumulated).sum(axis=0).clip(0, len(every) - 1)
    labels = np.asarray(every, dtype=np.float64)[drawn]
    residuals = loss.short_residuals(margins, labels)
    curvatures = loss.typical_curvatures(residuals, labels)
    return math.sqrt(weight) * residuals.reshape(len(scores), -1), weight * curvatures


def in_order(splits: Splits, directions: tuple[int, ...], values: Floats) -> Floats:
    """Return the values of leaves, made to keep the directions of some columns.

    Leaves that differ in the cell of such a column alone are put in order by isotonic regression, one column after
    the other. That keeps an order which is there already: isotonic regression of larger numbers is larger.
    """
    shaped = values.copy().reshape(*(2,) * splits.depth, -1)
    for column in dict.fromkeys(splits.columns):
        direction = directions[column] if directions else 0
        if not direction:
            continue
        bits = [bit for bit, each in enumerate(splits.columns) if each == column]
        answers = splits.sides[bits].T.astype(np.intp)  # of each level
        changed = np.append(True, (np.diff(answers, axis=0) != 0).any(axis=1))
        front = np.moveaxis(shaped, bits, range(len(bits)))  # a view
        chain = tuple(answers[changed].T)
        front[chain] = direction * _isotonic(direction * front[chain])
    return shaped.reshape(values.shape)


def _isotonic(values: Floats) -> Floats:
    """Return the nearest numbers that do not fall along the first axis: the largest least mean from a to b."""
    length = len(values)
    sums = np.concatenate([np.zeros((1, *values.shape[1:])), np.cumsum(values, axis=0)])
    found = np.full(values.shape, -np.inf)
    for first in range(length):
        means = np.array([(sums[last + 1] - sums[first]) / (last + 1 - first) for last in range(first, length)])
        least = np.minimum.accumulate(means[::-1], axis=0)[::-1]
        found[first:] = np.maximum(found[first:], least)
    return np.maximum.accumulate(found, axis=0)  # rounding may have put equal ones out of order


def buy_quantiles(curator: Curator) -> Floats:
    """Return the cumulative shares of the 256 levels of each column, from a noisy histogram.

    **Privacy** `ColumnHistograms`, with all that is left of the budget of the curator.
    """
    noise, columns = curator.gaussian(PAYABLE * curator.remaining), curator.problem.grid.dimension
    counts = curator.answer(ColumnHistograms(_LEVELS - 1, 0, noise))[:, _LEVELS - 1 :]
    moved = ColumnHistograms.sensitivity(columns).times(curator.rows_per_unit).under(curator.relation)
    sure = np.maximum(counts - noise.noise_multiplier * moved, 0.0) + 1e-3  # counts that noise alone may have made
    shares: Floats = np.cumsum(sure, axis=1) / sure.sum(axis=1, keepdims=True)
    return shares


def column_chances(columns: LevelColumns, quantiles: Floats, start: ColumnTables) -> Floats:
    """Return how likely a split is about each column.

    Columns that matter alone are more likely to matter together: most splits are drawn in proportion to the standard
    deviation of what a column adds to the scores that trees start from, and the others evenly. The cells of a number
    are spread as released quantiles say, those of a category evenly.
    """
    sizes = np.zeros(len(columns.widths))
    for column, table in start.tables:
        sizes[column] = math.sqrt(float(_moments(columns, quantiles, column, table)[1].sum()))
    even = np.full(sizes.size, 1 / sizes.size)
    total = float(sizes.sum())
    return even if total <= 0 else _BY_SIZE * sizes / total + (1 - _BY_SIZE) * even


def _moments(columns: LevelColumns, quantiles: Floats, column: int, table: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of what a column adds, numbers being spread as quantiles say and levels evenly."""
    shares = np.full(len(table), 1 / len(table))
    if column < columns.numbers:
        shares = np.diff(quantiles[column], prepend=0.0)
    mean = shares @ table
    return mean, shares @ (table - mean) ** 2


def usual_curvature(loss: Loss, columns: LevelColumns, quantiles: Floats, start: ColumnTables) -> float:
    """Return the mean curvature of a loss of numbers, where scores are normal with released mean and variance."""
    found = [_moments(columns, quantiles, column, table) for column, table in start.tables]
    mean = start.constant[0] + sum(float(each[0][0]) for each in found)
    spread = math.sqrt(3 * sum(float(each[1][0]) for each in found))
    scores = mean + spread * np.array([-1.0, 0.0, 1.0])
    curvatures = loss.typical_curvatures(
        loss.short_residuals(scores, loss.understood(scores)), loss.understood(scores)
    )
    return min(max(float(np.array([1, 4, 1]) / 6 @ curvatures), _LEAST_CURVATURE), 1.0)


def _draw_splits(
    generator: np.random.Generator, columns: LevelColumns, chances: Floats, quantiles: Floats, depth: int
) -> Splits:
    """Return random splits: a cut of a number at a random quantile, or a random half of the levels of a category."""
    chosen = generator.choice(chances.size, size=depth, p=chances).tolist()
    sides = np.zeros((depth, _LEVELS), dtype=np.bool_)
    for own, column in zip(sides, chosen, strict=True):
        width = columns.widths[column]
        if column < columns.numbers:
            cut = int(np.searchsorted(quantiles[column], generator.uniform(_OUTER, 1 - _OUTER)))
            own[min(cut, _LEVELS - 2) + 1 :] = True
        elif width == 2:
            own[1:] = True
        else:
            own[:width] = generator.random(width) < 0.5
    return Splits(tuple(chosen), sides)


def _averaged(trees: int) -> Floats:
    """Return the weight of each tree in the mean of the last scores of a trajectory."""
    first = min(trees - 1, math.ceil((1 - _AVERAGED) * trees))
    return np.minimum(1.0, (trees - np.arange(trees)) / (trees - first))


@dataclass(frozen=True, eq=False)
class Sorted:
    """Sorts rows by what a forest of one output adds to their scores: one more column has the place of each row.

    The public ``reach`` ends the outermost of 256 places.
    """

    forest: Forest
    reach: float

    @property
    def _edges(self) -> Floats:
        return self.reach * np.linspace(-1.0, 1.0, _LEVELS + 1) ** 3  # finer near 0, where most rows are

    @property
    def _middles(self) -> Floats:
        return (self._edges[:-1] + self._edges[1:]) / 2

    @property
    def middles(self) -> Floats:
        """The mean of what the forest adds in each of the 2^4 cells, by public numbers."""
        means: Floats = self._middles.reshape(2**_CELLS, -1).mean(axis=1)
        return means

    def __call__(self, levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return rows of levels with their places."""
        places = np.searchsorted(self._edges[1:-1], self.forest.scores(levels)[:, 0], side="left").astype(np.uint8)
        return np.column_stack([levels, places])

    def scores(self, start: ColumnTables, columns: int) -> LeafScores:
        """Return the scores of such rows, what the forest adds rounded to the middle of a place."""
        return LeafScores(ColumnTables(start.constant, (*start.tables, (columns, self._middles[:, None]))))

    def splits(self, columns: int) -> Splits:
        """The cells as leaves of a tree: its bits are those of the number of a cell."""
        cell = np.arange(_LEVELS) * 2**_CELLS // _LEVELS
        bits = [cell >> (_CELLS - 1 - bit) & 1 == 1 for bit in range(_CELLS)]
        return Splits((columns,) * _CELLS, np.array(bits))


def buy_factor(curator: Curator, ordered: Sorted, start: ColumnTables, bounds: RowBounds, chance: Chance) -> float:
    """Return by which factor the scores of a forest should be multiplied, from 0 to 1.5.

    Residuals G and curvatures H at the scores of all trees are added up in cells of rows to which the trees add about
    the same number m, in cells whose curvature exceeds its noise. The factor is that of Newton's step,
    1 - (sum(G m) + f)/sum(H m^2), f being what is fitted by chance, nearer to the share told by the trees where noise
    is large.

    **Privacy** One `LeafSums` with all that is left of the budget of the curator, whose rows are ``ordered``.
    """
    last = curator.problem.grid.dimension - 1
    noise = curator.gaussian(PAYABLE * curator.remaining)
    residuals, curvatures = curator.answer(
        LeafSums(ordered.splits(last), ordered.scores(start, last), bounds.slope, bounds.clip, bounds.weight, noise)
    )
    moved = LeafSums.sensitivity(bounds.clip).times(curator.rows_per_unit).under(curator.relation)
    deviation = noise.noise_multiplier * moved
    held = curvatures > _SURE * deviation / bounds.weight
    middles, steep = ordered.middles[held], float(curvatures[held] @ ordered.middles[held] ** 2)
    # What noise makes of the factor, and how far from the share it usually is: the mean of both, by their precision.
    noisy, usual = deviation**2 * float(np.sum(middles**2)), (_USUAL * steep) ** 2
    if not usual > 0:
        return chance.told
    found = 1 - (float(residuals[held, 0] @ middles) + chance.fitted) / steep
    return min(max(chance.told + (found - chance.told) * usual / (usual + noisy), 0.0), _LARGEST_FACTOR)


def buy_slope(curator: Curator, scale: Floats) -> tuple[float, float]:
    """Return a size that few residuals exceed and the mean square of residuals clipped there, from a histogram.

    ``curator`` is that of a source with one column, in which a row has the number of ``scale`` that its residual
    exceeds. Where noise hides the rows, the largest size stands.

    **Privacy** `ColumnHistograms` of one column, with all that is left of the budget of the curator.
    """
    noise = curator.gaussian(PAYABLE * curator.remaining)
    counts = curator.answer(ColumnHistograms(_LEVELS - 1, 0, noise))[0, _LEVELS - 1 :]
    moved = ColumnHistograms.sensitivity(1).times(curator.rows_per_unit).under(curator.relation)
    deviation = noise.noise_multiplier * moved
    above = np.cumsum(counts[::-1])[::-1]  # rows at or beyond each level
    slack = 2 * deviation * np.sqrt(np.arange(_LEVELS, 0, -1))
    few = np.flatnonzero(above + slack <= _CLIPPED * curator.rows)
    slope = float(scale[min(int(few[0]), scale.size - 1)]) if few.size else float(scale[-1])
    sizes, sure = np.minimum(scale, slope), np.maximum(counts[: scale.size], 0.0)
    return slope, float(sure @ sizes**2 / max(float(sure.sum()), 1.0))
