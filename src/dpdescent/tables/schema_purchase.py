"""Buy a schema: a ledger pays for what a table contains, and the schema says so."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd

from ..accounting import GDP
from ..curator import LatticeNoise, Units
from ..curator.release import public_count
from ..errors import ColumnError, DatasetFormatError, InvalidParameter, MissingColumn, no_such_column
from ..ledger import ONE_ROW, Ledger, require_funds, reserving, unit_in_words
from ..noise import Randomness
from ..statement import Origin, PrivacyStatement, public_fact
from .cell_kinds import as_frame
from .cells_in_blocks import cells_in_blocks
from .columns import CategoricalColumn, Column, HashedColumn, IgnoredColumn, NumericColumn, Unit
from .declaration import Schema
from .encoder import BoundedEncoder
from .measured_schema import (
    Found,
    Shares,
    TableToMeasure,
    buy_histograms,
    measure_columns,
    public_column,
    require_enough,
)
from .text_tables import read_cells_as_text

_PART = 0.45  # of the effective rows that a fit needs, since the whole budget is for the schema


def require_names(frame: pd.DataFrame) -> None:
    """Raise `ColumnError` unless the columns have distinct names that are text."""
    names = list(frame.columns)
    if not all(isinstance(name, str) for name in names):
        raise ColumnError("the names of some columns are no text: rename them, as in X.rename(columns=str)")
    twice = sorted({name for name in names if names.count(name) > 1}) if len(set(names)) < len(names) else []
    if twice:
        raise ColumnError(f"several columns have the names {twice}: rename them, so that each has one of its own")


def measure_schema(
    table: Any,
    label: str | None,
    epsilon: float,
    delta: float,
    *,
    ledger: Ledger | None = None,
    declared: Mapping[str, Column] | None = None,
    classes: Sequence[Any] | None = None,
    regression: bool | None = None,
    adjacency: str = "zero-out",
    random_state: int | None = None,
    histograms: bool = False,
    rest: Any = None,
    unit: str | None = None,
    rows_per_unit: int = 1,
) -> Schema:
    """Return a schema that is measured with a budget of its own.

    Parameters
    ----------
    table : DataFrame of pandas, polars or Dask, table of Arrow, or path
        A path names Parquet files or a text table, which is read in blocks if it is long.
    label : str, optional
        The name of the column to predict. A schema without one is for people to look at, and no fit can use it.
    epsilon, delta : float
        The guarantee of the schema.
    ledger : Ledger, optional
        That pays as well.
    declared : mapping from str to Column, optional
        What a person knows of some columns, which then costs nothing.
    classes : sequence, optional
        The public classes of the label.
    regression : bool, optional
        Whether the label is a number; found out if it is None.
    adjacency : {"zero-out", "replace-one"}
    random_state : int, optional
        For experiments alone.
    histograms : bool
        Whether to measure histograms of numbers, too, for people to look at. Then whatever was found is returned,
        even if no fit can use it.
    rest : class, optional
        One of the given classes: that of a label which is missing or none of the others.
    unit : str, optional
        The name of the column that says whose row it is: all rows of one person are protected together.
    rows_per_unit : int
        How many rows of a unit are used, at most.

    Raises
    ------
    InvalidParameter
        There are too few rows for so many columns at this epsilon; nothing was charged.
    OneClass
        Fewer than two classes of the label were found. The search for them was charged.

    Notes
    -----
    **Privacy** (epsilon, delta)-DP for one row; see `dpdescent.tables.measured_schema`.
    """
    frame, count, blocks = _opened(table)
    if rest is not None and (classes is None or rest not in classes):
        raise InvalidParameter(f"rest must be one of the given classes, got {rest!r}: name both")
    _require_columns(frame, label, unit, rows_per_unit, blocks is None)
    cells = frame.drop(columns=[name for name in (label, unit) if name is not None])
    target, units = None if label is None else frame[label], None
    if unit is not None:
        kept, units = Units.kept(frame[unit], rows_per_unit, count)
        cells, target = cells.iloc[kept], None if target is None else target.iloc[kept]
    known = _known_columns(cells, declared or {})
    protected = ONE_ROW if unit is None else unit_in_words(unit)
    currency = GDP().with_failures() if ledger is None else ledger.currency
    own = Ledger(epsilon, delta, currency=currency, relation=adjacency, unit=protected)
    rows, noise = public_count(count) if units is None else units.count, LatticeNoise(Randomness(random_state))
    require_enough(own, rows, len(cells.columns) - len(known) + 1, _PART)
    if ledger is not None:
        require_funds(ledger, own)
    with nullcontext() if ledger is None else reserving(ledger, own, "measured schema"):
        shares = Shares.of_all(histograms)
        looking = histograms or label is None
        bought = TableToMeasure(cells, target, own, noise, rows, shares, known, units, blocks, looking)
        schema, found = measure_columns(bought, label or "", classes=classes, regression=regression, rest=rest)
        buy_histograms(bought, schema, found)
    schema = replace(schema, unit=None if unit is None else Unit(unit, rows_per_unit))
    said = PrivacyStatement.of_ledger(
        own,
        model="schema",
        method="measured schema",
        randomness=noise.description,
        arithmetic=noise.arithmetic,
        released=(
            "types and missing shares of the columns",
            "levels with noisy counts",
            "classes",
            "bounds",
            *(["histograms of numbers"] if histograms else []),
        ),
        assumed_public=tuple(assumed_facts(rows, known, declared or {}, classes)),
        remarks=tuple(remarks_on(found)),
        account=None if ledger is None else ledger.identity,
    )
    return replace(schema, measured=record_of(found, rows, said.to_dict()))


def _opened(table: Any) -> tuple[pd.DataFrame, int, Callable[[list[str]], Iterable[pd.DataFrame]] | None]:
    """Return a table, its number of rows, and what reads it in blocks if it is not in memory, with an empty table."""
    found = cells_in_blocks(table)
    if found is not None:
        return found.example, found.rows, found.blocks
    frame = as_frame(read_cells_as_text(Path(table)) if isinstance(table, str | Path) else table)
    if frame is None:
        raise InvalidParameter(
            "a schema is measured from a DataFrame of pandas, polars or Dask, a table of Arrow, or the path of one"
        )
    if not len(frame):
        raise DatasetFormatError("the table has no rows: there is nothing to find out")
    return frame, len(frame), None


def _require_columns(
    frame: pd.DataFrame, label: str | None, unit: str | None, rows_per_unit: int, in_memory: bool
) -> None:
    """Raise what is wrong with the names of the columns, of the label and of units."""
    require_names(frame)
    for what, name in (("the label column", label), ("the column of units", unit)):
        if name is not None and name not in frame.columns:
            raise no_such_column(what, name, frame.columns)
    if unit is None and rows_per_unit != 1:
        raise InvalidParameter("rows_per_unit is for units of several rows: name the column of units, too")
    if unit is not None and (not in_memory or unit == label):
        raise InvalidParameter("units are a column beside the label of a table in memory: pass a shorter table")


def _known_columns(cells: pd.DataFrame, declared: Mapping[str, Column]) -> dict[str, Column]:
    """Return what is public of columns: what is declared, or else what their storage types say."""
    found = {name: public_column(name, cells[name]) for name in cells.columns}
    known: dict[str, Column] = {name: stored for name, stored in found.items() if stored is not None} | dict(declared)
    unknown = [name for name in known if name not in cells.columns]
    if unknown:
        raise MissingColumn(f"declared names the columns {unknown}, which are not there: correct their names")
    return known


def measure_encoder(encoder: BoundedEncoder, table: Any) -> tuple[Schema, BoundedEncoder]:
    """Buy what an encoder does not declare of a table; return the schema, and the fitted encoder that follows.

    **Privacy** (epsilon, delta)-DP for one row of the table, where these are the encoder's; see `measure_schema`.
    """
    if encoder.epsilon is None:
        raise InvalidParameter("measure=True needs epsilon: what finding out what the columns contain may cost")
    frame = as_frame(pd.DataFrame(dict(table)) if isinstance(table, Mapping) else table)
    if frame is None:
        raise InvalidParameter(
            "an encoder codes a DataFrame of pandas or polars, or a table of Arrow, in memory: Schema.measure takes "
            "others, too, and dpdescent.tables.open_parquet codes files by the schema that it returns"
        )
    declared: dict[str, Column] = {name: IgnoredColumn(name) for name in encoder.ignore}
    declared |= {
        name: NumericColumn(name, *pair, missing=encoder.choice("missing", name))
        for name, pair in (encoder.bounds or {}).items()
        if pair is not None
    }
    for name, levels in (encoder.levels or {}).items():
        choices = {what: encoder.choice(what, name) for what in ("missing", "unknown")}
        declared[name] = CategoricalColumn(name, tuple(levels), **choices)
    for name, buckets in (encoder.hashed or {}).items():
        declared[name] = HashedColumn(name, buckets, missing=encoder.choice("missing", name))
    schema = measure_schema(
        frame,
        None,
        encoder.epsilon,
        encoder.delta,
        ledger=encoder.ledger,
        declared=declared,
        adjacency=encoder.adjacency,
        random_state=encoder.random_state,
    )
    coder = schema.encoder(sparse_output=encoder.sparse_output)
    return schema, coder.fit(schema.with_days(frame.iloc[:0]))


def record_of(found: Mapping[str, Found], rows: int, statement: Mapping[str, Any] | None = None) -> dict[str, Any]:
    """Return what a schema says of its measurement."""
    columns = {name: each.to_dict() for name, each in found.items()}
    return {"rows": rows, "columns": columns} | ({} if statement is None else {"statement": dict(statement)})


def assumed_facts(
    rows: int, known: Mapping[str, Column], declared: Mapping[str, Column], classes: Sequence[Any] | None
) -> list[str]:
    """Return what was public of a table whose schema is measured."""
    stored = [name for name in known if name not in declared]
    return [
        public_fact("the number of rows", str(rows), Origin.RELATION),
        public_fact("columns", "their names and storage types", Origin.ARGUMENT),
        *([public_fact("categories", f"the levels of {', '.join(stored)}", Origin.ARGUMENT)] if stored else []),
        *([public_fact("declared", f"what {', '.join(declared)} contain", Origin.ARGUMENT)] if declared else []),
        *([public_fact("classes", f"{len(classes)} of them", Origin.ARGUMENT)] if classes is not None else []),
    ]


def remarks_on(found: Mapping[str, Found]) -> list[str]:
    """Return one sentence for each column: what was found in it. All numbers are noisy and paid for."""
    told = []
    for name, each in found.items():
        parts = [{"integer": "whole numbers", "number": "numbers", "date": "dates"}.get(each.kind, each.kind)]
        if each.levels and (each.kind != "integer" or each.is_coded or each.reason):
            several = "1 level that covers" if len(each.levels) == 1 else f"{len(each.levels)} levels that cover"
            parts.append(f"{several} {each.coverage:.0%}")
        if each.missing > 0:
            other = " or of another kind" if each.kind in ("integer", "number", "date") else ""
            parts.append(f"{each.missing:.0%} missing{other}")
        told.append(f"column {name!r}: {', '.join(parts)}" + (f"; ignored: {each.reason}" if each.reason else ""))
    return told
