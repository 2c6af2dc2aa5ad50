"""Closed-form Renyi divergences against published digits, brute force and high precision."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import erf, ndtri
from scipy.stats import norm

from dpdescent.accounting import divergences
from dpdescent.accounting.divergences import (
    bounded_range_mu,
    bounded_range_rdp,
    gaussian_rdp,
    laplace_rdp,
    pure_mu,
    pure_rdp,
    pure_zcdp,
)
from dpdescent.errors import InvalidParameter

EXACT = {"derandomize": True, "deadline": None}
EPSILONS = st.floats(-8.0, math.log10(500)).map(lambda x: 10.0**x)
ORDERS = st.floats(-8.0, 6.0).map(lambda x: 1 + 10.0**x)


def exact_pure(epsilon: float, order: float) -> mpmath.mpf:
    e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
    return mpmath.log((mpmath.exp(a * e) + mpmath.exp((1 - a) * e)) / (1 + mpmath.exp(e))) / (a - 1)


def exact_laplace(epsilon: float, order: float) -> mpmath.mpf:
    e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
    moment = a / (2 * a - 1) * mpmath.exp((a - 1) * e) + (a - 1) / (2 * a - 1) * mpmath.exp(-a * e)
    return mpmath.log(moment) / (a - 1)


def exact_bounded_range(epsilon: float, order: float, t: mpmath.mpf) -> mpmath.mpf:
    """D_a of the two-outcome mechanism with log ratios t and t - epsilon."""
    e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
    q = (mpmath.exp(-t) - mpmath.exp(-e)) / (1 - mpmath.exp(-e))
    return mpmath.log(q * mpmath.exp(a * t) + (1 - q) * mpmath.exp(a * (t - e))) / (a - 1)


def worst_bounded_range(epsilon: float, order: float) -> tuple[mpmath.mpf, mpmath.mpf]:
    e, a = mpmath.mpf(epsilon), mpmath.mpf(order)
    t = mpmath.log((a - 1) / a * mpmath.expm1(-a * e) / (mpmath.exp(-a * e) - mpmath.exp(-e)))
    return t, exact_bounded_range(epsilon, order, t)


def bounded_range_kl(epsilon: float) -> float:
    """Return the largest KL divergence, z - 1 - log z with z = e/(e^e - 1): no zCDP parameter can be less."""
    with mpmath.workdps(100):
        z = mpmath.mpf(epsilon) / mpmath.expm1(epsilon)
        return float(z - 1 - mpmath.log(z))


def test_published_values_are_reproduced():
    assert pure_rdp(1, 2) == pytest.approx(0.7353256641, abs=6e-11)
    assert pure_rdp(0.5, 8) == pytest.approx(0.4323537068, abs=6e-11)
    assert pure_zcdp(1) == pytest.approx(0.4621171573, abs=6e-11)
    assert laplace_rdp(1, 2) == pytest.approx(0.6191236300, abs=6e-11)
    assert 2 * laplace_rdp(0.5, 2) == pytest.approx(0.4006077923, abs=6e-11)
    assert 2 * laplace_rdp(0.5, 8) == pytest.approx(0.8205357635, abs=6e-11)
    assert bounded_range_kl(1) == pytest.approx(0.1233015615, abs=6e-11)
    assert bounded_range_rdp(1, 2) == pytest.approx(0.2402290139, abs=6e-11)
    assert bounded_range_rdp(1, 8) == pytest.approx(0.6354593986, abs=6e-11)
    assert bounded_range_rdp(0.1, 16) == pytest.approx(0.0193644396, abs=6e-11)
    assert float(worst_bounded_range(1, 2)[0]) == pytest.approx(0.620115, abs=6e-7)
    assert bounded_range_mu(1) == pytest.approx(0.6238925921, abs=6e-11)
    assert pure_mu(1) == pytest.approx(1.2320353853, abs=6e-11)
    assert gaussian_rdp(2, 3) == 0.375


@pytest.mark.parametrize(("shift", "expected"), [(1, 0.8959), (4, 0.82339), (64, 0.81372991), (2**40, 0.81368930)])
def test_discrete_laplace_costs_more_than_continuous(shift, expected):
    digits = len(str(expected).split(".")[1])
    assert laplace_rdp(1.0, 4, float(shift)) == pytest.approx(expected, abs=0.51 * 10**-digits)
    assert laplace_rdp(1.0, 4, float(shift)) >= laplace_rdp(1.0, 4)


@pytest.mark.parametrize("order", [1.001, 1.5, 2, 7, 40])
@pytest.mark.parametrize(("scale", "shift"), [(0.7, 1), (3.0, 2), (10.0, 1), (10.0, 25)])
def test_discrete_laplace_matches_brute_force(scale, shift, order):
    x = np.arange(-int(60 * scale) - 60, int(60 * scale) + 61 + shift)
    log_p, log_q = -np.abs(x - shift) / scale, -np.abs(x) / scale
    normaliser = math.log(math.tanh(1 / (2 * scale)))
    for p, q in ((log_p, log_q), (log_q, log_p)):
        moment = math.fsum(np.exp(order * p + (1 - order) * q + normaliser))
        exact = math.log(moment) / (order - 1)
        assert laplace_rdp(shift / scale, order, scale) == pytest.approx(exact, rel=1e-9, abs=1e-11)


@settings(max_examples=250, **EXACT)
@given(epsilon=EPSILONS, order=ORDERS)
def test_closed_forms_lose_no_digits(epsilon, order):
    with mpmath.workdps(60):
        assert pure_rdp(epsilon, order) == pytest.approx(float(exact_pure(epsilon, order)), rel=2e-14)
        assert laplace_rdp(epsilon, order) == pytest.approx(float(exact_laplace(epsilon, order)), rel=1e-13)
        worst = worst_bounded_range(epsilon, order)[1]
        ours = bounded_range_rdp(epsilon, order)
        assert worst * (1 - mpmath.mpf("1e-14")) <= ours
        assert ours <= min(epsilon, order * epsilon**2 / 8) * (1 + 1e-15)
        if order > 1.0001:
            assert ours <= worst * (1 + 1e-8)


@settings(max_examples=100, **EXACT)
@given(epsilon=st.floats(-3.0, 1.5).map(lambda x: 10.0**x), order=st.floats(1.01, 60.0))
def test_bounded_range_bound_covers_every_two_outcome_mechanism_both_ways(epsilon, order):
    with mpmath.workdps(40):
        bound = bounded_range_rdp(epsilon, order) * (1 + mpmath.mpf("1e-13"))
        for i in range(1, 40):
            t = mpmath.mpf(epsilon) * i / 40
            # Swapping the roles maps t to epsilon - t within the same family, up to the order of outcomes.
            assert exact_bounded_range(epsilon, order, t) <= bound


@settings(max_examples=200, **EXACT)
@given(epsilon=EPSILONS)
def test_zcdp_of_pure_dp_covers_every_order_and_is_attained_at_one(epsilon):
    rho = pure_zcdp(epsilon)
    for order in (1 + 1e-7, 1.0001, 1.1, 2, 10, 1e3, 1e6):
        assert pure_rdp(epsilon, order) <= order * rho * (1 + 1e-13)
        assert laplace_rdp(epsilon, order) <= pure_rdp(epsilon, order) * (1 + 1e-13)
        assert bounded_range_rdp(epsilon, order) <= pure_rdp(epsilon, order) * (1 + 1e-13)
    assert pure_rdp(epsilon, 1 + 1e-9) == pytest.approx(rho, rel=1e-6)
    assert bounded_range_kl(epsilon) <= epsilon**2 / 8 * (1 + 1e-14)


@settings(max_examples=200, **EXACT)
@given(epsilon=st.floats(-8.0, math.log10(25)).map(lambda x: 10.0**x))
def test_gaussian_cost_of_pure_dp_is_exact_to_the_last_digits(epsilon):
    with mpmath.workdps(40):
        exact = 2 * mpmath.sqrt(2) * mpmath.erfinv(mpmath.tanh(mpmath.mpf(epsilon) / 2))
        assert exact <= pure_mu(epsilon) <= exact * (1 + mpmath.mpf("2e-14"))


def test_gaussian_cost_of_pure_dp_grows_without_a_break():
    epsilons = np.geomspace(1e-8, 1e6, 3000)
    values = np.array([pure_mu(e) for e in epsilons])
    assert np.all(np.diff(values) > 0)
    # log Phi(-mu/2) = -log(1 + e^epsilon)
    np.testing.assert_allclose(norm.logsf(values / 2), -np.logaddexp(0, epsilons), rtol=4e-12)


@pytest.mark.parametrize("epsilon", [1e-3, 0.1, 1.0, 3.0, 10.0, 30.0])
def test_bounded_range_trade_off_is_worst_in_the_middle(epsilon):
    t = np.linspace(0, epsilon, 4003)[1:-1]
    q = np.exp(-t) * -np.expm1(t - epsilon) / -np.expm1(-epsilon)
    # Both log ratios' points of the trade-off curve; 1 - q e^t keeps its digits through the other outcome.
    other = -np.expm1(-t) / -np.expm1(-epsilon)
    miss = np.exp(t - epsilon) * other
    mu = -ndtri(miss) - ndtri(q)
    assert mu.max() <= bounded_range_mu(epsilon) * (1 + 1e-9) + 1e-12
    assert mu.max() == pytest.approx(bounded_range_mu(epsilon), rel=1e-6)


def test_dividing_by_a_private_batch_size_quadruples_the_cost():
    def divergence(batch: int, sigma: float, order: float, dimension: int) -> float:
        """Mean of a batch of ones against that with a minus one added, each with noise sigma over its size."""
        shift = 2 / (batch + 1)
        var_p, var_q = (sigma / batch) ** 2, (sigma / (batch + 1)) ** 2
        worst = 0.0
        for p, q in ((var_p, var_q), (var_q, var_p)):
            mixed = order * q + (1 - order) * p
            log_ratio = (1 - order) / 2 * math.log(p) + order / 2 * math.log(q) - math.log(mixed) / 2
            worst = max(worst, order * shift**2 / (2 * mixed) + dimension * log_ratio / (order - 1))
        return worst

    assert divergence(100, 10, 2, 1) == pytest.approx(0.0410225377, abs=6e-11)
    assert divergence(4884, 100, 8, 124) == pytest.approx(1.646264e-3, abs=6e-10)
    assert gaussian_rdp(10, 2) == pytest.approx(0.01, rel=1e-15)
    assert gaussian_rdp(100, 8) == pytest.approx(4e-4, rel=1e-15)


@pytest.mark.parametrize(("rho", "delta"), [(1e-4, 0.011283), (1e-3, 0.035671), (1e-2, 0.112463), (0.1, 0.345279)])
def test_half_normal_noise_fails_with_visible_probability(rho, delta):
    sigma = 1 / math.sqrt(2 * rho)
    assert erf(1 / (sigma * math.sqrt(2))) == pytest.approx(delta, abs=6e-7)
    if rho == 1e-2:
        assert erf(1 / (sigma * math.sqrt(2))) == pytest.approx(0.1124629160, abs=6e-11)


def test_extreme_arguments_stay_finite():
    for epsilon in (1e-300, 1e-8, 710.0, 1e6, 1e200):
        for order in (1 + 1e-15, 2, 1e6, 1e300):
            for curve in (pure_rdp, laplace_rdp, bounded_range_rdp):
                assert 0 <= curve(epsilon, order) <= epsilon * (1 + 1e-15)
    assert gaussian_rdp(1e-200, 2) == math.inf
    assert gaussian_rdp(1e200, 2) == 0.0
    assert pure_rdp(0, 2) == laplace_rdp(0, 2) == bounded_range_rdp(0, 2) == pure_zcdp(0) == 0
    assert 0 <= pure_mu(0) < 1e-300


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf, "1", None, 10**400])
@pytest.mark.parametrize("curve", [pure_rdp, laplace_rdp, bounded_range_rdp, gaussian_rdp])
def test_bad_strengths_are_refused(curve, bad):
    with pytest.raises(InvalidParameter):
        curve(bad, 2.0)


@pytest.mark.parametrize("bad", [1.0, 0.0, -3.0, math.nan, math.inf, "2"])
@pytest.mark.parametrize("curve", [pure_rdp, laplace_rdp, bounded_range_rdp, gaussian_rdp])
def test_bad_orders_are_refused(curve, bad):
    with pytest.raises(InvalidParameter, match="order"):
        curve(1.0, bad)


def test_no_divergence_is_below_forty_digits_where_its_terms_cancel_or_overflow():
    mp = mpmath.mp.clone()
    mp.dps = 40

    def psi(x):
        return mp.log(mp.sinh(mp.mpf(x) / 2) / (mp.mpf(x) / 2))

    for x in (1e-3, 0.1, 0.3, 0.45, 0.49, 0.51, 3.0, 80.0):
        assert divergences._log_sinhc(x) == pytest.approx(float(psi(x)), rel=8e-15 if x < 0.5 else 1e-13, abs=0)
    for epsilon in (1e-4, 0.02, 0.7, 2.5, 90.0):
        for order in (1 + 1e-7, 1.001, 1.7, 30.0, 5e3):
            a, e = mp.mpf(order), mp.mpf(epsilon)
            exact = psi(a * e) - psi((a - 1) * e) + (psi(a * e) - psi(e)) / (a - 1)
            assert bounded_range_rdp(epsilon, order) >= exact * (1 - mp.mpf(2) ** -46)
    for epsilon in (1e-6, 0.2, 0.99, 1.0, 4.0, 30.0, 600.0):
        mu = pure_mu(epsilon)  # the trade-off curve is worst at this point
        assert mp.ncdf(-mp.mpf(mu) / 2) <= 1 / (1 + mp.exp(epsilon)) <= mp.ncdf(-mp.mpf(mu) / 2 * (1 - mp.mpf(3e-14)))
    for epsilon, order, scale in (
        (30.0, 30.0, 2.0**20),
        (2.0, 700.0, 300.0),
        (700.0, 2.0, 0.5),
        (5.0, 500.0, math.inf),
    ):
        b, a = mp.mpf(scale), mp.mpf(order)
        outer = 1 / (2 * a - 1) if math.isinf(scale) else mp.tanh(1 / (2 * b)) / mp.tanh((2 * a - 1) / (2 * b))
        exact = epsilon + (mp.log1p(outer) - mp.log(2)) / (a - 1)
        assert laplace_rdp(epsilon, order, scale) == pytest.approx(float(exact), rel=1e-15)
