r"""Risks: what is minimised, in public terms alone, up to a public quadratic and a public linear term.

A `Risk` is n times a mean of losses, or any other function F(w, X) of all rows. It knows the constants that hold for
every table of at most n rows, and makes the objective of the table that it is given.

**Sensitivity of a minimiser.** Let F and F' belong to neighbours, both mu-strongly convex on the same closed convex
set, with minimisers w and w' at a distance D, and let F - F' be V-Lipschitz. Adding F(w') >= F(w) + mu/2 D^2 and
F'(w) >= F'(w') + mu/2 D^2 gives mu D^2 <= (F - F')(w') - (F - F')(w) <= V D: so D <= V/mu, with kinks and on a ball
too. Public terms cancel in F - F'. A row missing from a sum leaves V = C, a row replaced V = 2C, and any two
L-Lipschitz functions V = 2L (after Chaudhuri, Monteleoni & Sarwate 2011 and Lowy & Razaviyayn 2021).

Rows that can only be summed over: what a minimiser sees of a table, and whoever holds the rows implements.

`dpdescent.curator` has the sources themselves. The protocol stands here, below those who hold rows, because
objectives and queries are written for any of them.

References
----------
Chaudhuri, K., Monteleoni, C. & Sarwate, A. (2011). Differentially private empirical risk minimization. JMLR 12.
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..arrays import Floats
from ..errors import InvalidParameter
from ..exact import FeatureGrid, require_moderate
from ..problems import Loss, Need, require_needs
from ..relations import Relation, Sensitivity
from .row_objectives import FEW, PLACEMENT, UNIT, Objective, RowObjective, reachable_tolerance

_BLOCK = 2**17  # the largest number of rows that a plain sum may add up one by one


class Risk(ABC):
    """What holds for every table of at most ``rows`` rows, and the objective of one."""

    #: Whether minimisers of single rows apply, and whether it is a sum of hinges.
    sum_over_rows: bool = False
    hinge: bool = False
    #: The variation holds for minimisers no longer than this.
    radius: float = math.inf
    loss: Loss
    row_bound: float

    def require_table(self, rows: int, shape: tuple[int, ...]) -> None:
        """Raise `InvalidParameter` unless this is a risk of tables with ``rows`` places and weights of that shape."""
        require_moderate("row_bound", self.row_bound)
        outputs = self.loss.outputs
        if len(shape) != (1 if outputs == 1 else 2) or math.prod(shape[1:]) != outputs:
            raise InvalidParameter(
                f"the risk has a loss of {outputs} margins, and the weights of the problem have the shape {shape}: "
                "take a loss of the same kind"
            )

    @abstractmethod
    def variation(self, rows: int, relation: Relation) -> float:
        """Return a Lipschitz constant of the difference between neighbours."""

    @abstractmethod
    def gradient_bound(self, rows: int) -> float:
        """Return a Lipschitz constant of the risk."""

    @abstractmethod
    def value_bound(self, rows: int) -> float:
        """Return an upper bound on the risk at zero minus its least value."""

    @abstractmethod
    def smoothness(self, rows: int) -> float:
        """Return a Lipschitz constant of the gradient; infinite if there are kinks."""

    @abstractmethod
    def reachable_distance(
        self, rows: int, dimension: int, strong_convexity: float, largest_curvature: float, linear_norm: float
    ) -> float:
        """Return a distance to the minimiser over all weights that can be certified for every table."""

    @abstractmethod
    def objective(
        self, source: Source, grid: FeatureGrid, squared_norms: Floats, quadratic: Floats, linear: Floats
    ) -> Objective:
        """Return the risk of a table plus w'Qw/2 + b'w, Q diagonal."""

    # What follows from these ---------------------------------------------------------------------------------

    def farthest(self, rows: int, strong_convexity: float, linear_norm: float = 0.0) -> float:
        """Return a public bound on the norm of the minimiser over all weights."""
        return min(
            (self.gradient_bound(rows) + linear_norm) / strong_convexity,
            2 * linear_norm / strong_convexity + math.sqrt(2 * self.value_bound(rows) / strong_convexity),
        )

    def reachable(
        self,
        rows: int,
        dimension: int,
        strong_convexity: float,
        largest_curvature: float,
        linear_norm: float = 0.0,
        radius: float = math.inf,
    ) -> float:
        """Return a distance to the minimiser over B(0, R) that can be certified for every table.

        On the sphere a point is off by 2^-46 (R + |u|), |u| <= R + |gradient|/beta, and the part of the gradient that
        points outwards by 2^-45 of itself; a multiplier is found to 2^-40 of R.
        """
        distance = self.reachable_distance(rows, dimension, strong_convexity, largest_curvature, linear_norm)
        if radius == math.inf:
            return distance
        gradient = self.gradient_bound(rows) + linear_norm + largest_curvature * radius
        beta = self.smoothness(rows) + largest_curvature
        if beta < math.inf:
            off = 2.0**-46 * (2 * radius + gradient / beta)
            return distance + 4 * (off * (1 + 2 * beta / strong_convexity) + 2.0**-44 * gradient / strong_convexity)
        off = 2.0**-40 * radius
        gap = (
            self.gradient_bound(rows) * off + ((largest_curvature + gradient / radius) * off) ** 2 / strong_convexity
        )
        return distance + 4 * (off + math.sqrt(2 * gap / strong_convexity))


@dataclass(frozen=True)
class EmpiricalRisk(Risk):
    """The sum over rows of l(f x . w, y), f = min(1, B/|x|): n times the mean loss of rows no longer than B."""

    loss: Loss  # with a bounded slope; smooth, or the hinge
    row_bound: float  # B
    sum_over_rows = True

    def __post_init__(self) -> None:
        require_needs("certified-minimiser", {Need.CONVEX, Need.BOUNDED_SLOPE, Need.CERTIFICATE}, self.loss)

    @property
    def hinge(self) -> bool:  # type: ignore[override]
        """Whether the loss is the hinge."""
        return self.loss.hinge

    @property
    def clip(self) -> float:
        """C, an upper bound on the norm of a row's gradient."""
        return self.loss.lipschitz * self.row_bound * FEW

    def variation(self, rows: int, relation: Relation) -> float:
        return Sensitivity.of_clipped_sum(self.clip).under(relation)

    def gradient_bound(self, rows: int) -> float:
        return rows * self.clip

    def value_bound(self, rows: int) -> float:
        return rows * self.loss.largest(0.0) * FEW

    def smoothness(self, rows: int) -> float:
        return rows * self.loss.smoothness * self.row_bound**2 * FEW

    def log_determinant(self, strong_convexity: float) -> float:
        """Return how much one row can raise the log-determinant of a Hessian with at least that strong convexity."""
        trace, rank = self.loss.curvature_trace * self.row_bound**2 * FEW, self.loss.curvature_rank
        return rank * math.log1p(trace / (rank * strong_convexity)) * FEW

    def reachable_distance(
        self, rows: int, dimension: int, strong_convexity: float, largest_curvature: float, linear_norm: float
    ) -> float:
        if not self.hinge:
            norm = reachable_tolerance(self.loss, self.row_bound, dimension, rows, strong_convexity, linear_norm)
            return norm / strong_convexity
        longest = self.farthest(rows, strong_convexity, linear_norm)
        placed = dimension * PLACEMENT * longest
        gap = rows * (8 * UNIT * (1 + self.row_bound * longest) + self.row_bound * placed)
        residual = 68 * UNIT * rows * self.clip + 16 * UNIT * (rows * self.clip + linear_norm)
        residual += largest_curvature * placed
        gap += residual**2 / (2 * strong_convexity)
        # Steps use plain arithmetic, whose rounding error must be smaller than the remaining gradient.
        plain = (min(rows, _BLOCK) + rows / 2**16 + dimension + 16) * UNIT * (rows * self.clip + linear_norm)
        return 4 * math.sqrt(2 * gap / strong_convexity) + 128 * plain / strong_convexity

    def objective(
        self, source: Source, grid: FeatureGrid, squared_norms: Floats, quadratic: Floats, linear: Floats
    ) -> RowObjective:
        return RowObjective(source, grid, self.loss, squared_norms, self.row_bound, quadratic, linear)


AnyNumber = TypeVar("AnyNumber", np.int64, np.float64)


class Source(Protocol):
    """Rows on a feature grid, and their labels, that can only be summed over.

    Numbers that belong to single rows stay with the source: what `map_rows` returns is only ever handed back to it,
    and is an array for a source of rows that are ``in_one_place``. A mask of all rows may be handed over as an array.
    """

    grid: FeatureGrid
    #: Whether all rows can be held at once, as queries need that are no sums.
    in_one_place: bool

    @property
    def rows(self) -> int:
        """The number of rows, known without reading any."""
        ...

    def map_sum(self, function: Callable[..., NDArray[AnyNumber]], *aligned: Any) -> NDArray[AnyNumber]:
        """Return the sum over blocks of ``function(rows, labels, *aligned blocks)``.

        A sum of integers is exact and the same for every partition into blocks; one of floating-point numbers has
        rounding errors that depend on it.
        """
        ...

    def map_rows(self, function: Callable[..., Floats], *aligned: Any) -> Any:
        """Return the results of ``function`` on all blocks, one after another; unreleased data."""
        ...


@dataclass
class NoRows:
    """A source without any rows, for bounds that follow from public numbers alone."""

    grid: FeatureGrid
    in_one_place: bool = True
    rows: int = 0

    def map_sum(self, function: Callable[..., NDArray[AnyNumber]], *aligned: Any) -> NDArray[AnyNumber]:
        return function(np.zeros((0, self.grid.dimension)), np.zeros(0), *aligned)

    def map_rows(self, function: Callable[..., Floats], *aligned: Any) -> Any:
        return function(np.zeros((0, self.grid.dimension)), np.zeros(0), *aligned)
