"""The private line search: its exact law, its charges against exact divergences, and what it refuses.

Statistical tests run on fixed seeds, so they never alarm at random; on fresh bits each would raise a false alarm
with probability 1e-6.
"""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from asking import RowBatches
from dpdescent.accounting import RDP, ZCDP, AboveThreshold, Composed, FixedSizeSampled, Gaussian, PoissonSampled
from dpdescent.curator import Curator
from dpdescent.curator.batches import bernoulli, draw_rows
from dpdescent.errors import BudgetExhausted, InvalidParameter
from dpdescent.exact import FeatureGrid
from dpdescent.noise import Randomness
from dpdescent.problems import Hinge, HuberisedHinge, Logistic, Loss, Multinomial, Squared
from dpdescent.relations import Relation
from dpdescent.solvers.backtracking import choose_noise
from exact_laws import both_ways, threshold_law
from neighbours import ALARM, STORAGE, Recorder, curator, touches

D = 4
GRID = FeatureGrid(1.0, D)
WEIGHTS, DIRECTION = np.array([0.5, -1.0, 0.25, 0.0]), np.array([1.0, -0.5, 2.0, -1.0])
STEPS = 2.0 * 0.5 ** np.arange(5)
RDP2 = RDP(2)


class Watching(Recorder):
    """Noise that also keeps the queries of searches."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__(seed)
        self.queries: list[Any] = []

    def first_above(self, queries, cost, relation):
        self.queries.append(queries)
        return super().first_above(queries, cost, relation)


def table(seed: int, rows: int, loss: Loss | None = None) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (rows, D))
    X[:, -1] = 1.0
    if loss is not None and loss.outputs > 1:
        return GRID.place(X), generator.integers(0, loss.outputs, rows) * 1.0
    return GRID.place(X), generator.choice([-1.0, 1.0], rows)


def ask(features: Any, labels: Any, loss: Loss | None = None, seed: int = 0, **options: Any) -> Curator:
    return curator(features, labels, GRID, loss, **({"currency": RDP2, "noise": Watching(seed)} | options))


def expected_queries(rows, labels, demands, slope, ceiling, size, penalty=0.0) -> np.ndarray:
    """The queries divided by their sensitivity under zero-out, from floating-point formulas."""
    margins, along = rows @ WEIGHTS, rows @ DIRECTION
    before = np.logaddexp(0, -labels * margins)
    normalised = []
    for step, demand in zip(STEPS, demands, strict=True):
        bound = min(ceiling, slope * step)
        change = np.clip(before - np.logaddexp(0, -labels * (margins - step * along)), -bound, bound)
        far = WEIGHTS - step * DIRECTION
        pull = penalty / 2 * (far[:-1] @ far[:-1] - WEIGHTS[:-1] @ WEIGHTS[:-1])
        normalised.append((change.sum() - size * (demand + pull)) / bound)
    return np.array(normalised)


def normalised(queries: Any, relation: str) -> np.ndarray:
    return np.asarray(queries.to_float() / queries.sensitivity.under(Relation.parse(relation)))


def largest_move(queries: Any, others: Any) -> Fraction:
    pairs = zip(queries.values.tolist(), others.values.tolist(), strict=True)
    return max(abs(one - other) for one, other in pairs) * Fraction(queries.unit)


# The law -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("relation", "cost"),
    [("zero-out", AboveThreshold(5, 4.0, 2.0)), ("replace-one", AboveThreshold(5, 3.0, 1.2, "gaussian"))],
    ids=str,
)
def test_search_matches_its_exact_law(relation: str, cost: AboveThreshold) -> None:
    rows, labels = table(3, 40)
    demands = 0.02 * STEPS
    asked = ask(rows, labels, relation=relation, penalty=0.01)
    batches = RowBatches(asked, 1.0)
    counts = np.zeros(6)
    for _ in range(1200):
        first = batches.draw(cost).first_step(WEIGHTS, DIRECTION, STEPS, demands, slope=0.7, ceiling=1.1)
        counts[5 if first is None else first] += 1
    queries = expected_queries(rows, labels, demands, 0.7, 1.1, 40, 0.01) / (1 if relation == "zero-out" else 2)
    law = np.exp(threshold_law(queries, cost.noise, cost.threshold_scale, cost.query_scale))
    assert stats.chisquare(counts, counts.sum() * law).pvalue > ALARM
    wrong = np.exp(threshold_law(queries, cost.noise, cost.threshold_scale / 2, cost.query_scale / 2))
    assert stats.chisquare(counts, counts.sum() * wrong / wrong.sum()).pvalue < ALARM


@pytest.mark.parametrize("storage", STORAGE, ids=str)
@pytest.mark.parametrize(
    "loss", [Logistic(), Hinge(), Squared(), Multinomial(3)], ids=lambda loss: type(loss).__name__
)
def test_queries_are_the_same_integers_for_every_storage_and_blocking(storage: str, loss: Loss) -> None:
    rows, labels = table(5, 60, loss)
    shape = (D, 3) if loss.outputs > 1 else (D,)
    weights, direction = (np.random.default_rng(k).normal(size=shape) for k in (1, 2))
    found = []
    for kept, block_rows in ((rows, 2**14), (STORAGE[storage](rows), 7)):
        asked = ask(kept, labels, loss, block_rows=block_rows)
        cost = AboveThreshold(5, 4.0, 2.0)
        RowBatches(asked, 1.0).draw(cost).first_step(weights, direction, STEPS, 0 * STEPS, ceiling=3.0)
        found.append(asked._noise.queries[0].values.tolist())
    assert found[0] == found[1]


# Charges against exact divergences -----------------------------------------------------------------------------


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), Hinge(), Squared()], ids=lambda loss: type(loss).__name__)
def test_no_neighbouring_tables_exceed_the_charge(relation: str, loss: Loss) -> None:
    generator = np.random.default_rng(11)
    costs = [
        AboveThreshold(5, 2.0, 1.0),
        AboveThreshold(5, 1.5, 0.6, "gaussian"),
        AboveThreshold(5, 1.5, 0, "gaussian"),
    ]
    for trial in range(25):
        rows, labels = table(trial, 5)
        direction = generator.normal(size=D) * 10.0 ** generator.uniform(-2, 2)
        options = {"slope": 10.0 ** generator.uniform(-2, 1), "ceiling": 10.0 ** generator.uniform(-2, 1)}
        other, signs = table(1000 + trial, 5)
        if relation == "zero-out":
            neighbour = rows[:-1], labels[:-1]
        else:
            neighbour = np.vstack([rows[:-1], other[-1:]]), np.append(labels[:-1], signs[-1])
        queries = []
        for X, y in ((rows, labels), neighbour):
            asked = ask(X, y, loss, relation=relation, rows=5)
            demands = 0.01 * STEPS
            RowBatches(asked, 1.0).draw(costs[0]).first_step(WEIGHTS, direction, STEPS, demands, **options)
            queries.append(asked._noise.queries[0])
        assert largest_move(*queries) <= Fraction(queries[0].sensitivity.under(Relation.parse(relation)))
        for cost, order in itertools.product(costs, (1.5, 2, 8, 32)):
            laws = [
                threshold_law(normalised(each, relation), cost.noise, cost.threshold_scale, cost.query_scale)
                for each in queries
            ]
            assert both_ways(*laws, order) <= cost.rdp(order)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_a_row_of_several_margins_moves_no_query_beyond_its_sensitivity_and_attains_it(relation: str) -> None:
    loss, generator, largest = Multinomial(3), np.random.default_rng(5), Fraction(0)
    cost, bound = AboveThreshold(5, 4.0, 2.0), Fraction(1 if relation == "zero-out" else 2)
    for trial in range(40):
        rows, labels = table(trial, 4, loss)
        direction = generator.normal(size=(D, 3)) * 10.0 ** generator.uniform(-1, 3)
        other = table(1000 + trial, 4, loss)
        neighbour = rows[:-1], labels[:-1]
        if relation == "replace-one":
            # The same row with a label for which the steps do the opposite.
            changed = (labels[-1] + 1) % 3 if trial % 2 else other[1][-1]
            neighbour = rows, np.append(labels[:-1], changed)
        queries = []
        for X, y in ((rows, labels), neighbour):
            asked = ask(X, y, loss, relation=relation, rows=4)
            search = RowBatches(asked, 1.0).draw(cost)
            search.first_step(np.zeros((D, 3)), direction, STEPS, 0 * STEPS, ceiling=0.05)
            queries.append(asked._noise.queries[0])
        assert Fraction(queries[0].sensitivity.under(Relation.parse(relation))) == bound
        largest = max(largest, largest_move(*queries))
    assert largest == bound


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("label", [math.nan, math.inf, -1e300, 1e300, 0.0])
def test_a_row_with_any_label_moves_no_query_beyond_its_sensitivity(relation: str, label: float) -> None:
    rows, labels = table(7, 6)
    for loss in (Logistic(), Hinge(), HuberisedHinge(), Squared()):
        queries = []
        for last in (1.0, label):
            asked = ask(rows, np.append(labels[:-1], last), loss, relation="replace-one")
            cost = AboveThreshold(5, 4.0, 2.0)
            RowBatches(asked, 1.0).draw(cost).first_step(100 * WEIGHTS, DIRECTION, STEPS, 0 * STEPS, ceiling=0.3)
            queries.append(asked._noise.queries[0])
        absent = ask(rows[:-1], labels[:-1], loss, rows=6)
        RowBatches(absent, 1.0).draw(cost).first_step(100 * WEIGHTS, DIRECTION, STEPS, 0 * STEPS, ceiling=0.3)
        others = queries[0] if relation == "replace-one" else absent._noise.queries[0]
        assert largest_move(queries[1], others) <= Fraction(others.sensitivity.under(Relation.parse(relation)))


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5])
def test_known_margins_and_copied_rows_give_the_same_queries(rate: float, monkeypatch) -> None:
    rows, labels = table(9, 2000)
    found = []
    for known_rate in (0.0, 1.0):
        monkeypatch.setattr("dpdescent.queries.line_search._KNOWN_RATE", known_rate)
        asked = ask(rows, labels, block_rows=700)
        cost = AboveThreshold(5, 4.0, 2.0)
        RowBatches(asked, rate).draw(cost).first_step(WEIGHTS, DIRECTION, STEPS, 0 * STEPS)
        found.append(asked._noise.queries[0].values.tolist())
    assert found[0] == found[1]


class Scripted:
    """Bits from a list of words."""

    def __init__(self, words: list[int]) -> None:
        self._words = words

    def words(self, count: int) -> np.ndarray:
        first, self._words = self._words[:count], self._words[count:]
        return np.array(first, np.uint64)


@pytest.mark.parametrize("rate", [1e-9, 0.1, 0.5, 1 - 2.0**-53])
def test_a_row_is_chosen_when_its_number_is_below_the_rate(rate: float) -> None:
    limit = int(rate * 2.0**64)
    first, rest = divmod(limit, 2**56)
    leading = [max(first - 1, 0), first, min(first + 1, 255), first, 0, 255, first, first]
    word = int.from_bytes(bytes(leading), "little")
    others = [0, rest, max(rest - 1, 0), 2**56 - 1] + [rest // 2] * 4
    undecided = iter(others)
    expected = [(each << 56) + (next(undecided) if each == first else 0) < limit for each in leading]
    chosen = bernoulli(Scripted([word] + [each << 8 for each in others]), 8, rate)
    assert chosen.tolist() == expected


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_batches_of_neighbours_never_exceed_the_amplified_charge(rate: float) -> None:
    """The law over all 2^n Poisson batches, with and without the last row."""
    generator = np.random.default_rng(2)
    cost = AboveThreshold(5, 1.0, 0.5)
    for trial in range(6):
        rows, labels = table(trial, 4)
        slope, ceiling = 10.0 ** generator.uniform(-1, 1, 2)
        laws = []
        for present in (4, 3):
            law = np.zeros(6)
            for members in itertools.product([False, True], repeat=present):
                chosen = np.array([*members, *[False] * (4 - present)])
                queries = expected_queries(rows[chosen], labels[chosen], 0.01 * STEPS, slope, ceiling, 4 * rate)
                weight = rate ** sum(members) * (1 - rate) ** (present - sum(members))
                law += weight * np.exp(threshold_law(queries, "laplace", cost.threshold_scale, cost.query_scale))
            laws.append(np.log(law))
        asked = ask(rows, labels, rows=4)
        charged = RowBatches(asked, rate).cost(cost)
        assert charged == PoissonSampled(rate, (cost,))
        for order in (2, 4, 16):
            assert both_ways(*laws, order) <= charged.rdp(order)


def test_a_search_on_a_batch_has_the_law_of_the_mixture() -> None:
    rows, labels = table(8, 4)
    rate, cost, counts = 0.5, AboveThreshold(5, 2.0, 1.0), np.zeros(6)
    asked = ask(rows, labels, rows=4)
    for _ in range(1200):
        first = RowBatches(asked, rate).draw(cost).first_step(WEIGHTS, DIRECTION, STEPS, 0.1 * STEPS, slope=0.3)
        counts[5 if first is None else first] += 1
    law = np.zeros(6)
    for members in itertools.product([False, True], repeat=4):
        chosen = np.array(members)
        queries = expected_queries(rows[chosen], labels[chosen], 0.1 * STEPS, 0.3, math.inf, 2)
        law += np.exp(threshold_law(queries, "laplace", cost.threshold_scale, cost.query_scale)) / 16
    assert stats.chisquare(counts, counts.sum() * law).pvalue > ALARM


# Charges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("relation", "family"), [("zero-out", PoissonSampled), ("replace-one", FixedSizeSampled)])
def test_what_shares_a_batch_is_charged_as_one_before_rows_are_touched(relation: str, family: Any) -> None:
    rows, labels = table(1, 30)
    asked = ask(rows, labels, relation=relation)
    gradient, search = Gaussian(2.0), AboveThreshold(5, 4.0, 2.0)
    batch = RowBatches(asked, 0.5).draw(gradient, search)
    assert not asked.ledger.entries
    batch.gradient(WEIGHTS, 1.0)
    batch.first_step(WEIGHTS, DIRECTION, STEPS, 0 * STEPS)
    (entry,) = asked.ledger.entries
    assert entry.cost == family(0.5, (gradient, search))
    assert entry.label == "gradient and step size"
    counted = [count for (count,) in touches(asked)]
    assert counted[-2:] == [1, 1]
    with pytest.raises(BudgetExhausted, match="draw another"):
        batch.first_step(WEIGHTS, DIRECTION, STEPS, 0 * STEPS)
    assert len(asked.ledger.entries) == 1


def test_gradient_and_search_of_a_batch_see_the_same_rows() -> None:
    rows = GRID.place(np.tile([0.0, 0.0, 0.0, 1.0], (64, 1)))
    asked = ask(rows, np.ones(64))
    for _ in range(5):
        batch = RowBatches(asked, 0.5).draw(Gaussian(1e-4), AboveThreshold(5, 1.0, 0.5))
        gradient = batch.gradient(np.zeros(D), 1.0)
        batch.first_step(np.zeros(D), np.array([0, 0, 0, -1.0]), STEPS, 0 * STEPS)
        members = round(-gradient[-1] * 32 / 0.5)
        per_row = math.log(2) - math.log1p(math.exp(-2.0))
        bound = asked.problem.longest_row * STEPS[0]
        assert bound * asked._noise.queries[-1].to_float()[0] == pytest.approx(members * per_row, rel=1e-3)


def test_an_empty_batch_is_answered_and_charged_like_any_other() -> None:
    rows, labels = table(1, 3)
    asked = ask(rows, labels)
    batch = RowBatches(asked, 1e-9).draw(Gaussian(1.0), AboveThreshold(5, 1.0, 0.5))
    assert batch.gradient(WEIGHTS, 1.0).shape == (D,)
    batch.first_step(WEIGHTS, DIRECTION, STEPS, 0 * STEPS)
    assert asked._noise.queries[0].values.tolist() == [0] * 5
    assert len(asked.ledger.entries) == 1


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_demands_are_of_the_public_size_of_a_batch_whatever_it_holds(relation: str) -> None:
    """Rows of zeros change no loss, so that only the demand and the penalty are left of a query."""
    asked = ask(GRID.place(np.zeros((9, D))), np.ones(9), relation=relation, penalty=0.5)
    size = 4.5 if relation == "zero-out" else 4  # which no batch of single rows holds under zero-out
    far = WEIGHTS - STEPS[:, None] * DIRECTION
    pull = 0.25 * (np.sum(far[:, :-1] ** 2, axis=1) - np.sum(WEIGHTS[:-1] ** 2))
    for _ in range(5):
        RowBatches(asked, 0.5).draw(AboveThreshold(5, 1.0, 0.5)).first_step(WEIGHTS, DIRECTION, STEPS, 0.1 * STEPS)
        bounds = asked.problem.longest_row * np.linalg.norm(DIRECTION) * STEPS
        queries = bounds * asked._noise.queries[-1].to_float()
        np.testing.assert_allclose(queries, -size * (0.1 * STEPS + pull), atol=1e-4)


def test_a_refused_search_reads_no_row_and_charges_nothing() -> None:
    rows, labels = table(1, 30)
    asked = ask(rows, labels, epsilon=1.0, currency=RDP(22))
    batches = RowBatches(asked, 1.0)
    search = AboveThreshold(5, 0.1, 0.1)
    assert not asked.affords(batches.cost(search))
    with pytest.raises(BudgetExhausted):
        batches.draw(search).first_step(WEIGHTS, DIRECTION, STEPS, 0 * STEPS)
    assert not asked.ledger.entries
    assert not touches(asked)


def test_two_costs_must_be_affordable_together() -> None:
    asked = ask(*table(1, 30), epsilon=1.0, currency=RDP(22))
    batches = RowBatches(asked, 1.0)
    most = batches.gradient_noise(0.6 * asked.budget)
    assert asked.affords(most)
    assert not asked.affords(Composed((most, most)))


@pytest.mark.parametrize(
    "arguments",
    [
        {"direction": np.zeros(D)},
        {"direction": np.ones(D + 1)},
        {"direction": np.full(D, np.nan)},
        {"steps": -STEPS},
        {"steps": np.empty(0), "demands": np.empty(0)},
        {"steps": np.append(STEPS, 0.01), "demands": np.zeros(6)},
        {"demands": np.zeros(3)},
        {"demands": np.full(5, np.inf)},
        {"slope": 0.0},
        {"ceiling": -1.0},
    ],
    ids=str,
)
def test_bad_searches_are_refused_before_any_charge(arguments: dict[str, Any]) -> None:
    rows, labels = table(1, 30)
    asked = ask(rows, labels)
    given: dict[str, Any] = {"weights": WEIGHTS, "direction": DIRECTION, "steps": STEPS, "demands": 0 * STEPS}
    with pytest.raises(InvalidParameter):
        RowBatches(asked, 0.5).draw(AboveThreshold(5, 1.0, 0.5)).first_step(**(given | arguments))
    assert not asked.ledger.entries
    assert not touches(asked)


def test_a_direction_of_zero_length_is_called_by_its_name() -> None:
    asked = ask(*table(1, 30))
    with pytest.raises(InvalidParameter, match="length zero"):
        RowBatches(asked, 1.0).draw(AboveThreshold(5, 1.0, 0.5)).first_step(WEIGHTS, 0 * DIRECTION, STEPS, 0 * STEPS)
    assert not asked.ledger.entries


def test_a_batch_of_fixed_size_has_that_size_and_every_row_is_drawn_as_often() -> None:
    asked = ask(*table(1, 30), relation="replace-one")
    sampling = asked.sampling(0.25)
    size, rate = sampling.size, sampling.rate
    assert (size, rate) == (7, 7 / 30)
    streams = (Randomness(0).stream("batch", i) for i in range(3000))
    drawn = np.array([draw_rows(bits, 30, sampling) for bits in streams])
    assert np.all(drawn.sum(axis=1) == 7)
    variance = 3000 * rate * (1 - rate) * 30 / 29  # of a count, and that they add up to 21,000 takes one away
    assert ALARM < stats.chi2(29).sf(np.sum((drawn.sum(axis=0) - 700.0) ** 2) / variance) < 1 - ALARM


@pytest.mark.parametrize("rate", [0.0, -0.1, 1.5, math.nan])
def test_bad_rates_are_refused(rate: float) -> None:
    rows, labels = table(1, 30)
    with pytest.raises(InvalidParameter):
        RowBatches(ask(rows, labels), rate)


# Calibration ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("noise", [None, "laplace"])
def test_calibrated_noise_costs_what_it_may(rate: float, relation: str, noise: Any) -> None:
    rows, labels = table(1, 30)
    currency = RDP(32)
    batches = RowBatches(ask(rows, labels, relation=relation, currency=currency), rate)
    for amount in (1e-6, 1e-3, 0.1):
        for part in (batches.gradient_noise(amount), batches.search_noise(amount, 8, noise)):
            assert 0.999 * amount <= currency.price(batches.cost(part)) <= amount
    assert batches.search_noise(1e9, 8).query_scale == 1 / 64
    both = batches.cost(Gaussian(5.0), AboveThreshold(8, 9.0, 4.0))
    assert isinstance(both, Composed) == (rate == 1)


def test_the_noise_of_a_search_follows_rho_and_the_number_of_queries() -> None:
    order = RDP(8)
    for rho, queries, expected in (
        (1e-4, 5, ("gaussian", 0.0)),
        (1e-4, 30, ("gaussian", 0.4)),
        (1e-3, 10, ("gaussian", 0.4)),
        (1e-2, 5, ("gaussian", 0.4)),
        (1.1e-2, 10, ("laplace", 0.5)),
        (1e-2, 30, ("laplace", 0.5)),
    ):
        assert choose_noise(order, 8 * rho, queries, 1.0) == expected
        assert choose_noise(order, 8 * rho, queries, 0.5) == ("laplace", 0.5)
    assert choose_noise(ZCDP(), 1e-4, 5, 1.0) == ("gaussian", 0.4)
