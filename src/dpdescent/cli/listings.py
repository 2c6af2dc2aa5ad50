"""The commands ``dpdescent methods`` and ``dpdescent datasets``."""

from __future__ import annotations

from .options import JsonFile
from .output import say, screen, write_json

__all__ = ["datasets_command", "methods_command"]


def methods_command(json_file: JsonFile = None) -> None:
    """List the methods of training, with one line about each."""
    from ..solvers import METHODS

    width = max(map(len, METHODS))
    for name, method in ({"auto": METHODS["auto"]} | METHODS).items():
        say(f"{name:<{width}}  {method.summary}")
    say("\n`dpdescent fit --method NAME` uses one; `auto` is the default.")
    rows = [{"name": name, "summary": method.summary, "private": method.private} for name, method in METHODS.items()]
    write_json(json_file, {"methods": rows})


def datasets_command(json_file: JsonFile = None) -> None:
    """List the data sets, and where each is."""
    from rich.table import Table

    from ..datasets import list_datasets

    table = Table(box=None, header_style="bold")
    for column in ("name", "rows", "columns", "classes", "where"):
        table.add_column(column, justify="right" if column in ("rows", "columns", "classes") else "left")
    rows = []
    for info in list_datasets():
        where = "built in" if info.built_in else str(info.location) if info.location else "to download"
        rows.append(
            {"name": info.name, "title": info.title, "rows": info.rows, "columns": info.columns, "where": where}
        )
        table.add_row(info.name, f"{info.rows:,}", f"{info.columns:,}", str(info.classes), where)
    screen().print(table)
    say("Offline copies are looked up in $DPDESCENT_DATA.")
    write_json(json_file, {"datasets": rows})
