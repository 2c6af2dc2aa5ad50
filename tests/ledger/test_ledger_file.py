"""A ledger in a file: durable before it answers, shared by processes, and never fooled about what was charged."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import shutil
import signal
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from dpdescent.accounting import Gaussian, PureDP
from dpdescent.errors import (
    BudgetExhausted,
    DPDescentError,
    LedgerBusy,
    LedgerError,
    LedgerFormatError,
    LedgerNotWritable,
)
from dpdescent.ledger import Entry, Ledger, Origin, import_lines, sqlite_store
from dpdescent.ledger.history import History

CHEAP = Gaussian(1e3)
NOBODY = 65534

# Forking beside other threads, as here, is what the ledger must survive.
pytestmark = pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "ledger"


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite_store, "PATIENCE", 0.05)
    monkeypatch.setattr(sqlite_store, "CREATION", 0.05)


def part(ledger: Ledger, share: float) -> Gaussian:
    return ledger.currency.gaussian(share * ledger.budget)


@contextmanager
def edited(path: Path) -> Iterator[sqlite3.Connection]:
    """A connection of somebody who edits the file by hand."""
    with closing(sqlite3.connect(path)) as connection:
        yield connection
        connection.commit()


def in_child(work: Callable[[], object]) -> int:
    """Run ``work`` in a forked child; return 0, 7 after a named error, 9 after another, a negative if killed."""
    child = os.fork()
    if child == 0:
        code = 9
        try:
            work()
            code = 0
        except DPDescentError:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


# Durable and shared --------------------------------------------------------------------------------------------


def test_every_entry_is_in_the_file_before_spend_returns(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    for number in range(3):
        ledger.spend(Gaussian(40.0), f"step {number}", "operating system")
        assert Ledger.open(path).to_json() == ledger.to_json()
    with pytest.raises(BudgetExhausted):
        ledger.spend(Gaussian(0.1))
    assert Ledger.open(path).to_json() == ledger.to_json()
    assert len(ledger.entries) == 3


def test_a_commit_reaches_the_disk_before_it_returns(path: Path) -> None:
    """Without power no test can tell; so it is the settings of every connection that are checked."""
    created = Ledger(1.0, 1e-6, path=path)
    for ledger in (created, Ledger.open(path), pickle.loads(pickle.dumps(created))):
        connection = ledger._store._connection
        found = [connection.execute(f"PRAGMA {name}").fetchone()[0] for name in ("synchronous", "journal_mode")]
        assert found == [3, "delete"]
        assert connection.execute("PRAGMA fullfsync").fetchone()[0] == 1


def test_the_name_of_a_new_file_is_on_the_disk_before_the_ledger_is_used(path: Path, monkeypatch) -> None:
    sync, synced = os.fsync, []

    def note_and_sync(descriptor: int) -> None:
        synced.append((os.fstat(descriptor).st_ino, path.exists()))
        sync(descriptor)

    monkeypatch.setattr(os, "fsync", note_and_sync)
    Ledger(1.0, 1e-6, path=path)
    assert (path.parent.stat().st_ino, True) in synced


def test_any_name_will_do_for_a_file(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a b", "per%20cent", "what?mode=ro", "number#1", "Grüße.db", "./dot", "-option"):
        Ledger(1.0, 1e-6, path=name).spend(CHEAP)
        assert len(Ledger.open(tmp_path / name).entries) == 1
        assert (tmp_path / name).is_file()


def test_two_handles_on_one_file_share_one_budget(path: Path) -> None:
    first = Ledger(1.0, 1e-6, path=path)
    second = Ledger.open(path)
    assert second.identity == first.identity != Ledger(1.0, 1e-6).identity
    first.spend(part(first, 0.6))
    assert not second.affords(part(first, 0.6))
    with pytest.raises(BudgetExhausted):
        second.spend(part(first, 0.6))
    assert second.entries == first.entries


def test_what_others_charge_between_a_query_and_its_charge_is_counted(path: Path) -> None:
    """The check is made in the transaction that charges, not before it."""
    first, second = Ledger(1.0, 1e-6, path=path), Ledger.open(path)
    hold = second._store.hold

    @contextmanager
    def after_another_charge(replay: Any) -> Iterator[Any]:
        first.spend(part(first, 0.6))
        with hold(replay) as append:
            yield append

    second._store.hold = after_another_charge
    with pytest.raises(BudgetExhausted):
        second.spend(part(first, 0.6))


@pytest.mark.usefixtures("impatient")
def test_nobody_can_charge_while_another_decides(path: Path) -> None:
    """A transaction that only reads at first would let both decide on the same sum."""
    first, second = Ledger(1.0, 1e-6, path=path), Ledger.open(path)
    with first._hold_for(part(first, 0.6), "first", "") as charge:
        with pytest.raises(LedgerBusy, match="nothing was charged"):
            second.spend(part(first, 0.6), "second")
        charge()
    assert [entry.label for entry in Ledger.open(path).entries] == ["first"]


def test_concurrent_processes_never_overspend_one_file(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)

    def spend_forty() -> None:
        for _ in range(40):
            try:
                ledger.spend(part(ledger, 1 / 60))
            except BudgetExhausted:
                continue
            with open(f"{path}.{os.getpid()}", "a") as told:
                told.write("x")

    children = []
    for _ in range(3):
        children.append(os.fork())
        if children[-1] == 0:
            try:
                spend_forty()
            finally:
                os._exit(0)
    for child in children:
        os.waitpid(child, 0)
    told = sum(each.stat().st_size for each in path.parent.glob("ledger.*"))
    assert told == len(Ledger.open(path).entries) == 60


def test_threads_share_one_connection(path: Path) -> None:
    ledger, accepted = Ledger(1.0, 1e-6, path=path), []

    def work() -> None:
        for _ in range(15):
            try:
                ledger.spend(part(ledger, 1 / 20))
            except BudgetExhausted:
                continue
            accepted.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(accepted) == len(ledger.entries) == len(Ledger.open(path).entries) == 20


def test_entries_carry_a_date_and_the_model_file(path: Path) -> None:
    Ledger(1.0, 1e-6, path=path).spend(CHEAP, "gradient")
    Ledger.open(path, model=Path("income.json")).spend(CHEAP, "mean")
    first, second = Ledger.open(path).entries
    assert (first.label, first.model, second.label, second.model) == ("gradient", None, "mean", "income.json")
    for entry in (first, second):
        date = datetime.fromisoformat(entry.date)
        assert date.utcoffset() == timedelta(0)
        assert abs(datetime.now(UTC) - date) < timedelta(minutes=1)
    memory = Ledger(1.0, 1e-6)
    assert memory.spend(CHEAP).date is None


# Creation ------------------------------------------------------------------------------------------------------


def test_of_several_creators_one_succeeds(path: Path) -> None:
    for _ in range(5):
        gate, release = os.pipe()
        children = []
        for epsilon in range(1, 6):
            children.append(os.fork())
            if children[-1] == 0:
                code = 9
                try:
                    os.close(release)
                    os.read(gate, 1)
                    ledger = Ledger(epsilon, 1e-6, currency="pure", path=path)
                    ledger.spend(PureDP(0.5), str(epsilon))
                    code = 0
                except LedgerError as problem:
                    code = 7 if "there is a ledger" in str(problem) else 8
                finally:
                    os._exit(code)
        os.close(gate)
        os.close(release)
        codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        assert sorted(codes) == [0, 7, 7, 7, 7]
        kept = Ledger.open(path)
        assert [entry.label for entry in kept.entries] == [str(int(kept.epsilon))] == [str(1 + codes.index(0))]
        del kept
        path.unlink()


def test_starting_over_an_existing_file_and_opening_a_missing_one_are_refused(path: Path) -> None:
    Ledger(1.0, 1e-6, path=path).spend(CHEAP)
    with pytest.raises(LedgerError, match="there is a ledger at"):
        Ledger(1.0, 1e-6, path=path)
    assert len(Ledger.open(path).entries) == 1
    with pytest.raises(LedgerError, match="there is no ledger"):
        Ledger.open(path.with_name("nowhere"))
    assert not path.with_name("nowhere").exists()


def test_a_folder_that_is_missing_or_named_as_the_file_is_refused_by_name(tmp_path: Path) -> None:
    for use in (Ledger.open, lambda where: Ledger(1.0, 1e-6, path=where)):
        with pytest.raises(LedgerError, match="there is no folder"):
            use(tmp_path / "nowhere" / "ledger")
        with pytest.raises(LedgerError, match="is a folder"):
            use(tmp_path)


@pytest.mark.usefixtures("impatient")
def test_an_empty_file_is_refused_and_can_become_a_ledger(path: Path) -> None:
    path.touch()
    with pytest.raises(LedgerFormatError, match="is empty: put back the ledger that was there, or create it again"):
        Ledger.open(path)
    Ledger(1.0, 1e-6, path=path).spend(CHEAP)
    assert len(Ledger.open(path).entries) == 1


def test_whoever_opens_a_file_waits_for_its_head(path: Path) -> None:
    path.touch()
    opened: list[Ledger] = []
    thread = threading.Thread(target=lambda: opened.append(Ledger.open(path)))
    thread.start()
    time.sleep(0.1)
    created = Ledger(1.0, 1e-6, path=path)
    thread.join()
    assert opened[0].identity == created.identity


def dying_at(step: int, connect: Callable[..., Any]) -> Callable[..., Any]:
    """Return a ``connect`` whose connections kill the process at their ``step``-th statement, before or after it."""
    count = [0]

    class Dying(sqlite3.Connection):
        def execute(self, *arguments: Any) -> Any:
            count[0] += 1
            if count[0] == step:
                os.kill(os.getpid(), signal.SIGKILL)
            answer = super().execute(*arguments)
            count[0] += 1
            if count[0] == step:
                os.kill(os.getpid(), signal.SIGKILL)
            return answer

    return lambda *arguments, **options: connect(*arguments, factory=Dying, **options)


@pytest.mark.usefixtures("impatient")
def test_a_process_killed_at_any_statement_leaves_a_file_that_knows_all_that_was_accepted(tmp_path: Path) -> None:
    """The next process finishes what was left of the creation, and finds every charge that was told."""
    connect, step, outcomes = sqlite3.connect, 0, []
    while not outcomes or outcomes[-1]:
        step += 1
        path, told = tmp_path / str(step), tmp_path / f"{step}.told"
        told.touch()

        def work(path: Path = path, told: Path = told, step: int = step) -> None:
            sqlite3.connect = dying_at(step, connect)
            ledger = Ledger(1.0, 1e-6, path=path)
            for label in ("first", "second"):
                ledger.spend(part(ledger, 0.4), label)
                told.write_text(told.read_text() + f"{label} ")

        outcomes.append(in_child(work))
        try:
            ledger = Ledger.open(path)
        except (LedgerError, LedgerFormatError):
            assert told.read_text() == ""
            ledger = Ledger(1.0, 1e-6, path=path)
        labels = [entry.label for entry in ledger.entries]
        accepted = told.read_text().split()
        assert labels[: len(accepted)] == accepted
        assert len(labels) <= len(accepted) + 1  # the charge in which it was killed may be there
        for _ in range(2 - len(labels)):
            ledger.spend(part(ledger, 0.4))
        with pytest.raises(BudgetExhausted):
            ledger.spend(part(ledger, 0.4))
    assert set(outcomes[:-1]) == {-signal.SIGKILL}
    assert len(outcomes) > 40


# Refusals by name ----------------------------------------------------------------------------------------------


def test_a_full_disk_is_named_and_nothing_is_charged(path: Path) -> None:
    ledger = Ledger(9.0, 1e-6, path=path)
    connection = ledger._store._connection
    connection.execute(f"PRAGMA max_page_count = {connection.execute('PRAGMA page_count').fetchone()[0]}")

    def spend_until_the_last_page_is_full() -> None:
        for _ in range(100):
            ledger.spend(CHEAP)

    with pytest.raises(LedgerNotWritable, match="is full: free some space; nothing was charged"):
        spend_until_the_last_page_is_full()
    kept = ledger.to_json()
    assert 0 < len(ledger.entries) < 100
    assert Ledger.open(path).to_json() == kept
    connection.execute("PRAGMA max_page_count = 1000000")
    ledger.spend(CHEAP, "room again")
    assert Ledger.open(path).entries == ledger.entries


def test_a_disk_that_fails_is_named(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    problem = sqlite3.OperationalError("disk I/O error")
    problem.sqlite_errorcode = sqlite3.SQLITE_IOERR | (4 << 8)

    def fail(*_: Any) -> None:
        raise problem

    ledger._store._insert = fail
    with pytest.raises(LedgerNotWritable, match="ledger verify"):
        ledger.spend(CHEAP)
    assert Ledger.open(path).entries == ()


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter; the folders of the tests belong to whoever runs them."""
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def test_a_file_that_may_only_be_read_is_named(open_folder: Path) -> None:
    path = open_folder / "ledger"
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.verify()
    del ledger
    path.chmod(0o444)
    open_folder.chmod(0o555)

    def work() -> None:
        if os.getuid() == 0:
            os.setuid(NOBODY)
        with pytest.raises(LedgerNotWritable, match=r"permission to .*write the file and its folder.*nothing was"):
            Ledger.open(path).spend(CHEAP)
        with pytest.raises(LedgerNotWritable, match="permission to write the folder"):
            Ledger(1.0, 1e-6, path=open_folder / "new")

    assert in_child(work) == 0
    open_folder.chmod(0o755)
    path.chmod(0o644)
    assert Ledger.open(path).entries == ()


def test_an_immutable_file_is_named(path: Path) -> None:
    Ledger(1.0, 1e-6, path=path)
    try:
        done = subprocess.run(["chattr", "+i", str(path)], capture_output=True, check=False).returncode == 0
    except OSError:
        done = False
    if not done:
        pytest.skip("no file can be made immutable here")
    try:
        with pytest.raises(LedgerNotWritable, match="chattr -i"):
            Ledger.open(path).spend(CHEAP)
    finally:
        subprocess.run(["chattr", "-i", str(path)], check=True)
    assert Ledger.open(path).entries == ()


@pytest.mark.usefixtures("impatient")
def test_a_file_that_is_held_is_named_and_can_still_be_read(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        begin = time.monotonic()
        for use in (ledger.spend, Ledger.open(path).spend):
            with pytest.raises(LedgerBusy, match="try again when they are done"):
                use(CHEAP)
        assert time.monotonic() - begin < 5
        assert ledger.affords(CHEAP)
    ledger.spend(CHEAP)
    assert len(Ledger.open(path).entries) == 1


@pytest.mark.usefixtures("impatient")
def test_the_file_is_free_when_whoever_held_it_is_dead(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)

    def die_while_holding() -> None:
        with ledger._hold_for(part(ledger, 0.6), "dead", "") as charge:
            insert = ledger._store._insert

            def die(*arguments: Any) -> None:
                insert(*arguments)
                os.kill(os.getpid(), signal.SIGKILL)

            ledger._store._insert = die
            charge()

    assert in_child(die_while_holding) == -signal.SIGKILL
    ledger.spend(part(ledger, 0.6), "alive")
    assert [entry.label for entry in Ledger.open(path).entries] == ["alive"]


def test_a_file_that_is_no_ledger_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database, but long enough to be taken for one" * 20)
    text = path.read_bytes()
    for use in (Ledger.open, lambda where: Ledger(1.0, 1e-6, path=where)):
        with pytest.raises(LedgerFormatError, match="is not a dpdescent ledger"):
            use(path)
    assert path.read_bytes() == text
    path.unlink()
    with edited(path) as other:
        other.execute("CREATE TABLE people (name)")
    before = path.read_bytes()
    for use in (Ledger.open, lambda where: Ledger(1.0, 1e-6, path=where)):
        with pytest.raises(LedgerFormatError, match="another program"):
            use(path)
    assert path.read_bytes() == before


def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    Ledger(1.0, 1e-6, path=path)
    rewrite(path, lambda records: records[0].update(version=3))
    with pytest.raises(LedgerFormatError, match=r"version 3.*use the release that wrote it"):
        Ledger.open(path)


# Edited files --------------------------------------------------------------------------------------------------


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], None]) -> None:
    """Change the records, and forge all digests so that they fit."""
    with edited(path) as connection:
        records = [json.loads(text) for (text,) in connection.execute("SELECT record FROM records ORDER BY number")]
        change(records)
        connection.execute("DELETE FROM records")
        digest = ""
        for number, record in enumerate(records):
            text = json.dumps(record)
            digest = hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()
            connection.execute("INSERT INTO records VALUES (?, ?, ?)", (number, text, digest))
        connection.execute("UPDATE tail SET count = ?, digest = ?", (len(records), digest))


EDITS = {
    "a price": ["UPDATE records SET record = replace(record, '\"price\": ', '\"price\": 0') WHERE number = 2"],
    "a mechanism": ["UPDATE records SET record = replace(record, '40.0', '41.0') WHERE number = 2"],
    "the last mechanism": ["UPDATE records SET record = replace(record, '50.0', '51.0') WHERE number = 4"],
    "the budget": ["UPDATE records SET record = replace(record, '\"epsilon\": 1.0', '\"epsilon\": 9.0')"],
    "a digest": ["UPDATE records SET digest = 'x' WHERE number = 2"],
    "not a text": ["UPDATE records SET record = x'00' WHERE number = 2"],
    "one removed": ["DELETE FROM records WHERE number = 2"],
    "one removed, the rest renumbered": [
        "DELETE FROM records WHERE number = 2",
        "UPDATE records SET number = number - 1 WHERE number > 2",
    ],
    "the last removed": ["DELETE FROM records WHERE number = 4"],
    "all but the head removed": ["DELETE FROM records WHERE number > 0"],
    "the head removed": ["DELETE FROM records WHERE number = 0"],
    "all removed": ["DELETE FROM records"],
    "two exchanged": [
        "UPDATE records SET number = -1 WHERE number = 2",
        "UPDATE records SET number = 2 WHERE number = 3",
        "UPDATE records SET number = 3 WHERE number = -1",
    ],
    "one in front": ["INSERT INTO records SELECT -1, record, digest FROM records WHERE number = 1"],
    "one more": ["INSERT INTO records SELECT 5, record, digest FROM records WHERE number = 4"],
    "the tail": ["UPDATE tail SET count = 4"],
    "the end of the tail": ["UPDATE tail SET digest = (SELECT digest FROM records WHERE number = 3)"],
    "no tail": ["DELETE FROM tail"],
    "no table": ["DROP TABLE tail"],
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edited_removed_or_moved_record_is_found(path: Path, edit: str) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    for noise in (30.0, 40.0, 45.0, 50.0):
        ledger.spend(Gaussian(noise), "gradient")
    ledger.verify()
    with edited(path) as connection:
        changed = sum(connection.execute(statement).rowcount for statement in EDITS[edit])
        assert changed != 0
    with pytest.raises(LedgerFormatError, match="put back a whole copy"):
        Ledger.open(path)
    with pytest.raises((LedgerFormatError, LedgerError)):
        ledger.verify()


def test_a_record_removed_under_a_process_that_had_read_it_is_found(path: Path) -> None:
    ledger, other = Ledger(1.0, 1e-6, path=path), Ledger.open(path)
    for noise in (10.0, 40.0):
        ledger.spend(Gaussian(noise))
    rewrite(path, lambda records: records.pop(1))
    before = ledger.to_json()
    for use in (ledger.spend, ledger.affords):
        with pytest.raises(LedgerError, match="no longer holds the charges"):
            use(CHEAP)
    assert ledger.to_json() == before
    other.spend(CHEAP)  # had read nothing but the head, and a forged file cannot be told from a true one


def test_prices_are_computed_anew_even_if_all_digests_were_forged(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.spend(Gaussian(20.0))
    rewrite(path, lambda records: records[1].update(price=1e-9))
    assert Ledger.open(path).spent == ledger.spent == Gaussian(20.0).zcdp()
    rewrite(path, lambda records: records[1].update(cost={"kind": "gaussian", "noise_multiplier": 0.1}))
    overspent = Ledger.open(path)
    assert overspent.spent == Gaussian(0.1).zcdp() > overspent.budget
    with pytest.raises(BudgetExhausted):
        overspent.spend(Gaussian(1e9))


def test_a_damaged_record_is_refused_every_time_and_no_charge_is_counted_twice(path: Path) -> None:
    ledger, other = Ledger(1.0, 1e-6, path=path), Ledger.open(path)
    other.spend(Gaussian(40.0), "whole")
    rewrite(path, lambda records: records.append({"label": "x"}))
    before = ledger.to_json()
    for _ in range(3):
        for use in (ledger.affords, ledger.spend):
            with pytest.raises(LedgerFormatError, match="damaged"):
                use(CHEAP)
        assert ledger.to_json() == before
    rewrite(path, lambda records: records.pop())
    assert ledger.affords(CHEAP)
    assert ledger.entries == other.entries


def test_a_file_that_is_gone_replaced_or_has_two_names_is_refused(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.spend(Gaussian(10.0))
    kept = path.with_name("kept")
    path.rename(kept)
    for use in (ledger.affords, ledger.spend):
        with pytest.raises(LedgerError, match="is gone"):
            use(CHEAP)
    Ledger(1.0, 1e-6, path=path.with_name("other"))
    path.with_name("other").rename(path)
    for use in (ledger.affords, ledger.spend):
        with pytest.raises(LedgerError, match="replaced by another file"):
            use(CHEAP)
    kept.rename(path)
    ledger.spend(CHEAP)
    os.link(path, kept)
    for use in (ledger.spend, lambda _: Ledger.open(kept), lambda _: Ledger.open(path)):
        with pytest.raises(LedgerError, match=r"hard link.*delete the other name"):
            use(CHEAP)
    kept.unlink()
    ledger.spend(CHEAP)
    assert len(Ledger.open(path).entries) == 3


def test_a_file_replaced_during_a_charge_is_noticed_before_the_charge_is_told(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    insert = ledger._store._insert

    def insert_and_replace(*arguments: Any) -> None:
        insert(*arguments)
        path.rename(path.with_name("elsewhere"))

    ledger._store._insert = insert_and_replace
    with pytest.raises(LedgerError, match="is gone"):
        ledger.spend(CHEAP)


# Copies, and the logs of earlier releases ----------------------------------------------------------------------


def test_a_copy_of_the_file_alone_has_every_charge_while_the_ledger_is_in_use(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    for number in range(3):
        ledger.spend(CHEAP, str(number))
        copied = path.with_name(f"copy {number}")
        shutil.copy(path, copied)
        assert Ledger.open(copied).to_json() == ledger.to_json()
    assert sorted(path.parent.glob("ledger*")) == [path]


def test_a_copy_made_during_a_charge_lacks_no_accepted_charge_or_is_refused(path: Path) -> None:
    Ledger(1.0, 1e-6, path=path)
    told, copied = path.with_name("told"), path.with_name("copy")
    told.touch()

    def charge() -> None:
        ledger = Ledger.open(path)
        for _ in range(60):
            ledger.spend(CHEAP, "x" * 300)  # so that pages are split now and then
            with told.open("a") as file:
                file.write("x")

    child = os.fork()
    if child == 0:
        try:
            charge()
        finally:
            os._exit(0)
    opened = 0
    while os.waitpid(child, os.WNOHANG) == (0, 0):
        accepted = told.stat().st_size
        shutil.copy(path, copied)
        try:
            assert len(Ledger.open(copied).entries) >= accepted
            opened += 1
        except LedgerFormatError:
            pass
        copied.with_name("copy-journal").unlink(missing_ok=True)
    assert opened > 0
    assert len(Ledger.open(path).entries) == told.stat().st_size == 60


def test_a_ledger_that_its_own_process_has_read_as_a_file_is_still_shared(path: Path) -> None:
    """To close any handle of a file frees all locks that the process holds on it."""
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.spend(part(ledger, 0.1), "first")
    path.read_bytes()
    program = (
        "import sys\n"
        "from dpdescent.ledger import Ledger\n"
        "ledger = Ledger.open(sys.argv[1])\n"
        "ledger.spend(ledger.currency.gaussian(0.1 * ledger.budget), 'other')\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    ledger.spend(part(ledger, 0.7), "last")
    assert [entry.label for entry in Ledger.open(path).entries] == ["first", "other", "last"]


def test_children_go_on_with_a_ledger_that_their_parent_has_closed(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.spend(part(ledger, 0.1), "parent")
    (gate, closed), (report, charged) = os.pipe(), os.pipe()
    child = os.fork()
    if child == 0:
        os.close(closed)
        try:
            for label in ("child", "orphan"):
                ledger.spend(part(ledger, 0.35), label)
                os.write(charged, b"x")
                os.read(gate, 1)
        finally:
            os._exit(0)
    os.close(gate)
    os.close(charged)  # so that a child that fails ends the waiting
    try:
        assert os.read(report, 1)
        del ledger
        os.write(closed, b"x")
        assert os.read(report, 1)
        seen = Ledger.open(path)  # while the child still has the ledger open
        assert [entry.label for entry in seen.entries] == ["parent", "child", "orphan"]
        assert not seen.affords(part(seen, 0.3))
    finally:
        os.close(closed)
        os.close(report)
        assert os.waitpid(child, 0)[1] == 0


@contextmanager
def with_a_log(path: Path, records: Sequence[str]) -> Iterator[None]:
    """A ledger as an earlier release keeps it while it is in use: its main file is an empty database."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        for statement in sqlite_store.TABLES:
            connection.execute(statement)
        digest = ""
        for number, text in enumerate(records):
            digest = hashlib.sha256(f"{digest}\n{text}".encode()).hexdigest()
            connection.execute("INSERT INTO records VALUES (?, ?, ?)", (number, text, digest))
        connection.execute("UPDATE tail SET count = ?, digest = ?", (len(records), digest))
        connection.execute("COMMIT")
        yield


@pytest.fixture
def logged(path: Path, tmp_path: Path) -> Iterator[tuple[Path, Ledger]]:
    """The path of a ledger with a log that is in use, and the ledger that it must be."""
    original = Ledger(1.0, 1e-6, path=tmp_path / "original")
    original.spend(part(original, 0.9))
    with edited(tmp_path / "original") as connection:
        records = [text for (text,) in connection.execute("SELECT record FROM records ORDER BY number")]
    with with_a_log(path, records):
        yield path, original


@pytest.mark.usefixtures("impatient")
def test_a_main_file_that_was_copied_without_its_log_is_refused_by_the_name_of_the_log(
    logged: tuple[Path, Ledger], tmp_path: Path
) -> None:
    path, original = logged
    copied = tmp_path / "copy"
    shutil.copy(path, copied)
    content = copied.read_bytes()
    assert content
    for use in (Ledger.open, lambda where: Ledger(1.0, 1e-6, path=where)):
        with pytest.raises(LedgerFormatError, match=r"copied without copy-wal, which holds the charges") as refused:
            use(copied)
        assert "nothing was charged" not in str(refused.value)
    assert copied.read_bytes() == content
    shutil.copy(f"{path}-wal", f"{copied}-wal")
    found = Ledger.open(copied)
    assert found.to_json() == original.to_json()
    assert not Path(f"{copied}-wal").exists()
    with pytest.raises(BudgetExhausted):
        found.spend(part(found, 0.2))


def test_a_log_whose_main_file_is_gone_or_empty_is_never_replaced(
    logged: tuple[Path, Ledger], tmp_path: Path
) -> None:
    path, original = logged
    left, log = tmp_path / "left", tmp_path / "left-wal"
    shutil.copy(f"{path}-wal", log)
    content = log.read_bytes()
    for _ in range(2):
        for use in (Ledger.open, lambda where: Ledger(1.0, 1e-6, path=where)):
            with pytest.raises(LedgerFormatError, match=r"left-wal holds charges .*put that file back beside it"):
                use(left)
        assert log.read_bytes() == content
        left.touch()
    shutil.copy(path, left)
    assert Ledger.open(left).to_json() == original.to_json()


@pytest.mark.usefixtures("impatient")
def test_a_ledger_that_an_earlier_release_has_open_is_busy(logged: tuple[Path, Ledger]) -> None:
    """To go on beside it would leave charges in the log."""
    with pytest.raises(LedgerBusy, match="try again when they are done"):
        Ledger.open(logged[0])


def test_a_killed_process_of_an_earlier_release_leaves_a_log_that_is_read(tmp_path: Path) -> None:
    path, original = tmp_path / "ledger", Ledger(1.0, 1e-6, path=tmp_path / "original")
    original.spend(CHEAP, "first")
    with edited(tmp_path / "original") as connection:
        records = [text for (text,) in connection.execute("SELECT record FROM records ORDER BY number")]

    def die() -> None:
        with with_a_log(path, records):
            os.kill(os.getpid(), signal.SIGKILL)

    assert in_child(die) == -signal.SIGKILL
    assert Path(f"{path}-wal").stat().st_size > 0
    ledger = Ledger.open(path)
    assert ledger.to_json() == original.to_json()
    assert not Path(f"{path}-wal").exists()
    ledger.spend(CHEAP, "second")
    assert [entry.label for entry in Ledger.open(path).entries] == ["first", "second"]


def test_two_who_open_a_ledger_with_a_log_do_not_wait_for_each_other(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The log can be moved only by whoever is alone with it."""
    with edited(Ledger(1.0, 1e-6, path=path).path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
    monkeypatch.setattr(sqlite_store, "PATIENCE", 3.0)
    together, require_durable, met, found = threading.Barrier(2), sqlite_store._require_durable, set(), []

    def meet_first(connection: sqlite3.Connection) -> None:
        if threading.get_ident() not in met:
            met.add(threading.get_ident())
            together.wait(10.0)
        require_durable(connection)

    monkeypatch.setattr(sqlite_store, "_require_durable", meet_first)
    threads = [threading.Thread(target=lambda: found.append(Ledger.open(path).identity)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 2


@pytest.mark.usefixtures("impatient")
def test_a_reader_that_hangs_keeps_charges_out_and_nothing_is_charged(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    with edited(path) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT * FROM records").fetchone()
        with pytest.raises(LedgerBusy, match="nothing was charged"):
            ledger.spend(CHEAP)
        assert ledger.entries == ()
    ledger.spend(CHEAP)
    assert len(Ledger.open(path).entries) == 1


# Interrupts, forks and pickles ---------------------------------------------------------------------------------


def test_a_signal_handler_that_charges_during_a_reading_disturbs_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    Ledger.open(path).spend(CHEAP, "other")
    replay, handled = ledger._replay, []

    def interrupted(records: list[tuple[int, Any]]) -> None:
        if not handled:
            handled.append(True)
            ledger.spend(CHEAP, "handler")
        replay(records)

    monkeypatch.setattr(ledger, "_replay", interrupted)
    assert ledger.affords(CHEAP)
    ledger.spend(CHEAP, "last")
    assert [entry.label for entry in ledger.entries] == ["other", "handler", "last"]
    assert Ledger.open(path).to_json() == ledger.to_json()


def test_an_interrupt_as_a_transaction_begins_does_not_keep_the_file_locked(path: Path, monkeypatch) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)

    def interrupt(_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(sqlite_store.SQLiteStore, "_require_same_file", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.spend(CHEAP)
    monkeypatch.undo()
    Ledger.open(path).spend(CHEAP)
    ledger.spend(CHEAP)
    assert len(ledger.entries) == 2


@pytest.mark.parametrize("counted", [False, True])
def test_a_charge_interrupted_after_it_reached_the_disk_is_counted_once(path: Path, monkeypatch, counted) -> None:
    ledger, charge = Ledger(1.0, 1e-6, path=path), History.charge

    def interrupt(history: History, number: int, entry: Entry) -> None:
        if counted:
            charge(history, number, entry)
        raise KeyboardInterrupt

    monkeypatch.setattr(History, "charge", interrupt)
    with pytest.raises(KeyboardInterrupt):
        ledger.spend(part(ledger, 0.6), "interrupted")
    monkeypatch.undo()
    with pytest.raises(BudgetExhausted):
        ledger.spend(part(ledger, 0.6))
    ledger.spend(part(ledger, 0.3), "next")
    assert [entry.label for entry in ledger.entries] == ["interrupted", "next"]
    assert ledger.to_json() == Ledger.open(path).to_json()
    assert ledger.spent == Ledger.open(path).spent


def test_a_forked_child_spends_from_the_file_by_a_connection_of_its_own(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.spend(part(ledger, 0.2))
    connection = ledger._store._connection

    def work() -> None:
        assert ledger._store._connection is None
        ledger.spend(part(ledger, 0.4))
        assert ledger._store._connection is not connection

    assert in_child(work) == 0
    ledger.spend(part(ledger, 0.1))
    assert in_child(lambda: ledger.spend(part(ledger, 0.4))) == 7
    assert ledger._store._connection is connection
    assert len(Ledger.open(path).entries) == 3


def test_a_child_never_closes_the_connection_of_its_parent(path: Path) -> None:
    """Neither by a finaliser nor because nobody refers to it any more."""
    ledger = Ledger(1.0, 1e-6, path=path)
    connection, closing = ledger._store._connection, ledger._store._closing
    count = sys.getrefcount(connection)

    def work() -> None:
        assert not closing.alive
        # The store and the finaliser have let go of it, and a reference that nobody can give up holds it.
        assert sys.getrefcount(connection) == count - 1

    assert in_child(work) == 0
    assert closing.alive
    ledger.spend(CHEAP)


def test_a_child_that_ends_as_a_program_does_disturbs_nothing(path: Path) -> None:
    """Its interpreter closes whatever it still holds, and would close the connection of its parent."""
    program = (
        "import os, sys\n"
        "from dpdescent.accounting import Gaussian\n"
        "from dpdescent.ledger import Ledger\n"
        "ledger = Ledger(9.0, 1e-6, path=sys.argv[1])\n"
        "ledger.spend(Gaussian(1e3))\n"
        "child = os.fork()\n"
        "if child == 0: sys.exit(0)\n"
        "assert os.waitpid(child, 0)[1] == 0\n"
        "ledger.spend(Gaussian(1e3))\n"
        "assert len(Ledger.open(sys.argv[1]).entries) == 2\n"
    )
    subprocess.run([sys.executable, "-c", program, str(path)], check=True)
    assert len(Ledger.open(path).entries) == 2


@pytest.mark.usefixtures("impatient")
def test_a_child_forked_during_a_charge_does_not_keep_the_file_locked(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    with ledger._hold_for(part(ledger, 0.2), "parent", "") as charge:
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        charge()
    try:
        Ledger.open(path).spend(part(ledger, 0.2), "other")
        assert [entry.label for entry in Ledger.open(path).entries] == ["parent", "other"]
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_a_child_that_leaves_a_charge_of_its_parent_does_not_undo_it(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    child = None
    try:
        with ledger._hold_for(part(ledger, 0.2), "parent", "") as charge:
            child = os.fork()
            if child == 0:
                raise ZeroDivisionError
            assert os.waitpid(child, 0)[1] == 0
            charge()
    except ZeroDivisionError:
        os._exit(0)
    assert [entry.label for entry in Ledger.open(path).entries] == ["parent"]


@pytest.mark.parametrize("kept", ["memory", "file"])
def test_a_child_forked_while_a_thread_charges_is_not_kept_waiting(path: Path, kept: str) -> None:
    ledger = Ledger(1.0, 1e-6, path=path if kept == "file" else None)
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with ledger._store.hold(ledger._replay):
            held.set()
            done.wait()

    thread = threading.Thread(target=hold)
    thread.start()
    held.wait()
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            ledger.affords(CHEAP)
        finally:
            os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    done.set()
    thread.join()
    assert code == 0
    if kept == "memory":
        assert in_child(lambda: ledger.spend(CHEAP)) == 7


def test_a_pickled_file_ledger_spends_from_the_same_file(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.spend(part(ledger, 0.1))
    sent = pickle.loads(pickle.dumps(ledger))
    sent.spend(part(ledger, 0.7))
    with pytest.raises(BudgetExhausted):
        ledger.spend(part(ledger, 0.7))


def test_a_pickle_never_trusts_another_file_at_its_path(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, path=path)
    ledger.verify()
    shutil.copy(path, path.with_name("early"))
    ledger.spend(part(ledger, 0.9))
    text, sent = ledger.to_json(), pickle.dumps(ledger)
    del ledger

    def require_frozen() -> None:
        frozen = pickle.loads(sent)
        assert frozen.to_json() == text
        with pytest.raises(LedgerError, match="read-only"):
            frozen.spend(CHEAP)

    path.unlink()
    require_frozen()
    path.write_text("something else")
    require_frozen()
    path.unlink()
    Ledger(1.0, 1e-6, path=path)
    require_frozen()
    path.unlink()
    path.with_name("early").rename(path)  # the same ledger, before its charge
    require_frozen()
    assert Ledger.open(path).entries == ()


# Ledgers of earlier releases -----------------------------------------------------------------------------------

OLD = (
    b'{"format": "dpdescent-ledger", "version": 1, "epsilon": 1.0, "delta": 1e-06, "currency": {"name": "zcdp"}, '
    b'"relation": "zero-out", "unit": "one row"}\n'
    b'{"label": "gradient", "cost": {"kind": "gaussian", "noise_multiplier": 40.0}, "price": 0.1}\n'
)


def test_a_ledger_in_lines_is_moved_and_accepts_nothing_any_more(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.write_bytes(OLD + b'{"label": "torn", "co')
    with pytest.raises(LedgerFormatError, match="dpdescent ledger import"):
        Ledger.open(old)
    ledger = import_lines(old, new)
    assert ledger.entries == Ledger.open(new).entries == (Entry("gradient", Gaussian(40.0), 0.0003125),)
    ledger.spend(CHEAP, "next", "operating system")
    assert Ledger.open(new).statement()["randomness"] == ["not recorded", "operating system"]
    marked = old.read_bytes()
    assert marked == OLD + json.dumps({"moved_to": str(new), "id": ledger.identity}).encode() + b"\n"
    with pytest.raises(LedgerFormatError):  # as an earlier release would read the last line
        Entry.from_dict(json.loads(marked.splitlines()[-1]), lambda _: 0.0)
    with pytest.raises(LedgerError, match="was moved to"):
        import_lines(old, tmp_path / "twin")
    assert not (tmp_path / "twin").exists()


def test_an_import_that_fails_leaves_the_old_file_as_it_was(tmp_path: Path) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    with pytest.raises(LedgerError, match="there is no file"):
        import_lines(old, new)
    Ledger(1.0, 1e-6, path=new)
    for text, problem in (
        (OLD, "there is a ledger at"),
        (OLD + b"garbage\n", "not JSON"),
        (b"", "complete"),
        (b"{}\n", "is not a"),
    ):
        old.write_bytes(text)
        with pytest.raises(DPDescentError, match=problem):
            import_lines(old, new)
        assert old.read_bytes() == text
    assert Ledger.open(new).entries == ()


@pytest.mark.parametrize("named", [False, True])
def test_ledgers_imported_from_copies_of_one_file_are_two_and_say_where_they_come_from(
    tmp_path: Path, named: bool
) -> None:
    """A copy cannot be known for one: two purses of one budget must at least not be taken for one ledger."""
    lines = OLD.replace(b'"version": 1', b'"version": 2, "id": "old"') if named else OLD
    for name in ("first", "second"):
        (tmp_path / name).write_bytes(lines)
    ledgers = [import_lines(tmp_path / name, tmp_path / f"{name}.ledger") for name in ("first", "second")]
    assert len({ledger.identity for ledger in ledgers} - {"old"}) == 2
    for ledger, name in zip(ledgers, ("first", "second"), strict=True):
        for found in (Ledger.open(tmp_path / f"{name}.ledger"), Ledger.from_json(ledger.to_json())):
            assert found.identity == ledger.identity
            assert found.origin == ledger.origin
        assert ledger.origin == Origin(str(tmp_path / name), ledgers[0].origin.digest, "old" if named else None)
    assert Ledger(1.0, 1e-6).origin is None


def test_an_import_killed_at_any_statement_never_leaves_two_files_that_spend(tmp_path: Path) -> None:
    """Either the old file is as it was and there is no new one, or it is marked; the new one has all charges then."""
    connect, step, outcomes, states = sqlite3.connect, 0, [], set()
    while not outcomes or outcomes[-1]:
        step += 1
        old, new = tmp_path / f"{step}.old", tmp_path / f"{step}.new"
        old.write_bytes(OLD)

        def work(old: Path = old, new: Path = new, step: int = step) -> None:
            sqlite3.connect = dying_at(step, connect)
            import_lines(old, new)

        outcomes.append(in_child(work))
        moved, there = old.read_bytes() != OLD, new.exists() and new.stat().st_size > 0
        states.add((moved, there))
        if moved:
            with pytest.raises(LedgerError, match="was moved to"):
                import_lines(old, tmp_path / f"{step}.other")
        else:
            assert len(import_lines(old, new).entries) == 1
        if there:
            assert moved
            assert len(Ledger.open(new).entries) == 1
    assert states >= {(False, False), (True, True)}


# Stress --------------------------------------------------------------------------------------------------------


def test_no_sequence_of_fits_refusals_and_kills_records_less_than_was_released(tmp_path: Path) -> None:
    program = Path(__file__).parents[2] / "benchmarks" / "ledger_stress.py"
    command = [sys.executable, str(program), "--sequences", "15", "--seed", "3", "--json", str(tmp_path / "found")]
    if os.access("/dev/shm", os.W_OK):  # processes are killed, the machine is not: no disk need be waited for
        command += ["--folder", "/dev/shm"]
    subprocess.run(command, env=os.environ | {"OPENBLAS_NUM_THREADS": "1"}, check=False, stdout=subprocess.DEVNULL)
    found = json.loads((tmp_path / "found").read_text())
    assert found["wrong"] == []
    counts = found["counts"]
    assert counts["processes"] >= 2 * 15
    assert counts["killed"] >= 7
    assert min(counts["refused"], counts["released"], counts["answered"], counts["settled"]) >= 18


def test_amounts_are_exact_in_the_file(path: Path) -> None:
    ledger = Ledger(1.0, 1e-6, currency="pure", path=path)
    for epsilon in (1.0 - 2.0**-53, 2.0**-60):
        ledger.spend(PureDP(epsilon))
    again = Ledger.open(path)
    assert sum(Fraction(entry.price) for entry in again.entries) == 1 - Fraction(2) ** -53 + Fraction(2) ** -60
    with pytest.raises(BudgetExhausted):
        again.spend(PureDP(2.0**-53))
