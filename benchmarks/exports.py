"""Exported pipelines through skops and ONNX: python benchmarks/exports.py PYTHON.

PYTHON is an interpreter with skl2onnx, onnxruntime, skops and the scikit-learn of this environment, for instance of
`python -m venv /tmp/exports && /tmp/exports/bin/pip install skl2onnx onnxruntime skops scikit-learn==...`. Models of
every kind are fitted here and their pipelines are kept by joblib; there, where dpdescent is not installed, each goes
through skops and ONNX. Printed is the largest difference to the predictions of the model.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import joblib
import numpy as np

import dpdescent

THERE = """
import sys
import joblib, numpy as np, onnxruntime, skops.io
from skl2onnx import to_onnx
from sklearn.svm import LinearSVC
from skl2onnx.common.data_types import DoubleTensorType

worst = 0.0
for case in joblib.load(sys.argv[1]):
    pipeline, rows, expected = case["pipeline"], case["rows"], case["expected"]
    data = skops.io.dumps(pipeline)
    untrusted = skops.io.get_untrusted_types(data=data)
    again = skops.io.loads(data, trusted=untrusted)
    kept = np.abs(getattr(again, case["method"])(rows) - expected).max()
    svc, soft = case["method"] == "decision_function", case["method"] == "predict_proba"
    options = {LinearSVC: {"raw_scores": True}} if svc else {id(pipeline): {"zipmap": False}} if soft else None
    model = to_onnx(pipeline, initial_types=[("rows", DoubleTensorType([None, rows.shape[1]]))], options=options)
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    found = session.run(None, {"rows": rows})[-1]
    found = found[:, -1] if case["method"] == "decision_function" else found
    carried = np.abs(np.asarray(found).reshape(expected.shape) - expected).max()
    scale = max(1.0, np.abs(expected).max())
    print(f"{case['name']:<22} skops {kept:.1e}  onnx {carried:.1e}  types to trust: {untrusted or 'none'}")
    worst = max(worst, kept / 1e-9, carried / scale / 1e-5)
sys.exit(int(worst > 1))
"""


def cases() -> list[dict[str, object]]:
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (4000, 3))
    two, three = (X[:, 0] + X[:, 1] ** 2 > 0.3).astype(int), np.digitize(X[:, 0], [-0.3, 0.3])
    number, count = 3 * X[:, 0] + generator.normal(0, 0.1, 4000), generator.poisson(np.exp(X[:, 0] + 1))
    rows, given = generator.uniform(-2, 2, (500, 3)), {"epsilon": 3.0, "bounds": (-1, 1)}
    models = [
        (dpdescent.DPLogisticRegression(**given, classes=(0, 1)), two),
        (dpdescent.DPLogisticRegression(**given, classes=(0, 1, 2)), three),
        (dpdescent.DPLinearSVC(**given, classes=(0, 1)), two),
        (dpdescent.DPAdditiveClassifier(**given, classes=(0, 1)), two),
        (dpdescent.DPLinearRegression(**given, target_bounds=(-2, 2)), number),
        (dpdescent.DPHuberRegressor(**given, target_bounds=(-4, 4)), number),
        (dpdescent.DPPoissonRegressor(**given, target_bounds=(0, 20)), count),
        (dpdescent.DPAdditiveRegressor(**given, target_bounds=(-4, 4)), number),
    ]
    found = []
    for model, y in models:
        model.fit(X, y)
        method = next(each for each in ("predict_proba", "decision_function", "predict") if hasattr(model, each))
        expected = getattr(model, method)(rows)
        pipeline = model.to_sklearn()
        name = type(model).__name__
        found.append({"name": name, "pipeline": pipeline, "method": method, "rows": rows, "expected": expected})
    return found


def main() -> int:
    if len(sys.argv) != 2:
        print("no interpreter was named: python benchmarks/exports.py PYTHON, with skl2onnx, onnxruntime and skops")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "cases.joblib"
        joblib.dump(cases(), path)
        clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        return subprocess.run([sys.argv[1], "-c", THERE, str(path)], env=clean, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
