"""Claims of the papers in our words, each with a check that says, from the rows, what was found here.

A claim is judged on paper modes, with the standard errors of `evidence`; our own versions are told beside them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np

from .method_looks import look_of
from .row_groups import Group
from .verdicts import AtLeast, Margin, Statement, every, most, some, told

__all__ = [
    "LEVEL",
    "NOT_MEASURED",
    "Check",
    "Claim",
    "duel",
    "gap_to_nonprivate",
    "leads_above",
    "standing",
    "steadiness",
]

Check = Callable[[Sequence[Group]], str]
Share = Literal["every", "most", "some"]

#: Differences of accuracy up to this count as level.
LEVEL = 0.005
#: A private objective is close to the one without privacy if it goes this share of the way there from zero weights.
_CLOSE = 0.9
_ZERO_WEIGHTS = {"logistic": float(np.log(2)), "svm": 1.0}
_MANY = 6  # places that are named one by one
_OURS = ("agd-paper", "agd")
_SHARES: dict[Share, Callable[[Sequence[Statement]], AtLeast]] = {"every": every, "most": most, "some": some}
NOT_MEASURED = "Not measured."


@dataclass(frozen=True)
class Claim:
    """What a paper says about a figure, and how to hold the rows against it."""

    text: str
    check: Check


@dataclass(frozen=True)
class _Part:
    """What a claim says of one method, and what was found of it."""

    method: str
    statement: Statement
    text: str


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
                parts.append(_Part(method, _SHARES[share](cells), f"{text}comparisons{losses}"))
        return _judged(parts)

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
                parts.append(_Part(method, most(cells), text))
        return _judged(parts)

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
                parts.append(_Part(method, every([fall, *falls]), text))
        return _judged(parts)

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
                parts.append(_Part(first, _SHARES[share](counted), text))
        where = "mean over epsilon" if epsilon is None else f"at epsilon {epsilon:g}"
        return _judged(parts, f" (accuracy, {where})")

    return check


def _judged(parts: Sequence[_Part], unit: str = "") -> str:
    """Return the verdict on the paper modes, which all must be as claimed, and that on our own versions beside it."""
    printed = [part for part in parts if part.method.endswith("-paper")]
    own = [part for part in parts if part not in printed]
    found = [
        told(every([part.statement for part in chosen]), "; ".join(part.text for part in chosen) + unit)
        for chosen in (printed, own)
        if chosen
    ]
    if not printed:
        return f"Not measured in paper modes. Our versions: {found[0]}" if own else NOT_MEASURED
    return found[0] if not own else f"{found[0]} Beside them, our versions: {found[1]}"


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
    return float(np.mean(list(group.series().values())))


def _place(group: Group) -> str:
    return group.dataset if group.loss == "logistic" else f"{group.dataset} (SVM)"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]
