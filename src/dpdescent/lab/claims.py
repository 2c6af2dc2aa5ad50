"""Claims of the papers in our words, each with a check that says, from the rows, what was found here.

The first checks compare methods, with the standard errors of `verdicts`; the others, the values of a parameter of one
method. A check has one margin for each average that its sentence speaks of.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import chain
from typing import Any

import numpy as np

from ..solvers.sgd import MOST_MOMENTS, moments_steps
from .method_looks import look_of
from .verdicts import (
    NOT_MEASURED,
    PASSES,
    Check,
    Checked,
    Group,
    Margin,
    Part,
    Sample,
    Statement,
    every,
    pooled,
    some,
    told,
    told_by_mode,
)

#: Differences of accuracy up to this count as level.
LEVEL = 0.005
#: A private objective is close to the one without privacy if it goes this share of the way there from zero weights.
_CLOSE = 0.9
_ZERO_WEIGHTS = {"logistic": float(np.log(2)), "svm": 1.0}
_MANY = 6  # places that are named one by one
_SOME_RATE, _SOME_NOISE = 0.005, 4.0  # of DP-SGD in the paper: a batch of sqrt(n) rows, and the authors' noise
_OURS = ("agd-paper", "agd")
_SPARE = ("auto", "agd-gaussian-paper")  # no rivals: an automatic choice, and another reading of the same method


def standing(
    *,
    ahead: bool = False,
    throughout: bool = False,
    epsilon: float | None = None,
    ours: Sequence[str] = _OURS,
    excepted: Sequence[str] = (),
) -> Check:
    """Judge whether the methods of a paper are level with every private rival, or ``ahead`` of every one.

    This is asked of the average over the data sets that are not excepted and all budgets, of that at one of them, or
    ``throughout``, of that at each of them.
    """

    def check(groups: Sequence[Group]) -> str:
        chosen = [group for group in groups if epsilon is None or group.epsilon == epsilon]
        parts = []
        for method in ours:
            against: dict[tuple[str, float | None], list[Margin]] = {}
            leads, cells, behind = 0, 0, []
            for group in (group for group in chosen if group.method == method and group.dataset not in excepted):
                rivals = _rivals(chosen, group, spare=(*ours, *_SPARE))
                for rival in rivals:
                    margin = _margin(group, rival, 0.0 if ahead else LEVEL)
                    against.setdefault((rival.name, group.epsilon if throughout else None), []).append(margin)
                if rivals:
                    best = max(rivals, key=_accuracy)
                    difference = _margin(group, best)
                    leads, cells = leads + (difference.mean > 0), cells + 1
                    if difference.mean < -LEVEL:
                        where = "" if epsilon is not None else f" at {group.epsilon:g}"
                        behind.append(f"{_place(group)}{where} (by {difference}, {best.name})")
            if against:
                margins = {key: pooled(found) for key, found in against.items()}
                (name, at), least = min(margins.items(), key=lambda pair: pair[1].mean)
                where = "" if at is None else f" at epsilon {at:g}"
                losses = f"; behind on {_listed(behind[:_MANY])}" if behind else ""
                losses += f" and in {len(behind) - _MANY} more" if len(behind) > _MANY else ""
                text = (
                    f"{look_of(method).name} minus {name}, the strongest rival on average{where}, is {least}; it has "
                    f"a higher mean than every private rival in {leads} of {cells} comparisons{losses}"
                )
                parts.append(Part(method, every(list(margins.values())), text))
        return told_by_mode(parts)

    return check


def leads_above(method: str, epsilon: float) -> Check:
    """Judge whether ``method`` is on average the best private one at the budgets above a limit."""

    def check(groups: Sequence[Group]) -> str:
        against: dict[str, list[Margin]] = {}
        for group in groups:
            if group.method == method and group.epsilon > epsilon:
                for rival in _rivals(groups, group):
                    against.setdefault(rival.name, []).append(_margin(group, rival))
        if not against:
            return f"Not measured: {look_of(method).name} was not run above epsilon {epsilon:g}."
        margins = {name: pooled(found) for name, found in against.items()}
        closest = sorted(margins.items(), key=lambda pair: pair[1].mean)[:3]
        shown = _listed([f"{margin} against {name}" for name, margin in closest])
        return told(every(list(margins.values())), f"{look_of(method).name} {shown}, means over data sets")

    return check


def gap_to_nonprivate() -> Check:
    """Judge whether the objective on average comes close to the one without privacy.

    To be close is to go nine tenths of the way there from the objective at zero weights.
    """

    def check(groups: Sequence[Group]) -> str:
        floors = {(g.dataset, g.loss): g.sample("objective") for g in groups if g.method == "nonprivate"}
        parts = []
        for method in _OURS:
            cells: list[Margin] = []
            gaps: dict[str, list[tuple[float, float]]] = {}
            for group in groups:
                own, floor = group.sample("objective"), floors.get((group.dataset, group.loss), Sample.of({}))
                if group.method == method and own.count and floor.count:
                    gap = Margin.between(floor, own)
                    cells.append(Margin.between(floor, own, (1 - _CLOSE) * (_ZERO_WEIGHTS[group.loss] - floor.mean)))
                    gaps.setdefault(_place(group), []).append((group.epsilon, -gap.mean))
            if gaps:
                shown = [f"{place} {min(points)[1]:.3f} to {max(points)[1]:.3f}" for place, points in gaps.items()]
                ends = next(iter(gaps.values()))
                text = (
                    f"{look_of(method).name} stays above the objective without privacy by, from epsilon "
                    f"{min(ends)[0]:g} to {max(ends)[0]:g}: {_listed(shown)}"
                )
                parts.append(Part(method, pooled(cells), text))
        return told_by_mode(parts)

    return check


def steadiness(dataset: str, low: float, high: float) -> Check:
    """Judge whether accuracy is lower at a high epsilon than at a low one while the objective falls all the way.

    The objective falls if it does on average from each epsilon to the next, and surely rises at none.
    """

    def check(groups: Sequence[Group]) -> str:
        parts = []
        for method in _OURS:
            line = sorted((g for g in groups if (g.method, g.dataset) == (method, dataset)), key=lambda g: g.epsilon)
            at = {group.epsilon: group for group in line if group.sample().count}
            if low in at and high in at:
                fall = _margin(at[low], at[high])
                steps = list(at.values())
                falls = _margin(steps[0], steps[-1], field="objective")
                text = (
                    f"{look_of(method).name} on {dataset}: accuracy at {low:g} minus that at {high:g} is {fall}; the "
                    f"objective falls by {falls} from epsilon {steps[0].epsilon:g} to {steps[-1].epsilon:g}"
                )
                parts.append(Part(method, every([fall, falls]), text))
        return told_by_mode(parts)

    return check


def _margins(groups: Sequence[Group], first: str, second: str) -> dict[str, list[Margin]]:
    """Return by how much one method is better than another wherever both were run, by data sets."""
    found: dict[str, list[Margin]] = {}
    for group in (each for each in groups if each.method == first):
        for other in (each for each in groups if each.method == second and _same(group, each)):
            if group.sample().count and other.sample().count:
                found.setdefault(group.dataset, []).append(_margin(group, other))
    return found


def duel(
    *pairs: tuple[str, str],
    somewhere: bool = False,
    epsilon: float | None = None,
    excepted: Sequence[str] = (),
    only: str = "",
) -> Check:
    """Judge whether the first of each pair is on average better than the second, on data sets not excepted.

    The average is that over all budgets, or at one, and over all data sets or of ``only`` one; or the first is to be
    better ``somewhere``, on some data set.
    """

    def check(groups: Sequence[Group]) -> str:
        chosen = [group for group in groups if epsilon in (None, group.epsilon) and only in ("", group.dataset)]
        parts = []
        for first, second in pairs:
            gathered = _margins(chosen, first, second)
            margins = {name: pooled(found) for name, found in gathered.items()}
            counted = {name: found for name, found in gathered.items() if name not in excepted}
            if counted:
                shown = [f"{dataset} {margin}" for dataset, margin in margins.items()]
                whole = pooled(list(chain.from_iterable(counted.values())))
                judged = some([margins[name] for name in counted]) if somewhere else whole
                text = f"{look_of(first).name} minus {look_of(second).name}: {whole}, on {_listed(shown)}"
                parts.append(Part(first, judged, text))
        where = "mean over epsilon" if epsilon is None else f"at epsilon {epsilon:g}"
        return told_by_mode(parts, f" (accuracy, {where})")

    return check


def level(parameter: str, low: float = 0.0, high: float = float("inf"), *, above: float = 0.0) -> Check:
    """Judge whether the values of a parameter in [low, high] are level on average over the budgets above a limit."""

    def check(groups: Sequence[Group]) -> str:
        lines = [(epsilon, found) for epsilon, found in _lines(groups, parameter) if epsilon > above]
        pairs: dict[tuple[Any, Any], list[Margin]] = {}
        texts = []
        for epsilon, found in lines:
            inner = {value: sample for value, sample in found.items() if low <= value <= high}
            for k, a in inner.items():
                for j, b in inner.items():
                    if j != k:
                        pairs.setdefault((k, j), []).append(Margin.between(a, b, LEVEL))
            means = [sample.mean for sample in inner.values()]
            texts.append(f"at epsilon {epsilon:g} accuracy varies by {max(means) - min(means):.3f}")
        if not pairs:
            return NOT_MEASURED
        return told(every([pooled(found) for found in pairs.values()]), "; ".join(texts))

    return check


def worse(parameter: str, most: float) -> Check:
    """Judge whether the values of a parameter up to a limit are on average below those above it."""

    def check(groups: Sequence[Group]) -> str:
        margins, texts = [], []
        for epsilon, found in _lines(groups, parameter):
            low, high = ([found[k] for k in found if (k <= most) is side] for side in (True, False))
            if low and high:
                margins.append(pooled([Margin.between(b, a) for a in low for b in high]))
                texts.append(f"{margins[-1]} at epsilon {epsilon:g}")
        if not margins:
            return NOT_MEASURED
        return told(pooled(margins), f"accuracy above {most:g} minus that up to it: {_listed(texts)}")

    return check


def least_epsilon(delta: float, printed: float) -> Check:
    """Judge whether one step of DP-SGD costs what is printed, by the moments accountant; it needs no run."""

    def check(groups: Sequence[Group]) -> str:  # noqa: ARG001
        least = -math.log(delta) / MOST_MOMENTS
        steps = moments_steps(_SOME_RATE, _SOME_NOISE, least * (1 + 1e-2), delta)
        text = f"log(1/delta)/{MOST_MOMENTS} = {least:.4f}; one hundredth more pays for {steps} steps"
        return told(Checked(abs(least - printed) < 5e-5 and steps >= 1), text)

    return check


def ends_cost(parameter: str, *, at: float | None = None) -> Check:
    """Judge whether the least and the largest value of a parameter cost accuracy, at one epsilon or on average."""

    def check(groups: Sequence[Group]) -> str:
        lines = [(e, found) for e, found in _lines(groups, parameter) if at in (None, e) and len(found) > 2]
        if not lines:
            return NOT_MEASURED
        ends, texts = [], []
        values = sorted(set.intersection(*(set(found) for _, found in lines)))
        for end in (values[0], values[-1]):
            gains = {
                k: pooled([Margin.between(found[k], found[end]) for _, found in lines]) for k in values if k != end
            }
            best = max(gains, key=lambda k: gains[k].mean)
            ends.append(some(list(gains.values())))
            texts.append(f"{_text(best)} minus {_text(end)} is {gains[best]}")
        where = f"at epsilon {at:g}" if at is not None else "mean over epsilon"
        return told(every(ends), f"{'; '.join(texts)} (accuracy, {where})")

    return check


def preferred(parameter: str, value: float | str, *, ahead: bool = False) -> Check:
    """Judge whether a value of a parameter is on average level with every other, or ``ahead`` of every one."""

    def check(groups: Sequence[Group]) -> str:
        parts: dict[Any, list[Margin]] = {}
        texts = []
        for epsilon, found in _lines(groups, parameter):
            others = [other for other in found if other != value]
            if value in found and others:
                for other in others:
                    margin = Margin.between(found[value], found[other], 0.0 if ahead else LEVEL)
                    parts.setdefault(other, []).append(margin)
                best = max(others, key=lambda other: found[other].mean)
                margin = Margin.between(found[value], found[best])
                texts.append(
                    f"at epsilon {epsilon:g}, {_text(value)} minus {_text(best)}, the best other, is {margin}"
                )
        if not parts:
            return NOT_MEASURED
        return told(every([pooled(found) for found in parts.values()]), "; ".join(texts))

    return check


def small_hurts(parameter: str) -> Check:
    """Judge whether the smallest value of a parameter costs accuracy at the smallest epsilon, and not at the largest.

    At the smallest it is below the average of the others; at the largest they are above it by at most `LEVEL`.
    """

    def check(groups: Sequence[Group]) -> str:
        lines = _lines(groups, parameter)
        if len(lines) < 2:
            return NOT_MEASURED
        texts, gains = [], []
        for epsilon, found in (lines[0], lines[-1]):
            least = min(found)
            gain = pooled([Margin.between(found[other], found[least]) for other in found if other != least])
            texts.append(f"at epsilon {epsilon:g}, the mean of the others minus {_text(least)} is {gain}")
            gains.append((found, least))
        (found, least), (last, end) = gains
        hurts = pooled([Margin.between(found[other], found[least]) for other in found if other != least])
        spared = pooled([Margin.between(last[end], last[other], LEVEL) for other in last if other != end])
        return told(every([hurts, spared]), "; ".join(texts))

    return check


def helps(parameter: str, off: float, *, below: float) -> Check:
    """Judge whether some value of a parameter beats ``off`` below an epsilon, and on average none does above it."""

    def check(groups: Sequence[Group]) -> str:
        parts: list[Statement] = []
        texts = []
        for epsilon, found in _lines(groups, parameter):
            others = {value: sample for value, sample in found.items() if value != off}
            if off in found and others:
                best = max(others, key=lambda other: others[other].mean)
                parts.append(
                    some([Margin.between(sample, found[off]) for sample in others.values()])
                    if epsilon < below
                    else pooled([Margin.between(found[off], sample, LEVEL) for sample in others.values()])
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
                    parts.append(Margin.between(all_rows.times(0.5), own))
                    texts.append(
                        f"{measure.name}: {own.mean:,.1f} at {value:g} and {all_rows.mean:,.1f} at {whole:g} "
                        f"(epsilon {epsilon:g}), a ratio of {own.mean / all_rows.mean:.2f}"
                    )
        return told(every(parts), "; ".join(texts)) if parts else NOT_MEASURED

    return check


def _same(first: Group, second: Group) -> bool:
    """Return whether two groups are of the same task and epsilon."""
    return (first.dataset, first.loss, first.epsilon) == (second.dataset, second.loss, second.epsilon)


def _rivals(groups: Sequence[Group], group: Group, spare: Sequence[str] = ()) -> list[Group]:
    """Return the other private methods of the same task and epsilon that share repetitions, some left out.

    A paper mode is compared with paper modes, and with the majority class, where there are any.
    """
    rivals = [
        other
        for other in groups
        if _same(other, group)
        and other.method != group.method
        and other.method not in spare
        and other.private
        and group.sample().count
        and other.sample().count
    ]
    printed = [other for other in rivals if other.method.endswith("-paper") or other.method == "majority"]
    return printed if group.method.endswith("-paper") and printed else rivals


def _margin(first: Group, second: Group, allowed: float = 0.0, field: str = "accuracy") -> Margin:
    return Margin.between(first.sample(field), second.sample(field), allowed)


def _accuracy(group: Group) -> float:
    return group.sample().mean


def _place(group: Group) -> str:
    return group.dataset if group.loss == "logistic" else f"{group.dataset} (SVM)"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]


def _lines(groups: Sequence[Group], parameter: str, field: str = "accuracy") -> list[tuple[float, dict[Any, Sample]]]:
    """Return, from the smallest epsilon to the largest, what the repetitions gave at each value of a parameter."""
    lines: dict[float, dict[Any, Sample]] = {}
    for group in groups:
        if group.parameter == parameter and group.value is not None and (sample := group.sample(field)).count:
            lines.setdefault(group.epsilon, {})[group.value] = sample
    return sorted(lines.items())


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"
