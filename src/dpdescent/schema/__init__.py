"""The earlier name of what `dpdescent.tables` holds of schemas, for code that imports it from here."""

from ..tables import (
    FILL_IN,
    CategoricalColumn,
    Column,
    DateColumn,
    FileFormat,
    HashedColumn,
    IgnoredColumn,
    Label,
    NumericColumn,
    Schema,
    SchemaDraft,
    Unit,
    draft_schema,
    json_schema,
    read_document,
)

__all__ = [
    "FILL_IN",
    "CategoricalColumn",
    "Column",
    "DateColumn",
    "FileFormat",
    "HashedColumn",
    "IgnoredColumn",
    "Label",
    "NumericColumn",
    "Schema",
    "SchemaDraft",
    "Unit",
    "draft_schema",
    "json_schema",
    "read_document",
]
