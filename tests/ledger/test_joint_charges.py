"""One charge to several ledgers: all of them pay, each its own price, or none does."""

from __future__ import annotations

import json
import math
import os
import pickle
import shutil
import signal
import threading
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from statistics import NormalDist

import pytest

from dpdescent.accounting import AboveThreshold, Composed, Cost, ExponentialMechanism, Gaussian, PureDP
from dpdescent.errors import (
    BudgetExhausted,
    InvalidParameter,
    LedgerError,
    LedgerFormatError,
    LedgerNotWritable,
    UnsupportedCost,
)
from dpdescent.ledger import (
    Entry,
    Ledger,
    afford_jointly,
    require_affordable,
    require_distinct,
    spend_jointly,
)
from dpdescent.ledger.sqlite_store import SQLiteStore

CHEAP = Gaussian(100.0)

# Forking beside other threads, as here, is what the ledger must survive.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


def finishes(*works: Callable[[], None], seconds: float = 30.0) -> bool:
    """Return whether all works end, each in a thread of its own; a thread that waits for ever is left behind."""
    threads = [threading.Thread(target=work, daemon=True) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(seconds)
    return not any(thread.is_alive() for thread in threads)


def names_of_one_file(folder: Path) -> tuple[Path, ...]:
    """Four names of one ledger file: its own, a symbolic link, a relative path, a path through a linked folder."""
    real = folder / "real"
    real.mkdir()
    names = (real / "ledger", folder / "symbolic", Path("real/ledger"), folder / "linked" / "ledger")
    Ledger(1.0, 1e-6, path=names[0])
    names[1].symlink_to(names[0])
    names[3].parent.symlink_to(real)
    return names


def test_asking_charges_nothing_and_raises_exactly_what_charging_raises(tmp_path) -> None:
    poor, rich = Ledger(0.01, 1e-6), Ledger(9.0, 1e-6, path=tmp_path / "rich")
    pure = Ledger(1.0, 1e-6, currency="pure")
    frozen = pickle.loads(pickle.dumps(poor))
    other = Ledger(9.0, 1e-6, relation="replace-one")
    refused = [
        ((poor, rich), Gaussian(1.0)),
        ((rich, poor), Gaussian(1.0)),
        ((rich, pure), CHEAP),
        ((rich, frozen), CHEAP),
        ((rich, other), CHEAP),
        ((rich, rich), CHEAP),
        ((rich,), "a cost"),
        ((), CHEAP),
    ]
    for ledgers, cost in refused:
        raised = []
        for ask in (require_affordable, afford_jointly, spend_jointly):
            try:
                answer = ask(ledgers, cost)
            except Exception as problem:
                raised.append((type(problem), str(problem)))
            else:
                assert ask is afford_jointly
                assert answer is False
                raised.append(None)
        assert raised[0] == raised[2] is not None
        assert raised[1] in (None, raised[0])
        assert (raised[1] is None) == (raised[0][0] is BudgetExhausted)
    require_affordable((poor, rich), Gaussian(1e4))
    assert afford_jointly((poor, rich), Gaussian(1e4)) is True
    assert Ledger.open(tmp_path / "rich").entries == ()
    assert poor.entries == rich.entries == pure.entries == other.entries == ()
    spend_jointly((poor, rich), Gaussian(1e4))
    assert [entry.cost for entry in (*poor.entries, *rich.entries)] == [Gaussian(1e4)] * 2


def test_asking_sees_what_others_have_spent_from_a_shared_file(tmp_path) -> None:
    own, shared = Ledger(1.0, 1e-6), Ledger(1.0, 1e-6, path=tmp_path / "shared")
    other = Ledger.open(tmp_path / "shared")
    cost = own.currency.gaussian(0.6 * own.budget)
    assert afford_jointly((own, shared), cost)
    other.spend(cost)
    assert not afford_jointly((own, shared), cost)
    with pytest.raises(BudgetExhausted):
        require_affordable((own, shared), cost)


def test_one_file_under_two_names_is_refused_by_name_instead_of_waiting_for_itself(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    names = names_of_one_file(tmp_path)
    for first in names:
        for second in names:
            ledgers, messages = (Ledger.open(first), Ledger.open(second)), []

            def charge(ledgers=ledgers, messages=messages) -> None:
                for ask in (spend_jointly, require_affordable, afford_jointly):
                    with pytest.raises(InvalidParameter, match="twice") as caught:
                        ask(ledgers, CHEAP)
                    messages.append(str(caught.value))

            assert finishes(charge, seconds=10)
            assert len(messages) == 3
            assert all(str(names[0]) in message for message in messages)
    assert Ledger.open(names[0]).entries == ()


def test_a_copy_of_a_file_is_the_same_ledger(tmp_path) -> None:
    Ledger(1.0, 1e-6, path=tmp_path / "ledger").verify()
    shutil.copy(tmp_path / "ledger", tmp_path / "copy")
    ledgers = Ledger.open(tmp_path / "ledger"), Ledger.open(tmp_path / "copy")
    with pytest.raises(InvalidParameter, match="twice"):
        spend_jointly(ledgers, CHEAP)
    assert ledgers[0].entries == ledgers[1].entries == ()


def test_one_ledger_in_memory_named_twice_is_refused() -> None:
    """Asked twice for six tenths of the budget it would accept twice, and pay twelve tenths."""
    ledger, another = Ledger(1.0, 1e-6), Ledger(1.0, 1e-6)
    with pytest.raises(InvalidParameter, match="twice"):
        spend_jointly((ledger, another, ledger), ledger.currency.gaussian(0.6 * ledger.budget))
    assert ledger.entries == another.entries == ()
    require_distinct((ledger, another))


def test_a_charge_to_no_ledger_is_refused() -> None:
    with pytest.raises(InvalidParameter, match="at least one"):
        spend_jointly((), CHEAP)


def test_ledgers_of_different_relations_are_not_charged_together() -> None:
    """The noise is a multiple of the sensitivity under one relation, so it is worth less under the other."""
    ledgers = Ledger(1.0, 1e-6), Ledger(1.0, 1e-6, relation="replace-one")
    with pytest.raises(InvalidParameter, match="replace-one and zero-out"):
        spend_jointly(ledgers, CHEAP)
    assert ledgers[0].entries == ledgers[1].entries == ()


def test_callers_that_know_two_files_by_different_names_never_wait_for_each_other(tmp_path) -> None:
    """If they were sorted by name, one caller would hold the first file and await the second, the other reversed."""
    Ledger(9.0, 1e-6, path=tmp_path / "z")
    Ledger(9.0, 1e-6, path=tmp_path / "m")
    (tmp_path / "a").symlink_to(tmp_path / "z")

    def charge(names: tuple[str, str]) -> Callable[[], None]:
        ledgers = tuple(Ledger.open(tmp_path / name) for name in names)

        def work() -> None:
            for _ in range(100):
                spend_jointly(ledgers, Gaussian(1e3))

        return work

    assert finishes(charge(("a", "m")), charge(("z", "m")), charge(("m", "z")))
    assert [len(Ledger.open(tmp_path / name).entries) for name in ("z", "m")] == [300, 300]


def test_a_joint_charge_that_fails_on_the_disk_never_records_less_than_was_accepted(tmp_path) -> None:
    made = (Ledger(1.0, 1e-6, path=tmp_path / name) for name in ("one", "two"))
    first, second = ledgers = sorted(made, key=lambda ledger: ledger.identity)
    let_grow(second, False)

    def spend_until_the_last_page_is_full() -> None:
        for _ in range(40):
            spend_jointly((second, first), Gaussian(1e3))

    with pytest.raises(LedgerNotWritable, match="is full"):
        spend_until_the_last_page_is_full()
    count = len(first.entries)
    assert len(second.entries) == count - 1
    for ledger in ledgers:
        assert Ledger.open(ledger.path).to_json() == ledger.to_json()
    let_grow(second, True)
    spend_jointly((second, first), CHEAP)
    assert [len(Ledger.open(ledger.path).entries) for ledger in ledgers] == [count + 1, count]


def let_grow(ledger: Ledger, allowed: bool) -> None:
    """Let the disk of a ledger be full, or have room again."""
    connection = ledger._store._connection
    pages = 2**30 if allowed else connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")


def test_a_process_killed_between_two_charges_leaves_the_first_and_touches_nothing(tmp_path) -> None:
    """The charges are made in the order of the identities, whatever the order in which the ledgers are named."""
    made = (Ledger(1.0, 1e-6, path=tmp_path / name) for name in ("one", "two"))
    first, second = sorted(made, key=lambda ledger: ledger.identity)
    child = os.fork()
    if child == 0:
        try:
            insert = SQLiteStore._insert

            def die_at_the_second(store, connection, record) -> None:
                insert(store, connection, record)
                if store is second._store:
                    os.kill(os.getpid(), signal.SIGKILL)

            SQLiteStore._insert = die_at_the_second
            spend_jointly((second, first), CHEAP)
            (tmp_path / "touched").touch()
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert not (tmp_path / "touched").exists()
    assert [len(Ledger.open(ledger.path).entries) for ledger in (first, second)] == [1, 0]
    spend_jointly((first, second), CHEAP)
    assert [len(ledger.entries) for ledger in (first, second)] == [2, 1]


# Currencies ----------------------------------------------------------------------------------------------------

SIGMA, EPSILON, ORDER = 20.0, 0.125, 8.0
SEARCH = AboveThreshold(5, 64.0, 32.0)
PRICES = {
    "gdp": {
        Gaussian(SIGMA): 1 / SIGMA**2,
        ExponentialMechanism(EPSILON): (2 * NormalDist().inv_cdf(1 / (1 + math.exp(-EPSILON / 2)))) ** 2,
    },
    "zcdp": {
        Gaussian(SIGMA): 1 / (2 * SIGMA**2),
        ExponentialMechanism(EPSILON): EPSILON**2 / 8,
        PureDP(EPSILON): EPSILON * math.tanh(EPSILON / 2),
    },
    "rdp": {Gaussian(SIGMA): ORDER / (2 * SIGMA**2)},
    "pure": {PureDP(EPSILON): EPSILON, ExponentialMechanism(EPSILON): EPSILON, SEARCH: 1 / 32 + 2 / 64},
}
PAIRS = [("gdp", "zcdp"), ("gdp", "rdp"), ("pure", "zcdp"), ("pure", "rdp"), ("zcdp", "approximate")]


def ledger_in(currency: str, path: Path | None = None) -> Ledger:
    return Ledger(3.0, 1e-6, currency=currency, order=ORDER if currency == "rdp" else None, path=path)


@pytest.mark.parametrize("currencies", PAIRS + [pair[::-1] for pair in PAIRS], ids=" and ".join)
def test_each_ledger_is_charged_the_price_in_its_own_currency(currencies: tuple[str, str], tmp_path) -> None:
    pure = {"pure", "approximate"} & set(currencies)
    costs: list[Cost] = [PureDP(EPSILON), ExponentialMechanism(EPSILON), SEARCH]
    costs += [] if pure else [Gaussian(SIGMA), Composed((Gaussian(SIGMA), PureDP(EPSILON)))]
    ledgers = ledger_in(currencies[0]), ledger_in(currencies[1], path=tmp_path / "shared")
    for number, cost in enumerate(costs):
        spend_jointly(ledgers, cost, f"touch {number}")
    assert ledgers[0].spent != ledgers[1].spent
    for name, ledger in zip(currencies, (ledgers[0], Ledger.open(tmp_path / "shared")), strict=True):
        assert [entry.cost for entry in ledger.entries] == costs
        assert Fraction(ledger.spent) >= sum(Fraction(entry.price) for entry in ledger.entries)
        alone = ledger_in(name)
        for cost, entry in zip(costs, ledger.entries, strict=True):
            assert entry.price == ledger.currency.price(cost) == alone.spend(cost).price
            if cost in PRICES.get(name, {}):
                assert entry.price == pytest.approx(PRICES[name][cost], rel=1e-12)
        assert ledger.spent == alone.spent


@pytest.mark.parametrize("currencies", PAIRS + [pair[::-1] for pair in PAIRS], ids=" and ".join)
def test_a_refusal_in_either_currency_charges_neither_and_names_mechanism_and_currency(
    currencies: tuple[str, str], tmp_path
) -> None:
    for number, epsilons in enumerate([(0.1, 9.0), (9.0, 0.1)]):
        path = tmp_path / str(number)
        own = Ledger(epsilons[0], 1e-6, currency=currencies[0])
        ledgers = own, Ledger(epsilons[1], 1e-6, currency=currencies[1], path=path)
        with pytest.raises(BudgetExhausted, match=f"pure mechanism would cost .* {currencies[number]}, and"):
            spend_jointly(ledgers, PureDP(1.0))
        assert ledgers[0].entries == ledgers[1].entries == ()
        assert Ledger.open(path).entries == ()
        spend_jointly(ledgers, PureDP(0.01))
        assert len(ledgers[0].entries) == len(ledgers[1].entries) == 1


@pytest.mark.parametrize("kept", ["gdp", "zcdp", "rdp"])
@pytest.mark.parametrize("currency", ["pure", "approximate"])
def test_a_cost_without_a_price_in_one_currency_charges_neither_and_names_both(
    kept: str, currency: str, tmp_path
) -> None:
    costs = (Gaussian(1e3), Composed((PureDP(0.01), Gaussian(1e3))), AboveThreshold(3, 1e3, 1e3, "gaussian"))
    rich, path = ledger_in(kept), tmp_path / "ledger"
    ledgers = rich, ledger_in(currency, path=path)
    for cost in costs:
        for order in (ledgers, ledgers[::-1]):
            for ask in (spend_jointly, require_affordable, afford_jointly):
                with pytest.raises(UnsupportedCost, match=f"an? {cost.kind} mechanism has no price in {currency}"):
                    ask(order, cost)
        assert rich.affords(cost)
    assert ledgers[0].entries == ledgers[1].entries == ()
    assert Ledger.open(path).entries == ()


# Randomness ----------------------------------------------------------------------------------------------------


def test_a_statement_lists_the_kinds_of_randomness_that_were_recorded(tmp_path) -> None:
    own, shared = Ledger(1.0, 1e-6), Ledger(1.0, 1e-6, path=tmp_path / "shared")
    assert "randomness" not in shared.statement()
    shared.spend(CHEAP, "gradient")
    assert "randomness" not in shared.statement()
    spend_jointly((own, shared), CHEAP, "gradient", "seeded (not for release)")
    spend_jointly((own, shared), CHEAP, "gradient", randomness="operating system")
    own.spend(CHEAP, randomness="operating system")
    assert own.statement()["randomness"] == ["operating system", "seeded (not for release)"]
    for ledger in (shared, Ledger.open(tmp_path / "shared"), Ledger.from_json(shared.to_json())):
        assert ledger.statement()["randomness"] == ["not recorded", "operating system", "seeded (not for release)"]
        assert [entry.randomness for entry in ledger.entries] == [
            None,
            "seeded (not for release)",
            "operating system",
        ]


def test_randomness_is_written_only_where_it_was_given() -> None:
    plain, seeded = Entry("gradient", CHEAP, 0.5), Entry("gradient", CHEAP, 0.5, "seeded")
    assert set(plain.to_dict()) == {"label", "cost", "price"}
    assert plain.to_dict() | {"randomness": "seeded"} == seeded.to_dict()
    for entry in (plain, seeded):
        assert Entry.from_dict(json.loads(json.dumps(entry.to_dict())), lambda _: 0.5) == entry
    for junk in (3, ["seeded"], True):
        with pytest.raises(LedgerFormatError, match="randomness"):
            Entry.from_dict(plain.to_dict() | {"randomness": junk}, lambda _: 0.5)


def test_a_read_only_copy_pays_for_nothing_jointly() -> None:
    own = Ledger(1.0, 1e-6)
    with pytest.raises(LedgerError, match="read-only"):
        spend_jointly((own, pickle.loads(pickle.dumps(Ledger(1.0, 1e-6)))), CHEAP)
    assert own.entries == ()
