"""The command ``dpdescent predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import JsonFile, Missing, Unknown
from .output import say, write_json, write_text

__all__ = ["predict_command"]


def predict_command(
    model_file: Annotated[Path, typer.Argument(help="A model written by `dpdescent fit`.")],
    data: Annotated[
        str,
        typer.Argument(
            help="A data set name, or a CSV, TSV, Parquet or NPZ file, or a folder or pattern of Parquet files."
        ),
    ],
    output: Annotated[
        Path | None, typer.Option(help="Write predictions to this CSV or Parquet file instead of the screen.")
    ] = None,
    keep: Annotated[
        str,
        typer.Option(metavar="A,B,...", help="Columns of the file to copy beside the predictions, such as an id."),
    ] = "",
    missing: Missing = None,
    unknown: Unknown = None,
    json_file: JsonFile = None,
) -> None:
    """Predict with a saved model, at no cost in privacy.

    The rows that trained the model are not read. Predictions about the rows of a file are as confidential as that
    file.
    """
    from ..outputs import require_outputs, write_whole
    from ..sources import is_long_text, is_parquet
    from .models import SavedModel
    from .prediction import predicted, predicted_blocks
    from .tables import write_predictions

    require_outputs([output, json_file], [model_file, data])
    in_blocks = is_long_text(data) or (is_parquet(data) and output is not None and output.suffix == ".parquet")
    if output is not None and in_blocks and not keep and json_file is None:
        blocks = predicted_blocks(SavedModel.load(model_file), data, missing=missing, unknown=unknown)
        say(f"{write_predictions(blocks, output)} predictions written to {output}")
        return
    kept = [name.strip() for name in keep.split(",") if name.strip()]
    frame = predicted(SavedModel.load(model_file), data, kept, missing=missing, unknown=unknown)
    if output is not None:
        if output.suffix == ".parquet":
            write_predictions(iter([frame]), output)
        else:
            write_whole(output, frame.to_csv(index=False))
        say(f"{len(frame)} predictions written to {output}")
    elif json_file is None:
        write_text(frame.to_csv(index=False))
    write_json(json_file, {"predictions": frame.to_dict(orient="list")})
