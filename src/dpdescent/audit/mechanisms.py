"""The mechanisms of the library on neighbouring sums that are as far apart as their sensitivity allows.

Every mechanism is drawn by the functions of `dpdescent.curator.lattice_noise` that draw the curator's noise. The sums
are the worst there are: one number that a row moves by all of its sensitivity, or scores of which a row raises one
against another.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..accounting import (
    AboveThreshold,
    Cost,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    NormLaplace,
    ReportNoisyMax,
    gaussian_noise_multiplier,
)
from ..curator.lattice_noise import LatticeNoise, first_above_threshold, least_scores, normalised_queries
from ..errors import InvalidParameter
from ..exact import LatticeSum
from ..noise import Randomness
from ..relations import Norm, Relation, Sensitivity
from .bounds import Claim
from .scores import plain

__all__ = ["MECHANISMS", "Mechanism"]

_UNIT = 2.0**-30
_RARE = 3.0  # logit of the event that tells the tables apart: rare events show nearly all of epsilon
_CHUNK = 2**15


@dataclass(frozen=True)
class Mechanism:
    """A mechanism, and the sums of two neighbouring tables.

    Parameters
    ----------
    cost : Cost
        Which mechanism, with how much noise.
    claim : {"approximate", "gdp"}
        What it promises.
    sums : pair of tuples of float
        What the rows of each table add up to.
    sensitivity : Sensitivity
    relation : Relation
    """

    cost: Cost
    claim: Claim
    sums: tuple[tuple[float, ...], tuple[float, ...]]
    sensitivity: Sensitivity
    relation: Relation

    @property
    def fingerprint(self) -> str:
        """The settings."""
        return repr(self)

    @property
    def chunk(self) -> int:
        """How many runs are worth a task of their own."""
        return _CHUNK

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[list[float] | str]:
        """Return the answers of independent releases."""
        noise, cost, relation = LatticeNoise(Randomness(seed)), self.cost, self.relation
        values = np.rint(np.array(self.sums[neighbour]) / _UNIT).astype(np.int64)
        total = LatticeSum(values, _UNIT, self.sensitivity)
        if isinstance(cost, Gaussian | Laplace):  # independent noise on every coordinate: all runs are one draw
            return _listed(noise.release(replace(total, values=np.tile(values, (runs, 1))), cost, relation))
        bits = noise.randomness.stream(cost.kind, 0)
        if isinstance(cost, ExponentialMechanism | ReportNoisyMax):
            return _listed(least_scores(bits, total, cost, relation, runs)[:, None])
        if isinstance(cost, AboveThreshold):
            return _listed(
                first_above_threshold(bits, normalised_queries(total, cost, relation), cost, runs)[:, None]
            )
        return [plain(noise.release(total, cost, relation)) for _ in range(runs)]


def _listed(answers: NDArray[Any]) -> list[list[float] | str]:
    listed: list[list[float] | str] = answers.astype(np.float64).tolist()
    return listed


def _of_number(cost: Cost, claim: Claim, norm: Norm, relation: Relation) -> Mechanism:
    """A sum of numbers in [-1, 1]: a row of 1 is added, or takes the place of one of -1."""
    low = 0.0 if relation is Relation.ZERO_OUT else -1.0
    return Mechanism(cost, claim, ((low,), (1.0,)), Sensitivity.of_signed_sum(1.0, norm), relation)


def _of_scores(make: Callable[[float], Cost], epsilon: float, _: float, relation: Relation) -> Mechanism:
    """Two scores, of which a row raises the second; one that it takes the place of raised the first.

    The first is worse by so much that it is rarely chosen, and e^epsilon times as often on the neighbour: the ratio
    of probabilities comes near e^epsilon for rare events only.
    """
    sensitivity = Sensitivity.of_scores(1.0)
    change = sensitivity.under(relation)
    behind = max(_RARE, epsilon) / epsilon * change
    first = (behind, 0.0) if relation is Relation.ZERO_OUT else (behind + 1.0, 0.0)
    return Mechanism(make(epsilon), "approximate", (first, (behind, 1.0)), sensitivity, relation)


def _search(epsilon: float, _: float, relation: Relation) -> Mechanism:
    """Queries that a row lowers, but for the last, which it raises: the order in which the threshold costs most.

    Half of epsilon goes to the threshold and a quarter to each direction of a query. The number of queries and where
    they sit make the exact law tell the tables apart best, at an epsilon of 1.
    """
    queries, scale = 8, 4 / epsilon
    cost = AboveThreshold(queries, scale, scale / 2)
    change = Sensitivity.of_signed_sum(1.0).under(relation)
    start = np.full(queries, scale * change / 4)
    step = np.full(queries, -change)
    step[-1] = change
    sums = tuple(start.tolist()), tuple((start + step).tolist())
    return Mechanism(cost, "approximate", sums, Sensitivity.of_signed_sum(1.0), relation)


def _gaussian(epsilon: float, delta: float, relation: Relation) -> Mechanism:
    if delta == 0:
        raise InvalidParameter("Gaussian noise has no epsilon at a delta of 0: pass --delta, well below 1/n")
    return _of_number(Gaussian(gaussian_noise_multiplier(epsilon, delta)), "gdp", Norm.L2, relation)


def _laplace(epsilon: float, _: float, relation: Relation) -> Mechanism:
    return _of_number(Laplace(epsilon), "approximate", Norm.L1, relation)


def _norm_laplace(epsilon: float, _: float, relation: Relation) -> Mechanism:
    return _of_number(NormLaplace(epsilon), "approximate", Norm.L2, relation)


#: Mechanisms by name: each makes the worst pair from epsilon, delta and the relation.
MECHANISMS: dict[str, Callable[[float, float, Relation], Mechanism]] = {
    "above-threshold": _search,
    "gaussian": _gaussian,
    "laplace": _laplace,
    "norm-laplace": _norm_laplace,
    "report-noisy-max": partial(_of_scores, ReportNoisyMax),
    "selection": partial(_of_scores, ExponentialMechanism),
}
