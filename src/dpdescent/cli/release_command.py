"""The command ``dpdescent release``."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from ..errors import InvalidParameter, OutputNotWritable
from ..long_runs import require_outputs, write_whole
from .terminal import say

if TYPE_CHECKING:
    from ..estimators.saved_models import SavedModel
    from ..statement import PrivacyStatement
    from ..statement.release_documents import Release

FILES = (
    ("model.json", "the model: dpdescent.load and dpdescent predict read it"),
    ("statement.json", "the privacy statement: every charge, and what was assumed to be public"),
    ("explanation.html", "what the guarantee means, in words and pictures"),
    ("card.md", "the model card"),
    ("checklist.json", "the checklist, after NIST SP 800-226"),
    ("registry.json", "an entry for a registry of private releases"),
)
AUDIT_FILES = (("audit.json", "the audit"), ("audit.svg", "its picture"))
_NO_AUDIT = "no audit of this method was made for this release"


def release_command(
    model: Annotated[Path, typer.Argument(help="A model of `model.save` or `dpdescent fit`.")],
    output: Annotated[Path | None, typer.Option(metavar="FOLDER", help="A new folder, which may leave.")] = None,
    answers: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A JSON file with answers to what only people know.")
    ] = None,
    answer: Annotated[
        list[str] | None, typer.Option(metavar="NAME=TEXT", help="One such answer; may be repeated.")
    ] = None,
    draft: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the questions to a JSON file, to be filled in.")
    ] = None,
    audit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="An audit of the method: `dpdescent audit --json FILE`.")
    ] = None,
) -> None:
    """Write one folder with a model and all that must be said of it.

    The model, its statement, a page that explains it, a model card, a checklist, an entry for a registry, an audit if
    there is one, and a manifest of SHA-256 digests. What only people know is asked for by name, and nothing is
    written while a question is open. It costs no privacy.
    """
    from ..estimators.saved_models import SavedModel
    from ..statement import PrivacyStatement
    from ..statement.release_documents import questions_of, require_answers

    saved = SavedModel.load(model)
    statement = PrivacyStatement.from_dict(saved.privacy)
    if not statement.private:
        raise InvalidParameter("nothing is guaranteed about this model: the rows were answered without noise")
    if draft is not None:
        require_outputs([draft], [model, answers, audit])
        write_whole(draft, json.dumps(questions_of(statement), indent=1) + "\n")
        say(f"questions written to {draft}: put the answers in their places, and pass it as --answers")
        return
    if output is None:
        raise InvalidParameter("name a new folder by --output, or a file for the questions by --draft")
    given = require_answers(statement, _answers(answers, answer or [], questions_of(statement)))
    if output.exists():
        raise OutputNotWritable(f"{output} is there already: name a new folder")
    folder = _write(saved, model, statement, given, audit, output)
    say(f"release written to {folder}: open {folder / 'index.html'}")
    say(f"`dpdescent verify {folder}` checks it, and so does `sha256sum -c MANIFEST.sha256` in the folder")


def _answers(path: Path | None, typed: list[str], questions: dict[str, str]) -> dict[str, Any]:
    """Return the answers in a file, and those that were typed in their places."""
    found: dict[str, Any] = {}
    if path is not None:
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (ValueError, RecursionError):
            found = {"": None}
        if not isinstance(found, dict) or "" in found:
            raise InvalidParameter(f"{path} is no JSON object of names and answers: --draft FILE writes one")
        found = {name: None if text == questions.get(name) else text for name, text in found.items()}
    for each in typed:
        name, equals, text = each.partition("=")
        if not equals:
            raise InvalidParameter(f"--answer takes NAME=TEXT, got {each!r:.40}")
        found[name] = text
    return found


def _write(
    saved: SavedModel, model: Path, statement: PrivacyStatement, answers: dict[str, str], audit: Path | None, to: Path
) -> Path:
    """Write the folder, whole or not at all."""
    from ..statement import page_of
    from ..statement.release_documents import Release

    to.parent.mkdir(parents=True, exist_ok=True)
    passing = Path(tempfile.mkdtemp(prefix=".release-", dir=to.parent))
    try:
        shutil.copyfile(model, passing / "model.json")
        statement.save(passing / "statement.json")
        audited: tuple[str, ...] = (_NO_AUDIT,)
        picture = ""
        if audit is not None:
            audited, picture = _audit(audit, statement, passing)
        date = datetime.now(UTC).date().isoformat()
        release = Release(statement, answers, _facts(saved, statement), _verified(passing), audited, date)
        (passing / "explanation.html").write_text(page_of(statement, saved.effects()), encoding="utf-8")
        _documents(release, passing, picture)
        names = sorted(path.name for path in passing.iterdir())
        lines = [f"{hashlib.sha256((passing / name).read_bytes()).hexdigest()}  {name}" for name in names]
        (passing / "MANIFEST.sha256").write_text("\n".join(lines) + "\n", encoding="utf-8")
        passing.chmod(0o755)
        os.rename(passing, to)
    except BaseException:
        shutil.rmtree(passing, ignore_errors=True)
        raise
    return to


def _documents(release: Release, folder: Path, picture: str) -> None:
    """Write the card, the checklist, the entry and the page."""
    listed = [{"part": part, "item": item, "answer": text} for part, item, text in release.checklist()]
    (folder / "card.md").write_text(release.card(), encoding="utf-8")
    (folder / "checklist.json").write_text(_json({"after": "NIST SP 800-226", "items": listed}), encoding="utf-8")
    (folder / "registry.json").write_text(_json(release.registry_entry()), encoding="utf-8")
    manifest = ("MANIFEST.sha256", "SHA-256 digests of all these files")
    files = [*FILES, *(AUDIT_FILES if picture else ()), manifest]
    (folder / "index.html").write_text(release.page(files, picture), encoding="utf-8")


def _json(data: dict[str, Any]) -> str:
    return json.dumps(data, indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def _facts(saved: SavedModel, statement: PrivacyStatement) -> dict[str, str]:
    """Return what the model is."""
    classes = None if saved.classes is None else ", ".join(map(str, saved.classes))
    named = ", ".join(saved.features[:20]) + (
        f" and {len(saved.features) - 20} more" if len(saved.features) > 20 else ""
    )
    return {
        "model": f"{saved.estimator}, method {statement.method}",
        "predicts": "a number" if classes is None else f"one of the classes {classes}",
        "columns": named,
        "released": "; ".join(statement.released),
    }


def _verified(folder: Path) -> tuple[str, ...]:
    """Return what the independent check says of the statement, or that it could not be made."""
    from .. import verifier

    try:
        found = verifier.verify(folder / "statement.json")
    except ImportError:
        return ("not checked: dp-accounting was not installed where the release was made",)
    if found.code not in (verifier.CONFIRMED, verifier.UNCONFIRMED):
        raise InvalidParameter(f"the statement is refused by the independent check: {'; '.join(found.lines)}")
    return (verifier.WORDS[found.code], *found.lines)


def _audit(path: Path, statement: PrivacyStatement, folder: Path) -> tuple[tuple[str, ...], str]:
    """Copy an audit of the method and draw it; return what it found, and where the picture is."""
    from ..audit import Report, draw_report

    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        data["curve"] = tuple(map(tuple, data["curve"]))
        report = Report(**{name: value for name, value in data.items() if name != "refuted"})
        asked = (report.subject, report.claimed_epsilon, report.delta, report.relation)
        summary = (
            f"epsilon is at least {report.lower_bound:.4g} with confidence {report.confidence:.0%}, on worst-case "
            f"tables, from {report.runs} runs ({report.test})"
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        raise InvalidParameter(f"{path} is no audit: `dpdescent audit METHOD --json FILE` writes one") from None
    wanted = (statement.method, statement.epsilon, statement.delta, statement.relation)
    if asked != wanted:
        raise InvalidParameter(
            f"the audit is of {asked}, and the model of {wanted}: audit the method with the same epsilon, delta and "
            "relation"
        )
    if report.refuted:
        raise InvalidParameter("the audit has refuted the claim: the model must not be released")
    shutil.copyfile(path, folder / "audit.json")
    draw_report(report, folder / "audit.svg")
    return (summary,), '<p><a href="audit.svg">The error rates of the best test</a></p>'
