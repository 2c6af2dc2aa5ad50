"""Is `auto` ever worse than it should be? Every table that is found, all estimators, with and without public bounds.

A cell is a table, an epsilon, an estimator and what is said of its bounds. Its loss is the test log-loss of a
classification, 1 - R^2 of a regression, and the mean Poisson deviance of counts. It is compared with

- *prior*: the class frequencies, or the mean, of the training rows, which nobody could have without privacy;
- *linear*: the linear model with the same bounds, for additive models and robust ones;
- *less*: the same model that was told less, without any bounds;
- *other methods* (``--methods sgd,agd``), in the same estimator;
- *no privacy*: scikit-learn's linear model.

A cell is worse if its loss is larger by more than two standard errors of the difference over splits, and by 1%.
Tables are files NAME.csv.gz beside NAME.json, in $DPDESCENT_DATA/more and in ``--folder``, some tables of
scikit-learn, and made-up tables of awkward shapes::

    python benchmarks/fresh_tables.py                        # a few tables, two epsilons, three splits: minutes
    python benchmarks/fresh_tables.py --full --json all.json
    python benchmarks/fresh_tables.py --tables german,magic --epsilon 0.1,1 --splits 5 --verbose
"""

from __future__ import annotations

import argparse
import json
import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.datasets import load_diabetes, load_digits
from sklearn.linear_model import LinearRegression, LogisticRegression, PoissonRegressor
from sklearn.metrics import accuracy_score, log_loss, roc_auc_score
from sklearn.model_selection import ShuffleSplit
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from dpdescent import (
    DPAdditiveClassifier,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
)
from dpdescent.errors import DPDescentError

DELTA = 1e-6
EPSILONS = (0.05, 0.1, 0.3, 1.0, 3.0, 10.0)
DEVELOPMENT = ("german", "magic", "randhie", "diamonds")  # on which rules were chosen; the others were kept back
SLACK = 0.01


@dataclass(frozen=True)
class Table:
    """Rows in their own units, and what is public of them. ``task`` is "class", "reg" or "count"."""

    task: str
    X: np.ndarray
    y: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]
    binary: np.ndarray
    target_bounds: tuple[float, float] | None = None

    @property
    def classes(self) -> np.ndarray:
        return np.arange(int(self.y.max()) + 1)


def described(path: Path) -> Table:
    """Return a table from its description: levels become 0/1 columns, missing numbers the middle of the bounds."""
    told = json.loads(path.read_text())
    raw = pd.read_csv(path.with_suffix(".csv.gz"))
    numbers, levels = told["num"], told["levels"]
    columns = [raw[name].astype(float).fillna(sum(ends) / 2).to_numpy() for name, ends in numbers.items()]
    for name, known in levels.items():
        cells = raw[name].astype(str)
        cells = cells if cells.isin(known).any() else raw[name].astype(float).astype(str)
        columns += [(cells == level).to_numpy(float) for level in known]
    width = sum(map(len, levels.values()))
    ends = np.array([*numbers.values(), *[(0, 1)] * width], dtype=float).T
    binary = np.arange(len(columns)) >= len(numbers)
    labels = raw[told["label"]]
    if told["task"] == "class":
        y = np.searchsorted(np.sort(np.asarray(told["classes"])), labels.to_numpy()).astype(float)
    else:
        y = labels.to_numpy(float)
    target = tuple(told["target_bounds"]) if told["target_bounds"] else None
    return Table(told["task"], np.column_stack(columns), y, (ends[0], ends[1]), binary, target)


def _made(task: str, X: np.ndarray, y: np.ndarray, reach: float, target: tuple[float, float] | None = None) -> Table:
    binary = np.isin(X, (0, 1)).all(axis=0)
    low, high = np.where(binary, 0.0, -reach), np.where(binary, 1.0, reach)
    return Table(task, X, y, (low, high), binary, target)


def rare_class(share: float, rows: int) -> Table:
    """Return a linear truth with a rare class."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(rows, 8))
    scores = X @ np.array([1.0, -0.8, 0.6, 0.4, 0, 0, 0, 0]) + generator.logistic(size=rows)
    return _made("class", X, (scores > np.quantile(scores, 1 - share)).astype(float), 8.0)


def noise_columns(columns: int) -> Table:
    """Return three columns that matter among many that do not."""
    generator = np.random.default_rng(2)
    X = generator.normal(size=(20_000, columns))
    chance = 1 / (1 + np.exp(2 - X[:, :3] @ np.array([1.0, -1.0, 0.5])))
    return _made("class", X, (generator.random(20_000) < chance).astype(float), 8.0)


def many_levels() -> Table:
    """Return a category of 300 levels, few of which matter, and one number."""
    generator = np.random.default_rng(3)
    level, number = generator.zipf(1.4, 20_000) % 300, generator.normal(size=20_000)
    effect = generator.normal(size=300) * (generator.random(300) < 0.1)
    chance = 1 / (1 + np.exp(1 - number - effect[level]))
    X = np.column_stack([number, np.eye(300)[level]])
    return _made("class", X, (generator.random(20_000) < chance).astype(float), 8.0)


def correlated() -> Table:
    """Return ten columns of which any two have a correlation of .95."""
    generator = np.random.default_rng(4)
    X = math.sqrt(0.95) * generator.normal(size=(10_000, 1)) + math.sqrt(0.05) * generator.normal(size=(10_000, 10))
    y = X @ np.linspace(-1, 1, 10) + generator.normal(size=10_000)
    return _made("reg", X, y, 8.0, (-20.0, 20.0))


def heavy_target() -> Table:
    """Return a target whose largest values are a thousand times its median."""
    generator = np.random.default_rng(5)
    X = generator.normal(size=(20_000, 5))
    y = np.exp(X @ np.array([0.6, -0.4, 0.3, 0, 0]) + 1.2 * generator.normal(size=20_000) + 3)
    return _made("reg", X, y, 8.0, (0.0, 1e5))


def gaussian_linear() -> Table:
    """Return a linear truth with residuals much smaller than the range of the target."""
    generator = np.random.default_rng(6)
    X = np.clip(generator.normal(size=(5000, 5)), -4, 4)
    y = X @ np.array([1.0, -0.5, 0.25, 0, 0.5]) + 0.5 * generator.normal(size=5000)
    return _made("reg", X, y, 4.0, (-10.0, 10.0))


def few_counts(highest: float) -> Table:
    """Return counts up to about 70 with bounds as generous as one likes."""
    generator = np.random.default_rng(7)
    X = generator.normal(size=(15_000, 4))
    y = generator.poisson(np.exp(np.clip(X @ np.array([0.7, -0.5, 0.3, 0]) + 1, -4, 4))).astype(float)
    return _made("count", X, y, 8.0, (0.0, highest))


def blobs(classes: int, rows: int) -> Table:
    """Return many classes around random centres."""
    generator = np.random.default_rng(8)
    centres = generator.normal(size=(classes, 16))
    y = generator.integers(classes, size=rows)
    X = centres[y] + generator.normal(size=(rows, 16))
    return _made("class", X, y.astype(float), 8.0)


def packaged(loaded: Any, task: str) -> Table:
    X, y = loaded(return_X_y=True)
    low, high = X.min(axis=0), X.max(axis=0)  # published beside these tables
    ends = np.where(high > low, low, low - 1), high
    binary = np.zeros(X.shape[1], dtype=bool)
    return Table(task, X, y.astype(float), ends, binary, (0.0, 400.0) if task == "reg" else None)


SHAPES: dict[str, Callable[[], Table]] = {
    "rare 3%": partial(rare_class, 0.03, 48_000),
    "rare .8%": partial(rare_class, 0.008, 48_000),
    "200 columns of noise": partial(noise_columns, 203),
    "300 levels": many_levels,
    "correlated": correlated,
    "heavy target": heavy_target,
    "gaussian linear": gaussian_linear,
    "counts to 100": partial(few_counts, 100.0),
    "counts to 10000": partial(few_counts, 10_000.0),
    "26 classes": partial(blobs, 26, 20_000),
    "100 classes": partial(blobs, 100, 40_000),
    "digits": partial(packaged, load_digits, "class"),
    "diabetes": partial(packaged, load_diabetes, "reg"),
}


def every_table(folders: list[Path]) -> dict[str, Callable[[], Table]]:
    found = {path.stem: partial(described, path) for folder in folders for path in sorted(folder.glob("*.json"))}
    return found | SHAPES


def estimators(table: Table) -> dict[str, Any]:
    if table.task == "class":
        return {"linear": DPLogisticRegression, "additive": DPAdditiveClassifier}
    if table.task == "reg":
        return {"linear": DPLinearRegression, "additive": DPAdditiveRegressor, "huber": DPHuberRegressor}
    return {"linear": DPPoissonRegressor, "additive": DPAdditivePoissonRegressor}


def made(table: Table, kind: Any, epsilon: float, told: str, method: str, seed: int) -> Any:
    public: dict[str, Any] = {"binary_features": table.binary, "random_state": seed, "method": method}
    if table.task == "class":
        public["classes"] = table.classes
    elif told == "bounds":
        public["target_bounds"] = table.target_bounds
    if told == "bounds":
        public["bounds"] = table.bounds
    return kind(epsilon, DELTA, **public)


def without_privacy(table: Table) -> Any:
    if table.task == "class":
        return make_pipeline(MinMaxScaler(), LogisticRegression(C=1000, max_iter=1000))
    if table.task == "reg":
        return LinearRegression()
    return make_pipeline(MinMaxScaler(), PoissonRegressor(alpha=1e-6, max_iter=1000))


def measures(table: Table, predicted: np.ndarray, train: np.ndarray, test: np.ndarray) -> dict[str, float]:
    """Return the loss, and what else is usual. Chances are predicted for classes, and means otherwise."""
    y = table.y[test]
    if table.task == "class":
        found = {"loss": float(log_loss(y, predicted, labels=table.classes))}
        best = predicted.argmax(axis=1)
        found["accuracy"] = float(accuracy_score(y, best))
        found["overconfidence"] = float(predicted.max(axis=1).mean()) - found["accuracy"]
        if table.classes.size == 2 and np.ptp(predicted[:, 1]):
            found["auc"] = float(roc_auc_score(y, predicted[:, 1]))
        return found
    if table.task == "reg":
        rest = float(np.mean((y - predicted) ** 2) / np.mean((y - table.y[train].mean()) ** 2))
        return {"loss": rest}
    means = np.maximum(predicted, 1e-9)
    terms = np.where(y > 0, y * np.log(np.maximum(y, 1e-9) / means), 0.0) - y + means
    return {"loss": float(2 * terms.mean())}


def prior(table: Table, train: np.ndarray, test: np.ndarray) -> np.ndarray:
    y = table.y[train]
    if table.task == "class":
        counts = np.bincount(y.astype(int), minlength=table.classes.size) + 0.5
        return np.tile(counts / counts.sum(), (test.size, 1))
    return np.full(test.size, y.mean())


def predict(table: Table, model: Any, X: np.ndarray) -> np.ndarray:
    return np.asarray(model.predict_proba(X) if table.task == "class" else model.predict(X))


def fits(name: str, table: Table, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield a row for each split and model."""
    splits = ShuffleSplit(asked.splits, test_size=0.25, random_state=0)
    for seed, (train, test) in enumerate(splits.split(table.X)):
        plain = {"table": name, "split": seed, "epsilon": None, "told": None, "method": None}
        yield plain | {"model": "prior"} | measures(table, prior(table, train, test), train, test)
        open_model = without_privacy(table).fit(table.X[train], table.y[train])
        known = predict(table, open_model, table.X[test])
        yield plain | {"model": "no privacy"} | measures(table, known, train, test)
        for epsilon in asked.epsilon:
            for method in asked.methods:
                for model, kind in estimators(table).items():
                    for told in ("bounds", "nothing"):
                        fitted = made(table, kind, epsilon, told, method, seed)
                        where = {"table": name, "split": seed, "epsilon": epsilon, "told": told, "method": method}
                        try:
                            fitted.fit(table.X[train], table.y[train])
                        except DPDescentError as refusal:
                            print(f"{name}, {model}, {method}, {epsilon:g}, {told}: {refusal}")
                            continue
                        yield (
                            where
                            | {"model": model}
                            | measures(table, predict(table, fitted, table.X[test]), train, test)
                        )


def compared(rows: pd.DataFrame) -> Iterator[dict[str, Any]]:
    """Yield for each cell of `auto` its mean loss, and its distance to each rival with the standard error of that."""
    keys = ["table", "model", "epsilon", "told"]
    for (name, model, epsilon, told), cell in rows[rows["method"] == "auto"].groupby(keys, sort=False):
        own = cell.set_index("split")["loss"]
        rivals = {"prior": (name, "prior", np.nan, np.nan, np.nan)}
        if model != "linear":
            rivals["linear"] = (name, "linear", epsilon, told, "auto")
        if told == "bounds":
            rivals["less"] = (name, model, epsilon, "nothing", "auto")
        others = rows[(rows["table"] == name) & (rows["model"] == model)]["method"].unique()
        rivals |= {each: (name, model, epsilon, told, each) for each in others if each != "auto"}
        rivals["no privacy"] = (name, "no privacy", np.nan, np.nan, np.nan)
        for rival, key in rivals.items():
            chosen = rows[_matches(rows, key)].set_index("split")["loss"]
            gap = (own - chosen).dropna()
            if not gap.size:
                continue
            error = float(gap.sem()) if gap.size > 1 else math.nan
            scale = float(chosen.mean())
            beyond = float(gap.mean()) - 2 * (0.0 if math.isnan(error) else error) - SLACK * abs(scale)
            yield dict(zip(keys, (name, model, epsilon, told), strict=True)) | {
                "rival": rival,
                "loss": float(own.mean()),
                "theirs": scale,
                "gap": float(gap.mean()),
                "error": error,
                "worse": beyond > 0,
                "better": float(gap.mean()) < 0,
                "size": beyond / max(abs(scale), 1e-9),
            }


def _matches(rows: pd.DataFrame, key: tuple[Any, ...]) -> pd.Series:
    name, model, epsilon, told, method = key
    found = (rows["table"] == name) & (rows["model"] == model)
    if isinstance(told, str):
        found &= (rows["epsilon"] == epsilon) & (rows["told"] == told) & (rows["method"] == method)
    return found


def print_cells(rows: list[dict[str, Any]], worst: int, verbose: bool) -> None:
    """Print how often each rival is better, and the worst cells."""
    cells = pd.DataFrame(compared(pd.DataFrame(rows)))
    pd.set_option("display.width", 200, "display.max_rows", 10_000)
    if verbose:
        print(cells.drop(columns=["better", "size"]).to_string(index=False, float_format="%.4f"))
    for rival, theirs in cells.groupby("rival", sort=False):
        wins, worse = int(theirs["better"].sum()), int(theirs["worse"].sum())
        print(f"against {rival}: {len(theirs)} cells, better in {wins}, worse beyond noise and 1% in {worse}")
    bad = cells[cells["worse"] & (cells["rival"] != "no privacy")].sort_values("size", ascending=False)
    print("worst cells:" if len(bad) else "no cell is worse than a rival with privacy, or the prior")
    for each in bad.head(worst).to_dict("records"):
        print(
            f"  {each['table']}, {each['model']}, epsilon {each['epsilon']:g}, told {each['told']}: "
            f"{each['loss']:.4f}, {each['rival']} {each['theirs']:.4f}, "
            f"difference {each['gap']:.4f} ({each['error']:.4f})"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--full", action="store_true", help="all tables, six epsilons, five splits")
    parser.add_argument("--tables", help="names, separated by commas; 'shapes' are all that are made up")
    parser.add_argument("--folder", type=Path, action="append", default=[], help="more files NAME.json")
    parser.add_argument("--epsilon", help="numbers, separated by commas")
    parser.add_argument("--splits", type=int)
    parser.add_argument("--methods", default="auto", help="auto is compared with the others")
    parser.add_argument("--worst", type=int, default=12, help="how many of the worst cells are printed")
    parser.add_argument("--verbose", action="store_true", help="print every cell")
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.methods = asked.methods.split(",")
    asked.epsilon = [float(each) for each in asked.epsilon.split(",")] if asked.epsilon else None
    asked.epsilon = asked.epsilon or (EPSILONS if asked.full else (0.1, 1.0))
    asked.splits = asked.splits or (5 if asked.full else 3)
    warnings.simplefilter("ignore")
    shared = Path(os.environ.get("DPDESCENT_DATA", "")) / "more"
    known = every_table([shared, *asked.folder])
    quick = [name for name in (*DEVELOPMENT, *SHAPES) if name in known]
    chosen = list(known) if asked.full else quick
    if asked.tables:
        chosen = [each for name in asked.tables.split(",") for each in (SHAPES if name == "shapes" else [name])]
    rows: list[dict[str, Any]] = []
    for name in chosen:
        rows += fits(name, known[name](), asked)
        print(f"{name}: done", flush=True)
        if asked.json is not None:
            asked.json.write_text(json.dumps(rows, indent=1) + "\n")
    print_cells(rows, asked.worst, asked.verbose)


if __name__ == "__main__":
    main()
