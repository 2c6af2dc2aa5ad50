"""Sensitivities, tolerances and lattices of computed points, each put together once more from its docstring."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from dpdescent.accounting import ALLOWANCE, Gaussian, Laplace, NormLaplace, ObjectivePerturbation, ShuffledDescent
from dpdescent.curator import caller_functions, kept_rows, perturbed_minimiser
from dpdescent.errors import InvalidParameter, ScaleOutOfRange
from dpdescent.exact import FeatureGrid, ceil_log2
from dpdescent.ledger import Ledger
from dpdescent.minimisers import EmpiricalRisk, GeneralObjective, loss_range
from dpdescent.problems import L2, Hinge, LinearProblem, Logistic
from dpdescent.queries import NoisyDescent, NoisyMinimiser, PermutedDescent, Public, descents, noisy_minimiser
from dpdescent.queries.noisy_minimiser import PointLattice
from dpdescent.relations import Relation
from every_query import PROBLEMS, ROWS, Silent, examples, quick, table_of

GRID = FeatureGrid(1.0, 3)


def public_of(problem: LinearProblem, relation: str, rows: int = ROWS, **options: Any) -> Public:
    return Public(problem, Relation(relation), rows, 1.0, rows, **options)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("penalty", [0.0, 0.25])
def test_points_of_descents_are_apart_by_what_every_step_adds(penalty: float, relation: str) -> None:
    problem, rows, steps, step_size = LinearProblem(Logistic(), GRID, L2(penalty, intercept=True)), 50, 7, 0.5
    clip, changed = EmpiricalRisk(Logistic(), 1.5).clip, 2 if relation == "replace-one" else 1
    plan = NoisyDescent(Logistic(), 1.5, step_size, steps, Gaussian(3.0)).plan(public_of(problem, relation, rows))
    growth = sum((1 - step_size * penalty) ** t for t in range(steps))
    exact = step_size * growth * changed * clip / rows
    least = exact * (1 + (2.0**-21 if penalty else 0.0))  # a geometric sum is rounded up
    assert least < plan.noised.sensitivity.under(relation) < exact * (1 + 1e-5)
    each = public_of(problem, relation, rows, rows_per_unit=64)
    coarse = NoisyDescent(Logistic(), 1.5, step_size, steps, Gaussian(3.0)).plan(each)
    assert coarse.noised.unit == 64 * plan.noised.unit
    passes, batch_rows = 3, 8
    cost = ShuffledDescent(3.0, passes, -(-rows // batch_rows))
    permuted = PermutedDescent(Logistic(), 1.5, batch_rows, step_size, cost).plan(public_of(problem, relation, rows))
    exact = passes * step_size * changed * clip / batch_rows
    assert exact <= permuted.noised.sensitivity.under(relation) < exact * (1 + 1e-5)
    for wrong in (0.0, -0.1, 1e9, math.nan):
        with pytest.raises(InvalidParameter, match="step_size"):
            NoisyDescent(Logistic(), 1.5, wrong, steps, Gaussian(3.0)).plan(public_of(problem, relation, rows))


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("cost", [NormLaplace(0.5), Laplace(0.5)])
def test_pure_noise_on_a_descent_has_the_sensitivity_of_gaussian_noise(cost: Any, relation: str) -> None:
    """Up to the steps of the lattices: in the Euclidean norm, or sqrt(p) times as much where the sizes add up."""
    problem, rows, steps, step_size = LinearProblem(Logistic(), GRID, L2(0.25, intercept=True)), 50, 7, 0.5
    public = public_of(problem, relation, rows)
    plain, pure = (
        NoisyDescent(Logistic(), 1.5, step_size, steps, noise).plan(public) for noise in (Gaussian(3.0), cost)
    )
    wider = math.sqrt(math.prod(problem.shape)) if isinstance(cost, Laplace) else 1.0
    expected = wider * plain.noised.sensitivity.under(relation)
    assert expected * (1 - 1e-6) < pure.noised.sensitivity.under(relation) < expected * (1 + 1e-6)
    assert pure.cost == pure.noised.cost == cost


@pytest.mark.parametrize("penalty", [0.0, 0.25])
def test_permuted_passes_are_refused_as_soon_as_rounding_exceeds_its_allowance(penalty: float) -> None:
    """2 eta E a step, and sqrt(p) lattice steps at the end."""
    problem, step_size, refusals = LinearProblem(Logistic(), GRID, L2(penalty, intercept=True)), 0.25, []
    risk = EmpiricalRisk(Logistic(), 1.5)
    wide = [(40, 4, 2, 2.0**exponent) for exponent in range(25, 40)]
    long = [(2**exponent, 1, passes, 1.0) for exponent in range(12, 22) for passes in (1, 3)]
    great = [(2**exponent, 2**exponent, 1, 1.0) for exponent in range(10, 48)]
    for rows, batch_rows, passes, noise in wide + long + great:
        batches = rows // batch_rows
        public, steps = public_of(problem, "zero-out", rows), passes * batches
        descent = descents._Descent.of(public, Logistic(), 1.5, step_size)
        far, hit = step_size * steps * risk.clip * (1 + 2.0**-20), step_size * risk.clip / batch_rows
        found = descent.objective(None, descent.penalty).batch_error_bound(batch_rows, far) / batch_rows
        error = found + 8 * 2.0**-53 * (far / step_size + risk.clip)
        lattice = PointLattice.of(problem.shape, hit * passes, far, Gaussian(noise))
        refused = 2 * step_size * error * steps + math.sqrt(3) * lattice.unit > ALLOWANCE * hit * passes
        query = PermutedDescent(Logistic(), 1.5, batch_rows, step_size, ShuffledDescent(noise, passes, batches))
        if refused:
            with pytest.raises(ScaleOutOfRange, match="rounding errors"):
                query.plan(public)
        else:
            assert query.plan(public).noised == lattice.noised
        refusals.append(refused)
    groups = refusals[: len(wide)], refusals[len(wide) : -len(great)], refusals[-len(great) :]
    assert all({True, False} == set(group) for group in groups)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("cost", [Gaussian(3.0), Gaussian(0.25), Laplace(0.2), Laplace(5.0)])
def test_an_excess_risk_pays_for_its_range_its_tolerance_and_the_rounding_of_two_values(
    cost: Gaussian | Laplace, relation: str
) -> None:
    gaussian = isinstance(cost, Gaussian)
    asked = 0
    for name, problem in PROBLEMS.items():
        for query in examples("ExcessAdversarialRisk", name, relation)[:1]:
            public, risk, weights = public_of(problem, relation), query.risk, np.asarray(query.weights)
            plan = replace(query, mechanism=cost).plan(public)
            quadratic = ROWS * problem.penalty_curvature(np.zeros(problem.shape)) + query.strong_convexity
            mu, curvature = float(quadratic.min()), float(quadratic.max())
            farthest = risk.farthest(ROWS, mu)
            tolerance = max(risk.reachable(ROWS, problem.grid.dimension, mu, curvature), 2.0**-30 * farthest)
            low, high = loss_range(risk.loss, risk.margin(max(farthest, float(np.linalg.norm(weights)))))
            values = ROWS * (high + risk.loss.lipschitz) + 2 * risk.value_bound(ROWS) + curvature * weights @ weights
            error = (risk.smoothness(ROWS) + curvature) * tolerance**2
            error += 2 * (ROWS + 2 * problem.grid.dimension + 32) * 2.0**-52 * values
            noise = cost.noise_multiplier if gaussian else 1 / cost.epsilon
            unit = 2.0 ** (ceil_log2((high - low) * noise) - 26)
            moved = high - low + 2 * error + unit
            if relation == "replace-one":
                moved += high - low
            assert plan.noised.unit == unit
            assert plan.noised.divisor == ROWS
            assert plan.noised.sensitivity.under(relation) == pytest.approx(moved, rel=1e-15, abs=0)
            released, deviation = plan.finish(np.array([0.125]))
            assert released == 0.125
            assert deviation == pytest.approx(moved * noise * (1 if gaussian else math.sqrt(2)) / ROWS, rel=1e-11)
            asked += 1
    assert asked >= 1


@pytest.mark.parametrize("penalty", [0.0, 0.25])
def test_a_pass_over_one_batch_is_a_step_of_descent(penalty: float) -> None:
    problem, step_size, passes = LinearProblem(Logistic(), GRID, L2(penalty, intercept=True)), 0.5, 3
    rows, labels = table_of("logistic", 2)
    cost = ShuffledDescent(1.0, passes, 1)
    curator = quick(problem, (rows, labels), "zero-out", Silent())
    found = curator.answer(PermutedDescent(Logistic(), 2.0, ROWS, step_size, cost))
    point = np.zeros(3)
    for _ in range(passes):
        gradient = rows.T @ Logistic().residuals(rows @ point, labels) / ROWS
        point = point - step_size * (gradient + penalty * point)
    np.testing.assert_allclose(found, point, atol=1e-6)


def test_minimisers_in_a_ball_are_those_of_the_ball() -> None:
    """At such a point on the border the gradient leads straight inwards; at a projected minimiser it need not."""
    curved, far = np.array([1.0, 10.0]), np.array([3.0, 3.0])

    def gradient(w: np.ndarray) -> np.ndarray:
        return curved * (w - far)

    def build(_: Any, centre: np.ndarray, pull: float) -> GeneralObjective:  # noqa: ARG001
        return GeneralObjective(
            lambda w: (pull / 2 * float(curved @ (w - far) ** 2), pull * gradient(w)),
            2,
            strong_convexity=pull,
            lipschitz=99.0 * pull,
            smoothness=10.0 * pull,
            variation=1e-3 * pull,
        )

    ledger = Ledger(1e9, 1e-6, relation="replace-one", currency="gdp")
    options = {"dimension": 2, "lipschitz": 1.0, "radius": 1.0, "noise": Silent()}
    for point in (
        perturbed_minimiser(build(None, far, 1.0), ledger, Gaussian(1.0), radius=1.0, noise=Silent()),
        caller_functions.phased_minimiser(build, 4, ledger, Gaussian(1.0), **options),
    ):
        inwards = -gradient(point) / np.linalg.norm(gradient(point))
        np.testing.assert_allclose(point, inwards, atol=1e-3)
    rows, labels = table_of("logistic", 2)
    curator = quick(PROBLEMS["logistic"], (rows, labels), "zero-out", Silent())
    point = curator.answer(NoisyMinimiser(EmpiricalRisk(Logistic(), 2.0), 0.5, Gaussian(1.0), radius=0.25))
    slope = rows.T @ Logistic().residuals(rows @ point, labels) + 0.5 * point
    np.testing.assert_allclose(point, -0.25 * slope / np.linalg.norm(slope), atol=0.01)


def test_objective_perturbation_is_about_sums_of_smooth_losses_alone() -> None:
    cost = ObjectivePerturbation(1.0, 1.0, 9.0, 3, "zero-out", 1e-6)
    robust = examples("ExcessAdversarialRisk", "adversary", "zero-out")[0].risk
    for risk in (EmpiricalRisk(Hinge(), 2.0), robust):
        with pytest.raises(InvalidParameter, match="sums of smooth losses"):
            NoisyMinimiser(risk, 1.0, cost).plan(public_of(PROBLEMS["adversary"], "zero-out"))


def test_phases_are_disjoint_halves_and_steps_follow_the_rule() -> None:
    found = list(caller_functions._phases(100, 0.5))
    sizes = [50, 25, 12, 6, 3, 1]
    assert [part.stop - part.start for part, _ in found] == sizes
    assert [part.start for part, _ in found] == [0, 50, 75, 87, 93, 96]
    assert [pull for _, pull in found] == pytest.approx([2 * 4.0 ** (i + 1) / (0.5 * n) for i, n in enumerate(sizes)])
    for smoothness, variation, radius, share in (
        (2.0, 0.5, 3.0, 256),
        (math.inf, 0.5, 3.0, 16),
        (2.0, 9.0, 0.25, 256),
    ):
        objective = GeneralObjective(
            lambda w: (0.0, w), 2, strong_convexity=1.0, lipschitz=4.0, smoothness=smoothness, variation=variation
        )
        lattice, mu, distance = caller_functions._plan(objective, 1.0, Gaussian(1.0), radius, None)
        moved = min(variation, 2 * radius)
        assert (mu, distance) == (1.0, max(moved / share, objective.reachable(radius)))
        assert lattice == PointLattice.of((2,), moved + 2 * distance, radius + distance, Gaussian(1.0))
        assert caller_functions._method(objective, None) == ("subgradient" if math.isinf(smoothness) else "lbfgs")
        with pytest.raises(InvalidParameter, match="strong convexity"):
            caller_functions._plan(objective, 1.0 + 1e-9, Gaussian(1.0), radius, None)


def test_the_step_of_phases_and_their_first_pull_follow_the_rule() -> None:
    pulls = []

    def build(part: slice, _: np.ndarray, pull: float) -> GeneralObjective:
        pulls.append((part, pull))
        raise KeyboardInterrupt

    for rows, noise, step in ((100, 0.001, 0.4), (100, 5.0, 1 / (5.0 * math.sqrt(9)))):
        ledger = Ledger(1e9, 1e-6, relation="replace-one", currency="gdp")
        with pytest.raises(KeyboardInterrupt):
            caller_functions.phased_minimiser(
                build, rows, ledger, Gaussian(noise), dimension=9, lipschitz=0.5, radius=3.0
            )
        assert pulls[-1] == (slice(0, rows // 2), pytest.approx(8 / (6 * step * (rows // 2))))
        assert not ledger.entries


def test_functions_are_evaluated_in_arithmetic_of_their_own() -> None:
    """What overflows in them would otherwise be an error, or a warning, that speaks of rows."""

    def value(w: np.ndarray) -> tuple[float, np.ndarray]:
        assert np.isinf(np.array([1e308]) * 10).all()
        return float(w @ w) / 2, w

    def build(_: slice, centre: np.ndarray, pull: float) -> GeneralObjective:
        return GeneralObjective(
            lambda w: (pull / 2 * float((w - centre) @ (w - centre)), pull * (w - centre) * value(w)[0] ** 0),
            2,
            strong_convexity=pull,
            lipschitz=9.0 * pull,
            smoothness=pull,
            variation=0.5,
        )

    objective = GeneralObjective(value, 2, strong_convexity=1.0, lipschitz=1.0, smoothness=1.0, variation=0.5)
    ledger = Ledger(1e9, 1e-6, relation="replace-one", currency="gdp")
    with np.errstate(all="raise"):
        perturbed_minimiser(objective, ledger, Gaussian(1.0), radius=1.0)
        caller_functions.phased_minimiser(build, 4, ledger, Gaussian(1.0), dimension=2, lipschitz=1.0, radius=1.0)
    assert len(ledger.entries) == 2
    for method in ("svrg", "sdca", "sgd"):
        with pytest.raises(InvalidParameter):
            perturbed_minimiser(objective, ledger, Gaussian(1.0), minimiser=method)
    assert len(ledger.entries) == 2


def test_a_ball_is_placed_on_the_grid_before_a_point_of_it_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    balls = []
    monkeypatch.setattr(noisy_minimiser, "sample_point", lambda *given: balls.append(given[3]) or given[3].centre)
    problem = PROBLEMS["two columns"]
    curator = quick(problem, table_of("two columns", 1), "zero-out", Silent())
    for query in examples("BallPoint", "two columns", "zero-out")[:1]:
        off = replace(query, ball=replace(query.ball, centre=np.array([1 / 3, -1 / 7])))
        curator.answer(off)
        np.testing.assert_array_equal(balls[-1].centre, problem.grid.place_weights(off.ball.centre))
        assert not np.array_equal(balls[-1].centre, off.ball.centre)


def test_marks_are_the_same_for_every_storage_and_tell_all_bits_apart() -> None:
    rows, labels = np.array([[1.0, 0.0, 2.0, 0.0], [0.0, 3.0, 0.0, 0.0]]), np.array([0.5, 1.5])
    expected = kept_rows.marks(rows, labels)
    for stored in (sparse.csr_array(rows), rows.astype(np.float32), sparse.csr_array(rows.astype(np.float32))):
        np.testing.assert_array_equal(kept_rows.marks(stored, labels), expected)
    np.testing.assert_array_equal(kept_rows.marks(rows, labels.astype(np.float32)), expected)
    factor = 0x9E3779B97F4A7C15
    near = (int(np.float64(1.0).view(np.uint64)) + pow(factor, -1, 2**64)) % 2**64  # their products differ by 1
    pair = np.array([1.0, np.uint64(near).view(np.float64)])
    assert np.isfinite(pair).all()
    assert np.unique(kept_rows._mix(pair)).size == 2


def test_factors_of_marks_are_odd_and_the_same_everywhere() -> None:
    factors = kept_rows._factors(60)
    assert (factors % np.uint64(2) == 1).all()
    assert len(set(factors.tolist())) == 60
    assert (factors == np.random.default_rng(0).integers(2**63, size=60, dtype=np.uint64) * 2 + 1).all()
