"""By how much steps along a direction lower the clipped losses of some rows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .gradients import Batch, ModuleGradients

__all__ = ["loss_falls"]


def loss_falls(
    gradients: ModuleGradients,
    batch: Batch,
    direction: Sequence[Tensor],
    step_sizes: NDArray[np.float64],
    bound: float,
    unit: float,
) -> Tensor:
    """Return the sum over rows of the fall of the clipped loss for each step size, in whole multiples of ``unit``.

    Notes
    -----
    **Privacy** A row's clipped losses lie in [0, ``bound``], a loss that is not a number counting as the bound. Each
    fall is rounded by itself, so a row adds at most bound/unit + 1/2, and the sum of integers is exact.
    """
    parameters = list(gradients.parameters.values())
    before = [each.detach().clone() for each in parameters]
    here = _clipped_losses(gradients, batch, bound)
    falls = torch.zeros(step_sizes.size, dtype=torch.int64)
    present = 1 if batch.absent is None else (~batch.absent).cpu()
    try:
        for position, size in enumerate(step_sizes.tolist()):
            for each, start, along in zip(parameters, before, direction, strict=True):
                each.data.copy_(start - size * along)
            changes = (here - _clipped_losses(gradients, batch, bound)) / unit
            falls[position] = (changes.round().to(torch.int64) * present).sum()
    finally:
        for each, start in zip(parameters, before, strict=True):
            each.data.copy_(start)
    return falls


def _clipped_losses(gradients: ModuleGradients, batch: Batch, bound: float) -> Tensor:
    with torch.no_grad():
        losses = gradients.losses(batch).to("cpu", torch.float64)
    return losses.clamp(0.0, bound).nan_to_num(bound)
