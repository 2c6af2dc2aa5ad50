"""Run a figure of a paper and write its picture and its page; the same writer serves any comparison."""

from __future__ import annotations

import json
import shlex
from dataclasses import asdict, dataclass, replace
from itertools import pairwise
from pathlib import Path

from ..errors import InvalidParameter, require_positive_integer
from ..long_runs import Journal, Listener
from ..outputs import require_matplotlib, require_writable, write_whole
from ..statement import guarantee
from .agd_paper import AnyFigure, Figure, Scale
from .agd_paper.noisy_descent import Moment, Trace, follow
from .claims import Claim
from .data_tables import DataTable, count_data, write_data
from .drawing import draw, draw_trace, epsilon_panels, parameter_panels
from .fold_fits import Row, Task, load_task
from .line_search_paper.network_pages import write_networks
from .line_search_paper.network_runs import Course, NetworkFigure, NetworkRuns, measure_networks
from .output_perturbation_paper.risk_pages import write_risks
from .output_perturbation_paper.risk_runs import Measured, RiskRuns, measure_risks
from .output_perturbation_paper.risk_tables import RiskTable
from .repetitions import repeated, require_repetitions
from .report_page import Finding, Matrix, Picture, Report, matrices, privacy_statements, render, settings_of
from .row_groups import MEASURES, Measure, grouped
from .second_order_paper.stationary_pages import write_table
from .second_order_paper.stationary_runs import Outcome, StationaryTable, TableRuns, measure_table
from .study import Record, run, versions
from .summary import cells_of
from .verdicts import EXPLANATION, AtLeast, Margin, every, told

__all__ = ["Written", "command_of", "comparison_report", "reproduce"]

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


def reproduce(
    figure: AnyFigure,
    output: Path,
    *,
    full: bool = False,
    repetitions: int | None = None,
    folds: int | None = None,
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
        How often a full run repeats them, in place of the paper's number. Networks are always trained once.
    folds : int, optional
        Measure only the first folds of each cross-validation of a full run, with training parts of the same size.
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
    command = command_of(figure.name, full, repetitions, datasets, folds)
    if not isinstance(figure, DataTable):
        require_matplotlib()
    stem = output / figure.name.replace("/", "-")
    page = require_writable(stem.with_name(f"{stem.name}.html"))
    if json_file is not None:
        require_writable(json_file)
    if isinstance(figure, DataTable):
        return Written(page, (), write_data(figure, count_data(figure, listener), page, json_file, command))
    if isinstance(figure, StationaryTable):
        runs = TableRuns(figure, full, datasets[0] if datasets else figure.dataset, repetitions)
        with Journal(page, runs.fingerprint, Outcome) as outcomes:
            measured = measure_table(runs, outcomes, listener)
            drawn, report = write_table(runs, measured, stem, page, json_file, command)
            outcomes.remove()
        return Written(page, drawn, report)
    if isinstance(figure, RiskTable):
        if datasets:
            raise InvalidParameter(f"{figure.name} is about synthetic problems with known minimisers: leave data out")
        risks = RiskRuns(figure, full, repetitions)
        with Journal(page, risks.fingerprint, Measured) as trials:
            found = measure_risks(risks, trials, listener, jobs)
            drawn, report = write_risks(risks, found, stem, page, json_file, command)
            trials.remove()
        return Written(page, drawn, report)
    if isinstance(figure, NetworkFigure):
        courses = NetworkRuns(figure, full, datasets)
        with Journal(page, courses.fingerprint, Course) as journal:
            measured_courses = measure_networks(courses, journal, listener)
            drawn, report = write_networks(courses, measured_courses, stem, page, json_file, command)
            journal.remove()
        return Written(page, drawn, report)
    if isinstance(figure, Trace):
        return _reproduce_trace(figure, stem, page, datasets, json_file, command)
    scale = figure.quick
    if full:
        scale = replace(
            figure.full, seeds=repetitions or figure.full.seeds, folds_used=folds or figure.full.folds_used
        )
    study = figure.study(scale, datasets)
    with Journal(page, study.fingerprint, Row) as rows:
        record = run(study, jobs=jobs, journal=rows, listener=listener)
        groups = grouped(record.rows)
        names = {parameter.setting: parameter.shown for parameter in figure.parameters}
        panels = parameter_panels(groups, names, figure.measures) if names else epsilon_panels(groups)
        pictures = draw(panels, stem, command=command)
        report = comparison_report(
            record,
            pictures[1],
            figure.title,
            figure.caption,
            _extent(figure, scale, full, datasets),
            figure.claims,
            _missing(figure),
            (*figure.measures, *MEASURES),
            figure.details,
            command,
        )
        write_whole(page, render(report))
        if json_file is not None:
            write_whole(json_file, record.to_json())
        rows.remove()
    return Written(page, pictures, report)


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
) -> str:
    """Return the command line that reproduces a figure."""
    words = ["dpdescent", "reproduce", name, *(["--full"] if full else [])]
    words += ["--repetitions", str(repetitions)] if repetitions is not None else []
    words += ["--folds", str(folds)] if folds is not None else []
    return shlex.join([*words, *(["--data", ",".join(datasets)] if datasets else [])])


def _require_folds(figure: AnyFigure, full: bool, folds: int) -> None:
    """Raise unless so many folds can be a part of a full run of this figure."""
    if not isinstance(figure, Figure):
        raise InvalidParameter(f"{figure.name} has no cross-validation: leave --folds out")
    if not full:
        raise InvalidParameter("folds are a part of a full run: add --full, or leave --folds out")
    if require_positive_integer("folds", folds) > figure.folds:
        raise InvalidParameter(f"folds must be at most {figure.folds}, which is how many {figure.name} has")


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


def _reproduce_trace(
    trace: Trace, stem: Path, page: Path, datasets: tuple[str, ...], json_file: Path | None, command: str
) -> Written:
    name = datasets[0] if datasets else trace.dataset
    data = load_task(Task(name), download=True)
    runs = [follow(trace, data, seed=seed) for seed in range(trace.seeds)]
    moments = runs[0]
    first, last = moments[0], moments[-1]
    falls = sum(after.objective < before.objective for before, after in pairwise(moments))
    text = (
        f"on {name}, in the first of {trace.seeds} descents, the norm of the true gradient goes from "
        f"{first.gradient_norm:.3f} to {last.gradient_norm:.3f}, that of the noisy one from {first.noisy_norm:.3f} "
        f"to {last.noisy_norm:.3f} (noise: {last.noise_norm:.3f}); the objective falls in {falls} of {trace.steps} "
        f"steps, from {first.objective:.3f} to {last.objective:.3f}"
    )
    finding = Finding(trace.claim, told(_descends(runs), text))
    pictures = draw_trace(moments, stem, command)
    report = Report(
        trace.title,
        trace.caption,
        f"{trace.seeds} descents." + (f" Run on {name} instead of the paper's data." if datasets else ""),
        (Picture(pictures[1], "norms of the true and the noisy gradient, and the objective, at each iteration"),),
        (finding,),
        (_moments_table(moments),),
        (
            (
                "noisy gradients",
                f"All {len(moments)} of them together are "
                f"{guarantee(f'{last.spent_epsilon:.3g}', 1e-8, 'zero-out')}. Randomness: seeded (not for release).",
            ),
            ("true norms, objectives, step sizes", "Not private: they are shown here because the data are public."),
        ),
        (
            ("data", f"{name}, {len(data.y):,} rows, {data.X.shape[1]} columns and a constant one"),
            ("noise", f"root mean squared norm {trace.noise_norm:g}"),
            ("gradients clipped to", f"{trace.clip_gradient:g}"),
            ("step sizes", f"the best of {trace.candidates} even ones up to {trace.max_step:g}"),
            ("seeds", f"0 to {trace.seeds - 1}; picture and table show that of 0"),
            ("versions", ", ".join(f"{key} {value}" for key, value in versions().items())),
        ),
        cells=cells_of(
            (vars(moment) for run in runs for moment in run),
            ("iteration",),
            ("gradient_norm", "noisy_norm", "noise_norm", "objective"),
        ),
        command=command,
    )
    write_whole(page, render(report))
    if json_file is not None:
        content = {"figure": trace.name, "dataset": name, "versions": versions()}
        write_whole(json_file, json.dumps(content | {"rows": [asdict(m) for m in moments]}, indent=1) + "\n")
    return Written(page, pictures, report)


def _descends(runs: list[list[Moment]]) -> AtLeast:
    """Return the claim of a trace: a tenth of the gradient, noisy ones as long as the noise, a lower objective."""
    ends = [(run[0], run[-1]) for run in runs]
    return every(
        [
            Margin.of([first.gradient_norm / 10 - last.gradient_norm for first, last in ends]),
            Margin.of([last.noisy_norm - last.noise_norm / 2 for _, last in ends]),
            Margin.of([2 * last.noise_norm - last.noisy_norm for _, last in ends]),
            Margin.of([first.objective - last.objective for first, last in ends]),
        ]
    )


def _moments_table(moments: list[Moment]) -> Matrix:
    return Matrix(
        "A run of noisy gradient descent",
        (
            "iteration",
            "norm of the gradient",
            "norm of the noisy gradient",
            "expected norm of the noise",
            "objective",
        ),
        tuple(
            (
                str(moment.iteration),
                *(
                    f"{value:.5f}"
                    for value in (moment.gradient_norm, moment.noisy_norm, moment.noise_norm, moment.objective)
                ),
            )
            for moment in moments
        ),
    )
