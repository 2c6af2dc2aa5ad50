"""What a pass over a table costs: from Parquet, from what is kept of it, from memory, and on the workers of Dask.

``passes`` writes one table as Parquet and counts processor seconds of all threads, as a busy machine hardly changes
them. *decode* reads it with Arrow and does nothing else; *check* is the pass with which a fit begins, which decodes,
codes, seals and keeps the rows; *again* is a gradient for which rows are decoded and coded once more, as where there
is no room to keep them; *bounds* is a histogram of all columns; *later* is a gradient from what was kept; *memory*
one from rows in memory.

``fit`` fits one model to a folder that ``dpdescent datasets synthetic`` has written, and shows how long it takes, how
many passes, how much memory, and what a pass costs beside decoding the folder in the same run. Rows that come after
those of the table tell the accuracy.

``workers`` measures gradients, line searches, second moments and whole fits from rows in memory, on the workers of a
local Dask cluster and in plain processes (`scale_workers`); a query about rows that are kept and cost nothing; and
one task among many. Answers and coefficients must be the same to the last bit. Elapsed times mean something on an
idle machine alone, so the load is shown, and processor seconds are counted too.

``bandwidth`` compares the bytes of the rows that gradients in memory go through in a second with what plain sums of
an array reach, with one thread and with all.

``picture`` draws the model

    seconds of a fit = cells (check + (passes - 1) later) / workers + parts task
                       + passes (query + workers task + levels sum)

from what ``passes`` and ``workers`` have measured: a scheduler starts one task after the other, one for each part in
the first pass; in the others it passes on one message to each worker, which is counted as a task and costs less. A
sum of d numbers of 8 bytes goes through the network once for every level of the tree in which the workers add up.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import resource
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from pyarrow import parquet

from dpdescent.accounting import Gaussian
from dpdescent.curator import ArraySource, BlockSource, Curator, LatticeNoise
from dpdescent.datasets.synthetic_tables import BLOCK_ROWS, SCHEMA_NAME, large_block, write_large_table
from dpdescent.estimators import DPLogisticRegression
from dpdescent.estimators.measuring import Measurement
from dpdescent.estimators.scaling import ColumnScaling
from dpdescent.estimators.streaming import block_source, check_all_rows, coded_block
from dpdescent.exact import FeatureGrid, one_library_thread
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import LinearProblem, Logistic
from dpdescent.queries import Gradient
from dpdescent.tables import Schema, open_parquet

NETWORK = 1e9  # bytes per second between workers: ten gigabits
LATENCY = 1e-3  # seconds of a message


def processor_seconds(function: Callable[[], object], repeats: int = 1) -> float:
    return _best(function, repeats, time.process_time)


def elapsed_seconds(function: Callable[[], object], repeats: int = 1) -> float:
    return _best(function, repeats, time.perf_counter)


def _best(function: Callable[[], object], repeats: int, clock: Callable[[], float]) -> float:
    best = math.inf
    for _ in range(repeats):
        start = clock()
        function()
        best = min(best, clock() - start)
    return best


def decoded(folder: Path) -> None:
    for path in sorted(folder.glob("*.parquet")):
        for _ in parquet.ParquetFile(path).iter_batches(20_000, use_threads=False):
            pass


def asked(source: ArraySource | BlockSource, rows: int) -> Callable[[], Any]:
    """Return a function that asks for a gradient, each time at other weights."""
    problem = LinearProblem(Logistic(), source.grid)
    ledger = Ledger(1e9, 1e-6, currency="gdp")
    curator = Curator(source, problem, ledger, rows, noise=LatticeNoise(Randomness(0)))
    generator = np.random.default_rng(0)

    def ask() -> Any:
        with one_library_thread():
            return curator.answer(Gradient(generator.normal(size=source.grid.dimension), 1.0, Gaussian(1.0)))

    return ask


def classifier() -> DPLogisticRegression:
    model = DPLogisticRegression(classes=(0, 1))
    model.classes_ = np.array([0, 1])
    return model


def measure_passes(rows: int, columns: int) -> dict[str, float]:
    """Return nanoseconds of processor time per cell, and the largest resident memory without the rows in memory."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "table"
        table = open_parquet(folder, write_large_table(folder, rows, columns))
        scaling = ColumnScaling(np.zeros(columns), np.ones(columns))
        grid = FeatureGrid(1.0, columns + 1)
        source = block_source(classifier(), table, scaling, grid)
        found = {
            "decode": processor_seconds(lambda: decoded(folder), 3),
            "check": processor_seconds(lambda: check_all_rows(source)),
        }
        ask = asked(source, rows)
        ask()
        found["later"] = processor_seconds(ask, 5)
        again = asked(block_source(classifier(), table, scaling, grid, keep_rows=False), rows)
        again()
        found["again"] = processor_seconds(again, 2)
        noise, nowhere = LatticeNoise(Randomness(0)), np.zeros(columns, dtype=bool)
        bounds = Measurement(Ledger(1.0, 1e-6, currency="gdp"), noise, rows)
        found["bounds"] = processor_seconds(lambda: bounds.tightened(table, scaling, nowhere))
        found["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        in_memory = asked(rows_in_memory(table, grid), rows)
        in_memory()
        found["memory"] = processor_seconds(in_memory, 5)
    cells = rows * columns
    return {name: value if name == "peak_megabytes" else 1e9 * value / cells for name, value in found.items()}


def rows_in_memory(table: Any, grid: FeatureGrid) -> ArraySource:
    features, labels = table.gathered()
    columns = features.shape[1]
    scaling = ColumnScaling(np.zeros(columns), np.ones(columns))
    placed = grid.place(coded_block(np.ascontiguousarray(features), scaling, True))
    return ArraySource(placed, np.where(labels > 0, 1.0, -1.0), grid)


def measure_fit(folder: Path, method: str) -> dict[str, float]:
    """Return what a fit to a folder takes."""
    table = open_parquet(folder, Schema.load(folder / SCHEMA_NAME))
    rows, columns = table.shape
    passes, summed = 0, BlockSource.map_sum

    def counted(self: BlockSource, *arguments: Any) -> Any:
        nonlocal passes
        passes += 1
        return summed(self, *arguments)

    BlockSource.map_sum = counted  # type: ignore[method-assign]
    found = {"load": os.getloadavg()[0], "decode": processor_seconds(lambda: decoded(folder))}
    start = time.perf_counter(), time.process_time()
    model = DPLogisticRegression(
        1.0, 1e-9, method=method, bounds=table.bounds, classes=table.classes, random_state=0, progress=True
    ).fit(table)
    found |= {"seconds": time.perf_counter() - start[0], "processor": time.process_time() - start[1]}
    BlockSource.map_sum = summed  # type: ignore[method-assign]
    found |= {"passes": passes, "pass": found["processor"] / passes}
    found["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    X, y = large_block(-(-rows // BLOCK_ROWS) + 1, columns)
    return found | {"accuracy": float(model.score(X, y))}


def measure_workers(rows: int, columns: int) -> dict[str, Any]:
    from scale_workers import measure_workers  # it is not needed by the workers themselves

    return measure_workers(rows, columns)


def measure_bandwidth(rows: int, columns: int) -> dict[str, float]:
    """Return gigabytes of rows per second: of gradients, and of sums of the same array, by threads."""
    grid = FeatureGrid(1.0, columns)
    generator = np.random.default_rng(0)
    placed = grid.place(generator.random((rows, columns)))
    source = ArraySource(placed, np.ones(rows), grid)
    ask = asked(source, rows)
    ask()
    blocks = np.array_split(placed.reshape(-1), 64)
    found = {"load": os.getloadavg()[0]}
    told = os.environ.get("OMP_NUM_THREADS")
    for threads in dict.fromkeys((1, os.cpu_count() or 1)):
        os.environ["OMP_NUM_THREADS"] = str(threads)
        found[f"gradient_{threads}"] = 2 * placed.nbytes / elapsed_seconds(ask, 5) / 1e9  # margins, and then the sum
        with ThreadPoolExecutor(threads) as pool:
            found[f"sum_{threads}"] = placed.nbytes / elapsed_seconds(lambda: list(pool.map(np.sum, blocks)), 5) / 1e9
    os.environ.pop("OMP_NUM_THREADS")
    if told is not None:
        os.environ["OMP_NUM_THREADS"] = told
    return found


def seconds_of_a_fit(found: dict[str, float], cells: float, columns: int, passes: int, workers: int) -> float:
    """Return what the model says; parts have 2^25 cells, and a single process has neither tasks nor a network."""
    work = 1e-9 * cells * (found["check"] + (passes - 1) * found["later"]) / workers
    if workers <= 2:
        return work
    levels = math.ceil(math.log(workers, 8))
    sums = levels * (LATENCY + 8 * 8 * columns / NETWORK)
    parts = cells / 2**25
    return work + parts * found["task"] + passes * (found["query"] + workers * found["task"] + sums)


def draw(found: dict[str, float], columns: int, picture: Path) -> None:
    import matplotlib.pyplot as plt

    cells = np.logspace(8, 12, 50)
    figure, axes = plt.subplots(figsize=(6, 4))
    for workers, colour in ((2, "C0"), (16, "C1"), (128, "C2")):
        for passes, style in ((40, "-"), (200, "--")):
            seconds = [seconds_of_a_fit(found, each, columns, passes, workers) for each in cells]
            where = "one process, 2 threads" if workers == 2 else f"{workers} workers"
            axes.loglog(cells, seconds, style, color=colour, label=f"{where}, {passes} passes")
    axes.axvline(1e9, color="grey", linewidth=0.8)
    axes.text(1.1e9, axes.get_ylim()[0] * 1.5, "measured up to here", fontsize=7, color="grey")
    axes.set(xlabel="cells (rows times columns)", ylabel="seconds of a fit, by the model")
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


_MEASURED: dict[str, Callable[[int, int], dict[str, Any]]] = {
    "passes": measure_passes,
    "workers": measure_workers,
    "bandwidth": measure_bandwidth,
}


_RATIOS = (
    ("check", "decode"),
    ("again", "decode"),
    ("later", "decode"),
    ("bounds", "decode"),
    ("pass", "decode"),
    ("later", "memory"),
)
_RATIOS_OF_WORK = (
    ("workers_1", "workers_2"),
    ("plain_1", "plain_2"),
    ("workers_2", "memory"),
    ("threads_2", "memory"),
)


def show(found: dict[str, Any]) -> None:
    """Print figures, and how they compare; those of a kind of work are elapsed and processor seconds."""
    for key, value in found.items():
        if not isinstance(value, dict):
            print(f"{key:>19} {value:10.4g}")
            continue
        print(key)
        for where, seconds in value.items():
            print(f"{where:>19} {seconds['elapsed']:10.4g} {seconds['processor']:10.4g}")
        for above, below in _RATIOS_OF_WORK:
            if above in value and below in value:
                ratios = (value[above][kind] / value[below][kind] for kind in ("elapsed", "processor"))
                print(f"{above + '/' + below:>19}", *(f"{ratio:10.2f}" for ratio in ratios))
    for above, below in _RATIOS:
        if above in found and below in found:
            print(f"{above + '/' + below:>19} {found[above] / found[below]:10.2f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="?", default="passes", choices=(*_MEASURED, "fit", "picture"))
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--folder", type=Path, help="For a fit: where the table is.")
    parser.add_argument("--method", default="auto", help="For a fit.")
    parser.add_argument("--picture", type=Path, default=Path("docs/scale.png"))
    parser.add_argument("--json", type=Path, help="Where figures are written, or are to be found for the picture.")
    given = parser.parse_args()
    known = json.loads(given.json.read_text()) if given.json is not None and given.json.is_file() else {}
    if given.what == "picture":
        draw(known["passes"] | known["workers"], given.columns, given.picture)
        return
    name = given.what
    if name == "fit":
        found, name = measure_fit(given.folder, given.method), f"fit {given.method}"
        print(f"{given.folder}, {name}")
    else:
        found = _MEASURED[name](given.rows, given.columns)
        print(f"{given.rows:,} x {given.columns}, {name}")
    show(found)
    if given.json is not None:
        given.json.write_text(json.dumps(known | {name: found}, indent=1) + "\n")


if __name__ == "__main__":
    main()
