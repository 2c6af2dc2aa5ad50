"""A shared account pays for every method in its own currency, or refuses by name before anything is charged."""

from __future__ import annotations

import ctypes
import hashlib
import itertools
import os
import re
import resource
import shutil
import signal
import sqlite3
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdescent import BudgetExhausted, DPLinearRegression, DPLogisticRegression, InvalidParameter, Ledger
from dpdescent.accounting import Gaussian, PureDP
from dpdescent.errors import (
    DPDescentError,
    LedgerBusy,
    LedgerError,
    LedgerFormatError,
    LedgerNotWritable,
    UnsupportedCost,
)
from dpdescent.estimators import payment
from dpdescent.estimators.purchases import Rehearsal
from dpdescent.ledger import sqlite_store
from dpdescent.queries import LabelSum
from dpdescent.solvers import METHODS, OPTSettings

CURRENCIES = ("gdp", "zcdp", "rdp", "pure", "approximate")
ALL, GAUSSIAN, EPSILONS = set(CURRENCIES), {"gdp", "zcdp", "rdp"}, {"pure", "approximate"}
# Every other private method adds Gaussian noise.
PAID_IN = {
    "privgene": ALL,
    "expmech": EPSILONS,
    "objpert": {"approximate"},
    "sgd-adv": {"approximate"},
    "outpert": GAUSSIAN | {"pure"},
}
QUICK = {"most_steps": 5}
PRIVATE = sorted(name for name, method in METHODS.items() if method.private)

pytestmark = pytest.mark.filterwarnings("ignore::dpdescent.errors.GuaranteeWarning")


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Ledger]:
    """Return the ledgers that fits open for themselves."""
    kept: list[Ledger] = []

    class Kept(Ledger):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            kept.append(self)

    monkeypatch.setattr(payment, "Ledger", Kept)
    return kept


def account_in(currency: str, epsilon: float = 4.0, delta: float = 1e-5, **options: Any) -> Ledger:
    order = 28.0 if currency == "rdp" else None
    return Ledger(epsilon, delta, currency=currency, order=order, **options)


def fitted(method: str, account: Ledger, **options: Any) -> DPLogisticRegression:
    generator = np.random.default_rng(0)
    X = generator.random((150, 2))
    y = (generator.random(150) < 0.2 + 0.6 * X[:, 0]).astype(int)
    model = DPLogisticRegression(
        1.0, 1e-6, bounds=(0, 1), method=method, classes=(0, 1), alpha=0.01, random_state=0, ledger=account
    ).set_params(**options)
    return model.fit(X, y)


def require_same_prices(account: Ledger, opened: list[Ledger], model: DPLogisticRegression) -> None:
    (own,) = opened
    assert own.currency == account.currency
    assert own.entries == account.entries != ()
    assert model.privacy_["currency"] == account.currency.to_dict()
    assert model.privacy_["spent"] == account.spent <= own.budget


SIMILAR = (
    "2opt",
    "2opt-b",
    "2opt-ls",
    "dp-gd",
    "opt-b",
)  # they ask what others ask


#: Every other currency of a method; that each of them pays or refuses is among the laws of methods.
PAYMENTS = [
    (method, currency)
    for place, method in enumerate(method for method in PRIVATE if method not in SIMILAR)
    for currency in list(CURRENCIES)[place % 2 :: 2]
]


@pytest.mark.parametrize(("method", "currency"), PAYMENTS)
def test_an_account_pays_what_the_fit_pays_or_is_left_as_it_was(
    method: str, currency: str, opened: list[Ledger]
) -> None:
    account = account_in(currency)
    if currency in PAID_IN.get(method, GAUSSIAN):
        options = {"solver_options": QUICK} if issubclass(METHODS[method].settings, OPTSettings) else {}
        require_same_prices(account, opened, fitted(method, account, **options))
        return
    with pytest.raises(UnsupportedCost, match=f"method '{method}' uses .* currency '{currency}'.*: open the ledger"):
        fitted(method, account)
    assert account.entries == ()
    assert all(own.entries == () for own in opened)


@pytest.mark.parametrize(
    ("method", "options", "paid_in"),
    [
        ("agd", {"paper": True}, {"zcdp"}),
        ("agd", {"paper": True, "conversion": "optimal"}, GAUSSIAN),
        ("blsgd", {"paper": True, "iterations": 3}, {"rdp"}),
        ("blsgd", {"paper": True, "price": "true", "iterations": 3}, GAUSSIAN),
        ("sgd", {"sampling_rate": 0.2, "steps": 5}, GAUSSIAN),
        ("opt-b", {"sampling_rate": 0.5}, GAUSSIAN),
        ("objpert", {"pure": True}, EPSILONS),
        ("outpert", {"pure": True}, {"pure"}),
        ("outpert", {"sigma": "paper"}, GAUSSIAN),
        ("expmech", {"localise": True, "strong_convexity": 10.0}, EPSILONS),
    ],
)
@pytest.mark.parametrize(
    ("currency", "adjacency"), list(zip(CURRENCIES, itertools.cycle(["zero-out", "replace-one"]), strict=False))
)
def test_settings_that_change_the_mechanism_change_who_can_pay(
    method: str, options: dict[str, Any], paid_in: set[str], adjacency: str, currency: str, opened: list[Ledger]
) -> None:
    account = account_in(currency, relation=adjacency)
    if currency in paid_in:
        model = fitted(method, account, solver_options=options, adjacency=adjacency)
        require_same_prices(account, opened, model)
        assert model.privacy_["relation"] == adjacency
        return
    with pytest.raises(UnsupportedCost, match=f"method '{method}' uses"):
        fitted(method, account, solver_options=options, adjacency=adjacency)
    assert account.entries == ()
    assert all(own.entries == () for own in opened)


def test_regression_is_paid_for_by_an_account_of_another_currency(opened: list[Ledger]) -> None:
    account = account_in("zcdp")
    X = np.random.default_rng(0).random((200, 2))
    DPLinearRegression(1.0, 1e-6, bounds=(0, 1), target_bounds=(-1, 1), ledger=account, random_state=0).fit(
        X, X[:, 0]
    )
    assert opened[0].entries == account.entries != ()


@pytest.mark.parametrize(("method", "asked", "kept"), [("auto", "zcdp", "gdp"), ("agd", "gdp", "zcdp")])
def test_a_currency_that_contradicts_the_account_is_refused_by_name(
    method: str, asked: str, kept: str, opened: list[Ledger]
) -> None:
    account = account_in(kept)
    with pytest.raises(InvalidParameter, match=f"'{asked}' and the ledger keeps '{kept}': leave currency out"):
        fitted(method, account, solver_options={"currency": asked})
    assert account.entries == ()
    assert opened == []
    require_same_prices(account, opened, fitted(method, account, solver_options={"currency": kept}))


@pytest.mark.parametrize(("kept", "asked"), [("zero-out", "replace-one"), ("replace-one", "zero-out")])
def test_an_account_of_another_relation_is_refused_by_name(kept: str, asked: str, opened: list[Ledger]) -> None:
    account = account_in("gdp", relation=kept)
    with pytest.raises(InvalidParameter, match=f"relation {kept} .* adjacency '{kept}'"):
        fitted("auto", account, adjacency=asked)
    assert account.entries == ()
    assert opened == []


def test_an_order_that_certifies_no_such_epsilon_is_refused_with_what_it_certifies() -> None:
    account = Ledger(3.0, 1e-5, currency="rdp")
    with pytest.raises(InvalidParameter, match=r"order 8, which certifies no epsilon below (\d\.\d+) at") as caught:
        fitted("auto", account)
    assert account.entries == ()
    least = float(str(caught.value).split("below ")[1].split()[0])
    with pytest.raises(InvalidParameter, match="certifies no epsilon"):
        fitted("auto", account, epsilon=0.999 * least)
    assert fitted("auto", account, epsilon=1.01 * least).privacy_["spent"] == account.spent


def test_an_account_without_enough_left_is_refused_before_anything_is_charged(opened: list[Ledger]) -> None:
    for currency in CURRENCIES:
        account = account_in(currency, 1.0, 1e-6)
        method = "privgene"
        fitted(method, account)
        before = account.entries
        with pytest.raises(BudgetExhausted, match="lower epsilon"):
            fitted(method, account, epsilon=0.99)
        assert account.entries == before
        assert opened[-1].entries == ()


def test_what_others_spend_from_a_shared_file_is_seen_before_anything_is_charged(
    tmp_path: Path, opened: list[Ledger]
) -> None:
    first = account_in("gdp", 1.2, 1e-6, path=tmp_path / "shared.ledger")
    second = Ledger.open(tmp_path / "shared.ledger")
    fitted("majority", first)
    with pytest.raises(BudgetExhausted, match="lower epsilon"):
        fitted("auto", second)
    assert len(second.entries) == len(first.entries) == 1
    assert opened[-1].entries == ()


def test_a_fit_writes_a_shared_file_twice_and_names_itself(tmp_path: Path, opened: list[Ledger]) -> None:
    account_in("gdp", path=tmp_path / "shared.ledger")
    model = fitted("auto", Ledger.open(tmp_path / "shared.ledger", model="income.json"))
    account = Ledger.open(tmp_path / "shared.ledger")
    (line,) = account.history
    assert (line.state, line.entry.model) == ("settled", "income.json")
    assert line.entry.label == "DPLogisticRegression, method auto"
    assert line.entry.price == model.privacy_["budget"]
    assert account.entries == opened[0].entries
    assert account.spent == model.privacy_["spent"]
    assert account._store.position[0] == 3


def test_bounds_that_are_measured_are_paid_for_by_the_same_reservation(tmp_path: Path, opened: list[Ledger]) -> None:
    account = account_in("gdp", path=tmp_path / "shared.ledger")
    model = fitted("auto", account, bounds=None)
    (line,) = Ledger.open(tmp_path / "shared.ledger").history
    assert line.state == "settled"
    assert line.charges == opened[0].entries
    assert account.spent == model.privacy_["spent"]
    with pytest.raises(InvalidParameter, match="adversary"):
        fitted("outpert", account, bounds=None, adversary="a cell")
    with pytest.raises(InvalidParameter, match=r"cannot\s+pay"):
        fitted("privgene", account_in("pure"), bounds=None)
    assert len(Ledger.open(tmp_path / "shared.ledger").history) == 1


def test_a_fit_is_charged_in_the_file_before_its_solver_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    account, found, auto = account_in("gdp", path=tmp_path / "shared.ledger"), [], METHODS["auto"]

    def solve(curator: Any, settings: Any, listener: Any) -> Any:
        found.append((Ledger.open(tmp_path / "shared.ledger").spent, curator.budget))
        return auto.solve(curator, settings, listener)

    monkeypatch.setattr(Rehearsal, "solve", lambda *_: None)  # which runs the solver without rows
    monkeypatch.setitem(METHODS, "auto", replace(auto, solver=solve))
    fitted("auto", account)
    assert [spent == budget > 0 for spent, budget in found] == [True]


@pytest.mark.parametrize("bounds", [(0.0, 1.0), None])
@pytest.mark.parametrize("problem", [ZeroDivisionError, KeyboardInterrupt])
@pytest.mark.parametrize("answers", [0, 1, 3])
def test_a_solver_that_fails_after_some_answers_has_paid_for_them_and_for_no_more(
    answers: int, problem: type[BaseException], bounds: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account, cost = account_in("gdp", path=tmp_path / "shared.ledger"), Gaussian(30.0)

    def solve(curator: Any, *_: Any) -> Any:
        for _ in range(answers):
            curator.answer(LabelSum(cost))
        raise problem

    monkeypatch.setattr(Rehearsal, "solve", lambda *_: None)  # which runs the solver without rows
    monkeypatch.setitem(METHODS, "auto", replace(METHODS["auto"], solver=solve))
    with pytest.raises(problem):
        fitted("auto", account, bounds=bounds)
    (line,) = Ledger.open(tmp_path / "shared.ledger").history
    measured = 2 if bounds is None else 0
    assert line.state == "settled"
    assert [entry.label for entry in line.charges[:measured]] == ["column histograms"] * measured
    assert [entry.cost for entry in line.charges[measured:]] == [cost] * answers


def test_no_row_is_touched_if_the_file_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "PATIENCE", 0.05)
    monkeypatch.setattr(Rehearsal, "solve", lambda *_: None)  # which runs the solver without rows
    monkeypatch.setitem(METHODS, "auto", replace(METHODS["auto"], solver=lambda *_: pytest.fail("rows are touched")))
    account = account_in("gdp", path=tmp_path / "shared.ledger")
    other = Ledger.open(tmp_path / "shared.ledger")
    with other._store.hold(other._replay), pytest.raises(LedgerBusy):
        fitted("auto", account)
    account._store._connection.execute("PRAGMA max_page_count = 1")  # or as many as there are by now
    with suppress(LedgerNotWritable):
        while True:
            account.spend(PureDP(1e-6))
    charged = len(account.history)
    with pytest.raises(LedgerNotWritable, match="is full"):
        fitted("auto", account)
    (tmp_path / "shared.ledger").rename(tmp_path / "elsewhere")
    with pytest.raises(LedgerError, match="is gone"):
        fitted("auto", account)
    (tmp_path / "elsewhere").rename(tmp_path / "shared.ledger")
    assert len(Ledger.open(tmp_path / "shared.ledger").history) == charged


def _with_little_room(path: Path) -> Ledger:
    """No file may grow beyond so many bytes: what the system does as well when a disk is full."""
    limit = 2**16
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    account = Ledger.open(path)
    with suppress(LedgerNotWritable):
        while True:
            account.spend(PureDP(1e-6))
    assert 0 < len(account.history) < 1000
    return account


def _on_a_full_disk(path: Path) -> Ledger:
    """A file system of 128 kilobytes that this process alone sees, the rest of which is taken by another file."""
    disk = path.parent / "disk"
    disk.mkdir()
    if ctypes.CDLL(None).unshare(NEW_MOUNTS):
        os._exit(SKIPPED)
    for command in (
        ["mount", "--make-rprivate", "/"],
        ["mount", "-t", "tmpfs", "-o", "size=128k", "none", str(disk)],
    ):
        if subprocess.run(command, capture_output=True, check=False).returncode:
            os._exit(SKIPPED)
    account = account_in("gdp", path=disk / "shared.ledger")
    with suppress(OSError), (disk / "rest").open("wb", buffering=0) as rest:
        while True:
            rest.write(bytes(1024))
    with suppress(LedgerNotWritable):
        while True:
            account.spend(PureDP(1e-6))
    return account


def _read_only(path: Path) -> Ledger:
    path.chmod(0o444)
    path.parent.chmod(0o555)
    if os.getuid() == 0:
        os.setuid(NOBODY)
    return Ledger.open(path)


def _of_a_newer_version(path: Path) -> Ledger:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE records SET record = replace(record, '\"version\": 2', '\"version\": 3')")
        (text,) = connection.execute("SELECT record FROM records WHERE number = 0").fetchone()
        digest = hashlib.sha256(f"\n{text}".encode()).hexdigest()
        connection.execute("UPDATE records SET digest = ?", (digest,))
        connection.execute("UPDATE tail SET digest = ?", (digest,))
        connection.commit()
    return Ledger.open(path)


def _held_by_a_process(path: Path) -> Ledger:
    sqlite_store.PATIENCE = 0.05
    account = Ledger.open(path)
    HELD.append(sqlite3.connect(path, isolation_level=None))
    HELD[0].execute("BEGIN IMMEDIATE")
    return account


NOBODY, SKIPPED, NEW_MOUNTS = 65534, 11, 0x20000
HELD: list[sqlite3.Connection] = []
TROUBLES: dict[str, tuple[Callable[[Path], Ledger], type[DPDescentError], str]] = {
    "little room": (_with_little_room, LedgerNotWritable, "disk of the ledger"),
    "a full disk": (_on_a_full_disk, LedgerNotWritable, "is full: free some space; nothing was charged"),
    "read-only": (_read_only, LedgerNotWritable, "nothing was charged"),
    "newer": (_of_a_newer_version, LedgerFormatError, "version 3.*use the release that wrote it"),
    "held": (_held_by_a_process, LedgerBusy, "nothing was charged"),
}


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; those of the tests belong to whoever runs them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
@pytest.mark.parametrize("trouble", TROUBLES)
def test_a_ledger_in_trouble_is_named_and_no_row_is_touched(
    trouble: str, open_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    account_in("gdp", path=open_folder / "shared.ledger").verify()
    monkeypatch.setattr(Rehearsal, "solve", lambda *_: None)  # which runs the solver without rows
    monkeypatch.setitem(METHODS, "auto", replace(METHODS["auto"], solver=lambda *_: os._exit(9)))
    prepare, error, message = TROUBLES[trouble]
    child = os.fork()
    if child == 0:
        code = 8
        try:
            fitted("auto", prepare(open_folder / "shared.ledger"))
        except DPDescentError as problem:
            code = 7 if isinstance(problem, error) and re.search(message, str(problem)) else 6
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == SKIPPED:
        pytest.skip("no file system can be mounted here")
    assert code == 7, "7 is the named error, 9 a row that was touched"


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_that_dies_while_it_holds_a_ledger_keeps_nobody_from_it(tmp_path: Path) -> None:
    account_in("gdp", path=tmp_path / "shared.ledger")
    child = os.fork()
    if child == 0:
        other = Ledger.open(tmp_path / "shared.ledger")
        with other._store.hold(other._replay):
            os.kill(os.getpid(), signal.SIGKILL)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    fitted("auto", Ledger.open(tmp_path / "shared.ledger"))
    assert [line.state for line in Ledger.open(tmp_path / "shared.ledger").history] == ["settled"]


def test_a_method_without_privacy_is_refused_by_any_account() -> None:
    for currency in CURRENCIES:
        with pytest.raises(InvalidParameter, match="leave ledger out"):
            fitted("nonprivate", account_in(currency))


def test_every_refusal_of_a_currency_names_one_that_pays() -> None:
    """Following the advice of a refusal leads to a fit."""
    for method in PRIVATE:
        for currency in sorted(ALL - PAID_IN.get(method, GAUSSIAN)):
            with pytest.raises(DPDescentError) as caught:
                fitted(method, account_in(currency))
            advice = str(caught.value).split("open the ledger with currency ")[1].split(", or ")[0]
            assert {word.strip("'") for word in advice.split(" or ")} == PAID_IN.get(method, GAUSSIAN)
    account = account_in("pure")
    with pytest.raises(UnsupportedCost, match="setting pure of the method"):
        fitted("objpert", account)
    assert fitted("objpert", account, solver_options={"pure": True}).privacy_["spent"] == account.spent


@pytest.mark.parametrize("account", [None, "gdp", "zcdp"])
def test_the_noise_of_a_fit_is_made_for_the_relation_that_was_asked_for(account: str | None) -> None:
    """Rows of zeros have the minimiser zero, so the weights are noise alone; a replaced row moves it twice as far."""
    released = {}
    for adjacency in ("zero-out", "replace-one"):
        model = DPLogisticRegression(
            1.0,
            1e-6,
            bounds=(0, 1),
            method="outpert",
            adjacency=adjacency,
            classes=(0, 1),
            fit_intercept=False,
            noise="float",
            random_state=0,
            ledger=None if account is None else account_in(account, relation=adjacency),
            solver_options={"row_bound": 1.0, "strong_convexity": 5.0},
        ).fit(np.zeros((100, 6)), np.arange(100) % 2)
        assert model.privacy_["relation"] == adjacency
        released[adjacency] = model.coef_
    np.testing.assert_allclose(released["replace-one"], 2 * released["zero-out"], rtol=1e-6)
    assert np.abs(released["zero-out"]).min() > 0
