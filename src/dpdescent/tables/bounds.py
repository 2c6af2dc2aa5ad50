r"""Private bounds: two histograms of each column, charged to the budget, tell where its cells lie.

*First*, on a ladder of powers of two with both signs, which has a rung for every float of at least 2^-1056. *Then*,
on 64 equal bins between the ends that were found, so that a column far from zero (a year, say) keeps its resolution.
Each release counts every cell once: a row adds one count per column, so the L2 sensitivity is :math:`\sqrt c` for c
columns, and :math:`\sqrt{2c}` where a row is replaced. Each is charged before anything is counted.

A level holds cells for sure if it, or it and its neighbours, exceed five standard deviations of noise and half a
percent of the rows. Beyond the outermost of them, counts that are added up from outside need only two, and half a
deviation more for every level in between. A column has as many cells as the table has rows. So where only one level
is sure and lacks some of them, as in a column of many zeros, four deviations tell where these are. Where no level is
sure, the cells are on the neighbouring levels that hold more than noise explains, the more the farther these are from
1 on the ladder, and from a given end. An end that is too wide by a factor of two costs little and one that is too
narrow cuts cells off, so where noise could hide more than a percent of the rows the end is moved out by that factor.
With few rows, where noise could hide more than six percent, a range twice as wide would cost more than the cells that
are cut off. With so few that noise would hide the bins too, the ladder is measured once more in their place.

The bins are for columns on one or two rungs, and move an end only within the outermost one. A column that is 0 in
most rows may have its other cells spread over so many bins that noise hides each of them, while on the ladder they
were seen.

Cells outside the measured ends are clipped, like those outside given bounds.

*Given bounds* are outer limits. Those that are too wide cost much accuracy, so a first histogram for 2% of the budget
looks for columns that need half of them or less, wherever its noise leaves a count some meaning. Only if it finds
one, the ladder is measured again with the share that columns without bounds would get (unless 2% is that share), then
the bins. All other columns keep the bounds that were given.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats
from ..curator import cached_blocks

BINS = 64
_LEAST_SHARE, _LARGEST_SHARE = 0.02, 0.1  # of the budget, for each of the two histograms
_FOR_A_MEAN, _SHARE_FOR_A_MEAN = 45.0, 0.25  # the same for a target, with fewer effective rows than that
_DISTINCT = 40.0  # rows over the standard deviation of a count: then cells on eight rungs all exceed five of them
_FINE, _COARSE = (-32, 64), 32  # powers of two one by one in this range, and every 32nd beyond it
_EXPONENTS = np.array(
    [*range(-1056, _FINE[0], _COARSE), *range(*_FINE), *range(_FINE[1], 1024, _COARSE)], dtype=np.float64
)
_LEAST_EXPONENT = -1074  # as numpy.frexp counts: it is one more than that of the power of two below a number
_RUNG_OF = np.searchsorted(_EXPONENTS, np.arange(_LEAST_EXPONENT, 1025) - 1.0, side="right").astype(np.float64)
#: Largest rung: cells have rungs from minus this to this, and 0 is the rung of zero.
RUNGS = _EXPONENTS.size
_RARE = 0.005  # share of the rows beyond an end
_SURE, _LIKELY = 5.0, 2.0  # standard deviations: for a level anywhere, and for one next to those that are sure
_PER_LEVEL = 0.5  # further deviations for every level in between
_LACKING = 3.0  # deviations: for cells that the only sure level lacks
_EVIDENT, _GUESSED = 4.0, 3.0  # deviations: for where they are then, and where all cells are if no level is sure
_ALARM = 0.05  # chance of a ladder of noise alone to be taken for cells, shared by its rungs
_WINDOWS = (1, 2, 4)  # widths of neighbouring levels that are tested together
_TAIL = 6  # levels beyond the sure ones that are tested once more
_WORTHWHILE = 4  # a column is made narrower by the bins by at least this factor, or left alone
_NARROWER = 2  # the same for bounds that were given, by the ladder and by the bins
_LEGIBLE = 0.12  # noise of a first count as a share of the rows, with which most cells of a column can still be seen
_HIDDEN, _MUCH_HIDDEN = 0.01, 0.06  # share of the rows that noise may hide
HIDING = 0.1  # noise of a count as a share of the rows, above which it would hide equal bins


def share_of_bounds(effective_rows: float, columns: int) -> float:
    """Return the share of the budget that each histogram gets: more where there are few rows and many columns."""
    return min(max(columns * (_DISTINCT / effective_rows) ** 2, _LEAST_SHARE), _LARGEST_SHARE)


def share_of_target(effective_rows: float) -> float:
    """Return the share of the budget that each histogram of a target gets.

    With fewer than 45 effective rows nothing is learnt but a mean, and its noise is that of the bounds.
    """
    return _SHARE_FOR_A_MEAN if effective_rows < _FOR_A_MEAN else share_of_bounds(effective_rows, 1)


def first_share(effective_rows: float, columns: int) -> float | None:
    """Return the share of a first histogram of given bounds, None where it would be as large as that of any."""
    return _LEAST_SHARE if share_of_bounds(effective_rows, columns) > _LEAST_SHARE else None


def tightening_pays(effective_rows: float, columns: int) -> bool:
    """Return whether given bounds are worth a measurement: from 59 sqrt(c) effective rows for c columns."""
    return columns > 0 and math.sqrt(columns / _LEAST_SHARE) <= _LEGIBLE * effective_rows


def tightening_of_target_pays(effective_rows: float) -> bool:
    """Return whether given bounds of a target are worth their price, from 6 effective rows on.

    With these, cells that lie on one rung are three standard deviations of the noise of a count.
    """
    return _GUESSED * math.sqrt(1 / share_of_target(effective_rows)) <= effective_rows


def rungs(cells: Any) -> Any:
    """Return the rung of every cell: the number of its power of two, signed, and 0 for zero. Sparse stays sparse."""
    return cells.mapped(rungs) if hasattr(cells, "mapped") else _elementwise(cells, _rung)


def _rung(cells: Floats) -> Floats:
    rung: Floats = np.take(_RUNG_OF_LEADING_BITS, np.ascontiguousarray(cells).view(np.int64) >> 52, mode="wrap")
    unusual = np.isnan(rung)
    if unusual.any():
        rung[unusual] = _rung_by_exponent(cells[unusual])
    return rung


def _rung_by_exponent(cells: Floats) -> Floats:
    rung: Floats = np.copysign(np.take(_RUNG_OF, np.frexp(cells)[1] - _LEAST_EXPONENT, mode="clip"), cells)
    rung[cells == 0] = 0.0
    return rung


def _by_leading_bits() -> Floats:
    """Return the rung of a number by its first twelve bits, sign and exponent; NaN where these do not tell it."""
    leading = np.arange(2**12, dtype=np.uint64)
    usual = (leading % 2**11 > 0) & (leading % 2**11 < 2**11 - 1)
    with np.errstate(invalid="ignore"):
        return np.where(usual, _rung_by_exponent((leading << np.uint64(52)).view(np.float64)), np.nan)


_RUNG_OF_LEADING_BITS = _by_leading_bits()


def bins(cells: Any, low: Floats, high: Floats) -> Any:
    """Return the number of each cell's bin between the ends of its column, counted from that of zero."""
    if hasattr(cells, "mapped"):  # a table that is read block by block
        return cells.mapped(partial(bins, low=low, high=high))

    def placed(values: Floats, columns: Any) -> Floats:
        number = np.clip(values, low[columns], high[columns])
        number -= low[columns]
        number /= high[columns] - low[columns]
        number *= BINS
        np.floor(number, out=number)
        bounded: Floats = np.minimum(number, BINS - 1, out=number)
        return bounded

    every = np.arange(low.size)
    zero = placed(np.zeros(low.size), every)
    if not sparse.issparse(cells):
        return _in_parts(lambda values: placed(values, every) - zero, cells)
    counted = sparse.csr_array(cells, dtype=np.float64, copy=True)
    counted.data = placed(counted.data, counted.indices) - zero[counted.indices]
    counted.eliminate_zeros()
    return counted


def _elementwise(cells: Any, function: Callable[[Floats], Floats]) -> Any:
    if not sparse.issparse(cells):
        by_column = cells.flags.f_contiguous and not cells.flags.c_contiguous
        return _in_parts(function, cells.T).T if by_column else _in_parts(function, cells)
    mapped = sparse.csr_array(cells, dtype=np.float64, copy=True)
    mapped.data = function(mapped.data)
    mapped.eliminate_zeros()
    return mapped


def _in_parts(function: Callable[[Floats], Floats], cells: Any) -> Floats:
    """Return a function of each dense cell, computed on parts of the table that stay in cache."""
    mapped = np.empty(cells.shape)
    for rows in cached_blocks(cells.shape[0], math.prod(cells.shape[1:])):
        mapped[rows] = function(np.asarray(cells[rows], dtype=np.float64))
    return mapped


def column_ends(
    counts: Floats, noise: float, rows: int, rare: float = _RARE, near: float = 1.0
) -> tuple[int, int] | None:
    """Return the first and the last level of a column that hold more than noise and rare cells, or None.

    ``counts`` are noisy, ``noise`` is their standard deviation, and ``rare`` the share of the rows that may lie
    beyond an end. Where no level is sure, one thinks first of cells as large as ``near``, beside 1.
    """
    seen = np.zeros(counts.size, dtype=np.bool_)
    for width in _WINDOWS:
        sums = np.convolve(np.where(seen, 0.0, counts), np.ones(width), "valid")
        for start in np.flatnonzero(sums > max(_SURE * noise * math.sqrt(width), rare * rows)):
            seen[start : start + width] |= counts[start : start + width] > _LIKELY * noise
    if seen.sum() <= 1:
        seen |= _others(counts, noise, rows, seen, rare) if seen.any() else _guessed(counts, noise, rows, near)
    if not seen.any():
        return None
    first, last = int(seen.argmax()), counts.size - 1 - int(seen[::-1].argmax())
    first -= _further(counts[max(first - _TAIL, 0) : first][::-1], noise, rows, rare)
    last += _further(counts[last + 1 : last + 1 + _TAIL], noise, rows, rare)
    return first, last


def _others(counts: Floats, noise: float, rows: int, seen: NDArray[np.bool_], rare: float) -> NDArray[np.bool_]:
    """Return where the cells are that are not on the only level which is sure, say that of zero.

    If many cells are elsewhere for sure, less evidence is enough to say where.
    """
    elsewhere, found = np.where(seen, 0.0, counts), np.zeros(counts.size, dtype=np.bool_)
    lacking = rows - float(counts[seen].sum())
    if lacking > _LACKING * noise:
        sums = [np.convolve(elsewhere, np.ones(width), "valid") for width in _WINDOWS]
        deviations = [each.max() / (noise * math.sqrt(width)) for each, width in zip(sums, _WINDOWS, strict=True)]
        best = int(np.argmax(deviations))
        start = int(sums[best].argmax())
        if deviations[best] > _EVIDENT and sums[best][start] > max(lacking / 3, rare * rows):
            window = slice(start, start + _WINDOWS[best])
            found[window] = elsewhere[window] > _LIKELY * noise
    return found


def _guessed(counts: Floats, noise: float, rows: int, near: float) -> NDArray[np.bool_]:
    """Return where the cells most likely are if no level is sure: on neighbouring levels, or on both sides of zero.

    On the ladder, rungs far from ``near`` are less likely a priori, a rung k away by 1/((k + 1)(k + 2)) as in a
    universal code of integers, so that more evidence is asked of them: noise on one of hundreds of rungs would
    otherwise be taken for numbers of any size.
    """
    found, zero = np.zeros(counts.size, dtype=np.bool_), counts.size // 2
    ladder = counts.size == 2 * RUNGS + 1
    best, chosen = 0.0, slice(0, 0)
    for width in _WINDOWS:
        for both in (False, True) if ladder else (False,):
            sums = np.convolve(counts + counts[::-1] if both else counts, np.ones(width), "valid")
            levels = 2 * width if both else width
            deviations = sums / (noise * math.sqrt(levels))
            needed = np.full(sums.size, _GUESSED)
            if ladder:
                first = np.arange(sums.size)
                outer = np.where(first + width - 1 > zero, first + width - 1, 2 * zero - first)
                away = np.min([np.abs(outer - zero - rung) for rung in _rung(np.array([near, 1.0]))], axis=0)
                needed = np.sqrt(2 * np.log((away + 1) * (away + 2) / _ALARM))
                if both:
                    needed[first <= zero] = np.inf
            likely = np.where((deviations > needed) & (sums > rows / 3), deviations - needed, 0.0)
            start = int(likely.argmax())
            if likely[start] > best:
                best, chosen = float(likely[start]), slice(start, start + width)
                found[:] = False
                found[chosen] = True if both else counts[chosen] > _LIKELY * noise
                found[chosen] |= not found[chosen].any()
                if both:
                    found |= found[::-1]
    return found


def _further(beyond: Floats, noise: float, rows: int, rare: float) -> int:
    """Return how many levels beyond an end still hold more than rare cells, by counts added up from outside.

    The farther out a level is, the more would be lost by noise that is taken for cells, so the more is asked of it.
    """
    tails = np.cumsum(beyond[::-1])
    added = np.arange(1, beyond.size + 1)
    deviations = _LIKELY + _PER_LEVEL * (beyond.size - added)
    least = np.maximum(rare * rows, deviations * noise * np.sqrt(added))
    return beyond.size - int((tails > least).argmax()) if (tails > least).any() else 0


@dataclass(frozen=True, eq=False)
class Ends:
    """The ends of columns, and how far inside them cells were seen."""

    low: Floats
    high: Floats
    #: (columns,): cells were seen between low and first, and between last and high: the outermost rungs of the
    #: ladder.
    first: Floats
    last: Floats

    def within(self, low: Floats, high: Floats) -> Ends:
        """Return the part of these ends that lies within others, or the others where there is none."""
        inner_low, inner_high = np.maximum(self.low, low), np.minimum(self.high, high)
        inside = inner_low < inner_high
        return Ends(
            np.where(inside, inner_low, low),
            np.where(inside, inner_high, high),
            np.where(inside, np.maximum(self.first, inner_low), high),
            np.where(inside, np.minimum(self.last, inner_high), low),
        )


def rung_ends(counts: Floats, noise: float, rows: int) -> Ends:
    """Return the ends of every column from its counts on the ladder, shape (columns, 2 RUNGS + 1).

    A column of which nothing is seen gets the ends that all columns have together, and 0 between them, or (-1, 1).
    """
    together = column_ends(counts.sum(axis=0), noise * math.sqrt(counts.shape[0]), rows * counts.shape[0])
    wider = _HIDDEN * rows < _LIKELY * noise < _MUCH_HIDDEN * rows
    low, high = (-1.0, 1.0) if together is None else _interval(*together, wider)
    unseen = min(low, 0.0), max(high, 0.0)
    found = [_with_other_sign(column, noise, rows, column_ends(column, noise, rows)) for column in counts]
    ends = [
        (*unseen, *unseen[::-1]) if each is None else (*_interval(*each, wider), *_inner_edges(*each))
        for each in found
    ]
    return Ends(*np.array(ends, dtype=np.float64).T)


def _with_other_sign(counts: Floats, noise: float, rows: int, ends: tuple[int, int] | None) -> tuple[int, int] | None:
    """Return the outermost rungs of a column, and those of the other sign where cells are likely to be there.

    Where noise is large, windows of rungs are seen on one side of zero only, although a column has both signs. The
    number of rows being public, cells may be seen to be lacking, and the same rungs of the other sign are where they
    are expected: two deviations are enough for each of the two.
    """
    zero = counts.size // 2
    if ends is None or ends[0] <= zero <= ends[1]:
        return ends
    first, last = ends
    spread = noise * math.sqrt(last + 1 - first)
    other = float(counts[2 * zero - last : 2 * zero - first + 1].sum())
    lacking = rows - float(counts[first : last + 1].sum())
    if lacking > _LIKELY * spread and other > max(_RARE * rows, _LIKELY * spread):
        return min(first, 2 * zero - last), max(last, 2 * zero - first)
    return ends


def _interval(first: int, last: int, wider: bool) -> tuple[float, float]:
    """Return the numbers on rungs from first to last; ``wider`` makes it twice as wide on the outside."""
    low, high = first - RUNGS, last - RUNGS
    ends = (edge(low, outer=low < 0), edge(high, outer=high > 0))
    if ends == (0.0, 0.0):  # zeros alone
        return 0.0, 1.0
    stretch = 2.0 if wider else 1.0
    return min(ends[0] * stretch, ends[0]), max(ends[1] * stretch, ends[1])


def _inner_edges(first: int, last: int) -> tuple[float, float]:
    """Return where the first rung ends and where the last one begins."""
    low, high = first - RUNGS, last - RUNGS
    return edge(low, outer=low > 0), edge(high, outer=high < 0)


def edge(rung: int, outer: bool) -> float:
    """Return the edge of a rung that is farther from zero, or the nearer one."""
    if rung == 0:
        return 0.0
    place = abs(rung) if outer else abs(rung) - 1
    exponent = _EXPONENTS[place] if place < RUNGS else 1024.0
    if exponent < -300:  # as good as zero, and no number to divide by
        return 0.0
    return math.copysign(math.ldexp(1.0, int(min(exponent, 1000.0))), rung)


def linear_ends(
    counts: Floats, noise: float, rows: int, ends: Ends, factor: float = _WORTHWHILE
) -> tuple[Floats, Floats]:
    """Return narrower ends of every column from its counts in `BINS` equal bins, shape (columns, BINS).

    Noise may hide long tails in so many bins, so ends are moved only where the column gets much narrower, only
    within what was seen outermost, and where the bins that are cut off do not hold more than rare cells together,
    however few each of them holds: by their own counts, and by the rows that the other bins lack. A column on more
    than two rungs has long tails, and is left alone.
    """
    width = (ends.high - ends.low) / BINS
    found = [column_ends(column, noise, rows) or (0, BINS - 1) for column in counts]
    room = 1 if _LIKELY * noise > _HIDDEN * rows else 0
    first, last = np.array(found, dtype=np.float64).T
    first, last = np.maximum(first - room, 0), np.minimum(last + 1 + room, BINS)
    places = np.arange(BINS)
    outside = (places < first[:, None]) | (places >= last[:, None])
    lost = np.where(outside, counts, 0.0).sum(axis=1)
    rare = lost <= np.maximum(_HIDDEN * rows, _LIKELY * noise * np.sqrt(outside.sum(axis=1)))
    lacking = rows - np.where(outside, 0.0, counts).sum(axis=1)
    rare &= lacking <= np.maximum(_HIDDEN * rows, _LIKELY * noise * np.sqrt((~outside).sum(axis=1)))
    low, high = ends.low + first * width, ends.low + last * width
    low, high = np.where(low < ends.first, low, ends.low), np.where(high > ends.last, high, ends.high)
    narrow = rare & _much_narrower(low, high, ends.low, ends.high, factor) & (ends.first >= ends.last)
    return np.where(narrow, low, ends.low), np.where(narrow, high, ends.high)


def measured_ends(ask: Callable[[Any, int], tuple[Floats, float]], cells: Any, rows: int) -> tuple[Floats, Floats]:
    """Return low and high of every column of ``cells``.

    ``ask`` maps the levels of all cells, and the largest level, to noisy counts and the deviation of their noise.
    """
    levels = rungs(cells)
    counts, noise = ask(levels, RUNGS)
    if noise <= HIDING * rows:
        return narrower_bins(ask, cells, rows, rung_ends(counts, noise, rows))
    again, _ = ask(levels, RUNGS)
    ends = rung_ends((counts + again) / 2, noise / math.sqrt(2), rows)
    return ends.low, ends.high


def tightened_ends(
    ask: Callable[[Any, int], tuple[Floats, float]],
    cells: Any,
    rows: int,
    low: Floats,
    high: Floats,
    ask_first: Callable[[Any, int], tuple[Floats, float]] | None = None,
) -> tuple[Floats, Floats]:
    """Return ends within ``low`` and ``high``, narrower where cells need less, and as they were elsewhere.

    The other arguments are those of `measured_ends`; ``ask_first`` is a cheaper ``ask``.
    """
    levels = rungs(cells)
    counts, noise = (ask_first or ask)(levels, RUNGS)
    found = _seen_within(counts, noise, rows, low, high)
    if ask_first is not None and _much_narrower(found.low, found.high, low, high, _NARROWER).any():
        again, less = ask(levels, RUNGS)
        weight = noise**2 / (noise**2 + less**2)
        counts, noise = (1 - weight) * counts + weight * again, noise * less / math.hypot(noise, less)
        found = _seen_within(counts, noise, rows, low, high)
    inner_low, inner_high = found.low, found.high
    if _much_narrower(inner_low, inner_high, low, high, _NARROWER).any() and noise <= HIDING * rows:
        inner_low, inner_high = narrower_bins(ask, cells, rows, found, _NARROWER)
    narrow = _much_narrower(inner_low, inner_high, low, high, _NARROWER)
    return np.where(narrow, inner_low, low), np.where(narrow, inner_high, high)


def _seen_within(counts: Floats, noise: float, rows: int, low: Floats, high: Floats) -> Ends:
    """Return the ends of every column on the ladder within given ones, which stay where nothing is seen."""
    found = rung_ends(counts, noise, rows).within(low, high)
    seen = np.array([column_ends(column, noise, rows) is not None for column in counts])
    pairs = ((found.low, low), (found.high, high), (found.first, high), (found.last, low))
    return Ends(*(np.where(seen, own, given) for own, given in pairs))


def _much_narrower(
    inner_low: Floats, inner_high: Floats, low: Floats, high: Floats, factor: float = _WORTHWHILE
) -> NDArray[np.bool_]:
    narrow: NDArray[np.bool_] = factor * (inner_high - inner_low) <= high - low
    return narrow


def narrower_bins(
    ask: Callable[[Any, int], tuple[Floats, float]], cells: Any, rows: int, ends: Ends, factor: float = _WORTHWHILE
) -> tuple[Floats, Floats]:
    """Return narrower ends from a histogram of equal bins between those that were found."""
    low, high = ends.low, ends.high
    numbered = bins(cells, low, high)
    counts, noise = ask(numbered, BINS)
    zero = (np.clip(0.0, low, high) - low) / (high - low)
    lowest = BINS - np.minimum(np.floor(zero * BINS), BINS - 1).astype(np.int64)  # where the lowest bin is counted
    counts = np.take_along_axis(counts, lowest[:, None] + np.arange(BINS), axis=1)
    return linear_ends(counts, noise, rows, ends, factor)
