r"""People with several rows: the unit of privacy is all rows of one person, of whom at most k rows are kept.

**Neighbours.** A table is a set of units, and each unit has at most k rows after those beyond its first k were
dropped, which is a function of that unit's rows alone. Under zero-out a unit is added or removed with all its rows;
under replace-one it is replaced by another with at most k rows, maybe fewer or more than it had. Public are the
number of units U and the number n by which sums are divided, min(rows, k U); how many rows a unit has, and how many
were dropped, is not.

**A sum, or any point that is computed from the rows.** Let f be a function of the table that moves by at most s, in
some norm or seminorm, whenever one row is added, removed or (under replace-one) replaced. Neighbouring units with a
and b rows are joined by max(a, b) <= k such steps: replace rows one by one, and then add or remove those that one
of them has more. A removal moves f by no more than a replacement does. So a unit moves f by at most k s. That holds
for exact sums in the norms L1, L2 and MAX, for the spread of scores, and for certified minimisers, whose tolerance
is part of s: the declared sensitivity is multiplied by k, and every mechanism whose noise is made for a sensitivity
(Gaussian, Laplace, norm-Laplace, the exponential mechanism and noisy maximum over scores, AboveThreshold) costs
what it did.

**Gradients that are clipped together.** What the rows of a unit add to a gradient may be bounded as a whole: their
sum is multiplied by a factor, a function of that unit alone, such that it is at most C' long
(`dpdescent.exact.unit_sums`). A unit then moves the gradient by at most C', or 2C' when it is replaced, however many
rows either of them has, and nothing is multiplied by k. The gradients of k unrelated rows of length C add up to about
sqrt(k) C, and those of copies of one row to k C. C' is the geometric mean of the two, k^(3/4) C.

**A point that is drawn** by the exponential mechanism with a law of bounded range epsilon/k for one row has a
logarithm that changes within a range of epsilon for k of them, since ranges add up along the same path.

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

import math
from dataclasses import dataclass
from datetime import datetime
from numbers import Number
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import InvalidParameter, MissingValue, require_positive_integer
from ..exact import LARGEST_JOINT

__all__ = ["Units", "joint_clip"]


def joint_clip(clip: float, rows_per_unit: int) -> float:
    """Return k^(3/4) C, to which the sum of a unit's rows is clipped where single rows would be clipped to C."""
    return clip * math.pow(rows_per_unit, 0.75)


@dataclass(frozen=True, eq=False)
class Units:
    """Which unit each row belongs to.

    Parameters
    ----------
    owners : ndarray of int, shape (rows of the source,)
        The number of each row's unit, from 0 to ``count`` - 1, in ascending order, so that rows of a unit stand
        together. Unreleased data.
    count : int
        U, the public number of units.
    rows_per_unit : int
        k; no unit has more rows.
    """

    owners: NDArray[np.intp]
    count: int
    rows_per_unit: int

    @property
    def together(self) -> bool:
        """Whether units have several rows, and not too many to keep their inner products in memory."""
        return 1 < self.rows_per_unit <= LARGEST_JOINT

    def __post_init__(self) -> None:
        require_positive_integer("the number of units", self.count)
        require_positive_integer("rows_per_unit", self.rows_per_unit)
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
            The identifiers are not one per row or of several kinds, or k is not between 1 and the number of rows.
        MissingValue
            An identifier is missing.
        """
        if isinstance(identifiers, pd.DataFrame) or _length(identifiers) != rows:
            raise InvalidParameter(f"unit must be one identifier per row, {rows} of them in one dimension")
        limit = require_positive_integer("rows_per_unit", rows_per_unit)
        if limit > rows:
            raise InvalidParameter(
                f"rows_per_unit is {limit}, and the table has {rows} rows: lower it to what a unit typically has, "
                "since noise grows with it"
            )
        try:
            codes, known = pd.factorize(pd.Series(identifiers).reset_index(drop=True))
        except TypeError:
            raise InvalidParameter("unit has cells that are no identifiers: give texts, numbers or dates") from None
        if (codes < 0).any():
            raise MissingValue("unit has a missing cell: drop those rows, or give each an identifier of its own")
        if len(_kinds(np.asarray(known))) > 1:  # a file that is read in parts has texts and numbers for one person
            raise InvalidParameter(
                "unit mixes identifiers of several kinds, such as texts and numbers, of which two may stand for one "
                "person: convert all of them to text"
            )
        mask = pd.Series(codes).groupby(codes).cumcount().to_numpy() < limit
        kept = np.flatnonzero(mask)
        kept = kept[np.argsort(codes[kept], kind="stable")]
        return kept, cls(codes[kept], len(known), limit)

    def public_rows(self, rows: int) -> int:
        """Return a public number that is at least that of the rows which are kept, of ``rows`` public ones."""
        return min(rows, self.rows_per_unit * self.count)

    def of_rows(self, chosen: NDArray[np.bool_]) -> NDArray[np.bool_]:
        """Return which rows belong to the chosen units."""
        return chosen[self.owners]


def _length(identifiers: Any) -> int | None:
    """Return how many there are in one dimension; None if they have more dimensions or none."""
    try:
        return len(identifiers) if np.ndim(identifiers) == 1 else None
    except ValueError:  # lists of different lengths
        return None


def _kinds(known: NDArray[Any]) -> set[type]:
    """Return the kinds of identifiers: those of one kind are the same if they look the same."""
    if known.dtype != np.object_:
        return {known.dtype.type}
    wide = (str, Number, datetime)
    return {next((kind for kind in wide if isinstance(each, kind)), type(each)) for each in known}
