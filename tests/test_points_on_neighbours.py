"""Points of general functions, replayed on neighbours; rounding that counts twice; and noise that has an end."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest

from dpdescent import Ledger
from dpdescent.accounting import Gaussian, Laplace, NormLaplace, ObjectivePerturbation, PureObjectivePerturbation
from dpdescent.curator import ArraySource, NoisyDescent, Public, perturbed_minimiser, perturbed_saddle_point
from dpdescent.curator.batches import Sampling, draw_rows
from dpdescent.curator.points import _LinearNoise
from dpdescent.exact import FeatureGrid
from dpdescent.ledger import Entry
from dpdescent.minimisers import EmpiricalRisk, GeneralObjective, LinearGame
from dpdescent.noise import ladder, lattice_scale
from dpdescent.noise.lattice import _gaussian_table, _laplace_table
from dpdescent.problems import L2, LinearProblem, Logistic
from dpdescent.relations import Relation, Sensitivity
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
    question = NoisyDescent(Logistic(), problem.longest_row, step, steps, Gaussian(1.0))
    parts = {relation: question.plan(Public(problem, relation, rows, 1.0, rows)).noised for relation in Relation}
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
    assert 2 * error > 0.05 * risk.clip / rows


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize("weights", [1, 2, 7, 124])
def test_no_draw_of_the_linear_term_is_longer_than_is_certified_for(weights: int, relation: Relation) -> None:
    """The last cell of the samplers' tables in every coordinate, at the largest scale: certain, not likely."""
    risk = EmpiricalRisk(Logistic(), 1.5)
    gaussian_cells, laplace_cells = (len(table().cumulative) / 16 for table in (_gaussian_table, _laplace_table))
    for strength in (1e-6, 0.1, 1.0, 1e4):
        gaussian = ObjectivePerturbation(1 / strength, 1.0, 0.1, 1, str(relation), 1e-15)
        linear = _LinearNoise.of((weights,), risk, gaussian)
        part = linear.noised(gaussian)
        scale = lattice_scale(part.cost.noise_multiplier * part.sensitivity.under(relation), part.unit)
        assert scale * gaussian_cells * part.unit * math.sqrt(weights) <= linear.norm
    for epsilon in (0.01, 1.0, 16.0):
        pure = PureObjectivePerturbation(2 * epsilon, epsilon)
        linear = _LinearNoise.of((weights,), risk, pure)
        part = linear.noised(pure)
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
