r"""PrivGene: a genetic algorithm whose selection is private (Zhang et al. 2013).

Each generation holds m points. The exponential mechanism chooses two parents among them by their loss; the next
generation are crossings of the parents, split at a random position, each mutated by a random step in a random set of
coordinates. Steps shrink from one generation to the next; the answer is a private choice from the last generation.

The paper's enhanced exponential mechanism scales its noise to how much a row can change the *difference* of two
scores, not a score. Here every row's loss is compared with that of the best point so far and the change is clipped to
[-D, D], D = L times the largest distance of a candidate from it: the difference two candidates can make for a row of
typical length L, measured with a hundredth of the budget. It shrinks with the steps.

Rules: m = 100, generations between 10 and 60, sqrt(n mu/d) times ten; the first steps have the size 4/L per
coordinate and each generation's are 0.95 times as long. ``paper=True`` runs the number of generations of Lee & Kifer
(2018), which grows with n epsilon, in zCDP.

**Privacy** Exponential mechanisms in one scalar currency, fixed in number; crossing and mutation use public
randomness.

References
----------
Zhang, J., Xiao, X., Yang, Y., Zhang, Z. & Winslett, M. (2013). PrivGene: differentially private model fitting using
genetic algorithms. SIGMOD.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from numpy.typing import NDArray

from ..curator import BestCandidates, Curator
from .domains import Count, Fraction, Positive, Within
from .paper_modes import PAPER_MODES
from .result import Facts, Progress, SolverResult
from .series import measure_row_norm
from .settings import Payment, Settings

__all__ = ["PrivGeneSettings", "privgene"]

Floats = NDArray[np.float64]

_SHARE_LENGTH = 0.01
_PARENTS = 2
_MOST_GENERATIONS = 1000.0


@dataclass(frozen=True)
class PrivGeneSettings(Settings):
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

    paper_mode = PAPER_MODES["privgene"]

    def choose_currency(self, facts: Facts) -> str:
        return self.currency or "gdp"

    @property
    def payment(self) -> Payment:
        return Payment("the exponential mechanism", ("gdp", "zcdp", "rdp", "pure", "approximate"))


def privgene(curator: Curator, settings: PrivGeneSettings, progress: Progress | None = None) -> SolverResult:
    """Minimise the objective of a curator's problem by a private genetic algorithm."""
    facts, generator = Facts.of(curator), curator.public_generator()
    length = measure_row_norm(curator, _SHARE_LENGTH)
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
        if progress is not None:
            progress(1 - curator.remaining / curator.budget)
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
