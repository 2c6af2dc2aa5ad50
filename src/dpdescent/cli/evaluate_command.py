"""The command ``dpdescent evaluate``."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidParameter, ModelFormatError
from ..long_runs import require_outputs, write_whole
from .terminal import (
    Adjacency,
    Delta,
    Epsilon,
    JsonFile,
    Missing,
    Seed,
    TableName,
    Unknown,
    downloading,
    print_privacy,
    say,
)

if TYPE_CHECKING:
    from ..estimators.saved_models import SavedModel
    from ..evaluation import Drift, Evaluation


def evaluate_command(
    model_file: Annotated[Path, typer.Argument(help="A model written by `dpdescent fit`.")],
    data: TableName,
    epsilon: Epsilon = 0.1,
    delta: Delta = 1e-7,
    ledger: Annotated[Path | None, typer.Option(help="A ledger file that pays as well.")] = None,
    adjacency: Adjacency = "zero-out",
    unit: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Whose row it is: protect all rows of one person.")
    ] = None,
    rows_per_unit: Annotated[int, typer.Option(help="Rows of a unit that are used, at most.")] = 1,
    threshold: Annotated[
        float | None, typer.Option(help="Decide for the second of two classes above this probability or score.")
    ] = None,
    rate: Annotated[
        float | None, typer.Option(help="Choose the threshold above which about this share of the rows lies.")
    ] = None,
    against: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="An earlier evaluation (--json) to compare with: has anything changed?"),
    ] = None,
    level: Annotated[float, typer.Option(help="Level of the intervals.")] = 0.95,
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write one page that loads nothing.")] = None,
    missing: Missing = None,
    unknown: Unknown = None,
    seed: Seed = None,
    json_file: JsonFile = None,
) -> None:
    """Say what a saved model is worth on sensitive rows, with intervals, and pay for it.

    Accuracy, the area under the curve, calibration and thresholds follow from one noisy histogram of scores by class;
    numbers get means of clipped errors. The rows should not be those that have trained the model.
    """
    from ..estimators.saved_models import SavedModel
    from ..evaluation import Evaluation, drift_between, evaluate
    from ..ledger import Ledger

    require_outputs([html, json_file], [model_file, data, ledger, against])
    saved = SavedModel.load(model_file)
    earlier = None if against is None else Evaluation.load(against)
    account = None if ledger is None else Ledger.open(ledger, model=model_file)
    X, y, owners, kept = _table_of(saved, data, unit, rows_per_unit, missing, unknown)
    found = evaluate(
        saved.scoring(),
        X,
        y,
        epsilon=epsilon,
        delta=delta,
        ledger=account,
        adjacency=adjacency,
        unit=owners,
        rows_per_unit=kept,
        threshold=threshold,
        rate=rate,
        like=earlier,
        level=level,
        random_state=seed,
    )
    drift = None if earlier is None else drift_between(earlier, found)
    _show(found, drift)
    _write(found, drift, html, json_file)


def _write(found: Evaluation, drift: Drift | None, html: Path | None, json_file: Path | None) -> None:
    from ..evaluation import page_of_evaluation

    if html is not None:
        write_whole(html, page_of_evaluation(found, drift))
        say(f"page written to {html}")
    if json_file is not None:
        write_whole(json_file, found.to_json({} if drift is None else {"drift": asdict(drift)}))
        say(f"evaluation written to {json_file}")


def _show(found: Evaluation, drift: Drift | None) -> None:
    for line in str(found).splitlines():
        say(line)
    if found.threshold is not None:
        kind = "score" if found.scale == "score" else "probability"
        say(f"decided for {found.classes[-1]} above a {kind} of {found.threshold:.4g}")
    if drift is not None:
        for line in str(drift).splitlines():
            say(line)
    print_privacy(found.privacy)


def _table_of(
    saved: SavedModel, data: str, unit: str | None, rows: int, missing: str | None, unknown: str | None
) -> tuple[Any, Any, Any, int]:
    """Return the features, the labels, whose row each is and how many of one are used, as the model reads tables."""
    from ..datasets import is_data_path, load_dataset, read_packed
    from ..tables import Schema, Unit, is_parquet_group
    from .public_knowledge import open_table

    if saved.schema is not None and (is_parquet_group(data) or is_data_path(data)) and not data.endswith(".npz"):
        declared = Schema.from_dict(saved.schema).choosing(missing=missing, unknown=unknown)
        if unit is not None:
            declared = replace(declared, unit=Unit(unit, rows))
        with downloading() as progress:
            table = open_table(data, {"schema": declared}, None, progress)
        kept = 1 if declared.unit is None else declared.unit.rows
        return table.X, table.y, table.unit, kept
    if unit is not None or rows != 1 or missing is not None or unknown is not None:
        raise InvalidParameter(
            "--unit, --rows-per-unit, --missing and --unknown are for tables with a schema: leave them out"
        )
    if data.endswith(".npz"):
        X, y = read_packed(Path(data), "X", "y")
        return saved.scaled(X), y, None, 1
    if is_data_path(data):
        raise ModelFormatError(f"the model was fitted without a schema, which {data!r} needs: pass an NPZ file")
    if saved.bounds is not None:
        raise ModelFormatError(
            f"the model was fitted to an NPZ file: {data!r} is none; pass an NPZ file with X and y"
        )
    with downloading() as progress:
        found = load_dataset(data, progress=progress)
    return found.X, found.y, None, 1
