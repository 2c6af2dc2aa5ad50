"""Conversions to and from (epsilon, delta): exact values, and never a gain on the way back."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st

from dpdescent.accounting import (
    best_order,
    epsilon_to_gdp,
    epsilon_to_rdp,
    epsilon_to_zcdp,
    gaussian_noise_multiplier,
    gdp_to_delta,
    gdp_to_epsilon,
    rdp_to_delta,
    rdp_to_epsilon,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dpdescent.errors import InvalidParameter

EPSILONS = st.floats(-8.0, math.log10(500)).map(lambda x: 10.0**x)
DELTAS = st.one_of(st.floats(-30.0, -1.0).map(lambda x: 10.0**x), st.floats(0.1, 0.9))
EXACT = {"derandomize": True, "deadline": None}


def exact_gdp_delta(mu: float, epsilon: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        m, e = mpmath.mpf(mu), mpmath.mpf(epsilon)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


def exact_log_delta(divergence: mpmath.mpf, order: mpmath.mpf, epsilon: float) -> mpmath.mpf:
    return (order - 1) * (divergence - epsilon) + order * mpmath.log1p(-1 / order) - mpmath.log(order - 1)


def c_delta(delta: float) -> float:
    return math.sqrt(math.log(2 / (math.sqrt(16 * delta + 1) - 1)))


def closed_form_sigma(epsilon: float, delta: float) -> float:
    c = c_delta(delta)
    return (c + math.sqrt(c * c + epsilon)) / (math.sqrt(2) * epsilon)


def test_published_values_are_reproduced():
    assert zcdp_to_epsilon(0.1, 1e-6) == pytest.approx(2.1419389284, abs=6e-11)
    assert 0.1 + 2 * math.sqrt(0.1 * math.log(1e6)) == pytest.approx(2.4507880005, abs=6e-11)
    assert epsilon_to_zcdp(1.0, 1e-8) == pytest.approx(0.0172053180, abs=6e-11)
    assert epsilon_to_gdp(1.0, 1e-8) == pytest.approx(0.1960665602, abs=6e-11)
    assert rdp_to_epsilon(0.5, 10, 1e-5) == pytest.approx(1.4180106368, abs=6e-11)


@pytest.mark.parametrize(
    ("epsilon", "classical", "concentrated", "gaussian"),
    [
        (0.05, 3.38832866e-5, 5.52612480e-5, 6.30111479e-5),
        (0.1, 1.35349889e-4, 2.08816381e-4, 2.36939755e-4),
        (0.2, 5.39940892e-4, 7.89864031e-4, 8.92073871e-4),
        (0.4, 2.14821113e-3, 2.98564557e-3, 3.35658401e-3),
        (0.8, 8.50224677e-3, 1.12443888e-2, 1.25818821e-2),
        (1.6, 3.33119013e-2, 4.19757763e-2, 4.67249574e-2),
    ],
)
def test_rho_available_at_delta_one_in_a_hundred_million(epsilon, classical, concentrated, gaussian):
    log_inverse = math.log(1e8)
    assert (math.sqrt(log_inverse + epsilon) - math.sqrt(log_inverse)) ** 2 == pytest.approx(classical, rel=1e-8)
    assert epsilon_to_zcdp(epsilon, 1e-8) == pytest.approx(concentrated, rel=2e-9)
    assert epsilon_to_gdp(epsilon, 1e-8) ** 2 / 2 == pytest.approx(gaussian, rel=2e-9)


def test_closed_form_gaussian_noise_is_valid_and_loose():
    assert c_delta(1e-5) == pytest.approx(3.182243093, abs=6e-10)
    assert closed_form_sigma(1, 1e-5) == pytest.approx(4.608858083, abs=6e-10)
    assert gaussian_noise_multiplier(1, 1e-5) == pytest.approx(3.730631635, abs=6e-10)
    for epsilon, delta, ratio in [(1, 1e-5, 1.2354), (1, 1e-8, 1.16), (0.1, 1e-5, 1.467)]:
        sigma = closed_form_sigma(epsilon, delta)
        assert gdp_to_delta(1 / sigma, epsilon) < delta
        digits = len(str(ratio).split(".")[1])
        assert sigma / gaussian_noise_multiplier(epsilon, delta) == pytest.approx(ratio, abs=0.51 * 10**-digits)


@pytest.mark.parametrize(
    ("epsilon", "delta", "true_delta", "true_epsilon"),
    [
        (1, 1e-5, 7.4418e-5, 1.16024),
        (1, 1e-8, 1.2009e-6, 1.23168),
        (10, 1e-5, 2.6461e-3, 13.9346),
        (0.5, 1e-10, 3.9118e-8, 0.615649),
    ],
)
def test_noise_short_by_root_two_breaks_the_promise(epsilon, delta, true_delta, true_epsilon):
    mu = math.sqrt(2) / closed_form_sigma(epsilon, delta)
    assert gdp_to_delta(mu, epsilon) == pytest.approx(true_delta, rel=2e-5)
    assert gdp_to_epsilon(mu, delta) == pytest.approx(true_epsilon, rel=5e-6)
    assert gdp_to_delta(mu, epsilon) > delta


def test_short_noise_example_to_all_digits():
    sigma = closed_form_sigma(1, 1e-5) / math.sqrt(2)
    assert sigma == pytest.approx(3.258954804, abs=6e-10)
    assert gdp_to_delta(1 / sigma, 1) == pytest.approx(7.441835e-5, abs=6e-12)


@settings(max_examples=300, **EXACT)
@given(mu=st.floats(-5.0, 1.8).map(lambda x: 10.0**x), epsilon=EPSILONS)
def test_gaussian_delta_is_never_below_fifty_digit_arithmetic(mu, epsilon):
    exact = exact_gdp_delta(mu, epsilon)
    ours = gdp_to_delta(mu, epsilon)
    if exact > 1e-290:
        assert ours >= exact
        # What is added stays below rounding of the two nearly equal tails, whose difference is about mu.
        assert ours <= exact * (1 + 1e-12 + 1e-13 * max(1.0, epsilon) / min(mu, 1.0)) + 2e-15


@pytest.mark.parametrize("offset", [1e-9, 1e-4, 0.02, 0.3, 2.0])
@pytest.mark.parametrize("mu", [1e-3, 1.0, 20.0, 31.7, 60.0])
def test_gaussian_delta_is_exact_where_its_argument_cancels(mu, offset):
    epsilon = mu * mu / 2 + offset * mu
    exact = exact_gdp_delta(mu, epsilon)
    assert exact <= gdp_to_delta(mu, epsilon) <= exact * (1 + 1e-10)


@settings(max_examples=150, **EXACT)
@given(epsilon=EPSILONS, delta=DELTAS)
def test_converting_a_budget_back_never_gains(epsilon, delta):
    rho, mu = epsilon_to_zcdp(epsilon, delta), epsilon_to_gdp(epsilon, delta)
    assert 0 < rho < math.inf
    assert 0 < mu < math.inf
    assert epsilon * (1 - 1e-5) - 1e-9 <= zcdp_to_epsilon(rho, delta) <= epsilon
    assert epsilon * (1 - 1e-5) - 1e-9 <= gdp_to_epsilon(mu, delta) <= epsilon
    assert exact_gdp_delta(mu, epsilon) <= delta
    assert zcdp_to_delta(rho, epsilon) <= delta * (1 + 1e-9)
    # Gaussian noise of rho-zCDP is exactly sqrt(2 rho)-GDP, so the exact curve never affords less.
    assert mu * mu / 2 >= rho * (1 - 1e-9)
    order = best_order(epsilon, delta)
    divergence = epsilon_to_rdp(epsilon, delta, order)
    assert epsilon * (1 - 1e-9) - 1e-9 <= rdp_to_epsilon(divergence, order, delta) <= epsilon


@settings(max_examples=150, **EXACT)
@given(epsilon=EPSILONS, delta=DELTAS)
def test_zcdp_conversion_is_never_below_any_order_in_fifty_digits(epsilon, delta):
    rho = epsilon_to_zcdp(epsilon, delta)
    with mpmath.workdps(50):
        log_excess = mpmath.mpf(math.log(best_order(epsilon, delta) - 0.5))
        # Somewhere near the best order rho is certified; nowhere is more than rho (1 + 1e-6) certified.
        orders = [1 + mpmath.exp(log_excess + mpmath.mpf(i) / 20) for i in range(-100, 101)]
        certified = max(
            (epsilon + (mpmath.log(delta) + mpmath.log(a)) / (a - 1) - mpmath.log1p(-1 / a)) / a for a in orders
        )
        assert certified <= rho * (1 + mpmath.mpf("1e-6"))


@settings(max_examples=200, **EXACT)
@given(
    divergence=st.floats(-8.0, 2.0).map(lambda x: 10.0**x),
    order=st.floats(-4.0, 6.0).map(lambda x: 1 + 10.0**x),
    epsilon=EPSILONS,
    delta=DELTAS,
)
def test_one_order_conversion_is_never_below_fifty_digit_arithmetic(divergence, order, epsilon, delta):
    with mpmath.workdps(50):
        a, d = mpmath.mpf(order), mpmath.mpf(delta)
        exact = max(0, divergence + mpmath.log1p(-1 / a) - (mpmath.log(d) + mpmath.log(a)) / (a - 1))
        assert exact <= rdp_to_epsilon(divergence, order, delta) <= exact * (1 + 1e-9) + 1e-6
        log_delta = exact_log_delta(mpmath.mpf(divergence), a, epsilon)
        ours = rdp_to_delta(divergence, order, epsilon)
        if log_delta > -600:
            assert min(mpmath.mpf(1), mpmath.exp(log_delta)) <= ours <= mpmath.exp(log_delta) * (1 + 1e-7)


def test_delta_and_epsilon_conversions_invert_each_other():
    for rho in np.geomspace(1e-6, 10, 15):
        for delta in (1e-12, 1e-6, 1e-2):
            epsilon = zcdp_to_epsilon(rho, delta)
            if epsilon > 0:
                assert zcdp_to_delta(rho, epsilon) == pytest.approx(delta, rel=1e-8)
            mu = math.sqrt(2 * rho)
            assert gdp_to_epsilon(mu, delta) <= epsilon
            if gdp_to_epsilon(mu, delta) > 0:
                assert gdp_to_delta(mu, gdp_to_epsilon(mu, delta)) == pytest.approx(delta, rel=1e-8)


def test_more_budget_needs_more_epsilon():
    budgets = np.geomspace(1e-9, 50, 60)
    assert np.all(np.diff([zcdp_to_epsilon(r, 1e-8) for r in budgets]) > 0)
    assert np.all(np.diff([gdp_to_epsilon(m, 1e-8) for m in budgets[20:]]) > 0)


def test_nothing_spent_costs_nothing_and_extremes_stay_finite():
    assert zcdp_to_epsilon(0.0, 1e-9) == zcdp_to_delta(0.0, 1.0) == 0.0
    assert gdp_to_epsilon(0.0, 1e-9) == gdp_to_delta(0.0, 1.0) == 0.0
    assert 0.0 < gdp_to_delta(1e-320, 500.0) < 1e-300
    assert gdp_to_delta(1e5, 1.0) == 1.0
    assert 0.0 < gdp_to_delta(1e-160, 1.0) < 1e-300
    assert zcdp_to_delta(1e300, 1.0) == 1.0
    assert 0.5e10 < gdp_to_epsilon(1e5, 1e-6) < 0.51e10


def test_an_order_too_small_to_certify_epsilon_is_named():
    with pytest.raises(InvalidParameter, match="best_order"):
        epsilon_to_rdp(0.1, 1e-8, 2)


BAD = [math.nan, math.inf, -math.inf, -1.0, "1", None]


@pytest.mark.parametrize("bad", [*BAD, 0.0])
@pytest.mark.parametrize("convert", [epsilon_to_zcdp, epsilon_to_gdp, best_order, gaussian_noise_multiplier])
def test_bad_epsilon_is_refused(convert, bad):
    with pytest.raises(InvalidParameter, match="epsilon"):
        convert(bad, 1e-6)


@pytest.mark.parametrize("bad", [*BAD, 0.0, 1.0, 1.5])
@pytest.mark.parametrize("convert", [epsilon_to_zcdp, epsilon_to_gdp, zcdp_to_epsilon, gdp_to_epsilon, best_order])
def test_bad_delta_is_refused(convert, bad):
    with pytest.raises(InvalidParameter, match="delta"):
        convert(1.0, bad)


@pytest.mark.parametrize("bad", BAD)
@pytest.mark.parametrize("convert", [zcdp_to_epsilon, gdp_to_epsilon, zcdp_to_delta, gdp_to_delta])
def test_bad_budget_is_refused(convert, bad):
    with pytest.raises(InvalidParameter):
        convert(bad, 0.5)


@pytest.mark.parametrize("bad", [*BAD, 0.5, 1.0])
def test_bad_order_is_refused(bad):
    with pytest.raises(InvalidParameter, match="order"):
        rdp_to_epsilon(0.1, bad, 1e-6)
    with pytest.raises(InvalidParameter, match="order"):
        rdp_to_delta(0.1, bad, 1.0)
    with pytest.raises(InvalidParameter, match="order"):
        epsilon_to_rdp(1.0, 1e-6, bad)


@pytest.mark.parametrize("order", [1.0001, 1.5, 2.0, 30.0, 4e4])
def test_conversions_at_one_order_are_those_of_forty_digits_rounded_to_the_safe_side(order):
    mp = mpmath.mp.clone()
    mp.dps = 40
    a = mp.mpf(order)
    cancelling = float(mp.exp((a - 1) * mp.log(1 - 1 / a) - mp.log(a)))  # where the terms beside D add up to nothing
    for delta in (1e-12, 1e-3, 0.3, cancelling):
        offset = mp.log(1 - 1 / a) - (mp.log(delta) + mp.log(a)) / (a - 1)
        terms = abs(mp.log(1 - 1 / a)) + (abs(mp.log(delta)) + mp.log(a)) / (a - 1)
        for divergence in (0.0, 1e-9, 0.02, 0.7, 40.0):
            exact, room = divergence + offset, 1e-11 * (divergence + abs(offset)) + 2.0**-46 * (divergence + terms)
            assert max(exact, 0) <= rdp_to_epsilon(divergence, order, delta) <= max(exact + room, 0)
            if exact > 1e-3 and divergence > 0.01:
                back = epsilon_to_rdp(float(exact), delta, order)
                assert divergence - 3 * room <= back <= divergence * (1 - 1e-15)
            for epsilon in (0.0, 0.01, 3.0):
                exponent = (a - 1) * (mp.mpf(divergence) - mp.mpf(epsilon)) + a * mp.log(1 - 1 / a) - mp.log(a - 1)
                ours, least = rdp_to_delta(divergence, order, epsilon), min(mp.mpf(1), mp.exp(exponent))
                assert least <= ours <= least * (1 + 1e-11 * (2 + abs(exponent))) + 1e-322


@pytest.mark.parametrize(
    ("mu", "epsilon"), [(3.0, 1.0), (5.0, 12.4), (1.0, 0.1), (2.0, 6.0), (0.1, 0.5), (8.0, 30.0)]
)
def test_delta_of_gaussian_noise_is_that_of_forty_digits_on_both_sides_of_the_middle(mu, epsilon):
    mp = mpmath.mp.clone()
    mp.dps = 40
    m, e = mp.mpf(mu), mp.mpf(epsilon)
    exact = mp.ncdf(m / 2 - e / m) - mp.exp(e) * mp.ncdf(-m / 2 - e / m)
    assert exact <= gdp_to_delta(mu, epsilon) <= exact * (1 + 1e-12) + 3e-15 * (epsilon < mu**2 / 2)
