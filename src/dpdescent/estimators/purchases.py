"""What a fit may buy before its method begins, and how all of it is rehearsed. Each purchase is an object.

A fit goes through its list of purchases in order. `Purchase.buy` charges the ledger of the fit and returns what is
known afterwards. Something new that a fit may buy is one more class here.

*Rehearsal.* Methods refuse what they cannot do before their own first charge. Where bounds or counts are bought
before a method begins, that would be too late: part of the budget would be gone. And an account that several fits
share reserves the whole budget of a fit before the method begins, which its record shows. So all queries that are
known beforehand are asked once of rows that nobody can read. Each is planned, checked and charged to a ledger that
is thrown away, with the share of the budget that the fit will have left by then, and ends where the rows would be
read. A method that asks first for the mean length of rows goes on with its public bound, so that what it plans by
that length is refused in time as well.

**Privacy** A rehearsal reads no row, knows the public size of the table alone, and releases nothing.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from ..curator import ArraySource, Batch, Curator, LatticeNoise, Units
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..noise import Randomness
from ..problems import LinearProblem
from ..queries import MeanRowNorm, Query
from ..solvers import Method, Settings
from ..tables.bounds import BINS, RUNGS
from .knowledge import Knowledge
from .measuring import Measurement, measure_class_weights


class _RowsAsked(Exception):
    """A query was charged, and the rows are wanted."""


class _UnreadRows(ArraySource):
    """A source of so many rows, none of which can be read."""

    def __init__(self, rows: int, grid: FeatureGrid) -> None:
        self._rows, self.grid = rows, grid

    @property
    def rows(self) -> int:
        return self._rows

    def in_blocks_of(self, owners: NDArray[np.intp]) -> ArraySource:
        return self

    def _map(self, *_: Any) -> NoReturn:
        raise _RowsAsked


class _Rehearsing(Curator):
    """A curator who gives the public bound for the mean length of rows, by which most methods plan the rest."""

    def answer(self, query: Query[Any], batch: Batch | None = None) -> Any:
        try:
            return super().answer(query, batch)
        except _RowsAsked:
            if isinstance(query, MeanRowNorm) and query.frame is None:
                return self.problem.grid.row_bound
            raise


class Rehearsal:
    """A ledger like that of a fit, and rows that nobody can read.

    Where bounds are measured, the problem has those that are assumed until then. ``own``, the ledger of the fit, is
    not charged. ``rows`` is their public number, or that of places for them, and ``held`` how many are to be read.
    """

    def __init__(self, problem: LinearProblem, own: Ledger, rows: int, held: int, units: Units | None) -> None:
        relation = str(own.relation)
        self._ledger = Ledger(own.epsilon, own.delta, currency=own.currency, relation=relation, unit=own.unit)
        self._problem, self._rows, self._held, self._units = problem, rows, held, units
        self._noise = LatticeNoise(Randomness(0))

    def unread(self, columns: int) -> ArraySource:
        """Return rows of so many columns that nobody can read."""
        return _UnreadRows(self._held, FeatureGrid(1.0, columns))

    def curator(self, batch_rate: float = 1.0) -> Curator:
        """Return a curator of coded rows that nobody can read."""
        drawn: dict[str, Any] = {"noise": self._noise, "batch_rate": batch_rate, "units": self._units}
        unread = _UnreadRows(self._held, self._problem.grid)
        return _Rehearsing(unread, self._problem, self._ledger, self._rows, **drawn)

    def ask(self, query: Callable[[Measurement], object]) -> None:
        """Ask as the fit will, up to where the rows would be read."""
        with warnings.catch_warnings(), suppress(_RowsAsked):
            warnings.simplefilter("ignore")  # the fit itself gives them
            query(Measurement(self._ledger, self._noise, self._rows, self._units))

    def solve(self, method: Method, settings: Settings) -> None:
        """Begin the method as the fit will."""
        self.ask(lambda _: method.solve(self.curator(settings.batch_rate), settings))


@dataclass(frozen=True)
class Shop:
    """Where a fit buys: its rows, and who is asked about them."""

    #: Cells and labels: **unreleased data**.
    X: Any
    y: Any
    #: Returns the measurement of cells for what is known.
    measurement: Callable[[Knowledge], Measurement]
    curator: Callable[[Knowledge], Curator]  # returns a curator of the coded rows for what is known


class Purchase(Protocol):
    """Something that a fit buys."""

    def parameter(self) -> str | None:
        """Return the parameter that would have made it unnecessary, None where the fit has decided to buy it."""

    def rehearse(self, rehearsal: Rehearsal) -> None:
        """Raise what buying would raise before rows are read."""

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        """Charge for it, and return what is known then."""


@dataclass(frozen=True)
class RowsOfUnits:
    """The number of rows of all units, by a noisy count."""

    def parameter(self) -> None:
        return None

    def rehearse(self, rehearsal: Rehearsal) -> None:
        rehearsal.ask(lambda measurement: measurement.buy_row_count(rehearsal.unread(1)))

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        rows, remarks = shop.measurement(known).buy_units(shop.X.shape[0])
        return known.learnt("the number of rows of all units, with noise", remarks, rows=rows)


@dataclass(frozen=True)
class ColumnBounds:
    """Bounds of columns that have none, or narrower ones within those that were given."""

    columns: int
    tighten: bool = False
    asked: str | None = None

    def parameter(self) -> str | None:
        return self.asked if self.tighten else "bounds"

    def rehearse(self, rehearsal: Rehearsal) -> None:
        if self.tighten and self.columns:
            rehearsal.ask(lambda measurement: measurement.buy_first(rehearsal.unread(self.columns), RUNGS))
        for largest in (RUNGS, BINS) if self.columns else ():
            rehearsal.ask(partial(Measurement.buy_histogram, source=rehearsal.unread(self.columns), largest=largest))

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        columns, given = known.columns, known.scaling if known.columns.given else None
        measurement = shop.measurement(known)
        scaling, remarks = measurement.buy_columns(shop.X, given, columns.binary, self.tighten, columns.gaps)
        return known.learnt("bounds of the columns", remarks, scaling=scaling)


@dataclass(frozen=True)
class TargetBounds:
    """Bounds of the target of a regression that has none, or narrower ones within those that were given."""

    tighten: bool = False
    asked: str | None = None

    def parameter(self) -> str | None:
        return self.asked if self.tighten else "target_bounds"

    def rehearse(self, rehearsal: Rehearsal) -> None:
        ColumnBounds(1).rehearse(rehearsal)

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        model, private = known.model, known.method.private
        remarks = model._measure_target(shop.y, shop.measurement(known), private)
        changes = model._changed_labels(shop.y)
        return known.learnt("bounds of the target", remarks, **changes)


@dataclass(frozen=True)
class ClassWeights:
    """Weights of classes that are balanced by noisy counts of the labels."""

    def parameter(self) -> str:
        return "class_weight"

    def rehearse(self, rehearsal: Rehearsal) -> None:
        rehearsal.ask(lambda _: measure_class_weights(rehearsal.curator(), private=True))

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        weights = measure_class_weights(shop.curator(known), known.method.private)
        return known.learnt("weights of the classes", loss=known.model._balanced(known.loss, np.asarray(weights)))
