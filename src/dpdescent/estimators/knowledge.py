"""What a fit knows of its table: public at first, and then what was bought. The problem to solve follows from it."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import sparse

from ..arrays import Floats
from ..curator import Units, cached_blocks
from ..exact import FeatureGrid, on_threads
from ..problems import LinearProblem, Loss, Penalty
from ..solvers import Method
from ..tables import StreamedTable
from .curves import Curves
from .effects import level_groups
from .scaling import ColumnScaling, binary_columns, declared_binary, middles

_MANY = 0.35  # of the entries of an expanded table are not 0: products of dense rows take less time then


@dataclass(frozen=True)
class Table:
    """A table that was read and checked. All but the last two fields is **unreleased data**."""

    #: Cells and labels; of a table that is read block by block, the table itself and labels of no rows.
    X: Any
    y: Any
    stream: StreamedTable | None  # the table, if it is read block by block
    units: Units | None  # which rows belong together; their number is public
    names: Any  # public names of the columns
    protected: str  # what is protected, in words
    rows: int  # the public number that stands for that of the rows


@dataclass(frozen=True)
class Columns:
    """What a caller has said of the columns."""

    scaling: ColumnScaling  # by the bounds that were given, and by some numbers where none were
    #: The numeric columns that have no bounds, where those of others are given.
    gaps: NDArray[np.bool_]
    declared: NDArray[np.bool_] | None  # the columns that are declared to be 0 or 1
    given: bool  # whether any bounds were given

    @classmethod
    def of(cls, model: Any, table: Table) -> Columns:
        """Return what the parameters of a model say of the columns of its table."""
        columns = table.X.shape[1]
        declared = declared_binary(model.binary_features, columns, table.names)
        scaling, gaps = ColumnScaling.with_gaps(model.bounds, columns, names=table.names)
        return cls(scaling, gaps if declared is None else gaps & ~declared, declared, model.bounds is not None)

    @property
    def binary(self) -> NDArray[np.bool_]:
        """The columns that are declared to be 0 or 1."""
        return np.zeros(self.gaps.size, dtype=np.bool_) if self.declared is None else self.declared

    @property
    def sought(self) -> bool:
        """Whether some column has no bounds."""
        return not self.given or bool(self.gaps.any())

    @property
    def bounded(self) -> bool:
        """Whether some numeric column has given bounds."""
        return self.given and not (self.gaps.any() and bool((self.gaps | self.binary).all()))

    def unknown(self, tighten: bool) -> NDArray[np.bool_]:
        """Return the columns whose bounds are measured."""
        return self.gaps if self.gaps.any() else ~self.binary & (not self.given or tighten)


@dataclass(frozen=True)
class Knowledge:
    """What is known of a table at some point of a fit. All of it is public, or was paid for, but the labels."""

    #: The estimator, its method, what was declared of the columns, and which rows belong together.
    model: Any
    method: Method
    columns: Columns
    units: Units | None
    rows: int  # the number that stands for that of the rows
    scaling: ColumnScaling  # by the bounds that are known by now
    loss: Loss
    labels: Floats  # labels as the loss wants them: **unreleased data**
    #: What was bought for it, and what a statement says of that.
    released: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def learnt(self, released: str, remarks: Iterable[str] = (), **changes: Any) -> Knowledge:
        """Return the knowledge after a purchase."""
        told = (*self.released, released), (*self.remarks, *remarks)
        return replace(self, released=told[0], remarks=told[1], **changes)

    @property
    def places(self) -> int:
        """What the number of rows never exceeds, for methods that rest on it, or else their number."""
        return self.units.places if self.units is not None and self.method.gathers else self.rows

    @property
    def penalty(self) -> Penalty:
        """The penalty that weighs as much beside all places as the given one beside the rows."""
        penalty: Penalty = self.model._penalty(self.model._heaviest() * (self.places / self.rows))
        return penalty

    def features(self, scaling: ColumnScaling | None = None) -> ColumnScaling | Curves:
        """Return how rows are coded."""
        coded: ColumnScaling | Curves = self.model._expansion(
            scaling or self.scaling, self.columns.declared, self.rows, self.loss.outputs
        )
        return coded

    def problem(self, features: ColumnScaling | Curves) -> LinearProblem:
        """Return the problem of rows that are coded so."""
        model, scaling = self.model, features if isinstance(features, ColumnScaling) else features.scaling
        known, added = binary_columns(self.columns.declared, scaling), features.columns - scaling.columns
        return LinearProblem(
            self.loss,
            FeatureGrid(1.0, features.columns + bool(model.fit_intercept)),
            self.penalty,
            bool(model.fit_intercept),
            model.tilt,
            model.adversary,
            (*known, *(False,) * added),
            (*middles(scaling, known), *(0.0,) * added),
            self._levels(scaling) if model.inference else (),
            curves=added > 0,
        )

    def _levels(self, scaling: ColumnScaling) -> tuple[tuple[int, ...], ...]:
        """Return the positions of the levels of each column that has several, told by the names of the columns."""
        names = getattr(self.model, "feature_names_in_", ())
        levels = (self.columns.binary | ((scaling.low == 0) & (scaling.high == 1))).tolist()
        groups = level_groups([str(each) for each in names], levels).values()
        return tuple(tuple(position for position, _ in members) for members in groups if len(members) > 1)


def place(X: Any, features: ColumnScaling | Curves, grid: FeatureGrid, constant: bool) -> Any:
    """Return the coded rows on the grid, with a constant column if there is an intercept.

    Dense rows that are only scaled go block by block, so that no second copy of the table is ever in memory.
    """
    scaling = features if isinstance(features, ColumnScaling) else features.scaling
    if sparse.issparse(X) or features.columns > scaling.columns:
        scaled = features.apply(X)
        if constant:
            scaled = sparse.hstack([scaled, sparse.csr_array(np.ones((X.shape[0], 1)))], format="csr")
        rows = grid.place(scaled)
        many = not sparse.issparse(X) and rows.nnz > _MANY * math.prod(rows.shape)
        return rows.toarray() if many else rows
    placed = np.empty((X.shape[0], grid.dimension))

    def place_block(rows: slice) -> None:
        block = placed[rows]
        scaling.apply(X[rows], out=block[:, : X.shape[1]])
        block[:, X.shape[1] :] = 1.0
        grid.place_in(block)

    on_threads(place_block, cached_blocks(*placed.shape))
    return placed
