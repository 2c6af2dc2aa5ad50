"""Fits of tables of which only the names of the columns are known."""

from __future__ import annotations

import datetime
import pickle
import warnings

import numpy as np
import pandas as pd
import pyarrow as arrow
import pytest
from scipy import sparse
from sklearn.base import clone

from dpdescent import DPLinearRegression, DPLogisticRegression, Ledger, PrivacyStatement, fit_and_evaluate
from dpdescent.accounting import GDP
from dpdescent.audit import Neighbour, replay
from dpdescent.errors import (
    BudgetExhausted,
    ColumnTypeError,
    DatasetNotAvailable,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    OneClass,
    UnknownLevel,
    UnsupportedSource,
)
from dpdescent.estimators import frames
from dpdescent.estimators.payment import make_noise
from dpdescent.tables import open_cells


def people(rows: int = 6000, seed: int = 0) -> tuple[pd.DataFrame, pd.Series]:
    """Return a table with columns of all storage types, and labels."""
    generator = np.random.default_rng(seed)
    age = generator.normal(45, 12, rows).round(1)
    job = generator.choice(["clerk", "nurse", "smith"], rows)
    frame = pd.DataFrame(
        {
            "age": pd.Series(age).mask(generator.random(rows) < 0.1),
            "job": job,
            "kind": pd.Categorical(generator.choice(["a", "b"], rows), categories=["a", "b", "c"]),
            "new": pd.array(generator.random(rows) < 0.5, dtype="boolean"),
            "since": pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 900, rows), unit="D"),
            "items": pd.array(generator.integers(0, 40, rows), dtype="Int64"),
            "id": [f"P{number}" for number in range(rows)],
        }
    )
    score = (age - 45) / 8 + 2.0 * (job == "nurse") + generator.normal(0, 1, rows)
    return frame, pd.Series(np.where(score > 0.7, "yes", "no"), name="paid")


@pytest.fixture(scope="module")
def fitted() -> DPLogisticRegression:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return DPLogisticRegression(2.0, 1e-6, random_state=0).fit(*people())


def test_a_frame_is_fitted_as_it_is(fitted: DPLogisticRegression) -> None:
    frame, labels = people(seed=1)
    assert fitted.classes_.tolist() == ["no", "yes"]
    assert np.mean(fitted.predict(frame) == labels) > 0.8
    assert fitted.predict_proba(frame).shape == (6000, 2)
    assert "job=nurse" in fitted.feature_names_in_
    assert not any(name.startswith("id") for name in fitted.feature_names_in_)


def test_the_guarantee_leaves_nothing_out(fitted: DPLogisticRegression) -> None:
    statement = PrivacyStatement.from_dict(fitted.privacy_)
    assert fitted.privacy_["private"] is True
    assert (statement.epsilon, statement.spent <= statement.budget) == (2.0, True)
    facts = fitted.privacy_["assumed_public"]
    assert "classes: 2 of them (measured)" in facts
    assert "categories: the levels of kind, new (argument)" in facts
    assert not any("(read from the rows)" in each for each in facts)
    assert any("'id'" in each and "ignored" in each for each in fitted.privacy_["remarks"])


def test_a_fit_costs_what_it_was_allowed() -> None:
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    model = DPLogisticRegression(2.0, 1e-6, random_state=0, ledger=ledger).fit(*people())
    assert len(ledger.history) == 1
    assert 0 < ledger.spent <= ledger.budget
    assert model.privacy_["account"] == ledger.identity
    with pytest.raises(BudgetExhausted):
        DPLogisticRegression(2.0, 1e-6, ledger=ledger).fit(*people())


def test_columns_may_come_in_any_order_and_more_of_them(fitted: DPLogisticRegression) -> None:
    frame, _ = people(300, seed=2)
    other = frame[list(reversed(frame.columns))].assign(more=1)
    assert np.array_equal(fitted.decision_function(frame), fitted.decision_function(other))
    strange = frame.assign(job="astronaut", age=np.nan, since="no date")
    assert np.isfinite(fitted.decision_function(strange)).all()
    with pytest.raises(MissingColumn, match="job"):
        fitted.predict(frame.drop(columns="job"))


def test_the_length_of_a_block_decides_nothing(fitted: DPLogisticRegression, monkeypatch: pytest.MonkeyPatch) -> None:
    frame, _ = people(4096, seed=4)
    monkeypatch.setattr(frames, "_MANY", 2000 * len(fitted.feature_names_in_))
    assert all(sparse.issparse(fitted._read(frame.iloc[:rows])) for rows in (1, 4096))
    assert np.array_equal(fitted.row_scores(frame)[:300], fitted.row_scores(frame.iloc[:300]))


def test_how_many_rows_units_have_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    coded, forms = frames.coded_cells, []

    def told(*given: object) -> tuple[object, dict[str, object]]:
        found = coded(*given)
        forms.append(sparse.issparse(found[0]))
        return found

    monkeypatch.setattr(frames, "coded_cells", told)
    monkeypatch.setattr(frames, "_MANY", 40_000)
    for each in (1, 2):
        frame, labels = people(3500 * each)
        owners = pd.Series(np.arange(3500 * each) % 3500, name="person")
        frame = frame[["age", "job", "new"]]
        DPLogisticRegression(4.0, 1e-6, random_state=0, rows_per_unit=2).fit(frame, labels, unit=owners)
    assert forms[0] == forms[1]


def test_a_model_is_copied_and_pickled_with_its_schema(fitted: DPLogisticRegression) -> None:
    frame, _ = people(50, seed=3)
    again = pickle.loads(pickle.dumps(fitted))
    assert np.array_equal(again.decision_function(frame), fitted.decision_function(frame))
    assert not hasattr(clone(fitted), "schema_")


def test_a_later_fit_of_numbers_forgets_the_schema() -> None:
    model = DPLogisticRegression(2.0, 1e-6, random_state=0).fit(*people(3000))
    X, y = np.random.default_rng(0).uniform(-1, 1, (500, 2)), np.arange(500) % 2
    model.set_params(bounds=(-1, 1), classes=(0, 1)).fit(X, y)
    assert not hasattr(model, "schema_")
    assert model.predict(X).shape == (500,)


def test_given_classes_are_public_and_a_category_of_labels_too() -> None:
    frame, labels = people()
    given = DPLogisticRegression(2.0, 1e-6, random_state=0, classes=("no", "yes")).fit(frame, labels)
    assert "classes of the label" not in given.privacy_["spent_on"]
    stored = DPLogisticRegression(2.0, 1e-6, random_state=0).fit(frame, labels.astype("category"))
    assert "classes of the label" not in stored.privacy_["spent_on"]
    assert "classes: 2 of them (argument)" in stored.privacy_["assumed_public"]


def test_labels_may_be_stored_in_any_common_way() -> None:
    frame, labels = people()
    model = DPLogisticRegression(2.0, 1e-6, random_state=0)
    expected = model.fit(frame, labels).coef_
    for stored in (arrow.array(labels), arrow.chunked_array([labels]), labels.to_frame(), labels.to_list()):
        assert np.array_equal(model.fit(frame, stored).coef_, expected)
    truths = model.fit(frame, (labels == "yes").to_list())
    assert truths.classes_.tolist() == [False, True]
    assert truths.predict(frame).dtype == bool


def test_intervals_are_categories_by_their_text() -> None:
    frame, labels = people()
    cut = frame[["job"]].assign(age=pd.cut(frame["age"], [0, 30, 50, 100]))
    model = DPLogisticRegression(2.0, 1e-6, random_state=0).fit(cut, labels)
    assert {"age=(0, 30]", "age=(30, 50]", "age=(50, 100]"} <= set(model.feature_names_in_)
    assert np.mean(model.predict(cut) == labels) > 0.75


def test_a_number_is_predicted_too() -> None:
    frame, labels = people()
    target = (labels == "yes") * 3.0 + 1
    model = DPLinearRegression(3.0, 1e-6, random_state=0).fit(frame, target)
    assert model.score(frame, target) > 0.3
    assert model.privacy_["private"] is True


def test_several_rows_of_a_person_are_protected_together() -> None:
    frame, labels = people()
    owners = np.arange(6000) // 2
    model = DPLogisticRegression(8.0, 1e-6, random_state=0, rows_per_unit=2).fit(frame, labels, unit=owners)
    assert np.mean(model.predict(frame) == labels) > 0.7
    assert model.privacy_["rows_per_unit"] == 2
    PrivacyStatement.from_dict(model.privacy_)


# Refusals -----------------------------------------------------------------------------------------------------------


def test_too_few_rows_are_refused_with_the_remedy_and_nothing_is_charged() -> None:
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    with pytest.raises(InvalidParameter, match="effective rows"):
        DPLogisticRegression(0.1, 1e-6, ledger=ledger).fit(*people(300))
    assert ledger.entries == ()


def test_settings_that_do_not_fit_are_refused_before_a_charge() -> None:
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    for wrong in ({"method": "nonprivate"}, {"solver_options": {"nonsense": 1}}, {"class_weight": {"maybe": 2.0}}):
        with pytest.raises((InvalidParameter, TypeError)):
            DPLogisticRegression(2.0, 1e-6, ledger=ledger, classes=("no", "yes"), **wrong).fit(*people(3000))
        assert ledger.entries == ()


def test_labels_that_cannot_be_classes_are_refused_before_a_charge() -> None:
    frame, labels = people()
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    model = DPLogisticRegression(1.0, 1e-7, ledger=ledger)
    with pytest.raises(MissingValue, match="missing labels beside its public classes"):
        model.fit(frame, labels.mask(frame["age"] > 60).astype("category"))
    with pytest.raises(InvalidParameter, match="labels are stored as datetime64"):
        model.fit(frame, frame["since"])
    assert ledger.entries == ()


def test_a_label_with_one_class_is_named() -> None:
    frame, labels = people(3000)
    with pytest.raises(OneClass, match="give the classes"):
        DPLogisticRegression(2.0, 1e-6).fit(frame, labels.where(labels == "no", "no"))


def test_a_label_outside_the_given_classes_is_refused_before_a_charge() -> None:
    frame, labels = people(3000)
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    for wrong in (labels.where(labels == "no", "secret"), ["secret", *labels[1:]]):
        with pytest.raises(InvalidParameter, match="outside the 2 classes") as caught:
            DPLogisticRegression(2.0, 1e-6, classes=("no", "yes"), ledger=ledger).fit(frame, wrong)
        assert "secret" not in str(caught.value)
    assert ledger.entries == ()


def test_labels_of_a_list_keep_their_types() -> None:
    frame, labels = people(3000)
    numbers = [int(each == "yes") for each in labels]
    plain = DPLogisticRegression(2.0, 1e-6, random_state=0).fit(frame, numbers)
    odd = DPLogisticRegression(2.0, 1e-6, random_state=0).fit(frame, [*numbers[:-1], "1.0"])
    assert plain.classes_.tolist() == odd.classes_.tolist() == [0, 1]
    given = DPLogisticRegression(2.0, 1e-6, random_state=0, classes=(0, 1))
    assert given.fit(frame, [str(each) for each in numbers]).classes_.tolist() == [0, 1]


def test_given_bounds_are_about_numbers() -> None:
    with pytest.raises(ColumnTypeError, match="job"):
        DPLogisticRegression(2.0, 1e-6, bounds=(0, 1), classes=("no", "yes")).fit(*people(500))


# Tables that are not in memory --------------------------------------------------------------------------------------


def in_parts(frame: pd.DataFrame, labels: pd.Series) -> tuple:
    dask = pytest.importorskip("dask.dataframe")
    return dask.from_pandas(frame, npartitions=3), dask.from_pandas(labels, npartitions=3)


def test_a_frame_of_dask_is_measured_and_fitted_within_one_budget(fitted: DPLogisticRegression) -> None:
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    model = DPLogisticRegression(2.0, 1e-6, random_state=0, ledger=ledger).fit(*in_parts(*people()))
    assert model.feature_names_in_.tolist() == fitted.feature_names_in_.tolist()
    assert model.privacy_["assumed_public"] == fitted.privacy_["assumed_public"]
    assert model.privacy_["spent_on"].keys() == fitted.privacy_["spent_on"].keys()
    assert (len(ledger.history), ledger.spent <= ledger.budget) == (1, True)
    frame, labels = people(seed=1)
    assert np.mean(model.predict(frame) == labels) > 0.8


@pytest.mark.parametrize("labels", ["text", "numbers", "truths"])
def test_a_table_in_blocks_is_fitted_as_one_in_memory(labels: str, tmp_path) -> None:
    """So few rows are all counted. The decimal comma of a column is none of the label."""
    frame, paid = people(3000)
    frame = frame[["job", "items"]].assign(age=frame["age"].fillna(40).astype(str).str.replace(".", ","))
    target = {"text": paid, "numbers": (paid == "yes") + 0.5, "truths": paid == "yes"}[labels].astype(str)
    frame.assign(paid=target).to_csv(tmp_path / "t.csv", index=False, sep=";")
    kind = DPLinearRegression if labels == "numbers" else DPLogisticRegression
    model = kind(4.0, 1e-6, random_state=0).fit(open_cells(tmp_path / "t.csv", "paid"))
    assert model.schema_.file.decimal == ","
    whole = kind(4.0, 1e-6, random_state=0).fit(frame, target)
    np.testing.assert_array_equal(model.coef_, whole.coef_)
    np.testing.assert_array_equal(model.predict(frame), whole.predict(frame))


def test_categories_of_labels_in_blocks_are_public() -> None:
    frame, labels = people(3000)
    model = DPLogisticRegression(4.0, 1e-6, random_state=0)
    model.fit(*in_parts(frame[["age", "job"]], labels.astype("category")))
    assert "classes of the label" not in model.privacy_["spent_on"]
    assert "classes: 2 of them (argument)" in model.privacy_["assumed_public"]


def test_what_no_table_in_blocks_can_be_fitted_with_is_refused_before_a_charge() -> None:
    frame, labels = people(3000)
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    X, y = in_parts(frame, labels)
    for wrong, told in (
        ({"method": "objpert"}, (X, y)),
        ({"classes": ("no", "maybe")}, (X, y)),
        ({"unit": "job"}, (X, y)),
        ({}, (X, labels)),
        ({}, (X, y.repartition(npartitions=1))),
        ({}, (X, y.rename("age"))),
        ({}, (X, pytest.importorskip("dask.array").from_array(np.full(2999, "no"), chunks=1000))),
        ({}, (X, None)),
    ):
        with pytest.raises((InvalidParameter, UnknownLevel)):
            DPLogisticRegression(2.0, 1e-6, ledger=ledger, **wrong).fit(*told)
        assert ledger.entries == ()
    with pytest.raises(UnsupportedSource, match="evaluate the model after it"):
        fit_and_evaluate(DPLogisticRegression(2.0, 1e-6, ledger=ledger), X, y)
    with pytest.raises(DatasetNotAvailable, match=r"there is no file 'nobody.csv'"):
        open_cells("nobody.csv", "paid")
    missing = in_parts(frame, labels.mask(frame["age"] > 60).astype("category"))
    with pytest.raises(MissingValue):
        DPLogisticRegression(2.0, 1e-6, ledger=ledger).fit(*missing)
    assert ledger.entries == ()


def test_nothing_of_a_row_of_a_table_in_blocks_leaves_that_was_not_paid_for(tmp_path) -> None:
    frame, labels = people(700)
    table = frame.drop(columns=["kind"]).assign(job=[*frame["job"][:-1], "astronaut"], paid=labels)
    for name, rows in (("whole", table), ("other", table.iloc[:-1])):
        rows.to_parquet(tmp_path / f"{name}.parquet", row_group_size=200)
    whole, other = (open_cells(tmp_path / f"{name}.parquet", "paid") for name in ("whole", "other"))
    report = replay(DPLogisticRegression(20.0, 1e-5), whole, neighbours=[Neighbour(other, None)])
    assert report.clean, str(report)
    assert 0 < report.largest_share <= 1


# Neighbours ---------------------------------------------------------------------------------------------------------


def with_last(frame: pd.DataFrame, labels: pd.Series, **cells: object) -> Neighbour:
    """Return a table with another last row."""
    label = cells.get("paid", labels.iloc[-1])
    held = {name: cell for name, cell in cells.items() if name != "paid"}
    last = frame.iloc[[-1]].astype(dict.fromkeys(held, object)).assign(**held).astype(frame.dtypes.to_dict())
    changed = pd.concat([frame.iloc[:-1], last], ignore_index=True)
    return Neighbour(changed, pd.Series([*labels.iloc[:-1], label], name=labels.name))


ODD = {"job": "astronaut", "age": 1e300, "id": "P-1", "items": 10**15, "since": pd.Timestamp("1800-01-01")}


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("odd", [{}, ODD, ODD | {"paid": "never"}, {"job": None, "age": np.nan, "items": None}])
def test_nothing_of_a_row_leaves_that_was_not_paid_for(adjacency: str, odd: dict) -> None:
    """The row is the last one, and alone holds levels, a class, an identifier and extreme numbers."""
    frame, labels = people(700)
    whole = with_last(frame, labels, **odd)
    if adjacency == "zero-out":
        other = Neighbour(whole.X.iloc[:-1], whole.y.iloc[:-1])
    else:
        other = with_last(frame, labels, job="smith", id="P-2", items=3)
    model = DPLogisticRegression(20.0, 1e-5, adjacency=adjacency)
    report = replay(model, whole.X, whole.y, neighbours=[other])
    assert report.clean, str(report)
    assert 0 < report.largest_share <= 1


STORED = {
    "text among whole numbers": ("count", "many", object),
    "none among whole numbers": ("count", None, "Int64"),
    "a decimal among whole numbers": ("count", 1.5, float),
    "bytes among whole numbers": ("count", b"1", object),
    "text among decimals": ("age", "old", object),
    "text among dates": ("since", "long ago", object),
    "a date that nanoseconds do not reach": ("since", datetime.datetime(9999, 1, 1), object),
    "text as objects": ("job", "nurse", object),
    "a number among text": ("job", 5, object),
}


@pytest.mark.parametrize("how", STORED)
def test_the_type_that_a_row_gives_a_column_tells_nothing(how: str) -> None:
    frame, labels = people(600)
    frame = frame.drop(columns=["id", "kind", "new"]).assign(count=np.arange(600) % 5)
    name, cell, stored = STORED[how]
    cells = frame[name].astype(object)
    cells.iloc[-1] = cell
    other = frame.assign(**{name: cells.astype(stored)})
    assert other[name].dtype != frame[name].dtype
    model = DPLogisticRegression(20.0, 1e-5, adjacency="replace-one", classes=("no", "yes"))
    report = replay(model, frame, labels, neighbours=[Neighbour(other, labels)])
    assert report.clean, str(report)


def test_rows_of_a_unit_beyond_those_that_are_used_measure_nothing() -> None:
    frame, labels = people(900)
    owners = np.arange(900) // 3
    first = np.arange(900) % 3 < 2
    whole, used = (
        DPLogisticRegression(40.0, 1e-5, rows_per_unit=2, random_state=0).fit(
            frame[kept], labels[kept], unit=owners[kept]
        )
        for kept in (np.full(900, fill_value=True), first)
    )
    assert whole.schema_.measured["columns"] == used.schema_.measured["columns"]
    np.testing.assert_array_equal(whole.coef_, used.coef_)


@pytest.mark.parametrize("rows", [None, 400])
def test_what_is_refused_beforehand_does_not_rest_on_how_many_rows_units_have(rows: int | None) -> None:
    """Nothing of the number of rows is known while a fit is planned, but the number of units and what is declared."""
    frame, labels = people(900)
    planned = []
    for owners in (np.arange(900) // 3, np.minimum(np.arange(900), 299)):
        model = DPLogisticRegression(40.0, 1e-5, rows_per_unit=3, rows=rows)
        bought = frames.MeasuredFit(model, *model.require_settings(), make_noise("exact", 0), frame, labels, owners)
        planned.append((bought.rows, bought.rehearsal()[1].rows))
    assert planned[0] == planned[1] == (300, rows or 900)


def test_a_unit_with_several_levels_of_its_own_is_covered() -> None:
    frame, labels = people(800)
    owners = np.arange(800) // 2
    frame.loc[798:, "job"] = ["first of its kind", "second of its kind"]
    model = DPLogisticRegression(40.0, 1e-5, rows_per_unit=2)
    other = Neighbour(frame.iloc[:-2], labels.iloc[:-2], owners[:-2])
    report = replay(model, frame, labels, unit=owners, neighbours=[other])
    assert report.clean, str(report)


def test_a_date_with_nanoseconds_leaves_other_dates_alone() -> None:
    """Where all dates are read in the finest unit, one would make the year 9999 a missing cell everywhere."""
    generator = np.random.default_rng(0)
    days = generator.choice(["2020-03-01", "2021-06-30", "9999-12-31"], 700)
    labels = pd.Series(np.where(days == "9999-12-31", "yes", "no"))
    tables = [
        pd.DataFrame({"until": pd.Series([*days[:-1], last], dtype=object), "size": np.arange(700.0)})
        for last in ("2021-01-01", "2021-01-01T00:00:00.123456789")
    ]
    model = DPLogisticRegression(20.0, 1e-5, adjacency="replace-one")
    report = replay(model, tables[0], labels, neighbours=[Neighbour(tables[1], labels)])
    assert report.clean, str(report)


def test_a_missing_truth_value_of_arrow_changes_no_plan() -> None:
    generator = np.random.default_rng(0)
    numbers, job = generator.normal(size=700), generator.choice(["nurse", "smith"], 700)
    labels = pd.Series(np.where(numbers > 0, "yes", "no"))
    truths = (generator.random(700) < 0.5).tolist()
    tables = [
        arrow.table({"size": numbers, "job": job, "new": arrow.array([*truths[:-1], last])}) for last in (True, None)
    ]
    model = DPLogisticRegression(20.0, 1e-5, adjacency="replace-one")
    report = replay(model, tables[0], labels, neighbours=[Neighbour(tables[1], labels)])
    assert report.clean, str(report)
