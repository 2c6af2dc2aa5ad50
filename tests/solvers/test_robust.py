"""Tilted and adversarial objectives: limits, derivatives, closed forms, real sensitivities, recovery, refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from typer.testing import CliRunner

from asking import excess_adversarial_risk, noisy_minimiser
from dpdescent import (
    Adversary,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    InvalidParameter,
    Ledger,
    load_dataset,
)
from dpdescent.accounting import Gaussian, Laplace
from dpdescent.cli import app
from dpdescent.curator import Curator
from dpdescent.curator.array_source import ArraySource
from dpdescent.errors import UnsupportedLoss
from dpdescent.exact import FeatureGrid
from dpdescent.minimisers import (
    ROUNDED_KINK,
    RobustObjective,
    RobustRisk,
    RowObjective,
    certified_minimiser,
    loss_range,
    robust_loss,
)
from dpdescent.problems import Hinge, Huber, HuberisedHinge, Logistic, Loss, Multinomial, Poisson
from dpdescent.relations import Relation
from neighbours import STORAGE
from rival_tables import curator_of, make_curator, recorded, replaced

ADVERSARIES = [None, Adversary(0.1), Adversary(0.1, "linf"), Adversary((0.1, 0.0, 0.3), "linf")]
RELATIONS = ["zero-out", "replace-one"]


def table(rows: int = 60, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = np.column_stack([generator.integers(-1024, 1025, (rows, 3)) / 1024, np.ones(rows)])  # on the grid
    return X, np.where(X[:, 0] + 0.4 * generator.normal(size=rows) > 0, 1.0, -1.0)


def objective_of(
    X: np.ndarray, y: np.ndarray, risk: RobustRisk, strong_convexity: float, linear: float = 0.0
) -> RobustObjective:
    grid = FeatureGrid(1.0, X.shape[1])
    placed = grid.place(X)
    shape = (X.shape[1],) if risk.loss.outputs == 1 else (X.shape[1], risk.loss.outputs)
    quadratic, linear_term = np.full(shape, strong_convexity), np.full(shape, linear)
    return risk.objective(ArraySource(placed, y, grid), grid, grid.squared_norms(placed), quadratic, linear_term)


def support_of(adversary: Adversary | None, columns: int = 4) -> Any:
    return None if adversary is None else adversary.support(columns, True)


def plain_losses(X: np.ndarray, y: np.ndarray, w: np.ndarray, row_bound: float, adversary: Adversary | None) -> Any:
    """Logistic losses of the moved rows, from their definition."""
    factors = np.minimum(1, row_bound / np.linalg.norm(X, axis=1))
    margins = y * (X @ w)
    if adversary is not None:
        radius = np.asarray(adversary.radius)
        margins = margins - (
            radius * np.linalg.norm(w[:-1]) if adversary.norm == "l2" else np.sum(radius * np.abs(w[:-1]))
        )
    return np.logaddexp(0, -margins * factors)


# The objective ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("adversary", ADVERSARIES, ids=str)
@pytest.mark.parametrize("tilt", [0.0, 1.0, 10.0])
def test_value_and_derivatives_are_those_of_the_definition(tilt: float, adversary: Adversary | None) -> None:
    X, y = table()
    risk = RobustRisk(Logistic(), 1.3, 63, tilt, support_of(adversary))
    objective = objective_of(X, y, risk, 2.0)
    w = np.array([0.5, -0.8, 0.3, 0.4])
    losses = np.append(plain_losses(X, y, w, 1.3, adversary), np.full(3, math.log(2)))  # three empty places
    mean = np.log(np.mean(np.exp(tilt * losses))) / tilt if tilt else losses[:-3].sum() / 63
    value, gradient = objective.value_and_gradient(w)
    assert value == pytest.approx(63 * mean + w @ w, abs=1e-4)  # softened by at most 63 r s
    assert objective.accurate_gradient(w) == pytest.approx(gradient, rel=1e-12)

    def slope(at: np.ndarray, step: float) -> np.ndarray:
        ends = [[objective.value_and_gradient(at + s * step * e) for s in (1, -1)] for e in np.eye(4)]
        return np.array([(high[0] - low[0]) / (2 * step) for high, low in ends])

    assert slope(w, 1e-5) == pytest.approx(gradient, rel=1e-6, abs=1e-6)
    numeric = [
        (objective.value_and_gradient(w + 1e-5 * e)[1] - objective.value_and_gradient(w - 1e-5 * e)[1]) / 2e-5
        for e in np.eye(4)
    ]
    dense = objective.dense_hessian(w)
    assert dense == pytest.approx(np.array(numeric), rel=1e-5, abs=1e-4)
    product = objective.hessian(w)
    assert np.array([product(e) for e in np.eye(4)]) == pytest.approx(dense, rel=1e-9, abs=1e-9)
    assert np.linalg.eigvalsh(dense)[-1] <= objective.smoothness
    assert np.linalg.eigvalsh(dense)[0] >= 2.0 - 1e-9


@pytest.mark.parametrize("storage", ["csr", "float32", "csr-float32"])
def test_sparse_and_short_rows_give_the_same_objective(storage: str) -> None:
    X, y = table(200)
    risk = RobustRisk(Logistic(), 1.3, 203, 2.0, Adversary(0.1).support(4, True))
    grid = FeatureGrid(1.0, 4)
    placed = grid.place(X)
    w = np.array([0.5, -0.8, 0.3, 0.4])
    plain, other = (
        risk.objective(ArraySource(rows, y, grid, 64), grid, grid.squared_norms(placed), np.ones(4), np.zeros(4))
        for rows in (placed, STORAGE[storage](placed))
    )
    assert other.accurate_gradient(w) == pytest.approx(plain.accurate_gradient(w), rel=1e-13)
    assert other.value_and_gradient(w)[0] == pytest.approx(plain.value_and_gradient(w)[0], rel=1e-13)
    assert other.dense_hessian(w) == pytest.approx(plain.dense_hessian(w), rel=1e-12)
    assert other.hessian(w)(w) == pytest.approx(plain.hessian(w)(w), rel=1e-12)


def test_a_tilted_multinomial_loss_has_the_right_derivatives() -> None:
    X, _ = table()
    y = np.arange(60) % 3 * 1.0
    objective = objective_of(X, y, RobustRisk(Multinomial(3), 1.3, 60, 2.0), 1.0)
    w = np.random.default_rng(0).normal(size=(4, 3)) * 0.3
    direction = np.random.default_rng(1).normal(size=(4, 3))
    high, low = (objective.value_and_gradient(w + s * 1e-5 * direction) for s in (1, -1))
    assert (high[0] - low[0]) / 2e-5 == pytest.approx(np.sum(objective.accurate_gradient(w) * direction), rel=1e-7)
    assert (high[1] - low[1]) / 2e-5 == pytest.approx(objective.hessian(w)(direction), rel=1e-5, abs=1e-5)


def test_a_small_tilt_is_the_mean_and_a_large_one_the_largest_loss() -> None:
    X, y = table()
    w = np.array([1.0, -0.5, 0.2, 0.1])
    losses = plain_losses(X, y, w, 9.0, None)

    def tilted(tilt: float) -> float:
        return objective_of(X, y, RobustRisk(Logistic(), 9.0, 60, tilt), 1e-9).value_and_gradient(w)[0] / 60

    assert tilted(0.0) == pytest.approx(losses.mean())
    assert tilted(1e-6) == pytest.approx(losses.mean(), rel=1e-5)
    assert losses.max() - math.log(60) / 1e4 <= tilted(1e4) <= losses.max()
    assert tilted(1e7) == pytest.approx(losses.max(), rel=1e-6)


def test_no_other_move_of_the_adversary_gives_a_larger_loss() -> None:
    """The closed form against 4,000 random moves and the attack itself, for each shape; the attack reaches it."""
    X, y = table()
    generator = np.random.default_rng(0)
    w = np.array([0.7, -1.1, 0.4, 0.2])
    for adversary in ADVERSARIES[1:]:
        assert adversary is not None
        worst = plain_losses(X, y, w, 99.0, adversary)
        attacked = X.copy()
        attacked[:, :3] = adversary.attack(X[:, :3], y, w[:3])
        assert np.logaddexp(0, -y * (attacked @ w)) == pytest.approx(worst)
        for _ in range(4000 // 60):
            moves = generator.uniform(-1, 1, (60, 3))
            if adversary.norm == "l2":
                moves /= np.maximum(1, np.linalg.norm(moves, axis=1))[:, None]
            losses = np.logaddexp(0, -y * (X @ w + (moves * np.asarray(adversary.radius)) @ w[:3]))
            assert (losses <= worst + 1e-12).all()


@pytest.mark.parametrize("adversary", ADVERSARIES[1:], ids=str)
def test_the_softened_norm_is_above_the_norm_by_no_more_than_it_says(adversary: Adversary) -> None:
    support = adversary.support(4, True)
    for w in np.random.default_rng(0).normal(size=(200, 4)) * np.logspace(-9, 2, 200)[:, None]:
        value, gradient = support.value_and_gradient(w)
        radius = np.asarray(adversary.radius)
        exact = radius * np.linalg.norm(w[:3]) if adversary.norm == "l2" else np.sum(radius * np.abs(w[:3]))
        assert exact * (1 - 1e-14) <= value <= exact + support.at_zero
        assert np.linalg.norm(gradient) <= support.reach
        assert gradient[3] == 0


# Certificates ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("adversary", "radius"), [*itertools.product(ADVERSARIES, [math.inf]), (None, 0.4)], ids=str)
@pytest.mark.parametrize("tilt", [0.0, 3.0])
def test_a_certified_point_is_as_near_as_it_says(tilt: float, adversary: Adversary | None, radius: float) -> None:
    """The gradient mapping at the point, computed from the definition in plain numpy, vanishes."""
    X, y = table()
    risk = RobustRisk(Logistic(), 1.3, 60, tilt, support_of(adversary), radius)
    objective = objective_of(X, y, risk, 3.0)
    tolerance = max(risk.reachable(60, 4, 3.0, 3.0, radius=radius), 1e-7)
    point = certified_minimiser(objective, 3.0, tolerance, radius=radius)
    gradient = objective.value_and_gradient(point)[1]
    ahead = point - 1e-3 * gradient
    back = ahead * min(1.0, radius / np.linalg.norm(ahead))
    assert np.linalg.norm(back - point) / 1e-3 / 3.0 < 3e-6
    if adversary is None or adversary.norm == "l2":  # a gradient-free check where there is one kink only
        best = minimize(
            lambda w: objective.value_and_gradient(w)[0],
            point + 0.01,
            method="SLSQP",
            constraints=[] if radius == math.inf else [{"type": "ineq", "fun": lambda w: radius**2 - w @ w}],
            options={"ftol": 1e-14, "maxiter": 500},
        )
        assert np.linalg.norm(best.x - point) < 1e-4


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(ROUNDED_KINK)], ids=str)
def test_every_table_is_certified(loss: Loss) -> None:
    """Rows of zeros, equal rows, one row, none; tilts and radii small and huge: the search ends, silently."""
    generator, rows = np.random.default_rng(0), 40
    tables = [
        np.zeros((rows, 2)),
        np.ones((rows, 2)),
        generator.choice([-1.0, 0.0, 1.0], (rows, 2)),
        np.zeros((0, 2)),
        generator.uniform(-1, 1, (1, 2)),
    ]
    settings: list[tuple[float, Adversary | None, float, float]] = [
        (1.0, None, 1e-3, math.inf),
        (100.0, None, 1.0, math.inf),
        (1e6, None, 1.0, 1e-6),
        (1e6, None, 1.0, 1.0),
        (5.0, None, 1e6, math.inf),
        (0.0, Adversary(0.1), 1e-3, math.inf),
        (0.0, Adversary(5.0), 1.0, math.inf),
        (0.0, Adversary(1.0, "linf"), 1.0, math.inf),
        (3.0, Adversary(0.1), 1.0, 0.5),
    ]
    for X, alike in itertools.product(tables, (True, False)):
        y = np.ones(len(X)) if alike else np.where(np.arange(len(X)) % 2, 1.0, -1.0)
        for tilt, adversary, mu, radius in settings:
            plain = RobustRisk(loss, 1.2, rows, tilt, adversary and adversary.support(2, False))
            risk = replace(plain, radius=min(radius, plain.farthest(rows, mu)))
            curator = curator_of(X, y, loss, Ledger(1e6, 1e-6, currency="gdp"), rows=rows, intercept=False)
            assert np.isfinite(noisy_minimiser(curator, risk, mu, Gaussian(1.0), radius=radius)).all()


def test_errors_of_a_gradient_are_within_their_bound() -> None:
    """Against 60-digit arithmetic, at three sizes of the weights."""
    mpmath = pytest.importorskip("mpmath")
    X, y = table(12)
    grid = FeatureGrid(1.0, 4)
    rows = grid.place(X)
    with mpmath.workdps(60):
        for scale, tilt in itertools.product((0.1, 3.0, 200.0), (0.0, 1.0, 20.0)):
            support = Adversary(0.2).support(4, True)
            risk = RobustRisk(Logistic(), 1.3, 12, tilt, support)
            objective = objective_of(X, y, risk, 2.0)
            w = np.array([0.7, -1.1, 0.4, 0.2]) * scale
            exact = [mpmath.mpf(float(each)) for each in w]
            length = mpmath.sqrt(sum(each**2 for each in exact[:3]) + mpmath.mpf(support.softness) ** 2)
            sigma = mpmath.mpf(0.2) * length
            slope = [mpmath.mpf(0.2) * each / length for each in exact[:3]] + [mpmath.mpf(0)]
            losses, gradients = [], []
            for x, label in zip(rows, y, strict=True):
                norm = mpmath.sqrt(sum(mpmath.mpf(float(v)) ** 2 for v in x))
                factor = min(mpmath.mpf(1), mpmath.mpf(1.3) / norm)
                moved = [factor * (int(label) * mpmath.mpf(float(v)) - s) for v, s in zip(x, slope, strict=True)]
                margin = int(label) * sum(mpmath.mpf(float(v)) * e for v, e in zip(x, exact, strict=True)) - sigma
                margin *= factor
                losses.append(mpmath.log1p(mpmath.exp(-margin)))
                gradients.append([-each / (1 + mpmath.exp(margin)) for each in moved])
            weights = [mpmath.exp(tilt * each) for each in losses]
            total = [
                12 * sum(v * g[j] for v, g in zip(weights, gradients, strict=True)) / sum(weights) + 2 * exact[j]
                for j in range(4)
            ]
            computed = objective.accurate_gradient(w)
            error = mpmath.sqrt(sum((mpmath.mpf(float(c)) - t) ** 2 for c, t in zip(computed, total, strict=True)))
            placed = objective.smoothness * objective.placement_error(float(np.linalg.norm(w)))
            assert float(error) <= objective.gradient_error(w) + placed


# Sensitivity -----------------------------------------------------------------------------------------------------


def test_the_tilted_sensitivity_has_the_values_of_its_formula() -> None:
    """(2L/mu) C/(C + n - 1) with L = mu = 1 and tau (A - a) = 5 and 1; the mean's for a tilt of nearly zero."""

    def moved(tilt: float, relation: str, rows: int = 100) -> float:
        # The logistic loss has a range of exactly the margin, so this is A - a = 1.
        risk = RobustRisk(Logistic(), 1.0, rows, tilt, radius=1.0)
        return risk.variation(rows, Relation(relation)) / rows

    assert moved(5.0, "replace-one") == pytest.approx(1.1997192036, rel=1e-8)
    assert moved(1.0, "replace-one") == pytest.approx(0.0534472620, rel=1e-8)
    assert moved(1e-9, "replace-one") == pytest.approx(0.02, rel=1e-6)
    assert moved(1e-9, "zero-out") == pytest.approx(0.01, rel=1e-6)
    assert moved(1e5, "zero-out") == moved(1e5, "replace-one") == pytest.approx(2.0)
    for tilt in (0.1, 1.0, 3.0, 8.0):
        assert moved(tilt, "zero-out") < moved(tilt, "replace-one")


def test_the_bound_for_a_removed_row_is_the_largest_over_all_sums() -> None:
    """A grid over the others' sum and the row's loss finds nothing larger, and comes within one percent."""
    for tilt, rows in itertools.product((0.3, 2.0, 6.0), (2, 30, 1000)):
        risk = RobustRisk(Logistic(), 1.0, rows, tilt, radius=2.0)
        bound = risk.variation(rows, Relation.ZERO_OUT) / (rows * risk.clip)
        low, high = loss_range(Logistic(), 2.0)
        losses = np.linspace(low, high, 400)
        u, v = np.exp(tilt * losses)[:, None], math.exp(tilt * math.log(2))
        sums = (rows - 1) * np.exp(tilt * np.linspace(low, high, 4000))
        p, q = u / (sums + u), v / (sums + v)
        found = float(np.max(p + np.abs(p - q)))
        assert 0.99 * bound <= found <= bound


CASES: list[tuple[float, Adversary | None, Loss, float, int]] = [
    (1.0, None, Logistic(), math.inf, 20),
    (10.0, None, Logistic(), math.inf, 20),
    (4.0, None, HuberisedHinge(), math.inf, 15),
    (2.0, None, Huber(1.0), math.inf, 15),
    (2.0, None, Poisson(), math.inf, 10),
    (1.0, None, Multinomial(3), math.inf, 7),
    (3.0, None, Logistic(), 0.3, 10),
    (0.0, Adversary(0.2), Logistic(), math.inf, 15),
    (0.0, Adversary(0.2, "linf"), HuberisedHinge(ROUNDED_KINK), math.inf, 15),
    (0.0, Adversary((0.3, 0.0), "linf"), Logistic(), math.inf, 15),
]


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize(("tilt", "adversary", "loss", "radius", "pairs"), CASES, ids=str)
def test_one_row_moves_the_minimiser_by_at_most_its_sensitivity(
    tilt: float, adversary: Adversary | None, loss: Loss, radius: float, pairs: int, relation: str
) -> None:
    """Some 250 random neighbours in all: the points that noise would be added to."""

    def ask(curator: Curator) -> None:
        support = adversary and adversary.support(3, True)
        plain = RobustRisk(loss, 1.2, curator.rows, tilt, support)
        risk = replace(plain, radius=min(radius, plain.farthest(curator.rows, 4.0)))
        noisy_minimiser(curator, risk, 4.0, Gaussian(1.0), radius=radius)

    generator = np.random.default_rng(0)
    for trial in range(pairs):
        curator = make_curator(1e6, loss, rows=12, columns=2, seed=trial, relation=relation)
        other = replaced(curator, int(generator.integers(12)), relation, generator)
        points = [recorded(each, ask) for each in (curator, other)]
        moved = np.linalg.norm(points[0].to_float() - points[1].to_float())
        assert moved <= points[0].sensitivity.zero_out


def test_a_ball_that_may_leave_minimisers_out_is_refused_before_anything_is_charged() -> None:
    curator = make_curator(1.0, rows=12, columns=2)
    risk = RobustRisk(Logistic(), 1.2, 12, 2.0, radius=0.3)
    with pytest.raises(InvalidParameter, match="over that ball"):
        noisy_minimiser(curator, risk, 4.0, Gaussian(100.0))
    assert not curator.ledger.entries
    noisy_minimiser(curator, risk, 4.0, Gaussian(100.0), radius=0.3)


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("tilt", [0.0, 3.0])
def test_the_worst_row_comes_near_the_sensitivity(tilt: float, relation: str) -> None:
    """Small margins: others at rest, one row that pulls against a weak quadratic, so that the bound is no guess."""
    rows, radius = 30, 0.2
    X = np.zeros((rows, 1))
    X[1:] = 0.02
    X[0, 0] = 1.0
    y = np.ones(rows)
    other, turned = X.copy(), y.copy()
    if relation == "zero-out":
        other, turned = X[1:], y[1:]
    else:
        turned[0] = -1.0
    risk = RobustRisk(HuberisedHinge(0.01), 1.0, rows, tilt, radius=radius)
    points = []
    for features, labels in ((X, y), (other, turned)):
        ledger = Ledger(1e6, 1e-6, currency="gdp", relation=relation)
        curator = curator_of(features, labels, risk.loss, ledger, rows=rows, intercept=False)
        points.append(recorded(curator, lambda c: noisy_minimiser(c, risk, 100.0, Gaussian(1.0), radius=radius)))
    moved = np.linalg.norm(points[0].to_float() - points[1].to_float())
    assert (0.2 if tilt else 0.9) * points[0].sensitivity.zero_out < moved <= points[0].sensitivity.zero_out


@pytest.mark.parametrize(("relation", "share"), [("zero-out", 0.95), ("replace-one", 0.6)])
def test_the_worst_row_of_an_adversary_is_longer_than_the_rows(relation: str, share: float) -> None:
    """A row against the others, which its move makes longer by the radius: without rho the bound would not hold."""
    rows, loss = 30, HuberisedHinge(0.01)
    X, y = np.full((rows, 1), 0.9), np.ones(rows)
    X[0, 0], y[0] = 1.0, -1.0
    other, turned = (X[1:], y[1:]) if relation == "zero-out" else (X, np.ones(rows))
    support = Adversary(0.5).support(1, False)
    risk = RobustRisk(loss, 1.0, rows, 0.0, support)
    points = []
    for features, labels in ((X, y), (other, turned)):
        ledger = Ledger(1e6, 1e-6, currency="gdp", relation=relation)
        curator = curator_of(features, labels, loss, ledger, rows=rows, intercept=False)
        points.append(recorded(curator, lambda c: noisy_minimiser(c, risk, 100.0, Gaussian(1.0))))
    moved = float(np.abs(points[0].to_float() - points[1].to_float())[0])
    assert share * points[0].sensitivity.zero_out < moved <= points[0].sensitivity.zero_out
    assert moved > (1.0 if relation == "zero-out" else 0.9 * 2) / 100


@pytest.mark.parametrize("relation", RELATIONS)
def test_one_row_changes_the_excess_risk_by_at_most_its_sensitivity(relation: str) -> None:
    risk = RobustRisk(Logistic(), 1.2, 12, 0.0, Adversary(0.2).support(3, True))
    weights = np.array([2.0, -1.0, 0.5])
    generator = np.random.default_rng(0)
    for trial in range(40):
        curator = make_curator(1e6, rows=12, columns=2, seed=trial, relation=relation)
        other = replaced(curator, int(generator.integers(12)), relation, generator)
        sums = [
            recorded(each, lambda c: excess_adversarial_risk(c, risk, 4.0, weights, Gaussian(1.0)))
            for each in (curator, other)
        ]
        difference = abs(float(sums[0].to_float()[0] - sums[1].to_float()[0]))
        assert difference <= sums[0].sensitivity.under(Relation(relation))
        assert float(sums[0].to_float()[0]) >= 0
    # A row of any loss in [a, A] may be removed; one in exchange for another counts twice.
    low, high = loss_range(Logistic(), risk.margin(max(risk.farthest(12, 4.0), float(np.linalg.norm(weights)))))
    moved = (1 if relation == "zero-out" else 2) * (high - low)
    assert sums[0].sensitivity.under(Relation(relation)) == pytest.approx(moved, rel=1e-6)


def test_a_reported_excess_risk_is_the_excess_risk() -> None:
    X, y = table(500)
    for currency, cost in (("gdp", Gaussian(1e-2)), ("pure", Laplace(1e5))):
        curator = curator_of(X, y, Logistic(), Ledger(1e6, 1e-6, currency=currency))
        risk = RobustRisk(Logistic(), 1.3, 500, 0.0, Adversary(0.1).support(4, True))
        weights = np.array([1.0, -1.0, 0.5, 0.0])
        found, deviation = excess_adversarial_risk(curator, risk, 5.0, weights, cost)

        def value(w: np.ndarray) -> float:
            return float(plain_losses(X, y, w, 1.3, Adversary(0.1)).mean() + 0.005 * w @ w)

        best = minimize(
            value,
            np.array([0.5, 0.0, 0.0, 0.0]),
            method="Nelder-Mead",
            options={"xatol": 1e-9, "fatol": 1e-12, "maxiter": 4000},
        )
        assert found == pytest.approx(value(weights) - best.fun, abs=1e-4 + 6 * deviation)
        assert deviation < 1e-3


# Estimators ------------------------------------------------------------------------------------------------------

OPTIONS: list[dict[str, Any]] = [
    {"tilt": 1.0, "solver_options": {"strong_convexity": 20.0, "row_bound": 2.0, "radius": 1.5, "tolerance": 1e-6}},
    {"tilt": 10.0, "solver_options": {"strong_convexity": 20.0, "row_bound": 2.0, "radius": 0.3, "tolerance": 1e-6}},
    {"adversary": Adversary(0.1), "solver_options": {"strong_convexity": 20.0, "row_bound": 2.0}},
    {"adversary": Adversary(0.1, "linf"), "solver_options": {"strong_convexity": 20.0, "row_bound": 2.0}},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_a_large_epsilon_recovers_the_optimum(options: dict[str, Any]) -> None:
    """The optimum of the definition, by a solver that knows nothing of certificates."""
    X, y = table(400)
    model = DPLogisticRegression(
        1e12, 1e-6, method="outpert", bounds=(-1.0, 1.0), classes=(-1, 1), random_state=0, **options
    ).fit(X[:, :3], y)
    tilt, adversary = options.get("tilt", 0.0), options.get("adversary")

    def value(w: np.ndarray) -> float:
        losses = plain_losses(X, y, w, 2.0, adversary)
        mean = np.log(np.mean(np.exp(tilt * losses))) / tilt if tilt else losses.mean()
        return float(mean + 0.025 * w @ w)

    radius = options["solver_options"].get("radius", 1e9)
    found = np.append(model.coef_[0], model.intercept_)
    best = minimize(
        value,
        np.array([0.1, 0.01, 0.01, 0.01]),
        method="SLSQP",
        constraints=[{"type": "ineq", "fun": lambda w: radius**2 - w @ w}],
        options={"ftol": 1e-13, "maxiter": 1000},
    )
    assert value(found) <= best.fun + 1e-6
    assert np.linalg.norm(found - best.x) < 5e-3


@pytest.mark.parametrize("options", [{"tilt": 2.0}, {"adversary": Adversary(0.1)}], ids=str)
def test_the_rules_give_a_model_and_spend_the_budget(options: dict[str, Any]) -> None:
    X, y = table(3000)
    for relation, delta in (("zero-out", 1e-6), ("replace-one", 1e-6), ("zero-out", 0.0)):
        model = DPLogisticRegression(
            2.0,
            delta,
            method="outpert",
            adjacency=relation,
            bounds=(-1.0, 1.0),
            classes=(-1, 1),
            random_state=0,
            **options,
        ).fit(X[:, :3], y)
        assert model.score(X[:, :3], y) > 0.75
        assert model.privacy_["spent_epsilon"] == pytest.approx(2.0, rel=1e-6)
        assert model.privacy_["spent_epsilon"] <= 2.0


def test_a_tilt_that_vanishes_gives_the_model_of_the_mean_loss() -> None:
    """The same seed draws the same noise, which a ball that grows as 1/tau would have made longer without bound."""
    X, y = table(3000)

    def fitted(tilt: float) -> np.ndarray:
        model = DPLogisticRegression(
            2.0, 1e-6, method="outpert", bounds=(-1.0, 1.0), classes=(-1, 1), random_state=0, tilt=tilt
        ).fit(X[:, :3], y)
        return np.append(model.coef_[0], model.intercept_)

    mean = fitted(0.0)
    distances = [float(np.linalg.norm(fitted(tilt) - mean)) for tilt in (1e-6, 1e-4, 1e-2)]
    assert distances == sorted(distances)
    assert distances[0] < 1e-3
    assert distances[2] < 0.1 * np.linalg.norm(mean)


def test_an_adversary_over_a_ball_has_the_regularisation_of_the_paper() -> None:
    X, y = table(3000)
    added = []
    for adversary in (None, Adversary(1e-6)):
        model = DPLogisticRegression(
            2.0,
            1e-6,
            method="outpert",
            bounds=(-1.0, 1.0),
            classes=(-1, 1),
            random_state=0,
            adversary=adversary,
            solver_options={"radius": 3.0, "row_bound": 1.0},
        ).fit(X[:, :3], y)
        (remark,) = [each for each in model.privacy_["remarks"] if "was added" in each]
        added.append(float(remark.split("/")[0]))
    assert added[0] == pytest.approx(added[1], rel=1e-4)


def test_norm_laplace_noise_that_leaves_budget_unused_says_so() -> None:
    X, y = table(300)
    for epsilon, said in ((8.0, False), (40.0, True)):
        for options in ({}, {"tilt": 0.1}):
            model = DPLogisticRegression(
                epsilon,
                1e-6,
                method="outpert",
                bounds=(-1.0, 1.0),
                classes=(-1, 1),
                random_state=0,
                solver_options={"pure": True},
                **options,
            ).fit(X[:, :3], y)
            assert any("was not spent" in each for each in model.privacy_["remarks"]) is said


def test_the_excess_risk_is_reported_on_request_and_paid() -> None:
    X, y = table(3000)
    model = partial(
        DPLogisticRegression,
        2.0,
        1e-6,
        method="outpert",
        bounds=(-1.0, 1.0),
        classes=(-1, 1),
        adversary=Adversary(0.1),
        random_state=0,
    )
    silent = model().fit(X[:, :3], y)
    telling = model(solver_options={"risk_share": 0.2}).fit(X[:, :3], y)
    assert not any("excess" in remark for remark in silent.privacy_["remarks"])
    assert any("excess adversarial risk" in remark for remark in telling.privacy_["remarks"])
    assert telling.privacy_["spent_on"]["excess adversarial risk"] == pytest.approx(0.2, rel=1e-6)
    assert telling.privacy_["spent"] <= telling.privacy_["budget"]
    for share in (0.1, 0.2, 0.3):  # pure epsilons add up to the budget too
        pure = model(solver_options={"risk_share": share, "pure": True}).fit(X[:, :3], y)
        assert pure.privacy_["mechanisms"] == {"laplace": 2, "norm-laplace": 1}


def test_the_kink_of_the_hinge_is_rounded_off_from_above_and_its_slope_stays() -> None:
    loss, h = robust_loss(Hinge(), "outpert", adversarial=True), ROUNDED_KINK
    margins, labels = np.linspace(1 - 2 * h, 1 + 2 * h, 4001), np.ones(4001)
    above = loss.values(margins, labels) - Hinge().values(margins, labels)
    assert above.min() >= 0
    assert above.max() == pytest.approx(h / 4, rel=1e-9)
    assert np.abs(loss.residuals(margins, labels)).max() == loss.lipschitz == 1
    with pytest.raises(UnsupportedLoss, match="one margin"):
        robust_loss(Multinomial(3), "outpert", adversarial=True)


@pytest.mark.parametrize("adversary", [Adversary(0.2), Adversary(0.1, "linf")], ids=str)
def test_an_adversarial_hinge_is_minimised_up_to_its_rounding(adversary: Adversary) -> None:
    """No point near the certified one, and so by convexity no point at all, is better by more than n h/4."""
    (X, y), mu = table(), 3.0
    risk = RobustRisk(robust_loss(Hinge(), "outpert", True), 1.3, 60, 0.0, support_of(adversary))
    point = certified_minimiser(objective_of(X, y, risk, mu), mu, 1e-6)

    def value(w: np.ndarray) -> float:
        factors = np.minimum(1, 1.3 / np.linalg.norm(X, axis=1))
        moved = np.linalg.norm(w[:-1]) if adversary.norm == "l2" else np.abs(w[:-1]).sum()
        margins = factors * (y * (X @ w) - adversary.radius * moved)
        return float(np.maximum(0, 1 - margins).sum() + mu / 2 * w @ w)

    generator, best = np.random.default_rng(0), value(point)
    for size in np.geomspace(1e-4, 1.0, 1500):
        move = generator.normal(size=4)
        assert value(point + size * move / np.linalg.norm(move)) >= best - 60 * (ROUNDED_KINK / 4 + 1e-4)
    assert best < value(np.zeros(4)) - 1


def test_a_machine_with_the_hinge_is_trained_against_an_adversary() -> None:
    data = load_dataset("synthetic", n=2000)
    options = {"bounds": data.bounds, "classes": data.classes, "method": "outpert", "random_state": 0}
    models = [
        DPLinearSVC(2.0, 1e-6, loss=loss, adversary=Adversary(0.1), **options).fit(data.X, data.y)
        for loss in ("hinge", "huberised-hinge")
    ]
    assert any("rounded off" in each for each in models[0].privacy_["remarks"])
    assert not any("rounded off" in each for each in models[1].privacy_["remarks"])
    assert models[0].privacy_["mechanisms"] == models[1].privacy_["mechanisms"]
    assert models[0].score(data.X, data.y) > 0.7


REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: DPLogisticRegression(bounds=(0, 1), method="outpert", tilt=-1.0), "tilt"),
    (lambda: DPLogisticRegression(bounds=(0, 1), method="outpert", tilt=math.nan), "tilt"),
    (lambda: DPLogisticRegression(bounds=(0, 1), method="agd", tilt=1.0), "neither tilt nor adversary"),
    (lambda: DPLogisticRegression(bounds=(0, 1), method="auto", adversary=Adversary(0.1)), "method 'outpert'"),
    (lambda: DPLogisticRegression(bounds=(0, 1), method="outpert", adversary=0.1), "Adversary"),
    (
        lambda: DPLogisticRegression(bounds=(0, 1), method="outpert", adversary=Adversary((0.1, 0.2), "linf")),
        "3 radii",
    ),
    (
        lambda: DPLogisticRegression(bounds=(0, 1), method="outpert", classes=(-1, 0, 1), adversary=Adversary(0.1)),
        "two classes",
    ),
    (
        lambda: DPLogisticRegression(
            bounds=(0, 1), method="outpert", tilt=1.0, solver_options={"strong_convexity": 0.0}
        ),
        "strong_conv",
    ),
    (lambda: DPLogisticRegression(bounds=(0, 1), method="outpert", solver_options={"risk_share": 0.1}), "risk_share"),
    (
        lambda: DPLogisticRegression(
            bounds=(0, 1), method="outpert", tilt=1.0, solver_options={"population": True, "radius": 1.0}
        ),
        "tilted",
    ),
    (
        lambda: DPLogisticRegression(bounds=(0, 1), method="outpert", tilt=1.0, solver_options={"minimiser": "sgd"}),
        "single rows",
    ),
    (
        lambda: DPLinearRegression(bounds=(0, 1), method="outpert", target_bounds=(-1, 1), adversary=Adversary(0.1)),
        "falls",
    ),
]


@pytest.mark.parametrize(("build", "message"), REFUSED)
def test_bad_input_is_refused_before_anything_is_charged(build: Callable[[], Any], message: str) -> None:
    X, y = table()
    account = Ledger(5.0, 1e-3, currency="gdp")
    model = build().set_params(ledger=account, bounds=(-1.0, 1.0))
    if hasattr(model, "classes") and model.classes is None:
        model.set_params(classes=(-1, 1))
    with pytest.raises(InvalidParameter, match=message):
        model.fit(X[:, :3], y)
    assert not account.entries


@pytest.mark.parametrize(
    "radius", [0.0, -1.0, math.inf, math.nan, (0.1, math.inf), (0.0, 0.0), (-0.1, 0.2), ()], ids=str
)
def test_a_set_of_moves_must_be_bounded_and_not_empty(radius: Any) -> None:
    with pytest.raises(InvalidParameter, match="radi"):
        Adversary(radius, "linf")
    with pytest.raises(InvalidParameter):
        Adversary(0.1, "l1")  # type: ignore[arg-type]
    with pytest.raises(InvalidParameter, match="linf"):
        Adversary((0.1, 0.2), "l2")


def test_the_command_line_takes_a_tilt_and_an_adversary(tmp_path: Path) -> None:
    for options in (["--tilt", "1"], ["--adversary", "0.1", "--adversary-norm", "linf"]):
        model = tmp_path / "model.json"
        command = ["fit", "synthetic", "--output", str(model), "--method", "outpert", "--seed", "0", *options]
        told = CliRunner().invoke(app, command)
        assert told.exit_code == 0, told.output
        assert model.exists()
    refused = CliRunner().invoke(app, ["fit", "synthetic", "--output", str(tmp_path / "m"), "--tilt", "1"])
    assert isinstance(refused.exception, InvalidParameter)


def test_a_risk_without_tilt_and_adversary_is_the_plain_one() -> None:
    X, y = table()
    robust = objective_of(X, y, RobustRisk(Logistic(), 1.3, 60), 2.0)
    grid = FeatureGrid(1.0, 4)
    placed = grid.place(X)
    plain = RowObjective(
        ArraySource(placed, y, grid), grid, Logistic(), grid.squared_norms(placed), 1.3, np.full(4, 2.0), np.zeros(4)
    )
    w = np.array([0.7, -1.1, 0.4, 0.2])
    assert robust.value_and_gradient(w)[0] == pytest.approx(plain.value_and_gradient(w)[0], rel=1e-13)
    assert (robust.accurate_gradient(w) == plain.accurate_gradient(w)).all()


@pytest.mark.parametrize("rows", [40, 39])
def test_a_huge_tilt_fails_for_no_table(rows: int) -> None:
    """Losses far below that of an empty place must not overflow: an error would say that all rows fit well."""
    X, y = table(40)
    y = np.ones(40)
    for tilt in (1e3, 1e6):
        risk = RobustRisk(Logistic(), 2.0, 40, tilt, None, 3.0)
        objective = objective_of(X[:rows], y[:rows], risk, 0.1)
        w = np.array([0.0, 0.0, 0.0, 3.0])
        losses = np.append(plain_losses(X[:rows], y[:rows], w, 2.0, None), np.full(40 - rows, math.log(2)))
        value, gradient = objective.value_and_gradient(w)
        assert value == pytest.approx(40 * losses.max() + 0.45, rel=0.02)
        assert np.isfinite(gradient).all()
        assert np.isfinite(objective.accurate_gradient(w)).all()


def test_a_tilted_variation_is_a_number_for_every_exponent() -> None:
    previous = 0.0
    for tilt in (1.0, 30.0, 60.0, 100.0, 300.0, 1e5):
        risk = RobustRisk(Logistic(), 1.0, 100, tilt, None, 5.0)
        removed, replaced = risk.variation(100, Relation.ZERO_OUT), risk.variation(100, Relation.REPLACE_ONE)
        assert previous * (1 - 1e-6) <= removed <= replaced <= 200 * (1 + 1e-6)
        previous = removed
