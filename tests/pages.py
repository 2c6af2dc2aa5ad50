"""Run the code of a Markdown page block by block, and compare what it prints with what the page shows.

A page is one program. ``python`` blocks share their names, ``sh`` blocks hold commands, a ``json`` block is written
to the file that the text before it names last, and a ``text`` block is what the block before it prints, up to the
digits of numbers, because noise changes them. A ``console`` block is a transcript, whose commands must exist. With
DPDESCENT_WRITE_PAGES=1 the ``text`` blocks are written anew.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from dpdescent import audit, datasets, load_dataset
from dpdescent.cli import app
from dpdescent.cli.commands import COMMANDS
from dpdescent.datasets import Dataset
from dpdescent.lab.fold_fits import Cell, Row
from dpdescent.lab.paper_figures import Figure, Scale
from dpdescent.lab.reproduction import FIGURES
from dpdescent.lab.second_order_paper import StationaryTable

ROOT = Path(__file__).parents[1]
TINY = Scale(epsilons=(0.4,), folds_used=1, seeds=1, rows=200)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its code, the text before it and where the code is on the page."""

    language: str
    code: str
    before: str
    start: int
    end: int


def read_blocks(page: str) -> list[Block]:
    found, last = [], 0
    for match in re.finditer(r"^```(\w+)\n(.*?)^```$", page, re.MULTILINE | re.DOTALL):
        found.append(Block(match[1], match[2], page[last : match.start()], match.start(2), match.end(2)))
        last = match.end()
    return found


def command_lines(code: str) -> Iterator[list[str]]:
    """Yield the words of every command of an ``sh`` block."""
    for line in code.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        if words:
            yield words


def recipe(target: str) -> list[list[str]]:
    """Return the commands that ``make`` runs for a target."""
    found = re.search(rf"^{target}:.*\n((?:\t.*\n)*)", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert found, f"the Makefile has no target {target}"
    return [shlex.split(line.replace("$(BIN)/", "").lstrip("@")) for line in found[1].splitlines()]


def run_in_process(words: list[str]) -> str:
    """Run ``dpdescent`` in this process, and return what it prints."""
    result = CliRunner().invoke(app, words, catch_exceptions=False)
    assert result.exit_code == 0, (words, result.output)
    return result.stdout


@dataclass
class Page:
    """A page that is run in the working folder."""

    path: Path
    dpdescent: Callable[[list[str]], str] = run_in_process
    names: dict[str, Any] = field(default_factory=lambda: {"__name__": "page"})
    commands: list[str] = field(default_factory=list)
    write: bool = os.environ.get("DPDESCENT_WRITE_PAGES") == "1"

    def run(self) -> None:
        text = self.path.read_text()
        pieces, last, printed = [], 0, ""
        for block in read_blocks(text):
            if block.language == "text":
                assert printed, f"{self.path.name}: nothing was printed before {block.code!r}"
                assert self.write or masked(block.code) == masked(printed), f"{self.path.name} prints\n{printed}"
                pieces += [text[last : block.start], printed]
                last = block.end
            else:
                printed = self._run(block)
        if self.write:
            self.path.write_text("".join([*pieces, text[last:]]))

    def _run(self, block: Block) -> str:
        if block.language == "python":
            with contextlib.redirect_stdout(io.StringIO()) as printed:
                exec(compile(block.code, str(self.path), "exec", dont_inherit=True), self.names)
            return printed.getvalue()
        if block.language == "json":
            Path(re.findall(r"`([\w.-]+\.json)`", block.before)[-1]).write_text(block.code)
            return ""
        if block.language == "console":  # what somebody saw, of files of their own
            typed = re.findall(r"^\$ dpdescent (\w+)", block.code, re.MULTILINE)
            assert typed, f"{self.path.name} shows a command that is none of ours"
            assert {*typed} <= {str(command.name) for command in COMMANDS}
            return ""
        assert block.language == "sh", f"{self.path.name}: nobody knows how to run {block.language}"
        return "".join(self._command(words) for words in command_lines(block.code))

    def _command(self, words: list[str]) -> str:
        program, *rest = words
        if program == "dpdescent":
            self.commands.append(rest[0])
            return self.dpdescent(rest)
        if program == "make":
            return "".join(self._command(line) for line in recipe(*rest) if line[0] == "dpdescent")
        if program == "head":
            count, name = rest
            return "".join(Path(name).read_text().splitlines(keepends=True)[: -int(count)])
        if program == "python":
            assert (ROOT / rest[0]).is_file(), f"{self.path.name} names {rest[0]}, which is not there"
            return ""
        if words == [".", ".venv/bin/activate"]:
            return ""
        assert words[:2] == ["pip", "install"], f"{self.path.name}: nobody knows how to run {words}"
        return ""


def masked(printed: str) -> list[str]:
    """Return the lines with every number, and the spaces that align it, replaced by one sign.

    Noise decides whether whole numbers are few enough to be levels as well.
    """
    steady = re.sub(r"(whole numbers), \d+ levels that cover \d+%", r"\1", printed)
    return [re.sub(r"\s*-?\d[\d,.]*(e[-+]?\d+)?", "#", line.rstrip()) for line in steady.strip().splitlines()]


def _measured_once(measure: Callable[[Cell], Row], cells: list[Cell], _jobs: int) -> Iterator[tuple[Cell, Row]]:
    """Fit each curve once at each epsilon, in this process, and let the other cells repeat what it measured."""
    fitted: dict[str, Row] = {}
    for cell in cells:
        key = f"{cell.curve} {cell.epsilon}"
        if key not in fitted:
            fitted[key] = measure(cell)
        yield cell, replace(fitted[key], dataset=cell.task.dataset, fold=cell.fold, seed=cell.seed)


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Dataset:
    """Put small tables in place of the public ones and of the reader's own, and shrink the figures."""
    data = load_dataset("synthetic", n=1000)
    monkeypatch.setattr(datasets, "obtain", lambda *_, **__: None)
    for name, entry in datasets._ENTRIES.items():
        here = replace(data, name=name)
        monkeypatch.setitem(datasets._ENTRIES, name, replace(entry, load=lambda _, here=here: here))
    monkeypatch.setattr("dpdescent.long_runs.in_processes", _measured_once)
    monkeypatch.setattr("dpdescent.lab.method_looks.general_methods", lambda: ["auto", "majority"])
    for name, figure in FIGURES.items():
        if isinstance(figure, Figure):
            monkeypatch.setitem(FIGURES, name, replace(figure, quick=TINY, methods=figure.methods[:2]))
        elif isinstance(figure, StationaryTable):
            fewer = {"methods": figure.methods[:2], "epsilons": figure.epsilons[:1], "quick_seeds": 1}
            monkeypatch.setitem(FIGURES, name, replace(figure, **fewer, quick_steps=2))
    write, audit_named = datasets.write_large_table, audit.audit_named

    def short_audit(name: str, **given: Any) -> Any:
        runs = 4 if given["attack"] == "canaries" else 40
        return audit_named(name, **given | {"runs": runs, "jobs": 1, "seed": 0})  # one audit in twenty may refute

    monkeypatch.setattr(datasets, "write_large_table", lambda folder, _rows, *rest: write(folder, 2000, *rest))
    monkeypatch.setattr(audit, "audit_named", short_audit)
    monkeypatch.chdir(tmp_path)
    table = data.table.rename(columns={"high_income": "income"})
    table.to_csv("people.csv", index=False)
    table.drop(columns="income").head(7).to_csv("new_people.csv", index=False)
    table.to_csv("june.csv", index=False)
    np.savez("table.npz", X=data.X, y=data.y)
    return data
