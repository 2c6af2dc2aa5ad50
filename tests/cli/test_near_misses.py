"""What a newcomer mistypes, or has as others have it: each message names the cause, and the nearest right name."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest

from dpdescent import BoundedEncoder, DPLinearRegression, DPLogisticRegression, Ledger, load_dataset
from dpdescent.accounting import GDP
from dpdescent.cli import main
from dpdescent.errors import ColumnError, ColumnTypeError, DatasetFormatError, InvalidParameter, MissingColumn

ROWS = 3000


def people(rows: int = ROWS) -> pd.DataFrame:
    generator = np.random.default_rng(0)
    age, job = generator.integers(18, 80, rows), generator.choice(["clerk", "nurse", "smith"], rows)
    paid = np.where(age + 20 * (job == "nurse") + generator.normal(0, 10, rows) > 55, "yes", "no")
    return pd.DataFrame({"age": age, "job": job, "paid": paid})


@pytest.fixture
def run(tmp_path, monkeypatch, capsys) -> Callable[..., str]:
    monkeypatch.chdir(tmp_path)
    people(200).to_csv("people.csv", index=False)

    def command(*words: object) -> str:
        monkeypatch.setattr(sys, "argv", ["dpdescent", *map(str, words)])
        with pytest.raises(SystemExit):
            main()
        printed = capsys.readouterr()
        return " ".join((printed.out + printed.err).split())

    return command


FIT = ("fit", "people.csv", "--output", "m.json")
TYPED = [
    ((*FIT, "--label", "Paid"), "the label column 'Paid' is not there .did you mean 'paid'"),
    ((*FIT, "--label", "income"), r"the label column 'income' is not there: columns are \['age', 'job', 'paid'\]"),
    ((*FIT, "--label", "paid", "--method", "sdg"), "unknown method 'sdg' .did you mean 'sgd'"),
    ((*FIT, "--label", "paid", "--model", "logistc"), "unknown model 'logistc' .did you mean 'logistic'"),
    ((*FIT, "--label", "paid", "--adjacency", "zero_out"), "unknown relation 'zero_out' .did you mean 'zero-out'"),
    ((*FIT, "--label", "paid", "--method", "sgd", "--set", "step=3"), "no setting 'step' .did you mean 'steps'"),
    (("fit", "adulr", "--output", "m.json"), "no data set 'adulr' .did you mean 'adult'"),
    (("fit", "people.xlsx", "--label", "paid", "--output", "m.json"), "is an Excel workbook.*save it as CSV"),
    (("fit", "people.xlsx", "--output", "m.json"), "is an Excel workbook.*save it as CSV"),
    (("schema", "people.csv", "--label", "Paid"), "the label column 'Paid' is not there .did you mean 'paid'"),
    (("describe", "people.csv", "--label", "Paid"), "the label column 'Paid' is not there .did you mean 'paid'"),
]


@pytest.mark.parametrize(("words", "message"), TYPED)
def test_what_was_meant_is_asked(run: Callable[..., str], words: tuple, message: str) -> None:
    assert re.search(message, run(*words))


def test_people_are_written_for_a_first_try_and_nothing_is_written_over(run: Callable[..., str]) -> None:
    assert "is there: choose another name" in run("datasets", "people", "people.csv")
    assert len(pd.read_csv("people.csv")) == 200
    assert "50 artificial people" in run("datasets", "people", "people.csv", "--rows", 50, "--force")
    assert run("datasets", "people", "p.parquet", "--rows", 50)
    assert run("datasets", "people", "p.npz", "--rows", 50)
    assert pd.read_csv("people.csv").equals(pd.read_parquet("p.parquet"))
    assert np.load("p.npz")["X"].shape[0] == 50
    assert "choose one of these suffixes" in run("datasets", "people", "p.txt")


def given(**options: object) -> DPLogisticRegression:
    return DPLogisticRegression(1.0, 1e-6, **options)


def twice(names: list[str]) -> pd.DataFrame:
    table = people()
    return pd.concat([table[names], table[names[:1]]], axis=1)


def holes(labels: pd.Series) -> pd.Series:
    return labels.where(np.arange(len(labels)) != 7)


WRONG = [
    (lambda: given(classes=["no", "yes"]).fit(twice(["age"]), people()["paid"]), ColumnError, "same name: rename"),
    (lambda: given().fit(twice(["age", "job"]), people()["paid"]), ColumnError, r"names \['age'\]: rename"),
    (lambda: given().fit(people().rename(columns={"age": 0}), people()["paid"]), ColumnError, "no text: rename"),
    (
        lambda: given(classes=["no", "yes"]).fit(people()[["age"]], holes(people()["paid"])),
        InvalidParameter,
        "y has missing labels: drop",
    ),
    (
        lambda: DPLinearRegression(1.0, 1e-6).fit(people()[["age"]], holes(people()["age"])),
        InvalidParameter,
        "y contains NaN: drop the rows whose label is missing",
    ),
    (lambda: load_dataset("people.xlsx"), DatasetFormatError, "pandas and pass the DataFrame"),
]


@pytest.mark.parametrize("number", range(len(WRONG)))
def test_the_cause_is_named(number: int) -> None:
    act, kind, message = WRONG[number]
    with pytest.raises(kind, match=message):
        act()


def test_times_between_events_are_numbers() -> None:
    """They are days, beside numbers and text alike."""
    lengths = pd.to_timedelta(people()["age"], unit="h")
    table = people()[["job"]].assign(wait=lengths)
    fitted = given(random_state=0).fit(table, people()["paid"])
    (column,) = fitted.schema_.numeric
    assert column.high < 10
    assert (fitted.predict(table) == people()["paid"]).mean() > 0.8


def arrow(table: pd.DataFrame) -> object:
    return pytest.importorskip("pyarrow").Table.from_pandas(table, preserve_index=False)


def polars(table: pd.DataFrame) -> object:
    return pytest.importorskip("polars").DataFrame(table.to_dict(orient="list"))


@pytest.mark.parametrize("make", [arrow, polars])
def test_encoders_take_the_tables_that_estimators_take(make: Callable[[pd.DataFrame], object]) -> None:
    table = people()[["age", "job"]]
    encoder = BoundedEncoder({"age": (0, 100)}, {"job": ["clerk", "nurse", "smith"]})
    assert np.array_equal(encoder.fit_transform(make(table)), encoder.transform(table))


# Encoders that measure ----------------------------------------------------------------------------------------------


def test_an_encoder_measures_what_is_not_declared() -> None:
    table = people()[["age", "job"]].astype(str).assign(code=np.resize([1, 2, 3], ROWS))
    ledger = Ledger(2.0, 1e-6, currency=GDP().with_failures())
    encoder = BoundedEncoder({"age": (0, 100)}, measure=True, epsilon=1.0, delta=1e-6, ledger=ledger, random_state=0)
    coded = encoder.fit_transform(table)
    assert encoder.get_feature_names_out().tolist()[:4] == ["age", "job=clerk", "job=nurse", "job=smith"]
    assert np.array_equal(coded[:, 0], people()["age"] / 100)
    assert coded[:, 1:4].sum() == ROWS
    assert encoder.binary_features_.tolist() == [False] + [True] * (coded.shape[1] - 1)
    assert (encoder.privacy_["epsilon"], encoder.privacy_["delta"]) == (1.0, 1e-6)
    assert 0 < ledger.spent < ledger.budget
    assert np.array_equal(encoder.transform(table.iloc[5:6]), coded[5:6])
    fitted = given(bounds=encoder.output_bounds_, classes=["no", "yes"]).fit(coded, people()["paid"])
    assert (fitted.predict(coded) == people()["paid"]).mean() > 0.8


def test_an_encoder_that_measures_needs_a_budget_and_a_table() -> None:
    with pytest.raises(InvalidParameter, match="measure=True needs epsilon"):
        BoundedEncoder(measure=True).fit(people())
    with pytest.raises(InvalidParameter, match="DataFrame"):
        BoundedEncoder(measure=True, epsilon=1.0).fit(np.zeros((9, 2)))
    with pytest.raises(MissingColumn, match="'pay'"):
        BoundedEncoder({"pay": (0, 1)}, measure=True, epsilon=1.0).fit(people())


def test_a_dask_table_with_text_is_told_what_to_do() -> None:
    frame = pytest.importorskip("dask.dataframe").from_pandas(people(60), npartitions=2)
    with pytest.raises(ColumnTypeError, match="'job' is not stored as numbers: write the table as Parquet"):
        given(classes=["no", "yes"], bounds=(0, 1)).fit(frame[["age", "job"]], frame["paid"])
    with pytest.raises(InvalidParameter, match=r"Schema\.measure takes others"):
        BoundedEncoder(measure=True, epsilon=1.0).fit(frame)
