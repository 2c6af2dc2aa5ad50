"""What a question is: a value that says what is asked, how the answer is protected, and what it costs.

A question holds no rows and does nothing by itself. Its `Question.plan` turns it, from public numbers alone, into one
of four plans, and `Curator.answer` is the only one who carries a plan out, always in the same order: it checks that
the question is well formed and that its noise can be drawn, charges, draws the batch, touches the rows, adds the
noise and divides by the public size. So an answer that was not charged for, or that has no noise, cannot be written.

`Sum`
    An exact sum over rows, released through a mechanism: noise on every coordinate, the choice of a least score, or
    the first query above a threshold. Nearly all questions are of this kind.
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
)
from ..errors import InvalidParameter
from ..noise import Bits
from ..problems import LinearProblem
from ..relations import Relation
from .per_row import PerRow
from .releases import Noised, Tree
from .sources import Floats, Integers, Source

__all__ = [
    "QUESTIONS",
    "Carry",
    "Draw",
    "Noised",
    "Plan",
    "Point",
    "Public",
    "Question",
    "Rows",
    "Sum",
    "Tree",
    "noise_on_objective",
    "noise_on_point",
]

Answer = TypeVar("Answer")

#: Every kind of question there is, by the name of its class: the laws of the curator are tested on all of them.
QUESTIONS: dict[str, type[Question[Any]]] = {}


@dataclass(frozen=True)
class Public:
    """What a question may know before it is paid for.

    Parameters
    ----------
    problem : LinearProblem
    relation : Relation
    rows : int
        n, the public number of rows.
    rate : float
        Share of the rows in the batch that answers.
    size : float
        The public number by which a sum is divided: n, or the expected size of a batch.
    rows_per_unit : int
        k, how many rows of one unit may change together. A plan is made for one row, and the curator raises its
        sensitivities, unless the plan bounds what a unit adds; a lattice must have room for that.
    together : bool
        Whether the rows of a unit are read together, so that a plan can bound what they add.
    """

    problem: LinearProblem
    relation: Relation
    rows: int
    rate: float
    size: float
    rows_per_unit: int = 1
    together: bool = False

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


class Question(ABC, Generic[Answer]):
    """Something that can be asked about the rows.

    Subclasses are frozen dataclasses of public values. Defining one registers it in `QUESTIONS`.
    """

    #: What the record of the ledger calls it.
    label: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            QUESTIONS[cls.__name__] = cls

    @abstractmethod
    def plan(self, public: Public) -> Plan[Answer]:
        """Return how the question is answered, or raise what is wrong with it. No row is read."""


@final
@dataclass(frozen=True)
class Carry:
    """Margins that follow from a released step: those of ``weights`` are t - step u, for margins t and u."""

    margins: PerRow
    step: float


@final
@dataclass(frozen=True)
class Sum(Generic[Answer]):
    """An exact sum over the rows of a batch, and what is released of it.

    Parameters
    ----------
    block : callable
        Maps the features, the labels and the ``per_row`` numbers of a block of rows to their sum, an integer array.
        What a row adds must depend on that row and on public numbers alone.
    parts : tuple of Noised
        What is released, each with its own mechanism. Their costs are charged together.
    finish : callable
        Maps the released parts to the answer, from public numbers.
    per_row : tuple of PerRow
        Numbers of every row that the block needs and other questions may share.
    picks : bool
        Whether the block picks the rows of a batch by itself: then its first argument tells which they are, None
        for all.
    carry : callable, optional
        Maps the answer to the margins that the next question will ask for, if they follow from it.
    """

    block: Callable[..., Integers]
    parts: tuple[Noised, ...]
    finish: Callable[..., Answer]
    per_row: tuple[PerRow, ...] = ()
    picks: bool = False
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
    """A point that is computed from all rows, and released with noise.

    Parameters
    ----------
    cost : Cost
        What is charged: the noise, or a theorem that needs noise in the objective as well.
    noised : Noised
        The noise on the point, placed on a lattice.
    find : callable
        Maps the rows and the random linear term to the point as integers of that lattice.
    finish : callable
        Maps the noisy point to the answer, from public numbers.
    linear : Noised, optional
        The random linear term of objective perturbation: noise on zeros of the shape ``linear_shape``.
    """

    cost: Cost
    noised: Noised
    find: Callable[[Rows, Floats | None], Integers]
    finish: Callable[[Floats], Answer]
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


Plan = Sum[Answer] | Tree[Answer] | Point[Answer] | Draw[Answer]
