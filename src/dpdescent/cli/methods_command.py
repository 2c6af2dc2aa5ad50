"""The command ``dpdescent methods``."""

from __future__ import annotations

from dataclasses import fields
from typing import Annotated, Any

import typer

from ..errors import InvalidParameter
from .terminal import JsonFile, say, write_json


def methods_command(
    name: Annotated[str | None, typer.Argument(help="Show the settings of this method.")] = None,
    paper: Annotated[bool, typer.Option("--paper", help="Show them as its paper has them.")] = False,
    json_file: JsonFile = None,
) -> None:
    """List the methods of training, or show the settings of one, also as in its paper."""
    from ..solvers import METHODS

    if name is not None:
        shown = _show_settings(name, paper)
        write_json(json_file, shown)
        return
    if paper:
        raise InvalidParameter("--paper is about one method: write dpdescent methods NAME --paper")
    width = max(map(len, METHODS))
    for name, method in ({"auto": METHODS["auto"]} | METHODS).items():
        say(f"{name:<{width}}  {method.summary}")
    say("")
    say("`dpdescent fit --method NAME` uses one; `auto` is the default.")
    rows = [{"name": name, "summary": method.summary, "private": method.private} for name, method in METHODS.items()]
    write_json(json_file, {"methods": rows})


def _show_settings(name: str, paper: bool) -> dict[str, Any]:
    """Print the settings of a method, and with ``paper`` where each is from and what differs; return them."""
    from ..estimators.arguments import known_method, make_settings
    from ..solvers import PAPERS, PaperMode

    method, settings = known_method(name), make_settings(name, {"paper": True} if paper else {})
    mode = settings.paper_mode if paper and settings.paper_mode is not None else PaperMode("")
    say(f"{name}: {method.summary}")
    if paper:
        say(PAPERS[mode.paper])
    sources = [("stated in the paper", mode.stated), ("left open there", mode.open), ("a rule", mode.rules)]
    values, origins = {}, {}
    for each in (field.name for field in fields(settings) if field.name != "paper"):
        value = mode.rules.get(each) or getattr(settings, each)
        values[each] = value
        origins[each] = next((origin for origin, given in sources if each in given), "the default of this package")
        say(f"  {each:<26}{_text(value):<24}{origins[each] if paper else ''}".rstrip())
    for difference in mode.differences:
        say(f"differs: {difference}")
    say("")
    say(f"`dpdescent fit --method {name}{' --set paper=true' if paper else ''}` uses them.")
    found: dict[str, Any] = {"name": name, "paper": paper, "settings": values}
    return found | ({"origins": origins, "differences": mode.differences} if paper else {})


def _text(value: object) -> str:
    """Return a value as people write it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    return "by rule" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
