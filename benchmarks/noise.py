"""Time of exact lattice noise from operating-system bits, and its ratio to numpy's float Gaussian.

Run: ``python benchmarks/noise.py [--json FILE]``. Each time is the best of several runs.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from dpdescent.noise import SystemBits, discrete_gaussian, discrete_laplace

SCALE = 2**36
DIMENSIONS = (1, 124, 1_000, 100_000)


def best_seconds(run: Callable[[], object], repeats: int) -> float:
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        run()
        times.append(time.perf_counter() - start)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the numbers to FILE")
    options = parser.parse_args()

    bits = SystemBits()
    rows = []
    for name, sampler in (("gaussian", discrete_gaussian), ("laplace", discrete_laplace)):
        for dimension in DIMENSIONS:
            repeats = 20 if dimension > 10_000 else 500
            seconds = best_seconds(lambda draw=sampler, d=dimension: draw(bits, SCALE, d), repeats)
            rows.append({"law": name, "dimension": dimension, "seconds": seconds})
            print(f"{name:9s} d = {dimension:7,d}  {1e3 * seconds:9.3f} ms")

    generator = np.random.default_rng()
    float_seconds = best_seconds(lambda: generator.normal(scale=SCALE, size=DIMENSIONS[-1]), 20)
    exact_seconds = next(r["seconds"] for r in rows if (r["law"], r["dimension"]) == ("gaussian", DIMENSIONS[-1]))
    ratio = exact_seconds / float_seconds
    if options.json:
        report = {"times": rows, "numpy_normal_seconds": float_seconds, "ratio_noise": ratio}
        options.json.write_text(json.dumps(report, indent=2) + "\n")
    print(f"ratio_noise: {ratio:.2f}")


if __name__ == "__main__":
    main()
