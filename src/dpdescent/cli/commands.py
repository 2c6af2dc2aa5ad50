"""The list of commands. Their modules are imported when they are run, so that help and completion are quick."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from .groups import CommandGroup, DeferredCommand

__all__ = ["COMMANDS", "app"]

COMMANDS = (
    DeferredCommand("demo", "demo:demo_command", "Train a private model on public data, and show what it cost."),
    DeferredCommand(
        "schema", "schema:schema_app", "Say what is public about a table: draft such a file, and check it."
    ),
    DeferredCommand("fit", "fit:fit_command", "Train a model on a table and save it with its privacy statement."),
    DeferredCommand("predict", "predict:predict_command", "Predict with a saved model, at no cost in privacy."),
    DeferredCommand(
        "explain", "explain:explain_command", "Say what a saved model or statement guarantees, in words."
    ),
    DeferredCommand("ledger", "ledger:ledger_app", "Keep a budget that several fits share."),
    DeferredCommand(
        "compare",
        "comparisons:compare_command",
        "Compare methods on the same data, folds, budget and relation.",
    ),
    DeferredCommand(
        "reproduce",
        "comparisons:reproduce_command",
        "Rerun a figure of a paper, with the paper's claims beside what was found.",
    ),
    DeferredCommand(
        "audit",
        "audit:audit_command",
        "Bound the epsilon of a mechanism, question or method from below, by runs on worst-case tables.",
    ),
    DeferredCommand(
        "methods",
        "listings:methods_command",
        "List the methods of training, or show the settings of one, also as in its paper.",
    ),
    DeferredCommand("datasets", "synthetic:datasets_app", "List the data sets, and where each is."),
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
