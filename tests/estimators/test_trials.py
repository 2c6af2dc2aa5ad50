"""Whoever fits several copies of an estimator is told what the fits add up to, once; a single copy is left alone."""

from __future__ import annotations

import copy
import math
import pickle
import warnings
from typing import Any

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from dpdescent import DPLinearRegression, DPLogisticRegression, Ledger, PrivacyStatement
from dpdescent.accounting import gdp_to_delta
from dpdescent.errors import TrialsWarning

GRID = {"alpha": [0.01, 0.1, 1.0]}


def table(seed: int = 0, rows: int = 300) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    X = generator.random((rows, 3))
    return X, (X[:, 0] > 0.5).astype(int)


def model(**options: Any) -> DPLogisticRegression:
    return DPLogisticRegression(
        1.0, 1e-6, **{"classes": (0, 1), "bounds": (0, 1), "random_state": 0, "method": "outpert"} | options
    )


def caught(search: Any, X: np.ndarray, y: np.ndarray) -> list[str]:
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        search.fit(X, y)
    return [str(each.message) for each in found if each.category is TrialsWarning]


def test_a_grid_search_warns_once_and_its_model_says_what_the_total_is() -> None:
    search = GridSearchCV(model(alpha=0.5), GRID, cv=2)
    (message,) = caught(search, *table())
    assert "each fit is a release of its own" in message
    assert message.count("100 fits") == 1
    assert "dpdescent.select" in message
    assert "100 fits cost (" in message
    stated = PrivacyStatement.from_dict(search.best_estimator_.privacy_)
    (remark,) = (each for each in stated.remarks if "fits of copies" in each)
    assert "up to 8 fits" in remark, "3 settings on 2 folds, the last fit, and the copy that all were copied from"
    total = float(remark.split("(")[1].split(",")[0])
    mu = math.sqrt(8 * Ledger(1.0, 1e-6, currency="gdp").budget)
    assert gdp_to_delta(mu, 1.01 * total) <= 1e-6 < gdp_to_delta(mu, 0.98 * total)
    assert (stated.epsilon, stated.delta) == (1.0, 1e-6)


def test_a_search_in_other_processes_is_counted_by_its_copies() -> None:
    search = GridSearchCV(model(alpha=0.5), GRID, cv=2)
    base = clone(search.estimator)
    for _ in range(6):
        clone(base)  # fitted elsewhere
    last = clone(base).set_params(alpha=0.1)
    with pytest.warns(TrialsWarning, match="8 fits cost"):
        last.fit(*table())
    assert "up to 8 fits" in last.privacy_["remarks"][-1]


def test_a_search_within_a_pipeline_warns_as_well() -> None:
    steps = make_pipeline(FunctionTransformer(), model(alpha=0.5))
    search = GridSearchCV(steps, {"dplogisticregression__alpha": [0.1, 1.0]}, cv=2)
    assert len(caught(search, *table())) == 1


def test_neither_the_warning_nor_the_remark_depends_on_cells() -> None:
    found = []
    for seed in (0, 1):
        search = GridSearchCV(model(alpha=0.5), {"alpha": [0.1, 1.0]}, cv=2)
        found.append((caught(search, *table(seed)), search.best_estimator_.privacy_["remarks"][-1]))
    assert found[0] == found[1]


@pytest.mark.parametrize("pipeline", [False, True])
def test_scores_on_folds_warn_once_of_what_their_fits_add_up_to(pipeline: bool) -> None:
    original = make_pipeline(FunctionTransformer(), model()) if pipeline else model()
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        cross_val_score(original, *table(), cv=4)
    (message,) = [str(each.message) for each in found if each.category is TrialsWarning]
    assert "as cross_val_score and GridSearchCV do" in message
    assert "a release of its own at (1, 1e-06)" in message
    stated = message.split(" 5 fits cost ")[1].partition(")")[0]
    total, delta = map(float, stated.strip("(").split(", "))
    mu = math.sqrt(5 * Ledger(1.0, 1e-6, currency="gdp").budget)
    assert gdp_to_delta(mu, 1.01 * total) <= delta < gdp_to_delta(mu, 0.98 * total)


def test_a_second_copy_warns_and_its_statement_depends_on_no_other_fit() -> None:
    X, y = table()
    original = model()
    first = clone(original).fit(X, y)
    with pytest.warns(TrialsWarning, match=r"2 fits cost \("):
        second = clone(original).fit(X, y)
    assert first.privacy_ == second.privacy_
    assert clone(original).fit(X, y).privacy_ == first.privacy_, "and the third says nothing"


def test_copies_that_are_pickled_unfitted_count_as_fitted_and_others_do_not() -> None:
    """With n_jobs, joblib pickles the copies for other processes; to start these takes too long for a test."""
    X, y = table()
    original = model()
    copies = [clone(original) for _ in range(3)]
    pickle.dumps(copies[0].fit(X, y))
    pickle.dumps(copies[0])
    pickle.dumps(original)
    assert vars(copy.copy(copies[2])) == vars(copies[2]), "a fit from a stream copies what it fits, uncounted"
    with pytest.warns(TrialsWarning, match=r"3 fits cost at most \(3, 3e-06\)"):
        sent = pickle.dumps(copies[1])
    assert vars(pickle.loads(sent)) == vars(model()), "what is sent does not depend on what is counted"
    for other in (model(method="nonprivate"), model().set_params(epsilon="one")):
        for _ in range(3):
            pickle.dumps(clone(other))


def test_a_single_copy_and_fits_of_the_original_are_left_alone() -> None:
    X, y = table()
    original = model()
    for fitted in (original, original, clone(original)):
        fitted.fit(X, y)
    copied = clone(model()).set_params(random_state=3).fit(X, y)
    assert not any("copies" in each for each in copied.privacy_["remarks"])
    for changed in (model().set_params(alpha=0.3), clone(model()).set_params(alpha=0.3)):
        assert not any("copies" in each for each in changed.fit(X, y).privacy_["remarks"])


def test_pairs_of_epsilon_and_delta_are_added_up() -> None:
    X, y = table()
    original = DPLinearRegression(1.0, 1e-6, method="sgd-adv", bounds=(0, 1), random_state=0, target_bounds=(0, 1))
    changed = clone(original).set_params(alpha=0.2)
    clone(original)
    with pytest.warns(TrialsWarning, match=r"2 fits cost \(2, 2e-06\)"):
        changed.fit(X, y)


def test_a_classifier_of_networks_warns_too() -> None:
    torch = pytest.importorskip("torch")
    from dpdescent.torch import DPModuleClassifier

    X, y = table(rows=60)
    original = DPModuleClassifier(torch.nn.Linear(3, 2), 2.0, 1e-5, classes=(0, 1), steps=2, random_state=0)
    clone(original)
    with pytest.warns(TrialsWarning, match=r"2 fits cost \(4, 2e-05\)"):
        changed = clone(original).set_params(steps=3).fit(X, y)
    assert "up to 2 fits" in PrivacyStatement.from_dict(changed.privacy_).remarks[-1]
