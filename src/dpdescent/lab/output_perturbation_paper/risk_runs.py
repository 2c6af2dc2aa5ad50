"""Measure the rows of a table of bounds: excess risks, gradient evaluations and seconds on synthetic problems."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

import dpdescent

from ...accounting import ExponentialMechanism, Gaussian, Laplace, currency_named, loose_noise_multiplier
from ...arrays import Floats
from ...curator import ArraySource, Curator, LatticeNoise, drawn_minimiser, perturbed_minimiser, phased_minimiser
from ...errors import DPDescentError
from ...exact import FeatureGrid
from ...ledger import Ledger
from ...long_runs import Journal, Listener, measure_tasks, processors
from ...noise import Randomness
from ...problems import L2, LinearProblem
from ...solvers import METHODS, Facts
from . import DRAWN, PHASED, RiskRow, RiskTable
from .risk_problems import SMOOTH_STRONG, Groups, LongestRow
from .theorems import Constants, Prescription, prescription, tilted_prescription

_TINY_DELTA = 1e-20  # what norm-Laplace noise needs, which is pure but for a probability of 1e-27

_MOST_POINTS, _FINEST = 2**16, 2.0**-10  # points of a draw, and the half width of the last cell

_NEAREST = 2.0**-7  # of the sensitivity: the subgradient method needs some 30,000 steps for it

_FOUND = ("empirical", "population", "evaluations", "seconds", "spent_epsilon")


class Point(NamedTuple):
    """Where a bound is compared with what is measured; a function that is no mean has 0 rows."""

    rows: int
    dimension: int
    epsilon: float


@dataclass(frozen=True)
class Measured:
    """One release: its excess risk on the table and in the population, and what it took."""

    row: int
    rows: int
    dimension: int
    epsilon: float
    seed: int
    empirical: float | None = None
    population: float | None = None
    evaluations: int | None = None
    seconds: float | None = None
    spent_epsilon: float | None = None
    error: str = ""

    @property
    def point(self) -> Point:
        """Where."""
        return Point(self.rows, self.dimension, self.epsilon)


@dataclass(frozen=True)
class RiskRuns:
    """The runs of a table."""

    table: RiskTable
    full: bool  # with the repetitions of a full run
    repetitions: int | None = None  # those of a full run, in place of the table's

    @property
    def fingerprint(self) -> str:
        """What tells these numbers, under this release, from any other; a trial says itself which it is."""
        table = self.table
        rows = [(row.kind, row.reference, row.method, row.minimiser, row.tilted) for row in table.rows]
        text = json.dumps([dpdescent.__version__, table.name, table.mean, table.delta, rows])
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    def points(self, row: RiskRow) -> list[Point]:
        """Return the middle, and the points where one of n, d and epsilon has another value."""
        table = self.table
        if table.mean or row.tilted:
            grid: tuple[tuple[Any, ...], ...] = (table.sizes, table.dimensions, table.epsilons)
        else:
            grid = ((0,), table.general_dimensions, table.general_epsilons)
        middle = [values[len(values) // 2] for values in grid]
        changed = [
            (*middle[:place], value, *middle[place + 1 :])
            for place, values in enumerate(grid)
            for value in values
            if value != middle[place]
        ]
        return [Point._make(point) for point in (middle, *changed)]

    def __iter__(self) -> Iterator[Measured]:
        """Yield what is to be measured, without the measurements."""
        for place, row in enumerate(self.table.rows):
            if row.method:
                middle = row.timed_only or (row.middle_only and not self.full)
                for point in self.points(row)[: 1 if middle else None]:
                    for seed in range(self._seeds(row)):
                        yield Measured(place, *point, seed)

    @property
    def seeds(self) -> int:
        """How often the fast methods are repeated."""
        return (self.repetitions or self.table.full_seeds) if self.full else self.table.quick_seeds

    def _seeds(self, row: RiskRow) -> int:
        return 1 if row.timed_only else min(self.seeds, row.most_seeds[self.full])


def public_constants(table: RiskTable, row: RiskRow, point: Point) -> Constants:
    """Return what the bounds of a row depend on at a point."""
    if point.rows:
        return _groups(row, point, 0).constants(point.epsilon, table.delta)
    return LongestRow(row.kind, point.dimension, 0).constants(point.epsilon, table.delta)


def prescribed_for(table: RiskTable, row: RiskRow, point: Point) -> Prescription:
    """Return what the paper prescribes for a row of its own at a point."""
    constants = public_constants(table, row, point)
    if not row.tilted:
        return prescription(constants, population=table.population)
    groups = _groups(row, point, 0)
    return tilted_prescription(constants, groups.tilt, groups.spread)


def measure_risks(
    runs: RiskRuns,
    journal: Journal[Measured] | None = None,
    listener: Listener | None = None,
    jobs: int | None = None,
) -> list[Measured]:
    """Measure every run that a journal does not hold yet."""
    todo = [(runs.table, trial) for trial in runs]
    return measure_tasks(todo, _key, _measure, jobs=jobs or processors(), journal=journal, listener=listener)


def _key(task: tuple[RiskTable, Measured]) -> str:
    return json.dumps([task[1].row, *task[1].point, task[1].seed])


def _groups(row: RiskRow, point: Point, seed: int) -> Groups:
    return Groups(row.measured_on, point.rows, point.dimension, seed, row.tilted)


def _measure(task: tuple[RiskTable, Measured]) -> Measured:
    table, trial = task
    row = table.rows[trial.row]
    known = {"row": trial.row, **trial.point._asdict(), "seed": trial.seed}
    try:
        apart = {PHASED: _from_parts, DRAWN: _from_points}
        measure = apart.get(row.method, _from_rows if trial.rows else _from_function)
        found = measure(table, row, trial)
    except DPDescentError as refusal:
        return Measured(**known, error=f"{type(refusal).__name__}: {refusal}")
    return Measured(**known, **found)


def _from_function(table: RiskTable, row: RiskRow, trial: Measured) -> dict[str, Any]:
    """Release the minimiser of a function of the longest row."""
    problem, tally = LongestRow(row.kind, trial.dimension, trial.seed), [0]
    epsilon, delta = trial.epsilon, table.delta
    wanted = prescribed_for(table, row, trial.point)
    ledger = Ledger(epsilon, delta, relation="replace-one", currency="gdp" if delta else "pure")
    cost = Gaussian(loose_noise_multiplier(epsilon, delta)) if delta else Laplace(epsilon)  # equation (5)
    noise = LatticeNoise(Randomness(trial.seed))
    objective = problem.objective(wanted.regularisation, tally)
    # At the accuracy that is prescribed the distance is at most sqrt(2 alpha/mu); the default may be nearer.
    mu, usual = objective.strong_convexity, 1 / (256 if objective.smoothness < math.inf else 16)
    tolerance = min(usual, max(_NEAREST, math.sqrt(2 * wanted.accuracy / mu) * mu / objective.variation))
    radius = math.inf if row.kind == SMOOTH_STRONG else problem.radius
    start = time.process_time()
    weights = perturbed_minimiser(
        objective, ledger, cost, tolerance=tolerance, radius=radius, minimiser=row.minimiser, noise=noise
    )
    seconds = time.process_time() - start
    spent = ledger.spent_epsilon()
    return dict(zip(_FOUND, (problem.excess(weights), None, tally[0], seconds, spent), strict=True))


def _from_rows(table: RiskTable, row: RiskRow, trial: Measured) -> dict[str, Any]:
    """Run a method on rows of groups."""
    problem = _groups(row, trial.point, trial.seed)
    rows, labels = problem.table
    method, delta = METHODS[row.method], table.delta or _TINY_DELTA
    settings = method.settings(**_options(table, row, problem))
    grid = FeatureGrid(1.0, trial.dimension)
    facts = Facts(trial.epsilon, delta, "replace-one", trial.rows, trial.dimension)
    currency = currency_named(settings.choose_currency(facts), trial.epsilon, delta)
    ledger = Ledger(trial.epsilon, delta, currency=currency, relation="replace-one")
    own = row.method in ("expmech", "objpert")  # which add the quadratic themselves
    penalty = L2(0.0 if own else problem.strong_convexity)
    source = _CountedRows(grid.place(rows), labels, grid)
    curator = Curator(
        source,
        LinearProblem(problem.loss, grid, penalty=penalty, intercept=False, tilt=problem.tilt),
        ledger,
        trial.rows,
        noise=LatticeNoise(Randomness(trial.seed)),
    )
    problem.loss.tally[0] = 0
    start = time.process_time()
    weights = np.asarray(method.solve(curator, settings, None).weights)
    seconds = time.process_time() - start
    # The kink is minimised by way of smooth losses, so passes over the rows are counted instead of its gradients.
    evaluations = problem.loss.tally[0] + (source.read if problem.loss.hinge else 0)
    empirical, population = problem.excess(weights)
    spent = ledger.spent_epsilon()
    return dict(zip(_FOUND, (empirical, population, evaluations, seconds, spent), strict=True))


def _from_parts(table: RiskTable, row: RiskRow, trial: Measured) -> dict[str, Any]:
    """Release the last of a series of minimisers over disjoint parts of the rows."""
    problem, tally = _groups(row, trial.point, trial.seed), [0]
    ledger = Ledger(trial.epsilon, table.delta, relation="replace-one", currency="gdp")
    start = time.process_time()
    weights = phased_minimiser(
        lambda part, centre, pull: problem.part(part, centre, pull, tally),
        trial.rows,
        ledger,
        ledger.currency.gaussian(ledger.remaining),
        dimension=trial.dimension,
        lipschitz=problem.loss.lipschitz,
        radius=problem.radius,
        noise=LatticeNoise(Randomness(trial.seed)),
    )
    seconds = time.process_time() - start
    empirical, population = problem.excess(weights)
    spent = ledger.spent_epsilon()
    return dict(zip(_FOUND, (empirical, population, tally[0], seconds, spent), strict=True))


def _from_points(table: RiskTable, row: RiskRow, trial: Measured) -> dict[str, Any]:
    """Draw a point of a box in the ball by the exponential mechanism, then another of the cell around it, and so on.

    The loss of a row changes by at most the distance from the last point that was drawn; a row that is replaced
    changes the sum by that difference of two either way.
    """
    problem, epsilon, read = _groups(row, trial.point, trial.seed), trial.epsilon, [0]
    rows, labels = problem.table
    up, down = rows[labels > 0].sum(axis=0), rows[labels < 0].sum(axis=0)
    ledger = Ledger(epsilon, table.delta, relation="replace-one", currency="pure")
    noise = LatticeNoise(Randomness(trial.seed))
    per_axis = int(_MOST_POINTS ** (1 / trial.dimension) * (1 + 1e-12))
    draws = math.ceil(-math.log2(_FINEST) / math.log2(per_axis))
    weights, radius = np.zeros(trial.dimension), 1.0

    def score(points: Floats) -> Floats:
        read[0] += len(points) * trial.rows
        moved = [np.maximum(1 - sign * points, 0) - np.maximum(1 - sign * weights, 0) for sign in (1, -1)]
        return np.asarray(moved[0] @ up + moved[1] @ down)

    start = time.process_time()
    for _ in range(draws):
        weights = drawn_minimiser(
            score,
            ledger,
            ExponentialMechanism(epsilon / draws * (1 - 2.0**-40)),
            dimension=trial.dimension,
            radius=radius,
            spread=4 * radius,
            centre=weights,
            box=True,
            points=_MOST_POINTS,
            error=1e-9 * trial.rows,
            noise=noise,
        )
        radius /= per_axis
    seconds = time.process_time() - start
    empirical, population = problem.excess(weights)
    spent = ledger.spent_epsilon()
    return dict(zip(_FOUND, (empirical, population, read[0], seconds, spent), strict=True))


class _CountedRows(ArraySource):
    """Rows that count how many of them were read, times over."""

    read = 0

    def map_sum(self, function: Any, *columns: Any) -> Any:
        self.read += self.rows
        return super().map_sum(function, *columns)

    def map_rows(self, function: Any, *columns: Any) -> Any:
        self.read += self.rows
        return super().map_rows(function, *columns)


def _options(table: RiskTable, row: RiskRow, problem: Groups) -> dict[str, Any]:
    """Return the settings of a method: what is public about the problem, and the noise of the table."""
    pure, mu = table.delta == 0, problem.strong_convexity
    if row.method == "expmech":
        return {"row_bound": 1.0, "strong_convexity": mu, "localise": True}
    if row.method == "objpert":
        return {"row_bound": 1.0, "pure": pure, "strong_convexity": (mu or 1e-6) * problem.rows}
    if row.method == "outpert-gd":
        return {"row_bound": 1.0, "pure": pure}
    if row.method in ("sgd-adv", "svrg"):
        return {"clip_gradient": 1.0}
    chosen: dict[str, Any] = {"row_bound": 1.0, "pure": pure, "minimiser": row.minimiser}
    chosen |= {} if pure else {"sigma": "paper"}
    if mu:
        chosen["strong_convexity"] = mu * problem.rows
    if not mu or problem.loss.hinge or problem.tilt:
        chosen["radius"] = problem.radius * (1 + 2.0**-20)
    if not mu:
        chosen["population"] = table.population
    return chosen
