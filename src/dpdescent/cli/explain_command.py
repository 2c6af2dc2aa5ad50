"""The command ``dpdescent explain``."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from ..errors import InvalidParameter, ModelFormatError, StatementError
from ..long_runs import require_outputs, write_whole
from .terminal import JsonFile, say, write_json

if TYPE_CHECKING:
    from ..statement import Effects, PrivacyStatement

#: What the command returns, beside 0 for a private model and 1 for a file that was damaged or edited.
FOREIGN, NOT_PRIVATE = 3, 4
_MARK = re.compile(rb'\s*\{\s*"format"\s*:\s*"dpdescent-(model|privacy-statement)"')


def explain_command(
    model: Annotated[Path, typer.Argument(help="A model, a saved privacy statement, or a folder to look through.")],
    html: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write one page that loads nothing.")] = None,
    terms: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Also write a page of what columns do: additive models and trees."),
    ] = None,
    check: Annotated[
        bool, typer.Option("--check", help="Answer in one line, and by the exit code, whether it is private.")
    ] = False,
    json_file: JsonFile = None,
) -> None:
    """Say what a saved model or statement guarantees, in words.

    What was released, what epsilon means, where the budget went and what is not covered. It costs no privacy.

    With --check, and for every file of a folder, the answer is one line, and models and statements are found whatever
    their names are. The exit code is then 0 for what is private, 1 for a file that was damaged or edited, 3 for what
    is not of this library, and 4 if nothing is guaranteed, or something was read from the rows and not paid for.
    """
    from ..statement import page_of, text_of

    if check or model.is_dir():
        if html is not None or terms is not None:
            raise InvalidParameter("--html and --terms are for one model without --check: name its file")
        require_outputs([json_file], [model])
        raise typer.Exit(_look_through(model, json_file))
    require_outputs([html, terms, json_file], [model])
    statement, effects = _read(model)
    page = None if terms is None else _page_of_terms(model)
    for line in text_of(statement, effects):
        say(line)
    if html is not None:
        write_whole(html, page_of(statement, effects))
        say("")
        say(f"page written to {html}")
    if terms is not None and page is not None:
        write_whole(terms, page)
        say(f"page of what columns do written to {terms}")
    write_json(json_file, statement.to_dict())


def _page_of_terms(model: Path) -> str:
    """Return the page of an additive model or of boosted trees."""
    from ..estimators.saved_models import load

    found = load(model) if _is_model(model) else None
    page = getattr(found, "terms_html", lambda: None)()
    if page is None:
        raise InvalidParameter(
            "--terms is for additive models and boosted trees: fit with --model additive or --model trees"
        )
    return str(page)


def _look_through(place: Path, json_file: Path | None) -> int:
    """Say of a file, or of every file in a folder, what it guarantees, and return the exit code."""
    from ..statement import headline

    codes, found = set[int](), []
    for path in sorted(each for each in place.rglob("*") if each.is_file()) if place.is_dir() else [place]:
        answer: dict[str, object] = {"file": str(path)}
        if not _is_marked(path):
            code, said = FOREIGN, "not of dpdescent"
        else:
            try:
                statement, _ = _read(path)
                code = 0 if _is_private(statement) else NOT_PRIVATE
                said = f"a {'model' if _is_model(path) else 'privacy statement'}, {headline(statement)}"
                answer |= {"epsilon": statement.epsilon if statement.private else None, "delta": statement.delta}
            except (ModelFormatError, StatementError) as problem:
                code, said = 1, f"refused: {problem}"
        say(f"{path}: {said}")
        codes.add(code)
        found.append(answer | {"code": code, "answer": said})
    write_json(json_file, {"files": found})
    ours = codes - {FOREIGN}
    return next((code for code in (1, NOT_PRIVATE, 0) if code in ours), FOREIGN)


def _is_private(statement: PrivacyStatement) -> bool:
    """Return whether all is paid for."""
    from ..statement import exceptions_noted

    return exceptions_noted(statement.private, statement.assumed_public) is True


def _is_marked(path: Path) -> bool:
    """Return whether a file begins as a model or a statement of this library does."""
    try:
        with path.open("rb") as file:
            return _MARK.match(file.read(200)) is not None
    except OSError:
        return False


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
