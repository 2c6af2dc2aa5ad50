"""Points of general functions, replayed on neighbours; rounding that counts twice; and noise that has an end."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from dpdescent import BudgetExhausted, InvalidParameter, Ledger
from dpdescent.accounting import (
    Cost,
    Gaussian,
    Laplace,
    NormLaplace,
    ObjectivePerturbation,
    PureObjectivePerturbation,
)
from dpdescent.audit.examples import EXAMPLES
from dpdescent.curator import ArraySource, Curator, caller_functions, perturbed_minimiser, perturbed_saddle_point
from dpdescent.curator.batches import Sampling, bernoulli, draw_rows
from dpdescent.exact import FeatureGrid
from dpdescent.ledger import Entry
from dpdescent.minimisers import EmpiricalRisk, GeneralObjective, LinearGame, loss_range
from dpdescent.noise import ladder, lattice_scale
from dpdescent.noise.lattice import _laplace_table, gaussian_table
from dpdescent.problems import L2, Labels, LinearProblem, Logistic, Loss, Whitening
from dpdescent.queries import ExcessAdversarialRisk, Gradient, NoisyDescent, Public
from dpdescent.queries.noisy_minimiser import PointLattice, _LinearNoise, tolerance_share, within_ball
from dpdescent.relations import Norm, Relation, Sensitivity
from every_query import PROBLEMS, ROWS, examples
from method_runs import Recording, Replaying

PLACES, MU, RADIUS = 12, 0.5, 2.0**-8
Table = tuple[np.ndarray, np.ndarray]
Release = Callable[[Table, str, str, Ledger, Recording], np.ndarray]
COSTS = {"gaussian": Gaussian(1.0), "norm-laplace": NormLaplace(1.0), "laplace": Laplace(1.0)}


def minimiser(table: Table, relation: str, cost: str, ledger: Ledger, noise: Recording) -> np.ndarray:
    """Release the minimiser of a mean of linear losses: a row of length 1 moves it by 1/(n mu), or twice that."""
    mean = (table[0] * table[1][:, None]).sum(axis=0) / PLACES
    objective = GeneralObjective(
        lambda w: (float(MU / 2 * (w @ w) - mean @ w), MU * w - mean),
        mean.size,
        strong_convexity=MU,
        lipschitz=1.0,
        smoothness=MU,
        variation=Sensitivity.of_clipped_sum(1.0).under(Relation(relation)) / PLACES,
    )
    return perturbed_minimiser(objective, ledger, COSTS[cost], noise=noise)


def saddle_point(table: Table, _: str, cost: str, ledger: Ledger, noise: Recording) -> np.ndarray:
    game = LinearGame(*table, PLACES, MU, RADIUS)
    return perturbed_saddle_point(game, ledger, COSTS[cost], largest=3.0, noise=noise)


def pairs(relation: str) -> list[tuple[Table, Table]]:
    """Return tables whose last row, of length 1, is removed, or turned around."""
    found = []
    for seed in range(6):
        generator = np.random.default_rng(seed)
        rows = generator.normal(size=(PLACES, 3))
        rows /= np.linalg.norm(rows, axis=1, keepdims=True)
        rows[:-1] = np.abs(rows[:-1])  # far from zero, where the adversary would win
        if seed % 2:  # along the mean, where shrinking takes nothing away
            rows[-1] = rows[:-1].sum(axis=0) / np.linalg.norm(rows[:-1].sum(axis=0))
        labels = np.ones(PLACES)
        turned = np.vstack([rows[:-1], -rows[-1:]]), labels
        found.append(((rows, labels), (rows[:-1], labels[:-1]) if relation == "zero-out" else turned))
    return found


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("cost", COSTS)
@pytest.mark.parametrize("release", [minimiser, saddle_point])
def test_a_replay_on_a_neighbour_stays_within_the_sensitivity_and_nearly_attains_it(
    release: Release, cost: str, relation: str
) -> None:
    """Laplace noise is for the L1 norm, of which a row attains less."""
    shares = []

    def released(table: Table, noise: Recording) -> tuple[bytes, tuple[Entry, ...]]:
        currency = "approximate" if cost == "norm-laplace" else "zcdp"
        ledger = Ledger(1e6, 1e-6, currency=currency, relation=relation)
        return release(table, relation, cost, ledger, noise).tobytes(), ledger.entries

    for table, other in pairs(relation):
        recorded = Recording()
        seen = [released(table, recorded)]
        replayed = Replaying(recorded)
        seen.append(released(other, replayed))
        assert seen[0] == seen[1]
        assert replayed.finished
        shares += replayed.shares
    assert max(shares) > (0.4 if cost == "laplace" else 0.97)


@pytest.mark.parametrize("penalty", [0.0, 0.01])
def test_noise_on_a_descent_covers_the_rounding_of_both_neighbours(penalty: float) -> None:
    """Replacing a row moves a step by 2C/n and removing one by C/n, so twice the latter less the former is rounding.

    It must be twice the error of a computed point, one for each neighbour. Among 2^26 rows and many steps that is
    not next to nothing.
    """
    grid, rows, steps = FeatureGrid(1.0, 2), 2**26, 10**6
    problem = LinearProblem(Logistic(), grid, L2(penalty))
    risk = EmpiricalRisk(Logistic(), problem.longest_row)
    smoothness = Logistic().smoothness * problem.longest_row**2 + penalty
    step = 1 / smoothness
    query = NoisyDescent(Logistic(), problem.longest_row, step, steps, Gaussian(1.0))
    parts = {relation: query.plan(Public(problem, relation, rows, 1.0, rows)).noised for relation in Relation}
    removed, replaced = (
        parts[relation].sensitivity.under(relation) - math.sqrt(2) * parts[relation].unit
        for relation in (Relation.ZERO_OUT, Relation.REPLACE_ONE)
    )
    curvatures = problem.penalty_curvature(np.zeros(2))
    nobody = ArraySource(np.zeros((0, 2)), np.zeros(0), grid)
    objective = risk.objective(nobody, grid, np.zeros(0), rows * curvatures, np.zeros(2))
    farthest, shrink = step * steps * risk.clip, 1 - step * float(curvatures.min())
    error = objective.error_bound(rows, farthest) / rows + smoothness * objective.placement_error(farthest)
    error += 4 * 2.0**-53 * (steps + 1) * risk.clip  # four operations on numbers as far as the point can get
    grown = steps if shrink == 1 else (1 - shrink**steps) / (1 - shrink)
    assert 2 * removed - replaced >= 2 * step * grown * error
    assert removed >= step * grown * (risk.clip / rows + 2 * error)
    assert replaced >= step * grown * (2 * risk.clip / rows + 2 * error)
    assert 2 * error > 0.05 * risk.clip / rows


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("weights", [1, 2, 7, 124])
def test_no_draw_of_the_linear_term_is_longer_than_is_certified_for(weights: int, relation: Relation) -> None:
    """The last cell of the samplers' tables in every coordinate, at the largest scale: certain, not likely."""
    risk = EmpiricalRisk(Logistic(), 1.5)
    gaussian_cells, laplace_cells = (len(table().cumulative) / 16 for table in (gaussian_table, _laplace_table))
    for strength in (1e-6, 0.1, 1.0, 1e4):
        gaussian = ObjectivePerturbation(1 / strength, 1.0, 0.1, 1, str(relation), 1e-15)
        linear = _LinearNoise.of((weights,), risk, gaussian)
        part = linear.noised(gaussian)
        assert part.size == weights
        scale = lattice_scale(part.cost.noise_multiplier * part.sensitivity.under(relation), part.unit)
        assert scale * gaussian_cells * part.unit * math.sqrt(weights) <= linear.norm
    for epsilon in (0.01, 1.0, 16.0):
        pure = PureObjectivePerturbation(2 * epsilon, epsilon)
        linear = _LinearNoise.of((weights,), risk, pure)
        part = linear.noised(pure)
        assert part.sensitivity.under(relation) >= risk.clip * (1 + (relation is Relation.REPLACE_ONE))
        scale = math.ceil(1.000001 * part.sensitivity.under(relation) / part.cost.epsilon / part.unit) + 16
        most = scale * laplace_cells if weights == 1 else ladder(weights, scale).nodes[-1] * gaussian_cells
        assert most * part.unit * math.sqrt(weights) <= linear.norm


class Scripted:
    """Bits that give prepared words."""

    def __init__(self, *words: list[int]) -> None:
        self.left = [np.array(each, dtype=np.uint64) for each in words]

    def words(self, count: int) -> np.ndarray:
        assert len(self.left[0]) == count
        return self.left.pop(0)


def test_a_batch_of_fixed_size_is_drawn_again_if_its_last_place_is_tied() -> None:
    """A tie would put more rows into the batch than were charged for, and always the same ones if it were broken."""
    bits = Scripted([1, 5, 5, 9], [7, 3, 3, 2], [4, 1, 3, 2])
    chosen = draw_rows(bits, 4, Sampling(Relation.REPLACE_ONE, 4, 0.5))
    np.testing.assert_array_equal(chosen, [False, True, False, True])


@pytest.mark.parametrize("cost", COSTS)
def test_points_that_are_rounded_apart_stay_within_the_sensitivity_of_their_lattice(cost: str) -> None:
    """On a coarse lattice rounding moves two points apart, by up to a step in every coordinate."""
    noise, apart, reached = COSTS[cost], 2.0**-58, 0.0
    lattice = PointLattice.of((4,), 2 * apart, 1.0, noise)
    sensitivity, unit = lattice.noised.sensitivity, lattice.unit
    assert unit >= apart / 4
    for start in np.linspace(0.0, 2 * unit, 65):
        first, second = (lattice.place(np.full(4, each)) for each in (start, start + apart * (1 - 2.0**-20)))
        moved = np.abs(second - first).astype(np.float64) * unit
        length = moved.sum() if sensitivity.norm is Norm.L1 else np.linalg.norm(moved)
        assert length <= sensitivity.zero_out
        reached = max(reached, float(length))
    declared = 4 * apart if sensitivity.norm is Norm.L1 else 2 * apart
    assert sensitivity.zero_out >= declared + (4 if sensitivity.norm is Norm.L1 else 2) * unit
    assert reached >= declared


@pytest.mark.parametrize(
    "noise", [Gaussian(0.1), Gaussian(7.0), NormLaplace(0.3), Laplace(3.0), Laplace(0.2)], ids=str
)
def test_a_lattice_is_as_fine_as_its_noise_allows_and_its_sensitivity_covers_every_rounding(noise: Cost) -> None:
    root = math.sqrt(6)
    scales = {Gaussian: lambda: noise.noise_multiplier, NormLaplace: lambda: 2 * (17 + root) / noise.epsilon}
    scale = scales.get(type(noise), lambda: 2 / noise.epsilon)()
    for moved, largest, each in ((1.0, 1e-9, 1), (1.0, 1e-9, 5), (1e-3, 1e6, 1), (1e-9, 1e6, 1), (3.0, 30.0, 2)):
        lattice = PointLattice.of((2, 3), moved, largest, noise, each)
        unit, declared = lattice.unit, moved * (root if isinstance(noise, Laplace) else 1.0)
        finest = max(largest * 2.0**-60, each * declared * scale * 2.0**-48)
        assert finest <= unit < 2 * finest
        least = {Gaussian: 0.0, NormLaplace: 2.0**25, Laplace: 2.0**21}[type(noise)]
        least *= 0.0 if isinstance(noise, Gaussian) else noise.epsilon * unit
        rounded = declared + (6 if isinstance(noise, Laplace) else root) * unit
        sensitivity = lattice.noised.sensitivity
        assert sensitivity.zero_out == sensitivity.replace_one
        assert least <= sensitivity.zero_out <= max(rounded * (1 + 2.0**-39), least)
        assert sensitivity.zero_out >= rounded * (1 + 2.0**-41)
        assert (lattice.noised.size, lattice.limit) == (6, largest)
        beyond = np.array([-1e300, -largest / 2, math.nan, largest * 2])
        expected = np.rint(np.array([-largest, -largest / 2, 0.0, largest]) / unit)
        np.testing.assert_array_equal(lattice.place(beyond), expected)
    assert PointLattice.of((2, 3), 1.0, 1.0, noise).unit == PointLattice.of((2, 3), 1.0, 1.0, noise, 1).unit


def test_tolerances_and_projections_are_those_that_were_asked_for() -> None:
    assert [tolerance_share(None, True), tolerance_share(None, False), tolerance_share(None, False, 16)] == [
        1 / 256,
        1 / 64,
        1 / 16,
    ]
    for smooth, least in ((True, 2.0**-20), (False, 2.0**-10)):
        assert [tolerance_share(given, smooth) for given in (1e-9, least, 0.5)] == [least, least, 0.5]
    point = np.array([3.0, 4.0])
    for radius, length in ((math.inf, 5.0), (7.0, 5.0), (5.0, 5.0), (2.0, 2.0)):
        np.testing.assert_allclose(within_ball(point, radius), point * length / 5, rtol=1e-15)


@pytest.mark.parametrize("relation", list(Relation))
def test_noise_on_a_perturbed_minimiser_hides_the_tolerance_and_the_lattice_of_both_neighbours(
    relation: Relation,
) -> None:
    """A discrete b is within 40 steps of a Gaussian in every coordinate, and moving b by r moves a minimiser r/mu."""
    for name in ("logistic", "multinomial"):
        problem, mu = PROBLEMS[name], float(ROWS)
        public = Public(problem, relation, ROWS, 1.0, ROWS)
        for query in examples("NoisyMinimiser", name, relation)[-2:]:
            plan = query.plan(public)
            assert plan.parts == (plan.linear, plan.noised)  # both must be drawable before the charge
            linear = _LinearNoise.of(problem.shape, query.risk, query.mechanism)
            curvature = mu + ROWS * float(np.max(problem.penalty_curvature(np.zeros(problem.shape))))
            reachable = query.risk.reachable(ROWS, problem.grid.dimension, mu, curvature, linear.norm)
            tolerance = max(2.0**-44 * query.risk.gradient_bound(ROWS) / mu, reachable)
            coupling = 40 * math.sqrt(math.prod(problem.shape)) * plan.linear.unit / mu
            assert plan.noised.sensitivity.under(relation) >= 2 * (tolerance + coupling)


@pytest.mark.parametrize(("name", "outputs"), [("logistic", 1), ("multinomial", 3)])
def test_a_gradient_in_whitened_coordinates_declares_the_rounding_of_its_image(name: str, outputs: int) -> None:
    problem = PROBLEMS[name]
    public, weights = Public(problem, Relation.ZERO_OUT, ROWS, 1.0, ROWS), np.zeros(problem.shape)
    whitening = Whitening(problem.grid, np.random.default_rng(0).normal(size=(3, 2)))
    (plain,), (whitened,) = (
        Gradient(weights, 1.0, Gaussian(1.0), frame).plan(public).parts for frame in (None, whitening)
    )
    assert whitened.unit == plain.unit
    assert whitened.sensitivity.zero_out >= plain.sensitivity.zero_out + math.sqrt(2 * outputs) * plain.unit


@dataclass(frozen=True)
class Halved(Loss):
    """t^2/2, whose derivative is the very array of margins that it is given."""

    labels = Labels.numbers(-1, 1)
    lipschitz = math.inf
    smoothness = 1.0
    curvature_lipschitz = 0.0
    convex = True

    def values(self, margins: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return margins**2 / 2

    def residuals(self, margins: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return margins

    def curvatures(self, margins: np.ndarray, labels: np.ndarray) -> np.ndarray:
        return np.ones_like(margins)


def test_a_loss_that_returns_its_margins_does_not_get_the_kept_ones_overwritten() -> None:
    grid = FeatureGrid(1.0, 3)
    rows = grid.place(np.random.default_rng(0).uniform(-1, 1, (50, 3)))
    ledger = Ledger(1e9, 1e-6, currency="gdp")
    curator = Curator(
        ArraySource(rows, np.zeros(50), grid), LinearProblem(Halved(), grid, intercept=False), ledger, 50
    )
    query = Gradient(np.array([1.0, -2.0, 0.5]), 0.25, Gaussian(1e-4), soft_norm=0.5, keep_margins=True)
    first, second = curator.answer(query), curator.answer(query)
    np.testing.assert_allclose(first, second, atol=1e-4)
    np.testing.assert_array_equal(curator._kept["margins"][1], rows @ query.weights)


def test_noise_that_no_ladder_holds_is_refused_before_a_general_function_is_charged_for() -> None:
    ledger, asked = Ledger(8.0, 1e-6, currency="approximate"), []
    objective = GeneralObjective(
        lambda w: asked.append(w) or (0.0, w), 2**20 + 1, strong_convexity=1.0, lipschitz=1.0, smoothness=1.0
    )
    with pytest.raises(InvalidParameter, match="2\\*\\*20"):
        perturbed_minimiser(objective, ledger, NormLaplace(1.0))
    assert not ledger.entries
    assert not asked


@pytest.mark.parametrize("release", [minimiser, saddle_point])
def test_a_general_function_is_not_evaluated_for_a_ledger_that_refuses(
    release: Release, monkeypatch: pytest.MonkeyPatch
) -> None:
    touched: list[str] = []
    monkeypatch.setattr(caller_functions, "certified_minimiser", lambda *_: touched.append("minimiser"))
    monkeypatch.setattr(caller_functions, "minimax_appa", lambda *_: touched.append("saddle point"))
    table, _ = pairs("zero-out")[0]
    with pytest.raises(BudgetExhausted):
        release(table, "zero-out", "gaussian", Ledger(0.01, 1e-6), Recording())
    assert not touched


def test_a_byte_that_equals_that_of_the_rate_is_decided_by_the_others() -> None:
    """Eight choices at a rate of 0x40 8000... 2^-64: one byte below it, one above, and six that tie."""
    rest = 0x80 << 48
    leading = int.from_bytes(bytes([0x3F, 0x40, 0x40, 0x41, 0x40, 0x40, 0x40, 0x40]), "little")
    decided = [0, rest - 1, rest, rest + 1, 2**56 - 1, rest - 2]
    bits = Scripted([leading], [each << 8 for each in decided])
    chosen = bernoulli(bits, 8, (0x40 * 2.0**56 + rest) / 2.0**64)
    np.testing.assert_array_equal(chosen, [True, True, True, False, False, False, False, True])


def test_passes_are_charged_with_the_number_of_batches_that_they_have() -> None:
    (query,) = examples("PermutedDescent", "logistic", "zero-out")
    for batches in (query.mechanism.batches - 1, query.mechanism.batches + 1):
        other = replace(query, mechanism=replace(query.mechanism, batches=batches))
        with pytest.raises(InvalidParameter, match=f"{batches} batches are charged for"):
            other.plan(Public(PROBLEMS["logistic"], Relation.ZERO_OUT, ROWS, 1.0, ROWS))


def test_the_noise_on_an_excess_risk_covers_rounding_and_the_tolerance_of_the_minimum() -> None:
    """Both neighbours' values are off by rounding, and rounded to the lattice: beyond what one loss can change."""
    problem, rows = PROBLEMS["adversary"], 2**30
    public = Public(problem, Relation.ZERO_OUT, rows, 1.0, rows)
    for query in EXAMPLES[ExcessAdversarialRisk](public, Gaussian(1.0)):
        (part,) = query.plan(public).parts
        risk, length = query.risk, float(np.linalg.norm(query.weights))
        farthest = max(risk.farthest(rows, query.strong_convexity), length)
        low, high = loss_range(risk.loss, risk.margin(farthest))
        rounding = 2 * rows * 2.0**-53 * rows * high
        assert rounding > 10 * (high - low)
        assert part.sensitivity.zero_out >= high - low + rounding + part.unit
