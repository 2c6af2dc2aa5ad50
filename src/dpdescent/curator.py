"""The curator: the only one who touches the rows.

It owns the source, the problem, the ledger and the noise, and answers a small set of questions. Every answer is
charged to the ledger first and noised last; nothing else ever leaves. A solver holds a curator and public numbers,
so it cannot leak.

Amounts are in units of the ledger's currency: a solver says how much it wants to spend on an answer, and gets the
most accurate answer that this buys.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from .accounting import Cost, ExponentialMechanism, Gaussian, ReportNoisyMax, calibrate
from .errors import InvalidParameter, ScaleOutOfRange, require_positive, require_positive_integer
from .exact import BoundedSum, ClippedSum, FeatureGrid, LatticeSum, ceil_log2
from .ledger import Ledger, require_affordable, spend_jointly
from .mechanisms import LatticeNoise, Noise
from .noise import MAXIMUM_SCORES, Randomness, laplace_scale, lattice_scale
from .problems import Frame, LinearProblem
from .relations import Norm, Relation, Sensitivity
from .sources import Source

__all__ = ["Curator", "Selection"]

Floats = NDArray[np.float64]
Selection = Literal["exponential-mechanism", "laplace", "exponential"]

_SCALE_BITS = 51  # lattice noise has a scale of at most 2^52, and rounds it up
_ROOM = 1 + 2.0**-40  # more than the mechanisms' own rounding, for checks that a scale can be drawn


class Curator:
    """Answers questions about rows it never shows.

    Parameters
    ----------
    source : Source
    problem : LinearProblem
    ledger : Ledger
    rows : int
        The public number of rows n, by which sums are divided; never read from the data.
    noise : Noise, optional
        Exact lattice noise from the operating system's generator by default.
    batch_rate : float
        Each question is answered on a fresh Poisson batch with this rate. No amplification is claimed for it: the
        cost of an answer is that on all rows (quasi-convexity of the divergence), so batches save time only.
    randomness : Randomness, optional
        Where the batches come from.
    account : Ledger, optional
        A second ledger that is charged as well, for instance one shared by several fits. Both are charged or
        neither is; it must keep the relation of the first, because the noise is made for that one.

    Notes
    -----
    **Privacy** Every public method charges before it reads a row and returns only a noised answer. A refusal
    (`BudgetExhausted`, or `InvalidParameter` for an argument) reads nothing and leaves both ledgers as they were.
    """

    def __init__(
        self,
        source: Source,
        problem: LinearProblem,
        ledger: Ledger,
        rows: int,
        *,
        noise: Noise | None = None,
        batch_rate: float = 1.0,
        randomness: Randomness | None = None,
        account: Ledger | None = None,
    ) -> None:
        if source.grid != problem.grid:
            raise InvalidParameter("the source and the problem speak of different grids")
        if account is not None:
            _require_second_ledger(ledger, account)
        self._source = source
        self._noise = noise or LatticeNoise()
        self._randomness = randomness or Randomness()
        self._batches = 0
        self._caps: tuple[Any, Floats] | None = None
        self._norms: Floats | None = None
        self._margins: tuple[bytes, Floats] | None = None
        self.problem = problem
        self.ledger = ledger
        self._account = account
        self.rows = require_positive_integer("rows", rows)
        if not 0 < require_positive("batch_rate", batch_rate) <= 1:
            raise InvalidParameter(f"batch_rate must be at most 1, got {batch_rate}")
        self.batch_rate = batch_rate

    @property
    def relation(self) -> Relation:
        """What one row may change."""
        return self.ledger.relation

    @property
    def remaining(self) -> float:
        """What is left of the budget, in units of the currency."""
        return self.ledger.remaining

    @property
    def budget(self) -> float:
        """The whole budget, in units of the currency."""
        return self.ledger.budget

    @property
    def scale(self) -> float:
        """The public number by which sums are divided: n, or the expected size of a batch."""
        return self.rows * self.batch_rate

    def deviation(
        self, clip: float, amount: float, of_sum: Callable[[float], Sensitivity] = Sensitivity.of_clipped_sum
    ) -> float:
        """Return the standard deviation of the noise that ``amount`` buys for a mean of rows clipped to ``clip``."""
        return of_sum(clip).under(self.relation) * self.ledger.currency.gaussian(amount).noise_multiplier / self.scale

    def amount_of_noise(self, noise_multiplier: float) -> float:
        """Return what Gaussian noise of that multiple of the sensitivity costs."""
        return self.ledger.currency.price(Gaussian(noise_multiplier))

    # Questions -----------------------------------------------------------------------------------------------

    def gradient(self, weights: Floats, clip: float, amount: float, frame: Frame | None = None) -> Floats:
        """Return the gradient of the objective at public ``weights``, from rows clipped to norm ``clip``.

        With a public ``frame`` the gradient is the one in its coordinates z, and the clip norm bounds |l'| |z|.

        **Privacy** L2 sensitivity of the sum: C, or 2C when a row is replaced; Gaussian noise worth ``amount``.
        """
        problem = self.problem
        weights = self._point("weights", weights)
        placed, public = problem.grid.place_weights(weights), problem.penalty_gradient(weights)
        if frame is not None:
            self._require_frame(frame)
            public = frame.pull_back(public)
        cost = self.ledger.currency.gaussian(amount)
        clipped = self._clipped_sum(clip, cost)
        self._charge(cost, "gradient")
        question = partial(problem.gradient_block, clipped, placed, frame=frame)
        values = self._sum(question, self._row_caps(clipped, frame), *self._known_margins(placed))
        return self._noise.gaussian(clipped.label(values), cost, self.relation) / self.scale + public

    def column_moments(self, clip: float, amount: float) -> tuple[Floats, Floats]:
        """Return the means of the columns and of their squares, from rows clipped to norm ``clip``.

        **Privacy** A row adds itself and its squares, which are no longer: together a vector of norm at most
        sqrt(2) ``clip``, or twice that when a row is replaced. Entries must be at most 1.
        """
        problem = self.problem
        if problem.grid.entry_bound > 1:
            raise InvalidParameter("column moments need features in [-1, 1]: scale them by public bounds")
        cost = self.ledger.currency.gaussian(amount)
        clipped = self._clipped_sum(clip, cost)
        self._charge(cost, "column moments")
        values = self._sum(partial(problem.moments_block, clipped), self._row_caps(clipped, None))
        both = Sensitivity.of_clipped_sum(math.sqrt(2) * clipped.clip * (1 + 2.0**-50))
        total = LatticeSum(values, clipped.unit, both)
        means, squares = np.split(self._noise.gaussian(total, cost, self.relation) / self.scale, 2)
        return means, squares

    def best_step(
        self,
        weights: Floats,
        direction: Floats,
        steps: Floats,
        amount: float,
        *,
        ceiling: float | None = None,
        change: float | None = None,
        selection: Selection = "exponential-mechanism",
    ) -> int:
        """Return the index of a step a for which the objective at w - a direction is about least.

        The scores are sums of losses clipped to [0, ``ceiling``], or of loss changes from w, clipped to
        [-``change``, ``change``]; small changes are told apart with far less noise.

        **Privacy** Range of the scores one row can cause: C under zero-out and 2C under replace-one for losses;
        2D and 4D for changes, whose signs mix.
        """
        if (ceiling is None) == (change is None):
            raise InvalidParameter("give either ceiling (scores are losses) or change (scores are changes)")
        problem = self.problem
        weights, direction = self._point("weights", weights), self._point("direction", direction)
        steps = np.asarray(steps, dtype=np.float64)
        _require_steps(weights, direction, steps)
        placed, along = problem.grid.place_weights(weights), problem.grid.place_weights(direction)
        scores = problem.scores(ceiling, change)
        unit, sensitivity = scores.unit, scores.sensitivity
        public = self._public_scores(weights, direction, steps, unit)
        cost = self._selection(selection, amount)
        if isinstance(cost, ReportNoisyMax):  # raises before anything is charged
            laplace_scale(_ROOM * sensitivity.under(self.relation) / cost.epsilon, unit)
        self._charge(cost, "step size")
        question = partial(problem.scores_block, scores, placed, along, steps)
        known = self._known_margins(placed, along)
        values = self._sum(question, *known)
        chosen = self._noise.least(LatticeSum(values + public, unit, sensitivity), cost, self.relation)
        if known:
            self._carry_margins(weights - steps[chosen] * direction, steps[chosen], *known)
        return chosen

    def mean_row_norm(self, amount: float, frame: Frame | None = None, ceiling: float = math.inf) -> float:
        """Return the mean Euclidean norm of the rows, or of their coordinates in a public frame without the constant.

        Norms are cut to a public ``ceiling``: a frame needs one, other rows have the public row bound already.

        **Privacy** A cut norm lies between 0 and that bound, so a row that is removed or replaced moves the sum by at
        most as much: the sensitivity under both relations.
        """
        if frame is not None:
            self._require_frame(frame)
        bounded = BoundedSum(ceiling if frame is not None else min(ceiling, self.problem.grid.row_bound))
        cost = self.ledger.currency.gaussian(amount)
        lattice_scale(_ROOM * bounded.ceiling * cost.noise_multiplier, bounded.unit)  # raises before the charge
        self._charge(cost, "mean row norm" if frame is None else "mean scaled row norm")
        squared = self._row_norms() if frame is None else self._source.map_rows(_FrameNorms(frame)) - 1
        total = self._sum(partial(_norm_block, bounded), np.sqrt(squared))
        summed = LatticeSum(total, bounded.unit, Sensitivity(Norm.L2, bounded.ceiling, bounded.ceiling))
        return float(self._noise.gaussian(summed, cost, self.relation)[0]) / self.scale

    def require_affordable(self, cost: Cost) -> None:
        """Raise what charging ``cost`` would raise, and charge nothing: for a plan of several charges."""
        require_affordable(self._ledgers, cost)

    # Inside --------------------------------------------------------------------------------------------------

    @property
    def _ledgers(self) -> tuple[Ledger, ...]:
        return (self.ledger,) if self._account is None else (self.ledger, self._account)

    def _charge(self, cost: Cost, label: str) -> None:
        if self._account is None:
            self.ledger.spend(cost, label)
        else:
            spend_jointly(self._ledgers, cost, label)

    def _public_scores(self, weights: Floats, direction: Floats, steps: Floats, unit: float) -> NDArray[np.int64]:
        """Return what the penalty adds to the score of every step: public, so it moves no sensitivity."""
        if self.problem.penalty.weight == 0:
            return np.zeros(steps.size, dtype=np.int64)
        penalties = [self.scale * self.problem.penalty_value(weights - a * direction) / unit for a in steps]
        return np.clip(np.rint(penalties), -(2.0**61), 2.0**61).astype(np.int64)

    def _point(self, name: str, values: Any) -> Floats:
        point = np.asarray(values, dtype=np.float64)
        if point.shape != self.problem.shape:
            raise InvalidParameter(f"{name} must have the shape {self.problem.shape}, got {point.shape}")
        return point

    def _clipped_sum(self, clip: float, cost: Gaussian) -> ClippedSum:
        """Return the finest sum whose noise can still be drawn: great noise needs a coarser unit."""
        deviation = cost.noise_multiplier * Sensitivity.of_clipped_sum(1.0).under(self.relation)
        bits = min(ClippedSum.total_bits, _SCALE_BITS - ceil_log2(deviation))
        if bits < 1:
            raise ScaleOutOfRange(f"noise of {deviation:.3g} clip norms cannot be drawn: spend more on the answer")
        return self.problem.clipped_sum(clip, bits)

    def _selection(self, selection: Selection, amount: float) -> ExponentialMechanism | ReportNoisyMax:
        currency = self.ledger.currency
        if selection == "exponential-mechanism":
            return currency.selection(amount)
        if selection in ("laplace", "exponential"):
            noise: Literal["laplace", "exponential"] = selection
            return calibrate(lambda epsilon: ReportNoisyMax(epsilon, noise), amount, currency)
        raise InvalidParameter(
            f"unknown selection {selection!r}: choose 'exponential-mechanism', 'laplace' or 'exponential'"
        )

    def _sum(self, question: Any, *aligned: Any) -> NDArray[np.int64]:
        if self.batch_rate < 1:
            size = self._row_norms().shape[0]
            bits = self._randomness.stream("batch", self._batches)
            self._batches += 1
            chosen = bits.words(size) < np.uint64(int(self.batch_rate * 2.0**64))
            question, aligned = _Batched(question), (chosen, *aligned)
        with np.errstate(all="ignore"):  # a warning would speak of rows; sums clip what overflows
            return self._source.map_sum(question, *aligned)

    def _row_norms(self) -> Floats:
        if self._norms is None:
            self._norms = self._source.map_rows(lambda rows, _: self.problem.grid.squared_norms(rows))
        return self._norms

    def _known_margins(self, *placed: Floats) -> list[Floats]:
        """Return the margins of all rows for each of the weights, those of the first kept for the next question.

        A gradient and the search along it start from the same weights, so one pass over the rows serves both. With
        batches the margins of the chosen rows alone are computed where they are needed.
        """
        if self.batch_rate < 1:
            return []
        known = []
        for position, weights in enumerate(placed):
            key = weights.tobytes()
            if self._margins is None or self._margins[0] != key:
                margins = self._source.map_rows(partial(_margins_block, self.problem.grid, weights))
                if position == 0:
                    self._margins = (key, margins)
            else:
                margins = self._margins[1]
            known.append(margins)
        return known

    def _carry_margins(self, weights: Floats, step: float, margins: Floats, along: Floats) -> None:
        """Keep the margins t - a u of the weights that a step leads to: a solver asks for them next.

        **Privacy** Each is an elementwise function of two exact margins of its row and of a released step, so it
        depends on the row and on public numbers alone. It differs from the margin of the new weights by the
        rounding of weights to their grid, about 2^-32 of their size.
        """
        carried = step * along
        np.subtract(margins, carried, out=carried)
        self._margins = (self.problem.grid.place_weights(weights).tobytes(), carried)

    def _row_caps(self, clipped: ClippedSum, frame: Frame | None) -> Floats:
        key = (clipped, None if frame is None else frame.key())
        if self._caps is None or self._caps[0] != key:
            norms = self._row_norms() if frame is None else self._source.map_rows(_FrameNorms(frame))
            self._caps = (key, clipped.caps(norms))
        return self._caps[1]

    def _require_frame(self, frame: Frame) -> None:
        if frame.grid != self.problem.grid or not self.problem.intercept:
            raise InvalidParameter("a frame belongs to the problem's own grid and needs an intercept")


class _FrameNorms:
    """Squared norms of rows in a frame."""

    def __init__(self, frame: Frame) -> None:
        self._frame = frame

    def __call__(self, rows: Any, labels: Floats) -> Floats:
        return self._frame.squared_norms(rows)


def _require_second_ledger(ledger: Ledger, account: Ledger) -> None:
    if account is ledger or (account.path is not None and account.path == ledger.path):
        raise InvalidParameter("account is the ledger itself, which would pay twice: leave it out")
    if account.relation is not ledger.relation:
        raise InvalidParameter(
            f"account keeps {account.relation} and the ledger {ledger.relation}, for which the noise is made: "
            "open both with the same relation"
        )


def _require_steps(weights: Floats, direction: Floats, steps: Floats) -> None:
    """Raise `InvalidParameter` unless the steps are few and lead to points that are finite and below 2^500."""
    if steps.ndim != 1 or not 1 <= steps.size <= MAXIMUM_SCORES:
        raise InvalidParameter(f"steps must be a vector of 1 to {MAXIMUM_SCORES} numbers, got shape {steps.shape}")
    with np.errstate(all="ignore"):
        farthest = np.abs(weights).max() + np.abs(steps).max() * np.abs(direction).max()
    if not farthest <= 2.0**500:
        raise InvalidParameter("steps lead to points that are not finite or beyond 2^500: shorten them")


def _margins_block(grid: FeatureGrid, weights: Floats, rows: Any, labels: Floats) -> Floats:  # noqa: ARG001
    return grid.margins(rows, weights)


def _norm_block(bounded: BoundedSum, rows: Any, labels: Floats, norms: Floats) -> NDArray[np.int64]:  # noqa: ARG001
    return bounded.block(norms)


class _Batched:
    """A question about the chosen rows of a block."""

    def __init__(self, question: Any) -> None:
        self._question = question

    def __call__(self, rows: Any, labels: Floats, chosen: NDArray[np.bool_], *aligned: Any) -> NDArray[np.int64]:
        kept: NDArray[np.int64] = self._question(rows[chosen], labels[chosen], *(part[chosen] for part in aligned))
        return kept


def make_noise(mode: str, seed: int | None) -> Noise:
    """Return exact lattice noise, or floating-point noise for ``mode="float"``."""
    from .mechanisms import FloatNoise

    if mode == "exact":
        return LatticeNoise(Randomness(seed))
    if mode == "float":
        return FloatNoise(seed)
    raise InvalidParameter(f"unknown noise {mode!r}: choose 'exact' or 'float'")
