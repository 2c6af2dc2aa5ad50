"""Closed forms, laws and limits behind single prices, each against exact arithmetic or forty digits."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import mpmath
import numpy as np
import pytest
from mpmath import mpf

from dpdescent.accounting import (
    RDP,
    ZCDP,
    AdvancedComposition,
    ApproximateDP,
    Currency,
    ExponentialMechanism,
    FilteredRun,
    FixedSchedule,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    ObjectivePerturbation,
    PoissonSampled,
    PureObjectivePerturbation,
    TradeOff,
    epsilon_to_zcdp,
    to_dp_event,
)
from dpdescent.accounting.approximate import _least_argument
from dpdescent.accounting.conversions import (
    best_order,
    epsilon_to_zcdp_at,
    gaussian_noise_multiplier,
    gaussian_tail_constant,
    gdp_to_epsilon,
    loose_noise_multiplier,
    loose_zcdp_budget,
    rdp_to_delta,
    zcdp_to_delta,
)
from dpdescent.accounting.divergences import bounded_range_rdp
from dpdescent.accounting.sampling import ALLOWANCE, ShuffledDescent, shift_law
from dpdescent.accounting.searches import RandomStopping
from dpdescent.errors import InvalidParameter
from dpdescent.relations import Relation

mpmath.mp.dps = 40


@pytest.mark.parametrize(("epsilon", "delta"), [(0.01, 1e-12), (1.0, 1e-6), (7.0, 0.3), (30.0, 0.499)])
def test_loose_formulas_are_those_of_their_papers_and_on_the_safe_side(epsilon: float, delta: float) -> None:
    e, d = mpf(epsilon), mpf(delta)
    constant = mpmath.sqrt(mpmath.log(2 / (mpmath.sqrt(16 * d + 1) - 1)))
    assert gaussian_tail_constant(delta) == pytest.approx(float(constant), rel=1e-13)
    noise = (constant + mpmath.sqrt(constant**2 + e)) / (mpmath.sqrt(2) * e)
    assert loose_noise_multiplier(epsilon, delta) == pytest.approx(float(noise), rel=1e-13)
    assert loose_noise_multiplier(epsilon, delta) > gaussian_noise_multiplier(epsilon, delta)
    rho = mpf(loose_zcdp_budget(epsilon, delta))
    assert float(rho + 2 * mpmath.sqrt(rho * mpmath.log(1 / d))) == pytest.approx(epsilon, rel=1e-13)
    assert rho < epsilon_to_zcdp(epsilon, delta)


def test_loose_formulas_and_pairs_are_refused_outside_their_domains() -> None:
    for formula in (
        gaussian_tail_constant,
        lambda d: loose_noise_multiplier(1.0, d),
        lambda d: loose_zcdp_budget(1.0, d),
    ):
        for delta in (0.0, 1.0, -0.1, math.nan):
            with pytest.raises(InvalidParameter, match="delta must"):
                formula(delta)
    for delta in (0.5, 0.7):
        with pytest.raises(InvalidParameter, match="below 1/2"):
            gaussian_tail_constant(delta)
    for formula in (loose_noise_multiplier, loose_zcdp_budget):
        for epsilon in (0.0, -1.0, math.inf):
            with pytest.raises(InvalidParameter, match="epsilon must"):
                formula(epsilon, 1e-6)
    for epsilon, log_determinant in ((1.0, 1.0), (1.0, 1.5), (16.01, 0.0), (18.0, 1.75)):
        with pytest.raises(InvalidParameter, match=r"must lie in \(0, 16\]"):
            PureObjectivePerturbation(epsilon, log_determinant)
    assert PureObjectivePerturbation(18.0, 2.0).objective_epsilon > 14.39


def test_costs_hold_plain_numbers_and_names_whatever_they_were_given() -> None:
    one, relation = np.float32(1), Relation.REPLACE_ONE
    for cost in (
        AdvancedComposition(one, one, np.int64(3), np.float64(0.25)),
        ObjectivePerturbation(one, one, one, np.int8(2), relation, np.float32(0.25)),
        FixedSchedule((Gaussian(1.0),), np.int64(3), np.float32(0.25)),
        RandomStopping(one, np.float32(0.25), np.float32(0.25), np.float32(0.5)),
        ShuffledDescent(one, np.int8(2), np.int8(3)),
        PureObjectivePerturbation(one, np.float32(0.25), np.float32(0.25)),
        PoissonSampled(one, (Gaussian(1.0),)),
        FixedSizeSampled(np.float32(0.5), (Gaussian(1.0),)),
        FilteredRun("rdp", one, np.float32(0.25), np.float32(2)),
    ):
        values = [value for value in vars(cost).values() if not isinstance(value, tuple)]
        assert {type(value) for value in values} <= {float, int, str}
    assert FixedSchedule((PoissonSampled(0.5, (Gaussian(1.0),)),), 2).relations == {Relation.ZERO_OUT}


def test_a_schedule_fails_when_it_does_or_one_of_its_steps() -> None:
    parts = (ApproximateDP(0.1, 1e-4), Gaussian(5.0), ApproximateDP(0.2, 1e-5))
    exact = 7 * (Fraction(1e-4) + Fraction(1e-5))
    for failure in (0.0, 1e-3):
        delta = FixedSchedule(parts, 7, failure).delta
        assert exact + Fraction(failure) <= delta <= (exact + Fraction(failure)) * (1 + Fraction(1, 2**50))


def test_a_choice_among_runs_that_tell_nothing_still_has_a_price() -> None:
    assert RandomStopping(1e-9, 0.5, 0.5).pure() == 2.0**-1000


def test_a_schedule_without_noise_to_speak_of_has_an_infinite_price() -> None:
    assert FixedSchedule((ShuffledDescent(1e-200, 1, 1),), 2, 1e-3).pure() == math.inf


def test_batches_of_all_rows_cost_what_their_mechanisms_do() -> None:
    parts = (Gaussian(3.0), Laplace(0.2))
    for order in (1.5, 2.0, 40.0):
        for sampled in (PoissonSampled(1.0, parts), FixedSizeSampled(1.0, parts)):
            assert sampled.rdp(order) == sampled.whole.rdp(order)


@pytest.mark.parametrize(("passes", "batches"), [(1, 1), (1, 7), (3, 5), (2, 64), (1, 130), (200, 64)])
def test_shifts_of_permuted_passes_have_the_law_of_sums_that_were_rounded_up(passes: int, batches: int) -> None:
    cells = min(batches, 64)
    one = [Fraction(0)] * (cells + 1)
    for place in range(1, batches + 1):
        one[math.ceil(Fraction(place * cells, batches))] += Fraction(1, batches)
    shares, log_weights = shift_law(passes, batches)
    assert shares.size == log_weights.size == passes * (cells - 1) + 1
    assert shares[0] == 1 / cells + ALLOWANCE
    assert shares[-1] == 1 + ALLOWANCE
    np.testing.assert_allclose(np.diff(shares), 1 / (cells * passes), rtol=1e-9)
    assert np.isfinite(log_weights).all()
    assert np.exp(log_weights).sum() == pytest.approx(1, rel=1e-12)
    if passes <= 3:
        law = {0: Fraction(1)}
        for _ in range(passes):
            moved = [(at + cell, p * one[cell]) for (at, p), cell in itertools.product(law.items(), range(cells + 1))]
            law = {at: sum((p for place, p in moved if place == at), Fraction(0)) for at in {at for at, _ in moved}}
        exact = [float(law[at]) for at in range(passes, passes * cells + 1)]
        np.testing.assert_allclose(np.exp(log_weights), exact, rtol=1e-12)
    else:
        assert log_weights[-1] == pytest.approx(math.log(1e-300))  # 64^-200 underflows, and is raised


@pytest.mark.parametrize(("passes", "batches"), [(1, 1), (1, 9), (2, 6)])
def test_permuted_passes_are_charged_the_mixture_over_their_shifts(passes: int, batches: int) -> None:
    shares, log_weights = shift_law(passes, batches)
    for order, noise in itertools.product((1 + 1e-9, 1.5, 40.0), (0.05, 2.0, 300.0)):
        a, s = mpf(order), mpf(noise)
        moments = [
            mpmath.exp(mpf(float(w)) + a * (a - 1) / (2 * s * s) * mpf(float(share)) ** 2)
            for share, w in zip(shares, log_weights, strict=True)
        ]
        weights = sum(mpmath.exp(mpf(float(w))) for w in log_weights)
        exact = mpmath.log(sum(moments) - weights + 1) / (a - 1)
        got = ShuffledDescent(noise, passes, batches).rdp(order)
        assert exact * (1 + mpf(1e-10)) <= got <= exact * (1 + mpf(1e-8)) + mpf(2e-15)


def test_an_advanced_composition_of_very_rare_steps_neither_overflows_nor_loses_what_is_left() -> None:
    """A step of an epsilon beyond 700 on batches that hold a row with a probability next to exp(-700)."""
    for noise, rate in ((0.02669, 1e-304), (0.0266, 3e-304), (0.02, 0.5)):
        whole = mpf(gdp_to_epsilon(1 / noise, 0.5))
        assert 700 < whole < 1300
        step = mpmath.log1p(rate * mpmath.expm1(whole))
        assert AdvancedComposition(noise, rate, 1, 0.9999).pure() == pytest.approx(float(step), rel=1e-6)


def test_the_least_argument_is_that_of_a_falling_function() -> None:
    assert _least_argument(lambda _: 0.1, 0.2) == 0.0
    assert _least_argument(lambda _: 0.2, 0.1) == math.inf
    for rate in (1e-3, 3.0, 1e8):
        found = _least_argument(lambda x, rate=rate: math.exp(-rate * x), 0.01)
        assert math.exp(-rate * found) <= 0.01
        assert found == pytest.approx(math.log(100) / rate, rel=1e-11)


def test_nothing_is_rounded_down_where_exponents_are_large_or_terms_cancel() -> None:
    for rho, epsilon in itertools.product((0.37, 1.9, 11.0), (31.7, 73.3, 131.9)):
        excess = mpmath.findroot(
            lambda x, rho=rho, epsilon=epsilon: (1 + 2 * x) * rho - epsilon - mpmath.log1p(1 / x), epsilon / (2 * rho)
        )
        exponent = excess * ((1 + excess) * rho - epsilon) - mpmath.log(excess)
        exponent -= (1 + excess) * mpmath.log1p(1 / excess)
        if exponent > -700:
            assert zcdp_to_delta(rho, epsilon) >= mpmath.exp(exponent) * (1 + mpf(1e-13) * abs(exponent))

    def psi(x: mpf) -> mpf:
        return x / 2 + mpmath.log(-mpmath.expm1(-x) / x)

    for order, epsilon in itertools.product((1.0003, 1.001, 1.07), (1e4, 3.3e5, 1e6, 7e6)):
        a, e = mpf(order), mpf(epsilon)
        exact = psi(a * e) - psi((a - 1) * e) + (psi(a * e) - psi(e)) / (a - 1)
        assert exact <= bounded_range_rdp(epsilon, order) <= epsilon


def test_the_order_of_a_filter_is_the_whole_one_that_certifies_most() -> None:
    def certified(epsilon: float, order: int) -> float:
        return epsilon_to_zcdp_at(epsilon, 1e-6, math.log(order - 1))

    for epsilon in (0.01, 0.1, 1.0, 8.0, 40.0):
        order = best_order(epsilon, 1e-6)
        assert certified(epsilon, order) >= (1 - 1e-4) * max(certified(epsilon, each) for each in range(2, 2 * order))
    assert best_order(1e4, 1e-6) == 2
    assert best_order(1e-30, 1e-60) == round(1 + math.exp(30))


def test_every_cost_is_exported_as_an_event_of_its_own_numbers() -> None:
    dp = pytest.importorskip("dp_accounting")
    gaussian, laplace = Gaussian(3.0), Laplace(0.25)
    step = dp.ComposedDpEvent([dp.GaussianDpEvent(3.0), dp.LaplaceDpEvent(4.0)])
    assert to_dp_event(FixedSchedule((gaussian, laplace), 7)) == dp.SelfComposedDpEvent(step, 7)
    sampled = to_dp_event(PoissonSampled(0.25, (gaussian, Gaussian(4.0))))
    assert sampled.sampling_probability == 0.25
    assert sampled.event.noise_multiplier == pytest.approx(12 / 5, rel=1e-15)
    for charged in (ExponentialMechanism(0.5), PoissonSampled(0.25, (gaussian, laplace)), ShuffledDescent(2.0, 1, 3)):
        assert to_dp_event(charged) == dp.ZCDpEvent(charged.zcdp())
    for unsupported in (ApproximateDP(0.1, 1e-9), FilteredRun("zcdp", 0.5)):
        assert to_dp_event(unsupported) == dp.UnsupportedDpEvent()


@pytest.mark.parametrize("currency", [ZCDP(), RDP(3.0)])
def test_a_test_errs_as_often_as_every_pair_says_and_failures_count_against_it(
    currency: Currency,
) -> None:
    delta, total = 1e-2, 0.05  # large, so that the share of failures can be seen
    curve, slack = TradeOff(1.0, delta, currency, total), delta * 2.0**-20
    for given in (0.0, 0.004, 0.3, 1.0):
        pairs = [(e, currency_delta(currency, total, e)) for e in np.linspace(0, 1, 48).tolist()]
        lines = [1 - d - math.exp(e) * (given + slack) - slack for e, d in pairs]
        lines += [math.exp(-e) * (1 - d - given - slack) - slack for e, d in pairs]
        stated = [1 - delta - math.e * given, (1 - delta - given) / math.e]
        assert float(curve.false_negatives(given)) == pytest.approx(max(0.0, *lines, *stated), abs=1e-13)


def currency_delta(currency: Currency, total: float, epsilon: float) -> float:
    if isinstance(currency, RDP):
        return rdp_to_delta(total, currency.order, epsilon)
    return zcdp_to_delta(total, epsilon)
