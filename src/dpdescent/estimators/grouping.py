"""Whose rows belong together: a column of the table by name, or an array beside it."""

from __future__ import annotations

from typing import Any

import pandas as pd

from ..errors import InvalidParameter, MissingColumn
from ..ledger import ONE_ROW

__all__ = ["split_units", "without_column"]


def split_units(X: Any, column: str | None, given: Any) -> tuple[Any, Any, str]:
    """Return the table without its column of units, the unit of every row or None, and what is protected, in words.

    Parameters
    ----------
    X : table
    column : str, optional
        The name of the column that says whose row it is.
    given : array_like, optional
        The unit of every row, in place of such a column.
    """
    if column is None:
        if given is None:
            return X, None, ONE_ROW
        _require_same_rows(X, given)
        return X, given, _protected(getattr(given, "name", None))
    if given is not None:
        raise InvalidParameter("units are given twice, by unit= of the model and of fit: leave one out")
    if not isinstance(column, str) or not column:
        kind = type(column).__name__
        raise InvalidParameter(f"unit must be the name of a column, got a {kind}: pass arrays to fit(X, y, unit=...)")
    if not isinstance(X, pd.DataFrame) or list(X.columns).count(column) != 1:
        raise MissingColumn(
            f"unit names the column {column!r}, and the table has no such column, or several: pass a DataFrame with "
            "one, or fit(X, y, unit=...) with an array"
        )
    return X.drop(columns=[column]), X[column], _protected(column)


def without_column(X: Any, column: str | None) -> Any:
    """Return a table to predict without its column of units, if it has one."""
    named = isinstance(X, pd.DataFrame) and column is not None and column in X.columns
    return X.drop(columns=[column]) if named else X


def _require_same_rows(X: Any, given: Any) -> None:
    """Refuse units in another order than the rows: with the rows of others a person would have too many."""
    indexed = isinstance(X, pd.DataFrame) and isinstance(given, pd.Series) and len(X) == len(given)
    if indexed and not X.index.equals(given.index):
        raise InvalidParameter(
            "unit and X have different indexes, so it is unclear whose row each is: bring both into one order, or "
            "pass unit.to_numpy() if they are in one"
        )


def _protected(name: Any) -> str:
    """Return what is protected, in words: never those of single rows, which a ledger keeps apart."""
    words = f"one {name}" if isinstance(name, str) and name else ONE_ROW
    return "one unit" if words == ONE_ROW else words
