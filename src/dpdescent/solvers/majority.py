r"""Majority: no features at all, the baseline every model must beat.

The number of rows in each class, or the mean label where labels are numbers, is measured once with the whole budget;
the model is the constant that fits it best (`Loss.best_constant`): the log-odds for logistic losses, the sign for
hinges, the mean for squared errors.

**Privacy** One Gaussian release of the counts (`label_counts`) or of the sum of the labels (`label_sum`), calibrated
exactly to (epsilon, delta); the constant is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..curator import Curator
from ..errors import InvalidParameter, UnsupportedLoss
from ..problems import LabelKind, Need, require_needs
from ..questions import label_counts, label_sum
from .result import Progress, SolverResult

__all__ = ["MajoritySettings", "majority"]


@dataclass(frozen=True)
class MajoritySettings:
    """Settings of `majority`: there are none."""

    currency: ClassVar[str] = "gdp"
    batch_rate: ClassVar[float] = 1.0


def majority(curator: Curator, settings: MajoritySettings, progress: Progress | None = None) -> SolverResult:  # noqa: ARG001
    """Fit a constant to the noisy label counts, or to the noisy mean label, of a curator's rows."""
    problem = curator.problem
    if not problem.intercept:
        raise InvalidParameter("method 'majority' is an intercept and nothing else: it needs fit_intercept=True")
    labels = problem.loss.labels
    require_needs("majority", {Need.CONSTANT}, problem.loss)
    if labels.kind is LabelKind.NUMBERS:
        if not -1 <= labels.low < labels.high <= 1:
            raise UnsupportedLoss(
                f"method 'majority' adds up labels in [-1, 1], and those of {type(problem.loss).__name__} lie in "
                f"[{labels.low:g}, {labels.high:g}]: scale them, or use method 'auto'"
            )
        noisy = np.array([label_sum(curator, curator.budget) / curator.rows])
    else:
        noisy = label_counts(curator, curator.budget)
    weights = np.zeros(problem.shape)
    weights[-1] = problem.loss.best_constant(noisy)
    if progress is not None:
        progress(1.0)
    return SolverResult(weights, 1)
