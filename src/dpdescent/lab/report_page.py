"""One HTML page that holds everything: the picture, claims beside findings, tables, statements, settings."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from ..long_runs import write_whole
from ..statement import guarantee, heading, html_page
from .fold_fits import Row
from .method_looks import ORACLE, look_of
from .study import Record, command_line, versions_setting
from .verdicts import MEASURES, Group, Measure, Verdict


@dataclass(frozen=True)
class Picture:
    """An SVG file and what it shows, for those who cannot see it."""

    path: Path
    description: str


@dataclass(frozen=True)
class Finding:
    """A claim of a paper, in our words, and what was found here, computed from the rows."""

    claim: str
    found: str

    @property
    def verdict(self) -> str:
        """Whether the paper and the rows agree, in the words of `Verdict`; empty where nothing is judged."""
        return next((verdict.value for verdict in Verdict if self.found.startswith(verdict.value)), "")


@dataclass(frozen=True)
class Matrix:
    """A table of text."""

    title: str
    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


@dataclass(frozen=True)
class Report:
    """The parts of a page."""

    title: str
    caption: str
    extent: str  # how much of what the paper ran was run
    pictures: tuple[Picture, ...]
    findings: tuple[Finding, ...]
    tables: tuple[Matrix, ...]
    #: A name and a text each.
    statements: tuple[tuple[str, str], ...]
    settings: tuple[tuple[str, str], ...]
    notes: tuple[str, ...] = ()
    details: tuple[str, ...] = ()  # what few readers need: the page folds it away
    cells: tuple[Mapping[str, Any], ...] = ()  # the numbers, as of `cells_of`
    command: str = ""  # what to type for it, if it is not what was typed


_STYLE = """
body { max-width: 76rem; } img { width: 100%; height: auto; }
.tables { display: flex; flex-wrap: wrap; gap: 0 2rem; } .tables > div { max-width: 100%; }
caption { text-align: left; font-weight: 600; padding: .25rem 0; } td { white-space: nowrap; }
.prose td, .prose th { text-align: left; white-space: normal; } .prose td:first-child { min-width: 9rem; }
.claims td { width: 50%; }
"""


def render(report: Report) -> str:
    """Return the page. It loads nothing: pictures are inside it."""
    parts = [f"<h1>{escape(report.title)}</h1>", f"<p>{escape(report.caption)} {escape(report.extent)}</p>"]
    if report.details:
        folded = "".join(f"<p>{escape(text)}</p>" for text in report.details)
        parts.append(f'<details class="note"><summary>What differs from the paper</summary>{folded}</details>')
    parts += [_figure(picture) for picture in report.pictures]
    if report.findings:
        pairs = [(finding.claim, finding.found) for finding in report.findings]
        parts.append(heading("What the paper says, and what was found", "claims"))
        parts.append(
            _table(Matrix("", ("the paper's claim, in our words", "found here"), tuple(pairs)), "prose claims")
        )
    parts.append(heading("Results", "results"))
    parts.append('<div class="tables">' + "\n".join(_table(matrix) for matrix in report.tables) + "</div>")
    parts += [f'<p class="note">{escape(note)}</p>' for note in report.notes]
    parts.append(heading("The privacy of each curve", "privacy"))
    parts.append(_table(Matrix("", ("curve", "statement"), report.statements), "prose"))
    parts.append(heading("Settings", "settings"))
    settings = (*report.settings, *((("command", report.command),) if report.command else command_line()))
    parts.append(_table(Matrix("", ("setting", "value"), settings), "prose"))
    return html_page(report.title, parts, _STYLE)


def write_report(report: Report, page: Path, json_file: Path | None, content: Mapping[str, Any]) -> None:
    """Write the page and, if a file was asked for, its content as JSON."""
    write_whole(page, render(report))
    if json_file is not None:
        write_whole(json_file, json.dumps(content, indent=1) + "\n")


def matrices(groups: Sequence[Group], measures: Sequence[Measure] = MEASURES) -> tuple[Matrix, ...]:
    """Return, for each task and measure, the table of methods against epsilons."""
    found = []
    for dataset, loss in dict.fromkeys((group.dataset, group.loss) for group in groups):
        chosen = [group for group in groups if (group.dataset, group.loss) == (dataset, loss)]
        epsilons = sorted({group.epsilon for group in chosen})
        for measure in measures:
            rows: dict[str, dict[float, str]] = {}
            for group in chosen:
                name = group.name if not group.parameter else f"{group.parameter} = {group.shown_value}"
                rows.setdefault(name, {})[group.epsilon] = group.text(measure.field)
            found.append(
                Matrix(
                    f"{dataset}, {loss}: {measure.name}",
                    ("method", *(f"epsilon {epsilon:g}" for epsilon in epsilons)),
                    tuple((name, *(cells.get(e, "–") for e in epsilons)) for name, cells in rows.items()),
                )
            )
    return tuple(found)


def privacy_statements(record: Record) -> tuple[tuple[str, str], ...]:
    """Return what each curve guarantees, by the ledgers of its fits."""
    statements = []
    for method in dict.fromkeys(row.method for row in record.rows):
        rows = [row for row in record.rows if row.method == method]
        fitted = [row for row in rows if not row.error]
        look = look_of(method)
        refused = f" Refused in {len(rows) - len(fitted)} of {len(rows)} cells." if len(fitted) < len(rows) else ""
        if rows[0].oracle:
            text = f"{ORACLE}: its settings were chosen on the test data, at every epsilon anew."
        elif not rows[0].private:
            text = "Not private: it reads the rows as they are."
        elif not fitted:
            text = "No model was released."
        else:
            shares = [row.spent_epsilon / row.epsilon for row in fitted if row.spent_epsilon is not None]
            kinds = ", ".join(sorted({kind for row in fitted for kind in row.mechanisms}))
            text = (
                f"Each fit is {guarantee('epsilon', record.study.delta, record.study.adjacency)}, epsilon "
                "being the one on the axis. By its own ledger "
                f"({' and '.join(sorted({row.currency for row in fitted if row.currency}))}) a fit spent at most "
                f"{max(shares, default=0):.2%} of its epsilon, on: {kinds}. "
                f"Randomness: {', '.join(sorted({row.randomness for row in fitted}))}."
            )
        text += "".join(f" {remark[:1].upper()}{remark[1:]}." for remark in _remarks(fitted))
        statements.append((look.name, text + refused))
    return tuple(statements)


def _remarks(rows: Sequence[Row]) -> list[str]:
    return [remark.rstrip(".") for remark in dict.fromkeys(remark for row in rows for remark in row.remarks)]


def settings_of(record: Record) -> tuple[tuple[str, str], ...]:
    """Return the settings and versions of a record as pairs of text."""
    study = record.study
    used = study.folds_used or study.folds
    sizes = {row.dataset: f"{row.dataset} ({row.n:,} training rows, {row.d} columns)" for row in record.rows if row.n}
    options = {
        look_of(curve.name).name: _options(record, curve.name) for curve in study.curves if not curve.parameter
    }
    pairs = [
        ("data", "; ".join(sizes.values())),
        ("epsilon", ", ".join(f"{epsilon:g}" for epsilon in study.epsilons)),
        ("delta", f"{study.delta:g}"),
        ("relation", study.adjacency),
        ("L2 penalty", f"{study.alpha:g}"),
        ("cross-validation", f"{used} of {study.folds} folds, seeds {', '.join(map(str, range(study.seeds)))}"),
        *((f"options of {name}", text) for name, text in options.items()),
        versions_setting(),
    ]
    return tuple(pairs)


def _options(record: Record, name: str) -> str:
    found = {
        ", ".join(f"{key} = {value}" for key, value in row.options.items()) or "its default rule"
        for row in record.rows
        if row.method == name
    }
    return "; ".join(sorted(found))


def _figure(picture: Picture) -> str:
    data = base64.b64encode(picture.path.read_bytes()).decode()
    return f'<figure><img alt="{escape(picture.description)}" src="data:image/svg+xml;base64,{data}"></figure>'


def _table(matrix: Matrix, kind: str = "") -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in matrix.header)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>\n" for row in matrix.rows)
    caption = f"<caption>{escape(matrix.title)}</caption>" if matrix.title else ""
    return (
        f'<div class="scroll"><table class="{kind}">{caption}<thead><tr>{head}</tr></thead>\n'
        f"<tbody>\n{body}</tbody></table></div>"
    )
