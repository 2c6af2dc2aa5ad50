r"""Majority: no features at all, the baseline every model must beat.

The number of rows in each class is measured once with the whole budget; the model is the constant that fits those
counts best: the log-odds for logistic losses, the sign for hinges, the mean for squared errors.

**Privacy** One Gaussian release of the counts (`LabelCounts`) or of the sum of the labels (`LabelSum`), calibrated
exactly to (epsilon, delta); the constant is post-processing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..curator import Curator, LabelCounts, LabelSum
from ..errors import InvalidParameter
from ..problems import Hinge, HuberisedHinge, Squared
from .result import Progress, SolverResult

__all__ = ["MajoritySettings", "majority"]


@dataclass(frozen=True)
class MajoritySettings:
    """Settings of `majority`: there are none."""

    currency: ClassVar[str] = "gdp"
    batch_rate: ClassVar[float] = 1.0


def majority(curator: Curator, settings: MajoritySettings, progress: Progress | None = None) -> SolverResult:  # noqa: ARG001
    """Fit a constant to the noisy label counts of a curator's rows."""
    problem = curator.problem
    if not problem.intercept:
        raise InvalidParameter("method 'majority' is an intercept and nothing else: it needs fit_intercept=True")
    weights, noise = np.zeros(problem.shape), curator.gaussian(curator.budget)
    if isinstance(problem.loss, Squared):
        mean = curator.answer(LabelSum(noise)) / curator.rows
        weights[-1] = min(max(mean, -1.0), 1.0)
    else:
        counts = np.maximum(curator.answer(LabelCounts(noise)), 0.5)
        logits = np.log(counts / counts.sum())
        binary = problem.loss.outputs == 1
        weights[-1] = logits[1] - logits[0] if binary else logits - logits.mean()
        if isinstance(problem.loss, Hinge | HuberisedHinge):
            weights[-1] = np.sign(weights[-1])
    if progress is not None:
        progress(1.0)
    return SolverResult(weights, 1)
