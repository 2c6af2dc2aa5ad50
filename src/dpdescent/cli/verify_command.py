"""The command ``dpdescent verify``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..errors import MissingPackage
from ..long_runs import require_outputs
from .terminal import JsonFile, complain, say, write_json


def verify_command(
    path: Annotated[
        Path, typer.Argument(help="A model, a privacy statement, or a folder that `release` has written.")
    ],
    json_file: JsonFile = None,
) -> None:
    """Check a model, a statement or a release by accountants that are not ours.

    The mechanisms that a statement lists are computed anew by dp-accounting and by published bounds, from one file
    that imports nothing else of this library (dpdescent/verifier.py). Digests are compared. The exit code is 0 if the
    statement is confirmed, 1 if a file was changed or says what cannot be true, 3 if it is none of this library, 4
    if nothing is guaranteed, and 5 if published bounds are too weak to confirm it.
    """
    from .. import verifier

    require_outputs([json_file], [path])
    try:
        found = verifier.verify(path)
    except ImportError:
        raise MissingPackage("verify needs dp-accounting: pip install 'dpdescent[accounting]'") from None
    word = verifier.WORDS[found.code]
    if found.code in (verifier.CONFIRMED, verifier.NOT_PRIVATE, verifier.UNCONFIRMED):
        say(f"{word}: {path}")
        for line in found.lines:
            say(line)
    else:
        complain(word, "; ".join(found.lines))
    write_json(json_file, {"verdict": word, "lines": list(found.lines), "figures": dict(found.figures)})
    if found.code:
        raise typer.Exit(found.code)
