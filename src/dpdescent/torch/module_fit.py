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

A run that can be stopped at any time and goes on later, with what it was charged for and no more.

A checkpoint holds the parameters after some step and the number of steps that may have begun since. It is on the disk
before the rows of those steps are read. Whoever resumes goes on after them: their answers are lost, and their charge
stands, so that no step is ever taken twice. The charge itself carries the name of the run, by which an account tells
that it has paid already. The account also notes which steps have begun, so that a copy of a checkpoint does not take
them once more. The file therefore names its account, and goes on with no other and not without it. A run that never
had an account has a file without a name: nobody can tell its copies, and each that is resumed is a run with a budget
of its own.
"""

from __future__ import annotations

import os
import tempfile
import uuid
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import nn

from ..curator.release import note
from ..errors import InvalidParameter, OutputNotWritable, RowsWarning, RunInProgress, require_positive
from ..estimators.arguments import listening
from ..estimators.payment import charges_noted
from ..ledger import Ledger
from ..solvers import Progress
from .row_gradients import Loss
from .step_rules import MOST_STEPS, PAPER_STEPS, Auto, LineSearch, Method, Optimiser, PaperLineSearch, StepRecord
from .training import PrivateTraining

_METHODS = ("auto", "blsgd", "blsgd-paper", "sgd", "adam")
_SEARCHES = {"blsgd": (MOST_STEPS, "laplace"), "blsgd-paper": (PAPER_STEPS, "gaussian")}
_ADDING = ("auto", "sgd")  # whose weights are sums of gradients
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
    loss: Loss | None,
    *,
    epsilon: float | None = None,
    delta: float,
    noise_multiplier: float | None = None,
    method: str = "auto",
    batch_size: int | None = None,
    steps: int | None = None,
    epochs: float | None = None,
    learning_rate: float | None = None,
    clip_norm: float | None = None,
    bands: int | None = None,
    adjacency: str = "zero-out",
    ledger: Ledger | None = None,
    random_state: Any = None,
    noise: str = "exact",
    device: str | torch.device | None = None,
    progress: bool | Progress = False,
    checkpoint: str | os.PathLike[str] | None = None,
    classes: int | Sequence[int] | None = None,
    targets: str | Sequence[str] | None = None,
    views: int = 1,
    after_step: Callable[[StepRecord, nn.Module], object] | None = None,
) -> TrainingResult:
    """Train a module on a data set with (epsilon, delta)-differential privacy for every row.

    Parameters
    ----------
    module, dataset, loss, epsilon, delta, noise_multiplier, batch_size, steps, epochs, adjacency, ledger, \
random_state, noise, device, classes, targets, views
        As in `PrivateTraining`.
    method : {"auto", "blsgd", "blsgd-paper", "sgd", "adam"}
        See `dpdescent.torch.step_rules`. ``auto`` has nothing to tune.
    learning_rate, clip_norm : float, optional
        For ``sgd`` and ``adam``, which need both, and trying several of them on the same rows is not paid for.
        ``clip_norm`` also for both kinds of ``blsgd``, where it is 3 by default.
    bands : int, optional
        Over how many steps noise is correlated. By default ``auto`` and ``sgd`` take the number with the least noise
        of weights, which follows from the budget, the steps and the batches, and the others 1: independent noise.
    progress : bool or callable
        Show a bar, or call with the share of the steps that is done.
    checkpoint : path-like, optional
        A file from which an interrupted run goes on: call `fit` again with the same arguments, the same ledger or
        none as before, and a module of the same shape.
    after_step : callable, optional
        Called after each step with its `StepRecord` and the module, for instance to evaluate it on public rows.
    """
    validate(method, learning_rate, clip_norm)
    search_steps, search_noise = _SEARCHES.get(method, (0, "laplace"))
    training = PrivateTraining(
        module,
        dataset,
        loss,
        epsilon=epsilon,
        delta=delta,
        noise_multiplier=noise_multiplier,
        steps=steps,
        epochs=epochs,
        batch_size=batch_size,
        clip_norm=_LINE_SEARCH_CLIP if method in _SEARCHES and clip_norm is None else clip_norm,
        search_steps=search_steps,
        search_noise=search_noise,
        bands=1 if bands is None and method not in _ADDING else bands,
        adjacency=adjacency,
        ledger=ledger,
        random_state=random_state,
        noise=noise,
        device=device,
        classes=classes,
        targets=targets,
        views=views,
    )
    history = solve(training, method, learning_rate, checkpoint, progress, after_step)
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
            f"method {method!r} has no learning rate to tune{'' if method in _SEARCHES else ' and clips by itself'}: "
            "leave it out, or use method 'sgd' or 'adam'"
        )


def solve(
    training: PrivateTraining,
    method: str,
    learning_rate: float | None,
    checkpoint: str | os.PathLike[str] | None,
    progress: bool | Progress,
    after_step: Callable[[StepRecord, nn.Module], object] | None = None,
) -> list[StepRecord]:
    """Buy all steps that are planned and take them, or those that an interrupted run has left."""
    with listening(progress) as listener, charges_noted(training.ledger):
        rule = _make_rule(method, training, learning_rate)
        saved = None if checkpoint is None else Checkpoint(checkpoint, training, rule, method)
        history: list[StepRecord] = saved.begin() if saved is not None else []
        first, every = training.drawn, saving_period(training)
        for step in range(first, training.steps):
            if saved is not None and (step - first) % every == 0:
                # On the disk before the rows are read: a run that is resumed will not take these steps again.
                saved.start(step, every, history)
            history.append(rule.advance(step))
            if after_step is not None:
                after_step(history[-1], training.module)
            if listener is not None:
                listener((step + 1) / training.steps)
        rule.finish()
        if saved is not None:
            saved.write(training.steps, history)
    return history


def saving_period(training: PrivateTraining) -> int:
    """Return how many steps begin between two writings of a checkpoint: whole cycles, so that none is lost."""
    bands = training.plan.bands.count
    return bands * max(1, training.steps // (_SAVES * bands))


def state(training: PrivateTraining, method: str, history: list[StepRecord]) -> TrainingResult:
    """Return the trained module with the statement of everything that was released."""
    if training.absence is not None:
        warnings.warn(training.absence, RowsWarning, stacklevel=3)
    return TrainingResult(training.module, training.statement_of(method).to_dict(), tuple(history))


def _make_rule(method: str, training: PrivateTraining, learning_rate: float | None) -> Method:
    if method == "auto":
        return Auto(training)
    if method == "blsgd-paper":
        return PaperLineSearch(training)
    return LineSearch(training) if learning_rate is None else Optimiser(training, method, learning_rate)


_FORMAT, _VERSION = "dpdescent-training", 5


class HasState(Protocol):
    """What a later run needs to go on, as tensors and plain data."""

    def state(self) -> dict[str, Any]:
        """Return it."""

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from it."""


class Checkpoint:
    """The file of one run.

    ``method`` is the name of the ``rule``.

    **Privacy** Everything in the file is a released answer or public. Noise that later steps take back, and the
    groups of rows, are in no file: a run that goes on draws others, from a step at which this costs nothing.
    """

    def __init__(
        self, path: str | os.PathLike[str], training: PrivateTraining, rule: Method | HasState, method: str
    ) -> None:
        self._path = Path(path)
        self._training, self._rule = training, rule
        plan = training.plan
        self._settings = {
            "method": method,
            "epsilon": float(plan.epsilon),
            "private": training.private,
            "delta": float(plan.delta),
            "schedule": repr(plan.schedule.to_dict()),
            "steps": plan.steps,
            "bands": list(plan.bands.numerators),
            "rows": plan.sampling.rows,
            "relation": str(plan.relation),
            "clip": [plan.clipping.norm, plan.clipping.loss],
            "shapes": [list(each.shape) for each in training.parameters],
        }
        self._run = uuid.uuid4().hex
        self._account = None if training.account is None else training.account.identity

    def begin(self) -> list[StepRecord]:
        """Start a file or go on from one, charge unless that was done, and return the history so far."""
        history: list[StepRecord] = []
        if self._path.exists():
            history = self._restore(self._read())
        else:
            self.write(0, history)
        self._training.buy_steps(f"training {self._run}")
        return history

    def start(self, step: int, count: int, history: list[StepRecord]) -> None:
        """Note that ``count`` steps from ``step`` on begin, on the disk and in the account, before rows are read."""
        until = min(step + count, self._training.steps)
        self.write(until, history)
        account, label = self._training.account, f"training {self._run} from step {step}"
        self._training.begun = until
        if account is None:
            return
        # An account takes down one note after the other, so that of two equal ones only one is the first.
        note(account, label)
        if sum(entry.label == label for entry in account.entries) > 1:
            raise RunInProgress(
                "these steps of the run have begun already, from this checkpoint or a copy of it, and are paid for "
                "once: give another name to start anew"
            )

    def write(self, begun: int, history: list[StepRecord]) -> None:
        """Put the present state on the disk, and with it how many steps may have begun before the next one."""
        content = {
            "format": _FORMAT,
            "version": _VERSION,
            "run": self._run,
            "account": self._account,
            "settings": self._settings,
            "begun": begun,
            "parameters": [each.detach() for each in self._training.parameters],
            "state": self._rule.state(),
            "absence": self._training.absence,
            "history": [list(astuple(each)) for each in history],
        }
        try:
            descriptor, draft = tempfile.mkstemp(prefix=".checkpoint-", dir=self._path.absolute().parent)
        except OSError as problem:
            raise OutputNotWritable(f"no checkpoint can be written at {self._path}: {problem.strerror}") from None
        try:
            with os.fdopen(descriptor, "wb") as file:
                torch.save(content, file)
                file.flush()
                os.fsync(file.fileno())
            os.replace(draft, self._path)
        except BaseException:
            os.unlink(draft)
            raise
        _sync_folder(self._path.absolute().parent)

    def _read(self) -> dict[str, Any]:
        try:
            content = torch.load(self._path, weights_only=True)
        except Exception:
            content = None
        if not isinstance(content, dict) or content.get("format") != _FORMAT or content.get("version") != _VERSION:
            raise InvalidParameter(f"{self._path} is no checkpoint of this version: give another name to start anew")
        return content

    def _require_account(self, named: str | None) -> None:
        """Refuse to go on with another account, or with none: steps would be taken twice for one charge."""
        if named == self._account:
            return
        if named is None:
            raise InvalidParameter(
                f"the checkpoint {self._path} is of a run without a ledger: leave ledger= out, or give another name "
                "to start anew"
            )
        raise InvalidParameter(
            f"the run of the checkpoint {self._path} was charged to the ledger {named}: open that ledger and pass it "
            "as ledger=, or give another name to start anew"
        )

    def _restore(self, content: dict[str, Any]) -> list[StepRecord]:
        self._require_account(content["account"])  # first, since another account may plan another schedule
        changed = [name for name, value in self._settings.items() if content["settings"].get(name) != value]
        if changed:
            raise InvalidParameter(
                f"the checkpoint {self._path} is of a run with another {changed[0]}: repeat the call with the same "
                "arguments, or give another name to start anew"
            )
        self._run = content["run"]
        with torch.no_grad():
            for each, saved in zip(self._training.parameters, content["parameters"], strict=True):
                each.copy_(saved)
        self._rule.restore(content["state"])
        self._training.skip_to(int(content["begun"]))
        self._training.absence = content["absence"]
        return [StepRecord(int(step), float(size), float(norm)) for step, size, norm in content["history"]]


def resumable_steps(training: PrivateTraining, checkpoint: str | os.PathLike[str], *parts: Any) -> Iterator[int]:
    """Yield the numbers of the steps of a loop of your own that are left, so that it can be stopped and go on later.

    Parameters
    ----------
    training : PrivateTraining
        As it was when the file was begun: the same arguments and the same ledger.
    checkpoint : path-like
        The file. It holds the parameters, and what the ``parts`` return as their state.
    *parts : objects with ``state_dict`` and ``load_state_dict``
        Optimisers and schedulers, which are put back as well.

    Notes
    -----
    **Privacy** As in `fit`: steps are on the disk as begun before their rows are read, and none is taken twice.

    Examples
    --------
    >>> import tempfile
    >>> import torch
    >>> from dpdescent.torch import PrivateTraining, resumable_steps
    >>> rows = torch.utils.data.TensorDataset(torch.randn(200, 3), torch.randint(0, 2, (200,)))
    >>> loss = torch.nn.CrossEntropyLoss(reduction="none")
    >>> module = torch.nn.Linear(3, 2)
    >>> training = PrivateTraining(module, rows, loss, epsilon=3.0, delta=1e-9, steps=5)
    >>> optimiser = torch.optim.SGD(module.parameters(), lr=0.1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     for step in resumable_steps(training, f"{folder}/run.pt", optimiser):
    ...         training.draw()
    ...         _ = training.gradient()
    ...         optimiser.step()
    >>> step
    4
    """
    saved = Checkpoint(checkpoint, training, _Parts(parts), "own loop")
    saved.begin()
    first, every = training.drawn, saving_period(training)
    for step in range(first, training.steps):
        if (step - first) % every == 0:
            saved.start(step, every, [])
        yield step
    saved.write(training.steps, [])


class _Parts:
    """What several objects need to go on."""

    def __init__(self, parts: tuple[Any, ...]) -> None:
        self._parts = parts

    def state(self) -> dict[str, Any]:
        return {str(place): each.state_dict() for place, each in enumerate(self._parts)}

    def restore(self, state: dict[str, Any]) -> None:
        for place, each in enumerate(self._parts):
            each.load_state_dict(state[str(place)])


def _sync_folder(folder: Path) -> None:
    """Put the name of the file on the disk as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
