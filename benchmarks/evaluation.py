"""How far private evaluations are off, and how often their intervals cover the truth, by rows and epsilon.

    python benchmarks/evaluation.py [--runs 100] [--data adult] [--json FILE]

The table is the population: a logistic model is fitted to a fifth of it, and evaluated on samples of n rows that are
drawn from the rest with replacement. Printed are the mean absolute error of AUC and accuracy by privacy alone,
against the same measure of the same sample, and how often 95% intervals cover the measure of the population.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LinearRegression, LogisticRegression
from sklearn.metrics import brier_score_loss, roc_auc_score

from dpdescent import drift_between, evaluate, load_dataset

DELTA = 1e-7
ROWS = (2000, 10_000, 50_000)
EPSILONS = (0.05, 0.1, 0.3, 1.0)


def scored_population(name: str) -> tuple[np.ndarray, np.ndarray]:
    """Return logits of a model and labels 0 or 1, of rows that did not train it."""
    data = load_dataset(name)
    order = np.random.default_rng(0).permutation(data.X.shape[0])
    first, rest = np.split(order, [order.size // 5])
    labels = (np.asarray(data.y) == data.classes[-1]).astype(int)
    model = LogisticRegression(max_iter=300).fit(data.X[first], labels[first])
    return model.decision_function(data.X[rest]), labels[rest]


def one_cell(scores: np.ndarray, labels: np.ndarray, rows: int, epsilon: float, runs: int) -> dict[str, Any] | None:
    """Return errors and coverage of so many evaluations, None where they are refused."""
    truth = {
        "auc": roc_auc_score(labels, scores),
        "accuracy": float(np.mean((scores > 0) == labels)),
        "brier score": brier_score_loss(labels, 1 / (1 + np.exp(-scores))),
    }
    errors: dict[str, list[float]] = {name: [] for name in truth}
    covered: dict[str, list[bool]] = {name: [] for name in truth}
    generator, refused = np.random.default_rng(rows), 0
    for seed in range(runs):
        some = generator.integers(0, scores.size, rows)
        mine, own = scores[some, None], labels[some]
        asked = {"classes": (0, 1), "scores": "logit", "rows_separate": True, "random_state": seed}
        try:
            found = evaluate(lambda block: block[:, 0], mine, own, epsilon=epsilon, delta=DELTA, **asked)
        except ValueError:
            return None
        here = {"auc": roc_auc_score(own, mine[:, 0]), "accuracy": float(np.mean((mine[:, 0] > 0) == own))}
        here["brier score"] = brier_score_loss(own, 1 / (1 + np.exp(-mine[:, 0])))
        for name in truth:
            measure = found[name]
            if measure.value is None:
                refused += name == "auc"
                continue
            errors[name].append(abs(measure.value - here[name]))
            covered[name].append(measure.low <= truth[name] <= measure.high)
    cell: dict[str, Any] = {"rows": rows, "epsilon": epsilon, "refused": refused / runs}
    for name in truth:
        cell[f"{name} error"] = float(np.mean(errors[name])) if errors[name] else None
        cell[f"{name} coverage"] = float(np.mean(covered[name])) if covered[name] else None
    return cell


def numbers_cell(rows: int, epsilon: float, runs: int) -> dict[str, Any]:
    """Return errors and coverage of clipped measures of a regression, on a population with heavy tails."""
    generator = np.random.default_rng(1)
    X = generator.normal(size=(200_000, 5))
    y = 100 * X @ [1.0, 0.5, 0, 0, 0.2] + 500 + 60 * generator.standard_t(3, 200_000)
    predicted = LinearRegression().fit(X[:500], y[:500]).predict(X)
    names = ("mean absolute error", "root mean squared error", "r squared")
    covered: dict[str, list[bool]] = {name: [] for name in names}
    for seed in range(runs):
        some = generator.integers(0, y.size, rows)
        asked = {"scores": "number", "rows_separate": True, "random_state": seed}
        found = evaluate(
            lambda block: block[:, 0], predicted[some, None], y[some], epsilon=epsilon, delta=DELTA, **asked
        )
        sums = found.numbers
        clipped = np.clip(y - predicted, -sums.clip, sums.clip)
        target = np.clip(y, sums.middle - sums.half, sums.middle + sums.half)
        truth = (np.abs(clipped).mean(), np.sqrt((clipped**2).mean()), 1 - (clipped**2).mean() / target.var())
        for name, value in zip(names, truth, strict=True):
            measure = found[name]
            if measure.value is not None:
                covered[name].append(measure.low <= value <= measure.high)
    return {"rows": rows, "epsilon": epsilon} | {
        f"{name} coverage": float(np.mean(each)) if each else None for name, each in covered.items()
    }


def several_cell(rows: int, epsilon: float, runs: int) -> dict[str, Any]:
    """Return the coverage of accuracy and mean AUC of four classes, of which one is rare."""
    generator = np.random.default_rng(2)
    margins = 1.2 * generator.normal(size=(100_000, 4))
    truth = np.exp(margins - [0, 0.5, 1, 2])
    labels = (truth.cumsum(axis=1) > generator.random((100_000, 1)) * truth.sum(axis=1, keepdims=True)).argmax(axis=1)
    said = np.exp(0.8 * margins)
    said /= said.sum(axis=1, keepdims=True)
    values = {
        "accuracy": float(np.mean(said.argmax(axis=1) == labels)),
        "auc": float(np.mean([roc_auc_score(labels == each, said[:, each]) for each in range(4)])),
    }
    covered: dict[str, list[bool]] = {name: [] for name in values}
    for seed in range(runs):
        some = generator.integers(0, labels.size, rows)
        asked = {"classes": range(4), "scores": "probability", "rows_separate": True, "random_state": seed}
        found = evaluate(lambda block: block, said[some], labels[some], epsilon=epsilon, delta=DELTA, **asked)
        for name, value in values.items():
            if found[name].value is not None:
                covered[name].append(found[name].low <= value <= found[name].high)
    return {"rows": rows, "epsilon": epsilon} | {
        f"{name} coverage": float(np.mean(each)) if each else None for name, each in covered.items()
    }


def units_cell(adjacency: str, epsilon: float, runs: int) -> dict[str, Any]:
    """Return the coverage of accuracy and AUC for 2,000 units of up to three rows, all of which are alike."""
    generator = np.random.default_rng(3)
    scores = generator.normal(0, 1.5, 200_000)
    labels = (generator.logistic(0, 1, 200_000) < scores).astype(int)
    values = {"accuracy": float(np.mean((scores > 0) == labels)), "auc": roc_auc_score(labels, scores)}
    covered: dict[str, list[bool]] = {name: [] for name in values}
    for seed in range(runs):
        counts = generator.integers(1, 4, 2000)
        some, owners = np.repeat(generator.integers(0, scores.size, 2000), counts), np.repeat(np.arange(2000), counts)
        asked = {
            "classes": (0, 1),
            "scores": "logit",
            "rows_separate": True,
            "random_state": seed,
            "rows_per_unit": 3,
        }
        asked |= {"adjacency": adjacency, "unit": owners}
        mine = scores[some, None]
        found = evaluate(lambda block: block[:, 0], mine, labels[some], epsilon=epsilon, delta=DELTA, **asked)
        for name, value in values.items():
            covered[name].append(found[name].low <= value <= found[name].high)
    return {"relation": adjacency, "epsilon": epsilon} | {
        f"{name} coverage": float(np.mean(each)) for name, each in covered.items()
    }


def sure_cell(shares: float, apart: float, factor: float, rows: int, epsilon: float, runs: int) -> dict[str, Any]:
    """Return the coverage of the AUC of nearly perfect scores: logits of two normal classes, times a factor."""
    generator = np.random.default_rng(4)
    labels = (generator.random(400_000) < shares).astype(int)
    places = generator.normal(apart * labels, 1)
    scores = factor * (apart * places - apart**2 / 2) + np.log(shares / (1 - shares))
    truth, covered = roc_auc_score(labels, scores), []
    for seed in range(runs):
        some = generator.integers(0, labels.size, rows)
        asked = {"classes": (0, 1), "scores": "logit", "rows_separate": True, "random_state": seed}
        mine = scores[some, None]
        area = evaluate(lambda block: block[:, 0], mine, labels[some], epsilon=epsilon, delta=DELTA, **asked).auc
        if area.value is not None:
            covered.append(area.low <= truth <= area.high)
    return {"rows": rows, "epsilon": epsilon, "auc": truth, "auc coverage": float(np.mean(covered))}


def drift_cell(moved: float, rows: int, epsilon: float, runs: int) -> dict[str, Any]:
    """Return how often drift between two months is seen, and the coverage of changes of AUC and accuracy.

    In the second month all scores are larger by ``moved``, and classes are as before.
    """
    generator = np.random.default_rng(5)
    scores = generator.normal(0, 1.5, 400_000)
    labels = (generator.logistic(0, 1, 400_000) < scores).astype(int)
    months = scores, scores + moved + moved * generator.normal(size=scores.size)
    truth = [(roc_auc_score(labels, each), float(np.mean((each > 0) == labels))) for each in months]
    changes, seen = np.subtract(truth[1], truth[0]), []
    covered: dict[str, list[bool]] = {"auc": [], "accuracy": []}
    for seed in range(runs):
        found: list[Any] = []
        for month in months:
            some = generator.integers(0, labels.size, rows)
            asked = {"classes": (0, 1), "scores": "logit", "rows_separate": True, "random_state": seed}
            asked |= {"like": found[0]} if found else {}
            mine = month[some, None]
            found.append(
                evaluate(lambda block: block[:, 0], mine, labels[some], epsilon=epsilon, delta=DELTA, **asked)
            )
        drift = drift_between(*found)
        seen.append(drift.p_value < 0.05)
        for each in drift.changes:
            if each.name in covered:
                covered[each.name].append(each.low <= changes[list(covered).index(each.name)] <= each.high)
    return {"moved": moved, "rows": rows, "epsilon": epsilon, "seen": float(np.mean(seen))} | {
        f"{name} coverage": float(np.mean(each)) if each else None for name, each in covered.items()
    }


def models_cell(rows: int, epsilon: float, runs: int) -> dict[str, Any]:
    """Return the coverage of differences of AUC and accuracy between two models, evaluated on the same rows."""
    generator = np.random.default_rng(6)
    best = generator.normal(0, 1.5, 400_000)
    labels = (generator.logistic(0, 1, 400_000) < best).astype(int)
    models = best, best + generator.normal(0, 1.0, best.size)
    truth = [(roc_auc_score(labels, each), float(np.mean((each > 0) == labels))) for each in models]
    differences = np.subtract(truth[1], truth[0])
    covered: dict[str, list[bool]] = {"auc": [], "accuracy": []}
    for seed in range(runs):
        some = generator.integers(0, labels.size, rows)
        asked = {"classes": (0, 1), "scores": "logit", "rows_separate": True}
        found = [
            evaluate(
                lambda block: block[:, 0],
                each[some, None],
                labels[some],
                epsilon=epsilon,
                delta=DELTA,
                random_state=2 * seed + number,
                **asked,
            )
            for number, each in enumerate(models)
        ]
        for (name, inside), true in zip(covered.items(), differences, strict=True):
            apart = found[1][name].value - found[0][name].value
            reach = 1.96 * np.hypot(found[0][name].deviation, found[1][name].deviation)
            inside.append(bool(abs(apart - true) <= reach))
    return {"rows": rows, "epsilon": epsilon} | {
        f"{name} coverage": float(np.mean(each)) for name, each in covered.items()
    }


def shown(value: float | None) -> str:
    """Return a number of the table."""
    return "   -  " if value is None else f"{value:6.4f}"


def _coverages(cell: dict[str, Any]) -> str:
    return " ".join(shown(value) for name, value in cell.items() if "coverage" in name)


def print_differences(runs: int) -> None:
    """Print the coverage of changes and of differences."""
    print("drift between two months: share of runs in which it is seen, coverage of changes of AUC and accuracy")
    for moved in (0.0, 0.3):
        for rows, epsilon in ((2000, 1.0), (10_000, 0.1), (10_000, 1.0)):
            cell = drift_cell(moved, rows, epsilon, runs)
            print(f"{moved:4g} {rows:6d} {epsilon:5g} | {cell['seen']:.3f} | {_coverages(cell)}", flush=True)
    print("two models on the same rows: coverage of differences of AUC and accuracy")
    for rows, epsilon in ((2000, 1.0), (10_000, 0.1), (10_000, 1.0)):
        print(f"{rows:6d} {epsilon:5g} | {_coverages(models_cell(rows, epsilon, runs))}", flush=True)


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--data", default="adult")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--differences", action="store_true", help="drift and two models on the same rows, alone")
    given = parser.parse_args()
    if given.differences:
        print_differences(given.runs)
        return
    scores, labels = scored_population(given.data)
    print(f"{given.data}: {scores.size} rows are the population, delta {DELTA:g}, {given.runs} runs")
    print("  rows epsilon | auc error, coverage | accuracy error, coverage | brier error, coverage | auc refused")
    cells = []
    for rows in ROWS:
        for epsilon in EPSILONS:
            cell = one_cell(scores, labels, rows, epsilon, given.runs)
            if cell is None:
                print(f"{rows:6d} {epsilon:7g} | refused before anything is charged")
                continue
            cells.append(cell)
            parts = [
                f"{shown(cell[f'{n} error'])} {shown(cell[f'{n} coverage'])}"
                for n in ("auc", "accuracy", "brier score")
            ]
            print(f"{rows:6d} {epsilon:7g} | {' | '.join(parts)} | {cell['refused']:.2f}", flush=True)
    print("a regression with heavy tails: coverage of the clipped MAE, RMSE and R^2")
    numbers = []
    for rows in ROWS[:2]:
        for epsilon in EPSILONS[1:]:
            cell = numbers_cell(rows, epsilon, given.runs)
            numbers.append(cell)
            print(
                f"{rows:6d} {epsilon:7g} | {' '.join(shown(v) for n, v in cell.items() if 'coverage' in n)}",
                flush=True,
            )
    print("four classes, one of them rare: coverage of accuracy and mean AUC")
    several = [several_cell(rows, epsilon, given.runs) for rows in (5000, 20_000) for epsilon in (0.3, 1.0)]
    print("\n".join(f"{c['rows']:6d} {c['epsilon']:7g} | {_coverages(c)}" for c in several))
    print("2,000 units of up to three rows that are alike: coverage of accuracy and AUC")
    units = [units_cell(adjacency, 1.0, given.runs) for adjacency in ("zero-out", "replace-one")]
    print("\n".join(f"{c['relation']:>12} {c['epsilon']:g} | {_coverages(c)}" for c in units))
    print("nearly perfect scores, some of them too sure or of a rare class: coverage of the AUC")
    sizes = ((2000, 1.0), (10_000, 0.3), (50_000, 1.0))
    kinds = ((0.5, 4.0, 1.0), (0.3, 3.2, 3.0), (0.05, 3.5, 1.0), (0.5, 5.0, 1.0))
    sure = [sure_cell(*kind, *size, given.runs) for kind in kinds for size in sizes]
    print("\n".join(f"{c['rows']:6d} {c['epsilon']:7g} | {c['auc']:.4f} {_coverages(c)}" for c in sure))
    if given.json:
        found = {
            "nearly perfect": sure,
            "classifier": cells,
            "regression": numbers,
            "several classes": several,
            "units": units,
        }
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
