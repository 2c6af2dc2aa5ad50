"""Second opinions on the accounting: dp_accounting, mpmath and, where it is installed, autodp."""

from __future__ import annotations

import math

import pytest

from dpdescent.accounting import (
    AboveThreshold,
    Composed,
    ExponentialMechanism,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDP,
    epsilon_to_gdp,
    gaussian_noise_multiplier,
    gdp_to_delta,
    rdp_to_delta,
    rdp_to_epsilon,
    to_dp_event,
    zcdp_to_epsilon,
)

GRID = [(0.1, 1e-8), (0.5, 1e-5), (1.0, 1e-6), (3.0, 1e-10), (10.0, 1e-3)]


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_gaussian_noise_agrees_with_dp_accounting(epsilon, delta):
    common = pytest.importorskip("dp_accounting.pld.common")
    mechanism = pytest.importorskip("dp_accounting.pld.privacy_loss_mechanism")
    guarantee = common.DifferentialPrivacyParameters(epsilon, delta)
    theirs = mechanism.GaussianPrivacyLoss.from_privacy_guarantee(guarantee)
    sigma = gaussian_noise_multiplier(epsilon, delta)
    assert theirs.standard_deviation == pytest.approx(sigma, rel=1e-5)
    assert mechanism.GaussianPrivacyLoss(sigma).get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-9)


@pytest.mark.parametrize("rate", [1e-4, 0.01, 0.1, 0.5])
@pytest.mark.parametrize("sigma", [0.8, 2.0, 10.0])
def test_sampled_gaussian_agrees_with_dp_accounting(rate, sigma):
    rdp = pytest.importorskip("dp_accounting.rdp")
    dp_event = pytest.importorskip("dp_accounting.dp_event")
    orders = [2, 3, 8, 32, 128]
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(sigma)))
    cost = PoissonSampled(rate, (Gaussian(sigma),))
    for order, theirs in zip(orders, accountant._rdp, strict=True):
        assert cost.rdp(order) == pytest.approx(theirs, rel=1e-8, abs=1e-14)


def test_published_sampled_gaussian_agrees_with_dp_accounting():
    rdp = pytest.importorskip("dp_accounting.rdp")
    dp_event = pytest.importorskip("dp_accounting.dp_event")
    sigma = 1 / math.sqrt(0.1)
    accountant = rdp.RdpAccountant([8])
    accountant.compose(dp_event.PoissonSampledDpEvent(0.1, dp_event.GaussianDpEvent(sigma)))
    assert accountant._rdp[0] == pytest.approx(0.0044693840, abs=6e-11)


def test_sampling_without_replacement_is_covered_and_close():
    rdp = pytest.importorskip("dp_accounting.rdp")
    dp_event = pytest.importorskip("dp_accounting.dp_event")
    relation = pytest.importorskip("dp_accounting").NeighboringRelation.REPLACE_ONE
    accountant = rdp.RdpAccountant([8], relation)
    accountant.compose(dp_event.SampledWithoutReplacementDpEvent(1000, 10, dp_event.GaussianDpEvent(2.0)))
    ours = FixedSizeSampled(0.01, (Gaussian(2.0),)).rdp(8)
    assert accountant._rdp[0] == pytest.approx(4.68416261e-4, rel=1e-8)
    assert accountant._rdp[0] <= ours <= 1.05 * accountant._rdp[0]


@pytest.mark.parametrize("delta", [1e-10, 1e-6, 1e-3])
@pytest.mark.parametrize("rho", [1e-4, 0.01, 0.1, 2.0])
def test_zcdp_conversion_agrees_with_dp_accounting(rho, delta):
    rdp = pytest.importorskip("dp_accounting.rdp")
    dp_event = pytest.importorskip("dp_accounting.dp_event")
    orders = [1 + 10 ** (i / 50) for i in range(-200, 300)]
    accountant = rdp.RdpAccountant(orders)
    accountant.compose(dp_event.ZCDpEvent(rho))
    theirs = accountant.get_epsilon(delta)
    ours = zcdp_to_epsilon(rho, delta)
    assert ours <= theirs * (1 + 1e-9)  # all orders against a grid of them
    assert ours == pytest.approx(theirs, rel=2e-3)
    at_one_order = rdp.RdpAccountant([10])
    at_one_order.compose(dp_event.ZCDpEvent(rho))
    assert rdp_to_epsilon(10 * rho, 10, delta) == pytest.approx(at_one_order.get_epsilon(delta), rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("order", [1.05, 1.5, 2, 10, 100, 1e4])
def test_the_delta_of_one_order_agrees_with_dp_accounting(order):
    accountant = pytest.importorskip("dp_accounting.rdp.rdp_privacy_accountant")
    for divergence in (1e-6, 0.01, 0.5, 3.0):
        for epsilon in (0.01, 0.1, 1.0, 5.0):
            ours = rdp_to_delta(divergence, order, epsilon)
            theirs = accountant.compute_delta([order], [divergence], epsilon)[0]
            # They also know that delta is at most sqrt(1 - e^-D), which is less where epsilon is small.
            expected = min(ours, math.sqrt(-math.expm1(-divergence)))
            assert theirs == pytest.approx(expected, rel=1e-8, abs=1e-290)


@pytest.mark.parametrize("rho", [1e-6, 1e-3, 0.1, 2.0])
def test_zcdp_conversion_agrees_with_opendp(rho):
    dp = pytest.importorskip("opendp.prelude")
    dp.enable_features("contrib")
    space = dp.vector_domain(dp.atom_domain(T=float, nan=False), size=1), dp.l2_distance(T=float)
    gaussian = dp.m.make_gaussian(*space, scale=1 / math.sqrt(2 * rho))
    profile = dp.c.make_zCDP_to_approxDP(gaussian).map(1.0)
    for delta in (1e-12, 1e-6, 1e-2):
        assert zcdp_to_epsilon(rho, delta) == pytest.approx(profile.epsilon(delta=delta), rel=1e-9)


def test_exported_events_never_undercut_the_mechanism():
    rdp = pytest.importorskip("dp_accounting.rdp")
    orders = [2, 8, 32]
    for cost in (
        Gaussian(3.0),
        Laplace(0.4),
        PureDP(0.4),
        ExponentialMechanism(0.4),
        AboveThreshold(5, 8.0, 4.0),
        PoissonSampled(0.05, (Gaussian(3.0), Gaussian(4.0))),
        PoissonSampled(0.05, (Gaussian(3.0), PureDP(0.4))),
        FixedSizeSampled(0.05, (Gaussian(3.0),)),
        Composed((Gaussian(3.0), ExponentialMechanism(0.4), PoissonSampled(0.05, (Gaussian(3.0),)))),
    ):
        accountant = rdp.RdpAccountant(orders)
        accountant.compose(to_dp_event(cost))
        for order, theirs in zip(orders, accountant._rdp, strict=True):
            assert theirs >= cost.rdp(order) * (1 - 1e-6)


def test_laplace_curve_agrees_with_dp_accounting():
    rdp = pytest.importorskip("dp_accounting.rdp")
    dp_event = pytest.importorskip("dp_accounting.dp_event")
    orders = [1.5, 2, 8, 64]
    for epsilon in (0.1, 1.0, 5.0):
        accountant = rdp.RdpAccountant(orders)
        accountant.compose(dp_event.LaplaceDpEvent(1 / epsilon))
        for order, theirs in zip(orders, accountant._rdp, strict=True):
            assert Laplace(epsilon).rdp(order) == pytest.approx(theirs, rel=1e-8)


@pytest.mark.parametrize(("epsilon", "delta"), GRID)
def test_gaussian_profile_agrees_with_mpmath(epsilon, delta):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workdps(50):

        def profile(mu):
            return mpmath.ncdf(mu / 2 - epsilon / mu) - mpmath.exp(epsilon) * mpmath.ncdf(-mu / 2 - epsilon / mu)

        mu = epsilon_to_gdp(epsilon, delta)
        exact = mpmath.findroot(lambda m: mpmath.log(profile(m)) - mpmath.log(delta), mu)
        assert exact * (1 - 1e-10) <= mu <= exact
        assert profile(mpmath.mpf(mu)) <= gdp_to_delta(mu, epsilon) <= profile(mpmath.mpf(mu)) * (1 + 1e-10)


@pytest.mark.parametrize("order", [2, 8, 64])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_search_never_costs_more_than_autodp_charges(order, epsilon):
    rdp_bank = pytest.importorskip("autodp.rdp_bank")
    # Theirs: threshold noise of scale 2/epsilon' and query noise of scale 4/epsilon' for one answer.
    theirs = rdp_bank.RDP_svt_laplace({"b": 2 / epsilon, "k": 10, "c": 1}, order)
    assert AboveThreshold(10, 4 / epsilon, 2 / epsilon).rdp(order) <= theirs * (1 + 1e-9)
