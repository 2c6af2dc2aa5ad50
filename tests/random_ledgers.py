"""Statements of random ledgers of random mechanisms: `python tests/random_ledgers.py 1000` verifies so many."""

from __future__ import annotations

import sys
from collections import Counter
from typing import Any

import numpy as np

from dpdescent import Ledger, verifier
from dpdescent.accounting import (
    AboveThreshold,
    Composed,
    Cost,
    ExponentialMechanism,
    FixedSchedule,
    Gaussian,
    Laplace,
    NormLaplace,
    PoissonSampled,
    PureDP,
    ReportNoisyMax,
    ThresholdedGaussian,
)
from dpdescent.statement import PrivacyStatement

CURRENCIES = ("gdp", "zcdp", "rdp", "pure", "approximate")
#: Mechanisms whose price is that of a closed form or of dp-accounting, and no bound that may be larger.
EXACT = {"gaussian", "thresholded-gaussian", "pure", "norm-laplace", "report-noisy-max", "composed", "fixed-schedule"}


def random_cost(draw: np.random.Generator, currency: str) -> Cost:
    """Return a random mechanism that has a price in a currency."""
    small, strength = float(10 ** draw.uniform(-3, -0.5)), float(10 ** draw.uniform(-2.5, -0.3))
    pure: list[Cost] = [
        PureDP(small),
        Laplace(small),
        NormLaplace(small),
        ReportNoisyMax(small),
        ExponentialMechanism(small),
        AboveThreshold(int(draw.integers(1, 9)), 2 / small, 1 / small),
    ]
    gaussian = Gaussian(1 / strength)
    shared: list[Cost] = [
        gaussian,
        gaussian,
        ThresholdedGaussian(1 / strength, 1e-14),
        Composed((gaussian, PureDP(small))),
        FixedSchedule((gaussian,), int(draw.integers(1, 9))),
        AboveThreshold(int(draw.integers(1, 9)), 2 / small, 1 / small, "gaussian"),
    ]
    sampled = PoissonSampled(float(draw.uniform(0.01, 0.5)), (Gaussian(float(draw.uniform(0.8, 8))),))
    kinds = {"pure": pure, "approximate": pure, "rdp": [*pure, *shared, sampled, sampled]}.get(
        currency, pure + shared
    )
    return kinds[int(draw.integers(len(kinds)))]


def random_statement(draw: np.random.Generator) -> PrivacyStatement:
    """Return the statement of a run of random mechanisms under a random guarantee."""
    currency = CURRENCIES[int(draw.integers(len(CURRENCIES)))]
    epsilon, delta = float(10 ** draw.uniform(-1, 1)), float(10 ** draw.uniform(-9, -4))
    ledger = Ledger(epsilon, delta, currency=currency)
    for _ in range(int(draw.integers(1, 12))):
        cost = random_cost(draw, currency)
        for _ in range(int(draw.integers(1, 6))):
            if ledger.affords(cost):
                ledger.spend(cost, type(cost).__name__)
    return PrivacyStatement.of_ledger(ledger, model="-", method="-", randomness="a seed", arithmetic="exact")


def problem_of(statement: PrivacyStatement) -> str | None:
    """Return what the verifier and the statement disagree about, or None."""
    data: dict[str, Any] = statement.to_dict()
    found = verifier.check_statement(data)
    total, spent = found.figures["total"], statement.spent
    if found.code not in (verifier.CONFIRMED, verifier.UNCONFIRMED):
        return f"{found.lines}"
    if total < spent * (1 - 1e-9):
        return f"the verifier is below: {total} of {spent}, {statement.mechanisms}"
    if statement.mechanisms.keys() <= EXACT and abs(total - spent) > 1e-9 * spent:
        return f"prices differ: {total} and {spent}, {statement.mechanisms}"
    if found.figures["epsilon"] > statement.epsilon * (1 + 1e-4):
        return f"the budget is {found.figures['epsilon']}, and {statement.epsilon} is stated"
    return None


def verified(count: int, seed: int) -> Counter[str]:
    """Verify random statements; return how many of each verdict there were, and raise for a disagreement."""
    draw, words = np.random.default_rng(seed), Counter[str]()
    for number in range(count):
        statement = random_statement(draw)
        problem = problem_of(statement)
        assert problem is None, f"statement {number} of seed {seed}: {problem}"
        words[verifier.WORDS[verifier.check_statement(statement.to_dict()).code]] += 1
    return words


if __name__ == "__main__":
    asked = int(sys.argv[1]) if len(sys.argv) > 1 else 1000
    for word, times in verified(asked, 0).items():
        print(f"{word}: {times} of {asked}")
