"""Tables that need no file: a census-like one, and one of any length, written block by block.

The long one has numbers alone, and is for trying out what outgrows the memory.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import expit, ndtri

from ..arrays import Floats, Positions
from ..errors import InvalidParameter, OutputNotWritable, require_positive_integer
from ..tables import CategoricalColumn, Label, NumericColumn, Schema
from .dataset import Dataset, coded

_WORKCLASS = ("private", "public", "self-employed", "unpaid")
_OCCUPATION = ("service", "manual", "clerical", "sales", "technical", "professional", "executive")
_MARITAL = ("never-married", "married", "separated", "widowed")
_REGION = ("north", "east", "south", "west", "centre")

SYNTHETIC_SCHEMA = Schema(
    columns=(
        NumericColumn("age", 17, 90),
        NumericColumn("education_years", 1, 20),
        NumericColumn("hours_per_week", 1, 99),
        NumericColumn("capital_gain", 0, 20_000),
        CategoricalColumn("workclass", _WORKCLASS),
        CategoricalColumn("occupation", _OCCUPATION),
        CategoricalColumn("marital_status", _MARITAL),
        CategoricalColumn("region", _REGION),
    ),
    label=Label("high_income", (0, 1)),
)

_UNIFORMS_PER_ROW = 11
_WORKCLASS_EFFECT = np.array([0.0, 0.3, 0.1, -2.0])
_OCCUPATION_EFFECT = np.array([-0.9, -0.5, -0.1, 0.2, 0.5, 0.9, 1.3])
_MARITAL_EFFECT = np.array([-0.9, 1.2, -0.4, -0.5])
_REGION_EFFECT = np.array([0.2, 0.1, -0.3, 0.2, 0.0])

# Set once on two million rows so that 25 percent of labels are 1 and the best possible classifier is right
# for 85 percent of rows.
_STRENGTH = 1.05
_OFFSET = -2.537

#: The schema of the tables in a folder. Tools that read folders of tables pass over names with an underscore.
SCHEMA_NAME = "_schema.json"

BLOCK_ROWS = 2**16  # of the long table
_BLOCKS_PER_FILE = 16
_LARGE_STRENGTH = 12.0  # of the score: the best possible classifier is right for about 85 percent of rows


def synthetic_table(n: int = 20_000, seed: int = 0) -> tuple[pd.DataFrame, Floats]:
    """Draw the table and, for each row, the true probability that the label is 1.

    Parameters
    ----------
    n : int
        Number of rows. A shorter table is the beginning of a longer one with the same seed.
    seed : int
        Seed of ``numpy.random.PCG64``.

    Returns
    -------
    table : DataFrame
        The columns of ``SYNTHETIC_SCHEMA`` and the label ``high_income``.
    probability : ndarray of shape (n,)
        ``P(high_income = 1 | row)``; the best possible accuracy is the mean of ``max(p, 1 - p)``.
    """
    rows = require_positive_integer("n", n)
    if not isinstance(seed, int | np.integer) or isinstance(seed, bool) or seed < 0:
        raise InvalidParameter(f"seed must be a whole number of at least 0, got {seed!r}")
    # Uniforms alone are drawn, because their stream is the one numpy keeps fixed between versions.
    draws = np.random.Generator(np.random.PCG64(seed)).random((rows, _UNIFORMS_PER_ROW)).T
    draws = np.clip(draws, 1e-12, 1 - 1e-12)
    age = np.clip(np.floor(40 + 14 * ndtri(draws[0])), 17, 90)
    schooling = np.clip(np.round(11.5 + 2.8 * ndtri(draws[1])), 1, 20)
    usual_week = draws[2] < 0.45
    hours = np.where(usual_week, 40.0, np.clip(np.round(40 + 13 * ndtri(draws[3])), 1, 99))
    has_gain = draws[4] < 0.02 + 0.01 * np.maximum(schooling - 8, 0)
    gain = np.where(has_gain, np.clip(np.round(np.exp(8.2 + 0.9 * ndtri(draws[5]))), 1, 20_000), 0.0)
    workclass = np.searchsorted(np.cumsum([0.72, 0.15, 0.11]), draws[6])
    skill = 0.62 * (schooling - 11.5) / 2.8 + 0.78 * ndtri(draws[7])
    occupation = np.searchsorted(np.array([-0.9, -0.3, 0.1, 0.5, 0.9, 1.4]), skill)
    marital = _marital(age, draws[8])
    region = np.floor(len(_REGION) * draws[10]).astype(np.intp)
    score = (
        0.42 * (schooling - 11.5)
        + 0.05 * (hours - 40)
        + 0.055 * (np.minimum(age, 50) - 38)
        - 0.05 * np.maximum(age - 62, 0)
        + 2.5 * np.minimum(gain / 7000, 1.5)
        + _WORKCLASS_EFFECT[workclass]
        + _OCCUPATION_EFFECT[occupation]
        + _MARITAL_EFFECT[marital]
        + _REGION_EFFECT[region]
    )
    probability = expit(_STRENGTH * score + _OFFSET)
    table = pd.DataFrame(
        {
            "age": age.astype(np.int64),
            "education_years": schooling.astype(np.int64),
            "hours_per_week": hours.astype(np.int64),
            "capital_gain": gain.astype(np.int64),
            "workclass": np.array(_WORKCLASS)[workclass],
            "occupation": np.array(_OCCUPATION)[occupation],
            "marital_status": np.array(_MARITAL)[marital],
            "region": np.array(_REGION)[region],
            "high_income": (draws[9] < probability).astype(np.int64),
        }
    )
    return table, probability


def _marital(age: Floats, draw: Floats) -> Positions:
    never = expit((30 - age) / 5)
    widowed = (1 - never) * 0.5 * expit((age - 74) / 6)
    separated = (1 - never - widowed) * 0.22
    married = 1 - never - widowed - separated
    reached = np.cumsum([never, married, separated], axis=0)
    position: Positions = (draw >= reached).sum(axis=0)
    return position


def load_synthetic(*, n: int = 20_000, seed: int = 0) -> Dataset:
    """Make the synthetic data set; parameters as in `synthetic_table`."""
    table, _ = synthetic_table(n, seed)
    return Dataset(
        name="synthetic",
        y=table["high_income"].to_numpy(),
        classes=(0, 1),
        source="Drawn by dpdescent; no person is behind any row.",
        notes=(
            f"n = {n}, seed = {seed}. About 25 percent of labels are 1, and the best possible classifier is "
            f"right for about 85 percent of rows."
        ),
        **coded(table, SYNTHETIC_SCHEMA),
    )


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
    probability = expit(_LARGE_STRENGTH / np.sqrt(columns) * score)
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
