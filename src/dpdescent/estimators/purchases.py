"""What a fit may buy before its method begins. Each is an object: what it is, how it is rehearsed, how it is bought.

A fit goes through its list of purchases in order. `Purchase.buy` charges the ledger of the fit and returns what is
known afterwards; `Purchase.rehearse` asks the same questions of rows that nobody can read, on a ledger that is thrown
away (`dpdescent.estimators.rehearsal`). Something new that a fit may buy is one more class here.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

import numpy as np

from ..curator import Curator
from .bounds import BINS, RUNGS
from .knowledge import Knowledge
from .measuring import Measurement
from .rehearsal import Rehearsal
from .weights import balanced_weights

__all__ = ["ClassWeights", "ColumnBounds", "Purchase", "RowsOfUnits", "Shop", "TargetBounds"]


@dataclass(frozen=True)
class Shop:
    """Where a fit buys: its rows, and who is asked about them.

    Parameters
    ----------
    X, y : Any
        Cells and labels: **unreleased data**.
    measurement : callable
        Returns the measurement of cells for what is known.
    curator : callable
        Returns a curator of the coded rows for what is known.
    """

    X: Any
    y: Any
    measurement: Callable[[Knowledge], Measurement]
    curator: Callable[[Knowledge], Curator]


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
        rehearsal.ask(lambda measurement: measurement.count_rows(rehearsal.unread(1)))

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        rows, remarks = shop.measurement(known).of_rows(shop.X.shape[0])
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
        for largest in (RUNGS, BINS) if self.columns else ():
            rehearsal.ask(partial(Measurement.counted, source=rehearsal.unread(self.columns), largest=largest))

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        columns, given = known.columns, known.scaling if known.columns.given else None
        measurement = shop.measurement(known)
        scaling, remarks = measurement.of_columns(shop.X, given, columns.binary, self.tighten, columns.gaps)
        return known.learnt("bounds of the columns", remarks, scaling=scaling)


@dataclass(frozen=True)
class TargetBounds:
    """Bounds of the target of a regression."""

    def parameter(self) -> str:
        return "target_bounds"

    def rehearse(self, rehearsal: Rehearsal) -> None:
        ColumnBounds(1).rehearse(rehearsal)

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        loss, labels, remarks = known.model._measured_labels(shop.y, shop.measurement(known), known.method.private)
        return known.learnt("bounds of the target", remarks, loss=loss, labels=labels)


@dataclass(frozen=True)
class ClassWeights:
    """Weights of classes that are balanced by noisy counts of the labels."""

    def parameter(self) -> str:
        return "class_weight"

    def rehearse(self, rehearsal: Rehearsal) -> None:
        rehearsal.ask(lambda _: balanced_weights(rehearsal.curator(), private=True))

    def buy(self, known: Knowledge, shop: Shop) -> Knowledge:
        weights = balanced_weights(shop.curator(known), known.method.private)
        return known.learnt("weights of the classes", loss=known.model._balanced(known.loss, np.asarray(weights)))
