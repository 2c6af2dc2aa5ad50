r"""DP-SGD: a fixed number of noisy, clipped gradients (Abadi et al. 2016), calibrated to the budget beforehand.

Each step measures the gradient of a batch, the gradient of every row clipped to the norm C, adds Gaussian noise and
moves against a running mean of the answers; the result is the average of the last half of the iterates:

.. math:: v_t = 0.9 v_{t-1} + 0.1 \tilde g_t, \qquad w_{t+1} = w_t - \eta v_t.

Number of steps, step size, clip norm and sampling rate are rules of public numbers (`dpdescent.solvers.schedule`).
By default all rows are used in each step: with exact Gaussian accounting a batch never needs less noise.
``paper=True`` is the SGD-MA of Lee & Kifer (2018): batches of sqrt(n) rows, no momentum, and the last iterate is the
result.

**Privacy** T Gaussian mechanisms, fixed in advance. With all rows, mu^2 adds up (Gaussian DP, exact conversion). With
batches, each step costs a Poisson-sampled Gaussian under zero-out, or one on a batch of fixed size under replace-one,
in RDP at one order that is chosen beforehand from public numbers. Momentum and averaging are post-processing.

References
----------
Abadi, M. et al. (2016). Deep learning with differential privacy. CCS. arXiv:1607.00133.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from ..curator import Curator
from .domains import Share
from .paper_modes import PAPER_MODES
from .result import Progress, SolverResult
from .schedule import DescentSettings, measure_schedule

__all__ = ["SGDSettings", "sgd"]


@dataclass(frozen=True)
class SGDSettings(DescentSettings):
    """Settings of `sgd`: those of `DescentSettings` and one more.

    Parameters
    ----------
    momentum : float, optional
        Discount of older gradients, in [0, 1). Default 0.9; 0 in the paper.
    """

    momentum: Share | None = None

    paper_mode = PAPER_MODES["sgd"]

    rest: ClassVar[Mapping[str, object]] = {"momentum": 0.9}


def sgd(curator: Curator, settings: SGDSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-SGD."""
    schedule = measure_schedule(curator, settings)
    weights = np.zeros(curator.problem.shape)
    velocity, average = np.zeros_like(weights), np.zeros_like(weights)
    averaged = 1 if settings.paper else schedule.steps - schedule.steps // 2
    momentum = float(settings.momentum or 0)
    for step in range(schedule.steps):
        gradient = schedule.gradients.at(weights)
        velocity = momentum * velocity + (1 - momentum) * gradient
        weights = weights - schedule.step_size * velocity
        if step >= schedule.steps - averaged:
            average += weights / averaged
        if progress is not None:
            progress(1 - curator.remaining / curator.budget)
    return SolverResult(average, schedule.steps, (schedule.step_size,) * schedule.steps)
