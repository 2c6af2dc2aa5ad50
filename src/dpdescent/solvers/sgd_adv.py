r"""SGD-Adv: noisy stochastic gradient descent under advanced composition (Bassily, Smith & Thakurta 2014).

Batches of about sqrt(n) rows, T of them, Gaussian noise, and steps that shrink:

.. math:: w_{t+1} = w_t - \eta_t \tilde g_t, \qquad \eta_t = c/\sqrt t,

and the result is the average of all iterates. The paper samples one row per step for n^2 steps; batches of sqrt(n)
are how it is usually compared. Its constants hold for epsilon up to 2 sqrt(log(1/delta)) and delta below 1/n^2
only; here the statements behind them are used, which hold for every epsilon: the exact epsilon of a Gaussian at the
delta of one step, amplification by sub-sampling, and advanced composition
(`dpdescent.accounting.AdvancedComposition`). Valid, and several times looser than what `sgd` pays for the same
noise: that is what the method shows.

By default T = 10 sqrt(n), at most 2000, so that the rows are seen about ten times, and c is such that the noise of
all steps moves a typical row's score by about 1.2. ``paper=True`` takes the clip norm, the constant step size and the
T = n epsilon/500 of Lee & Kifer (2018), at most 2000; the last iterate is then the result.

**Privacy** One charge of (epsilon, delta) before the first gradient; all later steps are post-processing of the T
noisy gradients it paid for. Poisson batches under zero-out, batches of fixed size under replace-one.

References
----------
Bassily, R., Smith, A. & Thakurta, A. (2014). Private empirical risk minimization: efficient algorithms and tight
error bounds. FOCS. arXiv:1405.7085.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..accounting import ApproximateDP
from ..curator import Curator
from .paper_modes import PAPER_MODES
from .result import Facts, Progress, SolverResult
from .schedule import DescentSettings, clip_norm
from .series import GradientSeries, measure_row_norm
from .settings import Payment

__all__ = ["SGDAdvSettings", "sgd_adv"]

_SHARE_LENGTH = 0.02
_DELTA_SHARE = 1 - 2.0**-20  # the rest of delta is left for the samplers


@dataclass(frozen=True)
class SGDAdvSettings(DescentSettings):
    """Settings of `sgd_adv`: those of `DescentSettings`, ``step_size`` being c and ``sampling_rate`` 1/sqrt(n)."""

    paper_mode = PAPER_MODES["sgd-adv"]

    def choose_currency(self, facts: Facts) -> str:
        return "approximate"

    @property
    def payment(self) -> Payment:
        return Payment("advanced composition, which has a delta of its own", ("approximate",))


def sgd_adv(curator: Curator, settings: SGDAdvSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by noisy SGD under advanced composition."""
    facts = Facts.of(curator)
    rate = settings.sampling_rate or 1 / math.sqrt(facts.rows)
    rule = max(1.0, facts.rows * facts.epsilon / 500) if settings.paper else math.ceil(10 / rate)
    steps = settings.steps or round(min(2000, rule))
    curator.sampling(rate)  # raises before anything is charged
    curator.require_affordable(ApproximateDP(0.5 * curator.remaining, facts.delta * _DELTA_SHARE))
    length = curator.problem.longest_row if settings.paper else measure_row_norm(curator, _SHARE_LENGTH)
    clip = settings.clip_gradient or clip_norm(facts.promised_rows_per_parameter, length)
    gradients = GradientSeries.with_advanced_composition(
        curator, clip, rate, steps, curator.remaining, facts.delta * _DELTA_SHARE
    )
    walk = gradients.deviation * length * math.sqrt(1 + math.log(steps))
    longest = 2 / (min(curator.problem.loss.smoothness, 1.0) * length**2)
    first_step = settings.step_size or min(1.2 / walk, longest * math.sqrt(steps))

    weights = np.zeros(curator.problem.shape)
    average, sizes = np.zeros_like(weights), []
    for step in range(1, steps + 1):
        sizes.append(first_step if settings.paper else min(first_step / math.sqrt(step), longest))
        weights = weights - sizes[-1] * gradients.at(weights)
        average += weights / steps
        if progress is not None:
            progress(step / steps)
    return SolverResult(weights if settings.paper else average, steps, tuple(sizes))
