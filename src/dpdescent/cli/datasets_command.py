"""The commands ``dpdescent datasets`` and ``dpdescent datasets synthetic``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .terminal import JsonFile, say, screen, write_json

datasets_app = typer.Typer(help="List the data sets, and where each is.", add_completion=False)


@datasets_app.callback(invoke_without_command=True)
def _datasets(context: typer.Context, json_file: JsonFile = None) -> None:
    """List the data sets, and where each is."""
    if context.invoked_subcommand is None:
        _list_datasets(json_file)


@datasets_app.command("synthetic")
def synthetic_command(
    output: Annotated[Path, typer.Option(help="A new folder for the Parquet files and their schema.")],
    rows: Annotated[int, typer.Option(help="The number of rows.")] = 1_000_000,
    columns: Annotated[int, typer.Option(help="The number of features.")] = 50,
    seed: Annotated[int, typer.Option(help="The beginning of a table depends on it alone.")] = 0,
) -> None:
    """Write a synthetic table of any length as Parquet files, with its schema."""
    from ..datasets import write_large_table

    write_large_table(output, rows, columns, seed)
    say(f"{rows} rows of {columns} numbers written to {output}; `dpdescent fit {output} --output MODEL` reads them")


def _list_datasets(json_file: Path | None) -> None:
    from rich.table import Table

    from ..datasets import list_datasets

    table = Table(box=None, header_style="bold")
    for column in ("name", "rows", "columns", "classes", "where"):
        table.add_column(column, justify="right" if column in ("rows", "columns", "classes") else "left")
    rows = []
    for info in list_datasets():
        where = "built in" if info.built_in else str(info.location) if info.location else "to download"
        rows.append(
            {"name": info.name, "title": info.title, "rows": info.rows, "columns": info.columns, "where": where}
        )
        table.add_row(info.name, f"{info.rows:,}", f"{info.columns:,}", str(info.classes), where)
    screen().print(table)
    say("Offline copies are looked up in $DPDESCENT_DATA.")
    write_json(json_file, {"datasets": rows})
