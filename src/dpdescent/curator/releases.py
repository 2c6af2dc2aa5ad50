"""What is released of a sum, and a tree of such releases."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Generic, TypeVar, final

import numpy as np

from ..accounting import Cost
from ..exact import LatticeSum
from ..relations import Sensitivity
from .per_row import PerRow
from .sources import Floats, Integers

__all__ = ["Noised", "Tree"]

Answer = TypeVar("Answer")
Block = Callable[..., Integers]


@final
@dataclass(frozen=True)
class Noised:
    """A part of a sum that is released.

    Parameters
    ----------
    cost : Cost
        The mechanism that releases it, which is also what is charged.
    unit : float
        The lattice of the sum: it is an integer multiple of this.
    sensitivity : Sensitivity
        How much one row can change it; or one unit, see ``of_unit``.
    divisor : float
        The public number by which the noisy sum is divided.
    part : callable, optional
        Maps the sum to the integers that are released; the sum itself by default.
    symmetric : bool
        Whether it is a symmetric matrix, whose sensitivity is measured in the Frobenius norm.
    size : int
        How many numbers it has. Norm-Laplace noise grows with it, and must be told.
    of_unit : bool
        Whether the sensitivity is that of all rows of a unit together, because what they add was bounded together.
    """

    cost: Cost
    unit: float
    sensitivity: Sensitivity
    divisor: float = 1.0
    part: Callable[[Integers], Integers] | None = None
    symmetric: bool = False
    size: int = 1
    of_unit: bool = False

    def __post_init__(self) -> None:
        LatticeSum(np.zeros(0, dtype=np.int64), self.unit, self.sensitivity)  # refuses what is no lattice

    def for_units(self, rows_per_unit: int) -> Noised:
        """Return it with the sensitivity of so many rows that change together."""
        if self.of_unit:
            return self
        return replace(self, sensitivity=self.sensitivity.times(rows_per_unit), of_unit=True)

    def of(self, values: Integers) -> LatticeSum:
        """Return what is released, from the sum."""
        return LatticeSum(values if self.part is None else self.part(values), self.unit, self.sensitivity)


@final
@dataclass(frozen=True)
class Tree(Generic[Answer]):
    """Running totals over the leaves of a binary tree, to which rows are dealt at random (`dpdescent.curator.trees`).

    Parameters
    ----------
    leaves : int
        m, into which the rows are divided.
    noised : Noised
        How the sum over the rows of a node is released.
    block : callable
        Maps the number t of a leaf and the noisy total over the leaves before it to a function that adds up a block
        of the rows of leaf t, as the ``block`` of a `Sum` does.
    finish : callable
        Maps the noisy total over all leaves to the answer.
    zero : ndarray
        The total over no leaves.
    per_row : tuple of PerRow
        Numbers of every row that the blocks need.
    """

    leaves: int
    noised: Noised
    block: Callable[[int, Floats], Block]
    finish: Callable[[Floats], Answer]
    zero: Floats
    per_row: tuple[PerRow, ...] = ()

    @property
    def levels(self) -> int:
        """In how many nodes a row can be."""
        return self.leaves.bit_length()

    @property
    def costs(self) -> tuple[Cost, ...]:
        """The mechanisms that are charged together: one for each level."""
        return (self.noised.cost,) * self.levels

    @property
    def parts(self) -> tuple[Noised, ...]:
        """The noise of a node."""
        return (self.noised,)

    @property
    def rights(self) -> dict[Noised | Cost, int]:
        """What is released: one node for each leaf, the last that has become whole."""
        return {self.noised: self.leaves}

    def for_units(self, rows_per_unit: int) -> Tree[Answer]:
        """Return the plan for so many rows that change together; all of them are in one leaf."""
        return replace(self, noised=self.noised.for_units(rows_per_unit))

    def walk(self, sum_over: Callable[[int, Block], Integers], release: Callable[[Integers], Floats]) -> Answer:
        """Return the answer, from the sum over each leaf and what is released of the sum over each node.

        After leaf t the total is that of the nodes which belong to the binary digits of t, and only the last of them
        is new. It covers as many leaves as the largest power of 2 that divides t.
        """
        exact: list[Integers] = []  # unreleased data
        noisy: list[Floats] = []
        total = self.zero
        for leaf in range(self.leaves):
            node = sum_over(leaf, self.block(leaf, total))
            for _ in range(_trailing_zeros(leaf + 1)):
                node = node + exact.pop()
                noisy.pop()
            exact.append(node)
            noisy.append(release(node))
            total = np.sum(noisy, axis=0)
        return self.finish(total)


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1
