"""A few examples of everything that `make fuzz` draws for as long as one likes; the same ones every time."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings, strategies as st

import fuzzing
from dpdescent.errors import DPDescentError
from dpdescent.ledger.history import parse_json
from dpdescent.ledger.sqlite_store import SQLiteStore

EXAMPLES = 8


def drawn(name: str, examples: int = EXAMPLES) -> None:
    """Try a property on a few examples, always the same."""
    quick = settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    quick(given(data=st.data())(fuzzing.PROPERTIES[name]))()


@pytest.mark.parametrize("name", fuzzing.PROPERTIES)
def test_whatever_is_read_or_typed_ends_in_an_answer_or_in_one_named_line(name: str) -> None:
    drawn(name)


def test_a_message_that_shows_a_cell_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DPDescentError, "__str__", lambda _: f"cannot read {fuzzing.WORD}", raising=False)
    with pytest.raises(AssertionError, match="alice"):
        drawn("text_cells", 10)


def test_an_error_without_a_name_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("dpdescent.cli.public_knowledge.Schema.load", fail)
    with pytest.raises(AssertionError, match="unexpected error"):
        drawn("schema_files", 3)


def test_charges_that_are_lost_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A ledger that compares no digests takes what is left of an edited file for all of it."""

    def read(store: Any, after: Any, rows: Any, replay: Any) -> None:
        replay([(number, parse_json(text, "")) for number, text, _ in rows if number >= after[0]])
        if rows:
            store._count, store._digest = rows[-1][0] + 1, rows[-1][2]

    monkeypatch.setattr(SQLiteStore, "_read", read)
    monkeypatch.setattr(SQLiteStore, "_take", lambda store, news, replay: store._read(news.after, news.rows, replay))
    with pytest.raises(AssertionError, match="charges are lost"):
        drawn("ledger_tables", 30)


def test_the_command_fuzzes_for_the_time_that_it_is_given(tmp_path: Path) -> None:
    program = Path(fuzzing.__file__).with_name("fuzz.py")
    command = [sys.executable, str(program), "--seconds", "1", "--only", "schema_files", "--json", "found.json"]
    done = subprocess.run(
        [*command, "--engine", "hypothesis"], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())
    assert found["failures"] == {}
    assert found["examples"]["schema_files"] > 0
