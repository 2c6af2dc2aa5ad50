"""Text tables that are read block by block: the coefficients of the same file in memory, and the same refusals."""

from __future__ import annotations

import copy
import gzip
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from pyarrow import parquet
from typer.testing import CliRunner

from dpdescent import DPLogisticRegression, load_dataset
from dpdescent.cli import app
from dpdescent.errors import (
    ColumnTypeError,
    DatasetFormatError,
    DatasetNotAvailable,
    MissingColumn,
    MissingValue,
    UnknownLevel,
    UnsupportedSource,
)
from dpdescent.tables import (
    CategoricalColumn,
    DateColumn,
    FileFormat,
    HashedColumn,
    IgnoredColumn,
    Label,
    NumericColumn,
    Schema,
    Unit,
    is_long_text,
    open_parquet,
    stream_text,
)

ROWS = 300


def schema(**changes: Any) -> Schema:
    columns = (
        NumericColumn("age", 0, 90, missing="midpoint"),
        NumericColumn("pay", -5, 1000),
        DateColumn("hired", "1980-01-01", "2030-01-01"),
        CategoricalColumn("job", ("NA", "clerk"), unknown="other"),
        CategoricalColumn("size", (1, 2.5, "many")),
        HashedColumn("town", 4, missing="level"),
        IgnoredColumn("id"),
    )
    return Schema(columns, Label("won", (0, 1)), **{"rows": ROWS} | changes)


def table() -> pd.DataFrame:
    generator = np.random.default_rng(0)

    def some(*values: Any) -> Any:
        return generator.choice(np.array(values, dtype=object), ROWS)

    return pd.DataFrame(
        {
            "id": [f"a,{row}\nb" for row in range(ROWS)],
            "town": some("Oslo", "Bergen", ""),
            "age": some("31", " 44.5", "?", "", "7e1", "0.1"),
            "pay": generator.normal(300, 200, ROWS).round(3),
            "hired": some("1999-12-31", "2004-02-29T12:00:00"),
            "job": some("NA", "clerk", "nurse", "a;b"),
            "size": some("1", "1.0", "2.5", "many"),
            "won": some("0", "1"),
        }
    )


WRITTEN: dict[str, tuple[dict[str, Any], FileFormat]] = {
    "comma": ({}, FileFormat()),
    "semicolon": ({"sep": ";", "decimal": ","}, FileFormat(";", decimal=",")),
    "latin": ({"encoding": "latin-1"}, FileFormat(encoding="latin-1")),
    "sixteen bits": ({"encoding": "utf-16"}, FileFormat()),
    "packed": ({"compression": "gzip"}, FileFormat()),
}


@pytest.mark.parametrize("written", WRITTEN)
def test_blocks_of_text_are_coded_as_the_whole_file_is(written: str, tmp_path: Path) -> None:
    options, form = WRITTEN[written]
    frame = table()
    if form.decimal == ",":
        frame["age"] = frame["age"].str.replace(".", ",")
    path = tmp_path / ("t.csv.gz" if written == "packed" else "t.csv")
    frame.to_csv(path, index=False, **options)
    whole = load_dataset(str(path), schema=schema(file=form))
    streamed = stream_text(path, schema(file=form))
    assert streamed.shape == whole.X.shape
    assert streamed.feature_names == whole.feature_names
    np.testing.assert_equal(streamed.gathered(), (whole.X, whole.y))
    model = {"epsilon": 1.0, "classes": (0, 1), "bounds": (0, 1), "random_state": 0, "tighten": False}
    np.testing.assert_array_equal(
        DPLogisticRegression(**model).fit(streamed).coef_, DPLogisticRegression(**model).fit(whole.X, whole.y).coef_
    )


def test_only_some_rows_are_in_memory_and_the_file_has_no_name_and_is_gone_with_the_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpdescent.tables.text_tables._GROUP_ROWS", 100)
    monkeypatch.setattr("dpdescent.tables.text_tables._TEXT_BLOCK", 2000)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table().to_csv(tmp_path / "t.csv", index=False)
    opened = stream_text(tmp_path / "t.csv", schema())
    assert len(opened.lengths) >= 3
    assert max(opened.lengths) <= 100
    assert list(tmp_path.iterdir()) == [tmp_path / "t.csv"]
    with opened.parts[0].file.open() as file:
        descriptor = file.fileno()
        assert "id" not in parquet.read_schema(file).names
    status = os.fstat(descriptor)
    assert (status.st_dev, status.st_nlink, status.st_mode & 0o077) == (tmp_path.stat().st_dev, 0, 0)
    del opened, file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


KILLED = """
import sys, time
import pandas as pd
from dpdescent import DPLogisticRegression
from dpdescent.tables import CategoricalColumn, Label, NumericColumn, Schema
from dpdescent.tables import stream_text
from dpdescent.tables import text_tables as text

path, phase = sys.argv[1:]

def wait(*_):
    print("now", flush=True)
    time.sleep(60)

text._GROUP_ROWS, text._TEXT_BLOCK = 500, 4000
if phase == "conversion":
    every_batch = text._batches
    def batches(*arguments):
        for number, batch in enumerate(every_batch(*arguments)):
            if number == 150:  # more than is kept in memory before it is written
                wait()
            yield batch
    text._batches = batches
declared = Schema((NumericColumn("a", 0, 10), CategoricalColumn("c", ("u", "v"))), Label("y", (0, 1)))
table = stream_text(path, declared)
DPLogisticRegression(1.0, 1e-6, classes=(0, 1), bounds=(0, 1), progress=wait).fit(table)
"""


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="open files are listed in /proc")
@pytest.mark.parametrize(("phase", "how"), [("conversion", signal.SIGTERM), ("fit", signal.SIGKILL)])
def test_no_row_is_on_the_disk_after_a_kill(phase: str, how: signal.Signals, tmp_path: Path) -> None:
    folder = tmp_path / "temporary"
    folder.mkdir()
    numbers = np.random.default_rng(0).uniform(0, 10, 40_000)
    (tmp_path / "t.csv").write_text("a,y,c\n" + "".join(f"{a},{i % 2},u\n" for i, a in enumerate(numbers)))
    command = [sys.executable, "-c", KILLED, str(tmp_path / "t.csv"), phase]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"TMPDIR": str(folder)}) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == b"now\n"
            held = [Path(f"/proc/{process.pid}/fd") / name for name in os.listdir(f"/proc/{process.pid}/fd")]
            sizes = [file.stat().st_size for file in held if os.readlink(file).startswith(str(folder))]
            assert max(sizes) > 10_000  # so there were rows to be left behind
            process.send_signal(how)
            assert process.wait(30) == -how
        finally:
            process.kill()
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        (lambda lines: [*lines[:-1], "1,2,3"], DatasetFormatError, "has 3 cells and the first line has 8 names"),
        (lambda lines: [lines[0].replace("age", "years"), *lines[1:]], MissingColumn, "age"),
        (lambda lines: [*lines, "x,Oslo,1,secret,2000-01-01,NA,1,0"], ColumnTypeError, "'pay'.*not all"),
        (lambda lines: [*lines[:-1], "x,Oslo,1,2,2000-01-01,NA,1,7"], UnknownLevel, "'won'"),
        (lambda lines: [*lines[:-1], "x,Oslo,1,2,2000-01-01,NA,3,1"], UnknownLevel, "'size'"),
        (lambda lines: [*lines[:-1], "x,Oslo,1,,2000-01-01,NA,1,1"], MissingValue, "'pay'"),
        (lambda lines: [*lines[:-1], "x,Oslo,1,2,secret,NA,1,1"], ColumnTypeError, "'hired'.*not a date"),
        (lambda lines: lines[:-1], DatasetFormatError, "does not have the 300 rows"),
    ],
)
def test_what_is_wrong_is_named_without_a_cell(change: Any, error: Any, said: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    table().assign(id="x").to_csv(path, index=False)
    path.write_text("\n".join(change(path.read_text().splitlines())) + "\n")
    with pytest.raises(error, match=said) as found:
        stream_text(path, schema()).gathered()
    assert "secret" not in str(found.value)
    assert found.value.__context__ is None or "secret" not in str(found.value.__context__)


def test_damaged_and_absent_files_and_units_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.csv.gz"
    table().to_csv(path, index=False)
    path.write_bytes(path.read_bytes()[:-2000])
    with pytest.raises(DatasetFormatError, match=r"t\.csv\.gz"):
        stream_text(path, schema())
    with pytest.raises(DatasetNotAvailable, match="nowhere"):
        stream_text(tmp_path / "nowhere.csv", schema())
    with pytest.raises(UnsupportedSource, match="several rows"):
        stream_text(path, schema(unit=Unit("id", 2)))


def test_fit_and_predict_read_a_long_file_block_by_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "t.csv"
    table().to_csv(path, index=False)
    schema().dump(tmp_path / "s.json")
    assert not is_long_text(str(path))

    def run(*arguments: object) -> None:
        result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
        assert result.exit_code == 0, result.output

    for length in (2**28, 100):
        monkeypatch.setattr("dpdescent.tables.text_tables._LONG", length)
        model, output = tmp_path / f"{length}.json", tmp_path / f"{length}.csv"
        run("fit", path, "--schema", tmp_path / "s.json", "--output", model, "--seed", 1)
        run("predict", model, path, "--output", output)
    assert is_long_text(str(path))
    first, second = (pd.read_csv(tmp_path / f"{length}.csv") for length in (2**28, 100))
    pd.testing.assert_frame_equal(first, second)
    assert len(first) == ROWS


def test_a_packed_file_is_long_sooner(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdescent.tables.text_tables._LONG", 2000)
    for name, opened in (("t.csv", open), ("t.csv.gz", gzip.open)):
        with opened(tmp_path / name, "wb") as file:  # type: ignore[operator]
            file.write(np.random.default_rng(0).bytes(800))
    assert not is_long_text(str(tmp_path / "t.csv"))
    assert is_long_text(str(tmp_path / "t.csv.gz"))


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dpdescent.tables.text_tables._TEXT_BLOCK", 1000)


SHORT = Schema(
    (NumericColumn("a", 0, 10), CategoricalColumn("c", ("u", "l\r\nm"), unknown="other")), Label("y", (0, 1))
)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_a_line_end_inside_quotes_is_kept_wherever_a_block_ends(encoding: str, tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    tail = '2,1,"l\r\nm"\n'
    for fill in range(11, 18):  # at 14, the first block ends between the two characters
        text = "a,y,c\n" + "1,0,u\n" * 161 + f"1.{'0' * fill},0,u\n" + tail
        path.write_bytes(text.encode(encoding))
        X, y = stream_text(path, SHORT).gathered()
        np.testing.assert_array_equal(X[-1], [0.2, 0, 1, 0])
        assert len(y) == 163


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize(
    ("header", "row", "opened"),
    [("a,y,c", "1,0,u", '1,0,"u'), ("a,y,c", "1,0,u", '1,"0,u'), ("y,c,a", "0,u,1", '0,u,"1')],
)
def test_a_quotation_mark_that_is_never_closed_is_refused_as_in_memory(
    header: str, row: str, opened: str, tmp_path: Path
) -> None:
    path = tmp_path / "t.csv"
    path.write_text("\n".join([header, *[row] * 300, opened, *[row] * 50]))
    with pytest.raises(DatasetFormatError, match="never closed, near line 302") as streamed:
        stream_text(path, SHORT)
    with pytest.raises(DatasetFormatError) as whole:
        load_dataset(str(path), schema=SHORT)
    assert str(streamed.value) == str(whole.value)
    path.write_text("\n".join([header, *[row] * 300, opened, *[row] * 500]))
    with pytest.raises(DatasetFormatError, match=r"close a quotation mark|line 302 of"):
        stream_text(path, SHORT)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("form", ["damaged", "cut off", "wrong sum", "other encoding", "no rows", "other rows"])
def test_damaged_files_are_refused_in_the_words_of_the_reader_in_memory(form: str, tmp_path: Path) -> None:
    rows = "".join(f"{value:.9f},0,é\n" for value in np.random.default_rng(0).uniform(0, 10, 3000))
    text = "a,y,c\n" + {"no rows": ""}.get(form, rows)
    packed = gzip.compress(text.encode())
    middle = len(packed) // 2
    content = {
        "damaged": packed[:middle] + bytes(range(200)) + packed[middle + 200 :],
        "cut off": packed[:middle],
        "wrong sum": packed[:-8] + bytes(8),
        "other encoding": text.encode("latin-1"),
    }
    path = tmp_path / "t.csv"
    path.write_bytes(content.get(form, text.encode()))
    declared = Schema(SHORT.columns, SHORT.label, rows=7)
    with pytest.raises(DatasetFormatError, match=r"'t\.csv'") as whole:
        load_dataset(str(path), schema=declared)
    with pytest.raises(DatasetFormatError) as streamed:
        stream_text(path, declared)
    assert str(streamed.value) == str(whole.value)


def test_the_file_lasts_as_long_as_a_copy(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y,c\n1,0,u\n")
    opened = stream_text(tmp_path / "t.csv", SHORT)
    with opened.parts[0].file.open() as file:
        descriptor = file.fileno()
    copies = [copy.copy(opened), copy.deepcopy(opened), pickle.loads(pickle.dumps(opened))]
    del opened, file
    while copies:
        assert len(copies[-1].gathered()[1]) == 1
        copies.pop()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_reads_the_file_and_any_other_is_told_that_it_cannot(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("a,y,c\n1,0,u\n")
    opened = stream_text(tmp_path / "t.csv", SHORT)
    with multiprocessing.get_context("fork").Pool(1) as pool:
        assert len(pool.apply(opened.gathered)[1]) == 1
    content = pickle.dumps(opened)
    del opened
    with pytest.raises(UnsupportedSource, match=r"'t\.csv'.*open_parquet"):
        pickle.loads(content).gathered()


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_predictions_are_written_whole_or_not_at_all(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpdescent.tables.text_tables._LONG", 0)
    monkeypatch.setattr("dpdescent.tables.text_tables._GROUP_ROWS", 50)
    monkeypatch.setattr("dpdescent.tables.text_tables._TEXT_BLOCK", 400)
    declared = Schema((NumericColumn("a", 0, 10), CategoricalColumn("c", ("u", "v"))), Label("y", (0, 1)))
    declared.dump(tmp_path / "s.json")
    data, model, output = tmp_path / "t.csv", tmp_path / "m.json", tmp_path / "out" / f"p.{suffix}"
    data.write_text("a,y,c\n" + "1,0,u\n2,1,v\n" * 100)

    def run(*arguments: object) -> int:
        return CliRunner().invoke(app, [str(argument) for argument in arguments]).exit_code

    assert run("fit", data, "--schema", tmp_path / "s.json", "--output", model, "--seed", 1) == 0
    assert run("predict", model, data, "--output", output) == 0
    before = output.read_bytes()
    data.write_text(data.read_text() + "1,0,w\n")
    assert run("predict", model, data, "--output", output) == 1
    assert output.read_bytes() == before
    assert list(output.parent.iterdir()) == [output]


@pytest.mark.parametrize("role", ["category", "date", "label"])
@pytest.mark.parametrize("kind", ["text", "streamed text", "Parquet", "streamed Parquet", "folders"])
def test_a_column_may_be_called_self(tmp_path: Path, kind: str, role: str) -> None:
    def rows(**names: str) -> tuple[Any, Any]:
        folder = tmp_path / "_".join(names.values())
        category, date, label = (names.get(name, name) for name in ("category", "date", "label"))
        columns = (CategoricalColumn(category, ("a", "b")), DateColumn(date, "2020-01-01", "2021-01-01"))
        public = Schema(columns, Label(label, ("x", "y")))
        frame = pd.DataFrame({category: ["a", "b", "b"], date: ["2020-01-01", "2020-12-31", "2020-07-01"]})
        frame[label] = "y" if kind == "folders" else ["x", "y", "x"]
        inner = folder / f"{label}=y" if kind == "folders" else folder
        inner.mkdir(parents=True)
        path = inner / ("table.csv" if "text" in kind else "table.parquet")
        if "text" in kind:
            frame.to_csv(path, index=False)
        else:
            frame.drop(columns=[label] if kind == "folders" else []).to_parquet(path)
        if kind in ("text", "Parquet"):
            data = load_dataset(path, schema=public)
            return data.X, data.y
        table = stream_text(path, public) if "text" in kind else open_parquet(folder, public)
        return table.gathered()

    for plain, named in zip(rows(category="kind"), rows(**{role: "self"}), strict=True):
        np.testing.assert_array_equal(plain, named)
