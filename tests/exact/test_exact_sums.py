"""Exact sums: bit-identical in every representation, and bounded in the integers."""

from __future__ import annotations

import hashlib
import math

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse
from threadpoolctl import threadpool_limits

from dpdescent.errors import InvalidParameter
from dpdescent.exact import (
    BoundedSum,
    ClippedSum,
    FeatureGrid,
    LatticeSum,
    SecondMomentSum,
    SignedSum,
    machine,
    sigmoid,
)
from dpdescent.relations import Norm, Sensitivity

repeatable = settings(deadline=None, derandomize=True, max_examples=80)
wild = st.floats(allow_nan=True, allow_infinity=True, width=64)


def squared_length(values: np.ndarray) -> int:
    return sum(int(v) ** 2 for v in np.ravel(values))


def squared_bound(bound: float, unit: float) -> int:
    """The largest integer at most (bound / unit)^2, exactly."""
    top, bottom = (bound / unit).as_integer_ratio()  # unit is a power of two: the quotient is exact
    return top**2 // bottom**2


def scrambled(count: int, start: int = 1) -> np.ndarray:
    """Multiples of 2^-30 in [-1, 1) from an integer recurrence: the same on every machine and numpy version."""
    values, state = [], start
    for _ in range(count):
        state = (1103515245 * state + 12345) % 2**31
        values.append(state / 2**30 - 1)
    return np.array(values)


def adversarial_rows(columns: int) -> np.ndarray:
    generator = np.random.default_rng(11)
    rows = [generator.uniform(-1, 1, columns) for _ in range(20)]
    rows += [np.full(columns, v) for v in (0.0, 1.0, -1.0, 1e-300, 2.0**-17, 2.0**-16, 1e-5, 1e300, np.inf, np.nan)]
    rows += [np.where(np.arange(columns) == 0, v, 0.0) for v in (1.0, 2.0**-16, 0.3, -np.inf)]
    return np.array(rows)


RESIDUALS = [0.0, 1.0, -1.0, 0.3, 1e-9, 1e-300, 5.0, 1e17, -1e308, np.inf, -np.inf, np.nan, 2.0**-20, 1 / 3]


def test_coefficient_exponents_fill_thirty_six_bits():
    for row_bound, clip, exponents in [
        (1, 1, (20, 16)),
        (11.2, 1, (16, 20)),
        (316.3, 1, (11, 25)),
        (1, 0.1, (20, 19)),
    ]:
        clipped = ClippedSum(FeatureGrid(1.0, 10**6, row_bound), clip)
        assert (clipped.grid.exponent, clipped.coefficient_exponent) == exponents
        assert clip / clipped.unit <= 2**36
    assert ClippedSum(FeatureGrid(1.0, 1), 1.0, total_bits=30).unit == 2.0**-30


def test_scalar_clip_has_known_values():
    clipped = ClippedSum(FeatureGrid(1.0, 1), 1.0)
    found = clipped.coefficients([5, -5, 1e-9, np.nan, 0.25], [1, 4, 1, 1, 0])
    assert found.tolist() == [65535, -32767, 0, 0, 0]


def test_vector_clip_has_known_values():
    clipped = ClippedSum(FeatureGrid(1.0, 1), 1.0)
    assert clipped.coefficients([[3, 4]], [1]).tolist() == [[39320, 52427]]


@pytest.mark.parametrize("clip", [1.0, 0.1, 3.7, 1e-6, 1e9])
def test_every_contribution_is_within_the_clip_norm_in_integers(clip):
    grid = FeatureGrid(1.0, 9)
    clipped = ClippedSum(grid, clip)
    placed = grid.place(adversarial_rows(9))
    for residual in RESIDUALS:
        coefficients = clipped.coefficients(np.full(len(placed), residual), grid.squared_norms(placed))
        for row, coefficient in zip(placed, coefficients, strict=True):
            own = clipped.block(row[np.newaxis], np.array([coefficient]))
            assert squared_length(own) <= squared_bound(clip, clipped.unit)


@pytest.mark.parametrize("classes", [1, 2, 10, 300])
def test_every_vector_contribution_is_within_the_clip_norm_in_integers(classes):
    grid = FeatureGrid(1.0, 5)
    clipped = ClippedSum(grid, 0.7)
    placed = grid.place(adversarial_rows(5))
    generator = np.random.default_rng(12)
    for scale in (1e-8, 1.0, 1e30):
        residuals = generator.normal(size=(len(placed), classes)) * scale
        residuals[::3, 0] = generator.choice(RESIDUALS, len(residuals[::3]))
        coefficients = clipped.coefficients(residuals, grid.squared_norms(placed))
        for row, own in zip(placed, coefficients, strict=True):
            contribution = clipped.block(row[np.newaxis], own[np.newaxis])
            assert contribution.shape == (5, classes)
            assert squared_length(contribution) <= squared_bound(0.7, clipped.unit)


@repeatable
@given(st.lists(wild, min_size=4, max_size=4), wild, st.floats(1e-9, 1e9), st.floats(1e-6, 1e6))
def test_no_row_and_residual_break_the_bound(row, residual, clip, entry_bound):
    grid = FeatureGrid(entry_bound, 4)
    clipped = ClippedSum(grid, clip)
    total = clipped.total(grid.place([row]), [residual])
    assert squared_length(total.values) <= squared_bound(clip, clipped.unit)
    vector = clipped.total(grid.place([row]), [[residual, -residual, 1.0]])
    assert squared_length(vector.values) <= squared_bound(clip, clipped.unit)


def test_clipping_floats_exceeds_the_bound():
    # Why integers are clipped: r * min(1, C/(|r| |x|)) in float64, rounded to nearest, is often longer than C.
    generator = np.random.default_rng(13)
    grid = FeatureGrid(1.0, 6)
    unit_exponent = 36
    placed = grid.place(generator.uniform(-1, 1, (400, 6)))
    residuals = generator.uniform(2, 9, 400)
    factor = np.minimum(1, 1.0 / (residuals * np.sqrt(grid.squared_norms(placed))))
    floats = placed * (residuals * factor)[:, np.newaxis]
    fractions = [sum(int(v * 2.0**80) ** 2 for v in row) > 2**160 for row in floats]
    assert np.mean(fractions) > 0.2
    clipped = ClippedSum(grid, 1.0)
    assert clipped.unit == 2.0**-unit_exponent
    own = [clipped.total(placed[i : i + 1], residuals[i : i + 1]).values for i in range(400)]
    assert max(squared_length(values) for values in own) <= 4**unit_exponent
    assert min(squared_length(values) for values in own) > 4**unit_exponent * (1 - 1e-4)


def test_removing_a_row_removes_its_own_contribution_and_replacing_moves_at_most_twice_the_clip():
    grid = FeatureGrid(1.0, 9)
    placed = grid.place(adversarial_rows(9))
    generator = np.random.default_rng(14)
    for residuals in (generator.choice(RESIDUALS, len(placed)), generator.normal(size=(len(placed), 3)) * 5):
        clipped = ClippedSum(grid, 0.5)
        total = clipped.total(placed, residuals)
        own = []
        for i in range(len(placed)):
            keep = np.arange(len(placed)) != i
            difference = total.values - clipped.total(placed[keep], residuals[keep]).values
            own.append(clipped.total(placed[i : i + 1], residuals[i : i + 1]).values)
            assert np.array_equal(difference, own[-1])
            assert squared_length(difference) <= squared_bound(total.sensitivity.zero_out, total.unit)
        for a in own:
            for b in own:
                assert squared_length(a - b) <= squared_bound(total.sensitivity.replace_one, total.unit)


def test_eight_rows_against_seven_of_the_hinge_loss():
    # With margins from a plain BLAS, dropping one of eight identical rows has moved this sum by 4 clip norms.
    generator = np.random.default_rng(15)
    for _ in range(400):
        dimension = int(generator.integers(2, 40))
        grid = FeatureGrid(1.0, dimension, 1.0)
        clipped = ClippedSum(grid, 1.0)
        x = generator.normal(size=dimension)
        x /= np.linalg.norm(x)
        w = generator.normal(size=dimension)
        eight = grid.place(np.tile(x, (8, 1)))
        weights = grid.place_weights(w / (w @ eight[0]))
        sums = []
        for rows in (eight, eight[:7]):
            active = grid.margins(rows, weights) < 1
            sums.append(clipped.total(rows, np.where(active, -1.0, 0.0)).values)
        assert squared_length(sums[0] - sums[1]) <= squared_bound(1.0, clipped.unit)


def gradient(grid: FeatureGrid, rows: object, y: np.ndarray, w: np.ndarray, block_rows: int = 8192) -> bytes:
    residuals = sigmoid(grid.margins(rows, w)) - y
    return ClippedSum(grid, 1.0).total(rows, residuals, block_rows=block_rows).values.tobytes()


def test_a_gradient_has_the_same_bits_in_every_representation(monkeypatch):
    grid = FeatureGrid(1.0, 30)
    raw = np.random.default_rng(16).uniform(-1, 1, (5000, 30))
    raw[np.abs(raw) < 0.4] = 0
    y = (raw[:, 0] > 0.1).astype(float)
    placed = grid.place(raw)
    w = grid.place_weights(np.random.default_rng(17).normal(size=30))
    expected = gradient(grid, placed, y, w)
    variants = [np.asfortranarray(placed), grid.place(raw, np.float32), sparse.csr_array(placed)]
    variants += [sparse.csr_matrix(placed), grid.place(sparse.csr_array(raw), np.float32)]
    for block_rows in (1, 7, 64, 999, 4096, 2**17):
        for rows in [placed, *variants] if block_rows > 1 else [placed]:
            assert gradient(grid, rows, y, w, block_rows) == expected
    for seed in range(4):
        order = np.random.default_rng(seed).permutation(5000)
        assert gradient(grid, placed[order], y[order], w) == expected
        assert gradient(grid, variants[2][order], y[order], w) == expected
    for threads in (1, 2):
        with threadpool_limits(threads):
            assert gradient(grid, placed, y, w, 2**17) == expected
    monkeypatch.setattr(machine, "blas_is_exact", lambda: False)
    for rows in [placed, *variants]:
        assert gradient(grid, rows, y, w) == expected


def test_a_gradient_of_known_input_has_known_bits():
    grid = FeatureGrid(1.0, 20)
    raw = scrambled(20_000).reshape(1000, 20)
    placed = grid.place(raw)
    w = grid.place_weights(scrambled(20, start=7))
    digest = hashlib.sha256(gradient(grid, placed, (raw[:, 3] > 0).astype(float), w)).hexdigest()
    assert digest == "c42cbc2267b9ca42562f0e3d077c5218cf07018363b847127f5617a7791f6eb2"


def test_multinomial_sums_have_the_same_bits_in_every_representation(monkeypatch):
    grid = FeatureGrid(1.0, 12)
    placed = grid.place(np.random.default_rng(18).uniform(-1, 1, (700, 12)))
    residuals = np.random.default_rng(19).normal(size=(700, 4))
    clipped = ClippedSum(grid, 0.3)
    norms = grid.squared_norms(placed)
    expected = clipped.total(placed, residuals, norms).values
    assert expected.shape == (12, 4)
    order = np.random.default_rng(20).permutation(700)
    assert np.array_equal(clipped.total(placed[order], residuals[order], block_rows=13).values, expected)
    assert np.array_equal(clipped.total(sparse.csr_array(placed), np.asfortranarray(residuals)).values, expected)
    monkeypatch.setattr(machine, "blas_is_exact", lambda: False)
    assert np.array_equal(clipped.total(placed, residuals, norms).values, expected)


def test_an_unclipped_sum_is_the_sum_of_the_rows():
    grid = FeatureGrid(1.0, 8)
    placed = grid.place(np.random.default_rng(21).uniform(-1, 1, (500, 8)))
    total = ClippedSum(grid, 2 * grid.row_bound).total(placed, np.ones(500))
    assert np.array_equal(total.to_float(), placed.sum(axis=0))
    assert total.sensitivity == Sensitivity.of_clipped_sum(2 * grid.row_bound)


def test_caps_computed_once_give_the_same_coefficients():
    grid = FeatureGrid(1.0, 9)
    clipped = ClippedSum(grid, 0.5)
    norms = grid.squared_norms(grid.place(adversarial_rows(9)))
    residuals = np.random.default_rng(22).normal(size=len(norms))
    expected = clipped.coefficients(residuals, norms)
    assert np.array_equal(clipped.coefficients_within(residuals, clipped.caps(norms), out=residuals), expected)
    assert np.array_equal(residuals, expected)


def test_no_rows_give_a_zero_sum():
    grid = FeatureGrid(1.0, 3)
    assert not ClippedSum(grid, 1.0).total(np.zeros((0, 3)), np.zeros(0)).values.any()
    assert not ClippedSum(grid, 1.0).total(np.zeros((0, 3)), np.zeros((0, 2))).values.any()
    assert not SecondMomentSum(grid.coarse, 1.0).total(np.zeros((0, 3)), np.zeros(0)).values.any()
    assert BoundedSum(1.0).total(np.zeros((0, 4))).values.tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("nonnegative", [True, False])
def test_second_moments_are_bounded_symmetric_and_row_by_row(nonnegative):
    grid = FeatureGrid(1.0, 6).coarse
    moments = SecondMomentSum(grid, 0.8, nonnegative)
    placed = grid.place(adversarial_rows(6))
    curvatures = np.random.default_rng(23).choice(RESIDUALS, len(placed))
    total = moments.total(placed, curvatures)
    assert total.values.shape == (6, 6)
    assert np.array_equal(total.values, total.values.T)
    own = []
    for i in range(len(placed)):
        keep = np.arange(len(placed)) != i
        own.append(moments.total(placed[i : i + 1], curvatures[i : i + 1]).values)
        assert np.array_equal(total.values - moments.total(placed[keep], curvatures[keep]).values, own[-1])
        assert squared_length(own[-1]) <= squared_bound(0.8, total.unit)
        if nonnegative:
            assert (np.diag(own[-1]) >= 0).all()
    factor = 2 if nonnegative else 4
    for a in own:
        for b in own:
            assert squared_length(a - b) <= factor * squared_bound(0.8, total.unit)
    assert total.sensitivity.replace_one == pytest.approx(math.sqrt(factor) * 0.8)


def test_second_moments_have_the_same_bits_in_every_representation(monkeypatch):
    grid = FeatureGrid(1.0, 15).coarse
    raw = np.random.default_rng(24).uniform(-1, 1, (3000, 15))
    raw[np.abs(raw) < 0.5] = 0
    placed, curvatures = grid.place(raw), np.random.default_rng(25).uniform(0, 0.3, 3000)
    moments = SecondMomentSum(grid, 1.0)
    expected = moments.total(placed, curvatures).values
    order = np.random.default_rng(26).permutation(3000)
    variants = [np.asfortranarray(placed), grid.place(raw, np.float32), sparse.csr_array(placed)]
    variants += [sparse.csr_matrix(placed), grid.place(FeatureGrid(1.0, 15).place(raw))]
    for exact in (True, False):
        monkeypatch.setattr(machine, "blas_is_exact", lambda exact=exact: exact)
        for rows in [placed, *variants[:-1]]:
            assert np.array_equal(moments.total(rows, curvatures, block_rows=700).values, expected)
        assert np.array_equal(moments.total(placed[order], curvatures[order]).values, expected)
    scaled = (raw * curvatures[:, np.newaxis]).T @ raw
    unclipped = SecondMomentSum(grid, 5.0).total(variants[-1], curvatures).to_float()
    np.testing.assert_allclose(unclipped, scaled, atol=0.05)


@repeatable
@given(st.lists(wild, min_size=1, max_size=30), st.floats(1e-6, 1e6))
def test_losses_never_leave_their_interval(losses, ceiling):
    bounded = BoundedSum(ceiling)
    top = bounded.ceiling / bounded.unit
    assert 0 < bounded.ceiling <= ceiling < bounded.ceiling * (1 + 2**-22)
    assert top == int(top) <= 2**24
    own = np.array([bounded.total([loss]).values[0] for loss in losses])
    assert ((own >= 0) & (own <= top)).all()
    assert bounded.total(losses).values.tolist() == [own.sum()]
    signed = SignedSum(ceiling)
    own = np.array([signed.total([loss]).values[0] for loss in losses])
    assert (np.abs(own) <= top).all()
    assert signed.total(losses, block_rows=3).values.tolist() == [own.sum()]


def test_losses_round_to_nearest_and_nan_pays_the_ceiling():
    bounded = BoundedSum(1.0)
    assert bounded.unit == 2.0**-24
    assert bounded.total([0.25, 7.0, -3.0, np.nan, np.inf]).to_float().tolist() == [3.25]
    assert SignedSum(1.0).total([0.25, 7.0, -3.0, np.nan, -np.inf]).to_float().tolist() == [-0.75]


def test_losses_of_many_candidates_are_scores():
    losses = np.random.default_rng(27).uniform(-0.2, 1.4, (2000, 5))
    bounded = BoundedSum(1.0)
    scores = bounded.total(losses)
    assert scores.values.shape == (5,)
    assert scores.sensitivity == Sensitivity.of_scores(1.0)
    assert bounded.total(losses[:, 0]).sensitivity == Sensitivity.of_bounded_sum(1.0)
    assert SignedSum(1.0).total(losses).sensitivity.norm is Norm.MAX
    for variant in (losses[::-1], np.asfortranarray(losses)):
        assert np.array_equal(bounded.total(variant, block_rows=77).values, scores.values)
    for k in range(5):
        assert bounded.total(losses[:, k]).values[0] == scores.values[k]
    other = losses.copy()
    other[17] = [0, 5, -1, np.nan, 0.5]
    moved = bounded.total(other).values - scores.values
    assert (np.abs(moved) * bounded.unit <= 1).all()
    assert (moved.max() - moved.min()) * bounded.unit <= scores.sensitivity.replace_one


def test_block_totals_add_up_and_wrap_silently():
    sensitivity = Sensitivity.of_clipped_sum(1.0)
    largest = np.array([2**63 - 1, 5])
    total = LatticeSum(largest, 0.5, sensitivity) + LatticeSum(np.array([1, 2]), 0.5, sensitivity)
    assert total.values.tolist() == [-(2**63), 7]
    assert total.to_float().tolist() == [-(2.0**62), 3.5]


def test_sums_of_different_kinds_do_not_add():
    one = LatticeSum(np.array([1]), 0.5, Sensitivity.of_clipped_sum(1.0))
    for other in (
        LatticeSum(np.array([1]), 0.25, one.sensitivity),
        LatticeSum(np.array([1]), 0.5, Sensitivity.of_clipped_sum(2.0)),
        LatticeSum(np.array([1, 1]), 0.5, one.sensitivity),
    ):
        with pytest.raises(InvalidParameter, match="add up"):
            one + other
    with pytest.raises(TypeError):
        one + 1


def test_an_unreleased_sum_does_not_show_its_values():
    total = LatticeSum(np.array([123456789]), 0.5, Sensitivity.of_clipped_sum(1.0))
    assert "123456789" not in repr(total) + str(total) + f"{total}"
    with pytest.raises(ValueError, match="read-only"):
        total.values[0] = 0


@pytest.mark.parametrize("unit", [0.0, -1.0, 0.3, math.nan, math.inf])
def test_units_that_are_no_powers_of_two_are_refused(unit):
    with pytest.raises(InvalidParameter, match="power of two"):
        LatticeSum(np.array([1]), unit, Sensitivity.of_clipped_sum(1.0))


def test_values_that_are_not_int64_are_refused():
    for values in (np.array([1.0]), np.array([1], dtype=np.int32), [1]):
        with pytest.raises(InvalidParameter, match="int64"):
            LatticeSum(values, 1.0, Sensitivity.of_clipped_sum(1.0))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, 1e300, "x", None])
def test_bad_clip_norms_are_refused(bad):
    grid = FeatureGrid(1.0, 3)
    for build in (lambda: ClippedSum(grid, bad), lambda: SecondMomentSum(grid.coarse, bad)):
        with pytest.raises(InvalidParameter, match="clip"):
            build()
    with pytest.raises(InvalidParameter, match="ceiling"):
        BoundedSum(bad)
    with pytest.raises(InvalidParameter, match="bound"):
        SignedSum(bad)


@pytest.mark.parametrize("bad", [0, 37, 2.5, math.nan])
def test_bad_total_bits_are_refused(bad):
    with pytest.raises(InvalidParameter, match="total_bits"):
        ClippedSum(FeatureGrid(1.0, 3), 1.0, bad)


def test_second_moments_on_the_fine_grid_are_refused():
    with pytest.raises(InvalidParameter, match="coarse"):
        SecondMomentSum(FeatureGrid(1.0, 3), 1.0)


def test_wrong_shapes_and_types_are_refused():
    grid = FeatureGrid(1.0, 3)
    clipped, rows = ClippedSum(grid, 1.0), np.zeros((4, 3))
    for residuals in (
        np.zeros(5),
        np.zeros((4, 2, 2)),
        np.zeros(4, complex),
        np.zeros(4, object),
        np.zeros((4, 2000)),
    ):
        with pytest.raises(InvalidParameter):
            clipped.total(rows, residuals)
    with pytest.raises(InvalidParameter, match="number"):
        clipped.total(rows, np.zeros(4), np.zeros(5))
    with pytest.raises(InvalidParameter, match="use total"):
        clipped.block(np.zeros((2**17 + 1, 3)), np.zeros(2**17 + 1))
    for block_rows in (0, -1, 2**17 + 1):
        with pytest.raises(InvalidParameter, match="block_rows"):
            clipped.total(rows, np.zeros(4), block_rows=block_rows)
    moments = SecondMomentSum(grid.coarse, 1.0)
    with pytest.raises(InvalidParameter):
        moments.total(rows, np.zeros(5))
    with pytest.raises(InvalidParameter):
        moments.block(rows, np.zeros(5))
    with pytest.raises(InvalidParameter, match="shape"):
        BoundedSum(1.0).total(np.zeros((2, 2, 2)))
    with pytest.raises(InvalidParameter, match="real"):
        BoundedSum(1.0).total(np.zeros(3, complex))


@pytest.mark.parametrize("exact_blas", [True, False])
def test_total_within_caps_is_the_total(monkeypatch, exact_blas):
    monkeypatch.setattr(machine, "blas_is_exact", lambda: exact_blas)
    grid = FeatureGrid(1.0, 9)
    clipped = ClippedSum(grid, 0.7)
    placed = grid.place(adversarial_rows(9))
    caps = clipped.caps(grid.squared_norms(placed))
    generator = np.random.default_rng(20)
    for odd in (False, True):
        residuals = generator.normal(size=len(placed))
        if odd:
            residuals[::2] = generator.choice(RESIDUALS, len(residuals[::2]))
            residuals[:3] = np.nan
        own = [clipped.total(placed[i : i + 1], residuals[i : i + 1]).values for i in range(len(placed))]
        expected = np.sum(own, axis=0)
        for rows in (placed, np.asfortranarray(placed), placed.astype(np.float32), sparse.csr_array(placed)):
            for block_rows in (1, 5, 2**17):
                found = clipped.total_within(rows, residuals, caps, block_rows=block_rows)
                assert np.array_equal(found.values, expected)
        kept = residuals.copy()
        clipped.total_within(placed, residuals, caps)
        assert np.array_equal(residuals, kept, equal_nan=True)
        assert np.array_equal(clipped.total_within(placed, kept, caps, out=kept).values, expected)
        assert np.array_equal(kept, clipped.coefficients_within(residuals, caps))
    vectors = generator.normal(size=(len(placed), 3))
    assert np.array_equal(
        clipped.total_within(placed, vectors, caps, block_rows=4).values, clipped.total(placed, vectors).values
    )
    with pytest.raises(InvalidParameter, match="differ in number"):
        clipped.total_within(placed, residuals[:-1], caps)


def test_long_columns_are_clipped_alike_in_every_chunk():
    grid = FeatureGrid(1.0, 2)
    clipped = ClippedSum(grid, 1.0)
    generator = np.random.default_rng(21)
    placed = grid.place(generator.uniform(-1, 1, (40_001, 2)))
    residuals = generator.normal(size=40_001)
    residuals[[0, 16_383, 16_384, 40_000]] = [np.nan, np.inf, -np.inf, np.nan]
    norms = grid.squared_norms(placed)
    caps = clipped.caps(norms)
    wanted = np.clip(
        np.rint(np.nan_to_num(residuals, nan=0.0, posinf=1e9, neginf=-1e9) * 2.0**clipped.coefficient_exponent),
        -caps,
        caps,
    )
    assert np.array_equal(clipped.coefficients(residuals, norms), wanted)
    assert np.array_equal(clipped.total(placed, residuals).values, clipped.block(placed, wanted))


@pytest.mark.parametrize("storage", [np.asarray, np.float32, sparse.csr_array, sparse.csr_matrix])
@pytest.mark.parametrize("rows", [0, 1, 5, 12, 41])
def test_second_moments_are_the_same_for_parts_of_any_size(storage, rows: int, monkeypatch) -> None:
    monkeypatch.setattr("dpdescent.exact.loss_sums.PART_BYTES", 4 * 3 * 8)  # four rows at once
    monkeypatch.setattr("dpdescent.exact.loss_sums.FILLED_PARTS", 3)
    grid, generator = FeatureGrid(1.0, 3), np.random.default_rng(rows)
    moments = SecondMomentSum(grid.coarse, 2.0)
    features = grid.place(generator.uniform(-1, 1, (rows, 3)) * (generator.random((rows, 3)) < 0.6))
    curvatures = generator.random(rows)
    found = moments.in_parts(storage(features), curvatures, moments.grid.round_rows)
    expected = moments.total(moments.grid.round_rows(features), curvatures)
    np.testing.assert_array_equal(found, expected.values)
