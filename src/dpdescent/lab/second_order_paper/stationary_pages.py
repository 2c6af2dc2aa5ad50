"""The picture and the page of a table of second-order descents, and what was found of the paper's claims."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from statistics import mean, stdev

from ...outputs import write_whole
from ...statement import guarantee
from ..drawing import Line, Panel, draw
from ..method_looks import look_of
from ..report_page import Finding, Matrix, Picture, Report, render
from ..row_groups import cells_of
from ..study import versions
from ..verdicts import EXPLANATION, Margin, Statement, every, told
from . import Outcome, StationaryTable, TableRuns

_CROSS = "×"
_LOW, _HIGH = 0.2, (0.6, 1.0)  # what the paper calls low and high budgets
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
    pictures = draw(list(_panels(runs, outcomes)), stem, command=command)
    findings = tuple(_findings(runs, outcomes))
    matrices = tuple(
        _matrix(
            table, [each for each in outcomes if each.tolerance == name], f"{name} ({size:g}, {size**0.5:.3f})", field
        )
        for name, size in runs.tolerances
        for field in _SHOWN
    )
    notes = (
        f"{EXPLANATION} The paper makes its claims of Covertype and the non-convex penalty; here each is asked of "
        "every table.",
        f"Mean ± standard error over seeds; {_CROSS}: a run did not end at a second-order point.",
        f"Every run is {guarantee('epsilon', 'delta', 'zero-out')}; seeded, not for release. "
        "Final losses and times are not private.",
    )
    settings = (
        ("data", f"{runs.dataset}{', the training part' if table.training else ''}"),
        ("longest row", f"{table.row_bound:.4g}; longer ones would be scaled down"),
        ("loss, penalty", f"{table.loss}, {table.penalty}"),
        ("start", "independent standard normal weights, drawn from the seed"),
        ("delta", f"{table.delta:g}"),
        ("versions", ", ".join(f"{key} {value}" for key, value in versions().items())),
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
    write_whole(page, render(report))
    if json_file is not None:
        content = {"figure": table.name, "dataset": runs.dataset, "delta": table.delta, "versions": versions()}
        write_whole(json_file, json.dumps(content | {"rows": rows}, indent=1) + "\n")
    return pictures, report


def _values(outcomes: Sequence[Outcome], method: str, epsilon: float, field: str) -> list[float]:
    return [float(getattr(o, field)) for o in outcomes if (o.method, o.epsilon) == (method, epsilon)]


def _panels(runs: TableRuns, outcomes: list[Outcome]) -> Iterator[Panel]:
    epsilons = runs.table.epsilons
    for tolerance, size in runs.tolerances:
        own = [each for each in outcomes if each.tolerance == tolerance]
        for field in ("loss", "seconds"):
            lines = []
            for method in runs.table.methods:
                found = [_values(own, method, epsilon, field) for epsilon in epsilons]
                lines.append(Line(look_of(method), epsilons, tuple(map(mean, found)), tuple(map(_error, found))))
            title = f"{tolerance} tolerances ({size:g}, {size**0.5:.3f})"
            yield Panel(
                title, "epsilon", _SHOWN[field][0], epsilons, False, tuple(lines), from_zero=field == "seconds"
            )


def _error(values: Sequence[float]) -> float:
    """Return the standard error of a mean; nothing is known of it after one run."""
    return stdev(values) / math.sqrt(len(values)) if len(values) > 1 else 0.0


def _cell(outcomes: Sequence[Outcome], field: str) -> str:
    digits, values = _SHOWN[field][1], [float(getattr(each, field)) for each in outcomes]
    spread = f" ± {_error(values):.{digits}f}" if len(values) > 1 else ""
    failed = f" {_CROSS}" if field == "seconds" and not all(each.success for each in outcomes) else ""
    return f"{mean(values):.{digits}f}{spread}{failed}"


def _matrix(table: StationaryTable, outcomes: list[Outcome], title: str, field: str) -> Matrix:
    lines = tuple(
        (
            look_of(method).name,
            *(_cell([o for o in outcomes if (o.method, o.epsilon) == (method, e)], field) for e in table.epsilons),
        )
        for method in table.methods
    )
    header = ("method", *(f"epsilon {epsilon:g}" for epsilon in table.epsilons))
    return Matrix(f"{title}: {_SHOWN[field][0]}", header, lines)


def _findings(runs: TableRuns, outcomes: list[Outcome]) -> Iterator[Finding]:
    """Hold what was found against what the paper says of its tables."""
    for tolerance, _ in runs.tolerances:
        own = [each for each in outcomes if each.tolerance == tolerance]
        for finding in (*_compared(runs.table, own), *_hessians(runs.table, own), _crossed(runs.table, own)):
            yield Finding(f"{tolerance}: {finding.claim}", finding.found)


def _less(own: Sequence[Outcome], method: str, field: str, epsilons: Sequence[float]) -> list[Margin]:
    """Return by how much less than TR a method has of something, seed by seed, at some epsilons."""
    pairs = [(_values(own, "dp-tr", e, field), _values(own, method, e, field)) for e in epsilons]
    return [Margin.of([a - b for a, b in zip(*pair, strict=True)]) for pair in pairs]


def _compared(table: StationaryTable, own: Sequence[Outcome]) -> Iterator[Finding]:
    high = tuple(epsilon for epsilon in table.epsilons if epsilon in _HIGH)
    low = tuple(epsilon for epsilon in table.epsilons if epsilon == _LOW)
    claims = (
        ("OPT takes less time than TR at epsilon 0.6 and 1.", "opt", "seconds", high),
        ("OPT ends at a lower loss than TR at epsilon 0.6 and 1.", "opt", "loss", high),
        ("At epsilon 0.2 OPT may fail to end; its final loss is even lower than that of TR.", "opt", "loss", low),
        ("2OPT-LS takes less time than TR at every epsilon.", "2opt-ls", "seconds", table.epsilons),
    )
    for text, method, field, epsilons in claims:
        if {"dp-tr", method} <= set(table.methods) and epsilons:
            margins = _less(own, method, field, epsilons)
            shown = ", ".join(f"{margin} at {e:g}" for margin, e in zip(margins, epsilons, strict=True))
            what = f"TR minus {look_of(method).name} in {_SHOWN[field][0]}"
            yield Finding(text, told(every(margins), f"{what}: {shown}"))


def _hessians(table: StationaryTable, own: Sequence[Outcome]) -> Iterator[Finding]:
    others = [method for method in table.methods if method != "dp-tr"]
    if len(others) < len(table.methods):
        fewer: list[Statement] = [m for name in others for m in _less(own, name, "hessians", table.epsilons)]
        counts = {m: mean(o.hessians for o in own if o.method == m) for m in table.methods}
        shown = ", ".join(f"{look_of(name).name} {count:.1f}" for name, count in counts.items())
        yield Finding(
            "TR evaluates a Hessian in each iteration, the others hardly any.",
            told(every(fewer), f"on average {shown}"),
        )


def _crossed(table: StationaryTable, own: Sequence[Outcome]) -> Finding:
    crossed = [
        f"{look_of(method).name} at {epsilon:g}"
        for method in table.methods
        for epsilon in table.epsilons
        if not all(_values(own, method, epsilon, "success"))
    ]
    return Finding(
        "OPT may fail to end at epsilon 0.2, where a table for Covertype also crosses out OPT-LS and 2OPT.",
        f"Crossed out here: {', '.join(crossed) or 'none'}.",
    )
