r"""Noisy SVRG (Wang, Ye & Xu 2017): batches that only measure how the gradient has changed since a snapshot.

Each of E epochs measures the gradient of all rows at a snapshot u, and takes m steps from it with fresh batches:

.. math:: w \leftarrow w - \eta\,(\tilde g_B(w) - \tilde g_B(u) + \tilde g(u)), \qquad u \leftarrow w.

Near the snapshot both batch gradients are alike, and so are their sampling errors, which cancel. Their noise does
not. The difference of two clipped gradients with noise of their own has just the noise of one release of a
difference with twice the clip norm, at the same price: 2 (C s)^2 = (2 C s/sqrt 2)^2.

The paper sets its noise from the moments accountant and holds for a small epsilon; here every gradient is charged,
and any epsilon is allowed. Rules: batches of sqrt(n) rows; E = 5; m = sqrt(n), at most 100; half of the budget for
the snapshots; the clip norm of `dpdescent.solvers.schedule`; and the step at which all noise moves a typical row's
score by about 1.2, or the longest stable one, 1/(s L^2), if that is shorter. L is the typical length of a row,
measured with a hundredth of the budget, and s the smoothness of the loss.

**Privacy** Gaussian answers under either relation: one for each snapshot, and two on one batch for each step, which
are charged as one mechanism and amplified together. Each is charged before its rows are read.

References
----------
Wang, D., Ye, M. & Xu, J. (2017). Differentially private empirical risk minimization revisited: faster and more
general. NeurIPS. arXiv:1802.05251.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from ..accounting import Currency, Gaussian, strongest
from ..curator import Batch, Curator, Gradient
from ..relations import Sensitivity
from .domains import Count
from .result import Facts, Progress, SolverResult
from .schedule import DescentSettings, best_currency, clip_norm
from .series import measure_row_norm

__all__ = ["SVRGSettings", "svrg"]

_SHARE_LENGTH = 0.01
_SHARE_SNAPSHOTS = 0.5
_MOST_STEPS = 100
_STRONGEST = 2.0**30  # 1 over the least noise


@dataclass(frozen=True)
class SVRGSettings(DescentSettings):
    """Settings of `svrg`: those of `DescentSettings`, ``steps`` being those of an epoch, and one more.

    Parameters
    ----------
    epochs : int
        E.
    """

    epochs: Count = 5

    def rate(self, rows: int) -> float:
        """Return the share of the rows in a batch."""
        return self.sampling_rate or 1 / math.sqrt(max(rows, 1))

    def epoch(self, rows: int) -> int:
        """Return the number of steps between snapshots."""
        return self.steps or min(_MOST_STEPS, math.ceil(math.sqrt(rows)))

    def choose_currency(self, facts: Facts) -> str | Currency:
        rate = self.rate(facts.rows)
        if rate == 1:
            return "gdp"
        steps = self.epochs * self.epoch(facts.rows)
        return best_currency(rate, steps, facts.epsilon, facts.delta, facts.relation)


def svrg(curator: Curator, settings: SVRGSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by noisy SVRG."""
    facts, loss = Facts.of(curator), curator.problem.loss
    sampling = curator.sampling(settings.rate(facts.rows))  # raises before anything is charged
    epochs, steps = settings.epochs, settings.epoch(facts.rows)
    length = measure_row_norm(curator, _SHARE_LENGTH)
    clip = settings.clip_gradient or clip_norm(facts.promised_rows_per_parameter, length)
    left = curator.remaining * (1 - 2.0**-40)  # sums of costs are rounded up
    whole = curator.gaussian(_SHARE_SNAPSHOTS * left / epochs)
    part = strongest(
        lambda strength: Gaussian(1 / strength),
        lambda noise: sampling.cost(noise, noise),
        (1 - _SHARE_SNAPSHOTS) * left / (epochs * steps),
        curator.currency,
        _STRONGEST,
    )
    moved = Sensitivity.of_clipped_sum(clip).times(curator.rows_per_unit).under(curator.relation)
    drift = math.sqrt(epochs) * steps * moved * whole.noise_multiplier / facts.rows
    walk = math.sqrt(2 * epochs * steps) * moved * part.noise_multiplier / sampling.size
    longest = 1 / (min(loss.smoothness, 1.0) * length**2)
    step_size = settings.step_size or min(1.2 / (length * (drift + walk)), longest)
    weights = np.zeros(curator.problem.shape)
    for epoch in range(epochs):
        snapshot = weights
        anchor = curator.answer(Gradient(snapshot, clip, whole))
        for step in range(steps):
            batch = Batch(sampling, (part, part), "change of a gradient")
            now, then = (curator.answer(Gradient(at, clip, part), batch) for at in (weights, snapshot))
            weights = weights - step_size * (now - then + anchor)
            if progress is not None:
                progress((epoch * steps + step + 1) / (epochs * steps))
    return SolverResult(weights, epochs * steps, (step_size,) * (epochs * steps))
