"""Accuracy and objective of a private logistic regression over epsilon: k-fold cross-validation, default settings.

The last line is the ratio of its accuracy at the largest epsilon to that of a regression without privacy.
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import KFold

from dpdescent import DPLogisticRegression, list_datasets, load_dataset


def objective(model: object, X: np.ndarray, y: np.ndarray, positive: object) -> float:
    margins = np.where(y == positive, 1, -1) * model.decision_function(X)  # type: ignore[attr-defined]
    return float(np.logaddexp(0, -margins).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", help="default: adult, or synthetic where adult is not on this machine")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.05, 0.1, 0.2, 0.4, 0.8, 1.6])
    parser.add_argument("--delta", type=float, default=1e-8)
    parser.add_argument("--adjacency", default="zero-out")
    parser.add_argument("--folds", type=int, default=5)
    parser.add_argument("--paper", action="store_true", help="the paper's settings of DP-AGD")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    if arguments.dataset is not None:
        data = load_dataset(arguments.dataset)
    else:
        at_hand = {info.name for info in list_datasets() if info.location is not None}
        data = load_dataset("adult" if "adult" in at_hand else "synthetic")
    folds = list(KFold(arguments.folds, shuffle=True, random_state=0).split(data.X))
    plain = [LogisticRegression(C=np.inf, max_iter=1000).fit(data.X[a], data.y[a]) for a, _ in folds]
    top = np.mean([m.score(data.X[b], data.y[b]) for m, (_, b) in zip(plain, folds, strict=True)])
    least = np.mean(
        [objective(m, data.X[a], data.y[a], data.classes[1]) for m, (a, _) in zip(plain, folds, strict=True)]
    )
    print(f"{data.name}, {data.X.shape[0]} x {data.X.shape[1]}, {arguments.method}, delta {arguments.delta:g}")
    print("  epsilon   accuracy        objective  iterations  seconds")
    rows = []
    for epsilon in arguments.epsilon:
        scores, objectives, iterations, start = [], [], [], time.perf_counter()
        for seed, (train, test) in enumerate(folds):
            model = DPLogisticRegression(
                epsilon,
                arguments.delta,
                method=arguments.method,
                adjacency=arguments.adjacency,
                bounds=data.bounds,
                binary_features=data.binary_features,
                classes=data.classes,
                random_state=seed,
                solver_options={"paper": True} if arguments.paper else None,
            ).fit(data.X[train], data.y[train])
            scores.append(model.score(data.X[test], data.y[test]))
            objectives.append(objective(model, data.X[train], data.y[train], data.classes[1]))
            iterations.append(model.n_iter_)
        row = {
            "epsilon": epsilon,
            "accuracy": float(np.mean(scores)),
            "accuracy_sd": float(np.std(scores)),
            "objective": float(np.mean(objectives)),
            "iterations": float(np.mean(iterations)),
            "seconds": (time.perf_counter() - start) / len(folds),
        }
        rows.append(row)
        print(
            f"  {epsilon:7g}   {row['accuracy']:.4f} ± {row['accuracy_sd']:.4f} {row['objective']:10.4f} "
            f"{row['iterations']:11.0f} {row['seconds']:8.2f}"
        )
    print(f"  no privacy {top:.4f} {least:19.4f}")
    ratio = rows[-1]["accuracy"] / top
    if arguments.json:
        record = {"dataset": data.name, "nonprivate": {"accuracy": top, "objective": least}, "rows": rows}
        arguments.json.write_text(json.dumps(record | {"ratio_accuracy": ratio}, indent=2) + "\n")
    print(f"ratio_accuracy: {ratio:.4f}")


if __name__ == "__main__":
    main()
