"""Runs of every registered method on small tables, and noise that replays a run on a neighbouring table.

A method joins the laws of `test_method_laws` by being registered in `METHODS`, a loss by a line in `LOSSES`. A method
needs a line in `QUICK` only if its default settings make it slow, and one in `VARIANTS` for settings that lead it
along another path.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from fractions import Fraction
from typing import Any

import numpy as np
from scipy import sparse

from dpdescent import Ledger
from dpdescent.accounting import Cost
from dpdescent.curator import Curator, Units
from dpdescent.curator.lattice_noise import LatticeNoise
from dpdescent.errors import BudgetExhausted, DPDescentError
from dpdescent.estimators.payment import open_ledger
from dpdescent.exact import FeatureGrid, LatticeSum
from dpdescent.ledger import require_funds
from dpdescent.noise import Bits, Randomness
from dpdescent.problems import (
    L2,
    Adversary,
    Hinge,
    Huber,
    HuberisedHinge,
    LinearProblem,
    Logistic,
    Loss,
    Multinomial,
    Poisson,
    Sigmoid,
    Squared,
)
from dpdescent.relations import Norm, Relation
from dpdescent.solvers import METHODS, Facts, SolverResult
from neighbours import Watched

Floats = np.ndarray
RELATIONS = ("zero-out", "replace-one")


# Tables ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Labels:
    """How labels follow scores, and the labels at which a row can change most."""

    draw: Callable[[Floats, np.random.Generator], Floats]
    extremes: tuple[float, ...]


SIGNS = Labels(
    lambda scores, generator: np.where(scores + generator.logistic(size=len(scores)) > 0, 1.0, -1.0), (-1, 1)
)
NUMBERS = Labels(
    lambda scores, generator: np.clip(scores / 3 + generator.normal(0, 0.2, len(scores)), -1, 1), (-1, 1)
)
THIRDS = Labels(
    lambda scores, generator: np.digitize(scores + generator.logistic(size=len(scores)), [-1.0, 1.0]).astype(float),
    (0, 1, 2),
)

COUNTS = Labels(
    lambda scores, generator: np.clip(generator.poisson(np.exp(scores / 2)) / 8, 0, 1).astype(float), (0, 1)
)

LOSSES: dict[str, tuple[Loss, Labels]] = {
    "logistic": (Logistic(), SIGNS),
    "multinomial": (Multinomial(3), THIRDS),
    "huberised-hinge": (HuberisedHinge(), SIGNS),
    "hinge": (Hinge(), SIGNS),
    "squared": (Squared(), NUMBERS),
    "huber": (Huber(), NUMBERS),
    "sigmoid": (Sigmoid(), SIGNS),
    "poisson": (Poisson(), COUNTS),
}


@dataclass(frozen=True)
class Table:
    """Features in [-1, 1], a constant last column if there is an intercept, and labels."""

    features: Any
    labels: Floats
    intercept: bool = True

    def with_last(self, features: Floats, label: float) -> Table:
        """Return the table with one row more."""
        row = np.append(features, 1.0) if self.intercept else features
        return replace(self, features=np.vstack([self.features, row]), labels=np.append(self.labels, label))

    @property
    def columns(self) -> int:
        return self.features.shape[1] - self.intercept

    @property
    def rows(self) -> int:
        return self.features.shape[0]


def make_table(loss: str, rows: int = 60, columns: int = 2, *, intercept: bool = True, seed: int = 0) -> Table:
    """Return a random table whose labels follow its columns."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (rows, columns))
    scores = X @ np.linspace(3, 1, columns) + 0.3 if columns else np.full(rows, 0.3)
    labels = LOSSES[loss][1].draw(scores, generator)
    return Table(np.hstack([X, np.ones((rows, int(intercept)))]), labels, intercept)


# Methods and their settings ----------------------------------------------------------------------------------------

QUICK: dict[str, dict[str, Any]] = {
    "2opt": {"most_steps": 6},
    "2opt-b": {"most_steps": 6, "sampling_rate": 0.4},
    "2opt-ls": {"most_steps": 6},
    "adam": {"steps": 4},
    "agd": {"splits": 4.0},
    "auto": {"iterations": 3},
    "blgd": {"iterations": 4},
    "blsgd": {"iterations": 4},
    "blsgd-ac": {"iterations": 4},
    "dp-gd": {"most_steps": 6},
    "dp-tr": {"most_steps": 6},
    "ftrl": {"leaves": 3},
    "opt": {"most_steps": 6},
    "opt-b": {"most_steps": 6, "sampling_rate": 0.4},
    "opt-ls": {"most_steps": 6},
    "outpert-gd": {"steps": 4},
    "outpert-rsgd": {"passes": 2, "batch_rows": 8},
    "privgene": {"candidates": 6, "generations": 2},
    "sgd": {"steps": 4},
    "sgd-adv": {"steps": 4},
    "svrg": {"steps": 2, "epochs": 2},
}


@dataclass(frozen=True)
class Variant:
    """A method with settings that lead along one of its paths."""

    method: str
    name: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)
    delta: float = 1e-6
    penalty: float = 0.0
    tilt: float = 0.0
    adversary: Adversary | None = None

    def __str__(self) -> str:
        return f"{self.method}:{self.name}" if self.name else self.method


_BALL, _BOX = Adversary(0.1), Adversary((0.2, 0.1), "linf")
#: Settings on other paths than the defaults: batches, phases, other noise, objectives that are not a mean loss.
VARIANTS = (
    Variant("2opt", "random start", {"start_scale": 0.3, "most_steps": 4}),
    Variant("2opt-b", "one batch", {"same_batch": True, "sampling_rate": 0.4, "most_steps": 4}),
    Variant("2opt-ls", "batches", {"sampling_rate": 0.4, "gradient_tolerance": 0.05, "most_steps": 4}),
    Variant("adam", "batches", {"steps": 4, "sampling_rate": 0.4}),
    Variant("agd", "paper", {"paper": True, "splits": 4.0, "candidates": 5}),
    Variant("agd", "laplace", {"splits": 4.0, "selection": "laplace", "currency": "zcdp"}),
    Variant("agd", "batches", {"splits": 4.0, "batch_rate": 0.5}),
    Variant("agd", "penalty", {"splits": 4.0, "clip_loss": 1.0}, penalty=0.1),
    Variant("auto", "columns", {"iterations": 3, "whitening": False}, penalty=0.1),
    Variant("auto", "batches", {"iterations": 3, "batch_rate": 0.5}),
    Variant("blsgd", "one batch", {"iterations": 4, "same_batch": True, "noise": "gaussian"}),
    Variant("blsgd", "paper", {"paper": True, "iterations": 4, "max_steps": 5, "sampling_rate": 0.4}),
    Variant("blgd", "paper", {"paper": True, "iterations": 4, "max_steps": 4}, penalty=0.1),
    Variant("dp-gd", "batches", {"sampling_rate": 0.4, "gradient_tolerance": 0.5, "most_steps": 4}),
    Variant("dp-tr", "batches", {"sampling_rate": 0.4, "gradient_tolerance": 0.01, "most_steps": 4}),
    Variant("expmech", "paper", {"paper": True}),
    Variant("expmech", "localised, delta 0", {"localise": True}, delta=0.0),
    Variant("ftrl", "ball", {"leaves": 2, "passes": 2, "radius": 1.0}, penalty=0.1),
    Variant("objpert", "pure", {"pure": True}, penalty=0.1),
    Variant("objpert", "paper", {"paper": True}, penalty=0.1),
    Variant("opt", "steps", {"gradient_tolerance": 0.01, "most_steps": 4}),
    Variant("opt-b", "steps", {"gradient_tolerance": 0.01, "sampling_rate": 0.4, "most_steps": 4}),
    Variant("opt-ls", "steps", {"gradient_tolerance": 0.01, "most_steps": 4}),
    Variant("outpert", "ball", {"radius": 1.0, "population": True}),
    Variant("outpert", "pure", {"pure": True}, penalty=0.1),
    Variant("outpert", "delta 0", {}, delta=0.0),
    Variant("outpert", "paper", {"paper": True, "minimiser": "agd"}, penalty=0.1),
    Variant("outpert", "tilted", {}, tilt=1.0),
    Variant("outpert", "adversarial", {"risk_share": 0.1}, adversary=_BALL),
    Variant("outpert", "both", {"pure": True}, tilt=0.5, adversary=_BOX),
    Variant("outpert-gd", "paper", {"paper": True, "steps": 4}, penalty=0.1),
    Variant("outpert-gd", "pure", {"pure": True, "steps": 4}, penalty=0.1),
    Variant("outpert-gd", "delta 0", {"pure": True, "steps": 4}, delta=0.0),
    Variant("privgene", "paper", {"paper": True, "candidates": 8, "generations": 2, "batch_rate": 0.5}, penalty=0.1),
    Variant("sgd", "paper", {"paper": True, "steps": 4, "sampling_rate": 0.4}),
    Variant("sgd-adv", "paper", {"paper": True, "steps": 4, "sampling_rate": 1.0}),
    Variant("svrg", "all rows", {"steps": 2, "epochs": 2, "sampling_rate": 1.0}, penalty=0.1),
)
#: Every registered method with quick settings, and the variants of it.
CASES = tuple(Variant(method, options=QUICK.get(method, {})) for method in METHODS) + VARIANTS
PRIVATE = tuple(case for case in CASES if METHODS[case.method].private)


def is_batched(case: Variant) -> bool:
    """Return whether some answers come from random batches, which follow the places of the rows in the table."""
    settings = METHODS[case.method].settings(**case.options)
    rates = [getattr(settings, name, None) for name in ("sampling_rate", "search_rate", "batch_rate")]
    return case.method in ("blsgd", "blsgd-ac", "sgd-adv") or any(rate is not None and rate < 1 for rate in rates)


# Runs --------------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """A run: what came of it, what it was charged, and what could be seen of it from outside."""

    ledger: Ledger
    account: Ledger | None
    touches: list[tuple[int, ...]]
    noise: LatticeNoise
    shares: list[float] = field(default_factory=list)
    warned: list[str] = field(default_factory=list)
    result: SolverResult | None = None
    refusal: Exception | None = None

    @property
    def charged(self) -> bool:
        return bool(self.ledger.entries) or bool(self.account is not None and self.account.entries)

    @property
    def visible(self) -> list[Any]:
        """Everything that leaves a run: all of it must follow from answers and public numbers."""
        values = [] if self.result is None else [getattr(self.result, each.name) for each in fields(self.result)]
        seen = [each.tobytes() if isinstance(each, np.ndarray) else each for each in values]
        return [seen, repr(self.refusal), self.ledger.entries, self.shares, self.warned, self.ledger.statement()]


def run(
    case: Variant,
    loss: str,
    relation: str = "zero-out",
    *,
    table: Table | None = None,
    rows: int | None = None,
    epsilon: float = 1.0,
    delta: float | None = None,
    noise: LatticeNoise | None = None,
    account: float | None = None,
    own_account: bool = True,
    block_rows: int = 2**14,
    storage: Callable[[Any], Any] = np.asarray,
    currency: str | None = None,
    units: Units | None = None,
) -> Run | DPDescentError:
    """Run a method as an estimator does; return the run, or what is refused before there is a ledger.

    ``account`` opens a second ledger with so many times the epsilon. The ledger of the fit is opened as the
    estimators do, who refuse an account that cannot pay; with ``own_account=False`` it is opened in any case, and
    with a ``currency`` it is opened in that one, whatever the method chooses. ``units`` says whose rows belong
    together. Only errors of the package are caught.
    """
    table = table or make_table(loss)
    rows, delta = rows or table.rows, case.delta if delta is None else delta
    grid = FeatureGrid(1.0, table.features.shape[1])
    try:
        method, settings = METHODS[case.method], METHODS[case.method].settings(**case.options)
        penalty = L2(case.penalty, intercept=settings.paper)
        problem = LinearProblem(LOSSES[loss][0], grid, penalty, table.intercept, case.tilt, case.adversary)
        several = 1 if units is None else units.rows_per_unit
        protected = "one row" if units is None else "one person"
        facts = Facts(epsilon, delta, relation, rows, math.prod(problem.shape), several)
        method.require_units(several)
        own = open_ledger(case.method, method, settings, case.options, facts, None, protected)
        if currency is not None:
            own = Ledger(epsilon, delta, currency=currency, relation=relation)
        shared = None
        if account is not None:
            shared = Ledger(account * epsilon, delta, currency=own.currency, relation=relation)
            if own_account:
                own = open_ledger(case.method, method, settings, case.options, facts, shared)
                require_funds(shared, own)
    except DPDescentError as refusal:
        return refusal
    source = Watched(storage(grid.place(table.features)), table.labels, grid, block_rows)
    source.touches, source.ledgers = [], (own,) if shared is None else (own, shared)
    ran = Run(own, shared, source.touches, noise or LatticeNoise(Randomness(0)))
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            options = {"batch_rate": settings.batch_rate, "account": shared, "units": units}
            curator = Curator(source, problem, own, rows, noise=ran.noise, **options)
            ran.result = method.solve(curator, settings, ran.shares.append)
        except DPDescentError as refusal:
            ran.refusal = refusal
    ran.warned = [f"{each.category.__name__}: {each.message}" for each in caught]
    return ran


# Replaying ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Release:
    """What went into a mechanism, and what came out."""

    total: LatticeSum
    cost: Cost
    relation: Relation
    symmetric: bool
    answer: Any


class _NotedRandomness(Randomness):
    """Seeded bits that keep the names of the streams that were drawn."""

    def stream(self, mechanism: str, release: int) -> Bits:
        self.__dict__.setdefault("drawn", []).append((mechanism, release))
        return super().stream(mechanism, release)


class Recording(LatticeNoise):
    """Noise that keeps every sum, its cost, and the answer that was released for it."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(_NotedRandomness(seed))
        self.releases: list[Release] = []

    def release(self, total: LatticeSum, cost: Cost, relation: Relation, *, symmetric: bool = False) -> Any:
        answer = super().release(total, cost, relation, symmetric=symmetric)
        kept = LatticeSum(total.values.copy(), total.unit, total.sensitivity)
        self.releases.append(Release(kept, cost, relation, symmetric, _copied(answer)))
        return answer

    @property
    def choices(self) -> list[tuple[str, int]]:
        """The streams of bits for batches, permutations, points and public choices; not those of the noise."""
        drawn = self.randomness.__dict__.get("drawn", [])
        return [each for each in drawn if each[0] in ("batch", "permutation", "point", "public")]


class Replaying(Recording):
    """Noise that returns the answers of another run, and compares the sums with those of that run.

    ``shares`` are the distances of the sums, as shares of the sensitivity that both declare.
    """

    def __init__(self, recorded: Recording, *, compare: Callable[[Release], bool] = lambda _: True) -> None:
        super().__init__(recorded.randomness.seed or 0)
        self._left, self._compare = list(recorded.releases), compare
        self.shares: list[float] = []

    def release(self, total: LatticeSum, cost: Cost, relation: Relation, *, symmetric: bool = False) -> Any:
        assert self._left, "a neighbour is asked more"
        before = self._left.pop(0)
        assert (before.cost, before.relation, before.symmetric) == (cost, relation, symmetric)
        if self._compare(before):
            self.shares.append(share_of_sensitivity(before, total))
        self.releases.append(replace(before, total=total))
        return _copied(before.answer)

    @property
    def finished(self) -> bool:
        return not self._left


def _copied(answer: Any) -> Any:
    return answer.copy() if isinstance(answer, np.ndarray) else answer


def share_of_sensitivity(before: Release, total: LatticeSum) -> float:
    """Return how far two sums are apart, in the norm of their mechanism, as a share of what they declare.

    The distance and the bound are exact: a share above 1 is a breach, and raises.
    """
    first, sensitivity = before.total, before.total.sensitivity
    assert (first.unit, sensitivity, first.values.shape) == (total.unit, total.sensitivity, total.values.shape)
    moved = [int(a) - int(b) for a, b in zip(first.values.ravel(), total.values.ravel(), strict=True)]
    bound = Fraction(sensitivity.under(before.relation)) / Fraction(first.unit)
    if before.symmetric:
        assert (total.values == total.values.T).all()
    if sensitivity.norm is Norm.L2:
        squared = Fraction(sum(each * each for each in moved))
        assert squared <= bound**2
        return math.sqrt(squared / bound**2)
    sizes = [abs(each) for each in moved]
    spread = {Norm.L1: sum(sizes), Norm.MAX: max(sizes), Norm.RANGE: max(moved) - min(moved)}[sensitivity.norm]
    assert spread <= bound
    return float(spread / bound)


def assert_neighbours_see_the_same(recorded: Run, replayed: Run) -> None:
    """Assert that two runs which were given the same answers cannot be told apart."""
    assert isinstance(replayed.noise, Replaying)
    assert isinstance(recorded.noise, Recording)
    assert replayed.noise.finished
    assert recorded.visible == replayed.visible
    assert recorded.noise.choices == replayed.noise.choices


__all__ = [
    "CASES",
    "LOSSES",
    "PRIVATE",
    "RELATIONS",
    "BudgetExhausted",
    "Recording",
    "Replaying",
    "Run",
    "Table",
    "Variant",
    "assert_neighbours_see_the_same",
    "is_batched",
    "make_table",
    "run",
    "sparse",
]


#: Methods whose answers are sums of clipped rows.
CLIPPED = {"adam", "agd", "auto", "blgd", "blsgd", "blsgd-ac", "ftrl", "majority", "sgd", "sgd-adv", "svrg"}


def accepted(case: Variant, loss: str) -> bool:
    """Return whether a method takes a loss, by what both declare."""
    if (case.tilt or case.adversary) and not METHODS[case.method].robust:
        return False
    return METHODS[case.method].needs <= LOSSES[loss][0].offers
