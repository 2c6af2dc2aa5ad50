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
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from ..curator import ArraySource, Curator, LatticeNoise, Units
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..noise import Randomness
from ..problems import LinearProblem
from ..solvers import Method, Settings
from .measuring import Measurement

__all__ = ["Rehearsal"]


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


class Rehearsal:
    """A ledger like that of a fit, and rows that nobody can read.

    Parameters
    ----------
    problem : LinearProblem
        Where bounds are measured, as they are assumed to be until then.
    own : Ledger
        That of the fit; it is not charged.
    rows, held : int
        The public number of rows, or of places for them, and how many there are to be read.
    units : Units, optional
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
        return Curator(_UnreadRows(self._held, self._problem.grid), self._problem, self._ledger, self._rows, **drawn)

    def ask(self, question: Callable[[Measurement], object]) -> None:
        """Ask as the fit will, up to where the rows would be read."""
        with warnings.catch_warnings(), suppress(_RowsAsked):
            warnings.simplefilter("ignore")  # the fit itself gives them
            question(Measurement(self._ledger, self._noise, self._rows, self._units))

    def solve(self, method: Method, settings: Settings) -> None:
        """Begin the method as the fit will."""
        self.ask(lambda _: method.solve(self.curator(settings.batch_rate), settings))
