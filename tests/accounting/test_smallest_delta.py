"""A delta beside which the samplers' own error counts is refused, by name and with the smallest one supported."""

from __future__ import annotations

import math
import re
from fractions import Fraction

import mpmath
import pytest

from dpdescent.accounting import (
    GDP,
    RDP,
    RUN_DRAWS,
    SAMPLER_SHARE,
    ZCDP,
    Approximate,
    ApproximateDP,
    Laplace,
    Pure,
    currency_named,
    sampler_delta,
    smallest_delta,
)
from dpdescent.errors import DeltaTooSmall, InvalidParameter
from dpdescent.ledger import Ledger
from dpdescent.noise import FARTHEST_DRAW, SAMPLER_ERROR, ladder
from dpdescent.noise.exponential import PRECISION
from dpdescent.noise.lattice import _laplace_table, gaussian_table

CURRENCIES = ["zcdp", "gdp", "rdp", "pure", "approximate", ZCDP(), GDP(), RDP(50.0), Pure(), Approximate()]


@pytest.mark.parametrize("epsilon", [0.01, 1.0, 16.0])
@pytest.mark.parametrize("currency", CURRENCIES, ids=str)
def test_the_smallest_delta_is_accepted_and_the_next_below_it_refused(currency, epsilon: float) -> None:
    least = smallest_delta(epsilon)
    if not isinstance(currency, RDP):  # one order that was given does not certify every epsilon
        assert Ledger(epsilon, least, currency=currency).budget > 0
    for delta in (math.nextafter(least, 0.0), 1e-60, 1e-300, 5e-324):
        with pytest.raises(DeltaTooSmall) as refusal:
            Ledger(epsilon, delta, currency=currency)
        named = float(re.search(r"smallest delta supported is ([0-9.e-]+)", str(refusal.value)).group(1))
        assert least <= named <= 1.02 * least


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 8.0, 64.0])
def test_the_samplers_error_over_a_run_fits_into_its_share_of_delta(epsilon: float) -> None:
    """The total variation of 2^40 draws, once for each neighbour, and no more than rounding to spare."""
    with mpmath.workdps(50):
        error = (1 + mpmath.exp(mpmath.mpf(epsilon))) * RUN_DRAWS * mpmath.mpf(SAMPLER_ERROR)
        share = mpmath.mpf(smallest_delta(epsilon)) * SAMPLER_SHARE.numerator / SAMPLER_SHARE.denominator
        assert error * (1 - mpmath.mpf(1e-14)) <= share <= error * (1 + mpmath.mpf(1e-14))
    assert RUN_DRAWS >= 2**40
    assert smallest_delta(1.0) < 1e-50


def test_a_larger_epsilon_needs_a_larger_delta_until_it_protects_nobody() -> None:
    values = [smallest_delta(epsilon) for epsilon in (1e-3, 0.1, 1.0, 4.0, 16.0, 64.0)]
    assert values == sorted(values)
    assert smallest_delta(1e9) == smallest_delta(64.0) < 1e-23
    assert Ledger(1e9, 1e-6).budget > 0


def test_pure_budgets_may_leave_the_samplers_error_out_of_the_statement() -> None:
    ledger = Ledger(1.0, 0.0, currency="pure")
    assert ledger.delta == 0
    ledger.spend(Laplace(0.5))
    with pytest.raises(InvalidParameter, match="delta"):
        Ledger(1.0, 0.0, currency="zcdp")


def test_pairs_of_epsilon_and_delta_leave_the_samplers_their_share() -> None:
    delta = 1e-6
    ledger = Ledger(1.0, delta, currency="approximate")
    assert not ledger.affords(ApproximateDP(0.1, delta))
    assert not ledger.affords(ApproximateDP(0.1, delta * (1 - float(SAMPLER_SHARE) / 2)))
    assert ledger.affords(ApproximateDP(0.1, delta * (1 - 2 * float(SAMPLER_SHARE))))


@pytest.mark.parametrize("currency", CURRENCIES, ids=str)
def test_failures_of_mechanisms_never_fill_the_share_of_the_samplers(currency) -> None:
    """What the currency counts, what mechanisms may fail with and what the samplers lack add up to delta at most."""
    delta = 1e-6
    ledger = Ledger(1.0, delta, currency=currency)
    limit = Fraction(delta) * (ledger.currency.uncounted - SAMPLER_SHARE)
    assert not ledger.affords(ApproximateDP(1e-9, float(limit) * (1 + 1e-9)))
    assert ledger.affords(ApproximateDP(1e-9, float(limit) * (1 - 1e-9)))
    counted = 0 if ledger.currency.uncounted == 1 else Fraction(ledger._counted_delta)
    assert counted + limit + Fraction(delta) * SAMPLER_SHARE <= Fraction(delta)


@pytest.mark.parametrize(("epsilon", "delta", "within"), [(1.0, 1e-6, True), (1.0, 0.0, False), (200.0, 1e-6, False)])
def test_the_statement_says_what_the_samplers_lack(epsilon: float, delta: float, within: bool) -> None:
    said = Ledger(epsilon, delta, currency="pure").statement()["sampler_error"]
    with mpmath.workdps(50):
        error = (1 + mpmath.exp(mpmath.mpf(epsilon))) * RUN_DRAWS * mpmath.mpf(SAMPLER_ERROR)
        assert said["delta"] == pytest.approx(float(min(error, 1)), rel=1e-12)
    assert (said["total_variation_per_draw"], said["draws"]) == (SAMPLER_ERROR, RUN_DRAWS)
    assert said["within_delta"] is within
    assert sampler_delta(1e9) == 1


@pytest.mark.parametrize("bad", [-1e-9, math.nan, math.inf, "1e-6", None])
def test_a_delta_that_is_no_probability_is_refused_as_before(bad) -> None:
    with pytest.raises(InvalidParameter, match="delta"):
        currency_named("zcdp", 1.0, bad)


@pytest.mark.parametrize(
    ("table", "exponent"),
    [(gaussian_table, lambda k: Fraction(k * k, 512)), (_laplace_table, lambda k: Fraction(k, 16))],
    ids=["gaussian", "laplace"],
)
def test_the_error_of_the_samplers_covers_that_of_their_tables(table, exponent) -> None:
    """A quarter of it: conditioning on acceptance may double the distance, and 256-bit acceptance adds 2^-254."""
    with mpmath.workprec(400):
        cumulative = [mpmath.mpf(c) / mpmath.mpf(2) ** PRECISION for c in table().cumulative]
        weights = [mpmath.exp(-mpmath.mpf(e.numerator) / e.denominator) for e in map(exponent, range(6000))]
        total = mpmath.fsum(weights)
        previous, distance, tail = mpmath.mpf(0), mpmath.mpf(0), mpmath.mpf(1)
        for reached, weight in zip(cumulative, weights, strict=False):
            distance += abs(reached - previous - weight / total)
            previous, tail = reached, tail - weight / total
        assert 0 <= tail < mpmath.mpf(2) ** -255
        assert (distance + tail) / 2 <= mpmath.mpf(SAMPLER_ERROR) / 4


def test_no_draw_lies_beyond_the_bound_that_objective_perturbation_rests_on() -> None:
    """The last cell ends before it; the largest scale of a ladder is what its bound on the linear term assumes."""
    assert len(gaussian_table().cumulative) / 16 < 0.98 * FARTHEST_DRAW
    assert len(_laplace_table().cumulative) / 16 < 189
    for dimension in (2, 3, 10, 124, 1000, 10**5):
        scale = 2**30
        assert ladder(dimension, scale).nodes[-1] <= scale * (17 + math.sqrt(dimension))
