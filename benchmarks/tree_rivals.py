"""What other libraries reach on one table: run by a Python that has them (`benchmarks/trees.py --rivals PYTHON`).

InterpretML's DP-EBM and diffprivlib's random forest, with their defaults and the same public bounds, levels and
classes. DP-EBM gets a category as one column. What is not installed is left out.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd

Fit = Callable[[float, float, int], Any]


def one_column_each(frame: pd.DataFrame, binary: list[bool]) -> tuple[pd.DataFrame, list[str]]:
    """Return a table in which a category is one column of text, and the type of each column."""
    columns: dict[str, Any] = {}
    types: dict[str, str] = {}
    for name, coded in zip(frame.columns, binary, strict=True):
        column, _, level = name.partition("=")
        own = column if coded and level else name
        types[own] = "nominal" if coded else "continuous"
        if not coded:
            columns[own] = frame[name]
        elif not level:
            columns[own] = frame[name].astype(int).astype(str)
        else:
            before = columns.get(own, np.full(len(frame), "none", dtype=object))
            columns[own] = np.where(frame[name] > 0.5, level, before)
    return pd.DataFrame(columns), list(types.values())


def dp_ebm(rows: Any, public: dict[str, Any]) -> tuple[Fit, pd.DataFrame]:
    from interpret.privacy import DPExplainableBoostingClassifier, DPExplainableBoostingRegressor

    (train, types), (test, _) = (one_column_each(rows[part], public["binary"]) for part in ("train", "test"))
    ends = dict(zip(rows["train"].columns, zip(*public["bounds"], strict=True), strict=True))
    bounds = {name: ends[name] for name, kind in zip(train.columns, types, strict=True) if kind == "continuous"}
    known: dict[str, Any] = {"feature_names": list(train.columns), "feature_types": types, "privacy_bounds": bounds}
    kind = DPExplainableBoostingClassifier
    if "target" in public:
        kind = DPExplainableBoostingRegressor
        known |= {"privacy_target_min": public["target"][0], "privacy_target_max": public["target"][1]}

    def fit(epsilon: float, delta: float, seed: int) -> Any:
        return kind(epsilon=epsilon, delta=delta, random_state=seed, n_jobs=1, **known).fit(train, rows["y_train"])

    return fit, test


def forest(rows: Any, public: dict[str, Any]) -> tuple[Fit, pd.DataFrame]:
    from diffprivlib.models import RandomForestClassifier

    def fit(epsilon: float, delta: float, seed: int) -> Any:  # noqa: ARG001, delta is 0
        low, high = (np.array(each) for each in public["bounds"])
        made = RandomForestClassifier(epsilon=epsilon, bounds=(low, high), classes=[0, 1], random_state=seed)
        return made.fit(rows["train"].to_numpy(), rows["y_train"])

    return fit, rows["test"].to_numpy()


def measured(folder: str) -> Iterator[dict[str, Any]]:
    """Yield a row per library and epsilon: predictions are written beside the table."""
    asked = json.load(open(f"{folder}/public.json"))  # noqa: SIM115
    rows: dict[str, Any] = {part: pd.read_csv(f"{folder}/{part}.csv") for part in ("train", "test")}
    rows["y_train"] = np.load(f"{folder}/y_train.npy")
    for name, made in {"DP-EBM": dp_ebm, "diffprivlib's forest": forest}.items():
        if name != "DP-EBM" and "target" in asked:
            continue
        try:
            fit, test = made(rows, asked)
        except ImportError:
            continue
        for epsilon in asked["epsilons"]:
            start = time.perf_counter()
            model = fit(epsilon, asked["delta"], asked["seed"])
            took = time.perf_counter() - start
            predicted = model.predict(test) if "target" in asked else model.predict_proba(test)[:, 1]
            yield {"model": name, "epsilon": epsilon, "seconds": took, "predicted": np.asarray(predicted).tolist()}


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    json.dump(list(measured(sys.argv[1])), open(f"{sys.argv[1]}/found.json", "w"))  # noqa: SIM115
