"""What is publicly known about a table, as a JSON file."""

from .declaration import FILL_IN, CategoricalColumn, IgnoredColumn, Label, NumericColumn, Schema
from .draft import SchemaDraft, draft_schema

__all__ = [
    "FILL_IN",
    "CategoricalColumn",
    "IgnoredColumn",
    "Label",
    "NumericColumn",
    "Schema",
    "SchemaDraft",
    "draft_schema",
]
