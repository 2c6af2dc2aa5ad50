"""Bounds that are measured: the ladder of powers of two, the ends of columns, and fits without bounds."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from scipy import sparse

from dpdescent import (
    DPAdditiveClassifier,
    DPHuberRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
    InvalidParameter,
)
from dpdescent.accounting import Gaussian
from dpdescent.curator import ArraySource, Curator, LatticeNoise
from dpdescent.estimators.measuring import Measurement, _scaled
from dpdescent.estimators.scaling import ColumnScaling
from dpdescent.exact import FeatureGrid
from dpdescent.ledger import Ledger
from dpdescent.noise import Randomness
from dpdescent.problems import Adversary, LinearProblem, Squared
from dpdescent.queries import ColumnHistograms
from dpdescent.queries.counts_and_moments import COUNT, _histogram_block
from dpdescent.relations import Relation
from dpdescent.tables.bounds import (
    _EXPONENTS,
    BINS,
    RUNGS,
    Ends,
    bins,
    column_ends,
    edge,
    linear_ends,
    measured_ends,
    rung_ends,
    rungs,
    share_of_bounds,
)
from method_runs import Recording, Replaying

DELTA = 1e-6


@given(st.floats(allow_nan=False, allow_infinity=False, min_value=-1e300, max_value=1e300))
@settings(max_examples=300)
def test_every_number_lies_between_the_edges_of_its_rung(number: float) -> None:
    rung = int(rungs(np.array([number]))[0])
    assert -RUNGS <= rung <= RUNGS
    if abs(number) < 2.0**-300:
        return  # as good as zero
    near, far = edge(rung, outer=False), edge(rung, outer=True)
    assert min(abs(near), abs(far)) <= abs(number) < max(abs(near), abs(far))
    assert math.copysign(1, far) == math.copysign(1, number)
    if 2.0**-32 <= abs(number) < 2.0**64:
        assert abs(far) == 2 * abs(near)


def test_rungs_are_those_of_their_definition_for_every_exponent() -> None:
    exponents = np.arange(-1074, 1024)
    powers = np.ldexp(1.0, exponents)
    below = np.nextafter(powers, 0)
    numbers = np.concatenate([powers, -powers, below, -below, [0.0, -0.0, 5e-324, 2.0**-1022, np.finfo(float).max]])
    defined = np.sign(numbers) * np.searchsorted(_EXPONENTS, np.frexp(numbers)[1] - 1.0, side="right")
    np.testing.assert_array_equal(rungs(numbers), defined)


def test_rungs_of_sparse_and_dense_tables_are_the_same() -> None:
    generator = np.random.default_rng(0)
    X = (
        generator.normal(size=(50, 4))
        * (generator.random((50, 4)) < 0.3)
        * 10.0 ** generator.integers(-9, 9, (50, 4))
    )
    np.testing.assert_array_equal(rungs(sparse.csr_array(X)).toarray(), rungs(X))


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
def test_histograms_count_every_cell_once(stored) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(1)
    levels = generator.integers(-3, 4, (400, 5)).astype(float)
    grid = FeatureGrid(1.0, 5)
    source = ArraySource(stored(levels / 16), np.zeros(400), grid)
    curator = Curator(
        source, LinearProblem(Squared(), grid, intercept=False), Ledger(1e9, DELTA, currency="gdp"), 400
    )
    counts = np.rint(curator.answer(ColumnHistograms(3, 4, Gaussian(1e-3))))
    expected = np.array([np.bincount((column + 3).astype(int), minlength=7) for column in levels.T])
    np.testing.assert_array_equal(counts, expected)
    assert ColumnHistograms.sensitivity(5).zero_out == pytest.approx(math.sqrt(5))
    assert ColumnHistograms.sensitivity(5).replace_one == pytest.approx(math.sqrt(10))


def ends_of(X: np.ndarray, deviation: float, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)

    def ask(levels: np.ndarray, largest: int) -> tuple[np.ndarray, float]:
        counts = np.array([np.bincount((c + largest).astype(int), minlength=2 * largest + 1) for c in levels.T])
        return counts + generator.normal(0, deviation, counts.shape), deviation

    return measured_ends(ask, X, X.shape[0])


def columns(rows: int) -> np.ndarray:
    generator = np.random.default_rng(7)
    return np.column_stack(
        [
            generator.normal(size=rows),
            generator.integers(1990, 2021, rows),
            generator.exponential(1000, rows),
            generator.random(rows) < 0.2,
            generator.uniform(-1e-7, 1e-7, rows),
            -generator.uniform(5, 6, rows),
            np.zeros(rows),
        ]
    )


@pytest.mark.parametrize("deviation", [5.0, 50.0, 150.0])
def test_ends_hold_nearly_all_cells_and_are_not_much_wider(deviation: float) -> None:
    """20,000 rows; what noise hides is at most a few of its standard deviations on each side."""
    X = columns(20_000)
    for seed in range(5):
        low, high = ends_of(X, deviation, seed)
        beyond = ((low > X) | (high < X)).mean(axis=0)
        assert (beyond < 0.012 + 12 * deviation / 20_000).all()
        assert (low < high).all()
        width = X.max(axis=0) - X.min(axis=0)
        assert (high - low)[:6].max() < 1e8
        assert ((high - low)[[0, 2, 4]] < 8 * width[[0, 2, 4]]).all()
        assert (high - low)[1] < 10 * width[1]  # a year keeps its resolution, though it lies far from zero
        assert (low[6], high[6]) == (0.0, pytest.approx(high[6]))


def test_noise_alone_shows_nothing() -> None:
    """A level is seen at five standard deviations: 600 columns have fewer than one false alarm in a hundred runs."""
    generator = np.random.default_rng(3)
    noise = generator.normal(0, 10, (600, 2 * RUNGS + 1))
    assert sum(column_ends(column, 10.0, 1000) is not None for column in noise) <= 3
    ends = rung_ends(noise[:5], 10.0, 1000)
    assert (ends.low == -1).all()
    assert (ends.high == 1).all()


def test_a_share_of_the_budget_grows_where_there_are_few_rows() -> None:
    assert share_of_bounds(1e6, 10) == 0.02
    assert share_of_bounds(300, 4) == pytest.approx(4 * (40 / 300) ** 2)
    assert share_of_bounds(20, 50) == 0.1
    assert BINS == 64


def raw_table(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = np.column_stack([generator.normal(size=rows) * 1e4, generator.integers(1990, 2021, rows)])
    margins = 2 * X[:, 0] / 1e4 + (X[:, 1] - 2005) / 4
    return X, (generator.random(rows) < 1 / (1 + np.exp(-margins))).astype(int)


def test_raw_numbers_are_learnt_without_bounds() -> None:
    X, y = raw_table(20_000)
    options = {"classes": [0, 1], "random_state": 0}
    known = DPLogisticRegression(1.0, DELTA, bounds=([-4e4, 1990], [4e4, 2020]), **options).fit(X, y)
    measured = DPLogisticRegression(1.0, DELTA, bounds=None, **options).fit(X, y)
    assert measured.score(X, y) > known.score(X, y) - 0.003
    statement = measured.privacy_
    assert statement["asked"]["column histograms"] == 2
    assert statement["spent_on"]["column histograms"] == pytest.approx(0.04, rel=1e-6)
    assert any("bounds were measured" in remark for remark in statement["remarks"])
    assert [each for each in statement["assumed_public"] if "bounds" in each] == [
        "bounds: those that were not given (measured)"
    ]
    assert statement["spent_epsilon"] <= 1.0
    low, high = measured.bounds_
    assert low[1] > 1900
    assert high[1] < 2100
    shifted = sparse.csr_array(X)
    np.testing.assert_allclose(measured.decision_function(shifted), measured.decision_function(X))


def test_rows_are_clipped_to_the_bounds_when_they_are_predicted_too() -> None:
    X, y = raw_table(5000)
    fitted = DPLogisticRegression(1.0, DELTA, bounds=None, classes=[0, 1], random_state=0).fit(X, y)
    low, high = fitted.bounds_
    far = np.array([[1e9, 1e9], [-1e9, 0.0]])
    np.testing.assert_array_equal(fitted.decision_function(far), fitted.decision_function(np.array([high, low])))
    np.testing.assert_array_equal(
        fitted.decision_function(sparse.csr_array(far)).round(9), fitted.decision_function(far).round(9)
    )
    line = DPLinearRegression(1.0, DELTA, bounds=None, target_bounds=(0.0, 1.0), random_state=0).fit(
        X, y.astype(float)
    )
    np.testing.assert_array_equal(line.predict(far), line.predict(np.array(line.bounds_[::-1])))


def test_declared_zeros_and_ones_cost_nothing() -> None:
    generator = np.random.default_rng(0)
    X = (generator.random((2000, 3)) < 0.4).astype(float)
    y = (X[:, 0] > 0).astype(int)
    fitted = DPLogisticRegression(
        1.0, DELTA, bounds=None, binary_features=[True] * 3, classes=[0, 1], random_state=0
    ).fit(X, y)
    assert "column histograms" not in fitted.privacy_["asked"]
    np.testing.assert_array_equal(fitted.bounds_, ([0, 0, 0], [1, 1, 1]))


def test_a_shared_ledger_pays_for_the_bounds_too() -> None:
    X, y = raw_table(3000)
    shared = Ledger(2.0, DELTA, currency="gdp")
    fitted = DPLogisticRegression(1.0, DELTA, bounds=None, classes=[0, 1], ledger=shared, random_state=0).fit(X, y)
    labels = [entry.label for entry in shared.entries]
    assert labels[:2] == ["column histograms"] * 2
    assert len(labels) == sum(fitted.privacy_["asked"].values())


LARGEST = float(np.finfo(np.float64).max)
EXTREME = np.array([5e-324, -5e-324, 1e-310, 2.0**-301, 1e308, -1e308, LARGEST, -LARGEST, -0.0, 0.0, 1.0, -3.0])


@pytest.mark.parametrize("bounds", [None, (-1.0, 1.0)])
@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
def test_no_cell_however_extreme_is_spoken_of(bounds, stored, recwarn) -> None:  # type: ignore[no-untyped-def]
    """A warning that a sum has overflowed would tell something of the rows that nobody has paid for."""
    with np.errstate(over="warn", invalid="warn", divide="warn"):
        for X in (
            np.tile(EXTREME, (3000, 1)),
            np.repeat(EXTREME, 100)[:, None],
            np.full((3000, 2), LARGEST),
            np.where(np.arange(3000)[:, None] % 2, LARGEST, -LARGEST),
            np.zeros((3000, 2)),
            EXTREME[None, :],
        ):
            y = np.arange(X.shape[0]) % 2
            fitted = DPLogisticRegression(1.0, DELTA, bounds=bounds, classes=[0, 1], random_state=0).fit(stored(X), y)
            low, high = fitted.bounds_
            assert (np.isfinite(low) & np.isfinite(high) & (low < high)).all()
            assert np.isfinite(fitted.coef_).all()
    assert not [each for each in recwarn if issubclass(each.category, RuntimeWarning)]


@given(st.lists(st.sampled_from([*EXTREME, 7.0, 2021.0]), min_size=2, max_size=8), st.data())
@settings(max_examples=60, deadline=None)
def test_the_levels_of_a_cell_do_not_depend_on_other_cells(cells: list[float], data) -> None:  # type: ignore[no-untyped-def]
    column = np.array(cells)[:, None]
    at = data.draw(st.integers(0, len(cells) - 1))
    low, high = (
        np.array([end]) for end in data.draw(st.sampled_from([(-1.0, 2.0**1001), (1990.0, 2022.0), (0.0, 1.0)]))
    )
    for levels_of in (rungs, lambda table: bins(table, low, high)):
        levels, alone = levels_of(column), levels_of(column[at : at + 1])
        assert levels[at] == alone[0]
        np.testing.assert_array_equal(levels_of(sparse.csr_array(column)).toarray(), levels)
        np.testing.assert_array_equal(levels, np.rint(levels))
        assert np.abs(levels).max() <= 2**8


@pytest.mark.parametrize("bounds", [None, (-4.0, 4.0)])
def test_cells_that_are_stored_twice_or_in_disorder_are_read_like_any_other(bounds) -> None:  # type: ignore[no-untyped-def]
    generator = np.random.default_rng(5)
    rows, halves = 500, generator.normal(size=(500, 2))
    columns = np.tile([2, 0, 2, 0], rows)  # each of two cells in two parts, the last column first
    parts = np.column_stack([halves, halves]).ravel()
    twice = sparse.csr_array((parts, columns, np.arange(0, 4 * rows + 1, 4)), shape=(rows, 3))
    stored = twice.data.copy()
    X, y = twice.toarray(), np.arange(rows) % 2
    options = {"bounds": bounds, "classes": [0, 1], "random_state": 0}
    sparse_fit, dense_fit = (DPLogisticRegression(1.0, DELTA, **options).fit(each, y) for each in (twice, X))
    np.testing.assert_array_equal(sparse_fit.bounds_, dense_fit.bounds_)
    np.testing.assert_array_equal(sparse_fit.coef_, dense_fit.coef_)
    np.testing.assert_array_equal(twice.data, stored)  # the caller's table stays as it is


@pytest.mark.parametrize(("relation", "change"), [("zero-out", 1), ("replace-one", 2)])
@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
def test_no_row_changes_the_histograms_by_more_than_their_sensitivity(relation, change, stored) -> None:  # type: ignore[no-untyped-def]
    """Some rows attain it, so that a smaller one would be wrong and a larger one waste."""
    generator, columns = np.random.default_rng(6), 4
    table = generator.integers(-70, 71, (30, columns)) * 2.0**-9
    worst = 0.0
    for at in range(30):
        if relation == "zero-out":
            other = np.delete(table, at, axis=0)
        else:
            other = table.copy()
            other[at] = generator.integers(-70, 71, columns) * 2.0**-9 * generator.integers(0, 2, columns)
        counts = [_histogram_block(64, 2.0**9, stored(each), np.zeros(len(each))) / COUNT for each in (table, other)]
        worst = max(worst, float(np.linalg.norm(counts[0] - counts[1])))
    allowed = ColumnHistograms.sensitivity(columns).under(Relation.parse(relation))
    assert worst == pytest.approx(math.sqrt(change * columns), rel=1e-12)
    assert worst <= allowed <= worst * (1 + 1e-12)


@pytest.mark.parametrize("asked", [{}, {"bounds": (0, 1), "tighten": True}])
def test_methods_that_cannot_pay_for_it_refuse_before_any_charge(asked: dict[str, Any]) -> None:
    X, y = raw_table(500)
    shared = Ledger(2.0, DELTA, currency="pure")
    with pytest.raises(InvalidParameter, match=r"give .*bounds"):
        DPLogisticRegression(1.0, DELTA, method="expmech", classes=[0, 1], ledger=shared, **asked).fit(X, y)
    with pytest.raises(InvalidParameter, match="give target_bounds"):
        DPLinearRegression(1.0, DELTA, method="outpert", bounds=(0, 1), ledger=shared).fit(X, y)
    assert shared.spent == 0
    paper = {"method": "outpert", "solver_options": {"sigma": "paper"}}  # whose noise is made for the whole budget
    with pytest.raises(InvalidParameter, match="whole budget: give"):
        DPLogisticRegression(1.0, DELTA, classes=[0, 1], **paper, **asked).fit(X, y)


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
def test_without_privacy_bounds_are_the_extremes(stored) -> None:  # type: ignore[no-untyped-def]
    X, y = raw_table(500)
    fitted = DPLogisticRegression(method="nonprivate", classes=[0, 1]).fit(stored(X), y)
    np.testing.assert_array_equal(fitted.bounds_, (X.min(axis=0), X.max(axis=0)))
    assert DPLinearRegression(method="nonprivate").fit(X, y + 0.5).target_bounds_ == (0.5, 1.5)


def test_a_tail_that_is_thin_everywhere_is_not_cut_off() -> None:
    """Most cells in one bin, and a tenth of them spread over all others, each of which noise could hide."""
    rows, noise = 40_000, 60.0
    counts = np.full(BINS, 0.1 * rows / BINS)
    counts[0] += 0.9 * rows
    low, high = np.zeros(1), np.ones(1)
    unlimited = Ends(low, high, high, low)
    assert linear_ends(counts[None], noise, rows, unlimited) == (low, high)
    counts[0], counts[1:] = rows, 0.0
    assert linear_ends(counts[None], noise, rows, unlimited) == (0.0, 1 / BINS)


def test_bins_move_an_end_only_within_the_outermost_rung() -> None:
    """Cells seen on the ladder between 1/2 and 1 may be hidden by noise in each of the bins there."""
    rows, noise = 40_000, 250.0
    counts = np.zeros((2, BINS))
    counts[:, 0] = rows
    low, high = np.zeros(2), np.ones(2)
    seen_above = Ends(low, high, low, np.array([0.5, 0.0]))
    ends = linear_ends(counts, noise, rows, seen_above)
    np.testing.assert_array_equal(ends, ([0.0, 0.0], [1.0, 2 / BINS]))
    seen_below = Ends(-high, low, -np.array([0.5, 0.0]), low)
    ends = linear_ends(counts[:, ::-1], noise, rows, seen_below)
    np.testing.assert_array_equal(ends, ([-1.0, -2 / BINS], [0.0, 0.0]))


def mostly_zero(rows: int) -> np.ndarray:
    """A column that is 0 in 19 of 20 rows, and between 1,500 and 2,500 in the others."""
    generator = np.random.default_rng(4)
    return np.where(generator.random(rows) < 0.05, generator.uniform(1500, 2500, rows), 0.0)[:, None]


def test_numbers_in_few_rows_are_not_cut_off() -> None:
    """Noise of 200 hides them in every bin of 64: 5 in 100,000 draws miss them on the ladder too, all 20 see them."""
    for seed in range(20):
        low, high = ends_of(mostly_zero(40_000), 200.0, seed)
        assert low == 0
        assert 2048 <= high <= 8192


def test_cells_that_the_only_sure_level_lacks_are_looked_for() -> None:
    """At 5.2 deviations of noise in two levels, half of the draws would not be sure of them."""
    counts = np.zeros(2 * RUNGS + 1)
    counts[RUNGS] = 38_000
    counts[RUNGS + 45 : RUNGS + 47] = 1000
    generator, noise = np.random.default_rng(8), 385.0
    found = [column_ends(counts + generator.normal(0, noise, counts.size), noise, 40_000) for _ in range(200)]
    reached = np.mean([each is not None and each[1] >= RUNGS + 45 for each in found])
    # 2000/(385 sqrt 2) = 3.67: over 4 deviations with a probability of .37; over 5 with .09, and single levels less.
    assert 0.28 < reached < 0.55
    whole = [column_ends(counts + generator.normal(0, noise, counts.size), noise, 38_000) for _ in range(200)]
    assert np.mean([each[1] >= RUNGS + 45 for each in whole if each is not None]) < 0.25


def test_with_few_rows_the_ladder_is_measured_twice_and_ranges_stay_narrow() -> None:
    """120 rows and a noise of 18: four columns of one scale each, of which the bins would show nothing."""
    generator = np.random.default_rng(2)
    X = generator.uniform(1.0, 2.0, (120, 4)) * [4.0, 32.0, 0.25, 1024.0]
    asked = []

    def ask(levels: np.ndarray, largest: int) -> tuple[np.ndarray, float]:
        asked.append(largest)
        counts = np.array([np.bincount((c + largest).astype(int), minlength=2 * largest + 1) for c in levels.T])
        return counts + generator.normal(0, 18.0, counts.shape), 18.0

    right = 0
    for _ in range(25):
        low, high = measured_ends(ask, X, 120)
        right += int(np.sum((low == [4.0, 32.0, 0.25, 1024.0]) & (high == 2 * low)))
    assert set(asked) == {RUNGS}
    assert len(asked) == 50
    # A column is one level, at 9.4 deviations: noise of 2 of them or more beyond either end widens 1 in 13 columns.
    assert 80 <= right <= 99


def test_columns_of_which_nothing_is_seen_may_hold_zero() -> None:
    counts = np.zeros((3, 2 * RUNGS + 1))
    counts[:2, RUNGS + 40] = 1000.0
    ends = rung_ends(counts, 20.0, 1000)
    assert ends.low[2] == 0
    assert ends.high[2] == ends.high[0]
    assert ends.low[0] > 0


def test_noise_beyond_an_end_rarely_widens_a_column_much() -> None:
    """Of 4,000 columns with one level, with a noise of 2.5% of the rows, 1 in 40 gets wider, and few much wider.

    Without further deviations for every level in between, 1 in 12 gets more than twice as wide.
    """
    generator = np.random.default_rng(9)
    counts = generator.normal(0, 1000.0, (4000, 2 * RUNGS + 1))
    counts[:, RUNGS + 40] += 40_000
    ends = rung_ends(counts, 1000.0, 40_000)
    right = 2 * edge(40, outer=True)  # twice as wide where noise could hide a percent of the rows
    assert 0.01 < np.mean(ends.high > right) < 0.04
    assert np.mean(ends.high > 2 * right) < 0.015
    assert np.mean(ends.high > 8 * right) < 0.004
    assert np.mean(ends.high < right) == 0


# Given bounds --------------------------------------------------------------------------------------------------


def test_generous_bounds_are_made_narrower_and_tight_ones_stay() -> None:
    X, y = raw_table(6000)
    tight = ([-4e4, 1990], [4e4, 2020])
    options: dict[str, Any] = {"classes": [0, 1], "random_state": 0}
    known = DPLogisticRegression(1.0, DELTA, bounds=tight, **options).fit(X, y)
    np.testing.assert_array_equal(known.bounds_, tight)
    assert known.privacy_["spent_on"]["column histograms"] == pytest.approx(0.02)
    assert any("found for 0 of" in remark for remark in known.privacy_["remarks"])
    for wide in ((-1e9, 1e9), ([-4e7, 0], [4e7, 1e6])):
        found = DPLogisticRegression(1.0, DELTA, bounds=wide, **options).fit(X, y)
        low, high = found.bounds_
        assert (low >= wide[0]).all()
        assert (high <= wide[1]).all()
        inside = np.clip(X, low, high) == X
        assert (inside.mean(axis=0) > 0.97).all()
        assert (high - low < 16 * (X.max(axis=0) - X.min(axis=0))).all()
        assert found.privacy_["spent_on"]["column histograms"] == pytest.approx(0.04)
        assert "for 4.0% of the budget" in found.privacy_["remarks"][0]
        assert found.score(X, y) > known.score(X, y) - 0.02
    trusting = DPLogisticRegression(1.0, DELTA, bounds=wide, tighten=False, **options).fit(X, y)
    assert trusting.score(X, y) < known.score(X, y) - 0.05


@pytest.mark.parametrize(
    "fixed",
    [
        {"alpha": 0.1},
        {"solver_options": {"clip": 1.0}},
        {"tighten": False},
        {"epsilon": 0.01},
        {"binary_features": [0, 1]},
        {"method": "outpert", "adversary": Adversary(0.1)},
    ],
)
def test_bounds_stay_where_others_are_in_their_units_or_rows_are_few(fixed: dict[str, Any]) -> None:
    X, y = raw_table(4000)
    fitted = DPLogisticRegression(**{"bounds": (-1e9, 1e9), "classes": [0, 1], "random_state": 0} | fixed).fit(X, y)
    np.testing.assert_array_equal(fitted.bounds_, ([-1e9] * 2, [1e9] * 2))
    assert "column histograms" not in fitted.privacy_["spent_on"]


def test_knots_and_adversaries_keep_their_bounds() -> None:
    X, y = raw_table(4000)
    knotted = DPAdditiveClassifier(1.0, bounds=(-1e9, 1e9), knots={0: [5e8]}, classes=[0, 1], random_state=0)
    np.testing.assert_array_equal(knotted.fit(X, y).bounds_[1], [1e9, 1e9])
    with pytest.raises(InvalidParameter, match="give bounds"):
        DPLogisticRegression(method="outpert", adversary=Adversary(0.1), classes=[0, 1]).fit(X, y)
    with pytest.raises(InvalidParameter, match="tighten must be"):
        DPLogisticRegression(bounds=(0, 1), tighten="yes", classes=[0, 1]).fit(X, y)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("bounds", [None, (-1e9, 1e9), ([-1e9, np.nan], [1e9, np.nan])])
def test_one_row_moves_what_is_measured_within_its_sensitivity(bounds: Any, relation: str) -> None:
    """The measurement is replayed on a neighbour with the same answers, and sums before noise are compared."""
    X, y = raw_table(600)
    X[-1] = (1e300, -1e-300)
    other, labels = X[:-1], y[:-1]
    if relation == "replace-one":
        other, labels = np.vstack([other, [-1e30, 0.0]]), np.append(labels, 1 - y[-1])
    scaling, gaps = (None, None) if bounds is None else ColumnScaling.with_gaps(bounds, 2)

    def measure(noise: Recording, table: np.ndarray, target: np.ndarray) -> None:
        ledger = Ledger(1.0, DELTA, currency="gdp", relation=relation)
        measurement = Measurement(ledger, noise, 600)
        measurement.buy_columns(table, scaling, np.zeros(2, np.bool_), tighten=True, gaps=gaps)
        measurement.buy_scaling(target[:, None].astype(float), np.zeros(1, np.bool_))

    recorded = Recording()
    measure(recorded, X, y)
    replayed = Replaying(recorded)
    measure(replayed, other, labels)
    assert len(replayed.shares) == (
        5 if bounds == (-1e9, 1e9) else 4
    )  # there is a first look at bounds of all columns
    assert 0.5 < max(replayed.shares) <= 1


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_with_few_rows_both_measurements_of_the_ladder_are_charged_and_have_noise_of_their_own(relation: str) -> None:
    """Averaging them as if they were independent must be right, and one row moves each within its sensitivity."""
    X, _ = raw_table(60)

    def measure(noise: Any, table: np.ndarray) -> Ledger:
        ledger = Ledger(1.0, DELTA, currency="gdp", relation=relation)
        Measurement(ledger, noise, 60).buy_scaling(table, np.zeros(2, np.bool_))
        return ledger

    other = np.vstack([X[:-1], [[-1e30, 0.0]]]) if relation == "replace-one" else X[:-1]
    recorded = Recording()
    spent = measure(recorded, X)
    assert [entry.label for entry in spent.entries] == ["column histograms"] * 2
    assert spent.spent == pytest.approx(0.2 * spent.budget)
    replayed = Replaying(recorded)
    measure(replayed, other)
    assert len(replayed.shares) == 2
    assert 0.5 < max(replayed.shares) <= 1
    for seed in (0, None):
        source = LatticeNoise(Randomness(seed))
        curator = Curator(
            ArraySource(np.zeros((60, 2)), np.zeros(60), FeatureGrid(1.0, 2)),
            LinearProblem(Squared(), FeatureGrid(1.0, 2), intercept=False),
            Ledger(1.0, DELTA, currency="gdp", relation=relation),
            60,
            noise=source,
        )
        query = ColumnHistograms(RUNGS, 9, Gaussian(40.0))
        first, second = curator.answer(query).ravel(), curator.answer(query).ravel()
        zero = np.zeros((2, 2 * RUNGS + 1))
        zero[:, RUNGS] = 60
        # 634 counts: a correlation of 0.2 is five deviations of chance, and shared noise has one of 1.
        assert abs(np.corrcoef(first - zero.ravel(), second - zero.ravel())[0, 1]) < 0.2


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_targets_are_learnt_without_bounds(scale: float) -> None:
    X, _ = raw_table(8000)
    target = scale * (X[:, 0] / 1e4 + (X[:, 1] - 2005) / 10 + 3)
    options = {"bounds": ([-4e4, 1990], [4e4, 2020]), "random_state": 0}
    for kind in (DPLinearRegression, DPHuberRegressor):
        fitted = kind(2.0, DELTA, **options).fit(X, target)
        low, high = fitted.target_bounds_
        assert np.mean((target >= low) & (target <= high)) > 0.98
        assert high - low < 4 * (target.max() - target.min())
        assert fitted.score(X, target) > 0.7
        assert any("bounds of the label were measured" in remark for remark in fitted.privacy_["remarks"])
        assert "target_bounds: values outside are clipped (measured)" in fitted.privacy_["assumed_public"]
        assert fitted.predict(X).max() <= high
    given = DPLinearRegression(2.0, DELTA, target_bounds=(0, 9), tighten=False, **options).fit(X, target)
    assert given.target_bounds_ == (0.0, 9.0)
    assert not any("target_bounds were" in remark for remark in given.privacy_["remarks"])


def test_counts_and_thresholds_get_bounds_that_fit_them() -> None:
    X, _ = raw_table(5000)
    options: dict[str, Any] = {"bounds": ([-4e4, 1990], [4e4, 2020]), "random_state": 0}
    counts = np.random.default_rng(0).poisson(3, 5000)
    for intercept in (True, False):
        fitted = DPPoissonRegressor(2.0, DELTA, fit_intercept=intercept, **options).fit(X, counts)
        assert 0 <= fitted.target_bounds_[0] < 7 <= fitted.target_bounds_[1] <= 33
    constant = DPPoissonRegressor(2.0, DELTA, fit_intercept=False, **options).fit(X, np.zeros(5000))
    assert constant.target_bounds_ == (0.0, 1.0)
    low, high = DPHuberRegressor(2.0, DELTA, threshold=1e-6, **options).fit(X, counts).target_bounds_
    assert high - low == pytest.approx(2 * 1024 * 1e-6)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
def test_the_budget_is_never_exceeded(adjacency: str) -> None:
    X, y = raw_table(800)
    for method in ("auto", "agd", "sgd", "adam", "blgd"):
        fitted = DPLogisticRegression(
            0.5, DELTA, method=method, adjacency=adjacency, bounds=None, classes=[0, 1], random_state=0
        ).fit(X, y)
        assert fitted.privacy_["spent_epsilon"] <= 0.5


def noisy(counts: np.ndarray, noise: float, seed: int) -> np.ndarray:
    return counts + np.random.default_rng(seed).normal(0, noise, counts.shape)


def test_a_column_of_both_signs_is_not_cut_at_zero_where_noise_is_large() -> None:
    """Noise of 5% of the rows: 30 standard normal columns keep most cells, where half of all were cut off before."""
    cells = np.random.default_rng(0).normal(size=(5000, 30))
    counted = np.array([np.bincount(own.astype(int) + RUNGS, minlength=2 * RUNGS + 1) for own in rungs(cells).T])
    ends = rung_ends(noisy(counted, 250.0, 1), 250.0, 5000)
    outside = (cells < ends.low) | (cells > ends.high)
    assert outside.mean() < 0.25
    positive = np.exp(0.3 * cells)
    counted = np.array([np.bincount(own.astype(int) + RUNGS, minlength=2 * RUNGS + 1) for own in rungs(positive).T])
    assert (rung_ends(noisy(counted, 250.0, 2), 250.0, 5000).low >= 0).mean() > 0.9


def test_bins_that_noise_hides_hardly_ever_cut_off_much_of_a_column() -> None:
    """Numbers around 50 within 32 and 64, noise of 4% of the rows in each of 64 bins: 1 of 300 columns, before 23."""
    cells = np.clip(np.random.default_rng(0).normal(50, 14, (5000, 300)), 32, 63.9)
    counted = np.array([np.bincount(((own - 32) * 2).astype(int), minlength=64) for own in cells.T])
    both = np.full(300, 32.0), np.full(300, 64.0)
    low, high = linear_ends(noisy(counted, 200.0, 1), 200.0, 5000, Ends(*both, both[1], both[0]))
    assert np.count_nonzero(((cells < low) | (cells > high)).mean(axis=0) > 0.2) <= 3


@pytest.mark.parametrize("stored", [np.asarray, np.asfortranarray, sparse.csr_array], ids=["dense", "fortran", "csr"])
@pytest.mark.parametrize("precision", [np.float64, np.float32])
def test_cells_are_scaled_each_by_itself_and_the_table_is_left_as_it_is(stored: Any, precision: type) -> None:
    """What is counted of a row must not depend on other rows, nor what a fit reads later on what was counted."""
    generator = np.random.default_rng(0)
    table = stored(np.where(generator.random((40, 3)) < 0.3, 0, generator.normal(size=(40, 3)) * 7).astype(precision))
    before, scaling = table.copy(), ColumnScaling(np.array([-3.0, 0.0, 2.0]), np.array([5.0, 6.0, 40.0]))
    factors = np.array([0.625, 0.75, 0.59375])
    found = dense_of(_scaled(table, scaling, factors))
    np.testing.assert_array_equal(dense_of(table), dense_of(before))
    for row in range(40):
        np.testing.assert_array_equal(dense_of(_scaled(table[row : row + 1], scaling, factors))[0], found[row])
    cells = dense_of(before).astype(np.float64)
    inside = (np.clip(cells, scaling.low, scaling.high) - scaling.shift) / scaling.scale * factors
    np.testing.assert_array_equal(found, np.where((cells == 0) & sparse.issparse(table), 0.0, inside))


def dense_of(table: Any) -> np.ndarray:
    return table.toarray() if sparse.issparse(table) else np.asarray(table)
