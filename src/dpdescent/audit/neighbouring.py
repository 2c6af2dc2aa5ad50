"""Neighbours of a table: a row or a unit removed, or replaced by another, whose cells are hard ones.

The row in question stands last, with its label, and so do the rows of a unit in question. Batches, permutations and
leaves follow the places of rows, and so all other rows keep theirs if it is removed.

What replaces a row is a row of the table, a copy of one that stays, a corner of the bounds, or cells that are seldom
tried: the largest and the least numbers of their type, denormal ones, -0.0, and numbers next to a bound.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import cycle, islice
from typing import Any

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.base import is_classifier

from ..errors import InvalidParameter
from ..relations import Relation

_KINDS = ("corner", "own", "strange", "high", "copied", "low", "mixed")


@dataclass(frozen=True, eq=False)
class Neighbour:
    """A table that differs from another one in a row, or in all rows of a unit.

    Parameters
    ----------
    X, y, unit
        What ``fit`` is given; ``y`` and ``unit`` are left out where they are None.
    change : str
        How it differs, in words, for the report.
    """

    X: Any
    y: Any = None
    unit: Any = None
    change: str = "as given"

    @property
    def rows(self) -> int:
        """How many rows there are."""
        return int(self.X.shape[0]) if hasattr(self.X, "shape") else len(self.X)


Pair = tuple[Neighbour, Neighbour]


def public_number(pair: Pair, relation: Relation, unit_column: str | None) -> int | None:
    """Return the number that is public for a pair, and that the shorter of its tables does not show.

    Under zero-out it is the number of rows, or of units where rows belong to units.
    """
    if relation is not Relation.ZERO_OUT:
        return None
    owners = [each.X[unit_column] if unit_column is not None else each.unit for each in pair]
    if any(each is not None for each in owners):
        return max(int(pd.Series(each).nunique()) for each in owners)
    return max(each.rows for each in pair)


def draw_pairs(estimator: Any, table: Neighbour, relation: Relation, count: int, seed: int) -> Iterator[Pair]:
    """Yield ``count`` pairs of neighbours; those with the same first table follow each other.

    The parameters ``bounds``, ``classes``, ``target_bounds``, ``unit`` and ``rows_per_unit`` are used, if any.
    """
    if not (isinstance(table.X, np.ndarray | pd.DataFrame) or sparse.issparse(table.X)):
        raise InvalidParameter(
            f"neighbours of a {type(table.X).__name__} cannot be drawn: pass neighbours=[Neighbour(...)]"
        )
    if table.rows < 2 or (table.y is not None and np.shape(table.y) != (table.rows,)):
        raise InvalidParameter("a replay needs at least 2 rows, and one label for each")
    return islice(_Drawing(estimator, table, seed).pairs(relation), count)


class _Drawing:
    """Draws rows in question, and builds tables that end with them."""

    def __init__(self, estimator: Any, table: Neighbour, seed: int) -> None:
        self._given = table
        X = table.X.toarray() if sparse.issparse(table.X) else table.X
        self._X = (X if isinstance(X, pd.DataFrame) else pd.DataFrame(X)).reset_index(drop=True)
        self._y = None if table.y is None else pd.Series(np.asarray(table.y))
        column = getattr(estimator, "unit", None)
        self._place = list(self._X.columns).index(column) if isinstance(column, str) else None
        owners = table.unit if self._place is None else self._X[column]
        self._owners = None if owners is None else pd.Series(np.asarray(owners), name=getattr(owners, "name", None))
        self._generator = np.random.default_rng(seed)
        self._most = int(getattr(estimator, "rows_per_unit", 1))
        self._cells = _columns(self._X, getattr(estimator, "bounds", None))
        self._labels = [] if self._y is None else _label_pool(estimator, self._y.to_numpy())
        self._next_label = cycle(reversed(self._labels))

    def pairs(self, relation: Relation) -> Iterator[Pair]:
        sizes = cycle([(self._most, 1), (1, self._most), (self._most + 2, 1), (self._most, self._most + 2)])
        units = np.arange(len(self._X)) if self._owners is None else self._owners.to_numpy()
        known = pd.unique(units)
        for kind, (size, other) in zip(cycle(_KINDS), sizes, strict=False):
            who = known[int(self._generator.integers(known.size))]
            own = np.flatnonzero(units == who)
            size, other = (size, other) if self._owners is not None else (1, 1)
            rows, labels = self._question(own, kind, size)
            first = self._table(own, rows, labels, who)
            what = "a row" if self._owners is None else f"a unit of {len(rows)} rows"
            if relation is Relation.ZERO_OUT:
                yield first, self._table(own, [], [], who, f"{what} is removed ({kind})")
                continue
            opposite = [[column.opposite(cell) for column, cell in zip(self._cells, rows[0], strict=True)]]
            replacements = {
                "itself with another label": (rows[:1] * other, self._other(labels[:1]) * other),
                "the opposite corner": (opposite * other, labels[:1] * other),
                "strange cells": self._question(own, "strange", len(rows)),
            }
            for words, (found, told) in replacements.items():
                change = f"{what} ({kind}) is replaced by {words}" + (f", {len(found)} rows" if size > 1 else "")
                yield first, self._table(own, found, told, who, change)

    def _question(self, own: Any, kind: str, size: int) -> tuple[list[list[Any]], list[Any]]:
        """Return so many rows of a kind with labels; all of them are the same, unless they are those of the table."""
        if kind in ("own", "copied"):
            stays = [int(self._generator.choice(np.delete(np.arange(len(self._X)), own)))] * size
            places = own if kind == "own" else np.array(stays)
            rows = [list(row) for row in self._X.iloc[places].itertuples(index=False, name=None)]
            return rows, [] if self._y is None else self._y.iloc[places].tolist()
        draw: Callable[[_Column], Any] = {
            "corner": lambda column: column.end(self._generator.integers(2)),
            "high": lambda column: column.end(1),
            "low": lambda column: column.end(0),
            "strange": lambda column: next(column.strange),
            "mixed": lambda column: self._drawn([self._drawn(column.usual), next(column.strange)]),
        }[kind]
        row = [draw(column) for column in self._cells]
        return [row] * size, [next(self._next_label)] * size if self._labels else []

    def _drawn(self, pool: list[Any]) -> Any:
        return pool[int(self._generator.integers(len(pool)))]

    def _other(self, labels: list[Any]) -> list[Any]:
        return [next((each for each in self._labels if each != label), label) for label in labels]

    def _table(self, own: Any, rows: list[list[Any]], labels: list[Any], who: Any, change: str = "") -> Neighbour:
        """Return the table of the other rows and of those in question, which come last."""
        if self._place is not None:
            rows = [[*row[: self._place], who, *row[self._place + 1 :]] for row in rows]
        added = pd.DataFrame(rows, columns=self._X.columns).astype(self._X.dtypes) if rows else self._X.iloc[:0]
        X: Any = pd.concat([self._X.drop(index=own), added], ignore_index=True)
        if not isinstance(self._given.X, pd.DataFrame):
            X = X.to_numpy(self._given.X.dtype)
        X = sparse.csr_array(X) if sparse.issparse(self._given.X) else X
        y = None if self._y is None else _joined(self._y, own, labels).to_numpy()
        if self._owners is None or self._place is not None:
            return Neighbour(X, y, None, change)
        owners = _joined(self._owners, own, [who] * len(rows))
        return Neighbour(X, y, owners if self._owners.name is not None else owners.to_numpy(), change)


def _joined(values: pd.Series, own: Any, more: list[Any]) -> pd.Series:
    """Return a column without the rows in question, and with others at its end."""
    added = pd.Series(more, dtype=values.dtype, name=values.name)
    return pd.concat([values.drop(index=own), added], ignore_index=True)


@dataclass(frozen=True)
class _Column:
    """Cells of a column: those that occur, its ends if it holds numbers, and those that are seldom tried."""

    usual: list[Any]
    ends: tuple[Any, Any] | None
    strange: Iterator[Any]

    def end(self, which: int) -> Any:
        return self.usual[0 if which else -1] if self.ends is None else self.ends[which]

    def opposite(self, cell: Any) -> Any:
        if self.ends is None:
            return next((each for each in self.usual if each != cell), cell)
        low, high = self.ends
        return low if cell > low / 2 + high / 2 else high


def _columns(frame: pd.DataFrame, bounds: Any) -> list[_Column]:
    try:
        given = [np.broadcast_to(np.asarray(end, np.float64), (frame.shape[1],)) for end in bounds]
    except (TypeError, ValueError):  # no bounds, or not of these columns
        given = [np.full(frame.shape[1], np.nan)] * 2
    return [_column(frame.iloc[:, place], place, given[0][place], given[1][place]) for place in range(frame.shape[1])]


def _column(cells: pd.Series, place: int, low: float, high: float) -> _Column:
    usual, kind = cells.unique().tolist(), getattr(cells.dtype, "kind", "O")
    if kind not in "fiu":
        return _Column(usual, None, cycle(usual))
    convert = np.dtype(cells.dtype).type
    low, high = (
        convert(bound if np.isfinite(bound) else seen) for bound, seen in ((low, cells.min()), (high, cells.max()))
    )
    if kind in "iu":
        return _Column(usual, (low, high), cycle([low, high, convert(0), np.iinfo(cells.dtype).max]))
    facts = np.finfo(cells.dtype)
    beside = [np.nextafter(end, way) for end in (low, high) for way in (-facts.max, facts.max)]
    odd = [facts.max, 0.0, -facts.max, -0.0, facts.smallest_subnormal, -facts.smallest_subnormal, facts.tiny]
    # No two columns begin at the same of them.
    return _Column(usual, (low, high), islice(cycle([convert(each) for each in (*beside, *odd)]), 4 * place, None))


def _label_pool(estimator: Any, y: Any) -> list[Any]:
    """Return the labels of rows in question: the classes, or the ends of the target and numbers far outside."""
    classes = getattr(estimator, "classes", None)
    if is_classifier(estimator) or y.dtype.kind not in "fiu":
        return list(np.unique(y if classes is None else np.asarray(classes)))
    if y.dtype.kind != "f":
        return [y.min(), y.max()]
    ends = getattr(estimator, "target_bounds", None) or (y.min(), y.max())
    return [y.dtype.type(each) for each in (*ends, np.finfo(y.dtype).max, 0.0, -np.finfo(y.dtype).max)]
