r"""A schema that is measured: what the columns of a table contain, found with noise and paid for once.

Column names, storage types and whatever is declared are public. All else is bought, in four stages:

1. *Types*: a histogram of each column over the public kinds of cells (`cell_kinds`), which tells missing cells apart.
2. *Classes* of a label that is not a number: its values above a threshold.
3. *Levels*: the values above a threshold of the columns of text and of whole numbers.
4. *Bounds* of numbers and dates: two histograms (`dpdescent.tables.bounds`).

What is decided follows from these answers and public numbers alone. A column is what most of its cells are; whole
numbers of which 3 to 12 levels cover more than 95% of the cells are codes, and so a category. Values that were not
found are coded as ``other`` where they are frequent. Whole numbers that begin with a zero are text, and so is a
column of which less than 80% are numbers, unless the levels that are found cover less than that and half are numbers:
then it is a column of numbers, and other cells are missing ones. A column is ignored if nearly all of its cells are
missing, if it has one value, if it is long text, or if the levels that were found cover less than 5% of it, as with
identifiers. Cells that cannot be read as what their column is count as missing.

**Privacy** Each stage is one release through the one door, charged before a cell is read
(`dpdescent.curator.key_counts` has the sensitivities). Levels that the categories of pandas or the values of an
enumeration list are public knowledge of whoever made the table, and cost nothing. They must not be read from the
rows, as those of ``astype("category")`` are. Numbers, text and dates have the same answers in whatever type they are
stored: no cell of theirs decides, by the type of its column, what is asked.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.stats import norm

from ..accounting import Gaussian, ThresholdedGaussian
from ..arrays import Floats
from ..curator import LatticeNoise, Units
from ..curator.key_counts import Bins, Levels, buy_bins, buy_levels, histogram_sensitivity
from ..errors import InvalidParameter, OneClass
from ..ledger import Ledger
from .bounds import measured_ends
from .cell_kinds import KINDS_OF_CELLS, as_days, as_levels, as_numbers, coded_texts, kinds_of_cells, level_keys
from .cells import ANY_DATE, level_codes
from .columns import CategoricalColumn, Column, DateColumn, IgnoredColumn, Label, NumericColumn
from .declaration import FileFormat, Schema
from .written_forms import DATE_FORMS, NUMBERS, OTHER_DATES

_MOST = 0.8  # of the cells that are there are of one kind: then the column is
_RARE = 0.01  # of the rows: a missing or unknown cell that is rarer gets no level of its own
_FEW = 0.05  # of the cells: what covers less says nothing about a column
_CODES = (3, 12)  # levels of a column of whole numbers that is a category
_COVERING = 0.95
_ALIKE = 0.99
_FALSE = 0.01  # probability that noise is taken for cells of another kind anywhere
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
    """A table, who pays for what it contains, and what of it is declared."""

    #: The columns, without label and unit. **Unreleased data**, but for names and storage types.
    frame: pd.DataFrame
    label: pd.Series | None  # what is to be predicted. **Unreleased data.**
    ledger: Ledger
    noise: LatticeNoise
    rows: int  # the public number of rows, or of units
    shares: Shares
    #: What a person knows: it costs nothing.
    declared: Mapping[str, Column] = field(default_factory=dict)
    units: Units | None = None
    #: Returns these columns anew, a few rows at a time, where the table is not in memory. The frame and the label
    #: are then empty and have its names and storage types.
    blocks: Callable[[list[str]], Iterable[pd.DataFrame]] | None = None
    #: Whether people look at the table, so that whatever was found is returned, even if no fit can use it.
    looking: bool = False
    _coded: dict[str | None, pd.Series] = field(default_factory=dict)

    def parts(self, names: Sequence[str | None]) -> Iterator[Mapping[str | None, pd.Series]]:
        """Yield columns of each part of the table by their names, and the label by None."""
        of_label = "" if self.label is None else str(self.label.name)
        wanted = {name: of_label if name is None else name for name in names}
        if self.blocks is not None:
            for block in self.blocks([*wanted.values()]):
                yield {name: block[column] for name, column in wanted.items()}
            return
        for name in wanted:
            if name not in self._coded:
                self._coded[name] = coded_texts(self.label if name is None else self.frame[name])
        yield self._coded

    def buy_bins(
        self, gaussian: Gaussian, columns: Sequence[tuple[str | None, Bins]], size: int, said: str
    ) -> Floats:
        """Buy noisy counts of public bins, by functions of columns."""
        parts = partial(self.parts, [name for name, _ in columns])
        read = [_of_column(*column) for column in columns]
        return buy_bins(self.ledger, gaussian, read, size, said, self.noise, self.units, parts)

    def buy_levels(
        self, cost: ThresholdedGaussian, columns: Sequence[tuple[str | None, Levels]], said: str
    ) -> list[dict[Any, float]]:
        """Buy the values that occur, by functions of columns."""
        parts, rows = partial(self.parts, [name for name, _ in columns]), None if self.blocks is None else self.rows
        read = [_of_column(*column) for column in columns]
        return buy_levels(self.ledger, cost, read, said, self.noise, self.units, parts, rows=rows)

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
    """What was found in one column, from noisy counts."""

    kind: str  # what most cells are
    missing: float = 0.0  # the share of missing cells, and of those that are not of this kind
    levels: Mapping[Any, float] = field(default_factory=dict)  # levels with their noisy counts
    coverage: float = 0.0  # the share of the other cells that these levels cover
    deviation: float = 0.0  # that of the noise in a count of a level
    reason: str = ""  # why a column is ignored
    form: str | None = None  # how dates or decimals are written
    #: Noisy counts in equal bins between ``ends``, where they were bought.
    histogram: tuple[float, ...] = ()
    ends: tuple[float, ...] = ()
    #: The share of numbers in a column of text, where they are most of what is there.
    numbers: float = 0.0

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
            data |= {"histogram": [round(count, 1) for count in self.histogram], "ends": list(self.ends)}
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
        plain = [level if isinstance(level, str | int | float | bool) else str(level) for level in levels]
        if plain:
            return CategoricalColumn(name, tuple(plain), missing="level", unknown="zero")
    return None


def measure_columns(
    table: TableToMeasure, label: str, *, classes: Sequence[Any] | None, regression: bool | None, rest: Any = None
) -> tuple[Schema, dict[str, Found]]:
    """Buy what is not declared of a table; return the schema, and what was found in each column.

    ``label`` is to be predicted: public ``classes`` cost nothing, ``rest`` is that of labels which are none of the
    others, and whether it is a number is found out if ``regression`` is None.
    """
    sought = table.sought
    found = _buy_types(table, sought)
    try:
        target = _buy_label(table, label, classes, regression, found, rest)
    except InvalidParameter as problem:
        if not table.looking:
            raise
        target, found[label] = Label(label), Found("label", reason=str(problem))
    _buy_levels(table, sought, found)
    columns = {name: _column(name, found[name], table.rows) for name in sought} | dict(table.declared)
    ordered = [columns[name] for name in table.frame.columns]
    decimal = "," if any(each.form == "," and each.kind != "text" for each in found.values()) else "."
    target, ordered = _buy_bounds(table, target, ordered, decimal, found)
    if all(isinstance(column, IgnoredColumn) for column in ordered):
        if not table.looking:
            raise InvalidParameter(
                "no column was found that a model could use: declare what you know in a schema, or raise epsilon"
            )
        target = Label("")
    schema = Schema(tuple(ordered), target, unreadable="missing", file=FileFormat(decimal=decimal))
    return schema, found


def _buy_types(table: TableToMeasure, sought: list[str]) -> dict[str, Found]:
    """Buy which kinds of cells the columns have, and the label."""
    names = [*sought, *([None] if table.label is not None else [])]
    if not names:
        return {}
    gaussian = table.gaussian(table.shares.types)
    read = [(name, kinds_of_cells) for name in names]
    counts = table.buy_bins(gaussian, read, len(KINDS_OF_CELLS), "types of cells")
    noise = table.deviation(gaussian, len(names))
    sure = float(norm.isf(_FALSE / counts.size)) * noise
    return {name or "": _kind_of_column(each, noise, sure) for name, each in zip(names, counts, strict=True)}


def _of_column(name: str | None, function: Callable[[pd.Series], Any]) -> Callable[[Any], Any]:
    """Return a function of a column as one of a part of the table."""
    return lambda part: function(part[name])


def _kind_of_column(counts: Floats, noise: float, sure: float) -> Found:
    """Return what most cells of a column are, from noisy counts of their kinds.

    Cells of other kinds count as missing where there are more of a kind than noise makes believe, of all columns.
    """
    by_kind = dict(zip(KINDS_OF_CELLS, np.where(counts > 3 * noise, counts, 0.0).tolist(), strict=True))
    every = max(sum(by_kind.values()), 1.0)
    missing = by_kind["missing"]
    present = max(every - missing, 1.0)
    if every - missing <= max(5 * noise, _FEW * every):
        return Found("missing", missing / every, reason="nearly all cells are missing")
    numbers = sum(by_kind[kind] for kind in NUMBERS)

    def unread(kinds: Sequence[str]) -> float:
        others = sum(by_kind[each] for each in rest if each not in kinds and by_kind[each] > sure)
        return float((missing + others) / every)

    rest = KINDS_OF_CELLS[1:]
    decimal = "," if by_kind["decimal comma"] > by_kind["decimal point"] else None
    if numbers >= _MOST * present and by_kind["zero first"] <= max(_RARE * present, sure):
        whole = by_kind["integer"] >= _MOST * present
        return Found("integer" if whole else "number", unread(NUMBERS), form=decimal)
    dates = (*DATE_FORMS, *OTHER_DATES)
    if sum(by_kind[kind] for kind in dates) >= _MOST * present:
        return Found("date", unread(dates), form=_form_of_dates(by_kind))
    for kind, reason in (("long text", "long text"), ("other", "neither numbers, dates nor text")):
        if by_kind[kind] > present / 2:
            return Found(kind, missing / every, reason=reason)
    return Found("text", missing / every, form=decimal, numbers=numbers / every if numbers > present / 2 else 0.0)


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
    table: TableToMeasure,
    name: str,
    classes: Sequence[Any] | None,
    regression: bool | None,
    found: dict[str, Found],
    rest: Any = None,
) -> Label:
    """Buy the classes of the label, unless they are given or it is a number."""
    if table.label is None:
        return Label(name, None if classes is None else tuple(classes))
    kind = found.pop("", Found("text"))
    stored = None if regression else public_column(name, table.label)
    if classes is None and isinstance(stored, CategoricalColumn):
        classes = stored.levels
    if classes is not None:
        if table.looking:
            found[name] = _buy_balance(table, tuple(classes), kind)
        return Label(name, tuple(classes), rest=rest)
    if kind.kind == "date":
        raise InvalidParameter(f"the label {name!r} has dates: predict a number or classes that are made of them")
    number = Found(kind.kind if kind.kind == "integer" else "number", kind.missing, form=kind.form)
    if regression or (regression is None and kind.kind == "number"):
        found[name] = number
        return Label(name)
    levels, cost = _buy_classes(table, kind.kind == "integer")
    coverage = sum(levels.values()) / table.rows
    if regression is None and kind.kind == "integer" and not (len(levels) <= _CODES[1] and coverage > _COVERING):
        found[name] = number
        return Label(name)
    _require_classes(name, len(levels))
    found[name] = Found("classes", kind.missing, levels, min(coverage, 1.0), table.deviation(cost, 1))
    return Label(name, tuple(sorted(levels)), rest=max(levels, key=levels.__getitem__))


def _require_classes(name: str, found: int) -> None:
    """Raise `OneClass` unless several classes of the label were found, and not too many."""
    if 2 <= found <= _CLASSES:
        return
    several = "no class" if not found else "one class alone" if found == 1 else f"{found} classes"
    raise OneClass(
        f"{several} of the label {name!r} was found: the others are too rare for this epsilon, or it is a "
        "number; give the classes (--classes A,B in the shell), which are public then, code all but one of them "
        "as one class, such as 'rest' (--classes A,rest --rest rest), raise epsilon, or fit a regression"
    )


def _buy_classes(table: TableToMeasure, whole: bool) -> tuple[dict[Any, float], ThresholdedGaussian]:
    """Buy the values of the label that are frequent; return them, and what they cost."""
    cost = table.thresholded(table.shares.classes, 0.25)
    levels = table.buy_levels(cost, [(None, partial(level_keys, whole=whole))], "classes of the label")[0]
    if table.label is not None and table.label.dtype == object and set(levels) <= {"False", "True"}:  # and no text
        levels = {each == "True": count for each, count in levels.items()}
    return levels, cost


def _buy_balance(table: TableToMeasure, classes: tuple[Any, ...], kind: Found) -> Found:
    """Buy how many labels are of each of the public classes."""
    gaussian = table.gaussian(table.shares.classes)

    def codes(label: pd.Series) -> NDArray[np.intp]:
        return level_codes(as_levels(label, classes), "", classes)

    counts = table.buy_bins(gaussian, [(None, codes)], len(classes), "classes of the label")[0]
    coverage, deviation = min(max(counts.sum() / table.rows, 0.0), 1.0), table.deviation(gaussian, 1)
    return Found("classes", kind.missing, dict(zip(classes, counts.tolist(), strict=True)), coverage, deviation)


def _buy_levels(table: TableToMeasure, sought: list[str], found: dict[str, Found]) -> None:
    """Buy the levels of columns of text and of whole numbers, and add them to what was found."""
    wanted = [name for name in sought if found[name].kind in ("text", "integer")]
    if not wanted:
        return
    cost = table.thresholded(table.shares.levels, 0.7)
    read = [(name, partial(level_keys, whole=found[name].kind == "integer")) for name in wanted]
    levels = table.buy_levels(cost, read, "levels of the columns")
    noise = table.deviation(cost, len(wanted))
    for name, counts in zip(wanted, levels, strict=True):
        present = max(1.0, table.rows * (1 - found[name].missing))
        coverage = min(1.0, sum(counts.values()) / present)
        each = replace(found[name], levels=counts, coverage=coverage, deviation=noise)
        if each.kind == "text" and each.numbers and (coverage < _MOST or len(counts) < 2):
            each = Found("number", 1 - each.numbers, form=each.form)
        found[name] = replace(each, reason=_why_ignored(each))


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
    table: TableToMeasure, target: Label, columns: list[Column], decimal: str, found: dict[str, Found]
) -> tuple[Label, list[Column]]:
    """Buy the bounds of numbers and dates that have none, and those of a label that is a number."""
    sought = [c for c in columns if isinstance(c, NumericColumn | DateColumn) and c.bounds is None]
    numeric = table.label is not None and target.classes is None and not found[target.column].reason
    if not sought and not numeric:
        return target, columns
    read: list[tuple[str | None, Callable[[pd.Series], pd.Series]]] = [
        (column.name, _numbers_of(column, decimal)) for column in sought
    ]
    if numeric:
        read.append((None, partial(as_numbers, decimal=decimal)))
    low, high = _buy_ends(table, read)
    ends = list(zip(low.tolist(), high.tolist(), strict=True))
    if numeric:
        target = replace(target, low=ends[-1][0], high=ends[-1][1])
    bounded: dict[str, Column] = {
        column.name: replace(column, low=each[0], high=each[1])
        for column, each in zip(sought, ends[: len(sought)], strict=True)
    }
    return target, [bounded.get(column.name, column) for column in columns]


def buy_histograms(table: TableToMeasure, schema: Schema, found: dict[str, Found]) -> None:
    """Buy counts of numbers and dates in equal bins between their bounds, and add them to what was found.

    Bins of whole numbers are a whole number wide, so that each has as many of them.
    """
    columns: list[NumericColumn | DateColumn] = [each for each in schema.numbers if each.bounds is not None]
    if schema.label.bounds is not None:
        columns.append(NumericColumn(schema.label.column, *schema.label.bounds))
    if not columns or not table.shares.histograms:
        return
    whole = [found.get(column.name, Found("number")).kind == "integer" for column in columns]
    ends = [_ends_of_bins(*(column.bounds or (0.0, 1.0)), each) for column, each in zip(columns, whole, strict=True)]

    def placed(column: NumericColumn | DateColumn, ends: tuple[float, float, int]) -> Bins:
        low, high, bins = ends
        numbers = _numbers_of(column, schema.file.decimal)

        def place(cells: pd.Series) -> NDArray[np.intp]:
            values = numbers(cells).to_numpy()
            there = np.isfinite(values)
            scaled = (np.clip(np.where(there, values, low), low, high) - low) / (high - low)
            return np.where(there, np.minimum(np.floor(scaled * bins), bins - 1), -1).astype(np.intp)

        return place

    gaussian = table.gaussian(table.shares.histograms)
    names = [column.name if column.name in table.frame.columns else None for column in columns]
    read = [(name, placed(column, each)) for name, column, each in zip(names, columns, ends, strict=True)]
    counts = table.buy_bins(gaussian, read, _BINS, "histograms of numbers")
    noise = table.deviation(gaussian, len(columns))
    for column, each, (low, high, bins) in zip(columns, counts, ends, strict=True):
        before, held = found.get(column.name, Found("number")), tuple(each[:bins].tolist())
        found[column.name] = replace(before, histogram=held, ends=(low, high), deviation=noise, levels={})


def _ends_of_bins(low: float, high: float, whole: bool) -> tuple[float, float, int]:
    """Return the ends of equal bins that hold a column, and their number."""
    if not whole or high - low > 2.0**52:
        return low, high, _BINS
    first, last = math.ceil(low), math.floor(high)
    width = -(-(last - first + 1) // _BINS)
    bins = max(1, -(-(last - first + 1) // width))
    return first - 0.5, first + width * bins - 0.5, bins


def _numbers_of(column: Column, decimal: str) -> Callable[[pd.Series], pd.Series]:
    return (
        partial(as_days, form=column.format)
        if isinstance(column, DateColumn)
        else partial(as_numbers, decimal=decimal)
    )


def _buy_ends(
    table: TableToMeasure, read: Sequence[tuple[str | None, Callable[[pd.Series], pd.Series]]]
) -> tuple[Floats, Floats]:
    """Return noisy bounds of columns of numbers; missing cells are in no histogram."""

    def buy_counts(levels: Any, largest: int) -> tuple[Floats, float]:
        gaussian = table.gaussian(table.shares.bounds)
        held: dict[str, Any] = {}

        def placed(column: int) -> Bins:
            def place(part: Any) -> NDArray[np.intp]:
                if column == 0:
                    held["values"] = np.column_stack([numbers(part[name]).to_numpy() for name, numbers in read])
                    held["levels"] = levels.of(held["values"])
                there = np.isfinite(held["values"][:, column])
                return np.where(there, held["levels"][:, column] + largest, -1).astype(np.intp)

            return place

        columns = [placed(column) for column in range(len(read))]
        parts = partial(table.parts, [name for name, _ in read])
        size, said = 2 * largest + 1, "bounds of the columns"
        counts = buy_bins(table.ledger, gaussian, columns, size, said, table.noise, table.units, parts)
        return counts, table.deviation(gaussian, len(read))

    low, high = measured_ends(buy_counts, _Later(), table.rows)
    return low, np.where(high > low, high, low + np.maximum(np.abs(low) * 2.0**-20, 1.0))


class _Later:
    """Cells that are read after the charge: what is to be done with them is noted until then."""

    def __init__(self, *functions: Any) -> None:
        self._functions = functions

    def mapped(self, function: Any) -> _Later:
        """Return the cells after a function of each."""
        return _Later(*self._functions, function)

    def of(self, cells: Floats) -> Any:
        """Return the cells after all functions; a missing one is taken for 0, and counted nowhere."""
        made: Any = np.nan_to_num(cells, nan=0.0)
        for function in self._functions:
            made = function(made)
        return made
