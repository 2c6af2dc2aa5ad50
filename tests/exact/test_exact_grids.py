"""Grids: exact exponents, total placement, exact norms and margins."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse
from threadpoolctl import threadpool_limits

from dpdescent.errors import InvalidParameter
from dpdescent.exact import CoarseGrid, FeatureGrid, blas_is_exact, ceil_log2, machine

repeatable = settings(deadline=None, derandomize=True, max_examples=80)
wild = st.floats(allow_nan=True, allow_infinity=True, width=64)


def rows_of(seed: int, rows: int, columns: int) -> np.ndarray:
    return np.random.default_rng(seed).uniform(-1.2, 1.2, (rows, columns))


def exact_margin(row: np.ndarray, weights: np.ndarray) -> Fraction:
    return sum((Fraction(float(a)) * Fraction(float(b)) for a, b in zip(row, weights, strict=True)), Fraction(0))


@repeatable
@given(st.floats(min_value=5e-324, max_value=1e308))
def test_ceil_log2_is_the_least_exponent(x):
    e = ceil_log2(x)
    assert Fraction(x) <= Fraction(2) ** e
    assert Fraction(x) > Fraction(2) ** (e - 1)


def test_ceil_log2_of_powers_of_two_is_exact():
    assert [ceil_log2(x) for x in (1.0, 2.0, 0.5, math.nextafter(1, 2), math.nextafter(1, 0))] == [0, 1, -1, 1, 0]


@pytest.mark.parametrize(("row_bound", "exponent"), [(1.0, 20), (11.2, 16), (316.3, 11)])
def test_feature_exponent_is_twenty_bits_below_the_row_bound(row_bound, exponent):
    assert FeatureGrid(1.0, 10**6, row_bound).exponent == exponent
    assert FeatureGrid(1.0, 10**6, row_bound).coarse.exponent == exponent - 7
    assert isinstance(FeatureGrid(1.0, 3).coarse, CoarseGrid)


def test_row_bound_is_at_most_what_the_entries_imply():
    assert FeatureGrid(2.0, 9).row_bound == 6
    assert FeatureGrid(2.0, 9, 100.0).row_bound == 6
    assert FeatureGrid(2.0, 9, 5.0).row_bound == 5


def test_placing_rounds_to_nearest_clips_and_drops_nan():
    grid = FeatureGrid(1.0, 125)
    assert grid.exponent == 16
    row = np.zeros((1, 125))
    row[0, :7] = [0.3, -0.3, 7, np.nan, 2.0**-17, np.inf, -np.inf]
    placed = grid.place(row)
    assert placed[0, :7].tolist() == [0.3000030517578125, -0.3000030517578125, 1, 0, 0, 1, -1]
    assert not np.signbit(placed[0, 7:]).any()


@repeatable
@given(st.lists(wild, min_size=6, max_size=6), st.sampled_from([0.3, 1.0, 40.0]), st.sampled_from([None, 0.5, 1e-4]))
def test_placing_is_total_and_respects_the_row_bound(values, entry_bound, row_bound):
    grid = FeatureGrid(entry_bound, 6, math.inf if row_bound is None else row_bound)
    placed = grid.place(np.array([values]))
    integers = placed * 2.0**grid.exponent
    assert np.isfinite(placed).all()
    assert np.array_equal(integers, np.rint(integers))
    limit = Fraction(grid.row_bound) + Fraction(math.ceil(math.sqrt(6))) / Fraction(2) ** (grid.exponent + 1)
    norm = sum(Fraction(float(x)) ** 2 for x in placed[0])
    assert Fraction(float(grid.squared_norms(placed)[0])) == norm <= limit**2 * (1 + Fraction(1, 2**48))


def test_a_long_row_keeps_its_direction():
    rows = [[600.0, 800.0], [0.06, 0.08], [36.0, 48.0]]
    directions = [[0.6, 0.8], [0.06, 0.08], [0.6, 0.8]]
    np.testing.assert_allclose(FeatureGrid(1000.0, 2, 1.0).place(rows), directions, rtol=0, atol=2**-15)
    np.testing.assert_allclose(
        FeatureGrid(48.0, 2, 1.1).place(rows[1:]), directions[1:] * np.array([[1], [1.1]]), atol=2**-19
    )


def test_placing_does_not_depend_on_order_storage_or_sparsity_and_keeps_its_input():
    dense = rows_of(0, 300, 40)
    dense[dense < 0.3] = 0
    dense[3, 5], dense[4, 6] = np.nan, np.inf
    for grid in (FeatureGrid(1.0, 40), FeatureGrid(1.0, 40, 1.5)):
        kept = dense.copy()
        placed = grid.place(dense)
        assert np.array_equal(dense, kept, equal_nan=True)
        fortran = grid.place(np.asfortranarray(dense))
        assert fortran.flags.f_contiguous
        assert np.array_equal(fortran, placed)
        assert np.array_equal(grid.place(np.repeat(dense, 2, axis=1)[:, ::2]), placed)
        assert np.array_equal(grid.place(dense, dtype=np.float32), placed)
        assert grid.place(dense, dtype=np.float32).dtype == np.float32
        for kind in (sparse.csr_array, sparse.csr_matrix):
            stored = kind(dense)
            again = stored.copy()
            result = grid.place(stored)
            assert type(result) is kind
            assert np.array_equal(result.toarray(), placed)
            assert np.array_equal(stored.data, again.data, equal_nan=True)
            assert np.array_equal(grid.squared_norms(result), grid.squared_norms(placed))
            assert np.array_equal(grid.place(stored, dtype=np.float32).toarray(), placed)
        assert np.array_equal(grid.place(sparse.csc_array(dense)).toarray(), placed)


def test_entries_stored_twice_count_once_with_their_sum():
    grid = FeatureGrid(2.0, 2)
    stored = sparse.csr_array((np.array([0.6, 0.6]), np.array([1, 1]), np.array([0, 2, 2])), shape=(2, 2))
    placed = grid.place(stored)
    assert stored.nnz == 2
    assert placed.nnz == 1
    np.testing.assert_allclose(grid.squared_norms(placed), [1.44, 0], rtol=1e-4)


def test_float32_input_is_widened_before_rounding():
    values = rows_of(1, 50, 7).astype(np.float32)
    grid = FeatureGrid(1.0, 7)
    assert np.array_equal(grid.place(values), grid.place(values.astype(np.float64)))


@pytest.mark.parametrize("scale", [1e-170, 1e-9, 1.0, 1e6, 1e140])
def test_margins_equal_rational_arithmetic(scale):
    generator = np.random.default_rng(2)
    for dimension in (1, 3, 50):
        grid = FeatureGrid(1.0, dimension)
        placed = grid.place(rows_of(3, 40, dimension))
        weights = grid.place_weights(generator.normal(size=dimension) * scale)
        for row, margin in zip(placed, grid.margins(placed, weights), strict=True):
            assert exact_margin(row, weights) == Fraction(float(margin))
    assert not grid.margins(placed, np.zeros(50)).any()


def test_margins_are_exact_in_the_worst_case():
    # All entries and weights at their bounds: the sum of absolute products is as large as it can be.
    for dimension in (1, 2, 64, 65, 1000):
        grid = FeatureGrid(1.0, dimension)
        placed = grid.place(np.full((5, dimension), 1.0))
        weights = grid.place_weights(np.full(dimension, math.nextafter(1.0, 2.0)) + 2.0**-30)
        assert exact_margin(placed[0], weights) == Fraction(float(grid.margins(placed, weights)[4]))


def test_margins_do_not_depend_on_the_other_rows():
    grid = FeatureGrid(1.0, 124)
    placed = grid.place(rows_of(4, 61, 124))
    weights = grid.place_weights(np.random.default_rng(5).normal(size=124))
    whole = grid.margins(placed, weights)
    for rows in range(1, 61):
        assert np.array_equal(grid.margins(placed[:rows], weights), whole[:rows])
        assert np.array_equal(grid.margins(np.asfortranarray(placed[rows:]), weights), whole[rows:])


def test_margins_have_the_same_bits_in_every_representation(monkeypatch):
    grid = FeatureGrid(1.0, 60)
    raw = rows_of(6, 9000, 60)
    raw[raw < 0.5] = 0
    placed = grid.place(raw)
    for shape in ((60,), (60, 3)):
        weights = grid.place_weights(
            np.random.default_rng(7).normal(size=shape) * [1.0, 30.0, 1e-5][: shape[-1] % 60 or 1]
        )
        expected = grid.margins(placed, weights).tobytes()
        variants = [np.asfortranarray(placed), grid.place(raw, np.float32), sparse.csr_array(placed)]
        variants += [sparse.csr_matrix(placed), grid.place(sparse.csr_array(raw), np.float32)]
        for variant in variants:
            assert np.ascontiguousarray(grid.margins(variant, weights)).tobytes() == expected
        for threads in (1, 2):
            with threadpool_limits(threads):
                assert grid.margins(placed, weights).tobytes() == expected
        with monkeypatch.context() as patch:
            patch.setattr(machine, "blas_is_exact", lambda: False)
            for variant in [placed, *variants]:
                assert np.ascontiguousarray(grid.margins(variant, weights)).tobytes() == expected


def test_blas_passes_its_trial_here():
    assert blas_is_exact()


@repeatable
@given(st.lists(st.floats(-1e6, 1e6), min_size=4, max_size=4), st.integers(-300, 300))
def test_placing_weights_twice_changes_nothing(values, shift):
    grid = FeatureGrid(1.0, 4)
    once = grid.place_weights(np.ldexp(np.array(values), shift))
    assert np.array_equal(grid.place_weights(once), once)
    grid.margins(np.zeros((1, 4)), once)


def test_rounding_over_a_power_of_two_settles():
    grid = FeatureGrid(1.0, 2)
    weights = np.array([math.nextafter(1.0, 0.0), 2.0**-33])
    once = grid.place_weights(weights)
    assert np.array_equal(grid.place_weights(once), once)


def test_each_column_of_weights_has_its_own_grid():
    grid = FeatureGrid(1.0, 5)
    columns = np.random.default_rng(8).normal(size=(5, 3)) * [1.0, 1e6, 1e-9]
    together = grid.place_weights(columns)
    for k in range(3):
        assert np.array_equal(together[:, k], grid.place_weights(columns[:, k]))
    np.testing.assert_allclose(together, columns, atol=0, rtol=1e-6)


def test_weights_off_their_grid_are_refused():
    grid = FeatureGrid(1.0, 3)
    with pytest.raises(InvalidParameter, match="place_weights"):
        grid.margins(np.zeros((2, 3)), np.array([0.1, 0.2, 0.3]))


@pytest.mark.parametrize("bad", [np.nan, np.inf, 1e200])
def test_diverged_weights_are_refused(bad):
    grid = FeatureGrid(1.0, 2)
    with pytest.raises(InvalidParameter, match="diverged"):
        grid.place_weights([bad, 1.0])
    with pytest.raises(InvalidParameter, match="diverged"):
        grid.margins(np.zeros((2, 2)), np.array([bad, 1.0]))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e300, 1e-300, "x", None])
def test_bad_bounds_are_refused(bad):
    with pytest.raises(InvalidParameter, match="entry_bound"):
        FeatureGrid(bad, 3)
    if bad != math.inf:
        with pytest.raises(InvalidParameter, match="row_bound"):
            FeatureGrid(1.0, 3, bad)


@pytest.mark.parametrize("bad", [0, -1, 2.5, math.nan, 2**31])
def test_bad_dimensions_are_refused(bad):
    with pytest.raises(InvalidParameter, match="dimension"):
        FeatureGrid(1.0, bad)


@pytest.mark.parametrize(
    "bad",
    [np.zeros(3), np.zeros((2, 4)), np.zeros((2, 3, 1)), np.zeros((2, 3), complex), np.zeros((2, 3), object)],
)
def test_features_of_the_wrong_shape_or_type_are_refused(bad):
    grid = FeatureGrid(1.0, 3)
    for operation in (grid.place, grid.squared_norms, lambda rows: grid.margins(rows, np.zeros(3))):
        with pytest.raises(InvalidParameter, match="features"):
            operation(bad)


@pytest.mark.parametrize("bad", [np.zeros(4), np.zeros((3, 2, 1)), np.zeros(()), np.zeros(3, complex)])
def test_weights_of_the_wrong_shape_or_type_are_refused(bad):
    with pytest.raises(InvalidParameter, match="weights"):
        FeatureGrid(1.0, 3).place_weights(bad)


def test_storage_that_cannot_hold_the_grid_is_refused():
    with pytest.raises(InvalidParameter, match="float64 or float32"):
        FeatureGrid(1.0, 3).place(np.zeros((1, 3)), dtype=np.float16)
    with pytest.raises(InvalidParameter, match="rescale"):
        FeatureGrid(1e-50, 3).place(np.zeros((1, 3)), dtype=np.float32)


def test_weights_changed_in_place_are_checked_again():
    grid = FeatureGrid(1.0, 3)
    weights = grid.place_weights([0.5, 0.25, 1.0])
    placed = grid.place(np.eye(3))
    assert grid.margins(placed, weights).tolist() == [0.5, 0.25, 1.0]
    weights[0] = 0.1
    for _ in range(2):
        with pytest.raises(InvalidParameter, match="place_weights"):
            grid.margins(placed, weights)


@pytest.mark.parametrize("power", [-500, -451, -450, -100, 0, 1, 100, 450, 451, 499])
def test_the_grid_of_weights_is_the_finest_one_up_to_the_last_bit_of_their_norm(power):
    grid, unit = FeatureGrid(1.0, 2), math.ldexp(1.0, power - 32)
    for nudge in (0.0, 2.0**-52, -(2.0**-53), 2.0**-30, -(2.0**-30), 0.3, -0.3):
        length = math.ldexp(1 + nudge, power)
        # One unit of the finer grid is half a unit of the coarser one, and vanishes there.
        assert grid.place_weights([length, unit])[1] == (unit if nudge <= 0 else 0.0)


def test_placed_weights_may_be_changed_without_harm_to_the_next_ones():
    grid, weights = FeatureGrid(1.0, 3), np.array([0.1, 0.2, 0.3])
    first = grid.place_weights(weights)
    kept = first.copy()
    first[:] = 7.0
    assert np.array_equal(grid.place_weights(weights), kept)
    assert weights[0] == 0.1
