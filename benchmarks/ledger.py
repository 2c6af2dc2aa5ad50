"""Time of a charge to a ledger file against one fsync of its disk, and of a fit with such a file against without.

A charge is one commit, which syncs the rollback journal, the file and their folder, some of them twice; a fit writes
the file twice.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from dpdescent import DPLogisticRegression, Ledger, load_dataset
from dpdescent.accounting import Gaussian
from dpdescent.errors import DPDescentError


def seconds(action: Callable[[], object]) -> float:
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def charges(folder: Path, repeats: int) -> dict[str, float]:
    """Return the median times of an append with its fsync and of a charge, taken in turn."""
    ledger, cost = Ledger(100.0, 1e-6, path=folder / "ledger"), Gaussian(1e3)
    descriptor = os.open(folder / "plain", os.O_CREAT | os.O_WRONLY | os.O_APPEND)

    def append() -> None:
        os.write(descriptor, b"x" * 4096)
        os.fsync(descriptor)

    syncs, spends = [], []
    for _ in range(repeats):
        syncs.append(seconds(append))
        spends.append(seconds(lambda: ledger.spend(cost, "benchmark")))
    os.close(descriptor)
    sync, spend = statistics.median(syncs), statistics.median(spends)
    return {"fsync_seconds": sync, "charge_seconds": spend, "ratio_charge": spend / sync}


def fits(folder: Path, repeats: int, data: str) -> dict[str, float]:
    """Return the median times of a fit without and with a ledger file, taken in turn."""
    try:
        table = load_dataset(data, download=False)
    except DPDescentError:
        print(f"{data} is not on this machine: a synthetic table takes its place")
        table = load_dataset("synthetic", n=45_000)
    account = Ledger(100.0, 1e-6, currency="gdp", path=folder / "shared")

    def fit(ledger: Ledger | None, seed: int) -> Callable[[], object]:
        model = DPLogisticRegression(
            1.0, 1e-8, bounds=table.bounds, classes=table.classes, random_state=seed, ledger=ledger
        )
        return lambda: model.fit(table.X, table.y)

    fit(None, 0)()  # fills caches
    without, with_file = [], []
    for seed in range(repeats):
        without.append(seconds(fit(None, seed)))
        with_file.append(seconds(fit(account, seed)))
    plain, paid = statistics.median(without), statistics.median(with_file)
    return {"fit_seconds": plain, "fit_with_file_seconds": paid, "ratio_fit": paid / plain}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="adult")
    parser.add_argument("--charges", type=int, default=500)
    parser.add_argument("--fits", type=int, default=9)
    parser.add_argument("--folder", type=Path, help="where the ledgers are written; by default the current folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=arguments.folder or Path.cwd()) as folder:
        record = charges(Path(folder), arguments.charges) | fits(Path(folder), arguments.fits, arguments.data)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    for name, value in record.items():
        print(f"{name}: {value:.3g}")
    print("to be at most: ratio_charge 10, ratio_fit 1.3")


if __name__ == "__main__":
    main()
