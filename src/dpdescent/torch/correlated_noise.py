"""Batches that go round in groups, and noise that takes back part of what earlier steps have added.

`dpdescent.accounting.banded` has the mechanism and why it is private. Its noise is not drawn here: what is released
at a step, through the door of every other answer, is the exact sum less a multiple of the noise of the steps before
it. This is the same as releasing a weighted sum of the sums of several steps, with independent noise, moved by a
vector that is made of earlier answers.

**What is kept.** The noise of the last b - 1 steps and the groups of rows are secrets: whoever knew the noise could
subtract it. They stay in the memory of the process that has paid, and are never written. A run that goes on from a
checkpoint therefore begins with independent noise, and deals the rows to groups anew, at a step that is a multiple
of b.
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np

from ..accounting.banded import Bands
from ..arrays import Booleans, Floats, Integers
from ..curator.batches import draw_leaves
from ..errors import BudgetExhausted
from ..noise import Bits


class Cycle:
    """The turns of the groups, and the noise of the last steps. A copy of it is the cycle itself.

    If copies took turns of their own, a row would be in more batches than were paid for.

    A sum has ``size`` coordinates.
    """

    def __init__(self, bands: Bands, size: int) -> None:
        self._bands, self._size = bands, size
        self._next = 0
        self._groups: Integers | None = None
        self._noises: Floats | None = None  # of step t in row t mod b - 1
        self._from, self._until = 0, 0  # the steps that follow each other, whose noise is kept
        self._lock = threading.Lock()

    def __copy__(self) -> Cycle:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Cycle:
        return self

    def begin(self, step: int) -> None:
        """Take a turn, which nobody takes again."""
        with self._lock:
            if step < self._next:
                raise BudgetExhausted("a copy of this training has taken the step: draw the next one")
            self._next = step + 1

    def restart(self, step: int) -> int:
        """Deal the rows anew from ``step`` on, or from the first one after it that is a multiple of the bands.

        Before it a row was in no more windows than cycles are over: all its windows are no more than were paid for.
        """
        count = self._bands.count
        with self._lock:
            self._next = -(-max(self._next, step) // count) * count
            self._groups, self._noises = None, None
            self._from = self._until = self._next
            return self._next

    def members(self, step: int, bits: Bits, present: int) -> Booleans:
        """Return which rows are in the group whose turn it is. ``bits`` deal them to groups, once."""
        with self._lock:
            if self._groups is None:
                self._groups = draw_leaves(bits, present, self._bands.count)
        members: Booleans = self._groups == step % self._bands.count
        return members

    def carried(self, step: int) -> Integers:
        """Return what a step takes back of the noise before it, a whole number for each coordinate.

        All sums are below 2^53 (`dpdescent.torch.training_plan`), and so exact in whatever order they are computed.
        """
        if self._noises is None or step != self._until:
            self._from = step
            return np.zeros(self._size, np.int64)
        weights = np.zeros(len(self._noises))
        for k in range(1, min(self._bands.count - 1, step - self._from) + 1):
            weights[(step - k) % len(weights)] = self._bands.numerators[k]
        return np.floor(weights @ self._noises / self._bands.numerators[0]).astype(np.int64)

    def keep(self, step: int, noise: Floats) -> None:
        """Remember the noise of a step for as long as it is used."""
        if self._noises is None:
            self._noises = np.zeros((self._bands.count - 1, self._size))
        self._noises[step % len(self._noises)] = noise
        self._until = step + 1
