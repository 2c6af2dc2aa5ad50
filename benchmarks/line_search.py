"""What one iteration with a line search costs, in units of ``X.T @ (X @ w)`` on the same array and threads.

An iteration is an exact clipped logistic gradient at w, a pass ``X @ g``, and the exact scores of all steps. The
margins ``X @ w`` of the gradient serve the line search too; ``ratio_kernel_iteration_two_columns`` is for a solver
that does not keep them and forms ``X @ [w, g]``. Times are the best of many, taken in turn. These are the kernels
alone; ``agd.py`` measures an iteration as the solver pays for it, with noise and charges.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from _timing import best_times
from dpdescent.exact import (
    BoundedScores,
    ClippedSum,
    FeatureGrid,
    LatticeSum,
    SignedScores,
    blas_is_exact,
    quick_sigmoid,
    softplus,
)

Array = NDArray[np.float64]


def gradient(clipped: ClippedSum, X: Array, y: Array, margins: Array, caps: Array) -> LatticeSum:
    residuals = quick_sigmoid(margins)
    residuals -= y
    return clipped.total_within(X, residuals, caps, out=residuals)


def logistic(positions: Array) -> Array:
    return softplus(-positions)


def hinge(positions: Array) -> Array:
    np.subtract(1.0, positions, out=positions)
    return np.maximum(positions, 0.0, out=positions)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=45_000)
    parser.add_argument("--columns", type=int, default=124)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--ceiling", type=float, default=4.0)
    parser.add_argument("--repeats", type=int, default=100)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    generator = np.random.default_rng(0)
    y = (generator.random(arguments.rows) < 0.5).astype(float)
    signs = 2 * y - 1
    grid = FeatureGrid(entry_bound=1.0, dimension=arguments.columns)
    clipped = ClippedSum(grid, clip=1.0)
    blas_is_exact()
    X = grid.place(generator.uniform(-1, 1, (arguments.rows, arguments.columns)))
    caps = clipped.caps(grid.squared_norms(X))
    w = grid.place_weights(generator.normal(size=arguments.columns) / 8)
    g = grid.place_weights(generator.normal(size=arguments.columns) / 8)
    both = grid.place_weights(np.stack([w, g], axis=1))
    steps = 2.0 ** (3 - np.arange(arguments.steps) / 2)
    ceiling = arguments.ceiling
    scores = BoundedScores(ceiling, logistic, interval=(-ceiling, 10.0))
    changes = SignedScores(ceiling, logistic, interval=(-4 * ceiling, 10.0))
    exact_hinge = BoundedScores(ceiling, hinge)

    def iteration() -> LatticeSum:
        margins = grid.margins(X, w)
        gradient(clipped, X, y, margins, caps)
        return scores.total(signs * margins, signs * grid.margins(X, g), steps)

    def iteration_two_columns() -> LatticeSum:
        gradient(clipped, X, y, grid.margins(X, w), caps)
        margins = grid.margins(X, both)
        return scores.total(signs * margins[:, 0], signs * margins[:, 1], steps)

    starts, slopes = signs * (X @ w), signs * (X @ g)
    times = best_times(
        {
            "plain": lambda: X.T @ (X @ w),
            "iteration": iteration,
            "iteration_two_columns": iteration_two_columns,
            "gradient": lambda: gradient(clipped, X, y, grid.margins(X, w), caps),
            "margins": lambda: grid.margins(X, g),
            "margins_two_columns": lambda: grid.margins(X, both),
            "scores": lambda: scores.total(starts, slopes, steps),
            "score_changes": lambda: changes.total(starts, slopes, steps),
            "hinge_scores": lambda: exact_hinge.total(starts, slopes, steps),
        },
        arguments.repeats,
    )
    ratios = {f"ratio_kernel_{name}": times[name] / times["plain"] for name in ("iteration_two_columns", "iteration")}
    print(f"{arguments.rows} x {arguments.columns}, {arguments.steps} steps, best of {arguments.repeats}, ms")
    for name, seconds in times.items():
        print(f"  {name:22} {1e3 * seconds:8.3f}")
    if arguments.json:
        record = {"rows": arguments.rows, "columns": arguments.columns, "steps": arguments.steps, "seconds": times}
        arguments.json.write_text(json.dumps(record | ratios, indent=2) + "\n")
    for name, ratio in ratios.items():
        print(f"{name}: {ratio:.3f}")


if __name__ == "__main__":
    main()
