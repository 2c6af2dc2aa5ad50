"""The commands ``dpdescent schema draft | check | format``; ``dpdescent schema TABLE`` is short for ``draft``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import SchemaError
from ..long_runs import require_outputs, write_whole
from .commands import CommandGroup
from .terminal import JsonFile, say, write_json, write_text

if TYPE_CHECKING:
    from ..tables import Schema

TableFile = Annotated[Path, typer.Argument(metavar="TABLE", help="A CSV, TSV or Parquet table.")]
SchemaFile = Annotated[Path, typer.Argument(metavar="SCHEMA", help="A schema file.")]


class _WithShortForm(CommandGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            args = ["draft", *args]
        return super().parse_args(ctx, args)


schema_app = typer.Typer(
    cls=_WithShortForm,
    help="Say what is public about a table: draft such a file, and check it.",
    add_completion=False,
)


@schema_app.command()
def draft(
    table: TableFile,
    label: Annotated[str, typer.Option(help="The column to predict.")],
    output: Annotated[Path | None, typer.Option(help="Where to write the draft.")] = None,
    separator: Annotated[
        str | None, typer.Option(help="What stands between cells; default: told from the first line.")
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Write over a schema that is there.")] = False,
) -> None:
    """Write a draft of the public schema of a table, from column names and types only."""
    from ..tables import FORMAT_FILE, draft_schema

    found = draft_schema(table, label=label, separator="\t" if separator in ("\\t", "tab") else separator)
    target = output or table.with_name(f"{_stem(table)}.schema.json")
    if target.is_file() and not force:
        raise SchemaError(f"{target} is there: choose another --output, or write over it by --force")
    require_outputs([target, target.with_name(FORMAT_FILE)], [table])
    found.dump(target)
    say(f"draft written to {target}. Fill in, from public knowledge and not from the rows:")
    for place in found.places:
        say(f"  {place}")
    say("To predict a number, give label.low and label.high in place of label.classes, or remove it.")
    if found.identifiers:
        say(f"Left out, because the names are those of identifiers: {', '.join(found.identifiers)}")
    say(f"The file explains each type. `dpdescent schema check {target} {table}` lists what is still wrong with it.")


@schema_app.command()
def check(
    schema: SchemaFile,
    table: Annotated[Path | None, typer.Argument(metavar="[TABLE]", help="The table that it is to describe.")] = None,
    json_file: JsonFile = None,
) -> None:
    """List everything that is wrong with a schema, and with a table's columns by it. No cell is read."""
    from ..tables import Schema, column_names

    require_outputs([json_file], [schema, table])
    problems: list[str] = []
    unused: list[str] = []
    try:
        declared = Schema.load(schema)
        if table is not None:
            absent, unused = _compare(declared, column_names(table, declared.file))
            problems += [f"{table.name!r} has no column {name!r}: correct the schema or the file" for name in absent]
    except SchemaError as error:
        problems += error.problems
    write_json(json_file, {"problems": problems, "unused": unused})
    if problems:
        for problem in problems:
            say(f"  {problem}")
        raise SchemaError(f"{schema} has {len(problems)} problem{'s' if len(problems) > 1 else ''}: see above")
    say(
        f"{schema} is in order: {len(declared.features)} columns are used, and {declared.label.column!r} is predicted"
    )
    label = [declared.label.column] if declared.label.classes is None and declared.label.bounds is None else []
    measured = [*declared.to_measure, *label]
    if measured:
        say(f"without bounds, so that a fit measures and pays for them: {', '.join(measured)}")
    if unused:
        say(f"not declared, and so not used: {', '.join(unused)}")


@schema_app.command("format")
def format_command(
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the screen.")] = None,
) -> None:
    """Write a JSON Schema of the file format, by which editors complete and check what is typed."""
    from ..tables import as_text, json_schema

    text = as_text(json_schema()) + "\n"
    if output is None:
        write_text(text)
    else:
        write_whole(output, text)
        say(f"written to {output}")


def _stem(table: Path) -> str:
    """Return the name of a table without its suffixes: people for people.csv.gz."""
    return table.name.removesuffix(".gz").rpartition(".")[0] or table.stem


def _compare(declared: Schema, names: list[str]) -> tuple[list[str], list[str]]:
    """Return the columns that a table lacks, and those about which the schema says nothing."""
    needed = (*declared.features, declared.label.column)
    described = {*(column.name for column in declared.columns), declared.label.column}
    return [name for name in needed if name not in names], [name for name in names if name not in described]
