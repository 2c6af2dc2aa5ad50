"""The mechanisms and methods of the library on the worst neighbouring tables that are known.

**Mechanisms** are drawn by the functions of `dpdescent.curator.mechanisms` that draw the curator's noise, on sums as
far apart as their sensitivity allows: one number that a row moves by all of its sensitivity, or scores of which a row
raises one against another.

**Methods** are run as whole fits: on a table of which one row is nearly all there is, and on tables of many canaries.
The rows of the table add nothing to a gradient, because all of their features are 0, and one row sits at a corner of
the bounds: its gradient is as long as any and always points the same way. Under zero-out it is there or not; under
replace-one it takes the place of its mirror image.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ..accounting import (
    AboveThreshold,
    Cost,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    ReportNoisyMax,
    gaussian_noise_multiplier,
)
from ..arrays import Floats
from ..curator import ArraySource, Curator, LatticeNoise
from ..curator.lattice_noise import first_above_threshold, least_scores, normalised_queries
from ..errors import InvalidParameter
from ..estimators.arguments import known_method, make_settings
from ..estimators.payment import open_ledger
from ..exact import FeatureGrid, LatticeSum
from ..ledger import Ledger
from ..noise import Randomness
from ..problems import LinearProblem, Logistic, Need
from ..relations import Norm, Relation, Sensitivity
from ..solvers import Facts
from .audit_runs import Outcomes, Subject, plain
from .decision import Rule
from .findings import Claim
from .recording import IN_THE_OBJECTIVE, Recording, Replaying, log_ratio

#: What an attacker sees: everything that was released, or the last weights.
Attack = Literal["transcript", "model"]

_UNIT = 2.0**-30
_RARE = 3.0  # logit of the event that tells the tables apart: rare events show nearly all of epsilon


@dataclass(frozen=True)
class Mechanism(Subject):
    """A mechanism, and the sums of two neighbouring tables."""

    cost: Cost  # which mechanism, with how much noise
    claim: Claim  # what it promises
    sums: tuple[tuple[float, ...], tuple[float, ...]]  # what the rows of each table add up to
    sensitivity: Sensitivity
    relation: Relation
    chunk = 2**15

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the answers of independent releases."""
        noise, cost, relation = LatticeNoise(Randomness(seed)), self.cost, self.relation
        values = np.rint(np.array(self.sums[neighbour]) / _UNIT).astype(np.int64)
        total = LatticeSum(values, _UNIT, self.sensitivity)
        if isinstance(cost, Gaussian | Laplace):  # independent noise on every coordinate: all runs are one draw
            return _as_lists(noise.release(replace(total, values=np.tile(values, (runs, 1))), cost, relation))
        bits = noise.randomness.stream(cost.kind, 0)
        if isinstance(cost, ExponentialMechanism | ReportNoisyMax):
            return _as_lists(least_scores(bits, total, cost, relation, runs)[:, None])
        if isinstance(cost, AboveThreshold):
            return _as_lists(
                first_above_threshold(bits, normalised_queries(total, cost, relation), cost, runs)[:, None]
            )
        return [plain(noise.release(total, cost, relation)) for _ in range(runs)]


def _as_lists(answers: NDArray[Any]) -> list[list[float] | str]:
    listed: list[list[float] | str] = answers.astype(np.float64).tolist()
    return listed


def _of_number(cost: Cost, claim: Claim, norm: Norm, relation: Relation) -> Mechanism:
    """A sum of numbers in [-1, 1]: a row of 1 is added, or takes the place of one of -1."""
    low = 0.0 if relation is Relation.ZERO_OUT else -1.0
    return Mechanism(cost, claim, ((low,), (1.0,)), Sensitivity.of_signed_sum(1.0, norm), relation)


def _of_scores(make: Callable[[float], Cost], epsilon: float, _: float, relation: Relation) -> Mechanism:
    """Two scores, of which a row raises the second; one that it takes the place of raised the first.

    The first is worse by so much that it is rarely chosen, and e^epsilon times as often on the neighbour: the ratio
    of probabilities comes near e^epsilon for rare events only.
    """
    sensitivity = Sensitivity.of_scores(1.0)
    change = sensitivity.under(relation)
    behind = max(_RARE, epsilon) / epsilon * change
    first = (behind, 0.0) if relation is Relation.ZERO_OUT else (behind + 1.0, 0.0)
    return Mechanism(make(epsilon), "approximate", (first, (behind, 1.0)), sensitivity, relation)


def _search(epsilon: float, _: float, relation: Relation) -> Mechanism:
    """Queries that a row lowers, but for the last, which it raises: the order in which the threshold costs most.

    Half of epsilon goes to the threshold and a quarter to each direction of a query. The number of queries and where
    they sit make the exact law tell the tables apart best, at an epsilon of 1.
    """
    queries, scale = 8, 4 / epsilon
    cost = AboveThreshold(queries, scale, scale / 2)
    change = Sensitivity.of_signed_sum(1.0).under(relation)
    start = np.full(queries, scale * change / 4)
    step = np.full(queries, -change)
    step[-1] = change
    sums = tuple(start.tolist()), tuple((start + step).tolist())
    return Mechanism(cost, "approximate", sums, Sensitivity.of_signed_sum(1.0), relation)


def _gaussian(epsilon: float, delta: float, relation: Relation) -> Mechanism:
    if delta == 0:
        raise InvalidParameter("Gaussian noise has no epsilon at a delta of 0: pass --delta, well below 1/n")
    return _of_number(Gaussian(gaussian_noise_multiplier(epsilon, delta)), "gdp", Norm.L2, relation)


def _laplace(epsilon: float, _: float, relation: Relation) -> Mechanism:
    return _of_number(Laplace(epsilon), "approximate", Norm.L1, relation)


def _norm_laplace(epsilon: float, _: float, relation: Relation) -> Mechanism:
    return _of_number(NormLaplace(epsilon), "approximate", Norm.L2, relation)


#: Mechanisms by name: each makes the worst pair from epsilon, delta and the relation.
MECHANISMS: dict[str, Callable[[float, float, Relation], Mechanism]] = {
    "above-threshold": _search,
    "gaussian": _gaussian,
    "laplace": _laplace,
    "norm-laplace": _norm_laplace,
    "report-noisy-max": partial(_of_scores, ReportNoisyMax),
    "selection": partial(_of_scores, ExponentialMechanism),
}


@dataclass(frozen=True)
class AuditedFit:
    """A method, its guarantee, and the public size of its table."""

    method: str
    epsilon: float
    delta: float
    relation: Relation = Relation.ZERO_OUT
    rows: int = 64
    columns: int = 2
    options: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not known_method(self.method).private:
            raise InvalidParameter(f"method {self.method!r} claims no privacy, so there is nothing to audit")
        self._ledger()

    @property
    def claim(self) -> Claim:
        """What the filter of the fit promises."""
        return "gdp" if self._ledger().currency.name == "gdp" else "approximate"

    @property
    def _intercept(self) -> bool:
        """Whether there is a constant column: only for methods that are nothing without one."""
        return Need.CONSTANT in known_method(self.method).needs

    def _ledger(self) -> Ledger:
        method, settings = known_method(self.method), make_settings(self.method, self.options)
        facts = Facts(self.epsilon, self.delta, str(self.relation), self.rows, self.columns)
        return open_ledger(self.method, method, settings, self.options, facts, None)

    def _solve(self, features: Floats, labels: Floats, noise: LatticeNoise) -> tuple[Floats, Ledger]:
        """Fit a table whose public number of rows is that of the settings; return the weights and the ledger."""
        grid, ledger = FeatureGrid(1.0, self.columns), self._ledger()
        method, settings = known_method(self.method), make_settings(self.method, self.options)
        source = ArraySource(grid.place(features), labels, grid)
        problem = LinearProblem(Logistic(), grid, intercept=self._intercept)
        curator = Curator(source, problem, ledger, self.rows, noise=noise, batch_rate=settings.batch_rate)
        return method.solve(curator, settings).weights, ledger


@dataclass(frozen=True)
class MethodRun(AuditedFit, Subject):
    """A whole fit with and without one row."""

    attack: Attack = "transcript"
    chunk = 10

    def known(self, outcomes: Outcomes) -> Rule | None:
        """Return the test that likelihood ratios come with: 0 is as likely on both tables. Weights come with none."""
        return Rule("errors", 0.0) if outcomes.shape[1] > self.columns else None

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the log ratio of likelihoods and the weights of several fits, or the weights alone."""
        generator = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
        return [plain(self._show(neighbour, int(word))) for word in generator.integers(2**62, size=runs)]

    def _show(self, neighbour: bool, seed: int) -> Floats:
        noise = Recording(seed)
        weights, ledger = self._solve(*self._table(neighbour), noise)
        if self.attack == "model" or any(isinstance(entry.cost, IN_THE_OBJECTIVE) for entry in ledger.entries):
            return weights
        replays = [Replaying(noise), Replaying(noise)]
        for side, replay in zip((False, True), replays, strict=True):
            self._solve(*self._table(side), replay)
        return np.append(log_ratio(replays[0].released, replays[1].released), weights)

    def _table(self, neighbour: bool) -> tuple[Floats, Floats]:
        features, labels = np.zeros((self.rows, self.columns)), np.ones(self.rows)
        features[:, self.columns - self._intercept :] = 1.0
        if neighbour:
            features[0] = 1.0
        elif self.relation is Relation.ZERO_OUT:
            features, labels = features[1:], labels[1:]
        else:
            features[0, : self.columns - self._intercept], labels[0] = -1.0, 1.0 - 2.0 * self._intercept
        return features, labels


@dataclass(frozen=True)
class CanaryRun(AuditedFit, Subject):
    """Whole fits of tables in which each of many rows is there, or not, by the toss of a coin.

    There are as many rows as columns, each with a column of its own, and a row pushes the weight of its column up.
    The largest weights are guessed to belong to rows that are there and the smallest to rows that are not.
    """

    #: The number of canaries.
    rows: int = 128
    columns: int = 128
    #: How many of them are guessed in a run; an even number. Fixed beforehand, as the bound asks.
    guesses: int = 32
    chunk = 10

    def __post_init__(self) -> None:
        super().__post_init__()
        if self._intercept:
            raise InvalidParameter(f"method {self.method!r} has no weight for a canary: use another attack")
        if self.rows != self.columns or not 0 < self.guesses <= self.rows or self.guesses % 2:
            raise InvalidParameter("canaries need a column each, and an even number of guesses that they suffice for")

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the number of right guesses in each of several fits."""
        generator = np.random.default_rng(secrets.randbits(128) if seed is None else seed)
        return [[float(self._count_right(generator))] for _ in range(runs)]

    def _count_right(self, generator: np.random.Generator) -> int:
        there = generator.random(self.rows) < 0.5
        if self.relation is Relation.ZERO_OUT:
            features = np.eye(self.rows)[there]
        else:
            features = np.eye(self.rows) * np.where(there, 1.0, -1.0)[:, None]
        noise = LatticeNoise(Randomness(int(generator.integers(2**62))))
        weights, _ = self._solve(features, np.ones(len(features)), noise)
        order, half = np.argsort(weights, kind="stable"), self.guesses // 2
        return int(np.count_nonzero(there[order[-half:]]) + np.count_nonzero(~there[order[:half]]))
