"""A run is paid for before it starts and settled when it is over; what it may still spend is never given back."""

from __future__ import annotations

import itertools
import math
import os
import random
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from fractions import Fraction
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from dpdescent.accounting import (
    SAMPLER_SHARE,
    ApproximateDP,
    Cost,
    FilteredRun,
    Gaussian,
    NormLaplace,
    PureDP,
    cost_from_dict,
    round_up,
)
from dpdescent.errors import (
    BudgetExhausted,
    InvalidParameter,
    LedgerBusy,
    LedgerError,
    LedgerWarning,
    UnsupportedCost,
)
from dpdescent.ledger import Ledger, require_funds, reserving, sqlite_store

CURRENCIES = ("gdp", "zcdp", "rdp", "pure", "approximate")

# Forking beside other threads, as here, is what the ledger must survive.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def ledger_in(currency: str, epsilon: float = 4.0, delta: float = 1e-6, **options: Any) -> Ledger:
    return Ledger(epsilon, delta, currency=currency, order=28.0 if currency == "rdp" else None, **options)


def run_of(account: Ledger, epsilon: float = 1.0, delta: float = 1e-6) -> Ledger:
    return Ledger(epsilon, delta, currency=account.currency, relation=str(account.relation))


def share_of(ledger: Ledger, share: float) -> Cost:
    if ledger.currency.name in ("pure", "approximate"):
        return PureDP(share * ledger.budget)
    return ledger.currency.gaussian(share * ledger.budget)


@pytest.fixture(params=["memory", "file"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {} if request.param == "memory" else {"path": tmp_path / "ledger"}


def seen(account: Ledger) -> Ledger:
    """The ledger as another process would read it."""
    return account if account.path is None else Ledger.open(account.path)


@pytest.mark.parametrize("currency", CURRENCIES)
def test_the_whole_is_charged_before_the_run_and_what_it_spent_after_it(currency: str, place) -> None:
    account = ledger_in(currency, **place)
    own = run_of(account)
    with reserving(account, own, "fit"):
        assert seen(account).spent == own.budget
        (line,) = seen(account).history
        assert (line.state, line.entry.label, line.entry.price) == ("reserved", "fit", own.budget)
        for label in ("first", "second"):
            own.spend(share_of(own, 0.3), label, "operating system")
        assert seen(account).spent == own.budget
    assert own.entries == account.entries == seen(account).entries
    assert [entry.label for entry in account.entries] == ["first", "second"]
    assert account.spent == seen(account).spent == own.spent < 0.61 * own.budget
    (line,) = seen(account).history
    assert (line.state, line.entry.label, line.charges) == ("settled", "fit", own.entries)


def test_a_run_that_is_over_can_spend_nothing(place) -> None:
    account = ledger_in("gdp", **place)
    own = run_of(account)
    with reserving(account, own):
        own.spend(share_of(own, 0.1))
    with pytest.raises(LedgerError, match="over and settled"):
        own.spend(share_of(own, 0.1))
    with pytest.raises(InvalidParameter, match="open a new one"), reserving(account, own):
        pass
    assert len(seen(account).entries) == 1


def test_a_run_that_fails_is_settled_with_what_it_had_charged(place) -> None:
    account = ledger_in("gdp", **place)
    for problem in (ValueError, KeyboardInterrupt, BudgetExhausted):
        own, before = run_of(account), account.spent

        def fail(own: Ledger = own, problem: type[BaseException] = problem) -> None:
            with reserving(account, own):
                own.spend(share_of(own, 0.25))
                raise problem

        with pytest.raises(problem):
            fail()
        assert seen(account).spent == pytest.approx(before + 0.25 * own.budget, rel=1e-9)


def test_a_run_that_dies_stays_charged_with_the_whole(tmp_path: Path) -> None:
    account = ledger_in("gdp", path=tmp_path / "ledger")
    child = os.fork()
    if child == 0:
        own = run_of(account)
        with reserving(account, own):
            own.spend(share_of(own, 0.1))
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert account.affords(PureDP(1e-9))
    assert account.spent == run_of(account).budget
    assert account.history[0].state == "reserved"


def test_a_forked_child_gives_back_nothing_of_what_its_parent_may_spend(tmp_path: Path) -> None:
    account = ledger_in("gdp", path=tmp_path / "ledger")
    own = run_of(account)
    try:
        with reserving(account, own):
            own.spend(share_of(own, 0.1))
            child = os.fork()
            if child == 0:
                raise ZeroDivisionError
            assert os.waitpid(child, 0)[1] == 0
            assert Ledger.open(account.path).spent == own.budget
            own.spend(share_of(own, 0.8))
    except ZeroDivisionError:
        os._exit(0)
    assert Ledger.open(account.path).spent == own.spent


def test_a_run_that_does_not_fit_is_refused_and_changes_nothing(place) -> None:
    account = ledger_in("gdp", 1.2, **place)
    first, second = run_of(account), run_of(account)
    require_funds(account, first)
    with reserving(account, first):
        with pytest.raises(BudgetExhausted, match="lower epsilon"):
            require_funds(seen(account), second)
        with pytest.raises(BudgetExhausted, match="lower epsilon"), reserving(seen(account), second):
            pytest.fail("the body must not run")
    assert account.entries == second.entries == ()
    with reserving(account, second):  # it was not closed by the refusal
        second.spend(share_of(second, 1.0))


@pytest.mark.parametrize("currency", CURRENCIES)
def test_a_run_takes_the_whole_budget_to_the_last_digit(currency: str) -> None:
    account = ledger_in(currency, 1.0)
    with reserving(account, run_of(account)):
        assert account.remaining == 0
    assert account.remaining == account.budget


def test_a_run_of_another_currency_or_relation_is_refused() -> None:
    account = ledger_in("gdp")
    others = [Ledger(1.0, 1e-6, currency="zcdp"), Ledger(1.0, 1e-6, currency="gdp", relation="replace-one")]
    for own in others:
        with pytest.raises(InvalidParameter, match="one relation, currency and unit"), reserving(account, own):
            pass
    used = run_of(account)
    used.spend(PureDP(0.01))
    with pytest.raises(InvalidParameter, match="open a new one"), reserving(account, used):
        pass
    with pytest.raises(InvalidParameter, match="twice"), reserving(account, account):
        pass
    assert account.entries == ()


def test_a_run_whose_own_ledger_is_a_file_is_refused(tmp_path: Path) -> None:
    """Another process could go on charging it after it was settled."""
    account, own = ledger_in("gdp"), ledger_in("gdp", 1.0, path=tmp_path / "own")
    with pytest.raises(InvalidParameter, match="ledger in memory"), reserving(account, own):
        pass


def test_a_ledger_that_cannot_be_written_in_the_end_stays_charged_with_the_whole(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sqlite_store, "PATIENCE", 0.05)
    account = ledger_in("gdp", path=tmp_path / "ledger")
    own, other = run_of(account), Ledger.open(account.path)

    def run_while_the_other_takes_the_file(held: ExitStack) -> None:
        with reserving(account, own):
            own.spend(share_of(own, 0.1))
            held.enter_context(other._store.hold(other._replay))

    with ExitStack() as held, pytest.warns(LedgerWarning, match="stays charged"):
        run_while_the_other_takes_the_file(held)
    assert Ledger.open(account.path).spent == own.budget
    assert own.entries != ()


def test_a_ledger_that_cannot_be_written_at_the_start_stops_the_run(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(sqlite_store, "PATIENCE", 0.05)
    account = ledger_in("gdp", path=tmp_path / "ledger")
    other = Ledger.open(account.path)
    with other._store.hold(other._replay), pytest.raises(LedgerBusy), reserving(account, run_of(account)):
        pytest.fail("the body must not run")
    assert Ledger.open(account.path).entries == ()


def test_a_charge_that_is_being_made_is_waited_for_before_the_run_is_settled() -> None:
    account = ledger_in("gdp")
    own = run_of(account)
    entered, leave = threading.Event(), threading.Event()

    def slow_charge() -> None:
        with own._hold_for(share_of(own, 0.5), "slow", "") as charge:
            entered.set()
            leave.wait()
            charge()

    thread = threading.Thread(target=slow_charge)
    with reserving(account, own):
        thread.start()
        entered.wait()
        threading.Timer(0.1, leave.set).start()
    thread.join()
    assert account.entries == own.entries
    assert len(account.entries) == 1


def test_no_settlement_counts_more_than_was_reserved_or_settles_twice(place) -> None:
    account, rich = ledger_in("gdp", **place), ledger_in("gdp")
    whole = FilteredRun("gdp", 0.01)
    number = account._reserve(whole, "run")
    dear, cheap = rich.spend(Gaussian(9.0)), rich.spend(Gaussian(20.0))
    with pytest.raises(LedgerError, match="more than was reserved"):
        account._settle(number, (dear,))
    assert seen(account).spent == 0.01
    account._settle(number, (cheap,))
    for charges in ((), (cheap, cheap)):
        with pytest.raises(ValueError, match="no open reservation"):
            account._settle(number, charges)
    account.spend(Gaussian(30.0))
    for wrong in (number + 2, 999, None, [number], str(number)):
        with pytest.raises(ValueError, match="no open reservation"):
            account._settle(wrong, ())
    assert seen(account).spent == account.spent == pytest.approx(1 / 400 + 1 / 900, rel=1e-12)


def test_no_settlement_fails_more_often_than_was_reserved(place) -> None:
    """Its charges cost less than the run by far, and may fail where the run may not."""
    account, rich = ledger_in("gdp", **place), Ledger(4.0, 1e-3, currency="gdp")
    number = account._reserve(FilteredRun("gdp", 0.5, 1e-14), "run")
    failing = rich.spend(ApproximateDP(1e-3, 2e-14))
    with pytest.raises(LedgerError, match="more than was reserved"):
        account._settle(number, (failing,))
    assert seen(account).spent == 0.5
    account._settle(number, (rich.spend(ApproximateDP(1e-3, 1e-14)),))
    assert 0 < seen(account).spent < 1e-5


class Interrupted(dict[int, Any]):
    """Lines of which the next cannot be written."""

    def __setitem__(self, number: int, line: Any) -> None:
        raise KeyboardInterrupt


def test_an_interrupt_between_the_steps_of_a_record_never_counts_too_little() -> None:
    account, rich = ledger_in("gdp"), ledger_in("gdp")
    cheap = rich.spend(Gaussian(20.0))
    number = account._reserve(FilteredRun("gdp", 0.01), "run")
    history = account._history
    kept, reserved = history.lines, history.spent
    for interrupt in (lambda: history.settle(number, (cheap,)), lambda: history.charge(99, cheap)):
        history.lines = Interrupted(kept)
        with pytest.raises(KeyboardInterrupt):
            interrupt()
        history.lines = kept
    assert history.spent == reserved + rich._history.spent  # nothing given back, and the charge counted
    history.settle(number, (cheap,))
    history.settle(number, (cheap,))  # passed on again
    assert history.spent == 2 * rich._history.spent


class Interrupt:
    """Raises KeyboardInterrupt at one of the lines that the modules of the ledger execute."""

    def __init__(self, at: int) -> None:
        self.left = at

    def __call__(self, frame: FrameType, event: str, argument: Any) -> Any:
        inside = os.path.dirname(frame.f_code.co_filename) == os.path.dirname(sqlite_store.__file__)
        return self.step if inside else None

    def step(self, frame: FrameType, event: str, argument: Any) -> Any:
        self.left -= 1
        if self.left == 0:
            raise KeyboardInterrupt
        return self.step


def pay_for_a_run(account: Ledger, run: list[Fraction]) -> None:
    own = run_of(account)
    with reserving(account, own):
        for noise in (8.0, 9.0):
            run.append(Fraction(own.spend(Gaussian(noise)).price))
    run.append(Fraction(account.spend(Gaussian(30.0)).price))


@pytest.mark.parametrize(("kept_in", "every"), [("memory", 2), ("file", 7)])
def test_an_interrupt_at_any_line_counts_all_that_was_run_and_leaves_the_ledger_usable(
    kept_in: str, every: int, tmp_path: Path
) -> None:
    """A charge counts as run as soon as it has returned, which is when rows may be touched."""
    before = sys.gettrace()
    for at in itertools.count(1, every):
        place = {} if kept_in == "memory" else {"path": tmp_path / f"{at}.ledger"}
        account, run, interrupt = ledger_in("gdp", **place), [], Interrupt(at)
        sys.settrace(interrupt)
        try:
            pay_for_a_run(account, run)
        except KeyboardInterrupt:
            pass
        finally:
            sys.settrace(before)
        for _ in range(2):
            for view in (account, seen(account)):
                assert sum(run) <= exact(view.entries) <= Fraction(view.spent) <= Fraction(view.budget)
            pay_for_a_run(account, run)
        if interrupt.left > 0:
            break
    assert at > 300


# Failures that no currency counts ------------------------------------------------------------------------------


def test_runs_that_overlap_share_what_is_reserved_for_failures() -> None:
    account = Ledger(3.0, 1e-6, currency="gdp")
    runs = [Ledger(1.0, 1e-6, currency="gdp") for _ in range(3)]
    with ExitStack() as held:
        for own in runs:
            held.enter_context(reserving(account, own))
        assert account._history.failures > 0
        for own in runs:
            own.spend(NormLaplace(0.1))
    assert len(account.entries) == 3


def test_a_run_fails_no_more_often_than_was_reserved_for_it() -> None:
    """The account has room for nine such failures; a run with a ninth of the budget gets one of them."""
    account = Ledger(1.0, 1e-20, currency="zcdp")
    epsilon = Ledger(1.0, 1e-20).currency.epsilon(account.budget / 8.5, 1e-20)
    own = Ledger(epsilon, 1e-20, currency="zcdp")
    alone = Ledger(epsilon, 1e-20, currency="zcdp")
    for _ in range(9):
        alone.spend(NormLaplace(1e-4))
    with reserving(account, own):
        own.spend(NormLaplace(1e-4))
        with pytest.raises(BudgetExhausted, match="may fail"):
            own.spend(NormLaplace(1e-4))
        assert not account.affords(NormLaplace(0.01)) or account._history.failures > 0
    assert account._history.failures == own._history.failures


def test_a_run_in_epsilons_and_deltas_reserves_its_delta() -> None:
    account = Ledger(3.0, 1e-6, currency="approximate")
    own, late = Ledger(1.0, 6e-7, currency="approximate"), Ledger(1.0, 6e-7, currency="approximate")
    with reserving(account, own):
        assert not account.affords(ApproximateDP(0.1, 5e-7))
        own.spend(ApproximateDP(0.5, 5e-7))
        with reserving(account, late):  # what is left of delta, and not all that it asked for
            with pytest.raises(BudgetExhausted, match="may fail"):
                late.spend(ApproximateDP(0.5, 5e-7))
            late.spend(PureDP(0.5))
    assert account.affords(ApproximateDP(0.1, 4e-7))
    assert not account.affords(ApproximateDP(0.1, 6e-7))


def test_a_run_of_a_smaller_delta_than_its_account_keeps_to_its_own() -> None:
    account = Ledger(3.0, 1e-3, currency="approximate")
    with reserving(account, own := Ledger(1.0, 1e-6, currency="approximate")):
        assert own.failure_limit <= Fraction(1e-6)
        with pytest.raises(BudgetExhausted, match="may fail"):
            own.spend(ApproximateDP(0.5, 1e-5))
    assert own.entries == account.entries == ()


@pytest.mark.parametrize("currency", CURRENCIES)
def test_a_run_that_spends_all_it_may_is_settled_beside_charges_of_others(currency: str, tmp_path: Path) -> None:
    account = ledger_in(currency, path=tmp_path / "ledger")
    own = run_of(account)
    whole = FilteredRun(own.currency.name, own.budget, 0.0, own.currency.to_dict().get("order"))
    with reserving(account, own):
        own.spend(whole)
        Ledger.open(tmp_path / "ledger").spend(PureDP(1e-3), "another process")
    assert [line.state for line in Ledger.open(tmp_path / "ledger").history] == ["settled", "charged"]


@pytest.mark.parametrize("currency", CURRENCIES)
@pytest.mark.parametrize("delta", [1e-6, 1e-12, 0.3])
def test_the_parts_of_delta_are_no_more_than_delta(currency: str, delta: float) -> None:
    """What the currency converts at, what mechanisms may fail with, and what the samplers lack."""
    ledger = Ledger(4.0, delta, currency=currency)
    failing, counted = ledger._failure_limit, Fraction(ledger._counted_delta)
    assert failing > 0
    assert counted + failing + SAMPLER_SHARE * Fraction(delta) <= Fraction(delta)
    largest = max(0.0, -round_up(-failing))
    assert not ledger.affords(ApproximateDP(1e-3, math.nextafter(largest, 1.0)))
    assert ledger.affords(ApproximateDP(1e-3, largest))


def test_what_others_may_fail_with_is_seen_before_a_run_is_refused(tmp_path: Path) -> None:
    """The run is given what is left of delta, so that it can start."""
    account = Ledger(3.0, 1e-6, currency="approximate", path=tmp_path / "ledger")
    stale, own = Ledger.open(account.path), Ledger(1.0, 6e-7, currency="approximate")
    account.spend(ApproximateDP(0.1, 9e-7))
    require_funds(stale, own)
    with reserving(Ledger.open(account.path), own):
        assert own._failure_limit < Fraction(1, 10**7)


def test_runs_in_several_processes_never_spend_more_than_the_file_holds(tmp_path: Path) -> None:
    """Each child chooses its next run by what is left, and leaves some of its runs by an error, half done."""
    account = ledger_in("gdp", 2.0, path=tmp_path / "ledger")
    children = []
    for seed in range(4):
        child = os.fork()
        if child == 0:
            done = False
            try:
                done = spend_in_runs(tmp_path, seed)
            finally:
                os._exit(0 if done else 1)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    run = sum(
        (Fraction(float(line)) for path in tmp_path.glob("run-*") for line in path.read_text().split()), Fraction(0)
    )
    account.affords(PureDP(1e-9))
    assert {line.state for line in account.history} == {"settled"}
    assert run == exact(account.entries) <= Fraction(account.budget)
    assert account.spent > 0.9 * account.budget


def spend_in_runs(folder: Path, seed: int) -> bool:
    """Spend in runs until next to nothing is left, writing down the price of every mechanism that was run."""
    generator, account = random.Random(seed), Ledger.open(folder / "ledger")
    with (folder / f"run-{seed}").open("w") as written:
        for _ in range(200):
            if account.remaining < 0.05 * account.budget:
                return True
            own = run_of(account, max(0.02, account.left()["epsilon"] * generator.uniform(0.1, 1.0)))
            with suppress(BudgetExhausted, ZeroDivisionError), reserving(account, own):
                for _ in range(generator.randrange(4)):
                    print(repr(own.spend(share_of(own, generator.uniform(0.1, 0.9))).price), file=written)
                1 / generator.randrange(2)
            account.affords(PureDP(1e-9))
    return False


# The law -------------------------------------------------------------------------------------------------------


def exact(entries: tuple[Any, ...]) -> Fraction:
    return sum((Fraction(entry.price) for entry in entries), Fraction(0))


kinds = st.sampled_from(["open", "ask", "close", "charge"])
steps = st.lists(st.tuples(kinds, st.integers(0, 5), st.floats(0.02, 0.9)), max_size=40)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(currency=st.sampled_from(CURRENCIES), steps=steps)
def test_the_account_never_counts_less_than_was_run_nor_more_than_its_budget(currency: str, steps) -> None:
    """At every moment of every interleaving of runs and charges, in exact arithmetic."""
    account = ledger_in(currency, 2.5)
    run = Fraction(0)  # the prices of all mechanisms that were run
    open_runs: list[tuple[Ledger, Iterator[None]]] = []
    for step, which, share in steps:
        try:
            if step == "charge":
                run += Fraction(account.spend(share_of(account, share)).price)
            elif step == "open":
                own = run_of(account, 0.8 + share)
                context = reserving(account, own)
                context.__enter__()
                open_runs.append((own, context))
            elif open_runs:
                own, context = open_runs[which % len(open_runs)]
                if step == "ask":
                    run += Fraction(own.spend(share_of(own, share)).price)
                else:
                    context.__exit__(None, None, None)
                    open_runs.remove((own, context))
        except BudgetExhausted:
            pass
        counted = exact(account.entries)
        assert run <= counted <= Fraction(account.budget)
        assert counted <= Fraction(account.spent)
        if not open_runs:
            assert run == counted


# The cost of a run ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("currency", CURRENCIES)
def test_a_run_costs_its_total_in_its_own_currency_and_survives_as_data(currency: str) -> None:
    own = ledger_in(currency, 1.0)
    cost = FilteredRun(currency, own.budget, 1e-12, 28.0 if currency == "rdp" else None)
    assert own.currency.price(cost) == own.budget
    assert cost.delta == 1e-12
    assert cost_from_dict(cost.to_dict()) == cost


def test_a_run_has_no_price_in_another_currency() -> None:
    for filtered in CURRENCIES:
        cost = FilteredRun(filtered, 0.5, order=8.0 if filtered == "rdp" else None)
        prices = {"zcdp": cost.zcdp, "gdp": cost.mu_squared, "rdp": lambda cost=cost: cost.rdp(9.0)}
        for name, price in prices.items():
            if name == filtered != "rdp":
                assert price() == 0.5
            else:
                with pytest.raises(UnsupportedCost, match="no price"):
                    price()
        assert cost.pure() == (0.5 if filtered in ("pure", "approximate") else math.inf)


@pytest.mark.parametrize(
    "arguments",
    [
        ("gold", 1.0),
        ("gdp", 0.0),
        ("gdp", -1.0),
        ("gdp", 1.0, -1e-9),
        ("gdp", 1.0, 1.0),
        ("gdp", 1.0, 0.0, 8.0),
        ("rdp", 1.0),
        ("rdp", 1.0, 0.0, 1.0),
    ],
)
def test_a_run_that_no_filter_has_is_refused(arguments: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidParameter):
        FilteredRun(*arguments)


def test_no_accountant_passes_over_a_run_that_is_not_over() -> None:
    dp_accounting = pytest.importorskip("dp_accounting")
    account = ledger_in("gdp")
    own = run_of(account)
    with reserving(account, own):
        own.spend(Gaussian(50.0))
        assert account.to_dp_event().events == [dp_accounting.UnsupportedDpEvent()]
    assert account.to_dp_event().events == [dp_accounting.GaussianDpEvent(50.0)]
