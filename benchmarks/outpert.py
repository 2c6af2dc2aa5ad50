"""What `outpert` costs, in units of L-BFGS without privacy on the same objective to the same tolerance.

Both are asked for a point within tau of the minimiser, tau a 256th of the sensitivity, which L-BFGS takes for granted
when the gradient it has computed is short enough. `outpert` has it certified in accurate arithmetic, measures the
length of the rows, draws exact noise and keeps the accounts. ``dpdescent reproduce 001/table5`` has its excess risk.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from _timing import best_times
from dpdescent import Ledger, load_dataset
from dpdescent.accounting import gaussian_noise_multiplier
from dpdescent.curator import ArraySource, Curator, LatticeNoise
from dpdescent.estimators.scaling import ColumnScaling
from dpdescent.exact import FeatureGrid, blas_is_exact
from dpdescent.noise import Randomness
from dpdescent.problems import LinearProblem, Logistic
from dpdescent.solvers import OutPertSettings, outpert


def adult() -> tuple[np.ndarray, np.ndarray, FeatureGrid]:
    data = load_dataset("adult")
    X = np.asarray(data.X.toarray() if hasattr(data.X, "toarray") else data.X, dtype=np.float64)
    scaled = np.column_stack([ColumnScaling.from_bounds(data.bounds, X.shape[1]).apply(X), np.ones(X.shape[0])])
    grid = FeatureGrid(1.0, scaled.shape[1])
    return grid.place(scaled), np.where(np.asarray(data.y) == data.classes[1], 1.0, -1.0), grid


def open_minimum(X: np.ndarray, y: np.ndarray, strong_convexity: float, target: float) -> np.ndarray:
    """Minimise the sum of the logistic losses plus mu/2 |w|^2 by L-BFGS, until the gradient is as short as asked."""
    last = [math.inf]

    def function(w: np.ndarray) -> tuple[float, np.ndarray]:
        margins = y * (X @ w)
        gradient = strong_convexity * w - X.T @ (y * expit(-margins))
        last[0] = float(np.linalg.norm(gradient))
        unit = X.shape[0]
        return (np.logaddexp(0, -margins).sum() + strong_convexity / 2 * w @ w) / unit, gradient / unit

    def enough(_: np.ndarray) -> None:
        if last[0] <= target:
            raise StopIteration

    options = {"maxcor": 20, "gtol": 1e-14, "ftol": 1e-16, "maxiter": 1000}
    return minimize(
        function, np.zeros(X.shape[1]), jac=True, method="L-BFGS-B", options=options, callback=lambda x: enough(x)
    ).x


def time_adult(epsilon: float, repeats: int) -> dict[str, float]:
    X, y, grid = adult()
    rows = X.shape[0]
    problem = LinearProblem(Logistic(), grid)

    def private() -> np.ndarray:
        ledger = Ledger(epsilon, 1e-8, currency="gdp")
        curator = Curator(source, problem, ledger, rows, noise=LatticeNoise(Randomness(0)))
        return outpert(curator, settings).weights

    source = ArraySource(X, y, grid)
    length = float(np.sqrt(grid.squared_norms(X)).mean())
    bound = 0.5 * length
    strong_convexity = gaussian_noise_multiplier(epsilon, 1e-8) * bound * length / 0.6
    settings = OutPertSettings(row_bound=bound, strong_convexity=strong_convexity)
    short = X * np.minimum(1, bound / np.linalg.norm(X, axis=1))[:, None]
    tolerance = bound / strong_convexity / 256
    seconds = best_times(
        {"outpert": private, "open": lambda: open_minimum(short, y, strong_convexity, strong_convexity * tolerance)},
        repeats,
    )
    return seconds | {"ratio": seconds["outpert"] / seconds["open"], "epsilon": epsilon}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 1.6])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    blas_is_exact()
    times = [time_adult(epsilon, arguments.repeats) for epsilon in arguments.epsilon]
    for line in times:
        print(
            f"epsilon {line['epsilon']:g}: outpert {1e3 * line['outpert']:.0f} ms, L-BFGS without privacy "
            f"{1e3 * line['open']:.0f} ms"
        )
    record = {"adult": times}
    if arguments.json:
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    print(f"ratio_outpert: {max(line['ratio'] for line in times):.3f}")


if __name__ == "__main__":
    main()
