"""A page as a reader's browser shows it, if there is a Chromium on this machine."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)

needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine: apt-get install chromium")


def measured(page: str, facts: list[str], folder: Path) -> list[str]:
    """Return expressions of JavaScript as a browser evaluates them on a copy of the page, once it is loaded.

    The policy of the page stays in force for all but scripts, of which it permits none. A script that fails makes the
    first of them the error.
    """
    probe = (
        "<script>window.onerror = m => document.title = 'error ' + m;"
        f"window.onload = () => {{ document.title = ['seen', {', '.join(facts)}].join(' '); }};</script></head>"
    )
    copy = folder / "measured.html"
    permitted = page.replace("default-src 'none'", "default-src 'none'; script-src 'unsafe-inline'")
    copy.write_text(permitted.replace("</head>", probe))
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
    options += ["--disable-component-update", "--disable-sync", f"--user-data-dir={folder / 'profile'}"]
    result = subprocess.run(
        [str(CHROMIUM), *options, "--virtual-time-budget=5000", "--dump-dom", copy.as_uri()],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    title = re.search("<title>(.*?)</title>", result.stdout, re.DOTALL)
    assert title is not None
    first, *rest = title[1].split(" ")
    return rest if first == "seen" else [title[1]]
