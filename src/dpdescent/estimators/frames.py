"""A fit of a table of which nothing is known but the names and storage types of its columns.

What the columns contain is bought with a part of the fit's own budget (`dpdescent.tables.measured_schema`), the table
is coded by the schema that follows, and the fit goes on with what is left. The model keeps the schema as ``schema_``,
codes by it what it is to predict, and states what was found.

**Privacy** One ledger pays for all. Everything that can be refused without reading a cell is refused before the first
charge: the fit is planned once on a table of zeros. Rows are coded by released answers alone, each by itself.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pandas as pd
from sklearn.base import RegressorMixin

from ..curator import LatticeNoise, Units
from ..curator.kept_rows import changed
from ..curator.release import public_count
from ..errors import InvalidParameter, MissingValue
from ..ledger import Ledger, require_funds
from ..solvers import Facts, Method, Settings
from ..statement import Origin, moved, name_of
from ..tables import CategoricalColumn, CellsInBlocks, Column, Label, NumericColumn, Schema
from ..tables.cell_kinds import as_levels, as_numbers
from ..tables.cells_in_blocks import labelled
from ..tables.measured_schema import (
    Shares,
    TableToMeasure,
    effective_rows,
    measure_columns,
    public_column,
    require_enough,
)
from ..tables.schema_purchase import assumed_facts, record_of, remarks_on, require_names
from .knowledge import Table
from .payment import open_ledger
from .reading import require_units, sorted_classes, split_units
from .streaming import require_streamable

_LABEL = "y"
_MANY = 2**27  # cells of a coded table that is kept sparse
_BLOCK = 4096  # rows; a table of fewer is coded as one of so many, as the blocks of an evaluation must be


class MeasuredFit:
    """What a fit buys before its method begins, and the table that it then fits.

    ``frame`` is **unreleased data**, but for names and storage types; ``y`` and ``unit`` are as ``fit`` has them.
    """

    def __init__(
        self, model: Any, method: Method, settings: Settings, noise: LatticeNoise, frame: Any, y: Any, unit: Any
    ) -> None:
        self.model, self.noise, self.blocks = model, noise, None
        if not isinstance(frame, pd.DataFrame):
            self.blocks = _in_blocks(model, method, frame, y, unit)
            frame, y = self.blocks.example.drop(columns=[self.blocks.label]), self.blocks.example[self.blocks.label]
        if y is None:
            raise InvalidParameter("fit requires y to be passed, but the target y is None")
        if getattr(model, "monotonic_cst", None) is not None:
            raise InvalidParameter(
                "monotonic_cst is about columns of numbers, and which columns are numbers is measured here: code the "
                "table by a schema first, or leave it out"
            )
        if not method.private:
            raise InvalidParameter(
                f"method {model.method!r} is not private and measures nothing: code the table by a schema first"
            )
        cells, self.unit, self.protected = split_units(frame, model.unit, unit)
        require_units(model, method, self.unit is not None)
        if getattr(model, "knots", None) is not None:
            raise InvalidParameter(
                "knots lie between bounds, which are measured here with all that the columns contain: declare the "
                "columns in a schema, or leave knots out"
            )
        require_names(cells)
        self._frame: pd.DataFrame = cells
        if len(y) != len(cells):
            raise InvalidParameter("X and y have different numbers of rows: pass one label for each row")
        self._label = _label_of(y, cells.index)
        self._units: Units | None = None
        if self.unit is not None:
            kept, self._units = Units.kept(self.unit, model.rows_per_unit, len(cells))
            self._kept = kept
        held = len(cells) if self.blocks is None else self.blocks.rows
        self.rows = public_count(held) if self._units is None else self._units.count
        self._require_label()
        self._known: dict[str, Column] = {
            name: stored for name in cells.columns if (stored := public_column(name, cells[name])) is not None
        }
        self._regression = isinstance(model, RegressorMixin)
        self.own = self._open(method, settings)
        self._bought = len(cells.columns) - len(self._known) + 1
        require_enough(self.own, self.rows, self._bought)
        if model.ledger is not None:
            require_funds(model.ledger, self.own)

    def _require_label(self) -> None:
        """Raise what is wrong with labels by how they are stored, before they are searched for classes."""
        if isinstance(self.model, RegressorMixin) or self.model.classes is not None:
            return
        if self._label.dtype.kind in "mMc":
            raise InvalidParameter(
                f"the labels are stored as {self._label.dtype}, which are no classes: make classes of them"
            )
        if public_column(_LABEL, self._label) is not None and self._label.isna().any():
            raise MissingValue("y has missing labels beside its public classes: remove such rows beforehand")

    def _open(self, method: Method, settings: Settings) -> Ledger:
        model = self.model
        facts = Facts(model.epsilon, model.delta, model.adjacency, self.rows, 1, model.rows_per_unit)
        own = open_ledger(model.method, method, settings, model.solver_options, facts, model.ledger, self.protected)
        if model.ledger is not None:
            return own
        kept = own.currency.with_failures()
        return Ledger(own.epsilon, own.delta, currency=kept, relation=str(own.relation), unit=own.unit)

    def rehearsal(self) -> tuple[Any, Table]:
        """Return a copy of the model and a table of zeros, to plan the fit before anything is charged."""
        model = copy.copy(self.model)
        model.bounds, model.tighten, model.ledger, model.unit = (0.0, 1.0), False, None, None
        held = self.rows if self._units is None else self._kept.size
        divisor = self.rows if self._units is None else self._units.divisor(self.model.rows)
        labels = self._labels if self._units is None else self._labels[self._kept]
        if not self._regression and self.model.classes is None:
            model.classes = (0, 1)
            labels = np.resize(np.array([0, 1]), held if self.blocks is None else 0)
        if self.blocks is not None:
            self._read_labels(copy.copy(model), self.blocks)
        zeros = np.broadcast_to(0.0, (held, self._frame.shape[1]))
        return model, Table(zeros, labels, None, self._units, None, self.protected, divisor)

    def _read_labels(self, reader: Any, table: CellsInBlocks) -> None:
        """Raise what is wrong with the labels of a table in blocks, if it is public what they may be."""
        stored, known = public_column(_LABEL, self._label), self.model.classes if not self._regression else None
        if known is None and isinstance(stored, CategoricalColumn) and not self._regression:
            known = stored.levels
        if table.rest is not None or (known is None and not self._regression):
            return
        classes = None if known is None else tuple(sorted_classes(known).tolist())
        if classes is not None:
            reader.classes = classes
        anything = NumericColumn(self._frame.columns[0], 0.0, 1.0)
        schema = Schema((anything,), Label(table.label, classes), unreadable="missing")
        for block in table.blocks([table.label]):
            reader._loss_and_labels(schema.labels(block))

    def buy(self) -> tuple[Any, Any, Any]:
        """Buy the schema; return a copy of the model for the coded table, the coded table, and its labels."""
        effective = effective_rows(self.own, self.rows)
        shares = Shares.of_fit(effective, self._bought)
        frame, label = self._frame, self._label
        if self._units is not None:
            frame, label = frame.iloc[self._kept], label.iloc[self._kept]
        target = None if self._regression else label
        blocks, rest = (None, None) if self.blocks is None else (self.blocks.blocks, self.blocks.rest)
        who = self.own, self.noise, self.rows
        bought = TableToMeasure(frame, target, *who, shares, self._known, self._units, blocks)
        classes = None if self._regression else self.model.classes
        named = _LABEL if self._label.name in (None, "", *frame.columns) else str(self._label.name)
        schema, self.found = measure_columns(bought, named, classes=classes, regression=self._regression, rest=rest)
        self.schema = replace(schema, measured=record_of(self.found, self.rows))
        model = copy.copy(self.model)
        coded, names = self._coded()
        model.ledger, model.unit, model.tighten = None, None, False
        model.bounds, model.binary_features = names["bounds"], names["binary"]
        self._names = model._coded_names = names["names"]
        if getattr(model, "inference", False) and isinstance(coded, np.ndarray):
            coded = pd.DataFrame(coded, columns=self._names)  # the names tell levels of one column
        if not self._regression and self.model.classes is None:
            model.classes = np.array(self.schema.label.classes)
            model.inference = model.inference and len(model.classes) == 2  # the schema is paid for by now
        if self.blocks is not None:
            return model, coded, None
        if self._regression or self.model.classes is not None:
            return model, coded, self._labels
        table = pd.DataFrame({self.schema.label.column: self._label})
        return model, coded, self.schema.labels(table)

    def _coded(self) -> tuple[Any, dict[str, Any]]:
        """Return the table coded by the schema, and what is public of the code."""
        if self.blocks is None:
            places = self.rows if self._units is None else self._units.places
            return coded_cells(self.schema, self._frame, places)
        coded: Any = self.blocks.coded(self.schema)
        if coded.shape[0] != self.blocks.rows:
            raise changed()
        public = {"bounds": coded.bounds, "binary": coded.binary_features}
        return coded, public | {"names": np.array(coded.feature_names, dtype=object)}

    @property
    def _labels(self) -> Any:
        """The labels as they are, in the types of given classes, or as numbers for a regression."""
        if self._regression:
            return as_numbers(self._label).to_numpy() if _is_text(self._label) else self._label.to_numpy()
        given = [] if self.model.classes is None else sorted_classes(self.model.classes).tolist()
        if not given or not _is_text(self._label):
            return self._label.to_numpy()
        read = as_levels(self._label, given)
        return read.to_numpy() if read.isna().any() else np.array(read.tolist())

    def remarks(self) -> list[str]:
        """Return what a statement says of the columns."""
        rest = self.schema.label.rest
        other = [] if rest is None else [f"a label that is none of the classes found counts as {rest!r}"]
        found = self.schema.label.classes or ()
        if getattr(self.model, "inference", False) and len(found) > 2:
            other.append(
                f"{len(found)} classes were found, and intervals are known for two: none were "
                "bought, and this budget went to the fit; for intervals name two classes, or fit one class against "
                "the rest"
            )
        return [*remarks_on(self.found), *other]

    def keep(self, fitted: Any) -> None:
        """Take what was learnt from the copy, and say in the statement what was found and what was public."""
        model, given = self.model, {each.name for each in fields(self.model)} | {"_coded_names"}
        for name, value in vars(fitted).items():
            if name not in given:
                setattr(model, name, value)
        model.schema_ = self.schema
        model.feature_names_in_ = np.array(self._names, dtype=object)
        assumed = moved(model.privacy_["assumed_public"], ("bounds", "binary_features"), Origin.MEASURED)
        if not self._regression and self.model.classes is None:
            stored = isinstance(public_column(_LABEL, self._label), CategoricalColumn)
            assumed = assumed if stored else moved(assumed, ("classes",), Origin.MEASURED)
        tighten = self.model.tighten is None  # the copy's own setting, and nobody's argument
        assumed = [each for each in assumed if not (tighten and name_of(each) == "tighten")]
        facts = _unsaid(assumed_facts(self.rows, self._known, {}, None), assumed)
        account = {} if model.ledger is None else {"account": model.ledger.identity}
        model.privacy_ = model.privacy_ | {"assumed_public": [*facts, *assumed]} | account


def _in_blocks(model: Any, method: Method, table: Any, y: Any, unit: Any) -> CellsInBlocks:
    """Return a table that is read in blocks, or raise what no such table can be fitted with."""
    require_streamable(method, model.unit if unit is None else unit)
    if model.bounds is not None or model.binary_features is not None:
        raise InvalidParameter("what the columns of this table contain is measured: leave bounds and such out")
    return labelled(table, y)


def _label_of(y: Any, index: pd.Index) -> pd.Series:
    """Return labels as a column; those of a list keep their types, so that no row decides the type of others."""
    if isinstance(y, pd.DataFrame) and y.shape[1] == 1:
        y = y.iloc[:, 0]
    if type(y).__module__.partition(".")[0] == "pyarrow" and hasattr(y, "to_pandas"):
        y = y.to_pandas()
    cells = y.array if isinstance(y, pd.Series) else y
    if not isinstance(cells, np.ndarray | pd.api.extensions.ExtensionArray):
        cells = pd.Series(list(cells), dtype=object).array
    if getattr(cells, "ndim", 1) != 1:
        raise InvalidParameter("y should be a 1d array, with one label for each row")
    return pd.Series(cells, index=index, name=getattr(y, "name", None))


def _is_text(label: pd.Series) -> bool:
    return label.dtype == object or isinstance(label.dtype, pd.StringDtype) or label.dtype.kind in "UT"


def _unsaid(facts: Iterable[str], said: Iterable[str]) -> list[str]:
    named = {name_of(each) for each in said}
    return [each for each in facts if name_of(each) not in named]


def coded_cells(schema: Schema, frame: pd.DataFrame, rows: int) -> tuple[Any, dict[str, Any]]:
    """Return a table coded by a measured schema, and what is public of the code.

    **Privacy** ``rows`` is a public number. It decides whether the code is sparse, which changes the last bits of
    scores and which errors are known. How many rows units have does not.
    """
    encoder = schema.encoder()
    chosen = frame[[name for name in schema.features if name in frame.columns]]
    encoder.fit(schema.with_days(chosen))
    if max(rows, _BLOCK) * len(encoder.binary_features_) > _MANY:
        encoder.sparse_output = True
    coded = encoder.transform(schema.with_days(chosen))
    bounds = encoder.output_bounds_
    return coded, {"bounds": bounds, "binary": encoder.binary_features_, "names": encoder.get_feature_names_out()}
