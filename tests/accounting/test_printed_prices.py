"""The price that Chen & Lee (2020) state for their answers, and that nobody is charged less than what is true."""

from __future__ import annotations

import math

import mpmath
import pytest

from dpdescent.accounting import (
    RDP,
    AboveThreshold,
    Composed,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    PoissonSampled,
    PrintedPrice,
    cost_from_dict,
)
from dpdescent.accounting.printed_prices import lemma_4, printed_rdp
from dpdescent.errors import InvalidParameter, UnsupportedCost
from dpdescent.solvers import BLGDSettings, BLSGDSettings, Facts
from dpdescent.solvers.backtracking import printed_order

EACH = 0.4 / 100  # epsilon/(2 * 50), for the gradient and for the search
GRADIENT = Gaussian(1 / EACH)
SEARCHES = [AboveThreshold(20, 4 / EACH, 2 / EACH), AboveThreshold(20, 6**0.5 / EACH, 3**0.5 / EACH, "gaussian")]


def test_a_search_costs_what_the_theorems_say() -> None:
    laplace = AboveThreshold(5, query_scale=4.0, threshold_scale=2.0)
    assert printed_rdp(laplace, 2) == pytest.approx(0.4006077923, abs=1e-10)
    assert printed_rdp(laplace, 8) == pytest.approx(0.8205357635, abs=1e-10)
    rho = 0.01  # "sigma_1^2 = 3/(2 rho), sigma_2^2 = 3/rho satisfies (a, a rho)-RDP"
    gaussian = AboveThreshold(5, math.sqrt(3 / rho), math.sqrt(1.5 / rho), "gaussian")
    assert printed_rdp(gaussian, 7) == pytest.approx(7 * rho, rel=1e-12)


@pytest.mark.parametrize("rate", [0.01, 0.1, 0.5])
@pytest.mark.parametrize("order", [2, 3, 9, 120])
def test_lemma_4_is_the_printed_sum(rate: float, order: int) -> None:
    with mpmath.workdps(60):
        q, noise = mpmath.mpf(rate), mpmath.mpf(5)
        weight = [mpmath.binomial(order, j) * q**j * (1 - q) ** (order - j) for j in range(order + 1)]
        moments = [mpmath.e ** ((j - 1) * j / (2 * noise**2)) for j in range(order + 1)]
        terms = [(1 - q) ** (order - 1) * (order * q - q + 1), weight[2] * moments[2]]
        terms += [3 * weight[j] * moments[j] for j in range(3, order + 1)]
        printed = float(mpmath.log(mpmath.fsum(terms)) / (order - 1))
    found = lemma_4(rate, order, Gaussian(5.0))
    assert printed <= found <= printed * (1 + 1e-9) + 1e-12


@pytest.mark.parametrize("order", [2, 3.5, 32, 500])
@pytest.mark.parametrize("bought", [GRADIENT, *SEARCHES, Composed((GRADIENT, SEARCHES[0]))], ids=lambda c: c.kind)
@pytest.mark.parametrize("rate", [0.1, 1.0])
@pytest.mark.parametrize("batch", [PoissonSampled, FixedSizeSampled])
def test_nobody_is_charged_less_than_the_true_cost(batch, rate: float, bought, order: float) -> None:
    parts = bought.parts if isinstance(bought, Composed) else (bought,)
    true = batch(rate, parts)
    price = PrintedPrice((true,))
    assert price.rdp(order) == max(true.rdp(order), printed_rdp(true, math.ceil(order)))
    assert price.zcdp() == true.zcdp()
    assert price.pure() == true.pure()
    assert price.relations == true.relations
    assert cost_from_dict(price.to_dict()) == price


@pytest.mark.parametrize(("rate", "updates", "order"), [(0.1, 81, 500), (1.0, 179, 90)])
def test_a_budget_lasts_for_the_updates_that_the_accounting_of_the_paper_gives(rate, updates, order) -> None:
    batches = [
        PrintedPrice((PoissonSampled(rate, (part,)) if rate < 1 else part,)) for part in (GRADIENT, SEARCHES[0])
    ]
    budget = 0.4 - math.log(1e8) / (order - 1)  # Proposition 1
    assert math.floor(budget / sum(RDP(order).price(batch) for batch in batches)) == updates


@pytest.mark.parametrize(
    ("settings", "low", "high"), [(BLSGDSettings(paper=True), 500, 500), (BLGDSettings(paper=True), 70, 110)]
)
def test_the_order_is_the_one_at_which_an_iteration_costs_least(settings, low: int, high: int) -> None:
    assert low <= printed_order(settings, Facts(0.4, 1e-8, "zero-out", 40_000, 124)) <= high


def test_what_has_no_printed_price_is_refused() -> None:
    with pytest.raises(UnsupportedCost, match="price of 'laplace'"):
        PrintedPrice((Laplace(0.1),))
    with pytest.raises(UnsupportedCost, match="noise on their threshold"):
        PrintedPrice((AboveThreshold(5, 4.0, 0.0),))
    with pytest.raises(InvalidParameter, match="one batch"):
        PrintedPrice((GRADIENT, GRADIENT))
    with pytest.raises(InvalidParameter, match="none of the paper's orders"):
        printed_order(BLSGDSettings(paper=True), Facts(0.01, 1e-8, "zero-out", 40_000, 124))
    with pytest.raises(InvalidParameter, match="pass paper as well"):
        BLSGDSettings(price="paper")
