"""Wide and sparse tables: accuracy of `auto` and `sgd` on rows of words, beside a regression without privacy.

A row has 60 words drawn with Zipf frequencies, each stored once; a fifth of the words carries signal. Epsilon 1,
delta 1e-6. Means and standard errors over seeds, each with a table of its own.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse
from sklearn.linear_model import LogisticRegression

from dpdescent import DPLogisticRegression

SIZES = ((16_000, 5_000), (16_000, 20_000), (40_000, 20_000))
WORDS_IN_A_ROW = 60


def words(rows: int, columns: int, seed: int) -> tuple[sparse.csr_array, np.ndarray]:
    """Return rows of words, and labels that depend on a fifth of the words."""
    generator = np.random.default_rng(seed)
    frequencies = 1 / np.arange(1, columns + 1)
    drawn = generator.choice(columns, (rows, WORDS_IN_A_ROW), p=frequencies / frequencies.sum())
    ends = np.arange(0, drawn.size + 1, WORDS_IN_A_ROW)
    X = sparse.csr_array((np.ones(drawn.size), drawn.ravel(), ends), shape=(rows, columns))
    X.sum_duplicates()
    X.data[:] = 1.0
    signal = generator.normal(size=columns) * (generator.random(columns) < 0.2)
    scores = X @ signal
    scores = (scores - scores.mean()) / scores.std()
    return X, (generator.random(rows) < 1 / (1 + np.exp(-1.5 * scores))).astype(np.int64)


def measure(rows: int, columns: int, seeds: int) -> list[dict[str, Any]]:
    found = []
    for seed in range(seeds):
        X, y = words(rows * 5 // 4, columns, seed)
        models: dict[str, Any] = {
            method: DPLogisticRegression(
                1.0,
                1e-6,
                method=method,
                bounds=(0, 1),
                binary_features=np.ones(columns, dtype=bool),
                classes=[0, 1],
                random_state=seed,
            )
            for method in ("auto", "sgd")
        }
        models["no privacy"] = LogisticRegression(C=0.05, max_iter=300)
        for name, model in models.items():
            start = time.process_time()
            model.fit(X[:rows], y[:rows])
            seconds = time.process_time() - start
            accuracy = float(model.score(X[rows:], y[rows:]))
            found.append({"rows": rows, "columns": columns, "method": name, "seed": seed, "accuracy": accuracy})
            found[-1]["seconds"] = seconds
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    rows = []
    for size in SIZES:
        found = measure(*size, asked.seeds)
        rows += found
        cells = []
        for method in dict.fromkeys(row["method"] for row in found):
            values = np.array([row["accuracy"] for row in found if row["method"] == method])
            error = values.std(ddof=1) / np.sqrt(len(values)) if len(values) > 1 else float("nan")
            seconds = np.mean([row["seconds"] for row in found if row["method"] == method])
            cells.append(f"{method} {values.mean():.4f} ({error:.4f}), {seconds:.1f} s")
        print(f"{size[0]:,} x {size[1]:,}: " + "; ".join(cells), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
