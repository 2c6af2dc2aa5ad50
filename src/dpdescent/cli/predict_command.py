"""The command ``dpdescent predict``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import InvalidParameter
from ..long_runs import require_outputs, write_whole
from .terminal import JsonFile, Missing, TableName, Unknown, say, write_json, write_text


def predict_command(
    model_file: Annotated[Path, typer.Argument(help="A model written by `dpdescent fit`.")],
    data: TableName,
    output: Annotated[
        Path | None, typer.Option(help="Write predictions to this CSV or Parquet file instead of the screen.")
    ] = None,
    keep: Annotated[
        str,
        typer.Option(metavar="A,B,...", help="Columns of the file to copy beside the predictions, such as an id."),
    ] = "",
    safe_csv: Annotated[
        bool, typer.Option("--safe-csv", help="Put ' before text in CSV that a spreadsheet would run as a formula.")
    ] = False,
    missing: Missing = None,
    unknown: Unknown = None,
    json_file: JsonFile = None,
) -> None:
    """Predict with a saved model, at no cost in privacy.

    The rows that trained the model are not read. Predictions about the rows of a file are as confidential as that
    file.
    """
    from ..estimators.saved_models import SavedModel
    from ..tables import is_long_text, is_parquet
    from .file_predictions import predict_blocks, predict_file, safe_frame, write_predictions

    to_parquet = output is not None and output.suffix == ".parquet"
    if safe_csv and (to_parquet or (output is None and json_file is not None)):
        raise InvalidParameter("--safe-csv is about CSV, and none is written: leave it out, or name a CSV file")
    require_outputs([output, json_file], [model_file, data])
    in_blocks = is_long_text(data) or (is_parquet(data) and to_parquet)
    if output is not None and in_blocks and not keep and json_file is None:
        blocks = predict_blocks(SavedModel.load(model_file), data, missing=missing, unknown=unknown)
        written = write_predictions(map(safe_frame, blocks) if safe_csv else blocks, output)
        say(f"{written} predictions written to {output}")
        return
    kept = [name.strip() for name in keep.split(",") if name.strip()]
    frame = predict_file(SavedModel.load(model_file), data, kept, missing=missing, unknown=unknown)
    shown = safe_frame(frame) if safe_csv else frame
    if output is not None:
        if to_parquet:
            write_predictions(iter([frame]), output)
        else:
            write_whole(output, shown.to_csv(index=False))
        say(f"{len(frame)} predictions written to {output}")
    elif json_file is None:
        write_text(shown.to_csv(index=False))
    write_json(json_file, {"predictions": frame.to_dict(orient="list")})
