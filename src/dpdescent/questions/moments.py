"""Second moments of the rows: how their directions differ in length."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian
from ..curator import _SCALE_BITS, Curator
from ..errors import InvalidParameter, ScaleOutOfRange
from ..exact import CoarseGrid, LatticeSum, SecondMomentSum, ceil_log2
from ..exact.second_moments import LEAST_BITS
from ..problems import Frame, Whitening
from ..relations import Sensitivity

__all__ = ["moment_bits", "second_moments"]

Floats = NDArray[np.float64]


def second_moments(curator: Curator, clip: float, amount: float, frame: Frame | Whitening | None = None) -> Floats:
    """Return the mean of u u' over rows u cut to norm ``clip``: of the rows, or of their coordinates in a frame.

    The frame must be public. The constant of a `Frame` is left out; entries in a `Whitening` are cut to 2 ``clip``.

    Noise is added to the distinct entries, twice the variance on the diagonal, as an isometry asks.

    **Privacy** A row adds a positive semidefinite matrix of Frobenius norm at most clip^2: that is the sensitivity,
    or sqrt(2) times it when a row is replaced.
    """
    grid = curator.problem.grid
    if grid.entry_bound > 1:
        raise InvalidParameter("second moments need features in [-1, 1]: scale them by public bounds")
    if isinstance(frame, Frame):
        curator._require_frame(frame)
        coarse = CoarseGrid(float(2.0 ** (1 + frame.doublings.max())), grid.dimension - 1, clip)
    elif frame is not None:
        if frame.grid != grid:
            raise InvalidParameter("a whitening belongs to the problem's own grid")
        coarse = CoarseGrid(2 * clip, frame.matrix.shape[1], clip)
    else:
        coarse = CoarseGrid(1.0, grid.dimension, clip)
    cost = curator.ledger.currency.gaussian(amount)
    moments = SecondMomentSum(coarse, coarse.row_bound**2, total_bits=moment_bits(curator, cost))
    curator._charge(cost, "second moments")
    values = curator._sum(partial(_moments_block, moments, frame))
    total = LatticeSum(values, moments.unit, moments.sensitivity)
    return curator._noise.gaussian_symmetric(total, cost, curator.relation) / curator.scale


def moment_bits(curator: Curator, noise: Gaussian) -> int:
    """Return the bits of the finest sum whose noise can still be drawn, or raise what keeps it from being drawn."""
    deviation = noise.noise_multiplier * Sensitivity.of_positive_semidefinite_sum(1.0).under(curator.relation)
    bits = min(SecondMomentSum.total_bits, _SCALE_BITS - ceil_log2(deviation))
    if bits < LEAST_BITS:
        raise ScaleOutOfRange(f"noise of {deviation:.3g} squared clip norms cannot be drawn: spend more on it")
    return bits


def _moments_block(
    moments: SecondMomentSum,
    frame: Frame | Whitening | None,
    rows: Any,
    labels: Floats,  # noqa: ARG001
) -> NDArray[np.int64]:
    """Return the sum over one block."""
    every = np.ones(rows.shape[0])
    if isinstance(frame, Whitening):
        return moments.in_parts(frame.coordinates(rows), every, moments.grid.place)

    def place(part: Floats) -> Floats:
        placed: Floats = moments.grid.place(part if frame is None else frame.coordinates(part))
        return placed

    return moments.in_parts(rows, every, place)
