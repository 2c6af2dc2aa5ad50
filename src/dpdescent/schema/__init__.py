"""What is publicly known about a table, as a JSON file."""

from .columns import CategoricalColumn, Column, DateColumn, HashedColumn, IgnoredColumn, Label, NumericColumn
from .declaration import FileFormat, Schema
from .document import FILL_IN, json_schema, read_document
from .draft import SchemaDraft, draft_schema
from .unit import Unit

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
