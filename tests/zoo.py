"""Deliberately broken variants of what the library does, each beside the right one, with neighbouring tables.

A member runs like any subject of the auditor. ``broken`` and ``right`` make the same claim, or, where the accounting
is what is broken, the same mechanism stands behind a wrong claim and a right one.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy.special import ndtr

from dpdescent.accounting import (
    AboveThreshold,
    Composed,
    Cost,
    ExponentialMechanism,
    Gaussian,
    Laplace,
    PoissonSampled,
    Threshold,
    ThresholdedGaussian,
    gdp_to_epsilon,
    loose_noise_multiplier,
    rdp_to_epsilon,
)
from dpdescent.audit.findings import Claim
from dpdescent.audit.worst_cases import MECHANISMS, Mechanism
from dpdescent.curator import ArraySource, Curator, LatticeNoise, Sampling
from dpdescent.curator.batches import bernoulli
from dpdescent.errors import BudgetExhausted
from dpdescent.exact import FeatureGrid, LatticeSum
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import LinearProblem, Logistic
from dpdescent.queries import Gradient, Public
from dpdescent.relations import Norm, Relation, Sensitivity

ZERO_OUT, REPLACE_ONE = Relation.ZERO_OUT, Relation.REPLACE_ONE


@dataclass(frozen=True)
class Subject:
    """Outcomes of a function of the table, a generator of bits and a number of runs."""

    sample: Callable[[bool, Randomness, int], Any]
    chunk: int = 2**18
    fingerprint: str = ""

    def draw(self, neighbour: bool, seed: int | None, runs: int) -> list[Any]:
        outcomes = np.asarray(self.sample(neighbour, Randomness(seed), runs), dtype=np.float64)
        return outcomes.reshape(runs, -1).tolist()


@dataclass(frozen=True)
class Member:
    """A broken variant, a right one, and what they claim."""

    broken: Any
    right: Any
    epsilon: float
    delta: float
    claim: Claim = "approximate"
    right_epsilon: float | None = None
    runs: int = 40_000


ZOO: dict[str, Member] = {}


# Noise -------------------------------------------------------------------------------------------------------------


def _with_cost(name: str, cost: Callable[[Any], Cost], relation: Relation = ZERO_OUT) -> tuple[Mechanism, Mechanism]:
    right = MECHANISMS[name](1.0, 1e-6, relation)
    return replace(right, cost=cost(right.cost)), right


ZOO["half the Gaussian noise"] = Member(
    *_with_cost("gaussian", lambda cost: Gaussian(cost.noise_multiplier / 2)), 1.0, 1e-6, "gdp"
)
ZOO["half the Laplace noise"] = Member(*_with_cost("laplace", lambda cost: Laplace(2 * cost.epsilon)), 1.0, 1e-6)
ZOO["half the selection noise"] = Member(
    *_with_cost("selection", lambda cost: ExponentialMechanism(2 * cost.epsilon)), 1.0, 1e-6
)

_REPLACED = MECHANISMS["gaussian"](1.0, 1e-6, REPLACE_ONE)
ZOO["replace-one data with zero-out noise"] = Member(
    replace(_REPLACED, relation=ZERO_OUT), _REPLACED, 1.0, 1e-6, "gdp"
)

_SIGMA = loose_noise_multiplier(1.0, 1e-5)
_LOOSE = replace(MECHANISMS["gaussian"](1.0, 1e-5, ZERO_OUT), cost=Gaussian(_SIGMA))
ZOO["output perturbation without its sqrt 2"] = Member(
    replace(_LOOSE, cost=Gaussian(_SIGMA / math.sqrt(2))), _LOOSE, 1.0, 1e-5, "gdp", runs=200_000
)


# Selection and search: what is claimed for scores that a row moves all one way -------------------------------------


def _of_changes() -> tuple[Mechanism, Mechanism]:
    """A row lowers the first score and raises the second: a spread of 2, where 1 would do for monotone scores."""
    sums = ((4.0, 0.0), (3.0, 1.0))
    right = Mechanism(ExponentialMechanism(1.0), "approximate", sums, Sensitivity.of_changes(1.0), ZERO_OUT)
    return replace(right, sensitivity=Sensitivity.of_scores(1.0)), right


ZOO["selection without the factor for scores that move both ways"] = Member(*_of_changes(), 1.0, 0.0)


def _monotone_search() -> Mechanism:
    """A row adds to all queries but the last, and is replaced by one that adds to the last alone."""
    start, last = np.append(np.full(7, -1.0), 0.0), np.eye(8)[-1]
    sums = tuple((start + 1 - last).tolist()), tuple((start + last).tolist())
    return Mechanism(AboveThreshold(8, 2.0, 4.0), "approximate", sums, Sensitivity.of_bounded_sum(1.0), REPLACE_ONE)


_SEARCH = _monotone_search()
# 1/b1 + 1/b2 for queries that a row moves all one way, which replacing a row does not; 1/b1 + 2/b2 for any.
ZOO["a monotone threshold under replace-one"] = Member(
    _SEARCH, _SEARCH, 1 / 4 + 1 / 2, 0.0, right_epsilon=_SEARCH.cost.pure(), runs=120_000
)


# Levels that are found ---------------------------------------------------------------------------------------------


class _OneKeyAlone(Threshold):
    """The threshold k + s z(failure/C), as if all rows of a unit had to have one key."""

    def _in_a_column(self, threshold: float, deviation: float) -> float:
        return float(ndtr((self.rows_per_unit - threshold) / deviation))


def _levels(threshold: Threshold, failure: float) -> Subject:
    """Whether any of the five keys that one unit alone holds is published; without the unit there are none."""
    cost = ThresholdedGaussian(4.0, failure)
    sensitivity = Sensitivity(Norm.L2, float(threshold.rows_per_unit), 2.0 * threshold.rows_per_unit)

    def sample(neighbour: bool, randomness: Randomness, runs: int) -> np.ndarray:
        if neighbour:
            return np.zeros(runs)
        keys = threshold.rows_per_unit
        total = LatticeSum(np.full(runs * keys, 2**16, dtype=np.int64), 2.0**-16, sensitivity)
        found, _ = LatticeNoise(randomness).published(total, cost, ZERO_OUT, threshold)
        return np.bincount(np.unique(found // keys), minlength=runs)

    return Subject(sample)


ZOO["a threshold for one key of a unit that has five"] = Member(
    _levels(_OneKeyAlone(1, 5, scaled=False), 0.05), _levels(Threshold(1, 5, scaled=False), 0.05), 0.5, 0.05
)


# The loss with half-normal noise -----------------------------------------------------------------------------------

_RHO, _DECREASE = 0.01, 0.05


def _steps(signed: bool) -> Subject:
    """The number of steps, from a noisy loss of sensitivity 1 and the decrease of a step."""
    cost = Gaussian(1 / math.sqrt(2 * _RHO))

    def sample(neighbour: bool, randomness: Randomness, runs: int) -> np.ndarray:
        mechanism = Mechanism(cost, "gdp", ((0.0,), (0.0,)), Sensitivity.of_bounded_sum(1.0, Norm.L2), ZERO_OUT)
        noise = np.array(mechanism.draw(neighbour, randomness.seed, runs))
        return np.ceil((1.0 + neighbour + (noise if signed else np.abs(noise))) / _DECREASE)

    return Subject(sample)


ZOO["T from the absolute value of the noise"] = Member(
    _steps(False), _steps(True), gdp_to_epsilon(math.sqrt(2 * _RHO), 1e-6), 1e-6, "gdp", runs=4000
)


# Amplification -----------------------------------------------------------------------------------------------------


def _epsilon(cost: Cost, delta: float) -> float:
    return min(rdp_to_epsilon(cost.rdp(order), order, delta) for order in range(2, 200))


def _on_one_batch(rate: float, noise: Cost, answers: int, norm: Norm = Norm.L2) -> Subject:
    """Several answers about a row that is in one batch, or not, by chance."""

    def sample(neighbour: bool, randomness: Randomness, runs: int) -> np.ndarray:
        chosen = bernoulli(randomness.stream("batch", 0), runs, rate) if neighbour else np.zeros(runs, dtype=bool)
        sums = ((0.0,) * answers, (0.0,) * answers)
        mechanism = Mechanism(noise, "approximate", sums, Sensitivity.of_signed_sum(1.0, norm), ZERO_OUT)
        return np.array(mechanism.draw(neighbour, randomness.seed, runs)) + chosen[:, None]

    return Subject(sample)


_LAPLACE, _PART = _on_one_batch(0.3, Laplace(3.0), 1, Norm.L1), Gaussian(2.0)
_BATCH = _on_one_batch(0.1, _PART, 32)
ZOO["amplification claimed twice"] = Member(
    _LAPLACE,
    _LAPLACE,
    PoissonSampled(0.3**2, (Laplace(3.0),)).pure(),
    0.0,
    right_epsilon=PoissonSampled(0.3, (Laplace(3.0),)).pure(),
)
ZOO["answers on one batch amplified one by one"] = Member(
    _BATCH,
    _BATCH,
    _epsilon(Composed((PoissonSampled(0.1, (_PART,)),) * 32), 1e-3),
    1e-3,
    right_epsilon=_epsilon(PoissonSampled(0.1, (_PART,) * 32), 1e-3),
    runs=20_000,
)


# A minimiser that is accurate on average ---------------------------------------------------------------------------


def _minimiser(certified: bool) -> Subject:
    """Output perturbation of a point that both tables share, where the minimiser errs on one of them.

    The mean excess risk is 1/2 at a strong convexity of 1, so an expected distance of 1 was assumed. A minimiser that
    is exact but for one run in a hundred, and then 10 away, has that mean; one with a certificate is never beyond 1.
    """

    def sample(neighbour: bool, randomness: Randomness, runs: int) -> np.ndarray:
        rare = bernoulli(randomness.stream("minimiser", 0), runs, 0.01)
        error = np.where(rare, 1.0 if certified else 10.0, 0.0) if neighbour else np.zeros(runs)
        sums = ((0.0,), (0.0,))
        # An error of 1 on either table: the two points are at most 2 apart, which is the sensitivity.
        mechanism = Mechanism(Laplace(2.0), "approximate", sums, Sensitivity.of_bounded_sum(2.0, Norm.L1), ZERO_OUT)
        return np.array(mechanism.draw(neighbour, randomness.seed, runs)) + error[:, None]

    return Subject(sample)


ZOO["an uncertified stochastic minimiser"] = Member(_minimiser(False), _minimiser(True), 2.0, 0.0, runs=100_000)


# The curator and the ledger ----------------------------------------------------------------------------------------

_ROWS = 21


class DividesByRealisedSize(Curator):
    """A curator that divides by the number of rows there are, which is private."""

    def public(self, sampling: Sampling | None = None) -> Public:
        return replace(super().public(sampling), size=float(self._source.rows))


class ChecksAfterSpending(Ledger):
    """A ledger that refuses once the budget is gone, and not before it is overspent."""

    def _objection(self, cost: Cost, price: float) -> str | None:
        return "the budget is gone" if self._history.spent > self._limit else None


def asked(
    neighbour: bool,
    seed: int,
    *,
    curator_type: type[Curator] = Curator,
    ledger_type: type[Ledger] = Ledger,
    amounts: tuple[float, ...] = (1.0,),
) -> list[float]:
    """Ask for gradients with shares of the budget, and return the answers; a refused one is 0.

    Rows of one column pull the gradient one way with all of their norm, and the last pulls the other way.
    """
    rows = _ROWS - 1 + neighbour
    grid, labels = FeatureGrid(1.0, 1), np.append(np.ones(_ROWS - 1), -1.0)[:rows]
    source = ArraySource(np.ones((rows, 1)), labels, grid)
    ledger = ledger_type(8.0, 1e-6, currency="gdp")
    noise = LatticeNoise(Randomness(seed))
    curator = curator_type(source, LinearProblem(Logistic(), grid, intercept=False), ledger, _ROWS, noise=noise)
    answers = []
    for share in amounts:
        try:
            answers.append(
                float(curator.answer(Gradient(np.zeros(1), 0.5, curator.gaussian(share * curator.budget)))[0])
            )
        except BudgetExhausted:
            answers.append(0.0)
    return answers


def _run_by_run(**broken: Any) -> Subject:
    def sample(neighbour: bool, randomness: Randomness, runs: int) -> list[list[float]]:
        generator = np.random.default_rng(randomness.seed)
        return [asked(neighbour, int(seed), **broken) for seed in generator.integers(2**62, size=runs)]

    return Subject(sample)


ZOO["division by the realised batch size"] = Member(
    _run_by_run(curator_type=DividesByRealisedSize), _run_by_run(), 8.0, 1e-6, "gdp", runs=240
)
_TWO = (0.01, 4.0)
ZOO["a filter that checks after spending"] = Member(
    _run_by_run(ledger_type=ChecksAfterSpending, amounts=_TWO), _run_by_run(amounts=_TWO), 8.0, 1e-6, "gdp", runs=240
)
