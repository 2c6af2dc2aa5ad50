"""Which of several points has about the least objective."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..curator import Curator
from ..errors import InvalidParameter
from ..exact import FeatureGrid, LatticeSum, SignedSum
from ..noise import MAXIMUM_SCORES
from ..problems import Loss
from ..relations import Sensitivity

__all__ = ["best_candidates", "public_generator"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_CELLS = 2**21  # scores that are worked on at once


def best_candidates(
    curator: Curator, candidates: Floats, reference: Floats, change: float, choices: int, amount: float
) -> list[int]:
    """Return the indices of ``choices`` points with about the least objective, chosen one after another.

    Parameters
    ----------
    candidates : ndarray of shape (m, *shape of the weights)
        Public points.
    reference : ndarray
        A public point to which losses are compared.
    change : float
        D: the change of a row's loss from the reference is cut to [-D, D].
    choices, amount
        Every choice is paid for with an equal part of the amount; a point may be chosen again.

    **Privacy** The exponential mechanism on sums of changes. One row may raise one score by D and lower another by D:
    range 2D, and 4D when it is replaced. Only differences between candidates count, so the range of the losses
    themselves, however large, is never paid for.
    """
    problem, grid = curator.problem, curator.problem.grid
    points = np.asarray(candidates, dtype=np.float64)
    if points.shape[1:] != problem.shape or not 1 <= points.shape[0] <= MAXIMUM_SCORES:
        raise InvalidParameter(f"candidates must have the shape (m, *{problem.shape}), got {points.shape}")
    bounded = SignedSum(change)
    # One column a margin: those of the reference first, then candidate after candidate.
    stacked = np.concatenate([curator._point("reference", reference)[None], points])
    columns = np.moveaxis(stacked, 0, 1).reshape(grid.dimension, -1)
    placed = grid.place_weights(columns)
    public = [curator.scale * problem.penalty_value(point) / bounded.unit for point in points]
    added = np.clip(np.rint(public), -(2.0**61), 2.0**61).astype(np.int64)
    cost = curator.ledger.currency.selection(amount / choices)
    chosen: list[int] = []
    totals: LatticeSum | None = None
    for _ in range(choices):
        curator._charge(cost, "candidate")
        if totals is None:
            values = curator._sum(partial(_changes_block, bounded, grid, problem.loss, placed))
            totals = LatticeSum(values + added, bounded.unit, Sensitivity.of_changes(bounded.bound))
        chosen.append(curator._noise.least(totals, cost, curator.relation))
    return chosen


def public_generator(curator: Curator) -> np.random.Generator:
    """Return a generator for random choices that privacy does not rest on; repeated by a seeded run."""
    bits = curator._randomness.stream("public", 0)
    return np.random.default_rng(bits.integer(128))


def _changes_block(
    bounded: SignedSum, grid: FeatureGrid, loss: Loss, placed: Floats, rows: Any, labels: Floats
) -> Integers:
    outputs = loss.outputs
    count = placed.shape[1] // outputs
    total = np.zeros(count - 1, dtype=np.int64)
    size = max(1, _CELLS // placed.shape[1])
    for start in range(0, rows.shape[0], size):
        own = labels[start : start + size]
        margins = grid.margins(rows[start : start + size], placed)
        if outputs == 1:
            repeated = np.broadcast_to(own[:, None], margins.shape)
            losses = loss.values(margins.ravel(), repeated.ravel()).reshape(margins.shape)
        else:
            each = [loss.values(margins[:, k * outputs : (k + 1) * outputs], own) for k in range(count)]
            losses = np.column_stack(each)
        total += bounded.block(losses[:, 1:] - losses[:, :1])
    return total
