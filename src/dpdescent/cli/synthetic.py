"""The commands ``dpdescent datasets`` and ``dpdescent datasets synthetic``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .listings import datasets_command
from .options import JsonFile
from .output import say

__all__ = ["datasets_app"]

datasets_app = typer.Typer(help="List the data sets, and where each is.", add_completion=False)


@datasets_app.callback(invoke_without_command=True)
def _datasets(context: typer.Context, json_file: JsonFile = None) -> None:
    """List the data sets, and where each is."""
    if context.invoked_subcommand is None:
        datasets_command(json_file)


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
