"""Sums over leaves: what a row can change, tried for every row there is; exactness; and what is refused."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from dpdescent.accounting import ExponentialMechanism, Gaussian
from dpdescent.audit import audit_named
from dpdescent.curator import ArraySource, BinnedSource, Curator, LatticeNoise, Units
from dpdescent.errors import InvalidParameter
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import (
    Huber,
    LinearProblem,
    Logistic,
    Loss,
    Multinomial,
    Poisson,
    Squared,
    Weighted,
)
from dpdescent.queries import BestTree, ColumnTables, LeafScores, LeafSums, LeafValues, Splits, leaf_of, lengthening
from every_query import Silent

SPLITS = Splits((0, 1), np.array([[False, True, True], [True, False, True]]))


def scores_of(outputs: int) -> LeafScores:
    """Return scores from -9 to 9, by which probabilities are near 0, 1 and between."""
    table = np.linspace(-9.0, 9.0, 3 * outputs).reshape(3, outputs)
    start = LeafScores(ColumnTables(np.zeros(outputs), ((1, table),)))
    return start.grown(LeafValues(Splits((0,), np.array([[False, True]])), 0.3 * table[:2]))


def query(loss: Loss, weight: float = 0.5) -> LeafSums:
    slope = min(math.sqrt(2), loss.lipschitz)
    own = (weight if loss.labels.every is not None else min(weight, 0.25)) * slope
    return LeafSums(SPLITS, scores_of(loss.outputs), slope, slope * math.hypot(1.0, 0.25), own, Gaussian(1.0))


def curator_of(levels: np.ndarray, labels: np.ndarray, loss: Loss) -> Curator:
    source = BinnedSource(np.asarray(levels, dtype=np.uint8), labels)
    ledger = Ledger(1e9, 1e-6, currency="gdp")
    return Curator(source, LinearProblem(loss, source.grid, intercept=False), ledger, 3, noise=Silent())


def exact(levels: np.ndarray, labels: np.ndarray, asked: LeafSums, loss: Loss) -> np.ndarray:
    curator = curator_of(levels, labels, loss)
    curator.answer(asked)
    total = curator._noise.calls[0][0]
    return total.values * total.unit


LOSSES = [Logistic(), Multinomial(3), Squared(), Huber(0.25), Poisson(0.01), Weighted(Logistic(), (0.9, 1.0))]


def named(loss: Loss) -> str:
    return type(loss).__name__


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_every_row_and_every_pair_of_rows_move_the_sums_within_the_sensitivity_and_some_attain_it(loss: Loss) -> None:
    every = loss.labels.every
    labels = [loss.labels.low, loss.labels.high] if every is None else every.tolist()
    rows = list(itertools.product(range(3), range(3), labels))
    asked = query(loss)
    alone = np.array([exact(np.array([row[:2]]), np.array([row[2]]), asked, loss) for row in rows])
    stated = LeafSums.sensitivity(asked.clip)
    removed = np.linalg.norm(alone, axis=1)
    replaced = np.linalg.norm(alone[:, None] - alone[None], axis=2)
    assert removed.max() <= stated.zero_out
    assert replaced.max() <= stated.replace_one
    assert removed.max() > 0.97 * stated.zero_out
    assert replaced.max() > (0.9 if loss.outputs == 1 else 0.65) * stated.replace_one
    assert (np.count_nonzero(alone.reshape(len(rows), loss.outputs + 1, 4).any(axis=1), axis=1) <= 1).all()


@pytest.mark.parametrize("loss", LOSSES, ids=named)
@pytest.mark.parametrize("label", [np.nan, np.inf, -np.inf, 1e300, -7.5, 5e-324])
def test_no_label_that_a_float_can_hold_moves_the_sums_further(loss: Loss, label: float) -> None:
    for weight in (0.25, 300.0):  # with the second, most rows are shortened
        asked = query(loss, weight)
        alone = np.array([exact(np.array([[0, level]]), np.array([label]), asked, loss) for level in range(3)])
        assert np.linalg.norm(alone, axis=1).max() <= LeafSums.sensitivity(asked.clip).zero_out


def test_the_sensitivity_is_the_clip_and_twice_that_where_a_row_is_replaced() -> None:
    for clip in (0.1, 1.0, 3.7):
        assert (LeafSums.sensitivity(clip).zero_out, LeafSums.sensitivity(clip).replace_one) == (clip, 2 * clip)


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_a_row_is_shortened_as_a_whole_whatever_its_curvature_weighs(loss: Loss) -> None:
    """A curvature that weighs 100 would be longer than the norm by itself; a small slope clips residuals."""
    for weight, slope in ((100.0, 1.0), (0.25, 0.1)):
        asked = LeafSums(SPLITS, scores_of(loss.outputs), slope, 1.0, weight, Gaussian(1.0))
        for row in itertools.product(range(3), range(3), [0.0, 1.0]):
            label = row[2] if isinstance(loss, Multinomial) else 2 * row[2] - 1
            found = exact(np.array([row[:2]]), np.array([label]), asked, loss)
            assert np.linalg.norm(found) <= 1.0
            assert np.abs(found[: 4 * loss.outputs]).max() <= slope + 2.0**-20


def test_rows_of_different_leaves_are_nearer_than_those_of_one() -> None:
    """The declared 2 C is needed: without rows of one leaf it would be sqrt(2) C."""
    loss, asked = Logistic(), query(Logistic())
    there, same, other = ([2, 2], 1.0), ([2, 2], -1.0), ([0, 2], -1.0)
    sums = [exact(np.array([row]), np.array([label]), asked, loss) for row, label in (there, same, other)]
    leaves = [leaf_of(SPLITS, np.array([row], dtype=np.uint8))[0] for row, _ in (there, same, other)]
    assert leaves[0] == leaves[1] != leaves[2]
    assert np.linalg.norm(sums[0] - sums[2]) <= math.sqrt(2)


@pytest.mark.parametrize("loss", LOSSES[:2], ids=named)
def test_a_row_with_its_least_likely_class_is_as_long_as_rows_may_be_and_means_of_nothing_stay(loss: Loss) -> None:
    generator, every = np.random.default_rng(0), loss.labels.every
    margins = 3 * generator.normal(size=2000 if loss.outputs == 1 else (2000, loss.outputs))
    factors, slope = lengthening(loss, loss.lipschitz, margins), loss.lipschitz
    by_class = [loss.residuals(margins, np.full(2000, label)).reshape(2000, -1) * factors[:, None] for label in every]
    longest = np.max([np.linalg.norm(each, axis=1) for each in by_class], axis=0)
    np.testing.assert_allclose(longest, slope, rtol=1e-6)
    plain = loss.residuals(margins, np.full(2000, every[0]))
    assert (factors * loss.typical_curvatures(plain, np.full(2000, every[0]))).max() <= 2 * loss.smoothness
    chances = np.exp(margins) / np.exp(margins).sum(1, keepdims=True) if loss.outputs > 1 else _chances(margins)
    mean = sum(chance[:, None] * each for chance, each in zip(chances.T, by_class, strict=True))
    np.testing.assert_allclose(mean, 0, atol=1e-7)


def _chances(margins: np.ndarray) -> np.ndarray:
    return np.stack([1 / (1 + np.exp(margins)), 1 / (1 + np.exp(-margins))], axis=1)


def test_rows_of_numbers_are_not_lengthened_and_no_row_is_by_more_than_two() -> None:
    assert lengthening(Squared(), 1.0, np.zeros(3)) is None
    flat = lengthening(Weighted(Logistic(), (0.01, 1.0)), 1.0, np.array([-9.0, 0.0, 9.0]))
    np.testing.assert_allclose(flat, [1.0, 2.0, 2.0], rtol=1e-3)


@pytest.mark.parametrize("loss", LOSSES[:3], ids=named)
def test_the_sums_are_those_of_single_rows_and_what_a_float_sum_finds(loss: Loss) -> None:
    generator = np.random.default_rng(0)
    levels = generator.integers(3, size=(400, 2))
    labels = generator.choice([0.0, 1.0, 2.0] if isinstance(loss, Multinomial) else [-1.0, 1.0], 400)
    asked = query(loss, weight=0.5)
    whole = exact(levels, labels, asked, loss)
    single = sum(exact(levels[[row]], labels[[row]], asked, loss) for row in range(400))
    np.testing.assert_array_equal(whole, single)
    if isinstance(loss, Logistic):
        scores, leaves = _scores(levels), leaf_of(SPLITS, levels.astype(np.uint8))
        chance = 1 / (1 + np.exp(-scores))
        residuals = np.bincount(leaves, (chance - (labels > 0)) / np.maximum(chance, 1 - chance), 4)
        curvatures = np.bincount(leaves, 0.5 * np.minimum(chance, 1 - chance), 4)
        np.testing.assert_allclose(whole, [*residuals, *curvatures], atol=400 * 2.0**-21)


def _scores(levels: np.ndarray) -> np.ndarray:
    table = np.linspace(-9.0, 9.0, 3)
    return table[levels[:, 1]] + 0.3 * table[:2][(levels[:, 0] >= 1).astype(int)]


TREES = [
    Splits((0, 1), np.array([[left, False, True], [right, True, False]]))
    for left, right in itertools.product((False, True), repeat=2)
] + [Splits((0, 0), np.array([[False, True, True], [False, False, False]]))]


def choice(loss: Loss, epsilon: float = 1.0) -> BestTree:
    return BestTree(TREES, scores_of(loss.outputs), min(1.3, loss.lipschitz), ExponentialMechanism(epsilon))


def tree_scores(levels: np.ndarray, labels: np.ndarray, loss: Loss) -> np.ndarray:
    curator = curator_of(levels, labels, loss)
    assert curator.answer(choice(loss)) in range(len(TREES))
    total = curator._noise.calls[0][0]
    return total.values * total.unit


@pytest.mark.parametrize("loss", LOSSES, ids=named)
def test_scores_of_trees_are_the_lengths_of_their_leaves_and_spread_by_no_more_than_is_paid_for(loss: Loss) -> None:
    every = loss.labels.every
    labels = [loss.labels.low, loss.labels.high] if every is None else every.tolist()
    rows = list(itertools.product(range(3), range(3), labels))
    asked, stated = choice(loss), BestTree.sensitivity(choice(loss).slope)
    generator, spread, replaced = np.random.default_rng(0), 0.0, 0.0
    for _ in range(8):
        table = [rows[place] for place in generator.integers(len(rows), size=generator.integers(1, 6))]
        before = tree_scores(np.array([row[:2] for row in table]), np.array([row[2] for row in table]), loss)
        after = []
        for row in rows:
            more = [*table, row]
            after.append(tree_scores(np.array([each[:2] for each in more]), np.array([e[2] for e in more]), loss))
        moved = np.array(after) - before
        spread = max(spread, float(np.ptp(moved, axis=1).max()))
        apart = np.array(after)[:, None] - np.array(after)[None]
        replaced = max(replaced, float(np.ptp(apart, axis=2).max()))
    least = 0.5 if loss.outputs == 1 else 0.15  # residuals of three classes are rarely opposite
    assert least * stated.zero_out < spread <= stated.zero_out
    assert least * stated.replace_one < replaced <= stated.replace_one
    plain = LeafSums(TREES[1], asked.scores, asked.slope, 100.0, 2.0**-20, Gaussian(1.0))
    sums = exact(np.array([row[:2] for row in table]), np.array([row[2] for row in table]), plain, loss)
    lengths = np.linalg.norm(sums.reshape(-1, 4)[:-1], axis=0).sum()
    assert before[1] == pytest.approx(-lengths, abs=0.02 * len(table))


def test_one_more_row_lengthens_a_leaf_by_no_more_than_is_stated_although_lengths_are_rounded() -> None:
    """All rows of the leaf pull alike: each adds the whole length of its residual, before it is rounded."""
    loss, generator, longest = Multinomial(3), np.random.default_rng(0), 0.0
    levels = np.zeros((1, 2), np.uint8)
    public = curator_of(levels, np.zeros(1), loss).public()
    for constant in generator.normal(size=(100, 3)):
        start = LeafScores(ColumnTables(constant))
        plan = BestTree(TREES[:1], start, loss.lipschitz, ExponentialMechanism(1.0)).plan(public)
        for label in loss.labels.every:
            row = plan.block(levels, np.array([label], np.float64), constant[None])
            lengths = [plan.parts[0].part(rows * row)[0] * plan.parts[0].unit for rows in range(6)]
            longest = max(longest, float(np.abs(np.diff(lengths)).max()))
    assert 0.998 * loss.lipschitz < longest <= BestTree.sensitivity(loss.lipschitz).zero_out / 2


class Boasting(Multinomial):
    """It says that its residuals are shorter than they are."""

    def longest_residuals(self, margins: np.ndarray) -> np.ndarray:
        return np.full(len(margins), 0.1)


def test_what_a_loss_says_of_its_residuals_does_not_lengthen_a_row_beyond_its_norm() -> None:
    loss = Boasting(3)
    for row in itertools.product(range(3), range(3), range(3)):
        levels, labels = np.array([row[:2]]), np.array([float(row[2])])
        assert -tree_scores(levels, labels, loss).min() <= choice(loss).slope
        assert np.linalg.norm(exact(levels, labels, query(loss), loss)) <= query(loss).clip


def test_the_tree_whose_leaves_differ_is_chosen_as_often_as_the_exponential_mechanism_does() -> None:
    """Of 400 choices: within 5 deviations of their law, which fails once in a million."""
    generator, loss = np.random.default_rng(0), Logistic()
    levels, labels = generator.integers(3, size=(300, 2)), generator.choice([-1.0, 1.0], 300)
    epsilon, scores = 0.3, tree_scores(levels, labels, loss)
    law = np.exp(-epsilon * (scores - scores.min()) / BestTree.sensitivity(1.0).zero_out)
    source = BinnedSource(levels.astype(np.uint8), labels)
    problem = LinearProblem(loss, source.grid, intercept=False)
    curator = Curator(source, problem, Ledger(1e9, 1e-6, currency="gdp"), 300, noise=LatticeNoise(Randomness(0)))
    chosen = np.bincount([curator.answer(choice(loss, epsilon)) for _ in range(400)], minlength=len(TREES)) / 400
    expected = law / law.sum()
    assert (np.abs(chosen - expected) <= 5 * np.sqrt(expected * (1 - expected) / 400) + 1e-3).all()


@pytest.mark.parametrize("trees", [[], [SPLITS, Splits((0,), SPLITS.sides[:1])], [Splits((5, 0), SPLITS.sides)]])
def test_trees_that_cannot_be_compared_are_refused_before_anything_is_charged(trees: list[Splits]) -> None:
    curator = curator_of(np.zeros((1, 2)), np.ones(1), Logistic())
    with pytest.raises(InvalidParameter):
        curator.answer(BestTree(trees, scores_of(1), 1.0, ExponentialMechanism(1.0)))
    assert curator.ledger.entries == ()


def test_levels_of_bytes_and_of_floats_give_the_same_bits() -> None:
    generator = np.random.default_rng(1)
    levels, labels = generator.integers(3, size=(70_000, 2)), generator.choice([-1.0, 1.0], 70_000)
    source = BinnedSource(levels.astype(np.uint8), labels)
    other = ArraySource(levels.astype(np.float64), labels, source.grid, block_rows=999)
    found = []
    for each in (source, other):
        ledger, noise = Ledger(1e9, 1e-6, currency="gdp"), Silent()
        problem = LinearProblem(Logistic(), source.grid, intercept=False)
        Curator(each, problem, ledger, 70_000, noise=noise).answer(query(Logistic()))
        found.append(noise.calls[0][0].values)
    np.testing.assert_array_equal(*found)


def test_a_unit_of_k_rows_has_k_times_the_noise() -> None:
    levels, labels = np.zeros((4, 2), dtype=np.uint8), np.ones(4)
    source = BinnedSource(levels, labels)
    noise = Silent()
    units = Units(np.array([0, 0, 1, 1]), 2, 2)
    ledger = Ledger(1e9, 1e-6, currency="gdp", unit="one patient")
    problem = LinearProblem(Logistic(), source.grid, intercept=False)
    Curator(source, problem, ledger, 4, noise=noise, units=units).answer(query(Logistic()))
    assert noise.calls[0][0].sensitivity.zero_out >= 2.0
    assert noise.calls[0][0].sensitivity.replace_one >= 4.0


@pytest.mark.parametrize(
    "splits",
    [
        Splits((0, 2), SPLITS.sides),
        Splits((0,), SPLITS.sides),
        Splits((), np.zeros((0, 3), dtype=np.bool_)),
        Splits((0,) * 17, np.zeros((17, 3), dtype=np.bool_)),
        Splits((0, -1), SPLITS.sides),
    ],
)
def test_splits_that_are_none_are_refused_before_anything_is_charged(splits: Splits) -> None:
    curator = curator_of(np.zeros((1, 2)), np.ones(1), Logistic())
    with pytest.raises(InvalidParameter):
        curator.answer(LeafSums(splits, scores_of(1), 1.0, 1.0, 1.0, Gaussian(1.0)))
    assert curator.ledger.entries == ()


@pytest.mark.slow
def test_an_audit_finds_sixty_percent_of_epsilon() -> None:
    """With confidence 95% the bound is no more than epsilon; a seed repeats it."""
    report = audit_named("LeafSums", epsilon=1.0, delta=1e-6, seed=0)
    assert 0.6 <= report.lower_bound <= 1.0
