"""What one row may change: the neighbouring relation and the sensitivity that belongs to it.

The unit of privacy is one row, or all rows of one person: what is said here of a row then holds for these rows
together, as `dpdescent.curator.units` derives. Two relations are offered:

``zero-out``
    The row is added or removed; a removed row adds nothing to any sum and the number of rows n is public.
``replace-one``
    The row is replaced by any other row.

**Places.** A table has n places, and n is public. Under zero-out a row that is removed leaves a place empty; which
one that is, and whether the rows after it move up, is not part of the relation, because a file from which a row is
missing shows no gap. So whatever depends on the *order* of the rows must hold for either reading:

- Sums do: an empty place adds nothing, wherever it is.
- *Parts that are drawn at random* do. Let places be dealt to parts by a permutation that is drawn independently of
  the rows and is not released. Say that a row is removed and the others are moved to any places. Dealing is
  exchangeable: relabelling the places leaves its law as it is, so there is a coupling under which every other row is
  in the same part as before, and the removed row leaves an empty place in its own. Given the coupling the tables of
  all parts but one are the same. Mechanisms on different parts therefore cost the largest of their totals and not the
  sum, under both relations, and also if each is chosen by the answers of the others (`select`, hold-outs of
  evaluations). The sizes of parts are numbers of places, and public. The positions themselves are not: given them,
  rows that move up change parts.
- *Parts by position*, such as the first half of a file, hold under replace-one alone, where no row moves
  (`phased_minimiser` asks for that relation).

A sensitivity is a function of the relation, and of the norm in which it is measured, and travels with
the value it bounds (see `dpdescent.exact.LatticeSum`), so that no mechanism can be run with the wrong one.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum

from .errors import InvalidParameter, UnknownRelation, nearest, require_positive


class Relation(StrEnum):
    """Which tables are neighbours: a row is added or removed (zero-out), or replaced by another one (replace-one)."""

    ZERO_OUT = "zero-out"
    REPLACE_ONE = "replace-one"

    @classmethod
    def parse(cls, value: str) -> Relation:
        """Return the relation named by ``value``, or raise `UnknownRelation` listing the known ones."""
        try:
            return cls(value)
        except ValueError:
            known = ", ".join(repr(member.value) for member in cls)
            raise UnknownRelation(
                f"unknown relation {value!r:.90}{nearest(value, cls)}: choose one of {known}"
            ) from None

    def neighbours(self, unit: str, rows_per_unit: int | None = None) -> str:
        """Return in words which tables are neighbours, for statements and pages.

        ``unit`` is whose data is protected, such as "one row" or "one patient", and ``rows_per_unit`` how many rows
        of one are used at most, where a unit may have several (`dpdescent.curator.units`).
        """
        removed = self is Relation.ZERO_OUT
        differ = f"Two tables are compared that differ in {unit}"
        if rows_per_unit is None:
            which = "is in one and not in the other" if removed else "one of them has in place of another"
            return f"{differ}, which {which}."
        which = "one table has them and the other does not"
        if self is Relation.REPLACE_ONE:
            which = "the other table has those of another unit, fewer or more of them"
        return (
            f"{differ} and its rows, of which at most {rows_per_unit} are used: {which}. The number of units is "
            "public. How many rows a unit has, and how many there are in all, is not."
        )


class Norm(StrEnum):
    """How a difference between neighbours is measured.

    ``RANGE`` is the spread ``max_i D_i - min_i D_i`` of a vector of scores: what the exponential mechanism
    pays for. ``MAX`` bounds each coordinate by itself: what AboveThreshold pays for.
    """

    L1 = "l1"
    L2 = "l2"
    MAX = "max"
    RANGE = "range"


@dataclass(frozen=True)
class Sensitivity:
    """The largest change that one row can cause, in one norm, under each relation.

    Parameters
    ----------
    norm : Norm
        The norm in which both numbers are measured.
    zero_out, replace_one : float
        Positive bounds on the change. ``replace_one`` is never the smaller of the two.
    """

    norm: Norm
    zero_out: float
    replace_one: float

    def __post_init__(self) -> None:
        require_positive("sensitivity under zero-out", self.zero_out)
        require_positive("sensitivity under replace-one", self.replace_one)
        if self.replace_one < self.zero_out:
            raise InvalidParameter(
                f"replace-one sensitivity {self.replace_one} is below the zero-out one {self.zero_out}: "
                "replacing a row covers replacing it by one that contributes nothing"
            )

    def under(self, relation: Relation) -> float:
        """Return the bound that holds for ``relation``."""
        return self.zero_out if Relation.parse(relation) is Relation.ZERO_OUT else self.replace_one

    def times(self, rows: int) -> Sensitivity:
        """Return the bound for so many rows that change together, by the triangle inequality; rounded up."""
        if rows == 1:
            return self
        room = 1 + 2.0**-50
        return Sensitivity(self.norm, rows * self.zero_out * room, rows * self.replace_one * room)

    @classmethod
    def of_clipped_sum(cls, clip: float) -> Sensitivity:
        """Sum of vectors of Euclidean norm at most ``clip``: C, and 2C when a row is replaced."""
        return cls(Norm.L2, clip, 2 * clip)

    @classmethod
    def of_positive_semidefinite_sum(cls, clip: float) -> Sensitivity:
        """Sum of PSD matrices of Frobenius norm at most ``clip``.

        Replacing A by B moves the sum by ``|A - B| <= sqrt(2) C``, not 2C, because ``<A, B> >= 0``.
        """
        return cls(Norm.L2, clip, math.nextafter(math.sqrt(2) * clip, math.inf) * (1 + 2**-50))

    @classmethod
    def of_scores(cls, ceiling: float) -> Sensitivity:
        """Vector of sums of values in ``[0, ceiling]``, measured by `Norm.RANGE`.

        Adding a row moves all scores the same way, each by at most C, so the spread is at most C;
        replacing one mixes the signs, so the spread is at most 2C.
        """
        return cls(Norm.RANGE, ceiling, 2 * ceiling)

    @classmethod
    def of_changes(cls, bound: float) -> Sensitivity:
        """Vector of sums of changes in ``[-bound, bound]``, measured by `Norm.RANGE`.

        One row may raise one score by D and lower another by D, so the spread is at most 2D; a replaced row moves
        each score by at most 2D, so 4D.
        """
        return cls(Norm.RANGE, 2 * bound, 4 * bound)

    @classmethod
    def of_bounded_sum(cls, ceiling: float, norm: Norm = Norm.MAX) -> Sensitivity:
        """One sum of values in ``[0, ceiling]``: C under both relations, in any norm of one number."""
        return cls(norm, ceiling, ceiling)

    @classmethod
    def of_signed_sum(cls, bound: float, norm: Norm = Norm.MAX) -> Sensitivity:
        """One sum of values in ``[-bound, bound]``: D, and 2D when a row is replaced, in any norm of one number."""
        return cls(norm, bound, 2 * bound)
