"""How well `auto` learns where privacy leaves few rows, beside the methods that a user could pick instead.

Test log-loss, accuracy and area under the curve for n mu effective rows, 8,000 rows to learn from (delta 1e-6), and
accuracy on scikit-learn's own tables for several epsilons (delta 1e-5, 5 folds). Means, with standard errors.
With ``--no-bounds`` the bounds of these are measured instead of given. ``--json FILE`` writes all of them.
"""

from __future__ import annotations

import argparse
import json
import warnings
from pathlib import Path

import numpy as np
from scipy.optimize import brentq
from sklearn import datasets
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import KFold

from dpdescent import DPLogisticRegression, list_datasets, load_dataset
from dpdescent.accounting import epsilon_to_gdp

ROWS, TEST_ROWS = 8000, 20_000
TABLES = "adult,adult-raw,kddcup99,covertype,ijcnn1,bank,acs-income,ipums-br"
METHODS = "auto,sgd,agd,majority"


def epsilon_for(effective_rows: float, delta: float) -> float:
    """Return the epsilon at which n mu is so large, with the rows of this benchmark."""
    excess = lambda power: epsilon_to_gdp(10.0**power, delta) * ROWS - effective_rows  # noqa: E731
    return float(10.0 ** brentq(excess, -6, 3))


def scores(fitted: DPLogisticRegression, X: np.ndarray, y: np.ndarray) -> list[float]:
    probabilities = fitted.predict_proba(X)
    area = roc_auc_score(y == fitted.classes_[1], probabilities[:, 1]) if len(fitted.classes_) == 2 else np.nan
    return [log_loss(y, probabilities, labels=fitted.classes_), fitted.score(X, y), area]


def summary(found: list[list[float]]) -> dict[str, list[float]]:
    values = np.array(found)
    return {"mean": values.mean(0).tolist(), "error": (values.std(0) / np.sqrt(len(values))).tolist()}


def large_table(
    name: str, counts: list[float], methods: list[str], repeats: int
) -> dict[str, dict[str, list[float]]]:
    data = load_dataset(name)
    order = np.random.default_rng(1).permutation(len(data.y))[: ROWS + TEST_ROWS]
    X, y = data.X[order], data.y[order]
    results = {}
    for rows in counts:
        for method in methods:
            found = []
            for seed in range(repeats):
                model = DPLogisticRegression(
                    epsilon_for(rows, 1e-6),
                    1e-6,
                    method=method,
                    bounds=data.bounds,
                    binary_features=data.binary_features,
                    classes=data.classes,
                    random_state=seed,
                )
                found.append(scores(model.fit(X[:ROWS], y[:ROWS]), X[ROWS:], y[ROWS:]))
            results[f"{name} {rows:g} {method}"] = summary(found)
        line = "  ".join(
            f"{method} {'/'.join(f'{m:.3f}' for m in results[f'{name} {rows:g} {method}']['mean'])}"
            for method in methods
        )
        print(f"{name:11s} n mu {rows:4g}  {line}", flush=True)
    return results


def small_table(name: str, methods: list[str], repeats: int, known: bool) -> dict[str, dict[str, list[float]]]:
    X, y = getattr(datasets, f"load_{name}")(return_X_y=True)
    bounds = (X.min(0), np.maximum(X.max(0), X.min(0) + 1)) if known else None
    results = {}
    for epsilon in (0.5, 1.0, 3.0, 10.0):
        for method in methods:
            found = []
            for seed in range(repeats):
                for fold, (train, test) in enumerate(KFold(5, shuffle=True, random_state=seed).split(X)):
                    options = {"bounds": bounds, "classes": np.unique(y), "random_state": 10 * seed + fold}
                    model = DPLogisticRegression(epsilon, 1e-5, method=method, **options)
                    found.append(scores(model.fit(X[train], y[train]), X[test], y[test]))
            results[f"{name} {epsilon:g} {method}"] = summary(found)
        line = "  ".join(
            f"{method} {'/'.join(f'{m:.3f}' for m in results[f'{name} {epsilon:g} {method}']['mean'][:2])}"
            for method in methods
        )
        print(f"{name:13s} epsilon {epsilon:4g}  {line}", flush=True)
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=TABLES)
    parser.add_argument("--small", default="iris,wine,breast_cancer,digits")
    parser.add_argument("--methods", default=METHODS)
    parser.add_argument("--effective-rows", default="20,45,70,100,150,200,300")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--no-bounds", action="store_true", help="measure the bounds of scikit-learn's tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")

    methods = arguments.methods.split(",")
    at_hand = {info.name for info in list_datasets() if info.location is not None}
    results = {}
    for name in filter(None, arguments.tables.split(",")):
        if name not in at_hand:
            print(f"{name}: not on this machine, left out")
            continue
        counts = [float(rows) for rows in arguments.effective_rows.split(",")]
        results |= large_table(name, counts, methods, arguments.repeats)
    for name in filter(None, arguments.small.split(",")):
        results |= small_table(name, methods, max(1, arguments.repeats // 2), not arguments.no_bounds)
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
