"""A schema that is measured: what is found, what it costs, and what never leaves."""

from __future__ import annotations

import dataclasses
import json

import numpy as np
import pandas as pd
import pytest

from dpdescent import Ledger, PrivacyStatement
from dpdescent.accounting import GDP
from dpdescent.errors import (
    BudgetExhausted,
    ColumnTypeError,
    DatasetFormatError,
    InvalidParameter,
    MissingColumn,
    OneClass,
)
from dpdescent.tables import (
    CategoricalColumn,
    DateColumn,
    IgnoredColumn,
    NumericColumn,
    Schema,
    cells_in_blocks,
    measure_schema,
    open_parquet,
    read_cells_as_text,
    read_table,
    stream_text,
    text_tables,
)

ROWS = 20_000


def messy(rows: int = ROWS, seed: int = 0) -> pd.DataFrame:
    """Return a table with a bit of everything, as text in the way of files."""
    generator = np.random.default_rng(seed)
    age = generator.integers(18, 80, rows)
    job = generator.choice(["clerk", "nurse", "smith", "baker"], rows, p=[0.4, 0.3, 0.2, 0.1])
    pay = np.round(generator.lognormal(10, 0.5, rows), 2)
    days = pd.Timestamp("2015-01-01") + pd.to_timedelta(generator.integers(0, 2000, rows), unit="D")
    label = np.where(age + generator.normal(0, 10, rows) + 10 * (job == "nurse") > 55, "yes", "no")
    table = pd.DataFrame(
        {
            "id": [f"P{number:06}" for number in range(rows)],
            "age": age.astype(str),
            "job": np.char.add(" ", job.astype(str)),
            "pay": [f"{each}".replace(".", ",") for each in pay],
            "hired": pd.Series(days).dt.strftime("%d/%m/%Y"),
            "code": generator.integers(1, 5, rows).astype(str),
            "note": ["long text " * 12] * rows,
            "same": "x",
            "gone": "NA",
            "town": generator.choice([f"town {number}" for number in range(5000)], rows),
            "paid": label,
        }
    )
    table.loc[generator.random(rows) < 0.1, "job"] = "?"
    table.loc[generator.random(rows) < 0.02, "age"] = "unknown"
    return table


@pytest.fixture(scope="module")
def schema() -> Schema:
    return Schema.measure(messy(), label="paid", epsilon=1.0, delta=1e-6, random_state=0)


def test_types_levels_classes_and_bounds_are_found(schema: Schema) -> None:
    columns = {column.name: column for column in schema.columns}
    assert isinstance(columns["age"], NumericColumn)
    assert isinstance(columns["pay"], NumericColumn)
    assert schema.file.decimal == ","
    assert columns["hired"] == DateColumn(
        "hired", columns["hired"].low, columns["hired"].high, "%d/%m/%Y", "midpoint"
    )
    job = columns["job"]
    assert isinstance(job, CategoricalColumn)
    assert (job.levels, job.missing) == (("baker", "clerk", "nurse", "smith"), "level")
    assert columns["code"] == CategoricalColumn("code", (1, 2, 3, 4), missing="midpoint", unknown="zero")
    assert {name for name, each in columns.items() if isinstance(each, IgnoredColumn)} == {
        "id",
        "note",
        "same",
        "gone",
        "town",
    }
    assert schema.label.classes == ("no", "yes")
    low, high = columns["pay"].bounds
    assert low < 20_000 < high < 300_000
    first, last = columns["hired"].bounds
    assert first <= 16_436 + 200
    assert last >= 18_000


def test_dates_and_numbers_in_several_forms_are_all_read() -> None:
    generator = np.random.default_rng(3)
    days = pd.Series(pd.Timestamp("2015-01-01") + pd.to_timedelta(generator.integers(0, 2000, ROWS), unit="D"))
    forms = ["%Y-%m-%d", "%m/%d/%Y", "%d %b %Y"]
    table = pd.DataFrame({"paid": generator.choice(["yes", "no"], ROWS), "pay": generator.uniform(500, 9000, ROWS)})
    table["day"] = [day.strftime(forms[number % 3]) for number, day in enumerate(days)]
    table["pay"] = [f"${pay:,.2f}" for pay in table["pay"]]
    found = Schema.measure(table, label="paid", epsilon=1.0, delta=1e-6, random_state=0)
    assert [column.format for column in found.dates] == ["month first"]
    read = found.with_days(table)
    assert np.array_equal(read["day"], (days - pd.Timestamp("1970-01-01")).dt.days)
    assert read["pay"].between(500, 9000).all()
    strict = dataclasses.replace(found, unreadable="error", columns=found.dates)
    assert np.array_equal(strict.with_days(table)["day"], read["day"])
    with pytest.raises(ColumnTypeError, match="no date in any common form"):
        strict.with_days(table.assign(day="soon"))


def test_identifiers_never_leave(schema: Schema) -> None:
    text = json.dumps(schema.to_dict())
    assert "P0" not in text
    assert "town 1" not in text
    assert "long text long" not in text


def test_it_is_the_same_document_as_one_by_hand(schema: Schema, tmp_path) -> None:
    schema.dump(tmp_path / "s.json")
    again = Schema.load(tmp_path / "s.json")
    assert again.to_dict() == schema.to_dict()
    table = messy(500, seed=1)
    table.to_csv(tmp_path / "other.csv", sep=";", index=False)
    read = read_table(tmp_path / "other.csv", again)
    encoder = again.encoder()
    coded = encoder.fit_transform(read)
    assert coded.shape[0] == 500
    assert coded.min() >= 0
    assert coded.max() <= 1
    assert set(again.labels(read)) == {"no", "yes"}


def test_it_says_what_it_cost(schema: Schema) -> None:
    statement = PrivacyStatement.from_dict(schema.measured["statement"])
    assert (statement.epsilon, statement.delta, statement.private) == (1.0, 1e-6, True)
    assert schema.measured["statement"]["private"] is True
    assert 0.9 * statement.budget < statement.spent <= statement.budget
    assert list(statement.spent_on) == [
        "types of cells",
        "classes of the label",
        "levels of the columns",
        "bounds of the columns",
    ]
    assert schema.measured["columns"]["job"]["missing_share"] == pytest.approx(0.1, abs=0.03)


def test_a_ledger_pays_and_keeps_the_entry() -> None:
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    Schema.measure(messy(), label="paid", epsilon=0.5, delta=1e-7, ledger=ledger)
    assert [line.entry.label for line in ledger.history] == ["measured schema"]
    assert 0 < ledger.spent < 0.2 * ledger.budget
    with pytest.raises(BudgetExhausted):
        Schema.measure(messy(), label="paid", epsilon=2.0, delta=1e-6, ledger=ledger)


def test_an_old_ledger_pays_with_the_part_that_it_has() -> None:
    ledger = Ledger(2.0, 1e-6, currency="zcdp")
    found = Schema.measure(messy(), label="paid", epsilon=1.0, delta=1e-7, ledger=ledger)
    assert found.label.classes == ("no", "yes")
    assert sum(entry.cost.delta for entry in ledger.entries) <= float(ledger.failure_limit)


def test_what_is_declared_costs_nothing() -> None:
    declared = {
        name: IgnoredColumn(name) for name in ("id", "note", "same", "gone", "town", "hired", "pay", "age", "code")
    }
    declared["job"] = CategoricalColumn("job", ("clerk", "nurse"), missing="level", unknown="other")
    found = Schema.measure(
        messy(), label="paid", epsilon=1.0, delta=1e-6, declared=declared, classes=("no", "yes"), random_state=1
    )
    assert [each["label"] for each in found.measured["statement"]["charges"]] == ["types of cells"]
    assert found.categorical == (declared["job"],)


def test_categories_and_truth_values_are_public() -> None:
    table = messy()[["job", "age", "paid"]]
    table["job"] = table["job"].astype("category")
    table["new"] = np.arange(len(table)) % 2 == 0
    found = Schema.measure(table, label="paid", epsilon=1.0, delta=1e-6, random_state=1)
    assert "job" not in found.measured["columns"]
    facts = found.measured["statement"]["assumed_public"]
    assert "categories: the levels of job, new (argument)" in facts


def test_a_column_of_numbers_is_a_number_to_predict() -> None:
    found = Schema.measure(messy(), label="pay", epsilon=1.0, delta=1e-6, random_state=1)
    assert found.label.classes is None


def test_a_number_to_predict_is_bounded_once_for_all_fits() -> None:
    found = Schema.measure(messy(), label="pay", epsilon=1.0, delta=1e-6, random_state=1)
    low, high = found.label.bounds
    pay = pd.to_numeric(messy()["pay"].str.replace(",", "."))
    assert low <= pay.quantile(0.01)
    assert pay.quantile(0.99) <= high <= 4 * pay.max()
    assert found.measured["columns"]["pay"]["kind"] == "number"


def test_numbers_among_other_cells_are_numbers_and_the_others_missing() -> None:
    """Codes that begin with a zero are levels as they are written, unless there are too many of them."""
    generator = np.random.default_rng(0)
    zips = generator.choice(["01001", "02139", "94110"], ROWS)
    many = [f"{number:05}" for number in generator.integers(0, 99_999, ROWS)]
    told = np.where(generator.random(ROWS) < 0.3, "not asked", np.round(generator.normal(size=ROWS), 3).astype(str))
    few = np.where(generator.random(ROWS) < 0.1, "refused", generator.integers(0, 90, ROWS).astype(str))
    gain = np.where(generator.random(ROWS) < 0.9, "00", generator.integers(100, 9999, ROWS).astype(str))
    table = pd.DataFrame({"zip": zips, "many": many, "told": told, "few": few, "gain": gain, "paid": messy()["paid"]})
    found = {each.name: each for each in Schema.measure(table, label="paid", epsilon=1.0, delta=1e-6).columns}
    assert found["zip"].levels == ("01001", "02139", "94110")
    assert isinstance(found["many"], NumericColumn)
    assert isinstance(found["told"], NumericColumn)
    assert isinstance(found["few"], NumericColumn)
    assert isinstance(found["gain"], NumericColumn)
    assert (found["told"].missing, found["few"].missing) == ("level", "level")


def test_noise_is_hardly_taken_for_cells_of_another_kind() -> None:
    """A table of 20 columns has a false one with 1%, and one of false missing cells with 2.7%: 5 of 20 with .1%."""
    generator = np.random.default_rng(1)
    table = pd.DataFrame({f"x{number}": generator.normal(size=3000).round(3) for number in range(20)})
    false = 0
    for seed in range(20):
        found = measure_schema(table, None, 1.0, 1e-6, random_state=seed)
        false += any(each["missing_share"] > 0 for each in found.measured["columns"].values())
    assert false <= 4


def test_rows_of_a_person_are_protected_together() -> None:
    table = messy().assign(person=np.arange(ROWS) // 4)
    options = {"epsilon": 1.0, "delta": 1e-6, "unit": "person", "rows_per_unit": 2, "random_state": 0}
    found = Schema.measure(table, label="paid", **options)
    assert (found.unit.column, found.unit.rows) == ("person", 2)
    assert found.measured["statement"]["unit"] == "one person"
    assert found.measured["rows"] == ROWS // 4
    assert "person" not in found.measured["columns"]
    ledger = Ledger(9.0, 1e-5, currency=GDP().with_failures())
    with pytest.raises(InvalidParameter, match="must keep one relation, currency and unit"):
        Schema.measure(table, label="paid", ledger=ledger, **options)  # which counts rows
    with pytest.raises(MissingColumn, match="'who'"):
        Schema.measure(table, label="paid", **(options | {"unit": "who"}))


def test_all_other_labels_are_one_class_if_a_person_says_so() -> None:
    table = messy().assign(paid=np.resize(["no"] * 999 + ["rare"], ROWS))
    found = Schema.measure(
        table, label="paid", epsilon=1.0, delta=1e-6, classes=["no", "rest"], rest="rest", regression=False
    )
    assert np.unique(found.labels(table), return_counts=True)[1].tolist() == [ROWS - 20, 20]
    with pytest.raises(InvalidParameter, match="rest must be one of the given classes"):
        Schema.measure(table, label="paid", epsilon=1.0, delta=1e-6, classes=["no", "yes"], rest="rest")


# Refusals -----------------------------------------------------------------------------------------------------------


def test_too_few_rows_are_refused_before_a_charge() -> None:
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    with pytest.raises(InvalidParameter, match=r"effective rows.*schema.*raise epsilon"):
        Schema.measure(messy(200), label="paid", epsilon=0.1, delta=1e-6, ledger=ledger)
    assert ledger.entries == ()


def test_a_label_with_one_class_is_named() -> None:
    table = messy().assign(paid="yes")
    with pytest.raises(OneClass, match=r"one class alone.*give the classes"):
        Schema.measure(table, label="paid", epsilon=1.0, delta=1e-6)


def test_a_label_that_is_not_there_is_named() -> None:
    with pytest.raises(MissingColumn, match="income"):
        Schema.measure(messy(100), label="income", epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("currency", ["pure", "approximate"])
def test_ledgers_that_cannot_pay_are_refused(currency: str) -> None:
    with pytest.raises(InvalidParameter, match="gdp"):
        Schema.measure(messy(), label="paid", epsilon=1.0, delta=1e-6, ledger=Ledger(2.0, 1e-6, currency=currency))


# Files as they are --------------------------------------------------------------------------------------------------


def test_names_that_occur_twice_are_numbered_and_cells_are_read_in_their_own_coding(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_bytes("a;a;\nä;1;x\n".encode() + "ä;2;y\n".encode("latin-1"))
    table = read_cells_as_text(path)
    assert list(table.columns) == ["a", "a.2", "column 3"]
    assert table["a"].tolist() == ["ä", "ä"]
    assert table["a.2"].tolist() == ["1", "2"]


def test_a_row_in_another_coding_changes_no_other(tmp_path) -> None:
    path = tmp_path / "t.csv"
    lines = [b"name;x\n", *(f"ä{number};1\n".encode() for number in range(5))]
    path.write_bytes(b"".join(lines))
    before = read_cells_as_text(path)
    path.write_bytes(b"".join([*lines, b"\xff\xfe;2\n"]))
    assert read_cells_as_text(path).iloc[:5].equals(before)


def test_a_name_of_two_lines_and_a_first_line_that_is_none(tmp_path) -> None:
    path = tmp_path / "t.csv"
    path.write_text('"age\n(years)",job\n1,x\n2,y\n')
    assert read_cells_as_text(path).to_dict("list") == {"age (years)": ["1", "2"], "job": ["x", "y"]}
    path.write_text("# made by hand\nage,job\n1,x\n")
    with pytest.raises(DatasetFormatError, match=r"line 2 of 't\.csv' has 2 cells and the first line has 1 names"):
        read_cells_as_text(path)
    path.write_text('5" pipe,job\n1,x\n')
    assert list(read_cells_as_text(path).columns) == ['5" pipe', "job"]
    path.write_bytes(b"age,job\r1,x\r")
    with pytest.raises(DatasetFormatError, match="carriage return"):
        read_cells_as_text(path)


# Tables that are read block by block --------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["text", "parquet", "dask"])
def test_a_table_that_is_not_in_memory_is_measured_block_by_block(
    tmp_path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is found is what is found in memory, within the noise: counts differ by .025% of the rows at most."""
    table = messy().assign(born=pd.Timestamp("1980-01-01")) if kind != "text" else messy()
    path = tmp_path / "table"
    if kind == "text":
        monkeypatch.setattr(text_tables, "_LONG", 1000)
        path = tmp_path / "table.csv"
        table.rename(columns={"age": "their\nage"}).to_csv(path, index=False, sep=";", encoding="latin-1")
    elif kind == "parquet":
        path.mkdir()
        for number in range(3):
            table.iloc[number::3].to_parquet(path / f"{number}.parquet", row_group_size=2500)
    else:
        path = pytest.importorskip("dask.dataframe").from_pandas(table, npartitions=3)
    monkeypatch.setattr(cells_in_blocks, "_ROWS", 4500)
    found = Schema.measure(path, label="paid", epsilon=1.0, delta=1e-6, random_state=0)
    whole = Schema.measure(table, label="paid", epsilon=1.0, delta=1e-6, random_state=0)
    kinds = [(type(each), getattr(each, "levels", None)) for each in found.columns if each.name != "town"]
    assert kinds == [(type(each), getattr(each, "levels", None)) for each in whole.columns if each.name != "town"]
    assert found.label == whole.label
    assert found.measured["rows"] == ROWS
    counts, same = (dict(each.measured["columns"]["job"]["levels"]) for each in (found, whole))
    assert all(abs(counts[level] - same[level]) < 0.01 * ROWS for level in same)
    assert "P000" not in found.as_text()


def test_categories_that_dask_does_not_know_are_text() -> None:
    frame = pytest.importorskip("dask.dataframe")
    table = messy()
    parts = frame.from_pandas(table.assign(job=table["job"].astype("category")), npartitions=3)
    parts["job"] = parts["job"].cat.as_unknown()
    found, plain = (
        Schema.measure(each, label="paid", epsilon=1.0, delta=1e-6, random_state=0)
        for each in (parts, frame.from_pandas(table, npartitions=3))
    )
    assert found.columns == plain.columns
    assert found.measured["columns"] == plain.measured["columns"]


def test_files_that_differ_or_are_damaged_are_named(tmp_path) -> None:
    for name, table in (("a", messy(90)), ("b", messy(90).drop(columns="age"))):
        table.to_parquet(tmp_path / f"{name}.parquet")
    with pytest.raises(DatasetFormatError, match=r"'b.parquet' has other columns than 'a.parquet'"):
        Schema.measure(tmp_path, label="paid", epsilon=1.0, delta=1e-6)
    (tmp_path / "b.parquet").write_bytes(b"PAR1 and more")
    with pytest.raises(DatasetFormatError, match=r"'b.parquet' is not a readable Parquet file"):
        Schema.measure(tmp_path, label="paid", epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("kind", ["text", "parquet"])
def test_blocks_of_a_file_are_coded_as_the_whole_is(schema: Schema, tmp_path, kind: str) -> None:
    path = tmp_path / ("t.csv" if kind == "text" else "t.parquet")
    lines = messy(3000, seed=5)
    if kind == "text":
        text = lines.rename(columns={"town": "id"})  # a name twice, which is numbered
        text = text.to_csv(index=False, sep=";").replace("nurse", "nürse")
        path.write_bytes(text[: len(text) // 2].encode() + text[len(text) // 2 :].encode("latin-1"))
    else:
        lines.to_parquet(path)
    known = dataclasses.replace(schema, columns=tuple(c for c in schema.columns if c.name not in ("town", "note")))
    open_blocks = stream_text if kind == "text" else open_parquet
    features, labels = open_blocks(path, known).gathered()
    whole = read_table(path, known)
    assert np.array_equal(features, known.encoder().fit_transform(whole[list(known.features)]))
    assert np.array_equal(labels, known.labels(whole))
