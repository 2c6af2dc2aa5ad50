"""The tables of data sets in the papers: what they print of each, beside what is here. Counts are of public data."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ..datasets import load_dataset
from ..long_runs import Listener
from ..outputs import write_whole
from .report_page import Finding, Matrix, Report, render
from .study import versions
from .summary import cells_of

__all__ = ["DATA_TABLES", "Counted", "DataTable", "Published", "count_data", "write_data"]


@dataclass(frozen=True)
class Published:
    """A line of such a table: what the paper calls a data set, its name here, and what is printed.

    Parameters
    ----------
    shown, dataset : str
    rows, columns : int
        ``columns`` counts the constant one where the paper does.
    baseline : float, optional
        Share of the most frequent class.
    remark : str
        Why ours differs, where it does on purpose.
    """

    shown: str
    dataset: str
    rows: int
    columns: int
    baseline: float | None = None
    remark: str = ""


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
    settings = (("versions", ", ".join(f"{key} {value}" for key, value in versions().items())),)
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
        settings,
        cells=cells,
        command=command,
    )
    write_whole(page, render(report))
    if json_file is not None:
        content = {"figure": table.name, "versions": versions(), "rows": found}
        write_whole(json_file, json.dumps(content, indent=1) + "\n")
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


_US = "IPUMS-US is not to be had: the American Community Survey stands in for it, with other rows, columns and label."
_COUNTED = "Columns count a constant one in tables of two classes, as the papers do."
_KDD = "The 10 percent file stands in for the whole one; its categories have all levels of the whole file."
_LOGARITHMS = (
    "In KDD Cup 1999, durations, byte counts and event counts x are coded as log(1 + x) by public maxima here; the "
    "paper does not state its coding."
)

DATA_TABLES = (
    DataTable(
        "000/table2",
        "Table 2 of Lee & Kifer (2018): data sets",
        f"What the paper prints of its data sets, beside what is here. {_COUNTED} {_LOGARITHMS}",
        (
            Published("Adult", "adult", 48_842, 124),
            Published("BANK", "bank", 45_211, 33),
            Published("IPUMS-US", "acs-income", 40_000, 58, None, _US),
            Published("IPUMS-BR", "ipums-br", 38_000, 53),
            Published("KDDCup99", "kddcup99-dos", 4_898_431, 120, None, _KDD),
        ),
    ),
    DataTable(
        "003/table1",
        "Table 1 of Chen & Lee (2020): data sets",
        f"What the paper prints of its data sets, beside what is here. {_COUNTED} Images are counted with their "
        "published test parts, and the paper's baseline of about 0.1 for ten classes is left out.",
        (
            Published("Adult", "adult", 48_842, 124, 0.761),
            Published("Bank", "bank", 45_211, 33, 0.883),
            Published("IPUMS-BR", "ipums-br", 38_000, 53, 0.507),
            Published("IPUMS-US", "acs-income", 40_000, 58, 0.513, _US),
            Published("MNIST", "mnist", 70_000, 28 * 28),
            Published("FMNIST", "fashion-mnist", 70_000, 28 * 28),
            Published("Cifar-10", "cifar10", 60_000, 3 * 32 * 32, None, "An offline copy may hold a part of them."),
        ),
    ),
)
