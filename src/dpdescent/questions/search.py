r"""NoisyBTLS: the first step size, from long to short, that lowers the objective enough.

For a public point w, a released direction v and public steps a, the query of a step is the sum over a batch

.. math:: q(a) = \sum_i \mathrm{clip}(l_i(w) - l_i(w - a v), \pm s(a)) - m \, (\text{demand}(a) + \text{penalty})

with the public size m of the batch (n, or rate times n) and s(a) = min(C, L a): no row's loss changes by more than
its slope along v allows, so short steps get little noise. The sum is taken from one count of the rows at public nodes
(`dpdescent.exact.StepwiseScores`): what a row adds to it is near its clipped change, and within +-s(a) exactly.
AboveThreshold answers with the first query that is above zero (Dwork & Roth 2014); what it costs is bounded by
`dpdescent.accounting.bellman`.

References
----------
Chen, C. & Lee, J. (2020). Stochastic adaptive line search for differentially private optimization. arXiv:2008.07978.
Dwork, C. & Roth, A. (2014). The algorithmic foundations of differential privacy, section 3.6.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from ..accounting import AboveThreshold, Composed, Cost, Currency, Gaussian, calibrate
from ..accounting.bellman import NoiseName
from ..curator import Curator, _Batched, _require_steps
from ..errors import BudgetExhausted, InvalidParameter, require_positive
from ..exact import LatticeSum, StepwiseScores
from ..problems import Frame, LinearProblem, StepwiseChanges
from ..relations import Sensitivity
from .batches import batch_size, draw_rows, sampled

__all__ = ["Batch", "RowBatches"]

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
AnyPart = TypeVar("AnyPart", Gaussian, AboveThreshold)

_SHARPEST = 64.0  # noise of 1/64 of what one row can do: more budget buys nothing
_LEAST_SENSITIVITY, _LARGEST_SENSITIVITY = 2.0**-100, 2.0**100
_MOST_ROWS = 2**27  # whose changes int64 adds up
_KNOWN_RATE = 0.25  # from which the margins of all rows, kept from step to step, cost less than copies of the batch


# A run asks for the same few again and again.
_sampled = lru_cache(maxsize=64)(sampled)


@lru_cache(maxsize=64)
def _together(*costs: Cost) -> Cost:
    return costs[0] if len(costs) == 1 else Composed(costs)


class RowBatches:
    """Batches of rows, each drawn afresh, on which a gradient is measured or a step is searched.

    Parameters
    ----------
    curator : Curator
        One whose own ``batch_rate`` is 1.
    rate : float
        Share of the rows in a batch. At 1 a batch is the whole table and nothing is amplified.

    Notes
    -----
    **Privacy** What is asked on one batch is charged as one mechanism, amplified as a whole (`PoissonSampled` under
    zero-out, `FixedSizeSampled` under replace-one), before the batch is drawn. A batch answers each question that it
    was drawn for once, so how often a batch is used is fixed before it is looked at.
    """

    def __init__(self, curator: Curator, rate: float) -> None:
        if curator.batch_rate != 1:
            raise InvalidParameter(f"the curator draws batches itself (batch_rate {curator.batch_rate}): give it 1")
        self.curator = curator
        self.size, self.rate = batch_size(curator, rate)

    def cost(self, *parts: Gaussian | AboveThreshold) -> Cost:
        """Return what the parts cost together on one batch."""
        if self.rate < 1:
            return _sampled(self.curator.relation, self.rate, *parts)
        return _together(*parts)

    def affords(self, *costs: Cost) -> bool:
        """Return whether the budget pays for all of the costs."""
        cost = _together(*costs)
        account = self.curator._account
        return self.curator.ledger.affords(cost) and (account is None or account.affords(cost))

    def gradient_noise(self, amount: float) -> Gaussian:
        """Return the least noise for a gradient on a batch of its own that ``amount`` pays for."""
        noise = self._calibrated(lambda strength: Gaussian(1 / strength), amount, 2.0**-30)
        self.curator._clipped_sum(1.0, noise)  # raises where that much noise cannot be drawn
        return noise

    def search_noise(
        self, amount: float, max_queries: int, noise: NoiseName | None = None, threshold: float | None = None
    ) -> AboveThreshold:
        """Return the least noise for a search on a batch of its own that ``amount`` pays for.

        ``threshold`` is the noise of the threshold, as a multiple of that of the queries. By default `choose_noise`
        has the choice.
        """
        kind, ratio = choose_noise(self.curator.ledger.currency, amount, max_queries, self.rate, noise)
        ratio = ratio if threshold is None else threshold
        return self._calibrated(lambda s: AboveThreshold(max_queries, 1 / s, ratio / s, kind), amount, 1 / _SHARPEST)

    def draw(self, *parts: Gaussian | AboveThreshold, label: str | None = None) -> Batch:
        """Return a batch for one gradient, one search, or both; it is paid for when the first is asked.

        ``label`` says what else it is for in the record of the ledger.
        """
        return Batch(self, parts, label)

    def deviation(self, clip: float, noise: Gaussian) -> float:
        """Return the standard deviation of each coordinate of a gradient."""
        return Sensitivity.of_clipped_sum(clip).under(self.curator.relation) * noise.noise_multiplier / self.size

    def _calibrated(self, family: Callable[[float], AnyPart], amount: float, least: float) -> AnyPart:
        currency = self.curator.ledger.currency
        require_positive("amount", amount)
        if currency.price(self.cost(family(1 / least))) <= amount:
            return family(1 / least)
        strengths = [1.0]

        def priced(strength: float) -> Cost:
            strengths.append(min(strength, 1 / least))
            return self.cost(family(strengths[-1]))

        calibrate(priced, amount, currency)
        return family(strengths[-1])


def choose_noise(
    currency: Currency, amount: float, max_queries: int, rate: float, noise: NoiseName | None = None
) -> tuple[NoiseName, float]:
    """Return the noise of a search and that of its threshold, as a multiple: a rule of rho and the queries k.

    On batches Laplace noise with half of it on the threshold: pure DP amplifies at every order. On all rows the
    noise of a comparison is least with Gaussian noise on the queries alone while k rho <= 0.001, with 0.4 of it on
    the threshold up to 0.1, and with Laplace noise beyond; rho is what a Gaussian of that price has.
    """
    if noise == "laplace" or (noise is None and (rate < 1 or currency.name in ("pure", "approximate"))):
        return "laplace", 0.5
    spread = max_queries * currency.gaussian(amount).zcdp()
    if noise is None and spread > 0.1:
        return "laplace", 0.5
    # In zCDP the recursion needs threshold noise to be bounded at every order.
    return "gaussian", 0.0 if spread <= 1e-3 and currency.name != "zcdp" else 0.4


class Batch:
    """Rows that answer each of the questions they were drawn for, once."""

    def __init__(
        self, batches: RowBatches, parts: tuple[Gaussian | AboveThreshold, ...], label: str | None = None
    ) -> None:
        self._batches, self._left = batches, list(parts)
        self._cost = batches.cost(*parts)
        self._label = label or " and ".join(
            "gradient" if isinstance(part, Gaussian) else "step size" for part in parts
        )
        self._paid, self._chosen = False, None if batches.rate == 1 else np.empty(0, dtype=np.bool_)

    def gradient(self, weights: Floats, clip: float, frame: Frame | None = None) -> Floats:
        """Return the gradient of the objective at public ``weights``, as `Curator.gradient` on the batch.

        **Privacy** L2 sensitivity of the sum: C, or 2C when a row is replaced.
        """
        curator, problem = self._batches.curator, self._batches.curator.problem
        weights = curator._point("weights", weights)
        placed, public = problem.grid.place_weights(weights), problem.penalty_gradient(weights)
        if frame is not None:
            curator._require_frame(frame)
            public = frame.pull_back(public)
        noise = self._next(Gaussian)
        clipped = curator._clipped_sum(clip, noise)
        self._pay(noise)
        known = curator._known_margins(placed) if self._batches.rate == 1 else []
        question = partial(problem.gradient_block, clipped, placed, frame=frame)
        values = self._sum(question, curator._row_caps(clipped, frame), *known)
        return curator._noise.gaussian(clipped.label(values), noise, curator.relation) / self._batches.size + public

    def first_step(
        self,
        weights: Floats,
        direction: Floats,
        steps: Floats,
        demands: Floats,
        *,
        slope: float = math.inf,
        ceiling: float = math.inf,
    ) -> int | None:
        """Return the index of the first step a that lowers the objective by its demand, or None.

        Parameters
        ----------
        weights, direction : ndarray
            Public: the search goes from w to w - a direction.
        steps, demands : ndarray of shape (k,)
            Step sizes in the order of the search, and by how much each must lower the mean objective.
        slope, ceiling : float
            A row's loss change is clipped to min(``ceiling``, ``slope`` a). The slope is at most the largest there
            is, that of the loss times the longest row times the length of the direction.

        Notes
        -----
        **Privacy** The query of step a is counted in multiples of 2^-34 s(a), where s(a) = min(ceiling, slope a). A
        row adds to it an integer of size at most 2^34: a mean of public integers (`StepwiseScores`), or, if the loss
        has no profile, its rounded and clipped change (`StepwiseChanges`). So each query, divided by its own s(a),
        has the sensitivity 1, or 2 when a row is replaced; demands and penalties are public. Margins that are kept
        for all rows are functions of one row each, and a batch uses those of its own rows. One row's changes turn
        sign with the step, so the search is charged as one of queries that are not monotone.
        """
        curator, problem = self._batches.curator, self._batches.curator.problem
        weights, direction = curator._point("weights", weights), curator._point("direction", direction)
        steps, demands = np.asarray(steps, dtype=np.float64), np.asarray(demands, dtype=np.float64)
        _require_steps(weights, direction, steps)
        length = float(np.linalg.norm(direction))
        if not length > 0:
            raise InvalidParameter("the direction has length zero, so no step leads anywhere: measure it again")
        if not ((steps > 0).all() and demands.shape == steps.shape and np.isfinite(demands).all()):
            raise InvalidParameter("steps must be above 0, with one finite demand for each")
        if self._batches.size > _MOST_ROWS:
            raise InvalidParameter(f"a search adds up {_MOST_ROWS} rows at most: lower the sampling rate")
        slope = min(slope, problem.loss.lipschitz * problem.longest_row * length)
        bounds = tuple(max(min(ceiling, slope * a), _LEAST_SENSITIVITY) for a in steps.tolist())
        if not (slope > 0 and ceiling > 0 and max(bounds) <= _LARGEST_SENSITIVITY):
            raise InvalidParameter("slope and ceiling must be above 0, and one of them finite: they bound a change")
        noise = self._next(AboveThreshold)
        if steps.size > noise.max_queries:
            raise InvalidParameter(f"{steps.size} steps for a search that is charged for {noise.max_queries}")
        scores = problem.stepwise_scores(tuple(steps.tolist()), bounds, length)
        public = self._batches.size * (demands + _penalty_rises(problem, weights, direction, steps)) / bounds
        added = np.clip(np.rint(public * scores.limit), -(2.0**61), 2.0**61).astype(np.int64)
        placed, along = problem.grid.place_weights(weights), problem.grid.place_weights(direction)
        self._pay(noise)
        known = curator._known_margins(placed, along) if self._batches.rate >= _KNOWN_RATE else []
        question = partial(_changes_block, problem, scores, placed, along, self._chosen is not None)
        values = self._sum_over(question, *known)
        queries = LatticeSum(-(values + added), 1 / scores.limit, Sensitivity.of_signed_sum(1.0))
        chosen = curator._noise.first_above(queries, noise, curator.relation)
        if known and chosen is not None:
            curator._carry_margins(weights - steps[chosen] * direction, steps[chosen], *known)
        return chosen

    def _next(self, kind: type[AnyPart]) -> AnyPart:
        for part in self._left:
            if isinstance(part, kind):
                return part
        raise BudgetExhausted("this batch has given all the answers that it was drawn for: draw another")

    def _pay(self, part: Gaussian | AboveThreshold) -> None:
        """Charge for all parts at the first answer, then draw the rows."""
        if not self._paid:
            batches = self._batches
            batches.curator._charge(self._cost, self._label)
            self._paid = True
            if batches.rate < 1:
                self._chosen = draw_rows(batches.curator, batches.size, batches.rate)
        self._left.remove(part)

    def _sum(self, question: Any, *aligned: Any) -> Integers:
        return self._sum_over(_Batched(question) if self._chosen is not None else question, *aligned)

    def _sum_over(self, question: Any, *aligned: Any) -> Integers:
        """Return the sum of a question about all rows, which is told first which of them are in the batch."""
        if self._chosen is not None:
            aligned = (self._chosen, *aligned)
        with np.errstate(all="ignore"):  # a warning would speak of rows; sums clip what overflows
            return self._batches.curator._source.map_sum(question, *aligned)


def _penalty_rises(problem: LinearProblem, weights: Floats, direction: Floats, steps: Floats) -> Floats:
    """Return by how much each step raises the penalty."""
    if problem.penalty.weight == 0:
        return np.zeros(steps.size)
    here = problem.penalty_value(weights)
    return np.array([problem.penalty_value(weights - a * direction) - here for a in steps])


def _changes_block(
    problem: LinearProblem,
    scores: StepwiseScores | StepwiseChanges,
    weights: Floats,
    direction: Floats,
    sampled: bool,
    rows: Any,
    labels: Floats,
    *aligned: Any,
) -> Integers:
    """Return by how much each step raises the losses of one block, as `StepwiseScores` counts it.

    ``aligned`` holds which rows are in the batch, if it is ``sampled``, and then the margins of the weights and of
    the direction, where they are known.
    """
    kept = np.flatnonzero(aligned[0]) if sampled else None
    known = aligned[1:] if sampled else aligned
    if kept is not None:
        labels, known = labels[kept], tuple(margins[kept] for margins in known)
    return problem.changes_block(scores, weights, direction, rows, labels, *known, kept=kept)
