"""Numbers of single rows that several queries need: norms, clip factors, margins.

Each is a function of one row and of public numbers. The curator computes them after a charge, keeps the latest of
each kind for the next query, and never releases them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats
from ..exact import ClippedSum, FeatureGrid
from ..problems import Frame, Whitening, products_with_following


class PerRow(ABC):
    """A number, or a few, of every row."""

    #: Where it is kept: of each kind the latest, and nothing of the kind "".
    kind: str
    #: Other numbers of the row from which it is computed.
    needs: tuple[PerRow, ...] = ()

    @property
    def key(self) -> Hashable:
        """What tells it from others of its kind; itself by default."""
        return self

    @abstractmethod
    def block(self, rows: Any, labels: Floats, *needed: Floats) -> Floats:
        """Return the numbers of a block of rows."""


@dataclass(frozen=True)
class Norms(PerRow):
    """Squared norms of the rows on their grid; or in a frame or a whitening, the constant included."""

    coordinates: FeatureGrid | Frame | Whitening
    kind: str

    @classmethod
    def within(cls, frame: Frame | Whitening | None, grid: FeatureGrid) -> Norms:
        """Return those in a frame, or in the coordinates of the problem."""
        return cls(grid, "norms") if frame is None else cls(frame, "norms in a frame")

    def block(self, rows: Any, labels: Floats, *needed: Floats) -> Floats:
        return self.coordinates.squared_norms(rows)


@dataclass(frozen=True)
class Caps(PerRow):
    """The largest coefficient with which a row may enter a clipped sum, from its squared norm."""

    kind = "caps"
    clipped: ClippedSum
    needs: tuple[PerRow, ...]

    def block(self, rows: Any, labels: Floats, *needed: Floats) -> Floats:
        return self.clipped.caps(*needed)


@dataclass(frozen=True)
class Owners(PerRow):
    """Whose row each is. A curator of units keeps it from the beginning, so that it is never computed."""

    kind = "owners"

    def block(self, rows: Any, labels: Floats, *needed: Floats) -> Floats:
        raise AssertionError("a curator without units was asked whose row each is")


@dataclass(frozen=True)
class Products(PerRow):
    """Inner products of each row with those of its unit that follow it; blocks hold all rows of a unit or none."""

    coordinates: FeatureGrid | Frame | Whitening
    rows_per_unit: int
    kind: str
    needs: tuple[PerRow, ...] = (Owners(),)

    @classmethod
    def within(cls, frame: Frame | Whitening | None, grid: FeatureGrid, rows_per_unit: int) -> Products:
        """Return those in a frame, or in the coordinates of the problem."""
        if frame is None:
            return cls(grid, rows_per_unit, "products")
        return cls(frame, rows_per_unit, "products in a frame")

    def block(self, rows: Any, labels: Floats, *needed: Floats) -> Floats:
        (owners,) = needed
        products = products_with_following(self.coordinates, rows, self.rows_per_unit - 1)
        for lag in range(1, self.rows_per_unit):
            products[:-lag, lag - 1][owners[lag:] != owners[:-lag]] = 0.0
        products[~np.isfinite(products)] = 0.0  # one of the two rows is infinitely long, so that it adds nothing
        return products


@dataclass(frozen=True)
class RowWeights(PerRow):
    """sqrt(soft_norm/|z|) for rows longer than ``soft_norm``, and 1 for the others, from the squared norm."""

    kind = "weights"
    soft_norm: float
    needs: tuple[PerRow, ...]

    def block(self, rows: Any, labels: Floats, *needed: Floats) -> Floats:
        weights: Floats = np.sqrt(self.soft_norm / np.maximum(np.sqrt(needed[0]), self.soft_norm))
        return weights


@dataclass(frozen=True, eq=False)
class Margins(PerRow):
    """Margins x . w of public weights on their grid.

    A gradient and the search along it start from the same weights, so one pass over the rows serves both.
    """

    grid: FeatureGrid
    weights: Floats
    kind: str = "margins"

    @property
    def key(self) -> Hashable:
        return self.weights.tobytes()

    def block(self, rows: Any, labels: Floats, *needed: Floats) -> Floats:
        return self.grid.margins(rows, self.weights)


def moved_margins(step: float, rows: Any, labels: Floats, margins: Floats, along: Floats) -> Floats:  # noqa: ARG001
    """Return the margins t - a u after a step a, of rows whose margins are t at its start and u along it."""
    moved = step * along
    return np.subtract(margins, moved, out=moved)
