"""What papers show, as data: a figure of methods with what is varied and claimed, and a table of data sets.

A table of data sets is counted and written here too; its counts are of public data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from ..datasets import load_dataset
from ..long_runs import Listener
from .fold_fits import Curve, Task
from .method_looks import known_variants, look_of, variant
from .report_page import Finding, Matrix, Report, write_report
from .study import Study, versions, versions_setting
from .verdicts import Claim, Measure, cells_of

# What several figures share: budgets, data sets, and where the data and a rival differ from the papers'.
LADDER = (0.05, 0.1, 0.2, 0.4, 0.8, 1.6)
FOUR = ("adult", "bank", "acs-income", "ipums-br")
STAND_IN = (
    "IPUMS-US is not to be had, so 40,000 rows of acs-income (American Community Survey, NIST excerpts), as many as "
    "it has, stand in for it: other years, areas, columns and label."
)
MODES = "Curves marked (paper) have the settings of the paper; the others are our versions."
INTERCEPT = (
    "`dpdescent methods NAME --paper` prints the settings of a paper mode. An intercept is penalised in paper modes "
    "only, and no objective shown counts that penalty. Where they differ from the papers on purpose:"
)
NO_US = (
    "IPUMS-US is not to be had: the American Community Survey stands in for it, with other rows, columns and label."
)
COUNTED = "Columns count a constant one in tables of two classes, as the papers do."
HINGE = "Curves marked (paper) minimise the hinge where the method can; all others minimise a huberised one."


def four_tasks(loss: str = "logistic") -> tuple[Task, ...]:
    """Return the tasks of the four data sets; the stand-in of IPUMS-US has as many rows as that."""
    return tuple(Task(name, loss, 40_000 if name == "acs-income" else None) for name in FOUR)


@dataclass(frozen=True)
class Scale:
    """How much of a figure is run."""

    epsilons: tuple[float, ...]
    folds_used: int
    seeds: int
    rows: int | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)  # further options, by method
    remark: str = ""


@dataclass(frozen=True)
class Parameter:
    """A setting that a figure varies: its name in ``solver_options``, its name on the axis, and its values.

    The settings in ``also`` take the same value.
    """

    setting: str
    shown: str
    values: tuple[float | str, ...]
    also: tuple[str, ...] = ()


@dataclass(frozen=True)
class Figure:
    """A figure of a paper."""

    name: str
    title: str
    caption: str
    details: tuple[str, ...]  # what differs from the paper
    tasks: tuple[Task, ...]
    #: What the paper compares; those that are not registered are named on the page.
    methods: tuple[str, ...]
    delta: float
    #: Minutes on two processors, or the repetitions of the paper.
    quick: Scale
    full: Scale
    claims: tuple[Claim, ...]
    #: If there are any, each is varied by itself for every method.
    parameters: tuple[Parameter, ...] = ()
    #: Expected size of the batches, and the methods that draw such.
    batch_size: int | None = None
    batched: tuple[str, ...] = ("agd", "agd-paper", "privgene-paper")
    #: Settings of this figure, by method, beside those of its paper mode.
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    #: Parts of the cross-validation, and weight of the L2 penalty.
    folds: int = 5
    alpha: float = 0.0
    measures: tuple[Measure, ...] = ()  # what is shown beside accuracy and objective

    @property
    def missing(self) -> tuple[str, ...]:
        """The methods that are not registered."""
        known = known_variants()
        return tuple(look_of(name).name for name in self.methods if name not in known)

    def study(self, scale: Scale, datasets: tuple[str, ...] = ()) -> Study:
        """Return what is to be measured; ``datasets`` stand in for those of the paper."""
        losses = dict.fromkeys(task.loss for task in self.tasks)
        tasks = tuple(Task(name, loss) for name in datasets for loss in losses) or self.tasks
        known = known_variants()
        curves = [
            Curve(
                name,
                variant(name).method,
                {**variant(name).options, **self.options.get(name, {}), **scale.options.get(name, {})},
                self.batch_size if name in self.batched else None,
                private=variant(name).private,
            )
            for name in self.methods
            if name in known
        ]
        if self.parameters:
            curves = [
                Curve(
                    curve.name,
                    curve.method,
                    {**curve.options, **dict.fromkeys(parameter.also, value)},
                    curve.batch_size,
                    parameter.setting,
                    value,
                )
                for curve in curves
                for parameter in self.parameters
                for value in parameter.values
            ]
        return Study(
            tuple(replace(task, rows=scale.rows or task.rows) for task in tasks),
            tuple(curves),
            scale.epsilons,
            self.delta,
            folds=self.folds,
            seeds=scale.seeds,
            folds_used=scale.folds_used,
            alpha=self.alpha,
        )


@dataclass(frozen=True)
class Published:
    """A line of a table of data sets: what the paper calls a data set, its name here, and what is printed."""

    shown: str
    dataset: str
    #: ``columns`` counts the constant one where the paper does.
    rows: int
    columns: int
    baseline: float | None = None  # share of the most frequent class
    remark: str = ""  # why ours differs, where it does on purpose


@dataclass(frozen=True)
class DataTable:
    """A table of data sets."""

    name: str
    title: str
    caption: str
    lines: tuple[Published, ...]


@dataclass(frozen=True)
class Counted:
    """What is here: rows, columns (with a constant one where there are two classes), rows of the class 1 if so."""

    dataset: str
    rows: int
    columns: int
    positives: int | None
    baseline: float


def count_data(table: DataTable, listener: Listener | None = None) -> list[Counted]:
    """Load every data set of a table and count."""
    counted: list[Counted] = []
    for line in table.lines:
        data = load_dataset(line.dataset)
        two = len(data.classes) == 2
        counts = np.array([np.count_nonzero(data.y == label) for label in data.classes])
        columns = int(np.prod(data.X.shape[1:])) + two
        positives = int(counts[1]) if two else None
        counted.append(Counted(line.dataset, len(data.y), columns, positives, float(counts.max() / len(data.y))))
        if listener is not None:
            listener(len(counted), len(table.lines))
    return counted


def write_data(table: DataTable, counted: list[Counted], page: Path, json_file: Path | None, command: str) -> Report:
    """Write page and rows; return the report, which says line by line whether what is printed is what is here."""
    pairs = list(zip(table.lines, counted, strict=True))
    findings = tuple(_finding(line, found) for line, found in pairs)
    header = (
        *("data set", "here", "rows: paper", "rows: here", "columns: paper", "columns: here"),
        *("rows of class 1: here", "most frequent class: paper", "here"),
    )
    rows = tuple(
        (
            line.shown,
            line.dataset,
            f"{line.rows:,}",
            f"{found.rows:,}",
            f"{line.columns:,}",
            f"{found.columns:,}",
            "–" if found.positives is None else f"{found.positives:,}",
            "–" if line.baseline is None else f"{line.baseline:.3f}",
            f"{found.baseline:.3f}",
        )
        for line, found in pairs
    )
    matrix = Matrix(table.title, header, rows)
    statement = (("all counts", "Not private: they are shown here because the data are public."),)
    found = [asdict(each) for each in counted]
    cells = cells_of(found, ("dataset",), ("rows", "columns", "positives", "baseline"))
    report = Report(
        table.title,
        table.caption,
        "All rows.",
        (),
        findings,
        (matrix,),
        statement,
        (versions_setting(),),
        cells=cells,
        command=command,
    )
    write_report(report, page, json_file, {"figure": table.name, "versions": versions(), "rows": found})
    return report


def _finding(line: Published, found: Counted) -> Finding:
    printed = f"{line.shown}: {line.rows:,} rows, {line.columns:,} columns"
    printed += "" if line.baseline is None else f", {line.baseline:.3f} of them in the most frequent class"
    same = (line.rows, line.columns) == (found.rows, found.columns)
    # A share is printed with three digits.
    same &= line.baseline is None or abs(line.baseline - found.baseline) <= 0.0005 + 1e-9
    remark = f" {line.remark}" if line.remark else ""
    here = f"{found.rows:,} rows, {found.columns:,} columns, {found.baseline:.3f} in the most frequent class"
    return Finding(f"{printed}.", f"{'Agrees' if same else 'Differs'}: {here}.{remark}")
