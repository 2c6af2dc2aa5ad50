"""PrivGene: what one row can change in its scores, what it pays, and that it learns."""

from __future__ import annotations

import numpy as np
import pytest

from asking import best_candidates
from dpdescent import DPLogisticRegression, InvalidParameter, load_dataset
from dpdescent.problems import Hinge, HuberisedHinge, Logistic, Loss, Multinomial, Squared
from dpdescent.relations import Relation
from dpdescent.solvers import PrivGeneSettings, privgene
from rival_tables import make_curator, optimum, recorded, replaced


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), Squared(), Multinomial(3)], ids=str)
def test_one_row_changes_the_range_of_the_scores_by_what_is_paid_for(loss: Loss, relation: str) -> None:
    """150 pairs of neighbours: never beyond the range, and more than half of it for some."""
    generator, moved = np.random.default_rng(0), []
    for trial in range(150):
        curator = make_curator(1.0, loss, rows=10, seed=trial, relation=relation)
        other = replaced(curator, int(generator.integers(10)), relation, generator)
        points = generator.normal(0, 3, (8, *curator.problem.shape))
        sums = [
            recorded(c, lambda c, p=points: best_candidates(c, p, 0 * p[0], 0.5, 1, c.budget))
            for c in (curator, other)
        ]
        change = sums[0].to_float() - sums[1].to_float()
        moved.append(float(change.max() - change.min()))
        assert moved[-1] <= sums[0].sensitivity.under(Relation(relation))
    assert sums[0].sensitivity.under(Relation(relation)) == (1.0 if relation == "zero-out" else 2.0)
    assert max(moved) > 0.5 * sums[0].sensitivity.under(Relation(relation))


def test_scores_are_the_clipped_changes_of_the_losses_and_the_penalty() -> None:
    curator = make_curator(1.0, rows=50, alpha=0.3)
    points = np.random.default_rng(0).normal(0, 1, (4, 5))
    sums = recorded(curator, lambda c: best_candidates(c, points, points[0], 0.8, 1, c.budget))
    X, y = curator._source._features, curator._source._labels
    losses = np.array([Logistic().values(X @ w, y) for w in points])
    expected = np.clip(losses - losses[0], -0.8, 0.8).sum(axis=1) + 50 * np.array(
        [0.15 * (w[:-1] ** 2).sum() for w in points]
    )
    assert sums.to_float() == pytest.approx(expected, abs=1e-3)


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Hinge(), Squared(), Multinomial(3)], ids=str)
def test_large_epsilon_comes_near_the_optimum(loss: Loss) -> None:
    curator = make_curator(1e3, loss, alpha=0.01)
    best, value = optimum(curator)
    at_zero = value(np.zeros(curator.problem.shape))
    assert value(privgene(curator, PrivGeneSettings()).weights) <= best + 0.1 * (at_zero - best)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("epsilon", [0.05, 2.0])
def test_the_budget_is_spent_and_never_overspent(relation: str, epsilon: float) -> None:
    curator = make_curator(epsilon, rows=200, relation=relation)
    result = privgene(curator, PrivGeneSettings(candidates=20))
    ledger = curator.ledger
    assert len(ledger.entries) == result.iterations + 2
    chosen = [entry.cost for entry in ledger.entries if entry.label == "candidate"]
    assert [len(getattr(cost, "parts", [cost])) for cost in chosen] == [2] * result.iterations + [1]
    assert 0.99 * ledger.budget < ledger.spent <= ledger.budget
    assert 0.95 * epsilon < ledger.spent_epsilon() <= epsilon


def test_candidates_of_the_wrong_shape_are_refused_before_anything_is_charged() -> None:
    curator = make_curator(1.0, rows=20)
    with pytest.raises(InvalidParameter, match="candidates"):
        best_candidates(curator, np.zeros((3, 4)), np.zeros(5), 1.0, 1, curator.budget)
    with pytest.raises(InvalidParameter):
        best_candidates(curator, np.full((3, 5), np.nan), np.zeros(5), 1.0, 1, curator.budget)
    assert not curator.ledger.entries


def test_runs_repeat_with_their_seed() -> None:
    data = load_dataset("synthetic", n=800)
    first, again, other = (
        DPLogisticRegression(
            1.0,
            1e-6,
            bounds=(0, 1),
            method="privgene",
            classes=(0, 1),
            random_state=seed,
            solver_options={"generations": 5},
        )
        .fit(data.X, data.y)
        .coef_
        for seed in (1, 1, 2)
    )
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize(
    "options", [{"candidates": 1}, {"generations": 0}, {"mutation": 0.0}, {"shrink": 1.5}, {"share": 0.0}]
)
def test_bad_settings_are_refused_by_name(options: dict[str, float]) -> None:
    with pytest.raises(InvalidParameter):
        PrivGeneSettings(**options)  # type: ignore[arg-type]
