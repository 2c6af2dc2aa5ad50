"""What is publicly known about a table, from the options of a command: a schema, or bounds and classes."""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets import Dataset, is_data_path
from ..errors import DatasetNotAvailable, InvalidParameter
from ..tables import ParquetTable, Schema, is_parquet_group, parquet_files
from .options import MEASURE, read_bounds, read_classes
from .tables import schema_in_folder

__all__ = ["PublicKnowledge"]


@dataclass(frozen=True)
class PublicKnowledge:
    """The options by which a caller says what is public, checked against each other and against the kind of model.

    Parameters
    ----------
    data : str
        A data set name or a file.
    schema : Path, optional
        Of a table.
    bounds, classes, target_bounds : str, optional
        As they were typed: of an NPZ file. Bounds may be ``measure``, for a table too.
    missing, unknown : str, optional
        What is done with such cells, in place of what the schema says.
    regression : bool
        Whether a number is to be predicted.
    """

    data: str
    schema: Path | None
    bounds: str | None
    classes: str | None
    target_bounds: str | None
    missing: str | None
    unknown: str | None
    regression: bool

    def options(self) -> dict[str, Any]:
        """Return what `load_dataset` is to be told; what does not fit is refused before a row is read."""
        if is_parquet_group(self.data):
            return {"schema": self._table_schema()}
        if is_data_path(self.data) and not Path(self.data).is_file():
            problem = "is a folder" if Path(self.data).is_dir() else "is not there"
            raise DatasetNotAvailable(f"the file {self.data!r} {problem}: correct the path")
        if self.data.endswith(".npz"):
            return self._of_arrays()
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
                f"{self.data} needs --schema FILE, which says what is public about its columns: `dpdescent schema "
                f"{shlex.quote(file)} --label COLUMN` writes a draft to fill in"
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

    def _of_arrays(self) -> dict[str, Any]:
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
