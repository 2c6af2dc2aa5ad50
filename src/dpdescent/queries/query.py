"""What a query is: a value that says what is asked, how the answer is protected, and what it costs.

A query holds no rows and does nothing by itself. Its `Query.plan` turns it, from public numbers alone, into one of
the plans of `dpdescent.queries.plans`, which the curator carries out.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

import numpy as np

from ..arrays import Floats
from ..errors import InvalidParameter
from ..problems import LinearProblem
from ..relations import Relation
from .plans import Plan

Answer = TypeVar("Answer")

#: Every kind of query there is, by the name of its class: the laws of the curator are tested on all of them.
QUERIES: dict[str, type[Query[Any]]] = {}


@dataclass(frozen=True)
class Public:
    """What a query may know before it is paid for.

    Parameters
    ----------
    problem : LinearProblem
    relation : Relation
    rows : int
        n, the public number of rows.
    rate : float
        Share of the rows in the batch that answers.
    size : float
        The public number by which a sum is divided: n, or the expected size of a batch.
    rows_per_unit : int
        k, how many rows of one unit may change together. A plan is made for one row, and the curator raises its
        sensitivities, unless the plan bounds what a unit adds; a lattice must have room for that.
    together : bool
        Whether the rows of a unit are read together, so that a plan can bound what they add.
    """

    problem: LinearProblem
    relation: Relation
    rows: int
    rate: float
    size: float
    rows_per_unit: int = 1
    together: bool = False

    def weights(self, name: str, values: Any) -> Floats:
        """Return ``values`` as finite weights of the problem's shape, or raise `InvalidParameter`."""
        try:
            point = np.asarray(values)
        except ValueError:  # lists of different lengths
            point = np.empty(0, dtype=object)
        if point.dtype.kind not in "fiub":
            raise InvalidParameter(f"{name} must be an array of real numbers of the shape {self.problem.shape}")
        if point.shape != self.problem.shape:
            raise InvalidParameter(f"{name} must have the shape {self.problem.shape}, got {point.shape}")
        point = point.astype(np.float64)
        if not np.isfinite(point).all():
            raise InvalidParameter(f"{name} must be finite: take a shorter step, or start again")
        return point


class Query(ABC, Generic[Answer]):
    """Something that can be asked about the rows.

    Subclasses are frozen dataclasses of public values. Defining one registers it in `QUERIES`.
    """

    #: What the record of the ledger calls it.
    label: str

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        if not cls.__name__.startswith("_"):
            QUERIES[cls.__name__] = cls

    @abstractmethod
    def plan(self, public: Public) -> Plan[Answer]:
        """Return how the query is answered, or raise what is wrong with it. No row is read."""
