"""Where the manual of each version stands, and what leads from one to another.

A site is a folder with one manual per folder: `dev` for the one of a checkout whose changelog begins with what is not
yet released, and otherwise one named by the version. `stable` leads, page by page, to the highest version there is,
and the front page to `stable`, or to `dev` where nothing was released. `versions.js` lists all of them with their
pages; it is a script and no data, so that the list of versions works from a disk as well as from any server::

    python docs/versions.py folder                      # how the manual of this checkout is called
    python docs/versions.py publish docs/_build/html    # after a manual was built there, or an older one added
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from pathlib import Path

DEV, STABLE, LIST = "dev", "stable", "versions.js"
_LEADING = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>dpdescent</title>
<link rel="canonical" href="{target}"><meta http-equiv="refresh" content="1; url={target}">
<script>location.replace("{target}" + location.hash);</script>
</head><body><a href="{target}">{target}</a></body></html>
"""


def folder_of(changelog: str) -> str:
    """Return the folder of the manual that belongs to a changelog: its first heading says whether it is released."""
    found = re.search(r"^## (\S+) \((.+)\)$", changelog, re.MULTILINE)
    if found is None:
        raise ValueError("the changelog has no heading like '## 1.2.0 (2026-01-31)'")
    return DEV if found[2] == "unreleased" else found[1]


def in_order(names: list[str]) -> list[str]:
    """Return what is listed: `dev`, and then all versions, the highest one first."""
    numbers = {name: tuple(map(int, name.split("."))) for name in names if re.fullmatch(r"\d+(\.\d+)*", name)}
    return [DEV] * (DEV in names) + sorted(numbers, key=lambda name: numbers[name], reverse=True)


def publish(site: Path) -> None:
    """Write the list of versions of a site, its front page, and the pages of `stable`."""
    names = in_order([path.name for path in site.iterdir() if (path / "index.html").is_file()])
    if not names:
        raise FileNotFoundError(f"{site} has no manual")
    pages = {name: sorted(path.relative_to(site / name).as_posix() for path in _pages(site / name)) for name in names}
    released = [name for name in names if name != DEV]
    shutil.rmtree(site / STABLE, ignore_errors=True)
    for page in pages[released[0]] if released else ():
        path = site / STABLE / page
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_LEADING.format(target=f"{'../' * (page.count('/') + 1)}{released[0]}/{page}"))
    (site / "index.html").write_text(_LEADING.format(target=f"{STABLE if released else DEV}/index.html"))
    listed = {"stable": released[0] if released else None, "pages": pages}
    (site / LIST).write_text(f"window.dpdescentVersions = {json.dumps(listed)};\n")


def _pages(manual: Path) -> list[Path]:
    return [path for path in manual.rglob("*.html") if "_static" not in path.relative_to(manual).parts]


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["folder"]:
            print(folder_of((Path(__file__).parents[1] / "CHANGELOG.md").read_text(encoding="utf-8")))
        case ["publish", where]:
            publish(Path(where))
        case _:
            sys.exit(__doc__)
