"""Private boosted trees: an additive model, and trees with random splits on what it leaves."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray
from sklearn.utils.validation import check_is_fitted

from ..arrays import Floats
from ..curator import BinnedSource, Curator
from ..display import HtmlPage
from ..errors import InvalidParameter, require_positive_integer
from ..ledger import Ledger
from ..problems import Huber, LabelKind, LinearProblem, Loss
from ..queries import BestTree, ColumnTables, LeafScores, LeafSums, Splits
from ..solvers import Method, SolverResult
from ..solvers.leaf_boosting import (
    Forest,
    Found,
    Grown,
    Growth,
    LevelColumns,
    RowBounds,
    Sorted,
    buy_factor,
    buy_forest,
    buy_quantiles,
    buy_slope,
    chance_residuals,
    usual_curvature,
)
from .additive import AdditiveModel, DPAdditiveClassifier, DPAdditiveRegressor, Term
from .binning import Binning, additive_tables, drawn_rows, importances, pair_importances
from .curves import Curves
from .knowledge import Knowledge
from .purchases import Purchase, Rehearsal, Shop
from .regressors import CountRegressor

if TYPE_CHECKING:
    from .dependence import Reading, Surface

_FEW_ROWS = 1000.0  # effective rows, n mu: with fewer, trees cost the additive model more than they add
_ENOUGH = 30_000.0  # effective rows with which the additive model gets half of the budget
_START, _LARGEST_START, _LEAST_START = 0.5, 0.7, 0.1
_SCARCE, _PLENTY = 0.2, 0.6  # powers of the number of effective rows by which that share falls: with fewer, with more
_MOST = 10_000, 12  # trees, and their depth, that can be asked for
_SIZES, _CUTS = 0.01, 0.03  # of the budget of the trees, for the sizes of residuals and for cuts
_FACTOR, _MOST_FACTOR = 0.04, 0.12  # of it, for the factor: with many effective rows, and with few
_PAIRED, _SURFACES = 10, 6  # columns of which pairs are computed, and pairs that are shown
_BY_CHANCE = 2**14  # drawn rows, at most, that show what trees find by chance
_HUBER = 0.2  # the threshold of Huber's loss, in units in which the target spans [-1, 1]


@dataclass(frozen=True)
class _Trees:
    """Trees are bought after the method; what would go wrong then is said before anything is charged."""

    model: Any

    def parameter(self) -> None:
        return None

    def rehearse(self, rehearsal: Rehearsal) -> None:
        self.model._rehearse_trees(rehearsal)

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        return known


@dataclass(eq=False, repr=False)
class BoostedTrees(AdditiveModel):
    """What boosted trees share: the shares of the budget, the growth of the trees, and what they add to a score."""

    _: KW_ONLY
    trees: int | None = None
    depth: int | None = None

    def require_settings(self) -> tuple[Method, Any]:
        """Return the method and its settings, or raise for a parameter that no table could be fitted with."""
        found = super().require_settings()
        if self.method != "auto":
            raise InvalidParameter(
                f"boosted trees are grown after the method 'auto', and not after {self.method!r:.80}: leave method "
                "out, or use an additive model"
            )
        if self.delta == 0:
            raise InvalidParameter("boosted trees are released with Gaussian noise: give a delta above 0")
        if self.inference:
            raise InvalidParameter("inference is about coefficients, beside which there are trees: leave it out")
        for name, most in zip(("trees", "depth"), _MOST, strict=True):
            given = getattr(self, name)
            if isinstance(given, bool) or (given is not None and require_positive_integer(name, given) > most):
                raise InvalidParameter(f"{name} must be a whole number from 1 to {most}, got {given}")
        return found

    def _purchases(self, tightens: Callable[[], bool]) -> list[Purchase]:
        return [*super()._purchases(tightens), _Trees(self)]

    def _rows_per_output(self, known: Knowledge) -> float:
        """Return the effective rows, n mu, per output."""
        return self._effective_rows(known.rows) / known.loss.outputs

    def _grows(self, known: Knowledge) -> bool:
        """Return whether trees are grown: a rule of public numbers."""
        return self.trees is not None or self._rows_per_output(known) >= _FEW_ROWS

    def _kept_back(self, own: Ledger, known: Knowledge) -> float:
        if not self._grows(known):
            return 0.0
        scarcity = _ENOUGH / max(self._rows_per_output(known), 1.0)
        share = _START * math.pow(scarcity, _SCARCE if scarcity > 1 else _PLENTY)
        return own.remaining * (1 - min(max(share, _LEAST_START), _LARGEST_START))

    def _rehearse_trees(self, rehearsal: Rehearsal) -> None:
        curator = rehearsal.curator()
        loss, depth = curator.problem.loss, self.depth or 1
        splits = Splits((0,) * depth, np.zeros((depth, 2), dtype=np.bool_))
        bounds, noise = RowBounds.of(loss), curator.gaussian(curator.budget / (4 * (self.trees or 400)))
        start = LeafScores(ColumnTables(np.zeros(loss.outputs)))
        curator.require_answerable(LeafSums(splits, start, bounds.slope, bounds.clip, bounds.weight, noise))
        choice = curator.currency.selection(0.1 * noise.mu_squared())
        curator.require_answerable(BestTree((splits,), start, bounds.slope, choice))

    def _buy_further(
        self, planned: Any, known: Knowledge, rows: Any, result: SolverResult, listener: Any
    ) -> tuple[SolverResult, Sequence[str]]:
        unnamed = [f"x{column}" for column in range(known.scaling.columns)]
        told = getattr(planned.table.stream, "feature_names", getattr(self, "_coded_names", unnamed))
        names = self._cell_names = [str(each) for each in getattr(self, "feature_names_in_", told)]
        binary = known.columns.binary.tolist()
        self._binning = Binning.of(known.scaling, names, binary)
        self._start = additive_tables(self._binning, known.scaling, rows.features, result)
        self._forest, self._quantiles = None, None
        if not self._grows(known):
            return result, ()
        kept = getattr(rows.features, "directions", ())
        directions = tuple(kept[columns[0]] if kept else 0 for columns in self._binning.members)
        orchard = _Orchard(planned, known, rows, self._binning, self._start, directions)
        growth = Growth.for_rows(self._rows_per_output(known), self.trees, self.depth, known.rows)
        may_stop = self.trees is None and result.resume is not None
        self._forest, self._quantiles = orchard.buy_forest(growth, may_stop, listener)
        if self._forest is None and result.resume is not None:
            result = result.resume()
            self._start = additive_tables(self._binning, known.scaling, rows.features, result)
        return result, orchard.released

    def _tree_scores(self, X: Any) -> Floats | None:
        """Return what the trees add to the (n, K) scores of rows that were read, in units of the loss."""
        return None if self._forest is None else self._forest.scores(self._binning.levels(X))

    @property
    def n_trees_(self) -> int:
        """How many trees were grown; none where there are too few rows for them."""
        check_is_fitted(self)
        return 0 if self._forest is None else len(self._forest.trees)

    @property
    def importances_(self) -> dict[str, float]:
        """How much of the scores each column explains, the most important one first; they add up to 1.

        Levels of one category are one column. It is half the mean square by which a score changes if the cell of
        that column is drawn anew, for rows whose cells are drawn independently from released histograms (evenly from
        levels, where no trees were grown): no row is read, and nothing is charged.
        """
        found, total = self._explained()
        order = np.argsort(-found, kind="stable")
        return {self._binning.names[place]: float(found[place] / total) for place in order}

    def _explained(self) -> tuple[Floats, float]:
        """Return the importance of each column of levels, and their sum."""
        check_is_fitted(self)
        found = importances(self._binning, self._start, self._forest, self._quantiles)
        return found, float(found.sum()) or 1.0

    @property
    def feature_importances_(self) -> Floats:
        """The importance of each column of the table; that of a category is shared evenly by its levels."""
        named = self.importances_
        spread = np.zeros(self.n_features_in_)
        for name, columns in zip(self._binning.names, self._binning.members, strict=True):
            spread[list(columns)] = named[name] / len(columns)
        return spread

    @property
    def pair_importances_(self) -> dict[tuple[str, str], float]:
        """How much pairs of the ten most important columns explain together, not alone, in units of `importances_`.

        It is a quarter of the mean square of what remains of a score if each of two cells is drawn anew, less what
        each of them does by itself.
        """
        found, total = self._explained()
        places = sorted(np.argsort(-found, kind="stable")[:_PAIRED].tolist())
        pairs = pair_importances(self._binning, self._start, self._forest, self._quantiles, places)
        names = self._binning.names
        named = {(names[i], names[j]): value / total for (i, j), value in pairs.items()}
        return dict(sorted(named.items(), key=lambda each: -each[1]))

    def _reading(self) -> Reading:
        from .dependence import Reading

        check_is_fitted(self)
        forest = self._forest or Forest((), (), 1.0, self._start.constant.size)
        binning, curves = self._binning, self._features
        assert isinstance(curves, Curves), "the expansion of an additive model"
        cells = tuple(
            self._in_own_unit(name, binning.cells(place, curves.scaling, self._cell_names))
            for place, name in enumerate(binning.names)
        )
        expanded: tuple[Floats, ...] = ()
        if self._noise_factor is not None:
            rows = binning.representatives(curves.scaling)
            expanded = tuple(np.asarray(curves.apply(each) @ self._noise_factor) for each in rows)
        spread = np.tile(np.arange(1, 257) / 256, (len(binning.numbers), 1))
        quantiles = spread if self._quantiles is None else self._quantiles
        return Reading(binning, self._start, forest, quantiles, cells, expanded, self._coefficient_unit())

    @property
    def partial_dependence_(self) -> tuple[Term, ...]:
        """What each of the ten most important columns does to a score, with the noise of it (`dependence`)."""
        found, total = self._explained()
        reading = self._reading()
        order = np.argsort(-found, kind="stable")[:_PAIRED].tolist()
        return tuple(reading.term(place, float(found[place] / total)) for place in order)

    @property
    def pair_surfaces_(self) -> tuple[Surface, ...]:
        """What the six pairs of columns that explain most together do to a score, with the noise of it."""
        reading, places = self._reading(), {name: place for place, name in enumerate(self._binning.names)}
        best = [each for each in self.pair_importances_.items() if each[1] > 0][:_SURFACES]
        return tuple(reading.surface((places[i], places[j]), share) for (i, j), share in best)

    def _page(self) -> HtmlPage:
        from .dependence import page_of_forest

        shares = self.importances_, self.pair_importances_
        terms, surfaces, title = self.partial_dependence_, self.pair_surfaces_, type(self).__name__
        return page_of_forest(terms, surfaces, shares, self._outputs(), title, self.privacy_)


@dataclass(frozen=True, eq=False)
class _Levels:
    """Rows as levels of some columns, and what is made of them."""

    binning: Binning
    columns: int
    made: Callable[[NDArray[np.uint8], Floats], NDArray[np.uint8]]

    def __call__(self, X: Any, labels: Floats, threads: int | None = None) -> NDArray[np.uint8]:
        return self.made(self.binning.levels(X, threads), labels)


def _as_they_are(levels: NDArray[np.uint8], labels: Floats) -> NDArray[np.uint8]:  # noqa: ARG001
    return levels


def _ordered(by: Sorted, levels: NDArray[np.uint8], labels: Floats) -> NDArray[np.uint8]:  # noqa: ARG001
    return by(levels)


def _sizes(
    loss: Loss, start: ColumnTables, scale: Floats, levels: NDArray[np.uint8], labels: Floats
) -> NDArray[np.uint8]:
    """Return by how many numbers of a scale the residual of each row is exceeded, as a column."""
    sizes = np.abs(loss.short_residuals(start.scores(levels)[:, 0], labels))
    return np.searchsorted(scale[:-1], sizes, side="left").astype(np.uint8)[:, None]


@dataclass
class _Orchard:
    """Rows as levels, and who is asked about them."""

    planned: Any
    known: Knowledge
    rows: Any
    binning: Binning
    start: ColumnTables
    directions: tuple[int, ...]

    def __post_init__(self) -> None:
        self.released: list[str] = []
        self.levels: NDArray[np.uint8] | None = None
        if self.planned.table.stream is None:
            self.levels = self.binning.levels(self.planned.table.X)

    def curator(
        self, columns: int, made: Callable[[NDArray[np.uint8], Floats], NDArray[np.uint8]] = _as_they_are
    ) -> Curator:
        """Return a curator of what is made of rows of levels, which has so many columns."""
        known, planned = self.known, self.planned
        if self.levels is not None:
            source: Any = BinnedSource(made(self.levels, known.labels), known.labels)
        else:
            source = self.rows.as_levels(_Levels(self.binning, columns, made))
        problem = LinearProblem(known.loss, source.grid, intercept=False)
        return Curator(source, problem, planned.own, known.rows, noise=planned.noise, units=known.units)

    def buy_forest(self, growth: Growth, may_stop: bool, listener: Any) -> tuple[Forest | None, Floats]:
        """Buy trees, the factor by which they are multiplied, and the quantiles of cuts; no trees if in vain."""
        loss = self.known.loss
        numbers, own = loss.labels.kind is LabelKind.NUMBERS, self.planned.own
        slope, square = self.buy_slope(loss) if numbers else (1.0, 1.0)
        columns = LevelColumns(self.binning.widths, len(self.binning.numbers), self.directions)
        quantiles = self.buy_quantiles(columns.widths)
        usual = usual_curvature(loss, quantiles, self.start) if numbers else 1.0
        kept = self.share_of_factor() * own.remaining
        drawn = drawn_rows(self.binning, quantiles, count=max(min(self.known.rows, _BY_CHANCE), 1))
        by_chance = chance_residuals(loss, self.start.scores(drawn), self.known.rows / len(drawn), square, seed=2)
        if not numbers:
            square = float(np.mean(by_chance[0] ** 2) / np.mean(by_chance[1]))
        bounds = RowBounds.of(loss, slope, usual, square)

        def buy_share(grown: Grown, left: float, together: bool) -> tuple[Found, float]:
            ordered = Sorted.of(grown.forest(together), drawn)
            chance = grown.by_chance(*by_chance, drawn, together)
            curator = self.curator(self.binning.columns + 1, partial(_ordered, ordered))
            with curator.setting_aside(left):
                return buy_factor(curator, ordered, self.start, bounds, chance), chance.told

        def goes_on(grown: Grown) -> bool:
            if grown.surely_together:
                return True
            self.released.append("whether what columns do together in the first trees is more than noise and chance")
            return buy_share(grown, own.remaining - kept / 2, together=True)[0].clear

        curator = self.curator(self.binning.columns)
        with curator.setting_aside(kept):
            grown = buy_forest(
                curator, columns, quantiles, self.start, growth, bounds, goes_on if may_stop else None, listener
            )
        if grown is None:
            return None, quantiles
        chosen = f", each chosen from {growth.candidates}" if growth.candidates > 1 else ""
        self.released.append(f"{growth.trees} trees with {2**growth.depth} leaves each{chosen}")
        self.released.append("a factor by which the trees are multiplied")
        found, told = buy_share(grown, 0.0, together=False)
        return grown.forest().scaled(found.weighed(told)), quantiles

    def share_of_factor(self) -> float:
        """Return which share of the budget the factor gets: more where its noise would hide trees of noise."""
        few = math.sqrt(10_000.0 / max(self.planned.model._rows_per_output(self.known), 1.0))
        return min(max(_FACTOR * few, _FACTOR), _MOST_FACTOR)

    def buy_quantiles(self, widths: tuple[int, ...]) -> Floats:
        """Buy how the cells of all columns are spread over their levels: trees are cut at quantiles of numbers."""
        self.released.append(f"histograms of {len(widths)} columns, for the cuts of trees")
        curator = self.curator(self.binning.columns)
        with curator.setting_aside((1 - _CUTS) * curator.budget):
            return buy_quantiles(curator, widths)

    def buy_slope(self, loss: Loss) -> tuple[float, float]:
        """Buy the size to which residuals of numbers are clipped."""
        scale = 2.0 ** np.linspace(-16.0, 1.0, 256)
        curator = self.curator(1, partial(_sizes, loss, self.start, scale))
        self.released.append("a bound of the residuals, from a histogram of their sizes")
        with curator.setting_aside((1 - _SIZES) * curator.budget):
            return buy_slope(curator, scale)


@dataclass(eq=False, repr=False)
class DPBoostedTreesClassifier(BoostedTrees, DPAdditiveClassifier):
    """Private boosted trees for classification: an additive model, and trees that see what acts together.

    A part of the budget fits an additive model (`DPAdditiveClassifier`). The rest grows trees on what that leaves:
    their splits are drawn at random, without looking at the rows, and their leaves are private sums
    (`dpdescent.solvers.leaf_boosting`). There is nothing to tune: the number of trees, their depth and the shares of
    the budget follow from the number of effective rows, n mu. With fewer than 1,000 of them per class no trees are
    grown, and the model is the additive one.

    Parameters
    ----------
    trees, depth : int, optional
        The number of trees, and of the cells each of them looks at. By default they follow from n mu: 150 to 400
        trees of depth 4 to 10.
    **parameters
        All others are those of `DPAdditiveClassifier`; ``method`` must be "auto". Columns of 0 and 1 that
        `BoundedEncoder` made from one category are one column to a tree if ``binary_features`` declares them.

    Attributes
    ----------
    importances_ : dict
        How much of the scores each column explains, by name.
    pair_importances_ : dict
        How much pairs of columns explain together and not alone.
    feature_importances_ : ndarray
    n_trees_ : int
    terms_ : tuple of Term
        Those of the additive part alone.
    partial_dependence_ : tuple of Term
        What columns do to a score, additive part and trees together, with the noise of privacy.
    pair_surfaces_ : tuple of Surface
        What pairs of columns do to a score together. ``terms_html`` shows all of it on a page.
    privacy_ : dict
        The privacy statement. Further attributes are those of `DPAdditiveClassifier`.

    Notes
    -----
    **Privacy.** (epsilon, delta)-DP for one row, or one unit, under ``adjacency``. Beside what the additive model
    releases, there are a noisy histogram of all columns, for the cuts of trees; for each tree, the noisy sums
    of residuals and curvatures over its leaves (`dpdescent.queries.leaf_sums` has the sensitivity); and the sums from
    which one factor for all trees follows. Each is charged before a row is read.
    `dpdescent.check_pipeline` names the steps of a pipeline that learn from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (20000, 2))
    >>> y = (X[:, 0] * X[:, 1] > 0).astype(int)
    >>> model = DPBoostedTreesClassifier(1.0, bounds=(-1, 1), classes=(0, 1), random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.8
    True
    >>> list(model.pair_importances_)
    [('x0', 'x1')]
    """

    def decision_function(self, X: Any) -> Floats:
        """Return the scores: an array of shape (n,) for two classes, and (n, K) for K classes."""
        return self._with_trees(super().decision_function(X), X)

    def row_scores(self, X: Any) -> Floats:
        """Return what `decision_function` does, each score with the same bits beside any other rows."""
        return self._with_trees(super().row_scores(X), X)

    def _with_trees(self, scores: Floats, X: Any) -> Floats:
        added = self._tree_scores(self._read(X))
        if added is None:
            return scores
        return scores + (added[:, 0] if scores.ndim == 1 else added)


@dataclass(eq=False, repr=False)
class DPBoostedTreesRegressor(BoostedTrees, CountRegressor, DPAdditiveRegressor):
    """Private boosted trees for regression, of numbers or of counts: an additive model, and trees that see more.

    Parameters
    ----------
    loss : {"squared", "huber", "poisson"} or Loss
        Least squares; Huber's loss, whose threshold is a tenth of the width of ``target_bounds_``; the loss of
        counts, whose scores are logarithms of their means, with all that `DPPoissonRegressor` says of it; or a loss
        of your own.
    trees, depth
        As for `DPBoostedTreesClassifier`, where the trees are described too.
    **parameters
        All others are those of `DPAdditiveRegressor`; ``method`` must be "auto".

    Notes
    -----
    **Privacy.** As for `DPBoostedTreesClassifier`. Residuals are clipped where a noisy histogram of their sizes says
    that few are larger. `dpdescent.check_pipeline` names the steps of a pipeline that learn from the rows before it.

    Examples
    --------
    >>> import numpy as np
    >>> generator = np.random.default_rng(0)
    >>> X = generator.uniform(-1, 1, (20000, 2))
    >>> y = X[:, 0] * X[:, 1] + generator.normal(0, 0.1, 20000)
    >>> model = DPBoostedTreesRegressor(1.0, bounds=(-1, 1), target_bounds=(-1, 1), random_state=0).fit(X, y)
    >>> model.score(X, y) > 0.6
    True
    """

    def _counts(self) -> bool:
        return isinstance(self.loss, str) and self.loss == "poisson"

    def _named_losses(self) -> dict[str, Loss | None]:
        return super()._named_losses() | {"huber": Huber(_HUBER), "poisson": None}

    def _scores(self, X: Any, *, separate: bool = False) -> Floats:
        scores = super()._scores(X, separate=separate)
        added = self._tree_scores(self._read(X))
        return scores if added is None else scores + self._coefficient_unit() * added[:, 0]
