"""Do two checkouts train the same models to the last bit? Digests of every method at a fixed seed.

Record a table with one checkout and compare another with it::

    python benchmarks/digests.py --write before.json
    python benchmarks/digests.py --check before.json

A digest covers the coefficients, the intercept and what was spent on each kind of query. Digests depend on the
processor and its numerical libraries, so both tables must come from one machine.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
from scipy import sparse

from dpdescent import DPLinearRegression, DPLinearSVC, DPLogisticRegression
from dpdescent.errors import DPDescentError
from dpdescent.problems import Adversary
from dpdescent.solvers import METHODS

OPTIONS: dict[str, list[dict[str, Any]]] = {
    "agd": [{"paper": True}, {"batch_rate": 0.3}],
    "auto": [{"batch_rate": 0.3}, {"whitening": False}],
    "blsgd": [{"paper": True}, {"sampling_rate": 0.5, "same_batch": True}, {"sampling_rate": 0.4}],
    "blgd": [{"paper": True}],
    "outpert-gd": [{"paper": True}],
    "privgene": [{"paper": True, "batch_rate": 0.3}],
    "sgd": [{"sampling_rate": 0.2, "steps": 20}, {"paper": True, "steps": 20}],
    "sgd-adv": [{"paper": True}],
    "adam": [{"sampling_rate": 0.2, "steps": 20}],
    "opt-b": [{"same_batch": True}],
    "opt-ls": [{"start_scale": 0.1}],
    "outpert": [{"pure": True}, {"minimiser": "agd"}, {"radius": 2.0}, {"paper": True}],
    "objpert": [{"pure": True}, {"paper": True}],
    "expmech": [{"localise": True}],
}


def cases() -> list[tuple[str, Any, np.ndarray, np.ndarray]]:
    generator = np.random.default_rng(7)
    X = np.clip(generator.normal(0.3, 0.4, (600, 5)), -1, 1)
    X[:, 3:] = X[:, 3:] > 0.4
    scores = X @ np.array([2.0, -1.0, 0.5, 1.0, -1.5]) + 0.2 * generator.normal(size=600)
    signs, thirds = (scores > 0.2).astype(int), np.digitize(scores, [-0.3, 0.6])
    rare = sparse.csr_array(X * (generator.random(X.shape) < 0.3))
    models = [
        ("logistic", DPLogisticRegression(classes=(0, 1)), X, signs),
        ("logistic, sparse", DPLogisticRegression(classes=(0, 1)), rare, signs),
        ("logistic, no intercept", DPLogisticRegression(classes=(0, 1), fit_intercept=False), X, signs),
        ("logistic, alpha", DPLogisticRegression(classes=(0, 1), alpha=0.01), X, signs),
        ("multinomial", DPLogisticRegression(classes=(0, 1, 2)), X, thirds),
        ("huberised hinge", DPLinearSVC(classes=(0, 1)), X, signs),
        ("hinge", DPLinearSVC(classes=(0, 1), loss="hinge"), X, signs),
        ("squared", DPLinearRegression(target_bounds=(-3, 3)), X, scores),
    ]
    tilted = DPLogisticRegression(classes=(0, 1), method="outpert", tilt=0.5)
    attacked = DPLogisticRegression(classes=(0, 1), method="outpert", adversary=Adversary(0.1))
    attacked_report = attacked.__class__(**attacked.get_params() | {"solver_options": {"risk_share": 0.1}})
    robust = [("tilted", tilted), ("attacked", attacked), ("attacked, report", attacked_report)]
    found = []
    for adjacency in ("zero-out", "replace-one"):
        for name, model, rows, labels in models:
            few = rows[:, :2] if not sparse.issparse(rows) else rows
            for method in METHODS:
                table = few if method == "expmech" else rows
                for options in [{}, *OPTIONS.get(method, [])]:
                    label = f"{method} {json.dumps(options)} {name} {adjacency}"
                    settings = {"method": method, "adjacency": adjacency, "solver_options": options}
                    found.append((label, model.__class__(**model.get_params() | settings), table, labels))
        for name, model in robust:
            found.append(
                (f"{name} {adjacency}", model.__class__(**model.get_params() | {"adjacency": adjacency}), X, signs)
            )
    return found


def digest(model: Any, X: Any, y: np.ndarray) -> str:
    model.set_params(epsilon=2.0, delta=1e-5, bounds=(-1.0, 1.0), tighten=False, random_state=11)
    try:
        model.fit(X, y)
    except DPDescentError as refusal:  # anything else is a fault, which two checkouts may share
        return type(refusal).__name__
    spent = json.dumps([model.privacy_["asked"], model.privacy_["spent_on"], model.privacy_["remarks"]])
    content = np.asarray(model.coef_).tobytes() + np.asarray(model.intercept_).tobytes() + spent.encode()
    return hashlib.sha256(content).hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", type=Path)
    parser.add_argument("--check", type=Path)
    parser.add_argument("--only", default="", help="only cases whose name begins with this")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    table = {name: digest(model, X, y) for name, model, X, y in cases() if name.startswith(arguments.only)}
    if arguments.write:
        arguments.write.write_text(json.dumps(table, indent=1) + "\n")
    if arguments.check:
        before = json.loads(arguments.check.read_text())
        other = [name for name in table if table[name] != before.get(name)]
        for name in other:
            print(f"{name}: {before.get(name)} -> {table[name]}")
        print(f"{len(table) - len(other)} of {len(table)} models are the same to the last bit")
        sys.exit(bool(other))


if __name__ == "__main__":
    main()
