"""Counts of margins, and the length and intercept that they give the weights of a tilted model."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from scipy import sparse, stats
from scipy.optimize import minimize
from scipy.special import logsumexp

from dpdescent import Adversary, DPLinearSVC, DPLogisticRegression
from dpdescent.accounting import Gaussian, Laplace
from dpdescent.curator import ArraySource, Curator
from dpdescent.errors import InvalidParameter
from dpdescent.exact import FeatureGrid
from dpdescent.ledger import Ledger
from dpdescent.problems import HuberisedHinge, LinearProblem, Logistic, Multinomial, Squared
from dpdescent.queries import MarginCounts
from dpdescent.relations import Norm
from dpdescent.solvers.output_noise import LengthSearch

GRID = FeatureGrid(1.0, 3)
WEIGHTS = np.array([1.0, -0.5, 0.25])
EDGES = np.array([-0.5, 0.0, 0.5])
ALARM = 1e-6


def cells(rows: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return rows in eighths, so that margins lie on edges too, and labels."""
    generator = np.random.default_rng(seed)
    return generator.integers(-8, 9, (rows, 3)) / 8.0, generator.choice([-1.0, 1.0], rows)


def curator(X: Any, y: np.ndarray, loss: Any = None, relation: str = "zero-out", pure: bool = False) -> Curator:
    problem = LinearProblem(loss or Logistic(), GRID, intercept=False)
    ledger = Ledger(1e12, 0.0 if pure else 1e-6, currency="pure" if pure else "gdp", relation=relation)
    return Curator(ArraySource(X, y, GRID), problem, ledger, y.size)


@pytest.mark.parametrize("stored", [np.asarray, sparse.csr_array])
def test_every_row_is_counted_once_in_the_interval_of_its_margin(stored: Any) -> None:
    X, y = cells(500)
    counts = curator(stored(X), y).answer(MarginCounts(WEIGHTS, EDGES, Gaussian(1e-3)))
    margins = X @ WEIGHTS
    assert np.isin(margins, EDGES).sum() > 20
    ends = np.array([-math.inf, *EDGES, math.inf])
    for label, found in zip((-1, 1), counts, strict=True):
        own = margins[y == label]
        expected = [((own >= low) & (own < high)).sum() for low, high in itertools.pairwise(ends)]
        np.testing.assert_array_equal(np.rint(found), expected)


def test_sensitivities_are_those_of_one_count_and_never_rounded_down() -> None:
    gaussian, laplace = (MarginCounts(WEIGHTS, EDGES, noise).sensitivity for noise in (Gaussian(1.0), Laplace(1.0)))
    assert (laplace.norm, laplace.zero_out, laplace.replace_one) == (Norm.L1, 1.0, 2.0)
    assert (gaussian.norm, gaussian.zero_out) == (Norm.L2, 1.0)
    assert 2 <= Fraction(gaussian.replace_one) ** 2 < 2 + Fraction(1, 2**46)


@pytest.mark.parametrize("relation", ["zero-out", "replace-one"])
@pytest.mark.parametrize(
    ("noise", "law"),
    [(Gaussian(7.0), stats.norm(0, 7)), (Laplace(0.2), stats.laplace(0, 5))],
    ids=["gaussian", "laplace"],
)
def test_the_noise_is_that_of_the_relation(noise: Any, law: Any, relation: str) -> None:
    """A false alarm has a probability of 1e-6; noise of a tenth more or less is refuted."""
    X, y = cells(50)
    edges = np.linspace(-2, 2, 20000)
    asked = MarginCounts(WEIGHTS, edges, noise)
    asking = curator(X, y, relation=relation, pure=isinstance(noise, Laplace))
    counts = asking.answer(asked)
    places = np.searchsorted(edges, X @ WEIGHTS, side="right")
    exact = np.array([np.bincount(places[y == label], minlength=edges.size + 1) for label in (-1, 1)])
    larger = {("laplace", "replace-one"): 2.0, ("gaussian", "replace-one"): math.sqrt(2)}
    factor = larger.get(("laplace" if isinstance(noise, Laplace) else "gaussian", relation), 1.0)
    drawn = (counts - exact).reshape(-1)
    assert stats.kstest(drawn / factor, law.cdf).pvalue > ALARM
    for wrong in (0.9, 1.1):
        assert stats.kstest(drawn * wrong / factor, law.cdf).pvalue < ALARM
    assert asked.deviation(asking.public()) == pytest.approx(factor * law.std(), rel=1e-12)
    units = replace(asking.public(), rows_per_unit=3)
    assert asked.deviation(units) == pytest.approx(3 * factor * law.std(), rel=1e-12)
    half = replace(asking.public(), rate=0.5)
    assert asked.deviation(half) == pytest.approx(2 * factor * law.std(), rel=1e-12)


@pytest.mark.parametrize(
    ("edges", "loss", "match"),
    [
        ([], None, "edges must be finite"),
        ([0.0, 0.0], None, "increasing order"),
        ([1.0, 0.5], None, "increasing order"),
        ([0.0, math.inf], None, "finite"),
        ([math.nan], None, "finite"),
        ([[0.0]], None, "edges must"),
        ([0.0], Squared(), "two classes"),
        ([0.0], Multinomial(3), "two classes"),
    ],
)
def test_what_cannot_be_counted_is_refused_before_it_is_paid_for(edges: Any, loss: Any, match: str) -> None:
    X, y = cells(20)
    asking = curator(X, np.abs(y) if loss else y, loss)
    with pytest.raises(InvalidParameter, match=match):
        asking.answer(MarginCounts(np.ones(asking.problem.shape), np.array(edges), Gaussian(1.0)))
    assert asking.ledger.entries == ()


# The search -------------------------------------------------------------------------------------------------------


def counted(search: LengthSearch, margins: np.ndarray, labels: np.ndarray) -> np.ndarray:
    places = np.searchsorted(search.edges, margins, side="right")
    return np.array(
        [np.bincount(places[labels == label], minlength=search.edges.size + 1).astype(float) for label in (-1, 1)]
    )


def some_margins(rows: int = 20000) -> tuple[np.ndarray, np.ndarray]:
    """Return margins of a model that is right about most rows of an uneven table."""
    generator = np.random.default_rng(3)
    labels = np.where(generator.uniform(size=rows) < 0.25, 1.0, -1.0)
    return 1.5 * labels + generator.normal(0, 2, rows) - 1.0, labels


def tilted(margins: np.ndarray, labels: np.ndarray, tilt: float) -> float:
    return float((logsumexp(tilt * np.logaddexp(0, -labels * margins)) - math.log(labels.size)) / tilt)


def search_for(tilt: float, intercept: bool = True, **options: Any) -> LengthSearch:
    return LengthSearch(Logistic(), tilt, np.array([0.0, 2.0, 1.5]), intercept, 2.0, **options)


@pytest.mark.parametrize("intercept", [False, True])
@pytest.mark.parametrize("tilt", [0.01, 0.3, 1.0, 10.0])
def test_exact_counts_give_nearly_the_best_length_and_intercept(tilt: float, intercept: bool) -> None:
    """Against a search over the margins themselves; intervals that double cost little."""
    margins, labels = some_margins()
    search = search_for(tilt, intercept)
    length, shift = search.best(counted(search, margins, labels), 0.01)
    best = minimize(
        lambda at: tilted(abs(at[0]) * margins + intercept * at[1], labels, tilt), [0.5, 0.1], method="Nelder-Mead"
    )
    assert intercept or shift == 0
    found = tilted(length * margins + shift, labels, tilt)
    assert best.fun - 1e-6 <= found < best.fun + 0.02
    assert tilt < 0.1 or found < tilted(margins, labels, tilt) - 0.01


def test_a_larger_tilt_makes_shorter_weights() -> None:
    margins, labels = some_margins()
    lengths = [
        search_for(tilt).best(counted(search_for(tilt), margins, labels), 1.0)[0] for tilt in (0.1, 1, 10, 100)
    ]
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[-1] < 0.1 * lengths[0]
    assert lengths[-1] > 0


def test_the_search_minimises_what_it_says() -> None:
    """Against a search without derivatives over rows in the middle of their intervals, with an adversary."""
    margins, labels = some_margins()
    moved = 0.2 * 2.0  # the radius times the length of the weights without the intercept
    for loss in (Logistic(), HuberisedHinge()):
        support = Adversary(0.2).support(3, True)
        search = replace(search_for(1.0, support=support), loss=loss)
        middles = search.typical_margin * 2.0 ** (np.arange(-5.0, 3.0) + 0.5)
        counts = counted(search, margins, labels)
        places = np.concatenate([-middles[::-1], [0.0], middles])

        def value(
            at: np.ndarray, loss: Any = loss, counts: np.ndarray = counts, places: np.ndarray = places
        ) -> float:
            total = 0.0
            for label, row in zip((-1.0, 1.0), counts, strict=True):
                shifted = at[0] * (places - label * moved) + at[1]
                total += float(row @ np.exp(loss.values(shifted, np.full(places.size, label))))
            return math.log(total / counts.sum())

        best = minimize(lambda at: value(np.array([abs(at[0]), at[1]])), [0.5, 0.1], method="Nelder-Mead")
        assert value(np.array(search.best(counts, 1e-9))) == pytest.approx(best.fun, abs=1e-6)


def test_what_noise_may_hide_makes_weights_shorter(monkeypatch: pytest.MonkeyPatch) -> None:
    margins, labels = some_margins()
    longer = replace(search_for(1.0), row_length=8.0)  # half a typical margin is 10
    counts = counted(longer, margins, labels)
    for deviation in (10.0, 100.0):
        length = longer.best(counts, deviation)[0]
        with monkeypatch.context() as patched:
            patched.setattr("dpdescent.solvers.output_noise._HIDDEN", 0.0)
            assert length < 0.97 * longer.best(counts, deviation)[0]
    search = search_for(1.0)
    counts = counted(search, margins, labels)
    # Where nothing is sure, a row has at most e times its share: 2 |w| times the tilt is 5.
    assert search.best(counts, 1e6) == (pytest.approx(0.2), 0.0)
    assert search_for(0.01).best(counts, 1e6) == (1.0, 0.0)
    assert search.best(-counts, 1.0) == (pytest.approx(0.2), 0.0)


def test_counts_that_are_noise_are_not_believed() -> None:
    """A single interval far out with three deviations of noise changes nothing but the totals."""
    margins, labels = some_margins()
    search = search_for(10.0)
    counts = counted(search, margins, labels)
    noisy = counts.copy()
    noisy[:, [0, -1]] += 300.0
    noisy[:, 8] -= 600.0
    counts[:, 8] -= 600.0
    counts[:, [0, -1]] = 0.0
    assert search.best(noisy, 100.0)[0] == pytest.approx(search.best(counts, 100.0)[0], rel=0.05)
    assert search.best(noisy, 50.0)[0] < 0.8 * search.best(counts, 50.0)[0]


def test_a_class_that_noise_hides_does_not_move_the_intercept() -> None:
    search = LengthSearch(Logistic(), 1.0, np.array([2.0, 0.0, 1.5]), True, 2.0)
    counts = np.zeros((2, search.edges.size + 1))
    counts[0, 5:12] = [600, 300, 100, 50, 30, 20, 10]
    counts[1, 8:16] = 60.0
    for some in (counts, counts[::-1]):
        assert search.best(some, 100.0) == (pytest.approx(0.2), 0.0)
    # A class of which a part is seen counts for its total.
    counts[1, 8:16] = [60.0, 60.0, 60.0, 60.0, 450.0, 60.0, 60.0, 60.0]
    partly = search.best(counts, 100.0)
    counts[1] = 0.0
    counts[1, 12] = 870.0
    assert search.best(counts, 100.0) == pytest.approx(partly)


def test_weights_of_zero_have_a_length() -> None:
    search = LengthSearch(Logistic(), 1.0, np.zeros(3), True, 2.0)
    assert (np.diff(search.edges) > 0).all()
    length, shift = search.best(np.full((2, search.edges.size + 1), 100.0), 1.0)
    assert np.isfinite(search.rescale(length, shift)).all()


def test_the_length_applies_to_all_weights_and_the_shift_to_the_intercept() -> None:
    np.testing.assert_array_equal(search_for(1.0).rescale(0.5, 0.25), [0.0, 1.0, 1.0])
    np.testing.assert_array_equal(search_for(1.0, False).rescale(0.5, 0.25), [0.0, 1.0, 0.75])


# Estimators -------------------------------------------------------------------------------------------------------


def rows_of(count: int) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    X = generator.uniform(-1, 1, (count, 6))
    scores = X @ np.array([3.0, -2.0, 1.0, 0.5, 0.0, 0.0]) - 1.0
    return X, np.where(generator.uniform(size=count) < 1 / (1 + np.exp(-scores)), 1, -1)


def model_of(tilt: float, **options: Any) -> DPLogisticRegression:
    given = {"bounds": (-1.0, 1.0), "classes": (-1, 1), "random_state": 0, "tighten": False} | options
    return DPLogisticRegression(0.8, 1e-8, method="outpert", tilt=tilt, **given)


@pytest.mark.parametrize(("rows", "epsilon"), [(3000, 0.2), (3000, 0.4), (20000, 0.05)])
def test_few_rows_keep_the_accuracy_of_the_mean_loss(rows: int, epsilon: float) -> None:
    X, y = rows_of(rows)
    given = {"epsilon": epsilon}
    for seed in range(3):
        plain = model_of(0.0, random_state=seed).set_params(**given).fit(X, y).score(X, y)
        for tilt in (1.0, 10.0):
            model = model_of(tilt, random_state=seed).set_params(**given).fit(X, y)
            assert model.score(X, y) > plain - 0.03
            assert tilted(model.decision_function(X), y, tilt) < math.log(2) + 0.02


def test_the_adversary_reaches_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    searched = []
    best = LengthSearch.best

    def listening(search: LengthSearch, counts: np.ndarray, deviation: float) -> tuple[float, float]:
        searched.append((search, deviation))
        return best(search, counts, deviation)

    monkeypatch.setattr(LengthSearch, "best", listening)
    X, y = rows_of(3000)
    unit = np.arange(3000) // 2
    for relation, larger in (("zero-out", 1.0), ("replace-one", math.sqrt(2))):
        options: dict[str, Any] = {"adjacency": relation, "rows_per_unit": 2}
        model = model_of(1.0, adversary=Adversary(0.05), **options).fit(X, y, unit=unit)
        search, deviation = searched.pop()
        assert search.support is not None
        assert search.tilt == 1.0
        charge = next(each for each in model.privacy_["charges"] if each["label"] == "margin counts")
        assert deviation == pytest.approx(2 * larger * charge["mechanism"]["noise_multiplier"], rel=1e-9)


@pytest.mark.parametrize("delta", [1e-8, 0.0])
def test_the_parts_of_the_budget_are_those_of_the_rule(delta: float) -> None:
    X, y = rows_of(3000)
    for pure in {False, delta > 0}:
        options = {"solver_options": {"pure": True}} if pure else {}
        model = model_of(1.0, **options).set_params(delta=delta).fit(X, y)
        shares = model.privacy_["spent_on"]
        parts = {"mean row norm": 0.01, "minimiser": 0.94, "margin counts": 0.05}
        assert shares == pytest.approx(parts, rel=1e-6)
        assert model.privacy_["spent_epsilon"] <= 0.8


def test_a_tilt_that_is_next_to_nothing_is_none() -> None:
    X, y = rows_of(300)
    with np.errstate(all="raise"):
        plain, tiny = (
            DPLinearSVC(
                1.0,
                1e-6,
                method="outpert",
                bounds=(-1, 1),
                classes=(-1, 1),
                tilt=tilt,
                random_state=0,
                tighten=False,
                fit_intercept=False,
            ).fit(X[:, :1], y)
            for tilt in (0.0, 5e-324)
        )
    np.testing.assert_array_equal(plain.coef_, tiny.coef_)


@pytest.mark.parametrize("adversary", [None, Adversary(0.05)])
def test_every_tilt_keeps_the_accuracy_of_the_mean_loss(adversary: Adversary | None) -> None:
    """And has a tilted loss that is not far from that of a model without privacy, at every tilt."""
    X, y = rows_of(20000)
    design = np.column_stack([X, np.ones(y.size)])
    plain = model_of(0.0, adversary=adversary).fit(X, y).score(X, y)
    for tilt in (1e-6, 1e-3, 0.03, 0.3, 1.0, 10.0, 1e3):
        model = model_of(tilt, adversary=adversary).fit(X, y)
        assert model.score(X, y) > plain - 0.01
        if adversary is None and 0.01 < tilt < 100:
            best = minimize(lambda w, t=tilt: tilted(design @ w, y, t), np.zeros(7), method="L-BFGS-B")
            assert tilted(model.decision_function(X), y, tilt) < best.fun + 0.05


@pytest.mark.parametrize(
    ("options", "counts"),
    [
        ({}, True),
        ({"adjacency": "replace-one"}, True),
        ({"solver_options": {"pure": True}}, True),
        ({"solver_options": {"paper": True}}, False),
        ({"solver_options": {"sigma": "paper"}}, False),
        ({"solver_options": {"tilting": "objective"}}, False),
        ({"solver_options": {"radius": 1.0}}, False),
        ({"solver_options": {"strong_convexity": 50.0}}, False),
        ({"classes": (-1, 1, 3)}, False),
    ],
    ids=str,
)
def test_the_tilted_objective_itself_is_minimised_on_request(options: dict[str, Any], counts: bool) -> None:
    X, y = rows_of(3000)
    model = model_of(1.0, **options).fit(X, y)
    statement = model.privacy_
    assert ("margin counts" in statement["spent_on"]) is counts
    assert any("counts of margins" in each for each in statement["remarks"]) is counts
    assert any("losses were tilted by 1" in each for each in statement["remarks"]) is not counts
    assert statement["spent_epsilon"] <= 0.8


def test_an_unknown_way_of_tilting_is_refused_by_name() -> None:
    X, y = rows_of(50)
    with pytest.raises(InvalidParameter, match=r"'tilting' .* must be 'length' or 'objective', got 'both'"):
        model_of(1.0, solver_options={"tilting": "both"}).fit(X, y)
