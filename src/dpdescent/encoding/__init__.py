"""The earlier name of what `dpdescent.tables` holds of encoding, for code that imports it from here."""

from ..tables import (
    MISSING,
    UNKNOWN,
    BoundedEncoder,
    bucket_codes,
    date_values,
    day_numbers,
    level_codes,
    levels_of_text,
    numeric_values,
    scale_columns,
)

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
