"""Exact scores of many step sizes at once: what a private line search compares.

Row i stands at ``p_i`` and moves with slope ``v_i``: at step ``a`` its loss is ``l(p_i - a v_i)``. For a linear
classifier ``p = y * (X @ w)`` and ``v = y * (X @ g)`` with labels y = 1 or -1, for least squares ``p = X @ w - y``
and ``v = X @ g``. Both are exact (`FeatureGrid.margins`), so the m scores of a row are functions of that row and
of public numbers, and one pass over the features serves all steps.

Every loss is rounded to an integer multiple of the unit, clipped as an integer, and added. Integers are at
most ``2^24`` in size, so those of a block of at most ``2^17`` rows add up to at most ``2^41``: float64 holds every
partial sum, and any order of additions gives the exact total (Lemma 1, `dpdescent.exact.machine`). Blocks are added
in int64.

Scores need few digits: the noise of the selection is far larger. So a loss may be looked up in a table of 2^16
cells instead of being computed (``interval``); the position in the table is found in float32.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from ..arrays import Floats, Integers
from ..errors import InvalidParameter
from ..relations import Sensitivity
from . import machine
from .clipped_sums import LARGEST_BLOCK, LatticeSum, require_real
from .loss_sums import BoundedSum, SignedSum

Loss = Callable[[Floats], Floats]

_CELLS = 2**16
_BLOCK_ROWS = 2**14  # the work arrays of a block stay in cache, and calls are few
_CELLS_AT_ONCE = 3 * 2**15  # looked up by one product with the table: their arrays stay in cache too
_LARGEST_POSITION = 2.0**200  # p, v and steps up to this: p - a v and its square are finite
_LARGEST_INDEX = 2.0**29  # of either term of an index: conversion to an integer cannot overflow
_GROUP_ROWS = 2**7  # integers of at most 2^24, which uint32 adds
_FIRST_CELL, _LAST_CELL = np.array(0, dtype=np.int32), np.array(_CELLS - 1, dtype=np.int32)
_WHOLE = 2.0**40  # losses are clipped to so many units before they become integers


class _Formula:
    """Integers ``rint(l / unit)`` of a loss, computed; a NaN loss counts as the largest."""

    dtype: np.dtype[Any] = np.dtype(np.float64)

    def __init__(self, loss: Loss, unit: float, lower: float, upper: float) -> None:
        self.loss, self.scale = loss, 1 / unit
        self.lower, self.upper = lower, upper

    def common_factor(self, steps: Floats) -> float:
        return 1.0

    def place(self, starts: Floats, slopes: Floats, factor: float) -> tuple[Any, Any]:
        limit = _LARGEST_POSITION
        return np.clip(starts, -limit, limit), np.clip(slopes, -limit, limit)

    def evaluate(self, positions: Any, out: Floats, cells: NDArray[np.int32]) -> None:
        values = self.loss(positions)
        if values.shape != positions.shape or values.dtype != np.float64:
            raise InvalidParameter(f"a loss must return one float64 per position, got {values.dtype} {values.shape}")
        np.multiply(values, self.scale, out=out)
        np.rint(out, out=out)
        np.fmin(out, self.upper, out=out)  # fmin, unlike minimum, turns NaN into the other operand
        np.maximum(out, self.lower, out=out)


class _Table:
    """The same integers at the middle of 2^16 cells of an interval; the end cells serve all points beyond."""

    dtype: np.dtype[Any] = np.dtype(np.float32)

    def __init__(self, formula: _Formula, interval: tuple[float, float]) -> None:
        self.low, high = interval
        self.cells_per_unit = _CELLS / (high - self.low)
        middles = self.low + (np.arange(_CELLS) + 0.5) / self.cells_per_unit
        self.integers = np.empty(_CELLS)
        formula.evaluate(middles, self.integers, np.empty(0, dtype=np.int32))

    @cached_property
    def short_integers(self) -> NDArray[np.uint32]:
        """The integers of losses in [0, C], and a cell beyond the last that adds nothing."""
        return np.append(self.integers, 0.0).astype(np.uint32)

    def common_factor(self, steps: Floats) -> float:
        # Slopes take up the largest step in float64; what is left of the steps lies in [-1, 1] and suits float32.
        return float(np.max(np.abs(steps))) or 1.0

    def place(self, starts: Floats, slopes: Floats, factor: float) -> tuple[Any, Any]:
        placed = np.empty((2, starts.size), dtype=np.float32)
        positions, moves = placed
        np.subtract(starts, self.low, out=positions, casting="same_kind")
        positions *= self.cells_per_unit
        np.multiply(slopes, factor * self.cells_per_unit, out=moves, casting="same_kind")
        placed.clip(-_LARGEST_INDEX, _LARGEST_INDEX, out=placed)
        return positions, moves

    @staticmethod
    def find(positions: Any, cells: NDArray[np.int32]) -> None:
        """Write the cell of each position; positions are finite and below 2^31 in size."""
        np.copyto(cells, positions, casting="unsafe")
        cells.clip(_FIRST_CELL, _LAST_CELL, out=cells)

    def evaluate(self, positions: Any, out: Floats, cells: NDArray[np.int32]) -> None:
        self.find(positions, cells)
        np.take(self.integers, cells, out=out, mode="clip")  # which clips by branches that are not predictable


def _table_totals(table: _Table, start: Any, slope: Any, relative_steps: Any) -> Integers:
    """Return the totals of one block, looked up and added in one pass: a 0/1 matrix times the table.

    Each row of the matrix stands for a group of 128 data rows at one step and has ones in their cells, so that uint32
    can hold its sum. The last group is filled up with cells that add nothing. Groups are added in int64. The memory
    of one matrix is used for all parts of the block, one after another.
    """
    count = len(relative_steps)
    groups = min(-(-start.size // _GROUP_ROWS), -(-_CELLS_AT_ONCE // (count * _GROUP_ROWS)))
    ones, ends = _groups(count * groups)
    lookup = sparse.csr_array((ones, np.zeros(ones.size, dtype=np.int32), ends), shape=(ends.size - 1, _CELLS + 1))
    cells = lookup.indices.reshape(count, -1)
    positions = np.empty(cells.shape, dtype=np.float32)
    total = np.zeros(count, dtype=np.int64)
    for rows in machine.row_blocks(start.size, groups * _GROUP_ROWS, LARGEST_BLOCK):
        size = rows.stop - rows.start
        moved = positions[:, :size]
        np.multiply(slope[rows], relative_steps, out=moved)
        np.subtract(start[rows], moved, out=moved)
        table.find(moved, cells[:, :size])
        cells[:, size:] = _CELLS
        total += (lookup @ table.short_integers).reshape(count, groups).sum(axis=1, dtype=np.int64)
    return total


@lru_cache(maxsize=4)
def _groups(count: int) -> tuple[NDArray[np.uint32], NDArray[np.int32]]:
    """Return the entries, and where its rows end, of a matrix of ``count`` groups."""
    ends = np.arange(0, count * _GROUP_ROWS + 1, _GROUP_ROWS, dtype=np.int32)
    return np.ones(count * _GROUP_ROWS, dtype=np.uint32), ends


@lru_cache(maxsize=32)
def _evaluator(
    loss: Loss, unit: float, lower: float, upper: float, interval: tuple[float, float] | None
) -> _Formula | _Table:
    formula = _Formula(loss, unit, lower, upper)
    if interval is None:
        return formula
    low, high = (float(end) for end in interval)
    if not (math.isfinite(low) and math.isfinite(high) and 2.0**-100 < high - low < 2.0**100):
        raise InvalidParameter(f"interval must be a pair of increasing finite numbers, got {interval!r}")
    return _Table(formula, (low, high))


def _totals(
    evaluator: _Formula | _Table,
    starts: ArrayLike,
    slopes: ArrayLike,
    steps: ArrayLike,
    block_rows: int | None,
    largest_difference: float | None,
) -> Integers:
    """Return, for each step, the sum of the integers of all rows, or of their clipped changes since step 0."""
    rows_at, rows_by, sizes = (
        require_real(name, given) for name, given in (("starts", starts), ("slopes", slopes), ("steps", steps))
    )
    if rows_at.ndim != 1 or rows_at.shape != rows_by.shape or sizes.ndim != 1 or not sizes.size:
        raise InvalidParameter(
            f"expected n starts, n slopes and m steps, got {rows_at.shape}, {rows_by.shape} and {sizes.shape}"
        )
    if not np.max(np.abs(sizes)) <= _LARGEST_POSITION:
        raise InvalidParameter("steps must be finite and below 2^200")
    factor = evaluator.common_factor(sizes)
    relative_steps = (sizes / factor).astype(evaluator.dtype)[:, np.newaxis]  # rows of one number each
    in_one_pass = isinstance(evaluator, _Table) and largest_difference is None and sizes.size < 2**14
    if block_rows is None:
        block_rows = 2**16 if in_one_pass else _BLOCK_ROWS
    total = np.zeros(sizes.size, dtype=np.int64)
    longest = min(block_rows, rows_at.size)
    work = np.empty(longest, dtype=evaluator.dtype)
    cell_work, integer_work, base_work = np.empty(longest, dtype=np.int32), np.empty(longest), np.empty(longest)
    for rows in machine.row_blocks(rows_at.size, block_rows, LARGEST_BLOCK):
        start, slope = _place(evaluator, rows_at[rows], rows_by[rows], factor)
        if in_one_pass and isinstance(evaluator, _Table):
            total += _table_totals(evaluator, start, slope, relative_steps)
            continue
        size = start.size
        position, cells = work[:size], cell_work[:size]
        integers, base = integer_work[:size], base_work[:size]
        if largest_difference is not None:
            np.copyto(position, start)
            evaluator.evaluate(position, base, cells)
        for candidate, relative in enumerate(relative_steps):
            np.multiply(slope, relative, out=position)
            np.subtract(start, position, out=position)
            evaluator.evaluate(position, integers, cells)
            if largest_difference is not None:
                np.subtract(integers, base, out=integers)
                np.clip(integers, -largest_difference, largest_difference, out=integers)
            total[candidate] += int(np.add.reduce(integers))
    return total


def _place(evaluator: _Formula | _Table, starts: Floats, slopes: Floats, factor: float) -> tuple[Any, Any]:
    """Return starts and slopes as finite numbers in the evaluator's terms; rows with a NaN stand still at 0."""
    with np.errstate(over="ignore"):  # infinities are clipped
        start, slope = evaluator.place(starts, slopes, factor)
        if math.isnan(np.dot(start, slope)):  # both are clipped, so only NaN gives NaN
            missing = np.isnan(start + slope)
            start, slope = evaluator.place(np.where(missing, 0.0, starts), np.where(missing, 0.0, slopes), factor)
    return start, slope


@dataclass(frozen=True)
class BoundedScores:
    """Total losses at m step sizes, each row's loss clipped to [0, C].

    Notes
    -----
    **Privacy.** Unit: one row. Row i adds to each score an integer in [0, C / unit] that depends on its own start
    and slope and on public numbers (steps, C, loss, interval). If the row is removed, all scores move in one
    direction, by at most C: the range of the change is at most C. If it is replaced, the range is at most 2C
    (`Sensitivity.of_scores`). A row whose start or slope is NaN stands still at 0; a NaN loss counts as the ceiling.
    Nothing can raise because of the values of a row, unless the loss does.

    Examples
    --------
    >>> import numpy as np
    >>> scores = BoundedScores(2.0, lambda p: np.maximum(1 - p, 0.0))
    >>> scores.total(np.array([0.0, 1.0]), np.array([-1.0, -1.0]), [0.0, 0.5, 1.0]).to_float()
    array([1. , 0.5, 0. ])
    """

    ceiling: float  # C, public; lowered to a multiple of the unit as in `BoundedSum`
    #: ``loss(positions)`` returns the loss at each position (float64, same shape; it may overwrite its argument). It
    #: must use each position by itself: `check_row_independence` is the test.
    loss: Loss
    #: Public ends of an interval. If given, the loss is looked up in a table of 2^16 cells on it, wrong by at most
    #: half a cell times its slope; outside it keeps the value of the nearest end. For the logistic loss
    #: ``softplus(-p)`` and ceiling C, ``(-C, 10)`` is wrong by at most ``(C + 10) / 2^17``.
    interval: tuple[float, float] | None = None
    unit: float = field(init=False)
    _evaluator: _Formula | _Table = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        bounded = BoundedSum(self.ceiling)
        object.__setattr__(self, "ceiling", bounded.ceiling)
        object.__setattr__(self, "unit", bounded.unit)
        top = self.ceiling / self.unit
        object.__setattr__(self, "_evaluator", _evaluator(self.loss, self.unit, 0.0, top, self.interval))

    @property
    def sensitivity(self) -> Sensitivity:
        """Range of the change of the scores: C, and 2C when a row is replaced."""
        return Sensitivity.of_scores(self.ceiling)

    def block(
        self, starts: ArrayLike, slopes: ArrayLike, steps: ArrayLike, *, block_rows: int | None = None
    ) -> Integers:
        """Return the m totals in multiples of `unit`; totals of several sets of rows add up."""
        return _totals(self._evaluator, starts, slopes, steps, block_rows, None)

    def total(
        self, starts: ArrayLike, slopes: ArrayLike, steps: ArrayLike, *, block_rows: int | None = None
    ) -> LatticeSum:
        """Return the total clipped loss at each step.

        A row is at ``p - a v`` after a step ``a``, its ``starts`` and ``slopes`` being p and v; steps are public. Any
        number of ``block_rows`` up to 2^17 gives the same bits.
        """
        return LatticeSum(self.block(starts, slopes, steps, block_rows=block_rows), self.unit, self.sensitivity)


@dataclass(frozen=True)
class SignedScores:
    """Total changes of the loss at m step sizes, each row's change clipped to [-D, D].

    **Privacy.** Unit: one row. Row i adds to each score an integer in [-D / unit, D / unit] that depends on its own
    start and slope and on public numbers: both losses are rounded, and the difference of the integers is clipped.
    One score may rise by D where another falls by D, so the range of the change is at most 2D if a row is
    removed and 4D if it is replaced. NaN as in `BoundedScores`: a NaN loss counts as a very large one.
    """

    bound: float  # D, public; lowered to a multiple of the unit as in `SignedSum`
    #: As in `BoundedScores`. The interval must cover all losses of interest, and not only those up to D, because
    #: changes are clipped and losses are not.
    loss: Loss
    interval: tuple[float, float] | None = None
    unit: float = field(init=False)
    _evaluator: _Formula | _Table = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        signed = SignedSum(self.bound)
        object.__setattr__(self, "bound", signed.bound)
        object.__setattr__(self, "unit", signed.unit)
        object.__setattr__(self, "_evaluator", _evaluator(self.loss, self.unit, -_WHOLE, _WHOLE, self.interval))

    @property
    def sensitivity(self) -> Sensitivity:
        """Range of the change of the scores: 2D, and 4D when a row is replaced."""
        return Sensitivity.of_changes(self.bound)

    def block(
        self, starts: ArrayLike, slopes: ArrayLike, steps: ArrayLike, *, block_rows: int | None = None
    ) -> Integers:
        """Return the m totals in multiples of `unit`; totals of several sets of rows add up."""
        return _totals(self._evaluator, starts, slopes, steps, block_rows, self.bound / self.unit)

    def total(
        self, starts: ArrayLike, slopes: ArrayLike, steps: ArrayLike, *, block_rows: int | None = None
    ) -> LatticeSum:
        """Return the total clipped change of the loss at each step; arguments as in `BoundedScores.total`."""
        return LatticeSum(self.block(starts, slopes, steps, block_rows=block_rows), self.unit, self.sensitivity)
