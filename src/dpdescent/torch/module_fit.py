"""`fit`: train a module with privacy, in one call and four steps.

1. `validate` checks the method and what tunes it.
2. `PrivateTraining` reads the shapes of rows, plans all steps and refuses everything that can be refused.
3. `solve` buys the steps and takes them.
4. `state` writes the statement of everything that was released.

Nothing is charged in the first two steps.

**Privacy** Unit: one row. The steps are fixed beforehand and charged once, before any row is read, by their privacy
loss distribution (`dpdescent.accounting.FixedSchedule`). A resumed run takes no more than the steps that were
charged: those that may have begun before it was interrupted are given up. See `PrivateTraining`.

Examples
--------
>>> import torch
>>> from dpdescent.torch import fit
>>> rows = torch.utils.data.TensorDataset(torch.randn(300, 4), torch.randint(0, 2, (300,)))
>>> module = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
>>> result = fit(module, rows, torch.nn.CrossEntropyLoss(reduction="none"), epsilon=3.0, delta=1e-5)
>>> result.privacy_["epsilon"], len(result.history)
(3.0, 21)
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..errors import InvalidParameter, require_positive
from ..estimators.listening import listening
from ..estimators.payment import charges_noted
from ..ledger import Ledger
from ..solvers import Progress
from .checkpoint import Checkpoint
from .row_gradients import Loss
from .step_rules import MOST_STEPS, Auto, LineSearch, Method, Optimiser, StepRecord
from .training import PrivateTraining

_METHODS = ("auto", "blsgd", "sgd", "adam")
_LINE_SEARCH_CLIP = 3.0
_SAVES = 50


@dataclass(frozen=True)
class TrainingResult:
    """What a training has come to. All of it is released or public.

    Parameters
    ----------
    module : torch.nn.Module
        The module that was given, with its parameters trained.
    privacy_ : dict
        The privacy statement, as plain data.
    history : tuple of StepRecord
        Step sizes and lengths of noisy gradients.
    """

    module: nn.Module
    privacy_: dict[str, Any]
    history: tuple[StepRecord, ...]


def fit(
    module: nn.Module,
    dataset: Any,
    loss: Loss,
    *,
    epsilon: float,
    delta: float,
    method: str = "auto",
    batch_size: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    learning_rate: float | None = None,
    clip_norm: float | None = None,
    adjacency: str = "zero-out",
    ledger: Ledger | None = None,
    random_state: Any = None,
    noise: str = "exact",
    device: str | torch.device | None = None,
    progress: bool | Progress = False,
    checkpoint: str | os.PathLike[str] | None = None,
) -> TrainingResult:
    """Train a module on a data set with (epsilon, delta)-differential privacy for every row.

    Parameters
    ----------
    module, dataset, loss, epsilon, delta, batch_size, steps, epochs, adjacency, ledger, random_state, noise, device
        As in `PrivateTraining`.
    method : {"auto", "blsgd", "sgd", "adam"}
        See `dpdescent.torch.step_rules`. ``auto`` has nothing to tune.
    learning_rate, clip_norm : float, optional
        For ``sgd`` and ``adam``, which need both, and trying several of them on the same rows is not paid for.
        ``clip_norm`` also for ``blsgd``, where it is 3 by default.
    progress : bool or callable
        Show a bar, or call with the share of the steps that is done.
    checkpoint : path-like, optional
        A file from which an interrupted run goes on: call `fit` again with the same arguments, the same ledger or
        none as before, and a module of the same shape.
    """
    validate(method, learning_rate, clip_norm)
    training = PrivateTraining(
        module,
        dataset,
        loss,
        epsilon=epsilon,
        delta=delta,
        steps=steps,
        epochs=epochs,
        batch_size=batch_size,
        clip_norm=_LINE_SEARCH_CLIP if method == "blsgd" and clip_norm is None else clip_norm,
        search_steps=MOST_STEPS if method == "blsgd" else 0,
        adjacency=adjacency,
        ledger=ledger,
        random_state=random_state,
        noise=noise,
        device=device,
    )
    history = solve(training, method, learning_rate, checkpoint, progress)
    return state(training, method, history)


def validate(method: str, learning_rate: float | None, clip_norm: float | None) -> None:
    """Raise `InvalidParameter` unless a method of this name has what it needs, and nothing that it does not use."""
    if method not in _METHODS:
        raise InvalidParameter(f"unknown method {method!r}: choose one of {', '.join(map(repr, _METHODS))}")
    if method in ("sgd", "adam"):
        for name, value in (("learning_rate", learning_rate), ("clip_norm", clip_norm)):
            if value is None:
                raise InvalidParameter(f"method {method!r} needs {name}: give one, or use method 'auto'")
            require_positive(name, value)
    elif learning_rate is not None or (clip_norm is not None and method == "auto"):
        raise InvalidParameter(
            f"method {method!r} has no learning rate to tune{'' if method == 'blsgd' else ' and clips by itself'}: "
            "leave it out, or use method 'sgd' or 'adam'"
        )


def solve(
    training: PrivateTraining,
    method: str,
    learning_rate: float | None,
    checkpoint: str | os.PathLike[str] | None,
    progress: bool | Progress,
) -> list[StepRecord]:
    """Buy all steps that are planned and take them, or those that an interrupted run has left."""
    with listening(progress) as listener, charges_noted(training.ledger):
        rule = _make_rule(method, training, learning_rate)
        saved = None if checkpoint is None else Checkpoint(checkpoint, training, rule, method)
        history: list[StepRecord] = saved.begin() if saved is not None else []
        first, every = training.drawn, max(1, training.steps // _SAVES)
        for step in range(first, training.steps):
            if saved is not None and (step - first) % every == 0:
                # On the disk before the rows are read: a run that is resumed will not take these steps again.
                saved.start(step, every, history)
            history.append(rule.advance(step))
            if listener is not None:
                listener((step + 1) / training.steps)
        rule.finish()
        if saved is not None:
            saved.write(training.steps, history)
    return history


def state(training: PrivateTraining, method: str, history: list[StepRecord]) -> TrainingResult:
    """Return the trained module with the statement of everything that was released."""
    return TrainingResult(training.module, training.statement_of(method).to_dict(), tuple(history))


def _make_rule(method: str, training: PrivateTraining, learning_rate: float | None) -> Method:
    if method == "auto":
        return Auto(training)
    return LineSearch(training) if learning_rate is None else Optimiser(training, method, learning_rate)
