r"""What a model is compared with: a constant, the optimum without privacy, and a search without gradients.

**Majority** has no features at all: the baseline every model must beat. The number of rows in each class, or the mean
label where labels are numbers, is measured once with the whole budget; the model is the constant that fits it best
(`Loss.best_constant`): the log-odds for logistic losses, the sign for hinges, the mean for squared errors.

*Privacy*: One Gaussian release of the counts (`LabelCounts`) or of the sum of the labels (`LabelSum`), calibrated
exactly to (epsilon, delta); the constant is post-processing.

**The optimum itself**, by L-BFGS (Liu & Nocedal 1989): NOT private, the ceiling every method is compared with.

*Privacy*: None, and the statement says so: epsilon is infinite and no ledger is charged. A caller's
ledger is refused.

**PrivGene**: a genetic algorithm whose selection is private (Zhang et al. 2013). Each generation holds m points. The
exponential mechanism chooses two parents among them by their loss; the next generation are crossings of the parents,
split at a random position, each mutated by a random step in a random set of coordinates. Steps shrink from one
generation to the next; the answer is a private choice from the last generation.

The paper's enhanced exponential mechanism scales its noise to how much a row can change the *difference* of two
scores, not a score. Here every row's loss is compared with that of the best point so far and the change is clipped to
[-D, D], D = L times the largest distance of a candidate from it: the difference two candidates can make for a row of
typical length L, measured with a hundredth of the budget. It shrinks with the steps.

Rules: m = 100, generations between 10 and 60, sqrt(n mu/d) times ten; the first steps have the size 4/L per
coordinate and each generation's are 0.95 times as long. ``paper=True`` runs the number of generations of Lee & Kifer
(2018), which grows with n epsilon, in zCDP.

*Privacy*: Exponential mechanisms in one scalar currency, fixed in number; crossing and mutation use public
randomness.

Output perturbation of descents: steps without noise, and noise once at the end.

Both need rows of bounded length and a smooth loss: rows longer than B are scaled down to B (which never changes the
sign of a score), the hinge must be huberised, and the squared loss is replaced by Huber's with slope 1.

**Gradient descent** (Zhang, Zheng, Mou & Wang 2017) takes T exact steps.

.. math:: w_{t+1} = w_t - \eta \nabla F(w_t), \qquad \tilde w = w_T + N(0, \sigma^2 I).

The paper's sigma comes from the classical Gaussian mechanism and is not private for epsilon above 1; here it is the
exact one for the sensitivity, whatever epsilon is. The typical length L of a row is measured with a hundredth of the
budget. With k = n mu/d and B = max(0.7, 0.3 k^0.4) L, the step size is eta = 1/beta, beta = s B^2 + alpha. In the
convex case the sensitivity is eta T C/n, so the noise grows with the number of steps T. It may move a typical row's
score by about r = min(0.7, 0.5 k^-0.2): hence T = r n mu beta/(C L), at most 1000. ``paper=True`` takes the T, the
step size and the B of Lee & Kifer (2018), and measures nothing.

*Privacy*: One release, Gaussian or with the noise of pure privacy; see `dpdescent.queries.NoisyDescent` for the
sensitivity in the convex and the strongly convex case, under both relations, and for the rounding errors of steps.

**Permuted SGD with averaging** (Wu et al. 2017; Chen, Lee & Kifer 2019). In each of k passes the rows are permuted
and divided into batches of b; after a pass the point is replaced by the average of its iterates, and after the last
one it is released with Gaussian noise:

.. math:: w \leftarrow w - \frac{\eta}{b} \sum_{i \in \text{batch}} \nabla l_i(w), \qquad
          w \leftarrow \text{average over the pass}, \qquad \tilde w = w + N(0, \sigma^2 I).

A row is read once per pass, at a position that is secret, and an early position counts for more in the average. The
shift that the row causes is therefore random, about half of the largest one, and the Renyi divergence of the mixture
is charged.

Rules: B and the noise r in a score as in `outpert_gd`, ten passes, step size 1/beta, and batches of b = k n eta/S
rows, S = 2 r n mu/(C L), which counts the shift as half of the largest one; at least n/1000.

*Privacy*: One release in RDP at one order, a rule of (epsilon, delta); see `dpdescent.curator.PermutedDescent` for
the shift under both relations and the rounding errors, and `dpdescent.accounting.sampling` for the mixture. The
bound of Chen, Lee & Kifer for strongly convex objectives is not used: the convex one holds for every penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from scipy.optimize import minimize

from ..accounting import ShuffledDescent, calibrate
from ..arrays import Floats
from ..curator import Curator, sum_without_privacy
from ..errors import InvalidParameter
from ..minimisers import smooth_loss
from ..problems import LabelKind, Loss, Need
from ..queries import BestCandidates, LabelCounts, LabelSum, NoisyDescent, PermutedDescent
from .coordinates import ROW_NORM_SHARE, measure_row_norm
from .method import (
    Count,
    Fraction,
    Moderate,
    Payment,
    Positive,
    Progress,
    Settings,
    SolverResult,
    Within,
    method,
    report,
)
from .output_noise import pure_noise
from .rules import Facts, clip_multiple


@dataclass(frozen=True)
class MajoritySettings(Settings, paper_mode="majority"):
    """Settings of `majority`: there are none but ``paper``, which changes nothing."""

    def choose_currency(self, facts: Facts) -> str:
        return "gdp"


@method(
    "majority",
    MajoritySettings,
    purpose="class frequencies or the mean, without features: what every model must beat",
    passes="one",
    needs=frozenset({Need.CONSTANT}),
)
def majority(curator: Curator, settings: MajoritySettings, progress: Progress | None = None) -> SolverResult:  # noqa: ARG001
    """Fit a constant to the noisy label counts, or to the noisy mean label, of a curator's rows."""
    problem = curator.problem
    if not problem.intercept:
        raise InvalidParameter("method 'majority' is an intercept and nothing else: it needs fit_intercept=True")
    labels = problem.loss.labels
    noise = curator.gaussian(curator.budget)
    if labels.kind is LabelKind.NUMBERS:
        noisy = np.array([curator.answer(LabelSum(noise)) / curator.rows])
    else:
        noisy = curator.answer(LabelCounts(noise))
    weights = np.zeros(problem.shape)
    weights[-1] = problem.loss.best_constant(noisy)
    report(progress, 1.0)
    return SolverResult(weights, 1)


@dataclass(frozen=True)
class NonPrivateSettings(Settings, paper_mode="nonprivate"):
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

    def choose_currency(self, facts: Facts) -> str:
        return "zcdp"


@method(
    "nonprivate",
    NonPrivateSettings,
    purpose="the minimiser itself by L-BFGS, NOT PRIVATE: the ceiling of every comparison",
    passes="as many as L-BFGS needs",
    papers=("Liu & Nocedal 1989",),
    private=False,
)
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
    report(progress, 1.0)
    return SolverResult(weights, 1, remarks=("not private: the optimum of the training rows, without noise",))


_PARENTS = 2
_MOST_GENERATIONS = 1000.0


@dataclass(frozen=True)
class PrivGeneSettings(Settings, paper_mode="privgene"):
    """Settings of `privgene`.

    Parameters
    ----------
    candidates : int
        m, the points of a generation.
    generations : int, optional
        None takes the rule.
    mutation, shrink : float
        Size of the first steps, in inverse typical row lengths, and what they shrink by in each generation.
    share : float
        Share of the coordinates that mutate in a child; at least one does.
    batch_rate : float
        Every selection is made on a fresh Poisson batch of this rate. It saves time on large tables; no amplification
        is claimed.
    currency : {"gdp", "zcdp"}, optional
        The currency of the filter: GDP by default.
    """

    candidates: Annotated[int, Within(2)] = 100
    generations: Count | None = None
    mutation: Positive = 4.0
    shrink: Fraction = 0.95
    share: Fraction = 0.1
    batch_rate: Fraction = 1.0
    currency: Literal["gdp", "zcdp"] | None = None

    def choose_currency(self, facts: Facts) -> str:
        return self.currency or "gdp"

    @property
    def payment(self) -> Payment:
        return Payment("the exponential mechanism", ("gdp", "zcdp", "rdp", "pure", "approximate"))


@method(
    "privgene",
    PrivGeneSettings,
    purpose="a genetic algorithm with private selection: a baseline without gradients",
    passes="10 to 60, each with the losses of 100 candidates",
    papers=("Zhang et al. 2013",),
)
def privgene(curator: Curator, settings: PrivGeneSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by a private genetic algorithm."""
    facts, generator = Facts.of(curator), curator.public_generator()
    length = measure_row_norm(curator)
    richness = facts.promised_rows_per_parameter
    rule = math.ceil(min(max(10 * math.sqrt(richness), 10.0), 60.0))
    if settings.paper:
        rule = round(min(max(facts.rows * facts.epsilon / 800, 1.0), _MOST_GENERATIONS))
    generations = settings.generations or rule
    amount = curator.remaining / (generations + 1)
    parents = np.zeros((_PARENTS, *curator.problem.shape))
    step = settings.mutation / length

    for generation in range(generations + 1):
        children = _children(parents, settings, step, generator)
        reference = parents[0]
        distances = np.linalg.norm((children - reference).reshape(len(children), -1), axis=1)
        change = max(float(distances.max()) * length, 1e-12)
        choices = 1 if generation == generations else _PARENTS
        choice = curator.currency.selection(amount / choices)
        chosen = curator.answer(BestCandidates(children, reference, change, choice, choices))
        parents = children[chosen]
        step *= settings.shrink
        report(progress, 1 - curator.remaining / curator.budget)
    return SolverResult(parents[0], generations)


def _children(parents: Floats, settings: PrivGeneSettings, step: float, generator: np.random.Generator) -> Floats:
    """Return the parents and mutated crossings of them."""
    flat = parents.reshape(_PARENTS, -1)
    count, size = settings.candidates, flat.shape[1]
    cuts, first = generator.integers(0, size + 1, count), generator.integers(0, _PARENTS, count)
    before = np.arange(size) < cuts[:, None]
    children = np.where(before, flat[first], flat[1 - first])
    mutated = generator.random((count, size)) < settings.share
    mutated[np.arange(count), generator.integers(0, size, count)] = True
    children = children + mutated * generator.uniform(-step, step, (count, size))
    children[:_PARENTS] = flat
    return children.reshape(count, *parents.shape[1:])


_NEEDS = frozenset({Need.CONVEX, Need.BOUNDED_VERSION, Need.SMOOTH})
_MOST_STEPS, _MOST_BATCHES = 1000, 1000


@dataclass(frozen=True)
class OutPertGDSettings(Settings, paper_mode="outpert-gd"):
    """Settings of `outpert_gd`; None takes the rule.

    Parameters
    ----------
    steps : int, optional
        T.
    step_size : float, optional
        eta, at most 1/beta: a longer one is shortened to it, because the sensitivity holds up to there.
    row_bound : float, optional
        B.
    pure : bool
        Norm-Laplace noise: epsilon-DP but for a probability of 1e-27, which delta must cover; Laplace noise on every
        weight where delta is 0. No row length is measured then.
    """

    steps: Count | None = None
    step_size: Moderate | None = None
    row_bound: Moderate | None = None
    pure: bool = False

    def choose_currency(self, facts: Facts) -> str:
        return "pure" if self.pure else "gdp"

    @property
    def payment(self) -> Payment:
        if not self.pure:
            return super().payment
        remedies = dict.fromkeys(super().payment.currencies, "leave pure out")
        return Payment("norm-Laplace noise", ("pure",), remedies)


@method(
    "outpert-gd",
    OutPertGDSettings,
    purpose="exact gradient descent and noise at the end: a baseline",
    passes="up to 1,000, then one release",
    papers=("Zhang et al. 2017",),
    needs=_NEEDS,
    gathers=True,
)
def outpert_gd(curator: Curator, settings: OutPertGDSettings, progress: Progress | None = None) -> SolverResult:
    """Descend along exact gradients and release the last point with noise."""
    loss = smooth_loss(curator.problem.loss, "outpert-gd")
    bound, step_size, time = _measure_plan(
        curator, loss, settings.row_bound, 0.0 if settings.paper or settings.pure else ROW_NORM_SHARE
    )
    step_size = min(settings.step_size or step_size, step_size)
    steps = settings.steps or math.ceil(min(max(time / step_size, 1), _MOST_STEPS))
    left, delta = curator.remaining, curator.ledger.delta
    noise = pure_noise(left, delta) if settings.pure else curator.gaussian(left)
    weights = curator.answer(NoisyDescent(loss, bound, step_size, steps, noise))
    report(progress, 1.0)
    return SolverResult(weights, steps, (step_size,) * steps, remarks=_remarks(curator, loss, bound))


def _measure_plan(curator: Curator, loss: Loss, row_bound: float | None, share: float) -> tuple[float, float, float]:
    """Pay for a plan: return B, the step size 1/beta, and the time eta T that the noise allows.

    The typical row length is measured with that share of the budget; if it is 0, the longest row stands in for it.
    """
    facts = Facts.of(curator)
    information = facts.promised_rows
    length = measure_row_norm(curator, share) if share else curator.problem.longest_row
    richness = facts.promised_rows_per_parameter
    bound = row_bound or clip_multiple(richness, 0.3, 0.4, least=0.7) * length
    bound = min(bound, curator.problem.longest_row)
    penalty = float(np.max(curator.problem.penalty_curvature(np.zeros(curator.problem.shape))))
    step_size = 1 / (loss.smoothness * bound**2 + penalty)
    score_noise = min(0.7, 0.5 * math.pow(richness, -0.2))
    return bound, step_size, score_noise * information / (loss.lipschitz * bound * length)


def _remarks(curator: Curator, loss: Loss, bound: float) -> tuple[str, ...]:
    """Return what was done to the rows and to the loss."""
    return (
        f"rows longer than {bound:.6g}, in units of the bounds, were scaled down to it",
        *((f"the loss was {type(loss).__name__}",) if loss is not curator.problem.loss else ()),
        "the sensitivity includes a bound on the rounding errors of all steps",
    )


@dataclass(frozen=True)
class OutPertRSGDSettings(Settings, paper_mode="outpert-rsgd"):
    """Settings of `outpert_rsgd`; None takes the rule.

    Parameters
    ----------
    passes : int
        k.
    batch_rows : int, optional
        b.
    row_bound : float, optional
        B.
    """

    passes: Count = 10
    batch_rows: Count | None = None
    row_bound: Positive | None = None

    def choose_currency(self, facts: Facts) -> str:
        return "rdp"


@method(
    "outpert-rsgd",
    OutPertRSGDSettings,
    purpose="permuted SGD with averaging and noise at the end: a baseline",
    passes="ten, then one release",
    papers=("Wu et al. 2017", "Chen et al. 2019"),
    needs=_NEEDS,
    gathers=True,
    units=False,
)
def outpert_rsgd(curator: Curator, settings: OutPertRSGDSettings, progress: Progress | None = None) -> SolverResult:
    """Pass over permuted rows, averaging, and release the last average with noise."""
    loss = smooth_loss(curator.problem.loss, "outpert-rsgd")
    bound, step_size, time = _measure_plan(curator, loss, settings.row_bound, ROW_NORM_SHARE)
    wanted = settings.passes * curator.rows * step_size / (2 * time)
    batch_rows = settings.batch_rows or min(max(math.ceil(wanted), -(-curator.rows // _MOST_BATCHES)), curator.rows)
    passes, batches = settings.passes, -(-curator.rows // batch_rows)
    cost = calibrate(
        lambda strength: ShuffledDescent(1 / strength, passes, batches), curator.remaining, curator.currency
    )
    weights = curator.answer(PermutedDescent(loss, bound, batch_rows, step_size, cost))
    report(progress, 1.0)
    steps = passes * batches
    return SolverResult(weights, steps, (step_size,) * steps, remarks=_remarks(curator, loss, bound))
