"""A run that is stopped at any time and resumed takes no step twice, and is charged once."""

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="torch is not installed")

from torch import nn  # noqa: E402
from torch.utils.data import Dataset  # noqa: E402

from dpdescent.accounting import PureDP  # noqa: E402
from dpdescent.errors import InvalidParameter, OutputNotWritable, RunInProgress  # noqa: E402
from dpdescent.ledger import Ledger  # noqa: E402
from dpdescent.torch import fit  # noqa: E402
from dpdescent.torch.module_fit import Checkpoint  # noqa: E402
from dpdescent.torch.training import PrivateTraining  # noqa: E402
from plain_networks import tried_once  # noqa: E402, F401

pytestmark = pytest.mark.usefixtures("tried_once")

STEPS = 6
cross_entropy = nn.CrossEntropyLoss(reduction="none")


class Stopped(BaseException):
    """An interrupt from outside."""


class Rows(Dataset):
    """A small table that calls back whenever a row is read."""

    def __init__(self, reading=None):
        generator = torch.Generator().manual_seed(0)
        self.inputs = torch.randn(40, 3, generator=generator)
        self.reading = reading

    def __len__(self):
        return 40

    def __getitem__(self, row):
        if self.reading is not None:
            self.reading()
        return self.inputs[row], (self.inputs[row, 0] > 0).long()


def train(path, account, data=None, seed=None, **settings):
    torch.manual_seed(0)
    module = nn.Linear(3, 2)
    given = {
        "epsilon": 2.0,
        "delta": 1e-5 if settings.get("method") == "blsgd" else 1e-9,
        "steps": STEPS,
        "bands": 1,
        "batch_size": 20,
    } | settings
    result = fit(module, data or Rows(), cross_entropy, ledger=account, checkpoint=path, random_state=seed, **given)
    return module, result


def stopping_after(steps):
    def progress(share):
        if share * STEPS >= steps - 1e-9:
            raise Stopped

    return progress


def charges(account):
    """How often a run was charged, notes of steps aside."""
    return sum(" from step " not in entry.label for entry in Ledger.open(account.path).entries)


@pytest.fixture
def account(tmp_path):
    return Ledger(2.5, 2e-5, currency="approximate", path=tmp_path / "ledger.json")


@pytest.mark.parametrize(("method", "stopped_after"), [("auto", 1), ("auto", 4), ("blsgd", 4), ("adam", 4)])
def test_a_stopped_run_goes_on_after_the_steps_it_has_begun(tmp_path, account, monkeypatch, stopped_after, method):
    taken = []
    gradient = PrivateTraining.gradient

    def noted(self, *shortest):
        taken.append(self.drawn)
        return gradient(self, *shortest)

    monkeypatch.setattr(PrivateTraining, "gradient", noted)
    tuned = {"learning_rate": 0.1, "clip_norm": 1.0} if method == "adam" else {}
    path = tmp_path / "run.pt"
    with pytest.raises(Stopped):
        train(path, account, method=method, progress=stopping_after(stopped_after), **tuned)
    assert taken == list(range(1, stopped_after + 1))
    _, result = train(path, Ledger.open(account.path), method=method, **tuned)
    assert taken == list(range(1, STEPS + 1))
    assert charges(account) == 1
    # The answer of the last step before the stop was not on the disk yet: it is lost, and paid for.
    assert [each.step for each in result.history] == [s for s in range(STEPS) if s != stopped_after - 1]


def test_a_run_is_charged_once_if_it_is_stopped_right_after_the_charge(tmp_path, account, monkeypatch):
    path, write = tmp_path / "run.pt", Checkpoint.write

    def stopped(self, begun, history):
        if begun:
            raise Stopped
        write(self, begun, history)

    monkeypatch.setattr(Checkpoint, "write", stopped)
    with pytest.raises(Stopped):
        train(path, account)
    assert charges(account) == 1
    monkeypatch.undo()
    _, result = train(path, Ledger.open(account.path))
    assert charges(account) == 1
    assert len(result.history) == STEPS


def test_another_run_is_charged_again_and_refused(tmp_path, account):
    train(tmp_path / "one.pt", account)
    from dpdescent.errors import BudgetExhausted

    with pytest.raises(BudgetExhausted):
        train(tmp_path / "two.pt", account)


def test_a_step_is_on_the_disk_before_its_rows_are_read(tmp_path, account):
    path, seen = tmp_path / "run.pt", []

    def reading():
        if path.exists():
            seen.append(torch.load(path, weights_only=True)["begun"])
            assert charges(account) == 1

    train(path, account, Rows(reading))
    assert sorted(set(seen)) == list(range(1, STEPS + 1))


@pytest.mark.parametrize("copied_at", [1, 3])
def test_a_copy_of_a_checkpoint_takes_no_step_that_another_has_begun(tmp_path, account, copied_at):
    path, copy, read = tmp_path / "run.pt", tmp_path / "copy.pt", []

    def progress(share):
        if round(share * STEPS) == copied_at:
            shutil.copy(path, copy)

    train(path, account, progress=progress)
    steps = [entry.label for entry in account.entries if " from step " in entry.label]
    assert len(set(steps)) == len(steps) == STEPS
    with pytest.raises(RunInProgress, match="copy"):
        train(copy, Ledger.open(account.path), Rows(lambda: read.append(1)))
    assert len(read) == 1  # the shape of a row, before anything else
    assert account.spent < account.budget


def test_a_run_stops_where_its_copy_has_gone_on(tmp_path, account):
    path, copy = tmp_path / "run.pt", tmp_path / "copy.pt"

    def progress(share):
        if round(share * STEPS) == 2:
            shutil.copy(path, copy)
            train(copy, Ledger.open(account.path))

    with pytest.raises(RunInProgress):
        train(path, account, progress=progress)
    steps = [int(entry.label.split()[-1]) for entry in Ledger.open(account.path).entries[1:]]
    assert sorted(steps) == [0, 1, 2, 2, 3, 4, 5]  # the second 2 was refused before a row was read


def test_a_finished_run_reads_nothing_and_gives_the_same_parameters(tmp_path, account):
    path, read = tmp_path / "run.pt", []
    module, result = train(path, account)
    again, repeated = train(path, Ledger.open(account.path), Rows(lambda: read.append(1)))
    assert len(read) == 1  # the shape of a row, before anything else
    assert torch.equal(module.weight, again.weight)
    assert repeated.history == result.history
    assert repeated.privacy_["spent_epsilon"] == result.privacy_["spent_epsilon"]


def test_a_seeded_run_that_goes_on_draws_fresh_noise(tmp_path, account):
    path = tmp_path / "run.pt"
    with pytest.raises(Stopped):
        train(path, account, seed=0, progress=stopping_after(3), noise="float")
    _, resumed = train(path, Ledger.open(account.path), seed=0, noise="float")
    _, whole = train(None, None, seed=0, noise="float")
    assert not {each.gradient_norm for each in resumed.history[2:]} & {each.gradient_norm for each in whole.history}


@pytest.mark.parametrize("changed", [{"epsilon": 1.9}, {"steps": STEPS + 1}, {"batch_size": 19}, {"method": "blsgd"}])
def test_a_checkpoint_of_other_settings_is_refused_before_any_charge(tmp_path, account, changed):
    path = tmp_path / "run.pt"
    train(path, account)
    with pytest.raises(InvalidParameter, match="same arguments"):
        train(path, Ledger.open(account.path), **changed)
    assert charges(account) == 1


def test_the_account_of_a_checkpoint_is_named_where_another_plans_other_steps(tmp_path):
    account, path = Ledger(2.5, 2e-5, currency="gdp"), tmp_path / "run.pt"
    train(path, account)
    with pytest.raises(InvalidParameter, match=account.identity):
        train(path, None)


@pytest.mark.parametrize("steps", [2, STEPS])
def test_a_checkpoint_goes_on_with_the_account_that_has_paid_and_with_no_other(tmp_path, account, steps):
    path, copy, read = tmp_path / "run.pt", tmp_path / "copy.pt", []
    if steps < STEPS:
        with pytest.raises(Stopped):
            train(path, account, progress=stopping_after(steps))
    else:
        train(path, account)
    shutil.copy(path, copy)
    other = Ledger(2.5, 2e-5, currency="approximate", path=tmp_path / "other.json")
    for wrong in (None, other, Ledger(2.5, 2e-5, currency="approximate")):
        with pytest.raises(InvalidParameter, match=f"{account.identity}.*ledger="):
            train(copy, wrong, Rows(lambda: read.append(1)))
    assert len(read) == 3  # the shape of a row each time, and no row for a step
    assert other.entries == ()
    assert charges(account) == 1
    if steps < STEPS:
        train(copy, Ledger.open(account.path))
    assert charges(account) == 1


def test_a_checkpoint_without_an_account_does_not_begin_to_name_one(tmp_path, account):
    path = tmp_path / "run.pt"
    with pytest.raises(Stopped):
        train(path, None, progress=stopping_after(2))
    with pytest.raises(InvalidParameter, match="without a ledger"):
        train(path, account)
    assert account.entries == ()
    train(path, None)


def test_a_charge_of_the_same_label_and_another_cost_has_paid_for_nothing(tmp_path, account, monkeypatch):
    path = tmp_path / "run.pt"
    monkeypatch.setattr(PrivateTraining, "buy_steps", lambda *_: (_ for _ in ()).throw(Stopped))
    with pytest.raises(Stopped):
        train(path, account)
    monkeypatch.undo()
    label = f"training {torch.load(path, weights_only=True)['run']}"
    account.spend(PureDP(1e-3), label)
    train(path, account)
    kinds = [entry.cost.kind for entry in account.entries if entry.label == label]
    assert kinds == ["pure", "fixed-schedule"]


def test_a_file_that_is_no_checkpoint_and_a_folder_that_is_none_are_refused_before_any_charge(tmp_path, account):
    path = tmp_path / "run.pt"
    path.write_text("no checkpoint")
    with pytest.raises(InvalidParameter, match="another name"):
        train(path, account)
    with pytest.raises(OutputNotWritable):
        train(tmp_path / "nowhere" / "run.pt", account)
    assert account.entries == ()
    assert path.read_text() == "no checkpoint"


def noted_in(log):
    """Return a gradient that writes the number of its step into a file first."""
    gradient = PrivateTraining.gradient

    def noted(self, *shortest):
        with open(log, "a") as file:
            file.write(f"{self.drawn}\n")
            file.flush()
            os.fsync(file.fileno())
        return gradient(self, *shortest)

    return noted


SCRIPT = """
import sys
sys.path.insert(0, {tests!r})
import test_torch_checkpoint as tests
tests.PrivateTraining.gradient = tests.noted_in({log!r})
tests.train({path!r}, tests.Ledger.open({ledger!r}), steps=200)
"""


def test_a_killed_process_is_resumed_by_another(tmp_path, account, monkeypatch):
    log, path = tmp_path / "steps.txt", tmp_path / "run.pt"
    script = SCRIPT.format(tests=str(Path(__file__).parent), log=str(log), path=str(path), ledger=str(account.path))
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen([sys.executable, "-W", "ignore", "-c", script], env=environment)
    deadline = time.monotonic() + 300
    while not (log.exists() and log.read_text().count("\n") >= 20) and time.monotonic() < deadline:
        time.sleep(0.001)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    before = [int(each) for each in log.read_text().split()]
    assert 20 <= len(before) < 200
    monkeypatch.setattr(PrivateTraining, "gradient", noted_in(str(log)))
    _, finished = train(str(path), Ledger.open(account.path), steps=200)
    steps = [int(each) for each in log.read_text().split()]
    assert len(set(steps)) == len(steps)
    assert steps[-1] == 200
    assert len(steps) >= 199 - 4  # the first step measures, and at most one fiftieth of the steps is lost
    assert len(finished.history) >= 200 - 2 * 4
    assert charges(account) == 1
