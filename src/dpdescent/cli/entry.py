"""The entry point: runs a command and turns whatever goes wrong into one line.

Named errors never show a cell, so their message is printed, and so is what the system says about a file. An exception
that nobody expected may quote a cell, so neither its message nor a local variable is ever printed, not even in a
traceback. Warnings of this package are printed as one line each, and those of others not at all.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from typing import Any

import typer

from ..display import printable
from ..errors import DPDescentError, GuaranteeWarning, LedgerWarning, PrivacyWarning
from .commands import app
from .output import complain

__all__ = ["main"]

DEBUG = "DPDESCENT_DEBUG"
INTERRUPTED = 130
_WARNINGS = (GuaranteeWarning, LedgerWarning, PrivacyWarning)
# The base of all that is wrong with what was typed, wherever a release of typer keeps it.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


def main() -> None:
    """Run the command line; an error is one line on standard error and exit code 1, wrong usage exit code 2.

    With ``DPDESCENT_DEBUG=1`` in the environment an unexpected error shows where it was raised.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            for kind in _WARNINGS:
                warnings.simplefilter("always", kind)
            warnings.showwarning = _show_warning
            code = app(prog_name="dpdescent", standalone_mode=False)
    except DPDescentError as problem:
        complain(type(problem).__name__, "; ".join([str(problem), *getattr(problem, "__notes__", [])]))
        code = 1
    except _UsageError as problem:
        asked = problem.ctx.command_path if getattr(problem, "ctx", None) is not None else "dpdescent"
        text = " ".join(problem.format_message().split()).rstrip(".")
        complain("UsageError", f"{text}; `{asked} --help` shows what can be typed")
        code = 2
    except (KeyboardInterrupt, typer.Abort):
        complain("interrupted", "the command was ended from the keyboard")
        code = INTERRUPTED
    except OSError as problem:
        code = _explain_system(problem)
    except Exception as problem:
        code = _explain_unexpected(problem)
    sys.exit(code if isinstance(code, int) else 0)


def _show_warning(message: Warning | str, *_: Any, **__: Any) -> None:
    complain(type(message).__name__, str(message), colour="yellow")


def _explain_system(problem: OSError) -> int:
    """Print what the system says about a file: neither a path nor a reason is ever a cell."""
    if problem.strerror is None or problem.filename is None:
        return _explain_unexpected(problem)
    complain(type(problem).__name__, f"{problem.filename}: {problem.strerror}")
    return 1


def _explain_unexpected(problem: Exception) -> int:
    hint = f"{DEBUG}=1 shows a traceback"
    if os.environ.get(DEBUG, "0") not in ("", "0"):
        sys.stderr.write(printable(_frames(problem), keep="\n"))
        hint = "its message is not shown, because it may quote a cell"
    complain(
        "dpdescent",
        f"unexpected error ({type(problem).__name__}). Please report it to the maintainers of dpdescent; {hint}",
    )
    return 1


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
