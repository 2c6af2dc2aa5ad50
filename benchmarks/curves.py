"""What curves for numbers gain: linear and additive models with privacy, and what there is without.

Adult, Bank and the census excerpts with numbers in their own units and public bounds; delta 1e-8; means and standard
errors over folds. Without privacy: logistic regression on the coded columns, and gradient boosting. The raw file of
Bank, bank_full.csv.gz, is read from $DPDESCENT_DATA. ``--dataset covertype`` (50,000 of its rows) and ``--dataset
ipums-br`` are tables that were not used when the rules were made.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from dpdescent import DPAdditiveClassifier, DPLogisticRegression, load_dataset
from dpdescent.tables import NumericColumn

EPSILONS = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
DELTA = 1e-8
MEASURES = ("accuracy", "auc", "log_loss")

# Ranges of the published bank-full.csv, as in the bank coding of the package.
BANK_NUMBERS = {
    "age": (18, 95),
    "balance": (-8019, 102_127),
    "day": (1, 31),
    "duration": (0, 4918),
    "campaign": (1, 63),
    "pdays": (-1, 871),
    "previous": (0, 275),
}


@dataclass(frozen=True)
class Table:
    """Rows in their own units, labels 0 and 1, bounds, and which columns are 0 or 1."""

    X: np.ndarray
    y: np.ndarray
    bounds: tuple[np.ndarray, np.ndarray]
    binary: np.ndarray


def packaged(name: str) -> Table:
    data = load_dataset(name)
    assert data.schema is not None
    assert data.binary_features is not None
    low, high = np.zeros(data.X.shape[1]), np.ones(data.X.shape[1])
    for column in data.schema.columns:
        if isinstance(column, NumericColumn):
            position = data.feature_names.index(column.name)
            low[position], high[position] = column.low, column.high
    y = (data.y == data.classes[1]).astype(int)
    return Table(low + (high - low) * data.X, y, (low, high), data.binary_features)


def bank() -> Table:
    raw = pd.read_csv(Path(os.environ["DPDESCENT_DATA"]) / "bank_full.csv.gz", sep=";")
    levels = pd.get_dummies(raw.drop(columns=[*BANK_NUMBERS, "y"]), dtype=float)
    X = np.hstack([raw[list(BANK_NUMBERS)].to_numpy(float), levels.to_numpy()])
    ends = [*BANK_NUMBERS.values(), *[(0, 1)] * levels.shape[1]]
    low, high = (np.array(end, dtype=float) for end in zip(*ends, strict=True))
    return Table(X, (raw["y"] == "yes").to_numpy(int), (low, high), np.arange(X.shape[1]) >= len(BANK_NUMBERS))


def coded(name: str, rows: int) -> Table:
    """Return some rows of a table whose columns lie between 0 and 1."""
    data = load_dataset(name)
    assert data.binary_features is not None
    chosen = np.random.default_rng(0).permutation(data.X.shape[0])[:rows]
    ends = np.zeros(data.X.shape[1]), np.ones(data.X.shape[1])
    return Table(data.X[chosen], (data.y[chosen] == data.classes[1]).astype(int), ends, data.binary_features)


TABLES: dict[str, Callable[[], Table]] = {
    "adult-raw": lambda: packaged("adult-raw"),
    "bank": bank,
    "acs-income": lambda: packaged("acs-income"),
}
OTHERS: dict[str, Callable[[], Table]] = {
    "covertype": lambda: coded("covertype", 50_000),
    "ipums-br": lambda: coded("ipums-br", 50_000),
}


def models(table: Table, epsilons: tuple[float, ...], seed: int) -> Iterator[tuple[str, float | None, Any]]:
    public = {"bounds": table.bounds, "binary_features": table.binary, "classes": (0, 1), "random_state": seed}
    for epsilon in epsilons:
        yield "linear", epsilon, DPLogisticRegression(epsilon, DELTA, **public)
        yield "additive", epsilon, DPAdditiveClassifier(epsilon, DELTA, **public)
    yield "linear, no privacy", None, make_pipeline(MinMaxScaler(), LogisticRegression(C=100, max_iter=2000))
    yield "boosting, no privacy", None, HistGradientBoostingClassifier(random_state=seed)


def measure(name: str, epsilons: tuple[float, ...], folds: int, of: int) -> Iterator[dict[str, Any]]:
    """Yield a row per fold and model."""
    table = (TABLES | OTHERS)[name]()
    splits = StratifiedKFold(of, shuffle=True, random_state=0).split(table.X, table.y)
    for fold, (train, test) in zip(range(folds), splits, strict=False):
        for model, epsilon, fitted in models(table, epsilons, fold):
            start = time.process_time()
            fitted.fit(table.X[train], table.y[train])
            seconds = time.process_time() - start
            chance = fitted.predict_proba(table.X[test])[:, 1]
            labels = table.y[test]
            found = (np.mean((chance > 0.5) == labels), roc_auc_score(labels, chance), log_loss(labels, chance))
            row = dict(zip(MEASURES, map(float, found), strict=True))
            columns = fitted.coef_.shape[1] if hasattr(fitted, "coef_") else table.X.shape[1]
            yield (
                {"dataset": name, "model": model, "epsilon": epsilon, "fold": fold, "seconds": seconds}
                | row
                | {"columns": columns}
            )


def summary(rows: pd.DataFrame) -> pd.DataFrame:
    """Return means and standard errors, and of additive minus linear models the same."""
    keys = ["dataset", "epsilon", "model"]
    groups = rows.groupby(keys, dropna=False, sort=False)
    table = groups[[*MEASURES, "seconds", "columns"]].mean()
    wide = rows.pivot(index=["dataset", "epsilon", "fold"], columns="model", values=list(MEASURES))
    for field in MEASURES:
        table[f"{field}_error"] = groups[field].sem()
        gains = (wide[field]["additive"] - wide[field]["linear"]).dropna().groupby(level=["dataset", "epsilon"])
        for (dataset, epsilon), gain in gains.mean().items():
            table.loc[(dataset, epsilon, "additive"), f"{field}_gain"] = gain
            table.loc[(dataset, epsilon, "additive"), f"{field}_gain_error"] = gains.sem()[dataset, epsilon]
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=TABLES | OTHERS, action="append", help="may be given several times")
    parser.add_argument("--folds", type=int, default=5, help="how many of the folds to run")
    parser.add_argument("--of", type=int, default=5, help="into how many folds the rows are split")
    parser.add_argument("--quick", action="store_true", help="two folds and the epsilons .1 and 1.6")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    arguments = parser.parse_args()

    epsilons, folds = ((0.1, 1.6), 2) if arguments.quick else (EPSILONS, arguments.folds)
    names = arguments.dataset or list(TABLES)
    rows = [row for name in names for row in measure(name, epsilons, folds, arguments.of)]
    table = summary(pd.DataFrame(rows))
    for (dataset, epsilon, model), row in table.iterrows():
        at = "" if np.isnan(epsilon) else f" epsilon {epsilon:g}"
        words = [f"{field} {row[field]:.4f} ({row[f'{field}_error']:.4f})" for field in MEASURES]
        if not np.isnan(row["accuracy_gain"]):
            gains = (f"{row[f'{field}_gain']:+.4f} ({row[f'{field}_gain_error']:.4f})" for field in MEASURES)
            words.append("gain " + " ".join(gains))
        print(f"{dataset}{at} {model}, {row['columns']:.0f} columns: {', '.join(words)}, {row['seconds']:.2f} s")
    if arguments.json:
        arguments.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
