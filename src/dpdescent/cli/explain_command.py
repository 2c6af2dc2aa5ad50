"""The command ``dpdescent explain``."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..long_runs import require_outputs, write_whole
from .terminal import JsonFile, say, write_json

if TYPE_CHECKING:
    from ..statement import Effects, PrivacyStatement


def explain_command(
    model: Annotated[Path, typer.Argument(help="A model written by `dpdescent fit`, or a saved privacy statement.")],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write one page that loads nothing.")] = None,
    json_file: JsonFile = None,
) -> None:
    """Say what a saved model or statement guarantees, in words.

    What was released, what epsilon means, where the budget went and what is not covered. It costs no privacy.
    """
    from ..statement import page_of, text_of

    require_outputs([html, json_file], [model])
    statement, effects = _read(model)
    for line in text_of(statement, effects):
        say(line)
    if html is not None:
        write_whole(html, page_of(statement, effects))
        say("")
        say(f"page written to {html}")
    write_json(json_file, statement.to_dict())


def _read(path: Path) -> tuple[PrivacyStatement, Effects | None]:
    """Return the statement in a file, and effects with their noise if it holds a model that knows it."""
    from ..estimators.saved_models import SavedModel
    from ..statement import PrivacyStatement

    if not _is_model(path):
        return PrivacyStatement.load(path), None
    saved = SavedModel.load(path)
    return PrivacyStatement.from_dict(saved.privacy), saved.effects()


def _is_model(path: Path) -> bool:
    """Return whether a file says that it is a model; whatever is wrong with it is found by who reads it."""
    from ..estimators.saved_models import FILE

    try:
        return bool(json.loads(path.read_bytes()).get("format") == FILE.format)
    except (OSError, ValueError, AttributeError, RecursionError):
        return True
