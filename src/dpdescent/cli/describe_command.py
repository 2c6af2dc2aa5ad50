"""The command ``dpdescent describe``: the first private look at a table, in the terminal and as one page."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..display import printable
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
    from .description_page import page_of

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
    from .description_page import day_in_words

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
