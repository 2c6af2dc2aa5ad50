r"""Verdicts that respect noise: a claim about means is judged with the standard errors of what was measured.

The smallest part of a claim is that a mean over repetitions is above zero, such as that of the difference of two
accuracies on the same fold. With mean m and standard deviation s over k repetitions it is said to hold, or not to
hold, where

.. math:: m > t\, s/\sqrt{k}, \qquad m < -t\, s/\sqrt{k},

with t the upper quantile of Student's law with k - 1 degrees of freedom, and nothing is said in between. A claim of
several parts asks that enough of them hold. Its parts share `WRONG` evenly, so that a verdict is wrong with at most
that probability if the repetitions are independent and about normal. Folds share training rows, so that standard
errors over folds are a little too small.

A claim of a paper is judged on paper modes; our own versions are told beside them.

Means and standard errors over folds and seeds, the tables that show them, and the same as plain data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, Literal, Protocol

import numpy as np
from rich.table import Table
from rich.text import Text
from scipy.stats import t as student

from .fold_fits import Row
from .method_looks import look_of

_DIGITS = 6  # of a number of `cells_of`


@dataclass(frozen=True)
class Measure:
    """A column that is summarised: its field in `Row`, its name, and whether more of it is better."""

    field: str
    name: str
    rising: bool


MEASURES = (
    Measure("accuracy", "test accuracy", True),
    Measure("auc", "test AUC", True),
    Measure("objective", "objective on the training part", False),
)

#: How much a line search evaluates.
PASSES = (
    Measure("gradient_passes", "gradients evaluated, per row", False),
    Measure("loss_passes", "losses evaluated, per row", False),
)


@dataclass(frozen=True)
class Estimate:
    """The mean of a measure over folds and seeds, with its standard error and standard deviation."""

    mean: float
    error: float | None
    deviation: float

    def __str__(self) -> str:
        digits = 4 if self.mean < 100 else 0
        return f"{self.mean:,.{digits}f}" + ("" if self.error is None else f" ± {self.error:,.{digits}f}")


@dataclass(frozen=True)
class Group:
    """The rows that differ in fold and seed only."""

    dataset: str
    loss: str
    method: str
    epsilon: float
    parameter: str
    value: float | str | None
    rows: tuple[Row, ...]

    @property
    def name(self) -> str:
        """What the method is called."""
        return look_of(self.method).name

    @property
    def shown_value(self) -> str:
        """The value of the parameter as text."""
        return self.value if isinstance(self.value, str) else f"{self.value:g}"

    @property
    def private(self) -> bool:
        """Whether the models of the group are private: none without a budget, none chosen on the test data."""
        return all(row.private and not row.oracle for row in self.rows)

    @property
    def errors(self) -> tuple[str, ...]:
        """What the method refused, each refusal once."""
        return tuple(dict.fromkeys(row.error for row in self.rows if row.error))

    def series(self, field: str = "accuracy") -> dict[tuple[int, int], float]:
        """Return what each repetition, a fold and a seed, gave in one field."""
        return {(r.fold, r.seed): float(value) for r in self.rows if (value := getattr(r, field)) is not None}

    def estimate(self, field: str) -> Estimate | None:
        """Return the summary of one field, or None if no row has it."""
        found = [getattr(row, field) for row in self.rows if getattr(row, field) is not None]
        if not found:
            return None
        deviation = float(np.std(found, ddof=1)) if len(found) > 1 else 0.0
        return Estimate(
            float(np.mean(found)), deviation / math.sqrt(len(found)) if len(found) > 1 else None, deviation
        )

    def text(self, field: str) -> str:
        """Return the summary of a field as a cell of a table."""
        estimate = self.estimate(field)
        return str(estimate) if estimate is not None else "refused" if self.errors else "–"


def grouped(rows: Iterable[Row]) -> list[Group]:
    """Return the groups of rows, in the order in which they first appear."""
    groups: dict[tuple[str, str, str, float, str, float | str | None], list[Row]] = {}
    for row in rows:
        key = (row.dataset, row.loss, row.method, row.epsilon, row.parameter, row.value)
        groups.setdefault(key, []).append(row)
    return [Group(*key, tuple(found)) for key, found in groups.items()]


def terminal_tables(groups: Sequence[Group]) -> list[Table]:
    """Return one table per task: at each epsilon every method, the best private one in bold."""
    tables = []
    for dataset, loss in dict.fromkeys((group.dataset, group.loss) for group in groups):
        chosen = [group for group in groups if (group.dataset, group.loss) == (dataset, loss)]
        table = Table(title=f"{dataset}, {loss}", title_justify="left", box=None, header_style="bold", padding=(0, 1))
        table.add_column("epsilon", justify="right", no_wrap=True)
        table.add_column("method")
        for name in ("accuracy", "AUC", "objective", "seconds"):
            table.add_column(name, justify="right", no_wrap=True)
        for epsilon in dict.fromkeys(group.epsilon for group in chosen):
            level = [group for group in chosen if group.epsilon == epsilon]
            best = {measure.field: _best(level, measure) for measure in MEASURES}
            for place, group in enumerate(level):
                texts = [
                    Text(group.text(field).replace(" ± ", "±"), style="bold" if group is first else "")
                    for field, first in best.items()
                ]
                seconds = group.estimate("seconds")
                table.add_row(
                    f"{epsilon:g}" if place == 0 else "",
                    group.name,
                    *texts,
                    f"{seconds.mean:.1f}" if seconds else "–",
                    end_section=place == len(level) - 1,
                )
        tables.append(table)
    return tables


def _best(groups: Sequence[Group], measure: Measure) -> Group | None:
    """Return the private, honest method that is best in a measure."""
    ranked = [
        (estimate.mean, group)
        for group in groups
        if group.private and (estimate := group.estimate(measure.field)) is not None
    ]
    if not ranked:
        return None
    return (max if measure.rising else min)(ranked, key=lambda pair: pair[0])[1]


def cells_of(
    rows: Iterable[Mapping[str, Any]], keys: Sequence[str], measures: Sequence[str]
) -> tuple[dict[str, Any], ...]:
    """Return the cells of rows: those that agree in ``keys`` are repetitions of each other.

    A cell has its keys, those that are empty left out, and for each measure that some repetition has the list of its
    mean, its standard error (None after one repetition) and the number of repetitions.
    """
    groups: dict[tuple[Any, ...], list[Mapping[str, Any]]] = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    cells = []
    for place, group in groups.items():
        cell: dict[str, Any] = {key: value for key, value in zip(keys, place, strict=True) if value not in (None, "")}
        for measure in measures:
            found = [float(row[measure]) for row in group if row[measure] is not None]
            if found:
                error = float(np.std(found, ddof=1)) / math.sqrt(len(found)) if len(found) > 1 else None
                cell[measure] = [
                    _rounded(float(np.mean(found))),
                    None if error is None else _rounded(error),
                    len(found),
                ]
        cells.append(cell)
    return tuple(cells)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


#: What says, from the rows, what was found of a claim.
Check = Callable[[Sequence[Group]], str]
Share = Literal["every", "most", "some"]

#: The largest probability with which the verdict on a claim is wrong.
WRONG = 0.05
#: How a page explains its verdicts.
EXPLANATION = (
    "A claim is judged with the standard errors of what was measured: a verdict is wrong with a probability of at "
    f"most {WRONG:g}, and where the rows cannot tell, the page says how many repetitions would. Claims of a paper "
    "are judged on paper modes."
)
NOT_MEASURED = "Not measured."
_MOST_REPETITIONS = 1_000_000


class Verdict(Enum):
    """What the rows say of a claim."""

    AGREES = "Agrees"
    DIFFERS = "Differs"
    CANNOT_TELL = "Cannot tell"


class Statement(Protocol):
    """A part of a claim, or all of it."""

    @property
    def margins(self) -> tuple[Margin, ...]:
        """The means that it is about."""
        ...

    def verdict(self, chance: float, count: int | None = None) -> Verdict:
        """Return the verdict if each margin may be wrong with a chance, after as many repetitions as there were.

        With a ``count`` it is the verdict that so many repetitions of the same mean and deviation would give.
        """
        ...


@dataclass(frozen=True)
class Margin:
    """By how much something is as claimed, if it is positive: mean and standard deviation over repetitions."""

    mean: float
    deviation: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Margin:
        """Return the margin of what the repetitions gave."""
        if not values:
            return cls(0.0, math.inf, 0)
        deviation = float(np.std(values, ddof=1)) if len(values) > 1 else math.inf
        return cls(float(np.mean(values)), deviation, len(values))

    @classmethod
    def between(
        cls, first: Mapping[tuple[int, int], float], second: Mapping[tuple[int, int], float], allowed: float = 0.0
    ) -> Margin:
        """Return by how much the first is above the second on the same folds and seeds, plus a difference allowed."""
        return cls.of([first[key] - second[key] + allowed for key in sorted(first.keys() & second.keys())])

    @property
    def margins(self) -> tuple[Margin, ...]:
        """The margin itself."""
        return (self,)

    def verdict(self, chance: float, count: int | None = None) -> Verdict:
        """Return on which side of zero the mean is, if the standard error allows to tell."""
        count = self.count if count is None else count
        if count < 2 or not math.isfinite(self.deviation):
            return Verdict.CANNOT_TELL
        reach = _quantile(chance, count - 1) * self.deviation / math.sqrt(count)
        if abs(self.mean) <= reach:
            return Verdict.CANNOT_TELL
        return Verdict.AGREES if self.mean > 0 else Verdict.DIFFERS

    def __str__(self) -> str:
        error = f" ± {self.deviation / math.sqrt(self.count):.3f}" if math.isfinite(self.deviation) else ""
        return f"{self.mean:+.3f}{error}"


@dataclass(frozen=True)
class AtLeast:
    """That at least ``needed`` of the parts hold."""

    needed: int
    parts: tuple[Statement, ...]

    @property
    def margins(self) -> tuple[Margin, ...]:
        """Those of all parts."""
        return tuple(margin for part in self.parts for margin in part.margins)

    def verdict(self, chance: float, count: int | None = None) -> Verdict:
        """Return whether enough parts surely hold, or too many surely do not."""
        found = [part.verdict(chance, count) for part in self.parts]
        if found.count(Verdict.AGREES) >= self.needed:
            return Verdict.AGREES
        if found.count(Verdict.DIFFERS) > len(found) - self.needed:
            return Verdict.DIFFERS
        return Verdict.CANNOT_TELL


@cache
def _quantile(chance: float, degrees: int) -> float:
    return float(student.isf(chance, degrees))


def every(parts: Sequence[Statement]) -> AtLeast:
    """Return the statement that all parts hold."""
    return AtLeast(len(parts), tuple(parts))


def some(parts: Sequence[Statement]) -> AtLeast:
    """Return the statement that one part or more holds."""
    return AtLeast(1, tuple(parts))


def most(parts: Sequence[Statement]) -> AtLeast:
    """Return the statement that more than half of the parts hold."""
    return AtLeast(len(parts) // 2 + 1, tuple(parts))


def judge(statement: Statement, count: int | None = None) -> Verdict:
    """Return the verdict on a claim; its margins share `WRONG`, so that all of them are right at once."""
    return statement.verdict(WRONG / len(statement.margins), count)


def repetitions(statement: Statement) -> int | None:
    """Return how many repetitions would tell, if means and deviations stay as they are; None if no number would."""
    low, high = 1, 2
    while judge(statement, high) is Verdict.CANNOT_TELL:
        low, high = high, 2 * high
        if low > _MOST_REPETITIONS:
            return None
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if judge(statement, middle) is Verdict.CANNOT_TELL else (low, middle)
    return high


def told(statement: Statement, text: str) -> str:
    """Return the verdict on a claim, what it rests on, and what would decide it if it is open."""
    verdict = judge(statement)
    found = f"{verdict.value}: {text}."
    if verdict is not Verdict.CANNOT_TELL:
        return found
    if any(not math.isfinite(margin.deviation) for margin in statement.margins):
        return f"{found} One repetition has no standard error; two or more have."
    measured, needed = min(margin.count for margin in statement.margins), repetitions(statement)
    if needed is None:
        return f"{found} The means are so close that no number of repetitions would tell ({measured} were measured)."
    return (
        f"{found} About {needed:,} repetitions would tell if means and deviations stayed ({measured} were measured)."
    )


SHARES: dict[Share, Callable[[Sequence[Statement]], AtLeast]] = {"every": every, "most": most, "some": some}


@dataclass(frozen=True)
class Claim:
    """What a paper says about a figure, and how to hold the rows against it."""

    text: str
    check: Check


@dataclass(frozen=True)
class Part:
    """What a claim says of one method, and what was found of it."""

    method: str
    statement: Statement
    text: str


def told_by_mode(parts: Sequence[Part], unit: str = "") -> str:
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
