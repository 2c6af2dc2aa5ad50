"""Tables of descents to second-order points: how low, how fast, how many Hessians, and whether the run ended there.

Final losses are looked up without privacy: they are for public data only.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import mean, pstdev
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import dpdescent

from ..accounting import currency_named
from ..curator import ArraySource, Curator, LatticeNoise
from ..errors import GuaranteeWarning, InvalidParameter
from ..estimators.reading import compact
from ..estimators.scaling import ColumnScaling
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..noise import Randomness
from ..outputs import write_whole
from ..problems import LinearProblem, Loss, Penalty
from ..solvers import METHODS, Facts, SecondOrderResult
from .cells import Task, load_task
from .report import Finding, Matrix, Report, render
from .runner import Journal, Listener
from .study import versions

__all__ = ["Outcome", "Run", "StationaryTable", "TableRuns", "measure_table", "write_table"]

Floats = NDArray[np.float64]

_CROSS = "×"


@dataclass(frozen=True)
class StationaryTable:
    """The tables of one data set and one loss.

    Parameters
    ----------
    name, title, caption : str
    dataset : str
    row_bound : float
        Public bound on the length of a row, scaled by the bounds of its columns.
    loss, penalty : Loss, Penalty
    tolerances : tuple of (str, float)
        A name and the a of the tolerances (a, sqrt(a)).
    methods : tuple of str
    epsilons, delta : tuple of float, float
    seeds : int
        Repetitions of a full run; a quick one has one.
    quick_rows, quick_steps, full_steps : int
        How many rows a quick run takes, and after how many steps of a phase a quick and a full run give up.
    """

    name: str
    title: str
    caption: str
    dataset: str
    row_bound: float
    loss: Loss
    penalty: Penalty
    tolerances: tuple[tuple[str, float], ...]
    methods: tuple[str, ...] = ("dp-tr", "opt", "opt-b", "opt-ls", "2opt", "2opt-b", "2opt-ls")
    epsilons: tuple[float, ...] = (0.2, 0.6, 1.0)
    delta: float = 1e-6
    seeds: int = 5
    quick_rows: int = 50_000
    quick_steps: int = 200
    full_steps: int = 2000


@dataclass(frozen=True)
class Outcome:
    """One run."""

    method: str
    tolerance: str
    epsilon: float
    seed: int
    loss: float
    seconds: float
    iterations: int
    hessians: int
    success: bool
    spent_epsilon: float


@dataclass(frozen=True)
class TableRuns:
    """The runs of a table.

    Parameters
    ----------
    table : StationaryTable
    full : bool
        All rows and seeds.
    dataset : str
        The data set, that of the table or a stand-in.
    """

    table: StationaryTable
    full: bool
    dataset: str

    @property
    def fingerprint(self) -> str:
        """What tells these settings, under this release, from any other."""
        return hashlib.sha256(f"{dpdescent.__version__} {self}".encode()).hexdigest()[:16]

    def __iter__(self) -> Iterator[Run]:
        table = self.table
        for tolerance, size in table.tolerances:
            for epsilon in table.epsilons:
                for seed in range(table.seeds if self.full else 1):
                    for method in table.methods:
                        yield Run(tolerance, size, epsilon, method, seed)


class Run(NamedTuple):
    """One of them: a tolerance and the a of (a, sqrt(a)), a budget, a method and a seed."""

    tolerance: str
    size: float
    epsilon: float
    method: str
    seed: int


def measure_table(
    runs: TableRuns, journal: Journal[Outcome] | None = None, listener: Listener | None = None
) -> list[Outcome]:
    """Measure every run that a journal does not hold yet, one after another with all processors."""
    rows, labels, problem = _problem(runs)
    source = ArraySource(rows, labels, problem.grid)
    done = dict(journal.rows) if journal is not None else {}
    todo = list(runs)
    if listener is not None:
        listener(sum(json.dumps(run) in done for run in todo), len(todo))  # the first run may take minutes
    for run in todo:
        key = json.dumps(run)
        if key not in done:
            outcome, weights = _measure(run, runs, source, problem)
            loss = float(problem.loss.values(rows @ weights, labels).mean()) + problem.penalty_value(weights)
            done[key] = replace(outcome, loss=loss)
            if journal is not None:
                journal.add(key, done[key])
        if listener is not None:
            listener(len(done), len(todo))
    return [done[json.dumps(run)] for run in todo]


def _measure(run: Run, runs: TableRuns, source: ArraySource, problem: LinearProblem) -> tuple[Outcome, Floats]:
    """Return the outcome of a run, its loss left out, and the weights that it arrived at."""
    delta = runs.table.delta
    method = METHODS[run.method]
    options = {
        "gradient_tolerance": run.size,
        "curvature_tolerance": run.size**0.5,
        "start_scale": 1.0,
        "most_steps": runs.table.full_steps if runs.full else runs.table.quick_steps,
    }
    settings = method.settings(**options)
    facts = Facts(run.epsilon, delta, "zero-out", source.rows, problem.grid.dimension)
    currency = currency_named(settings.choose_currency(facts), run.epsilon, delta)
    ledger = Ledger(run.epsilon, delta, currency=currency, relation="zero-out")
    noise = LatticeNoise(Randomness(run.seed))
    curator = Curator(source, problem, ledger, source.rows, noise=noise)
    start = time.perf_counter()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)  # the caption speaks of it
        result = method.solve(curator, settings, None)
    seconds = time.perf_counter() - start
    assert isinstance(result, SecondOrderResult)
    counts = result.iterations, result.hessians, result.success, ledger.spent_epsilon()
    outcome = Outcome(run.method, run.tolerance, run.epsilon, run.seed, math.nan, seconds, *counts)
    return outcome, result.weights


def write_table(
    table: StationaryTable, outcomes: list[Outcome], page: Path, json_file: Path | None, extent: str
) -> tuple[Finding, ...]:
    """Write the page and the rows; return what was found of the paper's claims."""
    findings = tuple(_findings(table, outcomes))
    matrices = tuple(
        _matrix(
            table,
            [each for each in outcomes if each.tolerance == name],
            f"{name} ({size:g}, {size**0.5:.3f}): {what}",
            cell,
        )
        for name, size in table.tolerances
        for what, cell in _CELLS.items()
    )
    notes = (
        f"Mean ± standard deviation over several seeds; {_CROSS}: a run did not end at a second-order point.",
        "Every run is (epsilon, delta)-differentially private for one row under zero-out; seeded, not for release. "
        "Final losses and times are not private.",
    )
    settings = (
        ("data", table.dataset),
        ("longest row", f"{table.row_bound:.4g}; longer ones would be scaled down"),
        ("loss, penalty", f"{table.loss}, {table.penalty}"),
        ("start", "independent standard normal weights, drawn from the seed"),
        ("delta", f"{table.delta:g}"),
        ("versions", ", ".join(f"{key} {value}" for key, value in versions().items())),
    )
    write_whole(
        page, render(Report(table.title, f"{table.caption} {extent}", (), findings, matrices, (), settings, notes))
    )
    if json_file is not None:
        content = {"figure": table.name, "dataset": table.dataset, "delta": table.delta, "versions": versions()}
        write_whole(json_file, json.dumps(content | {"rows": [asdict(each) for each in outcomes]}, indent=1) + "\n")
    return findings


def _problem(runs: TableRuns) -> tuple[Any, Floats, LinearProblem]:
    """Return the rows, scaled by their public bounds and to the row bound, their labels, and the objective."""
    table = runs.table
    data = load_task(Task(runs.dataset, rows=None if runs.full else table.quick_rows), download=True)
    if len(data.classes) != 2:
        raise InvalidParameter(f"{table.name} needs a data set of two classes, and {data.name!r} has another number")
    columns = data.X.shape[1]
    grid = FeatureGrid(1.0, columns, table.row_bound)
    rows = compact(grid.place(ColumnScaling.from_bounds(data.bounds, columns).apply(data.X)))
    labels = np.where(data.y == data.classes[1], 1.0, -1.0)
    return rows, labels, LinearProblem(table.loss, grid, table.penalty, False)


def _spread(values: list[float], digits: int) -> str:
    spread = f" ± {pstdev(values):.{digits}f}" if len(values) > 1 else ""
    return f"{mean(values):.{digits}f}{spread}"


def _loss(outcomes: list[Outcome]) -> str:
    return _spread([each.loss for each in outcomes], 3)


def _seconds(outcomes: list[Outcome]) -> str:
    failed = "" if all(each.success for each in outcomes) else f" {_CROSS}"
    return _spread([each.seconds for each in outcomes], 2) + failed


def _iterations(outcomes: list[Outcome]) -> str:
    return f"{mean(each.iterations for each in outcomes):.1f}"


def _hessians(outcomes: list[Outcome]) -> str:
    return f"{mean(each.hessians for each in outcomes):.1f}"


_CELLS: dict[str, Callable[[list[Outcome]], str]] = {
    "final loss": _loss,
    "seconds": _seconds,
    "iterations": _iterations,
    "Hessians": _hessians,
}


def _matrix(
    table: StationaryTable, outcomes: list[Outcome], title: str, cell: Callable[[list[Outcome]], str]
) -> Matrix:
    lines = []
    for method in table.methods:
        own = [each for each in outcomes if each.method == method]
        lines.append((method, *(cell([each for each in own if each.epsilon == e]) for e in table.epsilons)))
    return Matrix(title, ("method", *(f"epsilon {epsilon:g}" for epsilon in table.epsilons)), tuple(lines))


def _findings(table: StationaryTable, outcomes: list[Outcome]) -> Iterator[Finding]:
    """Compare what was found with what the paper says of its tables."""

    def average(method: str, tolerance: str, epsilon: float) -> float:
        return mean(o.seconds for o in outcomes if (o.method, o.tolerance, o.epsilon) == (method, tolerance, epsilon))

    for tolerance, _ in table.tolerances:
        own = [each for each in outcomes if each.tolerance == tolerance]
        ended = [
            f"{method} at {epsilon:g}"
            for method in table.methods
            for epsilon in table.epsilons
            if not all(o.success for o in own if (o.method, o.epsilon) == (method, epsilon))
        ]
        yield Finding(
            f"{tolerance}: OPT and OPT-LS may fail to terminate at epsilon 0.2, the others terminate.",
            f"Not terminated in some run: {', '.join(ended) or 'none'}.",
        )
        if {"dp-tr", "2opt-ls"} <= set(table.methods):
            ratios = [average("dp-tr", tolerance, e) / average("2opt-ls", tolerance, e) for e in table.epsilons]
            shown = ", ".join(f"{r:.1f} at {e:g}" for r, e in zip(ratios, table.epsilons, strict=True))
            yield Finding(
                f"{tolerance}: 2OPT-LS takes a fifth to a tenth of the time of TR.", f"TR / 2OPT-LS: {shown}."
            )
        counts = {m: mean(o.hessians for o in own if o.method == m) for m in table.methods}
        yield Finding(
            f"{tolerance}: hardly any Hessian is evaluated, but by TR in each iteration.",
            ", ".join(f"{name} {count:.1f}" for name, count in counts.items()) + ".",
        )
