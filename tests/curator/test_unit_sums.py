"""Rows of one unit that are clipped together: their sum is at most as long as the clip norm, in exact arithmetic."""

from __future__ import annotations

import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from dpdescent import Ledger
from dpdescent.accounting import Gaussian
from dpdescent.curator import BlockSource, Curator, Units
from dpdescent.curator.array_source import ArraySource
from dpdescent.errors import UnsupportedSource
from dpdescent.exact import LARGEST_JOINT, ClippedSum, FeatureGrid, joint_factors
from dpdescent.problems import Frame, LinearProblem, Logistic, Multinomial, Whitening, products_with_following
from dpdescent.queries import ColumnMoments, Gradient, GradientAndCurvature, Public
from dpdescent.queries.per_row import Products
from dpdescent.relations import Relation, Sensitivity
from dpdescent.solvers.rules import gradient_deviation
from every_query import Silent
from neighbours import STORAGE
from parts import Parts

EACH = 4
GRID = FeatureGrid(1.0, 3)
COORDINATES = {
    "grid": GRID,
    "frame": Frame.place(GRID, np.array([0.5, -0.25, 0.0]), np.array([0.25, 0.5, 1.0])),
    "whitening": Whitening(GRID, np.random.default_rng(0).normal(size=(3, 3)) * [1.0, 20.0, 0.01]),
}


def exact_coordinates(coordinates: Any, rows: np.ndarray) -> np.ndarray:
    if isinstance(coordinates, FeatureGrid):
        return rows
    exact = coordinates.coordinates(rows)
    return np.column_stack([exact, rows[:, -1]]) if isinstance(coordinates, Frame) else exact


def shortened(clipped: ClippedSum, coordinates: Any, rows: np.ndarray, residuals: np.ndarray, owners: np.ndarray):
    """Return the integer coefficients with which the rows enter a sum."""
    norms = coordinates.squared_norms(rows)
    coefficients = clipped.coefficients(residuals, norms)
    products = products_with_following(coordinates, rows, EACH - 1)
    for lag in range(1, EACH):
        products[:-lag, lag - 1] *= owners[lag:] == owners[:-lag]
    factors = joint_factors(clipped, coefficients, norms, products, owners)
    assert ((factors >= 0) & (factors <= 1)).all()
    return np.rint(coefficients * (factors if residuals.ndim == 1 else factors[:, None]))


def squared_length(clipped: ClippedSum, coefficients: np.ndarray, exact: np.ndarray) -> Fraction:
    """Return the squared length of a sum in units of the clip norm, as a rational number."""
    unit = Fraction(2) ** -clipped.coefficient_exponent / Fraction(clipped.clip)
    total = Fraction(0)
    for column in coefficients.reshape(len(exact), -1).T.tolist():
        for entries in exact.T.tolist():
            total += sum((int(c) * Fraction(z) for c, z in zip(column, entries, strict=True)), Fraction(0)) ** 2
    return total * unit**2


def units_to_try(generator: np.random.Generator) -> list[np.ndarray]:
    """Return units: any rows, copies of one, rows that cancel each other, a single one, and rows of zeros."""
    rows = generator.uniform(-1, 1, (EACH, 3)) * generator.choice([1.0, 1e-2, 1e-4])
    row = rows[:1]
    found = [rows, np.repeat(row, EACH, axis=0), np.concatenate([row, -row, row, -row]), row, rows[:2], 0 * rows]
    return [GRID.place(np.column_stack([each[:, :-1], np.ones(len(each))])) for each in found]


@pytest.mark.parametrize("outputs", [1, 3])
@pytest.mark.parametrize("name", COORDINATES)
def test_no_unit_is_longer_than_the_clip_norm_and_copies_of_a_row_attain_it(name: str, outputs: int) -> None:
    coordinates, generator = COORDINATES[name], np.random.default_rng(1)
    best = Fraction(0)
    for trial in range(40):
        clipped = ClippedSum(GRID, float(generator.choice([0.3, 1.0, 7.0])), int(generator.choice([5, 20, 36])))
        for rows in units_to_try(generator):
            shape = (len(rows),) if outputs == 1 else (len(rows), outputs)
            residuals = generator.normal(size=shape) * generator.choice([1e-2, 1.0, 1e3])
            if trial % 2:
                residuals = np.broadcast_to(residuals[:1], shape).copy()
            owners = np.zeros(len(rows), dtype=np.intp)
            exact = exact_coordinates(coordinates, rows)
            length = squared_length(clipped, shortened(clipped, coordinates, rows, residuals, owners), exact)
            assert length <= 1
            best = max(best, length)
    assert best > 0.999


def test_rounding_never_lengthens_a_sum_beyond_the_clip_norm() -> None:
    """Coarse coefficients of a climb towards longer sums: without room for rounding it ends above the norm."""
    generator, clipped = np.random.default_rng(2), ClippedSum(GRID, 1.0, 26)
    owners, best = np.zeros(EACH, dtype=np.intp), Fraction(0)
    rows, residuals = GRID.place(generator.uniform(-1, 1, (EACH, 3))), generator.normal(size=EACH)
    for _ in range(400):
        moved = GRID.place(rows + generator.choice([0.0, 0.1], (EACH, 1)) * generator.normal(size=(EACH, 3)))
        turned = residuals * np.exp(0.3 * generator.normal(size=EACH))
        length = squared_length(clipped, shortened(clipped, GRID, moved, turned, owners), moved)
        assert length <= 1
        if length >= best:
            best, rows, residuals = length, moved, turned
    assert best > 0.98


def test_errors_of_the_inner_products_are_paid_for() -> None:
    """Seven rows of length C, three against four, and one of a single unit: too long by one part in 2^36."""
    grid = FeatureGrid(1.0, 1)
    clipped = ClippedSum(grid, 1.0)
    entries = np.array([1, -1, 1, -1, 1, -1, 1, 2.0**-20])
    coefficients = np.array([2.0**16] * 7 + [1.0])
    lowered = np.array([[entries[i] * entries[j] if j < 8 else 0 for j in range(i + 1, i + 8)] for i in range(8)])
    norms = entries**2
    for lag in range(1, 8):
        sizes = np.sqrt(norms[:-lag] * norms[lag:])
        lowered[:-lag, lag - 1] -= 2.0**-39 * sizes
    factors = joint_factors(clipped, coefficients, norms, lowered, np.zeros(8, dtype=np.intp))
    assert squared_length(clipped, coefficients, entries[:, None]) > 1
    assert squared_length(clipped, np.rint(coefficients * factors), entries[:, None]) <= 1


@pytest.mark.parametrize("name", COORDINATES)
def test_what_a_unit_adds_does_not_depend_on_the_others(name: str) -> None:
    coordinates, generator = COORDINATES[name], np.random.default_rng(3)
    clipped = ClippedSum(GRID, 1.0)
    units = [rows for _ in range(6) for rows in units_to_try(generator)]
    residuals = [generator.normal(size=len(rows)) for rows in units]
    owners = np.repeat(np.arange(len(units)), [len(rows) for rows in units])
    together = shortened(clipped, coordinates, np.concatenate(units), np.concatenate(residuals), owners)
    for number, (rows, own) in enumerate(zip(units, residuals, strict=True)):
        alone = shortened(clipped, coordinates, rows, own, np.zeros(len(rows), dtype=np.intp))
        np.testing.assert_array_equal(together[owners == number], alone)


@pytest.mark.parametrize("name", COORDINATES)
def test_inner_products_are_those_of_rows_in_their_coordinates(name: str) -> None:
    coordinates = COORDINATES[name]
    rows = GRID.place(np.column_stack([np.random.default_rng(4).uniform(-1, 1, (9, 2)), np.ones(9)]))
    exact = exact_coordinates(coordinates, rows)
    products = products_with_following(coordinates, rows, 3)
    for lag in range(1, 4):
        expected = np.append(np.sum(exact[:-lag] * exact[lag:], axis=1), np.zeros(lag))
        sizes = np.linalg.norm(exact, axis=1).max() ** 2
        np.testing.assert_allclose(products[:, lag - 1], expected, rtol=0, atol=1e-14 * sizes)


def test_a_whitening_adds_up_one_coordinate_after_another() -> None:
    """In any other order the last bits would depend on where a row stands, and so on other rows."""
    generator, grid = np.random.default_rng(7), FeatureGrid(1.0, 41)
    whitening, rows = Whitening(grid, generator.normal(size=(41, 41))), grid.place(generator.uniform(-1, 1, (50, 41)))
    exact = whitening.coordinates(rows).tolist()
    for lag, column in enumerate(products_with_following(whitening, rows, 2).T, start=1):
        for one, other, product in zip(exact, exact[lag:], column.tolist(), strict=False):
            total = 0.0
            for left, right in zip(one, other, strict=True):
                total += left * right
            assert product == total


def curator_of(
    rows: Any, labels: np.ndarray, problem: LinearProblem, units: Units, noise: Silent, blocks: int
) -> Curator:
    ledger = Ledger(1e9, 1e-6, currency="gdp", unit="one person")
    source = ArraySource(rows, labels, GRID, blocks)
    return Curator(source, problem, ledger, len(labels), noise=noise, units=units)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
def test_blocks_never_part_a_unit(loss: Any) -> None:
    """The same sum for all blocks, storages and frames, and another one than that of rows clipped one by one."""
    generator, problem = np.random.default_rng(5), LinearProblem(loss, GRID)
    sizes = generator.integers(1, EACH + 1, 30)
    units = Units(np.repeat(np.arange(30), sizes), 30, EACH)
    rows = GRID.place(np.column_stack([generator.uniform(-1, 1, (sizes.sum(), 2)), np.ones(sizes.sum())]))
    labels = generator.choice([-1.0, 1.0] if problem.loss.outputs == 1 else [0.0, 1.0, 2.0], sizes.sum())
    weights = generator.normal(size=problem.shape)
    for frame in (None, COORDINATES["frame"], COORDINATES["whitening"]):
        query = Gradient(weights, 0.1, Gaussian(1.0), frame, joint=True)
        sums = []
        for storage, blocks in (("dense", 10**4), ("dense", 1), ("csr", 2), ("float32", 5), ("fortran", 7)):
            noise = Silent()
            curator_of(STORAGE[storage](rows), labels, problem, units, noise, blocks).answer(query)
            sums.append(noise.calls[0][0].values)
        for each in sums[1:]:
            np.testing.assert_array_equal(sums[0], each)
        apart = Silent()
        curator_of(rows, labels, problem, units, apart, 10**4).answer(Gradient(weights, 0.1, Gaussian(1.0), frame))
        assert not np.array_equal(apart.calls[0][0].values, sums[0])


def test_rows_that_are_not_in_memory_are_clipped_row_by_row() -> None:
    rows, labels = GRID.place(np.ones((6, 3))), np.ones(6)
    noise, problem = Silent(), LinearProblem(Logistic(), GRID)
    ledger = Ledger(1e9, 1e-6, currency="gdp", unit="one person")
    units = Units(np.repeat([0, 1, 2], 2), 3, 2)
    source = BlockSource(Parts(rows, labels, (3, 3)), GRID)
    streamed = Curator(source, problem, ledger, 6, noise=noise, units=units)
    streamed.answer(Gradient(np.zeros(3), 1.0, Gaussian(1.0), joint=True))
    assert noise.calls[0][0].sensitivity == Sensitivity.of_clipped_sum(1.0).times(2)
    assert gradient_deviation(streamed, 1.0, Gaussian(3.0)) == 2 * 3 / 6
    together = curator_of(rows, labels, problem, units, Silent(), 2)
    assert gradient_deviation(together, 1.0, Gaussian(3.0)) == 2**0.75 * 3 / 6
    together.answer(Gradient(np.zeros(3), 1.0, Gaussian(1.0)))
    assert (streamed.clips_by_unit, together.clips_by_unit) == (False, False)
    together.answer(Gradient(np.zeros(3), 1.0, Gaussian(1.0), joint=True))
    assert together.clips_by_unit is True


class _Claims(Gradient):
    """A gradient that says of itself that it bounds what a unit adds."""

    def plan(self, public: Any) -> Any:
        plan = super().plan(public)
        return replace(plan, parts=tuple(replace(part, of_unit=True) for part in plan.parts))


def test_a_bound_on_units_that_are_not_read_together_is_refused_before_the_charge() -> None:
    rows, labels = GRID.place(np.ones((6, 3))), np.ones(6)
    ledger = Ledger(1e9, 1e-6, currency="gdp", unit="one person")
    source = BlockSource(Parts(rows, labels, (3, 3)), GRID)
    units = Units(np.repeat([0, 1, 2], 2), 3, 2)
    curator = Curator(source, LinearProblem(Logistic(), GRID), ledger, 6, units=units)
    with pytest.raises(UnsupportedSource, match="unit's rows together"):
        curator.answer(_Claims(np.zeros(3), 1.0, Gaussian(1.0)))
    assert not ledger.entries


def test_a_unit_of_very_many_rows_is_answered_like_any_other() -> None:
    """A block of all its rows would be longer than exact sums allow, and an error would tell of its size."""
    grid, each, count = FeatureGrid(1.0, 2), 2**17 + 10, 2**17 + 4
    rows = grid.place(np.column_stack([np.linspace(-1, 1, count), np.ones(count)]))
    ledger = Ledger(1e3, 1e-6, currency="gdp", unit="one person")
    source, problem = ArraySource(rows, np.ones(count), grid), LinearProblem(Logistic(), grid)
    curator = Curator(source, problem, ledger, count, units=Units(np.zeros(count, int), 1, each))
    curator.answer(ColumnMoments(1.0, Gaussian(1.0)))
    assert len(ledger.entries) == 1


def test_rows_that_are_infinitely_long_in_a_whitening_spoil_no_sum() -> None:
    dimension = 900
    grid = FeatureGrid(1.0, dimension)
    matrix = np.full((dimension, dimension), 2.0**499)
    matrix[0] = 0
    matrix[0, 0] = 1.0  # rows with an entry in the first column alone are harmless
    rows = np.zeros((6, dimension))
    rows[:, 0], rows[4:] = 1.0, 1.0
    found = []
    for kept in (6, 4):
        noise, ledger = Silent(), Ledger(1e9, 1e-6, currency="gdp", unit="one person")
        units = Units(np.array([0, 0, 1, 1, 2, 2])[:kept], 3, 2)
        source, problem = ArraySource(grid.place(rows[:kept]), np.ones(kept), grid), LinearProblem(Logistic(), grid)
        curator = Curator(source, problem, ledger, 6, noise=noise, units=units)
        curator.answer(Gradient(np.zeros(dimension), 1.0, Gaussian(1.0), Whitening(grid, matrix), joint=True))
        found.append(noise.calls[0][0].values)
    np.testing.assert_array_equal(*found)


def test_units_of_too_many_rows_are_clipped_row_by_row() -> None:
    many = LARGEST_JOINT + 1
    generator = np.random.default_rng(6)
    rows = GRID.place(generator.uniform(-1, 1, (many, 3)))
    labels, noises = np.ones(many), (Silent(), Silent())
    for joint, noise in zip((False, True), noises, strict=True):
        curator = curator_of(
            rows, labels, LinearProblem(Logistic(), GRID), Units(np.zeros(many, int), 1, many), noise, 50
        )
        curator.answer(Gradient(np.zeros(3), 0.1, Gaussian(1.0), joint=joint))
    first, second = (noise.calls[0][0] for noise in noises)
    assert first.sensitivity == second.sensitivity
    np.testing.assert_array_equal(first.values, second.values)
    assert math.isclose(first.sensitivity.zero_out, 0.1 * many)


def test_products_are_those_of_rows_of_one_unit_in_the_coordinates_of_the_sum() -> None:
    frame = COORDINATES["frame"]
    public = Public(LinearProblem(Logistic(), GRID), Relation.ZERO_OUT, 6, 1.0, 6, rows_per_unit=3, together=True)
    for given, kind in ((None, "products"), (frame, "products in a frame")):
        needed = Gradient(np.zeros(3), 1.0, Gaussian(1.0), given, joint=True).plan(public).per_row
        assert Products(GRID if given is None else given, 3, kind) in needed
    rows, owners = np.array([[1.0, 2.0, 1.0], [3.0, 0.5, 1.0], [1.0, math.inf, 1.0], [2.0, 2.0, 1.0]]), [0, 0, 0, 1]
    found = Products.within(None, GRID, 3).block(rows, np.ones(4), np.array(owners))
    np.testing.assert_array_equal(found, [[5.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 0.0]])
    placed = GRID.place(np.array([[0.5, -0.25, 1.0], [0.75, 0.5, 1.0], [0.25, 0.25, 1.0]]))
    scaled = Products.within(frame, GRID, 3).block(placed, np.ones(3), np.zeros(3))
    np.testing.assert_array_equal(scaled, products_with_following(frame, placed, 2))
    assert not np.array_equal(scaled, products_with_following(GRID, placed, 2))


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
def test_copies_of_a_row_are_shortened_together_and_so_are_their_curvatures(loss: Any) -> None:
    """Three copies add up to three times one of them, and are shortened to 3^(3/4) clip norms."""
    problem, row = LinearProblem(loss, GRID), GRID.place(np.array([[0.5, -0.25, 1.0]]))
    residual = np.linalg.norm(loss.residuals(np.zeros((1, 3) if loss.outputs > 1 else 1), np.ones(1)))
    length = float(residual * np.linalg.norm(row))
    found = {}
    for joint in (False, True):
        units = Units(np.zeros(3, dtype=np.intp), 1, 3)
        asked = curator_of(np.repeat(row, 3, axis=0), np.ones(3), problem, units, Silent(), 10)
        gradient = Gradient(np.zeros(problem.shape), 1.05 * length, Gaussian(1.0), joint=joint)
        found[joint] = asked.answer(GradientAndCurvature(gradient, Gaussian(1.0)))
    assert np.linalg.norm(found[False][0]) == pytest.approx(length, rel=1e-3)
    assert np.linalg.norm(found[True][0]) == pytest.approx(3**0.75 * 1.05 * length / 3, rel=1e-3)
    assert np.linalg.norm(found[True][0]) * 3 <= 3**0.75 * 1.05 * length
    assert found[False][1] > 0
    assert found[True][1] / found[False][1] == pytest.approx(3**-0.25 * 1.05, rel=1e-2)
