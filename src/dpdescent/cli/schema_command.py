"""The commands ``dpdescent schema draft | check | format``; ``dpdescent schema TABLE`` is short for ``draft``."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..display import printable
from ..errors import InvalidParameter, SchemaError
from ..long_runs import require_outputs, write_whole
from .commands import CommandGroup
from .terminal import Adjacency, JsonFile, Seed, literal, say, write_json, write_text

if TYPE_CHECKING:
    from ..tables import Schema

TableFile = Annotated[Path, typer.Argument(metavar="TABLE", help="A CSV, TSV or Parquet table.")]
ClassesOfLabel = Annotated[str | None, typer.Option(metavar="A,B,...", help="Public classes of the label.")]
Rest = Annotated[
    str | None, typer.Option(metavar="CLASS", help="Which of --classes a label counts as that is none of the others.")
]
IsNumber = Annotated[bool | None, typer.Option(help="Whether the label is a number; found out.")]
UnitColumn = Annotated[
    str | None, typer.Option(metavar="COLUMN", help="Whose row it is: protect all rows of one person.")
]
RowsPerUnit = Annotated[int, typer.Option(help="Rows of a unit that are used, at most.")]
DraftFile = Annotated[
    Path | None,
    typer.Option(metavar="DRAFT", help="A draft of a schema: what is filled in is public, and not measured."),
]
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
    measure: Annotated[
        bool, typer.Option("--measure", help="Find out privately what the columns contain, and write a schema.")
    ] = False,
    epsilon: Annotated[float | None, typer.Option(help="What the measurement may cost.")] = None,
    delta: Annotated[float, typer.Option(help="The same.")] = 1e-7,
    adjacency: Adjacency = "zero-out",
    classes: ClassesOfLabel = None,
    rest: Rest = None,
    regression: IsNumber = None,
    unit: UnitColumn = None,
    rows_per_unit: RowsPerUnit = 1,
    declared: DraftFile = None,
    ledger: Annotated[Path | None, typer.Option(help="A ledger file that pays for the measurement as well.")] = None,
    seed: Seed = None,
) -> None:
    """Write a draft of the public schema of a table, from column names and types only; or measure it."""
    from ..tables import FORMAT_FILE, draft_schema

    target = output or table.with_name(f"{stem_of(table)}.schema.json")
    if measure:
        told = Declared(label, classes, rest, regression, declared)
        cost = {"epsilon": epsilon, "delta": delta, "adjacency": adjacency, "random_state": seed}
        _require_new(target, force)
        require_outputs([target], [table, ledger])
        _write(measured(table, told, target, ledger, unit=unit, rows_per_unit=rows_per_unit, **cost), target)
        return
    if any(each is not None for each in (epsilon, ledger, classes, rest, regression, unit, declared)):
        raise InvalidParameter(
            "--epsilon, --ledger, --classes, --rest, --regression, --unit and --declared are for --measure: add it"
        )
    found = draft_schema(table, label=label, separator="\t" if separator in ("\\t", "tab") else separator)
    _require_new(target, force)
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
            names = column_names(table, declared.file, renaming=declared.unreadable == "missing")
            absent, unused = _compare(declared, names)
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


@dataclass(frozen=True)
class Declared:
    """What was typed about the label, and what a draft of a schema says."""

    label: str | None
    classes: str | None = None
    rest: str | None = None
    regression: bool | None = None
    draft: Path | None = None

    def options(self) -> dict[str, Any]:
        """Return it as `dpdescent.tables.measure_schema` takes it."""
        from ..tables.schema_file import declared_in
        from .public_knowledge import read_classes

        columns, classes = ({}, None) if self.draft is None else declared_in(self.draft)
        if self.classes is not None:
            classes = tuple(read_classes(self.classes))
        rest = None if self.rest is None else literal(self.rest)
        return {"classes": classes, "rest": rest, "regression": self.regression, "declared": columns}


def measured(table: Path, told: Declared, output: Path, ledger: Path | None, **options: Any) -> Schema:
    """Buy the schema of a table; ``output`` is what a ledger records. See `dpdescent.tables.measure_schema`."""
    from ..ledger import Ledger
    from ..tables import is_parquet_group, measure_schema

    if options["epsilon"] is None:
        raise InvalidParameter("a measurement needs --epsilon, such as --epsilon 0.2: what it may cost")
    if not table.is_file() and not is_parquet_group(str(table)):
        raise SchemaError(f"there is no file {str(table)!r}: correct the path")
    account = None if ledger is None else Ledger.open(ledger, model=output)
    return measure_schema(table, told.label, ledger=account, **told.options(), **options)


def _write(schema: Schema, target: Path) -> None:
    """Write a schema that was measured, and say what was found."""
    write_whole(target, schema.as_text())
    statement = (schema.measured or {})["statement"]
    for remark in statement["remarks"]:
        say(f"  {printable(remark)}")
    say(
        f"schema written to {target}: {len(schema.features)} columns, measured at epsilon {statement['epsilon']:g}, "
        f"delta {statement['delta']:g}. A fit with --schema pays for none of it again"
    )


def _require_new(target: Path, force: bool) -> None:
    if target.is_file() and not force:
        raise SchemaError(f"{target} is there: choose another --output, or write over it by --force")


def stem_of(table: Path) -> str:
    """Return the name of a table without its suffixes: people for people.csv.gz."""
    return table.name.removesuffix(".gz").rpartition(".")[0] or table.stem


def _compare(declared: Schema, names: list[str]) -> tuple[list[str], list[str]]:
    """Return the columns that a table lacks, and those about which the schema says nothing."""
    needed = (*declared.features, declared.label.column)
    described = {*(column.name for column in declared.columns), declared.label.column}
    return [name for name in needed if name not in names], [name for name in names if name not in described]
