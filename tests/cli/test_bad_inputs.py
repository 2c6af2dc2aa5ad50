"""Bad files, schemas, arguments and paths through the real command: one named line, no cell, nothing charged."""

from __future__ import annotations

import gzip
import json
import re
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dpdescent import Ledger
from dpdescent.cli import main
from dpdescent.estimators.saved_models import FILE
from dpdescent.statement import PrivacyStatement, with_nulls

SECRET = "alice@secret"
SCHEMA: dict[str, Any] = {
    "columns": {
        "id": {"type": "ignore"},
        "age": {"type": "numeric", "low": 0, "high": 100},
        "job": {"type": "categorical", "levels": ["clerk", "nurse"]},
        "town": {"type": "hashed", "buckets": 8},
        "hired": {"type": "date", "low": "2000-01-01", "high": "2030-01-01"},
    },
    "label": {"column": "left", "classes": ["no", "yes"]},
}
HEADER = "id,age,job,town,hired,left"
ROW = f"{SECRET},44,nurse,{SECRET},2011-05-01,yes"
MODEL: dict[str, Any] = {
    "estimator": "DPLogisticRegression",
    "coefficients": [[0.5] * 12],
    "intercepts": [0.0],
    "classes": ["no", "yes"],
    "features": ["age", "hired", "job=clerk", "job=nurse", *(f"town#{bucket}" for bucket in range(8))],
    "privacy": with_nulls(
        PrivacyStatement.without_privacy(
            relation="zero-out",
            unit="one row",
            randomness="none",
            arithmetic="floating point",
            model="none",
            method="nonprivate",
        ).to_dict()
    ),
    "schema": SCHEMA,
    "bounds": None,
    "coefficient_noise": None,
    "ends": None,
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with a table, its schema, arrays, a model and a ledger, all of them in order."""
    folder = tmp_path_factory.mktemp("template")
    (folder / "people.csv").write_text("\n".join([HEADER, *[ROW] * 60]) + "\n")
    (folder / "people.schema.json").write_text(json.dumps(SCHEMA))
    (folder / "model.json").write_text(FILE.seal(MODEL))
    np.savez(folder / "people.npz", X=np.ones((20, 2)), y=np.arange(20) % 2)
    Ledger(1.0, 1e-6, currency="gdp", path=folder / "b.ledger").verify()
    (folder / "folder").mkdir()
    return folder


@pytest.fixture(autouse=True)
def _here(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(template, tmp_path / "here")
    monkeypatch.chdir(tmp_path / "here")


def table(*rows: str, header: str = HEADER) -> Callable[[], None]:
    """Return what writes a table of a good row, the given rows and another good row."""
    return lambda: Path("people.csv").write_text("\n".join([header, ROW, *rows, ROW]) + "\n") and None


def content(name: str, data: bytes) -> Callable[[], None]:
    return lambda: Path(name).write_bytes(data) and None


def schema(**changes: Any) -> Callable[[], None]:
    """Return what writes the schema with dotted places changed; ``...`` removes a key."""

    def write() -> None:
        document = json.loads(json.dumps(SCHEMA))
        for place, value in changes.items():
            *path, key = place.split("__")
            target = document
            for step in path:
                target = target[step]
            if value is ...:
                del target[key]
            else:
                target[key] = value
        Path("people.schema.json").write_text(json.dumps(document))

    return write


def arrays(**held: Any) -> Callable[[], None]:
    return lambda: np.savez("people.npz", **held)


def model(**changes: Any) -> Callable[[], None]:
    return lambda: Path("model.json").write_text(FILE.seal(MODEL | changes)) and None


def nothing() -> None:
    """Spoil nothing: the arguments are wrong."""


def parquet() -> None:
    pd.DataFrame({"age": [SECRET]}).to_parquet("people.parquet")


def spent() -> None:
    Path("b.ledger").unlink()
    Ledger(0.01, 1e-6, currency="gdp", path="b.ledger")


def edited() -> None:
    data = Path("b.ledger").read_bytes()
    Path("b.ledger").write_bytes(data.replace(b"zero-out", b"zero-OUT"))


X, Y = np.ones((20, 2)), np.arange(20) % 2
FIT = ("fit", "people.csv", "--schema", "people.schema.json", "--output", "m.json", "--ledger", "b.ledger")
FIT_ARRAYS = (
    "fit",
    "people.npz",
    "--output",
    "m.json",
    "--ledger",
    "b.ledger",
    "--bounds",
    "0,1",
    "--classes",
    "0,1",
)
PREDICT = ("predict", "model.json", "people.csv")
CHECK = ("schema", "check", "people.schema.json", "people.csv")

Case = tuple[tuple[str, ...], Callable[[], None], str]

FILES: list[Case] = [
    (("fit", "nowhere.csv", *FIT[2:]), nothing, "DatasetNotAvailable: .* is not there"),
    (("fit", "folder.csv", *FIT[2:]), lambda: Path("folder.csv").mkdir(), "DatasetNotAvailable: .* is a folder"),
    (("fit", "people.xlsx", *FIT[2:]), nothing, "DatasetFormatError: .* is an Excel workbook.* save it as CSV"),
    (FIT, content("people.csv", HEADER.encode() + b"\n"), "DatasetFormatError: .* a header and no rows"),
    (FIT, content("people.csv", b""), "DatasetFormatError: .* is empty"),
    (FIT, table(ROW + ",x,y"), "DatasetFormatError: line 3 of .* has 8 cells and the first line has 6 names"),
    (FIT, table(f"{SECRET},44"), "DatasetFormatError: line 3 of .* has 2 cells and the first line has 6 names"),
    (FIT, table(f'"{SECRET},44,nurse'), "DatasetFormatError: .* never closed, near line 3"),
    (
        FIT,
        content("people.csv", f"{HEADER}\n{ROW}\xe9\n".encode("latin-1")),
        "DatasetFormatError: line 2 .* not UTF-8",
    ),
    (FIT, table(SECRET * 20_000), "DatasetFormatError: line 3 of .* has a cell of more than 131072 characters"),
    (FIT, content("people.csv", b"id,\xff\n1,2\n"), "DatasetFormatError: line 1 .* not UTF-8"),
    (FIT, content("people.csv", f"{HEADER}\n{ROW}\n{SECRET}\0\n".encode()), "DatasetFormatError: line 3"),
    (FIT, table(header=HEADER.replace(",", ":")), "DatasetFormatError: .* one column .* separator"),
    (FIT, content("people.csv", gzip.compress(ROW.encode() * 99)[:-9]), "DatasetFormatError: .* cut off or damaged"),
    (FIT, content("people.csv", b"PK\x03\x04" + SECRET.encode()), "DatasetFormatError: .* ZIP .* save it as CSV"),
    (FIT, content("people.csv", b"PAR1" + SECRET.encode()), "DatasetFormatError: .* a Parquet file"),
    (("fit", "p.parquet", *FIT[2:]), content("p.parquet", SECRET.encode()), "DatasetFormatError: .* not a readable"),
    (("fit", "people.parquet", *FIT[2:]), parquet, "MissingColumn: .* lacks the columns"),
    (FIT, table(header="id,age,age,town,hired,left"), "DatasetFormatError: .* names a column twice"),
    (FIT, table(header="id,,job,town,hired,left"), "DatasetFormatError: .* no name for a column"),
    (FIT, table(header="id,ages,job,town,hired,left"), "MissingColumn: .*did you mean 'ages' for 'age'"),
    (FIT, table(ROW.replace("44", SECRET)), "ColumnTypeError: column 'age'"),
    (FIT, table(ROW.replace("44", "")), "MissingValue: column 'age' .* choose missing"),
    (FIT, table(ROW.replace("44", "inf")), "InfiniteValue: column 'age'"),
    (FIT, table(ROW.replace("nurse", SECRET)), "UnknownLevel: column 'job' .* choose unknown 'other'"),
    (FIT, table(ROW.replace("nurse", "")), "MissingValue: column 'job' .* choose missing 'level'"),
    (FIT, table(f"1,44,nurse,,{ROW[-14:]}"), "MissingValue: column 'town'"),
    (FIT, table(ROW.replace("yes", SECRET)), "UnknownLevel: label column 'left'"),
    (FIT, table(ROW.replace("yes", "")), "MissingValue: label column 'left'"),
    (FIT, table(ROW.replace("2011-05-01", SECRET)), "ColumnTypeError: column 'hired' .* not a date"),
    (FIT, schema(rows=7), "DatasetFormatError: .* the 7 rows"),
    (FIT_ARRAYS, content("people.npz", b"PK\x03\x04" + SECRET.encode()), "DatasetFormatError"),
    (FIT_ARRAYS, content("people.npz", b""), "DatasetFormatError"),
    (FIT_ARRAYS, content("people.npz", b"\x93NUMPY\x01\x00" + bytes(99)), "DatasetFormatError: .* not an NPZ file"),
    (FIT_ARRAYS, arrays(X=X, y=np.zeros(20, [("a", "f8")])), "ColumnTypeError: .* y must hold numbers"),
    (FIT_ARRAYS, arrays(X=X), "DatasetFormatError: .* lacks an array"),
    (FIT_ARRAYS, arrays(X=np.full((20, 2), SECRET, dtype=object), y=Y), "DatasetFormatError"),
    (FIT_ARRAYS, arrays(X=np.full((20, 2), SECRET), y=Y), "ColumnTypeError"),
    (FIT_ARRAYS, arrays(X=X[0], y=Y), "DatasetFormatError: .* two dimensions"),
    (FIT_ARRAYS, arrays(X=X[:7], y=Y), "DatasetFormatError: .* differ in length"),
    (FIT_ARRAYS, arrays(X=X * np.nan, y=Y), "MissingValue"),
    (FIT_ARRAYS, arrays(X=X[:0], y=Y[:0]), "DatasetFormatError: .* no rows"),
    (FIT_ARRAYS, arrays(X=X, y=np.full(20, SECRET)), "UnknownLevel"),
    (("fit", "adlut", *FIT[4:]), nothing, "UnknownDataset: .* 'adlut'"),
]

SCHEMAS: list[Case] = [
    (("fit", "people.csv", *FIT[4:]), nothing, "InvalidParameter: .* needs --label COLUMN"),
    (("fit", "people.csv", "--schema", "no.json", *FIT[4:]), nothing, "SchemaError: .* cannot be read: No such file"),
    (
        ("fit", "people.csv", "--schema", "folder", *FIT[4:]),
        nothing,
        "SchemaError: .* cannot be read: Is a directory",
    ),
    (FIT, content("people.schema.json", b'{"columns": {'), "SchemaError: .* not valid JSON: .* line 1"),
    (FIT, content("people.schema.json", b"\xff\xfe\xff"), "SchemaError: .* not UTF-8 text"),
    (FIT, content("people.schema.json", b"[" * 100_000), "SchemaError: .* not valid JSON"),
    (FIT, content("people.schema.json", b'{"note": ' + b"[" * 700 + b"]" * 700 + b"}"), "SchemaError: .* too deeply"),
    (FIT, content("people.schema.json", b'{"note": 1' + b"0" * 5000 + b"}"), "SchemaError: .* too many digits"),
    (FIT, content("people.schema.json", b"[]"), "SchemaError: the schema: must be a JSON object"),
    (FIT, schema(columns__age__low="FILL IN"), "SchemaError: .*FILL IN.* columns.age.low"),
    (FIT, schema(columns__age__lo=1), "SchemaError: columns.age: the key 'lo' .* did you mean 'low'"),
    (FIT, schema(columns__age__type="number"), "SchemaError: columns.age.type: .* did you mean 'numeric'"),
    (FIT, schema(columns__age__low=200), "SchemaError: columns.age: low must be less than high"),
    (FIT, schema(columns__age__high=...), "SchemaError: columns.age.high"),
    (FIT, schema(columns__age={"type": "numeric"}, missing="midpoint"), "SchemaError: columns.age: .* no midpoint"),
    (FIT, schema(columns__job__levels=["a", "a"]), "SchemaError: columns.job.levels: entries must all differ"),
    (FIT, schema(columns__town__buckets=1), "SchemaError: columns.town.buckets"),
    (FIT, schema(columns__hired__low="1.1.2000"), "SchemaError: columns.hired.low: must be a date"),
    (FIT, schema(label__low=0), "SchemaError: label: give either classes or low and high"),
    (FIT, schema(file={"encoding": "klingon"}), "SchemaError: file.encoding"),
    (FIT, schema(columns__age__low=10**400), "SchemaError: columns.age.low: must be a finite number"),
    (FIT, schema(label={"column": "left", "low": 0, "high": 1}), "InvalidParameter: .* choose --model regression"),
    (FIT, schema(label={"column": "left"}), "InvalidParameter: .* no label.classes, .* choose --model regression"),
    (FIT, schema(label={"column": "left", "low": 0}), "SchemaError: label.high: must be a finite number"),
    ((*FIT, "--model", "regression"), nothing, "InvalidParameter: .* label.classes, and a regression"),
    ((*FIT, "--model", "regression"), schema(label={"column": "left"}), "ColumnTypeError: column 'left'"),
    (
        (*FIT, "--model", "svm"),
        schema(label__classes=["no", "yes", "maybe"]),
        "InvalidParameter: --model svm tells two classes apart, and there are 3: choose --model logistic",
    ),
    ((*FIT, "--target-bounds", "measure"), nothing, "InvalidParameter: --target-bounds is for --model regression"),
    (
        ("fit", "synthetic", "--model", "regression", "--output", "m.json"),
        nothing,
        "InvalidParameter: the data set 'synthetic' has classes",
    ),
    (
        ("compare", "--data", "people.csv", "--schema", "people.schema.json", "--methods", "majority"),
        schema(label={"column": "age"}, columns__age=...),
        "InvalidParameter: .* classes",
    ),
    (CHECK, schema(columns__salary={"type": "numeric"}, label__column="lefts"), "SchemaError: .* has 2 problems"),
]

ARGUMENTS: list[Case] = [
    ((*FIT, "--epsilon", "0"), nothing, "InvalidParameter: epsilon must be greater than 0"),
    ((*FIT, "--epsilon", "nan"), nothing, "InvalidParameter: epsilon must be finite"),
    ((*FIT, "--epsilon", "much"), nothing, "UsageError: .*--epsilon"),
    ((*FIT, "--delta", "1"), nothing, "InvalidParameter: delta must lie strictly between 0 and 1"),
    ((*FIT, "--method", "atuo"), nothing, "InvalidParameter: unknown method 'atuo'"),
    ((*FIT, "--model", "forest"), nothing, "InvalidParameter: unknown model 'forest'"),
    ((*FIT, "--set", "steps=5"), nothing, "InvalidParameter: .* no setting 'steps'"),
    ((*FIT, "--missing", "zero"), nothing, "SchemaError: missing: must be one of"),
    ((*FIT, "--unknown", "level"), nothing, "SchemaError: unknown: must be one of"),
    ((*FIT, "--bounds", "0,1"), nothing, "InvalidParameter: --bounds, --classes and --target-bounds"),
    ((*FIT, "--adjacency", "add"), nothing, "UnknownRelation"),
    ((*FIT, "--tilt", "2"), nothing, "InvalidParameter: .* tilt"),
    ((*FIT, "--alpha", "-1"), nothing, "InvalidParameter: alpha|InvalidParameter: .*penalty"),
    ((*FIT, "--method", "nonprivate"), nothing, "InvalidParameter: .* not private"),
    ((*FIT, "--epsilon", "1", "--method", "expmech"), nothing, "UnsupportedCost|InvalidParameter"),
    ((*FIT_ARRAYS, "--schema", "people.schema.json"), nothing, "InvalidParameter: an NPZ file takes --bounds"),
    ((*FIT_ARRAYS[:-2], "--classes", "0"), nothing, "InvalidParameter: --classes must name two"),
    ((*FIT_ARRAYS[:-4], "--classes", "0,1", "--bounds", "1"), nothing, "InvalidParameter: --bounds must be two"),
    (("fit", "synthetic", *FIT[4:], "--missing", "level"), nothing, "InvalidParameter: --missing is for files"),
    (("fit", "people.csv"), nothing, "UsageError: .*--output"),
    ((*FIT, "--epsilno", "1"), nothing, "UsageError: .*--epsilno"),
    (("fti",), nothing, "UsageError: .*fti"),
    (("ledger", "create", "c.ledger", "--currency", "gold"), nothing, "InvalidParameter: .*currency"),
    (("schema", "people.csv", "--label", "wage"), nothing, "MissingColumn: the label column 'wage'"),
    (("compare", "--data", "synthetic", "--methods", "atuo"), nothing, "InvalidParameter: .*did you mean 'auto'"),
    (("compare", "--data", "adlut"), nothing, "UnknownDataset: .*did you mean 'adult'"),
    (("compare", "--data", "synthetic", "--folds", "1"), nothing, "InvalidParameter: folds"),
    (("compare", "--data", "people.csv", "--methods", "auto"), nothing, "InvalidParameter: .* needs a schema"),
    (("reproduce", "000/figure99"), nothing, "InvalidParameter|UnknownDataset"),
    (("demo", "--epsilon", "-1"), nothing, "InvalidParameter: epsilon"),
    (("demo", "--dataset", "mnits"), nothing, "UnknownDataset"),
]

PATHS: list[Case] = [
    ((*FIT[:4], "--output", ".", *FIT[6:]), nothing, "OutputNotWritable: .* it is a folder"),
    (
        (*FIT[:4], "--output", "people.csv/m.json", *FIT[6:]),
        nothing,
        "OutputNotWritable: .* a file is where its folder should be",
    ),
    ((*FIT[:4], "--output", "/proc/m.json", *FIT[6:]), nothing, "OutputNotWritable"),
    ((*FIT[:4], "--output", "b.ledger", *FIT[6:]), nothing, "OutputNotWritable: .* a ledger or another database"),
    ((*FIT[:4], "--output", "people.csv", *FIT[6:]), nothing, "OutputNotWritable: .* reads or writes another thing"),
    ((*FIT, "--json", "m.json"), nothing, "OutputNotWritable: .* reads or writes another thing"),
    ((*FIT[:6], "--ledger", "x" * 300), nothing, "LedgerNotWritable: .* too long"),
    ((*FIT, "--json", "folder"), nothing, "OutputNotWritable: .* it is a folder"),
    ((*FIT[:6], "--ledger", "no.ledger"), nothing, "LedgerError: there is no ledger at .*dpdescent ledger create"),
    ((*FIT[:6], "--ledger", "."), nothing, "LedgerError: .* is a folder"),
    ((*FIT[:6], "--ledger", "people.csv"), nothing, "LedgerFormatError: .* is not a dpdescent ledger"),
    (FIT, spent, "BudgetExhausted: .* enough left for a fit of epsilon 0.0.* asks for epsilon 1 "),
    (FIT, edited, "LedgerFormatError: .* changed from outside"),
    (("ledger", "."), nothing, "LedgerError: .* is a folder"),
    (("ledger", "create", "b.ledger"), nothing, "LedgerError: there is a ledger"),
    (("ledger", "create", "people.csv/b.ledger"), nothing, "OutputNotWritable"),
    (("ledger", "export", "b.ledger", "--output", "folder"), nothing, "OutputNotWritable"),
    (("predict", "no.json", "people.csv"), nothing, "ModelFormatError: there is no model"),
    (("predict", "folder", "people.csv"), nothing, "ModelFormatError: .* Is a directory"),
    (("predict", "people.csv", "people.csv"), nothing, "ModelFormatError: .* it is no model"),
    (PREDICT, model(coefficients=[[0.5] * 3]), "ModelFormatError: .* is damaged"),
    (PREDICT, model(intercepts=None), "ModelFormatError: .* is damaged"),
    (PREDICT, model(weights=[]), "ModelFormatError: .* is damaged"),
    ((*PREDICT, "--keep", "nmae"), nothing, "MissingColumn: .*'nmae'.* to be kept"),
    ((*PREDICT, "--output", "folder"), nothing, "OutputNotWritable"),
    (("predict", "model.json", "nowhere.csv"), nothing, "DatasetNotAvailable"),
    (("predict", "model.json", "people.npz"), nothing, "ModelFormatError: .* 12 features and the table 2"),
    (("demo", "--picture", "folder"), nothing, "OutputNotWritable"),
    (("demo", "--picture", "demo.doc"), nothing, "InvalidParameter: --picture must end in"),
    (("schema", "people.csv", "--label", "left", "--output", "folder"), nothing, "OutputNotWritable"),
    (("schema", "people.csv", "--label", "left"), nothing, "SchemaError: .* is there: .*--force"),
    (("compare", "--data", "synthetic", "--html", "folder"), nothing, "OutputNotWritable"),
    (("reproduce", "000/table1", "--output", "people.csv"), nothing, "OutputNotWritable"),
]
CASES = [*FILES, *SCHEMAS, *ARGUMENTS, *PATHS]


@pytest.mark.parametrize(("command", "spoil", "message"), CASES)
def test_a_bad_input_is_one_named_line_that_shows_no_cell_and_charges_nothing(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: tuple[str, ...],
    spoil: Callable[[], None],
    message: str,
) -> None:
    monkeypatch.delenv("DPDESCENT_DEBUG", raising=False)
    spoil()
    before = Path("b.ledger").read_bytes()
    monkeypatch.setattr(sys, "argv", ["dpdescent", *command])
    with pytest.raises(SystemExit) as ended:
        main()
    out, err = capsys.readouterr()
    assert re.match(message, err), err
    assert ended.value.code == (2 if err.startswith("UsageError") else 1)
    assert err.count("\n") == 1, err
    assert "Traceback" not in out + err
    assert SECRET not in out + err
    assert not re.search(r"\w+=[\w'\"(.]|\w\(\.\.\.|\b[A-Z]\w+\(|\bNone\b", err), f"speaks Python: {err}"
    assert Path("b.ledger").read_bytes() == before
    assert not Path("m.json").exists()


def test_there_are_sixty_of_them_and_more() -> None:
    assert len(CASES) >= 60
    assert len({(command, spoil, message) for command, spoil, message in CASES}) == len(CASES)
