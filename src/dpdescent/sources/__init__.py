"""Tables that are read block by block: Parquet files, memory-mapped arrays, and Dask collections.

They merely yield rows. What is added up, and what is charged for it, is the curator's business
(`dpdescent.curator.blocks`); an estimator's ``fit`` takes any of them in the place of arrays.
"""

from .arrays import MappedArrays
from .dask import DaskTable
from .parquet import ParquetTable, is_parquet, is_parquet_group, open_parquet, parquet_files
from .table import StreamedTable, streamed
from .text import is_long_text, stream_text
from .workers import DaskEngine

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
