"""The list of commands, and the entry point: it runs one and turns whatever goes wrong into one line.

The module of a command is imported when it is run, so that help and completion are quick.

Named errors never show a cell, so their message is printed, and so is what the system says about a file. An exception
that nobody expected may quote a cell, so neither its message nor a local variable is ever printed, not even in a
traceback. Warnings of this package are printed as one line each, and those of others not at all.
"""

from __future__ import annotations

import os
import sys
import traceback
import warnings
from importlib import import_module
from typing import Annotated, Any

import typer
from typer.core import TyperCommand, TyperGroup

from ..display import printable
from ..errors import DPDescentError, GuaranteeWarning, LedgerWarning, PrivacyWarning
from .terminal import INTERRUPTED, complain

DEBUG = "DPDESCENT_DEBUG"
_WARNINGS = (GuaranteeWarning, LedgerWarning, PrivacyWarning)
# The base of all that is wrong with what was typed, wherever a release of typer keeps it.
_UsageError: Any = next(kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException")


class DeferredCommand(TyperCommand):
    """A command of which only the name and the first line of its docstring are known until it is run.

    The module ``name_command`` has the function of that name, or the application ``name_app`` of several commands.
    """

    def __init__(self, name: str, line: str, module: str = "") -> None:
        super().__init__(name=name, help=line)
        self._module = f".{module or name}_command"

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.load().make_context(info_name, args, parent=parent, **extra)

    def load(self) -> Any:
        """Return the command itself."""
        module = import_module(self._module, __package__)
        app = getattr(module, f"{self.name}_app", None)
        if app is None:
            app = typer.Typer(add_completion=False)
            app.command(self.name)(getattr(module, f"{self.name}_command"))
        command = typer.main.get_command(app)
        command.name = self.name
        return command


class CommandGroup(TyperGroup):
    """A group that shows its help where it is called without a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])


COMMANDS = (
    DeferredCommand("demo", "Train a private model on public data, and show what it cost."),
    DeferredCommand("describe", "Look at a table privately: types, levels, missing cells, numbers."),
    DeferredCommand("schema", "Say what is public about a table: draft such a file, and check it."),
    DeferredCommand("fit", "Train a model on a table and save it with its privacy statement."),
    DeferredCommand("predict", "Predict with a saved model, at no cost in privacy."),
    DeferredCommand("evaluate", "Say what a saved model is worth on sensitive rows, with intervals, and pay for it."),
    DeferredCommand("explain", "Say what a saved model or statement guarantees, in words."),
    DeferredCommand("release", "Write one folder with a model and all that must be said of it."),
    DeferredCommand("verify", "Check a model, a statement or a release by accountants that are not ours."),
    DeferredCommand("ledger", "Keep a budget that several fits share."),
    DeferredCommand("compare", "Compare methods on the same data, folds, budget and relation."),
    DeferredCommand(
        "reproduce", "Rerun a figure of a paper, with the paper's claims beside what was found.", "compare"
    ),
    DeferredCommand(
        "audit", "Bound the epsilon of a mechanism, query or method from below, by runs on worst-case tables."
    ),
    DeferredCommand("methods", "List the methods of training, or show the settings of one, also as in its paper."),
    DeferredCommand("datasets", "List the data sets, and where each is."),
)


class _Commands(CommandGroup):
    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.commands = {str(command.name): command for command in COMMANDS}

    def list_commands(self, ctx: Any) -> list[str]:
        return list(self.commands)


app = typer.Typer(
    cls=_Commands,
    help="Private training with no learning rate to tune.",
    pretty_exceptions_show_locals=False,  # a local variable may hold the rows
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from .. import __version__

        typer.echo(f"dpdescent {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and end.", callback=_show_version, is_eager=True)
    ] = False,
) -> None:
    pass


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
