r"""Curves for numbers: a public expansion of numeric columns into hats, in which a linear model is a sum of curves.

A column scaled to [-1, 1] by its bounds (`ColumnScaling`) is seen on one or two scales: as it is, u, and, where its
bounds are wide, by the number of times it doubles,

.. math:: v = \operatorname{sign}(u)\,\ell(1 + (2^k - 1) |u|)/k,

:math:`\ell` being the logarithm to base 2 with straight lines between powers of two. On each scale there is a hat at
every knot between the bounds: a function that is 1 at its knot, 0 at the knots beside it, and straight in between.
With the position itself, hats make up every curve that is straight between its knots. Two numbers in a row and scale
are not 0 at most, so that expanded rows are sparse and hardly longer than before.

Every new column is 0 where the scaled column is 0, so that sparse tables stay sparse. Where a column has both signs,
0 is a knot, whose hat is replaced by the size of the position.

**Privacy** Knots and scales follow from the number of rows, the guarantee and bounds that are public or released. The
expansion of a cell depends on that cell alone, and is computed by additions, multiplications and divisions, whose
results do not depend on where in the table a cell stands.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats
from ..errors import InvalidParameter
from ..exact import separate_product
from .scaling import ColumnScaling

_WIDE = 7  # doublings between the bounds, above two decades, from which a second scale is worth it
_DOUBLINGS = 10  # of a second scale at most, three decades


@dataclass(frozen=True, eq=False)
class Curve:
    """One scale of one column, and its knots."""

    column: int  # which column
    #: The ends of the scaled column, from -1 to 1, not both on one side of 0.
    low: float
    high: float
    doublings: int  # k, or 0 for the column as it is
    knots: Floats  # positions between the ends, in increasing order, without 0: where there are hats

    @property
    def both_signs(self) -> bool:
        """Whether 0 is a knot too."""
        return self.low < 0 < self.high

    @property
    def width(self) -> int:
        """How many columns are added: the position, unless it is there already, its size, and the hats."""
        return bool(self.doublings) + self.both_signs + self.knots.size

    def positions(self, scaled: Floats) -> Floats:
        """Return the positions of scaled cells on this scale."""
        if not self.doublings:
            return scaled
        mantissa, exponent = np.frexp(1.0 + (2.0**self.doublings - 1.0) * np.abs(scaled))
        positions: Floats = np.copysign((exponent - 2 + 2 * mantissa) / self.doublings, scaled)
        return positions

    def cells(self, positions: Floats) -> Floats:
        """Return the scaled cells at some positions."""
        if not self.doublings:
            return positions
        whole, part = np.divmod(np.abs(positions) * self.doublings, 1.0)
        cells: Floats = np.copysign((2.0**whole * (1.0 + part) - 1.0) / (2.0**self.doublings - 1.0), positions)
        return cells

    def entries(self, scaled: Floats) -> Iterator[tuple[NDArray[np.intp], Floats]]:
        """Yield of each added column the cells where it may not be 0, and its values there."""
        positions = self.positions(scaled)
        everywhere = np.arange(positions.size)
        if self.doublings:
            yield everywhere, positions
        if self.both_signs:
            yield everywhere, np.abs(positions)
        low, high = self.positions(np.array([self.low, self.high]))
        stops = np.unique(np.concatenate([[low, 0.0, high], self.knots]))
        cell = np.clip(np.searchsorted(stops, positions, side="right") - 1, 0, stops.size - 2)
        share = (positions - stops[cell]) / (stops[cell + 1] - stops[cell])
        order = np.argsort(cell.astype(np.min_scalar_type(stops.size)), kind="stable")  # short integers sort fastest
        starts = np.searchsorted(cell[order], np.arange(stops.size))
        for stop in np.searchsorted(stops, self.knots).tolist():
            rising, falling = (order[starts[at] : starts[at + 1]] for at in (stop - 1, stop))
            yield np.append(rising, falling), np.append(share[rising], 1.0 - share[falling])


@dataclass(frozen=True, eq=False)
class Curves:
    """Scales columns by their bounds and adds the columns of some curves."""

    scaling: ColumnScaling  # public bounds
    curves: tuple[Curve, ...]  # what is added, in this order
    #: For each column 1 if its curve must not fall, -1 if it must not rise, and else 0; empty for none.
    directions: tuple[int, ...] = ()

    @classmethod
    def drawn(
        cls,
        scaling: ColumnScaling,
        numbers: Sequence[int],
        pieces: int,
        knots: Mapping[int, Floats],
        directions: tuple[int, ...] = (),
    ) -> Curves:
        """Return curves with so many ``pieces`` for some columns, and with given ``knots`` for others.

        A second scale has half as many: its position alone gains most, and where bounds reach 0 every number has one.
        One piece on the scale of a column itself is the straight line that is there already; 0 pieces are no curve on
        any scale.
        """
        curves: list[Curve] = []
        low, high = (ends.tolist() for ends in scaling.ends())
        for column in range(scaling.columns):
            ends = column, low[column], high[column]
            if column in knots:
                curves.append(Curve(*ends, 0, knots[column]))
        for column in numbers if pieces else ():
            ends = column, low[column], high[column]
            wide = _doublings(scaling, column)
            curves += [_even(Curve(*ends, 0, np.empty(0)), pieces)]
            if wide >= _WIDE:
                curves += [_even(Curve(*ends, wide, np.empty(0)), max(pieces // 2, 1))]
        return cls(scaling, tuple(curve for curve in curves if curve.width), directions)

    @property
    def columns(self) -> int:
        """The number of columns of an expanded row."""
        return self.scaling.columns + sum(curve.width for curve in self.curves)

    @cached_property
    def places(self) -> tuple[slice, ...]:
        """Which columns of an expanded row belong to each curve."""
        ends = self.scaling.columns + np.cumsum([0, *(curve.width for curve in self.curves)])
        return tuple(slice(start, stop) for start, stop in zip(ends[:-1].tolist(), ends[1:].tolist(), strict=True))

    def bends(self, column: int) -> Floats:
        """Return expanded rows whose cells are 0 but for one column, at all ends of its straight pieces, in order."""
        low, high = (float(ends[column]) for ends in self.scaling.ends())
        cells = [np.array([low, 0.0, high])]
        for curve in self.curves:
            if curve.column == column:
                scale = np.arange(-curve.doublings, curve.doublings + 1) / max(curve.doublings, 1)
                cells += [curve.cells(curve.knots), curve.cells(scale)]
        every = np.unique(np.clip(np.concatenate(cells), low, high))
        places = np.arange(every.size), np.full(every.size, column)
        shape = (every.size, self.scaling.columns)
        unscaled = self.scaling.shift[column] + self.scaling.scale[column] * every
        # Other columns are at their end nearest to 0, which is scaled to 0.
        rows: Floats = sparse.csr_array(self.apply(sparse.csr_array((unscaled, places), shape=shape))).toarray()
        return rows

    def apply(self, features: Any) -> Any:
        """Return the scaled rows with the columns of the curves, CSR if there are any curves."""
        scaled = self.scaling.apply(features)
        if not self.curves:
            return scaled
        by_column = sparse.csc_array(scaled)
        by_column.eliminate_zeros()
        rows, values = [by_column.indices], [by_column.data]
        for curve in self.curves:
            cells = slice(*by_column.indptr[curve.column : curve.column + 2])
            for where, entries in curve.entries(by_column.data[cells]):
                rows.append(by_column.indices[cells][where])
                values.append(entries)
        starts = np.append(by_column.indptr, by_column.nnz + np.cumsum([each.size for each in rows[1:]]))
        shape = (features.shape[0], self.columns)
        return sparse.csc_array((np.concatenate(values), np.concatenate(rows), starts), shape=shape).tocsr()

    def product(self, features: Any, coefficients: Floats, *, separate: bool = False) -> Floats:
        """Return the product of expanded rows and coefficients; if ``separate``, of each row by itself."""
        expanded = self.apply(features)
        total: Floats = separate_product(expanded, coefficients) if separate else expanded @ coefficients
        return total

    def original_units(self, weights: Floats, intercept: Floats) -> tuple[Floats, Floats]:
        """Return weights and intercept as they are: they belong to the columns of expanded rows."""
        return weights, intercept


def _doublings(scaling: ColumnScaling, column: int) -> int:
    """Return how often a column doubles between its bounds, where 0 is as far off as a scale reaches."""
    nearest, width = abs(float(scaling.shift[column])), float(scaling.scale[column])
    return min(_DOUBLINGS, math.floor(math.log2(1 + width / nearest))) if nearest > 0 else _DOUBLINGS


def _even(curve: Curve, pieces: int) -> Curve:
    """Return a curve with knots at multiples of 1/pieces, but none within half a piece of the ends."""
    first, last = curve.positions(np.array([curve.low, curve.high])) * pieces
    steps = np.arange(math.ceil(first + 0.5), math.floor(last - 0.5) + 1)
    return replace(curve, knots=steps[steps != 0] / pieces)


def scaled_knots(
    declared: Any, scaling: ColumnScaling, names: Any, binary: Sequence[bool], moving: NDArray[np.bool_]
) -> dict[int, Floats]:
    """Return the knots that a caller declared for some columns, scaled as their columns are.

    The bounds of the columns that are ``moving`` are measured or made narrower, and might leave knots outside.

    Raises
    ------
    InvalidParameter
        There is no such column, it is declared binary, its bounds are moving, or a knot is no number between them.
    """
    if declared is None:
        return {}
    if not isinstance(declared, Mapping):
        raise InvalidParameter(f"knots must map columns to numbers, got a {type(declared).__name__}")
    known = {} if names is None else {name: position for position, name in enumerate(names)}
    scaled: dict[int, Floats] = {}
    for key, given in declared.items():
        position = known.get(key, key)
        if not isinstance(position, int | np.integer) or not 0 <= position < scaling.columns:
            raise InvalidParameter(f"knots are given for {key!r}, which is no column: use a name or a position")
        column = int(position)
        if column in scaled:
            raise InvalidParameter(f"knots of column {key!r} are given twice: by name and by position")
        if binary[column]:
            raise InvalidParameter(f"knots are given for column {key!r}, which binary_features declares: drop one")
        try:
            knots = np.unique(np.asarray(given, dtype=np.float64).reshape(-1))
        except (TypeError, ValueError):
            raise InvalidParameter(f"knots of column {key!r} must be numbers: {given!r:.80}") from None
        if knots.size and moving[column]:
            raise InvalidParameter(
                f"knots of column {key!r} need bounds that stay as they are: give its bounds, and leave tighten out"
            )
        low, high = scaling.low[column], scaling.high[column]
        if not ((knots > low) & (knots < high)).all():
            raise InvalidParameter(
                f"knots of column {key!r} must lie between its bounds {low:g} and {high:g}: {given!r:.80}"
            )
        positions = (knots - scaling.shift[column]) / scaling.scale[column]
        scaled[column] = positions[positions != 0]
    return scaled
