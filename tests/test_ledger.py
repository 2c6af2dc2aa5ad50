"""The filter refuses before it is overspent, and the record survives everything."""

from __future__ import annotations

import copy
import fcntl
import json
import math
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpdescent.accounting import (
    AboveThreshold,
    Composed,
    Cost,
    ExponentialMechanism,
    FixedSizeSampled,
    Gaussian,
    Laplace,
    NormLaplace,
    PoissonSampled,
    PureDP,
    ReportNoisyMax,
    epsilon_to_gdp,
    epsilon_to_zcdp,
)
from dpdescent.errors import (
    BudgetExhausted,
    InvalidParameter,
    LedgerError,
    LedgerFormatError,
    UnknownRelation,
    UnsupportedCost,
)
from dpdescent.ledger import Ledger
from ledger_races import CAPACITY

CURRENCIES = ("zcdp", "gdp", "rdp")

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
    assert json.loads(ledger.to_json())["version"] == 1


def test_a_resumed_ledger_remembers_what_was_spent() -> None:
    ledger = Ledger(1.0, 1e-6)
    ledger.spend(ledger.currency.gaussian(0.8 * ledger.budget))
    again = Ledger.from_json(ledger.to_json())
    with pytest.raises(BudgetExhausted):
        again.spend(again.currency.gaussian(0.3 * again.budget))
    again.spend(again.currency.gaussian(0.1 * again.budget))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "use the release that wrote it"),
        ({"version": None}, "use the release that wrote it"),
        ({"format": "other"}, "not a dpdescent ledger"),
        ({"epsilon": -1}, "damaged"),
        ({"currency": {"name": "gold"}}, "unknown currency"),
        ({"currency": {}}, "damaged"),
        ({"relation": "cousins"}, "unknown relation"),
        ({"entries": 3}, "must be a list"),
        ({"entries": [{"label": "x"}]}, "damaged"),
        ({"entries": [{"label": "x", "cost": {"kind": "magic"}, "price": 1}]}, "unknown mechanism"),
        ({"entries": [{"label": "x", "cost": {"kind": "gaussian", "sigma": 1}, "price": 1}]}, "does not fit"),
        ({"entries": [{"label": "x", "cost": {"kind": "pure", "epsilon": 1}, "price": math.nan}]}, "price nan"),
        ({"entries": [{"label": "x", "cost": {"kind": "pure", "epsilon": 1}, "price": -1}]}, "price -1"),
        ({"entries": [{"label": "x", "cost": {"kind": "pure", "epsilon": 9}, "price": 9}]}, "more than its budget"),
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


def test_every_entry_is_on_disk_before_spend_returns(tmp_path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(1.0, 1e-6, path=path)
    for number in range(3):
        ledger.spend(Gaussian(40.0), f"step {number}")
        assert Ledger.open(path).to_json() == ledger.to_json()
    refused = path.read_bytes()
    with pytest.raises(BudgetExhausted):
        ledger.spend(Gaussian(0.1))
    assert path.read_bytes() == refused


def test_two_handles_on_one_file_share_one_budget(tmp_path) -> None:
    path = tmp_path / "ledger"
    first = Ledger(1.0, 1e-6, path=path)
    second = Ledger.open(path)
    half = first.currency.gaussian(0.6 * first.budget)
    first.spend(half)
    with pytest.raises(BudgetExhausted):
        second.spend(half)
    assert second.entries == first.entries


def test_a_charge_made_while_the_file_is_being_created_counts_for_its_creator(tmp_path, monkeypatch) -> None:
    path, sync, others = tmp_path / "ledger", os.fsync, []

    def sync_and_charge(descriptor: int) -> None:
        sync(descriptor)
        if path.exists() and not others:
            others.append(None)
            others[0] = Ledger.open(path)
            others[0].spend(others[0].currency.gaussian(0.6 * others[0].budget), "meanwhile")

    monkeypatch.setattr(os, "fsync", sync_and_charge)
    creator = Ledger(1.0, 1e-6, path=path)
    with pytest.raises(BudgetExhausted):
        creator.spend(creator.currency.gaussian(0.6 * creator.budget))
    assert [entry.label for entry in creator.entries] == ["meanwhile"]


def test_the_name_of_a_new_file_is_on_the_disk_before_the_ledger_is_used(tmp_path, monkeypatch) -> None:
    sync, synced = os.fsync, []

    def note_and_sync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, (tmp_path / "ledger").exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note_and_sync)
    Ledger(1.0, 1e-6, path=tmp_path / "ledger")
    head, folder = (tmp_path / "ledger").stat().st_ino, tmp_path.stat().st_ino
    assert synced == [(head, False), (folder, True)]
    assert [each.name for each in tmp_path.iterdir()] == ["ledger"]


def test_a_ledger_in_a_folder_that_does_not_exist_is_refused_by_name(tmp_path) -> None:
    with pytest.raises(LedgerError, match="no folder"):
        Ledger(1.0, 1e-6, path=tmp_path / "nowhere" / "ledger")


def test_a_child_forked_during_a_charge_does_not_keep_the_file_locked(tmp_path, monkeypatch) -> None:
    path = tmp_path / "ledger"
    ledger, sync, children = Ledger(1.0, 1e-6, path=path), os.fsync, []

    def sync_and_fork(descriptor: int) -> None:
        sync(descriptor)
        children.append(os.fork())
        if children[-1] == 0:
            time.sleep(60)
            os._exit(0)

    monkeypatch.setattr(os, "fsync", sync_and_fork)
    ledger.spend(Gaussian(40.0))
    monkeypatch.setattr(os, "fsync", sync)
    try:
        with open(path, "rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    finally:
        os.kill(children[0], signal.SIGKILL)
        os.waitpid(children[0], 0)


def test_a_pickled_file_ledger_spends_from_the_same_file(tmp_path) -> None:
    ledger = Ledger(1.0, 1e-6, path=tmp_path / "ledger")
    sent = pickle.loads(pickle.dumps(ledger))
    sent.spend(ledger.currency.gaussian(0.7 * ledger.budget))
    with pytest.raises(BudgetExhausted):
        ledger.spend(ledger.currency.gaussian(0.7 * ledger.budget))


def test_concurrent_processes_never_overspend_one_file(tmp_path) -> None:
    path = tmp_path / "ledger"
    Ledger(1.0, 1e-6, path=path)
    program = (
        "import sys\n"
        "from dpdescent.errors import BudgetExhausted\n"
        "from dpdescent.ledger import Ledger\n"
        "ledger = Ledger.open(sys.argv[1])\n"
        "accepted = 0\n"
        "for _ in range(40):\n"
        "    try: ledger.spend(ledger.currency.gaussian(ledger.budget / 60)); accepted += 1\n"
        "    except BudgetExhausted: pass\n"
        "print(accepted)\n"
    )
    workers = [
        subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=subprocess.PIPE, text=True)
        for _ in range(3)
    ]
    accepted = sum(int(worker.communicate()[0]) for worker in workers)
    assert accepted == 60
    assert len(Ledger.open(path).entries) == 60


@pytest.fixture(scope="module")
def raced(tmp_path_factory) -> dict[str, Any]:
    """Forty races of a creator and three openers, half of them with kills; and a creator killed at every step."""
    folder = tmp_path_factory.mktemp("races")
    program = Path(__file__).with_name("ledger_races.py")
    environment = os.environ | {"OPENBLAS_NUM_THREADS": "1"}
    finished = subprocess.run(
        [sys.executable, str(program), str(folder), "40", "3"], env=environment, stdout=subprocess.PIPE, check=True
    )
    return json.loads(finished.stdout)


def labels_in(path: str) -> list[str]:
    """The charges in a ledger file that must open, must fit into its budget and must hold none twice."""
    ledger = Ledger.open(path)
    labels = [entry.label for entry in ledger.entries]
    assert exact_total(ledger) <= Fraction(ledger.budget)
    assert len(labels) == len(set(labels)) <= CAPACITY
    return labels


def test_a_creator_and_openers_that_start_together_never_overspend(raced) -> None:
    for race in raced["races"]:
        assert [error for racer in race["racers"] for error in racer["errors"]] == []
        told = [label for racer in race["racers"] for label in racer["accepted"]]
        killed = sum(racer["killed"] for racer in race["racers"])
        if not Path(race["path"]).exists():
            assert race["racers"][0]["killed"]
            assert told == []
            continue
        recorded = labels_in(race["path"])
        assert set(told) <= set(recorded)
        # Of a racer that was killed inside a charge, that one charge may be recorded though it was never told.
        assert len(recorded) - len(told) <= killed
        if not race["racers"][0]["killed"]:
            assert len(recorded) == CAPACITY
    racers = [racer for race in raced["races"] for racer in race["racers"]]
    assert sum(racer["killed"] for racer in racers) >= 5
    assert sum(sum(bool(racer["accepted"]) for racer in race["racers"]) > 1 for race in raced["races"]) >= 5


def test_a_creator_killed_at_any_step_leaves_no_file_or_one_that_opens(raced) -> None:
    *stopped, whole = raced["interrupted"]
    assert all(outcome["killed"] for outcome in stopped)
    assert not whole["killed"]
    assert whole["accepted"] == ["first", "second"]
    assert sum(not outcome["exists"] for outcome in stopped) >= 3
    assert sum(outcome["exists"] for outcome in stopped) >= 5
    for outcome in raced["interrupted"]:
        assert outcome["errors"] == outcome["next"]["errors"] == []
        assert outcome["exists"] or outcome["accepted"] == []
        recorded = labels_in(outcome["path"])
        assert set(outcome["accepted"]) | set(outcome["next"]["accepted"]) <= set(recorded)
        assert len(recorded) == CAPACITY


def test_a_write_cut_short_by_a_kill_is_dropped_because_no_data_was_touched(tmp_path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.spend(Gaussian(40.0), "whole")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"label": "torn", "cost": {"kind": "gau')
    again = Ledger.open(path)
    assert [entry.label for entry in again.entries] == ["whole"]
    again.spend(Gaussian(50.0), "next")
    assert [entry.label for entry in Ledger.open(path).entries] == ["whole", "next"]


def test_a_damaged_line_inside_the_file_is_refused(tmp_path) -> None:
    path = tmp_path / "ledger"
    Ledger(1.0, 1e-6, path=path).spend(Gaussian(40.0))
    path.write_bytes(path.read_bytes() + b"garbage\n")
    with pytest.raises(LedgerFormatError, match="not JSON"):
        Ledger.open(path)


def test_a_file_that_was_damaged_is_refused_every_time_and_no_charge_is_counted_twice(tmp_path) -> None:
    path = tmp_path / "ledger"
    ledger, other = Ledger(1.0, 1e-6, path=path), Ledger.open(path)
    other.spend(Gaussian(40.0), "whole")
    whole = path.read_bytes()
    path.write_bytes(whole + b"garbage\n")
    before = ledger.to_json()
    for _ in range(3):
        for use in (ledger.affords, ledger.spend):
            with pytest.raises(LedgerFormatError, match="not JSON"):
                use(Gaussian(1e3))
        assert ledger.to_json() == before
    path.write_bytes(whole + b'{"label": "x"}\n')
    with pytest.raises(LedgerFormatError, match="damaged"):
        ledger.spend(Gaussian(1e3))
    assert ledger.to_json() == before
    path.write_bytes(whole)
    assert ledger.affords(Gaussian(1e3))
    assert ledger.entries == other.entries


def test_a_file_that_no_longer_holds_the_charges_that_were_read_is_refused(tmp_path) -> None:
    path = tmp_path / "ledger"
    ledger = Ledger(1.0, 1e-6, path=path)
    empty = path.read_bytes()
    ledger.spend(Gaussian(10.0))
    path.write_bytes(empty)
    for use in (ledger.affords, ledger.spend):
        with pytest.raises(LedgerError, match="cut short"):
            use(Gaussian(1e3))
    path.rename(tmp_path / "kept")
    with pytest.raises(LedgerError, match="is gone"):
        ledger.spend(Gaussian(1e3))
    newer = Ledger(1.0, 1e-6, path=path)
    for _ in range(3):
        newer.spend(Gaussian(40.0))
    before = path.read_bytes()
    with pytest.raises(LedgerError, match="replaced"):
        ledger.spend(Gaussian(1e3))
    assert path.read_bytes() == before


def test_a_charge_that_fails_on_the_disk_is_counted_if_it_reached_the_file(tmp_path, monkeypatch) -> None:
    """The charge raises, so no data is touched for it; what the file holds is the truth for everybody."""
    path = tmp_path / "ledger"
    ledger, write, sync = Ledger(1.0, 1e-6, path=path), os.write, os.fsync

    def fail_to_sync(_: int) -> None:
        raise OSError("the disk is gone")

    def write_half(descriptor: int, content: bytes) -> int:
        write(descriptor, content[: len(content) // 2])
        raise OSError("the disk is full")

    monkeypatch.setattr(os, "write", write_half)
    with pytest.raises(OSError, match="full"):
        ledger.spend(Gaussian(40.0), "half")
    monkeypatch.setattr(os, "write", write)
    monkeypatch.setattr(os, "fsync", fail_to_sync)
    with pytest.raises(OSError, match="gone"):
        ledger.spend(Gaussian(40.0), "whole")
    assert ledger.entries == ()
    monkeypatch.setattr(os, "fsync", sync)
    ledger.spend(Gaussian(40.0), "next")
    assert [entry.label for entry in ledger.entries] == ["whole", "next"]
    assert Ledger.open(path).to_json() == ledger.to_json()


def test_a_charge_interrupted_after_it_reached_the_disk_is_never_forgotten(tmp_path, monkeypatch) -> None:
    path = tmp_path / "ledger"
    ledger, sync = Ledger(1.0, 1e-6, path=path), os.fsync

    def sync_and_interrupt(descriptor: int) -> None:
        sync(descriptor)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", sync_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.spend(ledger.currency.gaussian(0.6 * ledger.budget))
    monkeypatch.setattr(os, "fsync", sync)
    with pytest.raises(BudgetExhausted):
        ledger.spend(ledger.currency.gaussian(0.6 * ledger.budget))
    assert ledger.to_json() == Ledger.open(path).to_json()


def test_starting_over_an_existing_file_and_opening_a_missing_one_are_refused(tmp_path) -> None:
    path = tmp_path / "ledger"
    Ledger(1.0, 1e-6, path=path)
    with pytest.raises(LedgerError, match=r"Ledger\.open"):
        Ledger(1.0, 1e-6, path=path)
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger.open(tmp_path / "nowhere")


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
