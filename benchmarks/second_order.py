"""What an iteration of second-order descent costs, in units of plain products on the same array and threads.

A gradient-only iteration of `opt` is one noisy gradient, in units of ``X.T @ (X @ w)``; a Hessian, at a point whose
gradient has been measured, is in units of ``(X.T * s) @ X``. Exact sums, charges and exact noise are included. A
search is timed as well. Times are the best of many, taken in turn. ``--synthetic`` needs no data set.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from _timing import best_times
from dpdescent import load_dataset
from dpdescent.accounting import AboveThreshold, Gaussian
from dpdescent.curator import ArraySource, Curator
from dpdescent.exact import FeatureGrid, blas_is_exact
from dpdescent.ledger import Ledger
from dpdescent.problems import LinearProblem, Logistic, NonConvex
from dpdescent.queries import FirstStep, Gradient, Hessian


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--synthetic", action="store_true", help="uniform rows in the shape of Covertype")
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    generator = np.random.default_rng(0)
    if arguments.synthetic:
        table, labels = generator.uniform(0, 1, (495_141, 54)), generator.choice([-1.0, 1.0], 495_141)
    else:
        data = load_dataset("covertype")
        table, labels = data.X, np.where(data.y == data.classes[1], 1.0, -1.0)
    rows, columns = table.shape
    grid = FeatureGrid(1.0, columns, 2.0)
    X = grid.place(table)
    problem = LinearProblem(Logistic(), grid, NonConvex(1e-3), False)
    curator = Curator(ArraySource(X, labels, grid), problem, Ledger(1e9, 1e-6, currency="rdp"), rows)
    clip, noise = problem.gradient_bound, Gaussian(100.0)
    search = AboveThreshold(9, 100.0, 40.0, "gaussian")
    points = iter(generator.normal(size=(10_000, columns)))  # margins are kept for the last point only
    w, s = next(points), generator.uniform(0, 0.25, rows)
    steps = 16 * 0.73 ** np.arange(9)
    blas_is_exact()
    curator.answer(Gradient(w, clip, noise, keep_margins=True))

    times = best_times(
        {
            "plain": lambda: X.T @ (X @ w),
            "gradient": lambda: curator.answer(Gradient(next(points), clip, noise, keep_margins=True)),
            "plain_hessian": lambda: (X.T * s) @ X,
            "hessian": lambda: curator.answer(Hessian(w, noise)),
            "search": lambda: curator.answer(FirstStep(w, w, steps, 0.1 * steps, search)),
        },
        arguments.repeats,
    )
    ratios = {
        "ratio_gradient_iteration": times["gradient"] / times["plain"],
        "ratio_hessian": times["hessian"] / times["plain_hessian"],
    }
    print(f"{rows} x {columns}, best of {arguments.repeats}, ms")
    for name, seconds in times.items():
        print(f"  {name:22} {1e3 * seconds:8.3f}")
    if arguments.json:
        record = {"rows": rows, "columns": columns, "seconds": times}
        arguments.json.write_text(json.dumps(record | ratios, indent=2) + "\n")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.3f}")


if __name__ == "__main__":
    main()
