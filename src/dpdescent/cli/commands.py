"""The commands. Their messages show only paid or public quantities."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pandas as pd
import typer
from rich.console import Console
from rich.table import Table

from ..datasets import Dataset, list_datasets, load_dataset
from ..datasets.files import is_data_path, read_table
from ..errors import DatasetNotAvailable, InvalidParameter
from ..estimators import DPLinearRegression, DPLinearSVC, DPLogisticRegression
from ..experiments.commands import compare_command, reproduce_command
from ..ledger import Ledger
from ..problems import Adversary
from ..schema import Schema, draft_schema
from .models import SavedModel

__all__ = ["app"]

app = typer.Typer(help="Private training with no learning rate to tune.", no_args_is_help=True, add_completion=False)
out = Console(highlight=False)

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")]
Epsilon = Annotated[float, typer.Option(help="Privacy budget epsilon.")]
Delta = Annotated[float, typer.Option(help="Privacy budget delta; take it well below 1/n.")]
Seed = Annotated[int | None, typer.Option(help="Repeat a run. Never for a release.")]

MODELS = {"logistic": DPLogisticRegression, "svm": DPLinearSVC, "regression": DPLinearRegression}


def say(text: str) -> None:
    """Print a line of text as it is, however wide the screen."""
    out.print(text, soft_wrap=True, markup=False)


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
    _write_json(json_file, report)


@app.command()
def fit(
    data: Annotated[str, typer.Argument(help="A data set name, or a CSV, Parquet or NPZ file.")],
    output: Annotated[Path, typer.Option(help="Where to write the model.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    schema: Annotated[Path | None, typer.Option(help="Public schema of the table (see `dpdescent schema`).")] = None,
    model: Annotated[str, typer.Option(help="logistic, svm or regression.")] = "logistic",
    method: Annotated[str, typer.Option(help="The solver.")] = "auto",
    adjacency: Annotated[str, typer.Option(help="zero-out or replace-one.")] = "zero-out",
    alpha: Annotated[float, typer.Option(help="Weight of the L2 penalty.")] = 0.0,
    tilt: Annotated[float, typer.Option(help="Weigh rows with large losses more; needs --method outpert.")] = 0.0,
    adversary: Annotated[
        float | None, typer.Option(metavar="RADIUS", help="Let rows be moved so far; needs --method outpert.")
    ] = None,
    adversary_norm: Annotated[str, typer.Option(help="How moves are measured: l2 or linf.")] = "l2",
    ledger: Annotated[Path | None, typer.Option(help="A ledger file that pays as well.")] = None,
    seed: Seed = None,
    json_file: JsonFile = None,
) -> None:
    """Train a model on a table and save it with its privacy statement."""
    if model not in MODELS:
        raise InvalidParameter(f"unknown model {model!r}: choose one of {', '.join(MODELS)}")
    table = load_dataset(data, schema=schema) if schema is not None else load_dataset(data)
    options: dict[str, Any] = {"method": method, "adjacency": adjacency, "alpha": alpha, "random_state": seed}
    options |= {"bounds": table.bounds, "binary_features": table.binary_features}
    options |= {"progress": sys.stderr.isatty(), "tilt": tilt}
    if adversary is not None:
        options["adversary"] = Adversary(adversary, adversary_norm)  # type: ignore[arg-type]
    if ledger is not None:
        options["ledger"] = Ledger.open(ledger)
    if model == "regression":
        options["target_bounds"] = _target_bounds(table)
    else:
        options["classes"] = table.classes
    fitted = MODELS[model](epsilon, delta, **options).fit(table.X, table.y)
    saved = SavedModel.from_estimator(fitted, list(table.feature_names), table.schema)
    saved.save(output)
    _print_privacy(fitted.privacy_)
    say(f"model written to {output}")
    _write_json(json_file, {"model": str(output), "privacy": fitted.privacy_})


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
    if output is not None:
        frame.to_csv(output, index=False)
        say(f"{len(frame)} predictions written to {output}")
    elif json_file is None:
        sys.stdout.write(frame.to_csv(index=False))
    _write_json(json_file, {"predictions": frame.to_dict(orient="list")})


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
    _write_json(json_file, {"datasets": rows})


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


@app.command()
def ledger(
    path: Annotated[Path, typer.Argument(help="A ledger file.")],
    create: Annotated[bool, typer.Option(help="Start a new ledger in this file.")] = False,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    currency: Annotated[str, typer.Option(help="gdp, zcdp, rdp, pure or approximate.")] = "gdp",
    adjacency: Annotated[str, typer.Option(help="zero-out or replace-one.")] = "zero-out",
    json_file: JsonFile = None,
) -> None:
    """Show a ledger file, or start one."""
    if create:
        account = Ledger(epsilon, delta, currency=currency, relation=adjacency, path=path)
    else:
        account = Ledger.open(path)
    _print_privacy(account.statement())
    _write_json(json_file, account.statement())


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
    if saved.schema is not None and is_data_path(data) and not data.endswith(".npz"):
        declared = Schema.from_dict(saved.schema)
        table = read_table(Path(data), declared, label=False)
        return np.asarray(declared.encoder().fit(table).transform(table))
    if data.endswith(".npz"):
        with np.load(data) as arrays:
            return arrays["X"].astype(np.float64)
    return load_dataset(data).X


def _target_bounds(table: Dataset) -> tuple[float, float]:
    label = None if table.schema is None else table.schema.label
    if label is None or label.low is None or label.high is None:
        raise InvalidParameter("regression needs public target bounds: give label.low and label.high in the schema")
    return label.low, label.high


def _print_privacy(privacy: dict[str, Any]) -> None:
    say(
        f"({privacy['epsilon']:g}, {privacy['delta']:g})-differential privacy for {privacy['unit']}, "
        f"relation {privacy['relation']}; spent {privacy['spent'] / privacy['budget']:.1%} of the budget"
    )
    for kind, count in privacy["mechanisms"].items():
        say(f"  {count:5d} x {kind}")
    if "randomness" in privacy:
        say(f"randomness: {privacy['randomness']}")


def _write_json(path: Path | None, data: dict[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(data, indent=1, default=_plain) + "\n")


def _plain(value: Any) -> Any:
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not plain data")
