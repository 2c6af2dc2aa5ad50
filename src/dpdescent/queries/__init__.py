"""What can be asked about rows: queries are values, and a plan says how each is answered and what is released.

Nothing here holds rows, charges a ledger or draws noise: `dpdescent.curator` answers. Defining a `Query` registers it
in `QUERIES`, and the laws of the curator are tested on all of them.
"""

from .counts_and_moments import (
    ColumnHistograms,
    ColumnMoments,
    LabelCounts,
    LabelSum,
    MarginCounts,
    MeanRowNorm,
    RowCount,
    SecondMoments,
    moment_bits,
)
from .derivatives import (
    Gradient,
    GradientAndCurvature,
    Hessian,
    MeanLoss,
    TreeGradients,
    finest_clipped_sum,
    hessian_sum,
    joint_clip,
    require_frame,
)
from .descents import NoisyDescent, PermutedDescent
from .line_search import BestCandidates, BestStep, FirstStep
from .noisy_minimiser import BallPoint, ExcessAdversarialRisk, NoisyMinimiser, law_for_units
from .query import QUERIES, Draw, Noised, Plan, Point, Public, Query, Rows, Sum, Tree
from .sandwich import ClippedHessian, GradientCovariance, ResidualScale

__all__ = [
    "QUERIES",
    "BallPoint",
    "BestCandidates",
    "BestStep",
    "ClippedHessian",
    "ColumnHistograms",
    "ColumnMoments",
    "Draw",
    "ExcessAdversarialRisk",
    "FirstStep",
    "Gradient",
    "GradientAndCurvature",
    "GradientCovariance",
    "Hessian",
    "LabelCounts",
    "LabelSum",
    "MarginCounts",
    "MeanLoss",
    "MeanRowNorm",
    "Noised",
    "NoisyDescent",
    "NoisyMinimiser",
    "PermutedDescent",
    "Plan",
    "Point",
    "Public",
    "Query",
    "ResidualScale",
    "RowCount",
    "Rows",
    "SecondMoments",
    "Sum",
    "Tree",
    "TreeGradients",
    "finest_clipped_sum",
    "hessian_sum",
    "joint_clip",
    "law_for_units",
    "moment_bits",
    "require_frame",
]
