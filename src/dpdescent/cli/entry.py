"""The entry point: runs a command and turns an error into one line.

Named errors never show a cell, so their message is printed. An exception that nobody expected may quote one, so
neither its message nor a local variable is ever printed, not even in a traceback.
"""

from __future__ import annotations

import os
import sys
import traceback

from ..errors import DPDescentError
from .commands import app
from .output import complain

__all__ = ["main"]

DEBUG = "DPDESCENT_DEBUG"


def main() -> None:
    """Run the command line; an error is one line on standard error and exit code 1.

    With ``DPDESCENT_DEBUG=1`` in the environment an unexpected error shows where it was raised.
    """
    try:
        app()
    except DPDescentError as problem:
        complain(type(problem).__name__, str(problem))
        sys.exit(1)
    except Exception as problem:
        hint = f"{DEBUG}=1 shows a traceback"
        if os.environ.get(DEBUG, "0") not in ("", "0"):
            sys.stderr.write(_frames(problem))
            hint = "its message is not shown, because it may quote a cell"
        complain(
            "dpdescent",
            f"unexpected error ({type(problem).__name__}). Please report it to the maintainers of dpdescent; {hint}",
        )
        sys.exit(1)


def _frames(problem: BaseException) -> str:
    """Return where an exception and those that led to it were raised: lines of code, without values or messages."""
    chain: list[BaseException] = []
    cause: BaseException | None = problem
    while cause is not None and cause not in chain:
        chain.append(cause)
        cause = cause.__cause__ or (None if cause.__suppress_context__ else cause.__context__)
    parts = ["Traceback (most recent call last):\n"]
    for each in reversed(chain):
        parts += [*traceback.format_tb(each.__traceback__), f"{type(each).__name__}\n"]
    return "".join(parts)
