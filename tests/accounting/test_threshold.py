"""AboveThreshold: exact laws by quadrature, and a bound that no neighbouring pair exceeds."""

from __future__ import annotations

import math

import numpy as np
import pytest

from dpdescent.accounting import AboveThreshold, Gaussian, PureDP, searches as threshold_module
from dpdescent.accounting.bellman import bellman_bound
from dpdescent.accounting.costs import cost_from_dict
from dpdescent.accounting.divergences import laplace_rdp, pure_rdp
from dpdescent.accounting.searches import _gaussian_tail, _largest_chord, _rdp, _zcdp
from dpdescent.errors import BudgetExhausted, InvalidParameter, LedgerFormatError
from dpdescent.ledger import Ledger
from dpdescent.relations import Relation
from exact_laws import both_ways, log_tails, renyi, threshold_law

UP = np.array([-1.0, -1.0, -1.0, -1.0, 1.0])


def dense_recursion(order, queries, noise, scale, shifts):
    """Log V_k by brute force on a dense grid: at most too small."""
    log_a, log_b = [], []
    for e in shifts:
        h = e / scale
        x = np.concatenate(
            [np.linspace(-14, 14, 4001), np.linspace(0, h, 4001), order * h + np.linspace(-4, 4, 2001)]
        )
        below, above = log_tails(noise, x)
        below_shifted, above_shifted = log_tails(noise, x - h)
        log_a.append(order * above_shifted + (1 - order) * above)
        log_b.append(order * below_shifted + (1 - order) * below)
    log_a, log_b = np.concatenate(log_a), np.concatenate(log_b)
    value = 0.0
    for _ in range(queries):
        value = max(value, float(np.logaddexp(log_a, log_b + value).max()))
    return value


@pytest.mark.parametrize(
    ("noise", "up", "level", "d2", "d8"),
    [
        (
            "laplace",
            (0.41811208, 0.20329914, 0.1156271, 0.07178054, 0.07490744, 0.11627371),
            (0.5, 0.20833333, 0.10416667, 0.05833333, 0.03541667, 0.09375),
            0.0651682646,
            0.3919602765,
        ),
        (
            "gaussian",
            (0.41153164, 0.21155366, 0.12042922, 0.07381377, 0.07863801, 0.10403371),
            None,
            0.0782410988,
            0.4405299078,
        ),
    ],
)
def test_exact_law_has_the_published_probabilities(noise, up, level, d2, d8):
    p, q = threshold_law(UP, noise, 2.0, 4.0), threshold_law(np.zeros(5), noise, 2.0, 4.0)
    assert np.exp(p).sum() == pytest.approx(1, abs=1e-12)
    np.testing.assert_allclose(np.exp(p), up, atol=6e-9)
    if level is not None:
        np.testing.assert_allclose(np.exp(q), level, atol=6e-9)
    assert renyi(p, q, 2) == pytest.approx(d2, abs=6e-11)
    assert renyi(p, q, 8) == pytest.approx(d8, abs=6e-11)
    cost = AboveThreshold(5, 4.0, 2.0, noise)
    for order in (2, 8):
        assert both_ways(p, q, order) <= cost.rdp(order)
        assert both_ways(p, q, order) <= order * cost.zcdp()


@pytest.mark.parametrize(
    ("order", "queries", "noise", "threshold", "query", "shift", "expected", "digits"),
    [
        (2, 5, "laplace", 2.0, 4.0, 0.0, 0.14797150, 8),
        (2, 5, "laplace", 2.0, 4.0, 1.0, 0.456403, 6),
        (8, 20, "gaussian", 2.0, 4.0, 0.5, 1.11849461, 8),
        (8, 30, "gaussian", 2.0, 4.0, 0.0, 4.38034411, 8),
        (8, 30, "gaussian", 0.0, 20.0, 0.0, 0.05047878, 8),
        (8, 10, "gaussian", 0.0, 20.0, 0.0, 0.02859822, 8),
    ],
)
def test_recursion_has_the_published_values(order, queries, noise, threshold, query, shift, expected, digits):
    ours = bellman_bound(order, queries, noise, threshold, query, shift=shift)
    assert expected - 0.5 * 10**-digits <= ours <= expected * (1 + 2e-5)
    best = bellman_bound(order, queries, noise, threshold, query)
    assert best <= ours * (1 + 1e-6)


@pytest.mark.parametrize(
    ("epsilon", "whole", "ratios"),
    [
        (0.1, 1.923812e-2, (0.264, 0.264, 0.264, 1.909)),
        (1.0, 8.205358e-1, (0.727, 0.729, 0.729, 1.164)),
        (4.0, 3.820398, (0.934, 0.964, 0.999, 1.046)),
    ],
)
def test_recursion_stays_below_the_two_laplace_terms(epsilon, whole, ratios):
    two_terms = 2 * laplace_rdp(epsilon / 2, 8)
    assert two_terms == pytest.approx(whole, rel=3e-7)
    for queries, ratio in zip((10, 30, 1000), ratios, strict=False):
        tenths = [bellman_bound(8, queries, "laplace", 2 / epsilon, 4 / epsilon, shift=s / 10) for s in range(11)]
        assert min(tenths) / two_terms == pytest.approx(ratio, abs=6e-4)
        # The search for the shift is finer than tenths.
        assert bellman_bound(8, queries, "laplace", 2 / epsilon, 4 / epsilon) <= min(tenths) * (1 + 1e-5)
    assert pure_rdp(epsilon, 8) / two_terms == pytest.approx(ratios[3], abs=6e-4)


def test_recursion_without_threshold_noise_is_attained():
    order, queries, scale = 8, 30, 20.0
    value, choices = 0.0, []
    t = np.linspace(-14 * scale, 14 * scale, 200_001)
    for _ in range(queries):
        best = (-math.inf, 0.0, 0.0)
        for e in (-1.0, 1.0):
            below, above = log_tails("gaussian", t / scale)
            below_shifted, above_shifted = log_tails("gaussian", (t - e) / scale)
            heights = np.logaddexp(
                order * above_shifted + (1 - order) * above, order * below_shifted + (1 - order) * below + value
            )
            i = int(heights.argmax())
            best = max(best, (float(heights[i]), float(t[i]), e))
        value = best[0]
        choices.append(best[1:])
    # The last choice faces the first query.
    q_prime = np.array([-t for t, _ in reversed(choices)])
    q = q_prime + np.array([e for _, e in reversed(choices)])
    exact = renyi(
        threshold_law(q, "gaussian", 0.0, scale), threshold_law(q_prime, "gaussian", 0.0, scale), float(order)
    )
    assert exact == pytest.approx(0.05047878, abs=6e-9)
    assert exact <= bellman_bound(order, queries, "gaussian", 0.0, scale) <= exact * (1 + 2e-5)
    assert queries * Gaussian(scale).rdp(order) == pytest.approx(0.3, rel=1e-12)


def test_gaussian_search_of_a_thousand_queries_exceeds_the_sum_of_two_gaussians():
    rho, queries = 0.01, 1000
    threshold, query = math.sqrt(150), math.sqrt(300)
    assert 1 / (2 * threshold**2) + 2 / query**2 == pytest.approx(rho, rel=1e-12)
    q = np.full(queries, -2.5 * query)
    assert q[0] == pytest.approx(-43.30127, abs=6e-6)
    alternating = q + np.where(np.arange(queries) % 2 == 0, 1.0, -1.0)
    p_law, q_law = (
        threshold_law(q, "gaussian", threshold, query),
        threshold_law(alternating, "gaussian", threshold, query),
    )
    exact = max(renyi(p_law, q_law, 2), renyi(q_law, p_law, 2))
    assert renyi(p_law, q_law, 2) == pytest.approx(0.0200903634, abs=6e-11)
    assert exact > 2 * rho
    assert bellman_bound(2, queries, "gaussian", threshold, query) >= exact


@pytest.mark.parametrize(
    ("rhos", "ceilings"),
    [
        ((1e-4, 1e-2, 0.1), {5: 0.57, 10: 0.71, 20: 0.80, 30: 0.83, 60: 0.90}),
        ((0.5,), {5: 0.61, 10: 0.76, 20: 0.85, 30: 0.88, 60: 0.92}),
    ],
)
def test_two_gaussian_terms_hold_for_few_queries(rhos, ceilings):
    worst = dict.fromkeys(ceilings, 0.0)
    for rho in rhos:
        for order in (2, 8, 32):
            for queries in worst:
                ours = bellman_bound(order, queries, "gaussian", math.sqrt(1.5 / rho), math.sqrt(3 / rho))
                worst[queries] = max(worst[queries], ours / (order * rho))
    for queries, ratio in ceilings.items():
        assert worst[queries] <= ratio + 0.006
        assert worst[queries] >= ratio - 0.2


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_no_neighbouring_queries_exceed_the_charge(noise):
    """480 random pairs for each noise, both directions, four orders, against rdp and zCDP."""
    generator = np.random.default_rng(11 if noise == "laplace" else 13)
    orders = (1.05, 2.0, 8.0, 64.0)
    closest = 0.0
    for trial in range(8):
        queries = int(generator.integers(1, 9))
        query = float(10 ** generator.uniform(-0.3, 1.5))
        threshold = query * float(generator.choice([0.0, 0.4, 0.5, 1.0])) if trial else 0.0
        cost = AboveThreshold(queries, query, threshold, noise)
        bounds = [min(cost.rdp(a), a * cost.zcdp()) for a in orders]
        for _ in range(60):
            q = generator.normal(scale=2 * query * generator.random(), size=queries) - query * generator.random()
            change = generator.choice([-1.0, 1.0], size=queries)
            if generator.random() < 0.3:
                change *= generator.random(queries)
            elif generator.random() < 0.3:
                change = np.where(np.arange(queries) == queries - 1, -change[0], change[0])
            p, r = threshold_law(q, noise, threshold, query), threshold_law(q + change, noise, threshold, query)
            for order, bound in zip(orders, bounds, strict=True):
                exact = both_ways(p, r, order)
                assert exact <= bound + 1e-12
                closest = max(closest, exact / bound)
            if noise == "laplace":
                assert np.abs(p - r).max() <= cost.pure() + 1e-9
    assert closest > 0.8  # a bound a fifth smaller would be caught


@pytest.mark.parametrize("epsilon", [0.03, 1.0, 6.0])
def test_chords_between_a_few_orders_are_above_the_divergence_at_all_and_close_to_it(epsilon, monkeypatch):
    """The exact divergences of randomised response: nearly a straight line in the order at first, then flat."""
    asked = []
    monkeypatch.setattr(AboveThreshold, "rdp", lambda _, order: asked.append(order) or pure_rdp(epsilon, order))
    cost = AboveThreshold(3, 4.0, 1.0, "gaussian")
    found = np.array([cost.rdp_by_chords(order) for order in range(2, 2049)])
    exact = np.array([pure_rdp(epsilon, order) for order in range(2, 2049)])
    assert np.all(found >= exact)
    assert np.all(found <= 1.002 * exact)
    np.testing.assert_array_equal(found[:31], exact[:31])
    assert len(set(asked)) < 31 + 16 * 6 + 2


def test_replacing_a_row_of_monotone_queries_costs_as_much_as_any_queries():
    """Every row adds 0 or 1 to each query, so adding or removing one moves all queries the same way.

    Then the log ratio of the exact laws is at most 1/b1 + 1/b2 = 2. A row that adds to all queries but the last and
    is replaced by one that adds to the last alone moves the last query against all others, and the log ratio
    reaches 1/b1 + 2/b2 = 3: a charge of 2 would be too small under replace-one.
    """
    queries = 1000
    others = np.full(queries, -0.5)
    others[-1] = 1.0
    all_but_last, last = np.ones(queries), np.zeros(queries)
    all_but_last[-1], last[-1] = 0.0, 1.0
    laws = [threshold_law(others + row, "laplace", 1.0, 1.0) for row in (all_but_last, last, np.zeros(queries))]
    replaced, *removed = (np.abs(laws[i] - laws[j]).max() for i, j in ((0, 1), (0, 2), (1, 2)))
    assert max(removed) <= 2 + 1e-9
    assert replaced == pytest.approx(3, abs=1e-9)
    assert AboveThreshold(queries, 1.0, 1.0).pure() == pytest.approx(3, rel=1e-12)
    for relation in Relation:
        ledger = Ledger(2.9, 0.0, currency="pure", relation=str(relation))
        with pytest.raises(BudgetExhausted):
            ledger.spend(AboveThreshold(queries, 1.0, 1.0))


def test_no_search_is_charged_less_for_monotone_queries():
    with pytest.raises(TypeError, match="monotone"):
        AboveThreshold(3, 1.0, 1.0, monotone=True)
    cost = AboveThreshold(3, 1.0, 1.0)
    assert cost_from_dict(cost.to_dict() | {"monotone": False}) == cost
    for claim in (True, 1, "no", None):
        with pytest.raises(LedgerFormatError, match="monotone"):
            cost_from_dict(cost.to_dict() | {"monotone": claim})


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_recursion_is_never_below_a_dense_grid(noise):
    generator = np.random.default_rng(19)
    for _ in range(45):
        scale = float(2.0 ** generator.uniform(-10, 8))
        order = float(1 + 10 ** generator.uniform(-3.5, 3.5))
        queries = int(generator.choice([1, 2, 7, 30, 200]))
        shift = float(generator.choice([0.0, 0.25, 1.0]))
        ours = bellman_bound(order, queries, noise, 1e6, scale, shift=shift)
        if math.isinf(ours):
            continue
        dense = dense_recursion(order, queries, noise, scale, [shift - 1, shift + 1]) / (order - 1)
        if (order - 1) * dense > 1e-7 * max(order, 100):  # below that plain floats do not resolve the dense grid
            assert ours >= dense
            if queries <= 64 and order < 100 and scale > 0.1:
                assert ours <= dense * (1 + 2e-5) + 2e-12 * order


@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_cost_scales_with_the_square_of_wide_noise(noise):
    # D_a tends to a constant over the squared scale; plain floating point loses it beyond a scale of 1e6.
    for order in (1.01, 3.0):
        limit = AboveThreshold(10, 1e5, 5e4, noise).rdp(order) * 1e10
        for scale in (1e4, 1e6, 1e8):
            scaled = AboveThreshold(10, scale, scale / 2, noise).rdp(order) * scale**2
            assert scaled == pytest.approx(limit, rel=3e-4)


@pytest.mark.parametrize(
    "cost",
    [
        AboveThreshold(1, 3.0, 1.0),
        AboveThreshold(30, 20.0, 10.0),
        AboveThreshold(30, 20.0, 8.0, "gaussian"),
        AboveThreshold(30, 1.0, 1.0, "gaussian"),
        AboveThreshold(12, 0.25, 0.5),
        AboveThreshold(12, 300.0, 0.0, "gaussian"),
        AboveThreshold(20, 5.0, 5.0, "gaussian"),
        AboveThreshold(20, 5.0, 5.0),
    ],
    ids=str,
)
def test_zcdp_covers_every_order(cost):
    rho = cost.zcdp()
    orders = 1 + np.geomspace(1e-4, 1e4, 17)
    ratios = np.array([cost.rdp(float(a)) / a for a in orders]) / rho
    # Very near order one only the Renyi bound at 1.01 is needed, since D_a grows with a.
    assert np.all(ratios[orders >= 1.01] <= 1 + 1e-4)
    assert ratios.max() <= 1.02
    assert ratios.max() >= 0.7


@pytest.mark.parametrize(
    ("low", "at_low", "high", "at_high"),
    [
        (1.01, 0.02, 1.2, 0.02),
        (1.5, 0.3, 1.6, 0.5),
        (2.0, 1.0, 9.0, 1.5),
        (1.1, 1e-3, 4.0, 0.4),
        (3.0, 0.1, 40.0, 30.0),
        (1.0001, 1e-9, 300.0, 1e-9),
    ],
)
def test_between_two_orders_the_largest_chord_is_that_of_a_dense_grid(low, at_low, high, at_high):
    orders = np.linspace(low, high, 400_001)
    chord = np.interp(orders, [low, high], [(low - 1) * at_low, (high - 1) * at_high])
    dense = float(np.max(chord / (orders * (orders - 1))))
    assert dense <= _largest_chord(low, at_low, high, at_high) <= dense * (1 + 1e-8)


def test_laplace_searches_are_charged_the_least_of_two_epsilons():
    for queries, query, threshold, epsilon in ((3, 4.0, 0.0, 0.75), (3, 4.0, 1.0, 0.75), (30, 4.0, 1.0, 1.5)):
        cost = AboveThreshold(queries, query, threshold)
        assert epsilon <= cost.pure() <= epsilon * (1 + 1e-14)
        assert cost.mu_squared() == PureDP(cost.pure()).mu_squared()
        assert cost.zcdp() <= PureDP(cost.pure()).zcdp()


def test_gaussian_searches_are_charged_what_the_limit_of_large_orders_says():
    for queries, query, threshold in ((1, 1.0, 1.0), (5, 2.0, 8.0), (7, 0.1, 2.0)):
        cost = AboveThreshold(queries, query, threshold, "gaussian")
        slope = 1 / (2 * threshold**2) + 2 / query**2
        for order in (1.5, 8.0, 1e3):
            tail = slope + math.log(1 + queries) / (order * (order - 1))
            assert tail <= _gaussian_tail(cost, order) <= tail * (1 + 2e-12)
            assert cost.rdp(order) <= order * tail * (1 + 2e-12)
        released = queries / (2 * query**2)
        assert cost.pure() == math.inf
        assert cost.mu_squared() == pytest.approx(2 * released, rel=1e-14)
        assert min(slope, released) <= cost.zcdp() <= released * (1 + 1e-14)
        assert AboveThreshold(queries, query, 0.0, "gaussian").zcdp() == pytest.approx(released, rel=1e-14)


def test_beside_the_recursion_a_search_is_charged_the_least_of_what_its_noise_alone_allows(monkeypatch):
    asked: list[tuple] = []
    monkeypatch.setattr(threshold_module, "bellman_bound", lambda *search: asked.append(search) or math.inf)
    _rdp.cache_clear()
    for queries, query, threshold in ((1, 1.0, 1.0), (40, 2.0, 8.0), (7, 300.0, 2.0), (2**36, 2.0**24, 2.0**-10)):
        released = AboveThreshold(queries, query, threshold, "gaussian").mu_squared()
        assert queries / query**2 <= released * (1 + 2.0**-60) <= queries / query**2 * (1 + 2.0**-48)
        pure = PureDP(AboveThreshold(queries, query, threshold).pure())
        assert AboveThreshold(queries, query, threshold).mu_squared() == pure.mu_squared()
        for order in (1.5, 8.0, 1e3):
            gaussian = AboveThreshold(queries, query, threshold, "gaussian")
            released = queries * order / (2 * query**2)
            limit = order / (2 * threshold**2) + 2 * order / query**2 + math.log(1 + queries) / (order - 1)
            assert gaussian.rdp(order) == pytest.approx(min(released, limit), rel=2e-12, abs=0)
            assert asked[-1] == (order, queries, "gaussian", threshold, query)
            laplace = AboveThreshold(queries, query, threshold)
            noise = laplace_rdp(1 / threshold, order, threshold * 2.0**laplace.lattice_bits)
            epsilon = min(queries / query, 1 / threshold + 2 / query)
            assert laplace.rdp(order) == pytest.approx(
                min(pure_rdp(epsilon, order), noise + 2 / query), rel=2e-12, abs=0
            )
            assert asked[-1] == (order, queries, "laplace", threshold, query)
            assert AboveThreshold(queries, query, 0.0).rdp(order) == pytest.approx(
                pure_rdp(queries / query, order), rel=2e-12, abs=0
            )
    _rdp.cache_clear()


@pytest.mark.parametrize("start", [1.0, 1.3, 2.0, 9.0])
@pytest.mark.parametrize("noise", ["laplace", "gaussian"])
def test_zcdp_finds_the_order_that_is_worst_wherever_it_is(noise, start, monkeypatch):
    # (a - 1) D_a is 0 up to an order and straight from there: the worst a is known, and is no point of the grid.
    slope = 0.01 if noise == "gaussian" else 0.001
    monkeypatch.setattr(threshold_module, "_rdp", lambda _, order: slope * max(0.0, order - start) / (order - 1))
    worst = start + math.sqrt(start * (start - 1)) if start > 1 else 1.0
    exact = slope * (worst - start) / (worst * (worst - 1)) if start > 1 else slope
    rho = _zcdp.__wrapped__(AboveThreshold(100, 40.0, 60.0, noise))
    limit = 1 / (2 * 60.0**2) + 2 / 40.0**2
    floor = max(exact, limit) if noise == "gaussian" else exact
    assert floor <= rho <= 1.01 * floor
    few = AboveThreshold(1, 40.0, 60.0, noise)  # here it costs less to release all queries
    released = PureDP(few.pure()).zcdp() if noise == "laplace" else 1 / (2 * 40.0**2)
    assert _zcdp.__wrapped__(few) == pytest.approx(min(released, rho), rel=1e-9)


def test_cost_grows_with_queries_and_shrinks_with_noise():
    for noise in ("laplace", "gaussian"):
        for order in (1.5, 8.0):
            by_queries = [AboveThreshold(k, 10.0, 5.0, noise).rdp(order) for k in (1, 2, 5, 30, 64, 70, 500, 5000)]
            assert np.all(np.diff(by_queries) >= -1e-6 * np.array(by_queries[1:]))
            by_noise = [AboveThreshold(10, s, s / 2, noise).rdp(order) for s in np.geomspace(0.01, 1e5, 25)]
            assert np.all(np.diff(by_noise) < 0)


def test_scales_at_both_ends_give_numbers():
    for noise in ("laplace", "gaussian"):
        for query in (2.0**-10, 2.0**40):
            for threshold in (0.0, 2.0**-10, 2.0**40):
                for queries in (1, 40):
                    cost = AboveThreshold(queries, query, threshold, noise)
                    for order in (1.0001, 2.0, 1e6):
                        assert 0 < cost.rdp(order) < math.inf
                    assert 0 < cost.mu_squared() < math.inf
                    assert (cost.pure() < math.inf) == (noise == "laplace")
                if query < 1:
                    assert 0 < cost.zcdp() < math.inf


@pytest.mark.parametrize("bad", [0, -1, 2.5, math.nan, math.inf, "3", None])
def test_bad_numbers_of_queries_are_refused(bad):
    with pytest.raises(InvalidParameter, match="max_queries"):
        AboveThreshold(bad, 1.0, 1.0)


@pytest.mark.parametrize("bad", [-1.0, 2.0**-11, 2.0**41, math.nan, math.inf, "1", None])
@pytest.mark.parametrize("name", ["query_scale", "threshold_scale"])
def test_bad_scales_are_refused(name, bad):
    with pytest.raises(InvalidParameter, match=name):
        AboveThreshold(**({"max_queries": 3, "query_scale": 1.0, "threshold_scale": 1.0} | {name: bad}))


def test_other_bad_settings_are_refused():
    with pytest.raises(InvalidParameter, match="query_scale"):
        AboveThreshold(3, 0.0, 1.0)
    with pytest.raises(InvalidParameter, match="noise"):
        AboveThreshold(3, 1.0, 1.0, "gumbel")
