r"""People with several rows: the unit of privacy is all rows of one person, of whom at most k rows are kept.

**Neighbours.** A table is a set of units, and each unit has from 1 to k rows after those beyond its first k were
dropped, which is a function of that unit's rows alone. Under zero-out a unit is added or removed with all its rows;
under replace-one it is replaced by another with at most k rows, maybe fewer or more than it had. Public are k and the
number of units U, as the number of rows is where each row is a unit. How many rows a unit has, how many were dropped
and how many there are in all is not public: nothing that leaves a fit depends on it, but through answers that are
paid for. `Relation.neighbours` says this in statements and on pages.

**What stands for the number of rows.** Sums are divided by a public number n: one that the caller declares, or a
noisy count that is paid for (`RowCount`), or k U, the number of places for rows. Noise is made for what a unit
changes in the sum, so any such n is sound, whatever the true number of rows is. A place without a row adds nothing:
with n = k U and rows in half of the places, a mean is half of what it would be. Points that are computed from all
rows rest on a number that no table exceeds, and for them n is k U in every case.

**A sum, or any point that is computed from the rows.** Let f be a function of the table and s its sensitivity for one
row, in some norm or seminorm: s0 if a row is added or removed, s1 >= s0 if it is replaced.

- *Zero-out of a unit* with a <= k rows: they are removed one by one, and f moves by at most a s0 <= k s0.
- *Replace-one of a unit* with a rows by one with b: the first min(a, b) rows are replaced one by one, and the other
  |a - b| are added or removed. f moves by at most min(a, b) s1 + |a - b| s0 <= max(a, b) s1 <= k s1.

Every table on the way has at most k U rows, so that bounds which hold up to that number hold for each step. The sums
and points are exact sums in the norms L1, L2 and MAX, the spread of scores, and certified minimisers, whose tolerance
is part of s: the declared sensitivity is multiplied by k, and every mechanism whose noise is made for a sensitivity
(Gaussian, Laplace, norm-Laplace, the exponential mechanism and noisy maximum over scores, AboveThreshold) costs
what it did.

**The number of rows** itself (`RowCount`) moves by a <= k under zero-out, and by |a - b| <= k - 1 under replace-one:
k covers both.

**Gradients that are clipped together.** What the rows of a unit add to a gradient may be bounded as a whole: their
sum is multiplied by a factor, a function of that unit alone, such that it is at most C' long
(`dpdescent.exact.clipped_sums`). A unit then moves the gradient by at most C' under zero-out and by 2C' under
replace-one, however many rows either of them has, and nothing is multiplied by k. The gradients of k unrelated rows
of length C add up to about sqrt(k) C, and those of copies of one row to k C. C' is the geometric mean of the two,
k^(3/4) C.

**A point that is drawn** by the exponential mechanism with a law of bounded range epsilon/k for one row has a
logarithm that changes within a range of epsilon for k of them, since ranges add up along the same paths.

**Batches** are drawn by unit: a unit is in or out with all of its rows. Given a batch, a unit that joins it moves
sums by at most k s. So what is known about amplification holds as it stands, with units in the place of rows:
Poisson sampling of units under zero-out, fixed-size subsets of the U units under replace-one. (Rows drawn one by
one would not do: of k rows about k times as many units are hit, and by a random number of rows.)

**What has no such proof here** is refused for k > 1. *Objective perturbation* pays for one change of rank one of
the Hessian and one shift of the random term together; k rows change the determinant k times, along a path on which
the minimiser moves. *Permuted passes* charge for the law of the one batch of a pass that a row sits in; k rows sit
in several. With k = 1 a unit is a row, and all theorems hold for it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..arrays import distinct_cells
from ..errors import InvalidParameter, MissingValue, require_positive_integer
from ..exact import LARGEST_JOINT
from .release import public_count

_MOST_PLACES = 2**26  # sums of so many rows have not wrapped around, which a whitening rests on


@dataclass(frozen=True, eq=False)
class Units:
    """Which unit each row belongs to."""

    #: The number of each row's unit, from 0 to ``count`` - 1, in ascending order, so that rows of a unit stand
    #: together. Unreleased data.
    owners: NDArray[np.intp]
    count: int  # U, the public number of units
    rows_per_unit: int  # k; no unit has more rows

    @property
    def together(self) -> bool:
        """Whether units have several rows, and not too many to keep their inner products in memory."""
        return 1 < self.rows_per_unit <= LARGEST_JOINT

    def __post_init__(self) -> None:
        require_positive_integer("the number of units", self.count)
        require_positive_integer("rows_per_unit", self.rows_per_unit)
        if self.places > _MOST_PLACES:
            raise InvalidParameter(
                f"rows_per_unit is {self.rows_per_unit} for {self.count} units, which are places for more than 2^26 "
                "rows: lower it to what a unit typically has, since noise grows with it"
            )
        held = np.bincount(self.owners, minlength=self.count) if self.owners.size else np.zeros(self.count)
        if held.size > self.count or held.max() > self.rows_per_unit:
            raise InvalidParameter("a unit has more rows than rows_per_unit, or is none of the units: use Units.kept")
        if (np.diff(self.owners) < 0).any():
            raise InvalidParameter("rows of a unit must stand together, in the order of the units: use Units.kept")

    @classmethod
    def kept(cls, identifiers: Any, rows_per_unit: int, rows: int) -> tuple[NDArray[np.intp], Units]:
        """Return which of ``rows`` rows are kept, unit by unit, and their units.

        The first rows of each unit are kept, in the order of the table.

        Raises
        ------
        InvalidParameter
            The identifiers are not one per row or of several kinds, or there are too many places for rows, k U.
        MissingValue
            An identifier is missing.
        """
        if isinstance(identifiers, pd.DataFrame) or _length(identifiers) != rows:
            raise InvalidParameter("unit must be one identifier per row, in one dimension")
        limit = require_positive_integer("rows_per_unit", rows_per_unit)
        try:
            # As objects: large numbers would be rounded to one another, and not every text is one of Arrow.
            plain = isinstance(identifiers, Sequence) or getattr(identifiers, "dtype", np.dtype(float)).kind == "O"
            cells = pd.Series(identifiers, dtype=object if plain else None)
            if cells.isna().any():
                raise MissingValue("unit has a missing cell: drop those rows, or give each an identifier of its own")
            codes, known = distinct_cells(cells.to_numpy()) if plain else pd.factorize(cells)
        except TypeError:
            raise InvalidParameter("unit has cells that are no identifiers: give texts, numbers or dates") from None
        if not _of_one_kind(known):  # a file that is read in parts has texts and numbers for one person
            raise InvalidParameter(
                "unit mixes identifiers of several kinds, such as texts and numbers, of which two may stand for one "
                "person: convert all of them to text"
            )
        mask = pd.Series(codes).groupby(codes).cumcount().to_numpy() < limit
        kept = np.flatnonzero(mask)
        kept = kept[np.argsort(codes[kept], kind="stable")]
        return kept, cls(codes[kept], public_count(len(known)), limit)

    @property
    def places(self) -> int:
        """The public number k U, which the number of rows never exceeds."""
        return self.rows_per_unit * self.count

    def divisor(self, declared: int | None) -> int:
        """Return the public number by which sums are divided: the declared number of rows, and k U at most.

        Raises
        ------
        InvalidParameter
            The number is less than that of the units, each of which has a row.
        """
        if declared is None:
            return self.places
        if require_positive_integer("rows", declared) < self.count:
            raise InvalidParameter(
                f"rows is {declared}, and there are {self.count} units with a row at least: declare how many rows of "
                "all units are used, about, or leave rows out"
            )
        return min(declared, self.places)

    def require_places(self, rows: int, label: str) -> None:
        """Refuse what rests on a number that the rows never exceed, unless the public number ``rows`` is one.

        The number of rows itself is private, and does not decide.
        """
        if rows < self.places:
            raise InvalidParameter(
                f"{label!r} needs a place for every row that a unit may have: make the curator with "
                f"rows={self.places}, which is rows_per_unit times the number of units"
            )

    def of_rows(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows belong to the chosen units."""
        return chosen[self.owners]


def _length(identifiers: Any) -> int | None:
    """Return how many there are in one dimension; None if they have more dimensions or none."""
    try:
        return len(identifiers) if np.ndim(identifiers) == 1 else None
    except ValueError:  # lists of different lengths
        return None


def _of_one_kind(known: Any) -> bool:
    """Return whether identifiers are of one kind, of which those that are the same look the same."""
    if not isinstance(known, list):
        return True  # by their storage type
    wide = (str, Number, datetime)
    return len({next((kind for kind in wide if isinstance(each, kind)), type(each)) for each in known}) <= 1
