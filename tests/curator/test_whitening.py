"""Whitened coordinates: exact where they claim to be, rounded once where they say so, and the same for any layout."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse

from dpdescent import Ledger
from dpdescent.accounting import Gaussian
from dpdescent.curator import ArraySource, Curator
from dpdescent.errors import InvalidParameter
from dpdescent.exact import FeatureGrid, LatticeSum, machine
from dpdescent.problems import Frame, LinearProblem, Multinomial, Squared, Whitening
from dpdescent.queries import Gradient, GradientAndCurvature, Public
from dpdescent.relations import Relation, Sensitivity
from method_runs import Recording
from neighbours import STORAGE, squared_distance

UNIT = 2.0**-30


def lattice(values: np.ndarray, clip: float = 1.0) -> LatticeSum:
    return LatticeSum(np.asarray(values, np.int64), UNIT, Sensitivity.of_clipped_sum(clip))


def fractions(matrix: np.ndarray) -> list[list[Fraction]]:
    return [[Fraction(each) for each in row] for row in matrix.tolist()]


def exact_image(whitening: Whitening, values: np.ndarray) -> list[list[Fraction]]:
    matrix, columns = fractions(whitening.matrix), values.reshape(values.shape[0], -1).tolist()
    return [
        [
            sum((a[k] * s[o] for a, s in zip(matrix, columns, strict=True)), Fraction(0))
            for o in range(len(columns[0]))
        ]
        for k in range(len(matrix[0]))
    ]


def exact_norms(whitening: Whitening, rows: np.ndarray) -> list[Fraction]:
    images = exact_image(whitening, rows.T)
    return [sum((z[i] ** 2 for z in images), Fraction(0)) for i in range(rows.shape[0])]


def random_matrix(generator: np.random.Generator, dimension: int, directions: int) -> np.ndarray:
    """Return columns of very different lengths and entries of very different sizes."""
    sizes = 10.0 ** generator.uniform(-6, 3, directions)
    return generator.normal(0, 1, (dimension, directions)) * 10.0 ** generator.uniform(-4, 0, (dimension, 1)) * sizes


# The image of a sum --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outputs", [(), (1,), (3,)])
@pytest.mark.parametrize("seed", range(10))
def test_the_image_of_a_sum_is_the_exact_one_rounded_to_the_nearest_unit(seed: int, outputs: tuple[int, ...]) -> None:
    generator = np.random.default_rng(seed)
    dimension, directions = int(generator.integers(1, 30)), int(generator.integers(1, 30))
    matrix = random_matrix(generator, dimension, directions)
    matrix /= np.maximum(np.abs(matrix).sum(axis=0), 1e-3)  # so that the image fits
    whitening = Whitening(FeatureGrid(1.0, dimension), matrix)
    bits = generator.integers(1, 62, (dimension, *outputs))
    values = generator.integers(-(2**62), 2**62, bits.shape) >> (62 - bits)
    image = whitening.image(lattice(values))
    assert image.unit == UNIT
    assert image.values.shape == (directions, *outputs)
    expected = exact_image(whitening, values)
    assert image.values.reshape(directions, -1).tolist() == [
        [math.floor(each + Fraction(1, 2)) for each in row] for row in expected
    ]


@pytest.mark.parametrize("values", [[2**62] * 4, [-(2**62)] * 4, [2**62, -(2**62), 2**15 - 1, -1], [1, -1, 2, -2]])
@pytest.mark.parametrize(
    "matrix",
    [
        np.full((4, 1), 0.25),
        np.array([[0.25], [-0.25], [0.25], [0.25]]),
        np.array([[1.0, 2.0**-20], [0.0, 2.0**-300], [0.0, 2.0**-52], [0.0, 2.0**-53]]),
        np.array([[2.0**-33 * (2**33 - 1)], [2.0**-33], [0.0], [-(2.0**-33)]]),
        np.zeros((4, 2)),
    ],
)
def test_extreme_sums_and_matrices_are_mapped_exactly(values: list[int], matrix: np.ndarray) -> None:
    whitening, given = Whitening(FeatureGrid(1.0, 4), matrix), np.array(values)
    expected = [math.floor(each + Fraction(1, 2)) for (each,) in exact_image(whitening, given)]
    assert whitening.image(lattice(given)).values.tolist() == expected


@pytest.mark.parametrize("exponent", [-499, -100, 20, 40, 400])
def test_long_and_short_directions_are_mapped_exactly(exponent: int) -> None:
    matrix = np.ldexp(np.array([[1.0, 0.3], [0.7, -0.9]]), exponent)
    whitening = Whitening(FeatureGrid(1.0, 2), matrix)
    values = np.array([5, -3]) if exponent < 60 else np.zeros(2, np.int64)
    expected = [math.floor(each + Fraction(1, 2)) for (each,) in exact_image(whitening, values)]
    assert whitening.image(lattice(values)).values.tolist() == expected


@pytest.mark.parametrize("dimension", [2**13, 2**15, 2**17, 2**19, 2**20])
def test_sums_of_many_columns_fit_into_the_products(dimension: int) -> None:
    matrix = np.full((dimension, 2), 1.0 / dimension)
    matrix[::2, 1] *= -1
    whitening = Whitening(FeatureGrid(1.0, dimension), matrix)
    values = np.full(dimension, 2**62 - 1)
    values[::2] *= -1
    assert whitening.image(lattice(values)).values.tolist() == [0, 2**62 - 1]
    # Of all columns of one length that of equal entries has the largest sums, and -1 has no bit that is 0.
    root = math.isqrt(dimension)
    longest = Whitening(FeatureGrid(1.0, dimension), np.full((dimension, 1), (1 - 2.0**-20) / root))
    for value in (-1, 2**45 - 1, 1 - 2**45):
        expected = math.floor(value * dimension * Fraction(longest.matrix[0, 0]) + Fraction(1, 2))
        assert longest.image(lattice(np.full(dimension, value))).values.tolist() == [expected]


@pytest.mark.parametrize("outputs", [1, 5])
def test_rounding_an_image_is_in_its_sensitivity(outputs: int) -> None:
    # Each coordinate moves by half a unit, which rounding doubles.
    whitening = Whitening(FeatureGrid(1.0, 1), np.full((1, 9), 0.5))
    size = 9 * outputs
    moved = Sensitivity.of_clipped_sum(0.5 * math.sqrt(size) * UNIT)
    sums = [LatticeSum(np.full((1, outputs), value), UNIT, moved) for value in (0, 1)]
    first, second = (whitening.image(each) for each in sums)
    assert squared_distance(first, second) == size * Fraction(UNIT) ** 2
    assert squared_distance(first, second) > Fraction(moved.zero_out) ** 2
    for relation in ("zero-out", "replace-one"):
        declared = moved.under(relation) + math.sqrt(size) * UNIT
        assert declared <= first.sensitivity.under(relation) <= declared * (1 + 2.0**-38)
    assert first.sensitivity == whitening.sensitivity(moved, UNIT, outputs)


def released(labels: list[float], clip: float, noise: Gaussian, relation: str) -> LatticeSum:
    """Return what noise is added to in a gradient of one or two rows, in 4096 equal coordinates."""
    grid, kept = FeatureGrid(1.0, 1), Recording()
    rows = grid.place(np.array([[1.0], [LONG]])[: len(labels)] * 2.0**-grid.exponent)
    problem = LinearProblem(Squared(), grid, intercept=False)
    ledger = Ledger(1.0, 1e-6, currency="gdp", relation=relation)
    curator = Curator(ArraySource(rows, np.array(labels), grid), problem, ledger, 2, noise=kept)
    curator.answer(Gradient(np.zeros(1), clip, noise, frame=Whitening(grid, np.full((1, 4096), 0.25))))
    (release,) = kept.releases
    return release.total


LONG = 2**16 * 5 // 4 + 1  # in steps of the grid; a quarter of it ends in 1/4


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_rounding_an_image_is_in_the_sensitivity_of_a_gradient(relation: str) -> None:
    """A row as long as the clip norm moves each of 4096 coordinates by up to 3/4 of a unit more than that.

    The noise is the greatest that can be drawn, so that a unit is as large a part of the clip norm as it ever is.
    """
    grid = FeatureGrid(1.0, 1)
    unit = 2.0**-grid.exponent
    length = 64 * LONG / 4 * unit
    assert 1 < length < 2
    clip = length * (1 + 2.0**-38)
    noise = Gaussian(2.0 ** (50 - grid.exponent - (relation == "replace-one")))
    whole = released([-1.0, -1.0], clip, noise, relation)
    other = released([-1.0] if relation == "zero-out" else [-1.0, 1.0], clip, noise, relation)
    plain = Sensitivity.of_clipped_sum(clip).under(relation)
    moved = squared_distance(whole, other)
    assert whole.unit == unit
    assert moved > Fraction(plain) ** 2, "without the rounding term the bound would not hold"
    assert moved <= Fraction(whole.sensitivity.under(relation)) ** 2
    assert plain + 64 * unit <= whole.sensitivity.under(relation) <= (plain + 64 * unit) * (1 + 2.0**-38)


@pytest.mark.parametrize("outputs", [2, 5])
def test_rounding_counts_every_output_of_a_gradient(outputs: int) -> None:
    grid = FeatureGrid(1.0, 3)
    public = Public(LinearProblem(Multinomial(outputs), grid), Relation.ZERO_OUT, 10, 1.0, 10.0)
    asked = Gradient(np.zeros((3, outputs)), 1.0, Gaussian(2.0**20), frame=Whitening(grid, np.ones((3, 7))))
    for query in (asked, GradientAndCurvature(asked, Gaussian(1.0))):
        part = query.plan(public).parts[0]
        assert part.sensitivity.zero_out >= 1.0 + math.sqrt(7 * outputs) * part.unit > 1.0
        assert part.sensitivity.replace_one >= 2.0 + math.sqrt(7 * outputs) * part.unit > 2.0


# Norms ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(15))
def test_norms_are_bounds_of_the_exact_ones(seed: int) -> None:
    generator = np.random.default_rng(seed)
    dimension, directions = int(generator.integers(1, 24)), int(generator.integers(1, 24))
    grid = FeatureGrid(1.0, dimension)
    rows = grid.place(generator.uniform(-1, 1, (20, dimension)) * 10.0 ** generator.uniform(-5, 0, (20, 1)))
    rows[0], rows[1], rows[2] = 0.0, 1.0, -1.0
    whitening = Whitening(grid, random_matrix(generator, dimension, directions))
    for bound, exact in zip(whitening.squared_norms(rows).tolist(), exact_norms(whitening, rows), strict=True):
        assert max(exact, 1) <= Fraction(bound) <= max(exact, 1) * (1 + Fraction(1, 2**38))


def test_norms_stay_bounds_when_every_addition_rounds_down() -> None:
    # After the first coordinate, 1, each square is below half a unit in the last place and leaves no trace.
    directions = 2**13
    matrix = np.full((1, directions), math.sqrt(2.0**-53) * (1 - 2.0**-20))
    matrix[0, 0] = 1.0
    whitening = Whitening(FeatureGrid(1.0, 1), matrix)
    exact = sum((each[0] ** 2 for each in zip(*fractions(whitening.matrix), strict=True)), Fraction(0))
    assert exact > 1 + Fraction(9, 10) * Fraction(1, 2**40)
    (bound,) = whitening.squared_norms(np.ones((1, 1))).tolist()
    assert exact < Fraction(bound) <= exact * (1 + Fraction(1, 2**38))


@pytest.mark.parametrize("exact_blas", [True, False])
def test_norms_have_the_same_bits_for_any_layout(exact_blas: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(0)
    grid = FeatureGrid(1.0, 9)
    rows = grid.place(generator.uniform(-1, 1, (301, 9)) * (generator.random((301, 9)) < 0.6))
    whitening = Whitening(grid, random_matrix(generator, 9, 11))
    expected = whitening.squared_norms(rows)
    monkeypatch.setattr(machine, "blas_is_exact", lambda: exact_blas)
    for store in STORAGE.values():
        assert (whitening.squared_norms(store(rows)) == expected).all()
    order = generator.permutation(301)
    assert (whitening.squared_norms(rows[order]) == expected[order]).all()
    assert [whitening.squared_norms(rows[i : i + 1])[0] for i in range(301)] == expected.tolist()
    monkeypatch.setattr("dpdescent.problems.linear_maps._BLOCK_BYTES", 8 * 11 * 7)
    assert (whitening.squared_norms(rows) == expected).all()
    assert whitening.squared_norms(rows[:0]).shape == (0,)


# The map itself ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.0, 0.01, 0.03125, 0.2, 1.0])
def test_norms_of_sparse_rows_are_those_of_dense_ones_however_full_they_are(share: float) -> None:
    generator = np.random.default_rng(3)
    grid = FeatureGrid(1.0, 40)
    rows = grid.place(generator.uniform(-1, 1, (200, 40)) * (generator.random((200, 40)) < share))
    whitening = Whitening(grid, generator.normal(0, 1, (40, 30)))
    assert (whitening.squared_norms(sparse.csr_array(rows)) == whitening.squared_norms(rows)).all()


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_weights_and_pull_back_are_adjoint_and_keep_margins(outputs: tuple[int, ...]) -> None:
    generator = np.random.default_rng(1)
    grid = FeatureGrid(1.0, 7)
    whitening = Whitening(grid, generator.normal(size=(7, 5)))
    point, gradient = generator.normal(size=(5, *outputs)), generator.normal(size=(7, *outputs))
    np.testing.assert_allclose(
        np.sum(whitening.weights(point) * gradient), np.sum(point * whitening.pull_back(gradient))
    )
    rows = grid.place(generator.uniform(-1, 1, (10, 7)))
    z = grid.margins(rows, whitening.matrix)
    np.testing.assert_allclose(z @ point, rows @ whitening.weights(point), rtol=1e-12, atol=1e-12)
    assert whitening.key() != Whitening(grid, 2 * whitening.matrix).key()


@pytest.mark.parametrize("outputs", [(), (3,)])
def test_in_a_frame_weights_and_pull_back_are_adjoint_where_the_intercept_has_no_gradient(
    outputs: tuple[int, ...],
) -> None:
    generator = np.random.default_rng(4)
    scales = np.array([1.0, 0.5, 0.25, 0.0625, 1.0])
    frame = Frame.place(FeatureGrid(1.0, 5), generator.uniform(-1, 1, 5), scales)
    point, gradient = generator.normal(size=(5, *outputs)), generator.normal(size=(5, *outputs))
    gradient[-1] = 0.0
    np.testing.assert_allclose(np.sum(frame.weights(point) * gradient), np.sum(point * frame.pull_back(gradient)))


def test_a_frame_maps_a_sum_as_it_maps_the_rows() -> None:
    generator = np.random.default_rng(2)
    grid = FeatureGrid(1.0, 5)
    frame = Frame.place(grid, generator.uniform(-1, 1, 5), np.array([1.0, 0.5, 0.25, 0.0625, 1.0]))
    rows = grid.place(generator.uniform(-1, 1, (40, 5)))
    rows[:, -1] = 1.0
    coefficients = generator.integers(-(2**20), 2**20, 40)
    integers = np.ldexp(rows, grid.exponent).astype(np.int64)
    mapped = np.column_stack([frame.coordinates(rows), np.ones(40)])
    expected = np.ldexp(mapped, grid.exponent).astype(np.int64).T @ coefficients
    total = lattice(integers.T @ coefficients)
    image = frame.image(total)
    assert (image.values == expected).all()
    assert image.sensitivity == total.sensitivity == frame.sensitivity(total.sensitivity, UNIT)
    for store in STORAGE.values():
        assert (frame.coordinates(store(rows)) == mapped[:, :-1]).all()


@pytest.mark.parametrize(
    ("grid", "matrix"),
    [
        (FeatureGrid(1.5, 2), np.eye(2)),
        (FeatureGrid(1.0, 2**20 + 1), np.ones((2**20 + 1, 1))),
        (FeatureGrid(1.0, 1), np.ones((1, 2**13 + 1))),
        (FeatureGrid(1.0, 2), np.ones(2)),
        (FeatureGrid(1.0, 2), np.eye(3)),
        (FeatureGrid(1.0, 2), np.array([[1.0, np.nan], [0.0, 1.0]])),
        (FeatureGrid(1.0, 2), np.array([[1.0, np.inf], [0.0, 1.0]])),
        (FeatureGrid(1.0, 2), np.eye(2) * 2.0**501),
    ],
)
def test_matrices_that_would_be_inexact_are_refused(grid: FeatureGrid, matrix: np.ndarray) -> None:
    with pytest.raises(InvalidParameter):
        Whitening(grid, matrix)
