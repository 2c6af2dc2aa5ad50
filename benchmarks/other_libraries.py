"""dpdescent beside diffprivlib, InterpretML and Opacus: private classifiers on the same rows.

Printed are test accuracy, AUC and log-loss, and processor seconds of a fit.

Each library is run by the Python of an environment that has it, with its default settings and the same public
knowledge: bounds, levels and classes from the schema of the table. Opacus trains a linear model by DP-SGD for ten
epochs with batches of 512 rows and a clip norm of 1, once for each of three learning rates, and both the best and the
worst of them are shown.

    python benchmarks/other_libraries.py --diffprivlib PYTHON --interpret PYTHON --opacus PYTHON
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

RATES = (0.5, 2.0, 8.0)
MEASURES = ("accuracy", "auc", "log_loss")
ONE_THREAD = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1")
Scorer = Callable[[float, float, int], np.ndarray]


def run_diffprivlib(folder: Path, public: dict[str, Any]) -> dict[str, Scorer]:
    from diffprivlib.models import LogisticRegression

    rows = np.load(folder / "rows.npz")

    def score(epsilon: float, delta: float, seed: int) -> np.ndarray:  # noqa: ARG001, delta is 0
        model = LogisticRegression(epsilon=epsilon, data_norm=public["row_norm"], random_state=seed)
        return model.fit(rows["X_train"], rows["y_train"]).decision_function(rows["X_test"])

    return {"diffprivlib": score}


def run_interpret(folder: Path, public: dict[str, Any]) -> dict[str, Scorer]:
    import pandas as pd
    from interpret.privacy import DPExplainableBoostingClassifier

    y = pd.read_csv(folder / "labels.csv")["label"]
    texts = {name: object for name in public["names"] if name not in public["bounds"]}
    train, test = (pd.read_csv(folder / f"{part}.csv").astype(texts) for part in ("train", "test"))

    def score(epsilon: float, delta: float, seed: int) -> np.ndarray:
        model = DPExplainableBoostingClassifier(
            feature_names=public["names"],
            feature_types=public["types"],
            privacy_bounds=public["bounds"],
            epsilon=epsilon,
            delta=delta,
            n_jobs=1,
            random_state=seed,
        )
        chance = np.clip(model.fit(train, y).predict_proba(test)[:, 1], 1e-12, 1 - 1e-12)
        return np.log(chance / (1 - chance))

    return {"InterpretML DP-EBM": score}


def run_opacus(folder: Path, public: dict[str, Any]) -> dict[str, Scorer]:  # noqa: ARG001, rows are clipped
    import torch
    from opacus import PrivacyEngine

    torch.set_num_threads(1)
    rows = np.load(folder / "rows.npz")
    inputs, targets = (torch.from_numpy(rows[name].astype(np.float32)) for name in ("X_train", "y_train"))
    test = torch.from_numpy(rows["X_test"].astype(np.float32))

    def scorer(rate: float) -> Scorer:
        def score(epsilon: float, delta: float, seed: int) -> np.ndarray:
            torch.manual_seed(seed)
            model = torch.nn.Linear(inputs.shape[1], 1)
            optimiser = torch.optim.SGD(model.parameters(), lr=rate)
            loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(inputs, targets), batch_size=512)
            model, optimiser, loader = PrivacyEngine().make_private_with_epsilon(
                module=model,
                optimizer=optimiser,
                data_loader=loader,
                epochs=10,
                target_epsilon=epsilon,
                target_delta=delta,
                max_grad_norm=1.0,
            )
            for _ in range(10):
                for batch, labels in loader:
                    optimiser.zero_grad()
                    torch.nn.functional.binary_cross_entropy_with_logits(model(batch)[:, 0], labels).backward()
                    optimiser.step()
            with torch.no_grad():
                return model(test)[:, 0].numpy()

        return score

    return {f"Opacus, learning rate {rate:g}": scorer(rate) for rate in RATES}


def run_dpdescent(folder: Path, public: dict[str, Any]) -> dict[str, Scorer]:
    from dpdescent import DPAdditiveClassifier, DPLogisticRegression

    rows = np.load(folder / "rows.npz")

    def scorer(kind: Any) -> Scorer:
        def score(epsilon: float, delta: float, seed: int) -> np.ndarray:
            model = kind(epsilon, delta, bounds=(0, 1), binary_features=public["binary"], classes=(0, 1))
            model.set_params(random_state=seed)
            return model.fit(rows["X_train"], rows["y_train"]).decision_function(rows["X_test"])

        return score

    return {
        "DPLogisticRegression": scorer(DPLogisticRegression),
        "DPAdditiveClassifier": scorer(DPAdditiveClassifier),
    }


LIBRARIES = {"dpdescent": run_dpdescent, "diffprivlib": run_diffprivlib}
LIBRARIES |= {"interpret": run_interpret, "opacus": run_opacus}


def child(library: str, folder: Path, epsilons: list[float], delta: float, seeds: int) -> None:
    """Fit every model of a library, and write the scores of the test rows."""
    warnings.simplefilter("ignore")
    public = json.loads((folder / "public.json").read_text())
    found: dict[str, np.ndarray] = {}
    for name, score in LIBRARIES[library](folder, public).items():
        for epsilon in epsilons:
            for seed in range(seeds):
                start = time.process_time()
                scores = np.asarray(score(epsilon, delta, seed), dtype=float)
                found[f"{name}|{epsilon:g}|{seed}"] = np.append(scores, time.process_time() - start)
    np.savez(folder / f"{library}.npz", **found)


def prepare(folder: Path, dataset: str) -> np.ndarray:
    """Write the rows and what is public about them; return the test labels."""
    from sklearn.model_selection import train_test_split

    from dpdescent import load_dataset

    data = load_dataset(dataset)
    assert data.schema is not None, "the table needs a schema"
    y = (data.y == data.classes[1]).astype(float)
    train, test = train_test_split(np.arange(y.size), test_size=0.2, random_state=0)
    np.savez(folder / "rows.npz", X_train=data.X[train], y_train=y[train], X_test=data.X[test])
    table = data.table[list(data.schema.features)]
    table.iloc[train].to_csv(folder / "train.csv", index=False)
    table.iloc[test].to_csv(folder / "test.csv", index=False)
    np.savetxt(folder / "labels.csv", y[train], fmt="%d", header="label", comments="")
    numeric = {column.name: (column.low, column.high) for column in data.schema.numeric}
    public = {
        "names": list(data.schema.features),
        "row_norm": float(np.sqrt(len(data.schema.features))),
        "types": ["continuous" if name in numeric else "nominal" for name in data.schema.features],
        "bounds": {name: list(ends) for name, ends in numeric.items()},
        "binary": np.asarray(data.binary_features).tolist(),
    }
    (folder / "public.json").write_text(json.dumps(public))
    return y[test]


def measures(truth: np.ndarray, scores: np.ndarray) -> tuple[float, float, float]:
    """Return accuracy, AUC and log-loss of the log-odds of test rows."""
    from sklearn.metrics import roc_auc_score

    losses = np.logaddexp(0, np.where(truth > 0, -scores, scores))
    return float(np.mean((scores > 0) == truth)), float(roc_auc_score(truth, scores)), float(losses.mean())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("diffprivlib", "interpret", "opacus"):
        parser.add_argument(f"--{name}", metavar="PYTHON", help=f"a Python that has {name}")
    parser.add_argument("--dataset", nargs="+", default=["adult-raw", "acs-income"])
    parser.add_argument("--epsilon", type=float, nargs="+", default=[0.1, 0.4, 1.6])
    parser.add_argument("--delta", type=float, default=1e-6)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the measurements here")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        child(arguments.child, arguments.folder, arguments.epsilon, arguments.delta, arguments.seeds)
        return

    pythons = {"dpdescent": sys.executable}
    pythons |= {name: getattr(arguments, name) for name in LIBRARIES if getattr(arguments, name, None)}
    measured = []
    for dataset in arguments.dataset:
        with tempfile.TemporaryDirectory() as name:
            folder = Path(name)
            truth = prepare(folder, dataset)
            print(f"{dataset}, {truth.size} test rows, delta {arguments.delta:g}, by epsilon:")
            print("  mean accuracy/AUC/log-loss (seconds)")
            for library, python in pythons.items():
                options = ["--epsilon", *map(str, arguments.epsilon), "--delta", str(arguments.delta)]
                options += ["--seeds", str(arguments.seeds), "--child", library, "--folder", name]
                subprocess.run([python, __file__, *options], check=True, env=os.environ | ONE_THREAD)
                found = np.load(folder / f"{library}.npz")
                for model in dict.fromkeys(key.split("|")[0] for key in found):
                    line = []
                    for epsilon in arguments.epsilon:
                        runs = [found[f"{model}|{epsilon:g}|{seed}"] for seed in range(arguments.seeds)]
                        means = np.mean([measures(truth, run[:-1]) for run in runs], axis=0).tolist()
                        seconds = float(np.mean([run[-1] for run in runs]))
                        line.append("/".join(f"{mean:.3f}" for mean in means) + f" ({seconds:.1f})")
                        at = {"dataset": dataset, "model": model, "epsilon": epsilon}
                        measured.append(at | dict(zip(MEASURES, means, strict=True)) | {"seconds": seconds})
                    print(f"  {model:<28}" + "".join(f"{cell:>26}" for cell in line), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(measured, indent=1) + "\n")


if __name__ == "__main__":
    main()
