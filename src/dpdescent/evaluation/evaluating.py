"""`evaluate`: pay for a histogram of scores by class, or for sums of clipped errors, and say what a model is worth.

1. What is asked is checked, and the table is read. Nothing is charged.
2. A fifth of the budget buys coarse histograms, from which bins, clips and a threshold follow.
3. The rest buys the counts, or the sums, from which everything else follows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from ..accounting import GDP, Gaussian
from ..arrays import Floats
from ..curator import LatticeNoise
from ..curator.release import release
from ..errors import InvalidParameter, require_open_unit, require_positive_integer
from ..estimators.arguments import seed_of
from ..estimators.payment import charges_noted, paid_by
from ..exact import sigmoid
from ..ledger import Ledger, require_funds
from ..noise import Randomness
from ..relations import Relation
from ..statement import Origin, PrivacyStatement, public_fact
from .measures import NumberSums, choose_clip, choose_range
from .report import Evaluation, threshold_in_logits
from .row_sums import CoarseScores, ErrorSums, Ladders, RowSum, ScoresByClass
from .score_counts import ScoreCounts, coarse_edges, number_of_bins, quantile_edges, score_above
from .scoring import EvaluatedRows, Scorer, scorer_of

_COARSE = 0.2  # of the budget, for the coarse histograms
_LOGITS = (-8.0, 8.0)
_GAUSSIAN = ("gdp", "zcdp", "rdp")


def evaluate(
    model: Any,
    X: Any,
    y: Any = None,
    *,
    epsilon: float,
    delta: float,
    ledger: Ledger | None = None,
    adjacency: str = "zero-out",
    unit: Any = None,
    rows_per_unit: int = 1,
    classes: Any = None,
    scores: str | None = None,
    score_range: tuple[float, float] | None = None,
    threshold: float | None = None,
    rate: float | None = None,
    like: Evaluation | None = None,
    rows_separate: bool = False,
    level: float = 0.95,
    random_state: Any = None,
) -> Evaluation:
    """Say what a model is worth on sensitive rows, under (epsilon, delta), with intervals.

    Parameters
    ----------
    model : estimator, torch.nn.Module or callable
        Anything that has ``predict_proba``, ``decision_function`` or ``predict``, a module with one output per class
        (or one logit, or one number), or a function that maps rows to scores. It should have been fitted to other
        rows, or privately.
    X, y : array_like, DataFrame, sparse matrix, or a table that is read block by block
        The rows, and their labels.
    epsilon, delta : float
        The guarantee of the evaluation.
    ledger : Ledger, optional
        A shared budget that pays as well, in "gdp", "zcdp" or "rdp".
    adjacency : {"zero-out", "replace-one"}
        What one row may change.
    unit : str or array_like, optional
        Whose row each is: a column of a DataFrame, or one identifier per row.
    rows_per_unit : int
        Rows of a unit that are used, at most. Noise grows with it.
    classes : array_like, optional
        The public classes, where the model has no ``classes_``. The last of two is the one that curves are about.
    scores : {"probability", "logit", "score", "number", "count"}, optional
        What a function or a module returns. "score" is any number that grows with the class.
    score_range : (low, high), optional
        About where "score" lies; (-8, 8) by default. Scores beyond are counted in the outer bins.
    threshold : float, optional
        A row is decided for the class above it: a probability, 0.5 by default, or a "score", 0 by default.
    rate : float, optional
        Takes for the threshold the one above which about this share of the rows lies, from the coarse histogram.
    like : Evaluation, optional
        An earlier evaluation of two classes whose bins and threshold are used again, so that both can be compared.
        Nothing is spent on bins then.
    rows_separate : bool
        Vouches that the model scores each row of a block by itself, to the last bit, so that rows need not be scored
        one at a time (`dpdescent.evaluation.scoring`). The models of this library need no such promise.
    level : float
        Of intervals.
    random_state : int, optional
        Repeats an evaluation; not for release.

    Returns
    -------
    Evaluation
        Measures with intervals, curves, thresholds, and the privacy statement. It prints.

    Notes
    -----
    **Privacy** (epsilon, delta)-DP for one row, or one unit, under ``adjacency``. Two Gaussian mechanisms are charged
    before rows are scored; `dpdescent.evaluation.row_sums` derives their sensitivities: sqrt(H) and 1 if a row is
    removed (H is 1 for two classes and K for K > 2), sqrt(2) times as much if it is replaced, and k times as much for
    units of k rows. For numbers they are sqrt(2) and sqrt(5), replaced 2 and sqrt(8); for counts sqrt(3), sqrt(6),
    sqrt(6) and 3. All of this holds if the score of a row depends on no other row, and the statement says who vouches
    for that. The number of rows is public, or that of units.

    Intervals cover the noise of privacy and the draw of the rows from a population. They are normal, and hold for
    about a hundred rows and more of each class. Rows that trained the model make it look better than it is.

    Examples
    --------
    >>> from dpdescent import DPLogisticRegression, evaluate, load_dataset
    >>> data = load_dataset("synthetic", n=20000)
    >>> model = DPLogisticRegression(1.0, 1e-6, bounds=data.bounds, classes=data.classes, random_state=0)
    >>> model = model.fit(data.X[:10000], data.y[:10000])
    >>> found = evaluate(model, data.X[10000:], data.y[10000:], epsilon=0.5, delta=1e-6, random_state=0)
    >>> found.accuracy.low < found.accuracy.value < found.accuracy.high
    True
    >>> found.privacy["epsilon"]
    0.5
    """
    scorer = scorer_of(model, classes, scores, rows_separate)
    asked = _Asked(scorer, require_open_unit("level", level), threshold, rate, _range_of(scorer, score_range), like)
    asked.check()
    rows = EvaluatedRows.of(scorer, X, y, unit, require_positive_integer("rows_per_unit", rows_per_unit))
    own = _own_ledger(epsilon, delta, adjacency, rows.protected, ledger)
    shop = _Shop(rows, own, seed_of(random_state))
    asked.require_enough(shop)
    if ledger is not None:
        require_funds(ledger, shop.own)
    with paid_by(ledger, shop.own, f"evaluation of {scorer.name}"), charges_noted(shop.own):
        found = _buy_errors(asked, shop) if scorer.classes is None else _buy_counts(asked, shop)
    account = None if ledger is None else ledger.identity
    return Evaluation(
        scorer.name, scorer.scale, level, scorer.classes or (), *found, rows.count, _stated(asked, shop, account)
    )


def require_evaluable(
    scorer: Scorer,
    own: Ledger,
    table: tuple[Any, Any, Any, int],
    *,
    level: float = 0.95,
    threshold: float | None = None,
    rate: float | None = None,
) -> None:
    """Raise what an evaluation of a model that is still to be fitted would raise, and charge nothing.

    Parameters
    ----------
    scorer : Scorer
        How the model will score rows; it is not called.
    own : Ledger
        A ledger of what the evaluation will have.
    table : tuple
        X, y, unit and rows_per_unit, as for `evaluate`.
    """
    asked = _Asked(scorer, require_open_unit("level", level), threshold, rate, _range_of(scorer, None), None)
    asked.check()
    asked.require_enough(_Shop(EvaluatedRows.of(scorer, *table), own, None))


@dataclass(frozen=True)
class _Asked:
    """What a caller wants to know."""

    scorer: Scorer
    level: float
    threshold: float | None
    rate: float | None
    ends: tuple[float, float]
    like: Evaluation | None

    def check(self) -> None:
        """Raise what is wrong with it."""
        two = self.scorer.classes is not None and len(self.scorer.classes) == 2
        if not two and not (self.threshold is None and self.rate is None and self.like is None):
            raise InvalidParameter("threshold, rate and like are about two classes: leave them out")
        if self.rate is not None:
            require_open_unit("rate", self.rate)
            if self.threshold is not None or self.like is not None:
                raise InvalidParameter("give one of threshold, rate and like")
        if self.like is not None:
            if self.threshold is not None:
                raise InvalidParameter("like brings its own threshold: leave threshold out")
            counts = self.like.scores if isinstance(self.like, Evaluation) else ()
            earlier = counts[0] if len(counts) == 1 else None
            if (
                earlier is None
                or earlier.ends != self.ends
                or (self.like.scale == "score") != (self.scorer.scale == "score")
            ):
                raise InvalidParameter(
                    "like must be an evaluation of two classes, with scores of the same kind and range"
                )
        elif two:
            _ = self.cut

    @property
    def cut(self) -> float:
        """The threshold, in logits or as a score."""
        if self.threshold is not None:
            return threshold_in_logits(self.scorer.scale, self.threshold)
        return 0.0

    def raw(self, edges: tuple[float, ...]) -> tuple[float, ...]:
        """Return edges in the units that the model returns: logits are compared as probabilities where it must be."""
        if self.scorer.scale != "probability":
            return edges
        return tuple(np.atleast_1d(sigmoid(np.array(edges))).tolist())

    def require_enough(self, shop: _Shop) -> None:
        """Refuse what leaves nothing but noise, by public numbers."""
        if self.scorer.classes is None:
            return
        design = _empty_design(shop, number_of_bins(shop.effective_rows(self.scorer.histograms)), self)
        needed = math.ceil(6 * design.class_deviation)
        if shop.rows.most_rows < needed:
            raise InvalidParameter(
                f"{shop.rows.count} rows are too few for an evaluation at epsilon {shop.own.epsilon:g}: two classes "
                f"need three deviations of noise each, {needed} rows in all; raise epsilon, or bring more rows"
            )


class _Shop:
    """The rows, the ledger of an evaluation, and its noise."""

    def __init__(self, rows: EvaluatedRows, own: Ledger, seed: int | None) -> None:
        self.rows, self.own, self.noise = rows, own, LatticeNoise(Randomness(seed))

    def mechanism(self, share: float | None) -> Gaussian:
        """Return the noise that a share of the whole budget pays for; that of what is left for None."""
        left = self.own.remaining
        return self.own.currency.gaussian(left if share is None else min(left, share * self.own.budget))

    def deviation(self, wanted: RowSum, noise: Gaussian) -> float:
        """Return the standard deviation of the noise in an entry of a sum."""
        moved = wanted.sensitivity.times(self.rows.rows_per_unit).under(self.own.relation)
        return noise.noise_multiplier * moved

    def effective_rows(self, histograms: int) -> float:
        """Return n mu, for histograms of so many classes: public."""
        moved = math.sqrt(histograms * (1 if self.own.relation is Relation.ZERO_OUT else 2))
        return self.rows.count / (self.own.currency.gaussian(self.own.budget).noise_multiplier * moved)

    def buy(self, wanted: RowSum, share: float | None) -> tuple[Floats, float]:
        """Return a noisy sum over all rows, which is charged before a row is scored, and its deviation."""
        noise = self.mechanism(share)
        part = wanted.noised(noise, self.rows.rows_per_unit)
        answer: Floats = release(self.own, part, wanted.label, lambda: self.rows.add_up(wanted), self.noise)
        return answer, self.deviation(wanted, noise)


def _own_ledger(epsilon: float, delta: float, adjacency: str, protected: str, account: Ledger | None) -> Ledger:
    """Return the ledger of one evaluation, or raise if an account does not fit it."""
    if account is None:
        return Ledger(epsilon, delta, currency=GDP(), relation=adjacency, unit=protected)
    if not isinstance(account, Ledger):
        raise InvalidParameter(
            f"ledger must be a Ledger, got a {type(account).__name__}: Ledger.open(path) opens one"
        )
    if account.currency.name not in _GAUSSIAN:
        raise InvalidParameter(
            f"the ledger counts in {account.currency.name!r}, with no price for Gaussian noise: open one in 'gdp'"
        )
    if account.relation is not Relation.parse(adjacency) or account.unit != protected:
        raise InvalidParameter(
            f"the ledger keeps {account.relation} and protects {account.unit}, and this evaluation {adjacency} and "
            f"{protected}: make them agree"
        )
    return Ledger(epsilon, delta, currency=account.currency, relation=adjacency, unit=protected)


def _range_of(scorer: Scorer, given: tuple[float, float] | None) -> tuple[float, float]:
    if given is None:
        return _LOGITS
    try:
        low, high = (float(each) for each in given)
    except (TypeError, ValueError):
        low = high = math.nan
    if scorer.scale != "score" or not (math.isfinite(low) and math.isfinite(high) and low < high):
        raise InvalidParameter("score_range is (low, high) with low < high, and is for scores='score' alone")
    return low, high


def _empty_design(shop: _Shop, bins: int, asked: _Asked) -> ScoreCounts:
    """Return counts of no rows with the noise that there will be, for what follows from public numbers."""
    edges = tuple(np.linspace(-1, 1, bins + 1)[1:-1].tolist())
    histograms, classes = asked.scorer.histograms, asked.scorer.classes or ()
    two = histograms == 1
    wanted = ScoresByClass((edges,) * histograms, bins // 2 if two else None, len(classes))
    noise = shop.own.currency.gaussian((1 - _COARSE) * shop.own.budget)
    cell, count = _deviations(wanted, shop.deviation(wanted, noise))
    empty, sums = (0.0,) * bins, (0.0,) * (4 if two else 1)
    of_sum = cell if two else cell * math.sqrt(len(classes))
    return ScoreCounts(
        edges, (empty, empty), count, sums, of_sum, wanted.split, shop.rows.public_rows, (0.0,) * 32, asked.ends
    )


def _deviations(wanted: ScoresByClass, deviation: float) -> tuple[float, float]:
    """Return the deviations of a confusion count and of a bin, each in rows."""
    steps = 2**20
    return deviation * steps / wanted.cell_steps, deviation * steps / wanted.bin_steps


#: What an evaluation has found, in the order of the fields of `Evaluation`.
_Found = tuple[tuple[ScoreCounts, ...], tuple[tuple[float, ...], ...], float, NumberSums | None]


def _buy_counts(asked: _Asked, shop: _Shop) -> _Found:
    """Buy coarse histograms, then the counts between edges that follow from them."""
    scorer, rows = asked.scorer, shop.rows
    total, two = rows.public_rows, asked.scorer.histograms == 1
    edges, splits, coarse = _buy_edges(asked, shop, two)
    raw = tuple(asked.raw(each) for each in edges)
    wanted = ScoresByClass(raw, splits[0] if two else None, len(scorer.classes or ()))
    answer, deviation = shop.buy(wanted, None)
    cells, counted = wanted.split_answer(answer)
    of_cell, of_bin = _deviations(wanted, deviation)
    found = []
    for number, counts in enumerate(counted):
        sums = cells.ravel() if two else cells[number].sum(keepdims=True)
        found.append(
            ScoreCounts(
                edges[number],
                (tuple(counts[0].tolist()), tuple(counts[1].tolist())),
                of_bin,
                tuple(sums.tolist()),
                of_cell if two else of_cell * math.sqrt(cells.shape[0]),
                splits[number],
                total,
                tuple(coarse[number].tolist()),
                asked.ends,
                rows.rows_per_unit,
            )
        )
    return tuple(found), tuple(map(tuple, cells.tolist())), of_cell, None


def _buy_edges(
    asked: _Asked, shop: _Shop, two: bool
) -> tuple[tuple[tuple[float, ...], ...], tuple[int | None, ...], list[Floats]]:
    """Return the edges of every histogram, which of them is the threshold, and the coarse counts they come from."""
    if asked.like is not None:
        (earlier,) = asked.like.scores
        return (earlier.edges,), (earlier.split,), [np.array(earlier.coarse)]
    histograms, total = asked.scorer.histograms, shop.rows.public_rows
    public = tuple(coarse_edges(asked.ends).tolist())
    answer, _ = shop.buy(CoarseScores(asked.raw(public), histograms), _COARSE)
    coarse = np.split(answer, histograms)
    bins = number_of_bins(shop.effective_rows(histograms))
    cut = asked.cut if two else None
    if asked.rate is not None:
        cut = round(score_above(coarse[0], asked.ends, total, asked.rate), 6)
    found = [quantile_edges(each, asked.ends, total, bins, cut) for each in coarse]
    edges, splits = zip(*found, strict=True)
    return edges, splits, coarse


def _buy_errors(asked: _Asked, shop: _Shop) -> _Found:
    """Buy ladders of errors and targets, then sums that are clipped where these say."""
    counts, rows = asked.scorer.scale == "count", shop.rows
    ladders = Ladders(counts)
    answer, deviation = shop.buy(ladders, _COARSE)
    errors, targets, deviances = ladders.split_answer(answer)
    low, high = choose_range(targets, deviation)
    clip = choose_clip(errors, deviation)
    largest = choose_clip(deviances, deviation) if counts else None
    counted = rows.rows_per_unit > 1  # the number of rows is not public then
    wanted = ErrorSums(clip, (low + high) / 2, (high - low) / 2, largest, counted)
    sums, noise = shop.buy(wanted, None)
    number = max(float(sums[-1]), 3 * noise, 1.0) if counted else float(rows.count)
    return (
        (),
        (),
        0.0,
        NumberSums(
            tuple(sums.tolist()),
            noise,
            clip,
            wanted.middle,
            wanted.half,
            largest,
            number,
            counted,
            tuple(errors.tolist()),
            deviation,
            rows.rows_per_unit,
        ),
    )


def _stated(asked: _Asked, shop: _Shop, account: str | None) -> dict[str, Any]:
    """Return the statement of an evaluation."""
    rows, scorer = shop.rows, asked.scorer
    numbers = scorer.classes is None
    released = (
        ["ladders of errors and targets over powers of two", "sums of clipped errors and of clipped targets"]
        if numbers
        else ["confusion counts", f"histograms of scores by class: {scorer.histograms} of them"]
    )
    what = "units" if rows.units is not None else "rows"
    public = [public_fact(f"the number of {what}", str(rows.count), Origin.RELATION)]
    if not numbers:
        public.append(public_fact("classes", f"{len(scorer.classes or ())} of them", Origin.ARGUMENT))
    if not scorer.own:
        public.append(public_fact("row-wise scores", scorer.vouched, Origin.ARGUMENT))
    remarks = [scorer.vouched] if scorer.own else []
    if rows.units is not None:
        remarks.append(f"at most {rows.rows_per_unit} rows of {rows.protected} were used")
    said: dict[str, Any] = {} if rows.units is None else {"rows_per_unit": rows.rows_per_unit}
    return PrivacyStatement.of_ledger(
        shop.own,
        model=f"evaluation of {scorer.name}",
        method="clipped sums" if numbers else "histograms of scores",
        randomness=shop.noise.description,
        arithmetic=shop.noise.arithmetic,
        released=tuple(released),
        assumed_public=tuple(public),
        remarks=tuple(remarks),
        account=account,
        **said,
    ).to_dict()
