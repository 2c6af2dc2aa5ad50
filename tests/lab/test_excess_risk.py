"""Bounds on the excess risk: their values by hand, where they are vacuous, and measured risks below them."""

from __future__ import annotations

import math

import numpy as np
import pytest

from asking import noisy_minimiser
from dpdescent import InvalidParameter, Ledger
from dpdescent.accounting import Gaussian, NormLaplace, gaussian_noise_multiplier, gaussian_tail_constant
from dpdescent.curator import perturbed_minimiser
from dpdescent.curator.array_source import ArraySource
from dpdescent.exact import FeatureGrid
from dpdescent.lab.output_perturbation_paper.theorems import excess_risk_bound
from dpdescent.minimisers import EmpiricalRisk, GeneralObjective, RowObjective, certified_minimiser
from dpdescent.problems import Hinge, Logistic, Loss
from dpdescent.solvers import regularisation
from rival_tables import curator_of

BASE = {"lipschitz": 2.0, "radius": 3.0, "dimension": 4, "epsilon": 0.5}


def test_the_constant_of_the_loose_gaussian_formula() -> None:
    assert gaussian_tail_constant(1e-5) == pytest.approx(3.182243093, rel=1e-9)


def test_bounds_have_their_values() -> None:
    """By hand: x = 4/(0.5 n) = 0.008 for n = 1000; Gaussian: 2 (c + sqrt(c^2 + eps))/(eps n)."""
    strong, smooth = {"strong_convexity": 0.5}, {"smoothness": 5.0}
    constant = gaussian_tail_constant(1e-6)
    other = 2 * (constant + math.sqrt(constant**2 + 0.5)) / 500
    cases: list[tuple[dict[str, float], float, str]] = [
        (strong, 2 * 4 / 0.5 * 0.008, "Corollary 2.1"),
        (strong | {"delta": 1e-6}, math.sqrt(2) * 8 * other, "Corollary 2.1"),
        (strong | smooth, 4 * 10 * 8 * 0.008**2, "Corollary 2.2"),
        (strong | smooth | {"delta": 1e-6}, 4 * 10 * 8 * other**2, "Corollary 2.2"),
        ({}, 8.5 * 6 * math.sqrt(0.008), "Proposition 2.5"),
        ({"smoothness": 1e-3}, 48.5 * (1e-3 * 4 * 81) ** (1 / 3) * 0.008 ** (2 / 3), "Proposition 2.8"),
        (strong | {"population": True}, 16 * (0.001 + 0.008), "Proposition 4.1"),
        (strong | smooth | {"population": True}, 8 * (0.002 + 40 * 0.008**2), "Proposition 4.2"),
        ({"population": True}, 6 * (127 * math.sqrt(0.008) + 0.5 / math.sqrt(1000)), "Proposition 4.3"),
        (
            {"population": True, "smoothness": 1e-3},
            (1e-3 * 4 * 81) ** (1 / 3) * (11 / math.sqrt(1000) + 83 * 0.008 ** (2 / 3)),
            "Proposition 4.4",
        ),
    ]
    for options, value, source in cases:
        bound = excess_risk_bound(**BASE, rows=1000, **options)  # type: ignore[arg-type]
        assert bound.source == source
        assert bound.value == pytest.approx(value, rel=1e-12)
        assert (bound.regularisation > 0) == ("strong_convexity" not in options)
        assert bound.projected == (
            bound.source in ("Corollary 2.1", "Proposition 2.5", "Proposition 4.1", "Proposition 4.3")
        )
    assert regularisation(**BASE, rows=1000) == pytest.approx(2 / 3 / math.sqrt(1 + 125))  # type: ignore[arg-type]
    assert regularisation(**BASE, rows=1000, smoothness=5.0) == pytest.approx(  # type: ignore[arg-type]
        (5 * 4 / 9) ** (1 / 3) * 0.008 ** (2 / 3)
    )


def test_a_bound_that_says_nothing_says_so() -> None:
    """Without the mean over rows, epsilon must exceed the dimension; smaller tables and epsilons fail likewise."""
    assert excess_risk_bound(**BASE, strong_convexity=0.5).vacuous  # type: ignore[arg-type]
    assert excess_risk_bound(**BASE, rows=10).vacuous  # type: ignore[arg-type]
    assert math.isinf(excess_risk_bound(**BASE, rows=2).value)  # type: ignore[arg-type]
    assert not excess_risk_bound(**BASE, rows=10_000, strong_convexity=0.5).vacuous  # type: ignore[arg-type]
    assert not excess_risk_bound(**(BASE | {"epsilon": 1000.0}), strong_convexity=0.5).vacuous  # type: ignore[arg-type]
    for bad, match in (
        ({"population": True}, "rows"),
        ({"delta": 0.5}, "delta"),
        ({"strong_convexity": -1.0}, "strong_convexity"),
        ({"rows": 0}, "rows"),
    ):
        with pytest.raises(InvalidParameter, match=match):
            excess_risk_bound(**BASE, **bad)  # type: ignore[arg-type]


def mean_excess(
    rows: int, epsilon: float, delta: float, loss: Loss, weight: float, radius: float, draws: int = 40
) -> tuple[float, float]:
    """Return the mean excess of the objective with lambda/2 |w|^2, and of the mean loss in the ball."""
    generator = np.random.default_rng(rows)
    X = generator.uniform(-1, 1, (rows, 3)) / math.sqrt(3)
    y = np.where(X.sum(axis=1) + generator.normal(0, 0.3, rows) > 0, 1.0, -1.0)
    grid = FeatureGrid(1.0, 3)
    placed = grid.place(X)

    def objective(share: float) -> RowObjective:
        source = ArraySource(placed, y, grid)
        return RowObjective(
            source, grid, loss, grid.squared_norms(placed), 1.0, np.full(3, share * rows), np.zeros(3)
        )

    regularised, alone = objective(weight), objective(1e-4)
    least = [
        each.value_and_gradient(certified_minimiser(each, share * rows, 1e-3, radius=radius))[0] / rows
        for each, share in ((regularised, weight), (alone, 1e-4))
    ]
    excesses = []
    for seed in range(draws):
        ledger = Ledger(epsilon, delta or 1e-6, relation="replace-one", currency="gdp" if delta else "pure")
        curator = curator_of(X, y, loss, ledger, intercept=False, seed=seed)
        cost = Gaussian(gaussian_noise_multiplier(epsilon, 0.99 * delta)) if delta else NormLaplace(epsilon)
        point = noisy_minimiser(curator, EmpiricalRisk(loss, 1.0), weight * rows, cost, radius=radius)
        values = [each.value_and_gradient(point)[0] / rows for each in (regularised, alone)]
        excesses.append([value - best for value, best in zip(values, least, strict=True)])
    first, second = np.mean(excesses, axis=0)
    return float(first), float(second)


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=str)
def test_the_measured_risk_lies_below_the_bound_and_falls_at_its_rate(loss: Loss, delta: float) -> None:
    """Strongly convex: slopes -2 in n and epsilon where F is smooth, -1 to -2 with a kink, within 0.35."""
    mu, radius = 0.2, math.sqrt(2 / 0.2)
    smooth = isinstance(loss, Logistic)
    points = {}
    for rows, epsilon in ((300, 1.0), (2700, 1.0), (300, 9.0)):
        measured, _ = mean_excess(rows, epsilon, delta, loss, mu, radius)
        bound = excess_risk_bound(
            lipschitz=1 + mu * radius,
            radius=radius,
            dimension=3,
            epsilon=epsilon,
            delta=delta,
            rows=rows,
            strong_convexity=mu,
            smoothness=0.25 + mu if smooth else math.inf,
        )
        assert measured <= bound.value
        points[rows, epsilon] = measured
    for end in ((2700, 1.0), (300, 9.0)):
        slope = math.log(points[end] / points[300, 1.0]) / math.log(9)
        assert slope <= (-1.65 if smooth else -0.65)
        assert slope >= -2.35


@pytest.mark.parametrize("delta", [0.0, 1e-6])
@pytest.mark.parametrize("loss", [Logistic(), Hinge()], ids=str)
def test_the_convex_case_lies_below_its_bound(loss: Loss, delta: float) -> None:
    radius, tried = 2.0, 0
    for rows in (500, 5000):
        bound = excess_risk_bound(
            lipschitz=1.0,
            radius=radius,
            dimension=3,
            epsilon=2.0,
            delta=delta,
            rows=rows,
            smoothness=0.25 if isinstance(loss, Logistic) else math.inf,
        )
        _, measured = mean_excess(rows, 2.0, delta, loss, bound.regularisation, radius, draws=4)
        assert measured <= bound.value
        tried += not bound.vacuous
    assert tried


def test_the_population_risk_lies_below_its_bound() -> None:
    """Ten tables of 300 independent rows, and 20,000 more that stand for the population."""
    mu, radius = 0.2, math.sqrt(2 / 0.2)
    generator = np.random.default_rng(0)
    grid = FeatureGrid(1.0, 3)

    def sample(rows: int) -> tuple[np.ndarray, np.ndarray]:
        X = generator.uniform(-1, 1, (rows, 3)) / math.sqrt(3)
        return grid.place(X), np.where(X.sum(axis=1) + generator.normal(0, 0.3, rows) > 0, 1.0, -1.0)

    X, y = sample(20_000)
    norms = grid.squared_norms(X)
    population = RowObjective(
        ArraySource(X, y, grid), grid, Logistic(), norms, 1.0, np.full(3, 20_000 * mu), np.zeros(3)
    )
    least = population.value_and_gradient(certified_minimiser(population, 20_000 * mu, 1e-6))[0]
    excesses = []
    for seed in range(10):
        ledger = Ledger(1.0, 1e-6, relation="replace-one", currency="pure")
        curator = curator_of(*sample(300), Logistic(), ledger, intercept=False, seed=seed)
        point = noisy_minimiser(curator, EmpiricalRisk(Logistic(), 1.0), mu * 300, NormLaplace(1.0))
        excesses.append((population.value_and_gradient(point)[0] - least) / 20_000)
    bound = excess_risk_bound(
        lipschitz=1 + mu * radius,
        radius=radius,
        dimension=3,
        epsilon=1.0,
        rows=300,
        strong_convexity=mu,
        smoothness=0.25 + mu,
        population=True,
    )
    assert not bound.vacuous
    assert np.mean(excesses) <= bound.value


def test_a_general_function_lies_below_its_bound() -> None:
    """The soft maximum of linear functions plus |w|^2/2 in two dimensions, at epsilon = 16: not vacuous."""
    generator = np.random.default_rng(0)
    rows = generator.normal(size=(6, 2))
    rows /= np.linalg.norm(rows, axis=1)[:, None]

    def function(w: np.ndarray) -> tuple[float, np.ndarray]:
        weights = np.exp(rows @ w)
        return float(math.log(weights.sum()) + w @ w / 2), rows.T @ (weights / weights.sum()) + w

    objective = GeneralObjective(function, 2, strong_convexity=1.0, lipschitz=1.0, smoothness=2.0)
    bound = excess_risk_bound(
        lipschitz=2.0, radius=1.0, dimension=2, epsilon=16.0, strong_convexity=1.0, smoothness=2.0
    )
    assert not bound.vacuous
    least = function(certified_minimiser(objective, 1.0, 1e-6))[0]
    found = [
        perturbed_minimiser(objective, Ledger(16.0, 1e-6, currency="pure"), NormLaplace(16.0)) for _ in range(100)
    ]
    assert 0 <= np.mean([function(w)[0] for w in found]) - least <= bound.value
