"""The earlier name of the tables that are read block by block, now in `dpdescent.tables`, for code that needs it."""

from ..tables import (
    DaskEngine,
    DaskTable,
    MappedArrays,
    ParquetTable,
    StreamedTable,
    is_long_text,
    is_parquet,
    is_parquet_group,
    open_parquet,
    parquet_files,
    stream_text,
    streamed,
)

__all__ = [
    "DaskEngine",
    "DaskTable",
    "MappedArrays",
    "ParquetTable",
    "StreamedTable",
    "is_long_text",
    "is_parquet",
    "is_parquet_group",
    "open_parquet",
    "parquet_files",
    "stream_text",
    "streamed",
]
