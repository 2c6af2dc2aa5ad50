"""The curator charges before it reads, refuses without a trace, and releases nothing that was not paid for.

Statistical tests run on fixed seeds, so they never alarm at random; on fresh bits each would raise a false alarm
with probability below 1e-6.
"""

from __future__ import annotations

import itertools
import math
import os
import pickle
import signal
import time
import warnings
from fractions import Fraction

import numpy as np
import pytest
from scipy import sparse, stats

from asking import best_step, column_moments, gradient, mean_row_norm
from dpdescent.accounting import AboveThreshold, Gaussian
from dpdescent.curator import Curator
from dpdescent.curator.array_source import ArraySource
from dpdescent.curator.batches import Sampling, bernoulli, draw_rows
from dpdescent.curator.curator import sum_without_privacy
from dpdescent.curator.lattice_noise import LatticeNoise
from dpdescent.errors import BudgetExhausted, DPDescentError, InvalidParameter, LedgerError, ScaleOutOfRange
from dpdescent.estimators.payment import make_noise
from dpdescent.exact import FeatureGrid, LatticeSum
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import L2, Frame, Hinge, HuberisedHinge, LinearProblem, Logistic, Loss, Multinomial, Squared
from dpdescent.queries import (
    ColumnHistograms,
    ColumnMoments,
    FirstStep,
    LabelCounts,
    SecondMoments,
    counts_and_moments,
)
from dpdescent.queries.counts_and_moments import COUNT, _counts_block
from dpdescent.queries.per_row import RowWeights
from dpdescent.relations import Norm, Relation
from neighbours import ALARM, RICH, Recorder, Watched

D, N = 6, 300
GRID = FeatureGrid(1.0, D)
NOISE = Gaussian(5.0)
LOSSES = [Logistic(), Hinge(), HuberisedHinge(), Squared(), Multinomial(3)]
STORAGE = {
    "dense": np.asarray,
    "csr": sparse.csr_array,
    "csr-matrix": sparse.csr_matrix,
    "float32": lambda X: np.asarray(X, np.float32),
    "csr-float32": lambda X: sparse.csr_array(np.asarray(X, np.float32)),
    "fortran": np.asfortranarray,
}


def made_up(loss: Loss, rows: int = N, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    features = generator.uniform(-1, 1, (rows, D)) * (generator.random((rows, D)) < 0.7)
    features[:, -1] = 1.0
    scores = features @ generator.normal(0, 2, (D, max(loss.outputs, 2)))
    best = scores.argmax(axis=1)
    return GRID.place(features), best * 1.0 if loss.outputs > 1 else np.where(best > 0, 1.0, -1.0)


def curator(
    loss: Loss | None = None,
    *,
    data: tuple | None = None,
    epsilon: float = 1.0,
    relation: str = "zero-out",
    penalty: float = 0.0,
    intercept: bool = True,
    block_rows: int = 2**14,
    currency: str = "zcdp",
    **options,
) -> Curator:
    loss = loss or Logistic()
    features, labels = data or made_up(loss)
    ledger = Ledger(epsilon, 1e-6, relation=relation, currency=currency)
    source = Watched(features, labels, GRID, block_rows)
    source.touches = []
    source.ledgers = tuple(ledger for ledger in (ledger, options.get("account")) if ledger is not None)
    problem = LinearProblem(loss, GRID, L2(penalty), intercept)
    return Curator(source, problem, ledger, N, **({"noise": LatticeNoise(Randomness(1))} | options))


def touches(asked: Curator) -> list[tuple[int, ...]]:
    return asked._source.touches  # type: ignore[attr-defined,no-any-return]


def weights_for(asked: Curator, seed: int = 3) -> np.ndarray:
    return np.random.default_rng(seed).normal(0, 1, asked.problem.shape)


STEPS = np.array([0.0, 0.1, 0.5, 2.0])
FRAME = Frame.place(GRID, np.array([0.3, -0.2, 0.0, 0.7, -1.0, 0.0]), np.array([1.0, 0.5, 0.25, 1.0, 0.5, 1.0]))
OTHER = Frame.place(GRID, -FRAME.centre, np.ones(D))
QUERIES = {
    "gradient": lambda c, amount: gradient(c, weights_for(c), 0.5, amount),
    "gradient in a frame": lambda c, amount: gradient(c, weights_for(c), 0.5, amount, FRAME),
    "column moments": lambda c, amount: np.concatenate(column_moments(c, 0.5, amount)),
    "row norm": lambda c, amount: mean_row_norm(c, amount),
    "row norm in a frame": lambda c, amount: mean_row_norm(c, amount, FRAME, 2.0),
    "row norm below a ceiling": lambda c, amount: mean_row_norm(c, amount, ceiling=1.25),
    "losses": lambda c, amount: best_step(c, weights_for(c), weights_for(c, 4), STEPS, amount, ceiling=1.0),
    "changes": lambda c, amount: best_step(c, weights_for(c), weights_for(c, 4), STEPS, amount, change=0.25),
    "laplace": lambda c, amount: best_step(
        c, weights_for(c), weights_for(c, 4), STEPS, amount, ceiling=1.0, selection="laplace"
    ),
    "one-sided": lambda c, amount: best_step(
        c, weights_for(c), weights_for(c, 4), STEPS, amount, change=0.25, selection="exponential"
    ),
}


# Charges -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("query", QUERIES)
def test_every_query_is_charged_to_both_ledgers_before_any_row_is_touched(query: str, rate: float) -> None:
    account = Ledger(3.0, 1e-6)
    asked = curator(account=account, batch_rate=rate)
    for count in (1, 2):
        QUERIES[query](asked, 1e-3)
        assert len(asked.ledger.entries) == len(account.entries) == count
        assert touches(asked)
        assert set(touches(asked)) == {(count, count)}
        touches(asked).clear()
    assert asked.ledger.spent == account.spent == pytest.approx(2e-3)
    assert asked.ledger.spent <= 2e-3
    assert asked.remaining == asked.ledger.remaining


def assert_untouched(asked: Curator, account: Ledger) -> None:
    assert asked.ledger.entries == account.entries == ()
    assert asked.ledger.spent == account.spent == 0
    assert touches(asked) == []


@pytest.mark.parametrize("query", QUERIES)
@pytest.mark.parametrize(("own", "joint"), [(1e-3, 9.0), (9.0, 1e-3), (1e-3, 1e-3)])
def test_a_refusal_by_either_ledger_leaves_both_as_they_were_and_reads_nothing(
    query: str, own: float, joint: float
) -> None:
    account = Ledger(joint, 1e-6)
    asked = curator(epsilon=own, account=account)
    with pytest.raises(BudgetExhausted):
        QUERIES[query](asked, 1e-3)
    assert_untouched(asked, account)
    QUERIES[query](asked, 1e-9)
    assert len(asked.ledger.entries) == len(account.entries) == 1


def test_a_read_only_ledger_leaves_the_other_one_uncharged() -> None:
    account = Ledger(3.0, 1e-6)
    asked = curator(account=account)
    for frozen in ("ledger", "_account"):
        kept = getattr(asked, frozen)
        setattr(asked, frozen, pickle.loads(pickle.dumps(kept)))
        with pytest.raises(LedgerError):
            mean_row_norm(asked, 1e-3)
        setattr(asked, frozen, kept)
    assert_untouched(asked, account)


def test_a_ledger_file_that_others_have_emptied_leaves_the_other_one_uncharged(tmp_path) -> None:
    account = Ledger(3.0, 1e-6)
    shared = Ledger(1.0, 1e-6, path=tmp_path / "ledger")
    asked = curator(account=account)
    asked.ledger = Ledger.open(tmp_path / "ledger")
    shared.spend(shared.currency.gaussian(shared.budget), "another process")
    assert asked.ledger.remaining > 0.01
    with pytest.raises(BudgetExhausted):
        mean_row_norm(asked, 0.01)
    assert account.entries == ()
    assert touches(asked) == []


def test_two_ledgers_in_files_are_charged_together(tmp_path) -> None:
    account = Ledger(3.0, 1e-6, path=tmp_path / "account")
    asked = curator(account=account)
    asked.ledger = Ledger(1.0, 1e-6, path=tmp_path / "own")
    mean_row_norm(asked, 1e-3)
    assert [len(Ledger.open(tmp_path / name).entries) for name in ("own", "account")] == [1, 1]


def test_an_account_must_keep_the_same_relation_and_be_another_ledger(tmp_path) -> None:
    with pytest.raises(InvalidParameter, match="relation"):
        curator(account=Ledger(3.0, 1e-6, relation="replace-one"))
    ledger = Ledger(1.0, 1e-6, path=tmp_path / "ledger")
    source, problem = ArraySource(*made_up(Logistic()), GRID), LinearProblem(Logistic(), GRID)
    for account in (ledger, Ledger.open(tmp_path / "ledger")):
        with pytest.raises(InvalidParameter, match="twice"):
            Curator(source, problem, ledger, N, account=account)


def test_a_sum_without_privacy_is_refused_wherever_a_budget_is_kept(tmp_path) -> None:
    def total(asked: Curator) -> np.ndarray:
        with np.errstate(all="raise"):
            return sum_without_privacy(asked, lambda rows, _: (rows * 1e200).sum(axis=0) * 1e200)

    found = total(curator())
    assert found.dtype == np.float64
    assert np.isinf(found).any()
    kept, paid = curator(), curator()
    kept.ledger = Ledger(1.0, 1e-6, path=tmp_path / "ledger")
    mean_row_norm(paid, 1e-3)
    for asked in (curator(account=Ledger(3.0, 1e-6)), kept, paid):
        touches(asked).clear()
        with pytest.raises(InvalidParameter, match="promise of a ledger"):
            total(asked)
        assert touches(asked) == []


def test_an_account_may_count_in_another_currency() -> None:
    account = Ledger(3.0, 1e-6, currency="gdp")
    asked = curator(account=account)
    gradient(asked, weights_for(asked), 1.0, 1e-3)
    assert account.spent == pytest.approx(2e-3)


def first_step(
    asked: Curator,
    steps: list[float] | None = None,
    demands: list[float] | None = None,
    sign: int = 1,
    **options: float,
) -> int | None:
    """Ask for the first of two steps along a direction of length sqrt(D)."""
    steps, demands = np.array(steps or [1.0, 0.5]), np.array(demands or [0.0, 0.0])
    return asked.answer(FirstStep(W, W + sign, steps, demands, AboveThreshold(2, 90.0, 30.0), **options))


W = np.zeros(D)
BAD = {
    "weights not finite": lambda c: gradient(c, np.full(D, np.nan), 1.0, 1e-3),
    "weights too large": lambda c: gradient(c, np.full(D, 1e200), 1.0, 1e-3),
    "weights of another shape": lambda c: gradient(c, np.zeros(D + 1), 1.0, 1e-3),
    "weights of several outputs": lambda c: gradient(c, np.zeros((D, 3)), 1.0, 1e-3),
    "clip zero": lambda c: gradient(c, W, 0.0, 1e-3),
    "clip infinite": lambda c: gradient(c, W, math.inf, 1e-3),
    "amount zero": lambda c: gradient(c, W, 1.0, 0.0),
    "amount negative": lambda c: column_moments(c, 1.0, -1.0),
    "amount not a number": lambda c: mean_row_norm(c, math.nan),
    "amount infinite": lambda c: gradient(c, W, 1.0, math.inf),
    "amount too little to draw": lambda c: gradient(c, W, 1.0, 1e-33),
    "amount too little for norms": lambda c: mean_row_norm(c, 1e-24),
    "no ceiling for norms in a frame": lambda c: mean_row_norm(c, 1e-3, FRAME),
    "no ceiling for norms": lambda c: mean_row_norm(c, 1e-3, ceiling=0.0),
    "ceiling of norms not a number": lambda c: mean_row_norm(c, 1e-3, FRAME, math.nan),
    "amount too little for norms in a frame": lambda c: mean_row_norm(c, 1e-24, FRAME, 2.0),
    "norms in a frame of another grid": lambda c: mean_row_norm(
        c, 1e-3, Frame.place(FeatureGrid(1.0, D + 1), np.zeros(D + 1), np.ones(D + 1)), 2.0
    ),
    "amount too little for laplace": lambda c: QUERIES["laplace"](c, 1e-24),
    "frame of another grid": lambda c: gradient(
        c, W, 1.0, 1e-3, Frame.place(FeatureGrid(1.0, D + 1), np.zeros(D + 1), np.ones(D + 1))
    ),
    "neither ceiling nor change": lambda c: best_step(c, W, W, STEPS, 1e-3),
    "ceiling and change": lambda c: best_step(c, W, W, STEPS, 1e-3, ceiling=1.0, change=1.0),
    "ceiling negative": lambda c: best_step(c, W, W, STEPS, 1e-3, ceiling=-1.0),
    "ceiling infinite": lambda c: best_step(c, W, W, STEPS, 1e-3, ceiling=math.inf),
    "change zero": lambda c: best_step(c, W, W, STEPS, 1e-3, change=0.0),
    "no steps": lambda c: best_step(c, W, W, np.empty(0), 1e-3, ceiling=1.0),
    "too many steps": lambda c: best_step(c, W, W, np.zeros(2**16 + 1), 1e-3, ceiling=1.0),
    "steps in a table": lambda c: best_step(c, W, W, np.zeros((2, 2)), 1e-3, ceiling=1.0),
    "steps not finite": lambda c: best_step(c, W, W, np.array([0.0, np.nan]), 1e-3, ceiling=1.0),
    "steps too long": lambda c: best_step(c, W, W + 1, np.array([1e308]), 1e-3, ceiling=1.0),
    "direction not finite": lambda c: best_step(c, W, W + np.inf, STEPS, 1e-3, ceiling=1.0),
    "direction of another shape": lambda c: best_step(c, W, np.zeros(3), STEPS, 1e-3, ceiling=1.0),
    "unknown selection": lambda c: best_step(c, W, W, STEPS, 1e-3, ceiling=1.0, selection="best"),
    "search of a step of length zero": lambda c: first_step(c, steps=[0.5, 0.0]),
    "search of a step back": lambda c: first_step(c, steps=[0.5, -0.5]),
    "search below a ceiling of zero": lambda c: first_step(c, ceiling=0.0),
    "search below a negative ceiling": lambda c: first_step(c, ceiling=-1.0),
    "search along a slope of zero": lambda c: first_step(c, slope=0.0),
    "search without a demand for every step": lambda c: first_step(c, demands=[0.0]),
    "search of a demand that is not finite": lambda c: first_step(c, demands=[0.0, math.inf]),
    "search of more steps than are charged for": lambda c: first_step(c, steps=[3.0, 2.0, 1.0], demands=[0.0] * 3),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_argument_is_refused_by_name_and_leaves_no_trace(name: str) -> None:
    account = Ledger(3.0, 1e-6)
    asked = curator(account=account)
    with pytest.raises(DPDescentError):
        BAD[name](asked)
    assert_untouched(asked, account)


def test_a_frame_without_an_intercept_leaves_no_trace() -> None:
    account = Ledger(3.0, 1e-6)
    asked = curator(intercept=False, account=account)
    for query in ("gradient in a frame", "row norm in a frame"):
        with pytest.raises(InvalidParameter, match="intercept"):
            QUERIES[query](asked, 1e-3)
    assert_untouched(asked, account)


def test_moments_of_entries_beyond_one_leave_no_trace() -> None:
    """A square may then be longer than its row."""
    grid, ledger = FeatureGrid(2.0, 2), Ledger(1.0, 1e-6)
    source = ArraySource(grid.place(np.ones((3, 2))), np.ones(3), grid)
    asked = Curator(source, LinearProblem(Logistic(), grid), ledger, 3)
    for query in (ColumnMoments(1.0, Gaussian(50.0)), SecondMoments(1.0, Gaussian(50.0))):
        with pytest.raises(InvalidParameter, match=r"features in \[-1, 1\]"):
            asked.answer(query)
    assert ledger.entries == ()


@pytest.mark.parametrize("sign", [1, -1])
def test_demands_and_penalties_beyond_all_losses_decide_a_search(sign: int) -> None:
    with np.errstate(all="raise"):  # a plan is made in arithmetic of its own
        assert first_step(curator(), demands=[1e300, 1e300], sign=sign) is None
        assert first_step(curator(), demands=[1e308, -1e308], sign=sign) == 1
        assert first_step(curator(), demands=[-1e300, -1e300], sign=sign) == 0
        assert first_step(curator(penalty=1e300), demands=[0.0, 0.0], sign=sign) is None
        assert first_step(curator(penalty=1.0), steps=[100.0, 50.0], sign=sign) is None


def test_labels_outside_the_classes_are_counted_with_the_nearest_one() -> None:
    labels = np.array([0.0, 0.0, -3.0, math.nan, 1.0, 2.0, 2.0, 9.0, math.inf])
    counted = LabelCounts(NOISE).plan(curator(Multinomial(3)).public()).block(np.zeros((9, D)), labels)
    np.testing.assert_array_equal(counted / COUNT, [4, 1, 4])
    signs = (
        LabelCounts(NOISE).plan(curator().public()).block(np.zeros((5, D)), np.array([-1.0, 1.0, 0.3, 0.0, math.nan]))
    )
    np.testing.assert_array_equal(signs / COUNT, [-0.5])  # two are positive, three are not
    both = _counts_block(2, True, np.zeros((5, D)), np.array([-1.0, 1.0, 0.3, 0.0, math.nan]))
    np.testing.assert_array_equal(both / COUNT, [3, 2])
    assert LabelCounts(NOISE).plan(curator().public()).finish(np.array([20.0])).tolist() == [N / 2 - 20, N / 2 + 20]


def test_cells_are_counted_on_the_nearest_level_however_they_are_stored() -> None:
    cells = np.array([[0.26, -0.1, 0.0], [0.24, 0.0, 0.0], [9.0, 0.9, 0.0], [math.nan, -math.inf, 0.0]])
    levels, scale = 2, 2.0
    expected = np.zeros((3, 5))
    for column, column_levels in enumerate([[1, 0, 2, 2], [0, 0, 2, -2], [0, 0, 0, 0]]):  # NaN is on the last level
        np.add.at(expected[column], np.array(column_levels) + levels, 1)
    for stored in (cells, np.asfortranarray(cells), cells.astype(np.float32), sparse.csr_array(cells)):
        counts = counts_and_moments._histogram_block(levels, scale, stored, np.ones(4))
        np.testing.assert_array_equal(counts.reshape(3, 5) / COUNT, expected)
    assert counts_and_moments._levels(cells.astype(np.float32), levels, scale).dtype == np.float64


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"rows": 0}, "rows"),
        ({"rows": 2.5}, "rows"),
        ({"batch_rate": 0.0}, "batch_rate"),
        ({"batch_rate": 1.5}, "batch_rate"),
        ({"batch_rate": math.nan}, "batch_rate"),
    ],
)
def test_impossible_settings_are_refused(options: dict, match: str) -> None:
    source, problem = ArraySource(*made_up(Logistic()), GRID), LinearProblem(Logistic(), GRID)
    with pytest.raises(InvalidParameter, match=match):
        Curator(source, problem, Ledger(1.0, 1e-6), **({"rows": N} | options))
    with pytest.raises(InvalidParameter, match="grids"):
        Curator(source, LinearProblem(Logistic(), FeatureGrid(1.0, D + 1)), Ledger(1.0, 1e-6), N)
    with pytest.raises(InvalidParameter, match="unknown noise"):
        make_noise("none", 0)


def test_a_very_small_amount_buys_a_very_noisy_gradient() -> None:
    """Noise of 2^30 clip norms: the unit of the sum grows with it, and the deviation is the promised one."""
    asked = curator()
    drawn = np.array([gradient(asked, W, 0.5, 1e-19) for _ in range(200)]) / asked.deviation(0.5, 1e-19)
    assert ALARM < stats.chi2(drawn.size).cdf(np.sum(drawn**2)) < 1 - ALARM


# Sensitivities -------------------------------------------------------------------------------------------------


def recorded(query: str, loss: Loss, data: tuple, **options) -> LatticeSum:
    noise = Recorder()
    QUERIES[query](curator(loss, data=data, noise=noise, **options), 1e-3)
    return noise.sums[0]


def change(one: LatticeSum, other: LatticeSum) -> float:
    """Return the size of the exact difference of two sums, in the norm of their sensitivity."""
    difference = [int(a) - int(b) for a, b in zip(one.values.ravel(), other.values.ravel(), strict=True)]
    if one.sensitivity.norm is Norm.RANGE:
        return (max(difference) - min(difference)) * one.unit
    squared = Fraction(one.unit) ** 2 * sum(d * d for d in difference)
    assert one.sensitivity.norm is Norm.L2
    return math.sqrt(squared)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
@pytest.mark.parametrize("query", [name for name in QUERIES if name not in ("laplace", "one-sided")])
def test_one_row_changes_a_sum_by_no_more_than_stated(query: str, loss: Loss) -> None:
    features, labels = made_up(loss)
    whole = recorded(query, loss, (features, labels), penalty=0.1)
    for i in range(0, N, 29):
        kept = np.delete(np.arange(N), i)
        without = recorded(query, loss, (features[kept], labels[kept]), penalty=0.1)
        alone = recorded(query, loss, (features[[i]], labels[[i]]), penalty=0.1)
        nothing = recorded(query, loss, (features[:0], labels[:0]), penalty=0.1)
        np.testing.assert_array_equal(whole.values - without.values, alone.values - nothing.values)
        assert change(whole, without) <= whole.sensitivity.under(Relation.ZERO_OUT)
        swapped = features.copy(), labels.copy()
        j = (i + 7) % N
        swapped[0][i], swapped[1][i] = -features[j], labels[j]
        swapped[0][i, -1] = 1.0
        replaced = recorded(query, loss, swapped, penalty=0.1)
        assert change(whole, replaced) <= whole.sensitivity.under(Relation.REPLACE_ONE)


def test_stated_sensitivities_are_those_on_paper() -> None:
    """Gradient C and 2C; two moments sqrt(2) times that; norms R and R; losses C and 2C; changes 2D and 4D."""
    expected = {
        "gradient": (Norm.L2, 0.5, 1.0),
        "gradient in a frame": (Norm.L2, 0.5, 1.0),
        "column moments": (Norm.L2, math.sqrt(0.5), math.sqrt(2)),
        "losses": (Norm.RANGE, 1.0, 2.0),
        "changes": (Norm.RANGE, 0.5, 1.0),
    }
    for query, (norm, zero_out, replace_one) in expected.items():
        for penalty in (0.0, 100.0):
            stated = recorded(query, Logistic(), made_up(Logistic()), penalty=penalty).sensitivity
            assert stated.norm == norm
            assert (stated.zero_out, stated.replace_one) == pytest.approx((zero_out, replace_one), rel=1e-14)
    ceilings = {"row norm": math.sqrt(D), "row norm in a frame": 2.0, "row norm below a ceiling": 1.25}
    for query, ceiling in ceilings.items():
        norms = recorded(query, Logistic(), made_up(Logistic())).sensitivity
        assert norms.zero_out == norms.replace_one == pytest.approx(ceiling, rel=1e-6)


def test_roots_in_sensitivities_are_never_rounded_down() -> None:
    roots = [(LabelCounts(NOISE).plan(curator(Multinomial(3)).public()).parts[0].sensitivity.replace_one, 2)]
    for columns in range(1, 300):
        histograms = ColumnHistograms.sensitivity(columns)
        roots += [(histograms.zero_out, columns), (histograms.replace_one, 2 * columns)]
    for clip in (0.1, 0.5, 0.7, 1.0, 1.3, 2.0):
        plan = ColumnMoments(clip, NOISE).plan(curator().public())
        (caps,) = plan.per_row
        roots.append((plan.parts[0].sensitivity.zero_out, 2 * Fraction(caps.clipped.clip) ** 2))
        assert plan.parts[0].sensitivity.replace_one == 2 * plan.parts[0].sensitivity.zero_out
    for stated, square in roots:
        assert square <= Fraction(stated) ** 2 <= square * (1 + Fraction(1, 2**46))
    binary = LabelCounts(NOISE).plan(curator().public()).parts[0].sensitivity
    assert (binary.zero_out, binary.replace_one) == (0.5, 1.0)


@pytest.mark.parametrize("ceiling", [2.0**-20, 0.3, 2.0, 7.7, 2.0**30])
@pytest.mark.parametrize("storage", STORAGE)
def test_norms_in_a_frame_are_exact_and_move_by_their_ceiling_at_most(storage: str, ceiling: float) -> None:
    """Against Python integers. Rows are extreme or at the centre; one breaks the promise of a constant 1."""
    corner = -np.where(FRAME.centre < 0, -1.0, 1.0)
    rows = np.array([corner, -corner, FRAME.centre, np.full(D, 2.0**-GRID.exponent), np.zeros(D), FRAME.centre])
    rows[:, -1] = 1.0
    rows[-1, -1] = 0.0
    placed = GRID.place(rows)
    sums = []
    for i in range(len(rows) + 1):
        data = (STORAGE[storage](placed[i : i + 1]), np.ones(len(placed[i : i + 1])))
        noise = Recorder()
        mean_row_norm(curator(data=data, noise=noise, epsilon=RICH), 1.0, FRAME, ceiling)
        sums.append(noise.sums[0])
    unit, stated = Fraction(sums[0].unit), sums[0].sensitivity
    assert stated.zero_out == stated.replace_one <= ceiling
    found = [unit * int(total.values[0]) for total in sums]
    assert found[-1] == 0  # no row at all
    assert found[-2] == stated.zero_out
    assert found[2] == 0
    for i, norm in enumerate(found[:-2]):
        terms = zip(placed[i, :-1], FRAME.centre[:-1], FRAME.doublings[:-1], strict=True)
        squared = sum(((Fraction(x) - Fraction(m)) * 2 ** int(k)) ** 2 for x, m, k in terms)
        below, above = max(Fraction(0), norm - unit), norm + unit
        assert below**2 <= min(squared, Fraction(stated.zero_out) ** 2) <= above**2
    assert max(found) - min(found) <= Fraction(stated.replace_one)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("mode", ["exact", "float"])
def test_noise_of_a_mean_norm_is_that_of_its_ceiling_under_both_relations(mode: str, relation: str) -> None:
    asked = curator(relation=relation, noise=make_noise(mode, 5))
    norms = np.minimum(np.linalg.norm(FRAME.coordinates(made_up(Logistic())[0]), axis=1), 2.0)
    drawn = np.array([mean_row_norm(asked, 1e-6, FRAME, 2.0) for _ in range(400)]) - norms.mean()
    scaled = drawn / (2.0 / math.sqrt(2e-6) / N)
    law = stats.chi2(drawn.size)
    assert ALARM < law.cdf(np.sum(scaled**2)) < 1 - ALARM
    for wrong in (0.7, 1.3):
        assert not ALARM < law.cdf(np.sum((wrong * scaled) ** 2)) < 1 - ALARM


def test_score_sensitivities_are_attained() -> None:
    """A row's loss rises along one step and falls along the other: changes have a range of 2D, 4D if replaced."""
    rows, direction = GRID.place(np.eye(D)[[0]]), 50.0 * np.eye(D)[0]

    def scores(label: float | None, **bound) -> LatticeSum:
        noise = Recorder()
        kept = (rows[:0], np.empty(0)) if label is None else (rows, np.array([label]))
        asked = curator(Hinge(), data=kept, noise=noise, intercept=False)
        best_step(asked, np.eye(D)[0] * 0.0, direction, np.array([-1.0, 1.0]), 1e-3, **bound)
        return noise.sums[0]

    rising, falling, none = (scores(label, change=0.5) for label in (1.0, -1.0, None))
    assert [rising.values[0] * rising.unit, rising.values[1] * rising.unit] == [-0.5, 0.5]
    assert change(rising, none) == rising.sensitivity.zero_out == 1.0
    assert change(rising, falling) == rising.sensitivity.replace_one == 2.0
    high, low, empty = (scores(label, ceiling=0.5) for label in (1.0, -1.0, None))
    assert change(high, empty) == high.sensitivity.zero_out == 0.5
    assert change(high, low) == high.sensitivity.replace_one == 1.0


@pytest.mark.parametrize(("relation", "factor"), [("zero-out", 1.0), ("replace-one", 2.0)])
@pytest.mark.parametrize(("query", "length"), [("gradient", 0.5), ("column moments", 0.5 * math.sqrt(2))])
def test_noise_has_the_deviation_of_the_relation(query: str, length: float, relation: str, factor: float) -> None:
    exact = QUERIES[query](curator(epsilon=RICH), 1e9)
    asked = curator(relation=relation)
    drawn = np.array([QUERIES[query](asked, 1e-6) for _ in range(400)]) - exact
    assert asked.deviation(length, 1e-6) == pytest.approx(factor * length / math.sqrt(2e-6) / N)
    scaled = drawn / asked.deviation(length, 1e-6)
    law = stats.chi2(drawn.size)
    assert ALARM < law.cdf(np.sum(scaled**2)) < 1 - ALARM
    assert not ALARM < law.cdf(np.sum((scaled * 1.3) ** 2)) < 1 - ALARM


# Accuracy ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("storage", STORAGE)
@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_a_rich_gradient_is_the_plain_gradient(loss: Loss, storage: str) -> None:
    features, labels = made_up(loss)
    asked = curator(loss, data=(STORAGE[storage](features), labels), epsilon=RICH, penalty=0.3)
    weights = weights_for(asked)
    residuals = loss.residuals(features @ weights, labels)
    penalty = 0.3 * weights
    penalty[-1] = 0
    lengths = np.linalg.norm(residuals.reshape(N, -1), axis=1)
    for frame, rows in ((None, features), (FRAME, np.ldexp(features - FRAME.centre, FRAME.doublings))):
        plain = rows.T @ residuals / N + (penalty if frame is None else frame.pull_back(penalty))
        clip = 1.01 * float((lengths * np.linalg.norm(rows, axis=1)).max())  # nothing is clipped
        found = gradient(asked, weights, clip, 1e11, frame)
        assert np.linalg.norm(found - plain) < 3e-6 * np.linalg.norm(plain)


def test_a_rich_clipped_gradient_is_the_mean_of_clipped_rows() -> None:
    features, labels = made_up(Squared())
    asked = curator(Squared(), data=(features, labels), epsilon=RICH)
    weights = weights_for(asked)
    rows = features * Squared().residuals(features @ weights, labels)[:, None]
    rows *= np.minimum(1, 0.4 / np.linalg.norm(rows, axis=1))[:, None]
    np.testing.assert_allclose(gradient(asked, weights, 0.4, 1e9), rows.mean(axis=0), atol=1e-6)


def test_rich_means_and_norms_are_the_plain_ones() -> None:
    features, _ = made_up(Logistic())
    asked = curator(epsilon=RICH)
    means, squares = column_moments(asked, 10.0, 1e9)
    np.testing.assert_allclose(means, features.mean(axis=0), atol=3e-6)
    np.testing.assert_allclose(squares, (features**2).mean(axis=0), atol=3e-6)
    assert mean_row_norm(asked, 1e9) == pytest.approx(np.linalg.norm(features, axis=1).mean(), rel=1e-6)
    lengths = np.linalg.norm(FRAME.coordinates(features), axis=1)
    assert lengths.min() < 2 < lengths.max()
    assert mean_row_norm(asked, 1e9, FRAME, 2.0) == pytest.approx(np.minimum(lengths, 2).mean(), rel=1e-6)
    cut = np.minimum(np.linalg.norm(features, axis=1), 1.25)
    assert mean_row_norm(asked, 1e9, ceiling=1.25) == pytest.approx(cut.mean(), rel=1e-6)


@pytest.mark.parametrize("selection", ["exponential-mechanism", "laplace", "exponential"])
@pytest.mark.parametrize("bound", [{"ceiling": 50.0}, {"change": 50.0}], ids=str)
@pytest.mark.parametrize("penalty", [0.0, 0.2])
def test_a_rich_best_step_is_the_argmin(selection, bound: dict, penalty: float) -> None:
    for loss, seed in itertools.product(LOSSES, range(4)):
        features, labels = made_up(loss, seed=seed)
        asked = curator(loss, data=(features, labels), epsilon=RICH, penalty=penalty)
        weights = weights_for(asked, seed)
        direction = gradient(asked, weights, 64.0, 1e9)
        steps = np.concatenate([[0.0], 0.25 * 2.0 ** np.arange(8)])
        objective = [
            loss.values(features @ (weights - a * direction), labels).mean()
            + penalty / 2 * np.sum((weights - a * direction)[:-1] ** 2)
            for a in steps
        ]
        best = best_step(asked, weights, direction, steps, 1e9, selection=selection, **bound)
        assert objective[best] <= min(objective) + 1e-5  # several steps may reach no loss at all


@pytest.mark.parametrize("selection", ["exponential-mechanism", "exponential"])
def test_a_poor_best_step_is_nearly_uniform(selection) -> None:
    """Scores differ by at most N * C, which this amount cannot tell apart; false-alarm rate 1e-6."""
    asked = curator()
    weights, direction = weights_for(asked), weights_for(asked, 4)
    draw = [best_step(asked, weights, direction, STEPS, 1e-13, ceiling=1.0, selection=selection) for _ in range(800)]
    counts = np.bincount(draw, minlength=4)
    assert stats.chisquare(counts).pvalue > ALARM


def test_a_penalty_beyond_all_losses_decides_the_step() -> None:
    asked = curator(epsilon=RICH, penalty=1e200)
    assert best_step(asked, np.ones(D), np.ones(D), np.array([0.0, 1.0, 3.0]), 1e9, ceiling=1.0) == 1


# The same bits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
@pytest.mark.parametrize("query", QUERIES)
def test_answers_are_the_same_bits_for_every_block_size_storage_and_row_order(query: str, loss: Loss) -> None:
    features, labels = made_up(loss)
    order = np.random.default_rng(8).permutation(N)
    expected = QUERIES[query](curator(loss, data=(features, labels)), 1e-3)
    for block_rows, storage in [(1, np.asarray), *itertools.product([17, 2**20], STORAGE.values())]:
        asked = curator(loss, data=(storage(features[order]), labels[order]), block_rows=block_rows)
        np.testing.assert_array_equal(QUERIES[query](asked, 1e-3), expected)


# Margins carried along a step ------------------------------------------------------------------------------------


def walked(loss: Loss, data: tuple, **options) -> list[LatticeSum]:
    """Ask as a solver does, always from where the last step has led; return the exact sums."""
    noise = Recorder()
    asked = curator(loss, data=data, noise=noise, **options)
    weights = weights_for(asked)
    for seed, step in enumerate((0.3, 0.7, 0.0, 1.1)):
        direction = weights_for(asked, seed)
        gradient(asked, weights, 0.5, 1e-3)
        best_step(asked, weights, direction, np.array([step]), 1e-3, ceiling=1.0)
        weights = weights - step * direction
    gradient(asked, weights, 0.5, 1e-3)
    return noise.sums


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_carried_margins_give_the_sums_of_fresh_ones(loss: Loss) -> None:
    data = made_up(loss)
    noise = Recorder()
    asked = curator(loss, data=data, noise=noise)
    weights = weights_for(asked)
    gradient(asked, weights, 0.5, 1e-3)
    for seed, step in enumerate((0.3, 0.7, 0.0, 1.1)):
        direction = weights_for(asked, seed)
        best_step(asked, weights, direction, np.array([step]), 1e-3, ceiling=1.0)
        weights = weights - step * direction
        touches(asked).clear()
        gradient(asked, weights, 0.5, 1e-3)
        assert len(touches(asked)) == 1  # the sum alone, no pass for the margins
        fresh = Recorder()
        gradient(curator(loss, data=data, noise=fresh), weights, 0.5, 1e-3)
        np.testing.assert_allclose(noise.sums[-1].to_float(), fresh.sums[0].to_float(), atol=1e-5)


def test_rows_weigh_one_up_to_a_norm_and_less_beyond_it() -> None:
    weights = RowWeights(2.0, ()).block(None, None, np.array([0.0, 1.0, 4.0, 16.0, 400.0]))
    np.testing.assert_allclose(weights, [1, 1, 1, math.sqrt(1 / 2), math.sqrt(1 / 10)], rtol=1e-15)


def test_a_search_carries_the_margins_of_the_step_that_it_finds() -> None:
    asked = curator()
    gradient(asked, W, 1.0, 1e-3)
    assert first_step(asked, demands=[1e300, -1e300]) == 1
    touches(asked).clear()
    gradient(asked, W - 0.5, 1.0, 1e-3)
    assert len(touches(asked)) == 1  # the sum alone, no pass for the margins


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_carried_margins_are_the_same_bits_for_every_block_size_storage_and_row_order(loss: Loss) -> None:
    features, labels = made_up(loss)
    order = np.random.default_rng(8).permutation(N)
    expected = walked(loss, (features, labels))
    for block_rows, storage in [(1, np.asarray), *itertools.product([17, 2**20], STORAGE.values())]:
        found = walked(loss, (storage(features[order]), labels[order]), block_rows=block_rows)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_array_equal(one.values, other.values)


@pytest.mark.parametrize("loss", LOSSES, ids=str)
def test_carried_margins_belong_to_their_row_alone(loss: Loss) -> None:
    features, labels = made_up(loss)
    whole = walked(loss, (features, labels))
    for i in range(0, N, 59):
        kept = np.delete(np.arange(N), i)
        without, alone = (walked(loss, (features[rows], labels[rows])) for rows in (kept, [i]))
        for total, rest, own in zip(whole, without, alone, strict=True):
            np.testing.assert_array_equal(total.values - rest.values, own.values)
            assert change(total, rest) <= total.sensitivity.under(Relation.ZERO_OUT)


@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3)], ids=str)
def test_carried_margins_answer_for_no_other_weights(loss: Loss) -> None:
    data = made_up(loss)
    weights, direction = (weights_for(curator(loss, data=data), seed) for seed in (3, 4))
    for elsewhere in (weights, weights - 0.31 * direction, weights + 0.3 * direction, -direction, 0 * weights):
        noise, fresh = Recorder(), Recorder()
        asked = curator(loss, data=data, noise=noise)
        best_step(asked, weights, direction, np.array([0.3]), 1e-3, ceiling=1.0)
        gradient(asked, elsewhere, 0.5, 1e-3)
        gradient(curator(loss, data=data, noise=fresh), elsewhere, 0.5, 1e-3)
        np.testing.assert_array_equal(noise.sums[-1].values, fresh.sums[0].values)


@pytest.mark.parametrize("query", ["gradient", "gradient in a frame", "column moments"])
def test_a_total_that_wraps_around_still_moves_by_one_share(query: str) -> None:
    """The same rows again and again, past 2^63 units: one more time adds the same integers modulo 2^64."""

    class Repeating(ArraySource):
        times = 1

        def map_sum(self, function, *aligned):
            return super().map_sum(function, *aligned) * np.int64(self.times)

    features, labels = np.tile([1.0, -1.0, 0.5, 0.0, -1.0, 1.0], (2**10, 1)), np.full(2**10, -1.0)
    totals = []
    for times in (1, 2**20, 2**20 + 1):
        noise = Recorder()
        asked = curator(noise=noise)
        asked._source = Repeating(features, labels, GRID)
        asked._source.times = times
        QUERIES[query](asked, 1e-3)
        totals.append(noise.sums[0].values)
    share, before, after = totals
    assert float(np.abs(share).max()) * 2**20 > 2.0**63
    np.testing.assert_array_equal(after - before, share)


@pytest.mark.parametrize("query", QUERIES)
def test_answers_do_not_depend_on_earlier_queries_beyond_the_noise(query: str) -> None:
    """Norms and caps are kept between queries; what is kept never enters the wrong answer."""
    asked, fresh = curator(epsilon=RICH), curator(epsilon=RICH)
    for other in ("gradient in a frame", "gradient", "column moments", "gradient in a frame"):
        QUERIES[other](asked, 1e11)
    gradient(asked, weights_for(asked), 0.25, 1e11, FRAME)
    gradient(asked, weights_for(asked), 0.5, 1e11, OTHER)
    np.testing.assert_allclose(QUERIES[query](asked, 1e11), QUERIES[query](fresh, 1e11), atol=1e-7)


@pytest.mark.parametrize("rate", [1.0, 0.5])
@pytest.mark.parametrize("query", QUERIES)
def test_no_rows_at_all_give_an_answer(query: str, rate: float) -> None:
    features, labels = made_up(Logistic())
    for storage in STORAGE.values():
        answer = QUERIES[query](curator(data=(storage(features[:0]), labels[:0]), batch_rate=rate), 1e-3)
        assert np.isfinite(answer).all()


@pytest.mark.parametrize("query", QUERIES)
def test_no_row_raises_an_error_or_a_warning(query: str) -> None:
    """Labels beyond reason and weights near the largest allowed: answers come, silently."""
    for loss in LOSSES:
        features, labels = made_up(loss)
        labels = labels.copy()
        labels[:5] = np.nan, np.inf, -np.inf, 1e308, -77.0
        QUERIES[query](curator(loss, data=(features, labels)), 1e-3)
        asked = curator(loss, data=(features, labels))
        huge = np.full(asked.problem.shape, 2.0**499)
        gradient(asked, huge, 1.0, 1e-3)
        best_step(asked, huge, huge, np.array([0.0, 1.0]), 1e-3, change=1.0)


def test_neither_representations_nor_errors_show_rows() -> None:
    asked = curator()
    gradient(asked, weights_for(asked), 0.5, 1e-3, FRAME)
    for shown in (repr(asked), str(asked), repr(asked._source), repr(vars(asked)["problem"])):
        assert "array" not in shown
    public = {name for name in dir(asked) if not name.startswith("_")}
    assert public == {
        "affords",
        "amount_of_noise",
        "answer",
        "batch_rate",
        "budget",
        "clips_by_unit",
        "currency",
        "deviation",
        "gaussian",
        "ledger",
        "problem",
        "public",
        "public_generator",
        "relation",
        "remaining",
        "require_affordable",
        "require_answerable",
        "rows",
        "rows_per_unit",
        "sampling",
        "scale",
        "set_aside",
        "setting_aside",
    }


# Batches -------------------------------------------------------------------------------------------------------


def batched(query: str, rate: float, storage: str = "dense", **options) -> tuple[Curator, Recorder]:
    features, labels = made_up(Logistic())
    noise = Recorder()
    data = (STORAGE[storage](features), labels)
    asked = curator(data=data, noise=noise, batch_rate=rate, **options)
    QUERIES[query](asked, 1e-3)
    return asked, noise


@pytest.mark.parametrize("query", QUERIES)
def test_batches_are_the_same_for_every_storage_and_block_size(query: str) -> None:
    expected = batched(query, 0.3)[1].sums[0].values
    whole = batched(query, 1.0)[1].sums[0].values
    assert not np.array_equal(expected, whole)
    for storage, block_rows in itertools.product(STORAGE, [11, 2**14]):
        found = batched(query, 0.3, storage, block_rows=block_rows)[1].sums[0].values
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize("query", QUERIES)
def test_batches_change_neither_cost_nor_sensitivity(query: str) -> None:
    (batch, batch_noise), (whole, whole_noise) = batched(query, 0.3), batched(query, 1.0)
    assert batch.ledger.entries == whole.ledger.entries
    assert batch_noise.sums[0].sensitivity == whole_noise.sums[0].sensitivity


def test_each_query_has_its_own_batch_whose_size_follows_the_rate() -> None:
    """Sums of ones over batches are binomial; they are divided by the public rate * n and never by their size."""
    features, labels = np.tile(np.eye(D)[-1], (N, 1)), np.ones(N)
    asked = curator(data=(features, labels), epsilon=RICH, batch_rate=0.3)
    assert asked.scale == 0.3 * N
    sizes = np.array([mean_row_norm(asked, 1e9) for _ in range(400)]) * asked.scale
    np.testing.assert_allclose(sizes, np.rint(sizes), atol=1e-3)
    assert len(set(np.rint(sizes))) > 20
    total = int(np.rint(sizes).sum())
    assert ALARM < stats.binom(400 * N, 0.3).cdf(total) < 1 - ALARM
    spread = np.var(np.rint(sizes)) * 400 / (N * 0.3 * 0.7)
    assert ALARM < stats.chi2(399).cdf(spread) < 1 - ALARM


def test_every_row_of_a_batch_is_drawn_by_itself() -> None:
    """All pairs of rows meet in a batch with probability rate^2: no block of rows is drawn together."""
    features, labels = np.zeros((12, D)), np.ones(12)
    features[:, -1] = 1.0
    chosen = []

    class Listening(ArraySource):
        def map_sum(self, function, *aligned):
            if aligned and aligned[0].dtype == bool:
                chosen.append(aligned[0])
            return super().map_sum(function, *aligned)

    problem = LinearProblem(Logistic(), GRID)
    asked = Curator(
        Listening(features, labels, GRID),
        problem,
        Ledger(RICH, 1e-6),
        12,
        noise=LatticeNoise(Randomness(0)),
        batch_rate=0.4,
    )
    for _ in range(2000):
        mean_row_norm(asked, 1.0)
    drawn = np.array(chosen, float)
    pairs = (drawn.T @ drawn)[np.triu_indices(12, 1)]
    tail = ALARM / (2 * pairs.size)
    law = stats.binom(2000, 0.4**2)
    assert (law.cdf(pairs) > tail).all()
    assert (law.sf(pairs - 1) > tail).all()


def test_scale_out_of_range_is_a_named_error() -> None:
    with pytest.raises(ScaleOutOfRange, match="spend more"):
        column_moments(curator(), 1.0, 1e-33)


@pytest.mark.parametrize("store", STORAGE)
@pytest.mark.parametrize("grid", [FeatureGrid(1.0, 100, 5.0), FeatureGrid(0.3, 4), FeatureGrid(0.7, 2**13, 0.01)])
def test_a_source_refuses_entries_beyond_their_bound_however_long_rows_may_be(grid: FeatureGrid, store: str) -> None:
    # Squares of larger entries would be longer than the row, and clipped terms longer than a block has room for.
    features = np.zeros((2, grid.dimension))
    features[:, 0] = [5.0, -5.0]
    placed = grid.place(features)
    ArraySource(STORAGE[store](placed), np.ones(2), grid)
    assert np.abs(placed).max() <= grid.largest_entry
    features[:, 0] = grid.largest_entry + 2.0**-grid.exponent
    with pytest.raises(InvalidParameter):
        ArraySource(STORAGE[store](features), np.ones(2), grid)


@pytest.mark.parametrize("bound", [0.25, 1.0, 4.0])
def test_a_source_refuses_rows_beyond_their_bound_however_small_entries_are(bound: float) -> None:
    grid = FeatureGrid(1.0, 64, bound)
    for length, accepted in ((1.0, True), (1.01, True), (1.03, False), (1.3, False)):
        entry = np.rint(length * bound / 8 * 2.0**grid.exponent) / 2.0**grid.exponent
        rows = np.vstack([np.zeros(64), np.full(64, entry)])
        for store in ("dense", "csr"):
            if accepted:
                ArraySource(STORAGE[store](rows), np.ones(2), grid)
            else:
                with pytest.raises(InvalidParameter, match="not on the grid"):
                    ArraySource(STORAGE[store](rows), np.ones(2), grid)


def test_a_source_refuses_what_exact_sums_are_not_made_for() -> None:
    rows = made_up(Logistic())[0][:4]
    off = rows + np.eye(4, D) * 2.0 ** -(GRID.exponent + 1)
    twice = sparse.csr_array(
        (np.ones(2), np.array([1, 1]), np.array([0, 2, 2, 2, 2])), shape=(4, D)
    )  # one cell, twice
    for wrong in (off, sparse.csr_array(off), twice, rows.astype(np.int64), rows.astype(np.float16), rows + math.nan):
        with pytest.raises(InvalidParameter, match="not on the grid"):
            ArraySource(wrong, np.ones(4), GRID)
    for wrong in (rows[:, :-1], sparse.csr_array(rows[:, :-1]), sparse.csc_array(rows), rows[0]):
        with pytest.raises(InvalidParameter, match="dense or CSR"):
            ArraySource(wrong, np.ones(4), GRID)
    with pytest.raises(InvalidParameter, match="do not match"):
        ArraySource(rows, np.ones(3), GRID)
    assert ArraySource(rows, [1, -1, 1, 1], GRID)._labels.dtype == np.float64


@pytest.mark.parametrize("block_rows", [1, 2, 3, 5, 100])
def test_blocks_of_owners_cover_every_row_once_and_part_no_owner(block_rows: int) -> None:
    owners = np.repeat([0, 1, 2, 3, 5, 6], [1, 3, 2, 4, 1, 1])
    rows = made_up(Logistic())[0][: owners.size]
    source = ArraySource(rows, np.arange(owners.size), GRID, block_rows)
    together = source.in_blocks_of(owners)
    pieces = [(part.start, part.stop) for part, _ in together._blocks]
    assert [start for start, _ in pieces] == [0, *(stop for _, stop in pieces[:-1])]
    assert pieces[-1][1] == owners.size
    for (start, stop), (_, block) in zip(pieces, together._blocks, strict=True):
        np.testing.assert_array_equal(block, rows[start:stop])
        assert start == 0 or owners[start - 1] != owners[start]
        assert stop - start <= block_rows or len(set(owners[start:stop])) == 1
        if stop < owners.size:  # the next owner has no room in it
            assert stop - start + np.count_nonzero(owners == owners[stop]) > block_rows
    np.testing.assert_array_equal(together.map_rows(lambda _, labels: labels), np.arange(owners.size))
    assert ArraySource(rows[:0], [], GRID).in_blocks_of(owners[:0]).rows == 0


def test_placed_rows_are_always_accepted() -> None:
    generator = np.random.default_rng(0)
    for _ in range(200):
        bound, dimension = 10.0 ** generator.uniform(-3, 3), int(2 ** generator.uniform(0, 12))
        grid = FeatureGrid(bound, dimension, bound * math.sqrt(dimension) * 10.0 ** generator.uniform(-4, 0.5))
        features = grid.place(bound * generator.uniform(-1.5, 1.5, (3, dimension)) ** generator.integers(1, 40))
        single = np.zeros((1, dimension))
        single[0, 0] = 2 * bound
        ArraySource(np.vstack([features, grid.place(single)]), np.ones(4), grid)


@pytest.mark.parametrize("threads", ["1", "3"])
def test_blocks_keep_their_order_and_the_callers_error_handling_on_threads(threads: str, monkeypatch) -> None:
    """A warning from a thread of its own would speak of rows, so what the curator silences must stay silent there."""
    monkeypatch.setenv("OMP_NUM_THREADS", threads)
    features, labels = made_up(Logistic())
    source = ArraySource(features, labels, GRID, block_rows=7)
    with np.errstate(all="ignore"):
        inverse = source.map_rows(lambda rows, _: 1 / (0 * rows[:, 0]))
        total = source.map_sum(lambda rows, _: np.array([rows.shape[0]]))
    assert not np.isfinite(inverse).any()
    assert total == N
    np.testing.assert_array_equal(source.map_rows(lambda rows, _: rows[:, 0]), features[:, 0])
    with np.errstate(all="raise"), pytest.raises(FloatingPointError):
        source.map_rows(lambda rows, _: 1 / (0 * rows[:, 0]))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
def test_a_child_process_has_threads_of_its_own(monkeypatch) -> None:
    """Threads are kept from query to query; a child does not inherit them and must not wait for them."""
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    features, labels = made_up(Logistic())
    source = ArraySource(features, labels, GRID, block_rows=7)
    count = lambda rows, _: np.array([rows.shape[0]])  # noqa: E731
    assert source.map_sum(count) == N
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # newer versions of Python warn of threads and fork
        child = os.fork()
    if child == 0:
        os._exit(0 if source.map_sum(count) == N else 1)
    deadline = time.monotonic() + 30
    while (ended := os.waitpid(child, os.WNOHANG))[0] == 0 and time.monotonic() < deadline:
        time.sleep(0.01)
    if ended[0] == 0:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert ended == (child, 0)


class Words:
    """Random words that are written down."""

    def __init__(self, *words) -> None:
        self.left = list(words)

    def words(self, size: int) -> np.ndarray:
        words = np.array(self.left.pop(0), dtype=np.uint64)
        assert words.size == size
        return words


def test_a_row_joins_a_batch_where_its_number_is_below_the_rate_and_subsets_are_those_of_the_least_words() -> None:
    rate = 0.5 + 2.0**-9  # 128/2^8 and 2^55/2^64: the first byte decides unless it is 128
    leading = np.array([127, 128, 129, 128, 0, 255, 128, 3], dtype=np.uint8).view("<u8")
    half = 2**55
    bits = Words(leading, [(half - 1) << 8, half << 8, 2**55 << 8 | 255])
    expected = [True, True, False, False, True, False, False, True]
    assert bernoulli(bits, 8, rate).tolist() == expected
    words = np.random.default_rng(0).permutation(1000)[:40]
    drawn = draw_rows(Words([7] * 40, words), 40, Sampling("replace-one", 40, 0.25))  # ties are drawn again
    assert np.flatnonzero(drawn).tolist() == sorted(np.argsort(words)[:10])
    assert draw_rows(Words(), 40, Sampling("replace-one", 40)) is None
