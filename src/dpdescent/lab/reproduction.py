"""The list of all figures and tables of the papers, and how one is run and its picture and page are written."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import InvalidParameter, require_positive_integer
from ..long_runs import Journal, Listener, require_matplotlib, require_writable, write_whole
from .agd_paper import AGD_FIGURES, Trace, write_trace
from .drawing import columns_of, draw, epsilon_panels, parameter_panels
from .fold_fits import Row
from .line_search_paper import SEARCH_FIGURES
from .line_search_paper.network_pages import write_networks
from .line_search_paper.network_runs import Course, NetworkFigure, NetworkRuns, measure_networks
from .method_looks import nearest
from .output_perturbation_paper import RISK_TABLES, RiskTable
from .output_perturbation_paper.risk_pages import write_risks
from .output_perturbation_paper.risk_runs import Measured, RiskRuns, measure_risks
from .paper_figures import DataTable, Figure, Scale, count_data, write_data
from .report_page import Finding, Picture, Report, matrices, privacy_statements, render, settings_of
from .second_order_paper import STATIONARY_TABLES, Outcome, StationaryTable, TableRuns, measure_table, write_table
from .study import Record, repeated, require_repetitions, run
from .verdicts import EXPLANATION, MEASURES, Claim, Group, Measure, cells_of, grouped

AnyFigure = Figure | Trace | DataTable | RiskTable | StationaryTable | NetworkFigure

#: What can be reproduced of the four papers, by name.
FIGURES: dict[str, AnyFigure] = {
    figure.name: figure for figure in (*AGD_FIGURES, *RISK_TABLES, *STATIONARY_TABLES, *SEARCH_FIGURES)
}
_KEYS = ("dataset", "loss", "method", "epsilon", "parameter", "value")


@dataclass(frozen=True)
class Written:
    """The files of a reproduced figure, and what is in them."""

    page: Path
    pictures: tuple[Path, ...]
    report: Report

    @property
    def findings(self) -> tuple[Finding, ...]:
        """What was found of the paper's claims."""
        return self.report.findings


def figure_named(name: str) -> AnyFigure:
    """Return the figure of that name."""
    if name not in FIGURES:
        raise InvalidParameter(f"there is no figure {name!r}{nearest(name, FIGURES)}")
    return FIGURES[name]


def reproduce(
    figure: AnyFigure,
    output: Path,
    *,
    full: bool = False,
    repetitions: int | None = None,
    folds: int | None = None,
    steps: int | None = None,
    datasets: tuple[str, ...] = (),
    json_file: Path | None = None,
    jobs: int | None = None,
    listener: Listener | None = None,
) -> Written:
    """Run a figure and write its PNG, SVG and page into the folder ``output``.

    Parameters
    ----------
    figure : Figure, Trace, DataTable, RiskTable, StationaryTable or NetworkFigure
    output : Path
    full : bool
        Every data set, method, epsilon and fold, repeated as in the paper, instead of a few minutes' worth.
    repetitions : int, optional
        How often a full run repeats them, in place of the paper's number.
    folds : int, optional
        Measure only the first folds of each cross-validation of a full run, with training parts of the same size.
    steps : int, optional
        In a full run, give up a descent to a second-order point after so many steps of a phase, or train networks by
        so many steps.
    datasets : tuple of str
        Data sets that stand in for those of the paper.
    json_file : Path, optional
        Where to write the rows.
    jobs : int, optional
        Worker processes.
    listener : callable, optional
        Called after each cell.
    """
    require_repetitions(full, repetitions)
    if folds is not None:
        _require_folds(figure, full, folds)
    if steps is not None:
        _require_steps(figure, full, steps)
    command = command_of(figure.name, full, repetitions, datasets, folds, steps)
    if not isinstance(figure, DataTable):
        require_matplotlib()
    stem = output / figure.name.replace("/", "-")
    page = require_writable(stem.with_name(f"{stem.name}.html"))
    if json_file is not None:
        require_writable(json_file)
    order = _Order(full, repetitions, folds, steps, datasets, json_file, jobs, listener, stem, page, command)
    pictures, report = _RUNS[type(figure)](figure, order)
    return Written(page, pictures, report)


@dataclass(frozen=True)
class _Order:
    """What `reproduce` was asked for, checked, and where it is written."""

    full: bool
    repetitions: int | None
    folds: int | None
    steps: int | None
    datasets: tuple[str, ...]
    json_file: Path | None
    jobs: int | None
    listener: Listener | None
    stem: Path
    page: Path
    command: str

    @property
    def outputs(self) -> tuple[Path, Path, Path | None, str]:
        """The places that a writer needs, and the command that it shows."""
        return self.stem, self.page, self.json_file, self.command


def _run_data(table: DataTable, order: _Order) -> tuple[tuple[Path, ...], Report]:
    counted = count_data(table, order.listener)
    return (), write_data(table, counted, order.page, order.json_file, order.command)


def _run_trace(trace: Trace, order: _Order) -> tuple[tuple[Path, ...], Report]:
    return write_trace(trace, order.datasets, *order.outputs)


def _run_stationary(table: StationaryTable, order: _Order) -> tuple[tuple[Path, ...], Report]:
    dataset = order.datasets[0] if order.datasets else table.dataset
    runs = TableRuns(table, order.full, dataset, order.repetitions, order.steps)
    with Journal(order.page, runs.fingerprint, Outcome) as journal:
        written = write_table(runs, measure_table(runs, journal, order.listener), *order.outputs)
        journal.remove()
    return written


def _run_risks(table: RiskTable, order: _Order) -> tuple[tuple[Path, ...], Report]:
    if order.datasets:
        raise InvalidParameter(f"{table.name} is about synthetic problems with known minimisers: leave data out")
    runs = RiskRuns(table, order.full, order.repetitions)
    with Journal(order.page, runs.fingerprint, Measured) as journal:
        written = write_risks(runs, measure_risks(runs, journal, order.listener, order.jobs), *order.outputs)
        journal.remove()
    return written


def _run_networks(figure: NetworkFigure, order: _Order) -> tuple[tuple[Path, ...], Report]:
    runs = NetworkRuns(figure, order.full, order.datasets, order.repetitions, order.steps)
    with Journal(order.page, runs.fingerprint, Course) as journal:
        written = write_networks(runs, measure_networks(runs, journal, order.listener), *order.outputs)
        journal.remove()
    return written


def _run_figure(figure: Figure, order: _Order) -> tuple[tuple[Path, ...], Report]:
    scale = figure.quick
    if order.full:
        seeds, folds = order.repetitions or figure.full.seeds, order.folds or figure.full.folds_used
        scale = replace(figure.full, seeds=seeds, folds_used=folds)
    study = figure.study(scale, order.datasets)
    with Journal(order.page, study.any_cells(), Row) as journal:
        record = run(study, jobs=order.jobs, journal=journal, listener=order.listener)
        groups = grouped(record.rows)
        pictures = draw_figure(figure, groups, order.stem, order.command)
        report = comparison_report(
            record,
            pictures[1],
            figure.title,
            figure.caption,
            _extent(figure, scale, order.full, order.datasets),
            figure.claims,
            _missing(figure),
            (*figure.measures, *MEASURES),
            figure.details,
            order.command,
        )
        write_whole(order.page, render(report))
        if order.json_file is not None:
            write_whole(order.json_file, record.to_json())
        journal.remove()
    return pictures, report


def draw_figure(figure: Figure, groups: Sequence[Group], stem: Path, command: str) -> tuple[Path, Path]:
    """Draw a figure as ``stem``.png and ``stem``.svg; return both paths."""
    names = {parameter.setting: parameter.shown for parameter in figure.parameters}
    panels = parameter_panels(groups, names, figure.measures) if names else epsilon_panels(groups)
    return draw(panels, stem, 4 if names else columns_of(groups), command)


_RUNS: dict[type[AnyFigure], Callable[[Any, _Order], tuple[tuple[Path, ...], Report]]] = {
    DataTable: _run_data,
    Figure: _run_figure,
    NetworkFigure: _run_networks,
    RiskTable: _run_risks,
    StationaryTable: _run_stationary,
    Trace: _run_trace,
}


def comparison_report(
    record: Record,
    picture: Path | None,
    title: str,
    caption: str,
    extent: str = "",
    claims: tuple[Claim, ...] = (),
    notes: tuple[str, ...] = (),
    measures: tuple[Measure, ...] = MEASURES,
    details: tuple[str, ...] = (),
    command: str = "",
) -> Report:
    """Return the page of a study."""
    groups = grouped(record.rows)
    refusals = dict.fromkeys(f"{group.name}: {error}" for group in groups for error in group.errors)
    count = max(len(group.rows) for group in groups)
    spread = "Tables show single fits, so there are no standard errors."
    if count > 1:
        spread = (
            f"Tables show mean ± standard error over {count} fits, one per fold and repetition. The folds of a "
            "repetition share training rows, so the standard errors are a little too small. Bars in the picture are "
            "one standard error to either side."
        )
    description = f"{title}: accuracy and objective of {', '.join(dict.fromkeys(group.name for group in groups))}"
    return Report(
        title,
        caption,
        extent,
        (Picture(picture, description),) if picture is not None else (),
        tuple(Finding(claim.text, claim.check(groups)) for claim in claims),
        matrices(groups, measures),
        privacy_statements(record),
        settings_of(record),
        (
            *((EXPLANATION,) if claims else ()),
            spread,
            *notes,
            *(f"Refused by a method: {refusal}" for refusal in refusals),
        ),
        details,
        cells_of(map(vars, record.rows), _KEYS, (*(measure.field for measure in measures), "seconds")),
        command,
    )


def command_of(
    name: str,
    full: bool = False,
    repetitions: int | None = None,
    datasets: tuple[str, ...] = (),
    folds: int | None = None,
    steps: int | None = None,
) -> str:
    """Return the command line that reproduces a figure."""
    words = ["dpdescent", "reproduce", name, *(["--full"] if full else [])]
    words += ["--repetitions", str(repetitions)] if repetitions is not None else []
    words += ["--folds", str(folds)] if folds is not None else []
    words += ["--steps", str(steps)] if steps is not None else []
    return shlex.join([*words, *(["--data", ",".join(datasets)] if datasets else [])])


def _require_folds(figure: AnyFigure, full: bool, folds: int) -> None:
    """Raise unless so many folds can be a part of a full run of this figure."""
    if not isinstance(figure, Figure):
        raise InvalidParameter(f"{figure.name} has no cross-validation: leave --folds out")
    if not full:
        raise InvalidParameter("folds are a part of a full run: add --full, or leave --folds out")
    if require_positive_integer("folds", folds) > figure.folds:
        raise InvalidParameter(f"folds must be at most {figure.folds}, which is how many {figure.name} has")


def _require_steps(figure: AnyFigure, full: bool, steps: int) -> None:
    """Raise unless a full run of this figure can have so many steps."""
    if not isinstance(figure, (StationaryTable, NetworkFigure)):
        raise InvalidParameter(
            f"{figure.name} has neither descents to second-order points nor networks: leave --steps out"
        )
    if not full:
        raise InvalidParameter("steps limit a full run: add --full, or leave --steps out")
    require_positive_integer("steps", steps)


def _extent(figure: Figure, scale: Scale, full: bool, datasets: tuple[str, ...]) -> str:
    stand_in = f" Run on {', '.join(datasets)} instead of the paper's data." if datasets else ""
    if full:
        times = repeated(scale.seeds, figure.full.seeds)
        folds = "1 fold" if scale.folds_used == 1 else f"{scale.folds_used} folds"
        used = "" if scale.folds_used == figure.folds else f"{folds} of "
        return f"Full run: {used}{figure.folds}-fold cross-validation, {times}.{stand_in}"
    rows = f", {scale.rows:,} of the rows" if scale.rows is not None else ""
    count = len(scale.epsilons)
    return (
        f"Quick run: {count} value{'s' if count > 1 else ''} of epsilon, {scale.folds_used} of {figure.folds} folds, "
        f"{scale.seeds} repetition{rows}; the paper repeats "
        f"{figure.folds}-fold cross-validation {figure.full.seeds} times.{scale.remark}{stand_in}"
    )


def _missing(figure: Figure) -> tuple[str, ...]:
    missing = figure.missing
    return (f"In the paper's figure and not available here yet: {', '.join(missing)}.",) if missing else ()
