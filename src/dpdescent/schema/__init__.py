"""What is publicly known about a table, as a JSON file."""

from .declaration import FILL_IN, CategoricalColumn, IgnoredColumn, Label, NumericColumn, Schema
from .draft import SchemaDraft, draft_schema
from .unit import Unit

__all__ = [
    "FILL_IN",
    "CategoricalColumn",
    "IgnoredColumn",
    "Label",
    "NumericColumn",
    "Schema",
    "SchemaDraft",
    "Unit",
    "draft_schema",
]
