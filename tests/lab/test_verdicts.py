"""Verdicts on claims: what surely holds agrees, what surely does not differs, and all else is within noise."""

from __future__ import annotations

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
    Checked,
    Margin,
    Sample,
    Verdict,
    cells_of,
    every,
    grouped,
    judge,
    pooled,
    some,
    told,
)

AGREES, DIFFERS, WITHIN_NOISE = Verdict.AGREES, Verdict.DIFFERS, Verdict.WITHIN_NOISE


def most(parts: Sequence[Margin]) -> AtLeast:
    return AtLeast(len(parts) // 2 + 1, tuple(parts))


SURE = {1: Margin(1.0, 0.04, 4), 0: Margin(0.01, 0.04, 4), -1: Margin(-1.0, 0.04, 4)}
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
        wrong = [judge(Margin(m.mean, factor * m.error, m.degrees)) for m in map(Margin.of, values.tolist())]
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
        (every, (1, 0, 1), WITHIN_NOISE),
        (every, (0, -1, 1), DIFFERS),
        (some, (1, 0, -1), AGREES),
        (some, (0, -1, -1), WITHIN_NOISE),
        (some, (-1, -1, -1), DIFFERS),
        (most, (1, 1, -1), AGREES),
        (most, (1, 0, -1), WITHIN_NOISE),
        (most, (1, -1, -1), DIFFERS),
        (most, (1, 1, -1, -1), DIFFERS),  # half is not most
    ],
)
def test_enough_parts_hold_or_too_many_do_not(
    rule: Callable[[Sequence[Margin]], AtLeast], signs: tuple[int, ...], verdict: Verdict
) -> None:
    assert judge(rule([SURE[sign] for sign in signs])) is verdict


@pytest.mark.parametrize("needed", [1, 2, 3])
@pytest.mark.parametrize("holding", [0, 1, 2])
def test_a_claim_of_several_parts_is_wrong_as_seldom_as_stated(needed: int, holding: int) -> None:
    """2,000 claims of three parts of which some surely hold, and the others lie at their limit.

    A claim that is one part short agrees wrongly with the whole chance, and the opposite likewise. The bounds fail
    with a probability of 1e-6.
    """
    generator = np.random.default_rng(needed + 10 * holding)
    open_parts = [[Margin.of(list(part)) for part in claim] for claim in generator.normal(0, 1, (2000, 3, 4))]
    if holding < needed:
        agreed = sum(
            judge(AtLeast(needed, (*[SURE[1]] * holding, *parts[holding:]))) is AGREES for parts in open_parts
        )
        assert agreed <= binom.isf(1e-6, 2000, WRONG)
        assert holding < needed - 1 or agreed >= binom.ppf(1e-6, 2000, 0.8 * WRONG)
    differed = sum(
        judge(AtLeast(needed, (*parts[:needed], *[SURE[-1]] * (3 - needed)))) is DIFFERS for parts in open_parts
    )
    assert binom.ppf(1e-6, 2000, 0.8 * WRONG) <= differed <= binom.isf(1e-6, 2000, WRONG)


def test_an_average_is_tested_once_and_what_is_open_has_a_bound() -> None:
    parts = [Margin.of([0.01 + off for off in order]) for order in ((-0.02, 0.0, 0.02), (0.02, 0.0, -0.02))]
    assert [judge(part) for part in parts] == [WITHIN_NOISE] * 2
    average = pooled(parts)
    assert average.mean == pytest.approx(0.01)
    assert average.error == pytest.approx(0.02 / np.sqrt(3) / np.sqrt(2))
    assert average.degrees == pytest.approx(4)
    same = pooled([Margin.of([0.01 + off for off in order]) for order in (WIGGLE, WIGGLE[::-1])])
    assert (same.error, same.degrees) == (pytest.approx(0, abs=1e-12), 4)  # averaged in each of five repetitions
    once = pooled([Margin.of([0.1]), Margin.of([0.3])])
    assert (once.mean, once.error, once.degrees) == (pytest.approx(0.2), pytest.approx(0.1), 1)
    said = told(Margin(0.012, 0.01, 9, allowed=0.005), "it is so")
    assert said == "Within noise: it is so. The difference is below 0.025 at this extent."
    assert judge(Margin.of([1.0])) is judge(Margin.of([])) is Verdict.CANNOT_TELL
    assert judge(Checked(True)) is AGREES
    assert judge(every([Checked(False), SURE[1]])) is DIFFERS


@pytest.mark.parametrize("count", [2, 5])
def test_averages_of_nothing_agree_about_as_seldom_as_stated(count: int) -> None:
    """2,000 averages over eight comparisons with spreads of their own, none of which holds; it fails with 1e-6.

    Degrees of freedom that are estimated from pairs of values are too many now and then: 0.07 in place of 0.05.
    """
    generator = np.random.default_rng(count)
    spreads = np.resize([1.0, 2.0, 0.5, 3.0], (8, 1))
    agreed = sum(
        judge(pooled([Margin.of(list(part)) for part in generator.normal(0, 1, (8, count)) * spreads])) is AGREES
        for _ in range(2000)
    )
    assert agreed <= binom.isf(1e-6, 2000, WRONG if count > 2 else 0.07)


def test_what_was_kept_of_a_sample_judges_as_the_sample_does() -> None:
    values = {(fold, 0): 0.8 + off for fold, off in enumerate(WIGGLE)}
    (cell,) = cells_of([{"method": "a", "accuracy": value} for value in values.values()], ("method",), ("accuracy",))
    sample, kept = Sample.of(values), Sample.listed(cell["accuracy"])
    assert kept.values == pytest.approx(values)
    assert Margin.between(kept, sample).error == pytest.approx(0, abs=1e-6)
    apart = Margin.between(Sample.listed(cell["accuracy"][:3]), sample)  # single values are not known: independent
    assert apart.error == pytest.approx(np.sqrt(2) * sample.error, rel=1e-4)
    assert apart.degrees == pytest.approx(8, rel=1e-4)


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


Q = {0.02: (0.76, 0.838), 0.1: (0.80, 0.84), 1.0: (0.78, 0.84)}
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
    (standing(throughout=True), lambda w: two("agd-paper", "sgd-paper", w), "Agrees"),
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
def test_every_check_agrees_differs_or_is_within_noise(
    check: Check, made: Callable[[Sequence[float]], list[Row]], verdict: str
) -> None:
    """The same means with little noise give a verdict, and with much of it none but how large a difference can be.

    Nothing is drawn: the five repetitions are off by up to 0.0004, or by a thousand times as much.
    """
    assert check(grouped(made([0.2 * off for off in WIGGLE]))).startswith(f"{verdict}: ")
    noisy = check(grouped(made([200 * off for off in WIGGLE])))
    assert noisy.startswith("Within noise: ")
    assert " is below " in noisy or " at this extent." in noisy
    assert check(grouped(rows("majority", 0.3, 0.5))).startswith("Not measured")


def test_claims_are_judged_on_paper_modes_with_our_versions_beside_them() -> None:
    measured = rows("agd-paper", 0.1, 0.75) + rows("sgd-paper", 0.1, 0.80) + rows("agd", 0.1, 0.82)
    found = standing(ahead=True)(grouped(measured))
    judged, ours = found.split(" Beside them, our versions: ")
    assert judged.startswith(
        "Differs: DP-AGD (paper) minus DP-SGD (paper), the strongest rival on average, is -0.050"
    )
    assert "behind on adult at 0.1 (by -0.050 ± 0.00" in judged
    assert ours.startswith("Agrees: DP-AGD minus ")
    assert ours.endswith("it has a higher mean than every private rival in 1 of 1 comparisons.")
    improved = rows("agd-paper", 0.1, 0.75) + rows("sgd-paper", 0.1, 0.70) + rows("sgd", 0.1, 0.80)
    assert standing(ahead=True)(grouped(improved)).startswith("Agrees")  # an improved rival is no rival of the paper
    alone = rows("agd", 0.1, 0.75) + rows("sgd", 0.1, 0.70)
    assert standing()(grouped(alone)).startswith("Not measured in paper modes. Our versions: Agrees")
    bank = rows("agd-paper", 0.1, 0.7, dataset="bank") + rows("sgd-paper", 0.1, 0.8, dataset="bank")
    assert standing(excepted=("bank",))(grouped(bank)) == "Not measured."
