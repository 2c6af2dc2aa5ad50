"""Audits of other libraries, and of ours by the same recorders: python benchmarks/audit_others.py [NAME ...].

It runs with an interpreter that has the libraries and dpdescent:

    python -m venv /tmp/others
    /tmp/others/bin/pip install . opacus diffprivlib==0.6.6 'scikit-learn<1.7'
    /tmp/others/bin/python benchmarks/audit_others.py --runs 2000

An estimator with `fit` publishes its fitted numbers (`Fitted`); a training by Opacus the noisy gradient of every
step (`OpacusSteps`). Each subject names its pair of tables, chosen with its code in view. A bound above the claim
refutes it with the stated confidence. One below it says only that this test found nothing on this pair.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpdescent.audit import audit

CONFIDENCE = 0.99


@dataclass(frozen=True)
class Fitted:
    """The numbers that an estimator has after a fit, whoever wrote it.

    Parameters
    ----------
    kind : class
        That of the estimator; it is made with a ``random_state``.
    names : tuple of str
        The attributes that a person would publish.
    options : mapping
        Other arguments of the class.
    """

    kind: Callable[..., Any]
    names: tuple[str, ...]
    options: dict[str, Any]

    def __call__(self, table: tuple[np.ndarray, np.ndarray | None], seed: int) -> np.ndarray:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = self.kind(**self.options, random_state=seed % 2**32)
            model.fit(*(each for each in table if each is not None))
        return np.concatenate([np.ravel(np.asarray(getattr(model, name), dtype=float)) for name in self.names])


@dataclass(frozen=True)
class OpacusSteps:
    """The noisy gradients of a linear model that Opacus trains, one per step.

    Parameters
    ----------
    noise_multiplier, batch_size, epochs
        As in Opacus.
    poisson : bool
        Whether it draws Poisson batches, as its accountants assume, or shuffles.
    weights : int
        Length of the rows.
    """

    noise_multiplier: float
    batch_size: int
    epochs: int = 1
    poisson: bool = True
    weights: int = 1

    def __call__(self, table: tuple[np.ndarray, np.ndarray], seed: int) -> np.ndarray:
        import torch

        torch.manual_seed(seed)
        torch.set_num_threads(1)
        released: list[np.ndarray] = []
        model, optimiser, loader, _ = self._private(table)
        optimiser.attach_step_hook(lambda each: released.append(each.params[0].grad.numpy().ravel().copy()))
        for _ in range(self.epochs):
            for rows, _targets in loader:
                optimiser.zero_grad()
                if len(rows):
                    model(rows).sum().backward()  # the gradient of a row is the row
                    optimiser.step()
        return np.concatenate(released) if released else np.zeros(0)

    def _private(self, table: tuple[np.ndarray, np.ndarray]) -> Any:
        import torch
        from opacus import PrivacyEngine

        rows, targets = (torch.from_numpy(each.astype(np.float32)) for each in table)
        model = torch.nn.Linear(self.weights, 1, bias=False)
        data = torch.utils.data.TensorDataset(rows, targets)
        engine = PrivacyEngine()
        private = engine.make_private(
            module=model,
            optimizer=torch.optim.SGD(model.parameters(), lr=0.0),
            data_loader=torch.utils.data.DataLoader(data, batch_size=self.batch_size),
            noise_multiplier=self.noise_multiplier,
            max_grad_norm=1.0,
            poisson_sampling=self.poisson,
        )
        return *private, engine

    def claimed(self, table: tuple[np.ndarray, np.ndarray], delta: float) -> float:
        """Return the epsilon that Opacus states for its steps on this table."""
        _, _, loader, engine = self._private(table)
        engine.accountant.history = [(self.noise_multiplier, 1 / len(loader), len(loader) * self.epochs)]
        return float(engine.get_epsilon(delta))


@dataclass(frozen=True)
class Case:
    """What is audited, on which pair of tables, and what it claims."""

    function: Callable[..., Any]
    tables: tuple[Any, Any]
    epsilon: float
    delta: float = 0.0
    known: str = ""
    score: Callable[[Any], float] | None = None


def _table(rows: list[list[float]], targets: list[float] | None = None) -> tuple[np.ndarray, np.ndarray | None]:
    return np.array(rows, dtype=float), None if targets is None else np.array(targets)


def diffprivlib_cases(epsilon: float = 1.0) -> dict[str, Case]:
    """Return models of diffprivlib on tables of ten rows of which one is replaced."""
    from diffprivlib.models import GaussianNB, LinearRegression, LogisticRegression, StandardScaler

    zeros = [[0.0]] * 9
    pair = _table([*zeros, [0.0]], [0.0] * 10), _table([*zeros, [1.0]], [0.0] * 10)
    cells, labels = [[-1.0]] * 5 + [[1.0]] * 5, [0] * 5 + [1] * 5
    swapped = _table(cells, labels), _table([[1.0], *cells[1:]], labels)
    unlabelled = _table(cells), _table([[1.0], *cells[1:]])
    known = "the sensitivity of x squared takes the lower bound alone (its issues 104 and 105)"
    straight = {"epsilon": epsilon, "fit_intercept": False, "bounds_y": (-1.0, 1.0)}
    bounded = {"epsilon": epsilon, "bounds": (-1.0, 1.0)}
    logistic = Fitted(LogisticRegression, ("coef_", "intercept_"), {"epsilon": epsilon, "data_norm": 1.5})
    bayes = Fitted(GaussianNB, ("theta_", "var_"), {**bounded, "priors": [0.5, 0.5]})
    cases = {
        f"LinearRegression, X from {low:g} to 1": Case(
            Fitted(LinearRegression, ("coef_",), {**straight, "bounds_X": (low, 1.0)}),
            pair,
            epsilon,
            known=said,
            score=_smallness,
        )
        for low, said in ((0.0, known), (-1.0, ""))
    }
    cases["LogisticRegression"] = Case(logistic, swapped, epsilon)
    cases["GaussianNB"] = Case(bayes, swapped, epsilon)
    cases["StandardScaler"] = Case(Fitted(StandardScaler, ("mean_", "var_"), bounded), unlabelled, epsilon)
    return {f"diffprivlib {name}": case for name, case in cases.items()}


def _smallness(released: np.ndarray) -> float:
    """Return how small the numbers are: a row with x = 1 is what keeps a line from being steep."""
    return -float(np.log1p(np.abs(released)).sum())


def opacus_cases(delta: float = 1e-5) -> dict[str, Case]:
    """Return linear models of Opacus on tables with and without one row."""

    def case(steps: OpacusSteps, others: np.ndarray, known: str = "") -> Case:
        row = np.zeros((1, steps.weights))
        row[0, 0] = 1.0
        both = others, np.concatenate([others, row])
        tables = tuple((each, np.zeros((len(each), 1))) for each in both)
        claimed = max(steps.claimed(table, delta) for table in tables)
        return Case(steps, tables, claimed, delta, known)

    few = "divides by the number of rows that it holds (its issues 571 and 819)"
    shuffled = "shuffles, and accounts for Poisson batches (its issues 80 and 128)"
    return {
        "Opacus, one step of 1,000 rows": case(OpacusSteps(4.0, 2000), np.zeros((1000, 1))),
        "Opacus, one step of 2 rows": case(OpacusSteps(4.0, 16, weights=200), _ones(2, 200), few),
        "Opacus, 10 batches of 5 rows": case(OpacusSteps(0.8, 5, poisson=False), -np.ones((49, 1)), shuffled),
    }


def _ones(rows: int, weights: int) -> np.ndarray:
    """Return rows of length 1 that all point the same way, which no other row shares."""
    table = np.zeros((rows, weights))
    table[:, 1:] = 1 / np.sqrt(weights - 1)
    return table


def our_cases(epsilon: float = 1.0, delta: float = 1e-5) -> dict[str, Case]:
    """Return our estimators on larger tables of the same kind."""
    from dpdescent import DPLinearRegression, DPLogisticRegression

    cells, labels = [[-1.0]] * 100 + [[1.0]] * 100, [0] * 100 + [1] * 100
    swapped = _table([[-1.0], *cells[1:]], [1, *labels[1:]]), _table([[1.0], *cells[1:]], labels)
    zeros = [[0.0]] * 199
    pair = _table([*zeros, [0.0]], [0.0] * 200), _table([*zeros, [1.0]], [0.0] * 199 + [1.0])
    promise = {"epsilon": epsilon, "delta": delta, "adjacency": "replace-one"}
    names = ("coef_", "intercept_")
    logistic = Fitted(DPLogisticRegression, names, {**promise, "bounds": (-1, 1), "classes": (0, 1)})
    linear = Fitted(DPLinearRegression, names, {**promise, "bounds": (0, 1), "target_bounds": (-1, 1)})
    return {
        "ours, DPLogisticRegression": Case(logistic, swapped, epsilon, delta),
        "ours, DPLinearRegression": Case(linear, pair, epsilon, delta),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="words that the names of subjects contain; all by default")
    parser.add_argument("--runs", type=int, default=2000, help="on each of the two tables")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the findings here")
    arguments = parser.parse_args()
    found = {}
    for needs, cases in (("diffprivlib", diffprivlib_cases), ("opacus", opacus_cases), ("dpdescent", our_cases)):
        if importlib.util.find_spec(needs) is None:
            print(f"{needs} is not installed here")
            continue
        for name, case in cases().items():
            if arguments.names and not any(word.lower() in name.lower() for word in arguments.names):
                continue
            report = audit(
                case.function,
                *case.tables,
                epsilon=case.epsilon,
                delta=case.delta,
                runs=arguments.runs,
                score=case.score,
                confidence=CONFIDENCE,
                seed=1,
            )
            verdict = "REFUTED" if report.refuted else "not refuted"
            print(
                f"{name}: claims epsilon {case.epsilon:.3g} at delta {case.delta:g}, at least "
                f"{report.lower_bound:.3g} with confidence {CONFIDENCE:.0%}: {verdict}. {report.test}; "
                f"{report.seconds:.0f} s. {case.known}",
                flush=True,
            )
            found[name] = {"claimed": case.epsilon, "bound": report.lower_bound, "refuted": report.refuted}
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
