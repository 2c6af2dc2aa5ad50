r"""What a row adds to a sum over a batch: its clipped gradient, or its place in a histogram of lengths.

**Lengths.** Bins lie at powers of two. A row with a gradient of length :math:`2^{k+f}`, 0 <= f < 1, counts 1 - f in
bin k and f in bin k + 1, so its vector is at most 1 long. Sharing a row between two bins also makes the vector
continuous: lengths that differ in their last digits, as they may with the rows beside a row, move it by as little.
Lengths below 2^-7 share the lowest bin, since those that are all rounding error may differ by several powers of two.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from .gradients import Batch, RowGradients
from .plan import Clipping

__all__ = ["BINS", "add_rows", "clipped_sum", "length_counts", "typical_length"]

_LOWEST, _HIGHEST = -7, 32  # 2^-7 is next to SHORTEST, below which no length counts
BINS = _HIGHEST - _LOWEST + 1
_CERTAIN = 6.0  # deviations of the noise, beyond which a bin is believed; by chance, once in 10^7 histograms


def add_rows(
    total: list[Tensor],
    add: Callable[[Batch], list[Tensor]],
    read: Callable[[NDArray[np.int64]], Batch],
    rows: NDArray[np.int64],
    at_once: int,
) -> None:
    """Add what rows contribute, some at once. One that cannot be computed is found by halves, and adds nothing."""
    for first in range(0, rows.size, at_once):
        some = rows[first : first + at_once]
        try:
            for each, part in zip(total, add(read(some)), strict=True):
                each += part
        except Exception:
            if some.size > 1:
                add_rows(total, add, read, some, -(-some.size // 2))


def clipped_sum(found: RowGradients, clipping: Clipping, shortest: float) -> list[Tensor]:
    """Return the sum of clipped gradients, to which rows that are not finite add nothing."""
    norms = found.norms()
    total = found.weighted_sum(clipping.weights(norms, shortest).where(_counted(found, norms), 0.0))
    if not all(bool(torch.isfinite(each).all()) for each in total):
        raise ArithmeticError("a weight of zero does not take away what is not finite: that row must go")
    return total


def length_counts(found: RowGradients) -> Tensor:
    """Return the histogram of lengths. Those outside of 2^-7 and 2^32 count in the outermost bins."""
    norms = found.norms()
    norms = norms[_counted(found, norms)]
    places = norms.double().clamp_min(2.0**_LOWEST).log2().clamp_max(_HIGHEST) - _LOWEST
    lower = places.floor().clamp_max(BINS - 2)
    counts = torch.zeros(BINS, dtype=torch.float64, device=norms.device)
    counts.index_add_(0, lower.long(), lower + 1 - places)
    counts.index_add_(0, lower.long() + 1, places - lower)
    return counts


def _counted(found: RowGradients, norms: Tensor) -> Tensor:
    return torch.isfinite(norms) & torch.isfinite(found.losses)


def typical_length(noisy: NDArray[np.float64], deviation: float) -> float | None:
    """Return the geometric mean of the lengths in bins that are full beyond doubt, or None if there are none."""
    counts = np.where(noisy > _CERTAIN * deviation, noisy, 0.0)
    total = float(counts.sum())
    if not total:
        return None
    return math.pow(2.0, float(counts @ np.arange(_LOWEST, _HIGHEST + 1)) / total)
