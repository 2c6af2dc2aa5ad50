"""What a private line search costs, and how much of a long run goes into its accounting.

``ratio_search`` is the time of one search of 20 steps as a solver pays for it (charge, batch, sums, exact noise), in
units of ``X.T @ (X @ w)`` on the rows of its batch, already gathered, with the same threads; for
``ratio_search_gathering`` numpy gathers them too, as it must for a fresh batch. Margins of the weights are known, as
they are after a step. ``share_of_accounting`` is the share of ``blsgd``, 10,000 iterations on small batches, that is
spent on prices and charges.

As in Adult, 12% of the entries are not 0. Estimators store such rows sparse, and so do the searches here; numpy's are
dense. ``--density 1`` has all rows dense.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from _timing import best_times
from dpdescent.accounting import RDP, AboveThreshold
from dpdescent.curator import ArraySource, Batch, Curator, Sampling, curator as curator_module
from dpdescent.estimators.reading import compact
from dpdescent.exact import FeatureGrid, blas_is_exact
from dpdescent.ledger import Ledger
from dpdescent.problems import LinearProblem, Logistic
from dpdescent.queries import FirstStep
from dpdescent.solvers.blsgd import BLSGDSettings, blsgd

RATES = (1.0, 0.5, 0.1)
LEDGER = {"delta": 1e-6, "currency": RDP(8)}


def make_curator(rows: int, columns: int, density: float, epsilon: float) -> tuple[Curator, np.ndarray]:
    generator = np.random.default_rng(0)
    grid = FeatureGrid(1.0, columns)
    X = generator.uniform(-1, 1, (rows, columns)) * (generator.random((rows, columns)) < density)
    X[:, -1] = 1.0
    placed, labels = grid.place(X), generator.choice([-1.0, 1.0], rows)
    problem = LinearProblem(Logistic(), grid)
    return Curator(ArraySource(compact(placed), labels, grid), problem, Ledger(epsilon, **LEDGER), rows), placed


def ratios(rows: int, columns: int, density: float, steps: int, repeats: int) -> dict[str, float]:
    blas_is_exact()
    curator, X = make_curator(rows, columns, density, 1e12)
    generator = np.random.default_rng(1)
    w, v = generator.normal(size=(2, columns)) / 8
    sizes = 4 * 0.8 ** np.arange(steps)
    cost = AboveThreshold(steps, 40.0, 20.0)
    functions: dict[str, Callable[[], object]] = {}
    for rate in RATES:
        chosen = generator.random(rows) < rate
        batch, sampling = X[chosen], curator.sampling(rate)

        def search(sampling: Sampling = sampling) -> object:
            # No step lowers the objective so much, so the weights and their margins stay.
            query = FirstStep(w, v, sizes, 1e9 * sizes, cost, slope=1.0)
            return curator.answer(query, Batch(sampling, (cost,)))

        functions[f"plain {rate}"] = lambda batch=batch: batch.T @ (batch @ w)
        functions[f"gathering {rate}"] = lambda chosen=chosen: (part := X[chosen]).T @ (part @ w)
        functions[f"search {rate}"] = search
    times = {name: best_times({name: function}, repeats)[name] for name, function in functions.items()}
    found = {}
    for rate in RATES:
        found[f"ratio_search_{rate:g}"] = times[f"search {rate}"] / times[f"plain {rate}"]
        found[f"ratio_search_gathering_{rate:g}"] = times[f"search {rate}"] / times[f"gathering {rate}"]
    for name, seconds in times.items():
        print(f"  {name:16} {1e3 * seconds:8.3f} ms")
    return found


class Stopwatch:
    """The time spent within some functions, calls from within each other counted once."""

    def __init__(self) -> None:
        self.seconds, self._depth = 0.0, 0

    def watch(self, owner: Any, name: str) -> None:
        function = getattr(owner, name)

        def timed(*arguments: Any, **options: Any) -> Any:
            self._depth += 1
            start = time.perf_counter()
            try:
                return function(*arguments, **options)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self.seconds += time.perf_counter() - start

        setattr(owner, name, timed)


def share_of_accounting(rows: int, columns: int, density: float, iterations: int) -> dict[str, float]:
    """Run `blsgd` on batches of a tenth and return the share of time that calibration, prices and charges take."""
    curator, _ = make_curator(rows, columns, density, 20.0)
    settings = BLSGDSettings(sampling_rate=0.1, search_rate=0.1, iterations=iterations, allocation="no")
    accounting = Stopwatch()
    accounting.watch(curator_module, "pay")
    accounting.watch(Curator, "affords")
    for name in ("cost", "strongest"):
        accounting.watch(Sampling, name)
    start = time.perf_counter()
    blsgd(curator, settings)
    total = time.perf_counter() - start
    print(f"  {len(curator.ledger.entries)} charges in {total:.1f} s")
    return {"share_of_accounting": accounting.seconds / total}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=45_000)
    parser.add_argument("--columns", type=int, default=124)
    parser.add_argument("--density", type=float, default=0.12, help="share of the entries that are not 0")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--iterations", type=int, default=10_000, help="of the run whose accounting is measured")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()
    print(f"{arguments.rows} x {arguments.columns}, {arguments.steps} steps, best of {arguments.repeats}")
    shape = arguments.rows, arguments.columns, arguments.density
    record = ratios(*shape, arguments.steps, arguments.repeats) | share_of_accounting(*shape, arguments.iterations)
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    for name, value in record.items():
        print(f"{name}: {value:.3f}")


if __name__ == "__main__":
    main()
