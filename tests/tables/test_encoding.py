"""The encoder uses public knowledge alone, stays in [0, 1], and shows no cell."""

from __future__ import annotations

import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, strategies as st
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

from dpdescent.errors import (
    ColumnError,
    ColumnTypeError,
    InfiniteValue,
    InvalidParameter,
    MissingColumn,
    MissingValue,
    UnexpectedColumn,
    UnknownLevel,
)
from dpdescent.tables import BoundedEncoder, level_codes, scale_columns

BOUNDS = {"age": (0, 100), "balance": (-50.0, 50.0)}
LEVELS = {"job": ["clerk", "nurse", "smith"], "member": [False, True]}
NAMES = ["age", "balance", "job=clerk", "job=nurse", "job=smith", "member=False", "member=True"]


@pytest.fixture
def table():
    return pd.DataFrame(
        {"job": ["smith", "clerk"], "age": [20, 130], "member": [True, False], "balance": [-50.5, 25.0]}, index=[7, 9]
    )


EXPECTED = [[0.2, 0.0, 0, 0, 1, 0, 1], [1.0, 0.75, 1, 0, 0, 1, 0]]


def test_numbers_are_clipped_and_scaled_and_levels_are_one_hot(table):
    assert BoundedEncoder(BOUNDS, LEVELS).fit_transform(table).tolist() == EXPECTED


def test_nothing_is_learnt_from_the_fitting_table(table):
    extreme = pd.DataFrame({"age": [-1e9], "balance": [1e9], "job": ["nurse"], "member": [True]})
    fits = [table, table.iloc[:0], table.iloc[:1], extreme, {name: [] for name in table.columns}]
    for fitted in fits:
        encoder = BoundedEncoder(BOUNDS, LEVELS).fit(fitted)
        assert encoder.transform(table).tolist() == EXPECTED
        assert encoder.get_feature_names_out().tolist() == NAMES
        assert encoder.feature_names_in_.tolist() == ["age", "balance", "job", "member"]
        assert encoder.n_features_in_ == 4
        assert encoder.binary_features_.tolist() == ["=" in name for name in NAMES]


def test_fitting_reads_no_cell(table):
    bad = table.assign(age=[np.nan, np.inf], job=["secret", None])
    BoundedEncoder(BOUNDS, LEVELS).fit(bad)


def test_no_count_of_clipped_cells_is_kept(table):
    encoder = BoundedEncoder(BOUNDS, LEVELS, unknown="zero", missing="midpoint").fit(table)
    before = set(vars(encoder))
    encoder.transform(table.assign(age=[1e9, np.nan], job=["secret", None]))
    assert set(vars(encoder)) == before
    assert before == {
        *encoder.get_params(),
        *("feature_names_in_", "n_features_in_", "binary_features_", "output_bounds_"),
    }


def test_mapping_of_columns_is_a_table(table):
    columns = {name: table[name].to_numpy() for name in table}
    assert BoundedEncoder(BOUNDS, LEVELS).fit_transform(columns).tolist() == EXPECTED


def test_empty_table_gives_an_empty_matrix(table):
    for sparse_output in (False, True):
        encoder = BoundedEncoder(BOUNDS, LEVELS, sparse_output=sparse_output).fit(table)
        assert encoder.transform({name: [] for name in table.columns}).shape == (0, 7)


def test_sparse_output_equals_dense_output(table):
    encoded = BoundedEncoder(BOUNDS, LEVELS, sparse_output=True).fit_transform(table)
    assert sparse.issparse(encoded)
    assert encoded.format == "csr"
    assert encoded.toarray().tolist() == EXPECTED
    assert encoded.nnz == np.count_nonzero(EXPECTED)
    only_levels = BoundedEncoder(levels={"job": LEVELS["job"]}, sparse_output=True).fit_transform(table[["job"]])
    assert only_levels.toarray().tolist() == [[0, 0, 1], [1, 0, 0]]


def test_scikit_learn_conventions(table):
    encoder = BoundedEncoder(BOUNDS, LEVELS)
    with pytest.raises(NotFittedError):
        encoder.transform(table)
    copy = clone(encoder.fit(table))
    assert copy.get_params() == encoder.get_params()
    assert not hasattr(copy, "n_features_in_")
    assert pickle.loads(pickle.dumps(encoder)).transform(table).tolist() == EXPECTED
    framed = clone(encoder).set_output(transform="pandas").fit_transform(table)
    assert list(framed.columns) == NAMES
    assert framed.index.tolist() == [7, 9]
    pipeline = make_pipeline(encoder, LogisticRegression()).fit(table, [0, 1])
    assert pipeline.predict(table).tolist() == [0, 1]
    assert pipeline[:-1].get_feature_names_out().tolist() == NAMES
    with pytest.raises(InvalidParameter, match="input_features"):
        encoder.get_feature_names_out(["age"])


SECRET = "patient-4711"


def test_unknown_level_names_the_column_and_hides_the_cell(table):
    private = table.assign(job=["clerk", SECRET])
    with pytest.raises(UnknownLevel) as caught:
        BoundedEncoder(BOUNDS, LEVELS).fit(table).transform(private)
    message = str(caught.value)
    assert "'job'" in message
    assert "3 public levels" in message
    assert "unknown 'other'" in message
    assert SECRET not in message
    assert caught.value.__cause__ is None
    encoded = BoundedEncoder(BOUNDS, LEVELS, unknown="zero").fit_transform(private)
    assert encoded[:, 2:5].tolist() == [[1, 0, 0], [0, 0, 0]]


@pytest.mark.parametrize("dtype", ["float64", "Float64", "float32"])
def test_missing_number_is_an_error_or_the_midpoint(table, dtype):
    private = table.assign(age=pd.Series([None, 20], index=table.index, dtype=dtype))
    with pytest.raises(MissingValue, match=r"column 'age' has a missing value.*missing 'midpoint' or 'level'"):
        BoundedEncoder(BOUNDS, LEVELS).fit_transform(private)
    encoded = BoundedEncoder(BOUNDS, LEVELS, missing="midpoint").fit_transform(private)
    assert encoded[:, 0].tolist() == [0.5, 0.2]


@pytest.mark.parametrize("unknown", ["error", "zero"])
def test_missing_category_is_an_error_or_all_zeros(table, unknown):
    for cell in (None, np.nan, pd.NA):
        private = table.assign(job=pd.Series([cell, "clerk"], index=table.index, dtype=object))
        with pytest.raises(MissingValue, match="'job'"):
            BoundedEncoder(BOUNDS, LEVELS, unknown=unknown).fit_transform(private)
        encoded = BoundedEncoder(BOUNDS, LEVELS, unknown=unknown, missing="midpoint").fit_transform(private)
        assert encoded[:, 2:5].tolist() == [[0, 0, 0], [1, 0, 0]]


def test_unknown_level_is_still_an_error_beside_a_missing_cell(table):
    private = table.assign(job=[None, SECRET])
    with pytest.raises(UnknownLevel):
        BoundedEncoder(BOUNDS, LEVELS, missing="midpoint").fit_transform(private)


@pytest.mark.parametrize("missing", ["error", "midpoint"])
def test_infinite_number_is_an_error(table, missing):
    with pytest.raises(InfiniteValue, match="'balance'"):
        BoundedEncoder(BOUNDS, LEVELS, missing=missing).fit_transform(table.assign(balance=[np.inf, 0]))


@pytest.mark.parametrize(
    "column",
    [
        pd.Series(["1", SECRET], dtype="str"),
        pd.Series([1, SECRET], dtype=object),
        pd.Series(["1", "2"], dtype="category"),
        pd.Series(pd.to_datetime(["2020-01-01", "2020-01-02"])),
        pd.Series([1j, 2.0]),
    ],
)
def test_column_without_numbers_is_refused_by_its_storage_type(table, column):
    private = table.assign(age=column.set_axis(table.index))
    with pytest.raises(ColumnTypeError, match=r"'age'.*not all cells are numbers") as caught:
        BoundedEncoder(BOUNDS, LEVELS).fit(private)
    assert SECRET not in str(caught.value)
    with pytest.raises(ColumnTypeError):
        BoundedEncoder(BOUNDS, LEVELS).fit(table).transform(private)


@pytest.mark.parametrize("unknown", ["error", "zero"])
def test_levels_of_another_type_than_the_column_are_refused(unknown):
    numbers, text = pd.DataFrame({"code": [1, 2]}), pd.DataFrame({"code": ["1", "2"]}, dtype="string")
    with pytest.raises(ColumnTypeError, match="levels are text"):
        BoundedEncoder(levels={"code": ["1", "2"]}, unknown=unknown).fit_transform(numbers)
    with pytest.raises(ColumnTypeError, match="levels are not text"):
        BoundedEncoder(levels={"code": [1, 2]}, unknown=unknown).fit_transform(text)
    assert BoundedEncoder(levels={"code": [2.0, 1.0]}).fit_transform(numbers).tolist() == [[0, 1], [1, 0]]


def test_category_storage_is_matched_by_value():
    column = pd.Categorical(["b", "a", None, "c"], categories=["c", "b", "a"])
    encoder = BoundedEncoder(levels={"x": ["a", "b"]}, unknown="zero", missing="midpoint")
    assert encoder.fit_transform(pd.DataFrame({"x": column})).tolist() == [[0, 1], [1, 0], [0, 0], [0, 0]]


def test_columns_must_be_declared_once_and_present(table):
    with pytest.raises(MissingColumn, match="balance"):
        BoundedEncoder(BOUNDS, LEVELS).fit(table.drop(columns="balance"))
    with pytest.raises(UnexpectedColumn, match=r"\['id'\].*ignore"):
        BoundedEncoder(BOUNDS, LEVELS).fit(table.assign(id=1))
    ignoring = BoundedEncoder(BOUNDS, LEVELS, ignore=("id",)).fit(table.assign(id=1))
    assert ignoring.transform(table).tolist() == EXPECTED
    with pytest.raises(ColumnError, match="same name"):
        BoundedEncoder(BOUNDS, LEVELS).fit(table[["age", "balance", "job", "member", "age"]])
    with pytest.raises(ColumnTypeError, match="found by name"):
        BoundedEncoder(BOUNDS, LEVELS).fit(np.zeros((2, 4)))


@pytest.mark.parametrize(
    ("bounds", "levels", "options"),
    [
        (None, None, {}),
        ({"x": (1, 1)}, None, {}),
        ({"x": (0, np.inf)}, None, {}),
        ({"x": (np.nan, 1)}, None, {}),
        ({"x": (-1.7e308, 1.7e308)}, None, {}),
        ({"x": ("0", "1")}, None, {}),
        ({"x": 3}, None, {}),
        (None, {"x": []}, {}),
        (None, {"x": "abc"}, {}),
        (None, {"x": ["a", "a"]}, {}),
        (None, {"x": [1, True]}, {}),
        (None, {"x": ["a", None]}, {}),
        ({"x": (0, 1)}, {"x": ["a"]}, {}),
        ({"x": (0, 1)}, None, {"ignore": ("x",)}),
        ({"x": (0, 1)}, None, {"unknown": "drop"}),
        ({"x": (0, 1)}, None, {"missing": "mean"}),
    ],
)
def test_bad_declaration_is_refused_before_the_table_is_touched(bounds, levels, options):
    with pytest.raises(InvalidParameter) as caught:
        BoundedEncoder(bounds, levels, **options).fit(None)
    assert not isinstance(caught.value, ColumnError)


finite = st.floats(allow_nan=False, allow_infinity=False)


halves = st.floats(-4e307, 4e307)  # whose differences are finite


@given(value=finite, ends=st.tuples(halves, halves).map(sorted).filter(lambda ends: ends[0] < ends[1]))
def test_scaled_number_never_leaves_the_unit_interval(value, ends):
    scaled = scale_columns([value], *ends)[0]
    assert 0.0 <= scaled <= 1.0
    assert scale_columns(ends, *ends).tolist() == [0.0, 1.0]


@given(rows=st.lists(st.tuples(finite, finite, st.sampled_from(["clerk", "nurse", "x"])), min_size=2, max_size=8))
def test_one_row_moves_one_output_row_of_bounded_norm(rows):
    encoder = BoundedEncoder({"a": (-1, 1), "b": (0, 1e6)}, {"c": ["clerk", "nurse"]}, unknown="zero")
    frame = pd.DataFrame(rows, columns=["a", "b", "c"])
    encoded = encoder.fit_transform(frame)
    np.testing.assert_array_equal(encoder.fit_transform(frame.iloc[1:]), encoded[1:])
    assert (np.linalg.norm(encoded, axis=1) <= np.sqrt(3)).all()


def test_scaling_leaves_its_input_alone():
    matrix = np.array([[5.0, 5.0]])
    scale_columns(matrix, [0, 0], [10, 1])
    assert matrix.tolist() == [[5.0, 5.0]]


@pytest.mark.parametrize("kind", ["int8", "int64", "uint64", "float32", "float64", "bool"])
def test_cells_that_are_numbers_are_found_among_levels_as_python_compares_them(kind: str) -> None:
    cells = np.array([0, 1, 2, 3, 1, 0], dtype=kind)
    wild = {"int64": [2**53 + 1, -(2**62)], "uint64": [2**63], "float64": [np.nan, np.inf, 0.1, 2.0**53]}
    column = pd.Series(np.append(cells, np.array(wild.get(kind, []), dtype=kind)))
    for levels in ([3, 0, 1], [1.5, True], [False, 1, 0.1], [2**53 + 1, 1], [2**53 - 1, 0.0], [0, "many"]):
        expected = [next((i for i, level in enumerate(levels) if cell == level), -1) for cell in column.tolist()]
        assert level_codes(column, "a", levels).tolist() == expected
