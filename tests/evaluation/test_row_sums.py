"""What a row can change in the sums of an evaluation: brute force, neighbours of every kind, and whole replays."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from sklearn.base import BaseEstimator

from dpdescent import DPLinearRegression, DPLogisticRegression, DPPoissonRegressor, Gaussian, evaluate
from dpdescent.audit import replay
from dpdescent.evaluation.row_sums import STEPS, CoarseScores, ErrorSums, Ladders, RowSum, Scored, ScoresByClass
from dpdescent.evaluation.scoring import EvaluatedRows, scorer_of

TWO = ScoresByClass(((-1.0, 0.0, 2.0),), 1, 2)
THREE = ScoresByClass(((0.2, 0.5), (0.4,), (0.1, 0.3, 0.9)), None, 3)
SUMS: dict[str, RowSum] = {
    "coarse": CoarseScores((-1.0, 0.0, 1.0)),
    "coarse of three": CoarseScores((0.2, 0.5), 3),
    "two classes": TWO,
    "three classes": THREE,
    "ladders": Ladders(deviance=False),
    "ladders of counts": Ladders(deviance=True),
    "errors": ErrorSums(1.5, 0.5, 2.0),
    "errors counted": ErrorSums(1.5, 0.5, 2.0, counted=True),
    "errors of counts": ErrorSums(1.5, 0.5, 2.0, 0.75),
    "errors of counts counted": ErrorSums(1.5, 0.5, 2.0, 0.75, counted=True),
}
HARD = [
    -np.inf,
    -1e300,
    -2.0,
    -1.0,
    np.nextafter(-1.0, 0),
    -0.0,
    0.0,
    5e-324,
    0.25,
    0.5,
    1.0,
    2.0,
    3.7,
    1e300,
    np.inf,
    np.nan,
]


def rows_for(kind: str) -> list[Scored]:
    """Return single rows of all kinds, hard ones among them."""
    wanted = SUMS[kind]
    if isinstance(wanted, Ladders | ErrorSums):
        targets = [0.0, -1.5, 0.5, 2.5, -3.0, 1e9]
        return [Scored(np.array([[p]]), np.array([t])) for p, t in itertools.product(HARD, targets)]
    if kind in ("coarse", "two classes"):
        return [Scored(np.array([[s]]), np.array([label])) for s, label in itertools.product(HARD, (0, 1))]
    scores = itertools.product((0.0, 0.3, 0.95, np.nan), repeat=3)
    return [
        Scored(np.array([each]), np.array([label]), np.array([decided]))
        for each, label, decided in itertools.product(scores, range(3), range(3))
    ]


@pytest.mark.parametrize("kind", SUMS)
def test_no_row_moves_a_sum_beyond_its_sensitivity_and_some_row_reaches_it(kind: str) -> None:
    wanted = SUMS[kind]
    added = np.array([wanted.add(each) for each in rows_for(kind)]) / STEPS
    removed = np.linalg.norm(added, axis=1).max()
    replaced = max(np.linalg.norm(added - each, axis=1).max() for each in added)
    bound = wanted.sensitivity
    assert removed <= bound.zero_out <= removed * (1 + 1e-4)  # not larger than it must be, either
    assert replaced <= bound.replace_one <= replaced * 1.04


@pytest.mark.parametrize("kind", SUMS)
def test_units_of_fewer_and_more_rows_stay_within_the_sensitivity_of_their_rows(kind: str) -> None:
    wanted, generator, most = SUMS[kind], np.random.default_rng(1), 3
    added = np.array([wanted.add(each) for each in rows_for(kind)]) / STEPS
    part = wanted.noised(Gaussian(1.0), most)
    for _ in range(300):
        before, after = (generator.choice(len(added), generator.integers(0, most + 1)) for _ in range(2))
        first, second = added[before].sum(axis=0), added[after].sum(axis=0)
        assert np.linalg.norm(first) <= part.sensitivity.zero_out
        assert np.linalg.norm(first - second) <= part.sensitivity.replace_one


@pytest.mark.parametrize("kind", SUMS)
def test_a_sum_is_that_of_its_rows_in_any_blocks(kind: str) -> None:
    wanted, rows = SUMS[kind], rows_for(kind)
    decided = None if rows[0].decided is None else np.concatenate([each.decided for each in rows])
    whole = Scored(
        np.concatenate([each.scores for each in rows]), np.concatenate([each.labels for each in rows]), decided
    )
    assert np.array_equal(wanted.add(whole), np.sum([wanted.add(each) for each in rows], axis=0))


def test_errors_replaced_on_a_fine_grid_stay_below_the_derived_bound() -> None:
    u = np.linspace(-1, 1, 81)
    errors = np.stack([u, u * u, np.abs(u)], axis=1)
    targets = np.stack([u, u * u], axis=1)
    for columns, bound in ((errors, 4.0), (targets, 4.0)):
        apart = ((columns[:, None, :] - columns[None, :, :]) ** 2).sum(axis=2)
        assert apart.max() == pytest.approx(bound)


def test_replaced_rows_need_more_noise_than_removed_ones() -> None:
    for wanted in SUMS.values():
        assert wanted.sensitivity.replace_one > 1.1 * wanted.sensitivity.zero_out


class Evaluated(BaseEstimator):
    """An evaluation as an estimator, so that it can be replayed on neighbours."""

    def __init__(
        self, model, adjacency="zero-out", rows_per_unit=1, random_state=None, rate=None, bounds=None, classes=None
    ):
        self.model, self.adjacency, self.rows_per_unit = model, adjacency, rows_per_unit
        self.random_state, self.rate, self.bounds, self.classes = random_state, rate, bounds, classes

    def fit(self, X, y, unit=None):
        found = evaluate(
            self.model.fitted,
            X,
            y,
            epsilon=1.0,
            delta=1e-6,
            adjacency=self.adjacency,
            unit=unit,
            rows_per_unit=self.rows_per_unit,
            random_state=self.random_state,
            rate=self.rate,
        )
        self.text_, self.privacy_ = found.to_json(), found.privacy
        return self


class Fitted:
    """Holds a fitted model, which copies share."""

    def __init__(self, fitted):
        self.fitted = fitted

    def __deepcopy__(self, memo):
        return self


def table(rows: int = 400):
    generator = np.random.default_rng(0)
    X = generator.uniform(-1, 1, (rows, 3))
    return X, X @ [1.0, -0.5, 0.25], generator


def models():
    X, line, generator = table()
    signs = (line + generator.normal(0, 0.3, line.size) > 0).astype(int)
    three = np.digitize(line + generator.normal(0, 0.3, line.size), (-0.4, 0.4))
    counts = generator.poisson(np.exp(line))
    common = {"epsilon": 5.0, "delta": 1e-6, "bounds": (-1, 1), "random_state": 0}
    yield "two", DPLogisticRegression(classes=(0, 1), **common).fit(X, signs), X, signs
    yield "three", DPLogisticRegression(classes=(0, 1, 2), **common).fit(X, three), X, three
    yield "number", DPLinearRegression(target_bounds=(-2, 2), **common).fit(X, line), X, line
    yield "count", DPPoissonRegressor(target_bounds=(0, 20), **common).fit(X, counts), X, counts


def test_of_a_unit_the_first_rows_are_scored_and_no_more() -> None:
    owners, X = np.array([7, 3, 7, 7, 3, 9, 7]), np.arange(7.0)[:, None]
    rows = EvaluatedRows.of(scorer_of(lambda block: block[:, 0], None, "number", True), X, X[:, 0], owners, 2)
    assert sorted(rows.table[:, 0].tolist()) == sorted(rows.labels.tolist()) == [0, 1, 2, 4, 5]
    assert (rows.count, rows.most_rows, rows.public_rows) == (3, 6, None)


@pytest.mark.parametrize("adjacency", ["zero-out", "replace-one"])
@pytest.mark.parametrize("units", [False, True])
def test_replayed_evaluations_show_nothing_that_was_not_paid_for(adjacency: str, units: bool) -> None:
    for name, model, X, y in models():
        public = {"bounds": (-1, 1), "classes": getattr(model, "classes", None)}
        asked = Evaluated(Fitted(model), adjacency, 2 if units else 1, **public, rate=0.3 if name == "two" else None)
        report = replay(
            asked, X, y, unit=np.arange(len(y)) // 2 if units else None, neighbours=4, adjacency=adjacency
        )
        assert report.clean, f"{name}: {report}"
        assert report.largest_share > 0.2


def test_a_sensitivity_that_forgets_the_replaced_row_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    right = CoarseScores.sensitivity.fget
    halved = property(lambda self: replace(right(self), zero_out=0.5, replace_one=0.5))
    monkeypatch.setattr(CoarseScores, "sensitivity", halved)
    _, model, X, y = next(iter(models()))
    report = replay(Evaluated(Fitted(model), "replace-one", bounds=(-1, 1), classes=(0, 1)), X, y, neighbours=4)
    assert not report.clean


def test_noise_has_the_deviation_that_intervals_are_told() -> None:
    """False alarms: 1e-6 for each side (a chi-square of 600 counts)."""
    from scipy.stats import chi2

    X = np.zeros((60, 1))
    found = [
        evaluate(
            lambda block: np.zeros(len(block)),
            X,
            np.arange(60) % 2,
            classes=(0, 1),
            scores="logit",
            epsilon=2.0,
            delta=1e-6,
            random_state=seed,
            rows_separate=True,
        )
        for seed in range(75)
    ]
    cells = np.array([(np.array(each.cells) - [[30, 0], [30, 0]]) / each.cell_deviation for each in found])
    total = float((cells**2).sum())
    assert chi2.ppf(1e-6, cells.size) < total < chi2.ppf(1 - 1e-6, cells.size)
    assert math.isclose(found[0].cell_deviation, 2 * found[0].scores[0].deviation * math.sqrt(0.75), rel_tol=1e-5)
