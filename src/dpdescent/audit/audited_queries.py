"""Single queries: every kind that the curator answers, on the pair of small tables that it tells apart best.

A query is one of the examples of its kind (`dpdescent.audit.examples`), with noise of just the size that epsilon
pays for, and every run asks it of a curator. Tables have rows at the corners of their bounds, and the pair is chosen
by the exact sums that the query is answered from: the row whose presence moves them most, in units of their noise.

Answers that are released as they are drawn are scored by how much more likely the neighbour makes them. Where noise
goes into an objective, or where a point is drawn without any, the answer itself is tested.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np
from scipy.optimize import brentq

from ..accounting import Composed, Cost, Currency, Gaussian
from ..arrays import Floats
from ..curator import ArraySource, Curator, LatticeNoise
from ..errors import InvalidParameter, UnsupportedCost, require_positive_integer
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..problems import L2, Adversary, LinearProblem, Logistic
from ..queries import QUERIES, Query
from ..queries.query import Point, Sum, Tree
from ..relations import Relation
from .audit_runs import Outcomes, Subject, derived_seed, plain
from .decision import Rule
from .examples import EXAMPLES
from .findings import Claim
from .recording import Recording, Released, divergence, log_ratio

Table = tuple[Floats, Floats]

_GRID = FeatureGrid(1.0, 3)
_PROBLEMS = (LinearProblem(Logistic(), _GRID, L2(0.125)), LinearProblem(Logistic(), _GRID, adversary=Adversary(0.25)))
_ROWS = 12
_TABLES = 6  # whose other rows are drawn at random
_FEW = 2  # for points, which take longer and depend less on the other rows
_RICH = 1e9  # an epsilon for as many answers as are asked for


@dataclass(frozen=True)
class QueryRun(Subject):
    """One answer to a query, asked of either of two neighbouring tables."""

    kind: str  # one of `dpdescent.queries.QUERIES`
    #: What the answer claims.
    epsilon: float
    delta: float
    relation: Relation = Relation.ZERO_OUT
    example: int = 1  # which of the examples of that kind, counted from 1
    chunk = 200

    def __post_init__(self) -> None:
        _asked(self)

    @property
    def claim(self) -> Claim:
        """What the answer promises: GDP, unless it promises a pure epsilon."""
        return _asked(self).claim

    def known(self, _: Outcomes) -> Rule | None:
        """Return the test that the likelihood ratio of Gaussian noise comes with: 0 is as likely on both tables."""
        return Rule("errors", 0.0) if self.claim == "gdp" and _asked(self).shown else None

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the log ratio of likelihoods of several answers, or the answers themselves."""
        pair = _pair(self)
        noise = Recording(derived_seed(seed, 0))
        curator = _curator(pair.asked.problem, pair.tables[neighbour], self.relation, noise)
        outcomes = []
        for _ in range(runs):
            noise.released.clear()
            answer = curator.answer(pair.asked.query)
            outcomes.append(plain(pair.score(noise.released) if pair.asked.shown else _flat(answer)))
        return outcomes


@dataclass(frozen=True)
class _Asked:
    """A query with the noise that epsilon pays for, whether all that it draws is released, and tables to try."""

    problem: LinearProblem
    query: Query[Any]
    claim: Claim
    shown: bool
    tables: int


@dataclass(frozen=True)
class _Pair:
    """A query, two tables, and the exact sums that it is answered from on each of them."""

    asked: _Asked
    tables: tuple[Table, Table]
    sums: tuple[list[Released], list[Released]]

    def score(self, released: list[Released]) -> float:
        """Return the logarithm of how much more likely the neighbour makes what was released."""
        first, second = (
            [replace(each, total=sums.total) for each, sums in zip(released, side, strict=True)] for side in self.sums
        )
        return log_ratio(first, second)


def _examples(kind: str, relation: Relation, noise: Gaussian) -> Iterator[tuple[LinearProblem, Query[Any]]]:
    """Yield the examples of a kind, each with the problem that it is asked about."""
    for problem in _PROBLEMS:
        public = _curator(problem, _rows([0] * _ROWS), relation, LatticeNoise()).public()
        found = [(problem, query) for query in EXAMPLES[QUERIES[kind]](public, noise)]
        yield from found
        if found:
            return


@lru_cache(maxsize=128)
def _asked(run: QueryRun) -> _Asked:
    """Return the query with noise for all of epsilon, or raise what is wrong with it."""
    if QUERIES.get(run.kind) not in EXAMPLES:
        raise InvalidParameter(f"there are no examples of queries {run.kind!r}: add some to audit.examples.EXAMPLES")
    count = len(list(_examples(run.kind, run.relation, Gaussian(1.0))))
    if require_positive_integer("example", run.example) > count:
        raise InvalidParameter(f"{run.kind} has {count} examples, and number {run.example} is asked for")

    def asked(noise_multiplier: float) -> tuple[LinearProblem, Query[Any]]:
        return list(_examples(run.kind, run.relation, Gaussian(noise_multiplier)))[run.example - 1]

    def plan(problem: LinearProblem, query: Query[Any]) -> Any:
        return query.plan(_curator(problem, _rows([0] * _ROWS), run.relation, LatticeNoise()).public())

    first = plan(*asked(1.0))
    ledger = _ledger_for(_cost(first.costs), run)
    amount, currency = ledger.budget, ledger.currency

    def excess(log_noise: float) -> float:
        return math.log(currency.price(_cost(plan(*asked(math.exp(log_noise))).costs)) / amount)

    noise = _root(excess, f"{run.kind} has no example that costs an epsilon of {run.epsilon:g}: ask for another")
    problem, query = asked(math.exp(noise))
    shown = isinstance(first, Sum | Tree) or (isinstance(first, Point) and first.linear is None)
    tables = len(_corners()[0]) + _TABLES if isinstance(first, Sum | Tree) else _FEW if shown else 1
    return _Asked(problem, query, "gdp" if currency.name == "gdp" else "approximate", shown, tables)


def _cost(costs: tuple[Cost, ...]) -> Cost:
    return costs[0] if len(costs) == 1 else Composed(costs)


def _ledger_for(cost: Cost, run: QueryRun) -> Ledger:
    """Return a ledger of the claim in the currency that the query is tight in: pure if it has a pure epsilon."""
    try:
        pure = Ledger(run.epsilon, run.delta, currency="pure", relation=str(run.relation))
        _priced(pure.currency, cost)
    except UnsupportedCost:
        if run.delta == 0:
            raise InvalidParameter(
                f"{run.kind} has no epsilon at a delta of 0: pass a delta, well below 1/n"
            ) from None
        return Ledger(run.epsilon, run.delta, currency="gdp", relation=str(run.relation))
    return pure


def _priced(currency: Currency, cost: Cost) -> float:
    price = currency.price(cost)
    if not math.isfinite(price):
        raise UnsupportedCost(f"a {cost.kind!r} cost is not finite")
    return price


def _root(excess: Any, refusal: str) -> float:
    """Return the least argument, within rounding, at which a falling function is not above 0."""
    low = high = 0.0
    while excess(low) < 0:
        low -= 1.0
        if low < -12:
            raise InvalidParameter(refusal)
    while excess(high) > 0:
        high += 1.0
        if high > 12:
            raise InvalidParameter(refusal)
    found = low if low == high else float(brentq(excess, low, high, xtol=1e-13))
    while excess(found) > 0:
        found += 1e-13
    return found


@lru_cache(maxsize=128)
def _pair(run: QueryRun) -> _Pair:
    """Return the query with the two tables that its answers are most likely to tell apart."""
    asked, generator = _asked(run), np.random.default_rng(0)
    kinds = len(_corners()[0])
    best: tuple[float, tuple[Table, Table], tuple[list[Released], list[Released]]] | None = None
    for number in range(asked.tables):
        others = [number] * (_ROWS - 1) if number < kinds else generator.integers(kinds, size=_ROWS - 1).tolist()
        added = [_rows([each, *others]) for each in range(kinds)]
        first = [_rows(others)] if run.relation is Relation.ZERO_OUT else added
        sums = {id(table): _sums(asked, table, run.relation) for table in (*first, *added)}
        for one, other in product(first, added):
            if one is not other:
                pair = sums[id(one)], sums[id(other)]
                apart = divergence(*pair)
                if best is None or apart > best[0]:
                    best = apart, (one, other), pair
    assert best is not None
    return _Pair(asked, best[1], best[2])


def _sums(asked: _Asked, table: Table, relation: Relation) -> list[Released]:
    """Return what a query releases of a table, each with its exact sum."""
    noise = Recording(0)
    _curator(asked.problem, table, relation, noise).answer(asked.query)
    return noise.released


def _curator(problem: LinearProblem, table: Table, relation: Relation, noise: LatticeNoise) -> Curator:
    ledger = Ledger(_RICH, 1e-6, relation=str(relation), currency="gdp")
    return Curator(ArraySource(*table, problem.grid), problem, ledger, _ROWS, noise=noise)


@lru_cache(maxsize=1)
def _corners() -> Table:
    """Return every row at a corner of the bounds, with its constant, with either label."""
    rows = [(*corner, 1.0) for corner in product((-1.0, 1.0), repeat=_GRID.dimension - 1) for _ in range(2)]
    return _GRID.place(np.array(rows)), np.tile([-1.0, 1.0], len(rows) // 2)


def _rows(kinds: list[int]) -> Table:
    features, labels = _corners()
    return features[kinds], labels[kinds]


def _flat(answer: Any) -> Floats:
    """Return an answer of several parts as one list of numbers."""
    parts = answer if isinstance(answer, tuple) else (answer,)
    return np.concatenate([np.ravel(np.asarray(part, dtype=np.float64)) for part in parts])
