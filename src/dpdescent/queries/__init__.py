"""What can be asked about rows: queries are values, and a plan says how each is answered and what is released.

Nothing here holds rows, charges a ledger or draws noise: `dpdescent.curator` answers. Defining a `Query` registers it
in `QUERIES`, and the laws of the curator are tested on all of them.
"""

from .counts_and_moments import (
    ColumnHistograms as ColumnHistograms,
    ColumnMoments as ColumnMoments,
    LabelCounts as LabelCounts,
    LabelSum as LabelSum,
    MarginCounts as MarginCounts,
    MeanRowNorm as MeanRowNorm,
    RowCount as RowCount,
    SecondMoments as SecondMoments,
    moment_bits as moment_bits,
)
from .derivatives import (
    Gradient as Gradient,
    GradientAndCurvature as GradientAndCurvature,
    Hessian as Hessian,
    MeanLoss as MeanLoss,
    TreeGradients as TreeGradients,
    finest_clipped_sum as finest_clipped_sum,
    hessian_sum as hessian_sum,
    joint_clip as joint_clip,
    require_frame as require_frame,
)
from .descents import NoisyDescent as NoisyDescent, PermutedDescent as PermutedDescent
from .leaf_sums import (
    BestTree as BestTree,
    ColumnTables as ColumnTables,
    LeafScores as LeafScores,
    LeafSums as LeafSums,
    LeafValues as LeafValues,
    Splits as Splits,
    leaf_of as leaf_of,
    lengthening as lengthening,
)
from .line_search import BestCandidates as BestCandidates, BestStep as BestStep, FirstStep as FirstStep
from .noisy_minimiser import (
    BallPoint as BallPoint,
    ExcessAdversarialRisk as ExcessAdversarialRisk,
    NoisyMinimiser as NoisyMinimiser,
    law_for_units as law_for_units,
)
from .query import (
    QUERIES as QUERIES,
    Draw as Draw,
    Noised as Noised,
    Plan as Plan,
    Point as Point,
    Public as Public,
    Query as Query,
    Rows as Rows,
    Sum as Sum,
    Tree as Tree,
)
from .sandwich import (
    ClippedHessian as ClippedHessian,
    GradientCovariance as GradientCovariance,
    LongGradients as LongGradients,
    ResidualScale as ResidualScale,
)
