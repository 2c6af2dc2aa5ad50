"""The minimiser of a tilted or adversarial objective, with noise."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from ..accounting import Gaussian, NormLaplace
from ..curator import Curator
from ..robust import RobustBounds, RobustObjective, certified_robust_minimiser
from .points import _Lattice, _penalty, _require_rows

__all__ = ["noisy_robust_minimiser"]

Floats = NDArray[np.float64]


def noisy_robust_minimiser(curator: Curator, bounds: RobustBounds, cost: Gaussian | NormLaplace) -> Floats:
    """Return the minimiser of n F plus n times the penalty, with noise.

    **Privacy** One row moves the minimiser by at most Delta (`dpdescent.robust`, for both relations), the computed
    point is certified to lie within a public tau of it, rounding errors included, and it is rounded to a lattice of
    step g: the sensitivity is Delta + 2 tau + sqrt(p) g. The penalty and the quadratic are public and do not enter.
    """
    problem = curator.problem
    tolerance = bounds.tolerance(problem.grid.dimension) / bounds.strong_convexity
    moved = bounds.sensitivity.under(curator.relation)
    output = _Lattice.of(problem.shape, moved + 2 * tolerance, bounds.longest + tolerance, cost)
    quadratic = curator.rows * _penalty(curator) + bounds.strong_convexity
    _require_rows(curator)
    curator._charge(cost, "minimiser")
    objective = RobustObjective(
        curator._source, problem.grid, curator._row_norms(), bounds, quadratic, np.zeros(problem.shape)
    )
    with np.errstate(all="ignore"):
        point = certified_robust_minimiser(objective, tolerance)
    answer = curator._noise.gaussian if isinstance(cost, Gaussian) else curator._noise.norm_laplace
    return answer(output.place(point), cost, curator.relation)  # type: ignore[arg-type]
