"""Sub-sampled mechanisms: amplified together, in both directions, under one relation each."""

from __future__ import annotations

import math

import mpmath
import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy.special import logsumexp

from dpdescent.accounting import (
    AboveThreshold,
    Composed,
    ExponentialMechanism,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDP,
    sampling,
)
from dpdescent.accounting.divergences import laplace_rdp
from dpdescent.accounting.sampling import fixed_size_rdp, poisson_rdp
from dpdescent.errors import InvalidParameter
from dpdescent.ledger import Ledger
from dpdescent.relations import Relation
from exact_laws import poisson_mixture, renyi, threshold_law

EXACT = {"derandomize": True, "deadline": None}


def from_rho(rho: float) -> Gaussian:
    return Gaussian(1 / math.sqrt(2 * rho))


def generic_factor_three(rate, order, curve):
    """The amplification bound for any curve, which pays a factor of three from the third moment on."""
    total = (1 - rate) ** (order - 1) * (order * rate - rate + 1)
    for j in range(2, order + 1):
        weight = math.comb(order, j) * rate**j * (1 - rate) ** (order - j)
        total += weight * math.exp((j - 1) * curve(j)) * (1 if j == 2 else 3)
    return math.log(total) / (order - 1)


def test_published_values_are_reproduced():
    joint = PoissonSampled(0.1, (from_rho(0.05), PureDP(0.5)))
    assert joint.rdp(8) == pytest.approx(0.0176266912, abs=6e-11)
    assert PoissonSampled(0.1, (from_rho(0.05),)).rdp(8) == pytest.approx(0.0044693840, abs=6e-11)
    assert generic_factor_three(0.1, 8, from_rho(0.05).rdp) == pytest.approx(0.0187464745, abs=6e-11)
    assert FixedSizeSampled(0.01, (Gaussian(2.0),)).rdp(8) == pytest.approx(4.88393042e-4, abs=6e-13)
    assert FixedSizeSampled(0.01, (Gaussian(2.0), Gaussian(2.0))).rdp(8) == pytest.approx(1.10961045e-3, abs=6e-12)


@pytest.mark.parametrize(
    ("rate", "rho", "order", "joint", "digits", "separate"),
    [(0.1, 1.0, 4, 1.74743, 5, 0.990336), (0.005, 0.5, 16, 3.850217, 6, None)],
)
def test_two_mechanisms_on_one_batch_cost_more_than_their_separate_amplifications(
    rate, rho, order, joint, digits, separate
):
    p = threshold_law(np.array([-1.0] * 7 + [1.0]), "laplace", 1.0, 2.0)
    q = threshold_law(np.zeros(8), "laplace", 1.0, 2.0)
    search = [renyi(p, q, j) for j in range(2, order + 1)]
    gradient = [j * rho for j in range(2, order + 1)]
    both = [s + g for s, g in zip(search, gradient, strict=True)]
    exact = poisson_mixture(rate, order, both)
    assert exact == pytest.approx(joint, abs=0.51 * 10**-digits)
    apart = poisson_mixture(rate, order, search) + poisson_mixture(rate, order, gradient)
    assert apart < exact
    if separate is not None:
        assert apart == pytest.approx(separate, abs=6e-7)
    # Amplified together the charge covers it; amplified one by one even the library's own bounds would not.
    parts = (from_rho(rho), AboveThreshold(8, 2.0, 1.0))
    assert exact <= PoissonSampled(rate, parts).rdp(order) <= Composed(parts).rdp(order)
    assert PoissonSampled(rate, parts).rdp(order) > sum(PoissonSampled(rate, (part,)).rdp(order) for part in parts)


def test_joint_over_separate_ratio_grows_with_the_order():
    for rho, epsilon, order, ratio in [(0.05, 0.5, 8, 1.14), (0.05, 0.5, 16, 1.30), (0.05, 0.5, 32, 2.06)]:
        # The search is charged by its two Laplace terms here.
        def search(j, epsilon=epsilon):
            return 2 * laplace_rdp(epsilon / 2, j)

        def gradient(j, rho=rho):
            return j * rho

        joint = poisson_rdp(0.1, order, lambda j: search(j) + gradient(j))
        apart = poisson_rdp(0.1, order, search) + poisson_rdp(0.1, order, gradient)
        assert joint / apart == pytest.approx(ratio, abs=0.02)


def random_pair(generator, epsilon):
    """A pair of laws on few outcomes whose log ratios stay within epsilon."""
    size = generator.integers(2, 6)
    log_q = np.log(generator.dirichlet(np.ones(size)))
    log_p = log_q + generator.uniform(-epsilon / 2, epsilon / 2, size)
    return log_p - logsumexp(log_p), log_q


@pytest.mark.parametrize("family", [PureDP, Laplace])
def test_poisson_charge_covers_exact_mixtures_in_both_directions(family):
    generator = np.random.default_rng(23)
    for _ in range(300):
        epsilon, rate = 10 ** generator.uniform(-1.5, 0.7), 10 ** generator.uniform(-3, -0.05)
        order = int(generator.integers(2, 20))
        if family is PureDP:
            # Randomised response itself, the worst pair, and random ones.
            p = np.array([epsilon, 0.0]) - np.logaddexp(epsilon, 0)
            pairs = [(p, p[::-1]), random_pair(generator, epsilon)]
        else:
            # The three values Laplace noise shifted by one can take as a log ratio, on a fine partition.
            x = np.linspace(-12, 13, 4001) / epsilon
            x = np.concatenate([x[x < 0], np.linspace(0, 1, 500), x[x > 1]])
            cdf = [
                np.where(t < 0, np.exp(-np.abs(t)) / 2, 1 - np.exp(-np.abs(t)) / 2)
                for t in (epsilon * x, epsilon * (x - 1))
            ]
            pairs = [tuple(np.log(np.diff(c) / (c[-1] - c[0])) for c in cdf)]
        cost = PoissonSampled(rate, (family(epsilon),))
        for log_p, log_q in pairs:
            mixed = np.logaddexp(np.log1p(-rate) + log_q, math.log(rate) + log_p)
            tolerance = 1e-12 if family is PureDP else 1e-4 * cost.rdp(order)
            assert renyi(mixed, log_q, order) <= cost.rdp(order) + tolerance
            assert renyi(log_q, mixed, order) <= cost.rdp(order) + tolerance
            assert np.abs(mixed - log_q).max() <= cost.pure() * (1 + (1e-9 if family is PureDP else 1e-3))


@pytest.mark.parametrize("rate", [0.01, 0.2, 0.7])
@pytest.mark.parametrize("sigma", [0.7, 2.0])
def test_sampled_gaussian_charge_is_its_exact_divergence_and_covers_the_reverse(rate, sigma):
    x = np.linspace(-40 * sigma, 40 * sigma, 200_001)
    step = x[1] - x[0]
    log_q = -((x / sigma) ** 2) / 2 - math.log(sigma * math.sqrt(2 * math.pi)) + math.log(step)
    log_p = -(((x - 1) / sigma) ** 2) / 2 - math.log(sigma * math.sqrt(2 * math.pi)) + math.log(step)
    mixed = np.logaddexp(math.log1p(-rate) + log_q, math.log(rate) + log_p)
    cost = PoissonSampled(rate, (Gaussian(sigma),))
    for order in (2, 3, 10):
        assert cost.rdp(order) == pytest.approx(renyi(mixed, log_q, order), rel=1e-9, abs=1e-11)
        assert renyi(log_q, mixed, order) <= cost.rdp(order)


def test_generic_curves_pay_for_the_reverse_direction():
    # A Gaussian search has no pure epsilon, so neither direction may be dropped.
    search = AboveThreshold(4, 6.0, 3.0, "gaussian")
    generator = np.random.default_rng(29)
    for rate in (0.05, 0.5):
        cost = PoissonSampled(rate, (search,))
        for order in (2, 5):
            charge = cost.rdp(order)
            assert charge <= search.rdp(order)
            assert charge >= poisson_rdp(rate, order, search.rdp) or charge == search.rdp(order)
            for _ in range(60):
                q = generator.normal(scale=6.0, size=4)
                log_q = threshold_law(q, "gaussian", 3.0, 6.0)
                log_p = threshold_law(q + generator.choice([-1.0, 1.0], 4), "gaussian", 3.0, 6.0)
                mixed = np.logaddexp(np.log1p(-rate) + log_q, math.log(rate) + log_p)
                assert renyi(mixed, log_q, order) <= charge + 1e-12
                assert renyi(log_q, mixed, order) <= charge + 1e-12


@settings(max_examples=60, **EXACT)
@given(
    rate=st.floats(-6, 0).map(lambda x: 10.0**x),
    sigma=st.floats(0.3, 50),
    epsilon=st.floats(-3, 1.5).map(lambda x: 10.0**x),
    order=st.floats(1.0001, 80),
)
def test_sampling_never_costs_more_than_no_sampling(rate, sigma, epsilon, order):
    for parts in ((Gaussian(sigma),), (Gaussian(sigma), PureDP(epsilon)), (ExponentialMechanism(epsilon),)):
        for family in (PoissonSampled, FixedSizeSampled):
            cost, whole = family(rate, parts), Composed(parts)
            assert 0 < cost.rdp(order) <= whole.rdp(order)
            assert cost.zcdp() <= whole.zcdp()
            assert cost.mu_squared() <= whole.mu_squared()
            assert cost.pure() <= whole.pure()
            if family is PoissonSampled:  # the bound for batches of fixed size may fall where divergences do not
                assert cost.rdp(order) <= cost.rdp(order + 1.5)
            assert cost.rdp(order) <= family(min(1.0, 2 * rate), parts).rdp(order) * (1 + 1e-9)
            if rate == 1:
                assert cost.rdp(order) == whole.rdp(order)


def test_large_fractional_orders_use_the_next_whole_one():
    cost = PoissonSampled(0.01, (Gaussian(1.0),))
    assert cost.rdp(9.2) == cost.rdp(10)
    searches = PoissonSampled(0.01, (Gaussian(1.0), PureDP(0.1)))
    assert searches.rdp(1.0001) == searches.rdp(2)


def test_pure_amplification_is_exact():
    for epsilon in (1e-8, 0.1, 1.0, 20.0):
        for rate in (1e-6, 0.1, 0.9):
            for family in (PoissonSampled, FixedSizeSampled):
                expected = math.log1p(rate * math.expm1(epsilon))
                assert expected <= family(rate, (PureDP(epsilon),)).pure() <= expected * (1 + 1e-11)
    assert PoissonSampled(0.5, (PureDP(1000.0),)).pure() == 1000.0
    assert math.isfinite(PoissonSampled(0.5, (PureDP(1000.0),)).mu_squared())


@pytest.mark.parametrize("rate", [1e-6, 0.01, 0.5, 1 - 1e-12])
def test_large_orders_lose_no_digits(rate):
    # With E(j) = c constant the sum is known: the moments of a two-point ratio in closed form.
    mpmath = pytest.importorskip("mpmath")
    for order in (2, 100, 20_000):
        rho = 0.2 / order
        ours = poisson_rdp(rate, order, lambda j, rho=rho: j * rho)
        if order > 100:
            assert 0 < ours <= order * rho * (1 + 1e-6)
            continue
        with mpmath.workdps(50):
            q, total = mpmath.mpf(rate), mpmath.mpf(0)
            for j in range(order + 1):
                weight = mpmath.binomial(order, j) * q**j * (1 - q) ** (order - j)
                total += weight * mpmath.exp(j * (j - 1) * mpmath.mpf(rho))
            exact = mpmath.log(total) / (order - 1)
            assert exact <= ours <= exact * (1 + mpmath.mpf("1e-10"))


def test_orders_beyond_the_formula_fall_back_to_the_whole():
    cost = PoissonSampled(0.01, (Gaussian(1.0),))
    assert cost.rdp(1e6) == cost.whole.rdp(1e6)
    assert FixedSizeSampled(0.5, (PureDP(800.0), Gaussian(0.01))).rdp(1000) < math.inf


def test_each_kind_of_batch_keeps_its_relation():
    poisson, fixed = PoissonSampled(0.1, (Gaussian(9.0),)), FixedSizeSampled(0.1, (Gaussian(9.0),))
    assert poisson.relations == {Relation.ZERO_OUT}
    assert fixed.relations == {Relation.REPLACE_ONE}
    Ledger(1.0, 1e-6, currency="rdp").spend(poisson)
    Ledger(1.0, 1e-6, currency="rdp", relation="replace-one").spend(fixed)
    with pytest.raises(InvalidParameter, match="zero-out"):
        Ledger(1.0, 1e-6, relation="replace-one").spend(poisson)
    with pytest.raises(InvalidParameter, match="replace-one"):
        Ledger(1.0, 1e-6).spend(fixed)


@pytest.mark.parametrize("bad", [0.0, -0.1, 1.5, math.nan, math.inf, "0.1", None])
@pytest.mark.parametrize("family", [PoissonSampled, FixedSizeSampled])
def test_bad_rates_and_parts_are_refused(family, bad):
    with pytest.raises(InvalidParameter, match="rate"):
        family(bad, (Gaussian(1.0),))
    with pytest.raises(InvalidParameter, match="rate"):
        (poisson_rdp if family is PoissonSampled else fixed_size_rdp)(bad, 2, lambda j: 0.1 * j)
    for parts in ((), None, (1.0,), [Gaussian(1.0)]):
        with pytest.raises(InvalidParameter, match="parts"):
            family(0.1, parts)
    for order in (1, 0, 2.5, math.nan):
        with pytest.raises(InvalidParameter, match="order"):
            (poisson_rdp if family is PoissonSampled else fixed_size_rdp)(0.1, order, lambda j: 0.1 * j)


@pytest.mark.parametrize(("rate", "slope"), [(0.003, 1e-5), (0.3, 0.05), (0.9, 0.05)])
def test_sums_over_batches_are_those_of_their_theorems_in_forty_digits_and_never_below(rate, slope):
    mp = mpmath.mp.clone()
    mp.dps = 40
    q = mp.mpf(rate)

    def covers(ours, exact):
        assert exact <= ours <= exact * (1 + mp.mpf(10) ** -9)

    for order in (2, 3, 17, 150):
        weights = {j: mp.binomial(order, j) * q**j for j in range(2, order + 1)}
        grown = {j: mp.exp((j - 1) * mp.mpf(slope * j)) for j in weights}
        poisson = mp.fsum(weights[j] * (1 - q) ** (order - j) * (grown[j] - 1) for j in weights)
        covers(poisson_rdp(rate, order, lambda k: slope * k), mp.log(1 + poisson) / (order - 1))
        second = mp.mpf(order * (order - 1)) / 2 * q**2 * (grown[2] - 1)
        reverse = min(mp.log(1 + second / (1 - q) ** (order + 1)) / (order - 1), -mp.log(1 - q))
        covers(sampling._poisson_reverse_rdp(rate, order, lambda k: slope * k), reverse)
        for epsilon in (0.01, 31.0, 1000.0):
            growth = mp.expm1(epsilon) if epsilon < 30 else mp.inf
            terms = {j: weights[j] * grown[j] * min(2, growth**j) for j in weights}
            terms[2] = min(terms[2], 4 * second)
            exact = mp.log(1 + mp.fsum(terms.values())) / (order - 1)
            covers(fixed_size_rdp(rate, order, lambda k: slope * k, epsilon), exact)
    assert poisson_rdp(1.0, 7, lambda k: slope * k) == slope * 7
    assert slope * 7 < fixed_size_rdp(1.0, 7, lambda k: slope * k) < math.inf


@pytest.mark.parametrize(
    "part", [Gaussian(2.0), Laplace(0.5), ExponentialMechanism(1.0), AboveThreshold(3, 4.0, 1.0)]
)
def test_a_sampled_mechanism_is_charged_the_least_of_the_bounds_that_hold_for_it(part):
    rate, order, epsilon = 0.1, 6, part.pure()
    worst = part if isinstance(part, Gaussian) else PureDP(epsilon)  # its curve holds in both directions
    bounds = [part.rdp(order)]
    fixed, poisson = [*bounds], [*bounds, poisson_rdp(rate, order, worst.rdp)]
    quick = worst if isinstance(part, AboveThreshold) else part
    fixed.append(fixed_size_rdp(rate, order, quick.rdp, epsilon))
    if not isinstance(part, AboveThreshold):
        reverse = min(part.rdp(order), sampling._poisson_reverse_rdp(rate, order, part.rdp))
        poisson.append(max(poisson_rdp(rate, order, part.rdp), reverse))
    if math.isfinite(epsilon):
        amplified = PureDP(math.log1p(rate * math.expm1(epsilon))).rdp(order)
        fixed.append(amplified)
        poisson.append(amplified)
    assert PoissonSampled(rate, (part,)).rdp(order) == pytest.approx(min(poisson), rel=1e-11)
    assert FixedSizeSampled(rate, (part,)).rdp(order) == pytest.approx(min(fixed), rel=1e-11)
    alone = [FixedSizeSampled(rate, (each,)).rdp(order) for each in (part, AboveThreshold(3, 4.0, 4.0, "gaussian"))]
    assert max(alone) < FixedSizeSampled(rate, (part, AboveThreshold(3, 4.0, 4.0, "gaussian"))).rdp(order) < math.inf


@pytest.mark.parametrize("sampled", [PoissonSampled, FixedSizeSampled])
def test_a_search_with_gaussian_noise_is_priced_by_few_orders(sampled, monkeypatch):
    """The recursion takes milliseconds at an order, and the sums over batches have a term for each."""
    search, asked = AboveThreshold(20, 40.0, 16.0, "gaussian"), set()
    every = [search.rdp(order) for order in range(2, 257)]
    plain, rate = AboveThreshold.rdp, 0.05

    def counted(self, order):
        asked.add(order)
        return plain(self, order)

    monkeypatch.setattr(AboveThreshold, "rdp", counted)
    bounds = [fixed_size_rdp] if sampled is FixedSizeSampled else [poisson_rdp, sampling._poisson_reverse_rdp]
    exact = min(every[-1], max(bound(rate, 256, lambda order: every[order - 2]) for bound in bounds))
    assert exact <= sampled(rate, (search,)).rdp(256) <= 1.003 * exact
    assert len(asked) < 90


# Orders that are no whole numbers ------------------------------------------------------------------------------


def mixture_divergence(rate, noise, order, mixture_first):
    """Return the divergence of a sampled Gaussian from the plain one, or the other way round, by quadrature."""
    points = np.linspace(-14 * noise, (14 + order / noise) * noise, 400_001)
    log_ratio = np.logaddexp(np.log1p(-rate), np.log(rate) + (2 * points - 1) / (2 * noise**2))
    power = order if mixture_first else 1 - order
    density = np.exp(-0.5 * (points / noise) ** 2) / (noise * math.sqrt(2 * math.pi))
    return math.log(np.trapezoid(density * np.exp(power * log_ratio), points)) / (order - 1)


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 0.514), (0.3, 0.5), (0.001, 0.6), (0.9, 2.0), (0.5, 4.9)])
@pytest.mark.parametrize("order", [1.1, 1.5, 2.5, 3.7])
def test_orders_between_whole_ones_are_bounded_closely_in_both_directions(rate, noise, order):
    charged = PoissonSampled(rate, (Gaussian(noise),)).rdp(order)
    exact = [mixture_divergence(rate, noise, order, first) for first in (True, False)]
    assert max(exact) <= charged <= max(exact) * (1 + 1e-3) + 1e-10
    assert charged <= PoissonSampled(rate, (Gaussian(noise),)).rdp(math.ceil(order))


def test_orders_between_whole_ones_join_them():
    for order in (2, 3, 5):
        for rate, noise in ((0.01, 0.514), (0.2, 1.0)):
            whole = PoissonSampled(rate, (Gaussian(noise),)).rdp(order)
            near = PoissonSampled(rate, (Gaussian(noise),)).rdp(order * (1 + 1e-9))
            assert near == pytest.approx(whole, rel=1e-4)


def test_several_gaussians_on_one_batch_count_together_at_every_order():
    several = PoissonSampled(0.05, (Gaussian(1.0), Gaussian(2.0)))
    assert several.rdp(1.5) == pytest.approx(PoissonSampled(0.05, (Gaussian(1.25**-0.5),)).rdp(1.5), rel=1e-6)
    other = PoissonSampled(0.05, (Gaussian(1.0), PureDP(0.1)))
    assert other.rdp(1.5) == other.rdp(2)  # rounded up to the next whole order
    without_noise = PoissonSampled(0.05, (Gaussian(0.01),))
    assert without_noise.rdp(1.5) == min(Gaussian(0.01).rdp(1.5), without_noise.rdp(2))
