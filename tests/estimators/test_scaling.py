"""Scaling keeps zeros zero, treats dense and sparse tables alike, and is undone exactly."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse

from dpdescent.errors import InvalidParameter
from dpdescent.estimators.scaling import ColumnScaling, middles

RULES = settings(derandomize=True, deadline=None, max_examples=60)
LOW = np.array([0.0, -3.0, 2.0, -7.0, -1.0, -1e-3])
HIGH = np.array([1.0, 5.0, 6.0, -2.0, 0.0, 1e6])


def table(rows: int = 50, seed: int = 0) -> np.ndarray:
    generator = np.random.default_rng(seed)
    cells = generator.uniform(LOW - 1, HIGH + 1, (rows, LOW.size))
    cells[generator.random(cells.shape) < 0.5] = 0.0
    cells[0] = LOW
    cells[1] = HIGH
    return cells


@st.composite
def bounds(draw):
    columns = draw(st.integers(1, 5))
    ends = [
        sorted(draw(st.lists(st.integers(-(10**6), 10**6), min_size=2, max_size=2, unique=True)))
        for _ in range(columns)
    ]
    return np.array(ends, float).T * draw(st.sampled_from([1.0, 1e-9, 0.1, 1e9]))


def test_scaled_cells_lie_in_the_unit_interval_and_reach_its_end() -> None:
    scaled = ColumnScaling.from_bounds((LOW, HIGH), 6).apply(table())
    assert np.abs(scaled).max(axis=0).tolist() == [1.0] * 6
    assert (np.sign(scaled[:, 2]) >= 0).all()
    assert (np.sign(scaled[:, 3]) <= 0).all()


@RULES
@given(bounds(), st.integers(0, 10**6))
def test_zeros_stay_zero_and_dense_equals_sparse(ends: np.ndarray, seed: int) -> None:
    generator = np.random.default_rng(seed)
    columns = ends.shape[1]
    cells = generator.normal(0, 2 * np.abs(ends).max() + 1, (20, columns)) * (generator.random((20, columns)) < 0.4)
    scaling = ColumnScaling.from_bounds(tuple(ends), columns)
    dense = scaling.apply(cells)
    assert (dense[cells == 0] == 0).all()
    assert np.abs(dense).max() <= 1
    for kind in (sparse.csr_array, sparse.csr_matrix):
        thin = scaling.apply(kind(cells))
        assert thin.format == "csr"
        assert thin.nnz <= np.count_nonzero(cells)
        np.testing.assert_array_equal(thin.toarray(), dense)


def test_cells_stored_twice_are_added_before_they_are_clipped() -> None:
    twice = sparse.csr_array((np.array([0.6, 0.6]), np.array([0, 0]), np.array([0, 2])), shape=(1, 1))
    assert ColumnScaling.from_bounds((0, 1), 1).apply(twice).toarray().tolist() == [[1.0]]
    assert twice.nnz == 2


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.float64])
def test_storage_types_give_the_same_cells_and_the_input_is_left_alone(dtype: type) -> None:
    cells = np.round(table()).astype(dtype)
    before = cells.copy()
    scaling = ColumnScaling.from_bounds((LOW, HIGH), 6)
    np.testing.assert_array_equal(scaling.apply(cells), scaling.apply(cells.astype(np.float64)))
    np.testing.assert_array_equal(scaling.apply(sparse.csr_array(cells)).toarray(), scaling.apply(cells))
    np.testing.assert_array_equal(cells, before)


def test_infinite_cells_are_clipped() -> None:
    cells = np.array([[np.inf], [-np.inf]])
    assert ColumnScaling.from_bounds((-2, 1), 1).apply(cells).ravel().tolist() == [0.5, -1.0]


@RULES
@given(bounds(), st.integers(0, 10**6), st.booleans())
def test_original_units_give_the_same_predictions(ends: np.ndarray, seed: int, several: bool) -> None:
    generator = np.random.default_rng(seed)
    columns = ends.shape[1]
    scaling = ColumnScaling.from_bounds(tuple(ends), columns)
    cells = generator.uniform(*ends, (30, columns))
    weights = generator.normal(size=(columns, 3) if several else columns)
    bias = generator.normal(size=3) if several else np.asarray(generator.normal())
    coefficients, intercept = scaling.original_units(weights, bias)
    assert coefficients.shape == weights.shape
    assert np.shape(intercept) == np.shape(bias)
    # Cancellation between x and its bounds is that of the problem: measured in units of its largest term.
    size = 1 + (np.abs(ends).max(axis=0) * np.abs(coefficients).T.reshape(-1, columns)).sum()
    expected = scaling.apply(cells) @ weights + bias
    np.testing.assert_allclose(cells @ coefficients + intercept, expected, rtol=0, atol=1e-14 * size * columns)


def test_one_pair_of_bounds_serves_every_column() -> None:
    scaling = ColumnScaling.from_bounds((-2, 4), 3)
    assert scaling.low.tolist() == [-2.0] * 3
    assert scaling.scale.tolist() == [4.0] * 3
    mixed = ColumnScaling.from_bounds((0, [1, 2, 3]), 3)
    assert mixed.scale.tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    "bad",
    [
        1.0,
        None,
        (0,),
        (0, 1, 2),
        "01x",
        (0, "a"),
        ([0, 0], [1, 1]),
        (0, None),
        (0, math.inf),
        (math.nan, 1),
        (1, 1),
        (2, 1),
    ],
    ids=repr,
)
def test_bad_bounds_are_refused_by_name(bad: object) -> None:
    with pytest.raises(InvalidParameter, match="bounds"):
        ColumnScaling.from_bounds(bad, 3)


def test_errors_name_the_column() -> None:
    for bad, demand in ((([0, 0, 5], [1, 1, 5]), "low < high"), (([0, 0, 5], [1, 1, math.inf]), "finite")):
        with pytest.raises(InvalidParameter, match=f"column 2 .*{demand}"):
            ColumnScaling.from_bounds(bad, 3)
        with pytest.raises(InvalidParameter, match=f"column 'income' .*{demand}"):
            ColumnScaling.from_bounds(bad, 3, names=["age", "hours", "income"])


@pytest.mark.parametrize("shape", [(4, 1), (4, 2), (3,)])
def test_a_table_of_other_columns_is_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(InvalidParameter, match="3 columns"):
        ColumnScaling.from_bounds((0, 1), 3).apply(np.zeros(shape))


def test_ranges_on_one_side_of_0_have_a_middle_and_others_are_counted_from_0() -> None:
    scaling = ColumnScaling.from_bounds((LOW, HIGH), 6)
    assert middles(scaling, (None,) * 6) == (0.0, 0.0, 0.5, -0.5, 0.0, 0.0)
    assert middles(scaling, (False, False, True, False, False, None)) == (0.0, 0.0, 0.0, -0.5, 0.0, 0.0)
