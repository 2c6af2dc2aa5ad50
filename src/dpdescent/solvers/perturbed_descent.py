r"""Output perturbation of descents: steps without noise, and noise once at the end.

Both need rows of bounded length and a smooth loss: rows longer than B are scaled down to B (which never changes the
sign of a score), the hinge must be huberised, and the squared loss is replaced by Huber's with slope 1.

**Gradient descent** (Zhang, Zheng, Mou & Wang 2017) takes T exact steps.

.. math:: w_{t+1} = w_t - \eta \nabla F(w_t), \qquad \tilde w = w_T + N(0, \sigma^2 I).

The paper's sigma comes from the classical Gaussian mechanism and is not private for epsilon above 1; here it is the
exact one for the sensitivity, whatever epsilon is. The step size is 1/beta with beta = s B^2 + alpha, and since the
sensitivity in the convex case is eta T C/n, the number of steps is what lets the noise move a typical row's score by
about r = min(0.7, 0.5 k^-0.2), k = n mu/d: T = r n mu beta/(C L), at most 1000, where L is the typical length of a
row, measured with a hundredth of the budget, and B = max(0.7, 0.3 k^0.4) L. ``paper=True`` takes the T, the step size
and the B of Lee & Kifer (2018), and measures nothing.

*Privacy*: One Gaussian release; see `dpdescent.curator.NoisyDescent` for the sensitivity in the convex and the
strongly convex case, under both relations, and for the rounding errors of the steps.

**Permuted SGD with averaging** (Wu et al. 2017; Chen, Lee & Kifer 2019). In each of k passes the rows are permuted
and divided into batches of b; after a pass the point is replaced by the average of its iterates, and after the last
one it is released with Gaussian noise:

.. math:: w \leftarrow w - \frac{\eta}{b} \sum_{i \in \text{batch}} \nabla l_i(w), \qquad
          w \leftarrow \text{average over the pass}, \qquad \tilde w = w + N(0, \sigma^2 I).

A row is read once per pass, at a position that is secret, and an early position counts for more in the average. The
shift that the row causes is therefore random, about half of the largest one, and the Renyi divergence of the mixture
is charged.

Rules: B and the noise r in a score as in `outpert_gd`, ten passes, step size 1/beta, and batches of b = k n eta/S
rows, S = 2 r n mu/(C L), which counts the shift as half of the largest one; at least n/1000.

*Privacy*: One release in RDP at one order, a rule of (epsilon, delta); see `dpdescent.curator.PermutedDescent` for
the shift under both relations and the rounding errors, and `dpdescent.accounting.sampling` for the mixture. The
bound of Chen, Lee & Kifer for strongly convex objectives is not used: the convex one holds for every penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..accounting import ShuffledDescent, calibrate
from ..curator import Curator, NoisyDescent, PermutedDescent
from ..minimisers import smooth_loss
from ..problems import Loss, Need
from .coordinates import ROW_NORM_SHARE, measure_row_norm
from .method import Progress, SolverResult, method, report
from .method_settings import Count, Moderate, Positive, Settings
from .rules import Facts, clip_multiple

_NEEDS = frozenset({Need.CONVEX, Need.BOUNDED_VERSION, Need.SMOOTH})
_MOST_STEPS, _MOST_BATCHES = 1000, 1000


@dataclass(frozen=True)
class OutPertGDSettings(Settings, paper_mode="outpert-gd"):
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

    def choose_currency(self, facts: Facts) -> str:
        return "gdp"


@method(
    "outpert-gd",
    OutPertGDSettings,
    purpose="exact gradient descent and noise at the end: a baseline",
    passes="up to 1,000, then one release",
    papers=("Zhang et al. 2017",),
    needs=_NEEDS,
    gathers=True,
)
def outpert_gd(curator: Curator, settings: OutPertGDSettings, progress: Progress | None = None) -> SolverResult:
    """Descend along exact gradients and release the last point with noise."""
    loss = smooth_loss(curator.problem.loss, "outpert-gd")
    bound, step_size, time = _measure_plan(
        curator, loss, settings.row_bound, 0.0 if settings.paper else ROW_NORM_SHARE
    )
    step_size = min(settings.step_size or step_size, step_size)
    steps = settings.steps or math.ceil(min(max(time / step_size, 1), _MOST_STEPS))
    weights = curator.answer(NoisyDescent(loss, bound, step_size, steps, curator.gaussian(curator.remaining)))
    report(progress, 1.0)
    return SolverResult(weights, steps, (step_size,) * steps, remarks=_remarks(curator, loss, bound))


def _measure_plan(curator: Curator, loss: Loss, row_bound: float | None, share: float) -> tuple[float, float, float]:
    """Pay for a plan: return B, the step size 1/beta, and the time eta T that the noise allows.

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


def _remarks(curator: Curator, loss: Loss, bound: float) -> tuple[str, ...]:
    """Return what was done to the rows and to the loss."""
    return (
        f"rows longer than {bound:.6g}, in units of the bounds, were scaled down to it",
        *((f"the loss was {type(loss).__name__}",) if loss is not curator.problem.loss else ()),
        "the sensitivity includes a bound on the rounding errors of all steps",
    )


@dataclass(frozen=True)
class OutPertRSGDSettings(Settings, paper_mode="outpert-rsgd"):
    """Settings of `outpert_rsgd`; None takes the rule.

    Parameters
    ----------
    passes : int
        k.
    batch_rows : int, optional
        b.
    row_bound : float, optional
        B.
    """

    passes: Count = 10
    batch_rows: Count | None = None
    row_bound: Positive | None = None

    def choose_currency(self, facts: Facts) -> str:
        return "rdp"


@method(
    "outpert-rsgd",
    OutPertRSGDSettings,
    purpose="permuted SGD with averaging and noise at the end: a baseline",
    passes="ten, then one release",
    papers=("Wu et al. 2017", "Chen et al. 2019"),
    needs=_NEEDS,
    gathers=True,
    units=False,
)
def outpert_rsgd(curator: Curator, settings: OutPertRSGDSettings, progress: Progress | None = None) -> SolverResult:
    """Pass over permuted rows, averaging, and release the last average with noise."""
    loss = smooth_loss(curator.problem.loss, "outpert-rsgd")
    bound, step_size, time = _measure_plan(curator, loss, settings.row_bound, ROW_NORM_SHARE)
    wanted = settings.passes * curator.rows * step_size / (2 * time)
    batch_rows = settings.batch_rows or min(max(math.ceil(wanted), -(-curator.rows // _MOST_BATCHES)), curator.rows)
    passes, batches = settings.passes, -(-curator.rows // batch_rows)
    cost = calibrate(
        lambda strength: ShuffledDescent(1 / strength, passes, batches), curator.remaining, curator.currency
    )
    weights = curator.answer(PermutedDescent(loss, bound, batch_rows, step_size, cost))
    report(progress, 1.0)
    steps = passes * batches
    return SolverResult(weights, steps, (step_size,) * steps, remarks=_remarks(curator, loss, bound))
