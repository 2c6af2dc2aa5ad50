"""`fit`: train a module with privacy, in one call."""

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
from .gradients import Loss
from .methods import MOST_STEPS, Auto, LineSearch, Method, Optimiser, StepRecord
from .training import PrivateTraining

__all__ = ["TrainingResult", "fit"]

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
    module : torch.nn.Module
        Trained in place, as an optimiser of torch would, in the mode it is in. Its buffers stay as they are.
    dataset : TensorDataset, pair of arrays, or map-style Dataset
        Rows are tuples of one or more inputs and a target, each of the shape and type that it has in the first row:
        pad sequences to one length. Rows of another shape add nothing, and nobody is told.
    loss : callable
        Maps outputs and targets to one number for each row, for instance
        ``torch.nn.CrossEntropyLoss(reduction="none")``.
    epsilon, delta : float
        The guarantee.
    method : {"auto", "blsgd", "sgd", "adam"}
        See `dpdescent.torch.methods`. ``auto`` has nothing to tune. ``sgd`` and ``adam`` need a learning rate and a
        clip norm, and trying several of them on the same rows is not paid for.
    batch_size : int, optional
        The expected number of rows in a batch; by default sqrt(2 n epochs), where ``steps`` count as 3 epochs.
    steps : int, optional
        How many steps. By default, as many as make up ``epochs``.
    epochs : float, optional
        How often each row is read on average; 3 by default. Give this or ``steps``.
    learning_rate, clip_norm : float, optional
        For ``sgd`` and ``adam``; ``clip_norm`` also for ``blsgd``, where it is 3 by default.
    adjacency : {"zero-out", "replace-one"}
        What one row may change.
    ledger : Ledger, optional
        An account that pays as well, for instance one shared by several fits.
    random_state : int, optional
        Repeats a run; not for release.
    noise : {"exact", "float"}
        Exact noise on a lattice, or ordinary floating-point noise, which is faster and whose guarantee is that of
        real numbers only.
    device : str or torch.device, optional
        Where the module must be.
    progress : bool or callable
        Show a bar, or call with the share of the steps that is done.
    checkpoint : path-like, optional
        A file from which an interrupted run goes on. Call `fit` again with the same arguments, the same ledger or
        none as before, and a module of the same shape.

    Returns
    -------
    TrainingResult

    Notes
    -----
    **Privacy** Unit: one row. The steps are fixed beforehand and charged once, before any row is read, by their
    privacy loss distribution (`dpdescent.accounting.FixedSchedule`). A resumed run takes no more than the steps that
    were charged: those that may have begun before it was interrupted are given up. See `PrivateTraining`.

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
    if method not in _METHODS:
        raise InvalidParameter(f"unknown method {method!r}: choose one of {', '.join(map(repr, _METHODS))}")
    _require_tuning(method, learning_rate, clip_norm)
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
    with listening(progress) as listener, charges_noted(training.ledger):
        history = _run(training, _make_method(method, training, learning_rate), method, checkpoint, listener)
    return TrainingResult(module, training.stated(method).to_dict(), tuple(history))


def _run(
    training: PrivateTraining,
    rule: Method,
    name: str,
    path: str | os.PathLike[str] | None,
    progress: Progress | None,
) -> list[StepRecord]:
    saved = None if path is None else Checkpoint(path, training, rule, name)
    history: list[StepRecord] = saved.begin() if saved is not None else []
    first, every = training.drawn, max(1, training.steps // _SAVES)
    for step in range(first, training.steps):
        if saved is not None and (step - first) % every == 0:
            # On the disk before the rows are read: a run that is resumed will not take these steps again.
            saved.start(step, every, history)
        history.append(rule.advance(step))
        if progress is not None:
            progress((step + 1) / training.steps)
    rule.finish()
    if saved is not None:
        saved.write(training.steps, history)
    return history


def _require_tuning(method: str, learning_rate: float | None, clip_norm: float | None) -> None:
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


def _make_method(method: str, training: PrivateTraining, learning_rate: float | None) -> Method:
    if method == "auto":
        return Auto(training)
    return LineSearch(training) if learning_rate is None else Optimiser(training, method, learning_rate)
