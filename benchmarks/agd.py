"""What one DP-AGD iteration costs, in units of ``X.T @ (X @ w)`` on the same array with the same threads.

An iteration is what the solver asks of the curator: a noisy clipped gradient at the weights to which the last step
has led, and a private selection among the step sizes along it, exact sums and exact noise included. ``--growth``
repeats it for more rows and columns.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

import numpy as np

from dpdescent.curator import ArraySource, Curator
from dpdescent.exact import FeatureGrid, blas_is_exact
from dpdescent.ledger import Ledger
from dpdescent.problems import LinearProblem, Logistic
from dpdescent.queries import BestStep, Gradient


def measure(rows: int, columns: int, candidates: int, repeats: int) -> dict[str, Any]:
    generator = np.random.default_rng(0)
    grid = FeatureGrid(1.0, columns)
    X = grid.place(generator.uniform(-1, 1, (rows, columns)))
    labels = generator.choice([-1.0, 1.0], rows)
    ledger = Ledger(1e6, 1e-6)
    curator = Curator(ArraySource(X, labels, grid), LinearProblem(Logistic(), grid, intercept=False), ledger, rows)
    amount = ledger.budget / (8 * (repeats + 2))
    steps = np.concatenate([[0.0], 2.0 ** -np.arange(candidates - 1.0)])
    w = generator.normal(size=columns) / 8
    best = {"plain": float("inf"), "gradient": float("inf"), "selection": float("inf"), "iteration": float("inf")}
    for _ in range(repeats):
        start = time.perf_counter()
        X.T @ (X @ w)
        best["plain"] = min(best["plain"], time.perf_counter() - start)
    time.sleep(0.2)  # the threads of the numerical library wait for more work by spinning, for a while
    for _ in range(repeats):
        start = time.perf_counter()
        gradient = curator.answer(Gradient(w, 1.0, curator.gaussian(amount), keep_margins=True))
        middle = time.perf_counter()
        choice = curator.currency.selection(amount)
        chosen = curator.answer(BestStep(w, gradient, steps, choice, ceiling=4.0))
        end = time.perf_counter()
        w = w - steps[chosen] * gradient
        best["gradient"] = min(best["gradient"], middle - start)
        best["selection"] = min(best["selection"], end - middle)
        best["iteration"] = min(best["iteration"], end - start)
    return {"rows": rows, "columns": columns, "seconds": best, "ratio": best["iteration"] / best["plain"]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=45_000)
    parser.add_argument("--columns", type=int, default=124)
    parser.add_argument("--candidates", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--growth", action="store_true", help="also measure more rows and columns")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    blas_is_exact()
    shapes = [(arguments.rows, arguments.columns)]
    if arguments.growth:
        shapes += [(250_000, 124), (1_000_000, 124), (45_000, 500)]
    results = []
    for rows, columns in shapes:
        result = measure(rows, columns, arguments.candidates, max(5, arguments.repeats * 45_000 // rows))
        results.append(result)
        times = ", ".join(f"{name} {1e3 * seconds:.2f} ms" for name, seconds in result["seconds"].items())
        print(f"{rows:,} x {columns}: {times}; ratio {result['ratio']:.2f}")
    ratio = results[0]["ratio"]
    if arguments.json:
        record = {"candidates": arguments.candidates, "results": results, "ratio_iteration": ratio}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    print(f"ratio_iteration: {ratio:.3f}")


if __name__ == "__main__":
    main()
