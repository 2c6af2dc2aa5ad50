"""Whole estimators are replayed on neighbours: what a fit shows follows from the answers that it has paid for.

A fit is recorded and its answers are given to a fit of a neighbouring table. The two must then be equal to the last
bit in all that can be seen of them, and every exact sum within its sensitivity. A few dozen pairs are tried in each
run of the tests, and all estimators, methods and options where slow tests run.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import BaseEstimator, clone

from dpdescent import (
    Adversary,
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
    Sensitivity,
    UnsupportedLoss,
    fit_and_evaluate,
    select,
)
from dpdescent.accounting import ExponentialMechanism
from dpdescent.audit import Neighbour, ReplayReport, replay
from dpdescent.audit.neighbouring import draw_pairs
from dpdescent.audit.recording import share_of_sensitivity
from dpdescent.audit.replay import differences
from dpdescent.curator import LatticeNoise
from dpdescent.curator.release import pay
from dpdescent.exact import LatticeSum
from dpdescent.relations import Norm, Relation
from dpdescent.solvers import METHODS
from dpdescent.tables import Label, NumericColumn, Schema, open_parquet

ROWS = 150
RELATIONS = ("zero-out", "replace-one")
CLASSIFIERS = (DPLogisticRegression, DPLinearSVC, DPAdditiveClassifier, DPBoostedTreesClassifier)
COUNTED = (DPPoissonRegressor, DPAdditivePoissonRegressor)
REGRESSORS = (DPLinearRegression, DPHuberRegressor, DPAdditiveRegressor, DPAdditiveHuberRegressor, *COUNTED)
PRIVATE = sorted(name for name, method in METHODS.items() if method.private)
POINTS = {name for name in PRIVATE if METHODS[name].gathers}  # need a penalty that is strongly convex


def table(kind: type, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows on and off the grid, copies among them, and labels of the kind that an estimator takes."""
    generator = np.random.default_rng(seed)
    X = generator.uniform(-1, 1, (ROWS, 3))
    X[:20] = np.round(X[:20] * 4) / 4
    X[20:40] = X[40:60]
    if kind in CLASSIFIERS:
        return X, (X[:, 0] + generator.normal(0, 0.3, ROWS) > 0).astype(int)
    if kind in COUNTED:
        return X, generator.poisson(np.exp(X[:, 0])).astype(float)
    return X, X[:, 0] + generator.normal(0, 0.1, ROWS)


def model(kind: type, method: str = "auto", adjacency: str = "zero-out", **options: Any) -> Any:
    """Return an estimator that is told all that is public, unless ``options`` say otherwise."""
    given: dict[str, Any] = {"bounds": (-1, 1), "alpha": 0.05 if method in POINTS else 0.0}
    ends = (0, 4) if kind in COUNTED else (-1, 1)
    given |= {"classes": (0, 1)} if kind in CLASSIFIERS else {"target_bounds": ends}
    return kind(4.0, 1e-6, method=method, adjacency=adjacency, **(given | options))


def clean(report: ReplayReport, hardest: float = 0.1) -> None:
    """Require that nothing was found, and that some neighbour was a hard one for some sum."""
    assert report.clean, str(report)
    assert report.largest_share > hardest or any("law" in each for each in report.unchecked), str(report)


# A few dozen pairs of tables in every run ------------------------------------------------------------------------


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("method", ["auto", "agd", "blsgd", "ftrl", "outpert", "majority"])
def test_what_a_method_shows_follows_from_what_it_paid_for(method: str, adjacency: str) -> None:
    clean(replay(model(DPLogisticRegression, method, adjacency), *table(DPLogisticRegression), neighbours=2))


@pytest.mark.parametrize("kind", [DPLinearSVC, DPHuberRegressor, DPPoissonRegressor, DPAdditivePoissonRegressor])
def test_what_an_estimator_shows_follows_from_what_it_paid_for(kind: type) -> None:
    clean(replay(model(kind), *table(kind), neighbours=2))


#: What can be asked of a fit beside its method: the estimator, its options, and how many pairs make some sum hard.
OPTIONS: dict[str, tuple[type, dict[str, Any]]] = {
    "measured bounds": (DPLogisticRegression, {"bounds": None}),
    "tightened bounds": (DPLogisticRegression, {"tighten": True}),
    "tightened bounds of any width": (DPLogisticRegression, {"bounds": (-3, [5, 6, 40]), "tighten": True}),
    "one bound of three": (DPLogisticRegression, {"bounds": ([-1, np.nan, -1], [1, np.nan, 1])}),
    "measured target": (DPLinearRegression, {"target_bounds": None}),
    "weights of classes": (DPLogisticRegression, {"class_weight": {0: 1.0, 1: 3.0}}),
    "balanced classes": (DPLogisticRegression, {"class_weight": "balanced"}),
    "curves": (DPAdditiveClassifier, {"pieces": 4}),
    "knots": (DPAdditiveRegressor, {"knots": {0: [-0.5, 0.5]}}),
    "trees": (DPBoostedTreesClassifier, {"trees": 3, "depth": 2}),
    "trees of numbers": (DPBoostedTreesRegressor, {"trees": 3, "depth": 2, "bounds": None, "target_bounds": None}),
    "counts that must not fall": (
        DPBoostedTreesRegressor,
        {"loss": "poisson", "trees": 3, "depth": 2, "target_bounds": (0, 1), "monotonic_cst": [1, 0, -1]},
    ),
    "curves that must not fall": (DPAdditiveClassifier, {"pieces": 4, "monotonic_cst": [1, 0, -1]}),
    "trees by Huber's loss": (DPBoostedTreesRegressor, {"loss": "huber", "trees": 3, "depth": 2}),
    "effects": (DPLogisticRegression, {"epsilon": 60.0, "inference": True}),
    "effects in measured bounds": (
        DPLinearRegression,
        {"epsilon": 60.0, "inference": True, "bounds": None, "target_bounds": None},
    ),
    "effects of counts": (DPPoissonRegressor, {"epsilon": 60.0, "inference": True, "tighten": True}),
    "effects by Huber's loss": (DPHuberRegressor, {"epsilon": 60.0, "inference": True}),
    "effects of curves": (DPAdditiveRegressor, {"epsilon": 60.0, "inference": True, "pieces": 4}),
    "tilt": (DPLogisticRegression, {"method": "outpert", "tilt": 1.0, "alpha": 0.05}),
    "adversary": (DPLogisticRegression, {"method": "outpert", "adversary": Adversary(0.1), "alpha": 0.05}),
    "pure": (DPLogisticRegression, {"method": "outpert", "delta": 0.0, "alpha": 0.05}),
    "a final measurement of the intercept": (DPLogisticRegression, {"epsilon": 60.0}),
    "no intercept": (DPLinearRegression, {"fit_intercept": False}),
    "a constant alone": (DPLogisticRegression, {"epsilon": 0.02}),
    "few effective rows": (DPLogisticRegression, {"epsilon": 0.8}),
    "floating point": (DPLogisticRegression, {"noise": "float"}),
}
STORED = {
    "float32": lambda X: X.astype(np.float32),
    "csr": lambda X: sparse.csr_array(np.where(np.abs(X) < 0.3, 0.0, X)),
    "csr-float32": lambda X: sparse.csr_array(np.where(np.abs(X) < 0.3, 0.0, X).astype(np.float32)),
    "fortran": np.asfortranarray,
    "frame": lambda X: pd.DataFrame(X, columns=["a", "b", "c"]),
}
BRIEF = ("measured bounds", "measured target", "balanced classes", "curves", "tilt")


def option_model(name: str, adjacency: str) -> tuple[type, Any]:
    kind, options = OPTIONS[name]
    settings = {"method": "auto"} | options
    budget = {"epsilon": settings.pop("epsilon", 4.0), "delta": settings.pop("delta", 1e-6)}
    return kind, model(kind, settings.pop("method"), adjacency, **settings).set_params(**budget)


@pytest.mark.parametrize("name", BRIEF)
def test_what_an_option_shows_follows_from_what_it_paid_for(name: str) -> None:
    kind, made = option_model(name, "zero-out")
    clean(replay(made, *table(kind), neighbours=2))


@pytest.mark.parametrize("how", ["csr", "float32"])
def test_how_rows_are_stored_shows_nothing_more(how: str) -> None:
    X, y = table(DPLogisticRegression)
    clean(replay(model(DPLogisticRegression), STORED[how](X), y, neighbours=2))


def test_a_shared_ledger_records_the_same_charges_and_pays_nothing() -> None:
    ledger = Ledger(8.0, 1e-5, currency="gdp")
    clean(replay(model(DPLogisticRegression, ledger=ledger), *table(DPLogisticRegression), neighbours=2))
    assert ledger.spent == 0


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize(
    ("kind", "together"),
    [
        (DPBoostedTreesClassifier, False),
        pytest.param(DPBoostedTreesClassifier, True, marks=pytest.mark.slow),
        pytest.param(DPBoostedTreesRegressor, False, marks=pytest.mark.slow),
        pytest.param(DPBoostedTreesRegressor, True, marks=pytest.mark.slow),
    ],
)
def test_trees_are_given_up_or_kept_by_what_was_paid_for(kind: type, adjacency: str, together: bool) -> None:
    """A quarter of the trees are grown; then the additive model gets their budget, or the other trees are grown."""
    X, y = table(kind)
    if together:
        acting = np.sign(X[:, 0] * X[:, 1])
        y = (acting > 0).astype(int) if kind is DPBoostedTreesClassifier else 0.9 * acting
    made = model(kind, adjacency=adjacency).set_params(epsilon=200.0, random_state=1)
    assert (clone(made).fit(X, y).n_trees_ > 0) == together
    made.set_params(random_state=None)
    clean(replay(made, X, y, neighbours=2))
    shows_the_same(replay(made, X, y, neighbours=[Neighbour(*corners(kind, ROWS))]))


# Units -----------------------------------------------------------------------------------------------------------


def owners() -> np.ndarray:
    return np.arange(ROWS) // 2


@pytest.mark.parametrize("method", ["auto", "sgd"])
def test_a_unit_is_replaced_by_one_with_as_many_rows(method: str) -> None:
    X, y = table(DPLogisticRegression)
    other = X.copy()
    other[-2:] = 1.0, 1.0, -1.0
    made = model(DPLogisticRegression, method, "replace-one", rows_per_unit=2)
    told = Neighbour(other, np.append(y[:-2], 1 - y[-2:]), owners())
    clean(replay(made, X, y, unit=owners(), neighbours=[told]))


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_unit_is_removed_or_replaced_by_one_with_fewer_or_more_rows(adjacency: str) -> None:
    made = model(DPLogisticRegression, adjacency=adjacency, rows_per_unit=2)
    clean(replay(made, *table(DPLogisticRegression), unit=owners(), neighbours=3))


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("method", [name for name in PRIVATE if METHODS[name].units])
def test_every_method_keeps_the_rows_of_a_unit_to_itself(method: str, adjacency: str) -> None:
    made = model(DPLogisticRegression, method, adjacency, rows_per_unit=2)
    clean(replay(made, *table(DPLogisticRegression), unit=owners(), neighbours=4), hardest=0.0)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_units_are_named_by_a_column(adjacency: str) -> None:
    X, y = table(DPLogisticRegression)
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(person=[f"p{each}" for each in owners()])
    made = model(DPLogisticRegression, adjacency=adjacency, rows_per_unit=3, unit="person")
    clean(replay(made, frame, y, neighbours=8), hardest=0.0)


# Tables that are far apart ---------------------------------------------------------------------------------------
# Given the answers, nothing may follow from rows: not only neighbours look the same then, but any two tables with the
# same public numbers. A number of rows that decides by a threshold shows here, and hardly ever between neighbours.


def shows_the_same(report: ReplayReport) -> None:
    """Require that all was found equal, but for sums, which may be anywhere."""
    assert not [leak for leak in report.leaks if leak.kind != "sensitivity"], str(report)


def corners(kind: type, rows: int) -> tuple[np.ndarray, np.ndarray]:
    """Return rows of ends alone, and labels that are all the same."""
    X = np.where(np.random.default_rng(1).random((rows, 3)) < 0.5, 1.0, -1.0)
    return X, np.ones(rows, dtype=int if kind in CLASSIFIERS else float)


UNITS = 61
FAR: dict[str, tuple[type, dict[str, Any]]] = {
    "a number of rows that is bought": (DPLogisticRegression, {}),
    "a number of rows that is declared": (DPLogisticRegression, {"rows": 2 * UNITS}),
    "measured bounds of units": (DPLogisticRegression, {"bounds": None}),
    "curves of units": (DPAdditiveClassifier, {}),
    "curves of units in measured bounds": (DPAdditiveRegressor, {"bounds": None, "target_bounds": None}),
    "trees of units": (DPBoostedTreesClassifier, {"trees": 3, "depth": 2}),
    "as many trees as units are worth": (DPBoostedTreesClassifier, {"rows": 16 * UNITS, "epsilon": 4000.0}),
    "trees of counts of units": (
        DPBoostedTreesRegressor,
        {"loss": "poisson", "trees": 3, "depth": 2, "bounds": None, "target_bounds": None},
    ),
    "a point of units": (DPLogisticRegression, {"method": "outpert", "alpha": 5.0}),
    "a penalty on the weights of units": (DPLogisticRegression, {"alpha": 2.0**-6}),
}


def units_of(kind: type, rows_of_each: int) -> Neighbour:
    rows = UNITS * rows_of_each
    X, y = corners(kind, rows) if rows_of_each > 1 else (each[:rows] for each in table(kind))
    return Neighbour(X, y, np.arange(rows) % UNITS, f"{rows_of_each} rows of each unit")


@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("name", FAR)
def test_nothing_shows_how_many_rows_units_have(name: str, adjacency: str) -> None:
    kind, options = FAR[name]
    few, many = units_of(kind, 1), units_of(kind, 20)
    # So that the numbers of rows would call for different numbers of curves.
    settings = {"rows_per_unit": 16, "epsilon": 20.0} | options
    epsilon = settings.pop("epsilon")
    made = model(kind, adjacency=adjacency, **settings).set_params(epsilon=epsilon)
    shows_the_same(replay(made, few.X, few.y, unit=few.unit, neighbours=[many]))


@pytest.mark.parametrize("name", OPTIONS)
def test_nothing_shows_what_cells_hold_beyond_what_was_paid_for(name: str) -> None:
    kind, made = option_model(name, "replace-one")
    shows_the_same(replay(made, *table(kind), neighbours=[Neighbour(*corners(kind, ROWS))]))


@pytest.mark.parametrize("name", ["curves", "trees"])
def test_nothing_shows_in_which_corner_all_rows_are(name: str) -> None:
    """What the scores of rows are, the largest of them for instance, is not public."""
    _, made = option_model(name, "replace-one")
    one, other = (np.full((ROWS, 3), end) for end in (0.9, -0.9))
    labels = np.arange(ROWS) % 2
    made.set_params(epsilon=400.0)  # so that noise hides no sum
    shows_the_same(replay(made, one, labels, neighbours=[Neighbour(other, labels)]))


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("method", PRIVATE)
def test_no_method_shows_rows_beyond_what_was_paid_for(method: str, adjacency: str) -> None:
    kind = DPLogisticRegression
    shows_the_same(replay(model(kind, method, adjacency), *table(kind), neighbours=[Neighbour(*corners(kind, ROWS))]))
    if METHODS[method].units:
        few, many = units_of(kind, 1), units_of(kind, 20)
        made = model(kind, method, adjacency, rows_per_unit=16)
        shows_the_same(replay(made, few.X, few.y, unit=few.unit, neighbours=[many]))


# All of them -----------------------------------------------------------------------------------------------------


def combinations() -> Iterator[Any]:
    for kind, method, adjacency in product((*CLASSIFIERS, *REGRESSORS), PRIVATE, RELATIONS):
        if kind is not DPBoostedTreesClassifier or method == "auto":  # trees are grown after no other method
            yield pytest.param(kind, method, adjacency, id=f"{kind.__name__}-{method}-{adjacency}")


@pytest.mark.slow
@pytest.mark.parametrize(("kind", "method", "adjacency"), list(combinations()))
def test_every_estimator_and_method(kind: type, method: str, adjacency: str) -> None:
    pairs = 14 if kind is DPLogisticRegression else 4  # with a row and a replacement of each kind, or some
    try:
        report = replay(model(kind, method, adjacency), *table(kind), neighbours=pairs)
    except UnsupportedLoss as refused:
        pytest.skip(str(refused))
    clean(report)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("name", OPTIONS)
def test_every_option(name: str, adjacency: str) -> None:
    kind, made = option_model(name, adjacency)
    clean(replay(made, *table(kind), neighbours=14))


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("how", STORED)
def test_every_way_to_store_rows(how: str, adjacency: str) -> None:
    X, y = table(DPLogisticRegression)
    for made in (
        model(DPLogisticRegression, adjacency=adjacency, bounds=None),
        model(DPLogisticRegression, "blsgd", adjacency),
        model(DPLogisticRegression, "outpert", adjacency),
    ):
        clean(replay(made, STORED[how](X), y, neighbours=7))


def mapped(pair: Neighbour, folder: Path, name: str) -> Neighbour:
    """Return a table whose rows and labels are mapped from files."""
    files = []
    for part, values in (("X", pair.X), ("y", np.asarray(pair.y))):
        np.save(folder / f"{name}-{part}.npy", values)
        files.append(np.load(folder / f"{name}-{part}.npy", mmap_mode="r"))
    return Neighbour(*files, None, pair.change)


def parquet(pair: Neighbour, folder: Path, name: str) -> Neighbour:
    """Return a table that is read from a Parquet file block by block."""
    frame = pd.DataFrame(pair.X, columns=["a", "b", "c"]).assign(label=pair.y)
    frame.to_parquet(folder / f"{name}.parquet", row_group_size=40)
    schema = Schema(tuple(NumericColumn(each, -1, 1) for each in "abc"), Label("label", (0, 1)))
    return Neighbour(open_parquet(folder / f"{name}.parquet", schema), None, None, pair.change)


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("bounds", [(-1, 1), None], ids=["given", "measured"])
@pytest.mark.parametrize("keep", [mapped, parquet])
def test_tables_that_are_read_block_by_block(keep: Any, bounds: Any, adjacency: str, tmp_path: Path) -> None:
    made = model(DPLogisticRegression, adjacency=adjacency, bounds=bounds)
    X, y = table(DPLogisticRegression)
    pairs = draw_pairs(made, Neighbour(X, y), Relation.parse(adjacency), 4, seed=0)
    for number, pair in enumerate(pairs):
        first, second = (keep(each, tmp_path, f"{number}-{place}") for place, each in enumerate(pair))
        clean(replay(made, first.X, first.y, neighbours=[second]), hardest=0.0)


class Selected(BaseEstimator):
    """A selection among candidates as an estimator."""

    def __init__(self, adjacency: str = "zero-out", random_state: Any = None) -> None:
        self.adjacency, self.random_state = adjacency, random_state

    def fit(self, X: Any, y: Any) -> Selected:
        candidates = [model(DPLogisticRegression, alpha=alpha) for alpha in (0.01, 0.1)]
        budget = {"epsilon": 4.0, "delta": 1e-6, "adjacency": self.adjacency}
        chosen = select(candidates, X, y, **budget, random_state=self.random_state)
        self.model_, self.rest_ = chosen.model, replace(chosen, model=None)
        return self


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_selection_among_candidates(adjacency: str) -> None:
    X, y = table(DPLogisticRegression)
    clean(replay(Selected(adjacency), X, y, neighbours=8))
    shows_the_same(replay(Selected(adjacency), X, y, neighbours=[Neighbour(*corners(DPLogisticRegression, ROWS))]))


class FittedAndEvaluated(BaseEstimator):
    """A fit and its evaluation under one budget as an estimator."""

    def __init__(self, kind: type, adjacency: str, holdout: float | None, random_state: Any = None) -> None:
        self.kind, self.adjacency, self.holdout, self.random_state = kind, adjacency, holdout, random_state
        self.bounds, self.classes = (-1, 1), (0, 1)

    def fit(self, X: Any, y: Any, unit: Any = None) -> FittedAndEvaluated:
        made = model(self.kind, adjacency=self.adjacency, random_state=self.random_state)
        made.set_params(epsilon=40.0 if unit is None else 800.0, rows_per_unit=1 if unit is None else 16)
        found = fit_and_evaluate(made, X, y, holdout=self.holdout, unit=unit)
        self.model_, self.evaluation_ = found.model, found.evaluation
        return self


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
@pytest.mark.parametrize("kind", [DPLogisticRegression, DPBoostedTreesClassifier, DPAdditiveRegressor])
def test_a_fit_and_its_evaluation(kind: type, adjacency: str) -> None:
    X, y = table(kind)
    for holdout in (None, 0.3):
        made = FittedAndEvaluated(kind, adjacency, holdout)
        clean(replay(made, X, y, neighbours=4), hardest=0.0)
        shows_the_same(replay(made, X, y, neighbours=[Neighbour(*corners(kind, ROWS))]))
    few, many = units_of(kind, 1), units_of(kind, 20)
    made = FittedAndEvaluated(kind, adjacency, None)
    shows_the_same(replay(made, few.X, few.y, unit=few.unit, neighbours=[many]))


def people(rows: int, seed: int) -> tuple[pd.DataFrame, pd.Series]:
    """Return a table of text, numbers, dates and missing cells, whose labels are text."""
    generator = np.random.default_rng(seed)
    size = generator.normal(seed, 1 + seed, rows)
    days = pd.Timestamp("2020-01-01") + pd.to_timedelta(generator.integers(0, 300 * (1 + seed), rows), "D")
    frame = pd.DataFrame({"size": size, "job": generator.choice(["nurse", "smith", None], rows), "since": days})
    frame.loc[generator.random(rows) < 0.2 * seed, "size"] = np.nan
    return frame, pd.Series(np.where(size > seed, "yes", "no"))


@pytest.mark.parametrize("kind", [DPLogisticRegression, DPAdditiveClassifier])
def test_nothing_shows_what_a_table_of_text_holds_beyond_what_was_measured(kind: type) -> None:
    made = kind(20.0, 1e-5, adjacency="replace-one")
    shows_the_same(replay(made, *people(700, 0), neighbours=[Neighbour(*people(700, 1))]))


@pytest.mark.slow
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_module_of_torch(adjacency: str) -> None:
    torch = pytest.importorskip("torch")
    from dpdescent.torch import DPModuleClassifier

    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2))
    made = DPModuleClassifier(module, 4.0, 1e-6, classes=(0, 1), adjacency=adjacency)
    X, y = table(DPLogisticRegression)
    clean(replay(made, X.astype(np.float32), y, neighbours=4))  # as a module takes them: no cell becomes infinite


# Faults that it must find ----------------------------------------------------------------------------------------


def count_of(X: Any) -> int:
    """Return what nobody has paid for."""
    return int(np.count_nonzero(np.asarray(X) > 0.99))


class CountsPieces(DPAdditiveClassifier):
    """Chooses the number of curve pieces by an unpaid count."""

    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        self._pieces = 2 + count_of(X) % 2
        return super().fit(X, y, **parameters)

    def _expansion(self, *known: Any) -> Any:
        given, self.pieces = self.pieces, self._pieces
        try:
            return super()._expansion(*known)
        finally:
            self.pieces = given


class Warns(DPLogisticRegression):
    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        warnings.warn(f"{count_of(X)} cells are large", stacklevel=2)
        return super().fit(X, y, **parameters)


class Remarks(DPLogisticRegression):
    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        super().fit(X, y, **parameters)
        self.privacy_["remarks"].append(f"{count_of(X)} cells are large")
        return self


class Attribute(DPLogisticRegression):
    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        self.large_ = count_of(X)
        return super().fit(X, y, **parameters)


class HiddenAttribute(DPLogisticRegression):
    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        super().fit(X, y, **parameters)
        self._kept = {"coded": [lambda: large]} if (large := count_of(X)) else None
        return self


class LastBit(DPLogisticRegression):
    """Hides a bit of the rows in the last one of a coefficient."""

    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        super().fit(X, y, **parameters)
        if count_of(X) % 2:
            self._coefficients = np.nextafter(self._coefficients, np.inf)
        return self


class Progresses(DPLogisticRegression):
    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        if callable(self.progress):
            self.progress(count_of(X) / ROWS)
        return super().fit(X, y, **parameters)


class Prints(DPLogisticRegression):
    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        print(count_of(X))
        return super().fit(X, y, **parameters)


class Raises(DPLogisticRegression):
    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        super().fit(X, y, **parameters)
        if np.asarray(X).max() <= 0.99:
            raise InvalidParameter("no cell is large")
        return self


class AsksMore(DPLogisticRegression):
    """Sets the shares of its budget by an unpaid count."""

    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        self.method = "agd" if count_of(X) % 2 else "auto"
        return super().fit(X, y, **parameters)


COUNTS: dict[int, int] = {}


class Pickles(DPLogisticRegression):
    def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
        COUNTS[id(self)] = count_of(X)
        return super().fit(X, y, **parameters)

    def __getstate__(self) -> Any:
        return super().__getstate__() | {"large": COUNTS.get(id(self))}


FAULTS = {
    Pickles: "pickle",
    CountsPieces: "release",
    Warns: "warning",
    Remarks: "statement",
    Attribute: "attribute",
    HiddenAttribute: "attribute",
    LastBit: "attribute",
    Progresses: "progress",
    Prints: "message",
    Raises: "error",
    AsksMore: "release",
}


@pytest.mark.parametrize("kind", FAULTS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_fit_that_shows_an_unpaid_count_is_found(kind: type, adjacency: str) -> None:
    X, y = table(DPLogisticRegression)
    X *= 0.9
    other, X[-1] = X.copy(), 1.0
    second = Neighbour(other, y) if adjacency == "replace-one" else Neighbour(X[:-1], y[:-1])
    report = replay(kind(4.0, adjacency=adjacency, bounds=(-1, 1), classes=(0, 1)), X, y, neighbours=[second])
    assert FAULTS[kind] in {leak.kind for leak in report.leaks}
    assert not report.clean
    assert FAULTS[kind] in str(report)


@pytest.mark.parametrize("adjacency", RELATIONS)
def test_a_sum_that_moves_farther_than_its_sensitivity_is_found(
    adjacency: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    halved = Sensitivity.of_clipped_sum
    monkeypatch.setattr(Sensitivity, "of_clipped_sum", lambda clip: halved(clip / 2))
    report = replay(model(DPLogisticRegression, "sgd", adjacency), *table(DPLogisticRegression), neighbours=20)
    assert {leak.kind for leak in report.leaks} == {"sensitivity"}
    assert 1 < report.largest_share < 2 + 2**-20


# What it rests on ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("norm", "moved", "share"),
    [(Norm.L2, [3, 4], 25 / 64), (Norm.L1, [3, -4], 7 / 8), (Norm.MAX, [3, -4], 4 / 8), (Norm.RANGE, [3, -4], 7 / 8)],
)
def test_how_far_sums_are_apart_is_measured_in_their_norm(norm: Norm, moved: list[int], share: float) -> None:
    changes = Sensitivity(norm, 4.0, 8.0)
    sums = [
        LatticeSum(np.array(values, np.int64), 0.5, changes) for values in ([2**62, 0], [2**62 - moved[0], -moved[1]])
    ]
    assert share_of_sensitivity(*sums, Relation.ZERO_OUT) == share
    factor = 4 if norm is Norm.L2 else 2
    assert share_of_sensitivity(*sums, Relation.REPLACE_ONE) == share / factor


class Slotted:
    __slots__ = ("held",)

    def __init__(self, held: Any) -> None:
        self.held = held


@pytest.mark.parametrize(
    ("first", "second", "place"),
    [
        (0.0, -0.0, "v"),
        (np.array([[1.0, np.nan]]), np.array([[1.0, -np.nan]]), "v[0, 1]"),
        (np.float32(1), np.float64(1), "v"),
        (1, True, "v"),
        ({"a": [1, 2]}, {"a": [1, 3]}, "v['a'][1]"),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}, "v"),
        ([1], [1, 2], "v"),
        (Slotted({1}), Slotted({2}), "v.held[0]"),
        (pd.DataFrame({"a": [1.0]}), pd.DataFrame({"b": [1.0]}), "v.axes[1][0]"),
        (pd.Series([1.0], [5]), pd.Series([1.0], [6]), "v.axes[0][0]"),
        (np.array(["a", None], object), np.array(["a", 0], object), "v[1]"),
    ],
)
def test_values_differ_in_their_last_bit_and_deep_inside(first: Any, second: Any, place: str) -> None:
    assert place in {each for each, _, _ in differences(first, second, "v")}
    assert list(differences(first, first, "v")) == list(differences(second, second, "v")) == []


def test_functions_differ_in_what_they_have_closed_over() -> None:
    def closing(value: int) -> Any:
        return lambda: value

    assert list(differences(closing(1), closing(1), "v")) == []
    assert [each for each, _, _ in differences(closing(1), closing(2), "v")] == ["v.__closure__[0]"]


def test_neighbours_hold_the_hard_cells_and_differ_in_one_row() -> None:
    X, y = table(DPLogisticRegression)
    made, cells = model(DPLogisticRegression), set()
    for first, second in draw_pairs(made, Neighbour(X, y), Relation.ZERO_OUT, 60, seed=0):
        assert first.rows == second.rows + 1 == ROWS
        assert np.array_equal(first.X[:-1], second.X)
        assert np.array_equal(first.y[:-1], second.y)
        cells |= {float(each).hex() for each in first.X[-1]}
    largest = np.finfo(float).max
    for hard in (largest, -largest, 5e-324, -0.0, 1.0, -1.0, np.nextafter(1, 2), np.nextafter(1, 0)):
        assert float(hard).hex() in cells
    for first, second in draw_pairs(made, Neighbour(X, y), Relation.REPLACE_ONE, 12, seed=0):
        assert np.array_equal(first.X[:-1], second.X[:-1])
        assert first.rows == second.rows == ROWS


def test_a_fit_is_the_same_before_after_and_beside_a_replay() -> None:
    X, y = table(DPLogisticRegression)
    made = model(DPLogisticRegression, random_state=3)
    whole, before, beside = (X, y), made.fit(X, y).coef_, []

    class Meanwhile(DPLogisticRegression):
        def fit(self, X: Any, y: Any, **parameters: Any) -> Any:
            alone = model(DPLogisticRegression, random_state=3)
            other = threading.Thread(target=lambda: beside.append(alone.fit(*whole)))
            other.start()
            other.join()
            return super().fit(X, y, **parameters)

    clean(replay(Meanwhile(4.0, bounds=(-1, 1), classes=(0, 1)), X, y, neighbours=1))
    assert len(beside) == 2
    for other in (*beside, made.fit(X, y)):
        assert np.array_equal(other.coef_, before)


def test_a_point_is_drawn_only_if_it_was_paid_for() -> None:
    ledger, cost = Ledger(1.0, 0.0, currency="pure"), ExponentialMechanism(0.5)
    paid = pay((ledger,), cost, "point", (cost,), LatticeNoise())
    assert paid.draw(cost, lambda: "drawn") == "drawn"
    with pytest.raises(BudgetExhausted, match="were paid for"):
        paid.draw(ExponentialMechanism(0.6), lambda: pytest.fail("it was not paid for"))


def test_what_cannot_be_replayed_is_refused() -> None:
    X, y = table(DPLogisticRegression)
    made = model(DPLogisticRegression)
    for wrong, words in [
        ({"neighbours": 0}, "neighbours"),
        ({"neighbours": [X]}, "Neighbour"),
        ({"adjacency": "replace-one"}, "adjacency"),
    ]:
        with pytest.raises(InvalidParameter, match=words):
            replay(made, X, y, **wrong)
    with pytest.raises(InvalidParameter, match="pass adjacency"):
        replay(BaseEstimator(), X, y)
    with pytest.raises(InvalidParameter, match="no estimator"):
        replay("model", X, y)
    with pytest.raises(InvalidParameter, match="cannot be drawn"):
        replay(made, X.tolist(), y)
    with pytest.raises(InvalidParameter, match="one label for each"):
        replay(made, X, y[1:])
    with pytest.raises(InvalidParameter, match="bounds"):  # what the first fit raises
        replay(made.set_params(bounds=(1, -1)), X, y)
