"""What commands share: options that are typed, and lines, privacy statements and JSON files that are written.

No text passes through the markup of rich, which would swallow brackets, and all of it passes through `printable`: a
name from a file of somebody else neither moves the cursor nor begins a line of its own.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..display import occasional, printable
from ..errors import InvalidParameter
from ..long_runs import write_whole

if TYPE_CHECKING:
    from rich.console import Console

INTERRUPTED = 130  # the exit code
_COLUMNS = 24  # remarks about columns that are shown

Adjacency = Annotated[str, typer.Option(help="zero-out or replace-one.")]
TableName = Annotated[
    str,
    typer.Argument(
        help="A data set name, or a CSV, TSV, Parquet or NPZ file, or a folder or pattern of Parquet files."
    ),
]
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


def read_settings(assignments: list[str], option: str = "--set") -> dict[str, Any]:
    """Return settings from ``name=value``; a value is a JSON literal, or else plain text."""
    settings: dict[str, Any] = {}
    for assignment in assignments:
        name, equals, value = assignment.partition("=")
        if not equals or not name:
            raise InvalidParameter(f"{option} must be NAME=VALUE, got {assignment!r}")
        if name in settings:
            raise InvalidParameter(f"{option} {name} is given twice: keep one")
        settings[name] = literal(value)
    return settings


def literal(text: str) -> Any:
    """Return the JSON value that ``text`` is, or the text itself."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def screen(*, errors: bool = False) -> Console:
    """Return the console of standard output, or of standard error; it spells out control characters of any text."""
    from rich.console import Console

    class Screen(Console):
        def render_str(self, text: str, **options: Any) -> Any:
            return super().render_str(printable(text), **options)

    return Screen(stderr=errors, highlight=False, markup=False, emoji=False)


def say(text: str, *, style: str = "") -> None:
    """Print one line of text, however wide the screen."""
    screen().print(text, soft_wrap=True, style=style)


def complain(title: str, text: str, colour: str = "red") -> None:
    """Print one line on standard error, its title in colour."""
    from rich.text import Text

    screen(errors=True).print(Text.assemble((title, f"bold {colour}"), ": ", printable(text)), soft_wrap=True)


def print_privacy(privacy: dict[str, Any]) -> None:
    """Print a privacy statement: the guarantee, how much of it is spent and on what, and remarks."""
    from ..statement import headline

    private = privacy.get("private", True)
    say(headline(privacy), style="" if private else "bold red")
    if private:
        say(f"spent {privacy['spent'] / privacy['budget']:.1%} of the budget")
        for kind, count in privacy["mechanisms"].items():
            say(f"  {count:5d} x {kind}")
    sampled = privacy.get("sampler_error")
    if sampled and not sampled["within_delta"]:
        say(f"the samplers' own error adds at most {sampled['delta']:.3g} to delta")
    if "randomness" in privacy:
        say(f"randomness: {_listing(privacy['randomness'])}")
    remarks = list(privacy.get("remarks", ()))
    columns = [each for each in remarks if each.startswith("column ")]
    for remark in (
        remarks if len(columns) <= _COLUMNS else [each for each in remarks if each not in columns[_COLUMNS:]]
    ):
        say(f"remark: {remark}")
    if len(columns) > _COLUMNS:
        say(f"and {len(columns) - _COLUMNS} more columns, which the statement in the model file lists")


def _listing(words: str | list[str]) -> str:
    return words if isinstance(words, str) else ", ".join(words)


def write_json(path: Path | None, data: dict[str, Any]) -> None:
    """Write plain data as JSON, if a file was asked for."""
    if path is None:
        return
    write_whole(path, json.dumps(data, indent=1, default=_plain) + "\n")


def write_text(text: str) -> None:
    """Write text for another program to standard output, as it is; on a terminal control characters are spelt out."""
    sys.stdout.write(printable(text, keep="\n") if sys.stdout.isatty() else text)


@contextmanager
def downloading() -> Iterator[Callable[[str, int, int | None], None]]:
    """Yield what a download reports to: a line on standard error now and then."""
    speak = occasional()

    def report(name: str, received: int, expected: int | None) -> None:
        share = "" if not expected else f" of {expected / 1e6:.0f}"
        speak(f"downloading {name}: {received / 1e6:.0f}{share} MB")

    yield report


def _plain(value: Any) -> Any:
    import numpy as np

    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not plain data")
