r"""Two other ways to a second-order point, for comparison with `dpdescent.solvers.second_order`.

**DP-TR**: trust regions, each solved exactly (Wang & Xu 2021). Every iteration measures a gradient g and a Hessian H,
and moves by

.. math:: \arg\min_{|h| \le r} \; g \cdot h + \tfrac12 h' H h, \qquad r = \sqrt{e_g/M},

and ends, as `dpdescent.solvers.second_order` does, where the gradient is at most e_g long and no curvature is below
-e_H. As many iterations are planned as there would be if each lowered the objective by e_g^{3/2}/(6 sqrt(M)).

**No guarantee** Without noise a step whose multiplier s (see `trust_region_step`) is at least M r lowers the
objective by M r^3/2 - M r^3/6 = e_g^{3/2}/(3 sqrt(M)). Noise of length c_1 e_g on the gradient takes
c_1 e_g^{3/2}/sqrt(M) from that, and after a step with a smaller multiplier the gradient may still be 3/2 e_g long and
a curvature -2 sqrt(M e_g), which the check at (e_g, e_H) does not pass. `minimum_rows`
is therefore about noise alone, and promises no point.

**DP-GD**: T noisy gradient steps, then a check of the iterates (Wang, Chen & Xu 2019).

.. math:: w_{t+1} = w_t - \tilde g_t/G.

The noise of the gradients is what leaves saddles. After the last step the iterates whose gradients were at most e_g
long are examined, the shortest first, and a Hessian is measured at each until one has no curvature below -e_H.

**No guarantee** That noise leaves every saddle in time is shown up to constants only, so `minimum_rows` is
about noise alone, and promises no point. The number of steps is that of `opt`.

**Privacy** As in `second_order`: every gradient and Hessian is charged before rows are touched. The order in which
`dp-gd` looks at iterates follows from released gradients.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from scipy.linalg import eigh
from scipy.optimize import brentq

from ..arrays import Floats
from ..curator import Curator
from ..errors import InvalidParameter
from ..queries import hessian_sum
from .method import Progress, method
from .second_order import NEEDS, ONE_EACH, Descent, SecondOrderResult
from .second_order_settings import OPTSettings
from .stationary import Levels, Tolerances, count_steps


@dataclass(frozen=True)
class TrustRegionSettings(OPTSettings, paper_mode="dp-tr"):
    """Settings of `dp-tr`: those of `OPTSettings`; steps cannot be searched, and one batch gives both answers."""

    same_batch: bool = True

    guaranteed = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search:
            raise InvalidParameter("search is not for trust regions, whose steps have a fixed radius: leave it out")

    def planned_steps(self, tolerances: Tolerances, objective: float) -> int:
        """Return how many steps may be needed if each lowers the objective by e_g^{3/2}/(6 sqrt(M))."""
        decrease: float = tolerances.gradient**1.5 / (6 * math.sqrt(tolerances.bounds.hessian_lipschitz))
        return count_steps(objective, decrease)


@method(
    "dp-tr",
    TrustRegionSettings,
    purpose="trust regions with noisy gradients and Hessians: a baseline for `opt`",
    passes="one for each step, gradient and Hessian together",
    papers=("Wang & Xu 2021",),
    needs=NEEDS,
    general=False,
)
def trust_region(
    curator: Curator, settings: TrustRegionSettings, progress: Progress | None = None
) -> SecondOrderResult:
    """Look for a second-order point of the objective of a curator's problem by trust regions."""
    return _TrustRegion(curator, settings, progress).finish()


class _TrustRegion(Descent):
    def iterate(self, levels: Levels, last: bool) -> bool:
        gradient, shared = self._measure_gradient(levels)
        matrix = self._measure_hessian(levels, shared)
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


@dataclass(frozen=True)
class NoisyGradientSettings(OPTSettings, paper_mode="dp-gd"):
    """Settings of `dp-gd`: those of `OPTSettings`; steps cannot be searched, and Hessians come last."""

    guaranteed = False

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search or self.same_batch:
            raise InvalidParameter(
                "search and same_batch are not for dp-gd, which looks at Hessians last: leave them out"
            )


@method(
    "dp-gd",
    NoisyGradientSettings,
    purpose="noisy gradient steps and a private choice among the iterates: a baseline for `opt`",
    passes=ONE_EACH,
    papers=("Wang et al. 2019",),
    needs=NEEDS,
    general=False,
    rereads=True,
)
def noisy_gradient(
    curator: Curator, settings: NoisyGradientSettings, progress: Progress | None = None
) -> SecondOrderResult:
    """Look for a second-order point of the objective of a curator's problem among noisy gradient iterates."""
    return _NoisyGradient(curator, settings, progress).finish()


class _NoisyGradient(Descent):
    def run_phase(self, amount: float, steps: int) -> bool:
        levels = self._levels(self._tolerances, amount, steps)
        hessian_sum(self._curator.public(), levels.hessian)  # raises before anything is charged
        visited = []
        for left in range(min(steps, self._settings.most_steps or steps), -1, -1):
            gradient, _ = self._measure_gradient(levels)
            visited.append((float(np.linalg.norm(gradient)), self._weights))
            if left:
                self._buy_step(levels, -gradient, 1 / self._bounds.smoothness)
            self._report()
        for length, weights in sorted(visited, key=lambda each: each[0]):
            if length > self._tolerances.gradient:
                break
            self._weights = weights
            curvature, _ = self._lowest(self._measure_hessian(levels), levels)
            self._report()
            if curvature >= -self._tolerances.curvature:
                return True
        return False
