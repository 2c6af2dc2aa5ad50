"""Options that several commands share, and how text on the command line becomes numbers, classes and settings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from ..errors import InvalidParameter

__all__ = [
    "MEASURE",
    "Delta",
    "Epsilon",
    "JsonFile",
    "Missing",
    "Seed",
    "Unknown",
    "read_bounds",
    "read_classes",
    "read_settings",
]

#: Said instead of bounds that nobody knows.
MEASURE = "measure"

JsonFile = Annotated[Path | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")]
Epsilon = Annotated[float, typer.Option(help="Privacy budget epsilon.")]
Delta = Annotated[float, typer.Option(help="Privacy budget delta; take it well below 1/n.")]
Seed = Annotated[int | None, typer.Option(help="Repeat a run. Never for a release.")]
Missing = Annotated[
    str | None, typer.Option(help="Missing cells of all columns: error, midpoint or level; default: the schema's.")
]
Unknown = Annotated[
    str | None, typer.Option(help="Cells outside the levels: error, zero or other; default: the schema's.")
]


def read_bounds(option: str, text: str, *, per_column: bool = True) -> tuple[Any, Any]:
    """Return (low, high) from ``LOW,HIGH``, or from two lists with one number per column: ``[0,0],[1,5]``."""
    try:
        low, high = ends = json.loads(f"[{text}]")
    except ValueError:
        ends = [None]
    if not all(_is_number(end) or (per_column and _is_list_of_numbers(end)) for end in ends):
        lists = ", or two lists with one number per column such as [0,0],[1,5]" if per_column else ""
        measure = f", or {MEASURE}" if per_column else ""
        raise InvalidParameter(f"{option} must be two numbers such as 0,1{lists}{measure}, got {text!r}")
    return low, high


def read_classes(text: str) -> list[Any]:
    """Return the classes in ``a,b``; each is a JSON literal such as 1, true or "1", or else plain text."""
    if text.lstrip().startswith("["):
        listed = literal(text)
        if isinstance(listed, list):
            return listed
    return [literal(part.strip()) for part in text.split(",")]


def read_settings(assignments: list[str]) -> dict[str, Any]:
    """Return settings from ``name=value``; a value is a JSON literal, or else plain text."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise InvalidParameter(f"--set must be NAME=VALUE, got {assignment!r}")
        if name in settings:
            raise InvalidParameter(f"--set {name} is given twice: keep one")
        settings[name] = literal(value)
    return settings


def literal(text: str) -> Any:
    """Return the JSON value that ``text`` is, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_list_of_numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_is_number(each) for each in value)
