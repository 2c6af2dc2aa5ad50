"""A fit without its rows, before the first charge: what is wrong with a plan is found while it costs nothing.

Methods refuse what they cannot do before their own first charge. Where bounds or counts are bought before a method
begins, that would be too late: part of the budget would be gone. And an account that several fits share reserves the
whole budget of a fit before the method begins, which its record shows. So all questions that are known beforehand are
asked once of rows that nobody can read. Each is planned, checked and charged to a ledger that is thrown away, with
the share of the budget that the fit will have left by then, and ends where the rows would be read.

**Privacy** No row is read, and what is known of the table is its public size. Nothing is released.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..curator import ArraySource, Curator, LatticeNoise, Units
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..noise import Randomness
from ..problems import LinearProblem
from ..solvers import Method, Settings
from .bounds import BINS, RUNGS
from .measuring import Measurement
from .weights import balanced_weights

__all__ = ["Bought", "rehearse"]


@dataclass(frozen=True)
class Bought:
    """What a fit buys before its method begins.

    Parameters
    ----------
    columns : int
        The number of columns whose bounds are measured.
    target : bool
        Whether the bounds of the target are.
    counts : bool
        Whether label counts are.
    rows : bool
        Whether the number of rows of all units is.
    """

    columns: int
    target: bool
    counts: bool
    rows: bool

    @classmethod
    def of(cls, measured: NDArray[np.bool_], names: Sequence[str], rows: bool) -> Bought:
        """Return what is bought for columns that are measured, and for parameters that nobody gave."""
        return cls(int(np.count_nonzero(measured)), "target_bounds" in names, "class_weight" in names, rows)

    @property
    def anything(self) -> bool:
        """Whether anything is bought."""
        return bool(self.columns or self.target or self.counts or self.rows)


class _RowsAsked(Exception):
    """A question was charged, and the rows are wanted."""


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


def rehearse(
    method: Method,
    settings: Settings,
    problem: LinearProblem,
    own: Ledger,
    bought: Bought,
    rows: int,
    held: int,
    units: Units | None,
) -> None:
    """Raise what buying bounds and counts, and running the method after that, would raise before rows are read.

    Parameters
    ----------
    method, settings
    problem : LinearProblem
        Where bounds are measured, as they are assumed to be until then.
    own : Ledger
        That of the fit; it is not charged.
    bought : Bought
    rows, held : int
        The public number of rows, or of places for them, and how many there are to be read.
    units : Units, optional
    """
    ledger = Ledger(own.epsilon, own.delta, currency=own.currency, relation=str(own.relation), unit=own.unit)
    noise = LatticeNoise(Randomness(0))
    measurement = Measurement(ledger, noise, rows, units)

    def curator(batch_rate: float = 1.0) -> Curator:
        source = _UnreadRows(held, problem.grid)
        return Curator(source, problem, ledger, rows, noise=noise, batch_rate=batch_rate, units=units)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the fit itself gives them
        if bought.rows:
            with suppress(_RowsAsked):
                measurement.count_rows(_UnreadRows(held, FeatureGrid(1.0, 1)))
        for columns in filter(None, (bought.columns, int(bought.target))):
            for largest in (RUNGS, BINS):
                with suppress(_RowsAsked):
                    measurement.counted(_UnreadRows(held, FeatureGrid(1.0, columns)), largest)
        if bought.counts:
            with suppress(_RowsAsked):
                balanced_weights(curator(), private=True)
        with suppress(_RowsAsked):
            method.solve(curator(settings.batch_rate), settings)
