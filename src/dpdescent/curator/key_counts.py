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

*Tables in parts* are read twice for values that occur, so that memory holds those of one part, and of all parts the
frequent ones. A value that occurs c times in the table counts :math:`\max(0, c - t)`, with the public :math:`t =
\lfloor n / 4096 \rfloor` for n rows. First the values are counted by a hash: those that share theirs with t others or
fewer, themselves included, count 0 and need not be kept. The counts are a function of the rows as a whole, so that a
row which is missing moves one of them by at most 1, although all rows after it move up and some into other parts; and
a value that one row alone holds has a count of at most 1. So nothing above changes, but .025% of the rows, at most,
are not counted of each value.
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

_SPARED = 2**12  # one row in so many is not counted of each value of a table in parts
_HASHES = 2**18  # by which values are told that are not frequent

#: Returns the bin of each cell of a column of a part, -1 where it has none.
Bins = Callable[[Any], NDArray[np.intp]]
#: Returns the position of each cell of a column of a part among values that occur, -1 where it is not counted, and
#: the values.
Levels = Callable[[Any], tuple[NDArray[np.intp], Sequence[Any]]]
#: Returns what columns are functions of, one part after the other; nothing is read before it is asked for.
Parts = Callable[[], Iterable[Any]]


def _one_part() -> Iterable[Any]:
    return (None,)


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
    parts: Parts = _one_part,
) -> Floats:
    """Return noisy counts of public bins, of the shape (columns, bins).

    Each of the ``columns`` returns the bin of every row's cell in a part of the table, and ``parts`` what they are
    functions of, part after part. The ledger is charged before a column is called; the noise is in units of the
    sensitivity. ``units`` says which rows belong together, in a table of one part.
    """
    part = Noised(gaussian, _STEP, histogram_sensitivity(len(columns)), of_unit=True)

    def count() -> Integers:
        total = np.zeros((len(columns), bins), dtype=np.int64)
        for each in parts():
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
    parts: Parts = _one_part,
    *,
    rows: int | None = None,
) -> list[dict[Any, float]]:
    """Return the values of each column whose noisy count reaches the threshold, in ascending order, with that count.

    The parameters are those of `buy_bins`; each column returns the values that occur, as well. The public number of
    ``rows`` is given for a table in many parts, to bound the memory that their values need, as the module says.
    """
    threshold = Threshold(len(columns), 1 if units is None else units.rows_per_unit)
    part = Noised(cost, _STEP, histogram_sensitivity(len(columns)), of_unit=True, threshold=threshold)
    paid = pay((ledger,), cost, label, (part,), noise)
    with np.errstate(all="ignore"):  # a warning would speak of rows
        counted = _counted(columns, units, parts, 0 if rows is None else rows // _SPARED)
    keys = [(place, value) for place, counts in enumerate(counted) for value in sorted(counts)]
    counts = np.array([counted[place][value] for place, value in keys], dtype=np.int64)
    found: list[dict[Any, float]] = [{} for _ in columns]
    for (place, value), count in paid.publish(part, keys, counts).items():
        found[place][value] = count
    return found


def _counted(columns: Sequence[Levels], units: Units | None, parts: Parts, spared: int) -> list[dict[Any, int]]:
    """Return how often each value of each column occurs beyond ``spared`` times in all parts, in steps of 2^-16."""
    counted: list[dict[Any, int]] = [{} for _ in columns]
    least = spared << _BITS
    frequent = _frequent(columns, units, parts, least) if spared else None
    for part in parts():
        for number, column in enumerate(columns):
            codes, values = column(part)
            here, counts = _histogram(codes, len(values), units), counted[number]
            kept = here > 0 if frequent is None else (here > 0) & frequent[number, _hashes(values)]
            for place in np.flatnonzero(kept).tolist():
                counts[values[place]] = counts.get(values[place], 0) + int(here[place])
    return [{value: count - least for value, count in counts.items() if count > least} for counts in counted]


def _frequent(columns: Sequence[Levels], units: Units | None, parts: Parts, least: int) -> NDArray[np.bool_]:
    """Return which hashes of each column have values that count more than so much together."""
    totals = np.zeros((len(columns), _HASHES), dtype=np.int64)
    for part in parts():
        for total, column in zip(totals, columns, strict=True):
            codes, values = column(part)
            np.add.at(total, _hashes(values), _histogram(codes, len(values), units))
    return totals > least


def _hashes(values: Sequence[Any]) -> NDArray[np.intp]:
    return np.array([hash(value) % _HASHES for value in values], dtype=np.intp)


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
