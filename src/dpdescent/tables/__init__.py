"""All that turns a file into rows, by public knowledge alone: schemas, the encoder, and readers.

- What is publicly known about a table, as a value and as a JSON file: `columns`, `declaration`, `schema_file`,
  `schema_draft`.
- What cells become: `cells`, `encoder`.
- Tables that are read as a whole: `delimited`, `text_tables`.
- Tables that are read block by block: `streamed_table`, `stored_parquet`, `parquet`, `dask`, `keepers`. They merely
  yield rows. What is added up, and what is charged for it, is the curator's business (`dpdescent.curator.blocks`); an
  estimator's ``fit`` takes any of them in the place of arrays.

A name is imported when it is first used: a schema needs neither Arrow nor the curator.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .cells import bucket_codes as bucket_codes
    from .cells import date_values as date_values
    from .cells import day_numbers as day_numbers
    from .cells import level_codes as level_codes
    from .cells import levels_of_text as levels_of_text
    from .cells import numeric_values as numeric_values
    from .cells import scale_columns as scale_columns
    from .columns import CategoricalColumn as CategoricalColumn
    from .columns import Column as Column
    from .columns import DateColumn as DateColumn
    from .columns import HashedColumn as HashedColumn
    from .columns import IgnoredColumn as IgnoredColumn
    from .columns import Label as Label
    from .columns import NumericColumn as NumericColumn
    from .columns import Unit as Unit
    from .dask import DaskEngine as DaskEngine
    from .dask import DaskTable as DaskTable
    from .declaration import FileFormat as FileFormat
    from .declaration import Schema as Schema
    from .delimited import TEXT_SUFFIXES as TEXT_SUFFIXES
    from .encoder import MISSING as MISSING
    from .encoder import UNKNOWN as UNKNOWN
    from .encoder import BoundedEncoder as BoundedEncoder
    from .parquet import ParquetTable as ParquetTable
    from .parquet import open_parquet as open_parquet
    from .schema_draft import FORMAT_FILE as FORMAT_FILE
    from .schema_draft import SchemaDraft as SchemaDraft
    from .schema_draft import column_names as column_names
    from .schema_draft import draft_schema as draft_schema
    from .schema_file import FILL_IN as FILL_IN
    from .schema_file import as_text as as_text
    from .schema_file import json_schema as json_schema
    from .schema_file import read_document as read_document
    from .stored_parquet import PARQUET_SUFFIXES as PARQUET_SUFFIXES
    from .stored_parquet import is_parquet as is_parquet
    from .stored_parquet import is_parquet_group as is_parquet_group
    from .stored_parquet import parquet_files as parquet_files
    from .streamed_table import MappedArrays as MappedArrays
    from .streamed_table import StreamedTable as StreamedTable
    from .streamed_table import streamed as streamed
    from .text_tables import is_long_text as is_long_text
    from .text_tables import read_table as read_table
    from .text_tables import require_rows as require_rows
    from .text_tables import stream_text as stream_text

#: The names that others use, by their modules.
_PUBLIC = {
    "cells": (
        "bucket_codes",
        "date_values",
        "day_numbers",
        "level_codes",
        "levels_of_text",
        "numeric_values",
        "scale_columns",
    ),
    "columns": (
        "CategoricalColumn",
        "Column",
        "DateColumn",
        "HashedColumn",
        "IgnoredColumn",
        "Label",
        "NumericColumn",
        "Unit",
    ),
    "dask": ("DaskEngine", "DaskTable"),
    "declaration": ("FileFormat", "Schema"),
    "delimited": ("TEXT_SUFFIXES",),
    "encoder": ("MISSING", "UNKNOWN", "BoundedEncoder"),
    "parquet": ("ParquetTable", "open_parquet"),
    "schema_draft": ("FORMAT_FILE", "SchemaDraft", "column_names", "draft_schema"),
    "schema_file": ("FILL_IN", "as_text", "json_schema", "read_document"),
    "stored_parquet": ("PARQUET_SUFFIXES", "is_parquet", "is_parquet_group", "parquet_files"),
    "streamed_table": ("MappedArrays", "StreamedTable", "streamed"),
    "text_tables": ("is_long_text", "read_table", "require_rows", "stream_text"),
}
_HOMES = {name: module for module, names in _PUBLIC.items() for name in names}

__all__ = [*sorted(_HOMES)]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f".{_HOMES[name]}", __name__), name)
    return value
