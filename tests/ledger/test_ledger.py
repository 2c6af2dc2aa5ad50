"""The filter refuses before it is overspent, and the record survives everything."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import threading
from contextlib import suppress
from fractions import Fraction
from pathlib import Path

import pytest
from hypothesis import given, settings, strategies as st

from dpdescent.accounting import (
    GDP,
    ZCDP,
    AboveThreshold,
    ApproximateDP,
    Composed,
    Cost,
    ExponentialMechanism,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NormLaplace,
    PoissonSampled,
    Pure,
    PureDP,
    ReportNoisyMax,
    ShuffledDescent,
    epsilon_to_gdp,
    epsilon_to_zcdp,
)
from dpdescent.errors import (
    BudgetExhausted,
    InvalidParameter,
    LedgerBusy,
    LedgerError,
    LedgerFormatError,
    UnknownRelation,
    UnsupportedCost,
)
from dpdescent.ledger import Ledger, spend_jointly

CURRENCIES = ("zcdp", "gdp", "rdp")
GAUSSIAN = {"kind": "gaussian", "noise_multiplier": 3.0}

simple_costs = st.one_of(
    st.floats(0.3, 300).map(Gaussian),
    st.floats(1e-3, 3).map(ExponentialMechanism),
    st.floats(1e-3, 3).map(PureDP),
    st.floats(1e-3, 3).map(Laplace),
    st.floats(1e-3, 3).map(ReportNoisyMax),
    st.tuples(st.floats(0.01, 1), st.floats(0.5, 50)).map(lambda t: PoissonSampled(t[0], (Gaussian(t[1]),))),
    st.tuples(st.floats(0.5, 50), st.floats(1e-3, 2)).map(lambda t: Composed((Gaussian(t[0]), PureDP(t[1])))),
)


def exact_total(ledger: Ledger) -> Fraction:
    return sum((Fraction(entry.price) for entry in ledger.entries), Fraction(0))


@settings(derandomize=True, deadline=None, max_examples=150)
@given(
    currency=st.sampled_from(CURRENCIES),
    epsilon=st.floats(0.01, 20),
    delta=st.sampled_from([1e-12, 1e-8, 1e-5, 1e-2]),
    requests=st.lists(simple_costs, min_size=1, max_size=25),
)
def test_filter_refuses_exactly_when_it_must_and_a_refusal_changes_nothing(
    currency: str, epsilon: float, delta: float, requests: list[Cost]
) -> None:
    ledger = Ledger(epsilon, delta, currency=currency)
    for cost in requests:
        before, price = ledger.to_json(), ledger.currency.price(cost)
        fits = exact_total(ledger) + Fraction(price) <= Fraction(ledger.budget)
        assert ledger.affords(cost) is fits
        assert ledger.to_json() == before
        if fits:
            assert ledger.spend(cost).price == price
        else:
            with pytest.raises(BudgetExhausted):
                ledger.spend(cost)
            assert ledger.to_json() == before
        assert exact_total(ledger) <= Fraction(ledger.budget)
        assert ledger.spent_epsilon() <= epsilon


@settings(derandomize=True, deadline=None, max_examples=60)
@given(
    currency=st.sampled_from(CURRENCIES),
    epsilon=st.floats(0.01, 20),
    shares=st.lists(st.floats(0.01, 0.9), min_size=1, max_size=30),
    kinds=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_adaptive_shares_of_what_is_left_are_always_accepted(
    currency: str, epsilon: float, shares: list[float], kinds: list[bool]
) -> None:
    ledger = Ledger(epsilon, 1e-8, currency=currency)
    for share, gaussian in zip(shares, kinds, strict=False):
        amount = share * ledger.remaining
        make = ledger.currency.gaussian if gaussian else ledger.currency.selection
        entry = ledger.spend(make(amount))
        assert amount * (1 - 1e-9) <= entry.price <= amount
    assert exact_total(ledger) <= Fraction(ledger.budget)


@pytest.mark.parametrize("currency", CURRENCIES)
def test_a_budget_split_into_equal_parts_is_spent_to_the_last_part(currency: str) -> None:
    ledger = Ledger(1.0, 1e-6, currency=currency)
    for _ in range(7):
        ledger.spend(ledger.currency.gaussian(ledger.budget / 7))
    assert ledger.remaining < 1e-9 * ledger.budget
    assert 0.999999 < ledger.spent_epsilon() <= 1.0
    with pytest.raises(BudgetExhausted, match="is left"):
        ledger.spend(ledger.currency.gaussian(ledger.budget / 7))


def test_a_smaller_request_passes_after_a_refusal() -> None:
    ledger = Ledger(1.0, 1e-6)
    with pytest.raises(BudgetExhausted):
        ledger.spend(Gaussian(1.0))
    ledger.spend(Gaussian(100.0))
    assert [entry.cost for entry in ledger.entries] == [Gaussian(100.0)]


def test_rounding_never_slips_over_the_budget() -> None:
    """A float sum of these prices equals the budget; the exact sum exceeds it by less than one rounding."""
    ledger = Ledger(1.0, 1e-6, currency="pure")
    tiny = 2.0**-60
    ledger.spend(PureDP(1.0 - 2.0**-53))
    ledger.spend(PureDP(tiny))
    assert ledger.remaining == 2.0**-53 - tiny
    assert float(exact_total(ledger) + Fraction(2.0**-53)) == 1.0
    with pytest.raises(BudgetExhausted):
        ledger.spend(PureDP(2.0**-53))


def test_budget_is_the_optimal_conversion_less_the_reserve() -> None:
    """One part in 2^20 of delta is kept back, which moves the budget by less than one part in 10^6."""
    assert epsilon_to_zcdp(1.0, 1e-8) * (1 - 1e-6) < Ledger(1.0, 1e-8).budget < epsilon_to_zcdp(1.0, 1e-8)
    mu = epsilon_to_gdp(1.0, 1e-8)
    assert mu**2 * (1 - 1e-6) < Ledger(1.0, 1e-8, currency="gdp").budget < mu**2


def test_a_mechanism_with_its_own_delta_draws_on_the_reserve() -> None:
    ledger = Ledger(1.0, 1e-20)
    for _ in range(9):
        ledger.spend(NormLaplace(0.001))
    with pytest.raises(BudgetExhausted, match="larger delta"):
        ledger.spend(NormLaplace(0.001))
    strict = Ledger(1.0, 0.0, currency="pure")
    with pytest.raises(BudgetExhausted, match="reserved"):
        strict.spend(NormLaplace(0.5))
    strict.spend(Laplace(0.5))
    assert strict.spent_epsilon() == 0.5


def test_reading_never_changes_a_ledger() -> None:
    ledger = Ledger(1.0, 1e-6)
    ledger.spend(Gaussian(30.0), "gradient")
    before = ledger.to_json()
    for _ in range(3):
        _ = (ledger.spent, ledger.remaining, ledger.entries, ledger.budget, repr(ledger), ledger.statement())
        ledger.spent_epsilon()
        ledger.to_json()
        assert ledger.affords(Gaussian(1e6))
        assert not ledger.affords(Gaussian(1e-3))
    assert ledger.to_json() == before


def test_sub_sampled_costs_are_refused_under_the_wrong_relation() -> None:
    poisson, fixed = PoissonSampled(0.1, (Gaussian(5.0),)), FixedSizeSampled(0.1, (Gaussian(5.0),))
    with pytest.raises(InvalidParameter, match="zero-out only"):
        Ledger(1.0, 1e-6, relation="replace-one").spend(poisson)
    with pytest.raises(InvalidParameter, match="replace-one only"):
        Ledger(1.0, 1e-6).spend(fixed)
    Ledger(3.0, 1e-6).spend(poisson)
    Ledger(3.0, 1e-6, relation="replace-one").spend(fixed)


def test_a_gaussian_has_no_price_in_pure_dp() -> None:
    ledger = Ledger(1.0, 1e-6, currency="pure")
    with pytest.raises(UnsupportedCost, match="zcdp, gdp or rdp"):
        ledger.spend(Gaussian(1e9))
    assert ledger.entries == ()


@pytest.mark.parametrize("currency", [*CURRENCIES, "pure"])
def test_json_round_trip_is_the_identity(currency: str) -> None:
    ledger = Ledger(30.0, 1e-6, currency=currency)
    costs: list[Cost] = [PureDP(0.1), Laplace(1 / 3), NormLaplace(0.2), ReportNoisyMax(0.1, "exponential")]
    costs += [ExponentialMechanism(0.7), AboveThreshold(5, 40.0, 20.0)]
    if currency != "pure":
        nested = Composed((Gaussian(7.0), PureDP(0.1)))
        costs += [Gaussian(5.5), nested, PoissonSampled(0.01, (nested, ExponentialMechanism(0.3)))]
    for number, cost in enumerate(costs):
        ledger.spend(cost, f"touch {number}")
    again = Ledger.from_json(ledger.to_json())
    assert again.entries == ledger.entries
    assert again.to_json() == ledger.to_json()
    assert again.remaining == ledger.remaining
    assert again.currency == ledger.currency
    assert json.loads(ledger.to_json())["version"] == 2
    assert again.identity == ledger.identity


def test_a_ledger_built_from_text_is_a_copy_that_cannot_spend() -> None:
    ledger = Ledger(1.0, 1e-6)
    ledger.spend(ledger.currency.gaussian(0.8 * ledger.budget))
    again = Ledger.from_json(ledger.to_json())
    assert again.spent == ledger.spent
    assert not again.affords(again.currency.gaussian(0.3 * again.budget))
    assert again.affords(again.currency.gaussian(0.1 * again.budget))
    for use in (again.spend, lambda cost: spend_jointly((again,), cost)):
        with pytest.raises(LedgerError, match="read-only"):
            use(again.currency.gaussian(0.1 * again.budget))


def test_a_text_of_the_first_version_is_still_read() -> None:
    data = json.loads(Ledger(1.0, 1e-6).to_json()) | {"version": 1}
    del data["id"]
    assert Ledger.from_json(json.dumps(data)).budget == Ledger(1.0, 1e-6).budget


def test_prices_in_a_record_are_never_trusted() -> None:
    """A record whose price was lowered costs what its mechanism costs, even if that is more than the budget."""
    ledger = Ledger(1.0, 1e-6)
    spent = ledger.spend(Gaussian(20.0)).price
    data = json.loads(ledger.to_json())
    for price in (0.0, spent / 2, 1e9, -1.0, None):
        data["entries"][0]["price"] = price
        assert Ledger.from_json(json.dumps(data)).spent == spent
    data["entries"] = [{"label": "x", "cost": {"kind": "pure", "epsilon": 9}, "price": 1e-9}]
    overspent = Ledger.from_json(json.dumps(data))
    assert overspent.spent == PureDP(9.0).zcdp() > overspent.budget
    assert overspent.remaining == 0
    assert overspent.spent_epsilon() > 1.0
    assert overspent.statement()["spent_epsilon"] > 1.0
    assert not overspent.affords(Gaussian(1e9))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 3}, "use the release that wrote it"),
        ({"version": None}, "use the release that wrote it"),
        ({"format": "other"}, "not a dpdescent ledger"),
        ({"id": None}, "has an id"),
        ({"epsilon": -1}, "damaged"),
        ({"currency": {"name": "gold"}}, "unknown currency"),
        ({"currency": {}}, "damaged"),
        ({"relation": "cousins"}, "unknown relation"),
        ({"entries": 3}, "must be a list"),
        ({"entries": [{"label": "x"}]}, "damaged"),
        ({"entries": [{"label": "x", "cost": {"kind": "magic"}, "price": 1}]}, "unknown mechanism"),
        ({"entries": [{"label": "x", "cost": {"kind": "gaussian", "sigma": 1}, "price": 1}]}, "does not fit"),
        ({"entries": [{"label": 7, "cost": {"kind": "pure", "epsilon": 1}}]}, "label 7"),
        ({"entries": [{"settles": 1}]}, "without a list"),
        ({"entries": [{"settles": 1, "charges": []}]}, "no open reservation"),
        ({"currency": {"name": "pure"}, "entries": [{"label": "x", "cost": GAUSSIAN}]}, "cannot have accepted"),
    ],
)
def test_a_foreign_or_damaged_record_is_refused_by_name(change: dict[str, object], message: str) -> None:
    data = json.loads(Ledger(1.0, 1e-6).to_json()) | change
    with pytest.raises(LedgerFormatError, match=message):
        Ledger.from_json(json.dumps(data))


def test_text_that_is_not_json_is_refused_by_name() -> None:
    with pytest.raises(LedgerFormatError, match="not JSON"):
        Ledger.from_json("{")


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"epsilon": 0.0}, InvalidParameter),
        ({"epsilon": -1.0}, InvalidParameter),
        ({"epsilon": math.nan}, InvalidParameter),
        ({"epsilon": math.inf}, InvalidParameter),
        ({"epsilon": "much"}, InvalidParameter),
        ({"delta": 0.0}, InvalidParameter),
        ({"delta": 1.0}, InvalidParameter),
        ({"delta": -1e-9}, InvalidParameter),
        ({"delta": math.nan}, InvalidParameter),
        ({"currency": "gold"}, InvalidParameter),
        ({"relation": "cousins"}, UnknownRelation),
        ({"currency": "rdp", "order": 1.0}, InvalidParameter),
        ({"currency": "rdp", "order": 1.001}, InvalidParameter),
        ({"currency": "zcdp", "order": 8.0}, InvalidParameter),
    ],
)
def test_bad_parameters_are_named(arguments: dict[str, object], error: type[Exception]) -> None:
    with pytest.raises(error):
        Ledger(**({"epsilon": 1.0, "delta": 1e-6} | arguments))  # type: ignore[arg-type]


def test_only_costs_can_be_charged() -> None:
    ledger = Ledger(1.0, 1e-6)
    with pytest.raises(InvalidParameter, match="charges costs"):
        ledger.spend(0.1)  # type: ignore[arg-type]


def test_copies_carry_no_right_to_spend() -> None:
    ledger = Ledger(1.0, 1e-6)
    ledger.spend(Gaussian(20.0))
    assert copy.copy(ledger) is ledger
    assert copy.deepcopy({"ledger": ledger})["ledger"] is ledger
    frozen = pickle.loads(pickle.dumps(ledger))
    assert frozen.to_json() == ledger.to_json()
    with pytest.raises(LedgerError, match="read-only"):
        frozen.spend(Gaussian(1e6))


def test_a_forked_child_cannot_spend_from_memory() -> None:
    ledger = Ledger(1.0, 1e-6)
    child = os.fork()
    if child == 0:
        try:
            ledger.spend(Gaussian(1e6))
        except LedgerError:
            os._exit(7)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7


@pytest.mark.parametrize("name", [None, "ledger"])
def test_a_signal_between_a_decision_and_its_charge_spends_nothing(name: str | None, tmp_path: Path) -> None:
    """A handler runs in the thread that it interrupts, which no lock keeps out."""
    ledger = Ledger(1.0, 1e-6, path=None if name is None else tmp_path / name)
    cost = ledger.currency.gaussian(0.6 * ledger.budget)
    with ledger._hold_for(cost, "", "") as charge:
        ledger.spend(cost)  # by the handler
        with pytest.raises(LedgerBusy, match="signal handler"):
            charge()
    assert len(ledger.entries) == 1
    with pytest.raises(BudgetExhausted):
        ledger.spend(cost)
    with ledger._hold_for(ledger.currency.gaussian(0.3 * ledger.budget), "", "") as charge:
        ledger.affords(cost)
        with suppress(LedgerBusy):  # looking at a file ends the transaction
            charge()
    assert ledger.spent <= ledger.budget


def test_threads_share_one_budget() -> None:
    ledger = Ledger(1.0, 1e-6)
    cost = ledger.currency.gaussian(ledger.budget / 100)
    accepted: list[int] = []

    def work() -> None:
        for _ in range(50):
            try:
                ledger.spend(cost)
            except BudgetExhausted:
                continue
            accepted.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == len(ledger.entries) == 100


def test_statement_is_plain_data_that_says_what_is_guaranteed() -> None:
    ledger = Ledger(1.0, 1e-6, currency="gdp", relation="replace-one")
    ledger.spend(Gaussian(30.0))
    ledger.spend(Gaussian(30.0))
    ledger.spend(ExponentialMechanism(0.01))
    statement = json.loads(json.dumps(ledger.statement()))
    assert statement["epsilon"] == 1.0
    assert statement["relation"] == "replace-one"
    assert statement["unit"] == "one row"
    assert statement["mechanisms"] == {"exponential-mechanism": 1, "gaussian": 2}
    assert 0 < statement["spent_epsilon"] < 1


def test_dp_accounting_confirms_the_spent_epsilon() -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    from dp_accounting import rdp

    ledger = Ledger(2.0, 1e-6)
    for _ in range(20):
        ledger.spend(ledger.currency.gaussian(ledger.budget / 40))
        ledger.spend(ledger.currency.selection(ledger.budget / 40))
    accountant = rdp.RdpAccountant(orders=[1 + x / 20 for x in range(1, 1200)])
    accountant.compose(ledger.to_dp_event())
    outside = accountant.get_epsilon(1e-6)
    assert outside == pytest.approx(ledger.spent_epsilon(), rel=2e-4)
    assert isinstance(ledger.to_dp_event(), dp_accounting.ComposedDpEvent)


@pytest.mark.parametrize("currency", [*CURRENCIES, "pure", "approximate"])
def test_what_is_left_in_every_currency_is_accepted_and_a_little_more_is_not(currency: str) -> None:
    ledger = Ledger(2.0, 1e-6, currency=currency)
    ledger.spend(PureDP(0.25))
    left = ledger.left()
    assert set(left) == {"epsilon", "pure"} | ({"gdp", "zcdp"} if currency in CURRENCIES else set())
    assert ledger.affords(PureDP(left["pure"]))
    assert not ledger.affords(PureDP(1.001 * left["pure"]))
    if currency in CURRENCIES:
        noise = 1 / math.sqrt(left["gdp"])
        assert left["zcdp"] == pytest.approx(left["gdp"] / 2, rel=1e-12)
        assert ledger.affords(Gaussian(noise * (1 + 1e-9)))
        assert not ledger.affords(Gaussian(noise / 1.001))
    assert Ledger(left["epsilon"], 1e-6, currency=ledger.currency).budget == pytest.approx(ledger.remaining, rel=1e-4)
    ledger.spend(PureDP(left["pure"]))
    assert ledger.left()["epsilon"] < 2.0 - left["epsilon"] or currency == "rdp"


def test_a_refusal_names_a_mechanism_with_its_article() -> None:
    ledger = Ledger(0.1, 1e-6, currency="approximate")
    with pytest.raises(BudgetExhausted, match=r"^an approximate mechanism would cost"):
        ledger.spend(ApproximateDP(1.0, 1e-9))
    with pytest.raises(BudgetExhausted, match=r"^a pure mechanism would cost"):
        ledger.spend(PureDP(1.0))


def test_a_delta_of_zero_is_for_pure_ledgers_alone_however_the_currency_is_given() -> None:
    assert Ledger(1.0, 0.0, currency=Pure()).delta == Ledger(1.0, 0.0, currency="pure").delta == 0.0
    for currency in (ZCDP(), GDP(), "zcdp", "approximate"):
        with pytest.raises(InvalidParameter, match="delta must lie strictly between 0 and 1"):
            Ledger(1.0, 0.0, currency=currency)


def test_a_mechanism_of_an_infinite_price_is_refused_by_name() -> None:
    ledger = Ledger(1.0, 1e-6, currency="rdp", order=20.0)
    with pytest.raises(InvalidParameter, match="has the price inf in rdp: add noise"):
        ledger.spend(ShuffledDescent(1e-200, 1, 1))
    assert ledger.entries == ()


@pytest.mark.parametrize("unit", ["", None, 7])
def test_what_is_protected_is_said_in_words(unit: object) -> None:
    with pytest.raises(InvalidParameter, match="unit says in words"):
        Ledger(1.0, 1e-6, unit=unit)


def test_what_is_protected_is_the_same_after_writing_and_reading(tmp_path: Path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(1.0, 1e-6, unit="one person", relation="replace-one", currency="gdp", path=path)
    for again in (Ledger.from_json(ledger.to_json()), Ledger.open(path)):
        assert again.statement() == ledger.statement()
        assert (again.unit, again.relation, again.currency) == ("one person", ledger.relation, ledger.currency)
        assert (again.epsilon, again.delta, again.budget) == (1.0, 1e-6, ledger.budget)
    stated = ledger.statement()
    assert (stated["unit"], stated["delta"], stated["budget"]) == ("one person", 1e-6, ledger.budget)
    ledger.spend(ledger.currency.gaussian(ledger.remaining))
    while ledger.remaining:  # what rounding has left
        ledger.spend(ledger.currency.gaussian(ledger.remaining))
    assert ledger.left() == {"epsilon": 0.0, "gdp": 0.0, "zcdp": 0.0, "pure": 0.0}


@pytest.mark.parametrize("currency", ["gdp", "zcdp", "pure"])
def test_what_was_spent_is_stated_as_the_epsilon_that_it_amounts_to(currency: str) -> None:
    ledger = Ledger(2.0, 1e-6, currency=currency)
    assert ledger.remaining == ledger.budget > 0
    assert ledger.epsilon_of(0.0) == 0.0
    assert ledger.epsilon_of(1.0) >= 1.0
    assert 1.99 < ledger.epsilon_of(ledger.budget) <= 2.0
    assert ledger.epsilon_of(ledger.budget * 1.5) > 2.0
