r"""DP-GD to a second-order point: T noisy gradient steps, then a check of the iterates (Wang, Chen & Xu 2019).

.. math:: w_{t+1} = w_t - \tilde g_t/G.

The noise of the gradients is what leaves saddles. After the last step the iterates whose gradients were at most e_g
long are examined, the shortest first, and a Hessian is measured at each until one has no curvature below -e_H.

**No guarantee** That noise leaves every saddle in time is shown up to constants only, so `minimum_rows` is
about noise alone, and promises no point. The number of steps is that of `opt`.

**Privacy** As in `dpdescent.solvers.second_order`; the order of the iterates follows from released gradients.

References
----------
Wang, D., Chen, C. & Xu, J. (2019). Differentially private empirical risk minimization with non-convex loss
functions. ICML.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..curator import Curator, hessian_sum
from ..errors import InvalidParameter
from .paper_modes import PAPER_MODES
from .result import Progress
from .second_order import Descent, SecondOrderResult
from .second_order_settings import OPTSettings

__all__ = ["NoisyGradientSettings", "noisy_gradient"]


@dataclass(frozen=True)
class NoisyGradientSettings(OPTSettings):
    """Settings of `dp-gd`: those of `OPTSettings`; steps cannot be searched, and Hessians come last."""

    guaranteed = False
    paper_mode = PAPER_MODES["dp-gd"]

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.search or self.same_batch:
            raise InvalidParameter(
                "search and same_batch are not for dp-gd, which looks at Hessians last: leave them out"
            )


def noisy_gradient(
    curator: Curator, settings: NoisyGradientSettings, progress: Progress | None = None
) -> SecondOrderResult:
    """Look for a second-order point of the objective of a curator's problem among noisy gradient iterates."""
    return _NoisyGradient(curator, settings, progress).finish()


class _NoisyGradient(Descent):
    def phase(self, amount: float, steps: int) -> bool:
        levels = self._levels(self._tolerances, amount, steps)
        hessian_sum(self._curator.public(), levels.hessian)  # raises before anything is charged
        visited = []
        for left in range(min(steps, self._settings.most_steps or steps), -1, -1):
            gradient, _ = self._gradient(levels)
            visited.append((float(np.linalg.norm(gradient)), self._weights))
            if left:
                self._step(levels, -gradient, 1 / self._bounds.smoothness)
            self._report()
        for length, weights in sorted(visited, key=lambda each: each[0]):
            if length > self._tolerances.gradient:
                break
            self._weights = weights
            curvature, _ = self._lowest(self._hessian(levels), levels)
            self._report()
            if curvature >= -self._tolerances.curvature:
                return True
        return False
