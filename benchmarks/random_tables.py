"""Is `auto` worse than the prior on any kind of table? Random truths of awkward shapes, judged on new rows.

Each number is a table: classes (2 to 100, a rate of .2% to 50%), numbers or counts, 100 to 10,000 rows, 1 to 200
columns (normal, with long tails, rare 0/1, levels of a category), correlated or not, with a signal or none, bounds 1
to 10,000 times too wide. Losses are those of `fresh_tables.py`, on 4,000 new rows; a repetition draws rows and noise
anew. ::

    python benchmarks/random_tables.py --first 0 --tables 20
    python benchmarks/random_tables.py --first 0 --tables 20 --json found.json
"""

from __future__ import annotations

import argparse
import json
import math
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpdescent.errors import DPDescentError
from fresh_tables import Table, estimators, made, measures, predict, print_cells

EPSILONS = (0.1, 0.5, 3.0)
TEST_ROWS = 4000


@dataclass(frozen=True)
class Shape:
    """What a random table is like; rows are drawn by `rows_of`."""

    number: int
    task: str
    rows: int
    columns: tuple[str, ...]
    correlated: bool
    signal: float
    too_wide: float
    classes: int
    rate: float
    tail: str

    @classmethod
    def of(cls, number: int) -> Shape:
        draw = np.random.default_rng([number, 1])
        task = str(draw.choice(["class", "reg", "count"], p=[0.6, 0.25, 0.15]))
        width = round(math.exp(draw.uniform(0, math.log(20)))) if draw.random() < 0.9 else int(draw.integers(40, 200))
        kind = draw.choice(["normal", "long", "rare", "levels", "mixed"])
        kinds = ["normal", "long", "rare", "levels"]
        columns = [str(draw.choice(kinds)) if kind == "mixed" else str(kind) for _ in range(width)]
        classes = 2 if draw.random() < 0.7 else round(math.exp(draw.uniform(math.log(3), math.log(100))))
        return cls(
            number,
            task,
            round(math.exp(draw.uniform(math.log(100), math.log(10_000)))),
            tuple(columns),
            bool(draw.random() < 0.3),
            float(draw.choice([0.0, 0.5, 1.0, 2.0])),
            float(10 ** draw.choice([0.0, 0.3, 1.0, 2.0, 4.0])),
            classes,
            float(math.exp(draw.uniform(math.log(0.002), math.log(0.5)))),
            str(draw.choice(["normal", "t", "lognormal"])),
        )

    def told(self) -> str:
        kinds = "+".join(sorted({f"{self.columns.count(each)} {each}" for each in self.columns}))
        wide = f"wide x{self.too_wide:.0f}" if self.too_wide > 1 else ""
        what = {"class": f"{self.classes} classes", "reg": f"{self.tail} residuals", "count": "counts"}[self.task]
        rate = f"rate {self.rate:.3f}" if self.task == "class" and self.classes == 2 else ""
        words = [f"{self.rows} rows", kinds, what, rate, "correlated" if self.correlated else "", wide]
        return f"{self.number}: " + ", ".join(each for each in [*words, f"signal {self.signal:g}"] if each)


def _columns(shape: Shape, draw: np.random.Generator, rows: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return cells, bounds and which columns are 0 or 1."""
    own = np.random.default_rng([shape.number, 2])
    width = len(shape.columns)
    cells = draw.normal(size=(rows, width))
    if shape.correlated:
        cells = math.sqrt(0.95) * draw.normal(size=(rows, 1)) + math.sqrt(0.05) * cells
    level = draw.zipf(1.5, rows)
    ends = np.empty((2, width))
    binary = np.array([kind in ("rare", "levels") for kind in shape.columns])
    for column, kind in enumerate(shape.columns):
        middle, share = own.choice([0.0, 0.0, 3.0, 40.0]), math.exp(own.uniform(math.log(0.002), math.log(0.5)))
        if kind == "normal":
            cells[:, column] += middle
            ends[:, column] = middle - 4 * shape.too_wide, middle + 4 * shape.too_wide
        elif kind == "long":
            cells[:, column] = np.exp(1.3 * cells[:, column])
            ends[:, column] = 0.0, 200.0 * shape.too_wide
        else:
            chosen = cells[:, column] > np.quantile(own.normal(size=4000), 1 - share)
            cells[:, column] = chosen if kind == "rare" else level % width == column
            ends[:, column] = 0.0, 1.0
    return cells, ends, binary


def rows_of(shape: Shape, draw: np.random.Generator, rows: int) -> Table:
    """Return so many rows of a shape."""
    own = np.random.default_rng([shape.number, 3])
    X, ends, binary = _columns(shape, draw, rows)
    outputs = shape.classes if shape.task == "class" and shape.classes > 2 else 1
    weights = own.normal(size=(X.shape[1], outputs)) * (own.random((X.shape[1], 1)) < max(0.3, 2 / X.shape[1]))
    reference, _, _ = _columns(shape, np.random.default_rng([shape.number, 4]), 20_000)
    curved = own.random(X.shape[1]) < 0.3

    def seen(cells: np.ndarray) -> np.ndarray:
        centred = (cells - reference.mean(axis=0)) / np.maximum(reference.std(axis=0), 1e-9)
        return np.where(curved, np.abs(centred) - 0.8, np.clip(centred, -4, 4)) @ weights

    typical = seen(reference)
    unit = np.maximum(typical.std(axis=0), 1e-9)
    score = shape.signal * (seen(X) - typical.mean(axis=0)) / unit
    if shape.task == "class" and outputs == 1:
        usual = np.quantile(
            shape.signal * (typical - typical.mean()) / unit + np.random.default_rng(0).logistic(size=typical.shape),
            1 - shape.rate,
        )
        y = (score[:, 0] + draw.logistic(size=rows) > usual).astype(float)
    elif shape.task == "class":
        skew = own.choice([0.0, 1.0])
        y = np.argmax(
            2 * score - skew * np.log(np.arange(1, outputs + 1)) + draw.gumbel(size=score.shape), axis=1
        ).astype(float)
    elif shape.task == "reg":
        noise = {
            "normal": draw.normal(size=rows),
            "t": draw.standard_t(2.5, rows),
            "lognormal": np.exp(1.5 * draw.normal(size=rows)) / 3,
        }
        middle = own.choice([0.0, 10.0, 1000.0])
        y = middle + score[:, 0] + noise[shape.tail]
        reach = 12 * own.choice([1.0, 3.0, 10.0, 100.0, 1000.0])
        return Table("reg", X, y, (ends[0], ends[1]), binary, (middle - reach, middle + reach))
    else:
        y = draw.poisson(np.exp(np.clip(0.7 * score[:, 0] + math.log(100 * shape.rate), -5, 6))).astype(float)
        highest = 60 * own.choice([1.0, 10.0, 1000.0]) * max(1.0, 30 * shape.rate)
        return Table("count", X, y, (ends[0], ends[1]), binary, (0.0, float(highest)))
    return Table("class", X, y, (ends[0], ends[1]), binary)


def fitted(table: Table, kind: Any, epsilon: float, told: str, seed: int, classes: np.ndarray) -> Any:
    if table.task == "class":  # rare classes may be missing among the rows
        model = made(replace(table, y=classes.astype(float)), kind, epsilon, told, "auto", seed)
    else:
        model = made(table, kind, epsilon, told, "auto", seed)
    return model.fit(table.X, table.y)


def rows_for(shape: Shape, asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Yield the losses of a shape."""
    test = rows_of(shape, np.random.default_rng([shape.number, 5]), TEST_ROWS)
    known = np.arange(shape.classes if shape.task == "class" else 1)
    reference = replace(test, y=np.append(test.y, known[-1])) if shape.task == "class" else test
    every = np.arange(TEST_ROWS)
    for repetition in range(asked.repeats):
        table = rows_of(shape, np.random.default_rng([shape.number, 6, repetition]), shape.rows)

        def loss(predicted: np.ndarray, train: Table = table) -> float:
            both = replace(reference, y=np.concatenate([reference.y, train.y]))
            return measures(both, predicted, np.arange(len(reference.y), len(both.y)), every)["loss"]

        if shape.task == "class":
            counts = np.bincount(table.y.astype(int), minlength=known.size) + 0.5
            prior = np.tile(counts / counts.sum(), (TEST_ROWS, 1))
        else:
            prior = np.full(TEST_ROWS, table.y.mean())
        where = {"table": shape.told(), "split": repetition, "epsilon": None, "told": None, "method": None}
        yield where | {"model": "prior", "loss": loss(prior)}
        for epsilon in asked.epsilon:
            here = where | {"epsilon": epsilon, "method": "auto"}
            for model, kind in estimators(table).items():
                for told in ("bounds", "nothing") if model in asked.models else ():
                    try:
                        found = fitted(table, kind, epsilon, told, repetition, known)
                    except DPDescentError as refusal:
                        print(f"{shape.number}, {model}, {epsilon:g}, {told}: {refusal}")
                        continue
                    yield here | {"model": model, "told": told, "loss": loss(predict(table, found, test.X))}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--tables", type=int, default=20)
    parser.add_argument("--repeats", type=int, default=4)
    parser.add_argument("--epsilon", default=",".join(map(str, EPSILONS)))
    parser.add_argument("--models", default="linear,additive")
    parser.add_argument("--task", help="only tables of this kind: class, reg or count")
    parser.add_argument("--worst", type=int, default=30)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asked.epsilon = [float(each) for each in asked.epsilon.split(",")]
    asked.models = asked.models.split(",")
    warnings.simplefilter("ignore")
    rows: list[dict[str, Any]] = []
    for number in range(asked.first, asked.first + asked.tables):
        shape, started = Shape.of(number), time.perf_counter()
        if asked.task and shape.task != asked.task:
            continue
        rows += rows_for(shape, asked)
        print(f"{shape.told()}: {time.perf_counter() - started:.0f} s", flush=True)
        if asked.json is not None:
            asked.json.write_text(json.dumps(rows, indent=0) + "\n")
    print_cells(rows, asked.worst, verbose=False)


if __name__ == "__main__":
    main()
