"""Claims of the papers in our words, each with a check that says, from the rows, what was found here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from .methods import look_of
from .tables import PASSES, Group

__all__ = [
    "Check",
    "Claim",
    "duel",
    "fewer_passes",
    "gap_to_nonprivate",
    "helps",
    "leads_above",
    "preferred",
    "small_hurts",
    "spread",
    "standing",
    "steadiness",
]

Check = Callable[[Sequence[Group]], str]

#: Differences of accuracy up to this count as level.
LEVEL = 0.005
_MANY = 6  # places that are named one by one
_OURS = ("agd", "agd-paper")


@dataclass(frozen=True)
class Claim:
    """What a paper says about a figure, and how to hold the rows against it."""

    text: str
    check: Check


def standing(*, epsilon: float | None = None, ours: Sequence[str] = _OURS, judged: bool = False) -> Check:
    """Compare the methods of a paper with the best private rival on every data set at every epsilon (or at one).

    If it is ``judged``, being ahead in more than half of the comparisons is to agree.
    """

    def check(groups: Sequence[Group]) -> str:
        chosen = [group for group in groups if epsilon is None or group.epsilon == epsilon]
        texts, lead = [], 0
        for method in ours:
            ahead, level, cells, behind = 0, 0, 0, []
            for group in (group for group in chosen if group.method == method):
                own, rival = group.estimate("accuracy"), _best_rival(chosen, group, spare=(*ours, "auto"))
                if own is None or rival is None:
                    continue
                cells += 1
                difference = own.mean - rival[0]
                ahead += difference > LEVEL
                level += abs(difference) <= LEVEL
                if difference < -LEVEL:
                    behind.append(
                        f"{_place(group)} (by {-difference:.3f}, {rival[1].name})"
                        if epsilon is not None
                        else f"{_place(group)} at {group.epsilon:g} (by {-difference:.3f}, {rival[1].name})"
                    )
            lead += 2 * ahead - cells
            if cells:
                losses = f"; behind on {_listed(behind[:_MANY])}" if behind else ""
                losses += f" and in {len(behind) - _MANY} more" if len(behind) > _MANY else ""
                texts.append(
                    f"{look_of(method).name}: ahead of every private rival in {ahead} of {cells} comparisons, within "
                    f"{LEVEL:g} of the best in {level}{losses}."
                )
        verdict = ("Agrees. " if lead > 0 else "Differs. ") if judged and texts else ""
        return verdict + " ".join(texts) or "Not measured: no rival was run."

    return check


def leads_above(method: str, epsilon: float) -> Check:
    """Say how often ``method`` is the best private one above ``epsilon``."""

    def check(groups: Sequence[Group]) -> str:
        won, cells, margins = 0, 0, []
        for group in groups:
            own, rival = group.estimate("accuracy"), _best_rival(groups, group, spare=())
            if group.method != method or group.epsilon <= epsilon or own is None or rival is None:
                continue
            cells += 1
            won += own.mean > rival[0]
            margins.append(f"{own.mean - rival[0]:+.3f} against {rival[1].name} on {_place(group)}")
        if not cells:
            return f"Not measured: {look_of(method).name} was not run above epsilon {epsilon:g}."
        return f"{look_of(method).name} has the highest accuracy in {won} of {cells} comparisons: {_listed(margins)}."

    return check


def gap_to_nonprivate() -> Check:
    """Say how far the objective stays above the one without privacy, at the smallest and the largest epsilon."""

    def check(groups: Sequence[Group]) -> str:
        texts = []
        floors = {
            (group.dataset, group.loss): estimate.mean
            for group in groups
            if group.method == "nonprivate" and (estimate := group.estimate("objective")) is not None
        }
        for method in _OURS:
            gaps: dict[str, list[tuple[float, float]]] = {}
            for group in groups:
                own = group.estimate("objective")
                if group.method == method and own is not None and (group.dataset, group.loss) in floors:
                    floor = floors[group.dataset, group.loss]
                    gaps.setdefault(_place(group), []).append((group.epsilon, own.mean - floor))
            if gaps:
                shown = [f"{place} {min(points)[1]:.3f} to {max(points)[1]:.3f}" for place, points in gaps.items()]
                ends = next(iter(gaps.values()))
                texts.append(
                    f"{look_of(method).name} stays above the objective without privacy by, from epsilon "
                    f"{min(ends)[0]:g} to {max(ends)[0]:g}: {_listed(shown)}."
                )
        return " ".join(texts) or "Not measured: the method without privacy was not run."

    return check


def steadiness(dataset: str) -> Check:
    """Say whether accuracy rises and the objective falls from each epsilon to the next on one data set."""

    def check(groups: Sequence[Group]) -> str:
        texts = []
        for method in _OURS:
            line = sorted((g for g in groups if (g.method, g.dataset) == (method, dataset)), key=lambda g: g.epsilon)
            accuracy = [e.mean for g in line if (e := g.estimate("accuracy")) is not None]
            objective = [e.mean for g in line if (e := g.estimate("objective")) is not None]
            if len(accuracy) > 1:
                drops = sum(b < a - 0.001 for a, b in pairwise(accuracy))
                rises = sum(b > a + 0.001 for a, b in pairwise(objective))
                values = ", ".join(f"{value:.3f}" for value in accuracy)
                texts.append(
                    f"{look_of(method).name} on {dataset}: accuracy {values} "
                    f"(falls by more than 0.001: {drops}); rises of the objective: {rises}."
                )
        return " ".join(texts) or f"Not measured on {dataset}."

    return check


def spread(parameter: str, low: float = 0.0, high: float = float("inf")) -> Check:
    """Say how much accuracy varies with a parameter, over all values and over those in [low, high]."""

    def check(groups: Sequence[Group]) -> str:
        texts = []
        for epsilon, found in _lines(groups, parameter):
            inner = [mean for value, mean in found.items() if low <= value <= high]
            best = max(found, key=lambda value: found[value])
            part = f"from {low:g} to {high:g}" if high < float("inf") else f"from {low:g} up"
            within = f", {max(inner) - min(inner):.3f} {part}" if inner and len(inner) < len(found) else ""
            texts.append(
                f"epsilon {epsilon:g}: accuracy varies by {max(found.values()) - min(found.values()):.3f} over all "
                f"values{within}, best at {_text(best)}"
            )
        return f"{'; '.join(texts)}." if texts else "Not measured."

    return check


def preferred(parameter: str, value: float | str) -> Check:
    """Say whether a value is the best of a parameter, or level with it, at every epsilon."""

    def check(groups: Sequence[Group]) -> str:
        texts, agrees = [], True
        for epsilon, found in _lines(groups, parameter):
            if value in found:
                best = max(found, key=lambda other: found[other])
                agrees &= found[best] - found[value] <= LEVEL
                there = "" if best == value else f", against {found[value]:.3f} at {_text(value)}"
                texts.append(f"at epsilon {epsilon:g} the best is {_text(best)} with {found[best]:.3f}{there}")
        return _judged(agrees, texts)

    return check


def small_hurts(parameter: str) -> Check:
    """Say whether the smallest value of a parameter costs accuracy at the smallest epsilon and not at the largest."""

    def check(groups: Sequence[Group]) -> str:
        texts, losses = [], []
        for epsilon, found in _lines(groups, parameter):
            least, best = min(found), max(found, key=lambda other: found[other])
            losses.append(found[best] - found[least])
            texts.append(f"at epsilon {epsilon:g}, {_text(least)} is {losses[-1]:.3f} behind {_text(best)}, the best")
        return _judged(bool(losses) and losses[0] > LEVEL >= losses[-1], texts)

    return check


def helps(parameter: str, off: float, *, below: float) -> Check:
    """Say whether some value of a parameter beats ``off`` at epsilons below a limit, and none does above it."""

    def check(groups: Sequence[Group]) -> str:
        texts, agrees = [], True
        for epsilon, found in _lines(groups, parameter):
            others = {value: mean for value, mean in found.items() if value != off}
            if off in found and others:
                best = max(others, key=lambda other: others[other])
                gain = others[best] - found[off]
                agrees &= (gain > 0) == (epsilon < below)
                texts.append(f"at epsilon {epsilon:g}, {_text(best)} gains {gain:+.3f} over {_text(off)}")
        return _judged(agrees, texts)

    return check


def fewer_passes(parameter: str, value: float, whole: float = 1.0) -> Check:
    """Say how much is evaluated at one value of a parameter, as a share of what is at another; half is few."""

    def check(groups: Sequence[Group]) -> str:
        texts, agrees = [], True
        for measure in PASSES:
            for epsilon, found in _lines(groups, parameter, measure.field):
                if value in found and found.get(whole):
                    agrees &= found[value] <= found[whole] / 2
                    texts.append(
                        f"{measure.name}: {found[value]:,.0f} at {value:g} and {found[whole]:,.0f} at {whole:g} "
                        f"(epsilon {epsilon:g}), a ratio of {found[value] / found[whole]:.2f}"
                    )
        return _judged(agrees, texts)

    return check


def duel(*pairs: tuple[str, str], epsilon: float | None = None, excepted: Sequence[str] = ()) -> Check:
    """Compare methods two by two; to agree, the first must be better on most data sets that are not excepted."""

    def check(groups: Sequence[Group]) -> str:
        accuracy = {
            (group.dataset, group.loss, group.epsilon, group.method): estimate.mean
            for group in groups
            if (epsilon is None or group.epsilon == epsilon) and (estimate := group.estimate("accuracy")) is not None
        }
        texts, better, places_seen = [], 0, 0
        for first, second in pairs:
            margins: dict[str, list[float]] = {}
            for (dataset, loss, level, method), own in accuracy.items():
                other = accuracy.get((dataset, loss, level, second))
                if method == first and other is not None:
                    margins.setdefault(dataset, []).append(own - other)
            means = {dataset: sum(found) / len(found) for dataset, found in margins.items()}
            counted = [mean for dataset, mean in means.items() if dataset not in excepted]
            better, places_seen = better + sum(mean > 0 for mean in counted), places_seen + len(counted)
            if means:
                shown = [f"{dataset} {mean:+.3f}" for dataset, mean in means.items()]
                texts.append(f"{look_of(first).name} minus {look_of(second).name}: {_listed(shown)}")
        found = _judged(2 * better > places_seen, texts)
        where = "mean over epsilon" if epsilon is None else f"at epsilon {epsilon:g}"
        return f"{found[:-1]} (accuracy, {where})." if texts else found

    return check


def _judged(agrees: bool, texts: Sequence[str]) -> str:
    return f"{'Agrees' if agrees else 'Differs'}: {'; '.join(texts)}." if texts else "Not measured."


def _lines(groups: Sequence[Group], parameter: str, field: str = "accuracy") -> list[tuple[float, dict[Any, float]]]:
    """Return, from the smallest epsilon to the largest, the mean of a measure at each value of a parameter."""
    epsilons = sorted({group.epsilon for group in groups if group.parameter == parameter})
    return [(epsilon, line) for epsilon in epsilons if (line := _line(groups, parameter, epsilon, field))]


def _line(groups: Sequence[Group], parameter: str, epsilon: float, field: str = "accuracy") -> dict[Any, float]:
    return {
        group.value: estimate.mean
        for group in groups
        if (group.parameter, group.epsilon) == (parameter, epsilon)
        and group.value is not None
        and (estimate := group.estimate(field)) is not None
    }


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:g}"


def _best_rival(
    groups: Sequence[Group], group: Group, spare: Sequence[str] = (*_OURS, "auto")
) -> tuple[float, Group] | None:
    """Return the accuracy of the best private method at the same task and epsilon, methods of our own left out.

    A paper mode is compared with paper modes, and with the majority class, where there are any.
    """
    rivals = [
        (estimate.mean, other)
        for other in groups
        if (other.dataset, other.loss, other.epsilon) == (group.dataset, group.loss, group.epsilon)
        and other.method != group.method
        and other.method not in spare
        and other.private
        and (estimate := other.estimate("accuracy")) is not None
    ]
    printed = [pair for pair in rivals if pair[1].method.endswith("-paper") or pair[1].method == "majority"]
    if group.method.endswith("-paper") and printed:
        rivals = printed
    return max(rivals, key=lambda pair: pair[0], default=None)


def _place(group: Group) -> str:
    return group.dataset if group.loss == "logistic" else f"{group.dataset} (SVM)"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else ", ".join(texts[:-1]) + " and " + texts[-1]
