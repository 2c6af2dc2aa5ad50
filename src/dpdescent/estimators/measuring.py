"""Ask a table for the bounds of its columns, before it is scaled by them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats
from ..curator import ArraySource, BlockSource, Curator, LatticeNoise, Seals, Source, Units, sum_without_privacy
from ..errors import InvalidParameter, require_positive
from ..exact import FeatureGrid, one_library_thread
from ..ledger import Ledger
from ..problems import LabelKind, Labels, LinearProblem, Squared
from ..queries import ColumnHistograms, LabelCounts, RowCount
from ..relations import Sensitivity
from ..solvers import Settings
from ..solvers.few_rows import count_deviation
from ..tables import StreamedTable
from ..tables.bounds import first_share, measured_ends, share_of_bounds, share_of_target, tightened_ends
from .scaling import ColumnScaling
from .streaming import StreamedCells
from .target_ends import TargetEnds, target_ends

Ask = Callable[[Any, int], tuple[Floats, float]]

_BITS = 9  # levels are at most 2^8


def can_measure(ledger: Ledger, settings: Settings) -> bool:
    """Return whether anything can be measured before a run, with Gaussian noise and a part of the budget."""
    return ledger.currency.name not in ("pure", "approximate") and not settings.fixed_noise


def require_measurable(ledger: Ledger, settings: Settings, bought: Iterable[str]) -> None:
    """Raise `InvalidParameter` where what is to be ``bought`` before a run cannot be paid for."""
    for name in bought:
        if ledger.currency.name in ("pure", "approximate"):
            raise InvalidParameter(
                f"{name} would be measured with Gaussian noise, for which a ledger in {ledger.currency.name!r} "
                f"cannot pay: give {name}, or take another method"
            )
        if settings.fixed_noise:
            raise InvalidParameter(
                f"{name} would be measured, and these settings fix the noise for the whole budget: give {name}"
            )


@dataclass(frozen=True)
class Measurement:
    """The ledger that pays for bounds, and the rows that they are bounds of.

    **Privacy** Both histograms are answers of a curator about levels of the cells: each level is a function of its
    cell and of public or released numbers.
    """

    ledger: Ledger
    noise: LatticeNoise
    rows: int  # the public number of rows
    units: Units | None = None  # which rows belong together
    seals: Seals | None = None  # those of a table that is read block by block

    def buy_units(self, present: int) -> tuple[int, list[str]]:
        """Buy the number of rows of all units; return it, and what a statement says of it.

        ``present`` rows are counted, which is unreleased data. Every unit has a row, and at most ``rows_per_unit``.
        """
        assert self.units is not None, "without units the number of rows is public"
        before, grid = self.ledger.spent, FeatureGrid(1.0, 1)
        noisy = self.buy_row_count(ArraySource(np.zeros((present, 1)), np.zeros(present), grid))
        rows = min(max(round(noisy), self.units.count), self.units.places)
        share = (self.ledger.spent - before) / self.ledger.budget
        said = f"about {rows} rows of all units are in use, by a noisy count, for {share:.1%} of the budget"
        return rows, [said]

    def buy_row_count(self, source: Source) -> float:
        """Buy the number of rows of a source."""
        curator = self._curator(source)
        return curator.answer(RowCount(curator.gaussian(share_of_counts(curator) * self.ledger.budget)))

    def _curator(self, source: Source) -> Curator:
        problem = LinearProblem(Squared(), source.grid, intercept=False)
        return Curator(source, problem, self.ledger, self.rows, noise=self.noise, units=self.units)

    def buy_scaling(self, X: Any, binary: NDArray[np.bool_]) -> ColumnScaling:
        """Buy the ends of all columns that are not declared to be 0 or 1, and return the scaling by them."""
        low, high = np.zeros(X.shape[1]), np.ones(X.shape[1])
        numeric = np.flatnonzero(~binary)
        if numeric.size:
            cells = _columns(X, numeric)
            low[numeric], high[numeric] = measured_ends(self._buyer(numeric.size), cells, self.rows)
        return _widened(low, high)

    def buy_target(self, y: Any, low: float = -math.inf, high: float = math.inf) -> TargetEnds:
        """Buy the ends of a target, of one column, within given ones."""
        return target_ends(
            self._buyer(1, share_of_target(self.effective_rows)), _columns(y, np.arange(1)), self.rows, low, high
        )

    def buy_tightened(self, X: Any, given: ColumnScaling, binary: NDArray[np.bool_]) -> ColumnScaling:
        """Buy narrower ends within given bounds where columns need much less; return ``given`` itself if none do."""
        low, high = given.low.copy(), given.high.copy()
        numeric = np.flatnonzero(~binary)
        own = ColumnScaling(low[numeric], high[numeric])
        cells = _columns(X, numeric)
        # Divided by powers of two, cells have the rungs that they would have without given bounds.
        rest = own.scale * 2.0 ** -np.ceil(np.log2(own.scale))
        placed = partial(_scaled, scaling=own, factors=rest)
        cells = cells.mapped(placed) if isinstance(cells, StreamedCells) else placed(cells)
        low_end, high_end = (rest * end for end in own.ends())
        before = low_end, high_end
        asked = self._buyer(numeric.size), self._buyer_at_first(numeric.size)
        after = tightened_ends(asked[0], cells, self.rows, *before, asked[1])
        ends = (own.shift + own.scale / rest * end for end in after)
        inner_low, inner_high = (np.clip(end, own.low, own.high) for end in ends)
        changed = ((after[0] != before[0]) | (after[1] != before[1])) & (inner_low < inner_high)
        if not changed.any():
            return given
        low[numeric] = np.where(changed, inner_low, own.low)
        high[numeric] = np.where(changed, inner_high, own.high)
        return ColumnScaling(low, high)

    @property
    def effective_rows(self) -> float:
        """The effective rows, n mu, of the whole budget."""
        each = 1 if self.units is None else self.units.rows_per_unit
        moved = Sensitivity.of_clipped_sum(1.0).times(each).under(self.ledger.relation)
        return self.rows / (moved * self.ledger.currency.gaussian(self.ledger.budget).noise_multiplier)

    def buy_first(self, source: Source, largest: int) -> None:
        """Buy the first histogram of given bounds, if there is one beside those of all bounds."""
        share = first_share(self.effective_rows, source.grid.dimension)
        if share is not None:
            self.buy_histogram(source, largest, share)

    def _buyer_at_first(self, columns: int) -> Ask | None:
        share = first_share(self.effective_rows, columns)
        return None if share is None else self._buyer(columns, share)

    def _buyer(self, columns: int, share: float | None = None) -> Ask:
        grid = FeatureGrid(1.0, columns)

        def buy_counts(levels: Any, largest: int) -> tuple[Floats, float]:
            source: Source
            if isinstance(levels, StreamedCells):
                coded, engine = levels.mapped(_placed), levels.table.engine
                source = BlockSource(coded, grid, engine, self.seals, keep_rows=False)
            else:
                source = ArraySource(_placed(levels), np.zeros(levels.shape[0]), grid)
            return self.buy_histogram(source, largest, share)

        return buy_counts

    def buy_histogram(self, source: Source, largest: int, share: float | None = None) -> tuple[Floats, float]:
        """Buy a histogram of every column of a source of levels; also return the deviation of its noise."""
        columns, budget = source.grid.dimension, self.ledger.budget
        curator = self._curator(source)
        gaussian = curator.gaussian((share or share_of_bounds(self.effective_rows, columns)) * budget)
        query = ColumnHistograms(largest, _BITS, gaussian)
        moved = query.sensitivity(columns).times(curator.rows_per_unit)
        with one_library_thread():
            return curator.answer(query), gaussian.noise_multiplier * moved.under(self.ledger.relation)

    def buy_columns(
        self,
        X: Any,
        given: ColumnScaling | None,
        binary: NDArray[np.bool_],
        tighten: bool,
        gaps: NDArray[np.bool_] | None = None,
    ) -> tuple[ColumnScaling, list[str]]:
        """Return the scaling by given, tightened or measured bounds, and what a statement says of it.

        The columns of ``gaps`` have no bounds among those that are given.
        """
        before = self.ledger.spent
        if given is None:
            scaling, said = self.buy_scaling(X, binary), "bounds were measured by noisy histograms of the columns"
        elif gaps is not None and gaps.any():
            scaling = given.filled(self.buy_scaling(X, ~gaps), gaps)
            said = f"bounds of {_number_of_columns(int(np.count_nonzero(gaps)))} were measured by noisy histograms"
        elif tighten:
            scaling = self.buy_tightened(X, given, binary)
            narrower = np.count_nonzero((scaling.low != given.low) | (scaling.high != given.high))
            found = f"found for {narrower} of {np.count_nonzero(~binary)} columns"
            said = f"narrower bounds were sought by noisy histograms and {found}"
        else:
            return given, []
        return scaling, self.told(said, before)

    def told(self, said: str, before: float, how_many: str = "") -> list[str]:
        """Return a remark on what was bought since so much had been spent, if anything was."""
        share = (self.ledger.spent - before) / self.ledger.budget
        end = f"cells outside of the bounds are clipped{how_many}"
        return [f"{said}, for {share:.1%} of the budget; {end}"] if share else []


def seen_scaling(X: Any) -> ColumnScaling:
    """Return the scaling by the least and the largest cell of every column. NOT PRIVATE."""
    if isinstance(X, StreamedTable):
        raise InvalidParameter(
            "a table that is read block by block needs bounds for a method without privacy: give them"
        )
    if sparse.issparse(X):
        low, high = (np.asarray(end(axis=0).todense(), dtype=np.float64).ravel() for end in (X.min, X.max))
    else:
        low, high = X.min(axis=0).astype(np.float64), X.max(axis=0).astype(np.float64)
    return _widened(low, high)


def _widened(low: Floats, high: Floats) -> ColumnScaling:
    """Return a scaling by these ends, or by wider ones where there is nothing between them."""
    return ColumnScaling(low, np.where(high > low, high, low + np.maximum(np.abs(low) * math.ldexp(1.0, -20), 1.0)))


def _columns(X: Any, columns: NDArray[np.intp]) -> Any:
    """Return some columns of a table."""
    if isinstance(X, StreamedTable):
        return StreamedCells(X, (partial(_columns, columns=columns),))
    return X if isinstance(X, np.ndarray) and columns.size == X.shape[1] else X[:, columns]


def _scaled(cells: Any, scaling: ColumnScaling, factors: Floats) -> Any:
    """Return cells scaled by their bounds, and each column then by a factor."""
    scaled = scaling.apply(cells)  # cells of its own
    if (factors != 1).any():
        if sparse.issparse(scaled):
            scaled.data *= factors[scaled.indices]
        else:
            scaled *= factors
    return scaled


def _placed(levels: Any) -> Any:
    """Return levels on their grid."""
    return levels * 2.0**-_BITS


def _number_of_columns(count: int) -> str:
    return "1 column" if count == 1 else f"{count} columns"


_LEAST_SHARE, _LARGEST_SHARE = 0.01, 0.1  # of the budget
_COUNTED_ROWS = 4.0  # the share over n mu, between the two
_HEAVIEST = 2.0**40


def weights_of_classes(given: Any, classes: NDArray[Any]) -> Floats | None:
    """Return the weight of each class in a public mapping; None where weights are yet to be balanced.

    Classes that are not in the mapping have the weight 1.
    """
    if isinstance(given, str) and given == "balanced":
        return None
    if not isinstance(given, Mapping):
        raise InvalidParameter(
            f"class_weight must be None, 'balanced', or a mapping from classes to weights: {given!r:.80}"
        )
    known = classes.tolist()
    unknown = [label for label in given if label not in known]
    if unknown:
        raise InvalidParameter(
            f"class_weight has a weight for {unknown[0]!r:.80}, which is none of the {len(known)} classes: correct "
            "it, or add it to classes"
        )
    weights = {label: _require_moderate(label, weight) for label, weight in given.items()}
    return np.array([weights.get(label, 1.0) for label in known])


def _require_moderate(label: Any, weight: Any) -> float:
    """Return a weight that leaves the others, and a penalty in units of it, their size in floating point."""
    name = f"class_weight[{label!r:.80}]"
    number = require_positive(name, weight)
    if not 1 / _HEAVIEST <= number <= _HEAVIEST:
        raise InvalidParameter(
            f"{name} is {number:g}, and weights must lie between 2^-40 and 2^40: bring them closer together, or "
            "multiply all of them, and alpha, by the same number"
        )
    return number


def share_of_counts(curator: Curator) -> float:
    """Return the share of the budget that counts of rows are worth: more where there are few rows."""
    rows_of_privacy = 1 / curator.deviation(1.0, curator.budget)
    return min(max(_COUNTED_ROWS / rows_of_privacy, _LEAST_SHARE), _LARGEST_SHARE)


def measure_class_weights(curator: Curator, private: bool) -> Floats:
    """Return n/(K c) for each of K classes, c being its count: bought for 1% of the budget, or up to 10% of it.

    A count is taken for two standard deviations of its noise at least, so that no class gets a weight that the noise
    alone made large.
    """
    labels = curator.problem.loss.labels
    if not private:
        counts = sum_without_privacy(curator, lambda _, own: _counted(labels, own))
        counts = np.maximum(counts, 1.0)
    else:
        share = share_of_counts(curator)
        noise = count_deviation(curator, share * curator.budget) * curator.rows
        counts = curator.answer(LabelCounts(curator.gaussian(share * curator.budget)))
        counts = np.clip(counts, max(2 * noise, 1.0), max(2 * noise, curator.rows))
    weights: Floats = counts.sum() / (counts.size * counts)
    return weights


def _counted(labels: Labels, own: Floats) -> Floats:
    index = own > 0 if labels.kind is LabelKind.SIGNS else own
    return np.bincount(index.astype(np.intp), minlength=labels.number_of_classes).astype(np.float64)
