"""The commands of the README do what it says: as they are written, in order, on small tables in an empty folder."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from dpdescent import Ledger, Schema, load_dataset
from dpdescent.cli import app
from dpdescent.datasets import Dataset, registry
from dpdescent.experiments import runner
from dpdescent.experiments.figure import Figure, Scale
from dpdescent.experiments.figures import FIGURES
from dpdescent.experiments.stationary import StationaryTable

ROOT = Path(__file__).parents[1]
TINY = Scale(epsilons=(0.4,), folds_used=1, seeds=1, rows=200)


def blocks(language: str) -> list[str]:
    found = re.findall(rf"^```{language}\n(.*?)^```", (ROOT / "README.md").read_text(), re.MULTILINE | re.DOTALL)
    assert found
    return found


def commands() -> Iterator[list[str]]:
    """Yield the words of every command; ``make`` stands for the commands of its recipe."""
    for line in "".join(blocks("sh")).replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words and words[0] == "make":
            yield from recipe(*words[1:])
        elif words:
            yield words


def recipe(target: str) -> Iterator[list[str]]:
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, f"there is no target {target}"
    yield from (shlex.split(line.replace("$(BIN)/", "")) for line in found[1].splitlines())


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dataset:
    """Put small tables in place of the public ones and of the reader's own, and shrink the figures."""
    data = load_dataset("synthetic", n=1000)
    monkeypatch.setattr(registry, "obtain", lambda *_, **__: None)
    for name, entry in registry._ENTRIES.items():
        here = replace(data, name=name)
        monkeypatch.setitem(registry._ENTRIES, name, replace(entry, load=lambda _, here=here: here))
    monkeypatch.setattr(runner, "in_processes", lambda work, cells, _: ((cell, work(cell)) for cell in cells))
    monkeypatch.setattr("dpdescent.experiments.commands.general_methods", lambda: ["auto", "majority"])
    for name, figure in FIGURES.items():
        if isinstance(figure, Figure):
            monkeypatch.setitem(FIGURES, name, replace(figure, quick=TINY, methods=figure.methods[:2]))
        elif isinstance(figure, StationaryTable):
            fewer = {"methods": figure.methods[:2], "epsilons": figure.epsilons[:1], "quick_rows": 300}
            monkeypatch.setitem(FIGURES, name, replace(figure, **fewer, quick_steps=2))
    monkeypatch.chdir(tmp_path)
    table = data.table.rename(columns={"high_income": "income"})
    table.to_csv("people.csv", index=False)
    table.drop(columns="income").head(7).to_csv("new_people.csv", index=False)
    np.savez("table.npz", X=data.X, y=data.y)
    return data


def fill_in(data: Dataset) -> None:
    """Do what the README leaves to the reader once a draft is there."""
    assert isinstance(data.schema, Schema)
    replace(data.schema, label=replace(data.schema.label, column="income")).dump("people.schema.json")


def test_every_command_of_the_readme_runs_as_it_is_written(small: Dataset) -> None:
    ran: list[str] = []
    for words in commands():
        assert words[0] == "dpdescent", f"nobody knows how to run {words}"
        result = CliRunner().invoke(app, words[1:], catch_exceptions=False)
        assert result.exit_code == 0, (words, result.output)
        ran.append(words[1])
        if words[1] == "schema":
            fill_in(small)
    assert set(ran) == {"demo", "schema", "fit", "predict", "explain", "ledger", "compare", "reproduce"}
    written = {str(path) for path in Path().rglob("*")}
    assert {"income.json", "table.json", "out.json", "out.html", "out/demo.png", "out/000-table1.html"} <= written
    account = Ledger.open("budget.ledger")
    assert 0 < account.spent < account.budget


def test_every_target_of_the_readme_is_in_the_makefile() -> None:
    targets = re.findall(r"^make (\w+)", "".join(blocks("sh")), re.MULTILINE)
    assert targets == ["demo", "test"]
    assert [list(recipe(target)) for target in targets] == [[["dpdescent", "demo"]], []]


def test_the_python_of_the_readme_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for block in blocks("python"):
        exec(block, {})
    assert float(capsys.readouterr().out.split()[0]) > 0.7
