"""What every solver returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from ..curator import Curator

__all__ = ["Facts", "Progress", "SolverResult"]

#: Called with the share of the budget that is spent: a public number between 0 and 1.
Progress = Callable[[float], None]


@dataclass(frozen=True)
class Facts:
    """What is public before a run: the guarantee that is asked for and the size of the problem."""

    epsilon: float
    delta: float
    relation: str
    rows: int
    parameters: int

    @classmethod
    def of(cls, curator: Curator) -> Facts:
        """Return the public facts of a curator."""
        ledger = curator.ledger
        return cls(
            ledger.epsilon, ledger.delta, str(ledger.relation), curator.rows, int(np.prod(curator.problem.shape))
        )


@dataclass(frozen=True)
class SolverResult:
    """The weights a solver arrived at.

    Every field is a function of released answers, so all of it may be published. ``remarks`` say what the method did
    to the rows or to the loss, for the privacy statement.
    """

    weights: NDArray[np.float64]
    iterations: int
    steps: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
