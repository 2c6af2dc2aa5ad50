r"""Majority: no features at all, the baseline every model must beat.

The number of rows in each class, or the mean label where labels are numbers, is measured once with the whole budget;
the model is the constant that fits it best (`Loss.best_constant`): the log-odds for logistic losses, the sign for
hinges, the mean for squared errors.

**Privacy** One Gaussian release of the counts (`LabelCounts`) or of the sum of the labels (`LabelSum`), calibrated
exactly to (epsilon, delta); the constant is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..curator import Curator, LabelCounts, LabelSum
from ..errors import InvalidParameter
from ..problems import LabelKind
from .paper_modes import PAPER_MODES
from .result import Facts, Progress, SolverResult
from .settings import Settings

__all__ = ["MajoritySettings", "majority"]


@dataclass(frozen=True)
class MajoritySettings(Settings):
    """Settings of `majority`: there are none but ``paper``, which changes nothing."""

    paper_mode = PAPER_MODES["majority"]

    def choose_currency(self, facts: Facts) -> str:
        return "gdp"


def majority(curator: Curator, settings: MajoritySettings, progress: Progress | None = None) -> SolverResult:  # noqa: ARG001
    """Fit a constant to the noisy label counts, or to the noisy mean label, of a curator's rows."""
    problem = curator.problem
    if not problem.intercept:
        raise InvalidParameter("method 'majority' is an intercept and nothing else: it needs fit_intercept=True")
    labels = problem.loss.labels
    noise = curator.gaussian(curator.budget)
    if labels.kind is LabelKind.NUMBERS:
        noisy = np.array([curator.answer(LabelSum(noise)) / curator.rows])
    else:
        noisy = curator.answer(LabelCounts(noise))
    weights = np.zeros(problem.shape)
    weights[-1] = problem.loss.best_constant(noisy)
    if progress is not None:
        progress(1.0)
    return SolverResult(weights, 1)
