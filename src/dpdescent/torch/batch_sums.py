r"""What a row adds to a sum over a batch: its clipped gradient, its place in a histogram, or the fall of its loss.

**Rows keep their places.** The last digits of a row's gradient depend on the shape of the batch and on the row's
place in it, since they decide in which order products are summed. Removing a row would therefore change what the
others add, and where a module nearly fits its rows, last digits are all that is left of a gradient. So a row that is
removed, or cannot be computed, leaves its place to a public row that adds nothing. Then two tables that differ in one
row are computed in tensors of the same shapes, in which all other rows hold the same numbers at the same places, and
what they add is the same to the last bit. This takes for granted that torch computes what belongs to one row of a
batch from that row, the parameters and the shapes alone (`dpdescent.torch.gradient_choice` tries it on public rows).
Parts of a batch are added as whole numbers of a lattice, without rounding, so only the part with the row that differs
is another one.

**Lengths.** Bins lie at powers of two. A row with a gradient of length :math:`2^{k+f}`, 0 <= f < 1, counts 1 - f in
bin k and f in bin k + 1, so its vector is at most 1 long. Lengths below 2^-7 share the lowest bin.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence

import numpy as np
import torch
from torch import Tensor

from ..arrays import Floats
from .row_gradients import Batch, ModuleGradients, RowGradients
from .training_plan import Clipping

_LOWEST, _HIGHEST = -7, 32  # 2^-7 is next to SHORTEST, below which no length counts
BINS = _HIGHEST - _LOWEST + 1
_CERTAIN = 6.0  # deviations of the noise, beyond which a bin is believed; by chance, once in 10^7 histograms


def sum_rows(add: Callable[[Batch], Tensor], parts: Iterable[Batch], blank: Batch) -> Tensor | int:
    """Return the sum of the whole numbers that the parts of a batch add, to which a row that fails adds nothing.

    Parameters
    ----------
    add : callable
        What a part adds, as int64.
    parts : iterable of Batch
    blank : Batch
        A public row, to stand in the place of one that fails.
    """
    total: Tensor | int = 0
    for part in parts:
        added = _attempt(add, part)
        total = total + (_sum_without_failing(add, part, blank) if added is None else added)
    return total


def _sum_without_failing(add: Callable[[Batch], Tensor], part: Batch, blank: Batch) -> Tensor | int:
    """Return what a part adds without the rows that fail by themselves, each of which keeps its place."""
    alone: Tensor | int = 0
    failing = torch.zeros(len(part), dtype=torch.bool, device=part.targets.device)
    for row in range(len(part)):
        added = _attempt(add, part[row : row + 1])
        failing[row] = added is None
        alone = alone if added is None else alone + added
    together = _attempt(add, part.without(failing, blank))
    # So many rows may fail together, whatever they hold: then they are taken one by one.
    return alone if together is None else together


def _attempt(add: Callable[[Batch], Tensor], part: Batch) -> Tensor | None:
    """Return what a part adds, or None if that fails, for whatever reason: an error would tell of its rows."""
    try:
        return add(part)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException:
        return None


def clipped_sum(way: ModuleGradients, batch: Batch, clipping: Clipping, shortest: float, unit: float) -> Tensor:
    """Return the sum of clipped gradients in whole multiples of ``unit``; rows that are not finite add nothing."""
    found = way.of(batch)
    norms = found.norms()
    weights = clipping.weights(norms, shortest).where(_counted(batch, found, norms), 0.0)
    return on_lattice(torch.cat([each.reshape(-1) for each in found.weighted_sum(weights)]), unit)


def length_counts(way: ModuleGradients, batch: Batch) -> Tensor:
    """Return the histogram of lengths. Those outside of 2^-7 and 2^32 count in the outermost bins."""
    found = way.of(batch)
    norms = found.norms()
    norms = norms[_counted(batch, found, norms)]
    places = norms.clamp_min(2.0**_LOWEST).log2().clamp_max(_HIGHEST) - _LOWEST
    lower = places.floor().clamp_max(BINS - 2)
    counts = torch.zeros(BINS, dtype=torch.float64, device=norms.device)
    counts.index_add_(0, lower.long(), lower + 1 - places)
    counts.index_add_(0, lower.long() + 1, places - lower)
    return counts


def on_lattice(total: Tensor, unit: float) -> Tensor:
    """Return the nearest whole multiples of a unit, as int64 on the processor."""
    if not bool(torch.isfinite(total).all()):
        raise ArithmeticError("a row has made the sum infinite")
    return (total.cpu() / unit).round_().to(torch.int64)


def _counted(batch: Batch, found: RowGradients, norms: Tensor) -> Tensor:
    finite = torch.isfinite(norms) & torch.isfinite(found.losses)
    return finite if batch.absent is None else finite & ~batch.absent


def typical_length(noisy: Floats, deviation: float) -> float | None:
    """Return the geometric mean of the lengths in bins that are full beyond doubt, or None if there are none."""
    counts = np.where(noisy > _CERTAIN * deviation, noisy, 0.0)
    total = float(counts.sum())
    if not total:
        return None
    return math.pow(2.0, float(counts @ np.arange(_LOWEST, _HIGHEST + 1)) / total)


def loss_falls(
    gradients: ModuleGradients,
    batch: Batch,
    direction: Sequence[Tensor],
    step_sizes: Floats,
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
