"""Steps of a loop of the caller that can be interrupted and go on later."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from .module_fit import Checkpoint, saving_period
from .training import PrivateTraining


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
