r"""DP-FTRL: follow the regularised leader, with running totals of gradients from a binary tree (Kairouz et al. 2021).

The rows are dealt to m leaves that are read one after another. With :math:`\tilde S_t` the noisy total of the mean
gradients of the first t leaves (`dpdescent.queries.derivatives`), those of the penalty included,

.. math:: w_t = \arg\min_{|w| \le R} \Big[\langle \tilde S_t, w \rangle + \frac{\lambda}{2} |w|^2\Big]
          = \Pi_{B(0,R)}(-\tilde S_t/\lambda).

A total has the noise of at most h = log2(m + 1) nodes, however many gradients it adds up: small steps cost nothing.
Each pass begins a new tree, on top of the totals of the passes before.

Lowy & Razaviyayn (2021) name the private FTRL of Arora, Marinov & Ullah (2020) outside of their tables. That method
holds for epsilon up to sqrt(log(1/delta)); trees have the same rate up to logarithms,
:math:`L R (1/\sqrt n + \sqrt d/(\epsilon n))`, for every epsilon.

Rules: one pass; the clip norm C of `dpdescent.solvers.schedule`. With a radius R, 1/lambda is the theorem's,

.. math:: \lambda = \frac{1}{R} \sqrt{2 T (C^2 + C D \sqrt{d h/2})}

for T = passes times m leaves and noise of deviation D in each coordinate of a node, and the result is the average of
all points. Without a radius, 1/lambda is the step at which all noise moves a typical row's score by 1.2, or the
longest stable one, 1/(s L^2), if that is shorter, and the result is the average of the last half of the points. L is
the typical length of a row, measured with a hundredth of the budget, and s the smoothness of the loss. There are as
few leaves as keep the step stable: 31, 63, ..., 1023, and not more than rows.

**Privacy** One charge for each pass, before a row of it is read: h Gaussian mechanisms, under either relation; see
`dpdescent.curator.TreeGradients`.

References
----------
Arora, R., Marinov, T. & Ullah, E. (2020). Private stochastic convex optimization: efficient algorithms for non-smooth
objectives. arXiv:2002.09609.
Kairouz, P., McMahan, B., Song, S., Thakkar, O., Thakurta, A. & Xu, Z. (2021). Practical and private (deep) learning
without sampling or shuffling. ICML. arXiv:2103.00039.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from ..curator import Curator, TreeGradients
from ..relations import Sensitivity
from .domains import Count, Positive, Within
from .result import Facts, Progress, SolverResult
from .schedule import clip_norm
from .series import measure_row_norm
from .settings import Settings

__all__ = ["FTRLSettings", "ftrl"]

Floats = NDArray[np.float64]

_SHARE_LENGTH = 0.01
_FEWEST_LEVELS, _MOST_LEVELS = 5, 10
_MOST_PASSES = 10_000
_FARTHEST = 2.0**200  # a step size that is far too long leads here, and not to an error after the charge


@dataclass(frozen=True)
class FTRLSettings(Settings):
    """Settings of `ftrl`; None takes the rule.

    Parameters
    ----------
    passes : int
        How often every row is read.
    leaves : int, optional
        m, the number of steps in a pass; one less than a power of 2 makes the best use of the noise.
    step_size : float, optional
        1/lambda, for means over the rows of a leaf.
    clip_gradient : float, optional
        C, the norm to which the gradient of each row is clipped.
    radius : float, optional
        R. No ball by default.
    """

    passes: Annotated[int, Within(1, _MOST_PASSES)] = 1
    leaves: Count | None = None
    step_size: Positive | None = None
    clip_gradient: Positive | None = None
    radius: Positive | None = None

    def choose_currency(self, facts: Facts) -> str:
        return "gdp"


def ftrl(curator: Curator, settings: FTRLSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-FTRL."""
    _require_answerable(curator, settings)
    plan = _Plan(curator, settings)
    walk = _Walk(curator, settings, plan, progress)
    for _ in range(settings.passes):
        walk.one_pass()
    return SolverResult(walk.average, plan.steps, (plan.step_size,) * plan.steps)


def _require_answerable(curator: Curator, settings: FTRLSettings) -> None:
    """Raise what is wrong with given settings before the length of a row is paid for."""
    leaves = settings.leaves or 2**_MOST_LEVELS - 1
    curator.require_affordable(curator.gaussian(curator.remaining * (1 - 2.0**-40)))
    noise = curator.gaussian(0.9 * curator.remaining / (settings.passes * leaves.bit_length()))
    still = np.zeros(curator.problem.shape)
    curator.require_answerable(TreeGradients(lambda *_: still, leaves, settings.clip_gradient or 1.0, noise))


class _Plan:
    """The number of leaves, their noise and the step: pays for and measures the length of a typical row."""

    def __init__(self, curator: Curator, settings: FTRLSettings) -> None:
        facts, passes = Facts.of(curator), settings.passes
        length = measure_row_norm(curator, _SHARE_LENGTH)
        self.clip = settings.clip_gradient or clip_norm(facts.promised_rows_per_parameter, length)
        self._left = curator.remaining * (1 - 2.0**-40)  # sums of costs are rounded up
        longest = 1 / (min(curator.problem.loss.smoothness, 1.0) * length**2)
        most = max(1, min(_MOST_LEVELS, (facts.rows + 1).bit_length() - 1))
        for levels in range(min(_FEWEST_LEVELS, most), most + 1):
            self.leaves = settings.leaves or 2**levels - 1
            self.levels, self.steps = self.leaves.bit_length(), passes * self.leaves
            self.noise = curator.gaussian(self._left / (passes * self.levels))
            moved = Sensitivity.of_clipped_sum(self.clip).times(curator.rows_per_unit).under(curator.relation)
            deviation = moved * self.noise.noise_multiplier * self.leaves / facts.rows  # of the mean of a leaf
            quiet = 1.2 / (length * deviation * math.sqrt(passes * self.levels))
            if quiet <= longest:
                break
        self.step_size = min(quiet, longest)
        if settings.radius is not None:
            spread = deviation * math.sqrt(facts.parameters * self.levels / 2)
            self.step_size = settings.radius / math.sqrt(2 * self.steps * self.clip * (self.clip + spread))
        self.step_size = settings.step_size or self.step_size
        self.averaged = self.steps if settings.radius is not None else self.steps - self.steps // 2


class _Walk:
    """Where the totals of gradients lead."""

    def __init__(self, curator: Curator, settings: FTRLSettings, plan: _Plan, progress: Progress | None) -> None:
        self._curator, self._plan, self._progress = curator, plan, progress
        self._radius = settings.radius or _FARTHEST
        self._before = np.zeros(curator.problem.shape)  # the total of the passes before
        self._penalties = np.zeros_like(self._before)
        self._step = 0
        self.average = np.zeros_like(self._before)

    def one_pass(self) -> None:
        """Read every row once, and add the last point to the average."""
        plan = self._plan
        question = TreeGradients(self._follow, plan.leaves, plan.clip, plan.noise)
        self._before = self._before + self._curator.answer(question)
        self._point(self._before)

    def _follow(self, leaf: int, total: Floats) -> Floats:
        """Return the next point, and count it in the average unless the last pass has ended with it."""
        weights = self._point(self._before + total) if leaf else self._at(self._before)
        self._penalties = self._penalties + self._curator.problem.penalty_gradient(weights)
        return weights

    def _at(self, total: Floats) -> Floats:
        point = -self._plan.step_size * (total + self._penalties)
        with np.errstate(over="ignore"):  # the square of a length may be infinite, and the point then becomes 0
            return point / max(1.0, float(np.linalg.norm(point)) / self._radius)

    def _point(self, total: Floats) -> Floats:
        weights, plan = self._at(total), self._plan
        self._step += 1
        if self._step > plan.steps - plan.averaged:
            self.average += weights / plan.averaged
        if self._progress is not None:
            self._progress(self._step / plan.steps)
        return weights
