"""What saved models predict for the rows of a file or of a data set.

Predictions are written whole or not at all, block by block where there are many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..datasets import is_data_path, load_dataset, read_packed
from ..display import safe_cell
from ..errors import DatasetNotAvailable, InvalidParameter, ModelFormatError
from ..estimators.saved_models import SavedModel
from ..long_runs import passing_file
from ..tables import Schema, StreamedTable, is_parquet, is_parquet_group, open_parquet, read_table, stream_text


def predict_file(
    saved: SavedModel, data: str, keep: Sequence[str] = (), *, missing: str | None = None, unknown: str | None = None
) -> pd.DataFrame:
    """Return the columns to keep, the prediction for every row, and the probabilities where the model has them."""
    return _add_predictions(saved, *_read_features(saved, data, keep, missing, unknown))


def predict_blocks(
    saved: SavedModel, data: str, *, missing: str | None = None, unknown: str | None = None
) -> Iterator[pd.DataFrame]:
    """Yield what `predict_file` returns for Parquet files, or for one of text, a few rows at a time."""
    if saved.schema is None:
        raise ModelFormatError(f"the model was fitted without a schema, which {data!r} needs: pass an NPZ file")
    declared = Schema.from_dict(saved.schema).choosing(missing=missing, unknown=unknown)
    opened = open_parquet if is_parquet(data) else stream_text
    for X in blocks_of(opened(data, declared, label=False)):
        yield _add_predictions(saved, X, pd.DataFrame(index=range(len(X))))


def safe_frame(frame: pd.DataFrame) -> pd.DataFrame:
    """Return a table for a CSV file in which no text, and no name of a column, is a formula to a spreadsheet."""
    texts = frame.select_dtypes(exclude=["number", "bool", "datetime", "datetimetz", "timedelta"])
    safe = frame.copy()
    for name, column in texts.items():
        safe[name] = column.map(lambda cell: safe_cell(cell) if isinstance(cell, str) else cell)
    return safe.rename(columns=safe_cell)


def _add_predictions(saved: SavedModel, X: Any, kept: pd.DataFrame) -> pd.DataFrame:
    frame = kept.assign(prediction=saved.predict(X))
    probabilities = saved.probabilities(X)
    if probabilities is not None and saved.classes is not None:
        for position, name in enumerate(saved.classes):
            frame[f"probability_{name}"] = probabilities[:, position]
    decisions = saved.decisions(X)
    if decisions is not None:
        frame["score"] = decisions
    return frame


def _read_features(
    saved: SavedModel, data: str, keep: Sequence[str], missing: str | None, unknown: str | None
) -> tuple[Any, pd.DataFrame]:
    """Return the features of a table in the units in which the model was fitted, and the columns to keep."""
    if is_parquet_group(data) and saved.schema is not None and not keep:
        declared = Schema.from_dict(saved.schema).choosing(missing=missing, unknown=unknown)
        X = np.concatenate(list(blocks_of(open_parquet(data, declared, label=False))))
        return X, pd.DataFrame(index=range(len(X)))
    if is_data_path(data) and not Path(data).is_file():
        raise DatasetNotAvailable(f"there is no file {data!r}: correct the path")
    if saved.schema is not None and is_data_path(data) and not data.endswith(".npz"):
        declared = Schema.from_dict(saved.schema).choosing(missing=missing, unknown=unknown)
        table = read_table(Path(data), declared, label=False, keep=keep)
        encoder = declared.encoder(ignore=keep).fit(table)
        return np.asarray(encoder.transform(table)), table[list(keep)].reset_index(drop=True)
    if keep or missing is not None or unknown is not None:
        raise InvalidParameter(
            "--keep, --missing and --unknown are for tables that are read by a schema: leave them out"
        )
    if data.endswith(".npz"):
        (X,) = read_packed(Path(data), "X")
        return saved.scaled(X), pd.DataFrame(index=range(len(X)))
    if saved.bounds is not None:
        raise ModelFormatError(f"the model was fitted to an NPZ file: {data!r} is none; pass an NPZ file with an X")
    X = load_dataset(data).X
    return X, pd.DataFrame(index=range(len(X)))


def write_predictions(frames: Iterator[Any], output: Path) -> int:
    """Write frames of predictions to one Parquet or CSV file, whole or not at all, and return the number of rows."""
    rows = 0
    with passing_file(output) as passing, _writer_to(passing, output.suffix) as write:
        for frame in frames:
            write(frame)
            rows += len(frame)
    return rows


@contextmanager
def _writer_to(output: Path, suffix: str) -> Iterator[Callable[[Any], object]]:
    """Yield a function that writes a frame after those before it, in the format of the suffix."""
    if suffix != ".parquet":
        with output.open("w", encoding="utf-8", newline="") as file:
            yield lambda frame: frame.to_csv(file, index=False, header=file.tell() == 0)
        return
    import pyarrow as arrow
    from pyarrow import parquet

    writers: list[Any] = []

    def write(frame: Any) -> None:
        batch = arrow.Table.from_pandas(frame, preserve_index=False)
        if not writers:
            writers.append(parquet.ParquetWriter(output, batch.schema))
        writers[0].write_table(batch)

    try:
        yield write
    finally:
        for writer in writers:
            writer.close()


def blocks_of(table: StreamedTable) -> Iterator[Any]:
    """Yield the features of a table, a few rows at a time."""
    for part in table.parts:
        for features, _ in table.read(part):
            yield features
