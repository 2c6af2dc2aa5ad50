"""The command ``dpdescent fit``."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidParameter
from ..outputs import require_outputs
from .options import Delta, Epsilon, JsonFile, Missing, Seed, Unknown, read_settings
from .output import complain, downloading, print_privacy, say, write_json

if TYPE_CHECKING:
    from ..datasets import Dataset
    from ..solvers import Facts
    from ..tables import ParquetTable, Schema

__all__ = ["fit_command"]

INTERRUPTED = 130
#: The estimators by the names that are typed.
MODELS = {"logistic": "DPLogisticRegression", "svm": "DPLinearSVC", "regression": "DPLinearRegression"}


def fit_command(
    data: Annotated[
        str,
        typer.Argument(
            help="A data set name, or a CSV, TSV, Parquet or NPZ file, or a folder or pattern of Parquet files."
        ),
    ],
    output: Annotated[Path, typer.Option(help="Where to write the model.")],
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    schema: Annotated[Path | None, typer.Option(help="Public schema of the table (see `dpdescent schema`).")] = None,
    bounds: Annotated[
        str | None,
        typer.Option(
            metavar="LOW,HIGH",
            help="Public bounds of X in an NPZ file; also [LOW,...],[HIGH,...]. Without them, or with `measure`, "
            "which is for tables too, they are measured privately.",
        ),
    ] = None,
    classes: Annotated[
        str | None, typer.Option(metavar="A,B,...", help="Public classes of y in an NPZ file.")
    ] = None,
    target_bounds: Annotated[
        str | None,
        typer.Option(metavar="LOW,HIGH", help="The same of y, the number that a regression predicts."),
    ] = None,
    missing: Missing = None,
    unknown: Unknown = None,
    model: Annotated[str, typer.Option(help="logistic, svm or regression.")] = "logistic",
    loss: Annotated[
        str | None, typer.Option(help="logistic or sigmoid for --model logistic, huberised-hinge or hinge for svm.")
    ] = None,
    penalty: Annotated[str | None, typer.Option(help="l2 or nonconvex, for --model logistic.")] = None,
    method: Annotated[str, typer.Option(help="How to train; `dpdescent methods` lists all.")] = "auto",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="A setting of the method; may be repeated."),
    ] = None,
    adjacency: Annotated[str, typer.Option(help="zero-out or replace-one.")] = "zero-out",
    unit: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Whose row it is: protect all rows of one person.")
    ] = None,
    rows_per_unit: Annotated[int, typer.Option(help="Rows of a unit that are used, at most.")] = 1,
    alpha: Annotated[float, typer.Option(help="Weight of the penalty.")] = 0.0,
    penalise_intercept: Annotated[
        bool | None, typer.Option(help="Penalise the constant term too; by default in paper modes only.")
    ] = None,
    tilt: Annotated[float, typer.Option(help="Weigh rows with large losses more; needs --method outpert.")] = 0.0,
    adversary: Annotated[
        float | None,
        typer.Option(metavar="RADIUS", help="Train against moves of up to this length; needs --method outpert."),
    ] = None,
    adversary_norm: Annotated[str, typer.Option(help="How moves are measured: l2 or linf.")] = "l2",
    ledger: Annotated[Path | None, typer.Option(help="A ledger file that pays as well.")] = None,
    cluster: Annotated[
        str | None, typer.Option(metavar="ADDRESS", help="A Dask scheduler whose workers read the Parquet files.")
    ] = None,
    seed: Seed = None,
    json_file: JsonFile = None,
) -> None:
    """Train a model on a table and save it with its privacy statement."""
    from .. import estimators
    from ..estimators.arguments import known_method
    from ..estimators.payment import share_charged
    from ..estimators.vouched import of_schema
    from ..ledger import Ledger
    from ..problems import Adversary
    from .knowledge import PublicKnowledge
    from .models import SavedModel
    from .tables import open_table

    if model not in MODELS:
        raise InvalidParameter(f"unknown model {model!r}: choose one of {', '.join(MODELS)}")
    estimator = getattr(estimators, MODELS[model])
    private = known_method(method).private
    public = PublicKnowledge(
        data, schema, bounds, classes, target_bounds, missing, unknown, regression=model == "regression"
    )
    options: dict[str, Any] = {"method": method, "adjacency": adjacency, "alpha": alpha, "random_state": seed}
    options |= {"progress": True, "tilt": tilt, "solver_options": read_settings(settings or [])}
    options["penalise_intercept"] = penalise_intercept
    for name, chosen in (("loss", loss), ("penalty", penalty)):
        if chosen is not None:
            if name not in estimator().get_params():
                raise InvalidParameter(
                    f"--{name} is not for --model {model}: leave it out, or choose --model logistic"
                )
            options[name] = chosen
    if adversary is not None:
        options["adversary"] = Adversary(adversary, adversary_norm)  # type: ignore[arg-type]
    # All that can fail is tried before a row is read, and long before anything is charged.
    known = public.options()
    if unit is not None or rows_per_unit != 1:
        known["schema"] = _with_unit(known, unit, rows_per_unit)
    require_outputs([output, json_file], [data, schema, ledger])
    if ledger is not None:
        options["ledger"] = Ledger.open(ledger, model=output)
    estimator(epsilon, delta, **options).require_settings()
    with _interrupts_explained() as charged, downloading() as progress:
        table = open_table(data, known, cluster, progress)
        options |= {"bounds": table.bounds, "binary_features": table.binary_features}
        if model == "regression":
            options["target_bounds"] = public.target(table)
        elif not table.classes:
            raise InvalidParameter(f"the data set {data!r} has no classes: choose --model regression")
        elif model == "svm" and len(table.classes) > 2:
            raise InvalidParameter(
                f"--model svm tells two classes apart, and there are {len(table.classes)}: choose --model logistic"
            )
        else:
            options["classes"] = table.classes
        warned = _warned(epsilon, delta, adjacency, table) if private else []
        if table.schema is not None and table.schema.unit is not None:
            options["rows_per_unit"] = table.schema.unit.rows
        fitted = estimator(epsilon, delta, **options).fit(table.X, table.y, unit=table.unit)
        if "schema" in known:
            fitted.privacy_["assumed_public"] = of_schema(fitted.privacy_["assumed_public"], known["schema"], unit)
        if private:
            charged.append(share_charged(fitted.privacy_["spent"], fitted.privacy_["budget"]))
        names, column_bounds = list(table.feature_names), public.column_bounds(table)
        SavedModel.from_estimator(fitted, names, table.schema, column_bounds).save(output)
    print_privacy(fitted.privacy_ | {"remarks": [each for each in fitted.privacy_["remarks"] if each not in warned]})
    say(f"model written to {output}")
    write_json(json_file, {"model": str(output), "privacy": fitted.privacy_})


def _with_unit(known: dict[str, Any], unit: str | None, rows: int) -> Schema:
    """Return the schema of a table with the unit of the command line in it."""
    from ..tables import Unit

    if "schema" not in known or unit is None:
        raise InvalidParameter("--unit COLUMN names a column of a table, which has a --schema: give all that belong")
    declared: Schema = known["schema"]
    return replace(declared, unit=Unit(unit, rows))


def _warned(epsilon: float, delta: float, adjacency: str, table: Dataset | ParquetTable) -> list[str]:
    """Warn of a guarantee that is weak or leaves nothing to learn, before it is paid for; return what was said."""
    from ..estimators.vouched import advice

    found = advice(_facts(epsilon, delta, adjacency, table))
    for text in found:
        complain("GuaranteeWarning", text, colour="yellow")
    return found


def _facts(epsilon: float, delta: float, adjacency: str, table: Dataset | ParquetTable) -> Facts:
    """Return what is public before the fit: the number of rows, or that of units times the rows of each, at most."""
    from ..solvers import Facts

    if table.unit is None or table.schema is None or table.schema.unit is None:
        return Facts(epsilon, delta, adjacency, table.X.shape[0], 1)
    kept = table.schema.unit.rows
    return Facts(epsilon, delta, adjacency, kept * int(table.unit.nunique()), 1, kept)


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
