"""What every solver returns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian, epsilon_to_gdp
from ..curator import Curator, joint_clip
from ..relations import Relation, Sensitivity

__all__ = ["Facts", "Progress", "SolverResult", "effective_rows", "gradient_deviation"]

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
    rows_per_unit: int = 1

    @property
    def change(self) -> float:
        """How many clip norms one row, or all rows of a unit, can move a sum of clipped rows."""
        return Sensitivity.of_clipped_sum(1.0).times(self.rows_per_unit).under(Relation.parse(self.relation))

    @property
    def promised_rows(self) -> float:
        """N mu of the whole promise: if all of it paid for one mean of rows of length 1, its noise were 1/(n mu).

        A solver has what bounds and class weights have left of it (`effective_rows`).
        """
        return self.rows * epsilon_to_gdp(self.epsilon, self.delta) / self.change

    @property
    def promised_rows_per_parameter(self) -> float:
        """The same per parameter, n mu/d."""
        return self.promised_rows / self.parameters

    @classmethod
    def of(cls, curator: Curator) -> Facts:
        """Return the public facts of a curator."""
        ledger = curator.ledger
        return cls(
            ledger.epsilon,
            ledger.delta,
            str(ledger.relation),
            curator.rows,
            int(np.prod(curator.problem.shape)),
            curator.rows_per_unit,
        )


def effective_rows(curator: Curator, parameters: float = 1.0) -> float:
    """Return the effective rows, n mu, or those per parameter, n mu/d, of the budget that is left for a solver."""
    return 1 / (parameters * curator.deviation(1.0, curator.budget))


def gradient_deviation(curator: Curator, clip: float, noise: Gaussian, size: float | None = None) -> float:
    """Return the standard deviation of each coordinate of a gradient, its rows clipped by unit where they can be.

    ``size`` is the public number by which the sum is divided, that of the curator by default.
    """
    together, each = curator.public().together, curator.rows_per_unit
    longest = joint_clip(clip, each) if together else clip * each
    moved = Sensitivity.of_clipped_sum(longest).under(curator.relation)
    return moved * noise.noise_multiplier / (size or curator.scale)


@dataclass(frozen=True)
class SolverResult:
    """The weights that a solver returns.

    Every field is a function of released answers, so all of it may be published. ``remarks`` say what the method did
    to the rows or to the loss, for the privacy statement. ``noise_factor`` is provided by some methods. It is a
    matrix F of shape (d, m): the noise of privacy moves the weights of each output by about F times m independent
    standard normal numbers. ``column_evidence`` says of each feature by how many standard deviations of
    noise its released moments exceed those of a column that never varies.
    """

    weights: NDArray[np.float64]
    iterations: int
    steps: tuple[float, ...] = ()
    remarks: tuple[str, ...] = ()
    noise_factor: NDArray[np.float64] | None = field(default=None, kw_only=True)
    column_evidence: NDArray[np.float64] | None = field(default=None, kw_only=True)
