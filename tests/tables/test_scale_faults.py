"""What can go wrong in the middle of a long fit: a named error and the charges that were made, never a wrong sum."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpdescent import DPLogisticRegression, Ledger
from dpdescent.datasets.synthetic_tables import write_large_table
from dpdescent.errors import DatasetFormatError, OutputNotWritable, WorkerLost
from dpdescent.estimators import fitting
from dpdescent.tables import DaskEngine, Label, MappedArrays, NumericColumn, Schema, open_parquet, stream_text

ROWS = 1200
OPTIONS: dict[str, Any] = {
    "epsilon": 1.0,
    "bounds": (0, 1),
    "tighten": False,
    "classes": (0, 1),
    "random_state": 5,
    "method": "agd",
    "solver_options": {"splits": 4.0},
}


@pytest.fixture(scope="module")
def rows() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    X = generator.random((ROWS, 4))
    return X, (X[:, 0] > X[:, 1]).astype(int)


class Failing(MappedArrays):
    """A table whose last part cannot be read any more after some reads."""

    reads_left = 10**9

    def read(self, part: Any) -> Iterator[tuple[Any, Any]]:
        if part == self.parts[-1]:
            self.reads_left -= 1
            if self.reads_left < 0:
                raise ValueError("the cell 0.734375 is broken")
        yield from super().read(part)


def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have rows read again for every query."""
    monkeypatch.setattr("dpdescent.curator.kept_rows.shutil.disk_usage", lambda _: type("Usage", (), {"free": 0}))


@pytest.mark.parametrize("reads", [0, 3], ids=["in the first pass", "after charges"])
def test_a_block_that_raises_is_named_and_leaves_the_charges_that_were_made(
    reads: int, rows: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_room(monkeypatch)
    account = Ledger(10.0, 1e-3, currency="gdp")
    table = Failing(*rows, part_rows=500)
    table.reads_left = reads
    own = opened_ledgers(monkeypatch)
    with pytest.raises(DatasetFormatError, match="could not be read, for a ValueError") as found:
        DPLogisticRegression(**OPTIONS | {"ledger": account}).fit(table)
    assert "0.734375" not in str(found.value)
    assert found.value.__context__ is None
    notes = getattr(found.value, "__notes__", [])
    if not reads:
        assert not account.entries
        assert not notes
        return
    assert any("% of the privacy budget of this fit had been charged" in note for note in notes)
    DPLogisticRegression(**OPTIONS | {"ledger": Ledger(10.0, 1e-3, currency="gdp")}).fit(*rows)
    failed, whole = ([(entry.label, entry.price) for entry in ledger.entries] for ledger in own)
    # Three reads are the check before anything is charged, and two answers: the third was charged, and then read.
    assert failed == whole[:3]
    assert account.spent == pytest.approx(own[0].spent, rel=1e-12)


def opened_ledgers(monkeypatch: pytest.MonkeyPatch) -> list[Ledger]:
    """Return a list to which every fit adds its own ledger."""
    opened: list[Ledger] = []
    open_ledger = fitting.open_ledger

    def noted(*arguments: Any) -> Ledger:
        opened.append(open_ledger(*arguments))
        return opened[-1]

    monkeypatch.setattr(fitting, "open_ledger", noted)
    return opened


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, before)


def test_rows_that_the_disk_cannot_hold_are_read_again_and_numbers_of_rows_are_a_named_error(rows: Any) -> None:
    """The operating system refuses longer files: rows take up 24,000 bytes here, and the norms of a part 4,000."""
    expected = DPLogisticRegression(**OPTIONS).fit(*rows)
    with files_of_at_most(12_000):
        found = DPLogisticRegression(**OPTIONS).fit(MappedArrays(*rows, part_rows=500))
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    account = Ledger(10.0, 1e-3, currency="gdp")
    with files_of_at_most(2_000), pytest.raises(OutputNotWritable, match="TMPDIR") as problem:
        DPLogisticRegression(**OPTIONS | {"ledger": account}).fit(MappedArrays(*rows, part_rows=500))
    assert any("% of the privacy budget of this fit had been charged" in note for note in problem.value.__notes__)
    assert 0 < account.spent < account.budget


def test_text_for_whose_copy_there_is_no_room_is_a_named_error_without_a_cell(tmp_path: Path) -> None:
    cells = np.random.default_rng(0).uniform(0, 10, 3000)
    (tmp_path / "t.csv").write_text("a,y\n" + "".join(f"{cell},0\n" for cell in cells))
    with files_of_at_most(2_000), pytest.raises(OutputNotWritable, match=r"'t\.csv'.*TMPDIR"):
        stream_text(tmp_path / "t.csv", Schema((NumericColumn("a", 0, 10),), Label("y", (0, 1))))


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")
def test_a_worker_killed_in_the_middle_of_a_fit_and_a_scheduler_restarted_after_it(tmp_path: Path) -> None:
    distributed = pytest.importorskip("distributed")
    table = open_parquet(tmp_path / "t", write_large_table(tmp_path / "t", 3000, columns=3))
    expected = DPLogisticRegression(**OPTIONS).fit(table)

    def started(**options: Any) -> Any:
        return distributed.LocalCluster(threads_per_worker=1, dashboard_address=":0", silence_logs=50, **options)

    with started(n_workers=2) as cluster:
        address = cluster.scheduler_address
        table.engine = engine = DaskEngine(address)
        killed: list[int] = []

        def kill(share: float) -> None:
            if share > 0.3 and not killed:
                killed.append(next(iter(cluster.workers.values())).pid)
                os.kill(killed[0], signal.SIGKILL)

        account = Ledger(10.0, 1e-3, currency="gdp")
        found = DPLogisticRegression(**OPTIONS | {"progress": kill, "ledger": account}).fit(table)
        assert killed
        np.testing.assert_array_equal(found.coef_, expected.coef_)
        assert account.spent == pytest.approx(found.privacy_["spent"], rel=1e-12)
    account = Ledger(10.0, 1e-3, currency="gdp")
    with pytest.raises(WorkerLost, match="start them again"):
        DPLogisticRegression(**OPTIONS | {"ledger": account}).fit(table)
    assert not account.entries
    engine.close()
    with started(n_workers=1, processes=False, scheduler_port=int(address.rpartition(":")[2])):
        table.engine = DaskEngine(address)
        again = DPLogisticRegression(**OPTIONS).fit(table)
        table.engine.close()
    np.testing.assert_array_equal(again.coef_, expected.coef_)
