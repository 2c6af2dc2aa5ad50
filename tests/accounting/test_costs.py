"""Costs, currencies and calibration: upper bounds in every currency, plain data, named refusals."""

from __future__ import annotations

import dataclasses
import json
import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import logsumexp, ndtri

from dpdescent.accounting import (
    ALLOWANCE,
    GDP,
    RDP,
    ZCDP,
    AboveThreshold,
    AdvancedComposition,
    ApproximateDP,
    Composed,
    ExponentialMechanism,
    FilteredRun,
    FixedSchedule,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NormLaplace,
    ObjectivePerturbation,
    PoissonSampled,
    Pure,
    PureDP,
    PureObjectivePerturbation,
    RandomStopping,
    ReportNoisyMax,
    ShuffledDescent,
    calibrate,
    cost_from_dict,
    currencies,
    currency_from_dict,
    currency_named,
    epsilon_to_gdp,
    epsilon_to_rdp,
    gdp_to_delta,
    round_up,
    strongest,
)
from dpdescent.accounting.costs import kinds_of
from dpdescent.accounting.divergences import laplace_rdp
from dpdescent.errors import InvalidParameter, LedgerFormatError, UnknownRelation, UnsupportedCost
from dpdescent.ledger import Ledger
from dpdescent.relations import Norm, Relation, Sensitivity
from exact_laws import both_ways

EXACT = {"derandomize": True, "deadline": None}
ORDERS = (1.0001, 1.5, 2, 8, 64, 1e4)
EPSILON_FAMILIES = [PureDP, Laplace, NormLaplace, ReportNoisyMax, ExponentialMechanism]
EVERY_COST = [
    Gaussian(1.7),
    PureDP(0.3),
    Laplace(0.3),
    NormLaplace(0.3),
    ReportNoisyMax(0.3),
    ReportNoisyMax(0.3, noise="exponential"),
    ExponentialMechanism(0.3),
    AboveThreshold(7, 4.0, 2.0),
    AboveThreshold(7, 4.0, 0.0, "gaussian"),
    Composed((Gaussian(2.0), Composed((Laplace(0.1), ExponentialMechanism(0.2))))),
    PoissonSampled(0.01, (Gaussian(1.0), PureDP(0.5))),
    FixedSizeSampled(0.01, (Gaussian(1.0), Gaussian(3.0))),
]


@pytest.mark.parametrize("cost", EVERY_COST, ids=lambda c: c.kind)
def test_every_cost_survives_json(cost):
    again = cost_from_dict(json.loads(json.dumps(cost.to_dict())))
    assert again == cost
    assert type(again) is type(cost)
    assert hash(again) == hash(cost)
    assert (again.zcdp(), again.rdp(3), again.delta) == (cost.zcdp(), cost.rdp(3), cost.delta)


@pytest.mark.parametrize(
    "junk",
    [
        {},
        5,
        None,
        "gaussian",
        [["kind", "gaussian"]],
        {"kind": "unheard-of"},
        {"kind": ["gaussian"]},
        {"kind": "gaussian"},
        {"kind": "gaussian", "noise_multiplier": "3"},
        {"kind": "gaussian", "noise_multiplier": None},
        {"kind": "gaussian", "noise_multiplier": -1.0},
        {"kind": "gaussian", "noise_multiplier": math.nan},
        {"kind": "gaussian", "noise_multiplier": 10**400},
        {"kind": "gaussian", "noise_multiplier": 1.0, "extra": 1},
        {"kind": "gaussian", "noise_multiplier": [1.0]},
        {"kind": "composed", "parts": []},
        {"kind": "composed", "parts": {}},
        {"kind": "composed", "parts": ["gaussian"]},
        {"kind": "poisson-sampled", "rate": 2.0, "parts": [{"kind": "gaussian", "noise_multiplier": 1.0}]},
        {"kind": "above-threshold", "max_queries": 3, "query_scale": 1.0, "threshold_scale": 1.0, "monotone": "no"},
        {"kind": "above-threshold", "max_queries": 2.5, "query_scale": 1.0, "threshold_scale": 1.0},
    ],
)
def test_junk_records_are_refused_by_name(junk):
    with pytest.raises(LedgerFormatError):
        cost_from_dict(junk)


def test_numpy_numbers_become_plain_ones():
    for cost in (
        Gaussian(np.float32(0.5)),
        Laplace(np.float64(0.25)),
        AboveThreshold(np.int64(5), np.float32(2), np.float32(1)),
        PoissonSampled(np.float32(0.5), (Gaussian(2),)),
        Gaussian(np.array(0.5)),
    ):
        assert cost_from_dict(json.loads(json.dumps(cost.to_dict()))) == cost
        assert cost.rdp(2) > 0
        assert cost.zcdp() > 0


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf, "1", None])
@pytest.mark.parametrize("family", [Gaussian, *EPSILON_FAMILIES])
def test_bad_strengths_are_refused(family, bad):
    with pytest.raises(InvalidParameter):
        family(bad)


def test_other_bad_settings_are_refused():
    for parts in ((), [Gaussian(1.0)], (Gaussian(1.0), "laplace"), None):
        with pytest.raises(InvalidParameter, match="parts"):
            Composed(parts)
    with pytest.raises(InvalidParameter, match="noise"):
        ReportNoisyMax(1.0, noise="gumbel")
    for cost in EVERY_COST:
        for order in (1.0, 0.0, -2.0, math.nan, math.inf):
            with pytest.raises(InvalidParameter, match="order"):
                cost.rdp(order)


def test_composition_keeps_only_the_relations_of_all_its_parts():
    poisson, fixed = PoissonSampled(0.1, (Gaussian(1.0),)), FixedSizeSampled(0.1, (Gaussian(1.0),))
    assert Gaussian(1.0).relations == frozenset(Relation)
    assert Composed((poisson, Gaussian(1.0))).relations == {Relation.ZERO_OUT}
    assert Composed((Composed((fixed,)),)).relations == {Relation.REPLACE_ONE}
    for build in (
        lambda: Composed((poisson, fixed)),
        lambda: FixedSizeSampled(0.1, (poisson,)),
        lambda: PoissonSampled(0.1, (Composed((fixed,)),)),
    ):
        with pytest.raises(InvalidParameter, match="relation"):
            build()
    with pytest.raises(InvalidParameter, match="zero-out"):
        Ledger(1.0, 1e-6, relation="replace-one").spend(Composed((poisson,)))


@settings(max_examples=200, **EXACT)
@given(sigma=st.floats(-4, 12).map(lambda x: 10.0**x))
def test_gaussian_costs_are_the_next_float_up(sigma):
    cost = Gaussian(sigma)
    exact = 1 / (2 * Fraction(sigma) ** 2)
    assert math.nextafter(cost.zcdp(), 0) < exact <= Fraction(cost.zcdp())
    assert math.nextafter(cost.mu_squared(), 0) < 2 * exact <= Fraction(cost.mu_squared())
    assert exact * 7 <= Fraction(cost.rdp(7)) <= exact * 7 * (1 + Fraction(1, 10**12))


@settings(max_examples=100, **EXACT)
@given(epsilon=st.floats(-8.0, math.log10(500)).map(lambda x: 10.0**x))
def test_costs_are_ordered_as_the_theorems_say(epsilon):
    pure, laplace, selection = PureDP(epsilon), Laplace(epsilon), ExponentialMechanism(epsilon)
    for order in ORDERS:
        assert laplace.rdp(order) <= pure.rdp(order) <= order * pure.zcdp() * (1 + 1e-12)
        assert selection.rdp(order) <= pure.rdp(order) * (1 + 1e-12)
        assert selection.rdp(order) <= order * selection.zcdp() * (1 + 1e-12)
        assert pure.rdp(order) <= epsilon * (1 + 1e-12)
    assert selection.mu_squared() <= pure.mu_squared()
    # D_2 of a mu-GDP mechanism is at most that of a Gaussian shift by mu.
    assert pure.rdp(2) <= pure.mu_squared() * (1 + 1e-12)
    assert selection.rdp(2) <= selection.mu_squared() * (1 + 1e-12)
    assert pure.pure() == laplace.pure() == selection.pure() == epsilon


@pytest.mark.parametrize("family", [*EPSILON_FAMILIES, lambda s: Gaussian(1 / s)])
def test_costs_grow_as_noise_shrinks(family):
    strengths = np.geomspace(1e-8, 16 if family is NormLaplace else 500, 250)
    costs = [family(s) for s in strengths]
    prices = [lambda c: c.zcdp(), lambda c: c.mu_squared(), *(lambda c, a=a: c.rdp(a) for a in ORDERS)]
    for price in prices:
        values = np.array([price(cost) for cost in costs])
        assert np.all(np.isfinite(values))
        assert np.all(np.diff(values) > 0)


def test_composition_adds_exactly_and_rounds_up():
    parts = (Gaussian(3.0), Laplace(0.1), ExponentialMechanism(0.7), NormLaplace(0.2))
    whole = Composed(parts)
    for price in (lambda c: c.zcdp(), lambda c: c.mu_squared(), lambda c: c.rdp(5)):
        exact = sum(Fraction(price(part)) for part in parts)
        assert math.nextafter(price(whole), 0) < exact <= Fraction(price(whole))
    assert whole.pure() == math.inf
    assert Composed(parts[1:]).pure() == pytest.approx(1.0, rel=1e-15)
    assert whole.delta == 1e-27
    assert Composed((whole, whole)).delta == 2e-27


def test_extreme_strengths_never_overflow():
    assert Gaussian(1e-200).zcdp() == Gaussian(1e-200).mu_squared() == Gaussian(1e-200).rdp(2) == math.inf
    assert 0 < Gaussian(1e200).zcdp() < 1e-300
    assert PureDP(1e5).rdp(2) <= PureDP(1e5).zcdp() <= 1.0000001e5
    assert math.isfinite(PureDP(5000.0).mu_squared())
    assert ExponentialMechanism(1e200).zcdp() == math.inf
    assert ExponentialMechanism(1e200).rdp(2) <= 1e200 * (1 + 1e-12)
    with pytest.raises(UnsupportedCost):
        PureDP(1e305).mu_squared()
    assert round_up(Fraction(10) ** 400) == math.inf


def test_exponential_mechanism_law_never_exceeds_its_charge():
    generator = np.random.default_rng(7)
    worst = 0.0
    for _ in range(600):
        epsilon = 10 ** generator.uniform(-2, 1)
        cost = ExponentialMechanism(epsilon)
        size = generator.integers(2, 9)
        scores = generator.normal(scale=3 * generator.random(), size=size)
        # Scores of neighbours differ by a vector of range at most one.
        change = generator.random(size) if generator.random() < 0.5 else generator.integers(0, 2, size)
        log_p, log_q = -epsilon * scores, -epsilon * (scores + change)
        log_p, log_q = log_p - logsumexp(log_p), log_q - logsumexp(log_q)
        assert np.abs(log_p - log_q).max() <= cost.pure() * (1 + 1e-12)
        for order in (1.01, 2, 8, 64):
            exact = both_ways(log_p, log_q, order)
            assert exact <= cost.rdp(order) + 1e-13
            assert exact <= order * cost.zcdp() + 1e-13
            worst = max(worst, exact / cost.rdp(order))
    assert worst > 0.9  # the bound is nearly attained, so half of it would be caught


def test_report_noisy_max_with_exponential_noise_has_the_published_law():
    # P(second wins) with score gap g and scale b: the first must stay below, exp(-g/b)/2 for memoryless noise.
    def law(gap: float, scale: float) -> tuple[float, float]:
        second = math.exp(-gap / scale) / 2
        return 1 - second, second

    assert law(0.7, 0.8) == pytest.approx((0.79156899, 0.20843101), abs=6e-9)
    nodes, weights = np.polynomial.laguerre.laggauss(64)
    by_quadrature = float(np.sum(weights * np.exp(-0.7 / 0.8) * np.exp(-nodes)))
    assert by_quadrature == pytest.approx(law(0.7, 0.8)[1], rel=1e-12)
    # All scores move one way: at scale range/epsilon the loss never exceeds epsilon.
    for epsilon in (0.1, 0.5, 2.0):
        cost = ReportNoisyMax(epsilon, noise="exponential")
        for gap in np.linspace(0, 3, 61):
            p, q = np.log(law(gap, 1 / epsilon)), np.log(law(gap + 1, 1 / epsilon))
            assert np.abs(p - q).max() <= cost.pure() * (1 + 1e-12)
            for order in (1.5, 2, 16):
                assert both_ways(p, q, order) <= min(cost.rdp(order), order * cost.zcdp())


@pytest.mark.parametrize("currency", [ZCDP(), GDP(), RDP(8.0), RDP(1.5)], ids=lambda c: repr(c))
@pytest.mark.parametrize("amount", [1e-12, 1e-6, 1e-3, 0.1, 3.0, 100.0])
def test_calibration_spends_everything_and_never_more(currency, amount):
    for cost in (currency.gaussian(amount), currency.selection(amount), currency.laplace(amount)):
        assert amount * (1 - 1e-12) <= currency.price(cost) <= amount


@pytest.mark.parametrize("currency", ["zcdp", "gdp", "rdp", "pure"])
@pytest.mark.parametrize("shares", [3, 7, 11, 49])
def test_all_shares_of_a_budget_fit_together(currency, shares):
    for epsilon in (0.1, 0.7, 1.0, 3.0):
        ledger = Ledger(epsilon, 1e-6, currency=currency)
        for _ in range(shares):
            ledger.spend(ledger.currency.laplace(ledger.budget / shares))
        assert ledger.remaining <= 1e-11 * ledger.budget


def test_calibration_reaches_budgets_far_beyond_use():
    for amount in (1e-30, 3000.0, 1e6):
        assert amount * (1 - 1e-9) <= GDP().price(GDP().selection(amount)) <= amount


@settings(max_examples=60, **EXACT)
@given(amount=st.floats(-10, 2).map(lambda x: 10.0**x))
def test_calibration_of_a_search_stays_within_its_amount(amount):
    cost = calibrate(lambda s: AboveThreshold(5, 2 / s, 1 / s), amount, Pure())
    assert amount * (1 - 1e-12) <= cost.pure() <= amount


def test_published_scales_of_selection_follow_from_zcdp():
    # C/sqrt(8 rho) under zero-out, that is epsilon = sqrt(8 rho).
    assert ZCDP().selection(0.01).epsilon == pytest.approx(math.sqrt(0.08), rel=1e-14)
    assert ZCDP().gaussian(0.01).noise_multiplier == pytest.approx(1 / math.sqrt(0.02), rel=1e-14)
    mu = -2 * ndtri(1 / (1 + math.exp(0.5)))
    assert ExponentialMechanism(1.0).mu_squared() == pytest.approx(mu**2, rel=1e-13)


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_bad_amounts_are_refused(bad):
    with pytest.raises(InvalidParameter, match="amount"):
        ZCDP().gaussian(bad)


@settings(max_examples=80, **EXACT)
@given(
    epsilon=st.floats(-3, math.log10(500)).map(lambda x: 10.0**x), delta=st.floats(-23, -0.05).map(lambda x: 10.0**x)
)
def test_a_budget_converts_back_to_no_more_than_it_came_from(epsilon, delta):
    for name in ("zcdp", "gdp", "rdp", "pure"):
        currency = currency_named(name, epsilon, delta)
        assert currency.epsilon(currency.budget(epsilon, delta), delta) <= epsilon


def test_a_gaussian_total_and_its_root_are_never_rounded_to_the_cheap_side(monkeypatch):
    roots = []
    monkeypatch.setattr(currencies, "gdp_to_epsilon", lambda mu, _: roots.append(mu))
    for exponent in range(-90, 40):
        total = 10.0 ** (exponent / 10)
        GDP().epsilon(total, 1e-6)
        assert Fraction(total) <= Fraction(roots[-1]) ** 2 <= Fraction(total) * (1 + Fraction(1, 2**48))
        root = Fraction(epsilon_to_gdp(total, 1e-6)) ** 2
        assert root * (1 - Fraction(1, 10**10)) <= Fraction(GDP().budget(total, 1e-6)) <= root


EVERY_THEOREM = [
    ApproximateDP(1.0, 1e-6),
    AdvancedComposition(2.0, 0.1, 5, 1e-6),
    ObjectivePerturbation(2.0, 9.0, 0.1, 3, "replace-one", 1e-6),
    PureObjectivePerturbation(1.0, 0.1, 0.1),
    ShuffledDescent(2.0, 3, 7),
    RandomStopping(0.1, 0.2, 1e-6, 1e-12),
    FixedSchedule((Gaussian(2.0),), 3, 1e-6),
    FilteredRun("rdp", 1.0, 1e-9, 8.0),
]
MAY_BE_ZERO = {"failure", "run_failure", "log_determinant", "threshold_scale"}


@pytest.mark.parametrize("cost", [*EVERY_COST, *EVERY_THEOREM], ids=lambda cost: cost.kind)
def test_no_number_of_a_cost_may_lie_outside_its_domain(cost):
    for field in dataclasses.fields(cost):
        value = getattr(cost, field.name)
        if isinstance(value, int | float):
            wrong = [math.nan, math.inf, -1.0, "1"]
            wrong += [] if field.name in MAY_BE_ZERO else [0]
            wrong += [1.5] if isinstance(value, int) else []
            wrong += [1.0] if field.name in {"failure", "run_failure", "tails", "output_share", "order"} else []
            wrong += [1.01] if field.name == "rate" else []
            for bad in wrong:
                with pytest.raises(InvalidParameter):
                    dataclasses.replace(cost, **{field.name: bad})


def test_a_filtered_run_has_a_price_in_its_own_currency_alone():
    names = ("zcdp", "gdp", "rdp", "pure", "approximate")
    for name in names:
        order = 8.0 if name == "rdp" else None
        run = FilteredRun(name, 0.7, 1e-9, order)
        assert run.delta == 1e-9
        for other in names:
            currency = currency_named(other, 1.0, 1e-6, 8.0 if other == "rdp" else None)
            if other == name or {other, name} == {"pure", "approximate"}:
                assert currency.price(run) == 0.7
            else:
                with pytest.raises(UnsupportedCost):
                    currency.price(run)
        with pytest.raises(InvalidParameter, match="order"):
            FilteredRun(name, 0.7, 0.0, None if order else 8.0)
    with pytest.raises(UnsupportedCost):
        FilteredRun("rdp", 0.7, 0.0, 8.0).rdp(4.0)
    with pytest.raises(InvalidParameter, match="currency"):
        FilteredRun("renyi", 0.7)


def test_passes_in_random_order_are_charged_their_largest_shift_where_orders_do_not_count():
    for noise in (1e-3, 0.7, 3.0, 41.0):
        cost = ShuffledDescent(noise, 3, 7)
        exact = (Fraction(1 + ALLOWANCE) / Fraction(noise)) ** 2
        assert math.nextafter(cost.mu_squared(), 0) < exact <= Fraction(cost.mu_squared())
        assert math.nextafter(cost.zcdp(), 0) < exact / 2 <= Fraction(cost.zcdp())
        for order in (1.001, 2.0, 30.0, 1e4):
            assert cost.rdp(order) <= order * float(exact) / 2 * (1 + 2e-9) + 1e-14


@pytest.mark.parametrize("corners", [1, 3])
def test_objective_perturbation_counts_every_pair_of_corners(corners):
    for noise, output, excess in ((2.0, 9.0, 0.1), (0.7, 3.0, 1.0), (20.0, 30.0, 0.01)):
        plain, once, twice = (gdp_to_delta(math.hypot(m / noise, 1 / output), excess) for m in (0, 1, 2))
        expected = {
            "zero-out": plain + corners * once,
            "replace-one": plain + 2 * corners * once + corners**2 * twice,
        }
        for relation, delta in expected.items():
            cost = ObjectivePerturbation(noise, output, 0.1, corners, relation, 1e-6)
            assert delta <= cost.delta_at(excess) <= delta * (1 + 1e-8)
            assert cost.relations == {Relation(relation)}


def test_the_strongest_mechanism_on_a_batch_is_paid_for_and_no_stronger_than_asked():
    def family(strength):
        return Gaussian(1 / strength)

    def charged(cost):
        return PoissonSampled(0.1, (cost,))

    for amount in (1e-6, 1e-3, 0.1, 3.0):
        found = strongest(family, charged, amount, RDP(8.0), 2.0**30)
        assert amount * (1 - 1e-9) <= RDP(8.0).price(charged(found)) <= amount
    assert strongest(family, charged, 3.0, RDP(8.0), 0.25) == Gaussian(4.0)
    with pytest.raises(InvalidParameter, match="amount"):
        strongest(family, charged, 0.0, RDP(8.0), 0.25)


def test_currencies_survive_json_and_bad_ones_are_named():
    for currency in (ZCDP(), GDP(), Pure(), RDP(7.5)):
        assert currency_from_dict(json.loads(json.dumps(currency.to_dict()))) == currency
        assert currency_named(currency, 1.0, 1e-5) is currency
    for name in ("renyi", "", None, 3, ["zcdp"]):
        with pytest.raises(InvalidParameter, match="unknown currency"):
            currency_named(name, 1.0, 1e-5)
    with pytest.raises(InvalidParameter, match="order"):
        currency_named("zcdp", 1.0, 1e-5, order=3.0)
    for order in (1.0, 0.5, math.nan, "8"):
        with pytest.raises(InvalidParameter, match="order"):
            currency_named("rdp", 1.0, 1e-5, order=order)
        with pytest.raises(InvalidParameter, match="order"):
            RDP(order)
    with pytest.raises(UnsupportedCost, match="pure"):
        Pure().price(Gaussian(1.0))


def test_norm_laplace_noise_is_refused_right_above_the_epsilon_that_its_ladder_was_checked_for():
    assert NormLaplace(16.0).pure() == 16.0
    with pytest.raises(InvalidParameter, match="up to 16"):
        NormLaplace(math.nextafter(16.0, math.inf))


def test_many_orders_at_once_are_not_a_filter():
    epsilon, delta = 2.0, 1e-4
    bit = np.log([0.99, 0.01]), np.log([0.992, 0.008])
    branches = {10: (0.99, 0.992, 0.0010144275, 0.0001248161), 40: (0.01, 0.008, 0.3545566038, 0.0583440118)}
    excess = 0.0
    for order, (p_bit, q_bit, x, y) in branches.items():
        spent = both_ways(*bit, order) + both_ways(np.log([x, 1 - x]), np.log([y, 1 - y]), order)
        assert spent <= epsilon_to_rdp(epsilon, delta, order) * (1 + 1e-6)
        excess += p_bit * x - math.exp(epsilon) * q_bit * y
    assert excess == pytest.approx(1.861e-4, abs=6e-8)
    assert excess > 1.8 * delta


def test_replacing_a_row_is_never_cheaper_than_removing_it():
    builders = [
        Sensitivity.of_clipped_sum,
        Sensitivity.of_positive_semidefinite_sum,
        Sensitivity.of_scores,
        Sensitivity.of_bounded_sum,
        Sensitivity.of_signed_sum,
    ]
    for build in builders:
        for size in (1e-300, 1e-6, 1.0, 3.7, 1e300):
            sensitivity = build(size)
            assert sensitivity.under(Relation.ZERO_OUT) == size
            assert sensitivity.under("replace-one") >= sensitivity.under("zero-out")
        for bad in (0.0, -1.0, math.nan, math.inf):
            with pytest.raises(InvalidParameter, match="sensitivity"):
                build(bad)
    assert Fraction(Sensitivity.of_positive_semidefinite_sum(3.0).replace_one) ** 2 >= 18
    with pytest.raises(InvalidParameter, match="replace-one"):
        Sensitivity(Norm.L2, 2.0, 1.0)
    for bad in ("add-remove", "", None, 3, ["zero-out"]):
        with pytest.raises(UnknownRelation, match="zero-out"):
            Relation.parse(bad)


def test_laplace_noise_is_charged_its_own_curve_on_the_coarsest_lattice_and_parts_are_counted_one_by_one():
    for epsilon, order in ((0.01, 2.0), (0.5, 2.0), (1.0, 1.2), (3.0, 40.0)):
        curve = laplace_rdp(epsilon, order, 2.0**20)
        assert curve <= Laplace(epsilon).rdp(order) <= curve * (1 + 1e-11) < PureDP(epsilon).rdp(order) * 0.999
    both = Composed((Gaussian(1.0), Composed((Laplace(0.5), PureDP(1.0)))))
    assert kinds_of(both) == ["gaussian", "laplace", "pure"]
