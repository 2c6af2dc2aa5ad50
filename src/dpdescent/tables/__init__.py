"""All that turns a file into rows, by public knowledge alone: schemas, the encoder, and readers.

- What is publicly known about a table, as a value and as a JSON file: `columns`, `declaration`, `schema_file`,
  `schema_draft`; and measured where nobody knows it: `cell_kinds`, `bounds`, `measured_schema`, `schema_purchase`.
- What cells become: `cells`, `encoder`.
- Tables that are read as a whole: `delimited`, `text_tables`.
- Tables that are read block by block: `streamed_table`, `stored_parquet`, `parquet`, `dask`, `keepers`. They merely
  yield rows. What is added up, and what is charged for it, is the curator's business (`dpdescent.curator.blocks`); an
  estimator's ``fit`` takes any of them in the place of arrays.

A name is imported when it is first used: a schema needs neither Arrow nor the curator.
"""

from typing import TYPE_CHECKING

from ..lazy_names import lazy_names

if TYPE_CHECKING:
    from .cell_kinds import as_frame as as_frame
    from .cells import (
        bucket_codes as bucket_codes,
        date_values as date_values,
        day_numbers as day_numbers,
        level_codes as level_codes,
        levels_of_text as levels_of_text,
        numeric_values as numeric_values,
        scale_columns as scale_columns,
    )
    from .cells_in_blocks import open_cells as open_cells
    from .columns import (
        CategoricalColumn as CategoricalColumn,
        Column as Column,
        DateColumn as DateColumn,
        HashedColumn as HashedColumn,
        IgnoredColumn as IgnoredColumn,
        Label as Label,
        NumericColumn as NumericColumn,
        Unit as Unit,
    )
    from .dask import DaskEngine as DaskEngine, DaskTable as DaskTable, is_dask as is_dask
    from .declaration import FileFormat as FileFormat, Schema as Schema
    from .delimited import TEXT_SUFFIXES as TEXT_SUFFIXES
    from .encoder import MISSING as MISSING, UNKNOWN as UNKNOWN, BoundedEncoder as BoundedEncoder
    from .parquet import ParquetTable as ParquetTable, open_parquet as open_parquet
    from .schema_draft import (
        FORMAT_FILE as FORMAT_FILE,
        SchemaDraft as SchemaDraft,
        column_names as column_names,
        draft_schema as draft_schema,
    )
    from .schema_file import (
        FILL_IN as FILL_IN,
        as_text as as_text,
        json_schema as json_schema,
        read_document as read_document,
    )
    from .schema_purchase import measure_schema as measure_schema
    from .stored_parquet import (
        PARQUET_SUFFIXES as PARQUET_SUFFIXES,
        is_parquet as is_parquet,
        is_parquet_group as is_parquet_group,
        parquet_files as parquet_files,
    )
    from .streamed_table import (
        CellsInBlocks as CellsInBlocks,
        MappedArrays as MappedArrays,
        StreamedTable as StreamedTable,
        streamed as streamed,
    )
    from .text_tables import (
        is_long_text as is_long_text,
        read_cells_as_text as read_cells_as_text,
        read_table as read_table,
        require_rows as require_rows,
        stream_text as stream_text,
    )

__all__, __getattr__ = lazy_names(
    __name__,
    {
        "cell_kinds": "as_frame",
        "cells": "bucket_codes date_values day_numbers level_codes levels_of_text numeric_values scale_columns",
        "cells_in_blocks": "open_cells",
        "columns": "CategoricalColumn Column DateColumn HashedColumn IgnoredColumn Label NumericColumn Unit",
        "dask": "DaskEngine DaskTable is_dask",
        "declaration": "FileFormat Schema",
        "delimited": "TEXT_SUFFIXES",
        "encoder": "MISSING UNKNOWN BoundedEncoder",
        "parquet": "ParquetTable open_parquet",
        "schema_draft": "FORMAT_FILE SchemaDraft column_names draft_schema",
        "schema_file": "FILL_IN as_text json_schema read_document",
        "schema_purchase": "measure_schema",
        "stored_parquet": "PARQUET_SUFFIXES is_parquet is_parquet_group parquet_files",
        "streamed_table": "CellsInBlocks MappedArrays StreamedTable streamed",
        "text_tables": "is_long_text read_cells_as_text read_table require_rows stream_text",
    },
)
