"""Which way to the gradients of rows is right for a module.

It is tried on a few public rows of the shapes of the data, against one row at a time: a matter of the module and of
shapes, never of the data.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

from ..errors import InvalidParameter
from ..exact.allocator import keep_freed_memory
from .checks import require_no_memory
from .gradients import (
    Batch,
    LoopedGradients,
    Loss,
    MappedGradients,
    ModuleGradients,
    RecordedGradients,
    trained_parameters,
)
from .layers import MOST_ROWS

__all__ = ["choose_gradients"]

_HELD_NUMBERS = 2**23  # while a part of a batch is worked on: 32 MB of float32, and 64 MB where it is summed
_TOLERANCE = 1e-3
_LARGE = 2.0**20
_PROBE_ROWS = 3


def choose_gradients(module: nn.Module, loss: Loss, probe: Batch) -> ModuleGradients:
    """Return the quickest way that gives the gradients of single rows on public rows, or raise why there is none.

    Parameters
    ----------
    module : nn.Module
        Left as it was, its mode and its buffers included.
    loss : callable
    probe : Batch
        At least three public rows of the shapes of the data.

    Notes
    -----
    **Privacy** The choice rests on the module, the loss and the shapes of rows. Rows that a module mixes are told
    apart in the second way, where each is a batch by itself. So are those of a module that does one thing or another
    depending on what rows hold, which public rows may not show: `torch.func` refuses to map it.
    """
    keep_freed_memory()  # every step needs the same megabytes again
    numbers = sum(each.numel() for each in trained_parameters(module).values())
    try:
        LoopedGradients(module, loss).of(probe)
    except Exception as problem:
        raise InvalidParameter(
            f"the gradient of a single row cannot be computed on public rows ({problem}): check that the module "
            "takes a batch of one row"
        ) from None
    require_no_memory(module, loss, probe)
    recorded = RecordedGradients(module, loss)
    with _repeatable(module, loss, probe):
        mapped = MappedGradients(module, loss)
        mapped.rows_at_once = _rows_at_once(numbers)
        if recorded.has_rules() and _maps(mapped, probe) and _agrees(recorded, probe):
            recorded.rows_at_once = _rows_at_once(recorded.numbers_per_row(probe))
            return recorded
        if _agrees(mapped, probe):
            return mapped
    looped = LoopedGradients(module, loss)
    looped.rows_at_once = mapped.rows_at_once
    return looped


def _rows_at_once(numbers: int) -> int:
    return min(MOST_ROWS, max(1, _HELD_NUMBERS // max(1, numbers)))


def _maps(way: MappedGradients, probe: Batch) -> bool:
    """Return whether neither branches nor shapes of a pass depend on what rows hold, as far as `torch.func` tells."""
    try:
        way.losses(probe)
    except Exception:  # whatever it is, it is the module's nature and not the data's
        return False
    return True


def _agrees(way: ModuleGradients, probe: Batch) -> bool:
    """Return whether lengths and a weighted sum are those of one row at a time, to the last bit if others change.

    The others become equal to the first row, or large, which mixes rows in modules that look for a largest number.
    """
    rows = probe[:_PROBE_ROWS]
    single = LoopedGradients(way.module, way.loss).of(rows)
    weights = torch.arange(1, len(rows) + 1).to(single.losses)
    try:
        found = way.of(rows)
        norms, sums = found.norms(), found.weighted_sum(weights)
        others = torch.arange(len(rows), device=weights.device) > 0
        changed = [way.of(rows.without(others, instead)) for instead in (rows, _large(rows))]
    except Exception:  # whatever it is, it is the module's nature and not the data's
        return False
    if any(each.losses[0] != found.losses[0] or each.norms()[0] != norms[0] for each in changed):
        return False
    scale = float(single.norms().max())
    return bool(
        torch.allclose(found.losses, single.losses, rtol=_TOLERANCE, atol=_TOLERANCE)
        and torch.allclose(norms, single.norms(), rtol=_TOLERANCE, atol=_TOLERANCE * scale)
        and all(
            torch.allclose(one, other, rtol=_TOLERANCE, atol=_TOLERANCE * scale)
            for one, other in zip(sums, single.weighted_sum(weights), strict=True)
        )
    )


def _large(rows: Batch) -> Batch:
    inputs = tuple(each * _LARGE if each.is_floating_point() else each for each in rows.inputs)
    return Batch(inputs, rows.targets)


@contextmanager
def _repeatable(module: nn.Module, loss: Loss, probe: Batch) -> Iterator[None]:
    """Switch off random layers, so that two passes over the same rows can be compared.

    Only what is known to be random is switched off, so that rows are told apart as in training. If that is not
    enough, the whole module is.
    """
    everything = list(module.modules())
    modes = [each.training for each in everything]
    random = (nn.modules.dropout._DropoutNd, nn.MultiheadAttention, nn.RNNBase)
    try:
        for each in everything:
            each.training = each.training and not isinstance(each, random)
        rows = LoopedGradients(module, loss)
        with torch.no_grad():
            first, second = (rows.losses(probe) for _ in range(2))
        if not torch.equal(first, second):
            module.eval()
        yield
    finally:
        for each, mode in zip(everything, modes, strict=True):
            each.training = mode
