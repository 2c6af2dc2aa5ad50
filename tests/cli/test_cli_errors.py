"""Whatever goes wrong in a command, nothing that it prints shows a cell of a table."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpdescent import DPLogisticRegression, Ledger, load_dataset
from dpdescent.cli import app, main
from dpdescent.errors import InvalidParameter
from dpdescent.solvers import METHODS

MARKER = "alice@secret"
Shown = Callable[..., tuple[int, str, str]]


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder with a table of 300 rows in three formats, its schema and a ledger."""
    monkeypatch.chdir(tmp_path)
    data = load_dataset("synthetic", n=300)
    data.table.to_csv("people.csv", index=False)
    data.table.to_parquet("people.parquet", index=False)
    data.schema.dump("people.schema.json")
    np.savez("people.npz", X=data.X, y=data.y)
    Ledger(3.0, 1e-6, currency="gdp", path="budget.ledger")


@pytest.fixture
def shown(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Shown:
    """Return a function that runs a command line and returns its exit code and what it printed."""

    def run(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["dpdescent", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        printed = capsys.readouterr()
        return int(caught.value.code or 0), printed.out, printed.err

    return run


FIT = ("fit", "people.csv", "--schema", "people.schema.json", "--output", "m.json", "--ledger", "budget.ledger")
FIT_PARQUET = ("fit", "people.parquet", *FIT[2:])
FIT_ARRAYS = ("fit", "people.npz", "--bounds", "0,1", "--classes", "0,1", *FIT[4:])
PREDICT = ("predict", "m.json", "people.csv")


def with_marker(column: str) -> None:
    table = pd.read_csv("people.csv").astype(object)
    table.loc[9, column] = MARKER
    table.to_csv("people.csv", index=False)
    table[column] = table[column].astype(str)
    table.to_parquet("people.parquet", index=False)


def with_line(line: bytes) -> None:
    lines = Path("people.csv").read_bytes().splitlines(keepends=True)
    Path("people.csv").write_bytes(b"".join([*lines[:5], line, *lines[5:]]))


def with_arrays(**arrays: Any) -> None:
    with np.load("people.npz") as held:
        kept = dict(held)
    np.savez("people.npz", **(kept | arrays))


SPOILT = [
    (FIT, lambda: with_marker("age")),
    (FIT, lambda: with_marker("occupation")),
    (FIT, lambda: with_marker("high_income")),
    (FIT_PARQUET, lambda: with_marker("age")),
    (FIT_PARQUET, lambda: with_marker("occupation")),
    (FIT_PARQUET, lambda: with_marker("high_income")),
    (FIT, lambda: with_line(f"{MARKER},{MARKER}\n".encode())),
    (FIT, lambda: with_line(b",".join([MARKER.encode()] * 40) + b"\n")),
    (FIT, lambda: with_line(f'"{MARKER}\n'.encode())),
    (FIT, lambda: with_line(f"{MARKER}\xff\n".encode("latin-1"))),
    (FIT, lambda: with_line(MARKER.encode() + b"\0\n")),
    (FIT_PARQUET, lambda: Path("people.parquet").write_bytes(b"PAR1" + MARKER.encode() + b"PAR1")),
    (FIT_ARRAYS, lambda: with_arrays(X=np.full((300, 24), MARKER))),
    (FIT_ARRAYS, lambda: with_arrays(X=np.full((300, 24), MARKER, dtype=object))),
    (FIT_ARRAYS, lambda: with_arrays(y=np.full(300, MARKER))),
    (FIT_ARRAYS, lambda: with_arrays(y=np.full(300, MARKER, dtype=object))),
    (FIT_ARRAYS, lambda: Path("people.npz").write_bytes(b"PK\x03\x04" + MARKER.encode())),
]


@pytest.mark.parametrize(("command", "spoil"), SPOILT)
def test_a_spoilt_table_is_a_named_error_that_shows_no_cell(
    shown: Shown, command: tuple[str, ...], spoil: Callable[[], None]
) -> None:
    spoil()
    code, out, err = shown(*command)
    assert code == 1
    assert MARKER not in out + err
    assert re.match(r"[A-Z]\w+: ", err), err
    assert err.count("\n") == 1
    assert Ledger.open("budget.ledger").entries == ()
    assert not Path("m.json").exists()


def test_a_spoilt_table_for_predictions_shows_no_cell(shown: Shown) -> None:
    assert run_in_process(*FIT) == 0
    for column in ("age", "occupation"):
        with_marker(column)
        code, out, err = shown(*PREDICT)
        assert code == 1
        assert MARKER not in out + err
        assert re.match(r"[A-Z]\w+: ", err), err


def run_in_process(*arguments: str) -> int:
    return int(app(list(arguments), standalone_mode=False) or 0)


class Quoting(Exception):
    """An error with a cell in its message, its notes, its arguments, its cause and its name space."""

    def __init__(self) -> None:
        super().__init__(f"cannot use {MARKER}", MARKER)
        self.cell = MARKER
        self.add_note(f"the cell was {MARKER}")


def fail(*_: object, **__: object) -> None:
    cell = MARKER
    try:
        float(cell)
    except ValueError as problem:
        raise Quoting from problem


PLACES: list[tuple[tuple[str, ...], str]] = [
    (FIT, "dpdescent.cli.public_knowledge.load_dataset"),
    (FIT, "dpdescent.datasets.dataset.read_table"),
    (FIT, "dpdescent.tables.BoundedEncoder.transform"),
    (FIT, "dpdescent.tables.Schema.labels"),
    (FIT, "dpdescent.estimators.DPLogisticRegression.fit"),
    (FIT, "dpdescent.estimators.fitting.place"),
    (FIT, "dpdescent.estimators.fitting.Curator"),
    (FIT, "dpdescent.estimators.saved_models.SavedModel.save"),
    (FIT, "dpdescent.cli.fit_command.print_privacy"),
    (FIT_ARRAYS, "dpdescent.datasets.dataset.read_packed"),
    (PREDICT, "dpdescent.estimators.saved_models.SavedModel.load"),
    (("schema", "people.csv", "--label", "age"), "dpdescent.tables.draft_schema"),
    (("ledger", "budget.ledger"), "dpdescent.ledger.Ledger.open"),
    (("demo",), "dpdescent.cli.demo_command._demo_data"),
    (("datasets",), "dpdescent.datasets.list_datasets"),
]


@pytest.mark.parametrize("debug", [None, "", "0", "1"])
@pytest.mark.parametrize(("command", "place"), PLACES)
def test_an_unexpected_error_is_named_by_its_type_and_shows_no_cell(
    shown: Shown,
    monkeypatch: pytest.MonkeyPatch,
    command: tuple[str, ...],
    place: str,
    debug: str | None,
) -> None:
    monkeypatch.setattr(place, fail)
    monkeypatch.delenv("DPDESCENT_DEBUG", raising=False)
    if debug is not None:
        monkeypatch.setenv("DPDESCENT_DEBUG", debug)
    code, out, err = shown(*command)
    assert code == 1
    assert MARKER not in out + err
    last = err.splitlines()[-1]
    assert last.startswith(
        "dpdescent: unexpected error (Quoting). Please report it to the maintainers of dpdescent; "
    )
    if debug == "1":
        assert err.startswith("Traceback (most recent call last):\n")
        assert "raise Quoting from problem" in err
        assert err.index("\nValueError\n") < err.index("\nQuoting\n")
    else:
        assert err.count("\n") == 1
        assert last.endswith("DPDESCENT_DEBUG=1 shows a traceback")


def test_no_traceback_of_the_commands_shows_local_variables() -> None:
    """Also where the application is called without the entry point."""
    assert app.pretty_exceptions_show_locals is False


def test_a_named_error_keeps_its_message_in_every_mode(shown: Shown, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise InvalidParameter("the third column has no bounds: add them")

    monkeypatch.setattr("dpdescent.cli.public_knowledge.load_dataset", refuse)
    for debug in ("0", "1"):
        monkeypatch.setenv("DPDESCENT_DEBUG", debug)
        assert shown(*FIT) == (1, "", "InvalidParameter: the third column has no bounds: add them\n")


def interrupting(after: int) -> Callable[[float], None]:
    calls: Iterator[int] = iter(range(1, 10**6))

    def report(_: float) -> None:
        if next(calls) == after:
            raise KeyboardInterrupt

    return report


def test_an_interrupted_fit_says_what_was_charged_and_that_no_model_was_written(
    shown: Shown, monkeypatch: pytest.MonkeyPatch
) -> None:
    auto = METHODS["auto"]
    monkeypatch.setitem(
        METHODS,
        "auto",
        replace(auto, solver=lambda curator, settings, _: auto.solve(curator, settings, interrupting(3))),
    )
    code, out, err = shown(*FIT)
    assert (code, out) == (130, "")
    said = re.fullmatch(
        r"interrupted: no model was written; (\d+\.?\d*)% of the privacy budget of this fit had been charged\n", err
    )
    assert said, err
    account, own = Ledger.open("budget.ledger"), Ledger(1.0, 1e-6, currency="gdp")
    share = 100 * account.spent / own.budget
    assert share <= float(said[1]) < share + 0.1
    assert 1 < share < 99
    assert not Path("m.json").exists()


@pytest.mark.parametrize(
    ("place", "charged"),
    [
        ("dpdescent.cli.public_knowledge.load_dataset", "nothing was charged"),
        ("dpdescent.estimators.fitting.place", "nothing was charged"),
        ("dpdescent.estimators.saved_models.write_whole", "100% of the privacy budget of this fit had been charged"),
    ],
)
def test_an_interrupt_before_or_after_the_fit_says_what_was_charged(
    shown: Shown, monkeypatch: pytest.MonkeyPatch, place: str, charged: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(place, interrupt)
    assert shown(*FIT) == (130, "", f"interrupted: no model was written; {charged}\n")
    assert (Ledger.open("budget.ledger").spent == 0) == (charged == "nothing was charged")


def test_a_signal_from_the_keyboard_ends_a_fit_with_130() -> None:
    # A background job of a shell ignores the signal, and its children with it.
    heeded = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler)"
    program = f"{heeded}; from dpdescent.cli import main; main()"
    fit = ("fit", "synthetic", "--method", "privgene", "--set", "generations=2000", *FIT[4:])
    with subprocess.Popen([sys.executable, "-c", program, *fit], stderr=subprocess.PIPE, text=True) as process:
        try:
            patience = time.monotonic() + 120
            while not Ledger.open("budget.ledger").history and time.monotonic() < patience:
                assert process.poll() is None
                time.sleep(0.05)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert process.returncode == 130
    assert said.startswith("interrupted: no model was written; ")
    assert said.count("\n") == 1
    (line,) = Ledger.open("budget.ledger").history
    assert (line.state, line.entry.model) == ("settled", "m.json")
    assert sum(charge.price for charge in line.charges) < line.entry.price
    assert not Path("m.json").exists()


def test_what_an_interrupted_fit_had_charged_is_a_note_of_its_exception() -> None:
    data = load_dataset("synthetic", n=300)
    model = DPLogisticRegression(bounds=(0, 1), classes=(0, 1), progress=interrupting(2), random_state=0)
    with pytest.raises(KeyboardInterrupt) as caught:
        model.fit(data.X, data.y)
    assert re.fullmatch(r"[\d.]+% of the privacy budget .* charged", *caught.value.__notes__)
