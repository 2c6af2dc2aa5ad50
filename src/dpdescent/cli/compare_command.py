"""The commands ``dpdescent compare`` and ``dpdescent reproduce``."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..display import heartbeat
from ..errors import InvalidParameter, require_positive_integer
from ..long_runs import require_matplotlib, require_outputs, require_writable, write_whole
from .terminal import INTERRUPTED, Adjacency, JsonFile, complain, say, screen

if TYPE_CHECKING:
    from ..lab.fold_fits import Task
    from ..lab.study import Record, Study
    from ..lab.verdicts import Group
    from ..long_runs import Listener

Jobs = Annotated[int | None, typer.Option(help="Worker processes, one thread each; default: all processors.")]


def compare_command(
    data: Annotated[str, typer.Option(help="Data sets, with commas between them; or a file of your own.")],
    schema: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Public schema of a file of your own. Its scores are marked NOT PRIVATE."),
    ] = None,
    methods: Annotated[str, typer.Option(help="Methods, with commas between them, or all general ones.")] = "all",
    epsilon: Annotated[str, typer.Option(help="Values of epsilon, with commas between them.")] = "0.1,0.4,1.6",
    delta: Annotated[float, typer.Option(help="Privacy budget delta; take it well below 1/n.")] = 1e-8,
    folds: Annotated[int, typer.Option(help="Parts of the cross-validation.")] = 5,
    seeds: Annotated[int, typer.Option(help="Repetitions of the cross-validation.")] = 1,
    rows: Annotated[int | None, typer.Option(help="Take this number of rows of each data set; default: all.")] = None,
    loss: Annotated[str, typer.Option(help="logistic or svm.")] = "logistic",
    alpha: Annotated[float, typer.Option(help="Weight of the L2 penalty.")] = 0.0,
    adjacency: Adjacency = "zero-out",
    oracle: Annotated[
        bool, typer.Option(help="Also search each method's grid on the test data: not private.")
    ] = False,
    private: Annotated[
        bool,
        typer.Option("--private", help="Pay for every fit and evaluation on a file of your own; needs --ledger."),
    ] = False,
    ledger: Annotated[Path | None, typer.Option(help="With --private: the ledger file that pays.")] = None,
    jobs: Jobs = None,
    json_file: JsonFile = None,
    parquet: Annotated[Path | None, typer.Option(metavar="FILE", help="Write the rows as Parquet.")] = None,
    plots: Annotated[Path | None, typer.Option(metavar="DIR", help="Write a PNG and an SVG per data set.")] = None,
    html: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write a page that holds everything, and its picture beside it."),
    ] = None,
) -> None:
    """Compare methods on the same data, folds, budget and relation.

    With an output file the run can be killed: the same command goes on where it was.
    """
    from ..lab.method_looks import general_methods
    from ..lab.study import Study, curves_of

    if private or ledger is not None:
        settings = {"alpha": alpha, "adjacency": adjacency}
        named = general_methods() if methods == "all" else _split("methods", methods)
        unfit = {"--oracle": oracle, "--parquet": parquet, "--plots": plots, "--rows": rows, "--jobs": jobs}
        _refuse(unfit | {"--seeds": seeds != 1, "--folds": folds != 5})
        if not private or ledger is None or schema is None:
            raise InvalidParameter(
                "a private comparison needs --private, --ledger FILE and --schema FILE: give all three"
            )
        asked = _PrivateComparison(data, schema, named, _numbers("epsilon", epsilon), delta, loss, settings)
        asked.run(ledger, json_file, html)
        return
    study = Study(
        _tasks(data, schema, loss, rows),
        curves_of(general_methods() if methods == "all" else _split("methods", methods), oracle=oracle),
        tuple(_numbers("epsilon", epsilon)),
        delta,
        folds=folds,
        seeds=seeds,
        alpha=alpha,
        adjacency=adjacency,
    )
    _compare(study, _Outputs(json_file, parquet, plots, html), jobs)


def _refuse(given: Mapping[str, object]) -> None:
    """Refuse options that a private comparison has no use for."""
    for option, value in given.items():
        if value:
            raise InvalidParameter(
                f"{option} is not for --private: every fit is paid for, and made once; leave it out"
            )


@dataclass(frozen=True)
class _PrivateComparison:
    """Methods to compare on a file of one's own, each fit and each evaluation of which is paid for."""

    data: str
    schema: Path
    methods: Sequence[str]
    epsilons: Sequence[float]
    delta: float
    loss: str
    settings: dict[str, Any]

    def run(self, ledger: Path, json_file: Path | None, html: Path | None) -> None:
        """Compare, print what was found as it comes, and write it."""
        from ..evaluation.one_budget import compare_privately, page_of_comparison
        from ..ledger import Ledger
        from .terminal import write_json

        require_outputs([json_file, html], [self.data, self.schema, ledger])
        account = Ledger.open(ledger)
        candidates, X, y = self._candidates()
        found = []
        for each in compare_privately(candidates, X, y, account):
            found.append(each)
            say(str(each))
        say(f"paid for by {ledger}: epsilon {account.spent_epsilon():.4g} at delta {account.delta:g} is spent")
        if html is not None:
            write_whole(html, page_of_comparison(found, account, self.data))
            say(f"written: {html}")
        write_json(json_file, {"candidates": [asdict(each) for each in found], "ledger": account.statement()})

    def _candidates(self) -> tuple[dict[str, Any], Any, Any]:
        """Return the estimators by name, and the table."""
        from ..estimators import DPLinearSVC, DPLogisticRegression
        from ..estimators.arguments import known_method
        from ..tables import Schema
        from .public_knowledge import open_table

        if self.loss not in ("logistic", "svm"):
            raise InvalidParameter(f"unknown loss {self.loss!r}: choose logistic or svm")
        table = open_table(self.data, {"schema": Schema.load(self.schema)})
        if not table.classes or table.unit is not None:
            raise InvalidParameter(
                "a private comparison is about classes, and about units of one row: see the schema"
            )
        kind = DPLogisticRegression if self.loss == "logistic" else DPLinearSVC
        public = {"bounds": table.bounds, "classes": table.classes, "binary_features": table.binary_features}
        found = {}
        for method in self.methods:
            for epsilon in self.epsilons if known_method(method).private else ():
                options = public | self.settings | {"method": method}
                found[f"{method} at {epsilon:g}"] = kind(epsilon, self.delta, **options)
        return found, table.X, table.y


def reproduce_command(
    figure: Annotated[str | None, typer.Argument(help="A figure; without one, they are listed.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Every figure and table, one after another.")] = False,
    full: Annotated[bool, typer.Option("--full/--quick", help="The paper's repetitions, or a few minutes.")] = False,
    repetitions: Annotated[
        int | None, typer.Option(metavar="K", help="With --full: repeat K times instead of as often as the paper.")
    ] = None,
    folds: Annotated[
        int | None, typer.Option(metavar="K", help="With --full: only the first K folds of each cross-validation.")
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            metavar="K",
            help="With --full: end descents to second-order points, or the training of networks, after K steps.",
        ),
    ] = None,
    output: Annotated[Path, typer.Option(metavar="DIR", help="Where to write picture and page.")] = Path("out"),
    data: Annotated[str, typer.Option(help="Data sets that stand in for the paper's.")] = "",
    jobs: Jobs = None,
    json_file: JsonFile = None,
) -> None:
    """Rerun a figure of a paper, with the paper's claims beside what was found.

    A figure is a picture, a table, the privacy statement of every curve and a page that holds all of them.
    """
    from ..lab.reproduction import FIGURES, figure_named

    if every and figure is not None:
        raise InvalidParameter("--all runs every figure: name none")
    if every and json_file is not None:
        raise InvalidParameter("--all has a page for every figure and no single JSON file: leave --json out")
    if figure is None and not every:
        for name, entry in FIGURES.items():
            say(f"{name}  {entry.title}")
        return
    datasets = tuple(_split("data", data)) if data else ()
    verdicts: list[str] = []
    for name in list(FIGURES) if every else [figure_named(str(figure)).name]:
        asked = {"full": full, "repetitions": repetitions, "folds": folds, "steps": steps, "jobs": jobs}
        verdicts += _reproduce(name, output, json_file, asked | {"datasets": datasets})
    counts = [f"{word.lower()}: {verdicts.count(word)}" for word in dict.fromkeys(verdicts) if word]
    say(f"verdicts: {', '.join(counts) or 'none'}")


def _reproduce(name: str, output: Path, json_file: Path | None, asked: dict[str, Any]) -> list[str]:
    """Run a figure, say what was found and to what extent, and return the verdicts."""
    from ..lab.agd_paper import Trace
    from ..lab.reproduction import figure_named, reproduce

    chosen = figure_named(name)
    with _progress(chosen.name, kept=not isinstance(chosen, Trace)) as listener:
        written = reproduce(chosen, output, **asked, json_file=json_file, listener=listener)
    say(f"{chosen.name}: {written.report.extent}")
    for finding in written.findings:
        say(f"claim: {finding.claim}")
        say(f"found: {finding.found}")
        say("")
    for path in (*written.pictures, written.page, *([json_file] if json_file is not None else [])):
        say(f"written: {path}")
    return [finding.verdict for finding in written.findings]


@dataclass(frozen=True)
class _Outputs:
    """Where a comparison is written."""

    json_file: Path | None
    parquet: Path | None
    plots: Path | None
    html: Path | None

    @property
    def files(self) -> list[Path]:
        """Those that hold all rows; a journal stands beside the first."""
        return [path for path in (self.json_file, self.parquet, self.html) if path is not None]

    def require(self) -> None:
        """Raise unless everything can be written, before anything is measured."""
        for path in [*self.files, *([self.plots / "comparison.png"] if self.plots is not None else [])]:
            require_writable(path)
        if self.plots is not None or self.html is not None:
            require_matplotlib()


def _tasks(data: str, schema: Path | None, loss: str, rows: int | None) -> tuple[Task, ...]:
    from ..datasets import is_data_path
    from ..lab.fold_fits import Task
    from ..tables import Schema

    if rows is not None:
        require_positive_integer("rows", rows)
    described = None if schema is None else json.dumps(Schema.load(schema).to_dict())
    names = _split("data", data)
    if described is not None and not all(is_data_path(name) for name in names):
        raise InvalidParameter("--schema describes a file: give its path as --data, and no data set beside it")
    return tuple(Task(name, loss, rows, described) for name in names)


def _compare(study: Study, outputs: _Outputs, jobs: int | None) -> None:
    """Run a study, show its groups and write its outputs; what is measured is kept until they are written."""
    from ..lab.fold_fits import Row
    from ..lab.study import NOT_PRIVATE, run
    from ..lab.verdicts import grouped
    from ..long_runs import Journal

    outputs.require()
    with Journal(outputs.files[0], study.fingerprint, Row) if outputs.files else nullcontext() as journal:
        with _progress("comparing", kept=journal is not None) as listener:
            record = run(study, jobs=jobs, journal=journal, listener=listener)
        groups = grouped(record.rows)
        _print_groups(groups)
        if not study.public:
            say(NOT_PRIVATE, style="bold red")
        for path in _write(record, groups, outputs):
            say(f"written: {path}")
        if journal is not None:
            journal.remove()


def _write(record: Record, groups: list[Group], outputs: _Outputs) -> Iterator[Path]:
    from ..lab.drawing import columns_of, draw, epsilon_panels
    from ..lab.report_page import render
    from ..lab.reproduction import comparison_report
    from ..lab.study import NOT_PRIVATE, command_line

    command = dict(command_line()).get("command", "")
    if outputs.json_file is not None:
        yield write_whole(outputs.json_file, record.to_json())
    if outputs.parquet is not None:
        record.write_parquet(outputs.parquet)
        yield outputs.parquet
    if outputs.plots is not None:
        for name in dict.fromkeys(group.dataset for group in groups):
            shown = [group for group in groups if group.dataset == name]
            yield from draw(epsilon_panels(shown), outputs.plots / Path(name).stem, command=command)
    if outputs.html is not None:
        pictures = draw(epsilon_panels(groups), outputs.html.with_suffix(""), columns_of(groups), command)
        yield from pictures
        report = comparison_report(
            record,
            pictures[1],
            "A comparison of private classifiers",
            ("" if record.study.public else f"{NOT_PRIVATE} ")
            + "The same data, folds, budget and relation for every method; accuracy and AUC on the test part, the "
            "objective on the training part.",
        )
        yield write_whole(outputs.html, render(report))


def _print_groups(groups: list[Group]) -> None:
    from ..lab.verdicts import terminal_tables

    for table in terminal_tables(groups):
        screen().print(table)
    for text in dict.fromkeys(f"{group.name} refused: {error}" for group in groups for error in group.errors):
        say(text)
    say("mean ± standard error over folds and seeds; in bold the best private method", style="dim")


@contextmanager
def _progress(title: str, *, kept: bool) -> Iterator[Listener]:
    """Draw a bar with the time left, or write a line every few seconds; an interrupt says what is kept."""
    from rich.progress import (
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    started, share, shown = time.monotonic(), "preparing", sys.stderr.isatty()
    bar = Progress(
        TextColumn(title),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left:"),
        TimeRemainingColumn(),
        console=screen(errors=True),
        speed_estimate_period=600,
        disable=not shown,
    )
    task = bar.add_task(title, total=None)

    def update(done: int, total: int) -> None:
        nonlocal share
        bar.update(task, completed=done, total=total)
        share = f"{done} of {total} done"

    def line() -> str:
        return f"{title}: {share} after {time.monotonic() - started:.0f} s"

    try:
        with bar, nullcontext() if shown else heartbeat(line):
            yield update
    except KeyboardInterrupt:
        text = "what is done is kept, and the same command goes on from there" if kept else "nothing is kept"
        complain("interrupted", text)
        raise typer.Exit(INTERRUPTED) from None


def _split(name: str, text: str) -> list[str]:
    parts = [part.strip() for part in text.split(",") if part.strip()]
    if not parts:
        raise InvalidParameter(f"--{name} is empty: name at least one")
    return list(dict.fromkeys(parts))


def _numbers(name: str, text: str) -> list[float]:
    try:
        return sorted({float(part) for part in _split(name, text)})
    except ValueError:
        raise InvalidParameter(f"--{name} must be numbers with commas between them, got {text!r}") from None
