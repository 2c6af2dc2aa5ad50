"""Claims of the papers about the parameters of one method, each with a check that judges it on the rows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from .claims import LEVEL, NOT_MEASURED, Check
from .row_groups import PASSES, Group
from .verdicts import Margin, Statement, every, some, told

__all__ = ["ends_cost", "fewer_passes", "helps", "level", "preferred", "small_hurts"]

Series = Mapping[tuple[int, int], float]


def level(parameter: str, low: float = 0.0, high: float = float("inf"), *, above: float = 0.0) -> Check:
    """Judge whether no two values of a parameter in [low, high] differ by more than `LEVEL`, above an epsilon."""

    def check(groups: Sequence[Group]) -> str:
        pairs: list[Statement] = []
        texts = []
        for epsilon, found in _lines(groups, parameter):
            inner = {value: series for value, series in found.items() if low <= value <= high}
            if epsilon > above and len(inner) > 1:
                pairs += [Margin.between(a, b, LEVEL) for k, a in inner.items() for j, b in inner.items() if j != k]
                means = [_mean(series) for series in inner.values()]
                texts.append(f"at epsilon {epsilon:g} accuracy varies by {max(means) - min(means):.3f}")
        return told(every(pairs), "; ".join(texts)) if pairs else NOT_MEASURED

    return check


def ends_cost(parameter: str, *, at: float | None = None) -> Check:
    """Judge whether the least and the largest value of a parameter cost accuracy, at one epsilon or at all."""

    def check(groups: Sequence[Group]) -> str:
        ends: list[Statement] = []
        texts = []
        for epsilon, found in _lines(groups, parameter):
            if at in (None, epsilon) and len(found) > 2:
                best = max(found, key=lambda other: _mean(found[other]))
                for end in (min(found), max(found)):
                    ends.append(some([Margin.between(found[k], found[end]) for k in found if k != end]))
                    loss = Margin.between(found[best], found[end])
                    cost = f"{_text(best)} minus {_text(end)} is {loss}" if best != end else f"{_text(end)} is best"
                    texts.append(f"at epsilon {epsilon:g}, {cost}")
        return told(every(ends), "; ".join(texts)) if ends else NOT_MEASURED

    return check


def preferred(parameter: str, value: float | str, *, ahead: bool = False) -> Check:
    """Judge whether a value of a parameter is level with every other at every epsilon, or ``ahead`` of every one."""

    def check(groups: Sequence[Group]) -> str:
        parts: list[Statement] = []
        texts = []
        for epsilon, found in _lines(groups, parameter):
            others = [other for other in found if other != value]
            if value in found and others:
                parts += [Margin.between(found[value], found[other], 0.0 if ahead else LEVEL) for other in others]
                best = max(others, key=lambda other: _mean(found[other]))
                margin = Margin.between(found[value], found[best])
                texts.append(
                    f"at epsilon {epsilon:g}, {_text(value)} minus {_text(best)}, the best other, is {margin}"
                )
        return told(every(parts), "; ".join(texts)) if parts else NOT_MEASURED

    return check


def small_hurts(parameter: str) -> Check:
    """Judge whether the smallest value of a parameter costs accuracy at the smallest epsilon, and not at the largest.

    At the smallest it is worse than some other value; at the largest no other is better by more than `LEVEL`.
    """

    def check(groups: Sequence[Group]) -> str:
        lines = _lines(groups, parameter)
        texts, gains = [], []
        for place, (epsilon, found) in enumerate(lines):
            least = min(found)
            others = [other for other in found if other != least]
            if others and place in (0, len(lines) - 1):
                best = max(others, key=lambda other: _mean(found[other]))
                gain = Margin.between(found[best], found[least])
                texts.append(f"at epsilon {epsilon:g}, {_text(best)} minus {_text(least)} is {gain}")
                gains.append((least, found))
        if len(gains) < 2:
            return NOT_MEASURED
        (low, first), (end, last) = gains
        hurts = some([Margin.between(series, first[low]) for value, series in first.items() if value != low])
        spared = every([Margin.between(last[end], series, LEVEL) for value, series in last.items() if value != end])
        return told(every([hurts, spared]), "; ".join(texts))

    return check


def helps(parameter: str, off: float, *, below: float) -> Check:
    """Judge whether some value of a parameter beats ``off`` below an epsilon, and none does by `LEVEL` above it."""

    def check(groups: Sequence[Group]) -> str:
        parts: list[Statement] = []
        texts = []
        for epsilon, found in _lines(groups, parameter):
            others = {value: series for value, series in found.items() if value != off}
            if off in found and others:
                best = max(others, key=lambda other: _mean(others[other]))
                parts.append(
                    some([Margin.between(series, found[off]) for series in others.values()])
                    if epsilon < below
                    else every([Margin.between(found[off], series, LEVEL) for series in others.values()])
                )
                gain = Margin.between(others[best], found[off])
                texts.append(f"at epsilon {epsilon:g}, {_text(best)} gains {gain} over {_text(off)}")
        return told(every(parts), "; ".join(texts)) if parts else NOT_MEASURED

    return check


def fewer_passes(parameter: str, value: float, whole: float = 1.0) -> Check:
    """Judge whether at most half as much is evaluated at one value of a parameter as at another."""

    def check(groups: Sequence[Group]) -> str:
        parts: list[Statement] = []
        texts = []
        for measure in PASSES:
            for epsilon, found in _lines(groups, parameter, measure.field):
                if value in found and whole in found:
                    own, all_rows = found[value], found[whole]
                    parts.append(Margin.between({k: count / 2 for k, count in all_rows.items()}, own))
                    texts.append(
                        f"{measure.name}: {_mean(own):,.0f} at {value:g} and {_mean(all_rows):,.0f} at {whole:g} "
                        f"(epsilon {epsilon:g}), a ratio of {_mean(own) / _mean(all_rows):.2f}"
                    )
        return told(every(parts), "; ".join(texts)) if parts else NOT_MEASURED

    return check


def _mean(series: Series) -> float:
    return float(np.mean(list(series.values())))


def _lines(groups: Sequence[Group], parameter: str, field: str = "accuracy") -> list[tuple[float, dict[Any, Series]]]:
    """Return, from the smallest epsilon to the largest, what the repetitions gave at each value of a parameter."""
    lines: dict[float, dict[Any, Series]] = {}
    for group in groups:
        if group.parameter == parameter and group.value is not None and (series := group.series(field)):
            lines.setdefault(group.epsilon, {})[group.value] = series
    return sorted(lines.items())


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
