"""Means and standard errors over folds and seeds, the tables that show them, and the same as plain data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from rich.table import Table
from rich.text import Text

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
