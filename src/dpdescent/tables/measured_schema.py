r"""A schema that is measured: what the columns of a table contain, found with noise and paid for once.

Column names, storage types and whatever is declared are public. All else is bought, in four stages:

1. *Types*: a histogram of each column over the public kinds of cells (`cell_kinds`), which tells missing cells apart.
2. *Classes* of a label that is not a number: its values above a threshold.
3. *Levels*: the values above a threshold of the columns of text and of whole numbers.
4. *Bounds* of numbers and dates: two histograms (`dpdescent.tables.bounds`).

What is decided follows from these answers and public numbers alone. A column is what most of its cells are; whole
numbers of which 3 to 12 levels cover more than 95% of the cells are codes, and so a category. Values that were not
found are coded as ``other`` where they are frequent. A column is ignored if nearly all of its cells are missing, if
it has one value, if it is long text, or if the levels that were found cover less than 5% of it, as with identifiers.
Cells that cannot be read as what their column is count as missing.

**Privacy** Each stage is one release through the one door, charged before a cell is read
(`dpdescent.curator.key_counts` has the sensitivities). Levels that the categories of pandas or the values of an
enumeration list are public knowledge of whoever made the table, and cost nothing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..accounting import Gaussian, ThresholdedGaussian
from ..arrays import Floats
from ..curator import LatticeNoise, Units
from ..curator.key_counts import buy_bins, buy_levels, histogram_sensitivity
from ..errors import InvalidParameter, OneClass
from ..ledger import Ledger
from .bounds import measured_ends
from .cell_kinds import KINDS_OF_CELLS, as_days, as_numbers, kinds_of_cells, level_keys
from .cells import ANY_DATE
from .columns import CategoricalColumn, Column, DateColumn, IgnoredColumn, Label, NumericColumn
from .declaration import FileFormat, Schema
from .written_forms import DATE_FORMS, NUMBERS, OTHER_DATES

_MOST = 0.8  # of the cells that are there are of one kind: then the column is
_RARE = 0.01  # of the rows: a missing or unknown cell that is rarer gets no level of its own
_FEW = 0.05  # of the cells: what covers less says nothing about a column
_CODES = (3, 12)  # levels of a column of whole numbers that is a category
_COVERING = 0.95
_ALIKE = 0.99
_MANY, _NEARLY_ALL = 0.9, 0.98  # whole numbers whose levels cover so much are bounded by these levels,
_ROOM = 0.15  # with so much room on either side if they are not nearly all
_BINS = 24
_CLASSES = 100
_LEAST = 40.0  # effective rows per root of the number of columns, below which nothing is found


@dataclass(frozen=True)
class Shares:
    """Which shares of a budget the stages cost: types, classes, levels, and each of two histograms for bounds."""

    types: float
    classes: float
    levels: float
    bounds: float
    histograms: float = 0.0

    @classmethod
    def of_all(cls, histograms: bool = False) -> Shares:
        """Return the shares where the whole budget is for the schema, and for histograms of numbers if wanted."""
        return cls(0.1, 0.1, 0.4, 0.1, 0.198) if histograms else cls(0.1, 0.1, 0.5, 0.149)

    @classmethod
    def of_fit(cls, effective: float, columns: int) -> Shares:
        """Return the shares beside a fit: more where there are few effective rows and many columns."""
        most, count = max(effective, 1.0), max(columns, 1)
        types = min(max(count * (16 / most) ** 2, 0.005), 0.03)
        levels = min(max(count * (6 / (0.01 * most)) ** 2, 0.02), 0.1)
        return cls(types, min(max(8 / most, 0.01), 0.02), levels, min(max(count * (40 / most) ** 2, 0.02), 0.1))


@dataclass(frozen=True)
class TableToMeasure:
    """A table, who pays for what it contains, and what of it is declared.

    Parameters
    ----------
    frame : DataFrame
        The columns, without label and unit. **Unreleased data**, but for names and storage types.
    label : Series, optional
        What is to be predicted. **Unreleased data.**
    ledger : Ledger
    noise : LatticeNoise
    rows : int
        The public number of rows, or of units.
    shares : Shares
    declared : mapping from str to Column
        What a person knows: it costs nothing.
    units : Units, optional
    """

    frame: pd.DataFrame
    label: pd.Series | None
    ledger: Ledger
    noise: LatticeNoise
    rows: int
    shares: Shares
    declared: Mapping[str, Column] = field(default_factory=dict)
    units: Units | None = None

    def gaussian(self, share: float) -> Gaussian:
        """Return the noise that a share of the budget pays for."""
        return self.ledger.currency.gaussian(share * self.ledger.budget)

    def thresholded(self, share: float, failing: float) -> ThresholdedGaussian:
        """Return noise for a share of the budget, with a share of what the ledger keeps for failures."""
        failure = float(self.ledger.failure_limit) * failing
        return ThresholdedGaussian(self.gaussian(share).noise_multiplier, failure)

    def deviation(self, gaussian: Gaussian | ThresholdedGaussian, columns: int) -> float:
        """Return the deviation of noisy counts of so many columns."""
        return gaussian.noise_multiplier * histogram_sensitivity(columns).under(self.ledger.relation)

    @property
    def sought(self) -> list[str]:
        """The columns of which nothing is declared."""
        return [name for name in self.frame.columns if name not in self.declared]


@dataclass(frozen=True)
class Found:
    """What was found in one column, from noisy counts.

    Parameters
    ----------
    kind : str
        What most cells are.
    missing : float
        The share of missing cells.
    levels : dict
        Levels with their noisy counts.
    coverage : float
        The share of the other cells that these levels cover.
    deviation : float
        That of the noise in a count of a level.
    reason : str
        Why a column is ignored.
    form : str, optional
        How dates or decimals are written.
    histogram : tuple of float
        Noisy counts in equal bins between the bounds of a number, where they were bought.
    """

    kind: str
    missing: float = 0.0
    levels: Mapping[Any, float] = field(default_factory=dict)
    coverage: float = 0.0
    deviation: float = 0.0
    reason: str = ""
    form: str | None = None
    histogram: tuple[float, ...] = ()

    @property
    def is_coded(self) -> bool:
        """Whether few levels cover nearly all cells: whole numbers are then codes, and a category."""
        return _CODES[0] <= len(self.levels) <= _CODES[1] and self.coverage > _COVERING

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        data: dict[str, Any] = {"kind": self.kind, "missing_share": round(self.missing, 4)}
        if self.levels:
            data["levels"] = [[level, round(count, 1)] for level, count in self.levels.items()]
            data |= {"coverage": round(self.coverage, 4), "deviation": float(f"{self.deviation:.4g}")}
        if self.histogram:
            data["histogram"] = [round(count, 1) for count in self.histogram]
            data["deviation"] = float(f"{self.deviation:.4g}")
        return data | ({"ignored": self.reason} if self.reason else {})


def effective_rows(ledger: Ledger, rows: int) -> float:
    """Return n mu, or n mu/sqrt(2) where rows are replaced."""
    whole = ledger.currency.gaussian(ledger.budget).noise_multiplier
    return rows / (whole * histogram_sensitivity(1).under(ledger.relation))


def require_enough(ledger: Ledger, rows: int, columns: int, part: float = 1.0) -> None:
    """Raise `InvalidParameter` where a budget is too small to find out what so many columns contain.

    ``part`` is the share of effective rows that suffices, where the whole budget is spent on it.
    """
    if ledger.currency.name in ("pure", "approximate") or ledger.failure_limit <= 0:
        raise InvalidParameter(
            "what the columns contain is measured with Gaussian noise and a part of delta, for which this ledger "
            "cannot pay: give a schema, or use currency 'gdp' or 'zcdp'"
        )
    needed, there = part * _LEAST * math.sqrt(max(columns, 1)), effective_rows(ledger, rows)
    if there < needed:
        raise InvalidParameter(
            f"{rows} rows at epsilon {ledger.epsilon:g} have {there:.0f} effective rows, and to find out what "
            f"{columns} columns contain takes about {needed:.0f}: declare what you know in a schema "
            "(`dpdescent schema TABLE` writes a draft), drop columns, or raise epsilon"
        )


def public_column(name: str, column: pd.Series) -> Column | None:
    """Return what the storage type of a column says: truth values, and categories with their levels; else None."""
    if pd.api.types.is_bool_dtype(column.dtype):
        return CategoricalColumn(name, (False, True), missing="level", unknown="zero")
    if isinstance(column.dtype, pd.CategoricalDtype):
        levels = [level.item() if isinstance(level, np.generic) else level for level in column.cat.categories]
        if levels and all(isinstance(level, str | int | float | bool) for level in levels):
            return CategoricalColumn(name, tuple(levels), missing="level", unknown="zero")
    return None


def measure_columns(
    table: TableToMeasure, label: str, *, classes: Sequence[Any] | None, regression: bool | None
) -> tuple[Schema, dict[str, Found]]:
    """Buy what is not declared of a table; return the schema, and what was found in each column.

    Parameters
    ----------
    table : TableToMeasure
    label : str
        The name of what is to be predicted.
    classes : sequence, optional
        The public classes, which then cost nothing.
    regression : bool, optional
        Whether the label is a number; found out if it is None.
    """
    sought = table.sought
    found = _buy_types(table, sought)
    target = _buy_label(table, label, classes, regression, found)
    _buy_levels(table, sought, found)
    columns = {name: _column(name, found[name], table.rows) for name in sought} | dict(table.declared)
    ordered = [columns[name] for name in table.frame.columns]
    decimal = "," if any(each.form == "," for each in found.values()) else "."
    target, ordered = _buy_bounds(table, target, ordered, decimal)
    if all(isinstance(column, IgnoredColumn) for column in ordered):
        raise InvalidParameter(
            "no column was found that a model could use: declare what you know in a schema, or raise epsilon"
        )
    schema = Schema(tuple(ordered), target, unreadable="missing", file=FileFormat(decimal=decimal))
    return schema, found


def _buy_types(table: TableToMeasure, sought: list[str]) -> dict[str, Found]:
    """Buy which kinds of cells the columns have, and the label."""
    columns = [table.frame[name] for name in sought]
    if table.label is not None:
        columns.append(table.label)
    if not columns:
        return {}
    gaussian = table.gaussian(table.shares.types)
    read = [partial(kinds_of_cells, column) for column in columns]
    counts = buy_bins(table.ledger, gaussian, read, len(KINDS_OF_CELLS), "types of cells", table.noise, table.units)
    noise = table.deviation(gaussian, len(columns))
    names = [*sought, *([""] if table.label is not None else [])]
    return {name: _kind_of_column(each, noise) for name, each in zip(names, counts, strict=True)}


def _kind_of_column(counts: Floats, noise: float) -> Found:
    """Return what most cells of a column are, from noisy counts of their kinds."""
    by_kind = dict(zip(KINDS_OF_CELLS, np.where(counts > 3 * noise, counts, 0.0).tolist(), strict=True))
    every = max(sum(by_kind.values()), 1.0)
    missing = by_kind.pop("missing")
    present = max(sum(by_kind.values()), 1.0)
    if present <= max(5 * noise, _FEW * every):
        return Found("missing", missing / every, reason="nearly all cells are missing")
    if sum(by_kind[kind] for kind in NUMBERS) >= _MOST * present:
        decimal = "," if by_kind["decimal comma"] > by_kind["decimal point"] else None
        whole = by_kind["integer"] >= _MOST * present
        return Found("integer" if whole else "number", missing / every, form=decimal)
    if sum(by_kind[kind] for kind in (*DATE_FORMS, *OTHER_DATES)) >= _MOST * present:
        return Found("date", missing / every, form=_form_of_dates(by_kind))
    if by_kind["long text"] > present / 2:
        return Found("long text", missing / every, reason="long text")
    return Found("text", missing / every)


def _form_of_dates(counts: Mapping[str, float]) -> str | None:
    """Return the form in which nearly all dates are written, or that 03/04/2020 has the day or the month first."""
    first = {each: counts[each] + counts[f"other date, {each}"] for each in ANY_DATE}
    order = max(first, key=first.__getitem__)
    single = {form: counts[form] for form in DATE_FORMS}
    single[order] += counts["day or month first"]
    best = max(single, key=single.__getitem__)
    every = sum(counts[kind] for kind in (*DATE_FORMS, *OTHER_DATES))
    return DATE_FORMS[best] if single[best] >= _COVERING * every else order


def _buy_label(
    table: TableToMeasure, name: str, classes: Sequence[Any] | None, regression: bool | None, found: dict[str, Found]
) -> Label:
    """Buy the classes of the label, unless they are given or it is a number."""
    if table.label is None:
        return Label(name, None if classes is None else tuple(classes))
    kind = found.pop("", Found("text"))
    stored = None if regression else public_column(name, table.label)
    if classes is None and isinstance(stored, CategoricalColumn):
        classes = stored.levels
    if regression or (regression is None and classes is None and kind.kind in ("number", "date")):
        return Label(name)
    if classes is not None:
        return Label(name, tuple(classes))
    cost = table.thresholded(table.shares.classes, 0.25)
    whole = kind.kind == "integer"
    read = partial(level_keys, table.label, whole)
    levels = buy_levels(table.ledger, cost, [read], "classes of the label", table.noise, table.units)[0]
    coverage = sum(levels.values()) / table.rows
    if regression is None and whole and not (len(levels) <= _CODES[1] and coverage > _COVERING):
        return Label(name)
    if len(levels) < 2 or len(levels) > _CLASSES:
        several = "no class" if not levels else "one class alone" if len(levels) == 1 else f"{len(levels)} classes"
        raise OneClass(
            f"{several} of the label {name!r} was found: the others are too rare for this epsilon, or it is a "
            "number; give the classes, which are public then, raise epsilon, or fit a regression"
        )
    deviation = table.deviation(cost, 1)
    found[name] = Found("classes", kind.missing, levels, min(coverage, 1.0), deviation)
    return Label(name, tuple(sorted(levels)), rest=max(levels, key=levels.__getitem__))


def _buy_levels(table: TableToMeasure, sought: list[str], found: dict[str, Found]) -> None:
    """Buy the levels of columns of text and of whole numbers, and add them to what was found."""
    wanted = [name for name in sought if found[name].kind in ("text", "integer")]
    if not wanted:
        return
    cost = table.thresholded(table.shares.levels, 0.7)
    read = [partial(level_keys, table.frame[name], found[name].kind == "integer") for name in wanted]
    levels = buy_levels(table.ledger, cost, read, "levels of the columns", table.noise, table.units)
    noise = table.deviation(cost, len(wanted))
    for name, counts in zip(wanted, levels, strict=True):
        present = max(1.0, table.rows * (1 - found[name].missing))
        coverage = min(1.0, sum(counts.values()) / present)
        found[name] = replace(found[name], levels=counts, coverage=coverage, deviation=noise)
        found[name] = replace(found[name], reason=_why_ignored(found[name]))


def _why_ignored(found: Found) -> str:
    if found.kind == "text" and found.coverage < _FEW:
        return "too many different values, none of them frequent, as with identifiers and free text"
    if len(found.levels) == 1 and found.coverage > _ALIKE and found.missing < _RARE:
        return "all cells are alike"
    return ""


def _column(name: str, found: Found, rows: int) -> Column:
    """Return the declaration of a column by what was found in it."""
    if found.reason:
        return IgnoredColumn(name)
    missing = "level" if found.missing > _RARE else "midpoint"
    if found.kind == "date":
        return DateColumn(name, format=found.form, missing=missing)
    if found.kind == "number" or (found.kind == "integer" and not found.is_coded):
        if found.coverage < _MANY or len(found.levels) < 2:
            return NumericColumn(name, missing=missing)
        low, high = float(min(found.levels)), float(max(found.levels))  # which were paid for already
        room = 0.0 if found.coverage > _NEARLY_ALL else _ROOM * (high - low)
        return NumericColumn(name, max(low - room, min(low, 0.0)), high + room, missing)
    unknown = "other" if found.coverage < 1 - max(_RARE, 3 * found.deviation / rows) else "zero"
    return CategoricalColumn(name, tuple(found.levels), missing=missing, unknown=unknown)


def _buy_bounds(
    table: TableToMeasure, target: Label, columns: list[Column], decimal: str
) -> tuple[Label, list[Column]]:
    """Buy the bounds of numbers and dates that have none."""
    sought = [c for c in columns if isinstance(c, NumericColumn | DateColumn) and c.bounds is None]
    if not sought:
        return target, columns
    read = [_numbers(table.frame[column.name], column, decimal) for column in sought]
    low, high = _bounds(table, read)
    bounded: dict[str, Column] = {}
    for column, ends in zip(sought, zip(low.tolist(), high.tolist(), strict=True), strict=True):
        bounded[column.name] = replace(column, low=ends[0], high=ends[1])
    return target, [bounded.get(column.name, column) for column in columns]


def buy_histograms(table: TableToMeasure, schema: Schema, found: dict[str, Found]) -> None:
    """Buy counts of numbers and dates in equal bins between their bounds, and add them to what was found."""
    columns = [column for column in schema.numbers if column.bounds is not None]
    if not columns or not table.shares.histograms:
        return

    def placed(column: NumericColumn | DateColumn) -> NDArray[np.intp]:
        low, high = column.bounds or (0.0, 1.0)
        values = _numbers(table.frame[column.name], column, schema.file.decimal)().to_numpy()
        there = np.isfinite(values)
        scaled = (np.clip(np.where(there, values, low), low, high) - low) / (high - low)
        return np.where(there, np.minimum(np.floor(scaled * _BINS), _BINS - 1), -1).astype(np.intp)

    gaussian = table.gaussian(table.shares.histograms)
    read = [partial(placed, column) for column in columns]
    counts = buy_bins(table.ledger, gaussian, read, _BINS, "histograms of numbers", table.noise, table.units)
    noise = table.deviation(gaussian, len(columns))
    for column, each in zip(columns, counts, strict=True):
        before = found.get(column.name, Found("number"))
        found[column.name] = replace(before, histogram=tuple(each.tolist()), deviation=noise, levels={})


def _numbers(cells: pd.Series, column: Column, decimal: str) -> partial[pd.Series]:
    return (
        partial(as_days, cells, column.format)
        if isinstance(column, DateColumn)
        else partial(as_numbers, cells, decimal)
    )


def _bounds(table: TableToMeasure, read: Sequence[partial[pd.Series]]) -> tuple[Floats, Floats]:
    """Return noisy bounds of columns of numbers; missing cells are in no histogram."""
    held: dict[str, Any] = {}

    def cells() -> NDArray[np.float64]:
        if not held:
            held["values"] = np.column_stack([each().to_numpy() for each in read])
        values: NDArray[np.float64] = held["values"]
        return values

    def ask(levels: Any, largest: int) -> tuple[Floats, float]:
        gaussian = table.gaussian(table.shares.bounds)

        def placed(column: int) -> NDArray[np.intp]:
            there = np.isfinite(cells()[:, column])
            return np.where(there, levels.of(cells)[:, column] + largest, -1).astype(np.intp)

        columns = [partial(placed, column) for column in range(len(read))]
        size = 2 * largest + 1
        counts = buy_bins(table.ledger, gaussian, columns, size, "bounds of the columns", table.noise, table.units)
        return counts, table.deviation(gaussian, len(read))

    low, high = measured_ends(ask, _Later(), table.rows)
    return low, np.where(high > low, high, low + np.maximum(np.abs(low) * 2.0**-20, 1.0))


class _Later:
    """Cells that are read after the charge: what is to be done with them is noted until then."""

    def __init__(self, *functions: Any) -> None:
        self._functions = functions
        self._made: Any = None

    def mapped(self, function: Any) -> _Later:
        """Return the cells after a function of each."""
        return _Later(*self._functions, function)

    def of(self, cells: Any) -> Any:
        """Return the cells after all functions; a missing one is taken for 0, and counted nowhere."""
        if self._made is None:
            self._made = np.nan_to_num(cells(), nan=0.0)
            for function in self._functions:
                self._made = function(self._made)
        return self._made
