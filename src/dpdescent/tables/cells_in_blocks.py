"""Tables of which nothing is known, read a few rows at a time and as often as they are asked for.

Names, storage types and numbers of rows are public. What is in memory is one block; a long text table is kept as an
unnamed Parquet file meanwhile (`text_tables`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as arrow
from pyarrow import parquet

from ..errors import DatasetFormatError, InvalidParameter
from .cell_kinds import as_frame
from .dask import is_dask
from .keepers import dask_package, without_cells
from .stored_parquet import NamedParquet, StoredParquet, is_parquet, parquet_files, require_distinct
from .text_tables import is_long_text, recoded, stored_cells

_ROWS = 2**16  # of a block
_UNLISTED = "__UNKNOWN_CATEGORIES__"  # by which Dask says so
_IN_MEMORY = 2**25  # cells of a Parquet file that is read as a whole


@dataclass(frozen=True)
class CellsInBlocks:
    """A table that is not in memory.

    Parameters
    ----------
    example : DataFrame
        Without rows: the names and storage types of the columns.
    rows : int
    blocks : callable
        Returns some columns anew, as DataFrames of a few rows. **Unreleased data.**
    """

    example: pd.DataFrame
    rows: int
    blocks: Callable[[list[str]], Iterable[pd.DataFrame]]


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
    if is_long_text(str(table)):
        return _of_parquet([stored_cells(Path(table))], text=True)
    if not is_parquet(str(table)):
        return None
    files = [NamedParquet(each) for each in parquet_files(str(table))]
    require_distinct([each.path for each in files])
    found = _of_parquet(files)
    return found if len(files) > 1 or math.prod((found.rows, *found.example.shape[1:])) > _IN_MEMORY else None


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

    return CellsInBlocks(_as_cells(example, unlisted), sum(map(int, lengths)), blocks)


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
    return CellsInBlocks(example, sum(footer.num_rows for footer in footers), blocks)


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
