"""Verdicts on claims: what surely holds agrees, what surely does not differs, and all else cannot be told."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from zlib import crc32

import numpy as np
import pytest
from scipy.stats import binom

from dpdescent.lab.claims import (
    duel,
    ends_cost,
    fewer_passes,
    gap_to_nonprivate,
    helps,
    leads_above,
    level,
    preferred,
    small_hurts,
    standing,
    steadiness,
)
from dpdescent.lab.fold_fits import Row
from dpdescent.lab.verdicts import (
    WRONG,
    AtLeast,
    Check,
    Margin,
    Verdict,
    every,
    grouped,
    judge,
    most,
    repetitions,
    some,
)

AGREES, DIFFERS, CANNOT_TELL = Verdict.AGREES, Verdict.DIFFERS, Verdict.CANNOT_TELL
SURE = {1: Margin(1.0, 0.1, 5), 0: Margin(0.01, 0.1, 5), -1: Margin(-1.0, 0.1, 5)}
WIGGLE = (-0.002, -0.001, 0.0, 0.001, 0.002)  # what five repetitions add to a mean: a standard error of 0.0007


def rows(
    method: str,
    epsilon: float,
    accuracy: float,
    wiggle: Sequence[float] = WIGGLE,
    dataset: str = "adult",
    **more: object,
) -> list[Row]:
    """Return one row per repetition; each method and value wiggles in an order of its own."""
    order = np.random.default_rng(crc32(f"{method} {more.get('value')}".encode())).permutation(wiggle)
    return [
        Row(dataset, method, epsilon, 1e-8, fold, 0, accuracy=accuracy + off, objective=1 - accuracy - off, **more)  # type: ignore[arg-type]
        for fold, off in enumerate(order)
    ]


@pytest.mark.parametrize("count", [2, 5, 100])
def test_a_mean_at_the_limit_agrees_as_often_as_stated(count: int) -> None:
    """4,000 claims that just fail to hold: they agree with probability 0.05, exactly, if repetitions are normal.

    Both bounds together fail with probability below 1e-6, under seeds that are fixed. A standard error that is a
    fifth too small or a quarter too large falls outside, and so does the normal law in place of Student's where
    repetitions are few.
    """
    generator = np.random.default_rng(count)
    values = generator.normal(0, 3, (4000, count))
    found = [judge(Margin.of(list(line))) for line in values]
    low, high = binom.ppf([5e-7, 1 - 5e-7], 4000, WRONG)
    assert low <= found.count(AGREES) <= high
    assert low <= found.count(DIFFERS) <= high
    for factor in (0.8, 1.25) if count > 2 else ():
        wrong = [judge(Margin(m.mean, factor * m.deviation, m.count)) for m in map(Margin.of, values.tolist())]
        assert not low <= wrong.count(AGREES) <= high


def test_the_parts_of_a_claim_share_the_chance_of_a_wrong_verdict() -> None:
    """2,000 claims that some of 20 parts holds, where none does: at most 5% agree, and not far fewer.

    The count is binomial with a probability of 1 - (1 - 0.05/20)^20 = 0.0488; the bounds fail with probability 1e-6.
    Without the sharing 64% would agree.
    """
    generator = np.random.default_rng(7)
    agreed = sum(
        judge(some([Margin.of(list(part)) for part in claim])) is AGREES
        for claim in generator.normal(0, 1, (2000, 20, 4))
    )
    low, high = binom.ppf([5e-7, 1 - 5e-7], 2000, 1 - (1 - WRONG / 20) ** 20)
    assert low <= agreed <= high


@pytest.mark.parametrize(
    ("rule", "signs", "verdict"),
    [
        (every, (1, 1, 1), AGREES),
        (every, (1, 0, 1), CANNOT_TELL),
        (every, (0, -1, 1), DIFFERS),
        (some, (1, 0, -1), AGREES),
        (some, (0, -1, -1), CANNOT_TELL),
        (some, (-1, -1, -1), DIFFERS),
        (most, (1, 1, -1), AGREES),
        (most, (1, 0, -1), CANNOT_TELL),
        (most, (1, -1, -1), DIFFERS),
        (most, (1, 1, -1, -1), DIFFERS),  # half is not most
    ],
)
def test_enough_parts_hold_or_too_many_do_not(
    rule: Callable[[Sequence[Margin]], AtLeast], signs: tuple[int, ...], verdict: Verdict
) -> None:
    assert judge(rule([SURE[sign] for sign in signs])) is verdict


def test_the_repetitions_that_would_tell_are_the_fewest_that_do() -> None:
    claim = every([Margin(0.002, 0.01, 3), Margin(0.004, 0.01, 3)])
    needed = repetitions(claim)
    assert needed is not None
    assert judge(claim, needed) is AGREES
    assert judge(claim, needed - 1) is CANNOT_TELL
    assert needed == pytest.approx((1.96 * 5) ** 2, rel=0.05)  # z = 1.96 at 0.05 / 2, deviations 5 times the mean
    assert repetitions(Margin(0.0, 0.01, 3)) is None
    assert judge(Margin.of([1.0])) is judge(Margin.of([])) is CANNOT_TELL
    assert Margin.of([1.0]).deviation == math.inf


def test_repetitions_are_compared_on_the_same_folds() -> None:
    """Two methods whose accuracies vary by 0.1 from fold to fold, one of them 0.01 better on each."""
    folds = (-0.1, 0.0, 0.1)
    better = [Row("adult", "blgd-paper", 1, 1e-8, k, 0, accuracy=0.81 + off + k / 1e4) for k, off in enumerate(folds)]
    worse = [Row("adult", "agd-paper", 1, 1e-8, k, 0, accuracy=0.8 + off) for k, off in enumerate(folds)]
    assert duel(("blgd-paper", "agd-paper"))(grouped(better + worse)).startswith("Agrees")


def varied(parameter: str, points: dict[float | str, tuple[float, float]], wiggle: Sequence[float]) -> list[Row]:
    return [
        row
        for value, line in points.items()
        for epsilon, accuracy in zip((0.05, 0.2), line, strict=True)
        for row in rows("blsgd-paper", epsilon, accuracy, wiggle, parameter=parameter, value=value)
    ]


def passes(factor: float, wiggle: Sequence[float]) -> list[Row]:
    return [
        Row(
            "adult",
            "m",
            0.4,
            1e-8,
            k,
            0,
            parameter="q",
            value=v,
            gradient_passes=count + 500 * off,
            loss_passes=count + 500 * off,
        )
        for v, count in ((0.1, 100 * factor), (1.0, 100.0))
        for k, off in enumerate(wiggle)
    ]


Q = {0.02: (0.76, 0.838), 0.1: (0.80, 0.84), 1.0: (0.79, 0.84)}
CLAIMS: list[tuple[Check, Callable[[Sequence[float]], list[Row]], str]] = [
    (preferred("q", 0.1), lambda w: varied("q", Q, w), "Agrees"),
    (preferred("q", 0.02), lambda w: varied("q", Q, w), "Differs"),
    (preferred("q", 0.02, ahead=True), lambda w: varied("q", Q, w), "Differs"),
    (small_hurts("q"), lambda w: varied("q", Q, w), "Agrees"),
    (small_hurts("q"), lambda w: varied("q", {0.02: (0.8, 0.8), 0.1: (0.7, 0.8)}, w), "Differs"),
    (level("q", low=0.1), lambda w: varied("q", Q, w), "Differs"),
    (level("q", above=0.1), lambda w: varied("q", Q, w), "Agrees"),
    (ends_cost("q"), lambda w: varied("q", {1: (0.7, 0.7), 2: (0.8, 0.8), 3: (0.75, 0.7)}, w), "Agrees"),
    (ends_cost("q", at=0.2), lambda w: varied("q", {1: (0.7, 0.9), 2: (0.8, 0.8), 3: (0.75, 0.7)}, w), "Differs"),
    (helps("q", 0, below=0.1), lambda w: varied("q", {0: (0.78, 0.84), 1: (0.79, 0.83)}, w), "Agrees"),
    (helps("q", 0, below=0.3), lambda w: varied("q", {0: (0.78, 0.84), 1: (0.79, 0.83)}, w), "Differs"),
    (fewer_passes("q", 0.1), lambda w: passes(0.4, w), "Agrees"),
    (fewer_passes("q", 0.1), lambda w: passes(0.6, w), "Differs"),
    (duel(("blgd-paper", "agd-paper")), lambda w: two("blgd-paper", "agd-paper", w), "Agrees"),
    (duel(("agd-paper", "blgd-paper")), lambda w: two("blgd-paper", "agd-paper", w), "Differs"),
    (standing(ahead=True), lambda w: two("agd-paper", "sgd-paper", w), "Agrees"),
    (standing(), lambda w: two("sgd-paper", "agd-paper", w), "Differs"),
    (leads_above("sgd-paper", 0.1), lambda w: two("sgd-paper", "agd-paper", w), "Agrees"),
    (leads_above("sgd-paper", 0.1), lambda w: two("agd-paper", "sgd-paper", w), "Differs"),
    (gap_to_nonprivate(), lambda w: two("agd-paper", "agd", w) + rows("nonprivate", 0, 0.83, w), "Agrees"),
    (gap_to_nonprivate(), lambda w: two("agd-paper", "agd", w) + rows("nonprivate", 0, 0.99, w), "Differs"),
    (steadiness("bank", 0.05, 0.2), lambda w: falling(w, 0.5), "Agrees"),
    (steadiness("bank", 0.05, 0.2), lambda w: falling(w, 0.7), "Differs"),
]


def two(better: str, worse: str, wiggle: Sequence[float]) -> list[Row]:
    return [
        row
        for epsilon in (0.05, 0.2)
        for m, a in ((better, 0.82), (worse, 0.79))
        for row in rows(m, epsilon, a, wiggle)
    ]


def falling(wiggle: Sequence[float], objective: float) -> list[Row]:
    return [
        Row("bank", "agd-paper", e, 1e-8, k, 0, accuracy=a + off, objective=value + off / (2 - e))
        for e, a, value in ((0.05, 0.9, 0.6), (0.2, 0.8, objective))
        for k, off in enumerate(wiggle if e < 0.1 else wiggle[::-1])
    ]


@pytest.mark.parametrize(("check", "made", "verdict"), CLAIMS)
def test_every_check_agrees_differs_or_cannot_tell(
    check: Check, made: Callable[[Sequence[float]], list[Row]], verdict: str
) -> None:
    """The same means with little noise give a verdict, and with much of it none but the repetitions that would tell.

    Nothing is drawn: the five repetitions are off by up to 0.0004, or by a thousand times as much.
    """
    assert check(grouped(made([0.2 * off for off in WIGGLE]))).startswith(f"{verdict}: ")
    noisy = check(grouped(made([200 * off for off in WIGGLE])))
    assert noisy.startswith("Cannot tell: ")
    assert noisy.endswith("repetitions would tell if means and deviations stayed (5 were measured).")
    assert check(grouped(rows("majority", 0.3, 0.5))).startswith("Not measured")


def test_claims_are_judged_on_paper_modes_with_our_versions_beside_them() -> None:
    measured = rows("agd-paper", 0.1, 0.75) + rows("sgd-paper", 0.1, 0.80) + rows("agd", 0.1, 0.82)
    found = standing(ahead=True)(grouped(measured))
    judged, ours = found.split(" Beside them, our versions: ")
    assert judged.startswith("Differs: DP-AGD (paper) has a higher mean than every private rival in 0 of 1")
    assert "behind on adult at 0.1 (by -0.050 ± 0.00" in judged
    assert ours.startswith("Agrees: DP-AGD has a higher mean than every private rival in 1 of 1 comparisons.")
    improved = rows("agd-paper", 0.1, 0.75) + rows("sgd-paper", 0.1, 0.70) + rows("sgd", 0.1, 0.80)
    assert standing(ahead=True)(grouped(improved)).startswith("Agrees")  # an improved rival is no rival of the paper
    alone = rows("agd", 0.1, 0.75) + rows("sgd", 0.1, 0.70)
    assert standing()(grouped(alone)).startswith("Not measured in paper modes. Our versions: Agrees")
    bank = rows("agd-paper", 0.1, 0.7, dataset="bank") + rows("sgd-paper", 0.1, 0.8, dataset="bank")
    assert standing(excepted=("bank",))(grouped(bank)) == "Not measured."
