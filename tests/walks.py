"""The README and the tutorial, command by command: run by `test_readme.py` with an installed dpdescent."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import dpdescent
from dpdescent import Ledger
from pages import ROOT, Page, small

__all__ = ["small"]


def test_the_package_is_the_installed_one() -> None:
    assert Path(dpdescent.__file__).is_relative_to(os.environ["DPDESCENT_INSTALLED"])


@pytest.mark.usefixtures("small")
def test_every_command_of_the_readme_runs_as_it_is_written() -> None:
    for path in Path().iterdir():
        path.unlink()  # the README makes its own files
    page = Page(ROOT / "README.md")
    page.run()
    used = {
        "datasets",
        "demo",
        "describe",
        "schema",
        "fit",
        "explain",
        "predict",
        "evaluate",
        "ledger",
        "compare",
        "reproduce",
    }
    assert set(page.commands) == used
    written = {str(path) for path in Path().rglob("*")}
    expected = {"income.json", "income.html", "table.json", "out.json", "out.html", "out/demo.png", "worth.html"}
    assert expected | {"out/000-table1.html"} <= written
    account = Ledger.open("budget.ledger")
    assert 0 < account.spent < account.budget


def test_every_command_of_the_tutorial_runs_as_it_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Page(ROOT / "docs" / "tutorial.md").run()
    assert {"income.json", "svm.json", "predictions.csv"} <= {path.name for path in tmp_path.iterdir()}
