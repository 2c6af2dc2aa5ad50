r"""DP-TR: descent to a second-order point by trust regions, each solved exactly (Wang & Xu 2021).

Every iteration measures a gradient g and a Hessian H, and moves by

.. math:: \arg\min_{|h| \le r} \; g \cdot h + \tfrac12 h' H h, \qquad r = \sqrt{e_g/M},

and ends, as `dpdescent.solvers.second_order` does, where the gradient is at most e_g long and no curvature is below
-e_H. As many iterations are planned as there would be if each lowered the objective by e_g^{3/2}/(6 sqrt(M)).

**No guarantee** Without noise a step whose multiplier s (see `trust_region_step`) is at least M r lowers the
objective by M r^3/2 - M r^3/6 = e_g^{3/2}/(3 sqrt(M)). Noise of length c_1 e_g on the gradient takes
c_1 e_g^{3/2}/sqrt(M) from that, and after a step with a smaller multiplier the gradient may still be 3/2 e_g long and
a curvature -2 sqrt(M e_g), which the check at (e_g, e_H) does not pass. `minimum_rows`
is therefore about noise alone, and promises no point.

**Privacy** As in `second_order`: gradient and Hessian are charged in every iteration before rows are touched.

References
----------
Wang, D. & Xu, J. (2021). Escaping saddle points of empirical risk privately and scalably via DP-trust region method.
ECML PKDD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.optimize import brentq

from ..curator import Curator
from ..errors import InvalidParameter
from .paper_modes import PAPER_MODES
from .result import Progress
from .second_order import Descent, SecondOrderResult
from .second_order_settings import OPTSettings
from .stationary import Levels, Tolerances, count_steps

__all__ = ["TrustRegionSettings", "trust_region", "trust_region_step"]

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class TrustRegionSettings(OPTSettings):
    """Settings of `dp-tr`: those of `OPTSettings`; steps cannot be searched, and one batch gives both answers."""

    same_batch: bool = True

    guaranteed = False
    paper_mode = PAPER_MODES["dp-tr"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search:
            raise InvalidParameter("search is not for trust regions, whose steps have a fixed radius: leave it out")

    def planned_steps(self, tolerances: Tolerances, objective: float) -> int:
        """Return how many steps may be needed if each lowers the objective by e_g^{3/2}/(6 sqrt(M))."""
        decrease: float = tolerances.gradient**1.5 / (6 * math.sqrt(tolerances.bounds.hessian_lipschitz))
        return count_steps(objective, decrease)


def trust_region(
    curator: Curator, settings: TrustRegionSettings, progress: Progress | None = None
) -> SecondOrderResult:
    """Look for a second-order point of the objective of a curator's problem by trust regions."""
    return _TrustRegion(curator, settings, progress).finish()


class _TrustRegion(Descent):
    def iterate(self, levels: Levels, last: bool) -> bool:
        gradient, shared = self._gradient(levels)
        matrix = self._hessian(levels, shared)
        curvature, _ = self._lowest(matrix, levels)
        if np.linalg.norm(gradient) <= self._tolerances.gradient and curvature >= -self._tolerances.curvature:
            return True
        if not last:
            radius = math.sqrt(self._tolerances.gradient / self._bounds.hessian_lipschitz)
            step = trust_region_step(matrix, gradient, radius)
            self._weights = self._weights + step
            self._steps.append(float(np.linalg.norm(step)))
        return False


def trust_region_step(matrix: Floats, gradient: Floats, radius: float) -> Floats:
    """Return the least point of g . h + h'Hh/2 in a ball, by the eigenvalues of H (More & Sorensen 1983).

    The point is -(H + s I)^{-1} g for the s >= max(0, -lambda_1) at which it lies on the sphere, or for s = 0 inside.
    If g has no part along the lowest curvature there may be no such s; what is missing to the sphere is then added
    along it.
    """
    values, vectors = eigh(matrix)
    along, length = vectors.T @ gradient, float(np.linalg.norm(gradient))
    above, lowest = values - values[0], float(values[0])
    size = max(float(np.abs(values).max()), length / radius, 1e-300)

    def point(offset: float) -> Floats:
        """Return the point for s = offset - lambda_1; the offset keeps its digits next to zero."""
        return np.asarray(-along / (above + offset))

    least = max(lowest, 1e-15 * size)
    inside = point(least)
    missing = radius**2 - float(inside @ inside)
    if missing < 0:
        ends = math.log(least), math.log(2 * size)
        inside = point(math.exp(brentq(lambda log: float(np.linalg.norm(point(math.exp(log)))) / radius - 1, *ends)))
    elif lowest < 0:
        inside[0] = -math.copysign(math.hypot(math.sqrt(missing), float(inside[0])), float(along[0]))
    return np.asarray(vectors @ inside)
