"""A schema says what is public; a draft reads no cell; every refusal names the place."""

from __future__ import annotations

import json

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, strategies as st

from dpdescent.errors import ColumnTypeError, InvalidParameter, MissingColumn, MissingValue, SchemaError, UnknownLevel
from dpdescent.tables import (
    FILL_IN,
    CategoricalColumn,
    IgnoredColumn,
    Label,
    NumericColumn,
    Schema,
    draft_schema,
)

DOCUMENT = {
    "columns": {
        "age": {"type": "numeric", "low": 17, "high": 90},
        "id": {"type": "ignore"},
        "job": {"type": "categorical", "levels": ["clerk", "nurse"]},
    },
    "label": {"column": "income", "classes": ["low", "high"]},
    "rows": 100,
}


def changed(**changes):
    """Return the document with dotted places changed; None removes a key."""
    document = json.loads(json.dumps(DOCUMENT))
    for place, value in changes.items():
        *path, key = place.split("__")
        target = document
        for step in path:
            target = target[step]
        if value is None:
            del target[key]
        else:
            target[key] = value
    return document


def write(path, document):
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def test_file_round_trip_keeps_everything(tmp_path):
    schema = Schema.load(write(tmp_path / "schema.json", DOCUMENT))
    assert schema == Schema(
        (NumericColumn("age", 17, 90), IgnoredColumn("id"), CategoricalColumn("job", ("clerk", "nurse"))),
        Label("income", ("low", "high")),
        rows=100,
    )
    schema.dump(tmp_path / "again.json")
    assert Schema.load(tmp_path / "again.json") == schema
    assert json.loads((tmp_path / "again.json").read_text(encoding="utf-8")) == DOCUMENT
    assert hash(schema) == hash(Schema.load(tmp_path / "again.json"))


names = st.text(min_size=1, max_size=8).filter(lambda text: text != FILL_IN)
levels = st.lists(names, min_size=2, max_size=4, unique=True).map(tuple)
numeric = st.builds(NumericColumn, names, st.integers(-9, 0), st.floats(0.5, 9))
columns = st.lists(
    st.one_of(numeric, st.builds(CategoricalColumn, names, levels)),
    min_size=1,
    max_size=5,
    unique_by=lambda c: c.name,
)


@given(columns=columns, classes=levels, rows=st.none() | st.integers(1, 10**9))
def test_every_schema_survives_json(columns, classes, rows):
    schema = Schema(tuple(columns), Label("the label column", classes), rows)
    assert Schema.from_dict(json.loads(json.dumps(schema.to_dict()))) == schema


def test_label_may_be_a_number(tmp_path):
    document = changed(label={"column": "income", "low": 0, "high": 10})
    schema = Schema.load(write(tmp_path / "schema.json", document))
    assert schema.to_dict() == document
    assert schema.labels(pd.DataFrame({"income": [-1, 5, 50]})).tolist() == [0, 5, 10]
    with pytest.raises(ColumnTypeError, match="income"):
        schema.labels(pd.DataFrame({"income": ["5"]}))


def test_encoder_skips_label_and_ignored_columns():
    schema = Schema.from_dict(DOCUMENT)
    table = pd.DataFrame({"income": ["low"], "job": ["nurse"], "id": ["x"], "age": [90]})
    assert schema.encoder().fit_transform(table).tolist() == [[1, 0, 1]]
    assert schema.encoder().fit(table).transform(table[["age", "job"]]).tolist() == [[1, 0, 1]]
    assert schema.features == ("age", "job")
    other = schema.encoder(unknown="zero", missing="midpoint", sparse_output=True)
    assert other.fit_transform(table.assign(job="secret", age=np.nan)).toarray().tolist() == [[0.5, 0, 0]]


def test_labels_are_checked_without_showing_a_cell():
    schema = Schema.from_dict(DOCUMENT)
    labels = schema.labels(pd.DataFrame({"income": ["low", "high", "low"]}))
    assert labels.tolist() == ["low", "high", "low"]
    assert labels.dtype.kind == "U"
    with pytest.raises(UnknownLevel, match=r"'income'.*2 public classes") as caught:
        schema.labels(pd.DataFrame({"income": ["low", "secret"]}))
    assert "secret" not in str(caught.value)
    with pytest.raises(MissingValue, match="income"):
        schema.labels(pd.DataFrame({"income": ["low", None]}))
    with pytest.raises(MissingColumn, match="income"):
        schema.labels(pd.DataFrame({"outcome": ["low"]}))


def test_number_and_mixed_classes_keep_their_types():
    assert Schema((NumericColumn("x", 0, 1),), Label("y", (0, 1))).labels(pd.DataFrame({"y": [1, 0]})).tolist() == [
        1,
        0,
    ]
    mixed = Schema((NumericColumn("x", 0, 1),), Label("y", (0, "many")))
    assert mixed.labels(pd.DataFrame({"y": ["many", 0]}, dtype=object)).tolist() == ["many", 0]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (changed(columns__age__low=None), r"columns\.age\.low: must be a finite number, it is missing"),
        (changed(columns__age__low="17"), r"columns\.age\.low: must be a finite number"),
        (changed(columns__age__high=True), r"columns\.age\.high: must be a finite number"),
        (changed(columns__age__high=17), r"columns\.age: low must be less than high"),
        (changed(columns__age__unit="years"), r"columns\.age: the key 'unit' is not known"),
        (changed(columns__age__type="number"), r"columns\.age\.type: must be one of .* did you mean 'numeric'"),
        (changed(columns__age=7), r"columns\.age\.type"),
        (changed(columns__job__levels=None), r"columns\.job: the key 'levels' is missing"),
        (changed(columns__job__levels=[]), r"columns\.job\.levels: must have at least 1 entry"),
        (changed(columns__job__levels="clerk"), r"columns\.job\.levels: must be a list"),
        (changed(columns__job__levels=["a", "a"]), r"columns\.job\.levels: entries must all differ"),
        (changed(columns__job__levels=[1, True]), r"columns\.job\.levels: entries must all differ"),
        (changed(columns__job__levels=[["a"]]), r"columns\.job\.levels: each entry must be text"),
        (changed(columns__id__levels=["a"]), r"columns\.id: the key 'levels' is not known"),
        (changed(columns__income={"type": "ignore"}), r"'income' is the label and is also listed"),
        (changed(columns={}), r"columns: at least one column"),
        (changed(columns=[]), r"columns: must be an object"),
        (changed(columns=None), r"the key 'columns' is missing"),
        (changed(label=None), r"the key 'label' is missing"),
        (changed(label="income"), r"label: must be a JSON object"),
        (changed(label__column=3), r"label\.column: must be a column name"),
        (changed(label__classes=None, label__low=0), r"label\.high: must be a finite number, it is missing beside"),
        (changed(label__classes=["one"]), r"label\.classes: must have at least 2 entries"),
        (changed(label__low=0), r"label: give either classes or low and high"),
        (changed(rows=0), r"rows: must be a whole number"),
        (changed(rows=1.5), r"rows: must be a whole number"),
        (changed(rows=True), r"rows: must be a whole number"),
        (changed(version=2), r"the key 'version' is not known"),
        ([], r"the schema: must be a JSON object"),
    ],
)
def test_bad_schema_is_refused_with_the_place(document, message, tmp_path):
    with pytest.raises(SchemaError, match=message):
        Schema.load(write(tmp_path / "schema.json", document))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not valid JSON"),
        ('{"columns": {"a": {"type": "ignore"}, "a": {"type": "ignore"}}}', "'a' occurs twice"),
        ('{"columns": {"a": {"type": "numeric", "low": NaN, "high": 1}}}', "NaN is not allowed"),
        ('{"columns": {"a": {"type": "numeric", "low": 0, "high": 1e999}}}', "Infinity|finite|missing"),
    ],
)
def test_bad_json_is_refused(text, message, tmp_path):
    path = tmp_path / "schema.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(SchemaError, match=message):
        Schema.load(path)
    with pytest.raises(SchemaError, match="cannot be read"):
        Schema.load(tmp_path / "absent.json")


def test_column_declared_twice_is_refused():
    with pytest.raises(SchemaError, match="declared twice"):
        Schema((NumericColumn("x", 0, 1), IgnoredColumn("x")), Label("y", (0, 1)))


# ---------------------------------------------------------------- drafts


def test_csv_draft_reads_the_header_alone(tmp_path):
    path = tmp_path / "private.csv"
    # What follows the header is not even text, so reading on would fail.
    path.write_bytes("\ufeffage,job,income\n".encode() + b"\xff\xfe\x00" * 5)
    draft = draft_schema(path)
    assert draft.to_dict() == {
        "columns": {name: {"type": FILL_IN} for name in ("age", "job", "income")},
        "label": {"column": FILL_IN, "classes": FILL_IN},
    }


def test_csv_draft_takes_the_word_of_the_caller(tmp_path):
    path = tmp_path / "private.csv.gz"
    pd.DataFrame({"age": [33], "job": ["nurse"], "id": [1], "income": ["low"]}).to_csv(path, index=False, sep=";")
    types = {"age": "numeric", "job": "categorical", "id": "ignore"}
    draft = draft_schema(str(path), label="income", types=types, separator=";")
    assert draft.places == ("columns.age.low", "columns.age.high", "columns.job.levels", "label.classes")
    assert "33" not in json.dumps(draft.to_dict())
    assert "nurse" not in json.dumps(draft.to_dict())


def test_parquet_draft_uses_storage_types_and_no_statistics(tmp_path):
    path = tmp_path / "private.parquet"
    table = pa.table(
        {
            "age": pa.array([4711, 4712], pa.int32()),
            "weight": pa.array([0.1, 0.2], pa.float64()),
            "job": pa.array(["secret", "nurse"]),
            "kind": pa.array(["secret", "b"]).dictionary_encode(),
            "member": pa.array([True, True]),
            "born": pa.array([0, 1], pa.timestamp("s")),
            "__index_level_0__": pa.array([1, 2]),
            "income": pa.array(["low", "high"]),
        }
    )
    pq.write_table(table, path)
    draft = draft_schema(path, label="income").to_dict()
    assert draft["columns"] == {
        "age": {"type": "numeric", "low": FILL_IN, "high": FILL_IN},
        "weight": {"type": "numeric", "low": FILL_IN, "high": FILL_IN},
        "job": {"type": "categorical", "levels": FILL_IN},
        "kind": {"type": "categorical", "levels": FILL_IN},
        "member": {"type": "categorical", "levels": [False, True]},
        "born": {"type": "date", "low": FILL_IN, "high": FILL_IN},
        "__index_level_0__": {"type": "ignore"},
    }
    text = json.dumps(draft)
    assert "secret" not in text
    assert "471" not in text


def test_draft_is_refused_with_the_list_of_places_until_filled_in(tmp_path):
    path = tmp_path / "schema.json"
    draft_schema(["age", "job", "income"], label="income", types={"age": "numeric"}).dump(path)
    with pytest.raises(SchemaError) as caught:
        Schema.load(path)
    for place in ("columns.age.low", "columns.age.high", "columns.job.type", "label.classes"):
        assert place in str(caught.value)
    document = json.loads(path.read_text(encoding="utf-8"))
    document["columns"]["age"] |= {"low": 17, "high": 90}
    document["columns"]["job"] = {"type": "categorical", "levels": ["clerk", FILL_IN]}
    document["label"]["classes"] = ["low", "high"]
    with pytest.raises(SchemaError, match=r"at: columns\.job\.levels\[1\]\. "):
        Schema.load(write(path, document))
    document["columns"]["job"]["levels"] = ["clerk", "nurse"]
    assert Schema.load(write(path, document)).features == ("age", "job")


def test_bad_draft_requests_are_refused(tmp_path):
    with pytest.raises(InvalidParameter, match="label column 'y'"):
        draft_schema(["x"], label="y")
    with pytest.raises(InvalidParameter, match="names the column 'z'"):
        draft_schema(["x"], types={"z": "numeric"})
    with pytest.raises(InvalidParameter, match="must be one of"):
        draft_schema(["x"], types={"x": "int"})
    with pytest.raises(SchemaError, match="correct the path"):
        draft_schema(tmp_path / "absent.csv")
    for name, content, message in (
        ("twice.csv", b"a,a\n", "distinct"),
        ("empty.csv", b"", "is empty"),
        ("table.xlsx", b"", "neither"),
        ("broken.parquet", b"secret", "not a readable Parquet"),
    ):
        (tmp_path / name).write_bytes(content)
        with pytest.raises(SchemaError, match=message) as caught:
            draft_schema(tmp_path / name)
        assert "secret" not in str(caught.value)
