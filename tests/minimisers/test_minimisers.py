"""Certified minimisers: every method against scipy, every certificate against the true distance."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from functools import partial

import mpmath
import numpy as np
import pytest
from scipy.optimize import minimize

from dpdescent import InvalidParameter
from dpdescent.curator.array_source import ArraySource
from dpdescent.exact import FeatureGrid
from dpdescent.minimisers import (
    METHODS,
    Candidate,
    EmpiricalRisk,
    GeneralObjective,
    LinearGame,
    RobustRisk,
    RowObjective,
    Task,
    certified_minimiser,
    certify,
    require_minimiser,
)
from dpdescent.minimisers.methods import accelerated_gradient, katyusha, subgradient
from dpdescent.minimisers.newton import smoothed_hinge
from dpdescent.minimisers.rounding import PROJECTION
from dpdescent.problems import Hinge, Huber, HuberisedHinge, Logistic, Loss, Multinomial, Poisson
from dpdescent.relations import Relation

SMOOTH = [Logistic(), HuberisedHinge(), Huber(1.0), Poisson()]


def table(
    loss: Loss,
    *,
    rows: int = 30,
    columns: int = 3,
    seed: int = 0,
    quadratic: float = 2.0,
    slanted: bool = False,
    linear: bool = True,
) -> RowObjective:
    """A random table with a random linear term; the quadratic may differ from weight to weight."""
    generator = np.random.default_rng(seed)
    grid = FeatureGrid(1.0, columns)
    X = grid.place(generator.uniform(-1, 1, (rows, columns)))
    shape: tuple[int, ...] = (columns,)
    y = np.where(X.sum(axis=1) + generator.normal(0, 0.5, rows) > 0, loss.labels.high, loss.labels.low)
    if isinstance(loss, Multinomial):
        shape, y = (columns, loss.classes), generator.integers(0, loss.classes, rows).astype(float)
    spread = np.linspace(1, 3, columns) if slanted else np.ones(columns)
    curvatures = quadratic * (spread if len(shape) == 1 else np.broadcast_to(spread[:, None], shape))
    slope = generator.normal(0, 0.5, shape) if linear else np.zeros(shape)
    return RowObjective(ArraySource(X, y, grid), grid, loss, grid.squared_norms(X), 1.2, curvatures.copy(), slope)


def best_by_scipy(objective: RowObjective, radius: float) -> np.ndarray:
    """The minimiser by another program: SLSQP, with a slack a row where the loss has a kink."""
    X, y = objective.scaled_rows()
    size = X.shape[1]

    def public(w: np.ndarray) -> tuple[float, np.ndarray]:
        return (
            float(np.sum(w * (objective.quadratic * w / 2 + objective.linear))),
            objective.quadratic * w + objective.linear,
        )

    ball = {"type": "ineq", "fun": lambda v: radius**2 - v[:size] @ v[:size], "jac": None}
    ball["jac"] = lambda v: np.concatenate([-2 * v[:size], np.zeros(v.size - size)])
    constraints = [ball] if radius < math.inf else []
    options = {"ftol": 1e-15, "maxiter": 2000}
    if not isinstance(objective.loss, Hinge):
        found = minimize(
            objective.value_and_gradient,
            np.zeros(size),
            jac=True,
            constraints=constraints,
            method="SLSQP",
            options=options,
        )
        return found.x
    signed, count = X * y[:, None], X.shape[0]

    def value(v: np.ndarray) -> tuple[float, np.ndarray]:
        least, slope = public(v[:size])
        return least + v[size:].sum(), np.concatenate([slope, np.ones(count)])

    margins = {
        "type": "ineq",
        "fun": lambda v: v[size:] - 1 + signed @ v[:size],
        "jac": lambda v: np.hstack([signed, np.eye(count)]),  # noqa: ARG005
    }
    start = np.concatenate([np.zeros(size), np.ones(count)])
    bounds = [(None, None)] * size + [(0, None)] * count
    found = minimize(
        value, start, jac=True, bounds=bounds, constraints=[margins, *constraints], method="SLSQP", options=options
    )
    return found.x[:size]


@pytest.mark.parametrize("radius", [math.inf, 0.8])
@pytest.mark.parametrize("slanted", [False, True])
@pytest.mark.parametrize("loss", [*SMOOTH, Hinge()], ids=str)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_agrees_with_scipy(method: str, loss: Loss, slanted: bool, radius: float) -> None:
    if isinstance(loss, Hinge) and method in ("agd", "katyusha"):
        with pytest.raises(InvalidParameter, match="kinks"):
            certified_minimiser(table(loss), 2.0, 1e-3, method, radius)
        return
    for seed in range(2):
        objective = table(loss, seed=seed, slanted=slanted)
        best = best_by_scipy(objective, radius)
        point = certified_minimiser(objective, 2.0, 1e-4, method, radius)
        assert np.linalg.norm(point) <= radius
        assert np.linalg.norm(point - best) <= 1e-4 + 2e-6  # what SLSQP leaves


@pytest.mark.parametrize("radius", [math.inf, 0.5])
@pytest.mark.parametrize("loss", [*SMOOTH, Multinomial(3), Hinge()], ids=str)
def test_a_certificate_never_falls_short_of_the_distance(loss: Loss, radius: float) -> None:
    """Random points, far and near, against a minimiser that is known well."""
    generator, known = np.random.default_rng(1), 4e-6 if isinstance(loss, Hinge) else 1e-8
    for seed in range(4):
        objective = table(loss, seed=seed, slanted=True)
        best = certified_minimiser(objective, 2.0, known, radius=radius)
        task = Task(objective, 2.0, 1e-3, radius)
        for size in (1.0, 1e-2, 1e-4):
            point = task.project(best + size * generator.normal(size=best.shape))
            duals = None
            if isinstance(loss, Hinge):
                duals = np.clip(objective.altered(HuberisedHinge(size)).duals(point), 0, 1)
            reached, distance = certify(task, Candidate(point, duals, 0.5 if radius < 1 else 0.0))
            assert np.linalg.norm(reached - best) <= distance + known
            if not isinstance(loss, Hinge):
                assert distance <= 60 * (np.linalg.norm(point - best) + known)  # no more than kappa times as much


def test_the_certificate_on_a_ball_has_its_worked_values() -> None:
    """F = (w - c)' diag(1, 3) (w - c)/2 with c = (2, 1) on the unit ball, steps of 1/3 from (0.3, 0.4)."""
    curvature, centre, best = np.array([1.0, 3.0]), np.array([2.0, 1.0]), np.array([0.76132623, 0.64836901])

    def function(w: np.ndarray) -> tuple[float, np.ndarray]:
        return float((w - centre) @ (curvature * (w - centre)) / 2), curvature * (w - centre)

    objective = GeneralObjective(function, 2, strong_convexity=1.0, lipschitz=10.0, smoothness=3.0, errors=(0.0, 0.0))
    task = Task(objective, 1.0, 1e-3, 1.0)
    point, seen = np.array([0.3, 0.4]), []
    for _ in range(4):
        point, distance = certify(task, Candidate(point))
        seen.append((float(np.linalg.norm(point - best)), distance))
    assert seen[0] == pytest.approx((0.151121279, 0.709861077), rel=1e-5)
    assert seen[3] == pytest.approx((0.00105008, 0.00612199), rel=1e-4)
    for method in ("agd", "lbfgs", "subgradient"):
        assert np.linalg.norm(certified_minimiser(objective, 1.0, 1e-3, method, 1.0) - best) <= 1e-3


def test_the_duality_gap_of_the_hinge_has_its_worked_value() -> None:
    """Rows (1, 0) of class 1 and (0, 1) of class -1 with lambda = 1/2: gap 0.0025 a row, and its root is tight."""
    grid = FeatureGrid(1.0, 2)
    X = grid.place(np.eye(2))
    objective = RowObjective(
        ArraySource(X, np.array([1.0, -1.0]), grid), grid, Hinge(), np.ones(2), 1.0, np.ones(2), np.zeros(2)
    )
    assert objective.duality_gap(np.array([0.9, -1.0]), np.ones(2), 1.0) == pytest.approx(2 * 0.0025, rel=1e-5)
    task = Task(objective, 1.0, 0.2)
    _, distance = certify(task, Candidate(np.array([0.9, -1.0]), np.ones(2)))
    assert distance == pytest.approx(0.1, rel=1e-5)  # the minimiser is (1, -1)
    assert certified_minimiser(objective, 1.0, 1e-6) == pytest.approx(np.array([1.0, -1.0]), abs=1e-6)


@pytest.mark.parametrize("radius", [math.inf, 0.3])
def test_a_floor_certifies_a_function_that_is_no_sum(radius: float) -> None:
    """The largest of some hinges plus |w|^2/2, by the subgradient method, against SLSQP on the epigraph."""
    generator = np.random.default_rng(3)
    X = generator.uniform(-1, 1, (8, 2))

    def function(w: np.ndarray) -> tuple[float, np.ndarray]:
        losses = np.maximum(1 - X @ w, 0)
        worst = int(losses.argmax())
        return float(losses[worst] + w @ w / 2), w - X[worst] * (losses[worst] > 0)

    objective = GeneralObjective(function, 2, strong_convexity=1.0, lipschitz=math.sqrt(2), errors=(1e-15, 1e-15))
    constraints = [{"type": "ineq", "fun": lambda v: v[2] - 1 + X @ v[:2]}, {"type": "ineq", "fun": lambda v: v[2]}]
    if radius < math.inf:
        constraints.append({"type": "ineq", "fun": lambda v: radius**2 - v[:2] @ v[:2]})
    best = minimize(
        lambda v: v[2] + v[:2] @ v[:2] / 2,
        np.array([0.0, 0.0, 2.0]),
        method="SLSQP",
        constraints=constraints,
        options={"ftol": 1e-14},
    ).x[:2]
    point = certified_minimiser(objective, 1.0, 0.02, "subgradient", radius)
    assert np.linalg.norm(point - best) <= 0.02
    # The floor is under the least value and comes near it at the rate 2 L^2/(mu T).
    candidates = list(subgradient(Task(objective, 1.0, 1e-9, radius), np.zeros(2), 512))
    least = function(best)[0]
    assert all(candidate.floor <= least + 1e-9 for candidate in candidates)
    assert function(candidates[-1].point)[0] - candidates[-1].floor <= 2 * (1 + math.sqrt(2)) ** 2 / 512


def test_the_subgradient_method_certifies_a_sum_of_hinges_at_its_rate() -> None:
    """The gap of averages after T steps is at most 2 L^2/(mu (T + 1)), L the slope with its public terms."""
    objective = table(Hinge(), linear=False)
    mu, slope = 2.0, 2 * 30 * 1.2  # the regulariser's slope is at most that of the hinges
    (*_, last) = subgradient(Task(objective, mu, 1e-9), np.zeros(3), 256)
    _, distance = certify(Task(objective, mu, 1e-9), last)
    best = certified_minimiser(objective, mu, 1e-5)
    assert np.linalg.norm(last.point - best) <= distance + 1e-5
    assert mu * distance**2 / 2 <= 2 * slope**2 / (mu * 257) * 1.001


def test_sgd_certifies_a_sum_of_hinges_by_itself() -> None:
    """The gap of the averages bounds the distance, and falls below a tolerance without help of another method."""
    mu, tolerance = 20.0, 0.05
    objective = table(Hinge(), linear=False).altered(quadratic=np.full(3, mu))
    best = certified_minimiser(objective, mu, 1e-5)
    task = Task(objective, mu, tolerance)
    bounds = []
    for candidate in METHODS["sgd"](task, np.zeros(3)):
        point, distance = certify(task, candidate)
        assert np.linalg.norm(point - best) <= distance + 1e-5
        bounds.append(distance)
    assert bounds[0] > 2 * tolerance
    assert bounds[-1] < tolerance

    def useless(*_: object) -> Iterator[Candidate]:
        raise AssertionError("the method that was chosen was not believed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("dpdescent.minimisers.certified.smoothed_hinge", useless)
        found = certified_minimiser(objective, mu, tolerance, "sgd")
    assert np.linalg.norm(found - best) <= tolerance + 1e-5


def test_a_solver_that_is_right_on_average_only_is_not_believed() -> None:
    """It errs with probability p by sqrt(2a/(mu p)), so its mean gap is a, and the noise for that gives a row away.

    At epsilon = 1 and p = 0.001 the privacy loss reaches log p + epsilon/(2 sqrt p) = 8.9. Certified, whatever it
    proposes, the point is as near as the tolerance says.
    """
    assert math.log(1e-3) + 1 / (2 * math.sqrt(1e-3)) == pytest.approx(8.9036, abs=1e-4)
    objective, tolerance = table(Logistic()), 1e-3
    best = certified_minimiser(objective, 2.0, 1e-9)

    def sometimes_wrong(*_: object) -> Iterator[Candidate]:
        yield Candidate(best + 1.0)  # the rare failure, each time

    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(METHODS, "lbfgs", sometimes_wrong)
        point = certified_minimiser(objective, 2.0, tolerance)
        assert np.linalg.norm(point - best) <= tolerance + 1e-9
        patch.setitem(METHODS, "lbfgs", lambda _, start: iter([Candidate(np.full(start.shape, math.nan))]))
        assert np.linalg.norm(certified_minimiser(objective, 2.0, tolerance) - best) <= tolerance + 1e-9


@pytest.mark.parametrize("kappa", [10.0, 100.0, 1000.0])
def test_accelerated_gradient_keeps_to_its_number_of_steps(kappa: float) -> None:
    objective = table(Logistic(), rows=60, quadratic=60 * 0.25 * 1.2**2 / (kappa - 1))
    mu = float(objective.quadratic.min())
    calls, plain = [], objective.value_and_gradient

    def counted(weights: np.ndarray) -> tuple[float, np.ndarray]:
        calls.append(1)
        return plain(weights)

    objective.value_and_gradient = counted  # type: ignore[method-assign]
    task = Task(objective, mu, 1e-6)
    candidate = next(accelerated_gradient(task, np.zeros(3)))
    assert certify(task, candidate)[1] <= task.tolerance
    gap = 60 * math.log(2) + objective.smoothness  # F(0) - F* + ...: the first gap
    assert len(calls) <= 1.5 * math.sqrt(kappa) * math.log(gap / (mu * task.tolerance**2 / 4))


def test_katyusha_keeps_to_its_number_of_steps() -> None:
    """3n gradients of rows an epoch: at most a few times (n + sqrt(n kappa)) log."""
    for kappa in (20.0, 2000.0):
        objective = table(Logistic(), rows=60, quadratic=60 * 0.25 * 1.2**2 / (kappa - 1))
        mu = float(objective.quadratic.min())
        task = Task(objective, mu, 1e-4 / mu)
        snapshots = katyusha(task, np.zeros(3), every=True)
        epochs = next(k for k, s in enumerate(snapshots) if certify(task, s)[1] <= task.tolerance)
        decades = math.log(60 / (mu * task.tolerance**2 / 4))
        assert 180 * epochs <= 2 * (60 + math.sqrt(60 * kappa)) * decades


def test_what_a_method_cannot_do_is_refused_by_name() -> None:
    objective = table(Logistic())
    for arguments, match in (
        ((0.0, 1e-3), "strong_convexity"),
        ((2.0, 0.0), "tolerance"),
        ((2.0, -1.0), "tolerance"),
        ((2.0, 1e-3, "newton"), "minimiser"),
        ((2.0, 1e-3, "agd", 0.0), "radius"),
    ):
        with pytest.raises(InvalidParameter, match=match):
            certified_minimiser(objective, *arguments)  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="single rows"):
        require_minimiser("katyusha", smooth=True, rows=False)
    with pytest.raises(InvalidParameter, match="regulariser"):
        GeneralObjective(lambda w: (0.0, w), 2, strong_convexity=0.0, lipschitz=1.0)
    with pytest.raises(InvalidParameter, match="smoothness"):
        GeneralObjective(lambda w: (0.0, w), 2, strong_convexity=1.0, lipschitz=1.0, smoothness=0.5)


def test_an_empty_table_has_the_minimiser_of_the_public_terms() -> None:
    grid = FeatureGrid(1.0, 2)
    for loss in (Logistic(), Hinge()):
        empty = ArraySource(grid.place(np.empty((0, 2))), np.empty(0), grid)
        objective = RowObjective(empty, grid, loss, np.empty(0), 1.0, np.full(2, 2.0), np.array([1.0, -3.0]))
        for method in ("lbfgs", "subgradient", "sgd") if isinstance(loss, Hinge) else METHODS:
            assert certified_minimiser(objective, 2.0, 1e-6, method) == pytest.approx([-0.5, 1.5], abs=1e-6)


def test_the_multiplier_of_a_ball_is_found_for_every_table() -> None:
    """Newton steps on 1/|w(t)| run in circles for some of these tables: kinks make them leave the interval."""
    generator = np.random.default_rng(5)
    grid, risk, mu, radius = FeatureGrid(1.0, 2), EmpiricalRisk(Hinge(), 0.067), 0.00185, 22.54
    for _ in range(45):
        X = grid.place(generator.uniform(-1, 1, (20, 2)))
        y = (
            generator.choice([-1.0, 1.0], 20)
            if generator.random() < 0.5
            else np.where(X @ generator.normal(size=2) > 0, 1.0, -1.0)
        )
        objective = risk.objective(ArraySource(X, y, grid), grid, grid.squared_norms(X), np.full(2, mu), np.zeros(2))
        task = Task(objective, mu, risk.clip / mu / 64, radius)
        proposed = itertools.islice(smoothed_hinge(task, np.zeros(2)), 60)
        assert any(certify(task, candidate)[1] <= task.tolerance for candidate in proposed)


@pytest.mark.parametrize("loss", [*SMOOTH, Hinge()], ids=str)
def test_a_certificate_is_never_below_the_rounding_errors(loss: Loss) -> None:
    """A gradient that is computed to be 0 (or normal to the ball) certifies no more than its error allows."""
    objective, mu = table(loss, quadratic=1e-3), 1e-3
    if isinstance(loss, Hinge):
        gap = partial(
            objective.duality_gap, np.zeros(3), np.ones(30), 1e300
        )  # margins 0, dual values 1: nothing left
        assert gap() >= 30 * 8 * 2.0**-53
        assert gap(0.0, 1e-3) >= 30 * 1.2 * 1e-3
        return
    point = np.array([0.3, 0.0, 0.4])
    least = objective.gradient_error(point) / mu + objective.placement_error(0.5)
    assert objective.gradient_error(point) >= 30 * 1.2 * loss.lipschitz * 2.0**-46
    objective.accurate_gradient = lambda _: np.zeros(3)  # type: ignore[method-assign]
    assert certify(Task(objective, mu, 1e-3), Candidate(point))[1] >= least
    objective.accurate_gradient = lambda _: -point  # type: ignore[method-assign]
    objective.value_and_gradient = lambda _: (0.0, -point)  # type: ignore[method-assign]
    distance = certify(Task(objective, mu, 1e-3, 0.5), Candidate(point))[1]
    assert distance >= least + 2.0**-47 * 2 * 0.5 * 2 * objective.smoothness / mu


# Rounding -----------------------------------------------------------------------------------------------------


def test_a_computed_projection_is_as_near_to_the_true_one_as_it_is_taken_for() -> None:
    """Against fifty digits: inside the ball, and within `PROJECTION` of the true point in units of the lengths."""
    generator = np.random.default_rng(0)
    with mpmath.workdps(50):
        for size in (1, 3, 200):
            for _ in range(20):
                radius, far = 10.0 ** generator.uniform(-3, 3, 2)
                ahead = generator.normal(size=size)
                ahead *= radius * (1 + far) / np.linalg.norm(ahead)
                point = Task(table(Logistic()), 1.0, 1e-6, radius).project(ahead)
                exact = [mpmath.mpf(float(each)) for each in ahead]
                length = mpmath.sqrt(sum(each**2 for each in exact))
                moved = mpmath.sqrt(
                    sum((mpmath.mpf(float(p)) - e * radius / length) ** 2 for p, e in zip(point, exact, strict=True))
                )
                assert moved <= PROJECTION * (radius + length)
                assert mpmath.sqrt(sum(mpmath.mpf(float(p)) ** 2 for p in point)) <= radius
                assert moved > 0  # it is rounded, and pulled inside


@pytest.mark.parametrize("relation", [Relation.ZERO_OUT, Relation.REPLACE_ONE])
def test_a_replaced_row_counts_twice_in_every_risk_without_a_tilt(relation: Relation) -> None:
    times = 1 if relation is Relation.ZERO_OUT else 2
    mean, robust = EmpiricalRisk(Logistic(), 1.3), RobustRisk(Logistic(), 1.3, 50)
    game = LinearGame(np.ones((4, 2)), np.ones(4), 8, 1.0, 0.5)
    for found, one in (
        (mean.variation(50, relation), mean.clip),
        (robust.variation(50, relation), robust.clip),
        (game.variation(relation), game.clip / 8),
    ):
        assert found == times * one
