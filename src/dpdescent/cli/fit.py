"""The command ``dpdescent fit``."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from ..datasets import Dataset, load_dataset
from ..datasets.files import is_data_path
from ..errors import InvalidParameter
from ..estimators import DPLinearRegression, DPLinearSVC, DPLogisticRegression
from ..estimators.payment import share_charged
from ..experiments.outputs import require_writable
from ..ledger import Ledger
from ..problems import Adversary
from ..schema import Schema, Unit
from .models import SavedModel
from .options import Delta, Epsilon, JsonFile, Seed, read_bounds, read_classes, read_settings
from .output import complain, print_privacy, say, write_json

__all__ = ["fit_command"]

INTERRUPTED = 130
MODELS = {"logistic": DPLogisticRegression, "svm": DPLinearSVC, "regression": DPLinearRegression}


def fit_command(
    data: Annotated[str, typer.Argument(help="A data set name, or a CSV, Parquet or NPZ file.")],
    output: Annotated[Path, typer.Option(help="Where to write the model.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    schema: Annotated[Path | None, typer.Option(help="Public schema of the table (see `dpdescent schema`).")] = None,
    bounds: Annotated[
        str | None,
        typer.Option(metavar="LOW,HIGH", help="Public bounds of X in an NPZ file; also [LOW,...],[HIGH,...]."),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Public classes of y in an NPZ file.")
    ] = None,
    target_bounds: Annotated[
        str | None, typer.Option(metavar="LOW,HIGH", help="Public bounds of y in an NPZ file, for regression.")
    ] = None,
    model: Annotated[str, typer.Option(help="logistic, svm or regression.")] = "logistic",
    method: Annotated[str, typer.Option(help="The solver.")] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; may be repeated."),
    ] = None,
    adjacency: Annotated[str, typer.Option(help="zero-out or replace-one.")] = "zero-out",
    unit: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Whose row it is: protect all rows of one person.")
    ] = None,
    rows_per_unit: Annotated[int, typer.Option(help="Rows of a unit that are used, at most.")] = 1,
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
    options: dict[str, Any] = {"method": method, "adjacency": adjacency, "alpha": alpha, "random_state": seed}
    options |= {"progress": sys.stderr.isatty(), "tilt": tilt, "solver_options": read_settings(settings or [])}
    if adversary is not None:
        options["adversary"] = Adversary(adversary, adversary_norm)  # type: ignore[arg-type]
    if ledger is not None:
        options["ledger"] = Ledger.open(ledger, model=output)
    for path in [output, *([json_file] if json_file is not None else [])]:
        require_writable(path)
    public = _public_knowledge(data, schema, bounds, classes, target_bounds, regression=model == "regression")
    if unit is not None or rows_per_unit != 1:
        public["schema"] = _with_unit(public, unit, rows_per_unit)
    with _interrupts_explained() as charged:
        table = load_dataset(data, **public)
        options |= {"bounds": table.bounds, "binary_features": table.binary_features}
        if model == "regression":
            options["target_bounds"] = _target_bounds(table, target_bounds)
        else:
            options["classes"] = table.classes
        if table.schema is not None and table.schema.unit is not None:
            options["rows_per_unit"] = table.schema.unit.rows
        fitted = MODELS[model](epsilon, delta, **options).fit(table.X, table.y, unit=table.unit)
        charged.append(share_charged(fitted.privacy_["spent"], fitted.privacy_["budget"]))
        names, column_bounds = list(table.feature_names), _column_bounds(table, public)
        SavedModel.from_estimator(fitted, names, table.schema, column_bounds).save(output)
    print_privacy(fitted.privacy_)
    say(f"model written to {output}")
    write_json(json_file, {"model": str(output), "privacy": fitted.privacy_})


@contextmanager
def _interrupts_explained() -> Iterator[list[str]]:
    """Turn an interrupt into one line that says what was charged, and the exit code 130.

    A fit that is interrupted carries a note of what it had charged; what a finished one charged goes into the list.
    """
    charged: list[str] = []
    try:
        yield charged
    except KeyboardInterrupt as interrupt:
        notes = [*getattr(interrupt, "__notes__", []), *charged, "nothing was charged"]
        complain("interrupted", f"no model was written; {notes[0]}")
        raise typer.Exit(INTERRUPTED) from None


def _public_knowledge(
    data: str,
    schema: Path | None,
    bounds: str | None,
    classes: str | None,
    target_bounds: str | None,
    regression: bool,
) -> dict[str, Any]:
    """Return what `load_dataset` needs to be told, or raise with the options that are missing."""
    public: dict[str, Any] = {}
    if schema is not None:
        public["schema"] = schema
    if bounds is not None:
        public["bounds"] = read_bounds("--bounds", bounds)
    if classes is not None:
        public["classes"] = read_classes(classes)
    if not data.endswith(".npz"):
        if is_data_path(data) and Path(data).is_file() and not public:
            raise InvalidParameter(
                f"{data} needs --schema FILE, which says what is public about its columns: `dpdescent schema {data} "
                "--label COLUMN` writes a draft to fill in"
            )
        if target_bounds is not None:
            raise InvalidParameter(
                "--target-bounds is for NPZ files: a table has label.low and label.high in its schema"
            )
        return public
    label = "--target-bounds LOW,HIGH" if regression else "--classes A,B"
    if bounds is None or (target_bounds if regression else classes) is None:
        raise InvalidParameter(
            f"{data} needs --bounds LOW,HIGH and {label}, both public: they are never read from the file"
        )
    if (classes if regression else target_bounds) is not None:
        raise InvalidParameter("--classes is for logistic and svm, and --target-bounds for regression: keep one")
    return public | ({"classes": ()} if regression else {})


def _with_unit(public: dict[str, Any], unit: str | None, rows: int) -> Schema:
    """Return the schema of a table with the unit of the command line in it."""
    if "schema" not in public or unit is None:
        raise InvalidParameter("--unit COLUMN names a column of a table, which has a --schema: give all that belong")
    return replace(Schema.load(public["schema"]), unit=Unit(unit, rows))


def _column_bounds(table: Dataset, public: dict[str, Any]) -> list[list[float]] | None:
    """Return the bounds by which the columns of an NPZ file were scaled; others have a schema or a coding."""
    if "bounds" not in public:
        return None
    return [np.broadcast_to(np.asarray(end, dtype=np.float64), table.X.shape[1]).tolist() for end in public["bounds"]]


def _target_bounds(table: Dataset, given: str | None) -> tuple[float, float]:
    if given is not None:
        return read_bounds("--target-bounds", given, per_column=False)
    label = None if table.schema is None else table.schema.label
    if label is None or label.low is None or label.high is None:
        raise InvalidParameter("regression needs public target bounds: give label.low and label.high in the schema")
    return label.low, label.high
