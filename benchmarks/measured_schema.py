"""What it costs not to know a table: AUC with a measured schema minus that with one written by hand, in one budget.

``python benchmarks/measured_schema.py [TABLE ...] [--epsilons 1 0.3] [--seeds 3] [--json FILE]`` fits
`DPLogisticRegression` to four fifths of the rows of each raw table in ``$DPDESCENT_DATA``: once as it is, text and
all, with nothing declared; and once with the kinds, levels, classes and honest bounds that a person would write.
Both have the same (epsilon, 1e-6). The AUC is that of the other rows, averaged over seeds.
"""

from __future__ import annotations

import argparse
import json
import os
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from sklearn.metrics import roc_auc_score

from dpdescent import DPLogisticRegression, load_dataset
from dpdescent.datasets.census import ACS_SCHEMA, ADULT_SCHEMA
from dpdescent.errors import DPDescentError
from dpdescent.tables import CategoricalColumn, Column, Label, NumericColumn, Schema, read_cells_as_text
from dpdescent.tables.cell_kinds import as_levels

DATA = Path(os.environ.get("DPDESCENT_DATA", "."))
MORE = ("magic", "credit_default", "law_school", "german")
MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
BANK_NUMBERS = {
    "age": (18, 100),
    "balance": (-10_000, 100_000),
    "day": (1, 31),
    "duration": (0, 5000),
    "campaign": (1, 60),
    "pdays": (-1, 1000),
    "previous": (0, 50),
}
BANK_LEVELS: dict[str, tuple[str, ...]] = {
    "job": (
        "admin.",
        "blue-collar",
        "entrepreneur",
        "housemaid",
        "management",
        "retired",
        "self-employed",
        "services",
        "student",
        "technician",
        "unemployed",
        "unknown",
    ),
    "marital": ("married", "single", "divorced"),
    "education": ("primary", "secondary", "tertiary", "unknown"),
    "default": ("no", "yes"),
    "housing": ("no", "yes"),
    "loan": ("no", "yes"),
    "contact": ("cellular", "telephone", "unknown"),
    "month": MONTHS,
    "poutcome": ("failure", "other", "success", "unknown"),
}


def by_hand(numbers: dict[str, Any], levels: dict[str, Any], label: Label) -> Schema:
    """Return a schema of honest bounds and levels."""
    columns: list[Column] = [NumericColumn(name, *map(float, ends)) for name, ends in numbers.items()]
    columns += [CategoricalColumn(name, tuple(map(str, each))) for name, each in levels.items()]
    return Schema(tuple(columns), label, missing="level", unknown="other", unreadable="missing")


def table_named(name: str) -> tuple[pd.DataFrame, Schema]:
    """Return a raw table as text, and the schema that a person would write for it."""
    if name == "adult":
        frame = read_cells_as_text(DATA / "adult.csv.gz").drop(columns="split")
        columns = tuple(each for each in ADULT_SCHEMA.columns if each.name in frame.columns)
        chosen = Schema(columns, ADULT_SCHEMA.label, unreadable="missing")
        return frame, chosen.choosing(missing="level", unknown="other")
    if name == "bank":
        label = Label("y", ("no", "yes"))
        return read_cells_as_text(DATA / "bank_full.csv.gz"), by_hand(BANK_NUMBERS, BANK_LEVELS, label)
    if name == "acs":
        data = load_dataset("acs-income")
        assert data.table is not None
        chosen = Schema(ACS_SCHEMA.columns, ACS_SCHEMA.label, missing="level", unknown="other", unreadable="missing")
        return data.table.astype(str), chosen
    about = json.loads((DATA / "more" / f"{name}.json").read_text())
    frame = read_cells_as_text(DATA / "more" / f"{name}.csv.gz")
    kept = [*about["num"], *about["levels"], about["label"]]
    return frame[kept], by_hand(about["num"], about["levels"], Label(about["label"], tuple(about["classes"])))


def aucs(frame: pd.DataFrame, schema: Schema, epsilon: float, seed: int) -> tuple[float, float, float, float]:
    """Return the AUC with a measured schema and by hand, and the seconds of both fits."""
    label, classes = schema.label.column, schema.label.classes or ()
    order = np.random.default_rng(seed).permutation(len(frame))
    train, test = frame.iloc[order[: 4 * len(order) // 5]], frame.iloc[order[4 * len(order) // 5 :]]
    truth = as_levels(test[label], classes).to_numpy() == classes[1]
    start = time.perf_counter()
    model = DPLogisticRegression(epsilon, 1e-6, random_state=seed).fit(train.drop(columns=label), train[label])
    position = [str(each) for each in model.classes_].index(str(classes[1]))
    sign = 1 if position else -1
    measured = roc_auc_score(truth, sign * model.decision_function(test.drop(columns=label)))
    middle = time.perf_counter()
    encoder = schema.encoder().fit(schema.with_days(train[list(schema.features)]))
    options = {"bounds": encoder.output_bounds_, "binary_features": encoder.binary_features_, "classes": classes}
    coded = [encoder.transform(schema.with_days(each[list(schema.features)])) for each in (train, test)]
    labels = as_levels(train[label], classes).to_numpy().astype(type(classes[0]))
    written = DPLogisticRegression(epsilon, 1e-6, random_state=seed, **options).fit(coded[0], labels)
    by_person = roc_auc_score(truth, written.decision_function(coded[1]))
    return measured, by_person, middle - start, time.perf_counter() - middle


def main() -> None:
    """Print a line for every table and epsilon."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tables", nargs="*", default=("adult", "bank", "acs", *MORE))
    parser.add_argument("--epsilons", nargs="+", type=float, default=(1.0, 0.3))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    warnings.simplefilter("ignore")
    found = []
    print("table            epsilon  measured  by hand  difference  seconds")
    for name in chosen.tables:
        frame, schema = table_named(name)
        for epsilon in chosen.epsilons:
            try:
                runs = np.array([aucs(frame, schema, epsilon, seed) for seed in range(chosen.seeds)])
            except DPDescentError as problem:
                print(f"{name:16} {epsilon:7g}  {type(problem).__name__}: {problem}")
                continue
            measured, written, seconds, _ = runs.mean(axis=0)
            found.append({"table": name, "epsilon": epsilon, "measured": measured, "by_hand": written})
            line = (
                f"{name:16} {epsilon:7g}  {measured:8.4f} {written:8.4f}  {measured - written:+10.4f}  {seconds:7.1f}"
            )
            print(line, flush=True)
    if chosen.json is not None:
        chosen.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
