"""What a statement says of public numbers: what a caller vouched for, and what to know before anything is paid.

An argument is listed if it was given, whatever it is. So a parameter that is added to an estimator is in its
statements without further ado, unless the statement has a place of its own for it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from numbers import Number
from typing import Any

from ..solvers import Facts
from ..statement import Origin, moved, name_of, public_fact
from ..tables import CategoricalColumn, Schema

#: Parameters that a statement names elsewhere, or that say nothing about the rows.
_ELSEWHERE = {"epsilon", "delta", "adjacency", "method", "random_state", "ledger", "progress", "noise"}
_ELSEWHERE |= {"device", "checkpoint"}
_WORDS = {
    "bounds": "cells outside are clipped",
    "binary_features": "which columns are 0 or 1",
    "class_weight": "the weight of each class",
    "knots": "where curves may bend",
    "unit": "the column that says whose row it is",
}
_LONGEST = 80


def given_arguments(model: Any, told: Iterable[str]) -> list[str]:
    """Return ``told``, and after it a sentence for every argument that was given and is not told of yet."""
    found = list(told)
    named = {name_of(each) for each in found}
    for parameter in fields(model):
        value = getattr(model, parameter.name)
        plain = isinstance(value, Number | str) and value == parameter.default
        left = value is parameter.default or plain or (isinstance(value, Mapping) and not value)
        if left or parameter.name in _ELSEWHERE | named:
            continue
        what = _WORDS.get(parameter.name) or _shown(value)
        found.append(public_fact(parameter.name, what, Origin.ARGUMENT))
    return found


def size_facts(rows: int, units: int | None, declared: int | None, counted: bool) -> list[str]:
    """Return what is public about the size of a table, and by which number of rows its sums are divided.

    Parameters
    ----------
    rows : int
        The number that stands for that of the rows.
    units : int, optional
        The number of units, where the rows are those of units.
    declared : int, optional
        The number of rows that was given beside them.
    counted : bool
        Whether the number of rows was measured.
    """
    if units is None:
        return [public_fact("the number of rows", str(rows), Origin.RELATION)]
    origin = Origin.MEASURED if counted else Origin.RELATION if declared is None else Origin.ARGUMENT
    return [
        public_fact("the number of units", str(units), Origin.RELATION),
        public_fact("rows", f"sums are divided by {rows}", origin),
    ]


def bounds_facts(given: bool, sought: bool, tightened: bool, private: bool) -> list[str]:
    """Return where the bounds of the columns came from: given, sought for want of them, or made narrower."""
    found = [public_fact("bounds", _WORDS["bounds"], Origin.ARGUMENT)] if given else []
    if sought:
        origin = Origin.MEASURED if private else Origin.ROWS
        found.append(public_fact("bounds", "those that were not given", origin))
    if tightened:
        found.append(public_fact("bounds", "narrower ones, within those that were given", Origin.MEASURED))
    return found


def schema_facts(schema: Schema) -> list[str]:
    """Return what a schema says about a table."""
    levels = sum(isinstance(column, CategoricalColumn) for column in schema.columns)
    return [
        public_fact("schema", f"the kinds of {len(schema.columns)} columns, and their codes", Origin.SCHEMA),
        *([public_fact("levels", f"in {levels} of {len(schema.columns)} columns", Origin.SCHEMA)] if levels else []),
    ]


def of_schema(sentences: Sequence[str], schema: Schema, unit: str | None = None) -> list[str]:
    """Return sentences about arguments that a schema file gave; a ``unit`` that was named apart is none of them."""
    names = ["bounds", "binary_features", "classes", "target_bounds", *(["rows_per_unit"] if unit is None else [])]
    missing = [each for each in schema_facts(schema) if each not in sentences]
    return [*missing, *moved(sentences, names, Origin.SCHEMA)]


def _shown(value: Any) -> str:
    """Return a number or a word as it is, and of anything else only what it is."""
    if isinstance(value, Number | str):
        return f"{value}" if isinstance(value, Number) else f"{value!r:.{_LONGEST}}"
    if isinstance(value, Mapping):
        return ", ".join(f"{key}={_shown(each)}" for key, each in value.items())
    return f"{value!r:.{_LONGEST}}" if is_dataclass(value) else f"of type {type(value).__name__}"


_LARGEST_EPSILON = 10.0  # beyond it a guarantee keeps hardly anybody from telling who was in the table
_FEWEST_ROWS = 10.0  # effective ones: with fewer, noise hides all but the frequencies of the classes


def advice(facts: Facts) -> list[str]:
    """Return a sentence for each number that weakens the guarantee or that leaves nothing to learn.

    The number of rows is public under both relations, and nothing else about the table enters.
    """
    found = []
    if facts.delta * facts.rows > 1:
        found.append(
            f"delta {facts.delta:g} is above 1/n for n = {facts.rows} rows, so the guarantee allows a whole row to "
            "be published: choose delta well below 1/n"
        )
    if facts.epsilon > _LARGEST_EPSILON:
        found.append(
            f"epsilon {facts.epsilon:g} is above {_LARGEST_EPSILON:g}, which protects a row very little: choose "
            "epsilon between 0.1 and 10"
        )
    effective = facts.promised_rows if facts.delta > 0 else facts.rows * facts.epsilon / facts.change
    if effective < _FEWEST_ROWS:
        found.append(
            f"epsilon {facts.epsilon:g} and n = {facts.rows} rows amount to {effective:.2g} effective rows, too few "
            "to learn anything from: raise epsilon, or collect more rows"
        )
    return found
