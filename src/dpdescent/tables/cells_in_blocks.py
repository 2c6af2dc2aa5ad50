"""Tables of which nothing is known, read a few rows at a time and as often as they are asked for.

Names, storage types and numbers of rows are public. What is in memory is one block; a long text table is kept as an
unnamed Parquet file meanwhile (`text_tables`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
from pyarrow import parquet

from ..errors import DatasetFormatError, DatasetNotAvailable, InvalidParameter
from .cell_kinds import as_frame, as_numbers
from .cells import replace_columns
from .dask import CodedDask, is_dask
from .declaration import Schema
from .keepers import dask_package, without_cells
from .parquet import open_stored
from .stored_parquet import NamedParquet, StoredParquet, is_parquet, parquet_files, require_distinct
from .streamed_table import CellsInBlocks, StreamedTable
from .text_tables import is_long_text, recoded, stored_cells

_ROWS = 2**16  # of a block
_UNLISTED = "__UNKNOWN_CATEGORIES__"  # by which Dask says so
_IN_MEMORY = 2**25  # cells of a Parquet file that is read as a whole


def open_cells(name: str | Path, label: str) -> CellsInBlocks:
    """Open Parquet files, or a text table, of which nothing is known, to be fitted block by block: ``fit(table)``.

    What the columns contain is measured with a part of the fit's budget.
    """
    if not is_parquet(str(name)) and not Path(name).is_file():
        raise DatasetNotAvailable(f"there is no file {str(name)!r}: correct the path")
    return _of_files(str(name)).predicting(label)


def _of_files(name: str) -> CellsInBlocks:
    if not is_parquet(name):
        return _of_parquet([stored_cells(Path(name))], text=True)
    files = [NamedParquet(each) for each in parquet_files(name)]
    require_distinct([each.path for each in files])
    return _of_parquet(files)


def labelled(table: Any, labels: Any) -> CellsInBlocks:
    """Return a table that is read in blocks with its labels, which a DataFrame of Dask has beside it."""
    if isinstance(table, CellsInBlocks):
        if labels is not None or not table.label:
            raise InvalidParameter("this table has its own labels: open it by open_cells, and call fit with it alone")
        return table
    if not is_dask(labels) or labels.ndim != 1:
        raise InvalidParameter("the labels of a Dask collection must be one column of Dask, with the same partitions")
    name = str(getattr(labels, "name", None) or "y") if hasattr(labels, "to_frame") else "y"
    if name in table.columns:
        raise InvalidParameter(f"the labels have the name of a column, {name!r}: rename them")
    dask = dask_package()
    parts = [[*np.ravel(each.to_delayed())] for each in (table, labels)]
    if len(parts[0]) != len(parts[1]):
        raise InvalidParameter("features and labels have different partitions: repartition or rechunk one")
    joined = [dask.delayed(_joined)(*pair, name) for pair in zip(*parts, strict=True)]
    example = _joined(table._meta.iloc[:0], labels._meta[:0], name)
    return _of_dask(dask.dataframe.from_delayed(joined, meta=example, verify_meta=False)).predicting(name)


def _joined(frame: pd.DataFrame, labels: Any, name: str) -> pd.DataFrame:
    if len(frame) != len(labels):
        raise InvalidParameter("features and labels have different numbers of rows in a partition")
    return frame.assign(**{name: getattr(labels, "array", labels)})


def _typed(schema: Schema, prepared: Callable[[pd.DataFrame], pd.DataFrame], frame: pd.DataFrame) -> pd.DataFrame:
    """Return a part of a table with a label that is a number as one."""
    cells, label = prepared(frame), schema.label
    if label.classes is not None or label.column not in cells.columns:
        return cells
    return replace_columns(cells, {label.column: as_numbers(cells[label.column])})


def cells_in_blocks(table: Any) -> CellsInBlocks | None:
    """Return a table that is to be read in blocks, or None if it is none: a DataFrame of Dask, or the name of files.

    Files are those of Parquet that have many cells or are several, and long ones of text. No cell is read.
    """
    if is_dask(table):
        if not hasattr(table, "columns"):
            raise InvalidParameter("a schema is measured from a DataFrame of Dask, and this has no names of columns")
        return _of_dask(table)
    if not isinstance(table, str | Path):
        return None
    name = str(table)
    if not is_parquet(name):
        return _of_files(name) if is_long_text(name) else None
    found = _of_files(name)
    return found if len(parquet_files(name)) > 1 or math.prod(found.shape) > _IN_MEMORY else None


def _of_dask(table: Any) -> CellsInBlocks:
    dask, example = dask_package(), table._meta.iloc[:0]
    kinds = {name: kind for name, kind in example.dtypes.items() if isinstance(kind, pd.CategoricalDtype)}
    # Categories that Dask does not know are those that occur in a part: such cells are read as they are.
    unlisted = [name for name, kind in kinds.items() if _UNLISTED in kind.categories]
    lengths = without_cells(dask.compute, *(dask.delayed(len)(part) for part in table.to_delayed()))

    def blocks(names: list[str]) -> Iterator[pd.DataFrame]:
        for part in table[names].to_delayed():
            frame = _as_cells(without_cells(dask.compute, part)[0], unlisted)
            for first in range(0, len(frame), _ROWS):
                yield frame.iloc[first : first + _ROWS]

    prepared = partial(_as_cells, names=unlisted)

    def coded(schema: Schema) -> StreamedTable:
        return CodedDask(table, schema, prepared(example), partial(_typed, schema, prepared))

    return CellsInBlocks(prepared(example), sum(map(int, lengths)), blocks, coded)


def _as_cells(frame: pd.DataFrame, names: list[str]) -> pd.DataFrame:
    return frame.astype({name: object for name in names if name in frame.columns})


def _of_parquet(files: list[Any], text: bool = False) -> CellsInBlocks:
    footers = [_unless_damaged(each, partial(_footer_of, each)) for each in files]
    first = footers[0].schema.to_arrow_schema().remove_metadata()
    for each, footer in zip(files, footers, strict=True):
        if not footer.schema.to_arrow_schema().remove_metadata().equals(first):
            raise DatasetFormatError(
                f"{each.name!r} has other columns than {files[0].name!r}: write all files with the same names and "
                "types"
            )

    def blocks(names: list[str]) -> Iterator[pd.DataFrame]:
        for each in files:
            file = parquet.ParquetFile(each.source(), read_dictionary=names if text else None)
            batches = file.iter_batches(batch_size=_ROWS, columns=names)
            while (batch := _unless_damaged(each, partial(next, batches, None))) is not None:
                cells = arrow.Table.from_batches([batch]).replace_schema_metadata()
                frame = cells.to_pandas(types_mapper=pd.ArrowDtype).apply(_recoded) if text else as_frame(cells)
                assert frame is not None
                yield frame

    example = as_frame(first.empty_table())
    assert example is not None

    def coded(schema: Schema) -> StreamedTable:
        prepared = partial(pd.DataFrame.apply, func=recoded) if text else partial(_as_cells, names=[])
        return open_stored(files, files[0].name, schema, typed=partial(_typed, schema, prepared))

    return CellsInBlocks(example, sum(footer.num_rows for footer in footers), blocks, coded)


def _recoded(column: pd.Series) -> pd.Series:
    """Return a coded column of a text file with each text in its own coding."""
    coded = column.array.__arrow_array__().combine_chunks()
    texts = recoded(pd.Series(coded.dictionary.to_pandas(types_mapper={arrow.string(): pd.StringDtype()}.get)))
    again = arrow.DictionaryArray.from_arrays(coded.indices, arrow.array(texts, arrow.string()))
    return pd.Series(pd.arrays.ArrowExtensionArray(again), index=column.index)


def _footer_of(file: StoredParquet) -> Any:
    return file.footer(file.stamp())


def _unless_damaged(file: StoredParquet, read: Callable[[], Any]) -> Any:
    try:
        return read()
    except Exception:  # a damaged file fails in many ways, and the texts of some show cells
        pass
    raise DatasetFormatError(f"{file.name!r} is not a readable Parquet file: copy it again")
