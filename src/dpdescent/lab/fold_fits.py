"""One cell of a comparison: a method fitted to one training fold at one epsilon, and scored on the rest."""

from __future__ import annotations

import hashlib
import json
import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import log_softmax, softmax
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import KFold

from ..arrays import Floats
from ..datasets import Dataset, load_dataset
from ..errors import DPDescentError, InvalidParameter
from ..estimators import DPLinearSVC, DPLogisticRegression
from ..estimators.scaling import ColumnScaling
from ..problems import Hinge
from ..queries import FirstStep, Gradient
from ..solvers import METHODS, BLSGDSettings, Facts, batch_rates
from ..tables import Schema

#: The estimator of each loss.
LOSSES = {"logistic": DPLogisticRegression, "svm": DPLinearSVC}


@dataclass(frozen=True)
class Task:
    """What is learnt."""

    dataset: str  # a name or a path, as for `load_dataset`
    loss: str = "logistic"
    rows: int | None = None  # take this many rows, the same ones in every cell
    schema: str | None = None  # the public schema of a file of the caller's own, as JSON text

    @property
    def public(self) -> bool:
        """Whether the rows are public, as those of a named data set are."""
        return self.schema is None


@dataclass(frozen=True)
class Curve:
    """One line of a comparison: a method with its options."""

    name: str  # what its rows carry in ``method``
    method: str  # the registered method
    options: Mapping[str, Any] = field(default_factory=dict)  # its ``solver_options``
    batch_size: int | None = None  # expected rows of a batch; becomes the option ``batch_rate``
    #: The setting that a study of one parameter varies, and its value, which joins the options.
    parameter: str = ""
    value: float | str | None = None
    private: bool = True  # whether epsilon matters to it
    #: Whether the best of its options on the test data will be kept: not private.
    oracle: bool = False


@dataclass(frozen=True)
class Cell:
    """One fit, fully determined."""

    task: Task
    curve: Curve
    epsilon: float
    delta: float
    fold: int
    folds: int
    seed: int
    alpha: float
    adjacency: str

    @property
    def key(self) -> str:
        """What tells this cell from every other: also the source of its noise."""
        settings = asdict(self)
        if self.task.schema is None:  # so that the noise of published figures stays what it is
            del settings["task"]["schema"]
        return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:24]


@dataclass(frozen=True)
class Row:
    """What was measured in a cell; None where there is nothing to report.

    ``accuracy`` and ``auc`` are those of the test fold, ``objective`` is the mean loss plus penalty on the training
    fold, ``seconds`` the processor time of the fit, ``n`` the rows it was trained on, and ``spent_epsilon`` what
    its own ledger says. ``gradient_passes`` and ``loss_passes`` say how often the gradient and the loss of a row were
    evaluated on average, for a line search. ``error`` names the refusal of a method that cannot do what was asked.
    """

    dataset: str
    method: str
    epsilon: float
    delta: float
    fold: int
    seed: int
    accuracy: float | None = None
    auc: float | None = None
    objective: float | None = None
    seconds: float | None = None
    n: int | None = None
    d: int | None = None
    spent_epsilon: float | None = None
    loss: str = "logistic"
    adjacency: str = "zero-out"
    oracle: bool = False
    private: bool = True
    iterations: int | None = None
    gradient_passes: float | None = None
    loss_passes: float | None = None
    parameter: str = ""
    value: float | str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)
    currency: str = ""
    mechanisms: Mapping[str, int] = field(default_factory=dict)
    randomness: str = ""
    remarks: Sequence[str] = ()
    error: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "remarks", tuple(self.remarks))  # JSON brings back a list


def load_task(task: Task, *, download: bool = False) -> Dataset:
    """Return the data of a task, with its rows taken."""
    schema: dict[str, Any] = {} if task.schema is None else {"schema": Schema.from_dict(json.loads(task.schema))}
    data = load_dataset(task.dataset, download=download, **schema)
    if not data.classes:
        raise InvalidParameter(f"data set {task.dataset!r} has no classes: a comparison needs a classification task")
    if task.rows is None or task.rows >= len(data.y):
        return data
    kept = np.sort(np.random.default_rng(0).permutation(len(data.y))[: task.rows])
    return replace(data, X=data.X[kept], y=data.y[kept], table=None, split=None)


# Cells come data set by data set and fold by fold, so one of each in memory is enough.
_loaded = lru_cache(maxsize=1)(load_task)


@lru_cache(maxsize=1)
def _parts(task: Task, folds: int, fold: int, seed: int) -> tuple[Any, NDArray[Any], Any, NDArray[Any]]:
    """Return the rows and labels of the training part, and those of the test part."""
    data = _loaded(task)
    split = KFold(folds, shuffle=True, random_state=seed).split(data.X)
    train, test = next(pair for number, pair in enumerate(split) if number == fold)
    return data.X[train], data.y[train], data.X[test], data.y[test]


def measure(cell: Cell) -> Row:
    """Fit and score one cell. A refusal by a named error becomes its row; anything else is a fault and is raised."""
    task, curve = cell.task, cell.curve
    rows = replace(task, loss="logistic")
    data = _loaded(rows)
    X, y, X_test, y_test = _parts(rows, cell.folds, cell.fold, cell.seed)
    options = dict(curve.options)
    if curve.parameter:
        options[curve.parameter] = curve.value
    if curve.batch_size is not None:
        options["batch_rate"] = min(1.0, curve.batch_size / y.size)
    known = _known(cell, options, int(y.size), int(data.X.shape[1]))
    model = _model(cell, options, data)
    start = time.process_time()
    try:
        model.fit(X, y)
    except DPDescentError as refusal:
        return Row(**known, error=f"{type(refusal).__name__}: {refusal}")
    seconds = time.process_time() - start
    privacy = model.privacy_
    private = curve.private and not curve.oracle
    return Row(
        **known,
        accuracy=float(model.score(X_test, y_test)),
        auc=_auc(model.decision_function(X_test), y_test, model.classes_),
        objective=_finite(_objective(model, X, y, task.loss, cell.alpha)),
        seconds=seconds,
        spent_epsilon=_finite(privacy["spent_epsilon"]) if private else None,
        iterations=int(model.n_iter_),
        **_passes(cell, options, privacy["asked"], *X.shape),
        currency=privacy["currency"]["name"] if curve.private else "",
        mechanisms=dict(privacy["mechanisms"]),
        randomness=str(privacy["randomness"]),
        remarks=tuple(privacy["remarks"]),
    )


def _known(cell: Cell, options: Mapping[str, Any], rows: int, columns: int) -> dict[str, Any]:
    """Return what a row says of its cell before anything is measured."""
    task, curve = cell.task, cell.curve
    return {
        "dataset": task.dataset,
        "method": curve.name,
        "epsilon": cell.epsilon,
        "delta": cell.delta,
        "fold": cell.fold,
        "seed": cell.seed,
        "n": rows,
        "d": columns,
        "loss": task.loss,
        "adjacency": cell.adjacency,
        "oracle": curve.oracle,
        "private": curve.private,
        "parameter": curve.parameter,
        "value": curve.value,
        "options": options,
    }


def _model(cell: Cell, options: Mapping[str, Any], data: Dataset) -> Any:
    """Return the estimator of a cell, with noise that follows from the cell alone."""
    task, curve = cell.task, cell.curve
    kind: dict[str, Any] = {"loss": "hinge"} if task.loss == "svm" and _takes_hinge(curve) else {}
    return LOSSES[task.loss](
        cell.epsilon,
        cell.delta,
        method=curve.method,
        adjacency=cell.adjacency,
        bounds=data.bounds,
        tighten=False,
        binary_features=data.binary_features,
        alpha=cell.alpha,
        classes=data.classes,
        random_state=int(cell.key[:7], 16),
        solver_options=options,
        **kind,
    )


def _takes_hinge(curve: Curve) -> bool:
    """Return whether a curve is a paper mode of a method that can minimise the hinge itself, as the papers do."""
    method = METHODS[curve.method]
    return bool(curve.options.get("paper")) and method.private and method.needs <= Hinge().offers


def _passes(
    cell: Cell, options: Mapping[str, Any], asked: Mapping[str, int], rows: int, columns: int
) -> dict[str, Any]:
    """Return how often a row's gradient and loss were evaluated: the queries asked, times the share of the rows.

    A search evaluates all of its steps, and where it starts from, in one pass.
    """
    settings = METHODS[cell.curve.method].settings(**options)
    if not isinstance(settings, BLSGDSettings):
        return {}
    gradient, search = batch_rates(settings, Facts(cell.epsilon, cell.delta, cell.adjacency, rows, columns + 1))
    steps = int(settings.max_steps or 0) + 1
    return {
        "gradient_passes": gradient * sum(count for label, count in asked.items() if Gradient.label in label),
        "loss_passes": steps * search * sum(count for label, count in asked.items() if FirstStep.label in label),
    }


def _objective(model: Any, X: Any, y: Any, loss: str, alpha: float) -> float:
    """Return the mean loss plus penalty that the model reaches on the rows it was trained on."""
    scores = np.asarray(model.decision_function(X))
    index = np.searchsorted(model.classes_, y)
    if scores.ndim == 2:
        mean = -log_softmax(scores, axis=1)[np.arange(len(index)), index].mean()
    else:
        margins = np.where(index == 1, scores, -scores)
        mean = (np.logaddexp(0, -margins) if loss == "logistic" else np.maximum(0, 1 - margins)).mean()
    # The penalty is on the weights of the scaled columns.
    weights = model.coef_ * ColumnScaling(*model.bounds_).scale
    return float(mean + alpha / 2 * np.sum(weights**2))


def _auc(scores: Floats, y: NDArray[Any], classes: NDArray[Any]) -> float | None:
    if np.unique(y).size < len(classes) or not np.isfinite(scores).all():
        return None
    if scores.ndim == 1:
        return float(roc_auc_score(y == classes[1], scores))
    return float(roc_auc_score(y, softmax(scores, axis=1), multi_class="ovr", labels=classes))


def _finite(value: Any) -> float | None:
    return float(value) if value is not None and math.isfinite(value) else None
