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
strong convexity, the objective is only assumed to be convex, and is minimised over B(0, R) with the regularisation of
the paper: that for the rows at hand, or with ``population=True`` the larger one for the distribution that they were
drawn from (Sections 4.3 and 4.4). If both are given, B(0, R) must contain the minimiser of every table. Lambda
applies to the intercept too.

The paper's bound on the sensitivity has the regulariser in it, and Algorithm 6 a factor 2 too much in its exponent;
here public terms cancel, and the noise is that of the exact Gaussian mechanism, or, with ``sigma="paper"``, of the
paper's equation 5.

**Tilted and adversarial objectives** (section 5 of the paper) are those of `dpdescent.minimisers.robust`: a tilt tau
weighs rows with large losses more, and an adversary moves every row within a ball or a box before its loss is taken.

**A tilt is expensive.** One row may have a share C/(C + n - 1) of all weights, C = exp(tau (A - a)), where [a, A]
holds the losses at every point considered. For two classes the rule is therefore to minimise the mean loss, and to
spend a twentieth of the budget on the length and the intercept that are best for the tilt
(`dpdescent.solvers.output_noise`).

**A tilted objective itself**, as in the paper, is minimised on request, for other losses, and where the ball of the
following rules is so small that a tilt changes next to nothing in it. C is a matter of how long the weights may be,
so that is done over a ball B(0, R). Rules, with k = n/(s p), the noise s in units of the sensitivity, p weights and
V(R) the change that one row can make in the gradient: the noise in a weight is d = min(R/20, r/length), with the r of
`outpert`; the strong convexity is what gives this noise, Lambda = s V(R)/d; and R is a third of the longest that a
minimiser can be with that Lambda, because a longer ball fits better and is noisier. A ball in which no row has more
than 1.05 times its share is taken as it is, so that the model for tau -> 0 is that of the mean loss. The thirds and
twentieths were chosen on Adult.

**An adversary costs next to nothing**: L = lipschitz (B + rho) instead of lipschitz B. Rules: the strong convexity is
what lets the noise move a typical row's score by about min(0.6, 1.5 k^-0.2); over a given ball it is what the paper
prescribes there. With ``risk_share`` that share of the budget reports how far the released model is from the best one
in the adversarial loss. With a tilt or an adversary, B = max(0.5, 0.1 k^0.4) typical row lengths.

The kink of the hinge is rounded off from above, by at most 2^-10. Tilts below 1e-9 are taken for 0.

**Privacy** One release; see `dpdescent.curator.NoisyMinimiser` for the sensitivity, C/Lambda plus twice the tolerance
(2C/Lambda if a row is replaced), and `dpdescent.minimisers` for the certificate. A solver that is accurate only on
average is not enough: what it returns with a small probability could reveal a row. See `dpdescent.minimisers.robust`
for the sensitivity under both relations, `dpdescent.curator.NoisyMinimiser` for the release,
`dpdescent.queries.MarginCounts` for the counts and `dpdescent.queries.ExcessAdversarialRisk` for the report.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar, Literal

import numpy as np

from ..accounting import Gaussian, NormLaplace
from ..arrays import Floats
from ..curator import Curator
from ..errors import InvalidParameter
from ..minimisers import (
    METHODS,
    ROUNDED_KINK,
    EmpiricalRisk,
    RobustRisk,
    require_minimiser,
    robust_loss,
    smooth_loss,
    who_minimises,
)
from ..problems import L2, LabelKind, Loss, Need
from ..queries import ExcessAdversarialRisk, MarginCounts, NoisyMinimiser
from .coordinates import measure_row_norm
from .method import (
    GAUSSIAN_NOISE,
    Moderate,
    Payment,
    Positive,
    Progress,
    Settings,
    Share,
    SolverResult,
    Within,
    method,
    report,
)
from .output_noise import (
    LengthSearch,
    Noise,
    RobustRules,
    affordable_noise,
    noise_deviation,
    noise_for,
    regularisation,
    row_bound_rule,
    score_noise,
)
from .rules import Facts

_SHARE_MARGINS = 0.05
_ENOUGH = 1.0  # epsilon for counts, which have Laplace noise of one row then
_LEAST_TILT, _LARGEST_TILT = 1e-9, 1e6
_CERTIFIED = "the minimiser is certified, rounding errors included, and the noise covers the tolerance"

_Convexity = Annotated[
    float,
    Within(
        2.0**-200,
        2.0**200,
        remedy="without it one row may move the minimiser by any distance; leave it out for the rule",
    ),
]


@dataclass(frozen=True)
class OutPertSettings(Settings, paper_mode="outpert"):
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
    risk_share : float
        Share of the budget for a report of the excess adversarial risk; 0 for none.
    tilting : {"length", "objective"}
        With a tilt and two classes: minimise the mean loss and choose length and intercept, or minimise the tilted
        objective itself, as is done if ``radius`` or ``strong_convexity`` is given.
    """

    pure: bool = False
    row_bound: Moderate | None = None
    strong_convexity: _Convexity | None = None
    radius: Moderate | None = None
    population: bool = False
    tolerance: Positive | None = None
    minimiser: str = "lbfgs"
    sigma: Literal["analytic", "paper"] | None = None
    risk_share: Share = 0.0
    tilting: Literal["length", "objective"] = "length"

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


@method(
    "outpert",
    OutPertSettings,
    purpose="output perturbation, a certified minimiser plus noise; also tilted and adversarial; pure with delta = 0",
    passes="as many as the minimiser needs, then one release",
    papers=("Lowy & Razaviyayn 2021",),
    needs=frozenset({Need.CONVEX, Need.BOUNDED_VERSION, Need.CERTIFICATE}),
    robust=True,
    gathers=True,
)
def outpert(curator: Curator, settings: OutPertSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem, tilted or adversarial too; release the minimiser with noise."""
    problem = curator.problem
    tilt = problem.tilt if problem.tilt >= _LEAST_TILT else 0.0
    if settings.risk_share and (problem.adversary is None or tilt):
        raise InvalidParameter("risk_share is for an adversary without a tilt: leave it at 0")
    if settings.risk_share and settings.sigma == "paper":
        raise InvalidParameter("sigma='paper' spends all of the budget: leave risk_share at 0")
    if tilt == 0 and problem.adversary is None:
        weights, remarks = _release_mean_minimiser(curator, settings)
    else:
        weights, remarks = _release_robust_minimiser(curator, settings, tilt)
    report(progress, 1.0)
    return SolverResult(weights, 1, remarks=remarks)


def _release_mean_minimiser(curator: Curator, settings: OutPertSettings) -> tuple[Floats, tuple[str, ...]]:
    """Release the minimiser of a mean of losses with noise; return it, and what was done to the rows and the loss."""
    facts, loss = Facts.of(curator), curator.problem.loss
    loss = loss if loss.hinge else smooth_loss(loss, "outpert")
    least = _penalty_convexity(curator)
    _require_sense(curator, settings, loss, least)
    length = _measure_length(curator, settings)
    cost, left = affordable_noise(curator, settings), curator.remaining
    deviation = noise_deviation(cost, facts.parameters)
    richness = facts.rows / (deviation * facts.parameters * facts.change)
    rule = length if settings.paper else row_bound_rule(richness, length)
    risk = EmpiricalRisk(loss, min(settings.row_bound or rule, curator.problem.longest_row))
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
        wanted = deviation * moved * length / score_noise(richness)
    added = max(wanted - least, 0.0)
    radius = settings.radius or math.inf
    weights = curator.answer(NoisyMinimiser(risk, added, cost, settings.tolerance, radius, settings.minimiser))
    kept = f"the weights, in units of the bounds, were kept within {radius:.6g} of zero"
    return weights, (
        f"rows longer than {risk.row_bound:.6g}, in units of the bounds, were scaled down to it",
        *((f"{added:.6g}/2 |w|^2 was added to the sum of the losses, intercept included",) if added else ()),
        *((f"the loss was {type(loss).__name__}",) if loss is not curator.problem.loss else ()),
        *((kept,) if settings.radius else ()),
        *_remark_on_unused(cost, left),
        *who_minimises(settings.minimiser, smooth=not loss.hinge),
        _CERTIFIED,
    )


def _release_robust_minimiser(
    curator: Curator, settings: OutPertSettings, tilt: float
) -> tuple[Floats, tuple[str, ...]]:
    """Release the minimiser of a tilted or adversarial objective with noise; return it, and what was done."""
    problem, rows = curator.problem, curator.rows
    if tilt and settings.population:
        raise InvalidParameter("population is about means over rows, and a tilted loss is none: leave it out")
    if tilt > _LARGEST_TILT:
        raise InvalidParameter(f"tilt must be at most {_LARGEST_TILT:g}, got {tilt:g}: that is the largest loss")
    adversary = problem.adversary
    loss = robust_loss(problem.loss, "outpert", adversary is not None)
    require_minimiser(settings.minimiser, smooth=True, rows=False)
    support = None if adversary is None else adversary.support(problem.grid.dimension, problem.intercept)
    least = _penalty_convexity(curator)
    length = _measure_length(curator, settings)
    reserved = settings.risk_share * curator.budget
    whole = RobustRisk(loss, problem.longest_row, rows, tilt, support)
    rules = RobustRules.for_rows(curator, settings, whole, length, reserved)
    by_length = _has_choice(settings, loss) and tilt > 0 and not rules.harmless_tilt
    if by_length:
        reserved = _reserve_for_margins(curator)
        rules = RobustRules.for_rows(curator, settings, replace(rules.risk, tilt=0.0), length, reserved)
    left = curator.remaining - reserved
    wanted, radius = rules.wanted(least)
    risk = replace(rules.risk, radius=radius) if rules.risk.tilt else rules.risk
    added = max(wanted - least, 0.0)
    weights = curator.answer(NoisyMinimiser(risk, added, rules.cost, settings.tolerance, radius, settings.minimiser))
    remarks = (
        f"rows longer than {risk.row_bound:.6g}, in units of the bounds, were scaled down to it",
        f"{added:.6g}/2 |w|^2 was added to the sum of the losses, intercept included",
        *(_remark_on_loss(problem.loss, loss)),
        *((f"losses were tilted by {tilt:g}, and the weights kept within {radius:.6g}",) if risk.tilt else ()),
        *(("every row was moved by the adversary before its loss was taken",) if support else ()),
        *_remark_on_unused(rules.cost, left),
        *who_minimises(settings.minimiser, smooth=True),
        _CERTIFIED,
    )
    if by_length:
        search = LengthSearch(loss, tilt, weights, problem.intercept, length, support)
        weights, remark = _buy_length(curator, search, reserved)
        return weights, (*remarks, remark)
    if reserved:
        noise = noise_for(curator, reserved)
        excess, deviation = curator.answer(ExcessAdversarialRisk(risk, added, weights, noise))
        said = f"excess adversarial risk: {excess:.4g}, with noise of standard deviation {deviation:.2g}"
        return weights, (*remarks, said)
    return weights, remarks


def _reserve_for_margins(curator: Curator) -> float:
    """Return what counts of margins may cost; raise before the minimiser is paid for if they cannot be answered."""
    reserved = _SHARE_MARGINS * curator.budget
    if curator.currency.name == "pure":
        reserved = min(reserved, _ENOUGH)
    faintest = MarginCounts(np.zeros(curator.problem.shape), np.zeros(1), noise_for(curator, reserved))
    curator.require_answerable(faintest)
    return reserved


def _buy_length(curator: Curator, search: LengthSearch, amount: float) -> tuple[Floats, str]:
    """Buy counts of margins; return the weights of the length and intercept that they ask for, and say so."""
    counted = MarginCounts(search.weights, search.edges, noise_for(curator, amount))
    share, shift = search.best(curator.answer(counted), counted.deviation(curator.public()))
    moved = f", and {shift:.4g} added to its intercept" if search.intercept else ""
    return search.rescale(share, shift), (
        f"the mean loss was minimised, and for the tilt of {search.tilt:g} the minimiser was multiplied by "
        f"{share:.4g}{moved}: counts of margins say that this is best"
    )


def _penalty_convexity(curator: Curator) -> float:
    """Return the strong convexity that the penalty gives to the sum of the losses."""
    problem = curator.problem
    return curator.rows * float(np.min(problem.penalty_curvature(np.zeros(problem.shape))))


def _measure_length(curator: Curator, settings: OutPertSettings) -> float:
    """Return the typical length of a row, paid for and measured unless the settings say what takes its place."""
    curator.require_affordable(affordable_noise(curator, settings))
    length = settings.row_bound or (curator.problem.longest_row if settings.paper else None)
    return length or measure_row_norm(curator)


def _remark_on_unused(cost: Noise, left: float) -> tuple[str, ...]:
    """Return a remark if the noise leaves a part of the budget unused."""
    if not isinstance(cost, NormLaplace) or cost.epsilon >= left:
        return ()
    return (
        f"norm-Laplace noise was used at epsilon {cost.epsilon:g}, the largest that it was checked for; the rest of "
        "the budget was not spent",
    )


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


def _has_choice(settings: OutPertSettings, loss: Loss) -> bool:
    """Return whether nothing that was given tells how a tilted loss of two classes is to be minimised."""
    given = settings.radius, settings.strong_convexity
    exact = settings.paper or settings.sigma == "paper" or settings.tilting == "objective"
    return given == (None, None) and not exact and loss.labels.kind is LabelKind.SIGNS


def _remark_on_loss(given: Loss, used: Loss) -> tuple[str, ...]:
    """Return a remark on the loss, if it is not the given one."""
    if given.hinge:
        return (f"the kink of the hinge was rounded off within {ROUNDED_KINK:g} of it, from above",)
    return () if used is given else (f"the loss was {type(used).__name__}",)
