"""Tables that are fitted, and what is publicly known about them by the options of the command: a schema, or bounds.

A table is read into memory if it is small, and block by block otherwise.
"""

from __future__ import annotations

import json
import math
import os
import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ..datasets import SCHEMA_NAME, Dataset, is_data_path, load_dataset, require_readable
from ..errors import DatasetNotAvailable, InvalidParameter, MissingValue, no_such_column
from ..tables import (
    CellsInBlocks,
    ParquetTable,
    Schema,
    is_long_text,
    is_parquet,
    is_parquet_group,
    open_parquet,
    parquet_files,
    read_cells_as_text,
    require_rows,
    stream_text,
)
from ..tables.cell_kinds import as_levels, as_numbers
from ..tables.cells_in_blocks import cells_in_blocks
from .terminal import literal

#: Said instead of bounds that nobody knows.
MEASURE = "measure"

_IN_MEMORY = 2**25  # cells: a quarter of a gigabyte. The coefficients are the same to the last bit either way.


@dataclass(frozen=True)
class PublicKnowledge:
    """The options by which a caller says what is public, checked against each other and against the kind of model."""

    data: str  # a data set name or a file
    schema: Path | None  # of a table
    #: As they were typed: of an NPZ file. Bounds may be ``measure``, for a table too.
    bounds: str | None
    classes: str | None
    target_bounds: str | None
    #: What is done with such cells, in place of what the schema says.
    missing: str | None
    unknown: str | None
    regression: bool  # whether a number is to be predicted
    #: The column to predict of a table without a schema, which is then measured.
    label: str | None = None
    rest: str | None = None  # the class that labels count as which are none of the others

    def options(self) -> dict[str, Any]:
        """Return what `load_dataset` is to be told; what does not fit is refused before a row is read."""
        require_readable(self.data)
        if self.rest is not None and (self.label is None or self.classes is None):
            raise InvalidParameter("--rest is one of --classes, of a table with --label: give all three")
        if self.label is not None:
            return self._measured_options()
        if is_parquet_group(self.data):
            return {"schema": self._table_schema()}
        if is_data_path(self.data) and not Path(self.data).is_file():
            problem = "is a folder" if Path(self.data).is_dir() else "is not there"
            raise DatasetNotAvailable(f"the file {self.data!r} {problem}: correct the path")
        if self.data.endswith(".npz"):
            return self._array_options()
        if not is_data_path(self.data):
            given = {"--schema": self.schema, "--bounds": self.bounds, "--classes": self.classes}
            given |= {"--target-bounds": self.target_bounds, "--missing": self.missing, "--unknown": self.unknown}
            wrong = [option for option, value in given.items() if value is not None]
            if wrong:
                raise InvalidParameter(
                    f"{wrong[0]} is for files: the data set {self.data!r} has its own; leave it out"
                )
            return {}
        return {"schema": self._table_schema()}

    def _table_schema(self) -> Schema:
        measured = (None, MEASURE)
        if self.classes is not None or self.target_bounds not in measured or self.bounds not in measured:
            raise InvalidParameter(
                "--bounds, --classes and --target-bounds are for NPZ files: a table has all of that in its schema"
            )
        if self.target_bounds is not None and not self.regression:
            raise InvalidParameter("--target-bounds is for --model regression: leave it out")
        schema = self.schema or schema_in_folder(self.data)
        if schema is None:
            file = parquet_files(self.data)[0] if is_parquet_group(self.data) else self.data
            raise InvalidParameter(
                f"{self.data} needs --label COLUMN, and its columns are measured privately; or --schema FILE, which "
                f"says what is public: `dpdescent schema {shlex.quote(file)} --label COLUMN` writes a draft"
            )
        declared = Schema.load(schema)
        if self.regression and declared.label.classes is not None:
            raise InvalidParameter(
                "the schema has label.classes, and a regression predicts a number: remove them, or give label.low "
                "and label.high instead, or choose --model logistic or svm"
            )
        if not self.regression and declared.label.classes is None:
            raise InvalidParameter(
                "the schema has no label.classes, so its label is a number, and this model predicts classes: choose "
                "--model regression, or give label.classes in place of label.low and label.high"
            )
        if self.bounds == MEASURE:
            declared = declared.without_bounds()
        if self.target_bounds == MEASURE:
            declared = declared.without_target_bounds()
        return declared.choosing(missing=self.missing, unknown=self.unknown)

    def _measured_options(self) -> dict[str, Any]:
        """Return the label of a table of which nothing else is known, and its classes if these are."""
        if self.schema is not None or (schema_in_folder(self.data) is not None):
            raise InvalidParameter("--label is for a table without a schema, which has a label: leave one out")
        group = is_parquet_group(self.data)
        if not group and (not is_data_path(self.data) or self.data.endswith(".npz")):
            raise InvalidParameter("--label is for a table in CSV or Parquet files: leave it out")
        if not group and not Path(self.data).is_file():
            raise DatasetNotAvailable(f"the file {self.data!r} is not there: correct the path")
        given = {"--missing": self.missing, "--unknown": self.unknown}
        given |= {"--target-bounds": self.target_bounds} if not self.regression else {"--classes": self.classes}
        wrong = [option for option, value in given.items() if value is not None]
        if wrong or self.bounds not in (None, MEASURE):
            raise InvalidParameter(
                f"{(wrong or ['--bounds'])[0]} does not go with --label, by which the columns are measured: leave it "
                "out, or write a schema"
            )
        classes = None if self.classes is None else read_classes(self.classes)
        rest = None if self.rest is None else literal(self.rest)
        if rest is not None and rest not in (classes or []):
            raise InvalidParameter(f"--rest must be one of --classes, got {self.rest!r}: name it there, too")
        return {"label": self.label, "classes": classes, "rest": rest}

    def _array_options(self) -> dict[str, Any]:
        if self.schema is not None or self.missing is not None or self.unknown is not None:
            raise InvalidParameter(
                "an NPZ file takes --bounds and --classes: --schema, --missing and --unknown are for tables"
            )
        if (self.classes if self.regression else self.target_bounds) is not None:
            raise InvalidParameter("--classes is for logistic and svm, and --target-bounds for regression: keep one")
        if self.classes is None and not self.regression:
            raise InvalidParameter(
                f"{self.data} needs --classes A,B, which are public and never read from the file; to predict a "
                "number, choose --model regression"
            )
        bounds = MEASURE if self.bounds in (None, MEASURE) else read_bounds("--bounds", str(self.bounds))
        classes = [] if self.regression else read_classes(str(self.classes))
        if len(classes) == 1:
            raise InvalidParameter("--classes must name two public classes or more, such as no,yes")
        return {"bounds": bounds, "classes": classes}

    def target(self, table: Dataset | ParquetTable) -> tuple[float, float] | None:
        """Return the public bounds of the number to be predicted, None where they are to be measured."""
        if self.target_bounds not in (None, MEASURE):
            return read_bounds("--target-bounds", str(self.target_bounds), per_column=False)
        if table.classes:
            raise InvalidParameter(
                f"the data set {self.data!r} has classes, and a regression predicts a number: choose --model "
                "logistic or svm"
            )
        return None if table.schema is None else table.schema.label.bounds

    def column_bounds(self, table: Dataset | ParquetTable) -> list[list[float]] | None:
        """Return the bounds by which the columns of an NPZ file were scaled; others have a schema or a coding."""
        if self.bounds in (None, MEASURE) or not self.data.endswith(".npz"):
            return None
        ends = read_bounds("--bounds", str(self.bounds))
        return [np.broadcast_to(np.asarray(end, dtype=np.float64), table.X.shape[1]).tolist() for end in ends]


def schema_in_folder(data: str) -> Path | None:
    """Return the schema that lies beside Parquet files, in the folder that is named or that they are in, if any."""
    path = (Path(data) if os.path.isdir(data) else Path(data).parent) / SCHEMA_NAME
    return path if is_parquet(data) and path.is_file() else None


@dataclass(frozen=True)
class UnknownTable:
    """A table of which only the names of its columns are known."""

    X: pd.DataFrame | CellsInBlocks
    y: Any
    rest: Any = None
    unit: None = None
    schema: None = None


def read_unknown(data: str, known: dict[str, Any], regression: bool, in_blocks: bool) -> UnknownTable:
    """Read a table whose columns are to be measured, or open one that is read ``in_blocks`` if it is long."""
    label = known["label"]
    blocks = cells_in_blocks(data) if in_blocks or is_parquet_group(data) else None
    if blocks is not None:
        return UnknownTable(blocks.predicting(label, known["rest"]), None, known["rest"])
    frame = read_cells_as_text(Path(data))
    if label not in frame.columns:
        raise no_such_column("the label column", label, frame.columns)
    require_rows(Path(data), len(frame), None)
    y = as_numbers(frame[label]).rename(label) if regression else frame[label]
    if known["rest"] is not None:
        levels = set(known["classes"])
        coded = as_levels(y, known["classes"])
        y = pd.Series([cell if cell in levels else known["rest"] for cell in coded], name=label, dtype=object)
    if regression and y.isna().any():
        raise MissingValue(
            f"the label column {label!r} has cells that are missing, or no numbers with a decimal point: drop such "
            "rows, or measure a schema (`dpdescent schema TABLE --label COLUMN --measure`), which tells decimal "
            'commas, or write one with "file": {"decimal": ","}'
        )
    return UnknownTable(frame.drop(columns=[label]), y, known["rest"])


def open_table(
    data: str, known: dict[str, Any], cluster: str | None = None, progress: Any = None
) -> Dataset | ParquetTable:
    """Open a data set by name, or a file; Parquet may be a folder or a pattern, too.

    ``known`` is what is publicly known about it, ``cluster`` the address of a Dask scheduler whose workers read
    Parquet files and add up their rows. ``progress`` is told about downloads.
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


def read_bounds(option: str, text: str, *, per_column: bool = True) -> tuple[Any, Any]:
    """Return (low, high) from ``LOW,HIGH``, or from two lists with one number per column: ``[0,0],[1,5]``."""
    try:
        low, high = ends = json.loads(f"[{text}]")
    except ValueError:
        ends = [None]
    if not all(_is_number(end) or (per_column and _is_list_of_numbers(end)) for end in ends):
        lists = ", or two lists with one number per column such as [0,0],[1,5]" if per_column else ""
        measure = f", or {MEASURE}" if per_column else ""
        raise InvalidParameter(f"{option} must be two numbers such as 0,1{lists}{measure}, got {text!r}")
    return low, high


def read_classes(text: str) -> list[Any]:
    """Return the classes in ``a,b``; each is a JSON literal such as 1, true or "1", or else plain text."""
    if text.lstrip().startswith("["):
        listed = literal(text)
        if isinstance(listed, list):
            return listed
    return [literal(part.strip()) for part in text.split(",")]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_is_number(each) for each in value)
