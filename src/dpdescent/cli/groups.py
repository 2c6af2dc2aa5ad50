"""Groups of commands that import what a command needs when the command is run."""

from __future__ import annotations

from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup

__all__ = ["CommandGroup", "DeferredCommand"]


class DeferredCommand(TyperCommand):
    """A command of which only the name and a line of help are known until it is run.

    Parameters
    ----------
    name : str
    place : str
        The function or the application that runs it, as ``module:name`` within this package.
    line : str
        Its line in the list of commands: the first line of its docstring.
    """

    def __init__(self, name: str, place: str, line: str) -> None:
        super().__init__(name=name, help=line)
        self.place = place

    def make_context(self, info_name: str | None, args: list[str], parent: Any = None, **extra: Any) -> Any:
        return self.loaded().make_context(info_name, args, parent=parent, **extra)

    def loaded(self) -> Any:
        """Return the command itself."""
        module, _, name = self.place.partition(":")
        target = getattr(import_module(f".{module}", __package__), name)
        app = target
        if not isinstance(target, typer.Typer):
            app = typer.Typer(add_completion=False)
            app.command(self.name)(target)
        command = typer.main.get_command(app)
        command.name = self.name
        return command


class CommandGroup(TyperGroup):
    """A group that shows its help where it is called without a command."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        return super().parse_args(ctx, args if args or ctx.resilient_parsing else ["--help"])
