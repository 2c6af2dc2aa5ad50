"""Gao & Wright (2023), second-order points: how low, how fast, how many Hessians, and whether a run ended there.

Final losses are looked up without privacy: they are for public data only.

The picture and the page of a table of second-order descents, and what was found of the paper's claims.
"""

from __future__ import annotations

import hashlib
import json
import math
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field as with_default, replace
from pathlib import Path
from statistics import mean, stdev
from typing import Any, NamedTuple

import numpy as np

import dpdescent

from ..accounting import currency_named
from ..arrays import Floats
from ..curator import ArraySource, Curator, LatticeNoise
from ..errors import GuaranteeWarning, InvalidParameter
from ..estimators.reading import compact
from ..estimators.scaling import ColumnScaling
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..long_runs import Journal, Listener, measure_tasks
from ..noise import Randomness
from ..problems import L2, LinearProblem, Logistic, Loss, NonConvex, Penalty, Sigmoid
from ..solvers import METHODS, Facts, SecondOrderResult
from ..statement import guarantee
from .drawing import Line, Panel, draw
from .fold_fits import Task, load_task
from .method_looks import look_of
from .report_page import Finding, Matrix, Picture, Report, write_report
from .study import repeated, versions, versions_setting
from .verdicts import EXPLANATION, Checked, Key, Margin, Sample, cells_of, every, pooled, told

_LOW, _HIGH = 0.2, (0.6, 1.0)  # what the paper calls low and high budgets


@dataclass(frozen=True)
class StationaryTable:
    """The tables of one data set and one loss."""

    name: str
    title: str
    caption: str
    details: tuple[str, ...]  # what differs from the paper
    dataset: str
    row_bound: float  # public bound on the length of a row, scaled by the bounds of its columns
    loss: Loss
    penalty: Penalty
    tolerances: tuple[tuple[str, float], ...]  # a name and the a of the tolerances (a, sqrt(a))
    methods: tuple[str, ...] = ("dp-tr", "opt", "opt-b", "opt-ls", "2opt", "2opt-b", "2opt-ls", "dp-gd")
    epsilons: tuple[float, ...] = (0.2, 0.6, 1.0)
    delta: float = 1e-6
    training: bool = False  # take the training part of the published file alone
    #: Repetitions of a full and of a quick run.
    seeds: int = 5
    quick_seeds: int = 2
    #: Those of a quick run: loose enough for most of its runs to end.
    quick_tolerances: tuple[tuple[str, float], ...] = (("loose", 0.06),)
    #: After how many steps of a phase a quick run gives up; a full one goes to the end of its plan.
    quick_steps: int = 200
    #: By tolerance and method, the final losses that the paper prints, one for each epsilon.
    printed: Mapping[tuple[str, str], tuple[float | None, ...]] = with_default(default_factory=dict)

    def printed_at(self, tolerance: str, method: str, epsilon: float) -> float | None:
        """Return the final loss that the paper prints, where its text can be read."""
        losses = self.printed.get((tolerance, method), ())
        return dict(zip((_LOW, *_HIGH), losses, strict=False)).get(epsilon)


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
    """The runs of a table."""

    table: StationaryTable
    full: bool  # all rows and seeds
    dataset: str  # the data set, that of the table or a stand-in
    repetitions: int | None = None  # seeds of a full run, in place of the paper's
    #: After how many steps of a phase a full run gives up, in place of the end of its plan.
    steps: int | None = None

    @property
    def most_steps(self) -> int | None:
        """After how many steps of a phase a run gives up."""
        return self.steps if self.full else self.table.quick_steps

    @property
    def fingerprint(self) -> str:
        """What tells the numbers of these runs, under this release, from any other; a run says itself which it is."""
        table = self.table
        shown = [table.loss, table.penalty, table.row_bound, table.delta, table.training, self.dataset]
        return hashlib.sha256(f"{dpdescent.__version__} {shown} {self.most_steps}".encode()).hexdigest()[:16]

    @property
    def tolerances(self) -> tuple[tuple[str, float], ...]:
        """The tolerances that are run."""
        return self.table.tolerances if self.full else self.table.quick_tolerances

    @property
    def seeds(self) -> int:
        """How many seeds are run."""
        return (self.repetitions or self.table.seeds) if self.full else self.table.quick_seeds

    @property
    def extent(self) -> str:
        """How much of the paper's table this is, in words."""
        table = self.table
        stand_in = f" Run on {self.dataset} instead of the paper's data." if self.dataset != table.dataset else ""
        if self.full:
            end = (
                "to the ends of their plans"
                if self.steps is None
                else f"given up after {self.steps} steps of a phase"
            )
            return f"Full run: {repeated(self.seeds, table.seeds, 'seeds')}, {end}.{stand_in}"
        shown = " and ".join(f"({size:g}, {size**0.5:.3f})" for _, size in table.quick_tolerances)
        return (
            f"Quick run: {table.quick_seeds} seeds, tolerances {shown}, given up after {table.quick_steps} steps of "
            f"a phase; the paper has {table.seeds} seeds.{stand_in}"
        )

    def __iter__(self) -> Iterator[Run]:
        table = self.table
        for tolerance, size in self.tolerances:
            for epsilon in table.epsilons:
                for seed in range(self.seeds):
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

    def measure(run: Run) -> Outcome:
        outcome, weights = _measure(run, runs, source, problem)
        loss = float(problem.loss.values(rows @ weights, labels).mean()) + problem.penalty_value(weights)
        return replace(outcome, loss=loss)

    return measure_tasks(list(runs), json.dumps, measure, journal=journal, listener=listener)


def _measure(run: Run, runs: TableRuns, source: ArraySource, problem: LinearProblem) -> tuple[Outcome, Floats]:
    """Return the outcome of a run, its loss left out, and the weights that it arrived at."""
    delta = runs.table.delta
    method = METHODS[run.method]
    options = {
        "gradient_tolerance": run.size,
        "curvature_tolerance": run.size**0.5,
        "start_scale": 1.0,
        "most_steps": runs.most_steps,
        "paper": True,
    }
    settings = method.settings(**options)
    facts = Facts(run.epsilon, delta, "zero-out", source.rows, problem.grid.dimension)
    currency = currency_named(settings.choose_currency(facts), run.epsilon, delta)
    ledger = Ledger(run.epsilon, delta, currency=currency, relation="zero-out")
    noise = LatticeNoise(Randomness(run.seed))
    curator = Curator(source, problem, ledger, source.rows, noise=noise)
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)  # the caption speaks of it
        result = method.solve(curator, settings, None)
    seconds = time.process_time() - start
    assert isinstance(result, SecondOrderResult)
    counts = result.iterations, result.hessians, result.success, ledger.spent_epsilon()
    outcome = Outcome(run.method, run.tolerance, run.epsilon, run.seed, math.nan, seconds, *counts)
    return outcome, result.weights


def _problem(runs: TableRuns) -> tuple[Any, Floats, LinearProblem]:
    """Return the rows, scaled by their public bounds and to the row bound, their labels, and the objective."""
    table = runs.table
    data = load_task(Task(runs.dataset), download=True)
    if table.training and data.split is not None:
        kept = data.split == "train"
        data = replace(data, X=data.X[kept], y=data.y[kept], table=None, split=None)
    if len(data.classes) != 2:
        raise InvalidParameter(f"{table.name} needs a data set of two classes, and {data.name!r} has another number")
    columns = data.X.shape[1]
    grid = FeatureGrid(1.0, columns, table.row_bound)
    rows = compact(grid.place(ColumnScaling.from_bounds(data.bounds, columns).apply(data.X)))
    labels = np.where(data.y == data.classes[1], 1.0, -1.0)
    return rows, labels, LinearProblem(table.loss, grid, table.penalty, False)


_PAPER = "the tables of `Differentially private optimization for smooth non-convex ERM' (2022)"
_RELATION = "Neighbours are those of zero-out."
_DETAILS = (
    "The paper's neighbours differ in one row that is changed; here a row is taken out (zero-out). Noise on "
    "gradients and Hessians of all rows is that of the paper all the same; that of batches and searches is the least "
    "that is private.",
    "Columns are scaled by public bounds; numbers are then at most 1 and one of a group of indicators is 1, which "
    "bounds the length of a row, and all constants follow from that. The paper states neither delta nor its "
    "constants.",
    "With so few rows most runs are promised nothing, as in the paper.",
)
_ROWS = {
    "covertype": "All 495,141 rows of its first two classes, as in the paper.",
    "ijcnn1": "The 49,990 rows of the training file; the paper prints 4999.",
}
# Of runs that take minutes: tolerances that most methods reach in 200 steps, and that not every start satisfies.
_QUICK = {"covertype": 0.06, "ijcnn1": 0.13, "covertype-sigmoid": 0.02, "ijcnn1-sigmoid": 0.06}
_TIGHTER = (("loose", 0.04), ("tight", 0.02))

#: The final losses that the paper prints, by table, and by tolerance and method; of some rows the text is damaged.
_PRINTED: Mapping[str, Mapping[tuple[str, str], tuple[float | None, ...]]] = {
    "covertype": {
        ("loose", "opt-b"): (0.712, 0.712, 0.712),
        ("loose", "opt-ls"): (0.577, 0.687, 0.699),
        ("loose", "2opt"): (0.626, 0.712, 0.712),
        ("loose", "2opt-b"): (0.712, 0.712, 0.712),
        ("loose", "2opt-ls"): (0.699, 0.699, 0.699),
    },
    "covertype-sigmoid": {
        ("loose", "2opt"): (0.539, 0.539, 0.539),
        ("loose", "2opt-b"): (0.539, 0.539, 0.539),
        ("loose", "2opt-ls"): (0.539, 0.539, 0.539),
        ("tight", "2opt-b"): (0.454, 0.454, 0.454),
        ("tight", "2opt-ls"): (0.441, 0.447, 0.447),
    },
    "ijcnn1-sigmoid": {
        ("loose", "opt-b"): (0.501, 0.501, 0.501),
        ("loose", "opt-ls"): (0.607, 0.473, 0.454),
        ("loose", "2opt"): (None, 0.501, 0.501),
        ("loose", "2opt-b"): (0.501, 0.501, 0.501),
        ("loose", "2opt-ls"): (1.002, 0.501, 0.501),
        ("tight", "2opt-b"): (0.502, 0.502, 0.502),
        ("tight", "2opt-ls"): (3.504, 0.798, 0.459),
    },
}

STATIONARY_TABLES = tuple(
    StationaryTable(
        name=f"002/{dataset}{mark}",
        title=f"Second-order points on {shown}: {what}",
        caption=f"{what[:1].upper()}{what[1:]}, after {_PAPER}. {_ROWS[dataset]} {_RELATION}",
        details=_DETAILS,
        dataset=dataset,
        row_bound=row_bound,
        loss=loss,
        penalty=penalty,
        tolerances=(("loose", 0.06), ("tight", 0.03)) if (dataset, mark) == ("covertype", "") else _TIGHTER,
        training=dataset == "ijcnn1",
        quick_seeds=5 if dataset == "ijcnn1" else 2,
        quick_tolerances=(("quick", _QUICK[f"{dataset}{mark}"]),),
        printed=_PRINTED.get(f"{dataset}{mark}", {}),
    )
    for mark, what, loss, penalty in (
        ("", "the logistic loss with a non-convex penalty", Logistic(), NonConvex(1e-3)),
        ("-sigmoid", "the sigmoid loss with an L2 penalty", Sigmoid(), L2(1e-3)),
    )
    # Ten numbers and two groups of indicators; twelve numbers and one group.
    for dataset, shown, row_bound in (("covertype", "Covertype", 12**0.5), ("ijcnn1", "IJCNN1", 13**0.5))
)


_CROSS = "×"
_SHOWN = {
    "loss": ("final loss", 3),
    "seconds": ("seconds", 2),
    "iterations": ("iterations", 1),
    "hessians": ("Hessians", 1),
}


def write_table(
    runs: TableRuns, outcomes: list[Outcome], stem: Path, page: Path, json_file: Path | None, command: str
) -> tuple[tuple[Path, Path], Report]:
    """Write picture, page and rows; return the pictures and the report."""
    table = runs.table
    samples = samples_of(outcomes)
    pictures = draw(table_panels(table, runs.tolerances, samples), stem, 4, command)
    findings = tuple(table_findings(table, runs.tolerances, samples))
    matrices = tuple(_matrix(runs, outcomes, name, size, field) for name, size in runs.tolerances for field in _SHOWN)
    notes = (
        f"{EXPLANATION} The paper makes its claims of Covertype and the non-convex penalty; here each is asked of "
        "every table.",
        f"Mean ± standard error over seeds; {_CROSS}: a run did not end at a second-order point. In brackets, and as "
        "hollow marks, what the paper prints, where its text can be read.",
        f"Every run is {guarantee('epsilon', 'delta', 'zero-out')}; seeded, not for release. "
        "Final losses and times are not private.",
    )
    settings = (
        ("data", f"{runs.dataset}{', the training part' if table.training else ''}"),
        ("longest row", f"{table.row_bound:.4g}; longer ones would be scaled down"),
        ("loss, penalty", f"{table.loss}, {table.penalty}"),
        ("start", "independent standard normal weights, drawn from the seed"),
        ("delta", f"{table.delta:g}"),
        versions_setting(),
    )
    picture = Picture(pictures[1], "final loss and seconds of each method against epsilon, for each tolerance")
    rows = [asdict(each) for each in outcomes]
    cells = cells_of(rows, ("tolerance", "method", "epsilon"), (*_SHOWN, "success"))
    report = Report(
        table.title,
        table.caption,
        runs.extent,
        (picture,),
        findings,
        matrices,
        (),
        settings,
        notes,
        table.details,
        cells,
        command,
    )
    content = {"figure": table.name, "dataset": runs.dataset, "delta": table.delta, "versions": versions()}
    write_report(report, page, json_file, content | {"rows": rows})
    return pictures, report


def table_panels(
    table: StationaryTable, tolerances: Sequence[tuple[str, float]], samples: Samples
) -> tuple[Panel, ...]:
    """Return final losses and seconds against epsilon, for each tolerance."""
    panels = []
    for tolerance, size in tolerances:
        for shown in ("loss", "seconds"):
            lines = [_line(table, tolerance, method, samples, shown) for method in table.methods]
            drawn = tuple(line for line in lines if line.x)
            title = f"{tolerance} ({size:g}, {size**0.5:.3f})"
            falling = False if shown == "loss" else None
            panels.append(Panel(title, "epsilon", _SHOWN[shown][0], table.epsilons, False, drawn, rising=falling))
    return tuple(panels)


def _line(table: StationaryTable, tolerance: str, method: str, samples: Samples, shown: str) -> Line:
    """Return the line of a method: crosses where a run did not end, and hollow marks for what the paper prints."""
    cells = {e: cell for e in table.epsilons if (cell := samples.get((tolerance, method, e))) is not None}
    found = [cell[shown] for cell in cells.values()]
    printed = {e: table.printed_at(tolerance, method, e) for e in cells} if shown == "loss" else {}
    return Line(
        look_of(method),
        tuple(cells),
        tuple(each.mean for each in found),
        tuple(each.error if math.isfinite(each.error) else 0.0 for each in found),
        tuple(e for e, cell in cells.items() if cell["success"].mean < 1),
        tuple((e, value) for e, value in printed.items() if value is not None),
    )


def _error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; nothing is known of it after one run."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _cell(outcomes: Sequence[Outcome], field: str) -> str:
    digits, values = _SHOWN[field][1], [float(getattr(each, field)) for each in outcomes]
    spread = f" ± {_error(values):.{digits}f}" if len(values) > 1 else ""
    failed = f" {_CROSS}" if field == "seconds" and not all(each.success for each in outcomes) else ""
    return f"{mean(values):.{digits}f}{spread}{failed}"


def _matrix(runs: TableRuns, outcomes: list[Outcome], tolerance: str, size: float, field: str) -> Matrix:
    table, lines = runs.table, []
    own = [each for each in outcomes if each.tolerance == tolerance]
    for method in table.methods:
        cells = []
        for epsilon in table.epsilons:
            text = _cell([each for each in own if (each.method, each.epsilon) == (method, epsilon)], field)
            printed = table.printed_at(tolerance, method, epsilon) if field == "loss" else None
            cells.append(text if printed is None else f"{text} ({printed:g})")
        lines.append((look_of(method).name, *cells))
    header = ("method", *(f"epsilon {epsilon:g}" for epsilon in table.epsilons))
    return Matrix(f"{tolerance} ({size:g}, {size**0.5:.3f}): {_SHOWN[field][0]}", header, tuple(lines))


#: What was measured, by tolerance, method and epsilon, and by the field of an outcome.
Samples = Mapping[tuple[str, str, float], Mapping[str, Sample]]


def samples_of(outcomes: Sequence[Outcome]) -> Samples:
    """Return what was measured, seed by seed."""
    found: dict[tuple[str, str, float], dict[str, dict[Key, float]]] = {}
    for each in outcomes:
        cell = found.setdefault((each.tolerance, each.method, each.epsilon), {})
        for field in (*_SHOWN, "success"):
            cell.setdefault(field, {})[0, each.seed] = float(getattr(each, field))
    return {key: {field: Sample.of(values) for field, values in cell.items()} for key, cell in found.items()}


def table_findings(
    table: StationaryTable, tolerances: Sequence[tuple[str, float]], samples: Samples
) -> Iterator[Finding]:
    """Hold what was found against what the paper says of its tables."""
    for tolerance, _ in tolerances:
        own = {(method, e): cell for (name, method, e), cell in samples.items() if name == tolerance}
        run = replace(table, methods=tuple(m for m in table.methods if all((m, e) in own for e in table.epsilons)))
        for finding in (*_compared(run, own), *_improved(run, own), *_counted(run, own), *_ended(run, own)):
            yield Finding(f"{tolerance}: {finding.claim}", finding.found)


#: The cells of one tolerance, by method and epsilon.
_Cells = Mapping[tuple[str, float], Mapping[str, Sample]]


def _compared(table: StationaryTable, own: _Cells) -> Iterator[Finding]:
    high = tuple(epsilon for epsilon in table.epsilons if epsilon in _HIGH)
    low = tuple(epsilon for epsilon in table.epsilons if epsilon == _LOW)
    claims = (
        ("OPT takes less time than TR at epsilon 0.6 and 1.", "opt", "seconds", high),
        ("OPT needs fewer iterations than TR at epsilon 0.6 and 1.", "opt", "iterations", high),
        ("OPT ends at a lower loss than TR at epsilon 0.6 and 1.", "opt", "loss", high),
        ("At epsilon 0.2 OPT may fail to end; its final loss is even lower than that of TR.", "opt", "loss", low),
        ("2OPT-LS takes less time than TR at every epsilon.", "2opt-ls", "seconds", table.epsilons),
    )
    for text, method, field, epsilons in claims:
        if {"dp-tr", method} <= set(table.methods) and epsilons:
            ends = any(own[m, epsilon]["success"].mean > 0 for m in ("dp-tr", method) for epsilon in epsilons)
            if field == "iterations" and not ends:
                continue  # all were given up after as many
            # One margin, the mean over epsilon, in units of what TR has there: times differ by orders of magnitude.
            margins, shares = [], []
            for epsilon in epsilons:
                theirs, ours = own["dp-tr", epsilon][field], own[method, epsilon][field]
                margins.append(Margin.between(theirs, ours))
                scale = 1 / max(abs(theirs.mean), 1e-12)
                shares.append(Margin.between(theirs.times(scale), ours.times(scale)))
            shown = ", ".join(f"{margin} at {e:g}" for margin, e in zip(margins, epsilons, strict=True))
            what = f"TR minus {look_of(method).name} in {_SHOWN[field][0]}"
            whole = pooled(shares)
            yield Finding(text, told(whole, f"{what}: {shown}; as a share of TR, {whole} on average"))


def _improved(table: StationaryTable, own: _Cells) -> Iterator[Finding]:
    """Say whether searches and batches save time, each as a share of what OPT takes."""
    if not {"opt", "opt-ls", "opt-b"} <= set(table.methods):
        return
    parts, texts = [], []
    for method in ("opt-ls", "opt-b"):
        shares = []
        for epsilon in table.epsilons:
            plain, better = own["opt", epsilon]["seconds"], own[method, epsilon]["seconds"]
            scale = 1 / max(plain.mean, 1e-12)
            shares.append(Margin.between(plain.times(scale), better.times(scale)))
        parts.append(pooled(shares))
        texts.append(f"{parts[-1]} with {look_of(method).name}")
    yield Finding(
        "Line search and mini-batches each improve on OPT.",
        told(every(parts), f"of the time that OPT takes, saved on average: {', '.join(texts)}"),
    )


def _counted(table: StationaryTable, own: _Cells) -> Iterator[Finding]:
    """Say how many Hessians were evaluated: counts of single runs, which need no test."""
    others = [method for method in table.methods if method != "dp-tr"]
    if len(others) < len(table.methods):
        counts = {m: mean(own[m, e]["hessians"].mean for e in table.epsilons) for m in table.methods}
        each = all(own["dp-tr", e]["hessians"].mean >= own["dp-tr", e]["iterations"].mean for e in table.epsilons)
        shown = ", ".join(f"{look_of(name).name} {count:.1f}" for name, count in counts.items())
        taken = {m: mean(own[m, e]["iterations"].mean for e in table.epsilons) for m in others}
        few = all(counts[m] <= 1 + taken[m] / 10 for m in others)  # one at the end of a run is there always
        yield Finding(
            "TR evaluates a Hessian in each iteration, the others hardly any.",
            told(Checked(each and few), f"on average {shown}"),
        )


def _ended(table: StationaryTable, own: _Cells) -> Iterator[Finding]:
    """Say which runs ended, which the paper tells of one table."""
    if table.name != "002/covertype":
        return
    crossed = {(m, e) for (m, e), cell in own.items() if cell["success"].mean < 1}
    names = [f"{look_of(m).name} at {e:g}" for m in table.methods for e in table.epsilons if (m, e) in crossed]
    if _LOW in table.epsilons and "opt" in table.methods:
        yield Finding(
            "OPT may fail to end at epsilon 0.2, where a table for Covertype also crosses out OPT-LS and 2OPT.",
            told(Checked(("opt", _LOW) in crossed), f"crossed out here: {', '.join(names) or 'none'}"),
        )
    if "dp-gd" in table.methods:
        found = {e: own["dp-gd", e] for e in table.epsilons}
        shown = ", ".join(f"{cell['success'].mean:.0%} at {e:g}" for e, cell in found.items())
        yield Finding(
            "DP-GD, with the steps of its own paper, gives nothing of practical use.",
            told(Checked(all(cell["success"].mean < 1 for cell in found.values())), f"runs that end: {shown}"),
        )
    if "2opt-ls" in table.methods:
        ends = not any(m == "2opt-ls" for m, _ in crossed)
        open_at = [f"{e:g}" for e in table.epsilons if ("2opt-ls", e) in crossed]
        yield Finding(
            "2OPT-LS ends at a second-order point at every epsilon.",
            told(
                Checked(ends),
                f"it does not always end at epsilon {', '.join(open_at)}" if open_at else "all runs end",
            ),
        )
