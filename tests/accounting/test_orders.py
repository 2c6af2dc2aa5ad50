"""Functions of a Renyi order against 50-digit arithmetic, from orders next to 1 up to ten thousand.

A cost, an epsilon or a delta is never below the exact value of its formula, a budget never above it, and neither is
far from it. Orders next to 1 are where plain formulas divide a difference of nearly equal numbers by almost nothing.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import cache

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from dpdescent.accounting import (
    ALLOWANCE,
    AboveThreshold,
    AdvancedComposition,
    Cost,
    ExponentialMechanism,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    PureDP,
    ShuffledDescent,
    epsilon_to_rdp,
    epsilon_to_zcdp,
    rdp_to_delta,
    rdp_to_epsilon,
    zcdp_to_delta,
    zcdp_to_epsilon,
)
from dpdescent.accounting.bellman import bellman_bound
from dpdescent.accounting.conversions import gdp_to_epsilon
from dpdescent.accounting.costs import SMALLEST_LAPLACE_LATTICE
from dpdescent.accounting.divergences import LOG_SUM, above, laplace_rdp
from dpdescent.accounting.sampling import fixed_size_rdp, poisson_rdp
from dpdescent.errors import InvalidParameter

EXCESSES = (
    2e-16,
    2.3e-14,
    1e-12,
    3.7e-11,
    1e-9,
    1e-8,
    4.4e-7,
    1e-5,
    1e-3,
    0.0123,
    0.1,
    0.77,
    1,
    2.5,
    7,
    31,
    255,
    1e4,
)
ORDERS = tuple(1 + excess for excess in EXCESSES)
WHOLE_ORDERS = (2, 3, 8, 100)
EPSILONS = (1e-200, 1e-12, 1e-8, 1e-6, 1e-4, 1e-3, 0.03, 0.1, 0.3, 0.9, 1.7, 8.0, 50.0, 690.0, 1e5)


def digits_for(epsilon: float, order: float) -> int:
    """Return digits enough for what is left when terms of size 1 cancel to epsilon^2 (a - 1)."""
    return 60 - 4 * int(math.log10(min(epsilon, 1.0)) + math.log10(min(order - 1, 1.0)))


@cache
def exact_pure(epsilon: float, order: float) -> mpf:
    with mpmath.workdps(digits_for(epsilon, order)):
        e, a = mpf(epsilon), mpf(order)
        return mpmath.log((mpmath.exp(a * e) + mpmath.exp((1 - a) * e)) / (1 + mpmath.exp(e))) / (a - 1)


@cache
def exact_laplace(epsilon: float, order: float, scale: float) -> mpf:
    """D_a of Laplace noise on the integers, in the form of the sum over the lattice; continuous if infinite."""
    with mpmath.workdps(digits_for(epsilon, order) + 60):
        e, a = mpf(epsilon), mpf(order)
        kappa = mpf(1)
        if math.isfinite(scale):
            b = mpf(scale)
            kappa = (2 * a - 1) * mpmath.tanh(1 / (2 * b)) / mpmath.tanh((2 * a - 1) / (2 * b))
        rise, fall = mpmath.exp((a - 1) * e), mpmath.exp(-a * e)
        return mpmath.log((rise + fall) / 2 + kappa / (2 * (2 * a - 1)) * (rise - fall)) / (a - 1)


@cache
def exact_bounded_range(epsilon: float, order: float) -> mpf:
    def log_sinhc(x: mpf) -> mpf:
        return mpmath.log(mpmath.sinh(x / 2) / (x / 2))

    with mpmath.workdps(digits_for(epsilon, order)):
        e, a = mpf(epsilon), mpf(order)
        whole = log_sinhc(a * e)
        return whole - log_sinhc((a - 1) * e) + (whole - log_sinhc(e)) / (a - 1)


@cache
def exact_shift_law(passes: int, batches: int) -> list[tuple[mpf, mpf]]:
    """Shares of the largest shift, rounded up to the cells, and their probabilities, from whole numbers."""
    cells = min(batches, 64)
    one = [0] * (cells + 1)
    for step in range(1, batches + 1):
        one[-(-step * cells // batches)] += 1
    law = [1]
    for _ in range(passes):
        law = [int(n) for n in np.convolve(np.array(law, dtype=object), np.array(one, dtype=object))]
    total = mpf(batches) ** passes
    return [(mpf(k) / (cells * passes) + mpf(ALLOWANCE), mpf(n) / total) for k, n in enumerate(law) if n]


def exact_shuffled(noise: float, passes: int, batches: int, order: float) -> mpf:
    with mpmath.workdps(50):
        a = mpf(order)
        rate = a * (a - 1) / (2 * mpf(noise) ** 2)
        moments = (weight * mpmath.expm1(rate * share**2) for share, weight in exact_shift_law(passes, batches))
        return mpmath.log1p(mpmath.fsum(moments)) / (a - 1)


def exact_offset(order: float, delta: float) -> mpf:
    a = mpf(order)
    return mpmath.log1p(-1 / a) - (mpmath.log(mpf(delta)) + mpmath.log(a)) / (a - 1)


@pytest.mark.parametrize("order", ORDERS)
def test_costs_of_one_parameter_are_never_below_the_exact_divergence(order: float) -> None:
    for epsilon in EPSILONS:
        pure = exact_pure(epsilon, order)
        laplace = min(pure, exact_laplace(epsilon, order, SMALLEST_LAPLACE_LATTICE))
        for cost, exact in ((PureDP(epsilon), pure), (Laplace(epsilon), laplace)):
            assert exact <= cost.rdp(order) <= exact * (1 + mpf(2e-14)) + mpf("1e-301")
        exact, ours = exact_bounded_range(epsilon, order), ExponentialMechanism(epsilon).rdp(order)
        assert exact <= ours <= exact * (1 + mpf(1e-9) + mpf(1e-13) / (mpf(order) - 1)) + mpf("1e-301")
    for noise in (1e-3, 0.7, 3.0, 1e8, 1e200):
        exact = mpf(order) / 2 / mpf(noise) ** 2
        assert exact <= Gaussian(noise).rdp(order) <= exact * (1 + mpf(2e-14)) + mpf("1e-301")


@pytest.mark.parametrize("scale", [0.7, 3.0, 60.0, 1e3, 2.0**20, 2.0**40, math.inf])
def test_laplace_noise_on_any_lattice_loses_no_digits_at_any_order(scale: float) -> None:
    for epsilon, order in itertools.product(EPSILONS[1:], ORDERS):
        exact = exact_laplace(epsilon, order, scale)
        ours = laplace_rdp(epsilon, order, scale)
        assert ours >= min(exact, mpf(epsilon)) * (1 - mpf(2) ** -47)
        if scale >= 1e3 and order < 100:  # the lattices that are drawn on, and coarser ones
            assert ours <= exact * (1 + mpf(2e-14))


@pytest.mark.parametrize("order", ORDERS)
def test_a_random_shift_costs_no_less_than_its_exact_mixture(order: float) -> None:
    for noise, (passes, batches) in itertools.product(
        (1e-3, 0.1, 0.7, 2.0, 30.0, 1e3, 1e8), ((1, 1), (1, 64), (5, 3), (8, 100))
    ):
        exact = exact_shuffled(noise, passes, batches, order)
        assert exact <= ShuffledDescent(noise, passes, batches).rdp(order) <= exact * (1 + mpf(3e-9)) + mpf(2e-15)


def test_a_search_costs_no_less_than_its_exact_recursion_next_to_order_one() -> None:
    """One query of Laplace noise without threshold noise: the recursion is a maximum over t between 0 and e."""

    def moment(a: mpf, scale: float, t: mpf) -> mpf:
        def survival(x: mpf) -> mpf:
            return mpmath.exp(-x) / 2 if x >= 0 else 1 - mpmath.exp(x) / 2

        above, shifted = survival(t / scale), survival((t - 1) / scale)
        return shifted**a * above ** (1 - a) + (1 - shifted) ** a * (1 - above) ** (1 - a)

    for scale, excess in itertools.product((0.3, 2.0, 40.0, 1e4, 1e7), EXCESSES[1:12]):
        with mpmath.workdps(80):
            a = mpf(1 + excess)
            exact = max(mpmath.log(moment(a, scale, mpf(i) / 40)) for i in range(41)) / (a - 1)
            ours = bellman_bound(float(a), 1, "laplace", 0.0, scale)
            assert exact <= ours
            if excess > 1e-7:
                assert ours <= exact * (1 + mpf(1e-3))


@pytest.mark.parametrize("order", WHOLE_ORDERS)
def test_sampled_mechanisms_cost_no_less_than_their_exact_sums(order: float) -> None:
    for rate, noise in itertools.product((1e-200, 1e-12, 1e-5, 0.01, 0.5, 1 - 1e-9), (0.3, 1.0, 30.0, 1e6)):
        with mpmath.workdps(50):
            q = mpf(rate)
            excess = [mpmath.expm1(mpf(j) * (j - 1) / 2 / mpf(noise) ** 2) for j in range(order + 1)]
            binomial = [mpmath.binomial(order, j) for j in range(order + 1)]
            poisson = mpmath.fsum(
                binomial[j] * (1 - q) ** (order - j) * q**j * excess[j] for j in range(2, order + 1)
            )
            fixed = mpmath.fsum(binomial[j] * q**j * 2 * (1 + excess[j]) for j in range(3, order + 1))
            fixed += binomial[2] * q**2 * min(2 * (1 + excess[2]), 4 * excess[2])
            whole = mpf(order) / 2 / mpf(noise) ** 2
            costs: list[tuple[Cost, mpf]] = [
                (PoissonSampled(rate, (Gaussian(noise),)), poisson),
                (FixedSizeSampled(rate, (Gaussian(noise),)), fixed),
            ]
            for cost, moment in costs:
                exact = min(whole, mpmath.log1p(moment) / (order - 1))
                assert exact <= cost.rdp(order) <= exact * (1 + mpf(2e-9)) + mpf("1e-301")
                # D_a never falls with a, so an order below 2 may cost as much as 2 does, and no more.
                assert cost.rdp(1 + 1e-12) <= cost.rdp(2)


def test_a_sampled_search_pays_for_the_larger_of_both_directions() -> None:
    """Gaussian searches have no pure epsilon, so that the reverse direction is charged where it is the larger one."""
    charged = set()
    for rate, scale, order in itertools.product((1e-3, 0.05, 0.5), (1.0, 3.0, 4.0, 6.0, 300.0), (2, 3, 9)):
        search = AboveThreshold(4, scale, scale / 2, "gaussian")
        with mpmath.workdps(40):
            q, curve = mpf(rate), {j: mpf(search.rdp(j)) for j in range(2, order + 1)}
            terms = (mpmath.binomial(order, j) * (1 - q) ** (order - j) * q**j for j in curve)
            moment = mpmath.fsum(
                term * mpmath.expm1((j - 1) * curve[j]) for term, j in zip(terms, curve, strict=True)
            )
            forward = mpmath.log1p(moment) / (order - 1)
            bend = mpf(order) * (order - 1) / 2 * q**2 * (1 - q) ** (-order - 1) * mpmath.expm1(curve[2])
            bounds = {"taylor": mpmath.log1p(bend) / (order - 1), "flat": -mpmath.log1p(-q), "whole": curve[order]}
            reverse = min(bounds, key=lambda name, bounds=bounds: bounds[name])
            exact = min(curve[order], max(forward, bounds[reverse]))
            charged.add(reverse if bounds[reverse] > forward * mpf(1.001) else "forward")
            assert exact <= PoissonSampled(rate, (search,)).rdp(order) <= exact * (1 + mpf(1e-9))
    assert charged >= {"forward", "taylor", "flat"}


@pytest.mark.parametrize("family", [Laplace, ExponentialMechanism])
def test_the_curve_of_a_pure_mechanism_is_amplified_in_both_directions_or_as_randomised_response(family) -> None:
    """The sum of one direction alone is a bound for Gaussian noise and randomised responses, not for every curve."""
    told_apart = 0
    for epsilon, rate, order in itertools.product((0.3, 1.0, 4.0), (0.01, 0.2, 0.6), (2, 3, 9)):
        part = family(epsilon)
        forward, response = (poisson_rdp(rate, order, each.rdp) for each in (part, PureDP(epsilon)))
        bend = order * (order - 1) / 2 * rate**2 * (1 - rate) ** (-order - 1) * math.expm1(part.rdp(2))
        reverse = min(math.log1p(bend) / (order - 1), -math.log1p(-rate), part.rdp(order))
        small = PureDP(math.log1p(rate * math.expm1(epsilon))).rdp(order)
        least = min(part.rdp(order), response, max(forward, reverse), small)
        assert PoissonSampled(rate, (part,)).rdp(order) == pytest.approx(least, rel=1e-9)
        told_apart += forward < 0.999 * least
    assert told_apart > 3
    search = AboveThreshold(4, 6.0, 3.0)
    whole = FixedSizeSampled(0.1, (PureDP(search.pure()),)).rdp(8)
    assert FixedSizeSampled(0.1, (search,)).rdp(8) == min(search.rdp(8), whole)


@pytest.mark.parametrize("epsilon", [0.03, 0.6, 2.0, 29.0, 31.0])
def test_batches_of_fixed_size_pay_what_their_theorem_says_of_pure_mechanisms(epsilon: float) -> None:
    curve = PureDP(epsilon).rdp
    for rate, order in itertools.product((1e-4, 0.03, 0.4, 1.0), (2, 3, 12)):
        with mpmath.workdps(40):
            q, ratio = mpf(rate), mpmath.expm1(mpf(epsilon))
            terms = [
                mpmath.binomial(order, j) * q**j * mpmath.exp((j - 1) * mpf(curve(j))) * min(mpf(2), ratio**j)
                for j in range(2, order + 1)
            ]
            terms[0] = min(terms[0], 4 * mpmath.binomial(order, 2) * q**2 * mpmath.expm1(mpf(curve(2))))
            exact = mpmath.log1p(mpmath.fsum(terms)) / (order - 1)
        assert exact <= fixed_size_rdp(rate, order, curve, epsilon) <= exact * (1 + mpf(1e-9))
        small = above(math.log1p(rate * math.expm1(epsilon)), LOG_SUM)
        for sampled in (PoissonSampled(rate, (PureDP(epsilon),)), FixedSizeSampled(rate, (PureDP(epsilon),))):
            assert sampled.zcdp() == min(PureDP(small).zcdp(), PureDP(epsilon).zcdp())
            assert sampled.mu_squared() == min(PureDP(small).mu_squared(), PureDP(epsilon).mu_squared())
        charged = min(curve(order), fixed_size_rdp(rate, order, curve, epsilon), PureDP(small).rdp(order))
        assert FixedSizeSampled(rate, (PureDP(epsilon),)).rdp(order) == charged
    assert poisson_rdp(1.0, 5, curve) == curve(5)


@pytest.mark.parametrize("rate", [1e-5, 0.003, 0.03])
def test_binomial_weights_of_large_orders_are_never_rounded_down(rate: float) -> None:
    """The logarithms of factorials are of size 20,000 and cancel, which costs more digits than the sum itself."""
    for order, share in itertools.product((2000, 2311, 2999), (1e-3, 0.2)):
        rho = share / order**2
        with mpmath.workdps(30):
            q, total, weight = mpf(rate), mpf(0), order * mpf(rate) * (1 - mpf(rate)) ** (order - 1)
            for j in range(2, min(order, 30 + int(10 * order * rate)) + 1):
                weight *= mpf(order - j + 1) / j * q / (1 - q)
                total += weight * mpmath.expm1(j * (j - 1) * mpf(rho))
            exact = mpmath.log1p(total) / (order - 1)
        assert exact <= poisson_rdp(rate, order, lambda j, rho=rho: j * rho) <= exact * (1 + mpf(1e-9))


@pytest.mark.parametrize("order", ORDERS)
def test_the_delta_of_one_order_is_never_below_the_exact_one(order: float) -> None:
    with mpmath.workdps(50):
        a = mpf(order)
        for divergence, epsilon in itertools.product(
            (0, 1e-12, 1e-3, 0.1, 1, 10, 300), (0, 1e-12, 1e-3, 0.1, 1, 10, 300)
        ):
            exponent = (a - 1) * (mpf(divergence) - mpf(epsilon)) + a * mpmath.log1p(-1 / a) - mpmath.log(a - 1)
            exact = min(mpf(1), mpmath.exp(exponent))
            slack = mpf(2e-12) * (1 + abs(exponent))
            assert exact <= rdp_to_delta(divergence, order, epsilon) <= exact * mpmath.exp(slack) + mpf("1e-300")


@pytest.mark.parametrize("order", ORDERS)
def test_the_epsilon_of_one_order_is_never_below_the_exact_one(order: float) -> None:
    with mpmath.workdps(50):
        for divergence, delta in itertools.product(
            (0, 1e-12, 1e-3, 0.1, 1, 300), (1e-300, 1e-40, 1e-12, 1e-5, 0.01, 0.5, 0.99, 1 - 1e-9)
        ):
            offset = exact_offset(order, delta)
            exact = max(mpf(0), divergence + offset)
            slack = mpf(2e-12) * (divergence + abs(offset)) + mpf(2e-14) * (1 + 1 / (order - 1))
            assert exact <= rdp_to_epsilon(divergence, order, delta) <= exact + slack


@pytest.mark.parametrize("order", ORDERS)
def test_the_budget_of_one_order_is_never_above_the_exact_one(order: float) -> None:
    with mpmath.workdps(50):
        for epsilon, delta in itertools.product((1e-6, 0.1, 1.0, 30.0, 1e6), (1e-40, 1e-12, 1e-5, 0.01, 0.5, 0.99)):
            exact = mpf(epsilon) - exact_offset(order, delta)
            try:
                budget = epsilon_to_rdp(epsilon, delta, order)
            except InvalidParameter:
                assert exact <= 1e-11 * (epsilon + abs(exact_offset(order, delta)))
                continue
            assert budget <= exact
            assert rdp_to_epsilon(budget, order, delta) <= epsilon


@pytest.mark.parametrize("order", [1.0014, 1.14, 2.0, 4.7, 16.6, 58.0, 1512.0])
def test_an_epsilon_whose_terms_cancel_is_never_below_the_exact_one(order: float) -> None:
    """At a delta where the offset is just minus the divergence only rounding errors are left in plain arithmetic."""
    with mpmath.workdps(50):
        for divergence, share in itertools.product((1e-12, 1e-9, 1e-6, 1e-3), (1e-9, 1e-6, 1e-3, 0.5)):
            log_delta = (divergence * (1 - mpf(share)) + mpmath.log1p(-1 / mpf(order))) * (mpf(order) - 1)
            delta = float(mpmath.exp(log_delta - mpmath.log(mpf(order))))
            offset = exact_offset(order, delta)
            assert max(mpf(0), divergence + offset) <= rdp_to_epsilon(divergence, order, delta)
            epsilon = float(abs(offset)) * (1 + share)
            try:
                assert epsilon_to_rdp(epsilon, delta, order) <= epsilon - offset
            except InvalidParameter:
                assert epsilon - offset <= 1e-13


@pytest.mark.parametrize("delta", [0.01, 0.123, 0.45, 0.6])
def test_a_budget_next_to_nothing_is_never_above_the_exact_one(delta: float) -> None:
    """With epsilon far below delta the terms of the conversion cancel; every order certifies a rho, the best most."""
    with mpmath.workdps(40):
        log_delta = mpmath.log(mpf(delta))

        def certified(log_excess: mpf) -> mpf:
            x = mpmath.exp(log_excess)
            return (epsilon + mpmath.log1p(1 / x) + (log_delta + mpmath.log1p(x)) / x) / (1 + x)

        for epsilon in (mpf(2e-8), mpf(1.7e-7), mpf(3.3e-5), mpf(0.01)):
            best = max((mpf(i) / 8 for i in range(-80, 160)), key=certified)
            peak = mpmath.findroot(lambda x: mpmath.diff(certified, x), best)
            rho = epsilon_to_zcdp(float(epsilon), delta)
            assert certified(peak) * (1 - mpf(1e-8)) <= rho <= certified(peak)
            assert zcdp_to_epsilon(rho, delta) <= epsilon


def zero_of(increasing: Callable[[mpf], mpf]) -> mpf:
    """Return where an increasing function of x > 0 vanishes, to forty digits of log x."""
    low, high = mpf(-60), mpf(60)
    for _ in range(140):
        middle = (low + high) / 2
        low, high = (low, middle) if increasing(mpmath.exp(middle)) > 0 else (middle, high)
    return mpmath.exp(low)


@pytest.mark.parametrize("rho", [1e-15, 1e-9, 1e-4, 0.03, 2.0, 700.0])
def test_the_best_order_of_concentrated_privacy_is_found_and_nothing_is_rounded_down(rho: float) -> None:
    """With x = a - 1 the derivatives of epsilon and of log delta have one term of x each that is not constant."""
    with mpmath.workdps(40):
        r = mpf(rho)
        for delta in (1e-40, 1e-12, 1e-5, 0.01, 0.123, 0.6):
            log_delta = mpmath.log(mpf(delta))
            x = zero_of(lambda x, target=log_delta: r * x * x + mpmath.log1p(x) + target)
            exact = max(mpf(0), (1 + x) * r - mpmath.log1p(1 / x) - (log_delta + mpmath.log1p(x)) / x)
            slack = mpf(2e-12) * exact + mpf(2e-14) * (1 + abs(log_delta)) / x
            assert exact <= zcdp_to_epsilon(rho, delta) <= exact + slack
        for epsilon in map(mpf, (0.0, 1e-7, 1e-3, 0.2, 1.0, 9.0, 900.0)):
            x = zero_of(lambda x, target=epsilon: (1 + 2 * x) * r - target - mpmath.log1p(1 / x))
            exponent = x * ((1 + x) * r - epsilon) - mpmath.log(x) - (1 + x) * mpmath.log1p(1 / x)
            exact, slack = min(mpf(1), mpmath.exp(exponent)), mpf(3e-12) * (1 + abs(exponent))
            assert exact <= zcdp_to_delta(rho, float(epsilon)) <= exact * mpmath.exp(slack) + mpf("1e-322")


@pytest.mark.parametrize("rate", [1e-6, 1e-4, 0.1, 1.0])
def test_advanced_composition_of_rare_steps_is_never_below_its_formula(rate: float) -> None:
    for noise, steps in itertools.product((0.02, 1.0, 30.0, 1e3), (1, 100, 10**6)):
        failure = 1e-6
        cost = AdvancedComposition(noise, rate, steps, failure)
        with mpmath.workdps(40):
            half = mpf(failure) / 2
            whole = mpf(gdp_to_epsilon(1 / noise, min(0.5, float(half) / (steps * rate))))
            step = mpmath.log1p(mpf(rate) * mpmath.expm1(whole))
            advanced = mpmath.sqrt(2 * steps * mpmath.log(1 / half)) * step + steps * step * mpmath.expm1(step)
            exact = min(steps * step, advanced)
            floor = mpf(1e-12) * steps  # a step is charged no less than 1e-12
            assert exact <= cost.pure() <= (exact + floor) * (1 + mpf(1e-9))
