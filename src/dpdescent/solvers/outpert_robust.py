r"""Output perturbation of tilted and of adversarial objectives (Lowy & Razaviyayn 2021, section 5).

The objective is that of `dpdescent.minimisers.robust`: a tilt tau weighs rows with large losses more, and an
adversary moves every row within a ball or a box before its loss is taken. Without either this is `outpert`.

**A tilt is expensive.** One row may have a share C/(C + n - 1) of all weights, C = exp(tau (A - a)), where [a, A]
holds the losses at every point considered. That is a matter of how long the weights may be, so a tilted objective
is minimised over a ball B(0, R). Rules: C = e k^0.3, k = n/(s p) with the noise s in units of the sensitivity and p
weights, so that R = log C/(tau (B + rho)); the strong convexity is what keeps the noise in a weight near R/10; and
B is the typical length of a row. A longer ball, or a weaker strong convexity, fits better and is noisier.

**An adversary costs next to nothing**: L = lipschitz (B + rho) instead of lipschitz B. Rules: B = max(0.5, 0.1 k^0.4)
typical row lengths, and the strong convexity is what lets the noise move a typical row's score by about
min(0.6, 1.5 k^-0.2). With ``risk_share`` that share of the budget reports how far the released model is from the
best one in the adversarial loss.

**Privacy** See `dpdescent.minimisers.robust` for the sensitivity under both relations,
`dpdescent.curator.NoisyMinimiser` for the release and `dpdescent.curator.ExcessAdversarialRisk` for the
report.

References
----------
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..accounting import Gaussian, Laplace, NormLaplace
from ..curator import Curator, ExcessAdversarialRisk, NoisyMinimiser
from ..errors import InvalidParameter, require_nonnegative
from ..minimisers import RobustRisk, require_minimiser, require_robust, smooth_loss
from .outpert import OutPertSettings, noise_deviation, outpert, output_noise
from .result import Facts, Progress, SolverResult
from .series import typical_row_norm

__all__ = ["RobustOutPertSettings", "outpert_robust"]

_SHARE_LENGTH = 0.01
_NOISE_SHARE = 0.1
_LARGEST_TILT = 1e6


@dataclass(frozen=True)
class RobustOutPertSettings(OutPertSettings):
    """Settings of `outpert_robust`: those of `outpert`, and one more.

    Parameters
    ----------
    risk_share : float
        Share of the budget for a report of the excess adversarial risk; 0 for none.
    """

    risk_share: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not require_nonnegative("risk_share", self.risk_share) < 1:
            raise InvalidParameter(f"risk_share must be below 1, got {self.risk_share}")


def outpert_robust(
    curator: Curator, settings: RobustOutPertSettings, progress: Progress | None = None
) -> SolverResult:
    """Minimise the tilted or adversarial objective of a curator's problem, and release the minimiser with noise."""
    problem, facts = curator.problem, Facts.of(curator)
    if settings.risk_share and (problem.adversary is None or problem.tilt):
        raise InvalidParameter("risk_share is for an adversary without a tilt: leave it at 0")
    if settings.risk_share and settings.sigma == "paper":
        raise InvalidParameter("sigma='paper' spends all of the budget: leave risk_share at 0")
    if problem.tilt == 0 and problem.adversary is None:
        return outpert(curator, settings, progress)
    if problem.tilt > _LARGEST_TILT:
        raise InvalidParameter(
            f"tilt must be at most {_LARGEST_TILT:g}, got {problem.tilt:g}: that is the largest loss"
        )
    loss = smooth_loss(problem.loss, "outpert")
    require_robust(loss, problem.adversary is not None)
    require_minimiser(settings.minimiser, smooth=True, rows=False)
    support = None
    if problem.adversary is not None:
        support = problem.adversary.support(problem.grid.dimension, problem.intercept)
    least = facts.rows * float(np.min(problem.penalty_curvature(np.zeros(problem.shape))))
    curator.require_affordable(output_noise(curator, settings))
    length = typical_row_norm(curator, _SHARE_LENGTH) if settings.row_bound is None else settings.row_bound
    reserved = settings.risk_share * curator.budget
    cost = _reduced(curator, settings, reserved)
    noise, moved = noise_deviation(cost, facts.parameters), facts.change
    richness = facts.rows / (moved * noise * facts.parameters)
    row_bound = settings.row_bound or (1.0 if problem.tilt else max(0.5, 0.1 * math.pow(richness, 0.4))) * length
    risk = RobustRisk(loss, min(row_bound, problem.longest_row), facts.rows, problem.tilt, support)
    wanted, radius = settings.strong_convexity, settings.radius or math.inf
    if problem.tilt:
        if settings.radius is None:
            spread = max(1 + 0.3 * math.log(richness), 0.5) / (problem.tilt * loss.lipschitz * risk.reach)
            radius = spread if wanted is None else risk.farthest(facts.rows, max(wanted, least))
        risk = RobustRisk(loss, risk.row_bound, facts.rows, problem.tilt, support, radius)
        if wanted is None:
            change = facts.rows_per_unit * risk.variation(facts.rows, curator.relation)
            wanted = noise * change / (_NOISE_SHARE * radius)
    elif wanted is None:
        wanted = moved * noise * risk.clip * length / min(0.6, 1.5 * math.pow(richness, -0.2))
    added = max(wanted - least, 0.0)
    weights = curator.answer(NoisyMinimiser(risk, added, cost, settings.tolerance, radius, settings.minimiser))
    remarks = [
        f"rows longer than {risk.row_bound:.6g}, in units of the bounds, were scaled down to it",
        f"{added:.6g}/2 |w|^2 was added to the sum of the losses, intercept included",
        *((f"the loss was {type(loss).__name__}",) if loss is not problem.loss else ()),
        *(
            (f"losses were tilted by {problem.tilt:g}, and the weights kept within {radius:.6g}",)
            if problem.tilt
            else ()
        ),
        *(("every row was moved by the adversary before its loss was taken",) if support else ()),
        "the minimiser is certified, rounding errors included, and the noise covers the tolerance",
    ]
    if reserved:
        currency = curator.ledger.currency
        left = reserved * (1 - 2.0**-40)  # sums of costs are rounded up
        paid = Laplace(left) if currency.name == "pure" else currency.gaussian(left)
        excess, deviation = curator.answer(ExcessAdversarialRisk(risk, added, weights, paid))
        remarks.append(f"excess adversarial risk: {excess:.4g}, with noise of standard deviation {deviation:.2g}")
    if progress is not None:
        progress(1.0)
    return SolverResult(weights, 1, remarks=tuple(remarks))


def _reduced(curator: Curator, settings: RobustOutPertSettings, reserved: float) -> Gaussian | NormLaplace | Laplace:
    """Return the noise that what is left of the budget buys, less what is reserved."""
    whole = output_noise(curator, settings)
    if not reserved:
        return whole
    left = curator.remaining - reserved
    if isinstance(whole, Gaussian):
        return curator.ledger.currency.gaussian(left)
    return type(whole)(min(left, whole.epsilon))
