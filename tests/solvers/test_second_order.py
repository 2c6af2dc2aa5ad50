"""Descent to second-order points: saddles are left, promises are kept, and every path stays within its budget.

Statistical tests run on fixed seeds, so they never alarm at random; the false-alarm rate on fresh bits is stated.
"""

from __future__ import annotations

import math
import sys
import warnings
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpdescent import DPLogisticRegression
from dpdescent.accounting import AboveThreshold, Composed, Gaussian, currency_named
from dpdescent.accounting.sampling import _Sampled
from dpdescent.curator import Curator, batch_cost
from dpdescent.curator.array_source import ArraySource
from dpdescent.curator.lattice_noise import LatticeNoise
from dpdescent.errors import DPDescentError, GuaranteeWarning, InvalidParameter, UnsupportedCost
from dpdescent.exact import FeatureGrid
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import (
    L2,
    Hinge,
    LinearProblem,
    Logistic,
    Loss,
    MarginLoss,
    Multinomial,
    NonConvex,
    Penalty,
    Sigmoid,
    Squared,
)
from dpdescent.relations import Relation
from dpdescent.solvers import (
    METHODS,
    Facts,
    NoisyGradientSettings,
    OPTLSSettings,
    OPTSettings,
    TrustRegionSettings,
    minimum_rows,
    second_order,
)
from dpdescent.solvers.second_order import Descent, _tolerances, lowest_curvature
from dpdescent.solvers.second_order_rivals import trust_region_step
from dpdescent.solvers.stationary import Bounds, Constants, Tolerances, make_levels

VARIANTS = ("opt", "opt-ls", "opt-b", "2opt", "2opt-ls", "2opt-b")
EVERY = pytest.mark.parametrize("method", VARIANTS)
FALSE_ALARM = 1e-6
SADDLE: dict[str, Any] = {"gradient_tolerance": 0.15, "curvature_tolerance": 0.3}
SOLVER = sys.modules[Descent.__module__]  # the package shows the function of that name


@dataclass(frozen=True)
class Wave(MarginLoss):
    """(1 + cos t)/2: highest at 0, where its slope is zero, so weights of zero are a maximum along every row."""

    lipschitz = 0.5
    smoothness = 0.5
    curvature_lipschitz = 0.5
    convex = False

    def values(self, margins, labels):
        return (1 + np.cos(margins)) / 2

    def residuals(self, margins, labels):
        return -np.sin(margins) / 2

    def curvatures(self, margins, labels):
        return -np.cos(margins) / 2


def make_curator(
    method: str,  # noqa: ARG001
    settings: OPTSettings,
    *,
    loss: Loss | None = None,
    penalty: Penalty | None = None,
    epsilon: float = 8.0,
    rows: int = 4000,
    relation: str = "zero-out",
    seed: int = 0,
    noise: Any = None,
) -> Curator:
    """Return rows along one axis, a little of the others: with `Wave` the origin is a saddle."""
    generator = np.random.default_rng(5)
    grid = FeatureGrid(1.0, 3, 1.0)
    X = np.column_stack([np.full(rows, 0.99), generator.uniform(-0.1, 0.1, (rows, 2))])
    labels = np.where(generator.random(rows) < 0.7, 1.0, -1.0)
    facts = Facts(epsilon, 1e-6, relation, rows, 3)
    currency = currency_named(settings.choose_currency(facts), epsilon, 1e-6)
    ledger = Ledger(epsilon, 1e-6, currency=currency, relation=relation)
    problem = LinearProblem(loss or Wave(), grid, penalty or L2(0.05), False)
    source = ArraySource(grid.place(X), labels, grid)
    noise = noise or LatticeNoise(Randomness(seed))
    return Curator(source, problem, ledger, rows, noise=noise)


def solve(method: str, seed: int = 0, *, quietly: bool = False, **options: Any) -> tuple[Curator, Any]:
    kept = ("loss", "penalty", "epsilon", "rows", "relation", "noise")
    asked = {name: options.pop(name) for name in kept if name in options}
    settings = METHODS[method].settings(**options)
    curator = make_curator(method, settings, seed=seed, **asked)
    with warnings.catch_warnings():
        if quietly:
            warnings.simplefilter("ignore", GuaranteeWarning)
        return curator, METHODS[method].solve(curator, settings, None)


def derivatives(curator: Curator, weights: np.ndarray) -> tuple[float, np.ndarray, np.ndarray]:
    """Return the exact objective, gradient and Hessian."""
    problem, source = curator.problem, curator._source
    X, y = source._features, source._labels
    margins = X @ weights
    value = problem.loss.values(margins, y).mean() + problem.penalty_value(weights)
    gradient = X.T @ problem.loss.residuals(margins, y) / len(y) + problem.penalty_gradient(weights)
    matrix = (X.T * problem.loss.curvatures(margins, y)) @ X / len(y) + np.diag(problem.penalty_curvature(weights))
    return float(value), gradient, matrix


def is_second_order(curator: Curator, weights: np.ndarray, gradient: float, curvature: float) -> bool:
    _, slope, matrix = derivatives(curator, weights)
    return bool(np.linalg.norm(slope) <= gradient and np.linalg.eigvalsh(matrix)[0] >= -curvature)


# The promise -----------------------------------------------------------------------------------------------------


@EVERY
def test_saddles_are_left_and_the_promise_is_kept_at_the_promised_rate(method: str) -> None:
    """At least a share of 1 - failure ends at a ((1 + c_1) e_g, (1 + c) e_H) point: alarm rate 1e-6 at that share."""
    options, epsilon, rows, runs = SADDLE | {"failure": 0.1}, 60.0, 6000, 40
    if method.endswith("-b"):  # the sampling error of batches takes more rows
        options |= {"gradient_tolerance": 0.4, "curvature_tolerance": 0.38, "sampling_rate": 0.5}
        options |= {"curvature_noise": 0.1}
        epsilon, rows, runs = 500.0, 45_000, 20
    settings = METHODS[method].settings(**options)
    first = (1 + settings.gradient_noise) * settings.gradient_tolerance
    second = (1 + settings.curvature_noise) * settings.curvature_tolerance
    curator = make_curator(method, settings, epsilon=epsilon, rows=rows)
    assert minimum_rows(curator.problem, settings, epsilon=epsilon, delta=1e-6) <= rows
    assert not is_second_order(curator, np.zeros(3), first, second)  # the start is a saddle
    kept = 0
    for seed in range(runs):
        curator, result = solve(method, seed, epsilon=epsilon, rows=rows, **options)
        assert result.hessians >= 2
        kept += result.success and is_second_order(curator, result.weights, first, second)
    assert stats.binom.cdf(kept, runs, 0.9) > FALSE_ALARM
    assert kept >= 0.9 * runs


def test_without_curvature_steps_a_run_would_stay_on_the_saddle(monkeypatch: pytest.MonkeyPatch) -> None:
    options = SADDLE | {"epsilon": 60.0, "rows": 6000}
    curator, result = solve("opt", **options)
    assert np.linalg.norm(result.weights) > 1
    assert is_second_order(curator, result.weights, 0.2, 0.34)
    blind = (0.0, np.eye(3)[0])
    monkeypatch.setattr(SOLVER, "lowest_curvature", lambda *_: blind)
    curator, result = solve("opt", **options)
    assert result.success
    assert np.linalg.norm(result.weights) < 0.2
    assert not is_second_order(curator, result.weights, 0.2, 0.34)


@pytest.mark.parametrize("loss", [Wave(), Sigmoid(), Logistic()], ids=str)
@pytest.mark.parametrize("search", [False, True])
def test_steps_under_the_worst_noise_that_is_allowed_lower_the_objective_as_promised(
    loss: Loss, search: bool
) -> None:
    """Safe steps with noise at its bound, in the worst directions; a search is granted half of its demand."""
    generator = np.random.default_rng(1)
    constants = Constants()
    penalty = NonConvex(0.02)
    settings = OPTLSSettings(gradient_tolerance=0.05) if search else OPTSettings(gradient_tolerance=0.05)
    curator = make_curator("opt", settings, loss=loss, penalty=penalty, rows=200)
    bounds = Bounds.of(curator.problem, Relation.ZERO_OUT)
    checked = {"gradient": 0, "curvature": 0}
    for _ in range(1000):
        weights = generator.normal(0, 2, 3)
        value, gradient, matrix = derivatives(curator, weights)
        asked = Tolerances(bounds, constants, *(10.0 ** generator.uniform(-3, 0, 2)), search=search)
        allowed = min(
            constants.gradient_noise * asked.gradient,
            constants.curvature_gradient_noise * asked.curvature**2 / bounds.hessian_lipschitz,
        )
        wrong = generator.normal(size=3)
        noisy = gradient + allowed * wrong / np.linalg.norm(wrong)
        if np.linalg.norm(noisy) > asked.gradient:
            moved = weights - asked.gradient_step * noisy
            assert value - derivatives(curator, moved)[0] >= asked.least_decrease - 1e-12
            checked["gradient"] += 1
        error = generator.normal(size=(3, 3))
        error += error.T
        error *= constants.curvature_noise * asked.curvature / np.abs(np.linalg.eigvalsh(error)).max()
        values, vectors = np.linalg.eigh(matrix + error)
        if values[0] < -asked.curvature:
            direction = vectors[:, 0] * (-1 if vectors[:, 0] @ noisy > 0 else 1)
            moved = weights - asked.curvature_step * values[0] * direction
            assert value - derivatives(curator, moved)[0] >= asked.least_decrease - 1e-12
            checked["curvature"] += 1
    assert checked["gradient"] > 100
    assert checked["curvature"] > (50 if not loss.convex else -1)


def test_roots_bound_the_steps_that_an_exact_search_accepts() -> None:
    constants = Constants()
    c, c2, ask = constants.curvature_noise, constants.curvature_gradient_noise, constants.asked_curvature
    for t in constants.roots:
        assert -t * t / 6 + (1 - c - ask) * t / 2 - c2 == pytest.approx(0, abs=1e-12)
    # The default asks for what lowers the objective most: no other share has a larger c_H t_2^2.
    best = ask * constants.roots[1] ** 2
    for other in np.linspace(0.01, 1 - c - math.sqrt(8 * c2 / 3) - 0.001, 50):
        assert other * Constants(curvature_decrease=float(other)).roots[1] ** 2 <= best + 1e-9


def test_the_printed_condition_on_the_curvature_decrease_is_not_enough() -> None:
    """Between 1 - c - sqrt(8 c_2/3) and the printed 1 - c - 8 c_2/3 there are no real roots."""
    c, c2 = Constants().curvature_noise, Constants().curvature_gradient_noise
    printed, real = 1 - c - 8 / 3 * c2, 1 - c - math.sqrt(8 * c2 / 3)
    assert real < printed
    between = (real + printed) / 2
    assert (1 - c - between) ** 2 / 4 < 2 / 3 * c2
    with pytest.raises(InvalidParameter, match="curvature_decrease"):
        Constants(curvature_decrease=between)


# How many rows ---------------------------------------------------------------------------------------------------


def tolerances(**options: Any) -> Tolerances:
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 20, 1.0), NonConvex(1e-3), False)
    settings = OPTLSSettings(**options) if options.pop("ls", False) else OPTSettings(**options)
    return _tolerances(settings, Bounds.of(problem, Relation.ZERO_OUT), 0.06)


def test_bounds_on_noise_hold_at_the_stated_probability() -> None:
    """Both bounds fail at most as often as stated: of 4000 draws each, alarm rate 1e-6."""
    generator, asked = np.random.default_rng(2), tolerances(failure=0.6)
    steps, draws, d = 1, 4000, 20
    chance = asked._chance(steps)
    gradient, curvature = asked.needs(steps)
    allowance = asked._gradient_allowance
    noise = generator.normal(0, 1 / gradient, (draws, d)) * asked.bounds.gradient_change
    long = (np.linalg.norm(noise, axis=1) > allowance).sum()
    assert stats.binom.sf(long, draws, chance) > FALSE_ALARM
    assert stats.binom.cdf(long, draws, chance) > FALSE_ALARM  # the chi distribution is exact
    upper = generator.normal(0, math.sqrt(0.5), (draws, d, d))
    matrices = np.triu(upper, 1) + np.triu(upper, 1).transpose(0, 2, 1)
    matrices[:, range(d), range(d)] = generator.normal(0, 1, (draws, d))
    matrices *= asked.bounds.hessian_change / curvature
    wide = np.abs(np.linalg.eigvalsh(matrices)).max(axis=1) > asked.constants.curvature_noise * asked.curvature
    assert stats.binom.sf(wide.sum(), draws, chance) > FALSE_ALARM
    # The bound is no more than half too wide: noise twice as large breaks it nearly always.
    assert (
        np.abs(np.linalg.eigvalsh(2 * matrices)).max(axis=1) > asked.constants.curvature_noise * asked.curvature
    ).mean() > 0.9


@EVERY
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_fewer_rows_suffice_for_more_budget_and_looser_tolerances(method: str, relation: str) -> None:
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 20, 1.0), NonConvex(1e-3), False)

    def rows(tolerance: float, epsilon: float) -> int:
        settings = METHODS[method].settings(gradient_tolerance=tolerance)
        return minimum_rows(problem, settings, epsilon=epsilon, delta=1e-6, adjacency=relation)

    assert rows(0.06, 1.0) < rows(0.03, 1.0)
    assert rows(0.06, 2.0) <= rows(0.06, 1.0) <= rows(0.06, 0.2)
    if not method.endswith("-b"):  # the sampling error of batches does not depend on the budget
        assert rows(0.06, 1.0) < rows(0.06, 0.2)


def test_the_least_number_of_rows_scales_as_the_paper_says() -> None:
    """With (a, sqrt(M a)) and all else fixed, n_min grows like 1/(a^2 sqrt(rho)), up to logarithms."""
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 20, 1.0), L2(0.0), False)
    small, large = (
        minimum_rows(problem, OPTSettings(gradient_tolerance=a), epsilon=1.0, delta=1e-6) for a in (0.001, 0.01)
    )
    assert 100 < small / large < 150


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("method", ["opt", "opt-ls", "2opt", "dp-gd"])
def test_paper_modes_have_the_noise_of_the_paper(method: str, relation: str) -> None:
    """sigma^2 = T/rho, or 3 T/(2 rho) with searches, times 2 B_g/n and 2 B_H sqrt(d)/n, whatever the neighbours."""
    settings = METHODS[method].settings(paper=True, **SADDLE)
    curator = make_curator(method, settings, epsilon=2.0, relation=relation)
    log = math.log(1e6)
    rho = (math.sqrt(2.0 + log) - math.sqrt(log)) ** 2
    bounds, budget, steps = Bounds.of(curator.problem, curator.relation), curator.budget, 400
    descent = Descent(curator, settings, None)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)
        descent.measure_start()
    levels = descent._levels(descent._tolerances, 0.5 * budget, steps)
    deviation = math.sqrt((1.5 if settings.search else 1.0) * steps / (0.5 * rho))
    gradient = levels.gradient.noise_multiplier * bounds.gradient_change / (2 * bounds.gradient * deviation)
    hessian = levels.hessian.noise_multiplier * bounds.hessian_change
    hessian /= 2 * math.sqrt(3) * bounds.hessian * deviation
    assert gradient == pytest.approx(hessian)
    assert gradient == pytest.approx(1.0) if relation == "zero-out" else 1 - 1e-9 <= gradient < 1.2
    price = curator.ledger.currency.price
    check = batch_cost(curator.relation, 1, levels.gradient, levels.hessian)
    assert (steps + 1) * price(check) <= 0.5 * budget * (1 + 1e-9)
    _, result = solve(method, quietly=True, paper=True, epsilon=2.0, most_steps=3, **SADDLE)
    assert np.isfinite(result.weights).all()


def test_more_rows_are_promised_for_the_noise_of_the_paper() -> None:
    problem = make_curator("opt", OPTSettings()).problem
    least, paper = (
        minimum_rows(problem, OPTSettings(noise=noise, **SADDLE), epsilon=1.0, delta=1e-6)  # type: ignore[arg-type]
        for noise in ("least", "paper")
    )
    assert 2 * least < paper


def test_a_plan_that_no_run_ends_is_refused_before_anything_is_charged() -> None:
    settings = OPTSettings(gradient_tolerance=5e-4, curvature_tolerance=0.01)
    curator = make_curator("opt", settings)
    with pytest.raises(InvalidParameter, match=r"up to [\d,]+ steps are planned .* most_steps"):
        METHODS["opt"].solve(curator, settings, None)
    assert curator.ledger.spent_epsilon() == 0
    _, result = solve("opt", quietly=True, gradient_tolerance=5e-4, curvature_tolerance=0.01, most_steps=2)
    assert result.iterations == 2


def test_a_helper_without_tolerances_asks_for_them() -> None:
    problem = LinearProblem(Logistic(), FeatureGrid(1.0, 20), L2(0.0), False)
    with pytest.raises(InvalidParameter, match="gradient_tolerance"):
        minimum_rows(problem, OPTSettings(), epsilon=1.0, delta=1e-6)


@pytest.mark.parametrize("method", [*VARIANTS, "dp-tr", "dp-gd"])
def test_too_few_rows_are_said_with_the_number_and_not_refused(method: str) -> None:
    options = {"gradient_tolerance": 0.2, "epsilon": 1.0, "rows": 500}
    problem = make_curator(method, METHODS[method].settings()).problem
    settings = METHODS[method].settings(gradient_tolerance=0.2)
    needed = minimum_rows(problem, settings, epsilon=1.0, delta=1e-6)
    promise = "may be told from noise" if method in ("dp-tr", "dp-gd") else "is guaranteed"
    with pytest.warns(GuaranteeWarning, match=f"{promise} for {needed} rows or more, there are 500"):
        _, result = solve(method, **options)
    assert np.isfinite(result.weights).all()


@pytest.mark.parametrize("method", ["2opt-ls", "opt-b", "dp-tr"])
def test_default_tolerances_are_the_tightest_in_reach(method: str) -> None:
    # A warning would be an error; batches are too small here for any tolerance, and that is said.
    curator, result = solve(method, quietly=method.endswith("-b"), rows=20_000, epsilon=100.0)
    tolerance = float(result.remarks[0].split("tolerances ")[1].split(" ")[0])
    settings = METHODS[method].settings(gradient_tolerance=tolerance)
    needed = minimum_rows(curator.problem, settings, epsilon=100.0, delta=1e-6)
    if not method.endswith("-b"):
        assert 0.97 * 20_000 < needed <= 20_000


@EVERY
def test_a_promise_that_excludes_nothing_is_given_up_aloud(method: str) -> None:
    with pytest.warns(GuaranteeWarning, match="rows or more, there are 2000"):
        curator, result = solve(method, rows=2000, epsilon=3.0, most_steps=20)
    tolerance = float(result.remarks[0].split("tolerances ")[1].split(" ")[0])
    assert tolerance == pytest.approx(Bounds.of(curator.problem, Relation.ZERO_OUT).gradient / 50, rel=1e-5)
    assert result.iterations > 0
    assert result.weights.any()


# Budgets ---------------------------------------------------------------------------------------------------------


def flat(cost: Any) -> list[Any]:
    return [each for part in cost.parts for each in flat(part)] if isinstance(cost, Composed | _Sampled) else [cost]


EASY = {"gradient_tolerance": 0.4, "curvature_tolerance": 0.45}
HARD = EASY | {"epsilon": 0.02, "rows": 100}
PATHS: dict[str, dict[str, Any]] = {
    "found": EASY,
    "not found": HARD,
    "random start": EASY | {"start_scale": 1.0},
    "random start, not found": HARD | {"start_scale": 1.0},
    "batches": EASY | {"sampling_rate": 0.5},
    "batches, not found": HARD | {"sampling_rate": 0.5},
    "one batch": EASY | {"same_batch": True},
    "one batch, not found": HARD | {"same_batch": True},
}


@EVERY
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("path", [path for path in PATHS if not path.startswith("batches")])
def test_every_path_stays_within_the_budget(method: str, relation: str, path: str) -> None:
    options = PATHS[path]
    curator, result = solve(method, quietly=True, relation=relation, **options)
    ledger = curator.ledger
    assert ledger.spent <= ledger.budget
    assert ledger.statement()["spent_epsilon"] <= options.get("epsilon", 8.0)
    assert result.success == ("not found" not in path)
    kinds = [part for entry in ledger.entries for part in flat(entry.cost)]
    searches = sum(isinstance(part, AboveThreshold) for part in kinds)
    assert searches == (result.iterations if method.endswith("ls") else 0)
    labels = [entry.label for entry in ledger.entries]
    joint = labels.count("gradient and Hessian")
    phases = 1 + (method.startswith("2") and ("loss" in labels or not result.success))
    if joint:
        assert joint >= result.iterations + 1
    else:
        # Every point that was left was checked, and the last one of each phase too.
        checks = labels.count("gradient")
        assert result.iterations + 1 <= checks <= result.iterations + phases
        assert labels.count("Hessian") == result.hessians
    assert sum(isinstance(part, Gaussian) for part in kinds) >= result.iterations + result.hessians * (not joint)


class Drawn(LatticeNoise):
    """Noise that keeps the cost it was drawn for."""

    def __init__(self) -> None:
        super().__init__(Randomness(0))
        self.costs: Counter[Any] = Counter()

    def gaussian(self, total, cost, relation):
        self.costs[cost] += 1
        return super().gaussian(total, cost, relation)

    def gaussian_symmetric(self, total, cost, relation):
        self.costs[cost] += 1
        return super().gaussian_symmetric(total, cost, relation)

    def first_above(self, queries, cost, relation):
        self.costs[cost] += 1
        return super().first_above(queries, cost, relation)


@pytest.mark.parametrize("method", [*VARIANTS, "dp-tr"])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("path", PATHS)
def test_what_was_drawn_had_been_charged(method: str, relation: str, path: str) -> None:
    """No more and no less, but for Hessians that a batch was paid for and that were not asked."""
    noise = Drawn()
    options = PATHS[path] | {"most_steps": 40}
    curator, _ = solve(method, quietly=True, relation=relation, noise=noise, **options)
    charged = Counter(part for entry in curator.ledger.entries for part in flat(entry.cost))
    assert noise.costs <= charged
    joint = sum(entry.label == "gradient and Hessian" for entry in curator.ledger.entries)
    if not joint:
        assert noise.costs == charged
    else:
        gradients = [entry.cost for entry in curator.ledger.entries if "gradient" in entry.label]
        assert all(len(flat(cost)) == 2 for cost in gradients)
        assert sum((charged - noise.costs).values()) <= joint


def test_the_guarantee_has_at_least_what_the_first_phase_left() -> None:
    options = PATHS["not found"]
    curator, result = solve("2opt", quietly=True, **options)
    labels = [entry.label for entry in curator.ledger.entries]
    again = labels.index("loss")  # what the steps of the second phase are counted from
    first = sum(entry.price for entry in curator.ledger.entries[:again])
    assert first <= 0.75 * curator.budget * (1 + 1e-9)
    assert not result.success


class Scripted(LatticeNoise):
    """Noise that answers from a script, whatever the sums are."""

    def __init__(self) -> None:
        super().__init__(Randomness(0))
        self._script = np.random.default_rng(7)

    def gaussian(self, total, cost, relation):
        # Of 500 rows, so that about half of the gradients are shorter than the tolerance.
        return self._script.normal(0, self._script.choice([5.0, 400.0]), total.values.shape)

    def gaussian_symmetric(self, total, cost, relation):
        matrix = self._script.normal(0, 400, total.values.shape)
        return matrix + matrix.T

    def first_above(self, queries, cost, relation):
        return int(self._script.integers(0, queries.values.size))


@pytest.mark.parametrize("method", [*VARIANTS, "dp-tr", "dp-gd"])
def test_a_run_depends_on_released_answers_and_public_numbers_alone(method: str) -> None:
    options = SADDLE | {"gradient_tolerance": 0.2, "start_scale": 1.0, "most_steps": 20}
    if method.endswith("-b"):
        options["sampling_rate"] = 0.5
    settings, generator, runs = METHODS[method].settings(**options), np.random.default_rng(3), []
    for _ in range(2):
        curator = make_curator(method, settings, penalty=NonConvex(0.01), rows=500, noise=Scripted())
        grid = curator.problem.grid
        rows = grid.place(generator.uniform(-1, 1, (500, 3)) + generator.normal(size=3))
        curator._source = ArraySource(rows, generator.choice([-1.0, 1.0], 500), grid)
        with pytest.warns(GuaranteeWarning) as warned:
            result = METHODS[method].solve(curator, settings, None)
        runs.append((curator.ledger.entries, [str(each.message) for each in warned], result))
    (entries, messages, first), (again, said, second) = runs
    assert first.iterations > 0
    assert first.hessians > 0
    np.testing.assert_array_equal(first.weights, second.weights)
    assert (entries, messages) == (again, said)
    assert replace(first, weights=second.weights) == second


class Silent(LatticeNoise):
    """No noise at all."""

    def gaussian(self, total, cost, relation):
        return total.to_float()


def test_a_measure_objective_has_a_public_slack_for_its_noise() -> None:
    settings = OPTSettings(**(SADDLE | {"start_scale": 1.0, "failure": 0.1}))
    curator = make_curator("opt", settings, loss=Sigmoid(), noise=Silent(), epsilon=60.0)
    run = Descent(curator, settings, None)
    exact, (entry,) = run._measure_objective(), curator.ledger.entries
    largest = curator.problem.largest_loss(run._weights)
    slack = largest * entry.cost.noise_multiplier / 4000 * stats.norm.isf(0.01)
    assert exact - derivatives(curator, run._weights)[0] == pytest.approx(slack, abs=1e-5)
    assert slack > 1e-4


# Eigenvalues -----------------------------------------------------------------------------------------------------


def test_lanczos_finds_the_least_eigenvalue_to_the_precision_it_promises() -> None:
    generator, d = np.random.default_rng(3), 1100
    basis, _ = np.linalg.qr(generator.normal(size=(d, d)))
    values = np.sort(generator.uniform(-0.2, 1.0, d))
    values[0] = -0.35
    matrix = (basis * values) @ basis.T
    for seed in range(5):
        found, direction = lowest_curvature(matrix, 0.05, 1e-3, np.random.default_rng(seed))
        assert -0.35 - 1e-9 <= found <= -0.30
        assert direction @ matrix @ direction == pytest.approx(found, abs=1e-12)
        assert np.linalg.norm(direction) == pytest.approx(1)
    small = matrix[:50, :50]
    value, vector = lowest_curvature(small, 0.0, 1e-3, generator)
    assert value == pytest.approx(np.linalg.eigvalsh(small)[0])
    np.testing.assert_allclose(small @ vector, value * vector, atol=1e-12)


def test_lanczos_stops_where_a_subspace_is_left_no_more() -> None:
    value, direction = lowest_curvature(-np.eye(1100), 1e-6, 1e-3, np.random.default_rng(0))
    assert value == pytest.approx(-1)
    assert np.linalg.norm(direction) == pytest.approx(1)


def test_large_hessians_go_to_lanczos_and_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SOLVER, "LARGEST_EXACT", 2)
    curator, result = solve("opt", gradient_tolerance=0.15, curvature_tolerance=0.6, epsilon=60.0)
    assert result.success
    assert any("Lanczos" in remark for remark in result.remarks)
    assert is_second_order(curator, result.weights, 0.2, 0.67)


# Refusals --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "options",
    [
        {"gradient_tolerance": 0.0},
        {"gradient_tolerance": -1.0},
        {"gradient_tolerance": 1e-200},
        {"curvature_tolerance": 0.0},
        {"curvature_tolerance": math.nan},
        {"sampling_rate": 0.0},
        {"sampling_rate": 1.5},
        {"optimistic_share": 1.0},
        {"failure": 0.0},
        {"loss_share": 0.0},
        {"start_scale": -1.0},
        {"gradient_noise": 0.5},
        {"curvature_noise": 0.3},
        {"gradient_decrease": 0.9},
        {"stretch": 1.0},
        {"curvature_stretch": 1.0},
        {"backtrack": 1.0},
        {"most_steps": 0},
    ],
    ids=str,
)
def test_impossible_settings_are_refused_by_name(options: dict[str, float]) -> None:
    (name,) = options
    with pytest.raises(InvalidParameter, match=name):
        OPTSettings(**options)


@pytest.mark.parametrize("loss", [Hinge(), Squared(), Multinomial(3)], ids=str)
def test_losses_without_bounded_derivatives_are_refused_before_anything_is_charged(loss: Loss) -> None:
    settings = OPTSettings(gradient_tolerance=0.1)
    curator = make_curator("opt", settings, loss=loss)
    with pytest.raises(UnsupportedCost, match="logistic"):
        second_order(curator, settings)
    assert curator.ledger.entries == ()


UNDRAWABLE: dict[str, dict[str, Any]] = {
    "tolerance": {"gradient_tolerance": 1e-9},
    "no decrease": {"gradient_tolerance": 1e-100},
    "far start": SADDLE | {"start_scale": 1e60},
    "steep penalty": SADDLE | {"start_scale": 1.0, "penalty": L2(1e200)},
    "second phase": SADDLE | {"optimistic_share": 1 - 1e-6, "loss_share": 1e-9, "curvature_tolerance": 1e-3},
    "first phase": SADDLE | {"optimistic_share": 1e-18, "epsilon": 1.0},
}


@pytest.mark.parametrize("method", ["opt", "opt-ls", "dp-tr", "dp-gd"])
@pytest.mark.parametrize("name", UNDRAWABLE)
def test_a_plan_that_cannot_be_drawn_is_refused_before_the_first_charge(method: str, name: str) -> None:
    options = {"epsilon": 1e-3, "rows": 100} | UNDRAWABLE[name]
    asked = {key: options.pop(key) for key in ("epsilon", "rows", "penalty") if key in options}
    settings = METHODS[method].settings(**options)
    curator = make_curator(method, settings, **asked)
    with pytest.raises(DPDescentError):
        METHODS[method].solve(curator, settings, None)
    assert curator.ledger.entries == ()


@pytest.mark.parametrize("shares", [(0.99, 0.01), (0.5, 0.3)])
def test_shares_that_leave_nothing_for_the_guarantee_are_refused(shares: tuple[float, float]) -> None:
    optimistic, loss = shares
    with pytest.raises(InvalidParameter, match="guarantee"):
        OPTSettings(optimistic_share=optimistic, loss_share=loss, start_scale=1.0)


@pytest.mark.parametrize("method", ["2opt", "dp-tr"])
def test_a_run_plans_with_what_a_ledger_has_left(method: str) -> None:
    settings = METHODS[method].settings(**(EASY | {"start_scale": 1.0}))
    curator = make_curator(method, settings, epsilon=0.05, rows=100)
    curator.ledger.spend(curator.ledger.currency.gaussian(0.9 * curator.budget), "earlier")
    with pytest.warns(GuaranteeWarning):
        METHODS[method].solve(curator, settings, None)
    assert curator.ledger.spent <= curator.budget


def test_batches_of_less_than_a_row_are_planned_as_they_are_drawn() -> None:
    curator, result = solve("opt-b", quietly=True, relation="replace-one", **(HARD | {"sampling_rate": 0.001}))
    assert curator.ledger.spent <= curator.budget
    assert not result.success


def test_long_rows_are_scaled_down_and_it_is_said() -> None:
    _, result = solve("opt", gradient_tolerance=0.15, epsilon=60.0)
    assert any("longer than 1" in remark for remark in result.remarks)


@EVERY
def test_an_estimator_runs_every_variant(method: str) -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (3000, 3))
    y = (X[:, 0] > X[:, 1]).astype(int)
    model = DPLogisticRegression(bounds=(0, 1), epsilon=50.0, method=method, classes=(0, 1), random_state=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", GuaranteeWarning)
        model.fit(X, y)
    assert model.privacy_["spent_epsilon"] <= 50.0
    assert any("second-order" in remark for remark in model.privacy_["remarks"])


def test_levels_pay_for_all_steps_and_one_check_more() -> None:
    for settings in (OPTSettings(), OPTLSSettings()):
        asked = tolerances(ls=settings.search)
        for name in ("gdp", "zcdp", "rdp"):
            if settings.search and name == "gdp":
                continue
            currency = currency_named(name, 1.0, 1e-6)
            levels = make_levels(asked, currency, Relation.ZERO_OUT, 0.01, 30, same_batch=False)
            total = 31 * (currency.price(levels.gradient) + currency.price(levels.hessian))
            total += 30 * (currency.price(levels.search) if levels.search else 0.0)
            assert 0.99 * 0.01 <= total <= 0.01


def test_a_batch_too_small_for_its_sampling_error_is_in_the_number_of_rows() -> None:
    whole, sampled = (tolerances(sampling_rate=rate).batch_needs(100) for rate in (1.0, 0.1))
    assert whole == 1
    assert sampled > 1e5
    with pytest.raises(DPDescentError):
        OPTSettings(sampling_rate=2.0)


# Rivals ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["dp-tr", "dp-gd"])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("path", ["found", "not found", "random start", "batches", "batches, not found"])
def test_rivals_stay_within_the_budget_on_every_path(method: str, relation: str, path: str) -> None:
    curator, result = solve(method, quietly=True, relation=relation, **PATHS[path])
    assert curator.ledger.spent <= curator.ledger.budget
    assert result.success == ("not found" not in path)
    labels = [entry.label for entry in curator.ledger.entries]
    if method == "dp-tr":
        assert labels.count("gradient and Hessian") == result.hessians == result.iterations + 1
    else:
        assert labels.count("gradient") == result.iterations + 1
        assert labels.count("Hessian") == result.hessians


def test_rivals_leave_the_saddle_one_by_its_radius_and_one_by_its_noise() -> None:
    options = SADDLE | {"epsilon": 60.0, "rows": 6000, "quietly": True}
    for method in ("dp-tr", "dp-gd"):
        curator, result = solve(method, **options)
        assert result.success
        assert is_second_order(curator, result.weights, 0.2, 0.34)
        if method == "dp-tr":
            assert result.steps[0] == pytest.approx(math.sqrt(0.15 / 0.5), rel=1e-3)


def test_rivals_say_that_rows_promise_them_nothing() -> None:
    said = "no number of rows is known for which this method is guaranteed to find such a point"
    for method in (*VARIANTS, "dp-tr", "dp-gd"):
        _, result = solve(method, quietly=True, rows=500, most_steps=2)
        assert (said in result.remarks) == (method in ("dp-tr", "dp-gd"))


def test_the_trust_region_step_is_the_least_of_its_ball() -> None:
    generator = np.random.default_rng(4)
    for case in range(200):
        matrix = generator.normal(size=(4, 4))
        matrix = matrix + matrix.T + (6 * np.eye(4) if case % 3 == 0 else 0)
        gradient = generator.normal(size=4) * 10.0 ** generator.uniform(-3, 1)
        if case % 4 == 0:  # the hard case: no gradient along the lowest curvature
            lowest = np.linalg.eigh(matrix)[1][:, 0]
            gradient -= lowest * (lowest @ gradient)
        radius = 10.0 ** generator.uniform(-1, 1)
        step = trust_region_step(matrix, gradient, radius)
        assert np.linalg.norm(step) <= radius * (1 + 1e-6)
        value = gradient @ step + step @ matrix @ step / 2
        others = generator.normal(size=(4, 20_000))
        others *= radius * generator.random(20_000) ** 0.25 / np.linalg.norm(others, axis=0)
        values = gradient @ others + np.einsum("in,ij,jn->n", others, matrix, others) / 2
        assert value <= values.min() + 1e-6 * abs(value)


def test_trust_regions_refuse_a_search() -> None:
    with pytest.raises(InvalidParameter, match="search"):
        TrustRegionSettings(search=True)
    with pytest.raises(InvalidParameter, match="same_batch"):
        NoisyGradientSettings(same_batch=True)
