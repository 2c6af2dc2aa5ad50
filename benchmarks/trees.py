"""What boosted trees gain: additive models and trees with privacy, and boosting without.

Tables are those of `benchmarks/curves.py`, Covertype (type 2 against the rest, 50,000 or 400,000 rows) and those of
$DPDESCENT_DATA/more with two classes or a number as the label; delta 1e-6; a random fifth of the rows, or 50,000 of
Covertype, is for testing. AUC and log-loss for classes, R2 for numbers; means over seeds, which draw rows and noise.
``--rivals PYTHON ...`` also runs DP-EBM and diffprivlib's forest, by environments that have them: the latter needs a
scikit-learn before 1.5.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier, HistGradientBoostingRegressor
from sklearn.metrics import log_loss, r2_score, roc_auc_score

from curves import coded, packaged
from dpdescent import (
    DPAdditiveClassifier,
    DPAdditiveRegressor,
    DPBoostedTreesClassifier,
    DPBoostedTreesRegressor,
    load_dataset,
)
from dpdescent.datasets.benchmark_tables import COVERTYPE_BOUNDS

DELTA = 1e-6
EPSILONS = (0.3, 1.0, 3.0)
MORE = ("magic", "credit_default", "law_school", "diamonds", "randhie", "german", "rwm5yr")
TABLES = ("covertype-50000", "covertype-400000", "adult-raw", "acs-income", "ipums-br", *MORE)


@dataclass(frozen=True)
class Table:
    """Rows with named columns, labels, and what is public of them."""

    X: pd.DataFrame
    y: np.ndarray
    public: dict[str, Any]
    test: int

    @property
    def numbers(self) -> bool:
        return "target_bounds" in self.public


def covertype(rows: int) -> Table:
    stored = np.load(Path(os.environ["DPDESCENT_DATA"]) / "covtype.npz")
    chosen = np.random.default_rng(0).permutation(len(stored["X"]))[: rows + 50_000]
    numbers = [name for name in COVERTYPE_BOUNDS if "_Area" not in name and "Soil" not in name]
    levels = range(stored["X"].shape[1] - len(numbers))
    names = [*numbers, *(f"area={each}" if each < 4 else f"soil={each}" for each in levels)]
    low, high = zip(*COVERTYPE_BOUNDS.values(), strict=True)
    public = {"bounds": (low, high), "binary_features": np.arange(len(names)) >= len(numbers), "classes": (0, 1)}
    X = pd.DataFrame(stored["X"][chosen].astype(float), columns=names)
    return Table(X, (stored["y"][chosen] == 2).astype(int), public, 50_000)


def more(name: str) -> Table:
    folder = Path(os.environ["DPDESCENT_DATA"]) / "more"
    known, raw = json.loads((folder / f"{name}.json").read_text()), pd.read_csv(folder / f"{name}.csv.gz")
    columns = {column: raw[column].fillna(low).astype(float) for column, (low, _) in known["num"].items()}
    for column, levels in known["levels"].items():
        columns |= {f"{column}={level}": (raw[column].astype(str) == str(level)).astype(float) for level in levels}
    binary = np.arange(len(columns)) >= len(known["num"])
    ends = [*known["num"].values(), *[(0, 1)] * int(binary.sum())]
    public = {"bounds": tuple(zip(*ends, strict=True)), "binary_features": binary}
    label = raw[known["label"]]
    if known["task"] == "class":
        public["classes"], y = (0, 1), (label == known["classes"][1]).to_numpy(int)
    else:
        public["target_bounds"], y = tuple(known["target_bounds"]), label.to_numpy(float)
    return Table(pd.DataFrame(columns), y, public, len(raw) // 5)


def table_named(name: str) -> Table:
    if name.startswith("covertype-"):
        return covertype(int(name.partition("-")[2]))
    if name in MORE:
        return more(name)
    found = coded(name, 50_000) if name == "ipums-br" else packaged(name)
    X = pd.DataFrame(found.X, columns=load_dataset(name).feature_names)
    public = {"bounds": found.bounds, "binary_features": found.binary, "classes": (0, 1)}
    return Table(X, found.y, public, len(X) // 5)


def models(table: Table, epsilons: tuple[float, ...], seed: int) -> Iterator[tuple[str, float | None, Any]]:
    additive, trees, open_model = DPAdditiveClassifier, DPBoostedTreesClassifier, HistGradientBoostingClassifier
    if table.numbers:
        additive, trees, open_model = DPAdditiveRegressor, DPBoostedTreesRegressor, HistGradientBoostingRegressor
    for epsilon in epsilons:
        yield "additive", epsilon, additive(epsilon, DELTA, random_state=seed, **table.public)
        yield "trees", epsilon, trees(epsilon, DELTA, random_state=seed, **table.public)
    yield "boosting, no privacy", None, open_model(random_state=seed)


def rivals(
    python: str, table: Table, train: np.ndarray, test: np.ndarray, epsilons: tuple[float, ...], seed: int
) -> list[dict[str, Any]]:
    """Return what other libraries predict for the rows to test."""
    binary = np.broadcast_to(table.public.get("binary_features", False), table.X.shape[1])
    bounds = [np.broadcast_to(end, table.X.shape[1]).tolist() for end in table.public["bounds"]]
    known = {"bounds": bounds, "binary": binary.tolist(), "epsilons": epsilons, "delta": DELTA, "seed": seed}
    if table.numbers:
        known["target"] = table.public["target_bounds"]
    with tempfile.TemporaryDirectory() as folder:
        for part, chosen in (("train", train), ("test", test)):
            table.X.iloc[chosen].to_csv(f"{folder}/{part}.csv", index=False)
        np.save(f"{folder}/y_train.npy", table.y[train])
        Path(folder, "public.json").write_text(json.dumps(known))
        script = Path(__file__).with_name("tree_rivals.py")
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        subprocess.run([python, str(script), folder], check=True, env=clean)
        found: list[dict[str, Any]] = json.loads(Path(folder, "found.json").read_text())
    return found


def scores(table: Table, truth: np.ndarray, predicted: np.ndarray) -> dict[str, float]:
    if table.numbers:
        return {"r2": r2_score(truth, predicted)}
    return {"auc": roc_auc_score(truth, predicted), "log_loss": log_loss(truth, predicted)}


def measure(name: str, epsilons: tuple[float, ...], seeds: int, pythons: Sequence[str]) -> Iterator[dict[str, Any]]:
    """Yield a row per seed and model."""
    table = table_named(name)
    for seed in range(seeds):
        order = np.random.default_rng(seed).permutation(len(table.y))
        train, test = order[: -table.test], order[-table.test :]
        for model, epsilon, made in models(table, epsilons, seed):
            start = time.perf_counter()
            made.fit(table.X.iloc[train], table.y[train])
            row = {"table": name, "model": model, "epsilon": epsilon, "seconds": time.perf_counter() - start}
            rows = table.X.iloc[test]
            predicted = made.predict(rows) if table.numbers else made.predict_proba(rows)[:, 1]
            yield row | scores(table, table.y[test], predicted)
        others = [rivals(python, table, train, test, epsilons, seed) for python in pythons]
        for each in (row for found in others for row in found):
            found = scores(table, table.y[test], np.array(each.pop("predicted")))
            yield {"table": name} | each | found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tables", nargs="*", help=f"some of {', '.join(TABLES)}; all but the largest by default")
    parser.add_argument("--epsilons", type=float, nargs="+", default=EPSILONS)
    parser.add_argument("--seeds", type=int, default=2)
    parser.add_argument("--rivals", nargs="+", default=(), metavar="PYTHON", help="of interpret-core or diffprivlib")
    asked = parser.parse_args()
    for name in asked.tables or [each for each in TABLES if each != "covertype-400000"]:
        rows = pd.DataFrame(measure(name, tuple(asked.epsilons), asked.seeds, asked.rivals))
        groups = rows.groupby(["table", "epsilon", "model"], dropna=False, sort=False)
        print(groups.mean().round(4).to_string(), flush=True)


if __name__ == "__main__":
    main()
