"""What is published: the wheel, the recipe, the workflow and the citation say the same as pyproject.toml."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest

import dpdescent
from pages import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
VERSION = dpdescent.__version__
BUILD = """
import sys
from hatchling.build import build_sdist, build_wheel
print(build_wheel(sys.argv[1]), build_sdist(sys.argv[1]))
"""


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run = [sys.executable, "-c", BUILD, str(folder)]
    subprocess.run(run, cwd=ROOT, env=environment, check=True, capture_output=True)
    return folder


def test_the_wheel_has_the_package_and_nothing_else(built: Path) -> None:
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names} == {"dpdescent", f"dpdescent-{VERSION}.dist-info"}
    assert not [name for name in names if "__pycache__" in name or name.endswith((".pyc", ".npz", ".csv"))]
    sources = {
        f"dpdescent/{path.relative_to(ROOT / 'src' / 'dpdescent').as_posix()}"
        for path in (ROOT / "src" / "dpdescent").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert sources <= set(names), "schemas and the mark of types among them"


def test_the_source_has_what_tests_and_pages_need(built: Path) -> None:
    (source,) = built.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        tops = {name.split("/")[1] for name in archive.getnames()}
    assert {"src", "tests", "docs", "pyproject.toml", "README.md", "LICENSE", "PKG-INFO"} <= tops
    assert not {".ci", ".github"} & tops


def test_the_version_is_written_where_the_build_reads_it() -> None:
    """In `dpdescent/__init__.py`; the recipe and the citation repeat it, and pyproject.toml does not."""
    assert "version" in PROJECT["dynamic"]
    assert "version" not in PROJECT
    text = (ROOT / "src" / "dpdescent" / "__init__.py").read_text()
    assert text.count(f'\n__version__ = "{VERSION}"\n') == 1, "the workflow looks for this line"
    headings = re.findall(r"^## (\S+) \((.+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    names = [name for name, date in headings if date != "unreleased"]
    assert not names or names[0] == VERSION, "the highest released section is that of the package"


def test_every_python_that_is_named_is_allowed() -> None:
    named = [each.rpartition(" ")[2] for each in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", each)]
    least = int(PROJECT["requires-python"].removeprefix(">=3."))
    assert named == [f"3.{minor}" for minor in range(least, least + len(named))]


def test_the_recipe_needs_what_the_package_needs() -> None:
    recipe = (ROOT / "conda" / "meta.yaml").read_text()
    assert f'version = "{VERSION}"' in recipe
    needed = re.search(r"  run:\n((?:    - .*\n)+)", recipe)
    assert needed is not None
    listed = {line.removeprefix("    - ").replace(" ", "") for line in needed[1].splitlines()}
    assert listed == {*PROJECT["dependencies"], f"python{PROJECT['requires-python']}"}
    ((name, place),) = PROJECT["scripts"].items()
    assert f"- {name} = {place}" in recipe
    assert PROJECT["license"] in recipe


def test_the_workflow_publishes_without_a_secret() -> None:
    workflow = (ROOT / ".github" / "workflows" / "publish.yml").read_text()
    assert "secrets." not in workflow
    assert "password" not in workflow
    build, publish = workflow.split("\n  publish:\n")
    assert "id-token: write" in publish
    assert "id-token" not in build
    assert "pypa/gh-action-pypi-publish" in publish
    assert "needs: build" in publish
    assert "run:" not in publish, "the job that may publish runs no code of its own"
    for target in re.findall(r"run: make (\w+)", build):
        assert re.search(rf"^{target}:", (ROOT / "Makefile").read_text(), re.MULTILINE)


def test_the_citation_says_what_the_package_says() -> None:
    citation = (ROOT / "CITATION.cff").read_text()
    for field in ("cff-version: 1.2.0", "message: ", "title: ", "authors:", "type: software"):
        assert f"\n{field}" in f"\n{citation}"
    assert f"\nlicense: {PROJECT['license']}\n" in citation
    assert f"\nversion: {VERSION}\n" in citation
    released = re.search(
        rf"^## {re.escape(VERSION)} \((\d+-\d+-\d+)\)$", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE
    )
    assert released is not None
    assert f"\ndate-released: {released[1]}\n" in citation
    assert all(f"name: {author['name']}" in citation for author in PROJECT["authors"])
    keywords = set(re.findall(r"^  - ([a-z ]+)$", citation.partition("references:")[0], re.MULTILINE))
    assert keywords == set(PROJECT["keywords"])
