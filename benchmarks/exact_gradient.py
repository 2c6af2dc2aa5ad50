"""What exactness costs: an exact clipped logistic gradient against the plain float64 one.

Both compute margins, sigmoid, residual, clip and ``X^T c``. The plain gradient uses numpy's exp and clips floats;
it is timed in place, in place in blocks, and as the textbook formula, and the fastest of the three counts. Norms
are known beforehand in both. Times are the best of many, taken in turn.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from _timing import best_times
from dpdescent.exact import (
    ClippedSum,
    FeatureGrid,
    blas_is_exact,
    exp,
    quick_sigmoid,
    sigmoid,
    softplus,
)

Array = NDArray[np.float64]
CLIP = 1.0


def plain_gradient(X: Array, y: Array, w: Array, norms: Array) -> Array:
    values = X @ w
    np.negative(values, out=values)
    np.exp(values, out=values)
    values += 1.0
    np.divide(1.0, values, out=values)
    values -= y
    factors = np.abs(values)
    factors *= norms
    np.maximum(factors, CLIP, out=factors)
    np.divide(CLIP, factors, out=factors)
    values *= factors
    return X.T @ values


def textbook_gradient(X: Array, y: Array, w: Array, norms: Array) -> Array:
    residuals = 1 / (1 + np.exp(-(X @ w))) - y
    return X.T @ (residuals * np.minimum(1, CLIP / (np.abs(residuals) * norms)))


def plain_gradient_in_blocks(X: Array, y: Array, w: Array, norms: Array, block_rows: int) -> Array:
    total = np.zeros(X.shape[1])
    for start in range(0, len(X), block_rows):
        rows = slice(start, start + block_rows)
        total += plain_gradient(X[rows], y[rows], w, norms[rows])
    return total


def exact_gradient(clipped: ClippedSum, X: Array, y: Array, w: Array, caps: Array, block_rows: int) -> Array:
    residuals = clipped.grid.margins(X, w)
    quick_sigmoid(residuals, out=residuals)
    residuals -= y
    return clipped.total_within(X, residuals, caps, out=residuals, block_rows=block_rows).to_float()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=45_000)
    parser.add_argument("--columns", type=int, default=124)
    parser.add_argument("--block-rows", type=int, default=2**17)
    parser.add_argument("--repeats", type=int, default=200)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    generator = np.random.default_rng(0)
    raw = generator.uniform(-1, 1, (arguments.rows, arguments.columns))
    y = (generator.random(arguments.rows) < 0.5).astype(float)
    grid = FeatureGrid(entry_bound=1.0, dimension=arguments.columns)
    clipped = ClippedSum(grid, CLIP)
    blas_is_exact()
    start = time.perf_counter()
    X = grid.place(raw)
    squared_norms = grid.squared_norms(X)
    caps = clipped.caps(squared_norms)
    preparation = time.perf_counter() - start
    norms = np.sqrt(squared_norms)
    w = grid.place_weights(generator.normal(size=arguments.columns) / 8)
    block_rows = arguments.block_rows

    times = best_times(
        {
            "plain": lambda: plain_gradient(X, y, w, norms),
            "plain_in_blocks": lambda: plain_gradient_in_blocks(X, y, w, norms, 8192),
            "plain_textbook": lambda: textbook_gradient(X, y, w, norms),
            "exact": lambda: exact_gradient(clipped, X, y, w, caps, block_rows),
        },
        arguments.repeats,
    )
    margins = grid.margins(X, w)
    times |= best_times(
        {
            "exp": lambda: exp(margins),
            "sigmoid": lambda: sigmoid(margins),
            "quick_sigmoid": lambda: quick_sigmoid(margins),
            "softplus": lambda: softplus(margins),
            "numpy_exp": lambda: np.exp(margins),
        },
        arguments.repeats,
    )
    ratio = times["exact"] / min(seconds for name, seconds in times.items() if name.startswith("plain"))
    print(f"{arguments.rows} x {arguments.columns}, best of {arguments.repeats}, milliseconds")
    for name, seconds in times.items():
        print(f"  {name:16} {1e3 * seconds:8.3f}")
    print(f"  {'placing, once':16} {1e3 * preparation:8.3f}")
    if arguments.json:
        record = {"rows": arguments.rows, "columns": arguments.columns, "seconds": times}
        record |= {"seconds_placing": preparation, "ratio_exact_gradient": ratio}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    print(f"ratio_exact_gradient: {ratio:.3f}")


if __name__ == "__main__":
    main()
