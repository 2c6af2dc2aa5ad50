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
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import numpy as np
from scipy.optimize import minimize

from ..arrays import Floats
from ..curator import BestCandidates, Curator, LabelCounts, LabelSum, sum_without_privacy
from ..errors import InvalidParameter
from ..problems import LabelKind, Need
from .coordinates import measure_row_norm
from .method import Progress, SolverResult, method, report
from .method_settings import Count, Fraction, Payment, Positive, Settings, Within
from .rules import Facts


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
