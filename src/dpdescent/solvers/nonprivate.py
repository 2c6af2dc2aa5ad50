"""The optimum itself, by L-BFGS (Liu & Nocedal 1989): NOT private, the ceiling every method is compared with.

**Privacy** None, and the statement says so: epsilon is infinite and no ledger is charged. A caller's
ledger is refused.

References
----------
Liu, D. C. & Nocedal, J. (1989). On the limited memory BFGS method for large scale optimization. Mathematical
Programming 45.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

from ..curator import Curator, sum_without_privacy
from .domains import Count, Positive
from .paper_modes import PAPER_MODES
from .result import Facts, Progress, SolverResult
from .settings import Settings

__all__ = ["NonPrivateSettings", "nonprivate"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class NonPrivateSettings(Settings):
    """Settings of `nonprivate`.

    Parameters
    ----------
    tolerance : float
        Largest entry of the gradient at which to stop.
    iterations : int
        Most iterations.
    """

    tolerance: Positive = 1e-6
    iterations: Count = 500

    paper_mode = PAPER_MODES["nonprivate"]

    def choose_currency(self, facts: Facts) -> str:
        return "zcdp"


def nonprivate(curator: Curator, settings: NonPrivateSettings, progress: Progress | None = None) -> SolverResult:
    """Return the minimiser of the objective of a curator's problem, without privacy."""
    problem = curator.problem

    def objective(flat: Floats) -> tuple[float, Floats]:
        weights = flat.reshape(problem.shape)

        def part(rows: Any, labels: Floats) -> Floats:
            margins = rows @ weights
            gradient = rows.T @ problem.loss.short_residuals(margins, labels)
            return np.append(gradient.reshape(-1), problem.loss.values(margins, labels).sum())

        total = sum_without_privacy(curator, part) / curator.rows
        gradient = total[:-1] + problem.penalty_gradient(weights).reshape(-1)
        return float(total[-1] + problem.penalty_value(weights)), gradient

    options = {"maxiter": settings.iterations, "gtol": settings.tolerance, "ftol": 1e-11, "maxcor": 20}
    found = minimize(objective, np.zeros(math.prod(problem.shape)), jac=True, method="L-BFGS-B", options=options)
    weights = np.asarray(found.x, dtype=np.float64).reshape(problem.shape)
    if progress is not None:
        progress(1.0)
    return SolverResult(weights, 1, remarks=("not private: the optimum of the training rows, without noise",))
