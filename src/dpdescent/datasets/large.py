"""A table of any length, written block by block: numbers alone, for trying out what outgrows the memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from ..errors import InvalidParameter, OutputNotWritable, require_positive_integer
from ..schema import Label, NumericColumn, Schema

__all__ = ["SCHEMA_NAME", "large_block", "large_schema", "write_large_table"]

#: The schema of the tables in a folder. Tools that read folders of tables pass over names with an underscore.
SCHEMA_NAME = "_schema.json"

BLOCK_ROWS = 2**16
_BLOCKS_PER_FILE = 16
_STRENGTH = 12.0  # of the score: the best possible classifier is right for about 85 percent of rows


def large_schema(rows: int, columns: int = 50) -> Schema:
    """Return the public schema of the table: ``columns`` numbers in [0, 1], and a label that is 0 or 1."""
    names = [f"x{position:0{len(str(columns - 1))}d}" for position in range(columns)]
    return Schema(tuple(NumericColumn(name, 0, 1) for name in names), Label("label", (0, 1)), rows=rows)


def large_block(number: int, columns: int = 50, seed: int = 0) -> tuple[NDArray[np.float32], NDArray[np.int8]]:
    """Return the features and the labels of a block of 65,536 rows.

    Column j is the power 1 + (j mod 3) of a uniform number; the label is 1 with a probability that is logistic in a
    weighted sum of them.
    """
    generator = np.random.Generator(np.random.PCG64(np.random.SeedSequence(seed, spawn_key=(number,))))
    features = generator.random((columns, BLOCK_ROWS), dtype=np.float32)
    score = np.zeros(BLOCK_ROWS)
    for j, column in enumerate(features):
        power = 1 + j % 3
        np.power(column, power, out=column)
        score += np.cos(1.0 + j) * (column - 1 / (1 + power))
    probability = expit(_STRENGTH / np.sqrt(columns) * score)
    return features.T, (generator.random(BLOCK_ROWS) < probability).astype(np.int8)


def write_large_table(folder: Path, rows: int, columns: int = 50, seed: int = 0) -> Schema:
    """Write the table as Parquet files of a million rows in a new folder, with its schema, and return the schema.

    A shorter table is the beginning of a longer one with the same seed.
    """
    import pyarrow as arrow
    from pyarrow import parquet

    schema = large_schema(require_positive_integer("rows", rows), require_positive_integer("columns", columns))
    if folder.exists() and any(folder.iterdir()):
        raise InvalidParameter(f"{str(folder)!r} is not empty: name a new folder")
    stored = arrow.schema([*((name, arrow.float32()) for name in schema.features), ("label", arrow.int8())])
    try:
        folder.mkdir(parents=True, exist_ok=True)
        per_file = BLOCK_ROWS * _BLOCKS_PER_FILE
        for file, start in enumerate(range(0, rows, per_file)):
            path = folder / f"part-{file:05d}.parquet"
            # Dictionaries do not pay for numbers that are all different.
            with parquet.ParquetWriter(path, stored, use_dictionary=False) as writer:
                for first in range(start, min(start + per_file, rows), BLOCK_ROWS):
                    features, labels = large_block(first // BLOCK_ROWS, columns, seed)
                    kept = min(BLOCK_ROWS, rows - first)
                    cells = [*(features[:kept, j] for j in range(columns)), labels[:kept]]
                    writer.write_batch(arrow.record_batch([arrow.array(each) for each in cells], schema=stored))
        schema.dump(folder / SCHEMA_NAME)
    except OSError:
        raise OutputNotWritable(
            f"the table cannot be written to {str(folder)!r}: is there room on the disk?"
        ) from None
    return schema
