"""What bounds cost: public and tight, as generous as one likes, or none at all.

Numeric bounds of Adult, Bank and the census excerpt are widened around zero by a factor; AUC on rows that were held
out, mean and standard error over folds, delta 1e-8. "trusted" are tight bounds that are taken as they are, and the
distance to them is what a measurement costs or saves.

When given bounds are tightened is a rule of n mu and the number of columns that was made without looking at a table.
What counts as an end of a column was decided on counts of Adult, Bank, the census excerpts and KDD Cup 1999;
Covertype and IPUMS-BR (``--tables covertype,ipums-br``) were not used for it.

    python benchmarks/bounds.py [--tables adult-raw,bank] [--folds 3] [--methods auto] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import StratifiedKFold

from curves import DELTA, OTHERS, TABLES, Table
from dpdescent import DPLogisticRegression

EPSILONS = (0.2, 1.0)


def widened(table: Table, factor: float) -> tuple[np.ndarray, np.ndarray]:
    """Return the bounds with those of the numbers ``factor`` times as far from zero."""
    low, high = table.bounds
    reach = factor * np.maximum(np.abs(low), np.abs(high))
    return (
        np.where(table.binary, low, np.where(low < 0, -reach, 0.0)),
        np.where(table.binary, high, reach),
    )


def settings(table: Table) -> dict[str, dict[str, Any]]:
    generous = {f"{factor:g} times": {"bounds": widened(table, factor)} for factor in (10, 100, 1000)}
    tight = {"trusted": {"bounds": table.bounds, "tighten": False}, "tight": {"bounds": table.bounds}}
    return tight | generous | {"none": {"bounds": None}}


def measure(name: str, folds: int, methods: list[str]) -> Iterator[dict[str, Any]]:
    table = (TABLES | OTHERS)[name]()
    splits = StratifiedKFold(5, shuffle=True, random_state=0).split(table.X, table.y)
    for fold, (train, test) in zip(range(folds), splits, strict=False):
        for method in methods:
            for epsilon in EPSILONS:
                for kind, options in settings(table).items():
                    public = {"binary_features": table.binary, "classes": (0, 1), "random_state": fold}
                    model = DPLogisticRegression(epsilon, DELTA, method=method, **public, **options)
                    scores = model.fit(table.X[train], table.y[train]).decision_function(table.X[test])
                    auc = float(roc_auc_score(table.y[test], scores))
                    yield {"dataset": name, "method": method, "epsilon": epsilon, "bounds": kind, "auc": auc}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tables", default=",".join(TABLES))
    parser.add_argument("--folds", type=int, default=3)
    parser.add_argument("--methods", default="auto")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    rows = []
    for name in asked.tables.split(","):
        found = list(measure(name, asked.folds, asked.methods.split(",")))
        rows += found
        for method, epsilon in sorted({(row["method"], row["epsilon"]) for row in found}):
            chosen = [row for row in found if (row["method"], row["epsilon"]) == (method, epsilon)]
            cells = []
            for kind in dict.fromkeys(row["bounds"] for row in chosen):
                values = [row["auc"] for row in chosen if row["bounds"] == kind]
                error = np.std(values, ddof=1) / math.sqrt(len(values)) if len(values) > 1 else math.nan
                cells.append(f"{kind} {np.mean(values):.4f} ({error:.4f})")
            print(f"{name}, {method}, epsilon {epsilon:g}: " + ", ".join(cells), flush=True)
    if asked.json is not None:
        asked.json.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
