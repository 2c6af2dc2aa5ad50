"""The commands. Their messages show only paid or public quantities."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.table import Table

from ..datasets import Dataset, list_datasets, load_dataset
from ..datasets.files import is_data_path, read_table
from ..datasets.formats import read_packed
from ..errors import DatasetNotAvailable, ModelFormatError
from ..experiments.commands import compare_command, reproduce_command
from ..schema import Schema, draft_schema
from .audit import audit_command
from .explain import explain_command
from .fit import fit_command
from .ledger import ledger_app
from .models import SavedModel
from .options import Delta, Epsilon, JsonFile, Seed
from .output import out, say, write_json

__all__ = ["app"]

app = typer.Typer(
    help="Private training with no learning rate to tune.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_show_locals=False,  # a local variable may hold the rows
)


@app.command()
def demo(
    epsilon: Epsilon = 0.4,
    delta: Delta = 1e-6,
    dataset: Annotated[str | None, typer.Option(help="A data set; Adult if it is there, else synthetic.")] = None,
    picture: Annotated[Path, typer.Option(help="Where to write the picture.")] = Path("out/demo.png"),
    seed: Seed = None,
    json_file: JsonFile = None,
) -> None:
    """Train a private model on public data, and show what it cost."""
    from .demo import run_demo

    data = _demo_data(dataset)
    report = run_demo(data, epsilon, delta, seed, picture, out)
    write_json(json_file, report)


@app.command()
def predict(
    model_file: Annotated[Path, typer.Argument(help="A model written by `dpdescent fit`.")],
    data: Annotated[str, typer.Argument(help="A data set name, or a CSV, Parquet or NPZ file.")],
    output: Annotated[Path | None, typer.Option(help="Write predictions to this CSV instead of the screen.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Predict with a saved model. Costs no privacy: the rows that trained it are not read."""
    saved = SavedModel.load(model_file)
    X = _features(saved, data)
    frame = pd.DataFrame({"prediction": saved.predict(X)})
    probabilities = saved.probabilities(X)
    if probabilities is not None and saved.classes is not None:
        for k, name in enumerate(saved.classes):
            frame[f"probability_{name}"] = probabilities[:, k]
    decisions = saved.decisions(X)
    if decisions is not None:
        frame["score"] = decisions
    if output is not None:
        frame.to_csv(output, index=False)
        say(f"{len(frame)} predictions written to {output}")
    elif json_file is None:
        sys.stdout.write(frame.to_csv(index=False))
    write_json(json_file, {"predictions": frame.to_dict(orient="list")})


@app.command()
def datasets(json_file: JsonFile = None) -> None:
    """List the data sets, and where each is."""
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
    out.print(table)
    say("Offline copies are looked up in $DPDESCENT_DATA.")
    write_json(json_file, {"datasets": rows})


@app.command()
def schema(
    table: Annotated[Path, typer.Argument(help="A CSV or Parquet table; only names and types are read.")],
    label: Annotated[str, typer.Option(help="The column to predict.")],
    output: Annotated[Path | None, typer.Option(help="Where to write the draft.")] = None,
) -> None:
    """Write a draft of the public schema of a table, from column names and types only."""
    draft = draft_schema(table, label=label)
    target = output or table.with_suffix(".schema.json")
    draft.dump(target)
    say(f"draft written to {target}. Fill in, from public knowledge and not from the rows:")
    for place in draft.places:
        say(f"  {place}")


app.command("audit")(audit_command)
app.command("fit")(fit_command)
app.command("explain")(explain_command)
app.add_typer(ledger_app, name="ledger")
app.command("compare")(compare_command)
app.command("reproduce")(reproduce_command)


def _demo_data(name: str | None) -> Dataset:
    if name is not None:
        return load_dataset(name)
    try:
        return load_dataset("adult", download=False)
    except DatasetNotAvailable:
        return load_dataset("synthetic")


def _features(saved: SavedModel, data: str) -> Any:
    """Return the features of a table in the units in which the model was fitted."""
    if is_data_path(data) and not Path(data).is_file():
        raise DatasetNotAvailable(f"there is no file {data!r}: correct the path")
    if data.endswith(".npz"):
        (X,) = read_packed(Path(data), "X")
        return saved.scaled(X)
    if saved.bounds is not None:
        raise ModelFormatError(f"the model was fitted to an NPZ file: {data!r} is none; pass an NPZ file with an X")
    if saved.schema is not None and is_data_path(data):
        declared = Schema.from_dict(saved.schema)
        table = read_table(Path(data), declared, label=False)
        return np.asarray(declared.encoder().fit(table).transform(table))
    return load_dataset(data).X
