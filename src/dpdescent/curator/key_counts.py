r"""Noisy counts of what the cells of columns are: of public bins, and of the values that occur.

A row, or a unit of up to k rows, has a histogram in each of C columns. Where a unit may have several rows, its
histogram of a column is scaled to a Euclidean norm of at most 1; a unit of one row has it already. The histograms of
all units are added up.

**Privacy** *Sensitivity.* A unit that is added or removed moves the sums of each column by a vector of norm at most
1, all columns together by :math:`\sqrt C`. Replacing a unit moves a column by the difference of two such vectors.
Their entries are not negative, so neither is their inner product, and the difference has a norm of at most
:math:`\sqrt 2`: together :math:`\sqrt{2C}`. No factor k appears. Scaled counts are rounded down to a lattice of
2^-16, which only shortens them.

*Bins* that are public, such as the types of cells, are released with Gaussian noise (`buy_bins`). *Values that occur*
are not public. Those whose noisy count reaches a threshold are published (`buy_levels`), in the order of the columns
and of the values, and nothing else leaves: not the number of other values, nor their noise
(`dpdescent.accounting.thresholds` derives the threshold, `dpdescent.accounting.currencies` why failures add up). The
charge comes before a cell is read: columns are functions that are called after it.

*Tables in parts* are counted one part after the other, so that memory holds the values of one part, and of all parts
those that are frequent in one: a part of r rows counts :math:`\max(0, c - t)` for a value that occurs c times in it,
with the public :math:`t = \lfloor r / 4096 \rfloor`. A row still moves one count of its column by at most 1, and a
value that one row alone holds has a count of at most 1, so nothing above changes. Fewer than 4,096 values of a part
are kept, and less than .025% of the rows are not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian, Threshold, ThresholdedGaussian
from ..arrays import Floats, Integers
from ..ledger import Ledger
from ..queries.query import Noised
from ..relations import Norm, Sensitivity
from .lattice_noise import LatticeNoise
from .release import pay, release
from .units import Units

_BITS = 16
_STEP = 2.0**-_BITS

_SPARED = 2**12  # rows of a part, for each of which one of every value is not counted

#: Returns the bin of each cell of a column of a part, -1 where it has none.
Bins = Callable[[Any], NDArray[np.intp]]
#: Returns the position of each cell of a column of a part among values that occur, -1 where it is not counted, and
#: the values.
Levels = Callable[[Any], tuple[NDArray[np.intp], Sequence[Any]]]


def histogram_sensitivity(columns: int) -> Sensitivity:
    """Return how far a unit moves the histograms of so many columns: sqrt(C), and sqrt(2C) where it is replaced."""
    room = 1 + 2.0**-50
    return Sensitivity(Norm.L2, math.sqrt(columns) * room, math.sqrt(2 * columns) * room)


def buy_bins(
    ledger: Ledger,
    gaussian: Gaussian,
    columns: Sequence[Bins],
    bins: int,
    label: str,
    noise: LatticeNoise,
    units: Units | None = None,
    parts: Iterable[Any] = (None,),
) -> Floats:
    """Return noisy counts of public bins, of the shape (columns, bins).

    Parameters
    ----------
    ledger : Ledger
        Charged before a column is called.
    gaussian : Gaussian
        The noise, in units of the sensitivity.
    columns : sequence of callables
        Each returns the bin of every row's cell in a part of the table.
    bins : int
        The public number of bins of each column.
    label : str
        What the ledger calls it.
    noise : LatticeNoise
    units : Units, optional
        Which rows belong together, in a table of one part.
    parts : iterable
        What the columns are functions of, one after the other; nothing is read before it is asked for.
    """
    part = Noised(gaussian, _STEP, histogram_sensitivity(len(columns)), of_unit=True)

    def count() -> Integers:
        total = np.zeros((len(columns), bins), dtype=np.int64)
        for each in parts:
            for place, codes in enumerate(columns):
                total[place] += _histogram(codes(each), bins, units)
        return total

    counts: Floats = release(ledger, part, label, count, noise)
    return counts


def buy_levels(
    ledger: Ledger,
    cost: ThresholdedGaussian,
    columns: Sequence[Levels],
    label: str,
    noise: LatticeNoise,
    units: Units | None = None,
    parts: Iterable[Any] = (None,),
    *,
    sparing: bool = False,
) -> list[dict[Any, float]]:
    """Return the values of each column whose noisy count reaches the threshold, in ascending order, with that count.

    The parameters are those of `buy_bins`; each column returns the values that occur, as well. ``sparing`` bounds the
    memory that the values of a table in many parts need, as the module says.
    """
    threshold = Threshold(len(columns), 1 if units is None else units.rows_per_unit)
    part = Noised(cost, _STEP, histogram_sensitivity(len(columns)), of_unit=True, threshold=threshold)
    paid = pay((ledger,), cost, label, (part,), noise)
    with np.errstate(all="ignore"):  # a warning would speak of rows
        counted = _counted(columns, units, parts, sparing)
    keys = [(place, value) for place, counts in enumerate(counted) for value in sorted(counts)]
    counts = np.array([counted[place][value] for place, value in keys], dtype=np.int64)
    found: list[dict[Any, float]] = [{} for _ in columns]
    for (place, value), count in paid.publish(part, keys, counts).items():
        found[place][value] = count
    return found


def _counted(
    columns: Sequence[Levels], units: Units | None, parts: Iterable[Any], sparing: bool
) -> list[dict[Any, int]]:
    """Return how often each value of each column occurs in all parts, in steps of 2^-16."""
    counted: list[dict[Any, int]] = [{} for _ in columns]
    for part in parts:
        for column, counts in zip(columns, counted, strict=True):
            codes, values = column(part)
            spared = len(codes) // _SPARED << _BITS if sparing else 0
            here = _histogram(codes, len(values), units) - spared
            for place in np.flatnonzero(here > 0).tolist():
                counts[values[place]] = counts.get(values[place], 0) + int(here[place])
    return counted


def _histogram(codes: NDArray[np.intp], size: int, units: Units | None) -> Integers:
    """Return the sum of the units' histograms of a column, each of norm at most 1, in steps of 2^-16."""
    if units is None or units.rows_per_unit == 1:
        counted = np.bincount(codes[codes >= 0], minlength=size).astype(np.int64)
        return counted << _BITS
    kept = np.flatnonzero(codes >= 0)
    pairs, counts = np.unique(units.owners[kept] * max(size, 1) + codes[kept], return_counts=True)
    owners, bins = np.divmod(pairs, max(size, 1))
    squares = np.bincount(owners, weights=counts.astype(np.float64) ** 2, minlength=units.count)
    scaled = np.floor(counts / np.sqrt(np.maximum(squares[owners], 1.0)) * 2.0**_BITS * (1 - 2.0**-40))
    total = np.zeros(size, dtype=np.int64)
    np.add.at(total, bins, scaled.astype(np.int64))
    return total
