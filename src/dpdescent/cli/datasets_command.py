"""The commands ``dpdescent datasets``, ``dpdescent datasets people`` and ``dpdescent datasets synthetic``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidParameter, OutputNotWritable
from .terminal import JsonFile, say, screen, write_json

datasets_app = typer.Typer(help="List the data sets, and where each is.", add_completion=False)


@datasets_app.callback(invoke_without_command=True)
def _datasets(context: typer.Context, json_file: JsonFile = None) -> None:
    """List the data sets, and where each is."""
    if context.invoked_subcommand is None:
        _list_datasets(json_file)


@datasets_app.command("people")
def people_command(
    output: Annotated[Path, typer.Argument(metavar="FILE", help="A CSV, Parquet or NPZ file to write.")],
    rows: Annotated[int, typer.Option(help="The number of people.")] = 20_000,
    seed: Annotated[int, typer.Option(help="Other people for another number.")] = 0,
    force: Annotated[bool, typer.Option("--force", help="Write over a file that is there.")] = False,
) -> None:
    """Write a table of artificial people, to try every command on; its label is `income`."""
    import numpy as np

    from ..datasets import load_dataset
    from ..long_runs import require_outputs, write_whole

    suffix = output.suffix
    if suffix not in (".csv", ".parquet", ".npz"):
        raise InvalidParameter(f"{output.name!r} is no .csv, .parquet or .npz file: choose one of these suffixes")
    if output.exists() and not force:
        raise OutputNotWritable(f"{output} is there: choose another name, or write over it by --force")
    require_outputs([output])
    people = load_dataset("synthetic", n=rows, seed=seed)
    table = people.table.rename(columns={"high_income": "income"})  # type: ignore[union-attr]
    if suffix == ".csv":
        write_whole(output, table.to_csv(index=False))
    elif suffix == ".parquet":
        table.to_parquet(output, index=False)
    else:
        np.savez_compressed(output, X=people.X, y=people.y)
    say(f"{rows:,} artificial people written to {output}")


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
