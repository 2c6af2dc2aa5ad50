"""Linear problems: what one row adds to a sum is its own clipped share, centred or not, to the last integer."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse

from dpdescent.curator.array_source import ArraySource
from dpdescent.errors import InvalidParameter, UnsupportedCost
from dpdescent.estimators.reading import compact
from dpdescent.exact import BoundedSum, FeatureGrid, SecondMomentSum, check_row_independence
from dpdescent.problems import (
    L2,
    Frame,
    Hinge,
    HuberisedHinge,
    LinearProblem,
    Logistic,
    Loss,
    Multinomial,
    NonConvex,
    Penalty,
    Sigmoid,
    Squared,
)
from dpdescent.relations import Norm, Relation, Sensitivity

RULES = settings(derandomize=True, deadline=None, max_examples=40)
ZERO_OUT, REPLACE_ONE = Relation.ZERO_OUT, Relation.REPLACE_ONE
LOSSES = [Logistic(), Sigmoid(), Hinge(), HuberisedHinge(), Squared(), Multinomial(3)]
STORAGE = [np.asarray, sparse.csr_array, sparse.csr_matrix, lambda X: np.asarray(X, np.float32), np.asfortranarray]


def labels_for(loss: Loss, rows: int, generator: np.random.Generator) -> np.ndarray:
    if loss.outputs > 1:
        return generator.integers(0, loss.outputs, rows).astype(float)
    return np.where(generator.random(rows) < 0.5, 1.0, -1.0)


def with_constant(features: np.ndarray) -> np.ndarray:
    return np.hstack([features, np.ones((len(features), 1))])


def adversarial(centre: np.ndarray, generator: np.random.Generator) -> np.ndarray:
    """Rows at and around the centre, at the corners, at zero, and ordinary ones; the last column is 1."""
    d = centre.size
    signs = np.where(generator.random((3, d)) < 0.5, 1.0, -1.0)
    near = centre + generator.choice([-1, 0, 1], (3, d)) * 2.0**-20
    far = -np.sign(centre)
    ordinary = generator.uniform(-1, 1, (6, d))
    rows = np.vstack([centre, near, far, signs, np.zeros(d), np.eye(d)[0], ordinary])
    rows[:, -1] = 1.0
    return rows


def integers(array: np.ndarray) -> list[int]:
    return [int(value) for value in np.asarray(array).ravel()]


# Frames --------------------------------------------------------------------------------------------------------


def in_frame(frame: Frame, rows: np.ndarray) -> list[list[int]]:
    """Return the rows in the frame as Python integers, in units of the grid."""
    p = frame.grid.exponent
    centre, doublings = integers(np.ldexp(frame.centre, p)), integers(frame.doublings)
    return [
        [(x - m) << k for x, m, k in zip(integers(np.ldexp(row, p)), centre, doublings, strict=True)] for row in rows
    ]


@RULES
@given(
    st.integers(1, 40),
    st.sampled_from([1, 2, 4]),
    st.floats(-190, 190),
    st.integers(0, 10**6),
    st.sampled_from([36, 20, 3]),
    st.sampled_from([1e-3, 1.0, 1e6, 1e300]),
)
def test_a_row_moves_the_sum_in_a_frame_by_its_own_share_within_the_clip_norm(
    d: int, outputs: int, log_clip: float, seed: int, bits: int, size: float
) -> None:
    """In Python integers: S(D) - S(D without i) = c_i z_i, and its norm is at most C."""
    generator = np.random.default_rng(seed)
    grid = FeatureGrid(1.0, d)
    problem = LinearProblem(Logistic() if outputs == 1 else Multinomial(outputs), grid)
    frame = Frame.place(grid, generator.uniform(-1.5, 1.5, d), 2.0 ** generator.uniform(-8, 2, d))
    rows = grid.place(adversarial(frame.centre, generator))
    clipped = problem.clipped_sum(2.0**log_clip, bits)
    norms = frame.squared_norms(rows)
    moved = in_frame(frame, rows)
    assert integers(np.ldexp(norms, 2 * grid.exponent)) == [sum(z * z for z in row) for row in moved]
    assert (norms >= 1).all()

    residuals = generator.normal(0, size, (len(rows), outputs))
    residuals[0, 0], residuals[1, 0] = np.inf, np.nan
    if outputs == 1:
        residuals = residuals[:, 0]
    coefficients = clipped.coefficients_within(residuals, clipped.caps(norms))

    def total_of(kept: np.ndarray) -> list[int]:
        return integers(frame.total(clipped.block(rows[kept], coefficients[kept])))

    everything = np.arange(len(rows))
    total, limit = total_of(everything), Fraction(clipped.clip) / Fraction(clipped.unit)
    for i in everything:
        without = total_of(np.delete(everything, i))
        share = [z * c for z in moved[i] for c in integers(coefficients[i])]
        assert [a - b for a, b in zip(total, without, strict=True)] == share
        assert sum(s * s for s in share) <= limit**2


def gradient_of(problem: LinearProblem, clipped, weights, rows, labels, caps):
    """Return the sum of clipped gradients over some rows."""
    residuals = problem.loss.short_residuals(problem.grid.margins(rows, weights), labels)
    out = residuals if residuals.ndim == 1 else None
    return clipped.total_within(rows, residuals, caps, out=out).values


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("storage", STORAGE)
def test_gradients_in_a_frame_are_the_same_for_every_storage_and_add_up_over_rows(storage, loss: Loss) -> None:
    generator = np.random.default_rng(5)
    grid = FeatureGrid(1.0, 9)
    problem = LinearProblem(loss, grid)
    frame = Frame.place(grid, generator.uniform(-1, 1, 9), 2.0 ** -generator.integers(0, 5, 9))
    dense = grid.place(np.vstack([adversarial(frame.centre, generator) for _ in range(5)]))
    labels = labels_for(loss, len(dense), generator)
    weights = grid.place_weights(generator.normal(size=problem.shape))
    clipped = problem.clipped_sum(0.3)

    def gradient(rows, y):
        values = gradient_of(problem, clipped, weights, rows, y, clipped.caps(frame.squared_norms(rows)))
        return frame.total(values)

    np.testing.assert_array_equal(frame.squared_norms(storage(dense)), frame.squared_norms(dense))
    np.testing.assert_array_equal(gradient(storage(dense), labels), gradient(dense, labels))
    check_row_independence(gradient, storage(dense), labels)


def test_a_frame_of_many_columns_is_exact() -> None:
    d = 30_000
    generator = np.random.default_rng(0)
    grid = FeatureGrid(1.0, d)
    frame = Frame.place(grid, np.where(generator.random(d) < 0.5, 1.0, -1.0), np.full(d, 2.0**-4))
    rows = grid.place(np.vstack([-frame.centre, frame.centre, generator.uniform(-1, 1, (2, d))]))
    rows[:, -1] = 1.0
    norms, moved = frame.squared_norms(rows), in_frame(frame, rows)
    assert integers(np.ldexp(norms, 2 * grid.exponent)) == [sum(z * z for z in row) for row in moved]
    np.testing.assert_array_equal(frame.squared_norms(sparse.csr_array(rows)), norms)
    clipped = LinearProblem(Logistic(), grid).clipped_sum(1.0)
    coefficients = clipped.coefficients_within(np.full(4, np.inf), clipped.caps(norms))
    assert integers(frame.total(clipped.block(rows, coefficients))) == [
        sum(c * z for c, z in zip(integers(coefficients), column, strict=True)) for column in zip(*moved, strict=True)
    ]


def test_blocks_of_the_largest_size_stay_exact_when_every_term_is_extreme() -> None:
    """2^17 rows x with |x_j| = 1 at the centre: |c_i| is as large as it gets, and so is every sum."""
    grid = FeatureGrid(1.0, 3)
    clipped = LinearProblem(Logistic(), grid).clipped_sum(1.0)
    frame = Frame.place(grid, np.array([1.0, -1.0, 0.0]), np.full(3, 2.0**-4))
    rows = np.tile([1.0, -1.0, 1.0], (2**17, 1))
    coefficients = clipped.coefficients_within(np.full(2**17, np.inf), clipped.caps(frame.squared_norms(rows)))
    values = frame.total(clipped.block(rows, coefficients))
    assert values.tolist() == [0, 0, 2**17 * int(coefficients[0]) << grid.exponent]
    assert coefficients[0] * 2.0**-clipped.coefficient_exponent > 1 - 1e-4


def test_a_row_whose_constant_is_not_one_adds_nothing_in_a_frame() -> None:
    grid = FeatureGrid(1.0, 4)
    frame = Frame.place(grid, np.full(4, 0.5), np.full(4, 0.25))
    for storage in STORAGE:
        rows = storage(np.array([[0.5, 0.5, 0.5, 1.0], [0.5, 0.5, 0.5, 0.0], [0.0, 0.0, 0.0, 0.5]]))
        norms = frame.squared_norms(rows)
        assert norms.tolist() == [1.0, math.inf, math.inf]
        assert LinearProblem(Logistic(), grid).clipped_sum(1.0).caps(norms)[1:].tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "grid",
    [
        FeatureGrid(4.0, 5),
        FeatureGrid(0.5, 5),
        FeatureGrid(2.0**30, 5),  # its exponent is negative
        FeatureGrid(2.0**-30, 5),
        FeatureGrid(1.0, 5, row_bound=1.0),  # rows are scaled down, and the constant with them
        FeatureGrid(1.0, 5).coarse,
    ],
    ids=str,
)
def test_a_frame_is_refused_where_the_constant_would_not_be_one(grid: FeatureGrid) -> None:
    with pytest.raises(InvalidParameter, match="a frame needs features in"):
        Frame.place(grid, np.zeros(5), np.ones(5))


@pytest.mark.parametrize("bad", [np.zeros(4), np.zeros((5, 1)), np.full(5, np.nan), np.full(5, np.inf), -np.ones(5)])
def test_malformed_centres_and_scales_are_refused(bad: np.ndarray) -> None:
    grid = FeatureGrid(1.0, 5)
    with pytest.raises(InvalidParameter, match="frame"):
        Frame.place(grid, np.zeros(5), bad)
    if not (bad < 0).any():
        with pytest.raises(InvalidParameter, match="frame"):
            Frame.place(grid, bad, np.ones(5))


@pytest.mark.parametrize(
    ("centre", "doublings"),
    [
        ([0.0, 0.5], [0, 0]),  # the constant would be moved
        ([0.1, 0.0], [0, 0]),  # off the grid
        ([2.0, 0.0], [0, 0]),
        ([0.0, 0.0], [5, 0]),
        ([0.0, 0.0], [-1, 0]),
        ([0.0, 0.0], [0, 1]),
        ([0.0], [0]),
    ],
)
def test_a_frame_that_would_be_inexact_cannot_be_made(centre: list[float], doublings: list[int]) -> None:
    with pytest.raises(InvalidParameter, match=r"Frame\.place"):
        Frame(FeatureGrid(1.0, 2), np.array(centre), np.array(doublings))


def test_a_frame_cannot_be_changed_afterwards() -> None:
    frame = Frame.place(FeatureGrid(1.0, 2), np.zeros(2), np.ones(2))
    for array in (frame.centre, frame.doublings):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1


@pytest.mark.parametrize("shape", [(6,), (6, 3)])
def test_a_frame_is_another_view_of_the_same_model(shape: tuple[int, ...]) -> None:
    """z . v = x . w, and a gradient in w becomes one in v by the chain rule."""
    generator = np.random.default_rng(0)
    grid = FeatureGrid(1.0, 6)
    frame = Frame.place(grid, generator.uniform(-1, 1, 6), 2.0 ** -generator.integers(0, 5, 6))
    rows, point, h = grid.place(with_constant(generator.uniform(-1, 1, (20, 5)))), generator.normal(size=shape), 1e-6
    moved = np.ldexp(rows - frame.centre, frame.doublings)
    np.testing.assert_allclose(rows @ frame.weights(point), moved @ point, atol=1e-12)
    problem = LinearProblem(Multinomial(3) if len(shape) > 1 else Logistic(), grid, L2(0.3))
    pulled = frame.pull_back(problem.penalty_gradient(frame.weights(point)))
    for index in np.ndindex(shape):
        step = np.zeros(shape)
        step[index] = h
        up, down = (problem.penalty_value(frame.weights(point + s * step)) for s in (1, -1))
        assert pulled[index] == pytest.approx((up - down) / (2 * h), abs=1e-5)


# Blocks --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("storage", STORAGE)
def test_every_block_sum_is_a_sum_of_single_rows(storage, loss: Loss) -> None:
    generator = np.random.default_rng(11)
    grid = FeatureGrid(1.0, 7)
    problem = LinearProblem(loss, grid)
    dense = grid.place(with_constant(generator.normal(0, 0.5, (61, 6)) * (generator.random((61, 6)) < 0.6)))
    rows, labels = storage(dense), labels_for(loss, 61, generator)
    weights, direction = generator.normal(size=(2, *problem.shape))
    placed, steps = grid.place_weights(weights), np.array([0.0, 0.5, -2.0, 40.0])
    clipped, bounded = problem.clipped_sum(0.5), BoundedSum(1.5)
    line = (placed, grid.place_weights(direction), steps)

    queries = {
        "gradient": lambda X, y: gradient_of(problem, clipped, placed, X, y, clipped.caps(grid.squared_norms(X))),
        "features": lambda X, y: problem.features_block(clipped, X, y, clipped.caps(grid.squared_norms(X))),
        "moments": lambda X, y: problem.moments_block(clipped, X, y, clipped.caps(grid.squared_norms(X))),
        "loss": lambda X, y: problem.loss_block(bounded, placed, X, y),
        "losses": lambda X, y: problem.scores_block(problem.scores(1.5, None), *line, X, y),
        "changes": lambda X, y: problem.scores_block(problem.scores(None, 0.25), *line, X, y),
    }
    for name, query in queries.items():
        np.testing.assert_array_equal(query(rows, labels), query(dense, labels), err_msg=name)
        check_row_independence(query, rows, labels, samples=6)


def test_squares_of_a_row_are_no_longer_than_the_row() -> None:
    """In integers: a square rounded to the grid is at most its entry, so both moments obey the clip norm."""
    for d in (1, 5, 1000):
        grid = FeatureGrid(1.0, d)
        problem, generator = LinearProblem(Logistic(), grid), np.random.default_rng(d)
        clipped = problem.clipped_sum(0.7)
        extremes = [np.ones(d), np.full(d, 2.0**-grid.exponent), np.full(d, 1 - 2.0**-grid.exponent), np.zeros(d)]
        for row in grid.place(np.vstack([*extremes, generator.uniform(-1, 1, (20, d))])):
            rows = row[None]
            caps = clipped.caps(grid.squared_norms(rows))
            means, squares = np.split(problem.moments_block(clipped, rows, np.zeros(1), caps), 2)
            assert (np.abs(squares) <= np.abs(means)).all()
            assert sum(v * v for v in integers(means)) <= (Fraction(0.7) / Fraction(clipped.unit)) ** 2


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_step_scores_are_the_losses_at_the_steps(loss: Loss) -> None:
    generator = np.random.default_rng(2)
    grid = FeatureGrid(1.0, 6)
    problem = LinearProblem(loss, grid)
    rows = grid.place(with_constant(generator.uniform(-1, 1, (40, 5))))
    labels, steps = labels_for(loss, 40, generator), np.array([0.0, 0.3, 1.0])
    weights, direction = generator.normal(size=(2, *problem.shape))
    line = (grid.place_weights(weights), grid.place_weights(direction), steps, rows, labels)
    bounded, signed = problem.scores(100.0, None), problem.scores(None, 100.0)
    losses = problem.scores_block(bounded, *line) * bounded.unit
    expected = np.array([loss.values(rows @ (weights - a * direction), labels).sum() for a in steps])
    # A logistic loss is looked up, with an error of at most half a cell of its table.
    coarse = 40 * 110 / 2**17 if isinstance(loss, Logistic) else 40 * bounded.unit
    np.testing.assert_allclose(losses, expected, rtol=0, atol=coarse)
    changes = problem.scores_block(signed, *line) * signed.unit
    assert changes[0] == 0
    np.testing.assert_allclose(changes, expected - expected[0], rtol=0, atol=2 * coarse)
    known = problem.scores_block(bounded, *line, *problem.line_margins(*line[:2], rows))
    np.testing.assert_array_equal(known * bounded.unit, losses)


@pytest.mark.parametrize("loss", [Logistic(), Sigmoid(), HuberisedHinge(), Squared()], ids=str)
@pytest.mark.parametrize("storage", STORAGE[:4])
def test_the_hessian_block_is_the_direct_sum(storage, loss: Loss) -> None:
    generator = np.random.default_rng(4)
    grid = FeatureGrid(1.0, 5)
    problem = LinearProblem(loss, grid)
    rows = grid.place(with_constant(generator.uniform(-1, 1, (50, 4))))
    labels, weights = labels_for(loss, 50, generator), grid.place_weights(generator.normal(size=5))
    coarse = grid.coarse.place(rows)
    moments = SecondMomentSum(grid.coarse, 1.05 * problem.smoothness, loss.convex)
    found = problem.hessian_block(moments, weights, storage(rows), labels)
    np.testing.assert_array_equal(found, problem.hessian_block(moments, weights, rows, labels, rows @ weights))
    curvatures = loss.curvatures(rows @ weights, labels)
    direct = sum(h * np.outer(x, x) for h, x in zip(curvatures, coarse, strict=True))
    np.testing.assert_allclose(found * moments.unit, direct, atol=50 * 2.0**-moments.weight_exponent)
    np.testing.assert_array_equal(found, found.T)


def test_more_outputs_than_can_be_clipped_are_refused_before_any_row() -> None:
    problem = LinearProblem(Multinomial(1025), FeatureGrid(1.0, 2))
    with pytest.raises(InvalidParameter, match="1024"):
        problem.clipped_sum(1.0)


# Constants -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("grid", [FeatureGrid(1.0, 10), FeatureGrid(0.3, 10), FeatureGrid(1.0, 10, 1.3)], ids=str)
@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Multinomial(3)], ids=str)
def test_no_placed_row_has_a_longer_gradient_than_stated(grid: FeatureGrid, loss: Loss) -> None:
    """Rounding to the grid lifts norms above the row bound; the stated bounds cover that."""
    generator = np.random.default_rng(0)
    problem = LinearProblem(loss, grid, intercept=False)
    rows = grid.place(np.vstack([generator.normal(0, 5, (20_000, 10)), np.ones((1, 10)), -np.ones((1, 10))]))
    longest = math.sqrt(grid.squared_norms(rows).max())
    assert grid.row_bound * (1 - 1e-6) < longest <= problem.longest_row < grid.row_bound * (1 + 1e-4)
    assert problem.gradient_bound == loss.lipschitz * problem.longest_row
    assert problem.smoothness == loss.smoothness * problem.longest_row**2
    assert problem.hessian_lipschitz == loss.curvature_lipschitz * problem.longest_row**3


def test_sensitivities_follow_the_relation() -> None:
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 4))
    assert problem.gradient_sensitivity(ZERO_OUT, 0.5) == 0.5
    assert problem.gradient_sensitivity(REPLACE_ONE, 0.5) == 1.0
    assert problem.gradient_sensitivity(ZERO_OUT) == pytest.approx(2.0)
    assert problem.hessian_sensitivity(ZERO_OUT) == pytest.approx(1.0)
    assert problem.hessian_sensitivity(REPLACE_ONE) == pytest.approx(math.sqrt(2))
    changes = Sensitivity.of_changes(0.25)
    assert (changes.norm, changes.zero_out, changes.replace_one) == (Norm.RANGE, 0.5, 1.0)
    with pytest.raises(UnsupportedCost, match="kink"):
        LinearProblem(Hinge(), FeatureGrid(1.0, 4)).hessian_sensitivity(ZERO_OUT)
    with pytest.raises(InvalidParameter):
        LinearProblem(Squared(), FeatureGrid(1.0, 4)).gradient_sensitivity(ZERO_OUT)


def test_penalties_change_no_sensitivity() -> None:
    plain, heavy = (LinearProblem(Logistic(), FeatureGrid(1.0, 4), L2(weight)) for weight in (0.0, 1e9))
    for relation in Relation:
        assert plain.gradient_sensitivity(relation) == heavy.gradient_sensitivity(relation)
        assert plain.hessian_sensitivity(relation) == heavy.hessian_sensitivity(relation)
    assert plain.clipped_sum(1.0) == heavy.clipped_sum(1.0)


# Penalties -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("penalty", [L2(0.7), NonConvex(0.7)], ids=str)
@pytest.mark.parametrize("shape", [(6,), (6, 3)])
def test_penalty_derivatives_are_those_of_its_value(penalty: Penalty, shape: tuple[int, ...]) -> None:
    outputs = shape[1] if len(shape) > 1 else 1
    loss = Multinomial(outputs) if outputs > 1 else Logistic()
    weights, h = np.random.default_rng(0).normal(0, 1.5, shape), 1e-5
    for intercept in (True, False):
        problem = LinearProblem(loss, FeatureGrid(1.0, 6), penalty, intercept)
        before = weights.copy()
        gradient, curvature = problem.penalty_gradient(weights), problem.penalty_curvature(weights)
        for index in np.ndindex(shape):
            up, down = weights.copy(), weights.copy()
            up[index] += h
            down[index] -= h
            slope = (problem.penalty_value(up) - problem.penalty_value(down)) / (2 * h)
            bend = (problem.penalty_gradient(up) - problem.penalty_gradient(down))[index] / (2 * h)
            assert gradient[index] == pytest.approx(slope, abs=1e-8)
            assert curvature[index] == pytest.approx(bend, abs=1e-8)
        np.testing.assert_array_equal(weights, before)
        if intercept:
            assert not gradient[-1].any()
            assert not curvature[-1].any()


@pytest.mark.parametrize("penalty", [L2(0.7), NonConvex(0.7)], ids=str)
def test_constants_of_penalties_are_attained_and_never_exceeded(penalty: Penalty) -> None:
    weights = np.linspace(-5, 5, 100_001)
    curvature = penalty.curvature(weights)
    assert penalty.smoothness == pytest.approx(np.abs(curvature).max(), rel=1e-6)
    slope = np.abs(np.diff(curvature)).max() / (weights[1] - weights[0])
    assert penalty.curvature_lipschitz == pytest.approx(slope, rel=1e-6, abs=1e-9)


@pytest.mark.parametrize("penalty", [L2(0.5), NonConvex(0.5)], ids=str)
def test_an_intercept_is_never_penalised(penalty: Penalty) -> None:
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 3), penalty)
    assert problem.penalty_value(np.array([0.0, 0.0, 1e9])) == 0
    assert problem.penalty_value(np.array([1.0, 0.0, 1e9])) == 0.25


def test_the_nonconvex_penalty_is_flat_far_out() -> None:
    far = np.array([1e150, -1e150, 1e80])
    penalty = NonConvex(2.0)
    assert penalty.value(far) == pytest.approx(6.0)
    np.testing.assert_allclose(penalty.gradient(far), 0, atol=1e-200)
    np.testing.assert_allclose(penalty.curvature(far), 0, atol=1e-200)


@pytest.mark.parametrize("weight", [-1.0, math.nan, math.inf, "a"])
@pytest.mark.parametrize("kind", [L2, NonConvex])
def test_impossible_penalty_weights_are_refused(kind: type[Penalty], weight: float) -> None:
    with pytest.raises(InvalidParameter, match="penalty weight"):
        kind(weight)


# Sources -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 5, 64])
@pytest.mark.parametrize("block", [1, 3, 64, 2**20])
def test_sources_sum_every_row_once_in_blocks_of_any_size(rows: int, block: int) -> None:
    grid = FeatureGrid(1.0, 3)
    features = grid.place(np.random.default_rng(0).uniform(-1, 1, (rows, 3)))
    for storage in STORAGE:
        source = ArraySource(storage(features), np.arange(rows), grid, block)
        extra = np.arange(rows)

        def query(part, labels, more):
            assert part.shape[0] == labels.shape[0] == more.shape[0] <= min(block, 2**17)
            return np.ldexp(np.asarray(part.sum(axis=0)), 19).ravel().astype(np.int64) + labels.astype(np.int64).sum()

        expected = np.ldexp(features.sum(axis=0), 19).astype(np.int64) + extra.sum()
        np.testing.assert_array_equal(source.map_sum(query, extra), expected)
        np.testing.assert_array_equal(source.map_rows(lambda _, labels, more: labels + more, extra), 2 * extra)


@pytest.mark.parametrize("rows", [0, 1, 40])
@pytest.mark.parametrize("storage", [np.asarray, np.asfortranarray, np.float32])
def test_rows_of_few_entries_are_stored_sparse_and_others_as_they_are(rows: int, storage) -> None:
    generator = np.random.default_rng(rows)
    features = generator.normal(size=(rows, 8)) * (generator.random((rows, 8)) < 0.1)
    features[:1] = 0.0
    few = storage(features)
    found = compact(few)
    if rows == 0:
        assert found is few
        return
    assert sparse.issparse(found)
    assert found.format == "csr"
    assert found.dtype == few.dtype
    assert found.has_canonical_format
    np.testing.assert_array_equal(found.toarray(), few)
    assert found.nnz == np.count_nonzero(few)
    assert compact(found) is found
    many = storage(generator.normal(size=(rows, 8)))
    assert compact(many) is many


@pytest.mark.parametrize("storage", STORAGE)
def test_rows_that_are_not_on_the_grid_are_refused(storage) -> None:
    grid = FeatureGrid(1.0, 2)
    good = grid.place(np.array([[0.5, -1.0], [0.1, 0.2]]))
    ArraySource(storage(good), np.zeros(2), grid)
    for bad in (2.0, np.nan, np.inf, 2.0**-22):
        rows = good.copy()
        rows[1, 1] = bad
        with pytest.raises(InvalidParameter, match="place"):
            ArraySource(storage(rows), np.zeros(2), grid, block_rows=1)


def test_rows_of_a_grid_that_scales_them_down_are_accepted() -> None:
    generator = np.random.default_rng(0)
    for grid in (FeatureGrid(1.0, 9, 0.7), FeatureGrid(0.3, 9), FeatureGrid(1.0, 9000, 1.1), FeatureGrid(1e-30, 9)):
        rows = grid.place(grid.entry_bound * generator.normal(0, 1, (50, grid.dimension)))
        ArraySource(rows, np.zeros(50), grid)
        with pytest.raises(InvalidParameter, match="place"):
            ArraySource(4 * rows, np.zeros(50), grid)


@pytest.mark.parametrize(
    ("features", "labels", "match"),
    [
        (np.zeros((3, 2)), np.zeros(4), "do not match"),
        (np.zeros((3, 2)), np.zeros((3, 1)), "do not match"),
        (np.zeros((3, 4)), np.zeros(3), "2 columns"),
        (sparse.csc_array(np.zeros((3, 2))), np.zeros(3), "CSR"),
        (np.zeros((3, 2), np.int64), np.zeros(3), "place"),
        (sparse.csr_array((np.ones(2), [0, 0], [0, 2]), shape=(1, 2)), np.zeros(1), "place"),
    ],
)
def test_malformed_sources_are_refused(features: object, labels: np.ndarray, match: str) -> None:
    with pytest.raises(InvalidParameter, match=match):
        ArraySource(features, labels, FeatureGrid(1.0, 2))
