"""What a fit by ``auto`` with given bounds costs, in units of scikit-learn's ``LogisticRegression`` without privacy.

Adult where it is on this machine, random columns of its shape elsewhere. ``--growth`` times more rows and columns.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from dpdescent import DPLogisticRegression, list_datasets, load_dataset


def random_table(rows: int, columns: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    X = (generator.random((rows, columns)) < generator.uniform(0.01, 0.5, columns)).astype(np.float64)
    margins = (X - X.mean(0)) @ generator.normal(0, 0.5, columns)
    return X, (generator.random(rows) < 1 / (1 + np.exp(-margins))).astype(np.int64)


def best_time(function: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        function()
        times.append(time.perf_counter() - start)
    return min(times)


def measure(X: np.ndarray, y: np.ndarray, epsilon: float, repeats: int, *, plain: bool) -> dict[str, Any]:
    private = DPLogisticRegression(epsilon, 1e-8, classes=[0, 1], random_state=0, bounds=(0, 1), tighten=False)
    measuring = DPLogisticRegression(epsilon, 1e-8, classes=[0, 1], random_state=0)
    result = {"rows": X.shape[0], "columns": X.shape[1], "auto": best_time(lambda: private.fit(X, y), repeats)}
    result["auto_measuring_bounds"] = best_time(lambda: measuring.fit(X, y), repeats)
    if plain:
        result["plain"] = best_time(lambda: LogisticRegression(max_iter=1000).fit(X, y), repeats)
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, default=1.0)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--growth", action="store_true", help="also time more rows and columns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    at_hand = {info.name for info in list_datasets() if info.location is not None}
    if "adult" in at_hand:
        data = load_dataset("adult")
        X, y = data.X[:39_073], (data.y[:39_073] == data.classes[1]).astype(np.int64)
    else:
        X, y = random_table(39_073, 123)
    results = [measure(X, y, arguments.epsilon, arguments.repeats, plain=True)]
    if arguments.growth:
        for shape in ((495_141, 54), (250_000, 54), (1_000_000, 54), (39_073, 246), (39_073, 492)):
            results.append(measure(*random_table(*shape), arguments.epsilon, 2, plain=False))
    for result in results:
        measured = f"{result['auto_measuring_bounds']:.2f} s if it also measures the bounds"
        print(f"{result['rows']:,} x {result['columns']}: auto {result['auto']:.2f} s, {measured}")
    first = results[0]
    ratio = first["auto"] / first["plain"]
    print(f"LogisticRegression: {first['plain']:.2f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps({"results": results, "ratio_fit": ratio}, indent=2) + "\n")
    print(f"ratio_fit: {ratio:.3f}")


if __name__ == "__main__":
    main()
