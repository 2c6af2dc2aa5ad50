r"""The exponential mechanism over points of a ball (Bassily, Smith & Thakurta 2014), sampled exactly.

.. math:: P(w) \propto \exp\Big(-\frac{\epsilon}{\text{range}} \Big(\sum_i l(f_i x_i \cdot w, y_i)
          + \frac{n\mu}{2}|w|^2\Big)\Big), \qquad |w| \le R.

With ``localise=True`` half of epsilon first pays for a point near the minimiser, with norm-Laplace noise, and the
other half a point of the small ball around it. The guarantee is pure but for the 1e-27 of delta that norm-Laplace
noise needs. Where delta is 0, every weight of the first point has Laplace noise instead, of the scale b = sqrt(p)
Delta/epsilon, because the sizes of p numbers add up to at most sqrt(p) times their length; the noise is no longer
than the sum of p exponential draws of scale b.

Rules: B is the longest row that the bounds allow; mu = s B^2/25 with the smoothness s of the loss; R is the public
bound on the length of the minimiser, min(L/mu, sqrt(2 l(0)/mu)), or for a small ball the length that the noise
exceeds with a probability of 1e-9. Only a few columns are practical: exact sampling needs some 5^p proposals for p
weights, and what would take too long is refused before anything is charged, with the number of proposals.

**Privacy** `dpdescent.minimisers.sampler` has the sensitivity under both relations, and what is assumed about time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.special import gammainccinv

from ..accounting import ExponentialMechanism, Laplace, NormLaplace
from ..curator import Curator
from ..minimisers import Ball, EmpiricalRisk, smooth_loss
from ..problems import Need
from ..queries import BallPoint, NoisyMinimiser, law_for_units
from .method import Moderate, Payment, Progress, Settings, SolverResult, method, report
from .rules import Facts

_CONDITION = 25.0
_OUTSIDE = 1e-9


@dataclass(frozen=True)
class ExpMechSettings(Settings, paper_mode="expmech"):
    """Settings of `expmech`; None takes the rule.

    Parameters
    ----------
    localise : bool, optional
        Draw from a small ball around a noisy minimiser. Default False; True in the paper.
    row_bound : float, optional
        B: longer rows are scaled down to it.
    strong_convexity : float, optional
        mu, of the mean loss; it applies to the intercept too.
    """

    localise: bool | None = None
    row_bound: Moderate | None = None
    strong_convexity: Moderate | None = None

    def choose_currency(self, facts: Facts) -> str:
        return "pure"

    @property
    def payment(self) -> Payment:
        # One draw, or two, are planned in units of epsilon.
        return Payment("the exponential mechanism, planned in epsilons", ("pure", "approximate"))


@method(
    "expmech",
    ExpMechSettings,
    purpose="the exponential mechanism over models, sampled exactly: pure privacy for a few columns",
    passes="thousands to millions of candidate models; refused where more would be needed",
    papers=("Bassily et al. 2014", "Lowy & Razaviyayn 2021"),
    needs=frozenset({Need.CONVEX, Need.BOUNDED_VERSION, Need.SMOOTH, Need.ONE_MARGIN}),
    general=False,
    gathers=True,
)
def expmech(curator: Curator, settings: ExpMechSettings, progress: Progress | None = None) -> SolverResult:
    """Draw a point with about the least objective."""
    problem, loss = curator.problem, smooth_loss(curator.problem.loss, "expmech")
    row_bound = min(settings.row_bound or problem.longest_row, problem.longest_row)
    mean = settings.strong_convexity or loss.smoothness * row_bound**2 / _CONDITION
    risk, rows, mu = EmpiricalRisk(loss, row_bound), curator.rows, mean * curator.rows
    quadratic = mu + rows * problem.penalty_curvature(np.zeros(problem.shape))
    epsilon = curator.remaining
    if not settings.localise:
        whole = Ball(risk, rows, quadratic, np.zeros(problem.shape), risk.farthest(rows, mu) * (1 + 2.0**-20))
        weights = curator.answer(BallPoint(whole, ExponentialMechanism(epsilon)))
    else:
        pure, second = curator.ledger.delta == 0, ExponentialMechanism(epsilon / 2)
        first = Laplace(epsilon / 2) if pure else NormLaplace(min(epsilon / 2, 16.0))
        moved = curator.rows_per_unit * risk.variation(rows, curator.relation) / mu
        spread = moved * (1 + 2.0**-6) / first.epsilon * (math.sqrt(problem.grid.dimension) if pure else 1.0)
        radius = spread * float(gammainccinv(problem.grid.dimension, _OUTSIDE))
        law = law_for_units(second, curator.rows_per_unit)
        Ball(risk, rows, quadratic, np.ones(problem.shape), radius).require_practical(law, curator.relation)
        near = curator.answer(NoisyMinimiser(risk, mu, first, tolerance=2.0**-10))
        weights = curator.answer(BallPoint(Ball(risk, rows, quadratic, near, radius), second))
    report(progress, 1.0)
    remarks = (
        f"rows longer than {row_bound:.6g}, in units of the bounds, were scaled down to it",
        f"{mean:.6g}/2 |w|^2 was added to the mean loss, intercept included",
        *((f"the loss was {type(loss).__name__}",) if loss is not problem.loss else ()),
        "the point was drawn exactly, by rejection; its time is assumed to be unseen where no proposal is taken",
    )
    return SolverResult(weights, 1, remarks=remarks)
