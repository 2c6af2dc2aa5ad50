"""The search and the gradient on one batch: the law of real queries, and charges that no pair of tables exceeds.

The laws are computed without the package. Chi-square tests run on fixed seeds; on fresh bits each would raise a
false alarm with probability 1e-6.
"""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.special import logsumexp

from asking import RowBatches
from dpdescent.accounting import RDP, AboveThreshold, FixedSizeSampled, Gaussian, PoissonSampled
from dpdescent.curator import Curator
from dpdescent.curator.lattice_noise import normalised_queries
from dpdescent.exact import FeatureGrid
from dpdescent.problems import Squared
from dpdescent.relations import Relation
from exact_laws import both_ways, threshold_law
from neighbours import ALARM, Recorder, curator

# A row of loss (p - 1)^2/2 that starts at p = 0 and moves by the step loses at the first four and gains at the last.
STEPS = np.array([8.0, 7.0, 6.0, 5.0, 1.0])
PUBLISHED = {
    "laplace": (0.41811208, 0.20329914, 0.1156271, 0.07178054, 0.07490744, 0.11627371),
    "gaussian": (0.41153164, 0.21155366, 0.12042922, 0.07381377, 0.07863801, 0.10403371),
}
PUBLISHED_DIVERGENCES = {"laplace": (0.0651682646, 0.3919602765), "gaussian": (0.0782410988, 0.4405299078)}


class Watching(Recorder):
    """Noise that also keeps the queries of searches."""

    def first_above(self, queries, cost, relation):
        self.queries = queries
        return super().first_above(queries, cost, relation)


def turning_row(present: bool, relation: str) -> Curator:
    """A curator of the row that turns, or of a neighbour under which all queries are 0 or of the other sign."""
    grid = FeatureGrid(1.0, 1)
    rows, labels = np.ones((2, 1)), np.array([1.0, 1.0])
    if relation == "replace-one" and not present:
        labels = np.array([1.0, -1.0])  # moving away: every step loses
    if relation == "zero-out" and not present:
        rows, labels = rows[:1], labels[:1]
    rows[0] = 0.0  # a row that no step moves
    options: dict[str, Any] = {"relation": relation, "currency": RDP(2), "rows": 2, "noise": Watching(7)}
    return curator(grid.place(rows), labels, grid, Squared(), intercept=False, **options)


def ask(asked: Curator, cost: AboveThreshold) -> int | None:
    batch = RowBatches(asked, 1.0).draw(cost)
    return batch.first_step(np.zeros(1), -np.ones(1), STEPS, 0 * STEPS, slope=1e-2, ceiling=1e-2)


def chi_square(answers: np.ndarray, law: np.ndarray) -> float:
    counts = np.append(np.bincount(answers[answers >= 0], minlength=5), np.sum(answers < 0))
    return float(stats.chisquare(counts, counts.sum() * law / law.sum()).pvalue)


@pytest.mark.parametrize("noise", ["gaussian"])  # that of Laplace noise: tests/curator/test_mechanisms.py
def test_one_row_of_a_real_table_reaches_the_published_worst_case(noise: str) -> None:
    """Thousands of whole queries, on the integers that the mechanism's own test runs a million times."""
    cost = AboveThreshold(5, 4.0, 2.0, noise)
    laws = []
    for present, queries in ((True, [-1.0, -1, -1, -1, 1]), (False, [0.0] * 5)):
        asked = turning_row(present, "zero-out")
        answers = [ask(asked, cost) for _ in range(1300)]
        law = np.exp(threshold_law(np.array(queries), noise, 2.0, 4.0))
        normalised = normalised_queries(asked._noise.queries, cost, Relation.ZERO_OUT)
        np.testing.assert_array_equal(normalised, np.array(queries) * 2.0**cost.lattice_bits)
        found = np.array([-1 if first is None else first for first in answers])
        assert chi_square(found, law) > ALARM
        for threshold, query in ((1.0, 4.0), (2.0, 2.0)):
            assert chi_square(found, np.exp(threshold_law(np.array(queries), noise, threshold, query))) < ALARM
        laws.append(np.log(law))
    np.testing.assert_allclose(np.exp(laws[0]), PUBLISHED[noise], atol=6e-9)
    for order, published in zip((2, 8), PUBLISHED_DIVERGENCES[noise], strict=True):
        assert published - 1e-9 <= both_ways(*laws, order) <= cost.rdp(order)


def test_replacing_a_row_moves_queries_by_one_noise_unit_and_no_more() -> None:
    cost, queries = AboveThreshold(5, 4.0, 2.0), []
    for present in (True, False):
        asked = turning_row(present, "replace-one")
        ask(asked, cost)
        queries.append(normalised_queries(asked._noise.queries, cost, Relation.REPLACE_ONE))
    assert (queries[0] - queries[1]).tolist() == [0, 0, 0, 0, 2**cost.lattice_bits]


# One batch, a gradient and a search that follows from it -------------------------------------------------------


def joint_law(batches: list[tuple[float, tuple[int, ...]]], rows: dict[str, np.ndarray], costs: Any) -> np.ndarray:
    """Log probabilities of (cell of a noisy gradient, answer of the search) for a mixture over batches.

    The search asks one set of queries after a positive gradient and another after a negative one.
    """
    gradient, search = costs
    edges = gradient.noise_multiplier * np.linspace(-14, 14, 401)
    law = []
    for weight, members in batches:
        chosen = list(members)
        centre = rows["gradients"][chosen].sum()
        below = stats.norm.logcdf(edges, centre, gradient.noise_multiplier)
        above = stats.norm.logsf(edges, centre, gradient.noise_multiplier)
        with np.errstate(divide="ignore"):
            cells = np.where(
                edges[1:] < centre,
                below[1:] + np.log(-np.expm1(below[:-1] - below[1:])),
                above[:-1] + np.log(-np.expm1(above[1:] - above[:-1])),
            )
        answers = np.stack(
            [
                threshold_law(
                    rows["public"][side] + rows["queries"][side, chosen].sum(axis=0),
                    search.noise,
                    search.threshold_scale,
                    search.query_scale,
                )
                for side in (0, 1)
            ]
        )
        after = answers[(edges[:-1] >= 0).astype(int)]
        law.append(math.log(weight) + cells[:, None] + after)
    return np.asarray(logsumexp(law, axis=0)).ravel()


def random_rows(generator: np.random.Generator, count: int, queries: int, bound: float) -> dict[str, np.ndarray]:
    """Contributions within the bound: all of them at its ends in half of the cases."""
    gradients, changes = generator.uniform(-1, 1, count), generator.uniform(-1, 1, (2, count, queries))
    if generator.random() < 0.5:
        gradients, changes = np.sign(gradients), np.sign(changes)
    return {
        "gradients": bound * gradients,
        "queries": bound * changes,
        "public": generator.normal(size=(2, queries)) * generator.choice([0.1, 3.0]),
    }


def subsets(rows: int) -> list[tuple[int, ...]]:
    return [members for size in range(rows + 1) for members in itertools.combinations(range(rows), size)]


def poisson(rows: int, rate: float) -> list[tuple[float, tuple[int, ...]]]:
    return [(rate ** len(chosen) * (1 - rate) ** (rows - len(chosen)), chosen) for chosen in subsets(rows)]


def assert_never_above(exact: float, charged: float) -> float:
    assert exact <= charged * (1 + 1e-9)
    return exact / charged


@pytest.mark.parametrize("rate", [0.05, 0.3, 0.8])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_no_neighbours_exceed_the_charge_of_a_poisson_batch(noise: str, rate: float) -> None:
    """The exact law of a gradient and of a search steered by it, over all batches of three rows and of two."""
    generator = np.random.default_rng(5)
    closest = 0.0
    for trial in range(60 if noise == "laplace" else 12):
        gradient, search = (
            Gaussian(generator.uniform(0.6, 4)),
            AboveThreshold(3, *generator.uniform(0.6, 4, 2), noise),
        )
        rows = random_rows(generator, 3, 3, 1.0)
        if trial % 4 == 0:  # nothing else in the table: the pair for which the charge is nearly exact
            rows["gradients"][:2], rows["queries"][:, :2] = 0.0, 0.0
        laws = [joint_law(poisson(present, rate), rows, (gradient, search)) for present in (3, 2)]
        charged = PoissonSampled(rate, (gradient, search))
        for order in (2, 5, 12):
            closest = max(closest, assert_never_above(both_ways(*laws, order), charged.rdp(order)))
    assert closest > 0.5


@pytest.mark.parametrize("size", [1, 2])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_no_neighbours_exceed_the_charge_of_a_batch_of_fixed_size(noise: str, size: int) -> None:
    """The same over all batches of that size of three rows, the last of which is replaced; noise is for 2C."""
    generator = np.random.default_rng(6)
    closest = 0.0
    batches = [(1 / math.comb(3, size), chosen) for chosen in itertools.combinations(range(3), size)]
    for _ in range(60 if noise == "laplace" else 12):
        gradient, search = (
            Gaussian(generator.uniform(0.6, 4)),
            AboveThreshold(3, *generator.uniform(0.6, 4, 2), noise),
        )
        rows = random_rows(generator, 3, 3, 0.5)  # twice 0.5 is one unit of noise
        other = {name: values.copy() for name, values in rows.items()}
        replaced = random_rows(generator, 3, 3, 0.5) if generator.random() < 0.5 else None
        other["gradients"][2] = -rows["gradients"][2] if replaced is None else replaced["gradients"][2]
        other["queries"][:, 2] = -rows["queries"][:, 2] if replaced is None else replaced["queries"][:, 2]
        laws = [joint_law(batches, each, (gradient, search)) for each in (rows, other)]
        charged = FixedSizeSampled(size / 3, (gradient, search))
        for order in (2, 5, 12):
            closest = max(closest, assert_never_above(both_ways(*laws, order), charged.rdp(order)))
    assert closest > 0.2
