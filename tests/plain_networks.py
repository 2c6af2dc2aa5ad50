"""Whether rows of a plain network pass side by side is tried once, and not before each of a hundred trainings.

The trials of `dpdescent.torch.separation` take most of the time in which a small training starts. What they find of
other modules and losses is tried each time, and tests of the trials themselves (`test_row_mixers`) take no part.
"""

from collections.abc import Iterable
from types import FunctionType
from typing import Any

import pytest
from torch import nn

from dpdescent.torch import gradient_choice
from dpdescent.torch.row_gradients import Batch, ModuleGradients
from dpdescent.torch.separation import mixing

_PLAIN = {nn.Sequential, nn.Linear, nn.Tanh}
_found: dict[tuple[Any, ...], str | None] = {}


def _known(loss: Any) -> Any:
    """Return what tells a loss from others, if it keeps nothing: a function without variables of its own, or None."""
    if type(loss) is nn.CrossEntropyLoss:
        return repr(vars(loss))
    return loss if isinstance(loss, FunctionType) and loss.__closure__ is None else None


def _plain(module: nn.Module) -> bool:
    """Return whether a module is known by its description: of layers as torch has them, and without hooks."""
    added = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks", "_buffers")
    return all(
        type(each) in _PLAIN and "forward" not in vars(each) and not any(getattr(each, name) for name in added)
        for each in module.modules()
    )


def _mixing(way: ModuleGradients, probe: Batch, most_rows: int, sizes: Iterable[int] = ()) -> str | None:
    loss = _known(way.loss)
    if loss is None or not _plain(way.module):
        return mixing(way, probe, most_rows, sizes)
    shapes = [(each.shape, each.dtype) for each in (*probe.inputs, probe.targets)]
    asked = (type(way), repr(way.module), way.module.training, loss, repr(shapes), most_rows, tuple(sizes))
    if asked not in _found:
        _found[asked] = mixing(way, probe, most_rows, sizes)
    return _found[asked]


@pytest.fixture
def tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Try plain networks once."""
    monkeypatch.setattr(gradient_choice, "mixing", _mixing)
