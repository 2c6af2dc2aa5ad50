"""Sums over rows that have exactly the sensitivity on paper.

The whole idea: *every reduction over data is exact, and every other step is an elementwise IEEE operation.*
Features, weights and clipped coefficients live on power-of-two grids chosen from public bounds, so that float64
matrix products make no rounding error (`FeatureGrid`); integers are clipped, not floats (`ClippedSum`,
`SecondMomentSum`, `BoundedSum`, `SignedSum`); elementary functions have the same bits everywhere (`exp`,
`sigmoid`, `softplus`, `log`). A sum is then bit-identical under any row order, block size, memory layout,
storage type, thread count and machine, deleting row i changes it by row i's own clipped integers, and
theorems about real numbers apply as they stand. `check_row_independence` holds plug-in losses to the same.

A gradient of logistic regression, before noise::

    grid = FeatureGrid(entry_bound=1.0, dimension=124)
    clipped = ClippedSum(grid, clip=1.0)
    X, w = grid.place(features), grid.place_weights(weights)
    total = clipped.total(X, sigmoid(grid.margins(X, w)) - labels)   # a LatticeSum: unreleased data
"""

from .audit import check_row_independence
from .blas import blas_is_exact
from .elementary import exp, log, sigmoid, softplus
from .grids import CoarseGrid, FeatureGrid, ceil_log2
from .losses import BoundedSum, SignedSum
from .second_moments import SecondMomentSum
from .sums import ClippedSum, LatticeSum

__all__ = [
    "BoundedSum",
    "ClippedSum",
    "CoarseGrid",
    "FeatureGrid",
    "LatticeSum",
    "SecondMomentSum",
    "SignedSum",
    "blas_is_exact",
    "ceil_log2",
    "check_row_independence",
    "exp",
    "log",
    "sigmoid",
    "softplus",
]
