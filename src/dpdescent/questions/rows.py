"""How long the rows are."""

from __future__ import annotations

from functools import partial

import numpy as np

from ..accounting import Laplace
from ..curator import Curator, _norm_block
from ..exact import BoundedSum, LatticeSum
from ..noise import laplace_scale
from ..relations import Norm, Sensitivity

__all__ = ["row_length"]

_LEAST_SHARE = 0.05
_ROOM = 1 + 2.0**-40


def row_length(curator: Curator, share: float) -> float:
    """Return the mean Euclidean norm of the rows, within [0.05, 1] of the public bound, for a share of the budget.

    **Privacy** A norm is at most the public row bound R: sensitivity R under both relations. Gaussian noise where the
    currency knows its price, Laplace noise where it counts pure epsilons.
    """
    bound = curator.problem.grid.row_bound
    if curator.ledger.currency.name not in ("pure", "approximate"):
        mean = curator.mean_row_norm(share * curator.budget)
    else:
        bounded = BoundedSum(bound)
        cost = Laplace(min(share * curator.budget, 8.0))
        laplace_scale(_ROOM * bounded.ceiling / cost.epsilon, bounded.unit)  # raises before the charge
        curator._charge(cost, "mean row norm")
        total = curator._sum(partial(_norm_block, bounded), np.sqrt(curator._row_norms()))
        summed = LatticeSum(total, bounded.unit, Sensitivity(Norm.L1, bounded.ceiling, bounded.ceiling))
        mean = float(curator._noise.laplace(summed, cost, curator.relation)[0]) / curator.scale
    return min(max(mean, _LEAST_SHARE * bound), bound)
