"""What a query is: a value that says what is asked, how the answer is protected, and what it costs.

A query holds no rows and does nothing by itself. Its `Query.plan` turns it, from public numbers alone, into one of
four plans, which the curator carries out.

`Curator.answer` is the only one who carries a plan out, always in the same order: it checks that the query is well
formed and that its noise can be drawn, charges, draws the batch, touches the rows, adds the noise and divides by the
public size. So an answer that was not charged for, or that has no noise, cannot be written. `Noised` says what is
released of a sum, and with which noise.

`Sum`
    An exact sum over rows, released through a mechanism: noise on every coordinate, the choice of a least score, or
    the first query above a threshold. Nearly all queries are of this kind.
`Tree`
    Sums over parts of the rows, each at weights that follow from the answers about the parts before it.
`Point`
    A point that is computed from all rows to a certified tolerance, and released with noise.
`Draw`
    A point that is itself random: the exponential mechanism over a ball.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar, final

import numpy as np

from ..accounting import (
    Cost,
    ExponentialMechanism,
    Gaussian,
    NormLaplace,
    ObjectivePerturbation,
    PureObjectivePerturbation,
    ShuffledDescent,
    Threshold,
    ThresholdedGaussian,
)
from ..arrays import Floats, Integers
from ..errors import InvalidParameter
from ..exact import LatticeSum
from ..minimisers.risks import Source
from ..noise import Bits
from ..problems import LinearProblem
from ..relations import Relation, Sensitivity
from .per_row import PerRow

Answer = TypeVar("Answer")

#: Every kind of query there is, by the name of its class: the laws of the curator are tested on all of them.
QUERIES: dict[str, type[Query[Any]]] = {}


@dataclass(frozen=True)
class Public:
    """What a query may know before it is paid for."""

    problem: LinearProblem
    relation: Relation
    rows: int  # n, the public number of rows
    rate: float  # share of the rows in the batch that answers
    size: float  # the public number by which a sum is divided: n, or the expected size of a batch
    #: k, how many rows of one unit may change together. A plan is made for one row, and the curator raises its
    #: sensitivities, unless the plan bounds what a unit adds; a lattice must have room for that.
    rows_per_unit: int = 1
    together: bool = False  # whether the rows of a unit are read together, so that a plan can bound what they add

    def weights(self, name: str, values: Any) -> Floats:
        """Return ``values`` as finite weights of the problem's shape, or raise `InvalidParameter`."""
        try:
            point = np.asarray(values)
        except ValueError:  # lists of different lengths
            point = np.empty(0, dtype=object)
        if point.dtype.kind not in "fiub":
            raise InvalidParameter(f"{name} must be an array of real numbers of the shape {self.problem.shape}")
        if point.shape != self.problem.shape:
            raise InvalidParameter(f"{name} must have the shape {self.problem.shape}, got {point.shape}")
        point = point.astype(np.float64)
        if not np.isfinite(point).all():
            raise InvalidParameter(f"{name} must be finite: take a shorter step, or start again")
        return point


class Query(ABC, Generic[Answer]):
    """Something that can be asked about the rows.

    Subclasses are frozen dataclasses of public values. Defining one registers it in `QUERIES`.
    """

    #: What the record of the ledger calls it.
    label: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            QUERIES[cls.__name__] = cls

    @abstractmethod
    def plan(self, public: Public) -> Plan[Answer]:
        """Return how the query is answered, or raise what is wrong with it. No row is read."""


Block = Callable[..., Integers]


@final
@dataclass(frozen=True)
class Noised:
    """A part of a sum that is released."""

    cost: Cost  # the mechanism that releases it, which is also what is charged
    unit: float  # the lattice of the sum: it is an integer multiple of this
    sensitivity: Sensitivity  # how much one row can change it; or one unit, see ``of_unit``
    divisor: float = 1.0  # the public number by which the noisy sum is divided
    #: Maps the sum to the integers that are released; the sum itself by default.
    part: Callable[[Integers], Integers] | None = None
    symmetric: bool = False  # whether it is a symmetric matrix, whose sensitivity is measured in the Frobenius norm
    #: How many numbers it has. Norm-Laplace noise grows with it, and must be told.
    size: int = 1
    #: Whether the sensitivity is that of all rows of a unit together, because what they add was bounded together.
    of_unit: bool = False
    #: Which of the counts are published with their keys: for a `ThresholdedGaussian`, and for no other mechanism.
    threshold: Threshold | None = None

    def __post_init__(self) -> None:
        if isinstance(self.cost, ThresholdedGaussian) is not (self.threshold is not None):
            raise InvalidParameter("counts of keys have a threshold, and nothing else has one")
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
class Carry:
    """Margins that follow from a released step: those of ``weights`` are t - step u, for margins t and u."""

    margins: PerRow
    step: float


@final
@dataclass(frozen=True)
class Sum(Generic[Answer]):
    """An exact sum over the rows of a batch, and what is released of it."""

    #: Maps the features, the labels and the ``per_row`` numbers of a block of rows to their sum, an integer array.
    #: What a row adds must depend on that row and on public numbers alone.
    block: Callable[..., Integers]
    #: What is released, each with its own mechanism. Their costs are charged together.
    parts: tuple[Noised, ...]
    finish: Callable[..., Answer]  # maps the released parts to the answer, from public numbers
    per_row: tuple[PerRow, ...] = ()  # numbers of every row that the block needs and other queries may share
    #: Whether the block picks the rows of a batch by itself: then its first argument tells which they are, None for
    #: all.
    picks: bool = False
    #: Maps the answer to the margins that the next query will ask for, if they follow from it.
    carry: Callable[[Answer], Carry | None] | None = None

    def __post_init__(self) -> None:
        if not self.parts:
            raise InvalidParameter("a sum is released by at least one mechanism: name it among the parts")

    @property
    def costs(self) -> tuple[Cost, ...]:
        """The mechanisms that are charged together."""
        return tuple(part.cost for part in self.parts)

    @property
    def rights(self) -> tuple[Noised | Cost, ...]:
        """What is released."""
        return self.parts

    def for_units(self, rows_per_unit: int) -> Sum[Answer]:
        """Return the plan for so many rows that change together (`dpdescent.curator.units`)."""
        return replace(self, parts=tuple(part.for_units(rows_per_unit) for part in self.parts))


@final
@dataclass(frozen=True)
class Tree(Generic[Answer]):
    """Running totals over the leaves of a binary tree, to which rows are dealt at random (`TreeGradients`)."""

    leaves: int  # m, into which the rows are divided
    noised: Noised  # how the sum over the rows of a node is released
    #: Maps the number t of a leaf and the noisy total over the leaves before it to a function that adds up a block of
    #: the rows of leaf t, as the ``block`` of a `Sum` does.
    block: Callable[[int, Floats], Block]
    finish: Callable[[Floats], Answer]  # maps the noisy total over all leaves to the answer
    zero: Floats  # the total over no leaves
    per_row: tuple[PerRow, ...] = ()  # numbers of every row that the blocks need

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


@final
@dataclass(frozen=True)
class Rows:
    """All rows, for a computation that has been paid for. Unreleased data."""

    source: Source
    squared_norms: Floats
    bits: Callable[[str], Bits] = field(repr=False)


def noise_on_point(cost: Cost) -> Cost:
    """Return the noise that a cost pays for on the point itself."""
    if isinstance(cost, ObjectivePerturbation):
        return Gaussian(cost.output_multiplier)
    if isinstance(cost, PureObjectivePerturbation):
        return NormLaplace(cost.output_epsilon)
    return Gaussian(cost.noise_multiplier) if isinstance(cost, ShuffledDescent) else cost


def noise_on_objective(cost: Cost) -> Cost | None:
    """Return the noise that a cost pays for on the linear term of an objective, if there is any."""
    if isinstance(cost, ObjectivePerturbation):
        return Gaussian(cost.noise_multiplier)
    return NormLaplace(cost.objective_epsilon) if isinstance(cost, PureObjectivePerturbation) else None


@final
@dataclass(frozen=True)
class Point(Generic[Answer]):
    """A point that is computed from all rows, and released with noise."""

    cost: Cost  # what is charged: the noise, or a theorem that needs noise in the objective as well
    noised: Noised  # the noise on the point, placed on a lattice
    #: Maps the rows and the random linear term to the point as integers of that lattice.
    find: Callable[[Rows, Floats | None], Integers]
    finish: Callable[[Floats], Answer]  # maps the noisy point to the answer, from public numbers
    #: The random linear term of objective perturbation: noise on zeros of the shape ``linear_shape``.
    linear: Noised | None = None
    linear_shape: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        drawn = self.noised.cost, None if self.linear is None else self.linear.cost
        if drawn != (noise_on_point(self.cost), noise_on_objective(self.cost)):
            raise InvalidParameter(f"the noise of a point is not what its {self.cost.kind!r} cost pays for")

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What is charged."""
        return (self.cost,)

    @property
    def parts(self) -> tuple[Noised, ...]:
        """All noise that is drawn."""
        return (self.noised,) if self.linear is None else (self.linear, self.noised)

    @property
    def rights(self) -> tuple[Noised | Cost, ...]:
        """What is released."""
        return self.parts

    def for_units(self, rows_per_unit: int) -> Point[Answer]:
        """Return the plan for so many rows that change together (`dpdescent.curator.units`)."""
        if rows_per_unit > 1 and self.cost != self.noised.cost:
            raise InvalidParameter(
                f"a {self.cost.kind!r} cost is proved for one row and not for {rows_per_unit} rows of a unit: use "
                "rows_per_unit=1, or another method"
            )
        return replace(self, noised=self.noised.for_units(rows_per_unit))


@final
@dataclass(frozen=True)
class Draw(Generic[Answer]):
    """A point that is drawn by the exponential mechanism; ``draw`` maps the rows to it.

    The law is made for ``rows_per_unit`` rows that change together.
    """

    cost: ExponentialMechanism
    draw: Callable[[Rows], Answer]
    rows_per_unit: int = 1
    parts: tuple[Noised, ...] = ()

    @property
    def costs(self) -> tuple[Cost, ...]:
        """What is charged."""
        return (self.cost,)

    @property
    def rights(self) -> tuple[Noised | Cost, ...]:
        """What is released: a point that the mechanism draws."""
        return (self.cost,)

    def for_units(self, rows_per_unit: int) -> Draw[Answer]:
        """Return the plan itself, or raise `InvalidParameter` unless it is made for units of so many rows."""
        if rows_per_unit != self.rows_per_unit:
            raise InvalidParameter(
                f"the law of this point is made for {self.rows_per_unit} rows of a unit and not for {rows_per_unit}: "
                "use rows_per_unit=1, or another method"
            )
        return self


def _trailing_zeros(number: int) -> int:
    return (number & -number).bit_length() - 1


Plan = Sum[Answer] | Tree[Answer] | Point[Answer] | Draw[Answer]
