"""What pairs of columns would add to an additive model, if a part of the budget chose them.

Pairs are cells of two columns: levels, and thirds of numbers. "known" chooses the eight pairs whose cells explain
most of the residuals, without paying for it. "chosen" does so with noise on every sum of residuals in a cell, as a
tenth of the budget would pay for, and fits with the rest. This is a favourable case: the residuals are those of an
additive model with two fifths of the budget, and "chosen, residuals paid" takes these away too, but the ends of
thirds and the curvature in each cell are read from the rows. Test accuracy, AUC and log-loss; delta 1e-8.
"""

from __future__ import annotations

import argparse
import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
from sklearn.metrics import log_loss, roc_auc_score
from sklearn.model_selection import StratifiedKFold

from curves import DELTA, OTHERS, TABLES, Table
from dpdescent import DPAdditiveClassifier
from dpdescent.accounting import epsilon_to_gdp, gdp_to_epsilon

PAIRS, SURE = 8, 3.0  # how many are chosen at most, of those that are so many deviations above nothing
FEWEST = 20  # of curvature in a cell, p (1 - p) summed over its rows
FIRST, CHOICE = 0.4, 0.1  # of the budget, for the residuals and for the choice


def part(epsilon: float, share: float) -> float:
    """Return the epsilon that a share of the budget of Gaussian privacy pays for."""
    return float(gdp_to_epsilon(epsilon_to_gdp(epsilon, DELTA) * np.sqrt(share), DELTA))


def coded(table: Table, train: np.ndarray) -> list[np.ndarray]:
    """Return the level of every row in each column."""
    codes = []
    for column, binary in zip(table.X.T, table.binary, strict=True):
        ends = [0.5] if binary else np.unique(np.quantile(column[train], [1 / 3, 2 / 3]))
        codes.append(np.searchsorted(ends, column, side="left"))
    return codes


def cells_of(first: np.ndarray, second: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the cell of every row, and which cells are new: both levels of a 0/1 column need one weight only."""
    wide = int(second.max()) + 1
    levels = np.arange((int(first.max()) + 1) * wide)
    new = np.ones(levels.size, dtype=bool)
    if first.max() == 1:
        new &= levels // wide == 1
    if wide == 2:
        new &= levels % wide == 1
    return first * wide + second, new


def choose(
    codes: list[np.ndarray], train: np.ndarray, residuals: np.ndarray, curvatures: np.ndarray, noise: float
) -> list[np.ndarray]:
    """Return a column for each cell of the best pairs."""
    generator = np.random.default_rng(0)
    found = []
    for pair in itertools.combinations(range(len(codes)), 2):
        cells, new = cells_of(*(codes[column] for column in pair))
        curvature = np.bincount(cells[train], curvatures, new.size)
        new &= curvature > FEWEST
        if new.any():
            sums = np.bincount(cells[train], residuals, new.size) + noise * generator.normal(size=new.size)
            spread = (noise**2 + curvature[new]) / curvature[new]
            excess = float((sums[new] ** 2 / curvature[new] - spread).sum())
            found.append((excess / np.sqrt(2 * (spread**2).sum()), cells, new))
    found.sort(key=lambda each: -each[0])
    return [
        cells == cell for sure, cells, new in found[:PAIRS] if sure > SURE for cell in np.flatnonzero(new).tolist()
    ]


def models(table: Table, train: np.ndarray, epsilon: float, seed: int) -> Iterator[tuple[str, Table, Any]]:
    """Yield names, tables with the cells of pairs, and models that are yet to be fitted."""

    def model(epsilon: float, own: Table) -> DPAdditiveClassifier:
        return DPAdditiveClassifier(
            epsilon, DELTA, bounds=own.bounds, binary_features=own.binary, classes=(0, 1), random_state=seed
        )

    yield "additive", table, model(epsilon, table)
    first = model(part(epsilon, FIRST), table).fit(table.X[train], table.y[train])
    chance = first.predict_proba(table.X[train])[:, 1]
    codes = coded(table, train)
    ones = sum((code > 0) if binary else 1 for code, binary in zip(codes, table.binary, strict=True))
    longest = float(np.quantile(np.asarray(ones)[train], 0.95))  # columns that are not 0; a row is in a cell per pair
    noise = np.sqrt(longest * (longest - 1) / 2) / (epsilon_to_gdp(epsilon, DELTA) * np.sqrt(CHOICE))
    for name, scale, rest in (("known", 0.0, (1.0,)), ("chosen", noise, (1 - CHOICE, 1 - CHOICE - FIRST))):
        cells = choose(codes, train, table.y[train] - chance, chance * (1 - chance), scale)
        added = np.array(cells, dtype=float).reshape(len(cells), table.y.size).T
        low, high = (np.append(end, np.full(len(cells), at)) for end, at in zip(table.bounds, (0, 1), strict=True))
        binary = np.append(table.binary, np.ones(len(cells), dtype=bool))
        wider = Table(np.hstack([table.X, added]), table.y, (low, high), binary)
        for label, share in zip((name, f"{name}, residuals paid"), rest, strict=False):
            yield label, wider, model(part(epsilon, share), wider)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dataset", choices=TABLES | OTHERS, action="append", help="may be given several times")
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.4, 0.8, 1.6])
    parser.add_argument("--folds", type=int, default=2, help="how many of five folds to run")
    arguments = parser.parse_args()
    for name in arguments.dataset or TABLES | OTHERS:
        table = (TABLES | OTHERS)[name]()
        for epsilon in arguments.epsilon:
            found: dict[str, list[tuple[float, ...]]] = {}
            splits = StratifiedKFold(5, shuffle=True, random_state=0).split(table.X, table.y)
            for fold, (train, test) in zip(range(arguments.folds), splits, strict=False):
                for label, own, model in models(table, train, epsilon, fold):
                    chance = model.fit(own.X[train], own.y[train]).predict_proba(own.X[test])[:, 1]
                    y = own.y[test]
                    measures = np.mean((chance > 0.5) == y), roc_auc_score(y, chance), log_loss(y, chance)
                    found.setdefault(label, []).append((*map(float, measures), own.X.shape[1] - table.X.shape[1]))
            for label, runs in found.items():
                *means, cells = np.mean(runs, axis=0)
                words = " ".join(f"{mean:.4f}" for mean in means)
                print(f"{name} epsilon {epsilon:g} {label:24} {words}, {cells:.0f} cells", flush=True)


if __name__ == "__main__":
    main()
