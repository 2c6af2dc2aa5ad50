"""Small problems on which every registered query is asked, and tables that strain what it declares."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import numpy as np

from dpdescent.accounting import (
    AboveThreshold,
    Cost,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    ObjectivePerturbation,
    PureObjectivePerturbation,
    ReportNoisyMax,
    ShuffledDescent,
)
from dpdescent.audit.examples import EXAMPLES
from dpdescent.curator import Batch, Curator, LatticeNoise
from dpdescent.errors import DPDescentError
from dpdescent.exact import FeatureGrid, LatticeSum
from dpdescent.ledger import Ledger
from dpdescent.noise import Bits, Randomness
from dpdescent.problems import (
    L2,
    Adversary,
    Frame,
    Hinge,
    Huber,
    HuberisedHinge,
    LabelKind,
    LinearProblem,
    Logistic,
    Loss,
    Multinomial,
    Sigmoid,
    Squared,
    Whitening,
)
from dpdescent.queries import QUERIES, Query
from dpdescent.queries.query import Plan
from dpdescent.relations import Norm, Relation
from neighbours import Watched

ROWS = 12  # and one row fewer: both are drawn from two words, so neighbours may share a batch
RELATIONS = tuple(Relation)
NOISE = Gaussian(1.0)
GRID = FeatureGrid(1.0, 3)
PROBLEMS = {
    "logistic": LinearProblem(Logistic(), GRID),
    "no intercept": LinearProblem(Logistic(), GRID, intercept=False),
    "penalty": LinearProblem(Logistic(), GRID, L2(0.125, intercept=True)),
    "short rows": LinearProblem(Logistic(), FeatureGrid(2.0, 3, 1.5), intercept=False),
    "multinomial": LinearProblem(Multinomial(3), GRID),
    "squared": LinearProblem(Squared(), GRID),
    "huber": LinearProblem(Huber(0.5), GRID),
    "hinge": LinearProblem(Hinge(), GRID),
    "huberised hinge": LinearProblem(HuberisedHinge(), GRID),
    "sigmoid": LinearProblem(Sigmoid(), GRID),
    "adversary": LinearProblem(Logistic(), GRID, adversary=Adversary(0.25)),
    "two columns": LinearProblem(Logistic(), FeatureGrid(1.0, 2)),
}

Table = tuple[np.ndarray, np.ndarray]


class Streams(Randomness):
    """Seeded randomness that counts the streams it has opened."""

    opened = 0

    def stream(self, mechanism: str, release: int) -> Bits:
        object.__setattr__(self, "opened", self.opened + 1)
        return super().stream(mechanism, release)


class Released(LatticeNoise):
    """Noise that keeps what it was asked to release, and what came out."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(Streams(seed))
        self.calls: list[tuple[LatticeSum, Cost, Relation, bool, Any]] = []

    def release(self, total, cost, relation, *, symmetric=False):
        answer = super().release(total, cost, relation, symmetric=symmetric)
        self.calls.append((total, cost, relation, symmetric, answer))
        return answer


class Silent(Released):
    """No noise at all: exact sums go through, and a choice is always the first."""

    def release(self, total, cost, relation, *, symmetric=False):
        answer = 0 if total.sensitivity.norm in (Norm.RANGE, Norm.MAX) else total.to_float()
        self.calls.append((total, cost, relation, symmetric, answer))
        return answer


def asked_of(
    problem: LinearProblem,
    table: Table,
    relation: str,
    noise: LatticeNoise | None = None,
    *,
    own: float = 1e9,
    joint: float = 1e9,
    block_rows: int = 2**14,
    **options: Any,
) -> tuple[Curator, Ledger, Ledger]:
    """Return a curator of a watched table, and its two ledgers."""
    ledger = Ledger(own, 1e-6, relation=relation, currency="gdp")
    account = Ledger(joint, 1e-6, relation=relation, currency="gdp")
    source = Watched(*table, problem.grid, block_rows)
    source.touches, source.ledgers = [], (ledger, account)
    settings = {"noise": noise or Released(), "account": account} | options
    return Curator(source, problem, ledger, ROWS, **settings), ledger, account


def quick(problem: LinearProblem, table: Table, relation: str, noise: LatticeNoise, **options: Any) -> Curator:
    """Return a curator that is not watched."""
    source = Watched(*table, problem.grid)
    source.touches = []
    return Curator(
        source, problem, Ledger(1e9, 1e-6, relation=relation, currency="gdp"), ROWS, noise=noise, **options
    )


def examples(kind: str, name: str, relation: str, noise: Gaussian = NOISE) -> list[Query[Any]]:
    """Return the examples of a kind of query about a problem."""
    curator = quick(PROBLEMS[name], table_of(name, 0), relation, Silent())
    return list(EXAMPLES.get(QUERIES[kind], lambda *_: ())(curator.public(), noise))


def plan_of(curator: Curator, query: Query[Any], batch: Batch | None = None) -> Plan[Any]:
    return query.plan(curator.public(None if batch is None else batch.sampling))


# Tables --------------------------------------------------------------------------------------------------------


def good_labels(problem: LinearProblem) -> list[float]:
    labels = problem.loss.labels
    if labels.kind is LabelKind.NUMBERS:
        return [labels.low, labels.high, (labels.low + labels.high) / 2]
    return [-1.0, 1.0] if labels.kind is LabelKind.SIGNS else [float(k) for k in range(labels.number_of_classes)]


def placed(problem: LinearProblem, rows: Any, labels: Any) -> Table:
    return problem.grid.place(np.array(rows, dtype=np.float64)), np.array(labels, dtype=np.float64)


def table_of(name: str, seed: int, rows: int = ROWS) -> Table:
    """Return a table without surprises."""
    problem, generator = PROBLEMS[name], np.random.default_rng(seed)
    bound = problem.grid.entry_bound
    features = generator.uniform(-bound, bound, (rows, problem.grid.dimension))
    if problem.intercept:
        features[:, -1] = 1.0
    return placed(problem, features, generator.choice(good_labels(problem), rows))


def strange_rows(name: str) -> Table:
    """Return rows at the edge of what is allowed, and rows that break what was promised of them."""
    problem = PROBLEMS[name]
    bound, columns = problem.grid.entry_bound, problem.grid.dimension
    labels = good_labels(problem)
    corners = [list(corner) for corner in itertools.product([-bound, bound], repeat=columns)]
    if problem.intercept:
        corners = [corner for corner in corners if corner[-1] > 0]
    rows = [(corner, label) for corner in corners for label in labels]
    rows += [(corners[0], label) for label in (math.nan, math.inf, -math.inf, 1e300, -1e300, 0.0, -7.5)]
    rows += [(corners[-1], label) for label in (math.inf, -1e300, 5.5)]
    rows += [([0.0] * columns, label) for label in labels]
    for constant in (0.0, -bound, bound / 2):  # a column that was promised to be 1
        rows += [([*corner[:-1], constant], label) for corner in corners[:2] for label in labels]
    small = [[*([bound / 64] * (columns - 1)), bound if problem.intercept else 0.0]]
    rows += [(corner, label) for corner in small for label in labels]
    return placed(problem, *zip(*rows, strict=True))


def with_row(table: Table, row: np.ndarray, label: float) -> Table:
    """Return a table with one row in place of its last."""
    return np.concatenate([table[0][:-1], [row]]), np.append(table[1][:-1], label)


def without_last(table: Table) -> Table:
    return table[0][:-1], table[1][:-1]


# Distances -----------------------------------------------------------------------------------------------------


def share(first: LatticeSum, second: LatticeSum, relation: str) -> Fraction:
    """Return what two exact sums differ by, as a share of what they declare: more than 1 is a breach."""
    assert (first.unit, first.sensitivity) == (second.unit, second.sensitivity)
    pairs = zip(first.values.ravel().tolist(), second.values.ravel().tolist(), strict=True)
    moved = [one - other for one, other in pairs]
    declared = Fraction(first.sensitivity.under(relation)) / Fraction(first.unit)
    norm = first.sensitivity.norm
    if norm is Norm.L2:
        return squared_share(sum(each * each for each in moved), declared)
    if norm is Norm.RANGE:
        return (max(moved) - min(moved)) / declared
    return (sum if norm is Norm.L1 else max)(abs(each) for each in moved) / declared  # type: ignore[operator]


def squared_share(squared: int, declared: Fraction) -> Fraction:
    """Return sqrt(squared)/declared, rounded up by less than 1e-9, and above 1 exactly if the root is."""
    ratio = squared / declared**2
    if ratio == 0:
        return ratio
    root = Fraction(math.isqrt(int(ratio * 10**20)) + 1, 10**10)
    return min(root, Fraction(1)) if ratio <= 1 else max(root, 1 + Fraction(1, 10**10))


def largest_share(first: list[LatticeSum], second: list[LatticeSum], relation: str) -> Fraction:
    return max(share(one, other, relation) for one, other in zip(first, second, strict=True))


# Bad arguments -------------------------------------------------------------------------------------------------

OTHER_GRID = FeatureGrid(1.0, 4)
BAD_FLOATS = (math.nan, math.inf, -math.inf, -1.0, 0.0, 1e300, 1e-300)
BAD_ENTRIES = (math.nan, math.inf, 1e300, 1e-300)


def _bad_costs(cost: Cost) -> Iterator[Any]:
    for scale in (1e300, 1e150, 2.0**60, 1e-9, 1e-300):
        if isinstance(cost, Gaussian):
            yield Gaussian(scale)
        elif isinstance(cost, ShuffledDescent):
            yield dataclasses.replace(cost, noise_multiplier=scale)
        elif isinstance(cost, Laplace | ExponentialMechanism | NormLaplace):
            if not (isinstance(cost, NormLaplace) and scale < 1):
                yield type(cost)(1 / scale)
        elif isinstance(cost, ReportNoisyMax):
            yield ReportNoisyMax(1 / scale, cost.noise)
        elif isinstance(cost, ObjectivePerturbation):
            yield dataclasses.replace(cost, noise_multiplier=scale)
            yield dataclasses.replace(cost, output_multiplier=scale)
        elif isinstance(cost, PureObjectivePerturbation) and scale > 1:
            yield dataclasses.replace(cost, output_share=1 / scale)
    if isinstance(cost, AboveThreshold):
        yield AboveThreshold(1, 1.0, 1.0)
        for high, low in itertools.product((2.0**40, 2.0**-10), repeat=2):
            for kind in ("laplace", "gaussian"):
                yield AboveThreshold(cost.max_queries, high, low, kind)
    if isinstance(cost, ObjectivePerturbation | PureObjectivePerturbation):
        yield dataclasses.replace(cost, log_determinant=cost.log_determinant * 0.999)
    if isinstance(cost, ShuffledDescent):
        yield dataclasses.replace(cost, batches=cost.batches + 1)


def _bad_values(value: Any) -> Iterator[Any]:
    """Yield what may be wrong with an argument, by its type."""
    if isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (0, -1, 2.5)
    elif isinstance(value, float):
        yield from BAD_FLOATS
    elif isinstance(value, str):
        yield "no such name"
    elif isinstance(value, np.ndarray):
        yield from (np.zeros(()), value[:-1], np.append(value, value[-1:], axis=0), value[..., None])
        yield from (np.full_like(value, each) for each in BAD_ENTRIES)
        for each in BAD_ENTRIES:
            damaged = value.copy()
            damaged.flat[0] = each
            yield damaged
    elif isinstance(value, Cost):
        yield from _bad_costs(value)
    elif isinstance(value, Frame | Whitening):
        yield Frame.place(OTHER_GRID, np.zeros(4), np.ones(4))
        yield Whitening(OTHER_GRID, np.eye(4))
    elif isinstance(value, Loss):
        yield from (Sigmoid(), Squared(), Hinge(), Multinomial(3), Huber(0.5), HuberisedHinge(1e-6))
    elif dataclasses.is_dataclass(value):
        yield from spoiled(value)


def spoiled(value: Any) -> Iterator[Any]:
    """Yield copies of a query, or of another value, each with one bad argument."""
    for field in dataclasses.fields(value):
        for bad in _bad_values(getattr(value, field.name)):
            try:
                yield dataclasses.replace(value, **{field.name: bad})
            except DPDescentError:
                continue
