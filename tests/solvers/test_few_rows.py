"""Learning from few effective rows: a direction, then its length."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.integrate import quad
from sklearn.datasets import load_breast_cancer, load_iris, load_wine
from sklearn.metrics import log_loss, roc_auc_score
from test_agd import make_curator

from dpdescent import DPLinearSVC, DPLogisticRegression
from dpdescent.queries import LabelCounts
from dpdescent.solvers import AutoSettings, auto
from dpdescent.solvers.few_rows import (
    Estimate,
    _first_length,
    _signal,
    count_deviation,
    learns_from_few_rows,
    posterior_shares,
)
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


def test_the_intercepts_follow_a_clear_signal() -> None:
    """The middle class of iris needs another intercept than its frequency: .84 if all clipped pulls are doubted."""
    assert accuracy(load_iris, 10.0, "auto") > 0.9


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


@pytest.mark.parametrize(("noisy", "deviation"), [(0.05, 0.02), (-0.01, 0.02), (0.5, 0.1), (1.03, 0.05)])
def test_class_shares_are_posterior_means(noisy: float, deviation: float) -> None:
    """Against numerical integration for two classes; without noise they are what was counted."""
    whole, _ = quad(lambda p: density(p, noisy, deviation), 0, 1, points=[0.001, 0.999], limit=200)
    mean, _ = quad(lambda p: p * density(p, noisy, deviation), 0, 1, points=[0.001, 0.999], limit=200)
    (rest, found), (_, variance) = posterior_shares(np.array([1 - noisy, noisy]), deviation)
    assert found == pytest.approx(mean / whole, rel=0.01)
    assert rest + found == pytest.approx(1)
    assert 0 < variance < deviation**2 * 1.2
    known = np.array([0.7, 0.2, 0.09, 0.01])
    assert posterior_shares(known, 1e-6)[0] == pytest.approx(known, rel=1e-3)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
def test_the_noise_of_label_counts_is_what_it_is_taken_for(relation: str) -> None:
    curator = make_curator(1.0, relation=relation)
    noise = curator.gaussian(curator.budget)
    moved = LabelCounts(noise).plan(curator.public()).parts[0].sensitivity.under(curator.relation)
    assert count_deviation(curator, curator.budget) == pytest.approx(noise.noise_multiplier * moved / curator.rows)


def density(share: float, noisy: float, deviation: float) -> float:
    return math.exp(-(((share - noisy) / deviation) ** 2) / 2) / math.sqrt(max(share * (1 - share), 1e-300))


def test_shares_of_many_classes_are_alike_as_far_as_noise_explains() -> None:
    """The excess of log-loss over that of the true shares, and of counts that are only kept positive."""
    generator = np.random.default_rng(0)
    falling = 1 / np.arange(1, 31)
    for true, deviation, most in ((np.full(30, 1 / 30), 0.02, 0.3), (falling / falling.sum(), 0.01, 1.1)):
        excess = np.zeros(2)
        for _ in range(50):
            noisy = true + deviation * generator.normal(size=30)
            kept = np.maximum(noisy, deviation)
            for place, shares in enumerate((posterior_shares(noisy, deviation)[0], kept / kept.sum())):
                excess[place] += np.sum(true * np.log(true / shares)) / 50
        assert excess[0] < most * excess[1]


def test_a_sum_of_gradients_that_is_noise_has_no_length() -> None:
    noise = np.random.default_rng(1).normal(0, 2.0, (400, 1))
    nothing = _first_length(noise, 2.0, 0.5, 1.5)
    assert nothing.value == pytest.approx(0.0, abs=0.1)
    assert nothing.variance == pytest.approx(1.2**2)
    seen, share = 10.0, 1 + math.sqrt(2 / 400)
    clear = _first_length(np.full((400, 1), 2.0 * math.sqrt(seen)), 2.0, 0.5, 1.5)
    assert clear.value == pytest.approx((1 - share / seen) * 0.5 * 2.0)
    assert _first_length(1e6 * noise, 2.0, 0.5, 1.5).value == pytest.approx(1.0, rel=1e-3)


def test_a_constant_alone_is_the_posterior_mean_of_all_that_is_paid() -> None:
    """Rare and many classes with a handful of effective rows: no worse than the prior by more than noise explains."""
    losses = []
    for seed in range(10):
        y = (np.arange(250) < 5).astype(int)
        model = DPLogisticRegression(0.1, DELTA, bounds=(0, 1), classes=[0, 1], random_state=seed)
        chance = model.fit(np.zeros((250, 3)), y).predict_proba(np.zeros((1, 3)))[0]
        losses.append(-0.98 * math.log(chance[0]) - 0.02 * math.log(chance[1]))
        assert set(model.privacy_["spent_on"]) == {"label counts"}
    assert np.mean(losses) < 0.098 + 0.07  # .21 with a step from equal frequencies


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
