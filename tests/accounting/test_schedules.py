"""Fixed schedules are never charged less than the exact laws of their steps, in either direction, nor much more."""

import math

import numpy as np
import pytest
from scipy.special import gammaln
from scipy.stats import norm

from dpdescent.accounting import (
    GDP,
    RDP,
    ZCDP,
    AboveThreshold,
    Approximate,
    Composed,
    FixedSchedule,
    FixedSizeSampled,
    Gaussian,
    PoissonSampled,
    PureDP,
    cost_from_dict,
    gdp_to_epsilon,
    strongest_schedule,
    whole_runs as module,
)
from dpdescent.errors import BudgetExhausted, InvalidParameter
from dpdescent.ledger import Ledger

DELTA = 1e-5


def loss_of(rate, noise, x):
    """Log-ratio of the mixture to the plain Gaussian at x."""
    return np.log1p(rate * np.expm1((x - 0.5) / noise**2))


def one_step_delta(rate, noise, epsilon, mixture_first):
    """Exact delta of one sampled Gaussian, by the point at which the loss equals epsilon."""
    epsilon = np.asarray(epsilon, dtype=float)
    target = np.expm1(epsilon if mixture_first else -epsilon) / rate + 1
    with np.errstate(divide="ignore", invalid="ignore"):
        point = np.where(target > 0, noise**2 * np.log(np.maximum(target, 1e-300)) + 0.5, -np.inf)

    def tails(x):  # of the plain law and of the mixture, above or below x
        side = norm.sf if mixture_first else norm.cdf
        plain, shifted = side(x / noise), side((x - 1) / noise)
        return plain, (1 - rate) * plain + rate * shifted

    plain, mixed = tails(point)
    if mixture_first:
        return mixed - np.exp(epsilon) * plain
    return plain - np.exp(epsilon) * mixed


def two_step_delta(rate, noise, epsilon, mixture_first):
    """Exact delta of two of them: the first is integrated over, the second has its closed form."""
    x = np.linspace(-12 * noise, 1 + 12 * noise, 20_001)
    plain = norm.pdf(x / noise) / noise
    first = (1 - rate) * plain + rate * norm.pdf((x - 1) / noise) / noise if mixture_first else plain
    loss = loss_of(rate, noise, x) * (1 if mixture_first else -1)
    return float(np.trapezoid(first * one_step_delta(rate, noise, epsilon - loss, mixture_first), x))


@pytest.mark.parametrize(("noise", "steps"), [(0.7, 1), (3.0, 10), (40.0, 1000)])
def test_gaussians_on_all_rows_are_charged_exactly(noise, steps):
    charged = FixedSchedule((Gaussian(noise),), steps, DELTA).pure()
    exact = gdp_to_epsilon(math.sqrt(steps) / noise, DELTA)
    assert exact <= charged <= exact * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "noise"), [(0.01, 0.6), (0.01, 1.0), (0.2, 1.0), (0.5, 3.0), (0.9, 0.8)])
@pytest.mark.parametrize(("steps", "exact_delta"), [(1, one_step_delta), (2, two_step_delta)])
def test_sampled_gaussians_cover_both_directions_and_little_more(rate, noise, steps, exact_delta):
    charged = FixedSchedule((PoissonSampled(rate, (Gaussian(noise),)),), steps, DELTA).pure()
    assert max(exact_delta(rate, noise, charged, first) for first in (True, False)) <= DELTA
    assert max(exact_delta(rate, noise, 0.98 * charged - 0.002, first) for first in (True, False)) > DELTA


def test_the_exact_law_of_two_steps_is_that_of_gaussians_at_rate_one():
    epsilon = gdp_to_epsilon(math.sqrt(2) / 1.5, DELTA)
    for first in (True, False):
        assert two_step_delta(1.0, 1.5, epsilon, first) == pytest.approx(DELTA, rel=1e-4)


@pytest.mark.parametrize(("epsilon", "steps"), [(0.1, 40), (0.5, 7)])
def test_pure_mechanisms_are_composed_as_randomised_responses(epsilon, steps):
    charged = FixedSchedule((PureDP(epsilon),), steps, DELTA).pure()
    yes = np.arange(steps + 1)
    log_odds = (2 * yes - steps) * epsilon
    binomial = gammaln(steps + 1) - gammaln(yes + 1) - gammaln(steps - yes + 1)
    law = np.exp(binomial + yes * epsilon - steps * np.log1p(np.exp(epsilon)))

    def exact(bound):
        return float(np.sum(law * np.maximum(0, -np.expm1(bound - log_odds))))

    assert exact(charged) <= DELTA < exact(0.97 * charged)


def test_batches_of_fixed_size_cover_a_row_that_changes_its_sign():
    rate, noise, steps = 0.05, 1.2, 1
    charged = FixedSchedule((FixedSizeSampled(rate, (Gaussian(noise),)),), steps, DELTA).pure()
    x = np.linspace(-15, 15, 400_001)
    old, new = (
        (1 - rate) * norm.pdf(x / noise) / noise + rate * norm.pdf((x + side / 2) / noise) / noise for side in (1, -1)
    )
    assert np.trapezoid(np.maximum(0, old - np.exp(charged) * new), x) <= DELTA
    assert charged < gdp_to_epsilon(1 / noise, DELTA)


def test_a_step_of_several_parts_costs_more_than_each_and_no_more_than_their_divergences():
    gradient = PoissonSampled(0.02, (Gaussian(1.0),))
    search = PoissonSampled(0.02, (AboveThreshold(6, 20.0, 10.0),))
    both = FixedSchedule((gradient, search), 50, DELTA)
    alone = FixedSchedule((gradient,), 50, DELTA).pure()
    assert alone < both.pure() <= module._renyi_epsilon(both)
    assert both.pure() < alone + FixedSchedule((search,), 50, DELTA).pure()
    alone = FixedSchedule((Gaussian(3.0),), 2, DELTA).pure()
    assert alone < FixedSchedule((Gaussian(3.0), PureDP(0.05)), 2, DELTA).pure() < alone + 2 * 0.05


def test_without_a_delta_steps_add_up_in_every_currency():
    step = PoissonSampled(0.1, (Gaussian(2.0),))
    schedule = FixedSchedule((step, Gaussian(9.0)), 7)
    for currency in (RDP(8), ZCDP(), GDP()):
        expected = 7 * currency.price(Composed((step, Gaussian(9.0))))
        assert expected <= currency.price(schedule) <= expected * (1 + 1e-14)
    assert schedule.delta == 0
    assert FixedSchedule((step,), 7, 1e-6).delta == 1e-6


def test_where_dp_accounting_is_absent_renyi_divergences_pay(monkeypatch):
    schedule = FixedSchedule((PoissonSampled(0.01, (Gaussian(1.25),)),), 100, DELTA)
    sharp = schedule.pure()
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    module._epsilon.cache_clear()
    assert 1.1 * sharp < schedule.pure() == module._renyi_epsilon(schedule)
    module._epsilon.cache_clear()


def test_a_delta_beside_which_transforms_err_is_left_to_renyi_divergences():
    for delta in (1e-12, 9e-9):
        schedule = FixedSchedule((PoissonSampled(0.01, (Gaussian(1.25),)),), 100, delta)
        assert schedule.pure() == module._renyi_epsilon(schedule)


def test_losses_too_large_to_be_composed_are_left_to_renyi_divergences():
    schedule = FixedSchedule((PoissonSampled(0.9, (Gaussian(1.0),)),), 100_000, DELTA)
    assert 1e4 < schedule.pure() == module._renyi_epsilon(schedule)


def test_the_strongest_schedule_is_paid_for_and_hardly_less_noise_would_be():
    def parts(strength):
        return (PoissonSampled(0.05, (Gaussian(1 / strength),)),)

    for currency, failure in ((Approximate(), DELTA), (RDP(12), 0.0)):
        found = strongest_schedule(parts, 30, failure, 1.0, currency)
        noise = found.parts[0].parts[0].noise_multiplier
        assert found.steps == 30
        assert currency.price(found) <= 1.0
        assert currency.price(FixedSchedule(parts(1.004 / noise), 30, failure)) > 1.0


@pytest.mark.parametrize("strength", [2.0**-30, 0.011, 0.9, 1.0, 1.7, 2.0, 300.0])
def test_the_strongest_gaussian_steps_are_those_of_the_closed_form_wherever_the_search_begins(strength):
    asked = []

    def parts(strength):
        asked.append(strength)
        return (Gaussian(1 / strength),)

    for currency, failure, amount in (
        (GDP(), 0.0, 9 * strength**2),
        (Approximate(), DELTA, gdp_to_epsilon(3 * strength, DELTA)),
    ):
        if failure and strength < 0.01:  # such an epsilon is lost in its delta
            continue
        found = strongest_schedule(parts, 9, failure, amount, currency)
        assert (found.steps, found.failure) == (9, failure)
        assert currency.price(found) <= amount
        assert 1 <= found.parts[0].noise_multiplier * strength * (1 + 1e-9) <= 1 + 6e-4
    assert len(asked) < 200
    unbounded = strongest_schedule(parts, 9, 0.0, 1e30, GDP())
    assert 2.0**-20 <= unbounded.parts[0].noise_multiplier < 2.0**-18.9  # the end of its range, to a factor of 2


def test_a_schedule_with_a_delta_is_one_mechanism_of_its_epsilon_in_every_currency():
    schedule, epsilon = FixedSchedule((Gaussian(6.0), Gaussian(8.0)), 16, DELTA), gdp_to_epsilon(5 / 6, DELTA)
    assert epsilon <= schedule.pure() <= epsilon * (1 + 1e-9)
    whole = PureDP(schedule.pure())
    assert schedule.rdp(3.5) == whole.rdp(3.5)
    assert (schedule.zcdp(), schedule.mu_squared()) == (whole.zcdp(), whole.mu_squared())
    assert FixedSchedule((PureDP(0.25),), 3).pure() == 0.75
    assert FixedSchedule((Gaussian(2.0**60),), 1, 0.5).pure() == 2.0**-1000  # a price is positive


def test_a_budget_too_small_for_its_steps_is_refused():
    with pytest.raises(InvalidParameter, match="fewer steps"):
        strongest_schedule(lambda s: (PureDP(max(s, 1e-6)),), 10, DELTA, 1e-9, Approximate())


def test_a_ledger_charges_a_schedule_once_and_refuses_what_its_relation_does_not_cover():
    schedule = strongest_schedule(
        lambda s: (PoissonSampled(0.05, (Gaussian(1 / s),)),), 20, DELTA * (1 - 2.0**-20), 1.0, Approximate()
    )
    ledger = Ledger(1.0, DELTA, currency="approximate")
    ledger.spend(schedule, "training")
    with pytest.raises(BudgetExhausted):
        ledger.spend(schedule, "training")
    assert ledger.statement()["mechanisms"] == {"fixed-schedule": 1}
    assert Ledger.from_json(ledger.to_json()).entries == ledger.entries
    with pytest.raises(InvalidParameter, match="zero-out"):
        Ledger(1.0, DELTA, currency="approximate", relation="replace-one").spend(schedule)


def test_a_schedule_is_plain_data_and_an_event():
    schedule = FixedSchedule((PoissonSampled(0.05, (Gaussian(1.5),)), PureDP(0.1)), 20, DELTA)
    assert cost_from_dict(schedule.to_dict()) == schedule
    from dpdescent.accounting import to_dp_event

    assert to_dp_event(schedule).count == 20


@pytest.mark.parametrize("wrong", [{"steps": 0}, {"steps": 2.5}, {"failure": 1.0}, {"failure": -1e-9}, {"parts": ()}])
def test_settings_outside_their_domain_are_refused(wrong):
    with pytest.raises(InvalidParameter):
        FixedSchedule(**({"parts": (Gaussian(1.0),), "steps": 3, "failure": DELTA} | wrong))


def test_renyi_divergences_alone_take_the_best_order_below_two_as_well(monkeypatch):
    """Opacus says 9.60 of this schedule, by orders that are tenths."""
    monkeypatch.setattr(module, "find_spec", lambda _: None)
    for noise, epsilon in ((0.514, 9.60), (0.706, 3.76), (1.028, 1.36)):
        schedule = FixedSchedule((PoissonSampled(0.01, (Gaussian(noise),)),), 300, 0.99999e-5)
        assert schedule.pure() == pytest.approx(epsilon, abs=0.01)
