"""A model and its evaluation under one guarantee: charges, parts, optimism, and replays on neighbours."""

from __future__ import annotations

import re

import numpy as np
import pandas as pd
import pytest
from scipy.special import ndtr
from sklearn.base import BaseEstimator

from dpdescent import DPLinearRegression, DPLogisticRegression, Ledger, PrivacyStatement, evaluate, fit_and_evaluate
from dpdescent.audit import replay
from dpdescent.errors import BudgetExhausted, InvalidParameter
from dpdescent.evaluation import one_budget, optimism


@pytest.fixture(scope="module")
def table():
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (3000, 3))
    return X, (X @ [2.0, -1.0, 0.5] + generator.logistic(0, 0.7, 3000) > 0.3).astype(int)


def model_of(**changed):
    return DPLogisticRegression(**{"epsilon": 1.0, "delta": 1e-6, "bounds": (-1, 1), "classes": (0, 1)} | changed)


@pytest.mark.parametrize("currency", ["gdp", "zcdp"])
@pytest.mark.parametrize("how", [{"evaluate": 0.1}, {"holdout": 0.2}])
def test_both_are_paid_for_once_and_stay_within_the_guarantee(table, currency: str, how) -> None:
    X, y = table
    ledger = Ledger(1.2, 1e-6, currency=currency)
    fitted, found = fit_and_evaluate(model_of(ledger=ledger), X, y, **how)
    stated = PrivacyStatement.from_dict(fitted.privacy_)
    assert (stated.epsilon, stated.delta) == (1.0, 1e-6)
    assert stated.spent <= stated.budget
    assert found.privacy == fitted.privacy_
    assert ledger.spent == pytest.approx(stated.spent)
    assert abs(found.accuracy.value - fitted.score(X, y)) < 6 * found.accuracy.deviation  # by chance below 1e-8
    assert any(each.startswith("the number of rows: 3000") for each in stated.assumed_public)
    parts = {each.rows for each in stated.charges}
    assert parts == ({"all"} if "evaluate" in how else {"training part", "hold-out part"})
    with pytest.raises(BudgetExhausted):
        fit_and_evaluate(model_of(ledger=ledger), X, y, **how)


def test_a_share_of_the_budget_goes_to_the_evaluation(table) -> None:
    X, y = table
    fitted, _ = fit_and_evaluate(model_of(), X, y, evaluate=0.25)
    spent = fitted.privacy_["spent_on"]
    bought = spent["coarse histogram of scores"] + spent["confusion counts and histogram of scores by class"]
    assert bought == pytest.approx(0.25, rel=1e-3)
    share = re.search(r"is at most ([.\d]+) below the one that was measured", " ".join(fitted.privacy_["remarks"]))
    trained = Ledger(*(fitted.privacy_[each] for each in ("epsilon", "delta")), currency="gdp").budget * 0.75
    bound = 2 * ndtr(np.sqrt(trained)) - 1  # twice mu/2, as a row is removed, and twice delta
    assert share
    assert float(share[1]) == pytest.approx(bound, rel=0.1)


def test_the_bound_of_optimism_is_that_of_total_variation() -> None:
    replaced = Ledger(0.1, 1e-6, currency="gdp", relation="replace-one")
    assert optimism(replaced) == pytest.approx(2 * ndtr(np.sqrt(replaced.budget) / 2) - 1, rel=1e-3)
    assert optimism(replaced) == pytest.approx(0.011, abs=5e-4)
    assert optimism(Ledger(1.0, 1e-6, currency="gdp", relation="replace-one")) == pytest.approx(0.094, abs=1e-3)
    removed = Ledger(0.1, 1e-6, currency="gdp")
    assert optimism(removed) == pytest.approx(2 * optimism(replaced), rel=1e-3)
    assert optimism(Ledger(50.0, 1e-6, currency="gdp")) <= 1
    assert 0 < optimism(Ledger(0.1, 1e-6, currency="zcdp")) < 0.1
    assert 0 < optimism(Ledger(0.1, 1e-6, currency="approximate")) < 0.25


@pytest.mark.parametrize(
    "wrong",
    [
        {"evaluate": 0.1, "holdout": 0.2},
        {"evaluate": 1.5},
        {"holdout": 1.0},
        {"threshold": 3.0, "rate": 0.5},
        {"evaluate": 1e-9},
        {"holdout": 0.2, "unit": np.arange(3000)},
    ],
)
def test_what_can_be_refused_is_refused_before_the_fit_is_charged(table, wrong) -> None:
    X, y = table
    ledger = Ledger(1.5, 1e-6, currency="gdp")
    with pytest.raises(InvalidParameter):
        fit_and_evaluate(model_of(ledger=ledger), X, y, **wrong)
    assert not ledger.entries


def test_classes_are_an_argument_and_other_models_are_refused(table) -> None:
    X, y = table
    with pytest.raises(InvalidParameter, match="classes"):
        fit_and_evaluate(model_of(classes=None), X, y)
    with pytest.raises(InvalidParameter, match="call fit, then evaluate"):
        fit_and_evaluate(object(), X, y)


def test_units_and_numbers(table) -> None:
    X, y = table
    fitted, found = fit_and_evaluate(model_of(epsilon=3.0, rows_per_unit=2), X, y, unit=np.arange(3000) // 2)
    assert fitted.privacy_["rows_per_unit"] == 2
    assert found.accuracy.value is not None
    number = DPLinearRegression(3.0, 1e-6, bounds=(-1, 1), target_bounds=(-4, 4))
    _, found = fit_and_evaluate(number, X, X @ [2.0, -1.0, 0.5], holdout=0.3)
    assert found["mean absolute error"].value < 1


def test_a_row_is_in_one_part_alone_and_the_parts_are_drawn_at_random(table, monkeypatch) -> None:
    """Both parts spend the whole budget, so that a row in both would pay twice, and replays could not see it."""
    X, y = table
    seen: dict[str, np.ndarray] = {}
    fitting, judging = DPLogisticRegression.fit, one_budget.evaluate

    def fit(self, rows, labels, **options):
        seen["trained"] = np.column_stack([rows, labels])
        return fitting(self, rows, labels, **options)

    def judge(model, rows, labels, **options):
        seen["scored"] = np.column_stack([rows, labels])
        return judging(model, rows, labels, **options)

    monkeypatch.setattr(DPLogisticRegression, "fit", fit)
    monkeypatch.setattr(one_budget, "evaluate", judge)
    whole, parts = np.column_stack([X, y]), []
    for _ in range(2):
        fit_and_evaluate(model_of(), X, y, holdout=0.2)
        dealt = np.concatenate([seen["trained"], seen["scored"]])
        assert len(seen["scored"]) == 600
        np.testing.assert_array_equal(np.sort(dealt, axis=0), np.sort(whole, axis=0))
        assert len({tuple(row) for row in dealt}) == 3000
        parts.append(np.isin(X[:, 0], seen["scored"][:, 0]))
    assert 300 < np.count_nonzero(parts[0] != parts[1]) < 1600  # 960 are expected of independent draws
    assert all(
        60 < np.count_nonzero(part[start : start + 600]) < 180 for part in parts for start in range(0, 3000, 600)
    )


@pytest.mark.parametrize("share", [0.01, 0.6])
def test_a_hold_out_spends_no_more_than_the_training_that_the_account_has_paid_for(table, monkeypatch, share) -> None:
    X, y = table
    fitted = model_of(method="majority").fit(X, y)

    def fit(_, amount, ledger, *__):
        ledger.spend(ledger.currency.gaussian(share * amount), "training")
        return fitted

    monkeypatch.setattr(one_budget._Task, "fit", fit)
    account = Ledger(2.0, 1e-5, currency="gdp")
    own = Ledger(1.0, 1e-6, currency="gdp")
    _, found = fit_and_evaluate(model_of(ledger=account), X, y, holdout=0.5)
    spent = sum(
        charge.count * charge.mechanism.mu_squared() for charge in _charges(found) if charge.rows == "hold-out part"
    )
    assert 0.9 * share * own.budget < spent <= account.spent <= share * own.budget * (1 + 1e-9)


def _charges(found):
    return PrivacyStatement.from_dict(found.privacy).charges


class Both(BaseEstimator):
    """Fit and evaluation as one estimator, so that they can be replayed."""

    def __init__(self, adjacency="zero-out", holdout=None, random_state=None, bounds=(-1, 1), classes=(0, 1)):
        self.adjacency, self.holdout, self.random_state = adjacency, holdout, random_state
        self.bounds, self.classes = bounds, classes

    def fit(self, X, y):
        model = model_of(adjacency=self.adjacency, random_state=self.random_state, epsilon=2.0)
        self.fitted_, self.found_ = fit_and_evaluate(model, X, y, holdout=self.holdout)
        return self


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("holdout", [None, 0.3])
def test_replays_show_nothing_that_was_not_paid_for(table, adjacency: str, holdout: float | None) -> None:
    X, y = table
    report = replay(Both(adjacency, holdout), X[:300], y[:300], neighbours=4)
    assert report.clean, str(report)


def test_dealing_places_at_random_gives_other_rows_the_same_law_wherever_the_empty_place_is() -> None:
    from itertools import permutations

    def law(rows: int, empty: int) -> dict[tuple[bool, ...], int]:
        """Return how often each division of the rows occurs over all permutations, with one place empty."""
        counted: dict[tuple[bool, ...], int] = {}
        for order in permutations(range(rows + 1)):
            held = set(order[:2])
            key = tuple(place in held for place in range(rows + 1) if place != empty)
            counted[key] = counted.get(key, 0) + 1
        return counted

    laws = [law(4, empty) for empty in range(5)]
    assert all(each == laws[0] for each in laws)


def test_an_evaluation_on_the_same_rows_is_hardly_too_good_at_small_epsilon(table) -> None:
    X, y = table
    fitted, found = fit_and_evaluate(model_of(epsilon=0.5), X[:1500], y[:1500])
    fresh = evaluate(fitted, X[1500:], y[1500:], epsilon=1.0, delta=1e-6)
    assert abs(found.accuracy.value - fresh.accuracy.value) < 5 * np.hypot(
        found.accuracy.deviation, fresh.accuracy.deviation
    )


@pytest.mark.parametrize("how", [{"evaluate": 0.1}, {"holdout": 0.2}])
def test_a_table_of_which_nothing_is_known_is_fitted_and_evaluated(how) -> None:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"age": generator.integers(18, 80, 8000), "job": generator.choice(["a", "b", "c"], 8000)})
    labels = np.where(frame["age"] + generator.normal(0, 10, 8000) > 50, "yes", "no")
    fitted, found = fit_and_evaluate(DPLogisticRegression(1.0, 1e-6, random_state=0), frame, labels, **how)
    assert found.accuracy.low <= (fitted.predict(frame) == labels).mean() <= found.accuracy.high + 0.03
    assert found.classes == ("no", "yes")
    stated = PrivacyStatement.from_dict(fitted.privacy_)
    assert (stated.epsilon, stated.delta, stated.private) == (1.0, 1e-6, True)
    assert stated.spent <= stated.budget
    assert "levels of the columns" in stated.spent_on
    with pytest.raises(InvalidParameter, match="classes are public"):
        fit_and_evaluate(DPLogisticRegression(1.0, 1e-6), frame[["age"]], labels, **how)


def test_a_fit_names_the_function_that_evaluates_as_well(table) -> None:
    with pytest.raises(TypeError, match=r"fit_and_evaluate\(model, X, y, evaluate="):
        model_of().fit(*table, evaluate=0.1)
