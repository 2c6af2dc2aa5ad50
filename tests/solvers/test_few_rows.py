"""Learning from few effective rows: a direction, then its length."""

from __future__ import annotations

import math

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics import log_loss, roc_auc_score
from test_agd import make_curator

from dpdescent import DPLinearSVC, DPLogisticRegression
from dpdescent.solvers import AutoSettings, auto
from dpdescent.solvers.few_rows import Estimate, _signal, learns_from_few_rows
from dpdescent.solvers.rules import effective_rows

DELTA = 1e-6


def accuracy(load, epsilon: float, method: str) -> float:  # type: ignore[no-untyped-def]
    X, y = load(return_X_y=True)
    bounds = (X.min(0), X.max(0))  # the ranges that are printed in the documentation of these tables
    scores = []
    for seed in range(12):
        order = np.random.default_rng(seed).permutation(y.size)
        train, test = order[: y.size * 4 // 5], order[y.size * 4 // 5 :]
        options = {"bounds": bounds, "classes": np.unique(y), "random_state": seed, "method": method}
        fitted = DPLogisticRegression(epsilon, 1e-5, **options).fit(X[train], y[train])
        scores.append(fitted.score(X[test], y[test]))
    return float(np.mean(scores))


@pytest.mark.parametrize(
    ("load", "least"),
    [(load_iris, 0.80), (load_wine, 0.90), (load_breast_cancer, 0.90)],
    ids=["iris", "wine", "cancer"],
)
def test_the_first_tables_that_people_try_are_learnt_at_epsilon_1(load, least: float) -> None:  # type: ignore[no-untyped-def]
    """Means of 12 splits; frequencies of the classes alone give at most .40, .40 and .63.

    Counted from the lower ends of their ranges and not from the middles, iris and wine have .78 and .85.
    """
    assert accuracy(load, 1.0, "auto") > least


def strong_table(rows: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.uniform(0, 1, (rows, 20))
    margins = 12 * (X[:, 0] - 0.5) + 8 * (X[:, 1] - 0.5) + 1
    return X, (generator.random(rows) < 1 / (1 + np.exp(-margins))).astype(int)


def test_rows_are_ranked_and_probabilities_are_no_worse_than_frequencies() -> None:
    """Between 30 and 150 effective rows, 20 columns of which 2 tell the classes apart; means of 10 seeds."""
    X_test, y_test = strong_table(4000, 99)
    entropy = log_loss(y_test, np.full(y_test.size, y_test.mean()))
    for rows, auc, loss in ((1500, 0.62, 1.06), (5000, 0.85, 0.85)):
        areas, losses = [], []
        for seed in range(10):
            X, y = strong_table(rows, seed)
            fitted = DPLogisticRegression(0.1, DELTA, bounds=(0, 1), classes=[0, 1], random_state=seed).fit(X, y)
            assert "effective rows" in fitted.privacy_["remarks"][0]
            probabilities = fitted.predict_proba(X_test)[:, 1]
            areas.append(roc_auc_score(y_test, probabilities))
            losses.append(log_loss(y_test, probabilities) / entropy)
        assert np.mean(areas) > auc
        assert np.mean(losses) < loss


def test_the_shares_of_the_budget_add_up_to_all_of_it() -> None:
    curator = make_curator(0.3, rows=1000, columns=5)
    rows = effective_rows(curator)
    assert 10 < rows < 300
    auto(curator, AutoSettings())
    spent: dict[str, float] = {}
    for entry in curator.ledger.entries:
        spent[entry.label] = spent.get(entry.label, 0.0) + entry.price / curator.budget
    assert spent["label counts"] == pytest.approx(min(0.2, 3 / rows), rel=1e-6)
    assert spent["column moments"] == pytest.approx(0.08, rel=1e-6)
    assert sum(spent.values()) == pytest.approx(1.0, rel=1e-9)
    calibration = sum(entry.price for entry in curator.ledger.entries[-6:]) / curator.budget
    assert calibration == pytest.approx(min(0.2, 20 / rows), rel=1e-6)


@pytest.mark.parametrize("shares", [{"share_columns": 0.7}, {"share_norm": 0.2, "share_columns": 0.3}])
def test_shares_that_are_given_leave_room_for_all_stages(shares: dict[str, float]) -> None:
    curator = make_curator(0.3, rows=1000, columns=5)
    result = auto(curator, AutoSettings(**shares))
    assert np.isfinite(result.weights).all()
    assert curator.ledger.spent == pytest.approx(curator.budget, rel=1e-9)
    assert curator.ledger.entries[0].label == "label counts"


def test_other_models_and_settings_keep_to_their_own_way() -> None:
    assert learns_from_few_rows(make_curator(0.3).problem)
    curator = make_curator(0.3, rows=1000, columns=5)
    auto(curator, AutoSettings(whitening=True))
    assert "second moments" in {entry.label for entry in curator.ledger.entries}
    X, y = strong_table(3000, 0)
    assert DPLinearSVC(0.1, DELTA, bounds=(0, 1), classes=[0, 1], random_state=0).fit(X, y).score(X, y) > 0.6


def test_an_estimate_weighs_what_it_knows_by_its_variance() -> None:
    """A slope h (v - v*) with noise s is a measurement v - slope/h of v* with variance (s/h)^2."""
    before = Estimate(2.0, 0.5)
    after = before.after(slope=3.0, noise=0.4, curvature=1.5)
    measured, variance = 2.0 - 3.0 / 1.5, (0.4 / 1.5) ** 2
    weight = (1 / variance) / (1 / variance + 1 / 0.5)
    assert after.value == pytest.approx((1 - weight) * 2.0 + weight * measured)
    assert after.variance == pytest.approx(1 / (1 / variance + 1 / 0.5))
    assert before.drifted(0.25).variance == 0.75


def test_counts_are_moved_to_equal_frequencies_by_as_much_as_their_noise_explains() -> None:
    """The rule of James & Stein; where the truth is equality, the squared error is a quarter of what it was."""
    clear = Estimate(-2.0, 0.25).shrunk()
    assert float(clear.value) == pytest.approx(-2.0 * (1 - 0.25 / 4))
    assert clear.variance == pytest.approx(0.25 * (1 - 0.25 / 4))
    faint = Estimate(0.4, 0.25).shrunk()
    assert float(faint.value) == 0.0
    assert faint.variance == pytest.approx(0.025)
    classes = Estimate(np.array([1.0, 2.0, 6.0]), 1.0).shrunk()
    assert np.asarray(classes.value) == pytest.approx((1 - 2 / 14) * np.array([-2.0, -1.0, 3.0]))
    noisy = np.random.default_rng(0).normal(0, 1, (2000, 3))  # their squared error, less their mean, is 2
    errors = [np.sum(np.asarray(Estimate(each, 1.0).shrunk().value) ** 2) for each in noisy]
    assert 0.3 < np.mean(errors) < 0.55


def test_labels_without_features_that_explain_them_keep_their_frequencies() -> None:
    """With 150 useless columns probabilities stay near the frequency of the class: means of 8 seeds."""
    excess = []
    for seed in range(8):
        generator = np.random.default_rng(seed)
        X, y = generator.uniform(0, 1, (2000, 150)), (generator.random(2000) < 0.75).astype(int)
        fitted = DPLogisticRegression(0.2, DELTA, bounds=(0, 1), classes=[0, 1], random_state=seed).fit(X, y)
        excess.append(np.logaddexp(0, (1 - 2 * y) * fitted.decision_function(X)).mean())
    assert np.mean(excess) < 1.05 * (0.75 * math.log(4 / 3) + 0.25 * math.log(4))


def test_signal_is_what_noise_does_not_explain() -> None:
    """Means of 20,000 squares have a relative deviation of 0.01: the signal of noise alone is at most 0.25 then."""
    generator = np.random.default_rng(0)
    noise = generator.normal(0, 3.0, 20_000)
    assert _signal(noise, 9.0) < 0.25
    assert _signal(noise, 9.0 / 4) == pytest.approx(math.sqrt(3), abs=0.03)
    assert _signal(noise + 12.0, 9.0) == pytest.approx(4.0, abs=0.05)
    assert _signal(np.zeros(3), 1.0) == 0.0
