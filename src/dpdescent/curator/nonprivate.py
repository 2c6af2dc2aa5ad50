"""The minimiser itself, without any protection: what privacy is compared with."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..errors import InvalidParameter
from .curator import Curator

__all__ = ["minimise_without_privacy"]

Floats = NDArray[np.float64]


def minimise_without_privacy(curator: Curator, tolerance: float, iterations: int) -> Floats:
    """Return the minimiser of the objective by L-BFGS, as exact as floating point has it. NOT PRIVATE.

    **Privacy** None. It is refused where somebody keeps accounts: for a curator with a second ledger, with a ledger
    in a file, or with one that has paid for an answer already, since that ledger's promise would be broken.
    """
    ledger = curator.ledger
    if curator._account is not None or ledger.path is not None or ledger.entries:
        raise InvalidParameter(
            "an answer without privacy breaks the promise of a ledger: leave ledger out, and give the method a "
            "curator of its own"
        )
    problem, source = curator.problem, curator._source

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(problem.shape)

        def part(rows: Any, labels: Floats) -> Floats:
            margins = rows @ weights
            gradient = rows.T @ problem.loss.short_residuals(margins, labels)
            return np.append(gradient.reshape(-1), problem.loss.values(margins, labels).sum())

        with np.errstate(all="ignore"):
            total = np.asarray(source.map_sum(part), dtype=np.float64) / curator.rows
        gradient = total[:-1] + problem.penalty_gradient(weights).reshape(-1)
        return float(total[-1] + problem.penalty_value(weights)), gradient

    start = np.zeros(int(np.prod(problem.shape)))
    options = {"maxiter": iterations, "gtol": tolerance, "ftol": 1e-11, "maxcor": 20}
    found = minimize(objective, start, jac=True, method="L-BFGS-B", options=options)
    return np.asarray(found.x, dtype=np.float64).reshape(problem.shape)
