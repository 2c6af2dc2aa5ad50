"""Estimators behave like scikit-learn's, and say what they guarantee."""

from __future__ import annotations

import inspect
import json
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from scipy.optimize import minimize
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks

from dpdescent import (
    BoundedEncoder,
    BudgetExhausted,
    DPAdditiveClassifier,
    DPAdditiveHuberRegressor,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    DPBoostedTreesClassifier,
    DPBoostedTreesRegressor,
    DPHuberRegressor,
    DPLinearRegression,
    DPLinearSVC,
    DPLogisticRegression,
    DPPoissonRegressor,
    InvalidParameter,
    Ledger,
    PrivacyWarning,
    load_dataset,
)
from dpdescent.errors import ColumnTypeError, InfiniteValue, MissingValue, TrialsWarning, UnknownLabel
from dpdescent.solvers import METHODS, OPTSettings

MODELS = [
    DPLogisticRegression,
    DPLinearSVC,
    DPLinearRegression,
    DPHuberRegressor,
    DPPoissonRegressor,
    DPAdditiveClassifier,
    DPAdditiveHuberRegressor,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    DPBoostedTreesClassifier,
    DPBoostedTreesRegressor,
]


@pytest.fixture(scope="module")
def data():
    return load_dataset("synthetic", n=6000)


def logistic(**options) -> DPLogisticRegression:
    return DPLogisticRegression(**({"bounds": (0, 1), "classes": (0, 1), "random_state": 0} | options))


@pytest.mark.filterwarnings("ignore::dpdescent.PrivacyWarning")
@pytest.mark.filterwarnings("ignore::dpdescent.errors.TrialsWarning")  # a check gives weights to copies
@pytest.mark.filterwarnings("ignore:.*:RuntimeWarning:sklearn")
@parametrize_with_checks([model(epsilon=1.0, random_state=0) for model in MODELS])
def test_scikit_learn_conventions_hold(estimator, check) -> None:
    check(estimator)


COMMON = {
    "epsilon": 1.0,
    "delta": 1e-6,
    "method": "auto",
    "adjacency": "zero-out",
    "bounds": None,
    "tighten": None,
    "binary_features": None,
    "alpha": 0.0,
    "tilt": 0.0,
    "adversary": None,
    "fit_intercept": True,
    "penalise_intercept": None,
    "unit": None,
    "rows_per_unit": 1,
    "rows": None,
    "random_state": None,
    "ledger": None,
    "progress": False,
    "noise": "exact",
    "inference": False,
    "solver_options": None,
}
CURVES = {"pieces": None, "knots": None, "monotonic_cst": None}
ADDED = {
    DPLogisticRegression: {"classes": None, "class_weight": None, "loss": "logistic", "penalty": "l2"},
    DPLinearSVC: {"classes": None, "class_weight": None, "loss": "huberised-hinge"},
    DPLinearRegression: {"target_bounds": None, "loss": "squared"},
    DPHuberRegressor: {"target_bounds": None, "threshold": None},
    DPPoissonRegressor: {"target_bounds": None},
    DPAdditiveClassifier: {
        "classes": None,
        "class_weight": None,
        "pieces": None,
        "knots": None,
        "monotonic_cst": None,
        "loss": "logistic",
        "penalty": "l2",
    },
    DPAdditiveRegressor: {"target_bounds": None, "loss": "squared"} | CURVES,
}
ADDED[DPAdditivePoissonRegressor] = ADDED[DPPoissonRegressor] | CURVES
ADDED[DPAdditiveHuberRegressor] = ADDED[DPHuberRegressor] | CURVES
TREES = {"trees": None, "depth": None}
ADDED[DPBoostedTreesClassifier] = ADDED[DPAdditiveClassifier] | TREES
ADDED[DPBoostedTreesRegressor] = ADDED[DPAdditiveRegressor] | TREES


@pytest.mark.parametrize("model", MODELS)
def test_only_epsilon_and_delta_are_positional_and_every_argument_is_stored_as_given(model) -> None:
    parameters = inspect.signature(model).parameters
    assert {name: parameter.default for name, parameter in parameters.items()} == COMMON | ADDED[model]
    positional = [name for name, each in parameters.items() if each.kind is each.POSITIONAL_OR_KEYWORD]
    assert positional == ["epsilon", "delta"]
    given = {name: object() for name in parameters}
    assert vars(model(**given)) == given
    assert model() != model()
    assert repr(model(2.0)) == f"{model.__name__}(epsilon=2.0)"


def test_private_model_is_better_than_guessing_and_says_what_it_spent(data) -> None:
    model = logistic(epsilon=2.0, delta=1e-6, bounds=data.bounds).fit(data.X, data.y)
    assert model.score(data.X, data.y) > 0.78 > max(np.mean(data.y), 1 - np.mean(data.y))
    privacy = json.loads(json.dumps(model.privacy_))
    assert (privacy["epsilon"], privacy["delta"]) == (2.0, 1e-6)
    assert 0.9 * 2.0 < privacy["spent_epsilon"] <= 2.0
    assert sum(privacy["spent_on"].values()) == pytest.approx(privacy["spent"] / privacy["budget"])
    assert privacy["randomness"] == "seeded (not for release)"
    assert any("number of rows" in line for line in privacy["assumed_public"])
    assert model.coef_.shape == (1, data.X.shape[1])
    assert model.n_features_in_ == data.X.shape[1]


def test_probabilities_agree_with_decisions(data) -> None:
    model = logistic(bounds=data.bounds).fit(data.X, data.y)
    probabilities = model.predict_proba(data.X)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1)
    np.testing.assert_array_equal(model.classes_[probabilities.argmax(axis=1)], model.predict(data.X))
    np.testing.assert_allclose(np.exp(model.predict_log_proba(data.X)), probabilities)
    np.testing.assert_allclose(model.decision_function(data.X), data.X @ model.coef_[0] + model.intercept_[0])


def objective(weights: np.ndarray, X: np.ndarray, y: np.ndarray, alpha: float) -> float:
    margins = np.where(y > 0, 1, -1) * (X @ weights[:-1] + weights[-1])
    return float(np.logaddexp(0, -margins).mean() + alpha / 2 * weights[:-1] @ weights[:-1])


def test_epsilon_to_infinity_recovers_lbfgs(data) -> None:
    model = logistic(epsilon=1e4, bounds=data.bounds, alpha=1e-3).fit(data.X, data.y)
    start = np.zeros(data.X.shape[1] + 1)
    best = minimize(objective, start, (data.X, data.y, 1e-3), method="L-BFGS-B").fun
    found = objective(np.append(model.coef_[0], model.intercept_), data.X, data.y, 1e-3)
    assert best <= found * (1 + 1e-6)
    assert found < 1.01 * best


def test_huge_epsilon_recovers_least_squares() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (4000, 5))
    y = X @ [3.0, -2.0, 1.0, 0.0, 4.0] + 10 + generator.normal(0, 0.2, 4000)
    model = DPLinearRegression(1e4, 1e-6, target_bounds=(5.0, 20.0), random_state=0).fit(X, y)
    residual = np.mean((model.predict(X) - y) ** 2)
    assert residual < 1.1 * np.var(y - X @ [3.0, -2.0, 1.0, 0.0, 4.0])


def test_multinomial_learns_three_classes() -> None:
    generator = np.random.default_rng(1)
    labels = generator.integers(0, 3, 6000)
    X = np.clip(generator.normal(0.5, 0.12, (6000, 4)) + 0.3 * np.eye(4)[labels], 0, 1)
    names = np.array(["a", "b", "c"])[labels]
    model = DPLogisticRegression(2.0, 1e-6, classes=("a", "b", "c"), random_state=0).fit(X, names)
    assert model.coef_.shape == (3, 4)
    assert model.score(X, names) > 0.75
    assert model.predict_proba(X).shape == (6000, 3)


def test_svm_learns_with_either_loss(data) -> None:
    for loss in ("huberised-hinge", "hinge"):
        model = DPLinearSVC(2.0, 1e-6, loss=loss, classes=(0, 1), bounds=data.bounds, random_state=0)
        assert model.fit(data.X, data.y).score(data.X, data.y) > 0.77
    with pytest.raises(InvalidParameter, match="huberised-hinge"):
        DPLinearSVC(loss="square", classes=(0, 1)).fit(data.X, data.y)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("method", ["agd", "auto"])
def test_same_seed_gives_the_same_bits_for_every_storage(data, adjacency: str, method: str) -> None:
    X, y = np.where(data.X < 0.5, 0.0, data.X)[:1500], data.y[:1500]
    reference = logistic(adjacency=adjacency, method=method).fit(X, y).coef_
    order = np.random.default_rng(0).permutation(len(y))
    for other, labels in (
        (sparse.csr_array(X), y),
        (sparse.csc_array(X), y),
        (np.asfortranarray(X), y),
        (pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])]), pd.Series(y)),
        (X[order], y[order]),
    ):
        np.testing.assert_array_equal(
            logistic(adjacency=adjacency, method=method).fit(other, labels).coef_, reference
        )
    rounded = X.astype(np.float32)
    np.testing.assert_array_equal(
        logistic(adjacency=adjacency, method=method).fit(rounded, y).coef_,
        logistic(adjacency=adjacency, method=method).fit(rounded.astype(np.float64), y).coef_,
    )


def test_pipeline_with_public_encoding_runs_from_a_table() -> None:
    data = load_dataset("synthetic", n=4000)
    schema = data.schema
    encoder = schema.encoder()
    assert isinstance(encoder, BoundedEncoder)
    model = make_pipeline(encoder, logistic(epsilon=2.0))
    table = data.table[list(schema.features)]
    assert model.fit(table, data.y).score(table, data.y) > 0.76


def test_cross_validation_clone_and_pickle_work(data) -> None:
    model = logistic(epsilon=1.0, bounds=data.bounds)
    with pytest.warns(TrialsWarning, match="each fit is a release of its own"):
        assert cross_val_score(model, data.X, data.y, cv=3).mean() > 0.7
    assert clone(model).get_params() == model.get_params()
    fitted = model.fit(data.X, data.y)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(data.X), fitted.predict(data.X))


def test_a_shared_ledger_pays_for_every_fit_and_then_refuses(data) -> None:
    account = Ledger(1.0, 1e-6, currency="gdp")
    model = logistic(epsilon=0.6, ledger=account, bounds=data.bounds)
    model.fit(data.X, data.y)
    paid = account.spent
    assert paid == pytest.approx(model.privacy_["spent"], rel=1e-9)
    before = account.to_json()
    with pytest.raises(BudgetExhausted, match="lower epsilon"):
        logistic(epsilon=0.9, ledger=account, bounds=data.bounds).fit(data.X, data.y)
    assert account.to_json() == before


def test_a_clone_shares_the_ledger_of_its_original(data) -> None:
    account = Ledger(1.0, 1e-6, currency="gdp")
    copied = clone(logistic(epsilon=0.5, ledger=account, bounds=data.bounds))
    copied.fit(data.X, data.y)
    assert account.spent > 0


def with_cell(X: np.ndarray, column: int, value: float) -> np.ndarray:
    changed = X.copy()
    changed[4, column] = value
    return changed


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        (lambda X, y: (with_cell(X, 7, np.nan), y), MissingValue, "column 7"),
        (lambda X, y: (with_cell(X, 5, np.inf), y), InfiniteValue, "column 5"),
        (lambda X, y: (sparse.csr_array(with_cell(X, 3, np.nan)), y), MissingValue, "column 3"),
        (lambda X, y: (X, np.where(np.arange(len(y)) == 3, 7, y)), UnknownLabel, "outside the 2 classes"),
        (lambda X, y: (X[:0], y[:0]), InvalidParameter, "0 sample"),
        (lambda X, y: (X[:, :0], y), InvalidParameter, "0 feature"),
        (lambda X, y: (X[:-1], y), InvalidParameter, "inconsistent"),
        (lambda X, y: (pd.DataFrame({"a": ["u"] * len(X)}), y), ColumnTypeError, "column .a. cannot be converted"),
    ],
)
def test_bad_tables_are_refused_by_name_before_anything_is_charged(data, change, error, message) -> None:
    account = Ledger(2.0, 1e-6, currency="gdp")
    X, y = change(data.X[:300].copy(), data.y[:300].copy())
    with pytest.raises(error, match=message):
        logistic(ledger=account).fit(X, y)
    assert account.entries == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"epsilon": 0.0}, "epsilon"),
        ({"epsilon": -1.0}, "epsilon"),
        ({"epsilon": math.nan}, "epsilon"),
        ({"delta": 0.0}, "delta"),
        ({"delta": 1.0}, "delta"),
        ({"method": "magic"}, "agd"),
        ({"adjacency": "cousins"}, "zero-out"),
        ({"bounds": (1.0, 0.0)}, "low < high"),
        ({"bounds": (0.0, math.inf)}, "finite"),
        ({"bounds": 3}, "bounds must be"),
        ({"bounds": (np.zeros(3), 1.0)}, "bounds must be"),
        ({"alpha": -1.0}, "penalty"),
        ({"classes": (1,)}, "only one class"),
        ({"noise": "loud"}, "exact"),
        ({"random_state": -3}, "seed"),
        ({"ledger": "budget.ledger"}, r"Ledger.open\(path\)"),
        ({"solver_options": ["iterations"]}, "map names to values"),
        ({"solver_options": {"iterations": 2.5}}, "whole number"),
    ],
)
def test_bad_parameters_are_refused_by_name_before_anything_is_charged(data, options, message) -> None:
    account = Ledger(2.0, 1e-6, currency="gdp")
    with pytest.raises(InvalidParameter, match=message):
        logistic(**({"ledger": account} | options)).fit(data.X[:200], data.y[:200])
    assert account.entries == ()


def test_sample_weights_are_refused_with_the_reason(data) -> None:
    with pytest.raises(InvalidParameter, match="what one row can change"):
        logistic().fit(data.X, data.y, sample_weight=np.ones(len(data.y)))


def test_an_unknown_solver_option_is_refused(data) -> None:
    with pytest.raises(InvalidParameter, match="learning_rate"):
        logistic(solver_options={"learning_rate": 0.1}).fit(data.X, data.y)


def test_classes_read_from_labels_are_a_warning_and_an_assumption(data) -> None:
    with pytest.warns(PrivacyWarning, match="classes"):
        model = DPLogisticRegression(random_state=0).fit(data.X, data.y)
    assert "classes: those of y, because they were not given (read from the rows)" in model.privacy_["assumed_public"]
    assert model.privacy_["private"] == "except for classes"


def test_one_class_in_the_labels_is_fine_when_classes_are_public(data) -> None:
    model = logistic().fit(data.X[:500], np.zeros(500, int))
    assert set(model.predict(data.X)) <= {0, 1}


def test_cells_outside_the_bounds_count_as_the_bounds(data) -> None:
    wide = data.X.copy()
    wide[::7] = 5 * wide[::7] - 2
    clipped = np.clip(wide, 0, 1)
    np.testing.assert_array_equal(logistic().fit(wide, data.y).coef_, logistic().fit(clipped, data.y).coef_)


def test_more_columns_than_rows_and_constant_columns_are_fine() -> None:
    generator = np.random.default_rng(0)
    X = generator.uniform(0, 1, (40, 90))
    X[:, 3] = 1.0
    model = logistic(epsilon=1.0).fit(X, np.arange(40) % 2)
    assert np.isfinite(model.coef_).all()


def test_coefficients_are_in_the_units_of_the_caller(data) -> None:
    """Columns stretched by a power of two, with their bounds, give the same predictions bit for bit."""
    stretched = data.X * 64.0
    reference = logistic(bounds=(0.0, 1.0)).fit(data.X, data.y)
    other = logistic(bounds=(0.0, 64.0)).fit(stretched, data.y)
    np.testing.assert_array_equal(other.coef_ * 64.0, reference.coef_)
    np.testing.assert_array_equal(other.predict(stretched), reference.predict(data.X))


def test_float_noise_is_recorded_as_such(data) -> None:
    model = logistic(noise="float").fit(data.X, data.y)
    assert "floating point" in model.privacy_["randomness"]


def test_progress_reports_the_share_of_the_budget(data) -> None:
    shares: list[float] = []
    logistic(progress=shares.append).fit(data.X, data.y)
    assert shares == sorted(shares)
    assert shares[-1] == 1.0
    assert all(0 <= share <= 1 for share in shares)


@pytest.mark.parametrize(
    ("low", "binary", "said"),
    [
        ([0.0, 0.0, 0.0], [], True),
        ([0.0, 0.0, 0.0], [0, 1, 2], True),
        ([math.nan, 0.0, 0.0], [2], True),
        ([math.nan, math.nan, 0.0], [2], False),
        ([math.nan, math.nan, math.nan], [], False),
        (None, [2], False),
    ],
)
def test_bounds_are_assumed_public_only_where_somebody_gave_them(
    low: list[float] | None, binary: list[int], said: bool
) -> None:
    X = np.random.default_rng(0).integers(0, 2, (2000, 3)).astype(float)
    high = None if low is None else np.where(np.isnan(low), math.nan, 1.0)
    bounds = None if low is None else (np.array(low), high)
    model = DPLogisticRegression(bounds=bounds, binary_features=binary, classes=(0, 1), random_state=0)
    model.fit(X, X[:, 0].astype(int))
    assert ("bounds: cells outside are clipped (argument)" in model.privacy_["assumed_public"]) is said


@pytest.mark.parametrize("kind", ["mask", "positions", "names"])
def test_binary_features_are_a_mask_positions_or_names(data, kind: str) -> None:
    table = pd.DataFrame(data.X, columns=data.feature_names)
    mask = data.binary_features
    assert mask.sum() == 20
    given = {"mask": mask, "positions": np.flatnonzero(mask), "names": list(table.columns[mask])}[kind]
    expected = logistic(epsilon=0.1, binary_features=mask, random_state=0).fit(table, data.y)
    found = logistic(epsilon=0.1, binary_features=given, random_state=0).fit(table, data.y)
    np.testing.assert_array_equal(found.coef_, expected.coef_)
    assert "binary_features: which columns are 0 or 1 (argument)" in found.privacy_["assumed_public"]
    other = logistic(epsilon=0.1, random_state=0).fit(table, data.y)
    assert not np.array_equal(other.coef_, expected.coef_)
    assert not any("binary" in line for line in other.privacy_["assumed_public"])
    none = [logistic(binary_features=empty, random_state=0).fit(table, data.y).coef_ for empty in ([], mask & False)]
    np.testing.assert_array_equal(*none)


@pytest.mark.parametrize(
    "wrong", [[True, False], [7.5], [24], [-1], ["no such column"], "age", [[True] * 24], np.ones(24), 3]
)
def test_binary_features_that_fit_no_column_are_refused_before_anything_is_charged(data, wrong: object) -> None:
    account = Ledger(1.0, 1e-6, currency="gdp")
    with pytest.raises(InvalidParameter, match="mask of 24 columns"):
        logistic(binary_features=wrong, ledger=account, epsilon=0.5).fit(data.X, data.y)
    assert not account.entries


@pytest.mark.filterwarnings("ignore::dpdescent.errors.GuaranteeWarning")
@pytest.mark.parametrize("method", [name for name, each in METHODS.items() if each.rereads])
def test_sparse_and_dense_rows_give_the_same_model_to_the_last_bit(method: str) -> None:
    """Dense rows of few entries, like the first, are stored sparse, and others are not."""
    generator = np.random.default_rng(0)
    for share in (0.1, 0.5):
        X = (generator.random((300, 12)) < share).astype(np.float64)
        y = (generator.random(300) < 0.2 + 0.6 * X[:, 0]).astype(int)
        options = {"method": method, "epsilon": 2.0, "delta": 1e-5}
        if issubclass(METHODS[method].settings, OPTSettings):
            options["solver_options"] = {"most_steps": 5}
        fitted = [logistic(**options).fit(rows, y) for rows in (X, sparse.csr_array(X))]
        np.testing.assert_array_equal(fitted[0].coef_, fitted[1].coef_)
        np.testing.assert_array_equal(fitted[0].intercept_, fitted[1].intercept_)
