"""Sums over rows whose sensitivity in floating point is exactly the one that is proved.

The whole idea: *every reduction over data is exact, and every other step is an elementwise IEEE operation.*
Features, weights and clipped coefficients live on power-of-two grids chosen from public bounds, so that float64
matrix products make no rounding error (`FeatureGrid`); integers are clipped, not floats (`ClippedSum`,
`SecondMomentSum`, `BoundedSum`, `SignedSum`, `BoundedScores`, `SignedScores`, `StepwiseScores`); elementary functions
have the same bits everywhere (`exp`, `sigmoid`, `softplus`, `log`). A sum is then bit-identical under any row order,
block size, memory layout, storage type, thread count and machine, deleting row i changes it by row i's own clipped
integers, and theorems about real numbers apply as they stand. `check_row_independence` tests whether a loss of your
own follows the same rule.

A gradient of logistic regression, before noise::

    grid = FeatureGrid(entry_bound=1.0, dimension=124)
    clipped = ClippedSum(grid, clip=1.0)
    X, w = grid.place(features), grid.place_weights(weights)
    caps = clipped.caps(grid.squared_norms(X))                                # once
    residuals = quick_sigmoid(grid.margins(X, w)) - labels
    total = clipped.total_within(X, residuals, caps)                          # a LatticeSum: unreleased data

and the logistic losses after 20 step sizes along -g, for labels of 1 and -1::

    scores = BoundedScores(ceiling=5.0, loss=lambda p: softplus(-p), interval=(-5.0, 10.0))
    total = scores.total(signs * grid.margins(X, w), signs * grid.margins(X, g), steps)
"""

from .clipped_sums import (
    LARGEST_JOINT as LARGEST_JOINT,
    ClippedSum as ClippedSum,
    LatticeSum as LatticeSum,
    joint_factors as joint_factors,
)
from .elementary import (
    exp as exp,
    log as log,
    quick_sigmoid as quick_sigmoid,
    sigmoid as sigmoid,
    softplus as softplus,
)
from .grids import (
    CoarseGrid as CoarseGrid,
    FeatureGrid as FeatureGrid,
    ceil_log2 as ceil_log2,
    require_moderate as require_moderate,
)
from .loss_sums import (
    BoundedSum as BoundedSum,
    SecondMomentSum as SecondMomentSum,
    SignedSum as SignedSum,
    check_row_independence as check_row_independence,
)
from .machine import (
    blas_is_exact as blas_is_exact,
    keep_freed_memory as keep_freed_memory,
    on_threads as on_threads,
    one_library_thread as one_library_thread,
    separate_product as separate_product,
)
from .node_scores import StepwiseScores as StepwiseScores
from .step_scores import BoundedScores as BoundedScores, SignedScores as SignedScores
