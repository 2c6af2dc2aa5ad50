"""Tables on the command line: in memory if they are small, and read block by block otherwise."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ..datasets import SCHEMA_NAME, Dataset, load_dataset
from ..errors import InvalidParameter
from ..outputs import passing_file
from ..tables import ParquetTable, StreamedTable, is_long_text, is_parquet, open_parquet, stream_text

__all__ = ["blocks_of", "open_table", "schema_in_folder", "write_predictions"]

_IN_MEMORY = 2**25  # cells: a quarter of a gigabyte. The coefficients are the same to the last bit either way.


def schema_in_folder(data: str) -> Path | None:
    """Return the schema that lies beside Parquet files, in the folder that is named or that they are in, if any."""
    path = (Path(data) if os.path.isdir(data) else Path(data).parent) / SCHEMA_NAME
    return path if is_parquet(data) and path.is_file() else None


def open_table(
    data: str, known: dict[str, Any], cluster: str | None = None, progress: Any = None
) -> Dataset | ParquetTable:
    """Open a data set by name, or a file; Parquet may be a folder or a pattern, too.

    Parameters
    ----------
    data : str
    known : dict
        What is publicly known about it.
    cluster : str, optional
        The address of a Dask scheduler whose workers read Parquet files, and add up their rows.
    progress : callable, optional
        Told about downloads.
    """
    schema = known.get("schema")
    if schema is None or not is_parquet(data):
        if cluster is not None:
            raise InvalidParameter("--cluster is for Parquet files with a schema: leave it out")
        if schema is not None and schema.unit is None and is_long_text(data):
            return stream_text(data, schema)
        return load_dataset(data, progress=progress, **known)
    if schema.unit is not None and cluster is None and os.path.isfile(data):
        return load_dataset(data, progress=progress, **known)  # units of several rows need them in memory
    table = open_parquet(data, schema)
    if cluster is not None:
        from ..tables import DaskEngine

        table.engine = DaskEngine(cluster)
        return table
    if math.prod(table.shape) > _IN_MEMORY:
        return table
    X, y = table.gathered()
    return Dataset(
        name=data,
        X=X,
        y=y,
        feature_names=table.feature_names,
        bounds=table.bounds,
        classes=tuple(table.classes),
        source=f"The files {data}.",
        schema=table.schema,
        binary_features=table.binary_features,
    )


def write_predictions(frames: Iterator[Any], output: Path) -> int:
    """Write frames of predictions to one Parquet or CSV file, whole or not at all, and return the number of rows."""
    rows = 0
    with passing_file(output) as passing, _written_to(passing, output.suffix) as write:
        for frame in frames:
            write(frame)
            rows += len(frame)
    return rows


@contextmanager
def _written_to(output: Path, suffix: str) -> Iterator[Callable[[Any], object]]:
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
