"""The manuals of all versions stand side by side: where `stable` and `dev` point, and that the list leads there."""

from __future__ import annotations

import importlib.util
import json
import shutil
import subprocess
from pathlib import Path

import pytest

import dpdescent
from browser import CHROMIUM, needs_browser
from pages import ROOT

_FOUND = importlib.util.spec_from_file_location("versions", ROOT / "docs" / "versions.py")
assert _FOUND is not None
assert _FOUND.loader is not None
versions = importlib.util.module_from_spec(_FOUND)
_FOUND.loader.exec_module(versions)


def manual(site: Path, name: str, *pages: str) -> None:
    for page in ("index.html", *pages):
        (site / name / page).parent.mkdir(parents=True, exist_ok=True)
        (site / name / page).write_text(f"<title>{name} {page}</title>")


def listed(site: Path) -> dict[str, object]:
    text = (site / "versions.js").read_text()
    found: dict[str, object] = json.loads(text.removeprefix("window.dpdescentVersions = ").removesuffix(";\n"))
    return found


def test_a_manual_is_named_by_the_first_heading_of_the_changelog() -> None:
    assert versions.folder_of("# Changelog\n\n## 0.3.0 (unreleased)\n\n## 0.2.0 (2026-11-19)\n") == "dev"
    assert versions.folder_of("# Changelog\n\n## 0.2.0 (2026-11-19)\n\n## 0.1.0 (2026-08-01)\n") == "0.2.0"
    with pytest.raises(ValueError, match="no heading"):
        versions.folder_of("# Changelog\n")
    assert versions.folder_of((ROOT / "CHANGELOG.md").read_text()) in ("dev", dpdescent.__version__)


def test_stable_is_the_highest_version_and_never_the_one_in_development(tmp_path: Path) -> None:
    for name in ("0.9.0", "0.10.0", "dev", "0.2.0"):
        manual(tmp_path, name, "tutorial.html", "api/fit.html")
    (tmp_path / "drafts").mkdir()
    versions.publish(tmp_path)
    assert list(listed(tmp_path)["pages"]) == ["dev", "0.10.0", "0.9.0", "0.2.0"]  # type: ignore[call-overload]
    assert listed(tmp_path)["stable"] == "0.10.0"
    assert 'location.replace("stable/index.html"' in (tmp_path / "index.html").read_text()
    for page in ("index.html", "tutorial.html"):
        assert f'"../0.10.0/{page}"' in (tmp_path / "stable" / page).read_text()
    assert '"../../0.10.0/api/fit.html"' in (tmp_path / "stable" / "api" / "fit.html").read_text()


def test_without_a_release_the_front_page_leads_to_dev_and_nothing_is_stable(tmp_path: Path) -> None:
    manual(tmp_path, "dev")
    versions.publish(tmp_path)
    assert listed(tmp_path)["stable"] is None
    assert not (tmp_path / "stable").exists()
    assert 'location.replace("dev/index.html"' in (tmp_path / "index.html").read_text()
    shutil.rmtree(tmp_path / "dev")
    with pytest.raises(FileNotFoundError, match="no manual"):
        versions.publish(tmp_path)


def test_stable_follows_a_new_version_and_drops_pages_that_it_lacks(tmp_path: Path) -> None:
    manual(tmp_path, "0.2.0", "old.html")
    versions.publish(tmp_path)
    manual(tmp_path, "0.3.0")
    versions.publish(tmp_path)
    assert not (tmp_path / "stable" / "old.html").exists()
    assert "0.3.0" in (tmp_path / "stable" / "index.html").read_text()


@needs_browser
def test_the_list_works_from_a_disk(tmp_path: Path) -> None:
    """The page of another version is opened, or its first one where there is no such page."""
    manual(tmp_path / "site", "0.2.0", "a.html")
    versions.publish(tmp_path / "site")
    template = (ROOT / "docs" / "_templates" / "version-choice.html").read_text().partition("#}")[2]
    script = (ROOT / "docs" / "_static" / "version-choice.js").read_text()
    for page, there in (("a.html", "a.html"), ("b.html", "index.html")):
        filled = template.replace("{{ content_root }}", "./").replace("{{ manual_folder }}", "dev")
        filled = filled.replace("{{ pagename }}.html", page)
        choose = "const c = document.querySelector('select'); document.body.dataset.names = c.innerText;"
        go = f"{choose} c.value = '0.2.0'; c.dispatchEvent(new Event('change'));"
        (tmp_path / "site" / "dev").mkdir(exist_ok=True)
        path = tmp_path / "site" / "dev" / page
        path.write_text(f"<body>{filled}<script>{script}addEventListener('load', () => {{ {go} }});</script>")
        manual(tmp_path / "site", "dev")
        versions.publish(tmp_path / "site")
        options = ["--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
        options += ["--no-first-run", "--disable-background-networking", "--disable-component-update"]
        shown = subprocess.run(
            [str(CHROMIUM), *options, "--virtual-time-budget=5000", "--dump-dom", path.as_uri()],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        ).stdout
        assert f"<title>0.2.0 {there}</title>" in shown
