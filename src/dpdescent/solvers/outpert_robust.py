r"""Output perturbation of tilted and of adversarial objectives (Lowy & Razaviyayn 2021, section 5).

The objective is that of `dpdescent.minimisers.robust`: a tilt tau weighs rows with large losses more, and an
adversary moves every row within a ball or a box before its loss is taken. Without either this is `outpert`.

**A tilt is expensive.** One row may have a share C/(C + n - 1) of all weights, C = exp(tau (A - a)), where [a, A]
holds the losses at every point considered. For two classes the rule is therefore to minimise the mean loss, and to
spend a twentieth of the budget on the length and the intercept that are best for the tilt
(`dpdescent.solvers.tilted_length`).

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

**Privacy** See `dpdescent.minimisers.robust` for the sensitivity under both relations,
`dpdescent.curator.NoisyMinimiser` for the release, `dpdescent.curator.MarginCounts` for the counts and
`dpdescent.curator.ExcessAdversarialRisk` for the report.

References
----------
Lowy, A. & Razaviyayn, M. (2021). Output perturbation for differentially private convex optimization with improved
population loss bounds, runtimes and applications to private adversarial training. arXiv:2102.04704.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from ..accounting import Gaussian, Laplace, NormLaplace
from ..curator import Curator, ExcessAdversarialRisk, MarginCounts, NoisyMinimiser
from ..errors import InvalidParameter
from ..minimisers import ROUNDED_KINK, RobustRisk, require_minimiser, robust_loss, who_minimises
from ..problems import LabelKind, Loss
from ..relations import Relation
from .domains import Share
from .outpert import OutPertSettings, noise_deviation, outpert, output_noise, regularisation, unused_budget
from .result import Facts, Progress, SolverResult
from .rules import clip_multiple
from .series import measure_row_norm
from .tilted_length import LengthSearch

__all__ = ["RobustOutPertSettings", "outpert_robust"]

_SHARE_LENGTH, _SHARE_MARGINS = 0.01, 0.05
_ENOUGH = 1.0  # epsilon for counts, which have Laplace noise of one row then
_NOISE_SHARE = 0.05
_BALL_SHARE = 1 / 3
# Exponents of the largest weight of a row: below the first a tilt changes next to nothing; none exceeds the last.
_HARMLESS_TILT, _LARGEST_TILT_EXPONENT = 0.05, 100.0
_LEAST_TILT, _LARGEST_TILT = 1e-9, 1e6


@dataclass(frozen=True)
class RobustOutPertSettings(OutPertSettings):
    """Settings of `outpert_robust`: those of `outpert`, and two more.

    Parameters
    ----------
    risk_share : float
        Share of the budget for a report of the excess adversarial risk; 0 for none.
    tilting : {"length", "objective"}
        With a tilt and two classes: minimise the mean loss and choose length and intercept, or minimise the tilted
        objective itself, as is done if ``radius`` or ``strong_convexity`` is given.
    """

    risk_share: Share = 0.0
    tilting: Literal["length", "objective"] = "length"


def outpert_robust(
    curator: Curator, settings: RobustOutPertSettings, progress: Progress | None = None
) -> SolverResult:
    """Minimise the tilted or adversarial objective of a curator's problem, and release the minimiser with noise."""
    problem, facts = curator.problem, Facts.of(curator)
    tilt = problem.tilt if problem.tilt >= _LEAST_TILT else 0.0
    if settings.risk_share and (problem.adversary is None or tilt):
        raise InvalidParameter("risk_share is for an adversary without a tilt: leave it at 0")
    if settings.risk_share and settings.sigma == "paper":
        raise InvalidParameter("sigma='paper' spends all of the budget: leave risk_share at 0")
    if tilt == 0 and problem.adversary is None:
        return outpert(curator, settings, progress)
    if tilt and settings.population:
        raise InvalidParameter("population is about means over rows, and a tilted loss is none: leave it out")
    if tilt > _LARGEST_TILT:
        raise InvalidParameter(f"tilt must be at most {_LARGEST_TILT:g}, got {tilt:g}: that is the largest loss")
    loss = robust_loss(problem.loss, "outpert", problem.adversary is not None)
    require_minimiser(settings.minimiser, smooth=True, rows=False)
    support = None
    if problem.adversary is not None:
        support = problem.adversary.support(problem.grid.dimension, problem.intercept)
    least = facts.rows * float(np.min(problem.penalty_curvature(np.zeros(problem.shape))))
    curator.require_affordable(output_noise(curator, settings))
    length = settings.row_bound or (problem.longest_row if settings.paper else None)
    length = length or measure_row_norm(curator, _SHARE_LENGTH)
    reserved = settings.risk_share * curator.budget
    rules = _Rules.for_rows(
        curator, settings, RobustRisk(loss, problem.longest_row, facts.rows, tilt, support), length, reserved
    )
    by_length = _has_choice(settings, loss) and tilt > 0 and not rules.harmless_tilt
    if by_length:
        reserved = _SHARE_MARGINS * curator.budget
        if curator.currency.name == "pure":
            reserved = min(reserved, _ENOUGH)
        rules = _Rules.for_rows(curator, settings, replace(rules.risk, tilt=0.0), length, reserved)
        faintest = MarginCounts(np.zeros(problem.shape), np.zeros(1), _paid(curator, reserved))
        curator.require_answerable(faintest)  # raises before the minimiser is paid for
    left = curator.remaining - reserved
    wanted, radius = rules.wanted(least)
    risk = replace(rules.risk, radius=radius) if rules.risk.tilt else rules.risk
    added = max(wanted - least, 0.0)
    weights = curator.answer(NoisyMinimiser(risk, added, rules.cost, settings.tolerance, radius, settings.minimiser))
    remarks = [
        f"rows longer than {risk.row_bound:.6g}, in units of the bounds, were scaled down to it",
        f"{added:.6g}/2 |w|^2 was added to the sum of the losses, intercept included",
        *(_substitute(problem.loss, loss)),
        *((f"losses were tilted by {tilt:g}, and the weights kept within {radius:.6g}",) if risk.tilt else ()),
        *(("every row was moved by the adversary before its loss was taken",) if support else ()),
        *unused_budget(rules.cost, left),
        *who_minimises(settings.minimiser, smooth=True),
        "the minimiser is certified, rounding errors included, and the noise covers the tolerance",
    ]
    if by_length:
        search = LengthSearch(loss, tilt, weights, problem.intercept, length, support)
        counted = MarginCounts(weights, search.edges, _paid(curator, reserved))
        share, shift = search.best(curator.answer(counted), counted.deviation(curator.public()))
        weights = search.applied(share, shift)
        moved = f", and {shift:.4g} added to its intercept" if problem.intercept else ""
        remarks.append(
            f"the mean loss was minimised, and for the tilt of {tilt:g} the minimiser was multiplied by "
            f"{share:.4g}{moved}: counts of margins say that this is best"
        )
    elif reserved:
        excess, deviation = curator.answer(ExcessAdversarialRisk(risk, added, weights, _paid(curator, reserved)))
        remarks.append(f"excess adversarial risk: {excess:.4g}, with noise of standard deviation {deviation:.2g}")
    if progress is not None:
        progress(1.0)
    return SolverResult(weights, 1, remarks=tuple(remarks))


@dataclass(frozen=True, eq=False)
class _Rules:
    """The noise, the rows and the strong convexity of a run, by the rules above or as they are given.

    ``noise`` is that in a weight in units of the sensitivity, ``richness`` is k, ``length`` that of a typical row.
    """

    facts: Facts
    relation: Relation
    settings: RobustOutPertSettings
    cost: Gaussian | NormLaplace | Laplace
    noise: float
    richness: float
    length: float
    risk: RobustRisk

    @classmethod
    def for_rows(
        cls, curator: Curator, settings: RobustOutPertSettings, risk: RobustRisk, length: float, reserved: float
    ) -> _Rules:
        """Return the rules for what is left of a curator's budget without what is reserved."""
        facts, cost = Facts.of(curator), _reduced(curator, settings, reserved)
        noise = noise_deviation(cost, facts.parameters)
        richness = facts.rows / (facts.change * noise * facts.parameters)
        rule = length if settings.paper else clip_multiple(richness, 0.1, 0.4) * length
        risk = replace(risk, row_bound=min(settings.row_bound or rule, risk.row_bound))
        return cls(facts, curator.relation, settings, cost, noise, richness, length, risk)

    @property
    def harmless_tilt(self) -> bool:
        """Whether the ball of the rule is one in which a tilt changes next to nothing."""
        unit = 1 / (self.risk.tilt * self.risk.loss.lipschitz * self.risk.reach)
        return self.ball() <= _HARMLESS_TILT * unit

    def wanted(self, least: float) -> tuple[float, float]:
        """Return the strong convexity and the radius; the penalty has ``least`` of the former."""
        settings, risk, facts = self.settings, self.risk, self.facts
        wanted, radius = settings.strong_convexity, settings.radius or math.inf
        if risk.tilt:
            if settings.radius is None:
                radius = risk.farthest(facts.rows, max(wanted, least)) if wanted else self.ball()
            return wanted or self.buys(radius), radius
        if wanted is not None:
            return wanted, radius
        if settings.radius is not None:
            regularised = regularisation(
                lipschitz=risk.clip,
                radius=settings.radius,
                dimension=facts.parameters,
                epsilon=facts.epsilon,
                delta=facts.delta if isinstance(self.cost, Gaussian) else 0.0,
                rows=facts.rows,
                smoothness=risk.loss.smoothness * risk.reach**2,  # without the kink of the adversary's norm at 0
                population=settings.population,
            )
            return facts.rows * regularised, radius
        moved = min(0.8, 1.6 * math.pow(self.richness, -0.3))
        if risk.support is not None:
            moved = min(0.6, 1.5 * math.pow(self.richness, -0.2))
        return facts.change * self.noise * risk.clip * self.length / moved, radius

    def buys(self, radius: float) -> float:
        """Return the strong convexity with which a ball of that radius has the noise of the rule."""
        changed = self.facts.rows_per_unit * replace(self.risk, radius=radius).variation(
            self.facts.rows, self.relation
        )
        spread = min(0.8, 1.6 * math.pow(self.richness, -0.3)) / self.length
        return self.noise * changed / min(_NOISE_SHARE * radius, spread)

    def ball(self) -> float:
        """Return a third of the longest that a minimiser can be with the strong convexity that this radius needs."""
        risk = self.risk

        def longest(radius: float) -> float:
            return risk.farthest(risk.places, self.buys(radius))

        unit = 1 / (risk.tilt * risk.loss.lipschitz * risk.reach)
        low, high = _HARMLESS_TILT * unit, _LARGEST_TILT_EXPONENT * unit
        if low >= _BALL_SHARE * longest(low):
            return min(low, longest(low))
        while high > 1.001 * low:
            middle = math.sqrt(low * high)
            low, high = (middle, high) if middle < _BALL_SHARE * longest(middle) else (low, middle)
        return low


def _has_choice(settings: RobustOutPertSettings, loss: Loss) -> bool:
    """Return whether nothing that was given tells how a tilted loss of two classes is to be minimised."""
    given = settings.radius, settings.strong_convexity
    exact = settings.paper or settings.sigma == "paper" or settings.tilting == "objective"
    return given == (None, None) and not exact and loss.labels.kind is LabelKind.SIGNS


def _paid(curator: Curator, amount: float) -> Gaussian | Laplace:
    """Return the noise that an amount pays for."""
    currency, share = curator.ledger.currency, amount * (1 - 2.0**-40)  # sums of costs are rounded up
    return Laplace(share) if currency.name == "pure" else currency.gaussian(share)


def _substitute(given: Loss, used: Loss) -> tuple[str, ...]:
    """Return a remark on the loss, if it is not the given one."""
    if given.hinge:
        return (f"the kink of the hinge was rounded off within {ROUNDED_KINK:g} of it, from above",)
    return () if used is given else (f"the loss was {type(used).__name__}",)


def _reduced(curator: Curator, settings: RobustOutPertSettings, reserved: float) -> Gaussian | NormLaplace | Laplace:
    """Return the noise that the rest of the budget pays for, without what is reserved."""
    whole = output_noise(curator, settings)
    if not reserved:
        return whole
    left = curator.remaining - reserved
    if isinstance(whole, Gaussian):
        return curator.ledger.currency.gaussian(left)
    return type(whole)(min(left, whole.epsilon))
