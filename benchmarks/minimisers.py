"""How the work of the minimisers grows: accelerated gradient with the root of kappa, Katyusha with n + sqrt(n kappa).

A random logistic regression with rows of length 1, so that beta = 1/4 + mu for the mean, minimised to a certified
distance; one pass over the rows counts n gradients of single rows. A bound with the constant 1 stands beside each.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from pathlib import Path
from typing import Any

import numpy as np

from dpdescent.curator import ArraySource
from dpdescent.exact import FeatureGrid
from dpdescent.minimisers import METHODS, RowObjective, Task, certified_minimiser, certify
from dpdescent.minimisers.candidates import katyusha
from dpdescent.problems import Logistic


class Counted(RowObjective):
    """An objective that counts the gradients of all rows."""

    passes = 0

    def value_and_gradient(self, weights: np.ndarray) -> tuple[float, np.ndarray]:
        self.passes += 1
        return super().value_and_gradient(weights)


def table(rows: int, kappa: float, columns: int = 10) -> tuple[Counted, float]:
    generator = np.random.default_rng(rows)
    grid = FeatureGrid(1.0, columns)
    X = generator.normal(size=(rows, columns)) * np.geomspace(1, 0.03, columns)
    X = grid.place(X / np.linalg.norm(X, axis=1)[:, None])
    y = np.where(X[:, 0] + generator.normal(0, 0.3, rows) > 0, 1.0, -1.0)
    mu = 0.25 * rows / (kappa - 1)
    return Counted(
        ArraySource(X, y, grid), grid, Logistic(), grid.squared_norms(X), 1.0, np.full(columns, mu), np.zeros(columns)
    ), mu


def decades(rows: int, kappa: float, relative: float = 1e-4) -> float:
    """Return the logarithm of the first gap, n log 2, over the last, mu/2 times the squared tolerance."""
    mu = 0.25 * rows / (kappa - 1)
    return math.log(rows * math.log(2) * 2 * mu / relative**2)


def work(method: str, rows: int, kappa: float, relative: float = 1e-4) -> dict[str, Any]:
    """Return the gradients of single rows until the certificate accepts a point, and the seconds."""
    objective, mu = table(rows, kappa)
    tolerance = relative / mu
    task = Task(objective, mu, tolerance)
    start = time.perf_counter()
    epochs = 0
    for candidate in METHODS[method](task, np.zeros(objective.shape)):
        epochs += 1
        if certify(task, candidate)[1] <= tolerance:
            break
    else:
        certified_minimiser(objective, mu, tolerance, method)
        epochs = -1  # another method had to take over
    seconds = time.perf_counter() - start
    return {
        "method": method,
        "rows": rows,
        "kappa": kappa,
        "passes": objective.passes,
        "seconds": seconds,
        "ended": epochs,
    }


def accelerated(kappas: list[float]) -> list[dict[str, Any]]:
    lines = []
    for kappa in kappas:
        line = work("agd", 2000, kappa)
        line["bound"] = math.sqrt(kappa) * decades(2000, kappa)
        lines.append(line)
        print(f"agd, kappa {kappa:g}: {line['passes']} passes; sqrt(kappa) log = {line['bound']:.0f}")
    return lines


def stochastic(shapes: list[tuple[int, float]]) -> list[dict[str, Any]]:
    lines = []
    for rows, kappa in shapes:
        objective, mu = table(rows, kappa)
        task = Task(objective, mu, 1e-4 / mu)
        snapshots = katyusha(task, np.zeros(objective.shape), every=True)
        epochs = next(k for k, snapshot in enumerate(snapshots) if certify(task, snapshot)[1] <= task.tolerance)
        gradients = rows + 3 * rows * epochs  # 2n steps and a full gradient each
        bound = (rows + math.sqrt(rows * kappa)) * decades(rows, kappa)
        lines.append({"rows": rows, "kappa": kappa, "gradients": gradients, "bound": bound})
        print(
            f"katyusha, n {rows}, kappa {kappa:g}: {gradients} gradients of rows, {gradients / bound:.2f} of "
            "(n + sqrt(n kappa)) log"
        )
    return lines


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()
    fast = accelerated([10, 100, 1000, 10_000])
    slope = float(np.polyfit(np.log([x["kappa"] for x in fast]), np.log([x["passes"] for x in fast]), 1)[0])
    slow = stochastic([(250, 100), (500, 100), (1000, 100), (2000, 100), (500, 1e4), (500, 4e4)])
    others = [work(method, 500, 100.0) for method in METHODS]
    for line in others:
        end = "certified by itself" if line["ended"] > 0 else "another method took over"
        print(f"{line['method']}: {line['seconds']:.2f} s, {end}")
    if arguments.json:
        record = {"agd": fast, "katyusha": slow, "all": others, "slope_agd": slope}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    print(f"slope_agd: {slope:.3f}")


if __name__ == "__main__":
    main()
