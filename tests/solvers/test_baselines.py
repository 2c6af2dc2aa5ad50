"""The majority vote is paid for; the optimum without privacy says that it is none."""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from asking import label_counts, label_sum, mean_row_norm
from dpdescent import DPLinearRegression, DPLogisticRegression, InvalidParameter, Ledger, load_dataset
from dpdescent.curator import Curator
from dpdescent.problems import Hinge, Huber, HuberisedHinge, LabelKind, Logistic, Loss, Multinomial, Squared
from dpdescent.relations import Relation
from dpdescent.solvers import METHODS, MajoritySettings, NonPrivateSettings, majority, nonprivate
from rival_tables import make_curator, optimum, recorded, replaced


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Hinge(), Squared(), Multinomial(4)], ids=str)
def test_majority_spends_its_budget_on_one_release_and_fits_the_constant(loss: Loss, relation: str) -> None:
    curator = make_curator(50.0, loss, relation=relation, shift=1.0)
    result = majority(curator, MajoritySettings())
    ledger = curator.ledger
    assert len(ledger.entries) == 1
    assert 0.999 * ledger.budget < ledger.spent <= ledger.budget
    assert not result.weights[:-1].any()
    labels = curator._source._labels
    if isinstance(loss, Multinomial):
        shares = np.bincount(labels.astype(int), minlength=4) / labels.size
        assert np.exp(result.weights[-1]) / np.exp(result.weights[-1]).sum() == pytest.approx(shares, abs=2e-3)
    elif isinstance(loss, Squared):
        assert result.weights[-1] == pytest.approx(labels.mean(), abs=2e-3)
    elif isinstance(loss, Logistic):
        assert 1 / (1 + math.exp(-result.weights[-1])) == pytest.approx(np.mean(labels > 0), abs=2e-3)
    else:
        assert result.weights[-1] == np.sign(labels.mean())


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize(("loss", "expected"), [(Logistic(), (0.5, 1)), (Multinomial(3), (1, math.sqrt(2)))], ids=str)
def test_counts_have_the_deviation_of_their_sensitivity(
    loss: Loss, expected: tuple[float, float], relation: str
) -> None:
    """600 releases; a wrong sensitivity (a factor sqrt 2) lies 14 standard errors away, the test allows 5."""
    sensitivity = expected[relation == "replace-one"]
    draws = []
    for seed in range(600):
        curator = make_curator(1.0, loss, rows=50, relation=relation, noise_seed=seed, epsilon_scale=1.0)
        draws.append(label_counts(curator, curator.budget)[1])
    multiplier = 1 / math.sqrt(curator.budget)
    assert np.std(draws) == pytest.approx(sensitivity * multiplier, rel=5 / math.sqrt(2 * 600))


def test_label_sum_doubles_its_noise_when_a_row_is_replaced() -> None:
    spread = {}
    for relation in ("zero-out", "replace-one"):
        draws = [
            label_sum(c, c.budget)
            for c in (
                make_curator(1.0, Squared(), rows=50, relation=relation, noise_seed=seed) for seed in range(500)
            )
        ]
        spread[relation] = np.std(draws) * math.sqrt(c_budget(relation))
    assert spread["zero-out"] == pytest.approx(1.0, rel=0.16)
    assert spread["replace-one"] == pytest.approx(2.0, rel=0.16)


def c_budget(relation: str) -> float:
    return make_curator(1.0, Squared(), rows=50, relation=relation).budget


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize("loss", [Logistic(), Multinomial(3), Squared(), Huber(1.0, 8.0)], ids=str)
def test_one_row_moves_a_release_by_its_sensitivity_and_no_more(loss: Loss, relation: str) -> None:
    """The sums of 300 pairs of neighbours, before noise: never farther apart than paid for, and sometimes as far."""

    def ask(curator: Curator) -> None:
        query = label_sum if loss.labels.kind is LabelKind.NUMBERS else label_counts
        query(curator, curator.budget)

    generator, moved = np.random.default_rng(0), []
    for trial in range(300):
        curator = make_curator(1.0, loss, rows=12, seed=trial, relation=relation)
        other = replaced(curator, int(generator.integers(12)), relation, generator)
        sums = [recorded(c, ask) for c in (curator, other)]
        moved.append(np.linalg.norm(sums[0].to_float() - sums[1].to_float()))
        assert moved[-1] <= sums[0].sensitivity.under(Relation(relation))
    assert max(moved) > 0.6 * sums[0].sensitivity.under(Relation(relation))


def test_majority_needs_an_intercept_and_says_so_before_it_pays() -> None:
    curator = make_curator(1.0, intercept=False)
    with pytest.raises(InvalidParameter, match="fit_intercept"):
        majority(curator, MajoritySettings())
    assert not curator.ledger.entries


@pytest.mark.parametrize("loss", [Logistic(), HuberisedHinge(), Squared(), Multinomial(3)], ids=str)
def test_nonprivate_finds_the_optimum_and_charges_nothing(loss: Loss) -> None:
    curator = make_curator(1.0, loss, alpha=0.01)
    result = nonprivate(curator, NonPrivateSettings())
    best, value = optimum(curator)
    assert value(result.weights) <= best + 1e-7
    assert not curator.ledger.entries


def test_the_statement_of_nonprivate_cannot_be_mistaken_for_a_guarantee() -> None:
    data = load_dataset("synthetic", n=500)
    model = DPLogisticRegression(1.0, 1e-6, bounds=(0, 1), method="nonprivate", classes=(0, 1)).fit(data.X, data.y)
    assert model.privacy_["private"] is False
    assert model.privacy_["epsilon"] == model.privacy_["spent_epsilon"] == math.inf
    assert "not private" in model.privacy_["remarks"][0]
    assert json.loads(json.dumps(model.privacy_))["epsilon"] == math.inf


def test_nonprivate_is_refused_where_a_ledger_keeps_accounts(tmp_path: Path) -> None:
    data = load_dataset("synthetic", n=200)
    account = Ledger(5.0, 1e-5, currency="zcdp")
    with pytest.raises(InvalidParameter, match="leave ledger out"):
        DPLogisticRegression(1.0, 1e-6, bounds=(0, 1), method="nonprivate", classes=(0, 1), ledger=account).fit(
            data.X, data.y
        )
    for curator in (make_curator(1.0, account=account, currency="zcdp"), make_curator(1.0, path=tmp_path / "ledger")):
        with pytest.raises(InvalidParameter, match="promise of a ledger"):
            nonprivate(curator, NonPrivateSettings())
    used = make_curator(1.0)
    mean_row_norm(used, 0.1 * used.budget)
    with pytest.raises(InvalidParameter, match="promise of a ledger"):
        nonprivate(used, NonPrivateSettings())
    assert not account.entries


def test_baselines_work_through_the_estimators() -> None:
    data = load_dataset("synthetic", n=2000)
    rare = np.where(np.arange(2000) % 5 == 0, data.y, 0)
    vote = DPLogisticRegression(1.0, 1e-6, bounds=(0, 1), method="majority", classes=(0, 1), random_state=0).fit(
        data.X, rare
    )
    assert (vote.predict(data.X) == 0).all()
    assert vote.privacy_["spent_epsilon"] <= 1.0
    line = DPLinearRegression(1.0, 1e-6, bounds=(0, 1), method="nonprivate", target_bounds=(0, 1)).fit(
        data.X, data.X[:, 0]
    )
    assert line.score(data.X, data.X[:, 0]) > 0.999
    assert not METHODS["nonprivate"].private


@pytest.mark.parametrize("options", [{"tolerance": 0.0}, {"iterations": 0}, {"unknown": 1}])
def test_bad_settings_are_refused_by_name(options: dict[str, float]) -> None:
    data = load_dataset("synthetic", n=50)
    model = DPLogisticRegression(
        1.0, 1e-6, bounds=(0, 1), method="nonprivate", classes=(0, 1), solver_options=options
    )
    with pytest.raises(InvalidParameter):
        model.fit(data.X, data.y)
