"""Several classes: `auto` beside noisy gradient descent with the best setting picked on the test rows.

Pixels of MNIST and Fashion-MNIST and the seven classes of Covertype, delta 1e-8. Noisy gradient descent (the method
``sgd`` without batches) is run for every number of steps, clip norm and learning rate of a grid with one seed, and
the best of them with the other seeds as well: it is an oracle that no user has. Means and standard errors over seeds.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from dpdescent import DPLogisticRegression, load_dataset
from dpdescent.errors import DatasetNotAvailable

TABLES = ("covertype", "mnist", "fashion-mnist")
DELTA = 1e-8
STEPS, CLIPS, RATES = (30, 100), (1.0, 3.0), (1.0, 4.0, 16.0)


def table(name: str, rows: int) -> tuple[dict[str, Any], tuple[np.ndarray, ...]]:
    """Return what is public of a data set, and rows to learn from and to test on."""
    data = load_dataset(name, **({"all_classes": True} if name == "covertype" else {}))
    order = np.random.default_rng(0).permutation(len(data.y))[: rows + 20_000]
    cut = min(rows, len(order) * 4 // 5)
    train, test = order[:cut], order[cut:]
    public = {"bounds": data.bounds, "binary_features": data.binary_features, "classes": data.classes}
    return public, (data.X[train], data.y[train], data.X[test], data.y[test])


def measure(name: str, rows: int, epsilon: float, seeds: int, oracle: bool) -> list[dict[str, Any]]:
    public, (X, y, X_test, y_test) = table(name, rows)

    def fit(method: str, options: dict[str, Any] | None, seed: int) -> dict[str, Any]:
        model = DPLogisticRegression(
            epsilon, DELTA, method=method, random_state=seed, solver_options=options, **public
        )
        start = time.process_time()
        accuracy = model.fit(X, y).score(X_test, y_test)
        row = {"dataset": name, "epsilon": epsilon, "method": method, "options": options, "seed": seed}
        return row | {"accuracy": accuracy, "seconds": time.process_time() - start}

    found = [fit("auto", None, seed) for seed in range(seeds)]
    if oracle:
        grid = [
            {"steps": t, "clip_gradient": c, "step_size": rate, "sampling_rate": 1.0}
            for t, c, rate in itertools.product(STEPS, CLIPS, RATES)
        ]
        tried = [fit("sgd", options, 0) for options in grid]
        best = max(tried, key=lambda row: row["accuracy"])
        found += tried + [fit("sgd", best["options"], seed) for seed in range(1, seeds)]
    return found


def summary(rows: list[dict[str, Any]]) -> str:
    """Return the mean accuracy, its standard error and the seconds of one setting."""
    values = np.array([row["accuracy"] for row in rows])
    error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
    return f"{values.mean():.4f} ({error:.4f}), {np.mean([row['seconds'] for row in rows]):.1f} s"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--rows", type=int, default=60_000, help="to learn from, at most")
    parser.add_argument("--epsilons", default="0.4,1.6")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--without-oracle", action="store_true", help="`auto` alone, which is much quicker")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    asked = parser.parse_args()
    rows = []
    for name in asked.tables.split(","):
        for epsilon in map(float, asked.epsilons.split(",")):
            try:
                found = measure(name, asked.rows, epsilon, asked.seeds, not asked.without_oracle)
            except DatasetNotAvailable as error:
                print(error)
                break
            rows += found
            own = [row for row in found if row["method"] == "auto"]
            words = [f"auto {summary(own)}"]
            tried = [row for row in found if row["method"] == "sgd"]
            if tried:
                chosen = max((row for row in tried if row["seed"] == 0), key=lambda row: row["accuracy"])["options"]
                best = [row for row in tried if row["options"] == chosen]
                words.append(f"best of the grid {summary(best)} with {chosen}")
            print(f"{name}, epsilon {epsilon:g}: " + "; ".join(words), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
