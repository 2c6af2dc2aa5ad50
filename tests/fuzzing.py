"""What is fuzzed: every file that the package reads and every argument of its commands, each as one property.

Whatever a property draws, the commands must end with 0, or with one line that names an error of `dpdescent.errors`
and the code 1, or 2 for wrong usage. A refusal charges nothing, an answer is charged for, and no output shows a cell:
the tables hold words and a number that occur nowhere else. Ledgers that were changed from outside never count less.

`tests/docs/test_fuzz.py` runs every property on a few examples, `make fuzz` for as long as one likes.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import math
import shutil
import signal
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from functools import lru_cache
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as arrow
import typer
from hypothesis import strategies as st
from pyarrow import parquet

import dpdescent.errors
from dpdescent import Ledger
from dpdescent.accounting import Gaussian
from dpdescent.cli import app, main
from dpdescent.errors import DPDescentError
from dpdescent.estimators.saved_models import FILE as MODEL_FILE
from dpdescent.ledger import import_lines, sqlite_store
from dpdescent.statement import PrivacyStatement
from dpdescent.statement.privacy_statement import FILE as STATEMENT_FILE

WORD, NUMBER = "alice@secret", "44.7318926"  # cells: no output may show them
SECRETS = (WORD, NUMBER)
LONGEST = 60  # seconds that one command may take
KNOWN = {name for name, kind in vars(dpdescent.errors).items() if isinstance(kind, type)} | {"UsageError"}
WARNINGS = tuple(f"{name}: " for name in KNOWN if name.endswith("Warning"))

SCHEMA: dict[str, Any] = {
    "columns": {
        "id": {"type": "ignore"},
        "age": {"type": "numeric", "low": 0, "high": 100},
        "pay": {"type": "numeric"},
        "job": {"type": "categorical", "levels": ["clerk", "nurse"]},
        "town": {"type": "hashed", "buckets": 8},
        "hired": {"type": "date", "low": "2000-01-01", "high": "2030-01-01"},
    },
    "label": {"column": "left", "classes": ["no", "yes"]},
}
HEADER = ("id", "age", "pay", "job", "town", "hired", "left")
ROW = (WORD, NUMBER, NUMBER, "nurse", WORD, "2011-05-01", "yes")
ROWS = [list(ROW), [*ROW[:3], "clerk", *ROW[4:6], "no"]] * 10
X = np.tile([[float(NUMBER), 0.5], [1.0, 0.25]], (10, 1))
Y = np.arange(20) % 2
QUICK = ("--method", "sgd", "--set", "steps=2", "--set", "sampling_rate=1.0", "--seed", "1")
PAID = ("--output", "m.json", "--ledger", "b.ledger", *QUICK)
FIT = ("fit", "people.csv", "--schema", "people.schema.json", *PAID)
FIT_PARQUET = ("fit", "people.parquet", "--schema", "people.schema.json", *PAID)
FIT_ARRAYS = ("fit", "people.npz", "--bounds", "0,100", "--classes", "0,1", *PAID)
PREDICT = ("predict", "model.json", "people.csv")


Property = Callable[[st.DataObject], None]
#: Every property, by its name.
PROPERTIES: dict[str, Property] = {}


def fuzzed(body: Property) -> Property:
    """Register a property."""
    PROPERTIES[body.__name__] = body
    return body


# Running commands ---------------------------------------------------------------------------------------------------


class Hang(BaseException):
    """A command took too long. No handler of the package may swallow it."""


class Ended(NamedTuple):
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str


def run(*arguments: str) -> Ended:
    """Run a command in this process as the shell would."""
    out, err, before, code = io.StringIO(), io.StringIO(), sys.argv, 0
    sys.argv = ["dpdescent", *arguments]
    try:
        with limited(), contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    finally:
        sys.argv = before
    return Ended(code, out.getvalue(), err.getvalue())


@contextlib.contextmanager
def limited() -> Iterator[None]:
    def hang(*_: Any) -> None:
        raise Hang(f"not done after {LONGEST} seconds")

    before = signal.signal(signal.SIGALRM, hang)
    signal.setitimer(signal.ITIMER_REAL, LONGEST)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@lru_cache(maxsize=1)
def template() -> Path:
    """Return a folder with a table in three formats, its schema, a model, a statement and two ledgers, in order."""
    folder = Path(tempfile.mkdtemp(prefix="dpdescent-fuzz-"))
    with contextlib.chdir(folder):
        write_csv([list(HEADER), *ROWS])
        Path("people.schema.json").write_text(json.dumps(SCHEMA))
        frame = pd.DataFrame(ROWS, columns=list(HEADER)).astype({"age": float, "pay": float})
        frame.to_parquet("people.parquet", index=False)
        np.savez("people.npz", X=X, y=Y)
        account = Ledger(9.0, 1e-6, currency="gdp", path="b.ledger")
        for noise in (30.0, 40.0, 50.0):
            account.spend(Gaussian(noise), f"charge {noise:g}")
        account.verify()
        old = [{"format": "dpdescent-ledger", "version": 1, "epsilon": 1.0, "delta": 1e-6}]
        old[0] |= {"currency": {"name": "gdp"}, "relation": "zero-out"}
        old += [entry.to_dict() for entry in account.entries]
        Path("old.ledger").write_text("".join(json.dumps(line) + "\n" for line in old))
        done = run("fit", "people.csv", "--schema", "people.schema.json", "--output", "model.json", *QUICK)
        assert done.code == 0, done.err
        model = MODEL_FILE.read(Path("model.json"))
        PrivacyStatement.from_dict(model["privacy"]).save(Path("statement.json"))
        Path("folder").mkdir()
    return folder


@contextlib.contextmanager
def fresh() -> Iterator[None]:
    """Work in a folder that is a copy of the template."""
    whole = template()
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder) / "here"
        shutil.copytree(whole, here)
        with contextlib.chdir(here):
            yield


def charges(path: str = "b.ledger") -> list[Any] | None:
    """Return the record of a ledger; None if it cannot be opened."""
    try:
        return [(line.entry, line.settled) for line in Ledger.open(path).history]
    except DPDescentError:
        return None


def checked(*arguments: str) -> Ended:
    """Run a command and check all that holds for every command; return how it ended."""
    before = charges()
    done = run(*arguments)
    said = f"{arguments} ended with {done.code}: {done.err[-2000:]}"
    lines = [line for line in done.err.split("\n") if line and not line.startswith(WARNINGS)]
    assert done.code in (0, 1, 2), said
    assert (done.code == 0) == (not lines), said
    if done.code:
        name = lines[0].partition(":")[0]
        assert len(lines) == 1, said
        assert name in KNOWN, said
        assert done.code == (2 if name == "UsageError" else 1), said
    assert "Traceback" not in done.out + done.err, said
    assert shows_no_cell(done.err), said
    assert "--keep" in arguments or shows_no_cell(done.out), said
    after = charges()
    if before is not None and "b.ledger" in arguments:
        assert after is not None, f"{said}; the ledger does not open any more"
        paid = arguments[0] == "fit" and done.code == 0 and "--help" not in arguments
        if paid and given(arguments, "--ledger") == "b.ledger":
            assert len(after) == len(before) + 1, f"{said}; an answer was not charged for"
            assert Path(given(arguments, "--output")).exists(), said
        else:
            assert after == before, f"{said}; a charge was made without an answer"
    for name in ("m.json", "out.json", "b.ledger"):
        if Path(name).is_file() and arguments[0] != "predict":
            assert shows_no_cell(Path(name).read_bytes().decode("latin-1")), f"{said}; {name} shows a cell"
    return done


def given(arguments: tuple[str, ...], option: str) -> str:
    """Return the value of an option, the last one if it is given more than once."""
    return next(after for word, after in reversed(list(pairwise(arguments))) if word == option)


def shows_no_cell(text: str) -> bool:
    return not any(secret in text for secret in SECRETS)


# Strategies ---------------------------------------------------------------------------------------------------------

FLOATS = st.sampled_from([math.nan, math.inf, -math.inf, 1e308, -1e308, 5e-324, -0.0, 1e-300]) | st.floats()
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 10**20) | FLOATS | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=6,
)
ODD = ["", " ", "nan", "NA", "inf", "-1e400", "1e5", "1,5", '"', "'", "\t", "0x1p3", "nurse", "clerk", "no", "yes"]
ODD += ["2011-05-01", "31.2.2011", "99999-01-01", WORD, NUMBER, "\u2028", "\x00", "\ud7ff", "\r", "=1", "x" * 300]
CELLS = st.sampled_from(ODD) | st.text(max_size=5)


@st.composite
def damaged(draw: Any, whole: bytes) -> bytes:
    """A file with some bytes changed, cut out, doubled or put in, or cut off."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        place, length = draw(st.integers(0, len(data))), draw(st.integers(1, 16))
        change = draw(st.sampled_from(["flip", "flip", "set", "cut", "double", "insert", "end"]))
        if change == "end":
            del data[place:]
        elif change == "cut":
            del data[place : place + length]
        elif change == "double":
            data[place:place] = data[place : place + length]
        elif change == "insert":
            data[place:place] = draw(st.binary(min_size=1, max_size=8))
        elif place < len(data):
            data[place] = (
                data[place] ^ (1 << draw(st.integers(0, 7))) if change == "flip" else draw(st.integers(0, 255))
            )
    return bytes(data)


@st.composite
def altered(draw: Any, document: Any) -> Any:
    """A JSON document in which one to three places, anywhere, have arbitrary values, or are gone."""
    changed = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        spot = changed
        while isinstance(spot, dict | list) and spot:
            key = draw(st.sampled_from(sorted(spot) if isinstance(spot, dict) else range(len(spot))))
            if isinstance(spot[key], dict | list) and spot[key] and draw(st.integers(0, 3)):
                spot = spot[key]
                continue
            if draw(st.integers(0, 4)):
                spot[key] = draw(JSON)
            else:
                del spot[key]
            break
    return changed


def write_csv(rows: list[list[str]], name: str = "people.csv") -> None:
    lines = [",".join(f'"{cell}"' if "," in cell or "\n" in cell else cell for cell in row) for row in rows]
    Path(name).write_bytes(("\n".join(lines) + "\n").encode("utf-8", "surrogatepass"))


# Arguments ----------------------------------------------------------------------------------------------------------

VALUES = [
    "",
    " ",
    "0",
    "1",
    "-1",
    "nan",
    "inf",
    "1e400",
    "1e-300",
    "0.5",
    "x",
    "[",
    "{}",
    "0,1",
    "1,0",
    "[0,0],[1,5]",
]
VALUES += ["measure", "a,b", "true", "null", "people.csv", "people.npz", "people.parquet", "people.schema.json"]
VALUES += ["model.json", "statement.json", "old.ledger", "folder", "nowhere", "people.csv/x", "*.parquet", "**"]
VALUES += ["[x]", "\u00e9\u2028", "a\nb", "\r", "--epsilon", "-", "%s", "{0}", "x" * 300, "zero-out", "replace-one"]
VALUES += ["sgd", "majority", "outpert", "nonprivate", "gdp", "pure", "approximate", "rdp", "one person", "id"]
#: Options that would take long, reach for the network, or start processes: few values, or none.
NARROW: dict[str, list[str]] = {
    "--cluster": [],
    "--jobs": ["0", "-1", "x"],
    "--runs": ["0", "x"],
    "--rows": ["0", "2"],
}
NARROW |= {
    "--columns": ["0", "1", "x"],
    "--set": ["", "x", "=", "steps=-1", "steps=nan", "steps=3", "alpha=1", "a=b"],
}
NARROW |= {"--method": ["", "x", "sgd", "majority", "nonprivate", "outpert", "objpert"], "--full": [], "--data": []}
BASES: dict[str, list[tuple[str, ...]]] = {
    "fit": [FIT, FIT_PARQUET, FIT_ARRAYS],
    "predict": [PREDICT, ("predict", "model.json", "people.parquet")],
    "explain": [("explain", "model.json"), ("explain", "statement.json")],
    "audit": [("audit", "laplace"), ("audit", "LabelSum"), ("audit", "x")],
    "ledger": [("ledger", each, "b.ledger") for each in ("show", "history", "export", "verify")]
    + [("ledger", "create", "new.ledger"), ("ledger", "import", "old.ledger", "new.ledger"), ("ledger", "b.ledger")],
    "schema": [
        ("schema", "people.csv", "--label", "left", "--output", "s.json"),
        ("schema", "check", "people.schema.json", "people.csv"),
        ("schema", "format"),
    ],
    "datasets": [("datasets",), ("datasets", "synthetic", "--output", "large", "--rows", "3")],
    "methods": [("methods",)],
    "demo": [("demo", "--dataset", "nowhere")],
    "compare": [("compare", "--data", "nowhere")],
    "reproduce": [("reproduce", "nowhere")],
}
LAST = {"audit": ("--runs", "40", "--jobs", "1")}


@lru_cache(maxsize=1)
def options() -> dict[str, list[str]]:
    """Return the options of every command, those of its subcommands included, as the commands declare them."""
    group = typer.main.get_command(app)
    found = {}
    for name, command in group.commands.items():
        loaded = command.load()
        parts = [loaded, *getattr(loaded, "commands", {}).values()]
        found[name] = sorted(
            {each for part in parts for option in part.params for each in option.opts if "--" in each}
        )
    return found


@st.composite
def commands(draw: Any) -> tuple[str, ...]:
    name = draw(st.sampled_from(sorted(BASES) + ["fit"] * 4))
    words = list(draw(st.sampled_from(BASES[name])))
    for _ in range(draw(st.integers(0, 3))):
        option = draw(st.sampled_from([*options()[name], "--help", "--nothing"]))
        pool = NARROW.get(option, VALUES)
        if pool:
            words += [option, draw(st.sampled_from(pool))]
    if draw(st.integers(0, 3)) == 0:
        place = draw(st.integers(1, len(words)))
        if place == len(words) or words[place - 1] not in NARROW:
            words[place : place + draw(st.integers(0, 1))] = [draw(st.sampled_from(VALUES))]
    return (*words, *LAST.get(name, ()))


@fuzzed
def arguments(data: st.DataObject) -> None:
    words = data.draw(commands())
    with fresh():
        checked(*words)


# Files --------------------------------------------------------------------------------------------------------------


@fuzzed
def schema_documents(data: st.DataObject) -> None:
    document = data.draw(altered(SCHEMA))
    with fresh():
        Path("people.schema.json").write_text(json.dumps(document))
        checked("schema", "check", "people.schema.json", "people.csv")
        checked(*data.draw(st.sampled_from([FIT, FIT_PARQUET])))


@fuzzed
def schema_files(data: st.DataObject) -> None:
    with fresh():
        path = Path("people.schema.json")
        path.write_bytes(data.draw(damaged(path.read_bytes())))
        checked(*FIT)


@fuzzed
def text_cells(data: st.DataObject) -> None:
    rows = copy.deepcopy(ROWS)
    for _ in range(data.draw(st.integers(1, 4))):
        row = data.draw(st.sampled_from(rows))
        if row and data.draw(st.integers(0, 5)):
            row[data.draw(st.integers(0, len(row) - 1))] = data.draw(CELLS)
        else:
            row[:] = data.draw(st.lists(CELLS, max_size=9))
    choices = ("--missing", data.draw(st.sampled_from(["error", "midpoint", "level"])))
    choices += ("--unknown", data.draw(st.sampled_from(["error", "zero", "other"])))
    with fresh():
        write_csv([list(HEADER), *rows])
        checked(*FIT, *(choices if data.draw(st.booleans()) else ()))
        checked(*PREDICT, *(choices if data.draw(st.booleans()) else ()))


@fuzzed
def text_files(data: st.DataObject) -> None:
    """The first line names the columns and is public, so it stays as it is."""
    with fresh():
        head, _, rest = Path("people.csv").read_bytes().partition(b"\n")
        Path("people.csv").write_bytes(head + b"\n" + data.draw(damaged(rest)))
        checked(*data.draw(st.sampled_from([FIT, PREDICT])))


@fuzzed
def parquet_files(data: st.DataObject) -> None:
    with fresh():
        Path("people.parquet").write_bytes(data.draw(damaged(Path("people.parquet").read_bytes())))
        checked(*data.draw(st.sampled_from([FIT_PARQUET, ("predict", "model.json", "people.parquet")])))


STORED: dict[str, Callable[[list[str]], Any]] = {
    "text": lambda cells: arrow.array(cells, arrow.string()),
    "bytes": lambda cells: arrow.array([cell.encode() for cell in cells], arrow.binary()),
    "lists": lambda cells: arrow.array([[cell] for cell in cells]),
    "objects": lambda cells: arrow.array([{"a": cell} for cell in cells]),
    "dictionary": lambda cells: arrow.array(cells).dictionary_encode(),
    "nulls": lambda cells: arrow.nulls(len(cells)),
    "half": lambda cells: arrow.array([None, *cells[1:]], arrow.string()),
    "decimal": lambda cells: arrow.array(range(len(cells)), arrow.int64()).cast(arrow.decimal128(38, 10)),
    "time": lambda cells: arrow.array(range(len(cells)), arrow.timestamp("ns", tz="UTC")),
    "duration": lambda cells: arrow.array(range(len(cells)), arrow.duration("s")),
    "date": lambda cells: arrow.array([10**6] * len(cells), arrow.date32()),
    "boolean": lambda cells: arrow.array([True] * len(cells)),
    "huge": lambda cells: arrow.array([2**64 - 1] * len(cells), arrow.uint64()),
    "float16": lambda cells: arrow.array(np.ones(len(cells), np.float16)),
    "infinite": lambda cells: arrow.array([math.inf] * len(cells)),
    "not a number": lambda cells: arrow.array([math.nan] * len(cells)),
}


@fuzzed
def parquet_columns(data: st.DataObject) -> None:
    columns = {name: arrow.array([row[place] for row in ROWS]) for place, name in enumerate(HEADER)}
    columns |= {name: arrow.array([float(NUMBER)] * len(ROWS)) for name in ("age", "pay")}
    for _ in range(data.draw(st.integers(1, 2))):
        place = data.draw(st.integers(0, len(HEADER) - 1))
        store = STORED[data.draw(st.sampled_from(sorted(STORED)))]
        columns[HEADER[place]] = store([row[place] for row in ROWS])
    names, arrays = list(columns), list(columns.values())
    if not data.draw(st.integers(0, 5)):
        names.append(data.draw(st.sampled_from(names)))
        arrays.append(arrays[0])
    with fresh():
        parquet.write_table(arrow.Table.from_arrays(arrays, names=names), "people.parquet")
        checked(*FIT_PARQUET)
        checked("predict", "model.json", "people.parquet")


@fuzzed
def array_files(data: st.DataObject) -> None:
    with fresh():
        if data.draw(st.booleans()):
            np.savez_compressed("people.npz", X=X, y=Y)
        Path("people.npz").write_bytes(data.draw(damaged(Path("people.npz").read_bytes())))
        checked(*FIT_ARRAYS)


KINDS = ["f8", "f4", "f2", "i8", "u1", "?", "c16", "U12", "S12", "M8[D]", "m8[s]", ">f8", "O", [("a", "f8")], "V3"]


@fuzzed
def arrays(data: st.DataObject) -> None:
    held = {"X": X, "y": Y}
    for name in data.draw(st.sampled_from([("X",), ("y",), ("X", "y")])):
        shape = data.draw(st.sampled_from([(20, 2), (20,), (), (0,), (0, 2), (20, 0), (20, 1, 2), (7, 2), (7,)]))
        kind = data.draw(st.sampled_from(KINDS))
        content = data.draw(FLOATS | st.sampled_from([0.0, 1.0, WORD, NUMBER]))
        with contextlib.suppress(TypeError, ValueError, OverflowError), np.errstate(all="ignore"):
            held[name] = np.full(shape, content, dtype=kind)
    with fresh():
        np.savez("people.npz", **{data.draw(st.sampled_from(["X", "X", "X", "x"])): held["X"], "y": held["y"]})
        tail = data.draw(st.sampled_from([(), ("--model", "svm"), ("--bounds", "measure")]))
        checked(*FIT_ARRAYS, *tail)
        checked("fit", "people.npz", "--bounds", "0,1", "--target-bounds", "0,1", "--model", "regression", *PAID)


SEALED = {"model.json": MODEL_FILE, "statement.json": STATEMENT_FILE}


@fuzzed
def sealed_documents(data: st.DataObject) -> None:
    """Models and statements that were edited, with a digest that fits."""
    name = data.draw(st.sampled_from(sorted(SEALED)))
    with fresh():
        content = data.draw(altered(SEALED[name].read(Path(name))))
        with contextlib.suppress(ValueError):  # JSON has no infinities
            Path(name).write_text(SEALED[name].seal(content))
        done = checked("explain", name, "--html", "page.html", "--json", "out.json")
        if name == "model.json":
            checked(*PREDICT)
        if done.code == 0:
            assert "<script src" not in Path("page.html").read_text()


@fuzzed
def sealed_files(data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(sorted(SEALED)))
    with fresh():
        Path(name).write_bytes(data.draw(damaged(Path(name).read_bytes())))
        checked("explain", name)
        if name == "model.json":
            checked(*PREDICT)


# Ledgers ------------------------------------------------------------------------------------------------------------


def never_less(path: str, whole: list[Any]) -> None:
    """Use a ledger that was changed from outside: all of its charges are there, or it is refused."""
    sqlite_store.CREATION, before = 0.0, sqlite_store.CREATION
    try:
        for command in ("show", "history", "verify"):
            checked("ledger", command, path)
        found = charges(path)
        assert found in (None, whole), "charges are lost"
        with contextlib.suppress(DPDescentError), limited():
            account = Ledger.open(path)
            entry = account.spend(Gaussian(60.0), "more")
            assert charges(path) in (None, [*whole, (entry, None)]), "a charge is lost"
        checked("fit", "people.npz", "--bounds", "0,100", "--classes", "0,1", "--ledger", path, *PAID[:2], *QUICK)
    finally:
        sqlite_store.CREATION = before


@fuzzed
def ledger_bytes(data: st.DataObject) -> None:
    with fresh():
        whole = charges()
        Path("b.ledger").rename("c.ledger")
        Path("c.ledger").write_bytes(data.draw(damaged(Path("c.ledger").read_bytes())))
        never_less("c.ledger", whole)


EDITS = (
    "UPDATE records SET record = replace(record, '30.0', '3000.0')",
    "UPDATE records SET record = ? WHERE number = :n",
    "UPDATE records SET digest = ? WHERE number = :n",
    "UPDATE records SET number = -number",
    "UPDATE records SET number = number + 1 WHERE number > :n",
    "DELETE FROM records WHERE number = :n",
    "DELETE FROM records WHERE number > :n",
    "DELETE FROM records",
    "INSERT INTO records VALUES (:n + 4, ?, '')",
    "INSERT INTO records VALUES (-1, ?, '')",
    "UPDATE tail SET count = :n",
    "UPDATE tail SET digest = ?",
    "DELETE FROM tail",
    "DROP TABLE tail",
    "DROP TABLE records",
    "ALTER TABLE records RENAME TO other",
    "ALTER TABLE records RENAME COLUMN record TO text",
    "CREATE TRIGGER t AFTER INSERT ON records BEGIN DELETE FROM records WHERE number = new.number; END",
    "CREATE VIEW v AS SELECT * FROM records",
    "PRAGMA application_id = 7",
    "PRAGMA user_version = 7",
    "PRAGMA journal_mode = DELETE",
)


@fuzzed
def ledger_tables(data: st.DataObject) -> None:
    with fresh():
        whole = charges()
        Path("b.ledger").rename("c.ledger")
        with contextlib.closing(sqlite3.connect("c.ledger", isolation_level=None)) as connection:
            for _ in range(data.draw(st.integers(1, 3))):
                edit = data.draw(st.sampled_from(EDITS)).replace(":n", str(data.draw(st.integers(0, 4))))
                value = data.draw(st.text(max_size=5) | st.none() | st.integers(-9, 9) | st.binary(max_size=3))
                with contextlib.suppress(sqlite3.Error, UnicodeEncodeError):
                    connection.execute(edit, (value,) * edit.count("?"))
        never_less("c.ledger", whole)


@fuzzed
def ledger_records(data: st.DataObject) -> None:
    """Records that were edited, with digests that fit: whatever is read has the price of its mechanism."""
    with fresh():
        with contextlib.closing(sqlite3.connect("b.ledger", isolation_level=None)) as connection:
            texts = connection.execute("SELECT record FROM records ORDER BY number").fetchall()
            records = data.draw(altered([json.loads(text) for (text,) in texts]))
            connection.execute("DELETE FROM records")
            digest = ""
            for number, record in enumerate(records):
                text = json.dumps(record)
                digest = sqlite_store._chain(digest, text)
                connection.execute("INSERT INTO records VALUES (?, ?, ?)", (number, text, digest))
            connection.execute("UPDATE tail SET count = ?, digest = ?", (len(records), digest))
        Path("b.ledger").rename("c.ledger")
        for command in ("show", "history", "verify", "export"):
            checked("ledger", command, "c.ledger")
        with contextlib.suppress(DPDescentError):
            account = Ledger.open("c.ledger")
            for entry in account.entries:
                assert entry.price >= account.currency.price(entry.cost) > 0
            account.spend(Gaussian(60.0), "more")
            assert account.spent <= account.budget


@fuzzed
def old_ledgers(data: st.DataObject) -> None:
    with fresh():
        old = Path("old.ledger")
        if data.draw(st.booleans()):
            old.write_bytes(data.draw(damaged(old.read_bytes())))
        else:
            lines = data.draw(altered([json.loads(line) for line in old.read_text().splitlines()]))
            old.write_text("".join(json.dumps(line) + "\n" for line in lines))
        before = old.read_bytes()
        done = checked("ledger", "import", "old.ledger", "new.ledger")
        if done.code:
            assert old.read_bytes() == before
            assert charges("new.ledger") is None
        else:
            with contextlib.suppress(DPDescentError):
                import_lines("old.ledger", "twin.ledger")
                raise AssertionError("a ledger was moved twice")
