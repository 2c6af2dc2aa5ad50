r"""DP-Adam: Adam (Kingma & Ba 2015) on the noisy gradients of DP-SGD.

.. math:: m_t = \beta_1 m_{t-1} + (1-\beta_1)\tilde g_t, \quad v_t = \beta_2 v_{t-1} + (1-\beta_2)\tilde g_t^2, \quad
          w_{t+1} = w_t - \eta\, \hat m_t / (\sqrt{\hat v_t} + \epsilon_0),

with hats for the division by 1 - beta^t. Every coordinate moves by about eta per step whatever its scale, noise too,
so the default eta = 1.5/(L sqrt T) lets pure noise move a typical row's score by about 1.5; the result is the average
of the last half of the iterates. All other numbers are those of `dpdescent.solvers.schedule`.

**Privacy** That of `sgd`: all moments are post-processing of the same T noisy gradients.

References
----------
Abadi, M. et al. (2016). Deep learning with differential privacy. CCS. arXiv:1607.00133.
Kingma, D. P. & Ba, J. (2015). Adam: a method for stochastic optimization. ICLR. arXiv:1412.6980.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..curator import Curator
from .domains import Positive, Share
from .paper_modes import PAPER_MODES
from .result import Progress, SolverResult
from .schedule import DescentSettings, measure_schedule

__all__ = ["AdamSettings", "adam"]


@dataclass(frozen=True)
class AdamSettings(DescentSettings):
    """Settings of `adam`: those of `DescentSettings` and three more.

    Parameters
    ----------
    beta1, beta2 : float
        Discounts of older gradients and of older squares, in [0, 1).
    offset : float
        epsilon_0, which keeps a coordinate without any gradient still.
    """

    beta1: Share = 0.9
    beta2: Share = 0.999
    offset: Positive = 1e-8

    paper_mode = PAPER_MODES["adam"]


def adam(curator: Curator, settings: AdamSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-Adam."""
    schedule = measure_schedule(curator, settings)
    steps = schedule.steps
    step_size = settings.step_size or 1.5 / (schedule.row_length * math.sqrt(steps))
    weights = np.zeros(curator.problem.shape)
    first, second, average = np.zeros_like(weights), np.zeros_like(weights), np.zeros_like(weights)
    averaged = 1 if settings.paper else steps - steps // 2
    for step in range(1, steps + 1):
        gradient = schedule.gradients.at(weights)
        first = settings.beta1 * first + (1 - settings.beta1) * gradient
        second = settings.beta2 * second + (1 - settings.beta2) * gradient**2
        mean, square = first / (1 - settings.beta1**step), second / (1 - settings.beta2**step)
        weights = weights - step_size * mean / (np.sqrt(square) + settings.offset)
        if step > steps - averaged:
            average += weights / averaged
        if progress is not None:
            progress(1 - curator.remaining / curator.budget)
    return SolverResult(average, steps, (step_size,) * steps)
