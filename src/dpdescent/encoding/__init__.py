"""Turn a table into a bounded matrix using public knowledge alone."""

from .cells import (
    bucket_codes,
    date_values,
    day_numbers,
    level_codes,
    levels_of_text,
    numeric_values,
    scale_columns,
)
from .encoder import MISSING, UNKNOWN, BoundedEncoder

__all__ = [
    "MISSING",
    "UNKNOWN",
    "BoundedEncoder",
    "bucket_codes",
    "date_values",
    "day_numbers",
    "level_codes",
    "levels_of_text",
    "numeric_values",
    "scale_columns",
]
