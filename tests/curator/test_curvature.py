"""Hessians and losses as queries: no row moves them by more than is declared, and noise has the promised law.

Statistical tests run on fixed seeds, so they never alarm at random; on fresh bits each would raise a false alarm
with probability below 1e-6.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from asking import RowBatches, hessian, mean_loss
from dpdescent.accounting import RDP, AboveThreshold, Composed, FixedSizeSampled, Gaussian, PoissonSampled
from dpdescent.curator import Curator
from dpdescent.errors import BudgetExhausted, DPDescentError, InvalidParameter, UnsupportedCost
from dpdescent.exact import FeatureGrid, LatticeSum, machine
from dpdescent.ledger import Ledger
from dpdescent.problems import Hinge, LinearProblem, Logistic, Loss, Multinomial, NonConvex, Sigmoid
from dpdescent.relations import Norm
from neighbours import ALARM, RICH, STORAGE, assert_deviation, curator, share_of_sensitivity, sums, touches

D, N = 5, 10
GRIDS = {"cube": FeatureGrid(1.0, D), "ball": FeatureGrid(1.0, D, 0.8), "large": FeatureGrid(3.0, D)}
GRID = GRIDS["cube"]
LOSSES = pytest.mark.parametrize("loss", [Logistic(), Sigmoid()], ids=str)
RELATIONS = pytest.mark.parametrize("relation", ["zero-out", "replace-one"])


def table(generator: np.random.Generator, rows: int = N, grid: FeatureGrid = GRID) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of all sizes, some of them zero and some at the bounds, and labels."""
    features = generator.uniform(-1, 1, (rows, D)) * 10.0 ** generator.uniform(-3, 0, (rows, 1))
    extreme = generator.random((rows, D)) < 0.3
    features[extreme] = np.sign(features[extreme])
    features[generator.random((rows, D)) < 0.2] = 0.0
    return grid.place(grid.entry_bound * features), generator.choice([-1.0, 1.0], rows)


def ask(features: Any, labels: Any, loss: Loss, weights: np.ndarray, grid: FeatureGrid = GRID, **options: Any) -> Any:
    asked = curator(features, labels, grid, loss, intercept=False, rows=N, **options)
    return asked, hessian(RowBatches(asked, 1.0).draw(Gaussian(1.0)), weights)


def recorded(*arguments: Any, **options: Any) -> LatticeSum:
    asked, _ = ask(*arguments, **options)
    (total,) = sums(asked)
    problem = asked.problem
    bound = problem.loss.smoothness * problem.longest_row**2
    assert total.sensitivity.norm is Norm.L2
    assert total.sensitivity.zero_out == bound
    assert total.sensitivity.replace_one == pytest.approx(bound * (math.sqrt(2) if problem.loss.convex else 2))
    assert (total.values == total.values.T).all()
    return total


@LOSSES
@pytest.mark.parametrize("grid", GRIDS)
def test_no_row_moves_the_hessian_by_more_than_is_declared(loss: Loss, grid: str) -> None:
    generator = np.random.default_rng(len(grid))
    for _ in range(20):
        features, labels = table(generator, grid=GRIDS[grid])
        others, other_labels = table(generator, grid=GRIDS[grid])
        weights = generator.normal(0, 10.0 ** generator.uniform(-2, 1), D)
        whole = recorded(features, labels, loss, weights, GRIDS[grid])
        for row in range(N):
            rows = np.arange(N) != row
            removed = recorded(features[rows], labels[rows], loss, weights, GRIDS[grid])
            assert share_of_sensitivity(whole, removed, "zero-out") <= 1
            replaced, new_labels = features.copy(), labels.copy()
            replaced[row], new_labels[row] = others[row], other_labels[row]
            changed = recorded(replaced, new_labels, loss, weights, GRIDS[grid])
            assert share_of_sensitivity(whole, changed, "replace-one") <= 1


@LOSSES
def test_one_row_can_move_the_hessian_by_almost_what_is_declared(loss: Loss) -> None:
    grid = FeatureGrid(1.0, D, 1.0)
    first, second = grid.place(np.eye(D)[:1]), grid.place(np.eye(D)[1:2])
    bend = 0.0 if loss.convex else math.log(2 + math.sqrt(3))  # where the curvature is largest
    weights = np.array([bend, bend, 0.0, 0.0, 0.0])
    one = recorded(first, [1.0], loss, weights, grid)
    empty = recorded(np.zeros((0, D)), [], loss, weights, grid)
    # Curvatures of one sign add up in orthogonal directions, those of two signs in the same.
    other = recorded(*((second, [1.0]) if loss.convex else (first, [-1.0])), loss, weights, grid)
    assert 0.95 < share_of_sensitivity(one, empty, "zero-out") <= 1
    assert 0.95 < share_of_sensitivity(one, other, "replace-one") <= 1


@LOSSES
def test_with_little_noise_the_hessian_is_the_plain_one(loss: Loss) -> None:
    generator = np.random.default_rng(1)
    features, labels = table(generator, 500)
    asked = curator(features, labels, GRID, loss)
    asked.problem = LinearProblem(loss, GRID, NonConvex(0.3), True)
    weights = generator.normal(size=D)
    found = hessian(RowBatches(asked, 1.0).draw(Gaussian(1e-6)), weights)
    curvatures = loss.curvatures(features @ weights, labels)
    expected = (features.T * curvatures) @ features / 500
    expected += np.diag([*NonConvex(0.3).curvature(weights[:-1]), 0.0])
    np.testing.assert_allclose(found, expected, atol=2e-4)


@LOSSES
def test_hessians_have_the_same_bits_for_any_layout(loss: Loss, monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(2)
    features, labels = table(generator, 150)
    weights, order = generator.normal(size=D), generator.permutation(150)
    expected = recorded(features, labels, loss, weights).values
    for exact in (True, False):
        monkeypatch.setattr(machine, "blas_is_exact", lambda exact=exact: exact)
        for store in STORAGE.values():
            assert (recorded(store(features), labels, loss, weights).values == expected).all()
            shuffled = recorded(store(features[order]), labels[order], loss, weights, block_rows=23)
            assert (shuffled.values == expected).all()
    monkeypatch.setattr("dpdescent.exact.loss_sums.PART_BYTES", 8 * D * 7)
    assert (recorded(features, labels, loss, weights).values == expected).all()


@LOSSES
def test_great_noise_is_drawn_on_a_coarser_lattice_and_no_row_moves_that_sum_by_more_either(loss: Loss) -> None:
    generator = np.random.default_rng(9)
    weights = generator.normal(size=D)
    (features, labels), (others, _) = table(generator), table(generator)
    features[0] = 1.0
    replaced = features.copy()
    replaced[0] = others[0]
    for multiplier in (2.0**14, 2.0**18, 2.0**22):
        totals = []
        for rows in (features, replaced):
            asked = curator(rows, labels, GRID, loss, intercept=False, relation="replace-one")
            noisy = hessian(RowBatches(asked, 1.0).draw(Gaussian(multiplier)), weights)
            totals.append(sums(asked)[0])
            assert 0.1 < np.abs(noisy).max() * N / (multiplier * totals[-1].sensitivity.replace_one) < 6
        assert share_of_sensitivity(*totals, "replace-one") <= 1
    assert totals[0].unit > 2**5 * recorded(features, labels, loss, weights).unit


@LOSSES
@RELATIONS
def test_noise_is_isotropic_on_symmetric_matrices_and_has_the_scale_that_was_paid_for(
    relation: str, loss: Loss
) -> None:
    features, labels = table(np.random.default_rng(3))
    asked = curator(features, labels, GRID, loss, relation=relation, intercept=False)
    batches = RowBatches(asked, 1.0)
    answers = np.array([hessian(batches.draw(Gaussian(5.0)), np.ones(D)) for _ in range(400)])
    noise = answers * N - sums(asked)[0].to_float()
    assert (noise == noise.transpose(0, 2, 1)).all()
    change = {"zero-out": 1.0, "replace-one": math.sqrt(2) if loss.convex else 2.0}[relation]
    sigma = 5 * change * loss.smoothness * D
    diagonal, above = np.diag_indices(D), np.triu_indices(D, 1)
    assert_deviation(noise[:, *diagonal], sigma)
    assert_deviation(noise[:, *above], sigma / math.sqrt(2))


@pytest.mark.parametrize(("relation", "kind"), [("zero-out", PoissonSampled), ("replace-one", FixedSizeSampled)])
def test_gradient_and_hessian_of_one_batch_are_amplified_together_and_paid_at_once(relation: str, kind: Any) -> None:
    features, labels = table(np.random.default_rng(4), 200)
    asked = curator(features, labels, GRID, Logistic(), relation=relation, currency=RDP(8))
    batches = RowBatches(asked, 0.25)
    batch = batches.draw(Gaussian(2.0), Gaussian(3.0), label="gradient and Hessian")
    batch.gradient(np.zeros(D), 1.0)
    (entry,) = asked.ledger.entries
    assert entry.label == "gradient and Hessian"
    assert entry.cost == kind(0.25, (Gaussian(2.0), Gaussian(3.0)))
    hessian(batch, np.zeros(D))
    assert len(asked.ledger.entries) == 1
    with pytest.raises(BudgetExhausted):
        hessian(batch, np.zeros(D))


@RELATIONS
def test_a_hessian_of_a_batch_sums_the_rows_of_the_batch_only(relation: str) -> None:
    grid = FeatureGrid(1.0, 1)
    asked = curator(grid.place(np.ones((400, 1))), np.ones(400), grid, relation=relation, currency=RDP(8))
    batch = RowBatches(asked, 0.25).draw(Gaussian(1e-4), Gaussian(1e-4))
    gradient = batch.gradient(np.zeros(1), 1.0)
    found = hessian(batch, np.zeros(1))
    chosen = asked._drawn[batch.batch][0].sum()
    assert gradient[0] * 100 == pytest.approx(-0.5 * chosen, abs=0.1)
    assert found[0, 0] * 100 == pytest.approx(0.25 * chosen, abs=0.1)
    assert (chosen == 100) == (relation == "replace-one")


def test_hessians_are_charged_to_both_ledgers_before_any_row_is_touched() -> None:
    features, labels = table(np.random.default_rng(5))
    account = Ledger(RICH, 1e-6, currency="gdp")
    asked = curator(features, labels, GRID, account=account)
    for count in (1, 2):
        hessian(RowBatches(asked, 1.0).draw(Gaussian(2.0)), np.ones(D))
        assert set(touches(asked)) == {(count, count)}
        touches(asked).clear()
    assert asked.ledger.spent == account.spent == 0.5


REFUSALS: dict[str, tuple[Loss, float, Any]] = {
    "kink": (Hinge(), 1.0, np.ones(D)),
    "several margins": (Multinomial(3), 1.0, np.ones((D, 3))),
    "too much noise": (Logistic(), 2.0**40, np.ones(D)),
    "shape": (Logistic(), 1.0, np.ones(D + 1)),
    "not finite": (Logistic(), 1.0, np.full(D, math.nan)),
    "too dear": (Logistic(), 1e-3, np.ones(D)),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_a_refusal_charges_nothing_and_touches_nothing(name: str) -> None:
    loss, multiplier, weights = REFUSALS[name]
    features, labels = table(np.random.default_rng(0))
    asked = curator(features, labels, GRID, loss, epsilon=1.0)
    with pytest.raises(DPDescentError):
        hessian(RowBatches(asked, 1.0).draw(Gaussian(multiplier)), weights)
    assert asked.ledger.entries == ()
    assert touches(asked) == sums(asked) == []


def test_a_loss_with_a_kink_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedCost, match="huberised"):
        LinearProblem(Hinge(), GRID).hessian_sum()
    with pytest.raises(InvalidParameter, match="8192"):
        LinearProblem(Logistic(), FeatureGrid(1.0, 8193)).hessian_sum()
    with pytest.raises(InvalidParameter, match="one margin"):
        LinearProblem(Multinomial(3), GRID).hessian_sum()


# The objective -------------------------------------------------------------------------------------------------


def asked_loss(features: Any, labels: Any, loss: Loss, weights: np.ndarray) -> tuple[Curator, LatticeSum]:
    asked = curator(features, labels, GRID, loss, rows=N)
    mean_loss(asked, weights, Gaussian(1.0))
    (total,) = sums(asked)
    return asked, total


@LOSSES
def test_no_row_moves_the_loss_by_more_than_its_bound_and_one_attains_it(loss: Loss) -> None:
    generator, largest = np.random.default_rng(6), 0.0
    for _ in range(200):
        (features, labels), (others, new) = table(generator), table(generator)
        weights = generator.normal(0, 10.0 ** generator.uniform(-2, 1), D)
        if generator.random() < 0.2:
            others[3], new[3] = np.where(weights > 0, 1.0, -1.0), -1.0
            features[3], labels[3] = others[3], 1.0
            weights = others[3] * np.abs(weights).mean() * 100
        _, whole = asked_loss(features, labels, loss, weights)
        _, removed = asked_loss(np.delete(features, 3, 0), np.delete(labels, 3), loss, weights)
        features[3], labels[3] = others[3], new[3]
        _, replaced = asked_loss(features, labels, loss, weights)
        assert share_of_sensitivity(whole, removed, "zero-out") <= 1
        share = share_of_sensitivity(whole, replaced, "replace-one")
        largest = max(largest, float(share))
        assert share <= 1
    assert largest > 0.99


@LOSSES
def test_the_loss_is_the_plain_one_plus_signed_noise_of_the_stated_deviation(loss: Loss) -> None:
    features, labels = table(np.random.default_rng(7), 100)
    asked = curator(features, labels, GRID, loss)
    asked.problem = LinearProblem(loss, GRID, NonConvex(0.3), True)
    weights = np.linspace(-1, 1, D)
    answers, deviations = np.array([mean_loss(asked, weights, Gaussian(3.0)) for _ in range(2000)]).T
    exact = loss.values(features @ weights, labels).mean() + asked.problem.penalty_value(weights)
    np.testing.assert_allclose(deviations, 3 * asked.problem.largest_loss(weights) / 100, rtol=1e-6)
    assert_deviation(answers - exact, deviations[0])
    # An absolute value would never fall below the true objective.
    below = int((answers < exact).sum())
    assert stats.binomtest(below, 2000, 0.5).pvalue > ALARM
    assert all(entry.label == "loss" for entry in asked.ledger.entries)


def test_losses_are_charged_to_both_ledgers_before_any_row_is_touched() -> None:
    features, labels = table(np.random.default_rng(5))
    account = Ledger(RICH, 1e-6, currency="gdp")
    asked = curator(features, labels, GRID, account=account)
    mean_loss(asked, np.ones(D), Gaussian(2.0))
    assert set(touches(asked)) == {(1, 1)}
    assert asked.ledger.spent == account.spent == 0.25


@pytest.mark.parametrize(
    ("multiplier", "weights"),
    [(2.0**40, np.ones(D)), (1e-3, np.ones(D)), (1.0, np.ones(D + 1)), (1.0, np.full(D, 2.0**300))],
)
def test_a_loss_that_is_refused_charges_nothing_and_touches_nothing(multiplier: float, weights: np.ndarray) -> None:
    features, labels = table(np.random.default_rng(0))
    asked = curator(features, labels, GRID, epsilon=1.0)
    with pytest.raises(DPDescentError):
        mean_loss(asked, weights, Gaussian(multiplier))
    assert asked.ledger.entries == ()
    assert touches(asked) == sums(asked) == []


@LOSSES
@RELATIONS
def test_margins_that_a_search_carried_on_leave_the_sensitivity_of_the_hessian_as_it_is(
    loss: Loss, relation: str
) -> None:
    generator = np.random.default_rng(11)
    search = AboveThreshold(1, 1.0, 1.0)
    for _ in range(40):
        (features, labels), (others, new) = table(generator), table(generator)
        weights, direction = generator.normal(size=(2, D))
        changed, changed_labels = features.copy(), labels.copy()
        changed[0], changed_labels[0] = others[0], new[0]
        removed = (features[1:], labels[1:])
        totals = []
        for rows in ((features, labels), removed if relation == "zero-out" else (changed, changed_labels)):
            asked = curator(*rows, GRID, loss, relation=relation, intercept=False, rows=N)
            batches = RowBatches(asked, 1.0)
            # Nothing is demanded, so that the step is taken whatever the rows are.
            assert batches.draw(search).first_step(weights, direction, np.ones(1), np.full(1, -1e9)) == 0
            hessian(batches.draw(Gaussian(1.0)), weights - direction)
            totals.append(sums(asked)[0])
        assert share_of_sensitivity(*totals, relation) <= 1


def test_at_zero_the_largest_loss_is_that_of_every_row() -> None:
    for loss, expected in ((Logistic(), math.log(2)), (Sigmoid(), 0.5)):
        assert LinearProblem(loss, GRID).largest_loss(np.zeros(D)) == pytest.approx(expected)


def test_composition_of_both_is_what_a_run_pays() -> None:
    features, labels = table(np.random.default_rng(8))
    asked = curator(features, labels, GRID)
    batch = RowBatches(asked, 1.0).draw(Gaussian(2.0), Gaussian(4.0), label="both")
    batch.gradient(np.zeros(D), 1.0)
    hessian(batch, np.zeros(D))
    assert asked.ledger.entries[0].cost == Composed((Gaussian(2.0), Gaussian(4.0)))
    assert asked.ledger.spent == pytest.approx(0.25 + 0.0625)
