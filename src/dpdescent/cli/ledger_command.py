"""The commands ``dpdescent ledger create | show | history | export | verify | import``.

``dpdescent ledger FILE`` is short for ``show``, and ``dpdescent ledger FILE --create`` for ``create``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import LedgerFormatError
from ..long_runs import require_outputs, require_writable, write_whole
from .commands import CommandGroup
from .terminal import Adjacency, Delta, Epsilon, JsonFile, print_privacy, say, write_json, write_text

if TYPE_CHECKING:
    from ..ledger import Ledger

LedgerFile = Annotated[Path, typer.Argument(metavar="FILE", help="A ledger file.")]
OldFile = Annotated[
    Path, typer.Argument(metavar="OLD_FILE", help="A ledger in lines of JSON, of an earlier release.")
]
NewFile = Annotated[Path, typer.Argument(metavar="NEW_FILE", help="Where the ledger is to be kept; a new file.")]

_ROUNDING = 1 + 1e-9  # another machine may compute a price that differs in its last digits


class _WithShortForms(CommandGroup):
    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] != "--help":
            command = "create" if "--create" in args else "show"
            args = [command, *(word for word in args if word != "--create")]
        return super().parse_args(ctx, args)


ledger_app = typer.Typer(cls=_WithShortForms, help="Keep a budget that several fits share.", add_completion=False)


@ledger_app.command()
def create(
    path: NewFile,
    epsilon: Epsilon = 1.0,
    delta: Delta = 1e-6,
    currency: Annotated[str, typer.Option(help="gdp, zcdp, rdp, pure or approximate.")] = "gdp",
    adjacency: Adjacency = "zero-out",
    unit: Annotated[
        str | None, typer.Option(help="What is protected, for instance 'one person'; default: one row.")
    ] = None,
    json_file: JsonFile = None,
) -> None:
    """Start a new ledger; a missing folder is made."""
    from ..accounting import currency_named
    from ..ledger import ONE_ROW, Ledger

    require_writable(path)
    require_outputs([json_file], [path])
    kept = currency_named(currency, epsilon, delta).with_failures()  # it may pay for levels that are to be found
    _show(Ledger(epsilon, delta, currency=kept, relation=adjacency, path=path, unit=unit or ONE_ROW), json_file)


@ledger_app.command()
def show(path: LedgerFile, json_file: JsonFile = None) -> None:
    """Show how much of a ledger is spent, on what, and what is left."""
    require_outputs([json_file], [path])
    _show(_open(path), json_file)


@ledger_app.command()
def history(path: LedgerFile, json_file: JsonFile = None) -> None:
    """List the fits and single charges of a ledger, each with its date, its cost and its model file."""
    require_outputs([json_file], [path])
    account = _open(path)
    lines: list[dict[str, Any]] = []
    for line in account.history:
        entry, count, spent = line.entry, len(line.charges), sum(charge.price for charge in line.charges)
        lines.append({"date": entry.date, "name": entry.label, "state": line.state, "model": entry.model})
        lines[-1] |= {"charges": count, "spent": spent, "share": spent / account.budget}
        date = "no date" if entry.date is None else entry.date.replace("T", " ").replace("+00:00", " UTC")
        asked = {"charged": "", "reserved": "reserved and not settled, ", "settled": f"{count} charges, "}[line.state]
        model = "" if entry.model is None else f", model {entry.model}"
        say(f"{date}  {entry.label or 'no name'}: {asked}{spent / account.budget:.2%} of the budget{model}")
    write_json(json_file, {"history": lines})


@ledger_app.command()
def export(
    path: LedgerFile,
    output: Annotated[Path | None, typer.Option(help="Write to this file instead of the screen.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Write every charge of a ledger as JSON. The text is a copy that cannot spend."""
    require_outputs([output, json_file], [path])
    text = _open(path).to_json()
    if output is not None:
        write_whole(output, text + "\n")
        say(f"written to {output}")
    elif json_file is None:
        write_text(text + "\n")
    write_json(json_file, json.loads(text))


@ledger_app.command()
def verify(path: LedgerFile, json_file: JsonFile = None) -> None:
    """Check that a ledger is whole and what its charges cost."""
    require_outputs([json_file], [path])
    account = _open(path)
    account.verify()
    if account.spent > account.budget * _ROUNDING:
        raise LedgerFormatError(
            f"{path} is whole, and by this release its charges amount to epsilon {account.spent_epsilon():.6g}, "
            f"which is more than its budget of {account.epsilon:g}: nothing more can be charged to it"
        )
    say(f"{path} is whole: {len(account.entries)} charges, {account.spent / account.budget:.1%} of the budget")
    write_json(json_file, {"whole": True, "id": account.identity} | account.statement())


@ledger_app.command("import")
def import_command(old: OldFile, path: NewFile, json_file: JsonFile = None) -> None:
    """Move a ledger of an earlier release into a new file. The old file accepts no charges any more."""
    from ..ledger import import_lines

    require_outputs([json_file], [old, path])
    _show(import_lines(old, path), json_file)


def _open(path: Path) -> Ledger:
    from ..ledger import Ledger

    return Ledger.open(path)


def _show(account: Ledger, json_file: Path | None) -> None:
    print_privacy(account.statement())
    left = account.left()
    say(f"left: a fit of epsilon {left['epsilon']:.4g} at delta {account.delta:g}")
    origin = None if account.origin is None else account.origin.to_dict()
    if account.origin is not None:
        say(f"moved from {account.origin.path}: no copy of that file may be imported or charged")
    write_json(json_file, account.statement() | {"id": account.identity, "left": left, "origin": origin})
