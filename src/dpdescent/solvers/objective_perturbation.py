r"""Objective perturbation: minimise the objective plus a random linear term.

Gaussian noise for (epsilon, delta) (Kifer, Smith & Thakurta 2012), norm-Laplace noise with ``pure=True`` (Chaudhuri,
Monteleoni & Sarwate 2011). The minimiser is computed to a certified tolerance and released with a little noise more,
so that the guarantee does not rest on an exact minimum (approximate minima perturbation, Iyengar et al. 2019):

.. math:: \tilde w = \arg\min_w \sum_i l(f_i x_i \cdot w, y_i) + \frac{n\alpha}{2}|w|^2 + \frac\Lambda2|w|^2
          + b \cdot w \;+\; \text{noise}.

The theorem needs short rows and a smooth loss: rows longer than B are scaled down to B (f_i = min(1, B/|x_i|), which
never changes the sign of a score), the hinge must be huberised, and the squared loss is replaced by Huber's with
slope 1.

Rules: B = max(1, 0.3 k^0.4) typical row lengths, where k = n mu/d and the typical length is measured with a fiftieth
of epsilon; Lambda is the larger of lipschitz B^2/(2 mu), which keeps the noise in a typical row's score near 2, and
of what keeps the price of the determinants below epsilon/10. Lambda applies to the intercept too. ``paper=True``
takes rows of length 1 and the least Lambda of the theorem, and measures nothing else.

**Privacy** One charge for the minimiser and its noise: see `dpdescent.accounting.approximate` for the theorem under
both relations, and `dpdescent.curator.NoisyMinimiser` for why inexact minimisers and lattice noise are covered.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..accounting import ApproximateDP, ObjectivePerturbation, PureObjectivePerturbation, calibrate, epsilon_to_gdp
from ..curator import Curator
from ..minimisers import EmpiricalRisk, smooth_loss
from ..problems import Loss, Need
from ..queries import NoisyMinimiser
from .coordinates import measure_row_norm
from .method import Payment, Positive, Progress, Settings, SolverResult, method, report
from .rules import DELTA_SHARE, Facts, clip_multiple

_SHARE_LENGTH = 0.02
_OUTPUT_RATIO = 7.0  # the noise on the minimiser takes about 2% of mu^2
_PURE_OUTPUT_SHARE = 0.05


@dataclass(frozen=True)
class ObjPertSettings(Settings, paper_mode="objpert"):
    """Settings of `objpert`; None takes the rule.

    Parameters
    ----------
    pure : bool
        Norm-Laplace noise: epsilon-DP but for a probability of 2e-27, which delta must cover.
    row_bound : float, optional
        B.
    strong_convexity : float, optional
        Lambda, for the sum over rows; raised where the determinants would take more than half of epsilon.
    """

    pure: bool = False
    row_bound: Positive | None = None
    strong_convexity: Positive | None = None

    def choose_currency(self, facts: Facts) -> str:
        return "pure" if self.pure else "approximate"

    @property
    def payment(self) -> Payment:
        if self.pure:
            return Payment("objective perturbation with norm-Laplace noise", ("pure", "approximate"))
        remedies = {"pure": "choose the setting pure of the method to be true"}
        return Payment("objective perturbation with a delta of its own", ("approximate",), remedies)


@method(
    "objpert",
    ObjPertSettings,
    purpose="objective perturbation, the minimiser with a random linear term: one release, pure with `pure=True`",
    passes="as many as the minimiser needs, then one release",
    papers=("Chaudhuri et al. 2011", "Kifer et al. 2012", "Iyengar et al. 2019"),
    needs=frozenset({Need.CONVEX, Need.BOUNDED_VERSION, Need.SMOOTH, Need.CORNERS}),
    gathers=True,
    units=False,
)
def objpert(curator: Curator, settings: ObjPertSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem with a random linear term."""
    facts, loss = Facts.of(curator), smooth_loss(curator.problem.loss, "objpert")
    mu = epsilon_to_gdp(facts.epsilon, facts.delta) / facts.change
    half = min(0.5 * curator.remaining, 16.0)  # delta must be large enough for whatever is left later
    curator.require_affordable(
        PureObjectivePerturbation(half) if settings.pure else ApproximateDP(half, facts.delta * DELTA_SHARE)
    )
    longest = curator.problem.longest_row
    length = longest if settings.paper else measure_row_norm(curator, _SHARE_LENGTH)
    richness = facts.promised_rows_per_parameter
    bound = min(settings.row_bound or clip_multiple(richness, 0.3, 0.4, least=1.0) * length, longest)
    trace, rank = loss.curvature_trace * bound**2 * (1 + 2.0**-40), loss.curvature_rank

    def least(price: float) -> float:
        """Return the strong convexity at which the determinants cost that much."""
        return trace / (rank * math.expm1(min(price / rank, 50.0)))

    affordable = least(0.5 * curator.remaining)
    rule = max(loss.lipschitz * bound**2 / (2 * mu), least(0.1 * curator.remaining))
    strong_convexity = max(settings.strong_convexity or (affordable if settings.paper else rule), affordable)
    risk = EmpiricalRisk(loss, bound)
    paid = _cost(curator, settings, loss, risk.log_determinant(strong_convexity))
    weights = curator.answer(NoisyMinimiser(risk, strong_convexity, paid))
    report(progress, 1.0)
    remarks = (
        f"rows longer than {bound:.6g}, in units of the bounds, were scaled down to it",
        f"{strong_convexity:.6g}/2 |w|^2 was added to the sum of the losses, intercept included",
        *((f"the loss was {type(loss).__name__}",) if loss is not curator.problem.loss else ()),
        "the minimiser is certified, rounding errors included, and released with noise that hides the tolerance",
    )
    return SolverResult(weights, 1, remarks=remarks)


def _cost(
    curator: Curator, settings: ObjPertSettings, loss: Loss, determinant: float
) -> ObjectivePerturbation | PureObjectivePerturbation:
    """Return the perturbation that spends what is left of the budget."""
    left, facts = curator.remaining, Facts.of(curator)
    if settings.pure:
        return PureObjectivePerturbation(min(left, determinant + 16), determinant, _PURE_OUTPUT_SHARE)
    return calibrate(
        lambda strength: ObjectivePerturbation(
            1 / strength,
            _OUTPUT_RATIO / strength,
            determinant,
            loss.corners,
            facts.relation,
            facts.delta * DELTA_SHARE,
        ),
        left,
        curator.ledger.currency,
    )
