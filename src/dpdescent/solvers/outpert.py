r"""Output perturbation (Lowy & Razaviyayn 2021): minimise to a certified tolerance, then add noise once.

.. math:: \tilde w = \Pi_{B(0,R)}\Big(\arg\min_{w} \Big[\sum_i l(f_i x_i \cdot w, y_i) + \frac{n\alpha}{2}|w|^2
          + \frac\Lambda2|w|^2\Big] + z\Big).

Gaussian noise for (epsilon, delta), whatever epsilon is; norm-Laplace noise with ``pure=True``, which is epsilon-DP
but for a probability of 1e-27 that delta must cover; and Laplace noise on every weight where delta is 0. Rows longer
than B are scaled down to B (f_i = min(1, B/|x_i|), which never changes the sign of a score), and the squared loss is
replaced by Huber's with slope 1. The hinge may keep its kink. The solver is a black box, chosen by ``minimiser``.

Rules. Without a radius R the minimiser is that over all weights. B = max(0.5, 0.1 k^0.4) typical row lengths L,
measured with a hundredth of the budget, where k = n/(s p), s the noise in units of the sensitivity and p the number
of weights; and the strong convexity is what lets the noise move a typical row's score by about r = min(0.8, 1.6
k^-0.3): Lambda = s C L/r. Where a row may be replaced C counts twice, here and in k. If a radius is given and no
strong convexity, the objective is only assumed to be convex and is minimised over B(0, R), with the regularisation
that the paper prescribes for the rows at hand, or with ``population=True`` the one that it prescribes for the
distribution that they were drawn from (Sections 4.3 and 4.4), which is larger. If both are given, B(0, R) must
contain the minimiser of every table. Lambda applies to the intercept too.

The paper's bound on the sensitivity has the regulariser in it, and Algorithm 6 a factor 2 too much in its exponent;
here public terms cancel, and the noise is that of the exact Gaussian mechanism, or, with ``sigma="paper"``, of the
paper's equation 5.

**Privacy** One release; see `dpdescent.curator.NoisyMinimiser` for the sensitivity, C/Lambda plus twice the
tolerance (2C/Lambda if a row is replaced), and `dpdescent.minimisers` for the certificate. A solver that is accurate
only on average is not enough: what it returns with a small probability could reveal a row.

References
----------
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import numpy as np

from ..accounting import Gaussian, Laplace, NormLaplace, gaussian_tail_constant, loose_noise_multiplier
from ..curator import Curator, NoisyMinimiser
from ..errors import InvalidParameter, require_positive, require_positive_integer
from ..minimisers import METHODS, EmpiricalRisk, require_minimiser, smooth_loss, who_minimises
from ..problems import L2, Loss
from .domains import Moderate, Positive, Within
from .paper_modes import PAPER_MODES
from .result import Facts, Progress, SolverResult
from .rules import clip_multiple
from .series import measure_row_norm
from .settings import GAUSSIAN_NOISE, Payment, Settings

__all__ = ["OutPertSettings", "outpert", "price_of_privacy", "regularisation"]

_SHARE_LENGTH = 0.01
_LARGEST_EPSILON = 16.0  # norm-Laplace noise was checked up to this epsilon


_Convexity = Annotated[
    float,
    Within(
        2.0**-200,
        2.0**200,
        remedy="without it one row may move the minimiser by any distance; leave it out for the rule",
    ),
]


@dataclass(frozen=True)
class OutPertSettings(Settings):
    """Settings of `outpert`; None takes the rule.

    Parameters
    ----------
    pure : bool
        Norm-Laplace noise: epsilon-DP but for a probability of 1e-27, which delta must cover.
    row_bound : float, optional
        B.
    strong_convexity : float, optional
        mu of n times the objective, the penalty's share included.
    radius : float, optional
        R, of a ball that the released weights lie in.
    population : bool
        Regularise for the risk in the population; it needs ``radius`` and no ``strong_convexity``.
    tolerance : float, optional
        tau, the certified distance to the minimiser, in units of the sensitivity: 1/256, and 1/64 with the hinge.
    minimiser : {"lbfgs", "agd", "katyusha", "subgradient", "sgd"}
    sigma : {"analytic", "paper"}, optional
        Default "analytic".
    """

    pure: bool = False
    row_bound: Moderate | None = None
    strong_convexity: _Convexity | None = None
    radius: Moderate | None = None
    population: bool = False
    tolerance: Positive | None = None
    minimiser: str = "lbfgs"
    sigma: Literal["analytic", "paper"] | None = None

    paper_mode = PAPER_MODES["outpert"]
    rest: ClassVar[Mapping[str, object]] = {"sigma": "analytic"}

    def __post_init__(self) -> None:
        if self.pure:  # an option of the noise, which the paper has for either kind
            self.fill({"sigma": "analytic"})
        super().__post_init__()
        if self.minimiser not in METHODS:
            raise InvalidParameter(f"unknown minimiser {self.minimiser!r}: choose one of {', '.join(METHODS)}")
        if self.population and (self.radius is None or self.strong_convexity is not None):
            raise InvalidParameter(
                "population is about the regularisation of a convex loss over a ball: give radius, and leave "
                "strong_convexity out"
            )
        if self.pure and self.sigma == "paper":
            raise InvalidParameter("sigma is about Gaussian noise: leave it out with pure=True")

    def choose_currency(self, facts: Facts) -> str:
        return "pure" if self.pure or facts.delta == 0 else "gdp"

    @property
    def fixed_noise(self) -> bool:
        return self.sigma == "paper"

    @property
    def payment(self) -> Payment:
        if self.pure:
            remedies = dict.fromkeys(GAUSSIAN_NOISE.currencies, "leave pure out")
            return Payment("norm-Laplace noise", ("pure",), remedies)
        if self.sigma == "paper":
            return GAUSSIAN_NOISE
        currencies = (*GAUSSIAN_NOISE.currencies, "pure")
        return Payment("Gaussian noise, or Laplace noise where the ledger is pure", currencies)


def outpert(curator: Curator, settings: OutPertSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem, and release the minimiser with noise."""
    facts, loss = Facts.of(curator), curator.problem.loss
    loss = loss if loss.hinge else smooth_loss(loss, "outpert")
    least = facts.rows * float(np.min(curator.problem.penalty_curvature(np.zeros(curator.problem.shape))))
    _require_sense(curator, settings, loss, least)
    curator.require_affordable(output_noise(curator, settings))
    length = settings.row_bound or (curator.problem.longest_row if settings.paper else None)
    length = length or measure_row_norm(curator, _SHARE_LENGTH)
    cost, left = output_noise(curator, settings), curator.remaining
    deviation = noise_deviation(cost, facts.parameters)
    richness = facts.rows / (deviation * facts.parameters * facts.change)
    rule = length if settings.paper else clip_multiple(richness, 0.1, 0.4) * length
    bound = settings.row_bound or rule
    risk = EmpiricalRisk(loss, min(bound, curator.problem.longest_row))
    if settings.strong_convexity is not None:
        wanted = settings.strong_convexity
    elif settings.radius is not None:
        wanted = facts.rows * regularisation(
            lipschitz=risk.gradient_bound(1),
            radius=settings.radius,
            dimension=facts.parameters,
            epsilon=facts.epsilon,
            delta=facts.delta if isinstance(cost, Gaussian) else 0.0,
            rows=max(1, facts.rows // facts.rows_per_unit),
            smoothness=risk.smoothness(1),
            population=settings.population,
        )
    else:
        moved = facts.rows_per_unit * risk.variation(facts.rows, curator.relation)
        wanted = deviation * moved * length / min(0.8, 1.6 * math.pow(richness, -0.3))
    added = max(wanted - least, 0.0)
    radius = settings.radius or math.inf
    weights = curator.answer(NoisyMinimiser(risk, added, cost, settings.tolerance, radius, settings.minimiser))
    if progress is not None:
        progress(1.0)
    remarks = (
        f"rows longer than {risk.row_bound:.6g}, in units of the bounds, were scaled down to it",
        *((f"{added:.6g}/2 |w|^2 was added to the sum of the losses, intercept included",) if added else ()),
        *((f"the loss was {type(loss).__name__}",) if loss is not curator.problem.loss else ()),
        *(
            (f"the weights, in units of the bounds, were kept within {radius:.6g} of zero",)
            if settings.radius
            else ()
        ),
        *unused_budget(cost, left),
        *who_minimises(settings.minimiser, smooth=not loss.hinge),
        "the minimiser is certified, rounding errors included, and the noise covers the tolerance",
    )
    return SolverResult(weights, 1, remarks=remarks)


def output_noise(curator: Curator, settings: OutPertSettings) -> Gaussian | NormLaplace | Laplace:
    """Return the noise that the rest of the budget pays for."""
    left, facts = curator.remaining, Facts.of(curator)
    if curator.ledger.currency.name == "pure":
        return NormLaplace(min(left, _LARGEST_EPSILON)) if facts.delta > 0 else Laplace(left)
    if settings.sigma == "paper":
        return Gaussian(loose_noise_multiplier(facts.epsilon, facts.delta))
    return curator.ledger.currency.gaussian(left)


def unused_budget(cost: Gaussian | NormLaplace | Laplace, left: float) -> tuple[str, ...]:
    """Return a remark if the noise leaves a part of the budget unused."""
    if not isinstance(cost, NormLaplace) or cost.epsilon >= left:
        return ()
    return (
        f"norm-Laplace noise was used at epsilon {cost.epsilon:g}, the largest that it was checked for; the rest of "
        "the budget was not spent",
    )


def noise_deviation(cost: Gaussian | NormLaplace | Laplace, parameters: int) -> float:
    """Return the standard deviation of the noise in a weight over the sensitivity."""
    if isinstance(cost, Gaussian):
        return cost.noise_multiplier
    if isinstance(cost, NormLaplace):
        return math.sqrt(parameters + 1) / cost.epsilon
    return math.sqrt(2 * parameters) / cost.epsilon


def _require_sense(curator: Curator, settings: OutPertSettings, loss: Loss, least: float) -> None:
    """Refuse what cannot be minimised, or need not lie in the ball, before anything is charged."""
    if not isinstance(curator.problem.penalty, L2):
        raise InvalidParameter("method 'outpert' needs a convex quadratic penalty: use L2")
    require_minimiser(settings.minimiser, smooth=not loss.hinge, rows=True, hinge=loss.hinge)
    if settings.strong_convexity is None or settings.radius is None:
        return
    longest = curator.problem.longest_row
    risk = EmpiricalRisk(loss, min(settings.row_bound or longest, longest))
    farthest = risk.farthest(curator.rows, max(settings.strong_convexity, least))
    if settings.radius < farthest:
        raise InvalidParameter(
            f"radius {settings.radius:.4g} is too small: with this strong_convexity the minimiser of some tables is "
            f"up to {farthest:.4g} long; raise either, or leave strong_convexity out and minimise over the ball"
        )


def regularisation(
    *,
    lipschitz: float,
    radius: float,
    dimension: int,
    epsilon: float,
    delta: float = 0.0,
    rows: int | None = None,
    smoothness: float = math.inf,
    population: bool = False,
) -> float:
    """Return the lambda that the paper adds to a merely convex objective (Theorems 3.4 and 3.5, Section 4)."""
    price = price_of_privacy(dimension, epsilon, delta, rows)
    statistical = 1 / math.sqrt(rows) if population and rows is not None else 0.0
    if smoothness == math.inf:
        if population:
            return lipschitz / radius * (math.sqrt(price) + statistical)
        return lipschitz / radius / math.sqrt(1 + 1 / price)
    return math.cbrt(smoothness * (lipschitz / radius) ** 2) * (math.cbrt(price**2) + statistical)


def price_of_privacy(dimension: int, epsilon: float, delta: float, rows: int | None) -> float:
    r"""Return x, the paper's price of privacy, for a mean over ``rows`` rows or a function that is no mean (n = 1).

    .. math:: x = \frac{d}{\varepsilon n} \quad(\delta = 0), \qquad
              x = \frac{\sqrt d\,(c_\delta + \sqrt{c_\delta^2 + \varepsilon})}{\varepsilon n} \quad (\delta > 0).
    """
    epsilon = require_positive("epsilon", epsilon) * (1 if rows is None else require_positive_integer("rows", rows))
    weights = require_positive_integer("dimension", dimension)
    if delta == 0:
        return weights / epsilon
    constant = gaussian_tail_constant(delta)
    alone = epsilon / (rows or 1)
    return math.sqrt(weights) * (constant + math.sqrt(constant**2 + alone)) / epsilon
