"""Parquet files and mapped arrays: the coefficients of the same rows in memory, and errors that name no cell."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as arrow
import pytest
from pyarrow import parquet
from scipy import sparse
from typer.testing import CliRunner

from dpdescent import (
    DPAdditiveClassifier,
    DPHuberRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
    Ledger,
    load_dataset,
)
from dpdescent.cli import app
from dpdescent.datasets.synthetic_tables import large_block, write_large_table
from dpdescent.errors import (
    ColumnTypeError,
    DatasetFormatError,
    DatasetNotAvailable,
    InfiniteValue,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    UnknownLabel,
    UnknownLevel,
    UnsupportedSource,
)
from dpdescent.estimators.saved_models import SavedModel
from dpdescent.solvers import METHODS, OPTSettings
from dpdescent.tables import CategoricalColumn, Label, MappedArrays, NumericColumn, ParquetTable, Schema, open_parquet

ROWS = 600
OPTIONS: dict[str, Any] = {
    "epsilon": 0.2,
    "delta": 1e-6,
    "bounds": (0, 1),
    "classes": (0, 1),
    "random_state": 7,
}
QUICK: dict[str, dict[str, Any]] = {
    "privgene": {"candidates": 4, "generations": 2},
    "agd": {"candidates": 3},
    "sgd": {"sampling_rate": 0.5},
    **{name: {"most_steps": 5} for name, each in METHODS.items() if issubclass(each.settings, OPTSettings)},
}


@pytest.fixture(scope="module")
def people() -> Any:
    return load_dataset("synthetic", n=ROWS)


def write(folder: Path, table: pd.DataFrame, cuts: tuple[int, ...] = (), group: int = 100) -> Path:
    folder.mkdir(exist_ok=True)
    for number, (start, stop) in enumerate(zip((0, *cuts), (*cuts, len(table)), strict=True)):
        table.iloc[start:stop].to_parquet(folder / f"part-{number}.parquet", row_group_size=group, index=False)
    return folder


@pytest.fixture
def stored(people: Any, tmp_path: Path) -> Path:
    return write(tmp_path / "people", people.table, (150, 151, 400), 64)


def coefficients(*rows: Any, estimator: Any = DPLogisticRegression, **options: Any) -> Any:
    model = estimator(**OPTIONS | options).fit(*rows)
    return model.coef_, model.intercept_, without_schema(model.privacy_)


def without_schema(stated: dict[str, Any]) -> dict[str, Any]:
    """Return a statement without the lines about a schema, which arrays do not have."""
    told = [each for each in stated["assumed_public"] if not each.startswith(("schema:", "levels:"))]
    return stated | {"assumed_public": told}


@pytest.mark.filterwarnings("ignore::dpdescent.errors.GuaranteeWarning")
@pytest.mark.parametrize("method", sorted(METHODS))
def test_every_method_learns_the_same_or_refuses_before_a_charge(method: str, people: Any, stored: Path) -> None:
    table, options = open_parquet(stored, people.schema), {"method": method, "solver_options": QUICK.get(method)}
    if METHODS[method].gathers:
        account = Ledger(10.0, 1e-3)
        with pytest.raises(UnsupportedSource, match=f"'{method}' needs all rows in one place"):
            coefficients(table, ledger=account, **options)
        assert not account.entries
    elif METHODS[method].private:
        found, expected = coefficients(table, **options), coefficients(people.X, people.y, **options)
        np.testing.assert_equal(found, expected)


@pytest.mark.parametrize("cuts", [(), (1,), (7, 7, 599)], ids=str)
@pytest.mark.parametrize("group", [1000, 33])
def test_partitions_and_row_groups_do_not_matter(
    cuts: tuple[int, ...], group: int, people: Any, tmp_path: Path
) -> None:
    table = open_parquet(write(tmp_path / "p", people.table, cuts, group), people.schema)
    assert table.shape == people.X.shape
    np.testing.assert_equal(table.gathered(), (people.X, people.y))
    options = {"method": "sgd", "solver_options": {"sampling_rate": 0.3, "steps": 3}}
    np.testing.assert_equal(coefficients(table, **options), coefficients(people.X, people.y, **options))


def test_folders_that_are_named_by_a_column_tell_it(people: Any, tmp_path: Path) -> None:
    people.table.to_parquet(tmp_path / "p", partition_cols=["region", "high_income"], index=False)
    table = open_parquet(tmp_path / "p", people.schema)
    features, labels = table.gathered()
    assert features.shape == people.X.shape
    found, expected = (np.column_stack(each) for each in ((features, labels), (people.X, people.y)))
    for each in (found, expected):
        each[:] = each[np.lexsort(each.T)]
    np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("pattern", ["**", "*", "**/*.parquet"])
def test_a_file_that_a_pattern_finds_several_times_is_read_once(pattern: str, people: Any, tmp_path: Path) -> None:
    """Its rows would be in every sum several times, and one of them could change it by several times its bound."""
    write(tmp_path / "p", people.table.iloc[:200])
    write(tmp_path / "p" / "q", people.table.iloc[200:500])
    write(tmp_path / "p" / "q" / "r", people.table.iloc[500:])
    table = open_parquet(str(tmp_path / "p" / pattern), people.schema)
    assert table.shape[0] == ROWS


@pytest.mark.parametrize("link", [Path.symlink_to, Path.hardlink_to])
def test_a_link_to_a_file_that_is_there_already_is_refused(link: Any, people: Any, stored: Path) -> None:
    link(stored / "part-9.parquet", stored / "part-0.parquet")
    with pytest.raises(DatasetFormatError, match=r"part-9\.parquet.*count twice"):
        open_parquet(stored, people.schema)


def test_a_column_of_a_file_is_never_overruled_by_the_name_of_a_folder(people: Any, tmp_path: Path) -> None:
    (tmp_path / "high_income=0").mkdir()
    table = open_parquet(write(tmp_path / "high_income=0" / "p", people.table), people.schema)
    np.testing.assert_array_equal(table.gathered()[1], people.y)


@pytest.mark.parametrize(
    ("estimator", "options"),
    [
        (DPAdditiveClassifier, {"pieces": 2}),
        (DPLogisticRegression, {"fit_intercept": False}),
        (DPLogisticRegression, {"bounds": None, "epsilon": 3.0}),
    ],
)
def test_models_code_blocks_as_they_code_a_table(
    estimator: Any, options: dict[str, Any], people: Any, stored: Path
) -> None:
    table = open_parquet(stored, people.schema)
    found = coefficients(table, estimator=estimator, **options)
    np.testing.assert_equal(found, coefficients(people.X, people.y, estimator=estimator, **options))


@pytest.mark.parametrize("kind", [np.float64, np.float32, np.int16])
def test_mapped_arrays_are_read_block_by_block(kind: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    X, y = (9 * generator.random((ROWS, 5)) - 3).astype(kind), generator.integers(0, 2, ROWS)
    np.save(tmp_path / "X.npy", X)
    np.save(tmp_path / "y.npy", y)
    mapped = [np.load(tmp_path / f"{name}.npy", mmap_mode="r") for name in "Xy"]
    seen = []
    read = MappedArrays.read
    monkeypatch.setattr(MappedArrays, "read", lambda self, part: seen.append(part) or read(self, part))
    options = {"bounds": (-2.0, 5.0)}
    np.testing.assert_equal(coefficients(*mapped, **options), coefficients(X, y, **options))
    assert seen
    np.testing.assert_equal(coefficients(MappedArrays(X, y, part_rows=71), **options), coefficients(X, y, **options))
    # A method that needs them in one place reads them into memory, as it always did.
    options |= {"method": "outpert", "alpha": 0.1}
    np.testing.assert_equal(coefficients(*mapped, **options), coefficients(X, y, **options))


def test_mapped_csr_is_read_block_by_block(tmp_path: Path) -> None:
    generator = np.random.default_rng(1)
    X = sparse.csr_array(generator.random((ROWS, 30)) * (generator.random((ROWS, 30)) < 0.1))
    y = np.arange(ROWS) % 2
    parts = []
    for name, array in (("data", X.data), ("indices", X.indices)):
        np.save(tmp_path / f"{name}.npy", array)
        parts.append(np.load(tmp_path / f"{name}.npy", mmap_mode="r"))
    mapped = sparse.csr_array((*parts, X.indptr), shape=X.shape)
    table = MappedArrays(mapped, y, part_rows=64)
    np.testing.assert_equal(coefficients(table), coefficients(X, y))
    np.testing.assert_equal(coefficients(mapped, y), coefficients(X, y))


def test_regression_streams_too(tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": generator.random(ROWS), "b": generator.random(ROWS)})
    frame["y"] = 3 * frame["a"] - frame["b"]
    schema = Schema((NumericColumn("a", 0, 1), NumericColumn("b", 0, 1)), Label("y", low=-1, high=2))
    table = open_parquet(write(tmp_path / "p", frame, (100,)), schema)
    made = [DPLinearRegression(1.0, target_bounds=(-1, 2), random_state=0) for _ in range(2)]
    made[0].fit(table)
    made[1].fit(frame[["a", "b"]].to_numpy(), frame["y"])
    np.testing.assert_array_equal(made[0].coef_, made[1].coef_)


@pytest.mark.parametrize("estimator", [DPLinearRegression, DPHuberRegressor, DPPoissonRegressor])
def test_bounds_of_targets_are_measured_from_blocks_as_from_a_table(estimator: Any, tmp_path: Path) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": generator.random(ROWS), "b": generator.random(ROWS)})
    frame["y"] = np.floor(30 * frame["a"])
    schema = Schema((NumericColumn("a", 0, 1), NumericColumn("b", 0, 1)), Label("y", low=0, high=1000))
    table = open_parquet(write(tmp_path / "p", frame, (100,)), schema)
    made = [estimator(3.0, bounds=(0, 1), random_state=0) for _ in range(2)]
    made[0].fit(table)
    made[1].fit(frame[["a", "b"]].to_numpy(), frame["y"])
    assert made[0].target_bounds_ == made[1].target_bounds_
    assert without_schema(made[0].privacy_) == made[1].privacy_
    np.testing.assert_array_equal(made[0].coef_, made[1].coef_)


@pytest.mark.parametrize("low", [0, -3])
@pytest.mark.parametrize("kind", ["float32", "float64", "int16", "uint64", "Int32", "bool"])
def test_plain_numbers_are_coded_to_the_last_bit_as_the_encoder_codes_them(
    kind: str, low: int, tmp_path: Path
) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": np.floor(generator.random(ROWS) * 9), "b": generator.random(ROWS)}).astype({"a": kind})
    if kind.startswith("float"):
        frame["a"] = (frame["a"] + frame["b"]).astype(kind)
    frame["job"], frame["y"] = generator.choice(["x", "z"], ROWS), generator.integers(0, 2, ROWS)
    columns = (NumericColumn("a", low, 7), CategoricalColumn("job", ("x", "z")), NumericColumn("b", 0.25, 2))
    schema = Schema(columns, Label("y", (0, 1)), missing="midpoint")
    if kind == "Int32":
        frame.loc[3, "a"] = None
    table = open_parquet(write(tmp_path / "p", frame, (100,)), schema)
    expected = schema.encoder().fit_transform(frame)
    np.testing.assert_array_equal(table.gathered()[0], expected)
    np.testing.assert_array_equal(table.gathered()[1], frame["y"])


def test_rows_are_decoded_once_more_for_bounds_and_never_again(people: Any, stored: Path) -> None:
    """The first pass keeps rows by the bounds that were given, which are good enough here."""
    table = open_parquet(stored, people.schema)
    reads: list[Any] = []
    read = table.read
    table.read = lambda part: reads.append(part) or read(part)  # type: ignore[method-assign]
    options = {"tighten": True, "epsilon": 5.0, "method": "agd", "solver_options": {"splits": 3.0}}
    statement = coefficients(table, **options)[2]
    narrower = any("narrower bounds" in each and "found for 0 of" not in each for each in statement["remarks"])
    assert len(reads) == len(table.parts) * (1 + statement["asked"]["column histograms"] + narrower)


# What is wrong -------------------------------------------------------------------------------------------------


def spoil(stored: Path, column: str, value: Any) -> None:
    """Spoil the last cell of a column in the last file."""
    path = sorted(stored.glob("*.parquet"))[-1]
    frame = pd.read_parquet(path)
    frame[column] = frame[column].astype(object if isinstance(value, str) else float)
    frame.loc[len(frame) - 1, column] = value
    frame.to_parquet(path, index=False)


@pytest.mark.parametrize(
    ("column", "value", "error"),
    [
        ("high_income", 77, UnknownLevel),
        ("high_income", np.nan, MissingValue),
        ("age", np.nan, MissingValue),
        ("age", np.inf, InfiniteValue),
        ("age", -np.inf, InfiniteValue),
        ("workclass", "secretly", UnknownLevel),
    ],
)
def test_a_bad_cell_in_the_last_partition_is_named_before_a_charge(
    column: str, value: Any, error: type[Exception], people: Any, stored: Path
) -> None:
    spoil(stored, column, value)
    account = Ledger(10.0, 1e-3)
    with pytest.raises(error, match=column) as found:
        coefficients(open_parquet(stored, people.schema), ledger=account)
    assert "77" not in str(found.value)
    assert "secretly" not in str(found.value)
    assert not account.entries


def test_a_class_that_the_model_does_not_know_is_named_before_a_charge(people: Any, stored: Path) -> None:
    account = Ledger(10.0, 1e-3)
    with pytest.raises(UnknownLabel, match="outside the 2 classes"):
        coefficients(open_parquet(stored, people.schema), ledger=account, classes=(0, 2))
    assert not account.entries


def test_a_file_that_contradicts_the_schema_is_named_when_it_is_opened(people: Any, stored: Path) -> None:
    last = sorted(stored.glob("*.parquet"))[-1]
    whole = pd.read_parquet(last)
    whole.drop(columns="age").to_parquet(last, index=False)
    with pytest.raises(MissingColumn, match=r"part-3\.parquet.*age"):
        open_parquet(stored, people.schema)
    whole.assign(age="old").to_parquet(last, index=False)
    with pytest.raises(ColumnTypeError, match=r"part-3\.parquet.*age"):
        open_parquet(stored, people.schema)
    if int(pd.__version__.partition(".")[0]) < 3:  # text is stored as objects there, which tell no type
        return
    whole.assign(high_income="no").to_parquet(last, index=False)
    with pytest.raises(ColumnTypeError, match=r"part-3\.parquet.*high_income"):
        open_parquet(stored, people.schema)


def test_a_column_that_is_there_twice_is_named_when_the_file_is_opened(people: Any, stored: Path) -> None:
    held = arrow.Table.from_pandas(people.table)
    parquet.write_table(held.append_column("age", held["age"]), stored / "part-4.parquet")
    with pytest.raises(DatasetFormatError, match=r"part-4\.parquet.*'age'.*more than once"):
        open_parquet(stored, people.schema)


def test_a_truncated_file_is_named_when_it_is_opened(people: Any, stored: Path) -> None:
    last = sorted(stored.glob("*.parquet"))[-1]
    last.write_bytes(last.read_bytes()[:-100])
    with pytest.raises(DatasetFormatError, match=r"part-3\.parquet.*not a readable"):
        open_parquet(stored, people.schema)


def test_a_damaged_page_is_named_before_a_charge(people: Any, stored: Path) -> None:
    last = sorted(stored.glob("*.parquet"))[-1]
    content = bytearray(last.read_bytes())
    content[4:2000] = b"\xff" * 1996
    last.write_bytes(content)
    account = Ledger(10.0, 1e-3)
    with pytest.raises(DatasetFormatError, match=r"part-3\.parquet.*not a readable") as found:
        coefficients(open_parquet(stored, people.schema), ledger=account)
    assert found.value.__context__ is None  # the text of Arrow, which may show a cell
    assert not account.entries


def test_a_file_that_changes_in_the_middle_of_a_fit_leaves_its_charges_and_says_so(
    people: Any, stored: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room = type("Usage", (), {"free": 0})
    monkeypatch.setattr("dpdescent.curator.kept_rows.shutil.disk_usage", lambda _: room)  # rows are read again
    last = sorted(stored.glob("*.parquet"))[-1]

    def spoiled(share: float) -> None:
        if share > 0.3:
            last.write_bytes(last.read_bytes()[:-100])

    account = Ledger(10.0, 1e-3, currency="gdp")
    with pytest.raises(DatasetFormatError, match=r"part-3\.parquet.*has changed") as found:
        coefficients(open_parquet(stored, people.schema), ledger=account, progress=spoiled)
    assert any("% of the privacy budget of this fit had been charged" in note for note in found.value.__notes__)
    assert account.spent > 0


def test_what_is_missing_or_superfluous_is_said(people: Any, stored: Path, tmp_path: Path) -> None:
    table = open_parquet(stored, people.schema)
    with pytest.raises(InvalidParameter, match="classes="):
        coefficients(table, classes=None)
    with pytest.raises(InvalidParameter, match="its own labels"):
        coefficients(table, people.y)
    with pytest.raises(DatasetNotAvailable, match="nowhere"):
        open_parquet(tmp_path / "nowhere", people.schema)
    with pytest.raises(DatasetFormatError, match="601 rows that its schema declares"):
        open_parquet(stored, Schema(people.schema.columns, people.schema.label, rows=601))
    with pytest.raises(InvalidParameter, match="labels"):
        MappedArrays(np.zeros((3, 2)), np.zeros(2))


# Tables of any length, and the command line ---------------------------------------------------------------------


def test_a_shorter_table_is_the_beginning_of_a_longer_one(tmp_path: Path) -> None:
    tables = []
    for rows in (70_000, 66_000):
        schema = write_large_table(tmp_path / str(rows), rows, columns=3, seed=5)
        assert Schema.load(tmp_path / str(rows) / "_schema.json") == schema
        tables.append(open_parquet(tmp_path / str(rows), schema).gathered())
    (longer, more), (shorter, fewer) = tables
    assert longer.shape == (70_000, 3)
    np.testing.assert_array_equal(longer[:66_000], shorter)
    np.testing.assert_array_equal(more[:66_000], fewer)
    np.testing.assert_array_equal(longer[: 2**16], large_block(0, 3, 5)[0])
    stored = parquet.read_schema(tmp_path / "70000" / "part-00000.parquet")
    assert {stored.field(name).type for name in schema.features} == {arrow.float32()}
    with pytest.raises(InvalidParameter, match="not empty"):
        write_large_table(tmp_path / "70000", 10)


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("limit", [2**25, 0], ids=["in memory", "block by block"])
def test_fit_and_predict_take_a_folder_a_pattern_and_a_file(
    limit: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dpdescent.cli.public_knowledge._IN_MEMORY", limit)
    folder = tmp_path / "table"
    run("datasets", "synthetic", "--rows", 2000, "--columns", 4, "--output", folder)
    schema = folder / "_schema.json"
    for number, data in enumerate([folder, folder / "*.parquet"]):
        run("fit", data, "--epsilon", 0.3, "--seed", 1, "--output", tmp_path / f"{number}.json")
    first, second = (SavedModel.load(tmp_path / f"{number}.json") for number in range(2))
    assert first == second
    table = open_parquet(folder, Schema.load(schema))
    assert isinstance(table, ParquetTable)
    direct = DPLogisticRegression(
        0.3, bounds=table.bounds, classes=(0, 1), binary_features=[False] * 4, random_state=1
    ).fit(table)
    np.testing.assert_array_equal(first.coefficients, direct.coef_)
    for data in (folder, folder / "part-00000.parquet"):
        run("predict", tmp_path / "0.json", data, "--output", tmp_path / "p.parquet")
        predicted = pd.read_parquet(tmp_path / "p.parquet")
        assert list(predicted) == ["prediction", "probability_0", "probability_1"]
        np.testing.assert_array_equal(predicted["prediction"], direct.predict(table.gathered()[0]))


def test_a_folder_without_a_schema_is_refused(stored: Path, tmp_path: Path) -> None:
    with pytest.raises(
        InvalidParameter,
        match=r"needs --label.*--schema FILE.*`dpdescent schema \S*part-0\.parquet --label",
    ):
        run("fit", stored, "--output", tmp_path / "m.json")


def test_a_null_does_not_change_how_other_cells_are_coded(tmp_path: Path) -> None:
    bounds = (-(2**63), 2**63 - 1), (0, 2**70), (-(2**61) - 1, 2**61 + 513)
    for low, high in bounds:
        schema = Schema((NumericColumn("a", low, high, missing="midpoint"),), Label("y", (0, 1)))
        cells = [2**62, 0, 5, 2**60 + 1]
        coded = []
        for extra in ([], [None]):
            values = [*cells, *extra]
            table = arrow.table({"a": arrow.array(values, arrow.int64()), "y": [0] * len(values)})
            parquet.write_table(table, tmp_path / "t.parquet")
            coded.append(open_parquet(tmp_path / "t.parquet", schema).gathered()[0].ravel()[:4])
        np.testing.assert_array_equal(*coded)
        inside = np.clip(np.array(cells, dtype=float), low, high)
        np.testing.assert_allclose(coded[0], (inside - low) / (float(high) - low), rtol=1e-15)


def test_without_privacy_target_bounds_are_seen_in_mapped_arrays_and_refused_elsewhere(tmp_path: Path) -> None:
    X = np.random.default_rng(0).random((50, 2))
    np.save(tmp_path / "x.npy", X)
    y = X @ [1.0, 2.0]
    model = DPLinearRegression(method="nonprivate", bounds=(0, 1))
    mapped = model.fit(np.load(tmp_path / "x.npy", mmap_mode="r"), y).coef_
    np.testing.assert_array_equal(mapped, model.fit(X, y).coef_)
    parquet.write_table(arrow.table({"a": X[:, 0], "y": y}), tmp_path / "t.parquet")
    table = open_parquet(tmp_path / "t.parquet", Schema((NumericColumn("a", 0, 1),), Label("y")))
    with pytest.raises(InvalidParameter, match="target_bounds"):
        model.fit(table)
