r"""Boosted trees with random splits: each tree is one histogram of residuals and curvatures, released with noise.

A tree draws D columns at random, rather those that matter alone in the scores it starts from, and for each a cut at a
released quantile or a random half of its levels: no row is read. Of several such trees one is chosen whose leaves
differ much in their residuals (`BestTree`); the choice costs 15% of what its leaves cost, however many there are, and
its noise is small beside the scores of trees, to which all rows add. Its leaves are one query (`LeafSums`): with
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


**Privacy** Splits are drawn from public numbers and released histograms, and chosen by a paid answer. All else is
post-processing of answers that the curator was asked for.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..curator import Curator
from ..problems import LabelKind, Loss
from ..queries import (
    BestTree,
    ColumnHistograms,
    ColumnTables,
    LeafScores,
    LeafSums,
    LeafValues,
    Splits,
    leaf_of,
    lengthening,
)
from .leaf_contrasts import ColumnSets, acting_together, clear_shares, contrasts, several_columns
from .method import Progress, report
from .rules import PAYABLE

_LEVELS = 256
_MISTAKEN = 0.02  # of tables without any, in which columns are thought to act together
_CELLS = 4  # bits of the cells into which rows are sorted for it
_FIRST = 0.25  # of the trees are grown before it is known whether there will be more
_AT_RANDOM = 0.125  # of the trees, and half of the others, split on columns regardless of earlier ones
_WIDEST = 4.0  # places end at so many root mean squares of what trees add
_AVERAGED = 0.3  # of the trajectory
_LONGEST = 2.0  # that a leaf adds to a score, times the rate
_ENOUGH = 10_000.0  # effective rows, n mu, from which trees are less damped
_FEW = 2500.0  # effective rows from which there are more trees
_TREES, _MOST_TREES, _DAMPING = 150, 400, 8.0
_LARGEST_FACTOR, _USUAL = 1.5, 0.4  # of the factor: its largest value, and its usual distance from what trees tell
_EVIDENCE = 1.5  # deviations by which trees explain more than nothing; a choice finds half of one by chance
_SURE = 3.0  # deviations above which a cell is known to have rows
_BY_SIZE = 0.7  # of the splits are about columns that matter alone
_CLIPPED = 0.03  # of the residuals are clipped
_LEAST_CURVATURE = 2.0**-10  # that is thought to be usual
_CANDIDATES, _CHOICE = 8, 0.15  # of a tree, and what the choice costs beside its leaves
_MOST_READ = 400_000  # rows times candidates of one tree, if these are several
_OUTER = 0.02  # cuts are between this quantile and its counterpart


@dataclass(frozen=True)
class Growth:
    """Public settings of a forest: ``rate`` is the share of a step that is taken, and ``damping`` is a.

    Each tree is chosen from so many ``candidates``.
    """

    trees: int
    depth: int
    rate: float = 0.3
    damping: float = _DAMPING
    candidates: int = 1

    @classmethod
    def for_rows(
        cls, effective: float, trees: int | None = None, depth: int | None = None, rows: int = _MOST_READ
    ) -> Growth:
        """Return the settings for so many effective rows, n mu; the candidates of a tree are read from all rows."""
        effective = max(effective, 1.0)
        many = round(min(max(_TREES * math.sqrt(effective / _FEW), _TREES), _MOST_TREES))
        deep = min(max(math.floor(math.log2(effective)) - 6, 4), 10)
        damping = min(max(_DAMPING * math.sqrt(_ENOUGH / effective), 2.0), _DAMPING)
        candidates = min(max(_MOST_READ // max(rows, 1), 1), _CANDIDATES)
        return cls(trees or many, depth or deep, damping=damping, candidates=candidates)


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

    ``curvature`` is that of most rows, and ``spread`` the variance of a residual in units of its curvature, by public
    or released numbers. Curvatures cost 3% of the noise; those of classes are lengthened to twice the largest.
    """

    slope: float
    clip: float
    weight: float
    curvature: float
    spread: float = 1.0

    @classmethod
    def of(cls, loss: Loss, slope: float = 1.0, curvature: float = 1.0, square: float = 1.0) -> RowBounds:
        """Return the bounds of a loss.

        ``slope``, ``curvature`` and ``square`` are public or released, and are those of residuals and curvatures of
        numbers, and the mean square of residuals.
        """
        largest, spread = curvature, square / curvature
        if loss.labels.kind is not LabelKind.NUMBERS:
            slope, curvature, spread = loss.lipschitz, min(loss.smoothness, 1.0), square
            largest = 2 * curvature
        return cls(slope, slope * math.sqrt(1 + 1 / 16), 0.25 * slope / largest, curvature, spread)


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

    def scaled(self, factor: float) -> Forest:
        """Return the forest multiplied by a factor."""
        trees = tuple(LeafValues(tree.splits, factor * tree.values) for tree in self.trees)
        return Forest(trees, tuple(abs(factor) * each for each in self.noise), factor * self.factor, self.outputs)


@dataclass(frozen=True, eq=False)
class Step:
    """How a tree followed from its sums: what it took of each leaf and contrast, and the curvatures it was told."""

    leaves: Floats
    contrasts: Floats
    held: Floats

    def values(self, residuals: Floats, curvatures: Floats) -> Floats:
        """Return the values (2^D, K) of leaves with such sums: clear contrasts first, then what they leave."""
        clear = np.zeros_like(residuals)
        if self.contrasts.any():
            clear = -contrasts(self.contrasts * contrasts(residuals))
        return clear - self.leaves[:, None] * (residuals + curvatures[:, None] * clear)

    def taken_back(self, deviation: float) -> float:
        """Return how much of their own curvature leaves take back, whose sums have noise of that deviation.

        Of noise n in a sum x, steps f(x) = r/(max(x, 0) + b) have the mean of n f(x) that Stein's lemma tells, the
        variance of n times that of f'(x): where noise raises x, steps are shorter. It is taken out again.
        """
        steeper = np.sum(self.leaves[self.held > 0] ** 2) / Growth.rate
        return float(self.leaves @ self.held) + deviation**2 * float(steeper)

    def noise(self, deviation: float) -> tuple[Floats, float]:
        """Return the variance that noise gives to values: in each leaf by itself, and by contrasts in all alike."""
        alike = np.max(np.sum(self.contrasts**2, axis=0)) * len(self.leaves) * deviation**2
        return (self.leaves * deviation) ** 2, float(alike)


@dataclass(frozen=True, eq=False)
class Grown:
    """Trees as they were grown: their values before they are averaged, and the deviation of noise in their sums.

    ``curvature_deviation`` is that of noise in sums of curvatures. ``clearest`` is the square of the largest contrast
    of several columns, in units of the variance of noise and chance.
    """

    trees: tuple[LeafValues, ...]
    steps: tuple[Step, ...]
    deviation: float
    clearest: float = 0.0
    curvature_deviation: float = 0.0

    @property
    def surely_together(self) -> bool:
        """Whether a contrast is longer than the largest one of nothing but noise is, but for one table in fifty."""
        every = sum(step.held.size * step.contrasts.shape[1] for step in self.steps)
        return self.clearest > 2 * math.log(every / _MISTAKEN)

    def forest(self, together: bool = False) -> Forest:
        """Return the mean of the last scores of the trajectory; or only what columns do ``together`` in each tree.

        Noise of contrasts is the same for all leaves of a set. Effects take it for that of single leaves, which
        means have less of: it is told 2^D times as large.
        """
        outputs, trees, noises = self.trees[0].values.shape[1], [], []
        for weight, tree, step in zip(_averaged(len(self.trees)), self.trees, self.steps, strict=True):
            alone, alike = step.noise(self.deviation)
            values = acting_together(tree.splits.columns, tree.values) if together else tree.values
            trees.append(LeafValues(tree.splits, weight * values))
            noises.append(weight * np.sqrt(alone + alone.size * alike))
        return Forest(tuple(trees), tuple(noises), 1.0, outputs)

    def by_chance(
        self, residuals: Floats, curvatures: Floats, levels: NDArray[np.uint8], together: bool = False
    ) -> Chance:
        """Return what these trees, with these steps, find where residuals (m, K) are nothing but chance.

        Rows are public (`chance_residuals`), but their columns are drawn one by one, which spreads them over more
        leaves than those of the table. So what they find is multiplied by the ratio of the shares of their curvature
        that the first step of a tree takes back: in leaves as the table has them, and in those of the drawn rows.
        """
        moved, added, whole = (np.zeros_like(residuals) for _ in range(3))
        noise, told, drawn = 0.0, 0.0, 0.0
        for tree, step, weight in zip(self.trees, self.steps, _averaged(len(self.trees)), strict=True):
            leaf = leaf_of(tree.splits, levels).astype(np.intp)
            now = residuals + curvatures[:, None] * moved
            by_output = [np.bincount(leaf, each, minlength=step.held.size) for each in now.T]
            sums: Floats = np.stack(by_output, axis=1).astype(np.float64)
            held: Floats = np.bincount(leaf, curvatures, minlength=step.held.size).astype(np.float64)
            own = Step(np.minimum(step.leaves, Growth.rate / (held + 1.0)), step.contrasts, held)
            values = own.values(sums, held)
            moved += values[leaf]
            added += weight * (acting_together(tree.splits.columns, values) if together else values)[leaf]
            whole += weight * tree.values[leaf]
            alone, alike = own.noise(self.deviation)
            noise += residuals.shape[1] * weight**2 * (float(np.mean(alone[leaf])) + alike)
            told += weight * step.taken_back(self.curvature_deviation)
            drawn += weight * float(own.leaves @ held)
        ratio = min(max(told, 0.0) / max(drawn, 1e-12), 1.0)
        squared, chance = (float(np.mean(np.sum(each**2, axis=1))) for each in (whole, added))
        share = max(1 - (noise + ratio * chance) / squared, 0.0) if squared > 0 else 0.0
        return Chance(share, -ratio * float(np.sum(residuals * added)))


def buy_forest(
    curator: Curator,
    columns: LevelColumns,
    quantiles: Floats,
    start: ColumnTables,
    growth: Growth,
    bounds: RowBounds,
    goes_on: Callable[[Grown], bool] | None = None,
    progress: Progress | None = None,
) -> Grown | None:
    """Grow trees on rows of levels with all that is left of the curator's budget, or None if the first are in vain.

    The curator is that of a `BinnedSource`, quantiles are those of `buy_quantiles`, and scores to start from are
    public or released. ``goes_on`` tells, by the first quarter of the trees, whether the others are grown, and
    ``progress`` is called with the share of the trees that were.

    **Privacy** One `LeafSums` for each tree, and one `BestTree` where it has candidates. The splits of candidates
    follow from public numbers, from released quantiles and from the answers before them, and so do scores.
    """
    generator = curator.public_generator()
    amount = PAYABLE * curator.remaining / growth.trees / (1 + _CHOICE * (growth.candidates > 1))
    noise, choice = curator.gaussian(amount), curator.currency.selection(_CHOICE * amount)
    moved = LeafSums.sensitivity(bounds.clip).times(curator.rows_per_unit).under(curator.relation)
    deviation = noise.noise_multiplier * moved
    damping = growth.damping * deviation / bounds.slope * 4 * bounds.curvature
    scores, trees, taken = LeafScores(start), [], []
    sets, clearest = ColumnSets(column_chances(quantiles, start)), 0.0
    for number in range(growth.trees):
        # Too few columns would hide what others do.
        drawn = sets.at_random if number < _AT_RANDOM * growth.trees or number % 2 else sets.drawn
        candidates = [
            _draw_splits(generator, columns, drawn(generator, growth.depth), quantiles)
            for _ in range(growth.candidates)
        ]
        splits = candidates[0]
        if len(candidates) > 1:
            splits = candidates[curator.answer(BestTree(candidates, scores, bounds.slope, choice))]
        residuals, curvatures = curator.answer(
            LeafSums(splits, scores, bounds.slope, bounds.clip, bounds.weight, noise)
        )
        held: Floats = np.maximum(curvatures, 0.0)
        total, told = max(float(curvatures.sum()), 1.0), contrasts(residuals)
        squares = told**2 / (held.size * deviation**2 + bounds.spread * total)
        kept = clear_shares(squares, growth.trees)
        sets.see(splits.columns, np.max(kept * squares, axis=1))
        clearest = max(clearest, float(np.max(squares[several_columns(splits.columns)], initial=0.0)))
        step = Step(growth.rate / (held + damping + 1.0), growth.rate * kept / total, curvatures)
        values = np.clip(step.values(residuals, held), -growth.rate * _LONGEST, growth.rate * _LONGEST)
        tree = LeafValues(splits, in_order(splits, columns.directions, values))
        scores = scores.grown(tree)
        trees.append(tree)
        taken.append(step)
        report(progress, (number + 1) / growth.trees)
        first = number + 1 == math.ceil(_FIRST * growth.trees)
        grown = Grown(tuple(trees), tuple(taken), deviation, clearest, deviation / bounds.weight)
        if goes_on and first and not goes_on(grown):
            return None
    return grown


def chance_residuals(loss: Loss, scores: Floats, weight: float, spread: float, seed: int) -> tuple[Floats, Floats]:
    """Return residuals that are nothing but chance, (m, K), and curvatures, (m,), of rows with such scores.

    Labels of classes are drawn as scores say, by a public seed, and rows are lengthened. Residuals of numbers have
    random signs and the mean square ``spread``, in proportion to the curvature. Each row stands for ``weight`` rows:
    the sum of their curvatures is larger by that factor, and that of their residuals by its square root.
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
    factors = lengthening(loss, loss.lipschitz, margins)
    assert factors is not None, "the labels are classes"
    residuals = factors[:, None] * residuals.reshape(len(scores), -1)
    return math.sqrt(weight) * residuals, weight * factors * curvatures


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


def buy_quantiles(curator: Curator, widths: tuple[int, ...]) -> Floats:
    """Return the cumulative shares of the 256 levels of each column, from a noisy histogram.

    Levels from the ``width`` of a column on have no rows.

    **Privacy** `ColumnHistograms`, with all that is left of the budget of the curator.
    """
    noise, columns = curator.gaussian(PAYABLE * curator.remaining), curator.problem.grid.dimension
    counts = curator.answer(ColumnHistograms(_LEVELS - 1, 0, noise))[:, _LEVELS - 1 :]
    moved = ColumnHistograms.sensitivity(columns).times(curator.rows_per_unit).under(curator.relation)
    sure = np.maximum(counts - noise.noise_multiplier * moved, 0.0) + 1e-3  # counts that noise alone may have made
    sure[np.arange(_LEVELS) >= np.array(widths)[:, None]] = 0.0
    shares: Floats = np.cumsum(sure, axis=1) / sure.sum(axis=1, keepdims=True)
    return shares


def column_chances(quantiles: Floats, start: ColumnTables) -> Floats:
    """Return how likely a split is about each column.

    Columns that matter alone are more likely to matter together: most splits are drawn in proportion to the standard
    deviation of what a column adds to the scores that trees start from, and the others evenly. Cells are spread as
    released quantiles say.
    """
    sizes = np.zeros(len(quantiles))
    for column, table in start.tables:
        sizes[column] = math.sqrt(float(_moments(quantiles, column, table)[1].sum()))
    even = np.full(sizes.size, 1 / sizes.size)
    total = float(sizes.sum())
    return even if total <= 0 else _BY_SIZE * sizes / total + (1 - _BY_SIZE) * even


def _moments(quantiles: Floats, column: int, table: Floats) -> tuple[Floats, Floats]:
    """Return mean and variance of what a column adds, its cells being spread as quantiles say."""
    shares = np.diff(quantiles[column], prepend=0.0)[: len(table)]
    mean = shares @ table
    return mean, shares @ (table - mean) ** 2


def usual_curvature(loss: Loss, quantiles: Floats, start: ColumnTables) -> float:
    """Return the mean curvature of a loss of numbers, where scores are normal with released mean and variance."""
    found = [_moments(quantiles, column, table) for column, table in start.tables]
    mean = start.constant[0] + sum(float(each[0][0]) for each in found)
    spread = math.sqrt(3 * sum(float(each[1][0]) for each in found))
    scores = mean + spread * np.array([-1.0, 0.0, 1.0])
    curvatures = loss.typical_curvatures(
        loss.short_residuals(scores, loss.understood(scores)), loss.understood(scores)
    )
    return min(max(float(np.array([1, 4, 1]) / 6 @ curvatures), _LEAST_CURVATURE), 1.0)


def _draw_splits(
    generator: np.random.Generator, columns: LevelColumns, chosen: list[int], quantiles: Floats
) -> Splits:
    """Return random splits: a cut of a number at a random quantile, or a random half of the levels of a category."""
    sides = np.zeros((len(chosen), _LEVELS), dtype=np.bool_)
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
    """Sorts rows by what a forest adds to their scores: one more column has the place of each row.

    There are 256 places, in 16 cells of as many: of a forest with one output they are even on both sides of 0, up to
    ``reach``, and of one with more they are the outputs to which it adds most. ``directions`` is what the rows of a
    place are taken to get, and ``squares`` are those of what the forest adds to public rows, by their cells.
    """

    forest: Forest
    reach: float
    directions: Floats
    squares: Floats = field(default_factory=lambda: np.ones(2**_CELLS))

    @classmethod
    def of(cls, forest: Forest, levels: NDArray[np.uint8]) -> Sorted:
        """Return places that suit rows of levels which are public."""
        added = forest.scores(levels)
        reach = _WIDEST * max(math.sqrt(float(np.mean(added**2))), 1e-6)
        if forest.outputs == 1:
            edges = reach * np.linspace(-1.0, 1.0, _LEVELS + 1)
            found = cls(forest, reach, ((edges[:-1] + edges[1:]) / 2)[:, None])
            places = found(levels)[:, -1]
        else:
            places = cls(forest, reach, np.zeros((_LEVELS, forest.outputs)))(levels)[:, -1]
            sums = np.stack([np.bincount(places, each, minlength=_LEVELS) for each in added.T], axis=1)
            found = cls(forest, reach, sums / np.maximum(np.bincount(places, minlength=_LEVELS), 1)[:, None])
        cells = places.astype(np.intp) * 2**_CELLS // _LEVELS
        squares: Floats = np.bincount(cells, np.sum(added**2, axis=1), minlength=2**_CELLS).astype(np.float64)
        return replace(found, squares=squares)

    def __call__(self, levels: NDArray[np.uint8]) -> NDArray[np.uint8]:
        """Return rows of levels with their places."""
        added = self.forest.scores(levels)
        if self.forest.outputs == 1:
            inner = self.reach * np.linspace(-1.0, 1.0, _LEVELS + 1)[1:-1]
            places = np.searchsorted(inner, added[:, 0], side="left")
        else:
            places = added.argmax(axis=1) % 2**_CELLS * (_LEVELS // 2**_CELLS)
        return np.column_stack([levels, places.astype(np.uint8)])

    @property
    def cells(self) -> Floats:
        """What the rows of each of the 2^4 cells are taken to get, shape (16, K)."""
        own = self.directions.reshape(2**_CELLS, -1, self.forest.outputs)
        means: Floats = own.mean(axis=1) if self.forest.outputs == 1 else own[:, 0]
        return means

    def scores(self, start: ColumnTables, columns: int) -> LeafScores:
        """Return the scores of such rows, what the forest adds being that of their places."""
        return LeafScores(ColumnTables(start.constant, (*start.tables, (columns, self.directions))))

    def splits(self, columns: int) -> Splits:
        """The cells as leaves of a tree: its bits are those of the number of a cell."""
        cell = np.arange(_LEVELS) * 2**_CELLS // _LEVELS
        bits = [cell >> (_CELLS - 1 - bit) & 1 == 1 for bit in range(_CELLS)]
        return Splits((columns,) * _CELLS, np.array(bits))


@dataclass(frozen=True)
class Found:
    """What rows say of a forest: the factor of Newton's step, and the deviations of noise and of chance in it."""

    factor: float
    noise: float
    chance: float

    @property
    def clear(self) -> bool:
        """Whether the forest explains more than noise and chance do."""
        return self.factor > _EVIDENCE * math.hypot(self.noise, self.chance)

    def weighed(self, told: float) -> float:
        """Return the factor, nearer to what the trees tell where it is noisy, from 0 to 1.5."""
        known = _USUAL**2 / (_USUAL**2 + self.noise**2) if math.isfinite(self.noise) else 0.0
        return min(max(told + ((self.factor - told) * known if known else 0.0), 0.0), _LARGEST_FACTOR)


def buy_factor(curator: Curator, ordered: Sorted, start: ColumnTables, bounds: RowBounds, chance: Chance) -> Found:
    """Return by which factor the scores of a forest should be multiplied.

    Residuals G and curvatures H at the scores of all trees are added up in cells of rows to which the trees add about
    the same m, in cells whose curvature exceeds its noise. The factor is that of Newton's step,
    1 - (sum(G m) + f)/sum(H m^2), f being what is fitted by chance, of which these cells have the share of m^2 that
    they have of public rows.

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
    added, squares = ordered.cells[held], np.sum(ordered.cells[held] ** 2, axis=1)
    steep = float(curvatures[held] @ squares)
    if not steep > 0:
        return Found(0.0, math.inf, math.inf)
    share = float(ordered.squares[held].sum() / max(ordered.squares.sum(), 1e-12))
    found = 1 - (float(np.sum(residuals[held] * added)) + share * chance.fitted) / steep
    return Found(found, deviation * math.sqrt(float(squares.sum())) / steep, math.sqrt(bounds.spread / steep))


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
