"""The trusted part: the curator, the sources of rows, the noise, and every question that can be asked.

A solver reaches rows through `Curator.answer` alone. A question is a value (`dpdescent.curator.questions`), so a
solver can hold neither rows nor noise. Every answer, also those that no curator gives, is charged for and gets its
noise in `dpdescent.curator.release`.
"""

from .ball import BallPoint, law_for_units
from .batches import Batch, Sampling, batch_cost
from .blocks import BlockSource, Computed, Engine, PartWork, PlacedBlocks, RowBlocks, Threads
from .curator import Curator
from .derivatives import (
    Gradient,
    GradientAndCurvature,
    Hessian,
    MeanLoss,
    finest_clipped_sum,
    hessian_sum,
    require_frame,
)
from .descents import NoisyDescent, PermutedDescent
from .general import drawn_minimiser, perturbed_minimiser, perturbed_saddle_point
from .histograms import ColumnHistograms, MarginCounts
from .mechanisms import LatticeNoise
from .moments import ColumnMoments, LabelCounts, LabelSum, MeanRowNorm, RowCount, SecondMoments, moment_bits
from .nonprivate import sum_without_privacy
from .phased import phased_minimiser
from .points import NoisyMinimiser
from .questions import QUESTIONS, Noised, Point, Public, Question, Sum
from .reports import ExcessAdversarialRisk
from .seals import Marks, Seals, marks, new_digest
from .search import FirstStep
from .selection import BestCandidates, BestStep
from .sources import ArraySource, Source, cached_blocks
from .trees import TreeGradients
from .units import Units, joint_clip

__all__ = [
    "QUESTIONS",
    "ArraySource",
    "BallPoint",
    "Batch",
    "BestCandidates",
    "BestStep",
    "BlockSource",
    "ColumnHistograms",
    "ColumnMoments",
    "Computed",
    "Curator",
    "Engine",
    "ExcessAdversarialRisk",
    "FirstStep",
    "Gradient",
    "GradientAndCurvature",
    "Hessian",
    "LabelCounts",
    "LabelSum",
    "LatticeNoise",
    "MarginCounts",
    "Marks",
    "MeanLoss",
    "MeanRowNorm",
    "Noised",
    "NoisyDescent",
    "NoisyMinimiser",
    "PartWork",
    "PermutedDescent",
    "PlacedBlocks",
    "Point",
    "Public",
    "Question",
    "RowBlocks",
    "RowCount",
    "Sampling",
    "Seals",
    "SecondMoments",
    "Source",
    "Sum",
    "Threads",
    "TreeGradients",
    "Units",
    "batch_cost",
    "cached_blocks",
    "drawn_minimiser",
    "finest_clipped_sum",
    "hessian_sum",
    "joint_clip",
    "law_for_units",
    "marks",
    "moment_bits",
    "new_digest",
    "perturbed_minimiser",
    "perturbed_saddle_point",
    "phased_minimiser",
    "require_frame",
    "sum_without_privacy",
]
