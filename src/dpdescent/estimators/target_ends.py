r"""The ends of a target: from the ladder of powers of two, with an end between two rungs where the tail is heavy.

The noise of a regression grows with the range of its target, so an end that is twice as far out doubles it, and an
end that jumps from one power of two to the next with the noise of a count makes two fits of one table very different.
Whoever has a heavy tail loses more by noise than by a few clipped cells. With a tail S, clipping at h costs a bias of
about h S(h), and noise about h D/(n mu) in a model of D parameters, so the best end leaves a share of the rows beyond
it that falls as 1/(n mu). Two standard deviations of the noise of a count, 14/(n mu) where the histogram gets 2% of
the budget, are such a share, and noise hides what is less: the end lies where so many rows are expected beyond it.
With S rows on the outermost rung that holds cells, and r the share of those beyond the rung before that are on it, a
tail that falls by r with every doubling has q rows left after

.. math:: \log(S/q)/\log(1/r)

doublings, from 0 to 1 of them on this rung: the end moves from the inner edge of the rung to its outer one as S
grows.

A target on one or two rungs, such as a year, is measured once more in equal bins, as columns are.

**Privacy** Histograms are bought by the caller; all else is computed from them and from public numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..arrays import Floats
from ..tables.bounds import HIDING, RUNGS, Ends, column_ends, edge, narrower_bins, rungs

_LIKELY = 2.0  # standard deviations of the noise of a count that are left beyond an end
_NARROWER = 1.25  # given ends are moved if the target gets narrower by this factor


@dataclass(frozen=True)
class TargetEnds:
    """The ends of a target, and the share of its cells that lies beyond them, as the histogram shows it.

    ``share`` is None where no cell was seen, so that nothing is known of it.
    """

    low: float
    high: float
    share: float | None


def target_ends(
    ask: Callable[[Any, int], tuple[Floats, float]],
    cells: Any,
    rows: int,
    low: float = -math.inf,
    high: float = math.inf,
) -> TargetEnds:
    """Return the ends of a target within ``low`` and ``high``, which are public.

    ``ask`` maps the levels of all cells, and the largest level, to noisy counts and the deviation of their noise;
    ``cells`` is one column, or one that is read block by block.
    """
    counts, noise = ask(rungs(cells), RUNGS)
    given = math.isfinite(low) and math.isfinite(high)
    largest = max(-low, high) if given else 1.0
    found = column_ends(counts[0], noise, rows, rare=0.0, near=largest)
    if found is None:
        return TargetEnds(low, high, None) if given else TargetEnds(-1.0, 1.0, None)
    rare = _LIKELY * noise
    first, last = _with_neighbours(counts[0], *found, rare)
    bottom = -_outer_end(counts[0][::-1], 2 * RUNGS - last, 2 * RUNGS - first, rare)
    top = _outer_end(counts[0], first, last, rare)
    if not bottom < top:  # zeros alone
        bottom, top = 0.0, 1.0
    inner = max(bottom, low), min(top, high)
    if not inner[0] < inner[1]:
        return TargetEnds(low, high, None)
    if last - first <= 1 and noise <= HIDING * rows:
        edges = edge(first - RUNGS, outer=first > RUNGS), edge(last - RUNGS, outer=last < RUNGS)
        below, above = narrower_bins(ask, cells, rows, Ends(*np.array([*inner, *edges])[:, None]))
        inner = float(below[0]), float(above[0])
    if given and _NARROWER * (inner[1] - inner[0]) > high - low:
        inner = low, high
    return TargetEnds(*inner, _beyond(counts[0], rows, *inner))


def _with_neighbours(counts: Floats, first: int, last: int, rare: float) -> tuple[int, int]:
    """Return the first and the last rung after rungs next to them that hold more than rare cells.

    Noise alone seldom moves an end so, and then hardly, because an end begins at the inner edge of its rung.
    """
    while first > 0 and counts[first - 1] > rare:
        first -= 1
    while last < counts.size - 1 and counts[last + 1] > rare:
        last += 1
    return first, last


def _outer_end(counts: Floats, first: int, last: int, rare: float) -> float:
    """Return the upper end of a column with cells from the first rung to the last one."""
    outer = last - RUNGS
    if outer <= 0:
        return edge(outer, outer=False)
    own = float(counts[last])
    inside = max(float(counts[max(first, last - 1) : last].sum()), 0.0) if last > first else 0.0
    near, far = edge(outer, outer=False), edge(outer, outer=True)
    if own <= rare or inside <= 0:  # the only rung is kept whole
        return near if own <= rare and last > first else far
    doublings = math.log(own / rare) / math.log((own + inside) / own)
    return near * (far / near) ** min(doublings, 1.0) if near > 0 else far


def _beyond(counts: Floats, rows: int, low: float, high: float) -> float:
    """Return the share of the cells beyond two ends; a rung that one of them cuts counts in part, by length."""
    inside = 0.0
    for rung in range(-RUNGS, RUNGS + 1):
        near, far = sorted((edge(rung, outer=False), edge(rung, outer=True)))
        if rung == 0:
            inside += float(counts[RUNGS]) * (low <= 0 <= high)
        elif far > near and min(far, high) > max(near, low):
            inside += float(counts[rung + RUNGS]) * (min(far, high) - max(near, low)) / (far - near)
    return min(max(1 - inside / rows, 0.0), 1.0)
