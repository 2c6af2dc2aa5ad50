"""Text tables as they are: separators, encodings, compression, dates, blanks, and what a schema says of them."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from dpdescent import DPLogisticRegression, Schema, load_dataset
from dpdescent.errors import ColumnTypeError, DatasetFormatError, InvalidParameter, SchemaError, UnknownLevel
from dpdescent.tables import (
    FILL_IN,
    BoundedEncoder,
    CategoricalColumn,
    DateColumn,
    HashedColumn,
    Label,
    NumericColumn,
    bucket_codes,
    draft_schema,
    json_schema,
    read_table,
    stream_text,
)
from dpdescent.tables.delimited import read_header
from dpdescent.tables.schema_file import KINDS

COLUMNS = {
    "age": {"type": "numeric", "low": 0, "high": 100, "missing": "midpoint"},
    "job": {"type": "categorical", "levels": ["clerk", "é"], "missing": "level", "unknown": "other"},
    "town": {"type": "hashed", "buckets": 4, "missing": "level"},
    "hired": {"type": "date", "low": "2000-01-01", "high": "2000-01-11", "missing": "level"},
}
DOCUMENT = {"columns": COLUMNS, "label": {"column": "left", "classes": ["no", "yes"]}}
ROWS = [
    ("age", "job", "town", "hired", "left"),
    ("50", "é", "Oslo", "2000-01-02", "no"),
    ("", "", "", "", "yes"),
    ("250", "smith", "Rome, old", "2000-01-11T12:00", "no"),
]
# age, hired | hired (missing) | clerk, é, other, missing | buckets and missing
OSLO, ROME = (int(code) for code in bucket_codes(pd.Series(["Oslo", "Rome, old"]), "town", 4))
EXPECTED = np.zeros((3, 12))
EXPECTED[0, [0, 1, 4, 7 + OSLO]] = [0.5, 0.1, 1, 1]
EXPECTED[1, [0, 2, 6, 11]] = [0.5, 1, 1, 1]
EXPECTED[2, [0, 1, 5, 7 + ROME]] = 1


def written(path: Path, separator: str, encoding: str = "utf-8") -> Path:
    frame = pd.DataFrame(ROWS[1:], columns=ROWS[0])
    text = frame.to_csv(index=False, sep=separator)
    data = text.encode(encoding)
    path.write_bytes(gzip.compress(data) if path.suffix == ".gz" else data)
    return path


@pytest.mark.parametrize("separator", [",", ";", "\t", "|"])
@pytest.mark.parametrize(
    ("name", "encoding"),
    [
        ("a.csv", "utf-8"),
        ("a.csv", "utf-8-sig"),
        ("a.txt", "utf-16"),
        ("a.tsv.gz", "utf-8"),
        ("a.csv.gz", "utf-8-sig"),
    ],
)
def test_a_table_is_read_whatever_its_separator_encoding_and_compression(
    tmp_path: Path, separator: str, name: str, encoding: str
) -> None:
    data = load_dataset(written(tmp_path / name, separator, encoding), schema=Schema.from_dict(DOCUMENT))
    assert data.X.tolist() == EXPECTED.tolist()
    assert data.y.tolist() == ["no", "yes", "no"]
    assert data.feature_names[:7] == (
        *("age", "hired", "hired (missing)", "job=clerk", "job=é", "job (other)", "job (missing)"),
    )
    assert data.feature_names[7:] == ("town#0", "town#1", "town#2", "town#3", "town (missing)")
    assert data.binary_features.tolist() == [False] * 2 + [True] * 10
    assert (np.linalg.norm(data.X, axis=1) <= np.sqrt(4)).all()


def test_other_encodings_decimals_and_separators_are_declared(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes("pay:job:left\n1,5:é:no\n2,5:clerk:yes\n".encode("latin-1"))
    document = {
        "columns": {
            "pay": {"type": "numeric", "low": 0, "high": 10},
            "job": {"type": "categorical", "levels": ["é", "clerk"]},
        },
        "label": DOCUMENT["label"],
    }
    with pytest.raises(DatasetFormatError, match="one column"):
        load_dataset(path, schema=Schema.from_dict(document))
    document["file"] = {"separator": ":", "decimal": ","}
    with pytest.raises(DatasetFormatError, match=r"line 2 of .* is not UTF-8 text: .*latin-1"):
        load_dataset(path, schema=Schema.from_dict(document))
    document["file"]["encoding"] = "latin-1"
    schema = Schema.from_dict(document)
    assert load_dataset(path, schema=schema).X.tolist() == [[0.15, 1, 0], [0.25, 0, 1]]
    assert Schema.from_dict(schema.to_dict()) == schema


def test_how_a_table_is_read_depends_on_its_first_line_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_bytes(b"a;b,c\n" + b"1,2,3,4\n" * 50)
    assert read_header(path, wanted=("a", "b,c")).separator == ";"
    assert read_header(path, wanted=("a;b", "c")).separator == ","
    path.write_bytes(b"a;b\n" + b"\xff\xfe,,,,\n")
    assert read_header(path).names == ("a", "b")


def test_dates_have_a_form_and_no_cell_is_shown(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("hired,left\n31.12.2000,no\n01.01.2001,yes\n")
    schema = Schema((DateColumn("hired", "2000-12-31", "2001-01-02", "%d.%m.%Y"),), Label("left", ("no", "yes")))
    assert load_dataset(path, schema=schema).X.tolist() == [[0.0], [0.5]]
    wrong = Schema((DateColumn("hired", "2000-12-31", "2001-01-02"),), Label("left", ("no", "yes")))
    with pytest.raises(ColumnTypeError, match="not a date like 2020-12-31") as caught:
        load_dataset(path, schema=wrong)
    assert "31.12" not in str(caught.value)
    frame = pd.DataFrame({"hired": pd.to_datetime(["2000-12-31", "2001-01-01"]), "left": ["no", "yes"]})
    frame.to_parquet(tmp_path / "a.parquet")
    assert load_dataset(tmp_path / "a.parquet", schema=schema).X.tolist() == [[0.0], [0.5]]
    frame.assign(hired=[1, 2]).to_parquet(tmp_path / "a.parquet")
    with pytest.raises(ColumnTypeError, match="holds numbers"):
        load_dataset(tmp_path / "a.parquet", schema=schema)


def test_buckets_are_the_same_on_every_machine_and_differ_between_columns() -> None:
    towns = pd.Series([f"town {number}" for number in range(4000)] + [None])
    codes = bucket_codes(towns, "town", 16)
    digests = (hashlib.blake2b(f"town\0{town}".encode(), digest_size=8).hexdigest() for town in towns[:-1])
    assert codes[:-1].tolist() == [int(digest, 16) % 16 for digest in digests]
    assert codes[:6].tolist() == [2, 9, 2, 6, 5, 14]
    assert codes[-1] == -1
    # Four standard deviations of 16 counts of 250: wrong once in a thousand draws, and this hash is fixed.
    assert np.abs(np.bincount(codes[:-1], minlength=16) - 250).max() < 4 * np.sqrt(250)
    assert np.mean(codes == bucket_codes(towns, "village", 16)) < 0.1
    assert bucket_codes(towns.astype("category"), "town", 16).tolist() == codes.tolist()


def test_choices_for_missing_and_unknown_cells_may_be_overruled_for_all_columns(tmp_path: Path) -> None:
    schema, path = Schema.from_dict(DOCUMENT), written(tmp_path / "a.csv", ",")
    zeros = load_dataset(path, schema=schema, missing="midpoint", unknown="zero")
    assert zeros.feature_names == ("age", "hired", "job=clerk", "job=é", "town#0", "town#1", "town#2", "town#3")
    assert zeros.X[1].tolist() == [0.5, 0.5, 0, 0, 0, 0, 0, 0]
    assert zeros.X[2, 2:4].tolist() == [0, 0]
    with pytest.raises(UnknownLevel, match="'job'"):
        load_dataset(path, schema=schema, unknown="error")
    for choice in ({"missing": "zero"}, {"unknown": "level"}):
        with pytest.raises(SchemaError, match="must be one of"):
            load_dataset(path, schema=schema, **choice)


def test_the_encoder_refuses_choices_that_have_no_meaning() -> None:
    frame = pd.DataFrame({"age": [1.0]})
    with pytest.raises(InvalidParameter, match="no midpoint"):
        BoundedEncoder({"age": None}, missing="midpoint").fit(frame)
    with pytest.raises(InvalidParameter, match="2 buckets or more"):
        BoundedEncoder(hashed={"age": 1}).fit(frame)
    with pytest.raises(InvalidParameter, match="unknown must be one of 'error', 'zero', 'other'"):
        BoundedEncoder({"age": (0, 1)}, unknown={"age": "level"}).fit(frame)
    filled = BoundedEncoder({"age": None}, missing="level").fit_transform(pd.DataFrame({"age": [7.0, np.nan]}))
    assert filled.tolist() == [[7.0, 0.0], [0.0, 1.0]]


def test_columns_without_bounds_stay_raw_until_a_fit_measures_them(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    pay = np.exp(generator.normal(9, 0.5, 4000))
    label = np.where(np.log(pay) + generator.normal(0, 0.2, 4000) > 9, "yes", "no")
    frame = pd.DataFrame({"pay": pay, "age": generator.integers(0, 101, 4000), "left": label})
    frame.to_csv(tmp_path / "a.csv", index=False)
    schema = Schema((NumericColumn("pay"), NumericColumn("age", 0, 100)), Label("left", ("no", "yes")))
    assert schema.to_measure == ("pay",)
    data = load_dataset(tmp_path / "a.csv", schema=schema)
    np.testing.assert_allclose(data.X[:, 0], pay)
    assert np.isnan(data.bounds[0]).tolist() == [True, False]
    model = DPLogisticRegression(
        1.0, 1e-6, bounds=data.bounds, classes=data.classes, binary_features=data.binary_features, random_state=0
    ).fit(data.X, data.y)
    low, high = model.bounds_
    assert (low[1], high[1]) == (0, 1), "stated bounds are not measured"
    assert 0 <= low[0] < np.quantile(pay, 0.05) < np.quantile(pay, 0.95) < high[0] < 20 * np.quantile(pay, 0.95)
    assert model.score(data.X, data.y) > 0.85
    histograms = [count for label, count in model.privacy_["asked"].items() if "histogram" in label]
    assert sum(histograms) == 2
    assert any("bounds of 1 column were measured" in remark for remark in model.privacy_["remarks"])


def test_what_is_measured_does_not_pay_for_columns_whose_bounds_are_stated() -> None:
    generator = np.random.default_rng(1)
    X, y = generator.random((5000, 8)), np.arange(5000) % 2
    spent = []
    for gaps in (1, 8):
        low = np.where(np.arange(8) < gaps, np.nan, 0.0)
        model = DPLogisticRegression(0.3, 1e-6, bounds=(low, low + 1), classes=(0, 1), random_state=0).fit(X, y)
        spent.append(sum(share for what, share in model.privacy_["spent_on"].items() if "histogram" in what))
    assert 0 < spent[0] < spent[1]
    with pytest.raises(InvalidParameter, match="must be finite"):
        DPLogisticRegression(bounds=(np.nan, 1.0), classes=(0, 1)).fit(X, y)


def test_every_problem_of_a_schema_is_listed_at_once() -> None:
    document = json.loads(json.dumps(DOCUMENT)) | {"row": 3, "missing": "none"}
    document["columns"] |= {"pay": {"type": "numeric", "lwo": 1}, "sex": {"type": "category"}, "x": {"type": FILL_IN}}
    document["columns"]["town"]["buckets"] = 0
    document["label"] = {"column": "age", "classes": ["one"]}
    with pytest.raises(SchemaError) as caught:
        Schema.from_dict(document)
    places = [problem.split(":")[0] for problem in caught.value.problems]
    assert places[0].startswith("the schema still has 'FILL IN' at")
    assert places[1:] == ["the schema", "columns.town.buckets", "columns.pay", "columns.sex.type", "label.classes"]
    hints = ("did you mean 'rows'", "did you mean 'low'", "did you mean 'categorical'")
    assert all(hint in str(caught.value) for hint in hints)


def test_the_json_schema_knows_the_keys_that_the_reader_knows() -> None:
    described = json_schema()
    variants = described["properties"]["columns"]["additionalProperties"]["oneOf"]
    assert [variant["title"] for variant in variants] == list(KINDS)
    for variant, kind in zip(variants, KINDS.values(), strict=True):
        assert set(variant["properties"]) == {"type", "note", *kind.keys}
        example = Schema.from_dict({"columns": {"x": kind.example, "y": COLUMNS["age"]}, "label": DOCUMENT["label"]})
        assert example.to_dict()["columns"]["x"] == kind.example
        assert set(kind.example) <= set(variant["properties"])
        assert set(variant["required"]) <= set(kind.example)


def test_a_draft_explains_itself_and_leaves_identifiers_out(tmp_path: Path) -> None:
    names = ["customer_id", "CustomerID", "e-mail", "name", "paid", "idle", "width", "age", "left"]
    (tmp_path / "a.csv").write_text(";".join(names) + "\nsecret\n")
    draft = draft_schema(tmp_path / "a.csv", label="left")
    assert draft.identifiers == ("customer_id", "CustomerID", "e-mail", "name")
    draft.dump(tmp_path / "a.schema.json")
    document = json.loads((tmp_path / "a.schema.json").read_text())
    assert (tmp_path / document["$schema"]).is_file()
    assert set(document["help"]["types of columns"]) == set(KINDS)
    assert "secret" not in (tmp_path / "a.schema.json").read_text()
    for name in ("paid", "idle", "width"):
        document["columns"][name] = {"type": "numeric"}
    document["columns"]["age"] = COLUMNS["age"] | {"note": "in years"}
    document["label"]["classes"] = ["no", "yes"]
    assert Schema.from_dict(document).features == ("paid", "idle", "width", "age")


def test_no_row_decides_how_another_is_read(tmp_path: Path) -> None:
    """A neighbour's cell must not change the type of a column: then one person would move all rows."""
    document = {
        "columns": {
            "kind": {"type": "categorical", "levels": [0, 1, "many"], "unknown": "other", "missing": "level"},
            "flag": {"type": "categorical", "levels": [False, True], "unknown": "zero", "missing": "level"},
            "big": {"type": "numeric", "low": 0, "high": 2**62, "missing": "midpoint"},
            "hired": {"type": "date", "low": "2000-01-01", "high": "2030-01-01", "missing": "level"},
        },
        "label": {"column": "left", "classes": [0, 1]},
    }
    schema = Schema.from_dict(document)
    mine = "1,True,9007199254740993,2011-05-01T10:11:12,1"
    others = [
        *("many,x,0.5,2011-05-01T10:11:12.123456789,0", "0,0,,,1", "x,true,NA,2001-01-01,0"),
        *(",,1e18,2011-05-01T00:00:00+02:00,1", "1.0,false,3,,0"),
    ]
    alone = None
    for extra in [[], *([other] for other in others), others]:
        (tmp_path / "a.csv").write_text("\n".join(["kind,flag,big,hired,left", mine, *extra]) + "\n")
        data = load_dataset(tmp_path / "a.csv", schema=schema)
        alone = data.X[0].tolist() if alone is None else alone
        assert data.X[0].tolist() == alone, extra
        assert data.y[0] == 1
    row = dict(zip(data.feature_names, alone, strict=True))
    assert row["kind=1"] == row["flag=True"] == 1


def test_a_cell_is_missing_in_a_file_where_it_is_in_a_dataframe(tmp_path: Path) -> None:
    """`pandas.read_csv` takes NA, None and others for missing; so does a file, unless a level is written so."""
    blanks = ["NA", "None", "n/a", "", "null", "#N/A", "<NA>"]
    rows = [f"{blank},{blank},{blank},{number % 2}" for number, blank in enumerate(blanks)]
    text = "\n".join(["job,pay,town,won", *rows, "nurse,1.5,Oslo,1", "clerk,2,NA ,0"])
    (tmp_path / "t.csv").write_text(text)
    columns = (
        CategoricalColumn("job", ("clerk", "nurse"), missing="level", unknown="other"),
        NumericColumn("pay", 0, 2, missing="level"),
        HashedColumn("town", 4, missing="level"),
    )
    schema = Schema(columns, Label("won", (0, 1)))
    encoder = schema.encoder()
    from_file = encoder.fit_transform(read_table(tmp_path / "t.csv", schema))
    assert np.array_equal(from_file, encoder.transform(pd.read_csv(tmp_path / "t.csv")))
    assert from_file[: len(blanks), list(encoder.get_feature_names_out()).index("job (missing)")].all()
    assert np.array_equal(stream_text(tmp_path / "t.csv", schema).gathered()[0], from_file)
    listed = dataclasses.replace(columns[0], levels=("NA", "nurse", "clerk"))
    kept = read_table(tmp_path / "t.csv", dataclasses.replace(schema, columns=(listed, *columns[1:])))
    assert kept["job"].isna().sum() == len(blanks) - 1
