"""The entry point: runs a command and turns a named error into one line."""

from __future__ import annotations

import sys

from rich.console import Console
from rich.text import Text

from ..errors import DPDescentError
from .commands import app

__all__ = ["main"]


def main() -> None:
    """Run the command line; a named error is one line on standard error and exit code 1."""
    try:
        app()
    except DPDescentError as problem:
        message = Text.assemble((type(problem).__name__, "bold red"), ": ", str(problem))
        Console(stderr=True, highlight=False).print(message, soft_wrap=True)
        sys.exit(1)
