"""Whether a module or a loss keeps anything of the rows that pass through it.

Buffers, and attributes that a pass sets, are put back after every pass. What is changed in place elsewhere (a tensor
in an attribute, a list, a generator, a variable outside of the module) is not, and would tell later rows of earlier
ones, even where every row is a batch by itself, or whoever reads it afterwards. Such modules are refused.
"""

from __future__ import annotations

import copy
import random
import types
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..errors import RowDependence
from .checks import private_copy, secret_randomness
from .gradients import Batch, LoopedGradients, Loss, unchanged_buffers
from .shared import copied_variables

__all__ = ["require_no_memory"]


def require_no_memory(module: nn.Module, loss: Loss, probe: Batch) -> None:
    """Raise `RowDependence` if a pass over public rows leaves something of them behind.

    Two things are tried, on copies of the module: whether the loss and the gradient of a row change once others have
    passed, and whether what the module and the loss hold differs after different rows have passed. Parameters, which
    the copies share, are put back.
    """
    if _changes_with_earlier_rows(module, loss, probe) or _keeps_rows(module, loss, probe):
        raise RowDependence(
            "the module or the loss keeps something of the rows that pass through it, by which the loss of a row "
            "changes when other rows have passed before it, or which anybody could read: keep nothing of a pass in "
            "the module, the loss or a variable outside of them, and draw random numbers from the generators of "
            "torch, numpy or Python that all share"
        )


def _changes_with_earlier_rows(module: nn.Module, loss: Loss, probe: Batch) -> bool:
    for gradients in (False, True):
        copied = private_copy(module)
        found: list[Tensor] = []
        # The first row also passes with the others, as in a step.
        for rows in (probe[:1], probe[1:], probe, probe[:1]):
            with secret_randomness(0), torch.set_grad_enabled(gradients), unchanged_buffers(copied):
                given = rows.copy()
                losses = loss(copied(*given.inputs), given.targets)
                parts = [losses.detach()]
                if gradients:
                    trained = [each for each in copied.parameters() if each.requires_grad]
                    got = torch.autograd.grad(losses.sum(), trained, allow_unused=True)
                    parts += [each.detach().reshape(-1) for each in got if each is not None]
            found.append(torch.cat(parts))
        if not torch.allclose(found[0], found[-1], rtol=0, atol=0, equal_nan=True):
            return True
    return False


def _keeps_rows(module: nn.Module, loss: Loss, probe: Batch) -> bool:
    """Return whether copies of a module and its loss hold different things after passes over different rows."""
    order = torch.arange(len(probe)).roll(1).to(probe.targets.device)
    held = []
    for rows in (probe, probe[order]):
        start = [each.detach().clone() for each in module.parameters()]
        copied, also = private_copy(module), _own(loss)
        looped = LoopedGradients(copied, also)
        with secret_randomness(0), copied_variables(copied, also) as variables:
            looped.of(rows)
            together = looped.losses_together(rows).sum()
            torch.autograd.grad(together, list(looped.parameters.values()), allow_unused=True)
            shared = [_contents_if_any(each) for each in variables()]
        parameters = [_tensor_bytes(each.detach()) for each in module.parameters()]
        held.append((contents_of(copied), contents_of(also), shared, parameters))
        for each, before in zip(module.parameters(), start, strict=True):
            each.data.copy_(before)
    return held[0] != held[1]


def _own(loss: Loss) -> Any:
    """Return a copy of a loss that shares its parameters, or the loss itself if it is a function."""
    if isinstance(loss, nn.Module):
        return private_copy(loss)
    try:
        return copy.deepcopy(loss)
    except Exception:
        return loss


def _contents_if_any(value: Any) -> object:
    """Return what a variable holds, or None if that cannot be told."""
    try:
        return contents_of(value)
    except Exception:
        return None


def contents_of(value: Any) -> object:
    """Return all that a value holds, as plain data that can be compared; functions and parameters are left out.

    What functions share is not theirs, and has its own copies (`dpdescent.torch.shared`).
    """
    seen: set[int] = set()

    def read(value: Any) -> object:
        if value is None or isinstance(value, str | bytes | int | float | complex | np.generic):
            return repr(value)
        if id(value) in seen:
            return "seen"
        seen.add(id(value))
        for kind, contents in _KINDS.items():
            if isinstance(value, kind):
                return contents(value)
        if isinstance(value, Mapping):
            return tuple((repr(key), read(each)) for key, each in list(value.items()))
        if isinstance(value, list | tuple | deque):
            return tuple(read(each) for each in value)
        if isinstance(value, partial):
            return read(value.func), read(value.args), read(value.keywords)
        if isinstance(value, types.MethodType):
            return value.__name__, read(value.__self__)
        if isinstance(value, set | frozenset):
            return tuple(sorted(map(repr, value)))
        fields = getattr(value, "__dict__", None)
        plain = fields is not None and not isinstance(value, type | types.FunctionType)
        return type(value).__name__, read(fields) if plain else None

    return read(value)


def _tensor_bytes(value: Tensor) -> object:
    if isinstance(value, nn.Parameter):
        return None
    dense = value.detach().cpu().to_dense().contiguous()
    return tuple(value.shape), str(value.dtype), dense.reshape(-1).view(torch.uint8).numpy().tobytes()


_KINDS: dict[type, Callable[[Any], object]] = {
    Tensor: _tensor_bytes,
    np.ndarray: lambda value: repr(value.tolist()),
    torch.Generator: lambda value: value.get_state().numpy().tobytes(),
    random.Random: lambda value: value.getstate(),
    np.random.Generator: lambda value: repr(value.bit_generator.state),
}
