"""What is publicly known about a table, as a value."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ..errors import ColumnTypeError, MissingColumn, MissingValue, UnknownLevel
from ..statement import Origin, public_fact
from .cell_kinds import as_days, as_levels, as_numbers
from .cells import ANY_DATE, date_values, level_codes, numeric_values, replace_columns
from .columns import (
    CategoricalColumn,
    Column,
    DateColumn,
    HashedColumn,
    IgnoredColumn,
    Label,
    NumericColumn,
    Unit,
    require_sound,
)
from .encoder import MISSING, UNKNOWN, BoundedEncoder

UNREADABLE = ("error", "missing")


@dataclass(frozen=True)
class FileFormat:
    """How a text file is written, where the reader cannot tell."""

    #: What stands between cells. By default that of ``,``, ``;``, tab and ``|`` by which the first line has the names
    #: of the columns.
    separator: str | None = None
    encoding: str | None = None  # by default UTF-8, or UTF-16 where the file starts with its mark
    decimal: str = "."  # what stands before the decimals of a number: a point or a comma

    def __post_init__(self) -> None:
        require_sound(self.problems("file"))

    def problems(self, place: str) -> Iterator[str]:
        """Yield what is wrong with the declaration, each with its place in the file."""
        if self.separator is not None and (not isinstance(self.separator, str) or len(self.separator) != 1):
            yield f"{place}.separator: must be one character such as ; got {self.separator!r}"
        if self.decimal not in (".", ","):
            yield f"{place}.decimal: must be . or , got {self.decimal!r}"
        if self.encoding is not None:
            try:
                "".encode(self.encoding)
            except (LookupError, TypeError):
                yield f"{place}.encoding: must be an encoding such as latin-1 or utf-8, got {self.encoding!r}"


@dataclass(frozen=True)
class Schema:
    """Public knowledge about a table: bounds, levels, classes and, if it is public, the number of rows.

    Parameters
    ----------
    columns : tuple of NumericColumn, DateColumn, CategoricalColumn, HashedColumn or IgnoredColumn
        Every column of the table except the label, in any order.
    label : Label
        The label column.
    rows : int, optional
        The public number of rows. A file with another number is refused, for instance one that was cut off in a copy.
    unit : Unit, optional
        The column that says whose row it is, where the unit of privacy is all rows of one person.
    missing : {"error", "midpoint", "level"}
        What is done with a missing cell of a column that does not say it itself; see `BoundedEncoder`.
    unknown : {"error", "zero", "other"}
        What is done with a cell outside the levels of a column that does not say it itself.
    file : FileFormat
        How a text file is written, where the reader cannot tell.
    unreadable : {"error", "missing"}
        What is done with a cell that is no number in a column of numbers, or no date in one of dates: an error, or it
        counts as missing.
    measured : mapping, optional
        What was measured, and its privacy statement, where the schema was not written by a person; see `measure`.

    Notes
    -----
    **Privacy.** Unless it was measured, a schema is an assumption: whoever writes it vouches that every number in it
    was known without looking at the table. Only `labels`, `with_days`, `measure` and the encoder read cells. Bounds
    that are left out, of columns or of a label without classes, are measured by a fit, and paid for.

    The file format is a JSON object::

        {"columns": {"age": {"type": "numeric", "low": 17, "high": 90},
                     "pay": {"type": "numeric"},
                     "hired": {"type": "date", "low": "1980-01-01", "high": "2030-01-01"},
                     "job": {"type": "categorical", "levels": ["clerk", "nurse"], "unknown": "other"},
                     "town": {"type": "hashed", "buckets": 64, "missing": "level"},
                     "id":  {"type": "ignore"}},
         "label": {"column": "income", "classes": ["<=50K", ">50K"]},
         "rows": 48842,
         "unit": {"column": "id", "rows": 3}}

    Examples
    --------
    >>> schema = Schema((NumericColumn("age", 17, 90),), Label("income", ("low", "high")), rows=100)
    >>> schema.features
    ('age',)
    >>> Schema.from_dict(schema.to_dict()) == schema
    True
    """

    columns: tuple[Column, ...]
    label: Label
    rows: int | None = None
    unit: Unit | None = None
    missing: str = "error"
    unknown: str = "error"
    file: FileFormat = field(default_factory=FileFormat)
    unreadable: str = "error"
    measured: Mapping[str, Any] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        require_sound(self.problems())

    def problems(self) -> Iterator[str]:
        """Yield what is wrong with the schema as a whole, each with its place in the file."""
        names = [column.name for column in self.columns]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            yield f"columns {twice} are declared twice: keep one declaration each"
        if self.label.column in names:
            yield f"column {self.label.column!r} is the label and is also listed under columns: remove it there"
        if not self.features and self.label.column:  # without a label it is for people to look at
            yield "columns: at least one column must have another type than ignore"
        if self.unit is not None and self.unit.column in (*self.features, self.label.column):
            yield f"unit.column: {self.unit.column!r} is a feature or the label: declare it as ignored"
        whole = isinstance(self.rows, int) and not isinstance(self.rows, bool)
        if self.rows is not None and not (whole and self.rows >= 1):
            yield "rows: must be a whole number of at least 1, or be left out if it is not public"
        for key, known in (("missing", MISSING), ("unknown", UNKNOWN), ("unreadable", UNREADABLE)):
            if getattr(self, key) not in known:
                yield f"{key}: must be one of {', '.join(known)}, got {getattr(self, key)!r}"
        for column in self.numbers:
            if column.bounds is None and (column.missing or self.missing) == "midpoint":
                yield (
                    f"columns.{column.name}: without low and high there is no midpoint to put in place of a missing "
                    "cell: give both, or choose missing level or error for this column"
                )

    @property
    def features(self) -> tuple[str, ...]:
        """Names of the columns that are used, in the order declared."""
        return tuple(column.name for column in self.columns if not isinstance(column, IgnoredColumn))

    @property
    def numeric(self) -> tuple[NumericColumn, ...]:
        """The numeric columns."""
        return tuple(column for column in self.columns if isinstance(column, NumericColumn))

    @property
    def dates(self) -> tuple[DateColumn, ...]:
        """The columns of dates."""
        return tuple(column for column in self.columns if isinstance(column, DateColumn))

    @property
    def numbers(self) -> tuple[NumericColumn | DateColumn, ...]:
        """The columns that become one number: numeric ones and dates."""
        return tuple(column for column in self.columns if isinstance(column, NumericColumn | DateColumn))

    @property
    def categorical(self) -> tuple[CategoricalColumn, ...]:
        """The categorical columns."""
        return tuple(column for column in self.columns if isinstance(column, CategoricalColumn))

    @property
    def hashed(self) -> tuple[HashedColumn, ...]:
        """The hashed columns."""
        return tuple(column for column in self.columns if isinstance(column, HashedColumn))

    @property
    def to_measure(self) -> tuple[str, ...]:
        """The columns whose bounds nobody knows, which a fit measures and pays for."""
        return tuple(column.name for column in self.numbers if column.bounds is None)

    def choosing(self, *, missing: str | None = None, unknown: str | None = None) -> Schema:
        """Return the schema with another choice for missing and for unknown cells, in all columns."""
        given = {"missing": missing, "unknown": unknown}
        chosen: dict[str, Any] = {key: value for key, value in given.items() if value is not None}
        columns: list[Column] = []
        for column in self.columns:
            silent: dict[str, Any] = {key: None for key in chosen if hasattr(column, key)}
            columns.append(replace(column, **silent))
        return replace(self, columns=tuple(columns), **chosen)

    def without_bounds(self) -> Schema:
        """Return the schema with no bounds of the columns of numbers and dates, so that a fit measures them."""
        columns = tuple(
            replace(column, low=None, high=None) if isinstance(column, NumericColumn | DateColumn) else column
            for column in self.columns
        )
        return replace(self, columns=columns)

    def without_target_bounds(self) -> Schema:
        """Return the schema with no bounds of a number that is to be predicted, so that a fit measures them."""
        return replace(self, label=replace(self.label, low=None, high=None))

    def encoder(
        self,
        *,
        unknown: str | None = None,
        missing: str | None = None,
        ignore: Sequence[str] = (),
        sparse_output: bool = False,
    ) -> BoundedEncoder:
        """Return the encoder this schema describes; it skips the label, ignored columns and those of ``ignore``."""
        schema = self.choosing(missing=missing, unknown=unknown)
        ignored = [column.name for column in schema.columns if isinstance(column, IgnoredColumn)]
        skipped = [name for name in ignore if name not in schema.features]
        if self.unit is not None:
            skipped.append(self.unit.column)
        return BoundedEncoder(
            bounds={column.name: column.bounds for column in schema.numbers},
            levels={column.name: column.levels for column in schema.categorical},
            hashed={column.name: column.buckets for column in schema.hashed},
            ignore=(*ignored, self.label.column, *skipped),
            unknown={column.name: column.unknown or schema.unknown for column in schema.categorical},
            missing={
                column.name: column.missing or schema.missing
                for column in (*schema.numbers, *schema.categorical, *schema.hashed)
            },
            sparse_output=sparse_output,
        )

    def labels(self, frame: pd.DataFrame) -> NDArray[Any]:
        """Return the label column, checked against the classes, or clipped to [low, high] if these are given.

        Raises
        ------
        MissingColumn, MissingValue, UnknownLevel, ColumnTypeError, InfiniteValue
            The label column contradicts the schema; the message shows no cell.
        """
        name = self.label.column
        if name not in frame.columns:
            raise MissingColumn(f"the table lacks the label column {name!r}: add it or correct label.column")
        cells, alone = frame[name], self.unreadable == "missing"
        if self.label.classes is None:
            cells = as_numbers(cells, self.file.decimal) if alone else cells
        elif self.label.rest is not None or alone:
            cells = as_levels(cells, self.label.classes)
        if self.label.rest is not None and self.label.classes is not None:
            codes = level_codes(cells, name, self.label.classes)
            return self._classes_at(np.where(codes < 0, self.label.classes.index(self.label.rest), codes))
        if cells.isna().any():
            raise MissingValue(f"label column {name!r} has a missing value: remove such rows beforehand")
        if self.label.classes is None:
            values = numeric_values(cells, name)
            return values if self.label.bounds is None else np.clip(values, *self.label.bounds)
        codes = level_codes(cells, name, self.label.classes)
        if (codes < 0).any():
            raise UnknownLevel(
                f"label column {name!r} has a value outside its {len(self.label.classes)} public classes: "
                f"correct label.classes or the file"
            )
        return self._classes_at(codes)

    def _classes_at(self, codes: NDArray[Any]) -> NDArray[Any]:
        """Return the classes at these positions."""
        known = self.label.classes or ()
        classes = np.array(known, dtype=object if len(set(map(type, known))) > 1 else None)
        labels: NDArray[Any] = classes[codes]
        return labels

    def with_days(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Return a table with its dates as days since 1970-01-01, or raise `ColumnTypeError`, which shows no cell.

        Where unreadable cells count as missing, every column is read cell by cell, and nothing is raised.
        """
        if self.unreadable == "missing":
            return replace_columns(frame, dict(self._read_columns(frame)))
        if not self.dates:
            return frame
        days = {column.name: _days(frame[column.name], column) for column in self.dates}
        return replace_columns(frame, days)

    def _read_columns(self, frame: pd.DataFrame) -> Iterator[tuple[str, Any]]:
        """Yield the columns of a table, each cell read by itself as what its column is."""
        for column in self.columns:
            cells = frame[column.name] if column.name in frame.columns else None
            if cells is None or isinstance(column, IgnoredColumn):
                continue
            if isinstance(column, NumericColumn):
                yield column.name, as_numbers(cells, self.file.decimal)
            elif isinstance(column, DateColumn):
                yield column.name, as_days(cells, column.format)
            elif isinstance(column, CategoricalColumn):
                yield column.name, as_levels(cells, column.levels)
            else:
                yield column.name, as_levels(cells, ())

    @classmethod
    def measure(cls, table: Any, *, label: str, epsilon: float, delta: float, **options: Any) -> Schema:
        """Find out what a table contains, with noise: types, levels, classes, missing cells and bounds.

        Parameters
        ----------
        table : DataFrame of pandas, polars or Dask, table of Arrow, or path
            A path names Parquet files or a text table.
        label : str
            The name of the column to predict.
        epsilon, delta : float
            The privacy guarantee of the schema.
        **options
            Those of `dpdescent.tables.measure_schema`: ``ledger``, ``declared``, ``classes``, ``rest``,
            ``regression``, ``unit``, ``rows_per_unit``, ``adjacency`` and ``random_state``.

        Returns
        -------
        Schema
            The same as one that a person writes; ``measured`` says what was found at what cost. Every later fit with
            it pays nothing more for this knowledge.

        Notes
        -----
        **Privacy** (epsilon, delta)-DP for one row, under the relation that is chosen; see
        `dpdescent.tables.measured_schema`. Column names, storage types, levels of categories and what is declared
        are assumed to be public.

        Examples
        --------
        >>> import numpy as np, pandas as pd
        >>> generator = np.random.default_rng(0)
        >>> jobs = generator.choice(["clerk", "nurse", "smith"], 20_000)
        >>> ages = generator.integers(20, 60, 20_000)
        >>> people = pd.DataFrame({"job": jobs, "age": ages, "rich": np.where(ages > 40, "yes", "no")})
        >>> schema = Schema.measure(people, label="rich", epsilon=1.0, delta=1e-6)
        >>> schema.label.classes, schema.categorical[0].levels
        (('no', 'yes'), ('clerk', 'nurse', 'smith'))
        """
        from .schema_purchase import measure_schema

        return measure_schema(table, label, epsilon, delta, **options)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON object of the file format."""
        from .schema_file import document_of

        return document_of(self)

    def remarks(self) -> list[str]:
        """Return what a statement of a fit says of a schema that was measured: it was a release of its own."""
        if self.measured is None or "statement" not in self.measured:
            return []
        epsilon, delta = (self.measured["statement"].get(name) for name in ("epsilon", "delta"))
        return [
            f"the schema was measured with a budget of its own, epsilon {epsilon} and delta {delta}: if it was of "
            "the same rows, both together cost at most the sums"
        ]

    def facts(self) -> list[str]:
        """Return what a statement says is public because the schema says so."""
        levels = sum(isinstance(column, CategoricalColumn) for column in self.columns)
        of_columns = f"{len(self.columns)} columns"
        return [
            public_fact("schema", f"the kinds of {of_columns}, and their codes", Origin.SCHEMA),
            *([public_fact("levels", f"in {levels} of {of_columns}", Origin.SCHEMA)] if levels else []),
        ]

    def as_text(self) -> str:
        """Return the text of a schema file."""
        from .schema_file import as_text

        return as_text(self.to_dict()) + "\n"

    def dump(self, path: str | Path) -> None:
        """Write the schema as a JSON file."""
        Path(path).write_text(self.as_text(), encoding="utf-8")

    @classmethod
    def load(cls, path: str | Path) -> Schema:
        """Read a schema file; `SchemaError` lists every problem with the column and the key to be corrected."""
        from .schema_file import read_document

        return cls.from_dict(read_document(path))

    @classmethod
    def from_dict(cls, document: Mapping[str, Any]) -> Schema:
        """Build a schema from the JSON object of the file format."""
        from .schema_file import schema_of

        return schema_of(document)


def _days(cells: pd.Series, column: DateColumn) -> pd.Series:
    """Return a column of dates as days, or raise `ColumnTypeError`, which shows no cell."""
    if column.format not in ANY_DATE:
        return date_values(cells, column.name, column.format)
    days = as_days(cells, column.format)
    if (days.isna() & ~cells.isna()).any():
        raise ColumnTypeError(
            f"column {column.name!r} has a cell that is no date in any common form: correct the file"
        )
    return days
