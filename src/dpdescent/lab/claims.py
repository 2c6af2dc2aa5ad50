"""Claims of the papers in our words, each with a check that says, from the rows, what was found here.

The first checks compare methods, with the standard errors of `verdicts`; the others, the values of a parameter of one
method.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

import numpy as np

from .method_looks import look_of
from .verdicts import (
    NOT_MEASURED,
    PASSES,
    SHARES,
    Check,
    Group,
    Margin,
    Part,
    Share,
    Statement,
    every,
    most,
    some,
    told,
    told_by_mode,
)

Series = Mapping[tuple[int, int], float]

#: Differences of accuracy up to this count as level.
LEVEL = 0.005
#: A private objective is close to the one without privacy if it goes this share of the way there from zero weights.
_CLOSE = 0.9
_ZERO_WEIGHTS = {"logistic": float(np.log(2)), "svm": 1.0}
_MANY = 6  # places that are named one by one
_OURS = ("agd-paper", "agd")


def standing(
    *,
    share: Share = "every",
    ahead: bool = False,
    epsilon: float | None = None,
    ours: Sequence[str] = _OURS,
    excepted: Sequence[str] = (),
) -> Check:
    """Judge whether the methods of a paper are level with every private rival, or ``ahead`` of every one.

    This is asked of every, most or some of the comparisons on each data set that is not excepted at every epsilon, or
    at one of them.
    """

    def check(groups: Sequence[Group]) -> str:
        chosen = [group for group in groups if epsilon is None or group.epsilon == epsilon]
        parts = []
        for method in ours:
            cells, leads, behind = [], 0, []
            for group in (group for group in chosen if group.method == method and group.dataset not in excepted):
                rivals = _rivals(chosen, group, spare=(*ours, "auto"))
                if rivals:
                    cells.append(every([_margin(group, rival, 0.0 if ahead else LEVEL) for rival in rivals]))
                    best = max(rivals, key=_accuracy)
                    difference = _margin(group, best)
                    leads += difference.mean > 0
                    if difference.mean < -LEVEL:
                        where = "" if epsilon is not None else f" at {group.epsilon:g}"
                        behind.append(f"{_place(group)}{where} (by {difference}, {best.name})")
            if cells:
                losses = f", behind on {_listed(behind[:_MANY])}" if behind else ""
                losses += f" and in {len(behind) - _MANY} more" if len(behind) > _MANY else ""
                text = (
                    f"{look_of(method).name} has a higher mean than every private rival in {leads} of {len(cells)} "
                )
                parts.append(Part(method, SHARES[share](cells), f"{text}comparisons{losses}"))
        return told_by_mode(parts)

    return check


def leads_above(method: str, epsilon: float) -> Check:
    """Judge whether ``method`` is the best private one on every data set at every epsilon above a limit."""

    def check(groups: Sequence[Group]) -> str:
        cells, shown = [], []
        for group in groups:
            if group.method == method and group.epsilon > epsilon and (rivals := _rivals(groups, group)):
                best = max(rivals, key=_accuracy)
                cells.append(every([_margin(group, rival) for rival in rivals]))
                shown.append(f"{_margin(group, best)} against {best.name} on {_place(group)}")
        if not cells:
            return f"Not measured: {look_of(method).name} was not run above epsilon {epsilon:g}."
        return told(every(cells), f"{look_of(method).name} {_listed(shown)}")

    return check


def gap_to_nonprivate() -> Check:
    """Judge whether the objective comes close to the one without privacy in most comparisons.

    To be close is to go nine tenths of the way there from the objective at zero weights.
    """

    def check(groups: Sequence[Group]) -> str:
        floors = {(g.dataset, g.loss): g.series("objective") for g in groups if g.method == "nonprivate"}
        parts = []
        for method in _OURS:
            cells: list[Statement] = []
            gaps: dict[str, list[tuple[float, float]]] = {}
            for group in groups:
                own, floor = group.series("objective"), floors.get((group.dataset, group.loss), {})
                both = sorted(own.keys() & floor.keys())
                if group.method == method and both:
                    start = _ZERO_WEIGHTS[group.loss]
                    cells.append(Margin.of([(1 - _CLOSE) * start + _CLOSE * floor[k] - own[k] for k in both]))
                    gap = float(np.mean([own[k] - floor[k] for k in both]))
                    gaps.setdefault(_place(group), []).append((group.epsilon, gap))
            if gaps:
                shown = [f"{place} {min(points)[1]:.3f} to {max(points)[1]:.3f}" for place, points in gaps.items()]
                ends = next(iter(gaps.values()))
                text = (
                    f"{look_of(method).name} stays above the objective without privacy by, from epsilon "
                    f"{min(ends)[0]:g} to {max(ends)[0]:g}: {_listed(shown)}"
                )
                parts.append(Part(method, most(cells), text))
        return told_by_mode(parts)

    return check


def steadiness(dataset: str, low: float, high: float) -> Check:
    """Judge whether accuracy is lower at a high epsilon than at a low one while the objective falls all the way."""

    def check(groups: Sequence[Group]) -> str:
        parts = []
        for method in _OURS:
            line = sorted((g for g in groups if (g.method, g.dataset) == (method, dataset)), key=lambda g: g.epsilon)
            at = {group.epsilon: group for group in line if group.series()}
            if low in at and high in at:
                fall = _margin(at[low], at[high])
                falls = [_margin(a, b, field="objective") for a, b in pairwise(at.values())]
                text = (
                    f"{look_of(method).name} on {dataset}: accuracy at {low:g} minus that at {high:g} is {fall}; the "
                    f"objective falls from each epsilon to the next by {_listed([str(margin) for margin in falls])}"
                )
                parts.append(Part(method, every([fall, *falls]), text))
        return told_by_mode(parts)

    return check


def duel(
    *pairs: tuple[str, str], share: Share = "most", epsilon: float | None = None, excepted: Sequence[str] = ()
) -> Check:
    """Judge whether the first of each pair is better than the second on most data sets that are not excepted.

    The difference is that at one epsilon, or else the mean over all.
    """

    def check(groups: Sequence[Group]) -> str:
        found = {
            (group.dataset, group.loss, group.epsilon, group.method): group.series()
            for group in groups
            if epsilon is None or group.epsilon == epsilon
        }
        parts = []
        for first, second in pairs:
            gathered: dict[str, dict[tuple[int, int], list[float]]] = {}
            for (dataset, loss, at, method), own in found.items():
                other = found.get((dataset, loss, at, second), {})
                for key in sorted(own.keys() & other.keys()) if method == first else ():
                    gathered.setdefault(dataset, {}).setdefault(key, []).append(own[key] - other[key])
            margins = {name: Margin.of([float(np.mean(v)) for v in by.values()]) for name, by in gathered.items()}
            counted = [margin for name, margin in margins.items() if name not in excepted]
            if counted:
                shown = [f"{dataset} {margin}" for dataset, margin in margins.items()]
                text = f"{look_of(first).name} minus {look_of(second).name}: {_listed(shown)}"
                parts.append(Part(first, SHARES[share](counted), text))
        where = "mean over epsilon" if epsilon is None else f"at epsilon {epsilon:g}"
        return told_by_mode(parts, f" (accuracy, {where})")

    return check


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


def _rivals(groups: Sequence[Group], group: Group, spare: Sequence[str] = ()) -> list[Group]:
    """Return the other private methods of the same task and epsilon that share repetitions, some left out.

    A paper mode is compared with paper modes, and with the majority class, where there are any.
    """
    own = group.series().keys()
    rivals = [
        other
        for other in groups
        if (other.dataset, other.loss, other.epsilon) == (group.dataset, group.loss, group.epsilon)
        and other.method != group.method
        and other.method not in spare
        and other.private
        and own & other.series().keys()
    ]
    printed = [other for other in rivals if other.method.endswith("-paper") or other.method == "majority"]
    return printed if group.method.endswith("-paper") and printed else rivals


def _margin(first: Group, second: Group, allowed: float = 0.0, field: str = "accuracy") -> Margin:
    return Margin.between(first.series(field), second.series(field), allowed)


def _accuracy(group: Group) -> float:
    return _mean(group.series())


def _place(group: Group) -> str:
    return group.dataset if group.loss == "logistic" else f"{group.dataset} (SVM)"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


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
