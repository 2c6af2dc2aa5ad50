"""Scores: functions of an outcome that are large where the neighbouring table is the more likely origin.

A score is learnt from outcomes that are used for nothing else, so whatever is learnt, a bound from other outcomes
holds. Three are tried, and the one that promises the best bound is taken:

`linear`
    The direction between the two means, in units of the spread: best for noise that is added to a vector.
`quadratic`
    The log ratio of two normal laws: best where the neighbour also changes how far outcomes spread.
`categories`
    The log ratio of how often each value was seen: best for a choice among a few.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["Outcomes", "Score", "as_outcomes", "learnt", "plain"]

Floats = NDArray[np.float64]
#: One row for each run: numbers, or one word where an outcome is anything else.
Outcomes = NDArray[Any]
Score = Callable[[Outcomes], Floats]

_FEW_VALUES = 64
_RIDGE = 1e-9


def plain(outcome: Any) -> list[float] | str:
    """Return an outcome as numbers, or as the text of its representation if it is anything else."""
    try:
        numbers = np.ravel(np.asarray(outcome, dtype=np.float64))
    except (TypeError, ValueError):
        return repr(outcome)
    return numbers.tolist() if numbers.size and np.isfinite(numbers).all() else repr(outcome)


def as_outcomes(first: Sequence[list[float] | str], second: Sequence[list[float] | str]) -> tuple[Outcomes, Outcomes]:
    """Return plain outcomes of both tables as arrays of one kind.

    Outcomes of different lengths, and those that are no finite numbers, are compared by their text: a shape or a
    missing number may give a row away as well as any digit.
    """
    every = [*first, *second]
    if all(not isinstance(each, str) and len(each) == len(every[0]) for each in every):
        return np.array(first, dtype=np.float64), np.array(second, dtype=np.float64)
    words = [each if isinstance(each, str) else f"{len(each)} numbers" for each in every]
    coded = np.array(words, dtype=object)[:, None]
    return coded[: len(first)], coded[len(first) :]


def learnt(first: Outcomes, second: Outcomes) -> list[Score]:
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
    direction = _solved(centred, second.mean(axis=0) - first.mean(axis=0))
    return lambda outcomes: np.asarray(outcomes @ direction, dtype=np.float64)


def _solved(centred: Floats, change: Floats) -> Floats:
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
