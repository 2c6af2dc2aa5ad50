"""Gradients in a tree: what the nodes are, what one row can do to them, what is charged, and where FTRL goes."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import stats

from dpdescent import Ledger
from dpdescent.accounting import Composed, Gaussian
from dpdescent.curator import ArraySource, Batch, Curator, LatticeNoise, Units
from dpdescent.curator.batches import draw_leaves
from dpdescent.errors import BudgetExhausted, DPDescentError, InvalidParameter
from dpdescent.exact import FeatureGrid
from dpdescent.noise import Randomness
from dpdescent.problems import LinearProblem, Logistic
from dpdescent.queries import Gradient, TreeGradients
from dpdescent.solvers import FTRLSettings, ftrl
from neighbours import Watched
from rival_tables import Recorder, make_curator, optimum

NOISE, CLIP, LEAVES = Gaussian(2.0), 0.5, 7
GRID = FeatureGrid(1.0, 3)
PROBLEM = LinearProblem(Logistic(), GRID)


class Kept(LatticeNoise):
    """Noise that keeps what was released, or gives the answers of another run."""

    def __init__(self, seed: int, answers: list[np.ndarray] | None = None) -> None:
        super().__init__(Randomness(seed))
        self.given, self.totals, self.answers = answers, [], []

    def release(self, total: Any, cost: Any, relation: Any, *, symmetric: bool = False) -> Any:
        answer = super().release(total, cost, relation, symmetric=symmetric)
        self.totals.append((total, cost))
        self.answers.append(answer if self.given is None else self.given[len(self.answers)])
        return self.answers[-1]


def table(rows: int = 30) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    features = np.hstack([generator.uniform(-1, 1, (rows, 2)), np.ones((rows, 1))])
    return GRID.place(features), generator.choice([-1.0, 1.0], rows)


def curator_of(
    data: tuple[np.ndarray, np.ndarray], noise: LatticeNoise, relation: str = "zero-out", **options: Any
) -> Curator:
    ledger = Ledger(1e6, 1e-6, relation=relation, currency="gdp", **options.pop("ledger", {}))
    return Curator(ArraySource(*data, GRID), PROBLEM, ledger, options.pop("rows", 30), noise=noise, **options)


def walk(totals: list[np.ndarray]) -> Any:
    """Return a rule that keeps the totals it is shown, and follows them."""

    def follow(leaf: int, total: np.ndarray) -> np.ndarray:
        assert leaf == len(totals)
        totals.append(total)
        return np.tanh(-total / 10) + leaf / 10

    return follow


@pytest.mark.parametrize("leaves", [1, 2, 5, 7, 8])
def test_a_total_is_made_of_the_nodes_of_its_binary_digits(leaves: int) -> None:
    """The sums over nodes are those of plain gradients, leaf by leaf, and a total adds up noisy nodes only."""
    data, noise, totals = table(), Kept(3), []
    curator = curator_of(data, noise)
    follow = walk(totals)
    totals.append(curator.answer(TreeGradients(follow, leaves, CLIP, NOISE)))
    leaf_of = draw_leaves(Randomness(3).stream("leaves", 0), 30, leaves)
    sums = []
    for leaf in range(leaves):
        one = Kept(0)
        other = curator_of(tuple(each[leaf_of == leaf] for each in data), one)
        weights = np.tanh(-totals[leaf] / 10) + leaf / 10
        other.answer(Gradient(weights, CLIP, NOISE))
        sums.append(one.totals[0][0].values.ravel())
    ends = {}
    for step, ((node, cost), answer) in enumerate(zip(noise.totals, noise.answers, strict=True), 1):
        length = step & -step
        assert np.array_equal(node.values.ravel(), np.sum(sums[step - length : step], axis=0))
        assert cost == NOISE
        assert node.sensitivity.zero_out <= CLIP * (1 + 1e-9)
        ends[step] = answer
    for step in range(1, leaves + 1):
        expected, end = np.zeros(3), step
        while end:
            expected, end = expected + ends[end], end & (end - 1)
        assert totals[step] == pytest.approx(expected * leaves / 30, rel=1e-12)
    assert not totals[0].any()


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_one_row_moves_no_more_nodes_than_are_charged(relation: str) -> None:
    """A replay on the neighbour's rows: the squared shift of all nodes, in units of their noise, is mu^2 at most.

    A row of the first leaf is in a node of every level, and its gradient is clipped: the bound is attained.
    """
    X, y = table()
    largest = Fraction(0)
    for seed in range(12):
        recorded = Kept(seed)
        curator = curator_of((X, y), recorded, relation)
        curator.answer(TreeGradients(walk([]), LEAVES, CLIP, NOISE))
        (entry,) = curator.ledger.entries
        if relation == "zero-out":
            other = X[:-1], y[:-1]
        else:
            other = np.vstack([X[:-1], GRID.place(np.array([[1.0, -1.0, 1.0]]))]), np.append(y[:-1], -y[-1])
        replayed = Kept(seed, recorded.answers)
        curator_of(other, replayed, relation).answer(TreeGradients(walk([]), LEAVES, CLIP, NOISE))
        shift, touched = Fraction(0), 0
        for (one, cost), (two, _) in zip(recorded.totals, replayed.totals, strict=True):
            assert (one.unit, one.sensitivity) == (two.unit, two.sensitivity)
            moved = one.values.ravel().astype(object) - two.values.ravel().astype(object)
            deviation = Fraction(cost.noise_multiplier) * Fraction(one.sensitivity.under(relation))
            shift += sum(int(each) ** 2 for each in moved) * Fraction(one.unit) ** 2 / deviation**2
            touched += any(moved)
        leaf = draw_leaves(Randomness(seed).stream("leaves", 0), 30, LEAVES)[-1]
        nodes = [(step - (step & -step), step) for step in range(1, LEAVES + 1)]
        assert touched == sum(low <= leaf < high for low, high in nodes)
        assert shift <= Fraction(entry.cost.mu_squared())
        largest = max(largest, shift / Fraction(entry.cost.mu_squared()))
    assert largest > (0.9 if relation == "zero-out" else 0.5)


@pytest.mark.parametrize(("leaves", "levels"), [(1, 1), (2, 2), (3, 2), (4, 3), (7, 3), (8, 4), (1023, 10)])
def test_a_tree_is_charged_once_with_a_mechanism_for_each_level(leaves: int, levels: int) -> None:
    """No leaf is in more nodes, and the first is in as many."""
    curator = curator_of(table(), Kept(0))
    query = TreeGradients(lambda *_: np.zeros(3), leaves, CLIP, NOISE)
    assert query.plan(curator.public()).costs == (NOISE,) * levels
    covered = [0] * leaves
    for step in range(1, leaves + 1):
        for leaf in range(step - (step & -step), step):
            covered[leaf] += 1
    assert max(covered) == covered[0] == levels
    if leaves < 10:
        curator.answer(query)
        (entry,) = curator.ledger.entries
        assert entry.cost == (NOISE if levels == 1 else Composed((NOISE,) * levels))


def test_the_charge_comes_before_rows_and_leaves() -> None:
    query = TreeGradients(lambda *_: np.zeros(3), LEAVES, CLIP, NOISE)
    source, noise = Watched(*table(), GRID), Kept(0)
    source.touches = []
    poor = Ledger(1e-3, 1e-6, currency="gdp")
    source.ledgers = (poor,)
    curator = Curator(source, PROBLEM, poor, 30, noise=noise)
    with pytest.raises(BudgetExhausted):
        curator.answer(query)
    given = {"follow": query.follow, "leaves": 3, "clip": 1.0, "mechanism": NOISE}
    for wrong in ({"leaves": 0}, {"leaves": 2.5}, {"leaves": 2**21}, {"clip": -1.0}, {"clip": math.nan}):
        with pytest.raises(DPDescentError):
            curator.answer(TreeGradients(**given | wrong))
    rich = curator_of(table(), noise)
    with pytest.raises(InvalidParameter, match="all rows"):
        rich.answer(query, Batch(rich.sampling(0.5), (NOISE,) * 3))
    assert [*source.touches, *noise.totals, *poor.entries, *rich.ledger.entries] == []
    assert curator._streams == rich._streams == 0


def test_all_rows_of_a_unit_are_in_one_leaf_and_count_together() -> None:
    """Three rows of one person move the nodes of one leaf, each by at most three clip norms."""
    (X, y), owners = table(), np.repeat(np.arange(10), 3)
    runs = []
    for kept in (30, 27):
        noise = Kept(5, runs[0].answers if runs else None)
        units = Units(owners[:kept], 10, 3)
        curator = curator_of((X[:kept], y[:kept]), noise, units=units, ledger={"unit": "one person"})
        curator.answer(TreeGradients(walk([]), LEAVES, CLIP, NOISE))
        runs.append(noise)
    moved = [
        np.linalg.norm((one.values - two.values).ravel() * one.unit)
        for (one, _), (two, _) in zip(runs[0].totals, runs[1].totals, strict=True)
    ]
    leaf = draw_leaves(Randomness(5).stream("leaves", 0), 10, LEAVES)[9]
    touched = [step - (step & -step) <= leaf < step for step in range(1, LEAVES + 1)]
    assert [each > 0 for each in moved] == touched
    bound = runs[0].totals[0][0].sensitivity.zero_out
    assert bound == pytest.approx(3 * CLIP, rel=1e-6)
    assert max(moved) <= bound


def test_leaves_are_dealt_to_each_row_by_itself() -> None:
    """Uniform, and rows that are there have the leaves they would have if more rows followed. False alarm: 1e-6."""
    leaf_of = draw_leaves(Randomness(1).stream("leaves", 0), 20000, 7)
    counts = np.bincount(leaf_of, minlength=7)
    assert counts.size == 7
    assert stats.chisquare(counts).pvalue > 5e-7
    lagged = np.histogram2d(leaf_of[:-1], leaf_of[1:], bins=7)[0]
    assert stats.chi2_contingency(lagged).pvalue > 5e-7
    assert np.array_equal(draw_leaves(Randomness(1).stream("leaves", 0), 19000, 7), leaf_of[:19000])


def test_totals_have_the_noise_of_their_nodes() -> None:
    """The covariance of two totals is that of the nodes they share: exact law, on rows that add nothing.

    30 runs with 60 independent coordinates: the sum of squares of each combination of totals is chi-square. False
    alarm below 1e-6 for all of them together; 1.2 times the deviation would be rejected with probability 1 - 1e-6.
    """
    grid, drawn = FeatureGrid(1.0, 60), []
    source, problem = ArraySource(np.zeros((30, 60)), np.ones(30), grid), LinearProblem(Logistic(), grid)
    for seed in range(30):
        totals: list[np.ndarray] = []
        ledger = Ledger(1e6, 1e-6, currency="gdp")
        curator = Curator(source, problem, ledger, 30, noise=LatticeNoise(Randomness(seed)))
        end = curator.answer(TreeGradients(walk(totals), LEAVES, CLIP, NOISE))
        drawn.append(np.array([*totals[1:], end]) * 30 / LEAVES / (CLIP * NOISE.noise_multiplier))
    values = np.array(drawn)  # runs, totals, coordinates
    node_of = np.zeros((LEAVES, LEAVES))
    for step in range(1, LEAVES + 1):
        end = step
        while end:
            node_of[step - 1, end - 1], end = 1.0, end & (end - 1)
    whitened = np.einsum("st,rtc->rsc", np.linalg.inv(node_of), values)  # the noise of each node
    low, high = stats.chi2.ppf([1e-8, 1 - 1e-8], 1800)
    for number in range(LEAVES):
        power = float((whitened[:, number] ** 2).sum())
        assert low < power < high
        assert not low < 1.2**2 * power < high
        for other in range(number):
            both = float((whitened[:, number] * whitened[:, other]).sum()) / math.sqrt(1800)
            assert abs(both) < 6.5


@pytest.mark.parametrize("wrong", [{"leaves": 2**21}, {"clip_gradient": 1e150}, {"passes": 10_001}])
def test_settings_that_cannot_be_run_are_refused_before_a_charge(wrong: dict[str, Any]) -> None:
    curator = make_curator(1.0, rows=100)
    with pytest.raises(DPDescentError):
        ftrl(curator, FTRLSettings(**wrong))
    assert curator.ledger.entries == ()


def test_an_account_that_cannot_pay_for_all_passes_is_left_alone() -> None:
    account = Ledger(0.9, 1e-6, currency="gdp")
    curator = make_curator(1.0, rows=100, account=account)
    with pytest.raises(BudgetExhausted):
        ftrl(curator, FTRLSettings(passes=3))
    assert curator.ledger.entries == account.entries == ()


def test_a_step_that_is_far_too_long_ends_in_finite_weights_and_not_in_an_error_after_the_charge() -> None:
    weights = ftrl(make_curator(1.0, rows=100, alpha=0.1), FTRLSettings(step_size=1e150)).weights
    assert np.isfinite(weights).all()


def test_small_steps_without_noise_lead_to_the_optimum_and_stay_in_a_ball() -> None:
    def solved(**options: Any) -> tuple[Curator, np.ndarray]:
        curator = make_curator(1.0, rows=2000, intercept=False, alpha=0.1)
        curator._noise = Recorder()
        return curator, ftrl(curator, FTRLSettings(clip_gradient=10.0, **options)).weights

    curator, weights = solved(leaves=127, passes=4, step_size=2.0)
    best, value = optimum(curator)
    assert value(weights) - best < 0.01 * (value(np.zeros(4)) - best)
    curator, weights = solved(radius=0.5, leaves=63)
    assert np.linalg.norm(weights) <= 0.5
    assert value(weights) < value(np.zeros(4))


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_every_pass_is_charged_and_the_budget_is_used(relation: str) -> None:
    curator = make_curator(1.0, rows=400, relation=relation)
    shares: list[float] = []
    result = ftrl(curator, FTRLSettings(passes=2), shares.append)
    length, *trees = [entry.cost for entry in curator.ledger.entries]
    assert isinstance(length, Gaussian)
    assert len(trees) == 2
    assert all(isinstance(tree, Composed) and len(tree.parts) == 5 for tree in trees)
    assert 0.99 * curator.ledger.budget < curator.ledger.spent <= curator.ledger.budget
    assert result.iterations == 62 == len(shares)
    assert shares[-1] == 1.0
    assert shares == sorted(shares)
