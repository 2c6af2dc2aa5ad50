"""Curves are made from public quantities, each row by itself; terms add up to scores; bands tell what noise does."""

from __future__ import annotations

import math
import pickle
import sys
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

from browser import measured, needs_browser
from dpdescent import (
    Adversary,
    BoundedEncoder,
    DPAdditiveClassifier,
    DPAdditiveHuberRegressor,
    DPAdditivePoissonRegressor,
    DPAdditiveRegressor,
    DPHuberRegressor,
    DPLinearRegression,
    DPLogisticRegression,
    DPPoissonRegressor,
    InvalidParameter,
    Ledger,
)
from dpdescent.errors import MissingPackage, OutputNotWritable
from dpdescent.estimators.curves import Curve, Curves
from dpdescent.estimators.scaling import ColumnScaling
from dpdescent.exact import FeatureGrid
from dpdescent.problems import Frame, Whitening
from dpdescent.solvers.coordinates import AverageNoise
from dpdescent.statement import headline

DELTA = 1e-6
BOUNDS = ([-4.0, 0.0, 1.0, 0.0], [16.0, 1000.0, 1000.0, 1.0])
WIDE = {0: 10, 1: 10, 2: 9}  # doublings: 0 lies within or at a bound, or log2(1 + 999/1) = 9.97 rounded down


def table(rows: int = 4000, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """Return two wide columns, one with both signs, a positive one and a 0/1 column; and labels that bend in two."""
    generator = np.random.default_rng(seed)
    X = np.column_stack(
        [
            generator.uniform(-5, 17, rows),
            10 ** generator.uniform(-1, 3, rows),
            generator.uniform(1, 1000, rows),
            generator.random(rows) < 0.3,
        ]
    )
    score = 3 * np.cos(X[:, 0] / 3) + 1.5 * np.log10(X[:, 1]) - 2 + X[:, 3]
    return X, (generator.random(rows) < 1 / (1 + np.exp(-score))).astype(int)


def classifier(epsilon: float = 1.0, **options: object) -> DPAdditiveClassifier:
    public = {"bounds": BOUNDS, "tighten": False, "binary_features": [3], "classes": (0, 1)}
    given = public | {"random_state": 0} | options
    return DPAdditiveClassifier(epsilon, DELTA, **given)


def curves(pieces: int, knots: dict[int, np.ndarray] | None = None) -> Curves:
    return Curves.drawn(ColumnScaling.from_bounds(BOUNDS, 4), [0, 1, 2], pieces, knots or {})


@pytest.mark.parametrize("doublings", [0, 7, 10])
def test_a_scale_counts_doublings_and_has_an_inverse(doublings: int) -> None:
    curve = Curve(0, -1.0, 1.0, doublings, np.empty(0))
    scaled = np.linspace(-1, 1, 1001)
    positions = curve.positions(scaled)
    assert (np.diff(positions) > 0).all()
    assert positions[[0, 500, 1000]].tolist() == [-1, 0, 1]
    np.testing.assert_allclose(curve.cells(positions), scaled, atol=1e-14)
    if doublings:
        powers = (2.0 ** np.arange(doublings + 1) - 1) / (2.0**doublings - 1)
        np.testing.assert_allclose(curve.positions(powers), np.arange(doublings + 1) / doublings, atol=1e-14)


@pytest.mark.parametrize("pieces", [1, 2, 5, 8])
def test_curves_are_all_functions_that_are_straight_between_their_knots(pieces: int) -> None:
    expansion = curves(pieces)
    assert {curve.column: curve.doublings for curve in expansion.curves if curve.doublings} == WIDE
    generator = np.random.default_rng(0)
    for curve, place in zip(expansion.curves, expansion.places, strict=True):
        ends = curve.positions(np.array([curve.low, curve.high]))
        stops = np.unique([*ends, 0.0, *curve.knots])
        spread = 1.5 / (max(pieces // 2, 1) if curve.doublings else pieces)
        assert np.diff(stops).max() <= spread + 1e-12
        heights = generator.normal(size=stops.size)
        scaled = np.sort(np.append(generator.uniform(curve.low, curve.high, 300), curve.cells(stops)))
        rows = np.tile(expansion.scaling.shift, (scaled.size, 1))
        rows[:, curve.column] += expansion.scaling.scale[curve.column] * scaled
        coded = expansion.apply(rows).toarray()
        basis = np.column_stack([np.ones(scaled.size), coded[:, place], *([] if curve.doublings else [scaled])])
        wanted = np.interp(curve.positions(scaled), stops, heights)
        found = basis @ np.linalg.lstsq(basis, wanted, rcond=None)[0]
        assert basis.shape[1] == stops.size  # and none of them is there twice
        np.testing.assert_allclose(found, wanted, atol=1e-9)


def test_expanded_rows_are_sparse_short_and_zero_where_the_table_is() -> None:
    X, _ = table(500)
    expansion = curves(8)
    coded = expansion.apply(X)
    assert sparse.issparse(coded)
    assert coded.shape == (500, expansion.columns)
    assert np.abs(coded.data).max() <= 1
    for curve, place in zip(expansion.curves, expansion.places, strict=True):
        hats = coded[:, place].toarray()[:, curve.width - curve.knots.size :]
        assert (np.count_nonzero(hats, axis=1) <= 2).all()
        assert (hats >= 0).all()
        assert (hats.sum(axis=1) <= 1 + 1e-12).all()
    # Scaled columns, and for each of three columns two hats, a position on the second scale and, for one, two sizes.
    assert sparse.linalg.norm(coded, axis=1).max() <= math.sqrt(4 + 3 * (1 + 1 + 1) + 2)
    assert expansion.apply(expansion.scaling.shift[None, :]).nnz == 0


def test_a_row_is_expanded_by_itself_to_the_last_bit_however_it_is_stored() -> None:
    X, _ = table(301)
    X[::3, 1] = 0
    whole = curves(8).apply(X).toarray()
    for rows in (slice(0, 1), slice(7, 8), slice(3, 300), slice(100, 117)):
        np.testing.assert_array_equal(curves(8).apply(X[rows]).toarray(), whole[rows])
    np.testing.assert_array_equal(curves(8).apply(X[::-1]).toarray(), whole[::-1])
    np.testing.assert_array_equal(curves(8).apply(sparse.csr_array(X)).toarray(), whole)
    np.testing.assert_array_equal(curves(8).apply(np.clip(X, *BOUNDS)).toarray(), whole)


def test_knots_follow_what_privacy_leaves_of_the_rows_and_nothing_in_them() -> None:
    X, y = table(4000)
    found = [classifier(epsilon).fit(X, y).coef_.shape[1] for epsilon in (1e-3, 0.05, 0.5, 2.0, 20.0)]
    assert found[0] == 4
    assert found == sorted(found)
    assert len(set(found)) > 3
    others = classifier(2.0).fit(np.full_like(X, 0.5), 1 - y)._features.curves
    for one, other in zip(classifier(2.0).fit(X, y)._features.curves, others, strict=True):
        facts = [(curve.column, curve.doublings, curve.low, curve.high) for curve in (one, other)]
        assert facts[0] == facts[1]
        np.testing.assert_array_equal(one.knots, other.knots)
    assert classifier(2.0, adjacency="replace-one").fit(X, y).coef_.shape[1] < found[3]
    assert classifier(2.0, classes=(0, 1, 2)).fit(X, y).coef_.shape[1] < found[3]


@pytest.mark.parametrize("pieces", [1, 16])
def test_the_same_bits_are_learnt_from_dense_and_sparse_tables(pieces: int) -> None:
    X, y = table(1000)
    X[::2, :3] = 0
    dense, few = (classifier(pieces=pieces).fit(each, y).coef_ for each in (X, sparse.csr_array(X)))
    np.testing.assert_array_equal(dense, few)


def test_curves_follow_bounds_that_are_measured() -> None:
    X, y = table(8000)
    model = classifier(2.0, bounds=None).fit(X, y)
    low, high = model.bounds_
    assert model._features.curves
    for term in model.terms_:
        if term.kind == "curve":
            column = int(term.column[1:])
            np.testing.assert_allclose(term.grid[[0, -1]], [low[column], high[column]])
    assert model.score(X, y) > 0.8
    assert model.privacy_["spent_epsilon"] <= 2.0


def test_curves_have_as_many_pieces_as_the_effective_rows_pay_for() -> None:
    """64 effective rows per added column for two pieces and more, 45 for one, and a share of them for each class."""
    scaling = ColumnScaling.from_bounds(BOUNDS, 4)
    added = {pieces: curves(pieces).columns - 4 for pieces in (16, 8, 4, 2, 1)}
    for pieces, fewer, needed in ((16, 8, 64), (8, 4, 64), (4, 2, 64), (2, 1, 64), (1, 0, 45)):
        for outputs in (1, 3):
            rows = math.ceil(outputs * needed * added[pieces])  # one effective row each at delta 0 and epsilon 1
            for given, found in ((rows, pieces), (rows - 1, fewer)):
                model = DPAdditiveClassifier(1.0, 0.0, bounds=BOUNDS, classes=(0, 1))
                drawn = model._expansion(scaling, np.array([False, False, False, True]), given, outputs)
                assert drawn.columns - 4 == added.get(found, 0)


def test_a_second_scale_has_half_as_many_pieces() -> None:
    scaling = ColumnScaling(np.array([0.0]), np.array([1000.0]))
    for pieces, knots in ((1, [0]), (2, [1, 0]), (4, [3, 1]), (16, [15, 7])):
        drawn = Curves.drawn(scaling, [0], pieces, {}).curves
        assert [curve.knots.size for curve in drawn] == knots
        assert drawn[-1].doublings == 10


def test_no_pieces_are_the_linear_model() -> None:
    X, y = table(2000)
    given = {"bounds": BOUNDS, "tighten": False, "binary_features": [3], "classes": (0, 1)}
    linear = DPLogisticRegression(1.0, DELTA, random_state=0, **given)
    inside = np.clip(X, *BOUNDS)
    expected = linear.fit(X, y).decision_function(inside)
    np.testing.assert_allclose(classifier(pieces=0).fit(X, y).decision_function(X), expected, atol=1e-9)


def test_curves_are_learnt_where_lines_see_nothing() -> None:
    X, y = table(8000)
    given = {"bounds": BOUNDS, "tighten": False, "binary_features": [3], "classes": (0, 1)}
    linear = DPLogisticRegression(1.0, DELTA, random_state=0, **given)
    assert linear.fit(X, y).score(X, y) < 0.73
    assert classifier(1.0).fit(X, y).score(X, y) > 0.82
    generator = np.random.default_rng(0)
    x = generator.uniform(0, 10, (8000, 1))
    target = np.sin(x[:, 0])
    options = {"bounds": (0, 10), "random_state": 0}
    noisy = target + generator.normal(0, 0.2, 8000)
    assert DPAdditiveRegressor(1.0, DELTA, **options).fit(x, noisy).score(x, target) > 0.8
    assert DPLinearRegression(1.0, DELTA, **options).fit(x, noisy).score(x, target) < 0.2


def test_knots_of_a_caller_are_where_curves_bend() -> None:
    generator = np.random.default_rng(0)
    x = pd.DataFrame({"a": generator.uniform(0, 10, 5000), "b": generator.uniform(0, 10, 5000)})
    y = np.minimum(x["a"], 7.0) / 7
    model = DPAdditiveRegressor(1e3, DELTA, bounds=(0, 10), knots={"a": [7.0], 1: []}, random_state=0).fit(x, y)
    assert model.coef_.shape == (3,)
    assert model.score(x, y) > 0.999
    assert "knots: where curves may bend (argument)" in model.privacy_["assumed_public"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"pieces": -1}, "pieces must be a whole number"),
        ({"pieces": 2.5}, "pieces must be a whole number"),
        ({"pieces": 10**6}, "pieces must be at most 1024"),
        ({"knots": [1.0]}, "knots must map columns to numbers"),
        ({"knots": {0: [17.0]}}, "knots of column 0 must lie between its bounds -4 and 16"),
        ({"knots": {0: [-4.0]}}, "must lie between its bounds"),
        ({"knots": {0: [math.nan]}}, "must lie between its bounds"),
        ({"knots": {0: "high"}}, "knots of column 0 must be numbers"),
        ({"knots": {4: [1.0]}}, "which is no column"),
        ({"knots": {"age": [1.0]}}, "which is no column"),
        ({"knots": {3: [0.5]}}, "which binary_features declares"),
        ({"bounds": (0.0, math.inf)}, "must be finite"),
        ({"bounds": None, "knots": {0: [1.0]}}, "give both or neither"),
        ({"bounds": None, "pieces": -1}, "pieces must be a whole number"),
        ({"adversary": Adversary(0.1), "method": "outpert"}, "leave it out, or use DPLogisticRegression"),
    ],
)
def test_bad_parameters_are_refused_by_name_before_anything_is_charged(options, message) -> None:
    X, y = table(200)
    ledger = Ledger(2.0, DELTA, currency="gdp")
    with pytest.raises(InvalidParameter, match=message):
        classifier(ledger=ledger, **options).fit(X, y)
    assert ledger.entries == ()


def test_terms_add_up_to_scores() -> None:
    X, y = table(4000)
    names = ["sea", "money", "weight", "flag"]
    model = classifier(3.0).fit(pd.DataFrame(X, columns=names), y)
    terms = {term.column: term for term in model.terms_}
    assert set(terms) == set(names)
    importances = [term.importance for term in model.terms_]
    assert importances == sorted(importances, reverse=True)
    assert model.terms_[0].column == "sea"
    scores = model.intercept_ + terms["flag"].effect[0] * X[:, 3]
    for name, column in zip(names[:3], np.clip(X, *BOUNDS).T, strict=False):
        scores += np.interp(column, terms[name].grid, terms[name].effect)  # straight between the points of the grid
    np.testing.assert_allclose(scores, model.decision_function(pd.DataFrame(X, columns=names)), atol=1e-9)
    loaded = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(loaded.terms_[0].effect, model.terms_[0].effect)
    with pytest.raises(NotFittedError):
        _ = clone(model).terms_


def test_levels_of_one_column_are_one_term() -> None:
    generator = np.random.default_rng(0)
    raw = pd.DataFrame({"age": generator.uniform(0, 90, 3000), "job": generator.choice(["a<b", "c", "d"], 3000)})
    y = (generator.random(3000) < np.where(raw["job"] == "c", 0.9, 0.2)).astype(int)
    encoder = BoundedEncoder(bounds={"age": (0, 90)}, levels={"job": ["a<b", "c", "d"]}).set_output(
        transform="pandas"
    )
    X = encoder.fit_transform(raw)
    model = DPAdditiveClassifier(
        2.0, DELTA, binary_features=encoder.binary_features_, classes=(0, 1), random_state=0
    ).fit(X, y)
    job = next(term for term in model.terms_ if term.column == "job")
    assert (job.kind, job.grid.tolist()) == ("levels", ["a<b", "c", "d"])
    np.testing.assert_array_equal(job.effect, model.coef_[0, 1:4])
    assert job.noise is not None
    np.testing.assert_allclose(job.noise, model.coef_noise_[0, 1:4])
    assert job.effect[1] > max(job.effect[0], job.effect[2]) + 1


def test_the_noise_of_an_average_is_that_of_its_linear_recursion() -> None:
    generator = np.random.default_rng(0)
    squares, divisors, stiffness = generator.uniform(0.1, 1, (3, 4))
    noises = AverageNoise(squares, divisors, stiffness)
    steps = [(generator.uniform(0.1, 1), generator.uniform(0.5, 2), 1.5, 0.7, float(t**2)) for t in range(1, 9)]
    errors = np.zeros((4, 8))  # what the noise of each step does to the iterate, and to the sum
    total = np.zeros((4, 8))
    for number, (rate, noise, curvature, mean_curvature, weight) in enumerate(steps):
        noises.step(rate, noise, curvature, mean_curvature, weight)
        scale = rate / (curvature * divisors + stiffness)
        errors *= (1 - scale * (mean_curvature * squares + stiffness))[:, None]
        errors[:, number] = scale * noise
        total += weight * errors
    expected = np.linalg.norm(total, axis=1) / sum(step[-1] for step in steps)
    shares = np.array([0.5, 0.5, 1.0, 1.0])
    np.testing.assert_allclose(noises.factor(None, 2, 2.0), np.diag(shares * expected), rtol=1e-12)
    grid = FeatureGrid(1.0, 5)
    whitening = Whitening(grid, generator.normal(0, 1, (5, 4)))
    mapped = whitening.matrix * (shares * expected)
    np.testing.assert_allclose(noises.factor(whitening, 2, 2.0), mapped, rtol=1e-12)
    frame = Frame.place(FeatureGrid(1.0, 4), generator.uniform(0, 0.5, 4), np.full(4, 0.25))
    np.testing.assert_allclose(noises.factor(frame, 4, 1.0)[:3, :3], 4 * np.diag(expected[:3]), rtol=1e-12)
    unsaid = AverageNoise(squares[:3], divisors, stiffness)
    unsaid.step(*steps[0])
    assert unsaid.squares.tolist() == [*squares[:3].tolist(), 1.0]


@pytest.mark.parametrize(
    ("model", "epsilon"),
    [
        (DPLogisticRegression, 1.0),
        pytest.param(DPLinearRegression, 10.0, marks=pytest.mark.slow),
        pytest.param(DPAdditiveClassifier, 1.0, marks=pytest.mark.slow),
    ],
)
def test_coefficients_spread_as_much_as_their_noise_says(model, epsilon: float) -> None:
    """30 fits of the same rows; the mean logarithm of spread over claim is within the factor of 1.5 that is promised.

    Chance gives every logarithm a standard deviation of 0.13, and their mean less than 0.07. The ratios are 1.1, 0.75
    and 1.0 here, at least 1.7 such deviations inside, and seeds are fixed. A claim that is 2.25 times as large or as
    small fails for all of them.
    """
    X, y = table(2500)
    options = {} if model is DPLinearRegression else {"classes": (0, 1)}
    fits = [
        model(epsilon, DELTA, bounds=BOUNDS, binary_features=[3], random_state=seed, **options).fit(X, y)
        for seed in range(30)
    ]
    spread = np.std([np.ravel(fit.coef_) for fit in fits], axis=0, ddof=1)
    claimed = np.sqrt(np.mean([np.ravel(fit.coef_noise_) ** 2 for fit in fits], axis=0))
    assert 1 / 1.5 < math.exp(np.mean(np.log(spread / claimed))) < 1.5
    assert fits[0].coef_noise_.shape == fits[0].coef_.shape


@pytest.mark.slow
def test_the_noise_of_a_rare_class_is_not_understated() -> None:
    """16 fits with 1% positives, where the curvature is far below what steps divide by: .72, seeds are fixed.

    With the curvature that steps divide by, the spread would be 2.2 times what is claimed.
    """
    generator = np.random.default_rng(0)
    X = np.clip(generator.normal(size=(20_000, 4)), -4, 4)
    scores = X @ [1.0, -0.8, 0.5, 0.0] + generator.logistic(size=20_000)
    y = (scores > np.quantile(scores, 0.99)).astype(int)
    options = {"bounds": (-4, 4), "classes": (0, 1), "tighten": False}
    fits = [DPLogisticRegression(2.0, DELTA, random_state=seed, **options).fit(X, y) for seed in range(16)]
    spread = np.std([fit.coef_[0] for fit in fits], axis=0, ddof=1)
    claimed = np.sqrt(np.mean([fit.coef_noise_[0] ** 2 for fit in fits], axis=0))
    assert 0.6 < math.exp(np.mean(np.log(spread / claimed))) < 1.3


@pytest.mark.parametrize("model", [DPLinearRegression, DPAdditiveRegressor])
def test_coefficients_and_their_noise_are_in_the_unit_of_the_target(model) -> None:
    X, y = table(1000)
    options = {"bounds": BOUNDS, "random_state": 0}
    small = model(1.0, DELTA, target_bounds=(-2.0, 2.0), **options).fit(X, y)
    large = model(1.0, DELTA, target_bounds=(-16.0, 16.0), **options).fit(X, 8 * y)
    np.testing.assert_allclose(large.coef_, 8 * small.coef_, rtol=1e-9)
    np.testing.assert_allclose(large.coef_noise_, 8 * small.coef_noise_, rtol=1e-9)


def test_methods_that_do_not_say_what_noise_does_give_none() -> None:
    X, y = table(1000)
    model = classifier(method="sgd", pieces=2).fit(X, y)
    assert model.coef_noise_ is None
    assert all(term.noise is None for term in model.terms_)
    assert DPLinearRegression(1.0, DELTA, bounds=BOUNDS, method="sgd", random_state=0).fit(X, y).coef_noise_ is None


class Page(HTMLParser):
    """Collects tags and what they refer to."""

    def __init__(self, content: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.references: list[str] = []
        self.feed(content)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.references += [str(value) for name, value in attributes if name in ("src", "href", "data", "srcset")]


@pytest.fixture(scope="module")
def fitted() -> DPAdditiveClassifier:
    X, y = table(3000)
    names = ["sea & <b>", "money", "weight", "colour=<i>red"]
    return classifier(2.0).fit(pd.DataFrame(X, columns=names), y)


def test_a_page_shows_every_term_and_loads_nothing(fitted, tmp_path: Path) -> None:
    fitted.terms_html(tmp_path / "terms.html")
    content = (tmp_path / "terms.html").read_text()
    page = Page(content)
    assert page.tags.count("figure") == 4
    assert page.tags.count("polyline") == page.tags.count("polygon") == 3
    assert page.tags.count("circle") == 1
    assert not page.references
    assert not {"script", "link", "b", "i"} & set(page.tags)
    assert "://" not in content
    assert "sea &amp; &lt;b&gt;" in content
    assert "(2, 1e-06)-differentially private for one row under zero-out" in content
    with pytest.raises(OutputNotWritable, match="folder that exists"):
        fitted.terms_html(tmp_path / "nowhere" / "terms.html")


def test_a_page_of_several_classes_has_a_line_for_each(tmp_path: Path) -> None:
    X, y = table(3000)
    model = classifier(2.0, classes=("0", "1", "2"), method="sgd").fit(X, y.astype(str))
    model.terms_html(tmp_path / "terms.html")
    page = Page((tmp_path / "terms.html").read_text())
    assert page.tags.count("polyline") == 9
    assert model.terms_[0].effect.shape == (model.terms_[0].grid.size, 3)
    assert "does not say" in (tmp_path / "terms.html").read_text()
    assert len(model.plot_terms().axes) == 4


@needs_browser
def test_a_browser_shows_the_page_without_an_error(fitted, tmp_path: Path) -> None:
    fitted.terms_html(tmp_path / "terms.html")
    boxes = "[...document.querySelectorAll('svg')].map(s => s.getBBox())"
    facts = [
        f"{boxes}.length",
        f"{boxes}.every(b => b.width > 200 && b.height > 100)",
        "document.body.innerText.includes('sea & <b>')",
        "document.documentElement.scrollWidth <= window.innerWidth",
    ]
    assert measured((tmp_path / "terms.html").read_text(), facts, tmp_path) == ["4", "true", "true", "true"]


def test_a_picture_has_a_panel_per_term(fitted, monkeypatch: pytest.MonkeyPatch) -> None:
    figure = fitted.plot_terms()
    assert figure.get_suptitle().replace("\n", " ") == headline(fitted.privacy_)
    assert [axes.get_title() for axes in figure.axes] == [term.column for term in fitted.terms_]
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(MissingPackage, match=r"dpdescent\[plots\]"):
        fitted.plot_terms()


def test_counts_and_targets_with_outliers_have_curves_too() -> None:
    generator = np.random.default_rng(0)
    hour = generator.uniform(0, 24, (8000, 1))
    mean = 1 - np.cos(hour[:, 0] * np.pi / 12)
    counts = generator.poisson(np.exp(mean)).astype(float)
    options = {"bounds": (0, 24), "random_state": 0}
    straight = DPPoissonRegressor(1.0, DELTA, target_bounds=(0, 30), **options).fit(hour, counts)
    model = DPAdditivePoissonRegressor(1.0, DELTA, target_bounds=(0, 30), **options).fit(hour, counts)
    assert straight.score(hour, counts) < 0.2 < 0.5 < model.score(hour, counts)
    assert model._outputs() == ("the logarithm of the mean count",)
    counts[::50] = 500.0
    given = options | {"target_bounds": (-10, 20), "threshold": 1.0}
    robust = DPAdditiveHuberRegressor(1.0, DELTA, **given).fit(hour, counts)
    assert robust.score(hour, np.exp(mean)) > 0.7
    assert DPHuberRegressor(1.0, DELTA, **given).fit(hour, counts).score(hour, np.exp(mean)) < 0.2
