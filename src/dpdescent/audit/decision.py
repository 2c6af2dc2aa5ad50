"""Decide from outcomes of two neighbouring tables how much epsilon they refute.

The outcomes are split. The first quarter teaches scores, the second chooses a score, a threshold and a kind of test,
and the other half bounds what that one test achieves. The choice is thus made without the outcomes that count,
and the bound holds with the stated confidence whatever was chosen. Where score and threshold are known
before any run, as those of a likelihood ratio are, all outcomes count.

A score is a function of an outcome that is large where the neighbouring table is the more likely origin. It is learnt
from outcomes that are used for nothing else, so whatever is learnt, a bound from other outcomes holds. Three are
tried, and the one that promises the best bound is taken:

`linear`
    The direction between the two means, in units of the spread: best for noise that is added to a vector.
`quadratic`
    The log ratio of two normal laws: best where the neighbour also changes how far outcomes spread.
`categories`
    The log ratio of how often each value was seen: best for a choice among a few.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ..arrays import Floats
from .audit_runs import Outcomes
from .findings import Claim, epsilon_of, from_errors, from_event

Score = Callable[[Outcomes], Floats]

_THRESHOLDS = 1000
_CURVE_POINTS = 200
_FEW_VALUES = 64
_RIDGE = 1e-9


@dataclass(frozen=True)
class Rule:
    """A threshold of a score, and what is counted: errors, or an event above or below the threshold."""

    kind: Literal["errors", "above", "below"]
    threshold: float

    def bound(self, claim: Claim, delta: float, first: Floats, second: Floats, error: float) -> float:
        """Return the lower bound that scores of the two tables give, in the unit of the claim."""
        counts = [np.array([np.count_nonzero(scores > self.threshold)]) for scores in (first, second)]
        return float(_bounds(self.kind, claim, delta, counts[0], counts[1], len(first), error)[0])


@dataclass(frozen=True)
class Decision:
    """What the outcomes refute."""

    #: For each claim the lower bound on epsilon at delta, each with the confidence that was asked for.
    epsilons: dict[Claim, float]
    rules: dict[Claim, Rule]  # the test that each bound rests on
    #: False positive and false negative rates of the score of the claim, as they were counted.
    curve: tuple[tuple[float, float], ...]


def decide(
    first: Outcomes, second: Outcomes, claim: Claim, delta: float, error: float, known: Rule | None = None
) -> Decision:
    """Return lower bounds on epsilon from as many outcomes of each of two tables.

    Each row is an outcome, in the order in which they were drawn. A claim of GDP is also one of (epsilon, delta)-DP,
    and both are tested. A bound may be too large with probability ``error``. ``known`` is a test that was fixed
    before the runs, of the first number of every outcome.
    """
    runs = len(first)
    claims: tuple[Claim, ...] = ("approximate", "gdp") if claim == "gdp" and delta > 0 else ("approximate",)
    if known is not None:
        scored = first[:, 0], second[:, 0]
        found_by = {each: epsilon_of(each, delta, known.bound(each, delta, *scored, error)) for each in claims}
        return Decision(found_by, dict.fromkeys(claims, known), _curve(*scored))
    quarter = runs // 4
    scores = learn_scores(first[:quarter], second[:quarter])
    choosing, counting = slice(quarter, 2 * quarter), slice(2 * quarter, runs)
    epsilons: dict[Claim, float] = {}
    rules: dict[Claim, Rule] = {}
    curve: tuple[tuple[float, float], ...] = ()
    for each in claims:
        found = [(*_choose(each, delta, one(first[choosing]), one(second[choosing]), error), one) for one in scores]
        _, rule, score_of = max(found, key=lambda each: each[0])
        counted = score_of(first[counting]), score_of(second[counting])
        epsilons[each] = epsilon_of(each, delta, rule.bound(each, delta, *counted, error))
        rules[each] = rule
        curve = _curve(*counted)
    return Decision(epsilons, rules, curve)


def _choose(claim: Claim, delta: float, first: Floats, second: Floats, error: float) -> tuple[float, Rule]:
    """Return the test of a score with the best bound from these outcomes, and that bound.

    The bound itself is too good, being the best of many; but it weighs what few outcomes can show, so a test that was
    merely lucky with a rare event is not preferred.
    """
    thresholds, trials = _thresholds(first, second), len(first)
    counts = [_above(scores, thresholds) for scores in (first, second)]
    best: tuple[float, Rule] = (-1.0, Rule("errors", float(thresholds[0])))
    for kind in ("errors", "above", "below"):
        bounds = _bounds(kind, claim, delta, counts[0], counts[1], trials, error)
        place = int(np.argmax(bounds))
        if bounds[place] > best[0]:
            best = (float(bounds[place]), Rule(kind, float(thresholds[place])))
    return best


def _bounds(
    kind: Literal["errors", "above", "below"],
    claim: Claim,
    delta: float,
    above_first: Floats,
    above_second: Floats,
    trials: int,
    error: float,
) -> Floats:
    if kind == "errors":
        return from_errors(claim, delta, above_first + (trials - above_second), trials, error)
    if kind == "above":
        return from_event(claim, delta, above_second, above_first, trials, error)
    return from_event(claim, delta, trials - above_first, trials - above_second, trials, error)


def _thresholds(first: Floats, second: Floats) -> Floats:
    """Return thresholds between the scores that were seen: all of them, or quantiles that are dense at both ends."""
    values = np.unique(np.concatenate([first, second]))
    if values.size > _THRESHOLDS:
        ends = np.unique(np.geomspace(1, values.size / 2, _THRESHOLDS // 4).astype(int))
        even = np.linspace(0, values.size - 1, _THRESHOLDS // 2).astype(int)
        values = values[np.unique(np.concatenate([ends - 1, values.size - ends, even]))]
    # A threshold is itself a score that was seen: "above" leaves it out, and the least value is passed from below.
    return np.concatenate([[np.nextafter(values[0], -np.inf)], values])


def _above(scores: Floats, thresholds: Floats) -> Floats:
    """Return how many scores are above each threshold."""
    return (len(scores) - np.searchsorted(np.sort(scores), thresholds, side="right")).astype(np.float64)


def _curve(first: Floats, second: Floats) -> tuple[tuple[float, float], ...]:
    thresholds = np.quantile(np.concatenate([first, second]), np.linspace(0, 1, _CURVE_POINTS))
    thresholds = np.concatenate([[np.nextafter(thresholds[0], -np.inf)], thresholds])
    false_positive = _above(first, thresholds) / len(first)
    false_negative = 1 - _above(second, thresholds) / len(second)
    return tuple(zip(false_positive.tolist(), false_negative.tolist(), strict=True))


def learn_scores(first: Outcomes, second: Outcomes) -> list[Score]:
    """Return the scores that outcomes of the two tables suggest."""
    scores: list[Score] = []
    if first.shape[1] == 1 and np.unique(np.concatenate([first, second])).size <= _FEW_VALUES:
        scores.append(_categories(first, second))
    if first.dtype != object:
        scores.append(_linear(first, second))
        scores.append(_quadratic(first, second))
    return scores or [_categories(first, second)]


def _categories(first: Outcomes, second: Outcomes) -> Score:
    values, where = np.unique(np.concatenate([first, second])[:, 0], return_inverse=True)
    counts = [np.bincount(part, minlength=values.size) + 0.5 for part in np.split(where, [len(first)])]
    known = dict(zip(values.tolist(), np.log(counts[1] / counts[0]).tolist(), strict=True))
    return lambda outcomes: np.array([known.get(value, 0.0) for value in outcomes[:, 0].tolist()])


def _linear(first: Floats, second: Floats) -> Score:
    centred = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)])
    direction = _solve(centred, second.mean(axis=0) - first.mean(axis=0))
    return lambda outcomes: np.asarray(outcomes @ direction, dtype=np.float64)


def _solve(centred: Floats, change: Floats) -> Floats:
    """Return the inverse covariance times a vector; that of the diagonal where outcomes are too few for more."""
    variances = np.mean(centred**2, axis=0)
    spread = np.sqrt(np.where(variances > 0, variances, 1.0))
    scaled = centred / spread
    if len(centred) < 10 * centred.shape[1]:
        return np.asarray(change / spread**2)
    covariance = scaled.T @ scaled / len(centred) + _RIDGE * np.eye(centred.shape[1])
    return np.asarray(np.linalg.solve(covariance, change / spread) / spread)


def _quadratic(first: Floats, second: Floats) -> Score:
    both = [_normal_law(outcomes) for outcomes in (first, second)]
    return lambda outcomes: both[1](outcomes) - both[0](outcomes)


def _normal_law(outcomes: Floats) -> Callable[[Floats], Floats]:
    """Return the log density, up to a constant that does not matter, of a normal law with the same moments."""
    mean = outcomes.mean(axis=0)
    variances = np.mean((outcomes - mean) ** 2, axis=0)
    spread = np.sqrt(np.where(variances > 0, variances, 1.0))
    scaled = (outcomes - mean) / spread
    columns = outcomes.shape[1]
    factor, constant = np.eye(columns), -float(np.log(spread).sum())
    if len(outcomes) >= 10 * columns:
        covariance = scaled.T @ scaled / len(outcomes) + _RIDGE * np.eye(columns)
        triangle = np.linalg.cholesky(covariance)
        factor, constant = np.linalg.inv(triangle), constant - float(np.log(np.diag(triangle)).sum())
    return lambda other: constant - np.sum((((other - mean) / spread) @ factor.T) ** 2, axis=1) / 2
