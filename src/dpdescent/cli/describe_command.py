"""The command ``dpdescent describe``: the first private look at a table, in the terminal and as one page."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..display import CONTENT_POLICY, printable
from ..errors import InvalidParameter
from ..long_runs import require_outputs, write_whole
from .schema_command import (
    ClassesOfLabel,
    Declared,
    DraftFile,
    IsNumber,
    Rest,
    RowsPerUnit,
    UnitColumn,
    measured,
    stem_of,
)
from .terminal import Adjacency, Delta, JsonFile, Seed, complain, say, write_json

if TYPE_CHECKING:
    from ..tables import Schema

_SHOWN = 6  # levels of a column in the terminal
_BLOCKS = " ▁▂▃▄▅▆▇█"


def describe_command(
    table: Annotated[Path, typer.Argument(metavar="TABLE", help="A CSV, TSV or Parquet table.")],
    label: Annotated[str | None, typer.Option(help="The column to predict: then a schema is written, too.")] = None,
    epsilon: Annotated[float, typer.Option(help="What the look may cost.")] = 0.2,
    delta: Delta = 1e-7,
    page: Annotated[Path | None, typer.Option(help="Where to write the page; default: TABLE.html.")] = None,
    schema: Annotated[Path | None, typer.Option(help="Where to write the schema that fits can use.")] = None,
    adjacency: Adjacency = "zero-out",
    classes: ClassesOfLabel = None,
    rest: Rest = None,
    regression: IsNumber = None,
    unit: UnitColumn = None,
    rows_per_unit: RowsPerUnit = 1,
    declared: DraftFile = None,
    ledger: Annotated[Path | None, typer.Option(help="A ledger file that pays as well.")] = None,
    seed: Seed = None,
    json_file: JsonFile = None,
) -> None:
    """Look at a table privately: types, levels, missing cells, numbers."""
    from ..statement import headline

    target = page or table.with_name(f"{stem_of(table)}.html")
    if label is None and schema is not None:
        raise InvalidParameter("--schema is where a schema for fits is written, which needs --label COLUMN")
    written = None if label is None else schema or table.with_name(f"{stem_of(table)}.schema.json")
    require_outputs([target, written, json_file], [table, ledger])
    told = Declared(label, classes, rest, regression, declared)
    cost = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency, "random_state": seed, "histograms": True}
    found = measured(table, told, written or target, ledger, unit=unit, rows_per_unit=rows_per_unit, **cost)
    useless = why_useless(found, label)
    if written is not None and not useless:
        write_whole(written, found.as_text())
    write_whole(target, page_of(found, table.name, ends_of(found)))
    for line in lines_of(found):
        say(printable(line))
    statement = _record(found)["statement"]
    say(f"{headline(statement)} All counts are noisy.")
    say(f"page written to {target}")
    if useless:
        complain("no schema was written", useless, colour="yellow")
    elif written is not None:
        say(f"schema written to {written}: `dpdescent fit {table} --schema {written}` uses it")
    write_json(json_file, found.to_dict())


def _record(schema: Schema) -> Mapping[str, Any]:
    return schema.measured or {}


def why_useless(schema: Schema, label: str | None) -> str:
    """Return why no fit could use a schema, or nothing if one can."""
    if label is None:
        return ""
    reason: str = _record(schema)["columns"].get(label, {}).get("ignored", "")
    return reason or ("" if schema.features else "no column was found that a model could use")


def lines_of(schema: Schema) -> list[str]:
    """Return a line for each column: its kind, the share of missing cells, and its levels or numbers."""
    columns: Mapping[str, Any] = _record(schema)["columns"]
    width = min(28, max((len(name) for name in (*columns, "column")), default=0))
    ends = ends_of(schema)
    lines = [f"{'column':{width}}  {'kind':9}  missing  what was found"]
    for name, each in columns.items():
        told = f"ignored: {each['ignored']}" if "ignored" in each else contents(each, ends.get(name))
        lines.append(f"{name[:width]:{width}}  {each['kind']:9}  {each['missing_share']:6.1%}  {told}")
    return lines


def ends_of(schema: Schema) -> dict[str, tuple[str, str]]:
    """Return the bounds of numbers and dates as people write them."""
    from ..tables import DateColumn

    found = {}
    bounds = {column.name: column.bounds for column in schema.numbers} | {schema.label.column: schema.label.bounds}
    dated = {column.name for column in schema.numbers if isinstance(column, DateColumn)}
    for name, ends in bounds.items():
        if ends is not None:
            low, high = ((day_in_words(end) if name in dated else f"{end:g}") for end in ends)
            found[name] = low, high
    return found


def contents(each: Mapping[str, Any], ends: tuple[str, str] | None) -> str:
    """Return the levels of a column with their shares of the cells there, or a histogram, in one line."""
    if "histogram" in each and ends is not None:
        return f"{ends[0]} {_sparks(each['histogram'])} {ends[1]}"
    levels = sorted(each.get("levels", []), key=lambda pair: -pair[1])
    total = max(1.0, sum(count for _, count in levels)) / max(each.get("coverage", 1.0), 1e-9)
    shown = [f"{level} {count / total:.0%}" for level, count in levels[:_SHOWN]]
    more = f" and {len(levels) - _SHOWN} more" if len(levels) > _SHOWN else ""
    return ", ".join(shown) + more


def _sparks(counts: Sequence[float]) -> str:
    most = max(1.0, *counts)
    return "".join(_BLOCKS[round(max(0.0, count) / most * (len(_BLOCKS) - 1))] for count in counts)


_SHOWN_ON_PAGE = 12
_STYLE = """
body{font:15px/1.5 system-ui,sans-serif;max-width:70rem;margin:2rem auto;padding:0 1rem;color:#222}
table{border-collapse:collapse;width:100%}th,td{text-align:left;vertical-align:top;padding:.5rem .8rem .5rem 0;
border-bottom:1px solid #ddd}th{font-weight:600;color:#555}td.n{text-align:right;white-space:nowrap}
.bar{fill:#4477aa}.err{stroke:#222;stroke-width:1}.small{color:#666;font-size:13px}svg text{font-size:12px;fill:#222}
@media(prefers-color-scheme:dark){body{background:#1b1b1b;color:#ddd}th,td{border-color:#444}.err{stroke:#ddd}
svg text{fill:#ddd}.small{color:#aaa}}
"""


def page_of(schema: Schema, name: str, ends: Mapping[str, tuple[str, str]]) -> str:
    """Return the page: what was found in each column, with intervals of the noise, and what it cost."""
    from ..statement import headline

    measured: Mapping[str, Any] = schema.measured or {}
    statement = measured["statement"]
    found = measured["columns"].items()
    rows = "".join(_row(column, each, ends.get(column, ("", ""))) for column, each in found)
    public = "".join(f"<li>{_text(fact)}</li>" for fact in statement["assumed_public"])
    title = f"{_text(name)}: a private look"
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8>{CONTENT_POLICY}<title>{title}</title><meta name=viewport "
        f"content='width=device-width'><style>{_STYLE}</style><h1>{title}</h1>"
        f"<p>{measured['rows']} rows. Everything below together is {_text(headline(statement))} Counts are "
        "noisy; lines at the ends of bars are 95% intervals of that noise. Values that are too rare to be published "
        "are not shown, and nothing tells how many there are. Cells of another kind than their column "
        "count as missing.</p>"
        "<table><tr><th>Column<th>Kind<th>Missing<th>What was found</tr>"
        f"{rows}</table><h2>Assumed to be public</h2><ul>{public}</ul>"
    )


def _text(value: object) -> str:
    return escape(printable(str(value)))


def _row(name: str, each: Mapping[str, Any], ends: tuple[str, str]) -> str:
    if "ignored" in each:
        told = f"<span class=small>ignored: {_text(each['ignored'])}</span>"
    elif "histogram" in each:
        told = _histogram(each["histogram"], each["deviation"], each["ends"], ends, each["kind"])
    else:
        told = _levels(each.get("levels", []), each.get("deviation", 0.0), each.get("coverage", 0.0))
    share = f"{each['missing_share']:.1%}"
    return f"<tr><td>{_text(name)}<td>{_text(each['kind'])}<td class=n>{share}<td>{told}</tr>"


def _levels(levels: Sequence[Sequence[Any]], deviation: float, coverage: float) -> str:
    """Return bars of the most frequent levels."""
    ordered = sorted(levels, key=lambda pair: -pair[1])
    most = max([1.0, *(count for _, count in ordered)])
    bars = []
    for place, (level, count) in enumerate(ordered[:_SHOWN_ON_PAGE]):
        y, width, half = 18 * place, 260 * max(count, 0.0) / most, 260 * 1.96 * deviation / most
        bars.append(
            f"<rect class=bar x=180 y={y + 3} width={width:.1f} height=12></rect>"
            f"<line class=err x1={max(180.0, 180 + width - half):.1f} x2={180 + width + half:.1f} y1={y + 9} "
            f"y2={y + 9}></line><text x=172 y={y + 13} text-anchor=end>{_text(str(level)[:24])}</text>"
            f"<text x={192 + width + half:.1f} y={y + 13}>{max(count, 0.0):,.0f}</text>"
        )
    more = f", {len(ordered) - _SHOWN_ON_PAGE} more" if len(ordered) > _SHOWN_ON_PAGE else ""
    note = f"<div class=small>{len(ordered)} levels found, which cover {coverage:.0%} of the cells{more}</div>"
    return f"<svg width=560 height={18 * len(bars) + 4} role=img>{''.join(bars)}</svg>{note}"


def day_in_words(days: float) -> str:
    """Return days since 1970-01-01 as a date."""
    try:
        return str(date(1970, 1, 1) + timedelta(days=days))
    except OverflowError:
        return f"{days:g} days"


def _histogram(
    counts: Sequence[float], deviation: float, bounds: Sequence[float], ends: tuple[str, str], kind: str
) -> str:
    """Return a histogram of numbers with its quartiles, which are read off the noisy counts."""
    most = max([1.0, *counts])
    bars = [
        f"<rect class=bar x={16 * place} y={80 - 76 * max(count, 0.0) / most:.1f} width=14 "
        f"height={76 * max(count, 0.0) / most:.1f}></rect>"
        for place, count in enumerate(counts)
    ]
    noise = 76 * 1.96 * deviation / most
    written = "{:.4g}".format if kind != "date" else day_in_words
    quartiles = ", ".join(written(quantile(counts, share, bounds)) for share in (0.25, 0.5, 0.75))
    texts = f"<text x=0 y=96>{_text(ends[0])}</text>"
    texts += f"<text x={16 * len(counts)} y=96 text-anchor=end>{_text(ends[1])}</text>"
    scale = f"<line class=err x1=394 x2=394 y1={80 - min(noise, 76):.1f} y2=80></line>"
    return (
        f"<svg width=420 height=100 role=img>{''.join(bars)}{texts}{scale}</svg>"
        f"<div class=small>quartiles about {quartiles}; the line on the right is 1.96 deviations of the noise</div>"
    )


def quantile(counts: Sequence[float], share: float, bounds: Sequence[float]) -> float:
    """Return about which number lies above a share of the cells, by noisy counts in equal bins."""
    held = [max(count, 0.0) for count in counts]
    wanted, width = share * math.fsum(held), (bounds[1] - bounds[0]) / len(held)
    before = 0.0
    for place, count in enumerate(held):
        if count > 0 and before + count >= wanted:
            return bounds[0] + width * (place + (wanted - before) / count)
        before += count
    return bounds[1]
