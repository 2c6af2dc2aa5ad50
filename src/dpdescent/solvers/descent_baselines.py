r"""Descents by noisy gradients that others have proposed, to compare with.

**SGD-Adv**: noisy stochastic gradient descent under advanced composition (Bassily, Smith & Thakurta 2014).
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

*Privacy*: One charge of (epsilon, delta) before the first gradient; all later steps are post-processing of the T
noisy gradients it paid for. Poisson batches under zero-out, batches of fixed size under replace-one.

**Noisy SVRG** (Wang, Ye & Xu 2017): batches that only measure how the gradient has changed since a snapshot.
Each of E epochs measures the gradient of all rows at a snapshot u, and takes m steps from it with fresh batches:

.. math:: w \leftarrow w - \eta\,(\tilde g_B(w) - \tilde g_B(u) + \tilde g(u)), \qquad u \leftarrow w.

Near the snapshot both batch gradients are alike, and so are their sampling errors, which cancel. Their noise does
not. The difference of two clipped gradients with noise of their own has just the noise of one release of a
difference with twice the clip norm, at the same price: 2 (C s)^2 = (2 C s/sqrt 2)^2.

The paper sets its noise from the moments accountant and holds for a small epsilon; here every gradient is charged,
and any epsilon is allowed. Rules: batches of sqrt(n) rows; E = 5; m = sqrt(n), at most 100; half of the budget for
the snapshots; the clip norm of `dpdescent.solvers.sgd`; and the step at which all noise moves a typical row's
score by about 1.2, or the longest stable one, 1/(s L^2), if that is shorter. L is the typical length of a row,
measured with a hundredth of the budget, and s the smoothness of the loss.

*Privacy*: Gaussian answers under either relation: one for each snapshot, and two on one batch for each step, which
are charged as one mechanism and amplified together. Each is charged before its rows are read.

**DP-FTRL**: follow the regularised leader, with running totals of gradients from a binary tree (Kairouz et al. 2021).
The rows are dealt to m leaves that are read one after another. With :math:`\tilde S_t` the noisy total of the mean
gradients of the first t leaves (`dpdescent.queries.derivatives`), those of the penalty included,

.. math:: w_t = \arg\min_{|w| \le R} \Big[\langle \tilde S_t, w \rangle + \frac{\lambda}{2} |w|^2\Big]
          = \Pi_{B(0,R)}(-\tilde S_t/\lambda).

A total has the noise of at most h = log2(m + 1) nodes, however many gradients it adds up: small steps cost nothing.
Each pass begins a new tree, on top of the totals of the passes before.

Lowy & Razaviyayn (2021) name the private FTRL of Arora, Marinov & Ullah (2020) outside of their tables. That method
holds for epsilon up to sqrt(log(1/delta)); trees have the same rate up to logarithms,
:math:`L R (1/\sqrt n + \sqrt d/(\epsilon n))`, for every epsilon.

Rules: one pass; the clip norm C of `dpdescent.solvers.sgd`. With a radius R, 1/lambda is the theorem's,

.. math:: \lambda = \frac{1}{R} \sqrt{2 T (C^2 + C D \sqrt{d h/2})}

for T = passes times m leaves and noise of deviation D in each coordinate of a node, and the result is the average of
all points. Without a radius, 1/lambda is the step at which all noise moves a typical row's score by 1.2, or the
longest stable one, 1/(s L^2), if that is shorter, and the result is the average of the last half of the points. L is
the typical length of a row, measured with a hundredth of the budget, and s the smoothness of the loss. There are as
few leaves as keep the step stable: 31, 63, ..., 1023, and not more than rows.

*Privacy*: One charge for each pass, before a row of it is read: h Gaussian mechanisms, under either relation; see
`dpdescent.curator.TreeGradients`.

References
----------
Arora, R., Marinov, T. & Ullah, E. (2020). Private stochastic convex optimization: efficient algorithms for non-smooth
objectives. arXiv:2002.09609.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import numpy as np

from ..accounting import ApproximateDP, Currency, Gaussian, strongest
from ..arrays import Floats
from ..curator import Batch, Curator
from ..queries import Gradient, TreeGradients
from ..relations import Sensitivity
from .coordinates import measure_row_norm
from .method import Count, Payment, Positive, Progress, Settings, SolverResult, Within, method, report
from .rules import DELTA_SHARE, PAYABLE, QUIET_WALK, Facts, best_currency, clip_norm, usual_smoothness
from .sgd import DescentSettings, GradientSeries

_SHARE_LENGTH = 0.02  # of epsilon, for a row norm with Laplace noise
_SHARE_SNAPSHOTS = 0.5
_MOST_STEPS = 100  # of an epoch
_STRONGEST = 2.0**30  # 1 over the least noise
_FEWEST_LEVELS, _MOST_LEVELS = 5, 10
_MOST_PASSES = 10_000
_FARTHEST = 2.0**200  # a step size that is far too long leads here, and not to an error after the charge


@dataclass(frozen=True)
class SGDAdvSettings(DescentSettings, paper_mode="sgd-adv"):
    """Settings of `sgd_adv`: those of `DescentSettings`, ``step_size`` being c and ``sampling_rate`` 1/sqrt(n)."""

    steps: Annotated[int, Within(1, 2**32)] | None = None  # for more, advanced composition has no noise

    def choose_currency(self, facts: Facts) -> str:
        return "approximate"

    @property
    def payment(self) -> Payment:
        return Payment("advanced composition, which has a delta of its own", ("approximate",))


@method(
    "sgd-adv",
    SGDAdvSettings,
    purpose="noisy SGD under advanced composition: what better accounting has gained since 2014",
    passes="about 10, in batches of sqrt(n) rows",
    papers=("Bassily et al. 2014",),
)
def sgd_adv(curator: Curator, settings: SGDAdvSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by noisy SGD under advanced composition."""
    facts = Facts.of(curator)
    rate = settings.sampling_rate or 1 / math.sqrt(facts.rows)
    rule = max(1.0, facts.rows * facts.epsilon / 500) if settings.paper else math.ceil(10 / rate)
    steps = settings.steps or round(min(2000, rule))
    curator.sampling(rate)  # raises before anything is charged
    curator.require_affordable(ApproximateDP(0.5 * curator.remaining, facts.delta * DELTA_SHARE))
    length = curator.problem.longest_row if settings.paper else measure_row_norm(curator, _SHARE_LENGTH)
    clip = settings.clip_gradient or clip_norm(facts.promised_rows_per_parameter, length)
    gradients = GradientSeries.with_advanced_composition(
        curator, clip, rate, steps, curator.remaining, facts.delta * DELTA_SHARE
    )
    walk = gradients.deviation * length * math.sqrt(1 + math.log(steps))
    longest = 2 / (usual_smoothness(curator.problem.loss) * length**2)
    first_step = settings.step_size or min(QUIET_WALK / walk, longest * math.sqrt(steps))

    weights = np.zeros(curator.problem.shape)
    average, sizes = np.zeros_like(weights), []
    for step in range(1, steps + 1):
        sizes.append(first_step if settings.paper else min(first_step / math.sqrt(step), longest))
        weights = weights - sizes[-1] * gradients.measure(weights)
        average += weights / steps
        report(progress, step / steps)
    return SolverResult(weights if settings.paper else average, steps, tuple(sizes))


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


@method(
    "svrg",
    SVRGSettings,
    purpose="noisy SVRG, batches that measure how the gradient has changed since a snapshot: a baseline",
    passes="about 15, five of them over all rows and the rest in batches of sqrt(n) rows",
    papers=("Wang et al. 2017",),
    rereads=True,
)
def svrg(curator: Curator, settings: SVRGSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by noisy SVRG."""
    facts, loss = Facts.of(curator), curator.problem.loss
    sampling = curator.sampling(settings.rate(facts.rows))  # raises before anything is charged
    epochs, steps = settings.epochs, settings.epoch(facts.rows)
    length = measure_row_norm(curator)
    clip = settings.clip_gradient or clip_norm(facts.promised_rows_per_parameter, length)
    left = curator.remaining * PAYABLE
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
    longest = 1 / (usual_smoothness(loss) * length**2)
    step_size = settings.step_size or min(QUIET_WALK / (length * (drift + walk)), longest)
    weights = np.zeros(curator.problem.shape)
    for epoch in range(epochs):
        snapshot = weights
        anchor = curator.answer(Gradient(snapshot, clip, whole))
        for step in range(steps):
            batch = Batch(sampling, (part, part), "change of a gradient")
            now, then = (curator.answer(Gradient(at, clip, part), batch) for at in (weights, snapshot))
            weights = weights - step_size * (now - then + anchor)
            report(progress, (epoch * steps + step + 1) / (epochs * steps))
    return SolverResult(weights, epochs * steps, (step_size,) * (epochs * steps))


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


@method(
    "ftrl",
    FTRLSettings,
    purpose="DP-FTRL, totals of gradients with the noise of a binary tree: one pass, without random batches; "
    "a baseline",
    passes="one, in 31 to 1,023 parts",
    papers=("Kairouz et al. 2021",),
    rereads=True,
)
def ftrl(curator: Curator, settings: FTRLSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by DP-FTRL."""
    _require_answerable(curator, settings)
    plan = _measure_plan(curator, settings)
    walk = _Walk(curator, settings, plan, progress)
    for _ in range(settings.passes):
        walk.buy_pass()
    return SolverResult(walk.average, plan.steps, (plan.step_size,) * plan.steps)


def _require_answerable(curator: Curator, settings: FTRLSettings) -> None:
    """Raise what is wrong with given settings before the length of a row is paid for."""
    leaves = settings.leaves or 2**_MOST_LEVELS - 1
    curator.require_affordable(curator.gaussian(curator.remaining * PAYABLE))
    noise = curator.gaussian(0.9 * curator.remaining / (settings.passes * leaves.bit_length()))
    still = np.zeros(curator.problem.shape)
    curator.require_answerable(TreeGradients(lambda *_: still, leaves, settings.clip_gradient or 1.0, noise))


@dataclass(frozen=True)
class _Plan:
    """The leaves of a pass, the noise of their nodes, and the steps; the last ``averaged`` points are the result."""

    leaves: int
    noise: Gaussian
    clip: float
    steps: int
    step_size: float
    averaged: int


def _measure_plan(curator: Curator, settings: FTRLSettings) -> _Plan:
    """Pay for and measure the length of a typical row; plan the rest from it and from public facts."""
    facts, passes = Facts.of(curator), settings.passes
    length = measure_row_norm(curator)
    clip = settings.clip_gradient or clip_norm(facts.promised_rows_per_parameter, length)
    left = curator.remaining * PAYABLE
    longest = 1 / (usual_smoothness(curator.problem.loss) * length**2)
    moved = Sensitivity.of_clipped_sum(clip).times(curator.rows_per_unit).under(curator.relation)
    most = max(1, min(_MOST_LEVELS, (facts.rows + 1).bit_length() - 1))
    for wanted in range(min(_FEWEST_LEVELS, most), most + 1):
        leaves = settings.leaves or 2**wanted - 1
        levels = leaves.bit_length()
        noise = curator.gaussian(left / (passes * levels))
        deviation = moved * noise.noise_multiplier * leaves / facts.rows  # of the mean of a leaf
        quiet = QUIET_WALK / (length * deviation * math.sqrt(passes * levels))
        if quiet <= longest:
            break
    steps, step_size = passes * leaves, min(quiet, longest)
    if settings.radius is None:
        return _Plan(leaves, noise, clip, steps, settings.step_size or step_size, steps - steps // 2)
    spread = deviation * math.sqrt(facts.parameters * levels / 2)
    theorem = settings.radius / math.sqrt(2 * steps * clip * (clip + spread))
    return _Plan(leaves, noise, clip, steps, settings.step_size or theorem, steps)


class _Walk:
    """Where the totals of gradients lead."""

    def __init__(self, curator: Curator, settings: FTRLSettings, plan: _Plan, progress: Progress | None) -> None:
        self._curator, self._plan, self._progress = curator, plan, progress
        self._radius = settings.radius or _FARTHEST
        self._before = np.zeros(curator.problem.shape)  # the total of the passes before
        self._penalties = np.zeros_like(self._before)
        self._step = 0
        self.average = np.zeros_like(self._before)

    def buy_pass(self) -> None:
        """Read every row once, and add the last point to the average."""
        plan = self._plan
        query = TreeGradients(self._follow, plan.leaves, plan.clip, plan.noise)
        self._before = self._before + self._curator.answer(query)
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
        report(self._progress, self._step / plan.steps)
        return weights
