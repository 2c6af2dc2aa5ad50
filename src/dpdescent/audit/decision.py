"""Decide from outcomes of two neighbouring tables how much epsilon they refute.

The outcomes are split. The first quarter teaches scores, the second chooses a score, a threshold and a kind of test,
and the other half bounds what that one test achieves. The choice is thus made without the outcomes that count,
and the bound holds with the stated confidence whatever was chosen. Where score and threshold are known
before any run, as those of a likelihood ratio are, all outcomes count.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from .bounds import Claim, epsilon_of, from_errors, from_event
from .scores import Outcomes, learnt

__all__ = ["Decision", "Rule", "decide"]

Floats = NDArray[np.float64]

_THRESHOLDS = 1000
_CURVE_POINTS = 200


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
    """What the outcomes refute.

    Parameters
    ----------
    epsilons : dict
        For each claim the lower bound on epsilon at delta, each with the confidence that was asked for.
    rules : dict
        The test that each bound rests on.
    curve : tuple of pairs
        False positive and false negative rates of the score of the claim, as they were counted.
    """

    epsilons: dict[Claim, float]
    rules: dict[Claim, Rule]
    curve: tuple[tuple[float, float], ...]


def decide(
    first: Outcomes, second: Outcomes, claim: Claim, delta: float, error: float, known: Rule | None = None
) -> Decision:
    """Return lower bounds on epsilon from as many outcomes of each of two tables.

    Parameters
    ----------
    first, second : ndarray
        One outcome for each row, in the order in which they were drawn.
    claim : {"approximate", "gdp"}
        What is claimed; a claim of GDP is also one of (epsilon, delta)-DP, and both are tested.
    delta : float
    error : float
        Probability with which a bound may be too large.
    known : Rule, optional
        A test that was fixed before the runs, of the first number of every outcome.
    """
    runs = len(first)
    claims: tuple[Claim, ...] = ("approximate", "gdp") if claim == "gdp" and delta > 0 else ("approximate",)
    if known is not None:
        scored = first[:, 0], second[:, 0]
        found_by = {each: epsilon_of(each, delta, known.bound(each, delta, *scored, error)) for each in claims}
        return Decision(found_by, dict.fromkeys(claims, known), _curve(*scored))
    quarter = runs // 4
    scores = learnt(first[:quarter], second[:quarter])
    choosing, counting = slice(quarter, 2 * quarter), slice(2 * quarter, runs)
    epsilons: dict[Claim, float] = {}
    rules: dict[Claim, Rule] = {}
    curve: tuple[tuple[float, float], ...] = ()
    for each in claims:
        found = [(*_chosen(each, delta, one(first[choosing]), one(second[choosing]), error), one) for one in scores]
        _, rule, score_of = max(found, key=lambda each: each[0])
        counted = score_of(first[counting]), score_of(second[counting])
        epsilons[each] = epsilon_of(each, delta, rule.bound(each, delta, *counted, error))
        rules[each] = rule
        curve = _curve(*counted)
    return Decision(epsilons, rules, curve)


def _chosen(claim: Claim, delta: float, first: Floats, second: Floats, error: float) -> tuple[float, Rule]:
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
