"""What a fit releases, recorded, and given again to a fit of a neighbouring table.

The second fit must ask for the same releases, in the same order and at the same prices. What goes into a mechanism
may differ by no more than the sensitivity that both declare, which is checked in whole numbers.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from fractions import Fraction
from typing import Any

import numpy as np

from ..accounting import Cost, ObjectivePerturbation, PureObjectivePerturbation
from ..curator.release import Release
from ..exact import LatticeSum
from ..relations import Norm, Relation
from .leaks import Leak

__all__ = ["Comparisons", "Diverged", "Recorder", "Replayer", "share_of_sensitivity"]

_IN_THE_OBJECTIVE: tuple[type[Cost], ...] = (ObjectivePerturbation, PureObjectivePerturbation)


class Diverged(BaseException):
    """Ends a fit that asks other questions than the recorded one; no handler of errors should stop it."""


def share_of_sensitivity(first: LatticeSum, second: LatticeSum, relation: Relation) -> Fraction:
    """Return how far apart two sums are, as a share of the sensitivity that both declare, by exact arithmetic.

    In the L2 norm it is the square of that. Of a symmetric matrix both triangles count, as in the Frobenius norm.
    """
    pairs = zip(first.values.ravel().tolist(), second.values.ravel().tolist(), strict=True)
    moved = [one - other for one, other in pairs] or [0]
    bound = Fraction(first.sensitivity.under(relation)) / Fraction(first.unit)
    if first.sensitivity.norm is Norm.L2:
        return Fraction(sum(each * each for each in moved)) / bound**2
    distance = {
        Norm.L1: sum(map(abs, moved)),
        Norm.MAX: max(map(abs, moved)),
        Norm.RANGE: max(moved) - min(moved),
    }[first.sensitivity.norm]
    return distance / bound


@dataclass
class Comparisons:
    """How far sums were moved at most, by the labels of charges, and what could not be compared."""

    shares: dict[str, float] = field(default_factory=dict)
    unchecked: set[str] = field(default_factory=set)


class Recorder:
    """Keeps what goes into each mechanism and what comes out."""

    def __init__(self) -> None:
        self.releases: list[tuple[Release, Any]] = []

    def __call__(self, release: Release, draw: Callable[[], Any]) -> Any:
        """Draw the answer and keep it."""
        answer, total = draw(), release.total
        if total is not None:
            release = replace(release, total=LatticeSum(total.values.copy(), total.unit, total.sensitivity))
        self.releases.append((release, _copied(answer)))
        return answer


class Replayer:
    """Gives the answers of a recorded fit, and compares what is asked and what goes into the mechanisms."""

    def __init__(self, recorded: Recorder, seen: Comparisons) -> None:
        self._releases, self.position = recorded.releases, 0
        self.leaks: list[Leak] = []
        self.seen = seen

    def __call__(self, release: Release, draw: Callable[[], Any]) -> Any:
        """Return the recorded answer, having compared what goes into the mechanism."""
        where = f"release {self.position + 1} ({release.label}, {release.mechanism.kind})"
        if self.position == len(self._releases):
            raise self._diverged(where, "nothing more", "another release")
        recorded, answer = self._releases[self.position]
        facts = [_facts(each) for each in (recorded, release)]
        for name in facts[0]:
            if facts[0][name] != facts[1][name]:
                raise self._diverged(where, *(f"{name} {each[name]}" for each in facts))
        self.position += 1
        self._compare(recorded, release, where)
        return _copied(answer)

    @property
    def finished(self) -> bool:
        """Whether everything was asked that the recorded fit has asked."""
        return self.position == len(self._releases)

    def _compare(self, first: Release, second: Release, where: str) -> None:
        label, relation = first.label, first.relation
        if first.total is None or second.total is None:
            self.seen.unchecked.add(f"the law of {label!r}: the scores of all points are not known")
        elif isinstance(first.charged, _IN_THE_OBJECTIVE) and first.total.values.any():
            self.seen.unchecked.add(f"how far {label!r} is moved: its noise is in the objective, too")
        else:
            share = share_of_sensitivity(first.total, second.total, relation)
            size = math.sqrt(share) if first.total.sensitivity.norm is Norm.L2 else float(share)
            self.seen.shares[label] = max(self.seen.shares.get(label, 0.0), size)
            if share > 1:
                declared = f"a sensitivity of {first.total.sensitivity.under(relation):.6g}"
                self.leaks.append(Leak("sensitivity", where, declared, f"a change of {size:.6g} times that"))

    def _diverged(self, where: str, recorded: str, replayed: str) -> Diverged:
        self.leaks.append(Leak("release", where, recorded, replayed))
        return Diverged(f"{where}: {replayed} instead of {recorded}")


def _facts(release: Release) -> dict[str, Any]:
    """Return what is public about a release."""
    total = release.total
    known = {} if total is None else {"shape": total.values.shape, "unit": total.unit, "with": total.sensitivity}
    named = {"label": release.label, "charge": release.charged, "mechanism": release.mechanism}
    return named | known | {"divisor": release.divisor, "symmetric": release.symmetric}


def _copied(answer: Any) -> Any:
    return answer.copy() if isinstance(answer, np.ndarray) else answer
