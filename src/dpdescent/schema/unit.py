"""Whose rows belong together, as a schema declares it."""

from __future__ import annotations

from dataclasses import dataclass

from ..errors import SchemaError

__all__ = ["Unit"]


@dataclass(frozen=True)
class Unit:
    """The unit of privacy: all rows with the same cell in ``column``, of which at most ``rows`` are used."""

    column: str
    rows: int = 1

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not self.column:
            raise SchemaError("unit.column: must be a column name")
        if not isinstance(self.rows, int) or isinstance(self.rows, bool) or self.rows < 1:
            raise SchemaError("unit.rows: must be a whole number of at least 1")
