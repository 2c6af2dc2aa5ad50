"""Whatever can be refused is refused before the first charge: every invalid argument of every estimator.

Bounds, target bounds and class weights that nobody gave are bought before a method begins, so the table below is
tried where they are: an argument that is checked too late is found by what was charged by then.
"""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator

import dpdescent
from dpdescent import Adversary, Ledger, evaluate, fit_and_evaluate, select
from dpdescent.errors import DPDescentError, InvalidParameter
from dpdescent.estimators import purchases
from dpdescent.solvers import METHODS
from method_runs import QUICK

pytestmark = pytest.mark.filterwarnings("ignore::dpdescent.errors.GuaranteeWarning")

NAN, INF = math.nan, math.inf
ESTIMATORS = {
    name: each
    for name in dpdescent.__all__
    if isinstance(each := getattr(dpdescent, name), type) and issubclass(each, BaseEstimator) and "DP" in name
}
NO_NUMBERS = [None, "much", [], (1.0, 2.0), {}, np.array([1.0, 2.0]), object(), 1j, NAN, INF, -INF]
NO_FLAGS = ["yes", 2, 0.5, [], np.array([True, False]), object()]
NO_NAMES = [None, 1, True, "nonsense", "", [], {}, np.array(["auto"]), b"auto"]
NO_BOUNDS = [
    1.0,
    "wide",
    (1.0,),
    (0.0, 1.0, 2.0),
    (1.0, 0.0),
    (1.0, 1.0),
    (0.0, INF),
    (-INF, 0.0),
    (0.0, NAN),
    object(),
]

#: Values that no table can be fitted with, by parameter. A parameter that is missing here fails a test.
INVALID: dict[str, list[Any]] = {
    "epsilon": [*NO_NUMBERS, 0.0, -1.0],
    "delta": [*NO_NUMBERS, -1e-6, 1.0, 2.0],
    "method": NO_NAMES,
    "adjacency": NO_NAMES,
    "bounds": [*NO_BOUNDS, ((0.0, 0.0), (1.0, 1.0)), ((0.0, NAN, 0.0), (1.0, 1.0, 1.0)), {"a": (0, 1)}],
    "tighten": NO_FLAGS,
    "binary_features": [3, "a", [7], [-1], [0.5], ["age"], [True, False], np.eye(3, dtype=bool), object()],
    "alpha": [*NO_NUMBERS, -1.0, 1e308, 1e-308],
    "tilt": [*NO_NUMBERS, -1.0, 1.0],
    "adversary": [0.1, "l2", [], object(), Adversary(0.1), Adversary((0.1, 0.1, 0.1), "linf")],
    "fit_intercept": [*NO_FLAGS, None],
    "penalise_intercept": NO_FLAGS,
    "inference": NO_FLAGS,
    "trees": [0, -1, 1.5, "many", [], np.array([1, 2]), NAN, True],
    "depth": [0, -1, 1.5, 99, "deep", [], np.array([1, 2]), NAN, True],
    "unit": [1, True, "", "person", ["person"], object()],
    "rows_per_unit": [None, 0, -1, 2, 1.5, "two", [], NAN],
    "rows": [0, -1, 30, 1.5, "two", [], NAN],
    "random_state": [0.5, "seed", [1], (1, 2), NAN, object(), np.array([1.0])],
    "ledger": [1.0, "budget", {}, [], object(), "budget.ledger"],
    "progress": [None, 1, "bar", [], object(), lambda: None, lambda _, __: None],
    "noise": NO_NAMES,
    "solver_options": [1, "fast", [], [("steps", 3)], {"nonsense": 1}, {"iterations": "many"}, {"iterations": -1}],
    "classes": [1, (), (0,), (None, None), (0, "a", None), {0: 1}, [[0], [1, 2]], (5, 6)],
    "class_weight": [1.0, "even", [], (1.0, 2.0), {2: 1.0}, {0: 0.0}, {0: -1.0}, {0: NAN}, {0: INF}, {0: "a"}],
    "loss": NO_NAMES,
    "penalty": NO_NAMES,
    "target_bounds": [*NO_BOUNDS, ((0.0, 0.0), (1.0, 1.0))],
    "threshold": [value for value in [*NO_NUMBERS, 0.0, -1.0] if value is not None],
    "pieces": [-1, 1.5, 10**6, "many", [], np.array([1, 2]), NAN],
    "monotonic_cst": [1, "up", [1], [0, 0, 2], [0.5, 0, 0], {"age": 1}, {"x0": 2}, object(), NAN],
    "knots": [
        1.0,
        [0.5],
        "middle",
        {0: [2.0]},
        {0: ["a"]},
        {9: [0.5]},
        {"age": [0.5]},
        {0: NAN},
        {1: [0.5]},
    ],
}


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[Ledger]:
    """Return the ledgers that fits open for themselves."""
    kept: list[Ledger] = []
    opening = Ledger.__init__

    class Rehearsed(Ledger):
        """One that is charged for rows that nobody can read."""

    def noted(self: Ledger, *arguments: Any, **options: Any) -> None:
        opening(self, *arguments, **options)
        if not isinstance(self, Rehearsed):
            kept.append(self)

    monkeypatch.setattr(Ledger, "__init__", noted)
    monkeypatch.setattr(purchases, "Ledger", Rehearsed)
    return kept


def table(estimator: type) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(0)
    X = generator.uniform(0.2, 0.8, (60, 3))
    return X, (X[:, 0] > 0.5).astype(int) if "classes" in parameters(estimator) else 3 * X[:, 0]


def parameters(estimator: type) -> list[str]:
    return list(inspect.signature(estimator).parameters)


def situations(estimator: type) -> Iterator[dict[str, Any]]:
    """Yield arguments with which something is bought before the method begins: all, some, or narrower bounds."""
    classes = "classes" in parameters(estimator)
    yield {"classes": (0, 1), "class_weight": "balanced"} if classes else {}
    public = {"classes": (0, 1)} if classes else {"target_bounds": (0, 3)}
    yield public | {"bounds": ((0.0, NAN, 0.0), (1.0, NAN, 1.0))}
    yield public | {"bounds": (0.0, 10.0), "tighten": True}


def require_refused(estimator: type, options: dict[str, Any], opened: list[Ledger], currency: str = "gdp") -> None:
    """Demand a named error that leaves the account and the fit's own ledger without a line."""
    X, y = table(estimator)
    refused(lambda own: estimator(**{"random_state": 0, "ledger": own, **options}).fit(X, y), opened, currency)


def refused(call: Callable[[Ledger], Any], opened: list[Ledger], currency: str = "gdp") -> None:
    """Demand a named error that leaves the account it is called with, and all other ledgers, without a line."""
    account = Ledger(50.0, 1e-4, currency=currency)
    before = account.to_json()
    opened.clear()
    with pytest.raises(DPDescentError):
        call(account)
    assert account.to_json() == before
    assert account.history == ()
    assert all(own.entries == () for own in opened)


PAIRS = [(name, parameter) for name, each in ESTIMATORS.items() for parameter in parameters(each)]


def test_the_table_has_every_parameter_and_every_estimator() -> None:
    assert {parameter for _, parameter in PAIRS} == set(INVALID)
    assert len(ESTIMATORS) >= 7
    assert all(len(values) >= 5 for values in INVALID.values())


@pytest.mark.parametrize(("name", "parameter"), PAIRS)
def test_an_invalid_argument_is_refused_before_anything_is_charged(
    name: str, parameter: str, opened: list[Ledger]
) -> None:
    estimator = ESTIMATORS[name]
    for situation in situations(estimator):
        for value in INVALID[parameter]:
            require_refused(estimator, situation | {parameter: value}, opened)


def test_every_situation_is_a_fit_without_its_invalid_argument() -> None:
    """Or else the law would hold for any argument; and something is bought before the method begins in each."""
    for estimator in ESTIMATORS.values():
        for situation in situations(estimator):
            account = Ledger(50.0, 1e-4, currency="gdp")
            estimator(random_state=0, ledger=account, **situation).fit(*table(estimator))
            assert account.entries[0].label == "column histograms"


#: Arguments that are fine each by itself.
COMBINATIONS: list[tuple[str, dict[str, Any]]] = [
    ("DPLogisticRegression", {"method": "majority", "fit_intercept": False}),
    ("DPLogisticRegression", {"method": "auto", "alpha": 0.1, "penalise_intercept": True}),
    ("DPLogisticRegression", {"method": "outpert", "adversary": Adversary(0.1), "bounds": None, "tighten": None}),
    ("DPLogisticRegression", {"method": "objpert"}),
    ("DPLogisticRegression", {"method": "expmech"}),
    ("DPLogisticRegression", {"method": "agd", "adjacency": "replace-one"}),
    ("DPLogisticRegression", {"method": "agd", "tilt": 1.0}),
    ("DPLogisticRegression", {"method": "opt", "epsilon": 1e-9}),
    ("DPLogisticRegression", {"method": "dp-gd", "epsilon": 1e-9}),
    ("DPLogisticRegression", {"method": "outpert", "penalty": "nonconvex", "alpha": 0.1}),
    ("DPLogisticRegression", {"method": "outpert-gd", "loss": "sigmoid"}),
    ("DPLogisticRegression", {"method": "agd", "solver_options": {"currency": "zcdp"}}),
    ("DPLogisticRegression", {"classes": (0, 1, 2), "loss": "sigmoid"}),
    ("DPLogisticRegression", {"classes": (0, 1, 2), "method": "opt"}),
    ("DPLogisticRegression", {"delta": 0.0}),
    ("DPLogisticRegression", {"epsilon": 100.0}),
    ("DPLinearSVC", {"classes": (0, 1, 2)}),
    ("DPLinearSVC", {"method": "opt", "loss": "hinge"}),
    ("DPLinearRegression", {"method": "opt"}),
    ("DPLinearRegression", {"method": "majority", "fit_intercept": False}),
    ("DPHuberRegressor", {"target_bounds": (0.0, 3.0), "threshold": 1e-6}),
    ("DPPoissonRegressor", {"target_bounds": (-1.0, 3.0)}),
    ("DPPoissonRegressor", {"target_bounds": (0.0, 0.5), "fit_intercept": False}),
    (
        "DPAdditiveClassifier",
        {"pieces": 1024, "solver_options": {"whitening": True}, "bounds": None, "tighten": None},
    ),
    ("DPAdditiveRegressor", {"knots": {0: [0.5]}, "binary_features": [0]}),
]


@pytest.mark.parametrize(("name", "options"), COMBINATIONS, ids=str)
def test_arguments_that_do_not_go_together_are_refused_before_anything_is_charged(
    name: str, options: dict[str, Any], opened: list[Ledger]
) -> None:
    for situation in situations(ESTIMATORS[name]):
        require_refused(ESTIMATORS[name], situation | options, opened)


@pytest.mark.parametrize("name", ["DPAdditiveClassifier", "DPAdditiveRegressor"])
def test_knots_need_bounds_that_stay_as_they_are(name: str) -> None:
    X, y = table(ESTIMATORS[name])
    frame = pd.DataFrame(X, columns=["a", "b", "c"])
    _, gap, narrower = situations(ESTIMATORS[name])
    for options in (gap | {"knots": {"b": [5.0]}}, narrower | {"knots": {"b": [5.0]}}):
        account = Ledger(50.0, 1e-4, currency="gdp")
        with pytest.raises(InvalidParameter, match="knots of column 'b' need bounds that stay as they are"):
            ESTIMATORS[name](ledger=account, **options).fit(frame, y)
        assert account.history == ()
    model = ESTIMATORS[name](random_state=0, **gap, knots={"a": [0.5], "b": []}).fit(frame, y)
    assert model.bounds_[0][0] == 0.0
    assert model.bounds_[1][0] == 1.0


@pytest.mark.parametrize("method", ["sgd", "adam", "sgd-adv"])
@pytest.mark.parametrize("bounds", [(0, 1), None], ids=["given", "measured"])
def test_noise_that_cannot_be_drawn_is_refused_before_the_length_of_rows_is_bought(
    method: str, bounds: Any, opened: list[Ledger]
) -> None:
    beyond = {"classes": (0, 1), "bounds": bounds, "method": method, "solver_options": {"steps": 10**30}}
    require_refused(dpdescent.DPLogisticRegression, beyond, opened)
    require_refused(dpdescent.DPLogisticRegression, beyond | {"ledger": None}, opened)


@pytest.mark.parametrize("method", sorted(name for name, each in METHODS.items() if each.private))
@pytest.mark.parametrize("currency", ["pure", "approximate"])
def test_a_fit_without_delta_ends_or_charges_nothing(method: str, currency: str, opened: list[Ledger]) -> None:
    account = Ledger(50.0, 0.0 if currency == "pure" else 1e-4, currency=currency)
    options = {"bounds": (0, 1), "classes": (0, 1), "solver_options": QUICK.get(method, {}), "random_state": 0}
    X, y = table(dpdescent.DPLogisticRegression)
    model = dpdescent.DPLogisticRegression(1.0, 0.0, method=method, ledger=account, **options)
    try:
        model.fit(X, y)
    except DPDescentError:
        assert account.history == ()
        assert all(own.entries == () for own in opened)


@pytest.mark.parametrize("method", sorted(name for name, each in METHODS.items() if each.private))
def test_a_method_that_refuses_does_so_before_bounds_are_bought(method: str, opened: list[Ledger]) -> None:
    """Settings beyond their ends, noise that cannot be drawn, ledgers that cannot pay: all with unknown bounds."""
    estimator, refused, (X, y) = dpdescent.DPLogisticRegression, 0, table(dpdescent.DPLogisticRegression)
    settings = list(inspect.signature(METHODS[method].settings).parameters)
    tried = [{name: value} for name in settings for value in (0, -1)]
    cases = [({}, {"epsilon": 1e-12}), ({}, {"epsilon": 1e-9}), ({}, {"fit_intercept": False})]
    for given, options in [*((each, {}) for each in tried), *cases]:
        account = Ledger(50.0, 1e-4, currency="gdp")
        opened.clear()
        model = estimator(
            method=method,
            classes=(0, 1),
            random_state=0,
            ledger=account,
            solver_options=QUICK.get(method, {}) | given,
        )
        try:
            with np.errstate(all="ignore"):
                model.set_params(**options).fit(X, y)
        except DPDescentError:
            refused += 1
            assert account.history == (), (given, options)
            assert all(own.entries == () for own in opened)
    assert refused >= 2


@pytest.mark.parametrize(
    ("options", "kind"),
    [
        ({"epsilon": 0.0}, InvalidParameter),
        ({"delta": 1.0}, InvalidParameter),
        ({"delta": "small"}, InvalidParameter),
        ({"adjacency": "add"}, InvalidParameter),
        ({"holdout": 0.0}, InvalidParameter),
        ({"holdout": 1.0}, InvalidParameter),
        ({"holdout": "half"}, InvalidParameter),
        ({"strategy": "best"}, InvalidParameter),
        ({"ledger": 1.0}, InvalidParameter),
        ({"candidates": []}, InvalidParameter),
        ({"candidates": [dpdescent.DPLogisticRegression(classes=(0, 1))] * 1}, InvalidParameter),
        (
            {"candidates": [dpdescent.DPLogisticRegression(classes=(0, 1), method=each) for each in ("agd", "none")]},
            InvalidParameter,
        ),
        (
            {
                "candidates": [
                    dpdescent.DPLogisticRegression(classes=(0, 1), fit_intercept=each, method="majority")
                    for each in (True, False)
                ]
            },
            InvalidParameter,
        ),
        (
            {"candidates": [dpdescent.DPLogisticRegression(classes=(0, 1), unit=each) for each in (None, "a")]},
            InvalidParameter,
        ),
    ],
)
def test_a_selection_refuses_before_its_account_is_charged(options: dict[str, Any], kind: type[Exception]) -> None:
    account = Ledger(50.0, 1e-4, currency="gdp")
    candidates = [dpdescent.DPLogisticRegression(classes=(0, 1), alpha=alpha) for alpha in (0.0, 0.1)]
    given = {"epsilon": 1.0, "delta": 1e-6, "ledger": account, "candidates": candidates, "random_state": 0} | options
    X, y = table(dpdescent.DPLogisticRegression)
    with pytest.raises(kind):
        select(X=X, y=y, **given)
    assert account.history == ()


# Tables of text, and evaluations -----------------------------------------------------------------------------------


def some(name: str, parameter: str) -> Any:
    """Return what is tried each time; the rest waits for slow tests."""
    usual = name == "DPLogisticRegression" or (name == "DPAdditiveRegressor" and parameter in ("knots", "rows"))
    return pytest.param(name, parameter, marks=[] if usual else pytest.mark.slow)


def mixed(estimator: type, rows: int = 1500) -> tuple[pd.DataFrame, pd.Series]:
    generator = np.random.default_rng(0)
    frame = pd.DataFrame({"a": generator.normal(size=rows), "t": generator.choice(["u", "v"], rows)})
    large = frame["a"] > 0
    return frame, large.map({True: "yes", False: "no"}) if "classes" in parameters(estimator) else large * 3.0


@pytest.mark.parametrize(
    ("name", "parameter"), [some(*pair) for pair in PAIRS if pair[1] not in ("bounds", "binary_features")]
)
def test_an_invalid_argument_is_refused_before_a_table_of_text_is_looked_at(
    name: str, parameter: str, opened: list[Ledger]
) -> None:
    estimator = ESTIMATORS[name]
    X, y = mixed(estimator)
    public = {"random_state": 0, "epsilon": 8.0, "delta": 1e-6}
    for value in INVALID[parameter][:6]:
        refused(lambda own, v=value: estimator(**(public | {"ledger": own, parameter: v})).fit(X, y), opened)


def test_a_table_of_text_is_fitted_without_an_invalid_argument() -> None:
    account = Ledger(50.0, 1e-4, currency="gdp")
    dpdescent.DPLogisticRegression(8.0, 1e-6, ledger=account).fit(*mixed(dpdescent.DPLogisticRegression))
    assert account.entries[0].label == "types of cells"


NO_SHARES = [value for value in [*NO_NUMBERS, 0.0, 1.0, -1.0, 2.0] if value is not None]
#: What an evaluation under the budget of a fit is asked with.
ASKED = {"threshold": NO_SHARES, "rate": NO_SHARES, "level": [None, *NO_SHARES], "scores": ["logit"]}
HOW = {"the same rows": {"evaluate": 0.1}, "a hold-out": {"holdout": 0.2}}


@pytest.mark.parametrize("how", HOW)
def test_a_fit_is_not_charged_for_if_it_or_its_evaluation_will_be_refused(how: str, opened: list[Ledger]) -> None:
    estimator, generator = dpdescent.DPLogisticRegression, np.random.default_rng(0)
    X = generator.uniform(0.2, 0.8, (1000, 3))
    y = (X[:, 0] > 0.5).astype(int)

    def both(own: Ledger, changed: dict[str, Any], **asked: Any) -> Any:
        made = estimator(**({"classes": (0, 1), "random_state": 0, "ledger": own} | changed))
        return fit_and_evaluate(made, X, y, **(HOW[how] | asked))

    for parameter in parameters(estimator):
        for value in INVALID[parameter][:5]:
            refused(lambda own, p=parameter, v=value: both(own, {p: v}), opened)
    for asked, values in ASKED.items():
        for value in values:
            refused(lambda own, a=asked, v=value: both(own, {}, **{a: v}), opened)
    assert both(Ledger(50.0, 1e-4, currency="gdp"), {}, threshold=0.4).evaluation.accuracy.value > 0.5


@pytest.mark.parametrize(
    "wrong",
    [
        *({"classes": value} for value in ((None, None), (0, "a", None), [[0], [1, 2]], (), (0,))),
        *({"score_range": value} for value in (1, (1.0,), "ab", object(), (1.0, 0.0), (0.0, 1.0))),
        *({"like": value} for value in (1, "earlier", object(), {})),
        *({"threshold": value} for value in NO_SHARES),
        *({"rate": value} for value in NO_SHARES),
    ],
    ids=lambda wrong: re.sub(" at 0x[0-9a-f]+", "", str(wrong)),  # processes number their tests alike
)
def test_an_evaluation_refuses_by_name_and_charges_nothing(wrong: dict[str, Any], opened: list[Ledger]) -> None:
    X, y = table(dpdescent.DPLogisticRegression)
    rows, labels = np.tile(X, (20, 1)), np.tile(y, 20)
    model = FITTED.setdefault(
        "model", dpdescent.DPLogisticRegression(method="majority", classes=(0, 1), random_state=0).fit(X, y)
    )
    refused(lambda own: evaluate(model, rows, labels, epsilon=1.0, delta=1e-6, ledger=own, **wrong), opened)


FITTED: dict[str, Any] = {}


@pytest.mark.parametrize("ends", [(1, 0), (0, float("inf")), 3], ids=str)
def test_bounds_of_a_target_are_refused_by_their_own_name(ends: Any) -> None:
    X, y = table(dpdescent.DPHuberRegressor)
    with pytest.raises(InvalidParameter, match=r"^target_bounds must"):
        dpdescent.DPHuberRegressor(1.0, 1e-6, bounds=(0, 1), target_bounds=ends).fit(X, y)
