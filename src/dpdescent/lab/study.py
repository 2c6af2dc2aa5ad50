"""A study: which cells are measured, how often they are repeated, and the record of what was found in them."""

from __future__ import annotations

import hashlib
import io
import json
import os
import platform
import shlex
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields, replace
from operator import attrgetter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import scipy
import sklearn

import dpdescent

from ..datasets import is_data_path, list_datasets
from ..errors import (
    InvalidParameter,
    UnknownDataset,
    require_nonnegative,
    require_open_unit,
    require_positive,
    require_positive_integer,
)
from ..long_runs import Journal, Listener, measure_tasks, processors, write_whole
from ..relations import Relation
from .fold_fits import LOSSES, Cell, Curve, Row, Task, load_task, measure
from .method_looks import nearest, oracle_variants, variant

FORMAT = "dpdescent-comparison"

#: How every output marks a comparison on rows that are not public.
NOT_PRIVATE = (
    "NOT PRIVATE: these scores were computed on the rows of a file that is not public, and no budget has paid for "
    "them. Do not publish them, and do not choose by them what is released."
)
_ARROW = {"int": pa.int64(), "float": pa.float64(), "bool": pa.bool_()}


@dataclass(frozen=True)
class Study:
    """Tasks x curves x epsilons x folds x seeds, under one delta and one relation."""

    tasks: tuple[Task, ...]
    curves: tuple[Curve, ...]
    epsilons: tuple[float, ...]
    delta: float
    folds: int = 5  # parts of the cross-validation
    seeds: int = 1  # repetitions: each shuffles the rows anew, and seeds its noise from its cell
    #: Measure only the first folds of each repetition, which keeps the size of the training part.
    folds_used: int | None = None
    alpha: float = 0.0  # weight of the L2 penalty
    adjacency: str = "zero-out"

    def __post_init__(self) -> None:
        for name in ("tasks", "curves", "epsilons"):
            if not getattr(self, name):
                raise InvalidParameter(f"a comparison needs {name}: name at least one")
        for epsilon in self.epsilons:
            require_positive("epsilon", epsilon)
        if self.delta != 0:
            require_open_unit("delta", self.delta)
        require_nonnegative("alpha", self.alpha)
        require_positive_integer("seeds", self.seeds)
        if require_positive_integer("folds", self.folds) < 2:
            raise InvalidParameter("folds must be at least 2: one part is kept for testing")
        Relation.parse(self.adjacency)
        for task in self.tasks:
            if task.loss not in LOSSES:
                raise InvalidParameter(f"unknown loss {task.loss!r}{nearest(task.loss, LOSSES)}")
            _require_known(task.dataset)

    @property
    def fingerprint(self) -> str:
        """What tells these settings, under this release, from any other."""
        text = json.dumps([dpdescent.__version__, asdict(self)], sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]

    @staticmethod
    def any_cells() -> str:
        """Return what tells a journal of a figure from one of another release.

        The key of a cell says all that its numbers depend on, so that a figure that is run to a larger extent, with
        another method or with other claims finds the cells that it has in common with an earlier one.
        """
        return hashlib.sha256(f"{dpdescent.__version__} cells".encode()).hexdigest()[:16]

    @property
    def public(self) -> bool:
        """Whether all rows are public: scores on other rows are paid for by no budget."""
        return all(task.public for task in self.tasks)

    def cells(self) -> list[Cell]:
        """Return what has to be measured, data set by data set; what has no budget, at one epsilon only."""
        return [
            Cell(task, curve, epsilon, self.delta, fold, self.folds, seed, self.alpha, self.adjacency)
            for task in self.tasks
            for seed in range(self.seeds)
            for fold in range(min(self.folds, self.folds_used or self.folds))
            for epsilon in self.epsilons
            for curve in self.curves
            if curve.private or epsilon == self.epsilons[0]
        ]

    def rows(self, measured: Iterable[Row]) -> tuple[Row, ...]:
        """Return the rows of the study in its own order: one per cell, and per oracle the best of its grid."""
        spread = [
            replace(row, epsilon=epsilon)
            for row in measured
            for epsilon in ((row.epsilon,) if row.private else self.epsilons)
        ]
        datasets = [task.dataset for task in self.tasks]
        places = {(curve.name, curve.parameter, curve.value): k for k, curve in enumerate(self.curves)}
        return tuple(
            sorted(
                [row for row in spread if not row.oracle] + _best([row for row in spread if row.oracle]),
                key=lambda row: (
                    datasets.index(row.dataset),
                    row.loss,
                    places[row.method, row.parameter, row.value],
                    row.epsilon,
                    row.seed,
                    row.fold,
                ),
            )
        )


def curves_of(names: Sequence[str], *, oracle: bool = False) -> tuple[Curve, ...]:
    """Return the curves of methods by name and, if asked to, every point of the grids an oracle searches."""
    variants = [(variant(name), False) for name in dict.fromkeys(names)]
    if oracle:
        variants += [(point, True) for name in dict.fromkeys(names) for point in oracle_variants(name)]
    return tuple(
        Curve(point.name, point.method, dict(point.options), private=point.private, oracle=searched)
        for point, searched in variants
    )


def versions() -> dict[str, Any]:
    """Return the software and the machine."""
    return {
        "dpdescent": dpdescent.__version__,
        "python": platform.python_version(),
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "platform": platform.platform(),
        "processors": os.cpu_count(),
    }


def versions_setting() -> tuple[str, str]:
    """Return the software and the machine as a setting of a page."""
    return "versions", ", ".join(f"{name} {value}" for name, value in versions().items())


def command_line() -> tuple[tuple[str, str], ...]:
    """Return the command that is being run, with its name, or nothing where no command is."""
    program = Path(sys.argv[0])
    if program.name != "dpdescent" and program.parent.name != "dpdescent":
        return ()
    return (("command", shlex.join(["dpdescent", *sys.argv[1:]])),)


@dataclass(frozen=True)
class Record:
    """The rows of a study with everything needed to read them: settings and versions."""

    study: Study
    rows: tuple[Row, ...]

    def to_json(self) -> str:
        """Return the record as JSON text."""
        return (
            json.dumps(self._head() | {"rows": [asdict(row) for row in self.rows]}, indent=1, allow_nan=False) + "\n"
        )

    def _head(self) -> dict[str, Any]:
        head = {"format": FORMAT, "version": 1, "settings": asdict(self.study), "versions": versions()}
        return head if self.study.public else head | {"private": False, "warning": NOT_PRIVATE}

    def write_parquet(self, path: Path) -> None:
        """Write the rows as Parquet; settings and versions are in the metadata of the file."""
        columns, types = {}, []
        for field in fields(Row):
            kind = str(field.type).removesuffix(" | None")
            values = [getattr(row, field.name) for row in self.rows]
            columns[field.name] = (
                values
                if kind in ("int", "float", "bool", "str")
                else [None if value is None else json.dumps(value) for value in values]
            )
            types.append((field.name, _ARROW.get(kind, pa.string())))
        schema = pa.schema(types, metadata={"dpdescent": json.dumps(self._head())})
        sink = io.BytesIO()
        pq.write_table(pa.table(columns, schema=schema), sink)
        write_whole(path, sink.getvalue())


def _best(rows: Sequence[Row]) -> list[Row]:
    """Return, for each oracle at each task and epsilon, the rows of the options with the best test accuracy."""
    groups: dict[tuple[str, str, str, float], dict[str, list[Row]]] = {}
    for row in rows:
        group = groups.setdefault((row.dataset, row.loss, row.method, row.epsilon), {})
        group.setdefault(json.dumps(dict(row.options), sort_keys=True), []).append(row)

    def mean(candidates: list[Row]) -> float:
        return float(np.mean([-1.0 if row.accuracy is None else row.accuracy for row in candidates]))

    return [row for group in groups.values() for row in max(group.values(), key=mean)]


def _require_known(name: str) -> None:
    known = [info.name for info in list_datasets()]
    if name not in known and not is_data_path(name):
        raise UnknownDataset(f"there is no data set {name!r}{nearest(name, known)}")


def run(
    study: Study, *, jobs: int | None = None, journal: Journal[Row] | None = None, listener: Listener | None = None
) -> Record:
    """Measure every cell of a study that its journal does not hold yet, by default on all processors."""
    for task in {(task.dataset, task.rows): task for task in study.tasks}.values():
        rows = len(load_task(task, download=True).y)
        if rows < study.folds:
            raise InvalidParameter(f"{task.dataset} has {rows} rows, too few for {study.folds} folds")
    jobs = require_positive_integer("jobs", jobs or processors())
    key = attrgetter("key")
    return Record(
        study, study.rows(measure_tasks(study.cells(), key, measure, jobs=jobs, journal=journal, listener=listener))
    )


def require_repetitions(full: bool, repetitions: int | None) -> None:
    """Raise unless a number of repetitions, if there is one, is positive and that of a full run."""
    if repetitions is None:
        return
    require_positive_integer("repetitions", repetitions)
    if not full:
        raise InvalidParameter("repetitions are those of a full run: add --full, or leave --repetitions out")


def repeated(count: int, published: int, unit: str = "repetitions") -> str:
    """Return in words how many of the paper's repetitions were run."""
    if count == published:
        return f"{count:,} {unit}, as in the paper"
    if count < published:
        return f"{count:,} of the paper's {published:,} {unit}"
    return f"{count:,} {unit}, where the paper has {published:,}"
