"""Random stopping costs what its theorem says: never less than an exact law shows, and not much more."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.stats import chi2, norm

from dpdescent import InvalidParameter, Ledger
from dpdescent.accounting import RandomStopping, cost_from_dict
from dpdescent.accounting.searches import _divergence, _largest_gain
from dpdescent.choosing.plan import choose_strategy, draw_runs, epsilon_within, stopping_plan, uniform
from dpdescent.errors import BudgetExhausted, UnsupportedCost
from dpdescent.noise import Randomness

Floats = NDArray[np.float64]


def generating(x: Floats | float, tails: float, power: int = 2) -> Floats | float:
    """The generating function of the number of runs, from its definition."""
    return ((1 - (1 - tails) * x) ** -power - 1) / (tails**-power - 1)


def log_slope(y: Floats, tails: float) -> Floats:
    """The logarithm of f'(Phi(y))."""
    return math.log(2 * (1 - tails) / (tails**-2 - 1)) - 3 * np.log(tails + (1 - tails) * norm.sf(y))


def best_of(law: Floats, tails: float) -> Floats:
    """The law of the best of the runs, outputs being in the order of their scores.

    f(b) - f(a) is written as a multiple of b - a, which is the probability of the output, so that nothing cancels.
    """
    better = np.concatenate([np.cumsum(law[::-1])[::-1][1:], [0.0]])
    low, high = (tails + (1 - tails) * each for each in (better + law, better))  # 1 - (1 - g) a and 1 - (1 - g) b
    return (1 - tails) * law * (low + high) / (low * high) ** 2 / (tails**-2 - 1)


def divergence(left: Floats, right: Floats, order: float) -> float:
    terms = order * np.log(left) + (1 - order) * np.log(right)
    return float(np.log(np.sum(np.exp(terms - terms.max()))) + terms.max()) / (order - 1)


def cells(edges: Floats, shift: float) -> Floats:
    """Probabilities of the cells of a normal law, each from the tail in which it lies."""
    low, high = edges[:-1] - shift, edges[1:] - shift
    return np.where(low > 0, norm.sf(low) - norm.sf(high), norm.cdf(high) - norm.cdf(low))


def neighbours(generator: np.random.Generator, mu: float, outputs: int) -> tuple[Floats, Floats]:
    """Two laws that are mu-GDP: cells of two normal laws, in any order of their scores."""
    edges = np.concatenate([[-np.inf], np.sort(generator.normal(0, 2.5, outputs - 1)), [np.inf]])
    order = generator.permutation(outputs) if generator.random() < 0.5 else np.arange(outputs)
    if generator.random() < 0.5:
        order = order[::-1]
    left, right = cells(edges, 0.0)[order], cells(edges, mu)[order]
    return (left, right) if generator.random() < 0.5 else (right, left)


def worst_case(mu: float, tails: float, order: float) -> float:
    """The largest divergence that a search over exact laws finds."""
    generator, best = np.random.default_rng(3), 0.0
    for trial in range(300):
        left, right = neighbours(generator, mu, 2 + trial % 7)
        best = max(best, divergence(best_of(left, tails), best_of(right, tails), order))
    for threshold in np.linspace(-6, 6, 200):  # a good output that is rare in one of the tables
        for shift in (mu, -mu):
            rare, other = norm.sf(threshold), norm.sf(threshold - shift)
            laws = np.array([1 - rare, rare]), np.array([1 - other, other])
            best = max(best, divergence(best_of(laws[0], tails), best_of(laws[1], tails), order))
    return best


@pytest.mark.parametrize("order", [1.5, 4.0, 32.0])
@pytest.mark.parametrize(("mu", "tails"), [(0.1, 0.05), (0.5, 0.2), (2.0, 0.01)])
def test_no_exact_law_exceeds_the_bound(mu: float, tails: float, order: float) -> None:
    bound = RandomStopping(mu, tails).rdp(order)
    found = worst_case(mu, tails, order)
    assert found <= bound
    y = np.linspace(-14 - order * mu, 14 + order * mu, 100_001)  # scores without ties: densities
    for shift in (mu, -mu):
        left, right = (log_slope(y - at, tails) + norm.logpdf(y - at) for at in (0.0, shift))
        terms = order * left + (1 - order) * right
        exact = float(np.log(np.sum(np.exp(terms - terms.max())) * (y[1] - y[0])) + terms.max()) / (order - 1)
        assert 0 < exact <= bound


def test_the_bound_is_not_far_from_the_worst_law_and_smaller_ones_are_refuted() -> None:
    mu, tails, order = 0.5, 0.05, 8.0
    bound, found = RandomStopping(mu, tails).rdp(order), worst_case(mu, tails, order)
    assert found > 0.6 * bound
    run = order * mu**2 / 2
    assert found > run, "one run costs less than the best of several"
    free_choice = bound - math.log(RandomStopping(mu, tails).expected_runs) / (order - 1)
    thirds = run + (bound - run) * 2 / 3  # the exponent of a plain geometric law
    half_noise = RandomStopping(mu / 2, tails).rdp(order)
    assert min(free_choice, half_noise) < found
    generator = np.random.default_rng(0)
    many = max(
        divergence(best_of(left, tails), best_of(right, tails), order)
        for left, right in (neighbours(generator, 2 * mu, 4) for _ in range(300))
    )
    assert many > thirds, "twice the mu is noticed"


@pytest.mark.parametrize(("epsilon", "candidates"), [(0.3, 3), (1.0, 10), (4.0, 5)])
def test_the_priced_pair_holds_for_exact_laws_and_is_not_idle(epsilon: float, candidates: int) -> None:
    delta = 1e-3
    plan = stopping_plan(epsilon, delta, candidates)
    assert 0.99 * epsilon < plan.cost.pure() <= epsilon
    generator, largest = np.random.default_rng(1), 0.0
    for trial in range(400):
        left, right = (best_of(law, plan.cost.tails) for law in neighbours(generator, plan.cost.mu, 2 + trial % 9))
        largest = max(largest, float(np.sum(np.maximum(0, left - math.exp(epsilon) * right))))
    for threshold in np.linspace(-1, 6, 300):
        rare, other = norm.sf(threshold), norm.sf(threshold + plan.cost.mu)
        left, right = (best_of(np.array([1 - p, p]), plan.cost.tails) for p in (rare, other))
        largest = max(largest, float(np.sum(np.maximum(0, left - math.exp(epsilon) * right))))
    assert largest <= plan.cost.failure


def test_the_supremum_is_bounded_from_above_on_a_fine_grid() -> None:
    z = np.linspace(-12, 12, 200_001)
    for mu, tails, order in ((0.05, 0.3, 1.2), (0.2, 0.05, 8.0), (1.0, 0.005, 64.0), (5.0, 0.05, 800.0)):
        near, far = (np.log(tails + (1 - tails) * norm.cdf(z + shift)) for shift in (0.0, mu))
        grid = float(np.max(-3 * order * near + 3 * (order - 1) * far))
        bound = _largest_gain(mu, tails, order)
        assert grid <= bound <= grid + 3e-5 * (order - 1) + 1e-6
        choice = max(0.0, math.log(2 / (tails * (1 + tails))) + 3 * math.log(tails) + grid) / (order - 1)
        exact, slack = order * mu**2 / 2 + choice, 3e-5 + 1e-6 / (order - 1)
        assert exact <= RandomStopping(mu, tails).rdp(order) <= exact * (1 + 1e-9) + slack


def test_a_run_that_costs_nothing_leaves_the_choice_free() -> None:
    assert _divergence(1e-9, 0.1, 2.0) == pytest.approx(math.log(2 / (0.1 * 1.1)), rel=1e-5)
    mus = [RandomStopping(mu, 0.1, 1e-6).pure() for mu in (0.05, 0.1, 0.2, 0.4)]
    assert mus == sorted(mus)
    rarer = [RandomStopping(0.2, tails, 1e-6).pure() for tails in (0.4, 0.2, 0.1, 0.05)]
    assert rarer == sorted(rarer)


def test_mean_and_misses_are_those_of_the_law() -> None:
    tails = 0.2
    cost, counts = RandomStopping(1.0, tails), np.arange(1, 400)
    law = (counts + 1) * (1 - tails) ** counts * tails**2 / (1 - tails**2)
    assert law.sum() == pytest.approx(1)
    assert cost.expected_runs == pytest.approx(float(law @ counts))
    assert cost.missed(7) == pytest.approx(float(law @ (6 / 7) ** counts))
    assert generating(6 / 7, tails) == pytest.approx(cost.missed(7))


def test_the_number_of_runs_is_drawn_by_its_law_and_not_by_a_geometric_one() -> None:
    """Chi-squared over 12 cells; a false alarm has probability 1e-6."""
    tails, draws = 0.25, 20_000
    bits = Randomness(5).stream("runs", 0)
    drawn = np.array([draw_runs(bits, tails) for _ in range(draws)])
    counts = np.arange(1, 12)
    observed = np.array([*(np.count_nonzero(drawn == k) for k in counts), np.count_nonzero(drawn >= 12)])

    def distance(law: Floats) -> float:
        expected = draws * np.append(law, 1 - law.sum())
        return float(np.sum((observed - expected) ** 2 / expected))

    limit = chi2.isf(1e-6, counts.size)
    assert distance((counts + 1) * (1 - tails) ** counts * tails**2 / (1 - tails**2)) < limit
    mean = RandomStopping(1.0, tails).expected_runs
    assert distance((1 / mean) * (1 - 1 / mean) ** (counts - 1)) > 10 * limit
    with pytest.raises(InvalidParameter, match="tossed exactly"):
        draw_runs(bits, 0.1)


def test_candidates_are_drawn_uniformly() -> None:
    """Chi-squared over 5 cells; a false alarm has probability 1e-6."""
    bits = Randomness(6).stream("candidates", 0)
    counts = np.bincount([uniform(bits, 5) for _ in range(5000)], minlength=5)
    assert float(np.sum((counts - 1000.0) ** 2 / 1000)) < chi2.isf(1e-6, 4)
    assert {uniform(bits, 1) for _ in range(10)} == {0}


@pytest.mark.parametrize(("epsilon", "delta", "candidates"), [(0.1, 1e-6, 2), (1.0, 1e-6, 5), (20.0, 1e-9, 4)])
def test_a_plan_fits_into_its_budget_and_covers_the_failures_of_its_runs(
    epsilon: float, delta: float, candidates: int
) -> None:
    plan = stopping_plan(epsilon, delta, candidates)
    ledger = Ledger(epsilon, delta, currency="approximate")
    ledger.spend(plan.cost, "selection")
    assert plan.cost.missed(candidates) <= 0.1
    run = Ledger(plan.run_epsilon, plan.run_delta, currency="gdp")
    assert 0.999 * plan.cost.mu**2 < run.budget <= plan.cost.mu**2
    assert float(run.failure_limit) <= plan.cost.run_failure
    added = (1 + math.exp(plan.cost.pure())) * plan.cost.expected_runs * plan.cost.run_failure
    assert plan.cost.delta == pytest.approx(plan.cost.failure + added)
    assert plan.cost.delta < delta
    with pytest.raises(BudgetExhausted):
        ledger.spend(plan.cost, "again")


def test_an_epsilon_within_an_amount_never_exceeds_it() -> None:
    for currency in ("gdp", "zcdp"):
        account = Ledger(1.0, 1e-6, currency=currency)
        for share in (0.5, 1 / 3, 1e-3):
            amount = share * account.budget
            opened = Ledger(epsilon_within(amount, 1e-6, account.currency), 1e-6, currency=currency)
            assert 0.9999 * amount < opened.budget <= amount


def test_whatever_gives_a_candidate_more_is_taken() -> None:
    chosen = [choose_strategy("auto", 1.0, 1e-6, candidates, None) for candidates in (2, 3, 5)]
    assert chosen == ["compare-all", "compare-all", "random-stopping"]
    for candidates in (2, 5):  # both plans are kept from above
        stopping = 0.9 * stopping_plan(1.0, 1e-6, candidates).cost.mu
        equal = math.sqrt(Ledger(1.0, 1e-6, currency="gdp").budget / candidates)
        assert (equal >= stopping) == (candidates == 2)
    assert choose_strategy("random-stopping", 1.0, 1e-6, 2, None) == "random-stopping"


@pytest.mark.parametrize("epsilon", [1e-3, 50.0])
def test_where_random_stopping_has_no_plan_all_are_compared(epsilon: float) -> None:
    with pytest.raises(InvalidParameter):
        stopping_plan(epsilon, 1e-10, 5)
    assert choose_strategy("auto", epsilon, 1e-10, 5, None) == "compare-all"


def test_random_stopping_has_a_price_where_it_has_one() -> None:
    cost = RandomStopping(0.1, 0.125, 1e-6, 1e-12)
    assert cost_from_dict(json.loads(json.dumps(cost.to_dict()))) == cost
    for currency in ("gdp", "zcdp", "pure", "rdp"):
        with pytest.raises((UnsupportedCost, BudgetExhausted)):
            Ledger(5.0, 1e-3, currency=currency).spend(cost)
    bare = RandomStopping(0.1, 0.125)
    assert bare.pure() == math.inf
    assert bare.delta == 0
    Ledger(5.0, 1e-3, currency="rdp").spend(bare)
    with pytest.raises(UnsupportedCost):
        _ = RandomStopping(0.1, 0.125, 0.0, 1e-12).delta
    for wrong in ((0.0, 0.1), (0.1, 1.0), (0.1, 0.1, 1.0), (0.1, 0.1, 0.1, 1.0), (math.nan, 0.1)):
        with pytest.raises(InvalidParameter):
            RandomStopping(*wrong)
