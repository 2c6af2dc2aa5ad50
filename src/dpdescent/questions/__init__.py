"""More questions for a curator, one room for each kind.

Like the curator's own methods they charge first, touch the rows second and noise last; a solver may ask any of them.
They reach into the curator, so they belong to the trusted part, as the curator does and solvers do not.
"""

from .batches import BatchGradients
from .candidates import best_candidates, public_generator
from .curvature import hessian, hessian_sum, mean_loss
from .descents import PermutedDescent, noisy_descent
from .labels import label_counts, label_sum
from .moments import moment_bits, second_moments
from .openly import minimise_openly
from .points import noisy_minimiser, perturbed_minimiser
from .reports import excess_adversarial_risk
from .rows import row_length
from .saddles import perturbed_saddle_point
from .sampling import Ball, sample_point
from .search import RowBatches
from .steps import FrameSteps

__all__ = [
    "Ball",
    "BatchGradients",
    "FrameSteps",
    "PermutedDescent",
    "RowBatches",
    "best_candidates",
    "excess_adversarial_risk",
    "hessian",
    "hessian_sum",
    "label_counts",
    "label_sum",
    "mean_loss",
    "minimise_openly",
    "moment_bits",
    "noisy_descent",
    "noisy_minimiser",
    "perturbed_minimiser",
    "perturbed_saddle_point",
    "public_generator",
    "row_length",
    "sample_point",
    "second_moments",
]
