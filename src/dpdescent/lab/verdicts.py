r"""Verdicts that respect noise: a claim about means is judged with the standard errors of what was measured.

The smallest part of a claim is that a mean over repetitions is above zero, such as that of the difference of two
accuracies on the same fold. With mean m, standard error e and k degrees of freedom it is said to hold, or not to
hold, where

.. math:: m > t\, e, \qquad m < -t\, e,

with t the upper quantile of Student's law with k degrees of freedom. In between it is within noise, and the page
says which difference it would have shown. A sentence about several data sets and budgets is about their average, so
it has one margin, which is pooled (`pooled`): where there are five repetitions or more, the average is taken in each
of them; with fewer, the variances of the single comparisons are added, and the degrees of freedom are those of
Welch and Satterthwaite. A claim with several margins says that at least some number of its parts hold (`AtLeast`).
It agrees where so many surely hold, and differs where too many surely do not; the chances of the parts are divided
so that either verdict is wrong with a probability of at most `WRONG`, if repetitions are independent and about
normal. Folds share training rows, so that standard errors over folds are a little too small.

What follows from the construction of a method, such as one Hessian for every step of a trust region, is counted in
every run and not tested (`Checked`). A claim of a paper is judged on paper modes; our own versions are told beside
them.

Means and standard errors over folds and seeds, the tables that show them, and the same as plain data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from functools import cache
from typing import Any, Protocol

import numpy as np
from rich.table import Table
from rich.text import Text
from scipy.stats import t as student

from .fold_fits import Row
from .method_looks import look_of, variant

_DIGITS = 6  # of a number of `cells_of`
_KEPT = 10  # repetitions that a cell lists one by one


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


#: A repetition: a fold and a seed, or its place among those that were kept.
Key = tuple[int, int]


@dataclass(frozen=True)
class Sample:
    """What repetitions gave: mean, standard error (infinite after one), count, and single values where known."""

    mean: float
    error: float
    count: int
    values: Mapping[Key, float] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Mapping[Key, float]) -> Sample:
        """Return the sample of these values."""
        if not values:
            return cls(math.nan, math.inf, 0)
        found = np.array(list(values.values()))
        error = float(np.std(found, ddof=1)) / math.sqrt(found.size) if found.size > 1 else math.inf
        return cls(float(found.mean()), error, found.size, values)

    def times(self, factor: float) -> Sample:
        """Return the sample of all values times a positive factor."""
        values = {key: factor * value for key, value in self.values.items()}
        return Sample(factor * self.mean, factor * self.error, self.count, values)

    @classmethod
    def listed(cls, cell: Sequence[Any]) -> Sample:
        """Return the sample of a measure of `cells_of`."""
        mean, error, count, *values = cell
        if values:
            return cls.of({(place, 0): value for place, value in enumerate(values[0])})
        return cls(mean, math.inf if error is None else error, count)


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
    kept: Mapping[str, Sample] = field(default_factory=dict)  # in place of rows, where only these were kept

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
        if self.kept:
            return variant(self.method).private
        return all(row.private and not row.oracle for row in self.rows)

    @property
    def errors(self) -> tuple[str, ...]:
        """What the method refused, each refusal once."""
        return tuple(dict.fromkeys(row.error for row in self.rows if row.error))

    def sample(self, field: str = "accuracy") -> Sample:
        """Return what the repetitions, each a fold and a seed, gave in one field."""
        if self.kept:
            return self.kept.get(field, Sample.of({}))
        return Sample.of(
            {(r.fold, r.seed): float(value) for r in self.rows if (value := getattr(r, field)) is not None}
        )

    def estimate(self, field: str) -> Estimate | None:
        """Return the summary of one field, or None if no row has it."""
        found = self.sample(field)
        if not found.count:
            return None
        if found.count == 1 or not math.isfinite(found.error):
            return Estimate(found.mean, None, 0.0)
        return Estimate(found.mean, found.error, found.error * math.sqrt(found.count))

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
    mean, its standard error (None after one repetition) and the number of repetitions. Up to `_KEPT` repetitions are
    listed behind them, if every one has the measure, so that a later rule can judge them in pairs.
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
                listed = [list(map(_rounded, found))] if len(group) == len(found) <= _KEPT and error else []
                mean = _rounded(float(np.mean(found)))
                cell[measure] = [mean, None if error is None else _rounded(error), len(found), *listed]
        cells.append(cell)
    return tuple(cells)


def _rounded(value: float) -> float:
    return float(f"{value:.{_DIGITS}g}")


#: What says, from the rows, what was found of a claim.
Check = Callable[[Sequence[Group]], str]

#: The largest probability with which the verdict on a claim is wrong.
WRONG = 0.05
#: How a page explains its verdicts.
EXPLANATION = (
    "A claim is judged with the standard errors of what was measured, one test for the average that it speaks of: a "
    f"verdict is wrong with a probability of at most {WRONG:g}. Where a difference is within noise, the page says "
    "below which size it is. Claims of a paper are judged on paper modes."
)
NOT_MEASURED = "Not measured."
_ENOUGH = 5  # repetitions from which on their averages are tested


class Verdict(Enum):
    """What the rows say of a claim."""

    AGREES = "Agrees"
    DIFFERS = "Differs"
    WITHIN_NOISE = "Within noise"
    CANNOT_TELL = "Cannot tell"


class Statement(Protocol):
    """A part of a claim, or all of it."""

    @property
    def margins(self) -> tuple[Margin, ...]:
        """The means that it is about."""
        ...

    def verdict(self, agree: float, differ: float) -> Verdict:
        """Return the verdict if it may agree wrongly with one chance, and differ wrongly with another."""
        ...


@dataclass(frozen=True)
class Margin:
    """By how much something is as claimed, if it is positive: a mean, its standard error and degrees of freedom."""

    mean: float
    error: float  # infinite where there is one repetition only
    degrees: float
    allowed: float = 0.0  # what the mean contains beside the difference that was measured
    #: The same in each repetition, where that is known.
    values: Mapping[Key, float] = field(default_factory=dict)

    @classmethod
    def of(cls, values: Sequence[float] | Mapping[Key, float], allowed: float = 0.0) -> Margin:
        """Return the margin of what the repetitions gave."""
        keyed = values if isinstance(values, Mapping) else {(place, 0): value for place, value in enumerate(values)}
        sample = Sample.of(keyed)
        if sample.count == 0:
            return cls(0.0, math.inf, 0, allowed)
        return cls(sample.mean, sample.error, sample.count - 1, allowed, keyed)

    @classmethod
    def between(cls, first: Sample, second: Sample, allowed: float = 0.0) -> Margin:
        """Return by how much the first is above the second on the same repetitions, plus a difference allowed.

        Where single values were not kept, the two are taken to be independent, which overstates the error of pairs.
        """
        if (first.values and second.values) or not (first.count and second.count):
            both = sorted(first.values.keys() & second.values.keys())
            return cls.of({key: first.values[key] - second.values[key] + allowed for key in both}, allowed)
        apart = [cls(each.mean, each.error, each.count - 1) for each in (first, second)]
        error, degrees = _added(apart)
        return cls(first.mean - second.mean + allowed, error, degrees, allowed)

    @property
    def margins(self) -> tuple[Margin, ...]:
        """The margin itself."""
        return (self,)

    def reach(self, chance: float) -> float:
        """Return how far from zero a mean is with that probability on either side, by chance alone."""
        if self.degrees <= 0 or not math.isfinite(self.error):
            return math.inf
        return _quantile(chance, self.degrees) * self.error

    def verdict(self, agree: float, differ: float) -> Verdict:
        """Return on which side of zero the mean is, if the standard error allows to tell."""
        if self.mean > self.reach(agree):
            return Verdict.AGREES
        if self.mean < -self.reach(differ):
            return Verdict.DIFFERS
        return Verdict.WITHIN_NOISE if math.isfinite(self.reach(agree)) else Verdict.CANNOT_TELL

    @property
    def bound(self) -> float:
        """Below what the difference is, to either side, with the probability of a right verdict."""
        return abs(self.mean - self.allowed) + self.reach(WRONG)

    def __str__(self) -> str:
        error = f" ± {self.error:.3f}" if math.isfinite(self.error) else ""
        return f"{self.mean - self.allowed:+.3f}{error}"


def _added(margins: Sequence[Margin]) -> tuple[float, float]:
    """Return the standard error of a sum of independent means, and its degrees of freedom (Welch, Satterthwaite)."""
    squares = [margin.error**2 for margin in margins]
    spread = sum(
        square**2 / margin.degrees for square, margin in zip(squares, margins, strict=True) if margin.degrees
    )
    least = min(margin.degrees for margin in margins)
    if not least > 0 or not math.isfinite(sum(squares)):
        return math.inf, 0
    return math.sqrt(sum(squares)), sum(squares) ** 2 / spread if spread else least


def pooled(margins: Sequence[Margin]) -> Margin:
    """Return the margin of an average over data sets, budgets or rivals.

    Where the same five repetitions or more are known of all of them, it is averaged in each. Otherwise their errors
    are added as independent ones; and where a comparison was measured once, the comparisons are the repetitions.
    """
    if len(margins) == 1:
        return margins[0]
    count, allowed = len(margins), float(np.mean([margin.allowed for margin in margins]))
    shared = set.intersection(*(set(margin.values) for margin in margins)) if margins else set()
    if len(shared) >= _ENOUGH and all(len(margin.values) == len(shared) for margin in margins):
        return Margin.of({key: float(np.mean([m.values[key] for m in margins])) for key in sorted(shared)}, allowed)
    if any(not math.isfinite(margin.error) for margin in margins):
        return Margin.of([margin.mean for margin in margins], allowed)
    error, degrees = _added(margins)
    return Margin(float(np.mean([margin.mean for margin in margins])), error / count, degrees, allowed)


@dataclass(frozen=True)
class Checked:
    """What was counted in every run and needs no test."""

    holds: bool
    margins: tuple[Margin, ...] = ()

    def verdict(self, agree: float, differ: float) -> Verdict:
        """Return whether it holds."""
        return Verdict.AGREES if self.holds else Verdict.DIFFERS


@dataclass(frozen=True)
class AtLeast:
    """That at least ``needed`` of the parts hold.

    Notes
    -----
    Of m parts let t < needed hold. To agree, needed - t of the others have to agree wrongly, with a probability of at
    most (m - t) c/(needed - t) where each does with c; that is largest at t = needed - 1. So c = agree/(m - needed +
    1) will do, and differ/needed by the same argument for the opposite.
    """

    needed: int
    parts: tuple[Statement, ...]

    @property
    def margins(self) -> tuple[Margin, ...]:
        """Those of all parts."""
        return tuple(margin for part in self.parts for margin in part.margins)

    def verdict(self, agree: float, differ: float) -> Verdict:
        """Return whether enough parts surely hold, or too many surely do not."""
        spare = len(self.parts) - self.needed + 1
        found = [part.verdict(agree / spare, differ / self.needed) for part in self.parts]
        if found.count(Verdict.AGREES) >= self.needed:
            return Verdict.AGREES
        if found.count(Verdict.DIFFERS) >= spare:
            return Verdict.DIFFERS
        return Verdict.CANNOT_TELL if Verdict.CANNOT_TELL in found else Verdict.WITHIN_NOISE


@cache
def _quantile(chance: float, degrees: float) -> float:
    return float(student.isf(chance, degrees))


def every(parts: Sequence[Statement]) -> AtLeast:
    """Return the statement that all parts hold."""
    return AtLeast(len(parts), tuple(parts))


def some(parts: Sequence[Statement]) -> AtLeast:
    """Return the statement that one part or more holds."""
    return AtLeast(1, tuple(parts))


def judge(statement: Statement) -> Verdict:
    """Return the verdict on a claim."""
    return statement.verdict(WRONG, WRONG)


def told(statement: Statement, text: str) -> str:
    """Return the verdict on a claim, what it rests on, and how large the difference can be if it is within noise."""
    verdict = judge(statement)
    found = f"{verdict.value}: {text}."
    if verdict is Verdict.CANNOT_TELL:
        return f"{found} One repetition has no standard error; two or more have."
    if verdict is Verdict.WITHIN_NOISE:
        open_ones = [m for m in statement.margins if m.verdict(WRONG, WRONG) is Verdict.WITHIN_NOISE]
        largest = max(margin.bound for margin in open_ones or statement.margins)
        return f"{found} The difference is below {largest:.2g} at this extent."
    return found


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
