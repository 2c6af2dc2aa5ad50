"""What a pass over a table costs that is read block by block: processor time per cell, memory, and a model of both.

One table is written as Parquet. *decode* reads it with Arrow and does nothing else; *first* decodes, codes and keeps
the rows and answers a gradient; *later* answers a gradient from what was kept; *memory* answers it from rows in
memory. Processor seconds of all threads are counted, which a busy machine hardly changes. The model is

    seconds of a fit = cells (first + (passes - 1) later) / (processors or workers)

and bytes per pass are 4 per cell, plus 8 per row for each number of single rows; the network carries sums alone, one
of d numbers for every part and pass.
"""

from __future__ import annotations

import argparse
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from pyarrow import parquet

from dpdescent.accounting import Gaussian
from dpdescent.curator import ArraySource, BlockSource, Curator, Gradient
from dpdescent.datasets.large import write_large_table
from dpdescent.estimators import DPLogisticRegression
from dpdescent.estimators.scaling import ColumnScaling
from dpdescent.estimators.streaming import block_source, coded_block
from dpdescent.exact import FeatureGrid, one_library_thread
from dpdescent.ledger import Ledger
from dpdescent.problems import LinearProblem, Logistic
from dpdescent.sources import open_parquet


def processor_seconds(function: Callable[[], object], repeats: int = 1) -> float:
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        function()
        best = min(best, time.process_time() - start)
    return best


def decoded(folder: Path) -> None:
    for path in sorted(folder.glob("*.parquet")):
        for _ in parquet.ParquetFile(path).iter_batches(20_000, use_threads=False):
            pass


def asked(source: ArraySource | BlockSource, rows: int) -> Callable[[], object]:
    """Return a function that asks for a gradient, each time at other weights."""
    problem = LinearProblem(Logistic(), source.grid)
    curator = Curator(source, problem, Ledger(1e9, 1e-6, currency="gdp"), rows)
    generator = np.random.default_rng(0)

    def ask() -> object:
        with one_library_thread():
            return curator.answer(Gradient(generator.normal(size=source.grid.dimension), 1.0, Gaussian(1.0)))

    return ask


def measure(rows: int, columns: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "table"
        table = open_parquet(folder, write_large_table(folder, rows, columns))
        model = DPLogisticRegression(classes=(0, 1))
        model.classes_ = np.array([0, 1])
        scaling = ColumnScaling(np.zeros(columns), np.ones(columns))
        grid = FeatureGrid(1.0, columns + 1)
        ask = asked(block_source(model, table, scaling, grid), rows)
        found = {
            "decode": processor_seconds(lambda: decoded(folder), 3),
            "first": processor_seconds(ask),
            "later": processor_seconds(ask, 5),
        }
        found["peak_megabytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        features, labels = table.gathered()
        placed = grid.place(coded_block(np.ascontiguousarray(features), scaling, True))
        in_memory = asked(ArraySource(placed, np.where(labels > 0, 1.0, -1.0), grid), rows)
        in_memory()
        found["memory"] = processor_seconds(in_memory, 5)
    cells = rows * columns
    return {name: value if name == "peak_megabytes" else 1e9 * value / cells for name, value in found.items()}


def draw(found: dict[str, float], picture: Path) -> None:
    import matplotlib.pyplot as plt

    cells = np.logspace(8, 12, 50)
    figure, axes = plt.subplots(figsize=(6, 4))
    for workers in (2, 16, 128):
        for passes, style in ((40, "-"), (200, "--")):
            seconds = cells * 1e-9 * (found["first"] + (passes - 1) * found["later"]) / workers
            axes.loglog(cells, seconds, style, label=f"{workers} processors, {passes} passes")
    axes.axvline(1e9, color="grey", linewidth=0.8)
    axes.set(xlabel="cells (rows times columns)", ylabel="seconds of a fit, by the model")
    axes.legend(fontsize=7)
    axes.grid(alpha=0.3)
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--columns", type=int, default=50)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    found = measure(given.rows, given.columns)
    print(f"{given.rows:,} x {given.columns}: nanoseconds of processor time per cell")
    for name, value in found.items():
        print(f"{name:>16} {value:8.2f}")
    print(f"    later/decode {found['later'] / found['decode']:8.2f}")
    print(f"    later/memory {found['later'] / found['memory']:8.2f}")
    if given.picture is not None:
        draw(found, given.picture)
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
