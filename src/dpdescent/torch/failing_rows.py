"""Rows that cannot be computed: they add nothing, nobody hears of them, and they cost little time.

**Found beforehand.** Most failures come from a whole number that a table of vectors or a loss does not know: a label
2 where there are two outputs, for instance. Which numbers fail is tried once, on public rows (`Screen`). A row that
holds one then gives its place to a public row before it is computed, which takes no pass.

**Found when a batch fails.** If the rows pass through the module, the loss is computed row by row. Otherwise the
batch is halved until the rows that fail are alone, so that one of them costs as much as a few passes.

**Privacy** Whether a row is left out is decided by the row alone, by the module and by shapes. That is so because a
batch fails exactly if one of its rows fails by itself; where it fails with none of these, rows are taken one by one.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from .row_gradients import Batch, LoopedGradients, ModuleGradients, unchanged

Add = Callable[[Batch], Tensor]
_LARGEST = 2**20  # that is tried
_PLACES = 8  # of a row, at which a number is tried
_NEGATIVE = (-(2**20), -300, -2)  # that fail where all negative numbers do, but for reserved ones
_RESERVED = (-100, -1)  # inputs that a module may have a meaning for
_RESERVED_TARGETS = range(-128, 300)  # such as -100 and 255, which losses ignore


def sum_rows(
    add: Add, parts: Iterable[Batch], blank: Batch, suspects: Callable[[Batch], Tensor | None] | None = None
) -> Tensor | int:
    """Return the sum of the whole numbers that the parts of a batch add, to which a row that fails adds nothing.

    ``add`` returns what a part adds, as int64. ``blank`` is a public row, to stand in the place of one that fails.
    ``suspects`` tells which rows of a part fail by themselves, as far as can be told quickly.
    """
    total: Tensor | int = 0
    for part in parts:
        added = _attempt(add, part)
        if added is None:
            failing = None if suspects is None else _attempt(suspects, part)
            if failing is not None and bool(failing.any()):
                added = _attempt(add, part.without(failing, blank))
        total = total + (_sum_without_failing(add, part, blank) if added is None else added)
    return total


def _sum_without_failing(add: Add, part: Batch, blank: Batch) -> Tensor | int:
    """Return what a part adds without the rows that fail by themselves, each of which keeps its place."""
    failing = torch.zeros(len(part), dtype=torch.bool, device=part.targets.device)
    alone: dict[int, Tensor] = {}
    groups = [(0, len(part))]
    while groups:
        first, last = groups.pop()
        if last - first == 1:
            failing[first] = True
            continue
        middle = (first + last) // 2
        for half in ((first, middle), (middle, last)):
            added = _attempt(add, part[slice(*half)])
            if added is None:
                groups.append(half)
            elif half[1] - half[0] == 1:
                alone[half[0]] = added
    together = _attempt(add, part.without(failing, blank))
    if together is not None:
        return together
    # So many rows may fail together, whatever they hold: then they are taken one by one.
    rows = (row for row in range(len(part)) if not failing[row])
    found = (alone[row] if row in alone else _attempt(add, part[row : row + 1]) for row in rows)
    return sum(each for each in found if each is not None)


def _attempt(compute: Callable[[Any], Any], part: Any) -> Any:
    """Return what is computed, or None if that fails, for whatever reason: an error would tell of the rows."""
    try:
        return compute(part)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def failing_losses(way: ModuleGradients, part: Batch) -> Tensor | None:
    """Return which losses fail by themselves, where the rows of a part pass through the module side by side."""
    if not way.together:
        return None
    given = part.copy()
    with torch.no_grad(), unchanged(way.module):
        outputs = way.module(*given.inputs)
        if not isinstance(outputs, Tensor) or outputs.shape[:1] != part.targets.shape[:1]:
            return None
        losses = (
            _attempt(lambda row: way.loss(outputs[row].clone(), part.targets[row].clone()), slice(row, row + 1))
            for row in range(len(part))
        )
        return torch.tensor([each is None for each in losses], device=part.targets.device)


@dataclass(frozen=True)
class _Limits:
    """Which whole numbers can be computed: those between two limits, if there are such, and the ``known`` ones."""

    lowest: int | None
    highest: int | None
    known: tuple[int, ...]

    def failing(self, numbers: Tensor) -> Tensor:
        """Return which rows hold a number that fails."""
        wide = numbers.to(torch.int64)
        failing = torch.zeros_like(wide, dtype=torch.bool)
        if self.highest is not None:
            failing |= wide > self.highest
        if self.lowest is not None:
            failing |= wide < self.lowest
        failing &= ~torch.isin(wide, torch.tensor(self.known, dtype=torch.int64, device=wide.device))
        return failing.reshape(len(wide), -1).any(1)


class Screen:
    """Whole numbers that a module or its loss refuses, whatever else a row holds, as public rows tell.

    ``blank`` is a public row that can be computed.

    **Privacy** A matter of the module, the loss and of shapes. Nothing is tried on modules that take one row at a
    time, as they may do anything with a number, and on other devices than the processor, which a wrong index ends.
    """

    def __init__(self, way: ModuleGradients, blank: Batch) -> None:
        self._way, self._blank = way, blank[:1]
        self._limits: dict[int, _Limits] = {}
        if isinstance(way, LoopedGradients) or blank.targets.device.type != "cpu":
            return
        with torch.no_grad(), unchanged(way.module):
            self._outputs = way.module(*self._blank.copy().inputs)
        for place, values in enumerate(self._blank.inputs):
            self._limit(place, values, partial(self._passes, place), _RESERVED)
        self._limit(len(self._blank.inputs), self._blank.targets, self._has_loss, _RESERVED_TARGETS)

    def _limit(
        self, place: int, values: Tensor, computes: Callable[[int, int], Any], reserved: Iterable[int]
    ) -> None:
        whole = not (values.dtype is torch.bool or values.is_floating_point() or values.is_complex())
        if whole and values.numel():
            found = _limits_of(lambda cell, number: computes(cell, number) is not None, values, reserved)
            if found is not None:
                self._limits[place] = found

    def __call__(self, part: Batch) -> Batch:
        """Return a part in which rows that are known to fail have given their places to a public one."""
        if not self._limits:
            return part
        rows = (*part.inputs, part.targets)
        failing = torch.stack([each.failing(rows[place]) for place, each in self._limits.items()]).any(0)
        return part.without(failing, self._blank) if bool(failing.any()) else part

    def _passes(self, place: int, cell: int, number: int) -> Any:
        """Return what comes of the public row with this number in a cell of an input, or None."""
        row = self._blank.copy()
        row.inputs[place].reshape(-1)[cell] = number
        with torch.no_grad():
            return _attempt(self._way.losses_together, row)

    def _has_loss(self, cell: int, number: int) -> Any:
        """Return the loss of the public row with this number in a cell of its target, or None."""
        targets = self._blank.targets.clone()
        targets.reshape(-1)[cell] = number
        with torch.no_grad():
            return _attempt(lambda outputs: self._way.loss(outputs, targets), copy.deepcopy(self._outputs))


def _limits_of(computes: Callable[[int, int], bool], values: Tensor, reserved: Iterable[int]) -> _Limits | None:
    """Return the limits that hold for every cell of a row, or None if there are none."""
    span = torch.iinfo(values.dtype)
    step = max(1, values.numel() // _PLACES)
    cells = [*range(0, values.numel(), step), values.numel() - 1]
    largest = min(span.max, _LARGEST)
    highest, lowest = _last_that_computes(partial(computes, 0), largest), None
    if highest is not None:
        right = {highest: True, highest + 1: False, min(2 * highest + 2, largest): False, largest: False}
        if any(computes(cell, number) != fine for cell in cells for number, fine in right.items()):
            highest = None
    negative = [each for each in _NEGATIVE if each >= span.min]
    if negative and not any(computes(cell, number) for cell in cells for number in negative):
        lowest = 0
    if highest is None and lowest is None:
        return None
    beyond = (each for each in reserved if span.min <= each <= span.max and not 0 <= each <= (highest or 0))
    return _Limits(lowest, highest, tuple(each for each in beyond if computes(0, each)))


def _last_that_computes(computes: Callable[[int], bool], largest: int) -> int | None:
    """Return the number after which numbers fail, or None if the largest does not."""
    if computes(largest):
        return None
    fine, failed = 0, 1
    while failed < largest and computes(failed):
        fine, failed = failed, min(2 * failed, largest)
    while failed - fine > 1:
        middle = (fine + failed) // 2
        fine, failed = (middle, failed) if computes(middle) else (fine, middle)
    return fine
