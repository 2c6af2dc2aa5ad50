"""Counts of values that occur: what a unit moves, which values are published, and what it costs."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction

import numpy as np
import pytest
from scipy.special import ndtr
from scipy.stats import norm

from dpdescent import Ledger
from dpdescent.accounting import (
    FAILURE_SHARE,
    GDP,
    RDP,
    SAMPLER_SHARE,
    ZCDP,
    Approximate,
    Gaussian,
    Pure,
    Threshold,
    ThresholdedGaussian,
    cost_from_dict,
    gdp_to_delta,
)
from dpdescent.curator import LatticeNoise, Units, key_counts, lattice_noise
from dpdescent.curator.key_counts import _counted, _histogram, buy_bins, buy_levels, histogram_sensitivity
from dpdescent.curator.lattice_noise import deviation_of
from dpdescent.errors import BudgetExhausted, InvalidParameter, UnsupportedCost
from dpdescent.exact import LatticeSum
from dpdescent.noise import Randomness, lattice_scale
from dpdescent.queries import Noised
from dpdescent.relations import Relation

STEP = 2.0**-16


# The cost -----------------------------------------------------------------------------------------------------------


def test_it_costs_what_its_noise_costs_and_its_failure_is_delta() -> None:
    cost, noise = ThresholdedGaussian(7.0, 1e-9), Gaussian(7.0)
    assert (cost.zcdp(), cost.mu_squared(), cost.rdp(5.0)) == (noise.zcdp(), noise.mu_squared(), noise.rdp(5.0))
    assert cost.delta == 1e-9
    assert cost.pure() == math.inf
    assert cost_from_dict(cost.to_dict()) == cost


@pytest.mark.parametrize("failure", [0.0, 1.0, -1e-9, math.nan])
def test_a_failure_is_a_probability(failure: float) -> None:
    with pytest.raises(InvalidParameter, match="failure"):
        ThresholdedGaussian(7.0, failure)


@pytest.mark.parametrize("currency", [ZCDP(), GDP(), RDP(20.0)])
def test_a_ledger_refuses_failures_beyond_the_part_it_keeps(currency) -> None:
    delta = 1e-6
    ledger = Ledger(1.0, delta, currency=currency.with_failures())
    limit = Fraction(delta) * (FAILURE_SHARE - SAMPLER_SHARE)
    assert ledger.failure_limit == limit
    half = float(limit) * 0.5
    for _ in range(2):
        ledger.spend(ThresholdedGaussian(500.0, half * (1 - 1e-12)))
    before = ledger.spent
    with pytest.raises(BudgetExhausted, match="reserved for failures"):
        ledger.spend(ThresholdedGaussian(500.0, half))
    assert ledger.spent == before
    ledger.spend(Gaussian(500.0))


@pytest.mark.parametrize("currency", [ZCDP(), GDP(), RDP(20.0)])
def test_parts_of_delta_never_exceed_delta(currency) -> None:
    for kept in (currency, currency.with_failures()):
        ledger = Ledger(0.7, 1e-7, currency=kept)
        parts = ledger.failure_limit + Fraction(ledger._counted_delta) + Fraction(1e-7) * SAMPLER_SHARE
        assert parts <= Fraction(1e-7)


def test_old_ledgers_keep_their_part_and_new_files_remember_theirs(tmp_path) -> None:
    old = Ledger(1.0, 1e-6, currency="gdp")
    assert "failure_share" not in old.to_json()
    assert old.failure_limit == Fraction(1e-6) * (Fraction(1, 2**20) - SAMPLER_SHARE)
    with pytest.raises(BudgetExhausted, match="open a new ledger"):
        old.spend(ThresholdedGaussian(500.0, 1e-9))
    new = Ledger(1.0, 1e-6, currency=GDP().with_failures(), path=tmp_path / "new.ledger")
    again = Ledger.open(tmp_path / "new.ledger")
    assert again.currency == new.currency != old.currency
    assert (again.budget, again.failure_limit) == (new.budget, new.failure_limit)
    assert 0.9995 < new.budget / old.budget < 1


def test_pure_and_approximate_ledgers_cannot_pay() -> None:
    for currency in (Pure(), Approximate()):
        assert currency.with_failures() == currency
        with pytest.raises(UnsupportedCost):
            Ledger(1.0, 1e-6, currency=currency).spend(ThresholdedGaussian(500.0, 1e-20))


def test_failures_add_up_without_a_factor() -> None:
    """P puts p on what Q never yields, and the reverse: the profile is D + (1 - D) d_0, which the filter counts."""
    sigma, epsilon, failing = 3.0, 0.5, 1e-3
    x = np.linspace(-60, 60, 2_000_001)
    gap = (1 - failing) * (norm.pdf(x, 1, sigma) - math.exp(epsilon) * norm.pdf(x, 0, sigma))
    exact = failing + float(np.trapezoid(np.maximum(gap, 0.0), x))
    bound = failing + (1 - failing) * gdp_to_delta(1 / sigma, epsilon)
    assert exact == pytest.approx(bound, abs=1e-9)
    assert round(bound, 8) == 0.01340583


# The threshold ------------------------------------------------------------------------------------------------------


def test_thresholds_are_those_of_the_derivation() -> None:
    assert round(Threshold(10).of(100.0, 1e-7), 2) == 562.20
    assert Threshold(10).of(100.0, 1e-6 * 2**-20 * (1 - 2**-10)) == pytest.approx(736.53, abs=0.02)
    assert round(Threshold(10, 2, scaled=False).of(200.0, 1e-7), 2) == 1147.15
    assert round(Threshold(10, 5, scaled=False).of(500.0, 1e-7), 2) == 2943.10
    assert round(Threshold(10, 5).of(10.0, 1e-7), 3) == 59.289


@pytest.mark.parametrize(("rows", "deviation", "unsound"), [(2, 200.0, 1124.40), (5, 500.0, 2811.00)])
def test_a_threshold_for_one_key_of_a_unit_is_too_low(rows: int, deviation: float, unsound: float) -> None:
    assert rows + deviation * norm.isf(1e-8) == pytest.approx(unsound, abs=0.01)
    assert Threshold(10, rows, scaled=False).failure_at(unsound, deviation) > 1.2e-7


def tail(scale: int, least: int) -> float:
    """Return P(Z >= least) of a discrete Gaussian, by adding up its terms."""
    places = np.arange(-40 * scale, 40 * scale + 1, dtype=np.float64)
    terms = np.exp(-(places**2) / (2 * scale**2))
    return float(terms[places >= least].sum() / terms.sum())


def patterns(rows: int):
    """Yield every way in which a unit may have private keys in a column, as counts."""
    for held in range(1, rows + 1):
        for counts in itertools.product(range(1, rows + 1), repeat=held):
            if sum(counts) <= rows and list(counts) == sorted(counts, reverse=True):
                yield np.array(counts)


@pytest.mark.parametrize("relation", list(Relation))
@pytest.mark.parametrize(("columns", "rows"), [(1, 1), (3, 1), (1, 2), (2, 3), (4, 4)])
def test_a_key_of_one_unit_alone_is_published_as_rarely_as_was_paid_for(
    relation: Relation, columns: int, rows: int
) -> None:
    failure, step = 1e-3, 2.0**-6
    sensitivity = histogram_sensitivity(columns)
    scale = lattice_scale(1.5 * sensitivity.under(relation), step)
    least = Threshold(columns, rows).on_lattice(scale, step, failure)
    worst = 0.0
    for counts in patterns(rows):
        scaled = np.floor(counts / np.linalg.norm(counts) / step).astype(int)
        none = np.prod([1 - tail(scale, least - value) for value in scaled]) ** columns
        worst = max(worst, 1 - float(none))
    assert 0.8 * failure < worst <= failure  # neither too low nor needlessly high


def test_patterns_beyond_those_that_are_tried_are_bounded() -> None:
    tried = Threshold(3, 12)
    for threshold in (3.0, 5.0, 8.0):
        values = 1 / np.sqrt(np.arange(1, 13))
        bound = float(np.sum(ndtr((values - threshold) / 1.3)))
        assert tried._in_a_column(threshold, 1.3) <= bound
    assert Threshold(3, 13).of(1.3, 1e-6) >= tried.of(1.3, 1e-6)


@pytest.mark.parametrize("deviation", [0.05, 1.0, 2.0, 100.0])
@pytest.mark.parametrize("rows", [3, 6, 12, 13, 40])
def test_no_pattern_of_private_keys_fails_more_often(rows: int, deviation: float) -> None:
    """With little noise one key with all rows is the worst, with much noise as many keys as rows."""
    generator = np.random.default_rng(rows)
    drawn = [np.bincount(generator.integers(held, size=rows)) for held in range(1, rows + 1) for _ in range(20)]
    drawn += [np.ones(held) for held in range(1, rows + 1)] + [
        np.array([rows - held, *[1] * held]) for held in range(rows)
    ]
    threshold, failing = Threshold(3, rows), []
    least = threshold.of(deviation, 1e-3)
    for counts in drawn:
        held = counts[counts > 0] / np.linalg.norm(counts)
        failing.append(-math.expm1(3 * math.log1p(-float(np.sum(ndtr((held - least) / deviation))))))
    assert max(failing) <= 1e-3
    assert max(failing) > 0.9e-3 or rows > 12 or least == rows


def test_a_threshold_for_less_noise_would_fail() -> None:
    threshold = Threshold(5)
    assert threshold.failure_at(threshold.of(10.0, 1e-6), 20.0) > 100 * 1e-6


# The sensitivity ----------------------------------------------------------------------------------------------------


def histograms(units_of_rows: tuple[tuple[tuple[int, int], ...], ...], most: int) -> np.ndarray:
    """Return the counts of two columns of three values, for units that are tuples of rows."""
    rows = [(owner, *row) for owner, unit in enumerate(units_of_rows) for row in unit]
    owners = np.array([row[0] for row in rows], dtype=np.intp)
    units = Units(owners, len(units_of_rows), most) if most > 1 else None
    codes = np.array([row[1:] for row in rows], dtype=np.intp).reshape(-1, 2)
    return np.concatenate([_histogram(codes[:, column], 3, units) for column in range(2)])


@pytest.mark.parametrize("most", [1, 2, 3])
def test_no_unit_moves_the_counts_by_more_than_the_sensitivity(most: int) -> None:
    """All units of up to k rows, with missing cells, beside a unit that stays: removed, and replaced by any other."""
    cells = list(itertools.product((-1, 0, 1, 2), (0, 1)))
    every = [unit for held in range(1, most + 1) for unit in itertools.combinations_with_replacement(cells, held)]
    every = every[:: max(1, len(every) // 60)]
    stays = ((0, 1),)
    without = histograms((stays,), most)
    largest = dict.fromkeys(Relation, 0)
    added = [histograms((stays, unit), most) - without for unit in every]
    for one in added:
        largest[Relation.ZERO_OUT] = max(largest[Relation.ZERO_OUT], int(one @ one))
    for one, other in itertools.combinations(added, 2):
        moved = one - other
        largest[Relation.REPLACE_ONE] = max(largest[Relation.REPLACE_ONE], int(moved @ moved))
    for relation, square in largest.items():
        bound = histogram_sensitivity(2).under(relation) / STEP
        assert 0.99 * bound**2 < square <= bound**2, relation


# The releases -------------------------------------------------------------------------------------------------------


def column(codes: list[int], values: list[str]):
    return lambda _: (np.array(codes, dtype=np.intp), values)


def test_only_keys_above_the_threshold_leave_in_their_own_order() -> None:
    ledger = Ledger(50.0, 1e-3, currency=GDP().with_failures())
    cost = ThresholdedGaussian(1.0, 1e-6)
    codes = [0] * 400 + [2] * 300 + [1]
    found = buy_levels(ledger, cost, [column(codes, ["zebra", "only", "ant"])], "levels", LatticeNoise(Randomness(1)))
    assert list(found[0]) == ["ant", "zebra"]
    assert abs(found[0]["zebra"] - 400) < 8
    assert abs(found[0]["ant"] - 300) < 8
    assert [entry.label for entry in ledger.entries] == ["levels"]
    assert ledger.entries[0].cost == cost


@pytest.mark.parametrize("rows", [1, 4])
def test_every_count_is_released_for_the_columns_and_units_that_there_are(
    rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = Ledger(50.0, 1e-3, currency=GDP().with_failures())
    told = []
    for name in ("published", "release"):
        was = getattr(LatticeNoise, name)
        monkeypatch.setattr(
            LatticeNoise,
            name,
            lambda self, total, *rest, was=was, **more: (
                told.append((total, *rest)) or was(self, total, *rest, **more)
            ),
        )
    units, codes = Units(np.arange(8) // rows, 8 // rows, rows), np.arange(8, dtype=np.intp) % 3
    cost = ThresholdedGaussian(2.0, 1e-7)
    buy_levels(ledger, cost, [lambda _: (codes, ["a", "b", "c"])] * 3, "levels", LatticeNoise(), units)
    buy_bins(ledger, Gaussian(2.0), [lambda _: codes] * 3, 3, "types", LatticeNoise(), units)
    (levels, *paid), (bins, *_) = told
    assert paid == [cost, Relation.ZERO_OUT, Threshold(3, rows)]
    assert [each.sensitivity for each in (levels, bins)] == [histogram_sensitivity(3)] * 2
    assert levels.values.tolist() == bins.values.ravel().tolist()


def test_a_key_leaves_from_the_threshold_that_was_paid_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without noise the least count that leaves is the threshold: half a failure or twice of it moves it by rows."""
    monkeypatch.setattr(lattice_noise, "discrete_gaussian", lambda _, __, size: np.zeros(size, dtype=np.int64))
    ledger, cost = Ledger(50.0, 1e-3, currency=GDP().with_failures()), ThresholdedGaussian(50.0, 1e-6)
    scale = lattice_scale(50.0 * histogram_sensitivity(1).under(Relation.ZERO_OUT), STEP)
    least = math.ceil(Threshold(1).on_lattice(scale, STEP, 1e-6) * STEP)
    assert least == math.ceil(1 + 50 * norm.isf(1e-6))
    for held, leaves in ((least, True), (least - 1, False)):
        found = buy_levels(ledger, cost, [column([0] * held, ["key"])], "levels", LatticeNoise())
        assert bool(found[0]) is leaves


def counted_in_parts(cells: np.ndarray, size: int, spared: int) -> np.ndarray:
    """Return the counts of 500 values in a table whose parts have so many rows."""
    parts = [cells[first : first + size] for first in range(0, len(cells), size)]
    (found,) = _counted([lambda part: (part, range(500))], None, lambda: iter(parts), spared)
    return np.array([found.get(value, 0) for value in range(500)]) / 2**16


def test_a_table_in_parts_is_counted_as_one_but_for_what_is_spared() -> None:
    cells = np.random.default_rng(0).zipf(1.3, 3 * 4096 + 5) % 500
    whole = np.bincount(cells, minlength=500)
    for size in (len(cells), 4096, 1000):
        assert np.array_equal(counted_in_parts(cells, size, 0), whole)
        assert np.array_equal(counted_in_parts(cells, size, 3), np.maximum(whole - 3, 0))


@pytest.mark.parametrize("place", [0, 1, 4095, 4096, 5000, -1])
def test_a_missing_row_moves_one_count_by_one_although_others_move_up(place: int) -> None:
    """Of parts by position each loses a row to the one before, and the last one is shorter."""
    cells = np.tile(np.arange(500), 25)[: 3 * 4096].astype(np.intp)
    moved = counted_in_parts(np.delete(cells, place), 4096, 3) - counted_in_parts(cells, 4096, 3)
    assert np.abs(moved).sum() == np.abs(moved).max() == 1


def test_values_that_are_rare_in_all_parts_need_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cells = np.append(np.arange(10**5), np.zeros(3 * 10**4)).astype(np.intp)
    kept, was = [], key_counts._frequent
    monkeypatch.setattr(key_counts, "_frequent", lambda *given: kept.append(was(*given)) or kept[0])
    (found,) = _counted([lambda part: (part, range(10**5))], None, lambda: (cells,), 10)
    assert found == {0: (3 * 10**4 + 1 - 10) << 16}
    assert np.count_nonzero(kept[0]) == 1


def test_nothing_that_occurs_is_fine() -> None:
    ledger = Ledger(50.0, 1e-3, currency=GDP().with_failures())
    assert buy_levels(ledger, ThresholdedGaussian(1.0, 1e-6), [column([-1, -1], [])], "x", LatticeNoise()) == [{}]


def test_cells_are_read_after_the_charge() -> None:
    ledger = Ledger(0.1, 1e-6, currency=GDP().with_failures())
    read: list[str] = []

    def told(*_):
        read.append("cells")
        return np.zeros(1, dtype=np.intp), ["a"]

    with pytest.raises(BudgetExhausted):
        buy_levels(ledger, ThresholdedGaussian(1.0, 1e-9), [told], "levels", LatticeNoise())
    with pytest.raises(BudgetExhausted):
        buy_levels(ledger, ThresholdedGaussian(1e4, 1e-6), [told], "levels", LatticeNoise())
    with pytest.raises(BudgetExhausted):
        buy_bins(ledger, Gaussian(1.0), [lambda _: told()[0]], 3, "types", LatticeNoise())
    assert read == []
    assert ledger.spent == 0


@pytest.mark.parametrize("relation", list(Relation))
def test_counts_have_the_noise_that_was_paid_for(relation: Relation) -> None:
    """2,000 counts: their deviation is off by 10% with a probability below 1e-9, half or 1/sqrt(2) of it always."""
    ledger = Ledger(50.0, 1e-3, currency=GDP().with_failures(), relation=str(relation))
    values = [f"{number:04}" for number in range(2000)]
    codes = np.repeat(np.arange(2000), 1000)
    found = buy_levels(
        ledger, ThresholdedGaussian(5.0, 1e-6), [lambda _: (codes, values)], "levels", LatticeNoise(Randomness(3))
    )
    expected = 5.0 * histogram_sensitivity(1).under(relation)
    assert len(found[0]) == 2000
    assert np.std(list(found[0].values())) == pytest.approx(expected, rel=0.1)
    total = LatticeSum(np.zeros(1, dtype=np.int64), STEP, histogram_sensitivity(1))
    assert deviation_of(total, Gaussian(5.0), relation) == pytest.approx(expected)


def test_a_threshold_belongs_to_counts_of_keys_alone() -> None:
    for cost, threshold in ((Gaussian(1.0), Threshold(1)), (ThresholdedGaussian(1.0, 1e-9), None)):
        with pytest.raises(InvalidParameter, match="threshold"):
            Noised(cost, STEP, histogram_sensitivity(1), threshold=threshold)


def test_bins_are_counted_with_noise_of_their_own() -> None:
    ledger = Ledger(50.0, 1e-3, currency="gdp")
    codes = [np.array([0, 1, 1, -1]), np.array([2, 2, 2, 2])]
    counts = buy_bins(
        ledger, Gaussian(0.5), [lambda _, each=each: each for each in codes], 3, "types", LatticeNoise()
    )
    assert counts.shape == (2, 3)
    assert np.abs(counts - [[1, 2, 0], [0, 0, 4]]).max() < 8


# The whole mechanism, exactly --------------------------------------------------------------------------------------


def law(scale: int, reach: int) -> np.ndarray:
    """Return the probabilities of discrete Gaussian noise from -reach to reach."""
    terms = np.exp(-(np.arange(-reach, reach + 1, dtype=np.float64) ** 2) / (2 * scale**2))
    return terms / terms.sum()


def published_law(count: int, scale: int, least: int, reach: int) -> np.ndarray:
    """Return the law of what is published of a key: nothing first, then each noisy count from the threshold on."""
    noise, values = law(scale, reach), count + np.arange(-reach, reach + 1)
    shown = np.zeros(2 * reach)
    kept = values >= least
    shown[values[kept] - least] = noise[kept]
    return np.concatenate([[noise[~kept].sum()], shown])


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0, 2.0])
@pytest.mark.parametrize("relation", list(Relation))
def test_the_whole_mechanism_keeps_its_promise_exactly(relation: Relation, epsilon: float) -> None:
    """One column moves a count that others hold, the other has private keys; fewer and more rows, both directions."""
    step, failure, multiplier = 0.25, 1e-3, 1.2
    scale = lattice_scale(multiplier * histogram_sensitivity(2).under(relation), step)
    least, reach = Threshold(2).on_lattice(scale, step, failure), 12 * scale
    one = round(1 / step)
    bound = failure + gdp_to_delta(1 / multiplier, epsilon)
    for shared in (1, 5, 30):
        with_row, without = (published_law((shared + each) * one, scale, least, reach) for each in (1, 0))
        private = published_law(one, scale, least, reach)
        passes = 1 - private[0]
        hidden = 1.0 if relation is Relation.ZERO_OUT else 1 - passes  # how often the neighbour's own key stays so
        for first, second, own, other in (
            (with_row, without, 1 - passes, hidden),
            (without, with_row, hidden, 1 - passes),
        ):
            gap = own * first - math.exp(epsilon) * other * second
            delta = (1 - own) + np.maximum(gap, 0.0).sum()
            assert delta <= bound + 1e-12
    half = Threshold(2).on_lattice(scale, step, failure) // 2
    assert 1 - published_law(one, scale, half, reach)[0] > 10 * failure  # half of the threshold would not do
