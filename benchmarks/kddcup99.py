"""KDD Cup 1999 from Parquet, as in figure 4 of Lee and Kifer (2018): delta 1e-12, mini-batches and full batches.

The paper trains on the whole file of 4,898,431 rows. Only a tenth of it, 494,021 rows, is at hand, so the long table
is those rows again and again, up to the length of the whole file: time and memory are those of the paper's table, and
accuracy is that of rows which the model has seen several times. Mini-batches have 40,000 rows, as in the paper.
Every fit runs in a process of its own, whose largest resident memory is shown.

The test part is the last tenth of the short table in a fixed random order, and none of its rows is in either table.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as arrow
from pyarrow import parquet

from dpdescent import DPLogisticRegression, load_dataset
from dpdescent.curator import BlockSource
from dpdescent.tables import Label, NumericColumn, Schema, open_parquet

SHORT, LONG = 494_021, 4_898_431
BATCH = 40_000
DELTA = 1e-12
GROUP = 2**16


def write(folder: Path) -> None:
    """Write the rows that train, once and repeated, and those that test."""
    data = load_dataset("kddcup99")
    order = np.random.default_rng(0).permutation(len(data.y))
    X, y = data.X[order].astype(np.float32), data.y[order]
    tested = len(y) // 10
    names = [f"x{j:03d}" for j in range(X.shape[1])]
    np.savez(folder / "test.npz", X=X[-tested:], y=y[-tested:])
    for length, name in ((SHORT, "short"), (LONG, "long")):
        rows = round(length * (len(y) - tested) / len(y))
        stored = arrow.schema([*((each, arrow.float32()) for each in names), ("attack", arrow.int8())])
        with parquet.ParquetWriter(folder / f"{name}.parquet", stored) as writer:
            for start in range(0, rows, GROUP):
                some = np.arange(start, min(start + GROUP, rows)) % (len(y) - tested)
                cells = [*X[some].T, y[some].astype(np.int8)]
                writer.write_batch(arrow.record_batch([arrow.array(np.ascontiguousarray(c)) for c in cells], stored))
        columns = tuple(NumericColumn(each, 0, 1) for each in names)
        Schema(columns, Label("attack", (0, 1)), rows=rows).dump(folder / f"{name}.json")


def peak_megabytes() -> float:
    """Return the largest resident memory of this process; what getrusage tells includes that of its parent."""
    told = Path("/proc/self/status").read_text()
    return float(told.partition("VmHWM:")[2].split()[0]) / 1024


def fit(folder: Path, name: str, method: str, batches: bool, epsilon: float) -> dict[str, Any]:
    """Fit one model and return what it took; called in a process of its own."""
    passes = 0
    summed = BlockSource.map_sum

    def counted(self: Any, *arguments: Any) -> Any:
        nonlocal passes
        passes += 1
        return summed(self, *arguments)

    BlockSource.map_sum = counted  # type: ignore[method-assign]
    table = open_parquet(folder / f"{name}.parquet", Schema.load(folder / f"{name}.json"))
    options = {"batch_rate": BATCH / table.shape[0]} if batches else {}
    start = time.perf_counter(), time.process_time()
    model = DPLogisticRegression(
        epsilon,
        DELTA,
        method=method,
        bounds=table.bounds,
        classes=(0, 1),
        random_state=0,
        solver_options=options,
    ).fit(table)
    elapsed, processor = time.perf_counter() - start[0], time.process_time() - start[1]
    memory = peak_megabytes()
    test = np.load(folder / "test.npz")
    return {
        "rows": table.shape[0],
        "columns": table.columns,
        "method": method,
        "batch": BATCH if batches else table.shape[0],
        "epsilon": epsilon,
        "delta": DELTA,
        "accuracy": float(model.score(test["X"], test["y"])),
        "seconds": elapsed,
        "processor_seconds": processor,
        "passes": passes,
        "peak_megabytes": memory,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tables", default="short,long")
    parser.add_argument("--methods", default="agd,auto")
    parser.add_argument("--epsilons", default="0.05,0.2,0.8")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--folder", type=Path, help="Where the Parquet files are, or are to be kept.")
    parser.add_argument("--one", nargs=4, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        name, method, batches, epsilon = given.one
        print(json.dumps(fit(given.folder, name, method, batches == "True", float(epsilon))))
        return
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as temporary:
        folder = given.folder or Path(temporary)
        if not (folder / "long.json").is_file():
            folder.mkdir(exist_ok=True, parents=True)
            write(folder)
        print("      rows method      batch epsilon accuracy  seconds processor passes  peak MB", flush=True)
        for name in given.tables.split(","):
            for method in given.methods.split(","):
                for batches in (True, False):
                    for epsilon in given.epsilons.split(","):
                        one = ["--folder", str(folder), "--one", name, method, str(batches), epsilon]
                        said = subprocess.run([sys.executable, __file__, *one], capture_output=True, text=True)
                        if said.returncode:
                            print(said.stderr.strip().splitlines()[-1])
                            continue
                        row = json.loads(said.stdout)
                        found.append(row)
                        print(
                            f"{row['rows']:>10,} {method:<6} {row['batch']:>10,} {row['epsilon']:>7g} "
                            f"{row['accuracy']:>8.4f} {row['seconds']:>8.1f} {row['processor_seconds']:>9.1f} "
                            f"{row['passes']:>6} {row['peak_megabytes']:>8.0f}",
                            flush=True,
                        )
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
