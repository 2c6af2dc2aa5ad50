"""Exports predict as the models do, without this library: scikit-learn alone, and SQL in sqlite3."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray
from test_saved_models import CASES, OTHERS, TWO, X, fitted

import dpdescent
from dpdescent.errors import InvalidParameter, UnsupportedModel

LINEAR = [name for name in CASES if "tree" not in name]
ALONE = """
import sys
class Refuse:
    def find_spec(self, name, *rest):
        assert not name.startswith("dpdescent"), name
sys.meta_path.insert(0, Refuse())
import joblib, numpy as np
for case in joblib.load(sys.argv[1]):
    found = getattr(case["pipeline"], case["method"])(case["rows"])
    assert np.abs(found - case["expected"]).max() < 1e-9, case["method"]
print("equal")
"""


def expected(model: Any) -> tuple[str, NDArray[Any]]:
    """Return what is compared of a model, and its values."""
    method = next(each for each in ("predict_proba", "decision_function", "predict") if hasattr(model, each))
    return method, getattr(model, method)(OTHERS)


def asked(rows: NDArray[Any], expression: str, columns: Sequence[str]) -> list[Any]:
    """Return what sqlite3 answers for every row."""
    quoted = ", ".join('"' + name.replace('"', '""') + '"' for name in columns)
    with closing(sqlite3.connect(":memory:")) as base:
        base.execute(f"CREATE TABLE t (place INTEGER, {quoted})")
        marks = ", ".join("?" * (1 + len(columns)))
        base.executemany(f"INSERT INTO t VALUES ({marks})", [(i, *row) for i, row in enumerate(rows.tolist())])
        return [answer for (answer,) in base.execute(f"SELECT {expression} FROM t ORDER BY place")]


@pytest.mark.parametrize("name", LINEAR)
def test_a_pipeline_of_scikit_learn_predicts_as_the_model(name: str) -> None:
    model = fitted(name)
    pipeline, (method, values) = model.to_sklearn(), expected(model)
    assert np.abs(getattr(pipeline, method)(OTHERS) - values).max() < 1e-9
    far = np.array([[-1e9, 1e9, 0.0]])
    assert np.abs(getattr(pipeline, method)(far) - getattr(model, method)(far)).max() < 1e-9, "cells are clipped"
    if hasattr(model, "classes_"):
        assert np.array_equal(pipeline.predict(OTHERS), model.predict(OTHERS))
    assert all(type(step).__module__.startswith("sklearn.") for _, step in pipeline.steps)


def test_pipelines_kept_by_joblib_predict_where_the_library_is_absent(tmp_path: Path) -> None:
    cases = []
    for name in LINEAR:
        model = fitted(name)
        method, values = expected(model)
        cases.append({"pipeline": model.to_sklearn(), "method": method, "rows": OTHERS, "expected": values})
    joblib.dump(cases, tmp_path / "cases.joblib")
    run = [sys.executable, "-c", ALONE, str(tmp_path / "cases.joblib")]
    found = subprocess.run(run, capture_output=True, text=True, check=False)
    assert found.stdout == "equal\n", found.stderr


@pytest.mark.parametrize("name", LINEAR)
def test_sql_scores_as_the_model(name: str) -> None:
    model = fitted(name)
    columns = ['a"b', "select", "with space; --"]
    classes = model.classes_.tolist() if hasattr(model, "classes_") else []
    if hasattr(model, "predict_proba"):
        for position, each in enumerate(classes):
            found = asked(OTHERS, model.to_sql(of=each, columns=columns), columns)
            assert np.abs(np.array(found) - model.predict_proba(OTHERS)[:, position]).max() < 1e-9
    elif not classes:
        found = asked(OTHERS, model.to_sql(columns=columns), columns)
        assert np.abs(np.array(found) - model.predict(OTHERS)).max() < 1e-9
    if len(classes) == 2:
        assert asked(OTHERS, model.to_sql("prediction", columns=columns), columns) == model.predict(OTHERS).tolist()
        found = asked(OTHERS, model.to_sql("score", columns=columns), columns)
        assert np.abs(np.array(found) - model.decision_function(OTHERS)).max() < 1e-9


@pytest.mark.parametrize("name", ["logistic", "additive", "texts", "linear", "counts", "several"])
def test_a_missing_cell_gives_null(name: str) -> None:
    model = fitted(name)
    rows = np.array([[0.5, np.nan, 0.5]])  # which sqlite3 stores as NULL
    outputs = ["prediction"] if hasattr(model, "classes_") and name != "several" else []
    for output in [None, *outputs]:
        of = 1 if name == "several" else None
        assert asked(rows, model.to_sql(output, of=of), ["x0", "x1", "x2"]) == [None]


def test_narrow_bounds_of_the_target_hold_in_both_exports() -> None:
    model = dpdescent.DPLinearRegression(
        8.0, bounds=(-1, 1), target_bounds=(-0.5, 0.5), tighten=False, random_state=1
    )
    model.fit(X, 3 * X[:, 0])
    values = model.predict(OTHERS)
    assert {-0.5, 0.5} <= set(values.tolist()), "some predictions are clipped"
    assert np.abs(model.to_sklearn().predict(OTHERS) - values).max() < 1e-9
    assert np.abs(np.array(asked(OTHERS, model.to_sql(), ["x0", "x1", "x2"])) - values).max() < 1e-9


def test_columns_far_from_zero_and_wide_ones_keep_their_digits() -> None:
    rows = np.column_stack([1e6 + 10 * X[:, 0], 10 ** (3 + 3 * X[:, 1]), -5 + X[:, 2]])
    bounds = (1e6 - 10, 1.0, -6), (1e6 + 10, 1e6, -4)
    model = dpdescent.DPAdditiveClassifier(8.0, bounds=bounds, classes=(0, 1), tighten=False, random_state=1)
    model.fit(rows, TWO)
    assert len(model._features.curves) > 3
    values = model.predict_proba(rows)
    assert np.abs(model.to_sklearn().predict_proba(rows) - values).max() < 1e-9
    found = asked(rows, model.to_sql(), ["x0", "x1", "x2"])
    assert np.abs(np.array(found) - values[:, 1]).max() < 1e-9


def table(rows: int = 3000) -> tuple[pd.DataFrame, NDArray[Any]]:
    draw = np.random.default_rng(3)
    age, city = draw.uniform(20, 60, rows), draw.choice(["Oslo", "O'Hare", "Rome"], rows)
    frame = pd.DataFrame({"age": age, "city": city, "paid": draw.integers(0, 2, rows).astype(bool)})
    return frame, np.where((age > 40) ^ (city == "Rome"), "yes", "no")


def test_a_model_with_measured_columns_is_scored_in_sql() -> None:
    frame, y = table()
    model = dpdescent.DPAdditiveClassifier(8.0, random_state=0).fit(frame, y)
    odd = pd.DataFrame(
        {"age": [30.0, None, 1e9, 50.0], "city": ["Rome", "Oslo", None, "Atlantis"], "paid": [True] * 4}
    )
    both = pd.concat([frame.head(200), odd], ignore_index=True)
    both["paid"] = both["paid"].astype(bool)
    rows = both.astype(object).where(both.notna(), None)
    found = asked(rows.to_numpy(dtype=object), model.to_sql(), list(frame.columns))
    assert np.abs(np.array(found, dtype=np.float64) - model.predict_proba(both)[:, 1]).max() < 1e-9
    with pytest.raises(UnsupportedModel, match="to_sql"):
        model.to_sklearn()


def test_what_is_not_exported_is_refused_by_name() -> None:
    trees = fitted("trees")
    for export in (trees.to_sql, trees.to_sklearn):
        with pytest.raises(UnsupportedModel, match="trees of a DPBoostedTreesClassifier"):
            export()
    several, logistic = fitted("several"), fitted("logistic")
    for model, given, message in (
        (several, {"output": "prediction"}, "'probability' of a class"),
        (several, {}, "of must be one of the classes 0, 1, 2"),
        (logistic, {"of": 7}, "of must be one of"),
        (logistic, {"output": "score", "of": 1}, "leave it out"),
        (logistic, {"quote": "'"}, "quote must be"),
        (logistic, {"output": "number"}, "choose 'probability', 'score' or 'prediction'"),
        (fitted("linear"), {"output": "probability"}, "choose 'score' or 'prediction'"),
    ):
        with pytest.raises(InvalidParameter, match=message):
            model.to_sql(**given)
    with pytest.raises(UnsupportedModel, match="3 columns, and 1 names"):
        logistic.to_sql(columns=["a"])
    frame, y = table()
    frame["since"] = pd.Timestamp("2020-01-01") + pd.to_timedelta(frame["age"], unit="D")
    dated = dpdescent.DPLogisticRegression(8.0, random_state=0).fit(frame, y)
    with pytest.raises(UnsupportedModel, match="'since' of dates"):
        dated.to_sql()


def test_a_loaded_model_exports_as_the_one_that_was_saved(tmp_path: Path) -> None:
    for name in ("additive", "counts"):
        model = fitted(name)
        model.save(tmp_path / "m.json")
        assert dpdescent.load(tmp_path / "m.json").to_sql() == model.to_sql()


@pytest.mark.slow
def test_pipelines_pass_through_skops_and_onnx() -> None:
    """Needs an environment with skl2onnx, onnxruntime and skops: DPDESCENT_EXPORTS_PYTHON names its interpreter."""
    python = os.environ.get("DPDESCENT_EXPORTS_PYTHON")
    if python is None:
        pytest.skip("DPDESCENT_EXPORTS_PYTHON names no interpreter with skl2onnx, onnxruntime and skops")
    script = Path(__file__).parents[2] / "benchmarks" / "exports.py"
    found = subprocess.run([sys.executable, str(script), python], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stdout + found.stderr
