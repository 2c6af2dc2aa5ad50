r"""Output perturbation of gradient descent (Zhang, Zheng, Mou & Wang 2017): T exact steps, then noise once.

.. math:: w_{t+1} = w_t - \eta \nabla F(w_t), \qquad \tilde w = w_T + N(0, \sigma^2 I).

The analysis needs rows of bounded length and a smooth loss: rows longer than B are scaled down to B (which never
changes the sign of a score), the hinge must be huberised, and the squared loss is replaced by Huber's with slope 1.

The paper's sigma comes from the classical Gaussian mechanism and is not private for epsilon above 1; here it is the
exact one for the sensitivity, whatever epsilon is. The step size is 1/beta with beta = s B^2 + alpha, and since the
sensitivity in the convex case is eta T C/n, the number of steps is what lets the noise move a typical row's score by
about r = min(0.7, 0.5 k^-0.2), k = n mu/d: T = r n mu beta/(C L), at most 1000, where L is the typical length of a
row, measured with a hundredth of the budget, and B = max(0.7, 0.3 k^0.4) L. ``paper=True`` takes the T, the step size
and the B of Lee & Kifer (2018), and measures nothing.

**Privacy** One Gaussian release; see `dpdescent.curator.NoisyDescent` for the sensitivity in the convex and the
strongly convex case, under both relations, and for the rounding errors of the steps.

References
----------
Zhang, J., Zheng, K., Mou, W. & Wang, L. (2017). Efficient private ERM for smooth objectives. IJCAI. arXiv:1703.09947.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..curator import Curator, NoisyDescent
from ..minimisers import smooth_loss
from ..problems import Loss
from .domains import Count, Moderate
from .paper_modes import PAPER_MODES
from .result import Facts, Progress, SolverResult
from .rules import clip_multiple
from .series import measure_row_norm
from .settings import Settings

__all__ = ["OutPertGDSettings", "outpert_gd"]

_SHARE_LENGTH = 0.01
_MOST_STEPS = 1000


@dataclass(frozen=True)
class OutPertGDSettings(Settings):
    """Settings of `outpert_gd`; None takes the rule.

    Parameters
    ----------
    steps : int, optional
        T.
    step_size : float, optional
        eta, at most 1/beta: a longer one is shortened to it, because the sensitivity holds up to there.
    row_bound : float, optional
        B.
    """

    steps: Count | None = None
    step_size: Moderate | None = None
    row_bound: Moderate | None = None

    paper_mode = PAPER_MODES["outpert-gd"]

    def choose_currency(self, facts: Facts) -> str:
        return "gdp"


def outpert_gd(curator: Curator, settings: OutPertGDSettings, progress: Progress | None = None) -> SolverResult:
    """Descend along exact gradients and release the last point with noise."""
    loss = smooth_loss(curator.problem.loss, "outpert-gd")
    bound, step_size, time = plan(curator, loss, settings.row_bound, 0.0 if settings.paper else _SHARE_LENGTH)
    step_size = min(settings.step_size or step_size, step_size)
    steps = settings.steps or math.ceil(min(max(time / step_size, 1), _MOST_STEPS))
    weights = curator.answer(NoisyDescent(loss, bound, step_size, steps, curator.gaussian(curator.remaining)))
    if progress is not None:
        progress(1.0)
    return SolverResult(weights, steps, (step_size,) * steps, remarks=remarks(curator, loss, bound))


def plan(curator: Curator, loss: Loss, row_bound: float | None, share: float) -> tuple[float, float, float]:
    """Return B, the step size 1/beta, and the time eta T that the noise allows.

    The typical row length is measured with that share of the budget; if it is 0, the longest row stands in for it.
    """
    facts = Facts.of(curator)
    information = facts.promised_rows
    length = measure_row_norm(curator, share) if share else curator.problem.longest_row
    richness = facts.promised_rows_per_parameter
    bound = row_bound or clip_multiple(richness, 0.3, 0.4, least=0.7) * length
    bound = min(bound, curator.problem.longest_row)
    penalty = float(np.max(curator.problem.penalty_curvature(np.zeros(curator.problem.shape))))
    step_size = 1 / (loss.smoothness * bound**2 + penalty)
    score_noise = min(0.7, 0.5 * math.pow(richness, -0.2))
    return bound, step_size, score_noise * information / (loss.lipschitz * bound * length)


def remarks(curator: Curator, loss: Loss, bound: float) -> tuple[str, ...]:
    """Return what was done to the rows and to the loss."""
    return (
        f"rows longer than {bound:.6g}, in units of the bounds, were scaled down to it",
        *((f"the loss was {type(loss).__name__}",) if loss is not curator.problem.loss else ()),
        "the sensitivity includes a bound on the rounding errors of all steps",
    )
