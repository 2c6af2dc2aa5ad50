"""The curator: the only one who touches the rows while a solver runs.

It owns the source, the problem, the ledgers, the batches and the noise, and does one thing: `Curator.answer`. A
solver holds a curator and public numbers, and queries are values, so neither can leak.

Amounts are in units of the ledger's currency: a solver says how much it wants to spend on an answer, and asks with
the least noise that this pays for.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from ..accounting import Cost, Currency, Gaussian
from ..arrays import Floats, Integers
from ..errors import BudgetExhausted, InvalidParameter, UnsupportedSource, require_positive_integer
from ..ledger import ONE_ROW, Ledger, afford_jointly, require_affordable, require_distinct
from ..minimisers.risks import Source
from ..noise import Bits
from ..problems import LinearProblem
from ..queries.per_row import Norms, Owners, PerRow, moved_margins
from ..queries.query import Draw, Plan, Point, Public, Query, Rows, Sum, Tree
from ..relations import Relation, Sensitivity
from .array_source import ArraySource
from .batches import Batch, Sampling, draw_leaves, draw_rows, sum_batch, sum_picked
from .lattice_noise import LatticeNoise
from .release import Paid, check, pay
from .units import Units

Answer = TypeVar("Answer")


class Curator:
    """Answers private queries about rows that it never shows.

    Parameters
    ----------
    source : Source
        The rows.
    problem : LinearProblem
        The loss and its public constants.
    ledger : Ledger
        The budget that is charged for every answer.
    rows : int
        The public number of rows n, by which sums are divided; it is never read from the data. With units it is any
        public number, and `Units.places` where points are asked for.
    noise : LatticeNoise, optional
        Exact lattice noise from the operating system's generator by default. Batches, permutations and drawn points
        come from the same randomness.
    batch_rate : float
        Each query is answered on a fresh Poisson batch with this rate, unless it brings a `Batch` of its own. No
        amplification is claimed for it: the cost of an answer is that on all rows, so these batches only save time.
    account : Ledger, optional
        A second ledger that is charged as well, for instance one shared by several fits. Both are charged or
        neither is; it must keep the relation of the first, because the noise is made for that one.
    units : Units, optional
        Which rows belong to the same unit of privacy; each row is one by default. Sensitivities are multiplied by the
        rows of a unit unless these are clipped together, and batches are drawn by unit.

    Attributes
    ----------
    clips_by_unit : bool
        Whether a query was asked that clips all rows of a unit together: public, as queries are.

    Notes
    -----
    **Privacy** `answer` charges before it reads a row and returns only a noised answer. A refusal (`BudgetExhausted`,
    or `InvalidParameter` for an argument) reads nothing and leaves both ledgers as they were.
    """

    def __init__(
        self,
        source: Source,
        problem: LinearProblem,
        ledger: Ledger,
        rows: int,
        *,
        noise: LatticeNoise | None = None,
        batch_rate: float = 1.0,
        account: Ledger | None = None,
        units: Units | None = None,
    ) -> None:
        if source.grid != problem.grid:
            raise InvalidParameter("the source and the problem have different grids: make both with the same one")
        if account is not None:
            require_distinct((ledger, account))
            if account.relation is not ledger.relation:
                raise InvalidParameter(
                    f"account keeps {account.relation} and the ledger {ledger.relation}, whose noise it is: "
                    "open both with the same relation"
                )
        if units is not None and units.owners.shape != (source.rows,):
            raise InvalidParameter("units must name the unit of every row of the source: one number per row")
        if (ledger.unit == ONE_ROW) != (units is None):
            raise InvalidParameter(
                f"the ledger protects {ledger.unit}, and the rows are {'not ' if units is None else ''}grouped by "
                "unit: open it with the unit of the rows"
            )
        self._source, self._together = source, False
        if units is not None and units.together and isinstance(source, ArraySource):
            self._source, self._together = source.in_blocks_of(units.owners), True
        self._units = units
        self._noise = noise or LatticeNoise()
        self._account = account
        self._streams = 0
        self._kept: dict[str, tuple[Any, Any]] = {} if units is None else {Owners.kind: (Owners(), units.owners)}
        self._drawn: WeakKeyDictionary[Batch, tuple[NDArray[np.bool_] | None, Paid]] = WeakKeyDictionary()
        self._taking = threading.Lock()
        self.problem, self.ledger = problem, ledger
        self.clips_by_unit = False
        self._budget, self._reserved = ledger.remaining, 0.0
        self.rows = require_positive_integer("rows", rows)
        if not 0 < batch_rate <= 1:
            raise InvalidParameter(f"batch_rate must lie in (0, 1], got {batch_rate}")
        self._sampling = Sampling(ledger.relation, self.rows, batch_rate, amplified=False, units=self._count)

    def __copy__(self) -> Curator:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Curator:
        """Return the curator itself: a copy would give once more the answers that a batch has left."""
        return self

    @property
    def _ledgers(self) -> tuple[Ledger, ...]:
        return (self.ledger,) if self._account is None else (self.ledger, self._account)

    @property
    def _count(self) -> int | None:
        return None if self._units is None else self._units.count

    # Public numbers ------------------------------------------------------------------------------------------

    @property
    def relation(self) -> Relation:
        """What one row may change."""
        return self.ledger.relation

    @property
    def currency(self) -> Currency:
        """The scalar that the ledger adds up."""
        return self.ledger.currency

    @property
    def remaining(self) -> float:
        """What is left of the budget, in units of the currency, without what is set aside."""
        return self.ledger.remaining - self._reserved

    @property
    def budget(self) -> float:
        """The whole budget of this curator: what was left on the ledger when it began, without what is set aside."""
        return self._budget - self._reserved

    @property
    def set_aside(self) -> float:
        """How much of the budget is kept for what follows: a public number."""
        return self._reserved

    @contextmanager
    def setting_aside(self, amount: float) -> Iterator[None]:
        """Plan as if the budget were smaller by so much, which is left for what follows. The ledger does not know."""
        self._reserved += amount
        try:
            yield
        finally:
            self._reserved -= amount

    @property
    def rows_per_unit(self) -> int:
        """How many rows of one unit may change together: 1 where the unit is a row."""
        return 1 if self._units is None else self._units.rows_per_unit

    @property
    def batch_rate(self) -> float:
        """Share of the rows that answer a query."""
        return self._sampling.rate

    @property
    def scale(self) -> float:
        """The public number by which sums are divided: n, or the expected size of a batch."""
        return self._sampling.size

    def public(self, sampling: Sampling | None = None) -> Public:
        """Return what is public about the table, and about the batches that answer."""
        drawn = sampling or self._sampling
        table = (self.problem, self.relation, self.rows)
        return Public(*table, drawn.rate, drawn.size, self.rows_per_unit, self._together)

    def gaussian(self, amount: float) -> Gaussian:
        """Return the least Gaussian noise that ``amount`` pays for."""
        return self.currency.gaussian(amount)

    def sampling(self, rate: float) -> Sampling:
        """Return how amplified batches of that rate are drawn."""
        sampling = Sampling(self.relation, self.rows, rate, units=self._count)
        self._require_drawable_rows(sampling)
        return sampling

    def deviation(
        self, clip: float, amount: float, of_sum: Callable[[float], Sensitivity] = Sensitivity.of_clipped_sum
    ) -> float:
        """Return the standard deviation of the noise, for ``amount``, of a mean of rows clipped to ``clip``."""
        moved = of_sum(clip).times(self.rows_per_unit).under(self.relation)
        return moved * self.gaussian(amount).noise_multiplier / self.scale

    def amount_of_noise(self, noise_multiplier: float) -> float:
        """Return what Gaussian noise of that multiple of the sensitivity costs."""
        return self.currency.price(Gaussian(noise_multiplier))

    def affords(self, cost: Cost) -> bool:
        """Return whether both ledgers would accept ``cost`` now."""
        return afford_jointly(self._ledgers, cost)

    def require_affordable(self, cost: Cost) -> None:
        """Raise what charging ``cost`` would raise, and charge nothing: for a plan of several charges."""
        require_affordable(self._ledgers, cost)

    def require_answerable(self, query: Query[Any]) -> None:
        """Raise what asking would raise before it is charged, and charge nothing."""
        self._check(query, self._sampling)

    def public_generator(self) -> np.random.Generator:
        """Return a generator for random choices that privacy does not rest on; repeated by a seeded run."""
        return np.random.default_rng(self._noise.randomness.stream("public", 0).integer(128))

    # The door to the rows ------------------------------------------------------------------------------------

    def answer(self, query: Query[Answer], batch: Batch | None = None) -> Answer:
        """Charge for a query, touch the rows, and return the noised answer.

        ``batch`` is a ticket for the rows that answer, if several queries share them or if they amplify privacy.
        """
        sampling = self._sampling if batch is None else batch.sampling
        plan = self._check(query, sampling)
        ticket = Batch(sampling, plan.costs) if batch is None else batch
        chosen, paid = self._pay(ticket, plan, ticket.label or query.label)
        with np.errstate(all="ignore"):  # a warning would speak of rows; sums clip what overflows
            if isinstance(plan, Sum):
                return self._release_sum(plan, chosen, paid)
            if isinstance(plan, Tree):
                return self._release_tree(plan, paid)
            rows = Rows(self._source, self._per_row(Norms.within(None, self.problem.grid)), self._stream)
            if isinstance(plan, Point):
                return self._release_point(plan, rows, paid)
            return paid.draw(plan.cost, partial(plan.draw, rows))

    def _draw_rows(self, sampling: Sampling) -> NDArray[np.bool_] | None:
        """Draw the rows of a batch, or its units with all of their rows. Called after the charge."""
        if self._units is None:
            return draw_rows(self._stream("batch"), self._source.rows, sampling)
        chosen = draw_rows(self._stream("batch"), self._units.count, sampling)
        return None if chosen is None else self._units.of_rows(chosen)

    def _pay(self, ticket: Batch, plan: Plan[Any], label: str) -> tuple[NDArray[np.bool_] | None, Paid]:
        """Charge for a ticket and draw its rows, unless that was done; return these and the right to one answer."""
        with self._taking:  # two threads would both find that nothing was paid, and rows of each other
            chosen, paid = self._drawn.get(ticket, (None, None))
            fresh = paid is None or ticket.composition is not None
            if paid is None:
                if not Counter(plan.costs) <= Counter(ticket.parts):
                    raise BudgetExhausted("this batch was drawn for other mechanisms: draw another")
                paid = pay(self._ledgers, ticket.cost, label, ticket.parts, self._noise)
            right = paid.exchange(plan.costs, plan.rights)
            if fresh and ticket.sampling.rate < 1:
                chosen = self._draw_rows(ticket.sampling)
            self._drawn[ticket] = chosen, paid
        return chosen, right

    def _check(self, query: Query[Answer], sampling: Sampling) -> Plan[Answer]:
        """Return the plan of a query, or raise what keeps it from being answered. Nothing is read or charged."""
        if (sampling.relation, sampling.rows, sampling.units) != (self.relation, self.rows, self._count):
            raise InvalidParameter("the batch was planned for another table: make it by the curator's sampling")
        self._require_drawable_rows(sampling)
        with np.errstate(all="ignore"):
            plan = query.plan(self.public(sampling))
        if not isinstance(plan, Sum | Tree | Point | Draw):
            raise InvalidParameter(f"{query.label!r} plans neither a sum, a tree, a point nor a draw: return one")
        if any(part.of_unit for part in plan.parts):
            if not self._together:
                raise UnsupportedSource(f"{query.label!r} needs a unit's rows together: pass arrays in memory")
            self.clips_by_unit = True
        plan = plan.for_units(self.rows_per_unit)
        if not isinstance(plan, Sum) and sampling.rate < 1 and sampling.amplified:
            raise InvalidParameter("this query is about all rows, which no batch amplifies: ask without one")
        if isinstance(plan, Point | Draw):
            if not self._source.in_one_place:
                raise UnsupportedSource(f"{query.label!r} needs all rows in one place: pass arrays in memory")
            if self._units is not None:
                self._units.require_places(self.rows, query.label)
            elif self._source.rows > self.rows:
                raise InvalidParameter(
                    "the table has more rows than the public number of them: pass their true number"
                )
        check(plan.parts, self.relation)
        return plan

    def _require_drawable_rows(self, sampling: Sampling) -> None:
        # The number of rows is the same for all neighbours under replace-one.
        if sampling.fixed_size and self._units is None and self._source.rows != self.rows:
            raise InvalidParameter("batches of fixed size need the true number of rows: pass it to the curator")

    def _release_sum(self, plan: Sum[Answer], chosen: NDArray[np.bool_] | None, paid: Paid) -> Answer:
        known = [self._per_row(each) for each in plan.per_row]
        if chosen is None:
            values = self._source.map_sum(partial(plan.block, None) if plan.picks else plan.block, *known)
        else:
            block = partial(sum_picked if plan.picks else sum_batch, plan.block)
            values = self._source.map_sum(block, chosen, *known)
        answer = plan.finish(*(paid.release(part, values) for part in plan.parts))
        carried = plan.carry(answer) if plan.carry is not None else None
        if carried is not None:
            self._carry(carried.margins, carried.step, *known)
        return answer

    def _release_tree(self, plan: Tree[Answer], paid: Paid) -> Answer:
        known = [self._per_row(each) for each in plan.per_row]
        leaves = draw_leaves(self._stream("leaves"), self._count or self._source.rows, plan.leaves)
        leaf_of = leaves if self._units is None else leaves[self._units.owners]

        def sum_over(leaf: int, block: Callable[..., Integers]) -> Integers:
            return self._source.map_sum(partial(sum_batch, block), leaf_of == leaf, *known)

        return plan.walk(sum_over, partial(paid.release, plan.noised))

    def _release_point(self, plan: Point[Answer], rows: Rows, paid: Paid) -> Answer:
        linear = None
        if plan.linear is not None:
            linear = paid.release(plan.linear, np.zeros(plan.linear_shape, dtype=np.int64))
        return plan.finish(paid.release(plan.noised, plan.find(rows, linear)))

    def _stream(self, name: str) -> Bits:
        """Return fresh bits for a random choice that privacy rests on."""
        bits = self._noise.randomness.stream(name, self._streams)
        self._streams += 1
        return bits

    def _per_row(self, wanted: PerRow) -> Any:
        """Return numbers of all rows, kept from an earlier query or computed now, as the source holds them."""
        kept = self._kept.get(wanted.kind)
        if kept is not None and kept[0] == wanted.key:
            return kept[1]
        values = self._source.map_rows(wanted.block, *(self._per_row(each) for each in wanted.needs))
        if wanted.kind:
            self._keep(wanted, values)
        return values

    def _keep(self, wanted: PerRow, values: Any) -> None:
        if isinstance(values, np.ndarray):
            values.setflags(write=False)  # a block that wrote over them would change later answers
        self._kept[wanted.kind] = (wanted.key, values)

    def _carry(self, wanted: PerRow, step: float, margins: Any, along: Any) -> None:
        """Keep the margins t - a u of the weights that a step leads to: a solver asks for them next.

        **Privacy** A function of two exact margins of the row and of a released step. It differs from the margin of
        the new weights by the rounding of weights to their grid, about 2^-32 of their size.
        """
        self._keep(wanted, self._source.map_rows(partial(moved_margins, step), margins, along))


def sum_without_privacy(curator: Curator, function: Callable[[Any, Floats], Floats]) -> Floats:
    """Return the sum of a function of blocks of rows and labels, as exact as floating point has it. NOT PRIVATE.

    **Privacy** None. It is refused where a budget is kept: for a curator with a second ledger, with a ledger
    in a file, or with one that has paid for an answer already, since that ledger's promise would be broken.
    """
    ledger = curator.ledger
    if curator._account is not None or ledger.path is not None or ledger.entries:
        raise InvalidParameter(
            "an answer without privacy breaks the promise of a ledger: leave ledger out, and give the method a "
            "curator of its own"
        )
    with np.errstate(all="ignore"):
        return np.asarray(curator._source.map_sum(function), dtype=np.float64)
