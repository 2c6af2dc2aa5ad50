r"""Output perturbation of permuted SGD with averaging (Wu et al. 2017; Chen, Lee & Kifer 2019).

In each of k passes the rows are permuted and divided into batches of b; after a pass the point is replaced by the
average of its iterates, and after the last one it is released with Gaussian noise:

.. math:: w \leftarrow w - \frac{\eta}{b} \sum_{i \in \text{batch}} \nabla l_i(w), \qquad
          w \leftarrow \text{average over the pass}, \qquad \tilde w = w + N(0, \sigma^2 I).

A row is read once per pass, at a position that is secret, and an early position counts for more in the average. The
shift that the row causes is therefore random, about half of the largest one, and the Renyi divergence of the mixture
is charged.

Rows longer than B are scaled down to B, the hinge must be huberised, the squared loss becomes Huber's with slope 1.
Rules: B and the noise r in a score as in `outpert_gd`, ten passes, step size 1/beta, and batches of b = k n eta/S
rows, S = 2 r n mu/(C L), which counts the shift as half of the largest one; at least n/1000.

**Privacy** One release in RDP at one order, a rule of (epsilon, delta); see `dpdescent.curator.PermutedDescent` for
the shift under both relations and the rounding errors, and `dpdescent.accounting.sampling` for the mixture. The
bound of Chen, Lee & Kifer for strongly convex objectives is not used: the convex one holds for every penalty.

References
----------
Chen, C., Lee, J. & Kifer, D. (2019). Renyi differentially private ERM for smooth objectives. AISTATS.
Wu, X. et al. (2017). Bolt-on differential privacy for scalable stochastic gradient descent-based analytics. SIGMOD.
arXiv:1606.04722.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..accounting import ShuffledDescent, calibrate
from ..curator import Curator, PermutedDescent
from ..minimisers import smooth_loss
from .domains import Count, Positive
from .outpert_gd import plan, remarks
from .paper_modes import PAPER_MODES
from .result import Facts, Progress, SolverResult
from .settings import Settings

__all__ = ["OutPertRSGDSettings", "outpert_rsgd"]

_SHARE_LENGTH = 0.01
_MOST_BATCHES = 1000


@dataclass(frozen=True)
class OutPertRSGDSettings(Settings):
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

    paper_mode = PAPER_MODES["outpert-rsgd"]

    def choose_currency(self, facts: Facts) -> str:
        return "rdp"


def outpert_rsgd(curator: Curator, settings: OutPertRSGDSettings, progress: Progress | None = None) -> SolverResult:
    """Pass over permuted rows, averaging, and release the last average with noise."""
    loss = smooth_loss(curator.problem.loss, "outpert-rsgd")
    bound, step_size, time = plan(curator, loss, settings.row_bound, _SHARE_LENGTH)
    wanted = settings.passes * curator.rows * step_size / (2 * time)
    batch_rows = settings.batch_rows or min(max(math.ceil(wanted), -(-curator.rows // _MOST_BATCHES)), curator.rows)
    passes, batches = settings.passes, -(-curator.rows // batch_rows)
    cost = calibrate(
        lambda strength: ShuffledDescent(1 / strength, passes, batches), curator.remaining, curator.currency
    )
    weights = curator.answer(PermutedDescent(loss, bound, batch_rows, step_size, cost))
    if progress is not None:
        progress(1.0)
    steps = passes * batches
    return SolverResult(weights, steps, (step_size,) * steps, remarks=remarks(curator, loss, bound))
