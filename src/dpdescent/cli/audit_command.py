"""The command ``dpdescent audit``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..display import printable
from ..long_runs import require_matplotlib, require_outputs, write_whole
from .terminal import Adjacency, Delta, Epsilon, JsonFile, Seed, read_settings, say, screen

if TYPE_CHECKING:
    from ..audit import Report

_NAMES = (
    "above-threshold, gaussian, laplace, norm-laplace, report-noisy-max, selection, a query such as Gradient, "
    "or a method."
)


def audit_command(
    name: Annotated[str, typer.Argument(metavar="NAME", help=_NAMES)],
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    runs: Annotated[int | None, typer.Option(help="Runs on each of two neighbouring tables.")] = None,
    adjacency: Adjacency = "zero-out",
    attack: Annotated[
        str, typer.Option(help="What is seen of a method: transcript, model or canaries.")
    ] = "transcript",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; example=2 of a query."),
    ] = None,
    confidence: Annotated[float, typer.Option(help="Probability that the bound is not too large.")] = 0.95,
    jobs: Annotated[int | None, typer.Option(help="Worker processes; default: all processors for a method.")] = None,
    seed: Seed = None,
    plot: Annotated[Path | None, typer.Option(metavar="FILE", help="Draw the error rates of the best test.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Bound the epsilon of a mechanism, query or method from below, by runs on worst-case tables.

    The tables are the worst that are known.

    Exit code 1 means that the claim was refuted. With a JSON file a killed audit of a method goes on where it was.
    """
    from ..audit import audit_named, draw_report
    from ..long_runs import processors
    from ..solvers import METHODS

    require_outputs([json_file, plot])
    if plot is not None:
        require_matplotlib()
    with _bar(name) as listener:
        report = audit_named(
            name,
            epsilon=epsilon,
            delta=delta,
            runs=runs,
            relation=adjacency,
            attack=attack,
            options=read_settings(settings or []),
            confidence=confidence,
            seed=seed,
            jobs=jobs if jobs is not None else processors() if name in METHODS else 1,
            journal=json_file,
            listener=listener,
        )
    _show(report)
    if json_file is not None:
        write_whole(json_file, report.to_json())
        say(f"written: {json_file}")
    if plot is not None:
        say(f"written: {draw_report(report, plot)}")
    if report.refuted:
        say("the claim is refuted")
        raise typer.Exit(1)


@contextmanager
def _bar(name: str) -> Iterator[Callable[[int, int], None]]:
    """Yield what runs are reported to: a bar, from the first of them on."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    title = TextColumn("{task.description}", markup=False)
    columns = title, BarColumn(), MofNCompleteColumn(), TextColumn("left:"), TimeRemainingColumn()
    bar = Progress(*columns, console=screen(errors=True), transient=True)
    task = bar.add_task(printable(name), total=None, visible=False)
    with bar:
        yield lambda done, total: bar.update(task, completed=done, total=total, visible=True)


def _show(report: Report) -> None:
    shown = "mu-GDP, that is " if report.claim == "gdp" else ""
    epsilon, bound = report.claimed_epsilon, report.lower_bound
    say(
        f"{report.subject} claims {shown}epsilon {epsilon:g} at delta {report.delta:g} ({report.relation}, seen: "
        f"{report.attack})"
    )
    say(
        f"it is at least {bound:.4g} with confidence {report.confidence:.0%}, which is {bound / epsilon:.0%} of the "
        f"claim: {report.runs:,} runs in {report.seconds:.1f} s; {report.test}"
    )
