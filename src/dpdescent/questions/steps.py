"""What a scaled gradient step needs to know at a point: the gradient in a frame, and how curved the loss is."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import Composed, Cost
from ..curator import Curator
from ..errors import InvalidParameter, require_positive
from ..exact import BoundedSum, ClippedSum, LatticeSum
from ..noise import lattice_scale
from ..problems import Frame, LinearProblem, Whitening
from ..relations import Norm, Sensitivity

__all__ = ["FrameSteps"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]

_LARGEST_ROWS = 2**26  # a sum over this many has not wrapped around
_ROOM = 1 + 2.0**-40


class FrameSteps:
    """Gradients and curvatures in a public frame, from one pass over the rows each.

    A row's gradient in the frame is l' z. Rows longer than ``soft_norm`` are weighted by sqrt(soft_norm/|z|), which
    keeps more of their direction than clipping alone, and every row's gradient is clipped to norm ``clip``. The
    curvature is the mean of l'', weighted alike, of rows that are not clipped.

    Parameters
    ----------
    curator : Curator
    frame : Frame, Whitening or None
        Where rows are measured; None for the coordinates of the problem.
    clip, soft_norm : float
        Public.
    """

    def __init__(self, curator: Curator, frame: Frame | Whitening | None, clip: float, soft_norm: float) -> None:
        if frame is not None and (frame.grid != curator.problem.grid or curator.rows > _LARGEST_ROWS):
            raise InvalidParameter("a frame belongs to the problem's own grid, and is for at most 2^26 rows")
        if isinstance(frame, Frame):
            curator._require_frame(frame)
        self._curator, self._frame, self._clip = curator, frame, clip
        self._soft_norm = require_positive("soft_norm", soft_norm)
        self._norms: Floats | None = None
        self._caps: tuple[ClippedSum, Floats] | None = None

    def at(self, weights: Floats, gradient_amount: float, curvature_amount: float = 0.0) -> tuple[Floats, float]:
        """Return the noisy gradient at public ``weights`` and the noisy mean curvature, 0 if that is not paid for.

        **Privacy** Gradient: L2 sensitivity C, or 2C when a row is replaced. Curvature: values between 0 and the
        smoothness b of the loss, so b under both relations. Two Gaussian mechanisms, charged first and as one.
        """
        curator, problem, frame = self._curator, self._curator.problem, self._frame
        weights = curator._point("weights", weights)
        placed, public = problem.grid.place_weights(weights), problem.penalty_gradient(weights)
        cost = curator.ledger.currency.gaussian(gradient_amount)
        clipped = curator._clipped_sum(self._clip, cost)
        sensitivity = clipped.sensitivity
        if frame is not None:
            sensitivity = frame.sensitivity(sensitivity, clipped.unit, problem.loss.outputs)
        # Whatever cannot be answered raises before the charge.
        lattice_scale(_ROOM * sensitivity.under(curator.relation) * cost.noise_multiplier, clipped.unit)
        paid: Cost = cost
        bounded = curvature_cost = None
        if curvature_amount > 0:
            bounded = BoundedSum(problem.loss.smoothness)
            curvature_cost = curator.ledger.currency.gaussian(curvature_amount)
            lattice_scale(_ROOM * bounded.ceiling * curvature_cost.noise_multiplier, bounded.unit)
            problem.loss.typical_curvatures(np.empty((0, *placed.shape[1:])), np.empty(0))
            paid = Composed((cost, curvature_cost))
        curator._charge(paid, "gradient" if bounded is None else "gradient and curvature")
        caps, row_weights = self._rows(clipped)
        values = curator._sum(partial(_block, problem, clipped, bounded, placed), caps, row_weights)
        parameters = placed.size
        total = clipped.label(values[:parameters].reshape(placed.shape))
        if frame is not None:
            total, public = frame.image(total), frame.pull_back(public)
        gradient = curator._noise.gaussian(total, cost, curator.relation) / curator.scale + public
        if bounded is None or curvature_cost is None:
            return gradient, 0.0
        ceiling = bounded.ceiling
        curvature = LatticeSum(values[parameters:], bounded.unit, Sensitivity(Norm.L2, ceiling, ceiling))
        (mean,) = curator._noise.gaussian(curvature, curvature_cost, curator.relation) / curator.scale
        return gradient, float(mean)

    def _rows(self, clipped: ClippedSum) -> tuple[Floats, Floats]:
        """Return the largest coefficient and the weight of every row; its norm in the frame is computed once."""
        if self._norms is None:
            curator, frame = self._curator, self._frame
            if frame is None:
                self._norms = curator._row_norms()
            else:
                with np.errstate(all="ignore"):  # a warning would speak of rows; an infinite norm adds nothing
                    self._norms = curator._source.map_rows(partial(_norms_block, frame))
            self._row_weights = np.sqrt(self._soft_norm / np.maximum(np.sqrt(self._norms), self._soft_norm))
        if self._caps is None or self._caps[0] != clipped:
            self._caps = (clipped, clipped.caps(self._norms))
        return self._caps[1], self._row_weights


def _norms_block(frame: Frame | Whitening, rows: Any, labels: Floats) -> Floats:  # noqa: ARG001
    return frame.squared_norms(rows)


def _block(
    problem: LinearProblem,
    clipped: ClippedSum,
    bounded: BoundedSum | None,
    weights: Floats,
    rows: Any,
    labels: Floats,
    caps: Floats,
    row_weights: Floats,
) -> Integers:
    """Return the sum of clipped gradients c x and, after it, the sum of curvatures, over one block."""
    residuals = problem.loss.short_residuals(problem.grid.margins(rows, weights), labels)
    curvatures = None if bounded is None else problem.loss.typical_curvatures(residuals, labels)
    residuals *= row_weights if residuals.ndim == 1 else row_weights[:, None]
    gradient = clipped.total_within(rows, residuals, caps).values.reshape(-1)
    if bounded is None or curvatures is None:
        return gradient
    sizes = np.abs(residuals) if residuals.ndim == 1 else _lengths(residuals)
    sizes *= 2.0**clipped.coefficient_exponent
    curvatures *= row_weights
    curvatures *= sizes < caps
    return np.concatenate([gradient, bounded.block(curvatures)])


def _lengths(residuals: Floats) -> Floats:
    """Return the norm of each row's residuals, added up class by class."""
    total = np.zeros(residuals.shape[0])
    for column in residuals.T:
        total += column * column
    return np.sqrt(total)
