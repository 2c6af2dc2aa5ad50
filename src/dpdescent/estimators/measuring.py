"""Ask a table for the bounds of its columns, before it is scaled by them."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..curator import ArraySource, ColumnHistograms, Curator, LatticeNoise, Units
from ..errors import InvalidParameter
from ..exact import FeatureGrid
from ..ledger import Ledger
from ..problems import LinearProblem, Squared
from .bounds import measured_ends, share_of_bounds
from .scaling import ColumnScaling

__all__ = ["measured_scaling", "require_measurable"]

Floats = NDArray[np.float64]

_BITS = 9  # levels are at most 2^8


def require_measurable(ledger: Ledger) -> None:
    """Raise `InvalidParameter` where no Gaussian noise can be paid for."""
    if ledger.currency.name in ("pure", "approximate"):
        raise InvalidParameter(
            f"bounds=None measures columns with Gaussian noise, which a ledger in {ledger.currency.name!r} cannot "
            "pay for: give bounds, or take another method"
        )


def measured_scaling(
    X: Any, binary: NDArray[np.bool_], ledger: Ledger, noise: LatticeNoise, rows: int, units: Units | None = None
) -> ColumnScaling:
    """Buy the ends of all columns that are not declared to be 0 or 1, and return the scaling by them.

    ``rows`` is the public number of rows, and ``units`` says which of them belong together.

    **Privacy** Both histograms are answers of a curator about levels of the cells: each level is a function of its
    cell and of public or released numbers.
    """
    low, high = np.zeros(X.shape[1]), np.ones(X.shape[1])
    numeric = np.flatnonzero(~binary)
    if numeric.size == 0:
        return ColumnScaling(low, high)
    grid = FeatureGrid(1.0, numeric.size)
    problem = LinearProblem(Squared(), grid, intercept=False)
    labels = np.zeros(X.shape[0])
    budget = ledger.budget

    def ask(levels: Any, largest: int) -> tuple[Floats, float]:
        placed = levels * 2.0**-_BITS
        curator = Curator(ArraySource(placed, labels, grid), problem, ledger, rows, noise=noise, units=units)
        effective = 1 / curator.deviation(1.0, budget)
        gaussian = curator.gaussian(share_of_bounds(effective, numeric.size) * budget)
        question = ColumnHistograms(largest, _BITS, gaussian)
        moved = question.sensitivity(numeric.size).times(curator.rows_per_unit)
        deviation = gaussian.noise_multiplier * moved.under(ledger.relation)
        return curator.answer(question), deviation

    cells = X[:, numeric] if not isinstance(X, np.ndarray) or numeric.size < X.shape[1] else X
    low[numeric], high[numeric] = measured_ends(ask, cells, rows)
    wide = high > low
    return ColumnScaling(low, np.where(wide, high, low + np.maximum(np.abs(low) * math.ldexp(1.0, -20), 1.0)))
