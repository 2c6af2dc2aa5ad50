"""Files that are refused unless they are whole: a format, a version and a digest around plain data.

The digest finds files that were cut off, damaged or edited by hand. It is no signature: whoever edits a file on
purpose can compute it anew, which is why the numbers inside are checked against each other as well.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import DPDescentError

__all__ = ["FileKind"]

_PICKLES = (b"\x80", b"PK\x03\x04", b"\x1f\x8b")  # a pickle, and the archives in which pickles are kept


@dataclass(frozen=True)
class FileKind:
    """One kind of JSON file.

    Parameters
    ----------
    format, version
        What every such file says about itself.
    noun : str
        What people call it.
    error : type
        The error that refuses a file.
    """

    format: str
    version: int
    noun: str
    error: type[DPDescentError]

    def sealed(self, content: Mapping[str, Any]) -> str:
        """Return the text of a file with that content; a number in it must be finite."""
        data = {"format": self.format, "version": self.version} | dict(content)
        return json.dumps(data | {"digest": _digest(data)}, indent=1, allow_nan=False) + "\n"

    def read(self, path: Path) -> dict[str, Any]:
        """Return the content of a file, or raise the error of this kind."""
        try:
            text = path.read_bytes()
        except FileNotFoundError:
            raise self.error(f"there is no {self.noun} at {path}: correct the path") from None
        except OSError as problem:
            raise self.error(f"cannot read {path}: {problem.strerror}") from None
        return self.opened(text, str(path))

    def opened(self, text: bytes | str, where: str) -> dict[str, Any]:
        """Return the content of a text, without what `sealed` has added."""
        raw = text.encode() if isinstance(text, str) else text
        if raw.startswith(_PICKLES):
            raise self.error(
                f"{where} is a pickle or an archive, which could run code when it is loaded: nothing was loaded; "
                f"a {self.noun} is a JSON file"
            )
        data = self._parsed(raw, where)
        if not isinstance(data, dict) or data.get("format") != self.format:
            raise self.error(f"{where} is not a dpdescent {self.noun}")
        version = data.get("version")
        if version != self.version or isinstance(version, bool):
            newer = isinstance(version, int) and version > self.version
            raise self.error(
                f"{where} is a {self.noun} of version {version!r:.20} and this release reads version {self.version}: "
                f"{'update dpdescent' if newer else 'use the release that wrote it'}"
            )
        if data.pop("digest", None) != _digest(data):
            raise self.error(
                f"{where} was changed after it was written, or is damaged: its digest does not fit; get the original"
            )
        return {name: value for name, value in data.items() if name not in ("format", "version")}

    def _parsed(self, raw: bytes, where: str) -> Any:
        try:
            return json.loads(raw.decode(), object_pairs_hook=_without_repeats, parse_constant=_refused_constant)
        except RecursionError:
            raise self.error(f"{where} is not a dpdescent {self.noun}: it is nested too deeply") from None
        except ValueError:
            raise self.error(f"{where} is not a whole JSON file: it was cut off, or it is no {self.noun}") from None


def _digest(data: Mapping[str, Any]) -> str:
    canonical = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(canonical.encode()).hexdigest()}"


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ValueError("a name is given twice")
    return found


def _refused_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON")
